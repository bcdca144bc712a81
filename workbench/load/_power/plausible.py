"""Counters and powers that other columns of the same thing contradict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from workbench.load._files.findings import Finding
from workbench.load._power.part import PowerPart
from workbench.load._power.rows import SECOND, Rows

_STUCK = "counters of energy that stand still while the power does not; not used"
_ZEROS = "powers of 0 W while the GPU worked; they are missing"
# A counter that stands still this many times longer, and misses this many times more, than usual.
_LONGER, _MORE = 5, 2
_FEWEST = 5
_WORKS, _LEAST_W = 0.5, 1.0


def without_stuck(counters: Rows, readings: Rows, source: str) -> tuple[Rows, list[Finding]]:
    """Leave out the counters of things that drew power while their counter stood still."""
    powers = {name: (readings.time_ns[span], readings.numbers[span])
              for name, span in readings.slices()}  # fmt: skip
    stuck = [
        name for name, span in counters.slices()
        if name in powers and _is_stuck(counters.time_ns[span], counters.numbers[span],
                                        *powers[name])
    ]  # fmt: skip
    if not stuck:
        return counters, []
    is_kept = ~np.isin(counters.codes, [counters.names.index(name) for name in stuck])
    return counters.take(is_kept), [(source, "dropped", _STUCK, len(stuck), stuck[0])]


def _is_stuck(
    time_ns: np.ndarray, energy_j: np.ndarray, power_ns: np.ndarray, power_w: np.ndarray
) -> bool:
    time_ns, energy_j = time_ns[~np.isnan(energy_j)], energy_j[~np.isnan(energy_j)]
    power_ns, power_w = power_ns[~np.isnan(power_w)], power_w[~np.isnan(power_w)]
    if len(time_ns) < _FEWEST or len(power_ns) < 2:
        return False
    step_j = (power_w[1:] + power_w[:-1]) / 2 * (np.diff(power_ns) / SECOND)
    drawn_j = np.interp(time_ns, power_ns, np.concatenate([[0], np.cumsum(step_j)]))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(energy_j)) + 1])
    if len(starts) == 1:
        return bool(drawn_j[-1] - drawn_j[0] > 1)
    ends = np.append(starts[1:], len(energy_j) - 1)
    expected, span = drawn_j[ends] - drawn_j[starts], time_ns[ends] - time_ns[starts]
    gained = energy_j[ends] - energy_j[starts]
    usual_j, usual_ns = np.median(np.abs(gained[:-1])), np.median(span[:-1])
    # A coarse counter stands still, too, and then catches up.
    is_still = (expected > _MORE * usual_j) & (span > _LONGER * usual_ns)
    return bool((is_still & (gained < expected / 2) & (ends - starts >= _FEWEST)).any())


def zeros_at_work(
    readings: Rows, contents: Sequence[PowerPart], names: Sequence[Mapping[str, str]]
) -> list[Finding]:
    """Make powers of nothing missing, in place, where the same moment has a busy GPU."""
    zero = np.flatnonzero(readings.numbers < _LEAST_W)
    findings: list[Finding] = []
    if not len(zero):
        return findings
    owner = np.array(readings.names, dtype=object)[readings.codes[zero]]
    at = pd.MultiIndex.from_arrays([owner, readings.time_ns[zero]])
    for content, renamed in zip(contents, names, strict=True):
        if content.states is None or "busy_share" not in content.states:
            continue
        busy = content.states[content.states["busy_share"] >= _WORKS]
        entity = busy["entity"].astype(str).map(renamed)
        is_busy = at.isin(pd.MultiIndex.from_arrays([entity, busy["time_ns"]]))
        if is_busy.any():
            readings.numbers[zero[is_busy]] = np.nan
            where = str(owner[int(is_busy.argmax())])
            source = content.findings.source
            findings.append((source, "suspicious", _ZEROS, int(is_busy.sum()), where))
    return findings
