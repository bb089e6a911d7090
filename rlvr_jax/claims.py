"""The claims of the two lectures as data: what each says, what is measured for it, and when it holds.

The lectures' own numbers are single runs (of the tool-use world even of another arithmetic model, which is not public),
so a claim is about sign and size. One that does not hold stands in the same table as the others.

To add a claim, add a row to `CLAIMS`: its study is a spec in ``sweeps/``, and what it measures is a function of that
study's results.
"""

from typing import Any

from rlvr_jax.judging import Claim, Rule, difference, mean, near, ratio, spread_ratio, total

NEARLY_ALWAYS = Rule("low ≥ 0.9", low=0.9, inclusive=True)
RARELY = Rule("high ≤ 0.25", high=0.25, inclusive=True)
HARDLY_EVER = Rule("high < 0.15", high=0.15)
NEVER = Rule("high < 0.05", high=0.05)
AT_OR_BELOW = Rule("high < 0.01", high=0.01)
FAR_ABOVE = Rule("low > 0.2", low=0.2)
A_THIRD = Rule("0.55 to 0.8", low=0.55, high=0.8)
ABOUT_ONE_PERCENT = Rule("high < 0.05", high=0.05)
HARDLY_ANY = Rule("high < 0.03", high=0.03)
HARDLY_MOVES = Rule("-0.03 to 0.03", low=-0.03, high=0.03)
ABOVE_ZERO = Rule("low > 0", low=0.0)
BELOW_ZERO = Rule("high < 0", high=0.0)
UNCHANGED = Rule("-0.01 to 0.01", low=-0.01, high=0.01)
SEVERAL_TIMES = Rule("low > 4", low=4.0)

#: Contexts that are worth a call at a small cost, and those that the expert of the cold start never called in.
OFTEN = ["mul1_1", "mul2_1", "mul2_2"]
CHEAP = ["add_0", "add_1", "sub_0"]
NEVER_SHOWN = [f"{operation}_{difficulty}" for operation in ("add", "sub", "mul1") for difficulty in range(3)]

_TRAPPED = {"method": "grpo", "call_cost": 0.02}
_FREE = {"method": "grpo", "call_cost": 0.0}
_HALF = {"method": "grpo", "kl_coef": 0.0}
_REPAIRED = {"method": "grpo", "hack_reward": "repaired after 300", "step": 600}
_OTHERS = ["learned", "rloo", "group", "grpo"]


def _cost(cost: float) -> dict[str, Any]:
    return {"call_cost": cost}


def _start(cold: bool, step: int) -> dict[str, Any]:
    return {"cold_start": cold, "step": step}


def _flawed(method: str, **at: Any) -> dict[str, Any]:
    return {"method": method, "hack_reward": "never repaired", "step": 600, **at}


