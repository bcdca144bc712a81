"""Simulated readings of the power meters of the job's machines.

A GPU draws idle power, or more while it computes or communicates; its sensor shows
the mean of the last second, as ``power.draw`` does on Ampere and newer. A node's
meter sees its GPUs, everything else in the box, and the loss of the supply.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from data.make._fleet.engine import History, Step, span_of
from data.make._fleet.program import MILLISECOND, SECOND, Job
from workbench._shared.numbers import Flags, Floats, Ints

_POWER_CAP_REASON = 0x4


@dataclass(frozen=True)
class Readings:
    """One GPU sampled on a common grid; power is missing after the GPU was lost."""

    time_ns: Ints
    power_w: Floats
    busy_share: Floats
    clock_mhz: Ints
    limit_w: Floats
    reasons: Ints


def sample(history: History, rank: int, *, period_ns: int) -> Readings:
    """Read the sensors of the GPU that a rank had in the first attempt."""
    job = history.job
    time = _grid(history, period_ns)
    load = load_of(history, rank, _attempts_of(job, rank))
    watts, busy = window_mean(load.edges_ns, load.power_w, time), _busy(load, time)
    rng = np.random.default_rng([job.seed, 7, rank])
    watts = watts + 4.0 * rng.random(len(time)) - 2.0
    if history.failed_ns is not None and rank == job.faults.failing_rank:
        watts = np.where(time >= history.failed_ns, np.nan, watts)
    capped = _capped(history, rank, time)
    running = busy > 0
    clock = np.where(running, np.where(capped, job.capped_clock_mhz(), job.cluster.clock_mhz), 345)
    return Readings(
        time,
        watts,
        busy,
        clock.astype(np.int64),
        np.where(capped, job.faults.cap_w, job.cluster.power_limit_w),
        np.where(capped & running, _POWER_CAP_REASON, 0).astype(np.int64),
    )


def sample_spare(history: History, device: int, *, period_ns: int) -> Readings:
    """Read the sensors of a GPU of the spare node, which works in the second attempt only."""
    job, failing = history.job, history.job.faults.failing_rank
    time = _grid(history, period_ns)
    zero = np.zeros(len(time))
    rng = np.random.default_rng([job.seed, 8, device])
    power, busy = zero + job.cluster.idle_w, zero
    if failing is not None:
        rank = failing // job.gpus_per_node * job.gpus_per_node + device
        load = load_of(history, rank, [2])
        power, busy = window_mean(load.edges_ns, load.power_w, time), _busy(load, time)
    clock = np.where(busy > 0, job.cluster.clock_mhz, 345)
    noise = 4.0 * rng.random(len(time)) - 2.0
    limit = zero + job.cluster.power_limit_w
    return Readings(time, power + noise, busy, clock, limit, zero.astype(np.int64))


def nvidia_smi_text(readings: dict[int, Readings]) -> str:
    """Write the log of ``nvidia-smi --query-gpu`` of one node, its clock in UTC."""
    lines = [
        "timestamp, index, power.draw [W], enforced.power.limit [W], utilization.gpu [%], "
        "clocks.current.sm [MHz], clocks_event_reasons.active"
    ]
    count = len(next(iter(readings.values())).time_ns)
    for at in range(count):
        for order, (index, gpu) in enumerate(readings.items()):
            if np.isnan(gpu.power_w[at]):
                continue  # nvidia-smi drops a GPU that fell off the bus
            stamp = _stamp(int(gpu.time_ns[at]) + 3 * MILLISECOND * order)
            lines.append(
                f"{stamp}, {index}, {gpu.power_w[at]:.2f} W, {gpu.limit_w[at]:.2f} W, "
                f"{round(100 * gpu.busy_share[at])} %, {gpu.clock_mhz[at]} MHz, "
                f"0x{gpu.reasons[at]:016x}"
            )
    return "\n".join(lines) + "\n"


def node_text(job: Job, node: str, readings: dict[int, Readings]) -> str:
    """Write the log of a node's AC meter as MLPerf Training does, one reading a second."""
    note = f'{{"synthetic": true, "node": "{node}"}}'
    time = next(iter(readings.values())).time_ns
    gpus = np.nansum([gpu.power_w for gpu in readings.values()], axis=0)
    power = (job.cluster.node_other_w + 1.06 * gpus) / job.cluster.supply_efficiency_share
    rows = [("INTERVAL_START", "power_measurement_start", int(time[0]), "null")]
    seconds = np.flatnonzero(time % SECOND == 0)
    rows += [
        ("POINT_IN_TIME", "power_reading", int(time[at]), str(round(power[at]))) for at in seconds
    ]
    rows += [("INTERVAL_END", "power_measurement_stop", int(time[-1]), "null")]
    return "".join(
        f':::MLLOG {{"namespace": "", "time_ms": {at // MILLISECOND}, "event_type": "{kind}", '
        f'"key": "{key}", "value": {value}, "metadata": {note}}}\n'
        for kind, key, at, value in rows
    )


def _grid(history: History, period_ns: int) -> Ints:
    start = history.job.start_ns
    return np.arange(start, history.end_ns + 5 * SECOND, period_ns, dtype=np.int64)


