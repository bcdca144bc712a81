"""Embedding tables on ranks: what each rank has to do, and which table is the bound."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.bars import stacked
from workbench.plot._style.style import COLOURS, finish, nothing
from workbench.plot._style.text import digits, duration, label, plural, size, time_unit
from workbench.tables import LOAD_IMBALANCE, TABLE_SHARDING

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

    Parameters
    ----------
    shards
        Table :data:`workbench.tables.TABLE_SHARDING` of one job.
    imbalance
        Table :data:`workbench.tables.LOAD_IMBALANCE` of what the ranks cost; its values
        are then printed under the title.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Stacks of look-ups and communication, one per rank, and the mean. The title states
        how far the slowest rank is from it, and the table that it waits for.
    """
    TABLE_SHARDING.check(shards)
    if shards.empty:
        return nothing(
            "The plan has no shards, so no rank has anything to do.",
            claim="No shards to show",
            source=source,
            synthetic=synthetic,
        )
    ranks = max(int(shards["world_size"].max()), int(shards["rank"].max()) + 1)
    at = shards["rank"].to_numpy()
    per_rank = {
        name: np.bincount(at, weights=shards[f"{name}_ms"].to_numpy(), minlength=ranks)
        for name in ("lookup", "communication")
    }
    total = np.add(per_rank["lookup"], per_rank["communication"], dtype=np.float64)
    order = np.argsort(-total, kind="stable")
    figure, left_out = stacked(
        [str(rank) for rank in order],
        {name: values[order] * _NS_PER_MS for name, values in per_rank.items()},
        title="rank, slowest first",
    )
    slowest = shards[shards["rank"] == order[0]].sort_values("perf_ms", ascending=False)
    _add_mean(figure, total)
    notes = [_measures(imbalance), _tables(slowest), _memory(shards), left_out]
    return finish(
        figure,
        claim=_claim(slowest, total),
        source=source,
        synthetic=synthetic,
        note=" · ".join(filter(None, notes)),
    )


def _add_mean(figure: go.Figure, total: NDArray[np.float64]) -> None:
    """Draw the mean of all ranks as a line, and name the time axis."""
    per_unit, unit = time_unit(total.max() * _NS_PER_MS)
    figure.update_yaxes(title=f"estimated time per step [{unit}]")
    figure.add_hline(
        y=total.mean() * _NS_PER_MS / per_unit,
        line={"color": COLOURS["neutral"], "dash": "dash", "width": 1.5},
        annotation={
            "text": f"mean {duration(total.mean() * _NS_PER_MS)}",
            "bgcolor": "rgba(255,255,255,0.8)",
        },
        annotation_position="top right",
    )


def _claim(slowest: pd.DataFrame, total: NDArray[np.float64]) -> str:
    """Say how far the slowest rank is from the mean, and what keeps it."""
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
    """Name the largest shards of the slowest rank."""
    named = [
        f"{label(table, 24)} {duration(ms * _NS_PER_MS)}"
        for table, ms in zip(slowest["table"], slowest["perf_ms"], strict=True)
    ][:_NAMED_TABLES]
    more = len(slowest) - len(named)
    listed = ", ".join(named) + (f" and {more} more" if more else "")
    return f"largest on rank {slowest['rank'].iloc[0]}: {listed}"


def _memory(shards: pd.DataFrame) -> str:
    fullest = shards.groupby("rank")["memory_bytes"].sum().max()
    return f"{plural(len(shards), 'shard')}, at most {size(fullest)} on a rank"


def _measures(imbalance: pd.DataFrame | None) -> str:
    if imbalance is None:
        return ""
    LOAD_IMBALANCE.check(imbalance)
    rows = zip(imbalance["measure"], imbalance["value_ratio"], strict=True)
    return " · ".join(f"{label(measure, 30)} {value:.2g}" for measure, value in rows)
