"""``rlvr-jax stats``: the subcommand's options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

Contrasts = Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="A:B")]


@dataclass(frozen=True)
class Stats:
    """Summarise a store over its seeds: mean, IQM, spread and worst seeds of every cell, and contrasts, with intervals.

    Example: rlvr-jax stats results/baselines.zarr --contrast grpo:rloo --contrast reward_offset=1:0
    """

    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """The results of a run."""
    metric: Annotated[str, tyro.conf.arg(metavar="NAME")] = "accuracy"
    """What is summarised."""
    over: Annotated[str, tyro.conf.arg(metavar="NAME")] = "seed"
    """The dimension of the replicates."""
    by: Annotated[str, tyro.conf.arg(metavar="NAME,...")] = ""
    """Dimensions that tell cells apart; each seed is first averaged over the others. All of them unless given."""
    contrast: Contrasts = ()
    """The difference A - B of two values of a dimension, seed by seed, such as grpo:rloo or lr=0.5:0.1, or of
    two entries of a tied one by their places from 0 on, such as run=1:0; may be repeated."""
    step: Annotated[int | None, tyro.conf.arg(metavar="STEP")] = None
    """A stored step; the last one unless given."""
    collapse: Annotated[float | None, tyro.conf.arg(metavar="VALUE")] = None
    """Also give the share of the seeds below this value."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON."""

    def run(self) -> int:
        from rlvr_jax.stats_table import summarise  # here: --help needs neither xarray nor SciPy

        print(
            summarise(
                self.store,
                metric=self.metric,
                over=self.over,
                by=[name.strip() for name in self.by.split(",")] if self.by else None,
                contrasts=self.contrast,
                step=self.step,
                collapse=self.collapse,
                as_json=self.json,
            )
        )
        return 0
