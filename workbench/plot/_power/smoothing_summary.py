"""What smoothing costs and what it leaves, before beside after."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount, joules
from workbench.plot._style.style import colour, fill, finish, nothing
from workbench.plot._style.text import digits, label, percent
from workbench.tables import SMOOTHING_SUMMARY

_MEASURES = (
    ("swing_w", "swing, 99th - 1st percentile", ""),
    ("deviation_w", "standard deviation", ""),
    ("ramp_w_per_s", "fastest ramp", "/s"),
    ("peak_w", "peak", ""),
    ("energy_j", "energy", ""),
)
# A store that is not needed still moves the last digits of sums.
_ROUNDING = 1e-9
_COSTS = (("ballast_j", "burnt on top"), ("lost_j", "lost in it"), ("unmet_j", "held back"))


def smoothing_summary(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what is left of swing, ramps, peak and energy after smoothing.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.SMOOTHING_SUMMARY`.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per quantity as a share of what it was, with both numbers. The title states swing
        and cost, the note what the store needs and what is held back.
    """
    SMOOTHING_SUMMARY.check(table)
    if table.empty:
        return nothing(
            "The table is empty; analyze.smoothing_summary compares before and after.",
            claim="Nothing was smoothed",
            source=source,
            synthetic=synthetic,
        )
    before, after = _row(table, "before", 0), _row(table, "after", -1)
    names = [name for _, name, _ in _MEASURES]
    ratios, texts = [], []
    for column, _, per in _MEASURES:
        was, left = float(before[column]), float(after[column])
        ratios.append(left / was if was > 0 else 0.0)
        written = joules if column == "energy_j" else amount
        texts.append(f"{written(was)}{per} → {written(left)}{per}")
    figure = go.Figure()
    figure.add_bar(
        x=ratios, y=names, orientation="h", name="after", text=texts, textposition="outside",
        cliponaxis=False, marker=fill("transfer"), hovertemplate="%{y}: %{text}<extra></extra>",
    )  # fmt: skip
    figure.add_vline(x=1, line={"color": colour("neutral"), "dash": "dash", "width": 1.5})
    figure.update_layout(height=230, margin_l=210)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(
        title="after, of what it was before [%]", tickformat=".0%",
        range=[0, max(1.0, *ratios) * 1.35],
    )  # fmt: skip
    return finish(
        figure, claim=_claim(before, after), source=source, synthetic=synthetic, note=_note(after)
    )


def _row(table: pd.DataFrame, version: str, otherwise: int) -> pd.Series:
    """Return the row of a version; the first or last one if none is called so."""
    named = table[table["version"] == version]
    return named.iloc[0] if len(named) else table.iloc[otherwise]


def _claim(before: pd.Series, after: pd.Series) -> str:
    """State the swing and what it costs."""
    more = 100 * (float(after["energy_ratio"]) - 1)
    claim = f"Swing {amount(float(before['swing_w']))} before, {amount(float(after['swing_w']))} "
    claim += f"after, for {digits(abs(more))} % {'more' if more >= 0 else 'less'} energy"
    if pd.notna(after["verdict"]):
        claim += (
            f"; grid: {label(before['verdict'], 12)} before, {label(after['verdict'], 12)} after"
        )
    return claim


def _note(after: pd.Series) -> str:
    """Say what the store needs, and what is lost or held back."""
    parts = []
    if after["storage_w"] > _ROUNDING * float(after["peak_w"]):
        energy = joules(float(after["storage_j"]))
        parts.append(f"the store moves {amount(float(after['storage_w']))} and {energy}")
    for column, words in _COSTS:
        if after[column] > 0:
            share = float(after[column]) / float(after["energy_j"]) if after["energy_j"] > 0 else 0
            parts.append(f"{percent(min(share, 1))} of the energy {words}")
    if after["covered_share"] < 1:
        parts.append(f"{percent(float(after['covered_share']))} of the cells")
    return " · ".join(parts)
