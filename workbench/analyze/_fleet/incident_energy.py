"""Energy cost of each interruption of a job: lost steps and the restart."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import Flags, not_negative
from workbench.analyze._lib.energy_curves import SECOND, EnergyCurves, Ints
from workbench.errors import WorkbenchError
from workbench.tables import (
    ENERGY_WASTE,
    FAILURES,
    INCIDENT_ENERGY,
    LOGGED_SPANS,
    LOGGED_STEPS,
    WASTE_STATES,
)

NOT_TOLD = "not told"
_GAP_PERIODS = 3.0
_LEAST_COVERED_SHARE = 0.95
_MOST_ALSO = 4


def incident_energy(
    power: pd.DataFrame,
    steps: pd.DataFrame,
    spans: pd.DataFrame | None = None,
    *,
    failures: pd.DataFrame | None = None,
    before_s: float = 60.0,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Attribute a cause and an energy cost to every interruption of a job.

    An interruption costs what the steps drew that had to be done again, and what everything drew
    until the next step: nodes that wait draw idle power. The job log tells when it was interrupted,
    the failure log why: the first fatal failure from shortly before the interruption until the next
    step leads, others of that time are listed with it. All attempts are taken as runs of one job.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope, of all nodes that were there for the
        job, spares included.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`; its restarts, else the time between the last
        step of an attempt and the first of the next.
    failures
        Table :data:`workbench.tables.FAILURES`; those with a wall time count.
    before_s
        How long before an interruption its failure may have been reported, in s.
    clock_offset_s
        How far the clock of the meter is ahead of that of the logs, in s.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INCIDENT_ENERGY`. Energies are missing where readings cover
        less than 95 % of the time; fatal failures that interrupted nothing follow as rows without
        a cost. ``attrs["run_j"]`` is what ``energy_share`` is a share of: the run from its start
        to its end, not all that was metered.

    Raises
    ------
    WorkbenchError
        If a GPU and its node are both in ``power``.

    Notes
    -----
    ``energy = E(lost steps) + E(last step to interruption) + E(interruption to next step)``,
    summed over all entities, by the trapezoid; readings further apart than 3 periods leave a gap.

    Examples
    --------
    >>> from workbench.tables import POWER
    >>> incident_energy(POWER.empty(), LOGGED_STEPS.empty()).empty
    True
    """
    LOGGED_STEPS.check(steps)
    logged = LOGGED_SPANS.empty() if spans is None else LOGGED_SPANS.check(spans)
    fatal = _dated(failures)
    curves = EnergyCurves(power, longest_gap_periods=_GAP_PERIODS, clock_offset_s=clock_offset_s)
    window = run_window(steps, logged) or (0, 0)
    run = curves.between([window[0]], [window[1]])
    restarts = restarts_of(steps, logged)
    near = round(not_negative("before_s", before_s) * SECOND)
    costs = _costs(curves, steps, restarts)
    causes, used = _causes(restarts, fatal, near)
    table = pd.concat([costs, causes], axis=1).reindex(columns=list(INCIDENT_ENERGY.columns))
    run_j = float(run.energy_j[0])
    if run_j > 0:
        table["energy_share"] = (table["energy_j"] / run_j).clip(upper=1.0)
    harmless = _others(fatal[~fatal.index.isin(used)])
    frames = [frame for frame in (table, harmless) if len(frame)]
    if not frames:
        table = INCIDENT_ENERGY.empty()
    else:
        rows = [row for frame in frames for row in frame.astype(object).to_dict("records")]
        mixed = pd.DataFrame(rows).astype(object)
        # None is what every dtype of a table takes for missing.
        table = INCIDENT_ENERGY.cast(mixed.where(mixed.notna(), None))
    table.attrs["run_j"] = run_j
    return INCIDENT_ENERGY.check(table)


def _dated(failures: pd.DataFrame | None) -> pd.DataFrame:
    """Keep the fatal failures that have a wall time, in order of it."""
    checked = FAILURES.empty() if failures is None else FAILURES.check(failures)
    kept = checked[(checked["clock"] == "epoch") & checked["start_ns"].notna()]
    kept = kept[kept["severity"] == "fatal"].astype({"start_ns": "int64"})
    return kept.sort_values("start_ns", kind="stable").reset_index(drop=True)


