"""Whether intervals hold the truth: a sample that grows, and how often each kind covers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._pvf.estimand import estimand
from workbench.plot._style.chances import PVF_TITLE, chance, numbers, row_with, segments
from workbench.plot._style.dots import log_ticks
from workbench.plot._style.panels import panels
from workbench.plot._style.style import COLOURS, finish, left_margin, nothing
from workbench.plot._style.text import label, percent, plural, safe, short
from workbench.tables import INTERVAL_COVERAGE, INTERVAL_FUNNEL

_KINDS = (
    ("sites as the sample", "low", "high"),
    ("too narrow: inputs as independent", "independent_low", "independent_high"),
)
_COVERED = (("clustered", "sites as the sample"), ("independent", "inputs as independent"))
_MOST_LOOKS, _MOST_ROWS, _ROW_PX = 400, 30, 30


def interval_funnel(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the intervals of a growing sample against the truth, both kinds side by side.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.INTERVAL_FUNNEL`, of one group; of several the first
        is shown. Several samples may be put together with ``pandas.concat``.
    source
        Where the truth comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        An upright line per look, at its number of sites; dashed with an open mark where it
        misses the truth. The title counts how many of each kind hold it.
    """
    INTERVAL_FUNNEL.check(table)
    if table.empty:
        return nothing(
            "The table has no looks; pass what analyze.interval_funnel returns.",
            claim="No intervals to compare",
            source=source,
            synthetic=synthetic,
        )
    group = table["group"].iloc[0]
    mine = table[table["group"] == group].sort_values("site_count", kind="stable")
    rows = mine.iloc[np.unique(np.linspace(0, len(mine) - 1, _MOST_LOOKS).astype(int))]
    rows = rows.assign(at=_apart(rows))
    truth = float(rows["truth"].iloc[0])
    figure = panels([words for words, _, _ in _KINDS], height_px=320)
    for panel, (_, low, high) in enumerate(_KINDS, start=1):
        holds = _holds(rows, truth, low, high)
        _add_samples(figure, rows[holds], (low, high), panel=panel, holds=True)
        _add_samples(figure, rows[~holds], (low, high), panel=panel, holds=False)
    figure.add_hline(y=100 * truth, line={"color": COLOURS["dark"], "width": 1.5})
    sites = log_ticks(rows["at"].to_numpy())
    figure.update_xaxes(title="sites so far [count, logarithmic]", type="log", **sites)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title=f"{PVF_TITLE} [%]", col=1)
    figure.update_layout(hovermode="closest")
    others = table["group"].nunique() - 1
    notes = [f"{label(group, 30)}: the line is the truth, {chance(truth)}", *estimand(table)]
    notes += [f"{len(mine) - len(rows):,} looks not drawn"] if len(mine) > len(rows) else []
    notes += [f"{plural(others, 'group')} left out"] if others else []
    claim = _funnel_claim(mine, truth)
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=" · ".join(notes))


