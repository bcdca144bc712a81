"""Explore how embedding tables are placed on ranks: the sharding board."""

from __future__ import annotations

from functools import partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import ShardingAssumptions
from workbench.explore._panel import Explorer
from workbench.tables import EMBEDDING_TABLES

# Those that torchrec prints for a plan.
_SHOWN = ("total variation", "total distance", "chi divergence", "KL divergence")
_DEFAULT = ShardingAssumptions()


def table_sharding(
    tables: pd.DataFrame,
    *,
    assumptions: ShardingAssumptions = _DEFAULT,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose ranks, planner and how tables are cut; see which rank the others wait for.

    Starts with whole tables on 256 ranks, where the largest table is the bound.

    Parameters
    ----------
    tables
        Table :data:`workbench.tables.EMBEDDING_TABLES`.
    assumptions
        Batch, bandwidths and memory, as for :func:`workbench.analyze.table_sharding`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.table_sharding`. Rows over all ranks are left
        out: every rank then has a part of every table, and no choice remains.

    Raises
    ------
    TableError
        If ``tables`` is no table of embedding tables.
    """
    EMBEDDING_TABLES.check(tables)
    return Explorer(
        partial(_draw, tables=tables, assumptions=assumptions, source=source, synthetic=synthetic),
        ranks=widgets.SelectionSlider(
            options=[64, 256], value=256, continuous_update=False, description="ranks"
        ),
        scheme=widgets.Dropdown(
            options=[
                ("whole tables", "table"),
                ("columns where needed", "auto-column"),
                ("columns of all tables", "column"),
                ("rows within a host", "table-row"),
            ],
            description="cut",
        ),
        planner=widgets.Dropdown(
            options=[
                ("largest first", "greedy"),
                ("in order", "in order"),
                ("anywhere", "random"),
            ],
            description="place",
        ),
        balance_by=widgets.Dropdown(
            options=[
                ("estimated time", "perf"),
                ("bytes", "size"),
                ("columns", "dim"),
                ("columns × look-ups", "lookup"),
            ],
            description="balance",
        ),
    )


def _draw(
    *,
    tables: pd.DataFrame,
    assumptions: ShardingAssumptions,
    source: str,
    synthetic: bool,
    **chosen: Any,
) -> go.Figure:
    shards = analyze.table_sharding(tables, assumptions=assumptions, **chosen)
    imbalance = None
    if len(shards):
        imbalance = analyze.load_imbalance(analyze.shard_balance(shards)["perf_ms"])
        imbalance = imbalance[imbalance["measure"].isin(_SHOWN)]
    return plot.table_sharding(shards, imbalance=imbalance, source=source, synthetic=synthetic)
