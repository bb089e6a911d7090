"""What every script in ``figures/`` shares: the choice of cells, refusals in one sentence, the command line.

A script states in ``NEEDS`` what it draws::

    NEEDS = {"dims": ("method", "step"), "panels": ("reward_offset",), "variables": ("accuracy",)}

``dims`` must be there, ``panels`` are drawn if they are swept, ``seed`` is averaged over, and every other
dimension must be down to one value. With ``"cells": ("method", "call_cost")`` each combination of these that was
run is one place along the dimension ``cell``; the first of them must be swept. ``"most": {"call_cost": 8}`` bounds
how many values a figure can tell apart. Along the dimensions named by ``many``, at least 200 values must be there.
"""

import argparse
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import xarray as xr

from rlvr_jax import plots, words
from rlvr_jax.types import InvalidInput

#: Values along a dimension that stand for a distribution.
MANY = 200

Needs = Mapping[str, Any]
Found = TypeVar("Found")
Labelled = TypeVar("Labelled", xr.DataArray, xr.Dataset)


def once(compute: Callable[[xr.Dataset], Found]) -> Callable[[xr.Dataset], Found]:
    """Keep what a function found in the results that it was given last: a figure and its caption need the same."""
    kept: list[tuple[weakref.ref[xr.Dataset], Found]] = []

    @wraps(compute)
    def remembering(dataset: xr.Dataset) -> Found:
        if not kept or kept[0][0]() is not dataset:
            kept[:] = [(weakref.ref(dataset), compute(dataset))]
        return kept[0][1]

    return remembering


def prepare(dataset: xr.Dataset, needs: Needs) -> xr.Dataset:
    """Reduce results to what a figure draws, or say in one sentence what is missing or must be chosen.

    Args:
        dataset: results of a sweep. A parameter along a tied dimension, such as ``group_size`` along ``run``,
            replaces that dimension.
        needs: the ``NEEDS`` of the script.

    Returns:
        The variables needed (and ``diverged_step`` where stored), along the dimensions that are drawn and
        ``seed``; a parameter with one value stays as a scalar coordinate.

    Raises:
        InvalidInput: a variable or dimension is missing, another dimension still has several values, or no cell is
            finished.
    """
    absent = [name for name in needs["variables"] if name not in dataset]
    if absent:
        raise InvalidInput(f"these results hold no {_listed(absent)}, only {_listed(dataset.data_vars)}")
    dataset = dataset[[*needs["variables"], *({"diverged_step"} & set(dataset.data_vars))]]
    if "cells" in needs and "cell" not in dataset.dims:
        dataset = _as_cells(dataset, needs["cells"])
    panels = [name for name in needs.get("panels", ()) if name in _axes(dataset)]
    drawn = [*needs["dims"], *panels]
    words = _listed([" with ".join(needs["cells"]) if name == "cell" else name for name in drawn])
    for name in drawn:
        dataset = _as_dimension(dataset, name, drawn)
    for name in needs.get("many", ()):
        if dataset.sizes.get(name, 1) < MANY:
            few = dataset.sizes.get(name, 1)
            raise InvalidInput(f"the figure needs at least {MANY} values of {name}, and these results have {few}")
    others = [str(dim) for dim in dataset.dims if dim not in {*drawn, "seed"}]
    for dim in others:
        if dataset.sizes[dim] > 1:
            choice = f"choose one of the {dataset.sizes[dim]} values of {dim} ({_values(dataset, dim)})"
            raise InvalidInput(f"the figure draws {words}, so {choice} with --select {dim}=VALUE")
    for dim, most in needs.get("most", {}).items():
        if dataset.sizes[dim] > most:
            have = f"these results have {dataset.sizes[dim]} along {dim}"
            raise InvalidInput(f"the figure tells up to {most} curves apart, and {have}; choose with --select")
    dataset = dataset.isel(dict.fromkeys(others, 0))
    if "unfinished" in dataset.attrs and bool(dataset[needs["variables"][0]].isnull().all()):
        raise InvalidInput("none of the cells that the figure draws is finished yet")
    return dataset


def select(dataset: xr.Dataset, choices: Sequence[str]) -> xr.Dataset:
    """Keep the cells that have one of the values given for a name, for every name.

    Args:
        dataset: results of a sweep.
        choices: ``name=value``, the name of a dimension or of a parameter that moves along a tied one; four
            digits of a number are enough, as they are printed.

    Raises:
        InvalidInput: a name that is not swept, or a value that it does not have.

    Example:
        >>> accuracy = (("method", "lr"), np.zeros((2, 2)))
        >>> results = xr.Dataset({"accuracy": accuracy}, {"method": ["rloo", "grpo"], "lr": [0.1, 0.5]})
        >>> select(results, ["lr=0.5", "method=grpo"]).sizes["lr"]
        1
    """
    held: dict[str, np.ndarray] = {}
    for choice in choices:
        name, _, value = choice.partition("=")
        names = _axes(dataset)
        if name not in names:
            raise InvalidInput(f"--select {choice}: write NAME=VALUE, with a name of {_listed(names)}")
        here = _equal(dataset[name].values, value)
        if not here.any():
            raise InvalidInput(f"--select {choice}: {name} has the values {_values(dataset, name)}")
        held[name] = held.get(name, False) | here
    for dim in {dataset[name].dims[0] for name in held}:
        kept = np.all([mask for name, mask in held.items() if dataset[name].dims[0] == dim], axis=0)
        if not kept.any():
            raise InvalidInput(f"--select {' '.join(choices)}: no cell has all of these values")
        dataset = dataset.isel({dim: np.flatnonzero(kept)})
    return dataset


