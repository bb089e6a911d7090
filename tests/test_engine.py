"""The engine's contracts: equal bits however cells are packed, one compilation, frozen lanes, clean stops."""

import itertools
import os
import subprocess
import sys
from dataclasses import dataclass

import jax
import numpy as np
import pytest

import rlvr_jax as rj
from rlvr_jax import engine, plan
from rlvr_jax.grid import make_grid
from rlvr_jax.worlds import WORLDS, world

METHODS = ["none", "learned", "rloo", "group", "grpo"]


@dataclass(frozen=True)
class Contract:
    """What the tests of this file need of a world; one row of `CONTRACTS`.

    Attributes:
      common: Arguments of every sweep.
      whole: Axes, besides `METHODS` and six seeds, of the grid in which the other grids are contained.
      plain: Values of those axes where a grid does not say, as far as they are defaults.
      cell: One cell of that grid, as axes besides ``method`` and ``seed``.
      fewer: Another one, with masks.
      masks: Sizes of which the smaller are masked, and a larger one.
      number: An axis of numbers, two of its values in the whole grid, and where others lie.
      few: ``whole`` where cutting the work is tested, with both group sizes.
      narrow: `plan.CACHED` at which rows are 16 lanes wide.
    """

    common: dict
    whole: dict
    plain: dict
    cell: dict
    fewer: dict
    larger: dict
    number: tuple
    few: dict
    fixed: dict
    narrow: int


CONTRACTS = {
    "bandit": Contract(
        common={"steps": 60, "eval_every": 20, "hack_reward": 1.0, "prompts": 50, "train_fraction": 0.8},
        whole={
            "lr": [0.05, 0.5, 2.0, 10.0],
            "kl_coef": [0.0, 0.05],
            "group_size": [5, 8],
            "batch_size": [24, 32],
        },
        plain={"group_size": 8, "batch_size": 32, "kl_coef": 0.0},
        cell={"lr": 0.5, "kl_coef": 0.05},
        fewer={"lr": 2.0, "kl_coef": 0.05, "group_size": 5, "batch_size": 24},
        larger={"group_size": [5, 8, 11]},
        number=("lr", [10.0, 0.5], np.geomspace(0.01, 1, 150)),
        few={"lr": [0.05, 0.5, 2.0, 10.0], "group_size": [5, 8], "kl_coef": [0.0, 0.05]},
        fixed={"batch_size": 32},
        narrow=2**13,
    ),
    "tool_use": Contract(
        common={
            **{"steps": 20, "eval_every": 5, "train_problems": 40, "test_problems": 30, "max_steps": 6},
            **{"sft_examples": 10, "sft_epochs": 5, "initial_call_prob": 0.3},
        },
        whole={
            "call_cost": [0.0, 0.02, 0.2],
            "cold_start": [False, True],
            "group_size": [5, 8],
            "batch_size": [12, 16],
        },
        plain={"group_size": 8, "batch_size": 16, "cold_start": False},
        cell={"call_cost": 0.02, "cold_start": True},
        fewer={"call_cost": 0.2, "cold_start": True, "group_size": 5, "batch_size": 12},
        larger={"group_size": [5, 8, 11]},
        number=("call_cost", [0.2, 0.02], np.linspace(0.001, 0.4, 150)),
        few={"call_cost": [0.0, 0.02, 0.2], "group_size": [5, 8], "cold_start": [False, True]},
        fixed={"batch_size": 16},
        narrow=2**11,
    ),
}


def test_every_world_has_a_contract():
    assert set(CONTRACTS) == set(WORLDS)


