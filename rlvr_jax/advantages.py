"""Advantage estimators of group-based RL and their one registry.

To add an estimator, write one function of a `Group` and one row of `ESTIMATORS`; contract tests, grids and figures
find it there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlvr_jax.numerics import largest, pin, total
from rlvr_jax.types import InvalidInput, numbers


@partial(jax.tree_util.register_dataclass, data_fields=["reward", "weight", "size", "state"], meta_fields=[])
@dataclass(frozen=True)
class Group:
    """The samples of each prompt of a batch, as K classes with multiplicities.

    A world with few kinds of answer passes them as classes with counts; a world whose samples all differ passes its G
    samples with weight 1. A class of weight 0 is absent.

    Every array has the axes ``[K, B, L]``, with length 1 where it does not vary; so have an estimator's parameters,
    ``[1, 1, L]``, and all that it computes.

    Attributes:
      reward: ``[K, B, L]``.
      weight: ``[K, B, L]``, samples of each class, >= 0.
      size: ``[1, B, L]``, samples of the group: the sum of the weights.
      state: What the estimator remembers of each prompt, ``[1, B, L]`` by name.
    """

    reward: Array
    weight: Array
    size: Array
    state: dict[str, Array] = field(default_factory=dict)

    def mean(self, values: Array) -> Array:
        """Mean of ``values [K, B, L]`` over the samples of each group, ``[1, B, L]``."""
        return pin(total(pin(self.weight * values)) * (1 / self.size))

    def tied(self) -> Array:
        """Whether all samples have one and the same reward, ``[1, B, L]``: by equality, not by a small spread."""
        present = self.weight > 0
        highest = largest(jnp.where(present, self.reward, -jnp.inf))
        lowest = -largest(jnp.where(present, -self.reward, -jnp.inf))
        return highest == lowest

    def centred(self) -> Array:
        """Rewards less their group's mean, ``[K, B, L]``; exactly 0 in a tied group."""
        return jnp.where(self.tied(), 0, self.reward - self.mean(self.reward))


Parameters: TypeAlias = Mapping[str, Array]
Advantage: TypeAlias = tuple[Array, dict[str, Array]]


def none(group: Group, parameters: Parameters) -> Advantage:
    """REINFORCE: Aᵢ = rᵢ.

    Unbiased; its variance grows with the square of any offset of the rewards.
    """
    shape = jnp.broadcast_shapes(group.reward.shape, group.weight.shape)
    return jnp.broadcast_to(group.reward, shape), group.state


def learned(group: Group, parameters: Parameters) -> Advantage:
    """A baseline learned for each prompt: Aᵢ = rᵢ - V, then V ← V + rate (mean(r) - V).

    The advantage uses the V from before its update: with the updated one a sample would be scored against itself.
    Parameter ``baseline_rate`` in [0, 1]; V starts at 0.
    """
    value = group.state["baseline"]
    updated = value + pin(parameters["baseline_rate"] * (group.mean(group.reward) - value))
    return group.reward - value, {"baseline": updated}


def rloo(group: Group, parameters: Parameters) -> Advantage:
    """Leave-one-out: Aᵢ = rᵢ - mean of the other G - 1 rewards = G / (G - 1) (rᵢ - mean(r)).

    Unbiased: the baseline does not depend on the sample. A group whose rewards are all equal gives 0.
    """
    return group.centred() * (group.size / (group.size - 1)), group.state


def group_mean(group: Group, parameters: Parameters) -> Advantage:
    """Group mean, no division: Aᵢ = rᵢ - mean(r).

    Dr. GRPO; the expected update is (G - 1) / G times that of `rloo`.
    """
    return group.centred(), group.state


def grpo(group: Group, parameters: Parameters) -> Advantage:
    """Group-relative: Aᵢ = (rᵢ - mean(r)) / (std(r) + eps), std with ddof 0.

    Hard prompts weigh more: the expected update is up to 1 / √(p (1 - p)) times that of `none` for a prompt solved
    with probability p. Parameter ``eps`` >= 0; a group whose rewards are all equal gives 0, with eps = 0 too.
    """
    centred = group.centred()
    # in units of the largest: squares of rewards beyond 1e19, or below 1e-19, have no place in float32
    unit = largest(jnp.where(group.weight > 0, jnp.abs(centred), 0))
    ratio = centred * (1 / jnp.where(unit > jnp.finfo(unit.dtype).tiny, unit, 1))
    spread = unit * jnp.sqrt(group.mean(pin(ratio * ratio)))
    scale = spread + parameters["eps"]
    return centred * (1 / jnp.where(scale > 0, scale, 1)), group.state


@dataclass(frozen=True)
class Estimator:
    """A row of the registry.

    Attributes:
      function: Maps a `Group` and parameters ``[1, 1, L]`` by name to the advantages ``[K, B, L]`` and the new state.
      summary: One line.
      paper: Where it comes from.
      smallest_group: The fewest samples of a prompt with which it is defined.
      parameters: Default value of each number that it reads.
      state: Names of what it remembers of each prompt; all start at 0.
    """

    function: Callable[[Group, Parameters], Advantage]
    summary: str
    paper: str
    smallest_group: int = 1
    parameters: Mapping[str, float] = field(default_factory=dict)
    state: tuple[str, ...] = ()


