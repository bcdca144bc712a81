"""Failures that people keep in a table of their own, by the names its columns have there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench._shared.incidents import fold
from workbench.errors import LoadError
from workbench.load._failures.reader import assembled
from workbench.load._files import tables as plain
from workbench.load._files.findings import Findings, Row
from workbench.load._files.tables import without_cut_row
from workbench.load._files.time import (
    LogPart,
    checked,
    clock_of,
    failure_rows,
    timeline_rows,
    to_ns,
)
from workbench.tables import FAILURES, FailureLog

# Name in the table, and in a file that has no other.
# States of SkyPilot and Slurm.
_NO_FAILURE = "SUCCEEDED|COMPLETED|COMPLETING|RUNNING|PENDING|SUBMITTED|STARTING|CONFIGURING"
_TEXTS = ("node", "device", "job", "code", "cause", "category", "severity", "action")
COLUMNS: Mapping[str, str] = {name: name for name in ("time", "end", *_TEXTS, "rank", "replica")}
_NEEDED = ("time",)
_NAME = "table of failures"


def failure_table(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    tz: str | None = None,
    window_s: float = 300.0,
) -> FailureLog:
    """Load failures from a CSV or Parquet file whose columns you name.

    Every row is a failure, or a report of one: rows that follow each other within ``window_s``
    on one device are folded into one incident, as by :func:`failures`.

    Parameters
    ----------
    path
        A Parquet file, or a CSV file (by its ending; gzip is fine).
    columns
        Names in the file, by name in the table, where they differ: ``{"time": "when", "node":
        "host", "cause": "why"}``. ``time`` and one of ``cause`` and ``code`` are needed;
        ``end``, ``node``, ``device``, ``job``, ``rank``, ``replica``, ``category``,
        ``severity`` and ``action`` are read where they are there.
    tz
        Time zone of stamps that have none: a name (``"America/Los_Angeles"``) or an offset
        (``"+01:00"``). There is no default. Numbers count since 1970; their unit follows from
        the name of the column (``time_ms``) or their size.
    window_s
        Longest pause inside an incident, in s; 0 keeps every row.

    Returns
    -------
    FailureLog
        As from :func:`failures`; ``timeline`` is empty. Columns that are not read, rows without a
        usable time, and jobs of a queue that did not fail are counted in the quality table.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file or a column cannot be read, stamps need ``tz`` and it is not given, or a row
        has neither cause nor code; names the column and the first bad row.
    ValueError
        If ``tz`` is not a zone or ``window_s`` no window.
    """
    zone = checked(tz, None, None).tz
    # A wrong window is refused before the file is read.
    fold(FAILURES.empty(), window_s=window_s)
    source = Path(path)
    file, cut = without_cut_row(plain.read(source), source, {**COLUMNS, **(columns or {})}.values())
    optional = tuple(name for name in COLUMNS if name not in _NEEDED)
    frame = plain.renamed(
        file, source, names=COLUMNS, columns=columns, optional=optional, has_lines=False
    )
    if frame.empty:
        msg = f"{path}: has no rows"
        raise LoadError(msg)
    names = {**COLUMNS, **(columns or {})}
    findings = Findings(str(path))
    unread = [str(name) for name in file if name not in {names[str(column)] for column in frame}]
    if unread:
        findings.add("noted", "columns that are not read", len(unread), ", ".join(unread)[:200])
    findings.add("read", "rows", len(frame))
    for reason, count in (cut or plain.left_out(source)).items():
        findings.add("truncated", reason, count)
    return _log(_rows(frame, names, source, zone, findings), source, findings, window_s)


def names_failures(names: Iterable[str]) -> bool:
    """Return whether columns of these names hold failures that need no ``columns``."""
    known_columns = set(names) & set(COLUMNS)
    # Alone, a time and a cause may be of anything.
    return {"time", "cause"} < known_columns


def _log(rows: pd.DataFrame, path: Path, findings: Findings, window_s: float) -> FailureLog:
    records: list[Row] = rows.to_dict("records")  # type: ignore[assignment]
    failures = failure_rows(records, str(path))
    log = LogPart(failures, timeline_rows([], str(path)), findings, format_name=_NAME)
    return assembled([log], [], window_s)


def _rows(
    frame: pd.DataFrame, names: Mapping[str, str], path: Path, zone: str | None, findings: Findings
) -> pd.DataFrame:
    # CSV files have a header in line 1.
    line = np.arange(1, len(frame) + 1) + plain.is_csv(path)
    start, is_local = _times(frame["time"], names["time"], path, zone, (line, findings))
    rows = pd.DataFrame({"line": line, "start_ns": start, "end_ns": start, "kind": "table"})
    # A failure that nobody ended has no end, and is not a row without a time.
    if "end" in frame and (filled := frame["end"].notna().to_numpy()).any():
        end, _ = _times(
            frame.loc[filled, "end"], names["end"], path, zone, (line[filled], findings)
        )
        rows["end_ns"] = end.set_axis(rows.index[filled]).reindex(rows.index).fillna(start)
        _refuse_early(rows, names["end"], path)
    rows["assumed"] = np.where(is_local, f"tz={zone}" if zone else "", "")
    for name in _TEXTS:
        if name in frame:
            rows[name] = plain.texts(frame[name])
    for name in ("rank", "replica"):
        if name in frame:
            filled = frame[name].notna().to_numpy()
            rows[name] = pd.Series(pd.NA, index=rows.index, dtype="Int64")
            numbers = plain.whole(frame.loc[filled, name], path, most=np.iinfo(np.int32).max)
            rows.loc[filled, name] = numbers.to_numpy()
    rows = _with_cause(rows, path)
    # Queues of jobs list those that did well beside those that failed.
    is_well = rows["cause"].str.fullmatch(_NO_FAILURE, case=False).astype("bool")
    states = ", ".join(sorted(rows.loc[is_well, "cause"].unique()))
    findings.add(
        "skipped by design", "jobs in a state that is not a failure", int(is_well.sum()), states
    )
    return rows[rows["start_ns"].notna() & ~is_well]


def _times(
    values: pd.Series, name: str, path: Path, zone: str | None, state: tuple[np.ndarray, Findings]
) -> tuple[pd.Series, np.ndarray]:
    line, findings = state
    try:
        times = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        msg = f"{path}: column {name!r} holds values of several types, no times"
        raise LoadError(msg) from None
    clock = clock_of(times, name, zone, str(path))
    if clock.kind != "epoch":
        msg = (
            f"{path}: numbers in column {name!r} are not times since 1970; give times of day and "
            "year, or ns, us, ms or s since 1970"
        )
        raise LoadError(msg)
    if clock.said:
        findings.add("assumed", clock.said)
    times_ns = to_ns(times, clock, line, findings)
    if times_ns.ns.isna().all():
        msg = f"{path}: column {name!r} holds no time that can be read"
        raise LoadError(msg)
    return times_ns.ns.astype("Int64").reset_index(drop=True), times_ns.is_local.to_numpy()


def _refuse_early(rows: pd.DataFrame, name: str, path: Path) -> None:
    early = (rows["end_ns"] < rows["start_ns"]).fillna(value=False).to_numpy()
    if early.any():
        row = rows[early].iloc[0]
        msg = (
            f"{path}: column {name!r}: {int(early.sum()):,} failures end before they begin, the "
            f"first in line {row['line']:,}"
        )
        raise LoadError(msg)


def _with_cause(rows: pd.DataFrame, path: Path) -> pd.DataFrame:
    nothing = pd.Series([None] * len(rows), dtype=object)
    cause, code = rows.get("cause", nothing), rows.get("code", nothing)
    causes = cause.where(cause.notna(), "code " + code.astype(object))
    if (bad := causes.isna()).any():
        which = "column for 'cause' and 'code'" if {"cause", "code"} & set(rows) else "no column"
        msg = (
            f"{path}: {which}: {int(bad.sum()):,} rows say neither cause nor code, the first is "
            f"line {rows['line'][bad].iloc[0]:,}; say which column is which with columns={{...}}"
        )
        raise LoadError(msg)
    told_of = [name for name in ("category", "severity") if name in rows]
    usual = {name: rows[name].fillna("unknown") for name in told_of}
    text = causes.where(code.isna() | cause.isna(), causes + " (" + code.astype(str) + ")")
    return rows.assign(cause=causes, text=text.str[:300], **usual)
