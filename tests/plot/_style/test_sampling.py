"""Thinning a series must not change what a reader would say about it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.plot._style.lanes import extremes

series = arrays(
    np.float64,
    st.integers(min_value=0, max_value=400),
    elements=st.one_of(st.floats(-1e6, 1e6), st.just(np.nan)),
)
limits = st.integers(min_value=4, max_value=120)


@given(series, limits)
def test_the_highest_the_lowest_and_both_ends_stay(values, limit):
    kept = extremes(values, limit)
    assert len(kept) <= max(limit, 0)
    assert (np.diff(kept) > 0).all()
    if len(values):
        assert kept[0] == 0
        assert kept[-1] == len(values) - 1
    if not np.isnan(values).all():
        assert np.nanmax(values[kept]) == np.nanmax(values)
        assert np.nanmin(values[kept]) == np.nanmin(values)


@given(series)
def test_a_short_series_is_left_alone(values):
    assert extremes(values, 400).tolist() == list(range(len(values)))


@given(
    st.integers(min_value=6, max_value=50),
    st.lists(st.integers(0, 9_999), min_size=1, max_size=2, unique=True),
)
def test_a_single_spike_survives_in_a_long_series(limit, spikes):
    values = np.zeros(10_000)
    values[spikes[0]] = 1
    assert spikes[0] in extremes(values, limit)


def test_whole_numbers_are_thinned_too():
    values = np.arange(100_000, dtype=np.int64)
    assert len(extremes(values)) <= 5_000


def test_refuses_a_limit_that_cannot_keep_the_ends():
    with pytest.raises(ValueError, match="limit is 3"):
        extremes(np.zeros(3), 3)
