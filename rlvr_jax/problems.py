"""Chain arithmetic problems: a start and steps (operation, operand), each applied to the value so far.

Operations are numbered as in `OPERATIONS`: addition, subtraction, multiplication by a one-digit and by a two-digit
number. Values are whole numbers; `LARGEST` bounds them, so that the world can compute in 32 bits.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_jax.types import InvalidInput, whole

OPERATIONS = ("add", "sub", "mul1", "mul2")
ADD, SUB, MUL1, MUL2 = range(4)

#: Operands of each operation: the least and the largest.
OPERANDS = ((10, 99), (10, 99), (2, 9), (10, 99))

#: How often the generator wants each operation.
RATES = (0.55, 0.18, 0.14, 0.13)

#: Largest absolute value that a problem may reach. The world stops a rollout's value at `chain.CAP`, which lies so far
#: above it that a stopped value never comes back to an answer within `MOST_STEPS` steps.
LARGEST = 21_000_000
MOST_STEPS = 1000

#: Most problems in a set.
MOST_PROBLEMS = 2**16


@dataclass(frozen=True, eq=False)
class Problems:
    """A set of N problems of at most L steps; from `make_problems`, `read_problems` or arrays.

    Arrays of one's own are checked: every operation must be one of `OPERATIONS`, every operand within its range
    (`OPERANDS`), no chain empty or with a gap, and no value beyond `LARGEST`.

    Attributes:
      start: int32 ``[N]``, the value before the first step.
      op: int8 ``[N, L]``, index into `OPERATIONS`; -1 after the last step.
      operand: int32 ``[N, L]``; 0 after the last step.

    Raises:
      InvalidInput: If the arrays are no such problems; the sentence names the problem.

    >>> Problems(start=[12], op=[[0, 3]], operand=[[30, 11]]).answer.tolist()
    [462]
    """

    start: np.ndarray
    op: np.ndarray
    operand: np.ndarray

    def __post_init__(self) -> None:
        start, op, operand = (_whole_numbers(name, getattr(self, name)) for name in ("start", "op", "operand"))
        if start.ndim != 1 or op.ndim != 2 or op.shape != operand.shape or len(op) != len(start):
            raise InvalidInput(
                f"start has shape {start.shape}, op {op.shape} and operand {operand.shape}; "
                "they must be [N], [N, L] and [N, L]"
            )
        if not 1 <= len(start) <= MOST_PROBLEMS or not 1 <= op.shape[1] <= MOST_STEPS:
            raise InvalidInput(
                f"op has shape {op.shape}; a set has 1 to {MOST_PROBLEMS} problems of 1 to {MOST_STEPS} steps"
            )
        _check_steps(op, operand)
        values = list(_values(start, op, operand))
        for step, value in enumerate(values):
            far = np.flatnonzero(np.abs(value) > LARGEST)
            if len(far):
                where = f"step {step} of problem {far[0]}" if step else f"the start of problem {far[0]}"
                raise InvalidInput(f"{where} reaches {value[far[0]]}; values must lie within {LARGEST} of 0")
        for name, array, kind in (("start", start, np.int32), ("op", op, np.int8), ("operand", operand, np.int32)):
            checked = array.astype(kind)
            checked.flags.writeable = False  # or what was checked could be changed
            object.__setattr__(self, name, checked)

    @cached_property
    def length(self) -> np.ndarray:
        """int32 ``[N]``, steps of each problem."""
        return (self.op >= 0).sum(1).astype(np.int32)

    @cached_property
    def answer(self) -> np.ndarray:
        """int64 ``[N]``, the exact results."""
        return list(_values(self.start, self.op, self.operand))[-1]

    def __len__(self) -> int:
        return len(self.start)

    def __repr__(self) -> str:
        return f"<{len(self)} problems of up to {self.length.max()} steps>"

    def canonical(self) -> dict[str, Any]:
        """Size and content hash, as JSON: equal sets are equal here, however wide their arrays are."""
        longest = int(self.length.max())
        digest = hashlib.sha256(str((len(self), longest)).encode())
        for array in (self.start, self.op[:, :longest], self.operand[:, :longest]):
            digest.update(np.ascontiguousarray(array, "<i4").tobytes())
        return {"problems": len(self), "sha256": digest.hexdigest()}

    def text(self) -> str:
        """The set as JSON lines, which `read_problems` reads.

        >>> Problems(start=[12], op=[[0, 3]], operand=[[30, 11]]).text()
        '{"start": 12, "steps": [["add", 30], ["mul2", 11]]}\\n'
        """
        lines = []
        for start, length, op, operand in zip(self.start, self.length, self.op, self.operand, strict=True):
            steps = [[OPERATIONS[kind], int(k)] for kind, k in zip(op[:length], operand[:length], strict=True)]
            lines.append(json.dumps({"start": int(start), "steps": steps}) + "\n")
        return "".join(lines)


def make_problems(n: int, seed: int, min_steps: int = 3, max_steps: int = 8) -> Problems:
    """Random problems, the same number for number wherever they are made.

    A start of two digits and ``min_steps`` to ``max_steps`` steps. A multiplication of a value that is large already
    becomes an addition or subtraction, a subtraction from a value below 100 an addition.

    Args:
      n: N, from 1 to 2^16.
      seed: Of ``numpy.random.default_rng``, at least 0.
      min_steps: Fewest steps, at least 1.
      max_steps: L, most steps.

    Raises:
      InvalidInput: If an argument is outside its range.

    >>> problems = make_problems(300, 210)
    >>> problems.op.shape, int(problems.answer.max())
    ((300, 8), 5121600)
    """
    n, seed = whole("n", n, 1, MOST_PROBLEMS), whole("seed", seed, 0)
    max_steps = whole("max_steps", max_steps, 1, MOST_STEPS)
    min_steps = whole("min_steps", min_steps, 1, max_steps)
    rng = np.random.default_rng(seed)
    bounds = np.cumsum(RATES)
    start = np.zeros(n, np.int32)
    op, operand = np.full((n, max_steps), -1, np.int8), np.zeros((n, max_steps), np.int32)
    for i in range(n):
        x = start[i] = int(rng.integers(10, 100))
        for j in range(int(rng.integers(min_steps, max_steps + 1))):
            kind = int(np.searchsorted(bounds, rng.random(), side="right"))
            kind = min(kind, MUL2)  # the rates add up to just below 1
            if (kind == MUL2 and x > 100_000) or (kind == MUL1 and x > 1_000_000):
                kind = ADD if rng.random() < 0.5 else SUB
            if kind == SUB and x < 100:
                kind = ADD
            least, most = OPERANDS[kind]
            k = int(rng.integers(least, most + 1))
            op[i, j], operand[i, j] = kind, k
            x = x + k if kind == ADD else x - k if kind == SUB else x * k
    return Problems(start, op, operand)


def read_problems(path: str | Path) -> Problems:
    """Problems from JSON lines: ``{"start": 12, "steps": [["add", 30], ["mul2", 11]], "answer": 462}`` a line.

    ``answer`` may be left out; where it stands it must be right.

    Raises:
      InvalidInput: If the file cannot be read or a line is no problem; the sentence names file and line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (TypeError, ValueError):
        raise InvalidInput(f"path is {path!r}; it must be the path of a file of text in UTF-8") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from None
    numbered = [(f"{path}, line {number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise InvalidInput(f"{path} has no problems; each line is one, {_FORM}")
    parsed = [_parsed(where, line) for where, line in numbered]
    longest = max(len(steps) for _, steps, _ in parsed)
    op, operand = np.full((len(parsed), longest), -1), np.zeros((len(parsed), longest), np.int64)
    for i, (_, steps, _) in enumerate(parsed):
        op[i, : len(steps)] = [kind for kind, _ in steps]
        operand[i, : len(steps)] = [k for _, k in steps]
    try:
        problems = Problems(np.array([start for start, _, _ in parsed]), op, operand)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    for (where, _), (_, _, answer), right in zip(numbered, parsed, problems.answer, strict=True):
        if answer is not None and answer != right:
            raise InvalidInput(f"{where}: answer is {answer}; the result of the steps is {right}")
    return problems


_FORM = 'such as {"start": 12, "steps": [["add", 30], ["mul2", 11]]}'


def _parsed(where: str, line: str) -> tuple[int, list[tuple[int, int]], int | None]:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, Mapping) or not {"start", "steps"} <= set(given) <= {"start", "steps", "answer"}:
        raise InvalidInput(f"{where} is no problem; a line is {_FORM}")
    steps = given["steps"]
    if not isinstance(steps, Sequence) or isinstance(steps, str) or len(steps) == 0:
        raise InvalidInput(f"{where}: steps is {steps!r}; it must be a list of at least one [operation, operand]")
    pairs = []
    for i, step in enumerate(steps):
        if not isinstance(step, Sequence) or len(step) != 2 or step[0] not in OPERATIONS:
            raise InvalidInput(
                f"{where}: step {i + 1} is {step!r}; it must be [one of {', '.join(OPERATIONS)}, operand]"
            )
        kind = OPERATIONS.index(step[0])
        least, most = OPERANDS[kind]
        pairs.append((kind, whole(f"{where}: the operand of step {i + 1}", step[1], least, most)))
    start = whole(f"{where}: start", given["start"], -LARGEST, LARGEST)
    answer = given.get("answer")
    return start, pairs, None if answer is None else whole(f"{where}: answer", answer, -LARGEST, LARGEST)


def _whole_numbers(name: str, given: Any) -> np.ndarray:
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "iu" or np.ma.isMaskedArray(given):
        raise InvalidInput(f"{name} is {given!r}; it must be an array of whole numbers")
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InvalidInput(f"{name} reaches {array.max()}; it must be an array of whole numbers in 64 bits")
    return array.astype(np.int64)


def _check_steps(op: np.ndarray, operand: np.ndarray) -> None:
    real = op >= 0
    for wrong, what in (
        ((op < -1) | (op >= len(OPERATIONS)), "is unknown; it must be 0 to 3 (add, sub, mul1, mul2), or -1 at the end"),
        (real[:, 1:] & ~real[:, :-1], "follows a gap; -1 stands only after the last step"),
    ):
        if wrong.any():
            problem, step = np.argwhere(wrong)[0] + (0, op.shape[1] - wrong.shape[1])
            raise InvalidInput(f"op {op[problem, step]} at step {step + 1} of problem {problem} {what}")
    empty = np.flatnonzero(~real[:, 0])
    if len(empty):
        raise InvalidInput(f"problem {empty[0]} has no steps; it needs at least one")
    least, most = np.array([*OPERANDS, (0, 0)]).T
    wrong = (operand < least[op]) | (operand > most[op])
    if wrong.any():
        problem, step = np.argwhere(wrong)[0]
        kind = op[problem, step]
        allowed = f"of {OPERATIONS[kind]} lies in {least[kind]} to {most[kind]}" if kind >= 0 else "after the end is 0"
        raise InvalidInput(
            f"operand {operand[problem, step]} at step {step + 1} of problem {problem} is out of range; "
            f"an operand {allowed}"
        )


def _values(start: np.ndarray, op: np.ndarray, operand: np.ndarray) -> Iterator[np.ndarray]:
    """The values int64 ``[N]`` before the first step and after each."""
    value = np.asarray(start, np.int64)
    yield value
    for kind, k in zip(op.T, np.asarray(operand, np.int64).T, strict=True):
        # a value far beyond what is allowed is refused, but must not wrap around before that
        safe = np.clip(value, -(2**40), 2**40)
        value = np.select([kind == ADD, kind == SUB, kind >= MUL1], [safe + k, safe - k, safe * k], safe)
        yield value
