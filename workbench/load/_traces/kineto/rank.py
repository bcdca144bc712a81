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

from workbench._shared.kernel_kinds import GPU_MEMORY, GPU_WORK, KINDS, rules_of
from workbench._shared.profiler_steps import STEP_CATEGORIES, is_step_name, step_number
from workbench.load._files.findings import Finding, Findings, quality_frame
from workbench.load._files.json_events import decoder, to_integer
from workbench.load._files.rank_names import rank_in_name
from workbench.load._traces.kineto._stream import RawTrace
from workbench.load._traces.kineto.blocks import (
    HAS_DUR,
    HAS_TIME,
    INTEGER,
    MISSING,
    TEXT,
    TOKEN,
    CodedTexts,
    Columns,
    Slots,
    token,
)
from workbench.load._traces.parquet import all_missing
from workbench.tables import EVENTS, SAYS_OBFUSCATED, SAYS_SYNTHETIC

IntArray = npt.NDArray[np.int64]

# Arguments that become columns: name in the file -> (column, how it is stored).
COLUMNS: Mapping[str, tuple[str, int]] = {
    "device": ("device", INTEGER), "stream": ("stream", INTEGER),
    "correlation": ("correlation", INTEGER), "External id": ("external_id", INTEGER),
    "external id": ("external_id", INTEGER), "bytes": ("size_bytes", INTEGER),
    "Collective name": ("collective", TEXT), "Process Group Name": ("group", TEXT),
    "Group size": ("group_size", INTEGER), "Seq": ("seq", INTEGER),
    "In msg nelems": ("in_count", INTEGER), "Out msg nelems": ("out_count", INTEGER),
    "dtype": ("dtype", TEXT), "wait_on_stream": ("wait_stream", INTEGER),
    "wait_on_cuda_event_record_corr_id": ("wait_correlation", INTEGER),
    "Sequence number": ("autograd_seq", INTEGER),
}  # fmt: skip
_NEVER_BELOW_0 = frozenset({"size_bytes", "group_size"})
# Kineto writes -1 for what it does not know, such as the stream that a wait is for.
_MINUS_1_IS_MISSING = frozenset(
    {"seq", "in_count", "out_count", "wait_stream", "wait_correlation", "device", "autograd_seq"}
)
# What surrogateescape makes of bytes that are not UTF-8.
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class RankTables:
    """What one file says, before it has a place among other ranks."""

    label: str
    events: pd.DataFrame
    steps: pd.DataFrame
    findings: tuple[Finding, ...]  # a table of them takes as long as a small file
    metadata: dict[str, Any]
    clock: str
    format: str = "kineto"

    @property
    def quality(self) -> pd.DataFrame:
        return quality_frame(self.findings)

    @property
    def distributed(self) -> Mapping[str, Any]:
        """What the trace states of the job: its rank, the size of the world, process groups."""
        info = self.metadata.get("distributedInfo")
        return info if isinstance(info, dict) else {}

    @property
    def stated_rank(self) -> int | None:
        rank = to_integer(self.distributed.get("rank"))
        return rank if rank is not None and 0 <= rank < 1 << 31 else None

    @property
    def name_rank(self) -> int | None:
        return rank_in_name(self.label)

    @property
    def world_size(self) -> int | None:
        return to_integer(self.distributed.get("world_size"))

    @property
    def first_ns(self) -> int | None:
        return int(self.events["start_ns"].min()) if len(self.events) else None


def slots(args: Sequence[str]) -> Slots:
    """Return what to keep of each event's arguments: the columns, and ``args`` as asked."""
    wanted = {name: kind for name, (_, kind) in COLUMNS.items()}
    wanted |= {name: TOKEN for name in args if name not in wanted}
    return Slots(wanted)


