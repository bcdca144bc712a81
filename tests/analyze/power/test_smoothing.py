"""Smoothing: published numbers, the plain algorithm, then laws of energy and limits."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.power_series import cells, mlperf_totals
from workbench import analyze
from workbench.analyze import GridSpec, SmoothingPlan
from workbench.errors import WorkbenchError
from workbench.tables import POWER_SMOOTHING, SMOOTHING_SUMMARY

KWH = 3.6e6
powers = st.lists(st.floats(0, 1e6), min_size=2, max_size=80)
stores = st.builds(
    SmoothingPlan,
    floor_share=st.sampled_from([0.0, 0.8]),
    storage_tau_s=st.floats(0.5, 100),
    storage_power_w=st.one_of(st.none(), st.floats(1e3, 1e6)),
    storage_energy_j=st.one_of(st.none(), st.floats(1e3, 1e7)),
    storage_efficiency_share=st.floats(0.5, 1),
    storage_start_share=st.floats(0, 1),
    charge_control_s=st.one_of(st.none(), st.floats(5, 500)),
)


@pytest.fixture(scope="module")
def totals(real_data):
    return mlperf_totals(real_data("power-mlperf-gpt3-512gpu"))


def after(totals, **settings):
    smoothing = POWER_SMOOTHING.check(analyze.power_smoothing(totals, SmoothingPlan(**settings)))
    table = SMOOTHING_SUMMARY.check(analyze.smoothing_summary(smoothing))
    return table.set_index("version").loc["after"]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("floor", "more", "swing", "ramp"),
    [
        (0.80, 0.01, 64.6, 40.3),
        (0.85, 0.03, 64.6, 30.3),
        (0.90, 0.28, 44.7, 21.1),
        (0.95, 1.67, 21.8, 10.8),
    ],
)
def test_floors_cost_and_leave_what_was_published(totals, floor, more, swing, ramp):
    row = after(totals, floor_share=floor)
    assert 100 * (row["energy_ratio"] - 1) == pytest.approx(more, abs=0.005)
    assert row["swing_w"] / 1e3 == pytest.approx(swing, abs=0.05)
    assert row["ramp_w_per_s"] / 1e3 == pytest.approx(ramp, abs=0.05)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("tau", "deviation", "power", "energy", "ramp"),
    [
        (10, 6.859, 93.0, 0.1103, 8.41),
        (30, 3.65, 101.4, 0.189, 3.38),
        (60, 2.15, 106.4, 0.231, 1.77),
        (300, 0.61, 110.2, 0.285, 0.37),
    ],
)
def test_stores_need_and_leave_what_was_published(totals, tau, deviation, power, energy, ramp):
    row = after(totals, storage_tau_s=tau)
    assert row["deviation_w"] / 1e3 == pytest.approx(deviation, abs=0.005)
    assert row["storage_w"] / 1e3 == pytest.approx(power, abs=0.05)
    assert row["storage_j"] / KWH == pytest.approx(energy, abs=0.0005)
    assert row["ramp_w_per_s"] / 1e3 == pytest.approx(ramp, abs=0.005)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("ramp", "power", "energy"), [(1, 111.9, 8.632), (5, 99.9, 4.287), (10, 79.9, 1.638)]
)
def test_limited_ramps_without_charge_control_drift_as_published(totals, ramp, power, energy):
    row = after(totals, storage_ramp_w_per_s=1e3 * ramp)
    assert row["storage_w"] / 1e3 == pytest.approx(power, abs=0.05)
    assert row["storage_j"] / KWH == pytest.approx(energy, abs=0.0005)
    assert row["ramp_w_per_s"] <= 1e3 * ramp * (1 + 1e-9)
    steered = after(totals, storage_ramp_w_per_s=1e3 * ramp, charge_control_s=120)
    assert steered["storage_j"] < row["storage_j"]


def plain(power, floor, up, down, hysteresis, dt):
    """Follow the algorithm word by word."""
    out, hold = [max(power[0], floor)], 0
    for each in power[1:]:
        target = max(each, floor)
        if target >= out[-1]:
            out.append(min(target, out[-1] + up * dt))
            hold = 0
        elif hold < hysteresis / dt:
            out.append(out[-1])
            hold += 1
        else:
            out.append(max(target, out[-1] - down * dt))
    return out


@given(
    powers, st.floats(0, 1), st.floats(1, 1e6), st.floats(1, 1e6), st.floats(0, 20),
    st.sampled_from([0.1, 1.0, 2.0]),
)  # fmt: skip
def test_machines_draw_what_the_plain_algorithm_says(power, floor, up, down, hysteresis, dt):
    plan = SmoothingPlan(
        floor_share=floor, ramp_up_w_per_s=up, ramp_down_w_per_s=down, hysteresis_s=hysteresis
    )
    smoothed = analyze.power_smoothing(cells(power, period_s=dt), plan)
    expected = plain(power, floor * max(power), up, down, hysteresis, dt)
    assert smoothed["load_w"].tolist() == pytest.approx(expected)


def test_power_is_held_before_it_falls():
    plan = SmoothingPlan(ramp_down_w_per_s=10, hysteresis_s=2)
    smoothed = analyze.power_smoothing(cells([100.0, 50, 50, 50, 50, 120]), plan)
    assert smoothed["smoothed_w"].tolist() == [100, 100, 100, 90, 80, 120]


def test_a_slow_rise_holds_demand_back_and_says_how_much():
    row = after(cells([10.0, 40, 40, 40]), ramp_up_w_per_s=10)
    assert row["unmet_j"] == 20 + 10
    assert row["ballast_j"] == 0


@given(powers, st.floats(0, 1))
def test_a_floor_never_lowers_power_and_keeps_it_above_the_floor(power, floor):
    smoothed = analyze.power_smoothing(cells(power), SmoothingPlan(floor_share=floor))
    assert (smoothed["smoothed_w"] >= smoothed["power_w"]).all()
    assert (smoothed["smoothed_w"] >= floor * max(power) * (1 - 1e-9)).all()
    assert (smoothed["unmet_w"] == 0).all()


@given(powers, st.floats(0, 1e5))
def test_ballast_is_never_more_than_it_may_be(power, ballast):
    plan = SmoothingPlan(floor_share=1, ballast_w=ballast)
    smoothed = analyze.power_smoothing(cells(power), plan)
    assert smoothed["ballast_w"].max() <= ballast + 1e-6


@given(powers, stores)
def test_a_store_gives_back_what_it_took_less_its_losses(power, plan):
    smoothed = analyze.power_smoothing(cells(power), plan)
    moved, lost = smoothed["storage_w"], smoothed["lost_w"]
    start = plan.store().start_j
    assert smoothed["stored_j"].iloc[-1] - start == pytest.approx(
        (moved - lost).sum(), abs=1e-6 * max(1e6, moved.abs().sum())
    )
    assert (lost >= 0).all()
    assert smoothed["smoothed_w"].to_numpy() == pytest.approx(
        (smoothed["load_w"] + moved).to_numpy()
    )


@given(powers, stores)
def test_a_store_keeps_to_its_power_and_its_capacity_and_the_grid_is_never_fed(power, plan):
    smoothed = analyze.power_smoothing(cells(power), plan)
    if plan.storage_power_w is not None:
        assert smoothed["storage_w"].abs().max() <= plan.storage_power_w * (1 + 1e-9)
    if plan.storage_energy_j is not None:
        assert smoothed["stored_share"].between(0, 1).all()
    assert smoothed["smoothed_w"].min() >= -1e-6


@given(powers, st.floats(1, 1e5), st.one_of(st.none(), st.floats(10, 1e3)))
def test_an_unlimited_store_keeps_to_its_ramps(power, ramp, control):
    plan = SmoothingPlan(storage_ramp_w_per_s=ramp, charge_control_s=control)
    smoothed = analyze.power_smoothing(cells(power), plan)
    changes = np.abs(np.diff(smoothed["smoothed_w"]))
    assert changes.max(initial=0) <= ramp * (1 + 1e-9) + 1e-6


@given(powers, st.floats(0.5, 100))
def test_the_filter_and_the_loop_over_cells_agree(power, tau):
    fast = analyze.power_smoothing(cells(power), SmoothingPlan(storage_tau_s=tau))
    slow = analyze.power_smoothing(
        cells(power), SmoothingPlan(storage_tau_s=tau, storage_power_w=1e12)
    )
    assert fast["smoothed_w"].to_numpy() == pytest.approx(slow["smoothed_w"].to_numpy(), abs=1e-4)


def test_an_empty_store_lets_the_grid_see_the_load():
    plan = SmoothingPlan(
        storage_tau_s=1e6, storage_energy_j=5, storage_start_share=0, storage_power_w=1e6
    )
    smoothed = analyze.power_smoothing(cells([10.0, 30, 30, 30]), plan)
    assert smoothed["smoothed_w"].tolist() == pytest.approx([15, 25, 30, 30], abs=0.1)


def test_a_plan_that_does_nothing_changes_nothing():
    smoothed = analyze.power_smoothing(cells([10.0, 30, 20]), SmoothingPlan())
    assert smoothed["smoothed_w"].tolist() == [10, 30, 20]
    assert SmoothingPlan().words() == "nothing"
    both = SmoothingPlan(floor_share=0.9, hysteresis_s=2, ramp_up_w_per_s=5e3, storage_tau_s=10)
    assert both.words() == "floor 90 %, ramps 5 kW/s, hold 2 s, storage tau 10 s"
    limited = SmoothingPlan(storage_ramp_w_per_s=2e3, storage_energy_j=KWH)
    assert limited.words() == "storage ramps 2 kW/s, 1 kWh"


def test_short_gaps_are_filled_and_marked_and_cells_beyond_a_long_one_stay_missing():
    totals = cells([5.0, None, 7, 6, None, None, None, 9, 9])
    smoothed = analyze.power_smoothing(totals, SmoothingPlan(floor_share=1))
    assert smoothed["is_filled"].tolist() == [False, True, *[False] * 7]
    assert smoothed["smoothed_w"].notna().tolist() == [True] * 4 + [False] * 5
    summary = analyze.smoothing_summary(smoothed)
    assert summary["covered_share"].tolist() == pytest.approx([4 / 9, 4 / 9])


def test_the_summary_checks_both_versions_against_the_grid():
    power = [100.0, 100, 200, 200] * 8
    smoothed = analyze.power_smoothing(cells(power), SmoothingPlan(storage_tau_s=500))
    spec = GridSpec("own", range_w=50, range_window_s=1)
    summary = analyze.smoothing_summary(smoothed, spec=spec)
    assert summary["verdict"].tolist() == ["fail", "pass"]
    assert summary["why"].tolist()[1] == "range of means of 1 s: pass"
    assert analyze.smoothing_summary(smoothed)["verdict"].isna().all()


@pytest.mark.slow
def test_a_slider_answers_in_a_tenth_of_a_second_over_a_hundred_thousand_cells():
    power = np.random.default_rng(1).uniform(3e5, 5e5, 100_000)
    totals = cells(power)
    plan = SmoothingPlan(
        floor_share=0.8, ramp_up_w_per_s=1e4, ramp_down_w_per_s=1e4, hysteresis_s=5
    )
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        analyze.power_smoothing(totals, plan)
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SmoothingPlan(floor_share=90), "floor_share must be 0 or more and at most 1"),
        (lambda: SmoothingPlan(hysteresis_s=-1), "hysteresis_s"),
        (lambda: SmoothingPlan(ballast_w=-1), "ballast_w"),
        (lambda: SmoothingPlan(storage_tau_s=0), "storage_tau_s must be above 0"),
        (lambda: SmoothingPlan(storage_tau_s=1, storage_ramp_w_per_s=1), "not both"),
        (lambda: SmoothingPlan(storage_energy_j=1), "limits of storage need storage"),
        (lambda: SmoothingPlan(storage_efficiency_share=0), "storage_efficiency_share"),
        (
            lambda: analyze.power_smoothing(
                cells([1.0, 2]), SmoothingPlan(floor_share=0.9, reference_w=1e6)
            ),
            "reference_w is 1e\\+06 W, the totals peak at 2 W",
        ),
        (lambda: analyze.smoothing_summary(POWER_SMOOTHING.empty()), "0 of 0 cells are known"),
    ],
)
def test_what_makes_no_plan_is_refused_in_words(call, message):
    with pytest.raises(WorkbenchError, match=message):
        call()


def test_a_summary_of_no_power_at_all_is_refused():
    smoothed = analyze.power_smoothing(cells([0.0] * 9), SmoothingPlan(storage_tau_s=3))
    with pytest.raises(WorkbenchError, match="power is 0 in all of 9 cells"):
        analyze.smoothing_summary(smoothed)
