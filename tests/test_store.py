"""Stores: equal to the sweep in memory, resumed and extended to the bit, refused where they mean something else."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import rlvr_jax as rj
from rlvr_jax import (
    captions,
    checks,
    declaration,
    disk,
    driver,
    engine,
    export,
    files,
    inspection,
    plan,
    plots,
    receipts,
    session,
    tasks,
    template,
)
from rlvr_jax.addresses import addresses
from rlvr_jax.bandit import PARAMETERS
from rlvr_jax.disk import UNUSED
from rlvr_jax.executors import Crew
from rlvr_jax.grid import make_grid
from rlvr_jax.kept import Kept
from rlvr_jax.problems import make_problems
from rlvr_jax.worlds import world

RATES = np.geomspace(0.05, 2.0, 20).tolist()
AXES = {"method": ["rloo", "grpo"], "lr": RATES, "seed": {"range": [0, 6]}}
FIXED = {
    **{"steps": 20, "eval_every": 10, "prompts": 20, "answers": 4, "batch_size": 4, "group_size": 4},
    "keep": ["accuracy", "accuracy.final", "accuracy.area", "accuracy_by_level", "zero_frac", "zero_frac_total"],
}


def grid(axes=AXES, tied=None, **fixed):
    return make_grid(world("bandit"), axes, tied=tied, **{**FIXED, **fixed})


def sweep(axes=AXES, tied=None, **fixed):
    return rj.sweep("bandit", axes, tied=tied, progress=False, **{**FIXED, **fixed})


def assert_same(stored, expected):
    """Equal to the bit, coordinates and labels included; the attributes say other things."""
    assert stored.load().drop_attrs().identical(expected.drop_attrs())


def assert_columns_say(store, grid):
    """The columns of a store say of each slot what its cell is."""
    header = disk.read_header(store)
    places = header.places.reshape(-1)
    for name, column in grid.columns.items():
        parameter, array = grid.world.parameters[name], header.array(name)
        values = np.asarray(array[:])[places >= 0]
        expected = column[places[places >= 0]]
        if parameter.choices or parameter.scheduled:
            names = parameter.choices or [getattr(value, "name", str(value)) for value in grid.schedules]
            values, expected = np.array(array.attrs["labels"])[values], np.array(names)[expected]
        np.testing.assert_array_equal(values, expected, err_msg=name)


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    """One item for each device in a call, so that this small grid is several tasks."""
    monkeypatch.setattr(plan, "CALL_BYTES", 1)


@pytest.fixture(scope="module")
def expected():
    return sweep()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished store, to be copied."""
    path = tmp_path_factory.mktemp("finished") / "study.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "CALL_BYTES", 1)
        outcome = driver.run(grid(), path)
    assert (outcome.computed, outcome.found, outcome.failed) == (240, 0, {})
    return path


@pytest.fixture
def store(finished, tmp_path):
    """A finished store of one's own."""
    path = tmp_path / "study.zarr"
    files_of = [file for file in finished.rglob("*") if file.is_file()]
    for file in files_of:
        copy = path / file.relative_to(finished)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    for folder in ("failed", "records"):
        (path / "run" / folder).mkdir(exist_ok=True)
    return path


@pytest.fixture
def trained(monkeypatch):
    """Counts the tasks that are trained."""
    counted = []
    real = tasks.train

    def train(*arguments):
        counted.append(arguments[3])
        return real(*arguments)

    monkeypatch.setattr(tasks, "train", train)
    return counted


def receipt(store, number):
    return store / "run" / "receipts" / f"{number:08d}.json"


def cells_of(store, number):
    return int((disk.read_header(store).places[number] >= 0).sum())


# What a store holds


def test_a_store_holds_what_the_sweep_returns(finished, expected):
    stored = rj.open_store(finished)
    assert_same(stored, expected)
    for name in ("world", "spec", "spec_sha256", "versions", "device_kind"):
        assert stored.attrs[name] == expected.attrs[name]
    assert "unfinished" not in stored.attrs
    assert disk.read_header(finished).chunks == 3


