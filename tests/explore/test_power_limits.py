"""Explorers of power limits and capping: move a control, read the screen."""

import re

import pandas as pd
import pytest

from workbench import analyze, explore, load
from workbench.errors import TableError, WorkbenchError
from workbench.explore.static import static_html
from workbench.tables import POWER_CURVE, Source


@pytest.fixture(scope="module")
def log(fleet_demo):
    return load.power(fleet_demo / "power", tz="UTC", progress=False)


@pytest.fixture(scope="module")
def job(fleet_demo):
    return load.job_log(fleet_demo / "steps.jsonl")


def check_controls(explorer):
    """Every control has a label, answers on release, and changes what is seen."""
    assert explorer.message.value == ""
    for control in explorer.controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)
    before = explorer.figure().to_json()
    for control in explorer.controls.values():
        start, drawn = control.value, set()
        for option in control.options:
            control.value = option[1] if isinstance(option, tuple) else option
            drawn.add(explorer.figure().to_json() + explorer.message.value)
        control.value = start
        assert len(drawn) > 1 or len(control.options) == 1, control.description
    assert explorer.figure().to_json() == before


@pytest.mark.oracle
def test_provisioning_starts_at_the_published_site():
    explorer = explore.provisioning()
    assert explorer.title().startswith(
        "In doubt: 1,000 W feeds 80,464 GPUs that do 9.0 % more together"
    )
    guessed = explorer.draw(**explorer.values()).data[1]
    assert dict(zip(guessed.x, guessed.y, strict=True))[960] == pytest.approx(83_000, rel=0.002)
    values = explorer.values()
    assert (values["budget_mw"], values["overhead"]) == (150, pytest.approx(357.14))
    assert "arXiv:2605.24461" in explorer.figure().layout.annotations[0].text


@pytest.mark.slow
def test_every_control_of_provisioning_changes_the_figure(real_data):
    file = real_data("power-zeus-sweeps") / "summary_power_a40.csv"
    curves = analyze.power_curve(load.power_sweeps(file), per="job")
    check_controls(explore.provisioning(curves[curves["job"] == "resnet50"]))


def test_the_kind_of_extrapolation_moves_the_guess_and_not_the_known():
    explorer = explore.provisioning()
    known, guessed = (list(explorer.draw(**explorer.values()).data[at].y) for at in (2, 3))
    explorer.controls["method"].value = "cubic"
    now = explorer.draw(**explorer.values())
    assert list(now.data[2].y) == known
    assert list(now.data[3].y) != guessed
    assert "extrapolated" not in explorer.title(), "1,000 W is then the best of all"


def test_an_impossible_site_is_explained_and_the_last_figure_stays():
    explorer = explore.provisioning()
    explorer.controls["fixed_mw"].value = 100
    title = explorer.title()
    explorer.controls["budget_mw"].value = 100
    assert "nothing is left for GPUs" in explorer.message.value
    assert explorer.title() == title
    explorer.controls["fixed_mw"].value = 1
    assert explorer.message.value == ""


def test_measured_curves_are_named_with_their_source(real_data):
    file = real_data("power-zeus-sweeps") / "summary_power_v100.csv"
    curves = analyze.power_curve(load.power_sweeps(file), per="job")
    explorer = explore.provisioning(curves[curves["job"] == "resnet50"], source="Zeus")
    explorer.controls["curve"].value = "V100, resnet50, median of 8"
    assert "closed form; Zeus" in explorer.figure().layout.annotations[0].text
    assert "published" not in {trace.name for trace in explorer.figure().data}


def test_a_wrong_table_of_curves_is_refused():
    with pytest.raises(TableError, match="'power_curve' table"):
        explore.provisioning(analyze.published_gains())


