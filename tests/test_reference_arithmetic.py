"""The plain loop on chain arithmetic, and the vectorised one: golden runs, hand-computed points, each other."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from rlvr_jax import reference_chains as chains
from rlvr_jax.reference import ADVANTAGES
from rlvr_jax.reference_arithmetic import SINCE, arithmetic_loop, arithmetic_train, sft_loop
from rlvr_jax.reference_arithmetic_batch import BATCH
from rlvr_jax.reference_chains import ADD, CONTEXTS, MUL1, MUL2, PLAIN, SUB, Draws, Problems, arithmetic_problems
from rlvr_jax.types import InvalidInput

GOLDEN = Path(__file__).parent / "golden"
KERNELS = {"plain": PLAIN, "batch": BATCH}
both = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def golden(name):
    with np.load(GOLDEN / f"{name}.npz") as file:
        arrays = dict(file)
    problems = Problems(*(arrays.pop(f"problems_{field}") for field in Problems._fields))
    return json.loads(str(arrays.pop("meta"))), problems, arrays


def golden_run(name, i):
    """Problems, the draws, `arithmetic_loop`'s options and what comes out, of one golden run."""
    meta, problems, arrays = golden(name)
    run = meta["runs"][i]
    options = {key: meta["settings"][key] for key in ("lr", "tool_fail", "initial_call_prob")}
    options |= {key: run[key] for key in ("method", "call_cost")}
    if run.get("cold_start"):
        options["theta0"] = arrays["sft_theta"][-1]
    out = {key.removeprefix(f"run{i}_"): values for key, values in arrays.items() if key.startswith(f"run{i}_")}
    return problems, {key: out.pop(key) for key in ("problem", *Draws._fields)}, options, out


GOLDEN_RUNS = [("tool_lecture", 0), ("tool_lecture", 1), ("tool_lecture", 2), ("tool_small", 0)]


def one_problem(start, *steps, length=None):
    """A chain, padded to `length` positions."""
    x, length = start, length or len(steps)
    op, operand = np.full((1, length), -1), np.zeros((1, length), dtype=int)
    for i, (o, k) in enumerate(steps):
        op[0, i], operand[0, i] = o, k
        x = chains.exact(o, x, k)
    return Problems(np.array([start]), op, operand, np.array([len(steps)]), np.array([x]))


def equal_runs(a, b, atol=0.0):
    assert a.keys() == b.keys()
    for name in a.keys() - {"rollouts"}:
        assert_allclose(a[name], b[name], rtol=0, atol=atol, err_msg=name)


def test_all_golden_runs_are_found():
    found = [(path.stem, i) for path in sorted(GOLDEN.glob("tool_*.npz")) for i in range(runs_of(path))]
    assert found == GOLDEN_RUNS


def runs_of(path):
    with np.load(path) as file:
        return len(json.loads(str(file["meta"]))["runs"]) if "meta" in file else 0


@both
@pytest.mark.parametrize(("name", "i"), GOLDEN_RUNS)
def test_golden_run(name, i, kernel):
    problems, draws, options, expected = golden_run(name, i)
    out = arithmetic_loop(problems, draws, kernel=kernel, **options)
    rollouts = out["rollouts"]._asdict()
    for key in ("call", "context", "final_x", "correct"):
        assert_array_equal(rollouts[key], expected[key], err_msg=key)
    for key in ("reward", "advantage"):
        assert_allclose(rollouts[key], expected[key], rtol=0, atol=1e-12, err_msg=key)
    assert_allclose(out["theta"], expected["theta"], rtol=0, atol=1e-12)
    assert np.abs(out["theta"][-1] - out["theta"][0]).max() > 0.1


@both
def test_golden_supervised_start(kernel):
    meta, problems, arrays = golden("tool_lecture")
    theta = sft_loop(problems, arrays["sft_u_own"], arrays["sft_offset"], lr=meta["sft"]["lr"], kernel=kernel)
    assert_allclose(theta, arrays["sft_theta"], rtol=0, atol=1e-12)
    assert theta.shape == (31, 12)