SELECTIONS = [
    {"method": 1, "lr": slice(3, 15, 4), "seed": [5, 0, 2]},
    {"lr": [7], "step": 1},
    {"seed": -1, "step": slice(None, None, -1)},
    {"method": [1, 0], "lr": [0, 0, 19], "step": [0, 2]},
    {"method": 0, "lr": 0, "seed": 0, "step": 0},
    {"seed": []},
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
def test_a_selection_reads_what_it_needs(finished, expected, selection, monkeypatch):
    stored = rj.open_store(finished)
    assert stored["accuracy_by_level"].isel(selection).identical(expected["accuracy_by_level"].isel(selection))
    read = []
    monkeypatch.setattr("rlvr_jax.store._Cells._chunk", lambda self, number: read.append(number))
    rj.open_store(finished)
    assert read == []  # opening reads no results


def test_other_readers_find_a_table_of_cells(finished, expected):
    raw = xr.open_zarr(finished, consolidated=False).load()
    header = disk.read_header(finished)
    raw = raw.isel(cell=np.flatnonzero(raw[f"place_{header.declaration}"].values >= 0))
    assert raw.sizes["cell"] == 240
    meanings = raw["method"].attrs["flag_meanings"].split()
    for i in (0, 100, 239):
        row = raw.isel(cell=i)
        at = {"method": meanings[int(row["method"])], "lr": float(row["lr"]), "seed": int(row["seed"])}
        np.testing.assert_array_equal(row["accuracy"], expected["accuracy"].sel(at))
    assert raw["level"].attrs["flag_meanings"].split()[0] == "very_hard_1%"
    assert {"prompts", "lr_h", "prompt_seed", "hack_reward"} <= set(raw.coords)


def test_no_axes_float64_and_a_schedule_on_an_axis(tmp_path):
    axes = {"hack_reward": [0.0, {"name": "late", "schedule": [[0, 0.0], [11, 1.0]]}]}
    for parameters, options in (({}, {"precision": "float64"}), (axes, {})):
        path = tmp_path / f"{len(parameters)}.zarr"
        driver.run(grid(parameters, method="rloo", lr=0.5, **options), path)
        assert_same(rj.open_store(path), sweep(parameters, method="rloo", lr=0.5, **options))


def test_forms_of_a_metric_are_taken_from_its_curve(expected):
    np.testing.assert_array_equal(expected["accuracy_final"], expected["accuracy"].isel(step=-1))
    area = np.trapezoid(expected["accuracy"].astype(np.float64), [0, 10, 20], axis=-1) / 20
    np.testing.assert_allclose(expected["accuracy_area"], area, rtol=1e-6)
    curve = np.array([[np.nan, 0.5, 1.0], [1.0, 0.0, 0.0]])
    assert Kept("zero_frac", "area").of(curve, [0, 10, 30]).tolist() == [(5 + 15) / 30, 5 / 30]


def test_no_variable_can_be_mistaken_for_a_form_of_another():
    for metrics in (world(name).metrics for name in ("bandit", "tool_use")):
        names = [Kept(name, form).name for name in metrics for form in ("", "final", "area")]
        assert len(set(names)) == len(names)


def test_cells_that_are_not_finished_are_nan_and_counted(store, expected):
    receipt(store, 1).unlink()
    missing = cells_of(store, 1)
    stored = rj.open_store(store)
    assert stored.attrs["unfinished"] == f"{missing} of 240 cells are not finished and are NaN"
    held = np.isfinite(stored["accuracy_final"]).values
    assert (~held).sum() == missing == (stored["accuracy_final"].isnull()).sum()
    np.testing.assert_array_equal(stored["accuracy"].values[held], expected["accuracy"].values[held])


def test_another_world_with_a_set_of_its_own(tmp_path):
    """The tool-use world, fixed to problems that no number makes: a process without them can still do its tasks."""
    path, problems = tmp_path / "tool.zarr", make_problems(30, 7)
    axes = {"method": ["rloo", "grpo"], "call_cost": [0.0, 0.1], "cold_start": [False, True], "seed": {"range": [0, 4]}}
    fixed = {"steps": 3, "train_problems": problems, "test_problems": 10, "sft_examples": 5, "sft_epochs": 2}
    keep = ["accuracy", "accuracy.area", "call_prob.final", "theta"]
    first = make_grid(world("tool_use"), axes, keep=keep, **fixed)
    assert driver.run(first, path).computed == 32
    more = axes | {"seed": {"range": [0, 6]}}
    assert driver.run(make_grid(world("tool_use"), more, keep=keep, **fixed), path).computed == 16
    assert_same(rj.open_store(path), rj.sweep("tool_use", more, progress=False, keep=keep, **fixed))
    assert checks.verify(path).reasons == []
    before = receipts.read(disk.read_header(path).receipts)[0]
    assert session.run_task(path, 0, 2**30).files == before.files
    assert (
        addresses(first).tolist()
        != addresses(
            make_grid(world("tool_use"), axes, keep=keep, **fixed | {"train_problems": make_problems(30, 8)})
        ).tolist()
    )
    with pytest.raises(
        rj.InvalidInput, match=r"has train_problems \{'problems': 30, .* keeps its cells: choose another place"
    ):
        driver.run(make_grid(world("tool_use"), more, keep=keep, **fixed | {"train_problems": 30}), path)


# Addresses


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"lr": 0.5, "batch_size": 4}, {"lr": 0.5, "batch_size": 4, "lr_h": 0.125}),
        ({"seed": 3}, {"seed": 3, "prompt_seed": 3}),
        ({"hack_reward": 0.5}, {"hack_reward": {"name": "always", "schedule": [[0, 0.5]]}}),
        (
            {"hack_reward": {"name": "a", "schedule": [[0, 1.0], [5, 0.0]]}},
            {"hack_reward": {"name": "b", "schedule": [[0, 1.0], [3, 1.0], [5, 0.0]]}},
        ),
        ({"kl_coef": 0.0}, {"kl_coef": -0.0}),
        ({"eval_every": 5}, {"eval_every": 2, "keep": ["kl"]}),
    ],
)
def test_what_is_trained_alike_has_one_address(one, other):
    fixed = {"method": "rloo", "lr": 0.5}
    assert (addresses(grid({}, **fixed | one)) == addresses(grid({}, **fixed | other))).all()


