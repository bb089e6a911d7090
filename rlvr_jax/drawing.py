"""Finds the scripts in ``figures/`` that can draw some results, and runs them, in processes of their own if wanted."""

import gc
import importlib.util
import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from pathlib import Path
from types import ModuleType

import xarray as xr

from rlvr_jax import figure_script, plots, words
from rlvr_jax.shipped import folder
from rlvr_jax.stops import follow_parent
from rlvr_jax.store import open_store
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
    results = figure_script.prepare(results, module.NEEDS).load()
    say = words.speaker(language, words.names_in(results))
    return plots.save(module.draw(results, venue=venue), out / name, module.facts(results), say)


#: Processes that draw at most; each takes about 300 MB.
MOST_PROCESSES = 4


class Drawers:
    """Processes that draw figures of stores while something else goes on here, such as the training of the next.

    Used with ``with``: what is not drawn when an error leaves the block is given up.

    Args:
      out: The folder of the figures.
      venue: Sets their width.
      language: Of what they say.
    """

    def __init__(self, out: Path, venue: str = "neurips", language: str = "en"):
        self.out, self.venue, self.language = out, venue, language
        self.others = set(multiprocessing.active_children())
        # spawned: a fork of a process in which JAX runs may hang
        self.pool = ProcessPoolExecutor(
            min(os.cpu_count() or 1, MOST_PROCESSES), multiprocessing.get_context("spawn"), _begin
        )
        self.drawn: dict[str, Future[list[Path]]] = {}

    def __enter__(self) -> "Drawers":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:  # a stop does not wait for a figure that would be drawn again
            for process in set(multiprocessing.active_children()) - self.others:
                process.terminate()
        self.pool.shutdown(cancel_futures=True)

    def draw(self, names: Iterable[str], store: Path) -> None:
        """Begins to draw some figures of a store."""
        for name in names:
            self.drawn[name] = self.pool.submit(_draw_store, name, store, self.out, self.venue, self.language)

    def files(self) -> dict[str, list[Path]]:
        """The files of each figure, once all are drawn.

        Raises:
          InvalidInput: If results lack what a figure needs; the sentence names the figure.
        """
        found = {}
        for name, drawn in self.drawn.items():
            try:
                found[name] = drawn.result()
            except InvalidInput as error:
                raise InvalidInput(f"figure {name}: {error}") from None
        return found


def _begin() -> None:
    """What a process that draws does first."""
    follow_parent()
    gc.set_threshold(200_000)  # a figure is 100,000 objects: to look through them again and again takes a tenth longer


def _draw_store(name: str, store: Path, out: Path, venue: str, language: str) -> list[Path]:
    return draw(name, open_store(store), out, venue, language)
