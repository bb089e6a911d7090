"""Hashes of what surrounds the results of a store, and a second copy of what cannot be made again from the rest.

Results have receipts. Everything else (what the store says of itself, its arrays' descriptions, its columns and
coordinates) follows from the spec and from the cells' places, so that those two are all that is kept twice.

A manifest is written before what it describes is declared, under another name, and put in its place afterwards: it is
never made from files that nobody has checked.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from rlvr_jax import disk, files
from rlvr_jax.disk import Header

#: A change of the descriptions and columns begins with this content, before there is a manifest of it.
BEGUN = {"declaring": True}


def begin(header: Header) -> None:
    """Notes that descriptions and columns are about to be changed in place."""
    files.write_json(disk.declaring_file(header.path), BEGUN)


def prepare(after: Header) -> None:
    """Waits until all that surrounds the results is on the disk, and notes how it will stand once it is declared."""
    content = disk.said(after)
    new = files.json_bytes(content)
    hashes = {"zarr.json": (hashlib.sha256(new).hexdigest(), len(new))}
    for file in _files(after):
        files.sync(file)
        hashes[str(file.relative_to(after.path))] = (files.sha256(file), file.stat().st_size)
    for folder in {file.parent for file in _files(after)} | {after.path}:
        files.sync(folder)
    copies = {name.replace(f"{after.place}/", "run/places/"): found for name, found in hashes.items()}
    found = {"attributes": content["attributes"], "files": dict(sorted((hashes | copies).items()))}
    found["checksum"] = _checksum(found["files"])
    files.write_json(disk.declaring_file(after.path), found)


def finish(header: Header) -> bool:
    """Puts the manifest of a store in place that was declared, and its second copy of the places.

    Returns:
      Whether nothing is left to be done; it is not where a driver died before it had declared what it began.
    """
    file = disk.declaring_file(header.path)
    if not file.exists():
        return True
    if not _speaks_of(files.read_json(file), header):
        return False
    for old in header.path.glob("place_*"):
        if old.name != header.place:
            shutil.rmtree(old, ignore_errors=True)
    copy = header.path / "run" / "places"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(header.path / header.place, copy)
    for each in (*copy.iterdir(), copy):
        files.sync(each)
    file.replace(disk.manifest_file(header.path))
    files.sync(file.parent)
    return True


def damaged(header: Header) -> dict[str, str]:
    """What is wrong with which file that has no receipt, in words, by its path in the store.

    What a driver that died was changing is left out: the next one makes it again.
    """
    if header.chunks == 0:
        return {}
    file, declaring = disk.manifest_file(header.path), disk.declaring_file(header.path)
    content = files.read_json(declaring)
    if _speaks_of(content, header):  # all is as it says, but for the copy of the places
        left_out = [name for name in content["files"] if name.startswith("run/places/")]
    else:
        content = files.read_json(file)
        kept = ("zarr.json", "run/", f"{header.place}/")
        changing = declaring.exists() and _speaks_of(content, header)
        left_out = [name for name in content["files"] if not name.startswith(kept)] if changing else []
    if not _speaks_of(content, header):
        name = str(file.relative_to(header.path))
        if not file.exists():
            return {name: f"{name} is missing"}
        return {name: f"{name} does not say what it should of this store"}
    found = {}
    for name, (digest, length) in content["files"].items():
        wrong = files.difference(header.path / name, digest, length, thorough=True)
        if wrong and name not in left_out:
            found[name] = f"{name} {wrong}"
    return found


def _speaks_of(content: Any, header: Header) -> bool:
    """Whether a manifest is one, and of the store as it is declared."""
    if not isinstance(content, dict) or content.get("checksum") != _checksum(content.get("files")):
        return False
    said = content.get("attributes")
    return isinstance(said, dict) and all(said.get(name) == value for name, value in disk.declared(header).items())


def _checksum(found: Any) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _files(header: Header) -> list[Path]:
    """Every file that is neither a result nor part of the store's bookkeeping, besides that of the group."""
    found = [header.path / "run" / "zarr.json", *header.records.glob("*.jsonl")]
    for described in header.path.glob("*/zarr.json"):
        folder = described.parent
        if folder.name == "run" or (folder.name.startswith("place_") and folder.name != header.place):
            continue
        found.append(described)
        if folder.name not in header.variables:
            found += [file for file in folder.glob("c.*") if file.suffix != files.PARTIAL]
    return sorted(file for file in found if file.is_file())
