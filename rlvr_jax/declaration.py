"""How a grid and a store fit together: which cells are there, which are new, and what means something else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_jax import template
from rlvr_jax.addresses import addresses, find
from rlvr_jax.disk import UNUSED, Header
from rlvr_jax.executors import Crew
from rlvr_jax.grid import Grid, NamedSchedule
from rlvr_jax.plan import (
    CALL_SECONDS,
    SPEED,
    WIDEST,
    Limits,
    Part,
    cell_bytes,
    cell_shape,
    make_plan,
    seconds_of,
)
from rlvr_jax.receipts import Receipt
from rlvr_jax.session import stored_grid
from rlvr_jax.types import InvalidInput

#: Slots of a chunk at least and at most, and most bytes of one.
FEWEST_SLOTS, MOST_SLOTS, CHUNK_BYTES = 1024, 2**16, 2**26

#: Shorter tasks say little of how fast a device is.
TELLING_SECONDS = 0.2


def chunk_cells(grid: Grid, count: int) -> int:
    """Slots of a chunk: a power of two, as many cells as ``count`` devices train in about the time of a call."""
    slots = CALL_SECONDS * count / max(float(seconds_of(grid).min()), 1e-9)
    slots = min(slots, CHUNK_BYTES / cell_bytes(grid), MOST_SLOTS)
    slots = max(slots, FEWEST_SLOTS, count * WIDEST)
    return 2 ** int(np.log2(slots))


def declared_grid(header: Header, grid: Grid) -> Grid:
    """The grid that a store declares; ``grid`` is perhaps that one."""
    return grid if grid.sha256 == header.spec_sha256 else stored_grid(header)


def declared(grid: Grid, header: Header, crew: Crew, mixed: bool, alone: bool) -> tuple[Header, np.ndarray]:
    """Gives a store the cells of a grid that it lacks.

    Args:
      grid: What is wanted.
      header: Of a store, which may be empty.
      crew: Who is to train them.
      mixed: Whether cells of another device kind or jaxlib may stand beside the new ones.
      alone: Whether no other driver trains cells of the store, so that it may be changed.

    Returns:
      What the store says of itself afterwards, and where the cells of ``grid`` lie in its grid, int64 ``[cells]``.

    Raises:
      InvalidInput: If the store holds another study, or cells that the grid leaves out while it has others; or if it
        lacks cells and is not ``alone``.
    """
    _check_study(grid, header)
    held = declared_grid(header, grid)
    places = header.places if header.chunks else np.zeros((0, header.chunk_cells), np.int64)
    if held is not grid:
        old, new = addresses(held), addresses(grid)
        inside = find(old, new)  # of each old cell, its place in the new grid
        if (inside < 0).any():
            within = find(new, old)
            if (within < 0).any():
                raise InvalidInput(_left_out(grid, held, header.path))
            return _completed(held, header, places, crew, mixed, alone), within
        places = _moved(places, inside)
    return _completed(grid, header, places, crew, mixed, alone), np.arange(grid.cells)


def check_origin(header: Header, done: Mapping[int, Receipt], crew: Crew, mixed: bool) -> None:
    """Refuses to put cells beside those of another device kind or jaxlib.

    Raises:
      InvalidInput: Unless they may be ``mixed``.
    """
    if mixed or not done:
        return
    here = crew.machine.origin
    others = sorted({receipt.origin for receipt in done.values()} - {here})
    if others:
        raise InvalidInput(
            f"{header.path} was computed on {' and on '.join(others)}, and this is {here}, where the last bits may "
            "differ; choose another place, or allow both (--mixed)"
        )


def _completed(grid: Grid, header: Header, places: np.ndarray, crew: Crew, mixed: bool, alone: bool) -> Header:
    """The store with places for all cells of ``grid``."""
    held = np.zeros(grid.cells, bool)
    held[places[places >= 0]] = True
    if held.all() and grid.sha256 == header.spec_sha256:
        return header
    if not alone:
        raise InvalidInput(
            f"{header.path} is being written by drivers of other shards, for another spec; wait for them, or stop them"
        )
    parts: Sequence[Part] = ()
    if not held.all():
        check_origin(header, header.done(), crew, mixed)
        count = crew.machine.devices
        limits = Limits(header.chunk_cells, crew.memory, _speed(grid, header, places, count))
        parts = make_plan(grid, count, limits, np.flatnonzero(~held))
    return template.declare(header, grid, places, parts)


def _moved(places: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Places in another grid, where the cell i is the cell ``inside[i]``."""
    moved = np.full_like(places, UNUSED)
    real, padding = places >= 0, (places < 0) & (places != UNUSED)
    moved[real], moved[padding] = inside[places[real]], ~inside[~places[padding]]
    return moved


def _speed(grid: Grid, header: Header, places: np.ndarray, count: int) -> float:
    """What one of ``count`` devices has done in a second so far, in numbers of `World.work`.

    It is a guess before there are three tasks that tell.
    """
    done = {number: receipt for number, receipt in header.done().items() if receipt.seconds >= TELLING_SECONDS}
    if len(done) < 3:
        return SPEED
    work = seconds_of(grid, 1.0)
    rates = [work[places[number][places[number] >= 0]].sum() / receipt.seconds for number, receipt in done.items()]
    return float(np.median(rates)) / count


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
            numbers = all(
                isinstance(value, int | float | str) for one in (declared, grid) for value in one.values(name)
            )
            axis = f"give {name} all of these values as an axis, or " if numbers else ""
            return (
                f"{path} has {name} {_several(there)}, and this spec has {_several(here)}; {advice}: "
                f"{axis}choose another place (--out)"
            )
    others = "combinations that this spec leaves out, and this spec has others"
    return f"{path} has {others}; {advice}: choose another place (--out)"


def _shown(value: Any) -> str:
    """A value of a parameter in a sentence; different values look different."""
    if isinstance(value, NamedSchedule):
        return f"{value.name!r} {value.canonical()['schedule']}"
    if hasattr(value, "canonical"):  # a record
        return str(value.canonical())
    return "unset" if value is None else str(value)


def _several(values: Sequence[str]) -> str:
    return _brief(", ".join(values if len(values) <= 6 else [*values[:3], "...", values[-1]]))


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
