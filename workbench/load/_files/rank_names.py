"""Ranks of files: what the caller gives, what a file states, and what its name states."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Generic, Literal, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from workbench.errors import LoadError

# One text for all ranks, so that many files make one finding.
NO_RANK_TOLD = "rank by the order of the files; not found in the metadata or the file name"

RankArgument = int | Mapping[str, int] | Sequence[int] | None
# Which of several recordings of one rank, in order of time.
Window = Literal["first", "last"] | int | None

# Whole numbers only, and not the digits of a date or process id that follow.
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_]?(\d{1,6})(?!\d)|(?:^|[-_/.])r(\d{1,6})-")
# Chakra names its files job.RANK.et.
_CHAKRA = re.compile(r"\.(\d{1,6})\.(?:et|json)(?:\.(?:gz|bz2|xz|zstd?|lz4))?$")
_LISTED = 8
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


File = TypeVar("File", bound=HasRank)


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


def ranked(files: Sequence[File], given: RankArgument, window: Window = None) -> list[Ranked[File]]:
    """Assign a rank to every file, in order of rank, and take one window of each.

    The argument goes first, then what the trace states, then the file's name. Files without
    any rank are numbered in order, and that is called assumed.
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
    settled += [Ranked(number, "assumed", file) for number, file in enumerate(unknown)]
    by_rank: dict[int, list[Ranked[File]]] = {}
    for entry in settled:
        by_rank.setdefault(entry.rank, []).append(entry)
    return [_one_window(by_rank[rank], window) for rank in sorted(by_rank)]


def _check_window(window: Window) -> None:
    is_number = isinstance(window, int) and not isinstance(window, bool) and window >= 0
    if not (window in (None, "first", "last") or is_number):
        msg = f"window={window!r}: must be 'first', 'last' or the number of a window, from 0"
        raise LoadError(msg)


def _one_window(windows: Sequence[Ranked[File]], window: Window) -> Ranked[File]:
    """Choose among the files of one rank, which a profiler writes one after the other."""
    if window is None or (len(windows) == 1 and isinstance(window, str)):
        if len(windows) > 1:
            _refuse_twins(*windows[:2])
        return windows[0]
    starts = [entry.file.first_ns for entry in windows]
    if len(windows) > 1 and (None in starts or len(set(starts)) < len(starts)):
        names = " and ".join(entry.file.label for entry in windows[:2])
        msg = (
            f"window={window!r}: files of rank {windows[0].rank} do not state when they were "
            f"recorded, or are copies: {names}; pass the files of one window"
        )
        raise LoadError(msg)
    in_order = sorted(windows, key=lambda entry: entry.file.first_ns or 0)
    number = {"first": 0, "last": -1}.get(window) if isinstance(window, str) else window
    if number is None or number >= len(windows):
        msg = (
            f"window={window}: rank {windows[0].rank} has {len(windows)} "
            f"window{'s' * (len(windows) > 1)}, numbered from 0 ({windows[0].file.label})"
        )
        raise LoadError(msg)
    return in_order[number]


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
