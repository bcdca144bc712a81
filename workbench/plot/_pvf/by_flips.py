"""How the probability of a wrong output grows with the number of bits that flip at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.errors import TableError
from workbench.plot._pvf.estimand import coverage, estimand
from workbench.plot._style.chances import Chances, axis_of, chance, numbers
from workbench.plot._style.panels import panels
from workbench.plot._style.said import is_doubtful
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import distinct, finish, nothing
from workbench.plot._style.text import label, plural
from workbench.tables import PVF

_MOST_PANELS, _MOST_LINES, _MOST_POINTS = 4, 4, 400
_SYMBOLS = ("circle", "square", "diamond", "triangle-up")
_HEIGHT_PX = 320


def pvf_by_flips(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the share of wrong outputs against the number of flips, and that not finite.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF` with a column ``flip_count`` before it, and perhaps
        ``dtype`` (one line each) and ``component`` (one panel each).
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A panel per component and a line per type of number, with intervals; hollow marks on
        thin lines are outputs that are not finite. Both axes double or grow tenfold in equal
        steps. The title compares the fewest flips with the most.

    Raises
    ------
    TableError
        If the column ``flip_count`` is missing.
    """
    PVF.check(table)
    if "flip_count" not in table:
        msg = "'flip_count' is missing; group by it, as analyze.pvf_by_flips does"
        raise TableError(msg)
    rows = table.assign(
        panel=_panels(table),
        line=_texts(table, "dtype", "PVF"),
        due=numbers(table["due_count"]) / table["trial_count"].where(table["trial_count"] > 0),
    ).dropna(subset=["flip_count", "pvf"])
    if rows.empty:
        return nothing(
            "The table has no numbers of flips; pass what analyze.pvf_by_flips returns.",
            claim="No flips to show",
            source=source,
            synthetic=synthetic,
        )
    names, lines = (list(dict.fromkeys(rows[each])) for each in ("panel", "line"))
    shown, drawn = names[:_MOST_PANELS], lines[:_MOST_LINES]
    rows = rows[rows["panel"].isin(shown) & rows["line"].isin(drawn)]
    scale = axis_of(pd.concat([rows["pvf"], rows["due"][rows["due"] > 0]]), high=rows["high"])
    figure = panels([label(name, 20) for name in shown], height_px=_HEIGHT_PX)
    for (panel, line), part in rows.groupby(["panel", "line"], sort=False):
        _add_line(figure, part, scale, panel=shown.index(panel), line=drawn.index(line))
    figure.update_xaxes(type="log", **_ticks(rows["flip_count"]))
    figure.update_xaxes(title="flips per experiment [count]", col=1)
    look = scale.axis()
    figure.update_yaxes({name: value for name, value in look.items() if name != "title"})
    figure.update_yaxes(title=look["title"], col=1)
    hidden = len(names) - len(shown) + len(lines) - len(drawn)
    notes = [*estimand(rows), *coverage(rows)]
    notes += [f"{plural(hidden, 'component or type')} left out"] if hidden else []
    return finish(
        figure, claim=_claim(rows), source=source, synthetic=synthetic, note=" · ".join(notes),
        is_doubtful=is_doubtful(rows[rows["pvf"] > 0].nlargest(1, "pvf")),
    )  # fmt: skip


def _panels(table: pd.DataFrame) -> pd.Series:
    """Name the component, or the part of it that was drawn from."""
    names = _texts(table, "component", "all")
    part = table["drawn_from"].astype(object)
    return names.where(part == "", part.astype(str) + " of " + names)


def _texts(table: pd.DataFrame, column: str, otherwise: str) -> pd.Series:
    if column not in table:
        return pd.Series(otherwise, index=table.index)
    return table[column].astype(object).where(table[column].notna(), "not told").astype(str)


def _add_line(
    figure: go.Figure, part: pd.DataFrame, scale: Chances, *, panel: int, line: int
) -> None:
    """Add one type of number to one panel: what goes wrong, and what is not finite."""
    part = part.sort_values("flip_count", kind="stable")
    part = part.iloc[extremes(part["pvf"].to_numpy(), _MOST_POINTS)]
    look, name = distinct(line), label(part["line"].iloc[0], 20)
    common: dict[str, Any] = {
        "x": part["flip_count"].to_numpy(), "mode": "lines+markers", "showlegend": panel == 0,
    }  # fmt: skip
    figure.add_scatter(
        **common, row=1, col=panel + 1, y=scale.place(part["pvf"]), name=name, legendgroup=name,
        error_y=scale.whiskers(part, look["color"]),
        line={**look, "width": 2},
        marker={"symbol": _SYMBOLS[line], "size": 8, "color": look["color"]},
        hovertext=[f"{chance(p)} go wrong" for p in part["pvf"]],
        hovertemplate="%{x} flips: %{hovertext}<extra>" + name + "</extra>",
    )  # fmt: skip
    finite = part[part["due"].notna()]
    if finite["due"].max() > 0:
        common["x"] = finite["flip_count"].to_numpy()
        figure.add_scatter(
            **common, row=1, col=panel + 1,
            y=np.where(finite["due"] > 0, scale.place(finite["due"]), np.nan),
            name=f"{name}, not finite", legendgroup=f"{name}, not finite",
            line={"color": look["color"], "width": 1, "dash": "dot"},
            marker={"symbol": f"{_SYMBOLS[line]}-open", "size": 8, "color": look["color"]},
            hovertext=[f"{chance(p)} not finite" for p in finite["due"]],
            hovertemplate="%{x} flips: %{hovertext}<extra>" + name + "</extra>",
        )  # fmt: skip


def _ticks(counts: pd.Series) -> dict[str, Any]:
    """Double from tick to tick; leave out some if the panel would be full of them."""
    low, high = int(np.floor(np.log2(counts.min()))), int(np.ceil(np.log2(counts.max())))
    step = 1 + (high - low) // 8
    ticks = [2**power for power in range(low, high + 1, step)]
    return {
        "tickvals": ticks,
        "ticktext": [f"{tick:,}" for tick in ticks],
        "range": [float(np.log10(counts.min() / 1.3)), float(np.log10(counts.max() * 1.3))],
    }


def _claim(rows: pd.DataFrame) -> str:
    first = rows.sort_values("pvf", kind="stable").iloc[-1]
    mine = rows[(rows["panel"] == first["panel"]) & (rows["line"] == first["line"])]
    mine = mine.sort_values("flip_count", kind="stable")
    few, most = mine.iloc[0], mine.iloc[-1]
    name = ", ".join(label(each, 20) for each in (first["panel"], first["line"]))
    if few["flip_count"] == most["flip_count"]:
        return f"{name}: {chance(few['pvf'])} go wrong at {plural(int(few['flip_count']), 'flip')}"
    return (
        f"{name}: {chance(few['pvf'])} go wrong at {plural(int(few['flip_count']), 'flip')}, "
        f"{chance(most['pvf'])} at {int(most['flip_count']):,}"
    )