@pytest.fixture(scope="module", params=CONTRACTS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def contract(name):
    return CONTRACTS[name]


@pytest.fixture(scope="module")
def whole(name, contract):
    """A grid in which every other one of these tests is contained: methods, masks, program variants on and off."""
    return rj.sweep(name, {"method": METHODS, **contract.whole, "seed": {"range": [0, 6]}}, **contract.common)


def assert_same(part, whole):
    """Equal to the bit in every variable, NaN where NaN."""
    assert set(part.data_vars) == set(whole.data_vars)
    for name, values in part.items():
        np.testing.assert_array_equal(values.values, whole[name].transpose(*values.dims).values, err_msg=name)
    assert np.isfinite(part["accuracy"]).all()


def packed(contract):
    """Grids by the way in which they pack cells of the whole one: axes and fixed values."""
    number, values, others = contract.number
    return {
        "one cell alone": ({}, {"method": "grpo", "seed": 3, **contract.cell}),
        "one cell that was masked": ({}, {"method": "learned", "seed": 1, **contract.fewer}),
        "few lanes, seeds side by side": (
            {"method": METHODS, "seed": [5, 0, 2, *range(100, 150)]},
            {number: contract.cell[number]},
        ),
        "one lane, seeds side by side": ({"seed": [*range(300, 420), 4, 1]}, {"method": "rloo", number: values[0]}),
        "another order and neighbours": (
            {"seed": [5, 2], number: [*others.tolist(), *values], "method": METHODS[::-1]},
            {name: value for name, value in contract.cell.items() if name != number},
        ),
        "a larger group beside it": (
            {**contract.larger, "seed": [0, 3]},
            {"method": "grpo", number: contract.cell[number]},
        ),
    }


@pytest.mark.parametrize("way", packed(CONTRACTS["bandit"]))
def test_a_cell_is_equal_to_the_bit_however_it_is_packed(way, name, contract, whole):
    parameters, fixed = packed(contract)[way]
    part = rj.sweep(name, parameters, **{**contract.common, **fixed})
    known = {**contract.plain, **fixed}
    for dim, coords in part.coords.items():
        if dim in parameters:
            part = part.sel({dim: [v for v in coords.values if v in whole[dim].values]})
            known[dim] = part[dim].values
    layouts = {p.program.layout.seeds > 1 for p in make_plan_of(name, parameters, fixed)}
    assert layouts == {"side by side" in way}
    assert_same(part, whole.sel(known))


def make_plan_of(name, parameters, fixed):
    grid = make_grid(world(name), parameters, **{**CONTRACTS[name].common, **fixed})
    return plan.make_plan(grid, len(jax.devices()))


CUTS = {
    "narrow chunks of lanes": (
        lambda contract: {"CACHED": contract.narrow},
        lambda parts: [p.program.layout.width for p in parts] == [16],
    ),
    "time slices": (lambda contract: {"CALL_SECONDS": 1e-4}, lambda parts: len(parts[0].segments.begin) > 3),
    "few items a call": (lambda contract: {"CALL_BYTES": 1}, lambda parts: parts[0].calls > 1),
    "a program for each size": (lambda contract: {"LEAST_SHARE": 1.0}, lambda parts: len(parts) == 2),
}


@pytest.mark.parametrize("cut", CUTS)
def test_cutting_the_work_changes_no_bit(cut, name, contract, whole, monkeypatch):
    constants, holds = CUTS[cut]
    for constant, value in constants(contract).items():
        monkeypatch.setattr(plan, constant, value)
    parameters = {"method": METHODS, **contract.few, "seed": [1, 4, 5]}
    assert holds(make_plan_of(name, parameters, contract.fixed))
    part = rj.sweep(name, parameters, **contract.common, **contract.fixed)
    assert_same(part, whole.sel({"seed": [1, 4, 5], **contract.fixed}))


SCRIPT = """
import hashlib, sys, rlvr_jax as rj, jax
world, number, values, common, fixed = eval(sys.argv[1])
out = rj.sweep(world, {"method": ["learned", "grpo"], number: values, "seed": {"range": [0, 5]}}, **common, **fixed)
digest = hashlib.sha256(b"".join(out[n].values.tobytes() for n in sorted(out.data_vars)))
print(len(jax.devices()), digest.hexdigest())
"""


def test_the_number_of_devices_changes_no_bit(name, contract):
    number, values, _ = contract.number
    rest = {key: value for key, value in contract.cell.items() if key != number}
    arguments = repr((name, number, values, contract.common, rest))
    digests = set()
    for devices in (1, 2, 4):
        environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)}
        command = [sys.executable, "-c", SCRIPT, arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        count, digest = done.stdout.split()
        assert int(count) == devices
        digests.add(digest)
    assert len(digests) == 1


@pytest.fixture
def compilations():
    """The names of the compilations that happen during a test."""
    seen = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: seen.append(event) if "backend_compile" in event else None
    )
    return seen


