"""Labelled results on disk: a Zarr v3 directory that xarray and others can read."""

import json
import shutil
from pathlib import Path

import numpy as np
import xarray as xr

from rlvr_jax.types import InvalidInput

#: Version of the layout on disk; a reader refuses a newer one.
FORMAT = 1


def save(dataset: xr.Dataset, path: str | Path, *, overwrite: bool = False) -> None:
    """Writes a Dataset of `rlvr_jax.sweep` to ``path``, whole or not at all.

    Names along an axis are stored as integer codes with the CF attributes ``flag_values`` and ``flag_meanings``,
    which other readers understand, and as they are in the attribute ``labels``.

    Args:
      dataset: What to write.
      path: The directory to make.
      overwrite: Whether an older result may be replaced.

    Raises:
      InvalidInput: If ``path`` exists and may not be replaced, or cannot be written.
    """
    path = Path(path)
    check_free(path, overwrite=overwrite)
    coded = dataset.copy()
    for name, coord in dataset.coords.items():
        if coord.dtype.kind in "UO":
            labels = [str(label) for label in coord.values]
            attributes = {
                **coord.attrs,
                "labels": labels,
                "flag_values": list(range(len(labels))),
                "flag_meanings": " ".join(label.replace(" ", "_") for label in labels),
            }
            coded = coded.assign_coords({name: (coord.dims, np.arange(len(labels), dtype=np.int32), attributes)})
    coded.attrs["format"] = FORMAT
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        coded.to_zarr(partial, consolidated=False, zarr_format=3)
        if path.exists():
            shutil.rmtree(path)
        partial.rename(path)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from None


def check_free(path: str | Path, *, overwrite: bool = False) -> None:
    """Refuses a place where `save` would not write, so that a run can be refused before it starts.

    Raises:
      InvalidInput: If ``path`` exists and may not be replaced, or is no result.
    """
    path = Path(path)
    if not path.name or path.name == "..":
        raise InvalidInput(f"{str(path)!r} names no store; give a directory to make, such as results/study.zarr")
    if path.exists() and not overwrite:
        raise InvalidInput(f"{path} exists; choose another place, or allow it to be overwritten")
    if path.exists() and not _is_result(path):
        raise InvalidInput(f"{path} exists and is no result; it is not overwritten")


def _is_result(path: Path) -> bool:
    """Whether `save` has written ``path``; other people's Zarr groups are none."""
    try:
        attributes = json.loads((path / "zarr.json").read_text())["attributes"]
        return isinstance(attributes["format"], int) and "spec_sha256" in attributes
    except (OSError, ValueError, KeyError, TypeError):
        return False


def open_store(path: str | Path) -> xr.Dataset:
    """The Dataset in ``path``, with its names back in place; values are read when they are used.

    Raises:
      InvalidInput: If there is no result at ``path``, or one of a newer version.
    """
    path = Path(path)
    if not (path / "zarr.json").exists():
        raise InvalidInput(f"{path} holds no results; give the directory that a run has written")
    try:
        coded = xr.open_zarr(path, consolidated=False)
    except (ValueError, KeyError, OSError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    version = coded.attrs.pop("format", None)
    if not isinstance(version, int) or version > FORMAT:
        raise InvalidInput(f"{path} has format {version!r}; this version of rlvr_jax reads formats up to {FORMAT}")
    named = {}
    for name, coord in coded.coords.items():
        attributes = dict(coord.attrs)
        labels = attributes.pop("labels", None)
        if labels is not None:
            attributes = {key: value for key, value in attributes.items() if not key.startswith("flag_")}
            named[name] = (coord.dims, np.array(labels)[coord.values], attributes)
    return coded.assign_coords(named)
