"""What the job's machines and scheduler would have written down: failures and steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np

from workbench.simulate._fleet.engine import Step
from workbench.simulate._fleet.history import History, span_of
from workbench.simulate._fleet.plan import MILLISECOND, SECOND, Job

_NOTE = "SYNTHETIC, made by workbench.simulate.fleet"
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
    return "".join(f"kern  :{level:<6}: {_iso(at)} {text}\n" for at, level, text in lines)


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
    entries = sorted(_entries(history), key=lambda entry: entry[0])
    return "".join(
        json.dumps({"time": _iso_z(at), "event": event, **more, "synthetic": True}) + "\n"
        for at, event, more in entries
    )


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
    """Write one run of the job and its parts."""
    submit, start, end = (at // SECOND for at in times)
    names = {"": "synthetic-fleet", ".batch": "batch", ".extern": "extern", ".0": "python3"}
    rows = []
    for part, name in names.items():
        alone = part == ".batch"
        hosts = nodes[:1] if alone else nodes
        gpus = job.gpus_per_node * len(hosts)
        part_state = "COMPLETED" if part == ".extern" else state
        if part_state == "NODE_FAIL" and part:
            part_state = "CANCELLED"
        cells = [f"{job.job_id}{part}", name, "" if part else "train", "research"]
        cells += [f"cpu={16 * gpus},gres/gpu={gpus},node={len(hosts)}", part_state]
        cells += ["0:9" if part_state == "CANCELLED" else "0:0"]
        cells += [_local(submit), _local(start), _local(end), _elapsed(end - start)]
        cells += [str(len(hosts)), _node_list(hosts), "" if part else _NOTE]
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


def _moment(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND, tz=UTC)


def _iso(time_ns: int) -> str:
    """Write a time as dmesg does: with a comma before the microseconds."""
    return f"{_moment(time_ns):%Y-%m-%dT%H:%M:%S},{time_ns % SECOND // 1000:06d}+00:00"


def _iso_z(time_ns: int) -> str:
    return f"{_moment(time_ns):%Y-%m-%dT%H:%M:%S}.{time_ns % SECOND // 1000:06d}Z"


def _local(seconds: int) -> str:
    return f"{_moment(seconds * SECOND):%Y-%m-%dT%H:%M:%S}"


def _elapsed(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def _node_list(nodes: list[str]) -> str:
    numbers = [node.removeprefix("node") for node in nodes]
    return nodes[0] if len(nodes) == 1 else f"node[{','.join(numbers)}]"