def test_every_parameter_counts():
    plain = {"method": "rloo", "lr": 0.5, "steps": 20, "batch_size": 4, "prompts": 50, "answers": 8, "seed": 1}
    seen = {addresses(make_grid(world("bandit"), {}, **plain)).tobytes()}
    changes = {"method": "grpo", "train_fraction": 0.5, "hack_prob": 0.1, "hack_reward": [[0, 0.0], [3, 1.0]]}
    for number, (name, parameter) in enumerate(PARAMETERS.items(), 3):
        value = changes.get(name, 2 * number if parameter.whole else 1 / number)
        seen.add(addresses(make_grid(world("bandit"), {}, **plain | {name: value})).tobytes())
        assert len(seen) == number - 1


def test_a_parameter_that_becomes_an_axis_leaves_addresses_as_they_are():
    one = grid({"seed": {"range": [0, 5]}}, method="rloo", lr=0.5)
    many = grid({"lr": [0.1, 0.5], "seed": {"range": [3, 9]}, "method": ["grpo", "rloo"]})
    table = addresses(many).reshape(2, 6, 2, 2)
    assert (table[1, :2, 1] == addresses(one)[3:]).all()
    assert len(np.unique(addresses(many), axis=0)) == many.cells


# Resuming and extending


def test_nothing_is_computed_twice(store, trained, expected):
    outcome = driver.run(grid(), store)
    assert (outcome.computed, outcome.found, trained) == (0, 240, [])
    receipt(store, 1).unlink()
    outcome = driver.run(grid(), store)
    assert (outcome.computed, outcome.found, len(trained)) == (cells_of(store, 1), 240 - cells_of(store, 1), 1)
    assert_same(rj.open_store(store), expected)


