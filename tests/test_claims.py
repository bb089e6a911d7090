"""The claims of the lectures: how they are judged, and those of the tool-use world at the 64 seeds of their specs."""

import numpy as np
import pytest
import xarray as xr

from rlvr_jax import claims, judging, lecture, spec
from rlvr_jax.claims import CLAIMS, TOOL_USE
from rlvr_jax.judging import Claim, Rule, judge, near
from rlvr_jax.lecture_tables import claims_table

SEEDS = 8


def study(mean: float, spread: float = 0.01, seeds: int = SEEDS) -> xr.Dataset:
    """A metric x of two configurations a and b, b higher by .1 in each seed, at the steps 0 and 60."""
    noise = np.linspace(-spread, spread, seeds)
    values = mean + noise[:, None, None] + np.array([0.0, 0.1])[:, None] + np.array([0.0, 0.3])
    return xr.Dataset({"x": (("seed", "kind", "step"), values)}, {"kind": ["a", "b"], "step": [0, 60]})


def verdict(rule: Rule, measure: judging.Measure, results: xr.Dataset) -> judging.Verdict:
    (found,) = judge({"s": results}, [Claim("c", "s", "x is so", "0.5", rule, measure)])
    return found


def test_a_mean_is_judged_by_its_t_interval() -> None:
    found = verdict(near(0.5, 0.08), judging.mean("x", kind="a"), study(0.2))
    assert found.estimate == pytest.approx(0.5)
    noise = np.linspace(-0.01, 0.01, SEEDS)
    half = 2.3646 * noise.std(ddof=1) / np.sqrt(SEEDS)  # t(.975, 7)
    assert found.high - found.estimate == pytest.approx(half, rel=1e-4)
    assert (found.n, found.holds) == (SEEDS, True)
    assert verdict(near(0.4, 0.08), judging.mean("x", kind="a"), study(0.2)).holds is False
    assert verdict(near(0.2, 0.08), judging.mean("x", kind="a", step=0), study(0.2)).holds is True


@pytest.mark.parametrize(
    ("rule", "mean", "holds"),
    [
        (claims.NEARLY_ALWAYS, 0.92, True),
        (claims.NEARLY_ALWAYS, 0.902, False),  # the mean is above, the interval is not
        (claims.RARELY, 0.23, True),
        (claims.RARELY, 0.248, False),
        (claims.HARDLY_EVER, 0.14, True),
        (claims.HARDLY_EVER, 0.148, False),
        (claims.NEVER, 0.04, True),
        (claims.NEVER, 0.048, False),
        (claims.AT_OR_BELOW, 0.004, True),
        (claims.AT_OR_BELOW, 0.008, False),
        (claims.FAR_ABOVE, 0.21, True),
        (claims.FAR_ABOVE, 0.203, False),
        (claims.A_THIRD, 0.66, True),
        (claims.A_THIRD, 0.552, False),
        (claims.A_THIRD, 0.798, False),
        (claims.ABOUT_ONE_PERCENT, 0.04, True),
        (claims.ABOUT_ONE_PERCENT, 0.048, False),
        (claims.HARDLY_ANY, 0.02, True),
        (claims.HARDLY_ANY, 0.028, False),
        (claims.HARDLY_MOVES, 0.02, True),
        (claims.HARDLY_MOVES, -0.02, True),
        (claims.HARDLY_MOVES, 0.028, False),
        (claims.HARDLY_MOVES, -0.028, False),
        (claims.ABOVE_ZERO, 0.01, True),
        (claims.ABOVE_ZERO, 0.003, False),
        (near(0.39), 0.46, True),
        (near(0.39), 0.48, False),
    ],
)
def test_the_thresholds_are_those_of_the_study(rule: Rule, mean: float, holds: bool) -> None:
    """The half-width of these eight seeds is .0055: each pair stands on either side of its threshold by less."""
    found = verdict(rule, judging.mean("x", kind="a", step=0), study(mean)).holds
    assert found is holds if holds or rule.near is not None else found is None  # the interval reaches across


@pytest.mark.parametrize(
    ("rule", "mean"), [(claims.NEARLY_ALWAYS, 0.89), (claims.RARELY, 0.26), (claims.A_THIRD, 0.54), (near(0.39), 0.48)]
)
def test_what_lies_beyond_a_limit_does_not_hold(rule: Rule, mean: float) -> None:
    assert verdict(rule, judging.mean("x", kind="a", step=0), study(mean)).holds is False


def test_equal_runs_do_not_beat_each_other() -> None:
    same = judging.difference("x", {"kind": "a"}, {"kind": "a"})
    assert verdict(claims.ABOVE_ZERO, same, study(0.5)).holds is False
    assert verdict(claims.NEARLY_ALWAYS, judging.mean("x", kind="a", step=0), study(0.9, spread=0.0)).holds is True


