"""How many sites to inject for a wanted error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.chances import chance, row_with
from workbench.plot._style.dots import log_ticks
from workbench.plot._style.style import distinct, distinct_fill, finish, left_margin, nothing
from workbench.plot._style.text import digits, label, percent, plural, safe, short
from workbench.tables import INJECTION_SAMPLE_SIZES

_MOST_GROUPS, _MOST_DESIGNS, _ROW_PX = 8, 10, 21


def injection_sample_sizes(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the sites that each design needs, on a logarithmic axis.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.INJECTION_SAMPLE_SIZES`.
    source
        Where the planned factors come from; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per group and design, with the number of sites. The title compares the cheapest
        design with the dearest.
    """
    INJECTION_SAMPLE_SIZES.check(table)
    known = table[table["site_count"].notna()]
    if known.empty:
        return nothing(
            "No design has an answer: without wrong outputs an error relative to them cannot be "
            "planned for.",
            claim="No sample sizes to show",
            source=source,
            synthetic=synthetic,
        )
    groups = list(dict.fromkeys(table["group"]))[:_MOST_GROUPS]
    designs = table[["design", "inputs", "error", "error_kind", "level_share"]].drop_duplicates()
    drawn = designs.head(_MOST_DESIGNS).reset_index(drop=True)
    figure = go.Figure()
    width = 0.86 / len(drawn)
    with_level = designs["level_share"].nunique() > 1
    for at, design in drawn.iterrows():
        part = known[(known[list(drawn)] == design).all(axis=1) & known["group"].isin(groups)]
        places = np.array([groups.index(group) for group in part["group"]])
        shift = (int(str(at)) - (len(drawn) - 1) / 2) * width
        bars = {"y": places + shift, "width": 0.9 * width, "name": _design(design, with_level)}
        _add_bars(figure, part, bars, at=int(str(at)))
    names = [_group(table, group) for group in groups]
    figure.update_layout(
        height=max(len(groups) * len(drawn), 6) * _ROW_PX, margin_l=left_margin(names),
        hovermode="closest", showlegend=False,
    )  # fmt: skip
    figure.update_xaxes(
        title="sites to inject [count, logarithmic]", type="log", **_axis(known["site_count"])
    )
    figure.update_yaxes(
        tickvals=list(range(len(groups))), ticktext=names, range=[len(groups) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    notes = ["± % of the PVF, or in points of per cent", "all inputs: per site"]
    level = percent(float(designs["level_share"].iloc[0]))
    notes += [] if with_level else [f"at {level} confidence"]
    missing = len(table) - len(known)
    notes += [f"{plural(missing, 'design')} without an answer: no wrong outputs"] if missing else []
    hidden = len(set(table["group"])) - len(groups) + len(designs) - len(drawn)
    notes += [f"{plural(hidden, 'group or design')} left out"] if hidden else []
    return finish(
        figure, claim=_claim(known, groups[0]), source=source, synthetic=synthetic,
        note=" · ".join(notes),
    )  # fmt: skip


def _axis(site_counts: pd.Series) -> dict[str, Any]:
    needed = site_counts.clip(lower=1).to_numpy(dtype="float64")
    # The words beside the longest bar need nearly half of the width.
    low, high = 0.5 * min(needed.min(), 100), needed.max()
    axis = log_ticks(np.array([low, high * max((high / low) ** 0.75, 100)]))
    known = [at for at, tick in enumerate(axis["tickvals"]) if tick <= 10 * high]
    return axis | {name: [axis[name][at] for at in known] for name in ("tickvals", "ticktext")}


def _group(table: pd.DataFrame, group: str) -> str:
    factor = float(table.loc[table["group"] == group, "pvf"].iloc[0])
    return f"{safe(short(group, 30))}<br><i>PVF {chance(factor)}</i>"


def _add_bars(figure: go.Figure, part: pd.DataFrame, bars: dict[str, Any], *, at: int) -> None:
    if part.empty:
        return
    name = bars["name"]
    figure.add_bar(
        orientation="h",
        x=part["site_count"].clip(lower=1).to_numpy(dtype="float64"),
        **bars,
        marker=distinct_fill(at) | {"color": distinct(at)["color"]},
        text=[f" <b>{digits(round(count))}</b> {name}" for count in part["site_count"]],
        textposition="outside",
        cliponaxis=False,
        hovertext=[
            f"{label(row['group'], 60)}: {digits(round(row['site_count']))} sites"
            + ("" if pd.isna(row["expected_event_count"]) else
               f", {digits(row['expected_event_count'])} of them with a wrong output")
            for _, row in part.iterrows()
        ],
        hovertemplate="%{hovertext}<extra>" + name + "</extra>",
    )  # fmt: skip


def _design(row: pd.Series, with_level: bool) -> str:
    inputs = {"one": "one input", "all": "all inputs"}.get(row["inputs"], label(row["inputs"], 12))
    level = f" at {percent(row['level_share'])}" if with_level else ""
    return f"{_words(row['design'])}, {inputs}, {_error(row)}{level}"


def _error(row: pd.Series) -> str:
    return f"±{100 * row['error']:.3g} {'%' if row['error_kind'] == 'relative' else 'points'}"


def _words(design: str) -> str:
    return {"neyman": "Neyman", "leveugle": "Leveugle"}.get(design, label(design, 16))


def _claim(known: pd.DataFrame, group: str) -> str:
    mine = known[known["group"] == group]
    mine = mine if len(mine) else known
    relative = mine[mine["error_kind"] == "relative"]
    mine = relative if len(relative) else mine
    # Designs are compared where they are asked for the same.
    asked = ["error", "error_kind", "level_share"]
    several = len(mine[asked].drop_duplicates()) > 1
    mine = mine[(mine[asked] == mine[asked].iloc[0]).all(axis=1)]
    best = row_with(mine, "site_count", largest=False)
    worst = row_with(mine, "site_count")
    least = (
        f"{label(best['group'], 24)} needs {digits(round(best['site_count']))} sites by design "
        f"{_words(best['design'])}"
    )
    if best["site_count"] != worst["site_count"]:
        least = f"{least}, {digits(round(worst['site_count']))} by {_words(worst['design'])}"
    if several:
        return f"{least}, for {_error(best)} at {percent(best['level_share'])} confidence"
    return least
