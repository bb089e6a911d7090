"""The benchmark of the bandit: a NumPy loop, its direct translation to JAX under `jax.vmap`, and ours.

A figure is *answers sampled and learned from per second*, evaluation every T/10 steps included.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr_jax import reference
from rlvr_jax.bench import Bench, Contender, Job

if TYPE_CHECKING:
    from jax import Array

METHODS = tuple(reference.ADVANTAGES)
BATCH, GROUP, STEPS, QUICK_STEPS, PROMPTS = 32, 8, 1000, 100, 200

#: Answers that one repetition of a contender other than ours is meant to sample; a few seconds at its speed.
LOOP_ANSWERS, DIRECT_ANSWERS = 2.5e6, 8.2e6


@dataclass(frozen=True)
class Shape:
    """A grid to measure.

    Attributes:
      name: What it stands for.
      methods: The methods.
      rates: Learning rates of each method.
      seeds: Seeds of each configuration.
      answers: M.
      steps: T.
    """

    name: str
    methods: tuple[str, ...]
    rates: int
    seeds: int
    answers: int = 16
    steps: int = STEPS

    @property
    def words(self) -> str:
        """What is in it."""
        grid = f"{len(self.methods)} method(s) x {self.rates} learning rate(s) x {self.seeds} seeds"
        return f"{grid}, M={self.answers}, T={self.steps}"

    @property
    def size(self) -> dict[str, Any]:
        """The same as numbers."""
        return asdict(self) | {"methods": len(self.methods)}

    @property
    def learning_rates(self) -> list[float]:
        """The learning rates, 0.5 where there is one."""
        return [0.5] if self.rates == 1 else np.geomspace(0.05, 5.0, self.rates).tolist()

    @property
    def cells(self) -> int:
        """Trainings in all."""
        return len(self.methods) * self.rates * self.seeds


SHAPES = (
    Shape("many configurations", METHODS, 32, 16),
    Shape("the lecture's grid", METHODS, 1, 64),
    Shape("one configuration", ("grpo",), 1, 1024),
)
QUICK = (Shape("quick", METHODS, 1, 8, steps=QUICK_STEPS),)


def by_answers(answers: Iterable[int], quick: bool = False) -> list[Shape]:
    """Shapes with these numbers of answers M, each of 160 configurations and 4 seeds."""
    return [Shape(f"{m} answers", METHODS, 32, 4, m, QUICK_STEPS if quick else STEPS) for m in answers]


def loop_job(shape: Shape, number: int) -> Job:
    """The NumPy loop `rlvr_jax.reference.bandit_train` on some of the cells, in turn over methods."""
    task = reference.bandit_task(PROMPTS, shape.answers)
    each = shape.steps * BATCH * GROUP
    cells = min(shape.cells, max(1, round(LOOP_ANSWERS / each / len(shape.methods))) * len(shape.methods))
    rates = shape.learning_rates

    def run() -> None:
        for i in range(cells):
            reference.bandit_train(
                *task,
                method=shape.methods[i % len(shape.methods)],
                lr=rates[i % len(rates)],
                steps=shape.steps,
                batch_size=BATCH,
                group_size=GROUP,
                seed=number * cells + i,
            )

    return Job(run, cells * each, cells, shape.steps)


def sweep_job(shape: Shape, number: int) -> Job:
    """`rlvr_jax.sweep` on the whole shape."""
    from rlvr_jax.results import sweep

    def run() -> Any:
        return sweep(
            "bandit",
            {"method": list(shape.methods), "lr": shape.learning_rates, "seed": {"range": [0, shape.seeds]}},
            steps=shape.steps,
            batch_size=BATCH,
            group_size=GROUP,
            prompts=PROMPTS,
            answers=shape.answers,
            keep=["accuracy", "accuracy_by_level", "hack_rate", "verifier_reward", "kl", "entropy", "zero_frac"],
            progress=False,
        )

    facts = run().attrs
    count = shape.cells * shape.steps * BATCH * GROUP
    return Job(run, count, shape.cells, shape.steps, facts["compile_seconds"], facts["device_kind"])


def direct_job(shape: Shape, number: int) -> Job:
    """The direct translation on some of the cells at once, up to the first evaluation of the whole training."""
    os.environ.pop("JAX_NUM_CPU_DEVICES", None)  # as JAX starts by itself: one device with all cores
    import jax

    steps = shape.steps // 10
    cells = min(shape.cells, round(DIRECT_ANSWERS / (steps * BATCH * GROUP)))
    chosen = np.linspace(0, shape.cells - 1, cells).round().astype(int)
    method, rate, seed = (x.reshape(-1)[chosen] for x in np.meshgrid(*_axes(shape), indexing="ij"))
    began = time.perf_counter()
    train = jax.jit(partial(direct_train, steps=steps, eval_every=steps, answers=shape.answers))
    compiled = train.lower(method, rate, seed).compile()
    compile_seconds = time.perf_counter() - began

    def run() -> Any:
        return jax.block_until_ready(compiled(method, rate, seed))

    run()
    return Job(run, cells * steps * BATCH * GROUP, cells, steps, round(compile_seconds, 3))


def _axes(shape: Shape) -> list[np.ndarray]:
    methods = np.array([METHODS.index(method) for method in shape.methods], np.int32)
    return [methods, np.array(shape.learning_rates, np.float32), np.arange(shape.seeds, dtype=np.uint32)]


def direct_train(
    method: "Array", rate: "Array", seed: "Array", *, steps: int, eval_every: int, answers: int = 16
) -> dict[str, "Array"]:
    """The bandit as one writes it first in JAX: one run, then `jax.vmap` over all.

    A switch over methods costs no more than a program for each: the draws take most of the time.

    Args:
      method: int ``[n]``, positions in `METHODS`.
      rate: ``[n]``, learning rates.
      seed: uint32 ``[n]``.
      steps: T.
      eval_every: Steps from one evaluation to the next, from step 0 on; T is a multiple of it.
      answers: M.

    Returns:
      ``accuracy``, ``hack_rate``, ``kl``, ``entropy``, ``zero_frac`` ``[n, E]`` and ``accuracy_by_level``
      ``[n, E, 4]``.
    """
    import jax
    import jax.numpy as jnp
    from jax import Array

    ref_logits, level = reference.bandit_task(PROMPTS, answers)
    ref_logits = jnp.asarray(ref_logits, jnp.float32)
    log_ref = jax.nn.log_softmax(ref_logits)
    level_of = jax.nn.one_hot(level, len(reference.LEVEL_ACCURACY))  # [P, 4]

    def less_mean(reward: Array, baseline: Array) -> Array:
        return reward - reward.mean(-1, keepdims=True)

    estimators = {
        "none": lambda reward, baseline: reward,
        "learned": lambda reward, baseline: reward - baseline[:, None],
        "rloo": lambda reward, baseline: less_mean(reward, baseline) * (GROUP / (GROUP - 1)),
        "group": less_mean,
        "grpo": lambda reward, baseline: less_mean(reward, baseline) / (reward.std(-1, keepdims=True) + 1e-6),
    }
    branches = [estimators[name] for name in METHODS]

    def with_hack(logits: Array, h: Array) -> Array:
        return logits.at[..., 1].add(h)

    def evaluate(logits: Array, h: Array) -> dict[str, Array]:
        log_pi = jax.nn.log_softmax(with_hack(logits, h))
        pi = jnp.exp(log_pi)
        return {
            "accuracy": pi[:, 0].mean(),
            "hack_rate": pi[:, 1].mean(),
            "accuracy_by_level": pi[:, 0] @ level_of / level_of.sum(0),
            "kl": (pi * (log_pi - log_ref)).sum(-1).mean(),
            "entropy": -(pi * log_pi).sum(-1).mean(),
        }

    def train(method: Array, rate: Array, seed: Array) -> dict[str, Array]:
        key = jax.random.key(seed)

        def step(state: tuple[Array, Array, Array, Array], number: Array) -> tuple[Any, None]:
            logits, h, baseline, tied = state
            prompt_key, answer_key = jax.random.split(jax.random.fold_in(key, number))
            chosen = jax.random.choice(prompt_key, PROMPTS, (BATCH,), replace=False)
            z = with_hack(logits[chosen], h)  # [B, M]
            drawn = jax.random.categorical(answer_key, z[:, None], shape=(BATCH, GROUP))
            reward = (drawn == 0).astype(jnp.float32)  # [B, G]
            advantage = jax.lax.switch(method, branches, reward, baseline[chosen])
            score = jax.nn.one_hot(drawn, answers) - jax.nn.softmax(z)[:, None]  # [B, G, M]
            gradient = (advantage[..., None] * score).mean(1)  # [B, M]
            logits = logits.at[chosen].add(rate * gradient)
            h = h + rate / BATCH * gradient[:, 1].sum()
            baseline = baseline.at[chosen].add(0.2 * (reward.mean(-1) - baseline[chosen]))
            tied = tied + (reward == reward[:, :1]).all(-1).sum()
            return (logits, h, baseline, tied), None

        def stretch(state: tuple[Array, Array, Array], numbers: Array) -> tuple[Any, dict[str, Array]]:
            (logits, h, baseline, tied), _ = jax.lax.scan(step, (*state, jnp.int32(0)), numbers)
            return (logits, h, baseline), evaluate(logits, h) | {"zero_frac": tied / (len(numbers) * BATCH)}

        start = (ref_logits, jnp.float32(0), jnp.zeros(PROMPTS))
        first = evaluate(*start[:2]) | {"zero_frac": jnp.float32(jnp.nan)}
        _, history = jax.lax.scan(stretch, start, jnp.arange(steps).reshape(-1, eval_every))
        return jax.tree.map(lambda before, after: jnp.concatenate([before[None], after]), first, history)

    return jax.vmap(train)(method, rate, seed)


BENCH = Bench(
    world="bandit",
    counted="Answers sampled and learned from, evaluation every T/10 steps included",
    rate="msamples_per_s",
    column="Msamples/s",
    settings={"P": PROMPTS, "B": BATCH, "G": GROUP},
    contenders={
        "numpy": Contender("NumPy loop, one process", loop_job),
        "numpy_cores": Contender("NumPy loop, one process per core", loop_job, on_each_core=True),
        "direct": Contender("direct JAX translation, vmap", direct_job),
        "rlvr_jax": Contender("rlvr_jax.sweep", sweep_job),
    },
    shapes=SHAPES,
    quick=QUICK,
)
