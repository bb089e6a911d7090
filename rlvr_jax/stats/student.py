"""Student's t-interval of a mean, and what it rests on: count, mean and standard deviation of each cell."""

import numpy as np
from scipy.special import stdtrit

from rlvr_jax.stats.bootstrap import Bounds, check_level


def moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return n, mean and standard deviation (ddof 1) of the finite values of each row of ``[cells, n]``.

    The mean is NaN where n = 0, the deviation where n < 2; equal values have a deviation of exactly 0.
    """
    finite = np.isfinite(values)
    n = finite.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(finite, values, 0.0).sum(1) / n
        # rounding must not push the mean of equal values away from them
        lowest, highest = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
        mean = np.where(n > 0, np.clip(mean, lowest.min(1, initial=np.inf), highest.max(1, initial=-np.inf)), np.nan)
        squares = np.square(np.where(finite, values - mean[:, None], 0.0)).sum(1)
        sd = np.sqrt(np.where(n > 1, squares / (n - 1), np.nan))
    return n, mean, sd


def t_bounds(values: np.ndarray, level: float) -> Bounds:
    """Return the mean of each row with x̄ ± t((1 + level) / 2, n - 1) s / √n; no interval where n < 2."""
    check_level(level)
    n, mean, sd = moments(values)
    enough = n > 1
    half = t_quantile(np.where(enough, n - 1, 1), level) * sd / np.sqrt(np.maximum(n, 1))
    return Bounds(mean, mean - half, mean + half, n)


def t_quantile(degrees: np.ndarray | float, level: float) -> np.ndarray:
    """Return the t that a share ``level`` lies within ± of."""
    return stdtrit(degrees, 0.5 + level / 2)
