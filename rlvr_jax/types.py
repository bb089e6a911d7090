"""The values that cross module borders, and the letters in which shapes are written.

Shape letters, used everywhere: ``P`` prompts, ``M`` answers per prompt, ``B`` prompts per step (the batch), ``G``
samples per prompt (the group), ``K`` classes of a group's samples, ``C`` lanes (cells that share a seed's draws),
``W`` seeds side by side in one row of lanes, ``L = C * W`` lanes in all, ``S`` seeds, ``T`` training steps, ``E``
evaluations, ``N`` items or steps of one call.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np


class InvalidInput(ValueError):
    """A value that a user gave cannot be used; the message is one sentence that names it and says what is allowed."""


#: What a parameter does to a program: ``lane``, a traced number of each cell; ``size``, an array size that cells may
#: differ in by masking; ``draw``, part of what the draws and the task depend on; ``shape``, an array size of its own
#: program.
Role: TypeAlias = Literal["lane", "size", "draw", "shape"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a world.

    Attributes:
      name: Its name in Python, in spec files and as a dimension.
      about: One line: what it is, with its unit.
      role: What it does to a program.
      default: Its value when not given; `REQUIRED` if it must be given, None if it follows from others.
      whole: Whether it is a whole number.
      least, above, most, below: Bounds; ``least`` and ``most`` are allowed values, ``above`` and ``below`` are not.
      scheduled: Whether it may be a schedule of the step.
      choices: The allowed names, for a parameter that is a name.
      flag: Whether it is true or false.
      record: Makes a data set with a length out of what was given, or raises `InvalidInput`; for a parameter that may
        be fixed to one in place of a number. A record has ``canonical()``, its size and hash as JSON, and
        ``text()``, from which it is made again out of a file.
    """

    name: str
    about: str
    role: Role = "lane"
    default: Any = None
    whole: bool = False
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    scheduled: bool = False
    choices: tuple[str, ...] = ()
    flag: bool = False
    record: Callable[[Any, str], Any] | None = None

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if self.flag:
            return "true or false"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        bounds = [
            f"{word} {bound:.10g}"
            for word, bound in (
                ("at least", self.least),
                ("above", self.above),
                ("at most", self.most),
                ("below", self.below),
            )
            if bound is not None
        ]
        return " ".join(["a whole number" if self.whole else "a finite number", " and ".join(bounds)]).strip()

    def contains(self, value: float) -> bool:
        """Whether ``value`` lies within the bounds."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


#: Marks a parameter that has no default.
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


@dataclass(frozen=True)
class Metric:
    """One metric that a world can store.

    Attributes:
      about: One line, with the unit.
      dims: Dimensions besides the cell's and, unless ``total``, the step.
      total: Whether it is stored once, after the last step.
      kept: Whether it is stored unless asked otherwise.
      only_with: A parameter; unless asked for, it is stored only where that one is given.
    """

    about: str
    dims: tuple[str, ...] = ()
    total: bool = False
    kept: bool = True
    only_with: str | None = None


#: One value of each parameter for each cell: numbers ``[n]``; the method and schedules as codes.
Columns: TypeAlias = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class World:
    """A world as the grid, the plan and the engine see it: one row of `rlvr_jax.worlds.WORLDS`.

    Attributes:
      name: Its name in `rlvr_jax.sweep` and spec files.
      about: One line.
      parameters: By name.
      metrics: By name.
      sized_by: For each of the metrics' own dimensions whose length is a parameter, that parameter.
      labels: For each of the metrics' own dimensions of fixed length, its labels.
      derive: Fills the columns whose default is None, and refuses combinations that mean nothing.
      program: A static program (see `rlvr_jax.engine.Program`) from a layout, the grid and its cells.
      inputs: What the program reads, from itself, the grid and ``cell [N, C, W]``: arrays for each item, and arrays
        that all items share.
      work: Arithmetic of one step of each cell, in numbers touched; the plan splits programs and cuts calls by it.
      row: Numbers that one lane has in the largest array of a step, from the columns.
      state: Numbers that one lane has in the state, from the columns.
    """

    name: str
    about: str
    parameters: Mapping[str, Parameter]
    metrics: Mapping[str, Metric]
    sized_by: Mapping[str, str]
    labels: Mapping[str, tuple[str, ...]]
    derive: Callable[[Columns, Any], Columns]
    program: Callable[..., Any]
    inputs: Callable[..., Any]
    work: Callable[[Columns], np.ndarray]
    row: Callable[[Columns], np.ndarray]
    state: Callable[[Columns], np.ndarray]


def shown(value: Any) -> str:
    """``value`` in a sentence: on one line, and cut where it is long.

    >>> shown(np.zeros((2, 2)))
    'array([[0., 0.], [0., 0.]])'
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """``value`` as an int from ``least`` to ``most``, or a sentence that says what it must be."""
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool | np.bool_) else None
    if number is not None and number >= least and (most is None or number <= most):
        return number
    allowed = f"at least {least}" if most is None else f"from {least} to {most}"
    raise InvalidInput(f"{name} is {shown(value)}; it must be a whole number {allowed}")


def numbers(given: Any, name: str, allowed: str) -> np.ndarray:
    """``given`` as float64, NaN where it is masked, or a sentence that says what it must be."""
    try:
        array = np.asarray(_unmasked(given))
    except (TypeError, ValueError):  # no array at all, or rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name} is {shown(given)}; it must be {allowed}")
    return array.astype(np.float64)


def _unmasked(given: Any) -> Any:
    """``given``, with NaN for what is masked: `numpy.asarray` would take what lies under the mask."""
    if isinstance(given, np.ma.MaskedArray) and given.dtype.kind in "biuf":
        return np.ma.filled(given.astype(np.float64), np.nan)
    if isinstance(given, list | tuple):
        return [_unmasked(part) for part in given]
    return given


def number(name: str, value: Any, fits: Callable[[float], bool], allowed: str) -> float:
    """``value`` as a float for which ``fits``, or a sentence that says what it must be."""
    array = numbers(value, name, allowed)
    if array.ndim or isinstance(value, bool | np.bool_) or not fits(array.item()):
        raise InvalidInput(f"{name} is {shown(value)}; it must be {allowed}")
    return array.item()


def one_of(name: str, value: Any, *allowed: str) -> None:
    """Refuse a name that is none of those allowed."""
    if not isinstance(value, str) or value not in allowed:
        *others, last = map(repr, allowed)
        raise InvalidInput(f"{name} is {shown(value)}; it must be {', '.join(others)} or {last}")
