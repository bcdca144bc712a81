"""Peaks, limits and headroom along the delivery tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import MAX_POINTS, extremes
from workbench.plot._style.palette import VEIL
from workbench.plot._style.style import (
    COLOURS,
    Frame,
    colour,
    distinct,
    fill,
    left_margin,
    row_axis,
)
from workbench.plot._style.text import (
    amount,
    joules,
    label,
    percent,
    plural,
    power_unit,
    seconds,
    time_axis,
)
from workbench.tables import POWER_HIERARCHY, POWER_RESIDUAL, PUE

_MOST_ROWS = 24
_ROW_PX = 24
# The axis ends here at the latest; nameplates may be several times the limit.
_MOST_PERCENT = 320.0


def power_hierarchy(
    hierarchy: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how much of every limit is used, usable and stranded, level by level.

    Parameters
    ----------
    hierarchy
        Table :data:`workbench.tables.POWER_HIERARCHY`.
    source, synthetic
        Origin of the data, printed under the figure, and whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per thing with a limit, in shares of that limit, and a mark at the nameplates
        below it. Of levels with many things, those nearest to their limits. The title tells
        which thing is nearest to its limit, and where the most headroom is stranded.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> log = load.power(datasets.path("fleet-demo") / "power", tz="UTC")
    >>> cells = analyze.power_grid(log.power, period_s=2)
    >>> feed = analyze.single_feed(cells).assign(limit_w=9_000.0)
    >>> tree = analyze.power_tree(cells, feed)
    >>> table = analyze.power_hierarchy(tree, feed)
    >>> figure = power_hierarchy(table, source="fleet-demo", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    feed exceeds its limit, with 147 % at its peak; 8.45 kW of 8.45 kW headroom are stranded at gpu3
    (syntheti…_smi.csv)
    """
    frame = Frame(source, synthetic)
    POWER_HIERARCHY.check(hierarchy)
    drawable = hierarchy[(hierarchy["limit_w"] > 0) & hierarchy["peak_w"].notna()]
    if drawable.empty:
        return frame.nothing(
            "Nothing has both a limit in the topology and power that meters know."
            if len(hierarchy)
            else "The table is empty; analyze.power_hierarchy makes it.",
            claim="No headroom to show",
        )
    shown = _chosen(drawable)
    figure = Draft()
    _add_bars(figure, shown)
    _add_nameplates(figure, shown)
    figure.add_vline(x=100, line={"color": colour("limit"), "width": 2})
    ticks = [f"{label(row['entity'], 26)} ({label(row['level'], 14)})" for row in _rows(shown)]
    figure.update_layout(
        barmode="stack", bargap=0.3, hovermode="closest", height=max(len(shown), 4) * _ROW_PX,
        margin_l=20 + left_margin(ticks),
    )  # fmt: skip
    figure.update_xaxes(title="share of the limit [%]", range=[0, _reach(shown)])
    figure.update_yaxes(**row_axis(ticks), showgrid=False)
    return frame.finish(
        figure, claim=_claim(drawable),
        note=" · ".join(_notes(hierarchy, drawable, shown)))  # fmt: skip


def _rows(table: pd.DataFrame) -> list[dict[Any, Any]]:
    return table.to_dict("records")


