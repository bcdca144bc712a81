"""Energy of stretches of time, as readings: a mean at both ends, and a counter in between."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.load._files.findings import Findings

_SECOND = 1_000_000_000
_NOTED = "windows; the mean of each stands at its start and at its end, its energy in the counters"


def readings_of(
    windows: pd.DataFrame, findings: Findings
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Turn windows into readings and counters, and give the windows that were taken.

    The mean of a window is given at its start and at its end, so that the area between is its
    energy; what was drawn between two windows is not known. As a counter, each window starts
    at zero. Of windows that overlap for one entity the earlier, and then the longer, is taken.

    Parameters
    ----------
    windows
        Columns ``entity``, ``start_ns``, ``end_ns``, ``energy_j`` and ``line``.
    findings
        Where windows that are not taken are counted.
    """
    is_long = windows["end_ns"] > windows["start_ns"]
    _tell(windows[~is_long], findings, "dropped", "windows without a duration")
    taken = _apart(windows[is_long], findings)
    findings.add("noted", _NOTED, len(taken))
    spent_s = (taken["end_ns"] - taken["start_ns"]) / _SECOND
    watts = taken["energy_j"] / spent_s
    twice = taken.index.repeat(2)
    is_end = np.tile([False, True], len(taken))
    time_ns = np.where(is_end, taken["end_ns"].loc[twice], taken["start_ns"].loc[twice])
    both = pd.DataFrame(
        {
            "time_ns": time_ns.astype(np.int64),
            "entity": taken["entity"].loc[twice].to_numpy(),
            "line": taken["line"].loc[twice].to_numpy(),
        }
    )
    energy = np.where(is_end, taken["energy_j"].loc[twice], 0.0)
    energy = np.where(np.isnan(taken["energy_j"].loc[twice]), np.nan, energy)
    readings = both.assign(power_w=watts.loc[twice].to_numpy())
    return readings, both.assign(energy_j=energy), taken


def _apart(windows: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Keep windows of one entity that do not overlap; one that begins where another ends may."""
    longest = windows.assign(minus_end_ns=-windows["end_ns"])
    ordered = longest.sort_values(["entity", "start_ns", "minus_end_ns", "line"], kind="stable")
    kept, inside = [], []
    last_entity, last_end = None, 0
    for index, entity, start, end in zip(
        ordered.index, ordered["entity"], ordered["start_ns"], ordered["end_ns"], strict=True
    ):
        if entity == last_entity and start < last_end:
            inside.append(index)
            continue
        last_entity, last_end = entity, end
        kept.append(index)
    what = "windows inside or across another one, whose energy is in that one"
    _tell(windows.loc[inside], findings, "skipped by design", what)
    taken = windows.loc[kept]
    touches = (taken["start_ns"] == taken["end_ns"].shift()) & (
        taken["entity"] == taken["entity"].shift()
    )
    # Two readings cannot share a stamp.
    return taken.assign(start_ns=taken["start_ns"] + touches.astype("int64"))


def _tell(rows: pd.DataFrame, findings: Findings, finding: str, what: str) -> None:
    if len(rows):
        findings.add(finding, what, len(rows), f"line {int(rows['line'].min()):,}")
