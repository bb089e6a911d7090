"""A number, change points or a callable of the step, tabulated as one value per step."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import TypeAlias

import numpy as np

from rlvr_jax.types import InvalidInput

#: A number; change points ``[[first_step, value], ...]``; or a callable of the step (optax's schedules are).
Schedule: TypeAlias = Real | Sequence[Sequence[float]] | Callable[[int], float]


def tabulate(schedule: Schedule, steps: int, name: str = "schedule") -> np.ndarray:
    """The value of ``schedule`` at each step.

    Change points are ``[[first_step, value], ...]`` in ascending order: a value holds from its ``first_step`` on, and
    the first must start at step 0 or before.

    Args:
      schedule: A finite number, change points, or a callable of the step.
      steps: T >= 0.
      name: What the values are, for error messages.

    Returns:
      float64 ``[T + 1]``, for the steps 0 to T.

    Raises:
      InvalidInput: If a value is not a finite number or the change points do not ascend from step 0 or before.

    >>> tabulate([[0, 1.0], [3, 0.5]], 4)
    array([1. , 1. , 1. , 0.5, 0.5])
    >>> tabulate(lambda step: step / 2, 2)
    array([0. , 0.5, 1. ])
    """
    if callable(schedule):
        values = np.array(
            [_number(_called(schedule, step, name), f"{name} at step {step}") for step in range(steps + 1)]
        )
    elif isinstance(schedule, Real):
        values = np.full(steps + 1, _number(schedule, name))
    else:
        first, level = _change_points(schedule, name)
        values = level[np.searchsorted(first, np.arange(steps + 1), side="right") - 1]
    return values


def _called(schedule: Callable[[int], float], step: int, name: str) -> object:
    try:
        return schedule(step)
    except Exception as error:
        raise InvalidInput(f"{name} fails at step {step}: {error}") from error


def _number(value: object, name: str) -> float:
    # arrays without dimensions are numbers: optax's schedules return them
    booleans = getattr(value, "dtype", None) == np.bool_ or isinstance(value, bool)
    if booleans or not (isinstance(value, Real) or getattr(value, "shape", None) == ()):
        raise InvalidInput(f"{name} is {value!r}; it must be a finite number")
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"{name} is {value!r}; it must be a finite number") from None
    if not np.isfinite(number):
        raise InvalidInput(f"{name} is {number!r}; it must be a finite number")
    return number


def _change_points(schedule: object, name: str) -> tuple[np.ndarray, np.ndarray]:
    allowed = "change points are [[first_step, value], ...] with ascending whole steps, the first at 0 or before"
    try:
        pairs = [(first, value) for first, value in schedule]  # pyright: ignore[reportGeneralTypeIssues]
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} is {schedule!r}; {allowed}") from None
    first = np.array([_number(f, f"a first step of {name}") for f, _ in pairs])
    level = np.array([_number(v, f"a value of {name}") for _, v in pairs])
    if len(first) == 0 or first[0] > 0 or np.any(np.diff(first) <= 0) or np.any(first != np.round(first)):
        raise InvalidInput(f"{name} is {schedule!r}; {allowed}")
    return first, level