@pytest.mark.parametrize(("name", "i"), GOLDEN_RUNS)
def test_a_draw_is_read_exactly_where_the_golden_run_read_one(name, i):
    _, draws, options, expected = golden_run(name, i)
    past_end, call = expected["context"] < 0, expected["call"] == 1
    assert_array_equal(np.isnan(draws["u_call"]), past_end)
    assert_array_equal(np.isnan(draws["u_fail"]), ~call)
    works = call & (draws["u_fail"] >= options["tool_fail"])
    assert_array_equal(np.isnan(draws["u_own"]), past_end | works)
    p = np.array(chains.own_prob(chains.Model(), 8))[np.arange(8), expected["context"]]
    careless = draws["u_own"] >= p + 0.2 * (1 - p)
    assert_array_equal(draws["offset"] < 0, ~careless)


@both
def test_what_is_not_read_may_be_anything(kernel):
    problems, draws, options, _ = golden_run("tool_small", 0)
    filled = {name: np.nan_to_num(values, nan=0.5) for name, values in draws.items()}
    filled["offset"] = np.maximum(draws["offset"], 0)
    given = arithmetic_loop(problems, draws, kernel=kernel, **options)
    equal_runs(given, arithmetic_loop(problems, filled, kernel=kernel, **options))


@pytest.mark.parametrize(("name", "n", "seed"), [("train", 300, 210), ("test", 200, 211)])
def test_golden_problems(name, n, seed):
    problems = arithmetic_problems(n, seed)
    with np.load(GOLDEN / "tool_problems.npz") as file:
        for field in Problems._fields:
            assert_array_equal(getattr(problems, field), file[f"{name}_{field}"], err_msg=field)


def test_generated_problems_keep_their_bounds():
    problems = arithmetic_problems(400, 5, min_steps=2, max_steps=20)
    assert problems.op.shape == (400, 20)
    assert set(problems.length) == set(range(2, 21))
    largest = 0
    for n in range(400):
        x, steps, answer = chains.chain(problems, n)
        assert (problems.op[n, len(steps) :] == -1).all()
        assert (problems.operand[n, len(steps) :] == 0).all()
        for op, k in steps:
            assert (2 <= k <= 9) if op == MUL1 else (10 <= k <= 99)
            assert x <= {MUL1: 1_000_000, MUL2: 100_000}.get(op, np.inf)
            assert op != SUB or x >= 100
            x = chains.exact(op, x, k)
            largest = max(largest, x)
        assert x == answer > 0
    assert largest > 1_000_000


@pytest.mark.parametrize(
    ("op", "x", "k", "name"),
    [
        (ADD, 21, 34, "add_0"),
        (ADD, 2021, 34, "add_0"),  # carry-free stays easy, however large
        (ADD, 25, 35, "add_1"),  # ones carry
        (ADD, 71, 34, "add_1"),  # tens carry
        (ADD, 45, 54, "add_0"),
        (ADD, 999, 11, "add_1"),
        (ADD, 1025, 35, "add_2"),
        (ADD, -25, 35, "add_1"),  # digits of |x|
        (ADD, -1025, 35, "add_2"),
        (ADD, 5, 35, "add_1"),
        (SUB, 167, 45, "sub_0"),
        (SUB, 163, 45, "sub_1"),  # ones borrow
        (SUB, 127, 45, "sub_1"),  # tens borrow
        (SUB, 1163, 45, "sub_2"),
        (SUB, 1167, 45, "sub_0"),
        (SUB, -163, 45, "sub_1"),
        (MUL1, 99, 7, "mul1_0"),
        (MUL1, 100, 7, "mul1_1"),
        (MUL1, 999, 7, "mul1_1"),
        (MUL1, 1000, 7, "mul1_2"),
        (MUL1, -1000, 7, "mul1_2"),
        (MUL2, -99, 70, "mul2_0"),
        (MUL2, 100, 70, "mul2_1"),
        (MUL2, 123456, 70, "mul2_2"),
    ],
)
def test_contexts_by_hand(op, x, k, name):
    assert CONTEXTS[chains.context(op, x, k)] == name


