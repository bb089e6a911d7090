"""Figures: what is drawn equals the means and intervals, files are reproducible, refusals are sentences."""

import importlib.util
import itertools
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats
from synthetic_results import LEVELS, METHODS, results

from rlvr_jax import captions, figure_script, plots
from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.types import InvalidInput

#: The files of a figure.
ENDS = ("pdf", "svg", "png", "json", "tex")

FIGURES = Path(__file__).parents[1] / "figures"
LEGEND = ["no baseline", "learned baseline", "RLOO", "group mean", "GRPO"]
AXES = {
    "baselines": {"method": METHODS, "reward_offset": [0.0, 1.0], "seed": range(4)},
    "levels": {"method": METHODS, "reward_offset": [0.0, 1.0], "seed": range(4)},
    "learning_rate": {"method": METHODS, "lr": np.geomspace(0.02, 20.0, 12), "seed": range(4)},
    "zero_signal": {"method": METHODS, "group_size": [2, 4, 8, 16, 32], "seed": range(4)},
    "seed_variance": {"method": METHODS, "seed": range(figure_script.MANY)},
    "variance_sources": {"method": METHODS, "task_seed": range(4), "prompt_seed": range(3), "answer_seed": range(3)},
}


def script(name: str) -> Any:
    """Import ``figures/name.py``."""
    spec = importlib.util.spec_from_file_location(f"figure_{name}", FIGURES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for effort in {"TRIALS", "RESAMPLES"} & set(vars(module)):
        setattr(module, effort, 100)  # a hundredth of the time, the same drawing
    return module


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand for ``rlvr_jax.store``: whatever the path, ``open_store`` returns ``store.results``."""
    held = SimpleNamespace(results=xr.Dataset())
    module = ModuleType("rlvr_jax.store")
    module.open_store = lambda path: held.results  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rlvr_jax.store", module)
    return held


def legends(figure: Figure) -> list[list[str]]:
    """Return the entries of every legend, those of subfigures too."""
    parts = [figure, *figure.subfigs]
    return [[text.get_text() for text in legend.get_texts()] for part in parts for legend in part.legends]


def axes_of_one_curve(values: xr.DataArray) -> Any:
    with plots.style():
        axes = plots.new_figure("neurips", 2.0).subplots()
        plots.curve_with_band(axes, "step", values)
    return axes


def test_a_curve_is_the_mean_and_its_band_the_printed_mean() -> None:
    values = results({"seed": range(5)})["accuracy"]
    axes = axes_of_one_curve(values)
    runs = values.transpose("seed", "step").values.astype(float)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), values["step"])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), runs.mean(0), rtol=1e-12)
    (path,) = axes.collections[0].get_paths()
    half = stats.t.ppf(0.975, 4) * stats.sem(runs)
    for step, mean, width in zip(values["step"].values, runs.mean(0), half, strict=True):
        edge = path.vertices[path.vertices[:, 0] == step, 1]
        np.testing.assert_allclose([edge.min(), edge.max()], [mean - width, mean + width], rtol=1e-9)


@pytest.mark.parametrize("values", [results({"seed": [3]})["accuracy"], results({})["accuracy"]])
def test_one_seed_has_no_band_and_the_caption_says_so(values: xr.DataArray) -> None:
    axes = axes_of_one_curve(values)
    assert len(axes.lines) == 1
    assert len(axes.collections) == 0
    assert captions.caption(values.to_dataset(), "", {})["interval"] == "One seed, so no interval."


def test_values_that_are_missing_leave_a_gap() -> None:
    values = results({"seed": range(3)})["zero_frac"].copy()
    values[:, 2] = np.nan
    drawn = axes_of_one_curve(values).lines[0].get_ydata()
    np.testing.assert_array_equal(np.isnan(drawn), [True, False, True, False, False])


def test_sensitivity_sorts_and_labels_a_log_axis_in_plain_numbers() -> None:
    values = results({"lr": [10.0, 0.1, 1.0], "seed": range(3)})["accuracy"].isel(step=-1)
    with plots.style():
        figure = plots.new_figure("neurips", 2.0)
        axes = figure.subplots()
        curve = plots.sensitivity(axes, "lr", values)
        figure.draw_without_rendering()
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1", "1", "10"]
    assert axes.get_xscale() == "log"
    assert list(curve.get_xdata()) == [0.1, 1.0, 10.0]


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_one_value_of_a_parameter_stands_in_the_middle(value: float) -> None:
    values = results({"kl_coef": [value], "seed": range(3)})["accuracy"].isel(step=-1)
    with plots.style():
        figure = plots.new_figure("neurips", 2.0)
        panels = figure.subplots(1, 2, sharex=True)
        for axes in panels:
            plots.sensitivity(axes, "kl_coef", values)
        figure.draw_without_rendering()
        middle, _ = panels[1].transAxes.inverted().transform(panels[1].transData.transform((value, 0.5)))
    assert middle == pytest.approx(0.5)
    assert [label.get_text() for label in panels[0].get_xticklabels()] == [f"{value:g}"]


def test_sensitivity_refuses_what_a_log_axis_cannot_show() -> None:
    values = results({"kl_coef": [-1.0, 0.1]})["accuracy"].isel(step=-1)
    with pytest.raises(InvalidInput, match="kl_coef: -1 cannot stand on a log axis, which takes values from 0 on"):
        plots.sensitivity(plots.new_figure("neurips", 2.0).subplots(), "kl_coef", values)


def test_level_bars_are_means_with_their_intervals() -> None:
    values = results({"method": METHODS, "seed": range(4)})["accuracy_by_level"].isel(step=-1)
    axes = plots.new_figure("neurips", 2.0).subplots()
    plots.level_bars(axes, values, plots.method_looks(METHODS))
    interval = printed_mean(values)
    bars = [container for container in axes.containers if isinstance(container, BarContainer)]
    heights = [[bar.get_height() for bar in container] for container in bars]
    np.testing.assert_allclose(heights, interval["estimate"].transpose("method", "level"))
    segments = np.array([collection.get_segments() for collection in axes.collections])
    halves = (segments[:, :, 1, 1] - segments[:, :, 0, 1]) / 2
    np.testing.assert_allclose(halves, interval["half_width"].transpose("method", "level"))
    assert axes.get_xticklabels()[0].get_text() == "very hard\n1%"


def test_level_bars_leave_out_missing_cells_and_the_interval_of_one_seed() -> None:
    values = results({"method": ["rloo", "grpo"]})["accuracy_by_level"].isel(step=-1).copy()
    values[0, 1] = np.nan
    axes = plots.new_figure("neurips", 2.0).subplots()
    plots.level_bars(axes, values, plots.method_looks(["rloo", "grpo"]))
    assert axes.containers[0][1].get_height() == 0.0
    assert len(axes.collections) == 0


def test_looks_are_distinct_in_grey_and_do_not_depend_on_order() -> None:
    known = plots.method_looks(METHODS)
    assert len({look.marker for look in known.values()}) == len({look.hatch for look in known.values()}) == 5
    names = [f"estimator{i:02d}" for i in range(35)]
    looks = plots.method_looks([*names, *METHODS])
    assert {name: looks[name] for name in METHODS} == known
    assert len({(look.color, look.marker) for look in looks.values()}) == 40
    assert plots.method_looks([*METHODS, *reversed(names)]) == looks


def test_settings_of_matplotlib_are_neither_used_nor_changed() -> None:
    dataset = results(AXES["baselines"])
    draw = script("baselines").draw
    with matplotlib.rc_context({"font.size": 30.0, "lines.linewidth": 9.0}):
        before = dict(matplotlib.rcParams)
        figure = draw(dataset)
        assert dict(matplotlib.rcParams) == before
    assert figure.axes[0].xaxis.label.get_size() == 8.0


def test_files_are_the_same_bytes_each_time_with_truetype_fonts(tmp_path: Path) -> None:
    module, dataset = script("baselines"), results(AXES["baselines"])
    first, second = (
        plots.save(module.draw(dataset), tmp_path / folder / "baselines", module.facts(dataset)) for folder in "ab"
    )
    assert [path.name for path in first] == [f"baselines.{end}" for end in ENDS]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    pdf = first[0].read_bytes()
    assert b"STIXGeneral" in pdf
    assert b"/FontFile2" in pdf  # TrueType, embedded
    assert b"/Type3" not in pdf
    assert b"/MediaBox [ 0 0 396 " in pdf  # 5.5 in


def test_the_caption_holds_the_numbers_and_names_the_results(tmp_path: Path) -> None:
    module, dataset = script("baselines"), results(AXES["baselines"])
    dataset["diverged_step"][4, 1, 0] = 12
    *_, path, _ = plots.save(module.draw(dataset), tmp_path / "baselines", module.facts(dataset))
    facts = json.loads(path.read_text())
    assert facts["n_seeds"] == 4
    assert facts["interval"] == "Means over 4 seeds; their bands and error bars are 95 % t-intervals."
    assert facts["spec_sha256"] == dataset.attrs["spec_sha256"]
    assert facts["diverged"] == "1 of 40 runs diverged and were frozen; they count with the values they had then."
    row = next(r for r in facts["numbers"]["final_accuracy"] if (r["method"], r["reward_offset"]) == ("grpo", 1.0))
    runs = dataset["accuracy"].sel({"method": "grpo", "reward_offset": 1.0}).isel(step=-1).values.astype(float)
    assert row["mean"] == pytest.approx(runs.mean(), abs=1e-6)
    assert row["sd"] == pytest.approx(runs.std(ddof=1), rel=1e-5)
    assert row["n"] == 4


@pytest.mark.parametrize("venue", ["neurips", "icml-column"])
@pytest.mark.parametrize("name", AXES)
def test_every_figure_fits_its_width_in_legible_type(name: str, venue: str) -> None:
    figure = script(name).draw(results(AXES[name]), venue=venue)
    with plots.style():
        figure.draw_without_rendering()
        extent = figure.get_tightbbox()
    assert figure.get_figwidth() == plots.WIDTHS[venue]
    assert extent.x0 >= -0.01
    assert extent.x1 <= figure.get_figwidth() + 0.01
    assert extent.y1 <= figure.get_figheight() + 0.01
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert min(text.get_size() for text in texts) >= 6.0


def test_baselines_has_a_panel_for_each_reward_offset() -> None:
    dataset = results(AXES["baselines"])
    figure = script("baselines").draw(dataset)
    assert [axes.get_title() for axes in figure.axes] == ["reward offset 0", "reward offset 1"]
    assert {axes.get_xlabel() for axes in figure.axes} == {"training step"}
    assert figure.axes[0].get_ylabel() == "accuracy (fraction correct)"
    assert legends(figure) == [LEGEND]
    for axes, offset in zip(figure.axes, [0.0, 1.0], strict=True):
        assert len(axes.lines) == len(axes.collections) == len(METHODS)
        mean = dataset["accuracy"].sel(reward_offset=offset).astype(float).mean("seed")
        np.testing.assert_allclose([line.get_ydata() for line in axes.lines], mean)


def test_levels_marks_the_accuracy_before_training() -> None:
    dataset = results({"method": METHODS, "seed": range(3)})
    figure = script("levels").draw(dataset)
    assert legends(figure) == [[*LEGEND, "before training"]]
    assert figure.axes[0].get_ylabel() == "final accuracy\n(fraction correct)"
    later = script("levels").draw(dataset.isel(step=slice(1, None)))
    assert legends(later) == [LEGEND]


def test_learning_rate_chooses_on_one_half_of_the_seeds_and_reports_the_other() -> None:
    dataset = results({"method": ["rloo"], "lr": [0.1, 1.0], "seed": range(4)})
    final = dataset["accuracy"].isel(step=-1).copy(data=np.float32([[[0.9, 0.9, 0.1, 0.3], [0.5] * 4]]))
    (row,) = script("learning_rate").best(final)
    assert (row["method"], row["lr"], row["n"]) == ("rloo", 0.1, 2)
    assert row["mean"] == pytest.approx(0.2, abs=1e-6)
    assert script("learning_rate").best(final.isel(seed=[0])) == []


def test_learning_rate_skips_cells_that_were_not_run() -> None:
    dataset = results({"method": ["rloo", "grpo"], "lr": [0.1, 1.0, 10.0], "seed": range(4)})
    dataset["accuracy"][0] = np.nan
    dataset["accuracy"][1, 2] = np.nan
    module = script("learning_rate")
    assert [row["method"] for row in module.facts(dataset)["numbers"]["best_on_other_seeds"]] == ["grpo"]
    figure = module.draw(dataset)
    np.testing.assert_array_equal(np.isnan(figure.axes[0].lines[1].get_ydata()), [False, False, True])
    assert [axes.get_xlabel() for axes in figure.axes] == ["learning rate (log scale)"] * 2


def test_learning_rate_draws_the_error_on_a_log_scale() -> None:
    dataset = results(AXES["learning_rate"])
    module = script("learning_rate")
    right, wrong = module.draw(dataset).axes
    assert [(axes.get_ylabel(), axes.get_yscale()) for axes in (right, wrong)] == [
        ("final accuracy\n(fraction correct)", "linear"),
        ("final error\n(fraction wrong, log scale)", "log"),
    ]
    assert len(right.lines) == len(wrong.lines) == 2 * len(METHODS)  # a curve and a ring each
    for one, other in zip(right.lines, wrong.lines, strict=True):
        np.testing.assert_allclose(other.get_ydata(), 1 - np.asarray(one.get_ydata()), rtol=1e-6)
    perfect = dataset.assign(accuracy=dataset["accuracy"] * 0 + 1)
    assert module.draw(perfect).axes[1].get_yscale() == "linear"


def test_rows_of_panels_are_in_line_whatever_their_labels_take(tmp_path: Path) -> None:
    """Of rows with as many columns: their panels have common edges and their labels a common place."""
    with plots.style():
        figure = plots.new_figure("neurips", 4.5)
        for part, top, columns in zip(plots.stacked(figure, [1.5] * 3), (1.0, 1000.0, 1.0), (3, 3, 2), strict=True):
            panels = plots.panels(part, columns, columns)
            panels[0].set_ylim(0, top)
            panels[0].set_ylabel("share")
    plots.save(figure, tmp_path / "rows", captions.caption(results({}), "Rows.", {}))
    one, two, three = ([axes.get_position().intervalx for axes in part.axes] for part in figure.subfigs)
    np.testing.assert_allclose(one, two)
    assert three[0][0] != one[0][0]
    for part in figure.subfigs[:2]:
        with plots.style():
            figure.draw_without_rendering()
        label = part.axes[0].yaxis.label.get_window_extent()
        ticks = [text.get_window_extent().x0 for text in part.axes[0].get_yticklabels() if text.get_text()]
        assert 0 <= label.x0 < label.x1 <= min(ticks)
    labels = [part.axes[0].yaxis.label.get_window_extent().x0 for part in figure.subfigs[:2]]
    assert labels[0] == pytest.approx(labels[1], abs=0.01)


def test_zero_signal_marks_the_exact_share_before_training() -> None:
    dataset = results(AXES["zero_signal"])
    module = script("zero_signal")
    level = np.random.default_rng(0).integers(4, size=200)
    p = np.array([0.01, 0.05, 0.2, 0.6])[level]
    start = module.exact_start(dataset)
    assert list(start) == [2, 4, 8, 16, 32]
    assert start[8] == pytest.approx((p**8 + (1 - p) ** 8).mean())
    figure = module.draw(dataset)
    assert len(figure.axes) == len(METHODS) + len(LEVELS)
    crosses = [line for line in figure.axes[1].lines if line.get_marker() == "x"]
    assert [line.get_ydata()[0] for line in crosses] == list(start.values())
    sizes = [f"$G$ = {size}" for size in (2, 4, 8, 16, 32)]
    assert legends(figure) == [[*sizes, "exact, before training"], LEGEND]


@pytest.mark.parametrize(
    "spec",
    [
        {"world": "tool_use", "fixed": {}},
        {"world": "bandit", "fixed": {"hack_reward": 1.0}},
        {"world": "bandit", "fixed": {"task_seed": 1}},  # another task than that of the results
    ],
)
def test_zero_signal_marks_nothing_that_it_cannot_know(spec: dict[str, Any]) -> None:
    dataset = results(AXES["zero_signal"]).assign_attrs(spec=json.dumps(spec))
    assert script("zero_signal").exact_start(dataset) == {}
    assert legends(script("zero_signal").draw(dataset))[0][-1] == "$G$ = 32"


def test_a_parameter_along_a_tied_dimension_becomes_an_axis() -> None:
    tied = results({"method": METHODS, "run": range(3), "seed": range(3)})
    tied = tied.assign_coords(group_size=("run", [2, 4, 8]), batch_size=("run", [128, 64, 32]))
    prepared = figure_script.prepare(tied, script("zero_signal").NEEDS)
    assert prepared.sizes["group_size"] == 3
    script("zero_signal").draw(tied)


@pytest.mark.parametrize("name", AXES)
def test_a_script_writes_its_files_and_prints_its_caption(
    name: str, store: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.results = results({**AXES[name], "kl_coef": [0.0, 0.1]})
    assert script(name).main(["store", "--out", str(tmp_path), "--select", "kl_coef=0.1"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}.{end}" for end in ENDS)
    replicates = {"seed_variance": "200 seeds;", "variance_sources": "4 task_seeds, 3 prompt_seeds, 3 answer_seeds;"}
    assert replicates.get(name, "Means over 4 seeds") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        (lambda d: d.drop_vars("accuracy"), [], "these results hold no accuracy, only hack_rate, "),
        (
            lambda d: d.isel(method=0, drop=True),
            [],
            "the figure needs method as an axis, and these results have ",
        ),
        (lambda d: d, [], "so choose one of the 2 values of lr (0.1, 0.5) with --select lr=VALUE"),
        (lambda d: d, ["--select", "lr=0.2"], "--select lr=0.2: lr has the values 0.1, 0.5"),
        (lambda d: d, ["--select", "lr=fast"], "--select lr=fast: lr has the values 0.1, 0.5"),
        (
            lambda d: d,
            ["--select", "kl=0"],
            "--select kl=0: write NAME=VALUE, with a name of method, lr, seed, ",
        ),
        (lambda d: d, ["--venue", "nature"], "argument --venue: invalid choice: 'nature'"),
    ],
)
def test_a_script_refuses_in_one_sentence(
    change: Any,
    arguments: list[str],
    sentence: str,
    store: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store.results = change(results({"method": METHODS, "lr": [0.1, 0.5], "seed": range(2)}))
    assert script("baselines").main(["store", "--out", str(tmp_path), *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("baselines: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("taken", "--out {out} exists and is no folder; choose another place"),
        ("taken/deeper", "{out}: not a directory"),
    ],
)
def test_a_place_that_is_no_folder_is_named(
    out: str, sentence: str, store: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").touch()
    store.results = results({"method": METHODS, "seed": range(2)})
    assert script("baselines").main(["store", "--out", str(tmp_path / out)]) == 2
    assert capsys.readouterr().err == f"baselines: {sentence.format(out=tmp_path / out)}\n"


@pytest.mark.parametrize("path", sorted(FIGURES.glob("*.py")), ids=lambda path: path.stem)
def test_every_script_refuses_results_that_lack_what_it_needs(
    path: Path, store: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script(path.stem)
    store.results = xr.Dataset({"other": ("seed", [1.0])})
    assert module.main(["store", "--out", str(tmp_path)]) == 2
    assert module.NEEDS["variables"][0] in capsys.readouterr().err


def test_what_was_selected_is_said_and_one_place_has_an_error_bar(
    store: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = results({"method": METHODS, "lr": [0.1, 0.5], "seed": range(3)})
    store.results = dataset.assign_coords(lr=[False, True])
    assert script("baselines").main(["store", "--out", str(tmp_path), "--select", "lr=false"]) == 0
    assert "during training. Of these results only lr=false." in capsys.readouterr().out
    axes = Figure().add_subplot()
    plots.curve_with_band(axes, "step", dataset["accuracy"].isel(method=0, lr=0, step=[-1]))
    assert len(axes.containers) == 1  # a band of one place has no width
    assert "*" in plots.save(Figure(figsize=(6.75, 1)), tmp_path / "wide", {"what": "w"})[-1].read_text()


def test_select_keeps_the_union_of_values_of_one_name() -> None:
    dataset = results({"method": METHODS, "lr": np.geomspace(0.02, 20.0, 24), "seed": range(1000, 1003)})
    kept = figure_script.select(dataset, ["method=rloo", "method=grpo", "lr=0.02701", "seed=1001"])
    assert kept["method"].values.tolist() == ["rloo", "grpo"]
    assert kept["lr"].values.tolist() == [dataset["lr"].values[1]]
    assert kept["seed"].values.tolist() == [1001]


def test_select_follows_parameters_along_a_tied_dimension() -> None:
    dataset = results({"run": range(3)}).assign_coords(kl_coef=("run", [0.0, 0.1, 0.1]), lr_h=("run", [1.0, 1.0, 2.0]))
    assert figure_script.select(dataset, ["kl_coef=0.1", "lr_h=1"])["run"].values.tolist() == [1]
    with pytest.raises(InvalidInput, match="no cell has all of these values"):
        figure_script.select(dataset, ["kl_coef=0", "lr_h=2"])


def test_seed_variance_draws_what_its_caption_says() -> None:
    dataset = results(AXES["seed_variance"])
    mean = dataset["accuracy"].mean("seed")
    dataset["accuracy"] = mean + 0.2 * (dataset["accuracy"] - mean)
    module = script("seed_variance")
    facts, figure = module.facts(dataset), module.draw(dataset)
    final = dataset["accuracy"].isel(step=-1).astype(float)
    numbers = facts["numbers"]
    rows = numbers["seeds_for_a_difference_of_0.001"]
    assert len(rows) == 10
    sd = {method: final.sel({"method": method}).values.std(ddof=1) for method in ("none", "grpo")}
    row = next(row for row in rows if (row["a"], row["b"]) == ("none", "grpo"))
    # the normal approximation, which is one or two seeds short
    expected = (1.96 + 0.84) ** 2 * (sd["none"] ** 2 + sd["grpo"] ** 2) / 0.001**2
    assert expected < row["independent"] < expected + 2.5
    held = numbers["coverage_of_95_percent_intervals"]
    assert held["t"]["3"]["grpo"] > held["bootstrap"]["3"]["grpo"]
    dots, coverage, width = (part.axes[0] for part in figure.subfigs[1:])
    assert [len(line.get_xdata()) for line in dots.lines[-2:]] == [10, 10]
    assert sorted(dots.lines[-1].get_xdata()) == sorted(row["independent"] for row in rows)
    drawn = coverage.containers[0][0].get_ydata()
    assert drawn[0] == pytest.approx(np.mean(list(held["t"]["3"].values())), abs=1e-4)
    assert np.all(np.diff(width.lines[0].get_ydata()) < 0)
    curves = [axes.lines for axes in figure.subfigs[0].axes]
    assert [len(lines) for lines in curves] == [4, 1]  # grpo stands alone, far from the others
    (curve,) = curves[1]
    at, share = curve.get_data()
    half = at[np.searchsorted(share, 0.5)]
    assert half == pytest.approx(final.sel({"method": "grpo"}).median().item(), abs=1e-3)
    assert legends(figure)[0] == LEGEND


@pytest.mark.parametrize(("venue", "pairs"), [("neurips", 24), ("icml-column", 10)])
def test_seed_variance_has_room_for_the_pairs_of_many_methods(tmp_path: Path, venue: str, pairs: int) -> None:
    dataset = results({"method": [*METHODS, "one", "two", "three"], "seed": range(figure_script.MANY)})
    module = script("seed_variance")
    facts = module.facts(dataset)
    needed = facts["numbers"]["seeds_for_a_difference_of_0.001"]
    assert len(needed) == 28
    assert "at level 0.05, for up to 24 pairs, those that need most." in facts["what"]
    figure = module.draw(dataset, venue=venue)
    plots.save(figure, tmp_path / "many", facts)
    assert figure.get_figheight() <= plots.TALLEST
    with plots.style():
        figure.draw_without_rendering()
        axes = figure.subfigs[1].axes[0]
        boxes = [text.get_window_extent() for text in axes.get_yticklabels()]
    assert list(axes.lines[-1].get_xdata()) == [row["independent"] for row in needed[-pairs:]]
    assert all(above.y0 >= below.y1 for below, above in itertools.pairwise(boxes))
    assert min(box.x0 for box in boxes) >= 0


def test_seed_variance_needs_many_seeds() -> None:
    few = results({"method": METHODS, "seed": range(64)})
    with pytest.raises(InvalidInput, match="needs at least 200 values of seed, and these results have 64"):
        figure_script.prepare(few, script("seed_variance").NEEDS)


def test_results_without_a_finished_cell_are_not_drawn() -> None:
    dataset = results(AXES["baselines"]).assign_attrs(unfinished="all of them are missing")
    needs = script("baselines").NEEDS
    assert "accuracy" in figure_script.prepare(dataset, needs)  # some are there
    dataset["accuracy"] = dataset["accuracy"] * np.nan
    with pytest.raises(InvalidInput, match="none of the cells that the figure draws is finished yet"):
        figure_script.prepare(dataset, needs)


def test_variance_sources_marks_what_is_zero() -> None:
    axes = AXES["variance_sources"]
    dataset = results({**axes, "method": ["rloo", "grpo"]})
    task = xr.DataArray([0.0, 0.1, 0.2, 0.4], dims="task_seed")
    dataset["accuracy"] = 0.0 * dataset["accuracy"] + task
    module = script("variance_sources")
    sources = module.facts(dataset)["numbers"]["sources"]
    assert len(sources) == 14
    assert sources[0]["sd"] == pytest.approx(np.std([0.0, 0.1, 0.2, 0.4], ddof=1), rel=1e-4)
    assert [row["sd"] for row in sources[1:7]] == [0.0] * 6
    (panel,) = module.draw(dataset).axes
    hollow = [line for line in panel.lines if line.get_markerfacecolor() == "white"]
    assert [len(line.get_xdata()) for line in hollow] == [6, 6]
    assert [label.get_text() for label in panel.get_yticklabels()][:4] == [
        "task",
        "prompts",
        "answers",
        "task × prompts",
    ]
