"""Distributions, curves, choices and sources of variance: known values, ties, missing runs, refusals."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats as scipy_stats

from rlvr_jax import stats
from rlvr_jax.kept import Kept
from rlvr_jax.types import InvalidInput


@pytest.mark.parametrize(("collapsed", "n"), [(0, 1), (1, 1), (0, 20), (3, 20), (20, 20), (1, 2048)])
def test_a_collapse_rate_has_the_exact_interval_of_scipy(collapsed: int, n: int) -> None:
    seeds = np.where(np.arange(n) < collapsed, 0.1, 0.9)
    result = stats.collapse_rate(seeds, 0.5)
    theirs = scipy_stats.binomtest(collapsed, n).proportion_ci(method="exact")
    assert [result.low.item(), result.high.item()] == pytest.approx([theirs.low, theirs.high], abs=1e-9)
    assert result.estimate.item() == collapsed / n
    assert (result.collapsed.item(), result.attrs["threshold"]) == (collapsed, 0.5)
    mirrored = stats.collapse_rate(-seeds, -0.5, tail="high")
    assert mirrored.low.item() == result.low.item()


def test_collapse_is_strict_and_leaves_missing_seeds_out() -> None:
    result = stats.collapse_rate([[0.5, 0.4, np.nan, 0.5], [np.nan] * 4], 0.5)
    assert result.estimate.values[0] == 1 / 3
    assert result.n.values.tolist() == [3, 0]
    assert np.isnan([result[name].values[1] for name in ("estimate", "low", "high")]).all()


def test_a_tolerance_interval_leaves_out_as_many_seeds_as_it_may() -> None:
    result = stats.tolerance_interval(np.random.default_rng(0).permutation(2048), coverage=0.9)
    r = int(result.low.item()) + 1  # the sorted values are 0, 1, 2, ...
    assert result.high.item() == 2048 - r
    confident = [scipy_stats.beta.sf(0.9, 2049 - 2 * rank, 2 * rank) >= 0.95 for rank in (r, r + 1)]
    assert confident == [True, False]
    assert result.coverage.item() >= 0.9
    few = stats.tolerance_interval([3.0, 1.0, 2.0], coverage=0.9)
    assert [few[name].item() for name in ("low", "estimate", "high")] == [1.0, 2.0, 3.0]
    assert few.coverage.item() == pytest.approx(scipy_stats.beta.ppf(0.05, 2, 2))  # all that three seeds can promise
    assert stats.tolerance_interval([1.0, 1.0]).low.item() == 1.0
    one = stats.tolerance_interval([[5.0, np.nan], [np.nan, np.nan]])
    assert one.estimate.values[0] == 5.0
    assert np.isnan(one.low.values).all()
    assert np.isnan(one.coverage.values).all()


def test_the_ecdf_is_that_of_scipy_with_its_band() -> None:
    x = np.round(np.random.default_rng(1).normal(size=50), 1)
    result = stats.ecdf(x)
    theirs = scipy_stats.ecdf(x).cdf
    np.testing.assert_array_equal(result.value, theirs.quantiles)
    np.testing.assert_allclose(result.estimate, theirs.probabilities)
    assert (result.high - result.estimate).max().item() == pytest.approx(np.sqrt(np.log(40) / 100))
    assert result.low.min() == 0.0
    assert result.high.max() == 1.0
    many = stats.ecdf(np.random.default_rng(2).normal(size=(3, 2000)))
    assert many.estimate.shape == (3, 1000)
    assert many.estimate.isel(value=-1).values.tolist() == [1.0, 1.0, 1.0]


def test_the_performance_profile_is_what_the_ecdf_leaves() -> None:
    x = np.random.default_rng(3).normal(size=(2, 40))
    x[1, :10] = np.nan
    profile, curve = stats.performance_profile(x, [-1.0, 0.0, 9.0]), stats.ecdf(x, [-1.0, 0.0, 9.0])
    np.testing.assert_allclose(profile.estimate, 1 - curve.estimate)
    assert profile.n.values.tolist() == [40, 30]
    assert profile.high.values[:, 2] == pytest.approx([1 - 0.025 ** (1 / n) for n in (40, 30)])


def curves() -> xr.DataArray:
    """Three runs of two methods; the second method's last run never reaches .5."""
    values = [[[0.0, 0.5, 1.0], [0.0, 0.6, 0.6], [0.0, 0.2, 0.7]], [[0.0, 0.7, 0.9], [0.0, 0.1, 0.6], [0.0, 0.1, 0.4]]]
    coords = {"method": ["rloo", "grpo"], "seed": range(3), "step": [0, 100, 300]}
    return xr.DataArray(values, coords, ["method", "seed", "step"])


