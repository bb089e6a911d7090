"""Grids: what each form of an axis means, and that whatever cannot be meant is refused before anything compiles."""

import re
import warnings
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import rlvr_jax
from rlvr_jax import devices, engine
from rlvr_jax.bandit import PARAMETERS, WORLD
from rlvr_jax.grid import MOST_CELLS, Grid, NamedSchedule, make_grid
from rlvr_jax.plan import check_memory
from rlvr_jax.store import labels
from rlvr_jax.types import InvalidInput

BASE = {"method": "rloo", "lr": 0.5, "steps": 20}


def grid(parameters=(), without=(), **fixed):
    """A grid of the bandit: `BASE` without what is swept."""
    parameters = dict(parameters)
    tied = {name for members in (fixed.get("tied") or {}).values() for name in members}
    base = {name: value for name, value in BASE.items() if name not in {*parameters, *tied, *without}}
    return make_grid(WORLD, parameters, **(base | fixed))


def values(name, axis, **fixed):
    (only,) = grid({name: axis}, **fixed).axes
    assert only.dim == name
    assert set(only.values) == {name}
    return list(only.values[name])


REPAIRED = {"name": "repaired after 10", "schedule": [[0, 1.0], [11, 0.0]]}


# Forms of an axis


@pytest.mark.parametrize(
    ("name", "axis", "expected"),
    [
        ("lr", [0.5, 0.1, 2], [0.5, 0.1, 2.0]),
        ("lr", (0.5, 0.1), [0.5, 0.1]),
        ("lr", np.array([0.5, 0.1]), [0.5, 0.1]),
        ("lr", np.array([1, 2]), [1.0, 2.0]),
        ("lr", {"values": [0.5, 0.1]}, [0.5, 0.1]),
        ("lr", {"values": np.array([0.5])}, [0.5]),
        ("lr", {"min": 1, "max": 3, "num": 5}, [1.0, 1.5, 2.0, 2.5, 3.0]),
        ("lr", {"min": 1, "max": 3, "num": 3, "scale": "linear"}, [1.0, 2.0, 3.0]),
        ("lr", {"min": 0.25, "max": 4, "num": 5, "scale": "log"}, [0.25, 0.5, 1.0, 2.0, 4.0]),
        ("lr", {"min": 0.3, "max": 0.3, "num": 1}, [0.3]),
        ("lr", {"min": 0, "max": 1, "num": 2}, [0.0, 1.0]),
        ("lr", {"range": [1, 4]}, [1.0, 2.0, 3.0]),
        ("seed", {"range": [0, 3]}, [0, 1, 2]),
        ("seed", {"range": [2, 12, 4]}, [2, 6, 10]),
        ("seed", {"range": (3, 0, -1)}, [3, 2, 1]),
        ("seed", range(2, 4), [2, 3]),
        ("seed", [2**32 - 1, 0], [2**32 - 1, 0]),
        ("group_size", np.array([2, 8], np.int8), [2, 8]),
        ("method", ["rloo", "none"], ["rloo", "none"]),
        ("method", ("grpo",), ["grpo"]),
        ("method", np.array(["grpo", "rloo"]), ["grpo", "rloo"]),
        ("lr", [Fraction(1, 4), np.float32(0.5)], [0.25, 0.5]),
    ],
)
def test_each_form_of_an_axis_gives_its_values_in_order(name, axis, expected):
    given = values(name, axis)
    assert_allclose(given, expected, rtol=1e-15) if name == "lr" else assert_array_equal(given, expected)
    plain = {"lr": float, "method": str}.get(name, int)
    assert all(type(value) is plain for value in given)


def test_a_log_axis_begins_and_ends_where_it_says():
    given = values("lr", {"min": 0.02, "max": 20.0, "num": 24, "scale": "log"})
    assert (given[0], given[-1], len(given)) == (0.02, 20.0, 24)
    assert_allclose(np.diff(np.log(given)), np.log(1000) / 23)


def test_named_schedules_are_labelled_by_name_and_tabulated():
    axis = [0.0, REPAIRED, {"name": "ramp", "schedule": lambda step: step / 20}]
    made = grid({"hack_reward": axis})
    assert labels(made.spec["axes"][0]["values"]["hack_reward"]) == ["0", "repaired after 10", "ramp"]
    assert_array_equal(made.columns["hack_reward"], [0, 1, 2])
    expected = [np.zeros(21), np.arange(21) < 11, np.arange(21) / 20]
    assert_array_equal(made.tables, np.array(expected, float).T)
    assert labels(values("hack_reward", [0.0, 0.5])) == [0.0, 0.5]


