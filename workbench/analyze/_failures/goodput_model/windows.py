"""Goodput of failures that really happened, or were drawn: the same engine for both."""

from __future__ import annotations

import numpy as np
import pandas as pd
import scipy

from workbench._shared.numbers import positive
from workbench.analyze._failures.goodput_model.goodput import (
    DEGRADED,
    EVERYBODY,
    HIT,
    LOST,
    NOBODY,
    PRODUCTIVE,
    REJOIN,
    STRAGGLER,
    WRITING,
    FaultTolerance,
)
from workbench.analyze._failures.goodput_model.replay import (
    Covered,
    Floats,
    Line,
    Strikes,
    limits_of,
    with_outages,
)
from workbench.errors import WorkbenchError
from workbench.tables import (
    FAILURE_TIMES,
    GOODPUT,
    GOODPUT_RUNS,
    GOODPUT_WINDOWS,
    RESTART_PHASES,
    SLOW_TIMES,
)


def goodput_replay(
    failure_times: pd.DataFrame,
    job: FaultTolerance,
    *,
    horizon_min: float,
    slow_times: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Replay failures, from a log or drawn, through the rules of a job.

    Losses are unions of intervals: recoveries that overlap are not counted twice, and a failure
    during a recovery extends it. How long each recovery takes is read from the failures, not from
    ``job``; stalls, replicas, checkpoints and the minimum of live replicas are those of ``job``.

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
    failure all replicas stall once more when the failed one returns (``rejoin_min``), even if it
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
    return GOODPUT_RUNS.of(table.reset_index(drop=True))


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
    # A state that a run never was in has no row there.
    shares = runs.pivot_table(
        index="run", columns=["state", "scope"], values="gpu_time_share", sort=False
    ).fillna(0.0)
    means = [mean_of(shares[state].to_numpy()) for state in shares]
    names = ["gpu_time_share", "low_share", "high_share"]
    table = pd.DataFrame(means, index=shares.columns, columns=names).reset_index()
    table["convention"] = "replay"
    return GOODPUT.of(table)


def goodput_windows(
    failure_times: pd.DataFrame,
    job: FaultTolerance,
    *,
    horizon_min: float,
    window_min: float = 1440.0,
) -> pd.DataFrame:
    """Return the productive share of every window, to see how far single days scatter.

    Checkpoints are not counted: what a failure undoes may lie in an earlier window.

    Parameters
    ----------
    failure_times, job, horizon_min
        As for :func:`goodput_replay`.
    window_min
        Length of a window, in minutes; a rest at the end of a run is dropped.

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
    # What remains of the horizon is not a whole window, and is left out.
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
    """Return the mean over runs and its 95 % interval, missing for a single run."""
    mean, count = float(shares.mean()), len(shares)
    if count < 2:
        return mean, np.nan, np.nan
    # Runs are independent, so their means spread as Student's t.
    half = float(scipy.stats.t.ppf(0.975, count - 1) * shares.std(ddof=1) / np.sqrt(count))
    return mean, max(mean - half, 0.0), min(mean + half, 1.0)


def line_of(failure_times: pd.DataFrame, job: FaultTolerance, horizon_min: float) -> Line:
    return checked_line(FAILURE_TIMES.check(failure_times), job, horizon_min)


def checked_line(table: pd.DataFrame, job: FaultTolerance, horizon_min: float) -> Line:
    """Do as :func:`line_of` for a table that was checked."""
    positive("horizon_min", horizon_min)
    runs = int(table["run"].max()) + 1 if len(table) else 0
    if runs < 1:
        msg = (
            "there are no failures, so it is unknown how many runs there were; "
            "without a failure everything is productive"
        )
        raise WorkbenchError(msg)
    replica = table["replica"].to_numpy(dtype=np.int64, na_value=-1)
    if job.replicas == 1:
        # A job of one replica stops as a whole, whichever replica a failure names.
        replica = np.full(len(table), -1)
    elif len(replica) and replica.max() >= job.replicas:
        msg = (
            f"a failure hits replica {replica.max()}, but the job has {job.replicas}, numbered "
            "from 0; draw or map the failures for as many replicas"
        )
        raise WorkbenchError(msg)
    if not np.isfinite(table["time_min"].to_numpy()).all():
        msg = "some failures have no finite time_min; remove them first, and say so"
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


# The states of a replay: which of them holds when, summed by run.

# States, and the columns of the table of failures that say how long each of them lasts.
PHASES = {"waiting for a spare": "wait_min", **RESTART_PHASES}
_MOST_CHECKPOINTS = 20_000_000


def state_minutes(line: Line, slow: pd.DataFrame | None) -> dict[tuple[str, str], Floats]:
    """Return the minutes of every state and scope, one value per run; they sum to the horizon."""
    job, edges = line.job, line.edges
    states: dict[tuple[str, str], Floats] = {}

    def add(name: str, minutes: Floats, scope: str = EVERYBODY) -> None:
        # Stalls may be called like a phase of the recovery, or like lost work.
        states[name, scope] = states.get((name, scope), 0.0) + minutes

    outages = line.phase_times(line.outages, limits_of(line.strikes.phases), None)
    for name, minutes in zip(PHASES, outages, strict=True):
        add(name, minutes)
    stall_ages = np.concatenate(([0.0], np.cumsum(list(job.stall_phases.values()))))
    ages = np.broadcast_to(stall_ages, (len(line.strikes), len(stall_ages)))
    stalls = line.phase_times(line.stalls, ages, Covered(line.outages))
    for name, minutes in zip(job.stall_phases, stalls, strict=True):
        add(name, minutes)
    running = np.diff(line.stopped.free_before(edges))
    before_rejoin = np.diff(Covered(line.outage_or_stall).free_before(edges))
    add(REJOIN, np.maximum(before_rejoin - running, 0.0))
    down = line.down
    out = line.stopped.free_before(down.end) - line.stopped.free_before(down.start)
    degraded = line.per_run(down.owner, out) / job.replicas
    add(DEGRADED, degraded, HIT)
    worked = np.maximum(running - degraded, 0.0)
    written, lost = _checkpoints(line)
    slowed = _slowed(line, slow) * (worked - written - lost) / np.maximum(worked, 1e-300)
    for name, minutes in ((WRITING, written), (LOST, lost), (STRAGGLER, slowed)):
        add(name, minutes)
    return {(PRODUCTIVE, NOBODY): worked - written - lost - slowed, **states}


def _checkpoints(line: Line) -> tuple[Floats, Floats]:
    """Return the minutes of writing checkpoints, and of work that a stop of all undid, by run."""
    work, write = line.job.checkpoint_interval_min, line.job.checkpoint_write_min
    if work is None:
        return np.zeros(line.run_count), np.zeros(line.run_count)
    run, begin, end, is_last = _stretches(line)
    first, last = line.stopped.free_before(begin), line.stopped.free_before(end)
    cycle = work + write
    # A segment of whole cycles must not lose one to rounding.
    cycles = np.floor((last - first) / cycle + 1e-12)
    if cycles.sum() > _MOST_CHECKPOINTS:
        msg = (
            f"checkpoint_interval_min={work:g} means {cycles.sum():,.0f} checkpoints; "
            f"replay at most {_MOST_CHECKPOINTS:,}: fewer runs, or a longer interval"
        )
        raise WorkbenchError(msg)
    remainder = np.maximum(last - first - cycles * cycle, 0.0)
    undone_from = first + cycles * cycle
    undone_to = undone_from + np.minimum(remainder, work)
    if not len(line.down.start):
        written = cycles * write + np.maximum(remainder - work, 0.0)
        undone = undone_to - undone_from
    else:
        number = np.repeat(np.arange(len(cycles)), cycles.astype(np.int64))
        nth = np.arange(len(number)) - np.repeat(
            np.cumsum(cycles) - cycles, cycles.astype(np.int64)
        )
        saved = first[number] + nth * cycle + work
        weights = _worked(line, saved, saved + write)
        written = np.bincount(number, weights=weights, minlength=len(cycles)).astype(np.float64)
        written += _worked(line, undone_to, undone_to + np.maximum(remainder - work, 0.0))
        undone = _worked(line, undone_from, undone_to)
    # At the end of the run nothing is undone by a failure.
    undone = np.where(is_last, 0.0, undone)
    count = line.run_count
    return (
        np.bincount(run, weights=written, minlength=count),
        np.bincount(run, weights=undone, minlength=count),
    )


def _worked(line: Line, first: Floats, last: Floats) -> Floats:
    """Return the capacity between two readings of the clock that stands still with the job."""
    points = line.stopped.point_of(np.concatenate([first, last]))
    before, after = np.split(line.capacity_before(points), 2)
    worked: Floats = after - before
    return worked


def _stretches(line: Line) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the times between stops of all: run, begin, end, and whether the run ends there."""
    edges, outages = line.edges, line.outages
    count = line.run_count
    strikes = line.strikes
    # A restart that takes no time still undoes work.
    at_once = np.flatnonzero((strikes.replica < 0) & (strikes.down <= 0) & (strikes.time >= 0))
    start = np.concatenate([edges[:-1], outages.start, line.origin[at_once]])
    end = np.concatenate([edges[:-1], outages.end, line.origin[at_once]])
    run = np.concatenate([np.arange(count), strikes.run[outages.owner], strikes.run[at_once]])
    order = np.lexsort((np.arange(len(start)), start, run))
    start, end, run = start[order], end[order], run[order]
    following = np.append(start[1:], edges[-1])
    is_last = np.append(run[1:] != run[:-1], True)
    following = np.where(is_last, edges[run + 1], following)
    kept = following > end
    return run[kept], end[kept], following[kept], is_last[kept]


def _slowed(line: Line, slow: pd.DataFrame | None) -> Floats:
    if slow is None or SLOW_TIMES.check(slow).empty:
        return np.zeros(line.run_count)
    if slow["run"].max() >= line.run_count:
        msg = f"slow_times has run {slow['run'].max()}, but failures are of {line.run_count} runs"
        raise WorkbenchError(msg)
    begin = line.edges[slow["run"].to_numpy(dtype=np.int64)]
    start = begin + np.clip(slow["start_min"].to_numpy(), 0, line.horizon)
    end = begin + np.clip((slow["start_min"] + slow["dur_min"]).to_numpy(), 0, line.horizon)
    cuts = np.unique(np.concatenate([line.edges, start, end]))
    first, last = np.searchsorted(cuts, start), np.searchsorted(cuts, end)
    speed = slow["speed_ratio"].to_numpy()
    pace = np.ones(len(cuts) - 1)
    # The slowest of several sets the pace: it is written last.
    for row in np.argsort(-speed).tolist():
        pace[first[row] : last[row]] = speed[row]
    lost = np.diff(line.capacity_before(cuts)) * (1 - pace)
    run = np.searchsorted(line.edges, cuts[:-1], side="right") - 1
    return np.bincount(run, weights=lost, minlength=line.run_count)
