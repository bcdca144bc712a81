"""From one parsed Kineto file to the tables of one rank."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.kernel_kinds import GPU_WORK
from workbench.load._files.findings import Findings
from workbench.load._files.json_events import decoder
from workbench.load._files.parquet import all_missing
from workbench.load._traces.kineto import rows as rows_of
from workbench.load._traces.kineto._stream import RawTrace
from workbench.load._traces.kineto.blocks import INTEGER, MISSING, TEXT, TOKEN, Slots, token
from workbench.load._traces.kineto.categories import CodedTexts
from workbench.tables import EVENTS, QUALITY, SAYS_SYNTHETIC

IntArray = npt.NDArray[np.int64]

# Arguments that become columns: name in the file -> (column, how it is stored).
COLUMNS: Mapping[str, tuple[str, int]] = {
    "device": ("device", INTEGER),
    "stream": ("stream", INTEGER),
    "correlation": ("correlation", INTEGER),
    "External id": ("external_id", INTEGER),
    "external id": ("external_id", INTEGER),
    "bytes": ("size_bytes", INTEGER),
    "Collective name": ("collective", TEXT),
    "Process Group Name": ("group", TEXT),
    "Group size": ("group_size", INTEGER),
    "Seq": ("seq", INTEGER),
    "In msg nelems": ("in_count", INTEGER),
    "Out msg nelems": ("out_count", INTEGER),
    "dtype": ("dtype", TEXT),
    "wait_on_stream": ("wait_stream", INTEGER),
    "wait_on_cuda_event_record_corr_id": ("wait_correlation", INTEGER),
}
_NEVER_BELOW_0 = frozenset({"size_bytes", "group_size"})
_MINUS_1_IS_MISSING = frozenset(
    {"seq", "in_count", "out_count", "wait_stream", "wait_correlation", "device"}
)
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class RankTables:
    """What one file says, before it has a place among other ranks."""

    label: str
    events: pd.DataFrame
    steps: pd.DataFrame
    quality: pd.DataFrame
    metadata: dict[str, Any]
    clock: str


def slots(args: Sequence[str]) -> Slots:
    """Return what to keep of each event's arguments: the columns, and ``args`` as asked."""
    wanted = {name: kind for name, (_, kind) in COLUMNS.items()}
    wanted |= {name: TOKEN for name in args if name not in wanted}
    return Slots(wanted)


def rank_tables(
    raw: RawTrace, *, label: str, args: Sequence[str] = (), rules: pd.DataFrame | None = None
) -> RankTables:
    """Interpret a parsed Kineto file.

    Parameters
    ----------
    raw
        The parsed file; its columns are used up.
    label
        Name of the input.
    args
        Further arguments to keep, as columns of the same name.
    rules
        Kernel rules of the user's own.

    Returns
    -------
    RankTables
        Events (rank still 0), steps, quality and metadata.
    """
    findings = raw.findings
    rows_of.count_phases(raw.columns, findings)
    timed = _timed(raw)
    texts = _clean(raw.texts, findings)
    named = _named(raw, timed, texts)
    on_stream = rows_of.is_any(named["category"], rows_of.ON_STREAM)
    numbers = _numbers(raw, timed.pick, on_stream)
    numbers["stream"] = rows_of.streams(numbers.get("stream"), named["thread"], on_stream)
    work = rows_of.is_any(named["category"], GPU_WORK)
    numbers["launch"], repeated = rows_of.launches(
        rows_of.is_any(named["category"], rows_of.RUNTIME), work,
        (numbers.get("correlation"), numbers.get("external_id")), (timed.start, timed.dur),
    )  # fmt: skip
    what = "launch calls with the correlation of an earlier one; GPU rows take the nearest before"
    findings.add("suspicious", what, repeated)
    windows, steps = _steps(timed, named["name"], named["category"], findings)
    numbers["step"] = rows_of.assign_steps(timed.start, numbers["launch"], windows)
    kind, known = rows_of.kinds(named["name"], named["category"], rules)
    _note(findings, dur=timed.dur, work=work, launch=numbers["launch"], known=known)

    rows = len(timed.start)
    data: dict[str, Any] = {
        "rank": np.zeros(rows, np.int32),
        "start_ns": timed.start,
        "dur_ns": timed.dur,
        "kind": kind,
    }
    data |= {column: coded.categorical() for column, coded in named.items()}
    for column in EVENTS.columns:
        if column not in data:
            dtype = EVENTS.columns[column].dtype
            values = numbers.pop(column, None)
            data[column], beyond = _nullable(values, dtype, rows)
            findings.add("left out", f"values of {column} beyond 32 bits", beyond)
    frame = pd.DataFrame({column: data[column] for column in EVENTS.columns}, copy=False)
    for argument in args:
        if argument not in frame:
            frame[argument] = _extra(raw, argument, timed, texts)
    findings.add("read", "events", rows)
    findings.add("noted", SAYS_SYNTHETIC, int(bool(raw.metadata.get("synthetic"))))
    return RankTables(label, frame, steps, findings.frame(), raw.metadata, timed.clock)


