"""What a driver writes before any task runs: the template of a store, and the cells that are appended to it."""

import glob
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from rlvr_jax import disk, files, manifest
from rlvr_jax.disk import UNUSED, Header, StoredPart
from rlvr_jax.grid import Grid, NamedSchedule, record_file
from rlvr_jax.plan import Part, cell_shape, dim_length
from rlvr_jax.types import InvalidInput, Parameter


def create(path: Path, grid: Grid, chunk_cells: int, versions: Mapping[str, str]) -> None:
    """Makes a store without cells at ``path``, whole or not at all; one that is there by then is left alone.

    Raises:
      InvalidInput: If it cannot be written.
    """
    partial = beside(path)
    with files.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            group = zarr.open_group(partial, mode="w", zarr_format=3)
            group.create_group("run")  # a group, so that readers of the store pass it by
            header = Header(
                path=partial,
                spec=grid.spec,
                spec_sha256=grid.sha256,
                chunk_cells=chunk_cells,
                chunks=0,
                parts=(),
                cells=0,
                declaration=0,
                places_sha256=disk.places_hash(np.zeros(0)),
                versions=dict(versions),
                created=datetime.now().astimezone().isoformat(timespec="seconds"),
            )
            make_folders(partial)
            keep_records(header, grid)
            _create_arrays(group, grid, chunk_cells)
            coordinates = " ".join(grid.columns)
            group.attrs.update({"coordinates": coordinates})
            disk.commit(header)
            partial.rename(path)
            files.sync(path.parent)
        except OSError:
            if not disk.is_store(path):
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def make_folders(path: Path) -> None:
    """Makes the folders of a store's bookkeeping that are not there: an empty one is easily lost in a copy."""
    for name in ("receipts", "failed", "records"):
        (path / "run" / name).mkdir(parents=True, exist_ok=True)


def keep_records(header: Header, grid: Grid) -> None:
    """Writes the data sets that the spec of a store is fixed to where they are not there as ``grid`` has them."""
    for name, record in grid.fixed.items():
        if not hasattr(record, "canonical") or isinstance(record, NamedSchedule):
            continue
        file, text = record_file(header.records, record.canonical()), record.text().encode()
        if header.spec["fixed"].get(name) == record.canonical() and not (file.is_file() and file.read_bytes() == text):
            files.write(file, text)


def beside(path: Path) -> Path:
    """Where this process makes what is to be put at ``path``; `remove_stale` removes what it could not finish."""
    return path.with_name(f".{path.name}@{platform.node()}.{os.getpid()}{files.PARTIAL}")


def remove_stale(path: Path) -> None:
    """Removes what interrupted writes have left in and beside the store at ``path``, which nobody else may write."""
    for dots in (".", ".."):  # `restore` makes a store beside one that it makes beside this one
        for folder in path.parent.glob(f"{dots}{glob.escape(path.name)}@*{files.PARTIAL}"):
            shutil.rmtree(folder, ignore_errors=True)
    for folder in (*disk.read_header(path).variables, "run"):
        files.remove_partial(path / folder)


def declare(header: Header, grid: Grid, places: np.ndarray, parts: Sequence[Part]) -> Header:
    """Gives a store another spec that holds all of its cells, and appends the cells of ``parts``.

    Args:
      header: Of the store.
      grid: The spec, from now on.
      places: As `Header.places`, for this grid.
      parts: The new cells, as they are to be laid out.

    Returns:
      What the store says of itself afterwards.
    """
    stored, first = [], header.chunks
    for part in parts:
        layout = part.program.layout
        stored.append(StoredPart(layout.blocks, layout.seeds, first, len(part.cell), part.items, part.reason))
        first += stored[-1].chunks
    new = [_slots(part, row, header.chunk_cells) for part, row in zip(parts, stored, strict=True)]
    places = np.concatenate([places, *new])
    after = replace(
        header,
        spec=grid.spec,
        spec_sha256=grid.sha256,
        chunks=first,
        parts=(*header.parts, *stored),
        cells=int((places >= 0).sum()),
        declaration=header.declaration + 1,
        places_sha256=disk.places_hash(places),
    )
    with files.writing(header.path):
        wrong = manifest.damaged(header)
        if wrong:  # otherwise the next manifest would call it sound
            raise InvalidInput(
                f"{header.path} is damaged: {next(iter(wrong.values()))}; rlvr-jax verify {header.path} --repair "
                "makes it again"
            )
        manifest.begin(header)
        _fill(header, grid, places, after, begin=header.chunks * header.chunk_cells)
        manifest.prepare(after)
        disk.commit(after)
        manifest.finish(after)
    return after


