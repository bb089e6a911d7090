"""How many seeds a study needs, before it is run; and what a study of a given size can see."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import chdtri, nctdtr

from rlvr_jax.stats.bootstrap import check_level
from rlvr_jax.stats.distribution import clopper_pearson, tolerance_confidence
from rlvr_jax.stats.student import t_quantile
from rlvr_jax.types import InvalidInput, number, whole

#: The chance of finding a difference unless said otherwise.
POWER = 0.8

#: More seeds than anyone runs; those for a rate are all looked at.
MOST, MOST_FOR_A_RATE = 10**9, 100_000


def seeds_needed(
    difference: float | None = None,
    *,
    sd: float | None = None,
    sd_other: float | None = None,
    rho: float | None = None,
    power: float | None = None,
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
        power: chance of finding the difference, between ``1 - level`` and 1; 0.8 unless given.
        sd_within: above 0 and below 1.
        collapse_rate: from 0 to 1.
        rate_within: above 0 and below 1.
        coverage: between 0 and 1.
        level: 1 - the level of the test, or the confidence.

    Raises:
        InvalidInput: an argument that cannot be meant or that belongs to another question, none or several questions,
            or more seeds than anyone runs.

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
    arms = {"sd": sd, "sd_other": sd_other, "rho": rho, "power": power}
    for question, more in {"difference": arms, "rate_within": {"collapse_rate": collapse_rate}}.items():
        stray = [name for name, value in more.items() if value is not None]
        if stray and given != [question]:
            raise InvalidInput(f"{stray[0]} goes with {question}, not with {given[0]}")
    if difference is not None:
        check_arms(sd, sd_other, rho)
        effect, wanted = _within("difference", difference, 0.0, math.inf), _power(power, level)
        return _smallest(lambda n: power_of(effect, n, sd, sd_other, rho, level) >= wanted, 2)
    if sd_within is not None:
        share = _within("sd_within", sd_within, 0.0, 1.0)
        return _smallest(lambda n: _sd_known(n, level, share), 2)
    if rate_within is not None:
        allowed = "from 0 to 1, the rate that is expected"
        rate = number("collapse_rate", collapse_rate, lambda value: 0.0 <= value <= 1.0, allowed)
        return _rate_known(rate, _within("rate_within", rate_within, 0.0, 1.0), level)
    covered = _within("coverage", coverage, 0.0, 1.0)
    return _smallest(lambda n: float(tolerance_confidence(n, 1, covered)) >= level, 2)


def minimum_detectable_effect(
    n: int,
    *,
    sd: float,
    sd_other: float | None = None,
    rho: float | None = None,
    power: float = POWER,
    level: float = 0.95,
) -> float:
    """Return the smallest difference of means that ``n`` seeds of each arm find with probability ``power``.

    The inverse of `seeds_needed` with a difference, solved by bisection to a relative 1e-9. Arms that differ by a
    constant show any difference: then it is below 1e-12 of the larger ``sd``.

    Args:
        n: from 2 to 1e9.
        sd, sd_other, rho, power, level: as in `seeds_needed`.

    Returns:
        In the units of ``sd``.

    Raises:
        InvalidInput: an argument that cannot be meant, or a difference beyond the largest float.

    Example:
        >>> round(minimum_detectable_effect(64, sd=1.0), 3), round(minimum_detectable_effect(64, sd=1.0, rho=0.9), 3)
        (0.499, 0.159)
    """
    check_level(level)
    whole("n", n, 2, MOST)
    check_arms(sd, sd_other, rho)
    wanted = _power(power, level)
    scale = max(sd, sd if sd_other is None else sd_other)
    one, two = sd / scale, None if sd_other is None else sd_other / scale
    low, high = 0.0, 1.0
    while power_of(high, n, one, two, rho, level) < wanted:
        low, high = high, 2 * high
    while high - low > 1e-9 * high and high > 1e-12:
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(middle, n, one, two, rho, level) >= wanted else (middle, high)
    if high * scale == math.inf:
        raise InvalidInput(f"sd is {scale!r}; the difference would be larger than any number")
    return high * scale


def power_of(
    difference: float, n: int, sd: float | None, sd_other: float | None, rho: float | None, level: float
) -> float:
    """Return the chance that the two-sided t-test finds a difference: paired with ``rho``, else Welch's."""
    assert sd is not None
    other = sd if sd_other is None else sd_other
    scale = max(sd, other)  # squares of the deviations themselves would over- or underflow
    sd, other, difference = sd / scale, other / scale, difference / scale
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
        number(name, value, lambda sd: 0.0 < sd < math.inf, "a number above 0, the spread between seeds")
    if rho is not None:
        number("rho", rho, lambda value: -1.0 <= value <= 1.0, "from -1 to 1")


def _within(name: str, value: float | None, above: float, below: float) -> float:
    return number(name, value, lambda x: above < x < below, f"above {above:g} and below {below:g}")


def _power(power: float | None, level: float) -> float:
    return _within("power", POWER if power is None else power, 1.0 - level, 1.0)


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
