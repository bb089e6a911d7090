"""Figures at print size: one style, one look per method, a few drawing verbs, one way to write the files.

With ``charts`` the only module of the library that imports matplotlib; pyplot and global settings are left
alone, and a figure is drawn inside ``with style():``. Every band and error bar is the 95 % t-interval of the mean over
seeds.
"""

import itertools
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import findSystemFonts, fontManager
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from rlvr_jax.captions import latex
from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.types import InvalidInput

# Text widths in inches. A figure is placed unscaled, so the point sizes below are those in print.
WIDTHS = {"neurips": 5.5, "iclr": 5.5, "icml": 6.75, "icml-column": 3.25, "tmlr": 6.5}

#: Inches that a figure may be high, so that its caption fits below it on the page of any venue.
TALLEST = 7.5

STYLE: dict[Any, Any] = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral", "DejaVu Serif"],
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    **dict.fromkeys(("figure.labelsize", "figure.titlesize", "axes.titlesize", "axes.labelsize"), 8.0),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7.0),
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handletextpad": 0.6,
    "legend.columnspacing": 1.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width", "hatch.linewidth"), 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5),
    "xtick.minor.width": 0.4,
    "xtick.minor.size": 1.5,
    "lines.markersize": 3.6,
    "lines.markeredgewidth": 0.5,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.03,  # inches
    "figure.constrained_layout.w_pad": 0.045,
    "pdf.fonttype": 42,
    "svg.hashsalt": "rlvr_jax",  # names inside of an SVG follow from its content
    "savefig.dpi": 300,
}

#: Of rotated labels, in font sizes: the font itself asks for twice its size, with which lines side by side stay level.
LINE_SPACING = 1.15

#: TrueType families with Chinese characters, and the names of their files.
CHINESE_FONTS = {
    "WenQuanYi Zen Hei": "wqy-zenhei",
    "WenQuanYi Micro Hei": "wqy-microhei",
    "Microsoft YaHei": "msyh",
    "SimHei": "simhei",
    "STHeiti": "stheiti medium",
    "AR PL UMing CN": "uming",
    "Droid Sans Fallback": "droidsansfallbackfull",
}

PALETTE = matplotlib.color_sequences["petroff6"]
DASHES = ("-", (0, (4, 1.2)), (0, (6, 1.2, 1.2, 1.2)), (0, (1.2, 1)), (0, (3, 1, 1, 1, 1, 1)))
#: Colour, dashes and marker of two sides that a figure sets against each other; no method looks like them.
CONTRAST = (("0.15", "-", "o"), (PALETTE[5], DASHES[1], "s"))
#: Colours of methods that are not the lecture's; its palette has no more.
FREE_COLORS = (PALETTE[5], *(matplotlib.color_sequences["petroff10"][i] for i in (5, 8, 9, 7)))
FREE_MARKERS = ("P", "X", "<", ">", "p", "h", "*")
FREE_HATCHES = ("++++", "----", "||||", "oooo", "****")


@dataclass(frozen=True)
class Look:
    """How a curve or bar is told apart, in colour and in grey."""

    label: str
    color: Any
    dashes: Any
    marker: str
    hatch: str = ""
    width: float = 1.2  # points
    first_mark: int = 0  # curves that coincide carry their markers at different places

    def line(self) -> dict[str, Any]:
        """Return this look as keywords of ``curve_with_band``."""
        line = {"color": self.color, "linestyle": self.dashes, "marker": self.marker, "linewidth": self.width}
        return {"label": self.label, "first_mark": self.first_mark, **line}


# Without a reward offset the first three nearly coincide: "none" is broad, to show beneath the others.
KNOWN_LOOKS = {
    "none": Look("no baseline", PALETTE[4], "-", "o", "....", width=2.8, first_mark=0),
    "learned": Look("learned baseline", PALETTE[1], DASHES[1], "s", "////", first_mark=1),
    "rloo": Look("RLOO", PALETTE[0], DASHES[2], "^", r"\\\\", first_mark=2),
    "group": Look("group mean", PALETTE[3], DASHES[3], "D", "xxxx", first_mark=3),
    "grpo": Look("GRPO", PALETTE[2], "-", "v", "", first_mark=4),
}


