"""Tool use on chain arithmetic: when to call the calculator, and what a call may cost.

A model with fixed arithmetic skill works through a chain of operations. Before each step it decides: compute by
itself, or call a calculator, which is right but fails now and then; then the model computes by itself after all. Only
the decision is trained, by one logit for each of twelve contexts (operation and difficulty):

    P(call | context) = sigmoid(theta[context]),    reward = correct - call_cost * calls

Here are what a grid may vary and single runs; the training step itself is `rlvr_jax.arithmetic_program`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlvr_jax import chain, devices, single
from rlvr_jax.advantages import ESTIMATORS
from rlvr_jax.arithmetic_program import DRAWN, Drawn, Program, Table, initial, taught
from rlvr_jax.chain import CONTEXTS
from rlvr_jax.draws import MOST_CHOICES, SEEDS
from rlvr_jax.grid import Grid
from rlvr_jax.lanes import Layout
from rlvr_jax.numerics import Stage
from rlvr_jax.problems import MOST_PROBLEMS, MOST_STEPS, Problems, make_problems, read_problems
from rlvr_jax.types import REQUIRED, Columns, InvalidInput, Metric, Parameter, World, numbers

#: The model's chance to be right by itself at the first place of a chain, by context.
SKILLS = (0.99, 0.98, 0.70, 0.99, 0.90, 0.80, 0.80, 0.75, 0.35, 0.60, 0.50, 0.25)
SKILL_NAMES = tuple(f"skill_{context}" for context in CONTEXTS)

#: Parameters on which the draws, the problems and the model depend.
MODEL = (*SKILL_NAMES, "skill_decay", "bug_share")
SETS = {"train_problems": "train_seed", "test_problems": "test_seed"}

#: Traced numbers of a lane.
NUMBERS = ("lr", "call_cost", "tool_fail", "initial_call_prob", "sft_lr", "baseline_rate", "eps")

#: Seeds of the problems with task_seed 0; each further task_seed adds 2.
TRAIN_SEED, TEST_SEED = 210, 211

#: Most examples times epochs of a cold start.
MOST_SHOWN = 10**7


def as_problems(given: Any, where: str) -> Problems:
    """A set of problems: itself, or read from the JSON lines at a path.

    Raises:
      InvalidInput: If it is neither.
    """
    if isinstance(given, Problems):
        return given
    if isinstance(given, str | Path):
        return read_problems(given)
    raise InvalidInput(f"{where} is {given!r}; it must be a number of problems, Problems, or a path to JSON lines")


_SEED = {"whole": True, "least": 0, "below": SEEDS}

PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("method", "advantage estimator", default=REQUIRED, choices=tuple(sorted(ESTIMATORS))),
        Parameter("call_cost", "what a call costs", default=0.0, least=0),
        Parameter("cold_start", "whether the model imitates the expert first", default=False, flag=True),
        Parameter("lr", "learning rate of theta", default=20.0, least=0),
        Parameter("tool_fail", "how often a call fails", default=0.05, least=0, most=1),
        Parameter("initial_call_prob", "chance of calling at the start", default=0.05, above=0, below=1),
        Parameter("sft_lr", "learning rate of the imitation", default=0.05, least=0),
        Parameter("baseline_rate", "rate of the learned baseline", default=0.2, least=0, most=1),
        Parameter("eps", "added to the standard deviation by grpo", default=1e-6, least=0),
        Parameter("batch_size", "B, problems a step", "size", 16, whole=True, least=1, most=MOST_CHOICES),
        Parameter("group_size", "G, rollouts a problem", "size", 8, whole=True, least=1, most=2**15),
        Parameter("max_steps", "S, longest chain", "shape", whole=True, least=1, most=MOST_STEPS),
        Parameter("min_steps", "shortest chain that is made", "draw", whole=True, least=1, most=MOST_STEPS),
        *(
            Parameter(name, about, "shape", n, whole=True, least=1, most=MOST_PROBLEMS, record=as_problems)
            for name, about, n in (
                ("train_problems", "N, training problems, or a set of one's own", 300),
                ("test_problems", "test problems, or a set of one's own", 200),
            )
        ),
        Parameter("eval_repeats", "rollouts of each test problem", "shape", 3, whole=True, least=1, most=2**15),
        Parameter("sft_examples", "problems that the expert shows", "shape", 50, whole=True, least=1, most=2**16),
        Parameter("sft_epochs", "times that it shows them", "shape", 30, whole=True, least=0, most=2**16),
        *(
            Parameter(name, f"chance to be right by itself in context {context}", "draw", skill, least=0, most=1)
            for name, context, skill in zip(SKILL_NAMES, CONTEXTS, SKILLS, strict=True)
        ),
        Parameter("skill_decay", "place i of a chain has skill ** (1 + skill_decay i)", "draw", 0.1, least=0),
        Parameter("bug_share", "share of systematic mistakes among the model's own", "draw", 0.2, least=0, most=1),
        Parameter("seed", "seed of the draws", "draw", 0, **_SEED),
        Parameter("task_seed", "seed of both sets of problems", "draw", 0, whole=True, least=0, most=2**30),
        Parameter("train_seed", "seed of the training problems; 210 + 2 task_seed unless given", "draw", **_SEED),
        Parameter("test_seed", "seed of the test problems; 211 + 2 task_seed unless given", "draw", **_SEED),
        Parameter("prompt_seed", "seed of the problems' order; seed unless given", "draw", **_SEED),
        Parameter("answer_seed", "seed of the rollouts; seed unless given", "draw", **_SEED),
    )
}

METRICS = {
    "accuracy": Metric("share of the test rollouts whose result is right"),
    "calls": Metric("calls of the calculator a test problem"),
    "reward": Metric("accuracy less call_cost times calls"),
    "call_prob": Metric("chance of calling", ("context",)),
    "zero_frac": Metric("share of training groups with equal rewards since the last evaluation"),
    "zero_frac_total": Metric("share of training groups with equal rewards in the whole training", total=True),
    "equal_outcome_frac": Metric("share of training groups all right or all wrong since the last evaluation"),
    "push_equal": Metric("mean push on calling a training group, from groups of equal outcome"),
    "push_mixed": Metric("mean push on calling a training group, from mixed groups"),
    "theta": Metric("logits of calling at the end", ("context",), total=True, kept=False),
}


def _derive(columns: Columns, grid: Grid) -> Columns:
    """Fills what follows from other parameters, and refuses combinations that mean nothing."""
    columns = dict(columns)
    for name in ("prompt_seed", "answer_seed"):
        columns.setdefault(name, columns["seed"])
    columns.setdefault("train_seed", TRAIN_SEED + 2 * columns["task_seed"])
    columns.setdefault("test_seed", TEST_SEED + 2 * columns["task_seed"])
    given = {name: grid.fixed[name] for name in SETS if isinstance(grid.fixed.get(name), Problems)}
    longest = max((int(problems.length.max()) for problems in given.values()), default=0)
    # no problem is made where both sets are given
    columns.setdefault(
        "max_steps", np.full_like(columns["seed"], longest if len(given) == len(SETS) else max(8, longest))
    )
    columns.setdefault("min_steps", np.minimum(3, columns["max_steps"]))
    smallest = np.array([ESTIMATORS[name].smallest_group for name in PARAMETERS["method"].choices])[columns["method"]]
    for wrong, sentence in (
        (
            columns["group_size"] < smallest,
            "group_size is {group_size} with method {method!r}; it needs at least {least}",
        ),
        (
            columns["batch_size"] > columns["train_problems"],
            "batch_size is {batch_size}; it must be at most {train_problems}, the training problems",
        ),
        (
            columns["min_steps"] > columns["max_steps"],
            "min_steps is {min_steps}; it must be at most max_steps, {max_steps}",
        ),
        (
            columns["max_steps"] < longest,
            "max_steps is {max_steps}; the problems that are given have up to {longest} steps",
        ),
        (
            columns["cold_start"] & (columns["sft_examples"] > columns["train_problems"]),
            "sft_examples is {sft_examples}; it must be at most {train_problems}, the training problems",
        ),
        (
            columns["sft_examples"] * columns["sft_epochs"] > MOST_SHOWN,
            "sft_examples is {sft_examples} and sft_epochs {sft_epochs}; their product must be at most {most}",
        ),
    ):
        bad = np.flatnonzero(wrong)
        if len(bad):
            values = {name: column[bad[0]] for name, column in columns.items()}
            values["method"] = PARAMETERS["method"].choices[values["method"]]
            raise InvalidInput(sentence.format(**values, least=smallest[bad[0]], longest=longest, most=MOST_SHOWN))
    return columns


def _program(layout: Layout, grid: Grid, cells: np.ndarray) -> Program:
    columns = {name: column[cells] for name, column in grid.columns.items()}
    batch, group = columns["batch_size"], columns["group_size"]
    epochs = int(columns["sft_epochs"][0])
    return Program(
        layout=layout,
        train=int(columns["train_problems"][0]),
        test=int(columns["test_problems"][0]),
        longest=int(columns["max_steps"][0]),
        batch=int(batch.max()),
        group=int(group.max()),
        repeats=int(columns["eval_repeats"][0]),
        examples=int(columns["sft_examples"][0]) if epochs and columns["cold_start"].any() else 0,
        epochs=epochs,
        batch_masked=bool((batch < batch.max()).any()),
        group_masked=bool((group < group.max()).any()),
    )


def _inputs(program: Program, grid: Grid, cell: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a program reads: arrays of each item ``[N, ...]`` and arrays that all items share; see `Context`."""
    columns, dtype = grid.columns, np.dtype(grid.precision)
    lane = cell.reshape(len(cell), -1)  # [N, L]
    first = cell[:, 0]  # [N, W]: lanes of a seed share what the draws depend on
    inputs: dict[str, Any] = {
        "prompt_seed": columns["prompt_seed"][first].astype(np.uint32),
        "answer_seed": columns["answer_seed"][first].astype(np.uint32),
        "numbers": {name: columns[name][lane].astype(dtype) for name in NUMBERS}
        | {name: columns[name][lane].astype(np.int32) for name in ("batch_size", "group_size")}
        | {"cold_start": columns["cold_start"][lane]},
    }
    shared: dict[str, Any] = {}
    for (name, seed), place in zip(SETS.items(), ("train", "test"), strict=True):
        if isinstance(grid.fixed.get(name), Problems):
            sets, inputs[place] = [grid.fixed[name]], np.zeros(first.shape, np.int32)
        else:
            kinds, inputs[place] = _kinds([columns[seed][first], columns["min_steps"][first]])
            n = program.train if place == "train" else program.test
            sets = [make_problems(n, int(s), int(least), program.longest) for s, least in kinds]
        shared[place] = Table(
            *(np.stack(arrays) for arrays in zip(*(_table(p, program.longest) for p in sets), strict=True))
        )
    models, inputs["model"] = _kinds([columns[name][first] for name in MODEL])
    shared["correct"], shared["bug"] = (chances.astype(dtype) for chances in _own_chances(models, program.longest))
    return inputs, shared


