"""Drawing verbs for contexts of the tool-use world, maps by method, and places at which curves cross.

On top of ``plots``, whose style, looks and layout they use.
"""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.ticker import FuncFormatter

from rlvr_jax.plots import DASHES, Look
from rlvr_jax.stats.summaries import printed_mean

#: Names of operations on an axis.
OPERATIONS = {"add": "add", "sub": "subtract", "mul1": "× one digit", "mul2": "× two digits"}


def contexts(axes: Axes, values: xr.DataArray, look: Look, shift: float = 0.0, over: str = "seed") -> None:
    """Draw a value of each ``context`` as a marker with its 95 % t-interval, joined within an operation.

    Args:
        axes: where to draw; contexts stand at 0, 1, 2, ... with a gap of 0.6 between operations.
        values: dimensions ``context``, named operation_difficulty, and ``over``.
        look: how it is drawn.
        shift: how far to the right, so that series do not cover each other.
        over: the replicates.
    """
    interval = printed_mean(values, over)
    operation, difficulty = zip(*(str(name).rsplit("_", 1) for name in values["context"].values), strict=True)
    order: list[str] = list(dict.fromkeys(operation))
    at = np.arange(len(operation)) + 0.6 * np.array([order.index(name) for name in operation])
    line = look.line()
    line.pop("first_mark")
    for i, name in enumerate(order):
        here = np.flatnonzero(np.array(operation) == name)
        axes.plot(at[here] + shift, interval["estimate"].values[here], markeredgecolor="white", clip_on=False, **line)
        line["label"] = f"_{i}"  # one entry in the legend
    if np.isfinite(interval["half_width"].values).any():
        error = {"ecolor": look.color, "elinewidth": 0.8, "capsize": 1.4, "capthick": 0.8}
        axes.errorbar(at + shift, interval["estimate"].values, interval["half_width"].values, fmt="none", **error)
    axes.set_xticks(at, difficulty)
    middle = [at[np.array(operation) == name].mean() for name in order]
    axes.xaxis.remove_overlapping_locs = False  # an operation stands below its middle difficulty
    axes.set_xticks(middle, [OPERATIONS.get(name, name) for name in order], minor=True)
    axes.tick_params(axis="x", which="minor", length=0, pad=13)
    axes.grid(axis="x", visible=False)


def map_by_method(axes: Axes, x: str, values: xr.DataArray, least: float, most: float) -> QuadMesh:
    """Draw a value as a shade: a row for each method, the first on top, against the coordinate ``x``.

    Args:
        axes: where to draw; rows stand at 0, 1, 2, ...
        x: the dimension along the horizontal axis, with rising coordinates.
        values: dimensions ``method`` and ``x``; NaN stays white.
        least, most: values of the darkest and the lightest shade.
    """
    at = np.asarray(values[x].values, float)
    middles = (at[1:] + at[:-1]) / 2
    # the outer cells end at their values: no cost below 0 was run
    edges = np.concatenate([at[:1], middles, at[-1:]]) if len(at) > 1 else np.array([at[0] - 0.5, at[0] + 0.5])
    rows = np.arange(values.sizes["method"] + 1) - 0.5
    limits = {"vmin": float(least), "vmax": float(most), "cmap": "viridis"}
    shades = axes.pcolormesh(edges, rows, values.transpose("method", x).values, rasterized=True, **limits)
    axes.set_ylim(rows[-1], rows[0])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(visible=False)
    return shades


def mark_rows(axes: Axes, found: xr.Dataset) -> None:
    """Mark what ``crossings.descent`` found by ``method`` on a map: a diamond, with its interval as a bar."""
    limits = axes.get_xlim()
    for row in range(found.sizes["method"]):
        at, low, high = (float(found[name][row]) for name in ("at", "low", "high"))
        if np.isfinite(at):
            for color, width in (("black", 2.6), ("white", 1.2)):  # seen on every shade
                axes.plot(np.clip([low, high], *limits), [row, row], color=color, linewidth=width)
            axes.plot(at, row, "D", color="white", markeredgecolor="black", markersize=4.2, markeredgewidth=0.8)


def mark_place(axes: Axes, found: xr.Dataset, **line: Any) -> None:
    """Draw where ``crossings.descent`` found a curve to cross: a line from top to bottom, its interval as a band.

    Args:
        axes: where to draw; their limits stay.
        found: at, low and high, without dimensions; nothing is drawn where ``at`` is not finite.
        line: keywords of the line.
    """
    at, low, high = (float(found[name]) for name in ("at", "low", "high"))
    if not np.isfinite(at):
        return
    limits = axes.get_xlim()
    if not np.isnan([low, high]).any():
        axes.axvspan(*np.clip([low, high], *limits), color=line.get("color", "0.5"), alpha=0.18, linewidth=0)
    axes.axvline(at, **{"color": "0.3", "linestyle": DASHES[3], "linewidth": 0.9, **line})
    axes.set_xlim(limits)
