"""The bandit world: golden runs, the NumPy oracle, gradients, identities and distributions."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import rlvr_jax as rj
from rlvr_jax import bandit, reference
from rlvr_jax.bandit_program import LEVELS
from rlvr_jax.types import InvalidInput

GOLDEN = Path(__file__).parent / "golden"
OPTIONS = ("method", "lr", "lr_h", "kl_coef", "hack_reward", "reward_offset")
METHODS = ("none", "learned", "rloo", "group", "grpo")
HISTORY = ("step", "accuracy", "hack_rate", "verifier_reward")


def golden_runs():
    for path in sorted(GOLDEN.glob("bandit_*.npz")):
        meta = json.loads(str(np.load(path)["meta"]))
        for i, run in enumerate(meta["runs"]):
            yield pytest.param(path, meta["task"], i, run, id=f"{path.stem}-{i}-{run['method']}")


def golden_task(task):
    return bandit.make_task(task["P"], task["M"], task["seed"], task.get("hack_prob", 0.005))


@pytest.mark.parametrize(("path", "task", "i", "run"), list(golden_runs()))
def test_golden_runs_are_replayed(path, task, i, run):
    golden = np.load(path)
    task = golden_task(task)
    # NumPy's logarithm differs in its last bit between kinds of processors
    np.testing.assert_allclose(task.ref_logits, golden["ref_logits"], rtol=4e-16, atol=0)
    np.testing.assert_array_equal(task.level, golden["level"])
    options = {name: run[name] for name in OPTIONS if name in run}
    out = bandit.replay(task, golden["prompts"], golden["uniforms"], **options)
    for name in ("logits", "h", "baseline", "zero_frac"):
        np.testing.assert_allclose(out[name], golden[f"run{i}_{name}"], rtol=0, atol=1e-10, err_msg=name)
    np.testing.assert_array_equal(out["answers"][-1], golden[f"run{i}_answers_last_step"])
    history = golden[f"run{i}_history"]
    for name, column in zip(HISTORY, history.T[:4], strict=True):
        np.testing.assert_allclose(out[name], column, rtol=0, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(out["accuracy_by_level"], history[:, 4:], rtol=0, atol=1e-10)
    assert out["diverged_step"] == -1


@pytest.mark.parametrize(("path", "task", "i", "run"), [run for run in golden_runs() if run.values[2] in (0, 4)])
def test_float32_follows_the_golden_runs_for_twenty_steps(path, task, i, run):
    golden = np.load(path)
    options = {name: run[name] for name in OPTIONS if name in run}
    task, steps = golden_task(task), 20
    prompts, uniforms = golden["prompts"][:steps], golden["uniforms"][:steps]
    exact = bandit.replay(task, prompts, uniforms, **options)
    _, batch, group = uniforms.shape
    grid = bandit._one(task, options, steps=steps, batch_size=batch, group_size=group, precision="float32")
    program, inputs, shared = bandit._alone(task, grid)
    draw = (prompts.astype(np.int32)[..., None], uniforms.astype(np.float32)[..., None])
    one = jax.tree.map(lambda x: x[0], inputs)
    state, answers, _ = bandit._replayed(program, one, shared, draw, np.zeros(steps + 1, bool), np.bool_(True))
    assert state.logits.dtype == np.float32
    np.testing.assert_array_equal(answers, exact["answers"])
    np.testing.assert_allclose(state.logits[..., 0], exact["logits"], rtol=0, atol=1e-4)


def some_draws(prompts, steps, batch, group, seed=0):
    rng = np.random.default_rng(seed)
    chosen = np.stack([rng.permutation(prompts)[:batch] for _ in range(steps)])
    return chosen, rng.random((steps, batch, group))


@pytest.mark.parametrize(
    ("method", "answers"), [*((method, 17) for method in METHODS), *(("grpo", answers) for answers in (3, 16, 40, 300))]
)
def test_replay_equals_the_numpy_loop(method, answers):
    """All that either returns, with every option set, for one and for several runs of cumulative sums."""
    task = bandit.make_task(30, answers, seed=3, hack_prob=0.1)
    prompts, uniforms = some_draws(30, 24, 7, 5)
    options = {
        "method": method,
        "lr": 0.8,
        "lr_h": 0.3,
        "kl_coef": 0.07,
        "hack_reward": [[0, 0.9], [9, 0.2], [17, 1.0]],
        "reward_offset": 0.25,
        "baseline_rate": 0.4,
        "eps": 1e-3,
        "eval_steps": [1, 5, 6, 20],
    }
    ours = bandit.replay(task, prompts, uniforms, **options)
    oracle = reference.bandit_loop(task.ref_logits, task.level, prompts, uniforms, **options)
    np.testing.assert_array_equal(ours["answers"], oracle["answers"])
    renamed = {"zero_frac_since": "zero_frac", "zero_frac": None}
    np.testing.assert_allclose(ours["zero_frac"], oracle["zero_frac"], rtol=0, atol=1e-12)
    for name, values in oracle.items():
        if name in ("answers", *renamed):
            continue
        np.testing.assert_allclose(ours[name], values, rtol=0, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(ours["zero_frac_since"], oracle["zero_frac_since"], rtol=0, atol=1e-12)


def surrogate(logits, h, task, prompts, answers, advantage, kl_coef):
    """(1/G) Σ A log π(y), less kl_coef KL(π || ref), summed over the batch."""
    hack = jnp.arange(logits.shape[1]) == 1
    log_policy = jax.nn.log_softmax(logits[prompts] + h * hack, -1)
    log_ref = jax.nn.log_softmax(jnp.asarray(task.ref_logits)[prompts], -1)
    chosen = jnp.take_along_axis(log_policy, answers, -1)
    kl = (jnp.exp(log_policy) * (log_policy - log_ref)).sum()
    return (advantage * chosen).mean(-1).sum() - kl_coef * kl


@pytest.mark.parametrize("kl_coef", [0.0, 0.3])
@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_is_that_of_the_surrogate(method, kl_coef):
    task = bandit.make_task(20, 9, seed=1, hack_prob=0.2)
    prompts, uniforms = some_draws(20, 6, 5, 4, seed=2)
    options = {"method": method, "lr": 0.7, "lr_h": 0.2, "kl_coef": kl_coef, "hack_reward": 0.6}
    before = reference.bandit_loop(task.ref_logits, task.level, prompts[:5], uniforms[:5], **options)
    after = bandit.replay(task, prompts, uniforms, **options)
    answers = after["answers"][-1]
    rewards = (answers == 0) + 0.6 * (answers == 1)
    baseline = {"baseline": before["baseline"][prompts[-1]]} if method == "learned" else {}
    advantage = rj.advantages.advantage(rewards, method, **baseline)
    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        of_logits, of_h = jax.grad(surrogate, (0, 1))(
            jnp.asarray(before["logits"]), before["h"], task, prompts[-1], answers, advantage, kl_coef
        )
        np.testing.assert_allclose((after["logits"] - before["logits"]) / 0.7, of_logits, rtol=0, atol=1e-12)
        np.testing.assert_allclose((after["h"] - before["h"]) / 0.2, of_h, rtol=0, atol=1e-12)
    assert np.abs(of_logits).max() > 0.01


def final(method, **options):
    task = bandit.make_task(40, 8, seed=5)
    prompts, uniforms = some_draws(40, 40, 10, options.pop("group", 4), seed=6)
    return bandit.replay(task, prompts, uniforms, method=method, **options)


def test_rloo_is_the_group_mean_at_a_larger_learning_rate():
    one, other = final("rloo", lr=0.6), final("group", lr=0.6 * 4 / 3)
    np.testing.assert_array_equal(one["answers"], other["answers"])
    np.testing.assert_allclose(one["logits"], other["logits"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(one["h"], other["h"], rtol=0, atol=1e-12)


def test_grpo_of_two_samples_is_rloo_on_binary_rewards():
    one, other = final("grpo", lr=0.6, group=2, eps=0.0), final("rloo", lr=0.6, group=2)
    np.testing.assert_array_equal(one["answers"], other["answers"])
    np.testing.assert_allclose(one["logits"], other["logits"], rtol=0, atol=1e-10)
    assert 0 < one["zero_frac"] < 1


@pytest.mark.parametrize("method", ["rloo", "group", "grpo"])
def test_an_offset_of_the_rewards_changes_nothing(method):
    one, other = final(method, lr=0.6), final(method, lr=0.6, reward_offset=3.0)
    np.testing.assert_allclose(one["logits"], other["logits"], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(one["zero_frac"], other["zero_frac"])


def test_a_group_is_tied_by_equality():
    """A hack that pays as much as a correct answer ties with it; one that pays less does not."""
    task = bandit.Task(np.log(np.array([[0.45, 0.45, 0.1]])), np.array([3]))
    uniforms = np.array([[[0.1, 0.2, 0.6, 0.7]]])  # two correct answers, two hacks
    prompts = np.array([[0]])
    tied = bandit.replay(task, prompts, uniforms, method="grpo", lr=1.0, hack_reward=1.0)
    assert tied["zero_frac"] == 1
    np.testing.assert_array_equal(tied["logits"], task.ref_logits)
    free = bandit.replay(task, prompts, uniforms, method="grpo", lr=1.0, hack_reward=0.75, eps=0.0)
    assert free["zero_frac"] == 0
    np.testing.assert_allclose(free["logits"] - task.ref_logits, [[0.5, -0.5, 0.0]], rtol=0, atol=1e-14)


def test_unseen_prompts_are_never_trained_on():
    task = bandit.make_task(60, 6, seed=2)
    run = bandit.train(
        task, method="none", steps=80, lr=0.5, batch_size=10, train_fraction=0.5, reward_offset=1.0, seed=4
    )
    changed = np.any(run["logits"] != task.ref_logits.astype(np.float32), axis=1)
    assert changed.sum() == 30
    policy = np.exp(reference.log_policy(run["logits"].astype(np.float64), float(run["h"][-1])))
    np.testing.assert_allclose(run["accuracy_seen"][-1], policy[changed, 0].mean(), rtol=1e-5)
    np.testing.assert_allclose(run["accuracy_unseen"][-1], policy[~changed, 0].mean(), rtol=1e-5)
    np.testing.assert_allclose(run["hack_rate_unseen"][-1], policy[~changed, 1].mean(), rtol=1e-5)


def test_a_level_without_prompts_is_nan():
    task = bandit.make_task(40, 5)
    some = bandit.Task(task.ref_logits[task.level != 2], task.level[task.level != 2])
    run = bandit.train(some, method="rloo", steps=4, lr=0.1, batch_size=4)
    assert np.isnan(run["accuracy_by_level"][:, 2]).all()
    assert np.isfinite(run["accuracy_by_level"][:, [0, 1, 3]]).all()
    assert run["accuracy_by_level"].shape == (5, LEVELS)


def test_no_steps_is_an_evaluation():
    task = bandit.make_task()
    run = bandit.train(task, method="rloo", steps=0, lr=0.1)
    assert run["step"].tolist() == [0]
    assert run["zero_frac_total"] == 0
    np.testing.assert_allclose(run["accuracy"], [np.exp(task.ref_logits[:, 0]).mean()], rtol=1e-6)
    np.testing.assert_array_equal(run["logits"], task.ref_logits.astype(np.float32))


def test_training_is_one_cell_of_a_sweep():
    run = bandit.train(bandit.make_task(), method="grpo", steps=30, lr=0.5, seed=7)
    cell = rj.sweep("bandit", {"seed": [3, 7], "method": ["rloo", "grpo"]}, steps=30, lr=0.5)
    cell = cell.sel({"seed": 7, "method": "grpo"})
    for name in ("accuracy", "kl", "grad_norm", "accuracy_by_level", "zero_frac"):
        np.testing.assert_array_equal(run[name], cell[name].values, err_msg=name)


def test_facts_of_the_default_task():
    task = bandit.make_task()
    assert np.bincount(task.level).tolist() == [42, 47, 52, 59]
    assert np.exp(task.ref_logits[:, 0]).mean() == pytest.approx(0.243, abs=5e-4)
    np.testing.assert_allclose(np.exp(task.ref_logits).sum(1), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bandit.make_task(0), "prompts is 0; it must be a whole number at least 1 and at most 65536"),
        (lambda: bandit.make_task(answers=2), "answers is 2; it must be a whole number at least 3 and at most 65536"),
        (lambda: bandit.make_task(10.0), "prompts is 10.0; it must be a whole number"),
        (lambda: bandit.make_task(seed=-1), "seed is -1; it must be a whole number at least 0 and below 4294967296"),
        (lambda: bandit.make_task(hack_prob=0.4), "hack_prob is 0.4; it must lie between 0 and 0.4"),
        (lambda: bandit.make_task(hack_prob=float("nan")), "hack_prob is nan; it must lie between 0 and 0.4"),
        (lambda: bandit.make_task(hack_prob="much"), "hack_prob is 'much'; it must lie between 0 and 0.4"),
        (lambda: bandit.pass_at_k(1.5, 2), "p reaches from 1.5 to 1.5; a probability lies in [0, 1]"),
        (lambda: bandit.pass_at_k(float("nan"), 2), "p reaches from nan to nan; a probability lies in [0, 1]"),
        (lambda: bandit.pass_at_k(0.5, -1), "k reaches from -1 to -1; it must be whole numbers at least 0"),
        (lambda: final("rloo", lr=0.1, group=1), "group_size is 1 with method 'rloo'"),
        (lambda: final("ppo", lr=0.1), "method is 'ppo'"),
        (lambda: final("rloo", lr=float("inf")), "lr is inf; it must be a finite number"),
        (lambda: bandit.replay(bandit.make_task(), [[0, 0]], np.zeros((1, 2, 2)), method="none", lr=1), "repeats"),
        (lambda: bandit.replay(bandit.make_task(), [[200]], np.zeros((1, 1, 2)), method="none", lr=1), "from 0 to 199"),
        (lambda: bandit.replay(bandit.make_task(), [[0]], np.zeros((1, 2, 2)), method="none", lr=1), "[T, B, G]"),
        (lambda: bandit.replay(bandit.make_task(), [[0]], np.full((1, 1, 2), 2.0), method="none", lr=1), "[0, 1]"),
        (lambda: bandit.replay(bandit.make_task(), [["a"]], np.zeros((1, 1, 2)), method="none", lr=1), "prompts is"),
        (lambda: bandit.replay(bandit.make_task(), [[0]], [[[0.1], [0.2, 0.3]]], method="none", lr=1), "uniforms is"),
        (lambda: final("none", lr=0.1, steps=3), "steps follows from other arguments"),
        (lambda: bandit.train(None, steps=2, method="none", lr=1), "task is None; it must be a Task"),
        (lambda: bandit.train(bandit.make_task(), steps=2, method="none", lr=1, tied={}), "tied is no argument"),
        (lambda: bandit.make_task(10**12), "prompts is 1000000000000; it must be a whole number"),
        (lambda: bandit.make_task(seed=2**70), "below 4294967296"),
        (lambda: bandit.pass_at_k("a", 1), "p is 'a'; it must be probabilities in [0, 1]"),
        (lambda: bandit.pass_at_k(0.5, float("nan")), "k reaches from nan to nan"),
        (lambda: bandit.pass_at_k(0.5, 1.5), "it must be whole numbers at least 0"),
        (lambda: bandit.pass_at_k([0.5, 0.1], [1, 2, 3]), "they must broadcast against each other"),
        (lambda: rj.advantages.advantage([1, 0], "grpo", eps=-1), "eps is -1; it must be at least 0"),
        (lambda: bandit.train(bandit.make_task(), steps=2, method="none", lr=1, answers=4), "part of the task"),
        (lambda: bandit.train(bandit.Task(np.zeros((4, 2)), np.zeros(4, int)), steps=2, method="none", lr=1), "M >= 3"),
        (lambda: bandit.train(bandit.Task(np.zeros((4, 3)), np.full(4, 4)), steps=2, method="none", lr=1), "0 to 3"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(InvalidInput) as refusal:
        call()
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_pass_at_k():
    np.testing.assert_allclose(bandit.pass_at_k([0.3, 0.02], 7), 1 - (1 - np.array([0.3, 0.02])) ** 7, rtol=1e-14)
    assert bandit.pass_at_k(1e-18, 10) == pytest.approx(1e-17, rel=1e-12)  # lost in 1 - (1 - p)^k
    np.testing.assert_allclose(bandit.pass_at_k(0.1, [1, 2, 3]), [0.1, 0.19, 0.271], rtol=1e-14)
    assert bandit.pass_at_k([0.0, 1.0], [[0], [3]]).tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_answers_are_drawn_as_often_as_they_are_likely():
    """Chi-square of answers drawn by the program's own draws against the policy; false alarms: 1e-4."""
    task = bandit.make_task(50, 6, seed=8, hack_prob=0.1)
    grid = bandit._one(task, {"method": "none", "lr": 0.0}, steps=400, batch_size=50, group_size=8, seed=11)
    program, inputs, shared = bandit._alone(task, grid)
    one = jax.tree.map(lambda x: x[0], inputs)

    @jax.jit
    def draw(go):
        context = program.context(one, shared)
        return program.draw(context, jnp.arange(1, 401), bandit.Stage(go))

    prompts, uniforms = (np.asarray(x)[..., 0] for x in draw(np.bool_(True)))
    answers = bandit.replay(task, prompts, uniforms, method="none", lr=0.0)["answers"]
    counts = np.zeros((50, 6))
    np.add.at(counts, (prompts[..., None], answers), 1)
    expected = np.exp(task.ref_logits) * 400 * 8
    assert expected.min() > 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert stats.chi2.cdf(statistic, 50 * 5) < 1 - 1e-4


