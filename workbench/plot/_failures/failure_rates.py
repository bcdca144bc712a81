"""How often something fails: a rate per group, with how sure it is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.said import between, interval, reservations
from workbench.plot._style.style import COLOURS, finish, left_margin, nothing
from workbench.plot._style.text import digits, label, plural, safe, short
from workbench.tables import FAILURE_RATES

_MOST = 30
_ROW_PX = 26


def failure_rates(rates: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show failures per 1,000 node-days for each group, with the exact interval.

    Parameters
    ----------
    rates
        Table :data:`workbench.tables.FAILURE_RATES`; rates of several clusters may be put
        together with ``pandas.concat``.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One dot per group with whiskers, the highest on top. The title states the
        failures counted, the rate with its interval, and the mean time between failures.
    """
    FAILURE_RATES.check(rates)
    if rates.empty:
        return nothing(
            "The table has no rates; pass what analyze.failure_rates returns.",
            claim="No failure rates to show",
            source=source,
            synthetic=synthetic,
        )
    ordered = rates.sort_values("per_1000_node_days", ascending=False, kind="stable")
    drawn = ordered.iloc[:_MOST].reset_index(drop=True)
    rate = drawn["per_1000_node_days"].to_numpy()
    figure = go.Figure(
        go.Scatter(
            mode="markers",
            x=rate,
            y=list(range(len(drawn))),
            marker={"size": 10, "color": COLOURS["neutral"]},
            error_x={
                "type": "data",
                "array": np.maximum(drawn["high_per_1000_node_days"] - rate, 0),
                "arrayminus": np.maximum(rate - drawn["low_per_1000_node_days"], 0),
                "color": COLOURS["dark"],
                "thickness": 1.5,
                "width": 4,
            },
            hovertext=[_hover(row) for row in drawn.to_dict("records")],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    names = [short(name, 40) for name in drawn["group"]]
    figure.update_layout(
        height=max(len(names), 3) * _ROW_PX, margin_l=left_margin(names), hovermode="closest"
    )
    figure.update_xaxes(title="failures [per 1,000 node-days]", rangemode="tozero")
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=[safe(name) for name in names],
        range=[len(names) - 0.5, -0.5],
    )
    hidden = len(rates) - len(drawn)
    notes = [*interval(rates), *([f"{hidden:,} lower rates left out"] if hidden else [])]
    return finish(
        figure,
        claim=_claim(drawn),
        source=source,
        synthetic=synthetic,
        note=" · ".join([*notes, *reservations(rates)]),
    )


def _claim(drawn: pd.DataFrame) -> str:
    first = drawn.iloc[0]
    low, high = first["low_per_1000_node_days"], first["high_per_1000_node_days"]
    rate = f"{digits(first['per_1000_node_days'])} failures per 1,000 node-days "
    rate += f"({between(low, high)})"
    # A rate of few failures in little time reads like one of many in years without its count.
    seen = f"{int(first['failure_count']):,} in {digits(first['exposure_node_days'])} node-days"
    if len(drawn) > 1:
        is_apart = low > drawn["high_per_1000_node_days"].iloc[1]
        most = "fails most often" if is_apart else "fails most often, perhaps by chance"
        return f"{label(first['group'], 30)} {most}: {seen}, {rate}"
    if pd.isna(first["mtbf_h"]):
        most = digits(first["high_per_1000_node_days"])
        return (
            f"No failure in {digits(first['exposure_node_days'])} node-days: at most {most} "
            "per 1,000"
        )
    nodes = plural(int(first["node_count"]), "node")
    return f"{nodes} fail every {digits(float(first['mtbf_h']))} h: {seen}, {rate}"


def _hover(row: Mapping[Hashable, Any]) -> str:
    low, high = row["low_per_1000_node_days"], row["high_per_1000_node_days"]
    return (
        f"{label(row['group'], 80)}<br>{plural(row['failure_count'], 'failure')} in "
        f"{row['exposure_node_days']:,.4g} node-days<br>"
        f"{digits(row['per_1000_node_days'])} per 1,000 ({between(low, high)})"
    )
