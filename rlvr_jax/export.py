"""Stored results in other formats: all of them as NetCDF, or one row for each configuration as CSV or Parquet."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from rlvr_jax import files
from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.types import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

#: What each format needs besides what the library needs.
FORMATS = {".nc": ("h5netcdf", "h5py"), ".csv": (), ".parquet": ("pyarrow",)}


def check(out: Path) -> None:
    """Refuses a file that `write` could not make.

    Raises:
      InvalidInput: If its name says no format, or a package is missing.
    """
    if out.suffix not in FORMATS:
        raise InvalidInput(f"{out} says no format; its name must end in {', '.join(FORMATS)}")
    missing = [name for name in FORMATS[out.suffix] if find_spec(name) is None]
    if missing:
        raise InvalidInput(f"{out.suffix} needs {' and '.join(missing)}; install 'rlvr_jax[export]'")


def write(results: xr.Dataset, out: Path) -> None:
    """Writes results to a file, whole or not at all; the file's name says the format.

    Raises:
      InvalidInput: If its name says no format, a package is missing, or it cannot be written.
    """
    check(out)
    partial = out.with_name(f".{out.name}{files.PARTIAL}")
    with files.writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            if out.suffix == ".nc":
                results.to_netcdf(partial, engine="h5netcdf")
            elif out.suffix == ".csv":
                summary(results).to_csv(partial, index=False)
            else:
                summary(results).to_parquet(partial, engine="pyarrow", index=False)
            partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)


def summary(results: xr.Dataset, over: str = "seed") -> "pd.DataFrame":
    """One row for each configuration: mean, sd, half-width of the 95 % t-interval and number of seeds.

    Curves count with their value at the last step. Variables with dimensions of their own, such as
    ``accuracy_by_level``, are left out, and so are configurations of which no seed is finished.

    >>> accuracy = (("lr", "seed", "step"), [[[0.2, 0.5], [0.2, 0.7]]])
    >>> results = xr.Dataset({"accuracy": accuracy}, {"lr": [0.1], "seed": [0, 1], "step": [0, 9]})
    >>> summary(results).round(3).to_dict("records")
    [{'lr': 0.1, 'accuracy_mean': 0.6, 'accuracy_sd': 0.141, 'accuracy_half_width': 1.271, 'accuracy_n': 2}]
    """
    final = results.isel(step=-1, drop=True) if "step" in results.dims else results
    axes = set(final["diverged_step"].dims if "diverged_step" in final else final.dims)
    columns = {}
    for name, values in final.data_vars.items():
        if name != "diverged_step" and set(values.dims) <= axes:
            found = printed_mean(values, over)
            named = {"mean": "estimate", "sd": "sd", "half_width": "half_width", "n": "n"}
            columns |= {f"{name}_{key}": found[column] for key, column in named.items()}
    if not columns:
        raise InvalidInput("these results hold no metric that fits into a summary; write them as .nc")
    table = xr.Dataset(columns)
    counts = [name for name in table.data_vars if str(name).endswith("_n")]
    if not table.dims:  # a single row
        return table.expand_dims("row").to_dataframe().reset_index(drop=True)
    frame = table.to_dataframe().reset_index()
    return frame.loc[(frame[counts] > 0).any(axis=1)].reset_index(drop=True)
