"""What is kept of a metric: its curve, its value at the last step, or the area under its curve.

In ``keep`` a metric's bare name is its curve over all evaluations, ``accuracy.final`` its value at the last step, and
``accuracy.area`` the area under its curve, divided by the number of steps. As variables of the results they are called
``accuracy``, ``accuracy_final`` and ``accuracy_area``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlvr_jax.types import Metric

#: Forms of a curve besides the curve itself, in words.
FORMS = {"final": "at the last step", "area": "area under the curve over the steps, divided by their number"}


@dataclass(frozen=True)
class Kept:
    """One variable of the results.

    Attributes:
      metric: The metric's name.
      form: A key of `FORMS`, or "" for the curve and for what is stored once anyway.

    >>> Kept.parse("accuracy.area").name
    'accuracy_area'
    """

    metric: str
    form: str = ""

    @classmethod
    def parse(cls, text: str) -> "Kept":
        """An entry of ``keep``; whether metric and form exist is checked by `rlvr_jax.grid`."""
        metric, _, form = text.partition(".")
        return cls(metric, form)

    @property
    def text(self) -> str:
        """As in ``keep``."""
        return f"{self.metric}.{self.form}" if self.form else self.metric

    @property
    def name(self) -> str:
        """Of the variable."""
        return f"{self.metric}_{self.form}" if self.form else self.metric

    def about(self, metric: Metric) -> str:
        """One line, with the unit."""
        return f"{metric.about}, {FORMS[self.form]}" if self.form else metric.about

    def dims(self, metric: Metric) -> tuple[str, ...]:
        """Dimensions besides those of the grid."""
        return (*(() if metric.total or self.form else ("step",)), *metric.dims)

    def of(self, values: np.ndarray, eval_steps: Sequence[int]) -> np.ndarray:
        """This form of what the engine returns, curves ``[N, E, ...]`` or totals ``[N, ...]``.

        The area is that of `mean_height`, taken in float64.

        >>> Kept("accuracy", "area").of(np.array([[0.0, 1.0, 1.0]]), [0, 10, 20]).tolist()
        [0.75]
        """
        if self.form == "final":
            return values[:, -1]
        if self.form != "area":
            return values
        curves = np.moveaxis(values, 1, -1).astype(np.float64)
        rows = curves.reshape(math.prod(curves.shape[:-1]), curves.shape[-1])
        return mean_height(rows, np.asarray(eval_steps, np.float64)).reshape(curves.shape[:-1]).astype(values.dtype)


def mean_height(curves: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Mean height of curves ``[N, E]`` over the steps ``at [E]``, by trapezoids.

    Σₑ (vₑ + vₑ₊₁) / 2 · (tₑ₊₁ - tₑ) / (t_E - t_1), summed in a fixed order, so that it depends on the curve alone. An
    evaluation that is not finite is bridged by a straight line between its neighbours; at an end the curve keeps its
    nearest value, as ``zero_frac``, which has none before training, begins with its first one: so all curves are
    measured over the same steps. The height of a single evaluation is its value; NaN for a curve without a finite one.

    >>> mean_height(np.array([[np.nan, 1.0, np.nan, 3.0]]), np.array([0.0, 10.0, 20.0, 30.0])).round(4).tolist()
    [1.6667]
    """
    curves = _bridged(curves, at)
    if len(at) == 1:
        return curves[:, 0]
    area = np.zeros(len(curves))
    for i, length in enumerate(np.diff(at)):
        area += (curves[:, i] + curves[:, i + 1]) * (length / 2)
    return area / (at[-1] - at[0])


def _bridged(curves: np.ndarray, at: np.ndarray) -> np.ndarray:
    finite, places = np.isfinite(curves), np.arange(len(at))
    if finite.all():
        return curves
    left = np.maximum.accumulate(np.where(finite, places, -1), axis=1)
    right = np.minimum.accumulate(np.where(finite, places, len(at))[:, ::-1], axis=1)[:, ::-1]
    none = ~finite.any(1)
    left, right = np.where(left < 0, right, left), np.where(right == len(at), left, right)
    left[none] = right[none] = 0
    low, high = np.take_along_axis(curves, left, 1), np.take_along_axis(curves, right, 1)
    low[none] = high[none] = np.nan
    gap = at[right] - at[left]
    return low + (high - low) * np.divide(at - at[left], gap, out=np.zeros_like(low), where=gap > 0)
