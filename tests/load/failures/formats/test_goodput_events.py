"""Goodput logs: the demo job and the format's own example, then events out of order."""

import json

import pandas as pd
import pytest

from workbench.errors import LoadError
from workbench.load._failures.formats import goodput_events
from workbench.load._files.archive import Source
from workbench.load._files.time import Given
from workbench.tables import FAILURES, SAYS_SYNTHETIC, TIMELINE

# The example of inigogonzalezgarcia/12-gpu-goodput-mtbi (MIT): hour and event.
EXAMPLE = [
    ("00:00", "start", {"nodes": 2, "gpus_per_node": 4}),
    ("01:00", "checkpoint_start", {}),
    ("01:15", "checkpoint_end", {}),
    ("01:45", "interrupt", {"cause": "gpu_xid79", "node": "r01-n02"}),
    ("02:00", "detected", {}),
    ("02:15", "nodes_ready", {}),
    ("02:45", "running", {}),
    ("03:45", "end", {}),
]


def event(hour, name, more=None, *, job="demo", day="2026-09-01", zone="Z"):
    entry = {"time": f"{day}T{hour}:00{zone}", "job": job, "event": name, **(more or {})}
    return json.dumps({key: value for key, value in entry.items() if value is not None})


def example(**changes):
    return [event(*each, **changes) for each in EXAMPLE]


@pytest.fixture
def log(tmp_path):
    """Write a log and read it."""

    def read(lines, tz=None):
        path = tmp_path / "events.jsonl"
        path.write_text("\n".join(lines))
        part = goodput_events.read(Source("events.jsonl", path), Given(tz=tz))
        FAILURES.check(part.failures)
        TIMELINE.check(part.timeline)
        return part

    return read


def found(part):
    return {(row.finding, row.what): row.count for row in part.findings.frame().itertuples()}


def hours(part):
    spent = (part.timeline["end_ns"] - part.timeline["start_ns"]) / 3.6e12
    return spent.groupby(part.timeline["state"]).sum().to_dict()


@pytest.mark.oracle
def test_the_example_of_the_format_is_read(log):
    lines = ["# a comment", *example()]
    assert goodput_events.looks_like("\n".join(lines).encode(), "x")
    part = log(lines)
    assert hours(part) == {
        "running": 2.5,
        "checkpoint": 0.25,
        "detecting": 0.25,
        "allocating": 0.25,
        "joining": 0.5,
        "ended": 0,
    }
    [failure] = part.failures.itertuples()
    assert (failure.cause, failure.node, failure.code) == ("gpu_xid79", "r01-n02", "79")
    assert failure.end_ns - failure.start_ns == 3_600_000_000_000
    assert set(part.timeline["gpu_count"]) == {8}
    assert part.timeline["attempt"].tolist() == [1, 1, 1, 1, 1, 2, 2, 2]


def test_the_demo_job_is_read_and_says_that_it_is_synthetic(fleet_demo):
    source = Source("steps", fleet_demo / "steps.jsonl")
    assert goodput_events.looks_like(source.head(), "steps")
    part = goodput_events.read(source, Given())
    assert part.findings.count("events") == part.findings.count(SAYS_SYNTHETIC) == 143
    [failure] = part.failures.itertuples()
    assert (failure.job, failure.node, failure.cause) == ("481516", "node001", "Xid 79")
    table = part.timeline
    assert set(found(part)) == {("read", "events"), ("noted", SAYS_SYNTHETIC)}
    assert table["state"].tolist()[:3] == ["starting", "running", "checkpoint"]
    assert table["nodes"].tolist()[-1] == "node003,node002"
    running = table[table["state"] == "running"]
    assert running["first_step"].tolist() == [0, 25, 50, 50, 75, 100]
    assert running["last_step"].tolist() == [24, 49, 68, 74, 99, 108]
    assert table.query("state != 'ended'")["end_ns"].notna().all()


def test_states_follow_each_other_without_a_gap(fleet_demo):
    part = goodput_events.read(Source("steps", fleet_demo / "steps.jsonl"), Given())
    table = part.timeline
    assert table["start_ns"].tolist()[1:] == table["end_ns"].tolist()[:-1]


