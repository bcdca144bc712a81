"""Failures per 1,000 node-days, with the exact interval."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.marks import name_rows, whiskers
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import COLOURS, Frame
from workbench.plot._style.text import (
    between,
    digits,
    interval,
    label,
    plural,
    reservations,
    seconds,
    short,
)
from workbench.tables import FAILURE_RATES

_MOST = 30
# In less than this one failure more or less makes any rate.
_LEAST_NODE_DAYS = 1.0
_ROW_PX = 26


def failure_rates(rates: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show failures per 1,000 node-days for each group, with the exact interval.

    One dot per group with whiskers, the highest on top. The title states the
    failures counted, the rate with its interval, and the mean time between failures.

    Parameters
    ----------
    rates
        Table :data:`workbench.tables.FAILURE_RATES`; rates of several clusters may be put
        together with ``pandas.concat``.
    """
    frame = Frame(source, synthetic)
    FAILURE_RATES.check(rates)
    if rates.empty:
        why = "The table has no rates; pass what analyze.failure_rates returns."
        return frame.nothing(why, claim="No failure rates to show")
    ordered = rates.sort_values("per_1000_node_days", ascending=False, kind="stable")
    drawn = ordered.iloc[:_MOST].reset_index(drop=True)
    rate = drawn["per_1000_node_days"].to_numpy()
    figure = Draft(
        go.Scatter(
            mode="markers",
            x=rate,
            y=list(range(len(drawn))),
            marker={"size": 10, "color": COLOURS["neutral"]},
            error_x=whiskers(
                rate, drawn["low_per_1000_node_days"], drawn["high_per_1000_node_days"]
            ),
            hovertext=[_hover(row) for row in drawn.to_dict("records")],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    name_rows(figure, [short(name, 40) for name in drawn["group"]], max(len(drawn), 3) * _ROW_PX)
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(title="failures [per 1,000 node-days]", rangemode="tozero")
    hidden = len(rates) - len(drawn)
    notes = [*interval(rates), *([f"{hidden:,} lower rates dropped"] if hidden else [])]
    return frame.finish(
        figure, claim=_claim(drawn), note=" · ".join([*notes, *reservations(rates)])
    )


def _claim(drawn: pd.DataFrame) -> str:
    first = drawn.iloc[0]
    low, high = first["low_per_1000_node_days"], first["high_per_1000_node_days"]
    rate = f"{digits(first['per_1000_node_days'])} failures per 1,000 node-days "
    rate += f"({between(low, high)})"
    watched = float(first["exposure_node_days"])
    if watched < _LEAST_NODE_DAYS:
        rate = "too short for a rate"
    # A rate of few failures in little time reads like one of many in years without its count.
    seen = f"{int(first['failure_count']):,} in {_node_time(watched)}"
    if len(drawn) > 1:
        # Where the first two intervals overlap, their order may be chance.
        is_apart = low > drawn["high_per_1000_node_days"].iloc[1]
        most = "fails most often" if is_apart else "fails most often, perhaps by chance"
        return f"{label(first['group'], 30)} {most}: {seen}, {rate}"
    if pd.isna(first["mtbf_h"]):
        return f"No failure in {_node_time(watched)}: at most {digits(high)} per 1,000"
    nodes = plural(int(first["node_count"]), "node")
    return f"{nodes} fail every {seconds(3600 * float(first['mtbf_h']))}: {seen}, {rate}"


def _node_time(node_days: float) -> str:
    """Write how long nodes were watched in all, in a unit that fits."""
    units = ((1, "node-days"), (24, "node-hours"), (1440, "node-minutes"))
    factor, unit = next((step for step in units if node_days * step[0] >= 1), units[-1])
    return f"{digits(factor * node_days)} {unit}"


def _hover(row: Mapping[Hashable, Any]) -> str:
    low, high = row["low_per_1000_node_days"], row["high_per_1000_node_days"]
    return (
        f"{label(row['group'], 80)}<br>{plural(row['failure_count'], 'failure')} in "
        f"{row['exposure_node_days']:,.4g} node-days<br>"
        f"{digits(row['per_1000_node_days'])} per 1,000 ({between(low, high)})"
    )
