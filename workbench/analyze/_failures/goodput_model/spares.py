"""How many spare nodes a job needs: below the number in repair, everything waits."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from workbench._numbers import whole_number
from workbench.analyze._failures.goodput_model.fault_tolerance import FaultTolerance
from workbench.analyze._failures.goodput_model.goodput import NOBODY, PRODUCTIVE
from workbench.analyze._failures.goodput_model.outages import spare_waits
from workbench.analyze._failures.goodput_model.replay_states import state_minutes
from workbench.analyze._failures.goodput_model.windows import line_of, mean_of
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_TIMES, SPARES


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
    whole_number("spares", spares, least=0)
    table = FAILURE_TIMES.check(failure_times)
    table = table.sort_values(["run", "time_min", "is_follow_on"], kind="stable")
    taking = table[~table["is_follow_on"]]
    if taking["repair_min"].isna().any():
        missing = int(taking["repair_min"].isna().sum())
        msg = (
            f"{missing:,} of {len(taking):,} failures have no repair_min, so nobody knows when "
            "their nodes are spares again; give FailureProcess(repair_min=...)"
        )
        raise WorkbenchError(msg)
    waits = spare_waits(
        taking["run"].to_numpy(), taking["time_min"].to_numpy(),
        taking["repair_min"].to_numpy(), int(spares),
    )  # fmt: skip
    # A further replica hit by the same failure comes back with the first.
    table = table.assign(wait_min=pd.Series(waits, index=taking.index).reindex(table.index))
    table["wait_min"] = table["wait_min"].ffill().fillna(0.0)
    return FAILURE_TIMES.check(table)


def spares(
    failure_times: pd.DataFrame,
    job: FaultTolerance,
    spare_counts: Sequence[int],
    *,
    horizon_min: float,
) -> pd.DataFrame:
    """Give the productive share against the number of spare nodes.

    Parameters
    ----------
    failure_times
        Table :data:`workbench.tables.FAILURE_TIMES`, with ``repair_min``.
    job
        How the job answers a failure.
    spare_counts
        Numbers of spare nodes to try.
    horizon_min
        Length of every run, in minutes.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SPARES`: ``spare_count``, ``productive_share``,
        ``low_share`` and ``high_share`` (95 %; missing for one run), ``wait_min``,
        ``offered_load_ratio``.

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
    for count in spare_counts:
        waiting = with_spares(failure_times, spares=count)
        minutes = state_minutes(line_of(waiting, job, horizon_min), None)
        shares = mean_of(minutes[PRODUCTIVE, NOBODY] / horizon_min)
        wait = waiting.loc[counted.index, "wait_min"].mean() if len(counted) else 0.0
        rows.append((count, *shares, wait, load))
    table = pd.DataFrame(rows, columns=list(SPARES.columns))
    return SPARES.check(SPARES.cast(table))
