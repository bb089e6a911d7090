"""Exact expectations on short chains, against hand computation, automatic differentiation and the loops."""

import exact_chain
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from rlvr_jax import reference_chains as chains
from rlvr_jax.reference import ADVANTAGES
from rlvr_jax.reference_arithmetic import arithmetic_loop
from rlvr_jax.reference_arithmetic_batch import BATCH
from rlvr_jax.reference_chains import ADD, CONTEXTS, MUL1, MUL2, SUB, Problems

COST, TOOL_FAIL = 0.07, 0.15

#: One and two steps; every op, easy and hard, both orders of skill, a bug that repairs itself.
PROBLEMS = Problems(
    start=np.array([21, 78, 1025, 163, 12, 98, 34, 900]),
    op=np.array([[ADD, -1], [ADD, -1], [MUL2, -1], [SUB, ADD], [MUL1, MUL2], [ADD, MUL1], [MUL2, SUB], [MUL1, MUL1]]),
    operand=np.array([[34, 0], [44, 0], [25, 0], [45, 26], [7, 83], [34, 6], [56, 75], [2, 9]]),
    length=np.array([1, 1, 1, 2, 2, 2, 2, 2]),
    answer=np.array([55, 122, 25625, 144, 6972, 792, 1829, 16200]),
)
THETA = np.random.default_rng(1).normal(0.0, 1.0, 12)
EACH = range(len(PROBLEMS.start))


def rows_of(n, **options):
    return exact_chain.leaves(PROBLEMS, n, tool_fail=TOOL_FAIL, **options)


def test_one_step_by_hand():
    """78 + 44 carries twice, p = .98: a call is right with .85 + .15 p, the model with p; nothing else is 122."""
    rows, c = rows_of(1), CONTEXTS.index("add_1")
    assert rows.chance.shape == (4,)  # called or not, right or wrong
    q = 1 / (1 + np.exp(-THETA[c]))
    called, alone = 0.85 + 0.15 * 0.98, 0.98
    assert exact_chain.expected_accuracy(rows, THETA) == pytest.approx(q * called + (1 - q) * alone, rel=1e-14)
    assert exact_chain.expected_calls(rows, THETA) == pytest.approx(q, rel=1e-14)
    expected = np.zeros(12)
    expected[c] = q * (1 - q) * (called - alone - COST)
    assert_allclose(exact_chain.gradient(rows, THETA, COST), expected, rtol=1e-12, atol=1e-16)


def test_two_steps_by_hand():
    """98 + 34, then · 6, with skill .5 at every context and no decay: the contexts of the second step by hand.

    132 (and the slips 122, 131, 133, 142) are mul1_1; a bug, 12 (both carries dropped from 132), is mul1_0.
    """
    model = chains.Model(skill=[0.5] * 12, skill_decay=0.0, bug_share=0.4)
    rows, theta = rows_of(5, model=model), np.zeros(12)
    theta[[CONTEXTS.index(name) for name in ("add_1", "mul1_0", "mul1_1")]] = chains.logit([0.3, 0.6, 0.8])
    right = 0.3 * (0.85 + 0.15 * 0.5) + 0.7 * 0.5
    bugs = (0.3 * 0.15 + 0.7) * 0.5 * 0.4
    calls = 0.3 + 0.6 * bugs + 0.8 * (1 - bugs)
    # right twice: nothing that is wrong comes back to 792 (72 and 732, 786, 798, 852; 12 · 6 = 72, slips ± 10)
    accuracy = right * (0.8 * (0.85 + 0.15 * 0.5) + 0.2 * 0.5)
    assert exact_chain.expected_calls(rows, theta) == pytest.approx(calls, rel=1e-14)
    assert exact_chain.expected_accuracy(rows, theta) == pytest.approx(accuracy, rel=1e-14)


