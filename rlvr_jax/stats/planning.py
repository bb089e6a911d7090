"""How many seeds a study needs, before it is run; and what a study of a given size can see."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import chdtri, nctdtr

from rlvr_jax.stats.bootstrap import check_level
from rlvr_jax.stats.distribution import clopper_pearson, tolerance_confidence
from rlvr_jax.stats.student import t_quantile
from rlvr_jax.types import InvalidInput

#: More seeds than anyone runs; those for a rate are all looked at.
MOST, MOST_FOR_A_RATE = 10**9, 100_000


def seeds_needed(
    difference: float | None = None,
    *,
    sd: float | None = None,
    sd_other: float | None = None,
    rho: float | None = None,
    power: float = 0.8,
    sd_within: float | None = None,
    collapse_rate: float | None = None,
    rate_within: float | None = None,
    coverage: float | None = None,
    level: float = 0.95,
) -> int:
    """Return the smallest number of seeds, of each arm, with which a study reaches what it is for.

    One of four questions, by what is given:

    - ``difference``, ``sd``: to find a difference of means with probability ``power`` at a two-sided test of level
      1 - ``level``. With ``rho``, the correlation between the arms over common seeds, the paired t-test with σ_d² =
      σ² + σ'² - 2 ρ σ σ'; without it, Welch's test of independent arms. Power is that of the noncentral t with
      δ = difference / standard error and n - 1 degrees of freedom, or Welch's (Colas et al. 2018; Cohen 1988). Normal
      values are assumed.
    - ``sd_within``: for the standard deviation to be known within ± this share of it: both ends of the interval
      s √((n - 1) / χ²) lie within. Normal values are assumed; the number grows with (kurtosis - 1) / 2, 1 for
      normal values.
    - ``collapse_rate``, ``rate_within``: for the ends of the Clopper-Pearson interval of a share to lie within ±
      ``rate_within``, if that share of the seeds (rounded to whole ones) collapsed, at this and any larger number.
    - ``coverage``: for [min, max] to be a tolerance interval of this coverage with confidence ``level``.

    Args:
        difference: of the means, above 0, in the units of ``sd``.
        sd, sd_other: between seeds, of one arm and of the other (``sd`` unless given).
        rho: from -1 to 1.
        power: chance of finding the difference, between ``1 - level`` and 1.
        sd_within: above 0 and below 1.
        collapse_rate: from 0 to 1.
        rate_within: above 0 and below 1.
        coverage: between 0 and 1.
        level: 1 - the level of the test, or the confidence.

    Raises:
        InvalidInput: an argument that cannot be meant, none or several questions, or more seeds than anyone runs.

    Example:
        >>> seeds_needed(0.5, sd=1.0), seeds_needed(0.5, sd=1.0, rho=0.9)
        (64, 9)
        >>> seeds_needed(sd_within=0.2), seeds_needed(collapse_rate=0.1, rate_within=0.05), seeds_needed(coverage=0.9)
        (70, 217, 46)
    """
    check_level(level)
    asked = {"difference": difference, "sd_within": sd_within, "rate_within": rate_within, "coverage": coverage}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) != 1:
        raise InvalidInput(f"give one of {', '.join(asked)}, not {' and '.join(given) or 'none'}")
    if difference is not None:
        check_arms(sd, sd_other, rho)
        _within("difference", difference, 0.0, math.inf)
        _within("power", power, 1.0 - level, 1.0)
        return _smallest(lambda n: power_of(difference, n, sd, sd_other, rho, level) >= power, 2)
    if (sd, sd_other, rho) != (None, None, None):
        raise InvalidInput("sd, sd_other and rho go with difference")
    if sd_within is not None:
        _within("sd_within", sd_within, 0.0, 1.0)
        return _smallest(lambda n: _sd_known(n, level, sd_within), 2)
    if rate_within is not None:
        if collapse_rate is None or not 0.0 <= collapse_rate <= 1.0:
            raise InvalidInput(f"collapse_rate is {collapse_rate!r}; it must be from 0 to 1, the rate that is expected")
        _within("rate_within", rate_within, 0.0, 1.0)
        return _rate_known(collapse_rate, rate_within, level)
    assert coverage is not None
    _within("coverage", coverage, 0.0, 1.0)
    return _smallest(lambda n: float(tolerance_confidence(n, 1, coverage)) >= level, 2)


def minimum_detectable_effect(
    n: int,
    *,
    sd: float,
    sd_other: float | None = None,
    rho: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
) -> float:
    """Return the smallest difference of means that ``n`` seeds of each arm find with probability ``power``.

    The inverse of `seeds_needed` with a difference, solved by bisection to a relative 1e-9. Arms that differ by a
    constant show any difference: then it is below 1e-12 of ``sd``.

    Args:
        n: at least 2.
        sd, sd_other, rho, power, level: as in `seeds_needed`.

    Returns:
        In the units of ``sd``.

    Raises:
        InvalidInput: an argument that cannot be meant.

    Example:
        >>> round(minimum_detectable_effect(64, sd=1.0), 3), round(minimum_detectable_effect(64, sd=1.0, rho=0.9), 3)
        (0.499, 0.159)
    """
    check_level(level)
    if not isinstance(n, int | np.integer) or n < 2:
        raise InvalidInput(f"n is {n!r}; it must be a whole number at least 2")
    check_arms(sd, sd_other, rho)
    _within("power", power, 1.0 - level, 1.0)
    low, high = 0.0, sd
    while power_of(high, n, sd, sd_other, rho, level) < power:
        low, high = high, 2 * high
    while high - low > 1e-9 * high and high > 1e-12 * sd:
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(middle, n, sd, sd_other, rho, level) >= power else (middle, high)
    return high


def power_of(
    difference: float, n: int, sd: float | None, sd_other: float | None, rho: float | None, level: float
) -> float:
    """Return the chance that the two-sided t-test finds a difference: paired with ``rho``, else Welch's."""
    assert sd is not None
    other = sd if sd_other is None else sd_other
    if rho is None:
        one, two = sd**2 / n, other**2 / n
        error, degrees = math.sqrt(one + two), (n - 1) * (one + two) ** 2 / (one**2 + two**2)
    else:
        error, degrees = math.sqrt(max(sd**2 + other**2 - 2 * rho * sd * other, 0.0) / n), n - 1
    if difference >= 1e9 * error:
        return 1.0
    critical = t_quantile(degrees, level)
    # SciPy gives NaN where a tail underflows
    missed, wrong_side = np.nan_to_num([nctdtr(degrees, difference / error, t) for t in (critical, -critical)], nan=0.0)
    return float(1.0 - missed + wrong_side)


