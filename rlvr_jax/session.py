"""Tasks of a store, each trained by its number alone, in whatever process this is.

`run_task` needs the store and a number, so that whoever can reach the store can do it. A task leaves its chunk, and
then its receipt.
"""

import platform
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rlvr_jax import devices, disk, files, tasks
from rlvr_jax.addresses import addresses
from rlvr_jax.disk import Header
from rlvr_jax.engine import Clock, Work
from rlvr_jax.grid import Grid, grid_of, record_file
from rlvr_jax.lanes import Layout
from rlvr_jax.plan import Limits, Part, make_part
from rlvr_jax.receipts import Receipt
from rlvr_jax.results import versions
from rlvr_jax.types import InvalidInput
from rlvr_jax.worlds import world

if TYPE_CHECKING:
    from rlvr_jax.devices import Device


def stored_grid(header: Header) -> Grid:
    """The grid of a store's spec.

    Raises:
      InvalidInput: If a data set of it is lost or is another one by now.
    """
    for name, value in header.spec["fixed"].items():
        if isinstance(value, dict) and "sha256" in value:
            _check_record(header, name, value)
    return grid_of(world(header.spec["world"]), header.spec, header.records)


def _check_record(header: Header, name: str, canonical: dict[str, Any]) -> None:
    file = record_file(header.records, canonical)
    read = world(header.spec["world"]).parameters[name].record
    try:
        found = read(file, name).canonical() if read else None
        wrong = "" if found == canonical else f"{file} is another data set than it was"
    except InvalidInput as error:
        wrong = str(error)
    if wrong:
        raise InvalidInput(f"{header.path} is damaged: {wrong}; running its spec again makes {name} again") from None


class Session:
    """What a process needs to train tasks of a store: its grid, and the program of the part that it works on.

    Args:
      header: Of the store.
      grid: Of the store's spec.
      memory: Bytes that a call may take.
      count: How many devices of the process to use; None for all.
    """

    def __init__(self, header: Header, grid: Grid, memory: int, count: int | None = None):
        self.header, self.grid, self.memory, self.count = header, grid, memory, count
        self.clock = Clock()
        self._part: tuple[int, Part, Work] | None = None

    @cached_property
    def devices(self) -> "list[Device]":
        """Where it trains."""
        return devices.used(self.count)

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
                processor=devices.processor(self.devices[0]),
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
def _session(path: Path, declaration: int, memory: int, count: int | None) -> Session:
    header = disk.read_header(path)
    return Session(header, stored_grid(header), memory, count)


def run_task(path: Path, number: int, memory: int, count: int | None = None) -> Receipt:
    """Trains one task of a store whose driver has made it, in whatever process this is.

    Args:
      path: The store.
      number: Of the task.
      memory: Bytes that a call may take.
      count: How many devices of the process to use; None for all.

    Returns:
      The receipt, which is also in the store.
    """
    devices.use_compile_cache()
    return _session(path, disk.read_header(path).declaration, memory, count).run(number)
