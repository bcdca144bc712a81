"""Where the energy of a run went."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount, power_unit, seconds, share_text
from workbench.plot._style.style import fill, finish, left_margin, nothing
from workbench.plot._style.text import label, plural
from workbench.tables import ENERGY_WASTE

_ROW_PX = 34
_USEFUL = "useful steps"
_MOST_STATES = 24
# Less than this share of the energy is summed up in words instead of drawn as a bar.
_LEAST_SHARE = 0.0005
# Room for words right of the longest bar, as a part of the axis.
_WORDS = 1.3


def energy_waste(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show where the energy of a run went, each state beginning where the one above ends.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.ENERGY_WASTE`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A waterfall from left to right, one row per state; its end is the energy of the run. The
        title states the share of useful steps and the largest of the others.
    """
    ENERGY_WASTE.check(table)
    whole = float(table["energy_j"].sum())
    if whole <= 0:
        why = "No energy is known of any state: power covers nothing of the run."
        return nothing(why, claim="No energy to take apart", source=source, synthetic=synthetic)
    begins = table["energy_j"].cumsum() - table["energy_j"]
    largest = table["energy_j"].nlargest(_MOST_STATES).index
    least = min(_LEAST_SHARE * whole, float(table["energy_j"].max()))
    is_drawn = table.index.isin(largest) & (table["energy_j"] >= least)
    drawn = table.assign(begin_j=begins)[is_drawn].reset_index(drop=True)
    factor, unit = power_unit(whole, "J")
    figure = go.Figure()
    is_useful = (drawn["state"] == _USEFUL).to_numpy()
    for name, mine in ((_USEFUL, is_useful), ("all else", ~is_useful)):
        if mine.any():
            figure.add_bar(**_bars(drawn[mine], factor, unit, name), name=name)
    for row, each in enumerate(drawn.to_dict("records")):
        figure.add_annotation(
            x=(each["begin_j"] + each["energy_j"]) / factor, y=row, xanchor="left", xshift=6,
            text=f"{amount(each['energy_j'], 'J')} · {share_text(each['energy_j'] / whole)}",
            showarrow=False,
        )  # fmt: skip
    names = [label(name, 30) for name in drawn["state"]]
    figure.update_layout(
        height=max(len(names), 3) * _ROW_PX, margin_l=left_margin(names), bargap=0.3,
        hovermode="closest", barmode="overlay",
    )  # fmt: skip
    ticks = {"tickvals": list(range(len(names))), "ticktext": names}
    figure.update_yaxes(**ticks, range=[len(names) - 0.4, -0.6])
    figure.update_xaxes(
        title=f"energy, summed from the top down [{unit}]", range=[0, _WORDS * whole / factor]
    )
    note = _note(table, len(table) - len(drawn))
    return finish(figure, claim=_claim(table, whole), source=source, synthetic=synthetic, note=note)


def _bars(part: pd.DataFrame, factor: float, unit: str, name: str) -> dict[str, Any]:
    """Give the bars of some states."""
    hover = [
        f"<b>{label(each['state'], 40)}</b><br>{seconds(each['time_s'])}, "
        f"{share_text(each['covered_share'])} covered"
        for each in part.to_dict("records")
    ]
    return {
        "x": part["energy_j"].to_numpy() / factor,
        "base": part["begin_j"].to_numpy() / factor,
        "y": np.asarray(part.index),
        "orientation": "h",
        "marker": fill("productive" if name == _USEFUL else "lost work"),
        "hovertext": hover,
        "hovertemplate": f"%{{hovertext}}<br>%{{x:,.4~g}} {unit}<extra></extra>",
    }


def _claim(table: pd.DataFrame, whole: float) -> str:
    useful = float(table.loc[table["state"] == _USEFUL, "energy_j"].sum())
    others = table[table["state"] != _USEFUL].sort_values("energy_j", ascending=False)
    claim = f"{share_text(useful / whole)} of {amount(whole, 'J')} went into useful steps"
    if others.empty or others["energy_j"].iloc[0] <= 0:
        return claim
    share = share_text(float(others["energy_j"].iloc[0]) / whole)
    return f"{claim}; the most of the rest, {share}: {label(others['state'].iloc[0], 30)}"


def _note(table: pd.DataFrame, left_out: int) -> str:
    time = table["time_s"].sum()
    notes = [f"{seconds(float(time))} in all"]
    if time > 0:
        covered = float((table["covered_share"] * table["time_s"]).sum() / time)
        if covered < 0.9995:
            notes.append(
                f"<b>readings cover {share_text(covered)}; what they do not is missing</b>"
            )
    if left_out:
        notes.append(f"{plural(left_out, 'state')} of next to no energy not drawn")
    return " · ".join(notes)
