"""Whether power stays within what a grid allows, as a card."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount
from workbench.plot._style.style import fill, finish, left_margin, nothing
from workbench.plot._style.text import digits, label, percent, plural, safe
from workbench.tables import GRID_CHECK

_MOST = 24
_BAR_PX = 46
# Bars of what is far beyond its limit end here; their numbers stand beside them.
_LONGEST = 3.0
_VERDICTS = {
    "fail": ("✕ fail", "limit"),
    "unknown": ("? unknown", "unknown"),
    "pass": ("✓ pass", "allowed"),
}


def grid_check(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show every requirement of a grid: what was measured against its limit, and the verdict.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GRID_CHECK`.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per requirement as a share of its limit, with verdict, numbers and margin in
        words. The title counts the verdicts.
    """
    GRID_CHECK.check(table)
    if table.empty:
        return nothing(
            "The specification has no requirements that could be checked.",
            claim="Nothing to check",
            source=source,
            synthetic=synthetic,
        )
    order = {name: place for place, name in enumerate(_VERDICTS)}
    rows = table.assign(_place=table["verdict"].map(order).fillna(len(order)))
    rows = rows.sort_values("_place", kind="stable", ignore_index=True).head(_MOST)
    used = (rows["measured"] / rows["limit"].where(rows["limit"] > 0)).fillna(0)
    figure = go.Figure()
    for verdict, (name, look) in _VERDICTS.items():
        places = [at for at, each in enumerate(rows["verdict"]) if each == verdict]
        if places:
            figure.add_bar(
                x=used.iloc[places].clip(upper=_LONGEST), y=places, orientation="h", name=name,
                marker=fill(look, bars=len(places)) | _border(verdict), width=0.34,
                hovertext=[label(why, 160) for why in rows["why"].iloc[places]],
                hovertemplate="%{hovertext}<extra></extra>",
            )  # fmt: skip
    for at, row in enumerate(rows.to_dict("records")):
        _words(figure, at, row)
    names = [label(each, 34) for each in rows["requirement"]]
    figure.add_vline(
        x=1, line={"color": "#000000", "width": 2, "dash": "dash"}, annotation_text="limit",
        annotation_position="top right",
    )  # fmt: skip
    figure.update_layout(height=_BAR_PX * len(rows) + 20, margin_l=left_margin(names))
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=names, range=[len(rows) - 0.4, -0.75],
        showgrid=False,
    )  # fmt: skip
    figure.update_xaxes(
        title="measured, of the limit [%]", tickformat=".0%",
        range=[0, max(min(float(used.max()), _LONGEST) * 1.05, 1.3)],
    )  # fmt: skip
    note = f"bars end at {_LONGEST:.0%} of their limit" if used.max() > _LONGEST else ""
    if len(table) > _MOST:
        note += f"{' · ' * bool(note)}{len(table) - _MOST:,} more requirements left out"
    return finish(figure, claim=_claim(table), source=source, synthetic=synthetic, note=note)


def _border(verdict: str) -> dict[str, object]:
    """Outline what failed, so that it stands out without colour."""
    return {"line": {"width": 2 if verdict == "fail" else 0, "color": "#000000"}}


def _words(figure: go.Figure, at: int, row: dict[Hashable, Any]) -> None:
    """Write verdict and numbers above a bar."""
    unit = str(row["unit"])
    measured = float(row["measured"])
    said = f"<b>{_VERDICTS.get(str(row['verdict']), (safe(row['verdict']), ''))[0]}</b>: "
    said += "not seen" if math.isnan(measured) else _number(measured, unit)
    said += f" of {_number(float(str(row['limit'])), unit)}"
    if not math.isnan(measured):
        margin = float(row["margin"])
        said += f", {_number(abs(margin), unit)} {'left' if margin >= 0 else 'too much'}"
    visible = float(row["visible_share"])
    if visible < 1:
        said += f" · {percent(visible)} of it can be seen"
    figure.add_annotation(
        x=0, y=at - 0.22, text=said, showarrow=False, xanchor="left", yanchor="bottom", xshift=2,
        font={"size": 11}, bgcolor="rgba(255,255,255,0.85)", borderpad=0,
    )  # fmt: skip


def _number(value: float, unit: str) -> str:
    """Write a number in its unit."""
    if unit == "share":
        return percent(value)
    if unit in ("W", "W/s"):
        return amount(value) + unit.removeprefix("W")
    return f"{digits(value)} {safe(unit)}"


def _claim(table: pd.DataFrame) -> str:
    """Count the verdicts, worst first."""
    counts = table["verdict"].value_counts()
    spec = label(table["spec"].iloc[0], 40)
    if len(table) == 1 and table["verdict"].iloc[0] in _VERDICTS:
        return f"{spec}: {_VERDICTS[table['verdict'].iloc[0]][0][2:]}"
    said = [f"{counts[name]:,} {name}" for name in _VERDICTS if counts.get(name, 0)]
    return f"{spec}: {', '.join(said) or 'no verdict'} of {plural(len(table), 'requirement')}"
