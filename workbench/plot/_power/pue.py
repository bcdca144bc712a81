"""Power usage effectiveness over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.power_text import joules, seconds, time_axis
from workbench.plot._style.sampling import MAX_POINTS, extremes
from workbench.plot._style.style import colour, finish, nothing
from workbench.plot._style.text import percent, plural
from workbench.tables import PUE

_MOST_MARKED = 60
# A window that lacks more of its time than this is marked as such.
_KNOWN = 0.99


def pue(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show PUE window by window, and that of all of them together.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PUE`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A stepped line with a dashed one for the whole, which is the ratio of the sums; the
        title states it. Windows that lack part of their time have hollow marks.
    """
    PUE.check(table)
    known = table[table["pue_ratio"].notna()]
    if known.empty:
        return nothing(
            "No window has cells in which both the facility and its IT are known.",
            claim="No PUE to show",
            source=source,
            synthetic=synthetic,
        )
    whole = float(known["facility_j"].sum() / known["it_j"].sum())
    first, last = int(table["start_ns"].iloc[0]), int(table["end_ns"].iloc[-1])
    unit_ns, title = time_axis(first, last)
    value = table["pue_ratio"].to_numpy()
    keep = extremes(value, MAX_POINTS - 1)
    figure = go.Figure()
    figure.add_scatter(
        x=(np.r_[table["start_ns"].to_numpy()[keep], last] - first) / unit_ns,
        y=np.r_[value[keep], value[-1]],
        mode="lines", name="PUE of a window", showlegend=False,
        line={"color": colour("gpu work"), "width": 2, "shape": "hv"},
        hovertemplate="PUE %{y:.3f}<extra></extra>",
    )  # fmt: skip
    if len(table) <= _MOST_MARKED:
        _mark(figure, table, first_ns=first, unit_ns=unit_ns)
    if len(known) > 1:
        figure.add_hline(
            y=whole, line={"color": colour("limit"), "dash": "dash", "width": 1.5},
            annotation_text=f"all together {whole:.3f}", annotation_position="bottom right",
            annotation_bgcolor="rgba(255,255,255,0.75)",
        )  # fmt: skip
    low, high = float(known["pue_ratio"].min()), float(known["pue_ratio"].max())
    room = max(0.2 * (high - low), 0.05)
    figure.update_xaxes(title=title, range=[0, (last - first) / unit_ns])
    figure.update_yaxes(
        title="energy of the facility over its IT [ratio]",
        range=[min(low - room, 1.0 if low >= 1 else low - room), high + room],
    )
    return finish(
        figure, claim=_claim(known, whole), source=source, synthetic=synthetic, note=_note(table)
    )


def _mark(figure: go.Figure, table: pd.DataFrame, *, first_ns: int, unit_ns: float) -> None:
    """Mark the middle of each window, hollow where part of its time is unknown."""
    middle = (table["start_ns"] + (table["end_ns"] - table["start_ns"]) // 2 - first_ns) / unit_ns
    for is_whole in (True, False):
        mine = (table["covered_share"] >= _KNOWN) == is_whole
        mine &= table["pue_ratio"].notna()
        if mine.any():
            figure.add_scatter(
                x=middle[mine], y=table.loc[mine, "pue_ratio"], mode="markers",
                name=f"{percent(_KNOWN)} of the time known, or more" if is_whole else "less known",
                marker={
                    "color": colour("gpu work"), "size": 9,
                    "symbol": "circle" if is_whole else "circle-open",
                },
                customdata=table.loc[mine, "covered_share"],
                hovertemplate="PUE %{y:.3f}, %{customdata:.1%} of the time known<extra></extra>",
            )  # fmt: skip


def _note(table: pd.DataFrame) -> str:
    lasts_ns = (table["end_ns"] - table["start_ns"]).astype("float64")
    notes = [f"ratio of sums, {plural(len(table), 'window')} of {seconds(lasts_ns.iloc[0] / 1e9)}"]
    covered = float((table["covered_share"] * lasts_ns).sum() / lasts_ns.sum())
    notes.append(f"both known in {percent(covered)} of the time")
    if blank := int(table["pue_ratio"].isna().sum()):
        notes.append(f"{plural(blank, 'window')} without any")
    if below := int(table["is_below_one"].sum()):
        notes.append(f"<b>{plural(below, 'window')} below 1, which cannot be: check the meters</b>")
    return " · ".join(notes)


def _claim(known: pd.DataFrame, whole: float) -> str:
    overhead = float(known["facility_j"].sum() - known["it_j"].sum())
    claim = f"PUE is {whole:.3f}"
    if overhead > 0:
        claim += f": {joules(overhead)} for all but the IT"
    if len(known) > 1:
        low, high = known["pue_ratio"].min(), known["pue_ratio"].max()
        claim += f"; windows lie between {low:.3f} and {high:.3f}"
    return claim
