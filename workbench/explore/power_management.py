"""Explore who is capped when a feed is short, and what demand response costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import FeedShortage, PowerPolicy
from workbench.explore.panel import Explorer, numbers
from workbench.tables import POWER_LOADS, POWER_TOPOLOGY

_VIEWS = (("who is capped", "who"), ("what it costs", "cost"))
_POLICIES: tuple[tuple[str, PowerPolicy], ...] = (
    ("least cost first", "cost"),
    ("by priority", "priority"),
    ("by slack", "slack"),
)
_SHORT, _MINUTES = (0, 2, 5, 10, 15, 20, 25, 30, 40), (1, 2, 5, 10, 15, 30, 60)
_SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25)
_MOST_CELLS, _FEW_CELLS = 120_000, 6_000  # of loads at instants: of one answer, of many


def power_management(
    loads: pd.DataFrame, topology: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose a feed, how short it is and for how long, and who is cut first.

    Starts with the root 10 % short for 15 minutes.

    Parameters
    ----------
    loads
        Table :data:`workbench.tables.POWER_LOADS`. Of very many loads and instants some instants
        are left out, evenly.
    topology
        Table :data:`workbench.tables.POWER_TOPOLOGY`.
    source, synthetic
        Origin of the data, printed under the figure, and whether it was generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.power_management` or
        :func:`workbench.plot.demand_response`.

    Raises
    ------
    TableError
        If ``loads`` or ``topology`` is not that table.

    Examples
    --------
    >>> from workbench import simulate
    >>> loads, topology = simulate.power_loads()
    >>> explorer = power_management(loads, topology, source="simulated loads", synthetic=True)
    >>> print(explorer.title())
    utility is 10 % short: 64 of 256 loads capped, the slowest loses 10 %
    """
    POWER_LOADS.check(loads, "loads")
    POWER_TOPOLOGY.check(topology, "topology")
    above = set(topology["parent"].dropna())
    feeds = [str(name) for name in topology["entity"] if name in above]
    label = {"source": source, "synthetic": synthetic}
    shown = _thinned(loads)
    demand = cache(partial(_demand, shown, topology))
    return Explorer(
        partial(_draw, loads=shown, topology=topology, demand=demand, label=label),
        view=widgets.Dropdown(options=_VIEWS, description="view"),
        policy=widgets.Dropdown(options=_POLICIES, description="cut"),
        feed=widgets.Dropdown(options=feeds, description="feed"),
        short=numbers("short by [% of its peak]", _SHORT, 10),
        duration=numbers("for [min]", _MINUTES, 15),
    )


def _thinned(loads: pd.DataFrame, most: int = _MOST_CELLS) -> pd.DataFrame:
    times = pd.factorize(loads["time_ns"])[0]
    step = -(-len(loads) // most)
    return loads[times % step == 0].reset_index(drop=True) if step > 1 else loads


def _demand(loads: pd.DataFrame, topology: pd.DataFrame, feed: str) -> pd.DataFrame:
    """Return the draw of a feed without caps at every instant, with its own limit."""
    # By slack is the fastest, and demand is the same.
    table = analyze.power_management(loads, topology, policy="slack")
    return table[table["entity"] == feed].dropna(subset=["demand_w"])


def _draw(
    *,
    view: str,
    policy: PowerPolicy,
    feed: str,
    short: float,
    duration: float,
    loads: pd.DataFrame,
    topology: pd.DataFrame,
    demand: Callable[[str], pd.DataFrame],
    label: dict[str, Any],
) -> go.Figure:
    own, share = demand(feed), short / 100
    peak = own.iloc[int(own["demand_w"].to_numpy().argmax())]
    if view == "cost":
        others = [name for _, name in _POLICIES if name != policy]
        table = analyze.demand_response(
            _thinned(loads, _FEW_CELLS), topology, shed_shares=sorted({*_SHARES, share}),
            duration_min=duration, entity=feed, policies=[policy, *others],
        )  # fmt: skip
        return plot.demand_response(table, claimed_share=share, **label)
    # Around the highest demand, where it is hardest.
    start_min = (int(peak["time_ns"]) - int(loads["time_ns"].min())) / 60e9 - duration / 2
    shortage = FeedShortage(share, feed, max(start_min, 0.0), duration)
    managed = analyze.power_management(loads, topology, policy=policy, shortage=shortage)
    return plot.power_management(managed, **label)
