"""Explore how far a sample of injections can be trusted, drawn from a truth that is known."""

from __future__ import annotations

from functools import cache
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import numbers, slider
from workbench.explore._panel import Explorer
from workbench.tables import ExhaustiveInjections

_STEP, _STEPS = 500, 12


def interval_funnel(
    truth: ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Inject 500 sites more; see the intervals close in on the truth, or miss it.

    Nothing is injected: a sample that grows is drawn from the truth, another with every seed.

    Parameters
    ----------
    truth
        Every single-bit fault of a model.
    source
        Where the truth comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.interval_funnel`.
    """
    counts = [_STEP * (1 + step) for step in range(_STEPS)]
    components = list(dict.fromkeys(truth.parameters["component"]))

    @cache
    def table(component: str, seed: int) -> pd.DataFrame:
        return analyze.interval_funnel(truth, component=component, site_counts=counts, seed=seed)

    def draw(*, component: Any, sites: float, seed: float) -> go.Figure:
        rows = table(str(component), int(seed))
        rows = rows[rows["site_count"] <= sites]
        return plot.interval_funnel(rows, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        component=widgets.Dropdown(
            options=components, value=components[-1], description="component"
        ),
        sites=slider("sites injected", [(f"{each:,}", each) for each in counts], 6 * _STEP),
        seed=numbers("seed", (1, 2), 1),
    )
