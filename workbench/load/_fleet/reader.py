"""Everything under a path: the four logs of one job, or every kind of data there is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from workbench.datasets import choose
from workbench.errors import LoadError
from workbench.load._files.archive import Paths, given_paths, shown, shown_all
from workbench.load._files.findings import Finding, Row
from workbench.load._files.rank_names import Window
from workbench.load._files.stored import STORED
from workbench.load._files.time import BootTime, Hosts
from workbench.load._fleet.same_job import same_job
from workbench.load._fleet.several_jobs import read_kind
from workbench.load._power.part import Unit
from workbench.load._traces.rank_files import RankFiles, many_ranks
from workbench.load._traces.reader import traces
from workbench.load.kinds import NAMES, Options, Told, kind_named, told, unfit
from workbench.load.quality_report import joined
from workbench.tables import (
    RANKS,
    SAYS_SYNTHETIC,
    Bundle,
    Fleet,
    Trace,
)
from workbench.tables.traces import UNREAD

NOT_THERE = "no {} in what was given"
_KINDS = {"power telemetry": "power logs", "job log": "job logs"}
_KINDS |= {"failure logs": "failure logs", "traces": "traces"}
_TABLE = "is a table of failures, to be read with load.failure_table; not among the failures"

# What was not there has empty tables, so that figures and analyses need no case for it.
_WITHOUT = ("power logs", "job logs", "failure logs")
# By kind of data the field of the bundle; further kinds have no rules that ask for them.
_FIELDS = {
    "traces": "trace", "power logs": "power", "job logs": "job", "failure logs": "failures",
    "failure tables": "failures", "flight-recorder dumps": "flight",
    "memory snapshots": "memory",
    "job operations": "operations", "document lengths": "document_lengths",
    "injections": "injections",
}  # fmt: skip
_Chosen: TypeAlias = tuple[Collection[str], int | None]  # kinds of data, and most ranks
_NOT_READ = "holds {}, which no rule uses"


def fleet(  # noqa: PLR0913 - the entry point
    path: Paths,
    *,
    tz: str | None = None,
    year: int | None = None,
    boot_time: BootTime = None,
    node: Hosts = None,
    scope: str | None = None,
    unit: Unit | None = None,
    with_traces: bool = True,
    progress: bool = True,
) -> Fleet:
    """Load power, job log, failures and traces of one job, whichever of them there are.

    What is recognised is loaded as its own entry point loads it, and an error there is an error
    here; what is not there is an empty table, so that what can be said without it is.

    Parameters
    ----------
    path
        A folder (searched to any depth), an archive, a file or a list of these.
    tz
        Time zone of stamps that have none: a name or an offset (``"+01:00"``). There is no default.
    year
        Year of stamps that have none.
    boot_time
        When the host was booted, for stamps that count seconds since then.
    node
        Host of power and failure logs that do not state one: as in :func:`load.failures`, a name, a
        dict from a part of the file name, or a pattern.
    scope
        Where readings are metered whose file does not say, e.g. ``"node_ac"``.
    unit
        Unit of power columns that do not state one, e.g. ``"W"``.
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
        If nothing of the four is recognised, or something that is cannot be read, or needs
        ``tz``, ``year``, ``boot_time`` or ``unit``.

    Examples
    --------
    >>> from workbench import datasets
    >>> log = fleet(datasets.path("fleet-demo") / "steps.jsonl", tz="UTC", progress=False)
    >>> len(log.job.steps), len(log.failures.failures), len(log.power.power), len(log.ranks)
    (128, 1, 0, 0)
    """
    # Before anything is read: of several paths a misspelt one must not go unnoticed.
    for entry in given_paths(path):
        if not Path(entry).exists():
            msg = f"{shown(entry)}: there is no such file or folder"
            raise FileNotFoundError(msg)
    files = told(path)
    wanted = [name for name in _KINDS.values() if name in files.names]
    if not wanted:
        raise unfit(path, files, tuple(_KINDS.values()))
    # Traces that are not wanted still count as recognized, so they are not named as missing.
    if not with_traces:
        wanted = [name for name in wanted if name != "traces"]
    options = Options(tz, year, boot_time, node, unit, scope)
    read: Row = {
        name: kind_named(name).read(files.place(name, path), options, progress=progress)
        for name in wanted
    }
    absent = [
        (shown_all(path), "noted", NOT_THERE.format(name), 1, None)
        for name, kind in _KINDS.items()
        if kind not in files.names
    ]
    apart = [
        (label, "dropped", _TABLE, 1, None)
        for label, kinds in files.kinds.items()
        if "failure tables" in kinds
    ]
    frames = {name: loaded.quality for name, loaded in read.items()}
    power, job, failures = (
        read.get(name) or STORED[name][0](*(table.empty() for table in STORED[name][1]))
        for name in _WITHOUT
    )
    ranks = read["traces"].ranks if "traces" in read else RANKS.empty()
    quality = joined(frames, files, [*same_job(path, read, tz), *absent, *apart])
    return Fleet(power, job, failures, ranks, quality)


def bundle(  # noqa: PLR0913 - the entry point
    path: Paths,
    *,
    tz: str | None = None,
    year: int | None = None,
    boot_time: BootTime = None,
    node: Hosts = None,
    scope: str | None = None,
    unit: Unit | None = None,
    window: Window = None,
    kinds: Collection[str] = (),
    most_ranks: int | None = None,
    progress: bool = True,
) -> Bundle:
    """Load whatever is under a path, one table or bundle of tables per kind of data.

    A kind that cannot be read (because ``tz`` is not given, say) is a row of ``quality``, and
    the other kinds are loaded all the same; the commands take that row for an error.

    Parameters
    ----------
    path
        A folder (searched to any depth), an archive, a file or a list of these.
    tz, year, boot_time, node, scope, unit, progress
        As for :func:`fleet`.
    window
        As for :func:`traces`.
    kinds
        Kinds of data to read, e.g. ``{"traces"}``; all by default.
    most_ranks
        Ranks whose traces are loaded; of a job of more ``rank_files`` lists them, for
        :func:`workbench.analyze.findings` to load one after the other. None loads any number.

    Returns
    -------
    workbench.tables.Bundle
        By kind of data what its loader returned, None where there was none; ``quality``
        (:data:`workbench.tables.QUALITY`) and ``files``, the kinds that each file holds.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing is recognized, or nothing that is recognized can be read.

    Examples
    --------
    >>> from workbench import datasets
    >>> bundle(datasets.path("fleet-demo"), tz="UTC", progress=False)
    Bundle of trace, power, job, failures, quality, files
    """
    files = told(path)
    if not files.names or (kinds and not set(kinds) & set(files.names)):
        raise unfit(path, files, tuple(kinds) or NAMES)
    options = Options(tz, year, boot_time, node, unit, scope, window)
    read, frames, remarks, errors = _read(path, files, options, (kinds, most_ranks), progress)
    if not read:
        raise errors[0] if errors else _not_asked(path, files)
    of_file = [
        {"source": label, "kinds": ", ".join(n for n in NAMES if n in kinds) or "unrecognized"}
        for label, kinds in files.kinds.items()
    ]
    if any(choose(entry).is_synthetic for entry in given_paths(path)):
        # Of bundled sets it is known even where their format has no place for it.
        remarks.append((shown_all(path), "noted", SAYS_SYNTHETIC, 1, None))
    by_kind = {kind: read.get(_FIELDS[kind]) for kind in _KINDS.values()}
    remarks += same_job(path, by_kind, tz)
    quality = joined(frames, files, remarks)
    return Bundle(**read, quality=quality, files=pd.DataFrame(of_file, columns=["source", "kinds"]))


def _not_asked(path: Paths, files: Told) -> LoadError:
    """Make the error that says how to see kinds of data that no rule reads."""
    ways = [
        f"{name}: {kind_named(name).advice or f'workbench report --data {shown_all(path)} does'}"
        for name in files.names
    ]
    names = " and ".join(files.names)
    msg = f"{shown_all(path)}: holds {names}, which no rule uses; to show "
    return LoadError(msg + "; ".join(ways))


def _read(
    path: Paths, files: Told, options: Options, chosen: _Chosen, progress: bool
) -> tuple[Row, dict[str, pd.DataFrame], list[Finding], list[LoadError]]:
    """Read every kind; return results by field, findings by kind, remarks, and errors."""
    kinds, most_ranks = chosen
    read: Row = {}
    frames: dict[str, pd.DataFrame] = {}
    remarks: list[Finding] = []
    errors: list[LoadError] = []
    for name in (name for name in files.names if not kinds or name in kinds):
        field = _FIELDS.get(name)
        if field is None or field in read:
            remarks.append((shown_all(path), "noted", _NOT_READ.format(name), 1, None))
            continue
        try:
            kind = kind_named(name)
            if name == "traces":
                kind = replace(kind, function=partial(_traces, most_ranks=most_ranks))
            place = files.place(name, path)
            read[field], notes = read_kind(place, files, kind, options, progress=progress)
        except LoadError as error:
            errors.append(error)
            remarks.append((shown_all(path), "dropped", f"{UNREAD}{name}: {error}", 1, None))
            continue
        remarks += notes
        if hasattr(read[field], "quality"):
            frames[name] = read[field].quality
    if isinstance(read.get("trace"), RankFiles):
        read["rank_files"] = read.pop("trace")
    return read, frames, remarks, errors


def _traces(
    path: Paths, *, window: Window, most_ranks: int | None, progress: bool
) -> Trace | RankFiles:
    many = many_ranks(path, most_ranks, window)
    return many or traces(path, window=window, progress=progress)
