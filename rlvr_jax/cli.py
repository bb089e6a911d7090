"""The command line: ``rlvr-jax run | plan | list | stats | bench``.

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
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rlvr_jax import spec as specs
from rlvr_jax.grid import nearest
from rlvr_jax.stats_command import Stats
from rlvr_jax.types import InvalidInput

if TYPE_CHECKING:
    import xarray as xr

#: Columns of the table that `run` prints, where they are kept.
TABLE = ("accuracy", "hack_rate", "zero_frac_total")

#: Exit codes: a user's mistake, and a stop with Ctrl-C.
MISTAKE, STOPPED = 2, 130


def _whole(text: list[str]) -> int:
    if re.fullmatch(r"\d{1,9}", text[0]) and int(text[0]) > 0:
        return int(text[0])
    raise ValueError(f"{text[0]!r} is no whole number at least 1")


#: A whole number that may be left out.
Count = Annotated[
    int | None,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="N",
        instance_from_str=_whole,
        is_instance=lambda x: x is None or isinstance(x, int),
        str_from_instance=lambda x: ["as in the spec" if x is None else str(x)],
    ),
]
Assignments = Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME=VALUE")]
SpecName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SPEC")]
Flag = tyro.conf.FlagCreatePairsOff[bool]


@dataclass(frozen=True)
class Run:
    """Run a spec: print the final table, store the results, draw the figures.

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
    """Replace older results of the same name."""

    def run(self) -> int:
        spec = _changed(self.spec, self.seeds, self.set)
        store = Path("results") / f"{spec.name}.zarr" if self.out is None else self.out
        drawings = store.parent / (store.stem if store.suffix == ".zarr" else f"{store.name}-figures")
        self._check_place(store, drawings)
        spec.grid()

        from rlvr_jax.results import Interrupted
        from rlvr_jax.store import save

        try:
            results = spec.sweep()
        except Interrupted as stop:
            if stop.finished == 0:
                return _stopped("nothing had finished, so nothing is stored")
            partial = store.with_name(f"{store.stem}.partial.zarr")
            save(stop.results, partial, overwrite=True)
            count = f"{stop.finished} of {stop.results['diverged_step'].size} cells had finished"
            return _stopped(f"{count} and are in {partial}; the others are NaN there")
        save(results, store, overwrite=self.overwrite)
        print(_table(results))
        print(f"\nresults: {store} ({results.attrs['wall_seconds']:.1f} s)", flush=True)
        if self.figures:
            try:
                for path in _draw(results, drawings):
                    print(f"figure:  {path}")
            except KeyboardInterrupt:
                return _stopped(f"the results are in {store}, some figures are missing")
        return 0

    def _check_place(self, store: Path, drawings: Path) -> None:
        """Refuses, before anything runs, a place that is taken or cannot be written."""
        from rlvr_jax.store import check_free

        try:
            check_free(store, overwrite=self.overwrite)
        except InvalidInput as error:
            raise InvalidInput(f"{error} (--out, --overwrite)") from None
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
class Plan:
    """Say what a spec would run, without compiling anything: cells, programs, layout, calls, bytes.

    Example: rlvr-jax plan learning_rate --seeds 256
    """

    spec: SpecName
    """A TOML file, or the name of a shipped spec (see: rlvr-jax list)."""
    seeds: Count = None
    """Plan for the seeds 0 to N-1."""
    set: Assignments = ()
    """Replace a value or an axis by a TOML value, such as lr=0.1 or 'lr=[0.1, 0.2]'; may be repeated."""
    json: Flag = False
    """Print JSON."""

    def run(self) -> int:
        plan = _plan(_changed(self.spec, self.seeds, self.set))
        print(json.dumps(plan, indent=2) if self.json else _plan_in_words(plan))
        return 0


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


COMMANDS = {"run": Run, "plan": Plan, "list": List, "stats": Stats, "bench": Bench}

ABOUT = "Sweeps of reinforcement learning with verifiable rewards. Example: rlvr-jax run baselines"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line.

    Args:
      arguments: Without the program's name; None takes those of the process.

    Returns:
      The exit code: 0, 2 for a user's mistake, 130 after Ctrl-C.
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
    except KeyboardInterrupt:
        return _stopped("nothing is stored")


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


def _changed(name: str, seeds: int | None, assignments: Sequence[str]) -> specs.Spec:
    """A spec with ``--seeds`` and ``--set`` applied."""
    spec, given = specs.load(name), set()
    if seeds is not None:
        spec, given = spec.with_seeds(seeds), {"seed"}
    for assignment in assignments:
        key, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not key:
            raise InvalidInput(f"--set {assignment}: write NAME=VALUE, such as lr=0.1 or 'lr=[0.1, 0.2]'")
        if key in given:
            raise InvalidInput(f"--set {assignment}: {key} is given twice")
        given.add(key)
        try:
            spec = spec.with_value(key, specs.value(text))
        except InvalidInput as error:
            raise InvalidInput(f"--set {assignment}: {error}") from None
    return spec


