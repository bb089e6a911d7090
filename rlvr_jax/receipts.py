"""Receipts: what says that a task's cells are stored, written after them."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlvr_jax import files
from rlvr_jax.devices import origin


@dataclass(frozen=True)
class Receipt:
    """One finished task.

    Attributes:
      task: Its number, which is that of its chunk.
      cells: How many cells it has.
      addresses: Sha256 of their addresses, in the order in which they lie in the chunk.
      files: For each file that it wrote, by its path in the store, the sha256 and the number of its bytes.
      diverged: How many of its cells went non-finite.
      device_kind: What computed it.
      processor: Which kind of processor, if it was one; see `rlvr_jax.devices.processor`.
      versions: Of the packages that computed it, by name.
      seconds: What it took, compilation apart.
      host: The machine that computed it.
      finished: When, local time.
    """

    task: int
    cells: int
    addresses: str
    files: dict[str, tuple[str, int]]
    diverged: int
    device_kind: str
    processor: str
    versions: dict[str, str]
    seconds: float
    host: str
    finished: str

    @property
    def origin(self) -> str:
        """What equal bits need to have in common, in words."""
        return origin(self.device_kind, self.processor, self.versions["jaxlib"])

    def write(self, folder: Path) -> None:
        """Puts it into the folder of receipts, and waits until it is on the disk."""
        content = asdict(self)
        files.write_json(file(folder, self.task), content | {"digest": _digest(content)})

    def damage(self, store: Path, *, thorough: bool) -> str:
        """What is wrong with its files, in words; empty if nothing is.

        Args:
          store: The store.
          thorough: Whether to read the files; without it only their lengths are compared.
        """
        for name, (digest, length) in self.files.items():
            wrong = files.difference(store / name, digest, length, thorough=thorough)
            if wrong:
                return f"{name} {wrong}"
        return ""


def file(folder: Path, task: int) -> Path:
    """The file of a task's receipt."""
    return folder / f"{task:08d}.json"


def find(folder: Path, task: int) -> Receipt | None:
    """The receipt of one task, if there is one that can be read."""
    return _parsed(file(folder, task))


def read(folder: Path) -> dict[int, Receipt]:
    """The receipts in a folder by task; one that cannot be read counts as none."""
    found = (_parsed(path) for path in sorted(folder.glob("*.json")))
    return {receipt.task: receipt for receipt in found if receipt is not None}


def remove(folder: Path, tasks: Iterable[int]) -> None:
    """Takes receipts away, so that their tasks are computed again."""
    for task in tasks:
        file(folder, task).unlink(missing_ok=True)
    files.sync(folder)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _parsed(path: Path) -> Receipt | None:
    """A receipt as it was written, under the name of its task."""
    content = files.read_json(path)
    try:
        if content.pop("digest") != _digest(content) or path.name != file(path.parent, content["task"]).name:
            return None
        return Receipt(**{**content, "files": {name: (d, n) for name, (d, n) in content["files"].items()}})
    except (TypeError, ValueError, AttributeError, KeyError):
        return None
