"""Popularity of rows falls by its exponent, and says that it is synthetic."""

import pytest

from workbench import simulate
from workbench.errors import WorkbenchError


@pytest.mark.parametrize("exponent", [0, 0.9, 1.2])
def test_popularity_falls_by_the_exponent(exponent):
    shares = simulate.row_popularity(1_000, exponent)["lookup_share"]
    assert shares.sum() == pytest.approx(1)
    assert shares[0] / shares[99] == pytest.approx(100**exponent)


def test_drawn_popularity_says_so():
    table = simulate.row_popularity(5, 1.0)
    assert table.attrs["synthetic"] is True
    assert table.attrs["source"]


def test_numbers_that_cannot_be_are_refused():
    with pytest.raises(WorkbenchError, match="rows must be 1 or more, not 0"):
        simulate.row_popularity(0, 1.0)
    for exponent in (-1, float("nan"), float("inf")):
        with pytest.raises(WorkbenchError, match="exponent must be a finite number from 0"):
            simulate.row_popularity(10, exponent)
