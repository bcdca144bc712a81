"""What changes the goodput: sweeps, ladders, and each input alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.goodput import CONVENTIONS
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import COLOURS, distinct, fill, finish, left_margin, nothing
from workbench.plot._style.text import digits, label, percent, safe
from workbench.tables import GOODPUT_LADDER, GOODPUT_SENSITIVITY, GOODPUT_SWEEP

# How inputs are called where people read them.
INPUTS = {
    "failure_interval_min": "time between failures [min]",
    "replicas": "replicas that fail alone",
    "recovery_min": "recovery of who was hit [min]",
    "stall_min": "stall of all replicas [min]",
    "rejoin_min": "stall at re-join [min]",
    "checkpoint_interval_min": "time between checkpoints [min]",
    "checkpoint_write_min": "writing a checkpoint [min]",
}
_MOST_ROWS = 20


def goodput_sweep(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the productive share while one input is varied.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_SWEEP`, of one input.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One line per convention. The title states the range.
    """
    GOODPUT_SWEEP.check(table)
    known = table.dropna(subset=["productive_share"])
    if known.empty:
        return nothing(
            "No convention has an answer for these values.",
            claim="Nothing to vary",
            source=source,
            synthetic=synthetic,
        )
    figure = go.Figure()
    ordered = known.sort_values("value", kind="stable")
    # In the order of the table, so that a convention keeps its colour while inputs change.
    conventions = list(dict.fromkeys(table["convention"]))
    for at, name in enumerate(conventions):
        part = ordered[ordered["convention"] == name]
        if part.empty:
            continue
        keep = extremes(part["productive_share"].to_numpy())
        few = len(keep) < 40
        figure.add_scatter(
            x=part["value"].to_numpy()[keep],
            y=part["productive_share"].to_numpy()[keep],
            mode="lines+markers" if few else "lines",
            name=safe(CONVENTIONS.get(str(name), name)),
            line=distinct(at),
            hovertemplate="%{x:.4g}: %{y:.1%}<extra></extra>",
        )
    parameter = str(known["parameter"].iloc[0])
    words = INPUTS.get(parameter, parameter)
    counted = next(name for name in conventions if (known["convention"] == name).any())
    first = ordered[ordered["convention"] == counted]
    low, high = first.iloc[0], first.iloc[-1]
    unit = " min" if parameter.endswith("_min") else ""
    name = words.split(" [")[0]
    claim = (
        f"Productive: {percent(low['productive_share'])} at {digits(low['value'])}{unit}, "
        f"{percent(high['productive_share'])} at {digits(high['value'])}{unit} {label(name)}"
    ) + (f" (counted: {label(counted, 20)})" if len(conventions) > 1 else "")
    spread = known["value"].max() > 20 * max(known["value"].min(), 1e-9)
    figure.update_xaxes(
        title=label(words),
        **({"type": "log", "dtick": "D2"} if spread and known["value"].min() > 0 else {}),
    )
    figure.update_yaxes(title="productive share of GPU time [%]", tickformat=".0%", range=[0, 1.02])
    counted = ", ".join(safe(each) for each in dict.fromkeys(known["convention"]))
    missing = len(table) - len(known)
    note = f"counted: {counted}" + (
        f" · {missing} cases have no answer under their convention" if missing else ""
    )
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def goodput_ladder(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the way from the synchronous job to the fault-tolerant one, change by change.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_LADDER`, of one convention or several.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One group of bars per change, one bar per convention; published shares as diamonds.
        The title states both ends.
    """
    GOODPUT_LADDER.check(table)
    if table.empty:
        return nothing(
            "The table has no changes; analyze.goodput_ladder makes them.",
            claim="No changes to show",
            source=source,
            synthetic=synthetic,
        )
    changes = list(dict.fromkeys(table["change"]))[:_MOST_ROWS]
    place = {name: at for at, name in enumerate(changes)}
    conventions = list(dict.fromkeys(table["convention"]))
    figure = go.Figure()
    width = 0.8 / len(conventions)
    for number, convention in enumerate(conventions):
        part = table[(table["convention"] == convention) & table["change"].isin(changes)]
        at = np.array([place[name] for name in part["change"]])
        shift = (number - (len(conventions) - 1) / 2) * width
        gains = ["" if not gain else f" ({100 * gain:+.1f})" for gain in part["gain_ratio"]]
        figure.add_bar(
            orientation="h",
            y=at + shift,
            x=part["productive_share"],
            width=width * 0.9,
            name=safe(CONVENTIONS.get(str(convention), convention)),
            marker=fill(("productive", "degraded capacity", "allocation")[number % 3]),
            text=[
                f"{percent(share)}{gain}"
                for share, gain in zip(part["productive_share"], gains, strict=True)
            ],
            textposition="outside",
            hovertemplate="%{x:.2%}<extra></extra>",
        )
    printed = table.dropna(subset=["printed_share"])
    printed = printed[printed["change"].isin(changes)]
    if len(printed):
        figure.add_scatter(
            mode="markers",
            x=printed["printed_share"],
            y=[place[name] for name in printed["change"]],
            name="published",
            marker={"symbol": "diamond-open", "size": 13, "color": "#000000", "line_width": 2},
            hovertemplate="published: %{x:.1%}<extra></extra>",
        )
    first = table[table["convention"] == conventions[0]]
    claim = (
        f"From {percent(first['productive_share'].iloc[0])} to "
        f"{percent(first['productive_share'].iloc[-1])}: what each change contributes"
    )
    ticks = [label(name, 40) for name in changes]
    figure.update_layout(
        height=max(len(changes) * len(conventions), 3) * 30, margin_l=left_margin(ticks)
    )
    figure.update_xaxes(
        title="productive share of GPU time [%]", tickformat=".0%", range=[0, 1.18],
        tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1],
    )  # fmt: skip
    figure.update_yaxes(
        tickvals=list(range(len(changes))), ticktext=ticks, range=[len(changes) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    note = "in brackets: percentage points against the row above"
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def goodput_sensitivity(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what halving and doubling each input alone does, the largest effect on top.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_SENSITIVITY`.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Two bars per input from the base case on. The title states what buys most.
    """
    GOODPUT_SENSITIVITY.check(table)
    if table.empty:
        return nothing(
            "The table has no inputs; analyze.goodput_sensitivity makes it.",
            claim="No inputs to change",
            source=source,
            synthetic=synthetic,
        )
    rows = table.head(_MOST_ROWS)
    base = float(rows["base_share"].iloc[0])
    figure = go.Figure()
    for meaning, column, words, shift in (
        ("less", "halved_share", "with half of it", -0.19),
        ("more", "doubled_share", "with twice of it", 0.19),
    ):
        known = rows[column].notna().to_numpy()
        share = rows[column].to_numpy()[known]
        figure.add_bar(
            orientation="h",
            base=base,
            x=share - base,
            y=np.flatnonzero(known) + shift,
            width=0.34,
            name=words,
            marker=fill(meaning),
            text=[percent(each) for each in share],
            textposition="outside",
            hovertemplate=f"{words}: %{{text}}<extra></extra>",
        )
    figure.add_vline(x=base, line={"color": COLOURS["neutral"], "width": 1})
    ticks = [_input(name, value) for name, value in
             zip(rows["parameter"], rows["value"], strict=True)]  # fmt: skip
    figure.update_layout(height=max(len(rows), 2) * 46, margin_l=left_margin(ticks))
    ends = rows[["base_share", "halved_share", "doubled_share"]]
    low, high = float(ends.min().min()), float(ends.max().max())
    pad = 0.12 * max(high - low, 0.02)
    figure.update_xaxes(
        title="productive share of GPU time [%]", tickformat=".0%", range=[low - pad, high + pad]
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=ticks, range=[len(rows) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    return finish(
        figure, claim=_buys_most(rows, base), source=source, synthetic=synthetic,
        note=f"base case: {percent(base)}; each input is changed alone",
    )  # fmt: skip


def _input(name: str, value: float) -> str:
    field, _, phase = str(name).partition(": ")
    words = INPUTS.get(field, field).removesuffix(" [min]")
    unit = " min" if field.endswith("_min") else ""
    return label(f"{words}{': ' + phase if phase else ''} ({digits(value)}{unit})", 48)


def _buys_most(rows: pd.DataFrame, base: float) -> str:
    options = [
        (row[column] - base, words, row["parameter"], row["value"])
        for row in rows.to_dict("records")
        for column, words in (("halved_share", "Halving"), ("doubled_share", "Doubling"))
        if not pd.isna(row[column])
    ]
    gain, words, name, value = max(options, default=(0.0, "", "", 0.0))
    if gain <= 0:
        return "No input improves the goodput when halved or doubled"
    return f"{words} “{_input(name, value)}” buys most: {100 * gain:+.1f} points"
