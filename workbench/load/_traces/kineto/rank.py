"""From one parsed Kineto file to the tables of one rank."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench._shared.kernel_kinds import GPU_MEMORY, GPU_WORK, KINDS, rules_of
from workbench._shared.profiler_steps import STEP_CATEGORIES, is_step_name, step_number
from workbench.load._files.findings import Finding, Findings, quality_frame
from workbench.load._files.json_events import decoder, to_integer
from workbench.load._files.rank_names import rank_in_name
from workbench.load._traces.durations import bound_durations, cut_overflows, pair_begin_end
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
from workbench.load._traces.kineto.files import Files, Timed
from workbench.load._traces.kineto.gpus import Gpu, Rows, by_gpu
from workbench.load._traces.selection import all_missing
from workbench.tables import EVENTS, SAYS_OBFUSCATED, SAYS_SYNTHETIC

IntArray = npt.NDArray[np.int64]

# Arguments that become columns: name in the file -> (column, how it is stored).
COLUMNS: Mapping[str, tuple[str, int]] = {
    "device": ("device", INTEGER), "stream": ("stream", INTEGER),
    # Kernels of Intel's GPUs have a queue of SYCL in place of a stream.
    "sycl queue": ("stream", INTEGER),
    "correlation": ("correlation", INTEGER), "External id": ("external_id", INTEGER),
    "external id": ("external_id", INTEGER), "bytes": ("size_bytes", INTEGER),
    "Collective name": ("collective", TEXT), "Process Group Name": ("group", TEXT),
    "Group size": ("group_size", INTEGER), "Seq": ("seq", INTEGER),
    "In msg nelems": ("in_count", INTEGER), "Out msg nelems": ("out_count", INTEGER),
    "dtype": ("dtype", TEXT), "wait_on_stream": ("wait_stream", INTEGER),
    "wait_on_cuda_event_record_corr_id": ("wait_correlation", INTEGER),
    "Sequence number": ("autograd_seq", INTEGER),
}  # fmt: skip
# Arguments that hold one JSON value per operator. Few differ, so that each column is a small code.
SHAPES: Mapping[str, str] = {
    "Input Dims": "input_shapes", "Input dims": "input_shapes", "Input type": "input_types",
    "Input Strides": "input_strides", "Concrete Inputs": "input_values",
}  # fmt: skip
_NEVER_BELOW_0 = frozenset({"size_bytes", "group_size"})
# Kineto writes -1 for what it does not know, such as the stream that a wait is for.
_MINUS_1_IS_MISSING = frozenset(
    {"seq", "in_count", "out_count", "wait_stream", "wait_correlation", "device", "autograd_seq"}
)
# What surrogateescape makes of bytes that are not UTF-8.
_SURROGATES = re.compile("[\ud800-\udfff]")
_REPEATED = "launch calls with the correlation of an earlier one; GPU rows take the nearest before"
NOT_UTF8 = "texts with bytes that are not UTF-8, shown as \ufffd"


class Stating:
    """What a file states of its rank, before it has a place among other ranks."""

    label: str
    metadata: dict[str, Any]

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


@dataclass(frozen=True)
class RankTables(Stating):
    """What one process says, before its GPUs have a place among other ranks."""

    label: str
    events: pd.DataFrame
    steps: pd.DataFrame
    findings: tuple[Finding, ...]  # a table of them takes as long as a small file
    metadata: dict[str, Any]
    clock: str
    gpus: Sequence[Gpu]
    format: str = "kineto"

    @property
    def quality(self) -> pd.DataFrame:
        return quality_frame(self.findings)

    @property
    def first_ns(self) -> int | None:
        return int(self.events["start_ns"].min()) if len(self.events) else None

    @property
    def last_ns(self) -> int | None:
        ends = self.events["start_ns"] + self.events["dur_ns"]
        return int(ends.max()) if len(ends) else None


@dataclass
class RawRank(Stating):
    """A parsed file that is interpreted later, together with others."""

    raw: RawTrace
    clock: str = ""
    format: str = "kineto"
    first_ns: int | None = None  # not before it is interpreted
    last_ns: int | None = None
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        """Take over what is known by now."""
        self.label, self.metadata = self.raw.findings.source, self.raw.metadata


@dataclass(frozen=True)
class Joint:
    """The tables of several files, one below the other, and what is of each file."""

    events: pd.DataFrame
    steps: pd.DataFrame
    gpus: Sequence[Sequence[Gpu]]
    clocks: Sequence[str]
    findings: Sequence[tuple[Finding, ...]]


def slots(args: Sequence[str]) -> Slots:
    """Return what to keep of each event's arguments: the columns, and ``args`` as asked."""
    wanted = {name: kind for name, (_, kind) in COLUMNS.items()}
    wanted |= {name: TOKEN for name in (*SHAPES, *args) if name not in wanted}
    return Slots(wanted)


