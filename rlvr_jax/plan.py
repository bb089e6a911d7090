"""From a grid to programs: which cells share a compiled program, and how they lie in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from rlvr_jax.engine import Segments, Work
from rlvr_jax.grid import Grid
from rlvr_jax.kept import Kept
from rlvr_jax.lanes import VECTOR, Layout
from rlvr_jax.types import InvalidInput

#: Numbers in one array of a step, [B, M, L], beyond which wider rows no longer pay: memory becomes the limit.
CACHED = 2**20

#: Widest and narrowest row of lanes that a program is given.
WIDEST, NARROWEST = 256, VECTOR

#: A step's fixed cost, in lanes: what a row of lanes costs beyond its width.
OVERHEAD = 48

#: Cost of a lane where seeds lie side by side, relative to a lane of one seed: rows are transposed at each step.
SIDE_BY_SIDE = 1.6

#: Cells whose work is below this share of their program's largest get a program of their own.
LEAST_SHARE = 0.5

#: Guessed speed of one device, in the numbers a second of `World.work`, for cutting calls to about `CALL_SECONDS`.
SPEED = 3e9
CALL_SECONDS = 2.0

#: Copies of the state that a call needs at a time: its own, the next one, and arrays of an evaluation.
STATES = 6

#: Bytes that one call may take beyond the program's own arrays, on all devices together, where memory allows it.
CALL_BYTES = 2**30


@dataclass(frozen=True)
class Limits:
    """What a call may be.

    Attributes:
      places: Most places in it, padding included; None for any number.
      memory: Most bytes, for the states and the results of all its places; `CALL_BYTES` at most.
      speed: Numbers a second of `World.work` that one device does.
    """

    places: int | None = None
    memory: int | None = None
    speed: float = SPEED


@dataclass(frozen=True)
class Part:
    """The cells of one program.

    Attributes:
      program: The world's static program.
      cell: int64 ``[N, C, W]``, the cell in each place; padding repeats a cell of the same seed.
      real: bool ``[N, C, W]``, where a place is not padding.
      items: Items in one call.
      segments: Evaluations and time slices.
      reason: Why these cells have a program of their own, in words.
    """

    program: Any
    cell: np.ndarray
    real: np.ndarray
    items: int
    segments: Segments
    reason: str

    @property
    def calls(self) -> int:
        """Calls of the compiled function, time slices included."""
        return -(-len(self.cell) // self.items) * len(self.segments.begin)

    def work(self, grid: Grid) -> Work:
        """What the engine needs to train these cells."""
        inputs, shared = grid.world.inputs(self.program, grid, self.cell)
        return Work(
            program=self.program,
            inputs=inputs,
            shared=shared,
            items=self.items,
            segments=self.segments,
            metrics=grid.curves,
            finals=("diverged_step", *grid.totals),
        )


def make_plan(
    grid: Grid,
    devices: int,
    limits: Limits = Limits(),
    cells: np.ndarray | None = None,
) -> tuple[Part, ...]:
    """Sorts the cells of a grid into programs; nothing is compiled.

    Cells share a program if they have the same array shapes. A smaller batch or group is masked up to the largest of
    its program, unless that would waste more than half of its work. Within a program the cells of one seed lie in
    lanes, sorted by method; where there are few of them, several seeds lie side by side.

    Args:
      grid: What to train.
      devices: How many devices share the items of a call.
      limits: Of a call.
      cells: Which cells of the grid, ascending; None for all.
    """
    parts = []
    chosen = np.arange(grid.cells) if cells is None else cells
    for cells, reason in _shapes(grid, chosen):
        for seeds in _alike(grid, cells):
            layout, cell, real = _arrange(grid, seeds, devices)
            parts.append(make_part(grid, layout, cell, real, reason, devices, limits))
    return tuple(parts)


def make_part(
    grid: Grid, layout: Layout, cell: np.ndarray, real: np.ndarray, reason: str, devices: int, limits: Limits
) -> Part:
    """Cells that have been laid out, with their program and calls."""
    program = grid.world.program(layout, grid, cell.reshape(-1))
    items, slices = _call(grid, layout, cell, devices, limits)
    return Part(program, cell, real, items, Segments.cut(grid.eval_steps, slices), reason)


def _shapes(grid: Grid, chosen: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """Cells that can share array shapes, and why."""
    roles = {role: [n for n, p in grid.world.parameters.items() if p.role == role] for role in ("shape", "size")}
    work = grid.world.work(grid.columns)[chosen]
    columns = {name: grid.columns[name][chosen] for name in (*roles["shape"], *roles["size"])}
    kind = _codes([columns[name] for name in (*roles["shape"], *roles["size"])])
    first = np.unique(kind, return_index=True)[1]
    waiting = sorted(first.tolist(), key=lambda i: -work[i])
    while waiting:
        largest = waiting[0]
        same = [
            i
            for i in waiting
            if all(columns[name][i] == columns[name][largest] for name in roles["shape"])
            and all(columns[name][i] <= columns[name][largest] for name in roles["size"])
            and work[i] >= LEAST_SHARE * work[largest]
        ]
        waiting = [i for i in waiting if i not in same]
        sizes = ", ".join(f"{name} {columns[name][largest]}" for name in (*roles["shape"], *roles["size"]))
        reason = f"arrays of {sizes}" + (f" ({len(same)} combinations of sizes by mask)" if len(same) > 1 else "")
        yield chosen[np.isin(kind, kind[same])], reason


def _alike(grid: Grid, cells: np.ndarray) -> Iterator[list[tuple[str, np.ndarray]]]:
    """Seeds with the same number of cells of each method: ``(method, cells [S, n])`` in the order of the blocks."""
    columns, parameters = grid.columns, grid.world.parameters
    seed = _codes([columns[n][cells] for n, p in parameters.items() if p.role == "draw"])
    choices = parameters["method"].choices
    method = columns["method"][cells]
    order = np.lexsort((method, seed))
    cells, seed, method = cells[order], seed[order], method[order]
    counts = np.bincount(seed * len(choices) + method, minlength=(seed[-1] + 1) * len(choices))
    counts = counts.reshape(-1, len(choices))
    if (counts == counts[0]).all():
        kinds, kind = counts[:1], np.zeros(len(counts), np.intp)
    else:
        kinds, kind = np.unique(counts, axis=0, return_inverse=True)
    for k, count in enumerate(kinds):
        table = cells[np.isin(seed, np.flatnonzero(kind.reshape(-1) == k))].reshape(-1, count.sum())
        ends = np.cumsum(count)
        yield [(choices[m], table[:, ends[m] - count[m] : ends[m]]) for m in range(len(choices)) if count[m]]


def _arrange(grid: Grid, blocks: list[tuple[str, np.ndarray]], devices: int) -> tuple[Layout, np.ndarray, np.ndarray]:
    """The cheapest way to lay out these seeds: lanes of one seed cut into chunks, or seeds side by side."""
    seeds, lanes = len(blocks[0][1]), sum(cells.shape[1] for _, cells in blocks)
    columns, first = grid.columns, blocks[0][1][0, 0]
    most = CACHED / grid.world.row(columns)[first]
    most = int(min(max(most // VECTOR * VECTOR, NARROWEST), WIDEST))

    def cost(width: int, items: int, side_by_side: bool) -> float:
        return -(-items // devices) * (width * (SIDE_BY_SIDE if side_by_side else 1) + OVERHEAD)

    options = []
    fewest = -(-lanes // most)
    for chunks in {fewest, fewest + 1, max(fewest, -(-devices // seeds))}:
        width = _padded(sum(-(-cells.shape[1] // chunks) for _, cells in blocks))
        options.append((cost(width, seeds * chunks, False), 1, chunks))
    step = VECTOR // gcd(lanes, VECTOR)
    for side in range(step, min(most // lanes, -(-seeds // step) * step) + 1, step):
        if side > 1:
            options.append((cost(side * lanes, -(-seeds // side), True), side, 1))
    _, side, chunks = min(options)
    if side > 1:
        return _beside(blocks, side)
    return _chunked(blocks, chunks)


def _padded(lanes: int) -> int:
    return -(-lanes // VECTOR) * VECTOR


def _chunked(blocks: list[tuple[str, np.ndarray]], chunks: int) -> tuple[Layout, np.ndarray, np.ndarray]:
    """One seed an item; each method's cells are cut into ``chunks`` equal blocks."""
    sizes = [-(-cells.shape[1] // chunks) for _, cells in blocks]
    sizes[-1] += _padded(sum(sizes)) - sum(sizes)
    cell, real = [], []
    for (_, cells), size in zip(blocks, sizes, strict=True):
        part = -(-cells.shape[1] // chunks)
        place = np.arange(size) + part * np.arange(chunks)[:, None]
        exists = (np.arange(size) < part) & (place < cells.shape[1])
        cell.append(cells[:, np.minimum(place, cells.shape[1] - 1)])  # [S, chunks, size]
        real.append(np.broadcast_to(exists, cell[-1].shape))
    layout = Layout(1, tuple((method, size) for (method, _), size in zip(blocks, sizes, strict=True)))
    cells, exist = (np.concatenate(x, -1).reshape(-1, layout.lanes, 1) for x in (cell, real))
    return layout, cells, exist


def _beside(blocks: list[tuple[str, np.ndarray]], side: int) -> tuple[Layout, np.ndarray, np.ndarray]:
    """``side`` seeds an item; the last item repeats the last seed."""
    layout = Layout(side, tuple((method, cells.shape[1]) for method, cells in blocks))
    table = np.concatenate([cells for _, cells in blocks], 1)  # [S, C]
    items = -(-len(table) // side)
    seed = np.arange(items * side)
    cell = table[np.minimum(seed, len(table) - 1)].reshape(items, side, -1).transpose(0, 2, 1)
    real = np.broadcast_to((seed < len(table)).reshape(items, 1, side), cell.shape)
    return layout, cell, real


def _call(grid: Grid, layout: Layout, cell: np.ndarray, devices: int, limits: Limits) -> tuple[int, int]:
    """Items in a call and time slices of a training, so that calls are short and fit in memory."""
    first = cell[0, 0, 0]
    if limits.places is not None:  # where a store's chunks were made for fewer devices, the others have to wait
        devices = max(1, min(devices, limits.places // layout.width))
    seconds = layout.width * seconds_of(grid, limits.speed)[first]
    state = STATES * int(grid.world.state(grid.columns)[first]) * np.dtype(grid.precision).itemsize
    # results are there twice: as the engine returns them and as they are stored
    bytes_each = layout.width * (state + 2 * cell_bytes(grid))
    memory = CALL_BYTES if limits.memory is None else min(limits.memory, CALL_BYTES)
    fit = int(min(CALL_SECONDS / max(seconds, 1e-9), memory / bytes_each / devices))
    if limits.places is not None:
        fit = min(fit, limits.places // layout.width // devices)
    local = -(-len(cell) // devices)
    calls = -(-local // max(1, fit))
    slices = max(1, min(grid.steps, int(np.ceil(seconds / CALL_SECONDS))))
    return devices * -(-local // calls), slices


def seconds_of(grid: Grid, speed: float = SPEED) -> np.ndarray:
    """Estimated seconds that one device needs for each cell ``[cells]``."""
    return grid.steps * grid.world.work(grid.columns) / speed


def samples(grid: Grid, cells: np.ndarray) -> int:
    """Samples that the training of these cells draws: T * B * G of each."""
    return grid.steps * int((grid.columns["batch_size"][cells] * grid.columns["group_size"][cells]).sum())


def result_bytes(grid: Grid) -> int:
    """Bytes of the results of a grid."""
    return grid.cells * cell_bytes(grid)


def cell_bytes(grid: Grid) -> int:
    """Bytes of the results of one cell."""
    each = 4  # the step of divergence
    for kept in grid.kept:
        each += np.dtype(grid.precision).itemsize * int(np.prod(cell_shape(grid, kept), dtype=np.int64))
    return each


def cell_shape(grid: Grid, kept: Kept) -> tuple[int, ...]:
    """Shape of one cell's entry of a variable."""
    return tuple(dim_length(grid, dim) for dim in kept.dims(grid.world.metrics[kept.metric]))


def dim_length(grid: Grid, dim: str) -> int:
    """Length of one of the variables' own dimensions."""
    if dim == "step":
        return len(grid.eval_steps)
    if dim in grid.world.labels:
        return len(grid.world.labels[dim])
    return int(grid.values(grid.world.sized_by[dim])[0])


def check_memory(grid: Grid, available: int, *, stored: bool = False) -> None:
    """Refuses a grid that does not fit into ``available`` bytes: its indices and smallest call, and its results.

    Results that are ``stored`` as they come need no memory.
    """
    needed = 8 * grid.cells * len(grid.world.parameters) + (0 if stored else result_bytes(grid))
    if needed > available:
        what, advice = (
            ("indices", "run it in parts")
            if stored
            else ("results and indices", "keep fewer metrics, evaluations or cells")
        )
        raise InvalidInput(
            f"the grid has {grid.cells} cells, whose {what} take {_size(needed)}; {_size(available)} is free: {advice}"
        )
    lane = int(grid.world.state(grid.columns).max()) * np.dtype(grid.precision).itemsize
    if STATES * VECTOR * lane > available:
        raise InvalidInput(
            f"a training takes {_size(STATES * VECTOR * lane)}; {_size(available)} is free: make its task smaller"
        )


def _size(count: int) -> str:
    """A number of bytes in words."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit / 10:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def _codes(columns: list[np.ndarray]) -> np.ndarray:
    """One whole number for each row, equal exactly where the rows are, from 0 without gaps."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if (column == column[0]).all():
            continue
        values, place = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + place.reshape(-1), return_inverse=True)[1].reshape(-1)
    return code
