"""Gain of protecting the most harmful parts first."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._pvf.estimates import name_rows
from workbench.plot._style import chances as scales
from workbench.plot._style.bars import log_ticks
from workbench.plot._style.chances import Chances, axis_of, chance, chances
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, MAX_LINES, Frame, distinct
from workbench.plot._style.text import label, percent, plural, safe, short
from workbench.tables import PVF_MITIGATION, PVF_PROTECTION

_FEW, _MOST_POINTS = 40, 400
_COUNTED = 64  # so many of them are better told as a number than as a share
_WANTED = 0.9  # share removed that the title reads off
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")


def pvf_protection(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the share of wrong outputs removed against the share that is protected.

    One line per group, unit and way of ranking; the axis of what is protected is
    logarithmic where it spans decades. The title reads off where nine tenths are removed.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF_PROTECTION`.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
    """
    frame = Frame(source, synthetic)
    PVF_PROTECTION.check(table)
    rows = table[table["protected_count"] > 0]
    if rows.empty:
        return frame.nothing(
            "The table has no protected parts; pass what analyze.pvf_protection returns.",
            claim="No protection to show",
        )
    keys = ["group", "unit", "ranked_by"]
    lines = list(rows.groupby(keys, sort=False))
    # Only what differs between lines is named, and something must be.
    name_columns = [name for name in keys if rows[name].nunique() > 1] or ["group"]
    figure = Draft()
    for at, (_, curve) in enumerate(lines[:MAX_LINES]):
        _add_line(figure, curve.sort_values("protected_share", kind="stable"), at, name_columns)
    shares = 100 * rows["protected_share"].to_numpy()
    protected_nouns = " or ".join(dict.fromkeys("elements" if unit == "elements" else "bits"
                                     for unit in rows["unit"]))  # fmt: skip
    # On a linear axis steps that span decades would start in one spot.
    if shares.max() > 20 * shares.min() > 0:
        figure.update_xaxes(
            title=f"protected [% of all {protected_nouns}, logarithmic]", type="log"
        )
        figure.update_xaxes(**log_ticks(shares))
    else:
        figure.update_xaxes(title=f"protected [% of all {protected_nouns}]", rangemode="tozero")
    figure.update_yaxes(title="wrong outputs removed [%]", range=[-2, 103])
    hidden = len(lines) - min(len(lines), MAX_LINES)
    notes = ["the most harmful first", *_ranking(rows)]
    notes += [f"{plural(hidden, 'line')} dropped"] if hidden else []
    return frame.finish(
        figure, claim=_claim(lines[0][1]),
        note=" · ".join(notes))  # fmt: skip


def _add_line(figure: go.Figure, curve: pd.DataFrame, at: int, name_columns: list[str]) -> None:
    curve = curve.iloc[extremes(curve["removed_share"].to_numpy(), _MOST_POINTS)]
    first = curve.iloc[0]
    name = ", ".join(label(first[column], 24) for column in name_columns)
    look = distinct(at)
    last = curve["last"].astype(object).where(curve["last"].notna(), "")
    figure.add_scatter(
        mode="lines+markers" if len(curve) <= _FEW else "lines",
        x=100 * curve["protected_share"].to_numpy(), y=100 * curve["removed_share"].to_numpy(),
        name=name, line={**look, "width": 2.5},
        marker={"symbol": _SYMBOLS[at % len(_SYMBOLS)], "size": 7, "color": look["color"]},
        hovertext=[
            f"{count:,} protected{f', the last {label(column, 40)}' if column else ''}"
            for count, column in zip(curve["protected_count"], last, strict=True)
        ],
        hovertemplate="%{hovertext}: %{y:.3~g} % removed<extra>" + name + "</extra>",
    )  # fmt: skip


def _ranking(rows: pd.DataFrame) -> list[str]:
    rankings = list(rows["ranked_by"].unique())
    if rankings == ["truth"]:
        return ["ranked by the truth, so nothing can remove more"]
    if len(rankings) == 1:
        return [f"ranked by {label(rankings[0], 60)}"]
    return []


def _claim(curve: pd.DataFrame) -> str:
    curve = curve.sort_values("protected_share", kind="stable")
    enough = curve[curve["removed_share"] >= _WANTED]
    row = enough.iloc[0] if len(enough) else curve.iloc[-1]
    where = "" if row["group"] == "all" else f" of {label(row['group'], 24)}"
    total = int(curve["protected_count"].iloc[-1])
    protected = f"{percent(row['protected_share'])} of the {label(row['unit'], 24)}{where}"
    if total <= _COUNTED and curve["protected_share"].iloc[-1] == 1:
        last = "" if pd.isna(row["last"]) else f" (the last: {label(row['last'], 24)})"
        protected = f"{row['protected_count']:,} of {total:,} {label(row['unit'], 24)}{where}{last}"
    return f"Protecting {protected} removes {percent(row['removed_share'])} of the wrong outputs"


