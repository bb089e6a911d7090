"""Gives tasks to workers: few at a time, again where they failed, and alone where they may have killed a worker."""

import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass
from typing import Any

from rlvr_jax.executors import Crew
from rlvr_jax.receipts import Receipt
from rlvr_jax.types import InvalidInput

#: How many times a task is given out before it counts as failed.
ATTEMPTS = 3

#: Seconds between two looks at whether there still are workers, and how long tasks wait where there are none.
LOOK_EVERY, ABANDONED_AFTER = 5.0, 600.0


class Lost(RuntimeError):
    """The workers cannot be reached any more; what has a receipt is kept."""


@dataclass(frozen=True)
class Failure:
    """A task that failed for good.

    Attributes:
      error: Why, in one line.
      traceback: Where.
    """

    error: str
    traceback: str


def finished(
    crew: Crew,
    tasks: Sequence[int],
    call: Callable[[int], tuple[Any, ...]],
    receipt: Callable[[int], Receipt | None],
    given_out: Callable[[Collection[int]], object],
) -> Iterator[tuple[int, Receipt | Failure]]:
    """Tasks as they finish, each with its receipt or why it failed.

    A task that raises, or whose worker dies, is given out again after the others, `ATTEMPTS` times in all. When a
    worker dies, whatever was out at that time may have killed it: a task that has seen `ATTEMPTS` deaths is given out
    once more with nothing beside it, and is guilty if a worker dies then.

    Args:
      crew: Who trains.
      tasks: Their numbers, in the order in which they are given out.
      call: A function and its arguments, for a task.
      receipt: What the store has for a task, or None; a worker may have died after its last receipt.
      given_out: Called with the tasks that are with workers, whenever they change.

    Raises:
      InvalidInput: If a worker says that the store or the machine cannot be used; that concerns every task.
      Lost: If the workers are gone.
    """
    waiting, suspects, attempts = deque(tasks), deque[int](), Counter[int]()
    out: dict[Future[Receipt], int] = {}

    def give(number: int) -> None:
        given_out([*out.values(), number])
        try:
            future = crew.pool.executor.submit(*call(number))
        except BrokenExecutor:
            crew.renew()
            future = crew.pool.executor.submit(*call(number))
        out[future] = number
        attempts[number] += 1

    while waiting or suspects or out:
        while waiting and len(out) < max(1, _workers(crew)):
            give(waiting.popleft())
        if not out:
            give(suspects.popleft())
        for future in _done(crew, out):
            number = out.pop(future)
            if future.cancelled():
                raise Lost(f"{crew.pool.name} cannot be reached any more")
            error = future.exception()
            if error is None:
                yield number, future.result()
                continue
            if isinstance(error, InvalidInput):
                raise error
            died = isinstance(error, crew.pool.deaths)
            if died and (found := receipt(number)) is not None:
                yield number, found
            elif attempts[number] < ATTEMPTS:
                waiting.append(number)
            elif died and attempts[number] == ATTEMPTS:
                suspects.append(number)
            else:
                yield number, _failure(error, died, attempts[number])


def _done(crew: Crew, out: Collection[Future[Receipt]]) -> Collection[Future[Receipt]]:
    """Those that are done, as soon as there are any; who waits for nobody is told, and not for ever."""
    abandoned: float | None = None
    while not (done := wait(out, LOOK_EVERY, FIRST_COMPLETED).done):
        if _workers(crew) > 0:
            abandoned = None
        elif abandoned is None:
            abandoned = time.monotonic()
            told = f"{crew.pool.name} has no workers now; for {ABANDONED_AFTER / 60:g} min the run waits for others"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
        elif time.monotonic() - abandoned > ABANDONED_AFTER:
            raise Lost(f"{crew.pool.name} has had no workers for {ABANDONED_AFTER / 60:g} min")
    return done


def _workers(crew: Crew) -> int:
    try:
        return crew.pool.workers()
    except OSError as error:
        raise Lost(f"{crew.pool.name} cannot be reached any more ({error})") from None


def _failure(error: BaseException, died: bool, times: int) -> Failure:
    said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    if died:
        said = (
            f"its worker died each of {times} times, the last time with no other task beside it: it was killed, ran "
            f"out of memory, or crashed ({said})"
        )
    return Failure(said, "".join(traceback.format_exception(error)))
