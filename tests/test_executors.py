"""Executors, devices, shards and launched processes: one hash whoever trains, also where workers are killed.

Workers, schedulers and drivers are processes of their own, on this machine; they share a compile cache.
"""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import rlvr_jax as rj
from rlvr_jax import (
    devices,
    dispatch,
    driver,
    engine,
    executors,
    inspection,
    launch,
    lock,
    plan,
    receipts,
    spec,
    worker,
)
from rlvr_jax.cli import main
from rlvr_jax.executors import Crew, Pool
from rlvr_jax.shards import Shard
from rlvr_jax.worker import Order, work

SPEC = """
world = "bandit"
steps = 20
prompts = 20
answers = 4
batch_size = 4
group_size = 4
eval_steps = []
keep = ["accuracy.final", "accuracy.area", "kl.final"]
[parameters]
method = ["rloo", "grpo"]
lr = { min = 0.05, max = 2.0, num = 128, scale = "log" }
seed = { range = [0, 17] }
"""
EACH = 2 * 128  # cells of a seed
CELLS = 17 * EACH

#: A driver of one item for each device in a call: 17 tasks on one device, 9 on two.
DRIVER = "import sys; from rlvr_jax import plan; plan.CALL_BYTES = 1; from rlvr_jax.cli import main; sys.exit(main())"
RUN = ["run", "study.toml", "--out", "study.zarr", "--no-figures"]

#: For a process that is waited for, seconds.
PATIENCE = 90

#: The task that kills whoever takes it up, and the one that does so when it is finished.
POISONED, LATE = 5, 8


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "CALL_BYTES", 1)
    Path("study.toml").write_text(SPEC)


def digest(results):
    """Of everything that was trained."""
    whole = hashlib.sha256()
    for name in sorted(results.data_vars):
        whole.update(np.ascontiguousarray(results[name].values).tobytes())
    return whole.hexdigest()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    file = tmp_path_factory.mktemp("expected") / "study.toml"
    file.write_text(SPEC)
    return spec.load(file).sweep(progress=False)


def run(**options):
    """Trains in this process, or in workers."""
    return driver.run(spec.load("study.toml").grid(), Path("study.zarr"), **options)


def assert_complete(expected):
    assert digest(rj.open_store("study.zarr")) == digest(expected)
    assert inspection.status(Path("study.zarr"))["done"] == CELLS


@contextmanager
def started(*command, **more):
    """A process of its own, which is dead when the block is left."""
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": f"{here.parent}:{here}"} | more
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, *command], text=True, env=environment, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def free_job():
    """A job's number for which JAX opens a free port, and that port."""
    for job in range(4096):
        port = job + 65535 - 4095
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return job, port
    raise OSError("no port is free")


def tasks_of(said):
    return [event["task"] for event in map(json.loads, said.splitlines()) if event["event"] == "task"]


# Who trains


def dask_worker(address):
    """A Dask worker, as a user starts it."""
    command = ("-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard")
    return started(*command, "--death-timeout", "60")


@contextmanager
def dask_cluster():
    """A Dask scheduler and two workers, as a user starts them; gives the address and the processes."""
    address = f"127.0.0.1:{free_port()}"
    host, port = address.split(":")
    scheduler = ("-m", "distributed.cli.dask_scheduler", "--host", host, "--port", port, "--no-dashboard")
    with ExitStack() as stack:
        first = stack.enter_context(started(*scheduler))
        yield address, first, [stack.enter_context(dask_worker(address)) for _ in range(2)]


@contextmanager
def two_threads():
    with ThreadPoolExecutor(2) as executor:
        yield Pool(executor, "two threads", lambda: 2)


