"""Explore what protecting the most harmful parts first removes."""

from __future__ import annotations

from functools import cache
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import ALL, choice, chosen_rows
from workbench.explore._panel import Explorer
from workbench.tables import ExhaustiveInjections, Injections

_UNITS = (
    ("elements", "elements"),
    ("bits of one place", "bits"),
    ("tensors", "tensors"),
)


def pvf_protection(
    injections: Injections | ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose the part of the model and what is protected in it; see what that removes.

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
    def table(unit: Any) -> pd.DataFrame:
        return analyze.pvf_protection(injections, unit=unit)

    def draw(*, unit: str, part: str) -> go.Figure:
        rows = chosen_rows(table(unit), group=part)
        return plot.pvf_protection(rows, source=source, synthetic=synthetic)

    groups = [name for name in table("bits")["group"].unique() if name != ALL]
    return Explorer(
        draw,
        unit=widgets.Dropdown(options=_UNITS, description="protected"),
        part=choice("part of the model", groups),
    )
