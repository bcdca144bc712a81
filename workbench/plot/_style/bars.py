"""Bars that several figures share: stacks that add up, and the largest of many by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.draft import Draft, grid
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import area, distinct, fill, ink, left_margin, row_axis
from workbench.plot._style.text import duration, label, percent, safe, short, time_unit

_MOST_BARS = 60  # more become one stepped area, which a browser draws as fast as one bar
_MOST_LABELLED = 16
_MOST_TICKS = 36
_BAR_PX = 26
# A wide page, and the narrowest letter that is not hidden.
_PAGE_PX, _LETTER_PX, _AROUND_PX = 1_200, 4.5, 6


def fitting(words: Sequence[str] | pd.Series, shares: pd.Series) -> NDArray[np.object_]:
    """Keep the words that fit into bars of these shares of the axis; the others become empty.

    plotly measures each word, also those that it then hides, which takes longer than the bars.
    """
    texts = np.asarray(words, dtype=object)
    needed_px = _AROUND_PX + _LETTER_PX * np.array([len(text) for text in texts])
    return np.where(needed_px <= _PAGE_PX * shares.to_numpy(dtype=np.float64), texts, "")


def stacked(
    labels: Sequence[str], parts: Mapping[str, NDArray[Any]], *, title: str
) -> tuple[go.Figure, str]:
    """Stack times on each other, one column per label.

    Labels are safe text, ``"5<br>rank 0"`` for two lines; ``parts`` go from a meaning to times in
    ns, from the bottom up; ``title`` says what the labels are. Returns the figure without a title,
    and a note if columns had to be dropped.
    """
    heights = np.stack([np.asarray(part, dtype=np.float64) for part in parts.values()])
    # Every point counts for a browser, so of very many columns the highest and lowest are kept.
    keep = extremes(heights.sum(axis=0))
    heights, shown = heights[:, keep], [labels[position] for position in keep]
    total = heights.sum(axis=0)
    unit = time_unit(total.max(initial=0))
    draw = _column if len(keep) <= _MOST_BARS else _area
    figure = Draft(
        [draw(name, part, total, shown, unit) for name, part in zip(parts, heights, strict=True)]
    )
    ticks = _ticks(shown)
    figure.update_layout(
        barmode="stack",
        bargap=max(0.15, 1 - 0.14 * len(keep)),
        uniformtext={"mode": "hide", "minsize": 9},
        margin_b=100 if any("<br>" in shown[tick] for tick in ticks) else 84,
    )
    figure.update_xaxes(
        title=title,
        tickvals=ticks,
        ticktext=[shown[tick] for tick in ticks],
        range=[-0.5, len(keep) - 0.5],
        showgrid=False,
    )
    figure.update_yaxes(title=f"time [{unit[1]}]", rangemode="tozero")
    left_out = len(labels) - len(keep)
    note = f"{left_out:,} of {len(labels):,} columns dropped, never the highest or lowest"
    return figure, note if left_out else ""


def grouped_labels(labels: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Write the group below a label wherever it differs from that of the label before."""
    return [
        f"{text}<br>{group}" if group != before else text
        for text, group, before in zip(labels, groups, ["", *groups], strict=False)
    ]


def largest(table: pd.DataFrame, value: str, *, top: int, sums: Sequence[str]) -> pd.DataFrame:
    """Keep the rows of a table with the ``top`` largest values and add up the rest in one row.

    The added row comes last, has the label -1, and lacks whatever is not among
    ``value`` and ``sums``. A single row too many is kept as it is.
    """
    ordered = table.sort_values(value, ascending=False, kind="stable", ignore_index=True)
    head, tail = ordered.iloc[:top], ordered.iloc[top:]
    if len(tail) <= 1:
        return ordered
    added = [value, *sums]
    others = pd.DataFrame({name: [tail[name].sum()] for name in added}, index=[-1])
    others = others.astype({name: tail[name].dtype for name in added})
    return pd.concat([head, others.reindex(columns=[*added])])


