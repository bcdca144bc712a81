"""A training step on a pipeline: micro-batches of unequal work, stage after stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Floats
from workbench.analyze._imbalance.context_sharding import ContextStrategy, context_sharding
from workbench.analyze._imbalance.packers import PackingPlan, is_whole
from workbench.analyze._imbalance.packing import Packing, packing
from workbench.analyze._imbalance.packing_balance import packing_balance
from workbench.analyze._lib.pipelines import FORWARD, Plan, order, plan
from workbench.errors import WorkbenchError
from workbench.tables import (
    CONTEXT_SHARDING,
    DOCUMENT_LENGTHS,
    MICRO_BATCH_COSTS,
    PIPELINE,
    TRAINING_SPEED,
    TRAINING_STEPS,
)

# A backward pass computes the gradients of inputs and of weights: two products for each of the
# forward ones, and five for the two of attention, one of which is recomputed.
BACKWARD_LINEAR_RATIO = 2.0
BACKWARD_ATTENTION_RATIO = 2.5
_OVERHEAD = "overhead_cost must be 0 or more, not {}"


@dataclass(frozen=True)
class Parallelism:
    """How a training job is spread over GPUs.

    Parameters
    ----------
    pipeline
        Pipeline stages (PP).
    data
        Data-parallel replicas (DP).
    context
        Ranks that share the sequences (CP).
    tensor
        Ranks that share every matrix (TP); they only count GPUs here.
    chunks
        Parts of the model per stage (V); above 1 the schedule is interleaved 1F1B.

    Raises
    ------
    WorkbenchError
        If a number is below 1.
    """

    pipeline: int = 4
    data: int = 1
    context: int = 2
    tensor: int = 8
    chunks: int = 1

    def __post_init__(self) -> None:
        sizes = (self.pipeline, self.data, self.context, self.tensor, self.chunks)
        if not all(is_whole(size) for size in sizes):
            msg = (
                "pipeline, data, context, tensor and chunks must be whole numbers of at least 1, "
                f"not {sizes}"
            )
            raise WorkbenchError(msg)

    @property
    def gpu_count(self) -> int:
        """GPUs of the job."""
        return self.pipeline * self.data * self.context * self.tensor


def micro_batch_costs(
    sharding: pd.DataFrame, *, strategy: ContextStrategy = "adaptive", overhead_cost: float = 0.0
) -> pd.DataFrame:
    """Return the forward and backward time of every micro-batch.

    Parameters
    ----------
    sharding
        Table :data:`workbench.tables.CONTEXT_SHARDING`.
    strategy
        How the attention of a micro-batch is shared among context-parallel ranks.
    overhead_cost
        Fixed time per micro-batch and pass that no rank can share, e.g. launches.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MICRO_BATCH_COSTS`: ``batch``, ``micro_batch``,
        ``length_tokens``, ``forward_cost``, ``backward_cost``.

    Raises
    ------
    ValueError
        If ``strategy`` is none of those.
    WorkbenchError
        If the overhead is below 0.

    Notes
    -----
    forward = linear + attention of the slowest rank + overhead;
    backward = 2 x linear + 2.5 x attention + overhead.
    """
    if strategy not in get_args(ContextStrategy):
        msg = f"strategy must be one of {get_args(ContextStrategy)}, not {strategy!r}"
        raise ValueError(msg)
    if not 0 <= overhead_cost < np.inf:
        raise WorkbenchError(_OVERHEAD.format(overhead_cost))
    return MICRO_BATCH_COSTS.check(
        _costs(CONTEXT_SHARDING.check(sharding), strategy, overhead_cost)
    )


def _costs(table: pd.DataFrame, strategy: ContextStrategy, overhead: float) -> pd.DataFrame:
    linear, attention = table["linear_cost"], table[f"{strategy.replace(' ', '_')}_cost"]
    return table[["batch", "micro_batch", "length_tokens"]].assign(
        forward_cost=linear + attention + overhead,
        backward_cost=BACKWARD_LINEAR_RATIO * linear
        + BACKWARD_ATTENTION_RATIO * attention
        + overhead,
    )


def training_steps(costs: pd.DataFrame, parallelism: Parallelism) -> pd.DataFrame:
    """Simulate every training step on the pipeline.

    Parameters
    ----------
    costs
        Table :data:`workbench.tables.MICRO_BATCH_COSTS`; every batch has equally many
        micro-batches.
    parallelism
        Pipeline stages, data-parallel replicas and chunks per stage.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TRAINING_STEPS`, one row per global batch.

    Raises
    ------
    WorkbenchError
        If micro-batches cannot be dealt to replicas, or not be interleaved.

    Notes
    -----
    1F1B, interleaved with several chunks per stage. Stages are equal; a pass begins when its
    stage is free and its input is there; transfers are free. Replicas take micro-batches in
    order and wait for each other at the end of the step.
    """
    return TRAINING_STEPS.of(_steps(MICRO_BATCH_COSTS.check(costs), parallelism))


def _steps(costs: pd.DataFrame, parallelism: Parallelism) -> dict[str, Any]:
    forward, backward, tokens, batches = _shaped(costs, parallelism)
    step, bubble = _timed(forward, backward, parallelism)
    # The same step with equal micro-batches: what is longer than that is imbalance, not bubble.
    mean = np.broadcast_to(forward.mean(axis=(0, 1)), forward.shape)
    mean_back = np.broadcast_to(backward.mean(axis=(0, 1)), backward.shape)
    work = forward + backward
    return {
        "batch": batches,
        "length_tokens": tokens,
        "step_cost": step.max(axis=0),
        "even_cost": _step(mean, mean_back, parallelism).max(axis=0),
        "bubble_share": bubble,
        "dp_rank": step.argmax(axis=0),
        # With equal stages every pass waits for the heaviest micro-batch sooner or later;
        # it is counted replica by replica.
        "critical_micro_batch": work.swapaxes(0, 1).reshape(-1, work.shape[2]).argmax(axis=0),
        "note": _doubt(len(forward), parallelism),
    }


def _timed(forward: Floats, backward: Floats, parallelism: Parallelism) -> tuple[Floats, Floats]:
    """Return when each replica ends each step, and which share of the stages' time is idle."""
    step = _step(forward, backward, parallelism)
    room = step.max(axis=0) * parallelism.data * parallelism.pipeline
    busy = (forward + backward).sum(axis=(0, 1))
    return step, np.clip(1 - busy / np.where(room > 0, room, 1), 0, 1)


