"""The lecture study: one command, its second call, its tables, figures and page, in English and Chinese."""

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import chromium
import numpy as np
import pytest
from matplotlib.font_manager import fontManager
from matplotlib.testing.compare import compare_images
from synthetic_results import results
from test_plots import AXES, ENDS, FIGURES, script
from test_study_figures import RESULTS

from rlvr_jax import captions, claims, driver, engine, judging, lecture, lecture_tables, plots, report, words, worlds
from rlvr_jax.advantages import ESTIMATORS
from rlvr_jax.cli import main
from rlvr_jax.lecture import STUDIES
from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.store import open_store
from rlvr_jax.table import decimals
from rlvr_jax.types import InvalidInput

#: One study of the bandit and two of tool use: three programs to compile.
FEW = [study for study in STUDIES if study.name in ("baselines", "grpo_trap", "phase_diagram")]
SCRIPTS = sorted(path.stem for path in FIGURES.glob("*.py"))


@dataclass(frozen=True)
class Given:
    """What a call of the command left and said."""

    folder: Path
    out: str


@pytest.fixture(scope="module")
def few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lecture, "STUDIES", tuple(FEW))
        yield


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, few: None) -> Given:
    folder = tmp_path_factory.mktemp("lecture")
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("builtins.print", lambda *texts, **_: said.append(" ".join(map(str, texts))))
        assert main(["lecture", "--seeds", "2", "--out", str(folder), "--quiet"]) == 0
    return Given(folder, "\n".join(said))


def drawn(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "figures").iterdir())}


