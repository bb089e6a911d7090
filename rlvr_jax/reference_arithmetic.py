"""Trainings on chain arithmetic, plain or vectorised: the loop over steps, evaluations and the supervised start.

What happens inside a step is a `Kernel`: `reference_chains.PLAIN`, one rollout after another, or
`reference_arithmetic_batch.BATCH`, all rollouts at once. On the same draws both give the same decisions.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rlvr_jax.reference import ADVANTAGES, has_signal
from rlvr_jax.reference_chains import (
    CONTEXTS,
    PLAIN,
    Draws,
    Floats,
    Ints,
    Kernel,
    Model,
    Options,
    Policy,
    Rollouts,
    draw,
    logit,
    sigmoid,
)
from rlvr_jax.types import InvalidInput

#: Means over the groups since the last evaluation.
SINCE = ("zero_frac", "equal_outcome_frac", "push_equal", "push_mixed")


def arithmetic_loop(
    problems: Any,
    draws: Mapping[str, Any],
    *,
    theta0: Any = None,
    test: tuple[Any, Draws] | None = None,
    kernel: Kernel = PLAIN,
    **options: Any,
) -> dict[str, Any]:
    """Train on given draws; see `Options`.

    `draws` holds `problem` int [T, B], distinct within a step, and the fields of `Draws`, each [T, B, G, L]; what
    is not read may be anything (NaN, -1). `theta0` [K] is where training starts, logit(initial_call_prob) if None.

    Returns `theta` [T+1, K], the learned `baseline` [N] and the `rollouts` of all steps. At each evaluation, [E]:
    `step`; `call_prob` [E, K] by context; and over the groups since the last evaluation (NaN at step 0)
    `zero_frac`, the share with equal rewards, `equal_outcome_frac`, the share of all right or all wrong, and
    `push_equal`, `push_mixed`, the push Σ A·score from groups of equal outcome and from the others, both divided by
    the number of *all* groups, so that they add up to the mean push. With `test`, problems and draws
    [N', R, L] to evaluate on, also `accuracy`, `calls` per problem and `reward`.
    Raises InvalidInput for an unknown method and for shapes or values that do not fit.
    """
    problem, given = np.asarray(draws["problem"]), Draws(*(np.asarray(draws[name]) for name in Draws._fields))
    shapes = (problem.shape, *(values.shape for values in given))
    fit = len(shapes[1]) == 4 and shapes[0] == shapes[1][:2] and len(set(shapes[1:])) == 1 and 0 not in shapes[1]
    _require(fit, f"problem must be [T, B] and the other draws [T, B, G, L], none of them 0, got {shapes}.")
    distinct = np.diff(np.sort(problem, axis=1), axis=1).all()
    N = len(problems.start)
    in_range = ((problem >= 0) & (problem < N)).all()
    _require(distinct and in_range, f"problem must lie in 0..{N - 1} and be distinct within a step.")
    steps = ((problem[t], Draws(*(values[t] for values in given))) for t in range(len(problem)))
    record: list[Rollouts] = []
    result = _run(problems, steps, shapes[1], theta0, test, kernel, Options(**options), record)
    return result | {"rollouts": Rollouts(*map(np.array, zip(*record, strict=True)))}


def sft_loop(
    problems: Any,
    u_own: Any,
    offset: Any,
    *,
    lr: float = 0.05,
    theta0: Any = None,
    kernel: Kernel = PLAIN,
    **model: Any,
) -> Floats:
    """Supervised start on given draws u_own, offset [E, examples, L]: theta after each epoch, [E+1, K].

    theta += lr·`sft_epoch`; theta0 as in `arithmetic_loop`, and see `Model` for the other options.
    Raises InvalidInput for shapes that do not fit and for more examples than problems.
    """
    o, u_own, offset, N = Model(**model), np.asarray(u_own, dtype=float), np.asarray(offset), len(problems.start)
    shapes = (u_own.shape, offset.shape)
    _require(u_own.ndim == 3 and shapes[0] == shapes[1], f"u_own and offset must be [E, examples, L], got {shapes}.")
    _require(u_own.shape[1] <= N, f"the problems, {N}, must be at least as many as the examples, {u_own.shape[1]}.")
    theta = [_first_theta(theta0, o)]
    for u, slips in zip(u_own, offset, strict=True):
        theta.append(theta[-1] + lr * kernel.sft_epoch(theta[-1], problems, u, slips, o))
    return np.array(theta)


def arithmetic_train(
    problems: Any,
    test: Any,
    *,
    steps: int = 60,
    batch_size: int = 16,
    group_size: int = 8,
    seed: int = 0,
    eval_repeats: int = 3,
    cold_start: bool = False,
    sft_examples: int = 50,
    sft_epochs: int = 30,
    sft_lr: float = 0.05,
    kernel: Kernel = PLAIN,
    **options: Any,
) -> dict[str, Any]:
    """Train on its own draws, made step by step from `numpy.random.default_rng(seed)`; see `Options`.

    Training, evaluation and the supervised start have streams of their own, so that a cold start changes no other
    draw. Returns what `arithmetic_loop` does, but the `rollouts` are not kept, and after a cold start `sft_theta`
    [sft_epochs+1, K]. Raises InvalidInput as it does, and for a batch_size outside 1..number of problems.
    """
    N, L = problems.op.shape
    _require(1 <= batch_size <= N, f"batch_size must be in 1..{N}, got {batch_size}.")
    for name, size, least in (("steps", steps, 0), ("group_size", group_size, 1), ("eval_repeats", eval_repeats, 1)):
        _require(size >= least, f"{name} must be at least {least}, got {size}.")
    o = Options(**options)
    train_rng, test_rng, sft_rng = np.random.default_rng(seed).spawn(3)
    result, theta0 = {}, None
    if cold_start:
        model = {name: getattr(o, name) for name in Model.__dataclass_fields__}
        drawn = draw(sft_rng, (sft_epochs, sft_examples, L))
        result["sft_theta"] = sft_loop(problems, drawn.u_own, drawn.offset, lr=sft_lr, kernel=kernel, **model)
        theta0 = result["sft_theta"][-1]
    shape = (batch_size, group_size, L)
    given = ((train_rng.choice(N, batch_size, replace=False), draw(train_rng, shape)) for _ in range(steps))
    evaluated = test, draw(test_rng, (len(test.start), eval_repeats, test.op.shape[1]))
    return result | _run(problems, given, (steps, *shape), theta0, evaluated, kernel, o)


def _run(
    problems: Any,
    draws: Iterable[tuple[Ints, Draws]],
    shape: tuple[int, ...],
    theta0: Any,
    test: tuple[Any, Draws] | None,
    kernel: Kernel,
    o: Options,
    record: list[Rollouts] | None = None,
) -> dict[str, Any]:
    """The training loop over `draws`, an iterable of (problem [B], Draws [B, G, L]); shape is (T, B, G, L)."""
    T, B, G, L = shape
    _require(problems.op.shape[1] <= L, f"the draws must reach {problems.op.shape[1]} positions, got {L}.")
    _require(o.method in ADVANTAGES, f"method must be one of {', '.join(ADVANTAGES)}, got {o.method!r}.")
    needed = 2 if o.method in ("rloo", "group", "grpo") else 1
    _require(needed <= G, f"{o.method} needs G >= {needed} rollouts per problem, got {G}.")
    every = max(1, T // 10) if o.eval_every is None else o.eval_every
    _require(every >= 1, f"eval_every must be at least 1, got {every}.")
    eval_at = {0, T, *(range(0, T, every) if o.eval_steps is None else o.eval_steps)}
    _require(eval_at <= set(range(T + 1)), f"eval_steps must be whole numbers in 0..{T}, got {o.eval_steps}.")
    _require(0 <= o.tool_fail <= 1, f"tool_fail must be in 0..1, got {o.tool_fail}.")
    if test is not None:
        (N, reach), at = test[0].op.shape, np.shape(test[1].u_call)
        fit = len(at) == 3 and at[0] == N and at[2] >= reach
        _require(fit, f"the draws of test must be [{N}, R, {reach}], got {at}.")

    policy = Policy(_first_theta(theta0, o), np.zeros(len(problems.start)))
    theta, history, totals, groups = [policy.theta.copy()], [], np.full(len(SINCE), np.nan), 1

    def evaluation(step: int) -> dict[str, Any]:
        row = {"step": step, "call_prob": sigmoid(policy.theta)} | dict(zip(SINCE, totals / groups, strict=True))
        if test is not None:
            row["accuracy"], row["calls"] = kernel.evaluate(policy.theta, *test, o)
            row["reward"] = row["accuracy"] - o.call_cost * row["calls"]
        return row

    history.append(evaluation(0))
    totals, groups = np.zeros(len(SINCE)), 0
    for step, (chosen, drawn) in enumerate(draws, start=1):
        rollouts, push = kernel.train_step(policy, problems, chosen, drawn, o)
        theta.append(policy.theta.copy())
        if record is not None:
            record.append(rollouts)
        equal_reward = ~has_signal(rollouts.reward)[:, 0]
        equal_outcome = rollouts.correct.all(axis=1) | ~rollouts.correct.any(axis=1)
        totals += [equal_reward.sum(), equal_outcome.sum(), push[equal_outcome].sum(), push[~equal_outcome].sum()]
        groups += B
        if step in eval_at:
            history.append(evaluation(step))
            totals, groups = np.zeros(len(SINCE)), 0

    result = {name: np.array([row[name] for row in history]) for name in history[0]}
    return result | {"theta": np.array(theta), "baseline": policy.baseline}


def _first_theta(theta0: Any, o: Model) -> Floats:
    _require(len(o.skill) == len(CONTEXTS), f"skill must hold {len(CONTEXTS)} numbers, got {len(o.skill)}.")
    if theta0 is None:
        _require(0 < o.initial_call_prob < 1, f"initial_call_prob must be in (0, 1), got {o.initial_call_prob}.")
        return np.full(len(CONTEXTS), logit(o.initial_call_prob))
    theta0 = np.array(theta0, dtype=float)
    _require(theta0.shape == (len(CONTEXTS),), f"theta0 must be [{len(CONTEXTS)}], got {theta0.shape}.")
    return theta0


def _require(condition: Any, sentence: str) -> None:
    if not condition:
        raise InvalidInput(sentence)