ESTIMATORS: dict[str, Estimator] = {
    "group": Estimator(group_mean, "reward less the group's mean (Dr. GRPO)", "Liu et al. 2025, arXiv 2503.20783", 2),
    "grpo": Estimator(
        grpo,
        "reward less the group's mean, divided by its standard deviation",
        "Shao et al. 2024, arXiv 2402.03300",
        2,
        {"eps": 1e-6},
    ),
    "learned": Estimator(
        learned,
        "reward less a baseline learned for each prompt",
        "Williams 1992, Machine Learning 8",
        1,
        {"baseline_rate": 0.2},
        ("baseline",),
    ),
    "none": Estimator(none, "the reward itself (REINFORCE)", "Williams 1992, Machine Learning 8"),
    "rloo": Estimator(
        rloo,
        "reward less the mean of the group's other samples (leave-one-out)",
        "Kool et al. 2019, ICLR workshop; Ahmadian et al. 2024, arXiv 2402.14740",
        2,
    ),
}


def estimator(method: str) -> Estimator:
    """The registry's row of ``method``.

    Raises:
      InvalidInput: If there is none; the message lists the known names.
    """
    if not isinstance(method, str) or method not in ESTIMATORS:
        raise InvalidInput(f"method is {method!r}; the known ones are {', '.join(sorted(ESTIMATORS))}")
    return ESTIMATORS[method]


def advantage(rewards: Any, method: str, **parameters: Any) -> np.ndarray:
    """Advantages of one group of rewards or of many, in float64.

    A reward that is missing (NaN) gets 0 and leaves the group's statistics.

    Args:
      rewards: ``[..., G]``, the last axis is the group.
      method: A name of `ESTIMATORS`.
      **parameters: The estimator's own, such as ``eps`` of ``grpo`` or ``baseline`` (a number, or one for each group)
        of ``learned``, whose default is 0.

    Returns:
      float64, of the shape of ``rewards``.

    Raises:
      InvalidInput: For an unknown method or parameter, infinite rewards, or a group too small for the method.

    >>> advantage([1, 0, 0, 0], "rloo").round(3).tolist()
    [1.0, -0.333, -0.333, -0.333]
    >>> advantage([[1, 0], [1, 1]], "grpo", eps=0).tolist()
    [[1.0, -1.0], [0.0, 0.0]]
    """
    row = estimator(method)
    rewards = numbers(rewards, "rewards", "numbers [..., G]")
    if rewards.ndim == 0:
        raise InvalidInput(f"rewards is the single number {rewards}; it must be a group, an array [..., G]")
    if rewards.size == 0:
        raise InvalidInput(f"rewards has shape {rewards.shape}; a group has at least one sample")
    if np.isinf(rewards).any():
        raise InvalidInput("rewards has infinite entries; each must be a finite number, or NaN where it is missing")
    known = {**row.parameters, **dict.fromkeys(row.state, 0.0)}
    for name in parameters:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise InvalidInput(f"{name} is not a parameter of method {method!r}; its parameters: {allowed}")
    present = ~np.isnan(rewards)
    size = present.sum(-1)
    if np.any((size > 0) & (size < row.smallest_group)):
        raise InvalidInput(
            f"rewards has a group of {size[size > 0].min()}; "
            f"method {method!r} needs at least {row.smallest_group} samples"
        )
    given = {}
    for name, default in known.items():
        allowed = "a finite number, or one for each group"
        value = numbers(parameters.get(name, default), name, allowed)
        if not np.isfinite(value).all() or value.shape not in ((), size.shape):
            raise InvalidInput(f"{name} is {parameters[name]!r}; it must be {allowed}")
        if name in row.parameters and np.any(value < 0):
            raise InvalidInput(f"{name} is {parameters[name]!r}; it must be at least 0")
        given[name] = np.broadcast_to(value, size.shape).reshape(-1)
    with jax.enable_x64(True):
        samples = np.moveaxis(np.where(present, rewards, 0), -1, 0).reshape(rewards.shape[-1], 1, -1)
        group = Group(
            jnp.asarray(samples),
            jnp.asarray(np.moveaxis(present, -1, 0).reshape(samples.shape), jnp.float64),
            jnp.asarray(np.maximum(size, 1).reshape(1, 1, -1), jnp.float64),
            {name: jnp.asarray(given[name][None, None]) for name in row.state},
        )
        read = {name: jnp.asarray(given[name][None, None]) for name in row.parameters}
        result = np.asarray(row.function(group, read)[0])
    result = np.moveaxis(result.reshape(rewards.shape[-1:] + rewards.shape[:-1]), 0, -1)
    return np.where(present, result, 0.0)
