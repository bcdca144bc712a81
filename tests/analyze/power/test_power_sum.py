"""The sum of meters keeps what they read, against straight lines added up on all their stamps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._power import band_shares, power_ramps
from tests.analyze.fleet.work_rows import make_steps
from tests.analyze.power.power_rows import every_s, readings
from tests.power_series import cells
from workbench import analyze
from workbench.analyze import GridSpec
from workbench.errors import WorkbenchError

PERIOD_S, WINDOW_S = 2.0, 10.0
BAND = GridSpec("band", band_low_hz=0.1, band_high_hz=1, band_share=0.9)
RAMP = GridSpec("ramp", ramp_window_s=10, ramp_up_w_per_s=1e9, ramp_down_w_per_s=1e9)
hosts_of = st.lists(
    st.tuples(st.floats(0, 1.9), st.lists(st.floats(0, 1e4), min_size=20, max_size=40)),
    min_size=1,
    max_size=4,
)


def of_hosts(hosts):
    series = {
        f"n{n}": every_s(watts, round(at, 3), PERIOD_S) for n, (at, watts) in enumerate(hosts)
    }
    return readings(**series), list(series.values())


def by_brute_force(series, totals):
    """Add up the straight lines at every stamp, and at those a window before or after one.

    Only where the sum is known: readings at its ends may cover too little of a cell.
    """
    lines = [np.array(pairs).T for pairs in series]
    known_s = totals.loc[totals["power_w"].notna(), "time_ns"] / 1e9
    first = max(known_s.min(), *(t[0] for t, _ in lines))
    last = min(known_s.max() + np.diff(known_s).min(), *(t[-1] for t, _ in lines))
    stamps = np.unique(np.concatenate([*(t for t, _ in lines), [first, last]]))

    def at(when):
        return sum(np.interp(when, t, w) for t, w in lines)

    inside = stamps[(stamps >= first) & (stamps <= last)]
    starts = np.concatenate([inside, inside - WINDOW_S])
    starts = starts[(starts >= first) & (starts + WINDOW_S <= last)]
    change = at(starts + WINDOW_S) - at(starts)
    return at(inside), change


@given(hosts_of)
def test_dips_peaks_and_ramps_of_hosts_without_a_common_clock_are_not_blunted(hosts):
    power, series = of_hosts(hosts)
    totals = analyze.power_sum(power)
    true_w, change = by_brute_force(series, totals)
    # A straight line loses half a cell of its slope: 1/16 of what changes between readings.
    lost_w = sum(np.abs(np.diff([w for _, w in pairs])).max() for pairs in series) / 16 + 1e-3
    watts = totals["power_w"].dropna()
    assert true_w.min() - 1e-3 <= watts.min() <= true_w.min() + lost_w
    assert true_w.max() - lost_w <= watts.max() <= true_w.max() + 1e-3
    ramps = power_ramps(totals, windows_s=[WINDOW_S]).set_index("direction")
    for way, most in (("up", change.max()), ("down", -change.min())):
        measured = ramps.loc[way, "ramp_w_per_s"]
        assert measured >= (max(most, 0) - 2 * lost_w) / WINDOW_S - 1e-6
        assert measured <= max(most, 0) / WINDOW_S + 1e-3


def test_a_dip_of_one_reading_keeps_its_depth():
    watts = [1000.0] * 20 + [200.0] + [1000.0] * 20
    power = readings(a=every_s(watts, 0, 2))
    assert analyze.power_sum(power)["power_w"].min() == pytest.approx(240)
    # What a cell as long as the time between readings leaves of it.
    assert analyze.power_sum(power, period_s=2)["power_w"].min() == pytest.approx(600)


def test_the_sum_is_that_of_grid_and_totals_and_does_not_depend_on_order():
    power = readings(a=every_s([1.0, 5, 2, 8], 0.3), b=every_s([3.0, None, 4, 4], 0.1))
    by_grid = analyze.power_totals(analyze.power_grid(power, period_s=0.25))
    summed = analyze.power_sum(power, period_s=0.25)
    assert by_grid.equals(summed)
    assert analyze.power_sum(power.sample(frac=1, random_state=3), period_s=0.25).equals(summed)


def test_finer_cells_do_not_let_a_slow_meter_pass_what_it_cannot_see():
    power = readings(a=every_s([100.0, 900.0] * 20, 0, 30))
    totals = analyze.power_sum(power, period_s=0.5)
    ramps = power_ramps(totals, windows_s=[10, 60])
    assert ramps.loc[ramps["window_s"] == 10, "ramp_w_per_s"].isna().all()
    assert "30 s between two readings" in ramps["note"].iloc[0]
    assert ramps.loc[ramps["window_s"] == 60, "ramp_w_per_s"].notna().all()
    assert set(analyze.grid_check(totals, RAMP)["verdict"]) == {"unknown"}
    assert analyze.grid_check(totals, BAND)["verdict"].tolist() == ["unknown"]
    spectrum = analyze.power_spectrum(totals)
    assert spectrum["nyquist_hz"].iloc[0] == pytest.approx(1 / 60)
    assert spectrum["frequency_hz"].max() <= 1 / 60 + 1e-9
    with pytest.raises(WorkbenchError, match="twice the 30 s between two readings"):
        analyze.power_swings(totals, step_s=10)
    steps = make_steps((0, 0, 10), (1, 10, 20))
    assert analyze.power_swings(totals, steps=steps)["swing_w"].isna().all()
    smoothed = analyze.power_smoothing(totals, analyze.SmoothingPlan(floor_share=0.1))
    assert analyze.smoothing_summary(smoothed, spec=RAMP)["verdict"].eq("unknown").all()


def test_a_window_under_two_readings_says_that_it_may_show_a_part_only():
    power = readings(a=every_s([100.0, 900.0] * 20, 0, 8))
    ramps = power_ramps(analyze.power_sum(power), windows_s=[10])
    assert ramps["note"].str.contains("under twice the 8 s between two readings").all()


def test_the_spectrum_of_finer_cells_is_that_of_the_readings():
    wave = (900 + 100 * np.sin(np.arange(512) * np.pi / 4)).tolist()
    power = readings(a=every_s(wave))
    fine = analyze.power_spectrum(analyze.power_sum(power))
    coarse = analyze.power_spectrum(analyze.power_sum(power, period_s=1))
    columns = ["frequency_hz", "variance_share", "nyquist_hz"]
    assert np.allclose(fine[columns], coarse[columns])
    shares = [band_shares(analyze.power_sum(power, period_s=p), [(0.1, 5)]) for p in (1, None)]
    assert np.allclose(shares[0], shares[1])


def test_windows_of_whole_seconds_are_measured_over_whole_seconds():
    power = readings(a=every_s([100.0, 900.0] * 40, 0, 2.005))
    ramps = power_ramps(analyze.power_sum(power), windows_s=[3, 10, 60])
    assert np.allclose(ramps["measured_s"], ramps["window_s"])


def test_totals_of_an_unknown_meter_are_taken_at_their_word():
    assert power_ramps(cells([1.0, 2, 4]), windows_s=[1])["ramp_w_per_s"].tolist() == [2, 0]
