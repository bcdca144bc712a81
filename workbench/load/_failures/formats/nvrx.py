"""Restarts as NVIDIA's resiliency extension logs them: events of a cycle, and cycle files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from workbench.errors import LoadError
from workbench.load._failures.formats.slurm import hosts
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.tables import json_documents, records
from workbench.load._files.text import console_lines
from workbench.load._files.time import Given, LogPart, iso_ns, log_part, one_line

NAME = "NVRx"
_EVENT = re.compile(
    r"- Cycle: (\d{1,9}|Unknown) Event: (\w{1,60}) Node: (\S{1,255}) Rank: (\S{1,12}) "
    r"Time: (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) UTC"
)
_CYCLE_FILE = re.compile(r"cycle_info\.[^/]+\.\d+\.\d+(\.(gz|bz2|xz|zstd?|lz4))?$")
# node_desc of the agent is host_pid_localrank.
_DESCRIPTION = re.compile(r"_\d+_\d+$")

# The events of a restart in order, and what the job does until the event.
_UNTIL = {
    "failure_detected": "running",
    "worker_terminated": "terminating",
    "rendezvous_started": "down",
    "health_check_completed": "health check",
    "rendezvous_completed": "joining",
    "worker_start_started": "starting",
    "worker_start_completed": "starting",
}
_BESIDE = {"attribution_get_started", "attribution_get_completed", "node_excluded"}
_BESIDE |= {"await_round_started", "await_round_completed"}
_LAST = "worker_start_completed"
_IN_TIME = attrgetter("time_ns", "line")
_NEXT_ATTEMPT = "cycles restart in every attempt of the scheduler (attempt_index above 0)"


class _Event(NamedTuple):
    time_ns: int
    cycle: int
    name: str
    node: str | None
    line: int
    text: str


def looks_like(head: bytes, label: str) -> bool:
    if _EVENT.search(head.decode("utf-8", "replace")):
        return True
    if head.lstrip()[:1] != b"{":
        return False
    if b'"cycle_start_time"' in head:
        return b'"cycle_log_file"' in head or b'"active_nodes"' in head
    return bool(_CYCLE_FILE.search(label)) and b'"job_id"' in head


def read(source: Source, settings: Given) -> LogPart:
    """Read a log with lines ``- Cycle: N Event: ... Time: ... UTC``, or a ``cycle_info`` file.

    Every failure opens a cycle; the events after it are its recovery. Agents of many nodes
    report: the first report of a cycle is the failure, later ones are follow-on. The phases
    are those of the whole job: each lasts until the last node that came back has passed it, so
    together they last from the first report to the last worker's start, which is what NVRx
    calls total_restart_time. ``running`` begins when the workers are started: their own
    start-up (loading a checkpoint, first step) is in it.

    References
    ----------
    nvidia-resiliency-ext: shared_utils/profiling.py, fault_tolerance/cycle_info_writer.py.
    """
    findings = Findings(source.label)
    head = source.head()
    if head.lstrip()[:1] == b"{" and (b'"cycle_' in head or b'"job_id"' in head):
        return _cycle_file(source, findings)
    events = _events(source, findings)
    cycles: dict[int, list[_Event]] = {}
    for event in sorted(events, key=_IN_TIME):
        cycles.setdefault(event.cycle, []).append(event)
    nodes = {event.node: None for event in events if event.node}
    return log_part(findings, _failures(cycles, settings), _timeline(cycles, findings), nodes)


def _events(source: Source, findings: Findings) -> list[_Event]:
    # A summary prints every event again.
    events: dict[tuple[int, str, str | None], _Event] = {}
    for number, text in console_lines(source, findings):
        if " Event: " not in text or (match := _EVENT.search(text)) is None:
            continue
        cycle, name, node, _group_rank, stamp = match.groups()
        time_ns = iso_ns(f"{stamp} UTC")
        if time_ns is None or cycle == "Unknown":
            remark = "events without a cycle" if time_ns else "events with an invalid time"
            findings.add("dropped", remark, 1, f"line {number:,}")
            continue
        host = None if node in ("unknown", "None") else _DESCRIPTION.sub("", node)
        event = _Event(time_ns, int(cycle), name, host, number, one_line(match[0]))
        if name in _UNTIL:
            events.setdefault((time_ns, name, node), event)
        else:
            remark = f"events {name}" if name in _BESIDE else "events of unknown names"
            findings.add("skipped by design", remark, 1, f"line {number:,}")
    return list(events.values())


def _failures(cycles: Mapping[int, list[_Event]], settings: Given) -> Iterable[Row]:
    for cycle, events in cycles.items():
        reports = [event for event in events if event.name == "failure_detected"]
        for event in reports:
            is_first = event is reports[0]
            yield {
                "start_ns": event.time_ns, "end_ns": event.time_ns, "kind": "nvrx",
                "node": event.node or settings.node, "code": "failure_detected",
                "cause": f"worker failure (cycle {cycle})", "severity": "fatal",
                "category": "unknown" if is_first else "follow-on",
                "text": event.text, "line": event.line,
            }  # fmt: skip


def _timeline(cycles: Mapping[int, list[_Event]], findings: Findings) -> list[Row]:
    rows: list[Row] = []
    ended: int | None = None
    for cycle, events in sorted(cycles.items(), key=lambda item: item[1][0].time_ns):
        passed = _passed(events, findings)
        if ended is not None and passed[0].name == "failure_detected":
            rows[-1]["end_ns"] = passed[0].time_ns
        ended = None
        attempt = cycle + 1
        for before, after in pairwise(passed):
            rows.append(_span(attempt, _UNTIL[after.name], before, after.time_ns))
        if passed[-1].name == _LAST:
            ended = passed[-1].time_ns
            rows.append(_span(attempt, "running", passed[-1], None))
    return rows


def _passed(events: list[_Event], findings: Findings) -> list[_Event]:
    """Return when the job passed each event of a cycle: the first, then the last of each kind."""
    back = {event.node: event.time_ns for event in events if event.name == _LAST}
    if back:
        # A spare node looks on, and may begin to join again and again.
        spares = [event for event in events if event.time_ns > back.get(event.node, -1)]
        remark = "events of nodes that did not come back in a cycle"
        findings.add("skipped by design", remark, len(spares))
        events = [event for event in events if event.time_ns <= back.get(event.node, -1)]
    order = list(_UNTIL)
    first = events[0]
    passed = [first]
    for name in order[order.index(first.name) + 1 :]:
        times = [event for event in events if event.name == name]
        if times:
            # All nodes must have passed an event before the job has.
            latest = max(times, key=_IN_TIME)
            # The clocks of nodes differ: a phase never ends before it began.
            is_late = latest.time_ns >= passed[-1].time_ns
            passed.append(latest if is_late else passed[-1]._replace(name=name))
    return passed


def _span(attempt: int, state: str, begin: _Event, end_ns: int | None) -> Row:
    span = {"start_ns": begin.time_ns, "end_ns": end_ns, "state": state}
    return span | {"attempt": attempt, "line": begin.line}


def _cycle_file(source: Source, findings: Findings) -> LogPart:
    rows: list[Row] = []
    nodes: dict[str, int | None] = {}
    for line, document in json_documents(source, findings):
        for number, record in records(line, document, findings):
            row = _row_of_cycle(record, number, findings)
            if row is None:
                findings.add("dropped", "records without cycle_start_time", 1, f"line {number:,}")
                continue
            rows.append(row)
            spare = _hosts(record, "standby_nodes", number, findings)
            nodes |= dict.fromkeys([*(row["nodes"] or "").split(","), *spare])
    nodes.pop("", None)
    return log_part(findings, timeline=rows, nodes=nodes)


def _row_of_cycle(record: Mapping[str, Any], line: int, findings: Findings) -> Row | None:
    start_ns = iso_ns(record.get("cycle_start_time"))
    if start_ns is None:
        return None
    # Written by protobuf, which drops numbers that are 0.
    cycle, attempt = (_count(record.get(name, 0)) for name in ("cycle_number", "attempt_index"))
    if attempt:
        findings.add("noted", _NEXT_ATTEMPT)
    if cycle is None:
        remark = "invalid cycle numbers (left blank)"
        findings.add("suspicious", remark, 1, f"line {line:,}")
    stated = record.get("cycle_end_time")
    end_ns = iso_ns(stated)
    if stated and (end_ns is None or end_ns < start_ns):
        remark = "ends of cycles that are not times, or before the start (left without an end)"
        findings.add("suspicious", remark, 1, f"line {line:,}")
        end_ns = None
    active = _hosts(record, "active_nodes", line, findings)
    job = record.get("job_id")
    has_job = isinstance(job, str | int) and job != ""
    return {
        "start_ns": start_ns, "end_ns": end_ns, "job": str(job)[:255] if has_job else None,
        "attempt": None if cycle is None else cycle + 1, "state": "running",
        "node_count": len(active) or None, "nodes": ",".join(active) or None, "line": line,
    }  # fmt: skip


def _hosts(record: Mapping[str, Any], name: str, line: int, findings: Findings) -> tuple[str, ...]:
    try:
        return hosts(str(record.get(name) or ""))
    except LoadError:
        findings.add("dropped", f"{name} that is not a list of hosts", 1, f"line {line:,}")
        return ()


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 30:
        return value
    return None
