"""Only a clock that is surely wrong is corrected for."""

import numpy as np
import pandas as pd
import pytest

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import POWER_CLOCK_OFFSET


def found(offset, low, high, *, is_ambiguous=False):
    row = {"offset_s": offset, "low_s": low, "high_s": high, "correlation": 0.9, "doubt": ""}
    row |= {"next_offset_s": 1.0, "next_correlation": 0.1, "is_ambiguous": is_ambiguous}
    return POWER_CLOCK_OFFSET.cast(pd.DataFrame([row | {"cell_count": 99}]))


@pytest.mark.parametrize(
    ("offset", "low", "high", "corrected"),
    [
        (30.0, 29.0, 31.0, 30.0),
        (-30.0, -31.0, -29.0, -30.0),
        (0.6, 0.4, 0.7, 0.0),
        (3.0, 1.0, 5.0, 0.0),
        (np.nan, np.nan, np.nan, 0.0),
    ],
)
def test_an_offset_is_taken_if_all_of_its_interval_is_large(offset, low, high, corrected):
    assert analyze.clock_correction_s(found(offset, low, high)) == corrected


def test_an_ambiguous_offset_is_left_alone():
    assert analyze.clock_correction_s(found(30.0, 29.0, 31.0, is_ambiguous=True)) == 0.0


def test_what_counts_as_large_can_be_said():
    assert analyze.clock_correction_s(found(0.6, 0.4, 0.7), least_s=0.1) == 0.6


def test_a_least_offset_that_is_none_is_refused():
    with pytest.raises(WorkbenchError, match="least_s"):
        analyze.clock_correction_s(found(1, 1, 1), least_s=0)