def restore(header: Header, grid: Grid) -> None:
    """Makes all of a store again that has no receipt, from its spec and the places of its cells.

    Receipts, results and the lock are left as they are.

    Args:
      header: Of the store.
      grid: Its spec.
    """
    places = header.places  # before either copy is replaced
    fresh = beside(header.path).with_suffix(f".fresh{files.PARTIAL}")
    with files.writing(header.path):
        try:
            create(fresh, grid, header.chunk_cells, header.versions)
            _fill(disk.read_header(fresh), grid, places, header, begin=0)
            manifest.begin(header)
            keep_records(header, grid)
            disk.commit(replace(header, path=fresh))
            for made in fresh.glob("*/zarr.json"):
                own = (*header.variables, "run")
                _replace(made.parent, header.path / made.parent.name, "zarr.json" if made.parent.name in own else "*")
            files.write(header.path / "zarr.json", (fresh / "zarr.json").read_bytes())
            manifest.prepare(header)
            manifest.finish(header)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _replace(made: Path, folder: Path, pattern: str) -> None:
    """Puts the files of an array that match in place of those in ``folder``, one by one, and removes others of it."""
    folder.mkdir(exist_ok=True)
    new = {file.name: file.read_bytes() for file in made.glob(pattern) if file.is_file()}
    for name, content in new.items():
        files.write(folder / name, content)
    if pattern == "*":
        for file in folder.glob("c.*"):
            if file.name not in new:
                file.unlink()


def _fill(there: Header, grid: Grid, places: np.ndarray, after: Header, *, begin: int) -> None:
    """Makes room for all slots in the arrays of ``there``, and says of those from ``begin`` on what they are."""
    slots = after.chunks * after.chunk_cells
    for name in there.variables:
        array = there.array(name)
        array.resize((slots, *array.shape[1:]))
    _append_columns(there, grid, places, begin)
    # a driver that died before it had declared this may have left one
    shutil.rmtree(there.path / after.place, ignore_errors=True)
    about = {"long_name": "index of the cell in the grid of the spec; negative: padding or unused"}
    rows = _rows(after.chunk_cells)
    array = disk.create_array(there.group, after.place, ["cell"], (slots,), rows, np.int64, int(UNUSED), about)
    array[:] = places.reshape(-1)


def _slots(part: Part, stored: StoredPart, chunk_cells: int) -> np.ndarray:
    """The places of a part's chunks ``[chunks, chunk_cells]``; see `Header.places`."""
    encoded = np.where(part.real, part.cell, ~part.cell).reshape(len(part.cell), -1)
    missing = stored.chunks * stored.each - stored.items
    encoded = np.pad(encoded, ((0, missing), (0, 0)), constant_values=UNUSED).reshape(stored.chunks, -1)
    return np.pad(encoded, ((0, 0), (0, chunk_cells - encoded.shape[1])), constant_values=UNUSED)


def _rows(chunk_cells: int) -> int:
    return chunk_cells * max(1, disk.COLUMN_SLOTS // chunk_cells)


def _create_arrays(group: zarr.Group, grid: Grid, chunk_cells: int) -> None:
    dims = {}
    for kept in grid.kept:
        metric = grid.world.metrics[kept.metric]
        shape, attributes = (0, *cell_shape(grid, kept)), {"long_name": kept.about(metric)}
        names = ["cell", *kept.dims(metric)]
        disk.create_array(group, kept.name, names, shape, chunk_cells, grid.precision, np.nan, attributes)
        dims |= dict.fromkeys(kept.dims(metric))
    attributes = {"long_name": "step at which a cell went non-finite; -1 for never"}
    disk.create_array(group, "diverged_step", ["cell"], (0,), chunk_cells, np.int32, -1, attributes)
    for dim in dims:
        names = list(grid.world.labels.get(dim, ()))
        values = np.array(grid.eval_steps) if dim == "step" else np.arange(dim_length(grid, dim))
        values = values.astype(np.int32 if names else np.int64)
        about = disk.flags(names) if names else {}
        disk.create_array(group, dim, [dim], values.shape, len(values), values.dtype, -1, about)[:] = values
    for name in grid.columns:
        parameter = grid.world.parameters[name]
        coded = bool(parameter.choices) or parameter.scheduled
        kind = np.int32 if coded else bool if parameter.flag else np.int64 if parameter.whole else np.float64
        about = {"long_name": parameter.about} | (disk.flags([]) if coded else {})
        fill = 0 if coded else grid.columns[name][0].item()  # what never changes takes no room
        disk.create_array(group, name, ["cell"], (0,), _rows(chunk_cells), kind, fill, about)


def _append_columns(there: Header, grid: Grid, places: np.ndarray, begin: int) -> None:
    """Says for each new slot what its cell is; slots before ``begin`` are as they were."""
    new = places.reshape(-1)[begin:]
    if len(new) == 0:
        return
    unused = new == UNUSED
    cell = np.where(unused, 0, np.where(new < 0, ~new, new))
    for name, column in grid.columns.items():
        array = there.array(name)
        array.resize((begin + len(new),))
        parameter = grid.world.parameters[name]
        if parameter.choices or parameter.scheduled:
            here = _names(parameter, grid)
            known: list[Any] = array.attrs["labels"]  # type: ignore  # codes that are in use keep their meaning
            known += [label for label in here if label not in known]
            array.attrs.update(disk.flags(known))
            column = np.array([known.index(label) for label in here], np.int32)[column]
        constant = (column == column[0]).all()
        try:
            array[begin:] = column[0] if constant else np.where(unused, array.fill_value, column[cell])
        except (ValueError, RuntimeError) as error:  # the chunk that is continued cannot be read
            raise InvalidInput(disk.broken(there.path, name, error)) from None


def _names(parameter: Parameter, grid: Grid) -> list[str]:
    if parameter.choices:
        return list(parameter.choices)
    return [value.name if isinstance(value, NamedSchedule) else f"{value!r}" for value in grid.schedules]