def _own_chances(models: np.ndarray, places: int) -> tuple[np.ndarray, np.ndarray]:
    """The chances of models ``[n, K + 2]`` (the columns of `MODEL`) at each place of a chain, float64 ``[n, S, K]``.

    Returns:
      p = skill ** (1 + skill_decay i), of being right, and p + bug_share (1 - p), which adds systematic mistakes.
    """
    skills, (decay, bug_share) = models[:, None, : len(CONTEXTS)], models[:, len(CONTEXTS) :].T[..., None, None]
    right = skills ** (1 + decay * np.arange(places)[None, :, None])
    return right, right + bug_share * (1 - right)


def _kinds(columns: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct combinations ``[n, columns]`` and, in the columns' shape, which one stands where."""
    rows = np.stack([column.reshape(-1) for column in columns], -1)
    kinds, which = np.unique(rows, axis=0, return_inverse=True)
    return kinds, which.reshape(columns[0].shape).astype(np.int32)


def _table(problems: Problems, longest: int) -> Table:
    return Table(chain.encode(problems, longest), problems.start, problems.answer.astype(np.int32))


def _work(columns: Columns) -> np.ndarray:
    """Numbers touched in one step: about 40 for each place of each rollout."""
    return 40 * columns["batch_size"] * columns["group_size"] * columns["max_steps"]


WORLD = World(
    name="tool_use",
    about="tool use on chain arithmetic: call a calculator or not, a cost for each call, cold start by imitation",
    parameters=PARAMETERS,
    metrics=METRICS,
    sized_by={},
    labels={"context": CONTEXTS},
    derive=_derive,
    program=_program,
    inputs=_inputs,
    work=_work,
    row=lambda columns: columns["batch_size"] * columns["group_size"] * np.maximum(1, columns["max_steps"] // 4),
    state=lambda columns: len(CONTEXTS) + columns["train_problems"],
)


def train(
    train_problems: Problems | int = 300,
    test_problems: Problems | int = 200,
    *,
    steps: int,
    seed: int = 0,
    precision: str = "float32",
    **options: Any,
) -> dict[str, np.ndarray]:
    """One training: the program of a sweep, with one cell in it.

    Args:
      train_problems: Problems, or how many to make from ``train_seed``.
      test_problems: The same for the evaluation, from ``test_seed``.
      steps: T >= 0.
      seed: Of the problems' order and the rollouts.
      precision: "float32" or "float64".
      **options: ``method``; and as in `rlvr_jax.sweep` ``call_cost`` (0), ``cold_start`` (False), ``lr`` (20),
        ``batch_size`` (16), ``group_size`` (8), ``tool_fail``, ``initial_call_prob``, ``sft_examples``,
        ``sft_epochs``, ``sft_lr``, ``eval_repeats``, ``eval_every``, ``eval_steps``, ``keep`` and the others of
        `PARAMETERS`.

    Returns:
      By name: the metrics of a sweep ``[E, ...]`` with their ``step [E]``, ``zero_frac_total``, ``diverged_step``
      (-1 for never), and the final ``theta [K]``.

    Raises:
      InvalidInput: As `rlvr_jax.sweep`.

    >>> run = train(method="rloo", call_cost=0.02, steps=4)
    >>> run["step"].tolist(), run["call_prob"].shape, round(float(run["call_prob"][0, 0]), 3)
    ([0, 1, 2, 3, 4], (5, 12), 0.05)
    """
    grid = single.one_cell(
        WORLD,
        options,
        train_problems=train_problems,
        test_problems=test_problems,
        steps=steps,
        seed=seed,
        precision=precision,
    )
    program = single.program(grid)
    return single.train(grid, program, *_inputs(program, grid, single.CELL), ("zero_frac_total", "theta"))


def replay(problems: Problems, draws: Mapping[str, Any], **options: Any) -> dict[str, np.ndarray]:
    """One training in float64 on given draws, through the step that sweeps run.

    Args:
      problems: The training problems.
      draws: By name: ``problem`` int ``[T, B]``, distinct within a step; ``u_call``, ``u_fail`` and ``u_own``
        ``[T, B, G, S]`` in [0, 1); and ``offset`` int ``[T, B, G, S]``, an index into `chain.SLIPS`. A draw is read
        only where it is needed; elsewhere it may be NaN, or -1.
      **options: ``method``; ``theta0``, a number or ``[K]``, the logits at the start (from ``initial_call_prob``
        unless given); ``call_cost`` (0), ``lr`` (20), ``tool_fail`` (0.05), ``eps``, ``baseline_rate``, and the
        model's ``skill_...``, ``skill_decay`` and ``bug_share``.

    Returns:
      By name: ``theta [T + 1, K]``; ``call`` and ``context`` int ``[T, B, G, S]``, -1 after the end of a chain;
      ``final_x`` int, ``correct`` bool, ``reward`` and ``advantage [T, B, G]``; ``diverged_step`` (-1 for never).

    Raises:
      InvalidInput: For shapes and values that do not fit, and as `rlvr_jax.sweep`.

    >>> problems, rng = make_problems(20, 0), np.random.default_rng(0)
    >>> drawn = {name: rng.random((2, 4, 8, 8)) for name in ("u_call", "u_fail", "u_own")}
    >>> drawn |= {"problem": [[0, 1, 2, 3], [4, 5, 6, 7]], "offset": rng.integers(4, size=(2, 4, 8, 8))}
    >>> run = replay(problems, drawn, method="grpo", call_cost=0.02)
    >>> run["theta"].shape, run["call"].shape
    ((3, 12), (2, 4, 8, 8))
    """
    options = dict(options)
    theta0 = options.pop("theta0", None)
    drawn = _checked(problems, draws, _SHAPES)
    steps, batch, group, places = drawn["u_own"].shape
    if places < problems.length.max():
        raise InvalidInput(f"u_own has {places} places; the problems have up to {problems.length.max()} steps")
    grid = single.one_cell(
        WORLD,
        options,
        train_problems=problems,
        test_problems=problems,
        steps=steps,
        batch_size=batch,
        group_size=group,
        max_steps=places,
        precision="float64",
    )
    program = single.program(grid)
    inputs, shared = _inputs(program, grid, single.CELL)
    if theta0 is not None:
        theta0 = _logits(theta0)
    devices.use_compile_cache()
    with jax.enable_x64(True):
        one = jax.tree.map(lambda x: x[0], inputs)
        uniforms = np.stack([drawn[name] for name in DRAWN], 1).transpose(0, 4, 1, 3, 2)  # [T, S, 3, G, B]
        slip = drawn["offset"].astype(np.int32).transpose(0, 3, 2, 1)
        drawn = Drawn(drawn["problem"].astype(np.int32)[..., None], uniforms[..., None], slip[..., None])
        theta, done, diverged = jax.tree.map(np.asarray, _replayed(program, one, shared, drawn, theta0, np.bool_(True)))
    rollouts, worth = done
    words = rollouts.words[..., 0].transpose(0, 3, 2, 1)  # [T, B, G, S]
    ended = chain.difficulty(words) == chain.ENDED
    op = problems.op[drawn.problem[..., 0]].astype(np.int64)
    op = np.pad(op, ((0, 0), (0, 0), (0, places)))[:, :, None, :places]
    return {
        "theta": theta[..., 0],
        "call": np.where(ended, -1, chain.called(words)),
        "context": np.where(ended, -1, chain.DIFFICULTIES * op + chain.difficulty(words)),
        "final_x": chain.value(words[..., -1]),
        **{
            name: values[..., 0].transpose(0, 2, 1)
            for name, values in (
                ("correct", rollouts.correct),
                ("reward", worth.reward),
                ("advantage", worth.advantage),
            )
        },
        "diverged_step": diverged[0],
    }


def replay_sft(
    problems: Problems, draws: Mapping[str, Any], *, lr: float = 0.05, theta0: Any = None, **options: Any
) -> dict[str, np.ndarray]:
    """The cold start in float64 on given draws, through the function that sweeps run.

    Args:
      problems: The training problems; the expert shows the first of them.
      draws: By name: ``u_own [E, n, S]`` in [0, 1) and ``offset`` int ``[E, n, S]``, for E epochs of n examples; read
        only where the expert does not call.
      lr: The learning rate ``sft_lr``.
      theta0: A number or ``[K]``, the logits at the start; from ``initial_call_prob`` unless given.
      **options: The model's ``skill_...``, ``skill_decay``, ``bug_share``, and ``initial_call_prob``.

    Returns:
      ``theta [E + 1, K]``.

    Raises:
      InvalidInput: For shapes and values that do not fit.
    """
    drawn = _checked(problems, draws, {name: _SHAPES[name][1:] for name in ("u_own", "offset")})
    epochs, examples, places = drawn["u_own"].shape
    if places < problems.length[:examples].max():
        raise InvalidInput(
            f"u_own has {places} places; the examples have up to {problems.length[:examples].max()} steps"
        )
    grid = single.one_cell(
        WORLD,
        options,
        method="none",
        train_problems=problems,
        test_problems=problems,
        steps=0,
        batch_size=1,
        max_steps=max(places, int(problems.length.max())),
        cold_start=True,
        sft_lr=lr,
        sft_examples=examples,
        sft_epochs=epochs,
        precision="float64",
    )
    program = single.program(grid)
    inputs, shared = _inputs(program, grid, single.CELL)
    wide = ((0, 0), (0, 0), (0, program.longest - places))
    own, slip = (np.pad(drawn[name], wide).transpose(2, 0, 1)[..., None] for name in ("u_own", "offset"))
    uniforms = np.stack([np.full(own.shape, 0.5), own, np.full(own.shape, 0.5)], 1)  # [S, 3, E, n, 1]
    devices.use_compile_cache()
    with jax.enable_x64(True):
        one = jax.tree.map(lambda x: x[0], inputs)
        given = None if theta0 is None else _logits(theta0)
        theta = _taught(program, one, shared, uniforms, slip.astype(np.int32), given, np.bool_(True))
    return {"theta": np.asarray(theta)[..., 0]}


#: The axes of given draws.
_SHAPES = {"problem": "TB", "u_call": "TBGS", "u_fail": "TBGS", "u_own": "TBGS", "offset": "TBGS"}


@partial(jax.jit, static_argnums=0)
def _replayed(program: Program, inputs: Any, shared: Any, drawn: Drawn, theta0: Any, go: Array) -> Any:
    """Theta ``[T + 1, K, L]``, what each step's rollouts did and were worth, and the step of divergence."""
    context, stage = program.context(inputs, shared), Stage(go)
    state = program.start(context, stage)
    if theta0 is not None:
        state = replace(state, theta=jnp.broadcast_to(theta0[None, :, None], state.theta.shape))

    def step(state: Any, now: Any) -> Any:
        number, drawn = now
        state, done = program.step(state, context, drawn, number, number < 0, stage)
        return state, (state.theta[0], done)

    numbers = 1 + jnp.arange(len(drawn.problem), dtype=jnp.int32)
    last, (theta, done) = lax.scan(step, state, (numbers, drawn))
    return jnp.concatenate([state.theta, theta]), done, last.diverged


@partial(jax.jit, static_argnums=0)
def _taught(program: Program, inputs: Any, shared: Any, uniforms: Array, slip: Array, theta0: Any, go: Array) -> Array:
    """Theta before the first epoch and after each, ``[E + 1, K, L]``."""
    context, stage = program.context(inputs, shared), Stage(go)
    theta = stage(initial, context.numbers["initial_call_prob"][None, None])
    if theta0 is not None:
        theta = jnp.broadcast_to(theta0[None, :, None], theta.shape)
    batch = program.examples_of(context)
    counts = program.layout.spread(program.imitated(batch, uniforms, slip, context, stage))
    return jnp.concatenate([theta, taught(theta, counts, context.numbers["sft_lr"][None, None], stage)[:, 0]])


def _logits(given: Any) -> np.ndarray:
    """Logits ``[K]`` from a number or K of them."""
    theta = numbers(given, "theta0", f"a number or {len(CONTEXTS)} numbers")
    if theta.shape not in ((), (len(CONTEXTS),)) or not np.isfinite(theta).all():
        raise InvalidInput(f"theta0 has shape {theta.shape}; it must be a finite number or {len(CONTEXTS)} of them")
    return np.broadcast_to(theta, (len(CONTEXTS),))


def _checked(problems: Any, draws: Any, shapes: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The draws as arrays, 0 where they are missing; or a sentence that says what they must be."""
    if not isinstance(problems, Problems):
        raise InvalidInput(f"problems is {problems!r}; it must be Problems, as make_problems gives")
    if not isinstance(draws, Mapping) or not set(shapes) <= set(draws):
        raise InvalidInput(f"draws must map {', '.join(shapes)} to arrays")
    sizes: dict[str, int] = {}
    checked = {}
    for name, axes in shapes.items():
        array = numbers(draws[name], name, f"numbers [{', '.join(axes)}]")
        for axis, size in zip(axes, array.shape, strict=False):
            sizes.setdefault(axis, size)
        if array.ndim != len(axes) or array.shape != tuple(sizes[axis] for axis in axes) or 0 in array.shape[1:]:
            raise InvalidInput(f"{name} has shape {array.shape}; it must be [{', '.join(axes)}], like the other draws")
        if name == "offset":
            least, most, array = -1, len(chain.SLIPS) - 1, np.nan_to_num(array, nan=-1)
        elif name == "problem":
            least, most = 0, len(problems) - 1
        else:
            least, most, array = 0, 1, np.nan_to_num(array)
        whole = name in ("offset", "problem")
        if not np.all((array >= least) & (array <= most)) or (whole and np.any(array != np.round(array))):
            kind = "whole numbers" if whole else "numbers"
            raise InvalidInput(f"{name} must be {kind} from {least} to {most}")
        checked[name] = array
    if "problem" in checked and np.any(np.diff(np.sort(checked["problem"], 1), axis=1) == 0):
        raise InvalidInput("problem repeats a problem within a step; the problems of a step must differ")
    return checked
