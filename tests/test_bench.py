"""The benchmarks: the direct translation learns as the reference does, decisions are counted, reports have columns."""

import json
from functools import partial

import jax
import numpy as np
import pytest

from rlvr_jax import bench, bench_bandit, bench_tool, reference
from rlvr_jax.cli import main
from rlvr_jax.reference_chains import PLAIN, Kernel

COLUMNS = {"shape", "contender", "ratio", "compile_seconds", "peak_memory_mb", "cells", "steps"}
STEPS, SEEDS = 100, 12


def test_the_direct_translation_learns_as_the_reference_does() -> None:
    task, size = reference.bandit_task(), len(bench_bandit.METHODS)
    method = np.repeat(np.arange(size, dtype=np.int32), SEEDS)
    seed = np.tile(np.arange(SEEDS, dtype=np.uint32), size)
    direct = jax.jit(partial(bench_bandit.direct_train, steps=STEPS, eval_every=STEPS // 10))(
        method, np.full(len(seed), 0.5, np.float32), seed
    )
    for i, name in enumerate(bench_bandit.METHODS):
        runs = [
            reference.bandit_train(*task, method=name, lr=0.5, steps=STEPS, batch_size=32, group_size=8, seed=s)
            for s in range(SEEDS)
        ]
        for ours, theirs in (
            ("accuracy", "accuracy"),
            ("hack_rate", "hack_rate"),
            ("kl", "kl"),
            ("entropy", "entropy"),
            ("zero_frac", "zero_frac_since"),
        ):
            a = np.asarray(direct[ours], np.float64).reshape(size, SEEDS, -1)[i]
            b = np.array([run[theirs] for run in runs])
            np.testing.assert_allclose(a[:, 0], b[:, 0], rtol=1e-5)  # before training; NaN where nothing was counted
            error = np.hypot(a[:, 1:].std(0, ddof=1), b[:, 1:].std(0, ddof=1)) / np.sqrt(SEEDS)
            # 250 comparisons of independent means: none is 5 standard errors apart by chance
            assert (np.abs(a[:, 1:].mean(0) - b[:, 1:].mean(0)) < 5 * error + 1e-6).all(), (name, ours)


def test_shapes_are_those_of_the_speed_tables() -> None:
    sizes = {shape.name: (len(shape.methods), shape.rates, shape.seeds) for shape in bench_bandit.SHAPES}
    assert sizes == {
        "many configurations": (5, 32, 16),
        "the lecture's grid": (5, 1, 64),
        "one configuration": (1, 1, 1024),
    }
    assert {(shape.answers, shape.steps) for shape in bench_bandit.SHAPES} == {(16, 1000)}
    sizes = {shape.name: (len(shape.configurations), shape.seeds, shape.steps) for shape in bench_tool.SHAPES}
    assert sizes == {"the lecture's configurations": (6, 64, 60), "many costs": (160, 64, 60)}


def test_a_decision_is_one_step_of_one_rollout() -> None:
    made = {"train": 0, "sft": 0, "test": 0}

    def train_step(policy, problems, chosen, draws, o):  # type: ignore[no-untyped-def]
        rollouts, push = PLAIN.train_step(policy, problems, chosen, draws, o)
        made["train"] += np.count_nonzero(rollouts.context >= 0)
        return rollouts, push

    def sft_epoch(theta, problems, u_own, offset, o):  # type: ignore[no-untyped-def]
        made["sft"] += problems.length[: len(u_own)].sum()
        return PLAIN.sft_epoch(theta, problems, u_own, offset, o)

    def evaluate(theta, problems, draws, o):  # type: ignore[no-untyped-def]
        made["test"] += draws.u_own.shape[1] * problems.length.sum()
        return PLAIN.evaluate(theta, problems, draws, o)

    (shape,) = bench_tool.QUICK
    job = bench_tool.loop_job(shape, 0, kernel=Kernel(train_step, sft_epoch, evaluate), decisions=1e6)
    job.run()
    assert (job.cells, job.steps) == (12, 10)  # fewer than 1e6 decisions are all of them
    assert made["test"] == 12 * 11 * 3 * 1_137  # the test chains have 1,137 steps
    # 1,920 drawn chains with a length of 5.3 and an sd of 1.6 are 15 % of it, so that its sd is 0.1 %
    assert job.count == pytest.approx(sum(made.values()), rel=0.003)


@pytest.mark.parametrize(
    ("measured", "contenders"),
    [
        (bench_bandit.BENCH, ["numpy", "numpy_cores", "direct", "rlvr_jax"]),
        (bench_tool.BENCH, ["plain", "numpy", "numpy_cores", "rlvr_jax"]),
    ],
    ids=["bandit", "tool"],
)
def test_a_quick_bench_has_its_columns(
    measured: bench.Bench, contenders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", measured.world, "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["contender"] for row in report["rows"]] == contenders
    with_jax = {"direct", "rlvr_jax"}
    for row in report["rows"]:
        assert set(row) >= COLUMNS
        assert row[measured.rate] > 0
        assert row["peak_memory_mb"] > 10
        assert (row["compile_seconds"] is not None) == (row["contender"] in with_jax)
        assert row["compile_seconds"] is None or row["compile_seconds"] > 0.1
    assert report["rows"][0]["ratio"] == 1
    text = bench.table(measured, report)
    for heading in (measured.column, "ratio", "compile s", "peak MB"):
        assert heading in text
    for row in report["rows"]:
        assert row["about"] in text