BY_HAND = [  # op, x, k, exact, bug
    (ADD, 21, 34, 55, 55),  # nothing to drop
    (ADD, 25, 36, 61, 51),  # the ones carry
    (ADD, 72, 44, 116, 16),  # the tens carry
    (ADD, 78, 44, 122, 12),  # both columns
    (ADD, 65, 36, 101, 91),  # 60 + 30 alone does not carry: the ones' carry does not count for the tens
    (ADD, -25, 36, 11, 1),  # as the digits of |x| say
    (SUB, 167, 45, 122, 122),
    (SUB, 163, 45, 118, 128),
    (SUB, 127, 45, 82, 182),
    (SUB, 123, 45, 78, 188),
    (SUB, -123, 45, -168, -58),
    (MUL1, 12, 3, 36, 36),
    (MUL1, 27, 6, 162, 22),  # 162 - 10·4 - 100·1
    (MUL1, 98, 9, 882, 12),  # 882 - 10·7 - 100·8
    (MUL1, -27, 6, -162, -302),
    (MUL2, 12, 34, 408, 84),  # 12·(3 + 4)
    (MUL2, -12, 34, -408, -84),
    (MUL2, 7, 90, 630, 63),
]


@pytest.mark.parametrize(("op", "x", "k", "exact", "bug"), BY_HAND)
def test_procedures_by_hand(op, x, k, exact, bug):
    assert chains.exact(op, x, k) == exact
    assert chains.bug(op, x, k) == bug
    assert [chains.careless(op, x, k, j) - exact for j in range(4)] == [-10, -1, 1, 10]


@both
@pytest.mark.parametrize(("op", "x", "k", "exact", "bug"), BY_HAND)
def test_one_uniform_chooses_the_procedure(op, x, k, exact, bug, kernel):
    """p = .5, so u < .5 is correct, u < .6 a bug, and the rest careless; the start is x."""
    problems, u = one_problem(x, (op, k)), np.array([0.0, 0.49, 0.5, 0.59, 0.61, 0.99])
    draws = {"problem": [[0]], "u_call": np.ones((1, 1, 6, 1)), "u_fail": np.full((1, 1, 6, 1), np.nan)}
    draws |= {"u_own": u.reshape(1, 1, 6, 1), "offset": np.array([-1, -1, -1, -1, 0, 2]).reshape(1, 1, 6, 1)}
    options = {"method": "rloo", "call_cost": 0.0, "skill": [0.5] * 12}
    out = arithmetic_loop(problems, draws, kernel=kernel, **options)
    assert_array_equal(out["rollouts"].final_x, [[[exact, exact, bug, bug, exact - 10, exact + 1]]])
    assert_array_equal(out["rollouts"].context, chains.context(op, x, k))


def test_skill_and_its_decay():
    own = chains.own_prob(chains.Model(), 3)
    assert own[0] == list(chains.SKILL)
    assert_allclose(own[2], np.array(chains.SKILL) ** 1.2)
    assert_allclose(chains.own_prob(chains.Model(skill_decay=0.0), 3), np.tile(chains.SKILL, (3, 1)))