def _busy(load: Load, time: Ints) -> Floats:
    return window_mean(load.edges_ns, load.is_busy.astype(np.float64), time)


def _attempts_of(job: Job, rank: int) -> list[int]:
    return [1, 2] if job.node_of(rank, 2) == job.node_of(rank) else [1]


def _capped(history: History, rank: int, time: Ints) -> Flags:
    """Return when the GPU was capped: from the first capped step to the end of the last."""
    faults = history.job.faults
    capped = np.zeros(len(time), dtype=bool)
    if rank == faults.capped_rank:
        span = span_of(history, rank, faults.cap_first_step, faults.cap_last_step)
        capped = (time >= span[0]) & (time < span[1])
    return capped


def _stamp(time_ns: int) -> str:
    seconds, nanoseconds = divmod(time_ns, SECOND)
    text = datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y/%m/%d %H:%M:%S")
    return f"{text}.{nanoseconds // MILLISECOND:03d}"


@dataclass(frozen=True)
class Load:
    """A step function: each value holds from its edge to the next one."""

    edges_ns: Ints
    power_w: Floats
    is_busy: Flags


@dataclass(frozen=True)
class _Spans:
    """Segments of time in which the GPU did one kind of work, with its power above idle."""

    start_ns: Ints
    end_ns: Ints
    extra_w: Floats


def load_of(history: History, rank: int, attempts: Collection[int]) -> Load:
    """Follow a GPU through the attempts it took part in.

    Compute sets the power; communication only where nothing computes, for it
    hardly adds to a GPU at work; idle power is always there.
    """
    compute = _spans(history, rank, attempts, ("kernel", "copy"))
    talk = _spans(history, rank, attempts, ("collective",))
    edges = np.unique(
        np.concatenate([compute.start_ns, compute.end_ns, talk.start_ns, talk.end_ns])
    )
    computing = _level(edges, compute, np.ones_like(compute.extra_w)) > 0.5
    talking = _level(edges, talk, np.ones_like(talk.extra_w)) > 0.5
    talk_w = history.job.cluster.communication_w - history.job.cluster.idle_w
    extra = np.where(computing, _level(edges, compute, compute.extra_w), talk_w * talking)
    return Load(edges, history.job.cluster.idle_w + extra, computing | talking)


def window_mean(edges_ns: Ints, values: Floats, time_ns: Ints) -> Floats:
    """Average a step function over the second before each sample.

    Before the first edge and after the last one the last value holds, which is that of an idle GPU.
    """
    outside = values[-1]
    inner = edges_ns - edges_ns[0]
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(inner))])

    def integral(at: Ints) -> Floats:
        beyond = np.minimum(at, 0) + np.maximum(at - inner[-1], 0)
        return np.asarray(np.interp(at, inner, area) + beyond * outside, dtype=np.float64)

    at = time_ns - edges_ns[0]
    return (integral(at) - integral(at - SECOND)) / SECOND


def _spans(
    history: History, rank: int, attempts: Collection[int], kinds: Collection[str]
) -> _Spans:
    """Collect the GPU's work of some kinds, up to the failure and the hang after it."""
    job, cut = history.job, history.failed_ns
    chosen = np.array([op.kind in kinds for op in history.program])
    steps = [step for step in history.steps if step.attempt in attempts]
    steps += [history.interrupted] if history.interrupted and 1 in attempts else []
    start = [step.gpu_start[chosen, rank] for step in steps]
    end = [step.gpu_end[chosen, rank] for step in steps]
    extra = [np.full(chosen.sum(), _compute_w(job, s, rank) - job.cluster.idle_w) for s in steps]
    if history.interrupted and 1 in attempts and cut is not None:
        start[-1], end[-1] = np.minimum(start[-1], cut), np.minimum(end[-1], cut)
        hangs = "collective" in kinds and rank != job.faults.failing_rank
        if hangs and history.detected_ns:  # spins in a collective until the watchdog ends it
            start.append(np.array([cut], dtype=np.int64))
            end.append(np.array([history.detected_ns], dtype=np.int64))
            extra.append(np.zeros(1))
    return _Spans(np.concatenate(start), np.concatenate(end), np.concatenate(extra))


def _level(edges: Ints, spans: _Spans, weight: Floats) -> Floats:
    """Add up the weights of the spans that cover each segment between edges."""
    change = np.zeros(len(edges))
    np.add.at(change, np.searchsorted(edges, spans.start_ns), weight)
    np.subtract.at(change, np.searchsorted(edges, spans.end_ns), weight)
    return np.cumsum(change)


def _compute_w(job: Job, step: Step, rank: int) -> float:
    """Return the power of computing: less at a capped clock, less in a GPU that stalls."""
    first = step.attempt == 1
    if first and rank == job.faults.capped_rank and job.is_capped(step.number):
        return job.cluster.compute_power_w(job.capped_clock_mhz())
    if first and rank == job.faults.slow_rank and job.is_slow(step.number):
        dynamic = job.cluster.compute_w - job.cluster.idle_w
        return job.cluster.idle_w + dynamic / job.faults.slow_factor
    return job.cluster.compute_w
