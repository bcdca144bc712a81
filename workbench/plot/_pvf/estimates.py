"""How vulnerable each part of a model is: the probability that a fault gives a wrong output."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._pvf.estimand import coverage, differing, estimand, rule_of
from workbench.plot._style.chances import Chances, axis_of, chance, chances, segments
from workbench.plot._style.style import COLOURS, finish, left_margin, nothing
from workbench.plot._style.text import label, plural, safe, short, wrapped
from workbench.tables import PVF

_MOST, _MOST_DETAILED = 40, 16
_EXACT = "exact"  # nothing was estimated, so there is no interval
_APART = 0.22  # rows; the naive interval lies below the clustered one


def pvf(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how often a fault in each group gives a wrong output, with its interval.

    Below the interval that takes sites as the sample lies a thin one that takes all inputs
    of a site as independent. They are not: it is too narrow, and there to be compared only.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PVF`; results of several campaigns or tools may be put
        together with ``pandas.concat``: where their rules differ, the labels say how.
    source
        Where the data comes from, e.g. model and inputs; printed under the figure.
    synthetic
        Whether the inputs were generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One dot per group with both intervals, the most vulnerable on top; open with its doubt
        where it is not sure. The title names the most vulnerable group.
    """
    PVF.check(table)
    if table.empty:
        return nothing(
            "The table has no groups; pass what analyze.pvf returns.",
            claim="No vulnerability to show",
            source=source,
            synthetic=synthetic,
        )
    ordered = table.sort_values("pvf", ascending=False, kind="stable", na_position="last")
    drawn = ordered.head(_MOST).reset_index(drop=True)
    axis = axis_of(drawn["pvf"], drawn["low"], drawn["high"])
    figure = go.Figure()
    _add_intervals(figure, drawn, axis)
    _add_estimates(figure, drawn, axis)
    names = _names(drawn, differing(table))
    lines = 1 + max(name.count("<br>") for name in names)
    figure.update_layout(
        height=max(len(drawn), 3) * (15 * lines + 13),
        margin_l=left_margin(names),
        hovermode="closest",
    )
    figure.update_xaxes(**axis.axis())
    figure.update_yaxes(
        tickvals=list(range(len(drawn))),
        ticktext=names,
        range=[len(drawn) - 0.4, -0.6],
    )
    hidden = len(table) - len(drawn)
    notes = [*estimand(table), *coverage(table[table["interval"] != _EXACT])]
    notes += [f"{hidden:,} less vulnerable groups left out"] if hidden else []
    return finish(
        figure, claim=_claim(ordered), source=source, synthetic=synthetic, note=" · ".join(notes)
    )


def _add_intervals(figure: go.Figure, drawn: pd.DataFrame, axis: Chances) -> None:
    """Draw the interval that holds, and thin below it the one that does not."""
    drawn = drawn[drawn["interval"] != _EXACT]
    places = drawn.index.to_numpy(dtype="float64")
    for low, high, shift, name, line in (
        ("low", "high", 0.0, "interval, sites as the sample",
         {"color": COLOURS["dark"], "width": 3, "dash": "solid"}),
        ("independent_low", "independent_high", _APART,
         "too narrow: inputs taken as independent",
         {"color": COLOURS["limit"], "width": 1.5, "dash": "2px,2px"}),
    ):  # fmt: skip
        x, y = segments(axis.place(drawn[low]), axis.place(drawn[high]), places + shift)
        if x:
            figure.add_scatter(
                mode="lines+markers", x=x, y=y, name=name, line=line, hoverinfo="skip",
                marker={"symbol": "line-ns-open", "size": 7, "color": line["color"]},
            )  # fmt: skip