SEEDS = 256


@pytest.mark.parametrize("method", METHODS)
def test_means_and_spreads_agree_with_the_numpy_loop(method):
    """Welch and Brown-Forsythe over 256 seeds of each; false alarms: 1e-4 for each of 6 tests and method."""
    options = {"method": method, "steps": 120, "lr": 0.7, "batch_size": 8, "group_size": 8, "hack_reward": 0.5}
    ref_logits, level = reference.bandit_task(40, 8, seed=0, hack_prob=0.02)
    oracle = [reference.bandit_train(ref_logits, level, seed=s, eval_steps=[], **options) for s in range(SEEDS)]
    ours = rj.sweep(
        "bandit",
        {"seed": {"range": [0, SEEDS]}},
        prompts=40,
        answers=8,
        hack_prob=0.02,
        eval_steps=[],
        keep=["accuracy", "h", "zero_frac_total"],
        **options,
    )
    for name, theirs in (("accuracy", "accuracy"), ("h", "h_history"), ("zero_frac_total", "zero_frac")):
        one = ours[name].isel(step=-1).values if "step" in ours[name].dims else ours[name].values
        other = np.array([np.atleast_1d(run[theirs])[-1] for run in oracle])
        assert one.std() > 0
        assert stats.ttest_ind(one, other, equal_var=False).pvalue > 1e-4, name
        assert stats.levene(one, other).pvalue > 1e-4, name
