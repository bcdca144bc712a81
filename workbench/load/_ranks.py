"""Which rank a file belongs to, and what its metadata say of ranks, devices and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from workbench.errors import LoadError
from workbench.load._json_events import to_integer
from workbench.load._kineto_rank import RankTables, metadata_text
from workbench.load._rank_names import rank_in_name
from workbench.tables import DEVICES, PROCESS_GROUPS, RANKS, Table

RankArgument = int | Mapping[str, int] | Sequence[int] | None


class Numbered(NamedTuple):
    """The tables of one file and the rank they belong to."""

    rank: int
    source: str
    part: RankTables


def number(parts: Sequence[RankTables], given: RankArgument) -> list[Numbered]:
    """Give every file its rank, in order of rank.

    The argument goes first, then what the trace states, then the file's name. Files of
    which nothing is known are numbered in order, and that is called assumed.

    Raises
    ------
    LoadError
        If two files claim one rank, if only some files tell theirs, or if ``given`` does
        not fit the files.
    """
    wanted = _given_ranks(parts, given)
    numbered: list[Numbered] = []
    unknown: list[RankTables] = []
    for part, asked in zip(parts, wanted, strict=True):
        stated = _stated_rank(part)
        named = rank_in_name(part.label)
        if asked is not None:
            numbered.append(Numbered(asked, "argument", part))
        elif stated is not None:
            numbered.append(Numbered(stated, "trace", part))
        elif named is not None:
            numbered.append(Numbered(named, "file name", part))
        else:
            unknown.append(part)
    if unknown and numbered:
        msg = (
            f"{unknown[0].label}: neither the trace nor its name tells its rank, though other "
            f"files tell theirs ({numbered[0].part.label}: {numbered[0].rank}). Pass "
            "rank={'part of the file name': number, ...}"
        )
        raise LoadError(msg)
    numbered += [Numbered(at, "assumed", part) for at, part in enumerate(unknown)]
    _refuse_twins(numbered)
    return sorted(numbered, key=lambda item: item.rank)


def _given_ranks(parts: Sequence[RankTables], given: RankArgument) -> list[int | None]:
    if given is None:
        return [None] * len(parts)
    if isinstance(given, int):
        if len(parts) > 1:
            msg = f"rank={given} is one rank for {len(parts)} files; pass a list or a dict"
            raise LoadError(msg)
        given = [given]
    if isinstance(given, Mapping):
        return [_by_name(part.label, given) for part in parts]
    if len(given) != len(parts):
        msg = f"{len(given)} ranks were given for {len(parts)} files; they must be as many"
        raise LoadError(msg)
    return list(given)


def _by_name(label: str, given: Mapping[str, int]) -> int | None:
    hits = {rank for text, rank in given.items() if text in label}
    if len(hits) > 1:
        msg = f"{label}: several keys of rank= fit this file, with ranks {sorted(hits)}"
        raise LoadError(msg)
    return hits.pop() if hits else None


def _stated_rank(part: RankTables) -> int | None:
    info = _distributed(part.metadata)
    rank = to_integer(info.get("rank"))
    return rank if rank is not None and 0 <= rank < 1 << 31 else None


def _refuse_twins(numbered: Sequence[Numbered]) -> None:
    first: dict[int, Numbered] = {}
    for item in numbered:
        if item.rank < 0:
            msg = f"{item.part.label}: rank {item.rank} ({item.source}) is negative"
            raise LoadError(msg)
        if (other := first.setdefault(item.rank, item)) is not item:
            msg = (
                f"two files are rank {item.rank}: {other.part.label} ({other.source}) and "
                f"{item.part.label} ({item.source}). Load one time window at a time, or pass "
                "rank={'part of the file name': number, ...}"
            )
            raise LoadError(msg)


def ranks_table(numbered: Sequence[Numbered]) -> pd.DataFrame:
    """Make table RANKS."""
    rows = []
    for rank, source, part in numbered:
        info = _distributed(part.metadata)
        events = part.events
        has = len(events) > 0
        world = to_integer(info.get("world_size"))
        rows.append(
            {
                "rank": rank,
                "rank_source": source,
                "world_size": world if world and world > 0 else None,
                "backend": metadata_text(info, "backend"),
                "source": part.label,
                "format": "kineto",
                "clock": part.clock,
                "first_ns": int(events["start_ns"].iloc[0]) if has else None,
                "last_ns": int((events["start_ns"] + events["dur_ns"]).max()) if has else None,
                "event_count": len(events),
            }
        )
    return _table(RANKS, rows)


def devices_table(numbered: Sequence[Numbered]) -> pd.DataFrame:
    """Make table DEVICES."""
    rows = []
    for rank, _, part in numbered:
        for device in _dicts(part.metadata.get("deviceProperties")):
            major, minor = device.get("computeMajor"), device.get("computeMinor")
            rows.append(
                {
                    "rank": rank,
                    "device": to_integer(device.get("id")),
                    "name": metadata_text(device, "name") or "",
                    "memory_bytes": to_integer(device.get("totalGlobalMem")),
                    "capability": None if major is None else f"{major}.{minor}",
                    "processor_count": to_integer(
                        device.get("numSms", device.get("multiProcessorCount"))
                    ),
                }
            )
    return _table(DEVICES, rows)


def groups_table(numbered: Sequence[Numbered]) -> pd.DataFrame:
    """Make table PROCESS_GROUPS."""
    rows = []
    for rank, _, part in numbered:
        for group in _dicts(_distributed(part.metadata).get("pg_config")):
            members = group.get("ranks")
            rows.append(
                {
                    "rank": rank,
                    "group": metadata_text(group, "pg_name") or "",
                    "description": metadata_text(group, "pg_desc"),
                    "backend": metadata_text(group, "backend_config"),
                    "group_size": to_integer(group.get("pg_size")),
                    "members": _members(members),
                }
            )
    return _table(PROCESS_GROUPS, rows)


def _members(ranks: object) -> str:
    if isinstance(ranks, str):
        ranks = ranks.strip("[] ").split(",") if ranks.strip("[] ") else []
    if not isinstance(ranks, list):
        return ""
    return ",".join(str(number) for rank in ranks if (number := to_integer(rank)) is not None)


def _distributed(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    info = metadata.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _table(table: Table, rows: list[dict[str, Any]]) -> pd.DataFrame:
    if not rows:
        return table.empty()
    return table.check(table.cast(pd.DataFrame(rows, columns=list(table.columns))))
