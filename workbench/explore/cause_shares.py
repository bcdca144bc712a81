"""Explore what failed: published tables and one's own, by cause or by category."""

from __future__ import annotations

from collections.abc import Mapping

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, datasets, load, plot
from workbench.errors import WorkbenchError
from workbench.explore._panel import Explorer
from workbench.tables import Source, as_source

_PUBLISHED = {
    "Llama 3, 16,384 GPUs (arXiv:2407.21783)": "causes_llama3",
    "FT-HSDP, 32K GPUs (arXiv:2602.00277)": "causes_fthsdp_32k",
    "ByteRobust, 3 months (arXiv:2509.16293)": "causes_byterobust",
}


def cause_shares(
    failures: Mapping[str, pd.DataFrame] | None = None,
    *,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose whose failures and what to count by; see what failed, and how sure that is.

    Starts with the first of one's own tables, else with the table of Llama 3.

    Parameters
    ----------
    failures
        One's own tables :data:`workbench.tables.FAILURES` or
        :data:`workbench.tables.CAUSE_COUNTS`, by the name to choose them by. The published
        ones are offered as well.
    source
        Where one's own data comes from; printed under the figure.
    synthetic
        Whether one's own data was generated; its figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.cause_shares`.

    Raises
    ------
    WorkbenchError
        If ``failures`` is a table instead of tables by name.
    """
    given: object = {} if failures is None else failures
    if not isinstance(given, Mapping):
        msg = "pass tables by name, {'my cluster': log.failures}"
        raise WorkbenchError(msg)
    own = dict(given)
    folder = datasets.path("published")
    tables = own | {
        name: load.cause_counts(folder / f"{file}.csv")
        for name, file in _PUBLISHED.items()
        if name not in own
    }

    def draw(*, table: str, by: str) -> go.Figure:
        is_own = table in own
        where = as_source(source).joined(table) if is_own else Source(table, "published")
        shares = analyze.cause_shares(tables[table], by=by)
        return plot.cause_shares(shares, source=where, synthetic=synthetic and is_own)

    return Explorer(
        draw,
        table=widgets.Dropdown(options=list(tables), description="failures of"),
        by=widgets.Dropdown(options=["cause", "category"], description="by"),
    )