@both
def test_decisions_and_the_calculator_by_hand(kernel):
    """10 + 34 without a carry, then · 25: contexts add_0 and mul2_0 (44) or mul2_0 (34, after carelessness)."""
    problems = one_problem(10, (ADD, 34), (MUL2, 25), length=3)
    nan = np.nan
    u_call = [[0.04, 0.04, nan], [0.04, 0.06, nan], [0.06, 0.06, nan], [0.06, 0.04, nan]]
    u_fail = [[0.05, 0.05, nan], [0.049, nan, nan], [nan, nan, nan], [nan, 0.5, nan]]
    u_own = [[nan, nan, nan], [0.1, 0.1, nan], [0.1, 0.65, nan], [0.999, nan, nan]]
    offset = [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1], [0, -1, -1]]
    draws = {"u_call": u_call, "u_fail": u_fail, "u_own": u_own, "offset": offset}
    draws = {"problem": [[0]]} | {name: np.array(values)[None, None] for name, values in draws.items()}
    options = {"method": "none", "call_cost": 0.125, "lr": 4.0}
    out = arithmetic_loop(problems, draws, kernel=kernel, **options)
    rollouts = out["rollouts"]
    assert_array_equal(rollouts.context[0, 0], [[0, 9, -1]] * 4)
    assert_array_equal(rollouts.call[0, 0], [[1, 1, -1], [1, 0, -1], [0, 0, -1], [0, 1, -1]])
    # a failed call counts; .65 ** 1 is above .6 ** 1.1 = .57 and below .57 + .2 · .43: a bug, 44 · (2 + 5)
    assert_array_equal(rollouts.final_x[0, 0], [1100, 1100, 308, 850])
    assert_array_equal(rollouts.correct[0, 0], [True, True, False, False])
    assert_allclose(rollouts.reward[0, 0], [0.75, 0.875, 0, -0.125])
    # .75 and .875 called at add_0; .75 and -.125 at mul2_0; σ = .05
    total = 0.75 + 0.875 - 0.125
    gradient = np.zeros(12)
    gradient[0] = (0.75 + 0.875 - 0.05 * total) / 4
    gradient[9] = (0.75 - 0.125 - 0.05 * total) / 4
    assert_allclose(out["theta"][1] - out["theta"][0], 4 * gradient, rtol=1e-12, atol=1e-15)
    assert_allclose(out["push_mixed"], [np.nan, 4 * gradient.sum()], rtol=1e-12)
    assert_array_equal(out["push_equal"], [np.nan, 0])


@both
def test_the_supervised_start_by_hand(kernel):
    """The expert calls on mul2 alone and is right there; elsewhere the model's own step decides what comes next."""
    problems = one_problem(90, (ADD, 34), (MUL2, 25), length=2)
    u_own, offset = np.array([[[0.999, np.nan]]]), np.array([[[0, -1]]])
    theta = sft_loop(problems, u_own, offset, lr=0.5, initial_call_prob=0.2, kernel=kernel)
    expected = np.zeros(12)
    expected[CONTEXTS.index("add_1")] = -0.2
    expected[CONTEXTS.index("mul2_1")] = 0.8  # 114, after 124 - 10
    assert_allclose(theta[1] - theta[0], 0.5 * expected, rtol=1e-12, atol=1e-15)


def test_the_supervised_start_copies_the_expert():
    _, problems, arrays = golden("tool_lecture")
    call_prob = chains.sigmoid(sft_loop(problems, arrays["sft_u_own"], arrays["sft_offset"], kernel=BATCH)[-1])
    assert (call_prob[:9] < 0.035).all()
    assert (call_prob[9:] > 0.85).all()


@pytest.mark.parametrize("method", list(ADVANTAGES))
@pytest.mark.parametrize("cold_start", [False, True])
def test_the_vectorised_loop_is_the_plain_one(method, cold_start):
    problems, test = arithmetic_problems(12, 1), arithmetic_problems(9, 2, 1, 5)
    options = {"steps": 12, "batch_size": 5, "group_size": 4, "seed": 3, "method": method, "call_cost": 0.02}
    options |= {"cold_start": cold_start, "sft_examples": 7, "sft_epochs": 4, "eval_every": 5, "tool_fail": 0.3}
    options |= {"initial_call_prob": 0.3, "skill_decay": 0.2, "bug_share": 0.4, "lr": 2.0}
    plain = arithmetic_train(problems, test, **options)
    equal_runs(plain, arithmetic_train(problems, test, kernel=BATCH, **options), atol=1e-12)
    assert ("sft_theta" in plain) is cold_start
    assert np.abs(plain["theta"][-1] - plain["theta"][0]).max() > 0.05


