"""Contract of the readers of job logs, and the assembly of whole steps from their rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from workbench.load._files.findings import Findings, Record
from workbench.load._files.time import table_of_rows
from workbench.tables import LOGGED_SPANS, LOGGED_STEPS

_NUMBERS = ("step", "attempt", "start_ns", "end_ns", "dur_ns", "token_count", "sample_count")
# Two stamps written to the millisecond may disagree with a duration by so much.
_STAMP_NS = 2_000_000


@dataclass(frozen=True)
class JobGiven:
    """Facts from the caller that job logs do not carry.

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
    """Contents of one file: tables LOGGED_STEPS and LOGGED_SPANS, and findings.

    ``says_attempt`` is whether the file itself numbers the runs of the job;
    ``benchmark_runs`` counts runs of a benchmark from its start to its end.
    """

    steps: pd.DataFrame
    spans: pd.DataFrame
    findings: Findings
    says_attempt: bool = True
    benchmark_runs: int = 0


def span_rows(rows: Iterable[Record], source: str) -> pd.DataFrame:
    """Make table LOGGED_SPANS of dicts, in order of time; ``step`` comes later."""
    frame = table_of_rows(LOGGED_SPANS, rows, {"attempt": 1, "source": source})
    return frame.sort_values(["start_ns", "line"], kind="stable", ignore_index=True)


def step_rows(rows: Iterable[Record], findings: Findings) -> pd.DataFrame:
    """Make table LOGGED_STEPS of dicts with what a log says of each step.

    Each has ``line`` and two of ``start_ns``, ``end_ns``, ``dur_ns``, or one stamp, and may
    have the other columns of the table.
    """
    table = pd.DataFrame(list(rows))
    table = table.reindex(columns=[*_NUMBERS, "line"]).astype(dict.fromkeys(_NUMBERS, "Int64"))
    return whole_steps(table, findings)


