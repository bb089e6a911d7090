"""The address of a cell: 128 bits that depend on what is trained, and on nothing else.

Two cells have one address if every parameter has the same value in both, whether it was given, left to its default or
follows from others; names and schedules count by what they are, not by their label or place. The steps, the
evaluations and the precision are not part of it: they belong to a store as a whole.

An address is Σ h(parameter, value) mod 2^64 in each of two words, over the parameters that are not at their default,
where h is a bijection of 64 bits keyed by the parameter's name. A parameter that a later version adds with a default
leaves addresses as they are. Among n cells the chance that any two share an address by accident is about
n² / 2^129: below 10^-26 for a million cells and below 10^-20 for a billion.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlvr_jax.grid import Grid, NamedSchedule
from rlvr_jax.types import REQUIRED


def addresses(grid: Grid) -> np.ndarray:
    """The addresses of all cells of a grid, uint64 ``[cells, 2]``.

    >>> from rlvr_jax.grid import make_grid
    >>> from rlvr_jax.worlds import world
    >>> one = make_grid(world("bandit"), {"seed": [0, 1]}, method="rloo", lr=0.5, steps=20)
    >>> two = make_grid(world("bandit"), {"lr": [0.1, 0.5], "seed": [1]}, method="rloo", steps=20)
    >>> bool((addresses(one)[1] == addresses(two)[1]).all())
    True
    """
    words = np.zeros((2, grid.cells), np.uint64)
    for name, column in grid.columns.items():
        parameter = grid.world.parameters[name]
        record = grid.fixed.get(name) if parameter.record else None
        if hasattr(record, "canonical"):
            values: Sequence[object] = [record]
            column = np.zeros_like(column)
        elif parameter.choices:
            values = parameter.choices
        elif parameter.scheduled:
            values = [_constant(value) for value in grid.schedules]
        else:
            values = ()
        if values:
            usual = [value == parameter.default for value in values]
            table = np.array([_word(value) for value in values], np.uint64)
            number, default = table[column], np.array(usual)[column]
        else:
            kind = np.int64 if parameter.whole or parameter.flag else np.float64
            number = (column.astype(kind) + kind(0)).view(np.uint64)  # -0.0 is 0.0
            known = parameter.default is not None and parameter.default is not REQUIRED
            default = column == parameter.default if known else np.zeros(len(column), bool)
        if default.all():
            continue
        if (number == number[0]).all():
            number, default = number[:1], default[:1]
        for word, key in zip(words, _keys(name), strict=True):
            word += np.where(default, np.uint64(0), _mixed(number ^ key))
    return np.ascontiguousarray(words.T)


def find(wanted: np.ndarray, held: np.ndarray) -> np.ndarray:
    """For each address of ``wanted [n, 2]`` its place in ``held [m, 2]``, or -1; int64 ``[n]``."""
    if len(held) == 0:
        return np.full(len(wanted), -1)
    order = np.argsort(held[:, 0])
    place = np.minimum(np.searchsorted(held[:, 0], wanted[:, 0], sorter=order), len(held) - 1)
    place = order[place]
    return np.where((held[place] == wanted).all(1), place, -1)


def _constant(value: object) -> object:
    """A schedule that never changes is a number."""
    if isinstance(value, NamedSchedule) and len(set(value.table)) == 1:
        return value.table[0]
    return value


def _word(value: Any) -> int:
    """64 bits of a name, a number, a schedule or a record, by its content."""
    if isinstance(value, NamedSchedule):
        content = value.canonical()["schedule"]
    elif hasattr(value, "canonical"):
        content = value.canonical()
    else:
        content = value + 0.0 if isinstance(value, float) else value  # -0.0 is 0.0
    return int.from_bytes(hashlib.sha256(json.dumps(content).encode()).digest()[:8], "little")


def _keys(name: str) -> tuple[np.uint64, np.uint64]:
    digest = hashlib.sha256(name.encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little")), np.uint64(int.from_bytes(digest[8:16], "little"))


def _mixed(x: np.ndarray) -> np.ndarray:
    """Two rounds of SplitMix64's finalizer (Steele, Lea & Flood 2014), a bijection of 64 bits."""
    for _ in range(2):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return x
