"""Restarts as NVRx logs them. The lines are those of `FaultToleranceProfiler.record_event`
(shared_utils/profiling.py), the files those of `CycleInfoWriter`, 0.5 and later."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.failures.log_files import FOREIGN, findings, ns, read, recognised
from workbench.load._failures.formats import nvrx

PREFIX = "2025-11-13 10:00:00,123 [INFO] [n1] [workload:0(0) infra:0(0)] profiling.py:123 "


def line(cycle, event, time, *, node="n1", rank=0, prefix=PREFIX):
    return f"{prefix}  - Cycle: {cycle} Event: {event} Node: {node} Rank: {rank} Time: {time} UTC\n"


def at(second, minute=0):
    return f"2025-11-13 10:{minute:02d}:{second:06.3f}"


RESTART = "".join(
    [
        line(1, "failure_detected", at(1)),
        line(1, "failure_detected", at(1.5), node="n2_4711_0", rank=1),
        line(1, "worker_terminated", at(4)),
        line(1, "worker_terminated", at(6), node="n2_4711_0", rank=1),
        line(1, "rendezvous_started", at(7)),
        line(1, "rendezvous_started", at(7.5), node="n2_4711_0", rank=1),
        line(1, "health_check_completed", at(9)),
        line(1, "health_check_completed", at(9.5), node="n2_4711_0", rank=1),
        line(1, "rendezvous_completed", at(20)),
        line(1, "rendezvous_completed", at(21), node="n2_4711_0", rank=1),
        line(1, "worker_start_started", at(21.5)),
        line(1, "worker_start_started", at(21.6), node="n2_4711_0", rank=1),
        line(1, "worker_start_completed", at(25)),
        line(1, "worker_start_completed", at(27.25), node="n2_4711_0", rank=1),
    ]
)


def seconds(timeline):
    """Return {state: seconds} of the finished rows."""
    spans = timeline.assign(length=(timeline["end_ns"] - timeline["start_ns"]) / 1e9)
    return spans.dropna(subset="end_ns").groupby("state", sort=False)["length"].sum().to_dict()


def test_the_first_report_of_a_cycle_is_the_failure(tmp_path):
    failures = read(nvrx, tmp_path, RESTART).failures
    assert failures["category"].tolist() == ["unknown", "follow-on"]
    assert failures["node"].tolist() == ["n1", "n2"]
    assert failures["start_ns"].tolist() == [ns(at(1)), ns(at(1.5))]
    assert failures["rank"].isna().all()  # what NVRx calls rank is that of the node


def test_phases_last_until_the_last_node_has_passed(tmp_path):
    timeline = read(nvrx, tmp_path, RESTART).timeline
    assert seconds(timeline) == pytest.approx(
        {
            "terminating": 5.0,
            "down": 1.5,
            "health check": 2.0,
            "joining": 11.5,
            "starting": 0.6 + 5.65,
        }
    )
    assert timeline["state"].iloc[-1] == "running"
    assert timeline["end_ns"].isna().tolist() == [False] * 6 + [True]
    assert set(timeline["attempt"]) == {2}


def test_a_job_runs_until_its_next_failure(tmp_path):
    start = "".join(
        line(0, event, at(second))
        for event, second in [
            ("rendezvous_started", 0),
            ("rendezvous_completed", 0.2),
            ("worker_start_started", 0.3),
            ("worker_start_completed", 0.4),
        ]
    )
    timeline = read(nvrx, tmp_path, start + RESTART).timeline
    running = timeline[timeline["state"] == "running"]
    assert running["end_ns"].tolist()[0] == ns(at(1))
    assert seconds(timeline)["joining"] == pytest.approx(0.2 + 11.5)


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["n1", "n2", "n3"]),
            st.sampled_from(list(nvrx._UNTIL)),
            st.floats(1, 59),
        ),
        max_size=30,
    )
)
def test_phases_of_a_cycle_follow_one_another(tmp_path_factory, events):
    text = "".join(line(1, event, at(second), node=node) for node, event, second in events)
    timeline = read(nvrx, tmp_path_factory.mktemp("nvrx"), text or "\n").timeline
    begins, ends = timeline["start_ns"].tolist(), timeline["end_ns"].tolist()
    assert begins[1:] == ends[:-1]
    assert all(end >= begin for begin, end in zip(begins[:-1], ends[:-1], strict=True))


def test_a_spare_node_does_not_prolong_a_restart(tmp_path):
    spare = line(1, "rendezvous_started", at(50, minute=50), node="n9")
    spare += line(1, "await_round_started", at(50, minute=51), node="n9")
    part = read(nvrx, tmp_path, RESTART + spare)
    assert seconds(part.timeline) == seconds(read(nvrx, tmp_path, RESTART).timeline)
    assert findings(part) == {
        "events await_round_started": ("skipped by design", 1),
        "events of nodes that did not come back in a cycle": ("skipped by design", 1),
    }


def test_a_summary_that_repeats_events_counts_them_once(tmp_path):
    assert len(read(nvrx, tmp_path, RESTART + RESTART.replace(PREFIX, "")).failures) == 2


def test_events_at_one_instant_need_no_node_to_be_ordered(tmp_path):
    text = line(1, "failure_detected", at(1), node="unknown") + line(1, "failure_detected", at(1))
    assert len(read(nvrx, tmp_path, text).failures) == 2


def test_a_log_may_begin_with_json(tmp_path):
    assert len(read(nvrx, tmp_path, '{"lr": 1e-4}\n' + RESTART).failures) == 2


def test_events_without_cycle_or_with_impossible_times_are_counted(tmp_path):
    text = line("Unknown", "failure_detected", at(1))
    text += line(1, "failure_detected", "2025-13-41 10:00:00.000")
    text += line(1, "failure_detected", at(1))
    part = read(nvrx, tmp_path, text)
    assert len(part.failures) == 1
    assert findings(part) == {
        "events without a cycle": ("dropped", 1),
        "events with an invalid time": ("dropped", 1),
    }


CYCLE = {
    "job_id": "12345",
    "cycle_number": 3,
    "cycle_start_time": "2026-07-30T11:00:00.000000Z",
    "cycle_end_time": "2026-07-30T12:00:00Z",
    "cycle_log_file": "/logs/train_cycle3.log",
    "active_nodes": "node[001-002],head",
    "standby_nodes": "node003",
}


def test_reads_a_cycle_file(tmp_path):
    part = read(nvrx, tmp_path, json.dumps(CYCLE), name="cycle_info.12345.0.3")
    row = part.timeline.iloc[0]
    assert (row["state"], row["job"], row["attempt"]) == ("running", "12345", 4)
    assert (row["start_ns"], row["end_ns"]) == (ns("2026-07-30 11:00"), ns("2026-07-30 12:00"))
    assert (row["node_count"], row["nodes"]) == (3, "node001,node002,head")
    assert set(part.nodes) == {"node001", "node002", "head", "node003"}
    assert findings(part) == {}


def test_numbers_that_are_0_may_be_left_out_of_a_cycle_file(tmp_path):
    first = {name: value for name, value in CYCLE.items() if name != "cycle_number"}
    row = read(nvrx, tmp_path, json.dumps(first | {"cycle_end_time": ""})).timeline.iloc[0]
    assert row["attempt"] == 1
    assert row.isna()["end_ns"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"attempt_index": 2}, "cycles restart in every attempt"),
        ({"cycle_number": -1}, "invalid cycle numbers"),
        ({"cycle_number": "many"}, "invalid cycle numbers"),
        ({"cycle_end_time": "2026-07-30T10:00:00Z"}, "ends of cycles that are not times"),
        ({"cycle_end_time": "later"}, "ends of cycles that are not times"),
        ({"cycle_start_time": 7}, "records without cycle_start_time"),
        ({"active_nodes": "node[1-99999999999]"}, "active_nodes that is not a list of hosts"),
        ({"active_nodes": {"a": 1}}, "active_nodes that is not a list of hosts"),
        ({"standby_nodes": "x[" * 1000}, "standby_nodes that is not a list of hosts"),
    ],
)
def test_what_is_wrong_in_a_cycle_file_is_counted(tmp_path, changes, what):
    part = read(nvrx, tmp_path, json.dumps(CYCLE | changes))
    assert [said for said in findings(part) if said.startswith(what)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CYCLE)[:60],
        '{"cycle_start_time": ' * 50_000,
        '{"job_id": "' + "x" * 70_000,
        '{"job_id": \x00\xff',
    ],
)
def test_half_a_cycle_file_gives_no_row_and_says_so(tmp_path, text):
    part = read(nvrx, tmp_path, text)
    assert part.timeline.empty
    assert {kind for kind, _ in findings(part).values()} <= {
        "truncated",
        "dropped",
        "skipped by design",
    }
    assert findings(part)


def test_recognises_its_own_and_nothing_else():
    assert recognised(nvrx, RESTART)
    assert recognised(nvrx, json.dumps(CYCLE), "cycle_info.12345.0.3")
    assert recognised(nvrx, '{"job_id": "1"}', "nvrx/cycle_info.1.0.0")
    assert [name for name, text in FOREIGN.items() if recognised(nvrx, text)] == []