def rank_tables(
    raw: RawTrace, *, label: str, args: Sequence[str] = (), rules: pd.DataFrame | None = None
) -> RankTables:
    """Interpret a parsed Kineto file, whose columns are used up; its rank is still 0."""
    tables = joint_tables([raw], args=args, rules=rules)
    return RankTables(
        label, tables.events, tables.steps, tables.findings[0], raw.metadata, tables.clocks[0],
        tables.gpus[0],
    )  # fmt: skip


def joint_tables(
    raws: Sequence[RawTrace], *, args: Sequence[str] = (), rules: pd.DataFrame | None = None
) -> Joint:
    """Interpret parsed files whose texts have common numbers, and whose columns are used up.

    Many small files take far less time together than one by one; further arguments are columns
    of other types from file to file, so that ``args`` go with a single file only.
    """
    for raw in raws:
        count_phases(raw.columns, raw.findings)
    texts = _clean(raws, raws[0].texts())
    files = Files.of([raw.columns.rows for raw in raws], [raw.findings for raw in raws])
    columns = Columns.joined([raw.columns for raw in raws])
    timed = _timed(columns, texts, files, [raw.metadata for raw in raws])
    text_columns = _named(columns, timed, texts)
    on_stream = is_any(text_columns["category"], ON_STREAM)
    numbers = _numbers(columns, timed, on_stream)
    numbers["stream"] = streams(numbers.get("stream"), text_columns["thread"], on_stream)
    owners, timed = _on_gpus(timed, text_columns, numbers, [raw.metadata for raw in raws])
    files, work = timed.files, is_any(text_columns["category"], GPU_WORK)
    step_of = step_rows(text_columns["name"], text_columns["category"], files)
    numbers["step"] = assign_steps(timed, numbers["launch"], step_of)
    kind, is_known = kinds(text_columns["name"], text_columns["category"], rules)
    timed = _bounded(timed, work, numbers, text_columns["name"], is_known)

    data = {"rank": np.zeros(len(timed.start), np.int32), "kind": kind} | {
        "start_ns": timed.start, "dur_ns": timed.dur
    }  # fmt: skip
    data |= {column: coded.categorical() for column, coded in text_columns.items()}
    data |= _shapes(columns, timed, texts)
    frame = _frame(data, numbers, files)
    for argument in args:
        if SHAPES.get(argument) in data:
            frame[argument] = frame[SHAPES[argument]]
        elif argument not in frame:
            frame[argument] = _extra(columns, argument, timed, texts)
    for raw in raws:
        _note_origin(raw.findings, raw.metadata)
    of_gpus, found = _of_files(owners, files, files.counts(step_of[0]), len(raws))
    return Joint(frame, _steps(timed, *step_of), of_gpus, timed.clocks, found)


