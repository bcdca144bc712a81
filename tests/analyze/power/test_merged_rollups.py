"""Longer cells made of shorter ones are those of the readings themselves."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.errors import TableError, WorkbenchError
from workbench.tables import POWER_ROLLUP

SECOND = 10**9
readings = st.lists(
    st.tuples(st.integers(0, 600), st.sampled_from("ab"), st.floats(0, 2_000)), min_size=1
)


def rolled_up(rows, period_s):
    """Roll up (second, entity, watts) as directly as it can be said."""
    frame = pd.DataFrame(rows, columns=["second", "entity", "watts"])
    frame["time_ns"] = frame["second"] // period_s * period_s * SECOND
    by = frame.groupby(["entity", "time_ns"])["watts"]
    table = by.agg(reading_count="count", mean_w="mean", min_w="min", max_w="max").reset_index()
    squares = by.apply(lambda watts: float(((watts - watts.mean()) ** 2).sum()))
    table["m2_w2"] = squares.to_numpy()
    table["entity"] = table["entity"].astype("category")
    table["period_s"] = float(period_s)
    return POWER_ROLLUP.check(table[list(POWER_ROLLUP.columns)])


@given(readings)
def test_merging_gives_what_the_readings_give_directly(rows):
    short = rolled_up(rows, 10)
    for longer in (60, 120):
        merged = analyze.merged_rollups(short, period_s=longer)
        pd.testing.assert_frame_equal(merged, rolled_up(rows, longer), rtol=1e-9, atol=1e-6)


@given(readings)
def test_merging_in_steps_gives_what_merging_at_once_does(rows):
    short = rolled_up(rows, 10)
    steps = analyze.merged_rollups(analyze.merged_rollups(short, period_s=60), period_s=300)
    at_once = analyze.merged_rollups(short, period_s=300)
    pd.testing.assert_frame_equal(steps, at_once, rtol=1e-9, atol=1e-6)


@given(st.lists(st.floats(0, 1e-3), min_size=4, max_size=50))
def test_small_deviations_from_a_large_mean_are_not_lost(deviations):
    base = 1e9
    watts = base + np.array(deviations)
    rows = [(10 * n, "a", each) for n, each in enumerate(watts)]
    merged = analyze.merged_rollups(rolled_up(rows, 10), period_s=1_000)
    expected = float(((watts - watts.mean()) ** 2).sum())
    # Floats near 1e9 lie 1.2e-7 apart, a ten-thousandth of the largest deviation: each merge rounds
    # its mean to one of them, and plain sums of squares would lose all digits.
    spacing = np.spacing(base)
    near = len(watts) * spacing**2 + 1e-5 * expected
    assert merged["m2_w2"].iloc[0] == pytest.approx(expected, rel=0, abs=near)


def test_equal_powers_have_no_deviation():
    rows = [(n, "a", 0.1) for n in range(600)]
    merged = analyze.merged_rollups(rolled_up(rows, 10), period_s=600)
    assert merged[["reading_count", "mean_w", "min_w", "max_w"]].to_numpy().tolist() == [
        [600, 0.1, 0.1, 0.1]
    ]
    assert merged["m2_w2"].iloc[0] < 1e-25


def test_a_period_that_is_no_multiple_is_refused():
    short = rolled_up([(0, "a", 1.0), (70, "a", 2.0)], 10)
    with pytest.raises(WorkbenchError, match=r"period_s is 15, no multiple of .* \[10.0\] s"):
        analyze.merged_rollups(short, period_s=15)


@pytest.mark.parametrize("period_s", [0, -10, float("inf")])
def test_a_period_that_is_none_is_refused(period_s):
    with pytest.raises(WorkbenchError, match="no multiple"):
        analyze.merged_rollups(rolled_up([(0, "a", 1.0)], 10), period_s=period_s)


def test_an_empty_rollup_stays_empty():
    assert analyze.merged_rollups(POWER_ROLLUP.empty(), period_s=60).empty


def test_another_table_is_refused():
    with pytest.raises(TableError, match="'m2_w2' is missing"):
        analyze.merged_rollups(pd.DataFrame({"time_ns": [0]}), period_s=60)
