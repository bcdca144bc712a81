"""Explore how many sites to inject for a wanted error."""

from __future__ import annotations

import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import slider
from workbench.explore._panel import Explorer
from workbench.tables import ExhaustiveInjections, Injections

_ERRORS = (0.02, 0.05, 0.1, 0.2, 0.5)
_LEVELS = (0.8, 0.9, 0.95, 0.99)


def injection_sample_sizes(
    injections: Injections | ExhaustiveInjections, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose the wanted error and confidence; see how many sites each design needs.

    Starts at ±10 % of the factor with 95 % confidence.

    Parameters
    ----------
    injections
        Results to plan from: of a pilot campaign, or the truth of one that injected every fault.
    source
        Where they come from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.injection_sample_sizes`.
    """
    table = analyze.injection_sample_sizes(injections, relative_error=_ERRORS, level_share=_LEVELS)

    def draw(*, error: float, level: float) -> go.Figure:
        wanted = (table["error_kind"] == "absolute") | (table["error"] == error)
        rows = table[wanted & (table["level_share"] == level)]
        return plot.injection_sample_sizes(rows, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        error=slider("error of the factor", [(f"±{100 * e:g} %", e) for e in _ERRORS], 0.1),
        level=slider("confidence", [(f"{100 * each:g} %", each) for each in _LEVELS], 0.95),
    )
