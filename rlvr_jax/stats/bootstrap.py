"""The percentile bootstrap: one set of resamples for all cells, so that what is compared is resampled together.

A resample is the number of times that it holds each replicate, and a statistic is a function of values
``[cells, n]`` and these counts ``[n, R]``; with all counts 1 it is the estimate itself. The counts follow from the
seed and n alone: cells with the same replicates share them, whatever else is asked for with that seed.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import TypeAlias

import numpy as np

from rlvr_jax.types import InvalidInput, number, whole

#: counts ``[n, R]`` and one or more samples ``[cells, n]`` -> the statistic ``[cells, R]``.
Statistic: TypeAlias = Callable[..., np.ndarray]

#: Resamples unless said otherwise: the ends of a 95 % interval then rest on 50 of them each.
RESAMPLES = 2000

#: Numbers in a block of counts, which should stay in a core's cache; in a block of resampled statistics; and in the
#: counts that are kept for the next call.
COUNTS, RESAMPLED, KEPT = 2**18, 2**22, 2**23


@dataclass(frozen=True)
class Bounds:
    """Estimates with their intervals, float64 ``[cells]`` each, and the pairs or values that they rest on."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray

    def columns(self) -> dict[str, np.ndarray]:
        """As columns of a result."""
        return {"estimate": self.estimate, "low": self.low, "high": self.high, "n": self.n}


def check_level(level: float) -> None:
    """Refuse a confidence level outside of (0, 1)."""
    number("level", level, lambda value: 0.0 < value < 1.0, "between 0 and 1, such as 0.95")


def entropy_of(seed: int | np.random.Generator) -> int:
    """Return the number from which resamples are drawn: the seed itself, or a draw from the generator."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    if isinstance(seed, Integral) and not isinstance(seed, bool) and seed >= 0:
        return int(seed)
    raise InvalidInput(f"seed is {seed!r}; it must be a whole number at least 0 or a numpy.random.Generator")


def bootstrap(
    statistic: Statistic,
    *samples: np.ndarray,
    level: float,
    resamples: int = RESAMPLES,
    seed: int | np.random.Generator = 0,
) -> Bounds:
    """Return a statistic of each cell with its percentile interval.

    Of R sorted resampled values the interval takes the k-th from either end, k = ⌊(R + 1) (1 - level) / 2⌋, without
    interpolation, so that infinite values do no harm. Missing replicates are left out before resampling: a cell with
    n finite values is resampled n from n, and cells that miss the same ones stay paired.

    Args:
        statistic: see `Statistic`.
        samples: ``[cells, n]`` each; NaN is missing, and in one sample makes the replicate missing in all.
        level: of the interval.
        resamples: R.
        seed: a number or a generator.

    Returns:
        NaN as the estimate without a value; NaN as the interval with fewer than two, since one run says nothing of
        the spread.
    """
    check_level(level)
    if (whole("resamples", resamples, 1) + 1) * (1 - level) / 2 < 1 - 1e-9:
        least = math.ceil(2 / (1 - level) - 1e-9) - 1
        raise InvalidInput(f"resamples is {resamples!r}; level {level:g} needs a whole number at least {least}")
    entropy = entropy_of(seed)
    finite = np.logical_and.reduce([np.isfinite(sample) for sample in samples])
    cells = len(finite)
    estimate, low, high = (np.full(cells, np.nan) for _ in range(3))
    for rows, present in _equal_masks(finite):
        n = int(present.sum())
        if n == 0:
            continue
        held = [sample[rows][:, present] for sample in samples]
        estimate[rows] = statistic(np.ones((n, 1)), *held)[:, 0]
        if n < 2:
            continue
        block = max(1, RESAMPLED // resamples)
        for first in range(0, len(rows), block):
            part = slice(first, first + block)
            drawn = [statistic(counts, *(sample[part] for sample in held)) for counts in _counts(n, resamples, entropy)]
            low[rows[part]], high[rows[part]] = _ends(np.concatenate(drawn, axis=1), level)
    return Bounds(estimate, low, high, finite.sum(1))


def _equal_masks(finite: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """``(rows, mask)`` for each set of cells that have the same replicates, in the order of their number."""
    if finite.all():
        yield np.arange(len(finite)), np.ones(finite.shape[1], bool)
        return
    masks, group = np.unique(finite, axis=0, return_inverse=True)
    for i in np.argsort(masks.sum(1), kind="stable"):
        yield np.flatnonzero(group.reshape(-1) == i), masks[i]


def _counts(n: int, resamples: int, entropy: int) -> Iterable[np.ndarray]:
    """How often each replicate is in each resample, ``[n, R]`` in blocks along R."""
    return (_kept_counts if n * resamples <= KEPT else _new_counts)(n, resamples, entropy)


@lru_cache(maxsize=2)
def _kept_counts(n: int, resamples: int, entropy: int) -> tuple[np.ndarray, ...]:
    return tuple(_new_counts(n, resamples, entropy))


def _new_counts(n: int, resamples: int, entropy: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(entropy)
    block = max(64, COUNTS // n)
    for first in range(0, resamples, block):
        size = min(block, resamples - first)
        drawn = generator.integers(0, n, (size, n))
        places = np.bincount((drawn * size + np.arange(size)[:, None]).ravel(), minlength=n * size)
        counts = places.reshape(n, size).astype(np.float64)
        counts.setflags(write=False)
        yield counts


def _ends(drawn: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    k = math.floor((drawn.shape[1] + 1) * (1 - level) / 2 + 1e-9) - 1
    drawn.sort(axis=1)  # faster than two partitions
    return drawn[:, k], drawn[:, -1 - k]


def mean_of(counts: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Σ cᵢ xᵢ / n, exact where all values are equal."""
    centre = _centre(x)
    return centre + (x - centre) @ counts / x.shape[1]


