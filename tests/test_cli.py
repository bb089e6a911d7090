"""The command line, called in this process: what it leaves, what it says, and how fast it answers."""

# ruff: noqa: E501 (sentences are compared whole, on one line)

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_results import results

from rlvr_jax import cli, engine, open_store, spec
from rlvr_jax.cli import main
from rlvr_jax.table import final_table

GOOD = 'world = "bandit"\nsteps = 20\nlr = 0.5\nmethod = "rloo"\n'
COMMANDS = ("run", "plan", "status", "verify", "export", "list", "stats", "bench", "lecture", "report")
SMALL = ["--seeds", "2", "--set", "steps=20"]

WRONG = [
    ([], "expected one of {run, plan, status, verify, export, list, stats, bench, lecture, report}"),
    (["rum"], "there is no command 'rum'; did you mean 'run'?"),
    (
        ["figures"],
        "there is no command 'figures'; the known ones are bench, export, lecture, list, plan, report, run, stats, status, verify",
    ),
    (["--version"], "unrecognized options: --version"),
    (["run"], "missing from rlvr-jax run: SPEC"),
    (["plan"], "missing from rlvr-jax plan: SPEC"),
    (
        ["run", "baselinse"],
        "there is no spec file 'baselinse', and none of that name is shipped; did you mean 'baselines'?",
    ),
    (
        ["run", "missing.toml"],
        "there is no spec file 'missing.toml', and none of that name is shipped; the known ones are {shipped}",
    ),
    (["run", "."], ". is a folder; give a spec file or the name of a shipped spec"),
    (["run", "good.toml", "extra"], "unrecognized options: extra"),
    (["run", "good.toml", "--ste", "lr=1"], "unrecognized options: --ste, lr=1; did you mean --set?"),
    (["run", "good.toml", "--seeds"], "missing value for argument '--seeds'. Expected 1 values"),
    (["run", "good.toml", "--seeds", "0"], "--seeds: '0' is no whole number from 1 to 999,999,999"),
    (["run", "good.toml", "--seeds", "1000000000"], "--seeds: '1000000000' is no whole number from 1 to 999,999,999"),
    (["run", "good.toml", "--seeds", "-3"], "--seeds: '-3' is no whole number from 1 to 999,999,999"),
    (["run", "good.toml", "--seeds", "many"], "--seeds: 'many' is no whole number from 1 to 999,999,999"),
    (["run", "good.toml", "--set", "lr"], "--set lr: write NAME=VALUE, such as lr=0.1 or 'lr=[0.1, 0.2]'"),
    (["run", "good.toml", "--set", "=1"], "--set =1: write NAME=VALUE, such as lr=0.1 or 'lr=[0.1, 0.2]'"),
    (["run", "good.toml", "--set", "lrr=1"], "--set lrr=1: 'lrr' cannot be set in good.toml; did you mean 'lr'?"),
    (
        ["run", "good.toml", "--set", "world=bandit"],
        "--set world=bandit: 'world' cannot be set in good.toml; the known ones are answer_seed, answers, baseline_rate, batch_size, eps, eval_every, eval_steps, group_size, hack_prob, hack_reward, keep, kl_coef, lr, lr_h, method, precision, prompt_seed, prompts, reward_offset, seed, steps, task_seed, train_fraction",
    ),
    (
        ["run", "good.toml", "--set", "lr=0.1,0.2"],
        "--set lr=0.1,0.2: '0.1,0.2' is no TOML value; write 0.1, [0.1, 0.2], \"text\" or { range = [0, 8] }",
    ),
    (
        ["run", "good.toml", "--set", "lr="],
        "--set lr=: '' is no TOML value; write 0.1, [0.1, 0.2], \"text\" or { range = [0, 8] }",
    ),
    (["run", "good.toml", "--set", "lr=fast"], "good.toml: lr is 'fast'; it must be a finite number at least 0"),
    (["run", "good.toml", "--set", "method=gpro"], "good.toml: method is 'gpro'; did you mean 'grpo'?"),
    (["run", "good.toml", "--set", "lr=1", "--set", "lr=2"], "--set lr=2: lr is given twice"),
    (["run", "good.toml", "--seeds", "2", "--set", "seed=[1]"], "--set seed=[1]: seed is given twice"),
    (
        ["plan", "zero_signal", "--set", "group_size=8"],
        "--set group_size=8: group_size moves along the tied axis 'run' of {zero_signal} together with batch_size; edit a copy of the file to change it",
    ),
    (["run", "good.toml", "--set", "kl_coef=[]"], "good.toml: kl_coef has no values; an axis needs at least one"),
    (["run", "good.toml", "--set", "steps=[1, 2]"], "good.toml: steps is [1, 2]; it must be a whole number at least 0"),
    (["run", "good.toml", "--out", "good.toml/x.zarr"], "the folder good.toml cannot be made: file exists"),
    (
        ["run", "good.toml", "--out", "good.toml/deep/x.zarr"],
        "the folder good.toml/deep cannot be made: not a directory",
    ),
    *(
        (
            ["run", "good.toml", "--out", f"{folder}/good.zarr", *flags],
            f"{folder}/good.zarr exists and is no store of results; choose another place (--out)",
        )
        for folder in ("taken", "alien")
        for flags in ([], ["--overwrite"])
    ),
    (["run", "good.toml", "--memory", "much"], "--memory: 'much' is no size; write for example 4GB or 512MB"),
    (["status", "missing.zarr"], "there is no store missing.zarr"),
    (
        ["verify", "alien/good.zarr"],
        "alien/good.zarr holds no results; give the directory that a run has written",
    ),
    (["export", "missing.zarr"], "missing from rlvr-jax export: --out FILE"),
    (["export", "missing.zarr", "--out", "a.csv"], "there is no store missing.zarr"),
    (
        ["export", "missing.zarr", "--out", "a.xlsx"],
        "a.xlsx says no format; its name must end in .nc, .csv, .parquet",
    ),
    (
        ["export", "missing.zarr", "--out", "good.toml.csv"],
        "good.toml.csv exists; choose another name, or allow it to be replaced (--overwrite)",
    ),
    (
        ["run", "good.toml", "--out", "flat/good.zarr"],
        "flat/good exists and is no folder; figures cannot be written there",
    ),
    (["plan", "good.toml", "--jsno"], "unrecognized options: --jsno; did you mean --json?"),
    (["list", "everything"], "unrecognized options: everything"),
    (
        ["run", "good.toml", "--out", "."],
        "'.' names no store; give a directory to make, such as results/study.zarr (--out)",
    ),
    (["list", "--out", "x"], "unrecognized options: --out, x"),
    (["bench", "chess"], "world is 'chess'; it must be one of bandit, tool"),
    (["bench", "tool", "--answers", "4"], "--answers is for the bandit; the world is 'tool'"),
    (
        ["bench", "bandit", "--answers", "4,x"],
        "--answers has 'x'; it must be whole numbers at least 3, such as 4,16,64",
    ),
    (["bench", "bandit", "--answers", "2"], "--answers has '2'; it must be whole numbers at least 3, such as 4,16,64"),
    (["lecture", "--venue", "nature"], "venue: 'nature' is not one of neurips, iclr, icml, icml-column, tmlr"),
    (["lecture", "--language", "fr"], "language is 'fr'; it must be one of en, zh"),
    (["lecture", "--out", "good.toml"], "good.toml exists and is no folder; choose another place (--out)"),
    (["report", "missing"], "missing is neither a store of results nor a folder with stores (NAME.zarr)"),
    (["report", "good.toml"], "good.toml is neither a store of results nor a folder with stores (NAME.zarr)"),
    (["bench", "bandit", "--quik"], "unrecognized options: --quik; did you mean --quick?"),
]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.toml").write_text(GOOD)
    Path("good.toml.csv").write_text("")


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be compiled."""

    def compiled(*_: Any) -> None:
        raise AssertionError("a program was compiled")

    monkeypatch.setattr(engine, "_compile", compiled)
    monkeypatch.setattr(engine, "_compiled", {})


@pytest.mark.parametrize(("arguments", "sentence"), WRONG, ids=[" ".join(row[0])[:60] or "nothing" for row in WRONG])
@pytest.mark.usefixtures("idle")
def test_a_wrong_command_line_gets_its_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("taken/good.zarr").mkdir(parents=True)
    Path("alien/good.zarr").mkdir(parents=True)
    Path("alien/good.zarr/zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    Path("flat").mkdir()
    Path("flat/good").write_text("")
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    sentence = sentence.replace("{zero_signal}", str(spec.shipped()["zero_signal"]))
    sentence = sentence.replace("{shipped}", ", ".join(spec.shipped()))
    assert (out, err) == ("", f"rlvr-jax: {sentence}\n")


def test_run_leaves_a_store_figures_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "baselines", *SMALL]) == 0
    out = capsys.readouterr().out
    stored = open_store("results/baselines.zarr")
    assert dict(stored.sizes) == {"method": 5, "reward_offset": 2, "seed": 2, "step": 11, "level": 4}
    assert final_table(stored) in out
    figures = {
        f"{name}{suffix}" for name in ("baselines", "levels") for suffix in (".pdf", ".svg", ".png", ".json", ".tex")
    }
    assert {path.name for path in Path("results/baselines").iterdir()} == figures
    for name in figures:
        assert (f"results/baselines/{name}" in out) == name.endswith((".pdf", ".png"))
    small = spec.load("baselines").with_seeds(2).with_value("steps", 20)
    assert stored.load().drop_attrs().identical(small.sweep(progress=False).drop_attrs())


def test_what_is_there_is_not_computed_again_and_another_spec_replaces_it_only_if_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "good.toml", "--no-figures"]
    assert main(command) == 0
    table = capsys.readouterr().out.splitlines()
    before = files("results")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", None)  # it must not come to that
        assert main(command) == 0
        again = capsys.readouterr().out.splitlines()
        assert again[:-1] == table[:-1]
        assert again[-1].startswith("results: results/good.zarr (0 cells computed, 1 found; ")
        assert main([*command, "--set", "lr=0.1"]) == 2
    assert capsys.readouterr().err == (
        "rlvr-jax: results/good.zarr has lr 0.5, and this spec has 0.1; a spec that extends a store keeps "
        "its cells: give lr all of these values as an axis, or choose another place (--out)\n"
    )
    assert files("results") == before
    assert main([*command, "--overwrite", "--set", "lr=0.1"]) == 0
    assert json.loads(open_store("results/good.zarr").attrs["spec"])["fixed"]["lr"] == 0.1


def files(folder: str) -> dict[Path, int]:
    """When each file that says something was written; the lock does not."""
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file() and path.stem != "lock"}


def test_one_cell_without_seeds_and_a_choice_of_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "good.toml", "--out", "elsewhere/deep/good.zarr", "--set", 'keep=["h", "kl"]']) == 0
    out = capsys.readouterr().out
    assert "One seed, so no interval, at step 20." in out
    assert out.splitlines()[1].split() == ["n", "kl", "h"]
    assert set(open_store("elsewhere/deep/good.zarr").data_vars) == {"kl", "h", "diverged_step"}
    assert not Path("elsewhere/deep/good").exists()


def test_metrics_that_fit_into_no_table() -> None:
    held = results({"method": ["rloo", "grpo"], "seed": range(2)})[["accuracy_by_level", "diverged_step"]]
    assert cli._table(held) == "No metric was kept that fits into a table."


@pytest.mark.filterwarnings("default")
def test_diverged_cells_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    paid = ["--set", "hack_reward=1e10", "--set", "hack_prob=0.3"]
    assert main(["run", "good.toml", "--no-figures", "--set", "lr=[0.5, 3e38]", *paid]) == 0
    out, err = capsys.readouterr()
    assert "Diverged: lr=3e+38" in out
    assert err.startswith("rlvr-jax: warning: 1 cell went non-finite")


def test_a_stop_keeps_what_had_finished(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("sizes.toml").write_text(GOOD + "[parameters]\nanswers = [16, 4]\n")  # a program for each
    real, calls = engine.run, iter(range(3))

    def stopped(*arguments: Any) -> Iterator[engine.Chunk]:
        if next(calls) == 1:
            raise KeyboardInterrupt
        yield from real(*arguments)

    command = ["run", "sizes.toml", "--out", "out/sizes.zarr", "--no-figures"]
    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", stopped)
        assert main(command) == 130
    sentence = "1 of 2 cells are finished and kept in out/sizes.zarr; the same command goes on with the others"
    assert capsys.readouterr() == ("", f"rlvr-jax: stopped: {sentence}\n")
    partial = open_store("out/sizes.zarr")
    assert partial.attrs["unfinished"] == "1 of 2 cells are not finished and are NaN"
    assert np.isfinite(partial["accuracy"].isel(step=-1)).values.tolist() == [True, False]
    assert main(command) == 0
    assert "(1 cell computed, 1 found; " in capsys.readouterr().out
    assert np.isfinite(open_store("out/sizes.zarr")["accuracy"].isel(step=-1)).all()


@pytest.mark.usefixtures("idle")
def test_plan_says_what_would_run_and_compiles_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "zero_signal", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["cells"] == 1600
    assert plan["axes"] == {"method": 5, "seed": 64, "run": 5}
    assert sum(program["cells"] for program in plan["programs"]) == 1600
    for program in plan["programs"]:
        places = program["items"] * program["lanes"] * program["seeds_side_by_side"]
        assert places == program["cells"] + program["padding"]
        assert program["items_per_call"] * program["calls"] >= program["items"]
        assert sum(program["methods"].values()) == program["lanes"]
        assert "batch_size" in program["reason"]
    each = 4 * (8 * 11 + 4 * 11 + 1 + 1)  # eight curves, four levels, a total, the step of divergence
    assert plan["result_bytes"] == 1600 * each
    assert main(["plan", "zero_signal"]) == 0
    words = capsys.readouterr().out
    for expected in (
        "1,600 cells = method 5 x seed 64 x run 5",
        "kB",
        "programs to compile",
        "side by side",
        "in 1 call",
    ):
        assert expected in words


@pytest.mark.usefixtures("idle")
def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["methods"]] == ["group", "grpo", "learned", "none", "rloo"]
    assert all(row["about"] and row["paper"] for row in found["methods"])
    assert [row["name"] for row in found["specs"]] == list(spec.shipped())
    assert all(Path(row["file"]).is_file() for row in found["specs"])
    assert "bandit" in [row["name"] for row in found["worlds"]]
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(row["about"] in out for rows in found.values() for row in rows)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    out, err = capsys.readouterr()
    assert f"Example: rlvr-jax {command or 'run'}" in out
    assert err == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_does_not_import_jax(command: str) -> None:
    heavy = ("jax", "xarray", "zarr", "matplotlib", "scipy", "optax")
    program = (
        "import sys; from rlvr_jax.cli import main\n"
        f"assert main([{command!r}, '--help']) == 0\n"
        f"print(*sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=_environment())
    assert (done.returncode, done.stderr) == (0, "\n")


def test_help_loads_nothing_that_takes_its_time() -> None:
    """Half a second is the aim; NumPy is the heaviest package that it leaves room for."""
    heavy = "'jax', 'xarray', 'pandas', 'zarr', 'scipy', 'matplotlib', 'tqdm', 'dask', 'distributed', 'multiprocessing'"
    code = f"import sys; from rlvr_jax.cli import main; main(['run', '--help']); print(*{{{heavy}}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=_environment())
    assert done.stdout.splitlines()[-1] == ""


def test_a_refusal_of_the_process_is_exit_code_2_without_a_traceback() -> None:
    command = [sys.executable, "-m", "rlvr_jax", "plan", "baselinse"]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "did you mean 'baselines'?" in done.stderr


def _environment() -> dict[str, str]:
    """The tests' own package first, wherever they run."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}


