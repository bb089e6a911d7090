"""What every statistic takes and returns: values with a dimension of replicates, and a Dataset without it.

Values are arrays or labelled results; inside they are float64 ``[cells, n]`` with the replicates last, NaN where one
is missing. A result holds ``estimate``, ``low``, ``high`` and ``n``, and its attributes say how they were made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import xarray as xr

from rlvr_jax.types import InvalidInput, numbers

#: An array, labelled values, or several labelled metrics of the same dimensions.
Values: TypeAlias = Any

#: The flag of a sweep that is no metric.
FLAG = "diverged_step"


@dataclass(frozen=True)
class Cells:
    """Values whose replicates are summarised, one row for each cell.

    Attributes:
        values: float64 ``[cells, n]``; NaN is a missing replicate, and so is an infinite value.
        frame: A labelled array of the cells, without the replicates.
        over: Name of the dimension of the replicates.
    """

    values: np.ndarray
    frame: xr.DataArray
    over: str

    @property
    def n(self) -> np.ndarray:
        """Finite values of each cell, int ``[cells]``."""
        return np.isfinite(self.values).sum(1)

    def dataset(self, columns: Mapping[str, np.ndarray], **attributes: Any) -> xr.Dataset:
        """Label columns ``[cells]``; the name of the replicates joins the attributes."""
        variables = {name: self.frame.copy(data=column.reshape(self.frame.shape)) for name, column in columns.items()}
        return xr.Dataset(variables).assign_attrs(**attributes, over=self.over)


def is_labelled(values: Values) -> bool:
    """Whether values have named dimensions."""
    return isinstance(values, xr.DataArray | xr.Dataset)


def cells_of(values: Values, over: str, axis: int = -1) -> Cells:
    """Bring values into rows.

    Args:
        values: an array, whose replicates lie along ``axis``; a DataArray with the dimension ``over``; or a Dataset
            of metrics of the same dimensions, which become the dimension ``metric``.
        over: the replicates of labelled values.
        axis: the replicates of a plain array.

    Raises:
        InvalidInput: no numbers, no such dimension or axis, or metrics of different dimensions.
    """
    labelled, over = _labelled(values, over, axis, "values")
    return _rows(labelled, over)


def pairs_of(x: Values, y: Values, over: str, axis: int = -1) -> tuple[Cells, Cells]:
    """Bring two sets of values into rows of pairs: the replicates that both have, matched by label.

    Where one of a pair is missing, both are. Other dimensions are broadcast against each other by name.

    Raises:
        InvalidInput: as `cells_of`, or if x and y have no replicate in common.
    """
    (first, over), (second, other) = _labelled(x, over, axis, "x"), _labelled(y, over, axis, "y")
    if is_labelled(x) != is_labelled(y) or over != other or (not is_labelled(x) and first.shape != second.shape):
        shapes = f"x and y have the shapes {first.shape} and {second.shape}"
        raise InvalidInput(f"{shapes}; give two plain arrays of one shape, or two labelled ones")
    try:
        both = first - second  # matches labels and drops what x and y do not share
    except ValueError as error:
        raise InvalidInput(f"x and y cannot be paired: {str(error).splitlines()[0]}") from None
    apart = [dim for dim, size in both.sizes.items() if size == 0 and 0 not in (first.size, second.size)]
    if apart:
        raise InvalidInput(f"x and y have no {apart[0]} in common, so there are no pairs")
    first, second, both = xr.align(*xr.broadcast(first, second), both, join="inner", copy=False)
    frame = both.isel({over: 0}, drop=True)
    rows = [_rows(side.transpose(*both.dims), over).values for side in (first, second)]
    missing = ~np.isfinite(rows[0]) | ~np.isfinite(rows[1])
    one, two = (Cells(np.where(missing, np.nan, side), frame, over) for side in rows)
    return one, two


def _labelled(values: Values, over: str, axis: int, name: str) -> tuple[xr.DataArray, str]:
    if isinstance(values, xr.Dataset):
        values = _gathered(values.drop_vars(FLAG, errors="ignore"))
    if isinstance(values, xr.DataArray):
        if over not in values.dims:
            dims = ", ".join(map(str, values.dims)) or "none"
            raise InvalidInput(f"over is {over!r}; it must be a dimension of {name}, which has {dims}")
        if values.dtype.kind not in "biuf":
            raise InvalidInput(f"{name} holds {values.dtype}; it must hold numbers")
        return _finite(values), over
    array = numbers(values, name, "numbers, as an array or labelled")
    if not isinstance(axis, int | np.integer) or not -array.ndim <= axis < array.ndim:
        raise InvalidInput(f"axis is {axis!r}; it must be an axis of {name}, whose shape is {array.shape}")
    return _finite(xr.DataArray(array)), f"dim_{axis % array.ndim}"


def _finite(values: xr.DataArray) -> xr.DataArray:
    """The values as float64, NaN where they are infinite."""
    values = values.astype(np.float64)
    return values.where(xr.apply_ufunc(np.isfinite, values, dask="allowed"))


def _gathered(metrics: xr.Dataset) -> xr.DataArray:
    dims = {name: set(metric.dims) for name, metric in metrics.data_vars.items()}
    if not dims or any(own != set(metrics.dims) for own in dims.values()):
        held = "; ".join(f"{name} has {', '.join(sorted(map(str, own)))}" for name, own in dims.items()) or "none"
        raise InvalidInput(f"values must be metrics of the same dimensions, such as results[['accuracy']]: {held}")
    return metrics.to_array("metric")


def _rows(labelled: xr.DataArray, over: str) -> Cells:
    moved = labelled.transpose(..., over)
    if moved.shape[-1] == 0:
        raise InvalidInput(f"values have no {over} at all; at least one is needed")
    values = moved.values.reshape(-1, moved.shape[-1])
    frame = xr.DataArray(
        np.zeros(moved.shape[:-1]), {n: c for n, c in moved.coords.items() if over not in c.dims}, moved.dims[:-1]
    )
    return Cells(values, frame, over)
