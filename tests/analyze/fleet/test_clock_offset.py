"""The clock of a meter against that of the job log."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyze.fleet.work_rows import make_spans, make_steps, make_totals
from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import LOGGED_STEPS, POWER, POWER_DIPS, POWER_TOTALS

# Steps with pauses at uneven distances, as evaluations and checkpoints make them.
PAUSES = (60, 95, 210, 300, 420)
STEPS = make_steps(
    *((n, a + 12, b) for n, (a, b) in enumerate(zip((0, *PAUSES), PAUSES, strict=False)))
)


def power_of(steps, *, ahead_s=0.0, period_s=1.0, until_s=500, noise_w=0.0):
    """Give power that is high in steps, stamped by a clock that is ahead."""
    rng = np.random.default_rng(0)
    fine = np.arange(0, until_s, period_s / 20) - ahead_s
    starts, ends = steps["start_ns"].to_numpy() / 1e9, steps["end_ns"].to_numpy() / 1e9
    working = ((fine[:, None] >= starts) & (fine[:, None] < ends)).any(axis=1)
    watts = 400 + 600 * working.reshape(-1, 20).mean(axis=1)
    return make_totals(
        (watts + noise_w * rng.standard_normal(len(watts))).tolist(), period_s=period_s
    )


@settings(max_examples=20)
@given(st.floats(-40, 40))
def test_whatever_the_offset_it_is_found_within_its_interval(ahead_s):
    row = analyze.power_clock_offset(power_of(STEPS, ahead_s=ahead_s, noise_w=40), STEPS).iloc[0]
    assert row["offset_s"] == pytest.approx(ahead_s, abs=0.15)
    assert row["low_s"] - 0.1 <= ahead_s <= row["high_s"] + 0.1
    assert not row["is_ambiguous"]
    assert row["doubt"] == ""


def test_evaluations_at_which_power_is_low_tell_it_too():
    starts = (0, *(end + 12 for end in PAUSES))
    spans = make_spans(*(("evaluation", end, end + 12) for end in PAUSES[:-1]))
    table = analyze.power_clock_offset(power_of(STEPS, ahead_s=7), spans, draws_more=False)
    assert table["offset_s"].item() == pytest.approx(7, abs=0.3)
    assert table["correlation"].item() < -0.5
    assert len(starts) > 1


def test_a_pattern_that_repeats_is_ambiguous_by_its_period_and_says_so():
    steps = make_steps(*((n, 20 * n, 20 * n + 15) for n in range(60)))
    totals = power_of(steps, until_s=1_000, noise_w=30).iloc[300:900].reset_index(drop=True)
    row = analyze.power_clock_offset(totals, steps).iloc[0]
    assert row["is_ambiguous"]
    assert "the pattern repeats every" in row["doubt"]
    assert abs(row["offset_s"] - row["next_offset_s"]) % 20 == pytest.approx(0, abs=0.2)


def test_steps_without_a_pause_tell_nothing():
    steps = make_steps(*((n, 10 * n, 10 * n + 10) for n in range(200)))
    totals = make_totals((1_000 + 10 * np.sin(np.arange(300))).tolist(), start_s=500)
    row = analyze.power_clock_offset(totals, steps).iloc[0]
    assert np.isnan(row["offset_s"])
    assert row["is_ambiguous"]
    assert row["doubt"] == "power or work never changes, so no offset can be estimated"


def test_power_that_does_not_follow_the_work_is_in_doubt():
    rng = np.random.default_rng(1)
    totals = make_totals(rng.uniform(900, 1_000, 500).tolist())
    row = analyze.power_clock_offset(totals, STEPS).iloc[0]
    assert row["is_ambiguous"]
    assert "power hardly follows the work" in row["doubt"]


def test_another_day_is_no_offset_but_too_few_cells():
    totals = power_of(STEPS).assign(time_ns=lambda table: table["time_ns"] + 86_400 * 10**9)
    row = analyze.power_clock_offset(totals, STEPS).iloc[0]
    assert np.isnan(row["offset_s"])
    assert "only 0 cells with power lie within 60 s of the work; 16 are needed" in row["doubt"]


def test_no_steps_or_no_power_give_no_offset_and_the_reason():
    assert (
        "no work" in analyze.power_clock_offset(power_of(STEPS), LOGGED_STEPS.empty())["doubt"][0]
    )
    assert "only 0 cells" in analyze.power_clock_offset(POWER_TOTALS.empty(), STEPS)["doubt"][0]


def test_cells_without_power_are_left_out():
    totals = power_of(STEPS, ahead_s=5)
    totals.loc[100:140, "power_w"] = None
    row = analyze.power_clock_offset(totals, STEPS).iloc[0]
    assert row["offset_s"] == pytest.approx(5, abs=0.1)
    assert row["cell_count"] < len(totals) - 40


def test_an_offset_at_the_edge_of_what_was_tried_is_in_doubt():
    row = analyze.power_clock_offset(power_of(STEPS, ahead_s=40), STEPS, longest_offset_s=10).iloc[
        0
    ]
    assert row["is_ambiguous"]


def test_a_table_that_is_no_work_is_refused():
    with pytest.raises(WorkbenchError, match=r"\['end_ns'\] is missing; pass steps"):
        analyze.power_clock_offset(power_of(STEPS), STEPS.drop(columns="end_ns"))
    with pytest.raises(WorkbenchError, match="longest_offset_s must be above 0"):
        analyze.power_clock_offset(power_of(STEPS), STEPS, longest_offset_s=0)


@pytest.mark.slow
@pytest.mark.oracle
def test_the_clocks_of_a_real_job_agree_within_a_second(real_data):
    folder = real_data("power-mlperf-gpt3-512gpu")
    log, job = load.power(folder, progress=False), load.job_log(folder, progress=False)
    totals = analyze.power_sum(analyze.power_of_scope(log.power, log.entities), period_s=0.5)
    by_steps = analyze.power_clock_offset(totals, job.steps).iloc[0]
    evaluations = job.spans[job.spans["kind"] == "evaluation"]
    by_spans = analyze.power_clock_offset(totals, evaluations, draws_more=False).iloc[0]
    assert abs(by_steps["offset_s"]) < 1
    assert abs(by_spans["offset_s"]) < 0.5
    assert not by_steps["is_ambiguous"]


@pytest.mark.parametrize(
    "use",
    [
        lambda offset: analyze.step_energy(
            POWER.empty(), LOGGED_STEPS.empty(), clock_offset_s=offset
        ),
        lambda offset: analyze.dip_causes(POWER_DIPS.empty(), clock_offset_s=offset),
        lambda offset: analyze.phase_power(
            make_totals([1.0] * 9), make_steps((0, 0, 9)), clock_offset_s=offset
        ),
    ],
)
def test_an_offset_that_could_not_be_told_is_refused_where_it_is_passed_on(use):
    unknown = analyze.power_clock_offset(make_totals([1.0] * 99), make_steps((0, 20, 40)))
    with pytest.raises(WorkbenchError, match="must be a finite number of seconds, not nan; where"):
        use(unknown["offset_s"].item())