def _on_gpus(
    timed: Timed,
    text_columns: dict[str, CodedTexts],
    numbers: dict[str, IntArray],
    metadata: Sequence[Mapping[str, Any]],
) -> tuple[list[tuple[int, int | None]], Timed]:
    """Join GPU work with its launches, and set the rows of each GPU apart."""
    category = text_columns["category"]
    work, calls = is_any(category, GPU_WORK), is_any(category, RUNTIME)
    ids = _first_ids(work, (numbers.get("correlation"), numbers.get("external_id")), timed.files)
    numbers["launch"], repeated = launches(calls, work, ids, timed)
    timed.files.add("suspicious", _REPEATED, repeated)
    rows = Rows(numbers.get("device"), timed.dur, work, calls, ids)
    return by_gpu(timed, rows, text_columns, numbers, metadata)


def _of_files(
    owners: Sequence[tuple[int, int | None]], files: Files, steps: Sequence[int], count: int
) -> tuple[list[list[Gpu]], list[tuple[Finding, ...]]]:
    """Return the GPUs of each of ``count`` files, and its findings."""
    of_gpus, found = [list[Gpu]() for _ in range(count)], [list[Finding]() for _ in range(count)]
    for (at, device), findings, size, step_count in zip(
        owners, files.findings, np.diff(files.bounds).tolist(), steps, strict=True
    ):
        findings.add("read", "events", size)
        of_gpus[at].append(Gpu(device, size, step_count))
        found[at] += findings.rows()
    return of_gpus, [tuple(rows) for rows in found]


def _frame(data: dict[str, Any], numbers: dict[str, IntArray], files: Files) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for column, declared in EVENTS.columns.items():
        if column in data:
            columns[column] = data[column]
        elif not declared.optional:
            values, dtype = numbers.pop(column, None), declared.dtype
            columns[column], beyond = _nullable(values, dtype, len(data["start_ns"]))
            files.add("dropped", f"values of {column} beyond 32 bits", beyond)
    return pd.DataFrame(columns, copy=False)


def _note_origin(findings: Findings, metadata: Mapping[str, Any]) -> None:
    findings.add("noted", SAYS_SYNTHETIC, int(bool(metadata.get("synthetic"))))
    findings.add("noted", SAYS_OBFUSCATED, int(bool(metadata.get("obfuscated"))))


def _timed(
    columns: Columns, texts: list[str], files: Files, metadata: Sequence[Mapping[str, Any]]
) -> Timed:
    names = ("ph", "flags", "ts", "dur", "pid", "tid", "name", "cat")
    fields = {name: columns.field(name) for name in names}
    # An empty name says as little as none.
    if "" in texts:
        fields["name"][fields["name"] == texts.index("")] = -1
    is_work = np.array([*(RENAMED.get(text, text) in GPU_WORK for text in texts), False])
    keep = plausible(fields, files, is_work)
    start, clocks = fields["ts"], []
    for told, (findings, rows) in zip(metadata, files, strict=True):
        base = told.get("baseTimeNanoseconds")
        base_ns, clock = base_and_clock(start[rows], base, findings)
        if base_ns:
            start[rows] += base_ns
        clocks.append(clock)
    pick, files = _picker(keep, start, fields["dur"], files)
    picked = (pick(fields[name]) for name in ("pid", "tid", "name", "cat"))
    return Timed(pick(start), pick(fields["dur"]), clocks, files, pick, *picked)


def _named(columns: Columns, timed: Timed, texts: list[str]) -> dict[str, CodedTexts]:
    pick = timed.pick
    # A missing category is uncategorised; others get their present spelling.
    spelled = [RENAMED.get(text, text) for text in texts]
    columns_of = {
        "name": CodedTexts.of(timed.name, texts, missing=""),
        "category": CodedTexts.of(timed.cat, spelled, missing=UNCATEGORISED),
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
    keep: npt.NDArray[np.bool_], start: IntArray, dur: IntArray, files: Files
) -> tuple[Callable[[npt.NDArray[Any]], npt.NDArray[Any]], Files]:
    if keep.all():
        by = order(start, dur, files)
        return (lambda values: values) if by is None else (lambda values: values[by]), files
    kept = np.flatnonzero(keep)
    files = Files.of(files.counts(kept), files.findings)
    by = order(start[kept], dur[kept], files)
    picked = kept if by is None else kept[by]
    return lambda values: values[picked], files


