"""Statistics of one set of runs: what NumPy and SciPy say, on arrays and labels alike, never NaN unasked."""

import sys
import tracemalloc
from subprocess import run

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from scipy.stats import bootstrap as scipy_bootstrap

import rlvr_jax as rj
from rlvr_jax import stats
from rlvr_jax.stats import bootstrap as module
from rlvr_jax.types import InvalidInput

SKEWED = np.random.default_rng(0).lognormal(size=(3, 41))

#: One-argument summaries with an interval, and what NumPy or SciPy gives along the last axis.
SUMMARIES = {
    "mean": (stats.mean, lambda x: x.mean(-1)),
    "median": (stats.median, lambda x: np.median(x, -1)),
    "iqm": (stats.iqm, lambda x: scipy_stats.trim_mean(x, 0.25, axis=-1)),
    "std": (stats.std, lambda x: x.std(-1, ddof=1)),
    "quantiles": (
        lambda x, *a, **k: stats.quantiles(x, [0.37], *a, **k).isel(quantile=0),
        lambda x: np.quantile(x, 0.37, -1),
    ),
    "cvar": (lambda x, *a, **k: stats.cvar(x, *a, share=0.3, **k), lambda x: cvar_by_integration(x, 0.3)),
}


def cvar_by_integration(x: np.ndarray, share: float) -> np.ndarray:
    """The mean of the quantile function below ``share``, on a grid that holds every one of its steps."""
    n = x.shape[-1]
    u = (np.arange(1000 * n) + 0.5) / (1000 * n)
    kept = np.sort(x, -1)[..., (u[u < share] * n).astype(int)]
    return kept.mean(-1)


@pytest.mark.parametrize("name", SUMMARIES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 20, 41])
def test_estimates_are_those_of_numpy_and_scipy(name: str, n: int) -> None:
    summary, expected = SUMMARIES[name]
    x = SKEWED[:, :n]
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = np.full(3, np.nan) if name == "std" and n == 1 else expected(x)
    tolerance = 2e-3 if name == "cvar" else 1e-12  # 0.3 n falls between two points of its grid
    np.testing.assert_allclose(summary(x).estimate, wanted, rtol=tolerance)


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_resample_is_what_numpy_and_scipy_say_of_the_values_drawn(name: str) -> None:
    """The statistic with counts is that of the values repeated so often; the ends are order statistics of these."""
    summary, expected = SUMMARIES[name]
    x = SKEWED[0]
    (counts,) = module._counts(len(x), 199, 5)
    drawn = np.sort([expected(np.repeat(x, count.astype(int))) for count in counts.T])
    arguments = {"method": "bootstrap"} if name == "mean" else {}
    result = summary(x, resamples=199, seed=5, **arguments)
    tolerance = 2e-3 if name == "cvar" else 1e-9
    np.testing.assert_allclose([result.low, result.high], [drawn[4], drawn[-5]], rtol=tolerance)


