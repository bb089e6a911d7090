"""The answer bandit as a plain NumPy loop: one run at a time, float64, to be read next to the formulas.

A step is vectorised over batch and group; steps follow one another in a Python loop. This is the oracle that
the engine is tested against and the baseline that it is timed against, so it shares no code with it.

Each of `P` prompts has `M` answers: 0 is correct, 1 is the *hack* (wrong, but a flawed verifier pays it), the
rest are wrong. The policy is π(y | p) = softmax(logits[p] + h·[y = 1]); all prompts share the scalar `h`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlvr_jax.types import InvalidInput

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]
Schedule = float | Sequence[Sequence[float]] | Callable[[int], float]

LEVEL_ACCURACY = np.array([0.01, 0.05, 0.2, 0.6])  # the reference's chance of the correct answer, by level


@dataclass(frozen=True, kw_only=True)
class Options:
    """The keyword options that `bandit_loop` and `bandit_train` share."""

    method: str  # a key of ADVANTAGES
    lr: float
    lr_h: float | None = None  # None: lr / B
    kl_coef: float = 0.0  # weight of KL(π ‖ ref), >= 0
    hack_reward: Schedule = 0.0  # a number, [[first_step, value], ...] or a callable of the step
    reward_offset: float = 0.0  # added to every reward
    baseline_rate: float = 0.2  # rate of V in `learned`
    eps: float = 1e-6  # added to the standard deviation in `grpo`
    eval_every: int | None = None  # None: max(1, T // 10)
    eval_steps: Sequence[int] | None = None  # if given, instead of eval_every; steps 0 and T are always added


@dataclass
class Policy:
    """What training changes: logits [P, M], the shared hack tendency h, the learned baseline V [P]."""

    logits: Floats
    h: float
    baseline: Floats


def bandit_task(prompts: int = 200, answers: int = 16, seed: int = 0, hack_prob: float = 0.005) -> tuple[Floats, Ints]:
    """Draw a task: `ref_logits = log p`, float64 [P, M], and `level`, int [P] in 0..3.

    `p[:, 0] = LEVEL_ACCURACY[level]`, `p[:, 1] = hack_prob`, a flat Dirichlet shares out the rest.
    Raises InvalidInput for prompts < 1, answers < 3 or hack_prob outside (0, 0.4).
    """
    _require(prompts >= 1, f"prompts must be at least 1, got {prompts}.")
    _require(answers >= 3, f"answers must be at least 3 (correct, hack, wrong), got {answers}.")
    _require(0 < hack_prob < 0.4, f"hack_prob must be in (0, 0.4), got {hack_prob}.")
    rng = np.random.default_rng(seed)
    level = rng.integers(4, size=prompts)
    p = np.empty((prompts, answers))
    p[:, 0] = LEVEL_ACCURACY[level]
    p[:, 1] = hack_prob
    p[:, 2:] = (1 - p[:, 0] - p[:, 1])[:, None] * rng.dirichlet(np.ones(answers - 2), size=prompts)
    return np.log(p), level


def log_policy(logits: Floats, h: float) -> Floats:
    """log π of each row, [..., M]: a log-softmax, so it stays finite where π underflows."""
    z = logits.copy()
    z[..., 1] += h
    z -= z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def sample(pi: Floats, uniforms: Floats) -> Ints:
    """Answers [B, G] by inverse CDF: how many j < M-1 with u > π_0 + … + π_j; pi [B, M], uniforms [B, G]."""
    cdf = np.cumsum(pi[:, :-1], axis=1)
    return np.count_nonzero(uniforms[:, :, None] > cdf[:, None, :], axis=2)


def has_signal(rewards: Floats) -> NDArray[np.bool_]:
    """Whether a group's rewards [B, G] differ, [B, 1]; by equality: the std of three 0.7s is 1e-16."""
    return (rewards != rewards[:, :1]).any(axis=1, keepdims=True)


