"""Events of Kubernetes, as `kubectl get events -o json` prints core/v1 and events.k8s.io/v1
ones, and with the reasons of kubelet, node controller, scheduler and node-problem-detector."""

import json

import pytest

from tests.load.failures.log_files import FOREIGN, findings, ns, read, recognised
from workbench.load._failures.formats import kubernetes_events


def event(reason, message="", *, kind="Node", name="gpu-7", type_="Warning", **more):
    """One core/v1 event."""
    made = {
        "apiVersion": "v1",
        "count": 1,
        "eventTime": None,
        "firstTimestamp": "2025-10-07T22:00:52Z",
        "involvedObject": {"kind": kind, "name": name, "uid": name},
        "kind": "Event",
        "lastTimestamp": "2025-10-07T22:00:52Z",
        "message": message,
        "metadata": {"name": f"{name}.17f3"},
        "reason": reason,
        "source": {"component": "kubelet", "host": "gpu-7"},
        "type": type_,
    }
    return made | more


def listed(*events):
    return json.dumps({"apiVersion": "v1", "items": list(events), "kind": "List"}, indent=4)


def only(part):
    assert len(part.failures) == 1
    return part.failures.iloc[0]


def test_a_lost_node_is_a_failure_of_that_host_though_its_event_is_normal(tmp_path):
    lost = event("NodeNotReady", "Node gpu-7 status is now: NodeNotReady", type_="Normal")
    lost["source"] = {"component": "node-controller"}
    row = only(read(kubernetes_events, tmp_path, listed(lost)))
    assert (row["node"], row["cause"], row["category"]) == ("gpu-7", "node not ready", "host")
    assert (row["kind"], row["code"], row["severity"]) == ("kubernetes", "NodeNotReady", "fatal")
    assert row["start_ns"] == ns("2025-10-07 22:00:52")
    assert row["text"].startswith("Node/gpu-7: NodeNotReady: Node gpu-7 status")


@pytest.mark.parametrize(
    ("reason", "kind", "category"),
    [
        ("OOMKilling", "Node", "host"),
        ("Evicted", "Pod", "host"),
        ("Preempted", "Pod", "scheduler"),
        ("FailedScheduling", "Pod", "scheduler"),
        ("BackOff", "Pod", "follow-on"),
        ("FailedMount", "Pod", "storage"),
        ("PreemptScheduled", "Node", "planned"),
        ("SomethingNew", "Pod", "unknown"),
    ],
)
def test_sorts_reasons_into_categories(tmp_path, reason, kind, category):
    row = only(read(kubernetes_events, tmp_path, listed(event(reason, kind=kind))))
    assert row["category"] == category


@pytest.mark.parametrize(
    ("reason", "message", "code", "device"),
    [
        ("XidError", "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen", "79", "0000:9b:00"),
        ("XidCriticalError", '{"31":true}', "31", None),
        ("XidCriticalError", "see the log", None, None),
        ("GpuXid48", "double-bit error", "48", None),
        ("KernelLog", "NVRM: Xid (PCI:00000000:3B:00.0): 94, contained", "94", "0000:3b:00"),
    ],
)
def test_finds_the_xid_in_events_of_node_problem_detectors(tmp_path, reason, message, code, device):
    row = only(read(kubernetes_events, tmp_path, listed(event(reason, message))))
    if code is None:
        assert row["cause"] == "Xid of a GPU"
    else:
        assert row["code"] == code
    assert row["device"] == device if device else row.isna()["device"]


def test_repeats_are_counted_and_their_span_kept(tmp_path):
    again = event("Unhealthy", kind="Pod", count=1074, lastTimestamp="2025-10-08T01:00:00Z")
    part = read(kubernetes_events, tmp_path, listed(again))
    assert only(part)["line_count"] == 1074
    assert only(part)["end_ns"] == ns("2025-10-08 01:00")
    assert [kind for kind, _ in findings(part).values()] == ["noted"]


def test_reads_events_of_the_newer_api(tmp_path):
    new = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2025-10-07T22:00:52.123456Z",
        "deprecatedFirstTimestamp": None,
        "note": "0/8 nodes are available",
        "reason": "FailedScheduling",
        "regarding": {"kind": "Pod", "name": "llama-0", "namespace": "train"},
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-x",
        "series": {"count": 5, "lastObservedTime": "2025-10-07T23:00:00.000000Z"},
        "type": "Warning",
    }
    row = only(read(kubernetes_events, tmp_path, listed(new)))
    assert row["start_ns"] == ns("2025-10-07 22:00:52.123456")
    assert (row["end_ns"], row["line_count"]) == (ns("2025-10-07 23:00"), 5)
    assert row["text"] == "Pod/train/llama-0: FailedScheduling: 0/8 nodes are available"
    assert row.isna()["node"]