def _chosen(drawable: pd.DataFrame) -> pd.DataFrame:
    order = drawable["level"].drop_duplicates().tolist()
    ranked = drawable.assign(level_at=drawable["level"].map(order.index))
    ranked = ranked.sort_values(
        ["level_at", "peak_limit_ratio"], ascending=[True, False], kind="stable"
    )
    if len(ranked) <= _MOST_ROWS:
        return ranked.reset_index(drop=True)
    # Levels with few things leave their room to the others.
    sizes = ranked["level_at"].value_counts(sort=False).sort_values()
    room, quota = _MOST_ROWS, {}
    for left, (level, size) in zip(range(len(sizes), 0, -1), sizes.items(), strict=True):
        quota[level] = min(size, max(room // left, 1))
        room -= quota[level]
    position = ranked.groupby("level_at").cumcount()
    kept = ranked[position < ranked["level_at"].map(quota)]
    return kept.iloc[: 2 * _MOST_ROWS].reset_index(drop=True)


def _add_bars(figure: go.Figure, shown: pd.DataFrame) -> None:
    limit = shown["limit_w"].to_numpy()
    peak = shown["peak_w"].to_numpy()
    usable, stranded = shown["usable_headroom_w"].to_numpy(), shown["stranded_w"].to_numpy()
    is_known = ~np.isnan(usable) & ~np.isnan(stranded)
    # Without both shares the headroom is drawn as unknown, not as usable.
    unknown = np.where(is_known, 0.0, np.maximum(limit - peak, 0))
    pieces = {
        "peak": (peak, "neutral"),
        "usable headroom": (np.where(is_known, usable, 0.0), "usable headroom"),
        "stranded headroom": (np.where(is_known, stranded, 0.0), "stranded headroom"),
        "headroom, not known whether usable": (unknown, "unknown"),
    }
    names = [label(name, 60) for name in shown["entity"]]
    for name, (power_w, meaning) in pieces.items():
        if name == "peak" or power_w.any():
            figure.add_bar(
                orientation="h", y=np.arange(len(shown)), x=100 * power_w / limit, name=name,
                marker=fill(meaning, bars=len(shown)),
                hovertext=[
                    f"{full}: {name} {amount(power)} of {amount(most)}"
                    for full, power, most in zip(names, power_w, limit, strict=True)
                ],
                hovertemplate="%{hovertext}, %{x:.1f} %<extra></extra>",
            )  # fmt: skip


def _add_nameplates(figure: go.Figure, shown: pd.DataFrame) -> None:
    """Mark the nameplates below a thing, or its own where nothing is below it."""
    own = shown["nameplate_w"] / shown["limit_w"]
    ratio = shown["nameplates_limit_ratio"].where(shown["child_count"] > 0, own)
    is_known = np.flatnonzero(ratio.notna() & (100 * ratio <= _MOST_PERCENT))
    if len(is_known):
        figure.add_scatter(
            x=100 * ratio.to_numpy()[is_known], y=is_known, mode="markers",
            name="nameplate, or sum of those below",
            marker={"symbol": "diamond", "size": 10, "color": COLOURS["reference"]},
            hovertemplate="nameplates %{x:.0f} % of the limit<extra></extra>",
        )  # fmt: skip


def _reach(shown: pd.DataFrame) -> float:
    ratios = shown[["peak_limit_ratio", "nameplates_limit_ratio"]].to_numpy(dtype=float).ravel()
    ratios = np.r_[ratios, (shown["nameplate_w"] / shown["limit_w"]).to_numpy(dtype=float)]
    fitting = 100 * ratios[~np.isnan(ratios)]
    highest = max(fitting[fitting <= _MOST_PERCENT].max(initial=0), 100.0)
    return float(min(1.06 * highest, _MOST_PERCENT * 1.02))


def _notes(hierarchy: pd.DataFrame, drawable: pd.DataFrame, shown: pd.DataFrame) -> list[str]:
    notes = []
    if len(shown) < len(drawable):
        notes.append(
            f"{len(shown):,} of {len(drawable):,} shown, of every level those nearest to the limit"
        )
    if left_out := len(hierarchy) - len(drawable):
        notes.append(f"{left_out:,} without a limit or power dropped")
    if (drawable["covered_share"] < 1).any():
        notes.append(
            f"meters know {percent(float(drawable['covered_share'].min()))} or more of each"
        )
    beyond = (100 * shown["nameplates_limit_ratio"] > _MOST_PERCENT).sum()
    if beyond:
        notes.append(f"{plural(int(beyond), 'sum')} of nameplates beyond the axis")
    return notes


def _claim(drawable: pd.DataFrame) -> str:
    nearest = drawable.iloc[int(drawable["peak_limit_ratio"].to_numpy().argmax())]
    ratio = float(nearest["peak_limit_ratio"])
    verb = "exceeds" if ratio > 1 else "comes nearest to"
    claim = f"{label(nearest['entity'], 24)} {verb} its limit, with {100 * ratio:.0f} % at its peak"
    stranded = drawable["stranded_w"].fillna(0).to_numpy()
    most = drawable.iloc[int(stranded.argmax())]
    if stranded.max() > 0:
        claim += (
            f"; {amount(stranded.max())} of {amount(most['headroom_w'])} headroom are stranded "
            f"at {label(most['entity'], 24)}"
        )
    return claim


# Power usage effectiveness over time.

_MOST_MARKED = 60
# A window that lacks more of its time than this is marked as such.
_KNOWN = 0.99


def pue(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show PUE window by window, and that of all of them together.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PUE`.
    source, synthetic
        Origin of the data, printed under the figure, and whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        A stepped line with a dashed one for the whole, which is the ratio of the sums; the
        title states it. Windows that lack part of their time have hollow marks.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> log = load.power(datasets.path("fleet-demo") / "power", tz="UTC")
    >>> power = analyze.power_of_scope(log.power, log.entities)
    >>> totals = analyze.power_sum(power)
    >>> facility = totals.assign(power_w=1.2 * totals["power_w"] + 500)
    >>> table = analyze.pue(facility, totals)
    >>> figure = pue(table, source="fleet-demo", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    PUE is 1.293: 53.5 Wh for all but the IT
    """
    frame = Frame(source, synthetic)
    PUE.check(table)
    valid = table[table["pue_ratio"].notna()]
    if valid.empty:
        return frame.nothing(
            "No window has cells in which both the facility and its IT are known.",
            claim="No PUE to show",
        )
    total = float(valid["facility_j"].sum() / valid["it_j"].sum())
    first, last = int(table["start_ns"].iloc[0]), int(table["end_ns"].iloc[-1])
    unit_ns, title = time_axis(first, last)
    value = table["pue_ratio"].to_numpy()
    keep = extremes(value, MAX_POINTS - 1)
    figure = Draft()
    figure.add_scatter(
        x=(np.r_[table["start_ns"].to_numpy()[keep], last] - first) / unit_ns,
        # A step line ends where its last window begins: the value is repeated at its end.
        y=np.r_[value[keep], value[-1]],
        mode="lines", name="PUE of a window", showlegend=False,
        line={"color": colour("gpu work"), "width": 2, "shape": "hv"},
        hovertemplate="PUE %{y:.3f}<extra></extra>",
    )  # fmt: skip
    if len(table) <= _MOST_MARKED:
        _mark(figure, table, first_ns=first, unit_ns=unit_ns)
    if len(valid) > 1:
        figure.add_hline(
            y=total, line={"color": colour("limit"), "dash": "dash", "width": 1.5},
            annotation_text=f"all together {total:.3f}", annotation_position="bottom right",
            annotation_bgcolor=VEIL,
        )  # fmt: skip
    low, high = float(valid["pue_ratio"].min()), float(valid["pue_ratio"].max())
    room = max(0.2 * (high - low), 0.05)
    figure.update_xaxes(title=title, range=[0, (last - first) / unit_ns])
    figure.update_yaxes(
        title="energy of the facility over its IT [ratio]",
        # 1 stays in sight: the ideal, and the bound below which meters contradict each other.
        range=[min(low - room, 1.0 if low >= 1 else low - room), high + room],
    )
    return frame.finish(figure, claim=_pue_claim(valid, total), note=_note(table))


def _mark(figure: go.Figure, table: pd.DataFrame, *, first_ns: int, unit_ns: float) -> None:
    middle = (table["start_ns"] + (table["end_ns"] - table["start_ns"]) // 2 - first_ns) / unit_ns
    for is_whole in (True, False):
        own = (table["covered_share"] >= _KNOWN) == is_whole
        own &= table["pue_ratio"].notna()
        if own.any():
            figure.add_scatter(
                x=middle[own], y=table.loc[own, "pue_ratio"], mode="markers",
                name=f"{percent(_KNOWN)} of the time known, or more" if is_whole else "less known",
                marker={
                    "color": colour("gpu work"), "size": 9,
                    "symbol": "circle" if is_whole else "circle-open",
                },
                customdata=table.loc[own, "covered_share"],
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


def _pue_claim(facts: pd.DataFrame, total: float) -> str:
    overhead = float(facts["facility_j"].sum() - facts["it_j"].sum())
    claim = f"PUE is {total:.3f}"
    if overhead > 0:
        claim += f": {joules(overhead)} for all but the IT"
    if len(facts) > 1:
        low, high = facts["pue_ratio"].min(), facts["pue_ratio"].max()
        claim += f"; windows lie between {low:.3f} and {high:.3f}"
    return claim


# What meters show beyond what is metered below them.

_MOST_LINES = 6


def power_residual(
    residual: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show over time what each meter shows beyond its parts; below 0 something is wrong.

    Parameters
    ----------
    residual
        Table :data:`workbench.tables.POWER_RESIDUAL`.
    source, synthetic
        Origin of the data, printed under the figure, and whether it was generated.

    Returns
    -------
    plotly.graph_objects.Figure
        A line for each of the six meters with the largest residuals. The title tells the
        largest, and how often a residual is negative.

    Examples
    --------
    Nodes have meters of their own, above those of their GPUs:

    >>> from workbench import analyze, datasets, load
    >>> log = load.power(datasets.path("fleet-demo") / "power", tz="UTC")
    >>> topology = log.entities[["entity", "scope"]].rename(columns={"scope": "level"})[::-1]
    >>> topology["parent"] = topology["entity"].str.extract("_(node[0-9]+)_", expand=False)
    >>> topology = topology.assign(nameplate_w=np.nan, limit_w=np.nan)
    >>> tree = analyze.power_tree(analyze.power_grid(log.power, period_s=10), topology)
    >>> table = analyze.power_residual(tree)
    >>> figure = power_residual(table, source="fleet-demo", synthetic=True)
    >>> print(figure.layout.meta["claim"])
    node001 draws 1.13 kW (50.4 %) more than its parts together
    """
    frame = Frame(source, synthetic)
    POWER_RESIDUAL.check(residual)
    valid = residual[residual["residual_w"].notna()]
    if valid.empty:
        return frame.nothing(
            "No meter has a value together with all its parts, so nothing can be subtracted."
            if len(residual)
            else "No meter has others below it; analyze.power_residual needs both.",
            claim="No residual to show",
        )
    entity = valid["entity"].astype(object)
    means = valid.groupby(entity)["residual_w"].mean()
    shown = means.abs().sort_values(ascending=False, kind="stable").index[:_MOST_LINES]
    own = residual[residual["entity"].isin(shown)]
    scale, unit = power_unit(float(valid["residual_w"].abs().max()))
    first, last = int(residual["time_ns"].min()), int(residual["time_ns"].max())
    unit_ns, title = time_axis(first, last)
    figure = Draft()
    for at, (name, rows) in enumerate(own.groupby(own["entity"].astype(object), sort=True)):
        value = rows["residual_w"].to_numpy() / scale
        keep = extremes(value)
        figure.add_scatter(
            x=(rows["time_ns"].to_numpy()[keep] - first) / unit_ns, y=value[keep],
            mode="lines" if len(keep) > 1 else "markers", name=label(name, 30),
            line={**distinct(at), "width": 1.8, "shape": "hv"},
            hovertemplate="%{y:,.4~g} " + unit + "<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": colour("limit"), "width": 1.5})
    figure.update_xaxes(title=title)
    figure.update_yaxes(title=f"meter minus its parts [{unit}]", tickformat=",.4~g")
    return frame.finish(
        figure, claim=_residual_claim(valid, means),
        note=" · ".join(_residual_notes(residual, valid, len(means))))  # fmt: skip


def _residual_notes(residual: pd.DataFrame, facts: pd.DataFrame, meter_count: int) -> list[str]:
    notes = []
    if meter_count > _MOST_LINES:
        notes.append(f"{_MOST_LINES} of {meter_count:,} meters shown, those with the most")
    if blank := len(residual) - len(facts):
        notes.append(f"{plural(blank, 'cell')} blank, because a meter or a part is missing there")
    if (facts["covered_share"] < 1).any():
        notes.append("<b>the residual includes parts without a value</b>")
    return notes


def _residual_claim(facts: pd.DataFrame, means: pd.Series) -> str:
    at = int(means.abs().to_numpy().argmax())
    name, mean = means.index[at], float(means.iloc[at])
    metered = facts.loc[(facts["entity"] == name).to_numpy(), "metered_w"].mean()
    share = f" ({100 * abs(mean) / metered:.1f} %)" if metered > 0 else ""
    side = "more" if mean >= 0 else "less"
    claim = f"{label(name, 30)} draws {amount(abs(mean))}{share} {side} than its parts together"
    negative = float(np.mean(facts["is_negative"]))
    if negative == 0:
        return claim
    return f"{claim}; {percent(negative)} of all residuals are negative, which cannot be"
