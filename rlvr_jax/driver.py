"""Runs a grid into a store: declares what is missing, trains it task by task, and counts.

What a driver adds to the tasks is the template, the lock and the order; see `rlvr_jax.session` for a task by itself.
"""

import shutil
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from rlvr_jax import devices, disk, dispatch, faults, files, lock, manifest, receipts, template, worker
from rlvr_jax.declaration import check_origin, chunk_cells, declared, declared_grid
from rlvr_jax.disk import Header
from rlvr_jax.dispatch import Failure, Lost
from rlvr_jax.executors import MEMORY_SHARE, Crew, Factory
from rlvr_jax.faults import Fault
from rlvr_jax.grid import Grid
from rlvr_jax.plan import check_memory, samples
from rlvr_jax.progress import Mode, Progress
from rlvr_jax.receipts import Receipt
from rlvr_jax.results import versions
from rlvr_jax.session import Session, stored_grid
from rlvr_jax.shards import Shard
from rlvr_jax.store import labelled
from rlvr_jax.types import InvalidInput


@dataclass(frozen=True)
class Outcome:
    """What a run has done.

    Attributes:
      header: Of the store.
      grid: What was asked for.
      cells: Where its cells lie in the grid of the store, int64 ``[cells]``.
      found: How many of them had been there; of a shard, those of its own.
      computed: How many cells were computed now.
      failed: Tasks that failed, with the reason.
    """

    header: Header
    grid: Grid
    cells: np.ndarray
    found: int
    computed: int
    failed: dict[int, Fault]

    def results(self) -> xr.Dataset:
        """What was asked for, from the store, as `rlvr_jax.open_store` gives it."""
        return labelled(self.header, self.grid.spec, self.cells)


class Stopped(KeyboardInterrupt):
    """A run into a store was stopped; what had finished is there.

    Attributes:
      finished: How many of the cells that were asked for are there.
      cells: How many were asked for.
    """

    def __init__(self, finished: int, cells: int):
        super().__init__(f"{finished} of {cells} cells are finished")
        self.finished, self.cells = finished, cells


def run(
    grid: Grid,
    path: Path,
    *,
    mixed: bool = False,
    memory: int | None = None,
    take_lock: bool = False,
    overwrite: bool = False,
    progress: Mode = "none",
    executor: Factory | None = None,
    count: int | None = None,
    shard: Shard | None = None,
) -> Outcome:
    """Brings all cells of a grid into the store at ``path``; what is there already is not computed again.

    Args:
      grid: What is wanted.
      path: A store of the same study, or a place for a new one.
      mixed: Whether cells of another device kind or jaxlib may stand beside the new ones.
      memory: Bytes that a call may take; half of what is free unless given, shared among the workers of a machine.
      take_lock: Whether to take the lock of a process on another machine.
      overwrite: Whether to throw away what is there first; of several shards, the first one does.
      progress: How to show how far it is.
      executor: Opens workers; None trains in this process. See `rlvr_jax.executors.factory`.
      count: How many devices each process uses; by default all of this process, and one of each worker.
      shard: Which tasks to do; None for all.

    Raises:
      InvalidInput: If the store is another study's, cannot be written, or is being written; before anything is
        trained where that can be known.
      Lost: If the workers are gone; what had finished is there.
      Stopped: On Ctrl-C.
    """
    disk.check_place(path)
    with Crew(executor, count, memory) as crew:
        _prepare(crew)
        check_memory(grid, crew.memory if crew.here else int(MEMORY_SHARE * devices.free_memory()), stored=True)
        first = shard is None or shard.number == 1
        if shard is not None and not first:
            shard.meet("declared")  # the first one does it
        if overwrite and first and path.exists():
            _remove(path, take_lock)
        if not path.exists():
            template.create(path, grid, chunk_cells(grid, crew.machine.devices), versions())
        with _taken(path, take_lock, shard, grid) as (header, hold):
            header, cells = declared(grid, header, crew, mixed, hold.alone)
            hold.share()
            if disk.read_header(path).declaration != header.declaration:
                raise InvalidInput(f"{path} was changed by another driver just now; run the same command again")
            if shard is not None and first:
                shard.meet("declared")
            session = Session(header, declared_grid(header, grid), crew.memory if crew.here else 0, count)
            return _run(crew, session, grid, cells, None, mixed, progress, shard)


def repair(
    path: Path,
    damaged: Collection[int],
    lost: bool = False,
    *,
    mixed: bool = False,
    memory: int | None = None,
    take_lock: bool = False,
    progress: Mode = "none",
) -> Outcome:
    """Computes some tasks of a store again, and nothing else; the other arguments are those of `run`.

    Args:
      path: The store.
      damaged: The tasks.
      lost: Whether to make again what has no receipt.
    """
    with Crew(memory=memory) as crew, _taken(path, take_lock) as (header, _):
        _prepare(crew)
        if lost:
            template.restore(header, stored_grid(header))
            header = disk.read_header(path)
        session = Session(header, stored_grid(header), crew.memory)
        if damaged:
            check_origin(header, header.done(), crew, mixed)
        with files.writing(path):
            receipts.remove(header.receipts, damaged)
        return _run(crew, session, session.grid, np.arange(session.grid.cells), damaged, mixed, progress)


def _prepare(crew: Crew) -> None:
    """Readies this process for training; where workers do that, this one leaves the devices to them."""
    if crew.here:
        devices.check_devices(crew.devices)
        devices.use_compile_cache()


