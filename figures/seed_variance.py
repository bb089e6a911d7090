"""What the seed alone does: the distribution of final accuracy, intervals from few seeds, paired against independent.

All seeds of the results together stand for the distribution. A few of them, drawn again and again, show how wide the
interval is that a paper would report, and how often it holds the mean of all.

    python figures/seed_variance.py results/seed_variance.zarr --out out
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator, PercentFormatter

from rlvr_jax import captions, figure_script, plots, stats
from rlvr_jax.stats.summaries import printed_mean

NEEDS = {"dims": ("method", "step"), "variables": ("accuracy",), "many": ("seed",)}

SIZES = (3, 5, 10, 20, 50, 100)
DIFFERENCE = 0.001
PAIRS = {2: 24, 1: 10}  # pairs of methods that have a place, by the panels beside each other
TRIALS, RESAMPLES = 2000, 1000

INTERVALS = {
    "t": plots.Look("$t$-interval", plots.PALETTE[0], "-", "o"),
    "bootstrap": plots.Look("percentile bootstrap", plots.PALETTE[1], plots.DASHES[1], "s"),
}
ARMS = {
    "paired": plots.Look("common seeds, paired", plots.PALETTE[0], "none", "o"),
    "independent": plots.Look("independent seeds", plots.PALETTE[2], "none", "D"),
}


def seeds_for_difference(final: xr.DataArray) -> list[dict[str, Any]]:
    """Return for each pair of methods how many seeds find a difference of ``DIFFERENCE``, in rising order.

    Args:
        final: final accuracy, dimensions method and seed.
    """
    sd = stats.std(final)["estimate"]
    rows = []
    for a, b in itertools.combinations(final["method"].values.tolist(), 2):
        one, two = (sd.sel({"method": name}).item() for name in (a, b))
        if min(one, two) > 0:
            pair = stats.paired_difference(final.sel({"method": a}), final.sel({"method": b}), method="t")
            arms = {"sd": one, "sd_other": two}
            row = {"a": a, "b": b, "rho": round(pair["rho"].item(), 4)}
            row["paired"] = stats.seeds_needed(DIFFERENCE, **arms, rho=pair["rho"].item())
            row["independent"] = stats.seeds_needed(DIFFERENCE, **arms)
            rows.append(row)
    return sorted(rows, key=lambda row: (row["independent"], row["paired"]))


def coverage(final: xr.DataArray, method: Any) -> xr.Dataset:
    """Return the coverage and width of the intervals of ``SIZES`` seeds."""
    return stats.interval_coverage(final, SIZES, method=method, trials=TRIALS, resamples=RESAMPLES)


@figure_script.once
def computed(dataset: xr.Dataset) -> tuple[xr.DataArray, list[dict[str, Any]], dict[str, xr.Dataset]]:
    """Return what is drawn: final accuracy, ``seeds_for_difference``, and ``coverage`` by interval."""
    final = figure_script.prepare(dataset, NEEDS)["accuracy"].isel(step=-1).load()
    return final, seeds_for_difference(final), {method: coverage(final, method) for method in INTERVALS}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: the distribution of each method, coverage by size, seeds needed."""
    final, differences, covered = computed(dataset)
    held = {
        method: {
            str(n): {str(m): round(v, 4) for m, v in zip(final["method"].values, row, strict=True)}
            for n, row in zip(SIZES, found["estimate"].values.T, strict=True)
        }
        for method, found in covered.items()
    }
    numbers = {
        "final_accuracy": captions.records(printed_mean(final)),
        "coverage_of_95_percent_intervals": held,
        f"seeds_for_a_difference_of_{DIFFERENCE:g}": differences,
    }
    most = f", for up to {PAIRS[2]} pairs, those that need most" if len(differences) > PAIRS[1] else ""
    what = (
        f"Accuracy after {int(final['step'])} training steps. (a) Share of the seeds at or below a value. (b) Seeds of "
        f"each method to find a difference of {DIFFERENCE:g} with power 0.8 at level 0.05{most}. (c) How often the "
        f"95 % interval of few seeds holds the mean of all. (d) Mean width of the t-interval."
    )
    interval = (
        f"{final.sizes['seed']} seeds; bands in (a) are those of Dvoretzky, Kiefer and Wolfowitz, 95 % each; points in "
        f"(c) are means over methods, bars from the lowest to the highest, {TRIALS} draws each."
    )
    return captions.caption(dataset, what, numbers) | {"interval": interval}


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw ECDFs, seeds needed, coverage and width."""
    final, differences, covered = computed(dataset)
    looks = plots.method_looks(final["method"].values.tolist())
    across = plots.columns(venue, 2, narrowest=2.6)
    pairs = differences[-PAIRS[across] :]
    upper = 0.7 + max(0.16 * len(pairs), 1.6)
    with plots.style():
        if across == 2:
            figure = plots.new_figure(venue, height=upper + 2.3)
            parts = figure.subfigures(2, 2, height_ratios=[upper, 2.3]).ravel()
        else:
            figure = plots.new_figure(venue, height=plots.TALLEST)
            parts = plots.stacked(figure, [1.7, upper, 1.7, 1.7])
        _draw_ecdf(parts[0], final, looks)
        _draw_seeds(parts[1], pairs, looks)
        _draw_coverage(parts[2], covered)
        _draw_width(parts[3], covered["t"]["width"], looks)
        plots.legend_above(figure, parts[3].axes[0])
    return figure


def clusters(final: xr.DataArray) -> list[list[str]]:
    """Split the methods, in order of their means, where a gap between their values is half of the whole range."""
    order = final.mean("seed").argsort().values
    names, low, high = final["method"].values[order], final.min("seed").values[order], final.max("seed").values[order]
    cuts = np.flatnonzero(low[1:] - high[:-1] > (high.max() - low.min()) / 2) + 1
    return [part.tolist() for part in np.split(names, cuts)]


def _draw_ecdf(parent: SubFigure, final: xr.DataArray, looks: Mapping[str, plots.Look]) -> None:
    parts = clusters(final)
    panels = parent.subplots(1, len(parts), sharey=True, squeeze=False).ravel()
    for axes, methods in zip(panels, parts, strict=True):
        curve = stats.ecdf(final.sel({"method": methods}))
        at = curve["value"].values
        for name in [name for name in looks if name in methods]:
            share, low, high = (curve[key].sel({"method": name}).values for key in ("estimate", "low", "high"))
            look = looks[name]
            axes.fill_between(at, low, high, step="post", color=look.color, alpha=0.22, linewidth=0)
            marks = np.searchsorted(share, np.array([0.15, 0.5, 0.75]) + 0.05 * look.first_mark).tolist()
            line = {"color": look.color, "linestyle": look.dashes, "linewidth": look.width, "marker": look.marker}
            axes.plot(at, share, drawstyle="steps-post", markevery=marks, markeredgecolor="white", **line)
        axes.locator_params("x", nbins=3)
    panels[0].set_ylabel("share of the seeds")
    parent.supxlabel("final accuracy (fraction correct)")
    parent.suptitle("(a) distribution over seeds")


def _draw_seeds(parent: SubFigure, rows: Sequence[Mapping[str, Any]], looks: Mapping[str, plots.Look]) -> None:
    axes = parent.subplots()
    for i, row in enumerate(rows):
        axes.plot([row["paired"], row["independent"]], [i, i], color="0.6", linewidth=0.8, zorder=1)
    for arm, look in ARMS.items():
        shape = {"marker": look.marker, "color": look.color, "fillstyle": "full" if arm == "paired" else "none"}
        axes.plot([row[arm] for row in rows], range(len(rows)), ls="none", label=look.label, mew=0.9, **shape)
    axes.set_yticks(range(len(rows)), [" / ".join(looks[row[side]].label for side in "ab") for row in rows])
    axes.set_xscale("log")
    _plain_numbers(axes)
    found = [row[arm] for row in rows for arm in ARMS]
    if found and max(found) < 10 * min(found):  # no power of ten may be among them
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", visible=False)
    parent.supxlabel("seeds per method (log scale)")
    if len(rows) > PAIRS[1]:  # there may be no free place among so many
        axes.set_ylim(top=len(rows) + 2.2)
    axes.legend(loc="best" if len(rows) <= PAIRS[1] else "upper right", handlelength=1.0)
    parent.suptitle(f"(b) to find a difference of {DIFFERENCE:g}")


def _draw_coverage(parent: SubFigure, covered: Mapping[str, xr.Dataset]) -> None:
    axes = parent.subplots()
    axes.axhline(0.95, color="black", linewidth=0.7, linestyle=(0, (1.2, 1)))
    for shift, (method, result) in zip((0.97, 1.03), covered.items(), strict=True):
        look, held = INTERVALS[method], result["estimate"]
        mean, low, high = (getattr(held, name)("method").values for name in ("mean", "min", "max"))
        axes.errorbar(
            np.array(SIZES) * shift,
            mean,
            [mean - low, high - mean],
            **{"color": look.color, "linestyle": look.dashes, "linewidth": look.width, "marker": look.marker},
            **{"markeredgecolor": "white", "elinewidth": 0.9, "capsize": 1.6, "label": look.label},
        )
    axes.set_xscale("log")
    axes.set_xticks(SIZES)
    _plain_numbers(axes)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("seeds drawn (log scale)")
    axes.set_ylabel("intervals that hold the mean")
    axes.legend(loc="lower right")
    parent.suptitle("(c) coverage of 95 % intervals")


def _draw_width(parent: SubFigure, width: xr.DataArray, looks: Mapping[str, plots.Look]) -> None:
    axes = parent.subplots()
    for name, look in looks.items():
        line = {key: value for key, value in look.line().items() if key != "first_mark"}
        axes.plot(SIZES, width.sel({"method": name}), markeredgecolor="white", **line)
    axes.set_xscale("log")
    if (width > 0).any():  # seeds that do not differ have no place on a log axis
        axes.set_yscale("log")
    axes.set_xticks(SIZES)
    _plain_numbers(axes)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("seeds drawn (log scale)")
    axes.set_ylabel("width (accuracy, log scale)")
    parent.suptitle("(d) width of the $t$-interval")


def _plain_numbers(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("seed_variance", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
