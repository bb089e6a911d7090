"""The contrasts that ``rlvr-jax stats`` is asked for: which entries a user means, and their difference."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from rlvr_jax import stats
from rlvr_jax.table import labels_along, text_of, values_at
from rlvr_jax.types import InvalidInput


@dataclass(frozen=True)
class Contrast:
    """The difference of two entries of a dimension in every other cell.

    Attributes:
        a, b: What tells the entries apart, by coordinate: all that differs where several parameters are tied.
        result: Their difference.
    """

    a: dict[str, Any]
    b: dict[str, Any]
    result: xr.Dataset

    @property
    def text(self) -> str:
        """As tables name it."""
        return ", ".join(_side_by_side(name, a, self.b[name]) for name, a in self.a.items())


def compared(final: xr.DataArray, over: str, wanted: Sequence[str]) -> list[Contrast]:
    """Return the contrasts that were asked for, with p-values that are adjusted over all of them."""
    found = []
    for text in wanted:
        dim, a, b = _sides(final, over, text)
        x, y = (final.isel({dim: index}, drop=True) for index in (a, b))
        better = stats.probability_of_improvement(x, y, over)
        more = {f"improvement_{key}": better[key] for key in ("estimate", "low", "high")}
        labels = {name: _labels(final, name, dim) for name in labels_along(final.to_dataset(name="_"), dim)}
        differ = {name: own for name, own in labels.items() if own[a] != own[b]} or {dim: _labels(final, dim, dim)}
        one, two = ({name: own[index] for name, own in differ.items()} for index in (a, b))
        found.append(Contrast(one, two, stats.paired_difference(x, y, over).assign(more)))
    if not found:
        return []
    p_values = [contrast.result["p_value"] for contrast in found]
    adjusted = np.split(
        stats.holm(np.concatenate([p.values.ravel() for p in p_values])), np.cumsum([p.size for p in p_values[:-1]])
    )
    return [
        replace(contrast, result=contrast.result.assign(p_holm=p.copy(data=own.reshape(p.shape))))
        for contrast, p, own in zip(found, p_values, adjusted, strict=True)
    ]


def _sides(final: xr.DataArray, over: str, contrast: str) -> tuple[str, int, int]:
    """The dimension along which a contrast compares, and the index of both sides."""
    named = re.fullmatch(r"(?:(\w+)=)?([^:]+):([^:]+)", contrast)
    if named is None:
        raise InvalidInput(f"--contrast {contrast}: write A:B or NAME=A:B, such as grpo:rloo or lr=0.5:0.1")
    wanted, *texts = named.groups()
    dims = [str(dim) for dim in final.dims if dim != over]
    labelled = final.to_dataset(name="_")
    along = {name: dim for dim in dims for name in labels_along(labelled, dim) if wanted in (None, name)}
    if not along and wanted in dims:  # a tied dimension only counts, and is asked for by its own name alone
        along = {wanted: wanted}
    if not along:
        raise InvalidInput(f"--contrast {contrast}: {wanted or 'this'} does not tell cells apart here")
    found = {name: [_among(_labels(final, name, dim), text) for text in texts] for name, dim in along.items()}
    found = {name: sides for name, sides in found.items() if all(sides)}
    if not found:
        held = "; ".join(
            f"{name} has {', '.join(dict.fromkeys(map(text_of, _labels(final, name, dim))))}"
            for name, dim in along.items()
        )
        raise InvalidInput(f"--contrast {contrast}: no dimension has both values; {held}")
    if len(found) > 1:
        choices = " or ".join(f"{name}={texts[0]}:{texts[1]}" for name in found)
        raise InvalidInput(f"--contrast {contrast} may mean {choices}")
    ((name, (a, b)),) = found.items()
    for side, text in ((a, texts[0]), (b, texts[1])):
        if len(side) > 1:
            dim = along[name]
            places = enumerate(_labels(final, dim, dim))
            held = ", ".join(f"{own}: {' '.join(values_at(labelled, {dim: i}))}" for i, own in places)
            raise InvalidInput(
                f"--contrast {contrast}: {len(side)} entries of {dim} have {name}={text}; write {dim}=A:B with two of "
                f"its entries ({held})"
            )
    if a == b:
        raise InvalidInput(
            f"--contrast {contrast}: both sides are {name}={text_of(_labels(final, name, along[name])[a[0]])}"
        )
    return along[name], a[0], b[0]


def _labels(final: xr.DataArray, name: str, dim: str) -> np.ndarray:
    """The values of a coordinate along a dimension, or the places along one that has none."""
    return final[name].values if name in final.coords else np.arange(final.sizes[dim])


def _among(values: np.ndarray, text: str) -> list[int]:
    """Where the value is that a user means: by its number, by its text in tables, or true and false as in TOML."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    exact = [i for i, value in enumerate(values) if values.dtype.kind in "iuf" and value == number]
    if exact:
        return exact
    flags = isinstance(values[0], bool | np.bool_)
    return [i for i, value in enumerate(values) if text == text_of(value) or (flags and text == str(value).lower())]


def _side_by_side(name: str, a: Any, b: Any) -> str:
    """``a - b``, with the name before what would not say what it is of: numbers, true and false."""
    texts = [text_of(side) for side in (a, b)]
    texts = texts if texts[0] != texts[1] else [str(side) for side in (a, b)]
    return f"{'' if isinstance(a, str) else f'{name} '}{texts[0]} - {texts[1]}"


def plain(labels: dict[str, Any]) -> dict[str, Any]:
    """Return labels as Python's own values."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in labels.items()}