def test_two_errors_can_cancel():
    """163 - 45 with a dropped borrow is 128 instead of 118, and a slip of -10 at + 26 makes it right again: 144."""
    rows = rows_of(3, model=chains.Model(skill=[0.5] * 12, skill_decay=0.0, bug_share=0.4))
    twice_right = (0.85 + 0.15 * 0.5) ** 2
    always = exact_chain.expected_accuracy(rows, np.full(12, 40.0))
    # a slip and its opposite, four pairs; 128, from the bug or from a slip, is repaired by -10 or by the bug of the
    # second step, which drops the carry of 8 + 6
    slip, bug = 0.15 * 0.5 * 0.6 / 4, 0.15 * 0.5 * 0.4
    cancelled = 4 * slip * slip + bug * slip + bug * bug + slip * bug
    assert always == pytest.approx(twice_right + cancelled, rel=1e-12)


@pytest.mark.parametrize("n", EACH)
def test_probabilities_add_up_and_unread_contexts_do_not_matter(n):
    rows = rows_of(n)
    assert exact_chain.probabilities(rows, THETA).sum() == pytest.approx(1, rel=1e-13)
    assert_array_equal((rows.calls + rows.holds).sum(axis=1), PROBLEMS.length[n])
    unread = ~(rows.calls + rows.holds).any(axis=0)
    assert_array_equal(exact_chain.gradient(rows, THETA, COST)[unread], 0)


@pytest.mark.parametrize("n", EACH)
def test_the_gradient_is_the_derivative_of_the_expected_reward(n):
    rows = rows_of(n)
    with jax.enable_x64(True):
        value, derivative = jax.value_and_grad(lambda theta: exact_chain.expected_reward(rows, theta, COST))(
            jnp.asarray(THETA)
        )
        value, derivative = float(value), np.asarray(derivative)
    assert value == pytest.approx(exact_chain.expected_reward(rows, THETA, COST), rel=1e-13)
    assert_allclose(derivative, exact_chain.gradient(rows, THETA, COST), rtol=1e-12, atol=1e-15)
    assert np.abs(derivative).max() > 1e-3


ROLLOUTS = 100_000


@pytest.fixture(scope="module")
def sampled():
    """1e5 rollouts of each problem from the vectorised loop: correctness, calls and scores, [8, 1e5(, K)]."""
    B, L = PROBLEMS.op.shape
    draws = chains.draw(np.random.default_rng(2), (1, B, ROLLOUTS, L))._asdict() | {"problem": np.arange(B)[None]}
    options = {"method": "rloo", "call_cost": COST, "tool_fail": TOOL_FAIL, "lr": 1.0}
    out = arithmetic_loop(PROBLEMS, draws, theta0=THETA, kernel=BATCH, **options)
    rollouts = out["rollouts"]
    score = np.zeros((B, ROLLOUTS, 12))
    for i in range(L):
        c, call = rollouts.context[0, :, :, i], rollouts.call[0, :, :, i]
        here = c[:, :, None] == np.arange(12)
        score += np.where(here, call[:, :, None] - chains.sigmoid(THETA), 0.0)
    calls = (rollouts.call[0] == 1).sum(axis=2)
    return rollouts.correct[0], calls, score, rollouts.advantage[0], out["theta"]


def within(values, expected, what):
    """The mean of `values` [n, ...] lies within 4 standard errors of what is expected."""
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    off = np.abs(values.mean(axis=0) - expected)
    assert (off <= 4 * error + 1e-15).all(), f"{what}: {np.max(off / np.maximum(error, 1e-300))} standard errors"


@pytest.mark.parametrize("n", EACH)
def test_the_loop_agrees_with_the_enumeration(n, sampled):
    """About 50 comparisons at 4 standard errors: 0.3 % false alarms over all seeds; this one is fixed."""
    correct, calls, score, advantage, _ = sampled
    rows = rows_of(n)
    within(correct[n], exact_chain.expected_accuracy(rows, THETA), "accuracy")
    within(calls[n], exact_chain.expected_calls(rows, THETA), "calls")
    within(correct[n] - COST * calls[n], exact_chain.expected_reward(rows, THETA, COST), "reward")
    within(advantage[n][:, None] * score[n], exact_chain.gradient(rows, THETA, COST), "gradient")


