"""Report on the readable and unreadable parts of any input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbench._shared.rank_sets import MOST_RANKS
from workbench.errors import LoadError
from workbench.load._files.archive import Paths, given_paths, shown_all
from workbench.load._files.findings import Dropped, Finding, quality_frame
from workbench.load._files.rank_names import Window
from workbench.load._files.text import CUT_LINE, REST
from workbench.load._files.time import BootTime, Hosts
from workbench.load._files.wanted import STORED_SUFFIX
from workbench.load._fleet.same_job import same_job
from workbench.load._fleet.several_jobs import read_kind
from workbench.load._power.part import Unit
from workbench.load._traces.rank_files import many_ranks, quality_of_ranks
from workbench.load.kinds import Kind, Options, Told, kind_named, told, unfit
from workbench.tables import QUALITY, SAYS_SYNTHETIC, FailureLog, Injections
from workbench.tables.traces import UNREAD

_PACKED = "is inside an archive, where only logs, traces and injections are read; unpack it"


def quality(  # noqa: PLR0913 - the entry point
    path: Paths,
    *,
    tz: str | None = None,
    year: int | None = None,
    boot_time: BootTime = None,
    node: Hosts = None,
    unit: Unit | None = None,
    window: Window = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Read whatever is under a path and report on its state, not on its content.

    Every kind of data in :data:`workbench.load.kinds.KINDS` is read by its own function. If several
    kinds lie together and one cannot be read (because ``tz`` is not given, say), that is a finding.

    Parameters
    ----------
    path
        A file, directory or archive, or a list of these.
    tz, year, boot_time, node, unit, progress
        As for :func:`fleet`.
    window
        As for :func:`traces`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.QUALITY`: ``source``, ``finding``, ``what``, ``count``,
        ``where``. Findings other than :data:`workbench.tables.HARMLESS` need a look.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing is recognised or can be read, or a log needs ``tz``, ``year``, ``boot_time`` or
        ``unit``; names file, place and remedy.
    """
    path = path if isinstance(path, str | Path) else given_paths(path)
    files = told(path)
    if not files.names:
        raise unfit(path, files)
    options = Options(tz, year, boot_time, node, unit, window=window)
    read: dict[str, Any] = {}
    frames: dict[str, pd.DataFrame] = {}
    errors: list[LoadError] = []
    for name in files.names:
        try:
            place = files.place(name, path)
            read[name], frames[name] = _read(kind_named(name), place, files, options, progress)
        except LoadError as error:
            errors.append(error)
            row = (shown_all(path), "dropped", f"{UNREAD}{name}: {error}", 1, None)
            frames[name] = quality_frame([row])
    # One kind of several that cannot be read is a finding; if none can, there is no report.
    if len(errors) == len(files.names):
        raise errors[0]
    return joined(frames, files, same_job(path, read, tz))


def joined(
    frames: Mapping[str, pd.DataFrame], files: Told, more: Sequence[Finding] = ()
) -> pd.DataFrame:
    """Put the findings of several doors together, those of a file from whom it concerns.

    A door says of every file that it did not take why not. That concerns nobody where another door
    took it, and is said once where nobody did. What a door dropped from a file that it did take
    stays.
    """
    kept = []
    for name, frame in frames.items():
        is_passed = frame["finding"].isin(["dropped", "skipped by design"])
        foreign = {label for label, kinds in files.kinds.items() if name not in kinds}
        # Files that nobody wants are reported once, by the survey of all kinds.
        foreign |= {row[0] for row in files.passed_over}
        # Single tables of a stored set are spoken of as the set.
        is_foreign = frame["source"].isin(foreign) | frame["source"].str.endswith(STORED_SUFFIX)
        kept.append(frame[~(is_passed & is_foreign)])
    kept.append(quality_frame([*files.unknown, *files.passed_over, *more]))
    filled = [frame for frame in kept if len(frame)]
    if not filled:
        return QUALITY.empty()
    together = pd.concat(filled, ignore_index=True).drop_duplicates(ignore_index=True)
    return QUALITY.check(QUALITY.cast(together))


def _read(
    kind: Kind, path: Paths, files: Told, options: Options, progress: bool
) -> tuple[Any, pd.DataFrame]:
    if (
        kind.name == "traces"
        and (ranks := many_ranks(path, MOST_RANKS, options.window)) is not None
    ):
        return None, quality_of_ranks(ranks, progress=progress)
    if not kind.is_one_file:
        loaded, notes = read_kind(path, files, kind, options, progress=progress)
        return loaded, QUALITY.joined([loaded.quality, quality_frame(notes)])
    rows: list[Finding] = []
    dropped = Dropped()
    for label, kinds in files.kinds.items():
        if kind.name in kinds and files.sources[label].member:
            rows.append((label, "dropped", _PACKED, 1, None))
        elif kind.name in kinds:
            with dropped.trying(label):
                rows += _noted(label, kind.read(files.sources[label].path, options), kind.name)
    if not rows:
        dropped.raise_if_all()
    return None, quality_frame([*rows, *dropped.rows])


def _noted(label: str, loaded: Any, name: str) -> list[Finding]:
    if isinstance(loaded, FailureLog | Injections):
        rows = loaded.quality.drop(columns="source")
        return [(label, *row) for row in rows.itertuples(index=False, name=None)]
    return _of_table(label, getattr(loaded, "sites", loaded), name)


def _of_table(label: str, table: pd.DataFrame, name: str) -> list[Finding]:
    rows: list[Finding] = [(label, "read", name, len(table), None)]
    left_out: Mapping[str, int] = table.attrs.get("left_out", {})
    for reason, count in left_out.items():
        finding = "truncated" if reason in (CUT_LINE, REST) else "skipped by design"
        rows.append((label, finding, reason, count, None))
    if table.attrs.get("synthetic", False):
        rows.append((label, "noted", SAYS_SYNTHETIC, 1, None))
    rows += [(label, "suspicious", doubt, 1, None) for doubt in table.attrs.get("doubts", ())]
    if column := table.attrs.get("column"):
        rows.append((label, "noted", f"taken from column {column!r}", 1, None))
    return rows
