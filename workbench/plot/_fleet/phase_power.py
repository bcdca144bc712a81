"""Power of a usual step from its beginning to its end."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount, power_unit, share_text
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, finish, nothing
from workbench.plot._style.text import digits, plural
from workbench.tables import PHASE_POWER

_INSIDE = "in steps"


def phase_power(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the power of a usual step, and what is drawn outside of steps.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PHASE_POWER`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Mean power of each part of a step, with the band that holds 80 % of the samples, and a
        line for what lies outside of steps. The title states the lowest and the highest part.
    """
    PHASE_POWER.check(table)
    inside = table[(table["place"] == _INSIDE) & table["power_w"].notna()]
    if inside.empty:
        why = "No sample of power lies within a step."
        return nothing(why, claim="No power within steps", source=source, synthetic=synthetic)
    inside = inside.sort_values("first_share")
    factor, unit = power_unit(float(inside["power_w"].max()))
    figure = go.Figure()
    middle = (inside["first_share"] + inside["last_share"]).to_numpy() / 2
    keep = extremes(inside["power_w"].to_numpy(), 1_000)
    for name, column, look in (
        ("10 % are below", "low_w", {"dash": "dot", "width": 1}),
        ("10 % are above", "high_w", {"dash": "dash", "width": 1}),
        ("mean", "power_w", {"dash": "solid", "width": 3}),
    ):
        figure.add_scatter(
            x=middle[keep],
            y=inside[column].to_numpy(dtype=np.float64)[keep] / factor,
            mode="lines+markers" if column == "power_w" else "lines",
            name=name,
            line={"color": colour("productive"), **look},
            fill="tonexty" if column == "high_w" else None,
            fillcolor="#D9F0E9" if column == "high_w" else None,
            hovertemplate=f"%{{y:,.4~g}} {unit} at %{{x:.0%}} of a step<extra>{name}</extra>",
        )
    outside = table[(table["place"] != _INSIDE) & table["power_w"].notna()]
    if len(outside):
        level = float(outside["power_w"].iloc[0]) / factor
        figure.add_scatter(
            x=[0, 1],
            y=[level, level],
            mode="lines",
            name=f"outside of steps, mean {digits(level)} {unit}",
            line={"color": "#1A1A1A", "width": 2, "dash": "longdashdot"},
            hovertemplate=f"{digits(level)} {unit} outside of steps<extra></extra>",
        )
    figure.update_xaxes(title="how far the step has got [%]", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(title=f"power [{unit}]")
    figure.update_layout(hovermode="closest")
    return finish(
        figure, claim=_claim(inside), source=source, synthetic=synthetic, note=_note(table, inside)
    )


def _claim(inside: pd.DataFrame) -> str:
    low = inside.iloc[int(inside["power_w"].argmin())]
    high = inside.iloc[int(inside["power_w"].argmax())]
    ends = [(low, "lowest"), (high, "highest")]
    said = [
        f"{word} ({amount(float(row['power_w']))}) from {100 * row['first_share']:.3g} to "
        f"{100 * row['last_share']:.3g} %"
        for row, word in ends
    ]
    swing = 1 - float(low["power_w"]) / float(high["power_w"]) if high["power_w"] > 0 else 0.0
    return f"Power within a step is {said[0]}, {said[1]}: {share_text(swing)} between them"


def _note(table: pd.DataFrame, inside: pd.DataFrame) -> str:
    samples = int(inside["sample_count"].sum())
    missing = int(table["missing_count"].sum())
    note = f"{plural(samples, 'sample')} of all steps laid over each other"
    return note + (f" · {plural(missing, 'sample')} without power" if missing else "")
