"""Advantage estimators: contracts of every row of the registry, hand-computed groups, identities, the NumPy oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from rlvr_jax import reference
from rlvr_jax.advantages import ESTIMATORS, Group, advantage, estimator
from rlvr_jax.types import InvalidInput

COMPARING = ["group", "grpo", "rloo"]
COMPILED = {name: jax.jit(row.function) for name, row in ESTIMATORS.items()}


def of_group(method, reward, weight, dtype=jnp.float32):
    """Advantages ``[K, B]`` of classes ``reward [K, B]`` with multiplicities ``weight [K, B]``, and the new state."""
    row = ESTIMATORS[method]
    reward, weight = (jnp.asarray(x, dtype)[..., None] for x in (reward, weight))
    batch = reward.shape[1]
    state = {name: jnp.full((1, batch, 1), 0.25, dtype) for name in row.state}
    size = jnp.sum(weight, 0, keepdims=True)
    numbers = {name: jnp.full((1, 1, 1), value, dtype) for name, value in row.parameters.items()}
    values, new = COMPILED[method](Group(reward, weight, size, state), numbers)
    assert values.shape == weight.shape
    assert values.dtype == dtype
    return np.asarray(values)[..., 0], new


def random_groups(seed, groups=40, samples=8):
    """Rewards 0, 1 and a partly paid hack, with some tied groups among them."""
    rng = np.random.default_rng(seed)
    rewards = rng.choice([0.0, 1.0, 0.35], size=(groups, samples))
    rewards[:4] = np.array([0.0, 1.0, 0.35, 0.6])[:, None]
    return rewards


# Contracts of every estimator


def test_registry_is_sorted_and_every_row_says_what_it_is():
    assert list(ESTIMATORS) == sorted(ESTIMATORS)
    for row in ESTIMATORS.values():
        assert row.summary.strip()
        assert row.paper.strip()
        assert row.smallest_group >= 1
        assert row.function.__doc__


@pytest.mark.parametrize("method", ESTIMATORS)
def test_shapes_and_state_are_kept_and_numbers_are_finite(method):
    rewards = random_groups(0).T
    values, new = of_group(method, rewards, np.ones_like(rewards))
    assert np.isfinite(values).all()
    assert set(new) == set(ESTIMATORS[method].state)
    for x in new.values():
        assert x.shape == (1, rewards.shape[1], 1)
        assert np.isfinite(x).all()


@pytest.mark.parametrize("method", ESTIMATORS)
def test_permuting_a_group_permutes_its_advantages(method):
    rewards = random_groups(1)
    order = np.random.default_rng(2).permutation(rewards.shape[1])
    assert_allclose(advantage(rewards[:, order], method), advantage(rewards, method)[:, order], atol=1e-14)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_groups_do_not_see_one_another(method):
    rewards = random_groups(3)
    one_by_one = np.stack([advantage(group, method) for group in rewards])
    assert_array_equal(advantage(rewards, method), one_by_one)
    assert_array_equal(advantage(rewards.reshape(4, 10, 8), method).reshape(40, 8), one_by_one)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_weighted_classes_equal_the_samples_that_they_stand_for(method):
    classes, counts = np.array([1.1, 0.7, 0.1]), [(3, 2, 3), (8, 0, 0), (0, 5, 3), (1, 0, 7), (0, 0, 8)]
    reward = np.broadcast_to(classes[:, None], (3, len(counts)))
    weighted, state = of_group(method, reward, np.array(counts).T)
    samples = np.stack([np.repeat(classes, count) for count in counts], 1)
    alone, expanded = of_group(method, samples, np.ones_like(samples))
    for b, count in enumerate(counts):
        assert_allclose(np.repeat(weighted[:, b], count), alone[:, b], atol=2e-6)
    for name in state:
        assert_allclose(state[name], expanded[name], atol=1e-6)


@pytest.mark.parametrize("method", COMPARING)
@pytest.mark.parametrize(("samples", "reward"), [(6, 0.6), (3, 0.7), (8, 0.1), (2, 0.0), (6, -0.3)])
def test_a_tied_group_gives_exactly_zero(method, samples, reward):
    values, _ = of_group(method, np.full((samples, 1), reward), np.ones((samples, 1)))
    assert_array_equal(values, 0)
    assert_array_equal(advantage([reward] * samples, method), 0)


@pytest.mark.parametrize("method", COMPARING)
def test_two_classes_of_one_reward_are_tied_and_an_absent_class_is_not_there(method):
    reward = np.array([[0.6, 0.6], [0.6, 0.6], [0.1, 0.1]])
    values, _ = of_group(method, reward, np.array([[3, 0], [5, 8], [0, 0]]))
    assert_array_equal(values, 0)
    values, _ = of_group(method, reward, np.array([[3, 0], [4, 7], [1, 1]]))
    assert (values != 0).all()


@pytest.mark.parametrize("method", COMPARING)
def test_a_spread_of_one_unit_in_the_last_place_is_a_signal(method):
    one = np.float32(0.6)
    values, _ = of_group(method, np.array([[one], [np.nextafter(one, np.float32(1))]]), np.ones((2, 1)))
    assert values[1, 0] > values[0, 0]


# Values, computed by hand


@pytest.mark.parametrize(
    ("method", "parameters", "rewards", "expected"),
    [
        ("none", {}, [1, 0, 0.5, 0], [1, 0, 0.5, 0]),
        ("none", {}, [1, 1], [1, 1]),
        ("learned", {"baseline": 0.25}, [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("learned", {"baseline": [0.5, 0.0]}, [[1, 0], [1, 0]], [[0.5, -0.5], [1, 0]]),
        ("learned", {}, [0.7], [0.7]),
        ("rloo", {}, [1, 0, 0, 0], [1, -1 / 3, -1 / 3, -1 / 3]),
        ("rloo", {}, [1, 0], [1, -1]),
        ("rloo", {}, [1, 1, 0.5, 0], [0.5, 0.5, -1 / 6, -5 / 6]),
        ("group", {}, [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("group", {}, [1, 1, 0.5, 0], [0.375, 0.375, -0.125, -0.625]),
        # the mean of the rewards as they are, shaped or not
        ("group", {}, [0.2892, 0.1785, 0.0933, -0.5611], [0.289225, 0.178525, 0.093325, -0.561075]),
        ("grpo", {}, [1, 0, 0, 0], [1.732047, -0.577349, -0.577349, -0.577349]),  # ddof 0, eps 1e-6
        ("grpo", {"eps": 0}, [1, 0, 0, 0], [3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)]),
        ("grpo", {"eps": 0}, [2, 0], [1, -1]),
        ("grpo", {"eps": 0.5}, [1, 0], [0.5, -0.5]),
        ("grpo", {"eps": 0}, [0.7, 0.7, 0.7], [0, 0, 0]),
        # a reward that is missing gets 0 and leaves the statistics
        ("none", {}, [1, np.nan, 0, 0], [1, 0, 0, 0]),
        ("learned", {"baseline": 0.25}, [1, np.nan, 0, 0], [0.75, 0, -0.25, -0.25]),
        ("rloo", {}, [1, np.nan, 0, 0], [1, 0, -0.5, -0.5]),
        ("group", {}, [1, np.nan, 0, 0], [2 / 3, 0, -1 / 3, -1 / 3]),
        ("grpo", {"eps": 0}, [1, np.nan, 0, 0], [2**0.5, 0, -(2**-0.5), -(2**-0.5)]),
        ("rloo", {}, [0.6, np.nan, 0.6], [0, 0, 0]),
        ("grpo", {}, [np.nan, np.nan], [0, 0]),
    ],
)
def test_groups_computed_by_hand(method, parameters, rewards, expected):
    values = advantage(rewards, method, **parameters)
    assert values.dtype == np.float64
    assert_allclose(values, expected, atol=5e-7 if parameters.get("eps") is None and method == "grpo" else 1e-15)


def test_one_missing_reward_leaves_the_other_groups_alone():
    rewards = random_groups(4)
    holed = rewards.copy()
    holed[7, 2] = np.nan
    for method in ESTIMATORS:
        same = np.arange(len(rewards)) != 7
        assert_array_equal(advantage(holed, method)[same], advantage(rewards, method)[same])


def test_the_learned_baseline_is_used_before_it_moves():
    values, new = of_group("learned", np.array([[1.0], [0.0], [0.0], [0.0]]), np.ones((4, 1)), jnp.float32)
    assert_array_equal(values[:, 0], [0.75, -0.25, -0.25, -0.25])
    assert_allclose(new["baseline"], 0.25)  # 0.25 + 0.2 * (0.25 - 0.25)
    _, new = of_group("learned", np.ones((4, 1)), np.ones((4, 1)), jnp.float32)
    assert_allclose(new["baseline"], 0.25 + 0.2 * 0.75, rtol=1e-6)


# Identities


def test_rloo_is_the_group_mean_times_G_over_G_minus_1():
    for samples in (3, 8):
        rewards = random_groups(5, samples=samples)
        assert_allclose(
            advantage(rewards, "rloo"), advantage(rewards, "group") * samples / (samples - 1), rtol=1e-14, atol=1e-15
        )


def test_rloo_is_the_reward_less_the_mean_of_the_others():
    rewards = random_groups(6)
    others = np.stack([np.delete(rewards, i, 1).mean(1) for i in range(rewards.shape[1])], 1)
    assert_allclose(advantage(rewards, "rloo"), rewards - others, atol=1e-14)


def test_grpo_with_two_samples_and_eps_0_is_rloo_on_rewards_0_and_1():
    pairs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert_array_equal(advantage(pairs, "grpo", eps=0), advantage(pairs, "rloo"))
    # for other rewards the pair's distance is divided out: rloo is r - r', grpo its sign
    pairs = np.array([[0.35, 1], [3, 0.5], [2, 2]])
    assert_allclose(
        advantage(pairs, "grpo", eps=0) * np.abs(np.diff(pairs)), advantage(pairs, "rloo"), rtol=1e-14, atol=1e-15
    )


def test_an_offset_of_the_rewards_changes_only_estimators_without_a_group_baseline():
    rewards = random_groups(7)
    for method in COMPARING:
        assert_allclose(advantage(rewards + 100, method), advantage(rewards, method), atol=1e-11)
    for method in ("none", "learned"):
        assert_allclose(advantage(rewards + 100, method), advantage(rewards, method) + 100)


def test_advantages_of_comparing_methods_sum_to_zero_in_each_group():
    rewards = random_groups(8)
    for method in COMPARING:
        assert_allclose(advantage(rewards, method).sum(-1), 0, atol=1e-12)


# The plain NumPy loop


@pytest.mark.parametrize("method", sorted(reference.ADVANTAGES))
@pytest.mark.parametrize("samples", [2, 8])
def test_agreement_with_the_numpy_loop(method, samples):
    rewards = random_groups(9, samples=samples)
    baseline = np.random.default_rng(10).random(len(rewards))
    expected = reference.ADVANTAGES[method](rewards, baseline, 1e-6)
    given = {"baseline": baseline} if method == "learned" else {}
    assert_allclose(advantage(rewards, method, **given), expected, rtol=1e-12, atol=1e-13)


# Refusals


@pytest.mark.parametrize(
    ("rewards", "method", "parameters", "sentence"),
    [
        ([1, 0], "rlo", {}, "method is 'rlo'; the known ones are group, grpo, learned, none, rloo"),
        ([1, 0], None, {}, "method is None; the known ones are"),
        ([1, 0], ["rloo"], {}, "method is ['rloo']; the known ones are"),
        (1.0, "none", {}, "rewards is the single number 1.0; it must be a group, an array [..., G]"),
        ([1, np.inf], "none", {}, "rewards has infinite entries"),
        ([], "none", {}, "rewards has shape (0,)"),
        (np.zeros((3, 0)), "rloo", {}, "rewards has shape (3, 0)"),
        (["good", "bad"], "none", {}, "rewards is ['good', 'bad']; it must be numbers [..., G]"),
        ([[1, 0], [1]], "none", {}, "rewards is [[1, 0], [1]]; it must be numbers [..., G]"),
        ([1, 1j], "none", {}, "it must be numbers [..., G]"),
        ([0.7], "rloo", {}, "rewards has a group of 1; method 'rloo' needs at least 2 samples"),
        ([0.7], "group", {}, "rewards has a group of 1; method 'group' needs at least 2 samples"),
        ([0.7], "grpo", {}, "rewards has a group of 1; method 'grpo' needs at least 2 samples"),
        ([[1, 0], [1, np.nan]], "rloo", {}, "rewards has a group of 1; method 'rloo' needs at least 2 samples"),
        ([1, 0], "rloo", {"eps": 0}, "eps is not a parameter of method 'rloo'; its parameters: none"),
        ([1, 0], "grpo", {"epsilon": 0}, "epsilon is not a parameter of method 'grpo'; its parameters: eps"),
        ([1, 0], "grpo", {"eps": "none"}, "eps is 'none'; it must be a finite number, or one for each group"),
        ([1, 0], "grpo", {"eps": np.nan}, "eps is nan; it must be a finite number, or one for each group"),
        ([[1, 0], [0, 1]], "learned", {"baseline": [1, 2, 3]}, "baseline is [1, 2, 3]; it must be a finite number"),
    ],
)
def test_refusals_are_one_sentence(rewards, method, parameters, sentence):
    with pytest.raises(InvalidInput) as caught:
        advantage(rewards, method, **parameters)
    assert sentence in str(caught.value)


def test_the_registry_gives_its_row_by_name():
    assert estimator("grpo") is ESTIMATORS["grpo"]