def _costs(curves: EnergyCurves, steps: pd.DataFrame, restarts: pd.DataFrame) -> pd.DataFrame:
    """Add lost steps, times and energies to each restart."""
    lost = steps[lost_steps(steps)]
    starts = restarts["start_ns"].to_numpy(dtype=np.int64)
    ends = restarts["end_ns"].to_numpy(dtype=np.int64)
    # A lost step belongs to the first restart after it.
    owner = np.searchsorted(starts, lost["start_ns"].to_numpy(), side="right")
    of_step = curves.between(lost["start_ns"].to_numpy(), lost["end_ns"].to_numpy())
    cut_from = last_ends(steps, restarts)
    of_cut, of_restart = curves.between(cut_from, starts), curves.between(starts, ends)
    rows = []
    for number in range(len(restarts)):
        is_lost = owner == number
        step_s = (lost["end_ns"] - lost["start_ns"]).to_numpy()[is_lost] / SECOND
        cut_s, restart_s = (
            float(span) / SECOND
            for span in (starts[number] - cut_from[number], ends[number] - starts[number])
        )
        covered = float((of_step.covered_share[is_lost] * step_s).sum())
        covered += of_cut.covered_share[number] * cut_s
        covered += of_restart.covered_share[number] * restart_s
        work_s = float(step_s.sum()) + cut_s
        share = covered / (work_s + restart_s) if work_s + restart_s > 0 else 0.0
        enough = 1.0 if share >= _LEAST_COVERED_SHARE else np.nan
        work_j = (of_step.energy_j[is_lost].sum() + of_cut.energy_j[number]) * enough
        restart_j = of_restart.energy_j[number] * enough
        rows.append(
            {
                "start_ns": starts[number],
                "end_ns": ends[number],
                "attempt": restarts["attempt"].iloc[number],
                "lost_step_count": int(is_lost.sum()),
                "lost_work_s": work_s,
                "restart_s": restart_s,
                "lost_work_j": work_j,
                "restart_j": restart_j,
                "energy_j": work_j + restart_j,
                "covered_share": min(share, 1.0),
            }
        )
    return pd.DataFrame(rows)


def _causes(
    restarts: pd.DataFrame, fatal: pd.DataFrame, near: int
) -> tuple[pd.DataFrame, list[object]]:
    """Match each restart to the failure that fits it best; return the failures used, too."""
    rows: list[dict[str, object]] = []
    used: list[object] = []
    for start, end in zip(restarts["start_ns"], restarts["end_ns"], strict=True):
        fits = fatal[fatal["start_ns"].between(start - near, end) & ~fatal.index.isin(used)]
        used += fits.index.tolist()
        if fits.empty:
            rows.append({"cause": NOT_TOLD, "also": ""})
            continue
        first = fits.iloc[0]
        # Several logs may report one failure, and not all of them name the host.
        hosts = fits["node"].dropna()
        texts = [text for text in _words(fits.iloc[1:]) if text != _words(fits.iloc[:1])[0]]
        rows.append(
            {
                "node": hosts.iloc[0] if len(hosts) else None,
                "cause": first["cause"],
                "failure_lag_s": (first["start_ns"] - start) / SECOND,
                "also": "; ".join(texts[:_MOST_ALSO])
                + (f"; {len(texts) - _MOST_ALSO} others" if len(texts) > _MOST_ALSO else ""),
            }
        )
    return pd.DataFrame(rows), used


def _words(failures: pd.DataFrame) -> list[str]:
    """Return for some failures what they are, each once."""
    texts = [
        row["cause"] if pd.isna(row["node"]) else f"{row['cause']} on {row['node']}"
        for row in failures.to_dict("records")
    ]
    return list(dict.fromkeys(texts))


def _others(fatal: pd.DataFrame) -> pd.DataFrame:
    rows = fatal.reindex(columns=list(INCIDENT_ENERGY.columns))
    return rows.assign(cause=fatal["cause"], also="no interruption in the job log", end_ns=None)


