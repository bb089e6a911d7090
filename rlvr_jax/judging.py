"""Claims that can be checked: what is measured over seeds, by which rule it holds, and the verdict.

A claim is judged by a `Rule` on the mean over seeds and its 95 % t-interval, or on that of a difference taken seed by
seed. Those of the lectures are in `rlvr_jax.claims`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from rlvr_jax import stats
from rlvr_jax.stats.bootstrap import bootstrap, mean_of

LEVEL = 0.95

#: A quantity: results of a study -> ``estimate``, ``low``, ``high`` and ``n``, along at most one dimension.
Measure = Callable[[xr.Dataset], xr.Dataset]


@dataclass(frozen=True)
class Rule:
    """When an interval bears a claim out.

    Attributes:
        words: The rule as the table prints it.
        low: The interval's lower end must lie above this.
        high: Its upper end must lie below this.
        near: The estimate must lie within ``within`` of this, whatever its interval.
        inclusive: Whether an end may lie on ``low`` or ``high``.
    """

    words: str
    low: float | None = None
    high: float | None = None
    near: float | None = None
    within: float = 0.0
    inclusive: bool = False

    def margin(self, estimate: float, low: float, high: float) -> float:
        """How far the interval is on the right side of the rule; negative on the wrong one, NaN without an interval."""
        margins = []
        if self.low is not None:
            margins.append(low - self.low)
        if self.high is not None:
            margins.append(self.high - high)
        if self.near is not None:
            margins.append(self.within - abs(estimate - self.near) + 0.0 * low)
        return float(np.min(margins))

    def holds(self, estimate: float, low: float, high: float) -> bool | None:
        """Whether an interval bears the claim out; None if it reaches across a limit, or is none: undecided.

        >>> [Rule("low > 0.2", low=0.2).holds(*seen) for seen in ((0.3, 0.25, 0.35), (0.3, 0.1, 0.5), (0.1, 0, 0.15))]
        [True, None, False]
        """
        margin = self.margin(estimate, low, high)
        if not np.isfinite(margin):
            return None
        if margin > 0 or (self.inclusive and margin == 0):
            return True
        possible = self.margin(estimate, high, low)  # with either end of the interval at its best
        return None if possible > 0 else False


def near(figure: float, within: float = 0.08) -> Rule:
    """The rule that our mean lies within so much of a figure."""
    return Rule(f"± {within:g}", near=figure, within=within)


@dataclass(frozen=True)
class Claim:
    """A sentence that can be checked on one study.

    Attributes:
        name: Unique, for programs.
        study: The spec whose results it is measured on.
        text: The sentence.
        lecture: The lecture's figure or word; empty where it gives none.
        rule: When it holds.
        measure: What is measured. Along a dimension the worst entry counts: all must hold.
    """

    name: str
    study: str
    text: str
    lecture: str
    rule: Rule
    measure: Measure


@dataclass(frozen=True)
class Verdict:
    """A claim with what was measured.

    Attributes:
        claim: The claim.
        estimate, low, high: The mean over seeds with its 95 % interval; of several entries the worst.
        n: The seeds behind it.
        of: The entry that is the worst, such as a context; empty where there is one alone.
        holds: Whether it holds; None if its seeds are too few to say: the interval reaches across a limit, or with
            fewer than two seeds there is none.
    """

    claim: Claim
    estimate: float
    low: float
    high: float
    n: int
    of: str
    holds: bool | None


def judge(studies: Mapping[str, xr.Dataset], claims: Sequence[Claim]) -> list[Verdict]:
    """Measure the claims whose study is there.

    Args:
        studies: Results by the name of their spec.
        claims: Which ones, such as `rlvr_jax.claims.CLAIMS`.

    Example:
        >>> accuracy = xr.DataArray([[0.36, 0.76], [0.40, 0.78]], {"seed": [0, 1], "step": [0, 60]})
        >>> claim = Claim("u", "s", "untrained accuracy", "0.39", near(0.39), mean("accuracy", step=0))
        >>> (verdict,) = judge({"s": xr.Dataset({"accuracy": accuracy})}, [claim])
        >>> round(verdict.estimate, 3), verdict.n, verdict.holds
        (0.38, 2, True)
    """
    return [_judge(claim, studies[claim.study]) for claim in claims if claim.study in studies]


def _judge(claim: Claim, results: xr.Dataset) -> Verdict:
    found = claim.measure(results)
    columns = [np.atleast_1d(found[name].values).astype(float) for name in ("estimate", "low", "high")]
    rows = list(zip(*columns, strict=True))
    judged = [claim.rule.holds(*row) for row in rows]
    margins = [claim.rule.margin(*row) for row in rows]
    # one that does not hold decides, whatever else is undecided
    order = {False: 0, None: 1, True: 2}
    worst = min(range(len(rows)), key=lambda i: (order[judged[i]], np.nan_to_num(margins[i], nan=-np.inf)))
    dims = found["estimate"].dims
    labels = found[dims[0]].values if dims else [""]
    estimate, low, high = (float(column[worst]) for column in columns)
    n = int(np.atleast_1d(found["n"].values)[worst])
    return Verdict(claim, estimate, low, high, n, str(labels[worst]) if len(labels) > 1 else "", judged[worst])


def part(results: xr.Dataset, metric: str, at: Mapping[str, Any]) -> xr.DataArray:
    """The values of a metric at the given labels, in double precision.

    Args:
        results: Of a study.
        metric: A variable.
        at: Labels by name: of a dimension, or of a parameter that moves along a tied one. A list keeps a dimension.
            ``step`` is the last one unless given.
    """
    values = results[metric]
    if "step" in values.dims:
        values = values.sel(step=at["step"]) if "step" in at else values.isel(step=-1)
    for name, label in at.items():
        if name == "step":
            continue
        if name not in values.coords:
            raise KeyError(f"{metric} has no {name}")
        if values[name].ndim == 0:
            continue
        (dim,) = values[name].dims
        if isinstance(label, list):
            held = values[name].values.tolist()
            values = values.isel({dim: [held.index(one) for one in label]})
        else:
            here = np.flatnonzero(values[name].values == label)
            values = values.isel({dim: here[0] if len(here) == 1 else here})
    if "seed" not in values.dims:
        values = values.expand_dims("seed")
    return values.astype(np.float64).squeeze([dim for dim in values.dims if dim != "seed" and values.sizes[dim] == 1])


def mean(metric: str, **at: Any) -> Measure:
    """The mean over seeds."""
    return lambda results: stats.mean(part(results, metric, at), method="t", level=LEVEL)


def difference(metric: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Measure:
    """The mean of ``one`` - ``other``, seed by seed."""

    def measure(results: xr.Dataset) -> xr.Dataset:
        first, second = (part(results, metric, at).reset_coords(drop=True) for at in (one, other))
        return stats.paired_difference(first, second, method="t", level=LEVEL)

    return measure


def ratio(metric: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Measure:
    """The mean of ``one`` over that of ``other``, both resampled with the same seeds (percentile bootstrap)."""

    def of(counts: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return mean_of(counts, first) / mean_of(counts, second)

    def measure(results: xr.Dataset) -> xr.Dataset:
        rows = (part(results, metric, at).values.reshape(1, -1) for at in (one, other))
        bounds = bootstrap(of, *rows, level=LEVEL)
        return xr.Dataset({name: column[0] for name, column in bounds.columns().items()})

    return measure


def spread_ratio(metric: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Measure:
    """The standard deviation between seeds of ``one`` over that of ``other``, both resampled with the same seeds."""

    def measure(results: xr.Dataset) -> xr.Dataset:
        first, second = (part(results, metric, at).reset_coords(drop=True) for at in (one, other))
        found = stats.variance_ratio(first, second, level=LEVEL)
        return np.sqrt(found[["estimate", "low", "high"]]).assign(n=found["n"])

    return measure


def total(first: str, second: str, **at: Any) -> Measure:
    """The mean over seeds of the sum of two metrics."""
    return lambda results: stats.mean(part(results, first, at) + part(results, second, at), method="t", level=LEVEL)
