"""Why a method stops calling: accuracy and calls, and the push on calling from groups of equal and of mixed outcome.

In a group whose rollouts are all right, or all wrong, rewards differ by the cost of their calls alone. Dividing by
the group's standard deviation makes such a group weigh as much as one in which calling made the difference.

    python figures/grpo_trap.py results/grpo_trap.zarr --out out --venue neurips
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from rlvr_jax import captions, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean

CURVES = {
    "accuracy": "accuracy\n(fraction correct)",
    "calls": "calls per problem",
    "equal_outcome_frac": "groups of equal\noutcome (fraction)",
}
PUSHES = {"push_mixed": "groups of mixed outcome", "push_equal": "groups all right or all wrong"}
NEEDS = {
    "cells": ("method", "call_cost"),
    "dims": ("cell", "step"),
    "variables": (*CURVES, *PUSHES),
    "most": {"cell": 6},
}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: both ends of the curves, and of the push from either kind of group."""
    dataset = figure_script.prepare(dataset, NEEDS)
    first = dataset.isel(step=dataset["step"].values > 0).isel(step=0)
    what = (
        "Top: accuracy, calls, and share of the training groups whose rollouts are all right or all wrong. Bottom: "
        "mean push on calling a group, the sum of advantage times score over its decisions; groups of equal outcome "
        f"and mixed ones add up to it. The first value of a share and of a push is over the steps 1 to "
        f"{int(first['step'])}."
    )
    numbers = {
        "before_training": {
            name: captions.records(printed_mean(dataset[name].isel(step=0))) for name in ("accuracy", "calls")
        },
        **{f"first_{name}": captions.records(printed_mean(first[name])) for name in ("equal_outcome_frac", *PUSHES)},
        **{f"final_{name}": captions.records(printed_mean(dataset[name].isel(step=-1))) for name in (*CURVES, *PUSHES)},
    }
    return captions.caption(dataset, what, numbers)


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw the curves of all cells above the decomposition of the push, one panel for each cell."""
    dataset = figure_script.prepare(dataset, NEEDS)
    looks = _looks(dataset)
    across = plots.columns(venue, 3, narrowest=1.6)
    rows = math.ceil(len(CURVES) / across), math.ceil(len(looks) / across)
    heights = [0.5 + 1.45 * rows[0], 0.5 + 1.35 * rows[1]]
    with plots.style():
        figure = plots.new_figure(venue, height=sum(heights))
        top, bottom = plots.stacked(figure, heights)
        curves, pushes = _draw_curves(top, dataset, looks, across), _draw_pushes(bottom, dataset, looks, across)
        pushes[0].set_xlim(curves[0].get_xlim())
    return figure


def _looks(dataset: xr.Dataset) -> list[plots.Look]:
    methods = [str(name) for name in dataset["method"].values]
    swept = "call_cost" in dataset.coords and dataset["call_cost"].dims == ("cell",)
    notes = [f"cost {cost:g}" for cost in dataset["call_cost"].values] if swept else [""] * len(methods)
    return plots.cell_looks(methods, notes)


def _draw_curves(parent: SubFigure, dataset: xr.Dataset, looks: list[plots.Look], across: int) -> list[Axes]:
    panels = plots.panels(parent, len(CURVES), across, share=False)
    for axes, (name, label) in zip(panels, CURVES.items(), strict=True):
        for i, look in enumerate(looks):
            plots.curve_with_band(axes, "step", dataset[name].isel(cell=i), **look.line())
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0.0)
    parent.supxlabel("training step")
    plots.legend_above(parent, panels[0])
    return panels


def _draw_pushes(parent: SubFigure, dataset: xr.Dataset, looks: list[plots.Look], across: int) -> list[Axes]:
    panels = plots.panels(parent, len(looks), across)
    kinds = {name: plots.Look(label, *plots.CONTRAST[i]) for i, (name, label) in enumerate(PUSHES.items())}
    for i, (axes, cell) in enumerate(zip(panels, looks, strict=True)):
        axes.axhline(0.0, color="0.3", linewidth=0.6)
        for name, look in kinds.items():
            plots.curve_with_band(axes, "step", dataset[name].isel(cell=i), **look.line())
        axes.set_title(cell.label)
    for axes in panels[::across]:
        axes.set_ylabel("push on calling\n(per group)")
    parent.supxlabel("training step")
    plots.legend_above(parent, panels[0])
    return panels


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("grpo_trap", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
