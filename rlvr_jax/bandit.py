"""The answer bandit: its task, its policy and verifier, and one training step.

Each prompt has M answers: answer 0 is correct, answer 1 is the *hack* (wrong, but a flawed verifier pays it), the rest
are wrong. The policy is a table of logits with one shared scalar h, the tendency to hack:

    π(y | p) = softmax(logits[p] + h [y = 1])

Here are the task, what a grid may vary, and single runs; the training step itself is `rlvr_jax.bandit_program`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.special import log_softmax

from rlvr_jax import devices, draws, single
from rlvr_jax.advantages import ESTIMATORS
from rlvr_jax.bandit_program import Program, thresholds
from rlvr_jax.grid import Grid
from rlvr_jax.lanes import Layout
from rlvr_jax.numerics import Stage
from rlvr_jax.types import REQUIRED, Columns, InvalidInput, Metric, Parameter, World, numbers

#: The reference model's chance of the correct answer at each difficulty level.
LEVEL_RATES = (0.01, 0.05, 0.2, 0.6)
LEVELS = ("very hard 1%", "hard 5%", "medium 20%", "easy 60%")


@dataclass(frozen=True)
class Task:
    """Prompts with a reference policy.

    Attributes:
      ref_logits: float64 ``[P, M]``, log-probabilities of the reference policy.
      level: int ``[P]``, index into `LEVELS`.
    """

    ref_logits: np.ndarray
    level: np.ndarray


def make_task(prompts: int = 200, answers: int = 16, seed: int = 0, hack_prob: float = 0.005) -> Task:
    """A task of the bandit, the same number for number wherever it is made.

    Args:
      prompts: P, from 1 to 2^16.
      answers: M, from 3 to 2^16.
      seed: Seed of ``numpy.random.default_rng``, from 0 to 2^32 - 1.
      hack_prob: The reference policy's chance of the hack, in (0, 0.4).

    Raises:
      InvalidInput: If an argument is outside its range.

    >>> task = make_task()
    >>> np.bincount(task.level).tolist(), float(np.exp(task.ref_logits[:, 0]).mean().round(3))
    ([42, 47, 52, 59], 0.243)
    """
    for name, value in (("prompts", prompts), ("answers", answers), ("task_seed", seed)):
        allowed = PARAMETERS[name]
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not allowed.contains(value):
            raise InvalidInput(f"{name.removeprefix('task_')} is {value!r}; it must be {allowed.allowed}")
    if not isinstance(hack_prob, Real) or not 0 < hack_prob < 0.4:
        raise InvalidInput(f"hack_prob is {hack_prob!r}; it must lie between 0 and 0.4")
    rng = np.random.default_rng(seed)
    level = rng.integers(4, size=prompts)
    probability = np.empty((prompts, answers))
    probability[:, 0] = np.asarray(LEVEL_RATES)[level]
    probability[:, 1] = hack_prob
    rest = 1 - probability[:, 0] - probability[:, 1]
    probability[:, 2:] = rest[:, None] * rng.dirichlet(np.ones(answers - 2), size=prompts)
    return Task(np.log(probability), level)


def pass_at_k(p: Any, k: Any) -> np.ndarray:
    """Chance that at least one of k independent answers is correct: 1 - (1 - p)^k.

    Args:
      p: Chance of a correct answer, in [0, 1]; any shape.
      k: Number of answers, whole and >= 0; broadcasts against ``p``.

    Raises:
      InvalidInput: If an argument is outside its range or the shapes do not fit.

    >>> pass_at_k(0.5, np.array([1, 2, 3])).tolist()
    [0.5, 0.75, 0.875]
    """
    p, k = numbers(p, "p", "probabilities in [0, 1]"), numbers(k, "k", "whole numbers at least 0")
    if not np.all((p >= 0) & (p <= 1)):
        raise InvalidInput(f"p reaches from {p.min()} to {p.max()}; a probability lies in [0, 1]")
    if not np.all((k >= 0) & (k == np.round(k))):
        raise InvalidInput(f"k reaches from {k.min():g} to {k.max():g}; it must be whole numbers at least 0")
    try:
        np.broadcast_shapes(p.shape, k.shape)
    except ValueError:
        raise InvalidInput(f"p has shape {p.shape} and k {k.shape}; they must broadcast against each other") from None
    # log1p keeps a p far below the rounding of 1 - p
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = np.where(k == 0, 0.0, k * np.log1p(-p))
    return 0.0 - np.expm1(missed)  # not -0.0


#: Parameters on which the draws and the task depend.
SEEDED = ("task_seed", "hack_prob", "prompt_seed", "answer_seed")

#: Traced numbers of a lane.
NUMBERS = ("lr", "lr_h", "kl_coef", "reward_offset", "baseline_rate", "eps")

PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("method", "advantage estimator", default=REQUIRED, choices=tuple(sorted(ESTIMATORS))),
        Parameter("lr", "learning rate of the logits", default=REQUIRED, least=0),
        Parameter("lr_h", "learning rate of h; lr / batch_size unless given", least=0),
        Parameter("kl_coef", "weight of KL(π || ref)", default=0.0, least=0),
        Parameter("hack_reward", "what the verifier pays for the hack", default=0.0, scheduled=True),
        Parameter("reward_offset", "added to every reward", default=0.0),
        Parameter("baseline_rate", "rate of the learned baseline", default=0.2, least=0, most=1),
        Parameter("eps", "added to the standard deviation by grpo", default=1e-6, least=0),
        Parameter("batch_size", "B, prompts a step", "size", 32, whole=True, least=1, most=draws.MOST_CHOICES),
        Parameter("group_size", "G, samples a prompt", "size", 8, whole=True, least=1, most=2**16),
        Parameter("prompts", "P, prompts of the task", "shape", 200, whole=True, least=1, most=draws.MOST_CHOICES),
        Parameter("answers", "M, answers a prompt", "shape", 16, whole=True, least=3, most=2**16),
        Parameter("hack_prob", "the reference's chance of the hack", "draw", 0.005, above=0, below=0.4),
        Parameter("train_fraction", "share of the prompts that are trained on", "draw", 1.0, above=0, most=1),
        Parameter("seed", "seed of the draws", "draw", 0, whole=True, least=0, below=draws.SEEDS),
        Parameter("task_seed", "seed of the task", "draw", 0, whole=True, least=0, below=draws.SEEDS),
        *(
            Parameter(name, f"{about}; seed unless given", "draw", whole=True, least=0, below=draws.SEEDS)
            for name, about in (("prompt_seed", "seed of the prompts' order"), ("answer_seed", "seed of the answers"))
        ),
    )
}

METRICS = {
    "accuracy": Metric("mean probability of the correct answer"),
    "hack_rate": Metric("mean probability of the hack"),
    "verifier_reward": Metric("mean reward that the verifier pays, without the offset"),
    "accuracy_by_level": Metric("accuracy at each level of difficulty", ("level",)),
    "zero_frac": Metric("share of groups with equal rewards since the last evaluation"),
    "zero_frac_total": Metric("share of groups with equal rewards in the whole training", total=True),
    "kl": Metric("mean KL(π || ref), nats"),
    "entropy": Metric("mean entropy, nats"),
    "grad_norm": Metric("Euclidean norm of the gradient of all parameters at the last step"),
    "h": Metric("shared tendency to hack"),
    "accuracy_seen": Metric("accuracy on the prompts that are trained on", only_with="train_fraction"),
    "accuracy_unseen": Metric("accuracy on the other prompts", only_with="train_fraction"),
    "hack_rate_seen": Metric("hack rate on the prompts that are trained on", only_with="train_fraction"),
    "hack_rate_unseen": Metric("hack rate on the other prompts", only_with="train_fraction"),
    "correct_prob": Metric("probability of the correct answer of each prompt", ("prompt",), kept=False),
    "logits": Metric("logits at the end", ("prompt", "answer"), total=True, kept=False),
}


def _derive(columns: Columns, grid: Grid) -> Columns:
    """Fills what follows from other parameters, and refuses combinations that mean nothing."""
    columns = dict(columns)
    columns.setdefault("lr_h", columns["lr"] / columns["batch_size"])
    for name in ("prompt_seed", "answer_seed"):
        columns.setdefault(name, columns["seed"])
    methods = PARAMETERS["method"].choices
    smallest = np.array([ESTIMATORS[name].smallest_group for name in methods])[columns["method"]]
    small = np.flatnonzero(columns["group_size"] < smallest)
    if len(small):
        name = methods[columns["method"][small[0]]]
        raise InvalidInput(
            f"group_size is {columns['group_size'][small[0]]} with method {name!r}; "
            f"it needs at least {smallest[small[0]]} samples a prompt"
        )
    pool = pool_size(columns)
    small = np.flatnonzero(columns["batch_size"] > pool)
    if len(small):
        i = small[0]
        raise InvalidInput(
            f"batch_size is {columns['batch_size'][i]}; it must be at most {pool[i]}, the prompts to draw from "
            f"(prompts {columns['prompts'][i]}, train_fraction {columns['train_fraction'][i]:g})"
        )
    return columns


def pool_size(columns: Columns) -> np.ndarray:
    """Prompts that may be drawn: train_fraction * P, rounded half to even."""
    return np.round(columns["train_fraction"] * columns["prompts"]).astype(np.int64)


def _program(layout: Layout, grid: Grid, cells: np.ndarray) -> Program:
    columns = {name: column[cells] for name, column in grid.columns.items()}
    batch, group = columns["batch_size"], columns["group_size"]
    return Program(
        layout=layout,
        prompts=int(columns["prompts"][0]),
        answers=int(columns["answers"][0]),
        batch=int(batch.max()),
        group=int(group.max()),
        batch_masked=bool((batch < batch.max()).any()),
        group_masked=bool((group < group.max()).any()),
        subset=bool((columns["train_fraction"] < 1).any()),
        kl=bool((columns["kl_coef"] > 0).any()),
    )


def _inputs(
    program: Program, grid: Grid, cell: np.ndarray, task: Task | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a program reads: arrays of each item ``[N, ...]`` and arrays that all items share; see `Context`.

    The task of each cell is made from its seed unless one is given for all.
    """
    columns, dtype = grid.columns, np.dtype(grid.precision)
    lane = cell.reshape(len(cell), -1)  # [N, L]
    seed = {name: columns[name][cell[:, 0]] for name in SEEDED}  # [N, W]
    size = pool_size({name: columns[name][cell[:, 0]] for name in ("train_fraction", "prompts")})
    place = np.zeros(seed["task_seed"].shape, np.int32)
    if task is None:
        given = np.stack([seed["task_seed"], seed["hack_prob"]], -1).reshape(-1, 2)
        kinds, which = np.unique(given, axis=0, return_inverse=True)
        place = which.reshape(place.shape).astype(np.int32)
        tasks = [make_task(program.prompts, program.answers, int(s), float(p)) for s, p in kinds]
    else:
        tasks = [task]
    ref_logits = np.stack([t.ref_logits for t in tasks])
    inputs = {
        "task": place,
        "pool": _pools(program, seed["prompt_seed"], size),
        "pool_size": size.astype(np.int32),
        "prompt_seed": seed["prompt_seed"].astype(np.uint32),
        "answer_seed": seed["answer_seed"].astype(np.uint32),
        "payment": columns["hack_reward"][lane].astype(np.int32),
        "numbers": {name: columns[name][lane].astype(dtype) for name in NUMBERS}
        | {name: columns[name][lane].astype(np.int32) for name in ("batch_size", "group_size")},
    }
    shared = {
        "ref_logits": ref_logits.astype(dtype),
        "log_ref": log_softmax(ref_logits, axis=-1).astype(dtype),
        "level": np.stack([t.level for t in tasks]).astype(np.int32),
        "payments": grid.tables.astype(dtype),
    }
    return inputs, shared


