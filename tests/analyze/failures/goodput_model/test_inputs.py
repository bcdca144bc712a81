"""Inputs measured in a log: the truth of the made job first, then laws, then what logs do not state."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import analyze, datasets, load
from workbench.analyze import FaultTolerance
from workbench.errors import WorkbenchError
from workbench.tables import FAILURES, NODE_SPANS, QUALITY, TIMELINE, FailureLog

MINUTE = 60_000_000_000
BEGIN = 1_772_000_000_000_000_000


def log_of(rows, failures=()):
    """Make a log of states: job, attempt, state, first and last minute, outcome, further columns."""
    columns = ("job", "attempt", "state", "start_ns", "end_ns", "outcome")
    table = pd.DataFrame([dict(zip(columns, row, strict=False)) for row in rows])
    extra = pd.DataFrame([row[6] if len(row) > 6 else {} for row in rows])
    table = pd.concat([table, extra], axis=1).reindex(columns=list(TIMELINE.columns))
    for name in ("start_ns", "end_ns"):
        table[name] = [
            pd.NA if pd.isna(minute) else BEGIN + round(minute * MINUTE) for minute in table[name]
        ]
    table["clock"] = "epoch"
    named = table["source"].astype(object)
    table["source"] = named.where(named.notna(), "job.log")
    table["line"] = 1
    return FailureLog(
        FAILURES.cast(pd.DataFrame(list(failures), columns=list(FAILURES.columns))),
        TIMELINE.cast(table), NODE_SPANS.empty(), QUALITY.empty(),
    )  # fmt: skip


def values(log, **options):
    return analyze.goodput_inputs(log, **options).set_index("quantity")["value"].to_dict()


@pytest.fixture(scope="module")
def demo():
    return load.failures(datasets.path("failures-demo"), tz="UTC", progress=False)


def test_the_made_job_is_measured_as_its_truth_has_it(demo):
    truth = pd.read_csv(datasets.path("failures-demo") / "truth.csv")
    truth = truth[truth["is_job_stopped"]].sort_values("start_ns")
    # The union of all times in which the job was out; a failure in a recovery prolongs it.
    out, reached = [], 0
    for start, end in zip(truth["start_ns"], truth["resumed_ns"], strict=True):
        if start > reached:
            out.append([start, end])
        else:
            out[-1][1] = max(out[-1][1], end)
        reached = out[-1][1]
    down_min = sum(end - start for start, end in out) / MINUTE
    inputs = analyze.goodput_inputs(demo).set_index("quantity")
    recovery = inputs.loc["recovery_min"]
    assert recovery["sample_count"] == len(out) < len(truth)
    assert recovery["value"] == pytest.approx(down_min / len(out), rel=1e-6)
    assert inputs.loc["checkpoint_interval_min", "value"] == pytest.approx(120)
    assert (inputs.loc["node_count", "value"], inputs.loc["gpu_count", "value"]) == (128, 1024)


def test_rows_of_three_reporters_are_not_three_times_the_interruptions(demo):
    naive_min = 30 * 1440 / len(demo.failures)
    assert values(demo)["failure_interval_min"] > 3 * naive_min


ups = st.lists(st.floats(1, 5_000), min_size=2, max_size=12)


@pytest.mark.long
@settings(max_examples=40)
@given(ups=ups, downs=st.lists(st.floats(0.5, 300), min_size=12, max_size=12))
def test_the_model_at_the_measured_inputs_gives_the_measured_share(ups, downs):
    rows, at = [], 0.0
    for attempt, (up, down) in enumerate(zip(ups, downs, strict=False), 1):
        rows.append(("a", attempt, "running", at, at + up, "NODE_FAIL"))
        rows.append(("a", attempt, "down", at + up, at + up + down, None))
        at += up + down
    rows.append(("a", len(ups) + 1, "running", at, at + 7, "COMPLETED"))
    inputs = values(log_of(rows))
    job = FaultTolerance(recovery_min=inputs["recovery_min"], replicas=1)
    share = analyze.productive_share(
        job, failure_interval_min=inputs["failure_interval_min"], convention="interval"
    )
    assert share == pytest.approx((sum(ups) + 7) / (at + 7), rel=1e-6)
    assert inputs["time_to_failure_min"] == pytest.approx((sum(ups) + 7) / len(ups), rel=1e-6)


@pytest.mark.long
def test_the_interval_of_the_time_to_failure_has_about_nominal_coverage():
    random, covered = np.random.default_rng(5), 0
    for _ in range(50):
        # Ended by the clock after a week, like a log: the last run is censored.
        ends = np.cumsum(random.exponential(600, 80))
        ends = ends[ends < 7 * 1440]
        cuts = [0.0, *ends, 7 * 1440.0]
        rows = [
            ("a", n, "running", a, b, "FAILED" if n <= len(ends) else None)
            for n, (a, b) in enumerate(pairwise(cuts), 1)
        ]
        row = analyze.goodput_inputs(log_of(rows)).set_index("quantity").loc["time_to_failure_min"]
        covered += row["low"] <= 600 <= row["high"]
    assert 44 <= covered <= 50


def test_ends_that_somebody_chose_are_no_failures():
    rows = [
        ("a", 1, "running", 0, 100, "TIMEOUT"),
        ("a", 2, "running", 160, 300, "CANCELLED by 1000"),
        ("a", 3, "running", 400, 500, "NODE_FAIL"),
        ("a", 4, "running", 520, 600, None),
    ]
    inputs = analyze.goodput_inputs(log_of(rows)).set_index("quantity")
    assert inputs.loc["recovery_min", ["value", "sample_count"]].tolist() == [20, 1]
    assert inputs.loc["failure_interval_min", "value"] == 600
    assert inputs.loc["recovery_min", "doubt"] == "few recoveries"


def test_the_scheduler_that_counts_joining_as_running_is_not_believed_over_the_job():
    slurm = {"source": "sacct"}
    rows = [
        ("a", 1, "running", 0, 100, "NODE_FAIL", slurm),
        ("a", 2, "running", 101, 200, "COMPLETED", slurm),
        ("a", 1, "running", 0, 90, "Xid 79"),
        ("a", 1, "detecting", 90, 100, None),
        ("a", 2, "joining", 101, 140, None),
        ("a", 2, "running", 140, 200, None),
    ]
    assert values(log_of(rows))["recovery_min"] == pytest.approx(50)
    assert values(log_of(rows[:2]))["recovery_min"] == pytest.approx(1)


def test_a_checkpoint_is_no_interruption_and_a_run_without_an_end_lasts_to_the_last_line():
    rows = [
        ("a", 1, "running", 0, 50, None),
        ("a", 1, "checkpoint", 50, 51, None),
        ("a", 1, "running", 51, 80, "FAILED"),
        ("a", 2, "running", 90, None, None),
        ("a", 2, "checkpoint", 140, 142, None),
    ]
    inputs = values(log_of(rows))
    assert inputs["recovery_min"] == 10
    assert inputs["failure_interval_min"] == 142
    assert inputs["time_to_failure_min"] == pytest.approx(132)
    assert inputs["checkpoint_write_min"] == pytest.approx(1.5)


def test_replicas_fail_one_by_one():
    rows = [("a", 1, "running", 0, 100, None, {"replica": 0})]
    rows += [
        ("a", 1, "running", 0, 40, "FAILED", {"replica": 1}),
        ("a", 2, "running", 60, 100, None, {"replica": 1}),
    ]
    inputs = values(log_of(rows))
    assert (inputs["replicas"], inputs["recovery_min"]) == (2, 20)
    assert inputs["time_to_failure_min"] == pytest.approx(90)


def test_the_job_with_the_most_node_hours_is_taken_or_the_one_that_is_named():
    rows = [
        ("small", 1, "running", 0, 900, "FAILED", {"node_count": 1}),
        ("small", 2, "running", 910, 1000, None, {"node_count": 1}),
        ("large", 1, "running", 0, 100, "FAILED", {"node_count": 64}),
        ("large", 2, "running", 130, 200, None, {"node_count": 64}),
        ("once", 1, "running", 0, 5000, "FAILED", {"node_count": 512}),
    ]
    log = log_of(rows)
    assert analyze.goodput_inputs(log).attrs["job"] == "large"
    assert values(log, job="small")["recovery_min"] == 10
    with pytest.raises(WorkbenchError, match="no interruption of job 'x'; it names \\['large'"):
        analyze.goodput_inputs(log, job="x")


def test_without_a_restarted_job_failures_are_counted_and_doubted():
    log = load.failures(datasets.path("failures-demo") / "synthetic_kern.log", progress=False)
    inputs = analyze.goodput_inputs(log).set_index("quantity")
    assert inputs.attrs["job"] is None
    assert "recovery_min" not in inputs.index
    assert "every failure is taken to stop one job" in inputs.loc["failure_interval_min", "doubt"]


def test_an_empty_log_has_nothing_to_measure():
    with pytest.raises(WorkbenchError, match="nothing in these tables has a time"):
        analyze.goodput_inputs(log_of([("a", 1, "running", 0, 1, None)][:0]))
