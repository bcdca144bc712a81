"""A series is cut to the job, and to whole cells that were measured."""

import numpy as np
import pandas as pd
import pytest

from workbench import analyze
from workbench.tables import LOGGED_SPANS, POWER_TOTALS

SECOND = 1_000_000_000


@pytest.fixture
def totals():
    power = np.array([np.nan, 1.0, 2.0, np.nan, 4.0, 5.0, np.nan, np.nan])
    frame = pd.DataFrame({"time_ns": np.arange(8) * SECOND, "power_w": power})
    return POWER_TOTALS.check(frame.assign(entity_count=1, expected_count=1, covered_share=1.0))


def spans(*rows):
    usual = {"attempt": 1, "step": pd.NA, "source": "log", "line": 1}
    frame = pd.DataFrame([{"kind": k, "start_ns": a, "end_ns": b, **usual} for k, a, b in rows])
    return LOGGED_SPANS.cast(frame)


def kept(found):
    return (found["time_ns"] // SECOND).tolist()


def test_only_whole_cells_inside_the_run_are_kept(totals):
    run = spans(("run", SECOND // 2, 5 * SECOND + 1))
    assert kept(analyze.power_during(totals, run)) == [1, 2, 3, 4]


def test_gaps_inside_stay_and_unmeasured_ends_go(totals):
    cells = analyze.power_during(totals, spans(("run", 0, 100 * SECOND)))
    assert kept(cells) == [1, 2, 3, 4, 5]
    assert cells["power_w"].isna().sum() == 1


def test_several_runs_are_taken_from_the_first_start_to_the_last_end(totals):
    runs = spans(("run", SECOND, 2 * SECOND), ("run", 4 * SECOND, 5 * SECOND))
    assert kept(analyze.power_during(totals, runs)) == [1, 2, 3, 4]


def test_another_kind_of_span_can_be_asked_for(totals):
    both = spans(("run", 0, 8 * SECOND), ("evaluation", 4 * SECOND, 6 * SECOND))
    assert kept(analyze.power_during(totals, both, kind="evaluation")) == [4, 5]


@pytest.mark.parametrize("rows", [[("training", 0, SECOND)], [("run", 0, pd.NA)]])
def test_without_a_finished_span_of_the_kind_everything_is_kept(totals, rows):
    assert kept(analyze.power_during(totals, spans(*rows))) == list(range(8))


def test_a_run_that_no_meter_saw_keeps_its_empty_cells(totals):
    run = spans(("run", 6 * SECOND, 8 * SECOND))
    assert analyze.power_during(totals, run)["power_w"].isna().tolist() == [True, True]
