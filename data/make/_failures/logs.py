"""Logs of a training job whose nodes fail, with the truth about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from data.make._failures.history import (
    BUSES,
    MINUTE,
    SECOND,
    START_NS,
    Attempt,
    Cluster,
    History,
    harmless,
    history,
)
from data.make._folder import (
    event_lines,
    iso,
    local,
    new_folder,
    read_truth,
    write,
    write_truth,
)
from data.make._truth import FAILURE_TRUTH
from workbench.errors import WorkbenchError

_LONGEST_DAYS, _MOST_NODES = 3_650, 100_000


def failure_logs(
    out: str | Path,
    *,
    seed: int,
    node_count: int = 128,
    days: float = 30,
    failure_interval_min: float = 300,
    lemon_count: int = 2,
) -> pd.DataFrame:
    """Write the logs of a job that trains while nodes fail, and the truth about them.

    One history on one clock is the source of everything. A node of the job fails, the job
    stops; the scheduler notices, replaces the node by a spare where the hardware is at
    fault, and the job goes on from its last checkpoint. The kernel, the scheduler and the job
    each write down what they see of it.

    Parameters
    ----------
    out
        Folder to write into; made if absent, must be empty.
    seed
        Seed of all that is random. The same seed gives the same files.
    node_count
        Nodes of the job, with 8 GPUs each; there is a spare for every 16, at least 2.
    days
        How long the job runs.
    failure_interval_min
        Mean time between failures of job and spares together, in minutes.
    lemon_count
        Nodes that about a quarter of all failures hits, each always on the same GPU.

    Returns
    -------
    pandas.DataFrame
        Table :data:`data.make.FAILURE_TRUTH`, one row per incident, as written to
        ``truth.csv``.

    Raises
    ------
    FileExistsError
        If ``out`` holds files already.
    WorkbenchError
        If a number is out of its range.

    Notes
    -----
    When and where failures strike, and how long detection, allocation and start-up take, is
    drawn by :func:`failure_times`: failures are independent, phases lognormal. Nothing
    strikes a node under repair, or a node of the job while the job waits for another.
    Incidents of one device are 20 min apart. Written are ``synthetic_kern.log`` (rsyslog),
    ``synthetic_sacct.txt``, ``synthetic_goodput.jsonl``, ``truth.csv`` and ``README.md``.

    Examples
    --------
    >>> import tempfile
    >>> truth = failure_logs(tempfile.mkdtemp(), seed=1, node_count=4, days=2)
    >>> bool(truth["start_ns"].is_monotonic_increasing)
    True
    """
    _check(node_count=node_count, days=days, lemon_count=lemon_count)
    folder = new_folder(out)
    cluster = Cluster(seed, node_count, float(days), float(failure_interval_min), lemon_count)
    story = history(cluster)
    truth = _frame(list(_rows(story)))
    texts = {
        "synthetic_kern.log": kernel_log(story),
        "synthetic_sacct.txt": sacct_text(story),
        "synthetic_goodput.jsonl": goodput_text(story),
        "README.md": readme_text(cluster),
    }
    for name, text in texts.items():
        write(folder / name, text)
    write_truth(folder, truth)
    return failure_truth(folder)


def failure_truth(folder: str | Path) -> pd.DataFrame:
    """Read what was injected into logs that :func:`failure_logs` wrote.

    Parameters
    ----------
    folder
        Folder that was given to :func:`failure_logs`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`data.make.FAILURE_TRUTH`, one row per incident.

    Raises
    ------
    LoadError
        If the folder has no ``truth.csv``.

    Examples
    --------
    >>> from workbench import datasets
    >>> truth = failure_truth(datasets.path("failures-demo"))
    >>> truth.loc[truth["is_lemon"], "node"].nunique()
    2
    """
    return read_truth(folder, FAILURE_TRUTH, writer="failure_logs", empty={"other_codes": ""})


def _check(*, node_count: int, days: float, lemon_count: int) -> None:
    if not 1 <= node_count <= _MOST_NODES or not 0 < days <= _LONGEST_DAYS:
        msg = (
            f"cannot simulate {node_count:,} nodes for {days:g} days; "
            f"choose 1 to {_MOST_NODES:,} nodes and up to {_LONGEST_DAYS:,} days"
        )
        raise WorkbenchError(msg)
    if not 0 <= lemon_count <= node_count:
        msg = f"lemon_count={lemon_count} must be 0 to node_count={node_count}"
        raise WorkbenchError(msg)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    # Whole nanoseconds would not survive as floats beside missing ones.
    columns = {name: [row.get(name) for row in rows] for name in FAILURE_TRUTH.columns}
    return FAILURE_TRUTH.cast(pd.DataFrame(columns, dtype=object))


def _rows(story: History) -> Iterator[dict[str, Any]]:
    lemons = story.cluster.lemons()
    costs = _costs(story)
    for incident in story.incidents:
        fault = incident.fault
        yield {
            "start_ns": incident.at_ns,
            "end_ns": incident.end_ns,
            "node": incident.node if fault.has_node else None,
            "device": incident.device if fault.code else None,
            "code": fault.code,
            "other_codes": fault.other_codes,
            "cause": fault.cause,
            "line_count": sum(line.is_report for line in incident.lines),
            "is_fatal": fault.is_fatal,
            "is_job_stopped": id(incident) in costs,
            "is_lemon": fault.has_node and incident.node in lemons,
            **costs.get(id(incident), {}),
        }


def _costs(story: History) -> dict[int, dict[str, int]]:
    costs: dict[int, dict[str, int]] = {}
    following = story.attempts[-1]
    resumed = following.running_ns
    for attempt in reversed(story.attempts[:-1]):
        # An attempt that was stopped while it started up never trained.
        if following.running_ns < following.stopped_ns:
            resumed = following.running_ns
        costs[id(attempt.incident)] = {
            "attempt": attempt.number,
            "detected_ns": attempt.end_ns,
            "ready_ns": following.ready_ns,
            "resumed_ns": resumed,
            "lost_step_count": attempt.last_step - attempt.saved_step,
        }
        following = attempt
    return costs


# What the machines, the scheduler and the job of a simulated history have written down.

JOB_ID = 4_711_000
_NOTE = "SYNTHETIC, made by data.make.failure_logs"
_HARMLESS_PER_NODE_DAY = 0.06
_SACCT = (
    "JobID|JobName|Partition|Account|AllocTRES|State|ExitCode|Submit|Start|End|Elapsed|"
    "NNodes|NodeList|FailedNode|Comment"
)


def kernel_log(story: History) -> str:
    first = (START_NS - 10 * MINUTE, story.cluster.nodes[0], f"workbench: {_NOTE}")
    lines = sorted([*_bursts(story), *_boots(story), *_noise(story)])
    shown = [first, *(line for line in lines if line[0] < story.attempts[-1].end_ns)]
    return "".join(f"{iso(at)}+00:00 {node} kernel: {text}\n" for at, node, text in shown)


def sacct_text(story: History) -> str:
    """Write the job's accounting as ``sacct --parsable2 --duplicates`` does, times in UTC."""
    rows = [row for attempt in story.attempts for row in _accounting(attempt)]
    return "\n".join([_SACCT, *rows]) + "\n"