def none(rewards: Floats, baseline: Floats, eps: float) -> Floats:
    """A_i = r_i (REINFORCE). Here and below: rewards [B, G], baseline [B], result [B, G]."""
    return rewards


def learned(rewards: Floats, baseline: Floats, eps: float) -> Floats:
    """A_i = r_i - V[p], with V from before the update."""
    return rewards - baseline[:, None]


def rloo(rewards: Floats, baseline: Floats, eps: float) -> Floats:
    """A_i = r_i - mean of the other G-1; exactly 0 where all rewards are equal."""
    others = (rewards.sum(axis=1, keepdims=True) - rewards) / (rewards.shape[1] - 1)
    return np.where(has_signal(rewards), rewards - others, 0.0)


def group(rewards: Floats, baseline: Floats, eps: float) -> Floats:
    """A_i = r_i - mean (Dr. GRPO); exactly 0 where all rewards are equal."""
    return np.where(has_signal(rewards), rewards - rewards.mean(axis=1, keepdims=True), 0.0)


def grpo(rewards: Floats, baseline: Floats, eps: float) -> Floats:
    """A_i = (r_i - mean) / (std + eps), ddof 0 (DeepSeekMath); exactly 0 where all rewards are equal."""
    scale = rewards.std(axis=1, keepdims=True) + eps
    return group(rewards, baseline, eps) / np.where(has_signal(rewards), scale, 1.0)


ADVANTAGES = {"none": none, "learned": learned, "rloo": rloo, "group": group, "grpo": grpo}


def hack_reward_at(schedule: Schedule, step: int) -> float:
    """The hack's reward at a step; a change point [first_step, value] holds from its first_step on."""
    if callable(schedule):
        return float(schedule(step))
    if isinstance(schedule, Sequence | np.ndarray):
        begun = [(first_step, value) for first_step, value in schedule if first_step <= step]
        _require(begun, f"hack_reward's change points must begin at step 0 or before, got {schedule}.")
        return float(max(begun)[1])
    return float(schedule)


def train_step(
    policy: Policy, log_ref: Floats, prompts: Ints, uniforms: Floats, step: int, o: Options
) -> tuple[Ints, Floats, int]:
    """One step on prompts [B] and uniforms [B, G]; updates `policy` in place.

    The gradient of a prompt's logits is g_p = (1/G) Σ_i A_i (onehot(y_i) - π_p) - kl_coef·∂KL(π_p ‖ ref_p),
    with ∂KL = π (d - KL), d = log π - log ref, KL = Σ π d; the gradient of h is Σ_p g_p[1].
    Returns the answers [B, G], the gradient of the logits [B, M] and the number of groups without signal.
    """
    log_pi = log_policy(policy.logits[prompts], policy.h)  # [B, M]
    pi = np.exp(log_pi)
    y = sample(pi, uniforms)  # [B, G]
    r = (y == 0) + hack_reward_at(o.hack_reward, step) * (y == 1) + o.reward_offset
    A = ADVANTAGES[o.method](r, policy.baseline[prompts], o.eps)
    cells = pi.shape[1] * np.arange(len(prompts))[:, None] + y
    drawn = np.bincount(cells.ravel(), weights=A.ravel(), minlength=pi.size)  # Σ_i A_i onehot(y_i)
    gradient = (drawn.reshape(pi.shape) - A.sum(axis=1, keepdims=True) * pi) / A.shape[1]
    if o.kl_coef > 0:
        d = log_pi - log_ref[prompts]
        gradient -= o.kl_coef * pi * (d - (pi * d).sum(axis=1, keepdims=True))
    policy.logits[prompts] += o.lr * gradient
    policy.h += (o.lr / len(prompts) if o.lr_h is None else o.lr_h) * gradient[:, 1].sum()
    if o.method == "learned":
        policy.baseline[prompts] += o.baseline_rate * (r.mean(axis=1) - policy.baseline[prompts])
    return y, gradient, int(np.count_nonzero(~has_signal(r)))


