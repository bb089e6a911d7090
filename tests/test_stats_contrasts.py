"""Comparisons: pairs are matched by seed, tests agree with SciPy, corrections hold what they promise."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from scipy import stats as scipy_stats

from rlvr_jax import stats
from rlvr_jax.stats import bootstrap as module
from rlvr_jax.types import InvalidInput

GENERATOR = np.random.default_rng(0)
COMMON = GENERATOR.normal(size=30)
X = 0.9 * COMMON + 0.3 * GENERATOR.normal(size=30)
Y = 0.9 * COMMON + 0.5 * GENERATOR.normal(size=30) - 0.2


def labelled(values: np.ndarray, **coords: object) -> xr.DataArray:
    return xr.DataArray(values, {"seed": np.arange(len(values)), **coords}, ["seed"])


def test_the_paired_difference_is_that_of_scipy() -> None:
    result = stats.paired_difference(X, Y, method="t")
    theirs = scipy_stats.ttest_rel(X, Y)
    assert result.p_value.item() == pytest.approx(theirs.pvalue, rel=1e-9)
    low, high = theirs.confidence_interval(0.95)
    assert [result.low.item(), result.high.item()] == pytest.approx([low, high], rel=1e-9)
    assert result.rho.item() == pytest.approx(scipy_stats.pearsonr(X, Y).statistic, rel=1e-9)
    gain = (X.var(ddof=1) + Y.var(ddof=1)) / (X - Y).var(ddof=1)
    assert result.variance_reduction.item() == pytest.approx(gain, rel=1e-9)
    # what the pairing gains is what independent runs would lose: widths without it are √gain times as large
    width = 2 * np.sqrt((X.var(ddof=1) + Y.var(ddof=1)) / 30) * scipy_stats.t.ppf(0.975, 29)
    assert width / (high - low) == pytest.approx(np.sqrt(gain), rel=1e-9)


def test_welch_is_that_of_scipy_also_with_unequal_numbers() -> None:
    for y in (Y, Y[:7]):
        result, theirs = stats.welch_difference(X, y), scipy_stats.ttest_ind(X, y, equal_var=False)
        low, high = theirs.confidence_interval(0.95)
        assert [result.low.item(), result.high.item()] == pytest.approx([low, high], rel=1e-9)
        assert result.p_value.item() == pytest.approx(theirs.pvalue, rel=1e-9)
        assert result.n.item() == len(y)


def test_common_seeds_find_a_small_difference_that_independent_ones_do_not() -> None:
    """Power .80 paired against .01 with Welch at rho = .9, a difference of .3 sd and n = 20 (2,000 simulations)."""
    generator = np.random.default_rng(1)
    common = np.sqrt(0.9) * generator.normal(size=(2000, 20))
    x, y = (common + np.sqrt(0.1) * generator.normal(size=(2000, 20)) for _ in range(2))
    found = [
        (test(x + 0.3, y).p_value < 0.05).mean().item() for test in (stats.paired_difference, stats.welch_difference)
    ]
    error = 4 * np.sqrt(0.8 * 0.2 / 2000)
    assert abs(found[0] - 0.80) < 0.01 + error
    assert found[1] < 0.03


def test_pairs_are_matched_by_label_and_other_dimensions_by_name() -> None:
    x, y = labelled(X, method="grpo"), labelled(Y, method="rloo")
    result = stats.paired_difference(x, y.isel(seed=slice(None, None, -1)))
    np.testing.assert_array_equal(result.estimate, stats.paired_difference(X, Y).estimate)
    assert "method" not in result.coords
    fewer = stats.paired_difference(x, y.isel(seed=slice(5, None)))
    assert fewer.n.item() == 25
    np.testing.assert_array_equal(fewer.estimate, stats.paired_difference(X[5:], Y[5:]).estimate)
    grid = xr.concat([y, y + 1.0], xr.IndexVariable("lr", [0.1, 0.5]))
    assert stats.paired_difference(x, grid).estimate.dims == ("lr",)
    with pytest.raises(InvalidInput, match="x and y have no seed in common"):
        stats.paired_difference(x.isel(seed=slice(10)), y.isel(seed=slice(10, None)))
    with pytest.raises(InvalidInput, match="two plain arrays of one shape, or two labelled ones"):
        stats.paired_difference(X, Y[:5])


COMPARISONS = (
    stats.paired_difference,
    stats.welch_difference,
    stats.probability_of_improvement,
    stats.variance_ratio,
)


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("dataset", [False, True])
def test_cells_are_matched_by_label_too(compare: Callable[..., xr.Dataset], dataset: bool) -> None:
    values = np.array([X, X + 4.0, Y])
    grid = xr.DataArray(values, {"lr": [1.0, 2.0, 3.0], "seed": range(30)}, ["lr", "seed"])
    turned = grid.isel(lr=[2, 0, 1]).T
    one, other = (xr.Dataset({"accuracy": side}) if dataset else side for side in (grid, turned))
    wanted = compare(values, values)
    result = compare(one, other)
    assert result.lr.values.tolist() == [1.0, 2.0, 3.0]
    for name in wanted.data_vars:
        np.testing.assert_array_equal(np.squeeze(result[name]), wanted[name], name)
    for other in (grid.isel(lr=[0, 1]), grid.assign_coords(lr=[1.0, 2.0, 4.0])):
        with pytest.raises(InvalidInput, match=r"x and y have other values of lr, such as .*; select the ones"):
            compare(grid, other)
    tied = grid.rename(lr="run").assign_coords(run=range(3), lr=("run", [1.0, 2.0, 3.0]))
    assert compare(tied, tied).lr.values.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(InvalidInput, match="x and y have other values of lr along run"):
        compare(tied, tied.assign_coords(lr=("run", [2.0, 1.0, 3.0])))


@pytest.mark.parametrize("compare", COMPARISONS)
def test_no_cells_and_no_replicates(compare: Callable[..., xr.Dataset]) -> None:
    assert compare(np.zeros((0, 5)), np.zeros((0, 5))).estimate.shape == (0,)
    with pytest.raises(InvalidInput, match="values have no dim_1 at all; at least one is needed"):
        compare(np.zeros((2, 0)), np.zeros((2, 0)))
    empty = labelled(np.zeros(0))
    with pytest.raises(InvalidInput, match="values have no seed at all"):
        compare(empty, empty)


@pytest.mark.parametrize("statistic", ["mean", "median", "iqm", "std"])
def test_contrasts_of_statistics_resample_both_sides_together(statistic: str) -> None:
    arguments = {"resamples": 399, "seed": 4}
    result = stats.paired_difference(X, Y, statistic=statistic, method="bootstrap", **arguments)
    one, two = (getattr(stats, statistic)(side).estimate.item() for side in (X, Y))
    assert result.estimate.item() == pytest.approx(one - two, rel=1e-9)
    (counts,) = module._counts(30, 399, 4)
    places = [np.repeat(np.arange(30), count.astype(int)) for count in counts.T]
    drawn = [getattr(stats, statistic)([side[place] for place in places]).estimate.values for side in (X, Y)]
    ordered = np.sort(drawn[0] - drawn[1])
    np.testing.assert_allclose([result.low, result.high], [ordered[9], ordered[-10]], rtol=1e-9)


def test_a_missing_run_takes_its_pair_along() -> None:
    x, y = np.array([X, X]), np.array([Y, Y])
    x[0, 3] = y[0, 8] = np.nan
    x[1], y[1] = np.inf, np.inf
    kept = np.delete(np.arange(30), [3, 8])
    for compare in (stats.paired_difference, stats.probability_of_improvement, stats.variance_ratio):
        result, alone = compare(x, y), compare(X[kept], Y[kept])
        assert result.n.values.tolist() == [28, 0]
        for name in alone.data_vars:
            assert result[name].values[0] == pytest.approx(alone[name].item(), rel=1e-12), name
            assert name == "n" or np.isnan(result[name].values[1]), name


def test_the_probability_of_improvement_is_that_of_mann_and_whitney() -> None:
    tied = np.round(X, 1), np.round(Y, 1)
    result = stats.probability_of_improvement(*tied)
    assert result.estimate.item() == pytest.approx(scipy_stats.mannwhitneyu(*tied).statistic / 900, rel=1e-12)
    wins = np.mean([(x > y) + (x == y) / 2 for x, y in itertools.product(*tied)])
    assert result.estimate.item() == pytest.approx(wins, rel=1e-12)
    swapped = stats.probability_of_improvement(*reversed(tied))
    assert result.low.item() == pytest.approx(1 - swapped.high.item(), rel=1e-12)
    assert stats.probability_of_improvement([1.0, 1.0], [1.0, 1.0]).estimate.item() == 0.5
    above = stats.probability_of_improvement(X + 9.0, Y)
    assert [above[name].item() for name in ("low", "estimate", "high")] == [1.0, 1.0, 1.0]


def test_resampled_improvements_are_those_of_the_runs_drawn() -> None:
    result = stats.probability_of_improvement(X, Y, resamples=99, seed=2)
    (counts,) = module._counts(30, 99, 2)
    places = [np.repeat(np.arange(30), count.astype(int)) for count in counts.T]
    drawn = np.sort([(X[place][:, None] > Y[place]).mean() for place in places])
    np.testing.assert_allclose([result.low, result.high], [drawn[1], drawn[-2]], rtol=1e-12)


def test_the_variance_ratio_and_its_test_are_those_of_numpy_and_scipy() -> None:
    result = stats.variance_ratio(X, Y)
    assert result.estimate.item() == pytest.approx(X.var(ddof=1) / Y.var(ddof=1), rel=1e-9)
    theirs = scipy_stats.levene(X, Y, center="median")
    assert result.p_value.item() == pytest.approx(theirs.pvalue, rel=1e-9)
    assert result.low.item() < result.estimate.item() < result.high.item()


def test_two_seeds_are_no_test_of_variances() -> None:
    """Both distances from the median of two are equal, so the F-test would divide by 0 and always alarm."""
    for y in ([1.0, 3.0], [1.0, 2.0]):
        result = stats.variance_ratio([1.0, 2.0], y)
        assert np.isnan(result.p_value.item())
        assert np.isfinite([result[name].item() for name in ("estimate", "low", "high")]).all()
    theirs = scipy_stats.levene([1.0, 2.0, 4.0], [1.0, 3.0, 9.0], center="median")
    assert stats.variance_ratio([1.0, 2.0, 4.0], [1.0, 3.0, 9.0]).p_value.item() == pytest.approx(theirs.pvalue)


def test_welch_does_not_depend_on_the_unit() -> None:
    wanted = stats.welch_difference(X, Y)
    for unit in (2.0**-300, 2.0**400):
        result = stats.welch_difference(X * unit, Y * unit)
        assert result.p_value.item() == pytest.approx(wanted.p_value.item(), rel=1e-12)
        assert result.low.item() / unit == pytest.approx(wanted.low.item(), rel=1e-12)


def test_brown_and_forsythe_keep_their_level_where_the_f_test_does_not() -> None:
    generator = np.random.default_rng(3)
    x, y = generator.lognormal(size=(2, 2000, 20))
    mine = (stats.variance_ratio(x, y, resamples=39).p_value < 0.05).mean().item()
    f = x.var(1, ddof=1) / y.var(1, ddof=1)
    theirs = (2 * np.minimum(scipy_stats.f.cdf(f, 19, 19), scipy_stats.f.sf(f, 19, 19)) < 0.05).mean()
    assert mine < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 2000)
    assert theirs > 0.3


@pytest.mark.parametrize("value", [0.1, 1 / 3])
def test_constant_sides_are_compared_without_nan(value: float) -> None:
    same, other = np.full(6, value), np.array([0.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    result = stats.paired_difference(same, same)
    assert [result[name].item() for name in ("estimate", "low", "high", "p_value")] == [0.0, 0.0, 0.0, 1.0]
    assert np.isnan(result.rho.item())
    assert stats.paired_difference(same + 1.0, same).p_value.item() == pytest.approx(0.0, abs=1e-12)
    ratio = stats.variance_ratio(same, same)
    assert [ratio[name].item() for name in ("estimate", "low", "high", "p_value")] == [1.0, 1.0, 1.0, 1.0]
    assert stats.variance_ratio(other, same).estimate.item() == np.inf
    assert stats.variance_ratio(same, other).high.item() <= 1.0
    assert stats.welch_difference(same, same).p_value.item() == 1.0


def test_one_pair_has_no_interval() -> None:
    for compare in (stats.paired_difference, stats.welch_difference, stats.variance_ratio):
        result = compare([1.0], [0.5])
        assert result.n.item() == 1
        assert np.isnan([result[name].item() for name in ("low", "high", "p_value")]).all()


def test_benjamini_hochberg_is_that_of_scipy_and_holm_that_of_his_paper() -> None:
    p = np.random.default_rng(5).random((3, 4)) ** 3
    np.testing.assert_allclose(
        stats.benjamini_hochberg(p), scipy_stats.false_discovery_control(p.ravel()).reshape(p.shape)
    )
    # step down by hand: 4 · .005, 3 · .01, then 2 · .03 > 1 · .04
    np.testing.assert_allclose(stats.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert np.all(stats.holm(p) >= stats.benjamini_hochberg(p))


@pytest.mark.parametrize("adjust", [stats.holm, stats.benjamini_hochberg])
def test_tests_that_were_not_made_do_not_count(adjust: object) -> None:
    adjusted = adjust([np.nan, 0.01, np.nan, 0.03])  # type: ignore[operator]
    np.testing.assert_allclose(adjusted, [np.nan, *adjust([0.01, 0.03])[:1], np.nan, *adjust([0.01, 0.03])[1:]])  # type: ignore[operator]
    with pytest.raises(InvalidInput, match="they must lie between 0 and 1"):
        adjust([1.5])  # type: ignore[operator]


def test_holm_keeps_the_chance_of_any_false_alarm() -> None:
    p = np.random.default_rng(6).random((4000, 10))
    any_alarm = np.mean([stats.holm(row).min() < 0.05 for row in p])
    assert abs(any_alarm - (1 - 0.995**10)) < 4 * np.sqrt(0.05 * 0.95 / 4000)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: stats.paired_difference(X, Y, statistic="max"),
            "statistic is 'max'; it must be one of mean, median, iqm, std",
        ),
        (lambda: stats.paired_difference(X, Y, method="bca"), "method is 'bca'; it must be 'auto', 't' or 'bootstrap'"),
        *(
            (
                lambda method=method: stats.paired_difference(X, Y, statistic="iqm", method=method),
                f"method is {method!r}; it must be 'auto' or 'bootstrap'",
            )
            for method in ("t", "bca")
        ),
        (lambda: stats.welch_difference(X, Y, level="0.9"), "level is '0.9'; it must be between 0 and 1"),
        (lambda: stats.paired_difference(labelled(X), Y), "x and y have the shapes (30,) and (30,)"),
        (lambda: stats.welch_difference(np.zeros((2, 5)), np.zeros((3, 5))), "x and y have the cells"),
    ],
)
def test_what_cannot_be_compared_is_refused(call: object, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()  # type: ignore[operator]
    assert sentence in str(caught.value)