def _clean(raws: Sequence[RawTrace], texts: list[str]) -> list[str]:
    bad = [
        code for code, text in enumerate(texts) if not text.isascii() and _SURROGATES.search(text)
    ]
    for raw in raws if bad else ():
        # The scanner also keeps texts of events that are skipped.
        used = raw.columns.used(len(texts))
        raw.findings.add("repaired", NOT_UTF8, int(used[bad].sum()))
    for code in bad:
        texts[code] = _SURROGATES.sub("\ufffd", texts[code])
    return texts


def _numbers(
    parsed: Columns, timed: Timed, on_stream: npt.NDArray[np.bool_]
) -> dict[str, IntArray]:
    columns: dict[str, IntArray] = {}
    for argument, (column, kind) in COLUMNS.items():
        if kind != INTEGER or (values := parsed.values(argument)) is None:
            continue
        values = timed.pick(values)
        if column in columns:
            values = np.where(columns[column] == MISSING, values, columns[column])
        columns[column] = values
    for column in _NEVER_BELOW_0 & columns.keys():
        below = (columns[column] < 0) & (columns[column] != MISSING)
        timed.files.add("dropped", f"negative values of {column}", below)
        columns[column][below] = MISSING
    for column in _MINUS_1_IS_MISSING & columns.keys():
        columns[column][columns[column] == -1] = MISSING
    if "correlation" in columns:
        # Profilers count from 1; 0 stands for none.
        columns["correlation"][columns["correlation"] == 0] = MISSING
    if "device" in columns and isinstance(parsed, Columns):
        # On the host an argument of this name is an address, not a GPU.
        columns["device"][~on_stream] = MISSING
    return columns


def _nullable(values: IntArray | None, dtype: str, rows: int) -> tuple[Any, IntArray]:
    narrow: type = np.int32 if dtype == "Int32" else np.int64
    beyond = np.zeros(0, np.int64)
    if values is None:
        return all_missing(rows, dtype), beyond
    mask = values == MISSING
    if narrow is np.int32:
        limits = np.iinfo(np.int32)
        unfit = ((values < limits.min) | (values > limits.max)) & ~mask
        beyond = np.flatnonzero(unfit)
        mask |= unfit
        values = np.where(mask, 1, values).astype(np.int32)
    return pd.arrays.IntegerArray(values, mask), beyond


def _steps(timed: Timed, rows: IntArray, numbers: IntArray) -> pd.DataFrame:
    columns: dict[str, npt.NDArray[Any]] = {
        "rank": np.zeros(len(rows), np.int32), "step": numbers.astype(np.int32),
        "start_ns": timed.start[rows], "dur_ns": timed.dur[rows],
    }  # fmt: skip
    return pd.DataFrame(columns, copy=False)


def _bounded(
    timed: Timed, work: npt.NDArray[np.bool_], numbers: Mapping[str, IntArray], name: CodedTexts,
    known: npt.NDArray[np.bool_],
) -> Timed:  # fmt: skip
    """Bound durations that cannot be, and note what is not known of GPU work."""
    files, launch, spans = timed.files, numbers["launch"], (timed.start, timed.dur)
    queues = timed.pid, numbers.get("device"), numbers["stream"]
    dur = bound_durations(files, spans, work, launch, name, queues)
    files.add("noted", "GPU rows whose launch is not in the trace", work & (launch == MISSING))
    unlike = work & ~known
    for findings, rows in files if unlike.any() else ():
        busy, unknown = (int(dur[rows][of[rows]].sum()) for of in (work, unlike))
        if unknown:
            share = f"({unknown / busy:.1%} of kernel time)"
            finding = f"unlabelled kernels, counted as compute {share}"
            findings.add("noted", finding, int(unlike[rows].sum()))
    return replace(timed, dur=dur)


