"""Statistics of runs over seeds that a reviewer accepts: arrays or labelled results in, estimates with intervals out.

    final = results.accuracy.isel(step=-1)
    rj.stats.iqm(final, over="seed")                                  # estimate, low, high and n of each cell
    rj.stats.paired_difference(final.sel({"method": "grpo"}), final.sel({"method": "rloo"}))

Every function takes a plain array (``axis`` says where the replicates are), a DataArray or a Dataset of metrics of the
same dimensions, and returns a Dataset whose attributes name the method, the level and the number of resamples. Missing
values do not count; ``n`` says how many did.
"""

from rlvr_jax.stats.contrasts import paired_difference, probability_of_improvement, variance_ratio, welch_difference
from rlvr_jax.stats.coverage import interval_coverage
from rlvr_jax.stats.curves import area_under_curve, time_to_threshold
from rlvr_jax.stats.distribution import collapse_rate, ecdf, performance_profile, tolerance_interval
from rlvr_jax.stats.multiple import benjamini_hochberg, holm
from rlvr_jax.stats.planning import minimum_detectable_effect, seeds_needed
from rlvr_jax.stats.selection import select_then_report
from rlvr_jax.stats.sources import variance_components
from rlvr_jax.stats.summaries import cvar, iqm, mean, median, quantiles, std

__all__ = [
    "area_under_curve",
    "benjamini_hochberg",
    "collapse_rate",
    "cvar",
    "ecdf",
    "holm",
    "interval_coverage",
    "iqm",
    "mean",
    "median",
    "minimum_detectable_effect",
    "paired_difference",
    "performance_profile",
    "probability_of_improvement",
    "quantiles",
    "seeds_needed",
    "select_then_report",
    "std",
    "time_to_threshold",
    "tolerance_interval",
    "variance_components",
    "variance_ratio",
    "welch_difference",
]
