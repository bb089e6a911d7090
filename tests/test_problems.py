"""Problem sets: the generator, checks of one's own problems, JSON lines, and the bounds that keep values in 32 bits."""

import json
from pathlib import Path

import numpy as np
import pytest

from rlvr_jax import chain
from rlvr_jax.problems import LARGEST, MOST_STEPS, OPERANDS, Problems, make_problems, read_problems
from rlvr_jax.types import InvalidInput

GOLDEN = Path(__file__).parent / "golden" / "tool_problems.npz"


@pytest.mark.parametrize(("n", "seed", "name"), [(300, 210, "train"), (200, 211, "test")])
def test_the_generator_makes_the_golden_problems(n, seed, name):
    golden, problems = np.load(GOLDEN), make_problems(n, seed)
    for field in ("start", "op", "operand", "length", "answer"):
        values = getattr(problems, field)
        np.testing.assert_array_equal(values, golden[f"{name}_{field}"], err_msg=field)
        assert values.dtype == golden[f"{name}_{field}"].dtype


def test_the_generator_keeps_to_its_bounds():
    problems = make_problems(2000, 5, min_steps=2, max_steps=11)
    assert set(problems.length) == set(range(2, 12))
    assert ((problems.op >= 0).sum(1) == problems.length).all()
    value = problems.start.astype(np.int64)
    for op, k in zip(problems.op.T, problems.operand.T, strict=True):
        assert (value[op == 1] >= 100).all()
        assert (value[op == 2] <= 1_000_000).all()
        assert (value[op == 3] <= 100_000).all()
        value = np.select([op == 0, op == 1, op >= 2], [value + k, value - k, value * k], value)
    np.testing.assert_array_equal(value, problems.answer)


def test_equal_problems_have_equal_content():
    problems = make_problems(20, 3)
    wider = Problems(
        problems.start,
        np.pad(problems.op, ((0, 0), (0, 2)), constant_values=-1),
        np.pad(problems.operand, ((0, 0), (0, 2))),
    )
    assert wider.canonical() == problems.canonical()
    assert make_problems(20, 4).canonical() != problems.canonical()


WRONG = {
    "an unknown operation": ([5], [[0, 4]], [[10, 10]], "op 4 at step 2 of problem 0 is unknown; it must be 0 to 3"),
    "a negative operation": ([5], [[-2, 0]], [[0, 10]], "op -2 at step 1 of problem 0 is unknown"),
    "a gap": ([5, 5], [[0, 0, 0], [0, -1, 0]], [[10] * 3, [10, 0, 10]], "op 0 at step 3 of problem 1 follows a gap"),
    "an empty chain": ([5, 5], [[0], [-1]], [[10], [0]], "problem 1 has no steps; it needs at least one"),
    "an operand too small": (
        [5],
        [[3]],
        [[9]],
        "operand 9 at step 1 of problem 0 is out of range; an operand of mul2 lies in 10 to 99",
    ),
    "an operand too large": ([5], [[2]], [[10]], "an operand of mul1 lies in 2 to 9"),
    "an operand after the end": ([5], [[0, -1]], [[10, 3]], "an operand after the end is 0"),
    "a value too large": (
        [500_000],
        [[0, 3]],
        [[10, 99]],
        "step 2 of problem 0 reaches 49500990; values must lie within 21000000 of 0",
    ),
    "a value that would wrap": ([20_000_000], [[3] * 12], [[99] * 12], "step 1 of problem 0 reaches 1980000000"),
    "a start too large": ([-30_000_000], [[0]], [[10]], "the start of problem 0 reaches -30000000"),
    "fractions": ([1.5], [[0]], [[10]], r"start is \[1.5\]; it must be an array of whole numbers"),
    "ragged rows": ([1, 2], [[0], [0, 0]], [[10], [10, 10]], "op is .*; it must be an array of whole numbers"),
    "shapes that do not fit": ([1, 2], [[0]], [[10]], r"start has shape \(2,\), op \(1, 1\) and operand \(1, 1\)"),
    "a start beyond 64 bits": (np.array([2**64 - 1], np.uint64), [[0]], [[10]], "start reaches 18446744073709551615"),
    "masked arrays": (np.ma.array([5], mask=[True]), [[0]], [[10]], "it must be an array of whole numbers"),
    "no problems": (np.zeros(0, int), np.zeros((0, 3), int), np.zeros((0, 3), int), "a set has 1 to 65536 problems"),
}


