"""Which rank a PyTorch execution trace is of: told by the collectives in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.load._traces.execution.nodes import Call
from workbench.load._traces.graph import Group, RankGraph

_UNROOTED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_DEFAULT_NAMES = ("0", "default_pg")


def world(groups: Iterable[Group]) -> Group | None:
    """Return the group of all ranks: the default one, which lists no members."""
    unlisted = [group for group in groups if not group.members]
    by_name = [group for group in unlisted if group.name in _DEFAULT_NAMES]
    return next(iter(by_name + unlisted), None)


def find_rank(
    graph: RankGraph, calls: Iterable[Call], addresses: Mapping[int, Group]
) -> int | None:
    """Return the global rank that the collectives tell, None if they tell none or several.

    Parameters
    ----------
    graph
        Told of doubts; its groups translate ranks inside a group to global ones.
    calls
        The calls of the communication library.
    addresses
        Process groups by their address in memory, by which schemas before 1.0.3
        call them.
    """
    named = {group.name: group for group in graph.groups}
    told: set[int] = set()
    unlisted: set[tuple[int | None, int]] = set()
    for call in calls:
        if call.rank is None or call.rank < 0 or not call.collective.startswith(_UNROOTED):
            continue
        group = named.get(call.group or "") or addresses.get(call.address or 0)
        number = _global_rank(call, call.rank, group)
        if number is not None:
            told.add(number)
        elif group is None:
            unlisted.add((call.address, call.rank))
    if not told and len(unlisted) == 1:
        told = {unlisted.pop()[1]}
        what = "the only process group of the trace, whose members it does not list, has all ranks"
        graph.findings.add("assumed", what)
    if len(told) > 1:
        what = f"collectives tell different ranks: {sorted(told)[:8]}"
        graph.findings.add("suspicious", what)
    return told.pop() if len(told) == 1 else None


def _global_rank(call: Call, rank: int, group: Group | None) -> int | None:
    """Translate a rank inside a group to a global one; None if that cannot be done."""
    if group is not None and group.members:
        return group.members[rank] if rank < len(group.members) else None
    if group is not None:
        return rank
    if call.first_rank is None or call.first_rank < 0 or not call.rank_stride:
        return None
    number = call.first_rank + rank * call.rank_stride
    return number if 0 <= number < 1 << 31 else None
