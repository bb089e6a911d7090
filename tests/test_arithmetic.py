"""The tool-use world: golden runs, the plain-Python oracle, exact expectations, closed forms, the lecture's claims."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from exact_chain import expected_accuracy, expected_calls, gradient, group_step, leaves
from scipy import stats

import rlvr_jax as rj
from rlvr_jax import arithmetic, chain, draws, reference_chains, rollouts, single, theory
from rlvr_jax.arithmetic import make_problems
from rlvr_jax.arithmetic_world import PARAMETERS, SKILL_NAMES, WORLD, inputs
from rlvr_jax.numerics import Stage
from rlvr_jax.problems import OPERANDS, Problems
from rlvr_jax.reference_arithmetic import arithmetic_loop, sft_loop
from rlvr_jax.types import InvalidInput

GOLDEN = Path(__file__).parent / "golden"
METHODS = ("none", "learned", "rloo", "group", "grpo")
DRAWN = ("problem", "u_call", "u_fail", "u_own", "offset")


def golden_runs():
    for name in ("tool_small", "tool_lecture"):
        meta = json.loads(str(np.load(GOLDEN / f"{name}.npz")["meta"]))
        for i, run in enumerate(meta["runs"]):
            yield pytest.param(name, meta, i, run, id=f"{name}-{i}-{run['method']}")


@pytest.mark.parametrize(("name", "meta", "i", "run"), list(golden_runs()))
def test_golden_runs_are_replayed(name, meta, i, run):
    golden, settings = np.load(GOLDEN / f"{name}.npz"), meta["settings"]
    problems = make_problems(meta["problems"]["n"], meta["problems"]["seed"])
    theta0 = golden["sft_theta"][-1] if run.get("cold_start") else None
    out = arithmetic.replay(
        problems,
        {key: golden[f"run{i}_{key}"] for key in DRAWN},
        method=run["method"],
        call_cost=run["call_cost"],
        lr=settings["lr"],
        tool_fail=settings["tool_fail"],
        initial_call_prob=settings["initial_call_prob"],
        theta0=theta0,
    )
    for key in ("call", "context", "final_x", "correct"):
        np.testing.assert_array_equal(out[key], golden[f"run{i}_{key}"], err_msg=key)
    for key in ("theta", "reward", "advantage"):
        np.testing.assert_allclose(out[key], golden[f"run{i}_{key}"], rtol=0, atol=1e-9, err_msg=key)
    assert out["diverged_step"] == -1


def test_the_golden_cold_start_is_replayed():
    golden = np.load(GOLDEN / "tool_lecture.npz")
    meta = json.loads(str(golden["meta"]))
    drawn = {key: golden[f"sft_{key}"] for key in ("u_own", "offset")}
    problems = make_problems(meta["problems"]["n"], meta["problems"]["seed"])
    out = arithmetic.replay_sft(problems, drawn, lr=meta["sft"]["lr"])
    np.testing.assert_allclose(out["theta"], golden["sft_theta"], rtol=0, atol=1e-9)


#: Every number of the world away from its default.
UNUSUAL = {
    **dict(zip(SKILL_NAMES, np.linspace(0.2, 0.9, 12).tolist(), strict=True)),
    **{"skill_decay": 0.3, "bug_share": 0.45, "tool_fail": 0.2, "initial_call_prob": 0.35, "call_cost": 0.07},
    **{"lr": 3.0, "eps": 1e-3, "baseline_rate": 0.4},
}


def as_oracle(options):
    """The same options as the oracle spells them."""
    kept = {name: value for name, value in options.items() if name not in SKILL_NAMES}
    return kept | {"skill": [options.get(name, PARAMETERS[name].default) for name in SKILL_NAMES]}


def drawn_by(program, context, steps):
    """The program's own draws of a training, as the oracle reads them: for training, evaluation and cold start."""

    def read(uniforms, slip):  # [T, S, 3, G, B, 1], [T, S, G, B, 1]
        u = {name: uniforms[:, :, c, ..., 0].transpose(0, 3, 2, 1) for c, name in enumerate(rollouts.DRAWN)}
        return u | {"offset": slip[..., 0].transpose(0, 3, 2, 1)}  # [T, B, G, S]

    def made(go):
        stage = Stage(go)
        drawn = program.draw(context, 1 + np.arange(steps), stage)
        zero, repeats = np.zeros((1, 1), np.uint32), np.arange(program.repeats)
        test = program.drawn(context, draws.Stream.EVALUATION, zero, repeats, np.arange(program.test), stage)
        epochs, examples = np.arange(program.epochs), np.arange(program.examples)
        sft = program.drawn(context, draws.Stream.SFT, zero, epochs, examples, stage)
        return drawn, test, sft

    drawn, test, sft = jax.tree.map(np.asarray, jax.jit(made)(np.bool_(True)))
    training = read(drawn.uniforms, drawn.slip) | {"problem": drawn.problem[..., 0]}
    evaluation = {name: values[0] for name, values in read(*test).items()}  # [N', R, S]
    imitation = {name: values[0].transpose(1, 0, 2) for name, values in read(*sft).items()}  # [E, n, S]
    return training, evaluation, imitation