def test_the_step_is_the_mean_gradient(sampled):
    """What the loop adds to theta is lr times the mean over problems of the sampled gradients."""
    _, _, score, advantage, theta = sampled
    assert_allclose(theta[1] - theta[0], (advantage[:, :, None] * score).mean(axis=(0, 1)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [2, 5])
def test_the_expected_group_of_unbiased_methods_is_the_gradient(n):
    """none, learned (any fixed V) and rloo are unbiased; group is (G - 1)/G of it; grpo is neither."""
    rows, exact = rows_of(n), exact_chain.gradient(rows_of(n), THETA, COST)
    steps = {m: exact_chain.group_step(rows, THETA, COST, m, 3, baseline=0.4) for m in ADVANTAGES}
    for method in ("none", "learned", "rloo"):
        assert_allclose(steps[method].gradient, exact, rtol=1e-10, atol=1e-14)
    assert_allclose(steps["group"].gradient, exact * 2 / 3, rtol=1e-10, atol=1e-14)
    assert np.abs(steps["grpo"].gradient - exact).max() > 0.01
    for step in steps.values():
        assert step.push_equal + step.push_mixed == pytest.approx(3 * step.gradient.sum(), rel=1e-10)
    right = exact_chain.expected_accuracy(rows, THETA)
    assert steps["grpo"].equal_outcome_frac == pytest.approx(right**3 + (1 - right) ** 3, rel=1e-12)
    free = exact_chain.group_step(rows, THETA, 0.0, "grpo", 3)
    assert free.zero_frac == free.equal_outcome_frac
    assert free.push_equal == 0
    assert steps["grpo"].zero_frac < steps["grpo"].equal_outcome_frac
    assert steps["grpo"].push_equal < 0  # where outcomes are equal, only the cost tells rollouts apart


@pytest.mark.parametrize("method", ["rloo", "grpo"])
def test_the_loop_agrees_with_the_enumerated_groups(method):
    """40,000 groups of 3: about 10 comparisons at 4 standard errors, 0.06 % false alarms over all seeds."""
    groups, G, L, n = 40_000, 3, 2, 5
    copies = Problems(*(np.repeat(values[n : n + 1], groups, axis=0) for values in PROBLEMS))
    draws = chains.draw(np.random.default_rng(3), (1, groups, G, L))._asdict() | {"problem": np.arange(groups)[None]}
    options = {"method": method, "call_cost": COST, "tool_fail": TOOL_FAIL, "lr": 0.0, "eval_steps": []}
    out = arithmetic_loop(copies, draws, theta0=THETA, kernel=BATCH, **options)
    expected = exact_chain.group_step(rows_of(n), THETA, COST, method, G)
    rollouts = out["rollouts"]
    score = np.where(rollouts.context >= 0, rollouts.call - chains.sigmoid(THETA)[rollouts.context], 0.0)[0]
    pushes = rollouts.advantage[0, :, :, None] * score  # [groups, G, L]
    by_context = [np.where(rollouts.context[0] == c, pushes, 0.0).sum(axis=(1, 2)) for c in range(12)]
    within(np.stack(by_context, axis=1) / G, expected.gradient, "gradient")
    correct, reward, push = rollouts.correct[0], rollouts.reward[0], pushes.sum(axis=(1, 2))
    equal = correct.all(axis=1) | ~correct.any(axis=1)
    samples = {"zero_frac": (reward == reward[:, :1]).all(axis=1), "equal_outcome_frac": equal}
    samples |= {"push_equal": push * equal, "push_mixed": push * ~equal}
    for name, values in samples.items():
        within(values, getattr(expected, name), name)
        assert out[name][1] == pytest.approx(values.mean(), rel=1e-9)
