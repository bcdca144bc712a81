"""Goodput of failures that really happened, or were drawn: the same engine for both."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from workbench._numbers import positive
from workbench.analyze._failures.goodput_model.cover import Floats
from workbench.analyze._failures.goodput_model.fault_tolerance import FaultTolerance
from workbench.analyze._failures.goodput_model.goodput import PRODUCTIVE
from workbench.analyze._failures.goodput_model.outages import with_outages
from workbench.analyze._failures.goodput_model.replay import Line, Strikes
from workbench.analyze._failures.goodput_model.replay_states import PHASES, state_minutes
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_TIMES, GOODPUT, GOODPUT_RUNS, GOODPUT_WINDOWS


def goodput_replay(
    failure_times: pd.DataFrame,
    job: FaultTolerance,
    *,
    horizon_min: float,
    slow_times: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Replay failures, from a log or drawn, through the rules of a job.

    Losses are unions of intervals: recoveries that overlap are not counted twice, and a
    failure during a recovery extends it. How long each recovery takes is read from the
    failures, not from ``job``; stalls, replicas, checkpoints and the minimum of live replicas
    are those of ``job``.

    Parameters
    ----------
    failure_times
        Table :data:`workbench.tables.FAILURE_TIMES`, of any number of runs.
    job
        How the job answers a failure. Failures without a replica stop all GPUs; of a
        synchronous job (one replica) all do.
    horizon_min
        Length of every run, in minutes. Failures from there on do not count.
    slow_times
        Table :data:`workbench.tables.SLOW_TIMES`: when stragglers slow the whole job down. The
        slowest of several sets the pace.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT_RUNS`: ``run``, ``failure_count``, ``state``,
        ``scope``, ``gpu_time_share``; the shares of a run sum to 1.

    Raises
    ------
    WorkbenchError
        If there is no run, the horizon is not above 0, or a failure hits a replica that the
        job does not have.

    Notes
    -----
    Runs are numbered from 0 to the largest number of a row; of a run without any failure a row
    beyond the horizon tells, as :func:`workbench.simulate.failure_times` writes it. After every
    failure all replicas stall once more when the hit one returns (``rejoin_min``), even if it
    was out already. Failures of one minute are taken in the order of their replicas (those of
    all first), then of their phases. Checkpoints follow each other in the time that the job
    runs; a failure of one replica loses none of the work, a stop of all loses what came after
    the last checkpoint.

    Examples
    --------
    >>> from workbench import simulate
    >>> drawn = simulate.failure_times(simulate.FailureProcess(), horizon_min=77760, seed=1, runs=4)
    >>> runs = goodput_replay(drawn, FaultTolerance(), horizon_min=77760)
    >>> print(round(runs.loc[runs["state"] == "productive", "gpu_time_share"].mean(), 2))
    0.82
    """
    line = line_of(failure_times, job, horizon_min)
    states = state_minutes(line, slow_times)
    count = line.run_count
    own = failure_times[~failure_times["is_follow_on"]]
    within = own["run"][own["time_min"].between(0, horizon_min, inclusive="left")]
    failures = np.bincount(within, minlength=count)
    rows = [
        pd.DataFrame({"state": state, "scope": scope, "gpu_time_share": minutes / horizon_min})
        for (state, scope), minutes in states.items()
        if state == PRODUCTIVE or minutes.sum() > 0
    ]
    table = pd.concat(rows, ignore_index=True)
    run = np.tile(np.arange(count), len(rows))
    table = table.assign(run=run, failure_count=failures[run]).sort_values("run", kind="stable")
    table["gpu_time_share"] = table["gpu_time_share"].clip(0, 1)
    return GOODPUT_RUNS.check(GOODPUT_RUNS.cast(table.reset_index(drop=True)))


def goodput_mean(runs: pd.DataFrame) -> pd.DataFrame:
    """Average runs, with the interval in which the true mean lies.

    Parameters
    ----------
    runs
        Table :data:`workbench.tables.GOODPUT_RUNS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT`: ``state``, ``scope``, ``gpu_time_share``,
        ``low_share`` and ``high_share`` (95 %, Student's t over the runs; missing for a single
        run), ``convention`` ("replay").

    Raises
    ------
    WorkbenchError
        If there is no run.

    Examples
    --------
    >>> empty = GOODPUT_RUNS.empty()
    >>> goodput_mean(empty)
    Traceback (most recent call last):
    ...
    workbench.errors.WorkbenchError: there is no run to average
    """
    GOODPUT_RUNS.check(runs)
    if runs.empty:
        msg = "there is no run to average"
        raise WorkbenchError(msg)
    shares = runs.pivot_table(
        index="run", columns=["state", "scope"], values="gpu_time_share", sort=False
    ).fillna(0.0)
    means = [mean_of(shares[each].to_numpy()) for each in shares]
    names = ["gpu_time_share", "low_share", "high_share"]
    table = pd.DataFrame(means, index=shares.columns, columns=names).reset_index()
    table["convention"] = "replay"
    return GOODPUT.check(GOODPUT.cast(table))


