"""Steps, quorums and errors of fault-tolerant training, as torchft logs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.tables import json_documents, records
from workbench.load._files.time import Given, LogPart, epoch_ns, iso_ns, log_part, one_line

NAME = "torchft"

_NUMBER = re.compile(r"(\d{1,9})$")
_LONGEST_NAME = 255
# Beyond 2**53 a writer that uses doubles has lost digits.
_MOST_STEPS = 1 << 53
# OpenTelemetry counts ns: this is 1973 in ns, and no plausible date in us, ms or s.
_NANOSECONDS_FROM = 10**17
_KINDS = {"error": "error", "commit_result": "commit", "quorum_id": "quorum"}


class _Record(NamedTuple):
    time_ns: int
    line: int
    kind: str  # error, commit or quorum
    job: str | None
    replica_id: str
    rank: int
    quorum: str
    step: int | None
    said: object

    @property
    def replica(self) -> int | None:
        """The number of the replica, as torchft takes it from the id ``name_3:uuid``."""
        match = _NUMBER.search(self.replica_id.split(":")[0])
        return int(match[1]) if match else None


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - names say nothing
    if b'"replica_id"' not in head or b"{" not in head[:1024]:
        return False
    return b'"commit_result"' in head or b'"quorum_id"' in head or b'"error"' in head


def read(source: Source, settings: Given) -> LogPart:
    """Read the records of the loggers torchft_quorums, torchft_commits and torchft_errors.

    They are OpenTelemetry log records, as its console exporter prints them, or their
    attributes with a ``timestamp``, one after the other. A step counts only if it was
    committed: the time up to a commit is ``running``, up to a refused one ``uncommitted``,
    up to a new quorum ``joining``, and that between two processes of one replica ``down``.
    The time line is that of the lowest rank of each replica.

    An error is reported by every process whose collectives are aborted, most of them
    healthy: of those of one quorum the first is the failure, the others are follow-on.

    References
    ----------
    meta-pytorch/torchft: torchft/manager.py, torchft/otel.py.
    """
    del settings  # records name everything themselves
    findings = Findings(source.label)
    recorded: list[_Record] = []
    for line, document in json_documents(source, findings):
        for number, record in records(line, document, findings):
            if parsed := _record(record, number, findings):
                recorded.append(parsed)
    recorded.sort(key=attrgetter("time_ns", "line"))
    replicas: dict[tuple[str | None, int | str], list[_Record]] = {}
    for entry in recorded:
        key = entry.replica_id if entry.replica is None else entry.replica
        replicas.setdefault((entry.job, key), []).append(entry)
    failures, timeline = list(_errors(recorded)), []
    for of_replica in replicas.values():
        # All ranks of a replica report the same events; those of one are enough.
        lowest = min(entry.rank for entry in of_replica)
        events = [e for e in of_replica if e.kind != "error" and e.rank == lowest]
        failures += _restarts(events)
        timeline += _timeline(events)
    return log_part(findings, failures, timeline)


def _record(record: Mapping[str, Any], line: int, findings: Findings) -> _Record | None:
    inner = record.get("attributes")
    fields: Mapping[str, Any] = inner if isinstance(inner, dict) else record
    replica_id = fields.get("replica_id")
    kind = next((kind for name, kind in _KINDS.items() if name in fields), None)
    where = f"line {line:,}"
    if not isinstance(replica_id, str | int) or isinstance(replica_id, bool) or kind is None:
        findings.add("skipped by design", "JSON that is not a record of torchft", 1, where)
        return None
    time_ns = _time(record.get("timestamp", fields.get("timestamp")))
    if time_ns is None:
        findings.add("dropped", "records without a time", 1, where)
        return None
    value = fields.get({"error": "error", "commit": "commit_result"}.get(kind, "quorum_id"))
    step = _whole(fields.get("step"), _MOST_STEPS)
    if kind == "commit" and (not isinstance(value, bool) or step is None):
        findings.add("dropped", "commits without step or result", 1, where)
        return None
    job = fields.get("job_id")
    has_job = isinstance(job, str) and job not in ("", "unknown")
    return _Record(
        time_ns, line, kind, str(job)[:_LONGEST_NAME] if has_job else None,
        str(replica_id)[:_LONGEST_NAME], _whole(fields.get("rank"), 1 << 31) or 0,
        str(fields.get("quorum_id"))[:40], step, value,
    )  # fmt: skip


def _time(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= _NANOSECONDS_FROM:
        return value if value < 1 << 63 else None
    return iso_ns(value) or epoch_ns(value)


def _whole(value: object, most: int) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < most else None  # type: ignore[operator, return-value]


def _errors(records: list[_Record]) -> Iterator[dict[str, Any]]:
    seen: set[tuple[str | None, str]] = set()
    for record in records:
        if record.kind != "error":
            continue
        # An error in one replica makes the others of its quorum fail, too.
        is_first = (record.job, record.quorum) not in seen
        seen.add((record.job, record.quorum))
        cause = one_line(str(record.said))[:100]
        yield _failure(record, record, cause, "error") | {
            "category": "unknown" if is_first else "follow-on",
            "text": f"{cause}: replica {record.replica_id}, rank {record.rank} of it",
        }


def _restarts(events: list[_Record]) -> Iterator[dict[str, Any]]:
    for before, after in pairwise(events):
        if before.replica_id != after.replica_id:
            yield _failure(before, after, "replica started again", "restart") | {
                "text": f"{before.replica_id} is followed by {after.replica_id}"
            }


def _failure(first: _Record, last: _Record, cause: str, code: str) -> dict[str, Any]:
    return {
        "start_ns": first.time_ns, "end_ns": last.time_ns, "job": first.job,
        "replica": first.replica, "kind": "torchft", "code": code, "cause": cause,
        "severity": "fatal", "line": last.line,
    }  # fmt: skip


def _timeline(events: list[_Record]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for before, after in pairwise(events):
        state = _state(before, after)
        span = {"start_ns": before.time_ns, "end_ns": after.time_ns, "state": state}
        step = after.step if after.kind == "commit" else None
        if rows and rows[-1]["state"] == state and rows[-1]["outcome"] == after.quorum:
            rows[-1] |= {"end_ns": after.time_ns, "last_step": step}
            continue
        span |= {"job": after.job, "replica": after.replica, "line": after.line}
        rows.append(span | {"first_step": step, "last_step": step, "outcome": after.quorum})
    for row in rows:
        row["outcome"] = None  # the quorum, needed only to keep its rows apart
    return rows


def _state(before: _Record, after: _Record) -> str:
    if before.replica_id != after.replica_id:
        return "down"
    if after.kind == "quorum":
        return "joining"
    return "running" if after.said else "uncommitted"
