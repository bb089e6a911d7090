"""How often nominal 95 % intervals hold the truth, on distributions that were fixed beforehand.

Runs as a script, it prints the table in the docstring of `rlvr_jax.stats`; the tests measure it again with other draws.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from rlvr_jax import stats

SIZES = (5, 20, 50)
COLLAPSED = 0.15


def bimodal(u: np.ndarray) -> np.ndarray:
    low, high = 0.05 + 0.02 * ndtri(u / COLLAPSED), 0.82 + 0.02 * ndtri((u - COLLAPSED) / (1 - COLLAPSED))
    return np.where(u < COLLAPSED, low, high)


#: Quantile functions: a normal distribution, a lognormal one (σ = 1), 15 % collapsed seeds, half of the seeds at the
#: largest possible value.
DISTRIBUTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "normal": ndtri,
    "skewed": lambda u: np.exp(ndtri(u)),
    "bimodal": bimodal,
    "saturated": lambda u: np.minimum(1.0, 1.0 + 0.05 * ndtri(u)),
}
RHO = 0.8


def truth(quantile: Callable[[np.ndarray], np.ndarray]) -> dict[str, float]:
    """The parameters that intervals should hold, from a fine grid of quantiles."""
    points = 2_000_000
    with np.errstate(invalid="ignore"):
        x = quantile((np.arange(points) + 0.5) / points)
    middle = x[points // 4 : 3 * points // 4]
    tenths = {"quantile 0.1": x[points // 10], "quantile 0.9": x[9 * points // 10], "cvar": x[: points // 10].mean()}
    return {"mean": x.mean(), "median": x[points // 2], "iqm": middle.mean(), "std": x.std(), **tenths}


def samples(name: str, n: int, trials: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y with the rank correlation of normal values with ``RHO``, and z independent of x, ``[trials, n]`` each."""
    generator = np.random.default_rng([seed, n])
    first, second, third = generator.normal(size=(3, trials, n))
    with np.errstate(invalid="ignore"):
        return tuple(DISTRIBUTIONS[name](ndtr(g)) for g in (first, RHO * first + np.sqrt(1 - RHO**2) * second, third))


def measure(trials: int, resamples: int, seed: int) -> dict[str, dict[tuple[int, str], float]]:
    """The share of intervals that hold the truth, by interval, number of seeds and distribution."""
    found: dict[str, dict[tuple[int, str], float]] = {}
    more = {"resamples": resamples}
    for name, quantile in DISTRIBUTIONS.items():
        true = truth(quantile)
        for n in SIZES:
            x, y, z = samples(name, n, trials, seed)
            intervals = {
                "mean, t": (stats.mean(x, method="t"), true["mean"]),
                "mean, bootstrap": (stats.mean(x, method="bootstrap", **more), true["mean"]),
                "median": (stats.median(x, **more), true["median"]),
                "iqm": (stats.iqm(x, **more), true["iqm"]),
                "std": (stats.std(x, **more), true["std"]),
                "quantile 0.1": (stats.quantiles(x, [0.1], **more).isel(quantile=0), true["quantile 0.1"]),
                "quantile 0.9": (stats.quantiles(x, [0.9], **more).isel(quantile=0), true["quantile 0.9"]),
                "cvar": (stats.cvar(x, **more), true["cvar"]),
                "paired_difference, t": (stats.paired_difference(x, y, method="t"), 0.0),
                "paired_difference, bootstrap": (stats.paired_difference(x, y, method="bootstrap", **more), 0.0),
                "paired_difference of iqm": (stats.paired_difference(x, y, statistic="iqm", **more), 0.0),
                "welch_difference": (stats.welch_difference(x, z), 0.0),
                "probability_of_improvement": (stats.probability_of_improvement(x, y, **more), 0.5),
                "variance_ratio": (stats.variance_ratio(x, y, **more), 1.0),
            }
            for interval, (result, value) in intervals.items():
                held = (result["low"].values <= value + 1e-12) & (value - 1e-12 <= result["high"].values)
                found.setdefault(interval, {})[n, name] = float(held.mean())
    return found


if __name__ == "__main__":
    for interval, row in measure(2000, 1000, 1).items():
        print(interval.ljust(30), *(f"{row[n, name]:.2f}".lstrip("0") for n in SIZES for name in DISTRIBUTIONS))