def panel_values(values: Labelled, name: str) -> list[tuple[Any, Labelled]]:
    """Return what each panel shows: a value of ``name`` and the part of ``values`` there.

    Where ``name`` was not swept, there is one panel, and its value of ``name`` is None.
    """
    if name not in values.dims:
        return [(None, values)]
    return [(values.coords[name].values[i].item(), values.isel({name: i})) for i in range(values.sizes[name])]


def run(
    name: str,
    about: str | None,
    needs: Needs,
    draw: Callable[..., Any],
    facts: Callable[[xr.Dataset], dict[str, Any]],
    arguments: Sequence[str] | None,
) -> int:
    """Run a figure script: open the store, select, draw, write PDF, SVG, PNG, JSON and a LaTeX snippet.

    Args:
        name: file name of the figure, without a suffix.
        about: the docstring of the script, which is its help.
        needs: the ``NEEDS`` of the script.
        draw: ``draw(dataset, venue=...)`` -> figure.
        facts: ``facts(dataset)`` -> what ``captions.caption`` returns.
        arguments: the command line; None takes that of the process.

    Returns:
        The exit code: 0, or 2 after one sentence on stderr.
    """
    from rlvr_jax.store import open_store  # here: drawing from results in memory needs no store

    parser = _Parser(prog=name, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", metavar="STORE", help="results of a sweep")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the files")
    parser.add_argument("--venue", choices=list(plots.WIDTHS), default="neurips", help="sets the width")
    parser.add_argument("--language", choices=words.LANGUAGES, default="en", help="of what the figure says")
    parser.add_argument("--select", metavar="NAME=VALUE", action="append", default=[], help="keep these cells")
    try:
        options = parser.parse_args(arguments)
        if options.out.exists() and not options.out.is_dir():
            raise InvalidInput(f"--out {options.out} exists and is no folder; choose another place")
        dataset = prepare(select(open_store(options.store), options.select), needs).load()
        caption = facts(dataset)
        if options.select:
            caption["what"] += f" Of these results only {', '.join(options.select)}."
        say = words.speaker(options.language, words.names_in(dataset))
        paths = plots.save(draw(dataset, venue=options.venue), options.out / name, caption, say)
    except InvalidInput as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{name}: {error.filename}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return 2
    print(*(caption[key] for key in ("what", "interval", "diverged", "unfinished") if key in caption))
    print(*paths, sep="\n")
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidInput(message)


def _as_cells(dataset: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    axes = _axes(dataset)
    if names[0] not in axes:
        raise InvalidInput(f"the figure needs {names[0]} as an axis, and these results have {_listed(axes)}")
    dims = list(dict.fromkeys(dataset[name].dims[0] for name in names if name in axes))
    return dataset.stack(cell=dims, create_index=False)


def _as_dimension(dataset: xr.Dataset, name: str, drawn: Sequence[str]) -> xr.Dataset:
    if name in dataset.dims:
        return dataset
    if name not in dataset.coords:
        raise InvalidInput(f"the figure needs {name} as an axis, and these results have {_listed(_axes(dataset))}")
    coord = dataset[name]
    if coord.ndim == 0:
        return dataset.expand_dims(name)
    (dim,) = coord.dims
    if dim in drawn or len(np.unique(coord)) < coord.size:
        raise InvalidInput(f"the figure needs {name} as an axis of its own, but here it moves along {dim}")
    return dataset.swap_dims({dim: name})


def _axes(dataset: xr.Dataset) -> list[str]:
    """Return the dimensions, and the parameters that move along a tied one."""
    along = [str(name) for name, coord in dataset.coords.items() if coord.ndim == 1]
    return list(dict.fromkeys([*map(str, dataset.dims), *along]))


def _equal(values: np.ndarray, text: str) -> np.ndarray:
    if values.dtype.kind == "b":
        return np.char.lower(values.astype(str)) == text.lower()  # TOML writes false, Python False
    if values.dtype.kind not in "iuf":
        return values.astype(str) == text
    try:
        distance = np.abs(values - float(text))
    except ValueError:
        return np.zeros(values.shape, bool)
    # What is printed is shorter than what is stored: 0.02694 stands for 0.026938..., 0.1 for its float32.
    slack = 1e-3 * abs(float(text)) if values.dtype.kind == "f" else 0.0
    return (distance == distance.min()) & (distance <= slack)


def _values(dataset: xr.Dataset, name: str) -> str:
    values = dataset[name].values
    texts = [f"{value:.4g}" if values.dtype.kind == "f" else str(value) for value in values]
    return ", ".join(texts if len(texts) <= 8 else [*texts[:3], "...", texts[-1]])


def _listed(names: Iterable[Any]) -> str:
    *most, last = [str(name) for name in names]
    return f"{', '.join(most)} and {last}" if most else last
