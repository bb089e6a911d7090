"""Where a curve, averaged over seeds, goes below zero, with a bootstrap interval over the seeds.

A cost at which calling ends, a step at which one training overtakes another, a number of samples at which the untrained
model does: each is the place at which a mean, or a mean of paired differences, has gone from above 0 to below.
"""

import math
from functools import lru_cache

import numpy as np
import xarray as xr

from rlvr_jax.intervals import LEVEL

#: Bootstrap resamples of the seeds, the same for all curves, and the seed that draws them.
RESAMPLES, RESAMPLING_SEED = 2000, 0


def descent(values: xr.DataArray, along: str, over: str = "seed") -> xr.Dataset:
    """Find where the mean over ``over`` first goes below 0.

    Between two points of ``along`` the mean is a straight line. The interval is the 95 % percentile interval of
    the same place in 2,000 resamples of the seeds. Seeds with a value that is not finite are left out.

    Args:
        values: dimensions ``along``, with rising coordinates, ``over`` and any others; a dimension ``over``
            that is absent counts as one run.
        along: the coordinate along which the place is found.
        over: the replicates.

    Returns:
        ``at``, ``low`` and ``high`` in the units of ``along``, and ``n``, the number of seeds. -inf: below 0
        from the first point on; inf: nowhere below 0. NaN: ``at`` without a seed, ``low`` and ``high`` with
        fewer than two.

    Example:
        >>> calls = xr.DataArray([[2.0, 1.0, -1.0], [2.0, 3.0, -3.0]], {"seed": [0, 1], "cost": [0.0, 0.1, 0.2]})
        >>> descent(calls, "cost").at.round(3).item()
        0.15
    """
    if over not in values.dims:
        values = values.expand_dims(over)
    others = [dim for dim in values.dims if dim not in (along, over)]
    runs = values.transpose(*others, over, along).astype(np.float64)
    place = np.asarray(values[along].values, np.float64)
    shape = runs.shape[:-2]
    found = np.full((3, *shape), np.nan)
    n = np.zeros(shape, int)
    for index in np.ndindex(*shape):
        kept = runs.values[index]
        kept = kept[np.isfinite(kept).all(1)]
        n[index] = len(kept)
        if len(kept) > 0:
            found[(0, *index)] = _descent(kept.mean(0)[None], place)[0]
        if len(kept) > 1:
            places = np.sort(_descent(_counts(len(kept)) @ kept / len(kept), place))
            tail = math.floor((RESAMPLES + 1) * (1 - LEVEL) / 2)  # no interpolation: some may be infinite
            found[(1, *index)], found[(2, *index)] = places[tail - 1], places[-tail]
    coords = {dim: runs[dim] for dim in others if dim in runs.coords}
    named = {name: (others, numbers) for name, numbers in zip(("at", "low", "high"), found, strict=True)}
    return xr.Dataset({**named, "n": (others, n)}, coords)


def about_interval(found: xr.Dataset) -> str:
    """Return the sentence of a caption on the interval of what ``descent`` found; empty with one seed.

    Example:
        >>> runs = xr.DataArray([[2.0, -1.0], [1.0, -2.0]], {"seed": [0, 1], "step": [0, 10]})
        >>> about_interval(descent(runs, "step"))
        ' Its band or bar is a 95 % percentile bootstrap interval over 2 seeds (2,000 resamples).'
    """
    n = int(found["n"].max())
    if n < 2:
        return ""
    level = f"{LEVEL * 100:.0f} % percentile bootstrap interval"
    return f" Its band or bar is a {level} over {n} seeds ({RESAMPLES:,} resamples)."


@lru_cache(maxsize=2)
def _counts(n: int) -> np.ndarray:
    """How often each of ``n`` seeds is in each resample, ``[R, n]``."""
    drawn = np.random.default_rng(RESAMPLING_SEED).integers(n, size=(RESAMPLES, n))
    places = drawn + n * np.arange(RESAMPLES)[:, None]
    return np.bincount(places.ravel(), minlength=n * RESAMPLES).reshape(RESAMPLES, n).astype(np.float64)


def _descent(means: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The place at which each curve ``[R, X]`` over ``place [X]`` goes below 0."""
    low = means < 0
    after = low.argmax(1)
    before = np.maximum(after - 1, 0)
    row = np.arange(len(means))
    above, below = means[row, before], means[row, after]
    crossed = low.any(1) & (after > 0)
    share = above / np.where(crossed, above - below, 1.0)
    between = place[before] + share * (place[after] - place[before])
    return np.where(crossed, between, np.where(low.any(1), -np.inf, np.inf))
