"""The figures of the studies: what is drawn and captioned equals numbers computed by hand, refusals are sentences."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from matplotlib.text import Text
from synthetic_results import METHODS, results, tool_results
from test_plots import ENDS, legends, script

from rlvr_jax import figure_script, plots, spec
from rlvr_jax.types import InvalidInput

COSTS = np.linspace(0.0, 0.4, 11)
REPAIRS = {"never repaired": [[0, 1.0]], "repaired after 200": [[0, 1.0], [201, 0.0]]}


def tied(dataset: xr.Dataset) -> xr.Dataset:
    """The cells (rloo, .02), (grpo, .02) and (grpo, 0) along ``run``, as in the sweep."""
    method = xr.DataArray(["rloo", "grpo", "grpo"], dims="run")
    return dataset.sel({"method": method, "call_cost": xr.DataArray([0.02, 0.02, 0.0], dims="run")})


def hacked() -> xr.Dataset:
    dataset = results({"method": ["rloo", "grpo"], "kl_coef": [0.0, 0.01, 0.1, 0.3, 1.0], "seed": range(4)})
    more = {
        "verifier_reward": dataset["accuracy"] + dataset["hack_rate"],
        "hack_rate_seen": dataset["hack_rate"],
        "hack_rate_unseen": 2.0 * dataset["hack_rate"] * (1.0 + (dataset["method"] == "grpo")),
        "h": dataset["accuracy"] * dataset["step"] / 100.0,
    }
    return dataset.assign(more)


def repaired() -> xr.Dataset:
    dataset = results({"method": ["rloo", "grpo"], "hack_reward": list(REPAIRS), "seed": range(4)})
    values = [{"name": name, "schedule": schedule} for name, schedule in REPAIRS.items()]
    made = {"world": "bandit", "axes": [{"dim": "hack_reward", "values": {"hack_reward": values}}]}
    return dataset.assign_attrs(spec=json.dumps(made))


def passing() -> xr.Dataset:
    """The toy of two prompts: .30 and .02 before training, .95 and .001 after it."""
    before, after = np.array([0.30, 0.02]), np.array([0.95, 0.001])
    chance = np.stack([before, np.sqrt(before), after])  # at the step in between all is better
    values = np.broadcast_to(chance, (2, 3, *chance.shape))
    coords = {"method": ["rloo", "grpo"], "seed": range(3), "step": [0, 100, 600]}
    dataset = xr.Dataset({"correct_prob": (("method", "seed", "step", "prompt"), values)}, coords)
    return dataset.assign_attrs(spec_sha256="2" * 64)


def either() -> xr.Dataset:
    """The same with a flawed verifier, and with a faithful one that changes nothing."""
    same = passing().isel(step=[0, 0, 0]).assign_coords(step=[0, 100, 600])
    return xr.concat([passing(), same], "hack_reward").assign_coords(hack_reward=[1.0, 0.0])


RESULTS = {
    "tool_cost": lambda: tool_results({"call_cost": [0.0, 0.02, 0.2], "seed": range(4)}),
    "grpo_trap": lambda: tied(tool_results({"method": ["rloo", "grpo"], "call_cost": [0.0, 0.02], "seed": range(4)})),
    "cold_start": lambda: tool_results({"cold_start": [False, True], "seed": range(4)}),
    "phase_diagram": lambda: tool_results(
        {"method": METHODS, "cold_start": [False, True], "call_cost": COSTS, "seed": range(4)}
    ),
    "hacking": hacked,
    "repaired_verifier": repaired,
    "pass_at_k": either,
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Whatever the path, ``open_store`` returns ``opened.results``."""
    held = SimpleNamespace(results=xr.Dataset())
    module = ModuleType("rlvr_jax.store")
    module.open_store = lambda path: held.results  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rlvr_jax.store", module)
    return held


