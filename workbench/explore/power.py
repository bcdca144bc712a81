"""Explore power: capping, smoothing, spectra, provisioning and feeds that are short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import FeedShortage, GridSpec, PowerPolicy, SmoothingPlan
from workbench.errors import WorkbenchError
from workbench.explore.panel import Explorer, numbers, prepared, slider
from workbench.plot._style.text import digits
from workbench.tables import (
    POWER_CURVE,
    POWER_LOADS,
    POWER_TOPOLOGY,
    JobLog,
    PowerLog,
    Source,
    as_source,
)

# Explore when devices were held back by power, and what it cost.

_VIEWS = (("when", "events"), ("what it cost", "cost"), ("which device", "blame"))
_LIMIT_SHARES_AND_GAPS = (0.8, 0.85, 0.9, 0.95, 0.97, 1.0), (1.2, 3.0, 10.0)
_EVIDENCE = (("the best there is", False), ("power at its limit alone", True))


def capping_events(
    log: PowerLog, job: JobLog | None = None, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose what counts as capping; see when it happened, what it cost, and on which device.

    Starts with the best evidence that each device has. Judging by power alone shows how far
    that would lead astray: a capped GPU may draw well below its limit.

    Controls above :func:`workbench.plot.capping_events`, and with a job log
    :func:`workbench.plot.capping_cost` and :func:`workbench.plot.capping_blame`.

    Parameters
    ----------
    log
        What :func:`workbench.load.power` returns.
    job
        What :func:`workbench.load.job_log` returns of the job that ran; without it there is no
        cost.

    Raises
    ------
    WorkbenchError
        If ``log`` or ``job`` is a table instead of what was loaded.
    """
    for loaded, kind, how in ((log, PowerLog, "load.power"), (job, JobLog, "load.job_log")):
        if loaded is not None and not isinstance(loaded, kind):
            msg = (
                f"a {kind.__name__} is needed, not a {type(loaded).__name__}; pass what {how} gives"
            )
            raise WorkbenchError(msg)
    label = {"source": source, "synthetic": synthetic}
    evidence, shares, gaps = ([value for _, value in _EVIDENCE], *_LIMIT_SHARES_AND_GAPS)
    cases = list(product(evidence, shares, gaps))
    found = prepared(partial(_found, log), cases, row_count=len(log.states))
    return Explorer(
        partial(_draw, tables=_tables_of(found, job), label=label),
        view=widgets.Dropdown(options=_VIEWS if job else _VIEWS[:1], description="view"),
        power_alone=widgets.Dropdown(options=_EVIDENCE, description="judged by"),
        limit_share=numbers("power counts from [of the limit]", shares, 0.97),
        gap=numbers("longest pause [periods]", gaps, 3),
    )


def _tables_of(
    found: Callable[..., pd.DataFrame], job: JobLog | None
) -> dict[str, Callable[..., pd.DataFrame]]:
    """Return the function that computes the table of each view; without a job log only one."""
    if job is None:
        return {"events": found}
    steps = job.steps
    return {
        "events": found,
        "cost": cache(lambda *case: analyze.capping_cost(found(*case), steps)),
        "blame": cache(lambda *case: analyze.capping_blame(found(*case), steps)),
    }


def _found(log: PowerLog, power_alone: bool, limit_share: float, gap: float) -> pd.DataFrame:
    states = log.states
    if power_alone:
        nothing = pd.Series(pd.NA, index=states.index, dtype="Int64")
        states = states.assign(reasons=nothing, power_violation_ns=nothing)
    return analyze.capping_events(
        log.power, states, limit_share=limit_share, longest_gap_periods=gap
    )


def _draw(
    *,
    view: str,
    power_alone: bool,
    limit_share: float,
    gap: float,
    tables: dict[str, Callable[..., pd.DataFrame]],
    label: dict[str, Any],
) -> go.Figure:
    draw: dict[str, Callable[..., go.Figure]] = {
        "events": plot.capping_events, "cost": plot.capping_cost, "blame": plot.capping_blame,
    }  # fmt: skip
    return draw[view](tables[view](power_alone, limit_share, gap), **label)


