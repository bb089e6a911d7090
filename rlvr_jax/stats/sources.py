"""Where the variance between runs comes from: crossed random effects, each with what they do together."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
import xarray as xr

from rlvr_jax.stats.bootstrap import RESAMPLES, check_level, entropy_of
from rlvr_jax.stats.replicates import Values, cells_of, is_labelled
from rlvr_jax.stats.summaries import Seed
from rlvr_jax.types import InvalidInput, whole


def variance_components(
    values: Values,
    over: Sequence[str] = ("task_seed", "prompt_seed", "answer_seed"),
    *,
    level: float = 0.95,
    draws: int = RESAMPLES,
    seed: Seed = 0,
) -> xr.Dataset:
    """Split the variance between runs into crossed sources, such as task, prompt order and answer sampling.

    With one run for each combination, y = μ + Σ over non-empty sets S of sources of an effect with variance σ²_S;
    the effect of all sources together is also what is left. Mean squares have the expectations
    E[MS_S] = Σ over T ⊇ S of σ²_T · Π over d not in T of n_d, which are solved from the largest set down (analysis of
    variance by the method of moments; Searle, Casella and McCulloch 1992, chapter 4). A solution below 0 is given as 0.

    Intervals are generalised confidence intervals (Weerahandi 1993): each MS is divided by a draw of χ²/df of its
    degrees of freedom, the equations are solved for each draw, and the interval has (1 - level) / 2 of the solutions
    on either side, cut at 0. Normal effects are assumed: then 95 % intervals of variances and shares hold the truth
    with .94 to .98 (1,000 simulations of 5 x 5 x 5 to 16 x 12 x 12 runs); that of a source with strongly skewed effects
    (lognormal, σ = 0.8) with .81 at 5 levels and .61 at 16.

    Args:
        values: labelled values, not a plain array, with all dimensions of ``over``, at least two values along each.
        over: the sources.
        level: of the intervals.
        draws: of the intervals.
        seed: a number or a generator from which they are drawn; all cells share them.

    Returns:
        ``estimate``, ``low`` and ``high`` of the variance, in squared units, and ``share``, ``share_low`` and
        ``share_high`` of the total, with the dimension ``source`` last: names of sources, joined by `` x ``. ``n``
        is the number of runs of a cell. All are NaN for a cell with a missing run, and shares where there is no
        variance at all.

    Raises:
        InvalidInput: a source that is no dimension, or has a single value.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> task, order = rng.normal(0.0, 3.0, (50, 1)), rng.normal(0.0, 1.0, (1, 50))
        >>> runs = xr.DataArray(task + order, dims=["task_seed", "prompt_seed"])
        >>> result = variance_components(runs, ["task_seed", "prompt_seed"])
        >>> result.estimate.round(1).to_series().to_dict()
        {'task_seed': 7.6, 'prompt_seed': 1.0, 'task_seed x prompt_seed': 0.0}
    """
    check_level(level)
    whole("draws", draws, 1)
    if not is_labelled(values):
        raise InvalidInput("values is a plain array; variance components need labelled values")
    sources = [name for name in over if isinstance(name, str)] if isinstance(over, Iterable) else []
    if isinstance(over, str) or len(sources) < 2 or len(set(sources)) < len(list(over)):
        raise InvalidInput(f"over is {over!r}; it must be two or more different dimensions")
    for name in sources:
        if values.sizes.get(name, 1) < 2:
            raise InvalidInput(f"over has {name!r}; each source must be a dimension of values with at least 2 values")
    sizes = [values.sizes[name] for name in sources]
    together = " x ".join(sources)  # no dimension is called so
    cells = cells_of(values.stack({together: sources}, create_index=False), together)
    runs = cells.values.reshape(len(cells.values), *sizes)

    sets = [s for size in range(1, len(sources) + 1) for s in combinations(range(len(sources)), size)]
    squares, degrees = _mean_squares(runs, sets)
    solve = _solution(sets, sizes)
    components = squares @ solve.T  # [cells, sets]
    generator = np.random.default_rng(entropy_of(seed))
    shrunk = generator.chisquare(degrees, (draws, len(sets))) / degrees
    solutions = np.maximum((squares[:, None, :] / shrunk) @ solve.T, 0.0)  # [cells, draws, sets]
    parts = solutions / _positive(solutions.sum(-1, keepdims=True))
    estimate = np.where(np.isnan(components), np.nan, np.maximum(components, 0.0))
    ends = [(1 - level) / 2, (1 + level) / 2]
    (low, high), (share_low, share_high) = (np.quantile(drawn, ends, axis=1) for drawn in (solutions, parts))
    columns = {
        "estimate": estimate,
        "low": low,
        "high": high,
        "share": estimate / _positive(estimate.sum(-1, keepdims=True)),
        "share_low": share_low,
        "share_high": share_high,
    }
    made = {"statistic": "variance components", "method": "generalised confidence interval", "level": level}
    labels = [" x ".join(sources[i] for i in s) for s in sets]
    result = cells.dataset({**columns, "n": cells.n}, ("source", labels), **made, draws=draws)
    return result.assign_attrs(over=", ".join(sources))


def _positive(total: np.ndarray) -> np.ndarray:
    return np.where(total > 0, total, np.nan)


def _mean_squares(runs: np.ndarray, sets: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares ``[cells, sets]`` of runs ``[cells, n_1, n_2, ...]``, and degrees of freedom ``[sets]``."""
    sizes, axes = runs.shape[1:], range(1, runs.ndim)
    runs = runs - runs.reshape(len(runs), -1)[:, :1].reshape(-1, *(1 for _ in sizes))
    effects: dict[tuple[int, ...], np.ndarray] = {(): runs.mean(tuple(axes), keepdims=True)}
    squares, degrees = [], []
    for s in sets:
        away = tuple(axis for axis in axes if axis - 1 not in s)
        mean = runs.mean(away, keepdims=True)
        effects[s] = mean - sum(effect for t, effect in effects.items() if set(t) < set(s))
        df = int(np.prod([sizes[i] - 1 for i in s]))
        repeats = np.prod([n for i, n in enumerate(sizes) if i not in s])
        squares.append(repeats * np.square(effects[s]).sum(tuple(axes)) / df)
        degrees.append(df)
    found = np.stack(squares, axis=-1)
    # rounding is no variance: the smallest that a mean square can mean, of numbers of this size
    rounding = np.square(16 * np.finfo(np.float64).eps * np.abs(runs).max(tuple(axes)))[:, None]
    return np.where(found <= rounding, 0.0, found), np.array(degrees, np.float64)


def _solution(sets: list[tuple[int, ...]], sizes: Sequence[int]) -> np.ndarray:
    """The matrix that turns mean squares into components."""
    expectation = np.array(
        [
            [np.prod([n for d, n in enumerate(sizes) if d not in t]) if set(s) <= set(t) else 0.0 for t in sets]
            for s in sets
        ]
    )
    return np.linalg.inv(expectation)
