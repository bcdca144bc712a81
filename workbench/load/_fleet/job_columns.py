"""What the columns of a table of training steps are, told by the names people give them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_UNIT = re.compile(r"^(.*?)[_ ]*[(\[]?(ns|us|µs|ms|msec|sec|seconds|secs|s)[)\]]?$")
_SAME = {"µs": "us", "msec": "ms", "sec": "s", "seconds": "s", "secs": "s"}
NAMES: dict[str, tuple[str, ...]] = {
    "step": ("step", "iteration", "iter", "global_step", "train_step", "_step", "step_number"),
    "attempt": ("attempt", "restart", "restart_count"),
    "start": ("start", "start_time", "step_start", "begin", "start_timestamp", "started_at"),
    "end": (
        *("end", "end_time", "step_end", "end_timestamp", "finished_at"),
        *("time", "timestamp", "_timestamp", "ts", "datetime", "wall_time", "date"),
    ),
    "duration": (
        *("step_time", "duration", "dur", "iteration_time", "iter_time", "elapsed", "elapsed_time"),
        *("train_step_time", "train_step_timing", "step_duration", "elapsed_time_per_iteration"),
        *("time_per_step", "step_timing"),
    ),
    "tokens": ("tokens", "token_count", "tokens_per_step", "num_tokens", "step_tokens"),
    "samples": (
        *("samples", "sample_count", "samples_per_step", "global_batch_size", "batch_size"),
    ),
}
# Stamps that may be of the beginning as well as of the end of a step.
EITHER = NAMES["end"][5:]


def plain(name: str) -> str:
    """Return a name of a column in lower case, its words joined by underscores."""
    return re.sub(r"[\s\-./]+", "_", name.strip().lower())


def meaning_of(name: str) -> tuple[str, str]:
    """Return what a column is and its unit; '' for what is not known.

    Examples
    --------
    >>> meaning_of("Step Time (ms)"), meaning_of("iteration"), meaning_of("loss")
    (('duration', 'ms'), ('step', ''), ('', ''))
    """
    whole = plain(name)
    found = _UNIT.match(whole)
    for stem, unit in ((whole, ""), (found[1], found[2]) if found else ("", "")):
        for kind, names in NAMES.items():
            if stem in names and (not unit or kind in ("start", "end", "duration")):
                return kind, _SAME.get(unit, unit)
    return "", ""


def columns_of(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return name and unit of the column for each meaning; the more usual name wins."""
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        kind, unit = meaning_of(name)
        if kind and (kind not in found or _rank(kind, name) < _rank(kind, found[kind][0])):
            found[kind] = (name, unit)
    return found


def _rank(kind: str, name: str) -> int:
    names = NAMES[kind]
    whole = plain(name)
    found = _UNIT.match(whole)
    stem = whole if whole in names or not found else found[1]
    return names.index(stem)


def first_of(record: Mapping[str, Any], kind: str) -> int | None:
    """Return the whole number from 0 that a record holds under a name of this kind."""
    for name in NAMES[kind]:
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            is_whole = math.isfinite(value) and value % 1 == 0
            return int(value) if is_whole and 0 <= value < 1 << 53 else None
    return None


def duration_ns_of(record: Mapping[str, Any]) -> int | None:
    """Return the duration that a record holds under a name with a unit."""
    for name, value in record.items():
        kind, unit = meaning_of(name)
        if kind == "duration" and unit and isinstance(value, int | float):
            if not math.isfinite(value) or abs(value) * _NS[unit] >= 1 << 62:
                return None
            return round(value * _NS[unit])
    return None


def factor_ns(unit: str) -> int:
    """Return how many ns a unit of time has."""
    return _NS[unit]
