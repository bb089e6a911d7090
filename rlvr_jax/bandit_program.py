"""One training step of the answer bandit and its exact evaluation, on any number of lanes.

Answers are drawn by inverse CDF straight into *counts for each answer*: the update needs no more than how often each
one was drawn, and reward, mean, deviation and advantage take one value for each of three classes (correct, hack,
wrong). Everything here is a pure function of arrays ``[..., L]``; it knows nothing of grids or devices.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlvr_jax import draws
from rlvr_jax.advantages import ESTIMATORS, Group
from rlvr_jax.lanes import Layout
from rlvr_jax.numerics import RUN, Stage, largest, overflows, pin, run_ends, running_sums, total

#: Difficulty levels of the task.
LEVELS = 4

#: How far below an overflow `_reach` must stay: it is rounded at every step.
SLACK = 100.0

#: Seeds times steps whose draws are made together, enough to fill vectors and small enough for the cache.
DRAWS_AT_ONCE = 256


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "ref_logits",
        "log_ref",
        "level",
        "pool",
        "pool_size",
        "prompt_seed",
        "answer_seed",
        "payments",
        "payment",
        "numbers",
    ],
    meta_fields=[],
)
@dataclass(frozen=True)
class Context:
    """What a training reads and never changes.

    Attributes:
      ref_logits: ``[W * P, M, 1]``, the logits at the start.
      log_ref: ``[W * P, M, 1]``, log-probabilities of the reference policy.
      level: int32 ``[P, W]``.
      pool: int32 ``[W, P]``, the prompts that may be drawn come first; ``[W, 0]`` unless `Program.subset`.
      pool_size: int32 ``[W]``, how many of them.
      prompt_seed: uint32 ``[W]``.
      answer_seed: uint32 ``[W]``.
      payments: ``[T + 1, U]``, what the verifier pays for the hack at each step, for U schedules.
      payment: int32 ``[L]``, each lane's schedule.
      numbers: ``[L]`` by name: lr, lr_h, kl_coef, reward_offset, batch_size, group_size, and the estimators' own.
    """

    ref_logits: Array
    log_ref: Array
    level: Array
    pool: Array
    pool_size: Array
    prompt_seed: Array
    answer_seed: Array
    payments: Array
    payment: Array
    numbers: dict[str, Array]

    def hack_reward(self, step: Array) -> Array:
        """What the verifier pays for the hack at a step, ``[L]``."""
        return self.payments[step][self.payment]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["logits", "h", "memory", "tied", "tied_total", "since", "grad_norm", "reach", "diverged"],
    meta_fields=[],
)
@dataclass(frozen=True)
class State:
    """What the next step needs.

    Attributes:
      logits: ``[W * P, M, C]``.
      h: ``[L]``.
      memory: For each method block the estimator's rows ``[W * P, 1, C_block]`` by name.
      tied: int32 ``[L]``, groups without signal since the last evaluation.
      tied_total: int32 ``[L]``, the same since the start.
      since: int32 scalar, steps since the last evaluation.
      grad_norm: ``[L]``, Euclidean norm of the gradient of all parameters at the last step before the evaluation.
      reach: ``[L]``, a bound of all logits in absolute value, see `_reach`.
      diverged: int32 ``[L]``, the step at which a lane went non-finite and was frozen; -1 for none.
    """

    logits: Array
    h: Array
    memory: tuple[dict[str, Array], ...]
    tied: Array
    tied_total: Array
    since: Array
    grad_norm: Array
    reach: Array
    diverged: Array


class Slots(NamedTuple):
    """What is known of the slots of a batch before they learn; every array begins with the slots.

    Attributes:
      logits: ``[B, M, L]``.
      samples: ``[B, G, L]`` or ``[B, G, 1]``, a uniform for each sample; -2 for those beyond a lane's group.
      active: bool ``[B, 1, L]``, whether a slot belongs to a lane's batch; None where all do.
      log_ref: ``[B, M, L]`` or ``[B, M, 1]``, log-probabilities of the reference; None without a KL penalty.
      memory: For each method block the estimator's rows ``[B, 1, L_block]`` by name.
    """

    logits: Array
    samples: Array
    active: Array | None
    log_ref: Array | None
    memory: list[dict[str, Array]]


class Learned(NamedTuple):
    """What the slots of a batch have learned; every array begins with the slots.

    Attributes:
      terms: Of the gradient of the logits, the arguments of `_gradient`.
      of_h: ``[B, 1, L]``, each slot's part of the gradient of h.
      size: ``[1, 1, L]``, the largest updated logit in absolute value; 0 where `reach` shows that all are small.
      reach: ``[1, 1, L]``, a bound of all logits in absolute value, see `_reach`.
      squares: ``[B, 1, L]``, squared norm of each slot's gradient; 0 unless asked for.
      tied: bool ``[B, 1, L]``, groups whose rewards are all equal.
      memory: As in `Slots`, updated.
      drawn_by: The first arguments of `thresholds`.
    """

    terms: tuple[Any, ...]
    of_h: Array
    size: Array
    reach: Array
    squares: Array
    tied: Array
    memory: list[dict[str, Array]]
    drawn_by: tuple[Array, Array]


class Advantage(NamedTuple):
    """Advantages of some slots, divided by the group's size.

    Attributes:
      by_class: ``[B, 3, L]`` for a correct, a hacking and a wrong answer.
      over_group: ``[B, 1, L]``, their sum over the group's samples.
      tied: bool ``[B, 1, L]``, groups whose rewards are all equal.
      memory: The estimators' new rows ``[B, 1, L_block]``.
    """

    by_class: Array
    over_group: Array
    tied: Array
    memory: list[dict[str, Array]]


@dataclass(frozen=True)
class Program:
    """The static facts of one program of this world, and its functions (see `rlvr_jax.engine`).

    Attributes:
      layout: Where seeds, lanes and methods lie.
      prompts: P.
      answers: M.
      batch: B, the largest batch of its lanes.
      group: G, the largest group of its lanes.
      batch_masked: Whether some lane's batch is smaller than B.
      group_masked: Whether some lane's group is smaller than G.
      subset: Whether some lane draws from a part of the prompts only.
      kl: Whether some lane has a KL penalty.
    """

    layout: Layout
    prompts: int
    answers: int
    batch: int
    group: int
    batch_masked: bool = False
    group_masked: bool = False
    subset: bool = False
    kl: bool = True

    @property
    def draws_at_once(self) -> int:
        """Steps whose draws are made together: many, where there are few seeds to fill a vector with."""
        return max(1, DRAWS_AT_ONCE // self.layout.seeds)

    def context(self, inputs: dict[str, Any], shared: dict[str, Array]) -> Context:
        """The context of one item; the arrays are those of `rlvr_jax.bandit.inputs`."""

        def rows(table: Array) -> Array:
            return table[inputs["task"]].reshape((-1, self.answers, 1))  # [W * P, M, 1]

        return Context(
            ref_logits=rows(shared["ref_logits"]),
            log_ref=rows(shared["log_ref"]),
            level=shared["level"][inputs["task"]].T,
            pool=inputs["pool"],
            pool_size=inputs["pool_size"],
            prompt_seed=inputs["prompt_seed"],
            answer_seed=inputs["answer_seed"],
            payments=shared["payments"],
            payment=inputs["payment"],
            numbers=inputs["numbers"],
        )

    def start(self, context: Context, stage: Stage) -> State:
        """The state before the first step: the reference policy, h = 0, no memory."""
        layout, dtype = self.layout, context.ref_logits.dtype
        rows = layout.seeds * self.prompts
        zeros, none = jnp.zeros(layout.width, dtype), jnp.zeros(layout.width, jnp.int32)
        return State(
            logits=jnp.broadcast_to(context.ref_logits, (rows, self.answers, layout.lanes)),
            h=zeros,
            memory=tuple(
                {name: jnp.zeros((rows, 1, lanes), dtype) for name in ESTIMATORS[method].state}
                for method, lanes in layout.blocks
            ),
            tied=none,
            tied_total=none,
            since=jnp.int32(0),
            grad_norm=jnp.full_like(zeros, jnp.nan),
            reach=zeros + largest(largest(jnp.abs(context.ref_logits), 1))[0, 0],
            diverged=none - 1,
        )

    def draw(self, context: Context, steps: Array, stage: Stage) -> tuple[Array, Array]:
        """Prompts and uniforms of the steps ``[N]``.

        Returns:
          Prompts int32 ``[N, B, W]``, distinct within a batch, and uniforms ``[N, B, G, W]``.
        """
        steps = steps.astype(jnp.uint32)[:, None]
        slot = jnp.arange(self.batch, dtype=jnp.uint32)
        pair = jnp.arange((self.group + 1) // 2, dtype=jnp.uint32)

        def keys(seed: Array, steps: Array, stream: draws.Stream) -> tuple[Array, Array]:
            return draws.step_key(seed[None], stream, steps)  # two of [N, W]

        def for_slots(first: Array, second: Array) -> Array:
            slots = slot[:, None, None]
            return draws.threefry((first[None], second[None]), (jnp.zeros_like(slots), slots))[0]  # [B, N, W]

        def for_pairs(first: Array, second: Array) -> tuple[Array, Array]:
            key = (first[:, None, None], second[:, None, None])
            return draws.threefry(
                key, (pair[None, None, :, None], slot[None, :, None, None])
            )  # two of [N, B, G / 2, W]

        key = stage(partial(keys, stream=draws.Stream.PROMPTS), context.prompt_seed, steps)
        prompts = draws.choose(stage(for_slots, *key), context.pool_size[None]).transpose(1, 0, 2)  # [N, B, W]
        if self.subset:
            prompts = context.pool[jnp.arange(self.layout.seeds)[None, None], prompts]
        key = stage(partial(keys, stream=draws.Stream.ANSWERS), context.answer_seed, steps)
        words = jnp.stack(stage(for_pairs, *key), 3).reshape((len(steps), self.batch, -1, self.layout.seeds))
        return prompts, draws.uniforms(words[:, :, : self.group], context.ref_logits.dtype)

    def step(
        self,
        state: State,
        context: Context,
        draw: tuple[Array, Array],
        step: Array,
        last: Array,
        stage: Stage,
    ) -> tuple[State, tuple[Array, Array]]:
        """One training step.

        Args:
          state: Before the step.
          context: Of the training.
          draw: Prompts int32 ``[B, W]`` and uniforms ``[B, G, W]``.
          step: Its number, 1 to T.
          last: Whether an evaluation follows, for which `State.grad_norm` is wanted.
          stage: Of the program.

        Returns:
          The state after the step and what answers were drawn by, the first arguments of `thresholds`.
        """
        layout = self.layout
        numbers = {name: x[None, None] for name, x in context.numbers.items()}
        h, hack_reward = state.h[None, None], context.hack_reward(step)[None, None]
        prompts, uniforms = draw
        rows = layout.rows(prompts, self.prompts)
        slots = Slots(
            logits=stage(layout.gather, state.logits, rows),
            samples=stage(self._samples, uniforms, numbers),
            active=jnp.arange(self.batch)[:, None, None] < numbers["batch_size"] if self.batch_masked else None,
            log_ref=stage(lambda t, rows: layout.spread(layout.gather(t, rows)), context.log_ref, rows)
            if self.kl
            else None,
            memory=[{name: layout.gather(table, rows) for name, table in block.items()} for block in state.memory],
        )
        learned = self._learn(slots, h, hack_reward, numbers, state, last, stage)
        of_h = stage(total, learned.of_h)  # [1, 1, L]
        updated_h = h + pin(numbers["lr_h"] * of_h)
        broken = (overflows(learned.size) | overflows(updated_h))[0, 0]
        alive = (state.diverged < 0) & ~broken
        logits = stage(
            lambda alive, x, *terms: jnp.where(alive, _updated(x, *terms), x),
            alive[None, None],
            slots.logits,
            *learned.terms,
        )
        norm = stage.when(
            last, lambda squares, of_h: jnp.sqrt(total(squares) + pin(of_h * of_h)), learned.squares, of_h
        )
        tied = jnp.sum(learned.tied[:, 0], 0, dtype=jnp.int32)
        state = State(
            logits=layout.scatter(state.logits, rows, logits),
            h=jnp.where(alive, updated_h[0, 0], state.h),
            memory=tuple(
                {name: layout.scatter(table, rows, new[name]) for name, table in block.items()}
                for block, new in zip(state.memory, learned.memory, strict=True)
            ),
            tied=state.tied + tied,
            tied_total=state.tied_total + tied,
            since=state.since + 1,
            grad_norm=jnp.where(last, norm[0, 0], state.grad_norm),
            reach=learned.reach[0, 0],
            diverged=jnp.where((state.diverged < 0) & broken, step, state.diverged),
        )
        return state, learned.drawn_by

    def _samples(self, uniforms: Array, numbers: dict[str, Array]) -> Array:
        """Uniforms ``[B, G, L]`` (``[B, G, 1]`` where all lanes share them); those beyond a lane's group are -2."""
        spread = self.layout.spread(uniforms)
        if not self.group_masked:
            return spread
        return jnp.where(jnp.arange(self.group)[None, :, None] < numbers["group_size"], spread, -2)

    def _learn(
        self,
        slots: Slots,
        h: Array,
        hack_reward: Array,
        numbers: dict[str, Array],
        state: State,
        last: Array,
        stage: Stage,
    ) -> Learned:
        """What the slots of a batch learn; no slot knows of another."""
        highest = stage(lambda x, h: largest(_hacked(x, h), 1), slots.logits, h)
        weight = stage(_weights, slots.logits, h, highest)
        ends = run_ends(weight, stage)
        above = stage(partial(_above, answers=self.answers), weight, ends, slots.samples)
        advantage = stage(self._advantage, above, slots, hack_reward, numbers)
        norm = ends[:, -1:]
        distance = None if slots.log_ref is None else _kl_gradient(slots, weight, highest, norm, h, stage)
        share = stage(lambda over_group, norm: over_group * (1 / norm), advantage.over_group, norm)
        terms = (above, weight, advantage.by_class, share, slots.active, distance, numbers)
        reach = stage(_reach, state.reach[None, None], advantage.by_class, advantage.over_group, numbers)
        far = stage.go if self.kl else jnp.any(overflows(reach * SLACK)[0, 0] & (state.diverged < 0))
        return Learned(
            terms=terms,
            of_h=stage(lambda *terms: _gradient(*terms, answers=slice(1, 2)), *terms),
            size=stage.when(far, lambda *terms: largest(largest(jnp.abs(_updated(*terms)), 1)), slots.logits, *terms),
            reach=reach,
            squares=stage.when(last, lambda *terms: total(_squared(_gradient(*terms)), 1), *terms),
            tied=advantage.tied,
            memory=advantage.memory,
            drawn_by=(weight, ends),
        )

    def _advantage(self, above: Array, slots: Slots, hack_reward: Array, numbers: dict[str, Array]) -> Advantage:
        count = above[:, :3].astype(hack_reward.dtype).transpose(1, 0, 2)
        weight = jnp.concatenate([count[0:1] - count[1:2], count[1:2] - count[2:3], count[2:3]])
        offset = numbers["reward_offset"]
        reward = jnp.concatenate([1 + offset, hack_reward + offset, offset])  # [3, 1, L]
        size = numbers["group_size"].astype(reward.dtype)
        active = None if slots.active is None else slots.active.transpose(1, 0, 2)
        parts, updates = [], []
        for (method, _), lanes, rows in zip(self.layout.blocks, self.layout.slices, slots.memory, strict=True):
            old = {name: row.transpose(1, 0, 2) for name, row in rows.items()}
            group = Group(reward[..., lanes], weight[..., lanes], size[..., lanes], old)
            part, new = ESTIMATORS[method].function(group, {name: x[..., lanes] for name, x in numbers.items()})
            parts.append(part)
            if active is not None:
                new = {name: jnp.where(active[..., lanes], x, old[name]) for name, x in new.items()}
            updates.append({name: x.transpose(1, 0, 2) for name, x in new.items()})
        advantage = jnp.concatenate(parts, -1)
        tied = Group(reward, weight, size).tied()
        if active is not None:
            advantage, tied = jnp.where(active, advantage, 0), tied & active
        weighted = advantage * (1 / size)
        over_group = total(pin(weight * weighted))
        by_class, over_group, tied = (x.transpose(1, 0, 2) for x in (weighted, over_group, tied))
        return Advantage(by_class, over_group, tied, updates)

    def evaluate(self, state: State, context: Context, step: Array, stage: Stage) -> dict[str, Array]:
        """Exact metrics of the policy, from the probabilities of all prompts: ``[..., L]`` by name."""
        layout, h = self.layout, state.h[None, None]
        logits = stage(layout.to_lanes, state.logits)  # [P, M, L]
        policy, log_norm = _softmax(logits, h, stage)
        correct, hack = policy[:, 0], policy[:, 1]  # [P, L]

        def divergences(logits: Array, h: Array, log_norm: Array, policy: Array, ref: Array) -> tuple[Array, Array]:
            log_policy = _hacked(logits, h) - log_norm
            # 0 log 0 = 0: a probability that underflows adds nothing
            terms = jnp.where(policy > 0, pin(policy * log_policy), 0)
            ratio = jnp.where(policy > 0, pin(policy * (log_policy - ref)), 0)
            return -total(terms, 1)[:, 0], total(ratio, 1)[:, 0]

        def mean(x: Array, among: Array | None = None) -> Array:
            """Over prompts ``[P, L]``, or those ``among [P, L or 1]``; NaN where there is none."""
            if among is None:
                return stage(lambda x: total(x)[0] * (1 / self.prompts), x)
            count = jnp.sum(among, 0, dtype=jnp.int32).astype(x.dtype)
            part = stage(lambda x, among: total(jnp.where(among, x, 0))[0], x, among)
            return jnp.where(count > 0, part * (1 / count), jnp.nan)

        ref = stage(lambda table: layout.spread(layout.to_lanes(table)), context.log_ref)
        entropy, kl = stage(divergences, logits, h, log_norm, policy, ref)
        level = layout.spread(context.level)
        accuracy, hack_rate = mean(correct), mean(hack)
        groups = state.since.astype(h.dtype) * context.numbers["batch_size"].astype(h.dtype)
        metrics = {
            "accuracy": accuracy,
            "hack_rate": hack_rate,
            "verifier_reward": accuracy + pin(context.hack_reward(step) * hack_rate),
            "accuracy_by_level": jnp.stack([mean(correct, level == k) for k in range(LEVELS)]),
            "correct_prob": correct,
            "zero_frac": jnp.where(state.since > 0, state.tied.astype(h.dtype) * (1 / groups), jnp.nan),
            "kl": mean(kl),
            "entropy": mean(entropy),
            "grad_norm": state.grad_norm,
            "h": state.h,
        }
        seen = jnp.ones((1, 1), bool)
        if self.subset:
            seeds = jnp.arange(layout.seeds)[:, None]
            drawn = jnp.arange(self.prompts)[None] < context.pool_size[:, None]  # [W, P], by place in the pool
            seen = layout.spread(jnp.zeros(drawn.shape, bool).at[seeds, context.pool].set(drawn).T)  # [P, L], by prompt
        for name, values in (("accuracy", correct), ("hack_rate", hack)):
            metrics[f"{name}_seen"] = mean(values, jnp.broadcast_to(seen, values.shape))
            metrics[f"{name}_unseen"] = mean(values, jnp.broadcast_to(~seen, values.shape))
        return metrics

    def reset(self, state: State, counted: Array) -> State:
        """The state after an evaluation: where it was ``counted``, nothing has happened since."""
        tied, since = jnp.zeros_like(state.tied), jnp.zeros_like(state.since)
        return replace(state, tied=jnp.where(counted, tied, state.tied), since=jnp.where(counted, since, state.since))

    def finish(self, state: State, context: Context, steps: Array) -> dict[str, Array]:
        """What is stored once, after the last step: ``[..., L]`` by name."""
        groups = steps.astype(state.h.dtype) * context.numbers["batch_size"].astype(state.h.dtype)
        return {
            "zero_frac_total": jnp.where(steps > 0, state.tied_total.astype(groups.dtype) * (1 / groups), 0),
            "logits": self.layout.to_lanes(state.logits),
            "diverged_step": state.diverged,
        }


