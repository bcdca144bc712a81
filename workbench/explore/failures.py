"""Explore failures: incidents, hangs, checkpoints, spares and lemon nodes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import ipywidgets as widgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot, simulate
from workbench.analyze import FaultTolerance
from workbench.errors import WorkbenchError
from workbench.explore._goodput import Measured
from workbench.explore.panel import ALL, Explorer, choice, chosen_rows, numbers, prepared
from workbench.plot._style.text import seconds
from workbench.tables import FailureLog, FlightRecording, Source

_WRITES = (0.1, 0.25, 0.5, 1, 2, 5)


def checkpoint_curve(
    *,
    failure_interval_min: float = 180,
    recovery_min: float = 5,
    write_min: float = 1,
    start: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Move failure interval, recovery and writing time; find the best checkpoint interval.

    Controls above :func:`workbench.plot.checkpoint_curve`.

    Parameters
    ----------
    failure_interval_min
        Where its control starts, in minutes.
    recovery_min
        Where its control starts, in minutes.
    write_min
        Where its control starts, in minutes.
    start
        Table :data:`workbench.tables.GOODPUT_INPUTS` of :func:`workbench.analyze.goodput_inputs`,
        used instead. Labels say which inputs were measured and which are assumed.
    source, synthetic
        Where ``start`` comes from, and whether it was generated; the figure says both.
    """
    measured = Measured.of(start, source, synthetic=synthetic)
    model = "closed form (Daly)"
    label = (
        measured.label(model)
        if measured
        else {"source": Source(model, "model"), "synthetic": False}
    )

    def draw(*, interval: float, write: float, recovery: float) -> go.Figure:
        case = {"failure_interval_min": interval, "recovery_min": recovery, "write_min": write}
        curve = analyze.checkpoint_curve(np.geomspace(0.5, max(4 * interval, 60), 60), **case)
        marks = analyze.checkpoint_optimum(**case)
        if measured and (now := measured.inputs.get("checkpoint_interval_min")):
            logged = analyze.checkpoint_curve([now], **case)[list(marks.columns[1:])]
            marks = pd.concat([marks, logged.assign(method="as logged")], ignore_index=True)
        return plot.checkpoint_curve(curve, optimum=marks, **label)

    if measured:
        recoveries = (1, 5, 10, 20)
        return Explorer(
            draw,
            # The closed form takes failures as a Poisson process: time up, without recoveries.
            interval=measured.control("time to failure [min]", "time_to_failure_min"),
            write=measured.control(
                "writing one [min]", "checkpoint_write_min", otherwise=_WRITES, start=1
            ),
            recovery=measured.control("recovery [min]", "recovery_min", otherwise=recoveries),
        )
    intervals = (18, 30, 60, 120, 180, 360, 720)
    return Explorer(
        draw,
        interval=numbers("time between failures [min]", intervals, failure_interval_min),
        write=numbers("writing one [min]", _WRITES, write_min),
        recovery=numbers("recovery [min]", (1, 5, 10, 20), recovery_min),
    )


_VIEWS = {
    "suspects": ("suspects", analyze.flight_suspects, plot.flight_suspects),
    "waits": ("who waits for whom", analyze.flight_waits, plot.flight_waits),
    "positions": ("what is pending", analyze.flight_positions, plot.flight_positions),
}


