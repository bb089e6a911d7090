"""Schedules: a number, change points or a callable give one value per step; whatever else is refused."""

import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from rlvr_jax.schedules import tabulate
from rlvr_jax.types import InvalidInput


@pytest.mark.parametrize("number", [0, 1, -2.5, np.float32(0.5), np.int64(3)])
def test_a_number_holds_at_every_step(number):
    table = tabulate(number, 3)
    assert table.dtype == np.float64
    assert_array_equal(table, [float(number)] * 4)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[0, 1.0]], [1, 1, 1, 1, 1]),
        ([[0, 1.0], [3, 0.5]], [1, 1, 1, 0.5, 0.5]),
        ([[-5, 2.0], [-1, 1.0], [1, 0.0]], [1, 0, 0, 0, 0]),
        ([[0, 1.0], [4, 0.0]], [1, 1, 1, 1, 0]),
        ([[0, 1.0], [5, 0.0]], [1, 1, 1, 1, 1]),  # changes after the end
        (((0, 1), (2, 0)), [1, 1, 0, 0, 0]),
        (np.array([[0.0, 1.0], [2.0, 0.25]]), [1, 1, 0.25, 0.25, 0.25]),
    ],
)
def test_change_points_hold_from_their_first_step_on(points, expected):
    assert_array_equal(tabulate(points, 4), expected)


def test_a_callable_is_asked_at_steps_0_to_T_in_order():
    asked = []

    def schedule(step):
        asked.append(step)
        return step / 2

    assert_array_equal(tabulate(schedule, 4), [0, 0.5, 1, 1.5, 2])
    assert asked == [0, 1, 2, 3, 4]
    assert all(type(step) is int for step in asked)


def test_no_steps_leave_the_value_of_step_0():
    assert_array_equal(tabulate([[0, 1.0], [1, 0.0]], 0), [1.0])


def test_an_optax_schedule_is_its_values():
    schedule = optax.cosine_decay_schedule(0.5, decay_steps=10)
    table = tabulate(schedule, 12)
    closed = 0.25 * (1 + np.cos(np.pi * np.minimum(np.arange(13), 10) / 10))
    assert_allclose(table, closed, atol=1e-7)  # optax computes in float32
    assert tabulate(optax.piecewise_constant_schedule(1.0, {2: 0.5}), 3).tolist() == [1.0, 1.0, 0.5, 0.5]


RAGGED = [[0, [[1], [1, 2]]]]


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        (True, "pay is True; it must be a finite number"),
        (np.nan, "pay is nan; it must be a finite number"),
        (np.inf, "pay is inf; it must be a finite number"),
        (10**400, "it must be a finite number"),
        (None, "pay is None; change points are [[first_step, value], ...]"),
        ("0.5", "pay is '0.5'; change points are"),
        ([], "pay is []; change points are"),
        ([0.0, 1.0], "pay is [0.0, 1.0]; change points are"),
        ([[0, 1, 2]], "pay is [[0, 1, 2]]; change points are"),
        ([[1, 1.0]], "the first at 0 or before"),
        ([[0, 1.0], [0, 2.0]], "with ascending whole steps"),
        ([[0, 1.0], [5, 0.0], [3, 2.0]], "with ascending whole steps"),
        ([[0, 1.0], [2.5, 0.0]], "with ascending whole steps"),
        ([[0, np.nan]], "a value of pay is nan; it must be a finite number"),
        ([[0, -np.inf]], "a value of pay is -inf; it must be a finite number"),
        ([[0, 10**400]], "it must be a finite number"),
        ([[np.nan, 1.0]], "a first step of pay is nan; it must be a finite number"),
        ([[0, None]], "a value of pay is None; it must be a finite number"),
        ([[0, True]], "a value of pay is True; it must be a finite number"),
        ([[0, np.array(True)]], "it must be a finite number"),
        ([["0", "1"]], "a first step of pay is '0'; it must be a finite number"),
        ([[0, b"1"]], "a value of pay is b'1'; it must be a finite number"),
        ([[0, [1.0]]], "a value of pay is [1.0]; it must be a finite number"),
        (RAGGED, "a value of pay is [[1], [1, 2]]; it must be a finite number"),
        ([[0, 1j]], "a value of pay is 1j; it must be a finite number"),
        (lambda step: np.nan if step == 2 else 0.0, "pay at step 2 is nan; it must be a finite number"),
        (lambda step: "high", "pay at step 0 is 'high'; it must be a finite number"),
        (lambda step: [0.0], "pay at step 0 is [0.0]; it must be a finite number"),
        (lambda: 1.0, "pay fails at step 0: "),
        (lambda step: 1 / (step - 1), "pay fails at step 1: division by zero"),
    ],
)
def test_other_schedules_are_refused(schedule, sentence):
    with pytest.raises(InvalidInput) as caught:
        tabulate(schedule, 4, "pay")
    assert sentence in str(caught.value)