@pytest.mark.parametrize("what", WRONG)
def test_problems_that_mean_nothing_are_refused(what):
    start, op, operand, sentence = WRONG[what]
    with pytest.raises(InvalidInput, match=sentence):
        Problems(start, op, operand)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 0, "seed": 0}, "n is 0; it must be a whole number from 1 to 65536"),
        ({"n": 5, "seed": -1}, "seed is -1; it must be a whole number at least 0"),
        ({"n": 5, "seed": 0, "min_steps": 4, "max_steps": 3}, "min_steps is 4; it must be a whole number from 1 to 3"),
        ({"n": 5.0, "seed": 0}, "n is 5.0; it must be a whole number"),
    ],
)
def test_the_generator_refuses_what_it_cannot_make(arguments, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        make_problems(**arguments)


def lines(tmp_path, *rows):
    path = tmp_path / "problems.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_checked_problems_stay_as_they_are():
    problems = make_problems(5, 0)
    for array in (problems.start, problems.op, problems.operand):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_problems_are_read_from_json_lines(tmp_path):
    path = lines(
        tmp_path,
        {"start": 12, "steps": [["add", 30], ["mul2", 11]], "answer": 462},
        "",
        {"start": -5, "steps": [["mul1", 2]]},
    )
    problems = read_problems(path)
    assert problems.answer.tolist() == [462, -10]
    assert problems.length.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("nonsense", "line 2 is no problem; a line is such as"),
        ("[" * 100_000, "line 2 is no problem"),
        ({"start": 1}, "line 2 is no problem"),
        ({"start": 1, "steps": [], "answer": 1}, r"line 2: steps is \[\]; it must be a list of at least one"),
        (
            {"start": 1, "steps": [["div", 10]]},
            r"line 2: step 1 is \['div', 10\]; it must be \[one of add, sub, mul1, mul2",
        ),
        (
            {"start": 1, "steps": [["add", 10], ["add", 5]]},
            "line 2: the operand of step 2 is 5; it must be a whole number from 10",
        ),
        ({"start": 1.5, "steps": [["add", 10]]}, "line 2: start is 1.5; it must be a whole number"),
        ({"start": 1, "steps": [["add", 10]], "answer": 12}, "line 2: answer is 12; the result of the steps is 11"),
        ({"start": 10**6, "steps": [["mul2", 99]]}, "step 1 of problem 1 reaches 99000000"),
    ],
)
def test_a_line_that_is_no_problem_is_named(tmp_path, row, sentence):
    with pytest.raises(InvalidInput, match=sentence) as error:
        read_problems(lines(tmp_path, {"start": 1, "steps": [["add", 10]]}, row))
    assert "problems.jsonl" in str(error.value)


def test_a_file_without_problems_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="has no problems"):
        read_problems(lines(tmp_path, ""))
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        read_problems(tmp_path / "missing")
    for path in (None, 5.0, b"\xff", "\0"):
        with pytest.raises(InvalidInput, match=r"path is .*; it must be the path of a file|cannot be read"):
            read_problems(path)
    marked = tmp_path / "marked.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + json.dumps({"start": 1, "steps": [["add", 10]]}).encode())
    assert read_problems(marked).answer.tolist() == [11]


def test_a_step_of_any_value_fits_into_32_bits_and_a_stopped_one_never_returns():
    """What the world computes from a value up to CAP, and how far below CAP a chain can bring it back."""
    most = max(high for _, high in OPERANDS)
    assert chain.CAP * most + 110 + 10 < 2**31  # a product, a mistake in two columns, a slip
    assert 8 * chain.CAP + 7 < 2**31  # the word
    step_back = 99 + 110 + 10  # a subtraction with every mistake; multiplications only lead away from 0
    assert chain.CAP - MOST_STEPS * step_back > LARGEST


@pytest.mark.parametrize(("n", "seed", "beyond"), [(300, 210, 0), (200, 211, 1)])
def test_no_rollout_of_the_lectures_problems_wraps_around(n, seed, beyond):
    """Bounds of every value that any sequence of mistakes can reach; all but one problem stay below the cap."""
    problems = make_problems(n, seed)
    high = np.abs(problems.start.astype(np.int64))
    highest = high
    for op, k in zip(problems.op.T, problems.operand.T, strict=True):
        # mistakes in two columns are worth at most 110 in a sum and 10 * 8 + 100 * 8 in a product; a slip is 10
        high = np.select([op < 0, op <= 1], [high, high + k + 120], np.maximum(high * k, 880) + 10)
        highest = np.maximum(highest, high)
    assert highest.max() < 2**31 - 1
    assert (highest >= chain.CAP).sum() == beyond
