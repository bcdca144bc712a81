"""The entry point for failure logs: any file, list, folder or archive of any known format."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from workbench._shared.cluster import batches_on_cluster, missing_on_worker
from workbench._shared.follow_ons import is_told_as_alone
from workbench._shared.incidents import at_once, fold
from workbench._shared.progress import progress as progress_bar
from workbench.errors import LoadError, WorkbenchError
from workbench.load._failures.formats.registry import readers_of
from workbench.load._files import signatures
from workbench.load._files.archive import Paths, Source, shown_all, survey
from workbench.load._files.findings import Dropped, Finding, guarded, listed, quality_frame
from workbench.load._files.stored import stored_tables
from workbench.load._files.time import (
    SECOND,
    BootTime,
    Given,
    Hosts,
    LogFormat,
    LogPart,
    check_hosts,
    checked,
    host_of,
)
from workbench.load._files.wanted import FAILURE_LOGS, appearance, is_utf16
from workbench.load.power_kind import is_power_log
from workbench.tables import FAILURES, NODE_SPANS, TIMELINE, FailureLog

_HEAD_BYTES = 1 << 16
_PRINTED = "lines of the kernel (Xid) inside a log of another kind; load the kernel's own log"
_POWER = "is power telemetry; load it with load.power"
_UNKNOWN = "is in an unrecognized format"


def failures(  # noqa: PLR0913 - the entry point
    path: Paths,
    *,
    tz: str | None = None,
    year: int | None = None,
    boot_time: BootTime = None,
    node: Hosts = None,
    window_s: float = 300.0,
    client: Any = None,
    progress: bool = True,
) -> FailureLog:
    """Load what failed, when and where, from the logs a cluster writes anyway.

    Formats are recognised by content, never by name. One fault is reported in many lines;
    lines that follow each other within ``window_s`` on one host, or by any rank of one job, are
    folded into one incident, which is led by the first of them that is not a consequence of
    another. What is dropped, repaired or assumed is counted in the quality table.

    Parameters
    ----------
    path
        A file, a folder (searched to any depth), an archive or a list of these; gzip is fine.
    tz
        Time zone of stamps that have none: a name (``"America/Los_Angeles"``) or an offset
        (``"+01:00"``). There is no default.
    year
        Year of stamps that have none (of the first one of a file; New Year is noticed).
    boot_time
        When the host was booted, for stamps that count seconds since then. Without a zone it
        is in ``tz``.
    node
        Host of lines that do not state one: one name for all files, a dict from a part of the file
        name to the host, or a pattern whose match in the file name (its first group, if it
        has one) is the host.
    window_s
        Longest pause inside an incident, in s; 0 keeps every line as a row.
    client
        A ``distributed.Client``: files are read by its workers, which must see them under the same
        paths; only their failures travel.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    FailureLog
        ``failures`` (:data:`workbench.tables.FAILURES`), ``timeline``
        (:data:`workbench.tables.TIMELINE`), ``nodes`` (:data:`workbench.tables.NODE_SPANS`)
        and ``quality`` (:data:`workbench.tables.QUALITY`).

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` is a log of a known format, or a line needs ``tz``, ``year``
        or ``boot_time`` and none is given (names file, line and argument).
    ValueError
        If an argument is not a zone, year, stamp or window.
    MissingExtraError
        If a client is given and Dask is not installed.

    Notes
    -----
    Each file is read by itself and only its failures are kept, so memory grows with them and not
    with the logs; then the failures of all files are compared and folded. Neither the order of
    the files nor how they are spread over workers changes the tables. A file that cannot be read is
    a row in ``quality`` that says why.

    A failure that two files of one host hold at the same time, to the nanosecond (``dmesg``
    and ``kern.log``), is taken once; so is a state of a job, where accounts overlap.

    Examples
    --------
    >>> from workbench import datasets
    >>> log = failures(datasets.path("fleet-demo") / "failures" / "synthetic_node001_kernel.log")
    >>> log.failures[["device", "code", "other_codes", "line_count"]].values.tolist()
    [['0000:1b:00', '79', '154, PCIe link down', 4]]
    """
    settings = checked(tz, year, boot_time)
    check_hosts(node)
    fold(FAILURES.empty(), window_s=window_s)  # a bad window is refused before minutes of reading
    stored: FailureLog | None = stored_tables(path, "failure logs")
    if stored is not None:
        return stored
    files = survey(path, wanted=FAILURE_LOGS)
    # In this order, whatever that of the paths or of what workers return: the table is the same.
    sources = sorted(files.sources, key=lambda source: (source.label, source.path))
    read: dict[Source, _Read] = {}
    total = sum(source.size_bytes for source in sources)
    with progress_bar(total=total, unit="B", label="loading logs", enabled=progress) as bar:
        for source, result in _each(sources, partial(_read, settings=settings, node=node), client):
            read[source] = result
            bar.update(source.size_bytes)
    results = [read[source] for source in sources]
    dropped = Dropped([error for result in results for error in result.errors])
    findings = sorted((remark.row for remark in files.remarks), key=lambda row: row[:3])
    findings += [finding for result in results for finding in result.unknown]
    if not any(result.is_recognised for result in results):
        _raise_unknown(path, findings, dropped)
    logs = [log for result in results for log in result.logs]
    if not logs:
        dropped.raise_if_all()
    with guarded(shown_all(path)):
        return assembled(logs, [*findings, *dropped.rows], window_s)


@dataclass
class _Read:
    """Result of one file: its logs, why it was skipped, and why a log of it was dropped."""

    logs: list[LogPart] = field(default_factory=list)
    unknown: list[Finding] = field(default_factory=list)
    errors: list[tuple[str, Exception]] = field(default_factory=list)
    is_recognised: bool = False


# An error must not end the process that reads other files.
def _read(source: Source, settings: Given, node: Hosts) -> _Read:
    result, readers = _Read(), []
    dropped = Dropped(result.errors)
    with dropped.trying(source.label):
        readers = _recognised(source, result.unknown)
    result.is_recognised = bool(readers)
    host = host_of(source.label, node)
    for reader in readers:
        with dropped.trying(source.label):
            log = reader.read(source, replace(settings, node=host))
            result.logs.append(replace(log, format_name=reader.NAME))
    return result


def _recognised(source: Source, unknown: list[Finding]) -> list[LogFormat]:
    head = source.head(_HEAD_BYTES).removeprefix(BOM_UTF8)
    if is_utf16(head):
        remark = "is UTF-16, no log is; convert it: iconv -f UTF-16 -t UTF-8"
        unknown.append((source.label, "dropped", remark, 1, None))
        return []
    # A console log can hold what several programs wrote, so several formats may read it.
    readers, misses_xids = readers_of(source, head)
    if misses_xids:
        unknown.append((source.label, "dropped", _PRINTED, 1, None))
    elif not readers and is_power_log(source, head):
        unknown.append((source.label, "skipped by design", _POWER, 1, None))
    elif not readers:
        unknown.append((source.label, "dropped", _UNKNOWN, 1, appearance(head, source.label)))
    return readers


# A task takes milliseconds to send, so small files travel together.
_TASK_BYTES, _OF_A_FILE_BYTES = 64 << 20, 256 << 10
_Task = tuple[Source, ...]


def _each(
    sources: Sequence[Source], read: Callable[[Source], _Read], client: Any
) -> Iterator[tuple[Source, _Read]]:
    """Read every file, here or at the workers of a cluster; those come as they are ready."""
    if client is None:
        yield from ((source, read(source)) for source in sources)
        return
    if any(source.place is not None and source.place.layer == "gzip" for source in sources):
        msg = "members of a tar.gz are read in one pass; unpack the archive for a cluster"
        raise WorkbenchError(msg)
    at_worker = partial(_at_worker, read=read, folder=Path.cwd())
    for source, answer in batches_on_cluster(client, at_worker, _tasks(sources)):
        if isinstance(answer, Exception):
            yield source, _Read(errors=[(source.label, answer)])
        else:
            yield source, answer


def _tasks(sources: Sequence[Source]) -> Iterator[_Task]:
    sizes = np.cumsum([source.size_bytes + _OF_A_FILE_BYTES for source in sources])
    for _, numbered in groupby(enumerate(sources), lambda pair: sizes[pair[0]] // _TASK_BYTES):
        yield tuple(source for _, source in numbered)


def _at_worker(task: _Task, read: Callable[[Source], _Read], folder: Path) -> list[_Read]:
    # Workers may stand in another folder.
    results = [read(replace(source, path=folder / source.path)) for source in task]
    for result in results:
        for number, (label, error) in enumerate(result.errors):
            if isinstance(error, FileNotFoundError):
                result.errors[number] = (label, missing_on_worker(label))
    return results


def assembled(
    logs: Sequence[LogPart], passed_over: Sequence[Finding], window_s: float
) -> FailureLog:
    lines = FAILURES.joined([log.failures for log in logs])
    timeline = TIMELINE.joined([log.timeline for log in logs])
    digests = _digests(logs, lines, timeline)
    # Before folding, which would count a line that two files hold twice.
    lines, repeats = without_repeats(lines)
    incidents = fold(lines, window_s=window_s)
    timeline, states = without_repeated_states(timeline)
    timeline = timeline.sort_values(["start_ns", "line"], kind="stable", ignore_index=True)
    findings = [*passed_over, *_repeated(repeats, "lines"), *_repeated(states, "states")]
    findings += _folded(lines, incidents, window_s)
    findings += [*_copies(logs, digests, incidents, timeline), *doubts(logs, incidents, timeline)]
    quality = quality_frame([*chain.from_iterable(log.findings.rows() for log in logs), *findings])
    nodes = node_spans(incidents, timeline, logs)
    return FailureLog(incidents, TIMELINE.check(timeline), nodes, quality)


def _repeated(repeats: pd.DataFrame, noun: str) -> list[Finding]:
    remark = f"{noun} that another file contains, too; counted once"
    return [
        (str(source), "noted", remark, len(rows), f"line {rows['line'].iloc[0]:,}")
        for source, rows in repeats.groupby("source", sort=False)
    ]


def _folded(lines: pd.DataFrame, incidents: pd.DataFrame, window_s: float) -> list[Finding]:
    remark = f"lines folded into the incident of another ({window_s:g} s)"
    left = lines["source"].value_counts(sort=False)
    left = left.sub(incidents["source"].value_counts(), fill_value=0).astype("int64")
    return [(str(source), "noted", remark, count, None) for source, count in left.items() if count]


def _raise_unknown(path: Paths, findings: Sequence[Finding], dropped: Dropped) -> NoReturn:
    if not findings:
        dropped.raise_if_all()
    names = ", ".join(sorted(form.reader.NAME for form in signatures.FAILURE_FORMATS))
    msg = (
        f"{shown_all(path)}: no readable failure log found; supported: {names}."
        f"{listed([*findings, *dropped.rows])}"
    )
    raise LoadError(msg)


# What looks wrong only once all files of a load lie side by side.

_EARLIEST_NS = 946_684_800_000_000_000  # 2000-01-01
_HALF_YEAR_NS = 182 * 86_400 * SECOND
# Reporters of which every host or process writes its own log of one and the same failure.
_SHARED, _SHARED_NS = ("nvrx", "torchft"), 600 * SECOND

_MOST_AT_ONCE, _AT_ONCE_S = 3, 10.0


def doubts(
    logs: Sequence[LogPart], incidents: pd.DataFrame, timeline: pd.DataFrame
) -> list[Finding]:
    placeless = incidents["node"].isna() & incidents["device"].notna()
    is_early = (incidents["clock"] == "epoch") & (incidents["start_ns"] < _EARLIEST_NS)
    crowded = at_once(incidents, most=_MOST_AT_ONCE, within_s=_AT_ONCE_S)
    placeless_remark = "incidents on a device of an unknown host; pass node="
    early_remark = "incidents before the year 2000: the clock was not set"
    crowded_remark = (
        f"incidents within {_AT_ONCE_S:g} s of {_MOST_AT_ONCE} or more others; one failure, of a "
        "switch or a power feed say, may be counted more than once"
    )
    # A device or job goes on reporting after a failure, and here no failure goes before it.
    alone = "follow-on messages with no failure before them; counted as failures of unknown trigger"
    return [
        *_by_file(incidents[placeless], placeless_remark),
        *_by_file(incidents[is_early.fillna(value=False)], early_remark),
        *_shared_boot(incidents),
        *_years_apart(incidents),
        *_one_failure_in_many_files(incidents),
        *_by_file(incidents[crowded], crowded_remark),
        *_by_file(incidents[is_told_as_alone(incidents)], alone),
        *_attempts_counted_anew(logs, timeline),
    ]


def _copies(
    logs: Sequence[LogPart],
    digests: Sequence[bytes],
    incidents: pd.DataFrame,
    timeline: pd.DataFrame,
) -> Iterator[Finding]:
    """Flag files that hold what another one does and whose rows were counted all the same."""
    counted = {*incidents["source"], *timeline["source"]}
    first: dict[bytes, str] = {}
    for log, digest in zip(logs, digests, strict=True):
        count = len(log.failures) + len(log.timeline)
        if count and log.findings.source in counted:
            earlier = first.setdefault(digest, log.findings.source)
            if earlier != log.findings.source:
                remark = "rows equal to those of another file, counted again; is one a copy?"
                yield log.findings.source, "suspicious", remark, count, earlier


def _digests(
    logs: Sequence[LogPart], failures: pd.DataFrame, timeline: pd.DataFrame
) -> list[bytes]:
    """Describe the rows of each file, of those of all files joined."""
    pieces = []
    for table, counts in (
        (failures, [len(log.failures) for log in logs]),
        (timeline, [len(log.timeline) for log in logs]),
    ):
        rows = pd.util.hash_pandas_object(table.drop(columns="source"), index=False).to_numpy()
        pieces.append(np.split(rows, np.cumsum(counts)[:-1]))
    return [b"|".join(of_log.tobytes() for of_log in pair) for pair in zip(*pieces, strict=True)]


def _by_file(rows: pd.DataFrame, remark: str, finding: str = "suspicious") -> list[Finding]:
    return [
        (str(source), finding, remark, len(rows_of_file), f"line {rows_of_file['line'].iloc[0]:,}")
        for source, rows_of_file in rows.groupby("source", sort=False)
    ]


def _shared_boot(incidents: pd.DataFrame) -> list[Finding]:
    booted = incidents[incidents["assumed"].str.contains("boot=", regex=False)]
    if booted["node"].fillna(booted["source"]).nunique() < 2:
        return []
    return _by_file(booted, "one boot_time used for several hosts or files; load each with its own")


def _years_apart(incidents: pd.DataFrame) -> list[Finding]:
    """Flag one year that was used for files that may be of two: December, and January."""
    dated = incidents[incidents["assumed"].str.contains("year=", regex=False)]
    first = dated.groupby("source", sort=False)["start_ns"].min().dropna()
    if len(first) < 2 or int(first.max()) - int(first.min()) < _HALF_YEAR_NS:
        return []
    remark = "one year= used for files half a year apart; load those of another year with theirs"
    return _by_file(dated, remark)


def _one_failure_in_many_files(incidents: pd.DataFrame) -> list[Finding]:
    """Flag reports that only side by side could be told for one failure."""
    reports = incidents[incidents["kind"].isin(_SHARED) & incidents["category"].ne("follow-on")]
    reports = reports[reports["start_ns"].notna()].sort_values("start_ns", kind="stable")
    same = ["kind", "cause"]
    is_close = (reports.groupby(same)["start_ns"].diff() <= _SHARED_NS).fillna(value=False)
    is_other = reports["source"].ne(reports.groupby(same)["source"].shift())
    remark = "failures that another file reports as well, minutes before; join the files of one job"
    return _by_file(reports[is_close & is_other], remark)


def _attempts_counted_anew(logs: Sequence[LogPart], timeline: pd.DataFrame) -> list[Finding]:
    runs = timeline[timeline["state"].eq("running") & timeline["attempt"].notna()]
    runs = runs[runs["job"].notna()]
    format_of = {log.findings.source: log.format_name for log in logs}
    kind = runs["source"].astype(str).map(format_of).fillna("")
    first = runs.groupby(["job", "attempt", kind])["source"].transform("first")
    anew = runs["source"].ne(first)
    remark = "runs of a job whose attempts another file counts, too; load its runs from one file"
    first_source = runs.groupby(["job", "attempt"])["source"].transform("first")
    twice = runs["source"].ne(first_source) & ~anew
    also = "runs of a job that a log of another kind also reports; sum the rows of one source"
    return [*_by_file(runs[anew], remark), *_by_file(runs[twice], also, "noted")]


# Which hosts the logs name, and over which time they watched each.

_CLOCKS = ("epoch", "own", "none")


def node_spans(
    failures: pd.DataFrame, timeline: pd.DataFrame, logs: Sequence[LogPart]
) -> pd.DataFrame:
    """Return table NODE_SPANS of what was loaded.

    A host that is named on clocks of several kinds has the span of the best of them.
    """
    seen = pd.DataFrame(
        [*_of_failures(failures), *_of_timeline(timeline), *_of_parts(logs)],
        columns=["node", "clock", "first_ns", "last_ns"],
        dtype=object,  # whole nanoseconds would not survive as floats
    )
    if seen.empty:
        return NODE_SPANS.empty()
    for name in ("first_ns", "last_ns"):
        seen[name] = pd.array(seen[name].tolist(), dtype="Int64")
    seen["order"] = seen["clock"].map(_CLOCKS.index)
    spans = seen.groupby(["node", "order"], sort=True).agg(
        clock=("clock", "first"), first_ns=("first_ns", "min"), last_ns=("last_ns", "max")
    )
    spans = spans.reset_index().drop_duplicates("node").drop(columns="order")
    gpus: dict[str, int | None] = {}
    for log in logs:
        gpus |= {node: count for node, count in log.nodes.items() if count is not None}
    counts = failures["node"].value_counts()
    spans["gpu_count"] = pd.array([gpus.get(node) for node in spans["node"]], dtype="Int64")
    spans["failure_count"] = [int(counts.get(node, 0)) for node in spans["node"]]
    return NODE_SPANS.check(NODE_SPANS.cast(spans.reset_index(drop=True)))


_Seen = tuple[str, str, int | None, int | None]


def _of_failures(failures: pd.DataFrame) -> Iterator[_Seen]:
    placed = failures[failures["node"].notna()]
    grouped = placed.groupby(["node", "clock"])
    spans = grouped.agg(first=("start_ns", "min"), last=("end_ns", "max"))
    for (node, clock), first, last in spans.itertuples(name=None):
        yield node, clock, _number(first), _number(last)


def _of_timeline(timeline: pd.DataFrame) -> Iterator[_Seen]:
    placed = timeline[timeline["nodes"].notna()]
    ends = placed["end_ns"].fillna(placed["start_ns"])
    # Many runs share a list, and lists may be of thousands of hosts: each is taken apart once.
    grouped = placed.assign(end_ns=ends).groupby(["nodes", "clock"], sort=False)
    spans = grouped.agg(first=("start_ns", "min"), last=("end_ns", "max"))
    for (nodes, clock), first, last in spans.itertuples(name=None):
        for node in nodes.split(","):
            if node.strip():
                yield node.strip(), clock, _number(first), _number(last)


def _of_parts(logs: Sequence[LogPart]) -> Iterator[_Seen]:
    for log in logs:
        for node in log.nodes:
            yield node, "none", None, None
        for node, (first, last) in log.watched.items():
            yield node, "epoch", first, last


def _number(value: object) -> int | None:
    return None if pd.isna(value) else int(value)  # type: ignore[call-overload]


# Failures and states that two files of one load both hold.

_SAME = ["kind", "node", "device", "rank", "code", "job", "start_ns"]
_SAME_STATE = ["job", "replica", "state", "start_ns"]


def without_repeats(failures: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Take each failure once if several files hold it.

    Two rows are the same if host (or job, or rank of a collective), device, code and time are
    equal and they come from different files: ``dmesg`` and ``kern.log`` of one host. If one
    file has several such rows, that many are kept; of events that stand for repeats, the
    state that stands for most. The last code of a GPU, whose time nobody knows, is one
    failure however many pages show it.
    """
    has_place = failures["node"].notna() | failures["job"].notna()
    # Stamps of NCCL's watchdog are exact to the nanosecond.
    has_place |= failures["kind"].eq("nccl") & failures["rank"].notna()
    is_page = failures["kind"].eq("dcgm") & failures["node"].notna()
    placed = failures[has_place & failures["start_ns"].notna() | is_page]
    if placed["source"].nunique() < 2:
        return failures, failures.iloc[:0]
    key = placed.groupby(_SAME, dropna=False, sort=False).ngroup()
    rows = pd.DataFrame({"key": key, "source": placed["source"], "count": placed["line_count"]})
    counts = rows.groupby(["key", "source"], sort=False)["count"].sum().reset_index()
    fullest = counts.loc[counts.groupby("key", sort=False)["count"].idxmax()]
    kept = fullest.set_index("key")["source"].reindex(key).to_numpy()
    repeats = placed.index[placed["source"].to_numpy() != kept]
    return failures.drop(index=repeats), failures.loc[repeats]


def without_repeated_states(timeline: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Take each state of a job once if several files hold it: accounts of days that overlap.

    Of a state that one file saw begin and another saw end, the ended one is kept. Rows without
    a job are the same only if everything else is equal, too.
    """
    placed = timeline[timeline["start_ns"].notna() & timeline["clock"].eq("epoch")]
    if placed["source"].nunique() < 2:
        return timeline, timeline.iloc[:0]
    has_job, ends = placed["job"].notna(), placed["end_ns"].notna()
    columns = [str(name) for name in placed if name not in ("source", "line")]
    repeats = [
        # Files count the attempts of a job from the first one that they know.
        *_held_before(placed[has_job & ends], [*_SAME_STATE, "end_ns"]),
        *_held_before(placed[~has_job], columns),
    ]
    placed = placed[has_job].sort_values("end_ns", kind="stable", na_position="last")
    lasting = placed.loc[_held_before(placed, _SAME_STATE), "end_ns"].isna()
    repeats = sorted({*repeats, *lasting.index[lasting]})
    return timeline.drop(index=repeats), timeline.loc[repeats]


def _held_before(rows: pd.DataFrame, same: Sequence[Hashable]) -> list[int]:
    key = rows.groupby(list(same), dropna=False, sort=False).ngroup()
    first = rows["source"].groupby(key).transform("first")
    return rows.index[rows["source"].ne(first)].tolist()
