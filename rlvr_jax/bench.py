"""The benchmark's machinery: one training written several ways, measured side by side.

Each contender runs in processes of its own, so that compilation starts cold and its peak memory is its own; repetitions
are interleaved, so that a busy moment of the machine hits all contenders alike, and the median counts. The slow
contenders train fewer cells or steps of the same shape: a rate does not depend on that, and the report says how many.
What is measured stands in `rlvr_jax.bench_bandit` and `rlvr_jax.bench_tool`.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from rlvr_jax import devices

#: Repetitions whose median counts, and those of a quick look.
REPETITIONS, QUICK_REPETITIONS = 5, 2


class Shape(Protocol):
    """A grid to measure; it goes to other processes, so it can be pickled.

    Attributes:
      name: What it stands for.
      words: What is in it.
      size: The same as numbers, for JSON.
    """

    @property
    def name(self) -> str: ...

    @property
    def words(self) -> str: ...

    @property
    def size(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Job:
    """What one process trains at each repetition.

    Attributes:
      run: Trains; the results are on the host when it returns.
      count: What is done by it, in the unit of the bench.
      cells, steps: Trainings, and steps of each.
      compile_seconds: Spent on compilation before.
      device: Where it runs; empty for a contender without JAX.
    """

    run: Callable[[], Any]
    count: float
    cells: int
    steps: int
    compile_seconds: float | None = None
    device: str = ""


@dataclass(frozen=True)
class Contender:
    """One way to write the training.

    Attributes:
      about: What it is.
      prepare: Makes the job of one process from the shape and the process's number.
      on_each_core: Whether a process runs on each core.
    """

    about: str
    prepare: Callable[[Any, int], Job]
    on_each_core: bool = False


@dataclass(frozen=True)
class Bench:
    """What is measured on a world.

    Attributes:
      world: Its name.
      counted: What a rate counts.
      rate: Key of the rate in the report's rows.
      column: Heading of the rate.
      settings: What all shapes share, by name.
      contenders: By name; the first is the one that the others are compared with.
      shapes: What is measured, and what a quick look measures.
    """

    world: str
    counted: str
    rate: str
    column: str
    settings: Mapping[str, int]
    contenders: Mapping[str, Contender]
    shapes: Sequence[Shape]
    quick: Sequence[Shape]


def measure(bench: Bench, quick: bool = False, more: Sequence[Shape] = ()) -> dict[str, Any]:
    """Measures all contenders on all shapes.

    Args:
      bench: What to measure.
      quick: One small shape, two repetitions.
      more: Shapes to measure besides.

    Returns:
      A mapping for JSON: ``world``, ``counted``, ``device``, ``cores``, ``versions``, ``repetitions``, ``settings``,
      and ``rows`` with a row for each shape and contender: the rate (1e6 a second), ``ratio`` to the first contender,
      ``compile_seconds`` (None without JAX), ``peak_memory_mb`` (all its processes together), ``cells``, ``steps``,
      and the ``seconds`` of each repetition.
    """
    repetitions, rows, device = QUICK_REPETITIONS if quick else REPETITIONS, [], ""
    for shape in (*(bench.quick if quick else bench.shapes), *more):
        measured, device = _measure_shape(bench, shape, repetitions)
        rows += measured
    return {
        "world": bench.world,
        "counted": bench.counted,
        "device": device,
        "cores": devices.cores(),
        "versions": {name: version(name) for name in ("rlvr_jax", "jax", "jaxlib", "numpy")},
        "repetitions": repetitions,
        "settings": dict(bench.settings),
        "rows": rows,
    }


def table(bench: Bench, report: dict[str, Any]) -> str:
    """The report of `measure` as text."""
    settings = " ".join(f"{name}={value}" for name, value in report["settings"].items())
    lines = [
        f"{report['counted']}: 1e6 a second,\nmedians of {report['repetitions']} interleaved repetitions on "
        f"{report['device']}, {report['cores']} cores; {settings}, float32 (NumPy: float64);\n"
        "the slow ones train fewer cells or steps of the same shape."
    ]
    columns = f"  {'':34}{bench.column:>14}{'ratio':>8}{'compile s':>11}{'peak MB':>9}{'cells':>7}{'T':>6}"
    shown = None
    for row in report["rows"]:
        if row["shape"] != shown:
            shown = row["shape"]
            lines += ["", f"{shown}: {row['words']}", columns]
        compiled = "-" if row["compile_seconds"] is None else f"{row['compile_seconds']:.1f}"
        lines.append(
            f"  {row['about']:34}{row[bench.rate]:14.2f}{row['ratio']:8.1f}{compiled:>11}"
            f"{row['peak_memory_mb']:9.0f}{row['cells']:7d}{row['steps']:6d}"
        )
    return "\n".join(lines)


def _measure_shape(bench: Bench, shape: Shape, repetitions: int) -> tuple[list[dict[str, Any]], str]:
    teams: dict[str, list[_Worker]] = {}
    try:
        # one after another: a compilation must not be timed while another one has the cores
        for name, contender in bench.contenders.items():
            count = devices.cores() if contender.on_each_core else 1
            teams[name] = [_Worker(contender, shape, i) for i in range(count)]
            for worker in teams[name]:
                worker.wait()
        seconds: dict[str, list[float]] = {name: [] for name in teams}
        for _ in range(repetitions):
            for name, team in teams.items():
                seconds[name].append(_together(team))
        memory = {name: sum(worker.peak_memory() for worker in team) for name, team in teams.items()}
    finally:
        for worker in (worker for team in teams.values() for worker in team):
            worker.close()
    rows, base = [], 0.0
    for name, team in teams.items():
        speed = sum(worker.facts["count"] for worker in team) / statistics.median(seconds[name]) / 1e6
        base = base or speed
        rows.append(
            {
                "shape": shape.name,
                "words": shape.words,
                "size": shape.size,
                "contender": name,
                "about": bench.contenders[name].about,
                bench.rate: round(speed, 3),
                "ratio": round(speed / base, 2),
                "compile_seconds": team[0].facts["compile_seconds"],
                "peak_memory_mb": round(memory[name], 1),
                "cells": sum(worker.facts["cells"] for worker in team),
                "steps": team[0].facts["steps"],
                "seconds": [round(s, 4) for s in seconds[name]],
            }
        )
    (device,) = {worker.facts["device"] for team in teams.values() for worker in team} - {""}
    return rows, device


class _Worker:
    """A spawned process that trains when it is told to: a fork after JAX has started may hang."""

    def __init__(self, contender: Contender, shape: Shape, number: int):
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(other, contender.prepare, shape, number), daemon=True, name=contender.about
        )
        self.process.start()
        other.close()
        self.facts: dict[str, Any] = {}

    def wait(self) -> None:
        """Until it is ready."""
        try:
            self.facts = self.connection.recv()
        except EOFError:
            raise RuntimeError(f"the benchmark's process for {self.process.name} ended; its error is above") from None

    def begin(self) -> None:
        self.connection.send("run")

    def end(self) -> None:
        self.connection.recv()

    def peak_memory(self) -> float:
        """In MB."""
        self.connection.send("memory")
        return self.connection.recv()

    def close(self) -> None:
        self.connection.close()  # it ends at the end of its input
        self.process.join(10)
        if self.process.is_alive():
            self.process.terminate()


def _together(team: Sequence[_Worker]) -> float:
    """Seconds until all workers of a team have trained once, at the same time."""
    began = time.perf_counter()
    for worker in team:
        worker.begin()
    for worker in team:
        worker.end()
    return time.perf_counter() - began


def _serve(connection: Connection, prepare: Callable[[Shape, int], Job], shape: Shape, number: int) -> None:
    """The life of a worker: prepare, then train at each request until the other side closes."""
    os.environ[devices.CACHE_VARIABLE] = "off"
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    try:
        job = prepare(shape, number)
        connection.send({name: getattr(job, name) for name in ("count", "cells", "steps", "compile_seconds", "device")})
        while True:
            request = connection.recv()
            if request == "run":
                job.run()
            connection.send(_peak_memory() if request == "memory" else None)
    except (EOFError, OSError, KeyboardInterrupt):
        return  # the other side has closed


def _peak_memory() -> float:
    """Largest resident size of this process so far, MB."""
    try:
        # unlike ru_maxrss, VmHWM does not count what the process was before it was this program
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    import resource
    import sys

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
