"""Comparisons of two sets of runs: differences, the chance of an improvement, the ratio of variances.

Runs of one seed share its draws (common random numbers), so the two sides are matched by seed, and resamples take
both runs of a seed together. `welch_difference` alone is for sides that have no seeds in common.
"""

from typing import Literal, TypeAlias, get_args

import numpy as np
import xarray as xr
from scipy.special import fdtrc, stdtr

from rlvr_jax.stats.bootstrap import RESAMPLES, Bounds, bootstrap, check_level, improvement_of, quantile_of, std_of
from rlvr_jax.stats.replicates import Values, pairs_of, sides_of
from rlvr_jax.stats.student import moments, t_quantile
from rlvr_jax.stats.summaries import BOOTSTRAP, MeanMethod, Seed, attributes, check_method, iqm_of, mean_bounds
from rlvr_jax.types import InvalidInput

Difference: TypeAlias = Literal["mean", "median", "iqm", "std"]

_STATISTICS = {"median": quantile_of(0.5), "iqm": iqm_of, "std": std_of}


def paired_difference(
    x: Values,
    y: Values,
    over: str = "seed",
    *,
    statistic: Difference = "mean",
    axis: int = -1,
    level: float = 0.95,
    method: MeanMethod = "auto",
    resamples: int = RESAMPLES,
    seed: Seed = 0,
) -> xr.Dataset:
    """Difference x - y of two sets of runs of the same seeds, with what the pairing gained.

    For the mean: d̄ = Σ (xᵢ - yᵢ) / n with the interval of `mean`, and the p-value of the paired t-test. With common
    random numbers Var(d̄) = (σₓ² + σᵧ² - 2 ρ σₓ σᵧ) / n: the variance-reduction factor (σₓ² + σᵧ²) / σ_d² says how
    many times as many seeds independent runs would need for the same interval (Law and Kelton 2000, section 11.2).
    For other statistics: T(x) - T(y), both resampled with the same seeds.

    At 95 % the t-interval holds a difference of 0 with .95 to .99 from n = 5 on, the bootstrap of the mean with .81 to
    .85 at n = 5 and .87 to .93 at 20, that of the IQM with .89 to .96 at n = 5 and .95 to .97 from 20 on.

    Args:
        x, y: as the values of `mean`; labelled values are matched by label, and dimensions that one side lacks are
            broadcast. Where a replicate is missing on one side, or its label, the pair is left out.
        statistic: ``"mean"``, ``"median"``, ``"iqm"`` or ``"std"``.
        over, axis, level, resamples, seed: as in `mean`.
        method: of the interval of the mean, as in `mean`; the others have no t-interval.

    Returns:
        ``estimate``, ``low``, ``high`` in the units of the values, ``n`` pairs, ``rho``, the correlation between the
        sides (NaN where one is constant), ``variance_reduction`` (NaN where both are), and for the mean ``p_value``,
        two-sided; equal constant differences have p = 1 if they are 0, else 0.

    Raises:
        InvalidInput: an argument that cannot be meant, cells with other labels, or no common replicates.

    Example:
        >>> result = paired_difference([0.9, 0.8, 0.7, 0.9], [0.8, 0.7, 0.5, 0.7])
        >>> [round(result[name].item(), 3) for name in ("estimate", "low", "high", "rho", "p_value")]
        [0.15, 0.058, 0.242, 0.899, 0.014]
    """
    if statistic not in get_args(Difference):
        raise InvalidInput(f"statistic is {statistic!r}; it must be one of {', '.join(get_args(Difference))}")
    one, two = pairs_of(x, y, over, axis)
    difference = one.values - two.values
    if statistic == "mean":
        bounds, named = mean_bounds(difference, level, method, resamples, seed)
        test = {"p_value": _t_test(difference)}
    else:
        check_method(method, "auto", "bootstrap")
        part = _STATISTICS[statistic]

        def contrast(counts: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return part(counts, a) - part(counts, b)

        bounds = bootstrap(contrast, one.values, two.values, level=level, resamples=resamples, seed=seed)
        named, test = BOOTSTRAP, {}
    columns = {**bounds.columns(), **_gain(one.values, two.values, difference), **test}
    return one.dataset(columns, statistic=f"paired difference of {statistic}", **attributes(named, level, resamples))


def _gain(x: np.ndarray, y: np.ndarray, difference: np.ndarray) -> dict[str, np.ndarray]:
    (n, mean_x, sd_x), (_, mean_y, sd_y), (_, _, sd) = moments(x), moments(y), moments(difference)
    products = np.nansum((x - mean_x[:, None]) * (y - mean_y[:, None]), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.clip(products / ((n - 1) * sd_x * sd_y), -1.0, 1.0)
        return {"rho": rho, "variance_reduction": (sd_x**2 + sd_y**2) / sd**2}


def _t_test(difference: np.ndarray) -> np.ndarray:
    """Two-sided p-value of the t-test that the mean is 0; NaN where n < 2."""
    n, mean, sd = moments(difference)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where((sd == 0) & (mean == 0), 0.0, mean * np.sqrt(n) / sd)
    return 2 * stdtr(np.maximum(n - 1, 1), -np.abs(t))


def welch_difference(x: Values, y: Values, over: str = "seed", *, axis: int = -1, level: float = 0.95) -> xr.Dataset:
    """Difference of the means of two independent sets of runs, with Welch's t-interval (Welch 1947).

    x̄ - ȳ ± t((1 + level) / 2, ν) √(sₓ² / nₓ + sᵧ² / nᵧ), with ν of Welch and Satterthwaite. Runs that share seeds are
    not independent: for them the interval is too wide, often by far, and `paired_difference` is the one to take.

    Args:
        x, y: as the values of `mean`, of the same cells, matched by label; the numbers of replicates may differ.
        over, axis, level: as in `mean`.

    Returns:
        ``estimate``, ``low``, ``high``, ``n`` (of the smaller side) and ``p_value``, two-sided. The interval is NaN
        where a side has fewer than two values.

    Raises:
        InvalidInput: an argument that cannot be meant, or cells with other labels.

    Example:
        >>> result = welch_difference([0.9, 0.8, 0.7, 0.9], [0.8, 0.7, 0.5, 0.7])
        >>> [round(result[name].item(), 3) for name in ("estimate", "low", "high")]
        [0.15, -0.047, 0.347]
    """
    check_level(level)
    one, two = sides_of(x, y, over, axis)
    (n_x, mean_x, sd_x), (n_y, mean_y, sd_y) = moments(one.values), moments(two.values)
    estimate = mean_x - mean_y
    with np.errstate(invalid="ignore", divide="ignore"):
        part_x, part_y = sd_x**2 / n_x, sd_y**2 / n_y
        error = np.sqrt(part_x + part_y)
        share = part_x / (part_x + part_y)  # squares of the parts themselves would underflow
        degrees = 1 / (share**2 / (n_x - 1) + (1 - share) ** 2 / (n_y - 1))
        degrees = np.where(error == 0, n_x + n_y - 2, degrees)
        t = np.where((error == 0) & (estimate == 0), 0.0, estimate / error)
    half = t_quantile(degrees, level) * error
    bounds = Bounds(estimate, estimate - half, estimate + half, np.minimum(n_x, n_y))
    columns = {**bounds.columns(), "p_value": 2 * stdtr(degrees, -np.abs(t))}
    result = one.dataset(columns, statistic="difference of independent means", method="Welch's t", level=level)
    alike = [name for name, coord in two.frame.coords.items() if coord.equals(one.frame.coords.get(name))]
    return result.drop_vars([name for name in one.frame.coords if name not in alike])


def probability_of_improvement(
    x: Values,
    y: Values,
    over: str = "seed",
    *,
    axis: int = -1,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: Seed = 0,
) -> xr.Dataset:
    """Chance that a run of x beats a run of y, P(X > Y) + P(X = Y) / 2 (Agarwal et al. 2021, Mann and Whitney 1947).

    Σᵢⱼ (1[xᵢ > yⱼ] + 1[xᵢ = yⱼ] / 2) / n² over all pairs of seeds, i = j or not: how often x would win if both were
    run again. Its interval resamples seeds with their runs on both sides. Where every x is above every y it is
    [1, 1], which says that no run contradicts it and not that it is certain.

    At 95 % the interval holds the truth with .88 to .94 at n = 5, and .94 to .96 from 20 on.

    Args:
        x, y: as in `paired_difference`.
        over, axis, level, resamples, seed: as in `mean`.

    Returns:
        ``estimate``, ``low``, ``high`` from 0 to 1, and ``n`` seeds.

    Raises:
        InvalidInput: an argument that cannot be meant, cells with other labels, or no common replicates.

    Example:
        >>> probability_of_improvement([1.0, 2.0], [0.0, 1.0]).estimate.item()
        0.875
    """
    one, two = pairs_of(x, y, over, axis)
    bounds = bootstrap(improvement_of, one.values, two.values, level=level, resamples=resamples, seed=seed)
    return one.dataset(
        bounds.columns(), statistic="probability of improvement", **attributes(BOOTSTRAP, level, resamples)
    )


def variance_ratio(
    x: Values,
    y: Values,
    over: str = "seed",
    *,
    axis: int = -1,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: Seed = 0,
) -> xr.Dataset:
    """Ratio of the variances between seeds, sₓ² / sᵧ², with a paired bootstrap interval and a test.

    The interval is the percentile interval of log(sₓ² / sᵧ²) over resamples that take both runs of a seed, taken back
    to the ratio. The test is that of Brown and Forsythe (1974): the F-test on the distances from the median, which
    keeps its level on skewed and collapsed seeds, where the F-test of variances is wrong 16 to 44 % of the time. It
    takes the sides as independent, so that common random numbers only make it more careful.

    At 95 % the interval holds the truth with .87 to .91 at n = 5, .87 to .93 at 20 and .90 to .94 at 50.

    Args:
        x, y: as in `paired_difference`.
        over, axis, level, resamples, seed: as in `mean`.

    Returns:
        ``estimate``, ``low``, ``high``, ``n`` pairs and ``p_value``, NaN where n < 3: two values are equally far from
        their median, so that there is no spread to test against. Two constant sides have the ratio 1 and p = 1; a
        constant y alone has the ratio infinity.

    Raises:
        InvalidInput: an argument that cannot be meant, cells with other labels, or no common replicates.

    Example:
        >>> result = variance_ratio([0.0, 2.0, 4.0, 6.0], [0.0, 1.0, 3.0, 3.0])
        >>> round(result.estimate.item(), 3), round(result.p_value.item(), 3)
        (2.963, 0.278)
    """
    one, two = pairs_of(x, y, over, axis)
    bounds = bootstrap(_ratio_of, one.values, two.values, level=level, resamples=resamples, seed=seed)
    columns = {**bounds.columns(), "p_value": _brown_forsythe(one.values, two.values)}
    return one.dataset(columns, statistic="ratio of variances", **attributes(BOOTSTRAP, level, resamples))


def _ratio_of(counts: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    above, below = std_of(counts, x) ** 2, std_of(counts, y) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((above == 0) & (below == 0), 1.0, above / below)


def _brown_forsythe(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    present = np.isfinite(x).any(1, keepdims=True)  # without this, NumPy warns of rows without a value
    sides = [np.abs(side - np.nanmedian(np.where(present, side, 0.0), axis=1, keepdims=True)) for side in (x, y)]
    (n, mean_x, sd_x), (_, mean_y, sd_y) = (moments(side) for side in sides)
    with np.errstate(invalid="ignore", divide="ignore"):
        between, within = n * (mean_x - mean_y) ** 2 / 2, (n - 1) * (sd_x**2 + sd_y**2)
        f = np.where((between == 0) & (within == 0), 0.0, between * (2 * n - 2) / within)
    return np.where(n > 2, fdtrc(1, np.maximum(2 * n - 2, 1), f), np.nan)