def test_the_area_is_that_of_numpy() -> None:
    area = stats.area_under_curve(curves())
    np.testing.assert_allclose(area, np.trapezoid(curves(), [0, 100, 300], axis=-1) / 300)
    assert area.dims == ("method", "seed")
    np.testing.assert_array_equal(area, stats.area_under_curve(curves().values, steps=[0, 100, 300]))
    holes = np.array([[np.nan, 1.0, np.nan, 3.0], [4.0, 2.0, np.inf, np.nan], [np.nan, 2.0, np.nan, np.nan]])
    steps = np.array([0.0, 10.0, 30.0, 40.0])
    area = stats.area_under_curve([*holes, [np.nan] * 4], steps=steps)
    # by hand: 1 1 7/3 3, then 4 2 2 2, then 2 2 2 2
    np.testing.assert_allclose(area, [(10 + 100 / 3 + 80 / 3) / 40, 90 / 40, 2.0, np.nan])
    filled = [np.interp(steps, steps[np.isfinite(row)], row[np.isfinite(row)]) for row in holes]
    np.testing.assert_allclose(area[:3], np.trapezoid(filled, steps) / 40)
    kept = Kept("zero_frac", "area").of(np.moveaxis(holes.reshape(1, 3, 4), -1, 1), steps.tolist())
    np.testing.assert_array_equal(kept, [area[:3]])
    assert stats.area_under_curve([[3.0], [np.nan]]).values.tolist() == [3.0, pytest.approx(np.nan, nan_ok=True)]
    assert stats.area_under_curve(np.zeros((0, 3))).shape == (0,)


def test_runs_that_never_get_there_count_as_later_than_all() -> None:
    result = stats.time_to_threshold(curves(), 0.5)
    assert result.time.values.tolist() == [[100.0, 100.0, 300.0], [100.0, 300.0, np.inf]]
    assert result.estimate.values.tolist() == [100.0, 300.0]  # without the censored run it would be 200
    assert result.reached.values.tolist() == [1.0, 2 / 3]
    assert result.low.values.tolist() == [0.0, 0.0]  # three runs give no 95 % interval
    assert result.high.values.tolist() == [np.inf, np.inf]
    assert stats.time_to_threshold(curves(), 2.0).estimate.values.tolist() == [np.inf, np.inf]
    plain = stats.time_to_threshold(curves().values, 0.5, steps=[0, 100, 300])
    np.testing.assert_array_equal(plain.estimate, result.estimate)
    turned = stats.time_to_threshold(curves().transpose("seed", "step", "method"), 0.5)
    np.testing.assert_array_equal(turned.estimate, result.estimate)


def test_the_interval_of_the_median_time_is_that_of_the_sign_test() -> None:
    order = np.random.default_rng(4).permutation(30)
    runs = (np.arange(31) >= order[:, None] + 1).astype(float)  # one run reaches it at each of the steps 1 to 30
    result = stats.time_to_threshold(runs, 0.5)
    theirs = scipy_stats.quantile_test(np.arange(1.0, 31.0), p=0.5).confidence_interval(0.95)
    assert (theirs.low, theirs.high) == (10.0, 21.0)
    assert [result[name].item() for name in ("low", "estimate", "high")] == [10.0, 15.5, 21.0]
    missing = stats.time_to_threshold(np.where(order[:, None] < 5, np.nan, runs), 0.5)
    assert missing.n.item() == 25
    assert stats.time_to_threshold(np.full((2, 3), np.nan), 0.5).n.item() == 0


def test_the_choice_is_reported_on_seeds_that_did_not_make_it() -> None:
    coords = {"method": ["rloo", "grpo"], "lr": [0.1, 0.5, 2.0], "seed": range(8)}
    values = xr.DataArray(np.zeros((2, 3, 8)), coords, ["method", "lr", "seed"])
    values[0, 1, :4], values[0, 1, 4:] = 1.0, [0.2, 0.4, 0.2, 0.4]
    values[1, 2, :4], values[1, 2, 4:] = 0.5, 0.7
    values[1, 0, 4:] = 9.0  # better on the seeds that report, which must not choose
    result = stats.select_then_report(values, "lr")
    assert result.chosen.values.tolist() == [0.5, 2.0]
    np.testing.assert_allclose(result.estimate, [0.3, 0.7])
    assert result.n.values.tolist() == [4, 4]
    assert result.attrs["statistic"] == "mean at the lr chosen on the first 4 of 8 seeds"
    np.testing.assert_allclose(result.low[0], stats.mean([0.2, 0.4, 0.2, 0.4]).low)
    assert stats.select_then_report(-values, "lr", best="min").chosen.values.tolist() == [0.5, 2.0]
    assert stats.select_then_report(values, "lr", choosing=7).n.values.tolist() == [1, 1]
    plain = stats.select_then_report(values.values, "lr")
    assert plain.chosen.values.tolist() == [1, 2]
    np.testing.assert_array_equal(plain.estimate, result.estimate)


