"""Files that are there whole or not at all, also after the power has failed."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlvr_jax.types import InvalidInput

#: What a file is called until it is whole; zarr's own end in the same word.
PARTIAL = ".partial"


def write(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Puts ``content`` in place of the file at once; ``durable`` waits until it is on the disk."""
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with partial.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def write_json(path: Path, content: Any, *, durable: bool = True) -> None:
    """The same with JSON."""
    write(path, json_bytes(content), durable=durable)


def json_bytes(content: Any) -> bytes:
    """What `write_json` writes."""
    return json.dumps(content, indent=1, ensure_ascii=False).encode()


def read_json(path: Path) -> Any:
    """What the file holds; None if there is none, or one that is no JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def sync(path: Path) -> None:
    """Waits until a file or the entries of a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def difference(path: Path, digest: str, length: int, *, thorough: bool) -> str:
    """How a file differs from what was written, in words; empty if it does not.

    Args:
      path: The file.
      digest: Sha256 of what was written.
      length: Its number of bytes.
      thorough: Whether to read the file; without it only lengths are compared.
    """
    if not path.is_file():
        return "is missing"
    found = path.stat().st_size
    if found != length:
        return f"has {found} bytes instead of {length}"
    return "has other bytes than were written" if thorough and sha256(path) != digest else ""


def remove_partial(folder: Path) -> None:
    """Removes what interrupted writes have left below ``folder``."""
    for path in folder.rglob(f"*{PARTIAL}"):
        path.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Says of a failure of the system that ``path`` cannot be written, and what can be done."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "; what is finished is kept: make room and run the same command again"
        raise InvalidInput(f"{path} cannot be written: {reason}{advice}") from None
