"""Nodes that serve a recommendation model at a rate and within a latency: a simulated queue."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench._shared.numbers import Floats, positive, share_between, whole_number
from workbench.analyze._imbalance.inference_node import (
    InferenceNode,
    RecommendationModel,
    inference_node,
)
from workbench.tables import INFERENCE_CAPACITY

_BATCHES, _WARM_UP, _BLOCKS, _SEED = 105_000, 5_000, 10, 0
# Utilizations at which a queue is looked at before the number of nodes is chosen.
_GRID = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_NEAR, _TRIES = 1.2, 12
_LARGE_ERROR = 0.05
_SHARED = "the cards of a node are taken as a single server that is as fast as all of them"
_NOISY = "the simulated latency is uncertain by more than 5 %: the nodes are very busy"


@dataclass(frozen=True)
class ServiceGoal:
    """The load to serve, and its latency limit.

    Attributes
    ----------
    rate_per_s
        Queries per second, arriving at random (Poisson).
    latency_ms
        Largest latency that counts.
    latency_share
        Of the queries that must not take longer.
    samples
        Samples per query, e.g. candidates to be ranked.
    """

    rate_per_s: float
    latency_ms: float = 100.0
    latency_share: float = 0.99
    samples: int = 1

    def __post_init__(self) -> None:
        positive("rate_per_s", self.rate_per_s)
        positive("latency_ms", self.latency_ms)
        share_between("latency_share", self.latency_share)
        whole_number("samples", self.samples, least=1)


def inference_capacity(
    model: RecommendationModel,
    node: InferenceNode,
    goal: ServiceGoal,
    *,
    batches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
) -> pd.DataFrame:
    """Work out how many nodes serve a rate within a latency, for each batch size.

    Parameters
    ----------
    model
        What is served.
    node
        A node; its ``batch`` is not used.
    goal
        Rate and latency.
    batches
        Queries that are computed together, to choose from.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INFERENCE_CAPACITY`, one row per batch size.

    Raises
    ------
    WorkbenchError
        If a number is not possible.

    Notes
    -----
    Queries go to nodes at random. A node waits until a batch is full, then computes batches in
    order: Erlang(b)/D/1, simulated over 100,000 batches (seed 0) of the service times of
    :func:`inference_node`; for b = 1 the mean wait is compared with that of the M/D/1 queue,
    ``D u / (2 (1 - u))`` at utilization u. Larger batches need fewer nodes, but fill more slowly.
    Failures of nodes, bursts and unequal queries need more; add spares.
    """
    counts = [whole_number("batches", count, least=1) for count in batches]
    served = inference_node(model, [replace(node, batch=b * goal.samples) for b in counts])
    binding = served[served["is_binding"]].drop_duplicates("batch_count").to_dict("records")
    by_size = {row["batch_count"]: row for row in binding}
    rows = [_row(by_size[b * goal.samples], node, goal, b) for b in counts]
    table = pd.DataFrame(rows, columns=list(INFERENCE_CAPACITY.columns))
    best = table["node_count"].notna()
    ordered = table[best].sort_values(["node_count", "latency_ns"], kind="stable")
    table["is_best"] = table.index.isin(ordered.index[:1])
    return INFERENCE_CAPACITY.of(table)


def _row(
    binding: Mapping[Hashable, Any], node: InferenceNode, goal: ServiceGoal, batch: int
) -> dict[str, Any]:
    interval = batch * goal.samples / float(binding["throughput_per_s"])
    idle = max(float(binding["latency_ns"]) / 1e9, interval)
    is_shared = node.placement == "replicated" and node.cards > 1
    doubts = [binding["doubt"], _SHARED if is_shared else ""]
    row: dict[str, Any] = {
        "batch_count": batch, "interval_ns": interval * 1e9, "idle_latency_ns": idle * 1e9,
        "verdict": "feasible", "doubt": "; ".join(filter(None, doubts)), "is_best": False,
    }  # fmt: skip
    limit = goal.latency_ms / 1e3
    if not binding["fits"]:
        return row | {"verdict": "the model does not fit into the memory of a node"}
    if idle > limit:
        return row | {"verdict": "a batch alone takes longer"}
    load = goal.rate_per_s * interval / batch
    enough = _nodes(batch, load, (limit - idle) / interval, goal.latency_share)
    if enough is None:
        slow = "the batch fills too slowly" if batch > 1 else "no time is left for a queue"
        return row | {"verdict": slow}
    count, queue, use = *enough, load / enough[0]
    latency = queue.latency * interval + idle
    noisy = _NOISY if queue.error * interval > _LARGE_ERROR * latency else ""
    return row | {
        "node_count": count, "utilization_share": use, "fill_ns": queue.fill * interval * 1e9,
        "wait_ns": queue.wait * interval * 1e9, "latency_ns": latency * 1e9,
        "md1_wait_ns": interval * 1e9 * use / (2 * (1 - use)) if batch == 1 else None,
        "latency_error_ratio": queue.error * interval / latency,
        "power_w": count * node.cards * node.card.tdp_w,
        "doubt": "; ".join(filter(None, [row["doubt"], noisy])),
    }  # fmt: skip


class _Queue(NamedTuple):
    """A queue at one utilization; times in intervals between batches of a busy node."""

    latency: float
    """That the given share of queries waits at most, for the batch to fill and for the node."""
    fill: float
    wait: float
    error: float


def _nodes(batch: int, load: float, slack: float, share: float) -> tuple[int, _Queue] | None:
    """Find the fewest nodes that keep waits below the slack."""
    curve = [_queue(batch, use, share).latency for use in _GRID]
    least = max(int(np.ceil(load / _GRID[-1])), 1)
    counts = np.arange(least, max(int(np.ceil(load / _GRID[0])), least) + 1)
    # The grid only says where to look: what is told is simulated at the load of the nodes.
    near = np.interp(load / counts, _GRID, curve) <= _NEAR * slack
    for count in counts[near][:_TRIES].tolist():
        queue = _queue(batch, load / count, share)
        if queue.latency <= slack:
            return count, queue
    return None


@lru_cache(maxsize=4096)
def _queue(batch: int, use: float, share: float) -> _Queue:
    gap, fill = (unit / (use * batch) for unit in _draws(batch))
    arrival = np.cumsum(gap)
    number = np.arange(len(arrival))
    # A batch starts when it is full and all before it are done, each one interval later.
    wait = np.maximum.accumulate(arrival - number) + number - arrival
    total = (fill + wait)[_WARM_UP:]
    blocks = np.quantile(total.reshape(_BLOCKS, -1), share, axis=1)
    error = float(blocks.std(ddof=1) / np.sqrt(_BLOCKS))
    means = float(fill.mean()), float(wait[_WARM_UP:].mean())
    return _Queue(float(np.quantile(total, share)), *means, error)


@lru_cache(maxsize=64)
def _draws(batch: int) -> tuple[Floats, Floats]:
    """Draw gaps between full batches, and how long a random query of each waits for the last."""
    rng = np.random.default_rng(_SEED)
    position = rng.integers(1, batch + 1, _BATCHES)
    fill = rng.standard_gamma(batch - position)
    gap = rng.standard_gamma(position) + fill
    # With the mean that it should have, the load is exact, and the waits are closer to theirs.
    exact = batch / gap.mean()
    return gap * exact, fill * exact
