"""Runs a grid into a store: declares what is missing, trains it task by task, and counts.

What a driver adds to the tasks is the template, the lock and the order; see `rlvr_jax.session` for a task by itself.
"""

import shutil
import traceback
import warnings
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from rlvr_jax import devices, disk, files, lock, manifest, receipts, template
from rlvr_jax.declaration import check_origin, chunk_cells, declared, declared_grid
from rlvr_jax.disk import Header
from rlvr_jax.grid import Grid
from rlvr_jax.plan import check_memory, samples
from rlvr_jax.progress import Mode, Progress
from rlvr_jax.receipts import Receipt
from rlvr_jax.results import versions
from rlvr_jax.session import Session, stored_grid
from rlvr_jax.store import labelled
from rlvr_jax.types import InvalidInput

#: Share of the free memory that a run may take unless it is told.
MEMORY_SHARE = 0.5


@dataclass(frozen=True)
class Outcome:
    """What a run has done.

    Attributes:
      header: Of the store.
      grid: What was asked for.
      cells: Where its cells lie in the grid of the store, int64 ``[cells]``.
      found: How many of them had been there.
      computed: How many cells were computed now.
      failed: Tasks that failed, with the reason.
    """

    header: Header
    grid: Grid
    cells: np.ndarray
    found: int
    computed: int
    failed: dict[int, str]

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
) -> Outcome:
    """Brings all cells of a grid into the store at ``path``; what is there already is not computed again.

    Args:
      grid: What is wanted.
      path: A store of the same study, or a place for a new one.
      mixed: Whether cells of another device kind or jaxlib may stand beside the new ones.
      memory: Bytes that a call may take; half of what is free unless given.
      take_lock: Whether to take the lock of a process on another machine.
      overwrite: Whether to throw away what is there first.
      progress: How to show how far it is.

    Raises:
      InvalidInput: If the store is another study's, cannot be written, or is being written; before anything is
        trained where that can be known.
      Stopped: On Ctrl-C.
    """
    disk.check_place(path)
    devices.check_devices()
    devices.use_compile_cache()
    memory = memory_budget(memory)
    check_memory(grid, memory, stored=True)
    if overwrite and path.exists():
        _remove(path)
    if not path.exists():
        template.create(path, grid, chunk_cells(grid), versions())
    with _taken(path, take_lock) as header:
        header, cells = declared(grid, header, memory, mixed)
        return _run(Session(header, declared_grid(header, grid), memory), grid, cells, None, mixed, progress)


def repair(
    path: Path,
    damaged: Collection[int],
    lost: Collection[str] = (),
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
      lost: Files that have no receipt and are to be made again.
    """
    devices.check_devices()
    devices.use_compile_cache()
    with _taken(path, take_lock) as header:
        if lost:
            template.restore(header, stored_grid(header), lost)
            header = disk.read_header(path)
        session = Session(header, stored_grid(header), memory_budget(memory))
        check_origin(header, header.done(), mixed)
        with files.writing(path):
            receipts.remove(header.receipts, damaged)
        return _run(session, session.grid, np.arange(session.grid.cells), damaged, mixed, progress)


@contextmanager
def _taken(path: Path, take_lock: bool) -> Iterator[Header]:
    """The store while this process holds its lock; what interrupted writes have left is removed."""
    with ExitStack() as stack:
        with files.writing(path):
            stack.enter_context(lock.held(disk.read_header(path).lock, path, take=take_lock))
            header = disk.read_header(path)
            if header.chunks and not manifest.current(header):
                manifest.write(header)
            template.remove_stale(path)
        yield header


def memory_budget(given: int | None) -> int:
    """Bytes that a call may take: half of what is free unless given."""
    return int(MEMORY_SHARE * devices.free_call_memory()) if given is None else given


def _remove(path: Path) -> None:
    other = lock.holder(path / "run" / "lock.json")
    if other is not None:
        raise InvalidInput(f"{path} is being written by {other}; it is not removed")
    with files.writing(path):
        shutil.rmtree(path)


def _run(
    session: Session, grid: Grid, wanted: np.ndarray, only: Collection[int] | None, mixed: bool, progress: Mode
) -> Outcome:
    """Trains the tasks without a valid receipt that hold ``wanted`` cells, which are those of ``grid``."""
    header = session.header
    mask = np.zeros(session.grid.cells, bool)
    mask[wanted] = True
    done = _sound(header)
    todo = [n for n in range(header.chunks) if n not in done and mask[session.cells(n)].any()]
    todo = todo if only is None else [n for n in todo if n in only]
    new = sum(len(session.cells(n)) for n in todo)
    found = len(wanted) - sum(int(mask[session.cells(n)].sum()) for n in todo)
    if todo:
        check_origin(header, done, mixed)
    failed: dict[int, str] = {}
    computed = 0
    with Progress(progress, found + new, found) as shown:
        try:
            shown.event("start", store=str(header.path), cells=found + new, found=found, tasks=len(todo))
            for number in todo:
                with files.writing(header.path):
                    files.write_json(header.now, {"tasks": [number]}, durable=False)
                receipt = _attempt(session, number, shown, failed)
                computed += 0 if receipt is None else receipt.cells
        except (KeyboardInterrupt, InvalidInput) as stop:
            # what has a receipt is finished, whether or not there was time to count it
            held = header.done()
            finished = found + sum(len(session.cells(number)) for number in todo if number in held)
            if isinstance(stop, InvalidInput):
                raise InvalidInput(f"{stop} ({finished} of {found + new} cells are finished)") from None
            raise Stopped(finished, found + new) from None
        finally:
            header.now.unlink(missing_ok=True)
        shown.event("end", computed=computed, failed=len(failed))
    return Outcome(header, grid, wanted, found, computed, failed)


def _attempt(session: Session, number: int, shown: Progress, failed: dict[int, str]) -> Receipt | None:
    """Runs a task; where it fails by itself, the reason is kept, and the others go on."""
    cells = session.cells(number)
    drawn, report = samples(session.grid, cells), session.header.failed / f"{number:08d}.json"
    try:
        receipt = session.run(number, lambda share: shown.advance(len(cells), drawn, share))
    except (InvalidInput, OSError):  # a store or an output that is gone concerns every task
        raise
    except Exception as error:
        failed[number] = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        content = {"task": number, "error": failed[number], "traceback": traceback.format_exc()}
        with files.writing(session.header.path):
            files.write_json(report, content)
        shown.event("failed", task=number, error=failed[number])
        return None
    report.unlink(missing_ok=True)
    shown.event("task", task=number, cells=receipt.cells, seconds=receipt.seconds)
    return receipt


def _sound(header: Header) -> dict[int, Receipt]:
    """The receipts whose files are there in their lengths; the others are taken away, and said."""
    done = header.done()
    damaged = {n: found for n, receipt in done.items() if (found := receipt.damage(header.path, thorough=False))}
    if damaged:
        warnings.warn(
            f"{header.path} is damaged, {'; '.join(damaged.values())}: "
            f"{sum(done[n].cells for n in damaged)} cells are computed again",
            RuntimeWarning,
            stacklevel=2,
        )
        receipts.remove(header.receipts, damaged)
    return {number: receipt for number, receipt in done.items() if number not in damaged}
