"""What failed: a bar per cause, the most frequent on top."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.said import interval, reservations, span
from workbench.plot._style.style import COLOURS, fill, finish, left_margin, nothing
from workbench.plot._style.text import label, percent, plural, safe, short
from workbench.tables import CAUSE_SHARES

_MOST = 20
_ROW_PX = 24
_ROUNDED = 0.0011  # printed shares have one decimal of a per cent


def cause_shares(shares: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show each cause's share of the failures, with its interval and the printed share.

    Parameters
    ----------
    shares
        Table :data:`workbench.tables.CAUSE_SHARES`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar per cause with whiskers; a hollow diamond is the share that was printed. The
        title names the leading cause and how few make up 80 %.
    """
    CAUSE_SHARES.check(shares)
    drawn = shares.sort_values("failure_count", ascending=False, kind="stable")
    drawn = drawn[drawn["failure_share"].notna()].iloc[:_MOST].reset_index(drop=True)
    if drawn.empty:
        return nothing(
            "No failures were counted, so no cause has a share of them. "
            + " · ".join(reservations(shares)),
            claim="No causes to show",
            source=source,
            synthetic=synthetic,
        )
    figure = go.Figure([_bars(drawn)])
    if drawn["printed_share"].notna().any():
        figure.add_trace(_printed(drawn))
    names = [short(cause, 40) for cause in drawn["cause"]]
    most = float(drawn[["high_share", "printed_share"]].max().max())
    figure.update_layout(
        height=max(len(names), 3) * _ROW_PX,
        margin_l=left_margin(names),
        bargap=0.3,
        hovermode="closest",
    )
    figure.update_xaxes(title="share of all failures [%]", range=[0, 118 * most])
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=[safe(name) for name in names],
        range=[len(names) - 0.5, -0.5],
        showgrid=False,
    )
    note = " · ".join([*interval(shares), *_differences(shares), *_rest(shares, drawn)])
    note = " · ".join([note, *reservations(shares)])
    return finish(figure, claim=_claim(shares), source=source, synthetic=synthetic, note=note)


def _bars(drawn: pd.DataFrame) -> go.Bar:
    share = drawn["failure_share"].to_numpy(dtype="float64")
    low, high = drawn["low_share"].to_numpy(), drawn["high_share"].to_numpy()
    return go.Bar(
        orientation="h",
        x=100 * share,
        y=list(range(len(drawn))),
        name="from the counts",
        marker=fill("all others"),
        error_x={
            "type": "data",
            "array": 100 * np.maximum(high - share, 0),
            "arrayminus": 100 * np.maximum(share - low, 0),
            "color": COLOURS["dark"],
            "thickness": 1.5,
            "width": 4,
        },
        hovertext=[_hover(row) for row in drawn.to_dict("records")],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _hover(row: Mapping[Hashable, Any]) -> str:
    return (
        f"{label(row['cause'], 80)}<br>{plural(row['failure_count'], 'failure')}, "
        f"{percent(row['failure_share'])} ({span(row['low_share'], row['high_share'])})<br>"
        f"with those above: {percent(row['cumulative_share'])}"
    )


def _printed(drawn: pd.DataFrame) -> go.Scatter:
    known = drawn[drawn["printed_share"].notna()]
    return go.Scatter(
        mode="markers",
        x=100 * known["printed_share"].to_numpy(dtype="float64"),
        y=known.index.to_numpy(),
        name="as printed",
        marker={
            "symbol": "diamond-open",
            "size": 10,
            "color": COLOURS["limit"],
            "line": {"width": 2},
        },
        hovertemplate="printed: %{x:.1f} %<extra></extra>",
    )


def _differences(shares: pd.DataFrame) -> list[str]:
    known = shares.dropna(subset=["printed_share", "failure_share"])
    if known.empty:
        return []
    apart = sum(_is_apart(row) for _, row in known.iterrows())
    if apart == 0:
        return ["all printed shares follow from the counts"]
    verb = "does" if apart == 1 else "do"
    return [f"{apart} of {len(known)} printed shares {verb} not follow from the counts"]


def _is_apart(row: pd.Series) -> bool:
    """Say whether a share was printed that rounding does not explain."""
    if pd.isna(row["printed_share"]):
        return False
    return abs(float(row["printed_share"]) - float(row["failure_share"])) > _ROUNDED


def _rest(shares: pd.DataFrame, drawn: pd.DataFrame) -> list[str]:
    hidden = len(shares) - len(drawn)
    count = int(shares["failure_count"].sum() - drawn["failure_count"].sum())
    return [f"{plural(hidden, 'cause')} with {count:,} failures left out"] if hidden > 0 else []


def _claim(shares: pd.DataFrame) -> str:
    """Name the leading cause, and how many causes are needed for most failures."""
    ordered = shares.dropna(subset=["failure_share"]).sort_values(
        "failure_count", ascending=False, kind="stable"
    )
    first = ordered.iloc[0]
    total = int(ordered["failure_count"].sum())
    lead = f"{label(first['cause'], 40)} is behind {percent(float(first['failure_share']))} of the "
    lead += plural(total, "failure")
    if _is_apart(first):
        lead += f", printed as {percent(float(first['printed_share']))}"
    enough = (ordered["cumulative_share"] >= 0.8).to_numpy(dtype=bool, na_value=False)
    if len(ordered) > 1 and enough.any() and (few := int(enough.argmax()) + 1) > 1:
        share = percent(float(ordered["cumulative_share"].iloc[few - 1]))
        lead += f"; the first {few} of {len(ordered)} causes are behind {share}"
    return lead
