"""`sweep`: a grid in, a labelled Dataset out."""

import time
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
import xarray as xr
from tqdm import tqdm

from rlvr_jax import devices, engine
from rlvr_jax.engine import Chunk, Clock
from rlvr_jax.grid import Grid, NamedSchedule, make_grid
from rlvr_jax.plan import Part, check_memory, dim_length, make_plan
from rlvr_jax.worlds import world as find_world

#: Share of the free memory that results may take.
MEMORY_SHARE = 0.8

#: A progress bar appears after this many seconds.
BAR_AFTER = 2.0

#: Diverged cells that are named one by one.
NAMED = 10


class Interrupted(KeyboardInterrupt):
    """A sweep was stopped; what had finished is in ``results``, and the other cells are NaN there.

    Attributes:
      results: The Dataset.
      finished: How many cells had finished.
    """

    def __init__(self, results: xr.Dataset, finished: int, cells: int):
        super().__init__(
            f"stopped: {finished} of {cells} cells had finished and are kept in .results; the others are NaN there"
        )
        self.results = results
        self.finished = finished


def sweep(
    world: str,
    parameters: Mapping[str, Any],
    *,
    tied: Mapping[str, Mapping[str, Any]] | None = None,
    progress: bool | None = None,
    **fixed: Any,
) -> xr.Dataset:
    """Trains every cell of a grid and returns their metrics, labelled.

    A cell's numbers depend on its configuration, its seed and the task alone: they are equal to the bit whatever
    else is in the grid, on any number of devices of one kind.

    Args:
      world: "bandit".
      parameters: The axes by parameter. An axis is a list of values, ``{"values": [...]}``,
        ``{"min": ..., "max": ..., "num": ..., "scale": "linear" or "log"}``, or ``{"range": [start, stop]}`` of whole
        numbers without ``stop``. A schedule along an axis has a name: ``{"name": ..., "schedule": ...}``.
      tied: Axes along which several parameters move together: ``{dim: {parameter: axis, ...}}``.
      progress: Whether to draw a progress bar on stderr; by default where it is a terminal.
      **fixed: ``steps``; ``eval_every`` (max(1, steps // 10)) or ``eval_steps``, to which 0 and ``steps`` are added;
        ``keep``, the metrics to store; ``precision`` ("float32" or "float64"); and one value of any parameter that
        is no axis. `rlvr_jax.worlds.WORLDS` lists parameters and metrics.

    Returns:
      A Dataset with the axes as given, then ``step`` and a metric's own dimensions such as ``level``. Cells that
      went non-finite were frozen at the step in ``diverged_step`` (-1 for the others) and are named in the attribute
      ``diverged``. Attributes hold the canonical spec, its sha256, versions, devices and times.

    Raises:
      InvalidInput: For a grid that cannot be meant or does not fit into memory, before anything is compiled.
      Interrupted: On Ctrl-C, with what had finished.

    >>> results = sweep("bandit", {"method": ["rloo", "grpo"], "seed": {"range": [0, 3]}}, steps=20, lr=0.5)
    >>> dict(results.accuracy.sizes)
    {'method': 2, 'seed': 3, 'step': 11}
    """
    grid = make_grid(find_world(world), parameters, tied=tied, **fixed)
    check_memory(grid, int(MEMORY_SHARE * devices.free_memory()))
    devices.check_devices()
    devices.use_compile_cache()
    used = jax.devices()
    parts = make_plan(grid, len(used))
    began, clock, finished = time.perf_counter(), Clock(), 0
    stored = _empty(grid)
    with (
        jax.enable_x64(grid.precision == "float64"),
        tqdm(total=grid.cells, unit="cell", delay=BAR_AFTER, disable=None if progress is None else not progress) as bar,
    ):
        bar.bar_format = "{l_bar}{bar}| {n:.0f}/{total_fmt} cells [{elapsed}<{remaining}, {rate_fmt}]"
        try:
            for part in parts:
                cells = int(part.real.sum())
                for chunk in engine.run(part.work(grid), used, clock, lambda share, n=cells: bar.update(share * n)):
                    finished += _store(stored, part, chunk)
        except KeyboardInterrupt:
            results = _dataset(grid, stored, clock, time.perf_counter() - began, used)
            results.attrs["unfinished"] = f"{grid.cells - finished} of {grid.cells} cells had not finished and are NaN"
            raise Interrupted(results, finished, grid.cells) from None
    results = _dataset(grid, stored, clock, time.perf_counter() - began, used)
    if "diverged" in results.attrs:
        warnings.warn(results.attrs["diverged"], RuntimeWarning, stacklevel=2)
    return results


