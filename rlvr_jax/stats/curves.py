"""Numbers of a whole training curve: the area under it, and how long it takes to reach a threshold."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.special import bdtr

from rlvr_jax.kept import mean_height
from rlvr_jax.stats.bootstrap import Bounds, check_level
from rlvr_jax.stats.replicates import Values, cells_of, is_labelled
from rlvr_jax.types import InvalidInput, number, numbers


def area_under_curve(
    values: Values, step: str = "step", *, axis: int = -1, steps: Sequence[float] | None = None
) -> xr.DataArray:
    """Mean height of each curve, ∫ y ds / (s_E - s_1) by trapezoids: the area in the units of the values.

    As ``.area`` in ``keep``: an evaluation that is not finite is bridged by a straight line, and at an end the curve
    keeps its nearest value, so that all curves are measured over the same steps.

    Args:
        values: as the values of `mean`, with a dimension of evaluations.
        step: the evaluations of labelled values, whose coordinate says when they were.
        axis: the evaluations of a plain array.
        steps: when they were, rising; for a plain array, 0, 1, 2, … unless given.

    Returns:
        One number for each run, to summarise with `mean` and the others; NaN for a curve without a finite value.

    Raises:
        InvalidInput: an argument that cannot be meant.

    Example:
        >>> area_under_curve([0.0, 1.0, 1.0], steps=[0, 100, 200]).item()
        0.75
    """
    curves = cells_of(values, step, axis)
    at = _steps(values, step, steps, curves.values.shape[1])
    area = mean_height(curves.values, at)
    named = {"statistic": "area under the curve"}
    return curves.frame.copy(data=area.reshape(curves.frame.shape)).assign_attrs(named)


def time_to_threshold(
    values: Values,
    threshold: float,
    over: str = "seed",
    *,
    step: str = "step",
    steps: Sequence[float] | None = None,
    level: float = 0.95,
) -> xr.Dataset:
    """Median step at which runs first reach ``threshold``, where some may never have: they count as later than all.

    A run's time is its first evaluation with a value of at least ``threshold``, infinite if there is none (censored
    at the last evaluation). All runs are censored at the same time, so that the median of these times is that of
    Kaplan and Meier, and is known as long as more than half got there. A mean over the runs that did get there would
    favour the method whose slow runs never do. Its interval is [t₍ₖ₎, t₍ₙ₊₁₋ₖ₎] with the largest k for which
    2 P(Bin(n, ½) < k) ≤ 1 - level (the sign test's): it covers at least ``level``, with any distribution.

    Args:
        values: labelled values with the dimensions ``over`` and ``step``, or a plain array ``[..., n, E]``.
        threshold: in the units of the values.
        over: the replicates.
        step: the evaluations.
        steps: when they were, rising; for a plain array, 0, 1, 2, … unless given.
        level: of the interval.

    Returns:
        ``estimate``, ``low`` and ``high`` in steps, infinite where it is only known that they are later than the last
        evaluation; ``n``; ``reached``, the share of runs that got there; and ``time``, of each run. With fewer than 6
        runs no 95 % interval exists, and it is the whole line from the first evaluation. A run without a finite
        value is missing.

    Raises:
        InvalidInput: an argument that cannot be meant.

    Example:
        >>> runs = [[0.1, 0.6, 0.9], [0.1, 0.4, 0.8], [0.1, 0.2, 0.3]]
        >>> result = time_to_threshold(runs, 0.5, steps=[0, 100, 200])
        >>> result.estimate.item(), result.high.item(), round(result.reached.item(), 3)
        (200.0, inf, 0.667)
    """
    check_level(level)
    threshold = number("threshold", threshold, np.isfinite, "a finite number")
    curves = cells_of(values, step)
    at = _steps(values, step, steps, curves.values.shape[1])
    replicates = over if is_labelled(values) else f"dim_{curves.frame.ndim - 1}"
    if replicates not in curves.frame.dims:
        dims = ", ".join(map(str, curves.frame.dims)) or "none"
        raise InvalidInput(f"over is {over!r}; it must be a dimension of values besides {step}, which has {dims}")
    if curves.frame.sizes[replicates] == 0:
        raise InvalidInput(f"values have no {replicates} at all; at least one is needed")
    there = curves.values >= threshold
    time = np.where(there.any(1), at[there.argmax(1)], np.inf)
    time = np.where(np.isfinite(curves.values).any(1), time, np.nan)
    labelled = curves.frame.copy(data=time.reshape(curves.frame.shape)).transpose(..., replicates)
    rows = np.sort(labelled.values.reshape(-1, labelled.shape[-1]), axis=1)  # infinite times, then missing ones
    n, reached = (~np.isnan(rows)).sum(1), np.isfinite(rows).sum(1)
    cells = cells_of(labelled, replicates)
    columns = {
        **_median_bounds(rows, n, at[0], level).columns(),
        "reached": np.where(n > 0, reached / np.maximum(n, 1), np.nan),
    }
    named = {"statistic": f"median time to {threshold:g}", "method": "sign test", "level": level}
    return cells.dataset(columns, **named, threshold=threshold).assign(time=labelled)


def _median_bounds(rows: np.ndarray, n: np.ndarray, first: float, level: float) -> Bounds:
    columns = np.full((3, len(rows)), np.nan)
    for i, (row, count) in enumerate(zip(rows, n, strict=True)):
        if count == 0:
            continue
        columns[0, i] = (row[(count - 1) // 2] + row[count // 2]) / 2
        k = int((2 * bdtr(np.arange(count // 2 + 1), count, 0.5) <= 1.0 - level).sum())
        columns[1:, i] = (row[k - 1], row[count - k]) if k > 0 else (first, np.inf)
    estimate, low, high = columns
    return Bounds(estimate, low, high, n)


def _steps(values: Values, step: str, steps: Sequence[float] | None, evaluations: int) -> np.ndarray:
    labelled = is_labelled(values)
    if labelled and steps is not None:
        raise InvalidInput("steps is for plain arrays; labelled values have their own coordinate")
    given = np.arange(evaluations) if steps is None else steps
    if labelled and step in values.coords:
        given = values[step].values
    at = numbers(given, "steps", "rising numbers")
    if at.shape != (evaluations,) or not np.isfinite(at).all() or not (np.diff(at) > 0).all():
        raise InvalidInput(f"steps is {given!r}; it must be {evaluations} rising numbers, one for each evaluation")
    return at
