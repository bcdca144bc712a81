"""Explore traces: time breakdown, timeline, kernels and waits at collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import ipywidgets as widgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore.panel import ALL, Explorer, choice, chosen_rows, rank_choice
from workbench.tables import Trace

# Explore who waits for whom in the collectives, and what the late rank did before.


def collective_waits(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a view, a step and a process group; see who waits, for whom, and why.

    Starts with the waiting of every rank in all collectives. The group can be chosen
    where the trace records more than one. Clocks are set right first, if the ends of the
    collectives tell how far each is off; that can be switched off.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns, of several ranks.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.collective_waits`, :func:`workbench.plot.blame`
        and :func:`workbench.plot.late_arrivals`.

    Raises
    ------
    WorkbenchError
        If ``trace`` is something else, e.g. one of its tables.
    """
    given: object = trace
    if not isinstance(given, Trace):
        msg = f"a Trace is needed, not a {type(given).__name__}; pass what load.traces returns"
        raise WorkbenchError(msg)
    known = analyze.clocks(
        analyze.collectives(trace.events, process_groups=trace.process_groups)
    ).dropna(subset=["offset_ns"])

    @cache
    def waits(corrected: bool) -> pd.DataFrame:
        return analyze.collective_waits(
            trace.events,
            process_groups=trace.process_groups,
            clocks=known if corrected else None,
        )

    @cache
    def late(corrected: bool) -> pd.DataFrame:
        # All of them: what came before is found in steps and groups not chosen.
        events = analyze.on_one_clock(trace.events, known) if corrected else trace.events
        return analyze.late_arrivals(events, waits(corrected))

    tables = {"waits": waits, "late": late}
    switch = widgets.Checkbox(
        value=bool(known["is_sure"].all()), description="set clocks right", indent=False
    )
    communication = trace.events.loc[trace.events["kind"] == "communication", ["step", "group"]]
    groups = sorted(str(group) for group in communication["group"].dropna().unique())
    return Explorer(
        partial(_draw, tables=tables, source=source, synthetic=synthetic),
        view=widgets.Dropdown(
            options=[
                ("waiting per rank", "waits"),
                ("who waits for whom", "blame"),
                ("what the late rank did before", "late"),
            ],
            description="view",
        ),
        step=choice(
            "step", (int(step) for step in sorted(communication["step"].dropna().unique()))
        ),
        **({"group": choice("group", groups)} if len(groups) > 1 else {}),
        **({"corrected": switch} if len(known) else {}),
    )


def _draw(
    *,
    view: str,
    step: int | str,
    group: str = ALL,
    corrected: bool = False,
    tables: Mapping[str, Callable[[bool], pd.DataFrame]],
    source: str,
    synthetic: bool,
) -> go.Figure:
    name = "late" if view == "late" else "waits"
    rows = chosen_rows(tables[name](corrected), step=step, group=group)
    if view == "late":
        return plot.late_arrivals(rows, source=source, synthetic=synthetic)
    if view == "blame":
        return plot.blame(analyze.blame(rows), source=source, synthetic=synthetic)
    return plot.collective_waits(rows, source=source, synthetic=synthetic)


# Explore which kernels take the GPU time.


def kernels(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank, a kind of work and how many names to see; see what takes longest.

    Starts with the twelve largest of all ranks.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.kernels`.
    """
    table = cache(partial(analyze.kernels, trace.events))
    kinds = trace.events["kind"].cat.remove_unused_categories().cat.categories
    return Explorer(
        partial(_kernels_draw, table=table, source=source, synthetic=synthetic),
        rank=rank_choice(trace),
        kind=choice("kind", (str(kind) for kind in kinds)),
        top=widgets.Dropdown(options=[6, 12], value=12, description="names"),
    )


def _kernels_draw(
    *,
    rank: int | str,
    kind: str,
    top: int,
    table: Callable[[], pd.DataFrame],
    source: str,
    synthetic: bool,
) -> go.Figure:
    rows = chosen_rows(table(), rank=rank, kind=kind)
    return plot.kernels(rows, top=top, source=source, synthetic=synthetic)


# Explore where the GPU time goes.


def time_breakdown(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank, and whether its time is divided by step; see where the time goes.

    Starts with all ranks side by side.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.time_breakdown`.
    """
    table = cache(partial(analyze.time_breakdown, trace.events))
    return Explorer(
        partial(_time_breakdown_draw, table=table, source=source, synthetic=synthetic),
        rank=rank_choice(trace),
        by=widgets.Dropdown(options=["rank", "step"], description="divided by"),
    )


def _time_breakdown_draw(
    *,
    rank: int | str,
    by: str,
    table: Callable[..., pd.DataFrame],
    source: str,
    synthetic: bool,
) -> go.Figure:
    rows = chosen_rows(table(by=by), rank=rank)
    return plot.time_breakdown(rows, source=source, synthetic=synthetic)


# Explore what every stream and thread did when.


def timeline(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank and a window in time; see its events, the finer the narrower it is.

    Starts with everything. For zooming with the mouse see
    :func:`workbench.plot.timeline_live`.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.timeline`.
    """
    return Explorer(
        partial(_timeline_draw, trace=trace, source=source, synthetic=synthetic),
        rank=rank_choice(trace),
        window=_window_choice(trace),
    )


def _timeline_draw(
    *, rank: int | str, window: tuple[int, int], trace: Trace, source: str, synthetic: bool
) -> go.Figure:
    return plot.timeline(
        trace.events,
        ranks=None if rank == ALL else [int(rank)],
        start_ns=window[0],
        end_ns=window[1],
        max_points=2_000,
        source=source,
        synthetic=synthetic,
    )


def _window_choice(trace: Trace, *, parts: int = 200) -> widgets.SelectionRangeSlider:
    """Offer the time from the first event to the end of the last in equal parts."""
    first, last = (trace.events["start_ns"], trace.events["start_ns"] + trace.events["dur_ns"])
    start = int(first.min()) if len(first) else 0
    span = int(last.max()) - start if len(last) else 1
    cuts = np.unique(start + np.arange(parts + 1) * span // parts).tolist()
    return widgets.SelectionRangeSlider(
        options=[(f"{(cut - start) / 1e6:,.5g}", cut) for cut in cuts],
        index=(0, len(cuts) - 1),
        description="window [ms]",
        continuous_update=False,
    )
