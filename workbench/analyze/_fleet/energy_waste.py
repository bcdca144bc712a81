"""Where the energy of a run went: useful steps, lost steps, and everything between."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._fleet.run_states import lost_steps, run_states, run_window
from workbench.analyze._lib.energy_curves import SECOND, EnergyCurves
from workbench.tables import ENERGY_WASTE, LOGGED_SPANS, LOGGED_STEPS, WASTE_STATES


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
    belongs to one state: to a step if there is one, else to what the log names, else to nothing
    it told; so the energies add up to that of the whole run, and what nobody told is a row of
    its own. All attempts are taken as runs of one job; of a log with several jobs pass the steps
    of one.

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
        Table :data:`workbench.tables.ENERGY_WASTE`, states without time left out; empty if the log
        tells of no step and no run. Energies are of what readings cover; ``covered_share`` says
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
    named = LOGGED_SPANS.empty() if spans is None else LOGGED_SPANS.check(spans)
    curves = EnergyCurves(
        power, longest_gap_periods=longest_gap_periods, clock_offset_s=clock_offset_s
    )
    window = window_ns or run_window(steps, named)
    if window is None:
        return ENERGY_WASTE.empty()
    edges, state = run_states(steps, named, window)
    known = curves.between(edges[:-1], edges[1:])
    length = np.diff(edges) / SECOND
    whole = float(known.energy_j.sum())
    lost = int(lost_steps(steps).sum())
    count = {"useful steps": len(steps) - lost, "lost steps": lost}
    rows = []
    for name in WASTE_STATES:
        mine = state == WASTE_STATES.index(name)
        seconds, energy = float(length[mine].sum()), float(known.energy_j[mine].sum())
        if seconds == 0:
            continue
        covered = float((known.covered_share[mine] * length[mine]).sum())
        watts = np.nan_to_num(known.mean_w[mine]) * known.covered_share[mine] * length[mine]
        rows.append(
            {
                "state": name,
                "time_s": seconds,
                "time_share": seconds / length.sum(),
                "step_count": count.get(name, 0),
                "energy_j": energy,
                "energy_share": min(energy / whole, 1.0) if whole > 0 else np.nan,
                "mean_w": watts.sum() / covered if covered > 0 else np.nan,
                "covered_share": min(covered / seconds, 1.0),
            }
        )
    return ENERGY_WASTE.check(ENERGY_WASTE.cast(pd.DataFrame(rows)))