def _doubt(micro_batches: int, parallelism: Parallelism) -> str:
    if micro_batches >= parallelism.pipeline:
        return ""
    return (
        f"{micro_batches} micro-batches on {parallelism.pipeline} stages: the pipeline never "
        "fills, and idle stages hide imbalance"
    )


def pipeline(
    costs: pd.DataFrame, parallelism: Parallelism, *, batch: int, version: str = "actual"
) -> pd.DataFrame:
    """Lay out one training step: which stage computes what, and when.

    Parameters
    ----------
    costs
        Table :data:`workbench.tables.MICRO_BATCH_COSTS`.
    parallelism
        As for :func:`training_steps`.
    batch
        The global batch to lay out.
    version
        Name of this layout, to tell it from others in one figure.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PIPELINE`, one row per pass.

    Raises
    ------
    WorkbenchError
        If there is no such batch, or as :func:`training_steps`.
    """
    step_costs = MICRO_BATCH_COSTS.check(costs)[costs["batch"] == batch]
    if step_costs.empty:
        msg = f"no batch {batch}; there are {costs['batch'].nunique():,}, from 0"
        raise WorkbenchError(msg)
    forward, backward, _, _ = _shaped(step_costs, parallelism)
    schedule, start, dur = _run(forward, backward, parallelism)
    replicas = parallelism.data
    passes = {
        "stage": schedule.order.stage,
        "task": np.where(schedule.order.action == FORWARD, "forward", "backward"),
        "micro_batch": schedule.order.micro_batch,
        "chunk": schedule.order.chunk,
    }
    table = pd.DataFrame(
        {
            "version": version,
            "dp_rank": np.tile(np.arange(replicas), len(start)),
            **{name: np.repeat(values, replicas) for name, values in passes.items()},
            "start_cost": start.ravel(),
            "dur_cost": dur.ravel(),
        }
    )
    return PIPELINE.of(table.sort_values(["dp_rank", "stage", "start_cost"], ignore_index=True))