def _shapes(parsed: Columns, timed: Timed, texts: list[str]) -> dict[str, pd.Categorical]:
    codes_of: dict[str, npt.NDArray[Any]] = {}
    for argument, column in SHAPES.items():
        if (codes := parsed.values(argument)) is not None:
            codes = timed.pick(codes)
            before = codes_of.get(column, codes)
            codes_of[column] = np.where(before < 0, codes, before)
    return {
        column: CodedTexts.of(codes, _spelled(codes, texts, timed.files)).categorical()
        for column, codes in codes_of.items()
    }


def _spelled(codes: npt.NDArray[Any], texts: list[str], files: Files) -> list[str]:
    """Spell each JSON value that occurs in one way, so that both parsers give the same texts."""
    spelled = list(texts)
    for code in np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(texts))).tolist():
        value = _parsed(texts[code])
        text = value if isinstance(value, str) else token(value)
        # Half characters may stand behind escapes, which only show when the value is parsed.
        spelled[code] = text if text.isascii() else _SURROGATES.sub("\ufffd", text)
        if spelled[code] != text:
            for findings, rows in files:
                findings.add("repaired", NOT_UTF8, int((codes[rows] == code).any()))
    return spelled


def _extra(columns: Columns, argument: str, timed: Timed, texts: list[str]) -> Any:
    codes = columns.values(argument)
    if codes is None:
        return CodedTexts(np.full(len(timed.start), -1, np.int32), []).categorical()
    codes = timed.pick(codes)
    values = {int(code): _parsed(texts[code]) for code in np.unique(codes[codes >= 0])}
    if values and all(type(value) in (int, float) for value in values.values()):
        is_whole = all(type(value) is int for value in values.values())
        table = pd.Series(values, dtype="Int64" if is_whole else "Float64")
        return table.reindex(pd.Index(codes)).array
    return CodedTexts.of(codes, _spelled(codes, texts, timed.files)).categorical()


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
    if value is None or isinstance(value, str):
        return value and _SURROGATES.sub("\ufffd", value)
    return json.dumps(value)


