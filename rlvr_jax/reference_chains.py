"""Tool use on chain arithmetic in plain Python: scalar ints, one rollout after another, next to the formulas.

A chain is a start and up to `L` steps (op, operand). Before each step the policy calls a calculator with
probability σ(theta[context]), or computes by itself, sometimes wrongly. This is the oracle that the engine is
tested against and the slower of the two baselines that it is timed against, so it shares no code with it;
`reference_arithmetic` trains with it. Letters that are not those of `types`: `N` problems, `L` steps of the longest
chain, `K` = 12 contexts, `R` rollouts of a problem in an evaluation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlvr_jax.reference import ADVANTAGES
from rlvr_jax.types import InvalidInput

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]

ADD, SUB, MUL1, MUL2 = range(4)  # ops; MUL1 multiplies by one digit, MUL2 by two
OP_RATES = (0.55, 0.18, 0.14, 0.13)
CONTEXTS = tuple(f"{op}_{difficulty}" for op in ("add", "sub", "mul1", "mul2") for difficulty in range(3))
SKILL = (0.99, 0.98, 0.70, 0.99, 0.90, 0.80, 0.80, 0.75, 0.35, 0.60, 0.50, 0.25)  # chance of a correct step at i = 0
SLIPS = (-10, -1, 1, 10)  # what carelessness adds


class Problems(NamedTuple):
    """`start` [N]; `op` [N, L], -1 pads; `operand` [N, L], 0 pads; `length` [N]; `answer` [N]."""

    start: Ints
    op: Ints
    operand: Ints
    length: Ints
    answer: Ints


class Draws(NamedTuple):
    """What rollouts read, each [..., L]: uniforms in [0, 1), and `offset`, an index into SLIPS."""

    u_call: Any
    u_fail: Any
    u_own: Any
    offset: Any


@dataclass(frozen=True, kw_only=True)
class Model:
    """The fixed model: how well it computes by itself, and how often it calls before any training."""

    initial_call_prob: float = 0.05
    skill: Sequence[float] = SKILL  # [K]
    skill_decay: float = 0.1  # the step at position i is correct with probability skill^(1 + skill_decay·i)
    bug_share: float = 0.2  # of what is not correct; the rest is careless


@dataclass(frozen=True, kw_only=True)
class Options(Model):
    """The keyword options of a training, besides those of `Model`."""

    method: str  # a key of reference.ADVANTAGES
    call_cost: float  # subtracted from the reward for each call
    lr: float = 20.0
    tool_fail: float = 0.05  # chance that the calculator fails
    baseline_rate: float = 0.2  # rate of V in `learned`
    eps: float = 1e-6  # added to the standard deviation in `grpo`
    eval_every: int | None = None  # None: max(1, T // 10)
    eval_steps: Sequence[int] | None = None  # if given, instead of eval_every; steps 0 and T are always added


@dataclass
class Policy:
    """What training changes: theta [K] and the learned baseline V [N]."""

    theta: Floats
    baseline: Floats


class Rollouts(NamedTuple):
    """The rollouts of a step, or of T steps with T in front; `call` and `context` are -1 past a chain's end."""

    call: Ints  # [B, G, L]
    context: Ints  # [B, G, L]
    final_x: Ints  # [B, G]
    correct: NDArray[np.bool_]  # [B, G]
    reward: Floats  # [B, G]
    advantage: Floats  # [B, G]


class Kernel(NamedTuple):
    """The three loops over rollouts, as this module or `reference_arithmetic_batch` writes them."""

    train_step: Callable[[Policy, Problems, Ints, Draws, Options], tuple[Rollouts, Floats]]
    sft_epoch: Callable[[Floats, Problems, Floats, Ints, Model], Floats]
    evaluate: Callable[[Floats, Problems, Draws, Options], tuple[float, float]]