def energy_waste(
    power: pd.DataFrame,
    steps: pd.DataFrame,
    spans: pd.DataFrame | None = None,
    *,
    window_ns: tuple[int, int] | None = None,
    longest_gap_periods: float = 3.0,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Take the energy of a run apart by what the job did meanwhile.

    A step that a later attempt had to repeat is lost, whatever it drew. Every moment of the run
    belongs to one state: to a step if there is one, else to what the log names, else to nothing it
    told; so the energies add up to that of the whole run, and what nobody told is a row of its own.
    All attempts are taken as runs of one job; of a log with several jobs pass the steps of one.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`; without it, what lies between attempts is a
        restart and all else outside of steps is not told.
    window_ns
        Start and end of what is taken apart, ns since the Unix epoch; the run if None.
    longest_gap_periods
        Readings of an entity further apart than this many of its median periods leave a gap.
    clock_offset_s
        How far the clock of the meter is ahead of that of the job log, in s.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ENERGY_WASTE`, states without time dropped; empty if the log
        reports no step and no run. Energies are of what readings cover; ``covered_share`` says
        how much of each state that is.

    Raises
    ------
    WorkbenchError
        If the window is empty, or a GPU and its node are both in ``power``.

    Notes
    -----
    Lost are the steps of an attempt from the first step number on that a later attempt has; the
    time from its last step to the interruption is an unfinished step. Where several states
    hold, the first of the table's order counts. Between steps are pauses inside an attempt that
    are shorter than a median step.

    Examples
    --------
    >>> power = pd.DataFrame({"time_ns": [0, 10**9, 2 * 10**9], "power_w": [100.0, 100.0, 300.0]})
    >>> power["entity"] = pd.Categorical(["node1"] * 3)
    >>> step = {"step": [0], "attempt": [1], "start_ns": [0], "end_ns": [10**9]}
    >>> steps = pd.DataFrame(step | {"token_count": [1], "sample_count": [1]})
    >>> steps = steps.assign(source="log", line=1).astype({"attempt": "int32"})
    >>> steps = steps.astype({"token_count": "Int64", "sample_count": "Int64"})
    >>> table = energy_waste(power, steps, window_ns=(0, 2 * 10**9))
    >>> print(table[["state", "energy_j"]].to_string(index=False))
           state  energy_j
    useful steps     100.0
        not told     200.0
    """
    LOGGED_STEPS.check(steps)
    logged = LOGGED_SPANS.empty() if spans is None else LOGGED_SPANS.check(spans)
    curves = EnergyCurves(
        power, longest_gap_periods=longest_gap_periods, clock_offset_s=clock_offset_s
    )
    window = window_ns or run_window(steps, logged)
    if window is None:
        return ENERGY_WASTE.empty()
    edges, state = run_states(steps, logged, window)
    drawn = curves.between(edges[:-1], edges[1:])
    length = np.diff(edges) / SECOND
    total_j = float(drawn.energy_j.sum())
    lost = int(lost_steps(steps).sum())
    count = {"useful steps": len(steps) - lost, "lost steps": lost}
    rows = []
    for name in WASTE_STATES:
        is_state = state == WASTE_STATES.index(name)
        seconds, energy = float(length[is_state].sum()), float(drawn.energy_j[is_state].sum())
        if seconds == 0:
            continue
        covered = float((drawn.covered_share[is_state] * length[is_state]).sum())
        watts = (
            np.nan_to_num(drawn.mean_w[is_state]) * drawn.covered_share[is_state] * length[is_state]
        )
        rows.append(
            {
                "state": name,
                "time_s": seconds,
                "time_share": seconds / length.sum(),
                "step_count": count.get(name, 0),
                "energy_j": energy,
                "energy_share": min(energy / total_j, 1.0) if total_j > 0 else np.nan,
                "mean_w": watts.sum() / covered if covered > 0 else np.nan,
                "covered_share": min(covered / seconds, 1.0),
            }
        )
    return ENERGY_WASTE.of(rows)


_NAMED = ("checkpoint", "evaluation", "restart", "initialisation")


def run_window(steps: pd.DataFrame, spans: pd.DataFrame) -> tuple[int, int] | None:
    """Return start and end of the run, as its spans and steps tell; None if there are none."""
    runs = spans[(spans["kind"] == "run") & spans["end_ns"].notna()]
    bounds = [(rows["start_ns"], rows["end_ns"]) for rows in (runs, steps) if len(rows)]
    if not bounds:
        return None
    starts = [int(start.min()) for start, _ in bounds]
    ends = [int(end.max()) for _, end in bounds]
    return min(starts), max(ends)


def lost_steps(steps: pd.DataFrame) -> Flags:
    """Return for each step whether a later attempt has it again, or one before it."""
    attempts = steps.groupby("attempt")["step"].min().sort_index()
    # The lowest step number from which any later attempt began.
    back_to = attempts[::-1].cummin()[::-1].shift(-1)
    limit = steps["attempt"].map(back_to).to_numpy(dtype=np.float64)
    number = steps["step"].to_numpy(dtype=np.float64)
    lost: Flags = np.nan_to_num(limit, nan=np.inf) <= number
    return lost


def restarts_of(steps: pd.DataFrame, spans: pd.DataFrame) -> pd.DataFrame:
    """Return the restarts: as the log names them, else from one attempt's last step to the next.

    Columns ``start_ns``, ``end_ns`` and ``attempt``, the one that ended.
    """
    restarts = spans[(spans["kind"] == "restart") & spans["end_ns"].notna()]
    order = steps.groupby("attempt").agg(first=("start_ns", "min"), last=("end_ns", "max"))
    order = order.sort_values("first")
    if len(restarts):
        rows = restarts[["start_ns", "end_ns"]].astype("int64").sort_values("start_ns")
        began = order["first"].to_numpy()
        # The attempt that had begun before.
        before = np.searchsorted(began, rows["start_ns"].to_numpy(), side="right") - 1
        numbers = order.index.to_numpy(dtype=np.float64)
        attempts = (
            np.where(before >= 0, numbers[np.maximum(before, 0)], np.nan) if len(order) else 1
        )
        return rows.assign(attempt=attempts).reset_index(drop=True)
    pairs = zip(order["last"].iloc[:-1], order["first"].iloc[1:], order.index[:-1], strict=True)
    rows = pd.DataFrame(list(pairs), columns=["start_ns", "end_ns", "attempt"])
    return rows[rows["end_ns"] > rows["start_ns"]].reset_index(drop=True)


def run_states(
    steps: pd.DataFrame, spans: pd.DataFrame, window_ns: tuple[int, int]
) -> tuple[Ints, NDArray[np.int64]]:
    """Cut a window where the state changes.

    Returns
    -------
    tuple of numpy.ndarray
        Edges [ns], and of each segment between two of them the position of its state in
        ``WASTE_STATES``.
    """
    first, last = window_ns
    if last <= first:
        msg = f"the window ends at {last} ns, which is not after its start at {first} ns"
        raise WorkbenchError(msg)
    intervals = _parts(steps, spans)
    every = np.concatenate(
        [np.array([first, last], dtype=np.int64), *map(np.concatenate, intervals)]
    )
    edges = np.unique(np.clip(every, first, last))
    state = np.full(len(edges) - 1, WASTE_STATES.index("not told"), dtype=np.int64)
    for number in range(len(intervals) - 1, -1, -1):  # the first of the list has the last word
        state[_inside(edges, *intervals[number])] = number
    return edges, state


def _parts(steps: pd.DataFrame, spans: pd.DataFrame) -> list[tuple[Ints, Ints]]:
    """Return the intervals of each state, the most telling first, in the order of the states."""
    lost = lost_steps(steps)
    starts, ends = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    ended = spans[spans["end_ns"].notna()].astype({"end_ns": "int64"})
    by_kind = {
        name: (rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
        for name, rows in ((name, ended[ended["kind"] == name]) for name in _NAMED)
    }
    again = restarts_of(steps, spans).astype({"start_ns": "int64", "end_ns": "int64"})
    by_kind["restart"] = (again["start_ns"].to_numpy(), again["end_ns"].to_numpy())
    states = {
        "useful steps": (starts[~lost], ends[~lost]),
        "lost steps": (starts[lost], ends[lost]),
    }
    states |= by_kind | {
        "between steps": _pauses(steps),
        # From the last step that ended to the interruption.
        "unfinished step": (last_ends(steps, again), again["start_ns"].to_numpy()),
    }
    return [states[name] for name in WASTE_STATES if name in states]


def _pauses(steps: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return the pauses between steps of one attempt that are shorter than a usual step."""
    ordered = steps.sort_values(["attempt", "start_ns"])
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    same = np.diff(ordered["attempt"].to_numpy()) == 0
    usual = np.median(ends - starts) if len(starts) else 0
    short = same & (starts[1:] - ends[:-1] < usual)
    return ends[:-1][short], starts[1:][short]


def last_ends(steps: pd.DataFrame, restarts: pd.DataFrame) -> Ints:
    """Return since when each restart's interruption had cost work: when the last step had ended.

    Restarts are in order of time. If a job was interrupted again before its next step ended, that
    is when the restart before it was over. Without a step or a restart before, it is the
    restart's own start.
    """
    began = restarts["start_ns"].to_numpy(dtype=np.int64)
    ends = np.sort(steps["end_ns"].to_numpy(dtype=np.int64))
    before = np.searchsorted(ends, began, side="right") - 1
    since = np.where(before >= 0, ends[before], began) if len(ends) else began.copy()
    over = np.maximum.accumulate(restarts["end_ns"].to_numpy(dtype=np.int64))[:-1]
    since[1:] = np.minimum(np.maximum(since[1:], over), began[1:])
    return np.asarray(since, dtype=np.int64)


def _inside(edges: Ints, starts: Ints, ends: Ints) -> Flags:
    """Return for each segment between two edges whether any of some intervals holds it."""
    change = np.zeros(len(edges), dtype=np.int64)
    lasting = ends > starts
    low, high = (np.clip(times[lasting], edges[0], edges[-1]) for times in (starts, ends))
    np.add.at(change, np.searchsorted(edges, low), 1)
    np.add.at(change, np.searchsorted(edges, high), -1)
    held: Flags = np.cumsum(change)[:-1] > 0
    return held
