"""How far power moves inside a training step, over all steps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount, power_unit
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, distinct, finish, nothing
from workbench.plot._style.text import digits, percent, plural
from workbench.tables import POWER_SWINGS

_MEASURES = (("swing_w", "95th - 5th percentile"), ("range_w", "largest - smallest cell"))


def power_swings(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show which share of the steps swings by how much.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.POWER_SWINGS`.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        The empirical distribution of both measures of swing. The title states the median, its
        share of the mean power, and what one step in twenty exceeds.
    """
    POWER_SWINGS.check(table)
    rows = table[table["swing_w"].notna()]
    if rows.empty:
        return nothing(
            _why_nothing(table),
            claim="No swings to show",
            source=source,
            synthetic=synthetic,
        )
    factor, unit = power_unit(float(rows["range_w"].max()))
    figure = go.Figure()
    for position, (column, name) in enumerate(_MEASURES):
        values = np.sort(rows[column].to_numpy())
        share = np.arange(1, len(values) + 1) / len(values)
        keep = extremes(values)
        figure.add_scatter(
            x=values[keep] / factor, y=share[keep], mode="lines+markers" if len(keep) < 3 else
            "lines", name=name, line={**distinct(position), "shape": "hv", "width": 2.5},
            hovertemplate=f"%{{y:.1%}} of the steps: at most %{{x:.3g}} {unit}<extra></extra>",
        )  # fmt: skip
    middle, high = np.percentile(rows["swing_w"], [50, 95])
    figure.add_hline(y=0.5, line={"color": colour("neutral"), "dash": "dot", "width": 1})
    figure.update_xaxes(title=f"swing inside one step [{unit}]", rangemode="tozero")
    figure.update_yaxes(title="share of the steps [%]", tickformat=".0%", range=[0, 1.03])
    mean = float(rows["mean_w"].mean())
    claim = f"Power swings by {amount(float(middle))} in the median step"
    claim += f", {percent(middle / mean)} of its mean" if mean > 0 else ""
    claim += f"; one step in twenty by {amount(float(high))} or more"
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=_note(table, rows))


def _why_nothing(table: pd.DataFrame) -> str:
    if table.empty:
        return "There are no steps; analyze.power_swings(totals, step_s=...) takes windows instead."
    return "No step has two known cells; analyze.power_totals with a finer period may show more."


def _note(table: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Say how much the swings rest on."""
    cells = float(rows["cell_count"].median())
    note = f"{plural(len(rows), 'step')} of {digits(cells)} cells each; faster movement is unseen"
    if len(table) > len(rows):
        note += f" · {len(table) - len(rows):,} without two known cells left out"
    partly = int((rows["covered_share"] < 1).sum())
    return note + (f" · {partly:,} known in part" if partly else "")
