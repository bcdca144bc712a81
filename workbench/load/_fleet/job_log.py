"""The entry point for logs of one training job: its steps, and the segments that have a name."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import pandas as pd

from workbench._shared.progress import progress as progress_bar
from workbench.errors import LoadError
from workbench.load._files.archive import Paths, Source, shown_all, survey
from workbench.load._files.findings import Dropped, Finding, guarded, listed, quality_frame
from workbench.load._files.stored import stored_tables
from workbench.load._files.time import checked
from workbench.load._files.wanted import JOB_LOGS, appearance
from workbench.load._fleet import (
    job_events,
    job_megatron,
    job_mlflow,
    job_mllog,
    job_scalars,
    job_table,
)
from workbench.load._fleet.job_part import JobGiven, JobPart
from workbench.tables import LOGGED_SPANS, LOGGED_STEPS, QUALITY, JobLog

# In the order they are asked; scalars of a run are files that belong together.
FORMATS = (job_mllog, job_events, job_megatron, job_table)
_HEAD_BYTES = 1 << 16
_VALIDATION = (
    "scalars of validation, by the name of their folder, beside those of training; pass the folder "
    "alone to read them"
)
_UNKNOWN = "is not a recognized job log"
_RUNS = (
    "runs of a benchmark that ended (run_start to run_stop), read as attempts of one job; results "
    "of several runs are not one job, load them one at a time"
)
_TOLERANCE_NS = 2_000_000


def job_log(
    path: Paths,
    *,
    tz: str | None = None,
    columns: Mapping[str, str] | None = None,
    tokens_per_step: int | None = None,
    progress: bool = True,
) -> JobLog:
    """Load when each training step began and ended, and what happened in between.

    Steps are what power and energy are laid beside: joules per step, per token, and what was
    drawn while nothing was learnt. Supported are results of MLPerf Training (MLLOG), logs of
    Megatron-LM, JSON events of a training script (``start``, ``step``, ``checkpoint_start``,
    ``interrupt``, ...), event files of TensorBoard, metrics of MLflow, and tables of steps (CSV,
    JSON objects or Parquet), such as histories of Weights & Biases. Formats are recognised by
    content.

    Parameters
    ----------
    path
        A file, a folder (searched to any depth), an archive or a list of these; gzip is fine.
    tz
        Time zone of stamps that have none: a name or an offset (``"+01:00"``). There is no default.
    columns
        Names of columns in a table of your own, where they are not found or not the right
        ones: from ``step``, ``attempt``, ``start``, ``end``, ``duration_s``, ``duration_ms``,
        ``tokens``, ``tokens_per_s`` (of all ranks), ``samples``, ``loss`` to the name in the file,
        of TensorBoard and MLflow the name of the scalar.
    tokens_per_step
        Tokens of one step, all ranks, where the log does not say.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    JobLog
        ``steps`` (:data:`workbench.tables.LOGGED_STEPS`), ``spans``
        (:data:`workbench.tables.LOGGED_SPANS`) and ``quality`` (:data:`workbench.tables.QUALITY`).

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` is the log of a job, a stamp needs ``tz``, or a column is
        missing or does not state its unit (names file, column and remedy).
    ValueError
        If an argument is not a zone or no number of tokens.

    Notes
    -----
    A log says when a step ended and how long it took: ``start = end - duration``. Where it
    gives no duration, a step begins where the one before it ended, which counts pauses in.
    Of scalars a step ends when the first of them was written; all files of one run (a folder) are
    one log. The offline format of Weights & Biases is refused with the way to export it.

    Examples
    --------
    >>> from workbench import datasets
    >>> log = job_log(datasets.path("fleet-demo") / "steps.jsonl")
    >>> log.spans[["kind", "attempt"]].values.tolist()[:3]
    [['run', 1], ['initialisation', 1], ['checkpoint', 1]]
    """
    options = _given(tz, columns, tokens_per_step)
    stored: JobLog | None = stored_tables(path, "job logs")
    return _read_all(path, options, progress=progress) if stored is None else stored


def _read_all(path: Paths, options: JobGiven, *, progress: bool) -> JobLog:
    files = survey(path, wanted=JOB_LOGS)
    findings = [remark.row for remark in files.remarks]
    logs: list[JobPart] = []
    runs: dict[str, list[Source]] = {}
    dropped = Dropped()
    total = sum(source.size_bytes for source in files.sources)
    with progress_bar(total=total, unit="B", label="loading logs", enabled=progress) as bar:
        for source in files.sources:
            with dropped.trying(source.label):
                if job_mlflow.is_store(source, source.head()):
                    logs += job_mlflow.read_runs(source, options)
                elif job_scalars.looks_like(source.head(), source.label):
                    runs.setdefault(job_scalars.run_of(source), []).append(source)
                else:
                    logs += _read(source, options, findings)
            bar.update(source.size_bytes)
        logs += _of_runs(runs, options, findings, dropped)
    if not any(len(log.steps) or len(log.spans) for log in logs):
        if not findings and not logs:
            dropped.raise_if_all()
        _raise_unknown(path, logs, [*findings, *dropped.rows])
    with guarded(shown_all(path)):
        return _assembled(logs, [*findings, *dropped.rows])


def _of_runs(
    runs: Mapping[str, list[Source]], options: JobGiven, findings: list[Finding], dropped: Dropped
) -> Iterator[JobPart]:
    """Read the scalars of each run as one log; those of its validation are no steps."""
    validation = job_scalars.of_validation(runs)
    for name, sources in runs.items():
        if name in validation:
            findings.append((sources[0].label, "skipped by design", _VALIDATION, 1, None))
            continue
        with dropped.trying(sources[0].label):
            yield from job_scalars.read_run(sources, options)


def _given(
    tz: str | None, columns: Mapping[str, str] | None, tokens_per_step: int | None
) -> JobGiven:
    zone = checked(tz, None, None).tz
    job_table.check_columns(dict(columns or {}))
    tokens: object = tokens_per_step
    is_whole = isinstance(tokens, int) and not isinstance(tokens, bool)
    if tokens_per_step is not None and (not is_whole or tokens_per_step < 1):
        msg = f"tokens_per_step must be a whole number from 1, not {tokens_per_step!r}"
        raise ValueError(msg)
    return JobGiven(zone, dict(columns or {}), tokens_per_step)


def _read(source: Source, options: JobGiven, findings: list[Finding]) -> list[JobPart]:
    head = source.head(_HEAD_BYTES).removeprefix(BOM_UTF8)
    if head.startswith(job_scalars.WANDB_MAGIC):
        msg = f"{source.label}: {job_scalars.WANDB_ADVICE}"
        raise LoadError(msg)
    if job_table.has_named_columns(source, head, dict(options.columns)):
        return [job_table.read_job(source, options)]
    # The plain table comes last: it may hold columns of any name.
    for form in FORMATS:
        if form.looks_like(head):
            return [form.read_job(source, options)]
    findings.append(
        (source.label, "skipped by design", _UNKNOWN, 1, appearance(head, source.label))
    )
    return []


def _assembled(logs: Sequence[JobPart], findings: list[Finding]) -> JobLog:
    """Put the files together: runs that no file numbers are numbered in order of time."""
    filled = [log for log in logs if len(log.steps) or len(log.spans)]
    # In order of time, since files are named in any way; runs are counted on in this order.
    filled.sort(key=lambda log: pd.concat([log.steps["start_ns"], log.spans["start_ns"]]).min())
    last = 0
    for log in filled:
        if last and not log.says_attempt:
            assumption = "runs that the file does not number; counted on from those of other files"
            findings.append((log.findings.source, "assumed", assumption, 1, None))
            log.steps["attempt"] += last
            log.spans["attempt"] += last
        last = max([last, *log.steps["attempt"], *log.spans["attempt"]])
    if (runs := sum(log.benchmark_runs for log in filled)) > 1:
        findings.append((filled[0].findings.source, "suspicious", _RUNS, runs, None))
    steps = LOGGED_STEPS.joined([log.steps for log in filled])
    steps = steps.sort_values(["start_ns", "end_ns"], kind="stable", ignore_index=True)
    spans = LOGGED_SPANS.joined([log.spans for log in filled])
    spans = spans.sort_values(["start_ns", "line"], kind="stable", ignore_index=True)
    quality = [log.findings.frame() for log in logs] + [quality_frame(findings)]
    spans = LOGGED_SPANS.check(_after_steps(spans, steps))
    return JobLog(LOGGED_STEPS.check(steps), spans, QUALITY.joined(quality))


def _after_steps(spans: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    ends = steps.sort_values("end_ns", kind="stable")
    at = ends["end_ns"].searchsorted(spans["start_ns"].to_numpy() + _TOLERANCE_NS, "right") - 1
    # Position -1, before the first step, is in no index and becomes missing.
    before = ends["step"].astype("Int64").reset_index(drop=True).reindex(at)
    return spans.assign(step=before.array)


def _raise_unknown(path: Paths, logs: Sequence[JobPart], findings: Sequence[Finding]) -> NoReturn:
    paths = shown_all(path)
    read = [tuple(row) for log in logs for row in log.findings.frame().itertuples(index=False)]
    # The names of scalars are what the caller needs to name columns.
    causes = [
        (*row[:4], row[4] if row[2] == job_scalars.NOT_READ else None)
        for row in read
        if row[1] != "read"
    ]
    msg = (
        f"{paths}: no step and no span of a job found; supported: MLLOG lines of MLPerf Training, "
        "logs of Megatron, JSON events, TensorBoard, MLflow and tables with columns for step and "
        f"time; name columns of your own with columns=.{listed([*findings, *causes])}"
    )
    raise LoadError(msg)