def test_every_procedure_is_met_in_both_kernels():
    """On many chains with negative and large values too: the vectorised rules are another way to write them."""
    rng = np.random.default_rng(8)
    n, R, L = 500, 4, 6
    op, length = rng.integers(4, size=(n, L)), rng.integers(1, L + 1, n)
    operand = np.where(op == MUL1, rng.integers(2, 10, (n, L)), rng.integers(10, 100, (n, L)))
    present = np.arange(L) < length[:, None]
    start = rng.integers(-2000, 2000, n)
    problems = Problems(start, np.where(present, op, -1), np.where(present, operand, 0), length, start)
    draws = chains.draw(rng, (1, n, R, L))._asdict() | {"problem": np.arange(n)[None]}
    options = {"method": "rloo", "call_cost": 0.1, "skill": [0.3] * 12, "bug_share": 0.5, "initial_call_prob": 0.3}
    plain, batch = (arithmetic_loop(problems, draws, kernel=kernel, **options) for kernel in KERNELS.values())
    for name in ("call", "context", "final_x", "correct", "reward"):
        assert_array_equal(getattr(plain["rollouts"], name), getattr(batch["rollouts"], name), err_msg=name)
    assert set(np.unique(plain["rollouts"].context)) == set(range(-1, 12))
    assert (plain["rollouts"].final_x < 0).any()


def test_training_is_the_loop_on_its_own_draws():
    problems, test = arithmetic_problems(20, 1), arithmetic_problems(6, 2)
    train_rng, test_rng, _ = np.random.default_rng(4).spawn(3)
    steps = [(train_rng.choice(20, 3, replace=False), chains.draw(train_rng, (3, 4, 8))) for _ in range(7)]
    draws = {name: np.array([getattr(drawn, name) for _, drawn in steps]) for name in Draws._fields}
    draws["problem"] = np.array([chosen for chosen, _ in steps])
    options = {"method": "grpo", "call_cost": 0.02, "eval_steps": [2, 3]}
    loop = arithmetic_loop(problems, draws, test=(test, chains.draw(test_rng, (6, 3, 8))), **options)
    del loop["rollouts"]
    sizes = {"steps": 7, "batch_size": 3, "group_size": 4}
    equal_runs(loop, arithmetic_train(problems, test, seed=4, **sizes, **options))
    assert_array_equal(loop["step"], [0, 2, 3, 7])
    other = arithmetic_train(problems, test, seed=5, **sizes, **options)
    assert np.abs(other["theta"] - loop["theta"]).max() > 0.01


@both
def test_diagnostics_since_the_last_evaluation(kernel):
    """Recomputed from the rollouts, rational and slow; at cost 0 a reward is equal where correctness is."""
    problems = arithmetic_problems(30, 6)
    rng = np.random.default_rng(7)
    T, B, G = 9, 6, 3
    draws = chains.draw(rng, (T, B, G, 8))._asdict()
    draws["problem"] = np.array([rng.choice(30, B, replace=False) for _ in range(T)])
    shares = {}
    for cost in (0.0, 0.05):
        options = {"method": "grpo", "call_cost": cost, "initial_call_prob": 0.2, "eval_steps": [4, 5]}
        out = arithmetic_loop(problems, draws, kernel=kernel, **options)
        rollouts, call_prob = out["rollouts"], chains.sigmoid(out["theta"])
        rows = []
        for t in range(T):
            for b in range(B):
                calls = [int((rollouts.call[t, b, g] == 1).sum()) for g in range(G)]
                pays = list(zip(rollouts.correct[t, b].tolist(), calls if cost else [0] * G, strict=True))
                push = sum(
                    rollouts.advantage[t, b, g] * (rollouts.call[t, b, g, i] - call_prob[t, c])
                    for g in range(G)
                    for i, c in enumerate(rollouts.context[t, b, g])
                    if c >= 0
                )
                equal = rollouts.correct[t, b].all() or not rollouts.correct[t, b].any()
                rows.append([len(set(pays)) == 1, equal, push * equal, push * (not equal)])
        rows = np.array(rows, dtype=float).reshape(T, B, 4)
        expected = [rows[a:b].mean(axis=(0, 1)) for a, b in pairwise([0, 4, 5, 9])]
        got = np.array([out[name] for name in SINCE]).T
        assert np.isnan(got[0]).all()
        assert_allclose(got[1:], expected, rtol=1e-12, atol=1e-14)
        shares[cost] = got[1:]
    assert_array_equal(shares[0.0][:, 0], shares[0.0][:, 1])
    assert_array_equal(shares[0.0][:, 2], 0)
    assert (shares[0.05][:, 0] < shares[0.05][:, 1]).any()
    assert (shares[0.05][:, 2] < 0).all()