# Categories as written in 2020 and 2021, and what they are called today.
RENAMED = {
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
_TODAY = 1
# No stream, as int32 and as uint32.
_NO_STREAM = (-1, 4_294_967_295)

_SKIPPED_PHASES = dict.fromkeys("stf", "flow arrows, which repeat the column of correlations")
_SKIPPED_PHASES |= {"M": "names and sort orders of processes and threads"}
_DROPPED_PHASES = {
    "C": "counter events (phase C), which have no place here",
    "\x00": "events without a phase",
}


def count_phases(columns: Columns, findings: Findings) -> None:
    for (argument, category), count in columns.unreadable.items():
        if argument in _OF_STREAM_ROWS and RENAMED.get(category, category) not in ON_STREAM:
            continue  # on the host these are addresses, and no columns
        findings.add("dropped", f"values of {argument!r} that are not of its type", count)
    for phase, count in columns.phases.items():
        if phase in _SKIPPED_PHASES:
            findings.add("skipped by design", _SKIPPED_PHASES[phase], count)
        else:
            finding = _DROPPED_PHASES.get(phase, f"events of phase {phase!r}")
            findings.add("dropped", finding, count)


def plausible(
    fields: dict[str, npt.NDArray[Any]], files: Files, is_work: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Say which rows have usable times, counting the others and what was assumed."""
    ph, flags, dur = fields["ph"], fields["flags"], fields["dur"]
    keep = np.ones(len(ph), np.bool_)
    is_half = (ph == ord("B")) | (ph == ord("E"))
    for findings, rows in files if is_half.any() else ():
        if is_half[rows].any():
            of_file = {name: values[rows] for name, values in fields.items()}
            keep[rows] = pair_begin_end(of_file, findings)
    timed = (flags & HAS_TIME) != 0
    files.add("dropped", "events without a readable time stamp", keep & ~timed)
    keep &= timed
    complete = (ph == ord("X")) | (ph == ord("B"))
    no_dur = keep & complete & ((flags & HAS_DUR) == 0)
    files.add("assumed", "duration 0 of complete events that state none", no_dur)
    for finding, bad in (
        ("events with a negative duration", keep & (dur < 0)),
        (
            "events longer than 7 days (an overflow)",
            keep & cut_overflows(dur, is_work, fields["cat"]),
        ),
    ):
        files.add("dropped", finding, bad)
        keep &= ~bad
    zeroed = files.counts(keep & complete & (fields["ts"] == 0) & (dur == 0))
    for (findings, rows), count in zip(files, zeroed, strict=True):
        if count > 1 and (fields["ts"][rows][keep[rows]] != 0).any():
            findings.add("suspicious", "events with time stamp 0 and duration 0", count)
    return keep


def base_and_clock(ts: IntArray, base: object, findings: Findings) -> tuple[int, str]:
    """Return the time to add, and whether the sum is wall time (epoch) or the trace's own."""
    usable = isinstance(base, int) and not isinstance(base, bool) and abs(base) < 1 << 61
    base_ns = base if isinstance(base, int) and usable else 0
    if base is not None and not usable:
        findings.add("suspicious", f"baseTimeNanoseconds is no time: {str(base)[:40]!r}; not added")
    if len(ts) == 0:
        return 0, "own"
    middle, last = int(ts.min()), int(ts.max())
    is_mixed = any(_era(middle + added) != _era(last + added) for added in (0, base_ns))
    if is_mixed:
        # The median: events of time 0, or of another clock, must not decide for all.
        middle = int(np.median(ts[:: max(1, len(ts) // 10_000)]))
    if base_ns and _era(middle) == _TODAY:
        finding = "baseTimeNanoseconds with time stamps that are epoch already; not added"
        findings.add("suspicious", finding)
        base_ns = 0
    clock = "epoch" if _era(middle + base_ns) == _TODAY else "own"
    if is_mixed:
        absolute = ts + base_ns
        wall = (absolute >= _EPOCH_FIRST_NS) & (absolute <= _EPOCH_LAST_NS)
        unlike = int((wall != (clock == "epoch"))[absolute != base_ns].sum())
        finding = f"time stamps {'that are no' if clock == 'epoch' else 'of'} wall time"
        findings.add("suspicious", f"{finding}, unlike the others; the trace mixes clocks", unlike)
    return base_ns, clock


# Before what wall clocks say in a trace, as they say, or after.
def _era(time_ns: int) -> int:
    return (time_ns >= _EPOCH_FIRST_NS) + (time_ns > _EPOCH_LAST_NS)


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


def order(start: IntArray, dur: IntArray, files: Files) -> IntArray | None:
    """Return the order by start, longest first, in each file; None if the rows stand in it."""
    step = np.diff(start)
    unsorted = step < 0
    if (tied := step == 0).any():
        unsorted |= tied & (np.diff(dur) > 0)
    unsorted[files.seams] = False
    if not unsorted.any():
        return None
    by_start = np.arange(len(start))
    for _, rows in files:
        if unsorted[rows.start : rows.stop - 1].any():
            by_start[rows] = rows.start + _order(start[rows], dur[rows])
    return by_start


def _order(start: IntArray, dur: IntArray) -> IntArray:
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
    runtime: npt.NDArray[np.bool_], work: npt.NDArray[np.bool_], ids: IntArray, timed: Timed
) -> tuple[IntArray, IntArray]:
    """Return, for GPU work, the position of the call that launched it, else MISSING.

    Also returns the calls that have the id of an earlier one. Joined on ``ids``, the first of
    correlation and external id that GPU rows of the file have. One launch may start many kernels
    (CUDA graphs). Where several calls have one id, as after a counter restarted, the last one
    before the GPU row counts.
    """
    launch = np.full(len(work), MISSING, np.int64)
    has_id = ids != MISSING
    rows, calls = np.flatnonzero(work & has_id), np.flatnonzero(runtime & has_id)
    if len(rows) == 0 or len(calls) == 0:
        return launch, np.zeros(0, np.int64)
    _set_apart(ids, np.concatenate([rows, calls]), timed.files)
    by_id = _outermost(ids, calls, (timed.start, timed.dur))
    launch[rows] = _nearest_call(ids, by_id, rows)
    return launch, np.sort(by_id[1:][np.diff(ids[by_id]) == 0])


def _first_ids(
    work: npt.NDArray[np.bool_], ids_of: Sequence[IntArray | None], files: Files
) -> IntArray:
    first = np.full(len(work), MISSING, np.int64)
    for ids in reversed([ids for ids in ids_of if ids is not None]):
        counts = files.counts(work & (ids != MISSING))
        for (_, rows), count in zip(files, counts, strict=True):
            if count:
                first[rows] = ids[rows]
    return first


# Each file counts its calls by itself.
def _set_apart(ids: IntArray, used: IntArray, files: Files) -> None:
    if (count := len(files.findings)) == 1:
        return
    values = ids[used]
    if (int(values.max()) - int(values.min()) + 1) * count >= 1 << 62:
        values = pd.factorize(values)[0]
    values = values - values.min()
    file = np.repeat(np.arange(count, dtype=np.int32), np.diff(files.bounds))[used]
    ids[used] = values + file.astype(np.int64) * (int(values.max()) + 1)


# Counters may restart, so of several calls with one id the last before the GPU row counts.
def _nearest_call(ids: IntArray, by_id: IntArray, rows: IntArray) -> IntArray:
    ordered = ids[by_id]
    is_new = np.append(True, ordered[1:] != ordered[:-1])
    distinct, number = ordered[is_new], np.cumsum(is_new) - 1
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


def step_rows(name: CodedTexts, category: CodedTexts, files: Files) -> tuple[IntArray, IntArray]:
    number_of = np.full(len(name.texts) + 1, MISSING, np.int64)
    for code, text in enumerate(name.texts):
        if (number := step_number(text)) is not None:
            number_of[code] = number
        elif is_step_name(text):
            for findings, own in files:
                is_there = int((name.codes[own] == code).any())
                findings.add("dropped", "step numbers of ten and more digits", is_there)
    numbers = number_of[name.codes]
    rows = np.flatnonzero((numbers != MISSING) & is_any(category, STEP_CATEGORIES))
    numbers = numbers[rows]
    for findings, steps in Files.of(files.counts(rows), files.findings):
        repeated = steps.stop - steps.start - len(set(numbers[steps].tolist()))
        findings.add("suspicious", "step numbers that occur more than once", repeated)
    return rows, numbers


def assign_steps(timed: Timed, launch: IntArray, windows: tuple[IntArray, IntArray]) -> IntArray:
    """Return the step of every row: by time, and for launched GPU work that of its launch.

    ``windows`` are the rows and numbers of the steps, in order of start in each file.
    """
    start, (rows, numbers) = timed.start, windows
    step = np.full(len(start), MISSING, np.int64)
    if len(numbers) == 0:
        return step
    first, last = start[rows], start[rows] + timed.dur[rows]
    of_files = Files.of(timed.files.counts(rows), timed.files.findings)
    at = np.empty(len(start), np.int64)
    for (_, own), (_, steps) in zip(timed.files, of_files, strict=True):
        at[own] = np.searchsorted(first[steps], start[own], side="right") + (steps.start - 1)
    lowest = np.repeat(of_files.bounds[:-1], np.diff(timed.files.bounds))
    overlap = first[1:] < last[:-1]
    overlap[of_files.seams] = False
    # Windows may overlap or lie inside each other: the one that began last and goes on counts.
    for _ in range(_STEPS_BACK if overlap.any() else 1):
        inside = (at >= lowest) & (step == MISSING) & (start < last[np.maximum(at, 0)])
        step[inside] = numbers[at[inside]]
        at = at - 1
    launched = launch != MISSING
    step[launched] = step[launch[launched]]
    return step
