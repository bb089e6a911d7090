"""Hyperparameters chosen on some seeds and reported on others."""

from typing import Literal

import numpy as np
import xarray as xr

from rlvr_jax.stats.bootstrap import RESAMPLES
from rlvr_jax.stats.replicates import Values, cells_of, is_labelled
from rlvr_jax.stats.student import moments
from rlvr_jax.stats.summaries import MeanMethod, Seed, mean
from rlvr_jax.types import InvalidInput, numbers, whole


def select_then_report(
    values: Values,
    choose: str,
    over: str = "seed",
    *,
    best: Literal["max", "min"] = "max",
    choosing: int | None = None,
    level: float = 0.95,
    method: MeanMethod = "auto",
    resamples: int = RESAMPLES,
    seed: Seed = 0,
) -> xr.Dataset:
    """Choose along a dimension by the mean over the first seeds, and report the mean over the others.

    The best of many noisy means looks too good on the seeds that chose it (the winner's curse); on other seeds it is
    unbiased (Patterson et al. 2024).

    Args:
        values: labelled values with the dimensions ``choose`` and ``over``, or a plain array
            ``[..., candidates, n]``, whose candidates are then ``choose`` and numbered.
        choose: the dimension that is chosen along, such as ``"lr"``.
        over: the replicates.
        best: whether the largest or the smallest mean wins; the first of equals.
        choosing: how many replicates choose, the first ones, fewer than all; half of them unless given.
        level, method, resamples, seed: of the interval, as in `mean`.

    Returns:
        As `mean` over the replicates that did not choose, without ``choose``, and the coordinate ``choose`` of each
        cell's winner as the variable ``chosen``. n is 0 where no candidate has a value to be chosen by.

    Raises:
        InvalidInput: an argument that cannot be meant, or too few replicates for both.

    Example:
        >>> final = xr.DataArray([[0.5, 0.6, 0.5, 0.6], [0.7, 0.9, 0.7, 0.7]], {"lr": [0.1, 0.5], "seed": range(4)})
        >>> result = select_then_report(final, "lr")
        >>> result.chosen.item(), round(result.estimate.item(), 3)
        (0.5, 0.7)
    """
    if best not in ("max", "min"):
        raise InvalidInput(f"best is {best!r}; it must be 'max' or 'min'")
    if not is_labelled(values):
        array = numbers(values, "values", "numbers, as an array [..., candidates, n] or labelled")
        if array.ndim < 2:
            raise InvalidInput(f"values has the shape {array.shape}; it must be [..., candidates, n]")
        dims = [*(f"dim_{i}" for i in range(array.ndim - 2)), over]
        if not isinstance(choose, str) or choose in dims:
            raise InvalidInput(f"choose is {choose!r}; it must be a name besides {', '.join(dims)}")
        values = xr.DataArray(array, dims=[*dims[:-1], choose, over])
    cells = cells_of(values, over)
    if choose not in cells.frame.dims:
        dims = ", ".join(map(str, cells.frame.dims)) or "none"
        raise InvalidInput(f"choose is {choose!r}; it must be a dimension of values besides {over}, which has {dims}")
    replicates = cells.values.shape[1]
    if replicates < 2:
        raise InvalidInput(f"values have {replicates} {over}; one to choose by and another to report are needed")
    first = replicates // 2 if choosing is None else whole("choosing", choosing, 1, replicates - 1)
    chooser = cells.frame.copy(data=moments(cells.values[:, :first])[1].reshape(cells.frame.shape))
    score = chooser if best == "max" else -chooser
    winner = score.fillna(-np.inf).argmax(choose)
    labelled = cells.frame.expand_dims({over: replicates - first}, -1)
    rest = labelled.copy(data=cells.values[:, first:].reshape(labelled.shape))
    rest = rest.isel({choose: winner}).where(score.notnull().any(choose))
    result = mean(rest, over, level=level, method=method, resamples=resamples, seed=seed)
    labels = cells.frame[choose].values if choose in cells.frame.coords else np.arange(cells.frame.sizes[choose])
    result = result.drop_vars(choose, errors="ignore").assign(chosen=winner.copy(data=labels[winner.values]))
    return result.assign_attrs(statistic=f"mean at the {choose} chosen on the first {first} of {replicates} {over}s")
