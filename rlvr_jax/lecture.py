"""The lecture study: which specs it runs, where they go, and what it makes of their results."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from rlvr_jax import disk, drawing, lecture_tables, words, worlds
from rlvr_jax import spec as specs
from rlvr_jax.claims import CLAIMS
from rlvr_jax.judging import Verdict, judge
from rlvr_jax.lecture_tables import Table
from rlvr_jax.spec import Spec
from rlvr_jax.store import open_store
from rlvr_jax.types import InvalidInput


@dataclass(frozen=True)
class Study:
    """An experiment: a spec in ``sweeps/`` and its figures.

    Attributes:
      name: Of the spec.
      figures: Scripts in ``figures/``.
      own_seeds: Whether it keeps the seeds of its spec, which are its subject.
    """

    name: str
    figures: tuple[str, ...]
    own_seeds: bool = False


STUDIES = (
    Study("baselines", ("baselines", "levels")),
    Study("zero_signal", ("zero_signal",)),
    Study("hacking", ("hacking",)),
    Study("repaired_verifier", ("repaired_verifier",)),
    Study("pass_at_k", ("pass_at_k",)),
    Study("learning_rate", ("learning_rate",)),
    Study("seed_variance", ("seed_variance",), own_seeds=True),
    Study("tool_cost", ("tool_cost",)),
    Study("grpo_trap", ("grpo_trap",)),
    Study("cold_start", ("cold_start",)),
    Study("phase_diagram", ("phase_diagram",)),
)


def spec_of(study: Study, seeds: int | None = None, all_methods: bool = False) -> Spec:
    """The spec of a study.

    Args:
      study: Which.
      seeds: The seeds 0 to ``seeds`` - 1, unless the study has its own.
      all_methods: Whether every estimator to which the study gives what it needs joins those of the lectures, where
        methods are an axis.
    """
    spec = specs.load(study.name)
    if seeds is not None and not study.own_seeds:
        spec = spec.with_seeds(seeds)
    if all_methods and "method" in spec.parameters:
        listed = list(spec.parameters["method"])
        known = worlds.world(spec.world).parameters["method"].choices
        spec = spec.with_value(
            "method", [*listed, *(name for name in known if name not in listed and _fits(spec, name))]
        )
    return spec


def _fits(spec: Spec, method: str) -> bool:
    """Whether a method can be trained on the grid of a spec; one may need larger groups, say."""
    try:
        spec.with_seeds(1).with_value("method", [method]).grid()
    except InvalidInput:
        return False
    return True


def store_of(folder: Path, name: str) -> Path:
    """Where a study's results are in the folder of the whole."""
    return folder / f"{name}.zarr"


def stores_in(place: Path) -> dict[str, Path]:
    """The stores in a folder by the name of their study, in the order of `STUDIES`; or a single store.

    Raises:
      InvalidInput: If there is none.
    """
    if disk.is_store(place):
        return {place.stem: place}
    found = sorted(path for path in place.glob("*.zarr") if disk.is_store(path)) if place.is_dir() else []
    if not found:
        raise InvalidInput(f"{place} is neither a store of results nor a folder with stores (NAME.zarr)")
    order = [study.name for study in STUDIES]
    found.sort(key=lambda path: order.index(path.stem) if path.stem in order else len(order))
    return {path.stem: path for path in found}


@dataclass(frozen=True)
class Findings:
    """What the results of the studies say.

    Attributes:
      studies: The results.
      verdicts: On the claims whose study is there.
      tables: The lectures' own, and that of the claims.
      missing: Texts for which there is no translation.
    """

    studies: Mapping[str, xr.Dataset]
    verdicts: Sequence[Verdict]
    tables: Sequence[Table]
    missing: frozenset[str] = frozenset()


def find(stores: Mapping[str, Path], language: str = "en") -> Findings:
    """Judges the claims and fills the tables."""
    studies = {name: open_store(path) for name, path in stores.items()}
    others = {name: unlike(name, results) for name, results in studies.items()}
    judged = {name: results for name, results in studies.items() if not others[name]}
    verdicts = judge(judged, CLAIMS)
    say = words.speaker(language, {name for results in studies.values() for name in words.names_in(results)})
    notes = [f"{name} is not judged: {why}." for name, why in others.items() if why and name in specs.shipped()]
    made = lecture_tables.tables(judged, verdicts, say, notes)
    return Findings(studies, verdicts, made, frozenset(say.missing) if say else frozenset())


def unlike(name: str, results: xr.Dataset) -> str:
    """What makes results of a spec's name another study than that spec, in words; empty if they hold all of it.

    More seeds, methods or values along its axes are still the study; another number of steps, another value of what it
    fixes, or a missing value along an axis are not, and the lectures' claims say nothing about them.
    """
    if name not in specs.shipped():
        return "no spec of this name comes with the library"
    ran, ours = json.loads(results.attrs["spec"]), specs.load(name).grid().spec
    for key in ("world", "steps", "precision"):
        if ran[key] != ours[key]:
            return f"its {key} is {ran[key]}, that of the study {ours[key]}"
    lacking = [step for step in ours["eval_steps"] if step not in ran["eval_steps"]]
    if lacking:
        return f"it has no evaluation at step {lacking[0]}"
    held, wanted = _values_in(ran), _values_in(ours)
    for parameter in sorted({*held, *wanted} - {"seed"}):
        missing = [value for value in wanted.get(parameter, []) if value not in held.get(parameter, [])]
        if missing:
            return f"it has no cells with {parameter} {missing[0]}"
        if parameter in {*ours["fixed"], *held} - {*_moving(ours)} and len(held[parameter]) > 1:
            return f"it has several values of {parameter}, the study one"
        if parameter not in wanted:
            return f"it sets {parameter}, which the study leaves out"
    return ""


def _values_in(spec: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each parameter in a canonical spec."""
    along = {name: values for axis in spec["axes"] for name, values in axis["values"].items()}
    return along | {name: [value] for name, value in spec["fixed"].items()}


def _moving(spec: Mapping[str, Any]) -> set[str]:
    """The parameters that move along an axis of a canonical spec."""
    return {name for axis in spec["axes"] for name in axis["values"]}


def figures_of(name: str, results: xr.Dataset) -> tuple[str, ...]:
    """The figures of a study, or those that can draw the results of another spec, whatever its name."""
    fitting = drawing.fitting(results)
    listed = {study.name: study.figures for study in STUDIES}.get(name, ())
    return tuple(figure for figure in listed if figure in fitting) or tuple(fitting)


def as_json(findings: Findings) -> dict[str, Any]:
    """Verdicts and tables, for programs."""
    rows = []
    for verdict in findings.verdicts:
        claim = verdict.claim
        numbers = {key: round(float(getattr(verdict, key)), 6) for key in ("estimate", "low", "high")}
        numbers = {key: value if value == value else None for key, value in numbers.items()}
        said = {"name": claim.name, "study": claim.study, "claim": claim.text, "lecture": claim.lecture or None}
        found = {"of": verdict.of or None, **numbers, "seeds": verdict.n, "holds": verdict.holds}
        rows.append({**said, "rule": claim.rule.words, **found})
    return {"claims": rows, "tables": [asdict(table) for table in findings.tables]}


def write_claims(findings: Findings, path: Path) -> None:
    """Writes `as_json`."""
    path.write_text(json.dumps(as_json(findings), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
