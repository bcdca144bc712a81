"""The operations of each rank in order of the host: what it started, and what it waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.collective_names import OPERATIONS
from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib.rows import (
    MISSING,
    Ints,
    codes,
    gpu_work,
    operations,
    required,
    sizes,
    taken,
)
from workbench.analyze._perfmodel.graph.execution_graph import execution_graph
from workbench.analyze._traces.clocks import align_clocks, clocks
from workbench.analyze._traces.collectives import collectives
from workbench.tables import EDGE_KINDS, ExecutionGraph
from workbench.tables.trace_profile import SYNC

_SYNC_CODE = len(KINDS)
KIND_NAMES = (*KINDS, SYNC)
_EDGE = {name: EDGE_KINDS.index(name) for name in EDGE_KINDS}


def on_one_clock(events: pd.DataFrame) -> pd.DataFrame:
    """Put ranks on one clock, as far as their collectives tell how clocks differ."""
    if events["rank"].nunique() < 2:
        return events
    return align_clocks(events, clocks(collectives(events)))


def rank_graphs(events: pd.DataFrame) -> dict[int, ExecutionGraph]:
    """Build the execution graph of every rank alone."""
    work = required(gpu_work(events, "stream", "step"), events, "profile")
    ranks = np.unique(work.rank).tolist()
    return {rank: execution_graph(events[events["rank"] == rank]) for rank in ranks}


def host_operations(events: pd.DataFrame, graphs: Mapping[int, ExecutionGraph]) -> pd.DataFrame:
    """List what each rank starts on the GPU and waits for, in order of the host.

    Columns: ``rank``, ``step`` (-1 outside every step), ``kind`` (position in KIND_NAMES),
    ``stream`` (0 is the busiest), ``size`` [bytes], ``dur`` [ns; of matched collectives the
    shortest of all ranks], ``waits`` (stream, -1: none), ``back`` (work of
    that stream started after what is waited for), ``operation``, ``group`` (0: all ranks),
    ``time`` (when the host got there), ``gap`` [ns of the host since the operation before], ``lag``
    (launch latency) and ``row`` (position in the events). Missing numbers are -1.
    """
    transfer = _transfers(events)
    streams = _streams(events, gpu_work(events, "stream").row)
    ranks = []
    for rank, graph in graphs.items():
        place = np.flatnonzero(events["rank"].to_numpy() == rank)
        of_rank = _of_rank(events.iloc[place], graph, transfer, streams)
        row = of_rank["row"].to_numpy()
        ranks.append(of_rank.assign(row=np.where(row >= 0, place[row], MISSING)))
    rows = pd.concat(ranks, ignore_index=True)
    at = np.maximum(rows["row"].to_numpy(), 0)
    is_sync = rows["row"].to_numpy() < 0
    talks = (rows["kind"] == KINDS.index("communication")).to_numpy()
    operation = operations(events, at)
    size = np.where(talks, sizes(events, at, operation), taken(events["size_bytes"], at))
    group = taken(events["group_size"], at)
    whole = np.isin(group, (MISSING, len(ranks), _world(events)))
    return rows.assign(
        size=np.where(is_sync, MISSING, size),
        operation=np.where(talks, np.array(OPERATIONS, dtype=object)[operation], ""),
        group=np.where(talks & ~whole, group, 0),
    )


def _world(events: pd.DataFrame) -> int:
    largest = events["group_size"].max()
    return 0 if pd.isna(largest) else int(largest)


def _transfers(events: pd.DataFrame) -> pd.Series:
    """Return the shortest time of all ranks of each matched collective, by row label."""
    if events["rank"].nunique() < 2:
        return pd.Series(dtype="float64")
    matched = collectives(events).dropna(subset="transfer_min_ns")
    return matched.set_index("event")["transfer_min_ns"].astype("float64")


def _streams(events: pd.DataFrame, row: Ints) -> pd.Series:
    """Assign numbers to the streams of all ranks, the busiest first."""
    stream = taken(events["stream"], row)
    busy = pd.Series(events["dur_ns"].to_numpy()[row] + 1).groupby(stream).sum()
    order = busy.sort_values(ascending=False, kind="stable").index
    return pd.Series(np.arange(len(order)), index=order)


def _of_rank(
    events: pd.DataFrame, graph: ExecutionGraph, transfer: pd.Series, streams: pd.Series
) -> pd.DataFrame:
    label = graph.event[graph.gpu_start]
    row = events.index.get_indexer(pd.Index(label))
    work_of = np.full(len(graph.time_ns), MISSING)
    work_of[graph.gpu_start + 1] = np.arange(len(row))
    number = streams.reindex(taken(events["stream"], row)).to_numpy()
    works = _works(events, graph, row, work_of, number)
    shortest = transfer.reindex(label).to_numpy(dtype=np.float64)
    works["dur"] = np.where(np.isnan(shortest), works["dur"], shortest)
    rows = pd.concat([works, _syncs(graph, work_of, number)], ignore_index=True)
    # A copy that blocks is launched, then waited for, at one moment.
    rows = rows.iloc[np.lexsort((rows["kind"] == _SYNC_CODE, rows["time"]))]
    before = (rows["time"] + rows["own"]).shift(fill_value=0).to_numpy()
    return rows.assign(
        rank=int(events["rank"].iloc[0]), step=_steps(events, rows),
        gap=np.maximum(rows["time"].to_numpy() - before, 0), time=rows["time"] + graph.origin_ns,
    )  # fmt: skip


def _works(
    events: pd.DataFrame, graph: ExecutionGraph, row: Ints, work_of: Ints, number: Ints
) -> pd.DataFrame:
    start, time = graph.gpu_start, graph.time_ns
    position = np.full(len(time), MISSING)
    position[start] = np.arange(len(start))
    launched = np.flatnonzero(graph.edge_kind == _EDGE["launch"])
    at = position[graph.target[launched]]
    call, lag = np.full((2, len(start)), MISSING)
    call[at], lag[at] = graph.source[launched], graph.weight_ns[launched]
    # Work without a launch in the trace follows what is before it on its stream; the first of a
    # stream was launched before the trace began.
    told = pd.Series(np.where(call != MISSING, time[call], np.nan)).groupby(number).ffill()
    issued: Ints = told.fillna(0).to_numpy().astype(np.int64)
    own = np.append(_blocked(graph), 0)[call]
    across = np.flatnonzero(graph.edge_kind == _EDGE["inter-stream"])
    source, target = work_of[graph.source[across]], position[graph.target[across]]
    # Of several waits the one that ended last counts: it comes last, so that it is kept.
    by_end = np.argsort(time[start + 1][source], kind="stable")
    cause = np.full(len(start), MISSING)
    cause[target[by_end]] = source[by_end]
    cause = np.where(number[cause] == number, MISSING, cause)
    waits = np.where(cause != MISSING, number[cause], MISSING)
    # Latency shows where nothing else can hold up the work; with no such work, the least weight.
    before = pd.Series(time[start + 1]).groupby(number).shift(fill_value=0).to_numpy()
    is_free = (lag != MISSING) & (before <= issued) & (waits == MISSING)
    least = lag[lag != MISSING].min(initial=np.iinfo(np.int64).max)
    lag = np.where(is_free if is_free.any() else lag == least, lag, MISSING)
    columns: dict[str, Any] = {
        "kind": codes(events["kind"].cat.set_categories(list(KINDS)))[row],
        "stream": number, "waits": waits, "row": row, "lag": lag,
        "back": _back(number, issued, cause), "time": issued, "own": own,
        "dur": (time[start + 1] - time[start]).astype("float64"),
    }  # fmt: skip
    return pd.DataFrame(columns)


def _back(number: Ints, issued: Ints, cause: Ints) -> Ints:
    """Return how much work of its stream was started after some cause and before what waits."""
    back = np.zeros(len(number), dtype=np.int64)
    for stream in np.unique(number[cause[cause != MISSING]]).tolist():
        members = np.flatnonzero(number == stream)
        members = members[np.argsort(issued[members], kind="stable")]
        position = np.zeros(len(number), dtype=np.int64)
        position[members] = np.arange(len(members))
        waiting = np.flatnonzero((cause != MISSING) & (number[cause] == stream))
        count = np.searchsorted(issued[members], issued[waiting])
        back[waiting] = np.maximum(count - 1 - position[cause[waiting]], 0)
    return back


def _blocked(graph: ExecutionGraph) -> Ints:
    """Return the time that each call spends waiting, by the point where it begins or ends."""
    time = graph.time_ns
    call = np.flatnonzero(graph.edge_kind == _EDGE["call"])
    waited = time[graph.target[call]] - time[graph.source[call]] - graph.weight_ns[call]
    spent = np.zeros(len(time), dtype=np.int64)
    for end in (graph.source, graph.target):
        spent[end[call]] = np.maximum(waited, 0)
    return spent


def _syncs(graph: ExecutionGraph, work_of: Ints, number: Ints) -> pd.DataFrame:
    edges = np.flatnonzero(graph.edge_kind == _EDGE["synchronise"])
    table = pd.DataFrame(
        {"point": graph.target[edges], "stream": number[work_of[graph.source[edges]]]}
    )
    streams = table.groupby("point")["stream"].agg(["min", "max"])
    point = streams.index.to_numpy()
    call = np.flatnonzero(graph.edge_kind == _EDGE["call"])
    begin = pd.Series(graph.source[call], index=graph.target[call]).reindex(point).to_numpy()
    time = graph.time_ns[begin.astype(np.int64)] if len(point) else point
    return pd.DataFrame(
        {
            "kind": _SYNC_CODE, "waits": MISSING, "back": 0, "row": MISSING, "lag": MISSING,
            "dur": 0.0,
            "stream": np.where(streams["min"] == streams["max"], streams["min"], MISSING),
            "time": time, "own": graph.time_ns[point] - time,
        }
    )  # fmt: skip


def _steps(events: pd.DataFrame, rows: pd.DataFrame) -> Ints:
    """Return the step of every operation; of a wait that of the operation before it."""
    row = rows["row"].to_numpy()
    step = pd.Series(taken(events["step"], np.maximum(row, 0))).where(row >= 0)
    return np.asarray(step.ffill().bfill().fillna(MISSING).to_numpy(dtype=np.int64))
