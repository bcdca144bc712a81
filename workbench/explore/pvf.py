"""Explore how vulnerable the parts of a model are, under each rule of averaging and counting."""

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

_AVERAGES = ("bits", "parameters", "tensors", "layers")
_POLICIES = (
    ("count as wrong", "wrong"),
    ("are left to a detector", "due"),
    ("are dropped", "ignore"),
)
_GROUPS = (("component", "component"), ("role of the bit", "bit_role"), ("tensor", "param"))


def not_finite() -> widgets.Dropdown:
    """Offer the ways to count outputs that are not finite."""
    return widgets.Dropdown(options=_POLICIES, description="outputs not finite")


def pvf(
    injections: Injections | ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose groups, what weighs the same and how outputs not finite count; see the factors.

    Starts with the components, every bit weighing the same: what a random upset does.

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
        Controls above :func:`workbench.plot.pvf`.
    """

    @cache
    def table(by: str, average: Any, nan_policy: Any) -> pd.DataFrame:
        return analyze.pvf(injections, average=average, by=(by,), nan_policy=nan_policy)

    def draw(*, by: str, average: str, nan_policy: str) -> go.Figure:
        return plot.pvf(table(by, average, nan_policy), source=source, synthetic=synthetic)

    return Explorer(
        draw,
        by=widgets.Dropdown(options=_GROUPS, description="groups"),
        average=widgets.Dropdown(options=_AVERAGES, description="weigh the same"),
        nan_policy=not_finite(),
    )


def pvf_by_bit(
    injections: Injections | ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose a component and how outputs not finite count; see which bits of what hurt.

    Starts with a row per component; of one component every tensor is shown.

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
        Controls above :func:`workbench.plot.pvf_by_bit`.
    """
    parameters = injections.parameters.drop_duplicates("param")
    dtypes = parameters["dtype"].unique()
    dtype = str(dtypes[0]) if len(dtypes) == 1 else None

    @cache
    def table(rows: Any, nan_policy: Any) -> pd.DataFrame:
        return analyze.pvf_by_bit(injections, rows=rows, nan_policy=nan_policy)

    def draw(*, component: str, nan_policy: str) -> go.Figure:
        rows = table("component" if component == ALL else "param", nan_policy)
        if component != ALL:
            mine = parameters.loc[parameters["component"] == component, "param"]
            rows = rows[rows["param"].isin(mine)]
        return plot.pvf_by_bit(rows, dtype=dtype, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        component=choice("component", parameters["component"].unique()),
        nan_policy=not_finite(),
    )


def pvf_by_flips(injections: Injections, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a component and how outputs not finite count; see what more flips do.

    Parameters
    ----------
    injections
        Results of campaigns that differ in their numbers of flips, perhaps in their types.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.pvf_by_flips`.
    """

    @cache
    def table(nan_policy: Any) -> pd.DataFrame:
        return analyze.pvf_by_flips(injections, nan_policy=nan_policy)

    def draw(*, component: str, nan_policy: str) -> go.Figure:
        rows = chosen_rows(table(nan_policy), component=component)
        return plot.pvf_by_flips(rows, source=source, synthetic=synthetic)

    components = table("wrong")["component"]
    return Explorer(
        draw, component=choice("component", components.unique()), nan_policy=not_finite()
    )