_MOST, _MOST_KINDS, _ROW_PX = 30, 8, 40
_MITIGATION_SYMBOLS = (*_SYMBOLS[1:], "star", "hexagon", "pentagon")
_NONE = "none"


def pvf_mitigation(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the share of wrong outputs of the same faults with each mitigation and without.

    One row per group and mitigation with its interval and what it removes. The title
    names what removes most.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF_MITIGATION`.
    source, synthetic
        Where the data comes from, e.g. model and inputs; whether the inputs were generated.
    """
    frame = Frame(source, synthetic)
    PVF_MITIGATION.check(table)
    if table.empty:
        return frame.nothing(
            "The table has no mitigations; pass what analyze.pvf_mitigation returns.",
            claim="No mitigations to compare",
        )
    drawn = table.head(_MOST).reset_index(drop=True)
    axis = axis_of(drawn["pvf"], drawn["low"], drawn["high"])
    figure = Draft()
    x, y = scales.segments(axis.place(drawn["low"]), axis.place(drawn["high"]), list(drawn.index))
    if x:
        figure.add_scatter(
            mode="lines", x=x, y=y, name="interval", hoverinfo="skip",
            line={"color": COLOURS["dark"], "width": 2.5, "dash": "solid"},
        )  # fmt: skip
    kinds = sorted(drawn["mitigation"].unique(), key=lambda kind: kind != _NONE)
    for at, kind in enumerate(kinds):
        _add_kind(figure, drawn[drawn["mitigation"] == kind], axis, kind=kind, at=at)
    names = [_name(row) for _, row in drawn.iterrows()]
    name_rows(figure, names, max(len(drawn), 2) * _ROW_PX)
    figure.update_xaxes(**axis.axis())
    hidden = len(table) - len(drawn)
    notes = ["the same faults with and without", "removed: over the wrong outputs without"]
    notes += [f"{plural(hidden, 'row')} dropped"] if hidden else []
    return frame.finish(figure, claim=_mitigation_claim(table), note=" · ".join(notes))


def _add_kind(figure: go.Figure, rows: pd.DataFrame, axis: Chances, *, kind: str, at: int) -> None:
    colour = COLOURS["sdc"] if kind == _NONE else distinct(at)["color"]
    symbol = "circle" if kind == _NONE else _MITIGATION_SYMBOLS[at % len(_MITIGATION_SYMBOLS)]
    figure.add_scatter(
        mode="markers", x=axis.place(rows["pvf"]), y=rows.index.to_numpy(),
        name="without" if kind == _NONE else label(kind, 24),
        marker={
            # Where nothing goes wrong any more the mark is open.
            "symbol": [f"{symbol}-open" if p == 0 else symbol for p in rows["pvf"]],
            "size": 11, "color": colour, "line": {"width": 1.5, "color": colour},
        },
        hovertext=[_hover(row) for _, row in rows.iterrows()],
        hovertemplate="%{hovertext}<extra></extra>",
    )  # fmt: skip


def _name(row: pd.Series) -> str:
    if row["mitigation"] == _NONE:
        return f"{safe(short(row['group'], 40))}<br><i>without</i>"
    removed = "" if pd.isna(row["removed_ratio"]) else f": {_removed(row['removed_ratio'])}"
    return f"{safe(short(row['group'], 40))}<br><i>{label(row['mitigation'], 24)}{removed}</i>"


def _removed(ratio: float) -> str:
    return f"removes {chance(ratio)}" if ratio >= 0 else f"adds {chance(-ratio)}"


def _hover(row: pd.Series) -> str:
    lines = [
        f"{label(row['group'], 80)}, {label(row['mitigation'], 40)}",
        f"PVF {chance(row['pvf'])} ({chances(row['low'], row['high'])})",
        f"{plural(int(row['site_count']), 'site')} in both campaigns",
    ]
    if not pd.isna(row["removed_ratio"]):
        ends = [row["removed_low"], row["removed_high"]]
        span = "" if np.isnan(ends).any() else f" ({100 * ends[0]:.3g} to {100 * ends[1]:.3g} %)"
        lines.append(f"{_removed(row['removed_ratio'])}{span}")
    if not pd.isna(row["golden_metric"]):
        lines.append(f"quality without faults: {row['golden_metric']:.4g}")
    return "<br>".join(lines)


def _mitigation_claim(table: pd.DataFrame) -> str:
    compared = table[(table["mitigation"] != _NONE) & table["removed_ratio"].notna()]
    if compared.empty:
        return "Nothing went wrong without a mitigation, so none can remove anything"
    best = scales.row_with(compared, "removed_ratio")
    if best["removed_ratio"] <= 0:
        return "No mitigation removes wrong outputs"
    return (
        f"{label(best['mitigation'], 30)} removes most: {chance(best['removed_ratio'])} of the "
        f"wrong outputs in {label(best['group'], 30)}"
    )
