"""Who trains the tasks of a store: this process, or workers behind any `concurrent.futures.Executor`.

The driver is given a *factory*, which opens a `Pool` as a context manager, and opens another one when that is broken.
Those that have a name on the command line are made by `factory`; one of your own is a few lines::

    @contextmanager
    def threads():
        with ThreadPoolExecutor(2) as executor:
            yield Pool(executor, "two threads", lambda: 2)

What a worker does is `rlvr_jax.worker.work`.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from multiprocessing import get_context
from typing import Any, TypeAlias

from rlvr_jax import devices, ports, worker
from rlvr_jax.devices import Machine
from rlvr_jax.types import InvalidInput

#: Share of the free memory that a run may take unless it is told.
MEMORY_SHARE = 0.5

#: Seconds to wait for a Dask scheduler, and for the first of its workers.
PATIENCE = 30

#: Seconds for which the number of a Dask cluster's workers is believed.
COUNTED_FOR = 5.0

#: What ``--executor`` takes, in words.
ALLOWED = "processes:N, dask:local:N with N up to 999, dask:ADDRESS such as dask:tcp://10.0.0.1:8786, or mpi"


@dataclass(frozen=True)
class Pool:
    """Opened workers.

    Attributes:
      executor: Takes `rlvr_jax.worker.work` and an order. It is broken if ``submit`` raises `BrokenExecutor`.
      name: Of all of it, in words.
      workers: How many there are now, which is how many tasks are given out at a time; 0 while there are none.
      neighbours: How many of them share one machine's memory.
      deaths: What a future raises if its worker died.
    """

    executor: Executor
    name: str
    workers: Callable[[], int]
    neighbours: Callable[[], int] = lambda: 1
    deaths: tuple[type[BaseException], ...] = (BrokenExecutor,)


#: Opens workers.
Factory: TypeAlias = Callable[[], AbstractContextManager[Pool]]


class Here(Executor):
    """The executor that is this process: what is submitted is done at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Raises what concerns every task: a user's mistake, and a store or an output that is gone."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except (InvalidInput, OSError):
            raise
        except Exception as error:
            future.set_exception(error)
        return future


class Crew:
    """Whoever trains for one run; workers are opened when they are first needed.

    Args:
      factory: Opens workers; None for this process.
      devices: How many XLA devices each process uses; by default all of this process, and one of each worker.
      memory: Bytes that a call may take; by default half of what is free, shared among the workers of a machine.
    """

    def __init__(self, factory: Factory | None = None, devices: int | None = None, memory: int | None = None):
        self.factory, self.here = factory, factory is None
        self.devices = devices if factory is None else devices or 1
        self._given = memory
        self._open = ExitStack()
        self._pool: Pool | None = None

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.close()

    @property
    def pool(self) -> Pool:
        """The workers."""
        if self._pool is None:
            factory = self.factory or _here
            self._pool = self._open.enter_context(factory())
        return self._pool

    def renew(self) -> None:
        """Closes workers that are broken, so that others are opened."""
        self._pool = None
        self._open.close()

    @cached_property
    def machine(self) -> Machine:
        """What each of them has to train with, as the first one says.

        Raises:
          InvalidInput: If they cannot begin.
        """
        if self.here:
            return devices.machine_of(self.devices)
        try:
            return self.pool.executor.submit(worker.machine, self.devices or 1).result()
        except InvalidInput:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            name = "the executor" if self._pool is None else self._pool.name
            raise InvalidInput(f"{name} cannot train: the first worker said {reason}") from None

    @cached_property
    def memory(self) -> int:
        """Bytes that one call may take."""
        if self._given is not None:
            return self._given
        return int(MEMORY_SHARE * self.machine.free / self.pool.neighbours())


def factory(text: str, count: int = 1) -> Factory:
    """The factory that ``--executor`` names.

    Args:
      text: See `ALLOWED`.
      count: XLA devices of each worker.

    Raises:
      InvalidInput: If there is none of that name, or it needs what is not installed.

    >>> with factory("processes:2")() as pool:
    ...     pool.workers()
    2
    """
    kind, _, rest = text.partition(":")
    number = re.fullmatch(r"(?:local:)?([1-9]\d{0,2})", rest)
    if kind == "processes" and number and not rest.startswith("local"):
        return partial(_processes, int(number[1]), count)
    if kind == "dask" and number and rest.startswith("local"):
        _need("distributed", text, "pip install 'rlvr_jax[cluster]'")
        return partial(_local_dask, int(number[1]), count)
    place = ports.parsed(re.sub("^(tcp|tls)://", "", rest))
    if kind == "dask" and place and not rest.startswith("local:"):
        _need("distributed", text, "pip install 'rlvr_jax[cluster]'")
        return partial(_dask, rest, *place)
    if text == "mpi":
        _need("mpi4py.futures", text, "install mpi4py and an MPI library")
        return _mpi
    raise InvalidInput(f"executor is {text!r}; it must be {ALLOWED}")


