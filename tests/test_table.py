"""The final table: its numbers, their rounding, the cells it leaves out and those it names."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from synthetic_results import METHODS, results

from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.table import final_table
from rlvr_jax.types import InvalidInput


def test_t_interval_is_that_of_scipy() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, (4, 7))
    interval = printed_mean(xr.DataArray(values, dims=["method", "seed"]))
    low, high = stats.t.interval(0.95, 6, values.mean(1), stats.sem(values, axis=1))
    np.testing.assert_allclose(interval["estimate"] - interval["half_width"], low, rtol=1e-12)
    np.testing.assert_allclose(interval["estimate"] + interval["half_width"], high, rtol=1e-12)
    np.testing.assert_allclose(interval["sd"], values.std(1, ddof=1), rtol=1e-12)


def test_t_interval_counts_finite_values_only() -> None:
    values = xr.DataArray([[1.0, np.nan, 3.0], [np.inf, 2.0, np.nan], [np.nan] * 3], dims=["method", "seed"])
    interval = printed_mean(values)
    assert interval["n"].values.tolist() == [2, 1, 0]
    np.testing.assert_array_equal(interval["estimate"], [2.0, 2.0, np.nan])
    np.testing.assert_array_equal(np.isnan(interval["half_width"]), [False, True, True])


def test_t_interval_of_large_float32_values_is_computed_in_float64() -> None:
    values = xr.DataArray(np.float32([16777216, 16777218, 16777220]), dims="seed")
    assert printed_mean(values)["estimate"].item() == 16777218.0
    assert printed_mean(values)["sd"].item() == 2.0


def test_rows_hold_the_means_at_the_last_step() -> None:
    dataset = results({"method": METHODS, "lr": [0.1, 0.5], "seed": range(6)})
    head, names, *rows = final_table(dataset).split("\n")
    assert head == "Mean +- half-width of the 95 % t-interval over seed, at step 600."
    assert names.split() == ["method", "lr", "n", "accuracy", "hack_rate", "zero_frac_total"]
    assert len(rows) == len(METHODS) * 2
    for row, method in zip(rows[::2], METHODS, strict=True):
        cells = row.split()
        assert cells[:3] == [method, "0.1", "6"]
        values = dataset["accuracy"].sel({"method": method, "lr": 0.1}).isel(step=-1).astype(float)
        half = stats.t.ppf(0.975, 5) * stats.sem(values)
        assert float(cells[3]) == pytest.approx(values.mean().item(), abs=half / 2)
        assert float(cells[5]) == pytest.approx(half, rel=0.5)


def test_columns_are_aligned_ascii() -> None:
    table = final_table(results({"method": METHODS, "seed": range(4)}))
    assert table.isascii()
    lines = table.split("\n")[1:]
    assert {len(line) for line in lines} == {len(lines[0])}


@pytest.mark.parametrize(
    ("mean", "half_width", "text"),
    [
        (0.92641, 0.0149, "0.926 +- 0.015"),
        (0.77183, 0.00089, "0.7718 +- 0.0009"),
        (0.5, 0.0961, "0.50 +- 0.10"),
        (5.61, 0.34, "5.6 +- 0.3"),
        (123.4, 23.1, "123 +- 23"),
        (0.25, 0.0, "0.250000 +- 0.000000"),
        (0.25, 9e-7, "0.250000 +- <0.000001"),
    ],
)
def test_a_number_is_rounded_to_its_own_uncertainty(mean: float, half_width: float, text: str) -> None:
    spread = half_width / stats.t.ppf(0.975, 2)
    dataset = xr.Dataset({"h": ("seed", mean + spread * np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0]))})
    assert final_table(dataset, ("h",)).split("\n")[-1].split(maxsplit=1)[1] == text


def test_one_seed_has_no_interval_and_the_table_says_so() -> None:
    swept = results({"method": METHODS, "seed": [0]})
    for dataset in (swept, swept.isel(seed=0)):
        head, _, *rows = final_table(dataset, ("accuracy",)).split("\n")
        assert head == "One seed, so no interval, at step 600."
        assert all("+-" not in row for row in rows)
        assert [row.split()[1] for row in rows] == ["1"] * len(METHODS)


def test_cells_that_were_not_run_have_no_row() -> None:
    dataset = results({"method": ["rloo", "grpo"], "lr": [0.1, 0.5], "seed": range(3)})
    run = xr.DataArray([[True, False], [False, True]], dims=["method", "lr"])
    dataset = dataset.where(run)
    assert [row.split()[:2] for row in final_table(dataset).split("\n")[2:]] == [
        ["rloo", "0.1"],
        ["grpo", "0.5"],
    ]


def test_a_metric_with_fewer_seeds_says_how_many() -> None:
    dataset = results({"method": ["rloo"], "seed": range(4)})
    dataset["hack_rate"][0, 1] = np.nan
    row = final_table(dataset, ("accuracy", "hack_rate")).split("\n")[-1]
    assert row.split()[1] == "4"
    assert row.endswith("(n=3)")


def test_the_parameters_of_a_tied_dimension_are_columns() -> None:
    dataset = results({"run": range(2), "seed": range(3)})
    dataset = dataset.assign_coords(kl_coef=("run", [0.0, 0.1]), lr_h=("run", [0.02, 0.05]))
    for results_ in (dataset, dataset.drop_vars("run")):
        _, names, *rows = final_table(results_, ("accuracy",)).split("\n")
        assert names.split() == ["kl_coef", "lr_h", "n", "accuracy"]
        assert [row.split()[:2] for row in rows] == [["0", "0.02"], ["0.1", "0.05"]]


def test_the_last_line_names_diverged_cells() -> None:
    dataset = results({"method": ["rloo", "grpo"], "lr": [0.5, 20.0], "seed": range(3)})
    assert "Diverged" not in final_table(dataset)
    dataset["diverged_step"][1, 1, :2] = [40, 12]
    assert final_table(dataset).split("\n")[-1] == "Diverged: method=grpo lr=20 (2 of 3 seeds, first at step 12)."


def test_a_diverged_cell_without_finite_values_keeps_its_row() -> None:
    dataset = results({"method": ["rloo", "grpo"], "seed": range(3)})
    dataset["accuracy"][1] = np.nan
    dataset["diverged_step"][1] = 7
    assert final_table(dataset, ("accuracy",)).split("\n")[3].split() == ["grpo", "0", "-"]


def test_an_unknown_metric_is_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidInput, match="metrics: 'acuracy' is not in these results, which hold accuracy,"):
        final_table(results({"method": METHODS}), ("acuracy",))


def test_a_long_table_is_cut_and_says_so() -> None:
    dataset = results({"task_seed": range(15), "prompt_seed": range(15)})
    head, _, *rows, last = final_table(dataset, ("accuracy",)).split("\n")
    assert head == "One seed, so no interval, at step 600."
    assert len(rows) == 200
    assert last == "... and 25 more rows: `rlvr-jax stats` has --by and --over."
