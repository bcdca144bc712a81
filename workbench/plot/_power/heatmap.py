"""A picture of power: a row per thing, time from left to right."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.style import finish, nothing
from workbench.plot._style.text import label, plural
from workbench.tables import POWER_HEATMAP

# What a figure may weigh, as whole numbers of two bytes each.
_MOST_CELLS = 700_000
_MOST_INT16 = (1 << 15) - 1
_YEAR_2000_NS = 946_684_800_000_000_000
_NO_READING = -1
_SCALE = ("#00224E", "#35456C", "#666970", "#948E77", "#C8B866", "#FEE838")
_PLOT_PX, _MOST_PX = 300, 620


def power_heatmap(
    heatmap: pd.DataFrame,
    *,
    by: Literal["mean", "max"] = "mean",
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show who drew how much and when; what is off stands out as a row or a column.

    Parameters
    ----------
    heatmap
        Table :data:`workbench.tables.POWER_HEATMAP`.
    by
        Whether a column of the picture shows the mean of its time or the highest cell.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A row per entity; the brighter, the more power; white where there is no reading. Cells
        are whole numbers, and of very many entities those that differ most from the median are
        shown, so that the figure stays below 2 MB. The title states the mean and who drew the most.
    """
    POWER_HEATMAP.check(heatmap)
    column = f"{by}_w"
    if column not in ("mean_w", "max_w"):
        msg = f"by must be 'mean' or 'max'; got {by!r}"
        raise ValueError(msg)
    if heatmap[column].isna().all():
        return nothing(
            "The table has no cell with power; pass what analyze.power_heatmap returns.",
            claim="No power to show",
            source=source,
            synthetic=synthetic,
        )
    wide = heatmap.assign(entity=heatmap["entity"].astype(str)).pivot_table(
        index="entity", columns="time_ns", values=column, aggfunc="max", sort=False, dropna=False
    )
    wide = wide.astype("float64").sort_index(axis="columns")
    shown = _oddest(wide)
    values = shown.to_numpy()
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    is_missing = np.isnan(values)
    kind = np.int16 if high <= _MOST_INT16 else np.int32
    hint = " (-1: no reading)" if is_missing.any() else ""
    figure = go.Figure()
    figure.add_heatmap(
        x=_times(shown.columns.to_numpy()),
        y=_labels([str(name) for name in shown.index]),
        z=np.where(is_missing, _NO_READING, values).astype(kind),
        zmin=_NO_READING,
        zmax=max(high, 1),
        colorscale=_colours(low, max(high, 1)),
        colorbar={"title": {"text": f"{by} power [W]"}, "thickness": 12, "tickformat": ","}
        | _ticks(low, high),
        hovertemplate=f"%{{y}}<br>%{{x}}: %{{z:,}} W{hint}<extra></extra>",
    )
    is_epoch = int(shown.columns.min()) >= _YEAR_2000_NS
    figure.update_xaxes(title="time [UTC]" if is_epoch else "time [s]", showgrid=False)
    figure.update_yaxes(title="entity", type="category", autorange="reversed", showgrid=False)
    height = min(max(_PLOT_PX, 3 * len(shown)), _MOST_PX)
    figure.update_layout(height=height, hovermode="closest")
    note = _note(wide, shown, is_missing)
    claim = _claim(heatmap, wide)
    return finish(figure, claim=claim, source=source, synthetic=synthetic, note=note)


def _oddest(wide: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows that differ most from the median if there are too many, in their order."""
    most = _MOST_CELLS if np.nanmax(wide.to_numpy()) <= _MOST_INT16 else _MOST_CELLS // 2
    most = max(most // max(wide.shape[1], 1), 1)
    if len(wide) <= most:
        return wide
    apart = (wide - wide.median(axis="index")).abs().mean(axis="columns")
    missing = wide.isna().mean(axis="columns")
    score = apart.fillna(0) / max(float(apart.max()), 1) + missing
    kept = np.sort(np.argsort(-score.to_numpy(), kind="stable")[:most])
    return wide.iloc[kept]


def _times(times: np.ndarray) -> Any:
    if int(times.min()) >= _YEAR_2000_NS:
        return pd.to_datetime(times.astype(np.int64)).to_numpy()
    return times / 1e9


def _labels(names: list[str]) -> list[str]:
    """Shorten names, and keep those apart that become equal."""
    seen: dict[str, int] = {}
    shown = []
    for name in names:
        short = label(name, 28)
        seen[short] = seen.get(short, 0) + 1
        shown.append(short if seen[short] == 1 else f"{short} ({seen[short]})")
    return shown


def _colours(low: float, high: float) -> list[list[Any]]:
    """Give white to cells without reading, and the whole scale to the powers there are."""

    def place(watts: float) -> float:
        return (watts - _NO_READING) / (high - _NO_READING)

    start, edge = place(min(low, high - 1)), place(-0.5)
    steps = np.linspace(max(start, edge), 1, len(_SCALE)).tolist()
    scale = [[step, colour] for step, colour in zip(steps, _SCALE, strict=True)]
    return [[0.0, "#FFFFFF"], [edge, "#FFFFFF"], [edge, _SCALE[0]], *scale]


def _ticks(low: float, high: float) -> dict[str, Any]:
    values = sorted({round(value) for value in np.linspace(low, max(high, 1), 5)})
    return {"tickvals": values, "ticktext": [f"{value:,}" for value in values]}


def _claim(heatmap: pd.DataFrame, wide: pd.DataFrame) -> str:
    groups = heatmap.assign(entity=heatmap["entity"].astype(str)).groupby("entity", sort=False)
    means = groups["mean_w"].mean().astype("float64")
    covered = groups["covered_share"].mean()
    # Who is known for a part of the time only may just have missed the idle hours.
    compared = means[(covered >= 0.95 * covered.max()) & means.notna()]
    who, most = label(compared.idxmax(), 30), float(compared.max())
    if len(wide) == 1:
        return f"{who} draws {most:,.0f} W on average"
    each = f"{len(wide):,} entities draw {float(means.mean()):,.0f} W each on average"
    return f"{each}; {who} the most, {most:,.0f} W"


def _note(wide: pd.DataFrame, shown: pd.DataFrame, is_missing: np.ndarray) -> str:
    notes = []
    if len(shown) < len(wide):
        notes.append(f"shown: the {len(shown):,} of {len(wide):,} that differ most from the median")
    if is_missing.any():
        notes.append(f"white: no reading ({plural(int(is_missing.sum()), 'cell')})")
    return " · ".join(notes)