def _hacked(logits: Array, h: Array) -> Array:
    """Logits ``[N, M, L]`` with h added to answer 1."""
    answer = jnp.arange(logits.shape[1])[None, :, None]
    return logits + jnp.where(answer == 1, h, 0)


def _softmax(logits: Array, h: Array, stage: Stage) -> tuple[Array, Array]:
    """Probabilities ``[N, M, L]`` and the log of their normaliser ``[N, 1, L]`` for logits ``[N, M, L]``."""
    highest = stage(lambda x, h: largest(_hacked(x, h), 1), logits, h)
    scaled = stage(lambda x, h, highest: jnp.exp(_hacked(x, h) - highest), logits, h, highest)
    norm = stage(lambda x: total(x, 1), scaled)
    policy = stage(lambda x, norm: pin(x * (1 / norm)), scaled, norm)
    return policy, stage(lambda highest, norm: highest + jnp.log(norm), highest, norm)


def _weights(logits: Array, h: Array, highest: Array) -> Array:
    """Probabilities times their sum, the largest 1, ``[B, M, L]``; 0 beyond the last answer up to a whole run."""
    weight = jnp.exp(_hacked(logits, h) - highest)
    return jnp.pad(weight, ((0, 0), (0, -weight.shape[1] % RUN), (0, 0)))


