"""How many GPUs a site feeds at each power limit, and what they do together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.plot._power.curve import SYMBOLS
from workbench.plot._style.said import is_doubtful
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import distinct, finish, nothing
from workbench.plot._style.text import label, percent, plural
from workbench.tables import PROVISIONING, PUBLISHED_GAINS

_CURVE = ["gpu", "job", "configuration"]
_MOST_CURVES, _MOST_POINTS = 6, 1_000
_HOVER = {
    "gpu_count": "%{x:,.4g} W: %{y:,} GPUs<extra></extra>",
    "gain_ratio": "%{x:,.4g} W: %{y:+.1%} throughput<extra></extra>",
}


def provisioning(
    table: pd.DataFrame,
    *,
    published: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show how many GPUs a site feeds at each limit, and what throughput that buys.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PROVISIONING`.
    published
        Table :data:`workbench.tables.PUBLISHED_GAINS`, to lay over; drawn where the limit that
        was compared with is the same.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Two panels over one axis of limits: GPUs, and throughput against the reference limit.
        What was extrapolated is dashed. The title states the best limit and its gain.
    """
    PROVISIONING.check(table)
    if table.empty:
        return nothing(
            "The table has no limits; analyze.provisioning works them out from a power curve.",
            claim="No power limits to compare",
            source=source,
            synthetic=synthetic,
        )
    names = list(dict.fromkeys(zip(*(table[name] for name in _CURVE), strict=True)))
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for at, name in enumerate(names[:_MOST_CURVES]):
        own = table[(table[_CURVE] == list(name)).all(axis=1)].sort_values("limit_w")
        for row, column in ((1, "gpu_count"), (2, "gain_ratio")):
            for trace in _lines(own, column, at, len(names) > 1):
                figure.add_trace(trace, row=row, col=1)
    laid_over = _published(figure, table, published)
    figure.add_hline(y=0, line={"color": "#595959", "width": 1, "dash": "dot"}, row=2, col=1)
    figure.update_yaxes(title="GPUs fed [count]", tickformat=",", row=1, col=1)
    figure.update_yaxes(title="throughput gained [%]", tickformat=".0%", row=2, col=1)
    figure.update_xaxes(title="power limit of a GPU [W]", tickformat=",", row=2, col=1)
    figure.update_layout(height=440)
    notes = [f"against {_watts(table['reference_limit_w'].unique())}, at the same site power"]
    if len(names) > _MOST_CURVES:
        notes.append(f"{plural(len(names) - _MOST_CURVES, 'curve')} left out")
    if laid_over:
        notes.append("whiskers: what rounds to the published numbers")
    return finish(
        figure, claim=_claim(table), source=source, synthetic=synthetic, note=" · ".join(notes),
        is_doubtful=is_doubtful(_best(_known(table))),
    )  # fmt: skip


def _lines(own: pd.DataFrame, column: str, at: int, is_one_of_many: bool) -> list[go.Scatter]:
    """Draw one curve in one panel: what is known, and what was extrapolated, dashed."""
    own = own.iloc[extremes(own[column].to_numpy(dtype=np.float64), _MOST_POINTS)]
    first = own.iloc[0]
    words = f"{first['gpu']} {first['job']}"
    words = label(f"{words}, {first['configuration']}" if is_one_of_many else words, 40)
    guessed = own["is_extrapolated"].to_numpy()
    parts = [(own[~guessed], words, "")] if not guessed.all() else []
    if guessed.any():
        parts.append((_beyond(own), f"{words}, extrapolated", "-open"))
    return [
        go.Scatter(
            x=part["limit_w"],
            y=part[column],
            mode="lines+markers",
            name=name,
            showlegend=column == "gpu_count",
            legendgroup=f"{at}{mark}",
            line={
                "color": distinct(at)["color"], "width": 2, "dash": "dash" if mark else "solid",
            },
            marker={
                "color": distinct(at)["color"], "symbol": SYMBOLS[at] + mark, "size": 9,
                "line": {"width": 2 if mark else 0},
            },
            hovertemplate=_HOVER[column],
        )
        for part, name, mark in parts
    ]  # fmt: skip


def _beyond(own: pd.DataFrame) -> pd.DataFrame:
    """Give each run of extrapolated rows with the known ones beside it, gaps between runs."""
    rows = own[["limit_w", "gpu_count", "gain_ratio"]].astype("float64").reset_index(drop=True)
    edges = np.flatnonzero(np.diff(np.r_[False, own["is_extrapolated"], False].astype(np.int8)))
    runs = [rows.iloc[max(a - 1, 0) : b + 1] for a, b in edges.reshape(-1, 2)]
    gap = pd.DataFrame(np.nan, index=[0], columns=rows.columns)
    return pd.concat([part for run in runs for part in (run, gap)][:-1], ignore_index=True)


def _published(figure: go.Figure, table: pd.DataFrame, published: pd.DataFrame | None) -> bool:
    """Lay published gains over the throughput; say whether any was drawn."""
    if published is None:
        return False
    PUBLISHED_GAINS.check(published, "published")
    same = published["reference_limit_w"].isin(table["reference_limit_w"].unique())
    rows = published[same & published["gpu"].isin(table["gpu"].unique())]
    if rows.empty:
        return False
    figure.add_scatter(
        x=rows["limit_w"],
        y=rows["gain_ratio"],
        error_y={
            "array": rows["high_gain_ratio"] - rows["gain_ratio"],
            "arrayminus": rows["gain_ratio"] - rows["low_gain_ratio"],
            "thickness": 1.5, "width": 6,
        },
        mode="markers",
        name="published",
        marker={"symbol": "diamond-open", "size": 13, "color": "#000000", "line": {"width": 2}},
        customdata=[label(each, 60) for each in rows["trust"]],
        hovertemplate="published: %{y:+.1%} at %{x:,.4g} W, %{customdata}<extra></extra>",
        row=2, col=1,
    )  # fmt: skip
    return True


def _watts(limits: Any) -> str:
    """Name the limits that are compared with."""
    return f"{limits[0]:,.4g} W" if len(limits) == 1 else "the reference limit of each"


def _claim(table: pd.DataFrame) -> str:
    """Name the best known limit and what it gains; a guess comes second, as one."""
    best = _best(_known(table))
    if len(best) > 1:
        low, high = best["gain_ratio"].min(), best["gain_ratio"].max()
        return (
            f"The best limits gain {percent(low)} to {percent(high)} throughput over "
            f"{plural(len(best), 'curve')}"
        )
    one = best.iloc[0]
    fed = f"{one['limit_w']:,.4g} W feeds {int(one['gpu_count']):,} GPUs"
    if one["limit_w"] == one["reference_limit_w"]:
        claim = f"{fed}; no other known limit does more together"
    else:
        claim = f"{fed} that do {_more(one)} than at {one['reference_limit_w']:,.4g} W"
    guess = _best(table).iloc[0]
    if guess["is_extrapolated"]:
        claim += f"; extrapolated, {guess['limit_w']:,.4g} W would do {_more(guess)}"
    return claim


def _known(table: pd.DataFrame) -> pd.DataFrame:
    """Give what was measured or published, or everything if nothing was."""
    known = table[~table["is_extrapolated"]]
    return known if len(known) else table


def _best(table: pd.DataFrame) -> pd.DataFrame:
    """Give the row of most throughput of each curve."""
    return table.loc[table.groupby(_CURVE, sort=False)["throughput_ratio"].idxmax()]


def _more(row: pd.Series) -> str:
    change = float(row["gain_ratio"])
    return f"{percent(abs(change))} {'more' if change >= 0 else 'less'} together"
