"""How far operators are from the roofs of their GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import log_ticks
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import COLOURS, Frame
from workbench.plot._style.text import digits, duration, is_doubtful, label, percent, plural
from workbench.tables import ROOFLINE

# Shape and meaning of each family; the meanings give the colours.
_LOOKS = {
    "matrix product": ("circle", "linear"), "convolution": ("square", "compute"),
    "attention": ("diamond", "attention"), "normalisation": ("triangle-up", "other"),
    "reduction": ("triangle-down", "neutral"), "embedding": ("star", "lookup"),
    "elementwise": ("cross", "memory"),
}  # fmt: skip
# Families whose operations are all counted; the others are bound by memory.
_COUNTED = ("matrix product", "convolution", "attention")
_LARGEST_PX = 46
# Where names stand from their markers, in pixels, so that neighbours keep apart.
_ASIDE = ((-40, 45), (-90, -25), (-30, 75), (-120, 15))
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def roofline(
    roofline: pd.DataFrame, *, top: int = 40, names: int = 4, source: str = "",
    synthetic: bool = False,
) -> go.Figure:  # fmt: skip
    """Show operators below the roofs of their GPU: what each could gain, and what limits it.

    One marker per row, its area the time, below lines of the peaks; both axes logarithmic. The
    title names the row with the largest gain, and the share of the time that is not shown.

    Parameters
    ----------
    roofline
        Table :data:`workbench.tables.ROOFLINE`.
    top
        Rows to draw, those of the longest time.
    names
        Rows to name in the picture, those of the longest time.
    """
    frame = Frame(source, synthetic)
    ROOFLINE.check(roofline)
    told = roofline[(roofline["intensity_flop_per_byte"] > 0) & (roofline["flop_per_s"] > 0)]
    if told.empty:
        why = "No operator has shapes, a closed form and GPU work; profile with record_shapes=True."
        if len(roofline):
            why += f" {duration(roofline['kernel_ns'].sum())} of GPU work cannot be placed."
        return frame.nothing(why, claim="No roofline to show")
    drawn = told.sort_values("kernel_ns", ascending=False, kind="stable").head(top)
    figure = Draft()
    area = drawn["kernel_ns"] / drawn["kernel_ns"].max()
    for family, (symbol, meaning) in _LOOKS.items():
        rows = drawn[drawn["family"] == family]
        figure.add_scatter(
            mode="markers", name=family, visible=len(rows) > 0,
            x=_floats(rows["intensity_flop_per_byte"]), y=_floats(rows["flop_per_s"]) / 1e12,
            marker={
                "symbol": symbol, "size": np.maximum(_LARGEST_PX * np.sqrt(area[rows.index]), 6),
                "color": COLOURS[meaning], "opacity": 0.75,
                "line": {"width": 1, "color": COLOURS["ink"]},
            },
            hovertext=[_hover(row) for row in rows.to_dict("records")],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    x, y = _floats(drawn["intensity_flop_per_byte"]), _floats(drawn["flop_per_s"]) / 1e12
    _add_names(figure, drawn.head(names))
    y = np.append(y, _add_roofs(figure, drawn, (float(x.min()) / 2, float(x.max()) * 2)))
    figure.update_layout(hovermode="closest", height=420, legend_itemsizing="constant")
    figure.update_xaxes(
        title="operations per byte [FLOP/B], logarithmic", type="log", **log_ticks(x)
    )
    figure.update_yaxes(title="speed [TFLOP/s], logarithmic", type="log", **log_ticks(y))
    return frame.finish(
        figure,
        claim=_claim(roofline, told),
        note=_note(roofline, told, drawn),
        is_doubtful=is_doubtful(drawn),
    )


def _floats(column: pd.Series) -> Any:
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _add_names(figure: go.Figure, rows: pd.DataFrame) -> None:
    for number, row in enumerate(rows.to_dict("records")):
        right, below = _ASIDE[number % len(_ASIDE)]
        figure.add_annotation(
            x=np.log10(row["intensity_flop_per_byte"]), y=np.log10(row["flop_per_s"] / 1e12),
            text=label(row["name"], 32), showarrow=True, arrowhead=0, ax=right, ay=below,
            font={"size": 11},
        )  # fmt: skip


def _add_roofs(figure: go.Figure, drawn: pd.DataFrame, reach: tuple[float, float]) -> Any:
    """Draw the lines, and return their heights in TFLOP/s."""
    heights = []
    counted = drawn[drawn["family"].isin(_COUNTED)]
    drawn = counted if len(counted) else drawn
    roofs = drawn[["memory_bytes_per_s", "peak_flop_per_s", "dtype"]].dropna().drop_duplicates()
    records = roofs.sort_values("peak_flop_per_s").to_dict("records")
    for number, roof in enumerate(records):
        highest, slope = roof["peak_flop_per_s"], roof["memory_bytes_per_s"]
        edge = highest / slope
        x = np.unique([reach[0], np.clip(edge, *reach), reach[1]])
        y = np.minimum(x * slope, highest) / 1e12
        heights += y.tolist()
        figure.add_scatter(
            mode="lines", x=x, y=y, hoverinfo="skip",
            name=f"{label(roof['dtype'], 12)}: {digits(highest / 1e12)} TFLOP/s",
            line={"color": COLOURS["limit"], "width": 1.5, "dash": _DASHES[number % 5]},
        )  # fmt: skip
    return heights


def _hover(row: dict[Any, Any]) -> str:
    has_roof = not pd.isna(row["roof_ratio"])
    share = f"{percent(row['roof_ratio'])} of its {row['bound']} roof<br>" if has_roof else ""
    rate = "" if pd.isna(row["bytes_per_s"]) else f"{row['bytes_per_s'] / 1e12:,.3g} TB/s"
    doubt = "" if pd.isna(row["note"]) else f"<br>{label(row['note'], 80)}"
    return (
        f"{label(row['name'], 60)} {label(row['shapes'], 80)}<br>"
        f"{plural(int(row['call_count']), 'call')}, {duration(row['kernel_ns'])}, "
        f"{row['flop_per_s'] / 1e12:,.3g} TFLOP/s, {rate}<br>"
        f"{share}{label(row['kernel'], 80)}{doubt}"
    )


def _claim(roofline: pd.DataFrame, told: pd.DataFrame) -> str:
    gaining = told.dropna(subset=["gain_ns"])
    total_ns = int(roofline["kernel_ns"].sum())
    if gaining.empty and told["memory_bytes_per_s"].isna().all():
        return f"No peaks of this GPU are known: {plural(len(told), 'row')} without a roof"
    if gaining.empty or not gaining["gain_ns"].max() > 0:
        return f"No operator with a roof is below it; {plural(len(told), 'row')} drawn"
    row = gaining.sort_values("gain_ns").to_dict("records")[-1]
    return (
        f"{label(row['name'], 40)} has most to gain: it reaches {percent(row['roof_ratio'])} of "
        f"its {row['bound']} roof, which costs {percent(row['gain_ns'] / total_ns)} of the GPU time"
    )


def _note(roofline: pd.DataFrame, told: pd.DataFrame, drawn: pd.DataFrame) -> str:
    total_ns = int(roofline["kernel_ns"].sum())
    shown = percent(drawn["kernel_ns"].sum() / total_ns)
    note = f"{plural(len(drawn), 'row')} with {shown} of the GPU work · area: time"
    if untold := int(total_ns - told["kernel_ns"].sum()):
        note += f" · without operations that can be told: {percent(untold / total_ns)}"
    if hidden := len(told) - len(drawn):
        note += f" · {plural(hidden, 'row')} of less time not drawn"
    if above := int((~drawn["is_sure"]).sum()):
        note += f" · above its roof: {plural(above, 'row')}, see the note of the table"
    return note
