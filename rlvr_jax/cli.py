"""The command line: ``rlvr-jax run | plan | status | verify | export | list | stats | bench``.

Each subcommand is a frozen dataclass whose fields are its options and whose ``run`` does the work. JAX is imported
there, not here, so that ``--help`` answers at once. A user's mistake is one sentence on stderr and exit code 2.
"""

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rlvr_jax import lecture_command, store_commands
from rlvr_jax import spec as specs
from rlvr_jax.grid import nearest
from rlvr_jax.options import Assignments, Count, Flag, Size, SpecName, changed, counted
from rlvr_jax.plan_command import Plan
from rlvr_jax.shards import Shard
from rlvr_jax.stats_command import Stats
from rlvr_jax.stops import terminated
from rlvr_jax.types import InvalidInput

if TYPE_CHECKING:
    import xarray as xr

    from rlvr_jax import driver, executors

#: Columns of the table that `run` prints, where they are kept.
TABLE = ("accuracy", "calls", "hack_rate", "reward", "zero_frac_total")

#: Rows of that table; more are for a file.
MOST_ROWS = 1000

#: Exit codes: something that was asked for failed, a user's mistake, and a stop with Ctrl-C.
FAILED, MISTAKE, STOPPED = 1, 2, 130


@dataclass(frozen=True)
class Run:
    """Run a spec into a store, print the final table, draw the figures; go on where an earlier run stopped.

    What the store holds already is not computed again: the same command continues after any interruption, and more
    seeds, values or methods cost only the new cells.

    Example: rlvr-jax run baselines --seeds 8 --set lr=0.2 --out results/slow.zarr
    """

    spec: SpecName
    """A TOML file, or the name of a shipped spec (see: rlvr-jax list)."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="STORE")] = None
    """Where the results go, results/NAME.zarr unless given; figures go beside it, into the folder NAME."""
    seeds: Count = None
    """Run the seeds 0 to N-1."""
    set: Assignments = ()
    """Replace a value or an axis by a TOML value, such as lr=0.1 or 'lr=[0.1, 0.2]'; may be repeated."""
    figures: bool = True
    """Draw every figure that these results can give."""
    overwrite: Flag = False
    """Throw the store's results away and begin again."""
    mixed: Flag = False
    """Go on although another device kind or jaxlib computed what is there; the last bits may differ between chunks."""
    memory: Size = None
    """Memory that a call may take, such as 4GB or 512MB; half of what is free unless given."""
    executor: str = ""
    """Who trains: processes:N, dask:local:N, dask:ADDRESS or mpi; this process unless given."""
    devices: Count = None
    """XLA devices of each process that trains; all of this process, or one of each worker, unless given."""
    shard: Annotated[str, tyro.conf.arg(metavar="I/N")] = ""
    """Train only part I of N, beside other drivers of the same store that train the other parts."""
    distributed: Annotated[str, tyro.conf.arg(metavar="auto|ADDRESS:PORT,N,I")] = ""
    """Be one of N processes that were started together: as Slurm or Open MPI says (auto), or process I from 0."""
    take_lock: Flag = False
    """Take the store from a process on another machine that has died."""
    quiet: Flag = False
    """Show no progress."""
    json: Flag = False
    """Print events as lines of JSON in place of the table: start, progress, task, failed, end, figure."""

    def run(self) -> int:
        spec = changed(self.spec, self.seeds, self.set)
        store = Path("results") / f"{spec.name}.zarr" if self.out is None else self.out
        drawings = store.parent / (store.stem if store.suffix == ".zarr" else f"{store.name}-figures")
        self._check_place(store, drawings)
        factory = self._factory()
        shard = self._shard()
        grid = _as_kept(spec, None if self.overwrite else store).grid()

        from rlvr_jax import dispatch, driver

        began = time.perf_counter()
        try:
            with terminated():
                outcome = driver.run(
                    grid,
                    store,
                    mixed=self.mixed,
                    memory=self.memory,
                    take_lock=self.take_lock,
                    overwrite=self.overwrite,
                    progress="json" if self.json else "none" if self.quiet else "auto",
                    executor=factory,
                    count=self.devices,
                    shard=shard,
                )
                if self.distributed and shard is not None:
                    shard.meet("finished")
        except driver.Stopped as stop:
            kept = f"{stop.finished:,} of {counted(stop.cells, 'cell')} are finished and kept in {store}"
            return _stopped(f"{kept}; the same command goes on with the others")
        except KeyboardInterrupt:  # while it was planned
            return _stopped(f"no cell was computed; what {store} held it still holds")
        except dispatch.Lost as lost:
            print(f"rlvr-jax: {lost}; they are kept in {store}, and the same command goes on", file=sys.stderr)
            return FAILED
        if self.distributed and shard is not None and shard.number > 1:
            return FAILED if outcome.failed else 0  # the first one speaks
        return self._show(outcome, time.perf_counter() - began, store, drawings)

    def _factory(self) -> "executors.Factory | None":
        """Opens the workers; None where this process trains, which then asks for its devices."""
        from rlvr_jax import devices, executors

        if self.devices is not None:
            devices.check_count(self.devices)
        if self.executor:
            if self.distributed:
                raise InvalidInput("--executor and --distributed are two ways to do one thing; give one of them")
            return executors.factory(self.executor, self.devices or 1)
        if self.devices is not None:
            devices.request_host_devices(self.devices)
        return None

    def _shard(self) -> "Shard | None":
        """Which tasks to do; None for all."""
        if self.shard and self.overwrite:
            raise InvalidInput("--overwrite would throw away what other shards have done; remove the store first")
        if not self.distributed:
            return Shard.parse(self.shard) if self.shard else None
        if self.shard:
            raise InvalidInput("--distributed gives each process a shard of its own; leave --shard out")
        from rlvr_jax import launch

        return launch.join(self.distributed)

    def _show(self, outcome: "driver.Outcome", seconds: float, store: Path, drawings: Path) -> int:
        results = outcome.results()
        if "diverged" in results.attrs:
            warnings.warn(results.attrs["diverged"], RuntimeWarning, stacklevel=2)
        shared = bool(self.shard) and "unfinished" in results.attrs  # the last shard to finish has all of it
        if not self.json:
            if not shared:
                print(f"{_table(results)}\n")
            computed = f"{counted(outcome.computed, 'cell')} computed, {outcome.found:,} found"
            other = f"; of all shards together, {results.attrs['unfinished']}" if shared else ""
            print(f"results: {store} ({computed}; {seconds:.1f} s){other}", flush=True)
        if self.figures and not shared:
            try:
                for path in _draw(results, drawings):
                    print(json.dumps({"event": "figure", "file": str(path)}) if self.json else f"figure:  {path}")
            except KeyboardInterrupt:
                return _stopped(f"the results are in {store}, some figures are missing")
        if outcome.failed:
            number, reason = next(iter(outcome.failed.items()))
            print(
                f"rlvr-jax: {counted(len(outcome.failed), 'task')} failed, the first ({number}): {reason}; the other "
                "results are kept, and the same command tries again",
                file=sys.stderr,
            )
        return FAILED if outcome.failed else 0

    def _check_place(self, store: Path, drawings: Path) -> None:
        """Refuses, before anything runs, a place that is taken or cannot be written."""
        from rlvr_jax.disk import check_place

        try:
            check_place(store)
        except InvalidInput as error:
            raise InvalidInput(f"{error} (--out)") from None
        if self.figures and drawings.exists() and not drawings.is_dir():
            raise InvalidInput(f"{drawings} exists and is no folder; figures cannot be written there")
        folder = store.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"the folder {folder} cannot be made: {(error.strerror or '').lower()}") from None
        try:
            with tempfile.TemporaryDirectory(dir=folder):  # what may be written is seen by writing
                pass
        except OSError as error:
            raise InvalidInput(f"the folder {folder} cannot be written: {(error.strerror or '').lower()}") from None


