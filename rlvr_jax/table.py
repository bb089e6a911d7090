"""The table of final numbers that a lecture prints: plain ASCII, one row per configuration."""

import unicodedata
from collections.abc import Sequence

import numpy as np
import xarray as xr

from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.types import InvalidInput

# Results are float32: further decimals would print the rounding of the arithmetic.
MOST_DECIMALS = 6

#: Rows that are printed; nobody reads more.
MOST_ROWS = 200


def final_table(
    dataset: xr.Dataset,
    metrics: Sequence[str] = ("accuracy", "hack_rate", "zero_frac_total"),
    over: str = "seed",
) -> str:
    """Tabulate the metrics at the last stored step: mean +- half-width of the 95 % t-interval of the mean.

    Args:
        dataset: results of a sweep: the swept dimensions, then ``step`` where the metric is a curve.
        metrics: variables of ``dataset``, one column each, in their own units.
        over: the dimension of the replicates; the column ``n`` has their number, and a metric with fewer
            finite values says so in its cell.

    Returns:
        A row for each combination of the remaining dimensions that was run; parameters that move along a tied
        dimension are columns too. Each number is rounded to its own uncertainty. If runs diverged, a last
        line names their cells; they count with the values at which they were frozen. Beyond 200 rows the number of
        the others takes their place.

    Raises:
        InvalidInput: a metric that ``dataset`` does not hold.

    Example:
        >>> accuracy = xr.DataArray(
        ...     [[[0.24, 0.771], [0.24, 0.773]], [[0.24, 0.92], [0.24, 0.94]]],
        ...     {"method": ["rloo", "grpo"], "seed": [0, 1], "step": [0, 600]},
        ... )
        >>> print(final_table(xr.Dataset({"accuracy": accuracy}), ("accuracy",)))
        Mean +- half-width of the 95 % t-interval over seed, at step 600.
        method  n        accuracy
        rloo    2  0.772 +- 0.013
        grpo    2    0.93 +- 0.13
    """
    for metric in metrics:
        if metric not in dataset:
            held = ", ".join(str(name) for name in dataset.data_vars)
            raise InvalidInput(f"metrics: {metric!r} is not in these results, which hold {held}")
    final = dataset.isel(step=-1) if "step" in dataset.dims else dataset
    intervals = {metric: printed_mean(final[metric], over) for metric in metrics}
    used = {dim for interval in intervals.values() for dim in interval.dims}
    dims = [str(dim) for dim in final.dims if dim in used]
    names = [name for dim in dims for name in labels_along(final, dim)]
    replicates = final.sizes.get(over, 1)

    rows = [[*names, "n", *metrics]]
    for index in np.ndindex(*(final.sizes[dim] for dim in dims)):
        at = dict(zip(dims, index, strict=True))
        cells = [interval.isel(at, missing_dims="ignore") for interval in intervals.values()]
        n = max(int(cell["n"]) for cell in cells)
        if n == 0 and not _diverged_steps(final, at):
            continue
        numbers = [_number(float(c["estimate"]), float(c["half_width"]), int(c["n"]), n) for c in cells]
        rows.append([*values_at(final, at), str(n), *numbers])

    step = f", at step {int(final['step'])}" if "step" in dataset.dims else ""
    if replicates > 1:
        head = f"Mean +- half-width of the 95 % t-interval over {over}{step}."
    else:
        head = f"One {over}, so no interval{step}."
    left_out = len(rows) - 1 - MOST_ROWS
    more = [f"... and {left_out:,} more rows: `rlvr-jax stats` has --by and --over."] if left_out > 0 else []
    lines = aligned(rows[: MOST_ROWS + 1], left=len(names))
    return "\n".join([head, *lines, *more, *_diverged_line(final, dims, over, replicates)])


def labels_along(dataset: xr.Dataset, dim: str) -> list[str]:
    """Return the names of the coordinates that tell the entries of ``dim`` apart, its own first.

    A tied dimension such as ``run`` only counts the parameters that move along it, so their names suffice.
    """
    along = [str(name) for name, coord in dataset.coords.items() if coord.dims == (dim,)]
    tied = [name for name in along if name != dim]
    if dim in along and not (tied and np.array_equal(dataset[dim], np.arange(dataset.sizes[dim]))):
        return [dim, *tied]
    return tied or [dim]


def _diverged_steps(dataset: xr.Dataset, at: dict[str, int]) -> list[int]:
    """Return the step of divergence of each run that diverged, in the configuration at index ``at``."""
    if "diverged_step" not in dataset:
        return []
    steps = dataset["diverged_step"].isel(at, missing_dims="ignore").values
    return [int(step) for step in np.ravel(steps) if step >= 0]


def values_at(dataset: xr.Dataset, at: dict[str, int]) -> list[str]:
    """Return the values of those coordinates at an index, as text."""
    return [
        text_of(dataset[name].values[index] if name in dataset.coords else index)
        for dim, index in at.items()
        for name in labels_along(dataset, dim)
    ]


def text_of(value: object) -> str:
    """Return a coordinate's value as tables print it."""
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)


def decimals(half_width: float) -> int:
    """Return the decimals up to the first digit of a half-width, up to the second if the first is a 1."""
    leading = f"{half_width:.1e}"  # such as 1.5e-02
    return min(max((leading[0] == "1") - int(leading[4:]), 0), MOST_DECIMALS)


def _number(mean: float, half_width: float, n: int, row_n: int) -> str:
    """Round to the uncertainty, and say how many runs there were if the row has more."""
    if n == 0:
        return "-"
    if n == 1:
        text = f"{mean:.4f}"
    elif half_width < 10.0**-MOST_DECIMALS:
        least = 10.0**-MOST_DECIMALS
        bound = f"<{least:.{MOST_DECIMALS}f}" if half_width > 0 else f"{0:.{MOST_DECIMALS}f}"
        text = f"{mean:.{MOST_DECIMALS}f} +- {bound}"
    else:
        places = decimals(half_width)
        text = f"{mean:.{places}f} +- {half_width:.{places}f}"
    return text if n == row_n else f"{text} (n={n})"


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return the rows as lines of columns, the first ``left`` of them aligned to the left.

    A Chinese character takes two places.

    Example:
        >>> aligned([["代价", "1"], ["x", "20"]], left=1)
        ['代价   1', 'x     20']
    """
    widths = [max(map(_places, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        filled = [(text, " " * (width - _places(text))) for text, width in zip(row, widths, strict=True)]
        cells = (text + fill if i < left else fill + text for i, (text, fill) in enumerate(filled))
        lines.append("  ".join(cells).rstrip())
    return lines


def _places(text: str) -> int:
    """How many places a text takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _diverged_line(dataset: xr.Dataset, dims: list[str], over: str, replicates: int) -> list[str]:
    if "diverged_step" not in dataset:
        return []
    own = [dim for dim in dims if dim in dataset["diverged_step"].dims]
    named = []
    for index in np.ndindex(*(dataset.sizes[dim] for dim in own)):
        at = dict(zip(own, index, strict=True))
        steps = _diverged_steps(dataset, at)
        if steps:
            names = [name for dim in own for name in labels_along(dataset, dim)]
            cell = " ".join(f"{name}={value}" for name, value in zip(names, values_at(dataset, at), strict=True))
            named.append(f"{cell} ({len(steps)} of {replicates} {over}s, first at step {min(steps)})".strip())
    return ["Diverged: " + "; ".join(named) + "."] if named else []