def method_looks(methods: Iterable[str]) -> dict[str, Look]:
    """Give every method its look; the five of the lecture always have the same.

    Any other gets the next free one in sorted order: pass all methods of the results (or of the registry),
    and a method looks the same in all their figures. Colour and marker are distinct for 35 of them.

    Example:
        >>> method_looks(["grpo", "rloo"])["rloo"].label
        'RLOO'
    """
    methods = list(methods)
    looks = dict(KNOWN_LOOKS)
    for k, name in enumerate(sorted(set(methods) - set(KNOWN_LOOKS))):
        color, dashes = FREE_COLORS[k % len(FREE_COLORS)], DASHES[(k + k // len(DASHES)) % len(DASHES)]
        marker, hatch = FREE_MARKERS[k % len(FREE_MARKERS)], FREE_HATCHES[k % len(FREE_HATCHES)]
        looks[name] = Look(name, color, dashes, marker, hatch, first_mark=k)
    return {name: looks[name] for name in methods}


def ordered_looks(values: Sequence[float], symbol: str) -> list[Look]:
    """Give the rising values of a parameter looks from light to dark, labelled ``"symbol = value"``.

    They are broad to narrow as well, and carry their markers at different places, so that those that coincide show.
    """
    shades = matplotlib.colormaps["viridis_r"](np.linspace(0.15, 1.0, len(values)))
    widths = np.linspace(2.4, 0.9, len(values))
    markers = [*(look.marker for look in KNOWN_LOOKS.values()), *FREE_MARKERS]
    return [
        Look(f"{symbol} = {value:g}", tuple(shade), "-", markers[i % len(markers)], width=width, first_mark=i)
        for i, (value, shade, width) in enumerate(zip(values, shades, widths, strict=True))
    ]


def cell_looks(methods: Sequence[str], notes: Sequence[str]) -> list[Look]:
    """Give each cell the look of its method; a method's second cell, third, ... has other dashes and markers.

    Args:
        methods: the method of each cell.
        notes: what else is to be said of each cell, such as ``"cost 0.02"``; may be empty.

    Example:
        >>> [look.label for look in cell_looks(["grpo", "grpo"], ["cost 0", "cost 0.02"])]
        ['GRPO, cost 0', 'GRPO, cost 0.02']
    """
    looks, seen = method_looks(sorted(set(methods))), dict.fromkeys(methods, 0)
    cells = []
    for method, note in zip(methods, notes, strict=True):
        look, k = looks[method], seen[method]
        if k > 0:
            look = replace(look, dashes=DASHES[k % len(DASHES)], marker=FREE_MARKERS[k % len(FREE_MARKERS)])
        cells.append(replace(look, label=", ".join(filter(None, (look.label, note))), width=1.2))
        seen[method] += 1
    return cells


@contextmanager
def style(font: str | None = None) -> Iterator[None]:
    """Switch to the style of the project, on top of matplotlib's defaults and not of the user's settings.

    Args:
        font: a family for the characters that the serif one lacks.
    """
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        if font is not None:
            matplotlib.rcParams["font.family"] = ["serif", font]
            logger.setLevel(logging.ERROR)  # such a font has one weight, and its name is enough
        try:
            yield
        finally:
            logger.setLevel(level)


def chinese_font() -> str:
    """Return an installed family with Chinese characters.

    Only TrueType ones are looked for: OpenType fonts with CFF outlines, such as Noto Sans CJK, stay invisible in some
    viewers when a PDF embeds them.

    Raises:
        InvalidInput: there is none; the sentence names a package.
    """
    known = {font.name for font in fontManager.ttflist}
    if not known & set(CHINESE_FONTS):  # installed after matplotlib made its list
        for path in findSystemFonts():
            if Path(path).stem.lower() in CHINESE_FONTS.values():
                fontManager.addfont(path)
        known = {font.name for font in fontManager.ttflist}
    for name in CHINESE_FONTS:
        if name in known:
            return name
    raise InvalidInput(
        "language is 'zh', and no font with Chinese characters is installed; install the package fonts-wqy-zenhei "
        "(Debian, Ubuntu: apt install fonts-wqy-zenhei) or one of " + ", ".join(CHINESE_FONTS)
    )


def width_of(venue: str) -> float:
    """Return the text width of ``venue`` in inches."""
    if venue not in WIDTHS:
        raise InvalidInput(f"venue: {venue!r} is not one of {', '.join(WIDTHS)}")
    return WIDTHS[venue]


def new_figure(venue: str, height: float) -> Figure:
    """Return an empty figure, as wide as the text of ``venue`` and ``height`` inches high."""
    return Figure(figsize=(width_of(venue), height))


def columns(venue: str, count: int, narrowest: float) -> int:
    """Return how many of ``count`` panels fit side by side, each at least ``narrowest`` inches wide."""
    return max(1, min(count, int(width_of(venue) / narrowest)))


def panels(parent: Figure | SubFigure, count: int, across: int, share: bool = True) -> list[Axes]:
    """Return ``count`` axes, ``across`` in a row; the last row may stay unfinished.

    They have common scales, or with ``share=False`` a common horizontal one.
    """
    grid = parent.subplots(math.ceil(count / across), across, sharex=True, sharey=share, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.remove()
    for axes in grid[max(count - across, 0) : count]:
        axes.tick_params(labelbottom=True)  # shared axes hide them above an empty place
    return list(grid[:count])


def stacked(figure: Figure, heights: Sequence[float]) -> list[SubFigure]:
    """Divide a figure into parts one above another, of these heights in inches."""
    return list(figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])


def legend_above(parent: Figure | SubFigure, axes: Axes) -> None:
    """Put the legend of ``axes`` above the panels, where it covers no data, in as few rows as fit."""
    entries = zip(*axes.get_legend_handles_labels(), strict=True)
    # Bars first, then the lines across them; a line needs room to show its dashes.
    handles, labels = zip(*sorted(entries, key=lambda entry: isinstance(entry[0], Line2D)), strict=True)
    length = 2.2 if isinstance(handles[0], Line2D) else 1.3
    for rows in range(1, len(labels) + 1):
        shape = {"ncols": math.ceil(len(labels) / rows), "handlelength": length}
        legend = parent.legend(handles, labels, loc="outside upper center", **shape)
        if shape["ncols"] == 1 or legend.get_window_extent().width <= parent.bbox.width:
            return
        legend.remove()


def curve_with_band(
    axes: Axes, x: str, values: xr.DataArray, over: str = "seed", first_mark: int = 0, **line: Any
) -> Line2D:
    """Draw the mean over ``over`` against the coordinate ``x``, with its 95 % t-interval as a band.

    Args:
        axes: where to draw.
        x: the dimension along the horizontal axis.
        values: dimensions ``x`` and ``over``; NaN leaves a gap, and a single run has no interval and no band.
        over: the replicates.
        first_mark: index of the first point that carries a marker.
        line: keywords of the curve; ``Look.line`` gives them.

    Returns:
        The curve; its band, if it has one, is the last of ``axes.collections``.

    Example:
        >>> accuracy = xr.DataArray([[0.2, 0.5], [0.2, 0.7]], {"seed": [0, 1], "step": [0, 100]})
        >>> axes = Figure().add_subplot()
        >>> curve_with_band(axes, "step", accuracy, **method_looks(["grpo"])["grpo"].line()).get_ydata().tolist()
        [0.2, 0.6]
    """
    interval = printed_mean(values, over)
    at, mean, half = values[x].values, interval["estimate"].values, interval["half_width"].values
    if np.isfinite(half).any():
        axes.fill_between(at, mean - half, mean + half, color=line.get("color"), alpha=0.22, linewidth=0)
        if len(at) == 1:  # a band without width
            axes.errorbar(at, mean, half, fmt="none", ecolor=line.get("color"), elinewidth=0.8, capsize=1.4)
    every = max(3, len(at) // 5) if len(at) > 8 else 1  # a marker on each of many points would hide the curve
    (curve,) = axes.plot(at, mean, markevery=(first_mark % every, every), markeredgecolor="white", **line)
    return curve


def sensitivity(axes: Axes, parameter: str, values: xr.DataArray, over: str = "seed", **line: Any) -> Line2D:
    """Draw a value against a parameter on a log axis, with the band of ``curve_with_band``; 0 stands at its left.

    Args:
        axes: where to draw.
        parameter: a dimension of ``values`` with coordinates from 0 on.
        values: dimensions ``parameter`` and ``over``.
        over: the replicates.
        line: keywords of ``curve_with_band``.

    Raises:
        InvalidInput: a value of ``parameter`` that a log axis cannot show.
    """
    values = values.sortby(parameter)
    at = values[parameter].values
    if not at[0] >= 0:
        raise InvalidInput(f"{parameter}: {at[0]:g} cannot stand on a log axis, which takes values from 0 on")
    if at[0] == 0:
        axes.set_xscale("symlog", linthresh=at[1] if len(at) > 1 else 1.0, linscale=0.6)
    else:
        axes.set_xscale("log")
    curve = curve_with_band(axes, parameter, values, over, **line)
    if len(at) == 1:  # in the middle, with room on both sides
        axes.set_xlim((-1.0, 1.0) if at[0] == 0 else (at[0] / 2, at[0] * 2))
    if len(at) <= 8:
        axes.set_xticks(at)
        axes.xaxis.set_minor_locator(NullLocator())
    elif at[0] > 0:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0,)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    # 0.1 and not 10^-1, whose exponent would be set smaller than 6 pt.
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return curve


def level_bars(
    axes: Axes, values: xr.DataArray, looks: Mapping[str, Look], by: str = "method", over: str = "seed"
) -> None:
    """Draw a group of bars for each ``level`` with a bar for each ``by``: the mean with its 95 % t-interval.

    Args:
        axes: where to draw; the groups stand at 0, 1, 2, ...
        values: dimensions ``level``, ``by`` and ``over``; a cell not run has no bar, one run no interval.
        looks: the look of each coordinate along ``by``.
        by: the dimension inside a group.
        over: the replicates.
    """
    interval = printed_mean(values, over).transpose(by, "level")
    width = 0.84 / len(looks)
    for i, name in enumerate(values[by].values):
        at = np.arange(values.sizes["level"]) + (i - (len(looks) - 1) / 2) * width
        mean, half, look = interval["estimate"].values[i], interval["half_width"].values[i], looks[str(name)]
        pattern = {"color": look.color, "hatch": look.hatch, "hatchcolor": "white"}
        axes.bar(at, np.nan_to_num(mean), width * 0.92, linewidth=0, label=look.label, **pattern)
        if np.isfinite(half).any():
            axes.errorbar(at, mean, half, fmt="none", ecolor="black", elinewidth=0.7, capsize=1.2, capthick=0.7)
    names = [str(name).rsplit(" ", 1) for name in values["level"].values]  # "very hard 1%" on two lines
    axes.set_xticks(range(len(names)), ["\n".join(parts) for parts in names])
    axes.grid(axis="x", visible=False)


def save(figure: Figure, stem: Path, facts: Mapping[str, Any], say: Callable[[str], str] | None = None) -> list[Path]:
    """Write ``stem.pdf``, ``.svg``, ``.png`` (300 dpi), ``.json`` and ``.tex``: the same bytes for the same data.

    Args:
        figure: what was drawn inside ``style()``.
        stem: path without a suffix; its folder is made if it is missing.
        facts: what ``captions.caption`` returns; results that are ``unfinished`` are marked in the figure, too. The
            LaTeX snippet places the figure, unscaled, above its caption.
        say: translates what is written in the figure into Chinese; the caption stays as it is.

    Returns:
        The five paths.

    Raises:
        InvalidInput: a translation is asked for, and no font with Chinese characters is installed.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    pdf, svg, png, text, tex = (stem.with_name(stem.name + end) for end in (".pdf", ".svg", ".png", ".json", ".tex"))
    font = None if say is None else chinese_font()
    with style(font):
        if "unfinished" in facts:
            figure.supxlabel(facts["unfinished"], fontsize="x-small", color="0.35")
        if say is not None:
            _translate(figure, say)
        for said in _texts(figure):
            if "\n" in said.get_text() and said.get_rotation():
                said.set_linespacing(LINE_SPACING)
        dpi = matplotlib.rcParams["savefig.dpi"]
        figure.set_dpi(dpi)
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")  # laid out once, for all formats
        _align(figure)
        # by each format's own canvas: `savefig` would first draw all once more, to lay it out
        FigureCanvasAgg(figure).print_png(png)
        FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None})  # all that changes with time
        figure.set_dpi(dpi)  # that of a PDF is 72
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})
    text.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    across = figure.get_figwidth() == WIDTHS["icml"]  # both of its columns
    tex.write_text(latex(facts, stem.name, across), encoding="utf-8")
    return [pdf, svg, png, text, tex]


def _texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text)]


def _align(figure: Figure) -> None:
    """Put the columns of parts one above another in line, where they have the same ones: each was laid out for itself.

    Parts whose inner columns have labels of their own are left as they are.
    """
    alike: dict[int, list[SubFigure]] = {}
    for part in figure.subfigs:
        grid = part.axes[0].get_gridspec() if part.axes else None
        if grid is None:  # no panels, or none in columns
            continue
        columns = grid.ncols
        if part.bbox.width == figure.bbox.width and not any(axes.get_ylabel() for axes in part.axes[1:columns]):
            alike.setdefault(columns, []).append(part)
    for columns, parts in alike.items():
        spans = [[axes.get_position().intervalx for axes in part.axes[:columns]] for part in parts]
        left, right = max(row[0][0] for row in spans), min(row[-1][1] for row in spans)
        gap = max((b[0] - a[1] for row in spans for a, b in itertools.pairwise(row)), default=0.0)
        width = (right - left - gap * (columns - 1)) / columns
        for part in parts:
            for i, axes in enumerate(part.axes):
                low, high = axes.get_position().intervaly
                axes.set_position((left + (i % columns) * (width + gap), low, width, high - low))
        for part in parts:  # each minds its own groups of labels
            part.align_ylabels([axes for one in parts for axes in one.axes[::columns]])


def _translate(figure: Figure, say: Callable[[str], str]) -> None:
    """Replace what is written in a figure, and name the families in which it is set."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for formatter in (axis.get_major_formatter(), axis.get_minor_formatter()):
                if isinstance(formatter, FuncFormatter):  # that of labels, too
                    formatter.func = _saying(formatter.func, say)
    for text in _texts(figure):
        text.set_text(say(text.get_text()))
        text.set_fontfamily(matplotlib.rcParams["font.family"])


def _saying(label: Callable[..., str], say: Callable[[str], str]) -> Callable[..., str]:
    return lambda *place: say(label(*place))