@dataclass(frozen=True)
class List:
    """List the worlds, the methods with their papers, and the shipped specs.

    Example: rlvr-jax list --json
    """

    json: Flag = False
    """Print JSON."""

    def run(self) -> int:
        from rlvr_jax.advantages import ESTIMATORS
        from rlvr_jax.worlds import WORLDS

        found = {
            "worlds": [{"name": name, "about": world.about} for name, world in WORLDS.items()],
            "methods": [
                {"name": name, "about": row.summary, "paper": row.paper} for name, row in sorted(ESTIMATORS.items())
            ],
            "specs": [
                {"name": name, "about": specs.about(file), "file": str(file)} for name, file in specs.shipped().items()
            ],
        }
        if self.json:
            print(json.dumps(found, indent=2, ensure_ascii=False))
            return 0
        for kind, rows in found.items():
            width = max(len(row["name"]) for row in rows)
            print(kind)
            for row in rows:
                paper = f" [{row['paper']}]" if "paper" in row else ""
                print(f"  {row['name'].ljust(width)}  {row['about']}{paper}")
        return 0


@dataclass(frozen=True)
class Bench:
    """Measure a world side by side: loops in plain Python or NumPy, on one core and on all, and rlvr_jax.

    Example: rlvr-jax bench tool --quick --json
    """

    world: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORLD")] = "bandit"
    """The world: bandit or tool."""
    json: Flag = False
    """Print JSON."""
    quick: Flag = False
    """One small shape, once: shows that it works; the figures mean little."""
    answers: Annotated[str, tyro.conf.arg(metavar="M,M,...")] = ""
    """Also measure bandits with these numbers of answers, such as 4,16,64,256."""

    def run(self) -> int:
        from rlvr_jax import bench, bench_bandit, bench_tool

        benches = {"bandit": bench_bandit.BENCH, "tool": bench_tool.BENCH}
        if self.world not in benches:
            raise InvalidInput(f"world is {self.world!r}; it must be one of {', '.join(benches)}")
        if self.answers and self.world != "bandit":
            raise InvalidInput(f"--answers is for the bandit; the world is {self.world!r}")
        parts = self.answers.split(",") if self.answers else []
        for part in parts:
            if not re.fullmatch(r"\d{1,5}", part) or int(part) < 3:
                raise InvalidInput(f"--answers has {part!r}; it must be whole numbers at least 3, such as 4,16,64")
        chosen, more = benches[self.world], bench_bandit.by_answers(map(int, parts), self.quick)
        report = bench.measure(chosen, self.quick, more)
        print(json.dumps(report, indent=2) if self.json else bench.table(chosen, report))
        return 0


