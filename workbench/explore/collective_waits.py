"""Explore who waits for whom in the collectives, and what the late rank did before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore._controls import ALL, choice, chosen_rows
from workbench.explore._panel import Explorer
from workbench.tables import Trace


def collective_waits(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a view, a step and a process group; see who waits, for whom, and why.

    Starts with the waiting of every rank in all collectives. The group can be chosen
    where the trace records more than one. Clocks are set right first, if the ends of the
    collectives tell how far each is off; that can be switched off.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns, of several ranks.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

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