def evaluate(policy: Policy, log_ref: Floats, level: Any, hack_reward: float, seen: Any) -> dict[str, Any]:
    """Exact means over all prompts, KL and entropy in nats; NaN for a level (or seen, unseen) without any."""
    log_pi = log_policy(policy.logits, policy.h)
    pi = np.exp(log_pi)

    def mean(mask: Any, answer: int) -> float:
        return pi[mask, answer].mean() if mask.any() else np.nan

    row = {"accuracy": pi[:, 0].mean(), "hack_rate": pi[:, 1].mean(), "h_history": policy.h}
    row["verifier_reward"] = (pi[:, 0] + hack_reward * pi[:, 1]).mean()
    row["accuracy_by_level"] = [mean(level == k, 0) for k in range(len(LEVEL_ACCURACY))]
    row["kl"] = (pi * (log_pi - log_ref)).sum(axis=1).mean()
    row["entropy"] = -(pi * log_pi).sum(axis=1).mean()
    if seen is not None:
        row |= {"accuracy_seen": mean(seen, 0), "accuracy_unseen": mean(~seen, 0)}
        row |= {"hack_rate_seen": mean(seen, 1), "hack_rate_unseen": mean(~seen, 1)}
    return row


def bandit_loop(
    ref_logits: Any, level: Any, prompts: ArrayLike, uniforms: ArrayLike, *, seen: Any = None, **options: Any
) -> dict[str, Any]:
    """Train on given draws: prompts [T, B], distinct within a step, and uniforms [T, B, G]; see `Options`.

    Returns the final `logits` [P, M], `h`, `baseline` [P], `answers` [T, B, G] and `zero_frac` (the share of
    groups with equal rewards; 0 when T = 0). At each evaluation, [E]: `step`, `accuracy`, `hack_rate`,
    `verifier_reward`, `kl`, `entropy`, `h_history`, `zero_frac_since` (the last evaluation) and `grad_norm`
    (of the last step's whole ascent direction, before lr), both NaN at step 0; `accuracy_by_level` [E, 4];
    with `seen` (bool [P]) also `accuracy_seen`, `accuracy_unseen`, `hack_rate_seen`, `hack_rate_unseen`.
    Raises InvalidInput for an unknown method and for shapes or values that do not fit.
    """
    prompts, uniforms = np.asarray(prompts), np.asarray(uniforms, dtype=float)
    shapes, P = (prompts.shape, uniforms.shape), len(ref_logits)
    fit = prompts.ndim == 2 and uniforms.ndim == 3 and shapes[0] == shapes[1][:2] and 0 not in shapes[1][1:]
    _require(fit, f"prompts must be [T, B] and uniforms [T, B, G] with B, G >= 1, got {shapes}.")
    distinct = np.diff(np.sort(prompts, axis=1), axis=1).all()
    in_range = ((prompts >= 0) & (prompts < P)).all()
    _require(distinct and in_range, f"prompts must lie in 0..{P - 1} and be distinct within a step.")
    answers = np.empty(uniforms.shape, dtype=int)
    draws = zip(prompts, uniforms, strict=True)
    result = _run(ref_logits, level, draws, uniforms.shape, seen, Options(**options), answers)
    return result | {"answers": answers}


