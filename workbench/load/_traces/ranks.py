"""Which rank a file belongs to, and what its metadata say of ranks, devices and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.findings import Finding
from workbench.load._files.json_events import to_integer
from workbench.load._files.rank_names import rank_by_name, rank_in_name
from workbench.load._traces.kineto.rank import RankTables, metadata_text
from workbench.tables import DEVICES, PROCESS_GROUPS, RANKS, Column, Table

_LARGEST_RANK = (1 << 31) - 1

# Ranks of one job run the same kernels, but for the ends of a pipeline.
_LEAST_COMMON_SHARE = 0.25
_BY_ITSELF = "of other models or runs? load each by itself"

RankArgument = int | Mapping[str, int] | Sequence[int] | None


class Numbered(NamedTuple):
    """The tables of one file and the rank they belong to."""

    rank: int
    source: str
    part: RankTables


def number(parts: Sequence[RankTables], given: RankArgument) -> list[Numbered]:
    """Give every file its rank, in order of rank.

    The argument goes first, then what the trace states, then the file's name. Files of which
    nothing is known are numbered in order, and that is called assumed.
    """
    wanted = _given_ranks(parts, given)
    if odd := [rank for rank in wanted if rank is not None and not _is_rank(rank)]:
        msg = f"rank={odd[0]!r} is no rank; give whole numbers from 0 to {_LARGEST_RANK:,}"
        raise LoadError(msg)
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
            f"files tell theirs ({numbered[0].part.label}: {numbered[0].rank}). Load it by itself "
            "if it is of another job, or pass rank={'part of the file name': number, ...}"
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
        unused = [text for text in given if not any(text in part.label for part in parts)]
        if unused:
            msg = (
                f"rank= names {unused}, which no file name holds: {[short(p.label) for p in parts]}"
            )
            raise LoadError(msg)
        return [rank_by_name(part.label, given) for part in parts]
    if len(given) != len(parts):
        msg = f"{len(given)} ranks were given for {len(parts)} files; they must be as many"
        raise LoadError(msg)
    return list(given)


def _stated_rank(part: RankTables) -> int | None:
    info = _distributed(part.metadata)
    rank = to_integer(info.get("rank"))
    return rank if rank is not None and _is_rank(rank) else None


def _is_rank(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_RANK


def _refuse_twins(numbered: Sequence[Numbered]) -> None:
    first: dict[int, Numbered] = {}
    for item in numbered:
        if (other := first.setdefault(item.rank, item)) is not item:
            alone = _world_size(item.part) == 1 and _world_size(other.part) == 1
            why = "; each says that it is the only one of its job" if alone else ""
            msg = (
                f"two files are rank {item.rank}: {other.part.label} ({other.source}) and "
                f"{item.part.label} ({item.source}){why}. Load one job and one time window at a "
                "time, or pass rank={'part of the file name': number, ...}"
            )
            raise LoadError(msg)


def ranks_table(numbered: Sequence[Numbered]) -> pd.DataFrame:
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


def as_a_set(numbered: Sequence[Numbered]) -> list[Finding]:
    """Return findings about the set as a whole: ranks that lack, clocks that differ."""
    found: list[Finding] = []
    source = short(numbered[0].part.label)
    worlds = {to_integer(_distributed(part.metadata).get("world_size")) for _, _, part in numbered}
    world = max((size for size in worlds if size), default=0)
    if len(numbered) > 1 and len(numbered) < world:
        have = {item.rank for item in numbered}
        lacking = [str(rank) for rank in range(min(world, 1 << 20)) if rank not in have]
        shown = ", ".join(lacking[:8]) + (", ..." if len(lacking) > 8 else "")
        what = f"ranks of {world:,} that are not loaded; waiting for them cannot be seen: {shown}"
        found.append((source, "suspicious", what, len(lacking), None))
    found += [(source, "suspicious", what, len(numbered), None) for what in _apart(numbered)]
    if len({part.clock for _, _, part in numbered if len(part.events)}) > 1:
        what = "ranks on different clocks (see ranks.clock); times across ranks cannot be compared"
        found.append((source, "suspicious", what, 1, None))
    return found


def _apart(numbered: Sequence[Numbered]) -> list[str]:
    """Say why files that were read as ranks of one job may be of several; the surest sign first.

    Ranks that the caller gave are believed.
    """
    parts = [item.part for item in numbered if item.source != "argument"]
    if len(parts) < 2:
        return []
    sizes = {size for part in parts if (size := _world_size(part))}
    if len(sizes) > 1:
        told = " and ".join(f"{size:,}" for size in sorted(sizes))
        return [
            f"files of jobs of different sizes ({told} ranks), read as ranks of one; {_BY_ITSELF}"
        ]
    share = _least_in_common([_kernel_names(part) for part in parts])
    if share is not None and share < _LEAST_COMMON_SHARE:
        shown = f"{share:.0%} of the kernel names"
        return [f"files with little in common ({shown}), read as ranks of one job; {_BY_ITSELF}"]
    is_told = any(item.source in ("trace", "file name") for item in numbered)
    if not is_told and not any(_has_collectives(part) for part in parts):
        why = "no file tells a rank or holds a collective"
        return [f"files that nothing ties together ({why}), read as ranks of one job; {_BY_ITSELF}"]
    return []


def _world_size(part: RankTables) -> int | None:
    return to_integer(_distributed(part.metadata).get("world_size"))


def _kernel_names(part: RankTables) -> set[str]:
    return set(part.events.loc[part.events["kind"].notna(), "name"].unique())


def _has_collectives(part: RankTables) -> bool:
    return bool(part.events["kind"].eq("communication").any())


def _least_in_common(names: Sequence[set[str]]) -> float | None:
    """Return the smallest share of names that a file has in common with the largest one."""
    filled = sorted((each for each in names if each), key=len)
    if len(filled) < 2:
        return None
    *others, largest = filled
    return min(len(each & largest) / len(each) for each in others)


def devices_table(numbered: Sequence[Numbered]) -> pd.DataFrame:
    rows = []
    for rank, _, part in numbered:
        for device in _dicts(part.metadata.get("deviceProperties")):
            major, minor = device.get("computeMajor"), device.get("computeMinor")
            rows.append(
                {
                    "rank": rank,
                    "device": to_integer(device.get("id")),
                    "name": str(metadata_text(device, "name") or ""),
                    "memory_bytes": to_integer(device.get("totalGlobalMem")),
                    "capability": None if major is None else f"{major}.{minor}",
                    "processor_count": to_integer(
                        device.get("numSms", device.get("multiProcessorCount"))
                    ),
                }
            )
    return _table(DEVICES, rows)


def groups_table(numbered: Sequence[Numbered]) -> pd.DataFrame:
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


_LIMITS = {"Int32": 1 << 31, "Int64": 1 << 63}


def _fits(value: Any, column: Column) -> bool:
    limit = _LIMITS[column.dtype]
    low = -limit if column.lower is None else column.lower
    return value is None or low <= value < limit


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
    for row in rows:
        for name, column in table.columns.items():
            if column.dtype in _LIMITS and not _fits(row[name], column):
                row[name] = None
    return table.check(table.cast(pd.DataFrame(rows, columns=list(table.columns))))


def short(label: str) -> str:
    return label.rsplit("!", 1)[-1].replace("\\", "/").rsplit("/", 1)[-1]
