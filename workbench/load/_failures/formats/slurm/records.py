"""Slurm accounting records as texts, whole again where a text held line breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._failures.formats.slurm.lines import read_records
from workbench.load._files.archive import sources
from workbench.load._files.findings import Findings
from workbench.load._files.time import ABSENT
from workbench.tables import SLURM_RECORDS


def slurm_records(
    path: str | Path, *, ended_from: str | None = None, ended_before: str | None = None
) -> pd.DataFrame:
    """Read the records of ``sacct --parsable2``, every column as text.

    Users' comments and command lines may hold line breaks, which tear a record apart, and
    sacct may report jobs that ended minutes outside of the time requested. Here records are
    whole, and those that ended in a given time can be chosen exactly.

    Parameters
    ----------
    path
        File written by ``sacct --parsable2``, with its header; any separator.
    ended_from, ended_before
        Keep records that ended at this time or later, or before this time, by the clock of
        the file: ``"2021-04-07"`` or ``"2021-04-07T23:30:00"``. Records without a time of
        end are dropped if either is given. No time zone is needed, since stamps of one
        clock are compared.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SLURM_RECORDS`: ``line``, ``JobID`` and ``State``, with
        the other columns of the file, in its order. A repeated column is named ``End.1``.
        ``attrs["quality"]`` holds what was dropped or repaired, as rows of
        :data:`workbench.tables.QUALITY`.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file has no header with JobID and State, or lacks End where it is requested.

    References
    ----------
    sacct(1). The same problems are solved by a wrapper of sacct in facebookresearch/gcm.
    """
    bounds = _bound(ended_from, "ended_from"), _bound(ended_before, "ended_before")
    source, *others = sources(path)
    if others:
        msg = f"{path}: holds {len(others) + 1} files; name one of them"
        raise LoadError(msg)
    findings = Findings(source.label)
    records = read_records(source, findings)
    text = pd.Series([""]).dtype
    frame = pd.DataFrame(records.rows, columns=records.names, dtype=text)
    frame.insert(0, "line", pd.Series(records.lines, dtype="int64"))
    if any(bound is not None for bound in bounds):
        frame = _ended_between(frame, bounds, source.label, findings)
    frame.attrs["quality"] = findings.frame().to_dict("records")
    return SLURM_RECORDS.check(frame, source.label)


def _bound(text: str | None, name: str) -> pd.Timestamp | None:
    if text is None:
        return None
    try:
        stamp: Any = pd.Timestamp(text)
    except ValueError:
        stamp = pd.NaT
    if pd.isna(stamp) or stamp.tzinfo is not None:
        msg = f"{name}={text!r} is no time by the file's own clock; give one like 2021-04-07T23:30"
        raise LoadError(msg)
    return pd.Timestamp(stamp)


def _ended_between(
    frame: pd.DataFrame,
    bounds: tuple[pd.Timestamp | None, pd.Timestamp | None],
    label: str,
    findings: Findings,
) -> pd.DataFrame:
    if "End" not in frame:
        msg = f"{label}: no column End; found {list(frame.columns)[1:]}. Add it to sacct --format"
        raise LoadError(msg)
    end = pd.to_datetime(frame["End"], format="%Y-%m-%dT%H:%M:%S", errors="coerce")
    odd = end.isna() & ~frame["End"].isin(ABSENT)
    if odd.any():
        where = f"line {int(frame.loc[odd, 'line'].iloc[0]):,}: {frame.loc[odd, 'End'].iloc[0]}"
        what = "records whose End is no time like 2021-04-07T23:30:00"
        findings.add("dropped", what, int(odd.sum()), where)
    first, last = bounds
    kept = end.notna()
    if first is not None:
        kept &= end >= first
    if last is not None:
        kept &= end < last
    findings.add(
        "skipped by design", "records that ended at another time", int((~kept & ~odd).sum())
    )
    return frame[kept].reset_index(drop=True)