def test_the_best_of_many_equal_candidates_is_not_better_on_other_seeds() -> None:
    """The winner's curse: the best of 24 equal means is 2 standard errors too good, the reported one is unbiased."""
    values = xr.DataArray(np.random.default_rng(5).normal(size=(2000, 24, 20)), dims=["study", "lr", "seed"])
    naive = values.mean("seed").max("lr").mean().item() * np.sqrt(20)
    honest = stats.select_then_report(values, "lr", method="t").estimate
    assert naive > 1.5
    assert abs(honest.mean().item()) < 4 * honest.std().item() / np.sqrt(2000)


def test_a_choice_without_values_is_none() -> None:
    values = xr.DataArray(np.ones((2, 2, 4)), dims=["method", "lr", "seed"])
    values[0, :, :2] = np.nan
    values[1, 0, :2] = np.nan
    result = stats.select_then_report(values, "lr")
    assert result.n.values.tolist() == [0, 2]
    assert np.isnan(result.estimate.values[0])
    assert result.chosen.values[1] == 1


def test_crossed_sources_are_those_of_a_textbook() -> None:
    """Two crossed effects without interaction: MS and components by hand, as in a two-way table of one run each."""
    runs = np.array([[1.0, 2.0, 4.0], [3.0, 4.0, 6.0]])  # rows differ by 2, columns by 1 and 2
    result = stats.variance_components(
        xr.DataArray(runs, dims=["task_seed", "prompt_seed"]), ["task_seed", "prompt_seed"]
    )
    # MS_rows = 3 · Σ(±1)² / 1 = 6, MS_columns = 2 · Σ(d²) / 2 = 14/3, MS_rest = 0
    np.testing.assert_allclose(result.estimate, [6 / 3, 14 / 3 / 2, 0.0], atol=1e-12)
    np.testing.assert_allclose(result.share.sum(), 1.0)
    assert result.n.item() == 6


def test_sources_of_cells_that_are_constant_or_incomplete() -> None:
    runs = np.random.default_rng(6).normal(size=(3, 4, 5))
    runs[0] = 0.1
    runs[1, 2, 2] = np.nan
    labelled = xr.DataArray(runs, {"method": list("abc")}, ["method", "task_seed", "prompt_seed"])
    result = stats.variance_components(labelled, ["task_seed", "prompt_seed"])
    for name in ("estimate", "low", "high"):
        assert result[name].sel({"method": "a"}).values.tolist() == [0.0, 0.0, 0.0]
        assert np.isnan(result[name].sel({"method": "b"})).all()
        assert np.isfinite(result[name].sel({"method": "c"})).all()
    assert np.isnan(result.share.sel({"method": "a"})).all()
    assert result.n.values.tolist() == [20, 19, 20]
    again = stats.variance_components(
        labelled.transpose("prompt_seed", "method", "task_seed"), ["task_seed", "prompt_seed"]
    )
    np.testing.assert_allclose(again.estimate, result.estimate, rtol=1e-9, atol=1e-12)


def test_sources_are_split_along_a_tied_axis_called_run() -> None:
    runs = np.random.default_rng(7).normal(size=(2, 4, 5))
    sources = ["task_seed", "prompt_seed"]
    result = stats.variance_components(xr.DataArray(runs, dims=["run", *sources]), sources)
    assert result.estimate.dims == ("run", "source")
    for run in range(2):
        alone = stats.variance_components(xr.DataArray(runs[run], dims=sources), sources)
        np.testing.assert_allclose(result.isel(run=run).estimate, alone.estimate, rtol=1e-12)


def test_one_size_is_one_size() -> None:
    coverage = stats.interval_coverage(np.arange(9.0), 3, trials=50)
    assert coverage.seeds.values.tolist() == [3]
    np.testing.assert_array_equal(coverage.estimate, stats.interval_coverage(np.arange(9.0), [3.0], trials=50).estimate)


