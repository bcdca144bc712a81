"""Goodput against the size of the job."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.goodput import CONVENTIONS
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, finish, nothing
from workbench.plot._style.text import digits, percent, safe
from workbench.tables import GOODPUT_AT_SCALE

_LINES = (
    ("replica_share", "only the failed replica restarts", "productive", "solid", "circle"),
    ("synchronous_share", "all GPUs restart", "more", "dash", "square"),
)


def goodput_at_scale(
    table: pd.DataFrame, *, at_gpus: int | None = None, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the productive share against the size of the job, with and without replicas.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_AT_SCALE`.
    at_gpus
        Size to mark and to read off; the largest by default.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Two lines over a logarithmic axis. The title reads off both at one size.
    """
    GOODPUT_AT_SCALE.check(table)
    if table.empty:
        return nothing(
            "The table has no sizes; analyze.goodput_at_scale makes them.",
            claim="No sizes to compare",
            source=source,
            synthetic=synthetic,
        )
    rows = table.sort_values("gpu_count", ignore_index=True)
    keep = extremes(rows["synchronous_share"].to_numpy())
    rows = rows.iloc[keep].reset_index(drop=True)
    size = rows["gpu_count"].to_numpy()
    figure = go.Figure()
    wanted = size.max() if at_gpus is None else at_gpus
    here = rows.iloc[int(np.argmin(np.abs(np.log(size / max(wanted, 1)))))]
    for column, words, meaning, dash, symbol in _LINES:
        figure.add_scatter(
            x=size,
            y=rows[column],
            mode="lines+markers" if len(rows) <= 40 else "lines",
            name=words,
            line={"color": colour(meaning), "dash": dash, "width": 2.5},
            marker={"symbol": symbol, "size": 7},
            customdata=rows[["failure_interval_min", "recovery_min", "replica_count"]].to_numpy(),
            hovertemplate=(
                f"{words}, %{{x:,}} GPUs: %{{y:.1%}}<br>a failure every %{{customdata[0]:.3g}} "
                "min, recovery %{customdata[1]:.3g} min, %{customdata[2]} replicas"
                "<extra></extra>"
            ),
        )
    figure.add_vline(
        x=float(here["gpu_count"]), line={"color": colour("neutral"), "width": 1, "dash": "dot"}
    )
    figure.update_xaxes(title="size of the job [GPUs]", type="log", tickformat=",.0~f", dtick="D2")
    figure.update_yaxes(title="productive share of GPU time [%]", tickformat=".0%", range=[0, 1.02])
    note = (
        f"there: a failure every {digits(here['failure_interval_min'])} min, recovery "
        f"{digits(here['recovery_min'])} min, {here['replica_count']} replicas · counted: "
        f"{safe(CONVENTIONS.get(str(here['convention']), here['convention']))}"
    )
    return finish(figure, claim=_claim(here), source=source, synthetic=synthetic, note=note)


def _claim(here: pd.Series) -> str:
    both = [here["synchronous_share"], here["replica_share"]]
    words = ["no answer" if pd.isna(each) else percent(float(each)) for each in both]
    return (
        f"At {int(here['gpu_count']):,} GPUs {words[0]} of the time is productive if all restart, "
        f"{words[1]} if replicas fail alone"
    )
