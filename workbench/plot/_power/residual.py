"""What meters show beyond what is metered below them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount, power_unit, time_axis
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import colour, distinct, finish, nothing
from workbench.plot._style.text import label, percent, plural
from workbench.tables import POWER_RESIDUAL

_MOST_LINES = 6


def power_residual(
    residual: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show over time what each meter shows beyond its parts; below 0 something is wrong.

    Parameters
    ----------
    residual
        Table :data:`workbench.tables.POWER_RESIDUAL`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A line for each of the six meters with the largest residuals. The title tells the
        largest, and how often a residual is negative.
    """
    POWER_RESIDUAL.check(residual)
    known = residual[residual["residual_w"].notna()]
    if known.empty:
        return nothing(
            "No meter has a value together with all its parts, so nothing can be subtracted."
            if len(residual)
            else "No meter has others below it; analyze.power_residual needs both.",
            claim="No residual to show",
            source=source,
            synthetic=synthetic,
        )
    entity = known["entity"].astype(object)
    means = known.groupby(entity)["residual_w"].mean()
    shown = means.abs().sort_values(ascending=False, kind="stable").index[:_MOST_LINES]
    mine = residual[residual["entity"].isin(shown)]
    scale, unit = power_unit(float(known["residual_w"].abs().max()))
    first, last = int(residual["time_ns"].min()), int(residual["time_ns"].max())
    unit_ns, title = time_axis(first, last)
    figure = go.Figure()
    for at, (name, rows) in enumerate(mine.groupby(mine["entity"].astype(object), sort=True)):
        value = rows["residual_w"].to_numpy() / scale
        keep = extremes(value)
        figure.add_scatter(
            x=(rows["time_ns"].to_numpy()[keep] - first) / unit_ns, y=value[keep],
            mode="lines" if len(keep) > 1 else "markers", name=label(name, 30),
            line={**distinct(at), "width": 1.8, "shape": "hv"},
            hovertemplate="%{y:,.4~g} " + unit + "<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": colour("limit"), "width": 1.5})
    figure.update_xaxes(title=title)
    figure.update_yaxes(title=f"meter minus its parts [{unit}]", tickformat=",.4~g")
    return finish(
        figure, claim=_claim(known, means), source=source, synthetic=synthetic,
        note=" · ".join(_notes(residual, known, len(means))),
    )  # fmt: skip


def _notes(residual: pd.DataFrame, known: pd.DataFrame, meter_count: int) -> list[str]:
    notes = []
    if meter_count > _MOST_LINES:
        notes.append(f"{_MOST_LINES} of {meter_count:,} meters shown, those with the most")
    if blank := len(residual) - len(known):
        notes.append(f"{plural(blank, 'cell')} blank, because a meter or a part lacks there")
    if (known["covered_share"] < 1).any():
        notes.append("<b>the residual holds parts without a value</b>")
    return notes


def _claim(known: pd.DataFrame, means: pd.Series) -> str:
    """Tell the largest residual, and how often one is negative."""
    at = int(means.abs().to_numpy().argmax())
    name, mean = means.index[at], float(means.iloc[at])
    metered = known.loc[(known["entity"] == name).to_numpy(), "metered_w"].mean()
    share = f" ({100 * abs(mean) / metered:.1f} %)" if metered > 0 else ""
    side = "more" if mean >= 0 else "less"
    claim = f"{label(name, 30)} draws {amount(abs(mean))}{share} {side} than its parts together"
    negative = float(np.mean(known["is_negative"]))
    if negative == 0:
        return claim
    return f"{claim}; {percent(negative)} of all residuals are negative, which cannot be"
