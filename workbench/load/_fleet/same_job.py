"""Whether the logs that lie together can be of one job, by the time that they cover.

A log whose local stamps were read in the wrong zone is off by a whole number of quarter hours, so
the zone can often be told from the times alone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pandas as pd

from workbench._shared.time_groups import SHARE_NO_TIME, time_groups
from workbench.load._files.archive import Paths, shown_all
from workbench.load._files.findings import Finding, Record
from workbench.load._files.time import zone_of

_QUARTER_S = 900
_WIDEST_H = 26  # from UTC-12 to UTC+14
_FIRST_ZONE_H, _LAST_ZONE_H = -12, 14
# A log that overlaps by less is looked at, if moved by some quarter hours it would fit closely.
_LEAST_SHARE = 0.75
_CLOSE_SHARE, _CLOSE_S = 0.05, 60
_SLACK_S = 120  # recorders are started and stopped by hand
_DAY_S = 86_400
_SECOND = 1_000_000_000


class _Span(NamedTuple):
    """From when to when logs of one kind tell anything, s since 1970."""

    name: str
    first_s: float
    last_s: float
    is_local: bool | None  # None if that is not known

    @property
    def length_s(self) -> float:
        return self.last_s - self.first_s


def same_job(path: Paths, read: Record, tz: str | None) -> list[Finding]:
    """Return findings on data that miss the time of the job, or of each other.

    ``read`` has what was loaded, by kind; ``tz`` is the zone that the caller gave for local stamps.
    None where a kind is missing or has no time.
    """
    job = _job_span(read.get("job logs"))
    power, failed = _power_span(read.get("power logs")), _failure_span(read.get("failure logs"))
    # A lone failure may well be from before the job, but not from another day.
    logs = [power, failed if failed is not None and failed.length_s > 0 else None]
    texts = {log.name: _told(log, job, tz) for log in logs if log is not None and job is not None}
    if failed is not None and failed.length_s <= 0:
        failed = failed._replace(first_s=failed.first_s - _DAY_S, last_s=failed.last_s + _DAY_S)
    every = (job, power, failed, _trace_span(read.get("traces")))
    # What is told of the job log already is not told twice.
    spans = [span for span in every if span is not None and not texts.get(span.name)]
    told = [*texts.values(), _apart(spans)]
    return [(shown_all(path), "suspicious", text, 1, None) for text in told if text]


def _apart(spans: list[_Span]) -> str:
    """Report kinds of data that share no time with the others; '' if all do."""
    by_name = {span.name: span for span in spans}
    groups = time_groups({name: (round(span.first_s * _SECOND), round(span.last_s * _SECOND))
                          for name, span in by_name.items()})  # fmt: skip
    if len(groups) < 2:
        return ""
    texts = []
    for names in groups:
        first_s = min(by_name[name].first_s for name in names)
        last_s = max(by_name[name].last_s for name in names)
        days = dict.fromkeys(f"{datetime.fromtimestamp(s, UTC):%Y-%m-%d %H:%M}"
                             for s in (first_s, last_s))  # fmt: skip
        texts.append(f"{' and '.join(names)} (UTC {' to '.join(days)})")
    return f"{', '.join(texts)} {SHARE_NO_TIME}: of one job? They are not put on one axis"


def _told(log: _Span, job: _Span, tz: str | None) -> str:
    """Report a log that misses the time of the job, and the zone that fits; '' if none is off."""
    overlap_s = max(min(log.last_s, job.last_s) - max(log.first_s, job.first_s), 0)
    share = overlap_s / max(min(log.length_s, job.length_s), 1)
    if share >= _LEAST_SHARE or (share > 0 and log.name == "failure logs"):
        return ""
    shifts = _shifts(log, job, is_close=share > 0)
    hours = [shift for shift in shifts if shift % 3600 == 0]
    best = shifts if len(shifts) == 1 else hours if len(hours) == 1 else []
    if best:
        (shift_s,) = best
        when = f"{_clock(shift_s)} {'earlier' if shift_s > 0 else 'later'} than the job log"
        return f"{log.name} are {when}: another zone? {_remedy(log, job, shift_s, tz)}"
    if share > 0 or log.name == "failure logs":
        return ""
    if shifts:
        ends = f"{_clock(min(shifts, key=abs))} to {_clock(max(shifts, key=abs))}"
        when = "earlier" if shifts[0] > 0 else "later"
        return f"{log.name} are {ends} {when} than the job log: another zone? pass tz="
    gap_s = max(job.first_s - log.last_s, log.first_s - job.last_s)
    between = f"({_clock(gap_s)} between): of one job?"
    return f"{log.name} and the job log {SHARE_NO_TIME} {between}"


def _shifts(log: _Span, job: _Span, *, is_close: bool) -> list[int]:
    """Return by how many s a log must be moved to cover the time of the job, or to lie in it.

    Only whole quarter hours, as zones differ by. ``is_close`` asks for the same time.
    """
    close_s = max(_CLOSE_SHARE * job.length_s, _CLOSE_S)
    shifts = []
    most = _WIDEST_H * 4
    for shift in (quarter * _QUARTER_S for quarter in range(-most, most + 1) if quarter):
        before, after = job.first_s - log.first_s - shift, log.last_s + shift - job.last_s
        is_inside = min(before, after) >= -_SLACK_S or max(before, after) <= _SLACK_S
        if is_inside and (not is_close or max(abs(before), abs(after)) <= close_s):
            shifts.append(shift)
    return shifts


def _remedy(log: _Span, job: _Span, shift_s: int, tz: str | None) -> str:
    # The zone that was given applies to whichever of them has local stamps.
    wrong, moved_s = (job, -shift_s) if log.is_local is False and tz else (log, shift_s)
    is_stated = tz is None or wrong.is_local is False
    zone = None if is_stated or tz is None else _zone(tz, wrong.first_s, moved_s)
    if zone is None:
        return "Their stamps state the zone, so a clock was wrong; load them separately"
    only = "" if job.is_local is False or wrong is job else ", for files of this zone only"
    return f'Stamps of the {wrong.name} were read in {tz}; pass tz="{zone}"{only}'


def _zone(tz: str, at_s: float, moved_s: int) -> str | None:
    """Return the offset of the zone in which local times are later by so much; None if none is."""
    offset = zone_of(tz).utcoffset(datetime.fromtimestamp(at_s, tz=UTC).replace(tzinfo=None))
    seconds = int((offset or timedelta()).total_seconds()) - moved_s
    if not _FIRST_ZONE_H * 3600 <= seconds <= _LAST_ZONE_H * 3600:
        return None
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"{'-' if seconds < 0 else '+'}{hours:02d}:{minutes:02d}"


def _clock(seconds: float) -> str:
    total = abs(round(seconds))
    return f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}"


def _job_span(job: Any) -> _Span | None:
    if job is None:
        return None
    return _span("job log", [job.steps, job.spans], "start_ns", "end_ns", None)


def _power_span(power: Any) -> _Span | None:
    if power is None:
        return None
    timed = power.entities[power.entities["clock"] == "epoch"]
    is_local = bool(timed["assumed"].str.contains("tz=", regex=False).any())
    return _span("power logs", [timed], "first_ns", "last_ns", is_local)


def _failure_span(log: Any) -> _Span | None:
    if log is None:
        return None
    timed = log.nodes[log.nodes["clock"] == "epoch"]
    if not timed["first_ns"].notna().any():
        names = {"start_ns": "first_ns", "end_ns": "last_ns"}
        timed = log.failures[log.failures["clock"] == "epoch"].rename(columns=names)
    is_local = bool(log.failures["assumed"].str.contains("tz=", regex=False).any())
    return _span("failure logs", [timed], "first_ns", "last_ns", is_local)


def _trace_span(trace: Any) -> _Span | None:
    if not hasattr(trace, "ranks"):
        return None
    timed = trace.ranks[trace.ranks["clock"] == "epoch"]
    return _span("traces", [timed], "first_ns", "last_ns", is_local=False)


def _span(
    name: str, frames: list[pd.DataFrame], first: str, last: str, is_local: bool | None
) -> _Span | None:
    starts = [frame[first].dropna() for frame in frames if frame[first].notna().any()]
    if not starts:
        return None
    ends = [frame[last].dropna() for frame in frames if frame[last].notna().any()]
    first_s = min(int(values.min()) for values in starts) / _SECOND
    last_s = max(int(values.max()) for values in [*starts, *ends]) / _SECOND
    return _Span(name, first_s, last_s, is_local)