def test_a_program_is_compiled_once(name, contract, compilations, monkeypatch):
    monkeypatch.setattr(plan, "CALL_SECONDS", 1e-3)
    built = []
    build = engine._compile
    monkeypatch.setattr(engine, "_compile", lambda *a: built.append(a) or build(*a))
    number, values, _ = contract.number
    arguments = {"method": ["rloo", "grpo"], number: [*values, 0.3], "seed": {"range": [0, 9]}}
    options = {**contract.common, "steps": 37, "batch_size": 8}
    assert sum(part.calls for part in plan.make_plan(make_grid(world(name), arguments, **options), 2)) > 1
    first = rj.sweep(name, arguments, **options)
    assert len(built) == 1
    assert first.attrs["programs_compiled"] == 1
    compilations.clear()
    other = {"method": ["rloo", "grpo"], number: [0.1, 0.4, 0.7], "seed": {"range": [20, 29]}}
    second = rj.sweep(name, other, **options)
    assert compilations == []
    assert second.attrs["programs_compiled"] == 0
    assert second.attrs["compile_seconds"] == 0
    rj.sweep(name, other, **{**options, "batch_size": 9})
    assert compilations


def test_only_so_many_programs_are_kept(monkeypatch):
    """Each takes hundreds of mappings, and a process that has used up its mappings is aborted."""
    monkeypatch.setattr(engine, "_compiled", {})
    monkeypatch.setattr(engine, "MOST_COMPILED", 2)

    def programs(batch):
        out = rj.sweep("bandit", {}, method="none", lr=0.1, steps=2, prompts=20, batch_size=batch)
        return out.attrs["programs_compiled"]

    assert [programs(batch) for batch in (4, 5, 4, 6, 4, 5)] == [1, 1, 0, 1, 0, 1]
    assert len(engine._compiled) == 2


def test_smaller_sizes_share_a_program_only_where_masks_waste_little():
    def programs(**sizes):
        grid = make_grid(world("bandit"), {n: v for n, v in sizes.items()}, method="rloo", lr=1, steps=5)
        return [(p.program.batch, p.program.group) for p in plan.make_plan(grid, 2)]

    assert programs(group_size=[6, 8], batch_size=[28, 32]) == [(32, 8)]
    assert programs(batch_size=[4, 32]) == [(32, 8), (4, 8)]
    assert programs(answers=[4, 16]) == [(32, 8), (32, 8)]


@pytest.mark.parametrize("lanes", [1, 7, 160, 1000])
@pytest.mark.parametrize("seeds", [1, 5, 64])
def test_a_plan_holds_every_cell_once(lanes, seeds):
    rates = np.linspace(0.1, 1, lanes).tolist()
    tied = {"odd": {"kl_coef": [0.0, 0.1, 0.2], "method": ["rloo", "rloo", "grpo"]}}
    grid = make_grid(world("bandit"), {"lr": rates, "seed": {"range": [0, seeds]}}, tied=tied, steps=100)
    parts = plan.make_plan(grid, 2)
    cells = np.concatenate([part.cell[part.real] for part in parts])
    np.testing.assert_array_equal(np.sort(cells), np.arange(grid.cells))
    for part in parts:
        layout = part.program.layout
        assert layout.width % 16 == 0
        assert part.items % 2 == 0
        methods = [name for name, size in layout.blocks for _ in range(size)]
        names = np.array(WORLDS["bandit"].parameters["method"].choices)
        given = names[grid.columns["method"][part.cell]]  # [N, C, W]
        assert (given == np.array(methods)[None, :, None]).all()
        seed = grid.columns["seed"][part.cell]
        assert (seed == seed[:, :1]).all()


def test_segments_end_at_every_evaluation():
    for steps in (0, 1, 7, 100):
        for slices in (1, 3, 10):
            evaluations = sorted({0, min(3, steps), steps})
            cut = engine.Segments.cut(evaluations, slices)
            assert cut.stop[cut.counted].tolist() == evaluations
            flat = np.concatenate([np.append(b, s) for b, s in zip(cut.begin, cut.stop, strict=True)])
            assert (np.diff(flat) >= 0).all()
            assert flat[-1] == steps


