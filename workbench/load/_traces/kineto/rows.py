"""From parsed Kineto rows to the events table of one rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench._profiler_steps import STEP_CATEGORIES, is_step_name, step_number
from workbench.kernel_kinds import GPU_MEMORY, GPU_WORK, KINDS, classify
from workbench.load._files.findings import Findings
from workbench.load._traces.kineto.blocks import HAS_DUR, HAS_TIME, MISSING, Columns
from workbench.load._traces.kineto.categories import CodedTexts

IntArray = npt.NDArray[np.int64]

# Categories as written in 2020 and 2021, and what they are called today.
_RENAMED = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Python": "python_function",
    "Annotation": "user_annotation",
}
UNCATEGORISED = "uncategorised"
RUNTIME = frozenset(
    {"cuda_runtime", "cuda_driver", "mtia_runtime", "xpu_runtime", "privateuse1_runtime",
     "privateuse1_driver", "glow_runtime"}
)  # fmt: skip
ON_STREAM = GPU_WORK | {"cuda_sync", "gpu_user_annotation"}
_STREAM_THREAD = re.compile(r"stream\s+(\d{1,18})\s*$")

_OF_STREAM_ROWS = ("stream", "device")
_STEPS_BACK = 4
_EPOCH_FIRST_NS, _EPOCH_LAST_NS = 1_262_304_000_000_000_000, 4_102_444_800_000_000_000
_NO_STREAM = (-1, 4_294_967_295)
_IMPLAUSIBLE_DUR_NS = 7 * 24 * 3600 * 1_000_000_000

_SKIPPED_PHASES = {
    "s": "flow arrows; the correlation column holds what they say",
    "t": "flow arrows; the correlation column holds what they say",
    "f": "flow arrows; the correlation column holds what they say",
    "M": "names and sort orders of processes and threads",
}


def count_phases(columns: Columns, findings: Findings) -> None:
    """Count the events that are no rows of the table, and arguments that say nothing."""
    for (argument, category), count in columns.unreadable.items():
        if argument in _OF_STREAM_ROWS and _RENAMED.get(category, category) not in ON_STREAM:
            continue  # on the host these are addresses, and no columns
        findings.add("left out", f"values of {argument!r} that are not of its type", count)
    for phase, count in columns.phases.items():
        if phase in _SKIPPED_PHASES:
            findings.add("set aside", _SKIPPED_PHASES[phase], count)
        elif phase == "C":
            findings.add("left out", "counter events (phase C), which have no place here", count)
        elif phase == "\x00":
            findings.add("left out", "events without a phase", count)
        else:
            findings.add("left out", f"events of phase {phase!r}", count)


def pair_begin_end(
    fields: dict[str, npt.NDArray[Any]], findings: Findings
) -> npt.NDArray[np.bool_]:
    """Turn begin/end pairs into complete rows, in place; return which rows stay."""
    ph = fields["ph"]
    keep: npt.NDArray[np.bool_] = ph != ord("E")
    open_rows: dict[tuple[int, int], list[int]] = {}
    unmatched_ends = other_name = 0
    positions = np.flatnonzero((ph == ord("B")) | (ph == ord("E")))
    for row in positions[np.argsort(fields["ts"][positions], kind="stable")]:
        stack = open_rows.setdefault((int(fields["pid"][row]), int(fields["tid"][row])), [])
        if ph[row] == ord("B"):
            stack.append(int(row))
        elif stack:
            begin = stack.pop()
            named = fields["name"][row]
            other_name += bool(named >= 0 and named != fields["name"][begin])
            fields["dur"][begin] = fields["ts"][row] - fields["ts"][begin]
            fields["flags"][begin] |= HAS_DUR
        else:
            unmatched_ends += 1
    never_ended = [row for stack in open_rows.values() for row in stack]
    keep[never_ended] = False
    findings.add("left out", "begin events (phase B) without an end", len(never_ended))
    findings.add("left out", "end events (phase E) without a begin", unmatched_ends)
    what = "end events (phase E) that close a begin event of another name"
    findings.add("suspicious", what, other_name)
    return keep


def plausible(fields: dict[str, npt.NDArray[Any]], findings: Findings) -> npt.NDArray[np.bool_]:
    """Say which rows have usable times, counting the others and what was assumed."""
    ph, flags, dur = fields["ph"], fields["flags"], fields["dur"]
    keep = np.ones(len(ph), np.bool_)
    if ((ph == ord("B")) | (ph == ord("E"))).any():
        keep = pair_begin_end(fields, findings)
    timed = (flags & HAS_TIME) != 0
    findings.add("left out", "events without a readable time stamp", int((keep & ~timed).sum()))
    keep &= timed
    complete = (ph == ord("X")) | (ph == ord("B"))
    no_dur = keep & complete & ((flags & HAS_DUR) == 0)
    findings.add("assumed", "duration 0 of complete events that state none", int(no_dur.sum()))
    for what, bad in (
        ("events with a negative duration", keep & (dur < 0)),
        ("events longer than 7 days (an overflow)", keep & (dur > _IMPLAUSIBLE_DUR_NS)),
    ):
        findings.add("left out", what, int(bad.sum()))
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
    middle = int(np.median(ts[:: max(1, len(ts) // 10_000)]))
    if base_ns and _EPOCH_FIRST_NS <= middle <= _EPOCH_LAST_NS:
        findings.add(
            "suspicious", "baseTimeNanoseconds with time stamps that are epoch already; not added"
        )
        base_ns = 0
    clock = "epoch" if _EPOCH_FIRST_NS <= middle + base_ns <= _EPOCH_LAST_NS else "own"
    ts = ts + base_ns if base_ns else ts
    wall = (ts >= _EPOCH_FIRST_NS) & (ts <= _EPOCH_LAST_NS)
    other = int((wall != (clock == "epoch"))[ts != base_ns].sum())
    what = "time stamps that are no wall time" if clock == "epoch" else "time stamps of wall time"
    findings.add("suspicious", f"{what}, unlike the others; the trace mixes clocks", other)
    return ts, clock


def categories(cat: npt.NDArray[np.int32], texts: list[str]) -> CodedTexts:
    """Translate categories to their present spelling; a missing one is uncategorised."""
    spelled = [_RENAMED.get(texts[code], texts[code]) for code in range(len(texts))]
    return CodedTexts.of(cat, spelled, missing=UNCATEGORISED)


def is_any(category: CodedTexts, wanted: frozenset[str]) -> npt.NDArray[np.bool_]:
    """Say which rows have one of the ``wanted`` categories."""
    return category.matches(lambda text: text in wanted)


def kinds(
    name: CodedTexts,
    category: CodedTexts,
    rules: pd.DataFrame | None,
) -> tuple[pd.Categorical, npt.NDArray[np.bool_]]:
    """Classify GPU work: its kind per row (missing elsewhere), and whether a rule knew it."""
    work = is_any(category, GPU_WORK)
    copies = is_any(category, GPU_MEMORY)
    by_name = work & ~copies
    used = np.unique(name.codes[by_name])
    table = classify([name.texts[code] for code in used], rules=rules)
    kind_of = np.full(len(name.texts) + 1, -1, np.int8)
    known_of = np.ones(len(name.texts) + 1, np.bool_)
    kind_of[used] = table["kind"].map(KINDS.index).to_numpy(dtype=np.int8)
    known_of[used] = (table["rule"] != "default").to_numpy()
    codes = np.full(len(work), -1, np.int8)
    codes[by_name] = kind_of[name.codes[by_name]]
    codes[copies] = KINDS.index("memory")
    known = np.ones(len(work), np.bool_)
    known[by_name] = known_of[name.codes[by_name]]
    return pd.Categorical.from_codes(codes, categories=pd.Index(KINDS, dtype="str")), known


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
    found = np.full(len(on_stream), MISSING, np.int64)
    if stream is not None:
        found[on_stream] = stream[on_stream]
    lacking = on_stream & (found == MISSING)
    if lacking.any():
        of_text = np.full(len(thread.texts) + 1, MISSING, np.int64)
        for code in np.unique(thread.codes[lacking]):
            if code >= 0 and (match := _STREAM_THREAD.match(thread.texts[code])):
                of_text[code] = int(match[1])
        found[lacking] = of_text[thread.codes[lacking]]
    for sentinel in _NO_STREAM:
        found[found == sentinel] = MISSING
    return found


def launches(
    runtime: npt.NDArray[np.bool_],
    work: npt.NDArray[np.bool_],
    ids_of: Sequence[IntArray | None],
    times: tuple[IntArray, IntArray],
) -> tuple[IntArray, int]:
    """Return, for GPU work, the position of the call that launched it, else MISSING.

    Also returns how many calls have the id of an earlier one.
    Joined on the first of ``ids_of`` (correlation, external id) that a GPU row has. One launch
    may start many kernels (CUDA graphs). Where several calls have one id, as after a counter
    started anew, the last one before the GPU row counts.
    """
    found, repeated = np.full(len(work), MISSING, np.int64), 0
    for ids in ids_of:
        if ids is None:
            continue
        rows = np.flatnonzero(work & (ids != MISSING))
        if len(rows) == 0:
            continue
        calls = np.flatnonzero(runtime & (ids != MISSING))
        if len(calls):
            by_id = _outermost(ids, calls, times)
            found[rows] = _nearest_call(ids, by_id, rows)
            repeated = int((np.diff(ids[by_id]) == 0).sum())
        break
    return found, repeated


def _nearest_call(ids: IntArray, by_id: IntArray, rows: IntArray) -> IntArray:
    """Return for each GPU row the last call with its id before it, or MISSING."""
    known, number = np.unique(ids[by_id], return_inverse=True)
    at = np.minimum(np.searchsorted(known, ids[rows]), len(known) - 1)
    # Rows stand in order of time, so the place in the table says what came first.
    size = len(ids)
    last_before = np.searchsorted(number * size + by_id, at * size + rows) - 1
    nearest: IntArray = by_id[np.maximum(np.searchsorted(number, at), last_before)]
    nearest[known[at] != ids[rows]] = MISSING
    return nearest


def _outermost(ids: IntArray, calls: IntArray, times: tuple[IntArray, IntArray]) -> IntArray:
    """Sort calls by id and time; a driver call inside a runtime call of its id is left out."""
    start, dur = times
    by_id = calls[np.argsort(ids[calls], kind="stable")]
    before, after = by_id[:-1], by_id[1:]
    nested = (ids[before] == ids[after]) & (start[after] < start[before] + dur[before])
    kept: IntArray = by_id[np.concatenate([[True], ~nested])]
    return kept


def step_rows(
    name: CodedTexts, category: CodedTexts, findings: Findings
) -> tuple[IntArray, IntArray]:
    """Return the rows of CPU-side ProfilerStep annotations and their numbers."""
    number_of = np.full(len(name.texts) + 1, MISSING, np.int64)
    for code, text in enumerate(name.texts):
        if (number := step_number(text)) is not None:
            number_of[code] = number
        elif is_step_name(text):
            findings.add("left out", "step numbers of ten and more digits")
    numbers = number_of[name.codes]
    rows = np.flatnonzero((numbers != MISSING) & is_any(category, STEP_CATEGORIES))
    repeated = len(rows) - len(np.unique(numbers[rows]))
    findings.add("suspicious", "step numbers that occur more than once", repeated)
    return rows, numbers[rows]


def assign_steps(
    start: IntArray,
    launch: IntArray,
    windows: tuple[IntArray, IntArray, IntArray],
) -> IntArray:
    """Return the step of every row: by time, and for launched GPU work that of its launch.

    Parameters
    ----------
    start, launch
        Start of every row, and the position of its launch or MISSING.
    windows
        Number, start and end of the steps, in order of start.
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