def test_the_studies_are_all_the_shipped_ones_of_the_lectures() -> None:
    names = [study.name for study in STUDIES]
    assert len(set(names)) == len(names)
    figures = {figure for study in STUDIES for figure in study.figures}
    assert {*names, "levels"} == figures
    assert figures <= set(SCRIPTS)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_spec_takes_seeds_and_methods(study: lecture.Study) -> None:
    own = lecture.spec_of(study).grid()
    two = lecture.spec_of(study, seeds=2).grid()
    assert two.cells == (own.cells if study.own_seeds else own.cells // 32)
    more = lecture.spec_of(study, seeds=2, all_methods=True)
    if "method" in more.parameters:
        assert more.parameters["method"][:5] == ["none", "learned", "rloo", "group", "grpo"]
        assert set(more.parameters["method"]) <= set(ESTIMATORS)
        assert more.grid().cells == two.cells // 5 * len(more.parameters["method"])
    else:
        assert more.grid().cells == two.cells


def test_all_methods_are_those_that_the_study_can_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the registry joins where the groups are large enough for it."""
    parameters = worlds.world("bandit").parameters
    listed = dataclasses.replace(parameters["method"], choices=(*parameters["method"].choices, "pairs_of_pairs"))
    monkeypatch.setitem(parameters, "method", listed)
    monkeypatch.setitem(ESTIMATORS, "pairs_of_pairs", dataclasses.replace(ESTIMATORS["rloo"], smallest_group=4))
    methods = {
        study.name: lecture.spec_of(study, seeds=2, all_methods=True).parameters.get("method", []) for study in STUDIES
    }
    assert methods["baselines"][-1] == "pairs_of_pairs"
    assert "pairs_of_pairs" not in methods["zero_signal"]  # which has groups of two
    assert "pairs_of_pairs" not in methods["phase_diagram"]  # of the other world


def test_a_new_estimator_appears_in_figures_and_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One row of the registry is all that it takes."""
    monkeypatch.setattr(lecture, "STUDIES", tuple(study for study in FEW if study.name != "grpo_trap"))
    monkeypatch.setitem(ESTIMATORS, "another", ESTIMATORS["rloo"])
    for name in ("bandit", "tool_use"):
        parameters = worlds.world(name).parameters
        listed = dataclasses.replace(parameters["method"], choices=(*parameters["method"].choices, "another"))
        monkeypatch.setitem(parameters, "method", listed)
    assert main(["lecture", "--all-methods", "--seeds", "2", "--out", str(tmp_path), "--quiet"]) == 0
    for study, metric in (("baselines", "accuracy"), ("phase_diagram", "calls")):
        found = open_store(tmp_path / f"{study}.zarr")[metric]
        one, other = (found.sel({"method": method}).values for method in ("another", "rloo"))
        np.testing.assert_array_equal(one, other)
    for figure in ("baselines", "levels", "phase_diagram"):
        assert '"method": "another"' in (tmp_path / "figures" / f"{figure}.json").read_text()
    views = re.search(r'<script id="data"[^>]*>(.*?)</script>', (tmp_path / "report.html").read_text(), re.DOTALL)
    assert views is not None
    for view in json.loads(views[1])["views"]:
        assert view["axes"][view["by"]]["values"][-1] == "another"


def test_stores_figures_claims_and_page_are_left(given: Given) -> None:
    for study in FEW:
        assert open_store(given.folder / f"{study.name}.zarr").sizes["seed"] == 2
        for figure in study.figures:
            assert {f"{figure}.{end}" for end in ENDS} <= set(drawn(given.folder))
    left = json.loads((given.folder / "claims.json").read_text())
    judged = [claim.name for claim in claims.CLAIMS if claim.study in {study.name for study in FEW}]
    assert [row["name"] for row in left["claims"]] == judged
    trapped = next(row for row in left["claims"] if row["name"] == "trap-calls")
    stored = open_store(given.folder / "grpo_trap.zarr")["calls"].sel(run=1, step=60).values.astype(float)
    assert trapped["estimate"] == pytest.approx(stored.mean(), abs=1e-6)
    assert trapped["seeds"] == 2


def test_the_lectures_tables_stand_above_the_claims(given: Given) -> None:
    tables = json.loads((given.folder / "claims.json").read_text())["tables"]
    assert [table["title"] for table in tables] == [
        "The trap of grpo: 60 steps",
        "Answer bandit: after 600 steps, without a reward offset",
        "The lectures' claims",
    ]
    trap = tables[0]
    assert trap["heads"][:3] == ["", "accuracy", "calls per problem"]
    assert trap["heads"][3:] == list(lecture_tables.CONTEXTS.values())
    stored = open_store(given.folder / "grpo_trap.zarr")["call_prob"].sel(run=2, step=60, context="mul2_2")
    assert float(trap["rows"][2][6].split(" ± ")[0]) == pytest.approx(float(stored.mean()), abs=0.01)
    assert given.out.index("The trap of grpo") < given.out.index("The lectures' claims")
    for row in tables[-1]["rows"]:
        assert row[0] in given.out


def test_a_second_call_computes_nothing_and_draws_the_same_bytes(
    given: Given, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, page = drawn(given.folder), (given.folder / "report.html").read_bytes()
    monkeypatch.setattr(engine, "run", None)  # it must not come to that
    assert main(["lecture", "--seeds", "2", "--out", str(given.folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert drawn(given.folder) == before
    assert (given.folder / "report.html").read_bytes() == page
    assert said["files"]["report"] == [str(given.folder / "report.html")]
    assert len(said["claims"]) == len(json.loads((given.folder / "claims.json").read_text())["claims"])


def test_a_stop_says_what_is_kept(
    few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise driver.Stopped(3, 20)

    monkeypatch.setattr(driver, "run", stopped)
    assert main(["lecture", "--seeds", "2", "--out", str(tmp_path)]) == 130
    sentence = f"rlvr-jax: stopped: the stores in {tmp_path} are kept; the same command goes on\n"
    assert capsys.readouterr().err == sentence


def test_the_page_is_whole_and_small(given: Given) -> None:
    page = (given.folder / "report.html").read_text()
    assert len(page.encode()) < 5_000_000
    figures = re.findall(r'src="data:image/svg\+xml,%3C\?xml[^"]*"', page)
    assert len(figures) == sum(len(study.figures) for study in FEW)
    rest = re.sub(r'src="data:image/svg\+xml,[^"]*"', "", page)
    assert not re.findall(r"""(?:src|href)\s*=|url\(""", rest)
    assert set(re.findall(r"https?://[^\s\"'<]+", rest)) == {"http://www.w3.org/2000/svg"}
    for study in FEW:
        ran = escape(json.dumps(json.loads(open_store(given.folder / f"{study.name}.zarr").attrs["spec"])))
        assert f"<summary>{study.name}</summary><pre>{ran}</pre>" in page  # two seeds: not the file as it is shipped
        assert open_store(given.folder / f"{study.name}.zarr").attrs["spec_sha256"] in page
        for figure in study.figures:
            assert f'<figure id="figure-{figure}">' in page


def printed(values: Any) -> str:
    """A mean over seeds with its half-width, as tables round it."""
    found = printed_mean(values)
    mean, half = (float(found[name]) for name in ("estimate", "half_width"))
    return f"{mean:.{decimals(half)}f} ± {half:.{decimals(half)}f}"


def test_the_page_is_clicked_through(given: Given, tmp_path: Path) -> None:
    if chromium.executable() is None:
        pytest.skip("Chromium is missing (none of " + ", ".join(chromium.NAMES) + " is there): the page is not opened")
    stored = open_store(given.folder / "phase_diagram.zarr").isel(step=-1)
    with chromium.Page(given.folder / "report.html", tmp_path / "profile") as page:
        curves = "document.querySelectorAll('svg.chart path.curve').length"
        read = "document.querySelector('.read').innerText"
        assert page.ask(curves) == 5
        page.choose("study", "phase_diagram")
        page.choose("metric", "calls per problem")
        page.choose("cold start", "yes")
        page.point("svg.chart", 0.999)
        assert "cost of a call (reward) = 0.4" in page.ask(read)
        shown = dict(line.split("\t") for line in page.ask(read).splitlines())
        calls = stored["calls"].sel({"method": "grpo", "cold_start": True}).isel(call_cost=-1)
        assert shown["grpo"] == printed(calls)
        page.ask("document.querySelector('svg.chart').focus()")
        for keys, cost in ((("ArrowRight",), "0.4"), (("ArrowLeft",) * 2, "0.3795"), (("Home", "ArrowLeft"), "0")):
            for key in keys:
                page.press(key)
            assert page.ask(read).startswith(f"cost of a call (reward) = {cost}\t")
        page.click(".keys button:nth-of-type(5)")
        assert page.ask(curves) == 4
        page.point("svg.chart", 0.1)
        assert "grpo" not in page.ask(read)
        page.choose("study", "baselines")
        page.choose("metric", "accuracy by level")
        page.choose("level", "easy 60%")
        page.choose("reward offset", "1")
        page.point("svg.chart", 0.999)
        final = open_store(given.folder / "baselines.zarr")["accuracy_by_level"].isel(step=-1)
        easy = final.sel({"method": "none", "reward_offset": 1.0, "level": "easy 60%"})
        assert f"none\t{printed(easy)}" in page.ask(read)
        page.choose("by", "reward offset")
        assert page.ask(curves) == 2
        page.choose("method", "rloo")
        page.point("svg.chart", 0.999)
        assert [line.split("\t")[0] for line in page.ask(read).splitlines()[1:]] == ["0", "1"]
        page.choose("study", "phase_diagram")
        page.choose("as", "map")
        cells = "[...document.querySelectorAll('svg.chart rect.cell')].map(cell => cell.getAttribute('fill'))"
        assert len(page.ask(cells)) == 5 * 40
        page.choose("training step", "0")
        assert len(set(page.ask(cells))) == 1  # nothing has been trained yet
        page.choose("along", "training step")
        page.choose("cost of a call (reward)", "0.4")
        assert len(page.ask(cells)) == 5 * 2
        page.click("summary")
        assert page.ask("document.querySelector('details').open") is True
        assert page.complaints() == []


def test_what_is_not_the_study_is_not_judged(given: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other steps, a value that is missing or set beside the spec: said, and no claim is made of it."""
    small = ["--seeds", "2", "--no-figures", "--quiet", "--set", "steps=10"]
    assert main(["run", "grpo_trap", *small, "--out", str(tmp_path / "grpo_trap.zarr")]) == 0
    assert main(["report", str(tmp_path / "grpo_trap.zarr"), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "report.html").read_text()
    assert "grpo_trap is not judged: its steps is 10, that of the study 60." in page
    assert "never calls" not in page
    assert "&quot;steps&quot;: 10" in page
    assert "steps = 60" not in page  # the shipped file, which is not what was run
    trap = open_store(given.folder / "grpo_trap.zarr")
    assert lecture.unlike("grpo_trap", trap) == ""
    assert lecture.unlike("tool_cost", trap).startswith("it has no cells with call_cost 0.2")
    ran = json.loads(trap.attrs["spec"])
    for change, said in (
        ({"fixed": {**ran["fixed"], "lr": 5.0}}, "it has no cells with lr 20.0"),
        ({"fixed": {**ran["fixed"], "train_seed": 1}}, "it sets train_seed, which the study leaves out"),
        ({"eval_steps": [0, 60]}, "it has no evaluation at step 5"),
    ):
        trap.attrs["spec"] = json.dumps({**ran, **change})
        assert lecture.unlike("grpo_trap", trap) == said


def test_a_report_of_one_store_needs_no_lecture(
    given: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = given.folder / "grpo_trap.zarr"
    assert main(["report", str(store), "--out", str(tmp_path / "page")]) == 0
    assert "grpo at cost 0.02: never calls" in capsys.readouterr().out
    page = (tmp_path / "page" / "report.html").read_text()
    assert "grpo at cost 0.02: never calls" in page
    assert "Answer bandit" not in page
    assert sorted(drawn(tmp_path / "page")) == sorted(f"grpo_trap.{end}" for end in ENDS)


def test_a_report_that_is_stopped_or_has_no_place_says_so(
    given: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = given.folder / "grpo_trap.zarr"
    (tmp_path / "file").touch()
    assert main(["report", str(store), "--out", str(tmp_path / "file")]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "file exists and is no folder; choose another place (--out)" in said.err

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lecture, "find", stopped)
    assert main(["report", str(store), "--out", str(tmp_path / "page")]) == 130
    told = f"stopped: the page is not written; what is stored in {store} stays"
    assert capsys.readouterr().err == f"rlvr-jax: {told}\n"


def test_a_report_needs_neither_a_figure_nor_a_study_of_that_name(
    given: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = ["--seeds", "2", "--no-figures", "--quiet", "--set", "steps=10", "--set", "hack_reward=[0, 1, 0.5]"]
    assert main(["run", "baselines", *odd, "--out", str(tmp_path / "hacking.zarr")]) == 0
    assert main(["report", str(tmp_path / "hacking.zarr"), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "report.html").read_text()
    assert "hacking is not judged: its steps is 10, that of the study 1500." in page
    assert "<figure" not in page
    assert '"verifier","values":["faithful verifier","flawed verifier","hack reward 0.5"]' in page


def test_more_seeds_than_were_asked_for_are_said(
    given: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "lecture"
    shutil.copytree(given.folder, folder)
    assert main(["lecture", "--seeds", "1", "--out", str(folder), "--quiet"]) == 0
    told = f"{folder} has 2 seeds, more than the 1 asked for, and all of them are used"
    assert capsys.readouterr().err == f"rlvr-jax: {told}\n"


def test_a_page_that_is_too_large_is_refused(given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_BYTES", 1000)
    findings = lecture.find(lecture.stores_in(given.folder / "grpo_trap.zarr"))
    with pytest.raises(InvalidInput, match=r"page\.html would have 0\.\d MB; at most 0 are written"):
        report.write(findings, {}, tmp_path / "page.html")


def test_figures_that_would_make_the_page_too_large_are_links(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = lecture.find(lecture.stores_in(given.folder / "grpo_trap.zarr"))
    folder = given.folder / "figures"
    files = {name: [folder / f"{name}.{end}" for end in ENDS] for name in ("grpo_trap", "baselines", "phase_diagram")}
    whole = report.write(findings, files, tmp_path / "page.html").stat().st_size
    monkeypatch.setattr(report, "MOST_BYTES", whole - 1)
    page = report.write(findings, files, tmp_path / "page.html").read_text(encoding="utf-8")
    largest = max(files, key=lambda name: (folder / f"{name}.svg").stat().st_size)
    linked = re.search(r'<a href="([^"]+)">', page)
    assert linked is not None
    assert (tmp_path / linked[1]).resolve() == (folder / f"{largest}.pdf").resolve()
    assert page.count("<img") == 2


def synthetic(name: str) -> Any:
    return RESULTS[name]() if name in RESULTS else results(AXES[name])


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_figure_has_its_words_in_chinese(name: str) -> None:
    dataset = synthetic(name)
    say = words.Speaker(words.names_in(dataset))
    figure = script(name).draw(dataset)
    with plots.style():
        plots._translate(figure, say)
    axes = [text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) if text]
    assert say.missing == set()
    assert not [text for text in axes if re.search(r"\b(the|of|accuracy|step|prompts|verifier)\b", text)]


def test_every_claim_table_and_heading_has_its_words_in_chinese() -> None:
    say = words.Speaker(["none", "learned", "rloo", "group", "grpo"])
    verdicts = [
        judging.Verdict(claim, 0.5, 0.4, 0.6, 64, "mul1_1", holds)
        for claim in claims.CLAIMS
        for holds in (True, False, None)
    ]
    claims_table = lecture_tables.claims_table(verdicts).said(say)
    for _, title, rows in lecture_tables.DEMONSTRATIONS:
        for text in (title, *(label for label, _ in rows), *lecture_tables.CONTEXTS.values()):
            say(text)
    for _, title, columns, _ in lecture_tables.BANDITS:
        for text in (title, *columns):
            say(text)
    for text in (
        *report.HEADINGS,
        *report.METRICS.values(),
        *report.AXES.values(),
        *report.FACTS.values(),
        "yes",
        "no",
    ):
        say(text)
    for text in (*(member.format(0.5) for member in report.MEMBERS.values()), "rloo, cost 0.02", "repaired after 300"):
        say(text)
    assert say.missing == set()
    page = (Path(report.__file__).parent / "report.html").read_text()
    assert set(re.findall(r'say\("(.+?)"\)', page)) <= set(report.HEADINGS)
    assert claims_table.rows[0][0] == "未训练：准确率"
    assert claims_table.rows[1][4] == "不成立"


def test_a_formula_and_chinese_never_share_a_text() -> None:
    """A text with a formula is set in the font of formulas, which has no Chinese characters."""
    assert [text for text in words.CHINESE.values() if "$" in text and words.HAN.search(text)] == []
    assert all(text.count("#") == english.count("#") for english, text in words.CHINESE.items())


def test_what_has_no_chinese_stays_and_is_known() -> None:
    say = words.Speaker(["dapo"])
    assert say("dapo, cost 0.02") == "dapo，代价 0.02"
    assert say("$G$ = 16") == "$G$ = 16"
    assert say("an unknown thing") == "an unknown thing"
    assert say.missing == {"an unknown thing"}


def test_without_a_font_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plots, "CHINESE_FONTS", {"Nowhere Sans": "nowhere"})
    assert main(["lecture", "--language", "zh", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "rlvr-jax: language is 'zh', and no font with Chinese characters is installed; install the package "
        "fonts-wqy-zenhei (Debian, Ubuntu: apt install fonts-wqy-zenhei) or one of Nowhere Sans\n"
    )
    assert not (tmp_path / "out").exists()


def test_the_font_is_found_among_those_of_the_system_and_embedded(tmp_path: Path) -> None:
    try:
        font = plots.chinese_font()
    except InvalidInput as error:
        pytest.skip(f"no Chinese font: {error}")
    assert font in {entry.name for entry in fontManager.ttflist}
    module, dataset = script("tool_cost"), synthetic("tool_cost")
    say = words.Speaker()
    pdf, *_ = plots.save(module.draw(dataset), tmp_path / "tool_cost", module.facts(dataset), say)
    held = pdf.read_bytes()
    assert font.replace(" ", "").encode() in held
    assert b"/Type3" not in held
    assert say.missing == set()


@pytest.mark.parametrize("name", ["baselines", "tool_cost"])
def test_a_figure_looks_as_it_did(name: str, tmp_path: Path) -> None:
    """Compared with a picture in ``tests/images``; a difference of 2 in the root mean square is that of a thin line."""
    module = script(name)
    figure = module.draw(synthetic(name))
    plots.save(figure, tmp_path / "saved", module.facts(synthetic(name)))  # which lays it out
    with plots.style():
        figure.savefig(tmp_path / f"{name}.png", dpi=80)
    expected = Path(__file__).parent / "images" / f"{name}.png"
    (tmp_path / "expected.png").write_bytes(expected.read_bytes())
    assert compare_images(str(tmp_path / "expected.png"), str(tmp_path / f"{name}.png"), tol=2.0) is None


def test_the_latex_snippet_has_what_n_interval_and_hash() -> None:
    facts = captions.caption(synthetic("tool_cost"), "Calls & costs: 5 % of x_1, a × b.", {})
    said = captions.latex(facts, "tool_cost")
    assert r"Calls \& costs: 5 \% of x\_1, a $\times$ b. Means over 4 seeds; " in said
    results = captions.content_hash(synthetic("tool_cost"))[:12]
    assert rf"95 \% t-intervals. SHA-256: results {results}, spec 111111111111." in said
    assert said.count("{") == said.count("}")
    assert r"\includegraphics{tool_cost.pdf}" in said
    assert said.startswith("\\begin{figure}\n")
    across = captions.latex(facts, "tool_cost", across=True)
    assert across.startswith("\\begin{figure*}\n")
    assert across.endswith("\n\\end{figure*}\n")


@pytest.mark.slow
def test_the_whole_study_at_its_64_seeds(tmp_path: Path) -> None:
    """Every claim is judged on all seeds, and all of them but one hold; every figure is drawn."""
    assert main(["lecture", "--out", str(tmp_path), "--quiet"]) == 0
    rows = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert [row["name"] for row in rows] == [claim.name for claim in claims.CLAIMS]
    assert {row["seeds"] for row in rows} == {64}
    assert [(row["name"], row["holds"]) for row in rows if row["holds"] is not True] == [("free-add_0", False)]
    assert {row["of"] for row in rows if row["name"] == "free-often"} == {"mul1_1"}
    assert {Path(name).stem for name in drawn(tmp_path)} == {figure for study in STUDIES for figure in study.figures}
    np.testing.assert_array_less((tmp_path / "report.html").stat().st_size, 5_000_000)
