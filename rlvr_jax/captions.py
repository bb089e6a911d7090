"""The facts beside a figure: what it shows, over how many runs, with which interval, from which results."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr


def records(interval: xr.Dataset) -> list[dict[str, Any]]:
    """Turn a ``printed_mean`` into rows: the coordinates of a cell, then its mean, half_width, sd and n.

    Cells without a finite value have no row; the half-width and sd of a single run are None.

    Example:
        >>> from rlvr_jax.stats.summaries import printed_mean
        >>> records(printed_mean(xr.DataArray([[1.0, 3.0]], dims=["method", "seed"])))[0]["mean"]
        2.0
    """
    rows = []
    dims = [str(dim) for dim in interval["estimate"].dims]
    for index in np.ndindex(*interval["estimate"].shape):
        at = dict(zip(dims, index, strict=True))
        cell = interval.isel(at)
        n = int(cell["n"])
        if n > 0:
            place = {dim: cell[dim].item() if dim in cell.coords else i for dim, i in at.items()}
            named = {"mean": "estimate", "half_width": "half_width", "sd": "sd"}
            numbers = {key: _significant(cell[name].item()) for key, name in named.items()}
            rows.append({**place, **numbers, "n": n})
    return rows


def caption(dataset: xr.Dataset, what: str, numbers: Mapping[str, Any], over: str = "seed") -> dict[str, Any]:
    """Gather what stands in a figure's caption, ready for JSON.

    Args:
        dataset: the results that were drawn; ``spec_sha256`` of its attributes names them, and ``unfinished`` says
            that some cells are missing.
        what: a sentence that says what is shown.
        numbers: the numbers behind the drawing, such as lists from ``records``.
        over: the replicates.

    Example:
        >>> results = xr.Dataset(coords={"seed": np.arange(64)})
        >>> caption(results, "Accuracy during training.", {})["interval"]
        'Mean over 64 seeds; bands and error bars are 95 % t-intervals of the mean.'
    """
    n = dataset.sizes.get(over, 1)
    interval = f"Mean over {n} {over}s; bands and error bars are 95 % t-intervals of the mean."
    if n == 1:
        interval = f"One {over}, so no interval."
    facts = {"what": what, f"n_{over}s": n, "interval": interval}
    if "diverged_step" in dataset:
        diverged = int((dataset["diverged_step"] >= 0).sum())
        if diverged:
            runs = f"{diverged} of {dataset['diverged_step'].size} runs diverged"
            facts["diverged"] = f"{runs} and were frozen; they count with the values they had then."
    if "unfinished" in dataset.attrs:
        facts["unfinished"] = f"Partial results: {dataset.attrs['unfinished']}."
    return {**facts, "spec_sha256": dataset.attrs.get("spec_sha256"), "numbers": dict(numbers)}


def _significant(value: float) -> float | None:
    """Round to six digits, about what float32 holds; JSON has no NaN."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