def _add_estimates(figure: go.Figure, drawn: pd.DataFrame, axis: Chances) -> None:
    """Place one mark per group; its shape says whether it is exact, sure, zero or unknown."""
    estimate = drawn["pvf"]
    known, zero = estimate.notna(), estimate == 0
    exact = drawn["interval"] == _EXACT
    kinds = (
        ("exact: every site was injected", known & exact & ~zero, "square"),
        ("PVF", known & ~exact & ~zero & drawn["is_sure"], "circle"),
        ("PVF, not sure", known & ~exact & ~zero & ~drawn["is_sure"], "diamond-open"),
        ("no wrong output found", known & zero, "triangle-left-open"),
        ("no answer", ~known, "x-thin-open"),
    )
    for name, chosen, symbol in kinds:
        rows = drawn[chosen]
        if rows.empty:
            continue
        figure.add_scatter(
            mode="markers",
            x=axis.place(rows["pvf"].fillna(0.0)),
            y=rows.index.to_numpy(),
            name=name,
            marker={
                "symbol": symbol, "size": 11, "color": COLOURS["transfer"],
                "line": {"width": 2, "color": COLOURS["transfer"]},
            },
            hovertext=[_hover(row) for _, row in rows.iterrows()],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip


def _names(drawn: pd.DataFrame, rules: list[str]) -> list[str]:
    """Write beside each row what it is, and below that its size, its rules and its doubt."""
    names = []
    for _, row in drawn.iterrows():
        parts = [safe(short(row["group"], 40))]
        if len(drawn) <= _MOST_DETAILED:
            size = plural(int(row["site_count"]), "site")
            parts.append(f"<i>{'all ' if row['interval'] == _EXACT else ''}{size}</i>")
            parts += [f"<i>{rule_of(row, rules)}</i>"] if rules else []
            parts += [] if row["is_sure"] else _doubt(row["doubt"])
        names.append("<br>".join(parts))
    return names


def _doubt(text: object) -> list[str]:
    lines = wrapped(f"not sure: {label(text, 110)}", 46).split("<br>")
    return [f"<i>{line}</i>" for line in lines]


def _claim(ordered: pd.DataFrame) -> str:
    known = ordered[ordered["pvf"] > 0]
    if known.empty:
        sites = int(ordered["site_count"].sum())
        return f"No fault gave a wrong output at {plural(sites, 'injection site')}"
    first = known.iloc[0]
    name, most = label(first["group"], 24), chance(first["pvf"])
    unsure = "" if first["is_sure"] else ", which is not sure"
    if len(known) == 1 and len(ordered) > 1:
        return f"Wrong outputs only in {name}: {most} of faulty inferences go wrong{unsure}"
    if len(known) == 1:
        return f"{name}: {most} of faulty inferences go wrong{unsure}"
    second = known.iloc[1]
    rival, next_most = label(second["group"], 24), chance(second["pvf"])
    if most == next_most:
        return (
            f"{name} and {rival} are highest: {most} of faulty inferences go wrong in each{unsure}"
        )
    highest = f"Highest: {name}, {most} of faulty inferences go wrong; next {rival}, {next_most}"
    if pd.isna(first["low"]) or pd.isna(second["high"]):
        return f"{highest}, not known whether by chance"
    if first["low"] <= second["high"]:
        return f"{highest}; their intervals overlap{unsure and ', not sure'}"
    return f"{highest}{unsure}"


def _hover(row: pd.Series) -> str:
    due = "unknown" if pd.isna(row["due_count"]) else f"{int(row['due_count']):,}"
    effect = row["design_effect_ratio"]
    lines = [
        label(row["group"], 80),
        f"PVF {chance(row['pvf'])} ({chances(row['low'], row['high'])}, "
        f"{label(row['interval'], 30)})",
        f"{plural(int(row['site_count']), 'site')}, {int(row['event_site_count']):,} of them with "
        "a wrong output",
        f"{int(row['trial_count']):,} trials: {int(row['sdc_count']):,} wrong, {due} not finite",
    ]
    if not pd.isna(effect):
        lines.append(f"{effect:,.3g} times the variance of independent trials")
    if not row["is_sure"]:
        lines.append(f"not sure: {label(row['doubt'], 120)}")
    return "<br>".join(lines)