@pytest.mark.filterwarnings("ignore:devices is 2, and this process may use 1 core")  # where there is one
@pytest.mark.parametrize("count", [1, 2])
def test_any_number_of_devices_of_this_process_gives_one_hash(expected, count):
    outcome = run(count=count)
    assert (outcome.header.chunks, outcome.computed) == (-(-17 // count), CELLS)
    assert_complete(expected)


def test_more_devices_than_there_are_are_refused():
    with pytest.raises(rj.InvalidInput, match=r"devices is 64, and this process has \d+ of the kind 'cpu'"):
        run(count=64)


def test_devices_that_share_a_core_are_warned_of(monkeypatch):
    monkeypatch.setattr(devices, "cores", lambda: 1)
    with pytest.warns(RuntimeWarning, match="devices is 2, and this process may use 1 cores: devices that share a"):
        assert run(count=2).computed == CELLS


def test_an_executor_of_ones_own_gives_one_hash(expected):
    assert run(executor=two_threads).computed == CELLS
    assert_complete(expected)
    assert run(executor=two_threads).computed == 0


def census(_):
    """What a worker is, and how many programs it has compiled or loaded."""
    import jax

    time.sleep(0.3)  # so that both workers take some
    programs, given = len(engine._compiled), (os.environ.get("NPROC"), os.environ.get("CUDA_VISIBLE_DEVICES"))
    return os.getpid(), len(jax.local_devices()), programs, *given


def test_spawned_workers_give_one_hash_and_compile_once_each_from_one_cache(expected, monkeypatch, tmp_path):
    monkeypatch.setenv(devices.CACHE_VARIABLE, str(tmp_path / "compiled"))
    seen = {}

    @contextmanager
    def watched():
        with executors.factory("processes:2")() as pool:
            yield pool
            seen.update({row[0]: row[1:] for row in pool.executor.map(census, range(6))})

    assert run(executor=watched).computed == CELLS
    assert_complete(expected)
    assert sorted(seen.values()) == [(1, 1, "1", "0"), (1, 1, "1", "1")]
    compiled = {file: file.stat().st_mtime_ns for file in tmp_path.glob("compiled/*/*-cache")}
    assert compiled
    assert {file.parent.name for file in compiled} == {devices.machine()}
    for path in receipts.read(Path("study.zarr/run/receipts")):
        receipts.file(Path("study.zarr/run/receipts"), path).unlink()
    assert run(executor=executors.factory("processes:2")).computed == CELLS
    new = [file for file in tmp_path.glob("compiled/*/*-cache") if file not in compiled]
    assert {file: file.stat().st_mtime_ns for file in compiled} == compiled
    largest = max(file.stat().st_size for file in compiled)
    assert all(file.stat().st_size < largest / 2 for file in new)  # what is quick to compile is not always kept
    assert_complete(expected)


def test_a_scheduler_and_workers_started_by_hand_give_one_hash(expected, capsys):
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'rlvr_jax[cluster]'")
    with dask_cluster() as (address, *_):
        assert main([*RUN, "--executor", f"dask:{address}"]) == 0
    assert f"results: study.zarr ({CELLS:,} cells computed, 0 found; " in capsys.readouterr().out
    assert_complete(expected)


def test_four_devices_give_one_hash(expected):
    with started("-c", DRIVER, *RUN, "--json", "--devices", "4") as process:
        said, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, complained
    assert len(tasks_of(said)) == 5
    assert_complete(expected)


@pytest.mark.parametrize("said_by", ["hand", "Slurm", pytest.param("Open MPI", marks=pytest.mark.slow)])
def test_two_launched_processes_give_one_hash(expected, said_by):
    job, port = free_job()

    def launched(number):
        if said_by == "hand":
            return started("-c", DRIVER, *RUN, "--json", "--distributed", f"127.0.0.1:{port},2,{number}")
        if said_by == "Slurm":
            names = {"JOB_ID": job, "STEP_NODELIST": "localhost", "NTASKS": 2, "PROCID": number, "LOCALID": number}
            told = {f"SLURM_{name}": str(value) for name, value in names.items()}
        else:
            names = {"SIZE": 2, "RANK": number, "LOCAL_RANK": number}
            told = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in names.items()}
            told["OMPI_MCA_orte_hnp_uri"] = f"{job * 2**12}.0;tcp://127.0.0.1:1"
        return started("-c", DRIVER, *RUN, "--json", "--distributed", "auto", **told)

    with ExitStack() as stack:
        both = [stack.enter_context(launched(number)) for number in range(2)]
        said = [process.communicate(timeout=PATIENCE) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    own = [tasks_of(out) for out, _ in said]
    assert [{task % 2 for task in tasks} for tasks in own] == [{0}, {1}]
    assert sorted([*own[0], *own[1]]) == list(range(9))
    assert_complete(expected)


# Through MPI


def test_mpi_workers_give_one_hash(expected, monkeypatch):
    """Here with a stand-in for MPI; `test_a_real_mpi_gives_one_hash` needs a real one."""

    class MPIPoolExecutor(ThreadPoolExecutor):
        num_workers = 2

    def stand_in(size):
        package, futures, mpi = ModuleType("mpi4py"), ModuleType("mpi4py.futures"), ModuleType("mpi4py.MPI")
        futures.MPIPoolExecutor = MPIPoolExecutor
        mpi.COMM_WORLD = SimpleNamespace(Get_size=lambda: size)
        package.MPI = mpi
        for module in (package, futures, mpi):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    stand_in(3)
    assert run(executor=executors.factory("mpi")).computed == CELLS
    assert_complete(expected)
    stand_in(1)
    with pytest.raises(rj.InvalidInput, match=r"executor is 'mpi', and this process was started alone; .* mpiexec"):
        run(executor=executors.factory("mpi"), overwrite=True)


def test_a_real_mpi_gives_one_hash(expected):
    mpiexec = Path(sys.executable).parent / "mpiexec"
    found = subprocess.run([sys.executable, "-c", "from mpi4py import MPI"], capture_output=True, check=False)
    if found.returncode or not mpiexec.exists():
        pytest.skip("mpi4py or its MPI library is not installed beside Python: pip install mpi4py mpich")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", "-m", "rlvr_jax", *RUN, "--executor", "mpi"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert_complete(expected)


# What is asked for and cannot be had


@pytest.mark.parametrize("text", ["", "threads:2", "processes", "processes:0", "processes:local:2", "dask:local"])
def test_an_executor_that_there_is_not_is_refused(text):
    with pytest.raises(rj.InvalidInput, match=f"executor is {text!r}; it must be processes:N, dask:local:N with N up "):
        executors.factory(text)


@pytest.mark.parametrize(
    ("text", "module", "advice"),
    [
        ("dask:local:2", "distributed", r"pip install 'rlvr_jax\[cluster\]'"),
        ("dask:10.0.0.1:8786", "distributed", r"pip install 'rlvr_jax\[cluster\]'"),
        ("mpi", "mpi4py.futures", "install mpi4py and an MPI library"),
    ],
)
def test_what_is_not_installed_is_said_with_how_to_install_it(text, module, advice, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(rj.InvalidInput, match=f"executor is '{text}', and {module} is not there .*: {advice}"):
        executors.factory(text)


def test_a_scheduler_that_is_not_there_is_named(monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'rlvr_jax[cluster]'")
    monkeypatch.setattr(executors, "PATIENCE", 0.5)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(rj.InvalidInput, match=f"there is no Dask scheduler at {address} .*; start one"):
        run(executor=executors.factory(f"dask:{address}"))
    assert not Path("study.zarr").exists()


@pytest.mark.parametrize(
    "address", ["foo://10.0.0.1:80", "10.0.0.1:99999", "http://10.0.0.1:80", "10.0.0.1", "tcp://:80", "10.0.0.1:0"]
)
def test_what_is_no_address_is_refused_at_once(address):
    with pytest.raises(rj.InvalidInput, match=r"executor is .*; it must be processes:N"):
        executors.factory(f"dask:{address}")


def test_a_port_that_speaks_something_else_is_no_scheduler(monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'rlvr_jax[cluster]'")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        address = f"tls://127.0.0.1:{one.getsockname()[1]}"
        with pytest.raises(rj.InvalidInput, match=f"there is no Dask scheduler at {address} .*TLS expects"):
            run(executor=executors.factory(f"dask:{address}"))


def test_launched_processes_that_cannot_meet_are_said(monkeypatch, capsys):
    monkeypatch.setattr(launch, "PATIENCE", 0.6)
    with socket.socket() as one:
        one.bind(("", 0))
        one.listen()
        port = one.getsockname()[1]
        assert main([*RUN, "--distributed", f"127.0.0.1:{port},2,0"]) == 2
    assert main([*RUN, "--distributed", f"127.0.0.1:{port},2,1"]) == 2
    taken, absent = capsys.readouterr().err.splitlines()
    with started("-c", DRIVER, *RUN, "--distributed", "auto") as process:
        _, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "distributed is 'auto', and no launcher says who is who, as Slurm and Open MPI do; give ADDR" in complained
    assert taken.endswith(f"and port {port} of this machine is taken; choose another one")
    assert absent.endswith(f"and the process 0 is not at 127.0.0.1:{port} (connection refused)")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--devices", "100000"], "devices is 100000; it must be at most "),
        (["--executor", "processes:20000"], "executor is 'processes:20000'; it must be processes:N, dask:local:N with"),
        (["--distributed", "10.0.0.1:99999,2,0"], "distributed is '10.0.0.1:99999,2,0'; it must be auto, or ADDRESS:"),
        (["--shard", "0/2"], "shard is '0/2'; it must be i/n with i from 1 to n, such as 1/4"),
        (["--shard", "3/2"], "shard is '3/2'; it must be i/n with i from 1 to n, such as 1/4"),
        (
            ["--distributed", "10.0.0.1:80"],
            "distributed is '10.0.0.1:80'; it must be auto, or ADDRESS:PORT,PROCESSES,",
        ),
        (["--distributed", "a:1,2,2"], "distributed is 'a:1,2,2'; it must be auto, or ADDRESS:PORT,PROCESSES,NUMBER"),
        (["--shard", "1/2", "--overwrite"], "--overwrite would throw away what other shards have done; remove the"),
        (
            ["--distributed", "auto", "--shard", "1/2"],
            "--distributed gives each process a shard of its own; leave",
        ),
        (["--distributed", "auto", "--executor", "mpi"], "--executor and --distributed are two ways to do one thing; "),
        (
            ["--executor", "threads"],
            "executor is 'threads'; it must be processes:N, dask:local:N with N up to 999, dask",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(options, sentence, capsys):
    assert main([*RUN, *options]) == 2
    assert capsys.readouterr().err.startswith(f"rlvr-jax: {sentence}")


def test_workers_of_another_kind_are_refused(expected, monkeypatch):
    outcome = run(executor=two_threads)
    order = Order(Path("study.zarr").resolve(), 0, 2**30, 1, "TPU v9 with jaxlib 9.9")
    with pytest.raises(
        rj.InvalidInput, match=r"a worker is cpu .*with jaxlib .*, and the first one is TPU v9 with jaxlib 9"
    ):
        work(order)
    receipts.remove(outcome.header.receipts, [0])
    with pytest.raises(rj.InvalidInput, match=r"there is no store /nowhere \(said by a worker on "):
        work(Order(Path("/nowhere"), 0, 2**30, 1, ""))


# Faults


def cursed(order):
    """Two tasks of 17 kill their worker once, another one always, and one when it has left its receipt."""
    mark = order.store.parent / f"killed-{order.task}"
    if order.task == LATE:
        with mark.open("a") as times:
            times.write("x")
        work(order)
        os.kill(os.getpid(), signal.SIGKILL)
    if order.task == POISONED or (order.task % 8 == 3 and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return work(order)


@pytest.mark.parametrize("executor", ["processes:2", "dask:local:2"])
def test_killed_workers_change_no_bit_and_a_poisoned_task_stops_no_other(expected, executor, monkeypatch, capsys):
    if executor.startswith("dask"):
        pytest.importorskip("distributed", reason="Dask is not installed: pip install 'rlvr_jax[cluster]'")
    with monkeypatch.context() as patch:
        patch.setattr(worker, "work", cursed)
        patch.setattr(dispatch, "ATTEMPTS", 2)
        assert main([*RUN, "--executor", executor]) == 1
    assert {int(path.name[7:]) for path in Path().glob("killed-*")} == {3, LATE, 11, POISONED}
    assert Path(f"killed-{LATE}").read_text() == "x"  # its receipt was found
    reason = (
        r"its worker died each of 3 times, the last time with no other task beside it: it was killed, ran out of "
        r"memory, or crashed \(.*\) \(256 cells; method rloo, grpo; lr 0\.05 to 2 \(128 values\); seed 5\)"
    )
    said = capsys.readouterr().err
    assert re.search(f"rlvr-jax: 1 task failed, the first \\(5\\): {reason}; the other results are kept", said)
    stored = rj.open_store("study.zarr").load()
    others = expected.drop_sel(seed=5)
    assert digest(stored.drop_sel(seed=5)) == digest(others)
    assert np.isnan(stored["accuracy_final"].sel(seed=5)).all()
    status = inspection.status(Path("study.zarr"))
    assert (status["done"], status["failed"], status["missing"]) == (CELLS - EACH, EACH, 0)
    assert re.fullmatch(reason, status["errors"]["5"])
    assert run().computed == EACH
    assert_complete(expected)
    assert inspection.status(Path("study.zarr"))["errors"] == {}


def slow(order):
    time.sleep(0.4)
    return work(order)


def test_a_scheduler_that_dies_is_said_and_the_run_goes_on_elsewhere(expected, monkeypatch, capsys):
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'rlvr_jax[cluster]'")
    with dask_cluster() as (address, scheduler, _), monkeypatch.context() as patch:
        patch.setattr(worker, "work", slow)

        def kill():
            while len(receipts.read(Path("study.zarr/run/receipts"))) < 2:
                time.sleep(0.05)
            scheduler.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        assert main([*RUN, "--quiet", "--executor", f"dask:{address}"]) == 1
        killer.join()
    finished = re.search(
        rf"rlvr-jax: the Dask cluster at {address} cannot be reached any more.* \((\d+) of {CELLS} cells are finished\)"
        "; they are kept in study.zarr, and the same command goes on",
        capsys.readouterr().err,
    )
    assert finished
    assert 2 * EACH <= int(finished[1]) < CELLS
    held = inspection.status(Path("study.zarr"))["done"]
    assert run().computed == CELLS - held
    assert_complete(expected)


def test_workers_that_all_go_are_said_and_others_go_on(expected, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'rlvr_jax[cluster]'")
    monkeypatch.setattr(dispatch, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(executors, "COUNTED_FOR", 0.1)
    with dask_cluster() as (address, _, workers), ExitStack() as stack, monkeypatch.context() as patch:
        patch.setattr(worker, "work", slow)

        def replace():
            while len(receipts.read(Path("study.zarr/run/receipts"))) < 2:
                time.sleep(0.05)
            for process in workers:
                process.terminate()
            for process in workers:
                process.wait(PATIENCE)
            time.sleep(2)
            stack.enter_context(dask_worker(address))

        replacer = threading.Thread(target=replace)
        replacer.start()
        with pytest.warns(RuntimeWarning, match=rf"Dask cluster at {address} has no workers now; for 10 min the run "):
            assert run(executor=executors.factory(f"dask:{address}")).computed == CELLS
        replacer.join()
    assert_complete(expected)


def test_a_run_without_workers_ends_after_a_while(monkeypatch):
    monkeypatch.setattr(dispatch, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(dispatch, "ABANDONED_AFTER", 2.4)  # long, where a look may be late
    there, done = iter([2, 2, 2, 0, 0, 1]), Future()  # that came back once

    @contextmanager
    def factory():
        yield Pool(SimpleNamespace(submit=lambda *_: done), "a stand-in", lambda: next(there, 0))

    finished = dispatch.finished(Crew(factory), [0], lambda number: (work,), lambda number: None, lambda numbers: None)
    with (
        pytest.warns(RuntimeWarning, match="a stand-in has no workers now; for 0.04 min the run waits") as told,
        pytest.raises(dispatch.Lost, match=r"a stand-in has had no workers for 0\.04 min"),
    ):
        next(finished)
    assert len(told) == 2


def children(pid):
    return [int(name) for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the workers")
def test_workers_end_with_their_driver_and_nothing_is_lost(expected):
    with started("-c", DRIVER, *RUN, "--json", "--executor", "processes:2") as process:
        while '"event": "task"' not in process.stdout.readline():
            assert process.poll() is None
        workers = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(workers) >= 2
    until = time.monotonic() + PATIENCE
    while any(lock.running(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(lock.running(pid) for pid in workers)
    held = inspection.status(Path("study.zarr"))["done"]
    assert run().computed == CELLS - held < CELLS
    assert_complete(expected)


def crew_of(executor, **options):
    @contextmanager
    def factory():
        yield Pool(executor, "a stand-in", lambda: 2, **options)

    return Crew(factory)


def test_a_task_that_raises_is_tried_again_after_the_others_and_then_given_up():
    asked = []

    def call(number):
        def body():
            asked.append(number)
            if number == 1 or (number == 2 and asked.count(2) < 3):
                raise ZeroDivisionError(f"task {number}")
            return number

        return (body,)

    with ThreadPoolExecutor(1) as executor, crew_of(executor) as crew:
        ended = dict(dispatch.finished(crew, [0, 1, 2, 3], call, lambda number: None, lambda numbers: None))
    assert (ended[0], ended[2], ended[3]) == (0, 2, 3)
    assert ended[1].error == "ZeroDivisionError: task 1"
    assert "in body" in ended[1].traceback
    assert asked[:4] == [0, 1, 2, 3]
    assert [asked.count(number) for number in range(4)] == [1, dispatch.ATTEMPTS, 3, 1]


def test_each_task_that_may_have_killed_a_worker_is_given_out_alone_in_the_end():
    given = []

    def call(number):
        def body():
            time.sleep(0.02)
            if number in (1, 2):
                raise ZeroDivisionError

        return (body,)

    with ThreadPoolExecutor(2) as executor, crew_of(executor, deaths=(ZeroDivisionError,)) as crew:
        ended = dict(
            dispatch.finished(crew, range(8), call, lambda number: None, lambda numbers: given.append(sorted(numbers)))
        )
    assert {number for number, end in ended.items() if isinstance(end, dispatch.Failure)} == {1, 2}
    assert sorted(given[-2:]) == [[1], [2]]


def test_workers_of_one_machine_share_its_memory():
    with ThreadPoolExecutor(1) as executor, crew_of(executor, neighbours=lambda: 4) as crew:
        assert crew.memory == int(executors.MEMORY_SHARE * crew.machine.free / 4)


@pytest.mark.parametrize("mixed", [False, True])
def test_workers_are_told_what_they_must_be_unless_any_will_do(mixed, monkeypatch):
    told = set()

    def noted(order):
        told.add(order.origin)
        return work(order)

    monkeypatch.setattr(worker, "work", noted)
    run(executor=two_threads, mixed=mixed)
    assert told == {"" if mixed else devices.machine_of(1).origin}


def test_few_tasks_are_out_at_a_time():
    out, most = [], []
    with ThreadPoolExecutor(8) as executor, crew_of(executor) as crew:
        ended = dispatch.finished(
            crew, range(20), lambda number: (time.sleep, 0.01), lambda number: None, lambda numbers: out.append(numbers)
        )
        most = [len(numbers) for _ in ended for numbers in out]
    assert max(most) == 2


# Shards


def test_two_shards_at_once_give_one_hash_and_a_driver_of_all_finds_everything(expected, capsys):
    with ExitStack() as stack:
        both = [stack.enter_context(started("-c", DRIVER, *RUN, "--json", "--shard", f"{i}/2")) for i in (1, 2)]
        said = [process.communicate(timeout=PATIENCE) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    own = [tasks_of(out) for out, _ in said]
    assert [{task % 2 for task in tasks} for tasks in own] == [{0}, {1}]
    assert sorted([*own[0], *own[1]]) == list(range(9))
    assert main(RUN) == 0
    assert f"results: study.zarr (0 cells computed, {CELLS:,} found; " in capsys.readouterr().out
    assert_complete(expected)
    assert not list(Path("study.zarr").rglob("now*.json"))


def test_a_shard_says_what_the_others_have_left(capsys):
    assert main([*RUN, "--quiet", "--shard", "2/3"]) == 0
    said = capsys.readouterr().out
    assert re.fullmatch(
        r"results: study\.zarr \(1,536 cells computed, 0 found; .* s\); of all shards together, 2816 of 4352 cells are "
        r"not finished and are NaN\n",
        said,
    )


@pytest.fixture
def lock_file(tmp_path):
    run(shard=Shard(1, 2))
    return tmp_path / "study.zarr" / "run" / "lock.json"


@contextmanager
def held(file, shard):
    """The lock of a shard whose driver trains."""
    with lock.held(file, Path("study.zarr"), shard=shard) as hold:
        hold.share()
        yield


def test_drivers_of_one_store_are_those_of_disjoint_shards(lock_file, expected, capsys):
    with held(lock_file, Shard(1, 2)):
        refused = {
            Shard(1, 2): "shard 1/2 of study.zarr is being written by process",
            Shard(1, 3): "is being written in 2 shards by process",
        }
        for shard, sentence in refused.items():
            with pytest.raises(rj.InvalidInput, match=sentence):
                run(shard=shard)
        with pytest.raises(rj.InvalidInput, match=rf"is being written by process {os.getpid()} on .*, shard 1/2; wait"):
            run()
        with pytest.raises(rj.InvalidInput, match=r"is being written by process .*; wait for it, or stop it"):
            run(overwrite=True)
        assert inspection.status(Path("study.zarr"))["driver"].endswith(", shard 1/2")
        larger = spec.load("study.toml").with_seeds(30).grid()
        with pytest.raises(rj.InvalidInput, match="is being written by drivers of other shards, for another spec"):
            driver.run(larger, Path("study.zarr"), shard=Shard(2, 2))
        half = (4 * 2 * EACH, 0)
        outcome = run(shard=Shard(2, 2))
        assert (outcome.computed, outcome.found) == half
        with held(lock_file, Shard(2, 2)):
            assert "shard 1/2 and process" in inspection.status(Path("study.zarr"))["driver"]
    assert lock.holders(lock_file) == []
    assert run().computed == 0
    assert_complete(expected)


def test_a_driver_of_the_whole_store_keeps_shards_out(lock_file):
    with lock.held(lock_file, Path("study.zarr")), pytest.raises(rj.InvalidInput, match="wait for it, or stop it"):
        run(shard=Shard(2, 2))


def test_a_shard_waits_until_another_has_declared(lock_file):
    entered = threading.Event()

    def second():
        with lock.held(lock_file, Path("study.zarr"), shard=Shard(2, 2)) as hold:
            assert not hold.alone
            entered.set()

    with lock.held(lock_file, Path("study.zarr"), shard=Shard(1, 2)) as hold:
        assert hold.alone
        waiting = threading.Thread(target=second)
        waiting.start()
        assert not entered.wait(0.3)
        hold.share()
        waiting.join(PATIENCE)
        assert entered.is_set()


def test_a_shard_on_another_machine_is_waited_for_unless_it_is_taken(lock_file):
    me = lock.Holder.this_process(Shard(2, 2))
    other = json.dumps({"host": "elsewhere", "pid": 1, "started": "", "since": me.since, "shard": "2/2"})
    lock_file.with_name("lock-2-of-2.json").write_text(other)
    sentence = (
        "is being written by process 1 on elsewhere since .*, shard 2/2; if that process is dead, add --take-lock"
    )
    for options in ({}, {"shard": Shard(2, 2)}):
        with pytest.raises(rj.InvalidInput, match=sentence):
            run(**options)
    assert run(shard=Shard(2, 2), take_lock=True).computed == 4 * 2 * EACH
