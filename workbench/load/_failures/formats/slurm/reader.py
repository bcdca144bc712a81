"""Accounting of Slurm: ``sacct --parsable2 --duplicates``."""

from __future__ import annotations

from workbench.errors import LoadError
from workbench.load._failures.formats.slurm.jobs import (
    COLUMNS,
    failures_of,
    jobs_of,
    note_crash_loops,
    timeline_of,
)
from workbench.load._failures.formats.slurm.lines import header_in, is_wide, read_records
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.time import Given, LogPart

NAME = "Slurm accounting"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    return header_in(head) is not None or is_wide(head)


def read(source: Source, settings: Given) -> LogPart:
    """Read the runs of all jobs of a file.

    Steps are folded into their job. A job that ran again (``--duplicates``) has one attempt
    per run.
    """
    head = source.head()
    if header_in(head) is None and is_wide(head):
        msg = (
            f"{source.label}: sacct's table for people cuts fields off; "
            "write it again with sacct --parsable2 --duplicates"
        )
        raise LoadError(msg)
    findings = Findings(source.label)
    jobs = jobs_of(read_records(source, findings, keep=COLUMNS), settings, findings)
    note_crash_loops(jobs, findings)
    findings.add("read", "runs of jobs", len(jobs))
    return LogPart(
        failures_of(jobs, settings, source.label), timeline_of(jobs, source.label), findings
    )
