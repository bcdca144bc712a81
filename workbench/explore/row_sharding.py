"""Explore how rows of unequal popularity load memory units, and what a cache or copies change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore._panel import Explorer
from workbench.tables import ROW_POPULARITY, as_source

_HOT_ROWS = (0, 1, 4, 16, 64, 256)
_LPT_ROWS = 4_000  # fewer than the analysis places one by one, for an answer at once


def row_sharding(
    popularities: Mapping[str, pd.DataFrame], *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose popularity, units and copies; see how many hot rows must be treated apart.

    Starts with the first popularity, 256 units and a cache for the hot rows.

    Parameters
    ----------
    popularities
        Tables :data:`workbench.tables.ROW_POPULARITY` by the name to choose them by, e.g.
        ``{"Zipf 0.9": simulate.row_popularity(100_000, 0.9)}``.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.row_sharding`. LPT places 4,000 rows one by
        one. A hundred thousand rows answer within a tenth of a second, a million take longer
        the first time.

    Raises
    ------
    WorkbenchError
        If there is no popularity to choose.
    TableError
        If one is no table of popularity.
    """
    named: object = popularities
    if not isinstance(named, Mapping) or not named:
        msg = "no popularities to choose from; pass {name: simulate.row_popularity(...)}"
        raise WorkbenchError(msg)
    tables = {name: ROW_POPULARITY.check(table, name) for name, table in named.items()}

    @cache
    def placed(name: str, units: int, copies: int) -> pd.DataFrame:
        return analyze.row_sharding(
            tables[name], units=units, copies=copies, hot_rows=_HOT_ROWS, lpt_rows=_LPT_ROWS
        )

    def draw(*, popularity: str, units: int, copies: int) -> go.Figure:
        where = as_source(source).joined(str(popularity))
        table = placed(popularity, units, copies)
        return plot.row_sharding(table, source=where, synthetic=synthetic)

    return Explorer(
        draw,
        popularity=widgets.Dropdown(options=list(tables), description="popularity"),
        units=widgets.SelectionSlider(
            options=[64, 256, 1024], value=256, continuous_update=False, description="units"
        ),
        copies=widgets.Dropdown(
            options=[("none, a cache", 0), ("2", 2), ("8", 8), ("32", 32)],
            description="copies of hot rows",
        ),
    )
