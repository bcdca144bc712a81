"""Times in files: time zones, local times, the stamps of a log, and the times of a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, NamedTuple, Protocol
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.tables import FAILURES, TIMELINE, Table

Hosts = str | Mapping[str, str] | re.Pattern[str] | None
BootTime = str | datetime | pd.Timestamp | None
# No log of failures is older, and a later year is a slip of the keyboard.
_YEARS = (1990, 2100)


def checked(tz: str | None, year: int | None, boot_time: BootTime) -> Given:
    """Return what was said if it can be used; ValueError if it cannot."""
    if year is not None:
        value: object = year
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not _YEARS[0] <= year <= _YEARS[1]:
            msg = f"year must be a whole number from {_YEARS[0]} to {_YEARS[1]}; got {year!r}"
            raise ValueError(msg)
    tz = None if tz is None else _zone_name(tz)
    return Given(tz, year, None if boot_time is None else _boot(boot_time, tz))


def host_of(label: str, node: Hosts) -> str | None:
    r"""Return the host of a file as ``node`` tells it; None if it does not.

    The file name is asked first, then the folders (or the archive) around it. Of several
    parts of a dict that fit, the longest counts.

    Examples
    --------
    >>> host_of("logs/node12/kern.log", re.compile(r"node\d+"))
    'node12'
    >>> host_of("node12.log", {"node1": "a", "node12": "b"})
    'b'
    """
    if node is None or isinstance(node, str):
        return node
    for name in (re.split(r"[/!]", label)[-1], label):
        if isinstance(node, re.Pattern):
            if match := node.search(name):
                return match[1] if node.groups else match[0]
        elif texts := [text for text in node if text in name]:
            return node[max(texts, key=len)]
    return None


def check_hosts(node: Hosts) -> None:
    is_pattern = isinstance(node, re.Pattern) and isinstance(node.pattern, str)
    is_dict = isinstance(node, Mapping) and all(
        isinstance(text, str) for pair in node.items() for text in pair
    )
    if not (node is None or (isinstance(node, str) and node) or is_pattern or is_dict):
        msg = (
            "node must be a host, a dict from a part of the file name to a host, or a pattern "
            f're.compile(r"node\\d+"); got {node!r}'
        )
        raise TypeError(msg)


def _zone_name(tz: str) -> str:
    try:
        zone = zone_of(tz)
    except LoadError:
        msg = f'tz must be a time zone such as "UTC", "Europe/Berlin" or "+01:00"; got {tz!r}'
        raise ValueError(msg) from None
    return "UTC" if zone is UTC else str(zone).removeprefix("UTC")


def _boot(boot_time: str | datetime | pd.Timestamp, tz: str | None) -> pd.Timestamp:
    boot = None
    if isinstance(boot_time, str | datetime):
        try:
            boot = pd.Timestamp(boot_time)
        except (ValueError, OverflowError):
            boot = None
    if boot is None or pd.isna(boot):
        msg = f'boot_time must be a stamp like "YYYY-MM-DD hh:mm:ss+00:00"; got {boot_time!r}'
        raise ValueError(msg)
    if not _YEARS[0] <= boot.year <= _YEARS[1]:
        msg = f"boot_time must lie between {_YEARS[0]} and {_YEARS[1]}; got {boot_time!r}"
        raise ValueError(msg)
    if boot.tzinfo is None and tz is None:
        msg = f"boot_time {str(boot_time)!r} has no time zone; add one (+00:00) or pass tz"
        raise ValueError(msg)
    if boot.tzinfo is None and tz is not None:
        boot = pd.Timestamp(boot.to_pydatetime().replace(tzinfo=zone_of(tz)))
    return boot.tz_convert("UTC")


ABSENT = frozenset({"", "Unknown", "None", "NONE", "N/A", "Invalid", "(null)"})
_LOCAL = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
_ZONED = rf"{_LOCAL} ?(?:Z|[+-]\d\d(?::?\d\d)?)"
_LATEST_S = 7_258_118_400  # 2200-01-01
# No job runs for 30 years, and no stamp plus that is beyond what int64 can hold.
_LONGEST_S = 30 * 366 * 86_400
_SECONDS = r"\d{9,10}(?:\.\d+)?"


@dataclass(frozen=True)
class Times:
    """Stamps read: ns since 1970, and whether a zone of the caller was used."""

    ns: pd.Series
    is_local: pd.Series


def utc_ns(
    texts: pd.Series,
    lines: pd.Series,
    tz: str | None,
    findings: Findings,
    *,
    is_in_order: bool = True,
) -> Times:
    """Read stamps: ISO 8601 with or without an offset, or seconds since 1970.

    Of an hour that the zone repeats the order of the stamps tells which of the two is meant;
    ``is_in_order`` is whether they stand in the order in which they were written. Stamps that are
    none, that the zone skips, or that remain ambiguous, become missing and are counted. A local
    stamp without ``tz`` is refused.
    """
    values = texts.str.strip()
    # Logs repeat their stamps many times over, so each is read once.
    unique = pd.Series(values[~values.isin(ABSENT)].unique(), dtype=values.dtype)
    local = unique.str.fullmatch(_LOCAL)
    if tz is None and local.any():
        first = values[values.isin(unique[local])].index[0]
        raise no_zone(label=findings.source, line=int(lines[first]), text=values[first])
    ns, problem, naive = _read(unique, local, tz)
    # Stamps that are absent have no position, and stay missing.
    position = pd.Series(range(len(unique)), index=unique).reindex(values).to_numpy()
    at = pd.Series(position, index=texts.index).dropna().astype("int64")
    read = pd.Series(ns.iloc[at].array, index=at.index)
    problems = pd.Series(problem.iloc[at].array, index=at.index)
    if is_in_order and tz is not None and (naive.notna() & ns.isna()).any():
        of_row = pd.Series(naive.iloc[at].array, index=at.index).dropna()
        instants = in_written_order(of_row.astype("int64").to_numpy(), zone_of(tz)).ns
        read[of_row.index] = instants.array
        problems[of_row.index[instants.notna().to_numpy()]] = ""
    result = read.reindex(texts.index)
    for reason in sorted({*problems} - {""}):
        bad = at[problems.eq(reason)]
        where = f"line {int(lines[bad.index[0]]):,}: {values[bad.index[0]][:40]}"
        findings.add("dropped", reason, len(bad), where)
    used = pd.Series(local.iloc[at].to_numpy(dtype=bool), index=at.index)
    return Times(result, used.reindex(texts.index, fill_value=False))


def _read(
    unique: pd.Series, local: pd.Series, tz: str | None
) -> tuple[pd.Series, pd.Series, pd.Series]:
    year = pd.to_numeric(unique.str.slice(0, 4), errors="coerce").between(1970, 2200)
    zoned = unique.str.fullmatch(_ZONED)
    # Both forms of an offset are ISO 8601; pandas wants no space before it.
    tidy = unique.str.replace(r" (?=(?:Z|[+-]\d\d(?::?\d\d)?)$)", "", regex=True)
    absolute = _parsed(tidy.where(zoned & year), utc=True)
    naive = _parsed(tidy.where(local & year), utc=False)
    instants = absolute
    if tz is not None:
        # One by one it is unknown which hour of two is meant.
        placed = naive.dt.tz_localize(zone_of(tz), ambiguous="NaT", nonexistent="NaT")
        instants = absolute.fillna(placed.dt.tz_convert("UTC"))
    raw = instants.dt.tz_localize(None).astype("int64")
    ns = raw.astype("Int64").mask(instants.isna())
    for index in unique.index[unique.str.fullmatch(_SECONDS)]:
        seconds, _, fraction = unique[index].partition(".")
        if int(seconds) < _LATEST_S:
            ns[index] = int(seconds) * 10**9 + int(f"{fraction[:9]:0<9}")
    problem = pd.Series("stamps that are not times; they are missing", index=unique.index)
    shifted = f"local times that the clock change makes ambiguous or impossible in {tz}; "
    problem = problem.mask(naive.notna(), shifted + "they are missing").mask(ns.notna(), "")
    return ns, problem, naive


_QUARTER_NS = 900 * 10**9
# Lines of several writers overtake each other by less than this; a clock that is set back jumps.
_JUMP_NS = 60 * 10**9
# Two stamps that are nearer belong to one side of the change.
_NEAR_NS = 1_800 * 10**9


class Placed(NamedTuple):
    """Local times in UTC: ns (Int64), missing where the zone skips them or cannot tell the hour."""

    ns: pd.Series
    is_skipped: np.ndarray


def in_written_order(local: np.ndarray, zone: tzinfo) -> Placed:
    """Place local times [ns since 1970 of the zone's own calendar] in the order of writing.

    In the hour that a clock change repeats, the order tells which of the two is meant: the one
    fall of the times between two stamps, or the nearer side of the change.
    """
    quarters, code = np.unique(local // _QUARTER_NS, return_inverse=True)
    moments = [_EPOCH + timedelta(seconds=int(q) * 900) for q in quarters]
    early, late = (
        np.array([_offset_ns(moment, zone, fold) for moment in moments], dtype=np.int64)[code]
        for fold in (0, 1)
    )
    shift, is_open = _second_hours(local, early > late)
    placed = local - early + np.where(shift, early - late, 0)
    is_skipped = early < late
    return Placed(pd.Series(pd.arrays.IntegerArray(placed, is_open | is_skipped)), is_skipped)


def _offset_ns(moment: datetime, zone: tzinfo, fold: int) -> int:
    offset = moment.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0)
    return int(offset.total_seconds()) * 10**9


def _second_hours(local: np.ndarray, is_twice: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which times are of the second of two hours, and which can be of either."""
    is_second, is_open = np.zeros(len(local), bool), np.zeros(len(local), bool)
    edges = np.flatnonzero(np.diff(is_twice.astype(np.int8), prepend=0, append=0))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        back = start + 1 + np.flatnonzero(np.diff(local[start:end]) < -_JUMP_NS)
        follows = start > 0 and 0 <= local[start] - local[start - 1] < _NEAR_NS
        leads = end < len(local) and 0 <= local[end] - local[end - 1] < _NEAR_NS
        if len(back) == 1:
            is_second[int(back[0]) : end] = True
        elif not len(back) and follows != leads:
            is_second[start:end] = leads
        else:
            is_open[start:end] = True
    return is_second, is_open


def set_forward(
    at: pd.Series, falls: pd.Series, usual_ns: pd.Series, lines: pd.Series, findings: Findings
) -> pd.Series:
    """Return what to add to stamps in the order of writing, whose clock was set back at ``falls``.

    ``usual_ns`` is the time that passes between a stamp and the one before it. All in ns.
    """
    back = (usual_ns - at.diff()).where(falls, 0).fillna(0).astype("int64")
    if falls.any():
        words = "times that the clock was set back while steps went on; later stamps are moved on"
        where = f"line {int(lines[falls].iloc[0]):,}: set back by {back.max() / 1e9:,.6g} s"
        findings.add("repaired", words, int(falls.sum()), where)
    return back.cumsum()


def _parsed(texts: pd.Series, *, utc: bool) -> pd.Series:
    stamps = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=utc)
    in_ns: pd.Series = stamps.dt.as_unit("ns")
    return in_ns


