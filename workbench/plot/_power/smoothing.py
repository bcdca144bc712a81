"""Power before and after smoothing, and the charge of the storage."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft, grid
from workbench.plot._style.lanes import extremes
from workbench.plot._style.palette import VEIL
from workbench.plot._style.style import COLOURS, Frame, colour, fill, left_margin, row_axis
from workbench.plot._style.text import (
    amount,
    digits,
    energy_unit,
    joules,
    label,
    percent,
    plural,
    power_unit,
    safe,
)
from workbench.tables import GRID_CHECK, POWER_SMOOTHING, SMOOTHING_SUMMARY

_MOST_POINTS = 1_500
_LINES = (
    ("power_w", "measured", "neutral", "solid", 1.5),
    ("load_w", "drawn by the machines", "memory", "dot", 2),
    ("smoothed_w", "seen by the grid", "communication", "dash", 2.5),
)


def power_smoothing(
    table: pd.DataFrame,
    *,
    summary: pd.DataFrame | None = None,
    zoom_s: float = 120,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show power before and after smoothing where it moves most, and the charge throughout.

    Above a short segment of power, below the charge of the storage (or, without one, power of
    the whole time).

    Parameters
    ----------
    table
        Table :data:`workbench.tables.POWER_SMOOTHING`.
    summary
        Table :data:`workbench.tables.SMOOTHING_SUMMARY` of it; the title then states cost and
        verdict.
    zoom_s
        Length of the upper panel in seconds, around the widest swing.
    """
    frame = Frame(source, synthetic)
    POWER_SMOOTHING.check(table)
    valid = table[table["power_w"].notna()].sort_values("time_ns", ignore_index=True)
    if valid.empty:
        return frame.nothing(
            "No cell was smoothed; analyze.power_smoothing needs a segment without gaps.",
            claim="No smoothed power to show",
        )
    after_min = (valid["time_ns"] - valid["time_ns"].iloc[0]) / 60e9
    figure = grid(rows=2, cols=1, vertical_spacing=0.2, row_heights=[0.62, 0.38])
    factor, unit = power_unit(float(valid["power_w"].max()))
    has_load = bool((valid["load_w"] != valid["power_w"]).any())
    has_store = bool((valid["storage_w"] != 0).any())
    # Two lines on top of one another say less than one.
    shown = [line for line in _LINES if line[0] != "load_w" or (has_load and has_store)]
    zoomed = _zoom(valid, zoom_s)
    for line in shown:
        _trace(figure, line, after_min.iloc[zoomed], valid.iloc[zoomed], factor)
    if has_store:
        unit_below = _charge(figure, after_min, valid)
    else:
        unit_below = f"power [{unit}]"
        for line in shown:
            _trace(figure, line, after_min, valid, factor, row=2)
    figure.update_layout(height=430)
    figure.update_xaxes(title="time [min]")
    figure.update_xaxes(title="", row=1)
    figure.update_yaxes(title=f"power [{unit}]", row=1)
    figure.update_yaxes(title=unit_below, row=2)
    note = f"above: {zoom_s:g} s around the widest swing, below: all of it"
    filled = int(valid["is_filled"].sum())
    note += f" · {filled:,} cells interpolated" if filled else ""
    if len(valid) < len(table):
        note += f" · {percent(len(valid) / len(table))} of the cells, the longest without a gap"
    return frame.finish(figure, claim=_claim(valid, summary), note=note)


