"""Signs that files read as the ranks of one job are not, or not all of its ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import pandas as pd

# Ranks of one job run the same kernels, but for the ends of a pipeline.
_LEAST_COMMON_SHARE = 0.25
BY_ITSELF = "of other models or runs? load each by itself"

Names = Sequence[AbstractSet[object]]


def remarks_on_set(
    ranks: pd.DataFrame, names: Callable[[], Names], *, communicates: Callable[[], bool]
) -> list[tuple[str, int]]:
    """Return findings about a set of ranks, with a count: ranks that lack, clocks that differ.

    ``ranks`` is a table of ranks; ``names`` gives the names of the GPU work of each file whose rank
    is not from the caller, and ``communicates`` says whether any file holds a collective. Both are
    asked only where nothing surer decides, since they cost a pass over the events.
    """
    remarks: list[tuple[str, int]] = []
    world = int(ranks["world_size"].fillna(0).max()) if len(ranks) else 0
    if 1 < len(ranks) < world:
        loaded = set(ranks["rank"])
        # A file may claim a world of any size; a million ranks is more than any job has.
        lacking = [str(rank) for rank in range(min(world, 1 << 20)) if rank not in loaded]
        shown = ", ".join(lacking[:8]) + (", ..." if len(lacking) > 8 else "")
        finding = f"ranks of {world:,} that are not loaded; waiting for them cannot be seen"
        remarks.append((f"{finding}: {shown}", len(lacking)))
    remarks += [(finding, len(ranks)) for finding in _apart(ranks, names, communicates)]
    filled = ranks[ranks["event_count"] > 0]
    on_wall_time = len(filled) > 1 and filled["clock"].eq("epoch").all()
    if on_wall_time and filled["first_ns"].max() > filled["last_ns"].min():
        finding = "ranks recorded at different times; waiting across them cannot be seen"
        remarks.append((f"{finding}: other windows of the job, or clocks far apart", 1))
    if filled["clock"].nunique() > 1:
        finding = "ranks on different clocks (see ranks.clock)"
        remarks.append((f"{finding}; times across ranks cannot be compared", 1))
    return remarks


def _apart(
    ranks: pd.DataFrame, names: Callable[[], Names], communicates: Callable[[], bool]
) -> list[str]:
    """Say why files that were read as ranks of one job may be of several; the surest sign first.

    Ranks that the caller gave are believed.
    """
    told = ranks[ranks["rank_source"] != "argument"]
    # Processes that one profiler recorded together are of one job.
    files = {str(label).rpartition("!process ")[0] for label in told["source"]}
    if len(told) < 2 or (len(files) == 1 and "" not in files):
        return []
    sizes = sorted(told["world_size"].dropna().unique())
    if len(sizes) > 1:
        jobs = " and ".join(f"{size:,}" for size in sizes)
        return [
            f"files of jobs of different sizes ({jobs} ranks), read as ranks of one; {BY_ITSELF}"
        ]
    share = _least_in_common(names())
    if share is not None and share < _LEAST_COMMON_SHARE:
        shown = f"{share:.0%} of the kernel names"
        return [f"files with little in common ({shown}), read as ranks of one job; {BY_ITSELF}"]
    if ranks["rank_source"].isin(["trace", "file name"]).any() or communicates():
        return []
    why = "no file tells a rank or holds a collective"
    return [f"files that nothing ties together ({why}), read as ranks of one job; {BY_ITSELF}"]


def _least_in_common(names: Names) -> float | None:
    """Return the smallest share of names that a file has in common with the largest one."""
    filled = sorted(filter(None, names), key=len)
    if len(filled) < 2:
        return None
    *smaller, largest = filled
    return min(len(of_file & largest) / len(of_file) for of_file in smaller)
