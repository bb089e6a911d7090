"""Final accuracy against the learning rate, one curve for each method, and the error, on a log scale.

The best learning rate of a method is chosen on one half of the seeds and reported on the other: the best of
many noisy means looks too good on the seeds that chose it.

    python figures/learning_rate.py results/learning_rate.zarr --out out
"""

import sys
from collections.abc import Sequence
from typing import Any

import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from rlvr_jax import captions, figure_script, plots
from rlvr_jax.stats.selection import select_then_report
from rlvr_jax.stats.summaries import printed_mean

NEEDS = {"dims": ("method", "lr", "step"), "variables": ("accuracy",)}


def best(final: xr.DataArray) -> list[dict[str, Any]]:
    """Choose the learning rate of each method on the first half of the seeds and report it on the second.

    Args:
        final: final accuracy, dimensions method, lr and seed.

    Returns:
        For each method its name, ``lr``, and mean, half_width, sd and n over the seeds that did not choose;
        nothing with fewer than two seeds.
    """
    if final.sizes.get("seed", 1) < 2:
        return []
    chosen = select_then_report(final, "lr", method="t")
    chosen = chosen.assign(half_width=(chosen["high"] - chosen["low"]) / 2)
    rows = []
    for method in chosen["method"].values:
        cell = chosen.sel({"method": method})
        place = {"method": str(method), "lr": float(cell["chosen"])}
        rows += [{**place, **row} for row in captions.records(cell)]
    return rows


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: the best learning rate of each method, and the curves."""
    dataset = figure_script.prepare(dataset, NEEDS)
    final = dataset["accuracy"].isel(step=-1)
    what = f"Accuracy after {int(final['step'])} training steps against the learning rate; right or below, the error."
    rings = best(final)
    if rings:
        what += " A ring is the best learning rate of a method, chosen on the first half of the seeds,"
        what += " at its mean over the second half."
        ends = {float(final["lr"].min()), float(final["lr"].max())}
        looks = plots.method_looks(ring["method"] for ring in rings)
        edge = [looks[ring["method"]].label for ring in rings if ring["lr"] in ends]
        if edge:
            what += f" That of {', '.join(edge)} is the last that was run: a better one may lie beyond."
    numbers = {"best_on_other_seeds": rings, "final_accuracy": captions.records(printed_mean(final))}
    return captions.caption(dataset, what, numbers)


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw accuracy and error against the learning rate, with a ring at the best learning rate of each method."""
    final = figure_script.prepare(dataset, NEEDS)["accuracy"].isel(step=-1)
    looks = plots.method_looks(final["method"].values.tolist())
    rings = best(final)
    across = plots.columns(venue, 2, narrowest=2.4)
    with plots.style():
        figure = plots.new_figure(venue, height={2: 2.2, 1: 4.2}[across])
        right, wrong = plots.panels(figure, 2, across, share=False)
        for method, look in looks.items():
            plots.sensitivity(right, "lr", final.sel({"method": method}), **look.line())
            plots.sensitivity(wrong, "lr", 1 - final.sel({"method": method}), **look.line())
        for i, row in enumerate(rings):
            look = {"color": looks[row["method"]].color, "fillstyle": "none", "markeredgewidth": 0.9}
            size = 5.0 + 2.0 * i  # rings at one place stay apart
            for axes, value in ((right, row["mean"]), (wrong, 1 - row["mean"])):
                axes.plot(row["lr"], value, "o", markersize=size, clip_on=False, **look)
        if (final < 1).any():  # no error has no place on a log axis
            wrong.set_yscale("log", nonpositive="clip")
            wrong.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for axes in (right, wrong):
            axes.set_xlabel("learning rate (log scale)")
        right.set_ylabel("final accuracy\n(fraction correct)")
        wrong.set_ylabel("final error\n(fraction wrong, log scale)")
        plots.legend_above(figure, right)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("learning_rate", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