@pytest.mark.parametrize("name", RESULTS)
def test_a_script_writes_the_same_bytes_twice_and_prints_its_caption(
    name: str, opened: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        opened.results = RESULTS[name]()
        assert script(name).main(["store", "--out", str(folder)]) == 0
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert sorted(written[0]) == sorted(f"{name}.{end}" for end in ENDS)
    assert written[0] == written[1]
    facts = json.loads(written[0][f"{name}.json"])
    assert facts["spec_sha256"] == opened.results.attrs["spec_sha256"]
    assert facts["what"] in capsys.readouterr().out
    assert b"/Type3" not in written[0][f"{name}.pdf"]


@pytest.mark.parametrize("venue", ["neurips", "icml-column"])
@pytest.mark.parametrize("name", RESULTS)
def test_a_figure_fits_its_width_in_legible_type_and_cuts_nothing_off(name: str, venue: str) -> None:
    figure = script(name).draw(RESULTS[name](), venue=venue)
    with plots.style():
        figure.draw_without_rendering()
        extent = figure.get_tightbbox()
    assert figure.get_figwidth() == plots.WIDTHS[venue]
    assert extent.x0 >= -0.01
    assert extent.x1 <= figure.get_figwidth() + 0.01
    assert extent.y1 <= figure.get_figheight() + 0.01
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert min(text.get_size() for text in texts) >= 6.0
    for axes in figure.axes:
        least, most = sorted(axes.get_ylim())
        for line in axes.lines:
            if line.get_transform() == axes.transData:
                drawn = np.asarray(line.get_ydata(), float)
                assert np.nanmin(drawn, initial=least) >= least - 1e-9
                assert np.nanmax(drawn, initial=most) <= most + 1e-9


@pytest.mark.parametrize("name", RESULTS)
def test_a_figure_of_one_seed_has_no_interval(name: str) -> None:
    facts = script(name).facts(RESULTS[name]().isel(seed=[0]))
    assert facts["interval"] == "One seed, so no interval."
    assert "bootstrap" not in facts["what"]
    script(name).draw(RESULTS[name]().isel(seed=[0]))


@pytest.mark.parametrize("name", RESULTS)
def test_seeds_that_were_not_run_do_not_count(name: str) -> None:
    dataset, module = RESULTS[name](), script(name)
    floats = {v: dataset[v].where(dataset["seed"] > 0) for v in dataset.data_vars if dataset[v].dtype.kind == "f"}
    numbers = module.facts(dataset.assign(floats))["numbers"]
    module.draw(dataset.assign(floats))
    rest = module.facts(dataset.isel(seed=slice(1, None)))["numbers"]
    assert json.dumps(numbers) == json.dumps(rest)


def test_tool_cost_draws_curves_and_contexts() -> None:
    dataset = RESULTS["tool_cost"]()
    module = script("tool_cost")
    figure = module.draw(dataset)
    accuracy, calls, contexts = figure.axes
    assert accuracy.get_ylabel() == "accuracy\n(fraction correct)"
    assert calls.get_ylabel() == "calls per problem"
    assert legends(figure) == [[f"cost of a call = {cost:g}" for cost in (0.0, 0.02, 0.2)]]
    drawn = [line.get_ydata() for line in calls.lines]
    np.testing.assert_allclose(drawn, dataset["calls"].astype(float).mean("seed").transpose("call_cost", "step"))
    # one line for each cost and operation, over its three difficulties
    final = dataset["call_prob"].isel(step=-1).astype(float).mean("seed").transpose("call_cost", "context").values
    lines = [line.get_ydata() for line in contexts.lines if len(line.get_xdata()) == 3]
    np.testing.assert_allclose(np.concatenate(lines), final.ravel())
    assert [label.get_text() for label in contexts.get_xticklabels()] == ["0", "1", "2"] * 4
    operations = [label.get_text() for label in contexts.get_xticklabels(minor=True)]
    assert operations == ["add", "subtract", "× one digit", "× two digits"]
    rows = module.facts(dataset)["numbers"]["final_call_prob"]
    row = next(row for row in rows if (row["call_cost"], row["context"]) == (0.2, "mul2_1"))
    assert row["mean"] == pytest.approx(final[2, 10], abs=1e-6)


def test_tool_cost_says_that_forty_costs_are_too_many() -> None:
    dataset = tool_results({"call_cost": np.linspace(0.0, 0.4, 40), "seed": range(2)})
    sentence = "the figure tells up to 6 curves apart, and these results have 40 along call_cost; choose with --select"
    with pytest.raises(InvalidInput, match=sentence):
        script("tool_cost").draw(dataset)


def test_grpo_trap_takes_tied_axes_and_grids() -> None:
    module = script("grpo_trap")
    grid = tool_results({"method": ["rloo", "grpo"], "call_cost": [0.0, 0.02], "seed": range(4)})
    figure = module.draw(tied(grid))
    assert legends(figure) == [
        ["RLOO, cost 0.02", "GRPO, cost 0.02", "GRPO, cost 0"],
        ["groups of mixed outcome", "groups all right or all wrong"],
    ]
    assert [axes.get_title() for axes in figure.axes[3:]] == legends(figure)[0]
    rows = module.facts(tied(grid))["numbers"]["first_push_equal"]
    assert [(row["method"], row["call_cost"]) for row in rows] == [("rloo", 0.02), ("grpo", 0.02), ("grpo", 0.0)]
    trapped = grid["push_equal"].sel({"method": "grpo", "call_cost": 0.02, "step": 20}).astype(float).mean()
    assert rows[1]["mean"] == pytest.approx(float(trapped), abs=1e-6)
    assert legends(module.draw(grid))[0] == ["RLOO, cost 0", "RLOO, cost 0.02", "GRPO, cost 0", "GRPO, cost 0.02"]
    methods = module.draw(grid.sel(call_cost=0.02, drop=True))
    assert legends(methods)[0] == ["RLOO", "GRPO"]


def test_grpo_trap_needs_methods_and_one_start() -> None:
    module = script("grpo_trap")
    with pytest.raises(InvalidInput, match="needs method as an axis, and these results have call_cost, seed and step"):
        figure_script.prepare(RESULTS["tool_cost"](), module.NEEDS)
    both = tool_results({"method": ["rloo", "grpo"], "cold_start": [False, True], "seed": range(2)})
    with pytest.raises(InvalidInput, match="draws method with call_cost and step, so choose one of the 2"):
        figure_script.prepare(both, module.NEEDS)


def test_cold_start_marks_where_the_other_overtakes() -> None:
    dataset = RESULTS["cold_start"]()
    module = script("cold_start")
    (row,) = module.facts(dataset)["numbers"]["overtaking_step"]
    lead = dataset["accuracy"].astype(float).mean("seed").diff("cold_start").squeeze().values  # at 0, 20, 40, 60
    k = int((lead < 0).argmax())
    expected = dataset["step"].values[k - 1] + 20 * lead[k - 1] / (lead[k - 1] - lead[k])
    assert 0 < expected < 60
    assert row["at"] == pytest.approx(expected, rel=1e-5)
    assert row["low"] <= row["at"] <= row["high"]
    figure = module.draw(dataset)
    assert legends(figure) == [["RL alone", "cold start, then RL", "cold start alone"]]
    assert row["at"] == pytest.approx(figure.axes[0].lines[-1].get_xdata()[0], rel=1e-5)
    alone = dataset.isel(cold_start=[0])
    assert module.facts(alone)["numbers"]["overtaking_step"] == []
    assert legends(module.draw(alone)) == [["RL alone"]]


def test_phase_diagram_finds_the_cost_at_which_calling_ends() -> None:
    dataset = RESULTS["phase_diagram"]()
    module = script("phase_diagram")
    rows = module.facts(dataset)["numbers"]["giving_up_cost"]
    assert len(rows) == 10
    row = next(row for row in rows if (row["method"], row["cold_start"]) == ("rloo", False))
    calls = (
        dataset["calls"].sel({"method": "rloo", "cold_start": False}).isel(step=-1).astype(float).mean("seed").values
        - 0.5
    )
    k = int((calls < 0).argmax())
    expected = COSTS[k - 1] + 0.04 * calls[k - 1] / (calls[k - 1] - calls[k])
    assert row["at"] == pytest.approx(expected, rel=1e-5)
    assert "Costs lie 0.04 apart: no place is known more finely than that." in module.facts(dataset)["what"]
    trapped = next(row for row in rows if (row["method"], row["cold_start"]) == ("grpo", False))
    assert trapped["at"] < 0.04
    figure = module.draw(dataset)
    maps = figure.axes[:4]
    assert [axes.get_title() for axes in maps] == ["without a cold start", "after a cold start", "", ""]
    final = dataset["calls"].isel(step=-1).astype(float).mean("seed").sel(cold_start=True)
    shades = maps[3].collections[0].get_array()
    np.testing.assert_allclose(shades, final.transpose("method", "call_cost").values, rtol=1e-6)


def test_phase_diagram_takes_any_methods_and_one_start() -> None:
    methods = [f"estimator{i:02d}" for i in range(30)]
    dataset = tool_results({"method": methods, "call_cost": COSTS, "seed": range(2)})
    figure = script("phase_diagram").draw(dataset)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == methods
    assert len(figure.axes) == 4  # two maps, two bars


def test_hacking_says_how_far_reward_and_accuracy_are_apart() -> None:
    dataset = hacked()
    module = script("hacking")
    rows = module.facts(dataset)["numbers"]["reward_above_accuracy"]
    row = next(row for row in rows if (row["method"], row["kl_coef"]) == ("grpo", 0.3))
    gap = (dataset["verifier_reward"] - dataset["accuracy"]).sel({"method": "grpo", "kl_coef": 0.3}).isel(step=-1)
    assert row["mean"] == pytest.approx(float(gap.astype(float).mean()), rel=1e-4)
    figure = module.draw(dataset)
    assert legends(figure)[:2] == [
        ["verifier's reward", "accuracy (truly correct)"],
        ["trained prompts", "unseen prompts"],
    ]
    assert legends(figure)[2] == [f"KL weight = {weight:g}" for weight in (0.0, 0.01, 0.1, 0.3, 1.0)]
    assert figure.axes[0].get_xscale() == "symlog"
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "0.1", "1"]


