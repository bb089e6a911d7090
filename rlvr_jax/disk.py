"""The layout of a store on disk: a Zarr v3 group with cells along one append-only axis.

    STORE/
      zarr.json            what is trained: canonical spec, parts and their chunks, versions
      accuracy/ ...        results [cell, step, ...]; one chunk along `cell` is written by one task
      lr/, method/ ...     what each cell is, by parameter; names and schedules as codes with CF flags
      place_1/             where each cell lies in the grid of the spec
      step/, level/ ...    coordinates
      run/receipts/        one receipt for each finished task; without it a chunk does not count
      run/records/         data sets that parameters are fixed to
      run/manifest.json    hashes of all that has no receipt; run/places is a second copy of the places
      run/declaring.json   while more cells are declared, and the next manifest just before they are
      run/failed/          what went wrong in a task
      run/lock.json        the driver that writes; lock-1-of-4.json and so on, those of shards
      run/now.json         what it is doing; now-1-of-4.json and so on

A task trains some items of a *part*, which is one program. Its chunk holds the items' lanes in their order, so that
the task can be laid out again from the store alone; lanes of padding and the rest of the chunk hold no cell.

Results and places are never changed in place: new cells are appended, and the attributes of the group, replaced at
once at the very end, say how many chunks there are, which of the arrays ``place_N`` belongs to the spec, and its hash.
What describes the arrays and the cells is changed in place; it follows from the spec and the places, and is made again
if a driver dies before it has declared the change.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from rlvr_jax import files, receipts
from rlvr_jax.grid import canonical
from rlvr_jax.kept import Kept
from rlvr_jax.receipts import Receipt
from rlvr_jax.types import InvalidInput

#: Version of the layout; a reader refuses another one.
FORMAT = 3

#: The place of a slot that belongs to no lane.
UNUSED = np.iinfo(np.int64).min

#: What the attributes of a store hold besides its format, its spec and a checksum of all of them.
KEYS = (
    *("spec_sha256", "chunk_cells", "chunks", "parts", "cells", "declaration", "places_sha256"),
    *("versions", "created"),
)

#: Slots in one chunk of the columns that say what each cell is, at least.
COLUMN_SLOTS = 2**18


@dataclass(frozen=True)
class StoredPart:
    """The chunks of one program.

    Attributes:
      blocks: ``(method, lanes of one seed)``.
      seeds: W, seeds side by side.
      first: Its first chunk.
      items: Its items in all.
      each: Items in one chunk; the last one may have fewer.
      reason: Why these cells have a program of their own.
    """

    blocks: tuple[tuple[str, int], ...]
    seeds: int
    first: int
    items: int
    each: int
    reason: str

    @property
    def chunks(self) -> int:
        """How many chunks."""
        return -(-self.items // self.each)

    @property
    def width(self) -> int:
        """Places of one item."""
        return self.seeds * sum(lanes for _, lanes in self.blocks)


@dataclass(frozen=True)
class Header:
    """What a store says of itself.

    Attributes:
      path: Its folder.
      spec: The canonical spec, as in `rlvr_jax.grid.Grid.spec`.
      spec_sha256: Its hash.
      chunk_cells: Slots in one chunk.
      chunks: How many chunks.
      parts: Which program each chunk belongs to.
      cells: How many slots hold a cell.
      declaration: How many times it was declared; the array of places has that number.
      places_sha256: Hash of the places.
      versions: Of the packages that made it.
      created: When, local time.
    """

    path: Path
    spec: dict[str, Any]
    spec_sha256: str
    chunk_cells: int
    chunks: int
    parts: tuple[StoredPart, ...]
    cells: int
    declaration: int
    places_sha256: str
    versions: dict[str, str]
    created: str

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the results."""
        return (*(Kept.parse(text).name for text in self.spec["keep"]), "diverged_step")

    @property
    def receipts(self) -> Path:
        """Folder of the receipts."""
        return self.path / "run" / "receipts"

    @property
    def failed(self) -> Path:
        """Folder of what went wrong."""
        return self.path / "run" / "failed"

    @property
    def records(self) -> Path:
        """Folder of the data sets that parameters are fixed to."""
        return self.path / "run" / "records"

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.path / "run" / "lock.json"

    def receipt(self, task: int) -> Path:
        """The file of a task's receipt."""
        return receipts.file(self.receipts, task)

    def now(self, shard: str = "") -> Path:
        """What the driver of the store, or of the shard ``i/n``, is doing."""
        return self.path / "run" / f"now{f'-{shard}'.replace('/', '-of-') if shard else ''}.json"

    @property
    def place(self) -> str:
        """Name of the array of places."""
        return f"place_{self.declaration}"

    @cached_property
    def group(self) -> zarr.Group:
        """The opened group."""
        return zarr.open_group(self.path, mode="r+", zarr_format=3)

    def done(self) -> dict[int, Receipt]:
        """The receipts of its chunks, by number."""
        return {task: receipt for task, receipt in receipts.read(self.receipts).items() if task < self.chunks}

    @cached_property
    def places(self) -> np.ndarray:
        """Of each slot, int64 ``[chunks, chunk_cells]``: its cell's index in the grid; ~index for padding; `UNUSED`."""
        if self.chunks == 0:
            return np.zeros((0, self.chunk_cells), np.int64)
        for name in (self.place, "run/places"):
            try:
                found = self.read(name)
            except InvalidInput:
                continue
            if places_hash(found) == self.places_sha256:
                return found.reshape(self.chunks, self.chunk_cells)
        raise InvalidInput(f"{self.path} is damaged: it has lost where its cells lie; begin again with --overwrite")

    def part_of(self, number: int) -> StoredPart:
        """The part of a task."""
        return next(part for part in self.parts if part.first <= number < part.first + part.chunks)

    def array(self, name: str) -> zarr.Array[Any]:
        """An array of the store, opened once."""
        if name not in self._arrays:
            try:
                self._arrays[name] = zarr.open_array(self.path / name, mode="r+", zarr_format=3)
            except (ValueError, RuntimeError, OSError, KeyError) as error:
                raise InvalidInput(broken(self.path, name, error)) from None
        return self._arrays[name]

    @cached_property
    def _arrays(self) -> dict[str, zarr.Array[Any]]:
        return {}

    def read(self, name: str) -> np.ndarray:
        """All of an array."""
        try:
            return np.asarray(self.array(name)[:])
        except (ValueError, RuntimeError, OSError, KeyError) as error:
            raise InvalidInput(broken(self.path, name, error)) from None


