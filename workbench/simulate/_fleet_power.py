"""What the power meters of the job's machines would have read.

A GPU draws idle power, or more while it computes or communicates; its sensor shows
the mean of the last second, as ``power.draw`` does on Ampere and newer. A node's
meter sees its GPUs, everything else in the box, and the loss of the supply.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from workbench.simulate._fleet_engine import Step
from workbench.simulate._fleet_history import History
from workbench.simulate._fleet_plan import MILLISECOND, SECOND, Floats, Ints, Job

_WINDOW_NS = SECOND
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
    edges, power, busy = _load(history, _attempts_of(job, rank), rank)
    watts = _window_mean(edges, power, time)
    rng = np.random.default_rng([job.seed, 7, rank])
    watts = watts + 4.0 * rng.random(len(time)) - 2.0
    if history.failed_ns is not None and rank == job.faults.failing_rank:
        watts = np.where(time >= history.failed_ns, np.nan, watts)
    capped = _capped(history, rank, time)
    running = _window_mean(edges, busy, time) > 0
    clock = np.where(running, np.where(capped, job.capped_clock_mhz(), job.cluster.clock_mhz), 345)
    return Readings(
        time,
        watts,
        _window_mean(edges, busy, time),
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
        edges, load, work = _load(history, [2], rank)
        power, busy = _window_mean(edges, load, time), _window_mean(edges, work, time)
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
                continue  # nvidia-smi leaves out a GPU that fell off the bus
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
    whole = np.flatnonzero(time % SECOND == 0)
    rows += [
        ("POINT_IN_TIME", "power_reading", int(time[at]), str(round(power[at]))) for at in whole
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


def _attempts_of(job: Job, rank: int) -> list[int]:
    return [1, 2] if job.node_of(rank, 2) == job.node_of(rank) else [1]


def _capped(history: History, rank: int, time: Ints) -> np.ndarray:
    """Say when the GPU was capped: from the first capped step to the end of the last."""
    faults = history.job.faults
    capped = np.zeros(len(time), dtype=bool)
    if rank == faults.capped_rank:
        span = span_of(history, rank, faults.cap_first_step, faults.cap_last_step)
        capped = (time >= span[0]) & (time < span[1])
    return capped


def span_of(history: History, rank: int, first: int, last: int) -> tuple[int, int]:
    """Give start and end of some steps of the first attempt on one rank."""
    steps = [s for s in history.steps if s.attempt == 1 and first <= s.number <= last]
    return int(steps[0].start[rank]), int(steps[-1].end[rank])


def _load(history: History, attempts: list[int], rank: int) -> tuple[Ints, Floats, Floats]:
    """Give the load of a GPU as a step function: edges, power and busy (0 or 1) after each."""
    job, cluster = history.job, history.job.cluster
    compute, communicate, watts = [], [], []
    for step in [*history.steps, *([history.interrupted] if history.interrupted else [])]:
        if step.attempt in attempts:
            cut = history.failed_ns if step is history.interrupted else None
            parts = _intervals(history, step, rank, cut)
            compute.append(parts[0])
            communicate.append(parts[1])
            watts.append(np.full(len(parts[0]), _compute_w(job, step, rank) - cluster.idle_w))
    if 1 in attempts and history.failed_ns is not None and rank != job.faults.failing_rank:
        hang = np.array([[history.failed_ns, history.detected_ns]], dtype=np.int64)
        communicate.append(hang)  # the others spin in a collective until the watchdog ends it
    working, talking = np.concatenate(compute), np.concatenate(communicate)
    extra = cluster.communication_w - cluster.idle_w
    edges = np.concatenate([working[:, 0], working[:, 1], talking[:, 0], talking[:, 1]])
    ones, zeros = np.ones(len(talking)), np.zeros(len(talking))
    dynamic = np.concatenate([np.concatenate(watts), -np.concatenate(watts), zeros, zeros])
    kernels = np.concatenate([np.ones(len(working)), -np.ones(len(working)), zeros, zeros])
    calls = np.concatenate([np.zeros(2 * len(working)), ones, -ones])
    order = np.argsort(edges, kind="stable")
    dynamic, kernels, calls = (np.cumsum(part[order]) for part in (dynamic, kernels, calls))
    only_talking = (kernels < 0.5) & (calls > 0.5)
    power = cluster.idle_w + np.where(kernels > 0.5, dynamic, np.where(only_talking, extra, 0.0))
    busy = ((kernels > 0.5) | (calls > 0.5)).astype(np.float64)
    return edges[order], power, busy


def _intervals(history: History, step: Step, rank: int, cut: int | None) -> tuple[Ints, Ints]:
    """Give the compute and the communication intervals of a step, cut at a failure."""
    kinds = np.array([op.kind for op in history.program])
    parts = []
    for chosen in (np.isin(kinds, ["kernel", "copy"]), kinds == "collective"):
        spans = np.stack([step.gpu_start[chosen, rank], step.gpu_end[chosen, rank]], axis=1)
        if cut is not None:
            spans = np.minimum(spans, cut)
            spans = spans[spans[:, 1] > spans[:, 0]]
        parts.append(spans)
    return parts[0], parts[1]


def _compute_w(job: Job, step: Step, rank: int) -> float:
    """Give the power of computing: less at a capped clock, less in a GPU that stalls."""
    first = step.attempt == 1
    if first and rank == job.faults.capped_rank and job.is_capped(step.number):
        return job.cluster.compute_power_w(job.capped_clock_mhz())
    if first and rank == job.faults.slow_rank and job.is_slow(step.number):
        dynamic = job.cluster.compute_w - job.cluster.idle_w
        return job.cluster.idle_w + dynamic / job.faults.slow_factor
    return job.cluster.compute_w


def _window_mean(edges: Ints, values: Floats, time: Ints) -> Floats:
    """Average a step function over the second before each sample."""
    before = values[-1]  # the last value holds after the last edge, and is the idle one before
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(edges))])

    def integral(at: Ints) -> Floats:
        inside = np.interp(at, edges, area)
        early = np.minimum(at - edges[0], 0) * before
        late = np.maximum(at - edges[-1], 0) * before
        return np.asarray(inside + early + late, dtype=np.float64)

    return (integral(time) - integral(time - _WINDOW_NS)) / _WINDOW_NS


def _stamp(time_ns: int) -> str:
    whole, rest = divmod(time_ns, SECOND)
    text = datetime.fromtimestamp(whole, tz=UTC).strftime("%Y/%m/%d %H:%M:%S")
    return f"{text}.{rest // MILLISECOND:03d}"