def _zoom(facts: pd.DataFrame, zoom_s: float) -> Any:
    """Choose the cells around the largest change within a third of the zoom."""
    time = facts["time_ns"].to_numpy()
    period = float(time[1] - time[0]) / 1e9 if len(time) > 1 else 1.0
    cells = max(int(zoom_s / period), 2)
    power = facts["power_w"]
    near = power.rolling(max(cells // 3, 1), min_periods=1)
    at = int((near.max() - near.min()).to_numpy().argmax()) - cells // 6
    first = min(max(at - cells // 2, 0), max(len(facts) - cells, 0))
    return np.arange(first, min(first + cells + 1, len(facts)))


def _trace(
    figure: go.Figure,
    line: tuple[str, str, str, str, float],
    after_min: pd.Series,
    rows: pd.DataFrame,
    factor: float,
    *,
    row: int = 1,
) -> None:
    column, name, look, dash, width = line
    values = rows[column].to_numpy() / factor
    keep = extremes(values, _MOST_POINTS)
    figure.add_scatter(
        x=after_min.to_numpy()[keep].round(4), y=values[keep].astype(np.float32),
        mode=_mode(keep), name=name, showlegend=row == 1,
        line={"color": colour(look), "dash": dash, "width": width},
        hovertemplate=f"{name}: %{{y:,.4g}} at %{{x:.2f}} min<extra></extra>", row=row, col=1,
    )  # fmt: skip


def _mode(keep: Any) -> str:
    """Draw a line, or a mark where there is one point only."""
    return "lines" if len(keep) > 1 else "markers"


def _charge(figure: go.Figure, after_min: pd.Series, facts: pd.DataFrame) -> str:
    limited = bool(facts["stored_share"].notna().any())
    if limited:
        values, title = facts["stored_share"].to_numpy(), "charge [%]"
        figure.update_yaxes(tickformat=".0%", range=[-0.03, 1.03], row=2)
    else:
        stored = facts["stored_j"].to_numpy()
        factor, unit = energy_unit(float(np.abs(stored).max()))
        values, title = stored / factor, f"charge [{unit}]"
    keep = extremes(values, _MOST_POINTS)
    figure.add_scatter(
        x=after_min.to_numpy()[keep].round(4), y=values[keep].astype(np.float32), mode=_mode(keep),
        name="charge of the storage", showlegend=False,
        line={"color": colour("series"), "width": 1.5},
        hovertemplate="%{y:.3g} at %{x:.2f} min<extra></extra>", row=2, col=1,
    )  # fmt: skip
    return title


def _claim(facts: pd.DataFrame, summary: pd.DataFrame | None) -> str:
    percentiles = (np.percentile(facts[name], [1, 99]) for name in ("power_w", "smoothed_w"))
    swings = [float(high - low) for low, high in percentiles]
    claim = f"Swing {amount(swings[0])} before, {amount(swings[1])} after"
    if summary is None or SMOOTHING_SUMMARY.check(summary).empty:
        return claim
    after = summary.iloc[-1]
    more = 100 * (float(after["energy_ratio"]) - 1)
    claim += f", for {percent(abs(more) / 100)} {'more' if more >= 0 else 'less'} energy"
    if after["storage_w"] > 0:
        claim += f" and storage of {amount(after['storage_w'])}, "
        claim += joules(after["storage_j"])
    if pd.notna(after["verdict"]):
        was, left = (label(item, 12) for item in summary["verdict"].iloc[[0, -1]])
        claim += f"; grid: {was} before, {left} after"
    return claim


# Whether power stays within what a grid allows, as a card.

_MOST = 24
_BAR_PX = 46
# Bars of what is far beyond its limit end here; their numbers are printed next to them.
_LONGEST = 3.0
_VERDICTS = {
    "fail": ("✕ fail", "limit"), "unknown": ("? unknown", "unknown"), "pass": ("✓ pass", "allowed"),
}  # fmt: skip


def grid_check(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show every requirement of a grid: what was measured against its limit, and the verdict.

    A bar per requirement as a share of its limit, with verdict, numbers and margin in
    words. The title counts the verdicts.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GRID_CHECK`.
    """
    frame = Frame(source, synthetic)
    GRID_CHECK.check(table)
    if table.empty:
        return frame.nothing(
            "The specification has no requirements that could be checked.", claim="Nothing to check"
        )
    order = {name: position for position, name in enumerate(_VERDICTS)}
    rows = table.assign(_place=table["verdict"].map(order).fillna(len(order)))
    rows = rows.sort_values("_place", kind="stable", ignore_index=True).head(_MOST)
    used = (rows["measured"] / rows["limit"].where(rows["limit"] > 0)).fillna(0)
    figure = Draft()
    for verdict, (name, look) in _VERDICTS.items():
        positions = [at for at, record in enumerate(rows["verdict"]) if record == verdict]
        if positions:
            figure.add_bar(
                x=used.iloc[positions].clip(upper=_LONGEST), y=positions,
                orientation="h", name=name, width=0.34,
                marker=fill(look, bars=len(positions)) | _border(verdict),
                hovertext=[label(why, 160) for why in rows["why"].iloc[positions]],
                hovertemplate="%{hovertext}<extra></extra>",
            )  # fmt: skip
    for at, row in enumerate(rows.to_dict("records")):
        _words(figure, at, row)
    names = [label(record, 34) for record in rows["requirement"]]
    figure.add_vline(
        x=1, line={"color": COLOURS["reference"], "width": 2, "dash": "dash"},
        annotation_text="limit", annotation_position="top right",
    )  # fmt: skip
    figure.update_layout(height=_BAR_PX * len(rows) + 20, margin_l=left_margin(names))
    figure.update_yaxes(**row_axis(names, 0.4, 0.75), showgrid=False)
    figure.update_xaxes(
        title="measured, of the limit [%]", tickformat=".0%",
        range=[0, max(min(float(used.max()), _LONGEST) * 1.05, 1.3)],
    )  # fmt: skip
    note = f"bars end at {_LONGEST:.0%} of their limit" if used.max() > _LONGEST else ""
    if len(table) > _MOST:
        note += f"{' · ' * bool(note)}{len(table) - _MOST:,} more requirements dropped"
    return frame.finish(figure, claim=_grid_check_claim(table), note=note)


def _border(verdict: str) -> dict[str, object]:
    # What failed stands out without colour, too.
    return {"line": {"width": 2 if verdict == "fail" else 0, "color": COLOURS["reference"]}}


def _words(figure: go.Figure, at: int, row: dict[Hashable, Any]) -> None:
    unit = str(row["unit"])
    measured = float(row["measured"])
    words = f"<b>{_VERDICTS.get(str(row['verdict']), (safe(row['verdict']), ''))[0]}</b>: "
    words += "not seen" if math.isnan(measured) else _number(measured, unit)
    words += f" of {_number(float(str(row['limit'])), unit)}"
    if not math.isnan(measured):
        margin = float(row["margin"])
        words += f", {_number(abs(margin), unit)} {'left' if margin >= 0 else 'too much'}"
    visible = float(row["visible_share"])
    if visible < 1:
        words += f" · {percent(visible)} of it can be seen"
    figure.add_annotation(
        x=0, y=at - 0.22, text=words, showarrow=False, xanchor="left", yanchor="bottom", xshift=2,
        font={"size": 11}, bgcolor=VEIL, borderpad=0,
    )  # fmt: skip


def _number(value: float, unit: str) -> str:
    if unit == "share":
        return percent(value)
    if unit in ("W", "W/s"):
        return amount(value) + unit.removeprefix("W")
    return f"{digits(value)} {safe(unit)}"


def _grid_check_claim(table: pd.DataFrame) -> str:
    counts = table["verdict"].value_counts()
    spec = label(table["spec"].iloc[0], 40)
    if len(table) == 1 and table["verdict"].iloc[0] in _VERDICTS:
        visible = float(table["visible_share"].iloc[0])
        seen = f"; its meter sees {percent(visible)} of the band" if visible < 1 else ""
        return f"{spec}: {_VERDICTS[table['verdict'].iloc[0]][0][2:]}{safe(seen)}"
    words = [f"{counts[name]:,} {name}" for name in _VERDICTS if counts.get(name, 0)]
    return f"{spec}: {', '.join(words) or 'no verdict'} of {plural(len(table), 'requirement')}"


# What smoothing costs and what it leaves, before beside after.

_MEASURES = (
    ("swing_w", "swing, 99th - 1st percentile", ""), ("deviation_w", "standard deviation", ""),
    ("ramp_w_per_s", "fastest ramp", "/s"), ("peak_w", "peak", ""), ("energy_j", "energy", ""),
)  # fmt: skip
# Storage that is not needed still moves the last digits of sums.
_ROUNDING = 1e-9
_COSTS = (("ballast_j", "burnt on top"), ("lost_j", "lost in it"), ("unmet_j", "held back"))


def smoothing_summary(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what is left of swing, ramps, peak and energy after smoothing.

    A bar per quantity as a share of what it was, with both numbers. The title states swing
    and cost, the note what the storage needs and what is held back.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.SMOOTHING_SUMMARY`.
    """
    frame = Frame(source, synthetic)
    SMOOTHING_SUMMARY.check(table)
    if table.empty:
        return frame.nothing(
            "The table is empty; analyze.smoothing_summary compares before and after.",
            claim="Nothing was smoothed",
        )
    before, after = _row(table, "before", 0), _row(table, "after", -1)
    names = [name for _, name, _ in _MEASURES]
    ratios, texts = [], []
    for column, _, per in _MEASURES:
        was, left = float(before[column]), float(after[column])
        ratios.append(left / was if was > 0 else 0.0)
        written = joules if column == "energy_j" else amount
        texts.append(f"{written(was)}{per} → {written(left)}{per}")
    figure = Draft()
    figure.add_bar(
        x=ratios, y=names, orientation="h", name="after", text=texts, textposition="outside",
        cliponaxis=False, marker=fill("neutral"), hovertemplate="%{y}: %{text}<extra></extra>",
    )  # fmt: skip
    figure.add_vline(x=1, line={"color": colour("neutral"), "dash": "dash", "width": 1.5})
    figure.update_layout(height=230, margin_l=210)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(
        title="after, of what it was before [%]", tickformat=".0%",
        range=[0, max(1.0, *ratios) * 1.35],
    )  # fmt: skip
    return frame.finish(figure, claim=_smoothing_summary_claim(before, after), note=_note(after))


def _row(table: pd.DataFrame, version: str, otherwise: int) -> pd.Series:
    by_name = table[table["version"] == version]
    return by_name.iloc[0] if len(by_name) else table.iloc[otherwise]


def _smoothing_summary_claim(before: pd.Series, after: pd.Series) -> str:
    more = 100 * (float(after["energy_ratio"]) - 1)
    claim = f"Swing {amount(float(before['swing_w']))} before, {amount(float(after['swing_w']))} "
    claim += f"after, for {digits(abs(more))} % {'more' if more >= 0 else 'less'} energy"
    if pd.notna(after["verdict"]):
        claim += (
            f"; grid: {label(before['verdict'], 12)} before, {label(after['verdict'], 12)} after"
        )
    return claim


def _note(after: pd.Series) -> str:
    pieces = []
    if after["storage_w"] > _ROUNDING * float(after["peak_w"]):
        energy = joules(float(after["storage_j"]))
        pieces.append(f"the storage moves {amount(float(after['storage_w']))} and {energy}")
    for column, words in _COSTS:
        if after[column] > 0:
            share = float(after[column]) / float(after["energy_j"]) if after["energy_j"] > 0 else 0
            pieces.append(f"{percent(min(share, 1))} of the energy {words}")
    if after["covered_share"] < 1:
        pieces.append(f"{percent(float(after['covered_share']))} of the cells")
    return " · ".join(pieces)
