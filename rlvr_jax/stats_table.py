"""What ``rlvr-jax stats`` prints of a store: a table of its cells and a table of contrasts, or both as JSON."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from rlvr_jax import stats
from rlvr_jax.stats_contrasts import Contrast, compared, plain
from rlvr_jax.store import open_store
from rlvr_jax.table import MOST_DECIMALS, MOST_ROWS, aligned, decimals, labels_along, values_at
from rlvr_jax.types import InvalidInput

#: The share of the seeds that "worst" means.
WORST = 0.1

#: From so many on, at least nine in ten of the intervals of sd hold the truth; see `rlvr_jax.stats`.
ENOUGH = 50

HEADS = {"mean": "mean", "iqm": "IQM", "sd": "sd", "worst": f"worst {100 * WORST:g} %", "collapsed": "collapsed"}


def summarise(
    store: Path,
    *,
    metric: str,
    over: str,
    by: Sequence[str] | None,
    contrasts: Sequence[str],
    step: int | None,
    collapse: float | None,
    as_json: bool,
) -> str:
    """Return the text that `rlvr_jax.stats_command.Stats` prints; see there for the arguments."""
    results = open_store(store)
    final, averaged = _values(results, metric, over, by, step)
    diverged = int((results["diverged_step"] >= 0).sum()) if "diverged_step" in results else 0
    cells, contrasted = _cells(final, over, collapse), compared(final, over, contrasts)
    if as_json:
        report = _report(final, metric, over, averaged, cells, contrasted)
        partial = {"unfinished": results.attrs["unfinished"]} if "unfinished" in results.attrs else {}
        return json.dumps({**report, "diverged_runs": diverged, **partial}, indent=2, allow_nan=False)
    at = f" at step {int(final['step'])}" if "step" in final.coords else ""
    if not cells["mean"]["n"].any():
        stored = f"; the stored steps are {', '.join(map(str, results['step'].values))}" if at else ""
        return f"{metric}{at} over {over}: no cell has a value{stored}."
    first = f", each {over} averaged over {', '.join(averaged)} first" if averaged else ""
    lines = [f"{metric}{at} over {over}{first}.", *_cell_table(final, cells)]
    if "unfinished" in results.attrs:
        lines.append(f"Partial results: {results.attrs['unfinished']}.")
    if diverged:
        runs = f"{diverged} of {results['diverged_step'].size} runs of these results"
        lines.append(f"Diverged: {runs}; they count with the values at which they were frozen.")
    return "\n".join([*lines, "", *_contrast_table(final, contrasted)] if contrasted else lines)


def _values(
    results: xr.Dataset, metric: str, over: str, by: Sequence[str] | None, step: int | None
) -> tuple[xr.DataArray, list[str]]:
    """The metric at one step, and the dimensions that it was averaged over."""
    metrics = [str(name) for name in results.data_vars if name != "diverged_step"]
    if metric not in metrics:
        raise InvalidInput(f"--metric {metric}: these results hold {', '.join(metrics)}")
    values = results[metric]
    if "step" in values.dims:
        stored = values["step"].values.tolist()
        if step is not None and step not in stored:
            raise InvalidInput(f"--step {step}: the stored steps are {', '.join(map(str, stored))}")
        values = values.isel(step=-1 if step is None else stored.index(step))
    elif step is not None:
        raise InvalidInput(f"--step {step}: {metric} is stored once, after the last step")
    dims = [str(dim) for dim in values.dims]
    if over not in dims:
        raise InvalidInput(f"--over {over}: {metric} has the dimensions {', '.join(dims) or 'none'}")
    dims.remove(over)
    for name in by or ():
        if name not in dims:
            raise InvalidInput(f"--by {name}: the dimensions besides {over} are {', '.join(dims) or 'none'}")
    kept = dims if by is None else list(dict.fromkeys(by))
    averaged = [dim for dim in dims if dim not in kept]
    # a seed that misses one of what is averaged is missing: it would be the mean of something else
    return values.astype(np.float64).mean(averaged, skipna=False).transpose(*kept, over).load(), averaged


def _cells(final: xr.DataArray, over: str, collapse: float | None) -> dict[str, xr.Dataset]:
    """The columns of the table of cells, in order."""
    columns = {
        "mean": stats.mean(final, over),
        "iqm": stats.iqm(final, over),
        "sd": stats.std(final, over),
        "worst": stats.cvar(final, over, share=WORST),
    }
    return columns if collapse is None else columns | {"collapsed": stats.collapse_rate(final, collapse, over)}


def _indices(values: xr.DataArray) -> Iterator[dict[str, int]]:
    """The index of every cell by dimension."""
    sizes = {str(dim): size for dim, size in values.sizes.items()}
    return (dict(zip(sizes, index, strict=True)) for index in np.ndindex(*sizes.values()))


def _cell_table(final: xr.DataArray, cells: dict[str, xr.Dataset]) -> list[str]:
    labelled, n = final.to_dataset(name="_"), cells["mean"]["n"]
    names = [name for dim in n.dims for name in labels_along(labelled, str(dim))]
    rows = [[*names, "n", *(HEADS[name] for name in cells)]]
    for at in _indices(n):
        if n[at] > 0:
            intervals = [_interval(result.isel(at)) for result in cells.values()]
            rows.append([*values_at(labelled, at), str(int(n[at])), *intervals])
    mean, iqm = cells["mean"].attrs, cells["iqm"].attrs
    how = f"[ ]: {100 * mean['level']:g} % intervals; for the mean: {mean['method']}; for the others: {iqm['method']}, "
    how += f"{iqm['resamples']} resamples that all cells share."
    alone = f"No intervals of mean, IQM, sd and worst {100 * WORST:g} %: they need at least two {mean['over']}s."
    lines = [*_cut(rows, left=len(names)), how if n.max() > 1 else alone]
    if 1 < n.max() < ENOUGH:
        lines.append(
            "With so few, the intervals of sd and worst 10 % are too narrow: at n = 20, .86 and .57 of them hold the "
            "truth of normal values."
        )
    if "collapsed" in cells:
        of = cells["collapsed"].attrs
        lines.append(f"collapsed: {of['statistic']}, with the {of['method']} interval.")
    return lines


def _contrast_table(final: xr.DataArray, contrasts: list[Contrast]) -> list[str]:
    labelled = final.to_dataset(name="_")
    own = [
        [name for dim in contrast.result["n"].dims for name in labels_along(labelled, str(dim))]
        for contrast in contrasts
    ]
    names = list(dict.fromkeys(name for mine in own for name in mine))
    rows = [["contrast", *names, "n", "difference", "P(A better)", "rho", "gain", "p", "p (Holm)"]]
    for contrast, mine in zip(contrasts, own, strict=True):
        for at in _indices(contrast.result["n"]):
            cell = contrast.result.isel(at)
            place = dict(zip(mine, values_at(labelled, at), strict=True))
            gain = [_unless_nan(cell["rho"].item(), ".2f"), _unless_nan(cell["variance_reduction"].item(), ".3g")]
            tests = [_p_value(cell[name].item()) for name in ("p_value", "p_holm")]
            drawn = [_interval(cell), _interval(cell, "improvement_"), *gain, *tests]
            labels = [contrast.text, *(place.get(name, "") for name in names)]
            rows.append([*labels, str(int(cell["n"])), *drawn])
    tests = sum(int((contrast.result["n"] > 1).sum()) for contrast in contrasts)
    of = contrasts[0].result.attrs
    pairs = f"difference: A - B in pairs of the same {of['over']}; "
    if not tests:
        alone = "no intervals and no tests: they need at least two pairs of a cell."
        return [*_cut(rows, left=1 + len(names)), f"{pairs}{alone} P(A better): over all pairs of runs, ties half."]
    return [
        *_cut(rows, left=1 + len(names)),
        f"{pairs}{of['method']}; each interval for itself at {100 * of['level']:g} %. P(A better): over all pairs of "
        "runs, ties half.",
        "rho: correlation of the pairs. gain: how many times as many independent runs the same interval would take.",
        f"p: paired t-test; adjusted by Holm for {tests} {'test' if tests == 1 else 'tests'}.",
    ]


def _cut(rows: list[list[str]], left: int) -> list[str]:
    """The rows as lines, as many as are read."""
    left_out = len(rows) - 1 - MOST_ROWS
    more = [f"... and {left_out:,} more rows: --by takes fewer cells, --json gives all."] if left_out > 0 else []
    return [*aligned(rows[: MOST_ROWS + 1], left), *more]


def _interval(cell: xr.Dataset, prefix: str = "") -> str:
    """``estimate [low, high]``, rounded to half the interval's width."""
    estimate, low, high = (cell[f"{prefix}{name}"].item() for name in ("estimate", "low", "high"))
    if math.isnan(estimate):
        return "-"
    if math.isnan(low):
        return f"{estimate:.4f}"
    form = f".{decimals((high - low) / 2)}f" if high > low else f".{MOST_DECIMALS}g"
    return f"{estimate:{form}} [{low:{form}}, {high:{form}}]"