def test_a_fixed_schedule_needs_no_name():
    for schedule in ([[0, 1.0], [11, 0.0]], lambda step: float(step < 11), REPAIRED):
        assert_array_equal(grid(hack_reward=schedule).tables[:, 0], np.arange(21) < 11)


def test_tied_axes_move_together():
    made = grid({"seed": [4, 5]}, tied={"run": {"kl_coef": [0.0, 0.1, 0.1], "lr_h": [0.02, 0.05, 0.02]}})
    assert [axis.dim for axis in made.axes] == ["seed", "run"]
    assert made.shape == (2, 3)
    assert_array_equal(made.columns["seed"], [4, 4, 4, 5, 5, 5])
    assert_array_equal(made.columns["kl_coef"], [0.0, 0.1, 0.1] * 2)
    assert_array_equal(made.columns["lr_h"], [0.02, 0.05, 0.02] * 2)


def test_cells_are_the_product_of_the_axes_the_last_one_fastest():
    made = grid({"method": ["rloo", "none"], "lr": [1, 2], "seed": {"range": [0, 3]}})
    assert (made.shape, made.cells) == ((2, 2, 3), 12)
    names = PARAMETERS["method"].choices
    assert [names[code] for code in made.columns["method"]] == ["rloo"] * 6 + ["none"] * 6
    assert_array_equal(made.columns["lr"], [1, 1, 1, 2, 2, 2] * 2)
    assert_array_equal(made.columns["seed"], [0, 1, 2] * 4)


def test_no_axes_are_one_cell_with_the_defaults():
    made = grid()
    assert (made.shape, made.cells) == ((), 1)
    columns = {name: column.tolist() for name, column in made.columns.items()}
    assert columns["batch_size"] == [32]
    assert columns["group_size"] == [8]
    assert columns["lr_h"] == [0.5 / 32]
    assert columns["prompt_seed"] == columns["answer_seed"] == columns["seed"] == [0]


def test_seeds_and_lr_h_follow_unless_given():
    made = grid({"seed": [3, 4], "lr": [1.0, 2.0], "batch_size": [8, 16]}, answer_seed=7)
    assert_array_equal(made.columns["prompt_seed"], made.columns["seed"])
    assert_array_equal(made.columns["answer_seed"], 7)
    assert_array_equal(made.columns["lr_h"], made.columns["lr"] / made.columns["batch_size"])
    assert_array_equal(grid({"lr": [1.0, 2.0]}, lr_h=None).columns["lr_h"], [1 / 32, 2 / 32])


