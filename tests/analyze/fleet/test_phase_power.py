"""Power folded by steps: the profile of a real job, then made-up ones that are known."""

import numpy as np
import pytest

from tests.analyze.fleet.work_rows import make_steps, make_totals
from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import LOGGED_STEPS, PHASE_POWER, POWER_TOTALS

DECILES_KW = [411.9, 416.9, 437.3, 449.7, 453.3, 454.4, 455.1, 455.2, 451.4, 435.2]


@pytest.mark.slow
@pytest.mark.oracle
def test_a_real_step_has_the_profile_that_was_found_before(real_data):
    folder = real_data("power-mlperf-gpt3-512gpu")
    log, job = load.power(folder, progress=False), load.job_log(folder, progress=False)
    power = analyze.power_of_scope(log.power, log.entities)
    table = analyze.phase_power(analyze.power_sum(power, period_s=0.5), job.steps)
    inside = table[table["place"] == "in steps"]
    assert (inside["power_w"] / 1e3).tolist() == pytest.approx(DECILES_KW, rel=0.01)
    assert inside["sample_count"].min() > 500
    (outside,) = table.loc[table["place"] != "in steps", "power_w"]
    assert outside == pytest.approx(406e3, rel=0.01)


def test_phases_are_told_apart_and_what_lies_outside_is_a_row():
    watts = ([100.0] * 5 + [300.0] * 5 + [10.0] * 2) * 20
    steps = make_steps(*((n, 12 * n, 12 * n + 10) for n in range(20)))
    table = analyze.phase_power(make_totals(watts), steps, phase_count=2)
    assert table["place"].tolist() == ["in steps", "in steps", "outside of steps"]
    assert table["power_w"].iloc[0] == pytest.approx(100, abs=8)
    assert table["power_w"].iloc[1] == pytest.approx(300, abs=10)
    assert table["power_w"].iloc[2] < 100
    assert table["last_share"].tolist()[:2] == [0.5, 1]
    assert table["sample_count"].sum() + table["missing_count"].sum() == 2 * (12 * 19 + 10)


def test_cells_without_power_are_counted_not_filled():
    watts = [100.0] * 10 + [None] * 10 + [100.0] * 10
    table = analyze.phase_power(make_totals(watts), make_steps((0, 0, 30)), phase_count=3)
    assert table["missing_count"].tolist()[1] == 20
    assert np.isnan(table["power_w"].tolist()[1])
    assert table["power_w"].tolist()[0] == 100


def test_the_offset_of_the_meter_moves_the_profile():
    watts = ([0.0] * 5 + [100.0] * 5) * 10
    steps = make_steps(*((n, 10 * n, 10 * n + 10) for n in range(9)))
    late = make_totals(watts, start_s=2)
    right = analyze.phase_power(make_totals(watts), steps)["power_w"]
    moved = analyze.phase_power(late, steps, clock_offset_s=2)["power_w"]
    assert moved.dropna().to_numpy() == pytest.approx(right.dropna().to_numpy(), nan_ok=True)


def test_no_steps_have_no_profile():
    assert analyze.phase_power(make_totals([1.0] * 9), LOGGED_STEPS.empty()).empty
    table = analyze.phase_power(POWER_TOTALS.empty(), make_steps((0, 0, 9)))
    assert table["power_w"].isna().all()
    PHASE_POWER.check(table)


def test_a_series_that_is_not_uniform_is_refused():
    totals = make_totals([1.0] * 9).drop(index=4).reset_index(drop=True)
    with pytest.raises(WorkbenchError, match="not uniform: after row 3 it goes on 2 s later"):
        analyze.phase_power(totals, make_steps((0, 0, 9)))


def test_options_that_mean_nothing_are_refused():
    with pytest.raises(WorkbenchError, match="phase_count must be 1 or more"):
        analyze.phase_power(make_totals([1.0] * 9), make_steps((0, 0, 9)), phase_count=0)
    with pytest.raises(WorkbenchError, match="sample_s must be 1e-09 or more"):
        analyze.phase_power(make_totals([1.0] * 9), make_steps((0, 0, 9)), sample_s=0)


def test_what_is_left_of_a_step_after_another_attempt_began_and_ended_in_it_is_in_the_step():
    steps = make_steps((0, 1, 20), (0, 5, 8, 2))
    table = analyze.phase_power(make_totals([100.0] * 30), steps, sample_s=1)
    assert table["sample_count"].sum() == 19
    assert table["sample_count"].iloc[-1] == 0, "every moment is in a step"


def test_samples_less_than_a_nanosecond_apart_are_refused():
    with pytest.raises(WorkbenchError, match="sample_s must be 1e-09 or more"):
        analyze.phase_power(make_totals([1.0] * 9), make_steps((0, 0, 9)), sample_s=1e-10)
