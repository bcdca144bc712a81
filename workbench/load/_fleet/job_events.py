"""The log of a training script: JSON events, one per line, steps among them."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.load._failures.formats import goodput_events
from workbench.load._failures.formats.goodput_events import Event, events_of
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.text import text_lines
from workbench.load._files.time import Given
from workbench.load._fleet.job_part import (
    JobGiven,
    JobPart,
    duration_ns_of,
    first_of,
    span_rows,
    step_rows,
)
from workbench.tables import SAYS_SYNTHETIC

NAME = "goodput events"
_PAUSES = ("checkpoint", "evaluation")


def looks_like(head: bytes) -> bool:
    return goodput_events.looks_like(head, "")


def read_job(source: Source, options: JobGiven) -> JobPart:
    """Read steps, and the spans between events.

    A run of the job begins with ``start`` or ``nodes_ready`` and ends with ``interrupt`` or
    ``end``; a restart begins with ``interrupt`` and ends with the next step, and belongs to
    the run that it brings up.
    """
    findings = Findings(source.label)
    events = events_of(text_lines(source, findings), Given(tz=options.tz), findings)
    synthetic = sum(1 for event in events if event.rest.get("synthetic") is True)
    findings.add("noted", SAYS_SYNTHETIC, synthetic)
    job = _Job(findings, options)
    for event in events:
        job.take(event)
    # Steps alone tell of another run by their numbers only.
    says_attempt = job.is_numbered or bool(job.spans)
    rows = job.steps if says_attempt else [{**row, "attempt": None} for row in job.steps]
    steps = step_rows(rows, findings)
    return JobPart(steps, span_rows(job.spans, source.label), findings, says_attempt)


@dataclass
class _Job:
    findings: Findings
    given: JobGiven
    attempt: int = 1
    is_numbered: bool = False
    steps: list[Row] = field(default_factory=list)
    spans: list[Row] = field(default_factory=list)
    open: dict[str, Row] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        stated = event.rest.get("attempt")
        if isinstance(stated, int) and not isinstance(stated, bool) and 1 <= stated < 1 << 31:
            self.attempt, self.is_numbered = stated, True
        elif event.name == "nodes_ready":
            # Where the log numbers no runs, one that begins after another has ended is the next.
            self.attempt += "run" not in self.open and bool(self.spans)
        if event.name == "step":
            self._step(event)
        elif event.name in ("start", "nodes_ready", "running"):
            self._up(event)
        elif event.name in ("interrupt", "end"):
            self._down(event)
        elif (span := event.name.removesuffix("_start")) in _PAUSES:
            self._begin(span, event)
        elif (span := event.name.removesuffix("_end")) in _PAUSES:
            self._finish(span, event.at_ns, event)

    def _step(self, event: Event) -> None:
        duration = duration_ns_of(event.rest)
        tokens = first_of(event.rest, "tokens")
        row = {"end_ns": event.at_ns, "dur_ns": duration, "line": event.line}
        row |= {"attempt": self.attempt, "step": first_of(event.rest, "step")}
        row["token_count"] = self.given.tokens_per_step if tokens is None else tokens
        self.steps.append(row | {"sample_count": first_of(event.rest, "samples")})
        # Both last until the first step begins, of which the log says only when it ended.
        for kind in ("initialisation", "restart"):
            if kind in self.open:
                start = self.open[kind]["start_ns"]
                self._finish(kind, max(start, event.at_ns - (duration or 0)))

    def _up(self, event: Event) -> None:
        if "run" not in self.open:
            self._begin("run", event)
        if event.name == "start":
            self._begin("initialisation", event)
        elif event.name == "running":
            self._finish("initialisation", event.at_ns)

    def _down(self, event: Event) -> None:
        # A copy, because finishing a span takes it out.
        for kind in list(self.open):
            self._finish(kind, event.at_ns)
        if event.name == "interrupt":
            self._begin("restart", event, attempt=self.attempt + 1)

    def _begin(self, kind: str, event: Event, attempt: int | None = None) -> None:
        problem = f"{kind} begun twice without an end between; the first one counts"
        if kind in self.open:
            self.findings.add("suspicious", problem, 1, f"line {event.line:,}")
            return
        span = {"kind": kind, "attempt": attempt or self.attempt, "line": event.line}
        self.open[kind] = {**span, "start_ns": event.at_ns, "end_ns": None}
        self.spans.append(self.open[kind])

    def _finish(self, kind: str, at_ns: int, event: Event | None = None) -> None:
        span = self.open.pop(kind, None)
        if span is not None:
            span["end_ns"] = at_ns
        elif event is not None:
            problem = f"{event.name} without a start before it"
            self.findings.add("dropped", problem, 1, f"line {event.line:,}")