def arithmetic_problems(n: int, seed: int, min_steps: int = 3, max_steps: int = 8) -> Problems:
    """Draw `n` chains of min_steps..max_steps steps; L = max_steps.

    No step makes a number above 100 000 longer by two digits, or one above 1 000 000 by one; nothing is subtracted
    below 100, so true values are positive. Raises InvalidInput for n < 1 or lengths outside 1 <= min <= max.
    """
    _require(n >= 1, f"n must be at least 1, got {n}.")
    _require(1 <= min_steps <= max_steps, f"1 <= min_steps <= max_steps must hold, got {min_steps} and {max_steps}.")
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(OP_RATES)
    op = np.full((n, max_steps), -1, dtype=np.int8)
    start, operand, length, answer = [np.zeros(s, dtype=np.int64) for s in (n, (n, max_steps), n, n)]
    for j in range(n):
        start[j] = x = int(rng.integers(10, 100))
        length[j] = rng.integers(min_steps, max_steps + 1)
        for i in range(length[j]):
            chosen = int(np.argmax(cumulative > rng.random()))
            if (chosen == MUL2 and x > 100_000) or (chosen == MUL1 and x > 1_000_000):
                chosen = ADD if rng.random() < 0.5 else SUB
            if chosen == SUB and x < 100:
                chosen = ADD
            k = int(rng.integers(2, 10) if chosen == MUL1 else rng.integers(10, 100))
            op[j, i], operand[j, i] = chosen, k
            x = exact(chosen, x, k)
        answer[j] = x
    return Problems(start, op, operand, length, answer)


def exact(op: int, x: int, k: int) -> int:
    """The true result of a step."""
    return x + k if op == ADD else x - k if op == SUB else x * k


def digits(number: int) -> tuple[int, int]:
    """The last two decimal digits of |number|, the lower one first."""
    number = abs(number)
    return number % 10, number // 10 % 10


def context(op: int, x: int, k: int) -> int:
    """3·op + difficulty (0, 1 or 2), from the current value x, which may be wrong, and the operand k.

    An addition is hard if one of the two lower columns carries, a subtraction if one borrows; a hard one is
    harder from 1000 on. A product gets harder at 100 and at 1000.
    """
    (a0, a1), (k0, k1) = digits(x), digits(k)
    if op in (ADD, SUB):
        hard = (a0 + k0 >= 10 or a1 + k1 >= 10) if op == ADD else (a0 < k0 or a1 < k1)
        return 3 * op + (1 + (abs(x) >= 1000) if hard else 0)
    return 3 * op + (abs(x) >= 100) + (abs(x) >= 1000)


def careless(op: int, x: int, k: int, offset: int) -> int:
    """The true result, off by one of SLIPS."""
    return exact(op, x, k) + SLIPS[offset]