@dataclass(frozen=True)
class _Timed:
    """The rows that have a place in time, in order: their times, and how to pick others' fields."""

    start: IntArray
    dur: IntArray
    clock: str
    pick: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    pid: npt.NDArray[Any]
    tid: npt.NDArray[Any]
    name: npt.NDArray[Any]


def _timed(raw: RawTrace) -> _Timed:
    """Choose the rows with usable times and put them in order."""
    names = ("ph", "flags", "ts", "dur", "pid", "tid", "name")
    fields = {name: raw.columns.field(name) for name in names}
    if "" in raw.texts:
        fields["name"][fields["name"] == raw.texts.index("")] = -1
    keep = rows_of.plausible(fields, raw.findings)
    base = raw.metadata.get("baseTimeNanoseconds")
    start, clock = rows_of.absolute(fields["ts"], base, raw.findings)
    pick = _picker(keep, start, fields["dur"])
    texts = (pick(fields[name]) for name in ("pid", "tid", "name"))
    return _Timed(pick(start), pick(fields["dur"]), clock, pick, *texts)


def _named(raw: RawTrace, timed: _Timed, texts: list[str]) -> dict[str, CodedTexts]:
    """Return the columns that hold texts."""
    columns, pick = raw.columns, timed.pick
    named = {
        "name": CodedTexts.of(timed.name, texts, missing=""),
        "category": rows_of.categories(pick(columns.field("cat")), texts),
        "process": CodedTexts.of(timed.pid, texts, missing=""),
        "thread": CodedTexts.of(timed.tid, texts, missing=""),
    }
    for argument, (column, kind) in COLUMNS.items():
        if kind == TEXT:
            codes = columns.values(argument)
            named[column] = (
                CodedTexts(np.full(len(timed.start), -1, np.int32), [])
                if codes is None
                else CodedTexts.of(pick(codes), texts)
            )
    return named


def _picker(
    keep: npt.NDArray[np.bool_], start: IntArray, dur: IntArray
) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
    """Return the function that puts kept rows in order."""
    if keep.all():
        by = rows_of.order(start, dur)
        return (lambda values: values) if by is None else (lambda values: values[by])
    kept = np.flatnonzero(keep)
    by = rows_of.order(start[kept], dur[kept])
    picked = kept if by is None else kept[by]
    return lambda values: values[picked]


def _clean(texts: list[str], findings: Findings) -> list[str]:
    """Replace what is no Unicode text, counting the texts."""
    bad = [
        code for code, text in enumerate(texts) if not text.isascii() and _SURROGATES.search(text)
    ]
    findings.add("repaired", "texts with bytes that are not UTF-8, shown as \ufffd", len(bad))
    for code in bad:
        texts[code] = _SURROGATES.sub("\ufffd", texts[code])
    return texts


def _numbers(
    raw: RawTrace,
    pick: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
    on_stream: npt.NDArray[np.bool_],
) -> dict[str, IntArray]:
    """Return the integer columns that occur, sentinels made missing."""
    found: dict[str, IntArray] = {}
    for argument, (column, kind) in COLUMNS.items():
        if kind != INTEGER or (values := raw.columns.values(argument)) is None:
            continue
        values = pick(values)
        if column in found:
            values = np.where(found[column] == MISSING, values, found[column])
        found[column] = values
    for column in _NEVER_BELOW_0 & found.keys():
        below = (found[column] < 0) & (found[column] != MISSING)
        raw.findings.add("left out", f"negative values of {column}", int(below.sum()))
        found[column][below] = MISSING
    for column in _MINUS_1_IS_MISSING & found.keys():
        found[column][found[column] == -1] = MISSING
    if "correlation" in found:
        # Profilers count from 1; 0 stands for none.
        found["correlation"][found["correlation"] == 0] = MISSING
    if "device" in found:
        found["device"][~on_stream] = MISSING
    return found


