"""The truth about a simulated job: what was injected, where and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from data.make._fleet.engine import History, Step, span_of
from data.make._fleet.program import MILLISECOND, SECOND, Job
from data.make._folder import event_lines, iso, local
from data.make._truth import FLEET_TRUTH


def truth_table(history: History) -> pd.DataFrame:
    """List the injected faults, table FLEET_TRUTH."""
    rows = [*_slow(history), *_late(history), *_capped(history), *_failing(history)]
    return FLEET_TRUTH.of(rows)


def readme_text(job: Job) -> str:
    """Return the README that states in the folder itself that nothing in it was measured."""
    first, last = job.first_traced_step, job.last_traced_step
    return f"""# A synthetic training job

**Nothing here was measured.** `data.make.fleet` made every file from seed {job.seed}:
one simulation of {job.ranks} GPUs on {job.ranks // job.gpus_per_node} nodes, written in the form \
of each tool. All times are UTC, on one clock.

| file | like | holds |
|---|---|---|
| `traces/` | Kineto traces of PyTorch | steps {first} to {last} of every rank |
| `power/*_nvidia_smi.csv` | `nvidia-smi --query-gpu` | \
power, clock, utilisation of each GPU, 2 per second |
| `power/*_ac.txt` | MLPerf Training power logs | AC power of each node, 1 per second |
| `failures/*_kernel.log` | `dmesg --decode --time-format iso` | Xid lines and others |
| `failures/synthetic_sacct.txt` | `sacct --parsable2 --duplicates` | the job's two runs |
| `steps.jsonl` | a training script's log | every step, checkpoint and interruption |
| `truth.csv` | | what was injected, where and when |

The licence is that of the workbench (MIT).
"""


def _slow(history: History) -> Iterator[dict[str, Any]]:
    faults = history.job.faults
    if faults.slow_rank is not None:
        last = max(step.number for step in history.steps if step.attempt == 1)
        row = _row(history, "slow rank", faults.slow_rank, faults.slow_first_step, last)
        size = {"size": faults.slow_factor, "unit": "x (compute time)"}
        yield {**row, **size, "seen_in": "traces, power, steps"}


def _late(history: History) -> Iterator[dict[str, Any]]:
    faults = history.job.faults
    if faults.late_rank is not None:
        for step in faults.late_steps:
            row = _row(history, "late host", faults.late_rank, step, step)
            size = {"size": faults.late_ns / MILLISECOND, "unit": "ms (longer data loading)"}
            yield {**row, **size, "seen_in": "traces, steps, kernel log"}


def _capped(history: History) -> Iterator[dict[str, Any]]:
    job, faults = history.job, history.job.faults
    if faults.capped_rank is not None:
        first, last = faults.cap_first_step, faults.cap_last_step
        row = _row(history, "power cap", faults.capped_rank, first, last)
        yield {**row, "size": faults.cap_w, "unit": "W", "seen_in": "power"}
        factor = job.cluster.clock_mhz / job.capped_clock_mhz()
        size = {"size": round(factor, 6), "unit": "x (compute time)"}
        yield {**row, **size, "seen_in": "traces"}


def _failing(history: History) -> Iterator[dict[str, Any]]:
    job, rank = history.job, history.job.faults.failing_rank
    if rank is None or history.failed_ns is None or history.interrupted is None:
        return
    detected, restarted = history.detected_ns or 0, history.restarted_ns or 0
    number = history.interrupted.number
    common = {"rank": rank, "node": job.node_of(rank), "first_step": number, "last_step": number}
    yield {
        **common,
        "what": "failing node",
        "start_ns": history.failed_ns,
        "end_ns": detected,
        "size": float(job.faults.xid),
        "unit": "Xid",
        "seen_in": "kernel log, power, sacct",
    }
    running = restarted + job.startup_ns
    resumed = min(step.number for step in history.steps if step.attempt == 2)
    yield {
        **common,
        "what": "job restart",
        "rank": pd.NA,
        "first_step": resumed,
        "last_step": number,
        "start_ns": detected,
        "end_ns": running,
        "size": (running - history.failed_ns) / SECOND,
        "unit": "s (from failure to training)",
        "seen_in": "sacct, steps, power",
    }


def _row(history: History, fault: str, rank: int, first: int, last: int) -> dict[str, Any]:
    start, end = span_of(history, rank, first, last)
    return {
        "what": fault,
        "rank": rank,
        "node": history.job.node_of(rank),
        "first_step": first,
        "last_step": last,
        "start_ns": start,
        "end_ns": end,
    }


_NOTE = "SYNTHETIC, made by data.make.fleet"
_BUSES = ("1b", "43", "52", "9d", "c3", "d1", "df", "e2")
_SACCT = (
    "JobID|JobName|Partition|Account|AllocTRES|State|ExitCode|Submit|Start|End|Elapsed|"
    "NNodes|NodeList|Comment"
)


def kernel_log(history: History, node: str) -> str:
    """Write the kernel log of a host, in the form of ``dmesg --decode --time-format iso``."""
    job = history.job
    lines = [(job.start_ns - 60 * SECOND, "notice", f"workbench: {_NOTE}; no real host wrote this")]
    lines += [(job.start_ns - 59 * SECOND, "info", "mlx5_core 0000:1a:00.0 ibs1: Link up")]
    faults = job.faults
    if faults.late_rank is not None and job.node_of(faults.late_rank) == node:
        for step in faults.late_steps:
            start = span_of(history, faults.late_rank, step, step)[0]
            lines.append((start + 2 * MILLISECOND, "err", "nfs: server data01 not responding"))
            lines.append((start + 44 * MILLISECOND, "err", "nfs: server data01 OK"))
    if history.failed_ns is not None and job.node_of(faults.failing_rank or 0) == node:
        lines += _lost_gpu(job, history.failed_ns)
    lines.sort(key=lambda line: line[0])
    # dmesg writes a comma before the microseconds.
    times = (iso(at).replace(".", ",") for at, _, _ in lines)
    return "".join(f"kern  :{level:<6}: {time}+00:00 {text}\n"
                   for time, (_, level, text) in zip(times, lines, strict=True))  # fmt: skip


def sacct_text(history: History) -> str:
    """Write the job's accounting as ``sacct --parsable2 --duplicates`` does, times in UTC."""
    job = history.job
    first = [job.node_of(rank, 1) for rank in range(0, job.ranks, job.gpus_per_node)]
    second = [job.node_of(rank, 2) for rank in range(0, job.ranks, job.gpus_per_node)]
    submit = job.start_ns - 120 * SECOND
    if history.failed_ns is None or history.detected_ns is None or history.restarted_ns is None:
        rows = _accounting(job, "COMPLETED", (submit, job.start_ns, history.end_ns), first)
    else:
        failed = (submit, job.start_ns, history.detected_ns)
        again = (history.detected_ns, history.restarted_ns, history.end_ns)
        rows = _accounting(job, "NODE_FAIL", failed, first)
        rows += _accounting(job, "COMPLETED", again, sorted(second))
    return "\n".join([_SACCT, *rows]) + "\n"


def step_log(history: History) -> str:
    """Write the job's own log: one JSON object per step and per event, in order of time."""
    return event_lines(sorted(_entries(history), key=lambda entry: entry[0]))


def _lost_gpu(job: Job, at: int) -> list[tuple[int, str, str]]:
    rank = job.faults.failing_rank or 0
    bus = _BUSES[rank % job.gpus_per_node % len(_BUSES)]
    gpu, xid = f"0000:{bus}:00", job.faults.xid
    return [
        (at - 3 * MILLISECOND, "info", "pcieport 0000:15:01.0: pciehp: Slot(21): Link Down"),
        (
            at,
            "warn",
            f"NVRM: Xid (PCI:{gpu}): {xid}, pid={41_000 + 37 * rank}, name=python3, "
            "GPU has fallen off the bus.",
        ),
        (at + 41_000, "warn", f"NVRM: GPU {gpu}.0: GPU has fallen off the bus."),
        (
            at + 2 * SECOND,
            "warn",
            f"NVRM: Xid (PCI:{gpu}): 154, GPU recovery action changed from 0x0 (None) to "
            "0x2 (Node Reboot Required)",
        ),
    ]


def _accounting(job: Job, state: str, times: tuple[int, int, int], nodes: list[str]) -> list[str]:
    submit, start, end = (at // SECOND for at in times)
    names = {"": "synthetic-fleet", ".batch": "batch", ".extern": "extern", ".0": "python3"}
    rows = []
    for job_step, name in names.items():
        alone = job_step == ".batch"
        hosts = nodes[:1] if alone else nodes
        gpus = job.gpus_per_node * len(hosts)
        part_state = "COMPLETED" if job_step == ".extern" else state
        if part_state == "NODE_FAIL" and job_step:
            part_state = "CANCELLED"
        cells = [f"{job.job_id}{job_step}", name, "" if job_step else "train", "research"]
        cells += [f"cpu={16 * gpus},gres/gpu={gpus},node={len(hosts)}", part_state]
        cells += ["0:9" if part_state == "CANCELLED" else "0:0"]
        cells += [*map(local, (submit, start, end)), _elapsed(end - start)]
        cells += [str(len(hosts)), _node_list(hosts), "" if job_step else _NOTE]
        rows.append("|".join(cells))
    return rows


def _entries(history: History) -> Iterator[tuple[int, str, dict[str, Any]]]:
    job = history.job
    about = {"job_id": job.job_id, "ranks": job.ranks, "nodes": list(job.nodes[:-1])}
    yield job.start_ns, "start", {**about, "seed": job.seed, "attempt": 1}
    yield job.start_ns + job.startup_ns, "running", {"attempt": 1, "step": 0}
    for step in history.steps:
        yield int(step.end.max()), "step", _progress(job, step)
    for saved, start, end in history.checkpoints:
        yield start, "checkpoint_start", {"step": saved}
        yield end, "checkpoint_end", {"step": saved}
    if history.failed_ns and history.detected_ns and history.restarted_ns:
        node = job.node_of(job.faults.failing_rank or 0)
        resumed = min(step.number for step in history.steps if step.attempt == 2)
        cause = f"Xid {job.faults.xid}"
        yield history.failed_ns, "interrupt", {"cause": cause, "node": node}
        yield history.detected_ns, "detected", {"node": node}
        yield history.restarted_ns, "nodes_ready", {"attempt": 2, "spare": job.nodes[-1]}
        running = {"attempt": 2, "step": resumed}
        yield history.restarted_ns + job.startup_ns, "running", running
    yield history.end_ns, "end", {"step": job.total_steps}


def _progress(job: Job, step: Step) -> dict[str, Any]:
    noise = np.random.default_rng([job.seed, 9, step.number]).random()
    loss = 2.1 + 8.4 / (1 + step.number / 6) + 0.05 * noise
    took = int((step.end - step.start).max())
    return {
        "attempt": step.attempt,
        "step": step.number,
        "step_time_ms": round(took / MILLISECOND, 3),
        "tokens": 8192 * job.ranks,
        "loss": round(float(loss), 4),
    }


def _elapsed(seconds: int) -> str:
    hours, remainder = divmod(seconds, 3600)
    return f"{hours:02d}:{remainder // 60:02d}:{remainder % 60:02d}"


def _node_list(nodes: list[str]) -> str:
    numbers = [node.removeprefix("node") for node in nodes]
    return nodes[0] if len(nodes) == 1 else f"node[{','.join(numbers)}]"
