"""Pinned operations: the only floating-point reductions that the core may use.

A cell's numbers must not depend on how many lanes, seeds or devices share its program, to the bit. A compiler may
reorder a float ``reduce`` with the shape, contract ``a * b + c`` into one rounding where it fuses the two, rewrite a
broadcast division, and evaluate one expression again inside several kernels. The functions here leave it no choice:

* `total` and `largest` combine along an axis in a fixed order, a halving tree over a zero-padded power of two;
* `run_ends` and `running_sums` give running sums in a fixed order that never decrease for terms >= 0;
* `pin` keeps a product that feeds an addition from being contracted with it;
* `Stage` makes a function a kernel group of its own, so that nothing outside is fused into it, and nothing in it is
  computed twice. This is what makes the core fast as well: without it, XLA's CPU fusion evaluates a softmax's
  maximum again for every answer.

`tests/test_layers.py` forbids ``sum``, ``mean``, ``max``, ``softmax`` and ``cumsum`` on floats elsewhere in the core.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import jaxpr_as_fun

#: Longest axis that is combined by an unrolled tree; a longer one is first folded to this length by a loop.
UNROLLED = 256


def pin(product: Array) -> Array:
    """The product itself, which no compiler contracts into a fused multiply-add.

    +inf becomes the largest finite number, so divergence must be looked for with `overflows`, not ``isfinite``.
    NaN and -inf pass through.

    >>> float(pin(jnp.float32(2) * jnp.float32(3)))
    6.0
    """
    return jnp.minimum(product, jnp.finfo(product.dtype).max)


def overflows(x: Array) -> Array:
    """Whether ``x`` is NaN or so large that its square is infinite (1.8e19 in float32, 1.3e154 in float64).

    A parameter of that size has lost all its digits below the size of any update, and differences and squares of it
    are about to become infinite: the training has diverged, even where a softmax would still hide it.

    >>> overflows(jnp.array([1.0, 1e20, jnp.inf, jnp.nan, -jnp.inf])).tolist()
    [False, True, True, True, True]
    """
    return ~(jnp.abs(x) < jnp.sqrt(jnp.finfo(x.dtype).max))


def total(x: Array, axis: int = 0) -> Array:
    """Sum along ``axis``, which stays with length 1: a halving tree over the axis zero-padded to a power of two.

    Appending zeros changes no bit of the result, so a masked batch sums like a shorter one.

    >>> total(jnp.arange(5.0)).tolist()
    [10.0]
    """
    return _combine(x, axis, jnp.add, 0)


def largest(x: Array, axis: int = 0) -> Array:
    """Maximum along ``axis``, which stays with length 1; NaN where any entry is NaN.

    >>> largest(jnp.array([1.0, 7.0, 3.0])).tolist()
    [7.0]
    """
    return _combine(x, axis, jnp.maximum, -jnp.inf)


def _combine(x: Array, axis: int, operation: Callable[[Array, Array], Array], neutral: float) -> Array:
    length = x.shape[axis]
    if length > UNROLLED:
        x = _padded(x, axis, -length % UNROLLED, neutral)

        def fold(i: Array, folded: Array) -> Array:
            return operation(folded, lax.dynamic_slice_in_dim(x, i * UNROLLED, UNROLLED, axis))

        first = lax.slice_in_dim(x, 0, UNROLLED, axis=axis)
        x = lax.fori_loop(1, x.shape[axis] // UNROLLED, fold, first)
        length = UNROLLED
    half = 1 << (length - 1).bit_length()
    x = _padded(x, axis, half - length, neutral)
    while half > 1:
        half //= 2
        x = operation(lax.slice_in_dim(x, 0, half, axis=axis), lax.slice_in_dim(x, half, 2 * half, axis=axis))
    return x


def _padded(x: Array, axis: int, extra: int, value: float) -> Array:
    if extra == 0:
        return x
    shape = list(x.shape)
    shape[axis] = extra
    return lax.concatenate([x, jnp.full(shape, value, x.dtype)], axis)


#: Terms in one run of a running sum, and runs whose ends are summed up one after another.
RUN, CHAINED = 4, 16


def run_sums(terms: Array) -> Array:
    """Sums of each `RUN` terms along axis 1, in order.

    >>> run_sums(jnp.arange(8.0)[None, :, None])[0, :, 0].tolist()
    [6.0, 22.0]
    """
    split = terms.reshape((terms.shape[0], -1, RUN, terms.shape[2]))
    sums = split[:, :, 0]
    for i in range(1, RUN):
        sums = sums + split[:, :, i]
    return sums


def running_sums(terms: Array, ends: Array) -> Array:
    """The sum of the terms before each term along axis 1; never decreasing where the terms are >= 0.

    A sum is that of the runs before its own, an entry of ``ends``, plus the terms of its run, cut where rounding would
    carry it beyond the end of its run. Within a run, rounding keeps order. Inverse-CDF sampling needs that.

    Args:
      terms: ``[B, RUN * R, L]``.
      ends: ``[B, R + 1, L]``, the sum before each run and of all, of `run_ends`.

    >>> running_sums(jnp.ones((1, 8, 1)), jnp.array([0.0, 4.0, 8.0])[None, :, None])[0, :, 0].tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    split = terms.reshape((terms.shape[0], -1, RUN, terms.shape[2]))
    place = jnp.arange(RUN)[None, None, :, None]
    within = jnp.zeros_like(split)
    for i in range(RUN - 1):
        within = within + jnp.where(place > i, split[:, :, i : i + 1], 0)
    return jnp.minimum(ends[:, :-1, None] + within, ends[:, 1:, None]).reshape(terms.shape)


