"""The study's own check of its intervals: how wide they are with few seeds, and how often they hold."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr

from rlvr_jax.stats.bootstrap import RESAMPLES, Bounds, check_level, entropy_of
from rlvr_jax.stats.distribution import clopper_pearson
from rlvr_jax.stats.replicates import Values, cells_of
from rlvr_jax.stats.student import moments
from rlvr_jax.stats.summaries import Seed, check_method, mean_bounds
from rlvr_jax.types import InvalidInput, numbers, whole


def interval_coverage(
    values: Values,
    sizes: Sequence[int],
    over: str = "seed",
    *,
    method: Literal["t", "bootstrap"] = "t",
    axis: int = -1,
    level: float = 0.95,
    trials: int = 2000,
    resamples: int = RESAMPLES,
    seed: Seed = 0,
) -> xr.Dataset:
    """How often the interval of a mean over few seeds holds the mean over all, and how wide it is.

    All replicates together stand for the distribution; each trial draws n of them with replacement, as if n new seeds
    had been run, and asks whether the interval of `mean` contains the mean of all.

    Args:
        values: as in `mean`, with many replicates.
        sizes: numbers of seeds, at least 2 each.
        over, axis, level, resamples, seed: as in `mean`; cells without missing replicates share the drawn seeds.
        method: of the interval.
        trials: how many times n seeds are drawn.

    Returns:
        ``estimate``, the share of trials whose interval holds the mean, with ``low`` and ``high``, its own 95 %
        Clopper-Pearson interval; ``width``, the mean width of the interval in the units of the values; and ``n``, the
        number of trials; with the dimension ``seeds`` last. NaN for a cell without a value.

    Raises:
        InvalidInput: an argument that cannot be meant.

    Example:
        >>> normal = np.random.default_rng(0).normal(size=2000)
        >>> bool(interval_coverage(normal, [5], trials=500).estimate > 0.92)
        True
    """
    check_level(level)
    check_method(method, "t", "bootstrap")
    cells = cells_of(values, over, axis)
    trials = whole("trials", trials, 1)
    allowed = "whole numbers at least 2"
    given = np.atleast_1d(numbers(sizes, "sizes", allowed))
    if given.ndim != 1 or given.size == 0 or not ((given >= 2) & (given == np.rint(given))).all():
        raise InvalidInput(f"sizes is {sizes!r}; it must be {allowed}")
    wanted = given.astype(int).tolist()
    count, truth, _ = moments(cells.values)
    entropy = entropy_of(seed)
    held, width = (np.full((len(truth), len(wanted)), np.nan) for _ in range(2))
    for i, n in enumerate(wanted):
        uniform = np.random.default_rng([entropy, n]).random((trials, n))
        for row in np.flatnonzero(count > 0):
            present = cells.values[row][np.isfinite(cells.values[row])]
            drawn = present[(uniform * count[row]).astype(int)]
            bounds, _ = mean_bounds(drawn, level, method, resamples, entropy)
            held[row, i] = ((bounds.low <= truth[row]) & (truth[row] <= bounds.high)).sum()
            width[row, i] = (bounds.high - bounds.low).mean()
    known = np.isfinite(held)
    low, high = clopper_pearson(np.where(known, held, 0), np.where(known, trials, 0), 0.95)
    columns = {**Bounds(held / trials, low, high, np.where(known, trials, 0)).columns(), "width": width}
    drawn = {"resamples": resamples} if method == "bootstrap" else {}
    how = {"statistic": "coverage of the mean's interval", "method": method, "level": level, **drawn}
    return cells.dataset(columns, ("seeds", wanted), **how)