def _shape(grid: Grid, name: str) -> tuple[int, ...]:
    """Shape of one cell's entry of a metric."""
    metric = grid.world.metrics[name]
    return (() if metric.total else (len(grid.eval_steps),)) + tuple(dim_length(grid, dim) for dim in metric.dims)


def _empty(grid: Grid) -> dict[str, np.ndarray]:
    """Room for the results of all cells, NaN until they come."""
    stored = {name: np.full((grid.cells, *_shape(grid, name)), np.nan, grid.precision) for name in grid.keep}
    return stored | {"diverged_step": np.full(grid.cells, -1, np.int32)}


def _store(stored: dict[str, np.ndarray], part: Part, chunk: Chunk) -> int:
    """Puts a chunk where its cells are; returns their number."""
    cell, real = part.cell[chunk.items], part.real[chunk.items]
    for name, values in (chunk.metrics | chunk.finals).items():
        lanes = values.reshape((*values.shape[:-1], *cell.shape[1:]))  # [N, ..., C, W]
        stored[name][cell[real]] = np.moveaxis(lanes, (-2, -1), (1, 2))[real]
    return int(real.sum())


def _dataset(
    grid: Grid, stored: dict[str, np.ndarray], clock: Clock, seconds: float, used: list[jax.Device]
) -> xr.Dataset:
    axes = tuple(axis.dim for axis in grid.axes)
    variables: dict[str, Any] = {}
    for name in (*grid.keep, "diverged_step"):
        values = stored[name].reshape(grid.shape + stored[name].shape[1:])
        if name == "diverged_step":
            variables[name] = (axes, values, {"long_name": "step at which a cell went non-finite; -1 for never"})
            continue
        metric = grid.world.metrics[name]
        dims = (*axes, *(() if metric.total else ("step",)), *metric.dims)
        variables[name] = (dims, values, {"long_name": metric.about})
    attributes = {
        "world": grid.world.name,
        "spec": grid.spec_json,
        "spec_sha256": grid.sha256,
        "versions": ", ".join(f"{name} {version(name)}" for name in ("rlvr_jax", "jax", "jaxlib", "numpy")),
        "device_kind": used[0].device_kind,
        "devices": len(used),
        "wall_seconds": round(seconds, 3),
        "compile_seconds": round(clock.compile_seconds, 3),
        "programs_compiled": clock.programs,
    }
    diverged = _diverged(grid, stored["diverged_step"])
    if diverged:
        attributes["diverged"] = diverged
    return xr.Dataset(variables, _coords(grid), attributes)


def _coords(grid: Grid) -> dict[str, Any]:
    coords: dict[str, Any] = {}
    for axis in grid.axes:
        for name, values in axis.values.items():
            coords[name] = (axis.dim, labels(values), {"long_name": grid.world.parameters[name].about})
        if axis.dim not in axis.values:
            coords[axis.dim] = np.arange(len(axis))
    metrics = [grid.world.metrics[name] for name in grid.keep]
    if not all(metric.total for metric in metrics):
        coords["step"] = np.array(grid.eval_steps)
    for dim in {dim for metric in metrics for dim in metric.dims}:
        coords[dim] = list(grid.world.labels[dim]) if dim in grid.world.labels else np.arange(dim_length(grid, dim))
    return coords


def labels(values: tuple[Any, ...]) -> list[Any]:
    """Coordinates of an axis: its numbers or names; all as text where some are schedules."""
    if any(isinstance(value, NamedSchedule) for value in values):
        return [value.name if isinstance(value, NamedSchedule) else f"{value:g}" for value in values]
    return list(values)


def _diverged(grid: Grid, step: np.ndarray) -> str:
    """Which cells went non-finite, in words; empty where none did."""
    cells = np.flatnonzero(step >= 0)
    if len(cells) == 0:
        return ""
    names = []
    for cell in cells[:NAMED]:
        place = np.unravel_index(cell, grid.shape) if grid.axes else ()
        values = [
            f"{name}={labels(vs)[i]}"
            for axis, i in zip(grid.axes, place, strict=True)
            for name, vs in axis.values.items()
        ]
        names.append(f"{' '.join(values) or 'the cell'} at step {step[cell]}")
    more = f", and {len(cells) - NAMED} more" if len(cells) > NAMED else ""
    noun = "cell" if len(cells) == 1 else "cells"
    return f"{len(cells)} {noun} went non-finite and kept the last finite parameters: {'; '.join(names)}{more}"
