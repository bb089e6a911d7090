"""Runs a grid into a store: plans what is missing, trains it task by task, and leaves a receipt for each.

A task is known by its number alone; `run_task` needs the store and that number, so that whoever can reach the store
can do it. What the driver adds is the template, the lock, the order and the count.
"""

import platform
import shutil
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

import jax
import numpy as np
import xarray as xr

from rlvr_jax import devices, disk, files, lock, manifest, receipts, tasks, template
from rlvr_jax.addresses import addresses, find
from rlvr_jax.disk import UNUSED, Header
from rlvr_jax.engine import Clock, Work
from rlvr_jax.grid import Grid, NamedSchedule, grid_of
from rlvr_jax.lanes import Layout
from rlvr_jax.plan import (
    CALL_SECONDS,
    SPEED,
    WIDEST,
    Limits,
    Part,
    cell_bytes,
    cell_shape,
    check_memory,
    make_part,
    make_plan,
    samples,
    seconds_of,
)
from rlvr_jax.progress import Mode, Progress
from rlvr_jax.receipts import Receipt
from rlvr_jax.results import versions
from rlvr_jax.store import labelled
from rlvr_jax.types import InvalidInput
from rlvr_jax.worlds import world

#: Share of the free memory that a run may take unless it is told.
MEMORY_SHARE = 0.5

