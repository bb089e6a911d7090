"""Where the spread between runs comes from: the task, the order of the prompts, the sampled answers, and all together.

The three seeds are crossed, so that the variance of final accuracy can be split into what each does alone and what
they do only in combination.

    python figures/variance_sources.py results/variance_sources.zarr --out out
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from rlvr_jax import captions, figure_script, plots, stats

SOURCES = ("task_seed", "prompt_seed", "answer_seed")
NEEDS = {"dims": ("method", "step", *SOURCES), "variables": ("accuracy",)}

ENDS = {"": "estimate", "_low": "low", "_high": "high"}
NAMES = {"task_seed": "task", "prompt_seed": "prompts", "answer_seed": "answers"}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: the standard deviation that each source gives, and its share of the variance."""
    final = figure_script.prepare(dataset, NEEDS)["accuracy"].isel(step=-1)
    parts = stats.variance_components(final, SOURCES)
    rows = []
    for method in parts["method"].values:
        for source in parts["source"].values:
            cell = parts.sel({"method": method, "source": source})
            sds = {f"sd{end}": round(float(np.sqrt(cell[key])), 6) for end, key in ENDS.items()}
            shares = {name: round(float(cell[name]), 4) for name in ("share", "share_low", "share_high")}
            rows.append({"method": str(method), "source": str(source), **sds, **shares})
    sizes = [f"{final.sizes[source]} {source}s" for source in SOURCES]
    what = (
        f"Standard deviation of accuracy after {int(final['step'])} training steps from each source and each "
        "combination, by crossed analysis of variance; a hollow marker is 0."
    )
    interval = f"{', '.join(sizes)}; bars are 95 % generalised confidence intervals."
    return captions.caption(dataset, what, {"sources": rows}, over="task_seed") | {"interval": interval}


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw the standard deviation from each source on a log axis, a row for each, a marker for each method."""
    final = figure_script.prepare(dataset, NEEDS)["accuracy"].isel(step=-1)
    sd = np.sqrt(stats.variance_components(final, SOURCES)[list(ENDS.values())])
    positive = sd[["estimate", "high"]].where(lambda ends: ends > 0).to_array().min().item()
    floor = 0.6 * positive if positive > 0 else 1e-6  # runs that do not differ leave the axis empty
    looks = plots.method_looks(sd["method"].values.tolist())
    sources = sd["source"].values.tolist()
    with plots.style():
        figure = plots.new_figure(venue, height=3.2)
        (axes,) = plots.panels(figure, 1, 1)
        for i, (method, look) in enumerate(looks.items()):
            mean, low, high = (np.maximum(sd[key].sel({"method": method}).values, floor) for key in ENDS.values())
            at = np.arange(len(sources)) + 0.14 * (i - (len(looks) - 1) / 2)
            bar = {"color": look.color, "elinewidth": 0.9, "capsize": 1.4, "capthick": 0.7}
            axes.errorbar(mean, at, xerr=[mean - low, high - mean], fmt="none", **bar)
            point = {"marker": look.marker, "color": look.color, "linestyle": "none"}
            axes.plot(mean, at, markeredgecolor="white", label=look.label, **point)
            if (zero := mean <= floor).any():
                axes.plot(mean[zero], at[zero], markerfacecolor="white", clip_on=False, zorder=4, **point)
        axes.set_xscale("log")
        axes.set_xlim(floor, None)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: np.format_float_positional(float(f"{value:g}"), trim="-"))
        )
        labels = [" × ".join(NAMES[source] for source in name.split(" x ")) for name in sources[:-1]]
        axes.set_yticks(range(len(sources)), [*labels, "all three"])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("standard deviation of final accuracy (log scale)")
        plots.legend_above(figure, axes)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("variance_sources", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
