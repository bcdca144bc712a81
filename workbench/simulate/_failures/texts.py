"""What the machines, the scheduler and the job of a simulated history have written down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from workbench.simulate._failures.bursts import BUSES, MINUTE, SECOND, harmless
from workbench.simulate._failures.history import START_NS, Attempt, Cluster, History

JOB_ID = 4_711_000
_NOTE = "SYNTHETIC, made by workbench.simulate.failure_logs"
_HARMLESS_PER_NODE_DAY = 0.06
_SACCT = (
    "JobID|JobName|Partition|Account|AllocTRES|State|ExitCode|Submit|Start|End|Elapsed|"
    "NNodes|NodeList|FailedNode|Comment"
)


def kernel_log(found: History) -> str:
    """Write what all kernels say, as rsyslog collects it, in order of time."""
    first = (START_NS - 10 * MINUTE, found.cluster.nodes[0], f"workbench: {_NOTE}")
    lines = sorted([*_bursts(found), *_boots(found), *_noise(found)])
    told = [first, *(line for line in lines if line[0] < found.attempts[-1].end_ns)]
    return "".join(f"{_iso(at)}+00:00 {node} kernel: {text}\n" for at, node, text in told)


def sacct_text(found: History) -> str:
    """Write the job's accounting as ``sacct --parsable2 --duplicates`` does, times in UTC."""
    rows = [row for attempt in found.attempts for row in _accounting(attempt)]
    return "\n".join([_SACCT, *rows]) + "\n"


def goodput_text(found: History) -> str:
    """Write what the job did: one JSON object per event, in order of time."""
    about = {"job_id": str(JOB_ID), "gpus_per_node": len(BUSES)}
    entries = [(START_NS, "start", {**about, "nodes": list(found.attempts[0].nodes)})]
    entries += [entry for attempt in found.attempts for entry in _events(attempt)]
    return "".join(
        json.dumps({"time": f"{_iso(at)}Z", "event": event, **more, "synthetic": True}) + "\n"
        for at, event, more in entries
    )


def readme_text(cluster: Cluster) -> str:
    """Say in the folder itself that nothing in it was measured."""
    return f"""# Synthetic logs of a job whose nodes fail

**Nothing here was measured.** `workbench.simulate.failure_logs` made every file from seed \
{cluster.seed}: one history of a training job of {cluster.days:g} days on {cluster.node_count} \
nodes of {len(BUSES)} GPUs, with {len(cluster.nodes) - cluster.node_count} spares. \
{cluster.lemon_count} nodes fail far more often than others. All times are UTC, on one clock.

| file | like | holds |
|---|---|---|
| `synthetic_kern.log` | kernel messages collected by rsyslog | \
bursts of Xid lines, and harmless lines |
| `synthetic_sacct.txt` | `sacct --parsable2 --duplicates` | every attempt of the job |
| `synthetic_goodput.jsonl` | a training script's log | what the job did and when |
| `truth.csv` | | every incident: when, where, what, and what it cost |

How often each Xid occurs is made up. Errors of two generations of NVLink (Xid 74 and 149) occur \
beside each other, which no cluster has. Steps take 20 s; the job saves itself after every 360 of \
them. Some interruptions leave no line in the kernel log.

The licence is that of the workbench (MIT).
"""


def _bursts(found: History) -> Iterator[tuple[int, str, str]]:
    for incident in found.incidents:
        for line in incident.lines:
            yield incident.at_ns + line.after_ns, incident.node, line.text


def _boots(found: History) -> Iterator[tuple[int, str, str]]:
    """Let repaired hosts start again."""
    version = "Linux version 5.15.0-112-generic #122-Ubuntu SMP"
    driver = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  560.35.03"
    for node, _, until in found.repairs:
        yield until - 4 * MINUTE, node, version
        yield until - 3 * MINUTE, node, driver


