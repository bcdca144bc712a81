"""Traces of spot instances: nodes that come and go, or how many there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.text import text_lines
from workbench.load._files.time import Given, LogPart, log_part, utc_ns

NAME = "spot trace"
_MS = 1_000_000
_FIRST_LINES = 3
_CHANGE = re.compile(r"(\d{1,15}),\s*(add|remove),\s*([^\s,][^,]*?)\s*")
_COUNT = re.compile(r"(\d{4}-\d\d-\d\d),\s*(\d\d:\d\d(?::\d\d(?:\.\d+)?)?),\s*(\d{1,9})\s*")
_TAKEN: Row = {"kind": "spot", "code": "remove", "cause": "spot instance taken back"}
_TAKEN |= {"category": "scheduler", "severity": "fatal"}


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise ``480000,add,node1`` or ``2021-12-11, 11:15:50, 54`` in the first lines."""
    return _pattern(head) is not None


def _pattern(head: bytes) -> re.Pattern[str] | None:
    lines = head.decode(errors="replace").removeprefix("\ufeff").split("\n")[:_FIRST_LINES]
    for pattern in (_CHANGE, _COUNT):
        if any(pattern.fullmatch(line.rstrip("\r")) for line in lines):
            return pattern
    return None


def read(source: Source, settings: Given) -> LogPart:
    """Read a trace of named nodes (times in ms, on a clock of its own) or of their number.

    Where only the number is known, a fall by *k* is one row of *k* events
    (``line_count``) without a node. A file joined of several, whose times jump back, is
    read piece by piece: what happened between two pieces is not known, and not counted.
    """
    findings = Findings(source.label)
    pattern = _pattern(source.head()) or _CHANGE
    matches = _matches(text_lines(source, findings), pattern, findings)
    if pattern is _COUNT:
        return _by_count(matches, settings, findings)
    return _by_node(matches, findings)


def _matches(
    lines: Iterable[tuple[int, str]], pattern: re.Pattern[str], findings: Findings
) -> Iterator[tuple[int, re.Match[str]]]:
    for number, text in lines:
        if match := pattern.fullmatch(text):
            yield number, match
        elif text.strip():
            where = f"line {number:,}: {text[:40]}"
            findings.add("dropped", "lines that are not like the others", 1, where)


def _by_node(matches: Iterator[tuple[int, re.Match[str]]], findings: Findings) -> LogPart:
    rows: list[Row] = []
    spans: list[Row] = []
    alive: dict[str, Row] = {}
    times: dict[str, int] = {}
    latest = 0
    for line, (stamp, event, node) in ((line, match.groups()) for line, match in matches):
        at = int(stamp) * _MS
        if at < latest:
            text = "times that jump back, within a trace of nodes"
            findings.add("suspicious", text, 1, f"line {line:,}")
        latest = max(at, latest)
        if (event == "add") == (node in alive):
            text = "nodes added twice" if event == "add" else "nodes removed that were absent"
            findings.add("suspicious", text, 1, f"line {line:,}: {node}")
        if event == "add" and node not in alive:
            times[node] = times.get(node, 0) + 1
            row = {"start_ns": at, "end_ns": None, "attempt": times[node], "nodes": node}
            # The span stays open (no end) until the node is taken back.
            spans.append(row | {"line": line, "state": "running", "node_count": 1, "clock": "own"})
            alive[node] = spans[-1]
        elif event == "remove":
            if span := alive.pop(node, None):
                span |= {"end_ns": at, "outcome": "taken back"}
            row = {"start_ns": at, "end_ns": at, "clock": "own", "node": node, "line": line}
            rows.append(_TAKEN | row | {"text": f"{stamp},{event},{node}"})
    findings.add("read", "changes", len(rows) + len(spans))
    by_time = sorted(spans, key=lambda row: row["start_ns"])
    rows.sort(key=lambda row: row["start_ns"])
    return log_part(findings, rows, by_time)


def _by_count(
    matches: Iterator[tuple[int, re.Match[str]]], settings: Given, findings: Findings
) -> LogPart:
    rows = [(line, f"{m[1]} {m[2]}", int(m[3])) for line, m in matches]
    frame = pd.DataFrame(rows, columns=["line", "stamp", "nodes"])
    frame["at"] = utc_ns(frame["stamp"], frame["line"], settings.tz, findings).ns
    frame = frame[frame["at"].notna()].reset_index(drop=True)
    back = (frame["at"].diff() < 0).fillna(value=False)
    if back.any():
        first = int(frame.loc[back, "line"].iloc[0])
        text = "times that jump back, where files were joined; each segment is read separately"
        findings.add("suspicious", text, int(back.sum()), f"line {first:,}")
    # Differences between files that were joined are not losses of nodes.
    frame["piece"] = back.astype("int64").cumsum() + 1
    findings.add("read", "counts", len(frame))
    fell = -frame.groupby("piece")["nodes"].diff().fillna(0).astype("int64")
    falls = frame.assign(fell=fell)[fell > 0].sort_values(["at", "line"])
    spans = [
        _TAKEN
        | {"start_ns": row["at"], "end_ns": row["at"], "line_count": row["fell"]}
        | {"text": f"{row['stamp']}, {row['nodes']}: {row['fell']} fewer", "line": row["line"]}
        | {"assumed": f"tz={settings.tz}"}
        for row in falls.to_dict("records")
    ]
    return log_part(findings, spans, _spans(frame))


def _spans(frame: pd.DataFrame) -> list[Row]:
    """Return the times over which the count stayed the same; each piece ends at its last stamp."""
    before = frame.groupby("piece")["nodes"].shift()
    starts = frame[before.isna() | (before != frame["nodes"])]
    ends = starts.groupby("piece")["at"].shift(-1)
    ends = ends.fillna(starts["piece"].map(frame.groupby("piece")["at"].last()))
    spans = starts.assign(end=ends).sort_values(["at", "line"])
    return [
        {"start_ns": row["at"], "end_ns": row["end"], "attempt": row["piece"], "state": "running",
         "node_count": row["nodes"], "line": row["line"]}
        for row in spans.to_dict("records")
    ]  # fmt: skip
