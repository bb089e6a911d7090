"""Hashes of what surrounds the results of a store, and a second copy of what cannot be made again from the rest.

Results have receipts. Everything else (what the store says of itself, its arrays' descriptions, its columns and
coordinates) follows from the spec and from the cells' places, so that those two are all that is kept twice.
"""

import shutil
from pathlib import Path

from rlvr_jax import files
from rlvr_jax.disk import Header, attributes, manifest_file


def write(header: Header) -> None:
    """Notes how things stand, after they have been declared."""
    copy = header.path / "run" / "places"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(header.path / header.place, copy)
    content = {
        "attributes": attributes(header.path),
        "files": {
            str(file.relative_to(header.path)): (files.sha256(file), file.stat().st_size) for file in _files(header)
        },
    }
    files.write_json(manifest_file(header.path), content)


def current(header: Header) -> bool:
    """Whether it speaks of the store as it is declared, and not as it was before its driver died."""
    content = files.read_json(manifest_file(header.path))
    return isinstance(content, dict) and content["attributes"].get("declaration") == header.declaration


def damaged(header: Header) -> dict[str, str]:
    """What is wrong with which file, in words; nothing where there is no current manifest."""
    content = files.read_json(manifest_file(header.path))
    if not current(header):
        return {}
    found = {}
    for name, (digest, length) in content["files"].items():
        wrong = files.difference(header.path / name, digest, length, thorough=True)
        if wrong:
            found[name] = f"{name} {wrong}"
    return found


def _files(header: Header) -> list[Path]:
    """Every file of the store that is neither a result nor part of its own bookkeeping."""
    found = [header.path / "zarr.json", *header.records.iterdir()]
    for folder in (path for path in header.path.iterdir() if path.is_dir() and path.name != "run"):
        inside = [folder / "zarr.json"] if folder.name in header.variables else folder.iterdir()
        found += [file for file in inside if file.suffix != files.PARTIAL]
    return sorted(found)