def test_normal_events_are_counted(tmp_path):
    events = [event("Pulled", type_="Normal"), event("Started", type_="Normal")]
    part = read(kubernetes_events, tmp_path, listed(*events))
    assert part.failures.empty
    assert findings(part) == {"events of type Normal": ("skipped by design", 2)}


@pytest.mark.parametrize(
    "form",
    [
        lambda events: "".join(json.dumps(each) + "\n" for each in events),
        lambda events: "\n".join(json.dumps(each, indent=2) for each in events),
        lambda events: "\n".join(json.dumps({"type": "ADDED", "object": each}) for each in events),
        lambda events: "\n".join(json.dumps({"verb": "ADDED", "event": each}) for each in events),
    ],
)
def test_reads_watches_and_lines_too(tmp_path, form):
    text = form([event("Evicted", kind="Pod", name="a"), event("Evicted", kind="Pod", name="b")])
    assert len(read(kubernetes_events, tmp_path, text).failures) == 2
    assert recognised(kubernetes_events, text)


def test_an_event_that_was_updated_counts_once(tmp_path):
    states = [event("BackOff", count=i, metadata={"uid": "u-1"}) for i in (1, 2, 7)]
    part = read(kubernetes_events, tmp_path, "".join(json.dumps(each) + "\n" for each in states))
    assert only(part)["line_count"] == 7
    assert findings(part)["states of an event that a later one replaces"] == (
        "skipped by design",
        2,
    )


def test_events_of_a_job_name_it(tmp_path):
    row = only(read(kubernetes_events, tmp_path, listed(event("BackoffLimitExceeded", kind="Job"))))
    assert row["job"] == "gpu-7"


@pytest.mark.parametrize(
    "changes",
    [
        {"firstTimestamp": None, "lastTimestamp": None},
        {"firstTimestamp": "0001-01-01T00:00:00Z", "lastTimestamp": "yesterday"},
        {"firstTimestamp": 7, "lastTimestamp": ["x"], "metadata": "none"},
        {"firstTimestamp": "2025-13-07T22:00:52Z", "lastTimestamp": None},
    ],
)
def test_an_event_without_a_time_is_kept_and_counted(tmp_path, changes):
    part = read(kubernetes_events, tmp_path, listed(event("Evicted", **changes)))
    assert only(part)["clock"] == "none"
    assert findings(part) == {"events without a time": ("suspicious", 1)}


@pytest.mark.parametrize("count", ["many", -3, True, 10**30, [1], 1.5, float("nan")])
def test_a_count_that_is_none_is_1_and_counted(tmp_path, count):
    part = read(kubernetes_events, tmp_path, listed(event("Evicted", count=count)))
    assert only(part)["line_count"] == 1
    assert [kind for kind, _ in findings(part).values()] == ["suspicious"]


def test_times_in_the_wrong_order_are_swapped_and_counted(tmp_path):
    part = read(
        kubernetes_events, tmp_path, listed(event("Evicted", lastTimestamp="2025-10-07T21:00:00Z"))
    )
    assert only(part)["end_ns"] == ns("2025-10-07 22:00:52")
    assert [kind for kind, _ in findings(part).values()] == ["suspicious"]


def test_half_a_list_gives_the_events_that_are_whole(tmp_path):
    whole = listed(event("Evicted"), event("Evicted"), event("Evicted"))
    part = read(kubernetes_events, tmp_path, whole[: len(whole) - 300])
    assert len(part.failures) == 2
    assert "truncated" in {kind for kind, _ in findings(part).values()}


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "List", "items": [' * 50_000,
        bytes(range(256)) * 1000,
        json.dumps({"items": {"a": 1}, "kind": "EventList"}),
        json.dumps([1, "x", None, [event("Evicted")]]),
        json.dumps(event("Evicted", involvedObject="gpu-7")),
        json.dumps(event(["Evicted"])),
    ],
)
def test_hostile_input_gives_no_row_and_says_so(tmp_path, text):
    part = read(kubernetes_events, tmp_path, text)
    assert part.failures.empty
    assert findings(part)


def test_recognises_its_own_and_nothing_else():
    assert recognised(kubernetes_events, listed(event("Evicted")))
    assert not recognised(kubernetes_events, '{"kind": "Pod", "status": {"reason": "Evicted"}}')
    assert [name for name, text in FOREIGN.items() if recognised(kubernetes_events, text)] == []


def test_all_codes_of_a_set_are_told(tmp_path):
    made = event("XidCriticalError", '{"79":true,"31":true,"48":true}')
    row = only(read(kubernetes_events, tmp_path, listed(made)))
    assert (row["code"], row["other_codes"]) == ("79", "31, 48")
