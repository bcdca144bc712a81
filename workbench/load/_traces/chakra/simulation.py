"""What a simulator needs of a Chakra file: collectives that it can play, and their groups.

ASTRA-sim stops, with exit code 0, at a collective without size or of a kind that it does not
model, at a send without its partner, and at communication that is marked as work of the CPU.
Such nodes are written as compute of their measured time, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

import pandas as pd

from workbench.load._files.findings import Findings
from workbench.load._traces.chakra import schema
from workbench.load._traces.graph import NodeRow

COLLECTIVE, COMPUTE = "COMM_COLL_NODE", "COMP_NODE"
COMMUNICATION = ("collective", COLLECTIVE, "COMM_SEND_NODE", "COMM_RECV_NODE")
# Collectives that the schema knows under another name.
_SAME_AS = {"all_to_allv": "all_to_all", "all_gatherv": "all_gather"}
_MODELLED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_AS_COMPUTE = "written as compute of their measured time, as simulators need it: "
_MOST_GROUP_NUMBER = (1 << 31) - 1

Calls = dict[tuple[int, str | None], list[tuple[str, int]]]


class Kind(NamedTuple):
    """Node type and number of the collective in the schema; why it is not a collective there."""

    type: str
    collective: int | None = None
    reason: str | None = None


class Groups(NamedTuple):
    """Process groups as simulators number them, from 1."""

    number: Mapping[tuple[int, str], int]
    """By rank and recorded name."""
    members: Mapping[int, Sequence[int]]
    """Ranks, by number of the group."""


def kind_of(row: NodeRow) -> Kind:
    """Tell what a node becomes in a file that is to be simulated."""
    if row.type not in COMMUNICATION:
        return Kind(row.type if row.type in schema.NOW.types else COMPUTE)
    recorded = row.collective or ""
    name = _SAME_AS.get(recorded, recorded)
    if name in ("send", "recv", "receive") or row.type in COMMUNICATION[2:]:
        return Kind(COMPUTE, reason="sends and receives, whose partner is not in the tables")
    if name not in _MODELLED:
        return Kind(COMPUTE, reason="collectives of a kind that simulators do not model")
    if not row.size_bytes:
        return Kind(COMPUTE, reason="collectives whose size was not recorded")
    return Kind(COLLECTIVE, schema.NOW.collectives.index(name))


def calls(ranks: Mapping[int, Sequence[NodeRow]], findings: Findings) -> Calls:
    """List the collectives of each rank and group as they began; note what is no collective."""
    listed: Calls = {}
    for rank, rows in ranks.items():
        for row in sorted(rows, key=lambda row: (row.start_ns or 0, row.node)):
            kind = kind_of(row)
            if kind.reason:
                findings.add(
                    "repaired", _AS_COMPUTE + kind.reason, 1, f"rank {rank} node {row.node}"
                )
            elif kind.type == COLLECTIVE:
                call = (schema.NOW.collectives[kind.collective or 0], row.size_bytes or 0)
                listed.setdefault((rank, row.group), []).append(call)
    return listed


def groups_of(listed: Calls, described: pd.DataFrame, findings: Findings) -> Groups:
    """Give the groups of the collectives numbers; note what keeps a simulator from playing them."""
    ranks = {rank for rank, _ in listed}
    members = _members(listed, described, findings)
    distinct = sorted({(name, who) for (_, name), who in members.items()}, key=_by_number)
    numbers = _numbers([name for name, _ in distinct])
    by_group = dict(zip(distinct, numbers, strict=True))
    number = {(rank, name): by_group[name, who] for (rank, name), who in members.items()}
    for (name, who), chosen in by_group.items():
        if absent := sorted(set(who) - ranks):
            what = "process groups with ranks whose collectives are not here; simulators wait"
            findings.add("suspicious", what, 1, f"group {name}: rank {absent[0]}")
        keys = [key for key, other in number.items() if other == chosen]
        _note_difference([listed[key] for key in keys], f"group {name}", findings)
    alone = [found for (_, name), found in listed.items() if name is None]
    _note_difference(alone, "collectives without group", findings)
    return Groups(number, {by_group[key]: key[1] for key in distinct})


def _members(
    listed: Calls, described: pd.DataFrame, findings: Findings
) -> dict[tuple[int, str], tuple[int, ...]]:
    """Give the members of each group: those recorded, else the ranks that use its name."""
    rows = described[["rank", "group", "members"]].itertuples(index=False, name=None)
    recorded = {
        (rank, name): tuple(sorted({int(one) for one in str(text).split(",") if one.strip()}))
        for rank, name, text in rows
    }
    members = {}
    for rank, name in listed:
        if name is None:
            continue
        who = recorded.get((rank, name), ())
        if not who:
            who = tuple(sorted(r for r, n in listed if n == name and not recorded.get((r, n))))
            what = "members of process groups: the ranks that use the name"
            findings.add("assumed", what, 1, f"rank {rank} group {name}")
        members[rank, name] = who
    return members


def _by_number(group: tuple[str, tuple[int, ...]]) -> tuple[bool, int, str, tuple[int, ...]]:
    name, who = group
    is_number = _as_number(name) > 0
    return not is_number, _as_number(name), name, who


def _as_number(name: str) -> int:
    """Return a name that simulators can use as it is as a number, else 0."""
    plain = name.isascii() and name.isdecimal() and len(name) <= len(str(_MOST_GROUP_NUMBER))
    number = int(name) if plain else 0
    return number if number <= _MOST_GROUP_NUMBER else 0


def _numbers(names: Sequence[str]) -> list[int]:
    """Return a number per group: its name if that is one; 0 means all ranks to a simulator."""
    numbers: list[int] = []
    taken: set[int] = set()
    wanted = {_as_number(name) for name in names}
    free = (number for number in count(1) if number not in wanted)
    for name in names:
        number = _as_number(name)
        if number == 0 or number in taken:
            number = next(free)
        taken.add(number)
        numbers.append(number)
    return numbers


def _note_difference(
    lists: Sequence[Sequence[tuple[str, int]]], where: str, findings: Findings
) -> None:
    """Note collectives in which the ranks of a group do not agree."""
    what = "groups whose ranks do not have the same collectives and sizes in the same order"
    findings.add("suspicious", what, int(any(other != lists[0] for other in lists[1:])), where)