def test_shares_at_the_start():
    """.305 of the groups have equal outcomes, .040 equal rewards: 16,000 groups, 4 standard errors and the rounding."""
    problems, test = arithmetic_problems(300, 210), arithmetic_problems(1, 211)
    options = {"steps": 1000, "eval_steps": [], "lr": 0.0, "call_cost": 0.02}
    out = arithmetic_train(problems, test, method="rloo", kernel=BATCH, **options)
    assert out["equal_outcome_frac"][1] == pytest.approx(0.305, abs=4 * 0.0037 + 0.0005)
    assert out["zero_frac"][1] == pytest.approx(0.040, abs=4 * 0.0016 + 0.0005)


@both
def test_evaluation_by_hand(kernel):
    """Two chains, two rollouts each: one is right without a call, one is right with one, two are wrong."""
    first, second = one_problem(21, (ADD, 34)), one_problem(12, (MUL1, 3))
    test = Problems(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))
    nan = np.nan
    draws = Draws(
        np.array([[[0.9], [0.0]], [[0.9], [0.0]]]),
        np.array([[[nan], [0.5]], [[nan], [0.01]]]),
        np.array([[[0.1], [nan]], [[0.99], [0.99]]]),
        np.array([[[-1], [-1]], [[1], [1]]]),
    )
    zero = {name: np.zeros((1, 1, 2, 1)) for name in Draws._fields} | {"problem": [[0]]}
    zero["offset"] = zero["offset"].astype(int)
    out = arithmetic_loop(first, zero, test=(test, draws), method="rloo", call_cost=0.1, kernel=kernel)
    assert_array_equal(out["accuracy"], [0.5, 0.5])
    assert_array_equal(out["calls"], [0.5, 0.5])
    assert_allclose(out["reward"], 0.45)
    assert_allclose(out["call_prob"], 0.05)


@both
def test_the_learned_baseline_by_hand(kernel):
    """A problem that is always solved without a call: V goes 0, .25, .4375, of that problem alone."""
    one = one_problem(21, (ADD, 34))
    problems = Problems(*(np.concatenate([values, values]) for values in one))
    u = np.full((2, 1, 2, 1), 0.5)
    draws = {"problem": [[1], [1]], "u_call": u, "u_fail": u, "u_own": u, "offset": np.full(u.shape, -1)}
    options = {"method": "learned", "call_cost": 0.3, "baseline_rate": 0.25}
    out = arithmetic_loop(problems, draws, kernel=kernel, **options)
    assert_allclose(out["baseline"], [0, 0.4375])
    assert_allclose(out["rollouts"].advantage[:, 0, 0], [1, 0.75])


def test_a_cold_start_changes_no_other_draw():
    problems = arithmetic_problems(60, 1)
    options = {"steps": 0, "method": "rloo", "call_cost": 0.0, "kernel": BATCH, "sft_lr": 0.0}
    warm, cold = (arithmetic_train(problems, problems, cold_start=start, **options) for start in (False, True))
    assert_array_equal(warm["accuracy"], cold["accuracy"])
    assert_array_equal(warm["theta"], cold["theta"])


def test_sigmoid_and_logit():
    assert_allclose(chains.sigmoid(chains.logit([0.05, 0.5, 0.99])), [0.05, 0.5, 0.99])
    assert_allclose(chains.sigmoid(np.array([-1000.0, 1000.0])), [0, 1])
    assert chains.sigmoid(np.array(-50.0)) == pytest.approx(np.exp(-50))


def cut(draws, part):
    return {name: values if name == "problem" else values[part] for name, values in draws.items()}


