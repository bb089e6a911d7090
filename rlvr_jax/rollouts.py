"""Rollouts of chain arithmetic on any number of lanes: what is drawn for them, what they do, and what that teaches."""

from typing import Generic, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from rlvr_jax import chain, draws
from rlvr_jax.chain import AnyArray
from rlvr_jax.lanes import Layout
from rlvr_jax.numerics import Stage, pin, total

#: What a step of a rollout draws, in this order.
DRAWN = ("u_call", "u_own", "u_fail")


class Table(NamedTuple, Generic[AnyArray]):
    """Problems as the program reads them, S the longest chain; the host makes them in NumPy.

    Attributes:
      steps: int32 ``[W, N, S]``, encoded.
      start: int32 ``[W, N]``.
      answer: int32 ``[W, N]``.
    """

    steps: AnyArray
    start: AnyArray
    answer: AnyArray


class Model(NamedTuple, Generic[AnyArray]):
    """How well the model computes by itself; the host makes it in NumPy.

    Attributes:
      correct: ``[S, K, W]``, its chance to be right at each place of the chain, by context.
      bug: ``[S, K, W]``, that plus its chance of a systematic mistake.
    """

    correct: AnyArray
    bug: AnyArray


class Rollouts(NamedTuple):
    """What G rollouts of each of B problems did.

    Attributes:
      steps: int32 ``[S, B, L]`` or ``[S, B, 1]``, the encoded steps.
      call_prob: ``[S, 3, B, L]``, of calling, by difficulty.
      words: int32 ``[S, G, B, L]``, see `rlvr_jax.chain`.
      correct: bool ``[G, B, L]``, whether the final value is the answer.
      calls: int32 ``[G, B, L]``.
    """

    steps: Array
    call_prob: Array
    words: Array
    correct: Array
    calls: Array


def drawn(
    seed: Array,
    stream: draws.Stream,
    steps: ArrayLike,
    samples: Array,
    slots: Array,
    places: int,
    dtype: jnp.dtype,
    stage: Stage,
) -> tuple[Array, Array]:
    """What rollouts draw: the uniforms of `DRAWN` ``[N, S, 3, G, B, W]`` and slips ``[N, S, G, B, W]``.

    Word 3 i + c of a rollout belongs to place i and draw c, whatever S, G and B are. A slip is taken from bits of
    u_own's word that the uniform leaves unused.

    Args:
      seed: uint32 ``[W]``.
      stream: What the draws are for.
      steps: uint32 ``[N, 1]``.
      samples: int ``[G]``, the numbers of the rollouts of a problem.
      slots: int ``[B]``, the numbers of the problems of a step.
      places: S.
      dtype: Of the uniforms.
      stage: Of the program.
    """
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
        return draws.uniforms(bits, dtype), (bits[:, :, 1] & 3).astype(jnp.int32)

    return stage(made, *stage(words, seed, steps, samples, slots))


def roll(
    layout: Layout,
    batch: Table[Array],
    probabilities: Array,
    uniforms: Array,
    slip: Array,
    model: Model[Array],
    tool_fail: Array,
    stage: Stage,
) -> Rollouts:
    """Rollouts of a batch.

    Args:
      layout: Where seeds and lanes lie.
      batch: ``[B, W, S]`` and ``[B, W]``.
      probabilities: ``[1, K, L]``, of calling, by context.
      uniforms: ``[S, 3, G, B, W]``, see `drawn`.
      slip: ``[S, G, B, W]``.
      model: The model by itself.
      tool_fail: ``[1, 1, L]``.
      stage: Of the program.
    """
    steps = stage(lambda steps: layout.spread(steps.transpose(2, 0, 1)), batch.steps)  # [S, B, L or 1]
    call_prob = stage(lambda table, steps: chain.by_operation(table, chain.operation(steps)), probabilities, steps)

    def own(table: Array, steps: Array) -> Array:
        return layout.spread(chain.by_operation(table, chain.operation(steps.transpose(2, 0, 1))))

    correct, bug = (stage(own, table, batch.steps) for table in model)
    uniforms, slip = stage(layout.spread, uniforms), stage(layout.spread, slip)
    start = layout.spread(batch.start[None])
    first = jnp.broadcast_to(start * 8, (uniforms.shape[2], start.shape[1], layout.width))

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
        steps=steps,
        call_prob=call_prob,
        words=words,
        correct=stage(lambda last, answer: chain.value(last) == answer, last, answer),
        calls=stage(lambda words: jnp.sum(chain.called(words), 0, dtype=jnp.int32), words),
    )


def pushes(words: Array, advantage: Array, call_prob: Array) -> Array:
    """Sum over the samples of advantage times score, ``[S, 3, B, L]``, by place and difficulty.

    The score of a decision is call - call_prob, the derivative of its log-probability for theta of its context.
    """
    met = chain.difficulty(words)[:, :, None] == jnp.arange(chain.DIFFICULTIES)[None, None, :, None, None]
    score = chain.called(words).astype(advantage.dtype)[:, :, None] - call_prob[:, None]
    return total(jnp.where(met, pin(advantage[None, :, None] * score), 0), 1)[:, 0]


def by_context(steps: Array, pushes: Array) -> Array:
    """Sum of pushes ``[S, 3, B, L]`` over places and problems by context, ``[1, K, L]``."""
    kind = jnp.arange(len(chain.CONTEXTS) // chain.DIFFICULTIES)[None, :, None, None, None]
    met = chain.operation(steps)[:, None, None] == kind  # [S, 4, 1, B, L or 1]
    by_kind = total(jnp.where(met, pushes[:, None], 0), 3)  # [S, 4, 3, 1, L]
    return total(by_kind.reshape((len(steps), len(chain.CONTEXTS), -1)))


def met(words: Array, steps: Array) -> Array:
    """How often each context was met, int32 ``[G, K, L]``."""
    context = chain.DIFFICULTIES * chain.operation(steps)[:, None] + chain.difficulty(words)  # [S, G, B, L]
    here = context[:, :, None] == jnp.arange(len(chain.CONTEXTS))[None, None, :, None, None]
    return jnp.sum(here, (0, 3), dtype=jnp.int32)