def thresholds(weight: Array, ends: Array, answers: int) -> Array:
    """The sum of the weights before each answer, ``[B, >= M, L]``: -1 for the first, infinite beyond the last.

    A sample with uniform u is answer ``sum(u * ends[:, -1] > thresholds) - 1``.
    """
    place = jnp.arange(weight.shape[1])[None, :, None]
    return jnp.where(place == 0, -1, jnp.where(place >= answers, jnp.inf, running_sums(weight, ends)))


def _above(weight: Array, ends: Array, samples: Array, answers: int) -> Array:
    """Samples above each threshold, a small whole number ``[B, M + 1, L]``: answer j was drawn n[j] - n[j + 1] times.

    Samples are negative beyond a lane's group, and above no threshold.
    """
    limits = thresholds(weight, ends, answers)
    above = jnp.zeros(limits.shape, jnp.int32)
    scaled = samples * ends[:, -1:]
    for g in range(samples.shape[1]):
        above = above + (scaled[:, g : g + 1] > limits).astype(jnp.int32)
    if samples.shape[1] < 2**8:
        above = above.astype(jnp.uint8)  # a quarter of the memory traffic
    return jnp.concatenate([above[:, :answers], jnp.zeros_like(above[:, :1])], 1)


def _kl_gradient(slots: Slots, weight: Array, highest: Array, norm: Array, h: Array, stage: Stage) -> Array:
    """Gradient of KL(π || ref) for the logits, ``[B, M, L]``."""
    policy = stage(lambda weight, norm: pin(weight[:, : slots.logits.shape[1]] * (1 / norm)), weight, norm)
    log_norm = stage(lambda highest, norm: highest + jnp.log(norm), highest, norm)
    ratio = stage(
        lambda x, h, log_norm, ref: (_hacked(x, h) - log_norm) - ref, slots.logits, h, log_norm, slots.log_ref
    )
    kl = stage(lambda policy, ratio: total(pin(policy * ratio), 1), policy, ratio)
    return stage(lambda policy, ratio, kl: pin(policy * (ratio - kl)), policy, ratio, kl)


