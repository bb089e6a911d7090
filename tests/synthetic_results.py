"""Results of the shape that a sweep returns, with numbers like the lecture's, made without an engine."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

METHODS = ("none", "learned", "rloo", "group", "grpo")
LEVELS = ("very hard 1%", "hard 5%", "medium 20%", "easy 60%")
# Accuracy of the task with 200 prompts and seed 0 before training; final accuracies of the lecture.
START = 0.24285
FINAL = {"none": 0.772, "learned": 0.772, "rloo": 0.771, "group": 0.765, "grpo": 0.926}


def results(axes: Mapping[str, Sequence[Any]], steps: Sequence[int] = (0, 100, 200, 400, 600)) -> xr.Dataset:
    """Make results with the dimensions ``axes`` (in this order), then step and level."""
    rng = np.random.default_rng(0)
    dims, shape = list(axes), tuple(len(values) for values in axes.values())
    final = np.array([FINAL.get(name, 0.8) for name in axes.get("method", ["rloo"])])
    final = final.reshape([-1 if dim == "method" else 1 for dim in dims])[..., None]
    time = np.array(steps) / max(steps)
    accuracy = START + (final - START) * time + time * rng.normal(0.0, 0.01, (*shape, len(steps)))
    by_level = np.clip(accuracy[..., None] * np.array([0.5, 1.0, 1.1, 1.2]), 0.0, 1.0)
    zero_frac = np.where(time > 0, 0.5 + 0.3 * time + rng.normal(0.0, 0.01, accuracy.shape), np.nan)
    variables = {
        "accuracy": ([*dims, "step"], accuracy),
        "hack_rate": ([*dims, "step"], 0.005 * accuracy),
        "accuracy_by_level": ([*dims, "step", "level"], by_level),
        "zero_frac": ([*dims, "step"], zero_frac),
        "zero_frac_total": (dims, np.nanmean(zero_frac, axis=-1)),
    }
    dataset = xr.Dataset(
        {name: (at, values.astype(np.float32)) for name, (at, values) in variables.items()},
        coords={
            **{dim: list(values) for dim, values in axes.items()},
            "step": list(steps),
            "level": list(LEVELS),
        },
    )
    dataset["diverged_step"] = (dims, np.full(shape, -1, np.int32))
    fixed = {"prompts": 200, "task_seed": 0, "hack_reward": 0.0}
    spec = {"world": "bandit", "steps": max(steps), "fixed": fixed}
    return dataset.assign_attrs(spec=json.dumps(spec), spec_sha256="0" * 64, world="bandit")


CONTEXTS = tuple(f"{op}_{difficulty}" for op in ("add", "sub", "mul1", "mul2") for difficulty in range(3))


def tool_results(axes: Mapping[str, Sequence[Any]], steps: Sequence[int] = (0, 20, 40, 60)) -> xr.Dataset:
    """Make results of the tool-use world: calls fall with the cost, grpo stops calling at any, accuracy follows."""
    rng = np.random.default_rng(0)
    dims, shape = list(axes), tuple(len(values) for values in axes.values())

    def along(name: str, value: Any) -> np.ndarray:
        numbers = np.array([value(x) for x in axes.get(name, [None])], float)
        return numbers.reshape([-1 if dim == name else 1 for dim in dims])

    cost = along("call_cost", lambda x: x or 0.0)
    trapped = along("method", lambda x: x == "grpo") * (cost > 0)
    final = np.maximum(3.3 - 30.0 * cost, 0.05) * (1.0 - 0.98 * trapped) + rng.normal(0.0, 0.02, shape)
    started = along("cold_start", lambda x: bool(x))
    time = np.array(steps) / max(steps)
    calls = 0.28 + 0.5 * started[..., None] + (final * (1.0 - 0.6 * started))[..., None] * time
    accuracy = 0.33 + 0.15 * calls
    push = np.where(time > 0, 0.1 * calls, np.nan)
    equal = np.where(time > 0, -0.01 * calls - 0.5 * trapped[..., None] * (1.2 - time), np.nan)
    hardness = np.linspace(0.1, 1.0, len(CONTEXTS))
    variables = {
        "accuracy": ([*dims, "step"], accuracy),
        "calls": ([*dims, "step"], calls),
        "call_prob": ([*dims, "step", "context"], np.clip(calls[..., None] * hardness / 4.0, 0.0, 1.0)),
        "equal_outcome_frac": ([*dims, "step"], np.where(time > 0, 0.3 + 0.02 * calls, np.nan)),
        "push_equal": ([*dims, "step"], equal),
        "push_mixed": ([*dims, "step"], push),
    }
    dataset = xr.Dataset(
        {name: (at, values.astype(np.float32)) for name, (at, values) in variables.items()},
        coords={**{dim: list(values) for dim, values in axes.items()}, "step": list(steps), "context": list(CONTEXTS)},
    )
    return dataset.assign_attrs(spec=json.dumps({"world": "tool_use"}), spec_sha256="1" * 64, world="tool_use")
