"""The log of an MLPerf Training run: when it started, trained, evaluated and stopped."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.json_events import MARK, Entry, entry_of, number_of
from workbench.load._files.text import console_lines
from workbench.load._fleet.job_part import JobGiven, JobPart, span_rows, step_rows

NAME = "MLPerf result"
_HEAD = re.compile(rb":::(?:MLLOG|SYSJSON|DLPAL)")
_KINDS = {"run": "run", "init": "initialisation", "block": "training", "eval": "evaluation"}
_STEP_TIME = re.compile(r"train_step_tim(?:e|ing)(?: in s|_s)?")
_NOT_OF_THE_JOB = ("power_measurement",)
_SECOND = 1_000_000_000


def looks_like(head: bytes) -> bool:
    return bool(_HEAD.search(head))


def read_job(source: Source, options: JobGiven) -> JobPart:
    """Read spans and steps; of what every rank writes, the first start and the last stop count.

    A step ends at the stamp of its line and lasted as long as that line says. Numbers of steps
    that count tokens or samples are turned into numbers of steps, from 0.
    """
    findings = Findings(source.label)
    log = _Log(findings)
    for line, text in console_lines(source, findings):
        if MARK in text and (entry := entry_of(line, text, findings)):
            log.take(entry)
    spans = span_rows(log.spans, source.label)
    steps = step_rows(log.whole_steps(options), findings)
    runs = int((spans["kind"].eq("run") & spans["end_ns"].notna()).sum())
    return JobPart(steps, spans, findings, says_attempt=log.attempt > 1, benchmark_runs=runs)


@dataclass
class _Log:
    findings: Findings
    attempt: int = 1
    spans: list[dict[str, Any]] = field(default_factory=list)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    progress_ns: int | None = None

    def take(self, entry: Entry) -> None:
        base, _, edge = entry.key.rpartition("_")
        if entry.key in ("global_batch_size", "max_sequence_length"):
            self._size(entry)
        elif entry.key == "tracked_stats" and isinstance(entry.value, dict):
            self._step(entry)
        elif base in _NOT_OF_THE_JOB or not entry.event_type.startswith("INTERVAL"):
            return
        elif edge == "start":
            self._start(base, entry)
        elif edge in ("stop", "end"):
            self._stop(base, entry)

    def _size(self, entry: Entry) -> None:
        value = number_of(entry.value)
        if value is None or value < 1 or value % 1:
            problem = f"{entry.key} that is not a whole number"
            self.findings.add("dropped", problem, 1, f"line {entry.line:,}")
            return
        changed = self.sizes.get(entry.key, value) != value
        problem = f"{entry.key} with several values; the last one counts"
        self.findings.add("suspicious", problem, int(changed), f"line {entry.line:,}")
        self.sizes[entry.key] = int(value)

    def _start(self, base: str, entry: Entry) -> None:
        # Every rank writes the start of a run; only one that comes after progress begins another.
        if base in ("init", "run") and self.progress_ns and entry.time_ns > self.progress_ns:
            self.attempt, self.last, self.progress_ns = self.attempt + 1, {}, None
            problem = "starts of another run in one file"
            self.findings.add("noted", problem, 1, f"line {entry.line:,}")
        open_span = self.last.get(base)
        if open_span is not None and open_span["end_ns"] is None:
            open_span["start_ns"] = min(open_span["start_ns"], entry.time_ns)
            self._tell_of_ranks(entry)
            return
        span = {"kind": _KINDS.get(base, base), "attempt": self.attempt, "line": entry.line}
        self.last[base] = {**span, "start_ns": entry.time_ns, "end_ns": None}
        self.spans.append(self.last[base])

    def _stop(self, base: str, entry: Entry) -> None:
        span = self.last.get(base)
        if span is None or entry.time_ns < span["start_ns"]:
            problem = f"{entry.key} without a start before it"
            self.findings.add("dropped", problem, 1, f"line {entry.line:,}")
            return
        if span["end_ns"] is not None:
            self._tell_of_ranks(entry)
        span["end_ns"] = max(entry.time_ns, span["end_ns"] or 0)
        if base == "run":
            self.progress_ns = span["end_ns"]

    def _tell_of_ranks(self, entry: Entry) -> None:
        remark = "starts and stops that several ranks wrote; first start and last stop count"
        self.findings.add("noted", remark, 1, f"line {entry.line:,}")

    def _step(self, entry: Entry) -> None:
        names = [name for name in entry.value if _STEP_TIME.fullmatch(name)]
        if not names:
            return
        where = f"line {entry.line:,}"
        duration = number_of(entry.value[names[0]])
        if duration is None or not 0 <= duration < 1e6:
            problem = "steps whose duration is not a number from 0 s"
            self.findings.add("dropped", problem, 1, where)
            return
        count = number_of(entry.metadata.get("step", entry.metadata.get("samples_count")))
        count = None if count is None or count < 0 or count >= 1 << 62 else int(count)
        row = {"end_ns": entry.time_ns, "dur_ns": round(duration * _SECOND), "line": entry.line}
        self.steps.append({**row, "attempt": self.attempt, "count": count})
        self.progress_ns = max(self.progress_ns or 0, entry.time_ns)

    def whole_steps(self, options: JobGiven) -> list[dict[str, Any]]:
        """Return each step once, with its number, tokens and samples."""
        once: dict[Any, dict[str, Any]] = {}
        for row in self.steps:
            # Without a count nothing says that two lines are of one step.
            key = (row["attempt"], row["line"] if row["count"] is None else row["count"])
            remark = "steps that several ranks wrote; the first line counts"
            self.findings.add("noted", remark, int(key in once), f"line {row['line']:,}")
            once.setdefault(key, row)
        samples = self.sizes.get("global_batch_size")
        length = self.sizes.get("max_sequence_length")
        tokens = options.tokens_per_step
        if tokens is None and samples and length:
            tokens = samples * length
        rows = list(once.values())
        unit = self._unit([row["count"] for row in rows], tokens, samples)
        numbers = [_number(row["count"], unit) for row in rows]
        return [
            {**row, "step": number, "token_count": tokens, "sample_count": samples}
            for row, number in zip(rows, numbers, strict=True)
        ]

    def _unit(self, counts: list[int | None], tokens: int | None, samples: int | None) -> int:
        """Return the unit in which the log counts: tokens, samples, or (0) steps."""
        numbers = [count for count in counts if count is not None]
        if not numbers:
            return 0
        pace = Counter(int(step) for step in pd.Series(numbers).diff().dropna()).most_common(1)
        usual = pace[0][0] if pace else numbers[0]
        for unit, noun in ((tokens, "tokens"), (samples, "samples")):
            if unit and unit > 1 and usual >= unit and usual % unit == 0:
                remark = f"numbers of steps that count {noun}; divided by {unit:,}, from 0"
                self.findings.add("noted", remark, len(numbers))
                return unit
        return 0


def _number(count: int | None, unit: int) -> int | None:
    if count is None or not unit:
        return count
    # Counts stand at the end of a step, and steps are numbered from 0.
    return max(count // unit - 1, 0)
