"""How busy the GPU is over time, measured and replayed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, finish, nothing
from workbench.plot._style.text import duration, percent, plural, safe
from workbench.tables import GPU_BUSY


def gpu_busy(
    measured: pd.DataFrame,
    replayed: pd.DataFrame | None = None,
    *,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show the busy share of the GPU over time, and beside it that of a replay.

    Parameters
    ----------
    measured
        Table :data:`workbench.tables.GPU_BUSY`; of several ranks their mean is drawn.
    replayed
        The same of :func:`workbench.analyze.replayed_events`, with bins of the same width.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A stepped line, and a dashed one for the replay. The title states both means.
    """
    curves = {"measured": _mean(measured)}
    if replayed is not None:
        curves["replayed"] = _mean(replayed)
    if curves["measured"].empty:
        return nothing(
            "The table has no bins of time; pass what analyze.gpu_busy returns.",
            claim="No GPU work to show",
            source=source,
            synthetic=synthetic,
        )
    first = min(int(curve.index.min()) for curve in curves.values() if len(curve))
    looks = {"measured": ("gpu work", "solid", 2.5), "replayed": ("attention", "2px,2px", 1.5)}
    figure = go.Figure()
    for name, curve in curves.items():
        keep = extremes(curve.to_numpy())
        meaning, dash, width = looks[name]
        figure.add_scatter(
            x=(curve.index.to_numpy()[keep] - first) / 1e6, y=100 * curve.to_numpy()[keep],
            mode="lines", name=name,
            line={"color": colour(meaning), "dash": dash, "width": width, "shape": "hv"},
            hovertemplate="%{x:,.4~g} ms: %{y:.0f} %<extra>" + name + "</extra>",
        )  # fmt: skip
    figure.update_xaxes(title="time since the first GPU work [ms]", tickformat=",")
    figure.update_yaxes(title="GPU busy [%]", range=[0, 103])
    notes = _notes(measured, curves["measured"])
    return finish(
        figure, claim=_claim(curves), source=source, synthetic=synthetic, note=" · ".join(notes)
    )


def _mean(table: pd.DataFrame) -> pd.Series:
    return GPU_BUSY.check(table).groupby("start_ns")["busy_share"].mean()


def _notes(table: pd.DataFrame, curve: pd.Series) -> list[str]:
    notes = []
    if len(curve) > 1:
        notes.append(f"bins of {duration(float(np.diff(curve.index.to_numpy()).min()))}")
    if (count := table["rank"].nunique()) > 1:
        notes.append(f"mean of {plural(count, 'rank')}")
    return notes


def _claim(curves: dict[str, pd.Series]) -> str:
    means = {
        name: safe(percent(float(curve.mean()))) for name, curve in curves.items() if len(curve)
    }
    claim = f"The GPU is busy {means['measured']} of the time"
    return claim + (f", {means['replayed']} in the replay" if "replayed" in means else "")
