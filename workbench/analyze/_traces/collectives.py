"""Collectives across ranks: how long they took, and which rank was the straggler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.collective_names import OPERATIONS
from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.rows import MISSING, NOT_MATCHED, Ints, Work
from workbench.analyze._lib.scopes import across_ranks
from workbench.analyze._traces.clocks import align_clocks, arrival_doubts
from workbench.tables import BLAME, COLLECTIVE_WAITS, COLLECTIVES, PROCESS_GROUPS

_COLUMNS = (
    "name", "step", "stream", "collective", "group", "group_size", "seq", "in_count", "out_count",
    "dtype",
)  # fmt: skip
_INFEASIBLE = (
    "a rank ended before the last one began: clocks disagree by more than the collective took "
    "(see analyze.clocks), or it need not wait"
)
_DOUBTFUL = (
    "ranks end over half as far apart as they start: clocks disagree, or shares of the work "
    "differ; which rank was last is uncertain"
)


@across_ranks
def collectives(
    events: pd.DataFrame,
    *,
    process_groups: pd.DataFrame | None = None,
    clocks: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Match the communication kernels of all ranks and measure each collective.

    A rank that enters a collective early waits in it for the last one, so its own duration says
    little. The shortest duration of all ranks is the transfer itself; what another rank spent
    beyond that it spent waiting.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` of all ranks, on one common clock.
    process_groups
        Table :data:`workbench.tables.PROCESS_GROUPS`. With it, groups that share a name but not
        their members are kept separate.
    clocks
        Table :data:`workbench.tables.CLOCKS` of these events. With it, they are put on one clock
        first, and who was last is sure only as far as clocks agree.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COLLECTIVES`, one row per communication kernel: matched ones
        by collective and rank, then the others. What could not be matched has no ``collective``,
        confidence none and a ``note``.

    Notes
    -----
    Kernels are matched by process group and sequence number (high confidence), by process group and
    order (medium) or, with nothing recorded, by order on the stream (low; only if all ranks ran the
    same names in the same order, in the trace or in the step). Numbers of steps overrule an order
    that contradicts them, if ranks have as many collectives in each step. Barriers, waits,
    coalesced placeholders and point-to-point transfers are not matched.

    For rank r with start s_r and end e_r: wait = max s - s_r, transfer = e_r - max s, shortest
    duration = min (e_r - s_r). If max s > min e the ranks cannot have waited for each other, and
    there is neither. Ranks that end over half as far apart as they start are not on one clock or
    have unequal work, so ``is_sure`` is false. With ``clocks`` it is also false unless the last
    rank starts more than 2 (u + v) after the one before it, u and v being the two largest residuals
    of the clocks of its ranks.

    Size is elements times bytes per element; for all-gather all elements a rank receives, for
    reduce-scatter and all-to-all all it sends. Algorithm bandwidth is the mean size / shortest
    duration; bus bandwidth is that times 2 (n - 1) / n for all-reduce, (n - 1) / n for all-gather,
    reduce-scatter and all-to-all, 1 for broadcast and reduce. If ranks of the group are missing,
    waits are lower bounds.

    References
    ----------
    NVIDIA/nccl-tests, ``doc/PERFORMANCE.md`` (sizes and bus bandwidth).
    """
    if clocks is not None:
        events = align_clocks(events, clocks)
    work = arrays.gpu_work(events, *_COLUMNS)
    chosen = work.kind == KINDS.index("communication")
    comm = _kernels(events, work, chosen, process_groups)
    comm = comm.join(match(comm, np.unique(work.rank).tolist()))
    comm["doubt"] = "" if clocks is None else arrival_doubts(comm, clocks)
    return COLLECTIVES.check(_presented(events, _measured(comm)))


