"""What a user asks for, checked and made canonical: axes, fixed values, evaluations, and one column per parameter."""

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_jax.kept import FORMS, Kept
from rlvr_jax.schedules import tabulate
from rlvr_jax.types import REQUIRED, InvalidInput, Parameter, World, whole

#: Cells that a grid may have; beyond this their indices alone no longer fit in memory.
MOST_CELLS = 10**9

#: Values that one axis may have, steps of a training, and evaluations of it: each is a list in memory.
MOST_VALUES = 10**7
MOST_STEPS = 10**7
MOST_EVALUATIONS = 10**6

AXIS_FORMS = "a list of values, {values: [...]}, {min, max, num, scale: linear or log}, or {range: [start, stop]}"


@dataclass(frozen=True)
class NamedSchedule:
    """A schedule as a value of an axis or of a fixed parameter.

    Attributes:
      name: Its label along an axis.
      table: Its value at the steps 0 to T.
    """

    name: str
    table: tuple[float, ...]

    def canonical(self) -> dict[str, Any]:
        """Name and change points, as JSON."""
        values = np.array(self.table)
        changes = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist()]
        return {"name": self.name, "schedule": [[step, self.table[step]] for step in changes]}


@dataclass(frozen=True)
class Axis:
    """One dimension of a grid.

    Attributes:
      dim: Its name.
      values: For each parameter that moves along it, its values; all of one length.
    """

    dim: str
    values: Mapping[str, tuple[Any, ...]]

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))


@dataclass(frozen=True)
class Grid:
    """A validated grid; cells are the product of the axes in the order given, the last one fastest.

    Attributes:
      world: The world.
      axes: The dimensions.
      fixed: The value of every other parameter; None where it follows from others.
      steps: T.
      eval_steps: Where metrics are stored, ascending from 0 to T.
      keep: What is stored, as in `rlvr_jax.kept`, in the order of the world's metrics.
      precision: "float32" or "float64".
    """

    world: World
    axes: tuple[Axis, ...]
    fixed: Mapping[str, Any]
    steps: int
    eval_steps: tuple[int, ...]
    keep: tuple[str, ...]
    precision: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return int(np.prod(self.shape, dtype=object)) if self.axes else 1

    @cached_property
    def kept(self) -> tuple[Kept, ...]:
        """The variables of the results."""
        return tuple(map(Kept.parse, self.keep))

    @cached_property
    def curves(self) -> tuple[str, ...]:
        """Metrics that are needed at each evaluation."""
        names = dict.fromkeys(kept.metric for kept in self.kept)
        return tuple(name for name in names if not self.world.metrics[name].total)

    @cached_property
    def totals(self) -> tuple[str, ...]:
        """Metrics that are needed once, at the end."""
        return tuple(kept.metric for kept in self.kept if self.world.metrics[kept.metric].total)

    @cached_property
    def schedules(self) -> tuple[Any, ...]:
        """The distinct values of scheduled parameters, numbers and schedules; columns hold their positions."""
        values: dict[Any, None] = {}
        for name, parameter in self.world.parameters.items():
            if parameter.scheduled:
                values.update(dict.fromkeys(self.values(name)))
        return tuple(values)

    @cached_property
    def tables(self) -> np.ndarray:
        """float64 ``[T + 1, U]``, the value of each of `schedules` at each step."""
        columns = [v.table if isinstance(v, NamedSchedule) else np.full(self.steps + 1, v) for v in self.schedules]
        return np.array(columns, np.float64).reshape(len(columns), self.steps + 1).T

    @cached_property
    def columns(self) -> Mapping[str, np.ndarray]:
        """The value of each parameter in each cell ``[cells]``.

        Names are given by their position in `Parameter.choices`, schedules by their position in `schedules`, records
        by their length.
        """
        columns = {}
        place = {value: i for i, value in enumerate(self.schedules)}
        for name, parameter in self.world.parameters.items():
            values = self.values(name)
            if values == (None,):
                continue
            if parameter.choices:
                codes = np.array([parameter.choices.index(v) for v in values], np.int32)
            elif parameter.scheduled:
                codes = np.array([place[v] for v in values], np.int32)
            elif parameter.record and not isinstance(values[0], int):
                codes = np.array([len(v) for v in values], np.int64)
            else:
                codes = np.array(values, bool if parameter.flag else np.int64 if parameter.whole else np.float64)
            axis = next((i for i, axis in enumerate(self.axes) if name in axis.values), None)
            if axis is not None:
                codes = codes.reshape([-1 if i == axis else 1 for i in range(len(self.axes))])
            columns[name] = np.broadcast_to(codes, self.shape or (1,)).reshape(-1)
        return self.world.derive(columns, self)

    def values(self, name: str) -> tuple[Any, ...]:
        """The values of a parameter along its axis, or its only one."""
        for axis in self.axes:
            if name in axis.values:
                return axis.values[name]
        return (self.fixed[name],)

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The grid as JSON: equal grids have equal specs, however they were written."""

        def plain(value: Any) -> Any:
            return value.canonical() if hasattr(value, "canonical") else value

        axes = {axis.dim: {name: [plain(v) for v in vs] for name, vs in axis.values.items()} for axis in self.axes}
        return {
            "world": self.world.name,
            "steps": self.steps,
            "eval_steps": list(self.eval_steps),
            "keep": list(self.keep),
            "precision": self.precision,
            "axes": [{"dim": dim, "values": values} for dim, values in axes.items()],
            "fixed": {name: plain(value) for name, value in sorted(self.fixed.items()) if value is not None},
        }

    @cached_property
    def spec_json(self) -> str:
        """The canonical spec as JSON text."""
        return canonical(self.spec)

    @property
    def sha256(self) -> str:
        """Hash of the canonical spec."""
        return hashlib.sha256(self.spec_json.encode()).hexdigest()


def canonical(spec: Mapping[str, Any]) -> str:
    """A spec as the JSON text that is hashed."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"))