def rank_tables(
    raw: RawTrace, *, label: str, args: Sequence[str] = (), rules: pd.DataFrame | None = None
) -> RankTables:
    """Interpret a parsed Kineto file, whose columns are used up; its rank is still 0."""
    findings = raw.findings
    count_phases(raw.columns, findings)
    texts = _clean(raw)
    timed = _timed(raw)
    text_columns = _named(raw, timed, texts)
    on_stream = is_any(text_columns["category"], ON_STREAM)
    numbers = _numbers(raw, timed.pick, on_stream)
    numbers["stream"] = streams(numbers.get("stream"), text_columns["thread"], on_stream)
    work = is_any(text_columns["category"], GPU_WORK)
    numbers["launch"], repeated = launches(
        is_any(text_columns["category"], RUNTIME), work,
        (numbers.get("correlation"), numbers.get("external_id")), (timed.start, timed.dur),
    )  # fmt: skip
    finding = (
        "launch calls with the correlation of an earlier one; GPU rows take the nearest before"
    )
    findings.add("suspicious", finding, repeated)
    windows, steps = _steps(timed, text_columns["name"], text_columns["category"], findings)
    numbers["step"] = assign_steps(timed.start, numbers["launch"], windows)
    kind, is_known = kinds(text_columns["name"], text_columns["category"], rules)
    _note(findings, dur=timed.dur, work=work, launch=numbers["launch"], known=is_known)

    rows = len(timed.start)
    data: dict[str, Any] = {
        "rank": np.zeros(rows, np.int32), "start_ns": timed.start, "dur_ns": timed.dur,
        "kind": kind,
    }  # fmt: skip
    data |= {column: coded.categorical() for column, coded in text_columns.items()}
    for column in EVENTS.columns:
        if column not in data:
            dtype = EVENTS.columns[column].dtype
            values = numbers.pop(column, None)
            data[column], beyond = _nullable(values, dtype, rows)
            findings.add("dropped", f"values of {column} beyond 32 bits", beyond)
    frame = pd.DataFrame({column: data[column] for column in EVENTS.columns}, copy=False)
    for argument in args:
        if argument not in frame:
            frame[argument] = _extra(raw, argument, timed, texts)
    findings.add("read", "events", rows)
    _note_origin(findings, raw.metadata)
    return RankTables(label, frame, steps, tuple(findings.rows()), raw.metadata, timed.clock)


def _note_origin(findings: Findings, metadata: Mapping[str, Any]) -> None:
    findings.add("noted", SAYS_SYNTHETIC, int(bool(metadata.get("synthetic"))))
    findings.add("noted", SAYS_OBFUSCATED, int(bool(metadata.get("obfuscated"))))


@dataclass(frozen=True)
class _Timed:
    start: IntArray
    dur: IntArray
    clock: str
    pick: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    pid: npt.NDArray[Any]
    tid: npt.NDArray[Any]
    name: npt.NDArray[Any]


def _timed(raw: RawTrace) -> _Timed:
    names = ("ph", "flags", "ts", "dur", "pid", "tid", "name")
    fields = {name: raw.columns.field(name) for name in names}
    # An empty name says as little as none.
    if "" in raw.texts:
        fields["name"][fields["name"] == raw.texts.index("")] = -1
    keep = plausible(fields, raw.findings)
    base = raw.metadata.get("baseTimeNanoseconds")
    start, clock = absolute(fields["ts"], base, raw.findings)
    pick = _picker(keep, start, fields["dur"])
    texts = (pick(fields[name]) for name in ("pid", "tid", "name"))
    return _Timed(pick(start), pick(fields["dur"]), clock, pick, *texts)


def _named(raw: RawTrace, timed: _Timed, texts: list[str]) -> dict[str, CodedTexts]:
    columns, pick = raw.columns, timed.pick
    # A missing category is uncategorised; others get their present spelling.
    spelled = [_RENAMED.get(text, text) for text in texts]
    columns_of = {
        "name": CodedTexts.of(timed.name, texts, missing=""),
        "category": CodedTexts.of(pick(columns.field("cat")), spelled, missing=UNCATEGORISED),
        "process": CodedTexts.of(timed.pid, texts, missing=""),
        "thread": CodedTexts.of(timed.tid, texts, missing=""),
    }
    for argument, (column, kind) in COLUMNS.items():
        if kind == TEXT:
            codes = columns.values(argument)
            absent = CodedTexts(np.full(len(timed.start), -1, np.int32), [])
            columns_of[column] = absent if codes is None else CodedTexts.of(pick(codes), texts)
    return columns_of


