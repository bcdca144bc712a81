"""When the passes of a pipeline schedule run, what a step costs, and which schedule costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
from workbench.tables import SCHEDULE_COMPARISON, SCHEDULE_STAGES, SCHEDULE_TIMES

Floats: TypeAlias = NDArray[np.float64]
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
        weight, both = self.weight_ns, self.overlapped_ns
        return replace(
            self,
            forward_ns=self.forward_ns / chunks,
            backward_ns=self.backward_ns / chunks,
            weight_ns=None if weight is None else weight / chunks,
            overlapped_ns=None if both is None else both / chunks,
        )


def schedule_times(schedule: pd.DataFrame, times: PassTimes) -> pd.DataFrame:
    """Say when every pass of a schedule runs.

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
    found = plan(order)
    dur, delay = _durations(found, times)
    start, end = found.times(dur, delay)
    table = pd.DataFrame(
        {
            "schedule": pd.Categorical.from_codes(
                np.zeros(len(dur), dtype=np.int8), pd.Index([name])
            ),
            "stage": order.stage,
            "action": pd.Categorical.from_codes(order.action.astype(np.int8), pd.Index(ACTIONS)),
            "micro_batch": order.micro_batch,
            "chunk": order.chunk,
            "start_ns": start,
            "dur_ns": dur,
            "is_overlapped": order.partner >= 0,
            "is_critical": _critical(found, start, end, delay),
        }
    )
    return SCHEDULE_TIMES.check(SCHEDULE_TIMES.cast(table))


def schedule_stages(times: pd.DataFrame) -> pd.DataFrame:
    """Add up each stage of laid-out schedules: busy, idle, and what it must keep in memory.

    Parameters
    ----------
    times
        Table :data:`workbench.tables.SCHEDULE_TIMES`, of one or several schedules; each
        stage's passes in their order.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SCHEDULE_STAGES`.

    Notes
    -----
    A stage keeps the activations of a micro-batch in a chunk from the forward to the end of
    the backward; if that is split, to the end of the weight-gradient pass. The step ends with its
    last pass, on whatever stage, and is idle time for the others.
    """
    SCHEDULE_TIMES.check(times)
    if times.empty:
        return SCHEDULE_STAGES.empty()
    action = times["action"]
    kept = action.eq("F").astype("int64") - action.isin(["B", "W"]).astype("int64")
    keys = [times["schedule"].cat.remove_unused_categories(), times["stage"]]
    # Of two passes that overlap, one stands for both.
    alone = ~(times["is_overlapped"] & action.ne("F"))
    how = {"sort": False, "observed": True}
    table = pd.DataFrame(
        {
            "chunk_count": times["chunk"].groupby(keys, **how).nunique(),
            "busy_ns": times["dur_ns"].where(alone, 0.0).groupby(keys, **how).sum(),
            "peak_activations_count": kept.groupby(keys, **how).cumsum().groupby(keys, **how).max(),
        }
    )
    table.index.names = ["schedule", "stage"]
    table = table.reset_index()
    ends = (times["start_ns"] + times["dur_ns"]).groupby(keys[0], observed=True).max()
    step = table["schedule"].astype(str).map(ends).to_numpy(dtype=np.float64)
    table["idle_ns"] = np.maximum(step - table["busy_ns"], 0.0)
    table["idle_share"] = table["idle_ns"] / np.where(step > 0, step, 1.0)
    return SCHEDULE_STAGES.check(SCHEDULE_STAGES.cast(table))


