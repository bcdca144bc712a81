"""The estimate of a campaign as its sites come in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._pvf.estimand import estimand
from workbench.plot._style.chances import PVF_TITLE, chance, chances, numbers
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import COLOURS, finish, nothing
from workbench.plot._style.text import label, plural
from workbench.tables import PVF_RUNNING

_MOST_POINTS = 1_000


def pvf_running(
    table: pd.DataFrame, *, truth: float | None = None, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the estimate with its interval at every look, and when it was good enough to stop.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF_RUNNING`.
    truth
        The exhaustive factor, where it is known; drawn as a line.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A line with its band; dotted lines are the interval that takes inputs as independent,
        which is too narrow. The title states the last look and the first that was enough.
    """
    PVF_RUNNING.check(table)
    if table.empty:
        return nothing(
            "No site has been injected yet.",
            claim="No estimate yet",
            source=source,
            synthetic=synthetic,
        )
    ordered = table.sort_values("site_count", kind="stable", ignore_index=True)
    rows = ordered.iloc[extremes(ordered["pvf"].to_numpy(), _MOST_POINTS)]
    figure = go.Figure()
    _add_band(figure, rows)
    for column in ("independent_low", "independent_high"):
        figure.add_scatter(
            mode="lines", x=rows["site_count"], y=100 * rows[column], hoverinfo="skip",
            name="too narrow: inputs as independent" if column.endswith("low") else "upper end",
            showlegend=column.endswith("low"),
            line={"color": COLOURS["limit"], "width": 1.2,
                  "dash": "dot" if column.endswith("low") else "2px,2px"},
        )  # fmt: skip
    figure.add_scatter(
        mode="lines+markers" if len(rows) <= 60 else "lines",
        x=rows["site_count"],
        y=100 * rows["pvf"],
        name="estimate",
        line={"color": COLOURS["transfer"], "width": 2.5, "dash": "solid"},
        marker={"symbol": "circle", "size": 6, "color": COLOURS["transfer"]},
        hovertext=[
            f"{row['site_count']:,} sites: {chance(row['pvf'])} "
            f"({chances(row['low'], row['high'])}), {row['event_site_count']:,} with a wrong output"
            for _, row in rows.iterrows()
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    _add_lines(figure, ordered, truth)
    figure.update_xaxes(title="sites injected [count]", rangemode="tozero")
    figure.update_yaxes(title=f"{PVF_TITLE} [%]", range=_range(rows, truth))
    notes = ["band: interval, sites as the sample", *estimand(table)]
    return finish(
        figure, claim=_claim(ordered), source=source, synthetic=synthetic, note=" · ".join(notes)
    )


def _add_band(figure: go.Figure, rows: pd.DataFrame) -> None:
    known = rows[rows["low"].notna() & rows["high"].notna()]
    if known.empty:
        return
    figure.add_scatter(
        mode="lines",
        x=np.concatenate([known["site_count"], known["site_count"][::-1]]),
        y=100 * np.concatenate([numbers(known["low"]), numbers(known["high"])[::-1]]),
        fill="toself",
        fillcolor=COLOURS["backward"],
        opacity=0.35,
        name="interval, sites as the sample",
        line={"width": 0, "color": COLOURS["backward"], "dash": "longdash"},
        hoverinfo="skip",
    )


def _add_lines(figure: go.Figure, rows: pd.DataFrame, truth: float | None) -> None:
    if truth is not None:
        figure.add_hline(
            y=100 * truth, line={"color": COLOURS["dark"], "width": 1.5, "dash": "dash"},
            annotation_text=f"truth: {chance(truth)}", annotation_position="bottom right",
        )  # fmt: skip
    enough = rows[rows["is_enough"]]
    if len(enough):
        first = int(enough["site_count"].iloc[0])
        figure.add_vline(
            x=first, line={"color": COLOURS["productive"], "width": 1.5, "dash": "dashdot"},
            annotation_text=f"enough at {first:,}", annotation_position="top left",
        )  # fmt: skip


def _range(rows: pd.DataFrame, truth: float | None) -> list[float]:
    """Leave out the first looks, whose intervals would flatten all that follows."""
    settled = rows[rows["event_site_count"] > 0].iloc[-(-len(rows) // 5) :]
    settled = settled if len(settled) else rows
    tops = [settled["high"].max(), rows["pvf"].iloc[-1], settled["pvf"].max(), truth or 0.0]
    return [0.0, 110 * float(np.nanmax(tops)) or 1.0]


def _claim(rows: pd.DataFrame) -> str:
    last = rows.iloc[-1]
    sites = plural(int(last["site_count"]), "site")
    sites += "" if last["group"] == "all" else f" of {label(last['group'], 30)}"
    if last["pvf"] == 0:
        most = "" if pd.isna(last["high"]) else f": at most {chance(last['high'])}"
        return f"No wrong output in {sites} yet{most}"
    enough = rows[rows["is_enough"]]
    stop = (
        f"good enough after {int(enough['site_count'].iloc[0]):,}"
        if len(enough)
        else "not yet good enough to stop"
    )
    return f"{sites}: {chance(last['pvf'])} go wrong ({chances(last['low'], last['high'])}), {stop}"
