"""Follow every allocation from its beginning to its end, and add up what is held meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.load._files.findings import Findings

ALLOC, REQUESTED, COMPLETED = "alloc", "free_requested", "free_completed"
_GROWTH = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_NEVER = 1 << 60
PENDING = ("active_pending_free", "active_awaiting_free")
_FIELDS = ["address", "size_bytes", "stream", "phase", "stack"]


@dataclass
class Held:
    """Final state in a snapshot: blocks in use, and bytes that the allocator holds."""

    blocks: pd.DataFrame
    reserved_bytes: int


def replayed(acts: pd.DataFrame, held: Held | None, findings: Findings) -> pd.DataFrame:
    """Add to the actions of one device what was held after each, and what was there before.

    ``acts`` has the recorded columns of table MEMORY, in order; without ``held`` the end is not
    known. Allocations that a free or the snapshot proves, and no action makes, began before.
    """
    lives = _lives(acts, findings)
    # Profiles record no completion: memory counts as free once that is requested.
    lives = (
        lives.assign(released=lives["freed"]) if held is None else _with_held(lives, held, findings)
    )
    lives = lives.sort_values(["alloc", "freed", "released"], kind="stable", ignore_index=True)
    before = lives[lives["alloc"] < 0]
    pending = before[before["freed"] < 0]
    rows = [before.assign(action=ALLOC), pending.assign(action=REQUESTED)]
    first = pd.concat(rows)[["action", *_FIELDS]] if len(before) else acts.iloc[:0]
    shift = len(before) + len(pending)
    table = pd.concat([first, acts], ignore_index=True) if shift else acts.reset_index(drop=True)
    table["is_before_trace"] = np.arange(len(table)) < shift
    # Every life now gets the numbers of its rows in the table.
    alloc = lives["alloc"].to_numpy() + shift
    alloc[: len(before)] = np.arange(len(before))
    freed = _shifted(lives["freed"].to_numpy(), shift)
    freed[pending.index] = np.arange(len(before), shift)
    released = _shifted(lives["released"].to_numpy(), shift)
    sizes = lives["size_bytes"].to_numpy(dtype=np.int64)
    table["allocated_bytes"] = _held_after(len(table), sizes, alloc, freed)
    table["active_bytes"] = _held_after(len(table), sizes, alloc, released)
    for name, ends in (("freed_event", freed), ("released_event", released)):
        column = pd.Series(pd.NA, index=table.index, dtype="Int64")
        known = ends < _NEVER
        column.iloc[alloc[known]] = ends[known]
        table[name] = column
    if held is not None:
        table["reserved_bytes"] = _reserved(table, held.reserved_bytes, findings)
    return table


def _lives(acts: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Return one row per allocation: the actions that begin and end it; -1 began before."""
    tracked = acts[acts["action"].isin([ALLOC, REQUESTED, COMPLETED]) & acts["address"].notna()]
    tracked = tracked.assign(at=tracked.index.astype("Int64")).sort_values("address", kind="stable")
    is_alloc = tracked["action"] == ALLOC
    tracked["life"] = is_alloc.astype("int64").groupby(tracked["address"]).cumsum()
    # The stack of a free is not that of the allocation.
    tracked[["phase", "stack"]] = tracked[["phase", "stack"]].where(is_alloc, None)
    key = [tracked["address"], tracked["life"]]
    at = {
        name: tracked["at"].where(tracked["action"] == name)
        for name in (ALLOC, REQUESTED, COMPLETED)
    }
    first = {name: values.groupby(key).min() for name, values in at.items()}
    lives = tracked.drop_duplicates(["address", "life"]).set_index(["address", "life"], drop=False)
    lives = lives[_FIELDS].reindex(first[ALLOC].index)
    alloc, requested, completed = (first[name] for name in (ALLOC, REQUESTED, COMPLETED))
    following = alloc.groupby(level=0).shift(-1)
    freed = requested.fillna(completed).fillna(following)
    lost = int((requested.isna() & completed.isna() & following.notna()).sum())
    findings.add("suspicious", "allocations whose end the recording does not hold", lost)
    known_ends = at[REQUESTED].notna().groupby(key).sum() + at[COMPLETED].notna().groupby(key).sum()
    odd = int((known_ends > 2).sum())
    findings.add("suspicious", "addresses that are freed more than once", odd)
    # Frees of which only the completion was recorded were requested before the recording.
    is_pending = alloc.isna() & requested.isna()
    lives["alloc"] = alloc.fillna(-1).astype("int64")
    lives["freed"] = freed.where(~is_pending, -1).fillna(_NEVER).astype("int64")
    released = completed.fillna(following)
    lives["released"] = released.fillna(_NEVER).astype("int64")
    return lives.reset_index(drop=True)


def _with_held(lives: pd.DataFrame, held: Held, findings: Findings) -> pd.DataFrame:
    """Join what is in use at the end to the lives without an end; the rest began before."""
    is_open = lives["released"] == _NEVER
    pending = set(held.blocks.loc[held.blocks["state"].isin(PENDING), "address"])
    # A recorder may be told to leave completions out; then memory is free once that is requested.
    is_done = is_open & (lives["freed"] < _NEVER) & ~lives["address"].isin(pending)
    lives.loc[is_done, "released"] = lives.loc[is_done, "freed"]
    still = lives[lives["released"] == _NEVER]
    unknown = int((~still["address"].isin(held.blocks["address"])).sum())
    findings.add("suspicious", "allocations that are never freed and not in the snapshot", unknown)
    older = held.blocks[~held.blocks["address"].isin(still["address"])]
    is_pending = older["state"].isin(PENDING)
    more = older[_FIELDS].assign(alloc=-1, freed=np.where(is_pending, -1, _NEVER), released=_NEVER)
    # The same types, so that columns without any value decide nothing.
    types: dict[str, Any] = {
        "address": "Int64",
        "stream": "Int64",
        "phase": object,
        "stack": object,
    }
    filled = [piece.astype(types) for piece in (lives, more) if len(piece)]
    return pd.concat(filled, ignore_index=True) if filled else lives


def _shifted(ends: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    return np.where((ends >= 0) & (ends < _NEVER), ends + shift, ends)


def _held_after(
    count: int, sizes: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    change = np.zeros(count, dtype=np.int64)
    np.add.at(change, begins, sizes)
    np.subtract.at(change, ends[ends < _NEVER], sizes[ends < _NEVER])
    return change.cumsum()


def _reserved(table: pd.DataFrame, last_bytes: int, findings: Findings) -> pd.Series:
    """Go back from what is held at the end to what was held at every action."""
    change = table["action"].map(_GROWTH).fillna(0).astype("int64") * table["size_bytes"]
    held = last_bytes - int(change.sum()) + change.cumsum()
    below = int((held < table["active_bytes"]).sum())
    words = "actions after which more is allocated than the allocator holds"
    findings.add("suspicious", words, below)
    return held.clip(lower=0).astype("Int64")