def whole_steps(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Complete steps, order them by time, and count what is wrong with them.

    ``table`` has the columns of LOGGED_STEPS without ``source``, and ``dur_ns``, as Int64; it may
    have ``token_rate``, in tokens of all ranks per second. A number of the step that does not rise
    begins another run of the job, where the log does not number the runs.
    """
    table = _with_both_ends(table.reset_index(drop=True), findings)
    table = _in_order(table, findings)
    table = _numbered(table, findings)
    table = _in_runs(table, findings)
    if "token_rate" in table:
        seconds = (table["end_ns"] - table["start_ns"]).astype("float64") / 1e9
        tokens = (table["token_rate"] * seconds).round()
        tokens = tokens.where(tokens.between(0, 1 << 53)).astype("Int64")
        table = table.assign(token_count=table["token_count"].fillna(tokens))
    findings.add("read", "steps", len(table))
    table = table.assign(source=findings.source)
    _tell_of_overlaps(table, findings)
    return LOGGED_STEPS.check(LOGGED_STEPS.cast(table)) if len(table) else LOGGED_STEPS.empty()


def _with_both_ends(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Work out the missing end of each step from its duration, or from its neighbour."""
    stated = table["end_ns"] - table["start_ns"]
    slack = _STAMP_NS + table["dur_ns"].abs() // 50
    odd = ((stated - table["dur_ns"]).abs() > slack).fillna(value=False)
    _tell(table[odd], findings, "suspicious", "steps whose duration is not that of their stamps")
    start = table["start_ns"].fillna(table["end_ns"] - table["dur_ns"])
    end = table["end_ns"].fillna(table["start_ns"] + table["dur_ns"])
    # Only a log that never says how long a step took is read from stamp to stamp.
    runs = (table["step"].diff() <= 0).fillna(value=False).cumsum()
    runs = table["attempt"].fillna(runs)
    if start.isna().all():
        start = end.groupby(runs).shift()
        _tell_of_intervals(table[start.notna()], runs, findings)
        assumption = "steps without a duration; each begins where the one before it ended"
        findings.add("assumed", assumption, int(start.notna().sum()))
    elif end.isna().all():
        end = start.groupby(runs).shift(-1)
        _tell_of_intervals(table, runs, findings)
        assumption = "steps without a duration; each ends where the next one begins"
        findings.add("assumed", assumption, int(end.notna().sum()))
    is_known = start.notna() & end.notna()
    _tell(table[~is_known], findings, "dropped", "steps whose start or end is not known")
    is_back = (end < start).fillna(value=False)
    _tell(table[is_back], findings, "dropped", "steps that end before they begin")
    complete = table.assign(start_ns=start, end_ns=end)
    return complete[is_known & ~is_back].drop(columns="dur_ns")


def _tell_of_intervals(table: pd.DataFrame, runs: pd.Series, findings: Findings) -> None:
    """Tell of times from stamp to stamp that are those of several steps."""
    apart = table["step"].groupby(runs.reindex(table.index)).diff()
    rows = table[(apart > 1).fillna(value=False)]
    words = "steps of which only some are logged, without a duration: each lasts as long as several"
    _tell(rows, findings, "suspicious", words)


def _in_order(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    is_late = (table["end_ns"].diff() < 0).fillna(value=False)
    _tell(table[is_late], findings, "repaired", "steps not in order of time; they were sorted")
    table = table.sort_values(["end_ns", "line"], kind="stable", ignore_index=True)
    is_copy = table.duplicated(["step", "attempt", "start_ns", "end_ns"])
    _tell(table[is_copy], findings, "skipped by design", "steps written more than once")
    return table[~is_copy].reset_index(drop=True)


def _numbered(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    nameless = table["step"].isna()
    if not nameless.any():
        return table
    if nameless.all():
        findings.add("noted", "steps without a number; counted from 0", len(table))
        return table.assign(step=pd.array(range(len(table)), dtype="Int64"))
    _tell(table[nameless], findings, "dropped", "steps without a number")
    return table[~nameless].reset_index(drop=True)


def _in_runs(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Count the runs of the job where the log does not number them."""
    attempt = table["attempt"]
    if attempt.isna().any():
        back = (table["step"].diff() <= 0).fillna(value=False)
        assumption = "steps whose number does not rise: taken as the first of another run"
        _tell(table[back], findings, "assumed", assumption)
        return table.assign(attempt=back.cumsum() + 1)
    back = (table.groupby("attempt")["step"].diff() <= 0).fillna(value=False)
    assumption = "steps whose number does not rise within a run"
    _tell(table[back], findings, "suspicious", assumption)
    return table


def _tell_of_overlaps(table: pd.DataFrame, findings: Findings) -> None:
    ends = table["end_ns"].groupby(table["attempt"]).shift()
    usual = (table["end_ns"] - table["start_ns"]).median() if len(table) else 0
    early = (ends - table["start_ns"] > max(_STAMP_NS, usual / 100)).fillna(value=False)
    problem = "steps that begin before the one before them ended"
    _tell(table[early], findings, "suspicious", problem)
    gaps = table["step"].groupby(table["attempt"]).diff()
    holes = table[(gaps > 1).fillna(value=False)]
    count = int((gaps[holes.index] - 1).sum()) if len(holes) else 0
    where = f"before line {int(holes['line'].iloc[0]):,}" if len(holes) else None
    findings.add("noted", "steps that the log drops", count, where)


def _tell(rows: pd.DataFrame, findings: Findings, finding: str, text: str) -> None:
    if len(rows):
        findings.add(finding, text, len(rows), f"line {int(rows['line'].iloc[0]):,}")


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
    "loss": ("loss", "train_loss", "training_loss", "lm_loss"),
    "samples": ("samples", "sample_count", "samples_per_step", "global_batch_size", "batch_size"),
}


def plain(name: str) -> str:
    """Return a name of a column in lower case, its words joined by underscores."""
    return re.sub(r"[\s\-./]+", "_", name.strip().lower())


def meaning_of(name: str) -> tuple[str, str]:
    """Return what a column is and its unit; '' for what is not known.

    Examples
    --------
    >>> meaning_of("Step Time (ms)"), meaning_of("iteration"), meaning_of("accuracy")
    (('duration', 'ms'), ('step', ''), ('', ''))
    """
    column = plain(name)
    match = _UNIT.match(column)
    for stem, unit in ((column, ""), (match[1], match[2]) if match else ("", "")):
        for kind, names in NAMES.items():
            if stem in names and (not unit or kind in ("start", "end", "duration")):
                return kind, _SAME.get(unit, unit)
    return "", ""


def columns_of(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return name and unit of the column for each meaning; the more usual name wins."""
    columns: dict[str, tuple[str, str]] = {}
    for name in names:
        kind, unit = meaning_of(name)
        # Of columns that mean the same, the name that stands first in NAMES is the surest.
        if kind and (kind not in columns or _rank(kind, name) < _rank(kind, columns[kind][0])):
            columns[kind] = (name, unit)
    return columns


def _rank(kind: str, name: str) -> int:
    names = NAMES[kind]
    column = plain(name)
    match = _UNIT.match(column)
    stem = column if column in names or not match else match[1]
    return names.index(stem)


def first_of(record: Record, kind: str) -> int | None:
    """Return the whole number from 0 that a record holds under a name of this kind."""
    for name in NAMES[kind]:
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            # From 2**53 on a float has lost digits, so it may be any of several numbers.
            is_whole = math.isfinite(value) and value % 1 == 0
            return int(value) if is_whole and 0 <= value < 1 << 53 else None
    return None


def duration_ns_of(record: Record) -> int | None:
    """Return the duration that a record holds under a name with a unit."""
    for name, value in record.items():
        kind, unit = meaning_of(name)
        if kind == "duration" and unit and isinstance(value, int | float):
            if not math.isfinite(value) or abs(value) * _NS[unit] >= 1 << 62:
                return None
            return round(value * _NS[unit])
    return None


def factor_ns(unit: str) -> int:
    return _NS[unit]
