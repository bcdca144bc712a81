"""Ranks of files: what the caller gives, what a file states, and what its name states."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Generic, Literal, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from workbench._shared.kernel_kinds import SEVERAL_WINDOWS
from workbench.errors import LoadError
from workbench.load._files.findings import Finding

# One text for all ranks, so that many files make one finding.
NO_RANK_TOLD = "rank by the order of the files; not found in the metadata or the file name"

RankArgument = int | Mapping[str, int] | Sequence[int] | None
# Which of several recordings of one rank, in order of time.
Window = Literal["first", "last"] | int | None
# HOST_PID.NS.pt.trace.json of PyTorch's handler, and plugins/profile/RUN/HOST.xplane.pb of JAX.
_STAMP = re.compile(r"\.(\d{13,19})(?=\.pt\.trace\.json)|plugins/profile/([^/]+)/(?=[^/]+$)")

# Whole numbers only, and not the digits of a date or process id that follow.
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_]?(\d{1,6})(?!\d)|(?:^|[-_/.])r(\d{1,6})-")
# Chakra names its files job.RANK.et.
_CHAKRA = re.compile(r"\.(\d{1,6})\.(?:et|json)(?:\.(?:gz|bz2|xz|zstd?|lz4))?$")
_LISTED = 8
_EPOCH_NS = 1_262_304_000_000_000_000  # 2010; clocks that count from a boot stay far below
_LARGEST_RANK = (1 << 31) - 1  # what int32, the type of the column, can hold


class HasRank(Protocol):
    """A reader's knowledge of one file before it is placed among others."""

    @property
    def label(self) -> str: ...
    @property
    def stated_rank(self) -> int | None: ...
    @property
    def name_rank(self) -> int | None: ...
    @property
    def world_size(self) -> int | None: ...
    @property
    def first_ns(self) -> int | None: ...
    @property
    def last_ns(self) -> int | None: ...


File = TypeVar("File", bound=HasRank)


def process_in_name(label: str) -> tuple[str, str | None]:
    """Return the name that files of one process share, and when a window was recorded.

    Examples
    --------
    >>> process_in_name("run/vm_14625.1795899773253161671.pt.trace.json.gz")
    ('vm_14625.pt.trace.json.gz', '1795899773253161671')
    >>> process_in_name("log/plugins/profile/2026_11_28_21_28_07/vm.xplane.pb")
    ('vm.xplane.pb', '2026_11_28_21_28_07')
    >>> process_in_name("iteration_10/rank0_trace.json")
    ('rank0_trace.json', None)
    """
    path = label.replace("\\", "/")
    stamp = _STAMP.search(path)
    name = _STAMP.sub("", path).partition("!document ")[0].rpartition("/")[2]
    return name, stamp and (stamp[1] or stamp[2])


class Ranked(NamedTuple, Generic[File]):
    """A file, its rank, and where the rank is from."""

    rank: int
    source: str
    file: File


def rank_in_name(label: str, *, is_chakra: bool = False) -> int | None:
    """Return the rank that a file's name states, None if it states none or several.

    Only the last part of the path counts.

    Examples
    --------
    >>> rank_in_name("run/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz")
    34
    >>> rank_in_name("jobs.tar.gz!dlrm/worker7_step_12.1694128201553.pt.trace.json")
    7
    >>> rank_in_name("llama.3.et", is_chakra=True)
    3
    >>> rank_in_name("ranking_v2.json") is None
    True
    """
    name = re.split(r"[/\\!]", label)[-1].lower()
    ranks = {int(word or letter) for word, letter in _RANK.findall(name)}
    if is_chakra:
        ranks |= {int(number) for number in _CHAKRA.findall(name)}
    return ranks.pop() if len(ranks) == 1 else None


