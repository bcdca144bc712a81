"""Collectives across ranks: how long they took, and who waited for whom."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.operations import OPERATIONS, bus_factor, operations, sizes
from workbench.analyze._lib.rows import (
    MISSING,
    Ints,
    Work,
    codes,
    gpu_work,
    grouped,
    labelled,
    nullable,
    shares,
    taken,
    texts,
)
from workbench.analyze._traces.clocks import arrival_doubts, on_one_clock
from workbench.analyze._traces.matching import CONFIDENCES, match
from workbench.kernel_kinds import KINDS
from workbench.tables import COLLECTIVE_WAITS, COLLECTIVES, PROCESS_GROUPS

_COLUMNS = (
    "name",
    "step",
    "stream",
    "collective",
    "group",
    "group_size",
    "seq",
    "in_count",
    "out_count",
    "dtype",
)
_INFEASIBLE = (
    "a rank ended before the last one began: clocks disagree by more than the collective took "
    "(see analyze.clocks), or it need not wait"
)
_DOUBTFUL = (
    "ranks end over half as far apart as they start: clocks disagree, or shares of the work "
    "differ; who was last is not sure"
)


def collectives(
    events: pd.DataFrame,
    *,
    process_groups: pd.DataFrame | None = None,
    clocks: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Match the communication kernels of all ranks and measure each collective.

    A rank that enters a collective early waits in it for the last one, so its own
    duration says little. The shortest duration of all ranks is the transfer itself;
    what another rank spent beyond that it spent waiting.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` of all ranks, on one common clock.
    process_groups
        Table :data:`workbench.tables.PROCESS_GROUPS`. With it, groups that share a
        name but not their members are kept apart.
    clocks
        Table :data:`workbench.tables.CLOCKS` of these events. With it, they are put on
        one clock first, and who was last is sure only as far as clocks agree.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COLLECTIVES`, one row per communication kernel:
        matched ones by collective and rank, then the others. Nothing is left out: what
        could not be matched has no ``collective``, confidence none and a ``note``.

    Notes
    -----
    Kernels are matched by process group and sequence number (high confidence), by
    process group and order (medium) or, with nothing recorded, by order on the stream
    (low; only if all ranks ran the same names in the same order). Barriers, waits,
    coalesced placeholders and point-to-point transfers are not matched.

    For rank r with start s_r and end e_r: wait = max s - s_r, transfer = e_r - max s,
    shortest duration = min (e_r - s_r). If max s > min e the ranks cannot have waited
    for each other, and there is neither wait nor transfer. On one clock, and with equal
    shares of the work, all ranks end together. Where they end over half as far apart as
    they start, ``is_sure`` is false: the wait may be a clock's offset, and the rank blamed
    innocent. With ``clocks``, ``is_sure`` is also false unless the last rank starts more
    than 2 (u + v) after the one before it, u and v being the two largest residuals of the
    clocks of its ranks. So nothing is sure about a start skew of no more than that.

    Size is elements times bytes per element; for all-gather all elements a rank
    receives, for reduce-scatter and all-to-all all it sends. Algorithm bandwidth is the
    mean size / shortest duration; bus bandwidth is that times 2 (n - 1) / n for
    all-reduce, (n - 1) / n for all-gather, reduce-scatter and all-to-all, 1 for broadcast
    and reduce. If some ranks of the group are missing, waits are lower bounds, and the
    note says so.

    References
    ----------
    NVIDIA/nccl-tests, ``doc/PERFORMANCE.md`` (sizes and bus bandwidth).
    """
    if clocks is not None:
        events = on_one_clock(events, clocks)
    work = gpu_work(events, *_COLUMNS)
    chosen = work.kind == KINDS.index("communication")
    comm = _kernels(events, work, chosen, process_groups)
    comm = comm.join(match(comm, np.unique(work.rank).tolist()))
    comm["doubt"] = "" if clocks is None else arrival_doubts(comm, clocks)
    return COLLECTIVES.check(_presented(events, _measured(comm)))