def make_grid(
    world: World,
    parameters: Mapping[str, Any],
    *,
    tied: Mapping[str, Mapping[str, Any]] | None = None,
    steps: Any = REQUIRED,
    eval_every: Any = None,
    eval_steps: Any = None,
    keep: Any = None,
    precision: Any = "float32",
    **fixed: Any,
) -> Grid:
    """Checks a grid and makes it canonical; see `rlvr_jax.sweep` for the arguments.

    Raises:
      InvalidInput: For whatever cannot be meant, in one sentence.
    """
    if not isinstance(parameters, Mapping):
        raise InvalidInput(f"parameters is {parameters!r}; it must map names to {AXIS_FORMS}")
    tied = {} if tied is None else tied
    if not isinstance(tied, Mapping):
        raise InvalidInput(f"tied is {tied!r}; it must map names of dimensions to parameters and their axes")
    together = [name for members in tied.values() if isinstance(members, Mapping) for name in members]
    if isinstance(parameters.get("steps"), Iterable) or "steps" in (*tied, *together):
        raise InvalidInput(
            "steps cannot be an axis; a shorter training is the beginning of a longer one: use eval_steps"
        )
    if steps is REQUIRED:
        raise InvalidInput("steps is missing; it must be a whole number at least 0")
    steps = whole("steps", steps, 0)
    if steps > MOST_STEPS:
        raise InvalidInput(f"steps is {steps}; it must be at most {MOST_STEPS}")
    if not isinstance(precision, str) or precision not in ("float32", "float64"):
        raise InvalidInput(f"precision is {precision!r}; it must be 'float32' or 'float64'")
    axes = [_axis(world, name, {name: given}, steps, precision) for name, given in parameters.items()]
    for dim, members in tied.items():
        axes.append(_tied(world, dim, members, steps, precision))
    known = world.parameters
    taken: dict[str, str] = {}
    for axis in axes:
        for name in axis.values:
            if name in taken:
                raise InvalidInput(f"{name} is given twice, along the axes {taken[name]!r} and {axis.dim!r}")
            taken[name] = axis.dim
    values: dict[str, Any] = {}
    for name, given in fixed.items():
        _known(world, name)
        if name in taken:
            raise InvalidInput(f"{name} is given twice, as a fixed value and along the axis {taken[name]!r}")
        values[name] = (
            None
            if given is None and known[name].default is None
            else _value(known[name], given, name, steps, precision)
        )
    for name, parameter in known.items():
        if name in taken or name in values:
            continue
        if parameter.default is REQUIRED:
            raise InvalidInput(f"{name} is missing; it must be {parameter.allowed}")
        values[name] = parameter.default
    cells = int(np.prod([len(axis) for axis in axes], dtype=object))
    if cells > MOST_CELLS:
        sizes = " x ".join(f"{axis.dim} {len(axis)}" for axis in axes)
        raise InvalidInput(f"the grid has {cells} cells ({sizes}); at most {MOST_CELLS} are possible")
    return Grid(
        world=world,
        axes=tuple(axes),
        fixed=values,
        steps=steps,
        eval_steps=_eval_steps(steps, eval_every, eval_steps),
        keep=_keep(world, keep, {*taken, *(name for name in fixed)}, {axis.dim: axis for axis in axes}),
        precision=precision,
    )


