"""The log of Megatron-LM or a relative: lines on iterations, and where they fall back."""

from __future__ import annotations

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


def read_job(source: Source, options: JobGiven) -> JobPart:
    """Read a step per line, and a restart where training falls back to an earlier iteration.

    A line on several iterations gives one step for each, of their mean duration; the last ends at
    its stamp. When training failed the log does not say: a restart begins at
    the end of the last step before it.
    """
    findings = Findings(source.label)
    log, is_stamped = megatron.log_of(source, Given(tz=options.tz), findings)
    if log.lines and not is_stamped:
        msg = (
            f"{source.label}, line {log.lines[0].number:,}: not every line on an iteration has a "
            "time; log with stamps, as Megatron-LM does since core 0.7"
        )
        raise LoadError(msg)
    steps = step_rows([_row(line, log, options) for line in log.lines], findings)
    return JobPart(steps, span_rows(_restarts(steps), source.label), findings, says_attempt=False)


def _row(line: megatron.Line, log: megatron.Log, options: JobGiven) -> dict[str, Any]:
    tokens = options.tokens_per_step
    if tokens is None and line.sample_count and log.sequence_tokens:
        tokens = line.sample_count * log.sequence_tokens
    row = {"step": line.step, "end_ns": line.at_ns, "dur_ns": line.each_ns, "line": line.number}
    row["covered"] = None if line.resumed_from is None else max(line.step - line.resumed_from, 1)
    return {**row, "token_count": tokens, "sample_count": line.sample_count}


def _restarts(steps: pd.DataFrame) -> list[dict[str, Any]]:
    runs = steps.groupby("attempt").agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), line=("line", "min")
    )
    # When training failed the log does not say: at the latest with the end of its last step.
    begin = runs["end_ns"].shift().fillna(0).astype("int64").clip(upper=runs["start_ns"])
    restarts = pd.DataFrame({"start_ns": begin, "end_ns": runs["start_ns"], "line": runs["line"]})
    rows: Any = restarts.assign(kind="restart").reset_index().iloc[1:].to_dict("records")
    return list(rows)