def goodput_windows(
    failure_times: pd.DataFrame,
    job: FaultTolerance,
    *,
    horizon_min: float,
    window_min: float = 1440.0,
) -> pd.DataFrame:
    """Give the productive share of every window, to see how far single days scatter.

    Checkpoints are not counted: what a failure undoes may lie in an earlier window.

    Parameters
    ----------
    failure_times
        Table :data:`workbench.tables.FAILURE_TIMES`.
    job
        How the job answers a failure.
    horizon_min
        Length of every run, in minutes.
    window_min
        Length of a window, in minutes; a rest at the end of a run is left out.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GOODPUT_WINDOWS`: ``run``, ``start_min``,
        ``productive_share``.

    Raises
    ------
    WorkbenchError
        If no window fits into a run; otherwise as :func:`goodput_replay`.

    Examples
    --------
    >>> from workbench import simulate
    >>> drawn = simulate.failure_times(simulate.FailureProcess(), horizon_min=14400, seed=1, runs=1)
    >>> len(goodput_windows(drawn, FaultTolerance(), horizon_min=14400))
    10
    """
    line = line_of(failure_times, job, horizon_min)
    positive("window_min", window_min)
    count = int(horizon_min // window_min)
    if count < 1:
        msg = f"no window of {window_min:g} min fits into {horizon_min:g} min"
        raise WorkbenchError(msg)
    begin = np.arange(count + 1) * float(window_min)
    edges = (np.arange(line.run_count)[:, None] * line.horizon + begin).ravel()
    worked = line.capacity_before(edges).reshape(line.run_count, count + 1)
    table = pd.DataFrame(
        {
            "run": np.repeat(np.arange(line.run_count, dtype=np.int32), count),
            "start_min": np.tile(begin[:-1], line.run_count),
            "productive_share": np.clip(np.diff(worked, axis=1).ravel() / window_min, 0, 1),
        }
    )
    return GOODPUT_WINDOWS.check(table)


def mean_of(shares: Floats) -> tuple[float, float, float]:
    """Give the mean over runs and its 95 % interval, missing for a single run."""
    mean, count = float(shares.mean()), len(shares)
    if count < 2:
        return mean, np.nan, np.nan
    half = float(stats.t.ppf(0.975, count - 1) * shares.std(ddof=1) / np.sqrt(count))
    return mean, max(mean - half, 0.0), min(mean + half, 1.0)


def line_of(failure_times: pd.DataFrame, job: FaultTolerance, horizon_min: float) -> Line:
    """Check a table of failures and lay it on a line."""
    table = FAILURE_TIMES.check(failure_times)
    positive("horizon_min", horizon_min)
    runs = int(table["run"].max()) + 1 if len(table) else 0
    if runs < 1:
        msg = (
            "there are no failures, so nothing tells how many runs there were; "
            "without a failure everything is productive"
        )
        raise WorkbenchError(msg)
    replica = table["replica"].to_numpy(dtype=np.int64, na_value=-1)
    if job.replicas == 1:
        replica = np.full(len(table), -1)
    elif len(replica) and replica.max() >= job.replicas:
        msg = (
            f"a failure hits replica {replica.max()}, but the job has {job.replicas}, numbered "
            "from 0; draw or map the failures for as many replicas"
        )
        raise WorkbenchError(msg)
    if not np.isfinite(table["time_min"].to_numpy()).all():
        msg = "some failures have no finite time_min; leave them out, and say so"
        raise WorkbenchError(msg)
    # What never ends lasts to the end of the run.
    left = horizon_min - table["time_min"].clip(upper=horizon_min).to_numpy()
    phases = np.minimum(table[list(PHASES.values())].to_numpy(dtype=np.float64), left[:, None])
    strikes = Strikes(
        table["run"].to_numpy(dtype=np.int64), table["time_min"].to_numpy(), replica,
        phases, phases.sum(axis=1),
    )  # fmt: skip
    # Failures at one time have an order of their own, so that the order of rows does not matter.
    ties = (*phases.T[::-1], strikes.replica)
    strikes = strikes.take(np.lexsort((*ties, strikes.time, strikes.run)))
    strikes = strikes.take(np.flatnonzero(strikes.time < horizon_min))
    return Line(with_outages(strikes, job), job, float(horizon_min), runs)
