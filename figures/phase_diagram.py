"""Maps of final accuracy and calls over the cost of a call, and the cost at which each method gives up calling.

python figures/phase_diagram.py results/phase_diagram.zarr --out out --venue neurips
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from rlvr_jax import captions, charts, crossings, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean

MAPS = {"accuracy": "final accuracy\n(fraction correct)", "calls": "final calls\nper problem"}
NEEDS = {"dims": ("method", "call_cost", "step"), "panels": ("cold_start",), "variables": tuple(MAPS)}
STARTS = {None: "", False: "without a cold start", True: "after a cold start"}
GIVEN_UP = 0.5  # calls per problem below which a method has given up calling


@figure_script.once
def computed(dataset: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset, dict[str, xr.Dataset]]:
    """Return what is drawn: prepared results; the cost from which on a method makes less than half a call; means."""
    dataset = figure_script.prepare(dataset, NEEDS).sortby("call_cost")
    final = dataset.isel(step=-1)
    found = crossings.descent(final["calls"] - GIVEN_UP, "call_cost")
    return dataset, found, {name: printed_mean(final[name]) for name in MAPS}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: the cost at which each method gives up, and both maps."""
    dataset, found, means = computed(dataset)
    widest = {name: float(mean["half_width"].max()) for name, mean in means.items()}
    what = (
        f"Accuracy and calls after {int(dataset['step'][-1])} training steps, by method and cost of a call. A diamond "
        f"is the cost at which a method gives up calling: the first at which its mean calls fall below {GIVEN_UP:g} "
        f"per problem, on straight lines between the costs that were run.{crossings.about_interval(found)}"
    )
    if np.isposinf(found["at"]).any():
        what += " A row without one goes on calling at every cost that was run."
    if dataset.sizes["call_cost"] > 1:
        what += f" Costs lie {np.diff(dataset['call_cost']).max():.2g} apart: no place is known more finely than that."
    if np.isfinite(list(widest.values())).all():
        what += (
            f" The widest 95 % half-width of a mean in the maps is {widest['accuracy']:.2g} of accuracy and "
            f"{widest['calls']:.2g} calls."
        )
    numbers = {
        "giving_up_cost": captions.places(found),
        **{f"final_{name}": captions.records(mean) for name, mean in means.items()},
    }
    return captions.caption(dataset, what, numbers, bands=False)


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw a row of maps for accuracy and one for calls, a column for each start."""
    dataset, found, means = computed(dataset)
    methods = dataset["method"].values.tolist()
    labels = [look.label for look in plots.method_looks(methods).values()]
    starts = figure_script.panel_values(dataset["calls"], "cold_start")
    beside = plots.columns(venue, len(starts), narrowest=2.2) == len(starts)
    shape = (len(MAPS), len(starts)) if beside else (len(MAPS) * len(starts), 1)
    with plots.style():
        line = 0.15 if len(methods) <= 8 else 0.115  # inches; a label is 7 pt high
        figure = plots.new_figure(venue, height=0.4 + shape[0] * (0.35 + line * max(4, len(methods))))
        grid = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
        for row, (name, label) in enumerate(MAPS.items()):
            panels = grid[row] if beside else grid[row * len(starts) : (row + 1) * len(starts), 0]
            values = means[name]["estimate"]
            for axes, (start, _) in zip(panels, starts, strict=True):
                here = {} if start is None else {"cold_start": start}
                shades = charts.map_by_method(axes, "call_cost", values.sel(here), values.min(), values.max())
                charts.mark_rows(axes, found.sel(here))
                if row == 0 or not beside:
                    axes.set_title(STARTS[start])
                axes.set_yticks(range(len(labels)), labels)
            figure.colorbar(shades, ax=list(panels), label=label, fraction=0.06, pad=0.02)
        for axes in grid[-1]:
            axes.set_xlabel("cost of a call (reward)")
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("phase_diagram", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
