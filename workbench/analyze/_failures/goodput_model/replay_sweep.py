"""The replay of one set of failures while an input of the job is varied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.cluster import on_cluster
from workbench.analyze._failures.goodput_model.goodput import PRODUCTIVE, FaultTolerance
from workbench.analyze._failures.goodput_model.windows import goodput_mean, goodput_replay
from workbench.errors import WorkbenchError
from workbench.tables import GOODPUT_SWEEP

# Recoveries are those of the failures.
_VARIED = (
    "replicas", "stall_min", "rejoin_min", "min_replicas", "global_recovery_min",
    "checkpoint_interval_min", "checkpoint_write_min",
)  # fmt: skip
_Case = tuple[float, FaultTolerance]


def goodput_replay_sweep(
    failure_times: pd.DataFrame,
    job: FaultTolerance,
    parameter: str,
    values: Sequence[float],
    *,
    horizon_min: float,
    client: Any = None,
) -> pd.DataFrame:
    """Replay the same failures while one input of the job is varied.

    Every value meets the same failures, so a difference between two values is not luck of the draw.

    Parameters
    ----------
    failure_times, job, horizon_min
        As for :func:`goodput_replay`.
    parameter
        ``"stall_min"``, ``"rejoin_min"``, ``"checkpoint_interval_min"``,
        ``"checkpoint_write_min"``, ``"replicas"``, ``"min_replicas"`` or
        ``"global_recovery_min"``. Recoveries are read from the failures: draw those again.
    values
        Its values.
    client
        A ``distributed.Client``: each value is a task for one of its workers, and the failures
        travel to each worker once. The table is the same to the last bit.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT_SWEEP`, a row per value: ``parameter``, ``value``,
        ``convention`` ("replay"), ``productive_share`` (mean of the runs), ``low_share`` and
        ``high_share`` (95 %, Student's t over the runs; missing for a single run).

    Raises
    ------
    WorkbenchError
        If the parameter is none of these or a value out of its range; otherwise as
        :func:`goodput_replay`.
    MissingExtraError
        If a client is given and Dask is not installed.

    Examples
    --------
    >>> from workbench import simulate
    >>> drawn = simulate.failure_times(simulate.FailureProcess(), horizon_min=77760, seed=1, runs=4)
    >>> job = FaultTolerance(replicas=12)
    >>> table = goodput_replay_sweep(drawn, job, "stall_min", [0, 3], horizon_min=77760)
    >>> table["productive_share"].round(2).tolist()
    [0.95, 0.82]
    """
    if parameter not in _VARIED:
        msg = f"parameter must be one of {_VARIED}, not {parameter!r}"
        raise WorkbenchError(msg)
    cases = [(value, _changed(job, parameter, value)) for value in values]
    share = partial(_shares, horizon_min=horizon_min)
    done: Iterable[tuple[_Case, tuple[float, ...] | Exception]]
    if client is None:
        done = ((case, share(case, failure_times)) for case in cases)
    else:
        done = on_cluster(client, share, cases, failure_times)
    shares = {value: _answer(value, result) for (value, _), result in done}
    rows = [(parameter, value, "replay", *shares[value]) for value in values]
    return GOODPUT_SWEEP.of(pd.DataFrame(rows, columns=list(GOODPUT_SWEEP.columns)))


def _changed(job: FaultTolerance, parameter: str, value: float) -> FaultTolerance:
    changed: Any = {parameter: value}
    return replace(job, **changed)


def _shares(case: _Case, failure_times: pd.DataFrame, horizon_min: float) -> tuple[float, ...]:
    runs = goodput_replay(failure_times, case[1], horizon_min=horizon_min)
    mean = goodput_mean(runs)
    names = ["gpu_time_share", "low_share", "high_share"]
    return tuple(
        mean.loc[mean["state"] == PRODUCTIVE, names].to_numpy(dtype=np.float64)[0].tolist()
    )


def _answer(value: float, result: tuple[float, ...] | Exception) -> tuple[float, ...]:
    if isinstance(result, Exception):
        msg = f"value {value:g} has no answer: {result}"
        raise WorkbenchError(msg) from result
    return result
