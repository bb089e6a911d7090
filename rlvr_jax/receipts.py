"""Receipts: what says that a task's cells are stored, written after them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rlvr_jax import files


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
    versions: dict[str, str]
    seconds: float
    host: str
    finished: str

    @property
    def origin(self) -> str:
        """What equal bits need to have in common, in words."""
        return f"{self.device_kind} with jaxlib {self.versions['jaxlib']}"

    def write(self, folder: Path) -> None:
        """Puts it into the folder of receipts, and waits until it is on the disk."""
        files.write_json(file(folder, self.task), asdict(self))

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
    return _parsed(files.read_json(file(folder, task)))


def read(folder: Path) -> dict[int, Receipt]:
    """The receipts in a folder by task; one that cannot be read counts as none."""
    found = (_parsed(files.read_json(path)) for path in sorted(folder.glob("*.json")))
    return {receipt.task: receipt for receipt in found if receipt is not None}


def remove(folder: Path, tasks: Iterable[int]) -> None:
    """Takes receipts away, so that their tasks are computed again."""
    for task in tasks:
        file(folder, task).unlink(missing_ok=True)
    files.sync(folder)


def _parsed(content: object) -> Receipt | None:
    try:
        receipt = Receipt(**content)  # type: ignore[arg-type]
        return Receipt(**{**asdict(receipt), "files": {name: (d, n) for name, (d, n) in receipt.files.items()}})
    except (TypeError, ValueError, AttributeError):
        return None