def given_ranks(labels: Sequence[str], given: RankArgument) -> list[int | None]:
    """Return the rank that the caller gives for each file, None where none is given.

    Examples
    --------
    >>> given_ranks(["a/node3.et", "a/node4.et"], {"node3": 0, "node4": 1})
    [0, 1]
    """
    if given is None:
        return [None] * len(labels)
    if isinstance(given, int):
        if len(labels) != 1:
            msg = f"rank={given} is one rank for {len(labels)} files; pass a list or a dict"
            raise LoadError(msg)
        given = [given]
    ranks: list[int | None]
    if isinstance(given, Mapping):
        _refuse_unused(labels, given)
        ranks = [_by_name(label, given) for label in labels]
    else:
        ranks = list(given)
    if len(ranks) != len(labels):
        msg = f"{len(ranks)} ranks were given for {len(labels)} files; they must be as many"
        raise LoadError(msg)
    for rank in ranks:
        is_whole = isinstance(rank, int | np.integer) and not isinstance(rank, bool)
        if rank is not None and not (is_whole and 0 <= rank <= _LARGEST_RANK):
            msg = f"rank={rank!r} is not a rank; give whole numbers from 0 to {_LARGEST_RANK:,}"
            raise LoadError(msg)
    return ranks


def _refuse_unused(labels: Sequence[str], given: Mapping[str, int]) -> None:
    """Raise for keys that fit no file: misspelt, they would leave a file without its rank."""
    if unused := [text for text in given if not any(text in label for label in labels)]:
        names = [re.split(r"[/\\]", label)[-1] for label in labels]
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        msg = (
            f"rank= names {unused}, which no file name has: {', '.join(names[:_LISTED])}{more}; "
            "keys are parts of file names"
        )
        raise LoadError(msg)


def _by_name(label: str, given: Mapping[str, int]) -> int | None:
    hits = {rank for text, rank in given.items() if text in label}
    if len(hits) > 1:
        msg = f"{label}: several keys of rank= fit this file, with ranks {sorted(hits)}"
        raise LoadError(msg)
    return hits.pop() if hits else None


def ranked(
    files: Sequence[File],
    given: RankArgument,
    window: Window = None,
    remarks: list[Finding] | None = None,
) -> list[Ranked[File]]:
    """Assign a rank to every file, in order of rank, and take one window of each.

    The argument goes first, then what the trace states, then the file's name. Files without
    any rank are numbered in order, and that is called assumed. Windows of one process are
    one rank, of which the last that every rank has is taken unless another is chosen, with a row
    in ``remarks`` for each; without ``remarks`` a second file of one rank is refused.
    """
    _check_window(window)
    settled: list[Ranked[File]] = []
    unknown: list[File] = []
    asked = given_ranks([file.label for file in files], given)
    # The caller knows best, then the metadata; the name of a file may have been changed.
    for file, argument in zip(files, asked, strict=True):
        sources = {"argument": argument, "trace": file.stated_rank, "file name": file.name_rank}
        stated = ((name, rank) for name, rank in sources.items() if rank is not None)
        source, rank = next(stated, ("", None))
        if rank is None:
            unknown.append(file)
        else:
            settled.append(Ranked(rank, source, file))
    if unknown and settled:
        msg = (
            f"{unknown[0].label}: rank not found in the metadata or the file name, though other "
            f"files state theirs ({settled[0].file.label}: {settled[0].rank}). Load it by itself "
            "if it is of another job, or pass rank={'part of the file name': number, ...}"
        )
        raise LoadError(msg)
    processes = [[file] for file in unknown] if remarks is None else _processes(unknown)
    for number, windows in enumerate(processes):
        settled += [Ranked(number, "assumed", file) for file in windows]
    by_rank: dict[int, list[Ranked[File]]] = {}
    for entry in settled:
        by_rank.setdefault(entry.rank, []).append(entry)
    most = min((len(windows) for windows in by_rank.values()), default=1) - 1
    return [_one_window(by_rank[rank], window, most, remarks) for rank in sorted(by_rank)]


def _processes(files: Sequence[File]) -> list[list[File]]:
    """Group files that state no rank by the process that wrote them, one window after another."""
    by_name: dict[str, list[File]] = {}
    for file in files:
        by_name.setdefault(process_in_name(file.label)[0], []).append(file)
    # By identity: files hold tables, which have no single answer to being equal.
    places = {id(file): place for place, file in enumerate(files)}
    groups: list[list[File]] = []
    for windows in by_name.values():
        groups += [windows] if _follow(windows) else [[file] for file in windows]
    return sorted(groups, key=lambda group: places[id(group[0])])


