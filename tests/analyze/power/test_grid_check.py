"""Checks against a grid: what is seen can fail, and only what could have failed can pass."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.power_series import cells, mlperf_totals
from workbench import analyze
from workbench.analyze import GridSpec
from workbench.errors import WorkbenchError
from workbench.tables import GRID_CHECK

BAND = GridSpec("band", band_low_hz=0.1, band_high_hz=20, band_share=0.2)
RAMP = GridSpec("ramp", ramp_up_w_per_s=10, ramp_down_w_per_s=10, ramp_window_s=4)
RANGE = GridSpec("range", range_w=50, range_window_s=1)


@pytest.fixture(scope="module")
def totals(real_data):
    return mlperf_totals(real_data("power-mlperf-gpt3-512gpu"))


def verdicts(power, spec, **options):
    table = GRID_CHECK.check(analyze.grid_check(cells(power), spec, **options))
    return dict(zip(table["requirement"], table["verdict"], strict=True))


def wave(hz, size=10.0, count=512):
    return (100 + size * np.sin(2 * np.pi * hz * np.arange(count))).tolist()


@pytest.mark.oracle
def test_a_2_s_meter_cannot_tell_whether_the_critical_band_is_kept(totals):
    row = analyze.grid_check(totals, analyze.grid_spec("critical band")).iloc[0]
    assert row["verdict"] == "unknown"
    assert row["visible_share"] == pytest.approx(0.15 / 19.9)
    assert "0.8% of the band is visible: Nyquist ends it at 0.25 Hz" in row["why"]


@pytest.mark.oracle
def test_a_limit_per_minute_is_scaled_to_the_job_and_fails(totals):
    table = analyze.grid_check(totals, analyze.grid_spec("10 MW/min"), site_w=0.46e6)
    assert table["verdict"].tolist() == ["fail", "fail"]
    assert table["limit"].tolist() == pytest.approx([0.46 / 150 * 10e6 / 60] * 2)
    assert table["measured"].iloc[0] == pytest.approx(126.5e3 / 60, rel=0.001)
    assert table["margin"].iloc[0] == pytest.approx(
        table["limit"].iloc[0] - 126.55e3 / 60, rel=0.001
    )


def test_bundled_specifications_name_their_source_and_how_far_it_is_trusted():
    with pytest.raises(WorkbenchError, match="there are") as told:
        analyze.grid_spec("none of them")
    names = re.findall(r"'(.*?)'", str(told.value).partition("there are")[2])
    assert "critical band" in names
    for name in names:
        spec = analyze.grid_spec(name)
        assert spec.source
        assert spec.trust in {"grid code", "example", "secondary"}


def test_a_band_that_is_seen_whole_passes_or_fails():
    low = replace(BAND, band_high_hz=0.4)
    assert verdicts(wave(0.05), low) == {"energy in 0.1-0.4 Hz": "pass"}
    assert verdicts(wave(0.2), low) == {"energy in 0.1-0.4 Hz": "fail"}


def test_a_band_that_is_seen_in_part_fails_if_that_part_is_too_much_and_never_passes():
    assert verdicts(wave(0.05), BAND) == {"energy in 0.1-20 Hz": "unknown"}
    assert verdicts(wave(0.2), BAND) == {"energy in 0.1-20 Hz": "fail"}


def test_a_band_above_nyquist_has_no_number():
    row = analyze.grid_check(cells(wave(0.2)), replace(BAND, band_low_hz=1.0)).iloc[0]
    assert (row["verdict"], row["visible_share"]) == ("unknown", 0)
    assert np.isnan(row["measured"])
    assert "above Nyquist (0.5 Hz)" in row["why"]


def test_averaging_in_the_sensor_ends_what_is_seen():
    low = replace(BAND, band_high_hz=0.4)
    assert verdicts(wave(0.05), low, averaging_s=1) == {"energy in 0.1-0.4 Hz": "pass"}
    row = analyze.grid_check(cells(wave(0.05)), low, averaging_s=2).iloc[0]
    assert row["verdict"] == "unknown"
    assert "the sensor's averaging ends it at 0.221 Hz" in row["why"]


def test_a_ramp_over_two_cells_can_pass_and_over_less_it_cannot():
    flat = [100.0] * 20
    both = ("ramp up over 4 s", "ramp down over 4 s")
    assert verdicts(flat, RAMP) == dict.fromkeys(both, "pass")
    assert verdicts(flat, RAMP, averaging_s=3) == dict.fromkeys(both, "unknown")
    fast = replace(RAMP, ramp_window_s=1.0)
    assert set(verdicts(flat, fast).values()) == {"unknown"}
    assert set(verdicts(flat, replace(RAMP, ramp_window_s=0.1)).values()) == {"unknown"}
    assert set(verdicts([100.0, 200, 100, 100], replace(RAMP, ramp_window_s=0.1)).values()) == {
        "fail"
    }


def test_a_ramp_is_judged_each_way():
    up_only = [100.0] * 5 + [200.0] * 5
    assert verdicts(up_only, RAMP) == {"ramp up over 4 s": "fail", "ramp down over 4 s": "pass"}


def test_a_range_of_instants_is_never_passed_and_one_of_means_can_be():
    assert verdicts([100.0, 120], RANGE) == {"range of means of 1 s": "pass"}
    assert verdicts([100.0, 151], RANGE) == {"range of means of 1 s": "fail"}
    instants = replace(RANGE, range_window_s=0)
    assert verdicts([100.0, 120], instants) == {"range of instants": "unknown"}
    assert verdicts([100.0, 151], instants) == {"range of instants": "fail"}


def test_nothing_is_passed_where_too_little_is_known():
    gaps = [100.0] * 20 + [None] * 10
    table = analyze.grid_check(cells(gaps), RAMP)
    assert set(table["verdict"]) == {"unknown"}
    assert table["why"].str.contains("of the time is known").all()
    loose = analyze.grid_check(cells(gaps), RAMP, least_covered_share=0.5)
    assert set(loose["verdict"]) == {"pass"}


def test_too_few_cells_for_a_spectrum_are_unknown():
    row = analyze.grid_check(cells([1.0, 2, 3]), BAND).iloc[0]
    assert (row["verdict"], row["why"]) == ("unknown", "fewer than 16 cells without a gap")


@given(st.lists(st.floats(0, 1e6), min_size=20, max_size=60), st.integers(1, 6))
def test_coarser_cells_never_turn_what_fails_into_a_pass_by_blindness(power, factor):
    count = len(power) // factor * factor
    means = np.array(power[:count]).reshape(-1, factor).mean(axis=1)
    if len(means) < 2:
        return
    instants = replace(RANGE, range_window_s=0)
    coarse = analyze.grid_check(cells(means, period_s=factor), instants)
    assert coarse["verdict"].iloc[0] in {"fail", "unknown"}
    if coarse["verdict"].iloc[0] == "fail":
        fine = analyze.grid_check(cells(power[:count]), instants)
        assert fine["verdict"].iloc[0] == "fail"


@given(st.floats(1e3, 1e9), st.floats(1e3, 1e9))
def test_scaling_there_and_back_changes_nothing(first, second):
    spec = analyze.grid_spec("10 MW/min")
    there = spec.scaled_to(first).scaled_to(second).scaled_to(150e6)
    assert there.ramp_up_w_per_s == pytest.approx(spec.ramp_up_w_per_s)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GridSpec("x"), "limits nothing"),
        (lambda: GridSpec("x", ramp_up_w_per_s=1), "give ramp_window_s"),
        (lambda: GridSpec("x", range_w=1), "range_window_s"),
        (lambda: GridSpec("x", band_low_hz=1), "needs band_low_hz, band_high_hz and band_share"),
        (lambda: replace(BAND, band_high_hz=0.1), "the band 0.1-0.1 Hz is empty"),
        (lambda: replace(BAND, band_share=20), "band_share must be between 0 and 1"),
        (lambda: replace(RAMP, ramp_window_s=0), "ramp_window_s must be above 0"),
        (lambda: analyze.grid_spec("EN 50160"), "there are \\['critical band'"),
        (lambda: BAND.scaled_to(1e6), "names no site"),
        (lambda: analyze.grid_spec("10 MW/min").scaled_to(0), "site_w must be above 0"),
        (
            lambda: analyze.grid_check(cells([1e6, 1e6]), analyze.grid_spec("10 MW/min")),
            "give site_w.*peak is 1 MW",
        ),
        (lambda: verdicts([1, 2], BAND, averaging_s=-1), "averaging_s"),
        (lambda: verdicts([1, 2], BAND, least_covered_share=2), "least_covered_share"),
    ],
)
def test_what_makes_no_specification_is_refused_in_words(make, message):
    with pytest.raises(WorkbenchError, match=message):
        make()
