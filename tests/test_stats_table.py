"""``rlvr-jax stats``: its tables hold the statistics, rounded to their own uncertainty; its refusals are sentences."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from synthetic_results import METHODS, results

from rlvr_jax import stats
from rlvr_jax.cli import main
from rlvr_jax.store import open_store

AXES = {"method": METHODS, "reward_offset": [0.0, 1.0], "seed": range(24)}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[str, xr.Dataset]:
    """Whatever the path, the store holds ``held["results"]``."""
    held = {"results": results(AXES)}
    monkeypatch.setattr("rlvr_jax.stats_table.open_store", lambda path: held["results"])
    return held


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["stats", "study.zarr", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)]


def test_partial_results_say_so(held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]) -> None:
    held["results"].attrs["unfinished"] = "3 of 288 cells are not finished and are NaN"
    assert "Partial results: 3 of 288 cells are not finished and are NaN." in printed(capsys)
    report = json.loads("\n".join(printed(capsys, "--json")))
    assert report["unfinished"] == held["results"].attrs["unfinished"]


def test_every_cell_has_a_row_with_its_intervals(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    head, names, *rows = printed(capsys, "--collapse", "0.92")
    assert head == "accuracy at step 600 over seed."
    assert re.split(r"  +", names) == ["method", "reward_offset", "n", "mean", "IQM", "sd", "worst 10 %", "collapsed"]
    assert len(rows) == 13
    final = held["results"]["accuracy"].isel(step=-1)
    cell = final.sel({"method": "grpo", "reward_offset": 1.0})
    method, offset, n, *columns = re.split(r"  +", rows[9])
    assert (method, offset, n) == ("grpo", "1", "24")
    summaries = (stats.mean, stats.iqm, stats.std, stats.cvar, lambda x: stats.collapse_rate(x, 0.92))
    for column, summary in zip(columns, summaries, strict=True):
        result = summary(cell)
        wanted = [result[name].item() for name in ("estimate", "low", "high")]
        half = (wanted[2] - wanted[1]) / 2
        assert numbers(column) == pytest.approx(wanted, abs=0.5 * half)
        decimals = {len(number.partition(".")[2]) for number in re.findall(r"[\d.]+", column)}
        assert decimals in ({2}, {3}, {4})  # rounded to the uncertainty, all three alike
    assert rows[-3] == (
        "[ ]: 95 % intervals; for the mean: percentile bootstrap; for the others: percentile bootstrap, 2000 resamples "
        "that all cells share."
    )
    assert rows[-2].startswith("With so few, the intervals of sd and worst 10 % are too narrow")
    assert rows[-1] == "collapsed: share below 0.92, with the Clopper-Pearson interval."


def test_contrasts_are_paired_and_corrected_together(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, "--contrast", "grpo:rloo", "--contrast", "reward_offset=1:0")
    table = lines[lines.index("") + 1 :]
    columns = ["contrast", "reward_offset", "method", "n", "difference", "P(A better)", "rho", "gain", "p", "p (Holm)"]
    assert re.split(r"  +", table[0]) == columns
    rows = table[1:8]
    assert [row.split("  ")[0] for row in rows] == ["grpo - rloo"] * 2 + ["reward_offset 1 - 0"] * 5
    final = held["results"]["accuracy"].isel(step=-1)
    x, y = (final.sel({"method": method}) for method in ("grpo", "rloo"))
    result = stats.paired_difference(x, y)
    for i, row in enumerate(rows[:2]):
        found = numbers(re.split(r"  +", row)[3])
        wanted = [result[name].values[i] for name in ("estimate", "low", "high")]
        assert found == pytest.approx(wanted, abs=(wanted[2] - wanted[1]) / 4)
        assert re.split(r"  +", row)[4] == "1 [1, 1]"
    others = stats.paired_difference(*(final.sel(reward_offset=offset) for offset in (1.0, 0.0)))
    adjusted = stats.holm(np.concatenate([result.p_value, others.p_value]))
    assert [float(row.split()[-1]) for row in rows] == pytest.approx(adjusted, rel=0.06)
    assert table[-1] == "p: paired t-test; adjusted by Holm for 7 tests."
    assert "each interval for itself at 95 %" in table[-3]


def test_json_holds_the_same_unrounded(held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]) -> None:
    held["results"]["accuracy"][0, 0] = np.nan
    lines = printed(capsys, "--contrast", "grpo:none", "--step", "200", "--json")
    found = json.loads("\n".join(lines))
    assert (found["metric"], found["step"], found["over"], found["averaged_over"]) == ("accuracy", 200, "seed", [])
    assert len(found["cells"]) == 10
    values = held["results"]["accuracy"].sel(step=200)
    cell = next(c for c in found["cells"] if (c["method"], c["reward_offset"]) == ("rloo", 1.0))
    wanted = stats.iqm(values.sel({"method": "rloo", "reward_offset": 1.0}))
    assert cell["iqm"] == {name: pytest.approx(wanted[name].item(), rel=1e-12) for name in wanted.data_vars}
    assert found["statistics"]["iqm"]["method"] == "percentile bootstrap"
    assert found["cells"][0]["mean"]["estimate"] is None  # that cell was not run
    lost, kept = found["contrasts"]
    assert (lost["cell"], lost["n"], lost["estimate"], lost["p_holm"]) == ({"reward_offset": 0.0}, 0, None, None)
    assert (kept["a"], kept["b"], kept["n"]) == ({"method": "grpo"}, {"method": "none"}, 24)
    assert kept["p_holm"] == kept["p_value"]  # one test was made
    assert len(printed(capsys)) == 2 + 9 + 2  # and it has no row


def test_each_seed_is_averaged_over_what_does_not_tell_cells_apart(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    held["results"]["accuracy"][4, 1, 0] = np.nan
    head, _, *rows = printed(capsys, "--by", "method")
    assert head == "accuracy at step 600 over seed, each seed averaged over reward_offset first."
    assert [row.split()[:2] for row in rows[:-2]] == [[method, "24"] for method in METHODS[:-1]] + [["grpo", "23"]]
    over = printed(capsys, "--over", "reward_offset", "--by", "method")
    assert over[0] == "accuracy at step 600 over reward_offset, each reward_offset averaged over seed first."
    assert "for the mean: t;" in over[-2]
    held["results"] = results({"method": ["rloo"], "seed": range(50)})
    assert not any("too narrow" in line for line in printed(capsys))


def test_one_seed_has_no_interval_and_a_metric_without_steps_is_final(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    held["results"] = results({"method": ["rloo"], "seed": [3]})
    head, _, row, _ = printed(capsys, "--metric", "zero_frac_total")
    assert head == "zero_frac_total over seed."
    assert re.split(r"  +", row)[1:] == [
        "1",
        *[f"{held['results'].zero_frac_total.item():.4f}"] * 2,
        "-",
        *[row.split()[-1]],
    ]


def test_a_contrast_of_tied_parameters_and_of_numbers_however_they_are_written(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    tied = results({"run": range(2), "seed": range(6)}).assign_coords(kl_coef=("run", [0.0, 0.1]))
    held["results"] = tied.assign_coords(lr_h=("run", [0.5, 0.05]))
    for contrast in ("kl_coef=0.10:0", "0.1:0"):
        lines = printed(capsys, "--contrast", contrast)
        assert lines[8].startswith("kl_coef 0.1 - 0, lr_h 0.05 - 0.5  6  ")


def test_a_value_that_occurs_twice_on_a_tied_axis_does_not_mix_in_the_other_parameter(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    tied = results({"run": range(3), "seed": range(6)})
    tied = tied.assign_coords(method=("run", ["rloo", "grpo", "grpo"]), call_cost=("run", [0.02, 0.02, 0.0]))
    held["results"] = tied
    for contrast, sentence in {
        "call_cost=0.02:0": "2 entries of run have call_cost=0.02; write run=A:B with two of its entries "
        "(0: rloo 0.02, 1: grpo 0.02, 2: grpo 0)",
        "rloo:grpo": "2 entries of run have method=grpo; write run=A:B",
        "run=1:1": "both sides are run=1",
        "run=1:3": "no dimension has both values; run has 0, 1, 2",
    }.items():
        assert main(["stats", "study.zarr", "--contrast", contrast]) == 2
        assert f"--contrast {contrast}: {sentence}" in capsys.readouterr().err
    final = tied["accuracy"].isel(step=-1)
    for contrast, row, (a, b) in (
        ("run=1:2", "call_cost 0.02 - 0  6  ", (1, 2)),
        ("run=0:2", "rloo - grpo, call_cost 0.02 - 0  6  ", (0, 2)),
        ("run=0:1", "rloo - grpo  6  ", (0, 1)),
    ):
        assert printed(capsys, "--contrast", contrast)[9].startswith(row)
        (found,) = json.loads("\n".join(printed(capsys, "--contrast", contrast, "--json")))["contrasts"]
        wanted = final.isel(run=a).values.astype(float).mean() - final.isel(run=b).values.astype(float).mean()
        assert found["estimate"] == pytest.approx(wanted, rel=1e-9)
    assert found["a"] == {"method": "rloo"}
    held["results"] = tied.assign_coords(call_cost=("run", [0.1234567, 0.1234568, 0.0])).drop_vars("method")
    assert printed(capsys, "--contrast", "0.1234567:0.1234568")[9].startswith("call_cost 0.1234567 - 0.1234568  6  ")
    assert main(["stats", "study.zarr", "--contrast", "0.123457:0"]) == 2  # as tables print both
    assert "2 entries of run have call_cost=0.123457" in capsys.readouterr().err


def test_true_and_false_are_written_as_in_toml_or_in_python(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    held["results"] = results({"cold_start": [False, True], "seed": range(4)})
    lines = [
        printed(capsys, "--contrast", contrast) for contrast in ("true:false", "True:False", "cold_start=true:false")
    ]
    assert lines[0] == lines[1] == lines[2]
    assert lines[0][8].startswith("cold_start True - False  4  ")
    (found,) = json.loads("\n".join(printed(capsys, "--contrast", "true:false", "--json")))["contrasts"]
    assert (found["a"], found["b"]) == ({"cold_start": True}, {"cold_start": False})


def test_one_seed_has_neither_intervals_nor_tests_and_says_so(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    held["results"] = results({"method": ["rloo", "grpo"], "seed": [3]})
    lines = printed(capsys, "--contrast", "grpo:rloo", "--collapse", "0.5")
    assert lines[4] == "No intervals of mean, IQM, sd and worst 10 %: they need at least two seeds."
    assert lines[5] == "collapsed: share below 0.5, with the Clopper-Pearson interval."
    assert re.split(r"  +", lines[8])[4:] == ["-", "-", "-", "-"]
    assert lines[9:] == [
        "difference: A - B in pairs of the same seed; no intervals and no tests: they need at least two pairs of a "
        "cell. P(A better): over all pairs of runs, ties half."
    ]
    assert not any("95 %" in line or "nan" in line for line in lines)
    found = json.loads("\n".join(printed(capsys, "--contrast", "grpo:rloo", "--json")))
    assert found["correction"] is None


def test_a_metric_without_values_says_so(held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--metric", "zero_frac", "--step", "0", "--contrast", "grpo:rloo") == [
        "zero_frac at step 0 over seed: no cell has a value; the stored steps are 0, 100, 200, 400, 600."
    ]
    cells = json.loads("\n".join(printed(capsys, "--metric", "zero_frac", "--step", "0", "--json")))["cells"]
    assert [cell["mean"]["estimate"] for cell in cells] == [None] * 10


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--metric", "acuracy"], "--metric acuracy: these results hold accuracy, hack_rate, "),
        (["--over", "sede"], "--over sede: accuracy has the dimensions method, reward_offset, seed"),
        (["--by", "method,lr"], "--by lr: the dimensions besides seed are method, reward_offset"),
        (["--step", "50"], "--step 50: the stored steps are 0, 100, 200, 400, 600"),
        (["--metric", "zero_frac_total", "--step", "0"], "zero_frac_total is stored once, after the last step"),
        (["--contrast", "grpo"], "--contrast grpo: write A:B or NAME=A:B, such as grpo:rloo or lr=0.5:0.1"),
        (
            ["--contrast", "grpo:rlo"],
            "no dimension has both values; method has none, learned, rloo, group, grpo; reward",
        ),
        (["--contrast", "lr=0:1"], "--contrast lr=0:1: lr does not tell cells apart here"),
        (["--contrast", "rloo:rloo"], "--contrast rloo:rloo: both sides are method=rloo"),
        (["--contrast", "1:1.0"], "--contrast 1:1.0: both sides are reward_offset=1"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["stats", "study.zarr", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rlvr-jax: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_contrast_that_may_mean_two_dimensions_is_asked_back(
    held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    held["results"] = results({"reward_offset": [0.0, 1.0], "hack_reward": [0.0, 1.0], "seed": range(4)})
    assert main(["stats", "study.zarr", "--contrast", "1:0"]) == 2
    assert "--contrast 1:0 may mean reward_offset=1:0 or hack_reward=1:0" in capsys.readouterr().err


def test_a_path_without_results_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "missing.zarr"]) == 2
    assert "missing.zarr" in capsys.readouterr().err


def test_a_long_table_is_cut_and_says_so(held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]) -> None:
    held["results"] = results({"method": ["rloo", "grpo"], "lr": np.linspace(0.1, 2.0, 101), "seed": range(2)})
    lines = printed(capsys)
    assert lines[202] == "... and 2 more rows: --by takes fewer cells, --json gives all."
    assert len(json.loads("\n".join(printed(capsys, "--json")))["cells"]) == 202


def test_a_run_is_summarised_from_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text('world = "bandit"\nsteps = 20\nlr = 0.5\n[parameters]\nmethod = ["none", "rloo"]\n')
    assert main(["run", "small.toml", "--seeds", "3", "--no-figures"]) == 0
    capsys.readouterr()
    assert main(["stats", "results/small.zarr", "--contrast", "rloo:none", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    accuracy = open_store("results/small.zarr")["accuracy"].isel(step=-1)
    wanted = stats.paired_difference(accuracy.sel({"method": "rloo"}), accuracy.sel({"method": "none"}))
    (contrast,) = found["contrasts"]
    assert contrast["estimate"] == pytest.approx(wanted.estimate.item(), rel=1e-12)
    assert [cell["mean"]["n"] for cell in found["cells"]] == [3, 3]


def test_diverged_runs_are_counted(held: dict[str, xr.Dataset], capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads("\n".join(printed(capsys, "--json")))["diverged_runs"] == 0
    held["results"]["diverged_step"][0, 1, :3] = 12
    sentence = "Diverged: 3 of 240 runs of these results; they count with the values at which they were frozen."
    assert printed(capsys)[-1] == sentence
    assert json.loads("\n".join(printed(capsys, "--json")))["diverged_runs"] == 3