def test_differences_and_ratios_are_paired() -> None:
    difference = judging.difference("x", {"kind": "b"}, {"kind": "a"})
    found = verdict(claims.ABOVE_ZERO, difference, study(0.2, spread=0.5))
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.1))  # the same in each seed
    assert found.holds is True
    found = verdict(claims.A_THIRD, judging.ratio("x", {"kind": "a"}, {"kind": "b"}), study(0.2, spread=0.01))
    assert found.estimate == pytest.approx(0.5 / 0.6)
    assert 0.0 < found.high - found.low < 0.01  # unpaired, it would be twice as wide as either mean's
    assert found.holds is False
    spread = judging.spread_ratio("x", {"kind": "b"}, {"kind": "a"})
    assert verdict(claims.SEVERAL_TIMES, spread, study(0.2)).estimate == pytest.approx(1.0)


def test_of_several_entries_the_worst_counts_and_is_named() -> None:
    found = verdict(Rule("low", low=0.45), judging.mean("x", kind=["a", "b"]), study(0.2))
    assert (found.of, found.holds) == ("a", True)
    found = verdict(Rule("high", high=0.55), judging.mean("x", kind=["a", "b"]), study(0.2))
    assert (found.of, found.holds) == ("b", False)


def test_an_entry_that_does_not_hold_decides_over_one_that_is_undecided() -> None:
    noise = np.linspace(-2.0, 2.0, SEEDS)
    values = np.stack([0.2 + noise, np.full(SEEDS, 0.4)], axis=1)  # a is anywhere, b is below .45 for sure
    results = xr.Dataset({"x": (("seed", "kind"), values)}, {"kind": ["a", "b"]})
    found = verdict(Rule("low > 0.45", low=0.45), judging.mean("x", kind=["a", "b"]), results)
    assert (found.of, found.holds) == ("b", False)
    found = verdict(Rule("low > 0.35", low=0.35), judging.mean("x", kind=["a", "b"]), results)
    assert (found.of, found.holds) == ("a", None)


def test_too_few_seeds_and_missing_runs_are_no_verdict() -> None:
    found = verdict(near(0.5), judging.mean("x", kind="a"), study(0.2, seeds=1))
    assert (found.n, found.holds) == (1, None)
    missing = study(0.2).where(False)
    found = verdict(near(0.5), judging.mean("x", kind="a"), missing)
    assert (found.n, found.holds) == (0, None)
    assert claims_table([found]).rows[0][2:5] == ["-", "± 0.08", "undecided"]


def test_a_claim_that_does_not_hold_is_in_the_table() -> None:
    rows = [verdict(near(figure), judging.mean("x", kind="a"), study(0.2)) for figure in (0.5, 0.9)]
    table = claims_table(rows)
    assert [row[4] for row in table.rows] == ["holds", "does not hold"]
    assert table.notes[0] == "Of 2 claims hold: 1; do not: 1; undecided: 0."
    assert "x is so  0.5          0.500 [0.494, 0.506]  ± 0.08    does not hold      8" in table.text()


def test_claims_have_names_of_their_own_and_studies_of_the_lecture() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert {claim.study for claim in CLAIMS} <= {study.name for study in lecture.STUDIES}


@pytest.fixture(scope="module")
def tool_use() -> dict[str, xr.Dataset]:
    """The tool-use studies with the 64 seeds of their specs."""
    return {name: spec.load(name).sweep() for name in ("tool_cost", "grpo_trap", "cold_start")}


@pytest.mark.parametrize("claim", TOOL_USE, ids=lambda claim: claim.name)
def test_the_claims_about_tool_use_hold_but_one(claim: Claim, tool_use: dict[str, xr.Dataset]) -> None:
    """Without a cost the reconstructed model calls three times as often at carry-free addition as before training."""
    (found,) = judge(tool_use, [claim])
    assert found.n == 64
    assert found.holds is (claim.name != "free-add_0"), found


def test_why_grpo_stops_calling(tool_use: dict[str, xr.Dataset]) -> None:
    """What the claims about the push rest on: shares at the start, and no push at all where a call costs nothing."""
    rloo, trapped, free = (tool_use["grpo_trap"].sel(run=run, step=5) for run in range(3))
    assert 0.26 < rloo.equal_outcome_frac.mean() < 0.36
    assert -0.05 < rloo.push_equal.mean() < 0 < (rloo.push_equal + rloo.push_mixed).mean()
    assert trapped.push_equal.mean() < -0.3
    np.testing.assert_array_equal(free.push_equal, 0)
    np.testing.assert_array_equal(free.zero_frac, free.equal_outcome_frac)
    assert rloo.zero_frac.mean() < 0.08


def test_the_untrained_model_calls_and_imitation_teaches_what_the_world_says(tool_use: dict[str, xr.Dataset]) -> None:
    untrained = tool_use["tool_cost"].sel(call_cost=0.0, step=0)
    assert 0.2 < untrained.calls.mean() < 0.35
    np.testing.assert_allclose(untrained.call_prob, 0.05, atol=1e-6)
    imitated = tool_use["cold_start"].sel(cold_start=True, step=0)
    shown = imitated.call_prob.sel({"context": ["mul2_0", "mul2_1", "mul2_2"]}).mean("seed")
    assert (abs(shown - 0.93) < 0.02).all()
    assert abs(imitated.accuracy.mean() - 0.495) < 0.02