def test_repaired_verifier_marks_the_repair_and_pairs_what_is_recovered() -> None:
    dataset = repaired()
    module = script("repaired_verifier")
    numbers = module.facts(dataset)["numbers"]
    assert numbers["last_flawed_step"] == {"never repaired": None, "repaired after 200": 200}
    final = dataset["accuracy"].isel(step=-1).astype(float)
    paired = (final.sel(hack_reward="repaired after 200") - final.sel(hack_reward="never repaired")).sel(
        {"method": "rloo"}
    )
    row = next(row for row in numbers["recovered_accuracy"] if row["method"] == "rloo")
    assert row["repair"] == 200
    assert row["mean"] == pytest.approx(paired.mean().item(), rel=1e-4, abs=1e-6)
    assert row["sd"] == pytest.approx(paired.values.std(ddof=1), rel=1e-4)
    figure = module.draw(dataset)
    marks = [line for line in figure.axes[0].lines if list(line.get_ydata()) == [0, 1]]
    assert [line.get_xdata()[0] for line in marks] == [200]
    assert figure.axes[-1].get_ylabel() == "recovered accuracy\n(difference)"


def test_repaired_verifier_without_repairs_recovers_nothing() -> None:
    module = script("repaired_verifier")
    plain = results({"method": ["rloo"], "hack_reward": [0.0, 1.0], "seed": range(2)})
    assert module.facts(plain)["numbers"]["recovered_accuracy"] == []
    assert [axes.get_ylabel() for axes in module.draw(plain).axes] == list(module.CURVES.values())