TOOL_USE = (
    Claim("untrained", "tool_cost", "untrained: accuracy", "0.39", near(0.39), mean("accuracy", **_cost(0.0), step=0)),
    Claim(
        "free-often",
        "tool_cost",
        "cost 0: mul1_1, mul2_1 and mul2_2 are nearly always called",
        "nearly always",
        NEARLY_ALWAYS,
        mean("call_prob", **_cost(0.0), context=OFTEN),
    ),
    Claim("free-accuracy", "tool_cost", "cost 0: accuracy", "0.88", near(0.88), mean("accuracy", **_cost(0.0))),
    Claim(
        "free-add_0",
        "tool_cost",
        "cost 0: call probability at carry-free addition hardly moves (difference)",
        "hardly moves",
        HARDLY_MOVES,
        difference("call_prob", {**_cost(0.0), "context": "add_0"}, {**_cost(0.0), "context": "add_0", "step": 0}),
    ),
    Claim(
        "small-calls",
        "tool_cost",
        "cost 0.02: calls, as a ratio to those at cost 0",
        "down by a third",
        A_THIRD,
        ratio("calls", _cost(0.02), _cost(0.0)),
    ),
    Claim(
        "small-often",
        "tool_cost",
        "cost 0.02: mul1_1, mul2_1 and mul2_2 are still nearly always called",
        "nearly always",
        NEARLY_ALWAYS,
        mean("call_prob", **_cost(0.02), context=OFTEN),
    ),
    Claim(
        "small-rarely",
        "tool_cost",
        "cost 0.02: add_0, add_1 and sub_0 are rarely called",
        "rarely",
        RARELY,
        mean("call_prob", **_cost(0.02), context=CHEAP),
    ),
    Claim(
        "small-accuracy",
        "tool_cost",
        "cost 0.02: accuracy is far above untrained (difference)",
        "far above",
        FAR_ABOVE,
        difference("accuracy", _cost(0.02), {**_cost(0.02), "step": 0}),
    ),
    Claim(
        "large-calls",
        "tool_cost",
        "cost 0.2: hardly ever calls (calls per problem)",
        "hardly ever",
        HARDLY_EVER,
        mean("calls", **_cost(0.2)),
    ),
    Claim(
        "large-accuracy",
        "tool_cost",
        "cost 0.2: accuracy is at or below untrained (difference)",
        "at or below",
        AT_OR_BELOW,
        difference("accuracy", _cost(0.2), {**_cost(0.2), "step": 0}),
    ),
    Claim(
        "trap-calls",
        "grpo_trap",
        "grpo at cost 0.02: never calls (calls per problem)",
        "never",
        NEVER,
        mean("calls", **_TRAPPED),
    ),
    Claim(
        "trap-accuracy",
        "grpo_trap",
        "grpo at cost 0.02: accuracy is back to untrained (difference)",
        "back to untrained",
        AT_OR_BELOW,
        difference("accuracy", _TRAPPED, {**_TRAPPED, "step": 0}),
    ),
    Claim(
        "trap-reason",
        "grpo_trap",
        "grpo at cost 0.02: groups of equal outcome push against calling",
        "",
        BELOW_ZERO,
        mean("push_equal", **_TRAPPED, step=5),
    ),
    Claim(
        "trap-push",
        "grpo_trap",
        "grpo at cost 0.02: and that outweighs the mixed groups (push in all)",
        "",
        BELOW_ZERO,
        total("push_equal", "push_mixed", **_TRAPPED, step=5),
    ),
    Claim(
        "no-trap-accuracy",
        "grpo_trap",
        "grpo at cost 0: no trap, accuracy is far above untrained (difference)",
        "no trap",
        FAR_ABOVE,
        difference("accuracy", _FREE, {**_FREE, "step": 0}),
    ),
    Claim(
        "no-trap-often",
        "grpo_trap",
        "grpo at cost 0: mul1_1, mul2_1 and mul2_2 are nearly always called",
        "no trap",
        NEARLY_ALWAYS,
        mean("call_prob", **_FREE, context=OFTEN),
    ),
    Claim(
        "imitation",
        "cold_start",
        "SFT alone: call probability where the expert never called",
        "about 0.01",
        ABOUT_ONE_PERCENT,
        mean("call_prob", **_start(True, 0), context=NEVER_SHOWN),
    ),
    Claim(
        "slow-start",
        "cold_start",
        "RL alone: hardly any progress in the first 10 steps (difference)",
        "hardly any",
        HARDLY_ANY,
        difference("accuracy", _start(False, 10), _start(False, 0)),
    ),
    Claim(
        "head-start",
        "cold_start",
        "SFT + RL is ahead of RL alone at 10 steps (difference)",
        "ahead",
        ABOVE_ZERO,
        difference("accuracy", _start(True, 10), _start(False, 10)),
    ),
    Claim(
        "worth-thirty",
        "cold_start",
        "SFT + RL at 10 steps is ahead of RL alone at 30 (difference)",
        "ahead",
        ABOVE_ZERO,
        difference("accuracy", _start(True, 10), _start(False, 30)),
    ),
    Claim(
        "overtaken",
        "cold_start",
        "RL alone beats SFT + RL at 60 steps (difference)",
        "0.118",
        ABOVE_ZERO,
        difference("accuracy", _start(False, 60), _start(True, 60)),
    ),
    Claim(
        "alone-60",
        "cold_start",
        "RL alone: accuracy at 60 steps",
        "0.765",
        near(0.765),
        mean("accuracy", **_start(False, 60)),
    ),
    Claim(
        "both-60",
        "cold_start",
        "SFT + RL: accuracy at 60 steps",
        "0.647",
        near(0.647),
        mean("accuracy", **_start(True, 60)),
    ),
)


