"""Whether a store holds what its receipts say, chunk by chunk."""

from pathlib import Path

from rlvr_jax import disk
from rlvr_jax.driver import Session
from rlvr_jax.grid import grid_of
from rlvr_jax.worlds import world


def damaged(path: Path) -> tuple[int, dict[int, str]]:
    """How many chunks have a receipt, and what is wrong with which of them.

    Each file is compared with its hash, and the cells of each chunk with those that it was computed for.

    Raises:
      InvalidInput: If there is no store, or what it says of itself cannot be read.
    """
    header = disk.read_header(path)
    session = Session(header, grid_of(world(header.spec["world"]), header.spec, header.records), 0)
    done, found = header.done(), {}
    for number, receipt in done.items():
        wrong = receipt.damage(path, thorough=True)
        if not wrong and receipt.addresses != session.address_hash(number):
            wrong = f"chunk {number} was computed for other cells than the store says"
        if wrong:
            found[number] = wrong
    return len(done), found