def test_the_mean_interval_is_that_of_scipy() -> None:
    result = stats.mean(SKEWED, method="bootstrap", resamples=20_000)
    theirs = scipy_bootstrap(
        (SKEWED,), np.mean, axis=-1, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    # each end rests on 500 of 20,000 resamples: its Monte Carlo error is .02 of the width (5 of them are allowed)
    width = theirs.high - theirs.low
    assert np.all(np.abs(result.low - theirs.low) < 0.1 * width)
    assert np.all(np.abs(result.high - theirs.high) < 0.1 * width)
    student = stats.mean(SKEWED, method="t")
    low, high = scipy_stats.t.interval(0.95, 40, SKEWED.mean(1), scipy_stats.sem(SKEWED, axis=1))
    np.testing.assert_allclose([student.low, student.high], [low, high], rtol=1e-12)


def test_the_iqm_drops_a_quarter_rounded_down_as_agarwal_does() -> None:
    # rliable calls scipy.stats.trim_mean(x, 0.25): of 7 values one at either end goes, not one and three quarters
    assert stats.iqm([-9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 90.0]).estimate.item() == 3.0
    assert stats.iqm([0.0, 10.0, 20.0]).estimate.item() == 10.0  # nothing is dropped of three


def test_median_and_iqm_hide_collapsed_seeds_and_the_others_show_them() -> None:
    seeds = np.array([0.1] * 15 + [0.8] * 85)
    assert stats.iqm(seeds).estimate.item() == pytest.approx(0.8)
    assert stats.median(seeds).estimate.item() == 0.8
    assert stats.mean(seeds).estimate.item() == pytest.approx(0.695)
    assert stats.cvar(seeds).estimate.item() == pytest.approx(0.1)
    assert stats.cvar(-seeds, tail="high").estimate.item() == pytest.approx(-0.1)
    assert stats.collapse_rate(seeds, 0.5).estimate.item() == 0.15


def test_the_method_is_named_and_depends_on_the_number_of_seeds() -> None:
    few, many = SKEWED[:, :19], SKEWED[:, :20]
    assert stats.mean(few).attrs == {"statistic": "mean", "method": "t", "level": 0.95, "over": "dim_1"}
    assert stats.mean(many).attrs["method"] == "percentile bootstrap"
    assert stats.mean(many).attrs["resamples"] == module.RESAMPLES
    mixed = many.copy()
    mixed[1, 0] = np.nan
    result = stats.mean(mixed)
    assert result.attrs["method"] == "percentile bootstrap, t where n < 20"
    assert result.n.values.tolist() == [20, 19, 20]
    np.testing.assert_array_equal(result.low[1], stats.mean(mixed, method="t").low[1])
    np.testing.assert_array_equal(result.low[::2], stats.mean(many).low[::2])


def test_labels_are_kept_and_arrays_give_the_same_numbers() -> None:
    labelled = xr.DataArray(SKEWED, {"method": list("abc"), "seed": range(41), "step": 600}, ["method", "seed"])
    result = stats.iqm(labelled, over="seed", seed=3)
    assert result.estimate.dims == ("method",)
    assert result.sel({"method": "b"}).step.item() == 600
    for other in (stats.iqm(SKEWED, axis=-1, seed=3), stats.iqm(SKEWED.T, axis=0, seed=3)):
        for name in ("estimate", "low", "high", "n"):
            np.testing.assert_array_equal(result[name], other[name])
    assert stats.iqm(labelled.T, seed=3).estimate.dims == ("method",)


def test_metrics_of_a_dataset_are_a_dimension() -> None:
    metrics = xr.Dataset({"accuracy": (("method", "seed"), SKEWED), "h": (("method", "seed"), 2 * SKEWED)})
    metrics["diverged_step"] = (("method", "seed"), np.zeros(SKEWED.shape, int))
    result = stats.median(metrics)
    assert result.metric.values.tolist() == ["accuracy", "h"]
    np.testing.assert_array_equal(result.low.sel(metric="h"), 2 * stats.median(SKEWED).low)
    metrics["zero_frac"] = ("seed", SKEWED[0])
    with pytest.raises(InvalidInput, match=r"metrics of the same dimensions, such as results\[\['accuracy'\]\]"):
        stats.median(metrics)


def test_equal_seeds_give_equal_intervals_and_generators_move_on() -> None:
    first, again, other = (stats.iqm(SKEWED, seed=seed).low.values for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.all(first != other)
    generator = np.random.default_rng(1)
    drawn, drawn_later = (stats.iqm(SKEWED, seed=generator).low.values for _ in range(2))
    assert np.all(drawn != drawn_later)
    np.testing.assert_array_equal(drawn, stats.iqm(SKEWED, seed=np.random.default_rng(1)).low)


def test_a_cell_does_not_depend_on_the_other_cells() -> None:
    many = np.random.default_rng(2).normal(size=(30, 33))
    many[4, 7] = many[9, :3] = np.nan
    together = stats.std(many)
    for row in (0, 4, 9, 29):
        alone = stats.std(many[row])
        for name in ("estimate", "low", "high", "n"):
            # products of matrices of other shapes round differently
            np.testing.assert_allclose(together[name][row], alone[name], rtol=1e-12)


def test_blocks_do_not_change_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = stats.iqm(SKEWED, seed=7)
    for name, value in (("COUNTS", 64 * 41), ("RESAMPLED", 2000), ("KEPT", 0)):
        monkeypatch.setattr(module, name, value)
    blocks = list(module._counts(41, 2000, 7))
    assert len(blocks) == 32
    assert all((block.sum(0) == 41).all() for block in blocks)
    parts = stats.iqm(SKEWED, seed=7)
    np.testing.assert_allclose([parts.low, parts.high], [whole.low, whole.high], rtol=0.1)  # other draws, same size
    np.testing.assert_array_equal(parts.estimate, whole.estimate)


@pytest.mark.parametrize("name", SUMMARIES)
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e9 + 0.1])
def test_constant_cells_have_exact_intervals(name: str, value: float) -> None:
    summary, _ = SUMMARIES[name]
    for n in (2, 3, 20, 64):
        result = summary(np.full((2, n), value))
        wanted = 0.0 if name == "std" else value
        assert (
            result.low.values.tolist() == result.high.values.tolist() == result.estimate.values.tolist() == [wanted] * 2
        )