def test_pass_at_k_finds_where_the_untrained_policy_overtakes() -> None:
    dataset = passing()
    module = script("pass_at_k")
    facts = module.facts(dataset)
    rows = facts["numbers"]["untrained_overtakes"]["all prompts"]
    assert [(row["method"], row["step"], row["where"]) for row in rows] == [
        ("rloo", 100, "beyond"),
        ("rloo", 600, "within"),
        ("grpo", 100, "beyond"),
        ("grpo", 600, "within"),
    ]
    assert 6 < rows[1]["at"] < 7  # the untrained policy is ahead from 7 samples on
    assert "A dotted line is the k from which on the untrained policy is ahead." in facts["what"]
    hardest = facts["numbers"]["untrained_overtakes"]["the hardest prompts"]
    assert [row["where"] for row in hardest if row["step"] == 600] == ["before", "before"]
    row = next(row for row in facts["numbers"]["pass_at_k"]["all prompts"] if (row["step"], row["k"]) == (600, 16))
    assert row["mean"] == pytest.approx((1 - 0.05**16 + 1 - 0.999**16) / 2, abs=1e-6)
    figure = module.draw(dataset)
    assert figure.subfigs[0].get_supylabel() == "pass@$k$,\nall prompts"
    assert legends(figure) == [["step = 0", "step = 100", "step = 600"]]
    assert figure.axes[0].get_xlim() == figure.axes[-1].get_xlim()  # whatever is marked
    better = module.facts(dataset.isel(step=[0, 1]))
    assert better["what"].endswith("The untrained policy is ahead at no k up to 1,024.")