def test_a_lane_that_goes_non_finite_is_frozen_and_named(name, contract, whole):
    """lr 1e38 overflows; its neighbours in the same program do not notice."""
    usual = contract.cell.get("lr", world(name).parameters["lr"].default)
    rates = [usual, 1e38, 2.0]
    fixed = {"method": "grpo", **contract.plain, **contract.cell}
    fixed.pop("lr", None)
    with pytest.warns(RuntimeWarning, match=r"cells? went non-finite .* lr=1e\+38 seed=0 at step \d+"):
        out = rj.sweep(name, {"lr": rates, "seed": [0, 1]}, **contract.common, **fixed)
    assert (out["diverged_step"].sel({"lr": 1e38}) > 0).all()
    assert "lr=1e+38 seed=1" in out.attrs["diverged"]
    undefined = {"zero_frac", "grad_norm", "equal_outcome_frac", "push_equal", "push_mixed"}  # at step 0
    for metric, values in out.data_vars.items():
        assert np.isfinite(values.sel({"lr": 1e38})).all() or metric in undefined, metric
    after = out.sel({"lr": 1e38, "seed": 0})
    late = after["step"].values[after["step"].values > int(after["diverged_step"])]
    assert len(np.unique(after["accuracy"].sel({"step": late}))) == 1  # frozen
    kept = out.sel({"lr": [usual]})
    del kept.attrs["diverged"]
    same = whole.sel({"seed": [0, 1], **fixed})
    assert_same(kept, same.sel({"lr": [usual]}) if "lr" in whole.dims else same.expand_dims({"lr": [usual]}))


def test_an_injected_nan_stays_in_its_lane(name, contract):
    """A NaN learning rate, which no grid lets through, reaches the program all the same."""
    grid = make_grid(world(name), {"lr": [0.5, 1.0, 2.0]}, method="rloo", **contract.common)
    (part,) = plan.make_plan(grid, 1)
    work = part.work(grid)
    devices = jax.devices()[:1]

    def run():
        (chunk,) = engine.run(work, devices, engine.Clock())
        return chunk

    clean = run()
    work.inputs["numbers"]["lr"][0, 1] = np.nan
    hurt = run()
    assert hurt.finals["diverged_step"][0, 1] == 1
    assert (hurt.finals["diverged_step"][0, [0, 2]] == -1).all()
    assert np.isfinite(hurt.metrics["accuracy"]).all()
    for metric, values in clean.metrics.items():
        np.testing.assert_array_equal(values[..., [0, 2]], hurt.metrics[metric][..., [0, 2]], err_msg=metric)
    assert (hurt.metrics["accuracy"][0, :, 1] == hurt.metrics["accuracy"][0, 0, 1]).all()


def test_ctrl_c_keeps_what_had_finished(monkeypatch):
    monkeypatch.setattr(plan, "CALL_BYTES", 1)
    run, calls = engine.run, itertools.count()

    def stopped(*arguments):
        for chunk in run(*arguments):
            if next(calls) == 2:
                raise KeyboardInterrupt
            yield chunk

    monkeypatch.setattr(engine, "run", stopped)
    cells = {"lr": np.geomspace(0.1, 1, 160).tolist(), "seed": {"range": [0, 12]}}
    with pytest.raises(rj.Interrupted, match=r"stopped: \d+ of 1920 cells had finished") as stop:
        rj.sweep("bandit", cells, method="rloo", steps=10, prompts=50)
    kept = stop.value.results
    finished = np.isfinite(kept["accuracy"].isel(step=-1)).values
    assert finished.sum() == stop.value.finished > 0
    assert not finished.all()
    monkeypatch.undo()
    entire = rj.sweep("bandit", cells, method="rloo", steps=10, prompts=50)
    np.testing.assert_array_equal(kept["accuracy"].values[finished], entire["accuracy"].values[finished])


def test_the_result_says_what_it_is():
    out = rj.sweep("bandit", {"method": ["rloo", "grpo"]}, steps=10, lr=0.5, prompts=50, keep=["accuracy", "logits"])
    assert out["accuracy"].dims == ("method", "step")
    assert out["logits"].dims == ("method", "prompt", "answer")
    assert out["accuracy"].dtype == np.float32
    assert set(out.data_vars) == {"accuracy", "logits", "diverged_step"}
    for name in ("spec", "spec_sha256", "versions", "device_kind", "wall_seconds", "compile_seconds"):
        assert name in out.attrs
    double = rj.sweep("bandit", {"method": ["rloo", "grpo"]}, steps=10, lr=0.5, prompts=50, precision="float64")
    assert double["accuracy"].dtype == np.float64
    np.testing.assert_allclose(out["accuracy"], double["accuracy"], rtol=0, atol=1e-5)
    assert out.attrs["spec_sha256"] != double.attrs["spec_sha256"]


def test_starting_jax_first_is_said_where_it_costs_cores():
    script = "import jax; jax.devices(); import rlvr_jax as rj; rj.sweep('bandit', {}, method='none', lr=1, steps=0)"
    environment = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cores = len(os.sched_getaffinity(0))
    said = f"JAX was started before rlvr_jax was imported and has 1 CPU device for {cores} cores" in done.stderr
    assert said == (cores > 1)
