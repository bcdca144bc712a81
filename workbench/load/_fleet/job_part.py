"""Contract of the readers of job logs, and the assembly of whole steps from their rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from workbench.load._files.findings import Findings, Record
from workbench.load._files.time import set_forward, table_of_rows
from workbench.tables import LOGGED_SPANS, LOGGED_STEPS

_NUMBERS = (
    *("step", "attempt", "start_ns", "end_ns", "dur_ns", "token_count", "sample_count"),
    "covered",
)
# Two stamps written to the millisecond may disagree with a duration by so much.
_STAMP_NS = 2_000_000
# Shares of an interval below this are no difference.
_NOISE = 0.001
_MOST_STEPS = 20_000_000
_UNKNOWN = "steps whose start or end is not known"


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
    """Complete steps, put them in the order in which they ran, and count what is wrong with them.

    ``table`` has the columns of LOGGED_STEPS without ``source``, and ``dur_ns`` of one step, as
    Int64, in the order of the file; it may have ``token_rate``, in tokens of all ranks per second,
    and ``covered``, the number of steps that a line is known to cover. A number of the step that
    does not rise begins another run of the job, where the log does not number the runs.

    Notes
    -----
    A line is of all steps since the line before it in its run, ``n`` by their numbers: a duration
    is of each of them, and the time between two stamps is that of ``n`` steps. Where stamps leave
    less than ``n`` durations, they decide; where they leave more, the rest is a pause. The first
    line of a run has none before it: without a duration it has no length, with one it is a
    single step, unless all others are ``n`` steps apart and its number is a multiple of ``n``.
    """
    if "covered" not in table:
        table = table.assign(covered=pd.Series(pd.NA, index=table.index, dtype="Int64"))
    table = _in_order(_stamped(table.reset_index(drop=True), findings), findings)
    table = _in_runs(table, findings)
    table = _filled(_with_both_ends(table, findings), findings)
    if "token_rate" in table:
        seconds = (table["end_ns"] - table["start_ns"]).astype("float64") / 1e9
        tokens = (table["token_rate"] * seconds).round()
        tokens = tokens.where(tokens.between(0, 1 << 53)).astype("Int64")
        table = table.assign(token_count=table["token_count"].fillna(tokens))
    findings.add("read", "steps", len(table))
    table = table if "source" in table else table.assign(source=findings.source)
    _tell_of_overlaps(table, findings)
    return LOGGED_STEPS.check(LOGGED_STEPS.cast(table)) if len(table) else LOGGED_STEPS.empty()


def _stamped(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Keep rows with a time and a number, each once; ``at`` is their stamp."""
    at = table["end_ns"].fillna(table["start_ns"] + table["dur_ns"]).fillna(table["start_ns"])
    _tell(table[at.isna()], findings, "dropped", _UNKNOWN)
    table = table.assign(at=at)[at.notna()]
    is_copy = table.duplicated(["step", "attempt", "start_ns", "end_ns"])
    _tell(table[is_copy], findings, "skipped by design", "steps written more than once")
    table = table[~is_copy].reset_index(drop=True)
    nameless = table["step"].isna()
    if nameless.all() and len(table):
        falls = (table["at"].diff() < 0).sum()
        # Rows in no order fall often, a clock that is set back once.
        if falls > max(1, len(table) // 100):
            table = table.sort_values("at", kind="stable", ignore_index=True)
        findings.add("noted", "steps without a number; counted from 0", len(table))
        return table.assign(step=pd.array(range(len(table)), dtype="Int64"))
    _tell(table[nameless], findings, "dropped", "steps without a number")
    return table[~nameless].reset_index(drop=True)


def _has_risen(step: pd.Series, attempt: pd.Series) -> pd.Series:
    """Return for each row whether its number, or its run, is higher than that of the row before."""
    runs = attempt.diff().fillna(0) if attempt.notna().all() else attempt.fillna(0) * 0
    rises: pd.Series = (runs > 0) | ((runs == 0) & ~(step.diff() <= 0).fillna(value=False))
    return rises


def in_order(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Order rows by ``step`` and ``end_ns`` as :func:`whole_steps` does; both are whole numbers."""
    missing = pd.Series(pd.NA, index=table.index, dtype="Int64")
    more = dict.fromkeys(("start_ns", "dur_ns", "attempt"), missing)
    table = table.astype({"step": "Int64", "end_ns": "Int64"})
    return _in_order(table.assign(at=table["end_ns"], **more), findings).drop(columns=["at", *more])


def _in_order(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Order rows as they were written; where stamps fall all the same, the clock was set back.

    Stamps order the rows only if that makes the numbers of the steps rise more often.
    """
    falls = (table["at"].diff() < 0).fillna(value=False)
    if not falls.any():
        return table
    rises = _has_risen(table["step"], table["attempt"])
    by_time, fewer = _by_time(table)
    if not (fewer < (~rises).sum() or (fewer == (~rises).sum() and not (falls & rises).any())):
        table = _set_forward(table, falls & rises, findings)
        by_time, fewer = _by_time(table)
        falls = (table["at"].diff() < 0).fillna(value=False)
        if fewer > (~rises).sum():
            return _set_forward(table, falls, findings)
    _tell(table[falls], findings, "repaired", "steps not in order of time; they were sorted")
    return by_time


def _by_time(table: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    ordered = table.sort_values(["at", "line"], kind="stable", ignore_index=True)
    return ordered, int((~_has_risen(ordered["step"], ordered["attempt"])).sum())


def _set_forward(table: pd.DataFrame, falls: pd.Series, findings: Findings) -> pd.DataFrame:
    """Add to the stamps from each fall on as much as the clock was set back by."""
    apart = table["step"].diff().where(lambda n: n > 0).fillna(1)
    passed = table["at"].diff()
    rates = (passed / apart)[~falls & (passed > 0).fillna(value=False)].astype("float64")
    each_ns = table["dur_ns"].fillna(int(np.nan_to_num(rates.median())))
    more = set_forward(table["at"], falls, each_ns * apart, table["line"], findings)
    return table.assign(**{name: table[name] + more for name in ("at", "start_ns", "end_ns")})


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


def _with_both_ends(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Work out start and end of each line from its duration, or from its neighbour.

    ``count`` is the number of steps between them, of which ``step`` is the last.
    """
    stated = table["end_ns"] - table["start_ns"]
    slack = _STAMP_NS + table["dur_ns"].abs() // 50
    odd = ((stated - table["dur_ns"]).abs() > slack).fillna(value=False)
    _tell(table[odd], findings, "suspicious", "steps whose duration is not that of their stamps")
    start = table["start_ns"].fillna(table["end_ns"] - table["dur_ns"])
    end = table["end_ns"].fillna(table["start_ns"] + table["dur_ns"])
    number, runs = table["step"], table["attempt"]
    # Only a log that never says how long a step took is read from stamp to stamp.
    has_durations = start.notna().any() and end.notna().any()
    count = pd.Series(1, index=table.index, dtype="Int64")
    if start.isna().all():
        start, count = end.groupby(runs).shift(), number.groupby(runs).diff()
        assumption = "steps without a duration; each begins where the one before it ended"
        findings.add("assumed", assumption, int(start.notna().sum()))
    elif end.isna().all():
        end, count = start.groupby(runs).shift(-1), -number.groupby(runs).diff(-1)
        assumption = "steps without a duration; each ends where the next one begins"
        findings.add("assumed", assumption, int(end.notna().sum()))
        number = number + count.fillna(1) - 1
    is_known = start.notna() & end.notna()
    if has_durations:
        _tell(table[~is_known], findings, "dropped", _UNKNOWN)
    else:
        _tell(
            table[~is_known],
            findings,
            "noted",
            "stamps that only begin or end the steps beside them",
        )
    is_back = (end < start).fillna(value=False)
    _tell(table[is_back], findings, "dropped", "steps that end before they begin")
    table = table.assign(start_ns=start, end_ns=end, step=number, count=count)
    table = table[is_known & ~is_back].reset_index(drop=True)
    return _each_step(table) if has_durations and len(table) else table


def _each_step(table: pd.DataFrame) -> pd.DataFrame:
    """Let each duration be that of every step since the line before, within the stamps."""
    end, each = table["end_ns"], table["end_ns"] - table["start_ns"]
    apart = table["step"].groupby(table["attempt"]).diff()
    is_first = ~table["attempt"].duplicated()
    room = end.diff()
    count = table["covered"].fillna(apart.mask(is_first, _of_first(table["step"], apart)))
    # A restart that leaves no room for all steps of its first line repeated fewer.
    fits = (room // each.clip(lower=1)).fillna(1 << 53).clip(lower=1)
    count = count.mask(is_first & (count > fits).fillna(value=False), fits)
    several = (count > 1).fillna(value=False)
    spare = room - each * count
    # Durations of single steps, and rounded stamps, differ to both sides; means of all do not.
    off = (spare / room)[several & ~is_first & (room > 0).fillna(value=False)].astype("float64")
    over = -off[off < -_NOISE]
    is_noisy = len(over) >= 3 and len(over) > len(off) / 10
    slack = room * (float(over.quantile(0.9)) if is_noisy else 0.0)
    is_full = several & ~is_first & (spare <= slack).fillna(value=False)
    start = table["start_ns"].mask(several, end - each * count).mask(is_full, end - room)
    return table.assign(start_ns=start.astype("Int64"), count=count)


def _of_first(step: pd.Series, apart: pd.Series) -> pd.Series:
    """Return how many steps the first line of a run covers, by the rhythm of the others."""
    others = apart.dropna()
    usual = int(others.median()) if len(others) else 1
    is_regular = usual > 1 and (others == usual).mean() > 0.8
    return pd.Series(1, index=step.index).mask(
        is_regular & ((step % usual == 0) & (step > 0) | (step % usual == usual - 1)), usual
    )


def _filled(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Make a row of each step of a line, all of equal length."""
    if table.empty:
        return table
    table = table.reset_index(drop=True)
    count = table["count"].fillna(1).clip(lower=1, upper=table["step"] + 1).astype("int64")
    length = (table["end_ns"] - table["start_ns"]).astype("int64")
    each = length / count
    # Numbers that leap ahead, as after skipped data, are not steps that ran meanwhile.
    count = count.where(~((count > 1) & (each < each.median() / 3)), 1)
    if count.sum() > max(_MOST_STEPS, 2 * len(count)):
        words = "numbers of steps that rise by thousands a line; each line taken as one step"
        _tell(table[count > 1], findings, "suspicious", words)
        count = count * 0 + 1
    words = "steps between two lines, each as long as the mean of its interval"
    more = count[count > 1] - 1
    where = f"before line {int(table['line'][more.index[0]]):,}" if len(more) else None
    findings.add("noted", words, int(more.sum()), where)
    rows = np.repeat(np.arange(len(count)), count)
    number = np.arange(len(rows)) - np.repeat((count.cumsum() - count).to_numpy(), count)
    n, total = count.to_numpy()[rows], length.to_numpy()[rows]
    edges = [total // n * k + total % n * k // n for k in (number, number + 1)]
    first = table["start_ns"].astype("int64").to_numpy()[rows]
    table = table.iloc[rows].reset_index(drop=True)
    return table.assign(
        step=table["step"] - n + 1 + number, start_ns=first + edges[0], end_ns=first + edges[1]
    )


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