def _follow(files: Sequence[HasRank], *, is_one_rank: bool = False) -> bool:
    """Return whether files of one name were recorded one after the other, as ranks are not."""
    stamps = [process_in_name(file.label)[1] for file in files]
    times = [(file.first_ns, file.last_ns) for file in files if file.first_ns is not None]
    spans = sorted((first, last) for first, last in times if last is not None)
    if len(spans) == len(files):
        is_apart = all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
        # Other clocks begin at the boot of their host.
        return is_apart and (is_one_rank or None not in stamps or spans[0][0] >= _EPOCH_NS)
    # Of some files only the heads were read.
    has_times = is_one_rank and len(times) == len(files)
    starts = {first for first, _ in times} if has_times else set(stamps)
    return None not in starts and len(starts) == len(files)


def _check_window(window: Window) -> None:
    is_number = isinstance(window, int) and not isinstance(window, bool) and window >= 0
    if not (window in (None, "first", "last") or is_number):
        msg = f"window={window!r}: must be 'first', 'last' or the number of a window, from 0"
        raise LoadError(msg)


def _one_window(
    windows: Sequence[Ranked[File]], window: Window, most: int, remarks: list[Finding] | None
) -> Ranked[File]:
    """Choose among the files of one rank, which a profiler writes one after the other."""
    if len(windows) == 1 and not isinstance(window, int):
        return windows[0]
    if remarks is None or (window is None and not _are_of_one_process(windows)):
        _refuse_twins(*windows[:2])
    starts = [_start(entry.file) for entry in windows]
    if len(windows) > 1 and (None in starts or len(set(starts)) < len(starts)):
        names = " and ".join(entry.file.label for entry in windows[:2])
        msg = (
            f"window={window!r}: files of rank {windows[0].rank} do not state when they were "
            f"recorded, or are copies: {names}; load the files of one window"
        )
        raise LoadError(msg)
    in_order = sorted(windows, key=lambda entry: _start(entry.file) or (0, ""))
    named: dict[Window, int] = {None: most, "first": 0, "last": len(windows) - 1}
    number = window if isinstance(window, int) else named[window]
    if number >= len(windows):
        msg = (
            f"window={window}: rank {windows[0].rank} has {len(windows)} "
            f"window{'s' * (len(windows) > 1)}, numbered from 0 ({windows[0].file.label})"
        )
        raise LoadError(msg)
    for at, entry in enumerate(in_order if len(windows) > 1 else ()):
        finding = "skipped by design" if at != number else "assumed" if window is None else "noted"
        what = f"{SEVERAL_WINDOWS}: number {at} of 0 to {len(windows) - 1}, in order of time"
        what += ", the last that every rank has; pass window= for another" * (finding == "assumed")
        remarks.append((entry.file.label, finding, what, 1, None))
    return in_order[number]


def _start(file: HasRank) -> tuple[int, str] | None:
    stamp = process_in_name(file.label)[1]
    return None if file.first_ns is None and stamp is None else (file.first_ns or 0, stamp or "")


def _are_of_one_process(windows: Sequence[Ranked[File]]) -> bool:
    """Return whether files of one rank are surely windows of one job, by names and times."""
    if windows[0].source == "assumed":
        return True
    files = [entry.file for entry in windows]
    names = {process_in_name(file.label)[0] for file in files}
    sizes = {file.world_size for file in files}
    return len(names) == 1 and len(sizes) == 1 and sizes != {1} and _follow(files, is_one_rank=True)


def _refuse_twins(twin: Ranked[File], entry: Ranked[File]) -> NoReturn:
    alone = entry.file.world_size == twin.file.world_size == 1
    why = "; each states that it is the only rank of its job" if alone else ""
    msg = (
        f"two files are rank {entry.rank}: {twin.file.label} ({twin.source}) and "
        f"{entry.file.label} ({entry.source}){why}. Load one job and one time window at "
        "a time (window='first', 'last' or a number takes one of several), or pass "
        "rank={'part of the file name': number, ...}"
    )
    raise LoadError(msg)
