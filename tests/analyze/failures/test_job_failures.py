"""Which failure ended which job: the rule by hand, then what is refused."""

import pandas as pd
import pytest

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import CRASH_LOOPS, FAILURES, JOB_FAILURES, TIMELINE

MIN = 1 / 1440  # of a day
MIN_NS = 60_000_000_000


@pytest.fixture
def runs():
    """Make runs that end at a minute; all of job 1 on nodes a and b unless told otherwise."""

    def make(*rows):
        usual = {"job": "1", "attempt": 1, "state": "running", "outcome": "FAILED"}
        usual |= {"nodes": "a,b", "clock": "epoch", "source": "sacct.txt", "line": 1}
        full = [usual | row for row in rows]
        for row in full:
            row["end_ns"] = None if row.get("end") is None else int(row["end"] * MIN_NS)
        return TIMELINE.check(TIMELINE.cast(pd.DataFrame(full, columns=list(TIMELINE.columns))))

    return make


@pytest.fixture
def seen(make_failures):
    """Make failures from node, minute and cause."""

    def make(*rows, **others):
        return make_failures(
            *({"node": n, "day": m * MIN, "cause": c, **others} for n, m, c in rows)
        )

    return make


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("minute", "cause"),
    [(89, "unknown"), (90, "Xid 79"), (100, "Xid 79"), (105, "Xid 79"), (106, "unknown")],
)
def test_a_cause_is_seen_ten_minutes_before_to_five_after(runs, seen, minute, cause):
    table = analyze.job_failures(seen(("b", minute, "Xid 79")), runs({"end": 100}))
    table = JOB_FAILURES.check(table)
    assert table["primary_cause"].tolist() == [cause]
    assert table["cause_count"].tolist() == [int(cause != "unknown")]


def test_all_causes_are_kept_and_the_earliest_fatal_one_leads(runs, make_failures):
    log = make_failures(
        {"node": "a", "day": 92 * MIN, "cause": "PCIe error", "severity": "warning"},
        {"node": "b", "day": 94 * MIN, "cause": "fell off the bus"},
        {"node": "b", "day": 95 * MIN, "cause": "fell off the bus"},
        {"node": "a", "day": 96 * MIN, "cause": "critical interrupt"},
        {"node": "c", "day": 91 * MIN, "cause": "on another node"},
        {"node": "a", "day": 91 * MIN, "cause": "clean-up", "category": "follow-on"},
    )
    row = analyze.job_failures(log, runs({"end": 100})).iloc[0]
    assert row["primary_cause"] == "fell off the bus"
    assert row["causes"] == "PCIe error + fell off the bus + critical interrupt"
    assert row["cause_count"] == 3


def test_failures_that_name_the_job_count_without_a_node(runs, make_failures):
    log = make_failures({"job": "1", "day": 99 * MIN, "cause": "hang", "node": None})
    table = analyze.job_failures(log, runs({"end": 100, "nodes": None}))
    assert table["primary_cause"].tolist() == ["hang"]


def test_an_incident_that_lasts_into_the_window_counts(runs, seen):
    log = seen(("a", 50, "storm")).assign(end_ns=pd.array([91 * MIN_NS], dtype="Int64"))
    assert analyze.job_failures(log, runs({"end": 100}))["primary_cause"].tolist() == ["storm"]


def test_what_the_scheduler_reports_is_no_cause(runs, seen):
    log = seen(("a", 100, "node failed"), kind="slurm")
    assert analyze.job_failures(log, runs({"end": 100}))["primary_cause"].tolist() == ["unknown"]


def test_only_failed_runs_are_listed_each_once(runs, seen):
    timeline = runs(
        {"end": 100, "outcome": "COMPLETED"},
        {"end": 200, "outcome": "NODE_FAIL", "job": "2"},
        {"end": 201, "outcome": "NODE_FAIL", "job": "2", "state": "ended", "nodes": None},
        {"end": 150, "outcome": "CANCELLED by 7", "job": "3"},
        {"end": None, "outcome": "FAILED", "job": "4"},
    )
    table = analyze.job_failures(seen(("a", 199, "x")), timeline)
    assert table["job"].tolist() == ["2"]
    assert table["primary_cause"].tolist() == ["x"], "on a node that an earlier state names"
    assert table.attrs["left_out"] == {"failed runs without an end": 1}
    more = analyze.job_failures(FAILURES.empty(), timeline, outcomes=("CANCELLED",))
    assert more["outcome"].tolist() == ["CANCELLED by 7"]


def test_nothing_failed_is_an_empty_table(runs, seen):
    for log, timeline in (
        (FAILURES.empty(), TIMELINE.empty()),
        (seen(("a", 1, "x")), TIMELINE.empty()),
    ):
        assert JOB_FAILURES.check(analyze.job_failures(log, timeline)).empty
    assert CRASH_LOOPS.check(analyze.crash_loops(JOB_FAILURES.empty())).empty


def test_a_job_that_fails_again_and_again_is_a_loop(runs, seen):
    ends = [0, 30, 60, 95, 1_000, 1_030]
    timeline = runs(*({"end": end, "attempt": at} for at, end in enumerate(ends, start=1)))
    log = seen(("a", 31, "Xid 79"), ("a", 59, "Xid 79"), ("a", 94, "Xid 79"))
    loops = CRASH_LOOPS.check(analyze.crash_loops(analyze.job_failures(log, timeline)))
    assert loops["run_count"].tolist() == [4]
    assert loops["primary_cause"].tolist() == ["Xid 79"]
    assert (loops["last_ns"] - loops["first_ns"]).tolist() == [95 * MIN_NS]
    found = analyze.crash_loops(analyze.job_failures(log, timeline), least_count=2)
    assert found["run_count"].tolist() == [4, 2]


def test_clocks_and_windows_that_make_no_sense_are_refused(runs, seen):
    log = seen(("a", 1, "x"))
    with pytest.raises(WorkbenchError, match=r"cannot be compared \(epoch, own\)"):
        analyze.job_failures(log, runs({"end": 1, "clock": "own"}))
    own = log.assign(clock="own", source="dmesg")
    with pytest.raises(WorkbenchError, match=r"cannot be compared \(own\)"):
        analyze.job_failures(own, runs({"end": 1, "clock": "own"}))
    with pytest.raises(WorkbenchError, match=r"^before_min must be above 0 and finite, not 0$"):
        analyze.job_failures(log, runs({"end": 1}), before_min=0)
    with pytest.raises(WorkbenchError, match="outcomes='FAILED' is a text"):
        analyze.job_failures(log, runs({"end": 1}), outcomes="FAILED")
    with pytest.raises(WorkbenchError, match="least_count must be 2 or more"):
        analyze.crash_loops(JOB_FAILURES.empty(), least_count=1)
