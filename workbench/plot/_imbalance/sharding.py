"""Figures of sharding: load imbalance, embedding tables, rows and context."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.bars import log_ticks, stacked
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.palette import VEIL
from workbench.plot._style.style import COLOURS, MAX_LINES, Frame, distinct, fill, row_axis
from workbench.plot._style.text import (
    digits,
    duration,
    label,
    percent,
    plural,
    size,
    time_unit,
)
from workbench.tables import (
    CONTEXT_CHUNKS,
    CONTEXT_SHARDING,
    LOAD_IMBALANCE,
    ROW_SHARDING,
    TABLE_SHARDING,
)

# Context parallelism: what the slowest rank computes, and who gets which document.

_WAYS = ("per_sequence", "per_document", "adaptive", "hybrid")
_MOST_DOCUMENTS, _MOST_RANKS = 6, 64
_SHAPES = ("", "/", "x", "\\", ".", "-")


def context_sharding(
    sharding: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Compare ways of sharding by the attention of the slowest rank.

    One bar per way, all micro-batches together, over an even share on a perfect kernel.
    The title states the best, and how often adaptive cuts the documents.

    Parameters
    ----------
    sharding
        Table :data:`workbench.tables.CONTEXT_SHARDING`.
    """
    frame = Frame(source, synthetic)
    CONTEXT_SHARDING.check(sharding)
    even = float(sharding["even_cost"].sum())
    if not even:
        why = "The table has no micro-batch with tokens; analyze.context_sharding makes it."
        return frame.nothing(why, claim="No sharding to compare")
    costs = {way: float(sharding[f"{way}_cost"].sum()) / even for way in _WAYS}
    figure = Draft(
        go.Bar(
            x=[way.replace("_", " ") for way in _WAYS],
            y=list(costs.values()),
            marker=fill("attention", bars=4),
            text=[f"{value:.2f}" for value in costs.values()],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x}: %{y:.3f} of an even share<extra></extra>",
            name="attention of the slowest rank",
        )
    )
    figure.update_layout(bargap=0.45)
    figure.add_hline(y=1, line={"color": COLOURS["neutral"], "width": 1, "dash": "dash"})
    figure.update_xaxes(title="how the attention of a micro-batch is cut", showgrid=False)
    title, most = "attention of the slowest rank [even = 1]", max(*costs.values(), 1.0)
    figure.update_yaxes(title=title, range=[0, 1.15 * most])
    best = min(_WAYS, key=lambda way: costs[way])
    claim = (
        f"{best.replace('_', ' ').capitalize()}: the slowest rank takes {costs[best]:.2f} of an "
        f"even share instead of {costs['per_sequence']:.2f}"
    )
    share = percent(float(sharding["is_per_document"].mean()))
    note = f"adaptive cuts the documents in {share} of the micro-batches"
    return frame.finish(figure, claim=claim, note=note)


