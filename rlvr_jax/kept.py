"""What is kept of a metric: its curve, its value at the last step, or the area under its curve.

In ``keep`` a metric's bare name is its curve over all evaluations, ``accuracy.final`` its value at the last step, and
``accuracy.area`` the area under its curve, divided by the number of steps. As variables of the results they are called
``accuracy``, ``accuracy_final`` and ``accuracy_area``.
"""

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

        The area is taken by the trapezoid rule in float64 and in a fixed order, so that it depends on the curve alone:
        Σₑ (vₑ + vₑ₊₁) / 2 · (tₑ₊₁ - tₑ) / (t_E - t_1). A curve that has no value before training, such as
        ``zero_frac``, is taken to begin with its first one; the area of a single evaluation is its value.

        >>> Kept("accuracy", "area").of(np.array([[0.0, 1.0, 1.0]]), [0, 10, 20]).tolist()
        [0.75]
        """
        if self.form == "final":
            return values[:, -1]
        if self.form != "area":
            return values
        if len(eval_steps) == 1:
            return values[:, 0]
        curve = values.astype(np.float64)
        before = np.where(np.isnan(curve[:, 0]), curve[:, 1], curve[:, 0])
        area = np.zeros_like(before)
        for i, length in enumerate(np.diff(eval_steps)):
            area += (before + curve[:, i + 1]) * (length / 2)
            before = curve[:, i + 1]
        return (area / (eval_steps[-1] - eval_steps[0])).astype(values.dtype)