def by_name(
    names: Sequence[str],
    values: NDArray[Any],
    *,
    meanings: Sequence[str],
    hover: Sequence[str],
    title: str,
) -> go.Figure:
    """Draw one horizontal bar per name, the first on top, one trace per meaning.

    Names are shortened beside the axis and full on hover; values are in ns and may be negative;
    meanings give the colour; ``hover`` has more safe lines for each bar; the unit is added to
    ``title``.
    """
    per_unit, unit = time_unit(np.abs(values).max(initial=0))
    ticks = [short(name) for name in names]
    figure = Draft()
    for meaning in dict.fromkeys(meanings):
        rows = [row for row, name in enumerate(meanings) if name == meaning]
        figure.add_bar(
            orientation="h",
            x=np.asarray(values, dtype=np.float64)[rows] / per_unit,
            y=rows,
            name=meaning,
            marker=fill(meaning, bars=len(names)),
            text=[f" {duration(values[row])} " for row in rows],
            textposition="outside",
            cliponaxis=False,
            hovertext=[f"{full_name(names[row])}<br>{hover[row]}" for row in rows],
            hovertemplate="%{hovertext}<extra>" + meaning + "</extra>",
        )
    figure.update_layout(
        bargap=0.25,
        height=max(len(ticks), 2) * _BAR_PX,
        margin_l=left_margin(ticks),
        hovermode="closest",
    )
    figure.update_xaxes(title=f"{title} [{unit}]", range=_with_room(values / per_unit))
    figure.update_yaxes(**row_axis([safe(tick) for tick in ticks]), showgrid=False)
    return figure


def _with_room(values: NDArray[np.float64]) -> list[float]:
    low, high = min(values.min(initial=0), 0), max(values.max(initial=0), 0)
    room = 0.14 * (high - low) or 1.0
    return [float(low - room) if low < 0 else 0.0, float(high + room) if high > 0 else 0.0]


def full_name(name: object) -> str:
    """Write a name in full for a hover text, on as many lines as it needs."""
    text = str(name)
    lines = [text[start : start + 90] for start in range(0, len(text), 90)]
    return "<br>".join(safe(line) for line in lines) or "(no name)"


def _column(
    name: str,
    height: NDArray[np.float64],
    total: NDArray[np.float64],
    labels: Sequence[str],
    unit: tuple[int, str],
) -> go.Bar:
    """Draw one part of every column as bars, with its share written inside if few."""
    share = np.divide(height, total, out=np.zeros_like(height), where=total > 0)
    few = len(labels) <= _MOST_LABELLED
    marker = fill(name, bars=len(labels))
    return go.Bar(
        x=np.arange(len(labels)),
        y=height / unit[0],
        name=name,
        marker=marker,
        text=[percent(part) if part >= 0.05 else "" for part in share] if few else None,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": ink(marker["color"]), "size": 12},
        hovertext=[
            f"{column.replace('<br>', ', ')}: {duration(ns)}, {percent(part)}"
            for column, ns, part in zip(labels, height, share, strict=True)
        ],
        hovertemplate="%{hovertext}<extra>" + name + "</extra>",
    )


def _area(
    name: str,
    height: NDArray[np.float64],
    total: NDArray[np.float64],
    labels: Sequence[str],
    unit: tuple[int, str],
) -> go.Scatter:
    """Draw one part of every column as one stepped area on top of those before."""
    share = np.divide(height, total, out=np.zeros_like(height), where=total > 0)
    return go.Scatter(
        x=np.arange(len(labels)),
        y=height / unit[0],
        name=name,
        mode="lines",
        stackgroup="one",
        line={"shape": "hvh", "width": 0},
        **area(name),
        text=[column.replace("<br>", ", ") for column in labels],
        customdata=share,
        hovertemplate="%{text}: %{y:.4~g} " + unit[1] + ", %{customdata:.1%}"
        "<extra>" + name + "</extra>",
    )