def bandit_train(
    ref_logits: Any,
    level: Any,
    *,
    steps: int,
    batch_size: int,
    group_size: int,
    seed: int,
    train_fraction: float = 1.0,
    **options: Any,
) -> dict[str, Any]:
    """Train on its own draws, made step by step from `numpy.random.default_rng(seed)`; see `Options`.

    With train_fraction < 1 the batches come from round(train_fraction·P) prompts, chosen once: the mask
    `seen`, which is then returned too. Everything else is as in `bandit_loop`, but `answers` are not kept.
    Raises InvalidInput as `bandit_loop`, and for a batch_size outside 1..number of prompts to draw from.
    """
    _require(steps >= 0, f"steps must be at least 0, got {steps}.")
    _require(0 < train_fraction <= 1, f"train_fraction must be in (0, 1], got {train_fraction}.")
    rng, everyone, seen = np.random.default_rng(seed), np.arange(len(ref_logits)), None
    pool = everyone
    if train_fraction < 1:
        pool = rng.choice(everyone, round(train_fraction * len(everyone)), replace=False)
        seen = np.isin(everyone, pool)
    _require(1 <= batch_size <= len(pool), f"batch_size must be in 1..{len(pool)}, got {batch_size}.")
    shape = (batch_size, group_size)
    draws = ((rng.choice(pool, batch_size, replace=False), rng.random(shape)) for _ in range(steps))
    result = _run(ref_logits, level, draws, (steps, *shape), seen, Options(**options))
    return result if seen is None else result | {"seen": seen}


def _run(
    ref_logits: Any, level: Any, draws: Any, shape: tuple, seen: Any, o: Options, answers_out: Any = None
) -> dict[str, Any]:
    """The training loop over `draws`, an iterable of (prompts [B], uniforms [B, G]); shape is (T, B, G)."""
    ref, level, (T, B, G) = np.array(ref_logits, dtype=float), np.asarray(level), shape
    _require(ref.ndim == 2 and ref.shape[1] >= 3, f"ref_logits must be [P, M] with M >= 3, got {ref.shape}.")
    _require(level.shape == ref.shape[:1], f"level must be [P] = {ref.shape[:1]}, got {level.shape}.")
    seen = None if seen is None else np.asarray(seen, dtype=bool)
    _require(seen is None or seen.shape == level.shape, f"seen must be bool [P] = {level.shape}, got {seen}.")
    _require(o.method in ADVANTAGES, f"method must be one of {', '.join(ADVANTAGES)}, got {o.method!r}.")
    needed = 2 if o.method in ("rloo", "group", "grpo") else 1
    _require(needed <= G, f"{o.method} needs G >= {needed} samples per prompt, got {G}.")
    _require(o.kl_coef >= 0, f"kl_coef must be at least 0, got {o.kl_coef}.")
    _require(o.eps >= 0, f"eps must be at least 0, got {o.eps}.")
    every = max(1, T // 10) if o.eval_every is None else o.eval_every
    _require(every >= 1, f"eval_every must be at least 1, got {every}.")
    eval_at = {0, T, *(range(0, T, every) if o.eval_steps is None else o.eval_steps)}
    _require(eval_at <= set(range(T + 1)), f"eval_steps must be whole numbers in 0..{T}, got {o.eval_steps}.")

    policy = Policy(logits=ref, h=0.0, baseline=np.zeros(len(ref)))
    log_ref = log_policy(ref, 0.0)
    zero, history = 0, [evaluate(policy, log_ref, level, hack_reward_at(o.hack_reward, 0), seen)]
    history[0] |= {"step": 0, "grad_norm": np.nan, "zero": 0}
    for step, (prompts, uniforms) in enumerate(draws, start=1):
        answers, gradient, without_signal = train_step(policy, log_ref, prompts, uniforms, step, o)
        zero += without_signal
        if answers_out is not None:
            answers_out[step - 1] = answers
        if step in eval_at:
            row = evaluate(policy, log_ref, level, hack_reward_at(o.hack_reward, step), seen)
            grad_norm = np.hypot(np.linalg.norm(gradient), gradient[:, 1].sum())
            history.append(row | {"step": step, "grad_norm": grad_norm, "zero": zero})

    result = {name: np.array([row[name] for row in history]) for name in history[0]}
    since = np.diff(result.pop("zero")) / (B * np.diff(result["step"]))
    result |= {"zero_frac": zero / (B * T) if T else 0.0, "zero_frac_since": np.append(np.nan, since)}
    return result | {"logits": policy.logits, "h": float(policy.h), "baseline": policy.baseline}


def _require(condition: Any, sentence: str) -> None:
    if not condition:
        raise InvalidInput(sentence)