@pytest.mark.parametrize("method", METHODS)
def test_a_training_equals_the_plain_loop_on_its_own_draws(method):
    """Draws, rollouts, advantages, updates, cold start, evaluation and diagnostics, all numbers off their defaults."""
    options = {**UNUSUAL, "method": method, "batch_size": 5, "group_size": 3, "max_steps": 6, "eval_steps": [4, 9]}
    sizes = {"train_problems": 24, "test_problems": 17, "sft_examples": 7, "sft_epochs": 4, "eval_repeats": 2}
    run = {"steps": 9, "seed": 5, "precision": "float64", "cold_start": True, "sft_lr": 0.2, "min_steps": 1}
    out = arithmetic.train(**options, **sizes, **run)
    grid = single.one_cell(WORLD, {**options, **sizes, **run})
    program = single.program(grid)
    with jax.enable_x64(True):
        given, shared = inputs(program, grid, single.CELL)
        context = program.context(jax.tree.map(lambda x: x[0], given), shared)
        training, evaluation, imitation = drawn_by(program, context, run["steps"])
    problems, test = make_problems(24, 210, 1, 6), make_problems(17, 211, 1, 6)
    oracle = as_oracle(UNUSUAL)
    model = {name: oracle[name] for name in ("skill", "skill_decay", "bug_share", "initial_call_prob")}
    theta0 = sft_loop(problems, imitation["u_own"], imitation["offset"], lr=0.2, **model)[-1]
    expected = arithmetic_loop(
        problems,
        training,
        theta0=theta0,
        test=(test, reference_chains.Draws(**evaluation)),
        method=method,
        eval_steps=[4, 9],
        **oracle,
    )
    np.testing.assert_array_equal(out["step"], expected["step"])
    names = ("accuracy", "calls", "reward", "call_prob", "zero_frac", "equal_outcome_frac", "push_equal", "push_mixed")
    for name in names:
        np.testing.assert_allclose(out[name], expected[name], rtol=0, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(out["theta"], expected["theta"][-1], rtol=0, atol=1e-9)
    assert np.abs(np.diff(expected["theta"], axis=0)).max(1).min() > 0  # every step moved it


@pytest.mark.parametrize("method", METHODS)
def test_a_replay_equals_the_plain_loop(method):
    rng, (steps, batch, group, places) = np.random.default_rng(3), (6, 5, 4, 9)
    problems = make_problems(30, 7, 1, 9)
    drawn = {name: rng.random((steps, batch, group, places)) for name in ("u_call", "u_fail", "u_own")}
    drawn["offset"] = rng.integers(4, size=(steps, batch, group, places))
    drawn["problem"] = np.stack([rng.permutation(30)[:batch] for _ in range(steps)])
    theta0 = rng.normal(size=12)
    out = arithmetic.replay(problems, drawn, method=method, theta0=theta0, **UNUSUAL)
    expected = arithmetic_loop(problems, drawn, method=method, theta0=theta0, **as_oracle(UNUSUAL))
    for name, values in expected["rollouts"]._asdict().items():
        np.testing.assert_allclose(out[name], values, rtol=0, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(out["theta"], expected["theta"], rtol=0, atol=1e-9)


def test_one_step_of_every_kind_equals_the_rules():
    """`chain.advance` on 200,000 steps: every operation, values of either sign and any size, every branch."""
    rng, n = np.random.default_rng(0), 200_000
    op = rng.integers(4, size=n)
    k = np.array([rng.integers(OPERANDS[o][0], OPERANDS[o][1] + 1) for o in op])
    x = np.where(rng.random(n) < 0.5, rng.integers(-1500, 1500, n), rng.integers(-9_000_000, 9_000_000, n))
    problems = Problems(np.zeros(n, int)[:1], [[0]], [[10]])
    code = chain.encode(problems, 1)[0, 0] * 0 + (op | k % 10 << 3 | k // 10 << 7)
    u_call, u_own, u_fail = rng.random((3, n))
    slip = rng.integers(4, size=n)
    call_prob, right = rng.random((3, n)), rng.random((3, n))
    bug = right + 0.3 * (1 - right)
    with jax.enable_x64(True):
        row = lambda values: np.asarray(values)[None, None]  # noqa: E731
        words = np.asarray(
            chain.advance(
                row(x.astype(np.int32) * 8),
                row(code.astype(np.int32)),
                tuple(map(row, (u_call, u_own, u_fail, slip))),
                *(table[:, None] for table in (call_prob, right, bug)),
                row(np.full(n, 0.4)),
            )
        )[0, 0]
    for i in rng.permutation(n)[:20_000]:
        o, value, operand = int(op[i]), int(x[i]), int(k[i])
        hard = reference_chains.context(o, value, operand) - 3 * o
        call = u_call[i] < call_prob[hard, i]
        if (call and u_fail[i] >= 0.4) or u_own[i] < right[hard, i]:
            expected = reference_chains.exact(o, value, operand)
        elif u_own[i] < bug[hard, i]:
            expected = reference_chains.bug(o, value, operand)
        else:
            expected = reference_chains.exact(o, value, operand) + chain.SLIPS[slip[i]]
        expected = max(-chain.CAP, min(chain.CAP, expected))
        assert (words[i] >> 3, (words[i] >> 1) & 3, words[i] & 1) == (expected, hard, call), (o, value, operand)


def many_rollouts(problems, theta, steps, **options):
    """Groups of rollouts of the one problem at a fixed theta: ``steps`` steps of 4 copies, without learning."""
    rng = np.random.default_rng(11)
    copies = Problems(np.repeat(problems.start, 4), np.repeat(problems.op, 4, 0), np.repeat(problems.operand, 4, 0))
    group, places = options.pop("group_size"), problems.op.shape[1]
    drawn = {name: rng.random((steps, 4, group, places)) for name in ("u_call", "u_fail", "u_own")}
    drawn["offset"] = rng.integers(4, size=drawn["u_own"].shape)
    drawn["problem"] = np.tile(np.arange(4), (steps, 1))
    return arithmetic.replay(copies, drawn, theta0=theta, lr=0.0, **options)


SHORT = {
    "add with a carry, then two digits": ([17], [[0, 3]], [[25, 12]]),
    "subtraction with a borrow": ([42], [[1]], [[15]]),
    "one digit, then a carry-free addition": ([123], [[2, 0]], [[7, 10]]),
    "two digits of a large number": ([1234], [[3]], [[21]]),
}


@pytest.mark.parametrize("what", SHORT)
def test_rollouts_and_gradient_are_within_four_standard_errors_of_their_expectations(what):
    """100,000 rollouts of chains that can be enumerated: accuracy, calls, and the gradient of the expected reward.

    The gradient is the masked one: what the calculator returns has no part in it, neither here nor in the exact one,
    which `test_exact_chain` shows to be `jax.grad` of the enumerated expected reward. About 16 comparisons at 4
    standard errors: a false alarm in 1,000 choices of the seed.
    """
    problems = Problems(*SHORT[what])
    theta = np.linspace(-1.2, 0.8, 12)
    out = many_rollouts(problems, theta, 3125, method="none", group_size=8, call_cost=0.1)
    rows = leaves(problems, 0)
    score = np.where(out["call"] >= 0, out["call"] - 1 / (1 + np.exp(-theta[out["context"]])), 0)
    correct, calls = out["correct"].reshape(-1), (out["call"] > 0).sum(-1).reshape(-1)
    pushes = np.stack([(score * (out["context"] == c)).sum(-1).reshape(-1) for c in range(12)], -1)
    pushes *= out["reward"].reshape(-1, 1)
    for sampled, exact in (
        (correct, expected_accuracy(rows, theta)),
        (calls, expected_calls(rows, theta)),
        (pushes, gradient(rows, theta, 0.1)),
    ):
        error = sampled.std(0, ddof=1) / np.sqrt(len(sampled))
        assert len(sampled) == 100_000
        assert (np.abs(sampled.mean(0) - exact) <= 4 * error + 1e-12).all()


@pytest.mark.parametrize("method", ["rloo", "group", "grpo"])
def test_updates_and_diagnostics_are_within_four_standard_errors_of_all_groups(method):
    """40,000 groups through the program, against the enumeration of all groups: update, shares and pushes.

    About eight comparisons a method at 4 standard errors: a false alarm in 600 choices of the seed for all three.
    """
    problems, group = Problems(*SHORT["add with a carry, then two digits"]), 3
    theta, cost = np.linspace(-1.2, 0.8, 12), 0.1
    out = many_rollouts(problems, theta, 10_000, method=method, group_size=group, call_cost=cost)
    exact = group_step(leaves(problems, 0), theta, cost, method, group)
    score = np.where(out["call"] >= 0, out["call"] - 1 / (1 + np.exp(-theta[out["context"]])), 0)
    by_context = np.stack([(score * (out["context"] == c)).sum(-1) for c in range(12)], -1)  # [T, B, G, K]
    pushes = (out["advantage"][..., None] * by_context).sum(2).reshape(-1, 12)
    right = out["correct"].sum(-1).reshape(-1)
    equal = (right == 0) | (right == group)
    same = (out["reward"] == out["reward"][..., :1]).all(-1).reshape(-1)
    for sampled, expected in (
        (pushes / group, exact.gradient),
        (same, exact.zero_frac),
        (equal, exact.equal_outcome_frac),
        (pushes.sum(1) * equal, exact.push_equal),
        (pushes.sum(1) * ~equal, exact.push_mixed),
    ):
        error = sampled.std(0, ddof=1) / np.sqrt(len(sampled))
        assert (np.abs(sampled.mean(0) - expected) <= 4 * error + 1e-12).all()


#: Three steps in one context, times 3 from 1000 on, where an error never comes right again: see `rlvr_jax.theory`.
REPEATED = {
    "train_problems": Problems([1000] * 32, [[2, 2, 2]] * 32, [[3, 3, 3]] * 32),
    "test_problems": Problems([1000], [[2, 2, 2]], [[3, 3, 3]]),
    **{"skill_mul1_2": 0.6, "skill_decay": 0.0, "bug_share": 0.0, "tool_fail": 0.125},
}
N_STEPS, ALONE, CALLING = 3, 0.6, 1 - 0.125 * (1 - 0.6)


def test_the_repeated_chain_is_bistable_between_its_two_costs():
    """Trainings from either side of the separatrix end on their own side; outside of the window all end on one."""
    low, high = theory.chain_window(N_STEPS, ALONE, CALLING)
    inside = (low + high) / 2
    border = float(theory.chain_separatrix(inside, N_STEPS, ALONE, CALLING))
    assert 0.15 < border < 0.85
    starts = [border - 0.12, border + 0.12]
    out = rj.sweep(
        "tool_use",
        {"initial_call_prob": starts, "call_cost": [0.8 * low, inside, 1.2 * high], "seed": {"range": [0, 16]}},
        **{**REPEATED, "method": "rloo", "steps": 300, "eval_steps": [300], "batch_size": 32, "lr": 2.0},
    )
    called = (
        out["call_prob"]
        .sel({"context": "mul1_2", "step": 300})
        .transpose("call_cost", "initial_call_prob", "seed")
        .values
    )
    assert (called[0] > 0.9).all()
    assert (called[1, 0] < 0.1).all()
    assert (called[1, 1] > 0.9).all()
    assert (called[2] < 0.1).all()


def test_the_repeated_chains_update_is_the_closed_form():
    """rloo's mean push is the derivative of the expected reward, within 4 standard errors (1 in 16,000)."""
    problems, group = Problems([1000], [[2, 2, 2]], [[3, 3, 3]]), 8
    theta, cost = np.full(12, 0.3), 0.17
    options = {name: value for name, value in REPEATED.items() if not name.endswith("problems")}
    out = many_rollouts(problems, theta, 3000, method="rloo", group_size=group, call_cost=cost, **options)
    assert (out["context"] == chain.CONTEXTS.index("mul1_2")).all()
    c = 1 / (1 + np.exp(-0.3))
    push = (out["advantage"] * (out["call"] - c).sum(-1)).mean(-1).reshape(-1)  # of each group
    exact = theory.chain_gradient(c, cost, N_STEPS, ALONE, CALLING)
    assert abs(push.mean() - exact) < 4 * push.std(ddof=1) / np.sqrt(len(push))


SMALL = {"steps": 6, "eval_every": 3, "train_problems": 30, "test_problems": 20, "batch_size": 6}


def test_a_set_of_ones_own_is_the_same_as_its_seed(tmp_path):
    train, test = make_problems(30, 210), make_problems(20, 211)
    path = tmp_path / "train.jsonl"
    lines = []
    for i in range(30):
        names = [("add", "sub", "mul1", "mul2")[op] for op in train.op[i, : train.length[i]]]
        steps = [list(pair) for pair in zip(names, train.operand[i].tolist(), strict=False)]
        lines.append(json.dumps({"start": int(train.start[i]), "steps": steps, "answer": int(train.answer[i])}))
    path.write_text("\n".join(lines))
    made = rj.sweep("tool_use", {"method": ["grpo", "rloo"]}, **SMALL)
    for own in ({"train_problems": train, "test_problems": test}, {"train_problems": str(path), "test_problems": test}):
        given = rj.sweep("tool_use", {"method": ["grpo", "rloo"]}, **{**SMALL, **own})
        for name, values in made.items():
            np.testing.assert_array_equal(given[name], values, err_msg=name)
        assert given.attrs["spec_sha256"] != made.attrs["spec_sha256"]
        assert train.canonical()["sha256"] in given.attrs["spec"]


def test_longer_arrays_and_other_lanes_change_no_draw():
    """max_steps beyond the longest chain changes nothing: a draw belongs to its place, whatever the arrays hold."""
    own = {"train_problems": make_problems(30, 210), "test_problems": make_problems(20, 211)}
    short = arithmetic.train(**{**SMALL, **own}, method="grpo", call_cost=0.05)
    longer = arithmetic.train(**{**SMALL, **own}, method="grpo", call_cost=0.05, max_steps=11)
    for name, values in short.items():
        np.testing.assert_array_equal(longer[name], values, err_msg=name)


def test_the_draws_have_the_right_distribution():
    """Uniforms and slips of a training: Kolmogorov-Smirnov and chi-squared at 1e-4, streams and places unlike."""
    grid = single.one_cell(WORLD, {"method": "none", "steps": 40, "cold_start": True})
    program = single.program(grid)
    given, shared = inputs(program, grid, single.CELL)
    context = program.context(jax.tree.map(lambda x: x[0], given), shared)
    training, evaluation, imitation = drawn_by(program, context, 40)
    for drawn in (training, evaluation, imitation):
        for name in ("u_call", "u_own", "u_fail"):
            assert stats.kstest(drawn[name].reshape(-1).astype(float), "uniform").pvalue > 1e-4
        counts = np.bincount(drawn["offset"].reshape(-1))
        assert stats.chisquare(counts).pvalue > 1e-4
        table = np.histogram2d(drawn["offset"].reshape(-1), drawn["u_own"].reshape(-1), (4, 8))[0]
        assert stats.chi2_contingency(table).pvalue > 1e-4
    flat = [d[name].reshape(-1) for d in (training, evaluation, imitation) for name in ("u_call", "u_own", "u_fail")]
    assert len(np.unique(np.concatenate(flat))) > 0.97 * sum(map(len, flat))  # 2^23 values: few are met twice
    assert (np.sort(training["problem"], 1)[:, 1:] != np.sort(training["problem"], 1)[:, :-1]).all()


def test_task_seeds_are_other_problems():
    out = rj.sweep("tool_use", {"task_seed": [0, 1], "seed": [0]}, method="rloo", **SMALL)
    shifted = rj.sweep("tool_use", {}, method="rloo", train_seed=212, test_seed=213, **SMALL)
    np.testing.assert_array_equal(out["accuracy"].values[1, 0], shifted["accuracy"].values)
    assert (out["accuracy"].values[0] != out["accuracy"].values[1]).any()


WRONG = {
    "cold_start": ({"cold_start": "yes"}, "cold_start is 'yes'; it must be true or false"),
    "call_cost": ({"call_cost": -0.1}, "call_cost is -0.1; it must be a finite number at least 0"),
    "initial_call_prob": ({"initial_call_prob": 1.0}, "initial_call_prob is 1.0; it must be a finite number above 0"),
    "batch_size": ({"batch_size": 31}, "batch_size is 31; it must be at most 30, the training problems"),
    "group_size": ({"group_size": 1}, "group_size is 1 with method 'rloo'; it needs at least 2"),
    "min_steps": ({"min_steps": 9}, "min_steps is 9; it must be at most max_steps, 8"),
    "max_steps": (
        {"train_problems": make_problems(30, 0, 7, 9), "max_steps": 8},
        "max_steps is 8; the problems that are given have up to 9 steps",
    ),
    "sft_examples": ({"cold_start": True, "sft_examples": 31}, "sft_examples is 31; it must be at most 30"),
    "sft_epochs": (
        {"cold_start": True, "train_problems": 300, "sft_examples": 300, "sft_epochs": 2**16},
        "sft_examples is 300 and sft_epochs 65536; their product must be at most 10000000",
    ),
    "train_problems": ({"train_problems": [1, 2]}, r"train_problems is \[1, 2\]; it must be a number of problems"),
    "test_problems": ({"test_problems": "nowhere.jsonl"}, "nowhere.jsonl cannot be read: No such file"),
    "skill": ({"skill_add_0": 1.5}, "skill_add_0 is 1.5; it must be a finite number at least 0 and at most 1"),
    "an unknown name": ({"skil_add_0": 1.0}, "did you mean 'skill_add_0'?"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_meant_is_refused_in_one_sentence(what):
    given, sentence = WRONG[what]
    with pytest.raises(InvalidInput, match=sentence):
        rj.sweep("tool_use", {}, method="rloo", **{**SMALL, **given})


def test_a_set_cannot_lie_along_an_axis():
    with pytest.raises(
        InvalidInput,
        match=r"train_problems\[0\] is <30 problems of up to 8 steps>; along an axis it must be a whole number",
    ):
        rj.sweep("tool_use", {"train_problems": [make_problems(30, 0)]}, method="rloo", steps=1)


def good_draws():
    rng = np.random.default_rng(0)
    drawn = {name: rng.random((2, 3, 4, 8)) for name in ("u_call", "u_fail", "u_own")}
    return drawn | {"problem": np.array([[0, 1, 2], [3, 4, 5]]), "offset": rng.integers(4, size=(2, 3, 4, 8))}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"problem": np.array([[0, 1, 1], [3, 4, 5]])}, "problem repeats a problem within a step"),
        ({"problem": np.array([[0, 1, 99], [3, 4, 5]])}, "problem must be whole numbers from 0 to 29"),
        ({"u_call": np.zeros((2, 3, 4, 7))}, r"u_call has shape|u_fail has shape"),
        ({"u_own": np.full((2, 3, 4, 8), 1.5)}, r"u_own must lie in \[0, 1\)"),
        ({"u_call": np.full((2, 3, 4, 8), 1.0)}, r"u_call must lie in \[0, 1\)"),
        ({"u_call": np.full((2, 3, 4, 8), np.nan)}, r"u_call is missing at \(0, 0, 0, 0\), where a rollout reads it"),
        ({"u_fail": np.full((2, 3, 4, 8), np.nan)}, r"u_fail is missing at \(.*\), where a rollout reads it"),
        ({"u_own": np.full((2, 3, 4, 8), np.nan)}, r"u_own is missing at \(.*\), where a rollout reads it"),
        ({"offset": np.full((2, 3, 4, 8), -1)}, r"offset is missing at \(.*\), where a rollout reads it"),
        ({"offset": np.full((2, 3, 4, 8), 4)}, "offset must be whole numbers from -1 to 3"),
        ({"u_call": "many"}, "u_call is 'many'"),
    ],
)
def test_draws_that_do_not_fit_are_refused(change, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        arithmetic.replay(make_problems(30, 0), good_draws() | change, method="rloo")


def test_arguments_of_replays_are_checked():
    problems, drawn = make_problems(30, 0), good_draws()
    with pytest.raises(InvalidInput, match="draws must map problem, u_call, u_fail, u_own, offset to arrays"):
        arithmetic.replay(problems, {"problem": drawn["problem"]}, method="rloo")
    with pytest.raises(InvalidInput, match="problems is of type int; it must be Problems"):
        arithmetic.replay(3, drawn, method="rloo")
    with pytest.raises(InvalidInput, match=r"theta0 has shape \(3,\); it must be a finite number or 12 of them"):
        arithmetic.replay(problems, drawn, method="rloo", theta0=[1, 2, 3])
    with pytest.raises(InvalidInput, match="group_size follows from other arguments"):
        arithmetic.replay(problems, drawn, method="rloo", group_size=4)
    with pytest.raises(InvalidInput, match="u_own has 8 places; the problems have up to 9 steps"):
        arithmetic.replay(make_problems(30, 0, 9, 9), drawn, method="rloo")
    with pytest.raises(InvalidInput, match="seed has no effect on given draws"):
        arithmetic.replay(problems, drawn, method="rloo", seed=3)
    with pytest.raises(InvalidInput, match="draws must map u_own, offset to arrays"):
        arithmetic.replay_sft(problems, {})
    with pytest.raises(InvalidInput, match=r"u_own has shape \(0, 5, 8\); it must be at least one epoch"):
        arithmetic.replay_sft(problems, {"u_own": np.zeros((0, 5, 8)), "offset": np.zeros((0, 5, 8))})
    with pytest.raises(InvalidInput, match=r"u_own is missing at \(.*\), where a rollout reads it"):
        arithmetic.replay_sft(problems, {"u_own": np.full((1, 5, 8), np.nan), "offset": np.zeros((1, 5, 8))})


OWN = {"train_problems": make_problems(30, 0), "test_problems": make_problems(20, 1)}


@pytest.mark.parametrize(
    ("axes", "fixed", "sentence"),
    [
        ({"task_seed": [0, 1]}, OWN, "task_seed is given beside train_problems and test_problems of one's own"),
        ({}, {**OWN, "min_steps": 2}, "min_steps is given beside train_problems and test_problems of one's own"),
        ({}, {**OWN, "train_seed": 1}, "train_seed is given beside train_problems of one's own"),
        ({"test_seed": [1, 2]}, {"test_problems": OWN["test_problems"]}, "test_seed is given beside test_problems"),
    ],
)
def test_what_a_set_of_ones_own_leaves_without_effect_is_refused(axes, fixed, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        rj.sweep("tool_use", axes, method="rloo", **{**SMALL, **fixed})


def test_a_cold_start_that_diverges_is_flagged_and_undone():
    run = arithmetic.train(
        **SMALL | {"steps": 0, "eval_every": None}, method="rloo", cold_start=True, sft_examples=20, sft_lr=1e38
    )
    assert run["diverged_step"] == 0
    np.testing.assert_allclose(run["call_prob"], 0.05, rtol=1e-6)
    trained = arithmetic.train(**SMALL, method="rloo", cold_start=True, sft_examples=20, sft_lr=1e38)
    assert trained["diverged_step"] == 0
    np.testing.assert_array_equal(trained["call_prob"], np.broadcast_to(run["call_prob"][0], (3, 12)))


def test_a_huge_cost_is_normalised_like_a_large_one():
    """grpo divides by the spread of the rewards, which in float32 has no square beyond 1e19."""
    options = {**SMALL, "group_size": 4, "initial_call_prob": 0.5}
    out = rj.sweep("tool_use", {"call_cost": [1e6, 1e18, 1e25]}, method="grpo", **options)
    assert (out["diverged_step"] == -1).all()
    for cost in (1e18, 1e25):
        np.testing.assert_allclose(
            out["call_prob"].sel({"call_cost": cost}), out["call_prob"].sel({"call_cost": 1e6}), atol=1e-4
        )
