"""Logs of a training job whose nodes fail, with the truth about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.errors import WorkbenchError
from workbench.simulate._failures.history import Cluster, History, history
from workbench.simulate._failures.texts import goodput_text, kernel_log, readme_text, sacct_text
from workbench.simulate._folder import new_folder, read_truth, write, write_truth
from workbench.tables import FAILURE_TRUTH

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
        Table :data:`workbench.tables.FAILURE_TRUTH`, one row per incident, as written to
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
    found = history(cluster)
    truth = _frame(list(_rows(found)))
    texts = {
        "synthetic_kern.log": kernel_log(found),
        "synthetic_sacct.txt": sacct_text(found),
        "synthetic_goodput.jsonl": goodput_text(found),
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
        Table :data:`workbench.tables.FAILURE_TRUTH`, one row per incident.

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


def _rows(found: History) -> Iterator[dict[str, Any]]:
    lemons = found.cluster.lemons()
    costs = _costs(found)
    for incident in found.incidents:
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


def _costs(found: History) -> dict[int, dict[str, int]]:
    """Say of each incident that stopped the job what it cost."""
    costs: dict[int, dict[str, int]] = {}
    following = found.attempts[-1]
    resumed = following.running_ns
    for attempt in reversed(found.attempts[:-1]):
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
