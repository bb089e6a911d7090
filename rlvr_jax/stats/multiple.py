"""P-values of several tests made together."""

import numpy as np
from numpy.typing import ArrayLike

from rlvr_jax.types import InvalidInput, numbers, shown


def holm(p_values: ArrayLike) -> np.ndarray:
    """Adjust p-values so that the chance of any false alarm stays below the level (Holm 1979).

    Of m sorted values, p̃₍ᵢ₎ = max over j ≤ i of min(1, (m - j + 1) p₍ⱼ₎). Holds under any dependence between the
    tests.

    Args:
        p_values: from 0 to 1, any shape, all one family; NaN is no test, and stays.

    Returns:
        float64 of the same shape.

    Raises:
        InvalidInput: a value outside of 0 to 1.

    Example:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    flat, order, m = _family(p_values)
    flat[order] = np.maximum.accumulate(np.minimum(flat[order] * np.arange(m, 0, -1), 1.0))
    return flat.reshape(np.shape(p_values))


def benjamini_hochberg(p_values: ArrayLike) -> np.ndarray:
    """Adjust p-values so that the expected share of false alarms among alarms stays below the level.

    Of m sorted values, p̃₍ᵢ₎ = min over j ≥ i of min(1, m p₍ⱼ₎ / j) (Benjamini and Hochberg 1995). Holds for
    independent tests and for those that are positively dependent.

    Args:
        p_values: from 0 to 1, any shape, all one family; NaN is no test, and stays.

    Returns:
        float64 of the same shape.

    Raises:
        InvalidInput: a value outside of 0 to 1.

    Example:
        >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.04, 0.04]
    """
    flat, order, m = _family(p_values)
    raised = np.minimum(flat[order] * m / np.arange(1, m + 1), 1.0)
    flat[order] = np.minimum.accumulate(raised[::-1])[::-1]
    return flat.reshape(np.shape(p_values))


def _family(p_values: ArrayLike) -> tuple[np.ndarray, np.ndarray, int]:
    """A flat copy, the positions of its m values in rising order, and m."""
    flat = numbers(p_values, "p_values", "numbers from 0 to 1").ravel().copy()
    if ((flat < 0) | (flat > 1)).any():
        raise InvalidInput(f"p_values are {shown(p_values)}; they must lie between 0 and 1")
    m = int(np.isfinite(flat).sum())
    return flat, np.argsort(flat, kind="stable")[:m], m