@pytest.mark.parametrize("name", SUMMARIES)
def test_missing_values_one_seed_and_none(name: str) -> None:
    summary, _ = SUMMARIES[name]
    x = np.array([[1.0, 4.0, np.nan, 2.0, np.inf], [np.nan, 3.0, np.nan, np.nan, -np.inf], [np.nan] * 5])
    result = summary(x)
    assert result.n.values.tolist() == [3, 1, 0]
    alone = summary([1.0, 4.0, 2.0])
    for end in ("estimate", "low", "high"):
        assert result[end].values[0] == pytest.approx(alone[end].item(), rel=1e-12)
        assert np.isnan(result[end].values[2])
    assert np.isnan(result.low.values[1])
    assert np.isnan(result.high.values[1])
    assert name == "std" or result.estimate.values[1] == 3.0


@given(
    values=st.lists(st.sampled_from([0.0, 0.25, 0.25, 1.0]), min_size=2, max_size=12),
    name=st.sampled_from(sorted(SUMMARIES)),
)
def test_intervals_of_ties_are_finite_and_ordered(values: list[float], name: str) -> None:
    result = SUMMARIES[name][0](values, resamples=99)
    low, estimate, high = (result[end].item() for end in ("low", "estimate", "high"))
    assert np.isfinite([low, estimate, high]).all()
    assert low <= high
    if name not in ("std", "mean"):  # the t-interval of a mean leaves the range of the values
        assert min(values) <= low <= high <= max(values)


def test_what_is_masked_is_missing() -> None:
    masked = np.ma.array([1.0, 2.0, 999.0, 4.0], mask=[0, 0, 1, 0])
    for values in (masked, masked.astype(int), [1.0, 2.0, np.ma.masked, 4.0]):
        result = stats.mean(values)
        assert (result.estimate.item(), result.n.item()) == (pytest.approx(7 / 3), 3)
    assert stats.mean([masked, masked]).n.values.tolist() == [3, 3]
    assert stats.mean(np.ma.array([True, False], mask=[0, 1])).estimate.item() == 1.0
    assert stats.paired_difference(masked, [0.0] * 4).n.item() == 3
    assert stats.collapse_rate(masked, 1.5, tail="high").collapsed.item() == 2
    assert stats.area_under_curve(np.ma.array([0.0, 9.0, 2.0], mask=[0, 1, 0])).item() == 1.0
    np.testing.assert_array_equal(stats.holm(np.ma.array([0.01, 0.5, 0.03], mask=[0, 1, 0])), [0.02, np.nan, 0.03])
    with pytest.raises(InvalidInput, match="threshold is masked; it must be a finite number"):
        stats.collapse_rate([1.0], np.ma.masked)


def test_the_worst_share_may_be_tiny_on_either_side() -> None:
    values = np.array([0.1, 0.7, 0.3])
    for share in (1e-15, 1e-9, 1 / 3):
        assert stats.cvar(values, share=share, tail="high").estimate.item() == pytest.approx(0.7, rel=1e-14)
        assert stats.cvar(values, share=share).estimate.item() == pytest.approx(0.1, rel=1e-14)


@pytest.mark.parametrize("name", [*SUMMARIES, "collapse_rate", "tolerance_interval", "ecdf", "performance_profile"])
def test_no_cells_at_all_give_a_result_without_cells(name: str) -> None:
    arguments = {"collapse_rate": [0.5], "performance_profile": [[0.5]]}.get(name, [])
    call = SUMMARIES[name][0] if name in SUMMARIES else getattr(stats, name)
    assert call(np.zeros((0, 5)), *arguments).n.shape == (0,)


