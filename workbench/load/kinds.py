"""What a path holds, told before anything is loaded."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from workbench.errors import LoadError
from workbench.load import _job_events, _job_megatron, _job_mllog, _job_table, prometheus_xid
from workbench.load._log_formats import looks_like_a_log
from workbench.load._power_formats import power_format_of
from workbench.load._power_kind import is_power_log
from workbench.load._wanted import FAILURE_LOGS, LOGS_AND_INJECTIONS
from workbench.load.archive import Source, survey
from workbench.load.injections import looks_like_injections
from workbench.load.job_operations import is_job_operations
from workbench.load.traces import format_of

_LOOKED_AT_FILES = 200
_HEAD_BYTES = 1 << 16


def kinds_of(path: str | Path, *, most_files: int | None = _LOOKED_AT_FILES) -> set[str]:
    """Say which kinds of data a file, folder or archive holds.

    Parameters
    ----------
    path
        Any file or folder.
    most_files
        Files to look at, the first ones; None for all.

    Returns
    -------
    set of str
        Of ``"job operations"``, ``"failure logs"``, ``"injections"``, ``"job logs"``,
        ``"power logs"`` and ``"traces"``; the last alone if nothing is recognised, so that its
        loader says why. Only the beginnings of files are looked at.

    Examples
    --------
    >>> from workbench import datasets
    >>> sorted(kinds_of(datasets.path("fleet-demo")))
    ['failure logs', 'job logs', 'power logs', 'traces']
    """
    if is_job_operations(path):
        return {"job operations"}
    found: set[str] = set()
    for source in islice(_sources(path), most_files):
        try:
            found |= _kinds(source, path)
        except LoadError:
            continue
    return found or {"traces"}


def _kinds(source: Source, path: str | Path) -> set[str]:
    """Say what one file holds: nothing if nobody knows, two kinds if events of a job or metrics."""
    head = source.head(_HEAD_BYTES)
    if looks_like_injections(source, head):
        return {"injections"}
    if is_power_log(source, head):
        # An exporter serves the last Xid beside the power.
        found = {"power logs"}
        found |= {"failure logs"} if prometheus_xid.looks_like(head, source.label) else set()
        # One logger may write the steps of a job beside what they draw.
        found |= {"job logs"} if _job_table.looks_like(head) else set()
        return found
    if _job_mllog.looks_like(head):
        return {"job logs"}
    if _is_met(source, path) and FAILURE_LOGS.refused(source.label, head):
        return set()  # only looked at for the results it might have held
    if format_of(source):
        return {"traces"}
    found = {"failure logs"} if looks_like_a_log(head, source.label) else set()
    readers = (_job_events, _job_megatron, _job_table)
    found |= {"job logs"} if any(each.looks_like(head) for each in readers) else set()
    if not found and not _is_met(source, path) and power_format_of(head, source.label):
        return {"power logs"}  # a table of numbers over time, given by name
    return found


def _is_met(source: Source, path: str | Path) -> bool:
    """Say whether a file was met in a folder or archive, not named itself."""
    return bool(source.member) or source.path != Path(path)


def _sources(path: str | Path) -> list[Source]:
    try:
        return survey(path, wanted=LOGS_AND_INJECTIONS).sources
    except LoadError:
        return []
