"""Stores under faults that are really injected: killed drivers, damaged files, full disks, second drivers.

The drivers that are killed are processes of their own; they share a compile cache.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rlvr_jax as rj
from rlvr_jax import checks, disk, driver, inspection, lock, plan, spec, template
from rlvr_jax.cli import main
from rlvr_jax.receipts import Receipt

SPEC = """
world = "bandit"
steps = 150
prompts = 20
answers = 4
batch_size = 8
group_size = 4
eval_steps = []
keep = ["accuracy.final", "accuracy.area", "kl.final"]
[parameters]
method = ["rloo", "grpo"]
lr = { min = 0.05, max = 2.0, num = 16, scale = "log" }
seed = { range = [0, 640] }
"""

#: One life of a driver, cut into about 40 tasks of a tenth of a second.
# a shell starts what it puts in the background with SIGINT ignored, and that is inherited
DRIVER = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rlvr_jax import plan; plan.CALL_SECONDS = {}; from rlvr_jax.cli import main; sys.exit(main())"
)
COMMAND = ["run", "study.toml", "--out", "study.zarr", "--no-figures", "--json"]
KILLS = 20


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(SPEC)


@pytest.fixture
def small_tasks(monkeypatch):
    monkeypatch.setattr(plan, "CALL_SECONDS", 0.02)


@contextlib.contextmanager
def life(*more, seconds=0.02):
    """A driver as a process of its own, which is dead when the block is left."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", DRIVER.format(seconds), *COMMAND, *more]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def events(text):
    """The whole lines of what a driver said; the last one may be cut."""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def receipts():
    return {int(path.stem): path.stat().st_mtime_ns for path in Path("study.zarr/run/receipts").glob("*.json")}


def run_through():
    """Runs to the end in this process."""
    return driver.run(spec.load("study.toml").grid(), Path("study.zarr"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    file = tmp_path_factory.mktemp("expected") / "study.toml"
    file.write_text(SPEC)
    return spec.load(file).sweep(progress=False)


def assert_same(stored, expected):
    assert stored.load().drop_attrs().identical(expected.drop_attrs())


# A driver that dies


def test_twenty_kills_change_no_bit_and_nothing_is_computed_twice():
    Path("study.toml").write_text(SPEC.replace("150", "300").replace("640", "1280"))
    draw = random.Random(5)
    computed, kills = [], []
    for number in range(KILLS):
        before = receipts()
        with life() as driver_:
            said = ""
            if number % 5 == 4:  # also before it has begun to work: the template, the lock, the plan
                time.sleep(draw.uniform(0.5, 2.0))
            else:
                for _ in range(draw.randint(1, 4)):
                    said += driver_.stdout.readline()
                time.sleep(draw.uniform(0.0, 0.2))
            driver_.send_signal(signal.SIGKILL)
            said += driver_.communicate()[0]
        kills.append(driver_.returncode)
        tasks = [event["task"] for event in events(said) if event["event"] == "task"]
        assert set(tasks).isdisjoint(before), "a task with a receipt was computed again"
        after = receipts()
        assert {task: after[task] for task in before} == before
        assert len(set(after) - set(before) - set(tasks)) <= 1  # a receipt that it had no time to mention
        computed += tasks
    assert kills == [-signal.SIGKILL] * KILLS
    assert 10 <= len(computed) == len(set(computed))
    held = inspection.status(Path("study.zarr"))["done"]
    outcome = run_through()
    assert 0 < outcome.computed == 2 * 16 * 1280 - held
    assert_same(rj.open_store("study.zarr"), spec.load("study.toml").sweep(progress=False))
    assert checks.verify(Path("study.zarr")).reasons == []
    assert not list(Path("study.zarr").rglob("*.partial"))
    assert not list(Path().glob(".*"))  # nor what was to become the store


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGINT, 130)])
def test_a_signal_stops_within_seconds_and_says_how_to_go_on(number, code):
    with life() as driver_:
        while '"event": "task"' not in driver_.stdout.readline():
            assert driver_.poll() is None
        partial = rj.open_store("study.zarr")  # what is finished is read while the others run
        assert np.isfinite(partial["kl_final"]).sum() > 0
        assert "unfinished" in partial.attrs
        began = time.monotonic()
        driver_.send_signal(number)
        out, err = driver_.communicate(timeout=20)
    assert driver_.returncode == code
    assert time.monotonic() - began < 20
    finished = inspection.status(Path("study.zarr"))["done"]
    sentence = (
        f"{finished:,} of 20,480 cells are finished and kept in study.zarr; the same command goes on with the others"
    )
    assert err == f"rlvr-jax: stopped: {sentence}\n"
    assert 0 < finished < 20_480
    assert {event["event"] for event in events(out)} <= {"task", "progress"}