def _p_value(p: float) -> str:
    return "<1e-99" if p < 1e-99 else _unless_nan(p, ".2g")


def _unless_nan(number: float, form: str) -> str:
    return "-" if math.isnan(number) else f"{number:{form}}"


def _report(
    final: xr.DataArray,
    metric: str,
    over: str,
    averaged: list[str],
    cells: dict[str, xr.Dataset],
    contrasts: list[Contrast],
) -> dict[str, Any]:
    """Both tables as JSON, unrounded, with how the intervals were made."""
    tests = sum(int((contrast.result["n"] > 1).sum()) for contrast in contrasts)
    return {
        "metric": metric,
        "step": int(final["step"]) if "step" in final.coords else None,
        "over": over,
        "averaged_over": averaged,
        "statistics": {name: dict(result.attrs) for name, result in cells.items()},
        "cells": [
            {**_place(final, at), **{name: _numbers(result.isel(at)) for name, result in cells.items()}}
            for at in _indices(cells["mean"]["n"])
        ],
        "contrasts": [
            {
                **{"a": plain(contrast.a), "b": plain(contrast.b), "cell": _place(final, at)},
                **{**_numbers(contrast.result.isel(at)), "method": contrast.result.attrs["method"]},
            }
            for contrast in contrasts
            for at in _indices(contrast.result["n"])
        ],
        "correction": f"Holm over {tests} paired t-tests" if tests else None,
    }


def _place(final: xr.DataArray, at: dict[str, int]) -> dict[str, Any]:
    """The coordinates of a cell."""
    labelled = final.to_dataset(name="_")
    names = [(dim, name) for dim in at for name in labels_along(labelled, dim)]
    return {name: final[name].values[at[dim]].item() if name in final.coords else at[dim] for dim, name in names}


def _numbers(cell: xr.Dataset) -> dict[str, float | int | None]:
    """The numbers of one cell for JSON, which has neither NaN nor infinity."""
    numbers = {str(name): value.item() for name, value in cell.data_vars.items()}
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