COMMANDS = {
    **{"run": Run, "plan": Plan, **store_commands.COMMANDS, "list": List, "stats": Stats, "bench": Bench},
    **lecture_command.COMMANDS,
}

ABOUT = "Sweeps of reinforcement learning with verifiable rewards. Example: rlvr-jax run baselines"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line.

    Args:
      arguments: Without the program's name; None takes those of the process.

    Returns:
      The exit code: 0, 1 if something failed or is damaged, 2 for a user's mistake, 130 after Ctrl-C or SIGTERM.
    """
    try:
        command = _parse(sys.argv[1:] if arguments is None else list(arguments))
        if command is None:
            return 0
        with warnings.catch_warnings():
            if not sys.warnoptions:  # a user who asks Python for warnings gets Python's
                warnings.showwarning = _show_warning
            return command.run()
    except InvalidInput as error:
        return _mistake(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # the reader of the output has gone, as `head` does; keep the interpreter from flushing into it again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if error.filename is None:
            raise
        return _mistake(f"{error.filename}: {(error.strerror or str(error)).lower()}")
    except KeyboardInterrupt as stop:
        return _stopped(str(stop) or "nothing is stored")


def _parse(arguments: list[str]) -> Any:
    """The subcommand with its options; None after ``--help``."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        raise InvalidInput(f"there is no command {arguments[0]!r}; {nearest(arguments[0], COMMANDS)}")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            if arguments and arguments[0] in COMMANDS:  # alone, so that hints name its own options
                return tyro.cli(COMMANDS[arguments[0]], prog=f"rlvr-jax {arguments[0]}", args=arguments[1:])
            return tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="rlvr-jax", description=ABOUT, args=arguments)
    except SystemExit as stop:
        if stop.code in (0, None):
            return None
        raise InvalidInput(_one_sentence(said.getvalue())) from None