def check_arms(sd: float | None, sd_other: float | None, rho: float | None) -> None:
    """Refuse standard deviations that are not above 0, and no correlation."""
    for name, value in (("sd", sd), ("sd_other", sd if sd_other is None else sd_other)):
        if value is None or not 0.0 < value < math.inf:
            raise InvalidInput(f"{name} is {value!r}; it must be a number above 0, the spread between seeds")
    if rho is not None and not -1.0 <= rho <= 1.0:
        raise InvalidInput(f"rho is {rho!r}; it must be from -1 to 1")


def _within(name: str, value: float, above: float, below: float) -> None:
    if not above < value < below:
        raise InvalidInput(f"{name} is {value!r}; it must be above {above:g} and below {below:g}")


def _smallest(enough: Callable[[int], bool], least: int) -> int:
    """The smallest n from ``least`` on with which it is enough; more of them are enough, too."""
    if enough(least):
        return least
    low, high = least, 2 * least
    while not enough(high):
        low, high = high, 2 * high
        if low > MOST:
            raise InvalidInput(f"more than {MOST:g} seeds would be needed")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _sd_known(n: int, level: float, within: float) -> bool:
    tail = (1.0 - level) / 2
    high, low = math.sqrt((n - 1) / chdtri(n - 1, 1.0 - tail)), math.sqrt((n - 1) / chdtri(n - 1, tail))
    return high <= 1.0 + within and low >= 1.0 - within


def _rate_known(rate: float, within: float, level: float) -> int:
    """Rounding to whole seeds makes the width a saw in n, so the last n that is not enough is looked for."""

    def wide(n: np.ndarray) -> np.ndarray:
        collapsed = np.rint(rate * n)
        low, high = clopper_pearson(collapsed, n, level)
        return (high - rate > within) | (rate - low > within)

    smooth = 4
    while bool(wide(np.arange(smooth, 2 * smooth)).any()):
        smooth *= 2
        if smooth > MOST_FOR_A_RATE:
            raise InvalidInput(f"rate_within is {within!r}; more than {MOST_FOR_A_RATE:,} seeds would be needed")
    n = np.arange(1, 2 * smooth)
    failing = np.flatnonzero(wide(n))
    return int(n[failing[-1]] + 1) if len(failing) else 1
