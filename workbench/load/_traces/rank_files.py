"""The traces of a job one rank at a time: listed from their heads, then loaded one by one."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import pandas as pd

from workbench._shared.kernel_kinds import read_rules
from workbench._shared.progress import progress as progress_bar
from workbench._shared.rank_sets import joint_state, over_ranks, quality_of_set, rank_state
from workbench.errors import LoadError, WorkbenchError
from workbench.load._files.archive import Paths, Source, Walk, shown_all, streams, survey
from workbench.load._files.findings import Dropped, guarded, quality_frame
from workbench.load._files.json_events import to_integer
from workbench.load._files.rank_names import RankArgument, Ranked, Window, rank_in_name, ranked
from workbench.load._files.signatures import PROFILES
from workbench.load._files.stream import Stream
from workbench.load._traces import parquet
from workbench.load._traces.kineto.reader import EngineName
from workbench.load._traces.nsight.reader import nsight_ranks
from workbench.load._traces.reader import (
    RankReader,
    assemble,
    by_format,
    cache_folder,
    joined_sets,
)
from workbench.load._traces.rocm.rocpd import rocpd_ranks
from workbench.load._traces.selection import (
    Columns,
    Steps,
    checked_columns,
    checked_steps,
    judged_columns,
    within_columns,
    within_steps,
)
from workbench.tables import (
    QUALITY,
    RANK_FILES,
    Trace,
)

# Metadata before the events: device properties of eight GPUs and a thousand process groups.
_HEAD_BYTES = 64 << 10
_LONG_HEAD_BYTES = 4 << 20
_INFO = re.compile(r'"distributedInfo"\s*:\s*')
_EVENTS = re.compile(r'"traceEvents"\s*:')
_STAMP = re.compile(rb'"ts"\s*:\s*"?(\d+(?:\.\d*)?)')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')


@dataclass(frozen=True)
class RankFile:
    """One rank of a job and the file that holds its trace, which :meth:`load` reads.

    It is plain data of a few hundred bytes, so it can be sent to another process or machine that
    sees the same file system.
    """

    rank: int
    rank_source: str
    world_size: int | None
    source: Source
    reader: RankReader
    is_stored: bool = False  # as Parquet, whose tables are complete
    steps: Steps = None
    columns: Columns = None

    @property
    def label(self) -> str:
        """The file, or the archive and its member."""
        return self.source.label

    @property
    def size_bytes(self) -> int:
        """Size of the file as it is stored."""
        return self.source.size_bytes

    def load(self) -> Trace:
        """Load this rank, as :func:`workbench.load.traces` loads it by itself.

        Returns
        -------
        Trace
            The tables of one rank; its number is that of the set.

        Raises
        ------
        FileNotFoundError
            If the file is gone.
        LoadError
            If it is damaged beyond repair, or states another rank behind its events than before.
        """
        return self.read(None)

    def read(self, stream: Stream | None) -> Trace:
        """Load this rank from a stream that is open already; None opens the file."""
        with guarded(self.label):
            if self.is_stored:
                if stream is not None:
                    stream.close()
                return parquet.parquet(self.source.path, self.steps, self.columns)
            ranks = self.reader.read(self.source, stream)
            if len(ranks) > 1:
                msg = f"{self.label}: holds {len(ranks)} ranks, which load.traces reads together"
                raise LoadError(msg)
            (tables,) = ranks
            stated = tables.stated_rank
            if self.rank_source != "argument" and stated not in (None, self.rank):
                msg = (
                    f"{self.label}: states rank {stated} behind its events, but is rank "
                    f"{self.rank} by {self.rank_source}; pass rank={{'part of the file name': "
                    "number, ...}"
                )
                raise LoadError(msg)
            whole = assemble([Ranked(self.rank, self.rank_source, tables)])
            part = within_steps(whole, self.steps, self.label)
            return within_columns(part, self.columns, self.label)


@dataclass(frozen=True)
class RankFiles(Sequence[RankFile]):
    """The ranks of a job in order, each with its file; nothing but heads has been read."""

    files: tuple[RankFile, ...]
    quality: pd.DataFrame

    @overload
    def __getitem__(self, index: int) -> RankFile: ...
    @overload
    def __getitem__(self, index: slice) -> RankFiles: ...
    def __getitem__(self, index: int | slice) -> RankFile | RankFiles:
        """Return the file at a place, or some of the files."""
        if isinstance(index, slice):
            return replace(self, files=self.files[index])
        return self.files[index]

    def __len__(self) -> int:
        """Return the number of ranks."""
        return len(self.files)

    def each(self) -> Iterator[tuple[RankFile, Trace | Exception]]:
        """Load one rank after the other, or say why it cannot be read.

        Yields
        ------
        tuple of RankFile and Trace
            In order of rank; members of an archive in their order, so that it is unpacked once.
            In place of the trace of a file that cannot be read, the error.
        """
        files, walk = list(self.files), Walk()
        if self.needs_one_pass:
            files.sort(key=_place)
        try:
            for file in files:
                loaded: Trace | Exception
                try:
                    loaded = file.read(walk.opened(file.source))
                except (WorkbenchError, OSError) as error:
                    loaded = error
                yield file, loaded
                # Else this rank would stay in memory while the next one is read.
                del loaded
        finally:
            walk.close()

    def load(self, ranks: Collection[int]) -> Trace:
        """Load some ranks together; the files of the others are not parsed.

        Parameters
        ----------
        ranks
            Numbers of ranks, at least one.

        Returns
        -------
        Trace
            Their tables; ``quality`` says that ranks of the job are not loaded.

        Raises
        ------
        LoadError
            If a rank is not there, or its file cannot be read.
        """
        by_rank = {file.rank: file for file in self.files}
        wanted = sorted({int(rank) for rank in ranks})
        if not wanted or not set(wanted) <= set(by_rank):
            lacking = next((rank for rank in wanted if rank not in by_rank), "none")
            msg = f"ranks: {lacking} of {len(self)} listed ranks, {min(by_rank)} to {max(by_rank)}"
            raise LoadError(msg)
        columns = self.files[0].columns
        read = judged_columns(columns)
        sets = [replace(by_rank[rank], columns=read).load() for rank in wanted]
        return joined_sets(sets, columns)

    @property
    def needs_one_pass(self) -> bool:
        """Whether a file by itself would be unpacked from the beginning of its archive."""
        places = (file.source.place for file in self.files)
        return any(place is not None and place.layer == "gzip" for place in places)

    @property
    def table(self) -> pd.DataFrame:
        """Table :data:`workbench.tables.RANK_FILES`, one row per rank."""
        names = ("rank", "rank_source", "world_size", "size_bytes")
        rows = [
            {name: getattr(file, name) for name in names} | {"source": file.label}
            for file in self.files
        ]
        return RANK_FILES.of(rows) if rows else RANK_FILES.empty()


def rank_files(  # noqa: PLR0913 - the options of load.traces
    path: Paths,
    *,
    rank: RankArgument = None,
    window: Window = None,
    args: Sequence[str] = (),
    rules: pd.DataFrame | str | Path | None = None,
    engine: EngineName = "auto",
    cache: str | Path | None = None,
    steps: Steps = None,
    columns: Columns = None,
) -> RankFiles:
    """List the ranks of a job and the file of each, from the heads of the files alone.

    A thousand ranks are listed in seconds and checked for two files of one rank, before anything is
    parsed. :func:`workbench.analyze.by_rank` then takes one rank after the other.

    Parameters
    ----------
    path, rank, window, args, rules, engine, cache, steps, columns
        As for :func:`workbench.load.traces`; execution traces, which are graphs, are refused.

    Returns
    -------
    RankFiles
        A sequence of files in order of rank, each with ``rank``, ``rank_source``, ``world_size``,
        ``label``, ``size_bytes`` and ``load()``; ``table`` lists them, ``quality`` says what was
        skipped.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` is a profiler trace, or two files claim one rank.
    """
    steps, columns = checked_steps(steps), checked_columns(columns)
    files, dropped = survey(path), Dropped()
    sources_by_format, findings = by_format(path, files, dropped)
    name = next(
        (name for name in ("kineto", *PROFILES, "parquet") if name in sources_by_format), None
    )
    if name is None:
        of_format, (source, *_) = next(iter(sources_by_format.items()))
        msg = (
            f"{source.label}: is of the format {of_format}, which is loaded as a whole "
            "(load.traces); rank by rank goes for profiler traces"
        )
        raise LoadError(msg)
    sources = sources_by_format.pop(name)
    for other, passed_over in sources_by_format.items():
        reason = f"{other}: read by load.traces only"
        findings += [(one.label, "skipped by design", reason, 1, None) for one in passed_over]
    own_rules = read_rules(rules) if isinstance(rules, str | Path) else rules
    reader = RankReader(tuple(args), own_rules, engine, cache_folder(cache), format=name)
    heads_of = {"kineto": _heads, "parquet": _stored_heads}
    heads_of |= {database: partial(_heads_of_processes, database) for database in _RANKS_OF}
    heads = heads_of.get(name, _heads_without_rank)(sources, dropped)
    if not heads:
        dropped.raise_if_all()
    with guarded(shown_all(path)):
        numbered = ranked(heads, rank, window, findings)
    listed = tuple(
        RankFile(
            number, told_by, head.world_size, head.source, reader, name == "parquet", steps, columns
        )
        for number, told_by, head in numbered
    )
    return RankFiles(listed, quality_frame([*findings, *dropped.rows]))


def many_ranks(path: Paths, most_ranks: int | None, window: Window = None) -> RankFiles | None:
    """List the ranks of a job of more than ``most_ranks``, None for any other set of traces.

    Files that are of several jobs by their heads, and formats without ranks of their own, are left
    to whoever loads them as a whole and says so.
    """
    if most_ranks is None:
        return None
    try:
        files = rank_files(path, window=window)
    except LoadError as error:
        # Two files of one rank are two in a whole load as well, but only after parsing all.
        if "rank=" in str(error):
            raise
        return None
    sizes = {file.world_size for file in files} - {None}
    if len(files) <= most_ranks or len(sizes) > 1:
        return None
    # Heads do not tell how many GPUs a process used, each of which is a rank.
    if not files[0].is_stored:
        with contextlib.suppress(WorkbenchError, OSError):
            return None if len(files[0].load().ranks) > 1 else files
    return files


def quality_of_ranks(files: RankFiles, *, progress: bool = True) -> pd.DataFrame:
    """Read one rank after the other for its quality alone."""
    states, dropped = {}, Dropped()
    total = sum(file.size_bytes for file in files)
    with progress_bar(total=total, unit="B", label="checking traces", enabled=progress) as bar:
        for file, state in over_ranks(files, rank_state):
            if isinstance(state, Exception):
                dropped.add(file.label, state)
            elif state is not None:
                states[file.rank] = state
            bar.update(file.size_bytes)
    if not states:
        dropped.raise_if_all()
    state = joint_state([states[rank] for rank in sorted(states)])
    quality = quality_of_set(state, files.quality, ())
    return QUALITY.joined([quality, quality_frame(dropped.rows)])


def _heads(sources: Sequence[Source], dropped: Dropped) -> list[_Head]:
    heads = []
    for source, stream in streams(sources, dropped):
        with dropped.trying(source.label):
            heads.append(_head(source, stream))
    return heads


def _heads_without_rank(sources: Sequence[Source], dropped: Dropped) -> list[_Head]:  # noqa: ARG001 - one signature for all formats
    return [_Head(source, None, None, None) for source in sources]


# Databases list their processes at once.
_RANKS_OF: Mapping[str, Callable[..., Sequence[tuple[Source, Any]]]] = {
    "nsight": nsight_ranks,
    "rocpd": rocpd_ranks,
}


def _heads_of_processes(name: str, sources: Sequence[Source], dropped: Dropped) -> list[_Head]:
    heads = []
    for source, stream in streams(sources, dropped):
        with dropped.trying(source.label), stream:
            heads += [
                _Head(part, process.rank, process.world_size, None)
                for part, process in _RANKS_OF[name](source, stream)
            ]
    return heads


def _stored_heads(sources: Sequence[Source], dropped: Dropped) -> list[_Head]:
    heads = []
    for source in sources:
        with dropped.trying(source.label), guarded(source.label):
            ranks = parquet.header(source.path)[1]["ranks"]
            # The GPUs of a process are stored together.
            if ranks["source"].str.replace(r"!GPU \d+$", "", regex=True).nunique() != 1:
                msg = (
                    f"{source.label}: holds {len(ranks)} ranks together; 'workbench convert SOURCE "
                    "FOLDER' writes one file per rank"
                )
                raise LoadError(msg)
            number, world, first = ranks[["rank", "world_size", "first_ns"]].iloc[0]
            known = (None if pd.isna(value) else int(value) for value in (world, first))
            heads.append(_Head(source, int(number) // len(ranks), *known))
    return heads


def _place(file: RankFile) -> tuple[str, int]:
    place = file.source.place
    return str(file.source.path), place.start if place else 0


@dataclass(frozen=True)
class _Head:
    """The part of a file before its events that says which rank it is."""

    source: Source
    stated_rank: int | None
    world_size: int | None
    first_ns: int | None
    last_ns: int | None = None  # behind the head

    @property
    def label(self) -> str:
        return self.source.label

    @property
    def name_rank(self) -> int | None:
        return rank_in_name(self.label)


def _head(source: Source, stream: Stream) -> _Head:
    head = stream.read(_HEAD_BYTES)
    if _distributed_info(head) is None or _first_ns(head) is None:
        head += stream.read(_LONG_HEAD_BYTES)
    info = _distributed_info(head) or {}
    rank, world = to_integer(info.get("rank")), to_integer(info.get("world_size"))
    is_rank = rank is not None and 0 <= rank < 1 << 31
    world = world if world and world > 0 else None
    return _Head(source, rank if is_rank else None, world, _first_ns(head))


def _first_ns(head: bytes) -> int | None:
    """Return the time of the first event as written, which tells windows of one rank apart."""
    events = re.search(rb'"traceEvents"\s*:', head)
    stamp = events and _STAMP.search(head, events.end())
    base = _BASE.search(head)
    return int(float(stamp[1]) * 1e3) + (int(base[1]) if base else 0) if stamp else None


def _distributed_info(head: bytes) -> dict[str, object] | None:
    """Return what a head states of the job, {} for nothing; None if it ends too early to tell."""
    text = head.decode("utf-8", errors="replace")
    events = _EVENTS.search(text)
    found = _INFO.search(text, 0, events.start() if events else len(text))
    if found is None:
        return {} if events else None
    try:
        info, _ = json.JSONDecoder().raw_decode(text, found.end())
    except (ValueError, RecursionError):
        return None
    return info if isinstance(info, dict) else {}
