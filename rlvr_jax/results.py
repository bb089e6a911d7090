"""`sweep`: a grid in, a labelled Dataset out."""

import sys
import time
import warnings
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr

from rlvr_jax import devices, tasks
from rlvr_jax.engine import Clock
from rlvr_jax.grid import Grid, make_grid
from rlvr_jax.plan import cell_shape, check_memory, dim_length, make_plan, samples
from rlvr_jax.progress import Progress
from rlvr_jax.store import axis_coords, diverged
from rlvr_jax.worlds import world as find_world

if TYPE_CHECKING:
    from rlvr_jax.devices import Device

#: Share of the free memory that results may take.
MEMORY_SHARE = 0.8


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
        ``keep``, the metrics to store, each as its curve (``accuracy``), its last value (``accuracy.final``) or the
        area under it divided by the steps (``accuracy.area``); ``precision`` ("float32" or "float64"); and one value
        of any parameter that is no axis. `rlvr_jax.worlds.WORLDS` lists parameters and metrics.

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
    mode = "bar" if progress or (progress is None and sys.stderr.isatty()) else "none"
    with jax.enable_x64(grid.precision == "float64"), Progress(mode, grid.cells) as shown:
        try:
            for part in parts:
                work = part.work(grid)
                for items in tasks.slices(part):
                    cell, real = part.cell[items], part.real[items]
                    advanced = partial(shown.advance, int(real.sum()), samples(grid, cell[real]))
                    for name, values in tasks.train(grid, part, work, items, used, clock, advanced).items():
                        stored[name][cell[real]] = values[real]
                    finished += int(real.sum())
        except KeyboardInterrupt:
            results = _dataset(grid, stored, clock, time.perf_counter() - began, used)
            results.attrs["unfinished"] = f"{grid.cells - finished} of {grid.cells} cells had not finished and are NaN"
            raise Interrupted(results, finished, grid.cells) from None
    results = _dataset(grid, stored, clock, time.perf_counter() - began, used)
    if "diverged" in results.attrs:
        warnings.warn(results.attrs["diverged"], RuntimeWarning, stacklevel=2)
    return results


def _empty(grid: Grid) -> dict[str, np.ndarray]:
    """Room for the results of all cells, NaN until they come."""
    stored = {kept.name: np.full((grid.cells, *cell_shape(grid, kept)), np.nan, grid.precision) for kept in grid.kept}
    return stored | {"diverged_step": np.full(grid.cells, -1, np.int32)}


def _dataset(
    grid: Grid, stored: dict[str, np.ndarray], clock: Clock, seconds: float, used: "list[Device]"
) -> xr.Dataset:
    axes = tuple(axis.dim for axis in grid.axes)
    variables: dict[str, Any] = {}
    for kept in grid.kept:
        metric, values = grid.world.metrics[kept.metric], stored[kept.name]
        dims = (*axes, *kept.dims(metric))
        variables[kept.name] = (dims, values.reshape(grid.shape + values.shape[1:]), {"long_name": kept.about(metric)})
    about = {"long_name": "step at which a cell went non-finite; -1 for never"}
    variables["diverged_step"] = (axes, stored["diverged_step"].reshape(grid.shape), about)
    attributes = {
        "world": grid.world.name,
        "spec": grid.spec_json,
        "spec_sha256": grid.sha256,
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "device_kind": used[0].device_kind,
        "devices": len(used),
        "wall_seconds": round(seconds, 3),
        "compile_seconds": round(clock.compile_seconds, 3),
        "programs_compiled": clock.programs,
    }
    dataset = xr.Dataset(variables, _coords(grid), attributes)
    named = diverged(dataset["diverged_step"])
    if named:
        dataset.attrs["diverged"] = named
    return dataset


@cache
def versions() -> dict[str, str]:
    """Of the packages that numbers may depend on."""
    return {name: version(name) for name in ("rlvr_jax", "jax", "jaxlib", "numpy")}


def _coords(grid: Grid) -> dict[str, Any]:
    about = {name: parameter.about for name, parameter in grid.world.parameters.items()}
    coords = axis_coords(grid.spec["axes"], about)
    for dim in {dim for kept in grid.kept for dim in kept.dims(grid.world.metrics[kept.metric])}:
        if dim == "step":
            coords[dim] = np.array(grid.eval_steps)
        else:
            coords[dim] = grid.world.labels.get(dim) or np.arange(dim_length(grid, dim))
        coords[dim] = (dim, np.asarray(coords[dim]))
    return coords
