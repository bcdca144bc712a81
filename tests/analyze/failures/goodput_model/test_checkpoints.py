"""How often to save: Daly's numbers, the simulation, the optimum, and the first-order formula."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import simulate
from workbench.analyze import (
    FaultTolerance,
    checkpoint_curve,
    checkpoint_optimum,
    expected_ettr,
    goodput_mean,
    goodput_replay,
)
from workbench.errors import WorkbenchError
from workbench.simulate import FailureProcess

DALY = {"failure_interval_min": 180, "recovery_min": 5, "write_min": 1}
RSC = {"failures_per_1000_node_days": 6.5, "restart_min": 10, "checkpoint_interval_min": 60}


@pytest.mark.oracle
def test_dalys_efficiency():
    curve = checkpoint_curve([5, 19, 60, 240], **DALY)
    assert curve["productive_share"].tolist() == pytest.approx(
        [0.7971, 0.8736, 0.8037, 0.4607], abs=5e-5
    )


@pytest.mark.oracle
def test_the_best_interval_by_young_daly_and_numerically():
    best = checkpoint_optimum(**DALY).set_index("method")["checkpoint_interval_min"]
    assert best.round(2).to_dict() == {"Young": 18.97, "Daly": 18.31, "numeric": 18.31}


@pytest.mark.oracle
def test_simulation_agrees_with_daly_at_every_interval_tried():
    horizon = 400_000.0
    drawn = simulate.failure_times(
        FailureProcess(failure_interval_min=180), horizon_min=horizon, seed=3, runs=12, replicas=1,
        recovery_min=5,
    )  # fmt: skip
    tried = [2, 5, 10, 19, 40, 60, 120, 240]
    exact = checkpoint_curve(tried, **DALY).set_index("checkpoint_interval_min")
    for every in tried:
        job = FaultTolerance(
            recovery_min=5, replicas=1, checkpoint_interval_min=every, checkpoint_write_min=1
        )
        found = goodput_mean(goodput_replay(drawn, job, horizon_min=horizon)).set_index("state")
        for state, column in (
            ("productive", "productive_share"), ("lost work", "lost_work_share"),
            ("recovery", "recovery_share"),
        ):  # fmt: skip
            low, high = found.loc[state, ["low_share", "high_share"]]
            assert low <= exact.loc[every, column] <= high, (every, state)
        assert found.loc["checkpoint", "gpu_time_share"] == pytest.approx(
            exact.loc[every, "checkpoint_share"], abs=2e-3
        )


@pytest.mark.oracle
def test_the_first_order_formula_is_far_off_at_98304_gpus():
    (row,) = expected_ettr([98_304], write_min=0.5, **RSC).to_dict("records")
    assert row["first_order_ratio"] == pytest.approx(-1.21, abs=0.005)
    assert row["exact_share"] == pytest.approx(0.069, abs=0.0005)
    assert row["verdict"] == "invalid"


def test_the_first_order_formula_is_right_where_losses_are_small():
    table = expected_ettr([8, 256], write_min=0.5, **RSC)
    assert table["verdict"].eq("valid").all()
    error = (table["first_order_ratio"] - table["exact_share"]).abs()
    assert error.max() < 0.002


def test_verdicts_follow_what_is_lost():
    table = expected_ettr([512, 16_384, 49_152], **RSC)
    assert table["verdict"].tolist() == ["valid", "doubtful", "invalid"]
    assert table["loss_ratio"].tolist() == pytest.approx(
        (40 / table["failure_interval_min"]).tolist()
    )
    assert table.loc[2, "first_order_ratio"] < 0 < table.loc[2, "exact_share"]


positive = st.floats(0.01, 1e4)


@given(every=positive, mean=positive, down=st.floats(0, 1e3), write=st.floats(0, 100))
def test_the_parts_of_the_curve_sum_to_1(every, mean, down, write):
    (row,) = checkpoint_curve(
        every, failure_interval_min=mean, recovery_min=down, write_min=write
    ).to_dict("records")
    parts = ["productive_share", "lost_work_share", "checkpoint_share", "recovery_share"]
    assert sum(row[name] for name in parts) == pytest.approx(1)


@given(mean=positive, ratio=st.floats(1e-9, 1e4), down=st.floats(0, 100), off=st.floats(0.2, 5))
def test_nothing_beats_the_numeric_optimum(mean, ratio, down, off):
    case = {"failure_interval_min": mean, "recovery_min": down, "write_min": mean * ratio}
    best = checkpoint_optimum(**case).set_index("method")
    numeric = best.loc["numeric"]
    assert 0 < numeric["checkpoint_interval_min"] <= mean
    assert (best["productive_share"] <= numeric["productive_share"] * (1 + 1e-9)).all()
    other = checkpoint_curve(numeric["checkpoint_interval_min"] * off, **case)
    assert other["productive_share"].item() <= numeric["productive_share"] * (1 + 1e-9)


@given(write=st.floats(0.001, 10))
def test_young_and_daly_are_right_where_failures_are_rare(write):
    best = checkpoint_optimum(failure_interval_min=1e6 * write, recovery_min=5, write_min=write)
    intervals = best["checkpoint_interval_min"]
    assert intervals.max() == pytest.approx(intervals.min(), rel=2e-3)


def test_a_write_longer_than_any_gap_still_has_an_optimum():
    best = checkpoint_optimum(failure_interval_min=1, recovery_min=0, write_min=50)
    assert best.set_index("method").loc["numeric", "checkpoint_interval_min"] == 1


def test_no_interval_gives_an_empty_curve():
    assert checkpoint_curve([], **DALY).empty


@pytest.mark.parametrize("value", [0, -5, math.nan, math.inf])
def test_intervals_and_writes_are_above_0(value):
    with pytest.raises(WorkbenchError, match="checkpoint_interval_min must be above 0"):
        checkpoint_curve([10, value], **DALY)
    with pytest.raises(WorkbenchError, match="failure_interval_min must be above 0"):
        checkpoint_curve([10], **{**DALY, "failure_interval_min": value})
    with pytest.raises(WorkbenchError, match="failure_interval_min must be above 0"):
        checkpoint_optimum(**{**DALY, "failure_interval_min": value})
    with pytest.raises(WorkbenchError, match="write_min must be above 0"):
        checkpoint_optimum(**{**DALY, "write_min": value})
    for name in ("failures_per_1000_node_days", "checkpoint_interval_min"):
        with pytest.raises(WorkbenchError, match=f"{name} must be above 0"):
            expected_ettr([8], **{**RSC, name: value})
    with pytest.raises(WorkbenchError, match="gpus_per_node must be above 0"):
        expected_ettr([8], gpus_per_node=value, **RSC)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_recoveries_and_restarts_are_not_negative(value):
    with pytest.raises(WorkbenchError, match="recovery_min must be 0 or more"):
        checkpoint_curve([10], **{**DALY, "recovery_min": value})
    with pytest.raises(WorkbenchError, match="recovery_min must be 0 or more"):
        checkpoint_optimum(**{**DALY, "recovery_min": value})
    with pytest.raises(WorkbenchError, match="checkpoint_write_min must be 0 or more"):
        checkpoint_curve([10], **{**DALY, "write_min": value})
    with pytest.raises(WorkbenchError, match="restart_min must be 0 or more"):
        expected_ettr([8], **{**RSC, "restart_min": value})
    with pytest.raises(WorkbenchError, match="checkpoint_write_min must be 0 or more"):
        expected_ettr([8], write_min=value, **RSC)


@pytest.mark.parametrize("counts", [[], [0], [math.nan], [8, -1], [math.inf]])
def test_jobs_have_gpus(counts):
    with pytest.raises(WorkbenchError, match="gpu_counts must be numbers from 1"):
        expected_ettr(counts, **RSC)
