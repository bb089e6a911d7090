"""Groups without signal during training, and final accuracy by level, for each group size.

A group whose rewards are all equal teaches nothing. Small groups have that more often, but at an equal number
of samples there are more of them, and a prompt is visited more often.

    python figures/zero_signal.py results/zero_signal.zarr --out out
"""

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure, SubFigure

from rlvr_jax import captions, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean

VARIABLES = ("accuracy", "accuracy_by_level", "zero_frac")
NEEDS = {"dims": ("method", "group_size", "step", "level"), "variables": VARIABLES}

RATE = np.array([0.01, 0.05, 0.2, 0.6])  # the reference model's chance of the correct answer, by level
DEFAULTS = {"prompts": 200, "task_seed": 0, "hack_reward": 0.0}


def exact_start(dataset: xr.Dataset) -> dict[int, float]:
    """Return the exact share of groups with equal rewards before training, for each group size.

    It is the mean over prompts of p^G + (1 - p)^G, where p is the reference model's chance of a correct
    answer. Nothing where the results are not from a bandit whose verifier pays correct answers alone, or
    where the task made from their spec has another accuracy than they have at step 0.
    """
    spec = json.loads(dataset.attrs.get("spec", "{}"))
    chosen = {name: dataset.coords[name].item() for name in DEFAULTS if name in dataset.coords}
    task = DEFAULTS | spec.get("fixed", {}) | chosen
    exact = spec.get("world") == "bandit" and str(task["hack_reward"]) in ("0", "0.0")
    if not exact or dataset["step"][0] != 0:
        return {}
    p = RATE[np.random.default_rng(task["task_seed"]).integers(4, size=task["prompts"])]
    if not np.isclose(dataset["accuracy"].isel(step=0).mean(), p.mean(), atol=1e-5):
        return {}
    return {int(g): float(np.mean(p**g + (1 - p) ** g)) for g in dataset["group_size"].values}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: the exact start, zero_frac at both ends of training, final accuracy by level."""
    dataset = figure_script.prepare(dataset, NEEDS)
    zero_frac = dataset["zero_frac"].isel(step=dataset["step"].values > 0)
    final = dataset["accuracy_by_level"].isel(step=-1)
    start = exact_start(dataset)
    numbers = {
        "exact_before_training": [{"group_size": g, "zero_frac": round(v, 6)} for g, v in start.items()],
        "first_zero_frac": captions.records(printed_mean(zero_frac.isel(step=0))),
        "last_zero_frac": captions.records(printed_mean(zero_frac.isel(step=-1))),
        "final_accuracy": captions.records(printed_mean(dataset["accuracy"].isel(step=-1))),
        "final_accuracy_by_level": captions.records(printed_mean(final)),
    }
    what = (
        "Top: share of groups whose rewards are all equal, since the evaluation before"
        f"{'; a cross is the exact value before training' if start else ''}. "
        f"Bottom: accuracy after {int(final['step'])} training steps against the group size, by level."
    )
    return captions.caption(dataset, what, numbers)


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw zero_frac against the step by method, above the final accuracy against the group size by level."""
    dataset = figure_script.prepare(dataset, NEEDS).sortby("group_size")
    methods, levels = dataset["method"].values.tolist(), dataset["level"].values.tolist()
    across = (
        plots.columns(venue, len(methods), narrowest=1.05),
        plots.columns(venue, len(levels), narrowest=1.3),
    )
    rows = math.ceil(len(methods) / across[0]), math.ceil(len(levels) / across[1])
    heights = [0.5 + 1.3 * rows[0], 0.5 + 1.3 * rows[1]]
    with plots.style():
        figure = plots.new_figure(venue, height=sum(heights))
        (top,), (bottom,) = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)
        _draw_zero_frac(top, dataset["zero_frac"], exact_start(dataset), across[0])
        _draw_levels(bottom, dataset["accuracy_by_level"].isel(step=-1), across[1])
    return figure


def _draw_zero_frac(parent: SubFigure, zero_frac: xr.DataArray, start: dict[int, float], across: int) -> None:
    looks = plots.method_looks(zero_frac["method"].values.tolist())
    sizes = zero_frac["group_size"].values.tolist()
    panels = plots.panels(parent, len(looks), across)
    for axes, (method, method_look) in zip(panels, looks.items(), strict=True):
        for size, look in zip(sizes, plots.ordered_looks(sizes, "$G$"), strict=True):
            values = zero_frac.sel({"method": method, "group_size": size})
            plots.curve_with_band(axes, "step", values, **look.line())
            if size in start:
                axes.plot(0, start[size], "x", color=look.color, markersize=4.0, mew=1.0, clip_on=False)
        axes.set_title(method_look.label)
        axes.set_ylim(0.0, 1.04)
    if start:
        panels[0].plot([], [], "x", color="black", markersize=4.0, mew=1.0, label="exact, before training")
    for axes in panels[::across]:
        axes.set_ylabel("groups without\nsignal (fraction)")
    parent.supxlabel("training step")
    plots.legend_above(parent, panels[0])


def _draw_levels(parent: SubFigure, final: xr.DataArray, across: int) -> None:
    looks = plots.method_looks(final["method"].values.tolist())
    panels = plots.panels(parent, final.sizes["level"], across)
    for axes, level in zip(panels, final["level"].values.tolist(), strict=True):
        for method, look in looks.items():
            values = final.sel({"method": method, "level": level})
            plots.sensitivity(axes, "group_size", values, **look.line())
        axes.set_title(level)
        axes.set_ylim(0.0, 1.04)
    for axes in panels[::across]:
        axes.set_ylabel("final accuracy\n(fraction correct)")
    parent.supxlabel("group size $G$ (samples per prompt)")
    plots.legend_above(parent, panels[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("zero_signal", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