def _picker(
    keep: npt.NDArray[np.bool_], start: IntArray, dur: IntArray
) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
    if keep.all():
        by = order(start, dur)
        return (lambda values: values) if by is None else (lambda values: values[by])
    kept = np.flatnonzero(keep)
    by = order(start[kept], dur[kept])
    picked = kept if by is None else kept[by]
    return lambda values: values[picked]


def _clean(raw: RawTrace) -> list[str]:
    texts = raw.texts
    bad = [
        code for code, text in enumerate(texts) if not text.isascii() and _SURROGATES.search(text)
    ]
    # The scanner also keeps texts of events that are passed over.
    used = raw.columns.used(len(texts)) if bad else np.zeros(0, np.bool_)
    finding = "texts with bytes that are not UTF-8, shown as \ufffd"
    raw.findings.add("repaired", finding, int(used[bad].sum()))
    for code in bad:
        texts[code] = _SURROGATES.sub("\ufffd", texts[code])
    return texts


def _numbers(
    raw: RawTrace,
    pick: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
    on_stream: npt.NDArray[np.bool_],
) -> dict[str, IntArray]:
    columns: dict[str, IntArray] = {}
    for argument, (column, kind) in COLUMNS.items():
        if kind != INTEGER or (values := raw.columns.values(argument)) is None:
            continue
        values = pick(values)
        if column in columns:
            values = np.where(columns[column] == MISSING, values, columns[column])
        columns[column] = values
    for column in _NEVER_BELOW_0 & columns.keys():
        below = (columns[column] < 0) & (columns[column] != MISSING)
        raw.findings.add("dropped", f"negative values of {column}", int(below.sum()))
        columns[column][below] = MISSING
    for column in _MINUS_1_IS_MISSING & columns.keys():
        columns[column][columns[column] == -1] = MISSING
    if "correlation" in columns:
        # Profilers count from 1; 0 stands for none.
        columns["correlation"][columns["correlation"] == 0] = MISSING
    if "device" in columns:
        # On the host an argument of this name is an address, not a GPU.
        columns["device"][~on_stream] = MISSING
    return columns


def _nullable(values: IntArray | None, dtype: str, rows: int) -> tuple[Any, int]:
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
    rows, numbers = step_rows(name, category, findings)
    start, dur = timed.start[rows], timed.dur[rows]
    columns = {"rank": np.zeros(len(rows), np.int32), "step": numbers.astype(np.int32)}
    frame = pd.DataFrame({**columns, "start_ns": start, "dur_ns": dur}, copy=False)
    return (numbers, start, start + dur), frame


def _note(
    findings: Findings,
    *,
    dur: IntArray,
    work: npt.NDArray[np.bool_],
    launch: IntArray,
    known: npt.NDArray[np.bool_],
) -> None:
    unlaunched = int((work & (launch == MISSING)).sum())
    findings.add("noted", "GPU rows whose launch is not in the trace", unlaunched)
    busy, unknown = int(dur[work].sum()), int(dur[work & ~known].sum())
    if unknown:
        share = f"{unknown / busy:.1%} of kernel time"
        finding = f"kernels that no rule knows, counted as compute ({share})"
        findings.add("noted", finding, int((work & ~known).sum()))


def _extra(raw: RawTrace, argument: str, timed: _Timed, texts: list[str]) -> Any:
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