def _ticks(labels: Sequence[str]) -> list[int]:
    """Choose the columns to label: all of few, else those that start a group and every n-th."""
    if len(labels) <= _MOST_TICKS:
        return list(range(len(labels)))
    groups = [position for position, text in enumerate(labels) if "<br>" in text]
    if 1 < len(groups) <= _MOST_TICKS:
        return groups
    return list(range(0, len(labels), -(-len(labels) // _MOST_TICKS)))


# Dots on a logarithmic axis: several measures of several names, one dot per rank.

_SYMBOLS = ("circle", "diamond-open", "square-open", "cross-thin-open")
_ROW_PX = 30
# Numbers that a tick may start with, by the decades that the axis spans.
_LEADS = ((0.7, range(1, 10)), (3, (1, 2, 5)), (float("inf"), (1,)))


def dots(
    names: Sequence[str],
    measures: Mapping[str, NDArray[Any]],
    *,
    rows: NDArray[np.int64],
    hover: Sequence[str],
    title: str,
) -> go.Figure:
    """Place one dot per measure and table row beside the name the row belongs to.

    ``measures`` go from a label to values, one per table row; what is missing or 0 has no place on
    a logarithmic axis and is not drawn. ``rows`` has the position in ``names`` of every table row,
    ``hover`` where it was measured, as safe text; ``title`` names the unit.
    """
    figure = Draft()
    words = np.array([label(name, 120) for name in names], dtype=object)
    offsets = np.linspace(-0.24, 0.24, len(measures)) if len(measures) > 1 else [0.0]
    for position, (measure, values) in enumerate(measures.items()):
        drawn = np.flatnonzero(np.nan_to_num(values) > 0)
        drawn = drawn[extremes(values[drawn])]
        look = distinct(position)
        figure.add_scatter(
            mode="markers",
            x=values[drawn],
            y=rows[drawn] + offsets[position],
            name=measure,
            marker={
                "symbol": _SYMBOLS[position % len(_SYMBOLS)],
                "size": 9,
                "color": look["color"],
                "line": {"width": 1.5, "color": look["color"]},
                "opacity": 0.8,
            },
            hovertext=[f"{words[rows[row]]}<br>{hover[row]}" for row in drawn.tolist()],
            hovertemplate="%{hovertext}<br>" + measure + ": %{x:,.3~g}<extra></extra>",
        )
    ticks = [short(name) for name in names]
    figure.update_layout(
        height=max(len(ticks), 2) * _ROW_PX, margin_l=left_margin(ticks), hovermode="closest"
    )
    shown = np.asarray([x for trace in figure.data for x in trace.x], dtype=np.float64)
    figure.update_xaxes(title=title, type="log", **log_ticks(shown))
    figure.update_yaxes(**row_axis([safe(tick) for tick in ticks]))
    return figure


def log_ticks(values: NDArray[np.float64]) -> dict[str, Any]:
    """Place round numbers on a logarithmic axis, also where it spans less than a decade."""
    low, high = np.log10([values.min(), values.max()]) if len(values) else np.array([0.0, 1.0])
    room = max(0.05 * (high - low), 0.1)
    leads = next(leads for decades, leads in _LEADS if high - low < decades)
    ticks = [
        lead * 10.0**power
        for power in range(int(np.floor(low)) - 1, int(np.ceil(high)) + 1)
        for lead in leads
    ]
    ticks = [tick for tick in ticks if low - room <= np.log10(tick) <= high + room]
    return {
        "range": [float(low - room), float(high + room)],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.10g}" for tick in ticks],
    }


# Several panels side by side in one figure, each with its name inside its upper edge.

_NAME_PX = 22
_GAP_PX = 16


def panels(names: Sequence[str], *, height_px: int, shared_y: bool = True) -> go.Figure:
    """Make a figure with one empty panel per name (safe text), left to right."""
    figure = grid(
        rows=1, cols=len(names), shared_yaxes=shared_y, horizontal_spacing=0.1 / max(len(names), 2)
    )
    whole = height_px + _NAME_PX
    figure.update_yaxes(domain=[0, height_px / whole])
    figure.update_layout(height=whole)
    for at, name in enumerate(names, start=1):
        domain = figure.layout["xaxis" if at == 1 else f"xaxis{at}"].domain
        figure.add_annotation(
            text=f"<b>{name}</b>", x=domain[0], xref="paper", xanchor="left",
            y=1, yref="paper", yanchor="top", showarrow=False,
        )  # fmt: skip
    return figure


def stacked_panels(titles: Sequence[str], heights_px: Sequence[int]) -> go.Figure:
    """Make a figure with one empty panel per title of its y axis, top to bottom, on one x axis."""
    whole = sum(heights_px) + _GAP_PX * (len(heights_px) - 1)
    figure = grid(
        rows=len(titles), cols=1, shared_xaxes=True,
        vertical_spacing=_GAP_PX / whole if len(titles) > 1 else 0,
        row_heights=[height / sum(heights_px) for height in heights_px],
    )  # fmt: skip
    for row, title in enumerate(titles, start=1):
        figure.update_yaxes(title=title, row=row, col=1)
    figure.update_layout(height=whole)
    return figure
