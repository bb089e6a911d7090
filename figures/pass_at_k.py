"""Pass@k before and after training, and the number of samples at which the untrained policy overtakes, if it does.

python figures/pass_at_k.py results/pass_at_k.zarr --out out --venue neurips
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlvr_jax import captions, charts, crossings, figure_script, pass_at_k, plots
from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.types import InvalidInput

NEEDS = {
    "dims": ("method", "step", "prompt"),
    "panels": ("hack_reward",),
    "variables": ("correct_prob",),
    "most": {"step": 8},
}
SAMPLES = np.unique(np.round(2.0 ** np.arange(0.0, 10.1, 0.25)))  # k from 1 to 1024
HARDEST = 1e-3  # prompts within this of the smallest chance before training are the hardest


def curves(dataset: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return pass@k at each k of ``SAMPLES``, averaged over all prompts and over the hardest ones.

    Raises:
        InvalidInput: results that do not begin at step 0.
    """
    if dataset["step"][0] != 0:
        raise InvalidInput("the figure compares with step 0, which these results do not hold")
    probability = dataset["correct_prob"].astype(np.float64)
    run = np.isfinite(probability)  # cells that were not run stay NaN
    before = probability.isel(step=0).mean([dim for dim in probability.dims if dim not in ("step", "prompt")])
    hardest = (before <= before.min() + HARDEST).values
    prompts = {"all prompts": np.ones(len(hardest), bool)}
    if hardest.any() and not hardest.all():
        prompts["the hardest prompts"] = hardest
    means: dict[str, list[xr.DataArray]] = {name: [] for name in prompts}
    for k in SAMPLES:  # one at a time: together they would fill the memory many times
        chance = xr.apply_ufunc(pass_at_k, probability.where(run, 0.0), k).where(run)
        for name, chosen in prompts.items():
            means[name].append(chance.isel(prompt=chosen).mean("prompt"))
    samples = xr.DataArray(SAMPLES.astype(int), dims="k", name="k")
    return {name: xr.concat(rows, samples).transpose(..., "k") for name, rows in means.items()}


def overtaking(chance: xr.DataArray) -> xr.Dataset:
    """Return the k at which the untrained policy is no longer behind, by method and step; see ``crossings.descent``.

    The place is found on straight lines over log k, and chances that agree to 12 digits are equal.
    """
    ahead = chance.isel(step=slice(1, None)) - chance.isel(step=0, drop=True)
    found = crossings.descent(ahead.round(12).assign_coords(k=np.log2(SAMPLES)), "k")
    places = {name: xr.where(found[name] < 0, -np.inf, 2.0 ** found[name]) for name in ("at", "low", "high")}
    return found.assign(places)


@figure_script.once
def computed(dataset: xr.Dataset) -> tuple[xr.Dataset, dict[str, xr.DataArray], dict[str, xr.Dataset]]:
    """Return what is drawn: the prepared results, ``curves``, and ``overtaking`` of each."""
    dataset = figure_script.prepare(dataset, NEEDS)
    found = curves(dataset)
    return dataset, found, {name: overtaking(chance) for name, chance in found.items()}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: pass@k at four k, and where the untrained policy overtakes."""
    dataset, found, crossed = computed(dataset)
    met = [places for places in crossed.values() if np.isfinite(places["at"]).any()]
    what = "Chance that at least one of k samples is correct, by training step, averaged over all prompts"
    what += " and over those that were hardest before training." if len(found) > 1 else "."
    if "hack_reward" in dataset.dims:
        what += " A faithful verifier pays the hack nothing, a flawed one as much as the correct answer."
    what += (
        f" A dotted line is the k from which on the untrained policy is ahead.{crossings.about_interval(met[0])}"
        if met
        else f" The untrained policy is ahead at no k up to {SAMPLES[-1]:,.0f}."
    )
    numbers = {
        "untrained_overtakes": {name: captions.places(places) for name, places in crossed.items()},
        "pass_at_k": {
            name: captions.records(printed_mean(chance.sel(k=[1, 16, 256, 1024]))) for name, chance in found.items()
        },
    }
    return captions.caption(dataset, what, numbers)


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw pass@k against k by step, a column for each method, a row of panels for each set of prompts."""
    dataset, found, crossed = computed(dataset)
    steps = dataset["step"].values.tolist()
    methods = plots.method_looks(dataset["method"].values.tolist())
    across = plots.columns(venue, len(methods), narrowest=1.05)
    rows = [
        (f"pass@$k$,\n{name}" + ("" if reward is None else f"\n{captions.verifier(reward)}"), values, places)
        for name, chance in found.items()
        for (reward, values), (_, places) in zip(
            *(figure_script.panel_values(each, "hack_reward") for each in (chance, crossed[name])), strict=True
        )
    ]
    around = [0.5, *[0.3] * (len(rows) - 1)]
    down = math.ceil(len(methods) / across)
    high = min(1.1, (plots.TALLEST - sum(around)) / (len(rows) * down))
    heights = [more + high * down for more in around]
    with plots.style():
        figure = plots.new_figure(venue, height=sum(heights))
        for i, (part, (label, chance, places)) in enumerate(zip(plots.stacked(figure, heights), rows, strict=True)):
            panels = plots.panels(part, len(methods), across)
            for axes, (method, look) in zip(panels, methods.items(), strict=True):
                _draw_panel(axes, chance.sel({"method": method}), places.sel({"method": method}), steps)
                axes.set_title(look.label)
            part.supylabel(label, ma="center")
            part.supxlabel("samples $k$ (log scale)")
            if i == 0:
                plots.legend_above(part, panels[0])
    return figure


def _draw_panel(axes: Axes, chance: xr.DataArray, crossed: xr.Dataset, steps: list[int]) -> None:
    for step, look in zip(steps, plots.ordered_looks(steps, "step"), strict=True):
        plots.sensitivity(axes, "k", chance.sel(step=step), **look.line())
        if step > 0:
            place = crossed.sel(step=step)  # ahead from the first k on: its line stands there
            charts.mark_place(axes, place.where(place != -np.inf, SAMPLES[0]), color=look.color)
    axes.set_xticks([1, 32, 1024])
    axes.set_yticks([0.0, 0.5, 1.0])
    axes.set_ylim(0.0, 1.04)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("pass_at_k", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
