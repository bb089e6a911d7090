"""Subcommands ``rlvr-jax lecture`` and ``report``: the whole study, and a page about results that are there."""

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rlvr_jax.options import Count, Flag, Size, counted
from rlvr_jax.stops import terminated
from rlvr_jax.types import InvalidInput

if TYPE_CHECKING:
    from rlvr_jax import driver
    from rlvr_jax.lecture import Findings
    from rlvr_jax.spec import Spec

Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]
Venue = Annotated[str, tyro.conf.arg(metavar="VENUE")]
Language = Annotated[str, tyro.conf.arg(metavar="LANGUAGE")]

#: Exit codes as those of the command line: something failed; a stop.
FAILED, STOPPED = 1, 130


@dataclass(frozen=True)
class Lecture:
    """Run every experiment of the two lectures, print their tables and claims, draw the figures, write the report.

    Each experiment has a store in the folder; what is there already is not computed again, so that a second call
    goes on where the first was stopped, or only judges and draws again.

    Example: rlvr-jax lecture --seeds 64 --out results/lecture
    """

    seeds: Count = None
    """Run the seeds 0 to N-1 of every experiment but seed_variance, whose subject they are; 64 unless given."""
    out: Folder = Path("results/lecture")
    """Where stores, figures, claims and report go."""
    venue: Venue = "neurips"
    """Sets the width of the figures: neurips, iclr, icml, icml-column or tmlr."""
    language: Language = "en"
    """Of tables, claims and figures: en or zh."""
    all_methods: Flag = False
    """Let every estimator of the registry that an experiment can train join the five of the lectures."""
    memory: Size = None
    """Memory that a call may take, such as 4GB or 512MB; half of what is free unless given."""
    quiet: Flag = False
    """Show no progress."""
    json: Flag = False
    """Print claims, tables and files as JSON in place of the tables."""

    def run(self) -> int:
        _check(self.venue, self.language)
        _folder(self.out)
        return _until_stopped(self._study, f"the stores in {self.out} are kept; the same command goes on")

    def _study(self) -> int:
        from rlvr_jax import drawing, lecture
        from rlvr_jax.progress import time_in_words

        began = time.perf_counter()
        stores = {study.name: lecture.store_of(self.out, study.name) for study in lecture.STUDIES}
        with drawing.Drawers(self.out / "figures", self.venue, self.language) as drawers:
            failed = 0
            for study in lecture.STUDIES:
                outcome = self._train(lecture.spec_of(study, self.seeds, self.all_methods), stores[study.name])
                failed += len(outcome.failed)
                drawers.draw(study.figures, stores[study.name])
            findings = lecture.find(stores, self.language)
            self._tell_of_more(findings)
            if not self.json:
                _show(findings)
            files = _write(findings, drawers.files(), self.out, self.language)
        if self.json:
            named = {name: [str(path) for path in paths] for name, paths in files.items()}
            print(json.dumps(lecture.as_json(findings) | {"files": named}, indent=2, ensure_ascii=False))
        else:
            _list(files)
            print(f"\n{time_in_words(time.perf_counter() - began)} in all")
        return FAILED if failed else 0

    def _train(self, spec: "Spec", store: Path) -> "driver.Outcome":
        """Brings a study into its store."""
        from rlvr_jax import driver

        began = time.perf_counter()
        progress = "none" if self.quiet or self.json else "auto"
        outcome = driver.run(spec.grid(), store, memory=self.memory, progress=progress)
        self._tell(spec.name, outcome, time.perf_counter() - began)
        return outcome

    def _tell_of_more(self, findings: "Findings") -> None:
        """Says that the stores have more seeds than were asked for, since those are judged and drawn, too."""
        from rlvr_jax.lecture import STUDIES

        most = max(findings.studies[study.name].sizes["seed"] for study in STUDIES if not study.own_seeds)
        if self.seeds is not None and most > self.seeds:
            told = f"{self.out} has {most} seeds, more than the {self.seeds} asked for, and all of them are used"
            print(f"rlvr-jax: {told}", file=sys.stderr)

    def _tell(self, name: str, outcome: "driver.Outcome", seconds: float) -> None:
        results = outcome.results()
        if "diverged" in results.attrs:
            warnings.warn(f"{name}: {results.attrs['diverged']}", RuntimeWarning, stacklevel=2)
        for number, reason in outcome.failed.items():
            print(f"rlvr-jax: {name}: task {number} failed: {reason}", file=sys.stderr)
        if not self.json:
            computed = f"{counted(outcome.computed, 'cell')} computed, {outcome.found:,} found"
            print(f"{name:18s} {computed}; {seconds:.1f} s", flush=True)


@dataclass(frozen=True)
class Report:
    """Write one HTML page about a store, or about a folder of stores: claims, figures, curves to explore, provenance.

    The page needs no network. Figures go into the folder beside it.

    Example: rlvr-jax report results/lecture --language zh
    """

    place: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """A store, or a folder with stores such as `rlvr-jax lecture` leaves."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Where page and figures go; unless given the folder of stores, or NAME-report beside a store."""
    venue: Venue = "neurips"
    """Sets the width of the figures: neurips, iclr, icml, icml-column or tmlr."""
    language: Language = "en"
    """Of tables, claims and figures: en or zh."""

    def run(self) -> int:
        _check(self.venue, self.language)
        return _until_stopped(self._report, f"the page is not written; what is stored in {self.place} stays")

    def _report(self) -> int:
        from rlvr_jax import disk, drawing, lecture

        stores = lecture.stores_in(self.place)
        beside = self.place.with_name(f"{self.place.stem}-report") if disk.is_store(self.place) else self.place
        out = self.out or beside
        _folder(out)
        with drawing.Drawers(out / "figures", self.venue, self.language) as drawers:
            findings = lecture.find(stores, self.language)
            for name, results in findings.studies.items():
                drawers.draw(lecture.figures_of(name, results), stores[name])
            _show(findings)
            _list(_write(findings, drawers.files(), out, self.language))
        return 0


COMMANDS: dict[str, Any] = {"lecture": Lecture, "report": Report}


def _check(venue: str, language: str) -> None:
    """Refuses, before anything runs, what the figures would refuse at the end."""
    from rlvr_jax import plots, words

    plots.width_of(venue)
    if words.speaker(language) is not None:
        plots.chinese_font()


def _until_stopped(work: Callable[[], int], kept: str) -> int:
    """The exit code of ``work``; of a stop, after a sentence with what is kept, that of stops."""
    try:
        with terminated():
            return work()
    except KeyboardInterrupt:
        print(f"rlvr-jax: stopped: {kept}", file=sys.stderr)
        return STOPPED


def _folder(out: Path) -> None:
    """Makes the folder, or refuses a place that can be none, before anything is computed for it."""
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"{out} exists and is no folder; choose another place (--out)")
    out.mkdir(parents=True, exist_ok=True)


def _show(findings: "Findings") -> None:
    for table in findings.tables:
        print(f"\n{table.text()}", flush=True)
    print()


def _write(findings: "Findings", figures: dict[str, list[Path]], out: Path, language: str) -> dict[str, list[Path]]:
    """Writes claims and page; returns all files by what they are."""
    from rlvr_jax import lecture, report

    lecture.write_claims(findings, out / "claims.json")
    page = report.write(findings, figures, out / "report.html", language)
    return {**figures, "claims": [out / "claims.json"], "report": [page]}


def _list(files: dict[str, list[Path]]) -> None:
    for name, (first, *others) in files.items():
        print(f"{name}: {first}" + (f" ({', '.join(path.suffix[1:] for path in others)})" if others else ""))
