"""The same failures under many settings of one input, here or on a cluster."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from workbench import analyze, plot, simulate
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_TIMES

JOB = analyze.FaultTolerance(replicas=2, recovery_min=10, stall_min=3)


def strikes(rows):
    """Make failures from (time, replica), each out for 10 minutes."""
    table = pd.DataFrame(rows, columns=["time_min", "replica"])
    for name in FAILURE_TIMES.columns:
        if name.endswith("_min") and name not in table:
            table[name] = 0.0
    table = table.assign(run=0, node=0, other_min=10.0, repair_min=np.nan, is_follow_on=False)
    return FAILURE_TIMES.cast(table)


def share_minute_by_minute(rows, stall_min, horizon_min):
    worked = 0.0
    for minute in range(horizon_min):
        if not any(time <= minute < time + stall_min for time, _ in rows):
            out = {replica for time, replica in rows if time <= minute < time + 10}
            worked += 1 - len(out) / 2
    return worked / horizon_min


ROWS = st.lists(st.tuples(st.integers(0, 199), st.integers(0, 1)), min_size=1, max_size=12)


@given(rows=ROWS, stalls=st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True))
def test_shares_are_those_of_a_count_of_minutes_and_fall_with_the_stall(rows, stalls):
    sweep = analyze.goodput_replay_sweep(
        strikes(rows), JOB, "stall_min", sorted(stalls), horizon_min=200
    )
    shares = sweep["productive_share"]
    expected = [share_minute_by_minute(rows, stall, 200) for stall in sorted(stalls)]
    assert shares.tolist() == pytest.approx(expected, abs=1e-9)
    assert shares.is_monotonic_decreasing
    assert sweep["low_share"].isna().all()  # one run tells nothing of the scatter


def test_failures_that_strike_together_cost_less_than_their_mean_interval_says():
    rows = [(time + apart, 0) for time in range(50, 2000, 100) for apart in (0, 1)]
    job = replace(JOB, replicas=1)
    replayed = analyze.goodput_replay_sweep(strikes(rows), job, "rejoin_min", [0], horizon_min=2000)
    # Two failures in 100 min, each of 10 min: the closed form counts both recoveries.
    naive = analyze.goodput_sweep(
        job, "failure_interval_min", [50], failure_interval_min=50, conventions=["interval"]
    )
    assert naive["productive_share"].tolist() == [pytest.approx(0.8)]
    assert replayed["productive_share"].tolist() == [pytest.approx(0.89)]


def drawn(runs=4):
    return simulate.failure_times(simulate.FailureProcess(), horizon_min=10_000, seed=1, runs=runs)


def test_every_value_is_the_replay_of_that_job():
    job, times = analyze.FaultTolerance(), drawn()
    sweep = analyze.goodput_replay_sweep(times, job, "rejoin_min", [2.5, 0], horizon_min=10_000)
    for row in sweep.itertuples():
        runs = analyze.goodput_replay(times, replace(job, rejoin_min=row.value), horizon_min=10_000)
        mean = analyze.goodput_mean(runs).set_index("state").loc["productive"]
        assert (row.productive_share, row.low_share, row.high_share) == (
            mean["gpu_time_share"], mean["low_share"], mean["high_share"]
        )  # fmt: skip
    figure = plot.goodput_sweep(sweep)
    assert "95 %" in str(figure.layout.to_plotly_json())
    assert len(figure.data[0].error_y.array) == 2


def test_what_a_replay_does_not_read_cannot_be_varied():
    with pytest.raises(WorkbenchError, match=r"parameter must be one of .* not 'recovery_min'"):
        analyze.goodput_replay_sweep(drawn(1), JOB, "recovery_min", [1], horizon_min=100)
    with pytest.raises(WorkbenchError, match="checkpoint_interval_min"):
        analyze.goodput_replay_sweep(
            drawn(1), JOB, "checkpoint_interval_min", [-1], horizon_min=100
        )


@pytest.mark.slow
def test_a_cluster_gives_the_same_bits(two_workers):
    job, times = analyze.FaultTolerance(checkpoint_interval_min=30), drawn()
    said = {"parameter": "checkpoint_write_min", "values": [0, 0.5, 2, 1], "horizon_min": 10_000}
    alone = analyze.goodput_replay_sweep(times, job, **said)
    spread = analyze.goodput_replay_sweep(times, job, **said, client=two_workers)
    assert_frame_equal(alone, spread, check_exact=True)
    with pytest.raises(WorkbenchError, match="a failure hits replica"):
        analyze.goodput_replay_sweep(
            times, job, "replicas", [2], horizon_min=10_000, client=two_workers
        )
