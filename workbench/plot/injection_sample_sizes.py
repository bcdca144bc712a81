"""How many sites to inject for a wanted error."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._chances import chance, row_with
from workbench.plot._dots import log_ticks
from workbench.plot._text import digits, label, percent, plural, safe, short
from workbench.plot.style import distinct, distinct_fill, finish, left_margin, nothing
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
    designs = table[["design", "inputs", "error", "error_kind"]].drop_duplicates()
    drawn = designs.head(_MOST_DESIGNS).reset_index(drop=True)
    figure = go.Figure()
    width = 0.86 / len(drawn)
    for at, design in drawn.iterrows():
        part = known[(known[list(drawn)] == design).all(axis=1) & known["group"].isin(groups)]
        places = np.array([groups.index(group) for group in part["group"]])
        shift = (int(str(at)) - (len(drawn) - 1) / 2) * width
        _add_bars(figure, part, at=int(str(at)), y=places + shift, width=0.9 * width)
    names = [_group(table, group) for group in groups]
    ticks = [part for name in names for part in name.replace("<i>", "").split("<br>")]
    figure.update_layout(
        height=max(len(groups) * len(drawn), 6) * _ROW_PX, margin_l=left_margin(ticks),
        hovermode="closest", showlegend=False,
    )  # fmt: skip
    needed = known["site_count"].clip(lower=1).to_numpy(dtype="float64")
    # The words beside the longest bar need nearly half of the width.
    low, high = 0.5 * min(needed.min(), 100), needed.max()
    axis = log_ticks(np.array([low, high * max((high / low) ** 0.75, 100)]))
    known_ticks = [at for at, tick in enumerate(axis["tickvals"]) if tick <= 10 * high]
    axis |= {name: [axis[name][at] for at in known_ticks] for name in ("tickvals", "ticktext")}
    figure.update_xaxes(title="sites to inject [count, logarithmic]", type="log", **axis)
    figure.update_yaxes(
        tickvals=list(range(len(groups))), ticktext=names, range=[len(groups) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    notes = ["± % of the PVF, or in points of per cent", "all inputs: per site"]
    notes += [f"at {percent(float(known['level_share'].iloc[0]))} confidence"]
    missing = len(table) - len(known)
    notes += [f"{plural(missing, 'design')} without an answer: no wrong outputs"] if missing else []
    hidden = len(set(table["group"])) - len(groups) + len(designs) - len(drawn)
    notes += [f"{plural(hidden, 'group or design')} left out"] if hidden else []
    return finish(
        figure, claim=_claim(known, groups[0]), source=source, synthetic=synthetic,
        note=" · ".join(notes),
    )  # fmt: skip


def _group(table: pd.DataFrame, group: str) -> str:
    factor = float(table.loc[table["group"] == group, "pvf"].iloc[0])
    return f"{safe(short(group, 30))}<br><i>PVF {chance(factor)}</i>"


def _add_bars(
    figure: go.Figure, part: pd.DataFrame, *, at: int, y: np.ndarray, width: float
) -> None:
    if part.empty:
        return
    name = _design(part.iloc[0])
    figure.add_bar(
        orientation="h",
        x=part["site_count"].clip(lower=1).to_numpy(dtype="float64"),
        y=y,
        width=width,
        name=name,
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


def _design(row: pd.Series) -> str:
    error = f"±{100 * row['error']:.3g} {'%' if row['error_kind'] == 'relative' else 'points'}"
    inputs = {"one": "one input", "all": "all inputs"}.get(row["inputs"], label(row["inputs"], 12))
    return f"{_words(row['design'])}, {inputs}, {error}"


def _words(design: str) -> str:
    return {"neyman": "Neyman", "leveugle": "Leveugle"}.get(design, label(design, 16))


def _claim(known: pd.DataFrame, group: str) -> str:
    mine = known[known["group"] == group]
    mine = mine if len(mine) else known
    relative = mine[mine["error_kind"] == "relative"]
    mine = relative if len(relative) else mine
    best = row_with(mine, "site_count", largest=False)
    worst = row_with(mine, "site_count")
    least = (
        f"{label(best['group'], 24)} needs {digits(round(best['site_count']))} sites by design "
        f"{_words(best['design'])}"
    )
    if best["site_count"] == worst["site_count"]:
        return least
    return f"{least}, {digits(round(worst['site_count']))} by {_words(worst['design'])}"
