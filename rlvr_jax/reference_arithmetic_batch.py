"""Tool use on chain arithmetic in NumPy, vectorised over all rollouts of a step: the faster of the two baselines.

Positions of a chain follow one another in a Python loop; at each, every rollout of the batch moves at once. The
rules are written in another way than in `reference_chains`, without branches: add, sub and mul1 are all
x → scale·x + shift, each of their two lower columns is column_scale·digit + column_shift, and what a column carries
is that, divided by 10 and rounded down (a borrow is a carry of -1).
"""

from typing import Any, NamedTuple

import numpy as np

from rlvr_jax.reference import ADVANTAGES
from rlvr_jax.reference_chains import (
    ADD,
    CONTEXTS,
    MUL1,
    MUL2,
    SLIPS,
    SUB,
    Draws,
    Floats,
    Ints,
    Kernel,
    Model,
    Options,
    Policy,
    Problems,
    Rollouts,
    own_prob,
    sigmoid,
)


class Steps(NamedTuple):
    """The steps of the chosen problems as numbers, each [L, B, 1]; a padded step leaves x as it is."""

    scale: Ints  # the true result is scale·x + shift
    shift: Ints
    bug_scale: Ints  # a bug is bug_scale·x + shift less what the columns carry
    column_scale: Ints
    ones_shift: Ints
    tens_shift: Ints
    product: Any  # bool: whether difficulty follows the size alone
    first_context: Ints  # 3·op
    expert: Any  # bool: where the expert calls
    present: Any  # bool


class Moves(NamedTuple):
    """What the rollouts did, each [L, B, G]; `context` is -1 past a chain's end, `call` then means nothing."""

    context: Ints
    call: Any
    final_x: Ints  # [B, G]


def steps_of(problems: Problems, chosen: Ints) -> Steps:
    """The arithmetic of the chosen problems' steps."""
    op, k = (np.asarray(values[chosen]).T[:, :, None].astype(np.int64) for values in (problems.op, problems.operand))
    tens, ones = np.divmod(k, 10)
    sign = (op == ADD) * 1 - (op == SUB)
    scale = np.where(op >= MUL1, k, 1)
    bug_scale = np.where(op == MUL2, tens + ones, scale)
    column_scale = np.where(op == MUL1, k, sign != 0)
    return Steps(
        *(scale, sign * k, bug_scale, column_scale, sign * ones, sign * tens),
        *(op >= MUL1, 3 * op, op == MUL2, op >= 0),
    )


def roll(steps: Steps, x: Ints, own: Floats, u: Draws, bug_share: float, decide: Any) -> Moves:
    """Moves all rollouts through their chains: x [B, 1] the starts, u [L, B, G], own [L, K].

    `decide(i, context)` gives the decision to call and whether the calculator then works, each [B, G].
    """
    moves, x = [], np.broadcast_to(x, u.u_own.shape[1:])
    for i in range(np.count_nonzero(steps.present.any(axis=(1, 2)))):
        s = Steps(*(values[i] for values in steps))
        size = np.abs(x)
        carry = (s.column_scale * (size % 10) + s.ones_shift) // 10
        carry_tens = (s.column_scale * (size // 10 % 10) + s.tens_shift) // 10
        hard = np.where(s.product, size >= 100, (carry != 0) | (carry_tens != 0))
        context = s.first_context + hard * (1 + (size >= 1000))
        exact = s.scale * x + s.shift
        p = own[i][context]
        careless = exact + _SLIPS[u.offset[i]]
        bug = s.bug_scale * x + s.shift - 10 * carry - 100 * carry_tens
        mistake = np.where(u.u_own[i] < p + bug_share * (1 - p), bug, careless)
        call, works = decide(i, context)
        result = np.where((call & works) | (u.u_own[i] < p), exact, mistake)
        x = np.where(s.present, result, x)
        moves.append((np.where(s.present, context, -1), call))
    contexts, calls = zip(*moves, strict=True)
    return Moves(np.array(contexts), np.array(calls), x)


def sample(theta: Floats, problems: Problems, chosen: Ints, draws: Draws, o: Options) -> tuple[Moves, Floats]:
    """Rollouts of the policy on the chosen problems with draws [B, G, L], and σ(theta)."""
    u = Draws(*(np.moveaxis(np.asarray(values), -1, 0) for values in draws))
    call_prob = sigmoid(theta)

    def decide(i: int, context: Ints) -> tuple[Any, Any]:
        return u.u_call[i] < call_prob[context], u.u_fail[i] >= o.tool_fail

    own = np.array(own_prob(o, len(u.u_own)))
    return roll(steps_of(problems, chosen), problems.start[chosen][:, None], own, u, o.bug_share, decide), call_prob


def train_step(policy: Policy, problems: Problems, chosen: Ints, draws: Draws, o: Options) -> tuple[Rollouts, Floats]:
    """`reference_chains.train_step`, vectorised."""
    B, G, L = np.shape(draws.u_call)
    moves, call_prob = sample(policy.theta, problems, chosen, draws, o)
    present = moves.context >= 0
    calls = np.count_nonzero(moves.call & present, axis=0)
    correct = moves.final_x == problems.answer[chosen][:, None]
    r = correct - o.call_cost * calls
    A = ADVANTAGES[o.method](r, policy.baseline[chosen], o.eps)
    pushes = A * np.where(present, moves.call - call_prob[moves.context], 0.0)
    policy.theta += o.lr * _by_context(moves.context, pushes) / (B * G)
    if o.method == "learned":
        policy.baseline[chosen] += o.baseline_rate * (r.mean(axis=1) - policy.baseline[chosen])
    call, context = np.full((2, B, G, L), -1, dtype=np.int8)
    call[..., : len(present)] = np.moveaxis(np.where(present, moves.call, -1), 0, -1)
    context[..., : len(present)] = np.moveaxis(moves.context, 0, -1)
    return Rollouts(call, context, moves.final_x, correct, r, A), pushes.sum(axis=(0, 2))


def sft_epoch(theta: Floats, problems: Problems, u_own: Floats, offset: Ints, o: Model) -> Floats:
    """`reference_chains.sft_epoch`, vectorised."""
    steps = steps_of(problems, np.arange(len(u_own)))
    u = Draws(*(values.T[:, :, None] for values in (u_own, u_own, u_own, offset)))
    own = np.array(own_prob(o, len(u.u_own)))
    starts = problems.start[: len(u_own), None]
    moves = roll(steps, starts, own, u, o.bug_share, lambda i, context: (steps.expert[i], True))
    score = moves.call - sigmoid(theta)[moves.context]
    return _by_context(moves.context, score)


def evaluate(theta: Floats, problems: Problems, draws: Draws, o: Options) -> tuple[float, float]:
    """`reference_chains.evaluate`, vectorised."""
    moves, _ = sample(theta, problems, np.arange(len(problems.start)), draws, o)
    calls = np.count_nonzero(moves.call & (moves.context >= 0), axis=0)
    return float((moves.final_x == problems.answer[:, None]).mean()), float(calls.mean())


def _by_context(context: Ints, values: Floats) -> Floats:
    """Sums of values by context, [K]; what is past the end belongs to none."""
    sums = np.bincount(context.ravel() + 1, values.ravel(), len(CONTEXTS) + 1)
    return sums[1:].astype(float)


_SLIPS = np.array(SLIPS)

BATCH = Kernel(train_step, sft_epoch, evaluate)
