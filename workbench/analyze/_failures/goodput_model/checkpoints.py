"""How often to save: the best checkpoint interval, and where a well-known formula fails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy
from numpy.typing import ArrayLike

from workbench._shared.numbers import not_negative, positive, whole_number
from workbench.analyze._failures.goodput_model.goodput import (
    LOST,
    NOBODY,
    PRODUCTIVE,
    WRITING,
    FaultTolerance,
    productive_share,
    shares_of,
)
from workbench.analyze._failures.goodput_model.replay import spare_waits
from workbench.analyze._failures.goodput_model.windows import (
    checked_line,
    line_of,
    mean_of,
    state_minutes,
)
from workbench.errors import WorkbenchError
from workbench.tables import (
    CHECKPOINT_CURVE,
    CHECKPOINT_OPTIMUM,
    EXPECTED_ETTR,
    FAILURE_TIMES,
    SPARES,
)

_DAY_MIN = 1440.0


def checkpoint_curve(
    checkpoint_interval_min: Sequence[float] | ArrayLike,
    *,
    failure_interval_min: float,
    recovery_min: float,
    write_min: float,
) -> pd.DataFrame:
    """Divide the time of a synchronous job by how often it saves.

    Short intervals pay with writing, long ones with work done again.

    Parameters
    ----------
    checkpoint_interval_min
        Useful minutes between checkpoints, one or several.
    failure_interval_min
        Mean time between failures of the job, in minutes; failures are a Poisson process.
    recovery_min
        From the failure until the job trains again, in minutes.
    write_min
        How long writing a checkpoint stops the job, in minutes.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CHECKPOINT_CURVE`: ``checkpoint_interval_min``,
        ``productive_share``, ``lost_work_share``, ``checkpoint_share``, ``recovery_share``,
        ``first_order_ratio``.

    Raises
    ------
    WorkbenchError
        If an interval or the time between failures is not above 0, or another number is negative.

    Notes
    -----
    Exact is ``tau / (M exp(D/M) (exp((tau + w)/M) - 1))``; the first-order formula is
    ``(1 - (D + tau/2)/M) / (1 + w/tau)``.

    References
    ----------
    J. T. Daly, FGCS 22 (2006) 303; first order: arXiv:2410.21680.

    Examples
    --------
    >>> curve = checkpoint_curve(
    ...     [19], failure_interval_min=180, recovery_min=5, write_min=1
    ... )
    >>> round(float(curve["productive_share"].iloc[0]), 4)
    0.8736
    """
    intervals = np.atleast_1d(np.asarray(checkpoint_interval_min, dtype=np.float64))
    rows = []
    for interval in intervals.tolist():
        job = _synchronous(recovery_min, positive("checkpoint_interval_min", interval), write_min)
        states = shares_of(job, failure_interval_min, "poisson")
        # Rounding can leave a share just below 0 or above 1.
        share = {state: min(max(value, 0.0), 1.0) for state, _, value in states}
        # A failure loses half an interval on average.
        loss = (recovery_min + interval / 2) / failure_interval_min
        losses = [share.get(state, 0.0) for state in (LOST, WRITING, "recovery")]
        first_order = (1 - loss) / (1 + write_min / interval)
        rows.append((interval, share[PRODUCTIVE], *losses, first_order))
    return CHECKPOINT_CURVE.of(rows)


def _synchronous(recovery_min: float, interval_min: float, write_min: float) -> FaultTolerance:
    return FaultTolerance(
        recovery_min=recovery_min,
        replicas=1,
        checkpoint_interval_min=interval_min,
        checkpoint_write_min=write_min,
    )


def checkpoint_optimum(
    *, failure_interval_min: float, recovery_min: float, write_min: float
) -> pd.DataFrame:
    """Find the best time between checkpoints by Young, by Daly, and numerically.

    Parameters
    ----------
    failure_interval_min, write_min
        As for :func:`checkpoint_curve`.
    recovery_min
        From the failure until the job trains again, in minutes. It does not move the optimum.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CHECKPOINT_OPTIMUM`: ``method``,
        ``checkpoint_interval_min``, ``productive_share``.

    Raises
    ------
    WorkbenchError
        If writing takes no time (then there is no optimum: save all the time), or a number is
        out of range.

    Notes
    -----
    Young: ``sqrt(2 w M)``. Daly, with ``x = sqrt(w / (2 M))``: ``sqrt(2 w M) (1 + x/3 +
    x**2/9) - w`` for ``w < 2 M``, else ``M``. Numeric: the maximum of the exact share, where
    ``(1 - tau/M) exp((tau + w)/M) = 1``.

    References
    ----------
    J. W. Young, CACM 17 (1974) 530; J. T. Daly, FGCS 22 (2006) 303.

    Examples
    --------
    >>> best = checkpoint_optimum(failure_interval_min=180, recovery_min=5, write_min=1)
    >>> best["checkpoint_interval_min"].round(2).tolist()
    [18.97, 18.31, 18.31]
    """
    mean = positive("failure_interval_min", failure_interval_min)
    write = positive("write_min", write_min)
    not_negative("recovery_min", recovery_min)
    young = np.sqrt(2 * write * mean)
    small = np.sqrt(write / (2 * mean))
    # Daly 2006: his series holds up to w = 2 M; beyond it he takes M.
    daly = young * (1 + small / 3 + small**2 / 9) - write if write < 2 * mean else mean
    # The derivative changes its sign once between 0 and M; very long writes push it against M.
    numeric = mean
    if write < 30 * mean:
        # The condition of the notes in logarithms, where exp((tau + w) / M) cannot overflow.
        numeric = scipy.optimize.brentq(
            lambda work: np.log1p(-work / mean) + (work + write) / mean, 0.0, mean * (1 - 1e-15)
        )
    curve = checkpoint_curve(
        [young, daly, numeric],
        failure_interval_min=mean,
        recovery_min=recovery_min,
        write_min=write,
    )
    table = curve[["checkpoint_interval_min", "productive_share"]].copy()
    table.insert(0, "method", pd.Series(["Young", "Daly", "numeric"]))
    return CHECKPOINT_OPTIMUM.check(table)


def expected_ettr(
    gpu_counts: Sequence[int] | ArrayLike,
    *,
    failures_per_1000_node_days: float,
    restart_min: float,
    checkpoint_interval_min: float,
    write_min: float = 0.0,
    gpus_per_node: int = 8,
) -> pd.DataFrame:
    """Return the effective training time by the first-order formula, and say where it fails.

    The formula is right while few failures strike per restart and checkpoint interval. Beyond
    that it falls below 0, where the exact share is small but positive.

    Parameters
    ----------
    gpu_counts
        GPUs of the job, one or several.
    failures_per_1000_node_days
        Failure rate.
    restart_min
        From the failure until the job trains again, in minutes.
    checkpoint_interval_min
        Useful time between checkpoints, in minutes.
    write_min
        How long writing one stops the job, in minutes.
    gpus_per_node
        GPUs of a node.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EXPECTED_ETTR`: ``gpu_count``, ``failure_interval_min``,
        ``first_order_ratio``, ``exact_share``, ``loss_ratio``, ``verdict``.

    Raises
    ------
    WorkbenchError
        If a number is out of range.

    Notes
    -----
    ``(1 - N r (u0 + dt/2)) / (1 + w/dt)`` with nodes N, rate r, restart u0, interval dt and
    write time w. "doubtful" from a loss ``N r (u0 + dt/2)`` of 0.2, "invalid" from 1.

    References
    ----------
    Meta RSC, arXiv:2410.21680, expected ETTR.

    Examples
    --------
    >>> table = expected_ettr(
    ...     [98_304], failures_per_1000_node_days=6.5, restart_min=10, checkpoint_interval_min=60
    ... )
    >>> table["verdict"].tolist(), table["first_order_ratio"].round(2).tolist()
    (['invalid'], [-1.22])
    """
    rate = positive("failures_per_1000_node_days", failures_per_1000_node_days)
    interval = positive("checkpoint_interval_min", checkpoint_interval_min)
    counts = np.atleast_1d(np.asarray(gpu_counts, dtype=np.float64))
    if not len(counts) or not (np.isfinite(counts) & (counts >= 1)).all():
        msg = f"gpu_counts must be numbers from 1, not {np.asarray(gpu_counts).tolist()}"
        raise WorkbenchError(msg)
    nodes = counts / positive("gpus_per_node", gpus_per_node)
    mean = _DAY_MIN * 1000 / (nodes * rate)
    loss = (not_negative("restart_min", restart_min) + interval / 2) / mean
    job = _synchronous(restart_min, interval, write_min)
    exact = [
        productive_share(job, failure_interval_min=minutes, convention="poisson")
        for minutes in mean.tolist()
    ]
    return EXPECTED_ETTR.of(
        {
            "gpu_count": counts.astype(np.int64),
            "failure_interval_min": mean,
            "first_order_ratio": (1 - loss) / (1 + write_min / interval),
            "exact_share": np.asarray(exact, dtype=np.float64),
            "loss_ratio": loss,
            "verdict": np.select([loss >= 1, loss >= 0.2], ["invalid", "doubtful"], "valid"),
        }
    )


def with_spares(failure_times: pd.DataFrame, *, spares: int) -> pd.DataFrame:
    """Let every failure wait for a spare node, given how many there are.

    Parameters
    ----------
    failure_times
        Table :data:`workbench.tables.FAILURE_TIMES`, with ``repair_min``.
    spares
        Spare nodes at the beginning of every run.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_TIMES` with ``wait_min``: 0 if a spare is there,
        else until the first node comes back from repair.

    Raises
    ------
    WorkbenchError
        If ``spares`` is negative or no whole number, or it is not known how long repairs take.

    Examples
    --------
    >>> from workbench import simulate
    >>> process = simulate.FailureProcess(repair_min=2880)
    >>> drawn = simulate.failure_times(process, horizon_min=1440, seed=1, runs=1)
    >>> bool(with_spares(drawn, spares=0)["wait_min"].gt(0).all())
    True
    """
    return FAILURE_TIMES.check(_waiting(_taking_spares(failure_times), spares))


def _taking_spares(failure_times: pd.DataFrame) -> pd.DataFrame:
    """Check failures and put them in order of run and time."""
    table = FAILURE_TIMES.check(failure_times)
    # A failure before the follow-ons of the same moment, which take over its wait below.
    table = table.sort_values(["run", "time_min", "is_follow_on"], kind="stable")
    taking = table[~table["is_follow_on"]]
    if missing := int(taking["repair_min"].isna().sum()):
        msg = (
            f"{missing:,} of {len(taking):,} failures have no repair_min, so nobody knows when "
            "their nodes are spares again; give FailureProcess(repair_min=...)"
        )
        raise WorkbenchError(msg)
    return table


def _waiting(table: pd.DataFrame, spares: int) -> pd.DataFrame:
    """Let each failure of a table in order of run and time wait for a spare."""
    whole_number("spares", spares, least=0)
    taking = table[~table["is_follow_on"]]
    run, time, repair = (taking[name].to_numpy() for name in ("run", "time_min", "repair_min"))
    waits = spare_waits(run, time, repair, int(spares))
    # A further replica hit by the same failure comes back with the first.
    table = table.assign(wait_min=pd.Series(waits, index=taking.index).reindex(table.index))
    return table.assign(wait_min=table["wait_min"].ffill().fillna(0.0))


def spares(
    failure_times: pd.DataFrame,
    job: FaultTolerance,
    spare_counts: Sequence[int],
    *,
    horizon_min: float,
) -> pd.DataFrame:
    """Return the productive share against the number of spare nodes.

    Parameters
    ----------
    failure_times
        Table :data:`workbench.tables.FAILURE_TIMES`, with ``repair_min``.
    job, horizon_min
        As for :func:`goodput_replay`.
    spare_counts
        Numbers of spare nodes to try.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SPARES`: ``spare_count``, ``productive_share``, ``low_share``
        and ``high_share`` (95 %; missing for one run), ``wait_min``, ``offered_load_ratio``.

    Raises
    ------
    WorkbenchError
        As :func:`with_spares` and :func:`goodput_replay`.

    Notes
    -----
    The offered load is mean repair time over mean time between failures: the nodes that are
    in repair on average. With fewer spares than that the queue for them grows without limit.

    Examples
    --------
    >>> from workbench import simulate
    >>> process = simulate.FailureProcess(repair_min=720)
    >>> drawn = simulate.failure_times(process, horizon_min=7200, seed=1, runs=2)
    >>> table = spares(drawn, FaultTolerance(), [20, 80], horizon_min=7200)
    >>> bool(table["productive_share"].is_monotonic_increasing)
    True
    """
    failure_times = FAILURE_TIMES.check(failure_times).reset_index(drop=True)
    runs = line_of(failure_times, job, horizon_min).run_count
    rows = []
    within = failure_times["time_min"].between(0, horizon_min, inclusive="left")
    counted = failure_times[within & ~failure_times["is_follow_on"]]
    load = float(counted["repair_min"].sum()) / (runs * horizon_min)
    ordered = _taking_spares(failure_times)
    for count in spare_counts:
        waiting = _waiting(ordered, count)
        minutes = state_minutes(checked_line(waiting, job, horizon_min), None)
        shares = mean_of(minutes[PRODUCTIVE, NOBODY] / horizon_min)
        wait = waiting.loc[counted.index, "wait_min"].mean() if len(counted) else 0.0
        rows.append((count, *shares, wait, load))
    return SPARES.of(rows)
