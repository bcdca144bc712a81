"""The front door for failure logs: any file, list, folder or archive of any known format."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import pandas as pd

from workbench._incidents import fold
from workbench._progress import progress as progress_bar
from workbench.errors import LoadError
from workbench.load._failures.doubts import doubts
from workbench.load._failures.formats.registry import FORMATS, readers_of
from workbench.load._failures.node_spans import node_spans
from workbench.load._failures.repeats import without_repeated_states, without_repeats
from workbench.load._files.appearance import appearance, is_utf16
from workbench.load._files.archive import Source, survey
from workbench.load._files.arguments import BootTime, Hosts, check_hosts, checked, host_of
from workbench.load._files.findings import Finding, listed, quality_frame
from workbench.load._files.guard import Dropped, guarded
from workbench.load._files.log_file import LogFormat, LogPart
from workbench.load._files.paths import Paths, shown_all
from workbench.load._files.wanted import FAILURE_LOGS
from workbench.load.power_kind import is_power_log
from workbench.tables import FAILURES, QUALITY, TIMELINE, FailureLog, Table

_HEAD_BYTES = 1 << 16
_PRINTED = "lines of the kernel (Xid) inside a log of another kind; load the kernel's own log"
_POWER = "is power telemetry; load it with load.power"
_UNKNOWN = "is in no format that is known here"


def failures(  # noqa: PLR0913 - the front door
    path: Paths,
    *,
    tz: str | None = None,
    year: int | None = None,
    boot_time: BootTime = None,
    node: Hosts = None,
    window_s: float = 300.0,
    progress: bool = True,
) -> FailureLog:
    """Load what failed, when and where, from the logs a cluster writes anyway.

    Formats are recognised by content, never by name. One fault is reported in many lines;
    lines that follow each other within ``window_s`` on one host, or by any rank of one job, are
    folded into one incident, which is led by the first of them that is no consequence of
    another. What is left out, repaired or assumed is counted in the quality table.

    Parameters
    ----------
    path
        A file, a folder (searched to any depth), an archive or a list of these; gzip is fine.
    tz
        Time zone of stamps that have none: a name (``"America/Los_Angeles"``) or an offset
        (``"+01:00"``). There is no default.
    year
        Year of stamps that have none (of the first one of a file; New Year is noticed).
    boot_time
        When the host was booted, for stamps that count seconds since then. Without a zone it
        is in ``tz``.
    node
        Host of lines that name none: one name for all files, a dict from a part of the file
        name to the host, or a pattern whose match in the file name (its first group, if it
        has one) is the host.
    window_s
        Longest pause inside an incident, in s; 0 keeps every line as a row.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    FailureLog
        ``failures`` (:data:`workbench.tables.FAILURES`), ``timeline``
        (:data:`workbench.tables.TIMELINE`), ``nodes`` (:data:`workbench.tables.NODE_SPANS`)
        and ``quality`` (:data:`workbench.tables.QUALITY`).

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` is a log of a known format, or a line needs ``tz``, ``year``
        or ``boot_time`` and none is given (names file, line and argument).
    ValueError
        If an argument is no zone, year, stamp or window.

    Notes
    -----
    A failure that two files of one host hold at the same time, to the nanosecond (``dmesg``
    and ``kern.log``), is taken once; so is a state of a job, where accounts overlap.

    Examples
    --------
    >>> from workbench import datasets
    >>> log = failures(datasets.path("fleet-demo") / "failures" / "synthetic_node001_kernel.log")
    >>> log.failures[["device", "code", "cause", "other_codes", "line_count"]].values.tolist()
    [['0000:1b:00', '79', 'GPU has fallen off the bus', '154', 3]]
    """
    given = checked(tz, year, boot_time)
    check_hosts(node)
    fold(FAILURES.empty(), window_s=window_s)  # a bad window is refused before minutes of reading
    found = survey(path, wanted=FAILURE_LOGS)
    passed_over = [each.row for each in found.remarks]
    dropped = Dropped()
    known, unknown = _recognised(found.sources, dropped)
    if not known:
        _raise_unknown(path, [*passed_over, *unknown], dropped)
    total = sum(source.size_bytes for source, _ in known)
    parts = []
    with progress_bar(total=total, unit="B", label="loading logs", enabled=progress) as bar:
        for source, reader in known:
            host = host_of(source.label, node)
            with dropped.trying(source.label):
                part = reader.read(source, replace(given, node=host))
                parts.append(replace(part, format_name=reader.NAME))
            bar.update(source.size_bytes)
    if not parts:
        dropped.raise_if_all()
    with guarded(shown_all(path)):
        return assembled(parts, [*passed_over, *unknown, *dropped.rows], window_s)


def _recognised(
    sources: Sequence[Source], dropped: Dropped
) -> tuple[list[tuple[Source, LogFormat]], list[Finding]]:
    """Find the format of each file; those of none become findings."""
    known: list[tuple[Source, LogFormat]] = []
    unknown: list[Finding] = []
    for source in sources:
        with dropped.trying(source.label):
            _recognise(source, known, unknown)
    return known, unknown


def _recognise(
    source: Source, known: list[tuple[Source, LogFormat]], unknown: list[Finding]
) -> None:
    head = source.head(_HEAD_BYTES).removeprefix(BOM_UTF8)
    if is_utf16(head):
        what = "is UTF-16, no log is; convert it: iconv -f UTF-16 -t UTF-8"
        unknown.append((source.label, "left out", what, 1, None))
        return
    readers, misses_xids = readers_of(source, head)
    known += [(source, reader) for reader in readers]
    if misses_xids:
        unknown.append((source.label, "left out", _PRINTED, 1, None))
    elif not readers and is_power_log(source, head):
        unknown.append((source.label, "set aside", _POWER, 1, None))
    elif not readers:
        unknown.append((source.label, "left out", _UNKNOWN, 1, appearance(head)))


def assembled(
    parts: Sequence[LogPart], passed_over: Sequence[Finding], window_s: float
) -> FailureLog:
    """Put the lines of several files together, folded into incidents."""
    lines = _together([part.failures for part in parts], FAILURES)
    lines, repeats = without_repeats(lines)
    incidents = fold(lines, window_s=window_s)
    timeline = _together([part.timeline for part in parts], TIMELINE)
    timeline, states = without_repeated_states(timeline)
    timeline = timeline.sort_values(["start_ns", "line"], kind="stable", ignore_index=True)
    findings = [*passed_over, *_repeated(repeats, "lines"), *_repeated(states, "states")]
    findings += [*_folded(lines, incidents, window_s), *doubts(parts, incidents, timeline)]
    quality = [part.findings.frame() for part in parts] + [quality_frame(findings)]
    return FailureLog(
        failures=incidents,
        timeline=TIMELINE.check(timeline),
        nodes=node_spans(incidents, timeline, parts),
        quality=_together(quality, QUALITY),
    )


def _together(frames: Sequence[pd.DataFrame], table: Table) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return table.empty()
    return table.check(table.cast(pd.concat(filled, ignore_index=True)))


def _repeated(repeats: pd.DataFrame, noun: str) -> list[Finding]:
    what = f"{noun} that another file holds as well; taken once"
    return [
        (str(source), "noted", what, len(rows), f"line {rows['line'].iloc[0]:,}")
        for source, rows in repeats.groupby("source", sort=False)
    ]


def _folded(lines: pd.DataFrame, incidents: pd.DataFrame, window_s: float) -> list[Finding]:
    """Count per file the lines that lead no incident."""
    what = f"lines folded into the incident of another ({window_s:g} s)"
    left = lines["source"].value_counts(sort=False)
    left = left.sub(incidents["source"].value_counts(), fill_value=0).astype("int64")
    return [(str(source), "noted", what, count, None) for source, count in left.items() if count]


def _raise_unknown(path: Paths, findings: Sequence[Finding], dropped: Dropped) -> NoReturn:
    if not findings:
        dropped.raise_if_all()
    names = ", ".join(sorted(each.NAME for each in FORMATS))
    msg = (
        f"{shown_all(path)}: nothing here is a failure log that can be read. Known are: {names}."
        f"{listed([*findings, *dropped.rows])}"
    )
    raise LoadError(msg)
