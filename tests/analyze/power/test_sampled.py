"""A line through few points of a long series: no spike, dip or gap may vanish."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.errors import TableError, WorkbenchError

SECOND = 10**9


def series(values, times=None):
    values = np.asarray(values, dtype=np.float64)
    times = np.arange(len(values)) * SECOND if times is None else np.asarray(times)
    return pd.DataFrame(
        {
            "time_ns": times.astype(np.int64),
            "entity": pd.Categorical(["gpu0"] * len(values)),
            "power_w": values,
        }
    )


def totals(values):
    frame = series(values).drop(columns="entity")
    return frame.assign(entity_count=1, expected_count=1, covered_share=1.0)


values = st.lists(st.floats(0, 1e6), min_size=1, max_size=400)


@given(values, st.integers(8, 60))
def test_extremes_and_ends_stay_and_the_number_of_points_is_kept(numbers, count):
    sampled = analyze.power_sampled(series(numbers), point_count=count)
    assert len(sampled) <= max(count, 0)
    assert sampled["power_w"].max() == max(numbers)
    assert sampled["power_w"].min() == min(numbers)
    assert sampled["row"].iloc[0] == 0
    assert sampled["row"].iloc[-1] == len(numbers) - 1


@given(values, st.integers(8, 60))
def test_every_point_is_a_reading_of_the_series(numbers, count):
    power = series(numbers)
    sampled = analyze.power_sampled(power, point_count=count)
    rows = power.iloc[sampled["row"]]
    assert sampled["power_w"].tolist() == rows["power_w"].tolist()
    assert sampled["time_ns"].tolist() == rows["time_ns"].tolist()
    assert sampled["time_ns"].is_monotonic_increasing


@given(st.integers(0, 9_999), st.integers(1, 3), st.booleans())
def test_a_spike_or_dip_of_a_few_readings_stays(at, length, is_spike):
    numbers = 500 + np.sin(np.arange(10_000) / 50)
    numbers[at : at + length] = 900 if is_spike else 100
    sampled = analyze.power_sampled(totals(numbers), point_count=200)
    kept = sampled["power_w"].max() if is_spike else sampled["power_w"].min()
    assert kept == (900 if is_spike else 100)


@given(st.integers(0, 9_900), st.integers(1, 99))
def test_a_missing_stretch_breaks_the_line(at, length):
    numbers = np.full(10_000, 500.0)
    numbers[at : at + length] = np.nan
    sampled = analyze.power_sampled(totals(numbers), point_count=200)
    missing = sampled[sampled["power_w"].isna()]
    assert len(missing)
    assert missing["row"].between(at, at + length - 1).all()
    assert len(sampled) <= 200


@given(st.integers(1, 9_998), st.integers(5, 10_000))
def test_a_pause_without_rows_breaks_the_line(at, pause_s):
    times = np.arange(10_000) * SECOND
    times[at:] += pause_s * SECOND
    sampled = analyze.power_sampled(series(np.full(10_000, 500.0), times), point_count=200)
    missing = sampled[sampled["power_w"].isna()]
    assert missing["row"].tolist() == [at - 1]
    assert sampled["time_ns"].is_monotonic_increasing
    around = sampled[sampled["power_w"].notna()]["row"]
    assert {at - 1, at} <= set(around)


def test_jitter_and_slow_clocks_are_no_pauses():
    random = np.random.default_rng(1)
    times = np.cumsum(random.normal(2.005, 0.056, 50_000) * SECOND)
    sampled = analyze.power_sampled(series(np.full(50_000, 500.0), times))
    assert sampled["power_w"].notna().all()


def test_a_short_series_is_kept_whole():
    sampled = analyze.power_sampled(series([1, 5, 2, np.nan, 3]), point_count=50)
    assert sampled["row"].tolist() == [0, 1, 2, 3, 4]
    assert sampled["power_w"].isna().tolist() == [False, False, False, True, False]


def test_a_series_full_of_pauses_still_has_few_points():
    times = np.cumsum(np.where(np.arange(5_000) % 2, 1, 100)) * SECOND
    sampled = analyze.power_sampled(series(np.arange(5_000), times), point_count=100)
    assert len(sampled) <= 100
    assert sampled["power_w"].isna().any()


def test_nothing_gives_nothing():
    assert analyze.power_sampled(series([])).empty


def test_readings_of_several_entities_are_refused():
    power = pd.concat([series([1.0]), series([2.0]).assign(entity="gpu1")], ignore_index=True)
    power["entity"] = power["entity"].astype("category")
    with pytest.raises(WorkbenchError, match=r"several entities \(gpu0, gpu1, ...\); pass"):
        analyze.power_sampled(power)


def test_a_series_out_of_order_is_refused():
    power = series([1.0, 2, 3] * 100, np.r_[200:300, 0:200] * SECOND)
    with pytest.raises(WorkbenchError, match="not in order of time; sort"):
        analyze.power_sampled(power, point_count=20)


def test_too_few_points_are_refused():
    with pytest.raises(ValueError, match="point_count is 2; a line needs at least 8"):
        analyze.power_sampled(series([1.0]), point_count=2)
    with pytest.raises(ValueError, match=r"point_count is 99\.5; a line needs at least 8"):
        analyze.power_sampled(series([1.0] * 999), point_count=99.5)


def test_another_table_is_refused():
    with pytest.raises(TableError, match="'power_w' is missing"):
        analyze.power_sampled(pd.DataFrame({"time_ns": [1]}))
