"""Tasks of a store that failed for good: why, and which cells that leaves without results."""

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rlvr_jax import files
from rlvr_jax.disk import Header

#: Values of a parameter that are named one by one.
NAMED = 4


@dataclass(frozen=True)
class Fault:
    """A failed task.

    Attributes:
      task: Its number.
      error: Why, in one line.
      cells: Which cells it holds, in words.
      traceback: Where it failed.
      host: The machine whose driver says so.
    """

    task: int
    error: str
    cells: str
    traceback: str = ""
    host: str = ""

    def __str__(self) -> str:
        return f"{self.error} ({self.cells})"


def write(header: Header, task: int, error: str, traceback: str) -> Fault:
    """Keeps in the store that a task failed."""
    fault = Fault(task, error, cells_in_words(header, task), traceback, platform.node())
    with files.writing(header.path):
        files.write_json(header.failed / f"{task:08d}.json", asdict(fault))
    return fault


def forget(header: Header, task: int) -> None:
    """The task has been done."""
    (header.failed / f"{task:08d}.json").unlink(missing_ok=True)


def read(header: Header) -> dict[int, Fault]:
    """The failed tasks of a store; one that has been done since is none."""
    faults = {}
    for file in sorted(header.failed.glob("*.json")):
        content = files.read_json(file)
        try:
            fault = Fault(**content)
        except TypeError:  # cut short by a crash
            continue
        if fault.task < header.chunks and not header.receipt(fault.task).exists():
            faults[fault.task] = fault
    return faults


def cells_in_words(header: Header, task: int) -> str:
    """Which cells a task has: their number, and the values of each axis among them."""
    places = header.places[task]
    cells = places[places >= 0]
    axes = header.spec["axes"]
    lengths = [len(next(iter(axis["values"].values()))) for axis in axes]
    parts = [f"{len(cells):,} cells" if len(cells) != 1 else "1 cell"]
    for axis, index in zip(axes, np.unravel_index(cells, lengths), strict=True):
        chosen = np.unique(index)
        parts += [f"{name} {_values([values[i] for i in chosen])}" for name, values in axis["values"].items()]
    return "; ".join(parts)


def _values(values: list[Any]) -> str:
    """Values in a sentence.

    >>> _values([0.1, 0.5]), _values([0, 1, 2, 3, 4, 5]), _values([{"name": "late", "schedule": [[0, 1.0]]}])
    ('0.1, 0.5', '0 to 5 (6 values)', 'late')
    """
    names = [_name(value) for value in values]
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{names[0]} to {names[-1]} ({len(names)} values)"


def _name(value: Any) -> str:
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"])
    return f"{value:.6g}" if isinstance(value, float) else str(value)
