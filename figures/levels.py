"""Accuracy at the end of training by level of difficulty, one bar for each method.

Dividing by the group's standard deviation gives rare successes a large weight, so what separates the methods
is the level at which the untrained model is almost never right.

    python figures/levels.py results/baselines.zarr --out out --select reward_offset=0
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from rlvr_jax import captions, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean

NEEDS = {
    "dims": ("method", "step", "level"),
    "panels": ("reward_offset",),
    "variables": ("accuracy_by_level",),
}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: accuracy at the last step by method and level."""
    dataset = figure_script.prepare(dataset, NEEDS)
    final = dataset["accuracy_by_level"].isel(step=-1)
    what = f"Accuracy by level after {int(final['step'])} training steps."
    return captions.caption(dataset, what, {"final_accuracy_by_level": captions.records(printed_mean(final))})


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw grouped bars; where step 0 is stored, a line across a group is the accuracy before training."""
    accuracy = figure_script.prepare(dataset, NEEDS)["accuracy_by_level"]
    looks = plots.method_looks(accuracy["method"].values.tolist())
    offsets = figure_script.panel_values(accuracy, "reward_offset")
    across = plots.columns(venue, len(offsets), narrowest=2.6)
    with plots.style():
        figure = plots.new_figure(venue, height=0.4 + 1.9 * math.ceil(len(offsets) / across))
        panels = plots.panels(figure, len(offsets), across)
        for axes, (offset, values) in zip(panels, offsets, strict=True):
            plots.level_bars(axes, values.isel(step=-1), looks)
            if values["step"][0] == 0:
                untrained = printed_mean(values.isel(step=0))["estimate"].mean("method").values
                at = range(len(untrained))
                axes.hlines(untrained, [i - 0.46 for i in at], [i + 0.46 for i in at], "black", lw=1.0)
                axes.plot([], [], color="black", linewidth=1.0, label="before training")
            axes.set_ylim(0.0, 1.05)
            if offset is not None:
                axes.set_title(f"reward offset {offset:g}")
        for axes in panels[-across:]:
            axes.set_xlabel("level (accuracy before training)")
        for axes in panels[::across]:
            axes.set_ylabel("final accuracy\n(fraction correct)")
        plots.legend_above(figure, panels[0])
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("levels", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
