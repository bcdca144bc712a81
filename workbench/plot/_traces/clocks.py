"""Clocks: how far that of each rank is off, and how well that is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import distinct, finish, nothing
from workbench.plot._style.text import duration, label, plural, time_unit
from workbench.tables import CLOCKS

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "star", "hexagon", "triangle-down")


def clocks(clocks: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the offset of every rank's clock with its uncertainty.

    Parameters
    ----------
    clocks
        Table :data:`workbench.tables.CLOCKS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One dot per rank with a bar of twice its residual up and down, one trace per
        common clock. The title says how far apart clocks are.
    """
    CLOCKS.check(clocks)
    known = clocks.dropna(subset=["offset_ns"]).sort_values("rank")
    if known.empty:
        return nothing(
            _why_none(clocks), claim="No clocks to compare", source=source, synthetic=synthetic
        )
    unit = time_unit(known["offset_ns"].abs().max() or 1)
    figure = go.Figure()
    names = known["clock"].value_counts().index
    shown = names[: len(_SYMBOLS)]
    for position, name in enumerate(shown):
        _add(figure, known[known["clock"] == name], position=position, unit=unit)
    figure.update_xaxes(title="rank", **_whole(known["rank"]))
    figure.update_yaxes(title=f"offset of the clock [{unit[1]}]")
    figure.update_layout(hovermode="closest")
    notes = ["bars: twice the residual up and down", *_doubts(clocks, len(names) - len(shown))]
    return finish(
        figure,
        claim=_claim(known, names),
        source=source,
        synthetic=synthetic,
        note=" · ".join(notes),
    )


def _add(figure: go.Figure, mine: pd.DataFrame, *, position: int, unit: tuple[int, str]) -> None:
    """Add the ranks of one common clock."""
    offset = mine["offset_ns"].to_numpy(np.float64)
    keep = extremes(offset, 700)
    mine, offset = mine.iloc[keep], offset[keep]
    bar = 2 * mine["residual_ns"].to_numpy(np.float64, na_value=np.nan)
    colour = distinct(position)["color"]
    figure.add_scatter(
        x=mine["rank"].to_numpy(),
        y=offset / unit[0],
        error_y={"array": bar / unit[0], "color": colour, "thickness": 1.5, "width": 4},
        mode="markers",
        name=f"ranks {label(mine['clock'].iloc[0], 24)}",
        marker={"color": colour, "symbol": _SYMBOLS[position], "size": 9},
        hovertext=[
            f"rank {rank}: {duration(off)}"
            + ("" if np.isnan(wide) else f" ± {duration(wide)}")
            + f", from {plural(count, 'collective')}"
            for rank, off, wide, count in zip(
                mine["rank"], offset, bar, mine["collective_count"], strict=True
            )
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _whole(ranks: pd.Series) -> dict[str, int]:
    return {"dtick": 1} if ranks.max() - ranks.min() < 24 else {}


def _claim(known: pd.DataFrame, names: pd.Index) -> str:
    """Say how far apart the clocks are, where they can be compared."""
    if len(names) > 1:
        return (
            f"The {len(known):,} ranks are on {len(names):,} clocks that no collective compares: "
            f"the largest holds {plural((known['clock'] == names[0]).sum(), 'rank')}"
        )
    apart = int(known["offset_ns"].max() - known["offset_ns"].min())
    residuals = known["residual_ns"].dropna().sort_values(ascending=False)
    if residuals.empty:
        return f"The clocks of {len(known):,} ranks are {duration(apart)} apart, from too few ends"
    agree = 2 * int(residuals.iloc[:2].sum())
    if apart <= agree and not known["is_sure"].any():
        return (
            f"Whether the clocks of {len(known):,} ranks agree is not sure; they are "
            f"{duration(apart)} apart"
        )
    if apart <= agree:
        return (
            f"The clocks of {len(known):,} ranks agree as far as can be told: {duration(apart)} "
            f"apart, known to {duration(agree)}"
        )
    furthest = known.iloc[int(known["offset_ns"].abs().to_numpy("int64").argmax())]
    worst = furthest["rank"]
    if not furthest["is_sure"]:
        return (
            f"The clocks of {len(known):,} ranks seem to be up to {duration(apart)} apart, but "
            f"that of rank {worst}, furthest off, is not sure"
        )
    return (
        f"The clocks of {len(known):,} ranks are up to {duration(apart)} apart; that of rank "
        f"{worst} is furthest off, and they are known to {duration(agree)}"
    )


def _doubts(clocks: pd.DataFrame, hidden: int) -> list[str]:
    lost = int(clocks["offset_ns"].isna().sum())
    unsure = int((~clocks["is_sure"] & clocks["offset_ns"].notna()).sum())
    said = [f"{plural(lost, 'rank')} without a known offset left out"] if lost else []
    if unsure:
        why = clocks.loc[~clocks["is_sure"] & clocks["offset_ns"].notna(), "note"].dropna()
        most = f", e.g. {label(why.iloc[0].split('; ')[0], 120)}" if len(why) else ""
        said.append(f"{plural(unsure, 'rank')} not sure{most}")
    return said + ([f"{plural(hidden, 'clock')} left out"] if hidden else [])


def _why_none(clocks: pd.DataFrame) -> str:
    if clocks.empty:
        return "There are no communication kernels whose ends could be compared."
    return f"Of none of {plural(len(clocks), 'rank')} a collective ends on another rank as well."
