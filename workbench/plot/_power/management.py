"""Capping when a feed is short, and the cost of demand response."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft, grid
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import Frame, colour, distinct, fill, left_margin
from workbench.plot._style.text import (
    digits,
    is_doubtful,
    joules,
    label,
    plural,
    power_unit,
    safe,
    seconds,
    share_text,
    time_axis,
)
from workbench.tables import DEMAND_RESPONSE, POWER_MANAGEMENT

_MOST_BARS = 16
_FEED_PX, _BAR_PX, _BETWEEN_PX = 170, 20, 70
_LINES = (
    ("demand_w", "demand", "neutral", "dot", 1.5),
    ("granted_w", "granted", "series", "solid", 2.5),
    ("limit_w", "limit", "limit", "dash", 2),
)
_NOTE_LETTERS = 160


def power_management(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the feed that is short over time, and which loads are capped by how much.

    Above, the feed whose demand exceeds its limit most: demand, what is granted, limit. Below,
    a bar for each of the 16 loads that are cut most; of several jobs, for each job.
    The title tells how many are capped, what the slowest loses, and who is infeasible or trips.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.POWER_MANAGEMENT`.
    """
    frame = Frame(source, synthetic)
    POWER_MANAGEMENT.check(table)
    valid = table[table["granted_w"].notna()]
    limited = valid[~valid["is_load"] & (valid["limit_w"] > 0)]
    if limited.empty:
        why = "No feed has a limit; a topology or an analyze.FeedShortage sets one."
        why = why if len(table) else "The table is empty; analyze.power_management makes it."
        return frame.nothing(why, claim="No limit to keep")
    worst = limited.iloc[int((limited["demand_w"] / limited["limit_w"]).to_numpy().argmax())]
    shown = _cuts(valid[valid["is_load"]]).head(_MOST_BARS)
    ticks = [label(name, 36) for name in shown.index]
    height = _FEED_PX + _BAR_PX * max(len(shown), 3) + _BETWEEN_PX
    figure = grid(
        rows=2, cols=1, vertical_spacing=_BETWEEN_PX / height,
        row_heights=[_FEED_PX, height - _FEED_PX - _BETWEEN_PX],
    )  # fmt: skip
    _add_feed(figure, valid[valid["entity"] == worst["entity"]])
    _add_cuts(figure, shown, ticks)
    figure.update_layout(height=height, margin_l=20 + left_margin(ticks or [""]))
    claim = _claim(valid, worst)
    notes = [f"above: {label(worst['entity'], 40)}"]
    notes.append("below: those cut most" if len(shown) else "no load is cut")
    notes += _doubts(table["doubt"])
    return frame.finish(figure, claim=claim, note=" · ".join(notes), is_doubtful=is_doubtful(valid))


def _cuts(loads: pd.DataFrame) -> pd.DataFrame:
    """Return the deepest cut of each load and whether below its floor, by job if several."""
    key = "job" if loads["job"].nunique() > 1 else "entity"
    counts = loads.drop_duplicates("entity")[key].value_counts()
    capped = loads[loads["is_capped"] & (loads["demand_w"] > 0)]
    capped = capped.assign(cut_share=1 - capped["granted_w"] / capped["demand_w"])
    by_key = capped.groupby(key, observed=True)
    cuts = by_key.agg(
        cut_share=("cut_share", "max"), is_below_floor=("is_below_floor", "any"),
        count=("entity", "nunique"),
    ).sort_values("cut_share", ascending=False, kind="stable")  # fmt: skip
    if key == "job":
        cuts.index = pd.Index([
            f"{name}: {count:,} of {counts[name]:,}"
            for name, count in zip(cuts.index, cuts["count"], strict=True)
        ])  # fmt: skip
    return cuts


def _add_feed(figure: go.Figure, own: pd.DataFrame) -> None:
    first, last = int(own["time_ns"].min()), int(own["time_ns"].max())
    unit_ns, title = time_axis(first, last)
    scale, unit = power_unit(float(own["demand_w"].max()))
    for column, name, look, dash, width in _LINES:
        values = own[column].to_numpy(dtype=np.float64) / scale
        keep = extremes(values)
        figure.add_scatter(
            x=(own["time_ns"].to_numpy()[keep] - first) / unit_ns, y=values[keep], name=name,
            mode="lines" if len(keep) > 1 else "markers",
            line={"color": colour(look), "dash": dash, "width": width, "shape": "hv"},
            hovertemplate=f"{name} %{{y:,.4~g}} {unit}<extra></extra>", row=1, col=1,
        )  # fmt: skip
    figure.update_xaxes(title=title, row=1)
    figure.update_yaxes(title=f"power of the feed [{unit}]", rangemode="tozero", row=1)