def _baseline_claims() -> list[Claim]:
    plain = {"reward_offset": 0.0}
    claims = [
        Claim(
            f"offset0-{method}",
            "baselines",
            f"{method}: accuracy without a reward offset",
            f"{figure:g}",
            near(figure, within),
            mean("accuracy", method=method, **plain),
        )
        for method, figure, within in (
            ("none", 0.772, 0.005),
            ("learned", 0.772, 0.005),
            ("rloo", 0.772, 0.005),
            ("group", 0.765, 0.005),
            ("grpo", 0.926, 0.015),
        )
    ]
    hardest = {**plain, "level": "very hard 1%"}
    return [
        *claims,
        Claim(
            "hardest-grpo",
            "baselines",
            "grpo: accuracy on very hard prompts",
            "0.68",
            near(0.68, 0.05),
            mean("accuracy_by_level", method="grpo", **hardest),
        ),
        Claim(
            "hardest-others",
            "baselines",
            "none, learned, rloo and group: accuracy on very hard prompts",
            "about 0.02",
            near(0.02, 0.01),
            mean("accuracy_by_level", method=["none", "learned", "rloo", "group"], **hardest),
        ),
        Claim(
            "offset1-none",
            "baselines",
            "none: accuracy with reward offset 1",
            "0.765",
            near(0.765, 0.005),
            mean("accuracy", method="none", reward_offset=1.0),
        ),
        Claim(
            "offset1-spread",
            "baselines",
            "none: spread between seeds with reward offset 1, as a ratio to without",
            "7 times",
            SEVERAL_TIMES,
            spread_ratio("accuracy", {"method": "none", "reward_offset": 1.0}, {"method": "none", **plain}),
        ),
        Claim(
            "offset1-others",
            "baselines",
            "learned, rloo, group and grpo: unchanged by a reward offset (difference)",
            "unchanged",
            UNCHANGED,
            difference("accuracy", {"method": _OTHERS, "reward_offset": 1.0}, {"method": _OTHERS, **plain}),
        ),
    ]


def _group_size_claims() -> list[Claim]:
    figures = ((2, 0.986, 0.934), (4, 0.975, 0.859), (8, 0.926, 0.708), (16, 0.821, 0.468), (32, 0.737, 0.206))
    claims = []
    for size, accuracy, silent in figures:
        at = {"method": "grpo", "group_size": size}
        text = f"grpo in groups of {size} at 256 samples a step"
        claims += [
            Claim(
                f"groups-{size}-accuracy",
                "zero_signal",
                f"{text}: accuracy",
                f"{accuracy:g}",
                near(accuracy, 0.02),
                mean("accuracy", **at),
            ),
            Claim(
                f"groups-{size}-silent",
                "zero_signal",
                f"{text}: groups without signal",
                f"{silent:g}",
                near(silent, 0.02),
                mean("zero_frac_total", **at),
            ),
        ]
    return claims


def _hacking_claims() -> list[Claim]:
    # With half of the prompts seeds differ by .05 in their hack rate, so that 6 of them are off by .04 now and then.
    rows = [
        ("flawed-grpo", "repaired_verifier", "grpo, flawed verifier, 600 steps", _flawed("grpo"), 0.02),
        ("flawed-rloo", "repaired_verifier", "rloo, flawed verifier, 600 steps", _flawed("rloo"), 0.02),
        ("half-grpo", "hacking", "grpo, flawed verifier, half of the prompts, 600 steps", {**_HALF, "step": 600}, 0.05),
        ("repaired-grpo", "repaired_verifier", "grpo, verifier repaired after step 300, 600 steps", _REPAIRED, 0.02),
    ]
    figures = {
        "flawed-grpo": {"accuracy": 0.759, "hack_rate": 0.232, "verifier_reward": 0.991, "h": 5.6},
        "flawed-rloo": {"accuracy": 0.771, "hack_rate": 0.007, "verifier_reward": 0.779, "h": 1.0},
        "half-grpo": {"accuracy": 0.552, "hack_rate": 0.102, "h": 2.8},
        "repaired-grpo": {"accuracy": 0.918, "hack_rate": 0.01},
    }
    words = {
        "accuracy": "accuracy",
        "hack_rate": "hack rate",
        "verifier_reward": "verifier's reward",
        "h": "tendency to hack",
    }
    return [
        *(
            Claim(
                f"{name}-{metric}",
                study,
                f"{text}: {words[metric]}",
                f"{figure:g}",
                # h is a logit, the others are fractions; one that is small is not to be mistaken for nothing
                near(figure, 20 * within if metric == "h" else min(within, figure / 2)),
                mean(metric, **at),
            )
            for name, study, text, at, within in rows
            for metric, figure in figures[name].items()
        ),
        Claim(
            "spreads",
            "hacking",
            "grpo: the exploit spreads to unseen prompts (hack rate above untrained)",
            "",
            ABOVE_ZERO,
            difference("hack_rate_unseen", _HALF, {**_HALF, "step": 0}),
        ),
        Claim(
            "kl-holds-back",
            "hacking",
            "grpo, half of the prompts, 600 steps: KL weight 1 holds the hack rate back (difference)",
            "-0.212 (all prompts)",
            BELOW_ZERO,  # the lecture trained all prompts, so of its figure only the sign can be compared
            difference("hack_rate", {**_HALF, "kl_coef": 1.0, "step": 600}, {**_HALF, "step": 600}),
        ),
    ]


BANDIT = (*_baseline_claims(), *_group_size_claims(), *_hacking_claims())

CLAIMS = (*TOOL_USE, *BANDIT)