def grid_of(world: World, spec: Mapping[str, Any], records: Path) -> Grid:
    """The grid whose canonical `Grid.spec` is ``spec``; the texts of its records lie in the folder ``records``."""
    fixed = {
        name: record_file(records, value) if world.parameters[name].record and isinstance(value, dict) else value
        for name, value in spec["fixed"].items()
    }
    alone = [axis for axis in spec["axes"] if list(axis["values"]) == [axis["dim"]]]
    return make_grid(
        world,
        {axis["dim"]: axis["values"][axis["dim"]] for axis in alone},
        tied={axis["dim"]: axis["values"] for axis in spec["axes"] if axis not in alone},
        **{name: spec[name] for name in ("steps", "eval_steps", "keep", "precision")},
        **fixed,
    )


def record_file(folder: Path, canonical: Mapping[str, Any]) -> Path:
    """Where the text of a record lies."""
    return folder / f"{canonical['sha256']}.jsonl"


def nearest(name: object, names: Iterable[str]) -> str:
    """ "; did you mean ...?" if one of ``names`` is close, else what there is."""
    names = sorted(names)
    wanted = str(name).lower()
    close = difflib.get_close_matches(wanted, names, 1) or [
        n for n in names if len(wanted) > 1 and n.startswith(wanted)
    ]
    return f"did you mean {close[0]!r}?" if close else f"the known ones are {', '.join(names)}"


def _known(world: World, name: Any) -> Parameter:
    if name not in world.parameters:
        raise InvalidInput(
            f"{name!r} is not a parameter of the world {world.name!r}; {nearest(name, world.parameters)}"
        )
    return world.parameters[name]


def _axis(world: World, dim: str, members: Mapping[str, Any], steps: int, precision: str) -> Axis:
    values = {}
    for name, given in members.items():
        parameter = _known(world, name)
        listed = _listed(parameter, given)
        if len(listed) == 0:
            raise InvalidInput(f"{name} has no values; an axis needs at least one")
        values[name] = tuple(
            _value(parameter, value, f"{name}[{i}]", steps, precision, on_axis=True) for i, value in enumerate(listed)
        )
    return Axis(dim, values) if len(members) > 1 else _distinct(Axis(dim, values))


def _tied(world: World, dim: Any, members: Any, steps: int, precision: str) -> Axis:
    dims = {dim for metric in world.metrics.values() for dim in metric.dims}
    if dim in {*world.parameters, *world.metrics, *dims, "step", "diverged_step"}:
        raise InvalidInput(
            f"{dim!r} cannot name a tied axis; it is the name of a parameter, of a metric or of a result's dimension"
        )
    if not isinstance(dim, str) or not dim.isidentifier():
        raise InvalidInput(f"{dim!r} cannot name a tied axis; a name is letters, digits and underscores")
    if not isinstance(members, Mapping) or len(members) < 2:
        raise InvalidInput(
            f"the tied axis {dim!r} is {members!r}; it must map at least two parameters to lists of values"
        )
    axis = _axis(world, dim, members, steps, precision)
    lengths = {name: len(values) for name, values in axis.values.items()}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InvalidInput(f"the parameters of the tied axis {dim!r} have different numbers of values: {sizes}")
    return _distinct(axis)


def _distinct(axis: Axis) -> Axis:
    rows = list(zip(*axis.values.values(), strict=True))
    seen = set()
    for row in rows:
        if row in seen:
            shown = _label(row[0]) if len(row) == 1 else ", ".join(str(_label(v)) for v in row)
            raise InvalidInput(f"{axis.dim} has the value {shown!r} twice; the values of an axis must differ")
        seen.add(row)
    labels = [_label(row[0]) for row in rows]
    if any(isinstance(label, str) for label in labels):  # numbers beside schedules are labelled by their text, too
        labels = [label if isinstance(label, str) else f"{label:g}" for label in labels]
    if len(axis.values) == 1 and len(set(labels)) < len(labels):
        raise InvalidInput(f"{axis.dim} has two values with one name; the names of an axis must differ")
    return axis


