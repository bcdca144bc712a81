"""Energy from counters: laws, resets, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.power.power_rows import SECOND, every_s, readings
from workbench import analyze
from workbench.errors import TableError


def counters(**series):
    return readings("energy_j", **series)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30))
def test_without_a_reset_it_is_the_last_reading_minus_the_first(rises):
    values = np.cumsum(rises)
    row = analyze.energy_from_counter(counters(gpu0=every_s(values))).iloc[0]
    assert row["energy_j"] == pytest.approx(values[-1] - values[0])
    assert (row["reset_count"], row["covered_share"]) == (0, 1)


@given(st.lists(st.floats(0, 1000), min_size=2, max_size=30))
def test_a_counter_of_power_gives_the_energy_of_that_power(levels):
    power = readings(gpu0=every_s(levels))
    counter = np.r_[0, np.cumsum((np.array(levels[1:]) + levels[:-1]) / 2)]
    counted = analyze.energy_from_counter(counters(gpu0=every_s(counter)))
    assert counted["energy_j"].item() == pytest.approx(
        analyze.energy(power)["energy_j"].item(), abs=1e-6
    )


def test_a_fall_begins_anew_and_its_time_is_unknown():
    row = analyze.energy_from_counter(counters(gpu0=every_s([900, 990, 40, 100]))).iloc[0]
    assert row["energy_j"] == 150
    assert (row["reset_count"], row["unknown_s"]) == (1, 1)
    assert row["mean_w"] == 75, "over the time that is known"
    assert row["method"] == "counter"


def test_a_counter_is_right_across_a_gap():
    gap = counters(gpu0=[*every_s([0, 10, 20]), (100, 1_000)])
    row = analyze.energy_from_counter(gap).iloc[0]
    assert (row["energy_j"], row["covered_share"]) == (1_000, 1)


def test_a_difference_over_a_gap_is_not_divided():
    gap = counters(gpu0=[*every_s([0, 10, 20]), (100, 1_000)])
    row = analyze.energy_from_counter(gap, end_ns=50 * SECOND).iloc[0]
    assert (row["energy_j"], row["unknown_s"]) == (20, 48)
    near = analyze.energy_from_counter(gap, end_ns=3 * SECOND // 2).iloc[0]
    assert near["energy_j"] == pytest.approx(15), "a usual difference is, in proportion to time"


def test_resets_outside_the_window_are_not_counted():
    table = counters(gpu0=every_s([900, 990, 40, 100, 200]))
    assert analyze.energy_from_counter(table, start_ns=2 * SECOND)["reset_count"].item() == 0


def test_the_first_reading_of_the_next_device_is_no_reset():
    table = counters(gpu0=every_s([900, 990]), gpu1=every_s([0, 5]))
    energy = analyze.energy_from_counter(table)
    assert energy["energy_j"].tolist() == [90, 5]
    assert energy["reset_count"].tolist() == [0, 0]


def test_the_last_of_several_readings_of_one_instant_counts():
    table = counters(gpu0=[(0, 0), (1, 10), (1, 12), (2, 20)])
    assert analyze.energy_from_counter(table)["energy_j"].item() == 20


def test_readings_that_were_lost_are_skipped():
    row = analyze.energy_from_counter(counters(gpu0=every_s([0, float("nan"), 20]))).iloc[0]
    assert (row["energy_j"], row["reading_count"], row["covered_share"]) == (20, 2, 1)


def test_other_tables_and_empty_ones_are_refused():
    table = counters(gpu0=every_s([1, 1]))
    with pytest.raises(TableError, match="'energy_j' is missing"):
        analyze.energy_from_counter(table.drop(columns="energy_j"))
    with pytest.raises(ValueError, match="the table has no readings"):
        analyze.energy_from_counter(table.iloc[:0])
