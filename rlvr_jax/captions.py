"""The facts beside a figure: what it shows, over how many runs, with which interval, from which results."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

#: What the contexts of the tool-use world say, for captions.
DIFFICULTY = (
    "difficulty 0 is a sum without a carry, a difference without a borrow or a product of a number below 100, "
    "and 2 is the others for numbers from 1,000 on."
)

#: Characters that LaTeX reads as something else.
_LATEX = {
    **{character: "\\" + character for character in "%&#_{}$"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "×": r"$\times$"},
}


def verifier(reward: float | str) -> str:
    """Return what a verifier is called that pays so much for the hack; a schedule has its own name.

    Example:
        >>> verifier(1.0)
        'flawed verifier'
    """
    if isinstance(reward, str):
        return reward
    return {0.0: "faithful verifier", 1.0: "flawed verifier"}.get(reward, f"hack reward {reward:g}")


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
            named = {"mean": "estimate", "half_width": "half_width", "sd": "sd"}
            numbers = {key: _significant(cell[name].item()) for key, name in named.items()}
            rows.append({**_place(interval, at), **numbers, "n": n})
    return rows


def places(found: xr.Dataset) -> list[dict[str, Any]]:
    """Turn what ``crossings.descent`` found into rows: the coordinates, then at, low, high, n and ``where``.

    ``where`` is "within" the range that was run, "before" it (``at`` is None: below 0 from its first point on) or
    "beyond" it (nowhere below 0). An end of the interval that is outside of the range is None as well.

    Example:
        >>> from rlvr_jax.crossings import descent
        >>> places(descent(xr.DataArray([[2.0, 1.0]], {"seed": [0], "cost": [0.0, 0.1]}), "cost"))[0]["where"]
        'beyond'
    """
    rows = []
    dims = [str(dim) for dim in found["at"].dims]
    for index in np.ndindex(*found["at"].shape):
        at = dict(zip(dims, index, strict=True))
        cell = found.isel(at)
        if int(cell["n"]) > 0:
            numbers = {name: _significant(cell[name].item()) for name in ("at", "low", "high")}
            where = "within" if numbers["at"] is not None else "before" if cell["at"] < 0 else "beyond"
            rows.append({**_place(found, at), **numbers, "n": int(cell["n"]), "where": where})
    return rows


def caption(
    dataset: xr.Dataset, what: str, numbers: Mapping[str, Any], over: str = "seed", bands: bool = True
) -> dict[str, Any]:
    """Gather what stands in a figure's caption, ready for JSON.

    Args:
        dataset: the results that were drawn; their hash names them, ``spec_sha256`` of its attributes their spec, and
            ``unfinished`` says that some cells are missing.
        what: a sentence that says what is shown.
        numbers: the numbers behind the drawing, such as lists from ``records``.
        over: the replicates.
        bands: whether bands or error bars of the means are drawn.

    Example:
        >>> results = xr.Dataset(coords={"seed": np.arange(64)})
        >>> caption(results, "Accuracy during training.", {})["interval"]
        'Means over 64 seeds; their bands and error bars are 95 % t-intervals.'
    """
    n = dataset.sizes.get(over, 1)
    interval = f"Means over {n} {over}s{'; their bands and error bars are 95 % t-intervals' if bands else ''}."
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
    hashes = {"results_sha256": content_hash(dataset), "spec_sha256": dataset.attrs.get("spec_sha256")}
    return {**facts, **hashes, "numbers": dict(numbers)}


def content_hash(dataset: xr.Dataset) -> str:
    """Return the SHA-256 of what is drawn: names, dimensions, kinds and values of all variables and coordinates.

    Equal results have the same, however and wherever they were stored.

    Example:
        >>> content_hash(xr.Dataset({"h": ("seed", [0.0, 1.0])}))[:12]
        '4686bea4de35'
    """
    digest = hashlib.sha256()
    for name in sorted(map(str, dataset.variables)):
        values = np.ascontiguousarray(dataset[name].values)
        if values.dtype.kind in "OU":
            values = np.array([str(value) for value in values.ravel()])
        digest.update(f"{name} {dataset[name].dims} {dataset[name].shape} {values.dtype.str}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def latex(facts: Mapping[str, Any], name: str, across: bool = False) -> str:
    """Return a LaTeX figure with its caption: what, over how many runs, which interval, hashes of results and spec.

    The figure has the width of its venue's text, so it is placed unscaled.

    Args:
        facts: what ``caption`` returns.
        name: file name of the figure, without a suffix.
        across: whether the figure stands across both columns of a page.

    Example:
        >>> print(latex({"what": "Calls at 5 % of the cost."}, "tool_cost").splitlines()[3].strip())
        \\caption{Calls at 5 \\% of the cost.}
    """
    sentences = [str(facts[key]) for key in ("what", "interval", "diverged", "unfinished") if key in facts]
    hashes = {"results": facts.get("results_sha256"), "spec": facts.get("spec_sha256")}
    named = [f"{what} {text[:12]}" for what, text in hashes.items() if text]
    if named:
        sentences.append(f"SHA-256: {', '.join(named)}.")
    said = "".join(_LATEX.get(character, character) for character in " ".join(sentences))
    kind = "figure*" if across else "figure"
    lines = [
        rf"\begin{{{kind}}}",
        r"  \centering",
        rf"  \includegraphics{{{name}.pdf}}",
        rf"  \caption{{{said}}}",
        rf"  \label{{fig:{name}}}",
        rf"\end{{{kind}}}",
    ]
    return "\n".join(lines) + "\n"


def _place(table: xr.Dataset, at: Mapping[str, int]) -> dict[str, Any]:
    """Coordinates of a cell: all that move along a dimension, or its number where none does."""
    place: dict[str, Any] = {}
    for dim, i in at.items():
        along = {str(name): coord.values[i].item() for name, coord in table.coords.items() if coord.dims == (dim,)}
        place |= along or {dim: i}
    return place


def _significant(value: float) -> float | None:
    """Round to six digits, about what float32 holds; JSON has no NaN."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
