"""The entry point for power telemetry: any file, list, folder or archive of any known format."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, get_args

from workbench._shared.progress import progress as progress_bar
from workbench.errors import LoadError
from workbench.load._files import signatures
from workbench.load._files.archive import Paths, Source, shown_all, survey
from workbench.load._files.findings import Dropped, Finding, guarded, listed
from workbench.load._files.time import Hosts, check_hosts, checked, host_of
from workbench.load._files.wanted import POWER_LOGS, appearance, is_utf16, stored_files
from workbench.load._power.assembly import assembled
from workbench.load._power.formats.registry import power_format_of
from workbench.load._power.part import (
    BesidePowerError,
    NoPowerError,
    PowerFormat,
    PowerOptions,
    PowerPart,
    Reading,
    Unit,
)
from workbench.tables import SCOPES, PowerLog

_HEAD_BYTES = 1 << 16
_UNKNOWN = "is in an unrecognized format of power telemetry"
_TRACE = "is a trace; load it with load.traces"
_FAILURES = "is a failure log; load it with load.failures"
_UTF16 = "is UTF-16, no power log is; convert it: iconv -f UTF-16 -t UTF-8"


def power(  # noqa: PLR0913 - the entry point
    path: Paths,
    *,
    tz: str | None = None,
    node: Hosts = None,
    scope: str | None = None,
    unit: Unit | None = None,
    reading: Reading | None = None,
    period_s: float | None = None,
    columns: Mapping[str, str] | None = None,
    progress: bool = True,
) -> PowerLog:
    """Load who drew how much power and when, from whatever a site records.

    Formats are recognised by content, never by name. Every reading stays what it was: nothing
    is interpolated, filled or averaged. What cannot be a power becomes a missing reading; a
    stamp that several readings share keeps one of them; all of it is counted in the quality
    table, with file and line of the first.

    Parameters
    ----------
    path
        A file, a folder (searched to any depth), an archive or a list of these; gzip is fine.
    tz
        Time zone of stamps that have none: a name (``"America/Los_Angeles"``) or an offset
        (``"+01:00"``). There is no default.
    node
        Host of files that do not state one: one name for all files, a dict from a part of the file
        name to the host, or a pattern whose match in the file name (its first group, if it
        has one) is the host.
    scope
        Where the readings are metered (``"gpu"``, ``"node_ac"``, ``"rack"``, ...), for files
        that do not say; ``"module"`` takes the columns of the module from ``nvidia-smi``.
    unit
        Unit of columns that do not state one.
    reading
        Which of several powers of one device is taken: ``"average"`` or ``"instant"``; by
        default ``power.draw`` and its variants.
    period_s
        Time between readings of files without any time, such as those of ``nvidia-smi dmon``
        (its ``-d``). They get a clock of their own. There is no default.
    columns
        Names in your own tables (CSV, JSON lines, Parquet), by what they are: ``{"time":
        "when", "node": "host", "power_w": "draw"}``. Only these are read. ``time`` and one of
        ``power_w``, ``power_kw``, ``power`` (its unit is ``unit``) and ``energy_j`` (a counter)
        are needed; ``node``, ``gpu`` and ``entity`` say whose a row is.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    PowerLog
        ``power`` (:data:`workbench.tables.POWER`), ``entities``
        (:data:`workbench.tables.POWER_ENTITIES`), ``states``
        (:data:`workbench.tables.POWER_STATES`), ``counters``
        (:data:`workbench.tables.POWER_COUNTERS`) and ``quality``
        (:data:`workbench.tables.QUALITY`).

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` is power telemetry of a known format, a file lacks one of
        ``columns``, or needs ``tz``,
        ``unit``, ``scope`` or ``period_s`` and none is given (names file, line and argument).
    ValueError
        If an argument is not a zone, scope, unit, reading or period.

    Notes
    -----
    A counter of energy without a power beside it gives the power between two of its updates,
    ``(E[i] - E[i-1]) / (t[i] - t[i-1])``, at the time of the later one; where it falls it was
    reset, and that reading is missing. A log that was cut into several files (same thing, other
    time, or equal rows where they overlap) is joined; things that only share a name are told
    apart by their files.

    Examples
    --------
    >>> from workbench import datasets
    >>> log = power(
    ...     datasets.path("fleet-demo") / "power" / "synthetic_node001_nvidia_smi.csv",
    ...     tz="UTC",
    ...     node="node001",
    ... )
    >>> log.entities[["entity", "scope", "period_s", "limit_w"]].head(2).values.tolist()
    [['node001/gpu0', 'gpu', 0.5, 700.0], ['node001/gpu1', 'gpu', 0.5, 700.0]]
    """
    options = _checked(PowerOptions(tz, None, scope, unit, reading, period_s, columns))
    check_hosts(node)
    if stored_files(path) and (stored := _stored(path)) is not None:
        return stored
    files = survey(path, wanted=POWER_LOGS)
    passed_over = [remark.row for remark in files.remarks]
    dropped = Dropped()
    own_table: PowerFormat | None = None if columns is None else signatures.POWER_FORMATS[-1].reader
    recognised, unknown = _recognised(files.sources, dropped, own_table)
    passed_over += unknown
    contents: list[PowerPart] = []
    total = sum(source.size_bytes for source, _ in recognised)
    with progress_bar(total=total, unit="B", label="loading power", enabled=progress) as bar:
        for source, reader in recognised:
            host = host_of(source.label, node)
            with dropped.trying(source.label):
                contents += _read(source, reader, replace(options, node=host), passed_over)
            bar.update(source.size_bytes)
    if not contents:
        raise_unknown(path, passed_over, dropped)
    with guarded(shown_all(path)):
        return assembled(contents, [*passed_over, *dropped.rows])


def _stored(path: Paths) -> PowerLog | None:
    # The tables of all kinds are imported there.
    from workbench.load._files.stored import stored_tables

    stored: PowerLog | None = stored_tables(path, "power logs")
    return stored


def _read(
    source: Source, reader: PowerFormat, options: PowerOptions, passed_over: list[Finding]
) -> list[PowerPart]:
    """Read one file; one that holds no power is skipped."""
    try:
        content = reader.read_power(source, options)
    except NoPowerError as error:
        reason = str(error).removeprefix(f"{source.label}: ")
        kind = "skipped by design" if isinstance(error, BesidePowerError) else "dropped"
        passed_over.append((source.label, kind, reason, 1, None))
        return []
    content.format_name = content.format_name or reader.NAME
    return [content]


def _recognised(
    sources: Sequence[Source], dropped: Dropped, own_table: PowerFormat | None
) -> tuple[list[tuple[Source, PowerFormat]], list[Finding]]:
    """Find the format of each file; those of none become findings.

    Files whose columns the caller names are tables.
    """
    recognised: list[tuple[Source, PowerFormat]] = []
    unknown: list[Finding] = []
    for source in sources:
        with dropped.trying(source.label):
            if format_ := recognise(source, own_table, unknown):
                recognised.append((source, format_))
    return recognised, unknown


def recognise(
    source: Source, own_table: PowerFormat | None, unknown: list[Finding]
) -> PowerFormat | None:
    """Return the reader of a file by its first bytes; what nobody reads becomes a finding."""
    head = source.head(_HEAD_BYTES).removeprefix(BOM_UTF8)
    if is_utf16(head):
        unknown.append((source.label, "dropped", _UTF16, 1, None))
        return None
    if reader := own_table or power_format_of(head, source.label):
        return reader
    # What these ask imports every reader of failure logs.
    from workbench.load._failures.formats.registry import looks_like_a_log, looks_like_a_trace

    if looks_like_a_trace(head):
        unknown.append((source.label, "skipped by design", _TRACE, 1, None))
    elif looks_like_a_log(head, source.label):
        unknown.append((source.label, "skipped by design", _FAILURES, 1, None))
    else:
        unknown.append((source.label, "dropped", _UNKNOWN, 1, appearance(head, source.label)))
    return None


def _checked(options: PowerOptions) -> PowerOptions:
    for name, value, recognised in (
        ("scope", options.scope, SCOPES),
        ("unit", options.unit, get_args(Unit)),
        ("reading", options.reading, get_args(Reading)),
    ):
        if value is not None and value not in recognised:
            msg = f"{name} must be one of {', '.join(recognised)}; got {value!r}"
            raise ValueError(msg)
    period: object = options.period_s
    # True is an int in Python, and no period.
    is_number = isinstance(period, int | float) and not isinstance(period, bool)
    if period is not None and not (is_number and 1e-6 <= float(period) <= 1e6):  # type: ignore[arg-type]
        msg = f"period_s must be a time in seconds such as 1 or 0.1; got {period!r}"
        raise ValueError(msg)
    if options.columns is not None:
        from workbench.load._power.formats.table.layout import check_columns

        check_columns(options)
    return replace(options, tz=checked(options.tz, None, None).tz)


def raise_unknown(path: Paths, findings: Sequence[Finding], dropped: Dropped) -> NoReturn:
    """Raise that no file holds power, with the reason why each was skipped."""
    # All files failed to read: their own error says more than a list of formats.
    if not findings:
        dropped.raise_if_all()
    names = ", ".join(sorted({form.reader.NAME for form in signatures.POWER_FORMATS}))
    msg = (
        f"{shown_all(path)}: no readable power telemetry found; supported: {names}."
        f"{listed([*findings, *dropped.rows])}"
    )
    raise LoadError(msg)