def _add_cuts(figure: go.Figure, shown: pd.DataFrame, ticks: list[str]) -> None:
    for name, meaning, chosen in (
        ("cut, at its floor or above", "capped", ~shown["is_below_floor"]),
        ("cut below its floor", "power brake", shown["is_below_floor"]),
    ):
        rows = np.flatnonzero(chosen)
        if len(rows):
            figure.add_bar(
                orientation="h", y=rows, x=100 * shown["cut_share"].to_numpy()[rows],
                name=name, marker=fill(meaning, bars=len(shown)),
                hovertemplate="%{x:.1f} %<extra>%{fullData.name}</extra>", row=2, col=1,
            )  # fmt: skip
    figure.update_xaxes(
        title="most that a load is cut [% of its demand]", rangemode="tozero", row=2
    )
    figure.update_yaxes(
        tickvals=list(range(len(shown))),
        ticktext=ticks,
        range=[max(len(shown), 1) - 0.4, -0.6],
        row=2,
    )


def _claim(valid: pd.DataFrame, worst: pd.Series) -> str:
    loads = valid[valid["is_load"]]
    capped = loads.loc[loads["is_capped"], "entity"].nunique()
    name = label(worst["entity"], 20)
    demand, limit = float(worst["demand_w"]), float(worst["limit_w"])
    if demand <= limit:
        below = share_text(1 - demand / limit)
        return f"No feed is short: {name} comes nearest, {below} below its limit"
    # Rounded, so that 10 % is not told as 10.0 %.
    claim = f"{name} is {share_text(round(1 - limit / demand, 6))} short: {capped:,} of "
    claim += f"{loads['entity'].nunique():,} loads capped, the slowest loses "
    claim += share_text(float(loads["slowdown_share"].max()))
    below = loads.loc[loads["is_below_floor"], "entity"].nunique()
    if below:
        claim += f"; infeasible: {below:,} below their floors"
    tripped = valid.loc[valid["trip_ratio"] >= 1, "entity"].nunique()
    if tripped:
        claim += f"; {plural(tripped, 'breaker')} trip{'s' if tripped == 1 else ''}"
    return claim


def _doubts(column: pd.Series) -> list[str]:
    """Return the doubts, in bold."""
    texts = dict.fromkeys(part for text in column.unique() for part in text.split("; ") if part)
    return [f"<b>{label('; '.join(texts), _NOTE_LETTERS)}</b>"] if texts else []


# What it costs to draw less for some minutes.

_POLICY = {"cost": "least cost first", "priority": "by priority", "slack": "all by their slack"}


def demand_response(
    table: pd.DataFrame,
    *,
    claimed_share: float = 0.1,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show lost GPU-hours by what is shed, one line per policy.

    Hollow marks are shares that push loads below their floors. The title tells what one
    share costs under the first policy, in steps where their length is known.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.DEMAND_RESPONSE` of one feed and duration.
    claimed_share
        Share to shed whose cost the title tells; of those in the table the nearest.
    """
    frame = Frame(source, synthetic)
    DEMAND_RESPONSE.check(table)
    if table.empty:
        return frame.nothing("Without a share to shed nothing is lost.", claim="Nothing to shed")
    figure = Draft()
    for at, (policy, own) in enumerate(table.groupby("policy", sort=False)):
        rows = own.sort_values("shed_share", kind="stable")
        rows = rows.iloc[extremes(rows["lost_gpu_h"].to_numpy())]
        name = safe(_POLICY.get(str(policy), policy))
        figure.add_scatter(
            mode="lines+markers", x=100 * rows["shed_share"].to_numpy(),
            y=rows["lost_gpu_h"].to_numpy(), name=name, line=distinct(at),
            marker={
                "size": 10, "color": distinct(at)["color"],
                "symbol": np.where(rows["is_reached"], "circle", "circle-open"),
            },
            hovertemplate="shed %{x:.0f} %: %{y:.3g} GPU-hours<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    figure.update_xaxes(title="shed of the peak [%]")
    figure.update_yaxes(title="work lost [GPU-hours]", rangemode="tozero")
    first = table[table["policy"] == table["policy"].iloc[0]]
    row = first.iloc[int((first["shed_share"] - claimed_share).abs().to_numpy().argmin())]
    notes = ["model: a job waits for its slowest GPU"]
    if not table["is_reached"].all():
        notes.append("hollow: loads pushed below their floors")
    return frame.finish(
        figure, claim=_response_claim(row), note=" · ".join([*notes, *_doubts(table["doubt"])]),
        is_doubtful=is_doubtful(table),
    )  # fmt: skip


def _response_claim(row: pd.Series) -> str:
    lost = f"{digits(row['lost_gpu_h'])} GPU-hours"
    if pd.notna(row["lost_step_count"]):
        lost = f"{digits(row['lost_step_count'])} steps, {lost}"
    net = row["saved_j"] - row["catch_up_j"]
    claim = f"Shedding {share_text(row['shed_share'])} for {seconds(60 * row['duration_min'])} "
    claim += f"costs {lost}; it saves {joules(row['saved_j'])}, "
    claim += f"{joules(net)} after catching up" if net >= 0 else "and catching up takes more"
    count = int(row["below_floor_count"])
    return claim if row["is_reached"] else f"{claim}; infeasible for {plural(count, 'load')}"
