"""What is in a store: how much of it is done, how fast, and what is left."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_jax import disk, faults, files, lock
from rlvr_jax.receipts import Receipt
from rlvr_jax.store import slots

#: The rate is that of the last receipts, so many at most.
RECENT = 20


def status(path: Path) -> dict[str, Any]:
    """How far a store is.

    Returns:
      ``cells`` of its spec, of which ``done``, ``running``, ``failed`` and ``missing``, which add up to them;
      ``chunks`` and ``chunks_done``; ``cells_per_second`` and ``seconds_left`` (None where nothing tells); ``driver``
      (None where nobody writes); ``computed_on``, device kinds and jaxlibs with their chunks; ``errors`` by task.

    Raises:
      InvalidInput: If there is no store.
    """
    header = disk.read_header(path)
    # a chunk that is not there in its length is computed again by the next run
    done = {number: receipt for number, receipt in header.done().items() if not receipt.damage(path, thorough=False)}
    held = slots(header, sorted(done)) >= 0
    drivers = lock.holders(header.lock)
    running = {task for driver in drivers for task in _given_out(header, driver.shard) if task not in done}
    failed = faults.read(header)
    finished = int(held.sum())
    in_flight = sum(_cells(header, task) for task in running)
    broken = sum(_cells(header, task) for task in failed if task not in running)
    missing = len(held) - finished
    rate = _rate(list(done.values()))
    origins: dict[str, int] = {}
    for receipt in done.values():
        origins[receipt.origin] = origins.get(receipt.origin, 0) + 1
    return {
        "store": str(path),
        "world": header.spec["world"],
        "cells": len(held),
        "done": finished,
        "running": in_flight,
        "failed": broken,
        "missing": missing - in_flight - broken,
        "chunks": header.chunks,
        "chunks_done": len(done),
        "cells_per_second": None if rate is None else round(rate, 3),
        "seconds_left": None if rate is None else round(missing / rate, 3),
        "driver": " and ".join(map(str, drivers)) or None,
        "computed_on": origins,
        "errors": {str(task): str(fault) for task, fault in failed.items()},
    }


def _cells(header: disk.Header, task: int) -> int:
    return int((header.places[task] >= 0).sum()) if task < header.chunks else 0


def _given_out(header: disk.Header, shard: str) -> list[int]:
    now = files.read_json(header.now(shard))
    return now["tasks"] if isinstance(now, dict) else []


def _rate(done: list[Receipt]) -> float | None:
    """Cells a second, by the receipts of the last tasks; None where there are none."""
    last = sorted(done, key=lambda receipt: receipt.finished)[-RECENT:]
    if not last:
        return None
    ends = [datetime.fromisoformat(receipt.finished) for receipt in last]
    passed = (ends[-1] - ends[0]).total_seconds() + last[0].seconds
    # between two runs nobody worked; one process cannot have worked longer than its tasks took, and several have
    # worked side by side
    seconds = min(passed, float(np.sum([receipt.seconds for receipt in last])))
    return sum(receipt.cells for receipt in last) / max(seconds, 1e-3)
