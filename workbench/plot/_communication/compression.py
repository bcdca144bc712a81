"""Figures of a compressed exchange: its ratio, and the step that becomes shorter or not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import log_ticks
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, MAX_LINES, Frame, distinct
from workbench.plot._style.text import digits, label, plural, share_text
from workbench.tables import COMPRESSION, COMPRESSION_SPEEDUP

_MOST_POINTS = 400
_STAGES = {
    "distinct rows": "distinct rows, lossless",
    "quantized": "whole numbers",
    "entropy": "whole numbers, ideal entropy coder",
    "zstd": "whole numbers, zstd",
}
_VARIED = {
    "ratio": lambda value: f"ratio {digits(value)}",
    "communication_share": lambda value: f"{share_text(value)} of the step",
    "compress_gb_per_s": lambda value: _codec_text("codec", value),
    "decompress_gb_per_s": lambda value: _codec_text("decompression", value),
}


def compression(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the ratio by number of destinations, after each stage or for each bound.

    A line per stage, or, if there are several settings of the bound, one per setting after
    the last stage; both axes logarithmic. The title states the ratio at both ends.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.COMPRESSION`; tables are added up.
    """
    frame = Frame(source, synthetic)
    COMPRESSION.check(table)
    rows = table[table["stage"].astype(str).isin(_STAGES) & (table["sent_bytes"] > 0)]
    if rows.empty:
        why = "The table has no stages; analyze.compression makes it of embedding outputs."
        return frame.nothing(why, claim="No exchange to compress")
    last = [stage for stage in _STAGES if (rows["stage"] == stage).any()][-1]
    is_swept = rows["setting"].nunique() > 1
    line = "setting" if is_swept else "stage"
    drawn = rows[rows["stage"] == last] if is_swept else rows
    keys = [line, "destination_count"]
    totals = drawn.astype({line: str}).groupby(keys, sort=False)[["raw_bytes", "sent_bytes"]].sum()
    ratios = (totals["raw_bytes"] / totals["sent_bytes"]).rename("ratio").reset_index()
    figure = Draft()
    names = list(dict.fromkeys(ratios[line]))
    for position, name in enumerate(names[:MAX_LINES]):
        points = ratios[ratios[line] == name].sort_values("destination_count")
        points = points.iloc[extremes(points["ratio"].to_numpy(), _MOST_POINTS)]
        figure.add_scatter(
            mode="lines+markers", x=points["destination_count"].to_numpy(),
            y=points["ratio"].to_numpy(), name=_STAGES.get(name, label(name, 32)),
            line=distinct(position), hovertemplate="%{x:,} destinations: %{y:.2f}x",
        )  # fmt: skip
    x = ratios["destination_count"].to_numpy(np.float64)
    figure.update_xaxes(title="destinations of the batch", type="log", **log_ticks(x))
    y = ratios["ratio"].to_numpy(np.float64)
    figure.update_yaxes(title="raw / sent bytes [times]", type="log", **log_ticks(y))
    told = rows[(rows["stage"] == last) & (rows["setting"] == rows["setting"].iloc[0])]
    notes = ["sizes, headers and values sent as they are included"]
    notes += [f"{plural(len(names) - MAX_LINES, 'line')} dropped"] * (len(names) > MAX_LINES)
    notes += _doubts(told)
    if others := len(set(rows.loc[rows["doubt"] != "", "setting"]) - {*told["setting"]}):
        notes.append(f"{plural(others, 'further bound')} too wide for some tables")
    best = ratios[ratios[line] == (names[0] if is_swept else last)].sort_values("destination_count")
    claim = _ratio_claim(best, str(told["setting"].iloc[0]))
    return frame.finish(figure, claim=claim, note=" · ".join(notes))


def _doubts(rows: pd.DataFrame) -> list[str]:
    """List the tables whose ratio is meaningless."""
    doubted = rows[rows["doubt"] != ""].drop_duplicates(["table", "doubt"])
    if doubted.empty:
        return []
    row = doubted.iloc[0]
    # A sum over tables names them in the doubt.
    names = "" if row["table"] == "all" else f"{', '.join(doubted['table'])}: "
    return [f"<b>{label(names + row['doubt'], 200)}</b>"]


