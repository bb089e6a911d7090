"""Random numbers as a function of (seed, stream, step, slot, index) and of nothing else.

A draw never depends on how many others are made beside it, so a larger batch, a larger group, another chunk or another
device count leaves every draw as it was. Counter-based threefry (Salmon et al. 2011), in two levels:

    step key = threefry(key = (0, seed), counter = (stream, step))
    two words = threefry(key = step key, counter = (index, slot))

Slots lie on the axis before the last and seeds on the last, so that all arithmetic runs along seeds.
"""

from collections.abc import Sequence
from enum import IntEnum

import jax.numpy as jnp
from jax import Array, lax

#: Seeds are 32-bit keys.
SEEDS = 2**32

#: `choose` multiplies 16-bit halves, so it can choose among at most this many.
MOST_CHOICES = 2**16


class Stream(IntEnum):
    """What a draw is for. A number is never given to another stream: it is part of every result."""

    PROMPTS = 1
    ANSWERS = 2
    EVALUATION = 3
    SFT = 4


def threefry(key: Sequence[Array], counter: Sequence[Array]) -> tuple[Array, Array]:
    """The threefry-2x32 block cipher with 20 rounds: uint32 words, key and counter broadcast against each other.

    The same words as `jax.random` is built on, without the loop over rounds that JAX uses on a CPU: inside a
    `rlvr_jax.numerics.Stage` it is two to four times faster. Outside of one it may be evaluated again for each use.

    >>> zero = jnp.uint32(0)
    >>> [int(word) for word in threefry((zero, zero), (zero, zero))]
    [1797259609, 2579123966]
    """
    first, second = key
    schedule = (first, second, first ^ second ^ jnp.uint32(0x1BD11BDA))
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = x + y
            y = ((y << jnp.uint32(rotation)) | (y >> jnp.uint32(32 - rotation))) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y


def step_key(seed: Array, stream: Stream, step: Array) -> tuple[Array, Array]:
    """The key of one step of one stream; ``seed`` and ``step`` are uint32 and broadcast."""
    return threefry((jnp.uint32(0), seed), (jnp.uint32(stream), step))


def uniforms(bits: Array, dtype: jnp.dtype) -> Array:
    """Uniform numbers from 32-bit words: the midpoints of 2^23 equal intervals of (0, 1).

    They are exact in float32, have mean 1/2, and are never 0 or 1, so an answer of probability 0 is never drawn.
    float64 uses the same numbers: a sweep in double precision sees the draws of the single-precision one.

    >>> uniforms(jnp.array([0, 2**32 - 1], jnp.uint32), jnp.float32).tolist()
    [5.960464477539063e-08, 0.9999999403953552]
    """
    return ((bits >> 9).astype(dtype) + 0.5) * 2.0**-23


def choose(bits: Array, population: Array) -> Array:
    """Distinct numbers below ``population``, every ordered choice equally likely (Fisher-Yates).

    Slot b swaps position b of the list 0, 1, ... with a position drawn from b, ..., population - 1 and takes what
    comes to lie at b. Later slots do not touch earlier ones, so a batch of 8 is the beginning of a batch of 32.
    The list itself is never made: the value at each drawn position is carried along instead.

    Args:
      bits: uint32 ``[B, ...]``, one word a slot.
      population: int32, of the rank of ``bits[0]`` and broadcasting against it; B <= population <= 2^16. The bias
        from scaling 32 bits to the range is below population / 2^32.

    Returns:
      int32 ``[B, ...]``.

    >>> sorted(choose(jnp.arange(5, dtype=jnp.uint32)[:, None] * 10**9 // 2, jnp.array([5]))[:, 0].tolist())
    [0, 1, 2, 3, 4]
    """
    slots = bits.shape[0]
    slot = jnp.arange(slots, dtype=jnp.uint32).reshape((slots,) + (1,) * (bits.ndim - 1))
    remaining = population.astype(jnp.uint32)[None] - slot
    # floor(bits * remaining / 2^32) without 64-bit words
    drawn = ((bits >> 16) * remaining + (((bits & 0xFFFF) * remaining) >> 16)) >> 16
    position = (drawn + slot).astype(jnp.uint16)  # half the memory traffic of 32 bits
    slot = jnp.broadcast_to(slot.astype(jnp.uint16), position.shape)

    def swap(b: Array, values: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        at_position, at_slot, chosen = values
        here = lax.dynamic_slice_in_dim(position, b, 1)
        moved = lax.dynamic_slice_in_dim(at_slot, b, 1)
        chosen = lax.dynamic_update_slice_in_dim(chosen, lax.dynamic_slice_in_dim(at_position, b, 1), b, 0)
        at_position = jnp.where(position == here, moved, at_position)
        at_slot = jnp.where(slot == here, moved, at_slot)
        return at_position, at_slot, chosen

    return lax.fori_loop(0, slots, swap, (position, slot, jnp.zeros_like(position)))[2].astype(jnp.int32)
