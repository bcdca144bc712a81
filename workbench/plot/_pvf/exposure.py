"""Where upsets hit, and where they hurt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.errors import TableError
from workbench.plot._pvf.estimates import coverage, estimand, name_rows
from workbench.plot._style.bars import panels
from workbench.plot._style.chances import Chances, axis_of, chance, numbers
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import Frame, distinct, fill
from workbench.plot._style.text import digits, is_doubtful, label, plural, safe, short
from workbench.tables import PVF, PVF_EXPOSURE

_MOST, _ROW_PX = 24, 46
_APART = 0.19


def pvf_exposure(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show each group's share of the bits beside its share of the wrong outputs.

    Two bars per group. The title compares them for the group with most wrong outputs.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF_EXPOSURE`.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
    """
    frame = Frame(source, synthetic)
    PVF_EXPOSURE.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no groups; pass what analyze.pvf_exposure returns.",
            claim="No exposure to show",
        )
    ordered = table.sort_values("wrong_share", ascending=False, kind="stable", na_position="last")
    drawn = ordered.head(_MOST).reset_index(drop=True)
    figure = Draft()
    for name, column, meaning, shift in (
        ("share of the bits that upsets can hit", "bit_share", "all others", -_APART),
        ("share of the wrong outputs to expect", "wrong_share", "wrong", _APART),
    ):
        bars = drawn[drawn[column].notna()]
        figure.add_bar(
            orientation="h", x=100 * bars[column].to_numpy(dtype="float64"),
            y=bars.index.to_numpy() + shift, width=0.34, name=name, marker=fill(meaning),
            text=[f" {chance(share)}" for share in bars[column]], textposition="outside",
            cliponaxis=False, hovertext=[_hover(row) for _, row in bars.iterrows()],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    names = [safe(short(name, 40)) for name in drawn["group"]]
    name_rows(figure, names, max(len(drawn), 2) * _ROW_PX, showgrid=False)
    # Room for the number behind the longest bar; .01 keeps an axis where all shares are 0.
    most = 100 * float(np.nanmax([drawn["bit_share"].max(), drawn["wrong_share"].max(), 0.01]))
    figure.update_xaxes(title="share of the model's total [%]", range=[0, 1.14 * most])
    per_upset = float(table["wrong_per_upset"].sum())
    notes = ["every bit is hit equally often"]
    notes += [f"{chance(per_upset)} of the inferences go wrong per upset of the model"]
    hidden = len(table) - len(drawn)
    notes += [f"{plural(hidden, 'group')} with less dropped"] if hidden else []
    return frame.finish(figure, claim=_claim(drawn), note=" · ".join(notes))


def _hover(row: pd.Series) -> str:
    lines = [label(row["group"], 80), f"{row['bit_count']:,.0f} bits, PVF {chance(row['pvf'])}"]
    if not pd.isna(rate := row["wrong_per_million_hours"]):
        lines.append(f"{digits(rate)} wrong per input and million hours")
    return "<br>".join(lines)


def _claim(drawn: pd.DataFrame) -> str:
    worst = drawn.iloc[0]
    if pd.isna(worst["wrong_share"]):
        return "No fault gave a wrong output, so there are none to attribute"
    return (
        f"{label(worst['group'], 30)} holds {chance(worst['bit_share'])} of the bits and gives "
        f"{chance(worst['wrong_share'])} of the wrong outputs"
    )


_MOST_PANELS, _MOST_LINES, _MOST_POINTS = 4, 4, 400
_SYMBOLS = ("circle", "square", "diamond", "triangle-up")
_HEIGHT_PX = 320


def pvf_by_flips(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the share of wrong outputs against the number of flips, and that not finite.

    A panel per component and a line per type of number, with intervals; hollow marks on
    thin lines are outputs that are not finite. Both axes double or grow tenfold in equal
    steps. The title compares the fewest flips with the most.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF` with a column ``flip_count`` before it, and perhaps
        ``dtype`` (one line each) and ``component`` (one panel each).
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.

    Raises
    ------
    TableError
        If the column ``flip_count`` is missing.
    """
    frame = Frame(source, synthetic)
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
        return frame.nothing(
            "The table has no numbers of flips; pass what analyze.pvf_by_flips returns.",
            claim="No flips to show",
        )
    names, lines = (list(dict.fromkeys(rows[column])) for column in ("panel", "line"))
    shown, drawn = names[:_MOST_PANELS], lines[:_MOST_LINES]
    rows = rows[rows["panel"].isin(shown) & rows["line"].isin(drawn)]
    scale = axis_of(pd.concat([rows["pvf"], rows["due"][rows["due"] > 0]]), high=rows["high"])
    figure = panels([label(name, 20) for name in shown], height_px=_HEIGHT_PX)
    for (panel, line), rows_of_line in rows.groupby(["panel", "line"], sort=False):
        _add_line(figure, rows_of_line, scale, panel=shown.index(panel), line=drawn.index(line))
    figure.update_xaxes(type="log", **_ticks(rows["flip_count"]))
    figure.update_xaxes(title="flips per experiment [count]", col=1)
    look = scale.axis()
    figure.update_yaxes(**{name: value for name, value in look.items() if name != "title"})
    figure.update_yaxes(title=look["title"], col=1)
    hidden = len(names) - len(shown) + len(lines) - len(drawn)
    notes = [*estimand(rows), *coverage(rows)]
    notes += [f"{plural(hidden, 'component or type')} dropped"] if hidden else []
    return frame.finish(
        figure,
        claim=_by_flips_claim(rows),
        note=" · ".join(notes),
        is_doubtful=is_doubtful(rows[rows["pvf"] > 0].nlargest(1, "pvf")),
    )


def _panels(table: pd.DataFrame) -> pd.Series:
    names = _texts(table, "component", "all")
    origin = table["drawn_from"].astype(object)
    return names.where(origin == "", origin.astype(str) + " of " + names)


def _texts(table: pd.DataFrame, column: str, otherwise: str) -> pd.Series:
    if column not in table:
        return pd.Series(otherwise, index=table.index)
    return table[column].astype(object).where(table[column].notna(), "not told").astype(str)


def _add_line(
    figure: go.Figure, rows: pd.DataFrame, scale: Chances, *, panel: int, line: int
) -> None:
    rows = rows.sort_values("flip_count", kind="stable")
    # Peaks stay: thinned by position, a line would lose them.
    rows = rows.iloc[extremes(rows["pvf"].to_numpy(), _MOST_POINTS)]
    look, name = distinct(line), label(rows["line"].iloc[0], 20)
    common: dict[str, Any] = {
        "x": rows["flip_count"].to_numpy(), "mode": "lines+markers", "showlegend": panel == 0,
    }  # fmt: skip
    figure.add_scatter(
        **common, row=1, col=panel + 1, y=scale.place(rows["pvf"]), name=name, legendgroup=name,
        error_y=scale.whiskers(rows, look["color"]),
        line={**look, "width": 2},
        marker={"symbol": _SYMBOLS[line], "size": 8, "color": look["color"]},
        hovertext=[f"{chance(p)} go wrong" for p in rows["pvf"]],
        hovertemplate="%{x} flips: %{hovertext}<extra>" + name + "</extra>",
    )  # fmt: skip
    finite = rows[rows["due"].notna()]
    # Tools that tell outputs that are not finite may have found none.
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


def _by_flips_claim(rows: pd.DataFrame) -> str:
    first = rows.sort_values("pvf", kind="stable").iloc[-1]
    worst_line = rows[(rows["panel"] == first["panel"]) & (rows["line"] == first["line"])]
    worst_line = worst_line.sort_values("flip_count", kind="stable")
    fewest, most = worst_line.iloc[0], worst_line.iloc[-1]
    name = ", ".join(label(text, 20) for text in (first["panel"], first["line"]))
    flips = plural(int(fewest["flip_count"]), "flip")
    claim = f"{name}: {chance(fewest['pvf'])} go wrong at {flips}"
    if fewest["flip_count"] == most["flip_count"]:
        return claim
    return f"{claim}, {chance(most['pvf'])} at {int(most['flip_count']):,}"
