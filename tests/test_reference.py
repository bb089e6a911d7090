"""The plain NumPy loop of the answer bandit: golden runs, hand-computed points, finite differences."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax

from rlvr_jax import reference
from rlvr_jax.reference import ADVANTAGES, bandit_loop, bandit_task, bandit_train
from rlvr_jax.types import InvalidInput

GOLDEN = Path(__file__).parent / "golden"
COMPARING = ["rloo", "group", "grpo"]  # the methods that compare the samples of a group


def golden_runs():
    for path in sorted(GOLDEN.glob("bandit_*.npz")):
        with np.load(path) as file:
            runs = json.loads(str(file["meta"]))["runs"]
        yield from ((path.stem, i) for i in range(len(runs)))


def golden(name):
    with np.load(GOLDEN / f"{name}.npz") as file:
        arrays = dict(file)
    meta = json.loads(str(arrays.pop("meta")))
    draws = tuple(arrays[key] for key in ("ref_logits", "level", "prompts", "uniforms"))
    runs = [{k: v for k, v in run.items() if k not in ("steps", "batch", "G", "seed")} for run in meta["runs"]]
    return meta["task"], runs, draws, arrays


def draws(P, T, B, G, seed=0):
    rng = np.random.default_rng(seed)
    prompts = np.array([rng.choice(P, B, replace=False) for _ in range(T)], dtype=int).reshape(T, B)
    return prompts, rng.random((T, B, G))


def equal_runs(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert_array_equal(a[name], b[name], err_msg=name)


def test_all_golden_runs_are_found():
    assert len(list(golden_runs())) == 17


@pytest.mark.parametrize(("name", "i"), list(golden_runs()))
def test_golden_run(name, i):
    _, runs, given, arrays = golden(name)
    out = bandit_loop(*given, **runs[i])
    history = arrays[f"run{i}_history"]
    for key in ("logits", "h", "baseline", "zero_frac"):
        assert_allclose(out[key], arrays[f"run{i}_{key}"], rtol=0, atol=1e-10, err_msg=key)
    for column, key in enumerate(("step", "accuracy", "hack_rate", "verifier_reward")):
        assert_allclose(out[key], history[:, column], rtol=0, atol=1e-10, err_msg=key)
    assert_allclose(out["accuracy_by_level"], history[:, 4:], rtol=0, atol=1e-10)
    assert_array_equal(out["answers"][-1], arrays[f"run{i}_answers_last_step"])
    assert np.abs(out["logits"] - given[0]).max() > 0.1


@pytest.mark.parametrize("name", sorted({name for name, _ in golden_runs()}))
def test_golden_task(name):
    task, _, (ref_logits, level, *_), _ = golden(name)
    mine, my_level = bandit_task(task["P"], task["M"], task["seed"], task.get("hack_prob", 0.005))
    assert_allclose(mine, ref_logits, rtol=4e-16, atol=0)  # NumPy's logarithm: the last bit is the processor's
    assert_array_equal(my_level, level)


def test_default_task():
    ref_logits, level = bandit_task()
    p = np.exp(ref_logits)
    assert ref_logits.shape == (200, 16)
    assert ref_logits.dtype == np.float64
    assert_array_equal(np.bincount(level), [42, 47, 52, 59])
    assert p[:, 0].mean() == pytest.approx(0.24285, abs=1e-12)
    assert_allclose(p[:, 0], np.array([0.01, 0.05, 0.2, 0.6])[level])
    assert_allclose(p[:, 1], 0.005)
    assert_allclose(p.sum(axis=1), 1)


def test_advantages_by_hand():
    rewards = np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    V, eps = np.array([0.25, 0.0, 3.0]), 0.5
    root = np.sqrt(0.171875)
    expected = {
        "none": rewards,
        "learned": [[0.75, -0.25, -0.25, -0.25], [1.0, 0.5, 0.0, 0.0], [-1.0, -1.0, -1.0, -1.0]],
        "rloo": [[1, -1 / 3, -1 / 3, -1 / 3], [5 / 6, 1 / 6, -1 / 2, -1 / 2], [0, 0, 0, 0]],
        "group": [[0.75, -0.25, -0.25, -0.25], [0.625, 0.125, -0.375, -0.375], [0, 0, 0, 0]],
        "grpo": [
            np.array([0.75, -0.25, -0.25, -0.25]) / (np.sqrt(3) / 4 + eps),
            np.array([0.625, 0.125, -0.375, -0.375]) / (root + eps),
            np.zeros(4),
        ],
    }
    assert expected.keys() == ADVANTAGES.keys()
    for name, values in expected.items():
        assert_allclose(ADVANTAGES[name](rewards, V, eps), values, atol=1e-15, err_msg=name)


@pytest.mark.parametrize("method", COMPARING)
@pytest.mark.parametrize(("G", "reward"), [(6, 0.6), (3, 0.7), (7, 0.7)])
def test_a_group_without_signal_is_found_by_equality(method, G, reward):
    """Equal rewards often differ from their own mean in floating point; that must not count as signal."""
    rewards = np.full((1, G), reward)
    assert_array_equal(ADVANTAGES[method](rewards, np.zeros(1), 1e-6), np.zeros((1, G)))
    ref_logits, level = bandit_task(5, 4)
    prompts, uniforms = draws(5, 3, 2, G)
    uniforms[:] = 0.999999  # everyone gives the last answer
    out = bandit_loop(ref_logits, level, prompts, uniforms, method=method, lr=1.0, reward_offset=reward)
    assert_array_equal(out["answers"], 3)
    assert out["zero_frac"] == 1
    assert_array_equal(out["zero_frac_since"], [np.nan, 1, 1, 1])
    assert_array_equal(out["logits"], ref_logits)
    assert out["h"] == 0
    assert_array_equal(out["grad_norm"][1:], 0)


def test_rounding_makes_the_case_for_equality():
    rewards = np.full((1, 3), 0.7)
    assert rewards.std() > 0
    assert (rewards != (rewards.sum() - rewards) / 2).all()


def test_correct_and_hack_are_equal_when_they_pay_the_same():
    """The count looks at rewards, not at answers: half correct, half hack, and the hack pays 1."""
    ref_logits = np.log([[0.5, 0.4, 0.1]])
    given = (ref_logits, [0], [[0]], [[[0.2, 0.7]]])
    assert_array_equal(bandit_loop(*given, method="rloo", lr=1.0)["answers"], [[[0, 1]]])
    assert bandit_loop(*given, method="rloo", lr=1.0)["zero_frac"] == 0
    assert bandit_loop(*given, method="rloo", lr=1.0, hack_reward=1.0)["zero_frac"] == 1


@pytest.mark.parametrize("method", list(ADVANTAGES))
@pytest.mark.parametrize("kl_coef", [0.0, 0.3])
def test_gradient_is_a_finite_difference_of_the_surrogate(method, kl_coef):
    """Σ_p (1/G) Σ_i A_i log π(y_i | p) - kl_coef KL(π_p ‖ ref_p), with the advantages held fixed."""
    rng = np.random.default_rng(3)
    P, M, B, G = 6, 5, 4, 8
    ref, logits, h, V = rng.normal(size=(P, M)), rng.normal(size=(P, M)), 0.7, rng.random(P)
    prompts, uniforms = rng.permutation(P)[:B], rng.random((B, G))
    options = reference.Options(method=method, lr=1.0, lr_h=1.0, kl_coef=kl_coef, hack_reward=0.6)
    policy = reference.Policy(logits.copy(), h, V.copy())
    log_ref = log_softmax(ref, axis=1)
    answers, gradient, _ = reference.train_step(policy, log_ref, prompts, uniforms, 1, options)
    rewards = np.choose(answers, [1.0, 0.6, 0.0, 0.0, 0.0])
    A = ADVANTAGES[method](rewards, V[prompts], 1e-6)

    def surrogate(theta):
        log_pi = log_softmax(theta[:-1].reshape(P, M) + theta[-1] * np.eye(M)[1], axis=1)[prompts]
        kl = (np.exp(log_pi) * (log_pi - log_ref[prompts])).sum()
        return (A * np.take_along_axis(log_pi, answers, axis=1)).sum() / G - kl_coef * kl

    theta, step = np.append(logits, h), 1e-5 * np.eye(P * M + 1)
    numeric = np.array([surrogate(theta + e) - surrogate(theta - e) for e in step]) / 2e-5
    assert np.abs(numeric).max() > 0.05
    assert_allclose(policy.logits - logits, numeric[:-1].reshape(P, M), atol=1e-9)
    assert_allclose(gradient, numeric[:-1].reshape(P, M)[prompts], atol=1e-9)
    assert policy.h - h == pytest.approx(numeric[-1], abs=1e-9)


def test_one_step_by_hand():
    """One prompt with π = (1/2, 1/4, 1/4); one sample is correct, one wrong: g = (1, -1/2, -1/2) / 4."""
    ref_logits = np.log([[0.5, 0.25, 0.25]]) + 7.0  # not normalised: ref is its softmax
    out = bandit_loop(ref_logits, [2], [[0]], [[[0.1, 0.9]]], method="none", lr=2.0, lr_h=0.0)
    assert_array_equal(out["step"], [0, 1])
    assert_array_equal(out["answers"], [[[0, 2]]])
    assert_allclose(out["logits"] - ref_logits, [[0.5, -0.25, -0.25]])
    squares = 0.25**2 + 2 * 0.125**2 + 0.125**2  # three logits, and h with -1/8
    assert_allclose(out["grad_norm"], [np.nan, np.sqrt(squares)])
    q = 1 / (1 + np.exp(-0.75))
    kl = q * np.log(q / 0.5) + (1 - q) * np.log((1 - q) / 0.5)
    entropy = -q * np.log(q) - (1 - q) * np.log((1 - q) / 2)
    assert_allclose(out["kl"], [0, kl], atol=1e-15)
    assert_allclose(out["entropy"], [1.5 * np.log(2), entropy])
    assert_allclose(out["accuracy"], [0.5, q])
    assert_allclose(out["accuracy_by_level"], [[np.nan, np.nan, 0.5, np.nan], [np.nan, np.nan, q, np.nan]])
    assert_array_equal(out["zero_frac_since"], [np.nan, 0])


def test_grad_norm_is_of_the_last_step_and_contains_the_kl_term():
    ref_logits, level = bandit_task(6, 4, hack_prob=0.3)
    prompts, uniforms = draws(6, 5, 4, 8)
    options = {"method": "group", "lr": 0.5, "lr_h": 0.1, "kl_coef": 3.0, "eval_steps": []}
    before = bandit_loop(ref_logits, level, prompts[:4], uniforms[:4], **options)
    after = bandit_loop(ref_logits, level, prompts, uniforms, **options)
    logits, h = (after["logits"] - before["logits"]) / 0.5, (after["h"] - before["h"]) / 0.1
    assert abs(h) > 1e-3
    assert_allclose(after["grad_norm"], [np.nan, np.sqrt((logits**2).sum() + h**2)])


def test_h_moves_with_lr_over_batch_and_reaches_prompts_that_were_not_trained():
    ref_logits, level = bandit_task(6, 4, hack_prob=0.3)
    given = (ref_logits, level, *draws(6, 1, 3, 8))
    out = bandit_loop(*given, method="group", lr=0.6, hack_reward=2.0)
    explicit = bandit_loop(*given, method="group", lr=0.6, hack_reward=2.0, lr_h=0.2)
    assert_allclose(out["h"], 0.2 * (out["logits"] - ref_logits)[:, 1].sum() / 0.6)
    assert out["h"] != 0
    assert_array_equal(out["h_history"], [0, out["h"]])
    assert_allclose(explicit["h"], out["h"])


def test_learned_baseline_by_hand():
    """A prompt that is always answered correctly: V goes 0, 0.25, 0.4375; the first gradient uses V = 0."""
    ref_logits = np.log([[0.98, 0.01, 0.01]])
    out = bandit_loop(
        ref_logits, [3], [[0], [0]], np.full((2, 1, 2), 0.5), method="learned", lr=1.0, baseline_rate=0.25
    )
    assert_allclose(out["baseline"], [0.4375])
    assert_allclose(out["grad_norm"][1], np.sqrt(0.02**2 + 3 * 0.01**2))
    other = bandit_loop(ref_logits, [3], [[0]], np.full((1, 1, 2), 0.5), method="none", lr=1.0)
    assert_array_equal(other["baseline"], [0.0])


def test_sampling_is_inverse_cdf_with_strict_comparison():
    pi = np.array([[0.5, 0.25, 0.25], [0.5, 0.0, 0.3]])  # the second row sums to 0.8: the last takes the rest
    u = np.array([[0.0, 0.5, 0.500001, 0.75, 0.8], [0.5, 0.51, 0.8, 0.9, 1.0]])
    assert_array_equal(reference.sample(pi, u), [[0, 0, 1, 1, 2], [0, 2, 2, 2, 2]])


def test_log_policy_survives_underflow():
    log_pi = reference.log_policy(np.array([[0.0, 0.0, -2000.0]]), 1000.0)
    assert_allclose(log_pi, [[-1000.0, 0.0, -3000.0]])


def test_schedules_agree():
    _, _, given, _ = golden("bandit_hack_fixed_midway")
    options = {"method": "rloo", "lr": 1.0, "kl_coef": 0.02, "eval_steps": [1, 30, 31, 99]}

    def run(hack_reward):
        return bandit_loop(*given, **options, hack_reward=hack_reward)

    by_points = run([[0, 1.0], [31, 0.25], [60, 0.0]])
    equal_runs(by_points, run(lambda step: 1.0 if step < 31 else 0.25 if step < 60 else 0.0))
    equal_runs(by_points, run(np.array([[-5, 1.0], [31, 0.25], [60, 0.0]])))
    assert_array_equal(by_points["step"], [0, 1, 30, 31, 99, 100])
    paid = (by_points["verifier_reward"] - by_points["accuracy"]) / by_points["hack_rate"]
    assert_allclose(paid, [1, 1, 1, 0.25, 0, 0], atol=1e-9)
    equal_runs(run(0.5), run([[0, 0.5]]))
    assert np.abs(run(0.5)["logits"] - by_points["logits"]).max() > 1e-3


@pytest.mark.parametrize(
    ("T", "options", "steps"),
    [
        (0, {}, [0]),
        (7, {}, [0, 1, 2, 3, 4, 5, 6, 7]),
        (25, {}, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25]),
        (10, {"eval_every": 4}, [0, 4, 8, 10]),
        (10, {"eval_every": 40}, [0, 10]),
        (10, {"eval_steps": [7, 3, 3]}, [0, 3, 7, 10]),
    ],
)
def test_evaluation_steps_and_zero_shares(T, options, steps):
    ref_logits, level = bandit_task(20, 5)
    prompts, uniforms = draws(20, T, 4, 3)
    out = bandit_loop(ref_logits, level, prompts, uniforms, method="grpo", lr=1.0, hack_reward=0.5, **options)
    assert_array_equal(out["step"], steps)
    assert out["accuracy_by_level"].shape == (len(steps), 4)
    rewards = np.choose(out["answers"], [1.0, 0.5, 0, 0, 0])
    zero = np.array([[len(set(group)) == 1 for group in step] for step in rewards]).reshape(T, 4)
    since = [zero[a:b].mean() for a, b in pairwise(steps)]
    assert_allclose(out["zero_frac_since"], [np.nan, *since])
    assert_allclose(out["zero_frac"], zero.mean() if T else 0)
    for name in ("accuracy", "hack_rate", "verifier_reward", "kl", "entropy", "grad_norm", "h_history"):
        assert out[name].shape == (len(steps),)
    assert np.isnan(out["grad_norm"][0])
    assert not np.isnan(out["grad_norm"][1:]).any()


def test_training_is_the_loop_on_its_own_draws():
    ref_logits, level = bandit_task(30, 6)
    rng = np.random.default_rng(11)
    drawn = [(rng.choice(np.arange(30), 5, replace=False), rng.random((5, 4))) for _ in range(40)]
    prompts, uniforms = (np.array(values) for values in zip(*drawn, strict=True))
    options = {"method": "rloo", "lr": 0.5, "kl_coef": 0.1, "hack_reward": [[0, 1], [20, 0]]}
    loop = bandit_loop(ref_logits, level, prompts, uniforms, **options)
    loop.pop("answers")
    sizes = {"steps": 40, "batch_size": 5, "group_size": 4}
    equal_runs(loop, bandit_train(ref_logits, level, **sizes, seed=11, **options))
    other = bandit_train(ref_logits, level, **sizes, seed=12, **options)
    assert np.abs(other["logits"] - loop["logits"]).max() > 0.01


def test_training_improves_and_leaves_its_input_alone():
    ref_logits, level = bandit_task(40, 8)
    before = ref_logits.copy()
    out = bandit_train(ref_logits, level, steps=300, batch_size=8, group_size=8, seed=0, method="grpo", lr=1.0)
    assert_array_equal(ref_logits, before)
    assert out["accuracy"][-1] > out["accuracy"][0] + 0.2


def test_unseen_prompts_move_only_through_h():
    ref_logits, level = bandit_task(31, 6, hack_prob=0.1)
    out = bandit_train(
        ref_logits,
        level,
        steps=60,
        batch_size=4,
        group_size=8,
        seed=5,
        train_fraction=0.5,
        method="group",
        lr=1.0,
        hack_reward=1.0,
    )
    seen = out["seen"]
    assert seen.sum() == 16  # round(15.5)
    assert_array_equal(out["logits"][~seen], ref_logits[~seen])
    assert (np.abs(out["logits"] - ref_logits)[seen].max(axis=1) > 0).all()
    assert out["h"] > 0
    assert out["hack_rate_unseen"][-1] > out["hack_rate_unseen"][0]
    for name in ("accuracy", "hack_rate"):
        whole = (16 * out[f"{name}_seen"] + 15 * out[f"{name}_unseen"]) / 31
        assert_allclose(whole, out[name])


def test_seen_given_to_the_loop():
    ref_logits, level = bandit_task(4, 3)
    given = (ref_logits, level, *draws(4, 0, 2, 2))
    out = bandit_loop(*given, method="rloo", lr=1.0, seen=[True, False, False, True])
    p = np.exp(ref_logits)
    assert_allclose(out["accuracy_seen"], [p[[0, 3], 0].mean()])
    assert_allclose(out["accuracy_unseen"], [p[[1, 2], 0].mean()])
    everyone = bandit_loop(*given, method="rloo", lr=1.0, seen=[True] * 4)
    assert np.isnan(everyone["hack_rate_unseen"]).all()
    assert "accuracy_seen" not in bandit_loop(*given, method="rloo", lr=1.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prompts": 0}, "prompts must be at least 1, got 0"),
        ({"answers": 2}, "answers must be at least 3"),
        ({"hack_prob": 0.4}, r"hack_prob must be in \(0, 0.4\), got 0.4"),
        ({"hack_prob": 0.0}, "hack_prob"),
    ],
)
def test_bad_tasks_are_refused(arguments, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        bandit_task(**arguments)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"method": "ppo"}, "method must be one of none, learned, rloo, group, grpo, got 'ppo'"),
        ({"method": "rloo", "uniforms": np.zeros((3, 2, 1))}, "rloo needs G >= 2 samples"),
        ({"prompts": np.zeros(3, dtype=int)}, "prompts must be"),
        ({"uniforms": np.zeros((3, 4, 4))}, "uniforms"),
        ({"prompts": np.ones((3, 2), dtype=int)}, "distinct"),
        ({"prompts": np.tile([0, 5], (3, 1))}, r"0\.\.4"),
        ({"level": np.zeros(4)}, "level"),
        ({"ref_logits": np.zeros((5, 2))}, "ref_logits"),
        ({"seen": np.zeros(4, dtype=bool)}, "seen"),
        ({"kl_coef": -0.1}, "kl_coef must be at least 0, got -0.1"),
        ({"hack_reward": [[1, 0.5]]}, "begin at step 0 or before"),
        ({"eps": -0.1}, "eps must be at least 0"),
        ({"eval_every": 0}, "eval_every"),
        ({"eval_steps": [4]}, r"eval_steps must be whole numbers in 0\.\.3"),
    ],
)
def test_bad_runs_are_refused(change, sentence):
    ref_logits, level = bandit_task(5, 4)
    prompts, uniforms = draws(5, 3, 2, 4)
    given = {"ref_logits": ref_logits, "level": level, "prompts": prompts, "uniforms": uniforms}
    given |= {"method": "none", "lr": 1.0}
    bandit_loop(**given)
    with pytest.raises(InvalidInput, match=sentence):
        bandit_loop(**given | change)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch_size": 6}, r"batch_size must be in 1\.\.5, got 6"),
        ({"train_fraction": 0.4}, r"batch_size must be in 1\.\.2, got 3"),
        ({"train_fraction": 0.0}, "train_fraction"),
        ({"steps": -1}, "steps must be at least 0"),
        ({"group_size": 1}, "G >= 2"),
    ],
)
def test_bad_trainings_are_refused(change, sentence):
    given = {"steps": 2, "batch_size": 3, "group_size": 2, "seed": 0, "method": "rloo", "lr": 1.0}
    bandit_train(*bandit_task(5, 4), **given)
    with pytest.raises(InvalidInput, match=sentence):
        bandit_train(*bandit_task(5, 4), **given | change)
