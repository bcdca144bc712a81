"""Explore which power limit a site should choose."""

from __future__ import annotations

from functools import partial

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import numbers
from workbench.explore._panel import Explorer
from workbench.tables import POWER_CURVE, Source, as_source

_CURVE = ["gpu", "job", "configuration"]
_BUDGETS_MW = (20, 30, 50, 75, 100, 150, 300, 500, 1000)  # the published network leaves room
_PUES = (1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.6, 2.0)
_FIXED_MW = (0, 0.5, 1, 5, 10, 15, 20, 40, 100)
_OVERHEADS_W = (0, 50, 100, 200, 300, 400, 500, 700, 1000)
_METHODS = ("linear", "power", "quadratic", "cubic")
_SHARES = (0.8, 0.85, 0.9, 0.95)


def provisioning(
    curve: pd.DataFrame | None = None, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Move the budget of a site and what GPUs need beside their own power; see which limit wins.

    Starts at the published case: 150 MW of GB200. Its network takes the published share, its
    overhead per GPU is what the published gain implies, and its PUE, which nobody published, is
    such that 960 W feed the published 83,000 GPUs. Below 1,000 W no speed was published; the
    control of the extrapolation shows how much of an answer there hangs on the guess.

    Parameters
    ----------
    curve
        Table :data:`workbench.tables.POWER_CURVE` with further curves to choose from, best few.
    source
        Where those come from; printed under the figure.
    synthetic
        Whether they were generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.provisioning`.

    Raises
    ------
    TableError
        If ``curve`` is not that table.
    """
    curves = {"published, GB200": analyze.published_curve("gb200-meta")}
    if curve is not None:
        POWER_CURVE.check(curve)
        for key, own in curve.groupby(_CURVE, sort=False):
            curves[", ".join(str(each) for each in key)] = own.reset_index(drop=True)
    fact = analyze.provisioning_facts().set_index("quantity")["value"]
    budget = fact["site budget"]
    return Explorer(
        partial(_draw, curves=curves, source=source, synthetic=synthetic),
        budget_mw=numbers("site budget [MW]", _BUDGETS_MW, budget / 1e6),
        pue=numbers("PUE", _PUES, fact["PUE assumed"]),
        fixed_mw=numbers(
            "fixed IT load [MW]", _FIXED_MW, fact["network share of the site"] * budget / 1e6
        ),
        overhead=numbers(
            "overhead per GPU [W]", _OVERHEADS_W, fact["non-GPU power per GPU that +9 % implies"]
        ),
        curve=widgets.Dropdown(options=list(curves), description="curve"),
        method=widgets.Dropdown(options=_METHODS, description="extrapolation"),
    )


def _draw(
    *,
    budget_mw: float,
    pue: float,
    fixed_mw: float,
    overhead: float,
    curve: str,
    method: analyze.Extrapolation,
    curves: dict[str, pd.DataFrame],
    source: str,
    synthetic: bool,
) -> go.Figure:
    known = curves[curve]
    limits = [round(share * known["limit_w"].max()) for share in _SHARES]
    is_published = bool((known["basis"] == "published").all())
    table = analyze.provisioning(
        analyze.extended_curve(known, limits, method=method),
        budget_w=budget_mw * 1e6, pue_ratio=pue, fixed_w=fixed_mw * 1e6, overhead_w=overhead,
    )  # fmt: skip
    where = Source(known["source"].iloc[0], "published") if is_published else as_source(source)
    return plot.provisioning(
        table,
        published=analyze.published_gains() if is_published else None,
        source=Source(f"closed form; {where}", where.origin),
        synthetic=synthetic and not is_published,
    )
