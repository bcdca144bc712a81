"""Where the energy of a run went, and what its incidents cost: a known truth, then the laws."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.fleet.work_rows import constant, make_power, make_spans, make_steps
from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import ENERGY_WASTE, FAILURES, LOGGED_SPANS, LOGGED_STEPS, POWER


@pytest.fixture(scope="module")
def demo(fleet_demo):
    """Give power, steps, spans and failures of the bundled job."""
    fleet = load.fleet(fleet_demo, tz="UTC", scope="node_ac", with_traces=False, progress=False)
    power = analyze.power_of_scope(fleet.power.power, fleet.power.entities)
    return power, fleet.job.steps, fleet.job.spans, fleet.failures.failures


@pytest.mark.slow
@pytest.mark.oracle
def test_the_injected_failure_costs_what_the_truth_says(demo, fleet_demo):
    power, steps, spans, failures = demo
    truth = pd.read_csv(fleet_demo / "truth.csv").set_index("what")
    restart = truth.loc["job restart"]
    (row,) = analyze.incident_energy(power, steps, spans, failures=failures).to_dict("records")
    assert row["restart_s"] == pytest.approx(restart["size"], abs=1e-3)
    # Of the steps that are lost, the last was not finished.
    assert row["lost_step_count"] == restart["last_step"] - restart["first_step"] == 19
    assert row["start_ns"] == pytest.approx(truth.loc["failing node", "start_ns"], abs=1e6)
    assert (row["node"], row["cause"]) == ("node001", "GPU has fallen off the bus")
    assert row["energy_j"] == pytest.approx(294.3e3, rel=1e-3)
    assert row["covered_share"] == 1


@pytest.mark.slow
@pytest.mark.oracle
def test_the_share_depends_on_what_is_called_the_run(demo):
    power, steps, spans, failures = demo
    table = analyze.incident_energy(power, steps, spans, failures=failures)
    assert table["energy_share"].item() == pytest.approx(0.460, abs=0.001)
    metered = (int(power["time_ns"].min()), int(power["time_ns"].max()))
    waste = analyze.energy_waste(power, steps, spans, window_ns=metered)
    assert table["energy_j"].item() / waste["energy_j"].sum() == pytest.approx(0.447, abs=5e-4)


# A job that saves after step 1, loses step 2, and is back after 20 s.
STEPS = make_steps(
    (0, 10, 20), (1, 20, 30), (2, 34, 44), (2, 70, 80, 2), (3, 80.5, 90, 2),
)  # fmt: skip
SPANS = make_spans(
    ("run", 0, 100), ("initialisation", 0, 10), ("checkpoint", 30, 34), ("restart", 50, 70),
    ("evaluation", 90, 95, 2),
)  # fmt: skip
POWER_OF_TWO = make_power(a=constant(100.0, until_s=120), b=constant(50.0, until_s=120))


def states(table, column="time_s"):
    return dict(zip(table["state"], table[column], strict=True))


def test_every_moment_has_one_state():
    table = analyze.energy_waste(POWER_OF_TWO, STEPS, SPANS)
    assert states(table) == pytest.approx(
        {
            "useful steps": 39.5, "lost steps": 10, "unfinished step": 6, "restart": 20,
            "checkpoint": 4, "evaluation": 5, "initialisation": 10, "between steps": 0.5,
            "not told": 5,
        }
    )  # fmt: skip
    assert states(table, "energy_j")["restart"] == pytest.approx(3_000)
    assert states(table, "step_count") == states(table, "step_count") | {
        "useful steps": 4, "lost steps": 1, "restart": 0,
    }  # fmt: skip
    assert table["mean_w"].to_numpy() == pytest.approx(150)
    assert table["energy_share"].sum() == pytest.approx(1)


moments = st.floats(0, 100).map(lambda at: round(at, 3))
kinds = st.sampled_from(["run", "checkpoint", "evaluation", "restart", "initialisation", "else"])


@given(
    st.lists(st.tuples(st.integers(0, 9), moments, moments, st.integers(1, 3)), max_size=12),
    st.lists(st.tuples(kinds, moments, moments), max_size=6),
    st.lists(st.floats(0, 1e4), min_size=101, max_size=101),
)
def test_states_sum_to_the_whole_whatever_the_log_says(steps, spans, watts):
    power = make_power(a=list(enumerate(watts)))
    tidy = [(n, min(a, b), max(a, b), each) for n, a, b, each in steps]
    named = [(kind, min(a, b), max(a, b)) for kind, a, b in spans]
    table = analyze.energy_waste(
        power, make_steps(*tidy), make_spans(*named), window_ns=(0, 100 * 10**9)
    )
    assert table["time_s"].sum() == pytest.approx(100)
    assert table["energy_j"].sum() == pytest.approx(
        sum(watts) - (watts[0] + watts[-1]) / 2, rel=1e-9, abs=1e-6
    )
    assert table["step_count"].sum() <= len(steps)


def test_without_spans_the_time_between_attempts_is_a_restart():
    table = analyze.energy_waste(POWER_OF_TWO, STEPS)
    assert states(table)["restart"] == pytest.approx(26)
    assert states(table)["between steps"] == pytest.approx(4.5), "the checkpoint is not told"
    assert table["time_s"].sum() == pytest.approx(80)


def test_what_no_meter_read_is_missing_coverage_and_no_energy():
    half = make_power(a=constant(100.0, until_s=50))
    table = analyze.energy_waste(half, STEPS, SPANS).set_index("state")
    assert table.loc["restart", "covered_share"] == 0
    assert table.loc["restart", "energy_j"] == 0
    assert np.isnan(table.loc["restart", "mean_w"])
    assert table.loc["initialisation", "covered_share"] == 1


def test_a_log_that_tells_nothing_has_no_states():
    assert analyze.energy_waste(POWER_OF_TWO, LOGGED_STEPS.empty()).empty
    spans = make_spans(("run", 0, 100))
    table = analyze.energy_waste(POWER_OF_TWO, LOGGED_STEPS.empty(), spans)
    assert states(table) == {"not told": 100}
    nothing = analyze.energy_waste(POWER.empty(), STEPS, SPANS)
    assert nothing["energy_j"].eq(0).all()
    assert nothing["energy_share"].isna().all()
    ENERGY_WASTE.check(nothing)


def test_a_window_that_ends_before_it_begins_is_refused():
    with pytest.raises(WorkbenchError, match="the window ends at 5 ns, which is not after"):
        analyze.energy_waste(POWER_OF_TWO, STEPS, window_ns=(9, 5))


def cost(**options):
    return analyze.incident_energy(POWER_OF_TWO, STEPS, SPANS, **options).to_dict("records")


def test_an_incident_costs_lost_steps_the_cut_one_and_the_restart():
    (row,) = cost()
    assert (row["start_ns"], row["end_ns"]) == (50 * 10**9, 70 * 10**9)
    assert (row["lost_step_count"], row["lost_work_s"], row["restart_s"]) == (1, 16, 20)
    assert (row["lost_work_j"], row["restart_j"], row["energy_j"]) == (2_400, 3_000, 5_400)
    assert row["energy_share"] == pytest.approx(5_400 / 15_000)
    assert (row["attempt"], row["cause"]) == (1, "not told")


def test_incidents_and_states_agree():
    waste = states(analyze.energy_waste(POWER_OF_TWO, STEPS, SPANS), "energy_j")
    (row,) = cost()
    lost = waste["lost steps"] + waste["unfinished step"] + waste["restart"]
    assert row["energy_j"] == pytest.approx(lost)


def failure(make_failures, *rows):
    return make_failures(
        *(
            {"day": at / 86_400, "cause": cause, "node": node, "severity": severity}
            for at, cause, node, severity in rows
        )
    )


def test_the_first_fatal_failure_leads_and_others_stand_beside_it(make_failures):
    failures = failure(
        make_failures, (49, "a warning", "n1", "warning"), (51, "node failed", "n2", "fatal"),
        (49.5, "GPU is lost", None, "fatal"), (95, "late", "n3", "fatal"),
    )  # fmt: skip
    first, second = cost(failures=failures)
    assert (first["cause"], first["node"]) == ("GPU is lost", "n2")
    assert first["failure_lag_s"] == pytest.approx(-0.5)
    assert first["also"] == "node failed on n2"
    assert (second["cause"], second["also"]) == ("late", "no interruption in the job log")
    assert pd.isna(second["energy_j"])
    assert pd.isna(second["lost_step_count"])


def test_a_failure_long_before_is_no_cause(make_failures):
    early = failure(make_failures, (20, "GPU is lost", "n1", "fatal"))
    assert cost(failures=early, before_s=10)[0]["cause"] == "not told"
    assert cost(failures=early, before_s=40)[0]["cause"] == "GPU is lost"


def test_an_incident_that_meters_missed_has_no_energy_but_its_times():
    gone = make_power(a=constant(100.0, until_s=52))
    (row,) = analyze.incident_energy(gone, STEPS, SPANS).to_dict("records")
    assert (row["lost_step_count"], row["restart_s"]) == (1, 20)
    assert pd.isna(row["energy_j"])
    assert row["covered_share"] == pytest.approx(18 / 36)


def test_without_power_or_steps_there_is_what_can_be_told(make_failures):
    (row,) = analyze.incident_energy(POWER.empty(), STEPS, SPANS).to_dict("records")
    assert (row["restart_s"], row["covered_share"]) == (20, 0)
    assert pd.isna(row["energy_share"])
    assert analyze.incident_energy(POWER_OF_TWO, LOGGED_STEPS.empty(), SPANS.iloc[:1]).empty
    alone = analyze.incident_energy(
        POWER_OF_TWO, LOGGED_STEPS.empty(), LOGGED_SPANS.empty(),
        failures=failure(make_failures, (20, "GPU is lost", "n1", "fatal")),
    )  # fmt: skip
    assert alone["cause"].tolist() == ["GPU is lost"]
    nothing = analyze.incident_energy(POWER_OF_TWO, LOGGED_STEPS.empty(), failures=FAILURES.empty())
    assert nothing.empty


def test_two_interruptions_share_no_lost_step():
    steps = make_steps((0, 0, 10), (1, 10, 20), (1, 30, 40, 2), (2, 40, 50, 2), (2, 60, 70, 3))
    table = analyze.incident_energy(POWER_OF_TWO, steps)
    assert table["lost_step_count"].tolist() == [1, 1]
    assert table["attempt"].tolist() == [1, 2]
    assert table["restart_s"].tolist() == [10, 10]


def test_a_second_interruption_before_any_step_does_not_cost_the_first_one_again():
    power = make_power(a=constant(100.0, until_s=400))
    steps = make_steps((0, 0, 50), (1, 50, 100), (2, 300, 350, 3))
    spans = make_spans(("restart", 110, 200), ("restart", 250, 300, 2))
    waste = analyze.energy_waste(power, steps, spans).set_index("state")
    assert waste.loc["restart", "energy_j"] == pytest.approx(100 * (90 + 50))
    assert waste.loc["unfinished step", "energy_j"] == pytest.approx(100 * (10 + 50))
    table = analyze.incident_energy(power, steps, spans)
    assert table["lost_work_s"].tolist() == [10, 50]
    assert table["energy_j"].tolist() == pytest.approx([100 * (10 + 90), 100 * (50 + 50)])
    assert table["energy_share"].sum() == pytest.approx(200 / 350)
