"""Runs of a job by its goodput entries, and what each did at every instant."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from workbench.load._files.findings import Findings


class Entry(NamedTuple):
    """One recorded time."""

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
    """The entries of one run, in order of time."""

    entries: list[Entry] = field(default_factory=list)
    first_step: int | None = None
    last_step: int | None = None
    is_ended: bool = False

    def add(self, entry: Entry) -> None:
        """Append an entry that is not before the others."""
        self.entries.append(entry)
        if entry.kind == "step":
            self.first_step = entry.step if self.first_step is None else self.first_step
            self.last_step = entry.step
        self.is_ended = self.is_ended or (entry.kind == "job" and not entry.begins)

    def is_over_before(self, entry: Entry) -> bool:
        """Tell whether an entry belongs to the next run."""
        if not self.entries:
            return False
        if self.is_ended:
            return entry.begins
        if entry.kind == "step" and self.last_step is not None:
            return entry.step is not None and entry.step <= self.last_step
        is_new_start = entry.kind == "starting" and self.last_step is not None
        return entry.begins and (entry.kind == "job" or is_new_start)

    @property
    def start_ns(self) -> int:
        """Time of the first entry."""
        return self.entries[0].time_ns

    @property
    def end_ns(self) -> int:
        """Time of the last entry: nobody recorded how long what it began went on."""
        return self.entries[-1].time_ns

    @property
    def line(self) -> int:
        """Line of the first entry."""
        return self.entries[0].line


def runs_of(entries: Iterable[Entry]) -> list[Run]:
    """Split the entries of a job, in order of time, into its runs."""
    runs = [Run()]
    for entry in entries:
        if runs[-1].is_over_before(entry):
            runs.append(Run())
        runs[-1].add(entry)
    return runs if runs[0].entries else []


def layers(run: Run, findings: Findings) -> Iterator[Span]:
    """Give what a run did at every instant: of spans that cover it the one that began last."""
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
            what = "spans that began again before they ended (taken to end there)"
            findings.add("suspicious", what, 1, where)
        elif not entry.begins and before is None:
            findings.add("left out", "ends of spans that did not begin", 1, where)
    for entry in begun.values():
        spans.append(Span(entry.time_ns, run.end_ns, entry.kind, entry.line))
        what = "spans that do not end (taken to last as long as the run)"
        findings.add("noted", what, 1, f"line {entry.line:,}")
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