def _one_sentence(drawn: str) -> str:
    r"""What tyro draws as sections below a title, in a box or without one: the error, and what was perhaps meant.

    >>> _one_sentence("╭─ Error ─╮\n│ Unrecognized options: --sets │\n│ ───── │\n│ See --help │\n╰───╯")
    'unrecognized options: --sets'
    """
    lines = [line.strip(" │") for line in re.sub(r"\x1b\[[0-9;]*m", "", drawn).splitlines()]
    lines = [line for line in lines[1:] if line and not line.startswith("╰")]  # without the title
    if re.fullmatch(r"-{5,}", lines[0]):
        lines = lines[1:]
    error, *others = re.split(r"[─-]{5,}", "\n".join(lines))
    error = re.sub(r"\(applied to [^)]*\)|Arguments are applied.*", "", error, flags=re.DOTALL)
    if error.startswith("Missing from"):
        error = "\n".join(lines[:2])  # what follows is the option's help
    hint = next((s for s in others if s.strip().startswith(("Perhaps you meant", "Available"))), "")
    option = re.match(r"\s*Perhaps you meant:\s+(--[\w-]+)", hint)
    hint = f"did you mean {option[1]}?" if option and option[1] not in error else ""
    sentence = " ".join("; ".join(filter(None, (error.strip(), hint))).split()).removeprefix("Error parsing ")
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _as_kept(spec: specs.Spec, store: Path | None) -> specs.Spec:
    """A spec that does not say what it keeps, keeping what the store that it extends does."""
    from rlvr_jax import disk

    if "keep" in spec.fixed or store is None or not disk.is_store(store):
        return spec
    held = disk.read_header(store).spec
    return spec.with_value("keep", held["keep"]) if held["world"] == spec.world else spec


def _table(results: "xr.Dataset") -> str:
    from rlvr_jax.table import final_table

    axes = set(results["diverged_step"].dims) | {"step"}
    plain = [str(name) for name, values in results.data_vars.items() if set(values.dims) <= axes]
    metrics = [name for name in TABLE if name in plain] or [name for name in plain if name != "diverged_step"][:3]
    if not metrics:
        return "No metric was kept that fits into a table."
    rows = results["diverged_step"].size // results.sizes.get("seed", 1)
    if rows > MOST_ROWS:
        return f"{rows:,} configurations are too many for a table; rlvr-jax export writes them to a file."
    return final_table(results, metrics)


def _draw(results: "xr.Dataset", out: Path) -> list[Path]:
    """Draws every figure whose needs the results meet; returns the PDF and PNG files."""
    from rlvr_jax import drawing

    paths = [path for name in drawing.fitting(results) for path in drawing.draw(name, results, out)]
    return [path for path in paths if path.suffix in (".pdf", ".png")]


def _show_warning(message: Warning | str, *where: Any) -> None:
    print(f"rlvr-jax: warning: {message}", file=sys.stderr)


def _mistake(sentence: str) -> int:
    print(f"rlvr-jax: {' '.join(sentence.split())}", file=sys.stderr)
    return MISTAKE


def _stopped(sentence: str) -> int:
    print(f"rlvr-jax: stopped: {sentence}", file=sys.stderr)
    return STOPPED