def _label(value: Any) -> Any:
    return value.name if isinstance(value, NamedSchedule) else value


def _listed(parameter: Parameter, given: Any) -> Sequence[Any]:
    """The values that an axis was given as."""
    name = parameter.name
    if isinstance(given, Mapping):
        keys = set(given)
        if keys == {"values"}:
            return _listed(parameter, given["values"])
        if keys == {"range"}:
            bounds = given["range"]
            if not isinstance(bounds, Sequence) or isinstance(bounds, str | bytes) or len(bounds) not in (2, 3):
                raise InvalidInput(f"range of {name} is {bounds!r}; it must be [start, stop] or [start, stop, step]")
            numbers = [whole(f"range of {name}", bound, -(2**63)) for bound in bounds]
            if max(map(abs, numbers)) > 2**62:
                raise InvalidInput(f"range of {name} is {bounds!r}; its numbers must lie within 2^62 of 0")
            if len(numbers) == 3 and numbers[2] == 0:
                raise InvalidInput(f"range of {name} has step 0; it must be another whole number")
            return _bounded(name, range(*numbers))
        if {"min", "max", "num"} <= keys <= {"min", "max", "num", "scale"}:
            return _spaced(name, given)
        raise InvalidInput(f"{name} is {dict(given)!r}; an axis is {AXIS_FORMS}")
    if isinstance(given, np.ndarray):
        if given.ndim != 1:
            raise InvalidInput(f"{name} is an array of shape {given.shape}; an axis has one dimension")
        return _bounded(name, given.tolist())
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidInput(
            f"{name} is {given!r}; an axis is {AXIS_FORMS} (give a single value as a fixed argument instead)"
        )
    return _bounded(name, given)


def _bounded(name: str, values: Sequence[Any]) -> Sequence[Any]:
    if len(values) > MOST_VALUES:
        raise InvalidInput(f"{name} has {len(values)} values; at most {MOST_VALUES} are possible")
    return values


def _spaced(name: str, given: Mapping[str, Any]) -> list[float]:
    scale = given.get("scale", "linear")
    if not isinstance(scale, str) or scale not in ("linear", "log"):
        raise InvalidInput(f"scale of {name} is {scale!r}; it must be 'linear' or 'log'")
    number = _number(f"min of {name}", given["min"]), _number(f"max of {name}", given["max"])
    num = whole(f"num of {name}", given["num"], 1)
    low, high = number
    if low > high or (low == high and num > 1):
        raise InvalidInput(f"{name} reaches from min {low:g} to max {high:g}; max must be above min")
    if scale == "log" and low <= 0:
        raise InvalidInput(f"min of {name} is {low:g}; on a log scale it must be above 0")
    with np.errstate(all="ignore"):  # whatever overflows is refused with the other values that are no numbers
        return (np.geomspace if scale == "log" else np.linspace)(low, high, _within(name, num)).tolist()


def _within(name: str, num: int) -> int:
    if num > MOST_VALUES:
        raise InvalidInput(f"num of {name} is {num}; at most {MOST_VALUES} are possible")
    return num


def _number(name: str, value: Any) -> float:
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        try:
            number = float(value)
        except OverflowError:
            number = np.inf
        if np.isfinite(number):
            return number
    raise InvalidInput(f"{name} is {value!r}; it must be a finite number")


def _value(parameter: Parameter, value: Any, where: str, steps: int, precision: str, on_axis: bool = False) -> Any:
    """One value, checked, as a plain bool, int, float, str, `NamedSchedule` or record."""
    if parameter.flag:
        if not isinstance(value, bool | np.bool_ | Integral) or value not in (0, 1):
            raise InvalidInput(f"{where} is {value!r}; it must be {parameter.allowed}")
        return bool(value)
    if parameter.record and not isinstance(value, Real):
        if on_axis:
            raise InvalidInput(f"{where} is {value!r}; along an axis it must be {parameter.allowed}")
        return parameter.record(value, where)
    if parameter.choices:
        if not isinstance(value, str) or value not in parameter.choices:
            raise InvalidInput(f"{where} is {value!r}; {nearest(value, parameter.choices)}")
        return str(value)
    if parameter.scheduled and not isinstance(value, Real):
        return _schedule(parameter, value, where, steps, precision, on_axis)
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{where} is {value!r}; it must be {parameter.allowed}")
    if parameter.whole:
        if not isinstance(value, Integral) or not parameter.contains(int(value)):
            raise InvalidInput(f"{where} is {value!r}; it must be {parameter.allowed}")
        return int(value)
    number = _number(where, value)
    if not parameter.contains(number):
        raise InvalidInput(f"{where} is {number!r}; it must be {parameter.allowed}")
    if abs(number) > float(np.finfo(precision).max):
        raise InvalidInput(f"{where} is {number!r}; it does not fit into {precision}")
    return number