def test_pass_at_k_has_rows_for_each_verifier() -> None:
    dataset, module = either(), script("pass_at_k")
    facts = module.facts(dataset)
    assert "A faithful verifier pays the hack nothing, a flawed one as much as the correct answer." in facts["what"]
    rows = facts["numbers"]["untrained_overtakes"]["all prompts"]
    within = [(row["method"], row["hack_reward"], row["step"]) for row in rows if row["where"] == "within"]
    assert within == [("rloo", 1.0, 600), ("grpo", 1.0, 600)]
    for venue in plots.WIDTHS:
        figure = module.draw(dataset, venue=venue)
        assert [part.get_supylabel() for part in figure.subfigs] == [
            f"pass@$k$,\n{prompts}\n{verifier}"
            for prompts in ("all prompts", "the hardest prompts")
            for verifier in ("flawed verifier", "faithful verifier")
        ]
        assert figure.get_figheight() <= plots.TALLEST


def test_pass_at_k_marks_a_policy_that_is_behind_from_the_first_sample_on() -> None:
    dataset = passing()
    dataset["correct_prob"] = dataset["correct_prob"] * xr.where(dataset["step"] > 0, 0.01, 1.0)
    module = script("pass_at_k")
    places = module.facts(dataset)["numbers"]["untrained_overtakes"]["all prompts"]
    assert {place["where"] for place in places} == {"before"}
    panel = module.draw(dataset).subfigs[0].axes[0]
    upright = [line.get_xdata()[0] for line in panel.lines if len(set(line.get_xdata())) == 1 < len(line.get_xdata())]
    assert upright == [1.0] * (dataset.sizes["step"] - 1)


def test_pass_at_k_needs_the_untrained_policy() -> None:
    with pytest.raises(InvalidInput, match="compares with step 0, which these results do not hold"):
        script("pass_at_k").facts(passing().isel(step=[1, 2]))


def drawn_from(dataset: xr.Dataset) -> list[str]:
    """The figures that a run would draw."""
    names = []
    for path in sorted((Path(__file__).parents[1] / "figures").glob("*.py")):
        try:
            figure_script.prepare(dataset, script(path.stem).NEEDS)
        except InvalidInput:
            continue
        names.append(path.stem)
    return names


def test_results_are_drawn_by_the_figures_of_their_study_alone() -> None:
    assert {study: drawn_from(made()) for study, made in RESULTS.items()} == {study: [study] for study in RESULTS}


@pytest.mark.slow
@pytest.mark.parametrize("study", RESULTS)
def test_a_study_is_drawn_from_its_sweep(study: str, tmp_path: Path) -> None:
    dataset = spec.load(study).with_seeds(2).sweep()
    assert drawn_from(dataset) == [study]
    module = script(study)
    *_, caption, _ = plots.save(module.draw(dataset), tmp_path / study, module.facts(dataset))
    assert json.loads(caption.read_text())["n_seeds"] == 2