def schedule_summary(times: pd.DataFrame) -> pd.DataFrame:
    """Say what each laid-out schedule costs: its step, its bubble and its memory.

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
    one stage, the longest. The critical path is passes and transfers, nothing else: what of the
    step is not passes on it is transfers.

    References
    ----------
    arXiv:2104.04473, section 2.2.
    """
    stages = schedule_stages(times)
    rows = []
    for name, mine in stages.groupby(stages["schedule"].astype(str), sort=False):
        passes = times[times["schedule"] == name]
        step = float((passes["start_ns"] + passes["dur_ns"]).max())
        busy, idle = float(mine["busy_ns"].sum()), float(mine["idle_ns"].sum())
        critical = passes[passes["is_critical"]]
        peak = mine["peak_activations_count"]
        batches = passes["micro_batch"].nunique()
        rows.append(
            {
                "schedule": name,
                "stage_count": len(mine),
                "micro_batch_count": batches,
                "chunk_count": mine["chunk_count"].max(),
                "step_ns": step,
                "bubble_ns": mine["idle_ns"].max(),
                "bubble_share": idle / (idle + busy) if idle else 0.0,
                "bubble_ratio": idle / busy if busy else None,
                "critical_transfer_ns": max(step - float(critical["dur_ns"].sum()), 0.0),
                "peak_activations_count": peak.max(),
                "peak_activations_ratio": (peak / mine["chunk_count"]).max(),
                "basis": "modelled",
                "doubt": _few(batches, len(mine)),
            }
        )
    table = pd.DataFrame(rows, columns=list(SCHEDULE_COMPARISON.columns))
    table = table.astype({"schedule": "category", "basis": "category"})
    return SCHEDULE_COMPARISON.check(SCHEDULE_COMPARISON.cast(table))


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
    given = [times.forward_ns, times.backward_ns, times.transfer_ns, times.weight_ns]
    if any(np.ndim(each) for each in (*given, times.overlapped_ns) if each is not None):
        msg = (
            "schedules are compared by one number per kind of pass, not by chunk; use "
            "schedule_times for such durations"
        )
        raise PerformanceModelError(msg)
    rows, impossible = [], {}
    for kind in kinds:
        try:
            schedule = pipeline_schedule(
                kind, stages, micro_batches, chunks if kind == "interleaved" else None
            )
        except PerformanceModelError as error:
            impossible[kind] = str(error)
            continue
        part = times.part(schedule["chunk"].nunique() // stages)
        row = schedule_summary(schedule_times(schedule, part))
        rows.append(row.assign(doubt=_doubt(row["doubt"].iloc[0], schedule, times)))
    if not rows:
        msg = "none of the schedules is possible: " + "; ".join(impossible.values())
        raise PerformanceModelError(msg)
    table = pd.concat([row.astype({"schedule": "str"}) for row in rows], ignore_index=True)
    table = table.sort_values("step_ns", kind="stable", ignore_index=True)
    table = table.astype({"schedule": "category", "basis": "category"})
    table = SCHEDULE_COMPARISON.cast(table)
    table.attrs["impossible"] = impossible
    return SCHEDULE_COMPARISON.check(table)


def _few(micro_batches: int, stages: int) -> str | None:
    if micro_batches >= stages:
        return None
    return f"{micro_batches} micro-batches on {stages} stages: the pipeline never fills"


def _doubt(known: str | None, schedule: pd.DataFrame, times: PassTimes) -> str | None:
    """Add what the durations leave open to what is known."""
    doubts = [known] if isinstance(known, str) else []
    if times.overlapped_ns is None and schedule["overlapped_with"].notna().any():
        doubts.append("passes that overlap are taken to gain nothing; give overlapped_ns")
    if times.weight_ns is None and schedule["action"].isin(["I", "W"]).any():
        doubts.append(
            "the weight-gradient pass is taken to be half of the backward pass; give weight_ns"
        )
    return "; ".join(doubts) or None


def _durations(found: Plan, times: PassTimes) -> tuple[Floats, Floats]:
    """Return how long each pass takes, and how long its input travels."""
    order = found.order
    shape = (int(order.chunk.max()) + 1, int(order.micro_batch.max()) + 1)
    forward = _spread("forward_ns", times.forward_ns, shape)
    backward = _spread("backward_ns", times.backward_ns, shape)
    given = times.weight_ns
    weight = backward / 2 if given is None else _spread("weight_ns", given, shape)
    if (weight > backward).any():
        chunk, batch = np.argwhere(weight > backward)[0]
        msg = (
            f"weight_ns is a part of backward_ns, but in chunk {chunk}, micro-batch {batch} it is "
            f"{weight[chunk, batch]:g} of {backward[chunk, batch]:g}"
        )
        raise PerformanceModelError(msg)
    each = np.empty((len(ACTIONS), *shape))
    each[FORWARD], each[BACKWARD], each[INPUT], each[WEIGHT] = (
        forward, backward, backward - weight, weight
    )  # fmt: skip
    dur = each[order.action, order.chunk, order.micro_batch]
    dur = _paired(order, dur, times.overlapped_ns, shape)
    travel = _spread("transfer_ns", times.transfer_ns, shape)
    stages = np.append(order.stage, -1)
    crosses = (found.needs < len(dur)) & (stages[found.needs] != order.stage)
    source = np.minimum(found.needs, len(dur) - 1)
    delay = travel[order.chunk[source], order.micro_batch[source]]
    return dur, np.where(crosses, delay, 0.0)


def _paired(
    order: Order, dur: Floats, overlapped_ns: Durations | None, shape: tuple[int, int]
) -> Floats:
    """Give two passes that overlap the duration of their pair."""
    pairs = order.partner >= 0
    if overlapped_ns is None:
        return np.where(pairs, dur + dur[order.partner], dur)
    both = _spread("overlapped_ns", overlapped_ns, shape)
    is_forward = order.action == FORWARD
    lead = np.where(is_forward, np.arange(len(dur)), order.partner)
    return np.where(pairs, both[order.chunk[lead], order.micro_batch[lead]], dur)


def _spread(name: str, value: Durations, shape: tuple[int, int]) -> Floats:
    """Return durations by chunk and micro-batch, or say what is wrong with them."""
    given = np.asarray(value, dtype=np.float64)
    if given.ndim == 1 and given.shape[0] == shape[0]:
        given = given[:, None]
    if given.ndim not in (0, 2) or any(
        size not in (1, full) for size, full in zip(given.shape, shape, strict=False)
    ):
        msg = (
            f"{name} has shape {np.shape(value)}; give one number, {shape[0]} (one per chunk of "
            f"the model) or {shape[0]} x {shape[1]} (chunks x micro-batches)"
        )
        raise PerformanceModelError(msg)
    if not (np.isfinite(given) & (given >= 0)).all():
        wrong = given[~(np.isfinite(given) & (given >= 0))].ravel()[0]
        msg = f"{name} must be numbers of at least 0, not {wrong:g}"
        raise PerformanceModelError(msg)
    return np.broadcast_to(given, shape)


def _critical(found: Plan, start: Floats, end: Floats, delay: Floats) -> NDArray[np.bool_]:
    """Mark one chain of passes that makes the step as long as it is."""
    count = len(start)
    marked = np.zeros(count, dtype=bool)
    partner, needs, before = found.order.partner, found.needs, found.before
    ends = np.append(end, 0.0)
    at = int(end.argmax())
    while at < count:
        marked[at] = True
        both = [at] if partner[at] < 0 else [at, int(partner[at])]
        after = [int(before[at]), *(int(needs[row]) for row in both)]
        ready = [ends[after[0]], *(ends[needs[row]] + delay[row] for row in both)]
        at = after[int(np.argmax(ready))] if max(ready) > 0 else count
    return marked
