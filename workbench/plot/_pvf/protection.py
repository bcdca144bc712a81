"""What protecting the most harmful parts first removes."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.dots import log_ticks
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import MAX_LINES, distinct, finish, nothing
from workbench.plot._style.text import label, percent, plural
from workbench.tables import PVF_PROTECTION

_FEW, _MOST_POINTS = 40, 400
_COUNTED = 64  # so many of them are better told as a number than as a share
_WANTED = 0.9  # share removed that the title reads off
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")


def pvf_protection(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the share of wrong outputs removed against the share that is protected.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF_PROTECTION`.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One line per group, unit and way of ranking; the axis of what is protected is
        logarithmic where it spans decades. The title reads off where nine tenths are removed.
    """
    PVF_PROTECTION.check(table)
    rows = table[table["protected_count"] > 0]
    if rows.empty:
        return nothing(
            "The table has no protected parts; pass what analyze.pvf_protection returns.",
            claim="No protection to show",
            source=source,
            synthetic=synthetic,
        )
    keys = ["group", "unit", "ranked_by"]
    lines = list(rows.groupby(keys, sort=False))
    told = [name for name in keys if rows[name].nunique() > 1] or ["group"]
    figure = go.Figure()
    for at, (_, part) in enumerate(lines[:MAX_LINES]):
        _add_line(figure, part.sort_values("protected_share", kind="stable"), at, told)
    shares = 100 * rows["protected_share"].to_numpy()
    what = " or ".join(dict.fromkeys("elements" if unit == "elements" else "bits"
                                     for unit in rows["unit"]))  # fmt: skip
    if shares.max() > 20 * shares.min() > 0:
        figure.update_xaxes(title=f"protected [% of all {what}, logarithmic]", type="log")
        figure.update_xaxes(**log_ticks(shares))
    else:
        figure.update_xaxes(title=f"protected [% of all {what}]", rangemode="tozero")
    figure.update_yaxes(title="wrong outputs removed [%]", range=[-2, 103])
    hidden = len(lines) - min(len(lines), MAX_LINES)
    notes = ["the most harmful first", *_ranking(rows)]
    notes += [f"{plural(hidden, 'line')} left out"] if hidden else []
    return finish(
        figure, claim=_claim(lines[0][1]), source=source, synthetic=synthetic,
        note=" · ".join(notes),
    )  # fmt: skip


def _add_line(figure: go.Figure, part: pd.DataFrame, at: int, told: list[str]) -> None:
    part = part.iloc[extremes(part["removed_share"].to_numpy(), _MOST_POINTS)]
    first = part.iloc[0]
    name = ", ".join(label(first[each], 24) for each in told)
    look = distinct(at)
    last = part["last"].astype(object).where(part["last"].notna(), "")
    figure.add_scatter(
        mode="lines+markers" if len(part) <= _FEW else "lines",
        x=100 * part["protected_share"].to_numpy(),
        y=100 * part["removed_share"].to_numpy(),
        name=name,
        line={**look, "width": 2.5},
        marker={"symbol": _SYMBOLS[at % len(_SYMBOLS)], "size": 7, "color": look["color"]},
        hovertext=[
            f"{count:,} protected{f', the last {label(each, 40)}' if each else ''}"
            for count, each in zip(part["protected_count"], last, strict=True)
        ],
        hovertemplate="%{hovertext}: %{y:.3~g} % removed<extra>" + name + "</extra>",
    )


def _ranking(rows: pd.DataFrame) -> list[str]:
    known = list(rows["ranked_by"].unique())
    if known == ["truth"]:
        return ["ranked by the truth, so nothing can remove more"]
    if len(known) == 1:
        return [f"ranked by {label(known[0], 60)}"]
    return []


def _claim(part: pd.DataFrame) -> str:
    """Read off the first line where enough is removed, or where it ends."""
    part = part.sort_values("protected_share", kind="stable")
    enough = part[part["removed_share"] >= _WANTED]
    row = enough.iloc[0] if len(enough) else part.iloc[-1]
    where = "" if row["group"] == "all" else f" of {label(row['group'], 24)}"
    whole = int(part["protected_count"].iloc[-1])
    some = f"{percent(row['protected_share'])} of the {label(row['unit'], 24)}{where}"
    if whole <= _COUNTED and part["protected_share"].iloc[-1] == 1:
        last = "" if pd.isna(row["last"]) else f" (the last: {label(row['last'], 24)})"
        some = f"{row['protected_count']:,} of {whole:,} {label(row['unit'], 24)}{where}{last}"
    return f"Protecting {some} removes {percent(row['removed_share'])} of the wrong outputs"
