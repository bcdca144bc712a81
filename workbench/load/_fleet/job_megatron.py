"""The log of Megatron-LM or a relative: lines on iterations, and where they fall back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._failures.formats import megatron
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.time import Given
from workbench.load._fleet.job_part import JobGiven, JobPart, span_rows, step_rows

NAME = megatron.NAME


def looks_like(head: bytes) -> bool:
    """Recognise a line on an iteration, or the list of arguments before the first one."""
    return megatron.looks_like(head, "")


def read_job(source: Source, given: JobGiven) -> JobPart:
    """Read a step per line, and a restart where training falls back to an earlier iteration.

    A line on several iterations gives one step, of their mean duration, that ends at its stamp;
    the others are not made up. When training failed the log does not say: a restart begins at
    the end of the last step before it.

    Raises
    ------
    LoadError
        If not all lines have a time, or it needs a zone and none is given.
    """
    findings = Findings(source.label)
    log, is_stamped = megatron.log_of(source, Given(tz=given.tz), findings)
    if log.lines and not is_stamped:
        msg = (
            f"{source.label}, line {log.lines[0].number:,}: not every line on an iteration has a "
            "time; log with stamps, as Megatron-LM does since core 0.7"
        )
        raise LoadError(msg)
    steps = step_rows([_row(line, log, given) for line in log.lines], findings)
    longer = sum(after.step - before.step > 1 for before, after in pairwise(log.lines))
    what = "lines on several iterations, whose mean duration is that of the last one"
    findings.add("noted", what, longer)
    return JobPart(steps, span_rows(_restarts(steps), source.label), findings, says_attempt=False)


def _row(line: megatron.Line, log: megatron.Log, given: JobGiven) -> dict[str, Any]:
    tokens = given.tokens_per_step
    if tokens is None and line.sample_count and log.sequence_tokens:
        tokens = line.sample_count * log.sequence_tokens
    row = {"step": line.step, "end_ns": line.at_ns, "dur_ns": line.each_ns, "line": line.number}
    return {**row, "token_count": tokens, "sample_count": line.sample_count}


def _restarts(steps: pd.DataFrame) -> list[dict[str, Any]]:
    runs = steps.groupby("attempt").agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), line=("line", "min")
    )
    return [
        {
            "kind": "restart",
            "attempt": int(attempt),
            "start_ns": min(end_ns, start_ns),
            "end_ns": start_ns,
            "line": line,
        }
        for attempt, end_ns, start_ns, line in zip(
            runs.index[1:], runs["end_ns"][:-1], runs["start_ns"][1:], runs["line"][1:], strict=True
        )
    ]