def duration_ns(text: str) -> int | None:
    """Read a duration of Slurm, ``2-03:41:40`` or ``00:23.779``; None if it is none."""
    match = re.fullmatch(
        r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.(\d{1,9}))?", text.strip(), re.ASCII
    )
    if match is None:
        return None
    days, hours, minutes, seconds = (int(text or 0) for text in match.groups()[:4])
    total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total_s > _LONGEST_S:
        return None
    return total_s * 10**9 + int(f"{match[5] or '0':0<9}")


SECOND = 1_000_000_000
_SHOWN_CHARS = 300
_PIECE_ROWS = 20_000


@dataclass(frozen=True)
class Given:
    """Facts from the caller that files do not carry; a reader requests them and never guesses.

    ``year`` is that of the first stamp without one: later ones may pass New Year. ``boot_time`` is
    when the kernel whose stamps count seconds of uptime was booted.
    """

    tz: str | None = None
    year: int | None = None
    boot_time: pd.Timestamp | None = None
    node: str | None = None


@dataclass
class LogPart:
    """Contents of one file. Rows of ``failures`` are single lines; folding comes later."""

    failures: pd.DataFrame
    timeline: pd.DataFrame
    findings: Findings
    # Hosts that the file names besides those of the two tables: node, gpu_count.
    nodes: Mapping[str, int | None] = field(default_factory=dict)
    # Over which time the file watched a host, failures or not: node, (first ns, last ns).
    watched: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Name of the format, set by the entry point.
    format_name: str = ""