def _shaped(
    costs: pd.DataFrame, parallelism: Parallelism
) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
    costs = costs.sort_values(["batch", "micro_batch"])
    batches = costs["batch"].unique()
    count = len(costs) // max(len(batches), 1)
    sizes = costs.groupby("batch").size()
    if not len(batches) or (sizes != count).any():
        msg = (
            "batches differ in their number of micro-batches "
            f"({sizes.min()} to {sizes.max()}); a pipeline step needs equally many"
            if len(batches)
            else "no micro-batches to simulate"
        )
        raise WorkbenchError(msg)
    replicas = parallelism.data
    if count % replicas:
        msg = f"{count} micro-batches cannot be dealt to {replicas} data-parallel replicas"
        raise WorkbenchError(msg)
    per_replica = count // replicas
    if parallelism.chunks > 1 and per_replica % parallelism.pipeline:
        msg = (
            f"interleaved 1F1B deals micro-batches in groups of the {parallelism.pipeline} stages, "
            f"which {per_replica} are not; take chunks=1 or another batch"
        )
        raise WorkbenchError(msg)

    def arranged(name: str) -> Floats:
        values = costs[name].to_numpy(dtype=np.float64)
        # Micro-batches lead, since the schedule indexes them; replicas and batches run in parallel.
        return values.reshape(len(batches), replicas, per_replica).transpose(2, 1, 0)

    tokens = costs["length_tokens"].to_numpy().reshape(len(batches), count).sum(axis=1)
    return arranged("forward_cost"), arranged("backward_cost"), tokens, np.asarray(batches)


def _step(forward: Floats, backward: Floats, parallelism: Parallelism) -> Floats:
    _, start, dur = _run(forward, backward, parallelism)
    return np.asarray((start + dur).max(axis=0))


def _run(
    forward: Floats, backward: Floats, parallelism: Parallelism
) -> tuple[Plan, Floats, Floats]:
    """Return all passes of 1F1B, plain or interleaved: start and duration by pass and step.

    Times are those of a micro-batch through the whole model; a chunk takes its equal part.
    """
    stages, chunks = parallelism.pipeline, parallelism.chunks
    schedule = _plan(stages, len(forward), chunks)
    is_forward = (schedule.order.action == FORWARD).reshape(-1, *[1] * (forward.ndim - 1))
    at = schedule.order.micro_batch
    dur = np.where(is_forward, forward[at], backward[at]) / (stages * chunks)
    start, _ = schedule.times(dur, np.zeros(len(dur)))
    return schedule, start, dur


@lru_cache(maxsize=32)
def _plan(stages: int, micro_batches: int, chunks: int) -> Plan:
    """Plan a schedule once: it does not depend on how long passes take."""
    return plan(order("1f1b" if chunks == 1 else "interleaved", stages, micro_batches, chunks))


@dataclass(frozen=True)
class _Recipe:
    name: str
    builds_on: str
    plan: PackingPlan
    strategy: ContextStrategy | None


