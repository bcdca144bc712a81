"""Dips of power, and what happened at that time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, colour
from workbench.plot._style.text import amount, label, plural, power_unit, seconds, share_text, utc
from workbench.tables import POWER_DIPS, POWER_TOTALS

_SYMBOLS = {
    "failure": "x",
    "restart": "diamond",
    "checkpoint": "square",
    "evaluation": "triangle-up",
    "initialisation": "star",
    "before the job": "triangle-right",
    "after the job": "triangle-left",
    "not explained": "circle-open",
}
_SPARE_SYMBOLS = ("hexagon", "pentagon", "cross", "triangle-down", "bowtie", "hourglass")
_MOST_MARKS, _MOST_POINTS = 1_500, 4_000
_COLOURS = {"failure": "limit", "restart": "restart", "checkpoint": "checkpoint"}
_COLOURS |= {"evaluation": "evaluation", "initialisation": "initialisation"}


def power_dips(
    table: pd.DataFrame,
    *,
    totals: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show when power fell, how deep and for how long, and what happened then if that is known.

    Per dip a bar from its start to its end at its mean power, and a mark in its middle, one
    symbol per cause. The title counts dips, and names the one with the largest shortfall.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.POWER_DIPS`, or :data:`workbench.tables.DIP_CAUSES`.
    totals
        Table :data:`workbench.tables.POWER_TOTALS` that the dips were found in; drawn behind them.
    """
    frame = Frame(source, synthetic)
    POWER_DIPS.check(table)
    if table.empty:
        why = "Power never fell below the share of its usual level that was requested."
        return frame.nothing(why, claim="No dips of power", is_answer=True)
    factor, unit = power_unit(float(table["usual_w"].max()))
    figure = Draft()
    if totals is not None and len(totals):
        _curve(figure, totals, factor)
    cause = _causes(table)
    kept = table.assign(cause=cause)
    if len(kept) > _MOST_MARKS:
        kept = kept.loc[kept["shortfall_j"].nlargest(_MOST_MARKS).index].sort_index()
    _bars(figure, kept, factor, unit)
    spare = iter(_SPARE_SYMBOLS)
    for name in kept["cause"].value_counts().index:
        symbol = _SYMBOLS.get(str(name)) or next(spare)
        _marks(figure, kept[kept["cause"] == name], factor, name=str(name), symbol=symbol)
    figure.update_xaxes(title="time of the meter [UTC]", type="date")
    figure.update_yaxes(title=f"power [{unit}]", rangemode="tozero")
    figure.update_layout(hovermode="closest")
    left_out = len(table) - len(kept)
    note = f"{plural(left_out, 'dip')} with less shortfall not drawn" if left_out else ""
    return frame.finish(figure, claim=_claim(table), note=note)


def _causes(table: pd.DataFrame) -> pd.Series:
    """Return the cause of each dip; the rarest of very many share a name."""
    if "cause" not in table:
        return pd.Series("dip", index=table.index)
    cause = table["cause"].astype(object)
    spare = [name for name in cause.value_counts().index if name not in _SYMBOLS]
    room = len(_SPARE_SYMBOLS) - 1
    return cause.where(~cause.isin(spare[room:]), "another span") if len(spare) > room else cause


def _curve(figure: go.Figure, totals: pd.DataFrame, factor: float) -> None:
    POWER_TOTALS.check(totals)
    watts = totals["power_w"].to_numpy(dtype=np.float64) / factor
    keep = extremes(watts, _MOST_POINTS)
    figure.add_scatter(
        x=utc(totals["time_ns"].to_numpy()[keep]),
        y=watts[keep],
        mode="lines",
        name="power",
        line={"color": colour("all others"), "width": 1.2},
        hoverinfo="skip",
    )


def _bars(figure: go.Figure, dips: pd.DataFrame, factor: float, unit: str) -> None:
    """Draw each dip as a line at its mean power, as long as it lasts."""
    first, last = utc(dips["start_ns"]), utc(dips["end_ns"])
    mean = dips["mean_w"].to_numpy() / factor
    figure.add_scatter(
        x=np.stack([first, last, last], axis=1).ravel(),
        y=np.stack([mean, mean, np.full(len(dips), np.nan)], axis=1).ravel(),
        mode="lines",
        name=f"mean power of the dip [{unit}]",
        line={"color": COLOURS["ink"], "width": 3},
        hoverinfo="skip",
    )


def _marks(figure: go.Figure, dips: pd.DataFrame, factor: float, *, name: str, symbol: str) -> None:
    words = dips["evidence"] if "evidence" in dips else pd.Series("", index=dips.index)
    figure.add_scatter(
        x=utc(dips["start_ns"] + (dips["end_ns"] - dips["start_ns"]) // 2),
        y=dips["mean_w"].to_numpy() / factor,
        mode="markers",
        name=label(name, 24),
        marker={
            "symbol": symbol,
            "size": 11,
            "color": colour(_COLOURS.get(name, "neutral")),
            "line": {"width": 1.5 if "open" in symbol else 0.5},
        },
        hovertext=[
            f"<b>{label(name, 40)}</b> {label(evidence, 60)}<br>{seconds(row['dur_s'])}, "
            f"{share_text(row['depth_share'])} deep, {amount(row['shortfall_j'], 'J')} not drawn"
            for evidence, row in zip(words, dips.to_dict("records"), strict=True)
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _claim(table: pd.DataFrame) -> str:
    most = table.iloc[int(table["shortfall_j"].argmax())]
    claim = f"{plural(len(table), 'dip')} of power"
    largest = f"{share_text(most['depth_share'])} for {seconds(most['dur_s'])}"
    if "cause" not in table:
        return f"{claim}, the largest by {largest}"
    explained = int((table["cause"] != "not explained").sum())
    return f"{claim}, {explained:,} explained; the largest, {largest}: {label(most['cause'], 30)}"
