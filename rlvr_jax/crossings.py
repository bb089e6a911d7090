"""Where a curve, averaged over seeds, goes below zero, with a bootstrap interval over the seeds.

A cost at which calling ends, a step at which one training overtakes another, a number of samples at which the untrained
model does: each is the place at which a mean, or a mean of paired differences, has gone from above 0 to below.
"""

import numpy as np
import xarray as xr

from rlvr_jax.stats.bootstrap import RESAMPLES, bootstrap, mean_of

LEVEL = 0.95


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
    runs = values.transpose(along, *others, over).astype(np.float64)
    place = np.asarray(values[along].values, np.float64)

    def first_below(counts: np.ndarray, *samples: np.ndarray) -> np.ndarray:
        return _descent(np.stack([mean_of(counts, sample) for sample in samples]), place)

    shape = runs.shape[1:-1]
    bounds = bootstrap(first_below, *runs.values.reshape(len(place), -1, runs.sizes[over]), level=LEVEL)
    named = {"at": bounds.estimate, "low": bounds.low, "high": bounds.high, "n": bounds.n}
    coords = {dim: runs[dim] for dim in others if dim in runs.coords}
    return xr.Dataset({name: (others, numbers.reshape(shape)) for name, numbers in named.items()}, coords)


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


def _descent(means: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The place at which each of the curves ``[X, ...]`` over ``place [X]`` goes below 0."""
    low = means < 0
    any_low, after = low.any(0), low.argmax(0)
    before = np.maximum(after - 1, 0)
    crossed = any_low & (after > 0)
    above, below = (np.take_along_axis(means, i[None], 0)[0] for i in (before, after))
    share = above / np.where(crossed, above - below, 1.0)
    between = place[before] + share * (place[after] - place[before])
    return np.where(crossed, between, np.where(any_low, -np.inf, np.inf))
