"""Accuracy during training for each method, one panel for each reward offset that was swept.

A constant added to every reward carries no information: a method with a baseline does not notice it, and one
without loses accuracy and gains spread between seeds.

    python figures/baselines.py results/baselines.zarr --out out --venue neurips
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from rlvr_jax import captions, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean

NEEDS = {"dims": ("method", "step"), "panels": ("reward_offset",), "variables": ("accuracy",)}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: accuracy at the last step by method, with its spread between seeds."""
    dataset = figure_script.prepare(dataset, NEEDS)
    final = captions.records(printed_mean(dataset["accuracy"].isel(step=-1)))
    return captions.caption(dataset, "Accuracy over all prompts during training.", {"final_accuracy": final})


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw accuracy against the training step, a curve with its band for each method."""
    accuracy = figure_script.prepare(dataset, NEEDS)["accuracy"]
    looks = plots.method_looks(accuracy["method"].values.tolist())
    offsets = figure_script.panel_values(accuracy, "reward_offset")
    across = plots.columns(venue, len(offsets), narrowest=2.4)
    with plots.style():
        figure = plots.new_figure(venue, height=0.4 + 1.9 * math.ceil(len(offsets) / across))
        panels = plots.panels(figure, len(offsets), across)
        for axes, (offset, values) in zip(panels, offsets, strict=True):
            for method, look in looks.items():
                plots.curve_with_band(axes, "step", values.sel({"method": method}), **look.line())
            if offset is not None:
                axes.set_title(f"reward offset {offset:g}")
        for axes in panels[-across:]:
            axes.set_xlabel("training step")
        for axes in panels[::across]:
            axes.set_ylabel("accuracy (fraction correct)")
        plots.legend_above(figure, panels[0])
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("baselines", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
