"""Closed forms against enumeration, gradient ascent and the world itself."""

import exact_chain
import numpy as np
import pytest
from numpy.testing import assert_allclose

from rlvr_jax import theory
from rlvr_jax.reference_arithmetic import arithmetic_loop
from rlvr_jax.reference_arithmetic_batch import BATCH
from rlvr_jax.reference_chains import CONTEXTS, MUL1, Model, Problems, draw, logit, sigmoid
from rlvr_jax.types import InvalidInput

SKILL, TOOL_FAIL = 0.6, 0.125
Q0, QC = SKILL, 1 - TOOL_FAIL * (1 - SKILL)  # .6 and .95
MODEL = {"skill": [SKILL] * 12, "skill_decay": 0.0, "bug_share": 0.0}


def repeated(n, start=1000, factor=3, context="mul1_2", copies=1):
    """`start` times `factor`, n times: all in one context, and wrong values never come right again."""
    op, operand = np.full((1, n), MUL1), np.full((1, n), factor)
    row = np.array([start]), op, operand, np.array([n]), np.array([start * factor**n])
    return Problems(*(np.repeat(values, copies, axis=0) for values in row)), CONTEXTS.index(context)


CHAINS = {f"{n} steps": repeated(n) for n in (2, 3, 5)} | {"small numbers": repeated(3, 10, 2, "mul1_0")}