def _ratio_claim(line: pd.DataFrame, setting: str) -> str:
    """State the first and the last ratio of a line."""
    first, last = line.iloc[0], line.iloc[-1]
    claim = f"With a bound of {label(setting, 28)} the exchange is compressed by a ratio of "
    claim += (
        f"{digits(first['ratio'])} for {plural(int(first['destination_count']), 'destination')}"
    )
    if len(line) > 1:
        claim += f" and {digits(last['ratio'])} for {int(last['destination_count']):,}"
    return claim


def compression_speedup(
    table: pd.DataFrame,
    *,
    at_gb_per_s: float | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show how much faster a step becomes with a compressed exchange, by bandwidth of the link.

    A line per ratio, share and codec; above 1 compression pays. The title states the
    speed-up of the first line at the bandwidth, and where it ends.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.COMPRESSION_SPEEDUP`.
    at_gb_per_s
        Bandwidth that the title is about, in 10^9 bytes/s; the nearest one of the table. By
        default the widest.
    """
    frame = Frame(source, synthetic)
    COMPRESSION_SPEEDUP.check(table)
    rows = table[(table["link_gb_per_s"] > 0) & (table["speedup_ratio"] > 0)]
    if rows.empty:
        why = "The table has no cases; analyze.compression_speedup makes it."
        return frame.nothing(why, claim="No speed-up to show")
    varied = [name for name in _VARIED if rows[name].nunique() > 1]
    # A decompressor that only follows the compressor needs no name of its own.
    if {"compress_gb_per_s", "decompress_gb_per_s"} <= {*varied}:
        varied.remove("decompress_gb_per_s")
    groups = list(rows.groupby(varied or ["ratio"], sort=False))
    figure = Draft()
    for position, (_, group) in enumerate(groups[:MAX_LINES]):
        points = group.sort_values("link_gb_per_s", kind="stable")
        points = points.iloc[extremes(points["speedup_ratio"].to_numpy(), _MOST_POINTS)]
        values = points[varied or ["ratio"]].iloc[0]
        name = ", ".join(_VARIED[str(column)](value) for column, value in values.items())
        figure.add_scatter(
            mode="lines", x=points["link_gb_per_s"].to_numpy(),
            y=points["speedup_ratio"].to_numpy(), name=name, line=distinct(position),
            hovertemplate="%{x:.3g} GB/s: %{y:.2f}x",
        )  # fmt: skip
    look = {"color": COLOURS["reference"], "dash": "dot", "width": 1}
    figure.add_hline(y=1, line=look)
    links = rows["link_gb_per_s"].to_numpy(np.float64)
    figure.update_xaxes(title="link of a rank [GB/s]", type="log", **log_ticks(links))
    speedups = rows["speedup_ratio"].to_numpy(np.float64)
    figure.update_yaxes(title="speed-up of a step [times]", type="log", **log_ticks(speedups))
    first = groups[0][1]
    wanted = links.max() if at_gb_per_s is None else at_gb_per_s
    near = first.iloc[int(np.argmin(np.abs(first["link_gb_per_s"].to_numpy() - wanted)))]
    note = "model: the codec is not overlapped with the transfer; above the dotted line it pays"
    note += f" · {len(groups) - MAX_LINES} lines dropped" * (len(groups) > MAX_LINES)
    return frame.finish(figure, claim=_speedup_claim(near), note=note)


def _codec_text(noun: str, gb_per_s: float) -> str:
    costs_nothing = np.isinf(gb_per_s)
    return f"{noun} that costs nothing" if costs_nothing else f"{noun} {gb_per_s:g} GB/s"


def _speedup_claim(row: pd.Series) -> str:
    """State what compression does at one bandwidth, and up to which one it pays."""
    speedup = row["speedup_ratio"]
    claim = f"At {digits(row['link_gb_per_s'])} GB/s a ratio of {digits(row['ratio'])} "
    if row["is_faster"]:
        claim += f"makes a step {digits(speedup)} times as fast"
    else:
        claim += f"does not pay: a step takes {digits(1 / speedup)} times as long"
    limit = row["break_even_gb_per_s"]
    ends = "on any link" if np.isinf(limit) else f"up to {digits(limit)} GB/s"
    share = share_text(row["communication_share"])
    return f"{claim} ({share} is exchange); compression pays {ends if limit else 'on no link'}"