def flight_suspects(
    recording: FlightRecording, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose a view of a hang, and a process group; see whom it comes from and why.

    Starts with the suspects, which are found in all groups together. The group matters to
    the other views.

    Controls above :func:`workbench.plot.flight_suspects`,
    :func:`workbench.plot.flight_waits` and :func:`workbench.plot.flight_positions`.
    Groups are offered in which something is pending.

    Parameters
    ----------
    recording
        What :func:`workbench.load.flight_recorder` returns.

    Raises
    ------
    WorkbenchError
        If ``recording`` is something else, e.g. one of its tables.
    """
    _refuse_others(recording, FlightRecording, "load.flight_recorder returns")
    tables = prepared(
        lambda view: _VIEWS[view][1](recording),
        [(view,) for view in _VIEWS],
        row_count=len(recording.entries),
    )

    def draw(*, view: str, group: str) -> go.Figure:
        # Suspects are found in all groups together.
        rows = tables(view)
        if view != "suspects":
            rows = chosen_rows(rows, group=group)
        return _VIEWS[view][2](rows, source=source, synthetic=synthetic)

    pending = recording.entries.loc[recording.entries["state"] != "completed", "group"]
    groups = sorted({str(group) for group in pending.dropna()}, key=_by_number)
    return Explorer(
        draw,
        view=widgets.Dropdown(
            options=[(words, view) for view, (words, *_) in _VIEWS.items()], description="view"
        ),
        group=choice("group", groups),
    ).inert(group=lambda values: values["view"] == "suspects")


def _by_number(group: str) -> tuple[bool, int, str]:
    return (not group.isdecimal(), int(group) if group.isdecimal() else 0, group)


def _refuse_others(value: object, wanted: type, source: str) -> None:
    if not isinstance(value, wanted):
        is_not = f"a {wanted.__name__} is needed, not a {type(value).__name__}"
        msg = f"{is_not}; pass what {source}"
        raise WorkbenchError(msg)


_WINDOWS_S = (0, 10, 60, 300, 1800)
_INCIDENTS_VIEWS = (("timeline", "timeline"), ("counts by window", "counts"))


def incidents(log: FailureLog, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose the longest pause inside an incident, and a category; see what failed when.

    Starts at 300 s with all categories, of one reporter if several may have told of the same
    failures.

    Controls above :func:`workbench.plot.incidents` and
    :func:`workbench.plot.incident_counts`. The category is that of the line that leads
    an incident; the window matters to the timeline only.

    Parameters
    ----------
    log
        What :func:`workbench.load.failures` returns with ``window_s=0``. If it was folded
        when it was loaded, shorter windows change nothing.

    Raises
    ------
    WorkbenchError
        If ``log`` is a table instead of what was loaded.
    """
    _refuse_others(log, FailureLog, "load.failures gives")
    categories, reporters = (
        sorted(map(str, log.failures[column].unique())) for column in ("category", "kind")
    )
    rows = cache(lambda kind: chosen_rows(log.failures, kind=kind))
    folded = cache(lambda kind, window_s: analyze.incidents(rows(kind), window_s=window_s))
    counts = prepared(
        lambda kind: analyze.incident_counts(rows(kind), windows_s=_WINDOWS_S),
        [(kind,) for kind in (ALL, *reporters)],
        row_count=len(log.failures),
    )
    kinds = choice("reported by", reporters)
    kinds.value = _first_kind(log.failures)

    def draw(*, view: str, window_s: float, category: str, kind: str) -> go.Figure:
        table = counts(kind) if view == "counts" else folded(kind, window_s)
        show = plot.incident_counts if view == "counts" else plot.incidents
        return show(chosen_rows(table, category=category), source=source, synthetic=synthetic)

    return Explorer(
        draw,
        view=widgets.Dropdown(options=_INCIDENTS_VIEWS, description="view"),
        window_s=widgets.SelectionSlider(
            options=[(f"{window} s", window) for window in _WINDOWS_S],
            value=300,
            description="longest pause",
        ),
        category=choice("category", categories),
        kind=kinds,
    )


def _first_kind(failures: pd.DataFrame) -> str:
    """Begin with one reporter if several may have told of the same failures."""
    kinds = analyze.reported_by(failures)["kind"].unique()
    return str(kinds[0]) if len(kinds) == 1 < failures["kind"].nunique() else ALL


_DAYS = (7, 14, 30, 54, 90, 180)
_FALSE = (("1 %", 0.01), ("5 %", 0.05), ("10 %", 0.1), ("20 %", 0.2))


def lemon_nodes(
    failures: pd.DataFrame, nodes: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose the false discovery rate and the time watched; see which nodes stand out.

    Starts with the whole observation at 5 %. Go back to its first week: the same bad nodes
    are there, and nothing shows.

    Controls above :func:`workbench.plot.lemon_nodes` and :func:`workbench.plot.lemon_recall`.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`.
    nodes
        Table :data:`workbench.tables.NODE_SPANS` with all nodes watched, failed or not.

    Raises
    ------
    WorkbenchError
        If a node has no time over which it was watched, or a failed node is not among them.
    """
    rate = analyze.failure_rates(failures, nodes=nodes).iloc[0]
    watched = float(rate["exposure_node_days"]) / int(rate["node_count"])

    @cache
    def lemons(days: float | str, false_discovery: float) -> pd.DataFrame:
        rows, spans = failures, nodes
        if days != ALL:
            rows, spans = analyze.first_days(failures, nodes, days=float(days))
        return analyze.lemon_nodes(rows, nodes=spans, false_discovery_share=false_discovery)

    def draw(*, view: str, days: float | str, false_discovery: float) -> go.Figure:
        if view == "nodes":
            table = lemons(days, false_discovery)
            return plot.lemon_nodes(table, source=source, synthetic=synthetic)
        recall = analyze.lemon_recall(
            int(rate["node_count"]),
            float(rate["per_1000_node_days"]),
            false_discovery_share=false_discovery,
        )
        return plot.lemon_recall(recall, source=source, synthetic=synthetic)

    views = [("nodes", "nodes"), ("how long to watch", "recall")]
    spans: list[tuple[str, object]] = [(f"all, {seconds(86_400 * watched)} on average", ALL)]
    spans += [(f"the first {days}", days) for days in _DAYS if days < watched]
    return Explorer(
        draw,
        view=widgets.Dropdown(options=views, description="view"),
        days=widgets.Dropdown(options=spans, description="days watched"),
        false_discovery=widgets.Dropdown(
            options=list(_FALSE), value=0.05, description="false discovery rate"
        ),
    )


def spares(
    job: FaultTolerance | None = None,
    *,
    failure_interval_min: float = 18,
    seed: int = 1,
    start: pd.DataFrame | None = None,
    source: str = "",
) -> Explorer:
    """Move repair time, failure interval and replicas; see how many spare nodes are enough.

    Every redraw draws failures over 27 days and replays them.

    Controls above :func:`workbench.plot.spares`.

    Parameters
    ----------
    job
        Where the controls start; the published case by default.
    failure_interval_min
        Where its control starts, in minutes.
    seed
        Seed of the failures.
    start
        Table :data:`workbench.tables.GOODPUT_INPUTS` of :func:`workbench.analyze.goodput_inputs`,
        used instead of ``job``.
    source
        Where ``start`` comes from; the figure says so, and that its failures are simulated.
    """
    drawn = Source(f"simulated: 27 days, 2 runs, seed {seed}", "model")
    repairs, replicas = (0.5, 1, 2), (1, 6, 12, 24)
    if measured := Measured.of(start, source, synthetic=True):
        base = measured.job()
        return Explorer(
            partial(_draw_spares, base=base, seed=seed, source=measured.source.joined(drawn)),
            repair=measured.control("repair [days]", "repair_days", otherwise=repairs, start=1),
            interval=measured.control("time to failure [min]", "time_to_failure_min"),
            replicas=measured.control("replicas", "replicas", otherwise=replicas, start=1),
        )
    base = job or FaultTolerance()
    return Explorer(
        partial(_draw_spares, base=base, seed=seed, source=drawn),
        repair=numbers("repair [days]", repairs, 2),
        interval=numbers("time between failures [min]", (18, 30, 60, 120), failure_interval_min),
        replicas=numbers("replicas", replicas, base.replicas),
    )


def _draw_spares(
    *,
    repair: float,
    interval: float,
    replicas: float,
    base: FaultTolerance,
    seed: int,
    source: Source,
) -> go.Figure:
    horizon = 27 * 1440.0
    job = replace(base, replicas=int(replicas))
    process = simulate.FailureProcess(failure_interval_min=interval, repair_min=repair * 1440)
    drawn = simulate.failure_times(
        process, horizon_min=horizon, seed=seed, runs=2, replicas=int(replicas),
        recovery_min=base.recovery_total_min,
    )  # fmt: skip
    load = repair * 1440 / interval
    counts = sorted({round(load * share) for share in (0.6, 0.8, 0.9, 1, 1.1, 1.2, 1.35, 1.5)})
    table = analyze.spares(drawn, job, counts, horizon_min=horizon)
    return plot.spares(table, source=source, synthetic=True)
