"""Dips of power, however long, and what the logs say of that time."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.fleet.work_rows import make_spans, make_steps, make_totals
from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import POWER_DIPS, POWER_TOTALS


def power_with(*dips, length=600, usual=1_000.0):
    """Make power that is usual but for ``(first, last, watts)``."""
    watts = np.full(length, usual)
    for first, last, low in dips:
        watts[first:last] = low
    return make_totals(watts.tolist())


def spans_of(dips):
    starts = (dips["start_ns"] // 10**9).tolist()
    return list(zip(starts, (dips["end_ns"] // 10**9).tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.oracle
def test_shallow_dips_of_a_real_job_are_its_evaluations(real_data):
    folder = real_data("power-mlperf-gpt3-512gpu")
    log, job = load.power(folder, progress=False), load.job_log(folder, progress=False)
    totals = analyze.power_sum(analyze.power_of_scope(log.power, log.entities), period_s=0.5)
    dips = analyze.power_dips(totals, below_share=0.9)
    causes = analyze.dip_causes(dips, steps=job.steps, spans=job.spans)["cause"]
    assert len(dips) == 22, "of 24; two are no 2 s long, or end with the run"
    assert causes.eq("evaluation").all()
    assert analyze.power_dips(totals).empty, "no outage"


def test_a_dip_is_found_with_its_depth_and_shortfall():
    (dip,) = analyze.power_dips(power_with((100, 130, 400.0))).to_dict("records")
    assert (dip["start_ns"], dip["end_ns"]) == (100 * 10**9, 130 * 10**9)
    assert (dip["dur_s"], dip["usual_w"], dip["mean_w"], dip["lowest_w"]) == (30, 1_000, 400, 400)
    assert (dip["depth_share"], dip["shortfall_j"]) == (0.6, 18_000)
    assert (dip["covered_share"], dip["is_cut"]) == (1, False)


@pytest.mark.parametrize("length_s", [30, 120, 300, 500])
def test_an_outage_longer_than_the_window_does_not_become_its_own_normal(length_s):
    dips = analyze.power_dips(power_with((60, 60 + length_s, 400.0)), window_s=60)
    assert spans_of(dips) == [(60, 60 + length_s)]
    assert dips["usual_w"].item() == 1_000
    assert dips["shortfall_j"].item() == 600 * length_s


def test_an_outage_that_lasts_to_the_end_is_found_and_said_to_be_cut():
    dips = analyze.power_dips(power_with((0, 40, 90.0), (500, 600, 90.0)))
    assert spans_of(dips) == [(0, 40), (500, 600)]
    assert dips["is_cut"].all()


@given(st.integers(5, 60), st.integers(5, 400), st.floats(0, 600))
def test_the_shortfall_is_the_energy_that_was_not_drawn(first, length, low):
    totals = power_with((first, first + length, low))
    dips = analyze.power_dips(totals)
    drawn = totals["power_w"].sum()
    assert dips["shortfall_j"].sum() == pytest.approx(600 * 1_000 - drawn, rel=1e-9)


def test_slow_changes_are_no_dips():
    watts = np.linspace(1_000, 800, 600)
    assert analyze.power_dips(make_totals(watts.tolist())).empty


def test_short_dips_are_left_out_and_short_returns_do_not_end_one():
    totals = power_with((100, 101, 0.0), (200, 210, 0.0), (211, 220, 0.0))
    assert spans_of(analyze.power_dips(totals, least_s=2)) == [(200, 220)]
    assert spans_of(analyze.power_dips(totals, least_s=1)) == [(100, 101), (200, 210), (211, 220)]


def test_unknown_cells_between_low_ones_belong_to_the_dip_and_to_no_energy():
    totals = power_with((100, 130, 400.0))
    totals.loc[110:119, "power_w"] = None
    (dip,) = analyze.power_dips(totals).to_dict("records")
    assert dip["dur_s"] == 30
    assert dip["covered_share"] == pytest.approx(2 / 3)
    assert dip["shortfall_j"] == 600 * 20


def test_nothing_known_has_no_dips():
    assert analyze.power_dips(POWER_TOTALS.empty()).empty
    assert analyze.power_dips(make_totals([None] * 9)).empty
    assert analyze.power_dips(make_totals([5.0] * 9)).empty


def test_options_that_mean_nothing_are_refused():
    with pytest.raises(WorkbenchError, match="below_share must be between 0 and 1"):
        analyze.power_dips(power_with(), below_share=70)
    with pytest.raises(WorkbenchError, match="window_s must be above 0"):
        analyze.power_dips(power_with(), window_s=0)
    with pytest.raises(WorkbenchError, match="least_s must be 0 or more"):
        analyze.power_dips(power_with(), least_s=-1)


STEPS = make_steps((0, 50, 300), (1, 300, 560))


@pytest.fixture
def causes(make_failures):
    """Match dips with failures at ``(seconds, severity)`` and spans."""

    def match(*dips, failures=(), spans=(), **options):
        told = make_failures(
            *(
                {"day": at / 86_400, "severity": severity, "node": "n1", "cause": "GPU is lost"}
                for at, severity in failures
            )
        )
        found = analyze.power_dips(power_with(*dips))
        return analyze.dip_causes(
            found, steps=STEPS, spans=make_spans(*spans), failures=told, **options
        )

    return match


def test_a_failure_goes_before_the_restart_it_causes(causes):
    table = causes((200, 260, 9.0), failures=[(198, "fatal")], spans=[("restart", 199, 261)])
    (row,) = table.to_dict("records")
    assert (row["cause"], row["evidence"]) == ("failure", "GPU is lost on n1")
    assert row["lag_s"] == pytest.approx(2)
    assert row["also"] == "restart of 62 s"


def test_a_warning_does_not_explain_what_a_checkpoint_does(causes):
    table = causes((200, 210, 9.0), failures=[(199, "warning")], spans=[("checkpoint", 200, 210)])
    assert table["cause"].tolist() == ["checkpoint"]
    assert table["overlap_share"].tolist() == [1]


def test_a_failure_long_before_explains_nothing(causes):
    table = causes((200, 210, 9.0), failures=[(100, "fatal")])
    assert table["cause"].tolist() == ["not explained"]
    late = causes((200, 210, 9.0), failures=[(100, "fatal")], within_s=120)
    assert late["cause"].tolist() == ["failure"]


def test_dips_outside_of_all_steps_are_told_by_the_steps(causes):
    table = causes((0, 50, 9.0), (570, 600, 9.0))
    assert table["cause"].tolist() == ["before the job", "after the job"]


def test_a_short_pause_does_not_explain_a_long_outage_and_the_run_explains_nothing(causes):
    spans = [("run", 0, 600), ("epoch", 10, 590), ("checkpoint", 200, 205)]
    assert causes((200, 300, 9.0), spans=spans)["cause"].tolist() == ["not explained"]


def test_the_offset_of_the_meter_is_undone_before_matching(causes):
    spans = [("evaluation", 100, 110)]
    assert causes((200, 210, 9.0), spans=spans)["cause"].tolist() == ["not explained"]
    moved = causes((200, 210, 9.0), spans=spans, clock_offset_s=100)
    assert moved["cause"].tolist() == ["evaluation"]
    assert spans_of(moved) == [(200, 210)], "times stay those of the meter"


def test_no_logs_explain_nothing_and_no_dips_need_nothing():
    dips = analyze.power_dips(power_with((200, 210, 9.0)))
    table = analyze.dip_causes(dips)
    assert table["cause"].tolist() == ["not explained"]
    assert table["also"].tolist() == [""]
    assert analyze.dip_causes(POWER_DIPS.empty()).empty
    assert pd.isna(table["lag_s"].item())
