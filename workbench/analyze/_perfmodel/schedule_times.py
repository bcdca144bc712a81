"""When the passes of a pipeline schedule run, what a step costs, and which schedule costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Floats
from workbench.analyze._lib.pipelines import (
    ACTIONS,
    BACKWARD,
    FORWARD,
    INPUT,
    WEIGHT,
    Order,
    Plan,
    ScheduleKind,
    plan,
)
from workbench.analyze._perfmodel.pipeline_schedule import order_of, pipeline_schedule
from workbench.errors import PerformanceModelError
from workbench.tables import SCHEDULE_COMPARISON, SCHEDULE_TIMES

Durations: TypeAlias = float | Floats


@dataclass(frozen=True)
class PassTimes:
    """How long the passes of a pipeline take, in nanoseconds.

    Each is one number, one per chunk of the model, or one per chunk and micro-batch (a table
    of chunks x micro-batches).

    Parameters
    ----------
    forward_ns
        A forward pass.
    backward_ns
        A whole backward pass.
    weight_ns
        The part of it that makes the gradients of the weights, which only schedules with a
        split backward put off; None for half of it.
    transfer_ns
        What a chunk makes on its way to the next stage, or back; between chunks of one stage
        it takes no time. Transfers run beside passes and do not queue.
    overlapped_ns
        A forward and a backward that run at once, by the chunk and micro-batch of the forward;
        None for as long as one after the other.
    """

    forward_ns: Durations
    backward_ns: Durations
    weight_ns: Durations | None = None
    transfer_ns: Durations = 0.0
    overlapped_ns: Durations | None = None

    def part(self, chunks: int) -> PassTimes:
        """Return the times of one of several equal chunks; what is transferred stays."""
        weight, pair = self.weight_ns, self.overlapped_ns
        return replace(
            self,
            forward_ns=self.forward_ns / chunks,
            backward_ns=self.backward_ns / chunks,
            weight_ns=None if weight is None else weight / chunks,
            overlapped_ns=None if pair is None else pair / chunks,
        )


def schedule_times(schedule: pd.DataFrame, times: PassTimes) -> pd.DataFrame:
    """Compute when every pass of a schedule runs.

    Parameters
    ----------
    schedule
        Table :data:`workbench.tables.PIPELINE_SCHEDULE` of one schedule, from
        :func:`pipeline_schedule` or changed by hand.
    times
        How long passes take; those of one chunk.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SCHEDULE_TIMES`, by stage, in the order of the schedule.

    Raises
    ------
    PerformanceModelError
        If a duration is not a number of at least 0 or has another shape, or if the schedule
        lacks a pass, has one twice, or cannot run because passes wait for each other.

    Notes
    -----
    A pass starts when the one before it on its stage is over and its input is there: of a
    forward, the forward of the chunk before; of a backward (or its input part), the backward
    of the chunk after, or in the last chunk the forward; of a weight part, its input part.
    Two passes that overlap start when both can and end together. The critical passes are one
    chain of passes from the end of the step back to its begin, each starting when the one
    before it lets it.
    """
    name, order = order_of(schedule)
    passes = plan(order)
    dur, delay = _durations(passes, times)
    start, end = passes.times(dur, delay)
    return SCHEDULE_TIMES.of(
        {
            "schedule": pd.Categorical([name] * len(dur)),
            "stage": order.stage,
            "action": pd.Categorical.from_codes(order.action.astype(np.int8), pd.Index(ACTIONS)),
            "micro_batch": order.micro_batch,
            "chunk": order.chunk,
            "start_ns": start,
            "dur_ns": dur,
            "is_overlapped": order.partner >= 0,
            "is_critical": _critical(passes, start, end, delay),
        }
    )


def schedule_summary(times: pd.DataFrame) -> pd.DataFrame:
    """Compute the step time, bubble and memory of each schedule.

    Parameters
    ----------
    times
        Table :data:`workbench.tables.SCHEDULE_TIMES`, of one or several schedules.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SCHEDULE_COMPARISON`, in the order of ``times``.

    Notes
    -----
    bubble_ratio = idle / busy of all stages together, which for equal stages is that of the
    textbook, (p - 1) / m; bubble_share = idle / (idle + busy). bubble_ns is the idle time of
    one stage, the longest. The step ends with its last pass, on whatever stage, and is idle time
    for the others. The critical path is passes and transfers, nothing else: what of the step is
    not passes on it is transfers. A stage keeps the activations of a micro-batch in a chunk from
    the forward to the end of the backward; if that is split, to the end of the weight-gradient
    pass.

    References
    ----------
    arXiv:2104.04473, section 2.2.
    """
    SCHEDULE_TIMES.check(times)
    groups = times.groupby(times["schedule"].astype(str), sort=False)
    rows = [{"schedule": name, **_costs(passes)} for name, passes in groups]
    table = pd.DataFrame(rows, columns=list(SCHEDULE_COMPARISON.columns))
    return SCHEDULE_COMPARISON.of(table.astype({"schedule": "category", "basis": "category"}))


def _costs(passes: pd.DataFrame) -> dict[str, Any]:
    stage, action = passes["stage"], passes["action"]
    # Activations live from the forward to the backward or, if that is split, to its W.
    kept = action.eq("F").astype("int64") - action.isin(["B", "W"]).astype("int64")
    peak = kept.groupby(stage, sort=False).cumsum().groupby(stage, sort=False).max()
    chunks = passes["chunk"].groupby(stage, sort=False).nunique()
    # Of two passes that overlap, one stands for both.
    alone = ~(passes["is_overlapped"] & action.ne("F"))
    busy_ns = passes["dur_ns"].where(alone, 0.0).groupby(stage, sort=False).sum()
    step = float((passes["start_ns"] + passes["dur_ns"]).max())
    idle_ns = (step - busy_ns).clip(lower=0.0)
    busy, idle = float(busy_ns.sum()), float(idle_ns.sum())
    critical = float(passes.loc[passes["is_critical"], "dur_ns"].sum())
    batches, stages = passes["micro_batch"].nunique(), len(peak)
    never_full = f"{batches} micro-batches on {stages} stages: the pipeline never fills"
    return {
        "stage_count": stages,
        "micro_batch_count": batches,
        "chunk_count": chunks.max(),
        "step_ns": step,
        "bubble_ns": idle_ns.max(),
        "bubble_share": idle / (idle + busy) if idle else 0.0,
        "bubble_ratio": idle / busy if busy else None,
        "critical_transfer_ns": max(step - critical, 0.0),
        "peak_activations_count": peak.max(),
        "peak_activations_ratio": (peak / chunks).max(),
        "basis": "modelled",
        "doubt": never_full if batches < stages else None,
    }


def schedule_comparison(
    times: PassTimes,
    *,
    stages: int,
    micro_batches: int,
    chunks: int = 2,
    kinds: Sequence[ScheduleKind] = get_args(ScheduleKind),
) -> pd.DataFrame:
    """Lay out one model on the same stages by several schedules, and compare.

    Parameters
    ----------
    times
        How long passes take, one number each: of one micro-batch on a *whole* stage. A chunk
        takes an equal part of it; a transfer takes as long whatever the chunks.
    stages
        Pipeline stages.
    micro_batches
        Micro-batches of a step.
    chunks
        Chunks per stage of the interleaved schedule; the others have as many as they need.
    kinds
        Schedules to compare.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SCHEDULE_COMPARISON`, the shortest step first. A schedule
        that does not exist for these numbers is dropped, and named with its reason in
        ``attrs["impossible"]``.

    Raises
    ------
    PerformanceModelError
        If none of the schedules is possible, or a duration is not one number of at least 0.
    ValueError
        If a kind is unknown.
    """
    if any(np.ndim(value) for value in vars(times).values() if value is not None):
        msg = "schedules are compared by one number per kind of pass, not by chunk; "
        raise PerformanceModelError(msg + "use schedule_times for such durations")
    rows, impossible = [], {}
    for kind in kinds:
        try:
            count = chunks if kind == "interleaved" else None
            schedule = pipeline_schedule(kind, stages, micro_batches, count)
        except PerformanceModelError as error:
            impossible[kind] = str(error)
            continue
        of_chunk = times.part(schedule["chunk"].nunique() // stages)
        row = schedule_summary(schedule_times(schedule, of_chunk))
        rows.append(row.assign(doubt=_doubt(row["doubt"].iloc[0], schedule, times)))
    if not rows:
        msg = "none of the schedules is possible: " + "; ".join(impossible.values())
        raise PerformanceModelError(msg)
    table = pd.concat([row.astype({"schedule": "str"}) for row in rows], ignore_index=True)
    table = table.sort_values("step_ns", kind="stable", ignore_index=True)
    table = table.astype({"schedule": "category", "basis": "category"})
    return SCHEDULE_COMPARISON.of(table, {"impossible": impossible})


def _doubt(doubt: str | None, schedule: pd.DataFrame, times: PassTimes) -> str | None:
    doubts = [doubt] if isinstance(doubt, str) else []
    if times.overlapped_ns is None and schedule["overlapped_with"].notna().any():
        doubts.append("passes that overlap are taken to gain nothing; give overlapped_ns")
    if times.weight_ns is None and schedule["action"].isin(["I", "W"]).any():
        half = "the weight-gradient pass is taken to be half of the backward pass; give weight_ns"
        doubts.append(half)
    return "; ".join(doubts) or None


def _durations(passes: Plan, times: PassTimes) -> tuple[Floats, Floats]:
    """Return how long each pass takes, and how long its input travels."""
    order = passes.order
    shape = (int(order.chunk.max()) + 1, int(order.micro_batch.max()) + 1)
    forward = _spread("forward_ns", times.forward_ns, shape)
    backward = _spread("backward_ns", times.backward_ns, shape)
    weight_ns = times.weight_ns
    weight = backward / 2 if weight_ns is None else _spread("weight_ns", weight_ns, shape)
    if (weight > backward).any():
        chunk, batch = np.argwhere(weight > backward)[0]
        msg = f"weight_ns is a part of backward_ns, but in chunk {chunk}, micro-batch {batch} it "
        msg += f"is {weight[chunk, batch]:g} of {backward[chunk, batch]:g}"
        raise PerformanceModelError(msg)
    table = np.empty((len(ACTIONS), *shape))
    table[[FORWARD, BACKWARD, INPUT, WEIGHT]] = forward, backward, backward - weight, weight
    dur = table[order.action, order.chunk, order.micro_batch]
    dur = _paired(order, dur, times.overlapped_ns, shape)
    travel = _spread("transfer_ns", times.transfer_ns, shape)
    stages = np.append(order.stage, -1)
    # Chunks of one stage hand over in memory; what needs nothing points behind the last pass.
    crosses = (passes.needs < len(dur)) & (stages[passes.needs] != order.stage)
    source = np.minimum(passes.needs, len(dur) - 1)
    delay = travel[order.chunk[source], order.micro_batch[source]]
    return dur, np.where(crosses, delay, 0.0)


def _paired(
    order: Order, dur: Floats, overlapped_ns: Durations | None, shape: tuple[int, int]
) -> Floats:
    """Set the duration of two passes that overlap to that of their pair."""
    pairs = order.partner >= 0
    if overlapped_ns is None:
        return np.where(pairs, dur + dur[order.partner], dur)
    pair_ns = _spread("overlapped_ns", overlapped_ns, shape)
    is_forward = order.action == FORWARD
    # The time of a pair is given by the chunk and micro-batch of its forward.
    lead = np.where(is_forward, np.arange(len(dur)), order.partner)
    return np.where(pairs, pair_ns[order.chunk[lead], order.micro_batch[lead]], dur)


def _spread(name: str, value: Durations, shape: tuple[int, int]) -> Floats:
    values = np.asarray(value, dtype=np.float64)
    if values.ndim == 1 and values.shape[0] == shape[0]:
        values = values[:, None]
    sizes = zip(values.shape, shape, strict=False)
    if values.ndim not in (0, 2) or any(size not in (1, full) for size, full in sizes):
        msg = f"{name} has shape {np.shape(value)}; give one number, {shape[0]} (one per chunk of "
        msg += f"the model) or {shape[0]} x {shape[1]} (chunks x micro-batches)"
        raise PerformanceModelError(msg)
    if len(wrong := values[~(np.isfinite(values) & (values >= 0))]):
        msg = f"{name} must be numbers of at least 0, not {wrong[0]:g}"
        raise PerformanceModelError(msg)
    return np.broadcast_to(values, shape)


def _critical(passes: Plan, start: Floats, end: Floats, delay: Floats) -> NDArray[np.bool_]:
    """Mark one chain of passes that makes the step as long as it is."""
    count = len(start)
    marked = np.zeros(count, dtype=bool)
    partner, needs, before = passes.order.partner, passes.needs, passes.before
    ends = np.append(end, 0.0)
    at = int(end.argmax())
    while at < count:
        marked[at] = True
        pair = [at] if partner[at] < 0 else [at, int(partner[at])]
        after = [int(before[at]), *(int(needs[row]) for row in pair)]
        ready = [ends[after[0]], *(ends[needs[row]] + delay[row] for row in pair)]
        # The latest of the causes binds; a time of 0 is the begin of the step.
        at = after[int(np.argmax(ready))] if max(ready) > 0 else count
    return marked
