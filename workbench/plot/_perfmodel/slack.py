"""How much later GPU work could come without delaying the end, over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style import lanes as _lanes
from workbench.plot._style.style import colour, fill, finish, left_margin, nothing
from workbench.plot._style.text import duration, label, percent, plural, safe
from workbench.tables import SLACK

_NONE_NS = 10_000
_LANE_PX, _WIDE_LANE_PX, _LANES_PX = 26, 60, 200
# Dark to light, so that they are told apart where bars are too many for patterns.
_BANDS = ("limit", "degraded capacity", "idle")


def slack(
    table: pd.DataFrame,
    *,
    large_ns: int = 1_000_000,
    max_points: int = 5_000,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Draw GPU work per stream over time, told apart by how much later it could come.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.SLACK`.
    large_ns
        Slack from which on work counts as free to come later [ns]; below 10 µs it has none.
    max_points
        Rectangles to draw at most; work narrower than the picture can show shares them, as in
        :func:`workbench.plot.timeline`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar trace per band of slack, one lane per stream. The title counts the work that
        could come later by more than ``large_ns``.
    """
    SLACK.check(table)
    if table.empty:
        return nothing(
            "The table has no GPU work; pass what analyze.slack returns.",
            claim="No slack to show",
            source=source,
            synthetic=synthetic,
        )
    rows = table.reset_index(drop=True)
    lanes = _lanes_of(rows)
    band = np.searchsorted([min(_NONE_NS, large_ns), large_ns], rows["slack_ns"], side="right")
    items = rows.assign(
        lane=lanes["of_row"], kind=band, end_ns=rows["start_ns"] + rows["dur_ns"],
        busy_ns=rows["dur_ns"], count=1, longest_ns=rows["dur_ns"], row=rows.index,
    )  # fmt: skip
    items = items[items["lane"] < _lanes.MAX_LANES]
    first, last = int(rows["start_ns"].min()), int(items["end_ns"].max())
    bars = _lanes.merged(items, start_ns=first, end_ns=last, limit=max_points)
    words = (
        f"no slack, below {duration(min(_NONE_NS, large_ns))}",
        f"up to {duration(large_ns)}",
        f"more than {duration(large_ns)}",
    )
    figure = go.Figure()
    for code, meaning in enumerate(_BANDS):
        if len(part := bars[bars["kind"] == code]):
            figure.add_bar(**_bar(part, meaning, words[code], rows, first))
    _axes(figure, lanes["names"], (last - first) / 1e6)
    free = int((band == 2).sum())
    claim = (
        f"{free:,} of {plural(len(rows), 'kernel or copy').replace('copys', 'copies')} could "
        f"come later by more than {duration(large_ns)}; {_without(band, rows)}"
    )
    claim = claim.replace("kernel or copies", "kernels and copies")
    return finish(
        figure, claim=claim, source=source, synthetic=synthetic,
        note=_note(bars, lanes["names"]),
    )  # fmt: skip


def _without(band: np.ndarray, rows: pd.DataFrame) -> str:
    times = rows["dur_ns"].to_numpy()
    bound = times[band == 0].sum() / max(times.sum(), 1)
    return f"{safe(percent(float(bound)))} of the GPU time has no slack"


def _lanes_of(rows: pd.DataFrame) -> dict[str, Any]:
    """Give the streams of all ranks a number, in order, and a name."""
    streams = rows["stream"].astype("Int64").fillna(-1).astype("int64")
    keys = pd.MultiIndex.from_arrays([rows["rank"], streams])
    codes, places = keys.factorize(sort=True)
    names = []
    for rank, stream in places:
        words = f"stream {stream}" if stream >= 0 else "stream unknown"
        names.append(f"rank {rank}, {words}" if rows["rank"].nunique() > 1 else words)
    return {"of_row": codes, "names": names}


def _bar(
    bars: pd.DataFrame, meaning: str, words: str, rows: pd.DataFrame, first: int
) -> dict[str, Any]:
    floor = bars["lane"] + 0.42
    high = floor - 0.84 * bars["bottom_share"]
    low = high - (0.84 * bars["height_share"]).clip(lower=0.05)
    edge = {"width": 0.6, "color": colour(meaning)}
    names = rows["name"].to_numpy()
    free = rows["slack_ns"].to_numpy()
    return {
        "name": words,
        "orientation": "h",
        "base": ((bars["start_ns"] - first) / 1e6).to_numpy(),
        "x": ((bars["end_ns"] - bars["start_ns"]) / 1e6).to_numpy(),
        "y": ((low + high) / 2).to_numpy(),
        "width": (high - low).to_numpy(),
        "marker": fill(meaning, bars=len(bars)) | {"line": edge},
        "hovertext": [
            (f"{count:,} merged, the longest: " if count > 1 else "")
            + f"{label(names[row], 90)}<br>{duration(longest)}, could come {duration(free[row])} "
            "later"
            for row, count, longest in bars[["row", "count", "longest_ns"]].itertuples(index=False)
        ],
        "hovertemplate": "%{hovertext}<extra>" + words + "</extra>",
    }


def _axes(figure: go.Figure, names: list[str], span_ms: float) -> None:
    ticks = names[: _lanes.MAX_LANES]
    height = min(max(_LANES_PX // len(ticks), _LANE_PX), _WIDE_LANE_PX)
    figure.update_layout(
        barmode="overlay", height=max(len(ticks) * height, 80), hovermode="closest",
        margin_l=left_margin(ticks),
    )  # fmt: skip
    figure.update_xaxes(
        title="time since the first GPU work [ms]", range=[0, span_ms or 1], tickformat=","
    )
    figure.update_yaxes(
        tickvals=list(range(len(ticks))), ticktext=ticks, range=[len(ticks) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip


def _note(bars: pd.DataFrame, names: list[str]) -> str:
    notes = ["each alone: what lies in a row shares its slack"]
    if shared := int(bars.loc[bars["count"] > 1, "count"].sum()):
        notes.append(f"{shared:,} short ones share rectangles as high as their busy share")
    if (hidden := len(names) - _lanes.MAX_LANES) > 0:
        notes.append(f"{plural(hidden, 'stream')} left out")
    return " · ".join(notes)