@pytest.mark.long
@pytest.mark.oracle
def test_capping_starts_with_the_best_evidence_and_power_alone_finds_nothing(log):
    explorer = explore.capping_events(log, source="demo", synthetic=log.is_synthetic)
    assert "was held back for 14 s in 3 periods, at 1,605" in explorer.title()
    # The capped GPU draws 89 % of its limit.
    explorer.controls["power_alone"].value = True
    assert explorer.title() == "No capping to show"
    explorer.controls["limit_share"].value = 0.85
    assert "(likely)" in explorer.title()


@pytest.mark.long
@pytest.mark.oracle
def test_with_a_job_the_cost_is_shown_with_its_doubt(log, job):
    explorer = explore.capping_events(log, job)
    explorer.controls["view"].value = "cost"
    assert explorer.title().startswith("What capping cost is in doubt: 45 capped steps")
    explorer.controls["view"].value = "blame"
    assert "45 steps, 100 % of all capped ones" in explorer.title()


@pytest.mark.slow
def test_every_control_of_capping_changes_something(log, job):
    explorer = explore.capping_events(log, job)
    explorer.controls["power_alone"].value = True
    explorer.controls["limit_share"].value = 0.85
    for name in ("view", "power_alone", "limit_share"):
        drawn = set()
        start = explorer.controls[name].value
        for _, value in explorer.controls[name].options:
            explorer.controls[name].value = value
            drawn.add(explorer.title())
        explorer.controls[name].value = start
        assert len(drawn) > 1, name
    for control in explorer.controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)


@pytest.mark.slow
@pytest.mark.parametrize("noun", ["provisioning", "capping_events"])
def test_explorers_work_without_a_kernel(noun, log, job):
    explorer = (
        explore.provisioning() if noun == "provisioning" else explore.capping_events(log, job)
    )
    page = static_html(explorer)
    assert "Snapshot at" in page
    assert explorer.title().split(" ")[0] in page


def test_capping_takes_what_was_loaded_and_no_table(log, job):
    with pytest.raises(WorkbenchError, match="a PowerLog is needed, not a DataFrame; pass what lo"):
        explore.capping_events(log.power)
    with pytest.raises(WorkbenchError, match="a JobLog is needed, not a DataFrame"):
        explore.capping_events(log, job.steps)


@pytest.mark.long
def test_provisioning_starts_at_what_a_log_measured_and_says_what_is_assumed(fleet_demo, log):
    sweep = pd.DataFrame({"limit_w": [450.0, 480, 500], "speed_ratio": [0.8, 0.93, 1.0]})
    sweep = sweep.assign(
        gpu="H9", job="mine", configuration="mine", configuration_count=1, basis="measured",
        is_extrapolated=False, doubt="", source="mine.csv",
    )  # fmt: skip
    curve = POWER_CURVE.cast(sweep.reindex(columns=list(POWER_CURVE.columns)))
    named = load.power(fleet_demo / "power", tz="UTC", node=re.compile(r"node\d+"), progress=False)
    explorer = explore.provisioning(curve, start=named, source=Source("mine", "own"))
    controls, values = explorer.controls, explorer.values()
    assert explorer.message.value == ""
    totals = analyze.power_sum(analyze.power_of_scope(named.power, named.entities))
    assert controls["budget_mw"].description == "budget [kW], measured"
    assert values["budget_mw"] == pytest.approx(totals["power_w"].max() / 1e6, rel=5e-3)
    assert controls["overhead"].description == "overhead per GPU [W], measured"
    measured = analyze.overhead_w_measured(named.power, named.entities)
    assert values["overhead"] == pytest.approx(measured, rel=5e-3)
    assert (controls["pue"].description, values["pue"]) == ("PUE, assumed", 1)
    assert values["curve"].startswith("H9")
    assert explorer.figure().layout.meta["origin"] == "own"
    check_controls(explorer)
    # Without hosts nobody knows which GPUs are of which node.
    assumed = explore.provisioning(curve, start=log).controls["overhead"]
    assert (assumed.description, assumed.value) == ("overhead per GPU [W], assumed", 0)
