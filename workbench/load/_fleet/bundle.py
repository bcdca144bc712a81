"""Everything under a path, each kind of data loaded by its own function."""

from __future__ import annotations

from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Paths, shown_all
from workbench.load._files.findings import Finding
from workbench.load._files.time import BootTime, Hosts
from workbench.load._power.part import Unit
from workbench.load.kinds import NAMES, Kind, Options, Told, kind_named, told, unfit
from workbench.load.quality import joined
from workbench.tables import Bundle

# By kind of data the field of the bundle; further kinds have no rules that ask for them.
_FIELDS = {
    "traces": "trace",
    "power logs": "power",
    "job logs": "job",
    "failure logs": "failures",
    "failure tables": "failures",
    "flight-recorder dumps": "flight",
    "job operations": "operations",
    "document lengths": "document_lengths",
    "injections": "injections",
}
_NOT_READ = "holds {}, of which no rule asks anything"


def bundle(  # noqa: PLR0913 - the front door
    path: Paths,
    *,
    tz: str | None = None,
    year: int | None = None,
    boot_time: BootTime = None,
    node: Hosts = None,
    scope: str | None = None,
    unit: Unit | None = None,
    progress: bool = True,
) -> Bundle:
    """Load whatever is under a path, one table or bundle of tables per kind of data.

    A kind that cannot be read (because ``tz`` is not given, say) is a row of ``quality``, and
    the other kinds are loaded all the same.

    Parameters
    ----------
    path
        A folder (searched to any depth), an archive, a file or a list of these.
    tz
        Time zone of timestamps that do not state one.
    year
        Year of timestamps that do not state one.
    boot_time
        When the host was booted, for timestamps that count seconds since then.
    node
        Host of power and failure logs that do not state one, as in :func:`load.failures`.
    scope
        Where readings are metered whose file does not say, e.g. ``"node_ac"``.
    unit
        Unit of power columns that do not state one, e.g. ``"W"``.
    progress
        Whether to show progress bars if loading takes more than a second.

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
    if not files.names:
        raise unfit(path, files)
    options = Options(tz, year, boot_time, node, unit, scope)
    read, frames, remarks, errors = _read(path, files, options, progress)
    if not read:
        raise errors[0] if errors else unfit(path, files)
    of_file = [
        {"source": label, "kinds": ", ".join(n for n in NAMES if n in kinds) or "unrecognized"}
        for label, kinds in files.kinds.items()
    ]
    quality = joined(frames, files, remarks)
    return Bundle(**read, quality=quality, files=pd.DataFrame(of_file, columns=["source", "kinds"]))


def _read(
    path: Paths, files: Told, options: Options, progress: bool
) -> tuple[dict[str, Any], dict[str, pd.DataFrame], list[Finding], list[LoadError]]:
    """Read every kind; return results by field, findings by kind, remarks, and errors."""
    read: dict[str, Any] = {}
    frames: dict[str, pd.DataFrame] = {}
    remarks: list[Finding] = []
    errors: list[LoadError] = []
    for name in files.names:
        field = _FIELDS.get(name)
        if field is None or field in read:
            remarks.append((shown_all(path), "noted", _NOT_READ.format(name), 1, None))
            continue
        try:
            read[field] = _one_kind(path, files, kind_named(name), options, progress)
        except LoadError as error:
            errors.append(error)
            remarks.append((shown_all(path), "dropped", f"{name}: {error}", 1, None))
            continue
        if hasattr(read[field], "quality"):
            frames[name] = read[field].quality
    return read, frames, remarks, errors


def _one_kind(path: Paths, files: Told, kind: Kind, options: Options, progress: bool) -> Any:
    """Read one kind; a kind that is read from one file needs that file by itself."""
    if not kind.is_one_file:
        return kind.read(path, options, progress=progress)
    labels = [label for label, kinds in files.kinds.items() if kind.name in kinds]
    source = files.sources[labels[0]]
    if len(labels) > 1 or source.member:
        msg = f"{len(labels)} files of {kind.name}, or one in an archive; name one file, unpacked"
        raise LoadError(msg)
    return kind.read(source.path, options, progress=progress)
