"""Figures of what steps draw: energy step by step, and power by how far a step has got."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.panels import stacked_panels
from workbench.plot._style.power_text import amount, power_unit, share_text, utc
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, distinct, finish, nothing
from workbench.plot._style.text import digits, plural
from workbench.tables import STEP_ENERGY

_PER = (("energy_per_token_j", "per token"), ("energy_per_sample_j", "per sample"))


def step_energy(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the energy of every step, and what a token of it cost.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.STEP_ENERGY`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One point per step over time, its median as a line; below, energy per token, or per sample
        where no tokens are told. The title states the medians. Points may be left out, never the
        highest or lowest.
    """
    STEP_ENERGY.check(table)
    known = table[table["energy_j"].notna()].sort_values("start_ns")
    if known.empty:
        why = "No step has an energy: there are none, or power covers too little of them."
        return nothing(why, claim="No energy of steps to show", source=source, synthetic=synthetic)
    drawn = [("energy_j", "per step", 200)]
    drawn += [(name, words, 150) for name, words in _PER if known[name].notna().any()][:1]
    units = [power_unit(float(known[name].median()), "J") for name, _, _ in drawn]
    figure = stacked_panels(
        [f"energy {words} [{unit[1]}]" for (_, words, _), unit in zip(drawn, units, strict=True)],
        [height for _, _, height in drawn],
    )
    for row, ((name, words, _), unit) in enumerate(zip(drawn, units, strict=True), start=1):
        _add(figure, known, row, name=name, words=words, unit=unit)
    figure.update_layout(showlegend=False, hovermode="closest")
    figure.update_xaxes(title="time [UTC]", row=len(drawn), col=1)
    return finish(
        figure,
        claim=_claim(known, drawn[-1][0] if len(drawn) > 1 else ""),
        source=source,
        synthetic=synthetic,
        note=" · ".join(_notes(table, known)),
    )


def _add(
    figure: go.Figure,
    known: pd.DataFrame,
    row: int,
    *,
    name: str,
    words: str,
    unit: tuple[float, str],
) -> None:
    values = known[name].to_numpy(dtype=np.float64) / unit[0]
    keep = extremes(values)
    keep = keep[~np.isnan(values[keep])]
    part = known.iloc[keep]
    figure.add_scatter(
        x=utc(part["start_ns"]),
        y=values[keep],
        mode="markers",
        name=f"energy {words}",
        marker={"size": 5, "color": colour("productive"), "symbol": "circle"},
        hovertext=[
            f"step {step}, attempt {attempt}, {share_text(share)} covered"
            for step, attempt, share in zip(
                part["step"], part["attempt"], part["covered_share"], strict=True
            )
        ],
        hovertemplate=f"%{{hovertext}}<br>%{{y:,.4~g}} {unit[1]} {words}<extra></extra>",
        row=row,
        col=1,
    )
    middle = float(np.nanmedian(values))
    figure.add_scatter(
        x=utc(known["start_ns"].iloc[[0, -1]]),
        y=[middle, middle],
        mode="lines",
        name=f"median {words}",
        line={"color": "#1A1A1A", "width": 1.5, "dash": distinct(1)["dash"]},
        hovertemplate=f"median {middle:,.4g} {unit[1]} {words}<extra></extra>",
        row=row,
        col=1,
    )


def _claim(known: pd.DataFrame, per: str) -> str:
    middle = f"A step draws {amount(float(known['energy_j'].median()), 'J')} (median)"
    middle += f", {amount(float(known['mean_w'].median()))} on average"
    if not per:
        return middle
    return f"{middle}; {amount(float(known[per].median()), 'J')} {dict(_PER)[per]}"


def _notes(table: pd.DataFrame, known: pd.DataFrame) -> list[str]:
    """Say over how many steps and meters, what is missing, and what cannot be resolved."""
    entities = int(known["entity_count"].max())
    notes = [f"{plural(len(known), 'step')}, {plural(entities, 'meter')}"]
    if without := len(table) - len(known):
        notes.append(f"{plural(without, 'step')} without energy: too little is covered")
    if (least := float(known["covered_share"].min())) < 0.9995:
        notes.append(f"readings cover {share_text(least)} of a step at least")
    per_meter = float(known["reading_count"].mean()) / max(entities, 1)
    if per_meter < 2:
        notes.append(
            f"<b>{digits(per_meter)} readings per meter and step: steps are not resolved</b>"
        )
    return notes
