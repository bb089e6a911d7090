"""Whether a store holds what its receipts and its manifest say."""

from dataclasses import dataclass
from pathlib import Path

from rlvr_jax import disk, manifest
from rlvr_jax.session import Session, stored_grid


@dataclass(frozen=True)
class Report:
    """What is wrong with a store.

    Attributes:
      chunks: How many chunks have a receipt.
      damaged: What is wrong with which of them, by number.
      lost: What is wrong with which file that has no receipt, by its path in the store.
      unfinished: Which chunks have no receipt: they are not finished, or have lost it.
    """

    chunks: int
    damaged: dict[int, str]
    lost: dict[str, str]
    unfinished: list[int]

    @property
    def reasons(self) -> list[str]:
        """All of it, in words."""
        return [*self.damaged.values(), *self.lost.values()]


def verify(path: Path) -> Report:
    """Compares each file with its hash, and the cells of each chunk with those that it was computed for.

    Raises:
      InvalidInput: If there is no store, or so much of it is lost that nothing can be compared.
    """
    header = disk.read_header(path)
    session = Session(header, stored_grid(header), 0)
    done, damaged = header.done(), {}
    for number, receipt in done.items():
        wrong = receipt.damage(path, thorough=True)
        if not wrong and receipt.addresses != session.address_hash(number):
            wrong = f"chunk {number} was computed for other cells than the store says"
        if wrong:
            damaged[number] = wrong
    without = [number for number in range(header.chunks) if number not in done]
    for number in without:
        file = header.receipt(number)
        if file.exists():
            damaged[number] = f"{file.relative_to(path)} does not say what was written"
    unfinished = [number for number in without if number not in damaged]
    return Report(len(done), damaged, manifest.damaged(header), unfinished)