def metadata_text(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    return value if value is None or isinstance(value, str) else json.dumps(value)


# Categories as written in 2020 and 2021, and what they are called today.
_RENAMED = {
    "Operator": "cpu_op", "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset", "Python": "python_function", "Annotation": "user_annotation",
}  # fmt: skip
UNCATEGORISED = "uncategorised"
RUNTIME = frozenset(
    {"cuda_runtime", "cuda_driver", "mtia_runtime", "xpu_runtime", "privateuse1_runtime",
     "privateuse1_driver", "glow_runtime"}
)  # fmt: skip
ON_STREAM = GPU_WORK | {"cuda_sync", "gpu_user_annotation"}
_STREAM_THREAD = re.compile(r"stream\s+(\d{1,18})\s*$")

_OF_STREAM_ROWS = ("stream", "device")
# How many windows are looked back at where windows overlap or nest.
_STEPS_BACK = 4
# 2010 to 2100; clocks that count from a boot stay far below.
_EPOCH_FIRST_NS, _EPOCH_LAST_NS = 1_262_304_000_000_000_000, 4_102_444_800_000_000_000
# No stream, as int32 and as uint32.
_NO_STREAM = (-1, 4_294_967_295)
_IMPLAUSIBLE_DUR_NS = 7 * 24 * 3600 * 1_000_000_000

_SKIPPED_PHASES = dict.fromkeys("stf", "flow arrows; the correlation column holds what they say")
_SKIPPED_PHASES["M"] = "names and sort orders of processes and threads"
_DROPPED_PHASES = {
    "C": "counter events (phase C), which have no place here",
    "\x00": "events without a phase",
}


def count_phases(columns: Columns, findings: Findings) -> None:
    for (argument, category), count in columns.unreadable.items():
        if argument in _OF_STREAM_ROWS and _RENAMED.get(category, category) not in ON_STREAM:
            continue  # on the host these are addresses, and no columns
        findings.add("dropped", f"values of {argument!r} that are not of its type", count)
    for phase, count in columns.phases.items():
        if phase in _SKIPPED_PHASES:
            findings.add("skipped by design", _SKIPPED_PHASES[phase], count)
        else:
            finding = _DROPPED_PHASES.get(phase, f"events of phase {phase!r}")
            findings.add("dropped", finding, count)


def pair_begin_end(
    fields: dict[str, npt.NDArray[Any]], findings: Findings
) -> npt.NDArray[np.bool_]:
    """Turn begin/end pairs into complete rows, in place; return which rows stay."""
    ph = fields["ph"]
    keep: npt.NDArray[np.bool_] = ph != ord("E")
    open_rows: dict[tuple[int, int], list[int]] = {}
    unmatched_ends = other_name = 0
    positions = np.flatnonzero((ph == ord("B")) | (ph == ord("E")))
    # Events stand in no order of time, and a stack needs one.
    for row in positions[np.argsort(fields["ts"][positions], kind="stable")]:
        stack = open_rows.setdefault((int(fields["pid"][row]), int(fields["tid"][row])), [])
        if ph[row] == ord("B"):
            stack.append(int(row))
        elif stack:
            begin = stack.pop()
            name = fields["name"][row]
            other_name += bool(name >= 0 and name != fields["name"][begin])
            fields["dur"][begin] = fields["ts"][row] - fields["ts"][begin]
            fields["flags"][begin] |= HAS_DUR
        else:
            unmatched_ends += 1
    never_ended = [row for stack in open_rows.values() for row in stack]
    keep[never_ended] = False
    findings.add("dropped", "begin events (phase B) without an end", len(never_ended))
    findings.add("dropped", "end events (phase E) without a begin", unmatched_ends)
    finding = "end events (phase E) that close a begin event of another name"
    findings.add("suspicious", finding, other_name)
    return keep


def plausible(fields: dict[str, npt.NDArray[Any]], findings: Findings) -> npt.NDArray[np.bool_]:
    """Say which rows have usable times, counting the others and what was assumed."""
    ph, flags, dur = fields["ph"], fields["flags"], fields["dur"]
    keep = np.ones(len(ph), np.bool_)
    if ((ph == ord("B")) | (ph == ord("E"))).any():
        keep = pair_begin_end(fields, findings)
    timed = (flags & HAS_TIME) != 0
    findings.add("dropped", "events without a readable time stamp", int((keep & ~timed).sum()))
    keep &= timed
    complete = (ph == ord("X")) | (ph == ord("B"))
    no_dur = keep & complete & ((flags & HAS_DUR) == 0)
    findings.add("assumed", "duration 0 of complete events that state none", int(no_dur.sum()))
    for finding, bad in (
        ("events with a negative duration", keep & (dur < 0)),
        ("events longer than 7 days (an overflow)", keep & (dur > _IMPLAUSIBLE_DUR_NS)),
    ):
        findings.add("dropped", finding, int(bad.sum()))
        keep &= ~bad
    zeroed = int((keep & complete & (fields["ts"] == 0) & (dur == 0)).sum())
    if zeroed > 1 and (fields["ts"][keep] != 0).any():
        findings.add("suspicious", "events with time stamp 0 and duration 0", zeroed)
    return keep


def absolute(ts: IntArray, base: object, findings: Findings) -> tuple[IntArray, str]:
    """Add the base time; say whether the result is wall time (epoch) or the trace's own."""
    usable = isinstance(base, int) and not isinstance(base, bool) and abs(base) < 1 << 61
    base_ns = base if isinstance(base, int) and usable else 0
    if base is not None and not usable:
        findings.add("suspicious", f"baseTimeNanoseconds is no time: {str(base)[:40]!r}; not added")
    if len(ts) == 0:
        return ts, "own"
    # The median: events of time 0, or of another clock, must not decide for all.
    middle = int(np.median(ts[:: max(1, len(ts) // 10_000)]))
    if base_ns and _EPOCH_FIRST_NS <= middle <= _EPOCH_LAST_NS:
        finding = "baseTimeNanoseconds with time stamps that are epoch already; not added"
        findings.add("suspicious", finding)
        base_ns = 0
    clock = "epoch" if _EPOCH_FIRST_NS <= middle + base_ns <= _EPOCH_LAST_NS else "own"
    ts = ts + base_ns if base_ns else ts
    wall = (ts >= _EPOCH_FIRST_NS) & (ts <= _EPOCH_LAST_NS)
    unlike = int((wall != (clock == "epoch"))[ts != base_ns].sum())
    finding = f"time stamps {'that are no' if clock == 'epoch' else 'of'} wall time"
    findings.add("suspicious", f"{finding}, unlike the others; the trace mixes clocks", unlike)
    return ts, clock


def is_any(category: CodedTexts, wanted: frozenset[str]) -> npt.NDArray[np.bool_]:
    return category.matches(lambda text: text in wanted)


def kinds(
    name: CodedTexts, category: CodedTexts, rules: pd.DataFrame | None
) -> tuple[pd.Categorical, npt.NDArray[np.bool_]]:
    """Classify GPU work: its kind per row (missing elsewhere), and whether a rule knew it."""
    work = is_any(category, GPU_WORK)
    copies = is_any(category, GPU_MEMORY)
    by_name = work & ~copies
    # Each name once: millions of kernels share a few hundred names.
    used = np.unique(name.codes[by_name])
    answers = rules_of([name.texts[code] for code in used], rules=rules)
    kind_of = np.full(len(name.texts) + 1, -1, np.int8)
    is_known_of = np.ones(len(name.texts) + 1, np.bool_)
    kind_of[used] = [KINDS.index(kind or "compute") for kind, _ in answers]
    is_known_of[used] = [kind != "" for kind, _ in answers]
    codes = np.full(len(work), -1, np.int8)
    codes[by_name] = kind_of[name.codes[by_name]]
    codes[copies] = KINDS.index("memory")
    is_known = np.ones(len(work), np.bool_)
    is_known[by_name] = is_known_of[name.codes[by_name]]
    return pd.Categorical.from_codes(codes, categories=pd.Index(KINDS, dtype="str")), is_known


def order(start: IntArray, dur: IntArray) -> IntArray | None:
    """Return the order by start, longest first; None if the rows stand in it already."""
    step = np.diff(start)
    if (step > 0).all() or ((step >= 0).all() and not ((step == 0) & (np.diff(dur) > 0)).any()):
        return None
    by_start = np.argsort(start, kind="stable")
    sorted_start = start[by_start]
    same = np.flatnonzero(np.diff(sorted_start) == 0)
    if len(same):
        tied = np.zeros(len(start), np.bool_)
        tied[same] = True
        tied[same + 1] = True
        rows = by_start[tied]
        # Stable: rows that tie in both keep the order of the file.
        by_start[tied] = rows[np.lexsort((-dur[rows], start[rows]))]
    return by_start


def streams(
    stream: IntArray | None, thread: CodedTexts, on_stream: npt.NDArray[np.bool_]
) -> IntArray:
    """Return the GPU stream of rows that have one; older files say it in the thread's name."""
    number = np.full(len(on_stream), MISSING, np.int64)
    if stream is not None:
        number[on_stream] = stream[on_stream]
    lacking = on_stream & (number == MISSING)
    if lacking.any():
        of_text = np.full(len(thread.texts) + 1, MISSING, np.int64)
        for code in np.unique(thread.codes[lacking]):
            if code >= 0 and (match := _STREAM_THREAD.match(thread.texts[code])):
                of_text[code] = int(match[1])
        number[lacking] = of_text[thread.codes[lacking]]
    number[np.isin(number, _NO_STREAM)] = MISSING
    return number


def launches(
    runtime: npt.NDArray[np.bool_],
    work: npt.NDArray[np.bool_],
    ids_of: Sequence[IntArray | None],
    times: tuple[IntArray, IntArray],
) -> tuple[IntArray, int]:
    """Return, for GPU work, the position of the call that launched it, else MISSING.

    Also returns how many calls have the id of an earlier one. Joined on the first of ``ids_of``
    (correlation, external id) that a GPU row has. One launch may start many kernels (CUDA graphs).
    Where several calls have one id, as after a counter started anew, the last one before the GPU
    row counts.
    """
    launch, repeated = np.full(len(work), MISSING, np.int64), 0
    for ids in ids_of:
        if ids is None:
            continue
        rows = np.flatnonzero(work & (ids != MISSING))
        if len(rows) == 0:
            continue
        calls = np.flatnonzero(runtime & (ids != MISSING))
        if len(calls):
            by_id = _outermost(ids, calls, times)
            launch[rows] = _nearest_call(ids, by_id, rows)
            repeated = int((np.diff(ids[by_id]) == 0).sum())
        break
    return launch, repeated


# Counters may start anew, so of several calls with one id the last before the GPU row counts.
def _nearest_call(ids: IntArray, by_id: IntArray, rows: IntArray) -> IntArray:
    distinct, number = np.unique(ids[by_id], return_inverse=True)
    at = np.minimum(np.searchsorted(distinct, ids[rows]), len(distinct) - 1)
    # Rows stand in order of time, so the place in the table says what came first.
    size = len(ids)
    last_before = np.searchsorted(number * size + by_id, at * size + rows) - 1
    nearest: IntArray = by_id[np.maximum(np.searchsorted(number, at), last_before)]
    nearest[distinct[at] != ids[rows]] = MISSING
    return nearest


# A driver call inside a runtime call has its id, too; the runtime call is the launch.
def _outermost(ids: IntArray, calls: IntArray, times: tuple[IntArray, IntArray]) -> IntArray:
    start, dur = times
    by_id = calls[np.argsort(ids[calls], kind="stable")]
    before, after = by_id[:-1], by_id[1:]
    nested = (ids[before] == ids[after]) & (start[after] < start[before] + dur[before])
    kept: IntArray = by_id[np.concatenate([[True], ~nested])]
    return kept


def step_rows(
    name: CodedTexts, category: CodedTexts, findings: Findings
) -> tuple[IntArray, IntArray]:
    number_of = np.full(len(name.texts) + 1, MISSING, np.int64)
    for code, text in enumerate(name.texts):
        if (number := step_number(text)) is not None:
            number_of[code] = number
        elif is_step_name(text):
            findings.add("dropped", "step numbers of ten and more digits")
    numbers = number_of[name.codes]
    rows = np.flatnonzero((numbers != MISSING) & is_any(category, STEP_CATEGORIES))
    repeated = len(rows) - len(np.unique(numbers[rows]))
    findings.add("suspicious", "step numbers that occur more than once", repeated)
    return rows, numbers[rows]


def assign_steps(
    start: IntArray, launch: IntArray, windows: tuple[IntArray, IntArray, IntArray]
) -> IntArray:
    """Return the step of every row: by time, and for launched GPU work that of its launch.

    ``windows`` are number, start and end of the steps, in order of start.
    """
    numbers, first, last = windows
    if len(numbers) == 0:
        return np.full(len(start), MISSING, np.int64)
    at = np.searchsorted(first, start, side="right") - 1
    step = np.full(len(start), MISSING, np.int64)
    # Windows may overlap or lie inside each other: the one that began last and goes on counts.
    for _ in range(_STEPS_BACK):
        inside = (at >= 0) & (step == MISSING) & (start < last[np.maximum(at, 0)])
        step[inside] = numbers[at[inside]]
        if (first[1:] >= last[:-1]).all():
            break
        at = at - 1
    launched = launch != MISSING
    step[launched] = step[launch[launched]]
    return step
