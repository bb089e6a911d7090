"""What every statistic takes and returns: values with a dimension of replicates, and a Dataset without it.

Values are arrays or labelled results; inside they are float64 ``[cells, n]`` with the replicates last, NaN where one
is missing. A result holds ``estimate``, ``low``, ``high`` and ``n``, and its attributes say how they were made.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import xarray as xr

from rlvr_jax.types import InvalidInput, numbers, shown

#: An array, labelled values, or several labelled metrics of the same dimensions.
Values: TypeAlias = Any

#: Numbers up to here have squares, and sums of squares, that float64 holds.
LARGEST = 1e150

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

    def dataset(
        self, columns: Mapping[str, np.ndarray], along: tuple[str, Any] | None = None, **attributes: Any
    ) -> xr.Dataset:
        """Label columns ``[cells]``, and ``[cells, len(along)]``; the name of the replicates joins the attributes.

        Args:
            columns: by name.
            along: a dimension that the result has and the cells have not, and its labels.
            attributes: how the columns were made.

        Raises:
            InvalidInput: the cells have a name that the result needs.
        """
        name, labels = along or ("", ())
        taken = [own for own in (*self.frame.dims, *self.frame.coords) if own in columns or (along and own == name)]
        if taken:
            raise InvalidInput(f"values have a dimension or coordinate {taken[0]!r}, a name of the result; rename it")
        cells, shape = self.frame.dims, self.frame.shape
        variables = {
            key: (cells, column.reshape(shape))
            if column.ndim == 1
            else ((*cells, name), column.reshape(*shape, len(labels)))
            for key, column in columns.items()
        }
        coords = {**self.frame.coords, **({name: labels} if along else {})}
        return xr.Dataset(variables, coords, {**attributes, "over": self.over})


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
        InvalidInput: no numbers, or some whose squares would overflow; no such dimension or axis; or metrics of
            different dimensions.
    """
    labelled, over = _labelled(values, over, axis, "values")
    return _rows(labelled, over)


def pairs_of(x: Values, y: Values, over: str, axis: int = -1) -> tuple[Cells, Cells]:
    """Bring two sets of values into rows of pairs: the replicates that both have, matched by label.

    Where one of a pair is missing, both are. Dimensions that one side lacks are broadcast; those that both have are
    matched by label.

    Raises:
        InvalidInput: as `cells_of`, if the cells have other labels, or if x and y have no replicate in common.
    """
    (first, over), (second, other) = _labelled(x, over, axis, "x"), _labelled(y, over, axis, "y")
    if is_labelled(x) != is_labelled(y) or over != other or (not is_labelled(x) and first.shape != second.shape):
        shapes = f"x and y have the shapes {first.shape} and {second.shape}"
        raise InvalidInput(f"{shapes}; give two plain arrays of one shape, or two labelled ones")
    first, second = _matched(first, second, over)
    try:
        one, two = xr.align(first, second, join="inner", copy=False)
    except ValueError as error:
        raise InvalidInput(f"x and y cannot be paired: {str(error).splitlines()[0]}") from None
    if one.sizes[over] == 0 and first.sizes[over] and second.sizes[over]:
        raise InvalidInput(f"x and y have no {over} in common, so there are no pairs")
    missing = one.isnull() | two.isnull()  # with the coordinates in which both agree
    frame = _rows(missing, over).frame
    sides = [_rows(side.where(~missing).transpose(*missing.dims), over) for side in (one, two)]
    return Cells(sides[0].values, frame, over), Cells(sides[1].values, frame, over)


def sides_of(x: Values, y: Values, over: str, axis: int = -1) -> tuple[Cells, Cells]:
    """Bring two sets of values of the same cells, matched by label, into rows; replicates are no pairs.

    Raises:
        InvalidInput: as `cells_of`, or if the cells are not the same.
    """
    (first, over), (second, other) = _labelled(x, over, axis, "x"), _labelled(y, over, axis, "y")
    one, two = ({dim: size for dim, size in side.sizes.items() if dim != over} for side in (first, second))
    if is_labelled(x) != is_labelled(y) or over != other or one.keys() != two.keys():
        raise InvalidInput(f"x and y have the cells {one} and {two}; they must agree")
    first, second = _matched(first, second, over)
    return _rows(first, over), _rows(second.transpose(*first.dims), over)