SMALL = xr.DataArray(np.zeros((2, 3)), dims=["lr", "seed"])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: stats.collapse_rate([1.0], np.nan), "threshold is nan; it must be a finite number"),
        (lambda: stats.collapse_rate([1.0], 0.5, tail="up"), "tail is 'up'; it must be 'low' or 'high'"),
        (lambda: stats.tolerance_interval([1.0], coverage=90), "coverage is 90; it must be between 0 and 1"),
        (lambda: stats.ecdf([1.0], [np.inf]), "at is [inf]; it must be finite numbers"),
        (lambda: stats.performance_profile([1.0], []), "thresholds is []; it must be finite numbers"),
        (lambda: stats.area_under_curve([1.0, 2.0], steps=[1, 1]), "it must be 2 rising numbers"),
        (lambda: stats.area_under_curve(curves(), steps=[0, 1, 2]), "steps is for plain arrays"),
        (
            lambda: stats.time_to_threshold(curves(), 0.5, "run"),
            "over is 'run'; it must be a dimension of values besides step",
        ),
        (lambda: stats.time_to_threshold([1.0], 0.5), "it must be a dimension of values besides step, which has none"),
        (lambda: stats.time_to_threshold(curves(), np.inf), "threshold is inf; it must be a finite number"),
        (lambda: stats.select_then_report(SMALL, "method"), "choose is 'method'; it must be a dimension of values"),
        (lambda: stats.select_then_report(SMALL, "lr", best="most"), "best is 'most'; it must be 'max' or 'min'"),
        (
            lambda: stats.select_then_report(SMALL, "lr", choosing=3),
            "choosing is 3; it must be a whole number from 1",
        ),
        (
            lambda: stats.select_then_report(SMALL, "lr", choosing=1.5),
            "choosing is 1.5; it must be a whole number",
        ),
        (lambda: stats.select_then_report(SMALL, "lr", resamples="x"), "resamples is 'x'; it must be a whole number"),
        (lambda: stats.select_then_report(SMALL, "lr", method="x"), "method is 'x'; it must be 'auto', 't' or"),
        (lambda: stats.select_then_report(SMALL[:, :1], "lr"), "values have 1 seed; one to choose by and another to"),
        (lambda: stats.select_then_report(SMALL, "seed"), "choose is 'seed'; it must be a dimension of values besides"),
        *(
            (lambda name=name: stats.select_then_report(np.zeros((2, 2, 4)), name), f"choose is {name!r}; it must be a")
            for name in ("seed", "dim_0", 3)
        ),
        (lambda: stats.select_then_report([1.0, 2.0], "lr"), "it must be [..., candidates, n]"),
        (lambda: stats.variance_components(SMALL, ["seed"]), "it must be two or more different dimensions"),
        (lambda: stats.variance_components(SMALL, ["seed", "task_seed"]), "over has 'task_seed'; each source must be"),
        *(
            (lambda over=over: stats.variance_components(SMALL, over), "it must be two or more different dimensions")
            for over in (None, 3, ["seed", 3], "seed", ["seed", "seed"])
        ),
        (lambda: stats.variance_components(SMALL, ["lr", "seed"], draws=0), "draws is 0; it must be a whole number at"),
        (lambda: stats.variance_components(SMALL.values, ["a", "b"]), "variance components need labelled values"),
        (lambda: stats.interval_coverage([1.0, 2.0], [1]), "sizes is [1]; it must be whole numbers at least 2"),
        *(
            (lambda sizes=sizes: stats.interval_coverage([1.0, 2.0], sizes), "it must be whole numbers at least 2")
            for sizes in (["a"], [2.5], [], None, [np.nan], [[2]])
        ),
        (lambda: stats.interval_coverage([1.0, 2.0], [2], trials=1.5), "trials is 1.5; it must be a whole number at"),
        (lambda: stats.interval_coverage([1.0, 2.0], [2], method="auto"), "method is 'auto'; it must be 't' or 'boot"),
        *(
            (lambda bad=bad, f=f: f([[1.0, 2.0]], bad), f"threshold is {bad!r}; it must be a finite number")
            for bad in ("0.5", None, [0.5])
            for f in (stats.collapse_rate, stats.time_to_threshold)
        ),
        *(
            (lambda bad=bad: stats.tolerance_interval([1.0], coverage=bad), f"coverage is {bad!r}; it must be between")
            for bad in ("0.9", None, [0.9])
        ),
        (lambda: stats.time_to_threshold(np.zeros((0, 3)), 0.5), "values have no dim_0 at all; at least one is needed"),
        (lambda: stats.area_under_curve(curves().assign_coords(step=[0, 2, 1])), "steps is array([0, 2, 1]); it must"),
        (lambda: stats.area_under_curve([1.0, 2.0], steps=[0, np.inf]), "steps is [0, inf]; it must be 2 rising"),
        (
            lambda: stats.interval_coverage([1.0, 2.0], [2], trials=0),
            "trials is 0; it must be a whole number at least 1",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(call: object, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()  # type: ignore[operator]
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
