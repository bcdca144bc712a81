"""Whose a flight-recorder dump is: told by the caller, the file name, or its groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from workbench.errors import LoadError
from workbench.load._failures.flight_dumps.dump import Dump
from workbench.load._files.rank_names import RankArgument, given_ranks, rank_in_name

# Whoever writes dumps may choose any prefix; the rank is what stands last.
_LAST_NUMBER = re.compile(r"(?:^|[^0-9])(\d{1,6})$")
_ENDINGS = re.compile(r"(?:\.(?:json|pkl|pickle|bin|dump|trace|gz|bz2|xz|zstd?|lz4))+$")
_RANK_PART = re.compile(r"[-_.]*(?:rank|worker)[-_]?\d+|[-_.]*\d+$", re.IGNORECASE)
_PREFIXES = re.compile(
    r"(?:^|(?<=[-_.]))(?:nccl|comm_lib|comm|lib|flight|recorder|fr|trace|traces|dump|dumps|pg|synthetic)"
    r"(?=[-_.]|$)",
    re.IGNORECASE,
)


class Owned(NamedTuple):
    """A dump and its rank."""

    rank: int
    rank_source: str
    node: str | None
    dump: Dump


def owned(dumps: Sequence[Dump], given: RankArgument) -> list[Owned]:
    """Give every dump its rank, in order of rank.

    Raises
    ------
    LoadError
        If two dumps are of one rank, one of none that can be told, or a dump belongs to
        groups that do not hold the rank its name tells.
    """
    labels = [dump.label for dump in dumps]
    found = [
        _owned(dump, asked) for dump, asked in zip(dumps, given_ranks(labels, given), strict=True)
    ]
    first: dict[int, Owned] = {}
    for each in found:
        if (other := first.setdefault(each.rank, each)) is not each:
            msg = (
                f"two dumps are of rank {each.rank}: {other.dump.label} ({other.rank_source}) and "
                f"{each.dump.label} ({each.rank_source}). Load the dumps of one hang at a time, "
                "or pass rank={'part of the file name': number, ...}"
            )
            raise LoadError(msg)
    return sorted(found, key=lambda each: each.rank)


def _owned(dump: Dump, asked: int | None) -> Owned:
    node = node_in_name(dump.label)
    named, own = rank_in_dump_name(dump.label), dump.own_ranks
    if asked is not None:
        return Owned(asked, "argument", node, dump)
    if named is not None and (not own or named in own):
        return Owned(named, "file name", node, dump)
    if len(own) == 1:
        (only,) = own
        if named is not None:
            what = f"the file name tells rank {named}, its groups only fit rank {only}; took {only}"
            dump.findings.add("suspicious", what)
        return Owned(only, "groups", node, dump)
    why = (
        f"its name tells rank {named}, which is not a member of all groups of the dump"
        if named is not None
        else "neither its name nor its groups tell its rank"
    )
    msg = f"{dump.label}: {why}. Pass rank={{'part of the file name': number, ...}}"
    raise LoadError(msg)


def rank_in_dump_name(label: str) -> int | None:
    """Return the rank that a dump's name tells, None if it tells none.

    Examples
    --------
    >>> rank_in_dump_name("dumps/nccl_trace_host-12_rank_7")
    7
    >>> rank_in_dump_name("hang.tar.gz!_dump_15")
    15
    >>> rank_in_dump_name("nccl_trace_rank_3.json")
    3
    >>> rank_in_dump_name("node4-gpu") is None
    True
    """
    if (rank := rank_in_name(label)) is not None:
        return rank
    found = _LAST_NUMBER.search(_base(label))
    return int(found[1]) if found else None


def node_in_name(label: str) -> str | None:
    """Return the host that a dump's name tells, None if it tells none.

    Examples
    --------
    >>> node_in_name("dumps/nccl_trace_host-12_rank_7")
    'host-12'
    >>> node_in_name("dumps/_dump_15") is None
    True
    """
    rest = _PREFIXES.sub("", _RANK_PART.sub("", _base(label), count=1)).strip("-_.")
    return rest if re.search(r"[A-Za-z]", rest) else None


def _base(label: str) -> str:
    return _ENDINGS.sub("", re.split(r"[/\\!]", label)[-1])
