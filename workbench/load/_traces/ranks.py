"""Which rank a file belongs to, and what its metadata say of ranks, devices and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.findings import Finding
from workbench.load._files.json_events import to_integer
from workbench.load._files.rank_names import RankArgument, Ranked, ranked
from workbench.load._traces.kineto.rank import RankTables, metadata_text
from workbench.tables import DEVICES, PROCESS_GROUPS, RANKS, Table

# Ranks of one job run the same kernels, but for the ends of a pipeline.
_LEAST_COMMON_SHARE = 0.25
_BY_ITSELF = "of other models or runs? load each by itself"


def number(files: Sequence[RankTables], given: RankArgument) -> list[Ranked[RankTables]]:
    """Give every file its rank, in order of rank, as :func:`ranked` does."""
    if isinstance(given, Mapping):
        unused = [text for text in given if not any(text in file.label for file in files)]
        if unused:
            names = [short(file.label) for file in files]
            msg = f"rank= names {unused}, which no file name holds: {names}"
            raise LoadError(msg)
    return ranked(files, given)


def ranks_table(numbered: Sequence[Ranked[RankTables]]) -> pd.DataFrame:
    rows = []
    for rank, source, file in numbered:
        events, world = file.events, file.world_size
        ends = events["start_ns"] + events["dur_ns"]
        row = {"rank": rank, "rank_source": source, "source": file.label, "format": "kineto"}
        row |= {"backend": metadata_text(file.distributed, "backend"), "clock": file.clock}
        row["world_size"] = world if world and world > 0 else None
        row["first_ns"] = int(events["start_ns"].iloc[0]) if len(events) else None
        row["last_ns"] = int(ends.max()) if len(events) else None
        rows.append(row | {"event_count": len(events)})
    return _table(RANKS, rows)


def as_a_set(numbered: Sequence[Ranked[RankTables]]) -> list[Finding]:
    """Return findings about the set as a whole: ranks that lack, clocks that differ."""
    whats: list[tuple[str, int]] = []
    world = max((file.world_size or 0 for _, _, file in numbered), default=0)
    if 1 < len(numbered) < world:
        loaded = {rank for rank, _, _ in numbered}
        # A file may claim a world of any size; a million ranks is more than any job has.
        lacking = [str(rank) for rank in range(min(world, 1 << 20)) if rank not in loaded]
        shown = ", ".join(lacking[:8]) + (", ..." if len(lacking) > 8 else "")
        finding = (
            f"ranks of {world:,} that are not loaded; waiting for them cannot be seen: {shown}"
        )
        whats.append((finding, len(lacking)))
    whats += [(finding, len(numbered)) for finding in _apart(numbered)]
    if len({file.clock for _, _, file in numbered if len(file.events)}) > 1:
        finding = (
            "ranks on different clocks (see ranks.clock); times across ranks cannot be compared"
        )
        whats.append((finding, 1))
    source = short(numbered[0].file.label)
    return [(source, "suspicious", finding, count, None) for finding, count in whats]


def _apart(numbered: Sequence[Ranked[RankTables]]) -> list[str]:
    """Say why files that were read as ranks of one job may be of several; the surest sign first.

    Ranks that the caller gave are believed.
    """
    files = [item.file for item in numbered if item.source != "argument"]
    if len(files) < 2:
        return []
    sizes = {size for file in files if (size := file.world_size)}
    if len(sizes) > 1:
        jobs = " and ".join(f"{size:,}" for size in sorted(sizes))
        return [
            f"files of jobs of different sizes ({jobs} ranks), read as ranks of one; {_BY_ITSELF}"
        ]
    names = (file.events.loc[file.events["kind"].notna(), "name"].unique() for file in files)
    share = _least_in_common([set(of_part) for of_part in names])
    if share is not None and share < _LEAST_COMMON_SHARE:
        shown = f"{share:.0%} of the kernel names"
        return [f"files with little in common ({shown}), read as ranks of one job; {_BY_ITSELF}"]
    is_stated = any(item.source in ("trace", "file name") for item in numbered)
    if is_stated or any(file.events["kind"].eq("communication").any() for file in files):
        return []
    why = "no file tells a rank or holds a collective"
    return [f"files that nothing ties together ({why}), read as ranks of one job; {_BY_ITSELF}"]


def _least_in_common(names: Sequence[set[str]]) -> float | None:
    """Return the smallest share of names that a file has in common with the largest one."""
    filled = sorted(filter(None, names), key=len)
    if len(filled) < 2:
        return None
    *smaller, largest = filled
    return min(len(names & largest) / len(names) for names in smaller)


def devices_table(numbered: Sequence[Ranked[RankTables]]) -> pd.DataFrame:
    rows = []
    for rank, _, file in numbered:
        for device in _dicts(file.metadata.get("deviceProperties")):
            major, minor = device.get("computeMajor"), device.get("computeMinor")
            processors = device.get("numSms", device.get("multiProcessorCount"))
            row: dict[str, Any] = {"rank": rank, "device": to_integer(device.get("id"))}
            row["name"] = str(metadata_text(device, "name") or "")
            row["memory_bytes"] = to_integer(device.get("totalGlobalMem"))
            row["capability"] = None if major is None else f"{major}.{minor}"
            rows.append(row | {"processor_count": to_integer(processors)})
    return _table(DEVICES, rows)


def groups_table(numbered: Sequence[Ranked[RankTables]]) -> pd.DataFrame:
    rows = [
        {
            "rank": rank,
            "group": metadata_text(group, "pg_name") or "",
            "description": metadata_text(group, "pg_desc"),
            "backend": metadata_text(group, "backend_config"),
            "group_size": to_integer(group.get("pg_size")),
            "members": _members(group.get("ranks")),
        }
        for rank, _, file in numbered
        for group in _dicts(file.distributed.get("pg_config"))
    ]
    return _table(PROCESS_GROUPS, rows)


def _members(ranks: object) -> str:
    if isinstance(ranks, str):
        ranks = ranks.strip("[] ").split(",") if ranks.strip("[] ") else []
    if not isinstance(ranks, list):
        return ""
    return ",".join(str(number) for rank in ranks if (number := to_integer(rank)) is not None)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _table(table: Table, rows: list[dict[str, Any]]) -> pd.DataFrame:
    if not rows:
        return table.empty()
    # A number from the metadata that its column cannot hold is missing.
    limits = {"Int32": 1 << 31, "Int64": 1 << 63}
    for name, column in table.columns.items():
        if limit := limits.get(column.dtype):
            low = -limit if column.lower is None else column.lower
            for row in rows:
                if row[name] is not None and not low <= row[name] < limit:
                    row[name] = None
    return table.check(table.cast(pd.DataFrame(rows, columns=list(table.columns))))


def short(label: str) -> str:
    return label.rsplit("!", 1)[-1].replace("\\", "/").rsplit("/", 1)[-1]
