"""The benchmark of the bandit: the same training written four ways, measured side by side.

A figure is *answers sampled and learned from per second*, evaluation every T/10 steps included. Each
contender runs in processes of its own, so that compilation starts cold and its peak memory is its own; repetitions
are interleaved, so that a busy moment of the machine hits all contenders alike, and the median counts. The slow
contenders train fewer cells or steps of the same shape: a rate does not depend on that, and the report says how many.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr_jax import devices, reference

if TYPE_CHECKING:
    from jax import Array

METHODS = tuple(reference.ADVANTAGES)
BATCH, GROUP, STEPS, PROMPTS = 32, 8, 1000, 200

#: Repetitions whose median counts.
REPETITIONS = 5

#: Answers that one repetition of a contender other than ours is meant to sample; a few seconds at its speed.
LOOP_ANSWERS, DIRECT_ANSWERS = 2.5e6, 8.2e6

CONTENDERS = {
    "numpy": "NumPy loop, one process",
    "numpy_cores": "NumPy loop, one process per core",
    "direct": "direct JAX translation, vmap",
    "rlvr_jax": "rlvr_jax.sweep",
}


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
QUICK = (Shape("quick", METHODS, 1, 8, steps=100),)


@dataclass(frozen=True)
class Job:
    """What one process trains at each repetition.

    Attributes:
      run: Trains; the results are on the host when it returns.
      answers: Answers sampled by it.
      cells, steps: Trainings, and steps of each.
      compile_seconds: Spent on compilation before.
    """

    run: Callable[[], Any]
    answers: int
    cells: int
    steps: int
    compile_seconds: float | None = None


def measure(quick: bool = False, answers: Sequence[int] = ()) -> dict[str, Any]:
    """Measures all contenders on all shapes.

    Args:
      quick: One small shape, two repetitions.
      answers: Numbers of answers M to measure besides, each on 160 configurations and 4 seeds.

    Returns:
      A mapping for JSON: ``device``, ``cores``, ``versions``, ``repetitions``, and ``rows`` with a row for each shape
      and contender: ``msamples_per_s`` (1e6 answers a second), ``ratio`` to the NumPy loop in one process,
      ``compile_seconds`` (None for NumPy), ``peak_memory_mb`` (all its processes together), ``cells``, ``steps``.
    """
    shapes = [*(QUICK if quick else SHAPES)]
    shapes += [Shape(f"{m} answers", METHODS, 32, 4, m, 100 if quick else STEPS) for m in answers]
    repetitions, rows, device = 2 if quick else REPETITIONS, [], ""
    for shape in shapes:
        measured, device = _measure_shape(shape, repetitions)
        rows += measured
    return {
        "world": "bandit",
        "unit": "Msamples/s: 1e6 answers sampled and learned from per second, evaluation included",
        "device": device,
        "cores": devices.cores(),
        "versions": {name: version(name) for name in ("rlvr_jax", "jax", "jaxlib", "numpy")},
        "repetitions": repetitions,
        "batch_size": BATCH,
        "group_size": GROUP,
        "prompts": PROMPTS,
        "rows": rows,
    }


_NOUNS = {"methods": "method(s)", "rates": "learning rate(s)", "seeds": "seeds"}


def table(report: dict[str, Any]) -> str:
    """The report of `measure` as text."""
    head = (
        f"Answers sampled and learned from (1e6 a second), {report['device']}, {report['cores']} cores: medians of "
        f"{report['repetitions']} interleaved repetitions,\nfloat32 (NumPy: float64), P={report['prompts']} "
        f"B={report['batch_size']} G={report['group_size']}, evaluation every T/10 steps included; the slow "
        "ones train fewer cells or steps of the same shape."
    )
    lines, shown = [head], None
    columns = f"  {'':34}{'Msamples/s':>11}{'ratio':>8}{'compile s':>11}{'peak MB':>9}{'cells':>7}{'T':>6}"
    for row in report["rows"]:
        if row["shape"] != shown:
            shown, size = row["shape"], row["size"]
            grid = " x ".join(f"{size[name]} {noun}" for name, noun in _NOUNS.items())
            lines += ["", f"{shown}: {grid}, M={size['answers']}, T={size['steps']}", columns]
        compiled = "-" if row["compile_seconds"] is None else f"{row['compile_seconds']:.1f}"
        lines.append(
            f"  {row['about']:34}{row['msamples_per_s']:11.2f}{row['ratio']:8.1f}{compiled:>11}"
            f"{row['peak_memory_mb']:9.0f}{row['cells']:7d}{row['steps']:6d}"
        )
    return "\n".join(lines)


def _measure_shape(shape: Shape, repetitions: int) -> tuple[list[dict[str, Any]], str]:
    counts = dict.fromkeys(CONTENDERS, 1) | {"numpy_cores": devices.cores()}
    teams: dict[str, list[_Worker]] = {}
    try:
        # one after another: a compilation must not be timed while another one has the cores
        for name, count in counts.items():
            teams[name] = [_Worker(name, shape, i) for i in range(count)]
            for worker in teams[name]:
                worker.wait()
        seconds: dict[str, list[float]] = {name: [] for name in teams}
        for _ in range(repetitions):
            for name, team in teams.items():
                seconds[name].append(_together(team))
        memory = {name: sum(worker.peak_memory() for worker in team) for name, team in teams.items()}
    finally:
        for worker in (worker for team in teams.values() for worker in team):
            worker.close()
    rows, base = [], 0.0
    for name, team in teams.items():
        answers = sum(worker.facts["answers"] for worker in team)
        speed = answers / statistics.median(seconds[name]) / 1e6
        base = base or speed
        rows.append(
            {
                "shape": shape.name,
                "size": asdict(shape) | {"methods": len(shape.methods)},
                "contender": name,
                "about": CONTENDERS[name],
                "msamples_per_s": round(speed, 3),
                "ratio": round(speed / base, 2),
                "compile_seconds": team[0].facts["compile_seconds"],
                "peak_memory_mb": round(memory[name], 1),
                "cells": sum(worker.facts["cells"] for worker in team),
                "steps": team[0].facts["steps"],
                "seconds": [round(s, 4) for s in seconds[name]],
            }
        )
    return rows, teams["rlvr_jax"][0].facts["device"]


class _Worker:
    """A spawned process that trains when it is told to: a fork after JAX has started may hang."""

    def __init__(self, contender: str, shape: Shape, number: int):
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(other, contender, shape, number), daemon=True, name=CONTENDERS[contender]
        )
        self.process.start()
        other.close()
        self.facts: dict[str, Any] = {}

    def wait(self) -> None:
        """Until it is ready."""
        try:
            self.facts = self.connection.recv()
        except EOFError:
            raise RuntimeError(f"the benchmark's process for {self.process.name} ended; its error is above") from None

    def begin(self) -> None:
        self.connection.send("run")

    def end(self) -> None:
        self.connection.recv()

    def peak_memory(self) -> float:
        """In MB."""
        self.connection.send("memory")
        return self.connection.recv()

    def close(self) -> None:
        self.connection.close()  # it ends at the end of its input
        self.process.join(10)
        if self.process.is_alive():
            self.process.terminate()


def _together(team: Sequence[_Worker]) -> float:
    """Seconds until all workers of a team have trained once, at the same time."""
    began = time.perf_counter()
    for worker in team:
        worker.begin()
    for worker in team:
        worker.end()
    return time.perf_counter() - began


def _serve(connection: Connection, contender: str, shape: Shape, number: int) -> None:
    """The life of a worker: prepare, then train at each request until the other side closes."""
    os.environ[devices.CACHE_VARIABLE] = "off"
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    if contender == "direct":
        os.environ.pop("JAX_NUM_CPU_DEVICES", None)  # as JAX starts by itself: one device with all cores
    prepare = {"direct": direct_job, "rlvr_jax": sweep_job}.get(contender, partial(loop_job, number=number))
    try:
        job = prepare(shape)
        facts = {name: getattr(job, name) for name in ("answers", "cells", "steps", "compile_seconds")}
        if contender == "rlvr_jax":
            import jax

            facts["device"] = jax.devices()[0].device_kind
        connection.send(facts)
        while True:
            request = connection.recv()
            if request == "run":
                job.run()
            connection.send(_peak_memory() if request == "memory" else None)
    except (EOFError, OSError, KeyboardInterrupt):
        return  # the other side has closed


def _peak_memory() -> float:
    """Largest resident size of this process so far, MB."""
    try:
        # unlike ru_maxrss, VmHWM does not count what the process was before it was this program
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    import resource
    import sys

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def loop_job(shape: Shape, *, number: int = 0) -> Job:
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


def sweep_job(shape: Shape) -> Job:
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

    compile_seconds = run().attrs["compile_seconds"]
    return Job(run, shape.cells * shape.steps * BATCH * GROUP, shape.cells, shape.steps, compile_seconds)


def direct_job(shape: Shape) -> Job:
    """The direct translation on some of the cells at once, up to the first evaluation of the whole training."""
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
