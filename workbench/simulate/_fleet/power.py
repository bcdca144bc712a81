"""What the power meters of the job's machines would have read.

A GPU draws idle power, or more while it computes or communicates; its sensor shows
the mean of the last second, as ``power.draw`` does on Ampere and newer. A node's
meter sees its GPUs, everything else in the box, and the loss of the supply.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from workbench.simulate._fleet.history import History, span_of
from workbench.simulate._fleet.load import Load, load_of, window_mean
from workbench.simulate._fleet.plan import MILLISECOND, SECOND, Flags, Floats, Ints, Job

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


def _busy(load: Load, time: Ints) -> Floats:
    return window_mean(load.edges_ns, load.is_busy.astype(np.float64), time)


def _attempts_of(job: Job, rank: int) -> list[int]:
    return [1, 2] if job.node_of(rank, 2) == job.node_of(rank) else [1]


def _capped(history: History, rank: int, time: Ints) -> Flags:
    """Say when the GPU was capped: from the first capped step to the end of the last."""
    faults = history.job.faults
    capped = np.zeros(len(time), dtype=bool)
    if rank == faults.capped_rank:
        span = span_of(history, rank, faults.cap_first_step, faults.cap_last_step)
        capped = (time >= span[0]) & (time < span[1])
    return capped


def _stamp(time_ns: int) -> str:
    whole, rest = divmod(time_ns, SECOND)
    text = datetime.fromtimestamp(whole, tz=UTC).strftime("%Y/%m/%d %H:%M:%S")
    return f"{text}.{rest // MILLISECOND:03d}"
