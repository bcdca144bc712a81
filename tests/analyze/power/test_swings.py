"""Swings and ramps: a real job first, then laws, then refusals."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._power import power_ramps
from claims._tables import POWER_RAMPS
from tests.power_series import cells, mlperf_totals
from workbench import analyze
from workbench.errors import TableError, WorkbenchError
from workbench.tables import LOGGED_STEPS, POWER_SWINGS

series = st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=3, max_size=60).filter(
    lambda power: any(each is not None for each in power)
)
whole_series = st.lists(st.floats(0, 1e6), min_size=3, max_size=60)


@pytest.fixture(scope="module")
def totals(real_data):
    return mlperf_totals(real_data("power-mlperf-gpt3-512gpu"))


def steps_of(*spans):
    rows = [
        {"step": n, "attempt": 1, "start_ns": start, "end_ns": end, "source": "x", "line": n + 1}
        for n, (start, end) in enumerate(spans)
    ]
    frame = pd.DataFrame(rows).assign(token_count=None, sample_count=None)
    return LOGGED_STEPS.check(LOGGED_STEPS.cast(frame))


@pytest.mark.oracle
def test_the_fastest_ramp_between_two_readings_is_the_published_one(totals):
    ramps = power_ramps(totals, windows_s=(2,)).set_index("direction")
    assert ramps.loc["down", "ramp_w_per_s"] == pytest.approx(45.7e3, abs=50)
    assert "neighbouring cells" in ramps.loc["down", "note"]


@pytest.mark.oracle
def test_every_step_of_the_real_job_swings_by_tens_of_kilowatts(totals):
    swings = POWER_SWINGS.check(analyze.power_swings(totals, step_s=10.638))
    assert len(swings) == 320
    assert 30e3 < swings["swing_w"].median() < 45e3
    assert (swings["range_w"] >= swings["swing_w"]).all()


def test_a_swing_is_between_percentiles_and_a_range_between_extremes():
    power = [0.0, *[50.0] * 99, 100.0]
    row = analyze.power_swings(cells(power), step_s=101).iloc[0]
    assert row["range_w"] == 100
    assert row["swing_w"] == 0
    assert row["cell_count"] == 101


def test_steps_take_the_cells_that_begin_in_them_and_know_their_share():
    totals = cells([1.0, 2, None, 4, 5, 9])
    steps = steps_of((0, 4 * 10**9), (4 * 10**9, 8 * 10**9), (20 * 10**9, 30 * 10**9))
    swings = analyze.power_swings(totals, steps=steps)
    assert swings["step"].tolist() == [0, 1]
    assert swings["range_w"].tolist() == [3, 4]
    assert swings["covered_share"].tolist() == [0.75, 0.5]


def test_one_known_cell_shows_no_swing():
    swings = analyze.power_swings(cells([1.0, None, 5, 6]), step_s=2)
    assert swings["swing_w"].isna().tolist() == [True, False]


@given(series, st.floats(2, 10))
def test_a_swing_is_never_larger_than_a_range_nor_than_that_of_all(power, step_s):
    totals = cells(power)
    swings = analyze.power_swings(totals, step_s=step_s)
    known = swings["swing_w"].dropna()
    slack = 1e-6
    assert (known <= swings["range_w"].dropna() + slack).all()
    assert (known <= totals["power_w"].max() - totals["power_w"].min() + slack).all()


@given(whole_series)
def test_ramps_of_the_reversed_series_change_places(power):
    ahead = power_ramps(cells(power), windows_s=(1, 2))
    back = power_ramps(cells(power[::-1]), windows_s=(1, 2))
    for one, other in (("up", "down"), ("down", "up")):
        left = ahead.loc[ahead["direction"] == one, "ramp_w_per_s"].to_numpy()
        right = back.loc[back["direction"] == other, "ramp_w_per_s"].to_numpy()
        assert left == pytest.approx(right, nan_ok=True)


@given(whole_series)
def test_a_ramp_over_a_longer_window_is_never_faster(power):
    ramps = power_ramps(cells(power), windows_s=(1, 2))
    fastest = ramps.groupby("window_s")["ramp_w_per_s"].max()
    assert not fastest[2.0] > fastest[1.0] * (1 + 1e-9)


def test_a_window_shorter_than_a_cell_is_flagged_not_guessed():
    ramps = POWER_RAMPS.check(power_ramps(cells([1.0, 5, 2], period_s=2)))
    assert ramps["window_s"].tolist() == [1, 1, 10, 10, 60, 60]
    assert ramps["ramp_w_per_s"].isna().all()
    assert ramps["note"].str.contains("cell of 2 s").sum() == 2
    assert ramps["note"].str.contains("longer than the totals").sum() == 4


def test_ramps_do_not_cross_gaps_and_say_how_much_they_know():
    ramps = power_ramps(cells([1.0, None, 9, 10]), windows_s=(1, 2))
    assert ramps["change_w"].tolist()[:1] == [1.0]
    assert ramps["covered_share"].tolist() == pytest.approx([1 / 3, 1 / 3, 0.5, 0.5])
    assert ramps["start_ns"].isna().tolist() == [False, True, False, True]


def test_an_alternating_gap_leaves_no_window():
    ramps = power_ramps(cells([1.0, None, 9, None]), windows_s=(1,))
    assert set(ramps["note"]) == {"no two known cells are that far apart"}


def test_a_job_without_a_log_has_no_swings_of_steps():
    found = analyze.power_swings(cells([1, 2, 3]), steps=LOGGED_STEPS.empty())
    assert found.empty
    POWER_SWINGS.check(found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: analyze.power_swings(cells([1, 2, 3])), "either steps"),
        (
            lambda: analyze.power_swings(cells([1, 2, 3]), step_s=1),
            "shorter than twice a cell of 1 s",
        ),
        (
            lambda: analyze.power_swings(cells([1, 2]), steps=steps_of((10**12, 10**12 + 5))),
            "same clock",
        ),
        (lambda: analyze.power_swings(cells([1, 2]), step_s=-1), "step_s must be above 0"),
        (lambda: power_ramps(cells([1, 2]), windows_s=()), "windows_s is empty"),
        (lambda: power_ramps(cells([1, 2]), windows_s=(0,)), "must be above 0"),
        (lambda: power_ramps(cells([1])), "2 are needed to know their period"),
        (lambda: power_ramps(cells([None, None])), "no known power"),
        (lambda: power_ramps(cells([1, float("inf")])), "infinite power"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(call, message):
    with pytest.raises(WorkbenchError, match=message):
        call()


def test_meters_that_are_never_known_together_are_named_as_the_reason():
    apart = cells([None, None, None]).assign(entity_count=[7, 0, 1], expected_count=8)
    apart = apart.assign(covered_share=apart["entity_count"] / 8)
    with pytest.raises(WorkbenchError, match=r"at most 7 of 8 meters .* is the clock of some off"):
        power_ramps(apart)


def test_a_series_with_uneven_cells_is_refused_with_its_place():
    totals = cells([1.0, 2, 3, 4]).iloc[[0, 1, 3]]
    with pytest.raises(WorkbenchError, match="row 2 comes 2 s after"):
        power_ramps(totals)
    with pytest.raises(TableError, match="'power_w' is missing"):
        power_ramps(totals.drop(columns="power_w"))