def _table(results: "xr.Dataset") -> str:
    from rlvr_jax.table import final_table

    axes = set(results["diverged_step"].dims) | {"step"}
    plain = [str(name) for name, values in results.data_vars.items() if set(values.dims) <= axes]
    metrics = [name for name in TABLE if name in plain] or [name for name in plain if name != "diverged_step"][:3]
    return final_table(results, metrics) if metrics else "No metric was kept that fits into a table."


def _draw(results: "xr.Dataset", out: Path) -> list[Path]:
    """Draws every figure whose needs the results meet; returns the PDF and PNG files."""
    import importlib.util

    from rlvr_jax import figure_script, plots
    from rlvr_jax.shipped import folder

    paths = []
    for file in sorted(folder("figures").glob("*.py")):
        source = importlib.util.spec_from_file_location(f"rlvr_jax_figure_{file.stem}", file)
        if source is None or source.loader is None:
            continue
        script = importlib.util.module_from_spec(source)
        source.loader.exec_module(script)
        try:
            figure_script.prepare(results, script.NEEDS)
        except InvalidInput:
            continue  # another study's figure
        written = plots.save(script.draw(results), out / file.stem, script.facts(results))
        paths += [path for path in written if path.suffix != ".json"]
    return paths


def _plan(spec: specs.Spec) -> dict[str, Any]:
    import jax

    from rlvr_jax import devices
    from rlvr_jax.plan import check_memory, make_plan, result_bytes

    grid = spec.grid()
    with spec.naming():
        check_memory(grid, devices.free_memory())
        used = jax.devices()
        parts = make_plan(grid, len(used))
    programs = []
    for part in parts:
        layout, slices = part.program.layout, len(part.segments.begin)
        programs.append(
            {
                "reason": part.reason,
                "cells": int(part.real.sum()),
                "lanes": layout.lanes,
                "seeds_side_by_side": layout.seeds,
                "padding": int((~part.real).sum()),
                "methods": {method: lanes for method, lanes in layout.blocks},
                "items": len(part.cell),
                "items_per_call": part.items,
                "calls": part.calls // slices,
                "time_slices": slices,
            }
        )
    return {
        "spec": spec.source,
        "world": grid.world.name,
        "cells": grid.cells,
        "axes": {axis.dim: len(axis) for axis in grid.axes},
        "steps": grid.steps,
        "evaluations": len(grid.eval_steps),
        "metrics": list(grid.keep),
        "precision": grid.precision,
        "devices": len(used),
        "device_kind": used[0].device_kind,
        "programs": programs,
        "result_bytes": result_bytes(grid),
        "spec_sha256": grid.sha256,
    }


def _plan_in_words(plan: dict[str, Any]) -> str:
    sizes = " x ".join(f"{name} {size}" for name, size in plan["axes"].items())
    programs, devices = plan["programs"], plan["devices"]
    lines = [
        f"{plan['spec']}: world {plan['world']}, {_counted(plan['cells'], 'cell')}{f' = {sizes}' if sizes else ''}",
        f"{_counted(plan['steps'], 'step')}, {_counted(plan['evaluations'], 'evaluation')}, {plan['precision']}; "
        f"results of {_bytes(plan['result_bytes'])}: {', '.join(plan['metrics'])}",
        f"{_counted(len(programs), 'program')} to compile, for {_counted(devices, 'device')} ({plan['device_kind']})",
    ]
    for i, program in enumerate(programs, 1):
        lanes, seeds = program["lanes"], program["seeds_side_by_side"]
        layout = f"{_counted(lanes, 'lane')} x {_counted(seeds, 'seed')} side by side = rows of {lanes * seeds}"
        slices = program["time_slices"]
        lines += [
            f"  program {i}: {program['reason']}",
            f"    {_counted(program['cells'], 'cell')} as {layout}; {_counted(program['padding'], 'place')} of padding",
            f"    {_counted(program['items'], 'item')} in {_counted(program['calls'], 'call')} of "
            f"{program['items_per_call']}, each in {_counted(slices, 'time slice')}",
        ]
    return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _bytes(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"


def _show_warning(message: Warning | str, *where: Any) -> None:
    print(f"rlvr-jax: warning: {message}", file=sys.stderr)


def _mistake(sentence: str) -> int:
    print(f"rlvr-jax: {' '.join(sentence.split())}", file=sys.stderr)
    return MISTAKE


def _stopped(sentence: str) -> int:
    print(f"rlvr-jax: stopped: {sentence}", file=sys.stderr)
    return STOPPED
