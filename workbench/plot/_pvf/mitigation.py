"""What a protection removes: the same faults with and without it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.chances import Chances, axis_of, chance, chances, row_with, segments
from workbench.plot._style.style import COLOURS, distinct, finish, left_margin, nothing
from workbench.plot._style.text import label, plural, safe, short
from workbench.tables import PVF_MITIGATION

_MOST, _MOST_KINDS, _ROW_PX = 30, 8, 40
_SYMBOLS = ("square", "diamond", "triangle-up", "cross", "x", "star", "hexagon", "pentagon")
_NONE = "none"


def pvf_mitigation(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the share of wrong outputs of the same faults with each mitigation and without.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF_MITIGATION`.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One row per group and mitigation with its interval and what it removes. The title
        names what removes most.
    """
    PVF_MITIGATION.check(table)
    if table.empty:
        return nothing(
            "The table has no mitigations; pass what analyze.pvf_mitigation returns.",
            claim="No mitigations to compare",
            source=source,
            synthetic=synthetic,
        )
    drawn = table.head(_MOST).reset_index(drop=True)
    axis = axis_of(drawn["pvf"], drawn["low"], drawn["high"])
    figure = go.Figure()
    x, y = segments(axis.place(drawn["low"]), axis.place(drawn["high"]), list(drawn.index))
    if x:
        figure.add_scatter(
            mode="lines", x=x, y=y, name="interval", hoverinfo="skip",
            line={"color": COLOURS["dark"], "width": 2.5, "dash": "solid"},
        )  # fmt: skip
    kinds = sorted(drawn["mitigation"].unique(), key=lambda kind: kind != _NONE)
    for at, kind in enumerate(kinds):
        _add_kind(figure, drawn[drawn["mitigation"] == kind], axis, kind=kind, at=at)
    names = [_name(row) for _, row in drawn.iterrows()]
    figure.update_layout(
        height=max(len(drawn), 2) * _ROW_PX, margin_l=left_margin(names), hovermode="closest"
    )
    figure.update_xaxes(**axis.axis())
    figure.update_yaxes(
        tickvals=list(range(len(drawn))), ticktext=names, range=[len(drawn) - 0.5, -0.5]
    )
    hidden = len(table) - len(drawn)
    notes = ["the same faults with and without", "removed: over the wrong outputs without"]
    notes += [f"{plural(hidden, 'row')} left out"] if hidden else []
    return finish(
        figure, claim=_claim(table), source=source, synthetic=synthetic, note=" · ".join(notes)
    )


def _add_kind(figure: go.Figure, rows: pd.DataFrame, axis: Chances, *, kind: str, at: int) -> None:
    colour = COLOURS["sdc"] if kind == _NONE else distinct(at)["color"]
    symbol = "circle" if kind == _NONE else _SYMBOLS[at % len(_SYMBOLS)]
    figure.add_scatter(
        mode="markers",
        x=axis.place(rows["pvf"]),
        y=rows.index.to_numpy(),
        name="without" if kind == _NONE else label(kind, 24),
        marker={
            # Where nothing goes wrong any more the mark is open.
            "symbol": [f"{symbol}-open" if p == 0 else symbol for p in rows["pvf"]],
            "size": 11, "color": colour, "line": {"width": 1.5, "color": colour},
        },
        hovertext=[_hover(row) for _, row in rows.iterrows()],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip


def _name(row: pd.Series) -> str:
    if row["mitigation"] == _NONE:
        return f"{safe(short(row['group'], 40))}<br><i>without</i>"
    removed = "" if pd.isna(row["removed_ratio"]) else f": {_removed(row['removed_ratio'])}"
    return f"{safe(short(row['group'], 40))}<br><i>{label(row['mitigation'], 24)}{removed}</i>"


def _removed(ratio: float) -> str:
    return f"removes {chance(ratio)}" if ratio >= 0 else f"adds {chance(-ratio)}"


def _hover(row: pd.Series) -> str:
    lines = [
        f"{label(row['group'], 80)}, {label(row['mitigation'], 40)}",
        f"PVF {chance(row['pvf'])} ({chances(row['low'], row['high'])})",
        f"{plural(int(row['site_count']), 'site')} in both campaigns",
    ]
    if not pd.isna(row["removed_ratio"]):
        ends = [row["removed_low"], row["removed_high"]]
        known = "" if np.isnan(ends).any() else f" ({100 * ends[0]:.3g} to {100 * ends[1]:.3g} %)"
        lines.append(f"{_removed(row['removed_ratio'])}{known}")
    if not pd.isna(row["golden_metric"]):
        lines.append(f"quality without faults: {row['golden_metric']:.4g}")
    return "<br>".join(lines)


def _claim(table: pd.DataFrame) -> str:
    known = table[(table["mitigation"] != _NONE) & table["removed_ratio"].notna()]
    if known.empty:
        return "Nothing went wrong without a mitigation, so none can remove anything"
    best = row_with(known, "removed_ratio")
    if best["removed_ratio"] <= 0:
        return "No mitigation removes wrong outputs"
    return (
        f"{label(best['mitigation'], 30)} removes most: {chance(best['removed_ratio'])} of the "
        f"wrong outputs in {label(best['group'], 30)}"
    )
