"""Peaks, limits and headroom along the delivery tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import amount
from workbench.plot._style.style import colour, fill, finish, left_margin, nothing
from workbench.plot._style.text import label, percent, plural
from workbench.tables import POWER_HIERARCHY

_MOST_ROWS = 24
_ROW_PX = 24
# The axis ends here at the latest; nameplates may be several times the limit.
_MOST_PERCENT = 320.0


def power_hierarchy(
    hierarchy: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how much of every limit is used, usable and stranded, level by level.

    Parameters
    ----------
    hierarchy
        Table :data:`workbench.tables.POWER_HIERARCHY`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per thing with a limit, in shares of that limit, and a mark at the nameplates
        below it. Of levels with many things, those nearest to their limits. The title tells
        which thing is nearest to its limit, and where the most headroom is stranded.
    """
    POWER_HIERARCHY.check(hierarchy)
    drawable = hierarchy[(hierarchy["limit_w"] > 0) & hierarchy["peak_w"].notna()]
    if drawable.empty:
        return nothing(
            "Nothing has both a limit in the topology and power that meters know."
            if len(hierarchy)
            else "The table is empty; analyze.power_hierarchy makes it.",
            claim="No headroom to show",
            source=source,
            synthetic=synthetic,
        )
    shown = _chosen(drawable)
    figure = go.Figure()
    _add_bars(figure, shown)
    _add_nameplates(figure, shown)
    figure.add_vline(x=100, line={"color": colour("limit"), "width": 2})
    ticks = [f"{label(row['entity'], 26)} ({label(row['level'], 14)})" for row in _rows(shown)]
    figure.update_layout(
        barmode="stack", bargap=0.3, hovermode="closest", height=max(len(shown), 4) * _ROW_PX,
        margin_l=20 + left_margin(ticks),
    )  # fmt: skip
    figure.update_xaxes(title="share of the limit [%]", range=[0, _reach(shown)])
    figure.update_yaxes(
        tickvals=list(range(len(shown))), ticktext=ticks, range=[len(shown) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    return finish(
        figure, claim=_claim(drawable), source=source, synthetic=synthetic,
        note=" · ".join(_notes(hierarchy, drawable, shown)),
    )  # fmt: skip


def _rows(table: pd.DataFrame) -> list[dict[Any, Any]]:
    return table.to_dict("records")


def _chosen(drawable: pd.DataFrame) -> pd.DataFrame:
    """Take of every level those nearest to their limit, in the order of levels."""
    order = drawable["level"].drop_duplicates().tolist()
    ranked = drawable.assign(level_at=drawable["level"].map(order.index))
    ranked = ranked.sort_values(
        ["level_at", "peak_limit_ratio"], ascending=[True, False], kind="stable"
    )
    if len(ranked) <= _MOST_ROWS:
        return ranked.reset_index(drop=True)
    # Levels with few things leave their room to the others.
    sizes = ranked["level_at"].value_counts(sort=False).sort_values()
    room, quota = _MOST_ROWS, {}
    for left, (level, size) in zip(range(len(sizes), 0, -1), sizes.items(), strict=True):
        quota[level] = min(size, max(room // left, 1))
        room -= quota[level]
    place = ranked.groupby("level_at").cumcount()
    kept = ranked[place < ranked["level_at"].map(quota)]
    return kept.iloc[: 2 * _MOST_ROWS].reset_index(drop=True)


def _add_bars(figure: go.Figure, shown: pd.DataFrame) -> None:
    """Stack what is used at the peak, what could still be used, and what is stranded."""
    limit = shown["limit_w"].to_numpy()
    peak = shown["peak_w"].to_numpy()
    usable, stranded = shown["usable_headroom_w"].to_numpy(), shown["stranded_w"].to_numpy()
    known = ~np.isnan(usable) & ~np.isnan(stranded)
    unknown = np.where(known, 0.0, np.maximum(limit - peak, 0))
    parts = {
        "peak": (peak, "neutral"),
        "usable headroom": (np.where(known, usable, 0.0), "usable headroom"),
        "stranded headroom": (np.where(known, stranded, 0.0), "stranded headroom"),
        "headroom, not known whether usable": (unknown, "unknown"),
    }
    names = [label(name, 60) for name in shown["entity"]]
    for name, (power_w, meaning) in parts.items():
        if name == "peak" or power_w.any():
            figure.add_bar(
                orientation="h", y=np.arange(len(shown)), x=100 * power_w / limit, name=name,
                marker=fill(meaning, bars=len(shown)),
                hovertext=[
                    f"{full}: {name} {amount(power)} of {amount(most)}"
                    for full, power, most in zip(names, power_w, limit, strict=True)
                ],
                hovertemplate="%{hovertext}, %{x:.1f} %<extra></extra>",
            )  # fmt: skip


def _add_nameplates(figure: go.Figure, shown: pd.DataFrame) -> None:
    """Mark the nameplates below a thing, or its own where nothing is below it."""
    own = shown["nameplate_w"] / shown["limit_w"]
    ratio = shown["nameplates_limit_ratio"].where(shown["child_count"] > 0, own)
    known = np.flatnonzero(ratio.notna() & (100 * ratio <= _MOST_PERCENT))
    if len(known):
        figure.add_scatter(
            x=100 * ratio.to_numpy()[known], y=known, mode="markers",
            name="nameplate, or sum of those below",
            marker={"symbol": "diamond", "size": 10, "color": "#000000"},
            hovertemplate="nameplates %{x:.0f} % of the limit<extra></extra>",
        )  # fmt: skip


def _reach(shown: pd.DataFrame) -> float:
    """Give the end of the axis: the limit, or what is beyond it."""
    ratios = shown[["peak_limit_ratio", "nameplates_limit_ratio"]].to_numpy(dtype=float).ravel()
    ratios = np.r_[ratios, (shown["nameplate_w"] / shown["limit_w"]).to_numpy(dtype=float)]
    fitting = 100 * ratios[~np.isnan(ratios)]
    highest = max(fitting[fitting <= _MOST_PERCENT].max(initial=0), 100.0)
    return float(min(1.06 * highest, _MOST_PERCENT * 1.02))


def _notes(hierarchy: pd.DataFrame, drawable: pd.DataFrame, shown: pd.DataFrame) -> list[str]:
    notes = []
    if len(shown) < len(drawable):
        notes.append(
            f"{len(shown):,} of {len(drawable):,} shown, of every level those nearest to the limit"
        )
    if left_out := len(hierarchy) - len(drawable):
        notes.append(f"{left_out:,} without a limit or power left out")
    if (drawable["covered_share"] < 1).any():
        notes.append(
            f"meters know {percent(float(drawable['covered_share'].min()))} or more of each"
        )
    beyond = (100 * shown["nameplates_limit_ratio"] > _MOST_PERCENT).sum()
    if beyond:
        notes.append(f"{plural(int(beyond), 'sum')} of nameplates beyond the axis")
    return notes


def _claim(drawable: pd.DataFrame) -> str:
    """Tell what is nearest to its limit, and where the most is stranded."""
    nearest = drawable.iloc[int(drawable["peak_limit_ratio"].to_numpy().argmax())]
    ratio = float(nearest["peak_limit_ratio"])
    verb = "exceeds" if ratio > 1 else "comes nearest to"
    claim = f"{label(nearest['entity'], 24)} {verb} its limit, with {100 * ratio:.0f} % at its peak"
    stranded = drawable["stranded_w"].fillna(0).to_numpy()
    most = drawable.iloc[int(stranded.argmax())]
    if stranded.max() > 0:
        claim += (
            f"; {amount(stranded.max())} of {amount(most['headroom_w'])} headroom are stranded "
            f"at {label(most['entity'], 24)}"
        )
    return claim