#: Slots of a chunk at least and at most, and most bytes of one.
FEWEST_SLOTS, MOST_SLOTS, CHUNK_BYTES = 1024, 2**16, 2**26


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
      clock: What it took.
    """

    header: Header
    grid: Grid
    cells: np.ndarray
    found: int
    computed: int
    failed: dict[int, str]
    clock: Clock

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


class Session:
    """What a process needs to train tasks of a store: its grid, and the program of the part that it works on.

    Args:
      header: Of the store.
      grid: Of the store's spec.
      memory: Bytes that a call may take.
    """

    def __init__(self, header: Header, grid: Grid, memory: int):
        self.header, self.grid, self.memory = header, grid, memory
        self.devices, self.clock = jax.devices(), Clock()
        self._part: tuple[int, Part, Work] | None = None

    def run(self, number: int, advanced: Callable[[float], object] = lambda share: None) -> Receipt:
        """Trains a task, writes its chunk and then its receipt.

        Raises:
          InvalidInput: If it cannot be written, or memory does not suffice for it.
        """
        began, compiling = time.perf_counter(), self.clock.compile_seconds
        with jax.enable_x64(self.grid.precision == "float64"):
            first, part, work = self._prepared(number)
            items = list(tasks.slices(part))[number - first]
            results = tasks.train(self.grid, part, work, items, self.devices, self.clock, advanced)
        real = part.real[items].reshape(-1)
        for name, values in results.items():
            flat = values.reshape((-1, *values.shape[3:])).copy()
            flat[~real] = -1 if name == "diverged_step" else np.nan
            results[name] = flat
        with files.writing(self.header.path):
            written = disk.write_chunk(self.header, number, results)
            receipt = Receipt(
                task=number,
                cells=int(real.sum()),
                addresses=self.address_hash(number),
                files=written,
                diverged=int((results["diverged_step"] >= 0).sum()),
                device_kind=self.devices[0].device_kind,
                versions=versions(),
                seconds=round(time.perf_counter() - began - (self.clock.compile_seconds - compiling), 3),
                host=platform.node(),
                finished=datetime.now().astimezone().isoformat(timespec="seconds"),
            )
            receipt.write(self.header.receipts)
        return receipt

    @cached_property
    def addresses(self) -> np.ndarray:
        """Of all cells of the grid."""
        return addresses(self.grid)

    def address_hash(self, number: int) -> str:
        """Hash of the addresses of a task's cells."""
        places = self.header.places[number]
        return sha256(self.addresses[places[places >= 0]].tobytes()).hexdigest()

    def cells(self, number: int) -> np.ndarray:
        """The cells of a task, as indices in the grid."""
        places = self.header.places[number]
        return places[places >= 0]

    def _prepared(self, number: int) -> tuple[int, Part, Work]:
        """The part of a task with its first task's number, and what the engine needs for it."""
        stored = self.header.part_of(number)
        if self._part is None or self._part[0] != stored.first:
            places = self.header.places[stored.first : stored.first + stored.chunks, : stored.each * stored.width]
            layout = Layout(stored.seeds, stored.blocks)
            encoded = places.reshape(-1)[: stored.items * stored.width].reshape(-1, layout.lanes, layout.seeds)
            count, real = len(self.devices), encoded >= 0
            cell = np.where(real, encoded, ~encoded)
            part = make_part(self.grid, layout, cell, real, stored.reason, count, Limits(memory=self.memory))
            part = replace(part, items=stored.each)
            work = replace(part.work(self.grid), items=count * -(-stored.each // count))
            self._part = stored.first, part, tasks.fitted(work, self.devices, self.clock, self.memory)
        return self._part


@lru_cache(maxsize=1)
def _session(path: Path, declaration: int, memory: int) -> Session:
    header = disk.read_header(path)
    return Session(header, grid_of(world(header.spec["world"]), header.spec, header.records), memory)


def run_task(path: Path, number: int, memory: int) -> Receipt:
    """Trains one task of a store whose driver has made it, in whatever process this is.

    Args:
      path: The store.
      number: Of the task.
      memory: Bytes that a call may take.

    Returns:
      The receipt, which is also in the store.
    """
    devices.use_compile_cache()
    return _session(path, disk.read_header(path).declaration, memory).run(number)


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
        header, cells = _declared(grid, header, memory)
        return _run(Session(header, _grid(header, grid), memory), grid, cells, None, mixed, progress)


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
            template.restore(header, grid_of(world(header.spec["world"]), header.spec, header.records), lost)
            header = disk.read_header(path)
        session = Session(
            header, grid_of(world(header.spec["world"]), header.spec, header.records), memory_budget(memory)
        )
        _check_origin(header, header.done(), mixed)
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
            for folder in (*header.variables, "run"):
                files.remove_partial(path / folder)
        yield header


def chunk_cells(grid: Grid) -> int:
    """Slots of a chunk: a power of two, as many cells as all devices train in about the time of a call."""
    count = len(jax.devices())
    slots = CALL_SECONDS * count / max(float(seconds_of(grid).min()), 1e-9)
    slots = min(slots, CHUNK_BYTES / cell_bytes(grid), MOST_SLOTS)
    slots = max(slots, FEWEST_SLOTS, count * WIDEST)
    return 2 ** int(np.log2(slots))


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
        _check_origin(header, done, mixed)
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
        except KeyboardInterrupt:
            raise Stopped(found + computed, found + new) from None
        except InvalidInput as error:
            raise InvalidInput(f"{error} ({found + computed} of {found + new} cells are finished)") from None
        finally:
            header.now.unlink(missing_ok=True)
        shown.event("end", computed=computed, failed=len(failed))
    return Outcome(header, grid, wanted, found, computed, failed, session.clock)


def _attempt(session: Session, number: int, shown: Progress, failed: dict[int, str]) -> Receipt | None:
    """Runs a task; where it fails by itself, the reason is kept, and the others go on."""
    cells = session.cells(number)
    drawn, report = samples(session.grid, cells), session.header.failed / f"{number:08d}.json"
    try:
        receipt = session.run(number, lambda share: shown.advance(len(cells), drawn, share))
    except InvalidInput:
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


def _grid(header: Header, grid: Grid) -> Grid:
    """The grid that a store declares; ``grid`` is perhaps that one."""
    return grid if grid.sha256 == header.spec_sha256 else grid_of(grid.world, header.spec, header.records)


def _declared(grid: Grid, header: Header, memory: int) -> tuple[Header, np.ndarray]:
    """The store after it has been given the cells of ``grid`` that it lacks, and where they all are in its grid."""
    _check_study(grid, header)
    declared = _grid(header, grid)
    places = header.places if header.chunks else np.zeros((0, header.chunk_cells), np.int64)
    if declared is not grid:
        old, new = addresses(declared), addresses(grid)
        inside = find(old, new)  # of each old cell, its place in the new grid
        if (inside < 0).any():
            within = find(new, old)
            if (within < 0).any():
                raise InvalidInput(_left_out(grid, declared, header.path))
            return _completed(declared, header, places, memory), within
        places = _moved(places, inside)
    return _completed(grid, header, places, memory), np.arange(grid.cells)


def _completed(grid: Grid, header: Header, places: np.ndarray, memory: int) -> Header:
    """The store with places for all cells of ``grid``."""
    held = np.zeros(grid.cells, bool)
    held[places[places >= 0]] = True
    if held.all() and grid.sha256 == header.spec_sha256:
        return header
    parts: Sequence[Part] = ()
    if not held.all():
        limits = Limits(header.chunk_cells, memory, _speed(grid, header, places))
        parts = make_plan(grid, len(jax.devices()), limits, np.flatnonzero(~held))
    return template.declare(header, grid, places, parts)


def _moved(places: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Places in another grid, where the cell i is the cell ``inside[i]``."""
    moved = np.full_like(places, UNUSED)
    real, padding = places >= 0, (places < 0) & (places != UNUSED)
    moved[real], moved[padding] = inside[places[real]], ~inside[~places[padding]]
    return moved


def _speed(grid: Grid, header: Header, places: np.ndarray) -> float:
    """What one device has done in a second so far, in numbers of `World.work`; a guess before three tasks."""
    done = {number: receipt for number, receipt in header.done().items() if receipt.seconds > 0}
    if len(done) < 3:
        return SPEED
    work = seconds_of(grid, 1.0)
    rates = [work[places[number][places[number] >= 0]].sum() / receipt.seconds for number, receipt in done.items()]
    return float(np.median(rates)) / len(jax.devices())


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


def _check_origin(header: Header, done: dict[int, Receipt], mixed: bool) -> None:
    here = f"{jax.devices()[0].device_kind} with jaxlib {versions()['jaxlib']}"
    others = sorted({receipt.origin for receipt in done.values()} - {here})
    if others and not mixed:
        raise InvalidInput(
            f"{header.path} was computed on {' and on '.join(others)}, and this is {here}, where the last bits may "
            "differ; choose another place, or allow both (--mixed)"
        )


def _check_study(grid: Grid, header: Header) -> None:
    """Refuses a spec whose results would not fit into the arrays of the store, or would mean something else."""
    there, here = header.spec, grid.spec
    for name in ("world", "steps", "eval_steps", "precision", "keep"):
        if there[name] != here[name]:
            raise InvalidInput(
                f"{header.path} holds another study: {name} is {_brief(there[name])} there and {_brief(here[name])} "
                "in this spec; choose another place (--out)"
            )
    for kept in grid.kept:
        stored = header.array(kept.name).shape[1:]
        if stored != cell_shape(grid, kept):
            raise InvalidInput(
                f"{header.path} holds another study: {kept.name} has shape {stored} for each cell there and "
                f"{cell_shape(grid, kept)} in this spec; choose another place (--out)"
            )


def _left_out(grid: Grid, declared: Grid, path: Path) -> str:
    """Which value of the store a spec leaves out, and what to do."""
    advice = "a spec that extends a store keeps its cells"
    for name in grid.world.parameters:
        there, here = (list(map(_shown, one.values(name))) for one in (declared, grid))
        if set(there) - set(here) and set(here) - set(there):
            return (
                f"{path} has {name} {_several(there)}, and this spec has {_several(here)}; {advice}: give {name} "
                "all of these values as an axis, or choose another place (--out)"
            )
    others = "combinations that this spec leaves out, and this spec has others"
    return f"{path} has {others}; {advice}: choose another place (--out)"


def _shown(value: object) -> str:
    """A value of a parameter in a sentence; different values look different."""
    if isinstance(value, NamedSchedule):
        return f"{value.name!r} {value.canonical()['schedule']}"
    if hasattr(value, "canonical"):  # a record
        return str(value.canonical())  # pyright: ignore
    return "unset" if value is None else str(value)


def _several(values: Sequence[str]) -> str:
    return _brief(", ".join(values if len(values) <= 6 else [*values[:3], "...", values[-1]]))


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
