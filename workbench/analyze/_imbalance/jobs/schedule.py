"""One step of a job at a time: what ran when, as recorded, replayed, and if all were equal."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from workbench.analyze._imbalance.jobs.arranged import job
from workbench.analyze._imbalance.jobs.replay import (
    BACKWARD,
    COMPUTES,
    FORWARD,
    Floats,
    Job,
    Operation,
    Times,
)
from workbench.errors import WorkbenchError
from workbench.tables import JOB_MICRO_BATCHES, JOB_SCHEDULE


def job_schedule(
    operations: pd.DataFrame, *, step: int | None = None, dp_rank: int | None = None
) -> pd.DataFrame:
    """Lay out one step of one data-parallel rank: recorded, replayed, and with equal operations.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    step
        The step; None for the one that is slowest beside its ideal.
    dp_rank
        The data-parallel rank; None for the one whose last computation of the step ends
        last in the replay, which the others wait for.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_SCHEDULE`, by version, stage and start.
        ``attrs["replay_error_ratio"]`` is the end of the replayed step over that of the
        recorded one, minus 1.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.job_slowdown`, or if the step or rank is not there.

    Notes
    -----
    Recorded operations include waiting for peers and launch delays. Replayed ones
    (``actual``) do not: a transfer begins when both ends are ready, so that the gaps
    between operations are the waiting.
    """
    it = job(operations)
    at_step = _chosen(it.steps.tolist(), step, "step")
    if at_step is None:
        at_step = int(np.argmax(it.replay(it.own) / it.replay(it.ideal)))
    mine = slice(at_step, at_step + 1)
    versions: dict[str, Times] = {"actual": {}, "ideal": {}}
    ends = it.replay(it.own[:, mine], versions["actual"])
    it.replay(it.ideal[:, mine], versions["ideal"])
    at_rank = _chosen(it.dp_ranks.tolist(), dp_rank, "dp_rank")
    if at_rank is None:
        at_rank = _last(versions["actual"])
    begin = it.start[:, at_step].min()
    versions["recorded"] = {
        key: (it.start[row, mine] - begin, it.end[row, mine] - begin)
        for row, key in enumerate(it.keys)
    }
    labels = {item.key: item.produces for items in it.computes.values() for item in items}
    rows = [
        (version, *_row(key, labels, begin_end, at_rank))
        for version in ("recorded", "actual", "ideal")
        for key, begin_end in versions[version].items()
    ]
    names = ["version", "stage", "operation", "micro_batch", "chunk", "start_ns", "dur_ns"]
    table = pd.DataFrame(rows, columns=names)
    table = table.assign(step=int(it.steps[at_step]), dp_rank=int(it.dp_ranks[at_rank]))
    table["version"] = pd.Categorical(table["version"], ["recorded", "actual", "ideal"])
    table = table.sort_values(["version", "stage", "start_ns"], kind="stable", ignore_index=True)
    table = JOB_SCHEDULE.cast(table)
    table.attrs["replay_error_ratio"] = float(ends[0] / it.actual[at_step] - 1)
    return JOB_SCHEDULE.check(table)


def job_micro_batches(operations: pd.DataFrame, *, stage: int | None = None) -> pd.DataFrame:
    """Give the durations of the forward and the backward pass of every micro-batch.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    stage
        Pipeline stage; None for the first, which has no loss to compute and waits for no
        earlier one.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_MICRO_BATCHES`, by step, rank and micro-batch:
        ``step``, ``dp_rank``, ``stage``, ``micro_batch``, ``forward_ns`` and
        ``backward_ns``. Empty if there is no micro-batch with both.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.job_slowdown`, or if the stage is not there.

    Notes
    -----
    The correlation in :func:`workbench.analyze.job_slowdown` is that of these two columns.
    """
    it = job(operations)
    at = _chosen(it.stages, stage, "stage")
    chosen = it.stages[at or 0]
    both = micro_batches_of(it, chosen)
    if both is None:
        return JOB_MICRO_BATCHES.check(JOB_MICRO_BATCHES.empty())
    batches, forward, backward = both
    number, step, rank = (each.ravel() for each in np.indices(forward.shape))
    table = pd.DataFrame(
        {
            "step": it.steps[step],
            "dp_rank": it.dp_ranks[rank],
            "stage": chosen,
            "micro_batch": np.array(batches)[number],
            "forward_ns": np.rint(forward.ravel()),
            "backward_ns": np.rint(backward.ravel()),
        }
    )
    order = ["step", "dp_rank", "micro_batch"]
    table = table.sort_values(order, kind="stable", ignore_index=True)
    return JOB_MICRO_BATCHES.check(JOB_MICRO_BATCHES.cast(table))


def micro_batches_of(it: Job, stage: int) -> tuple[list[int], Floats, Floats] | None:
    """Return micro-batches of a stage and both durations by micro-batch, step and rank.

    None if no micro-batch has both. The chunks of a stage are added up.
    """
    row = {key: at for at, key in enumerate(it.keys)}
    found: dict[str, dict[int, list[int]]] = {name: defaultdict(list) for name in COMPUTES}
    for item in it.computes.get(stage, []):
        name, _, batch = item.produces
        found[name][batch].append(row[item.key])
    batches = sorted(set(found[FORWARD]) & set(found[BACKWARD]))
    if not batches:
        return None
    forward, backward = (
        np.stack([it.own[found[name][batch]].sum(axis=0) for batch in batches])
        for name in (FORWARD, BACKWARD)
    )
    return batches, forward, backward


def _chosen(values: list[int], wanted: int | None, name: str) -> int | None:
    """Return the position of what is wanted, None if nothing is."""
    if wanted is None:
        return None
    if wanted not in values:
        listed = ", ".join(str(value) for value in values[:12]) + " ..." * (len(values) > 12)
        msg = f"the job has no {name} {wanted!r}; it has {listed}"
        raise WorkbenchError(msg)
    return values.index(wanted)


def _last(times: Times) -> int:
    """Return the position of the rank whose last computation ends last."""
    ends = [end[0] for key, (_, end) in times.items() if key.operation in COMPUTES]
    return int(np.argmax(np.max(ends, axis=0)))


def _row(
    key: Operation,
    labels: dict[Operation, tuple[str, int, int]],
    times: tuple[Floats, Floats],
    rank: int,
) -> tuple[int, str, int | None, int | None, int, int]:
    """Write one operation of one rank as stage, operation, micro-batch, chunk, start, duration."""
    begin, end = (float(each[0, rank]) for each in times)
    _, chunk, batch = labels.get(key, (None, None, None))
    return key.stage, key.operation, batch, chunk, round(begin), round(end - begin)