def training_speed(
    lengths: pd.DataFrame | Sequence[Packing],
    plan: PackingPlan,
    parallelism: Parallelism,
    *,
    launch_tokens: int = 512,
    overhead_cost: float = 0.0,
    edge_batches: int = 20,
) -> pd.DataFrame:
    """Compare recipes of packing and sharding by the tokens they train on per time.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, in the order of arrival; or what
        :func:`workbench.analyze.packing` made of it by this plan: plain, greedy in one batch, and
        with delay queues.
    plan
        Context, batch, crossover, queues and memory; its strategy is not used.
    parallelism
        Pipeline, data- and context-parallel ranks.
    launch_tokens
        As for :func:`workbench.analyze.context_sharding`.
    overhead_cost
        As for :func:`workbench.analyze.micro_batch_costs`.
    edge_batches
        Batches dropped at both ends, as for :func:`workbench.analyze.packing_balance`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TRAINING_SPEED`: plain (concatenate and cut, sequences
        sharded whole); fixed (greedy in one batch, the better of both shardings for the
        whole run); plain with documents sharded, and with adaptive sharding; delay queues
        alone; delay queues with adaptive, and with hybrid sharding.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.packing` and :func:`workbench.analyze.training_steps`.

    Notes
    -----
    Communication, the optimizer and everything that packing does not change are dropped, so
    speed-ups are upper bounds.

    References
    ----------
    arXiv:2503.17924 (Plain-4D, Fixed-4D, WLB-LLM; breakdown).
    """
    plain, greedy, queues = ways = [
        replace(plan, strategy="plain"),
        replace(plan, strategy="greedy", window_batches=1),
        replace(plan, strategy="delay queues"),
    ]
    if isinstance(lengths, pd.DataFrame):
        lengths = [packing(DOCUMENT_LENGTHS.check(lengths), way) for way in ways]
    if [result.plan for result in lengths] != ways:
        msg = "pass the packings of this plan: plain, greedy with window_batches=1, delay queues"
        raise WorkbenchError(msg)
    recipes = (
        _Recipe("plain", "plain", plain, "per sequence"),
        _Recipe("fixed length", "plain", greedy, None),
        _Recipe("documents sharded", "plain", plain, "per document"),
        _Recipe("adaptive sharding", "documents sharded", plain, "adaptive"),
        _Recipe("delay queues", "plain", queues, "per sequence"),
        _Recipe("delay queues, adaptive", "adaptive sharding", queues, "adaptive"),
        _Recipe("delay queues, hybrid", "adaptive sharding", queues, "hybrid"),
    )
    if not 0 <= overhead_cost < np.inf:
        raise WorkbenchError(_OVERHEAD.format(overhead_cost))
    packed = dict(zip(ways, lengths, strict=True))
    shared = {
        way: context_sharding(packed[way], ranks=parallelism.context, launch_tokens=launch_tokens)
        for way in packed
    }
    names = ["imbalance_ratio", "delay_batches", "memory_ratio", "left_square_share"]
    names += ["is_stable", "note"]
    balance = packing_balance(lengths, edge_batches=edge_batches)[names]
    balances = {way: row.to_dict() for way, (_, row) in zip(ways, balance.iterrows(), strict=True)}
    rows = []
    for recipe in recipes:
        fixed: tuple[ContextStrategy, ...] = ("per sequence", "per document")
        choices = fixed if recipe.strategy is None else (recipe.strategy,)
        speeds = []
        for strategy in choices:
            costs = _costs(shared[recipe.plan], strategy, overhead_cost)
            speeds.append((*_speed(costs, parallelism, edge_batches), strategy))
        # The speed leads the tuple, so the faster choice for the whole run wins.
        speed, bubble, doubt, strategy = max(speeds)
        rows.append(
            {
                "recipe": recipe.name,
                "builds_on": recipe.builds_on,
                "packing": recipe.plan.label(),
                "context_sharding": strategy,
                "speedup_ratio": speed,
                "bubble_share": bubble,
                **balances[recipe.plan],
                "note": "; ".join(filter(None, (balances[recipe.plan]["note"], doubt))),
            }
        )
    table = pd.DataFrame(rows)
    table["speedup_ratio"] /= table["speedup_ratio"].iloc[0]
    return TRAINING_SPEED.of(table)


def _speed(costs: pd.DataFrame, parallelism: Parallelism, edge: int) -> tuple[float, float, str]:
    total = costs["batch"].nunique()
    edge = edge if total > 3 * edge else total // 6
    # Queues fill and empty at both ends of a run, and neither is how training goes on.
    inner = costs[costs["batch"].between(edge, total - edge - 1)]
    forward, backward, lengths, _ = _shaped(inner, parallelism)
    step, bubble = _timed(forward, backward, parallelism)
    time = step.max(axis=0)
    idle = float(np.average(bubble, weights=time))
    return float(lengths.sum() / time.sum()), idle, _doubt(len(forward), parallelism)