@pytest.mark.parametrize(
    "write",
    [
        lambda ns: {"time": ns / 1e9},
        lambda ns: {"timestamp": ns // 10**6},
        lambda ns: {"time_ms": ns // 10**6},
        lambda ns: {"time_ns": ns},
        lambda ns: {"ts": pd.Timestamp(ns, tz="Asia/Tokyo").isoformat()},
    ],
    ids=["s", "ms", "named ms", "named ns", "offset"],
)
def test_every_spelling_of_a_time_means_the_same(log, write):
    lines = []
    for hour, name, more in EXAMPLE:
        at = pd.Timestamp(f"2026-09-01 {hour}", tz="UTC").value
        lines.append(json.dumps({**write(at), "job_id": 7, "event": name, **more}))
    part = log(lines)
    assert goodput_events.looks_like(lines[0].encode(), "x")
    assert hours(part)["running"] == 2.5
    assert part.failures["start_ns"].tolist() == [pd.Timestamp("2026-09-01 01:45", tz="UTC").value]
    assert set(part.timeline["job"]) == {"7"}


@pytest.mark.parametrize("value", [0, 12.5, 10**10, 1.7e18])
def test_a_number_of_no_clear_unit_is_refused(log, value):
    with pytest.raises(LoadError, match=r"line 1: time .* is neither s nor ms since 1970"):
        log([json.dumps({"time": value, "event": "start"})])


def test_local_times_need_a_zone(log):
    with pytest.raises(LoadError, match="line 1: '2026-09-01T00:00:00' has no time zone"):
        log(example(zone=""))
    assert set(log(example(zone=""), tz="UTC").failures["assumed"]) == {"tz=UTC"}


ODD = {
    "a recovery that skips": (
        [*EXAMPLE[:4], *EXAMPLE[6:]],
        "suspicious",
        "event 'running' after 'detecting', where it cannot be",
    ),
    "no interruption": (
        [*EXAMPLE[:3], *EXAMPLE[4:]],
        "dropped",
        "event 'detected' after 'running', where it cannot be",
    ),
    "a log without its start": (
        EXAMPLE[3:],
        "suspicious",
        "event 'interrupt' at the beginning, where it cannot be",
    ),
    "a checkpoint that ends twice": (
        [*EXAMPLE[:3], *EXAMPLE[2:]],
        "dropped",
        "event 'checkpoint_end' after 'running', where it cannot be",
    ),
    "no end": (EXAMPLE[:-1], "noted", "jobs whose log does not reach their end"),
    "not in order": (
        [EXAMPLE[0], EXAMPLE[2], EXAMPLE[1], *EXAMPLE[3:]],
        "repaired",
        "events not in order of time; they were sorted",
    ),
    "steps while down": (
        [*EXAMPLE[:5], ("02:01", "step", {"step": 3}), *EXAMPLE[5:]],
        "suspicious",
        "steps while the job does not run",
    ),
    "steps beside a checkpoint": (
        [*EXAMPLE[:2], ("01:01", "step", {"step": 3}), *EXAMPLE[2:]],
        "suspicious",
        "steps during a checkpoint, which did not block them",
    ),
}


@pytest.mark.parametrize(("story", "finding", "what"), ODD.values(), ids=list(ODD))
def test_an_order_that_cannot_be_is_counted(log, story, finding, what):
    part = log([event(*each) for each in story])
    assert (finding, what) in found(part)


@pytest.mark.parametrize(
    ("line", "finding", "what"),
    [
        ("{", "dropped", "lines that are not JSON"),
        ("[" * 100_000, "dropped", "lines that are not JSON"),
        ("[1]", "dropped", "lines without an event"),
        ('{"event": "start"}', "dropped", "events without a time"),
        ('{"event": "end", "time": NaN}', "dropped", "events without a time"),
        ('{"event": "end", "time_s": 1e300}', "dropped", "events without a time"),
        ('{"event": "tea"}', "skipped by design", "event 'tea'"),
        (
            '{"event": "end", "time": "late"}',
            "dropped",
            "stamps that are not times; they are missing",
        ),
    ],
)
def test_bad_lines_are_counted_and_spare_the_others(log, line, finding, what):
    part = log([line, *example(), line])
    assert found(part)[finding, what] == 2
    assert len(part.failures) == 1


def test_jobs_are_told_apart(log):
    part = log([*example(), *example(job="other")])
    assert part.failures["job"].tolist() == ["demo", "other"]
    mixed = log([*example(), *example(job="other"), event("04:00", "start", job=None)])
    assert ("suspicious", "events that do not say of which job") in found(mixed)


def test_events_without_a_job_belong_to_the_only_one(log):
    part = log([event("00:00", "start"), event("01:00", "end", job=None)])
    assert part.timeline["job"].tolist() == ["demo", "demo"]


def test_a_file_of_comments_is_empty(log):
    part = log(["# nothing", ""])
    assert part.failures.empty
    assert part.timeline.empty


@pytest.mark.parametrize(
    "head",
    [b"", b"{}", b'{"event": "start"}', b'{"event": "tea", "time": 1}', b"\xff\x00", b"[" * 9999],
)
def test_other_files_are_not_taken_for_goodput_logs(head):
    assert not goodput_events.looks_like(head, "events.jsonl")