def _noise(found: History) -> Iterator[tuple[int, str, str]]:
    cluster = found.cluster
    random, span = cluster.random(6), cluster.end_ns - START_NS
    for _ in range(round(_HARMLESS_PER_NODE_DAY * len(cluster.nodes) * cluster.days)):
        at = START_NS + int(random.random() * span / 1000) * 1000
        node = cluster.nodes[int(random.random() * len(cluster.nodes))]
        lines = harmless(random)
        is_off = any(node == n and a <= at + MINUTE and at <= b for n, a, b in found.repairs)
        for line in () if is_off else lines:
            yield at + line.after_ns, node, line.text


def _accounting(attempt: Attempt) -> Iterator[str]:
    """Write one run of the job and its steps."""
    submit, start = attempt.submit_ns // SECOND, attempt.ready_ns // SECOND
    end = attempt.end_ns // SECOND
    times = [*map(_local, (submit, start, end)), _elapsed(end - start)]
    parts = {"": "synthetic-failures", ".batch": "batch", ".extern": "extern", ".0": "python3"}
    for part, name in parts.items():
        hosts = attempt.nodes[:1] if part == ".batch" else attempt.nodes
        gpus = len(BUSES) * len(hosts)
        cells = [f"{JOB_ID}{part}", name, "" if part else "train", "research"]
        cells += [f"cpu={16 * gpus},gres/gpu={gpus},node={len(hosts)}", *_state(attempt, part)]
        cells += [*times, str(len(hosts)), node_list(hosts)]
        cells += ["", ""] if part else [_failed_node(attempt), f"{_NOTE}; times in UTC"]
        yield "|".join(cells)


def _state(attempt: Attempt, part: str) -> tuple[str, str]:
    """Say how an attempt, or a step of it, ended, and with which exit code."""
    if attempt.incident is None or part == ".extern":
        return "COMPLETED", "0:0"
    if attempt.incident.fault.is_drained:
        return ("CANCELLED", "0:9") if part else ("NODE_FAIL", "0:0")
    return "FAILED", "1:0"


def _failed_node(attempt: Attempt) -> str:
    incident = attempt.incident
    return incident.node if incident and incident.fault.is_drained else ""


def _events(attempt: Attempt) -> Iterator[tuple[int, str, dict[str, Any]]]:
    if attempt.number > 1:
        spare = {"spare": attempt.spare} if attempt.spare else {}
        yield attempt.ready_ns, "nodes_ready", {"attempt": attempt.number, **spare}
    if attempt.running_ns < attempt.stopped_ns:
        yield attempt.running_ns, "running", {"attempt": attempt.number, "step": attempt.first_step}
    for start, end, step in attempt.saves:
        yield start, "checkpoint_start", {"step": step}
        if end is not None:
            yield end, "checkpoint_end", {"step": step}
    if attempt.incident is None:
        yield attempt.end_ns, "end", {"step": attempt.last_step}
        return
    fault = attempt.incident.fault
    where = {"node": attempt.incident.node} if fault.has_node else {}
    cause = f"Xid {fault.code}" if fault.code else fault.cause
    yield attempt.stopped_ns, "interrupt", {"cause": cause, **where, "step": attempt.last_step}
    yield attempt.end_ns, "detected", where


def node_list(nodes: Iterable[str]) -> str:
    """Write hosts as Slurm does: ``node[001-016,018]``.

    Examples
    --------
    >>> node_list(["node001", "node002", "node004"]), node_list(["node003"])
    ('node[001-002,004]', 'node003')
    """
    digits = sorted(node.removeprefix("node") for node in nodes)
    if len(digits) == 1:
        return f"node{digits[0]}"
    runs = []
    for _, run in groupby(enumerate(digits), lambda pair: int(pair[1]) - pair[0]):
        members = [text for _, text in run]
        runs.append(members[0] if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return f"node[{','.join(runs)}]"


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


def _iso(time_ns: int) -> str:
    return f"{_moment(time_ns // SECOND):%Y-%m-%dT%H:%M:%S}.{time_ns % SECOND // 1000:06d}"


def _local(seconds: int) -> str:
    return f"{_moment(seconds):%Y-%m-%dT%H:%M:%S}"


def _elapsed(seconds: int) -> str:
    """Write a duration as Slurm does, days apart."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock
