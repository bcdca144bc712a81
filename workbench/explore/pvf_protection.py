"""Explore what protecting the most harmful parts first removes."""

from __future__ import annotations

from functools import cache
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._panel import Explorer
from workbench.explore.pvf import not_finite
from workbench.tables import ExhaustiveInjections, Injections

_UNITS = (
    ("elements", "elements"),
    ("bits of one place", "bits"),
    ("tensors", "tensors"),
)


def pvf_protection(
    injections: Injections | ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose what is protected and how outputs not finite count; see what that removes.

    Parameters
    ----------
    injections
        Results of a campaign, or the truth of one that injected every fault.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.pvf_protection`.
    """

    @cache
    def table(unit: Any, nan_policy: Any) -> pd.DataFrame:
        return analyze.pvf_protection(injections, unit=unit, nan_policy=nan_policy)

    def draw(*, unit: str, nan_policy: str) -> go.Figure:
        return plot.pvf_protection(table(unit, nan_policy), source=source, synthetic=synthetic)

    return Explorer(
        draw,
        unit=widgets.Dropdown(options=_UNITS, description="protected"),
        nan_policy=not_finite(),
    )
