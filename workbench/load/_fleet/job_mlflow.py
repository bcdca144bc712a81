"""Metrics in a database of MLflow (``mlflow.db``), where it keeps runs unless told otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._fleet.job_part import JobGiven, JobPart
from workbench.load._fleet.job_scalars import Rows, part_of, unbounded
from workbench.load._traces.nsight.stored import MAGIC, SqliteTables, opened

_COLUMNS = ("run_uuid", "key", "value", "timestamp", "step", "is_nan")
_RUN = ("run_uuid", "lifecycle_stage")
_DELETED = "deleted"


def is_store(source: Source, head: bytes) -> bool:
    """Recognise a database with the tables of MLflow; it is opened to be sure."""
    if not head.startswith(MAGIC):
        return False
    with opened(source, None, Findings(source.label)) as stored:
        return set(_COLUMNS) <= set(stored.columns.get("metrics", ()))


def read_runs(source: Source, options: JobGiven) -> Iterator[JobPart]:
    """Read each run as one log, in order of the database; deleted runs are told."""
    findings = Findings(source.label)
    runs: dict[str, dict[str, Rows]] = {}
    with opened(source, None, findings) as stored:
        deleted = _deleted(stored)
        rows = _cells(stored, "metrics", _COLUMNS)
        for number, (run, key, value, at_ms, step, is_nan) in enumerate(rows, start=1):
            if run in deleted:
                continue
            is_row = isinstance(run, bytes) and isinstance(key, bytes)
            numbers = isinstance(value, int | float), isinstance(at_ms, int), isinstance(step, int)
            if not (is_row and all(numbers) and 0 <= at_ms < 1 << 43 and 0 <= step < 1 << 53):
                findings.add("dropped", "metrics without time, value and step", 1, f"row {number}")
                continue
            name = run.decode("utf-8", "replace")
            scalars = runs.setdefault(name, {})
            of_run = f"{source.label}!run {name[:40]}"
            finite = math.nan if is_nan else unbounded(value)
            row = (step, at_ms * 1_000_000, finite, number, of_run)
            scalars.setdefault(key.decode("utf-8", "replace"), []).append(row)
    findings.add("skipped by design", "runs that were deleted", len(deleted))
    yield part_of({}, options, findings)
    for name, scalars in runs.items():
        part = Findings(f"{source.label}!run {name[:40]}")
        part.add("read", "scalars", sum(map(len, scalars.values())))
        yield part_of(scalars, options, part)


def _deleted(stored: Any) -> set[bytes]:
    rows = _cells(stored, "runs", _RUN) if set(_RUN) <= set(stored.columns.get("runs", ())) else ()
    return {run for run, stage in rows if stage == _DELETED.encode()}


def _cells(stored: Any, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    assert isinstance(stored, SqliteTables)
    return stored.cells(table, columns)