@pytest.mark.parametrize(
    ("steps", "given", "expected"),
    [
        (20, {}, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        (7, {}, [0, 1, 2, 3, 4, 5, 6, 7]),
        (25, {"eval_every": 10}, [0, 10, 20, 25]),
        (25, {"eval_every": 100}, [0, 25]),
        (25, {"eval_steps": [10, 3, 10]}, [0, 3, 10, 25]),
        (25, {"eval_steps": []}, [0, 25]),
        (25, {"eval_steps": np.array([5])}, [0, 5, 25]),
        (0, {}, [0]),
    ],
)
def test_evaluations(steps, given, expected):
    assert grid(steps=steps, **given).eval_steps == tuple(expected)


def test_metrics_are_kept_in_the_worlds_order_and_some_only_where_they_mean_something():
    assert grid(keep=["kl", "accuracy", "kl"]).keep == ("accuracy", "kl")
    assert "correct_prob" not in grid().keep
    assert "accuracy_unseen" not in grid().keep
    assert "accuracy_unseen" in grid(train_fraction=0.5).keep
    assert "hack_rate_seen" in grid({"train_fraction": [0.5, 1.0]}).keep
    assert grid({"prompts": [50]}, keep=["correct_prob"]).keep == ("correct_prob",)


# Refusals: nothing is compiled, and what is said is one sentence


@pytest.fixture
def no_compilation(monkeypatch):
    def fail(*_):
        pytest.fail("compiled")

    monkeypatch.setattr(engine, "_compile", fail)
    monkeypatch.setattr(engine, "_compiled", {})


def case(sentence, parameters=(), world="bandit", without=(), **fixed):
    return pytest.param(world, dict(parameters), without, fixed, sentence, id=re.sub(r"[^ -~]+", "", sentence)[:70])


BIG = 10**400

WRONG = [
    # names
    case("world is 'bandid'; did you mean 'bandit'?", world="bandid"),
    case("world is 'chess'; the known ones are bandit", world="chess"),
    case("world is ['bandit']; did you mean 'bandit'?", world=["bandit"]),
    case("world is None; the known ones are bandit", world=None),
    case("'zzz' is not a parameter of the world 'bandit'; the known ones are answer_seed, answers, ", zzz=1),
    case("'lrh' is not a parameter of the world 'bandit'; did you mean 'lr_h'?", lrh=0.1),
    case("'groupsize' is not a parameter of the world 'bandit'; did you mean 'group_size'?", {"groupsize": [2, 4]}),
    case("5 is not a parameter of the world 'bandit'; the known ones are", {5: [2, 4]}),
    case("method is 'rlo'; did you mean 'rloo'?", method="rlo"),
    case("method[1] is 'grppo'; did you mean 'grpo'?", {"method": ["rloo", "grppo"]}),
    case("method is 'ppo-clip'; ", method="ppo-clip"),
    case("method is 3; the known ones are group, grpo, learned, none, rloo", method=3),
    case("method is None; ", method=None),
    case("keep has 'acuracy'; did you mean 'accuracy'?", keep=["acuracy"]),
    case("keep has ['accuracy']; ", keep=[["accuracy"]]),
    # what is missing
    case("method is missing; it must be one of group, grpo, learned, none, rloo", without=["method"]),
    case("lr is missing; it must be a finite number at least 0", without=["lr"]),
    case("steps is missing; it must be a whole number at least 0", without=["steps"]),
    # axes
    case("lr has no values; an axis needs at least one", {"lr": []}),
    case("lr has no values; an axis needs at least one", {"lr": {"values": []}}),
    case("seed has no values; an axis needs at least one", {"seed": {"range": [3, 3]}}),
    case("lr has no values; an axis needs at least one", {"lr": np.array([])}),
    case("lr has the value 0.5 twice; the values of an axis must differ", {"lr": [0.5, 0.1, 0.5]}),
    case("lr has the value 1.0 twice; the values of an axis must differ", {"lr": [1, 1.0]}),
    case("reward_offset has the value ", {"reward_offset": [0.0, -0.0]}),
    case("method has the value 'rloo' twice", {"method": ["rloo", "grpo", "rloo"]}),
    case("hack_reward has two values with one name", {"hack_reward": [REPAIRED, {**REPAIRED, "schedule": [[0, 1]]}]}),
    case("hack_reward has two values with one name", {"hack_reward": [0.0, {"name": "0", "schedule": [[0, 1.0]]}]}),
    case("lr is given twice, as a fixed value and along the axis 'lr'", {"lr": [0.1]}, lr=0.2),
    case("lr is given twice, along the axes 'lr' and 'run'", {"lr": [0.1]}, tied={"run": {"lr": [1], "lr_h": [1]}}),
    case("lr is 0.5; an axis is a list of values", {"lr": 0.5}),
    case("lr is '0.5'; an axis is a list of values", {"lr": "0.5"}),
    case("lr is b'ab'; an axis is a list of values", {"lr": b"ab"}),
    case("lr is None; an axis is a list of values", {"lr": None}),
    case("(give a single value as a fixed argument instead)", {"seed": 3}),
    case("lr is {0.1}; an axis is a list of values", {"lr": {0.1}}),
    case("lr is an array of shape (2, 2); an axis has one dimension", {"lr": np.ones((2, 2))}),
    case("lr is an array of shape (); an axis has one dimension", {"lr": np.array(0.1)}),
    case("lr is {'value': [1]}; an axis is a list of values", {"lr": {"value": [1]}}),
    case("lr is {'min': 0, 'max': 1}; an axis is", {"lr": {"min": 0, "max": 1}}),
    case(
        "lr is {'min': 0, 'max': 1, 'num': 2, 'step': 1}; an axis is", {"lr": {"min": 0, "max": 1, "num": 2, "step": 1}}
    ),
    case("lr[0] is [0.1, 0.2]; it must be a finite number at least 0", {"lr": [[0.1, 0.2]]}),
    # numbers
    case("lr is True; it must be a finite number at least 0", lr=True),
    case("lr[1] is False; it must be a finite number at least 0", {"lr": [0.5, False]}),
    case("seed[0] is True; it must be a whole number at least 0 and below 4294967296", {"seed": [True]}),
    case("lr is '0.5'; it must be a finite number at least 0", lr="0.5"),
    case("lr[0] is '0.5'; it must be a finite number", {"lr": ["0.5"]}),
    case("lr is None; it must be a finite number at least 0", lr=None),
    case("lr[0] is None; it must be a finite number", {"lr": [None]}),
    case("kl_coef is None; it must be a finite number", kl_coef=None),
    case("lr is [0.1, 0.2]; it must be a finite number", lr=[0.1, 0.2]),
    case("lr is nan; it must be a finite number", lr=np.nan),
    case("lr[1] is nan; it must be a finite number", {"lr": [0.1, np.nan]}),
    case("lr is inf; it must be a finite number", lr=np.inf),
    case("reward_offset[0] is -inf; it must be a finite number", {"reward_offset": np.array([-np.inf])}),
    case("lr is 1e+39; it does not fit into float32", lr=1e39),
    case("lr[0] is 1e+300; it does not fit into float32", {"lr": [1e300]}),
    case("it must be a finite number", lr=BIG),
    case("hack_reward reaches from 0 to 1e+39; it does not fit into float32", hack_reward=[[0, 0.0], [3, 1e39]]),
    case("lr is (0.5+0j); it must be", lr=0.5 + 0j),
    case("lr is -0.1; it must be a finite number at least 0", lr=-0.1),
    case("baseline_rate is 1.5; it must be a finite number at least 0 and at most 1", baseline_rate=1.5),
    case("hack_prob is 0.0; it must be a finite number above 0 and below 0.4", hack_prob=0),
    case("hack_prob is 0.4; it must be a finite number above 0 and below 0.4", hack_prob=0.4),
    case("train_fraction is 0.0; it must be", train_fraction=0),
    case("seed is -1; it must be a whole number", seed=-1),
    case("seed is 4294967296; it must be a whole number", seed=2**32),
    case("group_size is 8.0; it must be a whole number at least 1", group_size=8.0),
    case("group_size[1] is 2.5; it must be a whole number at least 1", {"group_size": [2, 2.5]}),
    case("group_size is 1000", group_size=10**30),
    case("answers is 2; it must be a whole number at least 3", answers=2),
    case("answers is 1000", answers=10**30),
    case("prompts is 65537; it must be a whole number at least 1 and at most 65536", prompts=65537),
    case("batch_size is 0; it must be a whole number at least 1", batch_size=0),
    # ranges and scales
    case("range of seed is 5; it must be [start, stop] or [start, stop, step]", {"seed": {"range": 5}}),
    case("range of seed is [5]; it must be", {"seed": {"range": [5]}}),
    case("range of seed is [0, 9, 1, 1]; it must be", {"seed": {"range": [0, 9, 1, 1]}}),
    case("range of seed is '09'; it must be", {"seed": {"range": "09"}}),
    case("range of seed is b'09'; it must be", {"seed": {"range": b"09"}}),
    case("range of seed has step 0; it must be another whole number", {"seed": {"range": [0, 9, 0]}}),
    case("range of seed is 2.5; it must be a whole number", {"seed": {"range": [0, 2.5]}}),
    case("seed has 1000000000000 values; at most 10000000 are possible", {"seed": {"range": [0, 10**12]}}),
    case("its numbers must lie within 2^62 of 0", {"seed": {"range": [0, 10**30]}}),
    case("scale of lr is 'ln'; it must be 'linear' or 'log'", {"lr": {"min": 1, "max": 2, "num": 2, "scale": "ln"}}),
    case("scale of lr is array(", {"lr": {"min": 1, "max": 2, "num": 2, "scale": np.array(["log", "linear"])}}),
    case("min of lr is 0; on a log scale it must be above 0", {"lr": {"min": 0, "max": 1, "num": 3, "scale": "log"}}),
    case("max must be above min", {"lr": {"min": 1, "max": 0, "num": 1, "scale": "log"}}),
    case("lr reaches from min 2 to max 1; max must be above min", {"lr": {"min": 2, "max": 1, "num": 3}}),
    case("lr reaches from min 1 to max 1; max must be above min", {"lr": {"min": 1, "max": 1, "num": 3}}),
    case("num of lr is 0; it must be a whole number at least 1", {"lr": {"min": 1, "max": 2, "num": 0}}),
    case("num of lr is 2.0; it must be a whole number at least 1", {"lr": {"min": 1, "max": 2, "num": 2.0}}),
    case("num of lr is 1000000000000; at most", {"lr": {"min": 1, "max": 2, "num": 10**12}}),
    case("min of lr is nan; it must be a finite number", {"lr": {"min": np.nan, "max": 2, "num": 3}}),
    case("max of lr is '2'; it must be a finite number", {"lr": {"min": 1, "max": "2", "num": 3}}),
    case("reward_offset", {"reward_offset": {"min": -1.7e308, "max": 1.7e308, "num": 3}}, precision="float64"),
    # combinations that mean nothing
    case("group_size is 1 with method 'rloo'; it needs at least 2 samples a prompt", group_size=1),
    case("group_size is 1 with method 'group'; it needs at least 2", group_size=1, method="group"),
    case("group_size is 1 with method 'grpo'; it needs at least 2", group_size=1, method="grpo"),
    case("group_size is 1 with method 'grpo'; it needs", {"method": ["none", "grpo"], "group_size": [4, 1]}),
    case("batch_size is 33; it must be at most 20, the prompts to draw from (prompts 20, ", batch_size=33, prompts=20),
    case("batch_size is 32; it must be at most 20, the prompts to draw from", {"prompts": [200, 20]}),
    case("the prompts to draw from (prompts 200, train_fraction 0.1)", train_fraction=0.1),
    case("batch_size is 101; it must be at most 100", {"batch_size": [8, 101]}, train_fraction=0.5),
    case("batch_size is 1; it must be at most 0", train_fraction=1e-6, batch_size=1),
    # steps and evaluations
    case("steps is -1; it must be a whole number at least 0", steps=-1),
    case("steps is 20.0; it must be a whole number at least 0", steps=20.0),
    case("steps is True; it must be a whole number at least 0", steps=True),
    case("steps is '20'; it must be a whole number at least 0", steps="20"),
    case("eval_every is 1: 10000000 evaluations; at most 1000000 are possible", steps=10**7, eval_every=1),
    case("a training takes 1536.0 GiB; ", prompts=65536, answers=65536, free_memory=2**33),
    case("steps is 2147483648; it must be at most 10000000", steps=2**31),
    case("steps cannot be an axis; a shorter training is the beginning of a longer one", {"steps": [10, 20]}),
    case("steps cannot be an axis", {"steps": [10, 20]}, without=["steps"]),
    case("steps cannot be an axis", tied={"run": {"steps": [10, 20], "lr": [1, 2]}}, without=["lr", "steps"]),
    case("eval_steps has 21; the training has 20 steps", eval_steps=[5, 21]),
    case("eval_steps is -1; it must be a whole number at least 0", eval_steps=[-1]),
    case("eval_steps is 2.5; it must be a whole number at least 0", eval_steps=[2.5]),
    case("eval_steps is 5; it must be a list of steps from 0 to 20", eval_steps=5),
    case("eval_steps is '5'; it must be a list of steps", eval_steps="5"),
    case("eval_steps is array(5); it must be a list of steps", eval_steps=np.array(5)),
    case("eval_every is 0; it must be a whole number at least 1", eval_every=0),
    case("eval_every is 2.5; it must be a whole number at least 1", eval_every=2.5),
    case("eval_every and eval_steps are both given", eval_every=5, eval_steps=[5]),
    # what is kept, and precision
    case("keep is empty; name at least one metric", keep=[]),
    case("keep is 'accuracy'; it must be a list of metrics", keep="accuracy"),
    case("keep is 3; it must be a list of metrics", keep=3),
    case("keep is array('accuracy'", keep=np.array("accuracy")),
    case(
        "keep has 'correct_prob', whose size changes along the axis 'prompts'; fix 'prompts'",
        {"prompts": [100, 200]},
        keep=["correct_prob"],
    ),
    case("keep has 'logits', whose size changes along the axis 'answers'", {"answers": [4, 8]}, keep=["logits"]),
    case("precision is 'float16'; it must be 'float32' or 'float64'", precision="float16"),
    case("precision is array(", precision=np.array(["float32", "float64"])),
    # tied axes
    case("have different numbers of values: kl_coef 2, lr_h 1", tied={"run": {"kl_coef": [0, 1], "lr_h": [1]}}),
    case("it must map at least two parameters to lists of values", tied={"run": {"kl_coef": [0, 1]}}),
    case("the tied axis 'run' is [1, 2]; it must map", tied={"run": [1, 2]}),
    case("tied is [1]; it must map", tied=[1]),
    case("'seed' cannot name a tied axis", tied={"seed": {"kl_coef": [0, 1], "lr_h": [1, 2]}}),
    case("'step' cannot name a tied axis", tied={"step": {"kl_coef": [0, 1], "lr_h": [1, 2]}}),
    case("'kl' cannot name a tied axis", tied={"kl": {"kl_coef": [0, 1], "lr_h": [1, 2]}}),
    case("'diverged_step' cannot name a tied axis", tied={"diverged_step": {"kl_coef": [0, 1], "lr_h": [1, 2]}}),
    case("'my run' cannot name a tied axis", tied={"my run": {"kl_coef": [0, 1], "lr_h": [1, 2]}}),
    case("5 cannot name a tied axis", tied={5: {"kl_coef": [0, 1], "lr_h": [1, 2]}}),
    case("run has the value '0.0, 1.0' twice", tied={"run": {"kl_coef": [0, 0], "lr_h": [1, 1]}}),
    case("'klcoef' is not a parameter of the world 'bandit'", tied={"run": {"klcoef": [0, 1], "lr_h": [1, 2]}}),
    # schedules
    case("a schedule along an axis needs a name", {"hack_reward": [0.0, [[0, 1.0]]]}),
    case("a schedule along an axis needs a name", {"hack_reward": [float]}),
    case("hack_reward[0] is {'name': 'a'}; it must be a number or {name", {"hack_reward": [{"name": "a"}]}),
    case("it must be a number or {name: ...", {"hack_reward": [{"name": "", "schedule": [[0, 1]]}]}),
    case("it must be a number or {name: ...", {"hack_reward": [{"name": 3, "schedule": [[0, 1]]}]}),
    case("with ascending whole steps, the first at 0 or before", hack_reward=[[1, 1.0], [5, 0.0]]),
    case("with ascending whole steps, the first at 0 or before", hack_reward=[[0, 1.0], [9, 0.5], [5, 0.0]]),
    case("hack_reward[0] is [[2, 1.0]]; change points", {"hack_reward": [{"name": "a", "schedule": [[2, 1.0]]}]}),
    case("a value of hack_reward is nan; it must be a finite number", hack_reward=[[0, np.nan]]),
    case("a value of hack_reward is '1'; it must be a finite number", hack_reward=[[0, "1"]]),
    case("hack_reward fails at step 0", hack_reward=len),
    case("hack_reward is 'high'; change points are", hack_reward="high"),
    case("lr[0] is {'name': 'a', 'schedule': [[0, 1]]}; it must be", {"lr": [{"name": "a", "schedule": [[0, 1]]}]}),
    case("lr is <", lr=lambda step: 0.1),
    # sizes
    case(
        "the grid has 1000000000000 cells (lr 10000 x kl_coef 10000 x reward_offset 10000); at most 1000000000 are",
        {name: {"min": 0, "max": 1, "num": 10**4} for name in ("lr", "kl_coef", "reward_offset")},
    ),
    case("free: keep fewer metrics, evaluations or cells", {"seed": {"range": [0, 1000]}}, free_memory=10**5),
    case("the grid has 10 cells, whose results", {"seed": {"range": [0, 10]}}, keep=["logits"], free_memory=10**5),
]


@pytest.mark.parametrize(("world", "parameters", "without", "fixed", "sentence"), WRONG)
def test_wrong_calls_are_refused_in_one_sentence(
    world, parameters, without, fixed, sentence, monkeypatch, no_compilation
):
    fixed = dict(fixed)
    free = fixed.pop("free_memory", None)
    if free is not None:
        monkeypatch.setattr(devices, "free_memory", lambda: free)
    base = {name: value for name, value in BASE.items() if name not in {*parameters, *without}}
    if parameters.get("steps") and "steps" not in without:
        base["steps"] = 20
    with pytest.raises(InvalidInput) as caught:
        rlvr_jax.sweep(world, parameters, **(base | fixed))
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message.strip() or "array(" in message
    assert type(caught.value) is InvalidInput


def test_parameters_are_a_mapping(no_compilation):
    for parameters in ([("lr", [1])], None, "lr", 5):
        with pytest.raises(InvalidInput, match=r"parameters is .*; it must map names to a list of values"):
            rlvr_jax.sweep("bandit", parameters, **BASE)


def test_a_right_call_would_compile(no_compilation):
    with pytest.raises(pytest.fail.Exception, match="compiled"):
        rlvr_jax.sweep("bandit", {"seed": [0]}, **BASE)


def test_a_table_of_at_least_45_wrong_calls():
    assert len(WRONG) >= 45


# Whatever is given, the outcome is a grid or a sentence

numbers = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([2**31, 2**32, 2**63, 2**64, 10**30, -(10**30), 10**400, 0.0, 0.5, 1.0, 1e-320, 1e39, 1e300]),
    st.floats(),
    st.booleans(),
)
leaves = st.one_of(
    st.none(),
    numbers,
    st.text(max_size=4),
    st.binary(max_size=3),
    st.sampled_from(
        ["rloo", "log", "accuracy", 1j, Decimal("0.5"), Decimal("sNaN"), Fraction(1, 3), len, float, object()]
    ),
    st.sampled_from(
        [np.array(0.5), np.array([1, 2]), np.ones((2, 2)), np.array(True), np.float32(2), np.int8(3), np.str_("rloo")]
    ),
    st.sampled_from(
        [np.array([object()]), np.array("rloo"), np.array(["a", "b"]), np.datetime64("2020"), np.array([])]
    ),
)
keys = st.one_of(
    st.sampled_from(["values", "range", "min", "max", "num", "scale", "name", "schedule"]),
    st.text(max_size=3),
    st.integers(0, 3),
)
junk = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=3),
        st.fixed_dictionaries({"min": inner, "max": inner, "num": inner}, optional={"scale": inner}),
        st.fixed_dictionaries({"range": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"name": inner, "schedule": inner}),
        st.lists(st.tuples(st.integers(-1, 9), inner), max_size=3),
    ),
    max_leaves=8,
)
near_axes = st.one_of(
    st.lists(numbers, min_size=1, max_size=4),
    st.fixed_dictionaries(
        {"min": numbers, "max": numbers, "num": st.integers(0, 5)}, optional={"scale": st.just("log")}
    ),
    st.fixed_dictionaries({"range": st.lists(st.integers(-5, 40), min_size=2, max_size=3)}),
    st.lists(
        st.fixed_dictionaries(
            {"name": st.text(max_size=2), "schedule": st.lists(st.tuples(st.integers(-1, 9), numbers), max_size=3)}
        ),
        max_size=3,
    ),
)
names = st.one_of(st.sampled_from(sorted(PARAMETERS)), st.sampled_from(["steps", "keep", "lrr", 3, None, ("lr",)]))
fixed_names = st.sampled_from([*sorted(PARAMETERS), "steps", "eval_every", "eval_steps", "keep", "precision", "tied"])


