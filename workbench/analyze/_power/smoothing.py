"""What the grid would see if power were smoothed, cell by cell."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._power.series import Floats, longest_stretch, uniform
from workbench.analyze._power.smoothing_plan import SmoothingPlan
from workbench.analyze._power.smoothing_stages import Stored, held_up, stored
from workbench.errors import WorkbenchError
from workbench.tables import POWER_SMOOTHING


def power_smoothing(
    totals: pd.DataFrame, plan: SmoothingPlan, *, longest_gap_cells: int = 2
) -> pd.DataFrame:
    """Apply a floor, ramps and a store to measured power.

    Three ways to spare the grid a swing: burn power in the valleys (a floor), let power change
    slowly (ramps, which hold the job back where it rises), or let a store fill the valleys. The
    first costs energy, the second time, the third hardware.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    plan
        What is done.
    longest_gap_cells
        As in :func:`power_spectrum`: shorter gaps are interpolated and marked, and the longest
        stretch without a gap is smoothed. All other cells stay missing.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_SMOOTHING`, one row per cell of the totals.

    Raises
    ------
    WorkbenchError
        If the totals are not uniform, or the floor is above ``reference_w`` by mistake of units.

    Notes
    -----
    With *dt* the length of a cell, ``target = max(P, floor)``. If it is not below the last
    output, that rises by at most ``up dt``; else the output is kept for ``hysteresis / dt``
    cells and then falls by at most ``down dt``. What *P* asks for beyond it is unmet demand.

    A store with time constant *tau* lets the grid see ``g += dt / (tau + dt) (load - g)``,
    beginning with the mean load; one with limited ramps begins with the first load. The
    charge follows what is taken and given, within power, energy and efficiency; where those
    end, the grid sees the load.

    The cells are means, so the model knows nothing faster than a cell. The plan acts on the
    total; machines that act each on their own power do so less evenly.

    References
    ----------
    Choukse et al., Power Stabilization for AI Training Datacenters, arXiv:2508.14318; NVIDIA
    Management Library, power smoothing (floor, ramps, hysteresis).

    Examples
    --------
    >>> import pandas as pd
    >>> cells = pd.DataFrame({"time_ns": range(0, 4_000_000_000, 1_000_000_000)})
    >>> cells = cells.assign(power_w=[10.0, 4, 10, 4], entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> power_smoothing(cells, SmoothingPlan(floor_share=0.9))["smoothed_w"].tolist()
    [10.0, 9.0, 10.0, 9.0]
    """
    series = uniform(totals)
    part = longest_stretch(series, longest_gap_cells=longest_gap_cells, least_cells=2)
    load = _drawn(part.power_w, series.period_s, plan)
    moved = _moved(load, series.period_s, plan)
    values = _columns(part.power_w, load, moved, plan)
    filled = part.is_filled
    if len(load) < len(series.power_w):
        around = (part.first, len(series.power_w) - part.first - len(load))
        values = {
            name: np.pad(each, around, constant_values=np.nan) for name, each in values.items()
        }
        filled = np.pad(filled, around, constant_values=False)
    table = pd.DataFrame({"time_ns": series.time_ns, **values, "is_filled": filled})
    table["meter_period_s"] = series.meter_period_s or np.nan
    return POWER_SMOOTHING.check(table)


def _drawn(power_w: Floats, period_s: float, plan: SmoothingPlan) -> Floats:
    """Return what the machines draw."""
    reference = float(power_w.max()) if plan.reference_w is None else plan.reference_w
    if plan.floor_share and reference > 10 * power_w.max():
        msg = (
            f"reference_w is {reference:g} W, the totals peak at {power_w.max():g} W; a floor is "
            "a share of what is metered"
        )
        raise WorkbenchError(msg)
    per_cell = [
        np.inf if ramp is None else ramp * period_s
        for ramp in (plan.ramp_up_w_per_s, plan.ramp_down_w_per_s)
    ]
    load = held_up(
        power_w, plan.floor_share * reference, up_w=per_cell[0], down_w=per_cell[1],
        hold_cells=plan.hysteresis_s / period_s,
    )  # fmt: skip
    return load if plan.ballast_w is None else np.minimum(load, power_w + plan.ballast_w)


def _moved(load_w: Floats, period_s: float, plan: SmoothingPlan) -> Stored:
    """Return what the store does; nothing if there is none."""
    if plan.has_storage:
        return stored(load_w, period_s, plan.store())
    nothing = np.zeros(len(load_w))
    return Stored(nothing, nothing, nothing)


def _columns(
    power_w: Floats, load_w: Floats, moved: Stored, plan: SmoothingPlan
) -> dict[str, Floats]:
    """Name what was worked out, in the order of the table."""
    energy = plan.storage_energy_j
    return {
        "power_w": power_w,
        "load_w": load_w,
        "smoothed_w": load_w + moved.storage_w,
        "ballast_w": np.maximum(load_w - power_w, 0),
        "unmet_w": np.maximum(power_w - load_w, 0),
        "storage_w": moved.storage_w,
        "stored_j": moved.stored_j,
        "stored_share": moved.stored_j / energy if energy else np.full(len(load_w), np.nan),
        "lost_w": moved.lost_w,
    }