def test_a_stop_keeps_what_had_finished(tmp_path, monkeypatch, expected):
    real, calls = engine.run, itertools.count()

    def stopped(*arguments):
        if next(calls) == 2:
            raise KeyboardInterrupt
        yield from real(*arguments)

    path = tmp_path / "study.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", stopped)
        with pytest.raises(driver.Stopped) as stop:
            driver.run(grid(), path)
    finished = stop.value.finished
    assert 0 < finished < stop.value.cells == 240
    assert inspection.status(path)["done"] == finished
    outcome = driver.run(grid(), path)
    assert (outcome.found, outcome.computed) == (finished, 240 - finished)
    assert_same(rj.open_store(path), expected)


EXTENSIONS = {
    "more seeds": ({"seed": {"range": [0, 9]}}, {}, 2 * 20 * 3),
    "more values": ({"lr": [1e-3, *RATES, 5.0]}, {}, 2 * 2 * 6),
    "another method": ({"method": ["grpo", "learned", "rloo"]}, {}, 20 * 6),
    "a fixed parameter as an axis": ({"kl_coef": [0.0, 0.1]}, {}, 240),
    "a larger group": ({"group_size": [4, 6]}, {"group_size"}, 240),
    "the axes in another order": ({"seed": {"range": [0, 6]}, "lr": RATES, "method": ["rloo", "grpo"]}, None, 0),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_computes_only_the_new_cells(store, name):
    change, without, new = EXTENSIONS[name]
    axes = change if without is None else AXES | change
    fixed = {key: value for key, value in FIXED.items() if key not in (without or ())}
    wanted = make_grid(world("bandit"), axes, **fixed)
    outcome = driver.run(wanted, store)
    assert (outcome.computed, outcome.found) == (new, 240)
    assert_same(rj.open_store(store), rj.sweep("bandit", axes, progress=False, **fixed))
    assert checks.verify(store).reasons == []
    assert_columns_say(store, wanted)
    # the smaller spec is still answered, without computing anything
    assert driver.run(grid(), store).computed == 0
    assert rj.open_store(store)["accuracy"].sizes["seed"] == len(wanted.values("seed"))


def test_an_extension_twice_and_a_stop_in_between(store, monkeypatch):
    first = grid(AXES | {"seed": {"range": [0, 9]}})
    with monkeypatch.context() as patch:
        patch.setattr(disk, "commit", lambda header: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            driver.run(first, store)
    assert rj.open_store(store)["accuracy"].sizes["seed"] == 6  # it was not declared
    assert driver.run(first, store).computed == 120
    schedule = {"name": "late", "schedule": [[0, 0.0], [11, 1.0]]}
    axes = AXES | {"seed": {"range": [0, 9]}, "hack_reward": [schedule, 0.0]}
    assert driver.run(grid(axes), store).computed == 360
    assert_columns_say(store, grid(axes))
    assert_same(rj.open_store(store), sweep(axes))
    labels = xr.open_zarr(store, consolidated=False)["hack_reward"].attrs["labels"]
    assert labels == ["0.0", "late"]  # codes that are in use keep their meaning


def test_a_smaller_spec_is_answered_from_the_store(store, expected, trained):
    axes = {"seed": [4, 1], "method": ["grpo"]}
    outcome = driver.run(grid(axes, lr=RATES[3]), store)
    assert (outcome.computed, outcome.found, trained) == (0, 2, [])
    part = expected.sel({"method": ["grpo"], "seed": [4, 1], "lr": RATES[3]}).transpose("seed", "method", ...)
    results = outcome.results()
    for name, values in results.data_vars.items():
        np.testing.assert_array_equal(values, part[name])
    assert json.loads(results.attrs["spec"])["axes"][0]["values"] == {"seed": [4, 1]}


def test_a_smaller_spec_computes_only_the_tasks_that_it_needs(store, trained):
    for number in range(3):
        receipt(store, number).unlink()
    header = disk.read_header(store)
    seeds = {n: {int(c) % 6 for c in header.places[n][header.places[n] >= 0]} for n in range(3)}
    wanted = min(seeds[1])
    outcome = driver.run(grid({"method": ["rloo", "grpo"], "lr": RATES}, seed=wanted), store)
    needed = [n for n in range(3) if wanted in seeds[n]]
    assert len(trained) == len(needed) < 3
    assert np.isfinite(outcome.results()["accuracy_final"]).all()


OTHER_STUDIES = [
    ({"steps": 30}, "steps is 20 there and 30 in this spec"),
    ({"eval_every": 5}, "eval_steps is [0, 10, 20] there and [0, 5, 10, 15, 20] in this spec"),
    ({"precision": "float64"}, "precision is float32 there and float64 in this spec"),
    (
        {"keep": ["accuracy"]},
        "keep is ['accuracy', 'accuracy.final', 'accuracy.area', 'accuracy... there and ['accuracy']",
    ),
]


@pytest.mark.parametrize(("change", "sentence"), OTHER_STUDIES, ids=lambda x: str(x)[:20])
def test_another_study_is_refused_and_the_difference_named(store, trained, change, sentence):
    with pytest.raises(rj.InvalidInput) as refusal:
        driver.run(grid(**change), store)
    assert str(refusal.value).startswith(f"{store} holds another study: {sentence}")
    assert trained == []


def test_another_world_and_other_shapes_are_refused(store, tmp_path):
    other = make_grid(world("tool_use"), {"seed": [0, 1]}, method="rloo", steps=20)
    with pytest.raises(rj.InvalidInput, match=r"holds another study: world is bandit there and tool_use in this spec"):
        driver.run(other, store)
    path, fixed = tmp_path / "prompts.zarr", {"method": "rloo", "lr": 0.5, "keep": ["correct_prob"]}
    driver.run(grid({}, **fixed), path)
    shapes = re.escape("correct_prob has shape (3, 20) for each cell there and (3, 30) in this spec")
    with pytest.raises(rj.InvalidInput, match=shapes):
        driver.run(grid({}, **fixed | {"prompts": 30}), path)


LEFT_OUT = [
    ({"seed": {"range": [6, 9]}}, "has seed 0, 1, 2, 3, 4, 5, and this spec has 6, 7, 8;"),
    ({"method": ["rloo", "learned"]}, "has method rloo, grpo, and this spec has rloo, learned;"),
    ({"lr": [7.0]}, f"has lr 0.05, {RATES[1]}, {RATES[2]}, ..., 2.0, and this spec has 7.0;"),
]


@pytest.mark.parametrize(("change", "sentence"), LEFT_OUT, ids=lambda x: str(x)[:20])
def test_a_spec_that_leaves_cells_out_and_has_others_is_refused(store, change, sentence):
    with pytest.raises(rj.InvalidInput) as refusal:
        driver.run(grid(AXES | change), store)
    assert sentence in str(refusal.value)


def test_chunks_of_few_devices_are_extended_on_a_machine_with_more(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "CALL_BYTES", 2**30)
    path, fixed = tmp_path / "study.zarr", {"method": "rloo", "lr": 0.5}
    template.create(path, grid({"seed": [0, 1]}, **fixed), 1024, {})
    more = grid({"lr": np.linspace(0.5, 1.0, 512).tolist(), "seed": {"range": [0, 64]}}, method="rloo")
    for devices in (1, 8, 64):
        for part in plan.make_plan(more, devices, plan.Limits(1024)):
            assert part.items * part.program.layout.width <= 1024
    with Crew() as crew:
        monkeypatch.setattr(Crew, "machine", replace(crew.machine, devices=8))
        header, _ = declaration.declared(more, disk.read_header(path), crew, False, True)
    assert (header.cells, header.chunk_cells) == (512 * 64, 1024)
    assert checks.verify(path).reasons == []


def test_a_damaged_data_set_is_made_again_or_refused_and_nothing_else_is_touched(tmp_path):
    path, problems = tmp_path / "tool.zarr", make_problems(30, 7)
    fixed = {"steps": 3, "train_problems": problems, "test_problems": 10, "method": "rloo"}
    there = make_grid(world("tool_use"), {"seed": [0, 1]}, **fixed)
    template.create(path, there, 1024, {})
    with Crew() as crew:
        header, _ = declaration.declared(there, disk.read_header(path), crew, False, True)
    about = {"device_kind": "cpu", "processor": "", "versions": {"jaxlib": "0"}, "host": "", "finished": ""}
    hash_ = session.Session(header, there, 0).address_hash(0)
    receipts.Receipt(task=0, cells=2, addresses=hash_, files={}, diverged=0, seconds=1.0, **about).write(
        header.receipts
    )
    (file,) = header.records.iterdir()
    text, before = file.read_bytes(), receipts.read(header.receipts)
    file.write_bytes(text + b"\n")
    assert list(checks.verify(path).lost) == [f"run/records/{file.name}"]
    assert driver.repair(path, [], True).computed == 0
    assert (file.read_bytes(), receipts.read(header.receipts)) == (text, before)
    for harm in (lambda: file.write_bytes(text[: text.rindex(b"{")]), file.unlink):
        harm()
        for act in (lambda: checks.verify(path), lambda: driver.repair(path, [], True)):
            with pytest.raises(rj.InvalidInput, match=r"is damaged: .* running its spec again makes train_problems ag"):
                act()
        assert receipts.read(header.receipts) == before
        assert driver.run(there, path, mixed=True).computed == 0
        assert file.read_bytes() == text
    assert checks.verify(path).reasons == []


def test_lost_coordinates_are_named(store):
    (store / "step" / "c.0").unlink()
    with pytest.raises(rj.InvalidInput, match=r"step cannot be read \(its values are missing\); .* --repair makes it"):
        rj.open_store(store)


def test_a_task_is_known_by_its_number(store, expected):
    before = receipts.read(disk.read_header(store).receipts)
    for file in before[2].files:
        (store / file).unlink()
    receipt(store, 2).unlink()
    again = session.run_task(store, 2, 2**30)
    assert (again.files, again.addresses) == (before[2].files, before[2].addresses)
    assert receipts.read(disk.read_header(store).receipts)[2] == again
    assert_same(rj.open_store(store), expected)


def test_less_memory_gives_smaller_calls_and_the_same_bits(tmp_path, monkeypatch, expected):
    monkeypatch.setattr(plan, "CALL_BYTES", 2**30)
    calls, bytes_of = [], []
    real, needed = engine.run, tasks._bytes
    monkeypatch.setattr(engine, "run", lambda work, *rest: calls.append(work.items) or real(work, *rest))
    monkeypatch.setattr(tasks, "_bytes", lambda *given: bytes_of.append(needed(*given)) or bytes_of[-1])
    path = tmp_path / "study.zarr"
    driver.run(grid(), path)
    assert (calls, disk.read_header(path).chunks) == ([6], 1)
    receipt(path, 0).unlink()
    with pytest.raises(rj.InvalidInput, match=r"one call of the smallest size takes \d+ MiB, and 0 MiB may be used"):
        driver.run(grid(), path, memory=100_000)
    assert driver.run(grid(), path, memory=bytes_of[0] - 1).computed == 240
    assert calls[1] < 6
    assert bytes_of[-1] < bytes_of[0]
    assert_same(rj.open_store(path), expected)


def test_a_budget_of_bytes_is_refused_in_bytes():
    with pytest.raises(rj.InvalidInput, match=r"240 cells, whose indices take \d+\.\d KiB; 1 bytes is free: run it in"):
        plan.check_memory(grid(), 1, stored=True)


def test_calls_of_an_extension_are_cut_by_what_was_measured(store):
    header = disk.read_header(store)
    assert declaration._speed(grid(), header, header.places, 2) == plan.SPEED  # tasks of milliseconds tell nothing
    for number, seconds in enumerate((0.5, 0.6, 2.0)):
        elsewhere(store, number, seconds=seconds)
    work = plan.seconds_of(grid(), 1.0)[header.places[1][header.places[1] >= 0]].sum()
    speed = work / 0.6 / 2
    assert declaration._speed(grid(), header, header.places, 2) == pytest.approx(speed)


def test_a_failed_task_is_kept_in_mind_and_tried_again(store, monkeypatch, expected):
    for number in (0, 1):
        receipt(store, number).unlink()
    real, calls = engine.run, itertools.count()

    def failing(*arguments):
        if next(calls) in (0, 2, 3):  # the first task, and the first one again, after the second
            raise RuntimeError("out of luck")
        yield from real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", failing)
        outcome = driver.run(grid(), store)
    (fault,) = outcome.failed.values()
    assert (fault.task, fault.error) == (0, "RuntimeError: out of luck")
    assert next(calls) == 4
    assert outcome.computed == cells_of(store, 1)
    status = inspection.status(store)
    assert (status["failed"], status["missing"], status["running"]) == (cells_of(store, 0), 0, 0)
    assert re.fullmatch(
        r"RuntimeError: out of luck \(\d+ cells; method rloo, grpo; lr .*; seed \d.*\)", status["errors"]["0"]
    )
    assert driver.run(grid(), store).failed == {}
    assert inspection.status(store)["errors"] == {}
    assert_same(rj.open_store(store), expected)


# Where numbers come from


def elsewhere(store, number, **change):
    """Says of a chunk that something else has computed it."""
    header = disk.read_header(store)
    replace(receipts.read(header.receipts)[number], **change).write(header.receipts)


def test_another_device_kind_or_jaxlib_is_refused_unless_it_may_be_mixed(store):
    elsewhere(store, 0, device_kind="NVIDIA H200", processor="")
    receipt(store, 1).unlink()
    here = rf"{rj.open_store(store).attrs['device_kind'].split(', ')[-1]} \(.*\) with jaxlib"
    with pytest.raises(rj.InvalidInput, match=rf"was computed on NVIDIA H200 with jaxlib .*, and this is {here}"):
        driver.run(grid(), store)
    versions = receipts.read(disk.read_header(store).receipts)[2].versions
    elsewhere(store, 0, processor="aarch64, features 0123abcd")
    with pytest.raises(rj.InvalidInput, match=r"\(aarch64, features 0123abcd\) with jaxlib .*\(--mixed\)$"):
        driver.run(grid(), store)
    elsewhere(store, 0, versions=versions | {"jaxlib": "0.9.9"})
    with pytest.raises(rj.InvalidInput, match=r"with jaxlib 0\.9\.9, and this is .*\(--mixed\)$"):
        driver.run(grid(), store)
    elsewhere(store, 0, device_kind="NVIDIA H200")
    assert driver.run(grid(), store, mixed=True).computed == cells_of(store, 1)
    assert rj.open_store(store).attrs["device_kind"] == "NVIDIA H200, cpu"
    assert sorted(inspection.status(store)["computed_on"].values()) == [1, 2]
    # what is there is read without asking
    assert driver.run(grid(), store).computed == 0


# Status and export


def test_status_counts_every_cell_once(store):
    receipt(store, 1).unlink()
    status = inspection.status(store)
    assert status["cells"] == 240 == sum(status[kind] for kind in ("done", "running", "missing", "failed"))
    assert (status["missing"], status["chunks"], status["chunks_done"]) == (cells_of(store, 1), 3, 2)
    assert status["cells_per_second"] > 0
    assert status["seconds_left"] > 0
    assert status["driver"] is None


def test_a_summary_has_a_row_for_each_configuration(store, expected, tmp_path):
    import pandas as pd

    out = tmp_path / "deep" / "summary.csv"
    export.write(rj.open_store(store), out)
    table = pd.read_csv(out)
    assert len(table) == 40
    row = table[(table.method == "grpo") & np.isclose(table.lr, RATES[4])].iloc[0]
    values = expected["accuracy_area"].sel({"method": "grpo", "lr": RATES[4]})
    assert row["accuracy_area_mean"] == pytest.approx(float(values.mean()), rel=1e-6)
    assert row["accuracy_sd"] == pytest.approx(
        float(expected.accuracy.isel(step=-1, method=1, lr=4).std(ddof=1)), rel=1e-5
    )
    assert row["accuracy_n"] == 6
    assert not any("level" in column for column in table.columns)
    assert [path.name for path in out.parent.iterdir()] == ["summary.csv"]


@pytest.mark.parametrize("suffix", [".nc", ".parquet"])
def test_other_formats_hold_the_same_or_say_what_they_need(store, tmp_path, suffix):
    out, results = tmp_path / f"study{suffix}", rj.open_store(store)
    needed = [name for name in export.FORMATS[suffix] if export.find_spec(name) is None]
    if needed:
        with pytest.raises(rj.InvalidInput, match=rf"{suffix} needs {' and '.join(needed)}; install"):
            export.write(results, out)
        return
    export.write(results, out)
    if suffix == ".nc":
        with xr.open_dataset(out, engine="h5netcdf") as read:
            assert read.load().drop_attrs().equals(results.load().drop_attrs())
    else:
        import pandas as pd

        pd.testing.assert_frame_equal(pd.read_parquet(out), export.summary(results))


def test_places_of_padding_hold_no_numbers(finished):
    header = disk.read_header(finished)
    places = header.places.reshape(-1)
    accuracy = np.asarray(header.array("accuracy_final")[:])
    assert np.isfinite(accuracy[places >= 0]).all()
    assert np.isnan(accuracy[places < 0]).all()
    assert ((places < 0) & (places != UNUSED)).any()


def test_files_are_replaced_whole(tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    files.write_json(file, {"a": 1})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            files.write_json(file, {"a": 2})
    assert files.read_json(file) == {"a": 1}
    assert list(tmp_path.iterdir()) == [file]


def test_axes_that_move_together_are_stored_and_extended(tmp_path):
    path, tied = tmp_path / "tied.zarr", {"run": {"kl_coef": [0.0, 0.1], "lr_h": [0.02, 0.05]}}
    fixed = {"method": "rloo", "lr": 0.5}
    assert driver.run(grid({"seed": [0, 1]}, tied, **fixed), path).computed == 4
    more = {"run": {"kl_coef": [0.0, 0.1, 0.1], "lr_h": [0.02, 0.05, 0.1]}}
    assert driver.run(grid({"seed": [0, 1]}, more, **fixed), path).computed == 2
    assert_same(rj.open_store(path), sweep({"seed": [0, 1]}, more, **fixed))


def test_a_figure_of_partial_results_says_so(store, tmp_path):
    receipt(store, 1).unlink()
    facts = captions.caption(rj.open_store(store), "Accuracy.", {})
    sentence = f"Partial results: {cells_of(store, 1)} of 240 cells are not finished and are NaN."
    assert facts["unfinished"] == sentence
    figure = plots.new_figure("neurips", 2.0)
    plots.panels(figure, 1, 1)
    plots.save(figure, tmp_path / "figure", facts)
    assert figure.get_supxlabel() == sentence


def test_a_reader_that_is_overtaken_by_an_extension_reads_the_new_store(store, monkeypatch):
    stale = disk.read_header(store)
    driver.run(grid(AXES | {"seed": {"range": [0, 7]}}), store)
    real, first = disk.read_header, iter([stale])
    monkeypatch.setattr(disk, "read_header", lambda path: next(first, None) or real(path))
    assert rj.open_store(store)["accuracy"].sizes["seed"] == 7


def test_a_single_training_keeps_forms_too():
    task, fixed = rj.bandit.make_task(prompts=20, answers=4), {"method": "rloo", "lr": 0.5, "batch_size": 4}
    run = rj.bandit.train(task, steps=20, eval_every=10, keep=["accuracy", "accuracy.final", "kl.area"], **fixed)
    assert set(run) == {"step", "accuracy", "accuracy_final", "kl_area", "zero_frac_total", "logits", "diverged_step"}
    assert run["accuracy_final"] == run["accuracy"][-1]
    assert run["kl_area"].shape == ()
