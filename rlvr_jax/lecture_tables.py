"""The lectures' own tables and that of their claims, as rows of text for a terminal or a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from rlvr_jax.judging import Verdict, part
from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.table import aligned, decimals

Say = Callable[[str], str]

#: The contexts that the lecture's tables show, and what it calls them.
CONTEXTS = {
    "add_0": "addition without carry",
    "mul1_1": "times one digit",
    "mul2_1": "times two digits",
    "mul2_2": "times two digits, large number",
}

VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: What it shows.
        heads: Of the columns.
        rows: As many texts each.
        left: How many columns are aligned to the left.
        notes: Lines below it.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    notes: Sequence[str] = field(default_factory=tuple)

    def said(self, say: Say) -> "Table":
        """The same in another language."""
        rows = [[say(text) for text in row] for row in self.rows]
        return Table(say(self.title), [say(head) for head in self.heads], rows, self.left, [*map(say, self.notes)])

    def text(self) -> str:
        """For a terminal."""
        return "\n".join([self.title, *aligned([self.heads, *self.rows], self.left), *self.notes])


def tables(
    studies: Mapping[str, xr.Dataset], verdicts: Sequence[Verdict], say: Say | None = None, notes: Sequence[str] = ()
) -> list[Table]:
    """The lectures' tables of the studies that are there, and that of the claims last.

    Args:
        studies: Results by the name of their spec.
        verdicts: What `judging.judge` returns.
        say: Translates.
        notes: What to say besides below the claims.
    """
    made = [
        *(_tool_use(studies[name], title, rows) for name, title, rows in DEMONSTRATIONS if name in studies),
        *(_bandit(studies[name], title, columns, at) for name, title, columns, at in BANDITS if name in studies),
        *([claims_table(verdicts, notes)] if verdicts or notes else []),
    ]
    return made if say is None else [table.said(say) for table in made]


def claims_table(verdicts: Sequence[Verdict], besides: Sequence[str] = ()) -> Table:
    """The claims: the lecture's figure, ours with its interval, whether it holds by its rule, and the seeds behind."""
    rows = []
    for verdict in verdicts:
        claim = verdict.claim
        ours = interval(verdict.estimate, verdict.low, verdict.high) + (f" ({verdict.of})" if verdict.of else "")
        word = VERDICTS[verdict.holds]
        rows.append([claim.text, claim.lecture or "-", ours, claim.rule.words, word, str(verdict.n)])
    held, refuted = (sum(verdict.holds is holds for verdict in verdicts) for holds in (True, False))
    counts = f"Of {len(verdicts)} claims hold: {held}; do not: {refuted}; undecided: {len(verdicts) - held - refuted}."
    notes = (
        *([counts] if verdicts else []),
        *besides,
        "Ours: mean over seeds with its 95 % interval [low, high], of several entries the worst; differences are "
        "paired by seed. ± d: our mean is within d of the lecture's figure. Undecided: too few seeds, the interval "
        "reaches across the limit.",
        "The lectures' figures are single runs or a few seeds; of tool use, on an arithmetic model that is not public "
        "and is reconstructed here: a claim is about sign and size.",
    )
    heads = ["claim", "the lecture", "ours [95 % interval]", "holds if", "verdict", "seeds"]
    return Table("The lectures' claims", heads, rows, left=5, notes=notes)


def interval(estimate: float, low: float, high: float) -> str:
    """A number with its interval, rounded to its own uncertainty.

    >>> interval(0.82659, 0.8177, 0.8354)
    '0.827 [0.818, 0.835]'
    """
    if not np.isfinite([estimate, low, high]).all():
        return f"{estimate:.3f}" if np.isfinite(estimate) else "-"
    places = decimals(max((high - low) / 2, 1e-6))
    return f"{estimate:.{places}f} [{low:.{places}f}, {high:.{places}f}]"


def _cell(values: xr.DataArray) -> str:
    found = printed_mean(values)
    mean, half = float(found["estimate"]), float(found["half_width"])
    if not np.isfinite(half):
        return f"{mean:.3f}" if np.isfinite(mean) else "-"
    places = min(decimals(max(half, 1e-6)), 4)
    return f"{mean:.{places}f} ± {half:.{places}f}"


def _tool_use(results: xr.Dataset, title: str, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    body = []
    for label, at in rows:
        probabilities = [_cell(part(results, "call_prob", {**at, "context": name})) for name in CONTEXTS]
        body.append([label, *(_cell(part(results, name, at)) for name in ("accuracy", "calls")), *probabilities])
    heads = ["", "accuracy", "calls per problem", *CONTEXTS.values()]
    notes = ["The last four columns are call probabilities; mean over seeds ± half-width of its 95 % interval."]
    return Table(title, heads, body, notes=notes)


def _bandit(results: xr.Dataset, title: str, columns: Mapping[str, tuple[str, Any]], at: Mapping[str, Any]) -> Table:
    methods = results["method"].values.tolist()
    body = [
        [method, *(_cell(part(results, metric, {"method": method, **at, **more})) for metric, more in columns.values())]
        for method in methods
    ]
    notes = ["Mean over seeds ± half-width of its 95 % interval."]
    return Table(title, ["method", *columns], body, notes=notes)


_TRAINED = (("cost 0", 0.0), ("cost 0.02", 0.02), ("cost 0.2", 0.2))
_STARTS = (("RL alone", False), ("SFT + RL", True))

DEMONSTRATIONS = (
    (
        "tool_cost",
        "What a call may cost: rloo, 60 steps",
        (
            ("untrained", {"call_cost": 0.0, "step": 0}),
            *((label, {"call_cost": cost}) for label, cost in _TRAINED),
        ),
    ),
    (
        "grpo_trap",
        "The trap of grpo: 60 steps",
        (
            ("rloo, cost 0.02", {"method": "rloo", "call_cost": 0.02}),
            ("grpo, cost 0.02", {"method": "grpo", "call_cost": 0.02}),
            ("grpo, cost 0", {"method": "grpo", "call_cost": 0.0}),
        ),
    ),
    (
        "cold_start",
        "A cold start by imitation: rloo, cost 0.02",
        (
            ("SFT alone", {"cold_start": True, "step": 0}),
            *(
                (f"{label}, {step} steps", {"cold_start": cold, "step": step})
                for step in (10, 30, 60)
                for label, cold in _STARTS
            ),
        ),
    ),
)

_LEVELS = ("very hard 1%", "hard 5%", "medium 20%", "easy 60%")

BANDITS = (
    (
        "baselines",
        "Answer bandit: after 600 steps, without a reward offset",
        {
            "accuracy": ("accuracy", {}),
            **{level: ("accuracy_by_level", {"level": level}) for level in _LEVELS},
            "groups without signal": ("zero_frac_total", {}),
            "accuracy with reward offset 1": ("accuracy", {"reward_offset": 1.0}),
        },
        {"reward_offset": 0.0},
    ),
    (
        "hacking",
        "Answer bandit, flawed verifier, half of the prompts trained: after 1500 steps without a KL penalty",
        {
            "accuracy": ("accuracy", {}),
            "verifier's reward": ("verifier_reward", {}),
            "hack rate, trained prompts": ("hack_rate_seen", {}),
            "hack rate, unseen prompts": ("hack_rate_unseen", {}),
        },
        {"kl_coef": 0.0},
    ),
)