def _matched(first: xr.DataArray, second: xr.DataArray, over: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Both sides with their cells in the order of the first one; cells with other labels are refused."""
    for dim in first.dims:
        if dim == over or dim not in second.dims:
            continue
        one, two = first.indexes.get(dim), second.indexes.get(dim)
        if one is not None and two is not None and len(one.symmetric_difference(two, sort=False)):
            held = f"{list(one[:5])} and {list(two[:5])}"
            raise InvalidInput(f"x and y have other values of {dim}, such as {held}; select the ones that both have")
        if first.sizes[dim] != second.sizes[dim]:
            sizes = f"{first.sizes[dim]} and {second.sizes[dim]}"
            raise InvalidInput(f"x and y have the cells {dim}: {sizes}; they must agree")
    try:
        first, second = xr.align(first, second, join="left", exclude=[over], copy=False)
    except ValueError as error:
        raise InvalidInput(f"x and y cannot be matched: {str(error).splitlines()[0]}") from None
    for name, coord in first.coords.items():
        told = coord.dims and over not in coord.dims and name in second.coords
        if told and not coord.variable.equals(second[name].variable.transpose(*coord.dims, ...)):
            where = ", ".join(map(str, coord.dims))
            raise InvalidInput(f"x and y have other values of {name} along {where}; drop it or give the same cells")
    return first, second


def _labelled(values: Values, over: str, axis: int, name: str) -> tuple[xr.DataArray, str]:
    if isinstance(values, xr.Dataset):
        values = _gathered(values.drop_vars(FLAG, errors="ignore"))
    if isinstance(values, xr.DataArray):
        if not isinstance(over, Hashable) or over not in values.dims:
            dims = ", ".join(map(str, values.dims)) or "none"
            raise InvalidInput(f"over is {shown(over)}; it must be a dimension of {name}, which has {dims}")
        if values.dtype.kind not in "biuf":
            raise InvalidInput(f"{name} holds {values.dtype}; it must hold numbers")
        return _finite(values), over
    array = numbers(values, name, "numbers, as an array or labelled")
    if not isinstance(axis, int | np.integer) or not -array.ndim <= axis < array.ndim:
        raise InvalidInput(f"axis is {shown(axis)}; it must be an axis of {name}, whose shape is {array.shape}")
    return _finite(xr.DataArray(array)), f"dim_{axis % array.ndim}"


def _finite(values: xr.DataArray) -> xr.DataArray:
    """The values as float64, NaN where they are infinite."""
    array = values.values.astype(np.float64)
    array[~np.isfinite(array)] = np.nan
    return values.copy(data=array)


def _gathered(metrics: xr.Dataset) -> xr.DataArray:
    if "metric" in metrics.variables or "metric" in metrics.dims:
        raise InvalidInput("values have a variable or dimension 'metric', a name of the result; rename it")
    dims = {name: set(metric.dims) for name, metric in metrics.data_vars.items()}
    if not dims or any(own != set(metrics.dims) for own in dims.values()):
        held = "; ".join(f"{name} has {', '.join(sorted(map(str, own)))}" for name, own in dims.items()) or "none"
        raise InvalidInput(f"values must be metrics of the same dimensions, such as results[['accuracy']]: {held}")
    return metrics.to_array("metric")


def _rows(labelled: xr.DataArray, over: str) -> Cells:
    moved = labelled.transpose(..., over)
    if moved.shape[-1] == 0:
        raise InvalidInput(f"values have no {over} at all; at least one is needed")
    values = moved.values.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])
    if np.fmax.reduce(np.abs(values), axis=None, initial=0.0) > LARGEST:
        raise InvalidInput(f"values have numbers beyond ±{LARGEST:g}, whose squares would overflow")
    frame = xr.DataArray(
        np.zeros(moved.shape[:-1]), {n: c for n, c in moved.coords.items() if over not in c.dims}, moved.dims[:-1]
    )
    return Cells(values, frame, over)
