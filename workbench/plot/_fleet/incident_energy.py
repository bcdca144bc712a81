"""What single interruptions of a job cost in energy."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount, clock_time, power_unit, seconds, share_text
from workbench.plot._style.style import fill, finish, left_margin, nothing
from workbench.plot._style.text import label, plural
from workbench.tables import INCIDENT_ENERGY

_ROW_PX = 38
_PARTS = (("lost_work_j", "lost steps"), ("restart_j", "restart"))
_WORDS = 1.55


def incident_energy(
    table: pd.DataFrame, *, top: int = 12, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what every interruption cost: the work it undid, and the time until the next step.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.INCIDENT_ENERGY`.
    top
        Interruptions to show, the dearest; the others are counted in words.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One row per interruption in order of time, named by time, host and cause. The title states
        what all of them cost and the dearest.

    Raises
    ------
    ValueError
        If ``top`` is below 1.
    """
    INCIDENT_ENERGY.check(table)
    if top < 1:
        msg = f"top must be 1 or more; got {top!r}"
        raise ValueError(msg)
    known = table[table["energy_j"].notna()]
    if known.empty:
        why = "No interruption has a known cost: none happened, or power covers too little of them."
        return nothing(why, claim="No cost of incidents", source=source, synthetic=synthetic)
    kept = known["energy_j"].nlargest(top).index
    drawn = known[known.index.isin(kept)].sort_values("start_ns").reset_index(drop=True)
    factor, unit = power_unit(float(drawn["energy_j"].max()), "J")
    figure = go.Figure()
    for column, name in _PARTS:
        figure.add_bar(
            x=drawn[column].to_numpy(dtype=np.float64) / factor,
            y=np.arange(len(drawn)),
            orientation="h",
            name=name,
            marker=fill(name),
            hovertext=[_hover(row) for row in drawn.to_dict("records")],
            hovertemplate=f"%{{hovertext}}<br>{name}: %{{x:,.4~g}} {unit}<extra></extra>",
        )
    for row, each in enumerate(drawn.to_dict("records")):
        figure.add_annotation(
            x=each["energy_j"] / factor, y=row, xanchor="left", xshift=6, text=_words(each),
            showarrow=False, align="left",
        )  # fmt: skip
    names = [_name(row) for row in drawn.to_dict("records")]
    figure.update_layout(
        barmode="stack", height=max(len(names), 2) * _ROW_PX, margin_l=left_margin(names),
        bargap=0.35, hovermode="closest",
    )  # fmt: skip
    ticks = {"tickvals": list(range(len(names))), "ticktext": names}
    figure.update_yaxes(**ticks, range=[len(names) - 0.4, -0.6])
    reach = max(_WORDS * float(drawn["energy_j"].max()) / factor, 1e-9)
    figure.update_xaxes(title=f"energy [{unit}]", range=[0, reach])
    note = _note(table, known, len(known) - len(drawn))
    return finish(figure, claim=_claim(known), source=source, synthetic=synthetic, note=note)


def _name(row: Mapping[Hashable, Any]) -> str:
    time = "" if pd.isna(row["start_ns"]) else f"{clock_time(row['start_ns'])} "
    node = "" if pd.isna(row["node"]) else label(row["node"], 18)
    return f"{time}{node}<br>{label(row['cause'], 30)}"


def _words(row: Mapping[Hashable, Any]) -> str:
    share = "" if pd.isna(row["energy_share"]) else f" · {share_text(row['energy_share'])}"
    steps = "" if pd.isna(row["lost_step_count"]) else plural(int(row["lost_step_count"]), "step")
    restart = "" if pd.isna(row["restart_s"]) else f"{seconds(row['restart_s'])} until the next"
    told = ", ".join(each for each in (f"{steps} lost" if steps else "", restart) if each)
    return f"{amount(row['energy_j'], 'J')}{share}" + (f"<br>{told}" if told else "")


def _hover(row: Mapping[Hashable, Any]) -> str:
    also = f"<br>also: {label(row['also'], 80)}" if row["also"] else ""
    covered = "" if pd.isna(row["covered_share"]) else f"{share_text(row['covered_share'])} covered"
    return f"<b>{label(row['cause'], 60)}</b>{also}<br>{covered}"


def _claim(known: pd.DataFrame) -> str:
    whole = float(known["energy_j"].sum())
    share = known["energy_share"].sum()
    part = f", {share_text(min(float(share), 1.0))} of the run's energy" if share > 0 else ""
    claim = f"{plural(len(known), 'interruption')} cost {amount(whole, 'J')}{part}"
    dearest = known.iloc[int(known["energy_j"].argmax())]
    if len(known) == 1:
        return f"{claim}: {label(dearest['cause'], 50)}"
    return f"{claim}; the dearest {amount(float(dearest['energy_j']), 'J')}: " + label(
        dearest["cause"], 40
    )


def _note(table: pd.DataFrame, known: pd.DataFrame, left_out: int) -> str:
    notes = [f"{plural(left_out, 'cheaper interruption')} not drawn"] if left_out else []
    if unknown := int((table["energy_j"].isna() & table["restart_s"].notna()).sum()):
        notes.append(f"<b>{plural(unknown, 'interruption')} without a known energy</b>")
    if others := int(table["restart_s"].isna().sum()):
        notes.append(f"{plural(others, 'fatal failure')} interrupted nothing in the job log")
    if (known["covered_share"] < 0.9995).any():
        notes.append(f"readings cover {share_text(float(known['covered_share'].min()))} at least")
    return " · ".join(notes)
