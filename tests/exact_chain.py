"""Exact expectations on short chains, by enumeration of all that can happen; nothing is sampled.

At each step a rollout calls or not, the calculator works or fails, and the model by itself is correct, makes a bug
or one of four slips: at most 12 ways on. Ways with the same value and the same decisions by context are one, and a
`Leaves` row is a class of complete rollouts: P(row) = chance · Π_c σ(theta_c)^calls_c · (1 - σ(theta_c))^holds_c.
The functions of theta work on NumPy arrays and on JAX arrays, under `jax.grad` too.
"""

from collections import defaultdict
from itertools import combinations_with_replacement
from math import factorial, prod
from typing import NamedTuple

import numpy as np

from rlvr_jax.reference import ADVANTAGES
from rlvr_jax.reference_chains import SLIPS, Model, bug, chain, context, exact, own_prob


class Leaves(NamedTuple):
    """Classes of rollouts, J of them: they differ in decisions by context or in correctness."""

    chance: np.ndarray  # [J] of all that is not a decision: skill, slips, the calculator
    calls: np.ndarray  # [J, K] calls by context
    holds: np.ndarray  # [J, K] decisions not to call, by context
    correct: np.ndarray  # [J], 0 or 1


class GroupStep(NamedTuple):
    """Expectations over one problem's group of G rollouts."""

    gradient: np.ndarray  # [K] of (1/G) Σ_i A_i Σ_decisions (call - σ(theta))
    zero_frac: float  # P(all rewards are equal)
    equal_outcome_frac: float  # P(all right or all wrong)
    push_equal: float  # of Σ_i A_i Σ_decisions (call - σ(theta)), where outcomes are equal
    push_mixed: float  # the same, where they are not


def leaves(problems, n=0, model=None, tool_fail=0.05):
    """All complete rollouts of problem n."""
    model = model or Model()
    start, steps, answer = chain(problems, n)
    own, none = own_prob(model, len(steps)), (0,) * len(model.skill)
    ways = {(start, none, none): 1.0}  # (x, calls by context, holds by context) -> chance
    for i, (op, k) in enumerate(steps):
        following = defaultdict(float)
        for (x, calls, holds), chance in ways.items():
            c, right = context(op, x, k), exact(op, x, k)
            p = own[i][c]
            by_itself = [(right, p), (bug(op, x, k), model.bug_share * (1 - p))]
            by_itself += [(right + slip, (1 - model.bug_share) * (1 - p) / len(SLIPS)) for slip in SLIPS]
            called, held = _one_more(calls, c), _one_more(holds, c)
            following[right, called, holds] += chance * (1 - tool_fail)
            for value, share in by_itself:
                following[value, called, holds] += chance * tool_fail * share
                following[value, calls, held] += chance * share
        ways = following
    classes = defaultdict(float)
    for (x, calls, holds), chance in ways.items():
        classes[calls, holds, int(x == answer)] += chance
    rows = [(chance, *key) for key, chance in sorted(classes.items()) if chance > 0]
    chance, calls, holds, correct = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return Leaves(chance, calls, holds, correct)


def probabilities(rows, theta):
    """P of each class, [J]."""
    xp = theta.__array_namespace__()
    return rows.chance * xp.exp(-rows.calls @ xp.logaddexp(0.0, -theta) - rows.holds @ xp.logaddexp(0.0, theta))


def rewards(rows, call_cost):
    """correct - call_cost · calls of each class, [J]."""
    return rows.correct - call_cost * rows.calls.sum(axis=1)


def scores(rows, theta):
    """∇ log P of each class, [J, K]: Σ over decisions of (call - σ(theta)) by context."""
    return rows.calls - (rows.calls + rows.holds) / (1 + np.exp(-theta))


def expected_accuracy(rows, theta):
    """P(the final value is the answer)."""
    return probabilities(rows, theta) @ rows.correct


def expected_calls(rows, theta):
    """E[calls]."""
    return probabilities(rows, theta) @ rows.calls.sum(axis=1)


def expected_reward(rows, theta, call_cost):
    """E[correct - call_cost · calls], differentiable in theta."""
    return probabilities(rows, theta) @ rewards(rows, call_cost)


def gradient(rows, theta, call_cost):
    """∇ E[reward] = E[reward · ∇ log P], [K]; what the calculator returns is no decision and has no part in it."""
    return (probabilities(rows, theta) * rewards(rows, call_cost)) @ scores(rows, theta)


def group_step(rows, theta, call_cost, method, group_size, eps=1e-6, baseline=0.0):
    """What a training step makes of the problem in expectation, by enumeration of all groups of `group_size`."""
    p, r, S = probabilities(rows, theta), rewards(rows, call_cost), scores(rows, theta)
    members = np.array(list(combinations_with_replacement(range(len(p)), group_size)))  # [groups, G]
    ways = [factorial(group_size) / prod(map(factorial, np.bincount(group).tolist())) for group in members]
    chance = np.array(ways) * p[members].prod(axis=1)
    assert abs(chance.sum() - 1) < 1e-12
    A = ADVANTAGES[method](r[members], np.full(len(members), baseline), eps)
    pushes = (A[:, :, None] * S[members]).sum(axis=1)  # [groups, K]
    right = rows.correct[members].sum(axis=1)
    equal = (right == 0) | (right == group_size)
    same = (r[members] == r[members][:, :1]).all(axis=1)
    push = pushes.sum(axis=1)
    return GroupStep(
        chance @ pushes / group_size,
        float(chance @ same),
        float(chance @ equal),
        float(chance @ (push * equal)),
        float(chance @ (push * ~equal)),
    )


def _one_more(counts, c):
    return (*counts[:c], counts[c] + 1, *counts[c + 1 :])
