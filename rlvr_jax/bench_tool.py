"""The benchmark of tool use: a plain Python loop, NumPy vectorised over the batch, and ours.

A figure is *decisions per second*: a decision is one step of one rollout. Evaluation every T/10 steps and the cold
start are included, and their decisions count for all contenders alike, as often as each training makes them.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rlvr_jax.bench import Bench, Contender, Job
from rlvr_jax.reference_arithmetic import arithmetic_train
from rlvr_jax.reference_arithmetic_batch import BATCH as VECTORISED
from rlvr_jax.reference_chains import PLAIN, Kernel, arithmetic_problems

BATCH, GROUP, STEPS, LR = 16, 8, 60, 20.0
TRAIN, TEST = (300, 210), (200, 211)  # number of problems, seed
EVALUATIONS, REPEATS, EXAMPLES, EPOCHS = 11, 3, 50, 30

#: Decisions that one repetition of a loop is meant to make; a second or two at its speed.
PLAIN_DECISIONS, VECTORISED_DECISIONS = 1e6, 3e6

#: The method, the cost of a call, and whether the training has a cold start.
Configuration = tuple[str, float, bool]


@dataclass(frozen=True)
class Shape:
    """A grid to measure.

    Attributes:
      name: What it stands for.
      kinds: Its configurations in words.
      configurations: Its configurations.
      seeds: Seeds of each.
      steps: T, a multiple of 10.
    """

    name: str
    kinds: str
    configurations: tuple[Configuration, ...]
    seeds: int
    steps: int = STEPS

    @property
    def words(self) -> str:
        """What is in it."""
        return f"{self.kinds} x {self.seeds} seeds, T={self.steps}"

    @property
    def size(self) -> dict[str, Any]:
        """The same as numbers."""
        return {"configurations": len(self.configurations), "seeds": self.seeds, "steps": self.steps}

    @property
    def cells(self) -> int:
        """Trainings in all."""
        return len(self.configurations) * self.seeds

    def decisions(self, configuration: int) -> float:
        """Expected decisions of one training: the problems of a step are drawn, and chains differ in length."""
        train, test = (arithmetic_problems(*kind).length for kind in (TRAIN, TEST))
        shown = EPOCHS * int(train[:EXAMPLES].sum()) if self.configurations[configuration][2] else 0
        return self.steps * BATCH * GROUP * float(train.mean()) + EVALUATIONS * REPEATS * int(test.sum()) + shown


LECTURE: tuple[Configuration, ...] = (
    *(("rloo", cost, False) for cost in (0.0, 0.02, 0.2)),
    ("grpo", 0.02, False),
    ("grpo", 0.0, False),
    ("rloo", 0.02, True),
)
COSTS: tuple[Configuration, ...] = tuple(
    (method, float(cost), False) for method in ("none", "rloo", "group", "grpo") for cost in np.linspace(0.0, 0.4, 40)
)
SHAPES = (
    Shape("the lecture's configurations", "6 configurations", LECTURE, 64),
    Shape("many costs", "4 methods x 40 costs", COSTS, 64),
)
QUICK = (Shape("quick", "6 configurations", LECTURE, 2, steps=10),)


def loop_job(shape: Shape, number: int, *, kernel: Kernel, decisions: float) -> Job:
    """`rlvr_jax.reference_arithmetic.arithmetic_train` on some of the cells, spread over the configurations."""
    train, test = arithmetic_problems(*TRAIN), arithmetic_problems(*TEST)
    cells = min(shape.cells, round(decisions / shape.decisions(0)))
    chosen = [i * len(shape.configurations) // cells for i in range(cells)]

    def run() -> None:
        for i, place in enumerate(chosen):
            method, cost, cold_start = shape.configurations[place]
            arithmetic_train(
                train,
                test,
                method=method,
                call_cost=cost,
                cold_start=cold_start,
                lr=LR,
                steps=shape.steps,
                batch_size=BATCH,
                group_size=GROUP,
                seed=number * cells + i,
                eval_repeats=REPEATS,
                sft_examples=EXAMPLES,
                sft_epochs=EPOCHS,
                kernel=kernel,
            )

    return Job(run, sum(shape.decisions(place) for place in chosen), cells, shape.steps)


def sweep_job(shape: Shape, number: int) -> Job:
    """`rlvr_jax.sweep` on the whole shape."""
    from rlvr_jax.results import sweep

    method, cost, cold_start = map(list, zip(*shape.configurations, strict=True))

    def run() -> Any:
        return sweep(
            "tool_use",
            {"seed": {"range": [0, shape.seeds]}},
            tied={"run": {"method": method, "call_cost": cost, "cold_start": cold_start}},
            lr=LR,
            steps=shape.steps,
            batch_size=BATCH,
            group_size=GROUP,
            train_problems=TRAIN[0],
            train_seed=TRAIN[1],
            test_problems=TEST[0],
            test_seed=TEST[1],
            eval_repeats=REPEATS,
            sft_examples=EXAMPLES,
            sft_epochs=EPOCHS,
            progress=False,
        )

    facts = run().attrs
    count = shape.seeds * sum(shape.decisions(i) for i in range(len(shape.configurations)))
    return Job(run, count, shape.cells, shape.steps, facts["compile_seconds"], facts["device_kind"])


_plain = partial(loop_job, kernel=PLAIN, decisions=PLAIN_DECISIONS)
_vectorised = partial(loop_job, kernel=VECTORISED, decisions=VECTORISED_DECISIONS)

BENCH = Bench(
    world="tool",
    counted="Decisions (steps of rollouts), evaluation every T/10 steps and cold starts included",
    rate="mdecisions_per_s",
    column="Mdecisions/s",
    settings={"N": TRAIN[0], "B": BATCH, "G": GROUP},
    contenders={
        "plain": Contender("plain Python loop, one process", _plain),
        "numpy": Contender("NumPy over the batch, one process", _vectorised),
        "numpy_cores": Contender("NumPy over the batch, each core", _vectorised, on_each_core=True),
        "rlvr_jax": Contender("rlvr_jax.sweep", sweep_job),
    },
    shapes=SHAPES,
    quick=QUICK,
)