# Explore floors, ramps and storage on measured power.

_NONE = 0.0
_J_PER_KWH = 3.6e6
_POWER_SMOOTHING_VIEWS = (
    ("power", "power"), ("summary", "summary"), ("spectrum after", "spectrum"),
)  # fmt: skip


def power_smoothing(
    totals: pd.DataFrame,
    *,
    plan: SmoothingPlan | None = None,
    spec: GridSpec | None = None,
    site_w: float | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose a floor, ramps, hysteresis and storage; see what is left of the swing, and the cost.

    Starts at a floor of 90 % of the peak and storage with a time constant of 10 s. The title
    gives the verdict of the specification before and after.

    Controls above :func:`workbench.plot.power_smoothing`,
    :func:`workbench.plot.smoothing_summary` or :func:`workbench.plot.power_spectrum`.

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
    """
    start = plan or SmoothingPlan(floor_share=0.9, storage_tau_s=10)
    peak_w = float(totals["power_w"].max())
    shares_w = [share * peak_w for share in (0.01, 0.02, 0.05)]
    peaks_j = [seconds * peak_w for seconds in (0.5, 1, 5)]
    rule = {"spec": spec or analyze.grid_spec("critical band"), "site_w": site_w}
    label = {"source": source, "synthetic": synthetic}
    return Explorer(
        partial(_power_smoothing_draw, totals=totals, base=start, rule=rule, label=label),
        view=widgets.Dropdown(options=_POWER_SMOOTHING_VIEWS, description="view"),
        floor=numbers("floor [% of peak]", (0, 80, 85, 90, 95), 100 * start.floor_share),
        ramp=_limits("ramps of machines", shares_w, start.ramp_down_w_per_s, "kW/s"),
        hold=numbers("hold before a fall [s]", (0, 2, 10), start.hysteresis_s),
        tau=numbers(
            "storage: time constant [s], 0 = none",
            (0, 10, 30, 60, 300),
            start.storage_tau_s or _NONE,
        ),
        energy=_limits("storage: energy", peaks_j, start.storage_energy_j, "kWh"),
        power=_limits(
            "storage: power", [2 * share for share in shares_w], start.storage_power_w, "kW"
        ),
    )


def _limits(name: str, values: Sequence[float], start: float | None, unit: str) -> widgets.Widget:
    """Offer numbers of one digit, where the plan starts, and no limit."""
    per_unit = _J_PER_KWH if unit == "kWh" else 1e3
    offered = {float(f"{value / per_unit:.0e}") * per_unit for value in values} | {start or _NONE}
    pairs = [(f"{digits(value / per_unit)} {unit}", value) for value in sorted(offered) if value]
    return slider(name, [*pairs, ("no limit", _NONE)], start or _NONE)


def _power_smoothing_draw(
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


# Explore the spectrum of power, and which critical band it would keep.

_UNKNOWN = -1.0
_SENSORS = (
    ("instant", 0.0), ("1 s", 1.0), ("2 s", 2.0), ("10 s", 10.0), ("not known", _UNKNOWN),
)  # fmt: skip
_START = "critical band"


def power_spectrum(
    totals: pd.DataFrame,
    *,
    spec: GridSpec | None = None,
    step_s: float | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose a critical band, its cap, and what the sensor averages over; see the verdict.

    Starts at the band that is quoted most, 0.1 to 20 Hz with at most 20 % of the energy.

    Controls above :func:`workbench.plot.power_spectrum`.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    spec
        Where the controls of the band start.
    step_s
        Length of a training step in seconds, marked for comparison.
    """
    start = spec if spec and spec.band_share is not None else analyze.grid_spec(_START)
    spectra = cache(
        lambda averaging_s: analyze.power_spectrum(
            totals, averaging_s=None if averaging_s == _UNKNOWN else averaging_s
        )
    )
    label = {"step_s": step_s, "source": source, "synthetic": synthetic}
    return Explorer(
        partial(_power_spectrum_draw, totals=totals, spectra=spectra, label=label),
        low=numbers("band from [Hz]", (0.05, 0.1, 0.2), start.band_low_hz or 0.0),
        high=numbers("band to [Hz]", (0.25, 1, 3, 20), start.band_high_hz or 0.0),
        cap=numbers("limit of the band [%]", (10, 20, 30, 50), 100 * (start.band_share or 0.0)),
        averaging=widgets.Dropdown(
            options=_SENSORS, value=_UNKNOWN, description="sensor averages over"
        ),
    )


def _power_spectrum_draw(
    *,
    low: float,
    high: float,
    cap: float,
    averaging: float,
    totals: pd.DataFrame,
    spectra: Any,
    label: dict[str, Any],
) -> go.Figure:
    band = GridSpec("critical band", band_low_hz=low, band_high_hz=high, band_share=cap / 100)
    check = analyze.grid_check(
        totals, band, averaging_s=None if averaging == _UNKNOWN else averaging
    )
    spectrum = spectra(averaging)
    peaks = analyze.power_peaks(spectrum)
    return plot.power_spectrum(spectrum, peaks=peaks, check=check, **label)


# Explore which power limit a site should choose.

_CURVE = ["gpu", "job", "configuration"]
_BUDGETS_MW = (20, 30, 50, 75, 100, 150, 300, 500, 1000)  # the published network leaves room
_PUES = (1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.6, 2.0)
_FIXED_MW = (0, 0.5, 1, 5, 10, 15, 20, 40, 100)
_OVERHEADS_W = (0, 50, 100, 200, 300, 400, 500, 700, 1000)
_METHODS = ("linear", "power", "quadratic", "cubic")
_SHARES = (0.8, 0.85, 0.9, 0.95)
_SITE_VIEWS = (
    ("what the site gains", "site"),
    ("speed and energy of a GPU", "curve"),
    ("limits that stand out", "knees"),
)


def provisioning(
    curve: pd.DataFrame | None = None,
    *,
    start: PowerLog | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Move the budget of a site and what GPUs need beside their own power; see which limit wins.

    Starts at what a log has measured, else at the published case: 150 MW of GB200. Its network
    takes the published share, its overhead per GPU is what the published gain implies, and its
    PUE, which nobody published, is such that 960 W feed the published 83,000 GPUs. Below 1,000 W
    no speed was published; the control of the extrapolation shows how much of an answer there
    hangs on the guess.

    Controls above :func:`workbench.plot.provisioning`, :func:`workbench.plot.power_curve` of the
    chosen curve and :func:`workbench.plot.power_knees` of all curves that were passed.

    Parameters
    ----------
    curve
        Table :data:`workbench.tables.POWER_CURVE` with further curves to choose from, best few.
    start
        What :func:`workbench.load.power` returned: the budget starts at the peak of the sum and the
        overhead at what nodes draw beside their GPUs, where both have meters. The other
        controls, which no log tells, start at nothing, and their labels say that it is assumed.

    Raises
    ------
    TableError
        If ``curve`` is not that table.
    """
    curves = {"published, GB200": analyze.published_curve("gb200-meta")}
    passed = analyze.published_curve() if curve is None else curve
    if curve is not None:
        POWER_CURVE.check(curve)
        for key, own in curve.groupby(_CURVE, sort=False):
            curves[", ".join(str(item) for item in key)] = own.reset_index(drop=True)
    controls = _published_site() if start is None else _measured_site(start)
    draw = partial(
        _provisioning_draw,
        curves=curves,
        extended=cache(partial(_extended, curves)),
        knees=cache(partial(analyze.power_knees, passed)),
        gains=analyze.published_gains(),
        source=source,
        synthetic=synthetic,
    )
    names = list(curves)
    # One's own curve first: the published one is of another GPU.
    first = names[0 if start is None else min(1, len(names) - 1)]
    explorer = Explorer(
        draw,
        view=widgets.Dropdown(options=_SITE_VIEWS, description="view"),
        **controls,
        curve=widgets.Dropdown(options=names, value=first, description="curve"),
        method=widgets.Dropdown(options=_METHODS, description="extrapolation"),
    )
    return explorer.inert(
        curve=lambda chosen: chosen["view"] == "knees",
        **dict.fromkeys([*controls, "method"], lambda chosen: chosen["view"] != "site"),
    )


def _published_site() -> dict[str, widgets.Widget]:
    fact = analyze.provisioning_facts().set_index("quantity")["value"]
    budget = fact["site budget"]
    network_mw = fact["network share of the site"] * budget / 1e6
    overhead = fact["non-GPU power per GPU that +9 % implies"]
    return {
        "budget_mw": numbers("site budget [MW]", _BUDGETS_MW, budget / 1e6),
        "pue": numbers("PUE", _PUES, fact["PUE assumed"]),
        "fixed_mw": numbers("fixed IT load [MW]", _FIXED_MW, network_mw),
        "overhead": numbers("overhead per GPU [W]", _OVERHEADS_W, overhead),
    }


def _measured_site(log: PowerLog) -> dict[str, widgets.Widget]:
    """Offer budgets around a measured one; what no meter told is assumed, and its label says so."""
    sums = analyze.power_sum(analyze.power_of_scope(log.power, log.entities))
    budget_w, overhead_w = float(sums["power_w"].max()), None
    with suppress(WorkbenchError):  # few logs have both meters of a node and of its GPUs
        overhead_w = analyze.overhead_w_measured(log.power, log.entities)
    name, unit_w = ("MW", 1e6) if budget_w >= 1e6 else ("kW", 1e3)
    budgets = [(0.5, 1, 2, 5, 10, 50), (0, 0.02, 0.05, 0.1)]
    given, fixed = (
        [float(f"{factor * budget_w / unit_w:.3g}") for factor in factors] for factors in budgets
    )
    offered: list[list[tuple[str, object]]] = [
        [(f"{value:g}", value * unit_w / 1e6) for value in values] for values in (given, fixed)
    ]
    is_told = "assumed" if overhead_w is None else "measured"
    overhead = float(f"{overhead_w or 0.0:.3g}")
    return {
        "budget_mw": slider(f"budget [{name}], measured", offered[0], offered[0][1][1]),
        "pue": numbers("PUE, assumed", _PUES, 1.0),
        "fixed_mw": slider(f"fixed IT load [{name}], assumed", offered[1], 0.0),
        "overhead": numbers(f"overhead per GPU [W], {is_told}", _OVERHEADS_W, overhead),
    }


def _extended(
    curves: dict[str, pd.DataFrame], name: str, method: analyze.Extrapolation
) -> pd.DataFrame:
    limits = [round(share * curves[name]["limit_w"].max()) for share in _SHARES]
    return analyze.extended_curve(curves[name], limits, method=method)


def _provisioning_draw(
    *,
    view: str,
    budget_mw: float,
    pue: float,
    fixed_mw: float,
    overhead: float,
    curve: str,
    method: analyze.Extrapolation,
    curves: dict[str, pd.DataFrame],
    extended: Callable[..., pd.DataFrame],
    knees: Callable[[], pd.DataFrame],
    gains: pd.DataFrame,
    source: str,
    synthetic: bool,
) -> go.Figure:
    shown = curves[curve]
    if view == "knees" and len(curves) > 1:
        return plot.power_knees(knees(), source=source, synthetic=synthetic)
    is_published = bool((shown["basis"] == "published").all())
    where = Source(shown["source"].iloc[0], "published") if is_published else as_source(source)
    label: dict[str, Any] = {"source": where, "synthetic": synthetic and not is_published}
    if view == "knees":
        return plot.power_knees(knees(), **label)
    if view == "curve":
        return plot.power_curve(shown, **label)
    table = analyze.provisioning(
        extended(curve, method),
        budget_w=budget_mw * 1e6, pue_ratio=pue, fixed_w=fixed_mw * 1e6, overhead_w=overhead,
    )  # fmt: skip
    label["source"] = Source(f"closed form; {where}", where.origin)
    return plot.provisioning(table, published=gains if is_published else None, **label)


# Explore who is capped when a feed is short, and what demand response costs.

_MANAGEMENT_VIEWS = (("who is capped", "who"), ("what it costs", "cost"))
_POLICIES: tuple[tuple[str, PowerPolicy], ...] = (
    ("least cost first", "cost"),
    ("by priority", "priority"),
    ("by slack", "slack"),
)
_SHORT, _MINUTES = (0, 2, 5, 10, 15, 20, 25, 30, 40), (1, 2, 5, 10, 15, 30, 60)
_SHED_SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25)
_MOST_CELLS, _FEW_CELLS = 120_000, 6_000  # of loads at instants: of one answer, of many


def power_management(
    loads: pd.DataFrame, topology: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose a feed, how short it is and for how long, and who is cut first.

    Starts with the root 10 % short for 15 minutes.

    Controls above :func:`workbench.plot.power_management` or
    :func:`workbench.plot.demand_response`.

    Parameters
    ----------
    loads
        Table :data:`workbench.tables.POWER_LOADS`. Of very many loads and instants some instants
        are left out, evenly.
    topology
        Table :data:`workbench.tables.POWER_TOPOLOGY`.

    Raises
    ------
    TableError
        If ``loads`` or ``topology`` is not that table.
    """
    POWER_LOADS.check(loads, "loads")
    POWER_TOPOLOGY.check(topology, "topology")
    above = set(topology["parent"].dropna())
    feeds = [str(name) for name in topology["entity"] if name in above]
    label = {"source": source, "synthetic": synthetic}
    shown = _thinned(loads)
    demand = cache(partial(_demand, shown, topology))
    return Explorer(
        partial(_management_draw, loads=shown, topology=topology, demand=demand, label=label),
        view=widgets.Dropdown(options=_MANAGEMENT_VIEWS, description="view"),
        policy=widgets.Dropdown(options=_POLICIES, description="loads to cap"),
        feed=widgets.Dropdown(options=feeds, description="feed"),
        short=numbers("short by [% of its peak]", _SHORT, 10),
        duration=numbers("duration [min]", _MINUTES, 15),
    )


def _thinned(loads: pd.DataFrame, most: int = _MOST_CELLS) -> pd.DataFrame:
    times = pd.factorize(loads["time_ns"])[0]
    step = -(-len(loads) // most)
    return loads[times % step == 0].reset_index(drop=True) if step > 1 else loads


def _demand(loads: pd.DataFrame, topology: pd.DataFrame, feed: str) -> pd.DataFrame:
    """Return the draw of a feed without caps at every instant, with its own limit."""
    # By slack is the fastest, and demand is the same.
    table = analyze.power_management(loads, topology, policy="slack")
    return table[table["entity"] == feed].dropna(subset=["demand_w"])


def _management_draw(
    *,
    view: str,
    policy: PowerPolicy,
    feed: str,
    short: float,
    duration: float,
    loads: pd.DataFrame,
    topology: pd.DataFrame,
    demand: Callable[[str], pd.DataFrame],
    label: dict[str, Any],
) -> go.Figure:
    own, share = demand(feed), short / 100
    peak = own.iloc[int(own["demand_w"].to_numpy().argmax())]
    if view == "cost":
        others = [name for _, name in _POLICIES if name != policy]
        table = analyze.demand_response(
            _thinned(loads, _FEW_CELLS), topology, shed_shares=sorted({*_SHED_SHARES, share}),
            duration_min=duration, entity=feed, policies=[policy, *others],
        )  # fmt: skip
        return plot.demand_response(table, claimed_share=share, **label)
    # Around the highest demand, where it is hardest.
    start_min = (int(peak["time_ns"]) - int(loads["time_ns"].min())) / 60e9 - duration / 2
    shortage = FeedShortage(share, feed, max(start_min, 0.0), duration)
    managed = analyze.power_management(loads, topology, policy=policy, shortage=shortage)
    return plot.power_management(managed, **label)
