"""Power as the grid would see it after smoothing, cell by cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench._shared.numbers import Floats, in_range, not_negative, positive
from workbench.analyze._power.grid_check import GridSpec, grid_check
from workbench.analyze._power.series import longest_stretch, uniform
from workbench.errors import WorkbenchError
from workbench.tables import POWER_SMOOTHING, SMOOTHING_SUMMARY


def power_smoothing(
    totals: pd.DataFrame, plan: SmoothingPlan, *, longest_gap_cells: int = 2
) -> pd.DataFrame:
    """Apply a power floor, ramps and a battery or other energy storage to measured power.

    A floor burns power in the valleys and costs energy, ramps hold the job back where power rises
    and cost time, a storage that fills the valleys costs hardware.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    plan
        What is done.
    longest_gap_cells
        As in :func:`power_spectrum`: shorter gaps are interpolated and marked, and the longest
        segment without a gap is smoothed. All other cells stay missing.

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

    Storage with a time constant *tau* lets the grid see ``g += dt / (tau + dt) (load - g)``,
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
    >>> cells = pd.DataFrame({"time_ns": range(0, 4_000_000_000, 1_000_000_000)})
    >>> cells = cells.assign(power_w=[10.0, 4, 10, 4], entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> power_smoothing(cells, SmoothingPlan(floor_share=0.9))["smoothed_w"].tolist()
    [10.0, 9.0, 10.0, 9.0]
    """
    series = uniform(totals)
    piece = longest_stretch(series, longest_gap_cells=longest_gap_cells, least_cells=2)
    load = _drawn(piece.power_w, series.period_s, plan)
    nothing = np.zeros(len(load))
    moved = Stored(nothing, nothing, nothing)
    if plan.has_storage:
        moved = stored(load, series.period_s, plan.store())
    values = _columns(piece.power_w, load, moved, plan)
    filled = piece.is_filled
    if len(load) < len(series.power_w):
        around = (piece.first, len(series.power_w) - piece.first - len(load))
        values = {
            name: np.pad(item, around, constant_values=np.nan) for name, item in values.items()
        }
        filled = np.pad(filled, around, constant_values=False)
    table = pd.DataFrame({"time_ns": series.time_ns, **values, "is_filled": filled})
    table["meter_period_s"] = series.meter_period_s or np.nan
    return POWER_SMOOTHING.check(table)


def _drawn(power_w: Floats, period_s: float, plan: SmoothingPlan) -> Floats:
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


def _columns(
    power_w: Floats, load_w: Floats, moved: Stored, plan: SmoothingPlan
) -> dict[str, Floats]:
    """Name what was computed, in the order of the table."""
    energy = plan.storage_energy_j
    return {
        "power_w": power_w, "load_w": load_w, "smoothed_w": load_w + moved.storage_w,
        "ballast_w": np.maximum(load_w - power_w, 0), "unmet_w": np.maximum(power_w - load_w, 0),
        "storage_w": moved.storage_w, "stored_j": moved.stored_j,
        "stored_share": moved.stored_j / energy if energy else np.full(len(load_w), np.nan),
        "lost_w": moved.lost_w,
    }  # fmt: skip


# How power is smoothed: by the machines, by storage, or by both.

_KILO = 1e3
_J_PER_KWH = 3.6e6


@dataclass(frozen=True)
class SmoothingPlan:
    """A plan for smoothing power before the grid sees it; None and 0 leave a part out.

    First the machines draw: at least a floor, changing no faster than their ramps. Then
    storage takes and gives, so that the grid sees a filtered or ramp-limited draw.

    Parameters
    ----------
    floor_share
        Floor as a share of ``reference_w``: idle cycles or a second job burn what is missing.
    reference_w
        What the floor is a share of, in watts; the peak of the totals by default.
    ramp_up_w_per_s, ramp_down_w_per_s
        Fastest rise and fall of what machines draw. A limited rise holds the job back.
    hysteresis_s
        How long power is kept before it may fall.
    ballast_w
        The most that may be burnt on top of the demand, in watts; it can break the floor.
    storage_tau_s
        The grid sees the load through a filter of this time constant.
    storage_ramp_w_per_s
        Or it sees the load with limited ramps; then a charge that drifts needs
        ``charge_control_s``.
    storage_power_w, storage_energy_j
        What the storage can give or take, and hold. Unlimited by default, to learn what is needed.
    storage_efficiency_share
        Of what goes in, what comes out; its square root on either way.
    storage_start_share
        Charge at the start, of ``storage_energy_j``.
    charge_control_s
        Time in which the charge is pulled to its middle (to its start if unlimited).

    Raises
    ------
    WorkbenchError
        If a number is out of its range, or settings contradict one another.
    """

    floor_share: float = 0.0
    reference_w: float | None = None
    ramp_up_w_per_s: float | None = None
    ramp_down_w_per_s: float | None = None
    hysteresis_s: float = 0.0
    ballast_w: float | None = None
    storage_tau_s: float | None = None
    storage_ramp_w_per_s: float | None = None
    storage_power_w: float | None = None
    storage_energy_j: float | None = None
    storage_efficiency_share: float = 1.0
    storage_start_share: float = 0.5
    charge_control_s: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "reference_w", "ramp_up_w_per_s", "ramp_down_w_per_s", "storage_tau_s",
            "storage_ramp_w_per_s", "storage_power_w", "storage_energy_j", "charge_control_s",
        ):  # fmt: skip
            if (value := getattr(self, name)) is not None:
                positive(name, value)
        in_range("floor_share", self.floor_share, least=0, most=1)
        not_negative("hysteresis_s", self.hysteresis_s)
        if self.ballast_w is not None:
            not_negative("ballast_w", self.ballast_w)
        in_range(
            "storage_efficiency_share", self.storage_efficiency_share, least=0, most=1,
            strictly=True,
        )  # fmt: skip
        in_range("storage_start_share", self.storage_start_share, least=0, most=1)
        self._check_store()

    def _check_store(self) -> None:
        limits = (self.storage_power_w, self.storage_energy_j, self.charge_control_s)
        if self.storage_tau_s is not None and self.storage_ramp_w_per_s is not None:
            msg = "storage follows storage_tau_s or storage_ramp_w_per_s, not both"
            raise WorkbenchError(msg)
        if not self.has_storage and any(limit is not None for limit in limits):
            msg = (
                "limits of storage need storage: give storage_tau_s (a filtered draw) or "
                "storage_ramp_w_per_s (limited ramps)"
            )
            raise WorkbenchError(msg)

    @property
    def has_storage(self) -> bool:
        """Whether the plan has energy storage."""
        return self.storage_tau_s is not None or self.storage_ramp_w_per_s is not None

    def store(self) -> Store:
        """Return the settings of the storage, infinite where unlimited."""
        energy = np.inf if self.storage_energy_j is None else self.storage_energy_j
        limited = np.isfinite(energy)
        return Store(
            tau_s=self.storage_tau_s,
            ramp_w_per_s=np.inf if self.storage_ramp_w_per_s is None else self.storage_ramp_w_per_s,
            power_w=np.inf if self.storage_power_w is None else self.storage_power_w,
            energy_j=energy,
            one_way_ratio=float(np.sqrt(self.storage_efficiency_share)),
            start_j=self.storage_start_share * energy if limited else 0.0,
            middle_j=energy / 2 if limited else 0.0,
            control_s=np.inf if self.charge_control_s is None else self.charge_control_s,
        )

    def words(self) -> str:
        """Describe the smoothing in a few words, for titles and labels."""
        words = []
        if self.floor_share:
            words.append(f"floor {100 * self.floor_share:g} %")
        ramps = [ramp for ramp in (self.ramp_up_w_per_s, self.ramp_down_w_per_s) if ramp]
        if ramps:
            words.append("ramps " + "/".join(f"{ramp / _KILO:g}" for ramp in ramps) + " kW/s")
        if self.hysteresis_s:
            words.append(f"hold {self.hysteresis_s:g} s")
        if self.storage_tau_s:
            words.append(f"storage tau {self.storage_tau_s:g} s")
        if self.storage_ramp_w_per_s:
            words.append(f"storage ramps {self.storage_ramp_w_per_s / _KILO:g} kW/s")
        if self.storage_energy_j:
            words.append(f"{self.storage_energy_j / _J_PER_KWH:.3g} kWh")
        return ", ".join(words) or "nothing"


# The two stages of smoothing: what machines draw, and what storage adds or takes.


class Stored(NamedTuple):
    """Operation of the storage in every cell."""

    storage_w: Floats
    stored_j: Floats
    lost_w: Floats


class Store(NamedTuple):
    """Settings of the storage; infinite where unlimited."""

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
    # A loop, since the hysteresis makes each cell depend on the one before.
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
    if store.is_plain and store.tau_s is not None:
        chosen = _exponential(load_w, period_s, store.tau_s) - load_w
        return Stored(chosen, store.start_j + np.cumsum(chosen) * period_s, np.zeros(len(load_w)))
    return _limited(load_w, period_s, store)


def _exponential(load_w: Floats, period_s: float, tau_s: float) -> Floats:
    """Follow the load with a time constant, from its mean on."""
    from scipy import signal

    # Backward Euler: stable for cells longer than the time constant.
    share = period_s / (tau_s + period_s)
    start = float(load_w.mean())
    remainder, _ = signal.lfilter([share], [1, share - 1], load_w[1:], zi=[(1 - share) * start])
    followed: Floats = np.r_[start, remainder]
    return followed


def _limited(load_w: Floats, period_s: float, store: Store) -> Stored:
    # Cell by cell, because what is possible depends on the charge.
    goals = load_w if store.tau_s is None else _exponential(load_w, period_s, store.tau_s)
    ramp = np.inf if store.tau_s is not None else store.ramp_w_per_s * period_s
    most, charge, out = store.power_w, store.start_j, float(goals[0])
    # What a watt adds to the charge in a cell, and what it takes from it.
    gain, drain = store.one_way_ratio * period_s, period_s / store.one_way_ratio
    # An unlimited storage has no bottom either.
    top, bottom = store.energy_j, 0.0 if np.isfinite(store.energy_j) else -np.inf
    chosen, charges = [], []
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
        chosen.append(power)
        charges.append(charge)
    moved = np.array(chosen)
    ratio = store.one_way_ratio
    lost = np.where(moved > 0, moved * (1 - ratio), moved * (1 - 1 / ratio))
    return Stored(moved, np.clip(charges, bottom, top), lost)


def _least(first: float, second: float, third: float) -> float:
    if second < first:
        first = second
    if third < first:
        first = third
    return first if first > 0 else 0.0


# What smoothing costs, what swing it leaves, and what storage it needs.

_WORST_FIRST = ("fail", "unknown", "pass")


def smoothing_summary(
    smoothing: pd.DataFrame,
    *,
    spec: GridSpec | None = None,
    site_w: float | None = None,
    averaging_s: float | None = None,
) -> pd.DataFrame:
    """Compare power before and after smoothing: energy, swing, ramps, storage and verdict.

    What an unlimited storage moved is the size of the storage that is needed.

    Parameters
    ----------
    smoothing
        Table :data:`workbench.tables.POWER_SMOOTHING`.
    spec
        What the grid allows; both versions are then checked against it.
    site_w, averaging_s
        As in :func:`grid_check`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SMOOTHING_SUMMARY`, with the rows before and after.

    Raises
    ------
    WorkbenchError
        If fewer than two cells are known, all are 0, or as :func:`grid_check`.

    Notes
    -----
    ``swing_w`` is the 99th minus the 1st percentile of all cells, ``deviation_w`` their standard
    deviation. ``energy_ratio`` counts ballast and losses, and what the storage still holds.

    Examples
    --------
    >>> from workbench.analyze import SmoothingPlan, power_smoothing
    >>> cells = pd.DataFrame({"time_ns": range(0, 4_000_000_000, 1_000_000_000)})
    >>> cells = cells.assign(power_w=[10.0, 5, 10, 5], entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> smoothed = power_smoothing(cells, SmoothingPlan(floor_share=0.8))
    >>> smoothing_summary(smoothed)["energy_ratio"].tolist()
    [1.0, 1.2]
    """
    POWER_SMOOTHING.check(smoothing)
    valid = smoothing[smoothing["power_w"].notna()]
    if len(valid) < 2:
        msg = f"{len(valid)} of {len(smoothing):,} cells are known; 2 are needed for a comparison"
        raise WorkbenchError(msg)
    period_s = float(np.diff(valid["time_ns"].to_numpy()[:2])[0]) / 1e9
    lag = _cells_per_reading(valid, period_s)
    before = _statistics(valid["power_w"].to_numpy(), period_s, lag)
    after = _statistics(valid["smoothed_w"].to_numpy(), period_s, lag) | _costs(valid, period_s)
    if before["energy_j"] <= 0:
        msg = f"power is 0 in all of {len(valid):,} cells: there is no energy to compare with"
        raise WorkbenchError(msg)
    rows = []
    for version, values, column in (("before", before, "power_w"), ("after", after, "smoothed_w")):
        verdict, why = _verdict(valid, column, spec, site_w, averaging_s)
        rows.append(
            dict.fromkeys(_costs(valid.iloc[:1], period_s), 0.0)
            | values
            | {"version": version, "verdict": verdict, "why": why}
            | {"energy_ratio": values["energy_j"] / before["energy_j"]}
        )
    table = pd.DataFrame(rows)
    table["covered_share"] = len(valid) / len(smoothing)
    return SMOOTHING_SUMMARY.of(table)


def _cells_per_reading(smoothed_cells: pd.DataFrame, period_s: float) -> int:
    # Nobody measured a ramp over fewer cells than lie between two readings.
    meter_s = (
        smoothed_cells["meter_period_s"].max() if "meter_period_s" in smoothed_cells else np.nan
    )
    cells = 1 if np.isnan(meter_s) else max(round(meter_s / period_s), 1)
    return cells if cells < len(smoothed_cells) else 1


def _statistics(power_w: Floats, period_s: float, lag: int) -> dict[str, Any]:
    low, high = np.percentile(power_w, [1, 99])
    return {
        "mean_w": power_w.mean(),
        "peak_w": power_w.max(),
        "swing_w": high - low,
        "deviation_w": power_w.std(),
        "ramp_w_per_s": np.abs(power_w[lag:] - power_w[:-lag]).max() / (lag * period_s),
        "energy_j": power_w.sum() * period_s,
    }


def _costs(smoothed_cells: pd.DataFrame, period_s: float) -> dict[str, Any]:
    charge = smoothed_cells["stored_j"].to_numpy()
    moved, lost = smoothed_cells["storage_w"].to_numpy(), smoothed_cells["lost_w"].to_numpy()
    return {
        "ballast_j": smoothed_cells["ballast_w"].sum() * period_s,
        "unmet_j": smoothed_cells["unmet_w"].sum() * period_s,
        "lost_j": lost.sum() * period_s,
        "stored_change_j": (moved - lost).sum() * period_s,
        "storage_w": np.abs(moved).max(),
        "storage_j": np.ptp(charge),
    }


def _verdict(
    cells_known: pd.DataFrame,
    column: str,
    spec: GridSpec | None,
    site_w: float | None,
    averaging_s: float | None,
) -> tuple[str | None, str | None]:
    if spec is None:
        return None, None
    cells = cells_known.filter(["time_ns", "meter_period_s"]).assign(
        power_w=cells_known[column], entity_count=1, expected_count=1, covered_share=1.0
    )
    rows = grid_check(cells, spec, site_w=site_w, averaging_s=averaging_s)
    worst = min(rows["verdict"], key=_WORST_FIRST.index)
    words = "; ".join(f"{row.requirement}: {row.verdict}" for row in rows.itertuples())
    return worst, words
