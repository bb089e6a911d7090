"""A flawed verifier that is repaired during training: accuracy, hack rate, and what the repair recovers.

python figures/repaired_verifier.py results/repaired_verifier.zarr --out out --venue neurips
"""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import xarray as xr
from matplotlib.figure import Figure, SubFigure

from rlvr_jax import captions, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean

CURVES = {"accuracy": "accuracy\n(fraction correct)", "hack_rate": "hack rate\n(fraction)"}
NEEDS = {"dims": ("method", "hack_reward", "step"), "variables": tuple(CURVES), "most": {"hack_reward": 8}}


def repairs(dataset: xr.Dataset) -> dict[str, int | None]:
    """Return the last step before each verifier first pays something else; None for one that never changes."""
    axes = json.loads(dataset.attrs.get("spec", "{}")).get("axes", [])
    given = next((axis["values"]["hack_reward"] for axis in axes if "hack_reward" in axis["values"]), [])
    changes = {v["name"]: [step for step, _ in v["schedule"][1:]] for v in given if isinstance(v, dict)}
    labels = [str(label) for label in dataset["hack_reward"].values]
    return {label: changes[label][0] - 1 if changes.get(label) else None for label in labels}


def recovered(dataset: xr.Dataset) -> xr.DataArray | None:
    """Return the final accuracy less that of the same seed with the verifier that is never repaired, by repair.

    None where no repaired verifier, or not exactly one that never changes, is among the results.
    """
    at = repairs(dataset)
    never = [i for i, step in enumerate(at.values()) if step is None]
    repaired = [i for i, step in enumerate(at.values()) if step is not None]
    if len(never) != 1 or not repaired:
        return None
    final = dataset["accuracy"].isel(step=-1)
    steps = [step for step in at.values() if step is not None]
    difference = final.isel(hack_reward=repaired) - final.isel(hack_reward=never[0], drop=True)
    return difference.assign_coords(repair=("hack_reward", steps)).swap_dims(hack_reward="repair")


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: both ends, and what is recovered."""
    dataset = figure_script.prepare(dataset, NEEDS)
    gained = recovered(dataset)
    what = "Accuracy and hack rate during training; a dotted line is the last step with the flawed verifier."
    if gained is not None:
        what += (
            f" Bottom: accuracy after {int(dataset['step'][-1])} steps above that of the same seeds with the "
            "verifier that is never repaired."
        )
    numbers = {
        "last_flawed_step": repairs(dataset),
        "recovered_accuracy": captions.records(printed_mean(gained)) if gained is not None else [],
        **{f"final_{name}": captions.records(printed_mean(dataset[name].isel(step=-1))) for name in CURVES},
    }
    return captions.caption(dataset, what, numbers)


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw both curves with a column for each method, above what is recovered against the step of the repair."""
    dataset = figure_script.prepare(dataset, NEEDS)
    gained = recovered(dataset)
    across = plots.columns(venue, dataset.sizes["method"], narrowest=1.05)
    rows = math.ceil(dataset.sizes["method"] / across)
    heights = [0.55 + 1.2 * rows, 0.3 + 1.2 * rows, *([1.9] if gained is not None else [])]
    with plots.style():
        figure = plots.new_figure(venue, height=sum(heights))
        parts = plots.stacked(figure, heights)
        for part, (name, label) in zip(parts, CURVES.items(), strict=False):
            _draw_curves(part, dataset, name, label, across)
        if gained is not None:
            _draw_recovered(parts[-1], gained)
    return figure


def _draw_curves(parent: SubFigure, dataset: xr.Dataset, name: str, label: str, across: int) -> None:
    at = repairs(dataset)
    shades = plots.ordered_looks(range(len(at)), "")
    looks = [replace(look, label=text) for look, text in zip(shades, at, strict=True)]
    methods = plots.method_looks(dataset["method"].values.tolist())
    panels = plots.panels(parent, len(methods), across)
    for axes, (method, method_look) in zip(panels, methods.items(), strict=True):
        for i, (look, step) in enumerate(zip(looks, at.values(), strict=True)):
            values = dataset[name].sel({"method": method}).isel(hack_reward=i)
            if step is not None:
                axes.axvline(step, color=look.color, linestyle=plots.DASHES[3], linewidth=0.9)
            plots.curve_with_band(axes, "step", values, **look.line())
        axes.set_title(method_look.label)
    panels[0].set_ylim(bottom=0.0)  # of all panels, once all are drawn
    for axes in panels[::across]:
        axes.set_ylabel(label)
    parent.supxlabel("training step")
    if name == next(iter(CURVES)):
        plots.legend_above(parent, panels[0])


def _draw_recovered(parent: SubFigure, gained: xr.DataArray) -> None:
    axes = parent.subplots()
    for method, look in plots.method_looks(gained["method"].values.tolist()).items():
        plots.curve_with_band(axes, "repair", gained.sel({"method": method}), **look.line())
    axes.axhline(0.0, color="0.3", linewidth=0.6)
    axes.set_xticks(gained["repair"].values)
    axes.set_xlabel("last step with the flawed verifier")
    axes.set_ylabel("recovered accuracy\n(difference)")
    plots.legend_above(parent, axes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("repaired_verifier", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