def std_of(counts: np.ndarray, x: np.ndarray) -> np.ndarray:
    """√(Σ cᵢ (xᵢ - x̄)² / (n - 1)), NaN for one value."""
    n = x.shape[1]
    if n < 2:
        return np.full((len(x), counts.shape[1]), np.nan)
    centred = x - _centre(x)
    squares = np.square(centred) @ counts - np.square(centred @ counts) / n
    return np.sqrt(np.maximum(squares, 0.0) / (n - 1))


def _centre(x: np.ndarray) -> np.ndarray:
    """The mean ``[cells, 1]``, which rounding must not push outside of the values."""
    return np.clip(x.mean(1, keepdims=True), x.min(1, keepdims=True), x.max(1, keepdims=True))


def window_of(first: Callable[[int], float], last: Callable[[int], float]) -> Statistic:
    """Return the mean of the sorted values from position ``first(n)`` to ``last(n)``, parts of values included.

    Sorted values x₍₁₎ … x₍ₙ₎ fill the positions 0 to n, cᵢ each; with Cᵢ = clip(c₁ + … + cᵢ, a, b) the mean over
    [a, b] is x₍ₙ₎ - Σᵢ (Cᵢ - a) (x₍ᵢ₊₁₎ - x₍ᵢ₎) / (b - a).
    """

    def statistic(counts: np.ndarray, x: np.ndarray) -> np.ndarray:
        a, b = first(x.shape[1]), last(x.shape[1])
        result = np.empty((len(x), counts.shape[1]))
        for row, (values, reached) in enumerate(_sorted(counts, x)):
            inside = np.clip(reached[1:-1], a, b, out=reached[1:-1])
            below = np.diff(values) @ inside - a * (values[-1] - values[0])
            result[row] = values[-1] - below / (b - a)
        return result

    return statistic


def quantile_of(q: float) -> Statistic:
    """Return the q-quantile, linear between the two sorted values around position q (n - 1), as NumPy's default."""

    def statistic(counts: np.ndarray, x: np.ndarray) -> np.ndarray:
        position = q * (x.shape[1] - 1)
        lower, share = int(position), position - int(position)
        result = np.empty((len(x), counts.shape[1]))
        for row, (values, reached) in enumerate(_sorted(counts, x)):
            below = values[(reached[1:] <= lower).sum(0)]
            above = values[(reached[1:] <= lower + 1).sum(0)] if share > 0 else below
            result[row] = below + share * (above - below)
        return result

    return statistic


def improvement_of(counts: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Σᵢⱼ cᵢ cⱼ (1[xᵢ > yⱼ] + 1[xᵢ = yⱼ] / 2) / n²."""
    result = np.empty((len(x), counts.shape[1]))
    for row, (values, reached) in enumerate(_sorted(counts, y)):
        below, upto = (np.searchsorted(values, x[row], side) for side in ("left", "right"))
        result[row] = np.einsum("ir,ir->r", counts, reached[below] + reached[upto])
    return result / (2 * x.shape[1] ** 2)


def _sorted(counts: np.ndarray, x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The sorted values of each cell, and how many of each resample are among the first 0, 1, … n of them.

    ``[n]`` and ``[n + 1, R]``; the latter is the same memory for all cells, and is the reader's until the next one.
    """
    reached = np.zeros((x.shape[1] + 1, counts.shape[1]))
    for values in x:
        order = np.argsort(values, kind="stable")
        np.take(counts, order, axis=0, out=reached[1:], mode="clip")
        before = reached[0]
        for here in reached[1:]:  # row by row: `cumsum` takes three times as long here
            np.add(before, here, out=here)
            before = here
        yield values[order], reached
