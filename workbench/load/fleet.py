"""The front door for all that a folder tells about one job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.load._findings import quality_frame
from workbench.load._log_arguments import Hosts
from workbench.load._power_part import Unit
from workbench.load.failures import failures as load_failures
from workbench.load.job_log import job_log
from workbench.load.kinds import kinds_of
from workbench.load.power import power as load_power
from workbench.load.traces import traces as load_traces
from workbench.tables import (
    FAILURES,
    LOGGED_SPANS,
    LOGGED_STEPS,
    NODE_SPANS,
    POWER,
    POWER_COUNTERS,
    POWER_ENTITIES,
    POWER_STATES,
    QUALITY,
    RANKS,
    TIMELINE,
    FailureLog,
    Fleet,
    JobLog,
    PowerLog,
)

NOT_THERE = "no {} in what was given"
_KINDS = {"power telemetry": "power logs", "job log": "job logs"}
_KINDS |= {"failure logs": "failure logs", "traces": "traces"}


def fleet(  # noqa: PLR0913 - the front door
    path: str | Path,
    *,
    tz: str | None = None,
    year: int | None = None,
    node: Hosts = None,
    scope: str | None = None,
    unit: Unit | None = None,
    with_traces: bool = True,
    progress: bool = True,
) -> Fleet:
    """Load power, job log, failures and traces of one job, whichever of them there are.

    What is recognised is loaded as its own front door loads it, and an error there is an error
    here; what is not there is an empty table, so that what can be said without it is.

    Parameters
    ----------
    path
        A folder (searched to any depth), an archive or a file.
    tz
        Time zone of stamps that have none: a name or an offset (``"+01:00"``). There is no
        default.
    year
        Year of stamps that have none.
    node
        Host of power and failure logs that name none: as in :func:`load.failures`, a name, a
        dict from a part of the file name, or a pattern.
    scope
        Where readings are metered whose file does not say, e.g. ``"node_ac"``.
    unit
        Unit of columns of power that name none, e.g. ``"W"``.
    with_traces
        Whether traces are read; of them only the time is kept that each rank covers.
    progress
        Whether to show progress bars if loading takes more than a second.

    Returns
    -------
    Fleet
        ``power`` (:class:`workbench.tables.PowerLog`), ``job``
        (:class:`workbench.tables.JobLog`), ``failures``
        (:class:`workbench.tables.FailureLog`), ``ranks`` (:data:`workbench.tables.RANKS`), and
        ``quality`` (:data:`workbench.tables.QUALITY`), which names what was not there.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If something that is recognised cannot be read, or needs ``tz``, ``year`` or ``unit``.

    Examples
    --------
    >>> from workbench import datasets
    >>> log = fleet(datasets.path("fleet-demo") / "steps.jsonl", tz="UTC", progress=False)
    >>> len(log.job.steps), len(log.failures.failures), len(log.power.power), len(log.ranks)
    (128, 1, 0, 0)
    """
    if not Path(path).exists():
        msg = f"{path}: there is no such file or folder"
        raise FileNotFoundError(msg)
    kinds = kinds_of(path, most_files=None)
    shown: dict[str, Any] = {"progress": progress}
    power = (
        load_power(path, tz=tz, scope=scope, unit=unit, node=node, **shown)
        if "power logs" in kinds
        else _no_power()
    )
    job = _no_job() if "job logs" not in kinds else job_log(path, tz=tz, **shown)
    told = _no_failures()
    if "failure logs" in kinds:
        told = load_failures(path, tz=tz, year=year, node=node, **shown)
    ranks, of_traces = RANKS.empty(), QUALITY.empty()
    if "traces" in kinds and with_traces:
        trace = load_traces(path, **shown)
        ranks, of_traces = trace.ranks, trace.quality
    absent = [
        (str(path), "noted", NOT_THERE.format(name), 1, None)
        for name, kind in _KINDS.items()
        if kind not in kinds
    ]
    found = [power.quality, job.quality, told.quality, of_traces, quality_frame(absent)]
    return Fleet(power, job, told, ranks, _once(found))


def _once(doors: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Leave out what one door passed over because another one read it.

    What a door left out of a file that it did read stays: those are readings that are missing.
    """
    read_by = [set(door.loc[door["finding"] == "read", "source"]) for door in doors]
    kept = []
    for door, own in zip(doors, read_by, strict=True):
        elsewhere = set().union(*read_by) - own
        passed = door["finding"].isin(["left out", "set aside"]) & door["source"].isin(elsewhere)
        kept.append(door[~passed])
    parts = [each for each in kept if len(each)]
    quality = pd.concat(parts, ignore_index=True) if parts else QUALITY.empty()
    return QUALITY.check(QUALITY.cast(quality.drop_duplicates(ignore_index=True)))


def _no_power() -> PowerLog:
    tables = (POWER, POWER_ENTITIES, POWER_STATES, POWER_COUNTERS, QUALITY)
    return PowerLog(*(table.empty() for table in tables))


def _no_job() -> JobLog:
    return JobLog(LOGGED_STEPS.empty(), LOGGED_SPANS.empty(), QUALITY.empty())


def _no_failures() -> FailureLog:
    return FailureLog(*(table.empty() for table in (FAILURES, TIMELINE, NODE_SPANS, QUALITY)))