DRAWS = chains.draw(np.random.default_rng(0), (3, 2, 4, 8))._asdict() | {"problem": np.tile([0, 1], (3, 1))}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"method": "ppo"}, "method must be one of none, learned, rloo, group, grpo, got 'ppo'"),
        ({"eval_every": 0}, "eval_every must be at least 1, got 0"),
        ({"eval_steps": [4]}, r"eval_steps must be whole numbers in 0\.\.3"),
        ({"tool_fail": 1.1}, r"tool_fail must be in 0\.\.1, got 1.1"),
        ({"initial_call_prob": 1.0}, r"initial_call_prob must be in \(0, 1\), got 1.0"),
        ({"skill": [0.5] * 4}, "skill must hold 12 numbers, got 4"),
        ({"theta0": [0.0]}, r"theta0 must be \[12\], got \(1,\)"),
        ({"draws": DRAWS | {"problem": np.ones((3, 2), dtype=int)}}, "distinct within a step"),
        ({"draws": DRAWS | {"problem": np.tile([0, 5], (3, 1))}}, r"problem must lie in 0\.\.4"),
        ({"draws": DRAWS | {"offset": np.zeros((3, 2, 4, 7))}}, "problem must be"),
        (
            {"draws": {name: values[..., :7] if values.ndim > 2 else values for name, values in DRAWS.items()}},
            "reach 8",
        ),
        (
            {"draws": {name: values[:, :, :1] if values.ndim > 2 else values for name, values in DRAWS.items()}},
            "G >= 2",
        ),
        ({"test": (arithmetic_problems(2, 0), Draws(*np.zeros((4, 2, 8))))}, r"draws of test must be \[2, R, 8\]"),
    ],
)
def test_bad_runs_are_refused(change, sentence):
    given = {"problems": arithmetic_problems(5, 0), "draws": DRAWS, "method": "rloo", "call_cost": 0.0}
    arithmetic_loop(**given)
    with pytest.raises(InvalidInput, match=sentence):
        arithmetic_loop(**given | change)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch_size": 6}, r"batch_size must be in 1\.\.5, got 6"),
        ({"steps": -1}, "steps must be at least 0"),
        ({"eval_repeats": 0}, "eval_repeats must be at least 1"),
        ({"group_size": 0}, "group_size must be at least 1"),
        ({"sft_examples": 6, "cold_start": True}, "the problems, 5, must be at least as many as the examples, 6"),
    ],
)
def test_bad_trainings_are_refused(change, sentence):
    given = {"steps": 2, "batch_size": 3, "group_size": 2, "seed": 0, "method": "rloo", "call_cost": 0.0}
    problems = arithmetic_problems(5, 0)
    arithmetic_train(problems, problems, **given)
    with pytest.raises(InvalidInput, match=sentence):
        arithmetic_train(problems, problems, **given | change)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 0, "seed": 0}, "n must be at least 1, got 0"),
        ({"n": 1, "seed": 0, "min_steps": 9}, "got 9 and 8"),
        ({"n": 1, "seed": 0, "min_steps": 0}, "min_steps"),
    ],
)
def test_bad_problem_sets_are_refused(arguments, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        arithmetic_problems(**arguments)


def test_supervised_draws_must_fit():
    with pytest.raises(InvalidInput, match=r"u_own and offset must be \[E, examples, L\]"):
        sft_loop(arithmetic_problems(5, 0), np.zeros((2, 3, 8)), np.zeros((2, 3, 7), dtype=int))


def test_training_with_the_loops_learns_when_to_call():
    problems, test = arithmetic_problems(300, 210), arithmetic_problems(200, 211)
    out = arithmetic_train(problems, test, method="rloo", call_cost=0.02, kernel=BATCH, eval_steps=[])
    assert out["accuracy"][1] > out["accuracy"][0] + 0.2
    assert out["call_prob"][1, CONTEXTS.index("mul2_2")] > 0.9
    assert out["call_prob"][1, CONTEXTS.index("add_0")] < 0.25