def _nullable(values: IntArray | None, dtype: str, rows: int) -> tuple[Any, int]:
    """Make a nullable pandas array; also count the values that do not fit its type."""
    narrow: type = np.int32 if dtype == "Int32" else np.int64
    if values is None:
        return all_missing(rows, dtype), 0
    mask, beyond = values == MISSING, 0
    if narrow is np.int32:
        limits = np.iinfo(np.int32)
        unfit = ((values < limits.min) | (values > limits.max)) & ~mask
        beyond = int(unfit.sum())
        mask |= unfit
        values = np.where(mask, 1, values).astype(np.int32)
    return pd.arrays.IntegerArray(values, mask), beyond


def _steps(
    timed: _Timed, name: CodedTexts, category: CodedTexts, findings: Findings
) -> tuple[tuple[IntArray, IntArray, IntArray], pd.DataFrame]:
    """Return the windows of the steps, and their table (rank still 0)."""
    rows, numbers = rows_of.step_rows(name, category, findings)
    start, dur = timed.start[rows], timed.dur[rows]
    frame = pd.DataFrame(
        {
            "rank": np.zeros(len(rows), np.int32),
            "step": numbers.astype(np.int32),
            "start_ns": start,
            "dur_ns": dur,
        }
    )
    return (numbers, start, start + dur), frame


def _note(
    findings: Findings,
    *,
    dur: IntArray,
    work: npt.NDArray[np.bool_],
    launch: IntArray,
    known: npt.NDArray[np.bool_],
) -> None:
    """Note what a reader of the numbers should know of GPU work."""
    findings.add(
        "noted",
        "GPU rows whose launch is not in the trace",
        int((work & (launch == MISSING)).sum()),
    )
    busy, unknown = int(dur[work].sum()), int(dur[work & ~known].sum())
    if unknown:
        share = f"{unknown / busy:.1%} of kernel time" if busy else "0 ns"
        what = f"kernels that no rule knows, counted as compute ({share})"
        findings.add("noted", what, int((work & ~known).sum()))


def _extra(raw: RawTrace, argument: str, timed: _Timed, texts: list[str]) -> Any:
    """Return a further argument as a column: numbers if all are, else texts."""
    codes = raw.columns.values(argument)
    if codes is None:
        return CodedTexts(np.full(len(timed.start), -1, np.int32), []).categorical()
    codes = timed.pick(codes)
    values = {int(code): _parsed(texts[code]) for code in np.unique(codes[codes >= 0])}
    if values and all(type(value) in (int, float) for value in values.values()):
        is_whole = all(type(value) is int for value in values.values())
        table = pd.Series(values, dtype="Int64" if is_whole else "Float64")
        return table.reindex(pd.Index(codes)).array
    spelled = list(texts)
    for code, value in values.items():
        spelled[code] = value if isinstance(value, str) else token(value)
    return CodedTexts.of(codes, spelled).categorical()


def _parsed(text: str) -> object:
    try:
        value = decoder.decode(text)
    except ValueError:
        return text
    if isinstance(value, str) and type(value) is not str:
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return float(value)
    return value


def concat(tables: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Put events of several ranks below each other; categoricals get common categories."""
    if len(tables) == 1:
        return tables[0]
    joined: dict[str, Any] = {}
    for column in columns:
        parts = [table[column] for table in tables]
        if isinstance(parts[0].dtype, pd.CategoricalDtype):
            joined[column] = pd.api.types.union_categoricals(parts, sort_categories=True)
        else:
            joined[column] = pd.concat(parts, ignore_index=True).array
    return pd.DataFrame(joined, copy=False)


def quality_of(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Put quality tables below each other."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return QUALITY.empty()
    joined = pd.concat([part.astype({"finding": "str"}) for part in filled], ignore_index=True)
    return joined.astype({"finding": "category"})


def metadata_text(metadata: Mapping[str, Any], key: str) -> str | None:
    """Return a metadata value as text; None if it is absent."""
    value = metadata.get(key)
    return None if value is None else value if isinstance(value, str) else json.dumps(value)
