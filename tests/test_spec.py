"""Spec files: they mean what `rlvr_jax.sweep` means, and what is wrong with one is said in one sentence."""

# ruff: noqa: E501 (sentences are compared whole, on one line)

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlvr_jax as rj
from rlvr_jax import spec
from rlvr_jax.cli import main
from rlvr_jax.types import InvalidInput

FIVE = ["none", "learned", "rloo", "group", "grpo"]
FIRST = ("baselines", "hacking", "learning_rate", "pass_at_k", "repaired_verifier", "zero_signal")
SHIPPED = sorted(file.stem for file in (Path(__file__).parents[1] / "sweeps").glob("*.toml"))

GOOD = 'world = "bandit"\nsteps = 20\nlr = 0.5\nmethod = "rloo"\n'

WRONG = [
    ("empty", "", 'bad.toml: world is missing; write for example world = "bandit"'),
    ("no_world", "steps = 20\n", 'bad.toml: world is missing; write for example world = "bandit"'),
    (
        "world_misspelt",
        'wrold = "bandit"\n',
        "bad.toml: world is missing; write for example world = \"bandit\"; 'wrold' is perhaps meant",
    ),
    ("unknown_world", 'world = "bandits"\nsteps = 20\n', "bad.toml: world is 'bandits'; did you mean 'bandit'?"),
    ("world_list", 'world = ["bandit"]\n', "bad.toml: world is ['bandit']; did you mean 'bandit'?"),
    (
        "open_list",
        'world = "bandit"\nlr = [0.1,\n',
        "bad.toml is no valid TOML: Invalid value (at line 3, column 1, the end of the file)",
    ),
    (
        "no_equals",
        'world = "bandit"\nlr 0.5\n',
        "bad.toml is no valid TOML: Expected '=' after a key in a key/value pair (at line 2, column 4)",
    ),
    ("twice_key", GOOD + "lr = 0.2\n", "bad.toml is no valid TOML: Cannot overwrite a value (at line 5, column 9)"),
    (
        "digits",
        "world = 'bandit'\nsteps = " + 5000 * "9",
        "bad.toml is no valid TOML: a number in it has thousands of digits",
    ),
    ("nested", "x = " + 5000 * "[", "bad.toml is no valid TOML: its lists are nested too deeply"),
    (
        "parameters_number",
        'world = "bandit"\nparameters = 3\n',
        "bad.toml: parameters is 3; it must be a table, [parameters]",
    ),
    (
        "parameters_misspelt",
        GOOD + "[parameter]\nseed = [0, 1]\n",
        "bad.toml: parameter = {'seed': [0, 1]} is no argument of the world 'bandit'; did you mean 'parameters'?",
    ),
    (
        "tied_number",
        GOOD + "[tied]\nrun = 3\n",
        "bad.toml: tied has run = 3; a tied axis is a table of its own, [tied.NAME]",
    ),
    (
        "tied_one",
        GOOD + "[tied.run]\nkl_coef = [0, 1]\n",
        "bad.toml: the tied axis 'run' is {'kl_coef': [0, 1]}; it must map at least two parameters to lists of values",
    ),
    (
        "tied_lengths",
        GOOD + "[tied.run]\nkl_coef = [0, 1]\nlr_h = [1, 2, 3]\n",
        "bad.toml: the parameters of the tied axis 'run' have different numbers of values: kl_coef 2, lr_h 3",
    ),
    (
        "tied_unknown",
        GOOD + "[tied.run]\nkl_coef = [0, 1]\nlrh = [1, 2]\n",
        "bad.toml: [tied.run] has lrh = [1, 2], no parameter of the world 'bandit'; did you mean 'lr_h'?",
    ),
    (
        "tied_name",
        GOOD + "[tied.seed]\nkl_coef = [0, 1]\nlr_h = [1, 2]\n",
        "bad.toml: 'seed' cannot name a tied axis; it is the name of a parameter, of a metric or of a result's dimension",
    ),
    (
        "no_steps",
        'world = "bandit"\nlr = 0.5\nmethod = "rloo"\n',
        "bad.toml: steps is missing; it must be a whole number at least 0",
    ),
    (
        "steps_misspelt",
        'world = "bandit"\nstep = 20\nlr = 0.5\nmethod = "rloo"\n',
        "bad.toml: step = 20 is no argument of the world 'bandit'; did you mean 'steps'?",
    ),
    (
        "steps_text",
        'world = "bandit"\nsteps = "20"\nlr = 0.5\nmethod = "rloo"\n',
        "bad.toml: steps is '20'; it must be a whole number at least 0",
    ),
    (
        "steps_negative",
        'world = "bandit"\nsteps = -1\nlr = 0.5\nmethod = "rloo"\n',
        "bad.toml: steps is -1; it must be a whole number at least 0",
    ),
    (
        "steps_fraction",
        'world = "bandit"\nsteps = 2.5\nlr = 0.5\nmethod = "rloo"\n',
        "bad.toml: steps is 2.5; it must be a whole number at least 0",
    ),
    (
        "steps_axis",
        'world = "bandit"\nlr = 0.5\nmethod = "rloo"\n[parameters]\nsteps = [10, 20]\n',
        "bad.toml: steps cannot be an axis; a shorter training is the beginning of a longer one: use eval_steps",
    ),
    (
        "steps_in_table",
        'world = "bandit"\nlr = 0.5\nmethod = "rloo"\n[parameters]\nseed = [1]\nsteps = 20\n',
        "bad.toml: steps = 20 is in [parameters]; it belongs above the first table",
    ),
    (
        "keep_in_table",
        GOOD + '[parameters]\nkeep = ["accuracy"]\n',
        "bad.toml: keep = ['accuracy'] is in [parameters]; it belongs above the first table",
    ),
    (
        "no_method",
        'world = "bandit"\nsteps = 20\nlr = 0.5\n',
        "bad.toml: method is missing; it must be one of group, grpo, learned, none, rloo",
    ),
    (
        "no_lr",
        'world = "bandit"\nsteps = 20\nmethod = "rloo"\n',
        "bad.toml: lr is missing; it must be a finite number at least 0",
    ),
    (
        "method_case",
        'world = "bandit"\nsteps = 20\nlr = 0.5\nmethod = "RLOO"\n',
        "bad.toml: method is 'RLOO'; did you mean 'rloo'?",
    ),
    (
        "method_misspelt",
        'world = "bandit"\nsteps = 20\nlr = 0.5\n[parameters]\nmethod = ["rloo", "gpro"]\n',
        "bad.toml: method[1] is 'gpro'; did you mean 'grpo'?",
    ),
    (
        "method_number",
        'world = "bandit"\nsteps = 20\nlr = 0.5\nmethod = 3\n',
        "bad.toml: method is 3; the known ones are group, grpo, learned, none, rloo",
    ),
    (
        "axis_number",
        'world = "bandit"\nsteps = 20\nlr = 0.5\n[parameters]\nmethod = "rloo"\n',
        "bad.toml: method is 'rloo'; an axis is a list of values, {values: [...]}, {min, max, num, scale: linear or log}, or {range: [start, stop]} (give a single value as a fixed argument instead)",
    ),
    ("axis_empty", GOOD + "[parameters]\nseed = []\n", "bad.toml: seed has no values; an axis needs at least one"),
    (
        "axis_twice_value",
        GOOD + "[parameters]\nseed = [1, 2, 1]\n",
        "bad.toml: seed has the value 1 twice; the values of an axis must differ",
    ),
    (
        "axis_and_fixed",
        GOOD + "[parameters]\nlr = [0.1, 0.2]\n",
        "bad.toml: lr is given twice, as a fixed value and along the axis 'lr'",
    ),
    (
        "axis_form",
        GOOD + "[parameters]\nkl_coef = { min = 0, max = 1 }\n",
        "bad.toml: kl_coef is {'min': 0, 'max': 1}; an axis is a list of values, {values: [...]}, {min, max, num, scale: linear or log}, or {range: [start, stop]}",
    ),
    (
        "axis_unknown",
        GOOD + "[parameters]\nkl_coeff = [0, 1]\n",
        "bad.toml: [parameters] has kl_coeff = [0, 1], no parameter of the world 'bandit'; did you mean 'kl_coef'?",
    ),
    (
        "range_one",
        GOOD + "[parameters]\nseed = { range = [0] }\n",
        "bad.toml: range of seed is [0]; it must be [start, stop] or [start, stop, step]",
    ),
    (
        "range_endless",
        GOOD + "[parameters]\nseed = { range = [0, 99999999999999999999] }\n",
        "bad.toml: range of seed is [0, 99999999999999999999]; its numbers must lie within 2^62 of 0",
    ),
    (
        "range_backwards",
        GOOD + "[parameters]\nseed = { range = [4, 0] }\n",
        "bad.toml: seed has no values; an axis needs at least one",
    ),
    (
        "scale",
        GOOD + '[parameters]\nkl_coef = { min = 0.1, max = 1, num = 3, scale = "logarithmic" }\n',
        "bad.toml: scale of kl_coef is 'logarithmic'; it must be 'linear' or 'log'",
    ),
    (
        "log_zero",
        GOOD + '[parameters]\nkl_coef = { min = 0, max = 1, num = 3, scale = "log" }\n',
        "bad.toml: min of kl_coef is 0; on a log scale it must be above 0",
    ),
    (
        "lr_negative",
        'world = "bandit"\nsteps = 20\nlr = -0.5\nmethod = "rloo"\n',
        "bad.toml: lr is -0.5; it must be a finite number at least 0",
    ),
    (
        "lr_nan",
        'world = "bandit"\nsteps = 20\nlr = nan\nmethod = "rloo"\n',
        "bad.toml: lr is nan; it must be a finite number",
    ),
    (
        "lr_true",
        'world = "bandit"\nsteps = 20\nlr = true\nmethod = "rloo"\n',
        "bad.toml: lr is True; it must be a finite number at least 0",
    ),
    (
        "lr_date",
        'world = "bandit"\nsteps = 20\nlr = 2026-01-01\nmethod = "rloo"\n',
        "bad.toml: lr is datetime.date(2026, 1, 1); it must be a finite number at least 0",
    ),
    (
        "lr_list",
        'world = "bandit"\nsteps = 20\nlr = [0.1, 0.2]\nmethod = "rloo"\n',
        "bad.toml: lr is [0.1, 0.2]; it must be a finite number at least 0",
    ),
    (
        "unknown_fixed",
        GOOD + "kl = 0.1\n",
        "bad.toml: kl = 0.1 is no argument of the world 'bandit'; did you mean 'kl_coef'?",
    ),
    (
        "group_small",
        GOOD + "group_size = 1\n",
        "bad.toml: group_size is 1 with method 'rloo'; it needs at least 2 samples a prompt",
    ),
    (
        "batch_large",
        GOOD + "batch_size = 201\n",
        "bad.toml: batch_size is 201; it must be at most 200, the prompts to draw from (prompts 200, train_fraction 1)",
    ),
    (
        "fraction",
        GOOD + "train_fraction = 1.5\n",
        "bad.toml: train_fraction is 1.5; it must be a finite number above 0 and at most 1",
    ),
    (
        "schedule_late",
        GOOD + "hack_reward = [[5, 1.0]]\n",
        "bad.toml: hack_reward is [[5, 1.0]]; change points are [[first_step, value], ...] with ascending whole steps, the first at 0 or before",
    ),
    (
        "schedule_nameless",
        GOOD + "[parameters]\nhack_reward = [0.0, [[0, 1.0], [5, 0.0]]]\n",
        "bad.toml: hack_reward[1] is [[0, 1.0], [5, 0.0]]; a schedule along an axis needs a name: {name: ..., schedule: ...}",
    ),
    (
        "schedule_keys",
        GOOD + '[parameters]\nhack_reward = [{ label = "x", schedule = [[0, 1.0]] }]\n',
        "bad.toml: hack_reward[0] is {'label': 'x', 'schedule': [[0, 1.0]]}; it must be a number or {name: ..., schedule: [[step, value], ...]}",
    ),
    (
        "schedule_lr",
        'world = "bandit"\nsteps = 20\nlr = [[0, 1.0]]\nmethod = "rloo"\n',
        "bad.toml: lr is [[0, 1.0]]; it must be a finite number at least 0",
    ),
    (
        "eval_both",
        GOOD + "eval_every = 5\neval_steps = [5]\n",
        "bad.toml: eval_every and eval_steps are both given; one of them says when to evaluate",
    ),
    ("eval_beyond", GOOD + "eval_steps = [30]\n", "bad.toml: eval_steps has 30; the training has 20 steps"),
    ("keep_misspelt", GOOD + 'keep = ["acuracy"]\n', "bad.toml: keep has 'acuracy'; did you mean 'accuracy'?"),
    ("keep_text", GOOD + 'keep = "accuracy"\n', "bad.toml: keep is 'accuracy'; it must be a list of metrics"),
    ("keep_nested", GOOD + 'keep = [["accuracy"]]\n', "bad.toml: keep has ['accuracy']; did you mean 'accuracy'?"),
    (
        "precision",
        GOOD + 'precision = "float16"\n',
        "bad.toml: precision is 'float16'; it must be 'float32' or 'float64'",
    ),
    (
        "cells",
        GOOD + "[parameters]\nseed = { range = [0, 100000] }\nkl_coef = { min = 0, max = 1, num = 100000 }\n",
        "bad.toml: the grid has 10000000000 cells (seed 100000 x kl_coef 100000); at most 1000000000 are possible",
    ),
]