@pytest.mark.parametrize("name", ["mean", "sd", "estimate", "low", "n", "quantile", "value", "threshold", "seeds"])
def test_names_of_a_result_are_no_names_of_the_values(name: str) -> None:
    """Where a statistic has that name itself; the others keep it."""
    values = xr.DataArray(np.ones((2, 4)), dims=[name, "seed"])
    own = {
        "sd": [stats.mean],
        "quantile": [lambda x: stats.quantiles(x, [0.5])],
        "value": [stats.ecdf],
        "threshold": [lambda x: stats.performance_profile(x, [0.5])],
        "seeds": [lambda x: stats.interval_coverage(x, [2], trials=9)],
        "mean": [],
    }.get(name, [stats.mean, stats.ecdf, lambda x: stats.quantiles(x, [0.5]), lambda x: stats.paired_difference(x, x)])
    for call in own:
        with pytest.raises(InvalidInput, match=f"values have a dimension or coordinate '{name}', a name of the result"):
            call(values)
        with pytest.raises(InvalidInput, match=f"coordinate '{name}'"):
            call(xr.DataArray(np.ones(4), {name: 1.0}, ["seed"]))
    if name not in ("estimate", "low", "n"):
        assert stats.median(values).estimate.dims == (name,)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: stats.mean(xr.DataArray([1.0], dims="seed"), "sede"),
            "over is 'sede'; it must be a dimension of values, which has seed",
        ),
        (lambda: stats.mean([1.0, 2.0], axis=1), "axis is 1; it must be an axis of values, whose shape is (2,)"),
        (lambda: stats.mean(["a"]), "values is ['a']; it must be numbers"),
        (lambda: stats.mean(xr.DataArray(["a"], dims="seed")), "values holds <U1; it must hold numbers"),
        (lambda: stats.mean(np.zeros((3, 0))), "values have no dim_1 at all"),
        (lambda: stats.mean([1.0, 2.0], level=95), "level is 95; it must be between 0 and 1"),
        (lambda: stats.mean([1.0, 2.0], method="bca"), "method is 'bca'; it must be 'auto', 't' or 'bootstrap'"),
        (lambda: stats.iqm([1.0, 2.0], resamples=38), "resamples is 38; level 0.95 needs a whole number at least 39"),
        (lambda: stats.iqm([1.0, 2.0], seed=-1), "seed is -1; it must be a whole number at least 0 or a numpy"),
        (lambda: stats.mean([1.0, 2.0], seed=0.5), "seed is 0.5; it must be a whole number at least 0 or a numpy"),
        (lambda: stats.quantiles([1.0, 2.0], [1.5]), "q is [1.5]; it must be numbers from 0 to 1"),
        (lambda: stats.cvar([1.0, 2.0], share=0.0), "share is 0.0; it must be above 0 and at most 1"),
        *(
            (lambda share=share: stats.cvar([1.0], share=share), f"share is {share!r}; it must be above 0 and at most")
            for share in ("0.1", None, [0.1], True, 1 + 1j)
        ),
        *(
            (lambda level=level, f=f: f([1.0, 2.0], level=level), f"level is {level!r}; it must be between 0 and 1")
            for level in ("0.95", None, [0.9], True)
            for f in (stats.mean, stats.iqm, stats.tolerance_interval, stats.ecdf)
        ),
        (lambda: stats.quantiles([1.0, 2.0], "a"), "q is 'a'; it must be numbers from 0 to 1"),
        (lambda: stats.quantiles([1.0, 2.0], [np.nan]), "q is [nan]; it must be numbers from 0 to 1"),
        (lambda: stats.mean([1.0], resamples="many"), "resamples is 'many'; it must be a whole number at least 1"),
        (lambda: stats.std([1.0, -1e308]), "values have numbers beyond ±1e+150, whose squares would overflow"),
        (lambda: stats.iqm([np.nan, 1e308]), "values have numbers beyond ±1e+150"),
        (
            lambda: stats.mean(xr.Dataset({"a": (("metric", "seed"), np.ones((2, 3)))})),
            "values have a variable or dimension 'metric', a name of the result",
        ),
        (lambda: stats.cvar([1.0, 2.0], tail="left"), "tail is 'left'; it must be 'low' or 'high'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(call: object, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()  # type: ignore[operator]
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_smallest_number_of_resamples_works() -> None:
    assert np.isfinite(stats.iqm([1.0, 2.0, 3.0], resamples=39).low)


def test_memory_does_not_grow_with_cells_times_resamples_times_seeds() -> None:
    cells = np.random.default_rng(3).normal(size=(1000, 256))
    tracemalloc.start()
    stats.mean(cells)
    stats.paired_difference(cells, cells[::-1])
    stats.iqm(cells[:50])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6  # all resamples of all cells at once would be 4 GB


def test_nothing_of_training_is_imported() -> None:
    program = "import sys, rlvr_jax.stats; print(*{'jax', 'jaxlib', 'optax', 'matplotlib', 'zarr'} & set(sys.modules))"
    path = str(next(iter(rj.__path__)).removesuffix("/rlvr_jax"))
    done = run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=path)
    assert done.stdout.strip() == ""


def test_all_is_sorted_and_complete() -> None:
    assert stats.__all__ == sorted(stats.__all__)
    assert rj.stats is stats
    for name in stats.__all__:
        assert getattr(stats, name).__doc__.count("Example:") == 1