# Two drivers


def test_a_second_driver_is_refused_and_a_dead_one_is_not_waited_for(capsys):
    with life() as first:
        assert json.loads(first.stdout.readline())["event"] == "start"
        assert main(COMMAND) == 2
        said = capsys.readouterr().err
        holder = lock.holder(Path("study.zarr/run/lock.json"))
        assert said == (
            f"rlvr-jax: study.zarr is being written by process {first.pid} on {holder.host} since "
            f"{holder.since}; wait for it, or stop it\n"
        )
        assert main([*COMMAND, "--overwrite"]) == 2
        assert f"study.zarr is being written by process {first.pid}" in capsys.readouterr().err
        status = inspection.status(Path("study.zarr"))
        assert status["driver"].startswith(f"process {first.pid} on ")
        assert status["running"] > 0
        first.kill()
        first.wait()
        assert inspection.status(Path("study.zarr"))["driver"] is None
        assert inspection.status(Path("study.zarr"))["running"] == 0
    assert run_through().failed == {}


def other_holder(**change):
    me = lock.Holder.this_process()
    return json.dumps({"host": me.host, "pid": me.pid, "started": me.started, "since": "2026-01-01T00:00:00", **change})


def test_a_lock_of_another_machine_is_taken_only_if_asked(tmp_path):
    file = tmp_path / "lock.json"
    file.write_text(other_holder(host="elsewhere"))
    sentence = r"is being written by process \d+ on elsewhere since 2026-01-01T00:00:00; if .* dead, add --take-lock"
    with pytest.raises(rj.InvalidInput, match=sentence), lock.held(file, Path("study.zarr")):
        pass
    assert json.loads(file.read_text())["host"] == "elsewhere"
    with lock.held(file, Path("study.zarr"), take=True):
        assert lock.holder(file).pid == os.getpid()
    assert file.read_text() == ""


@pytest.mark.parametrize("change", [{"pid": 2**22 - 3}, {"pid": 1}, {"started": "another boot 1"}], ids=str)
def test_a_lock_of_a_process_that_is_gone_is_taken_over(tmp_path, change):
    file = tmp_path / "lock.json"
    file.write_text(other_holder(**change))
    assert lock.holder(file) is None
    with lock.held(file, Path("study.zarr")):
        assert lock.holder(file).pid == os.getpid()


def odd_pid(pid):
    return other_holder(pid=pid, started="")


@pytest.mark.parametrize("content", ["", '{"host": "cut', "[]", '{"pid": 3}', *map(odd_pid, ("1", 2**70, -4))])
def test_a_lock_file_that_says_nothing_is_nobodys(tmp_path, content):
    file = tmp_path / "lock.json"
    file.write_text(content)
    with lock.held(file, Path("study.zarr")):
        assert lock.holder(file).pid == os.getpid()


# Damaged files


@pytest.fixture(scope="module")
def finished(tmp_path_factory, expected):
    folder = tmp_path_factory.mktemp("finished")
    (folder / "study.toml").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "CALL_SECONDS", 0.02)
        outcome = driver.run(spec.load(folder / "study.toml").grid(), folder / "study.zarr")
    assert outcome.header.chunks > 4
    return folder / "study.zarr"


@pytest.fixture
def store(finished):
    shutil.copytree(finished, "study.zarr")
    return Path("study.zarr")


def truncate(file):
    file.write_bytes(file.read_bytes()[:-7])


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


