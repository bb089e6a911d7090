"""A cold start by imitation against none: accuracy during training, and which contexts are called.

What the expert never showed is never tried, and what is never tried is not learned: the training without a cold
start falls behind at first and is ahead at the end.

    python figures/cold_start.py results/cold_start.zarr --out out --venue neurips
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlvr_jax import captions, charts, crossings, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean

NEEDS = {"dims": ("cold_start", "step", "context"), "variables": ("accuracy", "call_prob")}
LABELS = {False: "RL alone", True: "cold start, then RL"}


def crossing(accuracy: xr.DataArray) -> xr.Dataset | None:
    """Return the step at which the training without a cold start overtakes; None where only one was run."""
    if accuracy.sizes["cold_start"] < 2:
        return None
    return crossings.descent(accuracy.sel(cold_start=True) - accuracy.sel(cold_start=False), "step")


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: accuracy at every step, the crossing, call probability by context at both ends."""
    dataset = figure_script.prepare(dataset, NEEDS)
    found = crossing(dataset["accuracy"])
    starts = dataset["cold_start"].values.tolist()
    kind = "with and without" if len(starts) > 1 else "after" if starts[0] else "without"
    alone = ", and of the cold start alone" if True in starts else ""
    what = (
        f"Accuracy during training {kind} a cold start by imitation, and probability of calling the calculator in each "
        f"context after {int(dataset['step'][-1])} training steps{alone}; {captions.DIFFICULTY}"
    )
    if found is not None:
        what += f" The dotted line is the step at which RL alone overtakes.{crossings.about_interval(found)}"
    numbers = {
        "accuracy": captions.records(printed_mean(dataset["accuracy"])),
        "overtaking_step": captions.places(found) if found is not None else [],
        "first_call_prob": captions.records(printed_mean(dataset["call_prob"].isel(step=0))),
        "final_call_prob": captions.records(printed_mean(dataset["call_prob"].isel(step=-1))),
    }
    return captions.caption(dataset, what, numbers)


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw accuracy against the step with the crossing, and the call probability by context."""
    dataset = figure_script.prepare(dataset, NEEDS).sortby("cold_start")
    looks = {
        start: plots.Look(LABELS[start], *plots.CONTRAST[int(start)]) for start in dataset["cold_start"].values.tolist()
    }
    beside = plots.columns(venue, 2, narrowest=2.5) == 2
    with plots.style():
        figure = plots.new_figure(venue, height=2.3 if beside else 4.2)
        shape = {"ncols": 2, "width_ratios": [1, 1.55]} if beside else {"nrows": 2}
        curves, contexts = figure.subplots(**shape)
        for start, look in looks.items():
            plots.curve_with_band(curves, "step", dataset["accuracy"].sel(cold_start=start), **look.line())
        found = crossing(dataset["accuracy"])
        if found is not None:
            charts.mark_place(curves, found)
        curves.set_xlabel("training step")
        curves.set_ylabel("accuracy (fraction correct)")
        _draw_contexts(contexts, dataset["call_prob"], looks)
        plots.legend_above(figure, contexts)
    return figure


def _draw_contexts(axes: Axes, call_prob: xr.DataArray, looks: dict[bool, plots.Look]) -> None:
    for start, look in looks.items():
        charts.contexts(axes, call_prob.sel(cold_start=start).isel(step=-1), look, shift=0.2 * start - 0.1)
    for start, look in looks.items():
        if start:
            untrained = replace(look, label="cold start alone", color="0.45", dashes=plots.DASHES[3], marker="v")
            charts.contexts(axes, call_prob.sel(cold_start=start).isel(step=0), untrained, shift=0.25)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel("context: difficulty and operation")
    axes.set_ylabel("call probability")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("cold_start", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
