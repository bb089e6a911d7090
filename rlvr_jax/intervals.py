"""The interval that tables and figures print: Student's t-interval of the mean over seeds.

Labelled values in, labelled numbers out. A value that is not finite, such as that of a cell which was not
run, does not count, and ``n`` says how many did.
"""

import numpy as np
import xarray as xr
from scipy.special import stdtrit

LEVEL = 0.95


def t_interval(values: xr.DataArray, over: str = "seed") -> xr.Dataset:
    """Summarise ``values [..., over, ...]`` along the dimension ``over``.

    mean ± t(0.975, n - 1) · sd / √n, with sd of ddof 1, all in float64.

    Args:
        values: any shape; a dimension ``over`` that is absent counts as one run.
        over: the replicates, usually ``"seed"``.

    Returns:
        ``mean``, ``sd`` and ``half_width`` in the units of ``values``, and ``n``, the number of finite
        values; each without ``over``. The mean is NaN where n = 0, sd and half-width where n < 2: one run
        has no interval.

    Example:
        >>> t_interval(xr.DataArray([1.0, 2.0, 3.0], dims="seed")).half_width.round(3).item()
        2.484
    """
    if over not in values.dims:
        values = values.expand_dims(over)
    values = values.astype(np.float64)
    finite = xr.apply_ufunc(np.isfinite, values)
    n = finite.sum(over)
    mean = values.where(finite, 0.0).sum(over) / n.where(n > 0)
    squares = ((values - mean).where(finite, 0.0) ** 2).sum(over)
    degrees = (n - 1).where(n > 1)
    sd = np.sqrt(squares / degrees)
    quantile = xr.apply_ufunc(stdtrit, degrees, 0.5 + LEVEL / 2)
    return xr.Dataset({"mean": mean, "sd": sd, "half_width": quantile * sd / np.sqrt(n), "n": n})