@pytest.mark.parametrize(("problems", "c"), CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("call_cost", [0.0, 0.15, 0.4])
def test_reward_and_gradient_are_those_of_the_world(problems, c, call_cost):
    """By enumeration: reward and gradient at nine call probabilities; only the one context is ever met."""
    n = int(problems.length[0])
    rows = exact_chain.leaves(problems, 0, Model(**MODEL), TOOL_FAIL)
    assert (np.delete(rows.calls + rows.holds, c, axis=1) == 0).all()
    for call_prob in np.linspace(0.02, 0.98, 9):
        theta = np.full(12, logit(call_prob))
        reward = theory.chain_reward(call_prob, call_cost, n, Q0, QC)
        assert exact_chain.expected_reward(rows, theta, call_cost) == pytest.approx(float(reward), abs=1e-13)
        gradient = np.zeros(12)
        gradient[c] = theory.chain_gradient(call_prob, call_cost, n, Q0, QC)
        assert_allclose(exact_chain.gradient(rows, theta, call_cost), gradient, rtol=0, atol=1e-13)


@pytest.mark.parametrize("change", [{"bug_share": 0.2}, {"skill_decay": 0.1}])
def test_the_closed_form_needs_its_conditions(change):
    """A bug of mul1 can be no error at all (1000 · 3 carries nothing), and a model that tires has no single q0."""
    rows = exact_chain.leaves(repeated(3)[0], 0, Model(**MODEL | change), TOOL_FAIL)
    theta = np.full(12, logit(0.3))
    assert abs(exact_chain.expected_reward(rows, theta, 0.15) - theory.chain_reward(0.3, 0.15, 3, Q0, QC)) > 1e-3


def ascend(rows, call_prob, call_cost, lr, steps=2000):
    """The end of gradient ascent on the enumerated expected reward."""
    theta = np.full(12, logit(call_prob))
    for _ in range(steps):
        theta += lr * exact_chain.gradient(rows, theta, call_cost)
    return theta


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("place", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("lr", [20.0, 500.0])
def test_ascent_from_both_sides_of_the_separatrix_ends_at_both_ends(n, place, lr):
    problems, c = repeated(n)
    low, high = theory.chain_window(n, Q0, QC)
    cost = low + place * (high - low)
    separatrix = float(theory.chain_separatrix(cost, n, Q0, QC))
    assert 0.005 < separatrix < 0.995
    rows = exact_chain.leaves(problems, 0, Model(**MODEL), TOOL_FAIL)
    apart = 0.004
    assert sigmoid(ascend(rows, separatrix - apart, cost, lr))[c] < 0.01
    assert sigmoid(ascend(rows, separatrix + apart, cost, lr))[c] > 0.99


@pytest.mark.parametrize("n", [2, 3, 5])
def test_outside_of_the_window_the_start_does_not_matter(n):
    problems, c = repeated(n)
    low, high = theory.chain_window(n, Q0, QC)
    rows = exact_chain.leaves(problems, 0, Model(**MODEL), TOOL_FAIL)
    assert theory.chain_separatrix(low - 0.01, n, Q0, QC) == 0
    assert theory.chain_separatrix(high + 0.01, n, Q0, QC) == 1
    assert sigmoid(ascend(rows, 0.02, low - 0.01, 20.0))[c] > 0.99
    assert sigmoid(ascend(rows, 0.98, high + 0.01, 20.0))[c] < 0.01


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_switch_is_where_both_ends_pay_the_same(n):
    problems, _ = repeated(n)
    rows, cost = exact_chain.leaves(problems, 0, Model(**MODEL), TOOL_FAIL), theory.chain_switch(n, Q0, QC)
    low, high = theory.chain_window(n, Q0, QC)
    assert low < cost < high
    never, always = np.full(12, -50.0), np.full(12, 50.0)
    for shift, sign in ((0.0, 0), (-0.01, 1), (0.01, -1)):
        ahead = exact_chain.expected_reward(rows, always, cost + shift)
        ahead -= exact_chain.expected_reward(rows, never, cost + shift)
        assert ahead == pytest.approx(0.01 * n * sign, abs=1e-12)


@pytest.mark.parametrize("method", ["rloo", "group"])
def test_training_ends_in_the_basin_where_it_starts(method):
    """Sampled, with the vectorised loop, on 512 copies of the chain, at a cost inside of the window.

    Both starts are .6 from the separatrix in theta. The first step moves .3 further away, with a standard deviation of
    .07 over draws (both measured), so a start that crosses it would be off by 12 of them: no false alarm to speak of.
    """
    n, T, copies, G, cost = 3, 30, 512, 16, 0.2
    problems, c = repeated(n, copies=copies)
    separatrix = float(theory.chain_separatrix(cost, n, Q0, QC))
    ends = []
    for seed, start in enumerate((separatrix - 0.15, separatrix + 0.15)):
        draws = draw(np.random.default_rng(seed), (T, copies, G, n))._asdict()
        draws["problem"] = np.tile(np.arange(copies), (T, 1))
        options = {"method": method, "call_cost": cost, "lr": 20.0, "tool_fail": TOOL_FAIL, **MODEL}
        out = arithmetic_loop(problems, draws, theta0=np.full(12, logit(start)), kernel=BATCH, eval_steps=[], **options)
        ends.append(sigmoid(out["theta"][-1])[c])
    assert ends[0] < 0.05
    assert ends[1] > 0.95


def test_the_figures_of_one_chain():
    """n = 3, .6 and .95, each worked out by hand: D = .35, .35 · .36, .35 · .9025, (.857375 - .216) / 3."""
    assert theory.chain_window(3, 0.6, 0.95) == pytest.approx((0.126, 0.315875), abs=1e-12)
    assert theory.chain_switch(3, 0.6, 0.95) == pytest.approx(0.641375 / 3, abs=1e-12)
    separatrix = theory.chain_separatrix([0.15, 0.2, 0.25], 3, 0.6, 0.95)
    assert_allclose((0.6 + 0.35 * separatrix) ** 2 * 0.35, [0.15, 0.2, 0.25], rtol=1e-12)
    assert_allclose(separatrix, [0.1562, 0.4455, 0.7004], atol=5e-5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: theory.chain_window(1, 0.6, 0.95), "n is 1; a chain has at least 2 steps"),
        (lambda: theory.chain_switch(3, 0.9, 0.9), "q0 is 0.9 and qc is 0.9; 0 <= q0 < qc <= 1 must hold"),
        (lambda: theory.chain_window(3, 0.6, 1.1), "qc is 1.1"),
        (lambda: theory.chain_separatrix(-0.1, 3, 0.6, 0.9), "call_cost is -0.1; it must be at least 0"),
        (lambda: theory.chain_reward(1.5, 0.1, 3, 0.6, 0.9), r"call_prob is 1.5; it must be in \[0, 1\]"),
        (lambda: theory.chain_gradient([0.5, np.nan], 0.1, 3, 0.6, 0.9), "call_prob is"),
    ],
)
def test_bad_arguments_are_refused(call, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        call()
