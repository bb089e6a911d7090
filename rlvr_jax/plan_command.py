"""``rlvr-jax plan``: what a spec would run, in words or as JSON."""

import json
from dataclasses import dataclass
from typing import Any

from rlvr_jax import spec as specs
from rlvr_jax.options import Assignments, Count, Flag, SpecName, changed, counted


@dataclass(frozen=True)
class Plan:
    """Say what a spec would run, without compiling anything: cells, programs, layout, calls, bytes.

    Example: rlvr-jax plan learning_rate --seeds 256
    """

    spec: SpecName
    """A TOML file, or the name of a shipped spec (see: rlvr-jax list)."""
    seeds: Count = None
    """Plan for the seeds 0 to N-1."""
    set: Assignments = ()
    """Replace a value or an axis by a TOML value, such as lr=0.1 or 'lr=[0.1, 0.2]'; may be repeated."""
    json: Flag = False
    """Print JSON."""

    def run(self) -> int:
        plan = _plan(changed(self.spec, self.seeds, self.set))
        print(json.dumps(plan, indent=2) if self.json else _in_words(plan))
        return 0


def _plan(spec: specs.Spec) -> dict[str, Any]:
    import jax

    from rlvr_jax import declaration, driver
    from rlvr_jax.plan import Limits, check_memory, make_plan, result_bytes

    grid, memory = spec.grid(), driver.memory_budget(None)
    with spec.naming():
        check_memory(grid, memory, stored=True)
        used = jax.devices()
        parts = make_plan(grid, len(used), Limits(declaration.chunk_cells(grid, len(used)), memory))
    programs = []
    for part in parts:
        layout, slices = part.program.layout, len(part.segments.begin)
        programs.append(
            {
                "reason": part.reason,
                "cells": int(part.real.sum()),
                "lanes": layout.lanes,
                "seeds_side_by_side": layout.seeds,
                "padding": int((~part.real).sum()),
                "methods": {method: lanes for method, lanes in layout.blocks},
                "items": len(part.cell),
                "items_per_call": part.items,
                "calls": part.calls // slices,
                "time_slices": slices,
            }
        )
    return {
        "spec": spec.source,
        "world": grid.world.name,
        "cells": grid.cells,
        "axes": {axis.dim: len(axis) for axis in grid.axes},
        "steps": grid.steps,
        "evaluations": len(grid.eval_steps),
        "metrics": list(grid.keep),
        "precision": grid.precision,
        "devices": len(used),
        "device_kind": used[0].device_kind,
        "programs": programs,
        "tasks": sum(program["calls"] for program in programs),
        "result_bytes": result_bytes(grid),
        "spec_sha256": grid.sha256,
    }


def _in_words(plan: dict[str, Any]) -> str:
    sizes = " x ".join(f"{name} {size}" for name, size in plan["axes"].items())
    programs, devices = plan["programs"], plan["devices"]
    lines = [
        f"{plan['spec']}: world {plan['world']}, {counted(plan['cells'], 'cell')}{f' = {sizes}' if sizes else ''}",
        f"{counted(plan['steps'], 'step')}, {counted(plan['evaluations'], 'evaluation')}, {plan['precision']}; "
        f"results of {_bytes(plan['result_bytes'])}: {', '.join(plan['metrics'])}",
        f"{counted(len(programs), 'program')} to compile, for {counted(devices, 'device')} ({plan['device_kind']}); "
        f"{counted(plan['tasks'], 'task')}, each a call and a chunk of the store",
    ]
    for i, program in enumerate(programs, 1):
        lanes, seeds = program["lanes"], program["seeds_side_by_side"]
        layout = f"{counted(lanes, 'lane')} x {counted(seeds, 'seed')} side by side = rows of {lanes * seeds}"
        slices = program["time_slices"]
        lines += [
            f"  program {i}: {program['reason']}",
            f"    {counted(program['cells'], 'cell')} as {layout}; {counted(program['padding'], 'place')} of padding",
            f"    {counted(program['items'], 'item')} in {counted(program['calls'], 'call')} of "
            f"{program['items_per_call']}, each in {counted(slices, 'time slice')}",
        ]
    return "\n".join(lines)


def _bytes(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
