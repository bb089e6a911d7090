"""Numbers of seeds: published values, simulated power, and inverses that agree."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rlvr_jax import stats
from rlvr_jax.stats.planning import power_of
from rlvr_jax.types import InvalidInput


@pytest.mark.parametrize(
    ("difference", "independent", "half", "nine_tenths"), [(0.2, 394, 199, 42), (0.5, 64, 34, 9), (1.0, 17, 10, 4)]
)
def test_seeds_for_a_difference_are_those_of_power_tables(
    difference: float, independent: int, half: int, nine_tenths: int
) -> None:
    # Cohen 1988, table 2.4.1, and G*Power: t-tests of level .05 and power .8, without and with common seeds
    assert stats.seeds_needed(difference, sd=1.0) == independent
    assert stats.seeds_needed(difference, sd=1.0, rho=0.5) == half
    assert stats.seeds_needed(difference, sd=1.0, rho=0.9) == nine_tenths


def test_colas_example() -> None:
    """Colas et al. 2018, section 4: a difference of 1382 with s 1341 and 990, one-sided at .05: beta .51 at N = 5.

    They approximate the noncentral t by a shifted one, which is .03 too pessimistic at N = 5; power .8 needs N = 10.
    """
    one, two = 1341**2 / 5, 990**2 / 5
    degrees = 4 * (one + two) ** 2 / (one**2 + two**2)
    shifted = scipy_stats.t.cdf(scipy_stats.t.ppf(0.95, degrees) - 1382 / math.sqrt(one + two), degrees)
    assert shifted == pytest.approx(0.51, abs=0.005)
    arms = {"sd": 1341.0, "sd_other": 990.0}
    assert 1 - power_of(1382.0, 5, *arms.values(), None, 0.90) == pytest.approx(0.51, abs=0.03)
    assert stats.seeds_needed(1382.0, **arms, level=0.90) == 10


@pytest.mark.parametrize(("n", "rho"), [(12, None), (12, 0.7), (3, None), (40, -0.5)])
def test_power_is_what_simulation_finds(n: int, rho: float | None) -> None:
    generator, trials = np.random.default_rng(0), 4000
    x, z = generator.normal(size=(2, trials, n))
    other = z if rho is None else rho * x + math.sqrt(1 - rho**2) * z
    test = stats.welch_difference if rho is None else stats.paired_difference
    found = (test(x + 0.9, 2.0 * other).p_value < 0.05).mean().item()
    power = power_of(0.9, n, 1.0, 2.0, rho, 0.95)
    # Welch's test is not exact: with three seeds its level is up to .01 off
    assert abs(found - power) < 0.01 + 4 * math.sqrt(power * (1 - power) / trials)


def test_effects_and_seeds_are_inverse() -> None:
    for n in (2, 3, 20, 500):
        for rho in (None, 0.0, 0.95):
            effect = stats.minimum_detectable_effect(n, sd=0.3, sd_other=0.1, rho=rho)
            assert power_of(effect, n, 0.3, 0.1, rho, 0.95) == pytest.approx(0.8, abs=1e-6)
            if n > 2:
                assert stats.seeds_needed(effect * (1 + 1e-6), sd=0.3, sd_other=0.1, rho=rho) == n
    assert stats.minimum_detectable_effect(5, sd=1.0, rho=1.0) < 1e-8  # perfectly paired runs differ by a constant
    assert stats.seeds_needed(1e-3, sd=1.0, rho=1.0) == 2
    assert stats.seeds_needed(100.0, sd=1.0) == 2


@pytest.mark.parametrize("unit", [1e-300, 5e-324, 1e200, 1e307])
def test_plans_do_not_depend_on_the_unit(unit: float) -> None:
    assert stats.seeds_needed(unit, sd=unit) == 17
    assert stats.seeds_needed(unit, sd=unit, rho=0.5) == 10
    if unit != 5e-324:  # the smallest float has no digits
        wanted = stats.minimum_detectable_effect(5, sd=1.0, sd_other=0.5)
        found = stats.minimum_detectable_effect(5, sd=unit, sd_other=0.5 * unit)
        assert found / unit == pytest.approx(wanted, rel=1e-9)
    assert stats.seeds_needed(1e300, sd=1e-300) == 2
    assert stats.seeds_needed(1.0, sd=1.0, sd_other=1e-300) == stats.seeds_needed(1.0, sd=1e-9, sd_other=1.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 2, "sd": 1.7e308}, "sd is 1.7e+308; the difference would be larger than any number"),
        ({"n": 2.5, "sd": 1.0}, "n is 2.5; it must be a whole number from 2 to 1000000000"),
        ({"n": 1, "sd": 1.0}, "n is 1; it must be a whole number from 2"),
        ({"n": 10**400, "sd": 1.0}, "it must be a whole number from 2"),
        ({"n": 5, "sd": None}, "sd is None; it must be a number above 0"),
        ({"n": 5, "sd": 1.0, "power": "a"}, "power is 'a'; it must be above 0.05 and below 1"),
    ],
)
def test_no_effect_of_what_cannot_be_planned(arguments: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        stats.minimum_detectable_effect(**arguments)
    assert sentence in str(caught.value)


def test_tolerance_intervals_need_46_93_and_473_seeds() -> None:
    for coverage, n in ((0.9, 46), (0.95, 93), (0.99, 473)):
        assert stats.seeds_needed(coverage=coverage) == n
        achieved = [stats.tolerance_interval(np.arange(size), coverage=coverage).coverage.item() for size in (n - 1, n)]
        assert achieved[0] < coverage <= achieved[1]


@pytest.mark.parametrize(("within", "n"), [(0.15, 114), (0.05, 849), (0.2, 70)])
def test_a_standard_deviation_is_known_as_well_as_said(within: float, n: int) -> None:
    assert stats.seeds_needed(sd_within=within) == n
    ends = np.sqrt((np.array([[n - 1], [n]]) - 1) / scipy_stats.chi2.ppf([0.975, 0.025], [[n - 2], [n - 1]]))
    inside = np.abs(ends - 1).max(1) <= within
    assert inside.tolist() == [False, True]


@pytest.mark.parametrize(("rate", "within", "n"), [(0.0, 0.05, 72), (0.1, 0.05, 217), (0.15, 0.05, 265)])
def test_a_collapse_rate_is_known_as_well_as_said(rate: float, within: float, n: int) -> None:
    assert stats.seeds_needed(collapse_rate=rate, rate_within=within) == n
    for size in (*range(n, n + 60), n - 1):
        interval = scipy_stats.binomtest(round(rate * size), size).proportion_ci(method="exact")
        inside = max(interval.high - rate, rate - interval.low) <= within
        assert bool(inside) == (size >= n)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "give one of difference, sd_within, rate_within, coverage, not none"),
        ({"difference": 1.0, "sd_within": 0.1}, "not difference and sd_within"),
        ({"difference": 0.0, "sd": 1.0}, "difference is 0.0; it must be above 0"),
        ({"difference": 1.0}, "sd is None; it must be a number above 0"),
        ({"difference": 1.0, "sd": 1.0, "rho": 1.5}, "rho is 1.5; it must be from -1 to 1"),
        ({"difference": 1.0, "sd": 1.0, "power": 0.01}, "power is 0.01; it must be above 0.05 and below 1"),
        ({"difference": 1e-9, "sd": 1.0}, "more than 1e+09 seeds would be needed"),
        ({"sd_within": 0.1, "rho": 0.5}, "rho goes with difference, not with sd_within"),
        ({"sd_within": 0.1, "sd": 0.5}, "sd goes with difference, not with sd_within"),
        ({"coverage": 0.9, "collapse_rate": 0.1}, "collapse_rate goes with rate_within, not with coverage"),
        ({"coverage": 0.9, "power": 0.9}, "power goes with difference, not with coverage"),
        ({"rate_within": 0.1, "collapse_rate": 0.1, "power": 0.8}, "power goes with difference, not with rate_within"),
        (
            {"difference": 0.1, "sd": 1.0, "collapse_rate": 0.2},
            "collapse_rate goes with rate_within, not with difference",
        ),
        ({"difference": "0.1", "sd": 1.0}, "difference is '0.1'; it must be above 0"),
        ({"difference": 0.1, "sd": "1"}, "sd is '1'; it must be a number above 0"),
        ({"difference": 0.1, "sd": 1.0, "sd_other": [1.0]}, "sd_other is [1.0]; it must be a number above 0"),
        ({"difference": 0.1, "sd": 1.0, "power": "0.9"}, "power is '0.9'; it must be above 0.05 and below 1"),
        ({"difference": 0.1, "sd": 1.0, "rho": "high"}, "rho is 'high'; it must be from -1 to 1"),
        ({"sd_within": "a"}, "sd_within is 'a'; it must be above 0 and below 1"),
        ({"coverage": "a"}, "coverage is 'a'; it must be above 0 and below 1"),
        ({"rate_within": "a", "collapse_rate": 0.5}, "rate_within is 'a'; it must be above 0 and below 1"),
        ({"rate_within": 0.1, "collapse_rate": "a"}, "collapse_rate is 'a'; it must be from 0 to 1"),
        ({"rate_within": 0.1}, "collapse_rate is None; it must be from 0 to 1"),
        ({"rate_within": 1e-5, "collapse_rate": 0.5}, "more than 100,000 seeds would be needed"),
        ({"coverage": 1.0}, "coverage is 1.0; it must be above 0 and below 1"),
        ({"coverage": 0.9, "level": 1.0}, "level is 1.0; it must be between 0 and 1"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        stats.seeds_needed(**arguments)
    assert sentence in str(caught.value)
