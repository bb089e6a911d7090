"""The benchmark: its direct translation learns as the reference does, and its report has its columns."""

import json
from functools import partial

import jax
import numpy as np
import pytest

from rlvr_jax import bench, reference
from rlvr_jax.cli import main

COLUMNS = {"shape", "contender", "msamples_per_s", "ratio", "compile_seconds", "peak_memory_mb", "cells", "steps"}
STEPS, SEEDS = 100, 12


def test_the_direct_translation_learns_as_the_reference_does() -> None:
    task, size = reference.bandit_task(), len(bench.METHODS)
    method = np.repeat(np.arange(size, dtype=np.int32), SEEDS)
    seed = np.tile(np.arange(SEEDS, dtype=np.uint32), size)
    direct = jax.jit(partial(bench.direct_train, steps=STEPS, eval_every=STEPS // 10))(
        method, np.full(len(seed), 0.5, np.float32), seed
    )
    for i, name in enumerate(bench.METHODS):
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


def test_shapes_are_those_of_the_speed_table() -> None:
    sizes = {shape.name: (len(shape.methods), shape.rates, shape.seeds) for shape in bench.SHAPES}
    assert sizes == {
        "many configurations": (5, 32, 16),
        "the lecture's grid": (5, 1, 64),
        "one configuration": (1, 1, 1024),
    }
    assert {(shape.answers, shape.steps) for shape in bench.SHAPES} == {(16, 1000)}


def test_a_quick_bench_has_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "bandit", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["contender"] for row in report["rows"]] == ["numpy", "numpy_cores", "direct", "rlvr_jax"]
    for row in report["rows"]:
        assert set(row) >= COLUMNS
        assert row["msamples_per_s"] > 0
        assert row["peak_memory_mb"] > 10
        assert (row["compile_seconds"] is None) == row["contender"].startswith("numpy")
        assert row["compile_seconds"] is None or row["compile_seconds"] > 0.1
    assert report["rows"][0]["ratio"] == 1
    text = bench.table(report)
    for heading in ("Msamples/s", "ratio", "compile s", "peak MB"):
        assert heading in text
    for row in report["rows"]:
        assert row["about"] in text
