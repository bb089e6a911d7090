"""One task: the items of a part that are trained together and whose results belong together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rlvr_jax import engine
from rlvr_jax.engine import Clock, Work
from rlvr_jax.grid import Grid
from rlvr_jax.plan import Part
from rlvr_jax.types import InvalidInput

if TYPE_CHECKING:
    from rlvr_jax.devices import Device


def slices(part: Part) -> Iterator[slice]:
    """The items of each task of a part: one call of its program."""
    for start in range(0, len(part.cell), part.items):
        yield slice(start, min(start + part.items, len(part.cell)))


def train(
    grid: Grid,
    part: Part,
    work: Work,
    items: slice,
    devices: "Sequence[Device]",
    clock: Clock,
    advanced: Callable[[float], object] = lambda share: None,
) -> dict[str, np.ndarray]:
    """Trains some items.

    Args:
      grid: What they belong to.
      part: Their part.
      work: What the engine needs for all of the part.
      items: Which.
      devices: Where.
      clock: Is added to.
      advanced: Called now and then with the share of the task that has been done since.

    Returns:
      The variables of the results and ``diverged_step``, ``[N, C, W, ...]``.
    """
    chosen = replace(work, inputs=jax.tree.map(lambda x: x[items], work.inputs))
    pieces: dict[str, list[np.ndarray]] = {name: [] for name in (*(k.name for k in grid.kept), "diverged_step")}
    for chunk in engine.run(chosen, devices, clock, advanced):
        returned = chunk.metrics | chunk.finals
        for kept in grid.kept:
            pieces[kept.name].append(kept.of(returned[kept.metric], grid.eval_steps))
        pieces["diverged_step"].append(returned["diverged_step"])
    results = {}
    for name, values in pieces.items():
        lanes = np.concatenate(values)
        lanes = lanes.reshape((*lanes.shape[:-1], *part.cell.shape[1:]))  # [N, ..., C, W]
        results[name] = np.moveaxis(lanes, (-2, -1), (1, 2))
    return results


def fitted(work: Work, devices: "Sequence[Device]", clock: Clock, memory: int) -> Work:
    """The same work in calls that fit into ``memory`` bytes, by the compiled program's own account.

    Raises:
      InvalidInput: If not even one item for each device fits.
    """
    while True:
        needed = _bytes(engine.compile_program(work, devices, clock), len(devices))
        if needed <= memory:
            return work
        if work.items <= len(devices):
            raise InvalidInput(
                f"one call of the smallest size takes {needed / 2**20:.0f} MiB, and {memory / 2**20:.0f} MiB may be "
                "used: make the task, the batch or the group smaller, or allow more (--memory)"
            )
        share = int(work.items * memory / needed) // len(devices)
        work = replace(work, items=len(devices) * max(1, min(share, work.items // len(devices) - 1)))


def _bytes(compiled: engine.Compiled, devices: int) -> int:
    """Bytes that one call takes on all devices together."""
    # None would come of a backend that keeps no account: CPUs and GPUs do
    found: list[Any] = [step.memory_analysis() for step in (compiled.start, compiled.advance, compiled.finish)]
    return devices * max(
        each.argument_size_in_bytes + each.output_size_in_bytes + each.temp_size_in_bytes - each.alias_size_in_bytes
        for each in found
    )
