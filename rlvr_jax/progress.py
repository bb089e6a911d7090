"""How far a run is: a bar on a terminal, plain lines elsewhere, events for programs, or nothing.

Everything here happens on the host, between calls of the compiled program.
"""

import json
import sys
import time
from typing import Any, Literal, TypeAlias

from tqdm import tqdm

#: ``auto`` is a bar where stderr is a terminal and lines elsewhere.
Mode: TypeAlias = Literal["auto", "bar", "lines", "json", "none"]

#: A bar appears after this many seconds.
BAR_AFTER = 2.0

#: Seconds between two lines.
LINE_EVERY = 10.0


class Progress:
    """Counts cells and samples, and shows them.

    Args:
      mode: How.
      cells: How many cells there are in all.
      done: How many of them had been finished before.
    """

    def __init__(self, mode: Mode, cells: int, done: int = 0):
        if mode == "auto":
            mode = "bar" if sys.stderr.isatty() else "lines"
        self.mode, self.cells, self.before = mode, cells, done
        self.done, self.samples = float(done), 0.0
        self.began = self.shown = time.monotonic()
        self.bar = tqdm(total=cells, initial=done, unit="cell", delay=BAR_AFTER, disable=mode != "bar")
        self.bar.bar_format = "{l_bar}{bar}| {n:.0f}/{total_fmt} cells [{elapsed}<{remaining}{postfix}]"

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    @property
    def rate(self) -> float:
        """Samples a second, so far."""
        return self.samples / max(time.monotonic() - self.began, 1e-9)

    @property
    def seconds_left(self) -> float:
        """Estimate, from the cells of this run so far; infinite before there are any."""
        cells = self.done - self.before
        return (self.cells - self.done) * (time.monotonic() - self.began) / cells if cells > 0 else float("inf")

    def advance(self, cells: int, samples: int, share: float) -> None:
        """A share of a task of so many cells and samples has been done."""
        self.done += share * cells
        self.samples += share * samples
        if self.mode == "bar":
            self.bar.set_postfix_str(f"{self.rate / 1e6:.3g} Msamples/s", refresh=False)
            self.bar.update(share * cells)
        elif time.monotonic() - self.shown >= LINE_EVERY and self.mode in ("lines", "json"):
            self.shown = time.monotonic()
            if self.mode == "lines":
                left = time_in_words(self.seconds_left)
                print(
                    f"{self.done:,.0f} of {self.cells:,} cells, {self.rate / 1e6:.3g} Msamples/s, {left} left",
                    file=sys.stderr,
                    flush=True,
                )
            self.event(
                "progress",
                cells=int(self.done),
                of=self.cells,
                msamples_per_second=round(self.rate / 1e6, 3),
                seconds_left=round(self.seconds_left, 1),
            )

    def event(self, kind: str, **facts: Any) -> None:
        """Something that a program may want to know: a line of JSON on stdout, in the mode ``json``."""
        if self.mode == "json":
            print(json.dumps({"event": kind, **facts}), flush=True)


def time_in_words(seconds: float) -> str:
    """A length of time as people say it.

    >>> time_in_words(3.4), time_in_words(200), time_in_words(8000), time_in_words(float("inf"))
    ('3 s', '3 min', '2.2 h', 'unknown time')
    """
    if seconds == float("inf"):
        return "unknown time"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
