"""Progress of jobs as ml-goodput-measurement records it: entries of Cloud Logging."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Record
from workbench.load._files.tables import json_documents, records
from workbench.load._files.time import SECOND, Given, LogPart, epoch_ns, iso_ns, log_part

NAME = "ml-goodput-measurement"

_STEP, _STEP_COUNT = "step_start_time", "step_count"
_CUSTOM = "custom_badput_event"
# Field of an entry: what begins or ends with it.
_FIELDS = {
    "job_start_time": ("job", True),
    "job_end_time": ("job", False),
    "tpu_init_start_time": ("starting", True),
    "tpu_init_end_time": ("starting", False),
    "training_prep_start_time": ("loading", True),
    "training_prep_end_time": ("loading", False),
    "data_loading_start_time": ("data loading", True),
    "data_loading_end_time": ("data loading", False),
    f"{_CUSTOM}_start_time": ("custom", True),
    f"{_CUSTOM}_end_time": ("custom", False),
    _STEP: ("step", True),
}
_MARKS = [f'"{name}"'.encode() for name in _FIELDS]
_LONGEST_NAME = 60
_MOST_STEPS = 1 << 53
_LATE_S = 900
_SHIFTED = (
    "recorded times differ by a quarter of an hour or more from those of Cloud Logging; "
    "old versions shift them by the zone of the host"
)


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - names say nothing
    is_json = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    return is_json and b'"job_name"' in head and any(mark in head for mark in _MARKS)


def read(source: Source, settings: Given) -> LogPart:
    """Read entries: one per line, a list, or a Cloud Logging export with ``jsonPayload``.

    A run of a job begins with ``job_start_time``, with the initialisation of the TPUs after
    steps, or with a step whose number was seen before. A run that another one follows without
    ``job_end_time`` between them was disrupted: one failure, from the last sign of life to the
    first of the next run.

    Spans may be nested, so every instant belongs to the span that began last: rows of one
    run never overlap, and their lengths add up to that of the run. ``running`` is the time
    from the first step on that nothing else covers; the last step of a disrupted run ends with
    its last entry, as nobody recorded more, and what follows is ``down``.

    References
    ----------
    AI-Hypercomputer/ml-goodput-measurement: src/goodput.py (``GoodputRecorder``).
    """
    del settings  # entries name everything themselves
    findings = Findings(source.label)
    entries: dict[str | None, list[Entry]] = {}
    for line, document in json_documents(source, findings):
        for number, record in records(line, document, findings):
            for job, entry in _entries(record, number, findings):
                entries.setdefault(job, []).append(entry)
    failures: list[dict[str, Any]] = []
    timeline: list[dict[str, Any]] = []
    for job, recorded in entries.items():
        runs = runs_of(sorted(_once(recorded, findings), key=attrgetter("time_ns")))
        failures += _failures(job, runs)
        timeline += _timeline(job, runs, findings)
    return log_part(findings, failures, timeline)


def _entries(record: Record, line: int, findings: Findings) -> Iterator[tuple[str | None, Entry]]:
    """Yield the times of one record; of Cloud Logging, those of its payload."""
    payload = record.get("jsonPayload", record.get("json_payload", record))
    names = [name for name in _FIELDS if isinstance(payload, dict) and name in payload]
    if not names:
        remark = "records without a time of a job or step"
        findings.add("skipped by design", remark, 1, f"line {line:,}")
        return
    job = payload.get("job_name")
    for name in names:
        kind, begins = _FIELDS[name]
        time_ns = epoch_ns(payload[name])
        step = _step(payload.get(_STEP_COUNT)) if kind == "step" else None
        if time_ns is None or (kind == "step" and step is None):
            is_timed = time_ns is not None
            remark = "steps without number" if is_timed else "times that are not seconds since 1970"
            findings.add("dropped", remark, 1, f"line {line:,}")
            continue
        if kind == "custom":
            kind = str(payload.get(f"{_CUSTOM}_type") or "custom")[:_LONGEST_NAME]
        # The time at which Cloud Logging took the entry.
        written = iso_ns(record.get("timestamp"))
        if written is not None and abs(written - time_ns) >= _LATE_S * SECOND:
            findings.add("suspicious", _SHIFTED, 1, f"line {line:,}")
        yield (job if isinstance(job, str) else None), Entry(time_ns, kind, begins, step, line)


def _step(value: object) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value) if abs(value) < _MOST_STEPS else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _MOST_STEPS else None  # type: ignore[operator, return-value]


def _once(entries: list[Entry], findings: Findings) -> list[Entry]:
    # Reversed twice, so that of equal entries the first one stays.
    kept = list({entry[:4]: entry for entry in reversed(entries)}.values())[::-1]
    remark = "entries that are there more than once"
    findings.add("skipped by design", remark, len(entries) - len(kept))
    return kept


def _failures(job: str | None, runs: list[Run]) -> Iterator[dict[str, Any]]:
    last_step: int | None = None
    for before, after in pairwise(runs):
        last_step = before.last_step if before.last_step is not None else last_step
        # Steps that are done again show a disruption, whatever the log says of the end.
        goes_back = None not in (last_step, after.first_step) and after.first_step <= last_step  # type: ignore[operator]
        # A job that ended in order and was started again later was not disrupted.
        if before.is_ended and not goes_back:
            continue
        if goes_back:
            cause = f"went back from step {last_step} to {after.first_step}"
        elif last_step is None:
            cause = "restarted before the first step"
        else:
            cause = f"restarted after step {last_step}"
        row = {"start_ns": before.end_ns, "end_ns": after.start_ns, "job": job, "line": after.line}
        row |= {"kind": "goodput", "text": cause}
        if before.is_ended:
            cause = f"ended in order, {cause}"
            yield row | {"code": "end", "cause": cause, "category": "planned", "severity": "info"}
        else:
            row |= {"code": "disruption", "cause": cause}
            yield row | {"category": "unknown", "severity": "fatal"}


def _timeline(job: str | None, runs: list[Run], findings: Findings) -> Iterable[dict[str, Any]]:
    for number, run in enumerate(runs, start=1):
        usual = {"job": job, "attempt": number}
        for span in layers(run, findings):
            yield usual | {
                "start_ns": span.start_ns, "end_ns": span.end_ns, "state": span.state,
                "first_step": span.first_step, "last_step": span.last_step, "line": span.line,
            }  # fmt: skip
        if number < len(runs) and not run.is_ended and runs[number].start_ns > run.end_ns:
            times = {"start_ns": run.end_ns, "end_ns": runs[number].start_ns}
            yield usual | times | {"state": "down", "line": runs[number].line}


# Runs of a job by its goodput entries, and what each did at every instant.


class Entry(NamedTuple):
    time_ns: int
    kind: str  # job, step, or the state whose span begins or ends
    begins: bool
    step: int | None
    line: int


class Span(NamedTuple):
    """A time in which a run did one thing."""

    start_ns: int
    end_ns: int
    state: str
    line: int
    first_step: int | None = None
    last_step: int | None = None


@dataclass
class Run:
    entries: list[Entry] = field(default_factory=list)
    first_step: int | None = None
    last_step: int | None = None
    is_ended: bool = False

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.kind == "step":
            self.first_step = entry.step if self.first_step is None else self.first_step
            self.last_step = entry.step
        self.is_ended = self.is_ended or (entry.kind == "job" and not entry.begins)

    def is_over_before(self, entry: Entry) -> bool:
        if not self.entries:
            return False
        if self.is_ended:
            return entry.begins
        if entry.kind == "step" and self.last_step is not None:
            return entry.step is not None and entry.step <= self.last_step
        # After steps were done, devices are set up only by a new process.
        is_new_start = entry.kind == "starting" and self.last_step is not None
        return entry.begins and (entry.kind == "job" or is_new_start)

    @property
    def start_ns(self) -> int:
        return self.entries[0].time_ns

    @property
    def end_ns(self) -> int:
        """Time of the last entry: nobody recorded how long what it began went on."""
        return self.entries[-1].time_ns

    @property
    def line(self) -> int:
        return self.entries[0].line


def runs_of(entries: Iterable[Entry]) -> list[Run]:
    runs = [Run()]
    for entry in entries:
        if runs[-1].is_over_before(entry):
            runs.append(Run())
        runs[-1].add(entry)
    return runs if runs[0].entries else []


def layers(run: Run, findings: Findings) -> Iterator[Span]:
    """Yield the state of a run at every instant: of the spans that cover it, the last to begin."""
    steps = [entry for entry in run.entries if entry.kind == "step"]
    times = [entry.time_ns for entry in steps]
    spans = _spans(run, findings)
    if steps:
        begin = steps[0]
        spans.append(Span(begin.time_ns, run.end_ns, "running", begin.line))
    until = steps[0].time_ns if steps else run.end_ns
    spans.append(Span(run.start_ns, until, "starting", run.line))
    for span in _innermost(spans):
        if span.state != "running":
            yield span
            continue
        first = bisect_right(times, span.start_ns) - 1
        last = max(first, bisect_right(times, span.end_ns - 1) - 1)
        yield span._replace(first_step=steps[first].step, last_step=steps[last].step)


def _spans(run: Run, findings: Findings) -> list[Span]:
    """Pair what begins with what ends; what does not end lasts as long as the run."""
    spans: list[Span] = []
    begun: dict[str, Entry] = {}
    for entry in run.entries:
        if entry.kind in ("job", "step"):
            continue
        before = begun.pop(entry.kind, None)
        if before is not None:
            spans.append(Span(before.time_ns, entry.time_ns, entry.kind, before.line))
        if entry.begins:
            begun[entry.kind] = entry
        where = f"line {entry.line:,}"
        if entry.begins and before is not None:
            remark = "spans that began again before they ended (taken to end there)"
            findings.add("suspicious", remark, 1, where)
        elif not entry.begins and before is None:
            findings.add("dropped", "ends of spans that did not begin", 1, where)
    for entry in begun.values():
        spans.append(Span(entry.time_ns, run.end_ns, entry.kind, entry.line))
        remark = "spans that do not end (taken to last as long as the run)"
        findings.add("noted", remark, 1, f"line {entry.line:,}")
    return spans


def _innermost(spans: list[Span]) -> Iterator[Span]:
    """Cut spans into pieces that do not overlap; the span that began last is on top."""
    # Of spans that begin together the shorter one is the inner one.
    ordered = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))
    piece: Span | None = None
    for cut in _cuts(ordered):
        if piece and piece.end_ns == cut.start_ns and piece.state == cut.state:
            piece = piece._replace(end_ns=cut.end_ns)
            continue
        if piece:
            yield piece
        piece = cut
    if piece:
        yield piece


def _cuts(ordered: list[Span]) -> Iterator[Span]:
    """Sweep over time with a stack of the spans that are open."""
    stack: list[Span] = []
    at = 0
    for span in [*ordered, None]:
        until = span.start_ns if span else None
        while stack and (until is None or at < until):
            top = stack[-1]
            end = top.end_ns if until is None else min(top.end_ns, until)
            if end > at:
                yield top._replace(start_ns=at, end_ns=end)
                at = end
            if top.end_ns <= at:
                stack.pop()
        if span:
            at = max(at, span.start_ns)
            stack.append(span)
