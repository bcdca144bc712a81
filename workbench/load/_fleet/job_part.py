"""What a reader of job logs gets and gives, and what makes whole steps of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from workbench.load._files.findings import Findings
from workbench.tables import LOGGED_SPANS, LOGGED_STEPS, Table

_NUMBERS = ("step", "attempt", "start_ns", "end_ns", "dur_ns", "token_count", "sample_count")
_STAMP_NS = 2_000_000


@dataclass(frozen=True)
class JobGiven:
    """What the caller says that job logs do not carry.

    Attributes
    ----------
    tz
        Time zone of local stamps.
    columns
        Names in a table of the caller's own, by what they are.
    tokens_per_step
        Tokens of a step, all ranks, where the log does not say.
    """

    tz: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    tokens_per_step: int | None = None


@dataclass
class JobPart:
    """What one file holds: tables LOGGED_STEPS and LOGGED_SPANS, and findings.

    ``says_attempt`` is whether the file itself numbers the runs of the job;
    ``benchmark_runs`` counts runs of a benchmark from its start to its end.
    """

    steps: pd.DataFrame
    spans: pd.DataFrame
    findings: Findings
    says_attempt: bool = True
    benchmark_runs: int = 0


def span_rows(rows: Iterable[Mapping[str, Any]], source: str) -> pd.DataFrame:
    """Make table LOGGED_SPANS of dicts, in order of time; ``step`` comes later."""
    frame = _frame(LOGGED_SPANS, rows, {"attempt": 1, "source": source})
    return frame.sort_values(["start_ns", "line"], kind="stable", ignore_index=True)


def step_rows(rows: Iterable[Mapping[str, Any]], findings: Findings) -> pd.DataFrame:
    """Make table LOGGED_STEPS of dicts with what a log says of each step.

    Each has ``line`` and two of ``start_ns``, ``end_ns``, ``dur_ns``, or one stamp, and may
    have the other columns of the table.
    """
    table = pd.DataFrame(list(rows))
    table = table.reindex(columns=[*_NUMBERS, "line"]).astype(dict.fromkeys(_NUMBERS, "Int64"))
    return whole_steps(table, findings)


def whole_steps(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Complete steps, order them by time, and count what is wrong with them.

    ``table`` has the columns of LOGGED_STEPS without ``source``, and ``dur_ns``, as Int64. A
    number of the step that does not rise begins another run of the job, where the log does
    not number the runs.
    """
    table = _with_both_ends(table.reset_index(drop=True), findings)
    table = _in_order(table, findings)
    table = _numbered(table, findings)
    table = _in_runs(table, findings)
    findings.add("read", "steps", len(table))
    table = table.assign(source=findings.source)
    _tell_of_overlaps(table, findings)
    return LOGGED_STEPS.check(LOGGED_STEPS.cast(table)) if len(table) else LOGGED_STEPS.empty()


def _with_both_ends(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Work out the missing end of each step from its duration, or from its neighbour."""
    stated = table["end_ns"] - table["start_ns"]
    odd = ((stated - table["dur_ns"]).abs() > _STAMP_NS + table["dur_ns"].abs() // 50).fillna(
        value=False
    )
    _tell(table[odd], findings, "suspicious", "steps whose duration is not that of their stamps")
    start = table["start_ns"].fillna(table["end_ns"] - table["dur_ns"])
    end = table["end_ns"].fillna(table["start_ns"] + table["dur_ns"])
    # Only a log that never says how long a step took is read from stamp to stamp.
    runs = (table["step"].diff() <= 0).fillna(value=False).cumsum()
    runs = table["attempt"].fillna(runs)
    if start.isna().all():
        start = end.groupby(runs).shift()
        what = "steps without a duration; each begins where the one before it ended"
        findings.add("assumed", what, int(start.notna().sum()))
    elif end.isna().all():
        end = start.groupby(runs).shift(-1)
        what = "steps without a duration; each ends where the next one begins"
        findings.add("assumed", what, int(end.notna().sum()))
    is_known = start.notna() & end.notna()
    _tell(table[~is_known], findings, "left out", "steps whose start or end is not known")
    is_back = (end < start).fillna(value=False)
    _tell(table[is_back], findings, "left out", "steps that end before they begin")
    whole = table.assign(start_ns=start, end_ns=end)
    return whole[is_known & ~is_back].drop(columns="dur_ns")


def _in_order(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    is_late = (table["end_ns"].diff() < 0).fillna(value=False)
    _tell(table[is_late], findings, "repaired", "steps not in order of time; they were sorted")
    table = table.sort_values(["end_ns", "line"], kind="stable", ignore_index=True)
    is_copy = table.duplicated(["step", "attempt", "start_ns", "end_ns"])
    _tell(table[is_copy], findings, "set aside", "steps written more than once")
    return table[~is_copy].reset_index(drop=True)


def _numbered(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    nameless = table["step"].isna()
    if not nameless.any():
        return table
    if nameless.all():
        findings.add("noted", "steps without a number; counted from 0", len(table))
        return table.assign(step=pd.array(range(len(table)), dtype="Int64"))
    _tell(table[nameless], findings, "left out", "steps without a number")
    return table[~nameless].reset_index(drop=True)


def _in_runs(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Count the runs of the job where the log does not number them."""
    attempt = table["attempt"]
    if attempt.isna().any():
        back = (table["step"].diff() <= 0).fillna(value=False)
        what = "steps whose number does not rise: taken as the first of another run"
        _tell(table[back], findings, "assumed", what)
        return table.assign(attempt=back.cumsum() + 1)
    back = (table.groupby("attempt")["step"].diff() <= 0).fillna(value=False)
    what = "steps whose number does not rise within a run"
    _tell(table[back], findings, "suspicious", what)
    return table


def _tell_of_overlaps(table: pd.DataFrame, findings: Findings) -> None:
    """Count steps of a run that begin clearly before the one before them ended."""
    ends = table["end_ns"].groupby(table["attempt"]).shift()
    usual = (table["end_ns"] - table["start_ns"]).median() if len(table) else 0
    early = (ends - table["start_ns"] > max(_STAMP_NS, usual / 100)).fillna(value=False)
    what = "steps that begin before the one before them ended"
    _tell(table[early], findings, "suspicious", what)
    gaps = table["step"].groupby(table["attempt"]).diff()
    holes = table[(gaps > 1).fillna(value=False)]
    count = int((gaps[holes.index] - 1).sum()) if len(holes) else 0
    where = f"before line {int(holes['line'].iloc[0]):,}" if len(holes) else None
    findings.add("noted", "steps that the log leaves out", count, where)


def _tell(rows: pd.DataFrame, findings: Findings, finding: str, what: str) -> None:
    if len(rows):
        findings.add(finding, what, len(rows), f"line {int(rows['line'].iloc[0]):,}")


def _frame(
    table: Table, rows: Iterable[Mapping[str, Any]], usual: Mapping[str, Any]
) -> pd.DataFrame:
    filled = [{name: row.get(name, usual.get(name)) for name in table.columns} for row in rows]
    if not filled:
        return table.empty()
    return table.check(table.cast(pd.DataFrame(filled, dtype=object)))