def _schedule(parameter: Parameter, value: Any, where: str, steps: int, precision: str, on_axis: bool) -> Any:
    name = parameter.name
    if isinstance(value, Mapping):
        if set(value) != {"name", "schedule"} or not isinstance(value["name"], str) or not value["name"]:
            raise InvalidInput(
                f"{where} is {dict(value)!r}; it must be a number or {{name: ..., schedule: [[step, value], ...]}}"
            )
        name, value = value["name"], value["schedule"]
    elif on_axis:
        raise InvalidInput(f"{where} is {value!r}; a schedule along an axis needs a name: {{name: ..., schedule: ...}}")
    table = tabulate(value, steps, where)
    if not all(map(parameter.contains, table)):
        raise InvalidInput(f"{where} reaches from {table.min():g} to {table.max():g}; it must be {parameter.allowed}")
    if np.abs(table).max() > float(np.finfo(precision).max):
        raise InvalidInput(f"{where} reaches from {table.min():g} to {table.max():g}; it does not fit into {precision}")
    return NamedSchedule(name, tuple(table.tolist()))


def _eval_steps(steps: int, every: Any, listed: Any) -> tuple[int, ...]:
    if listed is not None:
        if every is not None:
            raise InvalidInput("eval_every and eval_steps are both given; one of them says when to evaluate")
        if not _several(listed):
            raise InvalidInput(f"eval_steps is {listed!r}; it must be a list of steps from 0 to {steps}")
        chosen = [whole("eval_steps", step, 0) for step in listed]
        if any(step > steps for step in chosen):
            raise InvalidInput(f"eval_steps has {max(chosen)}; the training has {steps} steps")
        return tuple(sorted({0, *chosen, steps}))
    stride = whole("eval_every", max(1, steps // 10) if every is None else every, 1)
    if steps // stride > MOST_EVALUATIONS:
        evaluations = steps // stride
        raise InvalidInput(
            f"eval_every is {stride}: {evaluations} evaluations; at most {MOST_EVALUATIONS} are possible"
        )
    return tuple(sorted({*range(0, steps + 1, stride), steps}))


def _several(given: Any) -> bool:
    """Whether ``given`` is something to go through, but no text."""
    return isinstance(given, Iterable) and not isinstance(given, str | bytes) and getattr(given, "ndim", 1) > 0


def _keep(world: World, keep: Any, given: set[str], axes: Mapping[str, Axis]) -> tuple[str, ...]:
    if keep is None:
        return tuple(
            name
            for name, metric in world.metrics.items()
            if metric.kept and (metric.only_with is None or metric.only_with in given)
        )
    if not _several(keep):
        raise InvalidInput(f"keep is {keep!r}; it must be a list of metrics")
    chosen = list(keep)
    for text in chosen:
        kept = Kept.parse(text) if isinstance(text, str) else None
        if kept is None or kept.metric not in world.metrics:
            raise InvalidInput(f"keep has {text!r}; {nearest(text if kept is None else kept.metric, world.metrics)}")
        metric = world.metrics[kept.metric]
        if "." in text and (metric.total or kept.form not in FORMS):
            what = f"{kept.metric!r} is stored once and has no forms" if metric.total else nearest(kept.form, FORMS)
            raise InvalidInput(f"keep has {text!r}; {what}")
        for dim in metric.dims:
            swept = axes.get(world.sized_by.get(dim, ""))
            if swept is not None and len(swept) > 1:
                raise InvalidInput(
                    f"keep has {text!r}, whose size changes along the axis {swept.dim!r}; fix {swept.dim!r}"
                )
    if not chosen:
        raise InvalidInput("keep is empty; name at least one metric")
    forms = [Kept(name, form).text for name in world.metrics for form in ("", *FORMS)]
    return tuple(text for text in forms if text in chosen)
