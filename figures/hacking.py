"""Reward hacking: what the verifier pays against what is right, on trained and on unseen prompts, by KL weight.

The tendency to hack is shared by all prompts, so an exploit learned on some spreads to those never trained on.

    python figures/hacking.py results/hacking.zarr --out out --venue neurips
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import xarray as xr
from matplotlib.figure import Figure, SubFigure

from rlvr_jax import captions, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean

ENDS = {
    "final accuracy\nand reward": {"verifier_reward": "verifier's reward", "accuracy": "accuracy (truly correct)"},
    "final hack rate\n(fraction)": {"hack_rate_seen": "trained prompts", "hack_rate_unseen": "unseen prompts"},
}
PAIRED = [name for pair in ENDS.values() for name in pair]
NEEDS = {"dims": ("method", "kl_coef", "step"), "variables": (*PAIRED, "h"), "most": {"kl_coef": 8}}


def facts(dataset: xr.Dataset) -> dict[str, Any]:
    """Return the caption: all that is drawn at the end of training, and how far reward and accuracy are apart."""
    dataset = figure_script.prepare(dataset, NEEDS)
    final = dataset.isel(step=-1)
    what = (
        f"Top: what the verifier pays, and accuracy, after {int(final['step'])} training steps against the weight of "
        "the KL penalty. Middle: probability of the hack on trained and on unseen prompts. Bottom: the tendency to "
        "hack that all prompts share, during training."
    )
    gap = final["verifier_reward"] - final["accuracy"]
    spread = final["hack_rate_unseen"] - final["hack_rate_seen"]
    numbers = {
        "reward_above_accuracy": captions.records(printed_mean(gap)),
        "hack_rate_unseen_above_seen": captions.records(printed_mean(spread)),
        **{f"final_{name}": captions.records(printed_mean(final[name])) for name in (*PAIRED, "h")},
    }
    return captions.caption(dataset, what, numbers)


def draw(dataset: xr.Dataset, venue: str = "neurips") -> Figure:
    """Draw three rows of panels, a column for each method."""
    dataset = figure_script.prepare(dataset, NEEDS).sortby("kl_coef")
    methods = plots.method_looks(dataset["method"].values.tolist())
    across = plots.columns(venue, len(methods), narrowest=1.05)
    height = min(0.42 + 1.2 * math.ceil(len(methods) / across), plots.TALLEST / 3)
    with plots.style():
        figure = plots.new_figure(venue, height=3 * height)
        *ends, bottom = plots.stacked(figure, [height] * 3)
        for part, (label, pair) in zip(ends, ENDS.items(), strict=True):
            _draw_ends(part, dataset.isel(step=-1), label, pair, across)
        _draw_tendency(bottom, dataset["h"], across)
    return figure


def _draw_ends(parent: SubFigure, final: xr.Dataset, label: str, pair: dict[str, str], across: int) -> None:
    methods = plots.method_looks(final["method"].values.tolist())
    weights = final["kl_coef"].values.tolist()
    panels = plots.panels(parent, len(methods), across)
    for axes, (method, look) in zip(panels, methods.items(), strict=True):
        for (name, text), style in zip(pair.items(), plots.CONTRAST, strict=True):
            values = final[name].sel({"method": method})
            plots.sensitivity(axes, "kl_coef", values, **plots.Look(text, *style).line())
        if len(weights) > 4:
            axes.set_xticks([*weights[:1], *weights[:1:-2][::-1]])  # without crowding: both ends, every second
            axes.set_xticks(weights, minor=True)
        axes.set_title(look.label)
    panels[0].set_ylim(bottom=0.0)  # of all panels, once all are drawn
    for axes in panels[::across]:
        axes.set_ylabel(label)
    scale = "log scale, 0 at its left" if 0.0 in weights else "log scale"
    parent.supxlabel(f"weight of the KL penalty ({scale})")
    plots.legend_above(parent, panels[0])


def _draw_tendency(parent: SubFigure, tendency: xr.DataArray, across: int) -> None:
    methods = plots.method_looks(tendency["method"].values.tolist())
    weights = tendency["kl_coef"].values.tolist()
    panels = plots.panels(parent, len(methods), across)
    for axes, (method, method_look) in zip(panels, methods.items(), strict=True):
        for weight, look in zip(weights, plots.ordered_looks(weights, "KL weight"), strict=True):
            values = tendency.sel({"method": method, "kl_coef": weight})
            plots.curve_with_band(axes, "step", values, **look.line())
        axes.set_title(method_look.label)
    for axes in panels[::across]:
        axes.set_ylabel("tendency to\nhack (logit)")
    parent.supxlabel("training step")
    plots.legend_above(parent, panels[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script; return the exit code."""
    return figure_script.run("hacking", __doc__, NEEDS, draw, facts, arguments)


if __name__ == "__main__":
    sys.exit(main())