def goodput_text(story: History) -> str:
    """Write what the job did: one JSON object per event, in order of time."""
    about = {"job_id": str(JOB_ID), "gpus_per_node": len(BUSES)}
    entries = [(START_NS, "start", {**about, "nodes": list(story.attempts[0].nodes)})]
    entries += [entry for attempt in story.attempts for entry in _events(attempt)]
    return event_lines(entries)


def readme_text(cluster: Cluster) -> str:
    """Return the README that states in the folder itself that nothing in it was measured."""
    return f"""# Synthetic logs of a job whose nodes fail

**Nothing here was measured.** `data.make.failure_logs` made every file from seed \
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


def _bursts(story: History) -> Iterator[tuple[int, str, str]]:
    for incident in story.incidents:
        for line in incident.lines:
            yield incident.at_ns + line.after_ns, incident.node, line.text


def _boots(story: History) -> Iterator[tuple[int, str, str]]:
    version = "Linux version 5.15.0-112-generic #122-Ubuntu SMP"
    driver = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  560.35.03"
    for node, _, until in story.repairs:
        yield until - 4 * MINUTE, node, version
        yield until - 3 * MINUTE, node, driver


def _noise(story: History) -> Iterator[tuple[int, str, str]]:
    cluster = story.cluster
    random, span = cluster.random(6), cluster.end_ns - START_NS
    for _ in range(round(_HARMLESS_PER_NODE_DAY * len(cluster.nodes) * cluster.days)):
        at = START_NS + int(random.random() * span / 1000) * 1000
        node = cluster.nodes[int(random.random() * len(cluster.nodes))]
        lines = harmless(random)
        is_off = any(node == n and a <= at + MINUTE and at <= b for n, a, b in story.repairs)
        for line in () if is_off else lines:
            yield at + line.after_ns, node, line.text


def _accounting(attempt: Attempt) -> Iterator[str]:
    submit, start = attempt.submit_ns // SECOND, attempt.ready_ns // SECOND
    end = attempt.end_ns // SECOND
    times = [*map(local, (submit, start, end)), _elapsed(end - start)]
    steps = {"": "synthetic-failures", ".batch": "batch", ".extern": "extern", ".0": "python3"}
    for step, name in steps.items():
        hosts = attempt.nodes[:1] if step == ".batch" else attempt.nodes
        gpus = len(BUSES) * len(hosts)
        cells = [f"{JOB_ID}{step}", name, "" if step else "train", "research"]
        cells += [f"cpu={16 * gpus},gres/gpu={gpus},node={len(hosts)}", *_state(attempt, step)]
        cells += [*times, str(len(hosts)), node_list(hosts)]
        cells += ["", ""] if step else [_failed_node(attempt), f"{_NOTE}; times in UTC"]
        yield "|".join(cells)


def _state(attempt: Attempt, step: str) -> tuple[str, str]:
    if attempt.incident is None or step == ".extern":
        return "COMPLETED", "0:0"
    if attempt.incident.fault.is_drained:
        return ("CANCELLED", "0:9") if step else ("NODE_FAIL", "0:0")
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
    # Consecutive numbers differ from their position by the same amount.
    for _, run in groupby(enumerate(digits), lambda pair: int(pair[1]) - pair[0]):
        members = [text for _, text in run]
        runs.append(members[0] if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return f"node[{','.join(runs)}]"


def _elapsed(seconds: int) -> str:
    days, remainder = divmod(seconds, 86_400)
    clock = f"{remainder // 3600:02d}:{remainder // 60 % 60:02d}:{remainder % 60:02d}"
    return f"{days}-{clock}" if days else clock
