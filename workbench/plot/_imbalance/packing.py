"""Packing: how uneven micro-batches are, which way of packing helps, what waits in queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, fill, left_margin, row_axis
from workbench.plot._style.text import digits, label, percent, plural, safe
from workbench.tables import MICRO_BATCHES, PACKING_BALANCE, PACKING_QUEUES

_MOST_BATCHES, _MOST_PLANS, _MOST_COLUMNS = 40, 24, 2_000
# Above this share of attention that was never packed, a plan is not a fair comparison.
_MOST_LEFT = 0.05
_ROW_PX = 30


def name_rows(figure: go.Figure, names: Sequence[str], px: int, **layout: Any) -> None:
    """Name the row of each bar, the first on top, with room for the names left of the axis."""
    least = layout.pop("least", 2)
    figure.update_layout(height=max(len(names), least) * px, margin_l=left_margin(names), **layout)
    figure.update_yaxes(**row_axis(names), showgrid=False)


def micro_batches(
    micro_batches: pd.DataFrame,
    *,
    first_batch: int | None = None,
    batch_count: int = 12,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show the work of every micro-batch of some global batches.

    One column per micro-batch, linear work below attention, in units of the mean of its
    batch. The title states the worst one shown.

    Parameters
    ----------
    micro_batches
        Table :data:`workbench.tables.MICRO_BATCHES`.
    first_batch
        Global batch to begin with; by default the middle of the table, where queues are full.
    batch_count
        Global batches to show, at most 40.
    """
    frame = Frame(source, synthetic)
    MICRO_BATCHES.check(micro_batches)
    if micro_batches.empty:
        why = "The table has no micro-batches; analyze.packing makes them from document lengths."
        return frame.nothing(why, claim="No micro-batches to show")
    batches = np.unique(micro_batches["batch"])
    count = max(min(batch_count, _MOST_BATCHES, len(batches)), 1)
    last = len(batches) - count
    wanted = last // 2 if first_batch is None else int(np.searchsorted(batches, first_batch))
    chosen = batches[min(wanted, last) :][:count]
    # A thousand columns cannot be told apart: show the micro-batches of fewer batches.
    chosen = chosen[: max(1, _MOST_COLUMNS // micro_batches["batch"].value_counts().max())]
    rows = micro_batches[micro_batches["batch"].isin(chosen)].reset_index(drop=True)
    work = rows["linear_cost"] + rows["attention_cost"]
    # A batch without documents has no mean to divide by.
    mean = work.groupby(rows["batch"]).transform("mean").replace(0, 1)
    total = len(rows)
    claim = (
        f"The heaviest micro-batch has {(work / mean).max():.2f} times the mean work of its batch"
    )
    if total > _MOST_COLUMNS:
        kept = np.sort(extremes(work.to_numpy(), _MOST_COLUMNS))
        rows, mean = rows.iloc[kept].reset_index(drop=True), mean.iloc[kept].reset_index(drop=True)
    columns = np.arange(len(rows)) + 0.8 * np.searchsorted(chosen, rows["batch"])
    hover = [
        f"batch {row['batch']}, micro-batch {row['micro_batch']}: "
        f"{plural(row['document_count'], 'document')}, {row['length_tokens']:,} tokens, the "
        f"longest {row['longest_tokens']:,}"
        for row in rows.to_dict("records")
    ]
    figure = Draft()
    for meaning in ("linear", "attention"):
        figure.add_bar(
            x=columns,
            y=rows[f"{meaning}_cost"] / mean,
            name=meaning if meaning == "attention" else "everything else",
            marker=fill(meaning, bars=len(rows)),
            hovertext=hover,
            hovertemplate="%{hovertext}<br>" + meaning + ": %{y:.2f} of the mean<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.08)
    figure.add_hline(y=1, line={"color": COLOURS["neutral"], "width": 1, "dash": "dash"})
    middles = pd.Series(columns).groupby(rows["batch"]).mean()
    figure.update_xaxes(title="global batch; one column per micro-batch", showgrid=False)
    figure.update_xaxes(tickvals=middles.tolist(), ticktext=[str(batch) for batch in middles.index])
    figure.update_yaxes(title="work [mean of the batch = 1]", rangemode="tozero")
    note = f"{len(rows):,} of {total:,} micro-batches are drawn" if len(rows) < total else ""
    return frame.finish(figure, claim=claim, note=note)


def packing_balance(
    balance: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Compare ways of packing by how uneven they leave the work.

    Per plan the mean over batches, the 95th percentile, and delay and memory in words.
    The title states the most even plan.

    Parameters
    ----------
    balance
        Table :data:`workbench.tables.PACKING_BALANCE`.
    """
    frame = Frame(source, synthetic)
    PACKING_BALANCE.check(balance)
    if balance.empty:
        why = "The table has no plans; analyze.packing_balance compares results of analyze.packing."
        return frame.nothing(why, claim="No packings to compare")
    rows = balance.head(_MOST_PLANS)
    lanes, records = np.arange(len(rows)), rows.to_dict("records")
    words, hover = [], []
    for row in records:
        left = percent(row["left_square_share"])
        overflows = "" if row["is_stable"] else "  overflows"
        dropped = f"  {left} of attention dropped" if row["left_square_share"] > _MOST_LEFT else ""
        words.append(f" {row['imbalance_ratio']:.2f}{overflows}{dropped}")
        hover.append(
            f"{label(row['plan'], 90)}<br>{_batches(row['delay_batches'])} late, memory "
            f"{row['memory_ratio']:.2f} of the context, {percent(row['left_share'])} never packed"
            + (f"<br>{safe(row['note'])}" if row["note"] else "")
        )
    figure = Draft()
    figure.add_bar(
        orientation="h",
        x=rows["imbalance_ratio"],
        y=lanes,
        name="mean over batches",
        marker=fill("attention", bars=len(rows)),
        text=words,
        textposition="outside",
        cliponaxis=False,
        hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>",
    )
    line = {"symbol": "line-ns-open", "size": 14, "line": {"width": 2}}
    figure.add_scatter(
        mode="markers",
        x=rows["imbalance_p95_ratio"],
        y=lanes,
        name="95 % of batches are below",
        marker={**line, "color": COLOURS["reference"]},
        hovertemplate="95 % of batches below %{x:.2f}<extra></extra>",
    )
    name_rows(figure, [label(name, 52) for name in rows["plan"]], _ROW_PX, bargap=0.3)
    most = float(max(rows["imbalance_p95_ratio"].max(), rows["imbalance_ratio"].max()))
    figure.update_xaxes(
        title="work of the heaviest micro-batch [mean of its batch = 1]",
        # Even is 1, so the bars begin there.
        range=[1, 1 + 1.18 * max(most - 1, 0.05)],
    )
    left_out = len(balance) - len(rows)
    notes = [f"{plural(left_out, 'plan')} not shown"] if left_out else []
    if unfair := int((~_is_fair(rows)).sum()):
        notes.append(f"{plural(unfair, 'plan')} with documents that are never packed not compared")
    return frame.finish(figure, claim=_most_even(rows), note=" · ".join(notes))


def _is_fair(rows: pd.DataFrame) -> pd.Series:
    """Return which plans pack nearly everything, and go on doing so."""
    return rows["is_stable"] & (rows["left_square_share"] <= _MOST_LEFT)


def _most_even(rows: pd.DataFrame) -> str:
    fair = rows[_is_fair(rows)]
    if fair.empty:
        return (
            "No plan packs all documents: delay grows without bound, or documents wait to the end"
        )
    best, first = fair.iloc[int(fair["imbalance_ratio"].to_numpy().argmin())], rows.iloc[0]
    if len(rows) == 1 or best.equals(first):
        name = label(best["plan"], 52)
        return f"{name[:1].upper()}{name[1:]}: {best['imbalance_ratio']:.2f} times the mean work"
    return (
        f"Packing with {label(best['plan'], 52)}: {best['imbalance_ratio']:.2f} times the mean "
        f"work instead of {first['imbalance_ratio']:.2f}, tokens "
        f"{_batches(best['delay_batches'])} late"
    )


def packing_queues(queues: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show whether more documents arrive in the delay queues than can leave them.

    Arrivals over possible departures per queue; from 1 a queue grows forever.

    Parameters
    ----------
    queues
        Table :data:`workbench.tables.PACKING_QUEUES`.
    """
    frame = Frame(source, synthetic)
    PACKING_QUEUES.check(queues)
    if queues.empty:
        why = "This way of packing lets no document wait."
        return frame.nothing(why, claim="No queues to show")
    rows = queues.head(_MOST_PLANS)
    ticks = [
        f"from {start:,}" + ("" if pd.isna(end) else f" to {end:,}")
        for start, end in zip(rows["from_tokens"], rows["to_tokens"], strict=True)
    ]
    figure = Draft()
    for meaning, stable in (("allowed", True), ("limit", False)):
        lanes = np.flatnonzero(rows["is_stable"].to_numpy() == stable)
        if not len(lanes):
            continue
        drawn = rows.iloc[lanes]
        figure.add_bar(
            orientation="h",
            x=drawn["arrival_ratio"],
            y=lanes,
            name="empties" if stable else "grows forever",
            marker=fill(meaning) | ({} if stable else {"pattern": {"shape": "x"}}),
            text=[
                f" {digits(row['arrival_ratio'])}, at most {row['most_waiting_count']:,} waiting"
                for row in drawn.to_dict("records")
            ],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x:.3f} of what can leave<extra></extra>",
        )
    figure.add_vline(x=1, line={"color": COLOURS["limit"], "width": 2, "dash": "dash"})
    name_rows(figure, ticks, 34, bargap=0.3)
    most = float(rows["arrival_ratio"].max())
    title = "documents that arrive per batch [those that can leave = 1]"
    figure.update_xaxes(title=title, range=[0, 1.5 * max(1.0, most)])
    claim = f"Every queue empties; the fullest gets {percent(most)} of what can leave"
    if full := int((~rows["is_stable"]).sum()):
        claim = f"{plural(full, 'queue')} of {len(rows)} receive more than can leave: "
        claim += "the delay grows without bound"
    return frame.finish(figure, claim=claim)


def _batches(value: float) -> str:
    return f"{value:.2f} batches"
