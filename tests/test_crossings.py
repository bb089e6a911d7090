"""Where a mean goes below zero, and the bootstrap interval of that place."""

import numpy as np
import pytest
import xarray as xr

from rlvr_jax import captions
from rlvr_jax.crossings import about_interval, descent


def runs(values, at):
    return xr.DataArray(np.asarray(values, float), {"seed": range(len(values)), "cost": at})


def test_the_place_is_on_the_straight_line_of_the_mean():
    found = descent(runs([[3.0, 2.0, -1.0, -1.0], [1.0, 0.0, -2.0, 1.0]], [0.0, 0.1, 0.3, 0.4]), "cost")
    # the means are 2, 1, -1.5, 0: from 1 at .1 to -1.5 at .3
    assert float(found["at"]) == pytest.approx(0.1 + 0.2 * 1.0 / 2.5)
    assert int(found["n"]) == 2


def test_a_curve_that_starts_below_or_never_goes_below_is_told_apart():
    values = xr.concat([runs([[-1.0, 1.0]], [0.0, 1.0]), runs([[1.0, 0.0]], [0.0, 1.0])], "method")
    assert descent(values, "cost")["at"].values.tolist() == [-np.inf, np.inf]
    rows = captions.places(descent(values.assign_coords(method=["rloo", "grpo"]), "cost"))
    assert [(row["method"], row["where"], row["at"]) for row in rows] == [
        ("rloo", "before", None),
        ("grpo", "beyond", None),
    ]


def test_missing_runs_are_left_out_and_one_run_has_no_interval():
    found = descent(runs([[1.0, -1.0], [np.nan, -1.0], [5.0, np.inf]], [0.0, 1.0]), "cost")
    assert (float(found["at"]), int(found["n"])) == (0.5, 1)
    assert np.isnan([found["low"], found["high"]]).all()
    assert about_interval(found) == ""
    none = descent(runs([[np.nan, -1.0]], [0.0, 1.0]), "cost")
    assert np.isnan(none["at"])
    assert captions.places(none) == []
    assert float(descent(runs([[1.0, -1.0]], [0.0, 1.0]).isel(seed=0, drop=True), "cost")["at"]) == 0.5


def test_the_interval_is_that_of_the_mean_where_all_curves_have_one_slope():
    # curve i is o_i - x, so that the place is the mean of o, and its interval that of the mean
    offsets = 0.5 + np.random.default_rng(1).normal(0.0, 0.05, 64)
    at = np.linspace(0.0, 1.0, 11)
    found = descent(runs(offsets[:, None] - at, at), "cost")
    assert float(found["at"]) == pytest.approx(offsets.mean(), rel=1e-12)
    half = 1.96 * offsets.std() / 8
    # the 2.5 % quantile of 2,000 resamples has a standard error of 3 % of this half-width: four of them
    assert float(found["at"] - found["low"]) == pytest.approx(half, rel=0.12)
    assert float(found["high"] - found["at"]) == pytest.approx(half, rel=0.12)


def test_the_interval_is_the_same_each_time_and_does_not_depend_on_other_curves():
    noise = np.random.default_rng(2).normal(0.0, 0.3, (3, 16, 1))
    values = xr.DataArray(
        noise + np.linspace(1.0, -1.0, 5), {"method": ["a", "b", "c"], "seed": range(16), "cost": np.linspace(0, 1, 5)}
    )
    together = descent(values, "cost")
    xr.testing.assert_identical(together, descent(values, "cost"))
    alone = descent(values.isel(method=1, drop=True), "cost")
    xr.testing.assert_identical(together.isel(method=1, drop=True), alone)