def interval_coverage(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how often each kind of interval holds the truth, beside how often it should.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.INTERVAL_COVERAGE`, of one confidence; of several the first
        is shown.
    source
        Where the truth comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One row per group, design and size with a mark per kind of interval; a line where all
        should stand. The title names the worst.
    """
    INTERVAL_COVERAGE.check(table)
    if table.empty:
        return nothing(
            "The table has no repeats; pass what analyze.interval_coverage returns.",
            claim="No coverage to show",
            source=source,
            synthetic=synthetic,
        )
    level = float(table["level_share"].iloc[0])
    others = table["level_share"].nunique() - 1
    table = table[table["level_share"] == level]
    keys = ["group", "design", "site_count", "input_count"]
    places = table[keys].drop_duplicates().head(_MOST_ROWS).reset_index(drop=True)
    rows = table.merge(places.assign(at=places.index), on=keys, how="inner")
    figure = go.Figure()
    for kind, part in rows.groupby("interval", sort=False):
        _add_kind(figure, part, str(kind))
    figure.add_vline(
        x=100 * level, line={"color": COLOURS["dark"], "width": 1.5, "dash": "dash"},
        annotation_text=f"as promised: {percent(level)}", annotation_position="bottom left",
    )  # fmt: skip
    names = [
        f"{safe(short(row['group'], 20))}, {label(row['design'], 16)}<br><i>{row['site_count']:,} "
        f"sites, {plural(int(row['input_count']), 'input')}</i>"
        for _, row in places.iterrows()
    ]
    figure.update_layout(
        height=max(len(names), 2) * 1.3 * _ROW_PX, margin_l=left_margin(names), hovermode="closest"
    )
    figure.update_xaxes(title="intervals that hold the truth [%]", range=[-3, 104])
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.2, -0.6]
    )
    repeats = table["repeat_count"]
    notes = [f"{repeats.min():,} repeats each" if repeats.nunique() == 1 else
             f"{repeats.min():,} to {repeats.max():,} repeats", *estimand(table)]  # fmt: skip
    hidden = len(table[keys].drop_duplicates()) - len(places)
    notes += [f"{plural(hidden, 'design')} left out"] if hidden else []
    notes += [f"{plural(others, 'other confidence')} left out"] if others else []
    return finish(
        figure, claim=_coverage_claim(rows, level), source=source, synthetic=synthetic,
        note=" · ".join(notes),
    )  # fmt: skip


def _apart(rows: pd.DataFrame) -> Any:
    """Place looks at the same number of sites side by side, closer than two numbers are."""
    sizes = np.unique(rows["site_count"])
    step = float(np.diff(np.log(sizes)).min()) if len(sizes) > 1 else 1.0
    number = rows.groupby("site_count").cumcount()
    of = rows.groupby("site_count")["site_count"].transform("size")
    share = (number + 0.5) / of - 0.5
    return rows["site_count"] * np.exp(0.7 * step * share)


def _add_samples(
    figure: go.Figure, rows: pd.DataFrame, ends: tuple[str, str], *, panel: int, holds: bool
) -> None:
    """Add one broken line through all samples of a panel that do, or do not, hold the truth."""
    if rows.empty:
        return
    low, high = (100 * numbers(rows[name]) for name in ends)
    y, x = segments(low, high, rows["at"].to_numpy())
    words = "holds the truth" if holds else "misses it"
    colour = COLOURS["transfer" if holds else "limit"]
    line = {"color": colour, "width": 1.5, "dash": "solid" if holds else "2px,2px"}
    figure.add_scatter(
        mode="lines", x=x, y=y, row=1, col=panel, line=line, name=f"interval {words}",
        showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    figure.add_scatter(
        mode="markers", x=rows["at"].to_numpy(), y=100 * rows["pvf"].to_numpy(), row=1, col=panel,
        name=words, legendgroup=words, showlegend=not any(t.name == words for t in figure.data),
        marker={
            "symbol": "circle" if holds else "diamond-open", "size": 6 if holds else 8,
            "color": colour, "line": {"width": 1.5, "color": colour},
        },
        hovertext=[
            f"{row['site_count']:,} sites: {chance(row['pvf'])} "
            f"({chance(row[ends[0]])} to {chance(row[ends[1]])})"
            for _, row in rows.iterrows()
        ],
        hovertemplate="%{hovertext}<extra>" + words + "</extra>",
    )  # fmt: skip


def _holds(rows: pd.DataFrame, truth: float, low: str, high: str) -> pd.Series:
    return rows[low].le(truth) & rows[high].ge(truth)


def _funnel_claim(rows: pd.DataFrame, truth: float) -> str:
    clustered, independent = (_holds(rows, truth, low, high) for _, low, high in _KINDS)
    return (
        f"{clustered.sum():,} of {plural(len(rows), 'look')} hold the truth with sites as the "
        f"sample, {independent.sum():,} with inputs as independent"
    )


def _add_kind(figure: go.Figure, part: pd.DataFrame, kind: str) -> None:
    is_good = kind == "clustered"
    name = dict(_COVERED).get(kind, label(kind, 24))
    colour = COLOURS["transfer" if is_good else "limit"]
    figure.add_scatter(
        mode="markers",
        x=100 * part["covered_share"].to_numpy(),
        y=part["at"].to_numpy(),
        name=name,
        marker={
            "symbol": "circle" if is_good else "diamond-open" if kind == "independent" else "x",
            "size": 11, "color": colour, "line": {"width": 2, "color": colour},
        },
        hovertext=[
            f"{label(row['group'], 40)}, {label(row['design'], 20)}: "
            f"{percent(row['covered_share'])} of {row['repeat_count']:,} hold "
            f"{chance(row['truth'])}; half their width is {row['relative_width_ratio']:.3g} of it"
            for _, row in part.iterrows()
        ],
        hovertemplate="%{hovertext}<extra>" + name + "</extra>",
    )  # fmt: skip


def _coverage_claim(rows: pd.DataFrame, level: float) -> str:
    # With one input per site both kinds are the same question.
    hard = rows[rows["input_count"] == rows["input_count"].max()]
    kinds = [hard.loc[hard["interval"] == kind, "covered_share"] for kind, _ in _COVERED]
    if all(len(each) for each in kinds):
        good, bad = (f"{percent(each.min())} to {percent(each.max())}" for each in kinds)
        return (
            f"Of the intervals for {percent(level)}, {good} hold the truth with sites as the "
            f"sample, {bad} with inputs"
        )
    worst = row_with(rows, "covered_share", largest=False)
    return (
        f"{label(worst['group'], 30)} is covered worst: {percent(worst['covered_share'])} instead "
        f"of {percent(level)}"
    )
