"""Subcommands about a store: ``rlvr-jax status | verify | export``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from rlvr_jax.options import Flag
from rlvr_jax.types import InvalidInput

StorePath = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]

#: Exit code where something is damaged or failed.
DAMAGED = 1


@dataclass(frozen=True)
class Status:
    """Say how far a store is: cells done, running, missing and failed, the rate, the time left.

    Example: rlvr-jax status results/baselines.zarr
    """

    store: StorePath
    """The directory that a run writes."""
    json: Flag = False
    """Print JSON."""

    def run(self) -> int:
        from rlvr_jax.inspection import status

        found = status(self.store)
        print(json.dumps(found, indent=2) if self.json else _in_words(found))
        return 0


@dataclass(frozen=True)
class Verify:
    """Check every file of a store against its hash, and name the damaged ones; the exit code is 1 if there are any.

    Example: rlvr-jax verify results/baselines.zarr --repair
    """

    store: StorePath
    """The directory that a run writes."""
    repair: Flag = False
    """Compute the damaged chunks again, and write again what follows from the spec."""
    mixed: Flag = False
    """Repair although another device kind or jaxlib computed the rest."""
    take_lock: Flag = False
    """Repair although a process of another machine seems to write the store."""
    json: Flag = False
    """Print JSON."""

    def run(self) -> int:
        from rlvr_jax import checks, driver

        found = checks.verify(self.store)
        wrong = found.reasons
        repaired = bool(wrong) and self.repair
        if repaired:
            try:
                outcome = driver.repair(
                    self.store, found.damaged, bool(found.lost), mixed=self.mixed, take_lock=self.take_lock
                )
            except KeyboardInterrupt:
                raise KeyboardInterrupt(
                    f"{self.store} is repaired in part, and nothing sound is lost; running its spec again computes "
                    "what is missing"
                ) from None
            if outcome.failed:
                raise InvalidInput(f"{self.store} is not repaired: {next(iter(outcome.failed.values()))}")
        if self.json:
            damaged = {str(number): reason for number, reason in found.damaged.items()}
            said = {"chunks": found.chunks, "unfinished": found.unfinished, "damaged": damaged, "lost": found.lost}
            print(json.dumps(said | {"repaired": repaired}))
        else:
            print(*(f"damaged: {reason}\n" for reason in wrong), sep="", end="")
            end = "; they were made again" if repaired else " (--repair makes them again)" if wrong else ""
            without = f", none of {', '.join(map(str, found.unfinished))}" if found.unfinished else ""
            print(f"{self.store}: {found.chunks} chunks with receipts{without}; {len(wrong)} damaged{end}")
        return DAMAGED if wrong and not repaired else 0


@dataclass(frozen=True)
class Export:
    """Write a store's results as NetCDF, or a summary with one row for each configuration as CSV or Parquet.

    The summary has mean, sd, half-width of the 95 % t-interval and number of seeds of each metric at the last step.

    Example: rlvr-jax export results/baselines.zarr --out baselines.csv
    """

    store: StorePath
    """The directory that a run writes."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """The file to make; its name ends in .nc, .csv or .parquet."""
    overwrite: Flag = False
    """Replace a file of that name."""

    def run(self) -> int:
        from rlvr_jax import export
        from rlvr_jax.store import open_store

        export.check(self.out)
        if self.out.exists() and not self.overwrite:
            raise InvalidInput(f"{self.out} exists; choose another name, or allow it to be replaced (--overwrite)")
        results = open_store(self.store)
        export.write(results, self.out)
        unfinished = f" ({results.attrs['unfinished']})" if "unfinished" in results.attrs else ""
        print(f"written: {self.out}{unfinished}")
        return 0


COMMANDS = {"status": Status, "verify": Verify, "export": Export}


def _in_words(found: dict[str, Any]) -> str:
    from rlvr_jax.progress import time_in_words

    lines = [
        f"{found['store']}: world {found['world']}, {found['done']:,} of {found['cells']:,} cells done, "
        f"{found['running']:,} running, {found['missing']:,} missing, {found['failed']:,} failed",
        f"{found['chunks_done']:,} of {found['chunks']:,} chunks have a receipt",
    ]
    if found["cells_per_second"] is not None:
        left = f", {time_in_words(found['seconds_left'])} left" if found["seconds_left"] else ""
        lines.append(f"{found['cells_per_second']:,.1f} cells/s{left}")
    lines.append(f"being written by {found['driver']}" if found["driver"] else "nobody is writing it")
    lines += [f"{chunks:,} chunks computed on {origin}" for origin, chunks in found["computed_on"].items()]
    lines += [f"task {task} failed: {error}" for task, error in found["errors"].items()]
    return "\n".join(lines)