def _need(module: str, text: str, advice: str) -> None:
    from importlib import import_module

    try:
        import_module(module)
    except (ImportError, RuntimeError) as error:  # mpi4py without an MPI library raises the second
        reason = " ".join(str(error).split())
        raise InvalidInput(f"executor is {text!r}, and {module} is not there ({reason}): {advice}") from None


@contextmanager
def _here() -> Iterator[Pool]:
    yield Pool(Here(), "this process", lambda: 1)


@contextmanager
def _processes(number: int, count: int) -> Iterator[Pool]:
    context = get_context("spawn")  # a fork of a process in which JAX has started hangs
    places = context.SimpleQueue()
    for place in range(number):
        places.put(place)
    executor = ProcessPoolExecutor(number, context, worker.start, (count, places))
    try:
        yield Pool(executor, f"processes:{number}", lambda: number, lambda: number)
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _local_dask(number: int, count: int) -> Iterator[Pool]:
    import dask.config
    from distributed import Client, LocalCluster
    from distributed.utils import silence_logging_cmgr

    settings = {
        "distributed.scheduler.allowed-failures": 0,  # the driver counts deaths itself
        "distributed.worker.memory.terminate": False,  # and bounds memory by calls
        "distributed.worker.memory.pause": False,
        # watching workers a hundred times a second takes a tenth of the cores that they compute on
        "distributed.worker.profile.enabled": False,
        "distributed.worker.memory.monitor-interval": "2s",
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "5s",
    }
    with (
        silence_logging_cmgr(logging.CRITICAL),
        dask.config.set(settings),
        LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},  # any port that is free
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.run(_own_accelerators, count)
        yield _dask_pool(client, f"dask:local:{number}")


@contextmanager
def _dask(address: str, host: str, port: int) -> Iterator[Pool]:
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    with ExitStack() as stack:
        stack.enter_context(silence_logging_cmgr(logging.CRITICAL))  # what concerns the user, the driver says
        reason = ports.silent(host, port, PATIENCE)  # a client that has reached nobody is hard to end
        try:
            client = None if reason else stack.enter_context(Client(address, timeout=PATIENCE, set_as_default=False))
        except Exception as error:  # whatever it is, such as TLS without certificates, no scheduler was reached
            client, reason = None, " ".join(f"{type(error).__name__}: {error}".split())[:200]
        if client is None:
            raise InvalidInput(f"there is no Dask scheduler at {address} ({reason}); start one with: dask scheduler")
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise InvalidInput(
                f"the Dask scheduler at {address} has no workers; start some with: dask worker {address} --nthreads 1"
            ) from None
        yield _dask_pool(client, f"the Dask cluster at {address}")


def _dask_pool(client: Any, name: str) -> Pool:
    from distributed.scheduler import KilledWorker

    counted: dict[str, Any] = {"at": -COUNTED_FOR, "workers": []}

    def workers() -> list[str]:
        if time.monotonic() - counted["at"] >= COUNTED_FOR:
            counted.update(at=time.monotonic(), workers=list(client.nthreads()))
        return counted["workers"]

    def neighbours() -> int:
        hosts = [address.rpartition(":")[0] for address in workers()]
        return max(map(hosts.count, hosts), default=1)

    executor = client.get_executor(pure=False)
    return Pool(executor, name, lambda: len(workers()), neighbours, (BrokenExecutor, KilledWorker))


def _own_accelerators(count: int, dask_worker: Any) -> None:
    """In a worker of an own Dask cluster, whose workers have numbers for names."""
    worker.own_accelerators(count, int(dask_worker.name))


@contextmanager
def _mpi() -> Iterator[Pool]:
    from mpi4py import MPI  # pyright: ignore[reportMissingImports]  a cluster brings it, no extra of ours
    from mpi4py.futures import MPIPoolExecutor  # pyright: ignore[reportMissingImports]  likewise

    if MPI.COMM_WORLD.Get_size() < 2:
        raise InvalidInput(
            "executor is 'mpi', and this process was started alone; start it with its workers, such as: mpiexec -n 5 "
            "python -m mpi4py.futures -m rlvr_jax run SPEC --executor mpi"
        )
    with MPIPoolExecutor() as executor:
        number = executor.num_workers
        yield Pool(executor, f"mpi, {number} workers", lambda: number, lambda: number)