def context_chunks(chunks: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show which rank computes which document of one micro-batch, and for how long.

    One row per rank, its runs one after the other; the documents with the most work have
    a look of their own. The title states the slowest rank over the mean.

    Parameters
    ----------
    chunks
        Table :data:`workbench.tables.CONTEXT_CHUNKS`.
    """
    frame = Frame(source, synthetic)
    CONTEXT_CHUNKS.check(chunks)
    load = chunks.groupby("rank")["pair_count"].sum()
    if load.empty or not load.sum():
        why = "The table has no runs of tokens; analyze.context_chunks makes them."
        return frame.nothing(why, claim="No chunks to show")
    mean = float(load.sum()) / int(chunks["rank_count"].iloc[0])
    shown = load.nlargest(_MOST_RANKS).index.sort_values()
    rows = chunks[chunks["rank"].isin(shown)]
    total = rows.groupby("document")["pair_count"].sum().sort_values(ascending=False)
    largest = total.index[:_MOST_DOCUMENTS]
    remaining = rows[~rows["document"].isin(largest)]
    drawn = [(f"document {name}", rows[rows["document"] == name]) for name in largest]
    drawn += [(plural(remaining["document"].nunique(), "other document"), remaining)] * bool(
        len(remaining)
    )
    figure = Draft()
    for position, (name, runs) in enumerate(drawn):
        sums = runs.groupby("rank")[["pair_count", "length_tokens"]].sum()
        is_other = runs is remaining
        # Documents have no colour of their own meaning, so patterns tell neighbours apart.
        pattern = {"shape": "+" if is_other else _SHAPES[position], "fgcolor": COLOURS["paper"]}
        figure.add_bar(
            orientation="h",
            x=sums["pair_count"] / mean,
            y=shown.get_indexer(sums.index).tolist(),
            name=name,
            marker={
                "color": COLOURS["all others"] if is_other else distinct(position)["color"],
                "line": {"width": 0.5, "color": COLOURS["paper"]},
                "pattern": pattern | {"fgopacity": 0.5, "size": 6, "fillmode": "overlay"},
            },
            customdata=sums["length_tokens"],
            hovertemplate="%{customdata:,} queries, %{x:.3f} of the mean<extra>%{fullData.name}"
            "</extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.2, height=max(24 * len(shown), 90))
    figure.add_vline(x=1, line={"color": COLOURS["reference"], "width": 1, "dash": "dash"})
    figure.update_xaxes(title="attention of a rank [mean of the ranks = 1]", rangemode="tozero")
    ranks = row_axis([str(rank) for rank in shown])
    figure.update_yaxes(title="context-parallel rank", **ranks, showgrid=False)
    # Over all ranks, also those that are not shown.
    worst, most = load.to_numpy().argmax(), float(load.max()) / mean
    hidden = len(load) - len(shown)
    note = f"{plural(hidden, 'rank')} with less work not shown" if hidden else ""
    claim = f"Rank {load.index[int(worst)]} computes {most:.2f} times the mean of the ranks"
    return frame.finish(figure, claim=claim, note=note)


# What may vary between the rows of the table, and how its axis is named.
_VARIED = {
    "hot_row_count": "most popular rows {apart} [rows]",
    "copy_count": "copies of each hot row [units that hold it]",
    "unit_count": "memory units [count]",
    "top_row_share": "look-ups on the most popular row [% of all]",
}
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "star", "hexagon", "triangle-down")
_BOUND = "no placement can be better"
_MOST_TICKS = 16
_NEAR, _UNEQUAL = 1.05, 1.1


def row_sharding(sharding: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how far the busiest unit is above the mean, for each placement.

    One line per placement, and the bound, against what varies: hot rows, copies, units
    or the share of the most popular row. The title states what is left to gain.

    Parameters
    ----------
    sharding
        Table :data:`workbench.tables.ROW_SHARDING`; tables of several popularities or numbers
        of units may be put together with ``pandas.concat``.
    """
    frame = Frame(source, synthetic)
    ROW_SHARDING.check(sharding)
    if sharding.empty:
        why = "No rows were placed, so no unit has anything to do."
        return frame.nothing(why, claim="No placement of rows to show")
    # What varies is the axis; where nothing does, a single point still needs one.
    varied = next((n for n in _VARIED if sharding[n].nunique() > 1), "top_row_share")
    settings = np.sort(sharding[varied].unique())
    groups = sharding.groupby(varied)
    figure = Draft()
    for position, name in enumerate(sharding["placement"].drop_duplicates()[: MAX_LINES - 1]):
        placed = sharding[sharding["placement"] == name].groupby(varied)["max_to_mean_ratio"].max()
        _add_line(figure, placed, settings, name=label(name, 30), position=position)
    _add_line(figure, groups["bound_ratio"].max(), settings, name=_BOUND)
    shown = sharding[["max_to_mean_ratio", "bound_ratio"]].to_numpy().ravel()
    figure.update_yaxes(title="busiest unit [× mean], logarithmic", type="log", **log_ticks(shown))
    copies = int(sharding["copy_count"].max())
    apart = f"with {copies:,} cop{'y' if copies == 1 else 'ies'}" if copies else "in a cache"
    figure.update_xaxes(title=_VARIED[varied].format(apart=apart), **_ticks(settings, varied))
    figure.update_layout(hovermode="x unified")
    claim, note = _row_sharding_claim(sharding, varied), _note(sharding, varied)
    return frame.finish(figure, claim=claim, note=note)


def _add_line(
    figure: go.Figure, values: pd.Series, settings: np.ndarray, *, name: str, position: int = -1
) -> None:
    """Add one line, the bound without a position; settings may start with 0, so x counts them."""
    shown = values.iloc[extremes(values.to_numpy())]
    look = {"color": COLOURS["neutral"], "dash": "dot"} if position < 0 else distinct(position)
    symbol = "line-ew-open" if position < 0 else _SYMBOLS[position % len(_SYMBOLS)]
    figure.add_scatter(
        x=np.searchsorted(settings, shown.index.to_numpy()),
        y=shown.to_numpy(),
        name=name,
        mode="lines+markers" if len(shown) <= 4 * _MOST_TICKS else "lines",
        line={**look, "width": 2},
        marker={"symbol": symbol, "size": 8},
        hovertemplate="%{y:.3~g} × the mean",
    )


def _ticks(settings: np.ndarray, varied: str) -> dict[str, list[int] | list[str]]:
    every = -(-len(settings) // _MOST_TICKS)
    at = list(range(0, len(settings), every))
    share = varied == "top_row_share"
    words = [percent(float(settings[i])) if share else f"{int(settings[i]):,}" for i in at]
    return {"tickvals": at, "ticktext": words}


def _row_sharding_claim(sharding: pd.DataFrame, varied: str) -> str:
    ordered = sharding.sort_values([varied, "max_to_mean_ratio"], kind="stable")
    first, last = (
        ordered[ordered[varied] == value].iloc[0] for value in ordered[varied].iloc[[0, -1]]
    )
    units = plural(int(last["unit_count"]), "unit")
    before, after = digits(first["max_to_mean_ratio"]), digits(last["max_to_mean_ratio"])
    best = f"{label(last['placement'], 20)} leaves the busiest of {units} at {after} × the mean"
    if varied == "hot_row_count":
        how = f"{int(last['copy_count'])} copies of" if last["copy_count"] else "A cache for"
        return (
            f"{how} the {int(last['hot_row_count']):,} most popular rows: at best the busiest of "
            f"{units} goes from {before} × the mean to {after} ×"
        )
    if varied == "unit_count":
        return (
            f"At best the busiest of {int(first['unit_count']):,} units has {before} × the mean, "
            f"the busiest of {int(last['unit_count']):,} has {after} ×"
        )
    if last["bound_ratio"] > _UNEQUAL:
        return f"{best}: one row alone has {percent(float(last['top_row_share']))} of the look-ups"
    balanced = last["max_to_mean_ratio"] <= _NEAR
    return f"{best}: the rows can be balanced" if balanced else best


def _note(sharding: pd.DataFrame, varied: str) -> str:
    notes = [
        "contiguous: blocks of rows in order of popularity",
        "LPT: most popular row first, to the least busy unit",
        f"{plural(int(sharding['row_count'].max()), 'row')}",
    ]
    if varied != "unit_count" and sharding["unit_count"].nunique() == 1:
        notes.append(plural(int(sharding["unit_count"].iloc[0]), "unit"))
    if varied != "top_row_share" and sharding["top_row_share"].nunique() == 1:
        share = percent(float(sharding["top_row_share"].iloc[0]))
        notes.append(f"the most popular row has {share} of the look-ups")
    if sharding.duplicated(["placement", varied]).any():
        notes.append("where several settings share a place, the highest is drawn")
    return " · ".join(notes)


_NS_PER_MS = 1_000_000
_NAMED_TABLES = 5
_MOSTLY = 0.5
_BALANCED = 1.05


def table_sharding(
    shards: pd.DataFrame,
    *,
    imbalance: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show what the shards of every rank cost, the slowest rank first.

    Stacks of look-ups and communication, one per rank, and the mean. The title states
    how far the slowest rank is from it, and the table that it waits for.

    Parameters
    ----------
    shards
        Table :data:`workbench.tables.TABLE_SHARDING` of one job.
    imbalance
        Table :data:`workbench.tables.LOAD_IMBALANCE` of what the ranks cost; its values
        are then printed under the title.
    """
    frame = Frame(source, synthetic)
    TABLE_SHARDING.check(shards)
    if shards.empty:
        why = "The plan has no shards, so no rank has anything to do."
        return frame.nothing(why, claim="No shards to show")
    ranks = max(int(shards["world_size"].max()), int(shards["rank"].max()) + 1)
    times = {
        name: np.bincount(shards["rank"], weights=shards[f"{name}_ms"], minlength=ranks)
        for name in ("lookup", "communication")
    }
    total = np.add(times["lookup"], times["communication"], dtype=np.float64)
    order = np.argsort(-total, kind="stable")
    figure, left_out = stacked(
        [str(rank) for rank in order],
        {name: values[order] * _NS_PER_MS for name, values in times.items()},
        title="rank, slowest first",
    )
    per_unit, unit = time_unit(total.max() * _NS_PER_MS)
    mean_ns = total.mean() * _NS_PER_MS
    figure.update_yaxes(title=f"estimated time per step [{unit}]")
    figure.add_hline(
        y=mean_ns / per_unit,
        line={"color": COLOURS["neutral"], "dash": "dash", "width": 1.5},
        annotation={"text": f"mean {duration(mean_ns)}", "bgcolor": VEIL},
        annotation_position="top right",
    )
    slowest = shards[shards["rank"] == order[0]].sort_values("perf_ms", ascending=False)
    fullest = shards.groupby("rank")["memory_bytes"].sum().max()
    memory = f"{plural(len(shards), 'shard')}, at most {size(fullest)} on a rank"
    note = " · ".join(filter(None, [_measures(imbalance), _tables(slowest), memory, left_out]))
    return frame.finish(figure, claim=_table_sharding_claim(slowest, total), note=note)


def _table_sharding_claim(slowest: pd.DataFrame, total: NDArray[np.float64]) -> str:
    """Describe how far the slowest rank is from the mean, and what keeps it."""
    longest, mean = total.max(), total.mean()
    if not longest:
        return f"{plural(len(total), 'rank')} with shards that cost nothing"
    first = slowest.iloc[0]
    name, alone = label(first["table"], 24), duration(first["perf_ms"] * _NS_PER_MS)
    if longest <= _BALANCED * mean:
        return (
            f"{plural(len(total), 'rank')} in balance: the slowest, rank {first['rank']}, takes "
            f"{duration(longest * _NS_PER_MS)}, {digits(longest / mean)} × the mean"
        )
    most = f"Rank {first['rank']} takes {duration(longest * _NS_PER_MS)}"
    most += f", {digits(longest / mean)} × the mean of {plural(len(total), 'rank')}"
    if len(slowest) == 1:
        return f"{most}, for {name} alone"
    if first["perf_ms"] >= _MOSTLY * longest:
        return f"{most}, mostly for {name} ({alone})"
    return f"{most}; its largest table, {name}, takes {alone}"


def _tables(slowest: pd.DataFrame) -> str:
    largest = [
        f"{label(table, 24)} {duration(ms * _NS_PER_MS)}"
        for table, ms in zip(slowest["table"], slowest["perf_ms"], strict=True)
    ][:_NAMED_TABLES]
    more = len(slowest) - len(largest)
    listed = ", ".join(largest) + (f" and {more} more" if more else "")
    return f"largest on rank {slowest['rank'].iloc[0]}: {listed}"


def _measures(imbalance: pd.DataFrame | None) -> str:
    if imbalance is None:
        return ""
    LOAD_IMBALANCE.check(imbalance)
    rows = zip(imbalance["measure"], imbalance["value_ratio"], strict=True)
    return " · ".join(f"{label(measure, 30)} {value:.2g}" for measure, value in rows)
