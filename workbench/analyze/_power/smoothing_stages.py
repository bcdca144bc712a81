"""The two stages of smoothing: what machines draw, and what a store adds or takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.analyze._power.series import Floats


class Stored(NamedTuple):
    """What a store does in every cell."""

    storage_w: Floats
    stored_j: Floats
    lost_w: Floats


class Store(NamedTuple):
    """Settings of a store; infinite where unlimited."""

    tau_s: float | None
    ramp_w_per_s: float
    power_w: float
    energy_j: float
    one_way_ratio: float
    start_j: float
    middle_j: float
    control_s: float

    @property
    def is_plain(self) -> bool:
        """Whether nothing limits or corrects it, so that a filter gives the same."""
        limited = np.isfinite(self.power_w) or np.isfinite(self.energy_j)
        return not limited and self.one_way_ratio == 1 and np.isinf(self.control_s)


def held_up(
    power_w: Floats, floor_w: float, *, up_w: float, down_w: float, hold_cells: float
) -> Floats:
    """Draw at least a floor, change by limited amounts per cell, wait before every fall.

    ``hold_cells`` is the hysteresis in cells: so many cells keep their power before it falls.
    """
    target = np.maximum(power_w, floor_w)
    if np.isinf(up_w) and np.isinf(down_w) and hold_cells <= 0:
        return target
    drawn = []
    out, held = float(target[0]), 0
    for wanted in target.tolist():
        if wanted >= out:
            out = min(out + up_w, wanted)
            held = 0
        elif held < hold_cells:
            held += 1
        else:
            out = max(out - down_w, wanted)
        drawn.append(out)
    return np.array(drawn)


def stored(load_w: Floats, period_s: float, store: Store) -> Stored:
    """Let a store move power between cells."""
    if store.is_plain and store.tau_s is not None:
        taken = _exponential(load_w, period_s, store.tau_s) - load_w
        return Stored(taken, store.start_j + np.cumsum(taken) * period_s, np.zeros(len(load_w)))
    return _limited(load_w, period_s, store)


def _exponential(load_w: Floats, period_s: float, tau_s: float) -> Floats:
    """Follow the load with a time constant, from its mean on."""
    from scipy import signal

    share = period_s / (tau_s + period_s)
    start = float(load_w.mean())
    rest, _ = signal.lfilter([share], [1, share - 1], load_w[1:], zi=[(1 - share) * start])
    followed: Floats = np.r_[start, rest]
    return followed


def _limited(load_w: Floats, period_s: float, store: Store) -> Stored:
    """Go cell by cell, because what is possible depends on the charge."""
    goals = load_w if store.tau_s is None else _exponential(load_w, period_s, store.tau_s)
    ramp = np.inf if store.tau_s is not None else store.ramp_w_per_s * period_s
    most, charge, out = store.power_w, store.start_j, float(goals[0])
    # What a watt adds to the charge in a cell, and what it takes from it.
    gain, drain = store.one_way_ratio * period_s, period_s / store.one_way_ratio
    # An unlimited store has no bottom either.
    top, bottom = store.energy_j, 0.0 if np.isfinite(store.energy_j) else -np.inf
    taken, charges = [], []
    # Branches instead of min and max: a slider waits for this loop.
    for load, goal in zip(load_w.tolist(), goals.tolist(), strict=True):
        wanted = goal + (store.middle_j - charge) / store.control_s
        if wanted > out + ramp:
            wanted = out + ramp
        elif wanted < out - ramp:
            wanted = out - ramp
        power = (wanted if wanted > 0 else 0.0) - load
        if power > 0:
            power = _least(power, most, (top - charge) / gain)
            charge += power * gain
        elif power < 0:
            power = -_least(-power, most, (charge - bottom) / drain)
            charge += power * drain
        out = load + power
        taken.append(power)
        charges.append(charge)
    moved = np.array(taken)
    ratio = store.one_way_ratio
    lost = np.where(moved > 0, moved * (1 - ratio), moved * (1 - 1 / ratio))
    return Stored(moved, np.clip(charges, bottom, top), lost)


def _least(first: float, second: float, third: float) -> float:
    """Return the least of three, and nothing below 0."""
    if second < first:
        first = second
    if third < first:
        first = third
    return first if first > 0 else 0.0