def bug(op: int, x: int, k: int) -> int:
    """A systematic mistake: carries or borrows of two columns are dropped; MUL2 forgets the shift of the tens row."""
    (a0, a1), (k0, k1) = digits(x), digits(k)
    if op == ADD:
        return x + k - 10 * (a0 + k0 >= 10) - 100 * (a1 + k1 >= 10)
    if op == SUB:
        return x - k + 10 * (a0 < k0) + 100 * (a1 < k1)
    if op == MUL1:
        return x * k - 10 * (a0 * k // 10) - 100 * (a1 * k // 10)
    return x * (k0 + k1)


def own_prob(o: Model, steps: int) -> list[list[float]]:
    """P(correct | position i, context c) = skill[c]^(1 + skill_decay·i) of the model by itself, [steps][K]."""
    return [[skill ** (1 + o.skill_decay * i) for skill in o.skill] for i in range(steps)]


def own_result(op: int, x: int, k: int, p: float, u: float, offset: int, bug_share: float) -> int:
    """The model by itself: correct if u < p, a bug if u < p + bug_share·(1 - p), else careless."""
    if u < p:
        return exact(op, x, k)
    if u < p + bug_share * (1 - p):
        return bug(op, x, k)
    return careless(op, x, k, offset)


def sigmoid(theta: Floats) -> Floats:
    """1 / (1 + e^-theta), without overflow."""
    return np.exp(-np.logaddexp(0.0, -theta))


def logit(p: Any) -> Floats:
    """The inverse of `sigmoid`."""
    return np.log(p) - np.log1p(-np.asarray(p, dtype=float))


def rollout(
    start: int, steps: Sequence[tuple[int, int]], call_prob: list[float], own: list[list[float]], u: Draws, o: Options
) -> tuple[list[int], list[int], int]:
    """One rollout: the context of each decision, the decision (1: call), and the final value.

    A draw of `u` (each a list [L]) is read only where it is needed.
    """
    x, contexts, calls = start, [], []
    for i, (op, k) in enumerate(steps):
        c = context(op, x, k)
        call = u.u_call[i] < call_prob[c]
        if call and u.u_fail[i] >= o.tool_fail:
            x = exact(op, x, k)
        else:
            x = own_result(op, x, k, own[i][c], u.u_own[i], u.offset[i], o.bug_share)
        contexts.append(c)
        calls.append(int(call))
    return contexts, calls, x


def chain(problems: Problems, n: int) -> tuple[int, list[tuple[int, int]], int]:
    """Problem n in plain ints: start, steps (op, operand), answer."""
    length = problems.length[n]
    steps = zip(problems.op[n, :length].tolist(), problems.operand[n, :length].tolist(), strict=True)
    return int(problems.start[n]), list(steps), int(problems.answer[n])


def train_step(policy: Policy, problems: Problems, chosen: Ints, draws: Draws, o: Options) -> tuple[Rollouts, Floats]:
    """One step on the problems `chosen` [B] with draws [B, G, L]; updates `policy` in place.

    reward = correct - call_cost·calls; the gradient for a context is the sum over its decisions of
    A (call - σ(theta)) / (B G). What the calculator returns is no action of the model: it has no gradient.
    Returns the rollouts and each problem's push on calling, Σ_i A_i Σ_decisions (call - σ(theta)), [B].
    """
    B, G, L = np.shape(draws.u_call)
    call_prob, own = sigmoid(policy.theta).tolist(), own_prob(o, L)
    u = Draws(*(np.asarray(values).tolist() for values in draws))
    contexts, calls, final_x, correct, reward = [], [], [], [], []
    for b, n in enumerate(chosen):
        start, steps, answer = chain(problems, n)
        past_end = [-1] * (L - len(steps))
        for g in range(G):
            c, called, x = rollout(start, steps, call_prob, own, Draws(*(values[b][g] for values in u)), o)
            contexts.append(c + past_end)
            calls.append(called + past_end)
            final_x.append(x)
            correct.append(x == answer)
            reward.append((x == answer) - o.call_cost * sum(called))
    r = np.array(reward, dtype=float).reshape(B, G)
    A = ADVANTAGES[o.method](r, policy.baseline[chosen], o.eps)
    gradient, push = [0.0] * len(call_prob), [0.0] * B
    for j, advantage in enumerate(A.ravel().tolist()):
        for c, called in zip(contexts[j], calls[j], strict=True):
            if c >= 0:
                score = called - call_prob[c]
                gradient[c] += advantage * score / (B * G)
                push[j // G] += advantage * score
    policy.theta += o.lr * np.array(gradient)
    if o.method == "learned":
        policy.baseline[chosen] += o.baseline_rate * (r.mean(axis=1) - policy.baseline[chosen])
    call, met = (np.array(values, dtype=np.int8).reshape(B, G, L) for values in (calls, contexts))
    final, right = (np.array(values).reshape(B, G) for values in (final_x, correct))
    return Rollouts(call, met, final, right, r, A), np.array(push)


def sft_epoch(theta: Floats, problems: Problems, u_own: Floats, offset: Ints, o: Model) -> Floats:
    """Σ over all decisions of (expert_call - σ(theta)) by context, [K]: the log-likelihood's gradient.

    Runs the first len(u_own) problems, u_own and offset [examples, L]. The expert calls exactly on MUL2, and its
    calculator never fails; all else it computes as the model does.
    """
    call_prob, own, gradient = sigmoid(theta).tolist(), own_prob(o, u_own.shape[1]), [0.0] * len(theta)
    for n, (u, slip) in enumerate(zip(u_own.tolist(), offset.tolist(), strict=True)):
        x, steps, _ = chain(problems, n)
        for i, (op, k) in enumerate(steps):
            c = context(op, x, k)
            gradient[c] += (op == MUL2) - call_prob[c]
            x = exact(op, x, k) if op == MUL2 else own_result(op, x, k, own[i][c], u[i], slip[i], o.bug_share)
    return np.array(gradient)


def evaluate(theta: Floats, problems: Problems, draws: Draws, o: Options) -> tuple[float, float]:
    """Mean correctness and mean number of calls over draws [N, R, L]: R rollouts of each problem."""
    N, R, L = np.shape(draws.u_call)
    call_prob, own, correct, calls = sigmoid(theta).tolist(), own_prob(o, L), 0, 0
    u = Draws(*(np.asarray(values).tolist() for values in draws))
    for n in range(N):
        start, steps, answer = chain(problems, n)
        for r in range(R):
            _, called, x = rollout(start, steps, call_prob, own, Draws(*(values[n][r] for values in u)), o)
            correct += x == answer
            calls += sum(called)
    return correct / (N * R), calls / (N * R)


PLAIN = Kernel(train_step, sft_epoch, evaluate)


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Draws:
    """Fresh draws, each of `shape`."""
    u_call, u_fail, u_own = rng.random((3, *shape))
    return Draws(u_call, u_fail, u_own, rng.integers(len(SLIPS), size=shape, dtype=np.int8))


def _require(condition: Any, sentence: str) -> None:
    if not condition:
        raise InvalidInput(sentence)
