"""Measures what workers gain and cost: `python tests/measured_executors.py [ROUNDS]`; no test, as it takes minutes.

A sweep of about a minute on one device, through one and two one-device Dask workers, and in process on two devices,
which are as many cores; in turn, so that whatever else the machine does falls on all of them alike. Rates are those
from the moment when every worker has finished its first task, which has compiled, to the last receipt; a worker is busy
for as long as its receipts say, and the rest of that time is what giving out tasks costs.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rlvr_jax import driver, executors
from rlvr_jax.advantages import ESTIMATORS
from rlvr_jax.grid import make_grid
from rlvr_jax.worlds import world

RATES = np.geomspace(0.02, 20.0, 32).tolist()
WAYS = {
    "one Dask worker": ("dask:local:1", 1),
    "two Dask workers": ("dask:local:2", 1),
    "in process, two devices": (None, 2),
}


def rate(way: str) -> tuple[float, float, float]:
    """Cells a second, the share of the time in which workers are busy, and seconds in all."""
    executor, count = WAYS[way]
    seeds = {"range": [0, 256]}
    grid = make_grid(world("bandit"), {"method": list(ESTIMATORS), "lr": RATES, "seed": seeds}, steps=600)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "measured.zarr"
        factory = None if executor is None else executors.factory(executor, count)
        outcome = driver.run(grid, store, executor=factory, count=count)
        total = time.perf_counter() - began
        done = outcome.header.done().values()
        times = sorted((outcome.header.receipt(each.task).stat().st_mtime, each.cells, each.seconds) for each in done)
    first = 2 if way == "two Dask workers" else 1
    window = times[-1][0] - times[first - 1][0]
    steady = sum(cells for _, cells, _ in times[first:]) / window
    return steady, sum(seconds for *_, seconds in times[first:]) / first / window, total


def main() -> None:
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        found = {way: rate(way) for way in (WAYS if number % 2 == 0 else reversed(WAYS))}
        for way, (steady, busy, total) in found.items():
            print(f"{way}: {steady:.0f} cells/s, busy {busy:.1%}, {total:.1f} s in all")
        one, two, here = (found[way][0] for way in WAYS)
        print(
            f"two workers / one: {two / one:.2f}; two workers / in process on two devices: {two / here:.2f}; "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
