"""Rollouts, one training step, the cold start and the evaluation of the tool-use world, on any number of lanes.

A rollout works through a chain of operations (see `rlvr_jax.chain`); before each step it decides whether to call the
calculator, by a probability for each context. Only these decisions are actions: what the calculator returns, and what
the model computes by itself, carries no gradient. Everything here is a pure function of arrays ``[..., L]``.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from rlvr_jax import chain, draws
from rlvr_jax.advantages import ESTIMATORS, Group
from rlvr_jax.lanes import Layout
from rlvr_jax.numerics import Stage, overflows, pin, total
from rlvr_jax.problems import MUL2

#: Seeds times steps whose draws are made together, enough to fill vectors and small enough for the cache.
DRAWS_AT_ONCE = 16

#: Rollouts of an evaluation that go through a chain together.
TOGETHER = 128

#: The same for the imitation of the expert, which has no lanes but seeds.
TAUGHT_TOGETHER = 1024

#: What a step of a rollout draws, in this order.
DRAWN = ("u_call", "u_own", "u_fail")


class Table(NamedTuple):
    """Problems as the program reads them, S the longest chain.

    Attributes:
      steps: int32 ``[W, N, S]``, encoded.
      start: int32 ``[W, N]``.
      answer: int32 ``[W, N]``.
    """

    steps: Array
    start: Array
    answer: Array


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["train", "test", "correct", "bug", "prompt_seed", "answer_seed", "numbers"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Context:
    """What a training reads and never changes.

    Attributes:
      train: The training problems.
      test: The test problems.
      correct: ``[S, K, W]``, the model's own chance to be right at each place of the chain, by context.
      bug: ``[S, K, W]``, that plus its chance of a systematic mistake.
      prompt_seed: uint32 ``[W]``.
      answer_seed: uint32 ``[W]``.
      numbers: ``[L]`` by name: lr, call_cost, tool_fail, initial_call_prob, cold_start, sft_lr, batch_size, group_size,
        and the estimators' own.
    """

    train: Table
    test: Table
    correct: Array
    bug: Array
    prompt_seed: Array
    answer_seed: Array
    numbers: dict[str, Array]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "theta",
        "memory",
        "tied",
        "tied_total",
        "equal",
        "push_equal",
        "push_mixed",
        "since",
        "diverged",
    ],
    meta_fields=[],
)
@dataclass(frozen=True)
class State:
    """What the next step needs.

    Attributes:
      theta: ``[1, K, L]``, logit of calling by context.
      memory: For each method block the estimator's rows ``[W * N, 1, C_block]`` by name.
      tied: int32 ``[L]``, groups with equal rewards since the last evaluation.
      tied_total: int32 ``[L]``, the same since the start.
      equal: int32 ``[L]``, groups all right or all wrong since the last evaluation.
      push_equal: ``[L]``, sum of the push on calling of those groups.
      push_mixed: ``[L]``, the same of the other groups.
      since: int32 scalar, steps since the last evaluation.
      diverged: int32 ``[L]``, the step at which a lane went non-finite and was frozen; -1 for none.
    """

    theta: Array
    memory: tuple[dict[str, Array], ...]
    tied: Array
    tied_total: Array
    equal: Array
    push_equal: Array
    push_mixed: Array
    since: Array
    diverged: Array


class Drawn(NamedTuple):
    """What is drawn for the rollouts of a batch.

    Attributes:
      problem: int32 ``[B, W]``.
      uniforms: ``[S, 3, G, B, W]``, those of `DRAWN`.
      slip: int32 ``[S, G, B, W]``, indices into `chain.SLIPS`.
    """

    problem: Array
    uniforms: Array
    slip: Array


class Rollouts(NamedTuple):
    """What G rollouts of each of B problems did.

    Attributes:
      words: int32 ``[S, G, B, L]``, see `rlvr_jax.chain`.
      correct: bool ``[G, B, L]``, whether the final value is the answer.
      calls: int32 ``[G, B, L]``.
    """

    words: Array
    correct: Array
    calls: Array


class Advantage(NamedTuple):
    """What the rollouts of a batch are worth.

    Attributes:
      reward: ``[G, B, L]``.
      advantage: ``[G, B, L]``; 0 beyond a lane's group or batch.
      tied: bool ``[B, L]``, groups whose rewards are all equal.
      equal: bool ``[B, L]``, groups all right or all wrong.
      memory: The estimators' new rows ``[B, 1, L_block]``.
    """

    reward: Array
    advantage: Array
    tied: Array
    equal: Array
    memory: list[dict[str, Array]]


@dataclass(frozen=True)
class Program:
    """The static facts of one program of this world, and its functions (see `rlvr_jax.engine`).

    Attributes:
      layout: Where seeds, lanes and methods lie.
      train: N, training problems.
      test: N', test problems.
      longest: S, the longest chain.
      batch: B, the largest batch of its lanes.
      group: G, the largest group of its lanes.
      repeats: Rollouts of each test problem in an evaluation.
      examples: Problems of the cold start; 0 where no lane has one.
      epochs: Epochs of the cold start.
      batch_masked: Whether some lane's batch is smaller than B.
      group_masked: Whether some lane's group is smaller than G.
    """

    layout: Layout
    train: int
    test: int
    longest: int
    batch: int
    group: int
    repeats: int
    examples: int
    epochs: int
    batch_masked: bool = False
    group_masked: bool = False

    @property
    def draws_at_once(self) -> int:
        """Steps whose draws are made together."""
        return max(1, DRAWS_AT_ONCE // self.layout.seeds)

    def context(self, inputs: dict[str, Any], shared: dict[str, Any]) -> Context:
        """The context of one item; the arrays are those of `rlvr_jax.arithmetic.inputs`."""
        return Context(
            train=jax.tree.map(lambda x: x[inputs["train"]], shared["train"]),
            test=jax.tree.map(lambda x: x[inputs["test"]], shared["test"]),
            correct=shared["correct"][inputs["model"]].transpose(1, 2, 0),
            bug=shared["bug"][inputs["model"]].transpose(1, 2, 0),
            prompt_seed=inputs["prompt_seed"],
            answer_seed=inputs["answer_seed"],
            numbers=inputs["numbers"],
        )

    def start(self, context: Context, stage: Stage) -> State:
        """The state before the first step of reinforcement learning, after the cold start where there is one."""
        layout, dtype = self.layout, context.correct.dtype
        theta = stage(initial, context.numbers["initial_call_prob"][None, None])
        if self.examples:
            theta = jnp.where(context.numbers["cold_start"], self._cold_start(theta, context, stage), theta)
        zeros, none = jnp.zeros(layout.width, dtype), jnp.zeros(layout.width, jnp.int32)
        return State(
            theta=theta,
            memory=tuple(
                {name: jnp.zeros((layout.seeds * self.train, 1, lanes), dtype) for name in ESTIMATORS[method].state}
                for method, lanes in layout.blocks
            ),
            tied=none,
            tied_total=none,
            equal=none,
            push_equal=zeros,
            push_mixed=zeros,
            since=jnp.int32(0),
            diverged=none - 1,
        )

    def draw(self, context: Context, steps: Array, stage: Stage) -> Drawn:
        """Problems and rollouts of the steps ``[N]``, every array ``[N, ...]``; problems are distinct in a batch."""
        steps = steps.astype(jnp.uint32)[:, None]
        slot = jnp.arange(self.batch, dtype=jnp.uint32)

        def for_slots(seed: Array, steps: Array) -> Array:
            key = draws.step_key(seed[None], draws.Stream.PROMPTS, steps)  # two of [N, W]
            slots = slot[:, None, None]
            return draws.threefry(tuple(half[None] for half in key), (jnp.zeros_like(slots), slots))[0]  # [B, N, W]

        words = stage(for_slots, context.prompt_seed, steps)
        problem = draws.choose(words, jnp.full((1, 1), self.train, jnp.int32)).transpose(1, 0, 2)
        uniforms, slip = self._rollout_draws(
            context, draws.Stream.ANSWERS, steps, jnp.arange(self.group), jnp.arange(self.batch), stage
        )
        return Drawn(problem, uniforms, slip)

    def step(
        self, state: State, context: Context, draw: Drawn, step: Array, last: Array, stage: Stage
    ) -> tuple[State, tuple[Rollouts, Advantage]]:
        """One training step.

        Args:
          state: Before the step.
          context: Of the training.
          draw: Problems and the rollouts' draws.
          step: Its number, 1 to T.
          last: Whether an evaluation follows.
          stage: Of the program.

        Returns:
          The state after the step, and what the rollouts did and were worth.
        """
        layout = self.layout
        numbers = {name: x[None, None] for name, x in context.numbers.items()}
        seeds = jnp.arange(layout.seeds)[None]
        batch = jax.tree.map(lambda x: x[seeds, draw.problem], context.train)
        active = jnp.arange(self.batch)[None, :, None] < numbers["batch_size"] if self.batch_masked else None
        rows = layout.rows(draw.problem, self.train)
        memory = [{name: layout.gather(table, rows) for name, table in block.items()} for block in state.memory]

        probabilities = stage(_sigmoid, state.theta)
        steps = stage(lambda steps: layout.spread(steps.transpose(2, 0, 1)), batch.steps)  # [S, B, L]
        call_prob = stage(lambda table, steps: chain.by_operation(table, chain.operation(steps)), probabilities, steps)
        rollouts = self._roll(batch, steps, draw.uniforms, draw.slip, call_prob, numbers["tool_fail"], context, stage)
        worth = stage(self._advantage, rollouts.correct, rollouts.calls, memory, active, numbers)

        pushes = stage(_pushes, rollouts.words, worth.advantage, call_prob)  # [S, 3, B, L]
        update = stage(
            lambda steps, pushes, numbers: _by_context(steps, pushes) * _scale(numbers), steps, pushes, numbers
        )
        theta = stage(lambda theta, update, lr: theta + pin(lr * update), state.theta, update, numbers["lr"])
        broken = jnp.any(overflows(theta), (0, 1))
        alive = (state.diverged < 0) & ~broken
        of_equal, of_mixed = stage(_split, pushes, worth.equal)
        tied, equal = (jnp.sum(x, 0, dtype=jnp.int32) for x in (worth.tied, worth.equal))
        new = State(
            theta=jnp.where(alive, theta, state.theta),
            memory=tuple(
                {name: layout.scatter(table, rows, new[name]) for name, table in block.items()}
                for block, new in zip(state.memory, worth.memory, strict=True)
            ),
            tied=state.tied + tied,
            tied_total=state.tied_total + tied,
            equal=state.equal + equal,
            push_equal=state.push_equal + of_equal,
            push_mixed=state.push_mixed + of_mixed,
            since=state.since + 1,
            diverged=jnp.where((state.diverged < 0) & broken, step, state.diverged),
        )
        return new, (rollouts, worth)

    def evaluate(self, state: State, context: Context, step: Array, stage: Stage) -> dict[str, Array]:
        """Metrics on the test problems, with the same draws at every evaluation: ``[..., L]`` by name."""
        layout, numbers = self.layout, context.numbers
        probabilities = stage(_sigmoid, state.theta)
        together = min(self.test, max(1, TOGETHER // self.repeats))
        chunks = -(-self.test // together)
        together = -(-self.test // chunks)

        def chunk(i: Array, counts: tuple[Array, Array]) -> tuple[Array, Array]:
            place = i * together + jnp.arange(together, dtype=jnp.int32)
            real = place < self.test
            problem = jnp.minimum(place, self.test - 1)
            uniforms, slip = self._rollout_draws(
                context,
                draws.Stream.EVALUATION,
                jnp.zeros((1, 1), jnp.uint32),
                jnp.arange(self.repeats),
                problem,
                stage,
            )
            batch = jax.tree.map(lambda x: jnp.moveaxis(x[:, problem], 0, 1), context.test)  # [B, W, ...]
            steps = stage(lambda steps: layout.spread(steps.transpose(2, 0, 1)), batch.steps)
            call_prob = stage(
                lambda table, steps: chain.by_operation(table, chain.operation(steps)), probabilities, steps
            )
            rollouts = self._roll(
                batch, steps, uniforms[0], slip[0], call_prob, numbers["tool_fail"][None, None], context, stage
            )
            counted = (rollouts.correct & real[None, :, None], jnp.where(real[None, :, None], rollouts.calls, 0))
            return tuple(count + jnp.sum(x, (0, 1), dtype=jnp.int32) for count, x in zip(counts, counted, strict=True))

        none = jnp.zeros(layout.width, jnp.int32)
        correct, calls = lax.fori_loop(0, chunks, chunk, (none, none))
        dtype = state.theta.dtype
        accuracy, calls = (pin(x.astype(dtype) * (1 / (self.test * self.repeats))) for x in (correct, calls))
        groups = state.since.astype(dtype) * numbers["batch_size"].astype(dtype)

        def since(x: Array) -> Array:
            """Per group since the last evaluation; NaN where there was none."""
            return jnp.where(state.since > 0, x.astype(dtype) * (1 / groups), jnp.nan)

        return {
            "accuracy": accuracy,
            "calls": calls,
            "reward": accuracy - pin(numbers["call_cost"] * calls),
            "call_prob": probabilities[0],
            "zero_frac": since(state.tied),
            "equal_outcome_frac": since(state.equal),
            "push_equal": since(state.push_equal),
            "push_mixed": since(state.push_mixed),
        }

    def reset(self, state: State, counted: Array) -> State:
        """The state after an evaluation: where it was ``counted``, nothing has happened since."""
        names = ("tied", "equal", "push_equal", "push_mixed", "since")
        return replace(
            state, **{name: jnp.where(counted, jnp.zeros_like(x), x) for name in names for x in [getattr(state, name)]}
        )

    def finish(self, state: State, context: Context, steps: Array) -> dict[str, Array]:
        """What is stored once, after the last step: ``[..., L]`` by name."""
        dtype = state.theta.dtype
        groups = steps.astype(dtype) * context.numbers["batch_size"].astype(dtype)
        return {
            "zero_frac_total": jnp.where(steps > 0, state.tied_total.astype(dtype) * (1 / groups), 0),
            "theta": state.theta[0],
            "diverged_step": state.diverged,
        }

    def _rollout_draws(
        self, context: Context, stream: draws.Stream, steps: Array, samples: Array, slots: Array, stage: Stage
    ) -> tuple[Array, Array]:
        """For the steps ``[N, 1]``: the uniforms of `DRAWN` ``[N, S, 3, G, B, W]`` and slips ``[N, S, G, B, W]``.

        Word 3 i + c of rollout g belongs to place i and draw c, whatever S, G and B are. A slip is taken from bits
        of u_own's word that the uniform leaves unused.
        """
        places = self.longest
        pairs = (3 * places + 1) // 2

        def words(seed: Array, steps: Array, samples: Array, slots: Array) -> tuple[Array, Array]:
            key = draws.step_key(seed[None], stream, steps)
            sample = samples.astype(jnp.uint32)[None, None, :, None, None]
            pair = jnp.arange(pairs, dtype=jnp.uint32)[None, :, None, None, None]
            counter = ((sample << 16) | pair, slots.astype(jnp.uint32)[None, None, None, :, None])
            return draws.threefry(tuple(half[:, None, None, None] for half in key), counter)

        def made(first: Array, second: Array) -> tuple[Array, Array]:
            bits = jnp.stack([first, second], 2)
            bits = bits.reshape((len(first), 2 * pairs, *first.shape[2:]))[:, : 3 * places]
            bits = bits.reshape((len(first), places, 3, *first.shape[2:]))
            return draws.uniforms(bits, context.correct.dtype), (bits[:, :, 1] & 3).astype(jnp.int32)

        return stage(made, *stage(words, context.answer_seed, steps, samples, slots))

    def _roll(
        self,
        batch: Table,
        steps: Array,
        uniforms: Array,
        slip: Array,
        call_prob: Array,
        tool_fail: Array,
        context: Context,
        stage: Stage,
    ) -> Rollouts:
        """Rollouts of a batch.

        Args:
          batch: ``[B, W, S]`` and ``[B, W]``.
          steps: The same steps, ``[S, B, L or 1]``.
          uniforms, slip: As in `Drawn`.
          call_prob: ``[S, 3, B, L]``, by difficulty.
          tool_fail: ``[1, 1, L]``.
          context: Of the training.
          stage: Of the program.
        """
        layout = self.layout
        group, width = uniforms.shape[2], call_prob.shape[-1]

        def own(table: Array, steps: Array) -> Array:
            return layout.spread(chain.by_operation(table, chain.operation(steps.transpose(2, 0, 1))))

        correct, bug = (stage(own, table, batch.steps) for table in (context.correct, context.bug))
        uniforms, slip = stage(layout.spread, uniforms), stage(layout.spread, slip)
        start = layout.spread(batch.start[None])
        first = jnp.broadcast_to(start * 8, (group, *start.shape[1:-1], width))

        def place(word: Array, here: tuple[Array, ...]) -> tuple[Array, Array]:
            def advanced(word: Array, tool_fail: Array, *here: Array) -> Array:
                step, drawn, slip, call_prob, correct, bug = here
                u_call, u_own, u_fail = drawn
                given = (u_call, u_own, u_fail, slip)
                return chain.advance(word, step[None], given, call_prob, correct, bug, tool_fail)

            word = stage(advanced, word, tool_fail, *here)
            return word, word

        last, words = lax.scan(place, first, (steps, uniforms, slip, call_prob, correct, bug))
        answer = layout.spread(batch.answer[None])
        return Rollouts(
            words=words,
            correct=stage(lambda last, answer: chain.value(last) == answer, last, answer),
            calls=stage(lambda words: jnp.sum(chain.called(words), 0, dtype=jnp.int32), words),
        )

    def _advantage(
        self,
        correct: Array,
        calls: Array,
        memory: list[dict[str, Array]],
        active: Array | None,
        numbers: dict[str, Array],
    ) -> Advantage:
        dtype = numbers["call_cost"].dtype
        # equal outcomes and calls are equal floats: ties are found by equality
        reward = correct.astype(dtype) - pin(numbers["call_cost"] * calls.astype(dtype))
        sample = jnp.arange(self.group)[:, None, None]
        present = sample < numbers["group_size"] if self.group_masked else sample >= 0
        weight, size = present.astype(dtype), numbers["group_size"].astype(dtype)
        parts, updates = [], []
        for (method, _), lanes, rows in zip(self.layout.blocks, self.layout.slices, memory, strict=True):
            old = {name: row.transpose(1, 0, 2) for name, row in rows.items()}
            group = Group(reward[..., lanes], _lanes(weight, lanes), size[..., lanes], old)
            part, new = ESTIMATORS[method].function(group, {name: x[..., lanes] for name, x in numbers.items()})
            parts.append(part)
            if active is not None:
                new = {name: jnp.where(active[..., lanes], x, old[name]) for name, x in new.items()}
            updates.append({name: x.transpose(1, 0, 2) for name, x in new.items()})
        advantage = jnp.where(present, jnp.concatenate(parts, -1), 0)
        tied = Group(reward, weight, size).tied()[0]
        right = jnp.sum(correct & present, 0, dtype=jnp.int32)
        equal = (right == 0) | (right == numbers["group_size"][0])
        if active is not None:
            advantage = jnp.where(active, advantage, 0)
            tied, equal = tied & active[0], equal & active[0]
        return Advantage(reward, advantage, tied, equal, updates)

    def _cold_start(self, theta: Array, context: Context, stage: Stage) -> Array:
        """Theta after the imitation of the expert, ``[1, K, L]``."""
        together = min(self.epochs, max(1, TAUGHT_TOGETHER // self.examples))
        chunks = -(-self.epochs // together)
        together = -(-self.epochs // chunks)
        batch, problem = self.examples_of(context), jnp.arange(self.examples)

        def met(first: Array) -> Array:
            uniforms, slip = self._rollout_draws(
                context, draws.Stream.SFT, jnp.zeros((1, 1), jnp.uint32), first + jnp.arange(together), problem, stage
            )
            return self.imitated(batch, uniforms[0], slip[0], context, stage)

        counts = lax.map(met, together * jnp.arange(chunks))
        counts = counts.reshape((chunks * together, *counts.shape[2:]))[: self.epochs]
        return taught(theta, self.layout.spread(counts), context.numbers["sft_lr"][None, None], stage)[-1]

    def examples_of(self, context: Context) -> Table:
        """The problems that the expert shows, ``[B, W, ...]``."""
        return jax.tree.map(lambda x: jnp.moveaxis(x[:, : self.examples], 0, 1), context.train)

    def imitated(self, batch: Table, uniforms: Array, slip: Array, context: Context, stage: Stage) -> Array:
        """How often the expert's chains met each context in each epoch, int32 ``[E, K, W]``.

        The expert calls exactly on two-digit multiplications, and the call always works.

        Args:
          batch: The examples, ``[B, W, S]`` and ``[B, W]``.
          uniforms, slip: As in `Drawn`, with an epoch in place of each sample; of the uniforms u_own is read.
          context: Of the training.
          stage: Of the program.
        """
        alone = replace(self, layout=Layout(1, (("none", self.layout.seeds),)))
        steps = batch.steps.transpose(2, 0, 1)
        expert = (chain.operation(steps) == MUL2).astype(uniforms.dtype)[:, None]
        call_prob = jnp.broadcast_to(expert, (len(steps), chain.DIFFICULTIES, *steps.shape[1:]))
        never = jnp.zeros((1, 1, 1), uniforms.dtype)
        rollouts = alone._roll(batch, steps, uniforms, slip, call_prob, never, context, stage)
        return stage(_met, rollouts.words, steps)


def taught(theta: Array, counts: Array, rate: Array, stage: Stage) -> Array:
    """Theta after each epoch of imitation, ``[E, 1, K, L]``.

    Each epoch adds ``rate`` times the sum of expert_call - sigmoid(theta) over all decisions.

    Args:
      theta: ``[1, K, L]``, before.
      counts: int32 ``[E, K, L]``, decisions in each context.
      rate: ``[1, 1, L]``.
      stage: Of the program.
    """
    expert = jnp.arange(len(chain.CONTEXTS))[None, :, None] >= chain.DIFFICULTIES * MUL2

    def epoch(theta: Array, count: Array) -> tuple[Array, Array]:
        missing = expert.astype(theta.dtype) - stage(_sigmoid, theta)
        theta = stage(lambda theta, missing: theta + pin(rate * (count.astype(theta.dtype) * missing)), theta, missing)
        return theta, theta

    return lax.scan(epoch, theta, counts[:, None])[1]


def initial(probability: Array) -> Array:
    """Theta ``[1, K, L]`` at which every context is called in with ``probability [1, 1, L]``."""
    shape = (1, len(chain.CONTEXTS), probability.shape[-1])
    return jnp.broadcast_to(jnp.log(probability) - jnp.log1p(-probability), shape)


def _sigmoid(theta: Array) -> Array:
    return 1 / (1 + jnp.exp(-theta))


def _lanes(x: Array, lanes: slice) -> Array:
    """The lanes of a block, where there is one for each."""
    return x if x.shape[-1] == 1 else x[..., lanes]


def _pushes(words: Array, advantage: Array, call_prob: Array) -> Array:
    """Sum over the samples of advantage times score, ``[S, 3, B, L]``, by place and difficulty.

    The score of a decision is call - call_prob, the derivative of its log-probability for theta of its context.
    """
    met = chain.difficulty(words)[:, :, None] == jnp.arange(chain.DIFFICULTIES)[None, None, :, None, None]
    score = chain.called(words).astype(advantage.dtype)[:, :, None] - call_prob[:, None]
    return total(jnp.where(met, pin(advantage[None, :, None] * score), 0), 1)[:, 0]


def _by_context(steps: Array, pushes: Array) -> Array:
    """Sum of pushes ``[S, 3, B, L]`` over places and problems by context, ``[1, K, L]``."""
    kind = jnp.arange(len(chain.CONTEXTS) // chain.DIFFICULTIES)[None, :, None, None, None]
    met = chain.operation(steps)[:, None, None] == kind  # [S, 4, 1, B, L or 1]
    by_kind = total(jnp.where(met, pushes[:, None], 0), 3)  # [S, 4, 3, 1, L]
    return total(by_kind.reshape((len(steps), len(chain.CONTEXTS), -1)))


def _scale(numbers: dict[str, Array]) -> Array:
    """One over the samples of a step, ``[1, 1, L]``."""
    samples = numbers["batch_size"] * numbers["group_size"]
    return 1 / samples.astype(numbers["lr"].dtype)


def _split(pushes: Array, equal: Array) -> tuple[Array, Array]:
    """Sum of pushes over the groups of equal outcome and over the others, ``[L]`` each; ``equal`` is ``[B, L]``."""
    of_group = total(total(pushes), 1)[0, 0]  # [B, L]
    return total(jnp.where(equal, of_group, 0))[0], total(jnp.where(equal, 0, of_group))[0]


def _met(words: Array, steps: Array) -> Array:
    """How often each context was met, int32 ``[G, K, L]``."""
    context = chain.DIFFICULTIES * chain.operation(steps)[:, None] + chain.difficulty(words)  # [S, G, B, L]
    met = context[:, :, None] == jnp.arange(len(chain.CONTEXTS))[None, None, :, None, None]
    return jnp.sum(met, (0, 3), dtype=jnp.int32)