def _gradient(
    above: Array,
    weight: Array,
    by_class: Array,
    share: Array,
    active: Array | None,
    distance: Array | None,
    numbers: dict[str, Array],
    answers: slice = slice(None),
) -> Array:
    """Ascent direction for the logits, ``[B, M, L]`` or some answers of it.

    The score-function gradient (1/G) Σᵢ Aᵢ (onehot(yᵢ) - π) on counts, less kl_coef times the gradient of the KL.
    """
    count = (above[:, :-1] - above[:, 1:])[:, answers].astype(weight.dtype)
    answer = jnp.arange(above.shape[1] - 1)[None, answers, None]
    correct, hack, wrong = by_class[:, 0:1], by_class[:, 1:2], by_class[:, 2:3]
    advantage = jnp.where(answer == 0, correct, jnp.where(answer == 1, hack, wrong))
    gradient = pin(count * advantage) - pin(weight[:, : above.shape[1] - 1][:, answers] * share)
    if distance is None:
        return gradient
    penalised = numbers["kl_coef"] > 0 if active is None else (numbers["kl_coef"] > 0) & active
    return jnp.where(penalised, gradient - pin(numbers["kl_coef"] * distance[:, answers]), gradient)


def _reach(reach: Array, by_class: Array, over_group: Array, numbers: dict[str, Array]) -> Array:
    """A bound of all logits in absolute value after the step, ``[1, 1, L]``, where there is no KL penalty.

    An entry of the gradient is at most the whole group's count times the largest advantage, and what the policy's own
    term adds. While the sum of these bounds is small no logit can overflow, and none needs to be looked at.
    """
    size = numbers["group_size"].astype(reach.dtype)
    return reach + numbers["lr"] * largest(size * largest(jnp.abs(by_class), 1) + jnp.abs(over_group))


def _updated(logits: Array, *terms: Any) -> Array:
    """Logits after the step, ``[B, M, L]``."""
    return logits + pin(terms[-1]["lr"] * _gradient(*terms))


def _squared(x: Array) -> Array:
    return pin(x * x)
