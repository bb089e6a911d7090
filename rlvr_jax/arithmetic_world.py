"""The tool-use world as grids see it: its parameters and metrics, its problems and its model by cell."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_jax import chain
from rlvr_jax.advantages import ESTIMATORS
from rlvr_jax.arithmetic_program import Program
from rlvr_jax.chain import CONTEXTS
from rlvr_jax.draws import MOST_CHOICES, SEEDS
from rlvr_jax.grid import Grid
from rlvr_jax.lanes import Layout
from rlvr_jax.problems import MOST_PROBLEMS, MOST_STEPS, Problems, make_problems, read_problems
from rlvr_jax.rollouts import Model, Table
from rlvr_jax.types import REQUIRED, Columns, InvalidInput, Metric, Parameter, World

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
    "push_equal": Metric("push on calling from groups of equal outcome, over all training groups"),
    "push_mixed": Metric("push on calling from mixed groups, over all training groups"),
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
    _refuse_idle(grid, given)
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
            columns["cold_start"] & (columns["sft_examples"] * columns["sft_epochs"] > MOST_SHOWN),
            "sft_examples is {sft_examples} and sft_epochs {sft_epochs}; their product must be at most {most}",
        ),
    ):
        bad = np.flatnonzero(wrong)
        if len(bad):
            values: dict[str, Any] = {name: column[bad[0]] for name, column in columns.items()}
            values["method"] = PARAMETERS["method"].choices[values["method"]]
            raise InvalidInput(sentence.format(**values, least=smallest[bad[0]], longest=longest, most=MOST_SHOWN))
    return columns


def _refuse_idle(grid: Grid, given: Mapping[str, Problems]) -> None:
    """Refuses what would make problems where a set of one's own stands: such cells would only look like replicates."""
    moving = {name for axis in grid.axes for name in axis.values}
    idle = {seed: name for name, seed in SETS.items() if name in given}
    if len(given) == len(SETS):
        idle |= dict.fromkeys(("task_seed", "min_steps"), " and ".join(SETS))
    for name, instead in idle.items():
        if name in moving or grid.fixed.get(name) not in (None, PARAMETERS[name].default):
            raise InvalidInput(f"{name} is given beside {instead} of one's own, in which nothing is made from it")


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


def inputs(program: Program, grid: Grid, cell: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a program reads: arrays of each item ``[N, ...]`` and arrays that all items share; see `Context`."""
    columns, dtype = grid.columns, np.dtype(grid.precision)
    lane = cell.reshape(len(cell), -1)  # [N, L]
    first = cell[:, 0]  # [N, W]: lanes of a seed share what the draws depend on
    own: dict[str, Any] = {
        "prompt_seed": columns["prompt_seed"][first].astype(np.uint32),
        "answer_seed": columns["answer_seed"][first].astype(np.uint32),
        "numbers": {name: columns[name][lane].astype(dtype) for name in NUMBERS}
        | {name: columns[name][lane].astype(np.int32) for name in ("batch_size", "group_size")}
        | {"cold_start": columns["cold_start"][lane]},
    }
    shared: dict[str, Any] = {}
    for (name, seed), place in zip(SETS.items(), ("train", "test"), strict=True):
        if isinstance(grid.fixed.get(name), Problems):
            sets, own[place] = [grid.fixed[name]], np.zeros(first.shape, np.int32)
        else:
            kinds, own[place] = _kinds([columns[seed][first], columns["min_steps"][first]])
            n = program.train if place == "train" else program.test
            sets = [make_problems(n, int(s), int(least), program.longest) for s, least in kinds]
        shared[place] = Table(
            *(np.stack(arrays) for arrays in zip(*(_table(p, program.longest) for p in sets), strict=True))
        )
    models, own["model"] = _kinds([columns[name][first] for name in MODEL])
    shared["model"] = Model(*(chances.astype(dtype) for chances in _own_chances(models, program.longest)))
    return own, shared


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


def _table(problems: Problems, longest: int) -> Table[np.ndarray]:
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
    inputs=inputs,
    work=_work,
    row=lambda columns: columns["batch_size"] * columns["group_size"] * np.maximum(1, columns["max_steps"] // 4),
    state=lambda columns: len(CONTEXTS) + columns["train_problems"],
)
