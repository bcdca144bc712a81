"""Explore floors, ramps and stores on measured power."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import GridSpec, SmoothingPlan
from workbench.explore._controls import numbers, slider
from workbench.explore._panel import Explorer

_NONE = 0.0
_J_PER_KWH = 3.6e6
_VIEWS = (("power", "power"), ("summary", "summary"), ("spectrum after", "spectrum"))


def power_smoothing(
    totals: pd.DataFrame,
    *,
    plan: SmoothingPlan | None = None,
    spec: GridSpec | None = None,
    site_w: float | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose a floor, ramps, hysteresis and a store; see what is left of the swing, and the cost.

    Starts at a floor of 90 % of the peak and a store with a time constant of 10 s. The title
    gives the verdict of the specification before and after.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    plan
        Where the controls start; settings without a control are kept.
    spec
        What the grid allows; the critical band that is quoted most by default.
    site_w
        As in :func:`workbench.analyze.grid_check`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.power_smoothing`,
        :func:`workbench.plot.smoothing_summary` or :func:`workbench.plot.power_spectrum`.
    """
    start = plan or SmoothingPlan(floor_share=0.9, storage_tau_s=10)
    peak_w = float(totals["power_w"].max())
    rule = {"spec": spec or analyze.grid_spec("critical band"), "site_w": site_w}
    label = {"source": source, "synthetic": synthetic}
    return Explorer(
        partial(_draw, totals=totals, base=start, rule=rule, label=label),
        view=widgets.Dropdown(options=_VIEWS, description="view"),
        floor=numbers("floor [% of peak]", (0, 80, 85, 90, 95), 100 * start.floor_share),
        ramp=_watts("ramps of machines", peak_w, start.ramp_down_w_per_s, "kW/s"),
        hold=numbers("hold before a fall [s]", (0, 2, 10), start.hysteresis_s),
        tau=numbers("store: time constant [s], 0 = none", (0, 10, 30, 60, 300), _tau(start)),
        energy=_energies("store: energy", peak_w, start.storage_energy_j),
        power=_watts("store: power", 2 * peak_w, start.storage_power_w, "kW"),
    )


def _tau(plan: SmoothingPlan) -> float:
    return plan.storage_tau_s or _NONE


def _watts(name: str, peak_w: float, start: float | None, unit: str) -> widgets.Widget:
    """Offer numbers of one digit near 1, 2 and 5 % of a power, and no limit."""
    offered = {float(f"{peak_w * share:.0e}") for share in (0.01, 0.02, 0.05)} | {start or _NONE}
    pairs = [(f"{each / 1e3:g} {unit}", each) for each in sorted(offered) if each]
    return slider(name, [*pairs, ("no limit", _NONE)], start or _NONE)


def _energies(name: str, peak_w: float, start: float | None) -> widgets.Widget:
    """Offer what 0.5, 1 and 5 s of the peak hold, and no limit."""
    offered = {
        float(f"{peak_w * seconds / _J_PER_KWH:.0e}") * _J_PER_KWH for seconds in (0.5, 1, 5)
    } | {start or _NONE}
    pairs = [(f"{each / _J_PER_KWH:.3g} kWh", each) for each in sorted(offered) if each]
    return slider(name, [*pairs, ("no limit", _NONE)], start or _NONE)


def _draw(
    *,
    view: str,
    floor: float,
    ramp: float,
    hold: float,
    tau: float,
    energy: float,
    power: float,
    totals: pd.DataFrame,
    base: SmoothingPlan,
    rule: dict[str, Any],
    label: dict[str, Any],
) -> go.Figure:
    has_store = tau > 0 or base.storage_ramp_w_per_s is not None
    plan = replace(
        base,
        floor_share=floor / 100,
        ramp_up_w_per_s=ramp or None,
        ramp_down_w_per_s=ramp or None,
        hysteresis_s=hold,
        storage_tau_s=tau or None,
        storage_ramp_w_per_s=None if tau else base.storage_ramp_w_per_s,
        storage_energy_j=energy or None if has_store else None,
        storage_power_w=power or None if has_store else None,
        charge_control_s=base.charge_control_s if has_store else None,
    )
    smoothing = analyze.power_smoothing(totals, plan)
    if view == "spectrum":
        return _spectrum(smoothing, rule, label)
    summary = analyze.smoothing_summary(smoothing, **rule)
    if view == "summary":
        return plot.smoothing_summary(summary, **label)
    return plot.power_smoothing(smoothing, summary=summary, **label)


def _spectrum(smoothing: pd.DataFrame, rule: dict[str, Any], label: dict[str, Any]) -> go.Figure:
    """Draw the spectrum of what the grid sees, with the verdict on it."""
    after = pd.DataFrame(
        {
            "time_ns": smoothing["time_ns"], "power_w": smoothing["smoothed_w"],
            "entity_count": 1, "expected_count": 1, "covered_share": 1.0,
            "meter_period_s": smoothing["meter_period_s"],
        }
    )  # fmt: skip
    spectrum = analyze.power_spectrum(after)
    check = analyze.grid_check(after, **rule)
    peaks = analyze.power_peaks(spectrum)
    return plot.power_spectrum(spectrum, peaks=peaks, check=check, **label)