def grid_or_sentence(parameters, fixed):
    """The grid, its columns and hash; or None where it was refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            made = make_grid(WORLD, parameters, **fixed)
            check_memory(made, 10**8)
            assert all(column.shape == (made.cells,) for column in made.columns.values())
            assert all(np.isfinite(column).all() for column in made.columns.values())
            with np.errstate(over="raise"):
                assert np.isfinite(made.tables.astype(made.precision)).all()
            assert len(made.sha256) == 64
        except InvalidInput:
            return None
    assert isinstance(made, Grid)
    return made


fuzz = settings(
    max_examples=250, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@fuzz
@given(st.dictionaries(names, junk | near_axes, max_size=3), st.dictionaries(fixed_names, junk | numbers, max_size=2))
def test_junk_gives_a_grid_or_a_sentence(parameters, fixed):
    grid_or_sentence(parameters, {"steps": 5, "method": "none", "lr": 0.5} | fixed)


@fuzz
@given(st.sampled_from(sorted(PARAMETERS)), near_axes | junk)
def test_junk_along_one_axis_gives_a_grid_or_a_sentence(name, axis):
    fixed = {key: value for key, value in {"steps": 5, "method": "none", "lr": 0.5}.items() if key != name}
    grid_or_sentence({name: axis}, fixed)


@fuzz
@given(junk | st.dictionaries(st.text(max_size=3), st.dictionaries(names, junk | near_axes, max_size=3), max_size=2))
def test_junk_along_tied_axes_gives_a_grid_or_a_sentence(tied):
    grid_or_sentence({}, {"steps": 5, "method": "none", "lr": 0.5, "tied": tied})


@fuzz
@given(st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=5, unique=True))
def test_good_values_are_never_refused(rates):
    made = grid_or_sentence({"lr": rates}, {"steps": 5, "method": "none"})
    assert made is not None
    assert_array_equal(made.columns["lr"], rates)


# The hash of a grid


SAME = [
    (grid({"lr": [1, 2]}), grid({"lr": (1.0, 2.0)})),
    (grid({"lr": [1, 2, 3]}), grid({"lr": {"min": 1, "max": 3, "num": 3}})),
    (grid({"seed": {"range": [0, 3]}}), grid({"seed": np.arange(3)})),
    (grid({"seed": {"values": [0, 1]}}), grid({"seed": range(2)})),
    (grid(), grid(batch_size=32, kl_coef=0, lr_h=None, hack_prob=0.005)),
    (grid(eval_every=10), grid(eval_steps=[10])),
    (grid(), grid(eval_every=2)),
    (grid(keep=["kl", "accuracy"]), grid(keep=("accuracy", "kl", "kl"))),
    (grid(hack_reward=[[0, 1], [11, 0]]), grid(hack_reward=lambda step: 1.0 if step < 11 else 0.0)),
    (
        grid({"hack_reward": [0, REPAIRED]}),
        grid({"hack_reward": [0.0, {"name": "repaired after 10", "schedule": [[-4, 1], [3, 1.0], [11, 0], [99, 5]]}]}),
    ),
    (
        grid(tied={"run": {"kl_coef": [0, 1], "lr_h": [1, 2]}}),
        grid(tied={"run": {"lr_h": (1.0, 2.0), "kl_coef": np.array([0, 1])}}),
    ),
]

DIFFERENT = [
    grid(),
    grid({"lr": [0.5]}),
    grid({"seed": [0, 1]}),
    grid({"seed": [1, 0]}),
    grid({"lr": [0.5, 1], "seed": [0, 1]}),
    grid({"seed": [0, 1], "lr": [0.5, 1]}),
    grid(lr=0.25),
    grid(method="grpo"),
    grid(steps=21),
    grid(eval_every=5),
    grid(keep=["accuracy"]),
    grid(precision="float64"),
    grid(hack_reward=1),
    grid(hack_reward=[[0, 1], [11, 0]]),
    grid(hack_reward=[[0, 1], [12, 0]]),
    grid(lr_h=0.5 / 32),
    grid(task_seed=1),
    grid(tied={"run": {"kl_coef": [0, 1], "lr_h": [1, 2]}}),
    grid(tied={"pair": {"kl_coef": [0, 1], "lr_h": [1, 2]}}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_grids_written_differently_have_one_hash(one, other):
    assert one.spec_json == other.spec_json
    assert one.sha256 == other.sha256


def test_different_grids_have_different_hashes():
    assert len({made.sha256 for made in DIFFERENT}) == len(DIFFERENT)
    renamed = replace(grid(), world=replace(WORLD, name="other"))
    assert renamed.sha256 != grid().sha256


def test_the_hash_is_that_of_the_canonical_spec_and_stays():
    # part of stored results: a change of the canonical form must be meant
    assert grid({"seed": [0, 1]}, keep=["accuracy"]).spec_json == (
        '{"axes":[{"dim":"seed","values":{"seed":[0,1]}}],"eval_steps":[0,2,4,6,8,10,12,14,16,18,20],'
        '"fixed":{"answers":16,"baseline_rate":0.2,"batch_size":32,"eps":1e-06,"group_size":8,"hack_prob":0.005,'
        '"hack_reward":0.0,"kl_coef":0.0,"lr":0.5,"method":"rloo","prompts":200,"reward_offset":0.0,"task_seed":0,'
        '"train_fraction":1.0},"keep":["accuracy"],"precision":"float32","steps":20,"world":"bandit"}'
    )


def test_a_schedule_is_canonical_as_its_change_points():
    table = NamedSchedule("a", (1.0, 1.0, 0.5, 0.5, 0.0))
    assert table.canonical() == {"name": "a", "schedule": [[0, 1.0], [2, 0.5], [4, 0.0]]}


def test_the_largest_grid_is_stated():
    assert MOST_CELLS == 10**9
