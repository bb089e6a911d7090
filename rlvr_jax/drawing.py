"""Finds the scripts in ``figures/`` that can draw some results, and runs them."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import xarray as xr

from rlvr_jax import figure_script, plots, words
from rlvr_jax.shipped import folder
from rlvr_jax.types import InvalidInput


@cache
def script(name: str) -> ModuleType:
    """The module ``figures/NAME.py``: its ``NEEDS``, ``draw`` and ``facts``."""
    file = folder("figures") / f"{name}.py"
    source = importlib.util.spec_from_file_location(f"rlvr_jax_figure_{name}", file)
    if source is None or source.loader is None or not file.is_file():
        raise InvalidInput(f"there is no figure {name!r}; the known ones are {', '.join(scripts())}")
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module


def scripts() -> list[str]:
    """The names of all figures, sorted."""
    return sorted(file.stem for file in folder("figures").glob("*.py"))


def fitting(results: xr.Dataset) -> list[str]:
    """The figures whose needs some results meet."""
    found = []
    for name in scripts():
        try:
            figure_script.prepare(results, script(name).NEEDS)
        except InvalidInput:
            continue  # another study's figure
        found.append(name)
    return found


def draw(name: str, results: xr.Dataset, out: Path, venue: str = "neurips", language: str = "en") -> list[Path]:
    """Draw a figure into a folder; see `plots.save` for the files.

    Raises:
      InvalidInput: If something that the figure needs is missing in the results.
    """
    module = script(name)
    say = words.speaker(language, results)
    return plots.save(module.draw(results, venue=venue), out / name, module.facts(results), say)
