"""Rollouts, one training step, the cold start and the evaluation of the tool-use world, on any number of lanes.

A rollout works through a chain of operations (see `rlvr_jax.chain`); before each step it decides whether to call the
calculator, by a probability for each context. Only these decisions are actions: what the calculator returns, and what
the model computes by itself, carries no gradient. Everything here is a pure function of arrays ``[..., L]``.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from rlvr_jax import chain, draws
from rlvr_jax.advantages import ESTIMATORS, Group
from rlvr_jax.chain import AnyArray
from rlvr_jax.lanes import Layout
from rlvr_jax.numerics import Stage, overflows, pin, total
from rlvr_jax.problems import MUL2
from rlvr_jax.rollouts import Model, Rollouts, Table, by_context, drawn, met, pushes, roll

#: Seeds times steps whose draws are made together, enough to fill vectors and small enough for the cache.
DRAWS_AT_ONCE = 16

#: The step of draws that are made once in a training.
_ONCE = np.zeros((1, 1), np.uint32)

#: Contexts in which the expert calls, ``[1, K, 1]``: two-digit multiplications.
_EXPERT = np.arange(len(chain.CONTEXTS))[None, :, None] >= chain.DIFFICULTIES * MUL2

#: Rollouts of an evaluation that go through a chain together.
TOGETHER = 128

#: The same for the imitation of the expert, which has no lanes but seeds.
TAUGHT_TOGETHER = 1024


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["train", "test", "model", "prompt_seed", "answer_seed", "numbers"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Context:
    """What a training reads and never changes.

    Attributes:
      train: The training problems.
      test: The test problems.
      model: How well the model computes by itself.
      prompt_seed: uint32 ``[W]``.
      answer_seed: uint32 ``[W]``.
      numbers: ``[L]`` by name: lr, call_cost, tool_fail, initial_call_prob, cold_start, sft_lr, batch_size, group_size,
        and the estimators' own.
    """

    train: Table[Array]
    test: Table[Array]
    model: Model[Array]
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
      diverged: int32 ``[L]``, the step at which a lane went non-finite and was frozen, 0 for the cold start; -1 for
        none.
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


class Drawn(NamedTuple, Generic[AnyArray]):
    """What is drawn for the rollouts of a batch; in NumPy where a replay is given it.

    Attributes:
      problem: int32 ``[B, W]``.
      uniforms: ``[S, 3, G, B, W]``, those of `rollouts.DRAWN`.
      slip: int32 ``[S, G, B, W]``, indices into `chain.SLIPS`.
    """

    problem: AnyArray
    uniforms: AnyArray
    slip: AnyArray


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
        """The context of one item; the arrays are those of `rlvr_jax.arithmetic_world.inputs`."""
        return Context(
            train=jax.tree.map(lambda x: x[inputs["train"]], shared["train"]),
            test=jax.tree.map(lambda x: x[inputs["test"]], shared["test"]),
            model=jax.tree.map(lambda x: x[inputs["model"]].transpose(1, 2, 0), shared["model"]),
            prompt_seed=inputs["prompt_seed"],
            answer_seed=inputs["answer_seed"],
            numbers=inputs["numbers"],
        )

    def start(self, context: Context, stage: Stage) -> State:
        """The state before the first step of reinforcement learning, after the cold start where there is one."""
        layout, dtype = self.layout, context.model.correct.dtype
        theta = stage(initial, context.numbers["initial_call_prob"][None, None])
        broken = jnp.zeros(layout.width, bool)
        if self.examples:
            after = self._cold_start(theta, context, stage)
            broken = context.numbers["cold_start"] & jnp.any(overflows(after), (0, 1))
            theta = jnp.where(context.numbers["cold_start"] & ~broken, after, theta)
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
            diverged=jnp.where(broken, 0, -1),
        )

    def draw(self, context: Context, steps: Array, stage: Stage) -> Drawn[Array]:
        """Problems and rollouts of the steps ``[N]``, every array ``[N, ...]``; problems are distinct in a batch."""
        steps = steps.astype(jnp.uint32)[:, None]
        slot = jnp.arange(self.batch, dtype=jnp.uint32)

        def for_slots(seed: Array, steps: Array) -> Array:
            key = draws.step_key(seed[None], draws.Stream.PROMPTS, steps)  # two of [N, W]
            slots = slot[:, None, None]
            return draws.threefry(tuple(half[None] for half in key), (jnp.zeros_like(slots), slots))[0]  # [B, N, W]

        words = stage(for_slots, context.prompt_seed, steps)
        problem = draws.choose(words, jnp.full((1, 1), self.train, jnp.int32)).transpose(1, 0, 2)
        samples = jnp.arange(self.group)
        uniforms, slip = self.drawn(context, draws.Stream.ANSWERS, steps, samples, jnp.arange(self.batch), stage)
        return Drawn(problem, uniforms, slip)

    def step(
        self, state: State, context: Context, draw: Drawn[Array], step: Array, last: Array, stage: Stage
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
        done = roll(layout, batch, probabilities, draw.uniforms, draw.slip, context.model, numbers["tool_fail"], stage)
        worth = stage(self._advantage, done.correct, done.calls, memory, active, numbers)

        pushed = stage(pushes, done.words, worth.advantage, done.call_prob)  # [S, 3, B, L]
        update = stage(
            lambda steps, pushed, numbers: by_context(steps, pushed) * _scale(numbers), done.steps, pushed, numbers
        )
        theta = stage(lambda theta, update, lr: theta + pin(lr * update), state.theta, update, numbers["lr"])
        broken = jnp.any(overflows(theta), (0, 1))
        alive = (state.diverged < 0) & ~broken
        of_equal, of_mixed = stage(_split, pushed, worth.equal)
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
        return new, (done, worth)

    def evaluate(self, state: State, context: Context, step: Array, stage: Stage) -> dict[str, Array]:
        """Metrics on the test problems, with the same draws at every evaluation: ``[..., L]`` by name."""
        layout, numbers = self.layout, context.numbers
        probabilities = stage(_sigmoid, state.theta)
        together = min(self.test, max(1, TOGETHER // self.repeats))
        chunks = -(-self.test // together)
        together = -(-self.test // chunks)

        def chunk(i: Array, counts: tuple[Array, Array]) -> tuple[Array, Array]:
            correct, calls = counts
            place = i * together + jnp.arange(together, dtype=jnp.int32)
            real = place < self.test
            problem = jnp.minimum(place, self.test - 1)
            uniforms, slip = self.drawn(
                context, draws.Stream.EVALUATION, _ONCE, jnp.arange(self.repeats), problem, stage
            )
            batch = jax.tree.map(lambda x: jnp.moveaxis(x[:, problem], 0, 1), context.test)  # [B, W, ...]
            fails = numbers["tool_fail"][None, None]
            done = roll(layout, batch, probabilities, uniforms[0], slip[0], context.model, fails, stage)
            right, called = done.correct & real[None, :, None], jnp.where(real[None, :, None], done.calls, 0)
            correct = correct + jnp.sum(right, (0, 1), dtype=jnp.int32)
            return correct, calls + jnp.sum(called, (0, 1), dtype=jnp.int32)

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

    def _advantage(
        self,
        correct: Array,
        calls: Array,
        memory: list[dict[str, Array]],
        active: Array | None,
        numbers: dict[str, Array],
    ) -> Advantage:
        dtype = numbers["call_cost"].dtype
        # equal outcomes and calls are equal floats: ties are found by equality, and without a cost calls do not count
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

        def shown(first: Array) -> Array:
            epochs = first + jnp.arange(together)
            uniforms, slip = self.drawn(context, draws.Stream.SFT, _ONCE, epochs, problem, stage)
            return self.imitated(batch, uniforms[0], slip[0], context, stage)[0]

        counts = lax.map(shown, together * jnp.arange(chunks))
        counts = counts.reshape((chunks * together, *counts.shape[2:]))[: self.epochs]
        return taught(theta, self.layout.spread(counts), context.numbers["sft_lr"][None, None], stage)[-1]

    def examples_of(self, context: Context) -> Table[Array]:
        """The problems that the expert shows, ``[B, W, ...]``."""
        return jax.tree.map(lambda x: jnp.moveaxis(x[:, : self.examples], 0, 1), context.train)

    def imitated(
        self, batch: Table[Array], uniforms: Array, slip: Array, context: Context, stage: Stage
    ) -> tuple[Array, Array]:
        """How often the expert's chains met each context in each epoch, int32 ``[E, K, W]``, and their words.

        The expert calls exactly on two-digit multiplications, and the call always works.

        Args:
          batch: The examples, ``[B, W, S]`` and ``[B, W]``.
          uniforms, slip: As in `Drawn`, with an epoch in place of each sample; of the uniforms u_own is read.
          context: Of the training.
          stage: Of the program.
        """
        alone = Layout(1, (("none", self.layout.seeds),))
        expert = jnp.broadcast_to(_EXPERT.astype(uniforms.dtype), (*_EXPERT.shape[:2], alone.width))
        never = jnp.zeros((1, 1, 1), uniforms.dtype)
        done = roll(alone, batch, expert, uniforms, slip, context.model, never, stage)
        return stage(met, done.words, done.steps), done.words

    def drawn(
        self, context: Context, stream: draws.Stream, steps: ArrayLike, samples: Array, slots: Array, stage: Stage
    ) -> tuple[Array, Array]:
        """What the rollouts of some steps draw, see `rollouts.drawn`."""
        dtype = context.model.correct.dtype
        return drawn(context.answer_seed, stream, steps, samples, slots, self.longest, dtype, stage)


def taught(theta: Array, counts: Array, rate: Array, stage: Stage) -> Array:
    """Theta after each epoch of imitation, ``[E, 1, K, L]``.

    Each epoch adds ``rate`` times the sum of expert_call - sigmoid(theta) over all decisions.

    Args:
      theta: ``[1, K, L]``, before.
      counts: int32 ``[E, K, L]``, decisions in each context.
      rate: ``[1, 1, L]``.
      stage: Of the program.
    """

    def epoch(theta: Array, count: Array) -> tuple[Array, Array]:
        missing = _EXPERT.astype(theta.dtype) - stage(_sigmoid, theta)
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


def _scale(numbers: dict[str, Array]) -> Array:
    """One over the samples of a step, ``[1, 1, L]``."""
    samples = numbers["batch_size"] * numbers["group_size"]
    return 1 / samples.astype(numbers["lr"].dtype)


def _split(pushes: Array, equal: Array) -> tuple[Array, Array]:
    """Sum of pushes over the groups of equal outcome and over the others, ``[L]`` each; ``equal`` is ``[B, L]``."""
    of_group = total(total(pushes), 1)[0, 0]  # [B, L]
    return total(jnp.where(equal, of_group, 0))[0], total(jnp.where(equal, 0, of_group))[0]