def test_status_verify_and_export_of_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    axes = ["--set", "lr=[0.1, 0.5]", "--seeds", "2"]
    assert main(["run", "good.toml", "--no-figures", *axes]) == 0
    capsys.readouterr()
    assert main(["status", "results/good.zarr"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "results/good.zarr: world bandit, 4 of 4 cells done, 0 running, 0 missing, 0 failed"
    assert others[0] == "1 of 1 chunks have a receipt"
    assert "nobody is writing it" in others
    assert main(["status", "results/good.zarr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 4
    assert main(["verify", "results/good.zarr"]) == 0
    assert capsys.readouterr().out == "results/good.zarr: 1 chunks with receipts; 0 damaged\n"
    assert main(["export", "results/good.zarr", "--out", "good.toml.csv", "--overwrite"]) == 0
    assert capsys.readouterr().out == "written: good.toml.csv\n"
    assert len(Path("good.toml.csv").read_text().splitlines()) == 3
    next(Path("results/good.zarr/run/receipts").iterdir()).unlink()
    assert main(["export", "results/good.zarr", "--out", "partial.csv"]) == 0
    assert capsys.readouterr().out == "written: partial.csv (4 of 4 cells are not finished and are NaN)\n"


def test_an_extension_keeps_what_the_store_keeps_unless_the_spec_says_otherwise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["run", "good.toml", "--no-figures"]
    assert main(command) == 0
    # where it is swept, more metrics are kept by default
    assert main([*command, "--set", "train_fraction=[0.5, 1.0]"]) == 0
    assert "(1 cell computed, 1 found; " in capsys.readouterr().out
    assert "accuracy_seen" not in open_store("results/good.zarr")
    assert main([*command, "--set", 'keep=["accuracy.final"]']) == 2
    assert "holds another study: keep is ['accuracy', " in capsys.readouterr().err


def test_overwriting_removes_nothing_before_the_new_run_is_possible(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "good.toml", "--no-figures"]
    assert main(command) == 0
    before = files("results")
    assert main([*command, "--overwrite", "--memory", "1kB", "--set", "lr=0.1"]) == 2
    assert main([*command, "--overwrite", "--set", "lr=fast"]) == 2
    assert files("results") == before


@pytest.mark.filterwarnings("ignore:.*went non-finite")
def test_a_thousand_configurations_are_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    held = results(
        {"lr": np.linspace(0.1, 1.0, 30).tolist(), "kl_coef": np.linspace(0, 1, 40).tolist(), "seed": [0, 1]}
    )
    assert cli._table(held) == "1,200 configurations are too many for a table; rlvr-jax export writes them to a file."
