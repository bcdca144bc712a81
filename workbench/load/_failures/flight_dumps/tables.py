"""Put the dumps of all ranks into tables, and find out which group is which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from workbench.load._failures.flight_dumps.ranks import Owned
from workbench.tables import FLIGHT_ENTRIES, FLIGHT_GROUPS, FLIGHT_RANKS, FLIGHT_STATUS, Table

NameOf = Callable[[int, str | None], str | None]


def ranks_table(ranks: Sequence[Owned]) -> pd.DataFrame:
    """Make table FLIGHT_RANKS."""
    rows = []
    for each in ranks:
        times = [row["created_ns"] for row in each.dump.entries if row["created_ns"] is not None]
        operations = [row for row in each.dump.entries if row["kind"] != "coalesced"]
        rows.append(
            {
                "rank": each.rank,
                "rank_source": each.rank_source,
                "node": each.node,
                "source": each.dump.label,
                "version": each.dump.version,
                "nccl_version": each.dump.nccl_version,
                "entry_count": len(each.dump.entries),
                "pending_count": sum(row["state"] != "completed" for row in operations),
                "first_ns": min(times, default=None),
                "last_ns": max(times, default=None),
            }
        )
    return _table(FLIGHT_RANKS, rows)


def groups_of(ranks: Sequence[Owned]) -> tuple[pd.DataFrame, NameOf]:
    """Make table FLIGHT_GROUPS, and a function that names the group a rank means.

    Groups that split off another one can share a name and not their members; only name
    and members together tell them apart.
    """
    keys: dict[tuple[str, tuple[int, ...]], str | None] = {}
    meant: dict[tuple[int, str], tuple[str, tuple[int, ...]]] = {}
    users: dict[str, dict[int, str | None]] = {}
    for each in ranks:
        for name, (description, members) in each.dump.groups.items():
            meant[each.rank, name] = (name, members)
            keys[name, members] = keys.get((name, members)) or description
        for row in each.dump.entries:
            if row["group"] is not None and row["group"] not in each.dump.groups:
                users.setdefault(row["group"], {})[each.rank] = row["description"]
    recorded = set(keys)
    for name, described in users.items():
        key = (name, tuple(sorted(described)))
        keys.setdefault(key, next(filter(None, described.values()), None))
        meant |= {(rank, name): key for rank in described}
    shared = pd.Series([name for name, _ in keys]).value_counts()
    names = {
        key: key[0] if shared[key[0]] == 1 else f"{key[0]} ({_listed(key[1])})" for key in keys
    }
    have = {each.rank for each in ranks}
    rows = [
        {
            "group": names[key],
            "description": description,
            "members": ",".join(map(str, key[1])),
            "group_size": len(key[1]),
            "dumped_count": sum(rank in have for rank in key[1]),
            "is_recorded": key in recorded,
        }
        for key, description in keys.items()
    ]

    def name_of(rank: int, group: str | None) -> str | None:
        key = None if group is None else meant.get((rank, group))
        return None if key is None else names[key]

    return _table(FLIGHT_GROUPS, rows), name_of


def status_table(ranks: Sequence[Owned], name_of: NameOf) -> pd.DataFrame:
    """Make table FLIGHT_STATUS; see the notes of ``load.flight_recorder``."""
    ordered = {each.rank: _by_order(each) for each in ranks}
    known = {each.rank: _by_entries(each) for each in ranks}
    in_order = all(
        ordered[rank].get(local, group) == group
        for rank, pairs in known.items()
        for local, group in pairs.items()
        if ordered[rank]
    ) and any(known.values())
    rows = []
    for each in ranks:
        for local, numbers in each.dump.status.items():
            group, joined_by = known[each.rank].get(local), "entries"
            if group is None and in_order:
                group, joined_by = ordered[each.rank].get(local), "order"
            rows.append(
                {
                    "rank": each.rank,
                    "local_group": local,
                    "group": name_of(each.rank, group),
                    "joined_by": "none" if group is None else joined_by,
                    **numbers,
                }
            )
    return _table(FLIGHT_STATUS, rows)


def entries_table(ranks: Sequence[Owned], name_of: NameOf) -> pd.DataFrame:
    """Make table FLIGHT_ENTRIES."""
    rows = [
        {**row, "rank": each.rank, "group": name_of(each.rank, row["group"])}
        for each in ranks
        for row in each.dump.entries
    ]
    return _table(FLIGHT_ENTRIES, rows)


def _by_entries(each: Owned) -> dict[str, str]:
    return {
        row["local_group"]: row["group"]
        for row in each.dump.entries
        if row["local_group"] is not None and row["group"] is not None
    }


def _by_order(each: Owned) -> dict[str, str]:
    """Pair numbers and names of groups, both counted up as groups are made."""
    numbers, names = list(each.dump.status), list(each.dump.groups)
    if len(numbers) != len(names) or not all(text.isdecimal() for text in (*numbers, *names)):
        return {}
    return dict(zip(sorted(numbers, key=int), sorted(names, key=int), strict=True))


def _listed(members: Sequence[int]) -> str:
    most = 4
    return ", ".join(map(str, members[:most])) + (", ..." if len(members) > most else "")


def _table(table: Table, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    if not rows:
        return table.empty()
    frame = pd.DataFrame(
        {name: [row[name] for row in rows] for name in table.columns}, dtype=object
    )
    return table.check(table.cast(frame))
