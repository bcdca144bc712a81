"""Drawn embedding outputs: repeats and values follow the stated law."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import make
from workbench.errors import WorkbenchError


def test_a_seed_gives_the_same_outputs_and_another_one_others():
    first, again = (make.embedding_outputs().arrays for _ in range(2))
    other = make.embedding_outputs(seed=8).arrays
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)


@given(st.integers(1, 50), st.integers(1, 60), st.floats(0, 3))
def test_rows_are_those_of_the_table_and_values_within_the_scale(size, row_count, skew):
    outputs = make.embedding_outputs(
        {"users": size}, row_count=row_count, dim=4, skew=skew, scale=0.5
    )
    rows = outputs.arrays["users"]
    assert rows.shape == (row_count, 4)
    assert len(np.unique(rows, axis=0)) <= size
    assert np.abs(rows).max() <= 0.5


@pytest.mark.oracle
def test_the_most_popular_row_has_the_share_of_its_law():
    rows = make.embedding_outputs({"users": 100}, row_count=20_000, skew=1).arrays["users"]
    _, counts = np.unique(rows, axis=0, return_counts=True)
    share = 1 / (1 / np.arange(1, 101)).sum()
    assert counts.max() / 20_000 == pytest.approx(share, rel=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cardinalities": {}}, "0 tables, 0 values"),
        ({"cardinalities": {"a": 0}}, "rows of 'a' is 0"),
        ({"row_count": 0}, "row_count is 0"),
        ({"dim": 0}, "dim is 0"),
        ({"scale": float("nan")}, "scale is nan"),
        ({"skew": -1}, "skew is -1"),
        ({"cardinalities": {"a": 10**9}}, "at most 500,000,000 values"),
    ],
)
def test_numbers_that_make_no_sense_are_named(options, message):
    with pytest.raises(WorkbenchError, match=message):
        make.embedding_outputs(**options)
