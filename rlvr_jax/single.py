"""One training outside of a sweep: the program of one cell, repeated in all the lanes of a vector."""

from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np

from rlvr_jax import devices, engine
from rlvr_jax.grid import Grid, make_grid
from rlvr_jax.lanes import VECTOR, Layout
from rlvr_jax.types import InvalidInput, World

#: The one cell, in every lane.
CELL = np.zeros((1, VECTOR, 1), np.int64)


def one_cell(world: World, options: Mapping[str, Any], idle: Collection[str] = (), **fixed: Any) -> Grid:
    """The grid of one cell, of what a user gave and of what the function sets itself.

    Args:
      world: The world.
      options: What a user gave.
      idle: Arguments that would have no effect, and are refused.
      **fixed: What the function sets.

    Raises:
      InvalidInput: As `rlvr_jax.sweep`, and for arguments that are none of a single training.
    """
    for name in options:
        if name in fixed:
            raise InvalidInput(f"{name} follows from other arguments; it is no argument here")
        if name in idle:
            raise InvalidInput(f"{name} has no effect on given draws; it is no argument here")
        if name in ("world", "parameters", "tied"):
            raise InvalidInput(f"{name} is no argument of a single training; use rlvr_jax.sweep for a grid")
    return make_grid(world, {}, **options, **fixed)


def program(grid: Grid) -> Any:
    """The static program of the cell of a grid of one cell."""
    return grid.world.program(Layout(1, ((str(grid.fixed["method"]), VECTOR),)), grid, CELL.reshape(-1))


def train(grid: Grid, program: Any, inputs: Any, shared: Any, finals: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Trains the cell of a grid of one cell.

    Args:
      grid: The grid.
      program: Of `program`.
      inputs, shared: What it reads.
      finals: Names of what is stored once, besides ``diverged_step``.

    Returns:
      By name: ``step [E]``, what is kept (curves are ``[E, ...]``), ``finals``, and ``diverged_step``.
    """
    work = engine.Work(
        program=program,
        inputs=inputs,
        shared=shared,
        items=1,
        segments=engine.Segments.cut(grid.eval_steps, 1),
        metrics=grid.curves,
        finals=(*finals, "diverged_step"),
    )
    devices.use_compile_cache()
    with jax.enable_x64(grid.precision == "float64"):
        (chunk,) = engine.run(work, jax.devices()[:1], engine.Clock())
    returned = chunk.metrics | chunk.finals
    kept = {kept.name: kept.of(returned[kept.metric], grid.eval_steps) for kept in grid.kept if kept.metric in returned}
    return {"step": np.array(grid.eval_steps)} | {name: x[0, ..., 0] for name, x in (kept | chunk.finals).items()}