def test_the_first_studies_are_shipped() -> None:
    assert set(FIRST) <= set(SHIPPED)
    assert list(spec.shipped()) == SHIPPED
    assert all(spec.about(file).endswith((".", "?")) for file in spec.shipped().values())


def test_an_installed_copy_finds_its_own_specs(tmp_path: Path) -> None:
    here = Path(__file__).parents[1]
    shutil.copytree(here / "rlvr_jax", tmp_path / "rlvr_jax", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("sweeps", "figures"):
        shutil.copytree(here / name, tmp_path / "rlvr_jax" / name)
    program = "from rlvr_jax import spec; print(spec.load('baselines').source)"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.stdout.strip() == str(tmp_path / "rlvr_jax" / "sweeps" / "baselines.toml")


@pytest.mark.parametrize("name", FIRST)
def test_the_first_specs_compare_the_five_methods_over_64_seeds(name: str) -> None:
    grid = spec.load(name).grid()
    axes = {axis.dim: axis for axis in grid.axes}
    assert list(axes["method"].values["method"]) == FIVE
    assert axes["seed"].values["seed"] == tuple(range(64))


def test_the_variance_studies_have_enough_seeds_to_stand_for_all() -> None:
    seeds, sources = (spec.load(name).grid() for name in ("seed_variance", "variance_sources"))
    assert {axis.dim: len(axis) for axis in seeds.axes} == {"method": 5, "seed": 2048}
    crossed = {"method": 5, "task_seed": 16, "prompt_seed": 12, "answer_seed": 12}
    assert {axis.dim: len(axis) for axis in sources.axes} == crossed
    assert seeds.steps == sources.steps == 600
    assert seeds.keep == sources.keep == ("accuracy",)


def test_specs_are_the_lectures_experiments() -> None:
    grids = {name: spec.load(name).grid() for name in SHIPPED}
    assert grids["baselines"].shape == (5, 2, 64)
    assert grids["baselines"].steps == 600
    assert grids["hacking"].shape == (5, 6, 64)
    assert (grids["hacking"].fixed["train_fraction"], grids["hacking"].fixed["hack_reward"]) == (0.5, 1.0)
    assert grids["learning_rate"].shape == (5, 24, 64)
    samples = grids["zero_signal"].columns["batch_size"] * grids["zero_signal"].columns["group_size"]
    assert set(samples) == {256}
    assert sorted(set(grids["zero_signal"].columns["group_size"])) == [2, 4, 8, 16, 32]
    assert grids["pass_at_k"].eval_steps == (0, 100, 300, 600, 2000)
    assert "correct_prob" in grids["pass_at_k"].keep
    payments = {schedule.name: schedule.table for schedule in grids["repaired_verifier"].schedules}
    assert [sum(table[1:]) for table in payments.values()] == [1500, 300, 600, 900]
    assert payments["repaired after 300"][300:302] == (1.0, 0.0)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_spec_runs_at_two_seeds_and_twenty_steps(name: str) -> None:
    small = spec.load(name).with_seeds(2).with_value("steps", 20)
    results = small.sweep(progress=False)
    assert results.sizes["seed"] == 2
    assert int(results["step"][-1]) == 20
    assert np.isfinite(results["accuracy"]).all()
    assert results.attrs["spec_sha256"] == small.grid().sha256


def test_toml_and_python_give_the_same_bits(tmp_path: Path) -> None:
    file = tmp_path / "both.toml"
    file.write_text(
        """
        world = "bandit"
        steps = 20
        keep = ["accuracy", "h", "logits"]
        [parameters]
        method = ["grpo", "rloo"]
        lr = { min = 0.1, max = 1.0, num = 3, scale = "log" }
        hack_reward = [0.0, { name = "repaired", schedule = [[0, 1.0], [11, 0.0]] }]
        seed = { range = [3, 5] }
        [tied.run]
        kl_coef = [0.0, 0.1]
        lr_h = [0.02, 0.05]
        """
    )
    written = spec.load(file).sweep(progress=False)
    called = rj.sweep(
        "bandit",
        {
            "method": ["grpo", "rloo"],
            "lr": {"min": 0.1, "max": 1.0, "num": 3, "scale": "log"},
            "hack_reward": [0.0, {"name": "repaired", "schedule": [[0, 1.0], [11, 0.0]]}],
            "seed": {"range": [3, 5]},
        },
        tied={"run": {"kl_coef": [0.0, 0.1], "lr_h": [0.02, 0.05]}},
        steps=20,
        keep=["accuracy", "h", "logits"],
        progress=False,
    )
    assert written.attrs["spec"] == called.attrs["spec"]
    assert written.drop_attrs().identical(called.drop_attrs())
    for name in called.data_vars:
        assert written[name].values.tobytes() == called[name].values.tobytes()


@pytest.mark.parametrize(("text", "sentence"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_spec_gets_its_sentence(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text(text)
    assert main(["plan", "bad.toml"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"rlvr-jax: {sentence}\n")


def test_what_is_wrong_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text(GOOD + "batch_size = 201\n")
    with pytest.raises(InvalidInput, match=r"^bad\.toml: batch_size is 201"):
        spec.load("bad.toml").sweep()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'world = "b\xe4ndit"\n')
    with pytest.raises(InvalidInput, match="UTF-8"):
        spec.load(tmp_path / "latin.toml")
    with pytest.raises(InvalidInput, match="is a folder"):
        spec.load(tmp_path)


def test_a_file_goes_before_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("baselines").write_text(GOOD)
    assert spec.load("baselines").source == "baselines"
    Path("baselines").unlink()
    assert spec.load("baselines").source.endswith("baselines.toml")


def test_values_and_axes_replace_one_another() -> None:
    base = spec.load("baselines")
    assert list(base.with_value("reward_offset", [2.0]).parameters) == ["method", "reward_offset", "seed"]
    fixed = base.with_value("reward_offset", 1.0)
    assert list(fixed.parameters) == ["method", "seed"]
    assert fixed.fixed["reward_offset"] == 1.0
    swept = base.with_value("lr", {"min": 0.1, "max": 1.0, "num": 4})
    assert swept.grid().shape == (5, 2, 64, 4)
    assert "lr" not in swept.fixed
    schedule = base.with_value("hack_reward", [[0, 1.0], [300, 0.0]])
    assert schedule.grid().shape == (5, 2, 64)
    assert base.with_seeds(3).grid().shape == (5, 2, 3)
    assert base.parameters["seed"] == {"range": [0, 64]}


def test_a_shorter_training_leaves_out_later_evaluations() -> None:
    small = spec.load("pass_at_k").with_value("steps", 300)
    assert small.grid().eval_steps == (0, 100, 300)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.1", 0.1), ("3", 3), ("true", True), ("grpo", "grpo"), ('"grpo"', "grpo"), ("[1, 2]", [1, 2])],
)
def test_a_value_on_the_command_line_is_toml(text: str, value: object) -> None:
    assert spec.value(text) == value


@pytest.mark.parametrize("text", ["", "0.1,0.2", "[1", "1\nb = 2", "a b"])
def test_what_is_no_value(text: str) -> None:
    with pytest.raises(InvalidInput, match="no TOML value"):
        spec.value(text)


def test_a_path_of_problems_is_meant_from_where_it_is_written(tmp_path, monkeypatch):
    """From the file's folder where it stands in the file, from the working directory on a command line."""
    (tmp_path / "specs").mkdir()
    line = '{"start": 1, "steps": [["add", 10]]}'
    (tmp_path / "specs" / "own.jsonl").write_text(line)
    (tmp_path / "here.jsonl").write_text(line + "\n" + line)
    file = tmp_path / "specs" / "own.toml"
    file.write_text('world = "tool_use"\nmethod = "rloo"\nsteps = 1\nbatch_size = 1\ntrain_problems = "own.jsonl"\n')
    monkeypatch.chdir(tmp_path)
    own = spec.load("specs/own.toml")
    assert len(own.grid().fixed["train_problems"]) == 1
    assert len(own.with_value("train_problems", "here.jsonl").grid().fixed["train_problems"]) == 2
