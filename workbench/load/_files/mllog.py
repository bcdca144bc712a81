"""Lines of MLPerf's logger: JSON after the mark ``:::MLLOG``, wherever it stands in a line."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from workbench.load._files.findings import Findings

MARK = ":::MLLOG"
_MILLISECOND = 1_000_000
_LATEST_MS = (1 << 63) // _MILLISECOND


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log: what it is about, when it was written, and what it says."""

    line: int
    time_ns: int
    key: str
    event_type: str
    value: Any
    metadata: dict[str, Any]


def entry_of(line: int, text: str, findings: Findings) -> Entry | None:
    """Read one line; None if it is none of the logger's, or damaged, which is counted.

    Ranks may be written before the mark (``  0: :::MLLOG``), and metadata may be an empty
    text or null.
    """
    _, mark, rest = text.partition(MARK)
    if not mark:
        return None
    try:
        record = json.loads(rest)
    except (ValueError, RecursionError) as error:
        finding, what = _damage(error, rest)
        findings.add(finding, what, 1, f"line {line:,}")
        return None
    if not isinstance(record, dict) or not isinstance(record.get("key"), str):
        findings.add("left out", "lines of the logger without a key", 1, f"line {line:,}")
        return None
    time_ns = _time_ns(record.get("time_ms"))
    if time_ns is None:
        what = "lines of the logger without a usable time_ms"
        findings.add("left out", what, 1, f"line {line:,}")
        return None
    metadata = record.get("metadata")
    return Entry(
        line,
        time_ns,
        record["key"],
        str(record.get("event_type", "")),
        record.get("value"),
        metadata if isinstance(metadata, dict) else {},
    )


def number_of(value: object) -> float | None:
    """Return a finite number, written as a number or as text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _damage(error: Exception, rest: str) -> tuple[str, str]:
    if isinstance(error, json.JSONDecodeError):
        is_cut = error.pos >= len(rest.rstrip()) or error.msg.startswith("Unterminated string")
        if is_cut:
            return "truncated", "lines of the logger that do not end"
    return "left out", "lines of the logger that are no JSON"


def _time_ns(time_ms: object) -> int | None:
    number = number_of(time_ms)
    if number is None or not 0 < number < _LATEST_MS:
        return None
    whole = int(number)
    return whole * _MILLISECOND + round((number - whole) * _MILLISECOND)