def _pools(program: Program, seed: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The prompts of each seed ``[N, W, P]``, those that may be drawn first; ``[N, W, 0]`` where all may."""
    if not program.subset:
        return np.zeros((*seed.shape, 0), np.int32)
    pools = np.empty((*seed.shape, program.prompts), np.int32)
    for place in np.ndindex(seed.shape):
        # sorted, so that a pool of all prompts is the list 0, 1, ... that a program without pools draws from
        order = np.random.default_rng([int(seed[place]), _POOL_STREAM]).permutation(program.prompts)
        first, rest = np.split(order, [size[place]])
        pools[place] = np.concatenate([np.sort(first), rest])
    return pools


_POOL_STREAM = 1

WORLD = World(
    name="bandit",
    about="softmax answer bandit: advantage methods, reward hacking, KL, pass@k",
    parameters=PARAMETERS,
    metrics=METRICS,
    sized_by={"prompt": "prompts", "answer": "answers"},
    labels={"level": LEVELS},
    derive=_derive,
    program=_program,
    inputs=_inputs,
    work=lambda columns: columns["batch_size"] * columns["answers"] * (columns["group_size"] + 8),
    row=lambda columns: columns["batch_size"] * columns["answers"],
    state=lambda columns: columns["prompts"] * (columns["answers"] + 1),
)


def train(
    task: Task, *, steps: int, seed: int = 0, precision: str = "float32", **options: Any
) -> dict[str, np.ndarray]:
    """One training on ``task``: the program of a sweep, with one cell in it.

    Args:
      task: From `make_task`, or arrays of one's own.
      steps: T >= 0.
      seed: Of the prompts and answers.
      precision: "float32" or "float64".
      **options: ``method`` and ``lr``; and as in `rlvr_jax.sweep` ``batch_size`` (32), ``group_size`` (8), ``lr_h``,
        ``kl_coef``, ``hack_reward``, ``reward_offset``, ``baseline_rate``, ``eps``, ``train_fraction``,
        ``prompt_seed``, ``answer_seed``, ``eval_every``, ``eval_steps``, ``keep``.

    Returns:
      By name: the metrics of a sweep ``[E, ...]`` with their ``step [E]``, ``zero_frac_total``, ``diverged_step``
      (-1 for never), and the final ``logits [P, M]``.

    Raises:
      InvalidInput: As `rlvr_jax.sweep`.

    >>> run = train(make_task(), method="rloo", steps=20, lr=0.5)
    >>> run["step"].tolist(), run["accuracy"].shape, run["logits"].shape
    ([0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20], (11,), (200, 16))
    """
    grid = _one(task, options, steps=steps, seed=seed, precision=precision)
    program, inputs, shared = _alone(task, grid)
    return single.train(grid, program, inputs, shared, ("zero_frac_total", "logits"))


def replay(task: Task, prompts: Any, uniforms: Any, **options: Any) -> Mapping[str, np.ndarray]:
    """One training in float64 on given draws, through the step that sweeps run.

    Args:
      task: From `make_task`, or arrays of one's own.
      prompts: int ``[T, B]``, distinct within a step.
      uniforms: ``[T, B, G]``, in [0, 1].
      **options: ``method`` and ``lr``; ``lr_h`` (lr / B), ``kl_coef`` (0), ``hack_reward`` (0; a number,
        ``[[first_step, value], ...]`` or a callable of the step), ``reward_offset`` (0), ``baseline_rate`` (0.2),
        ``eps`` (1e-6), ``eval_every`` (max(1, T // 10)) or ``eval_steps``.

    Returns:
      By name: ``logits [P, M]``, ``h``, ``baseline [P]``, ``zero_frac``, ``answers [T, B, G]``, ``diverged_step``
      (-1 for never), and at each evaluation ``step [E]`` and the metrics of a sweep ``[E, ...]``; of those ``h`` and
      ``zero_frac`` are called ``h_history`` and ``zero_frac_since``.

    Raises:
      InvalidInput: For shapes and values that do not fit, and as `rlvr_jax.sweep`.

    >>> draws = np.random.default_rng(0)
    >>> prompts = np.stack([draws.permutation(200)[:4] for _ in range(3)])
    >>> run = replay(make_task(), prompts, draws.random((3, 4, 8)), method="grpo", lr=0.5)
    >>> run["answers"].shape, run["step"].tolist()
    ((3, 4, 8), [0, 1, 2, 3])
    """
    _check_task(task)
    chosen, uniforms = numbers(prompts, "prompts", "[T, B]"), numbers(uniforms, "uniforms", "[T, B, G]")
    _check_draws(task, chosen, uniforms)
    prompts = chosen.astype(np.int32)
    steps, batch, samples = uniforms.shape
    grid = _one(task, options, steps=steps, batch_size=batch, group_size=samples, precision="float64")
    program, inputs, shared = _alone(task, grid)
    counted = np.isin(np.arange(steps + 1), grid.eval_steps)
    devices.use_compile_cache()
    with jax.enable_x64(True):
        one = jax.tree.map(lambda x: x[0], inputs)
        draw = (prompts[..., None], uniforms[..., None])
        state, answers, metrics = jax.tree.map(
            np.asarray, _replayed(program, one, shared, draw, counted, np.bool_(True))
        )
    method = grid.fixed["method"]
    memory = state.memory[0].get("baseline", np.zeros((len(task.level), 1, 1)))
    history = {name: x[counted, ..., 0] for name, x in metrics.items()}
    history["h_history"] = history.pop("h")
    history["zero_frac_since"] = history.pop("zero_frac")
    return {
        **history,
        "logits": state.logits[..., 0],
        "h": state.h[0],
        "baseline": memory[:, 0, 0] if method == "learned" else np.zeros(len(task.level)),
        "step": np.array(grid.eval_steps),
        "zero_frac": state.tied_total[0] / max(1, steps * batch),
        "answers": answers,
        "diverged_step": state.diverged[0],
    }


@partial(jax.jit, static_argnums=0)
def _replayed(program: Program, inputs: Any, shared: Any, draw: Any, counted: Array, go: Array) -> Any:
    """The last state, answers ``[T, B, G]``, and metrics ``[T + 1, ...]``, valid where ``counted``."""
    context, stage = program.context(inputs, shared), Stage(go)

    def trained(state: Any, draw: Any, number: Array, last: Array) -> tuple[Any, Array]:
        state, (weight, ends) = program.step(state, context, draw, number, last, stage)
        limits = thresholds(weight, ends, program.answers)[:, None, :, 0]
        scaled = draw[1] * ends[:, -1:, :1]  # [B, G, 1]
        return state, jnp.sum(scaled > limits, -1, dtype=jnp.int32) - 1

    def step(state: Any, now: Any) -> Any:
        number, draw, counted = now
        none = jnp.zeros(draw[1].shape[:2], jnp.int32)
        state, answers = lax.cond(
            number > 0, lambda state: trained(state, draw, number, counted), lambda state: (state, none), state
        )
        metrics = stage.when(counted, lambda state: program.evaluate(state, context, number, stage), state)
        return program.reset(state, counted), (answers, metrics)

    numbers = jnp.arange(len(counted), dtype=jnp.int32)
    draw = jax.tree.map(lambda x: jnp.pad(x, ((1, 0), *((0, 0),) * (x.ndim - 1))), draw)
    state, (answers, metrics) = lax.scan(step, program.start(context, stage), (numbers, draw, counted))
    return state, answers[1:], metrics


def _check_task(task: Any) -> None:
    if not isinstance(task, Task):
        raise InvalidInput(f"task is {task!r}; it must be a Task, as make_task gives")
    ref_logits = numbers(task.ref_logits, "task.ref_logits", "numbers [P, M]")
    level = numbers(task.level, "task.level", "whole numbers [P]")
    if ref_logits.ndim != 2 or ref_logits.shape[1] < 3 or not np.isfinite(ref_logits).all():
        raise InvalidInput(
            f"task.ref_logits has shape {ref_logits.shape}; it must be finite numbers [P, M] with M >= 3"
        )
    if level.shape != ref_logits.shape[:1] or not np.isin(level, range(len(LEVELS))).all():
        raise InvalidInput(
            f"task.level has shape {level.shape}; it must be {ref_logits.shape[:1]} whole numbers 0 to 3"
        )


def _one(task: Task, options: Mapping[str, Any], **fixed: Any) -> Grid:
    """The grid of one cell on a task of any size."""
    _check_task(task)
    for name in options:
        if name in ("prompts", "answers", "task_seed", "hack_prob"):
            raise InvalidInput(f"{name} is part of the task; make another task instead")
    prompts, answers = np.shape(task.ref_logits)
    return single.one_cell(WORLD, options, prompts=prompts, answers=answers, **fixed)


def _alone(task: Task, grid: Grid) -> tuple[Program, dict[str, Any], dict[str, np.ndarray]]:
    """The program of one cell, repeated in all the lanes of a vector, and what it reads."""
    program = single.program(grid)
    return program, *_inputs(program, grid, single.CELL, task)


def _check_draws(task: Task, prompts: np.ndarray, uniforms: np.ndarray) -> None:
    if prompts.ndim != 2 or uniforms.ndim != 3 or uniforms.shape[:2] != prompts.shape or 0 in uniforms.shape[1:]:
        raise InvalidInput(
            f"prompts has shape {prompts.shape} and uniforms {uniforms.shape}; they must be [T, B] and [T, B, G]"
        )
    population = len(task.level)
    if not np.all((prompts >= 0) & (prompts < population) & (prompts == np.round(prompts))):
        raise InvalidInput(f"prompts must be whole numbers from 0 to {population - 1}")
    if np.any(np.diff(np.sort(prompts, 1), axis=1) == 0):
        raise InvalidInput("prompts repeats a prompt within a step; the prompts of a step must differ")
    if not np.all((uniforms >= 0) & (uniforms <= 1)):
        raise InvalidInput("uniforms must lie in [0, 1]")
