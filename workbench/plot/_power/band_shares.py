"""How much of the movement of power lies in bands of frequencies."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount
from workbench.plot._style.style import fill, finish, left_margin, nothing
from workbench.plot._style.text import percent
from workbench.tables import BAND_SHARES

_MOST = 30
_BAR_PX = 30


def band_shares(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the share of the movement of power in every band.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.BAND_SHARES`.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per band in the order of the table, patterned where the meter sees only part of
        it. The title states the band with most.
    """
    BAND_SHARES.check(table)
    if table.empty:
        return nothing(
            "The table has no bands; analyze.band_shares makes them.",
            claim="No bands to show",
            source=source,
            synthetic=synthetic,
        )
    rows = table.sort_values("energy_share", ascending=False, na_position="last").head(_MOST)
    rows = rows.sort_index()
    labels = [f"{row['low_hz']:g}-{row['high_hz']:g} Hz" for row in rows.to_dict("records")]
    # Two bands of one name would share a bar, so bars have places, not names.
    rows["_place"] = range(len(rows))
    figure = go.Figure()
    whole = rows["visible_share"] >= 1
    _bars(figure, rows[whole], "seen whole", "transfer")
    _bars(figure, rows[~whole], "seen in part, or not at all", "not allowed")
    figure.update_layout(height=max(_BAR_PX * len(rows), 120), margin_l=left_margin(labels))
    figure.update_yaxes(
        tickvals=rows["_place"], ticktext=labels, range=[len(rows) - 0.5, -0.5], showgrid=False
    )
    room = 1.5 * max(float(rows["energy_share"].fillna(0).max()), 0.1)
    figure.update_xaxes(title="share of the energy [%]", tickformat=".0%", range=[0, room])
    note = f"of what lies below Nyquist, {float(rows['nyquist_hz'].iloc[0]):.3g} Hz"
    if len(table) > _MOST:
        note += f" · {len(table) - _MOST:,} smaller bands left out"
    return finish(figure, claim=_claim(rows), source=source, synthetic=synthetic, note=note)


def _bars(figure: go.Figure, rows: pd.DataFrame, name: str, look: str) -> None:
    """Draw the bars of one look, with their share and what is seen of them."""
    if rows.empty:
        return
    texts = [_words(row) for row in rows.to_dict("records")]
    figure.add_bar(
        x=rows["energy_share"].fillna(0), y=rows["_place"], orientation="h", name=name, text=texts,
        textposition="outside", cliponaxis=False, marker=fill(look, bars=len(rows)),
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _words(row: dict[Hashable, Any]) -> str:
    """Write what stands beside a bar."""
    if pd.isna(row["energy_share"]):
        return "above Nyquist: nothing of it is seen"
    text = f"{percent(row['energy_share'])} ({amount(row['rms_w'])} rms)"
    seen = row["visible_share"]
    return text if seen >= 1 else f"{text}, {percent(seen)} of the band seen"


def _claim(rows: pd.DataFrame) -> str:
    """Name the band with most of the energy."""
    if rows["energy_share"].isna().all():
        return "All bands lie above what the meter can see"
    top = rows.iloc[int(rows["energy_share"].fillna(0).argmax())]
    return (
        f"{percent(top['energy_share'])} of the movement of power lies between "
        f"{top['low_hz']:g} and {top['high_hz']:g} Hz"
    )
