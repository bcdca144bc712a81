"""Edges between ranks: a collective moves data once its last rank is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.graph.draft import Step
from workbench.errors import PerformanceModelError
from workbench.tables import EDGE_KINDS, POINT_KINDS, ExecutionGraph

_KIND = EDGE_KINDS.index("collective")


def with_collectives(
    graph: ExecutionGraph, collectives: pd.DataFrame, step: Step, jitter_ns: int
) -> tuple[ExecutionGraph, list[str]]:
    """Let the transfer of a collective begin when its last rank is there; also give doubts.

    Communication that was not matched, or whose ranks are not all in the events, keeps its
    measured time.
    """
    position = pd.Index(graph.event[graph.gpu_start]).get_indexer(pd.Index(collectives["event"]))
    local = collectives[position >= 0].assign(start=graph.gpu_start[position[position >= 0]])
    _same_clock(graph, local, jitter_ns)
    # A collective of which a rank is missing here has no last arrival that could be told.
    members = local.groupby("collective")["rank"].transform("size")
    is_whole = local["collective"].notna() & (local["rank_count"] > 1)
    is_whole &= (members == local["rank_count"]).fillna(value=False)
    matched = local[is_whole.to_numpy(dtype=bool)]
    is_possible = _possible(graph, matched, pd.factorize(matched["collective"], sort=True)[0])
    matched = matched[is_possible]
    number, first, which = np.unique(
        matched["collective"].to_numpy("int64"), return_index=True, return_inverse=True
    )
    start, weak = matched["start"].to_numpy("int64"), matched["confidence"] != "high"
    latest = _latest(graph, start, which, len(number))
    step.read, step.inferred = int((~weak).sum()), int(weak.sum())
    step.left_out = int((~is_possible).sum())
    doubts = _doubts(local, matched)
    step.notes += doubts

    def points(name: str, values: Any) -> Any:
        old = getattr(graph, name)
        # Appended, so that the points of the ranks keep their numbers.
        return np.concatenate([old, np.broadcast_to(values, len(number))]).astype(old.dtype)

    # The work itself no longer lasts as long as it did: waiting is not its own time.
    own = np.isin(graph.source, start) & (graph.edge_kind == EDGE_KINDS.index("GPU work"))

    def edges(name: str, arriving: Any, ending: Any) -> Any:
        old = getattr(graph, name)
        new = [np.broadcast_to(values, len(start)) for values in (arriving, ending)]
        return np.concatenate([old[~own], *new]).astype(old.dtype)

    ready, inferred = len(graph.time_ns) + which, weak.to_numpy(dtype=bool)
    joined = replace(
        graph,
        time_ns=points("time_ns", latest),
        point_rank=points("point_rank", MISSING),
        point_kind=points("point_kind", POINT_KINDS.index("collective ready")),
        event=points("event", matched["event"].to_numpy("int64")[first]),
        thread=points("thread", MISSING),
        source=edges("source", start, ready),
        target=edges("target", ready, start + 1),
        weight_ns=edges("weight_ns", 0, graph.time_ns[start + 1] - latest[which]),
        edge_kind=edges("edge_kind", _KIND, _KIND),
        is_inferred=edges("is_inferred", inferred, inferred),
    )
    return joined, doubts


def _latest(graph: ExecutionGraph, start: Ints, which: Ints, count: int) -> Ints:
    latest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(latest, which, graph.time_ns[start])
    return latest


def _same_clock(graph: ExecutionGraph, local: pd.DataFrame, jitter_ns: int) -> None:
    """Refuse collectives that were measured on other clocks than the events."""
    start = graph.time_ns[local["start"].to_numpy("int64")] + graph.origin_ns
    apart = np.abs(start - local["start_ns"].to_numpy("int64"))
    if apart.max(initial=0) > jitter_ns:
        worst = int(np.argmax(apart))
        msg = f"rank {local['rank'].iloc[worst]}: its collectives are {apart[worst] / 1e3:,.1f} µs "
        msg += "off its events; put the events on one clock (align_clocks) and match the "
        raise PerformanceModelError(msg + "collectives of these")


def _possible(graph: ExecutionGraph, matched: pd.DataFrame, which: Ints) -> np.ndarray:
    """Return which collectives all ranks began before any ended; raise if most were not."""
    if not len(matched):
        return np.zeros(0, dtype=bool)
    start = matched["start"].to_numpy("int64")
    count = int(which.max()) + 1
    latest = _latest(graph, start, which, count)
    first_end = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first_end, which, graph.time_ns[start + 1])
    clash = latest - first_end
    # A few clashes are wrong matches and dropped; most of them mean that the clocks differ.
    if 2 * int((clash > 0).sum()) > count:
        worst = np.flatnonzero(which == np.argmax(clash))
        began, ended = graph.time_ns[start[worst]], graph.time_ns[start[worst] + 1]
        ranks = matched["rank"].to_numpy()[worst]
        msg = f"rank {ranks[np.argmax(began)]} began a collective {clash.max() / 1e3:,.1f} µs "
        msg += f"after rank {ranks[np.argmin(ended)]} had ended it, and most of the {count:,} "
        msg += "collectives are like that: the ranks are not on one clock (clocks, align_clocks)"
        raise PerformanceModelError(msg)
    return np.asarray(clash <= 0)[which]


def _doubts(local: pd.DataFrame, matched: pd.DataFrame) -> list[str]:
    doubts = []
    if count := len(local) - len(matched):
        doubts.append(
            f"{count:,} of {len(local):,} pieces of communication are not matched across ranks and "
            "keep their measured time"
        )
    lacking = (~matched["is_complete"]).fillna(value=False)
    if count := int(lacking.sum()):
        doubts.append(
            f"{count:,} pieces of communication waited for ranks that are not loaded; that time "
            "counts as transfer"
        )
    return doubts
