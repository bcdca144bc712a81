"""Ranks that file names tell, and ranks that the caller gives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from workbench.errors import LoadError

# One text for all ranks, so that many files make one finding.
NO_RANK_TOLD = "rank by the order of the files; not found in the metadata or the file name"

RankArgument = int | Mapping[str, int] | Sequence[int] | None

# Whole numbers only, and not the digits of a date or process id that follow.
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_]?(\d{1,6})(?!\d)|(?:^|[-_/.])r(\d{1,6})-")
_CHAKRA = re.compile(r"\.(\d{1,6})\.(?:et|json)(?:\.(?:gz|bz2|xz|zstd?|lz4))?$")


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
    found = {int(a or b) for a, b in _RANK.findall(name)}
    if is_chakra:
        found |= {int(number) for number in _CHAKRA.findall(name)}
    return found.pop() if len(found) == 1 else None


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
            msg = f"rank={given} names one rank, but there are {len(labels)} files; pass a list"
            raise LoadError(msg)
        given = [given]
    ranks: list[int | None]
    if isinstance(given, Mapping):
        ranks = [rank_by_name(label, given) for label in labels]
    else:
        ranks = list(given)
    if len(ranks) != len(labels):
        msg = f"{len(ranks)} ranks were given for {len(labels)} files; they must be as many"
        raise LoadError(msg)
    for label, rank in zip(labels, ranks, strict=True):
        if rank is not None and not 0 <= rank < 1 << 31:
            msg = f"{label}: {rank} was given as its rank, but ranks count from 0"
            raise LoadError(msg)
    return ranks


def rank_by_name(label: str, given: Mapping[str, int]) -> int | None:
    """Give the rank whose key is a part of a file's name; None if none is."""
    hits = {rank for text, rank in given.items() if text in label}
    if len(hits) > 1:
        msg = f"{label}: several keys of rank= fit this file, with ranks {sorted(hits)}"
        raise LoadError(msg)
    return hits.pop() if hits else None
