"""Stored results as one labelled Dataset: `open_store`. Nothing here needs JAX."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from xarray.backends import BackendArray
from xarray.core import indexing

from rlvr_jax import disk
from rlvr_jax.disk import Header
from rlvr_jax.grid import canonical
from rlvr_jax.receipts import Receipt
from rlvr_jax.types import InvalidInput

#: Diverged cells that are named one by one.
NAMED = 10


def open_store(path: str | Path) -> xr.Dataset:
    """The results at ``path`` with the dimensions that the spec declares; values are read when they are used.

    Cells that are not finished are NaN (-1 in ``diverged_step``), and the attribute ``unfinished`` counts them; that
    may be read while a sweep is running. The attributes are those of `rlvr_jax.sweep`, as far as they are known.

    Raises:
      InvalidInput: If there is no result at ``path``, one of another format, or a damaged one.
    """
    while True:
        header = disk.read_header(path)
        try:
            return labelled(header)
        except InvalidInput:
            if disk.read_header(path).declaration == header.declaration:
                raise
            # it was extended in between


def labelled(header: Header, spec: dict[str, Any] | None = None, cells: np.ndarray | None = None) -> xr.Dataset:
    """The results of a store as `open_store` gives them, or those of a spec whose cells it holds.

    Args:
      header: Of the store.
      spec: A canonical spec; None for the store's own.
      cells: Where its cells lie in the grid of the store.
    """
    done = header.done()
    slot = slots(header, sorted(done))
    if spec is None or cells is None:
        spec = header.spec
    else:
        slot = slot[cells]
    slot = slot.reshape([len(next(iter(axis["values"].values()))) for axis in spec["axes"]])
    axes = tuple(axis["dim"] for axis in spec["axes"])
    variables = {}
    for name in header.variables:
        array = header.array(name)
        dims = (*axes, *_dims(array)[1:])
        lazy = indexing.LazilyIndexedArray(_Cells(header, name, slot, done))
        variables[name] = xr.Variable(dims, lazy, dict(array.attrs))
    about = {name: str(header.array(name).attrs["long_name"]) for axis in spec["axes"] for name in axis["values"]}
    coords = axis_coords(spec["axes"], about)
    for dim in dict.fromkeys(dim for variable in variables.values() for dim in variable.dims if dim not in axes):
        coords[dim] = (dim, _decoded(header, dim))
    attributes: dict[str, Any] = {
        "world": spec["world"],
        "spec": canonical(spec),
        "spec_sha256": hashlib.sha256(canonical(spec).encode()).hexdigest(),
        "versions": ", ".join(f"{name} {version}" for name, version in header.versions.items()),
        "device_kind": ", ".join(sorted({receipt.device_kind for receipt in done.values()})),
        "wall_seconds": round(sum(receipt.seconds for receipt in done.values()), 3),
    }
    missing = int((slot < 0).sum())
    if missing:
        attributes["unfinished"] = f"{missing} of {slot.size} cells are not finished and are NaN"
    dataset = xr.Dataset(variables, coords, attributes)
    if any(receipt.diverged for receipt in done.values()):
        dataset.attrs["diverged"] = diverged(dataset["diverged_step"])
    return dataset


def axis_coords(axes: list[dict[str, Any]], about: Mapping[str, str]) -> dict[str, Any]:
    """Coordinates of the axes of a canonical spec; ``about`` says what each parameter is."""
    coords: dict[str, Any] = {}
    for axis in axes:
        for name, values in axis["values"].items():
            coords[name] = (axis["dim"], labels(values), {"long_name": about[name]})
        if axis["dim"] not in axis["values"]:
            coords[axis["dim"]] = np.arange(len(next(iter(axis["values"].values()))))
    return coords


def labels(values: list[Any]) -> list[Any]:
    """Coordinates of an axis: its numbers or names; all as text where some are schedules."""
    if any(isinstance(value, dict) for value in values):
        return [value["name"] if isinstance(value, dict) else f"{value:g}" for value in values]
    return list(values)


def diverged(step: xr.DataArray) -> str:
    """Which cells went non-finite, in words; empty where none did.

    Args:
      step: ``diverged_step``, with the coordinates of the axes.
    """
    values = step.values
    found = np.argwhere(values >= 0)
    if len(found) == 0:
        return ""
    names = []
    for place in found[:NAMED]:
        at = dict(zip(step.dims, place, strict=True))
        labels = [
            f"{name}={coord.values[at[dim]]}"
            for dim in step.dims
            for name, coord in step.coords.items()
            if coord.dims == (dim,) and (name != dim or _tells(step, str(dim)))
        ]
        names.append(f"{' '.join(labels) or 'the cell'} at step {values[tuple(place)]}")
    more = f", and {len(found) - NAMED} more" if len(found) > NAMED else ""
    noun = "cell" if len(found) == 1 else "cells"
    return f"{len(found)} {noun} went non-finite and kept the last finite parameters: {'; '.join(names)}{more}"


def _tells(step: xr.DataArray, dim: str) -> bool:
    """Whether a dimension is a parameter of its own, and no number of the parameters that move along it."""
    return all(name == dim or coord.dims != (dim,) for name, coord in step.coords.items())


class _Cells(BackendArray):
    """An array of a store, with the grid's dimensions in place of its axis of cells; read chunk by chunk."""

    def __init__(self, header: Header, name: str, slot: np.ndarray, done: Mapping[int, Receipt]):
        self.header, self.name, self.array, self.slot, self.done = header, name, header.array(name), slot, done
        self.shape = (*slot.shape, *self.array.shape[1:])
        self.dtype = self.array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> np.ndarray:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        slot = _outer(self.slot, key[: self.slot.ndim])
        inner = key[self.slot.ndim :]
        rows = self.header.chunk_cells
        flat = np.atleast_1d(slot).reshape(-1)
        order = np.argsort(flat, kind="stable")
        first = np.searchsorted(flat[order], 0)  # those before are missing
        chunks, starts = np.unique(flat[order][first:] // rows, return_index=True)
        out: np.ndarray | None = None
        stops = np.append(starts, len(flat) - first)[1:]
        for chunk, start, stop in zip(chunks, starts, stops, strict=True):
            places = order[first + start : first + stop]
            block = _outer(self._chunk(int(chunk)), (slice(None), *inner))
            if out is None:
                out = np.full((len(flat), *block.shape[1:]), self.array.fill_value, self.dtype)
            out[places] = block[flat[places] % rows]
        if out is None:
            empty = _outer(np.empty((1, *self.array.shape[1:]), self.dtype), (slice(None), *inner))
            out = np.full((len(flat), *empty.shape[1:]), self.array.fill_value, self.dtype)
        return out.reshape(np.shape(slot) + out.shape[1:])

    def _chunk(self, number: int) -> np.ndarray:
        rows, name = self.header.chunk_cells, disk.chunk_file(self.name, number, self.array.ndim)
        try:
            found = np.asarray(self.array[number * rows : (number + 1) * rows])
            # Zarr takes a file that is not there for a chunk of nothing but the fill value
            if name in self.done[number].files and not (self.header.path / name).is_file():
                raise FileNotFoundError("it is missing")
            return found
        except (ValueError, RuntimeError, OSError) as error:
            raise InvalidInput(
                f"{self.header.path / name} is damaged ({error}); "
                f"rlvr-jax verify {self.header.path} --repair computes it again"
            ) from None


def _outer(array: np.ndarray, key: tuple[Any, ...]) -> np.ndarray:
    """``array`` indexed along each axis by itself; a whole number takes its axis away."""
    for axis in reversed(range(len(key))):
        array = array[(slice(None),) * axis + (key[axis],)]
    return array


def slots(header: Header, done: list[int]) -> np.ndarray:
    """The slot of each cell of the store's grid that is finished, int64 ``[cells]``; -1 for the others."""
    slot = np.full(int(np.prod([len(next(iter(axis["values"].values()))) for axis in header.spec["axes"]])), -1)
    for chunk in done:
        places = header.places[chunk]
        real = np.flatnonzero(places >= 0)
        slot[places[real]] = chunk * header.chunk_cells + real
    return slot


def _dims(array: "zarr.Array[Any]") -> tuple[str, ...]:
    names = array.metadata.dimension_names  # pyright: ignore[reportAttributeAccessIssue]  format 2 is no store's
    return tuple(str(name) for name in names)  # pyright: ignore[reportOptionalIterable]  arrays of a store have them


def _decoded(header: Header, name: str) -> np.ndarray:
    values, attributes = header.read(name), header.array(name).attrs
    if (values < 0).any():  # the fill value, which no coordinate has
        raise InvalidInput(disk.broken(header.path, name, FileNotFoundError("its values are missing")))
    return np.array(attributes["labels"])[values] if "labels" in attributes else values
