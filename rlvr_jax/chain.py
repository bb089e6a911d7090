"""One step of a rollout of chain arithmetic: decide, call the calculator or compute by oneself.

A rollout's value is a whole number in 32 bits. What one step does, the value after it, the context in which it was
decided and the decision, is packed into one word, so that one kernel reads and writes it all:

    word = 8 value + 2 difficulty + call,        difficulty 3 where the chain has ended

Every rollout of a problem meets the same operations; only its value, and with it the difficulty, is its own.
"""

from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlvr_jax.problems import ADD, MUL1, MUL2, OPERANDS, OPERATIONS, SUB, Problems

#: Arrays of a compiled program, or of NumPy on the host: what is given in one kind comes back in it.
AnyArray = TypeVar("AnyArray", Array, np.ndarray)

#: Levels of difficulty of an operation, and the contexts ``3 * op + difficulty`` in which a decision is made.
DIFFICULTIES = 3
CONTEXTS = tuple(f"{name}_{difficulty}" for name in OPERATIONS for difficulty in range(DIFFICULTIES))

#: The difficulty that marks a step after the end of a chain, and the operation.
ENDED, NO_OPERATION = 3, 4

#: A value stops here in absolute value: a step of it still fits into 32 bits, so nothing wraps around.
CAP = (2**31 - 1) // OPERANDS[MUL2][1] - 2

#: What a careless slip adds.
SLIPS = (-10, -1, 1, 10)


def encode(problems: Problems, longest: int) -> np.ndarray:
    """Steps as int32 ``[N, longest]``: the operation in bits 0-2, the operand's digits in bits 3-6 and 7-10."""
    op, operand = (
        np.pad(array.astype(np.int32), ((0, 0), (0, longest)), constant_values=end)[:, :longest]
        for array, end in ((problems.op, -1), (problems.operand, 0))
    )
    return np.where(op < 0, NO_OPERATION, op) | operand % 10 << 3 | operand // 10 << 7


def operation(step: Array) -> Array:
    """The operation of encoded steps, `NO_OPERATION` after the end."""
    return step & 7


def value(word: AnyArray) -> AnyArray:
    """The value in a word."""
    return word >> 3


def difficulty(word: AnyArray) -> AnyArray:
    """The difficulty of the step in a word; `ENDED` after the end."""
    return (word >> 1) & 3


def called(word: AnyArray) -> AnyArray:
    """Whether the calculator was called, 0 or 1."""
    return word & 1


def by_operation(table: Array, op: Array) -> Array:
    """For each difficulty the entry of each step's operation.

    Args:
      table: ``[S, K, L]`` by context, or ``[1, K, L]`` for all steps.
      op: ``[S, B, L]``, or broadcasting against it, for S steps.

    Returns:
      ``[S, 3, B, L]``; that of addition after the end.
    """
    rows = table.reshape((-1, len(OPERATIONS), DIFFICULTIES, 1, table.shape[-1]))
    op = op[:, None]
    chosen = rows[:, ADD]
    for kind in (SUB, MUL1, MUL2):
        chosen = jnp.where(op == kind, rows[:, kind], chosen)
    return jnp.broadcast_to(chosen, (op.shape[0], DIFFICULTIES, *chosen.shape[2:]))


def advance(
    word: Array, step: Array, draws: tuple[Array, ...], call_prob: Array, correct: Array, bug: Array, tool_fail: Array
) -> Array:
    """The words ``[G, B, L]`` after one more step.

    The model computes rightly where u_own < ``correct``, makes the operation's systematic mistake where
    u_own < ``bug``, and slips elsewhere.

    Args:
      word: Words before the step.
      step: Encoded steps ``[1, B, L]``.
      draws: ``u_call``, ``u_own``, ``u_fail`` and ``slip``, an index into `SLIPS`, of the shape of ``word``. Each is
        read only where it is needed and may be anything, NaN too, elsewhere.
      call_prob: ``[3, B, L]``, by difficulty, of calling.
      correct: ``[3, B, L]``, by difficulty.
      bug: ``[3, B, L]``, by difficulty, at least ``correct``.
      tool_fail: ``[1, 1, L]``, how often a call fails; the model then computes by itself.
    """
    u_call, u_own, u_fail, slip = draws
    x, op = value(word), operation(step)
    ones, tens = (step >> 3) & 15, (step >> 7) & 15
    operand = ones + 10 * tens
    active, additive = op < NO_OPERATION, op < MUL1
    sign = jnp.where(op == ADD, 1, -1)

    size = jnp.abs(x)
    tail = size - 100 * lax.div(size.astype(jnp.uint32), jnp.uint32(100)).astype(jnp.int32)
    size_tens = _tenth(tail)
    size_ones = tail - 10 * size_tens
    # a carry of an addition, a borrow of a subtraction; columns are looked at one by one
    limit = jnp.where(op == ADD, 10, 1)
    low, high = (sign * digit + other >= limit for digit, other in ((size_ones, ones), (size_tens, tens)))
    hundred, thousand = (size >= 100).astype(jnp.int32), (size >= 1000).astype(jnp.int32)
    hard = jnp.where(additive, jnp.where(low | high, 1 + thousand, 0), hundred + thousand)

    def for_difficulty(table: Array) -> Array:
        return jnp.where(hard == 0, table[0:1], jnp.where(hard == 1, table[1:2], table[2:3]))

    call = active & (u_call < for_difficulty(call_prob))
    right = (call & (u_fail >= tool_fail)) | (u_own < for_difficulty(correct))
    exact = jnp.where(additive, x + sign * operand, x * operand)
    columns = jnp.where(
        additive,
        sign * (jnp.where(low, 10, 0) + jnp.where(high, 100, 0)),
        10 * _tenth(size_ones * operand) + 100 * _tenth(size_tens * operand),
    )
    systematic = jnp.where(op == MUL2, x * (ones + tens), exact - columns)
    slipped = exact + jnp.where(slip < 2, -1, 1) * jnp.where((slip == 0) | (slip == 3), 10, 1)
    after = jnp.where(right, exact, jnp.where(u_own < for_difficulty(bug), systematic, slipped))
    after = jnp.clip(after, -CAP, CAP)
    return jnp.where(active, after * 8 + hard * 2 + call.astype(jnp.int32), (word | 7) & ~1)


def _tenth(small: Array) -> Array:
    """``small // 10`` for 0 to 1023, without a division."""
    return (small * 205) >> 11