class LogFormat(Protocol):
    """A module that reads one format of failure logs."""

    NAME: str

    def looks_like(self, head: bytes, label: str) -> bool:
        """Recognise the format by the first bytes of a file, unpacked."""

    def read(self, source: Source, given: Given) -> LogPart:
        """Read a whole file."""


def log_part(
    findings: Findings,
    failures: Iterable[Mapping[str, Any]] = (),
    timeline: Iterable[Mapping[str, Any]] = (),
    nodes: Mapping[str, int | None] | None = None,
) -> LogPart:
    """Make a part of rows as dicts; see :func:`failure_rows` and :func:`timeline_rows`."""
    label = findings.source
    failed, spans = failure_rows(failures, label), timeline_rows(timeline, label)
    return LogPart(failed, spans, findings, nodes or {})


def failure_rows(rows: Iterable[Mapping[str, Any]], source: str) -> pd.DataFrame:
    """Make table FAILURES of dicts with some of its columns; the rest is missing or usual."""
    usual = {"clock": "epoch", "other_codes": "", "line_count": 1, "text": "", "assumed": ""}
    usual |= {"devices": "", "ranks": "", "rank_count": 0}  # known once lines are folded
    usual |= {"category": "unknown", "severity": "unknown", "source": source}
    return table_of_rows(FAILURES, rows, usual)