DAMAGE = {
    "a truncated chunk": (truncate, r"accuracy_area/c\.2 has \d+ bytes instead of \d+"),
    "a flipped byte": (flip, r"accuracy_area/c\.2 has other bytes than were written"),
    "a lost chunk": (Path.unlink, r"accuracy_area/c\.2 is missing"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_chunk_is_named_and_only_it_is_computed_again(store, expected, name, capsys):
    harm, sentence = DAMAGE[name]
    before = receipts()
    harm(store / "accuracy_area" / "c.2")
    with pytest.raises(rj.InvalidInput, match=r"accuracy_area/c\.2 is damaged .* --repair computes it again"):
        rj.open_store(store)["accuracy_area"].load()
    cells = int((disk.read_header(store).places[2] >= 0).sum())
    assert inspection.status(store)["missing"] == (0 if name == "a flipped byte" else cells)
    assert np.isfinite(rj.open_store(store)["kl_final"]).all()  # the others are read as ever
    assert main(["verify", "study.zarr"]) == 1
    out = capsys.readouterr().out
    count = len(before)
    assert out.endswith(f"study.zarr: {count} chunks with receipts; 1 damaged (--repair makes them again)\n")
    assert re.search(f"damaged: {sentence}\n", out)
    assert receipts() == before  # looking changes nothing
    assert main(["verify", "study.zarr", "--repair"]) == 0
    capsys.readouterr()
    assert [task for task, when in receipts().items() if when != before[task]] == [2]
    assert main(["verify", "study.zarr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "chunks": count,
        "unfinished": [],
        "damaged": {},
        "lost": {},
        "repaired": False,
    }
    assert_same(rj.open_store(store), expected)


def test_a_run_that_meets_a_truncated_chunk_says_so_and_computes_it_again(store, expected):
    truncate(store / "accuracy_area" / "c.2")
    with pytest.warns(RuntimeWarning, match=r"study\.zarr is damaged, accuracy_area/c\.2 has .* are computed again"):
        outcome = run_through()
    assert outcome.computed == int((outcome.header.places[2] >= 0).sum())
    assert_same(rj.open_store(store), expected)


@pytest.mark.parametrize("harm", [Path.unlink, truncate, lambda file: file.write_text("{}")])
def test_a_chunk_without_a_receipt_does_not_count(store, expected, harm):
    harm(store / "run" / "receipts" / "00000001.json")
    header = disk.read_header(store)
    cells = int((header.places[1] >= 0).sum())
    assert rj.open_store(store).attrs["unfinished"].startswith(f"{cells} of 20480 cells")
    assert run_through().computed == cells
    assert_same(rj.open_store(store), expected)


def test_what_interrupted_writes_left_is_removed(store, expected):
    other = Path(".study.zarr.other@elsewhere.77.partial")
    other.mkdir()  # of a driver that makes study.zarr.other
    stale = [store / "kl_final" / "c.3.0123abcd.partial", store / "run" / "receipts" / "00000003.json.77.partial"]
    for file in stale:
        file.write_bytes(b"half")
    assert_same(rj.open_store(store), expected)
    assert run_through().computed == 0
    assert [file for file in stale if file.exists()] == []
    assert other.exists()
    assert_same(rj.open_store(store), expected)


SURROUNDINGS = [
    *("zarr.json", "accuracy_area/zarr.json", "place_1/zarr.json", "place_1/c.0", "method/c.0", "run/zarr.json"),
    *("run/places/c.0", "run/manifest.json"),
]


@pytest.mark.parametrize("harm", [truncate, flip, Path.unlink], ids=["truncated", "flipped", "lost"])
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_whatever_follows_from_the_spec_is_made_again(store, expected, name, harm, capsys):
    before = receipts()
    harm(store / name)
    assert main(["verify", "study.zarr"]) == 1
    assert f"damaged: {name} " in capsys.readouterr().out
    assert main(["verify", "study.zarr", "--repair"]) == 0
    assert main(["verify", "study.zarr"]) == 0
    assert receipts() == before  # no cell was computed again
    assert_same(rj.open_store(store), expected)
    assert run_through().computed == 0
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize("name", ["method/c.2", "lr/zarr.json", "kl_final/zarr.json"])
def test_a_store_that_cannot_be_extended_says_what_helps(store, name, capsys):
    truncate(store / name)
    command = ["run", "study.toml", "--out", "study.zarr", "--no-figures", "--quiet", "--seeds", "641"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert re.search(
        r"study\.zarr is damaged: \w+(/c\.2 has | cannot be read | has |/zarr\.json has ).*; "
        r"rlvr-jax verify study\.zarr --repair makes it again",
        said,
    )
    assert main(["verify", "study.zarr", "--repair"]) == 0
    assert main(command) == 0
    assert "32 cells computed, 20,480 found" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["accuracy_area", "method", "place_1", "run/places"])
def test_a_lost_folder_is_made_again(store, expected, folder):
    shutil.rmtree(store / folder)
    assert main(["verify", "study.zarr", "--repair"]) == 0
    assert checks.verify(store).reasons == []
    assert_same(rj.open_store(store), expected)


def test_lost_empty_folders_and_foreign_ones_are_no_obstacle(store):
    shutil.rmtree(store / "run" / "failed")
    shutil.rmtree(store / "run" / "records")
    for foreign in (store / ".ipynb_checkpoints" / "x", store / "lr" / ".ipynb_checkpoints"):
        foreign.mkdir(parents=True)
    grid = spec.load("study.toml").grid()
    outcome = driver.run(spec.load("study.toml").with_seeds(641).grid(), store)
    assert (outcome.computed, outcome.found) == (32, grid.cells)
    assert checks.verify(store).reasons == []


def test_places_are_only_those_that_were_declared(store, expected):
    """A second copy that can be read, and says something else, is never put in place of the good one."""
    array = disk.read_header(store).array("place_1")
    values = np.asarray(array[:])
    array[:] = np.roll(values, 1)
    (store / "run" / "manifest.json").unlink()
    assert run_through().computed == 0
    assert_same(rj.open_store(store), expected)
    assert not (store / "run" / "manifest.json").exists()  # it would call sound what nobody has checked
    assert checks.verify(store).lost == {"run/manifest.json": "run/manifest.json is missing"}
    assert main(["verify", "study.zarr", "--repair"]) == 0
    assert checks.verify(store).reasons == []
    np.testing.assert_array_equal(disk.read_header(store).read("place_1"), values)


@pytest.mark.parametrize("content", ["{}", "", "[]", '{"files": {}, "attributes": {}}'])
def test_a_manifest_that_says_nothing_is_named(store, content):
    (store / "run" / "manifest.json").write_text(content)
    name = "run/manifest.json"
    assert checks.verify(store).lost == {name: f"{name} does not say what it should of this store"}


def test_an_extension_that_dies_before_it_is_declared_harms_nothing(store, expected, monkeypatch):
    def dying(header):
        raise KeyboardInterrupt

    grid = spec.load("study.toml").with_seeds(641).grid()
    with monkeypatch.context() as patch:
        patch.setattr(disk, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            driver.run(grid, store)
    assert disk.declaring_file(store).exists()
    assert checks.verify(store).reasons == []
    assert run_through().computed == 0
    assert not disk.declaring_file(store).exists()
    assert not (store / "place_2").exists()
    assert checks.verify(store).reasons == []
    assert_same(rj.open_store(store), expected)


def test_a_driver_that_dies_just_after_it_has_declared_is_followed_by_the_next(store, monkeypatch):
    grid = spec.load("study.toml").with_seeds(641).grid()

    def dying(header):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rlvr_jax.manifest.finish", lambda header: not (header.declaration == 2 and dying(header)))
        with pytest.raises(KeyboardInterrupt):
            driver.run(grid, store)
    assert disk.read_header(store).declaration == 2
    assert checks.verify(store).lost == {}
    assert driver.run(grid, store).computed == 32
    assert checks.verify(store).reasons == []
    assert not (store / "place_1").exists()


@pytest.mark.parametrize("harm", ["a digit", "another name"])
def test_a_receipt_that_is_not_as_it_was_written_is_named(store, harm, capsys):
    file = store / "run" / "receipts" / "00000001.json"
    if harm == "a digit":
        text = file.read_text()
        file.write_text(re.sub(r'"seconds": \d+', '"seconds": 9999', text))
    else:
        shutil.copy(store / "run" / "receipts" / "00000000.json", file)
    assert checks.verify(store).damaged == {1: "run/receipts/00000001.json does not say what was written"}
    file.unlink()
    assert checks.verify(store).unfinished == [1]
    assert main(["verify", "study.zarr"]) == 0
    assert " chunks with receipts, none of 1; 0 damaged\n" in capsys.readouterr().out


def test_a_repair_that_is_stopped_says_what_is_left(store, expected, monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    truncate(store / "kl_final" / "c.1")
    with monkeypatch.context() as patch:
        patch.setattr("rlvr_jax.tasks.train", stopped)
        assert main(["verify", "study.zarr", "--repair"]) == 130
    assert capsys.readouterr().err == (
        "rlvr-jax: stopped: study.zarr is repaired in part, and nothing sound is lost; running its spec again computes "
        "what is missing\n"
    )
    assert run_through().computed == int((disk.read_header(store).places[1] >= 0).sum())
    assert_same(rj.open_store(store), expected)


def test_repair_and_overwrite_take_the_lock_of_another_machine_if_asked(store, capsys):
    truncate(store / "kl_final" / "zarr.json")
    (store / "run" / "lock.json").write_text(other_holder(host="elsewhere"))
    assert main(["verify", "study.zarr", "--repair"]) == 2
    assert "add --take-lock" in capsys.readouterr().err
    assert main(["verify", "study.zarr", "--repair", "--take-lock"]) == 0
    (store / "run" / "lock.json").write_text(other_holder(host="elsewhere"))
    assert main([*COMMAND, "--overwrite"]) == 2
    assert len(receipts()) > 4
    driver._remove(store, take_lock=True)
    assert list(Path().iterdir()) == [Path("study.toml")]


def test_a_driver_that_is_overtaken_while_it_makes_a_store_leaves_the_other_alone(store):
    before = sorted(store.rglob("*"))
    for stale in (
        ".study.zarr@elsewhere.123.partial",
        "..study.zarr@elsewhere.123.fresh.partial@elsewhere.123.partial",
    ):
        Path(stale).mkdir()
    grid = spec.load("study.toml").grid()
    template.create(store, grid, 1024, {})
    assert sorted(store.rglob("*")) == before
    assert run_through().computed == 0
    assert not list(Path().glob(".*"))


def test_a_chunk_of_other_cells_is_found(store):
    for name in ("accuracy_final", "accuracy_area", "kl_final"):
        shutil.copy(store / name / "c.0", store / name / "c.1")
    header = disk.read_header(store)
    receipt = header.done()[0]
    moved = {file.replace("c.0", "c.1"): digest for file, digest in receipt.files.items()}
    replace(receipt, task=1, files=moved).write(header.receipts)
    assert checks.verify(store).damaged == {1: "chunk 1 was computed for other cells than the store says"}


@pytest.mark.parametrize(
    ("version", "advice"), [(4, "install a newer one"), (2, "run its spec again, into another place")]
)
def test_a_store_of_another_format_is_refused_by_every_command(store, version, advice, capsys):
    content = json.loads((store / "zarr.json").read_text())
    content["attributes"]["format"] = version
    (store / "zarr.json").write_text(json.dumps(content))
    sentence = f"study.zarr has format {version}, and this version of rlvr_jax reads format 3; {advice}"
    for command in (
        COMMAND,
        ["status", "study.zarr"],
        ["verify", "study.zarr"],
        ["export", "study.zarr", "--out", "a.csv"],
    ):
        assert main(command) == 2
        assert capsys.readouterr().err.endswith(f"{sentence}\n")


# Disks


@contextlib.contextmanager
def mounted(folder, *options):
    """Something mounted at ``folder``; skips the test where that is not allowed."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.usefixtures("small_tasks")
def test_a_full_disk_keeps_what_is_finished(tmp_path, expected, monkeypatch, capsys):
    real = Receipt.write

    def filling(receipt, folder):
        """Something else fills the disk after the third task."""
        real(receipt, folder)
        if receipt.task == 2:
            with Path("small/filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
                while filler.write(b"x" * 4096):
                    pass

    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=4m", "tmpfs"):
        command = ["run", "study.toml", "--out", "small/study.zarr", "--no-figures", "--quiet"]
        with monkeypatch.context() as patch:
            patch.setattr(Receipt, "write", filling)
            assert main(command) == 2
        said = capsys.readouterr().err
        finished = inspection.status(Path("small/study.zarr"))["done"]
        assert said == (
            "rlvr-jax: small/study.zarr cannot be written: no space left on device; what is finished is "
            f"kept: make room and run the same command again ({finished} of 20480 cells are finished)\n"
        )
        assert sorted(int(path.stem) for path in Path("small/study.zarr/run/receipts").iterdir()) == [0, 1, 2]
        assert checks.verify(Path("small/study.zarr")).reasons == []
        Path("small/filler").unlink()
        assert main(command) == 0
        assert f"{20_480 - finished:,} cells computed, {finished:,} found" in capsys.readouterr().out
        assert_same(rj.open_store("small/study.zarr"), expected)


def test_a_full_disk_at_the_start_leaves_nothing_and_says_so(tmp_path, capsys):
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=24k", "tmpfs"):
        assert main(["run", "study.toml", "--out", "small/study.zarr", "--no-figures", "--quiet"]) == 2
        assert "study.zarr cannot be written: no space left on device" in capsys.readouterr().err
        assert not list(Path("small").glob("**/study.zarr*"))


def test_a_store_that_cannot_be_written_is_read_and_says_so(store, tmp_path, expected, capsys):
    with mounted(store.resolve(), "--bind", str(store.resolve())):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(store.resolve())], check=True)
        assert main(COMMAND) == 2
        assert capsys.readouterr().err == "rlvr-jax: study.zarr cannot be written: read-only file system\n"
        assert main(["status", "study.zarr"]) == main(["verify", "study.zarr"]) == 0
        assert_same(rj.open_store(store), expected)