@contextmanager
def _taken(
    path: Path, take_lock: bool, shard: Shard | None = None, grid: Grid | None = None
) -> Iterator[tuple[Header, lock.Hold]]:
    """The store while this process holds its lock; alone there, it ends or undoes what interrupted writes have left.

    Data sets that the store lacks are taken from ``grid``.
    """
    with ExitStack() as stack:
        with files.writing(path):
            template.make_folders(path)
            hold = stack.enter_context(lock.held(disk.read_header(path).lock, path, shard=shard, take=take_lock))
            header = disk.read_header(path)
            if hold.alone:
                template.remove_stale(path)
                if grid is not None:
                    template.keep_records(header, grid)
                if not manifest.finish(header):
                    template.restore(header, stored_grid(header))
                    header = disk.read_header(path)
        yield header, hold


def memory_budget(given: int | None) -> int:
    """Bytes that a call may take: half of what is free unless given."""
    return int(MEMORY_SHARE * devices.free_call_memory()) if given is None else given


def _remove(path: Path, take_lock: bool) -> None:
    """Takes a store away at once, and then removes it."""
    with files.writing(path):
        template.make_folders(path)
        with lock.held(path / "run" / "lock.json", path, take=take_lock):
            doomed = template.beside(path).with_suffix(f".old{files.PARTIAL}")
            path.rename(doomed)
        shutil.rmtree(doomed)


def _run(
    crew: Crew,
    session: Session,
    grid: Grid,
    wanted: np.ndarray,
    only: Collection[int] | None,
    mixed: bool,
    progress: Mode,
    shard: Shard | None = None,
) -> Outcome:
    """Trains the tasks without a valid receipt that hold ``wanted`` cells, which are those of ``grid``."""
    header = session.header
    mask = np.zeros(session.grid.cells, bool)
    mask[wanted] = True
    mine = [n for n in range(header.chunks) if (shard is None or shard.holds(n)) and mask[session.cells(n)].any()]
    done = _sound(header, None if shard is None else mine)
    todo = [n for n in mine if n not in done and (only is None or n in only)]
    new = sum(len(session.cells(n)) for n in todo)
    found = sum(int(mask[session.cells(n)].sum()) for n in mine) - sum(int(mask[session.cells(n)].sum()) for n in todo)
    if todo:
        check_origin(header, done, crew, mixed)
    failed: dict[int, Fault] = {}
    computed, now = 0, header.now("" if shard is None else str(shard))

    def given_out(numbers: Collection[int]) -> None:
        with files.writing(header.path):
            files.write_json(now, {"tasks": sorted(numbers)}, durable=False)

    with Progress(progress, found + new, found) as shown:
        try:
            shown.event("start", store=str(header.path), cells=found + new, found=found, tasks=len(todo))
            call = _call(crew, session, shown, mixed)
            held = partial(receipts.find, header.receipts)
            for number, result in dispatch.finished(crew, todo, call, held, given_out):
                computed += _noted(session, number, result, shown, failed, crew.here)
        except (KeyboardInterrupt, InvalidInput, Lost) as stop:
            # what has a receipt is finished, whether or not there was time to count it
            held = header.done()
            finished = found + sum(len(session.cells(number)) for number in todo if number in held)
            if isinstance(stop, KeyboardInterrupt):
                raise Stopped(finished, found + new) from None
            raise type(stop)(f"{stop} ({finished} of {found + new} cells are finished)") from None
        finally:
            now.unlink(missing_ok=True)
        shown.event("end", computed=computed, failed=len(failed))
    return Outcome(header, grid, wanted, found, computed, failed)


def _call(crew: Crew, session: Session, shown: Progress, mixed: bool) -> Callable[[int], tuple[Any, ...]]:
    """For a task, the function that trains it, and its arguments."""
    if crew.here:

        def here(number: int) -> tuple[Any, ...]:
            cells = session.cells(number)
            return session.run, number, partial(shown.advance, len(cells), samples(session.grid, cells))

        return here
    store = session.header.path.resolve()

    def elsewhere(number: int) -> tuple[Any, ...]:
        origin = "" if mixed else crew.machine.origin
        return worker.work, worker.Order(store, number, crew.memory, crew.machine.devices, origin)

    return elsewhere


def _noted(
    session: Session, number: int, result: Receipt | Failure, shown: Progress, failed: dict[int, Fault], here: bool
) -> int:
    """Says how a task ended, and keeps the reason where it failed; returns how many cells were computed."""
    if isinstance(result, Failure):
        failed[number] = faults.write(session.header, number, result.error, result.traceback)
        shown.event("failed", task=number, error=result.error, cells=failed[number].cells)
        return 0
    faults.forget(session.header, number)
    if not here:  # a worker says nothing before it has finished
        shown.advance(result.cells, samples(session.grid, session.cells(number)), 1.0)
    shown.event("task", task=number, cells=result.cells, seconds=result.seconds)
    return result.cells


def _sound(header: Header, mine: Collection[int] | None) -> dict[int, Receipt]:
    """The receipts whose files are there in their lengths; the others are taken away, and said.

    Other drivers see to what is not ``mine``.
    """
    done = header.done()
    damaged = {
        n: found
        for n, receipt in done.items()
        if (mine is None or n in mine) and (found := receipt.damage(header.path, thorough=False))
    }
    if damaged:
        warnings.warn(
            f"{header.path} is damaged, {'; '.join(damaged.values())}: "
            f"{sum(done[n].cells for n in damaged)} cells are computed again",
            RuntimeWarning,
            stacklevel=2,
        )
        receipts.remove(header.receipts, damaged)
    return {number: receipt for number, receipt in done.items() if number not in damaged}
