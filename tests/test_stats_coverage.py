"""Intervals hold the truth as often as their docstrings say; what is measured again here has other draws."""

import re

import numpy as np
import pytest
import xarray as xr
from measured_coverage import DISTRIBUTIONS, SIZES, measure
from scipy.special import ndtr

from rlvr_jax import stats

TRIALS = 600


def stated() -> dict[str, dict[tuple[int, str], float]]:
    """The table in the docstring of `rlvr_jax.stats`."""
    rows = re.findall(r"^    (\S.*?)  +((?:[01]?\.\d\d ?[ ]*){12})$", stats.__doc__ or "", re.MULTILINE)
    keys = [(n, name) for n in SIZES for name in DISTRIBUTIONS]
    return {name: dict(zip(keys, map(float, numbers.split()), strict=True)) for name, numbers in rows}


def test_intervals_hold_the_truth_as_often_as_the_table_says() -> None:
    table, found = stated(), measure(TRIALS, 400, seed=2)
    assert set(table) == set(found)
    wrong = []
    for interval, row in found.items():
        for key, share in row.items():
            p = np.clip(table[interval][key], 0.01, 0.99)
            # .01 for the table's own error and rounding; 4 standard errors: 168 comparisons, false alarm below .01
            if abs(share - p) > 0.01 + 4 * np.sqrt(p * (1 - p) / TRIALS):
                wrong.append((interval, key, share, table[interval][key]))
    assert wrong == []


def at_least(held: np.ndarray, level: float) -> bool:
    """Whether a share is not below ``level`` by more than 4 standard errors, false alarm 3e-5."""
    return bool(held.mean() >= level - 4 * np.sqrt(level * (1 - level) / held.size))


@pytest.mark.parametrize("n", [5, 20, 93])
def test_exact_intervals_hold_at_least_as_often_as_they_say(n: int) -> None:
    generator = np.random.default_rng([3, n])
    u = generator.random((2000, n))
    for rate in (0.01, 0.15, 0.5):
        collapsed = stats.collapse_rate(u, rate)
        assert at_least(((collapsed.low <= rate) & (rate <= collapsed.high)).values, 0.95)
        profile = stats.performance_profile(u, [rate])
        assert at_least(((profile.low <= 1 - rate) & (1 - rate <= profile.high)).values, 0.95)
    x = generator.normal(size=(2000, n))
    tolerance = stats.tolerance_interval(x, coverage=0.9)
    content = ndtr(tolerance.high.values) - ndtr(tolerance.low.values)
    held = content >= tolerance.coverage.values
    assert at_least(held, 0.95)
    assert at_least(~held, 0.05)  # it is exact for a continuous distribution, so it does not hold more often, either
    curve = stats.ecdf(u[:300], np.linspace(0.0, 1.0, 201))
    inside = (curve.low <= curve.value) & (curve.value <= curve.high)
    assert at_least(inside.all("value").values, 0.95)


def test_the_median_time_holds_at_least_as_often_as_it_says_although_runs_are_censored() -> None:
    generator = np.random.default_rng(4)
    time = generator.integers(1, 60, (1000, 20))  # the median of 1, ..., 59 is 30
    runs = (np.arange(45) >= time[..., None]).astype(float)  # a quarter of the runs are censored
    result = stats.time_to_threshold(runs, 0.5)
    assert at_least(((result.low <= 30) & (result.high >= 30)).values, 0.95)
    assert abs(result.reached.mean().item() - 44 / 59) < 4 * np.sqrt(0.25 * 0.75 / 20_000)


def test_variance_components_are_unbiased_and_their_intervals_hold() -> None:
    generator = np.random.default_rng(5)
    trials, sizes = 600, {"task_seed": 6, "prompt_seed": 5, "answer_seed": 4}
    names = list(sizes)
    sd = {
        **{("task_seed",): 2.0, ("prompt_seed",): 1.0, ("answer_seed",): 1.0},
        **{("task_seed", "prompt_seed"): 0.5, ("task_seed", "answer_seed"): 0.5},
        **{("prompt_seed", "answer_seed"): 0.0, tuple(names): 1.0},
    }
    runs = sum(
        size * generator.normal(size=(trials, *(sizes[name] if name in source else 1 for name in names)))
        for source, size in sd.items()
    )
    result = stats.variance_components(xr.DataArray(runs, dims=["trial", *names]), draws=400)
    assert result.source.values.tolist() == [" x ".join(source) for source in sd]
    true = np.array(list(sd.values())) ** 2
    held = ((result.low <= true) & (true <= result.high)).values
    for source, column in zip(sd, held.T, strict=True):
        assert at_least(column, 0.94), source
    total = true.sum()
    shares = ((result.share_low <= true / total) & (true / total <= result.share_high)).values
    assert all(at_least(column, 0.93) for column in shares.T)
    np.testing.assert_allclose(result.share.sum("source"), 1.0)
    mean, error = result.estimate.mean("trial"), result.estimate.std("trial") / np.sqrt(trials)
    positive = true > 0.9  # cut at 0, small ones are estimated a little too large
    assert np.all(np.abs(mean - true)[positive] < 4 * error[positive])


def test_the_studys_own_coverage_is_that_of_the_table() -> None:
    """On 2,000 normal seeds: the t-interval holds with .95, the bootstrap of five seeds with .83."""
    seeds = np.random.default_rng(6).normal(size=2000)
    student = stats.interval_coverage(seeds, [5, 20], trials=2000)
    drawn = stats.interval_coverage(seeds, [5, 20], method="bootstrap", trials=2000, resamples=400)
    error = 4 * np.sqrt(0.05 * 0.95 / 2000)
    assert np.all(np.abs(student.estimate - 0.95) < error)
    assert np.all(np.abs(drawn.estimate - [0.83, 0.92]) < 0.01 + 4 * np.sqrt(0.83 * 0.17 / 2000))
    assert np.all((student.low < student.estimate) & (student.estimate < student.high))
    # E[width] = 2 t E[s] / √n, with E[s] = .940 at n = 5
    assert student.width.values[0] == pytest.approx(2 * 2.776 * 0.940 * seeds.std() / np.sqrt(5), rel=0.05)
    np.testing.assert_array_equal(student.estimate, stats.interval_coverage(seeds, [5, 20], trials=2000).estimate)


def test_cells_have_their_own_width_and_missing_seeds_do_not_count() -> None:
    seeds = np.random.default_rng(7).normal(size=300)
    part = np.concatenate([seeds[:200], np.full(100, np.nan)])
    result = stats.interval_coverage([seeds, 3 * seeds, part, np.full(300, np.nan)], [5], trials=100)
    np.testing.assert_allclose(result.width.values[1], 3 * result.width.values[0])
    assert result.estimate.values[2] == stats.interval_coverage(seeds[:200], [5], trials=100).estimate.item()
    assert np.isnan([result[name].values[3] for name in ("estimate", "low", "high", "width")]).all()
    assert result.n.values.tolist() == [[100], [100], [100], [0]]
