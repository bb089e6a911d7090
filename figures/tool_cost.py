"""What a call may cost: accuracy and calls during training, and which contexts are called at the end.

At no cost the calculator is called wherever the model errs; a small cost drops the calls that bring little, a
large one drops them all.

    python figures/tool_cost.py results/tool_cost.zarr --out out --venue neurips
"""

import sys
from collections.abc import Sequence
from typing import Any

import xarray as xr
from matplotlib.figure import Figure, SubFigure

from rlvr_jax import captions, charts, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean

NEEDS = {
    "dims": ("call_cost", "step", "context"),
    "variables": ("accuracy", "calls", "call_prob"),
    "most": {"call_cost": 6},
}
CURVES = {"accuracy": "accuracy\n(fraction correct)", "calls": "calls per problem"}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: accuracy and calls before and after training, call probability by context after it."""
    dataset = figure_script.prepare(dataset, NEEDS)
    last = dataset.isel(step=-1)
    what = (
        f"Top: accuracy and calls during training, by the cost of a call. Bottom: probability of calling the "
        f"calculator in each context after {int(last['step'])} training steps; {captions.DIFFICULTY}"
    )
    numbers = {
        "before_training": {name: captions.records(printed_mean(dataset[name].isel(step=0))) for name in CURVES},
        **{f"final_{name}": captions.records(printed_mean(last[name])) for name in (*CURVES, "call_prob")},
    }
    return captions.caption(dataset, what, numbers)


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw both curves by cost above the call probability by context and cost."""
    dataset = figure_script.prepare(dataset, NEEDS).sortby("call_cost")
    costs = dataset["call_cost"].values.tolist()
    looks = dict(zip(costs, plots.ordered_looks(costs, "cost of a call"), strict=True))
    with plots.style():
        figure = plots.new_figure(venue, height=3.75)
        top, bottom = plots.stacked(figure, [2.0, 1.75])
        _draw_curves(top, dataset, looks)
        axes = bottom.subplots()
        for i, (cost, look) in enumerate(looks.items()):
            values = dataset["call_prob"].sel(call_cost=cost).isel(step=-1)
            charts.contexts(axes, values, look, shift=0.16 * (i - (len(looks) - 1) / 2))
        axes.set_ylim(0.0, 1.0)
        axes.set_xlabel("context: difficulty and operation")
        axes.set_ylabel("call probability\nafter training")
    return figure


def _draw_curves(parent: SubFigure, dataset: xr.Dataset, looks: dict[float, plots.Look]) -> None:
    panels = parent.subplots(1, len(CURVES))
    for axes, (name, label) in zip(panels, CURVES.items(), strict=True):
        for cost, look in looks.items():
            plots.curve_with_band(axes, "step", dataset[name].sel(call_cost=cost), **look.line())
        axes.set_xlabel("training step")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0.0)
    plots.legend_above(parent, panels[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("tool_cost", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