@across_ranks
def collective_waits(
    events: pd.DataFrame,
    *,
    process_groups: pd.DataFrame | None = None,
    clocks: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Split every collective into waiting for the straggler and moving data.

    A rank that enters a collective early cannot make progress until the last rank enters. That time
    is waiting, blamed on the last rank. The rest, up to the rank's own end, is transfer.

    Parameters
    ----------
    events, process_groups, clocks
        As for :func:`collectives`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COLLECTIVE_WAITS`, one row per matched collective and rank;
        empty if only one rank is loaded. ``attrs["left_out"]`` counts the kernels for which nothing
        can be said, by reason; :func:`collectives` lists them.

    Notes
    -----
    ``wait = max_r(start) - start`` and ``transfer = end - max_r(start)``. Of ranks that start last
    at the same nanosecond the lowest is blamed.
    """
    table = collectives(events, process_groups=process_groups, clocks=clocks)
    is_matched = table["wait_ns"].notna()
    waits = table.loc[is_matched, list(COLLECTIVE_WAITS.columns)].reset_index(drop=True)
    types = {"collective": "int64", "wait_ns": "int64", "transfer_ns": "int64"}
    waits = waits.astype({**types, "blamed_rank": "int32", "is_sure": "bool"})
    waits.attrs["left_out"] = table.loc[~is_matched, "note"].value_counts().to_dict()
    return COLLECTIVE_WAITS.check(waits)


def _kernels(
    events: pd.DataFrame, work: Work, chosen: NDArray[np.bool_], process_groups: pd.DataFrame | None
) -> pd.DataFrame:
    row = work.row[chosen]
    operation = arrays.operations(events, row)
    comm = pd.DataFrame(
        {
            "row": row,
            "rank": work.rank[chosen],
            "start": work.start[chosen],
            "end": work.end[chosen],
            "stream": arrays.taken(events["stream"], row),
            "step": arrays.taken(events["step"], row),
            "group": arrays.codes(events["group"])[row].astype(np.int64),
            "group_size": arrays.taken(events["group_size"], row),
            "seq": arrays.taken(events["seq"], row),
            "operation": operation,
            "size": arrays.sizes(events, row, operation),
            "dtype": arrays.codes(events["dtype"])[row].astype(np.int64),
            "name": arrays.codes(events["name"])[row].astype(np.int64),
        }
    )
    members = _members(events, comm, process_groups)
    team = arrays.grouped(
        *(comm[key].to_numpy() for key in ("group", "group_size")), members
    ).number
    comm["team"] = np.where(comm["group"] == MISSING, MISSING, team)
    return comm


def _members(events: pd.DataFrame, comm: pd.DataFrame, process_groups: pd.DataFrame | None) -> Ints:
    if process_groups is None:
        return np.full(len(comm), MISSING)
    PROCESS_GROUPS.check(process_groups)
    listed = process_groups.drop_duplicates(["rank", "group"])
    number = pd.Series(pd.factorize(listed["members"])[0].astype(np.int64))
    index = pd.MultiIndex.from_arrays([listed["rank"].astype("int64"), listed["group"].astype(str)])
    names = np.append(events["group"].cat.categories.astype(str).to_numpy(dtype=object), "")
    position = index.get_indexer(pd.MultiIndex.from_arrays([comm["rank"], names[comm["group"]]]))
    return np.where(position >= 0, np.append(number, MISSING)[position], MISSING)


def _measured(comm: pd.DataFrame) -> pd.DataFrame:
    # The last to start comes first; of ties the lowest rank is blamed.
    last_first = comm[comm["instance"] != MISSING].sort_values(
        ["start", "rank"], ascending=[False, True]
    )
    last_first["dur"] = last_first["end"] - last_first["start"]
    summary = last_first.groupby("instance").agg(
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
    summary["number"] = summary["earliest"].rank(method="first").astype("int64") - 1
    columns = {name: "float64" if name == "mean_size" else "Int64" for name in summary.columns}
    comm = comm.join(summary.astype(columns), on="instance")
    return comm.sort_values(["number", "rank", "start"], na_position="last", ignore_index=True)


def _presented(events: pd.DataFrame, comm: pd.DataFrame) -> pd.DataFrame:
    # A rank that left before the last one came did not wait for it: clocks differ, or it need not.
    latest = comm["latest"].where(comm["latest"] <= comm["first_end"])
    # Ends lie together if ranks waited for each other on one clock.
    sure = 2 * (comm["last_end"] - comm["first_end"]) <= comm["latest"] - comm["earliest"]
    sure &= comm["doubt"] == ""
    complete = (comm["rank_count"] >= comm["group_size"]).mask(comm["group_size"] == MISSING)
    table = pd.DataFrame(
        {
            "collective": comm["number"],
            "rank": comm["rank"].astype("int32"),
            "event": events.index.to_numpy()[comm["row"]],
            "operation": arrays.labelled(comm["operation"].to_numpy(), OPERATIONS),
            "group": _groups(events, comm),
            "group_size": arrays.nullable(comm["group_size"].to_numpy(), "Int32"),
            "rank_count": comm["rank_count"].fillna(1).astype("int32"),
            "is_complete": complete.astype("boolean"),
            "step": arrays.nullable(comm["step"].to_numpy(), "Int32"),
            "start_ns": comm["start"],
            "dur_ns": comm["end"] - comm["start"],
            "wait_ns": latest - comm["start"],
            "transfer_ns": comm["end"] - latest,
            "transfer_min_ns": comm["shortest"],
            "blamed_rank": comm["last_rank"].where(latest.notna()).astype("Int32"),
            "start_skew_ns": comm["latest"] - comm["earliest"],
            "end_skew_ns": comm["last_end"] - comm["first_end"],
            "is_sure": sure.mask(latest.isna()).astype("boolean"),
            "size_bytes": arrays.nullable(comm["size"].to_numpy(), "Int64"),
            "confidence": arrays.labelled(comm["confidence"].to_numpy(), CONFIDENCES),
            "note": _notes(comm, complete, sure),
        }
    )
    table = table.join(_bandwidths(comm))
    return table[list(COLLECTIVES.columns)]


def _groups(events: pd.DataFrame, comm: pd.DataFrame) -> pd.Series:
    names = np.append(events["group"].cat.categories.astype(str).to_numpy(dtype=object), "")
    # Without a recorded group the stream stands for it.
    on_stream = "stream " + comm["stream"].astype(str).replace("-1", "unknown")
    recorded = pd.Series(names[comm["group"]], dtype=on_stream.dtype)
    return recorded.where(comm["group"] != MISSING, on_stream).astype("category")


def _bandwidths(comm: pd.DataFrame) -> pd.DataFrame:
    mean_size = comm["mean_size"].where(comm["least"].ge(0).fillna(value=False).astype(bool))
    rate = arrays.shares(mean_size, comm["shortest"])
    # Rings turn over all members, also those that are not loaded.
    ranks = comm["rank_count"].where(comm["group_size"] == MISSING, comm["group_size"])
    pairs = arrays.grouped(comm["operation"].to_numpy(), ranks.to_numpy("int64", na_value=1))
    factors = [
        arrays.bus_factor(OPERATIONS[operation], count)
        for operation, count in zip(*(key.tolist() for key in pairs.keys), strict=True)
    ]
    factor = pd.array(factors, dtype="Float64")[pairs.number]
    return pd.DataFrame(
        {
            "size_imbalance_ratio": arrays.shares(comm["most"], mean_size),
            "algorithm_gb_per_s": rate,
            "bus_gb_per_s": rate * factor,
        }
    )


def _notes(comm: pd.DataFrame, complete: pd.Series, sure: pd.Series) -> pd.Series:
    lacking = (comm["group_size"] - comm["rank_count"]).astype(str)
    partial = lacking + " of " + comm["group_size"].astype(str)
    partial += " ranks are missing: waits are lower bounds"
    # The later a reason is set, the more of what the row says it makes doubtful.
    note = comm["note"].mask((~complete).fillna(value=False), partial)
    note = note.mask((~sure).fillna(value=False), _DOUBTFUL)
    note = note.mask(comm["doubt"] != "", comm["doubt"])
    note = note.mask((comm["latest"] > comm["first_end"]).fillna(value=False), _INFEASIBLE)
    positions, names = pd.factorize(note.mask(note == ""))
    return arrays.texts(positions.astype(np.int64), [str(name) for name in names])


def straggler_attribution(
    waits: pd.DataFrame, *, complete_only: bool = True, sure_only: bool = True
) -> pd.DataFrame:
    """Add up how long ranks waited, by the straggler they waited for, most waiting first.

    Choose rows of ``waits`` first for single steps or process groups: a rank that is slow for good
    is blamed in every step, one that was late once in one.

    Parameters
    ----------
    waits
        Table :data:`workbench.tables.COLLECTIVE_WAITS`.
    complete_only
        Leave out collectives of which a rank is known to be missing: that rank may have been the
        last.
    sure_only
        Leave out collectives in which it is not sure who was last.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.BLAME`: ``blamed_rank``, ``rank`` (that waited), ``wait_ns``,
        ``collective_count``, ``wait_share`` of all waiting. A rank appears with itself, without
        waiting, for every collective in which it was last. ``attrs["left_out"]`` gives the
        collectives dropped, by reason, and ``attrs["kernels_left_out"]`` the kernels of which
        ``waits`` knows nothing.
    """
    COLLECTIVE_WAITS.check(waits)
    unknown = dict(waits.attrs.get("left_out", {}))
    doubts = {
        "a rank is missing": ~waits["is_complete"].fillna(value=True).astype(bool) & complete_only,
        "it is not sure who was last": ~waits["is_sure"] & sure_only,
    }
    dropped = {}
    for reason, doubtful in doubts.items():
        rows = doubtful[waits.index]
        if rows.any():
            dropped[reason] = int(waits.loc[rows, "collective"].nunique())
        waits = waits[~rows]
    table = waits.groupby(["blamed_rank", "rank"], as_index=False).agg(
        wait_ns=("wait_ns", "sum"), collective_count=("wait_ns", "size")
    )
    table = table.astype({"blamed_rank": "int32", "rank": "int32"})
    table["wait_share"] = arrays.shares(
        table["wait_ns"], np.full(len(table), table["wait_ns"].sum())
    )
    order = ["wait_ns", "blamed_rank", "rank"]
    table = table.sort_values(order, ascending=[False, True, True], ignore_index=True)
    table.attrs |= {"left_out": dropped, "kernels_left_out": unknown}
    return BLAME.check(table)


Texts: TypeAlias = NDArray[np.object_]

# Of the match: by sequence number, by order in the group, by order on the stream, none.
CONFIDENCES = ("high", "medium", "low", "none")
_HIGH, _MEDIUM, _LOW, _NONE = range(len(CONFIDENCES))
_SAME_SIZE = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")


def match(comm: pd.DataFrame, ranks: Iterable[int]) -> pd.DataFrame:
    """Return which kernels of different ranks are the same collective, by giving them one number.

    ``comm`` has one row per communication kernel, in order of rank and start, all columns integers
    and -1 for missing. The result has ``instance``, ``confidence`` (position in CONFIDENCES) and
    ``note`` (why not matched).

    Notes
    -----
    The best key available is taken for each process group: sequence number (high confidence); order
    inside the group (medium); with nothing recorded, order on the stream (low). Order is trusted as
    far as operation, type and size agree on all ranks that have the group, and on the stream only
    if they agree to the end.
    """
    result = pd.DataFrame(
        {"instance": MISSING, "confidence": _NONE, "note": ""}, index=comm.index
    ).astype({"note": object})
    reasons = [f"{name}: {NOT_MATCHED[name]}" if name in NOT_MATCHED else "" for name in OPERATIONS]
    reason = pd.Series(np.array(reasons, dtype=object)[comm["operation"]], index=comm.index)
    # NCCL runs an all-to-all as send-receive; with a group recorded it may be between two ranks.
    is_paired = comm["operation"].eq(OPERATIONS.index("send-receive")) & comm["team"].ne(MISSING)
    excluded = reason.mask(is_paired, "send-receive: its partner is not recorded")
    result.loc[excluded != "", "note"] = excluded[excluded != ""]
    candidates = comm[excluded == ""]
    recorded = candidates["team"] != MISSING
    has_seq = candidates["seq"].ne(MISSING).groupby(candidates["team"]).transform("all") & recorded
    levels = (
        (_HIGH, candidates[has_seq], _by_sequence),
        (_MEDIUM, candidates[recorded & ~has_seq], _by_group_order),
        (_LOW, candidates[~recorded], lambda rows: _by_stream_order(rows, set(ranks))),
    )
    first = 0
    for confidence, rows, matched_by in levels:
        if rows.empty:
            continue
        instance, note = matched_by(rows)
        is_matched = instance != MISSING
        result.loc[rows.index, "instance"] = np.where(is_matched, instance + first, MISSING)
        result.loc[rows.index, "confidence"] = np.where(is_matched, confidence, _NONE)
        result.loc[rows.index, "note"] = note
        first += int(instance.max()) + 1
    return _only_groups(result, comm)


def _only_groups(result: pd.DataFrame, comm: pd.DataFrame) -> pd.DataFrame:
    is_matched = result["instance"] != MISSING
    ranks = comm["rank"][is_matched].groupby(result["instance"]).transform("size")
    size = comm["group_size"][is_matched]
    too_many, alone = (size != MISSING) & (ranks > size), ranks == 1
    for wrong, note in (
        (too_many, "more ranks than the group has members: pass process_groups"),
        (alone & (size != 1), "only one rank of the group is loaded"),
        (alone & (size == 1), "a group of one rank"),
    ):
        rows = wrong.index[wrong]
        result.loc[rows, ["instance", "confidence"]] = [MISSING, _NONE]
        result.loc[rows, "note"] = note
    return result


def _by_sequence(rows: pd.DataFrame) -> tuple[Ints, Texts]:
    keys = ["team", "seq"]
    instance = _numbered(rows, [*keys, rows.groupby([*keys, "rank"]).cumcount()])
    agrees = _agrees(rows, instance)
    note = np.where(agrees, "", "ranks disagree on what has this sequence number")
    return np.where(agrees, instance, MISSING), note


def _by_group_order(rows: pd.DataFrame) -> tuple[Ints, Texts]:
    """Match by order inside the group; where that breaks, by order inside each step."""
    plain = _numbered(rows, ["team", rows.groupby(["team", "rank"]).cumcount()])
    good = pd.Series(_agrees(rows, plain) & _has_all_ranks(rows, plain), index=rows.index)
    is_whole = good.groupby(rows["team"]).transform("all").to_numpy() & ~_steps_refute(rows, plain)
    order = rows.groupby(["team", "step", "rank"]).cumcount()
    by_step = _numbered(rows, ["team", "step", order])
    # Once ranks differ, the order of all that follows in the step says nothing.
    fits = _agrees(rows, by_step) & _has_all_ranks(rows, by_step)
    broken_at = order.where(~fits, np.iinfo(np.int64).max)
    first_break = broken_at.groupby([rows["team"], rows["step"]]).transform("min")
    usable = (order < first_break).to_numpy()
    instance = np.where(is_whole, plain, np.where(usable, by_step + len(rows), MISSING))
    note = np.where(is_whole | usable, "", "ranks of the group differ from here on in the step")
    return instance, note


def _steps_refute(rows: pd.DataFrame, plain: Ints) -> NDArray[np.bool_]:
    """Return for which groups steps show that the order is shifted, as traces began in other steps.

    Their numbers differ inside a match, although ranks have as many collectives in each step.
    """
    known = rows["step"].where(rows["step"] != MISSING)
    differ = known.groupby(plain).transform("nunique") > 1
    counts = rows.groupby(["team", "step", "rank"]).size().groupby(["team", "step"]).nunique()
    uneven = set(counts.index[counts > 1].get_level_values("team"))
    refuted = differ.groupby(rows["team"]).transform("any") & ~rows["team"].isin(uneven)
    return refuted.to_numpy()


# The weakest key: only as good as all ranks running the same names in the same order, in the whole
# trace or in a step.
def _by_stream_order(rows: pd.DataFrame, ranks: set[int]) -> tuple[Ints, Texts]:
    if len(ranks) < 2:
        return np.full(len(rows), MISSING), np.full(len(rows), "only one rank is loaded", object)
    streams = rows[["rank", "stream"]].drop_duplicates().sort_values(["rank", "stream"])
    # Numbers of streams differ between ranks, so the n-th of each are taken for the same.
    streams["lane"] = streams.groupby("rank").cumcount()
    lane = rows.merge(streams, on=["rank", "stream"], how="left")["lane"].to_numpy()
    rows = rows.assign(team=lane)
    plain = _numbered(rows, ["team", rows.groupby(["team", "rank"]).cumcount()])
    order = rows.groupby(["team", "step", "rank"]).cumcount()
    by_step = _numbered(rows, ["team", "step", order])
    is_even, is_alike = _same_on_all(rows, plain, ["team"], len(ranks))
    is_whole = is_even & is_alike & ~_steps_refute(rows, plain)
    step_is_even, step_is_alike = _same_on_all(rows, by_step, ["team", "step"], len(ranks))
    usable = step_is_even & step_is_alike & rows["step"].ne(MISSING).to_numpy()
    differ = "no process group recorded, and ranks differ in the {} of collectives".format
    reason = np.where(is_even, differ("order"), differ("number"))
    note = np.where(is_whole | usable, "", reason).astype(object)
    return np.where(is_whole, plain, np.where(usable, by_step + len(rows), MISSING)), note


def _same_on_all(
    rows: pd.DataFrame, instance: Ints, unit: list[str], rank_count: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether all ranks have as many collectives in a unit, and whether in one order."""
    counts = rows.groupby([*unit, "rank"]).size().groupby(unit).agg(["size", "min", "max"])
    even = (counts["size"] == rank_count) & (counts["min"] == counts["max"])
    same_name = rows.groupby(instance)["name"].transform("nunique").eq(1)
    alike = same_name.groupby([rows[name] for name in unit]).transform("all")
    return rows[unit].join(even.rename("even"), on=unit)["even"].to_numpy(), alike.to_numpy()


def _numbered(rows: pd.DataFrame, keys: Sequence[str | pd.Series]) -> Ints:
    columns = [rows[key] if isinstance(key, str) else key for key in keys]
    return arrays.grouped(*(column.to_numpy().astype(np.int64) for column in columns)).number


# Only some operations have one size on all ranks; an all-to-all may be uneven.
def _agrees(rows: pd.DataFrame, instance: Ints) -> NDArray[np.bool_]:
    same_size = rows["operation"].isin([OPERATIONS.index(name) for name in _SAME_SIZE])
    signature = _numbered(rows, ["operation", "dtype", rows["size"].where(same_size, MISSING)])
    by_instance = pd.Series(signature).groupby(instance)
    same = by_instance.transform("min") == by_instance.transform("max")
    return np.asarray(same, dtype=bool)


def _has_all_ranks(rows: pd.DataFrame, instance: Ints) -> NDArray[np.bool_]:
    expected = rows.groupby("team")["rank"].transform("nunique").to_numpy()
    present = pd.Series(rows["rank"].to_numpy()).groupby(instance).transform("nunique")
    return np.asarray(present.to_numpy() == expected)