def run_ends(terms: Array, stage: "Stage") -> Array:
    """Sums along axis 1 before each run of `RUN` terms and of all terms, ``[B, R + 1, L]`` for ``[B, RUN * R, L]``.

    In a fixed order, by runs of runs; they never decrease where the terms are >= 0.
    """
    sums = stage(run_sums, terms)
    count = sums.shape[1]
    if count > CHAINED:
        whole = _padded(sums, 1, -count % RUN, 0)
        return stage(
            lambda whole, ends: lax.concatenate([running_sums(whole, ends)[:, :count], ends[:, -1:]], 1),
            whole,
            run_ends(whole, stage),
        )

    def chain(sums: Array) -> Array:
        before = [jnp.zeros_like(sums[:, :1])]
        for i in range(count):
            before.append(before[-1] + sums[:, i : i + 1])
        return lax.concatenate(before, 1)

    return stage(chain, sums)


class Stage:
    """Runs functions as kernel groups of their own inside a compiled program.

    ``stage(function, *operands)`` is ``function(*operands)``, computed once, apart from everything around it. It is a
    conditional whose condition is always true but known only at run time: the one border that XLA's CPU compiler
    neither removes nor fuses across (`jax.lax.optimization_barrier` disappears before fusion in jaxlib 0.10).

    Args:
      go: A traced ``bool[]`` that is true when the program runs, from an argument of the compiled function.

    >>> jax.jit(lambda go, x: Stage(go)(jnp.exp, x))(True, jnp.zeros(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, go: Array):
        self.go = go

    def __call__(self, function: Callable[..., Any], *operands: Any) -> Any:
        return self.when(self.go, function, *operands)

    @staticmethod
    def when(condition: Array, function: Callable[..., Any], *operands: Any) -> Any:
        """``function(*operands)`` where ``condition`` holds, zeros of the same shapes and types otherwise."""
        # traced once: the conditional gets the finished equations
        equations, shapes = jax.make_jaxpr(function, return_shape=True)(*operands)
        call, tree = jaxpr_as_fun(equations), jax.tree.structure(shapes)

        def zeros(*_: Array) -> list[Array]:
            return [jnp.zeros(shape.shape, shape.dtype) for shape in jax.tree.leaves(shapes)]

        return jax.tree.unflatten(tree, lax.cond(condition, call, zeros, *jax.tree.leaves(operands)))