def places_hash(places: np.ndarray) -> str:
    """Hash of the places of all slots, in their order."""
    return hashlib.sha256(np.ascontiguousarray(places, np.int64).tobytes()).hexdigest()


def broken(path: Path, name: str, error: Exception) -> str:
    """Says that an array of a store cannot be read, and what helps."""
    reason = " ".join(str(error).split())[:200]
    return f"{path} is damaged: {name} cannot be read ({reason}); rlvr-jax verify {path} --repair makes it again"


def manifest_file(path: Path) -> Path:
    """Where a store's manifest lies; see `rlvr_jax.manifest`."""
    return path / "run" / "manifest.json"


def declaring_file(path: Path) -> Path:
    """What a driver leaves in a store while it declares more cells."""
    return path / "run" / "declaring.json"


def attributes(path: Path) -> dict[str, Any]:
    """The attributes of the group at ``path``, or those of the manifest if the group's file is damaged."""
    for file in (path / "zarr.json", manifest_file(path)):
        content = files.read_json(file)
        found = content.get("attributes") if isinstance(content, dict) else None
        if isinstance(found, dict) and (found.get("format") != FORMAT or found.get("checksum") == _checksum(found)):
            return found
    return {}


def _checksum(found: Mapping[str, Any]) -> str:
    text = json.dumps([found.get(key) for key in ("spec", *KEYS)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_store(path: Path) -> bool:
    """Whether this package has written the folder; other people's Zarr groups are none."""
    found = attributes(path)
    return isinstance(found.get("format"), int) and "spec_sha256" in found


def read_header(path: str | Path) -> Header:
    """What the store at ``path`` says of itself.

    Raises:
      InvalidInput: If there is no store, or one of another format.
    """
    path = Path(path)
    if not path.exists():
        raise InvalidInput(f"there is no store {path}")
    if not is_store(path):
        raise InvalidInput(f"{path} holds no results; give the directory that a run has written")
    found = attributes(path)
    version = found["format"]
    if version != FORMAT:
        advice = "install a newer one" if version > FORMAT else "run its spec again, into another place"
        raise InvalidInput(f"{path} has format {version}, and this version of rlvr_jax reads format {FORMAT}; {advice}")
    try:
        return Header(
            path=path,
            spec=json.loads(found["spec"]),
            parts=tuple(
                StoredPart(**{**part, "blocks": tuple((method, lanes) for method, lanes in part["blocks"])})
                for part in found["parts"]
            ),
            **{name: found[name] for name in KEYS if name != "parts"},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is damaged: its zarr.json does not say what is needed ({error})") from None


def check_place(path: Path) -> None:
    """Refuses a path that can be no store.

    Raises:
      InvalidInput: If it names no directory, or something else is there.
    """
    if not path.name or path.name == "..":
        raise InvalidInput(f"{str(path)!r} names no store; give a directory to make, such as results/study.zarr")
    if path.exists() and not is_store(path):
        raise InvalidInput(f"{path} exists and is no store of results; choose another place")


def declared(header: Header) -> dict[str, Any]:
    """The attributes of a group that say what ``header`` does."""
    found = {"format": FORMAT, "spec": canonical(header.spec)} | {name: getattr(header, name) for name in KEYS}
    found["parts"] = [asdict(part) for part in header.parts]
    found = json.loads(json.dumps(found))  # tuples as they are read
    return found | {"checksum": _checksum(found)}


def said(header: Header) -> dict[str, Any]:
    """The content of ``zarr.json`` that says what ``header`` does."""
    content = files.read_json(header.path / "zarr.json") or {"zarr_format": 3, "node_type": "group"}
    content["attributes"] = content.get("attributes", {}) | declared(header)
    return content


def commit(header: Header) -> None:
    """Makes what ``header`` says true, at once."""
    files.write_json(header.path / "zarr.json", said(header))


def create_array(
    group: zarr.Group,
    name: str,
    dims: Sequence[str],
    shape: tuple[int, ...],
    rows: int,
    dtype: Any,
    fill: Any,
    attributes: Mapping[str, Any],
) -> zarr.Array[Any]:
    """A new array whose chunks are ``rows`` long and as wide as it is, with a checksum in each chunk."""
    return group.create_array(
        name,
        shape=shape,
        chunks=(rows, *shape[1:]),
        dtype=dtype,
        fill_value=fill,
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=list(dims),
        attributes=dict(attributes),
    )


def flags(labels: Sequence[str]) -> dict[str, Any]:
    """Attributes of codes that stand for ``labels``: CF's, which other readers know, and the labels as they are."""
    return {
        "labels": list(labels),
        "flag_values": list(range(len(labels))),
        "flag_meanings": " ".join(label.replace(" ", "_") for label in labels),
    }


def chunk_file(name: str, number: int, dims: int) -> str:
    """The file of a chunk of an array with so many dimensions, below the store."""
    return f"{name}/c.{'.'.join(map(str, (number, *[0] * (dims - 1))))}"


def write_chunk(header: Header, number: int, values: Mapping[str, np.ndarray]) -> dict[str, tuple[str, int]]:
    """Writes one task's results and waits until they are on the disk.

    Args:
      header: Of the store.
      number: Of the task.
      values: ``[slots, ...]`` for each of the results; what is beyond them is filled.

    Returns:
      The files: by path, the sha256 and the number of bytes. What equals the fill value has no file.
    """
    rows, written = header.chunk_cells, {}
    for name in header.variables:
        array, new = header.array(name), values[name]
        whole = np.full((rows, *array.shape[1:]), array.fill_value, array.dtype)
        whole[: len(new)] = new
        array[number * rows : (number + 1) * rows] = whole
        relative = chunk_file(name, number, array.ndim)
        file = header.path / relative
        if file.exists():
            files.sync(file)
            written[relative] = (files.sha256(file), file.stat().st_size)
        files.sync(file.parent)
    return written
