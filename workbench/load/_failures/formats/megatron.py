"""Logs of Megatron-LM and its relatives: one line per some iterations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.signatures import MEGATRON_LINES
from workbench.load._files.text import text_lines
from workbench.load._files.time import SECOND, Given, LogPart, log_part, set_forward, utc_ns

NAME = "Megatron log"
_TEXT_LENGTH = 200
_TO_COME = "iterations to come after the last line: the job runs, it ended early or its log was cut"
_WORDS = ("iteration", "world size", "seq_length")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ITERATION = re.compile(r"\biteration\s+(\d{1,15})\s*/\s*(\d{1,15})\s*\|")
_ELAPSED = re.compile(r"elapsed time per iteration \((s|ms)\):\s*(\d{1,12}(?:\.\d+)?)")
_SKIPPED = re.compile(r"number of skipped iterations:\s*(\d{1,9})")
_NAN = re.compile(r"number of nan iterations:\s*(\d{1,9})")
_LOADED = re.compile(r"successfully loaded checkpoint from .* at iteration\s+(\d{1,15})")
_BATCH = re.compile(r"global batch size:\s*(\d{1,12})")
_SEQUENCE = re.compile(r"\bseq_length \.+ (\d{1,9})\b")
_WORLD = re.compile(r"using world size:?\s*(\d{1,9})")
_STAMP = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d+))?\s?(Z|[+-]\d\d:?\d\d)?"
)


@dataclass
class Line:
    number: int
    text: str
    step: int
    each_ns: int | None
    stamp: str
    resumed_from: int | None
    sample_count: int | None = None
    at_ns: int | None = None


@dataclass
class _Run:
    """Lines whose iterations rise: training without a rollback."""

    lines: list[Line]
    interval: int = 1
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def done_before(self) -> int:
        first = self.lines[0]
        if first.resumed_from is not None:
            return first.resumed_from
        # A first line out of the rhythm of the others, such as that of iteration 1, stands alone.
        return max(first.step - (1 if first.step % self.interval else self.interval), 0)


@dataclass
class Log:
    lines: list[Line] = field(default_factory=list)
    iteration_count: int = 0
    gpu_count: int | None = None
    sequence_tokens: int | None = None


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    return any(mark in head for mark in MEGATRON_LINES)


def read(source: Source, settings: Given) -> LogPart:
    """Read the runs between rollbacks, and a failure for each rollback.

    Training that goes back to an earlier iteration was restarted from a checkpoint: the
    iterations since then are lost. A restart that loses less than the interval between two
    lines cannot be seen, unless the log names the checkpoint.

    Without stamps, durations are those of the iterations alone, on a clock of its own, and
    rollbacks have no time.
    """
    findings = Findings(source.label)
    log, is_stamped = log_of(source, settings, findings)
    runs = _runs(log.lines, findings)
    _time(runs, findings, is_stamped=is_stamped)
    clock = "epoch" if is_stamped else "own"
    spans = [_span(run, number, clock) for number, run in enumerate(runs, 1)]
    spans = [span | {"gpu_count": log.gpu_count} for span in spans]
    pairs = list(pairwise(runs))
    if is_stamped:
        spans += [_gap(*pair, number) for number, pair in enumerate(pairs, 2)]
        spans.sort(key=lambda span: (span["start_ns"], span["line"]))
    assumed = f"tz={settings.tz}" if is_stamped and not _has_zone(log.lines[0].stamp) else ""
    losses = [_rollback(*pair, is_stamped=is_stamped) | {"assumed": assumed} for pair in pairs]
    return log_part(findings, losses, spans)


def log_of(source: Source, settings: Given, findings: Findings) -> tuple[Log, bool]:
    """Return the lines on the progress of training, and whether all of them have a time."""
    log = _log(text_lines(source, findings), findings)
    findings.add("read", "lines on iterations", len(log.lines))
    if log.lines and (to_come := log.iteration_count - log.lines[-1].step) > 0:
        where = f"line {log.lines[-1].number:,}: {log.lines[-1].step:,} of {log.iteration_count:,}"
        findings.add("noted", _TO_COME, to_come, where)
    return log, _place(log.lines, settings, findings)


def _log(lines: Iterable[tuple[int, str]], findings: Findings) -> Log:
    log = Log()
    last, loaded = "", None
    for number, raw in lines:
        if not any(word in raw for word in _WORDS):
            continue
        text = _COLOUR.sub("", raw)
        if match := _ITERATION.search(text):
            _count_odd(text, number, findings)
            # Compared without what stands in front: each copy has its own stamp.
            if text[match.start() :] == last:
                findings.add("skipped by design", "lines written twice", 1, f"line {number:,}")
                continue
            last = text[match.start() :]
            log.lines.append(_line(number, text, match, loaded))
            loaded, log.iteration_count = None, int(match[2])
        elif match := _LOADED.search(text):
            loaded = int(match[1])
        elif match := _WORLD.search(text):
            log.gpu_count = int(match[1])
        elif match := _SEQUENCE.search(text):
            log.sequence_tokens = int(match[1])
    return log


def _line(number: int, text: str, match: re.Match[str], loaded: int | None) -> Line:
    elapsed = _ELAPSED.search(text, match.end())
    unit = 1 if elapsed and elapsed[1] == "s" else 1000
    iteration_ns = round(float(elapsed[2]) * SECOND / unit) if elapsed else None
    stamps = list(_STAMP.finditer(text, 0, match.start()))
    stamp = ""
    if stamps:
        year, month, day, clock, fraction, zone = stamps[-1].groups()
        stamp = f"{year}-{month}-{day} {clock}{f'.{fraction}' if fraction else ''}{zone or ''}"
    shown = " ".join(text.split())[:_TEXT_LENGTH]
    batch = _BATCH.search(text, match.end())
    samples = int(batch[1]) if batch else None
    return Line(number, shown, int(match[1]), iteration_ns, stamp, loaded, samples)


def _count_odd(text: str, number: int, findings: Findings) -> None:
    for pattern, problem in ((_SKIPPED, "iterations skipped"), (_NAN, "iterations with NaN")):
        if match := pattern.search(text):
            findings.add("noted", problem, int(match[1]), f"line {number:,}")


def _has_zone(stamp: str) -> bool:
    return re.search(r"(Z|[+-]\d\d:?\d\d)$", stamp[10:]) is not None


def _place(lines: list[Line], settings: Given, findings: Findings) -> bool:
    if not lines or not any(line.stamp for line in lines):
        return False
    stamps = pd.Series([line.stamp for line in lines])
    numbers = pd.Series([line.number for line in lines])
    times = utc_ns(stamps, numbers, settings.tz, findings).ns
    # Stamps of some lines only would mix two clocks in one run.
    missing = int(times.isna().sum())
    if missing:
        remark = "lines without a usable stamp, so that no stamp is used"
        findings.add("suspicious", remark, missing)
        return False
    steps = pd.Series([line.step for line in lines])
    each = pd.Series([line.each_ns or 0 for line in lines])
    set_back = (times.diff() < 0) & (steps.diff() > 0)
    times += set_forward(
        times, set_back, each * steps.diff().fillna(1).astype("int64"), numbers, findings
    )
    back = (times.diff() < -SECOND).fillna(value=False)
    where = f"line {numbers[back].iloc[0]:,}" if back.any() else None
    remark = "stamps that jump back: several logs in one? the step back is counted as a rollback"
    findings.add("suspicious", remark, int(back.sum()), where)
    for line, at in zip(lines, times.tolist(), strict=True):
        line.at_ns = int(at)
    return True


def _runs(lines: list[Line], findings: Findings) -> list[_Run]:
    runs: list[_Run] = []
    for line in lines:
        last = runs[-1].lines[-1] if runs else None
        went_back = last is not None and (
            line.step <= last.step
            or (line.resumed_from is not None and line.resumed_from < last.step)
        )
        if last is None or went_back:
            runs.append(_Run([]))
        runs[-1].lines.append(line)
    steps = [_steps(run) for run in runs]
    # median_low is an interval that occurs; the mean of two would fit no line.
    usual = median_low([step for own_steps in steps for step in own_steps] or [1])
    for run, own_steps in zip(runs, steps, strict=True):
        run.interval = median_low(own_steps) if own_steps else usual
        holes = [step - run.interval for step in own_steps if step > run.interval]
        remark = "iterations without a line; their time is missing"
        findings.add("suspicious", remark, sum(holes), f"after line {run.lines[0].number:,}")
        unknown = run.lines[0].step - run.done_before > 1 and run.lines[0].resumed_from is None
        remark = f"the first line of a run taken as {run.interval:,} iterations, like the others"
        findings.add("assumed", remark, int(unknown), f"line {run.lines[0].number:,}")
    return runs


def _steps(run: _Run) -> list[int]:
    return [after.step - before.step for before, after in pairwise(run.lines)]


def _time(runs: list[_Run], findings: Findings, *, is_stamped: bool) -> None:
    """Set start and end of each run: by stamps, or by adding up the iterations."""
    now = 0
    for run in runs:
        untimed = [line for line in run.lines if line.each_ns is None]
        remark = "lines without the time of an iteration"
        where = f"line {untimed[0].number:,}" if untimed else ""
        findings.add("dropped", remark, len(untimed), where)
        counts = [run.lines[0].step - run.done_before, *_steps(run)]
        # A hole in the log is not training time: at most one interval counts per line.
        limits = [counts[0], *(min(count, run.interval) for count in counts[1:])]
        spent = [(line.each_ns or 0) * n for line, n in zip(run.lines, limits, strict=True)]
        first, last = run.lines[0].at_ns, run.lines[-1].at_ns
        if is_stamped and first is not None and last is not None:
            run.start_ns, run.end_ns = first - spent[0], max(last, first - spent[0])
        else:
            run.start_ns, now = now, now + sum(spent)
            run.end_ns = now


def _span(run: _Run, number: int, clock: str) -> Row:
    row: Row = {"start_ns": run.start_ns, "end_ns": run.end_ns, "clock": clock}
    row |= {"attempt": number, "state": "running", "line": run.lines[0].number}
    return row | {"first_step": run.done_before + 1, "last_step": run.lines[-1].step}


def _gap(before: _Run, after: _Run, number: int) -> Row:
    start, end = before.end_ns or 0, after.start_ns or 0
    row: Row = {"start_ns": min(start, end), "end_ns": end, "clock": "epoch"}
    return row | {"attempt": number, "state": "down", "line": after.lines[0].number}


def _rollback(before: _Run, after: _Run, *, is_stamped: bool) -> Row:
    last, first = before.lines[-1], after.lines[0]
    lost = last.step - after.done_before
    row: Row = {"clock": "none"}
    if is_stamped:
        row = {"clock": "epoch", "start_ns": last.at_ns, "end_ns": first.at_ns}
    row |= {"kind": "megatron", "severity": "fatal", "line": first.number}
    row["cause"] = f"rolled back from iteration {last.step:,} to {after.done_before:,}"
    return row | {"text": f"{lost:,} iterations lost; {first.text}"[:_TEXT_LENGTH]}
