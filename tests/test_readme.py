"""The README tells the truth: its snippets run, its commands are those of the gate, its tables list what there is."""

import re
import tomllib
from pathlib import Path

import pytest

from rlvr_jax import lecture, stats
from rlvr_jax.advantages import ESTIMATORS
from rlvr_jax.bandit import METRICS, PARAMETERS
from rlvr_jax.claims import CLAIMS
from rlvr_jax.grid import make_grid
from rlvr_jax.worlds import world

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [text for named, text in fenced if named == language]


def test_the_python_snippets_run_in_order(capsys):
    names = {}
    assert len(blocks("python")) >= 3
    for snippet in blocks("python"):
        exec(compile(snippet, "README.md", "exec"), names)
    assert names["run"]["logits"].shape == (50, 8)
    assert "[ 1." in capsys.readouterr().out


@pytest.mark.parametrize("snippet", blocks("toml"))
def test_the_specs_are_grids(snippet):
    spec = tomllib.loads(snippet)
    grid = make_grid(world(spec.pop("world")), spec.pop("parameters"), tied=spec.pop("tied", None), **spec)
    assert grid.cells > 1


def test_the_commands_are_those_of_the_gate():
    gate = (ROOT / ".ci" / "run").read_text()
    (main,) = [block.strip() for block in blocks("") if "rlvr-jax lecture" in block]
    (tests,) = [block.strip() for block in blocks("") if "pytest" in block]
    assert tests in gate
    assert main.split(" && ")[-1] in gate
    assert gate.rstrip().splitlines()[-1] == tests


def test_every_method_parameter_and_metric_is_named():
    for name in (*ESTIMATORS, *PARAMETERS, *METRICS):
        stem = re.sub(r"_(seen|unseen)$", "", name)
        assert f"`{stem}`" in README, name


def test_the_numbers_of_the_study_are_those_of_its_specs():
    """Trainings, claims, figures; and each claim that is shown is one of the library's, with its rule."""
    grids = [lecture.spec_of(study).grid() for study in lecture.STUDIES]
    assert f"eleven experiments, {sum(grid.cells for grid in grids):,} trainings" in README
    assert len(grids) == 11
    assert f"judges {len(CLAIMS)} of their claims" in README
    assert sum(len(study.figures) for study in lecture.STUDIES) == 12
    shown = re.findall(r"^\| (.+?) \| (.+?) \| \S+ \[.+?\] \| (.+?) \| holds \|$", README, re.MULTILINE)
    assert len(shown) == 7
    assert set(shown) <= {(claim.text, claim.lecture, claim.rule.words) for claim in CLAIMS}


def test_every_statistic_is_named():
    for name in stats.__all__:
        assert f"`{name}`" in README, name


def test_the_numbers_of_seeds_are_those_of_the_planner():
    """The tables of the page on seeds; spreads and correlations are those of the stores that it names."""
    needed = stats.seeds_needed
    assert (needed(0.01, sd=0.01149, sd_other=0.01067), needed(0.01, sd=0.01149, sd_other=0.01067, rho=0.892)) == (
        21,
        5,
    )
    assert (
        f"| .01 between GRPO and RLOO | .0119, .0007 | .19 | {needed(0.01, sd=0.01185, sd_other=0.00073)} |" in README
    )
    assert f"| {needed(sd_within=0.2)} ({needed(sd_within=0.1)}) |" in README
    assert f"none having done so | {needed(collapse_rate=0.0, rate_within=0.05)} |" in README
    assert f"± 5 points | {needed(collapse_rate=0.1, rate_within=0.05)} |" in README
    tolerance = [needed(coverage=coverage) for coverage in (0.9, 0.95, 0.99)]
    assert "| {} ({}, {}) |".format(*tolerance) in README


def test_pictures_exist_and_nothing_is_left_to_fill_in():
    pictures = re.findall(r"!\[.+?\]\((.+?)\)", README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).stat().st_size > 10_000
    assert not re.search(r"@[A-Z]+@", README)