def timeline_rows(rows: Iterable[Mapping[str, Any]], source: str) -> pd.DataFrame:
    """Make table TIMELINE of dicts with some of its columns; the rest is missing or usual."""
    return table_of_rows(TIMELINE, rows, {"clock": "epoch", "source": source})


# In pieces, because dicts take many times the memory of a frame.
def table_of_rows(
    table: Table, rows: Iterable[Mapping[str, Any]], usual: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Make a table of dicts with some of its columns; the rest is ``usual`` or missing."""
    usual = usual or {}
    names, walk, pieces = list(table.columns), iter(rows), []
    while piece := list(islice(walk, _PIECE_ROWS)):
        columns = {n: [row.get(n, usual.get(n)) for row in piece] for n in names}
        pieces.append(table.cast(pd.DataFrame(columns, dtype=object)))
    if not pieces:
        return table.empty()
    return table.check(pieces[0] if len(pieces) == 1 else pd.concat(pieces, ignore_index=True))


def needs(what: str, *, label: str, line: int, text: str, remedy: str) -> LoadError:
    return LoadError(f"{label}, line {line:,}: {text[:80]!r} has no {what}; pass {remedy}")


def shortened(line: str) -> str:
    """Return the beginning of a line as it can be kept and shown: its spaces, and printable."""
    plain = line[: _SHOWN_CHARS + 1]
    if not plain.isprintable():
        plain = "".join(c if c.isprintable() else " " for c in plain)
    return _cut(plain)


def one_line(text: str) -> str:
    """Return the beginning of a text of any number of lines, on one, as column ``text`` has it."""
    return _cut(" ".join(text[: 4 * _SHOWN_CHARS].split()))


def _cut(plain: str) -> str:
    return plain if len(plain) <= _SHOWN_CHARS else plain[: _SHOWN_CHARS - 1] + "…"


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what is subtracted has no zone either
# What int64 can hold in ns.
_STAMPS_LATEST_S = (1 << 63) // SECOND
_FIRST_YEAR, _LAST_YEAR = 1970, 2261
# The decimal mark may be a comma, as Python's logging writes it.
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?"
    r"\s*(?:(Z|UTC)|([+-]\d\d):?(\d\d)|([+-]\d\d))?"
)


def epoch_ns(value: object) -> int | None:
    """Turn seconds since the epoch, a number or text, into ns; None if they can be none.

    Instants at or before 1970 are none: logs write 0 for a time they do not have.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 40:
        return None
    try:
        # A float of seconds since 1970 resolves no better than 0.2 us.
        seconds = Decimal(value.strip() if isinstance(value, str) else repr(value))
    except (InvalidOperation, ValueError):
        return None
    if not seconds.is_finite() or not 0 < seconds < _STAMPS_LATEST_S:
        return None
    return int((seconds * SECOND).to_integral_value())


def iso_ns(text: object, zone: tzinfo | None = None, after_ns: int | None = None) -> int | None:
    """Turn a stamp such as ``2024-05-01T10:00:00.5Z`` into ns; None if it is none.

    ``zone`` is that of stamps without one; without it they are refused. ``after_ns`` is that of
    the stamp before it, see :func:`local_ns`.
    """
    match = _ISO.fullmatch(text.strip()) if isinstance(text, str) and len(text) < 64 else None
    if match is None:
        return None
    *fields, fraction, utc, hours, minutes, hours_only = match.groups()
    try:
        moment = datetime(*map(int, fields))  # type: ignore[arg-type] # noqa: DTZ001
    except ValueError:
        return None
    part_ns = int((fraction or "0").ljust(9, "0"))
    if utc:
        zone = UTC
    elif hours or hours_only:
        # The sign is that of the minutes, too: -03:30 lies three and a half hours west.
        sign = -1 if (hours or hours_only).startswith("-") else 1
        east = timedelta(hours=int(hours or hours_only), minutes=sign * int(minutes or 0))
        if abs(east) >= timedelta(days=1):
            return None
        zone = timezone(east)
    return None if zone is None else local_ns(moment, zone, part_ns, after_ns)


def local_ns(
    moment: datetime, zone: tzinfo, part_ns: int = 0, after_ns: int | None = None
) -> int | None:
    """Turn a local time into ns; None if a clock change makes it ambiguous or impossible.

    ``after_ns`` is the instant of the stamp before it in the file. Of an hour that comes twice
    the first is meant if it follows that instant closely, the second if the first lies in the past.
    """
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        return None
    since = moment - _EPOCH
    local = (since.days * 86_400 + since.seconds) * SECOND + part_ns
    early, late = (local - _offset_ns(moment, zone, fold) for fold in (0, 1))
    if early != late:
        if early > late or after_ns is None:
            return None
        is_past = early < after_ns - _JUMP_NS
        if (is_past and late < after_ns - _JUMP_NS) or early - after_ns >= _NEAR_NS:
            return None
        return late if is_past else early
    return early if early >= SECOND else None


# The time zone of local stamps: the caller names it, and none is ever assumed.
# Of an hour that a clock change repeats the order of the stamps decides; what it cannot decide has
# no time, and is counted.

REMEDY = 'tz="UTC", or the zone in which the host wrote it'
_OFFSET = re.compile(r"(?:UTC)?([+-]\d\d:?\d\d)")


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name such as ``UTC``, ``Europe/Berlin`` or ``+02:00``."""
    try:
        text = name.strip()
        if text in ("UTC", "Z", "GMT"):
            return UTC
        if offset := _OFFSET.fullmatch(text):
            return datetime.fromisoformat(f"2000-01-01T00:00:00{offset[1]}").tzinfo or UTC
        return ZoneInfo(text)
    except (KeyError, ValueError, TypeError, OSError, AttributeError):
        msg = f"tz={name!r} is not a time zone; name it like 'UTC', 'Europe/Berlin' or '+02:00'"
        raise LoadError(msg) from None


def zone_for(given: Given, *, label: str, line: int, text: str) -> tzinfo:
    if given.tz is None:
        raise no_zone(label=label, line=line, text=text)
    return zone_of(given.tz)


def no_zone(*, label: str, line: int, text: str) -> LoadError:
    return needs("time zone", label=label, line=line, text=text, remedy=REMEDY)


_NS_PER = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_IN_NAME = re.compile(r"_(ns|us|ms|s|sec|seconds)$|^(seconds|elapsed(?:_time)?)$", re.IGNORECASE)
# Since 1970, stamps of the years 1980 to 2200 are of this size.
_SINCE_1970 = {unit: (315_532_800 * 10**9 // ns, 7_258_118_400 * 10**9 // ns)
               for unit, ns in _NS_PER.items()}  # fmt: skip
_LATEST_NS = 7_258_118_400 * 10**9


@dataclass(frozen=True)
class Clock:
    """Meaning of the times of a table, settled once for all of its parts.

    ``per_unit_ns`` is missing for times that carry their own meaning (stamps with a zone or in
    ``zone``); ``kind`` is epoch or own; ``said`` is what was taken from the size of numbers.
    """

    per_unit_ns: int | None = None
    kind: str = "epoch"
    zone: str | None = None
    said: str = ""


def clock_of(first: pa.Array, column: str, tz: str | None, label: str) -> Clock:
    """Return how times are meant, from the first part of them."""
    kind = first.type
    if pa.types.is_timestamp(kind):
        if kind.tz is None and tz is None:
            msg = f"{label}: times in column {column!r} have no time zone; pass {REMEDY}"
            raise LoadError(msg)
        return Clock(zone=tz if kind.tz is None else None)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _counted(_numbers(first), column, label)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if (numbers := _as_numbers(first)) is not None:
            return _counted(numbers, column, label)
        return Clock(zone=tz)
    msg = f"{label}: column {column!r} holds {kind}, no times; save it as a timestamp or a number"
    raise LoadError(msg)


# The name of the column goes before the size of its numbers: uptime in s may look like anything.
def _counted(values: np.ndarray, column: str, label: str) -> Clock:
    # The median: single zeros or other sentinels must not decide for the whole column.
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    middle = float(np.median(finite)) if len(finite) else 0.0
    unit_in_name = _IN_NAME.search(column.strip())
    by_size = next((u for u, (low, high) in _SINCE_1970.items() if low <= middle <= high), None)
    if unit_in_name:
        unit = (unit_in_name[1] or "s").lower()
        unit = "s" if unit in ("sec", "seconds") else unit
        kind = "epoch" if by_size == unit else "own"
        return Clock(_NS_PER[unit], kind)
    if by_size is None:
        msg = (
            f"{label}: numbers in column {column!r}, about {middle:,.6g}, are not times since "
            "1970; name the column after its unit, e.g. time_s or time_ms"
        )
        raise LoadError(msg)
    return Clock(_NS_PER[by_size], said=f"times count {by_size} since 1970, by their size")


def to_ns(times: pa.Array, clock: Clock, lines: np.ndarray, findings: Findings) -> Times:
    """Turn times into ns (Int64), missing where there is none; say which used the zone."""
    if pa.types.is_timestamp(times.type):
        return _all(_stamps(times, clock, lines, findings), is_local=times.type.tz is None)
    if clock.per_unit_ns is not None:
        if pa.types.is_string(times.type) or pa.types.is_large_string(times.type):
            times = _table_times_parsed(_numeric_or_null(times))
        return _all(_scaled(times, clock.per_unit_ns, lines, findings), is_local=False)
    texts = pd.Series(times.to_pandas(), dtype=pd.Series([""]).dtype).fillna("")
    texts = texts.str.replace(r"^(\d{4})/(\d\d)/(\d\d)", r"\1-\2-\3", regex=True)
    texts = texts.str.replace(r"\s*(?:UTC|GMT)\s*$", "Z", regex=True)
    blank = texts.str.strip().eq("").to_numpy()
    _tell("rows without a time", blank, lines, findings)
    return utc_ns(texts, pd.Series(lines), clock.zone, findings)


def _all(ns: pd.Series, *, is_local: bool) -> Times:
    return Times(ns, pd.Series(is_local, index=ns.index))


def _stamps(times: pa.Array, clock: Clock, lines: np.ndarray, findings: Findings) -> pd.Series:
    if times.type.tz is None:
        naive = _ns_or_null(times, lines, findings)
        known = naive.dropna()
        zone = zone_of(clock.zone or "UTC")
        placed = in_written_order(known.astype("int64").to_numpy(), zone).ns
        placed = placed.set_axis(known.index).reindex(naive.index)
        finding = f"local times that the clock change makes ambiguous or impossible in {clock.zone}"
        finding += "; pass an offset"
        _tell(finding, (placed.isna() & naive.notna()).to_numpy(), lines, findings)
        return placed
    return _ns_or_null(times, lines, findings)


def _ns_or_null(times: pa.Array, lines: np.ndarray, findings: Findings) -> pd.Series:
    return _scaled(times.view(pa.int64()), _NS_PER[times.type.unit], lines, findings)


def _scaled(times: pa.Array, per_unit: int, lines: np.ndarray, findings: Findings) -> pd.Series:
    missing = np.asarray(times.is_null())
    _tell("rows without a time", missing, lines, findings)
    values = _numbers(times)
    if values.dtype.kind == "f":
        values = np.where(missing, np.nan, values)
        with np.errstate(invalid="ignore"):
            bad = ~missing & ~(np.abs(values) <= _LATEST_NS / per_unit)
        safe = np.where(missing | bad, 0, values)
        units = np.floor(safe)
        # A float64 of seconds since 1970 resolves 0.24 us; what is below is noise.
        fraction = np.round((safe - units) * per_unit)
        fraction = np.round(fraction, -3) if per_unit == _NS_PER["s"] else fraction
        ns = units.astype(np.int64) * per_unit + fraction.astype(np.int64)
    else:
        bad = ~missing & (np.abs(values) > _LATEST_NS // per_unit)
        ns = np.where(missing | bad, 0, values).astype(np.int64) * per_unit
    _tell("rows whose time is beyond the year 2200 or no number", bad, lines, findings)
    return pd.Series(pd.arrays.IntegerArray(ns, missing | bad))


def _tell(finding: str, bad: np.ndarray, lines: np.ndarray, findings: Findings) -> None:
    if bad.any():
        where = f"line {int(lines[int(bad.argmax())]):,}"
        findings.add("dropped", finding, int(bad.sum()), where)


def _numbers(values: pa.Array) -> np.ndarray:
    if pa.types.is_integer(values.type):
        whole = values.fill_null(0).cast(pa.int64(), safe=False)
        integers: np.ndarray = whole.to_numpy(zero_copy_only=False)
        return integers
    cast: np.ndarray = values.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return cast


_NUMBER = r"^\s*[-+]?\d{1,19}(\.\d*)?([eE][-+]?\d{1,2})?\s*$"


def _as_numbers(texts: pa.Array) -> np.ndarray | None:
    numeric = _numeric_or_null(texts)
    if numeric.null_count * 2 >= len(texts):
        return None
    numbers: np.ndarray = numeric.cast(pa.float64()).drop_null().to_numpy(zero_copy_only=False)
    return numbers


def _numeric_or_null(texts: pa.Array) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.match_substring_regex(trimmed, _NUMBER), trimmed, None)


# Whole numbers stay exact; floats of ns since 1970 would be off by up to 128.
def _table_times_parsed(texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return texts.cast(pa.float64())
