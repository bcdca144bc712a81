"""A training step on a pipeline: micro-batches of unequal work, stage after stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._imbalance.context_sharding import ContextStrategy
from workbench.analyze._imbalance.packing_plan import is_whole
from workbench.analyze._lib.pipeline_order import FORWARD, order
from workbench.analyze._lib.pipeline_times import Plan, plan
from workbench.errors import WorkbenchError
from workbench.tables import CONTEXT_SHARDING, MICRO_BATCH_COSTS, PIPELINE, TRAINING_STEPS

Task: TypeAlias = Literal["forward", "backward"]
Floats: TypeAlias = NDArray[np.float64]

# A backward pass computes the gradients of inputs and of weights: two products for each of the
# forward ones, and five for the two of attention, one of which is computed anew.
BACKWARD_LINEAR_RATIO = 2.0
BACKWARD_ATTENTION_RATIO = 2.5


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
        if not all(is_whole(each) for each in sizes):
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
    sharding: pd.DataFrame,
    *,
    strategy: ContextStrategy = "adaptive",
    overhead_cost: float = 0.0,
) -> pd.DataFrame:
    """Give the forward and backward time of every micro-batch.

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
        msg = f"overhead_cost must be 0 or more, not {overhead_cost}"
        raise WorkbenchError(msg)
    table = CONTEXT_SHARDING.check(sharding)
    linear, attention = table["linear_cost"], table[f"{strategy.replace(' ', '_')}_cost"]
    costs = table[["batch", "micro_batch", "length_tokens"]].assign(
        forward_cost=linear + attention + overhead_cost,
        backward_cost=BACKWARD_LINEAR_RATIO * linear
        + BACKWARD_ATTENTION_RATIO * attention
        + overhead_cost,
    )
    return MICRO_BATCH_COSTS.check(costs)


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
    forward, backward, tokens, batches = _shaped(costs, parallelism)
    step = _step(forward, backward, parallelism)
    mean = np.broadcast_to(forward.mean(axis=(0, 1)), forward.shape)
    mean_back = np.broadcast_to(backward.mean(axis=(0, 1)), backward.shape)
    busy = (forward + backward).sum(axis=(0, 1))
    room = step.max(axis=0) * parallelism.data * parallelism.pipeline
    table = pd.DataFrame(
        {
            "batch": batches,
            "length_tokens": tokens,
            "step_cost": step.max(axis=0),
            "even_cost": _step(mean, mean_back, parallelism).max(axis=0),
            "bubble_share": np.clip(1 - busy / np.where(room > 0, room, 1), 0, 1),
            "dp_rank": step.argmax(axis=0),
            "critical_micro_batch": _critical(forward, backward),
            "note": _doubt(len(forward), parallelism),
        }
    )
    return TRAINING_STEPS.check(TRAINING_STEPS.cast(table))


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
    one = costs[costs["batch"] == batch]
    if one.empty:
        msg = f"no batch {batch}; there are {costs['batch'].nunique():,}, from 0"
        raise WorkbenchError(msg)
    forward, backward, _, _ = _shaped(one, parallelism)
    it, start, dur = _run(forward, backward, parallelism)
    replicas = parallelism.data
    passes = {
        "stage": it.order.stage,
        "task": np.where(it.order.action == FORWARD, "forward", "backward"),
        "micro_batch": it.order.micro_batch,
        "chunk": it.order.chunk,
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
    table = table.sort_values(["dp_rank", "stage", "start_cost"], ignore_index=True)
    return PIPELINE.check(PIPELINE.cast(table))


def _shaped(
    costs: pd.DataFrame, parallelism: Parallelism
) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Arrange costs as micro-batch of a replica, replica, batch."""
    costs = MICRO_BATCH_COSTS.check(costs).sort_values(["batch", "micro_batch"])
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
    each = count // replicas
    if parallelism.chunks > 1 and each % parallelism.pipeline:
        msg = (
            f"interleaved 1F1B deals micro-batches in groups of the {parallelism.pipeline} stages, "
            f"which {each} are not; take chunks=1 or another batch"
        )
        raise WorkbenchError(msg)

    def arranged(name: str) -> Floats:
        values = costs[name].to_numpy(dtype=np.float64)
        return values.reshape(len(batches), replicas, each).transpose(2, 1, 0)

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
    it = _plan(stages, len(forward), chunks)
    is_forward = (it.order.action == FORWARD).reshape(-1, *[1] * (forward.ndim - 1))
    at = it.order.micro_batch
    dur = np.where(is_forward, forward[at], backward[at]) / (stages * chunks)
    start, _ = it.times(dur, np.zeros(len(dur)))
    return it, start, dur


@lru_cache(maxsize=32)
def _plan(stages: int, micro_batches: int, chunks: int) -> Plan:
    """Plan a schedule once: it does not depend on how long passes take."""
    return plan(order("1f1b" if chunks == 1 else "interleaved", stages, micro_batches, chunks))


def _critical(forward: Floats, backward: Floats) -> NDArray[np.int64]:
    """Find the heaviest micro-batch of a batch, counted replica by replica.

    With equal stages every pass waits for the heaviest one sooner or later.
    """
    work = (forward + backward).transpose(1, 0, 2)
    return np.asarray(work.reshape(-1, work.shape[2]).argmax(axis=0))