def collective_waits(
    events: pd.DataFrame,
    *,
    process_groups: pd.DataFrame | None = None,
    clocks: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Split every collective into waiting for the last rank and moving data.

    A rank that enters a collective early cannot make progress until the last rank
    enters. That time is waiting, and it is blamed on the last rank. The rest, up to the
    rank's own end, is transfer.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` of all ranks, on one common clock.
    process_groups
        Table :data:`workbench.tables.PROCESS_GROUPS`, as for :func:`collectives`.
    clocks
        Table :data:`workbench.tables.CLOCKS`, as for :func:`collectives`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COLLECTIVE_WAITS`, one row per matched collective and
        rank. ``attrs["left_out"]`` counts the kernels for which nothing can be said, by
        reason; :func:`collectives` lists them. Empty if only one rank is loaded.

    Notes
    -----
    ``wait = max_r(start) - start`` and ``transfer = end - max_r(start)``, so the two add
    up to the time the rank spent in the collective. Of ranks that start last at the same
    nanosecond the lowest is blamed.
    """
    table = collectives(events, process_groups=process_groups, clocks=clocks)
    known = table["wait_ns"].notna()
    waits = table.loc[known, list(COLLECTIVE_WAITS.columns)].reset_index(drop=True)
    types = {"collective": "int64", "wait_ns": "int64", "transfer_ns": "int64"}
    waits = waits.astype({**types, "blamed_rank": "int32", "is_sure": "bool"})
    waits.attrs["left_out"] = table.loc[~known, "note"].value_counts().to_dict()
    return COLLECTIVE_WAITS.check(waits)


def _kernels(
    events: pd.DataFrame, work: Work, chosen: NDArray[np.bool_], process_groups: pd.DataFrame | None
) -> pd.DataFrame:
    """Gather what is known of each communication kernel, -1 for missing."""
    row = work.row[chosen]
    operation = operations(events, row)
    comm = pd.DataFrame(
        {
            "row": row,
            "rank": work.rank[chosen],
            "start": work.start[chosen],
            "end": work.end[chosen],
            "stream": taken(events["stream"], row),
            "step": taken(events["step"], row),
            "group": codes(events["group"])[row].astype(np.int64),
            "group_size": taken(events["group_size"], row),
            "seq": taken(events["seq"], row),
            "operation": operation,
            "size": sizes(events, row, operation),
            "dtype": codes(events["dtype"])[row].astype(np.int64),
            "name": codes(events["name"])[row].astype(np.int64),
        }
    )
    members = _members(events, comm, process_groups)
    team = grouped(*(comm[key].to_numpy() for key in ("group", "group_size")), members).number
    comm["team"] = np.where(comm["group"] == MISSING, MISSING, team)
    return comm


def _members(events: pd.DataFrame, comm: pd.DataFrame, process_groups: pd.DataFrame | None) -> Ints:
    """Give each kernel's process group a number for its members, -1 if unknown."""
    if process_groups is None:
        return np.full(len(comm), MISSING)
    PROCESS_GROUPS.check(process_groups)
    known = process_groups.drop_duplicates(["rank", "group"])
    number = pd.Series(pd.factorize(known["members"])[0].astype(np.int64))
    index = pd.MultiIndex.from_arrays([known["rank"].astype("int64"), known["group"].astype(str)])
    names = np.append(events["group"].cat.categories.astype(str).to_numpy(dtype=object), "")
    position = index.get_indexer(pd.MultiIndex.from_arrays([comm["rank"], names[comm["group"]]]))
    return np.where(position >= 0, np.append(number, MISSING)[position], MISSING)


def _measured(comm: pd.DataFrame) -> pd.DataFrame:
    """Add what is known of each matched collective as a whole."""
    last_first = comm[comm["instance"] != MISSING].sort_values(
        ["start", "rank"], ascending=[False, True]
    )
    last_first["dur"] = last_first["end"] - last_first["start"]
    whole = last_first.groupby("instance").agg(
        rank_count=("rank", "size"),
        latest=("start", "max"),
        earliest=("start", "min"),
        first_end=("end", "min"),
        last_end=("end", "max"),
        shortest=("dur", "min"),
        last_rank=("rank", "first"),
        least=("size", "min"),
        mean_size=("size", "mean"),
        most=("size", "max"),
    )
    whole["number"] = whole["earliest"].rank(method="first").astype("int64") - 1
    columns = {name: "float64" if name == "mean_size" else "Int64" for name in whole.columns}
    comm = comm.join(whole.astype(columns), on="instance")
    return comm.sort_values(["number", "rank", "start"], na_position="last", ignore_index=True)


def _presented(events: pd.DataFrame, comm: pd.DataFrame) -> pd.DataFrame:
    """Turn what is known into the columns of the table."""
    latest = comm["latest"].where(comm["latest"] <= comm["first_end"])
    sure = 2 * (comm["last_end"] - comm["first_end"]) <= comm["latest"] - comm["earliest"]
    sure &= comm["doubt"] == ""
    complete = (comm["rank_count"] >= comm["group_size"]).mask(comm["group_size"] == MISSING)
    table = pd.DataFrame(
        {
            "collective": comm["number"],
            "rank": comm["rank"].astype("int32"),
            "event": events.index.to_numpy()[comm["row"]],
            "operation": labelled(comm["operation"].to_numpy(), OPERATIONS),
            "group": _groups(events, comm),
            "group_size": nullable(comm["group_size"].to_numpy(), "Int32"),
            "rank_count": comm["rank_count"].fillna(1).astype("int32"),
            "is_complete": complete.astype("boolean"),
            "step": nullable(comm["step"].to_numpy(), "Int32"),
            "start_ns": comm["start"],
            "dur_ns": comm["end"] - comm["start"],
            "wait_ns": latest - comm["start"],
            "transfer_ns": comm["end"] - latest,
            "transfer_min_ns": comm["shortest"],
            "blamed_rank": comm["last_rank"].where(latest.notna()).astype("Int32"),
            "start_skew_ns": comm["latest"] - comm["earliest"],
            "end_skew_ns": comm["last_end"] - comm["first_end"],
            "is_sure": sure.mask(latest.isna()).astype("boolean"),
            "size_bytes": nullable(comm["size"].to_numpy(), "Int64"),
            "confidence": labelled(comm["confidence"].to_numpy(), CONFIDENCES),
            "note": _notes(comm, complete, sure),
        }
    )
    table = table.join(_bandwidths(comm))
    return table[list(COLLECTIVES.columns)]


def _groups(events: pd.DataFrame, comm: pd.DataFrame) -> pd.Series:
    """Name the process group of each kernel, or its stream if no group is recorded."""
    names = np.append(events["group"].cat.categories.astype(str).to_numpy(dtype=object), "")
    on_stream = "stream " + comm["stream"].astype(str).replace("-1", "unknown")
    recorded = pd.Series(names[comm["group"]], dtype=on_stream.dtype)
    return recorded.where(comm["group"] != MISSING, on_stream).astype("category")


def _bandwidths(comm: pd.DataFrame) -> pd.DataFrame:
    """Give imbalance and rates of the collectives whose size every rank has recorded."""
    mean_size = comm["mean_size"].where(comm["least"].ge(0).fillna(value=False).astype(bool))
    rate = shares(mean_size, comm["shortest"])
    ranks = comm["rank_count"].where(comm["group_size"] == MISSING, comm["group_size"])
    pairs = grouped(comm["operation"].to_numpy(), ranks.to_numpy("int64", na_value=1))
    factors = [
        bus_factor(OPERATIONS[operation], count)
        for operation, count in zip(*(key.tolist() for key in pairs.keys), strict=True)
    ]
    factor = pd.array(factors, dtype="Float64")[pairs.number]
    return pd.DataFrame(
        {
            "size_imbalance_ratio": shares(comm["most"], mean_size),
            "algorithm_gb_per_s": rate,
            "bus_gb_per_s": rate * factor,
        }
    )


def _notes(comm: pd.DataFrame, complete: pd.Series, sure: pd.Series) -> pd.Series:
    """Say why a kernel is not matched, or what is doubtful about its collective."""
    lacking = (comm["group_size"] - comm["rank_count"]).astype(str)
    partial = lacking + " of " + comm["group_size"].astype(str)
    partial += " ranks are missing: waits are lower bounds"
    note = comm["note"].mask((~complete).fillna(value=False), partial)
    note = note.mask((~sure).fillna(value=False), _DOUBTFUL)
    note = note.mask(comm["doubt"] != "", comm["doubt"])
    note = note.mask((comm["latest"] > comm["first_end"]).fillna(value=False), _INFEASIBLE)
    positions, names = pd.factorize(note.mask(note == ""))
    return texts(positions.astype(np.int64), [str(name) for name in names])
