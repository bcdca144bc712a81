"""What the steps of a trace would take in other configurations, part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.said import is_doubtful
from workbench.plot._style.style import colour, fill, finish, left_margin, nothing
from workbench.plot._style.text import (
    digits,
    duration,
    label,
    percent,
    plural,
    safe,
    short,
    time_unit,
)
from workbench.tables import LAYOUT_WHAT_IF

_MOST_ROWS, _ROW_PX, _NAME = 20, 34, 46
# Column without its unit -> meaning, as in other figures of where time goes.
_PARTS = {
    "compute": "compute",
    "communication": "exposed communication",
    "bubble": "bubble",
    "other": "other",
    "idle": "idle",
}
_AS_IS = "as in the trace"


def layout_what_if(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what a step would take in other configurations, and of what it would consist.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.LAYOUT_WHAT_IF`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar per configuration, most tokens per second on top, those that do not fit at the
        end; a whisker for its interval, a line at the measured step. The title names the
        fastest that fits.
    """
    LAYOUT_WHAT_IF.check(table)
    if table.empty:
        return nothing(
            "The table has no configurations; pass what analyze.layout_what_if returns.",
            claim="No configurations to compare",
            source=source,
            synthetic=synthetic,
        )
    rows = table.assign(_not=~table["fits"]).sort_values(
        ["_not", "throughput_ratio"], ascending=[True, False], kind="stable"
    )
    shown = rows.head(_MOST_ROWS).reset_index(drop=True)
    longest = float(shown[["measured_ns", "dur_ns", "high_ns"]].astype("Float64").max().max())
    per_unit, unit = time_unit(longest)
    place = shown.index.to_numpy()
    figure = go.Figure()
    for part, meaning in _PARTS.items():
        values = shown[f"{part}_ns"].to_numpy(dtype=np.float64)
        if values.any() or part == "compute":
            figure.add_bar(
                orientation="h", x=values / per_unit, y=place, name=meaning, marker=fill(meaning),
                hovertext=[
                    f"{label(row['change'], 90)}<br>{duration(row[f'{part}_ns'])} "
                    f"{safe(row[f'{part}_basis'])}" for row in shown.to_dict("records")
                ],
                hovertemplate="%{hovertext}<extra>" + meaning + "</extra>",
            )  # fmt: skip
    figure.add_scatter(**_ends(shown, per_unit))
    measured = float(shown["measured_ns"].iloc[0])
    figure.add_vline(
        x=measured / per_unit, line={"color": colour("dark"), "width": 1.5, "dash": "dash"}
    )
    ticks = [_tick(row) for row in shown.to_dict("records")]
    figure.update_layout(
        barmode="stack", bargap=0.3, hovermode="closest", margin_l=left_margin(ticks),
        height=max(len(ticks), 3) * _ROW_PX,
    )  # fmt: skip
    figure.update_xaxes(
        title=f"median time of a step [{unit}]", range=[0, 1.5 * longest / per_unit]
    )
    figure.update_yaxes(
        tickvals=list(range(len(ticks))), ticktext=[safe(tick) for tick in ticks],
        range=[len(ticks) - 0.5, -0.5], showgrid=False,
    )  # fmt: skip
    return finish(
        figure, claim=_claim(rows), source=source, synthetic=synthetic,
        note=" · ".join(_notes(table, shown, measured)),
        is_doubtful=is_doubtful(rows[rows["fits"]].head(1)),
    )  # fmt: skip


def _ends(rows: pd.DataFrame, per_unit: int) -> dict[str, Any]:
    """Write behind every bar what it means, and draw its interval."""
    values, low, high = (
        rows[name].to_numpy(dtype=np.float64, na_value=np.nan) / per_unit
        for name in ("dur_ns", "low_ns", "high_ns")
    )
    known = ~np.isnan(low + high)
    return {
        "mode": "markers+text",
        "x": values,
        "y": rows.index.to_numpy(),
        "marker": {"color": colour("dark"), "size": 4, "symbol": "line-ns"},
        "error_x": {
            "array": np.where(known, np.maximum(high - values, 0), 0),
            "arrayminus": np.where(known, np.maximum(values - low, 0), 0),
            "visible": bool(known.any()), "width": 4, "thickness": 1.5, "color": colour("dark"),
        },
        "text": [f"    {_said(row)}" for row in rows.to_dict("records")],
        "textposition": "middle right",
        "cliponaxis": False,
        "showlegend": False,
        "hoverinfo": "skip",
    }  # fmt: skip


def _tick(row: dict[Any, Any]) -> str:
    return short(row["change"], _NAME) + (" *" if _is_modelled(row) else "")


def _is_modelled(row: dict[Any, Any]) -> bool:
    return any(row[f"{part}_basis"] == "modelled" for part in _PARTS)


def _said(row: dict[Any, Any]) -> str:
    words = f"{duration(row['dur_ns'])}, {row['throughput_ratio']:.2f} ×, MFU "
    words += percent(row["mfu_share"])
    return words if row["fits"] else f"{words}, does not fit"


def _claim(rows: pd.DataFrame) -> str:
    if not rows["fits"].any():
        least = digits(float(rows["memory_bytes"].min()) / 1e9)
        return f"None of these configurations fits; the leanest needs {least} GB per GPU"
    best = rows[rows["fits"]].iloc[0]
    times = f"{duration(best['dur_ns'])} per step"
    if best["change"] == _AS_IS or best["throughput_ratio"] <= 1:
        return "No configuration that was asked for trains faster than that of the trace"
    factor = f"{best['throughput_ratio']:.2f} × the tokens per second"
    return f"{label(best['change'], 50)} is the fastest that fits: {times}, {factor}"


def _notes(table: pd.DataFrame, shown: pd.DataFrame, measured: float) -> list[str]:
    notes = [f"dashed: measured, {duration(measured)}", "×: tokens per second, of those measured"]
    if any(_is_modelled(row) for row in shown.to_dict("records")):
        notes.append("* holds a part that is not in the trace, but modelled")
    steps = plural(int(shown["step_count"].iloc[0]), "step")
    if shown["low_ns"].notna().any():
        notes.append(f"whiskers: how much {steps} vary, not how far the model is off")
    else:
        notes.append(f"no interval from {steps}")
    told = table["doubt"].str.split("; ").explode()
    if len(doubts := told[told != ""].value_counts().index.tolist()):
        notes.append(f"unsure: {label(doubts[0], 120)}")
    if hidden := len(table) - len(shown):
        notes.append(f"{plural(hidden, 'configuration')} left out")
    return notes
