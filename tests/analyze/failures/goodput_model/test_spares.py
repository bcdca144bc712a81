"""Spare nodes: the published cliff, the queue for them, and what is refused."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import simulate
from workbench.analyze import FaultTolerance, goodput_replay, spares, with_spares
from workbench.errors import WorkbenchError
from workbench.simulate import FailureProcess
from workbench.tables import FAILURE_TIMES

DAYS_54 = 54 * 1440.0


def failing(*rows):
    """Make failures from (run, time, repair) or (run, time, None) for a further replica."""
    table = pd.DataFrame(
        [(run, time, np.nan if repair is None else repair, repair is None) for run, time, repair in rows],
        columns=["run", "time_min", "repair_min", "is_follow_on"],
    ).assign(node=0, other_min=10.0)  # fmt: skip
    table["replica"] = np.arange(len(table)) % 12
    for name in FAILURE_TIMES.columns:
        if name not in table:
            table[name] = 0.0
    return FAILURE_TIMES.cast(table)


@pytest.fixture(scope="module")
def two_days():
    process = FailureProcess(repair_min=2880)
    return simulate.failure_times(process, horizon_min=DAYS_54, seed=11, runs=12)


@pytest.mark.oracle
def test_below_the_nodes_in_repair_the_job_falls_off_a_cliff(two_days):
    table = spares(two_days, FaultTolerance(), [100, 160, 200], horizon_min=DAYS_54)
    shares = table.set_index("spare_count")["productive_share"]
    reach = ((table["high_share"] - table["low_share"]) / 2).to_numpy()
    assert shares[160] == pytest.approx(0.652, abs=0.005 + reach[1])
    assert shares[200] == pytest.approx(0.819, abs=0.005 + reach[2])
    # A replica that misses nodes stays out, so hardly anything works with far too few spares.
    assert shares[100] < 0.1
    assert table["offered_load_ratio"].iloc[0] == pytest.approx(160, rel=0.01)


def test_a_failure_takes_a_spare_or_what_is_repaired_first():
    drawn = failing((0, 0, 100), (0, 10, 20), (0, 20, 50), (1, 0, 5))
    assert with_spares(drawn, spares=1)["wait_min"].tolist() == [0, 20, 50, 0]
    assert with_spares(drawn, spares=0)["wait_min"].tolist() == [100, 20, 50, 5]
    assert with_spares(drawn, spares=2)["wait_min"].tolist() == [0, 0, 10, 0]
    assert with_spares(drawn, spares=3)["wait_min"].eq(0).all()


def test_further_replicas_of_a_failure_wait_with_it_and_take_no_spare():
    drawn = failing((0, 0, 100), (0, 10, 20), (0, 10, None), (0, 20, 50))
    assert with_spares(drawn, spares=1)["wait_min"].tolist() == [0, 20, 20, 50]
    mixed = drawn.iloc[[2, 0, 3, 1]]
    assert with_spares(mixed, spares=1)["wait_min"].tolist() == [0, 20, 20, 50]


def test_the_given_table_stays_as_it_is(two_days):
    before = two_days.copy()
    waiting = with_spares(two_days, spares=10)
    pd.testing.assert_frame_equal(two_days, before)
    assert waiting.drop(columns="wait_min").equals(before.drop(columns="wait_min"))


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.floats(0, 500), st.floats(0, 300)), min_size=1),
    count=st.integers(0, 5),
)
def test_one_spare_more_never_lets_anybody_wait_longer(rows, count):
    drawn = failing(*rows)
    few, more = (with_spares(drawn, spares=each)["wait_min"] for each in (count, count + 1))
    assert (more <= few + 1e-9).all()
    assert (few >= 0).all()
    shares = spares(drawn, FaultTolerance(), [count, count + 1], horizon_min=400)
    assert shares["productive_share"].diff().iloc[1] >= -1e-9


def test_enough_spares_are_as_good_as_no_queue(two_days):
    drawn = two_days[two_days["run"] < 2]
    table = spares(drawn, FaultTolerance(), [5000], horizon_min=DAYS_54)
    runs = goodput_replay(drawn, FaultTolerance(), horizon_min=DAYS_54)
    expected = runs.loc[runs["state"] == "productive", "gpu_time_share"].mean()
    assert table["productive_share"].item() == pytest.approx(expected)
    assert table["wait_min"].item() == 0


def test_the_index_of_the_rows_does_not_matter(two_days):
    drawn = two_days[two_days["run"] < 2]
    odd = drawn.set_axis(np.zeros(len(drawn), dtype=int))
    tables = [spares(each, FaultTolerance(), [140], horizon_min=DAYS_54) for each in (drawn, odd)]
    pd.testing.assert_frame_equal(*tables)


def test_nodes_that_never_come_back_leave_a_job_waiting_to_its_end():
    drawn = failing((0, 10, math.inf), (0, 50, math.inf))
    job = FaultTolerance(replicas=1)
    table = spares(drawn, job, [0, 1, 2], horizon_min=100)
    assert table["productive_share"].tolist() == pytest.approx([0.1, 0.4, 0.8])


def test_without_failures_within_the_horizon_nobody_waits():
    table = spares(failing((0, 500, 10)), FaultTolerance(), [0], horizon_min=100)
    assert table.loc[0, ["productive_share", "wait_min", "offered_load_ratio"]].tolist() == [
        1,
        0,
        0,
    ]


# --- what is refused ---


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (-1, "0 or more, not -1"),
        (1.5, "a whole number from 0, not 1.5"),
        (math.nan, "a whole number from 0, not nan"),
        ("some", "a whole number from 0, not 'some'"),
        (None, "a whole number from 0, not None"),
        (True, "a whole number from 0, not True"),
    ],
)
def test_spares_are_counted_from_0(count, words):
    drawn = failing((0, 0, 100))
    with pytest.raises(WorkbenchError, match=f"^spares must be {words}$"):
        with_spares(drawn, spares=count)
    with pytest.raises(WorkbenchError, match=f"^spares must be {words}$"):
        spares(drawn, FaultTolerance(), [count], horizon_min=100)


def test_how_long_repairs_take_must_be_known():
    drawn = simulate.failure_times(FailureProcess(), horizon_min=1440, seed=1, runs=1)
    with pytest.raises(
        WorkbenchError, match=r"failures have no repair_min.*FailureProcess\(repair"
    ):
        with_spares(drawn, spares=3)


def test_no_failures_are_no_runs():
    with pytest.raises(WorkbenchError, match="there are no failures"):
        spares(FAILURE_TIMES.empty(), FaultTolerance(), [1], horizon_min=100)
    assert with_spares(FAILURE_TIMES.empty(), spares=1).empty
    assert spares(failing((0, 0, 1)), FaultTolerance(), [], horizon_min=100).empty
    with pytest.raises(WorkbenchError, match="horizon_min must be above 0"):
        spares(failing((0, 0, 1)), FaultTolerance(), [1], horizon_min=0)
