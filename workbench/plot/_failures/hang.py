"""Figures of a hang: where every rank stands, who waits for whom, and who is suspect."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.style import COLOURS, Frame, fill, left_margin
from workbench.plot._style.text import is_doubtful, label, plural, safe, wrapped
from workbench.tables import FLIGHT_POSITIONS, FLIGHT_SUSPECTS, FLIGHT_WAITS

# What is pending on every rank of a hang, as a matrix.

_MOST_RANKS, _MOST_PURPOSES, _FEW = 40, 24, 7


def flight_positions(
    positions: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what is pending on every rank in groups of every purpose, suspects marked.

    Parameters
    ----------
    positions
        Table :data:`workbench.tables.FLIGHT_POSITIONS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A matrix of ranks and purposes of groups, the number of pending operations in each
        cell. Ranks with a mark are suspects; a cell with a cross is a group in which the
        rank has called less than its peers. The title states the verdict.
    """
    frame = Frame(source, synthetic)
    FLIGHT_POSITIONS.check(positions)
    if positions.empty:
        return frame.nothing(
            "The dumps name no process group and hold no operation.", claim="No operations to show"
        )
    table = positions.assign(purpose=positions["description"].fillna(positions["group"]))
    ranks, purposes, notes = _chosen(table)
    table = table[table["rank"].isin(ranks) & table["purpose"].isin(purposes)]
    counts, behind = (
        table.astype({name: "float64"})
        .pivot_table(
            index="rank",
            columns="purpose",
            values=name,
            aggfunc=lambda cells: cells.sum(min_count=1),
            dropna=False,
        )
        .reindex(index=ranks, columns=purposes)
        .to_numpy(dtype=np.float64)
        for name in ("pending_count", "behind_count")
    )
    suspects = positions.drop_duplicates("rank").set_index("rank")
    known = suspects.to_dict(orient="index")
    figure = go.Figure(_matrix(counts, behind, ranks, purposes))
    labels = [_rank_label(rank, known[rank]) for rank in ranks]
    are_few = len(purposes) <= _FEW
    figure.update_layout(
        height=max(20 * len(ranks), 120),
        margin={"l": left_margin(labels), "b": 130 if are_few else 190},
    )
    figure.update_xaxes(
        title="purpose of the process group; in the cells: operations pending [count]",
        tickvals=list(range(len(purposes))),
        ticktext=[_purpose(name, are_few=are_few) for name in purposes],
        tickangle=0 if are_few else -40,
        showgrid=False,
    )
    figure.update_yaxes(
        title=None,
        tickvals=list(range(len(ranks))),
        ticktext=labels,
        range=[len(ranks) - 0.5, -0.5],
        showgrid=False,
    )
    return frame.finish(figure, claim=_positions_claim(positions, suspects), note=" · ".join(notes))


def _positions_claim(positions: pd.DataFrame, suspects: pd.DataFrame) -> str:
    pending = int(positions["pending_count"].sum())
    held = int((positions.groupby("rank")["pending_count"].sum() > 0).sum())
    what = f"{plural(held, 'rank')} hold {plural(pending, 'pending operation')}"
    marked = suspects[suspects["confidence"] != "none"]
    if marked.empty:
        return f"{what}; no rank stands out" if pending else "No operation is pending"
    place = marked["confidence"].map({name: at for at, name in enumerate(CONFIDENCES)}).fillna(9)
    best = marked[place == place.min()]
    best = best[best["reason"] == best["reason"].iloc[0]]
    ranks = sorted(int(rank) for rank in best.index)
    return f"{named(ranks)} {phrase(str(best['reason'].iloc[0]), len(ranks))}; {what}"


def _chosen(table: pd.DataFrame) -> tuple[list[int], list[str], list[str]]:
    whole = table.groupby("rank").agg(
        pending=("pending_count", "sum"), confidence=("confidence", "first")
    )
    order = whole.assign(is_suspect=whole["confidence"] != "none")
    order = order.sort_values(["is_suspect", "pending"], ascending=False, kind="stable")
    ranks = sorted(int(rank) for rank in order.index[:_MOST_RANKS])
    used = table.groupby("purpose")[["pending_count", "behind_count"]].sum()
    busy = used[(used > 0).fillna(value=False).any(axis=1)]
    purposes = list((busy if len(busy) else used).sort_values(
        "pending_count", ascending=False, kind="stable").index[:_MOST_PURPOSES])  # fmt: skip
    notes = ["× has called less than its peers"]
    if len(whole) > len(ranks):
        notes.append(f"{len(ranks)} of {len(whole):,} ranks: suspects and those with most pending")
    if quiet := len(used) - len(purposes):
        notes.append(f"{plural(quiet, 'purpose')} with nothing pending, or little, dropped")
    return ranks, purposes, notes


def _matrix(
    counts: np.ndarray, behind: np.ndarray, ranks: Sequence[int], purposes: Sequence[str]
) -> go.Heatmap:
    text = [
        ["" if np.isnan(count) else f"{count:.0f}{' ×' if late > 0 else ''}"
         for count, late in zip(row, behinds, strict=True)]
        for row, behinds in zip(counts, behind, strict=True)
    ]  # fmt: skip
    return go.Heatmap(
        z=counts,
        x=list(range(len(purposes))),
        y=list(range(len(ranks))),
        zmin=0,
        colorscale=[[0, COLOURS["paper"]], [1, COLOURS["wait"]]],
        text=text,
        texttemplate="%{text}",
        xgap=1,
        ygap=1,
        colorbar={"title": "pending", "thickness": 12, "outlinewidth": 0, "ticks": ""},
        customdata=[[[rank, label(name, 60)] for name in purposes] for rank in ranks],
        hovertemplate="rank %{customdata[0]}, %{customdata[1]}: %{z:.0f} operations pending"
        "<extra></extra>",
    )


def _purpose(name: str, *, are_few: bool) -> str:
    """Write a purpose such as TENSOR_MODEL_PARALLEL_GROUP so that it fits under its column."""
    bare = name.removesuffix("_GROUP").replace("_", " ").lower()
    return wrapped(label(bare, 48), 16) if are_few else label(bare, 26)


def _rank_label(rank: int, known: Mapping[Hashable, Any]) -> str:
    if known["confidence"] != "none":
        return f"▶ {rank}, {label(known['reason'], 20)}"
    return f"rank {rank}" if known["has_dump"] else f"rank {rank}, no dump"


# Suspects of a hang, as bars with the evidence beside them.

_MOST, _FLIGHT_SUSPECTS_FEW, _LONGEST = 12, 12, 218
_NOTHING = {
    "nothing hangs": "Nothing hangs in these dumps",
    "all entered": "Everybody has arrived and nobody is through: the dumps cannot tell why",
    "deadlock": "All ranks wait for each other: the dumps cannot tell who began",
}


def flight_suspects(
    suspects: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the suspects of a hang: how many ranks wait for each, and why it is suspected.

    Parameters
    ----------
    suspects
        Table :data:`workbench.tables.FLIGHT_SUSPECTS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per suspect, filled by confidence; the evidence stands in it. The title states
        the verdict. Without a suspect a sentence says why there is none.
    """
    frame = Frame(source, synthetic)
    FLIGHT_SUSPECTS.check(suspects)
    known = suspects[suspects["rank"].notna()].reset_index(drop=True)
    if known.empty:
        return _no_suspects(suspects, frame=frame)
    shown = known.head(_MOST)
    figure = go.Figure()
    for confidence in CONFIDENCES:
        mine = shown[shown["confidence"] == confidence]
        if len(mine):
            figure.add_bar(
                x=mine["waiting_count"].to_numpy(),
                y=mine.index.to_numpy(),
                orientation="h",
                name=f"{confidence} confidence",
                marker=fill(f"{confidence} confidence"),
                hovertext=[wrapped(safe(text[:600]), 80) for text in mine["evidence"]],
                hovertemplate="%{hovertext}<br>%{x:,} ranks wait for it<extra></extra>",
            )
    for place, row in shown.iterrows():
        figure.add_annotation(
            x=0, y=place, xanchor="left", yshift=-12, yanchor="top", showarrow=False, align="left",
            text=_words(row), font={"size": 11},
        )  # fmt: skip
    labels = [
        f"rank {int(rank)} ({label(confidence, 10)})"
        for rank, confidence in zip(shown["rank"], shown["confidence"], strict=True)
    ]
    longest = max(1, int(shown["waiting_count"].max()))
    figure.update_xaxes(
        title="ranks that wait for it [count]",
        range=[0, 1.05 * longest],
        dtick=1 if longest <= _FLIGHT_SUSPECTS_FEW else None,
    )
    figure.update_yaxes(
        tickvals=list(range(len(shown))), ticktext=labels, range=[len(shown) - 0.3, -0.5],
        showgrid=False,
    )  # fmt: skip
    figure.update_layout(
        height=74 * len(shown) + 30, bargap=0.7, margin_l=max(90, left_margin(labels))
    )
    note = f"{plural(len(known) - len(shown), 'further suspect')} dropped"
    return frame.finish(figure, claim=_verdict(known), note=note if len(known) > len(shown) else "")


def _no_suspects(suspects: pd.DataFrame, *, frame: Frame) -> go.Figure:
    reason = str(suspects["reason"].iloc[0]) if len(suspects) else ""
    why = str(suspects["evidence"].iloc[0]) if len(suspects) else "The table has no rows."
    return frame.nothing(
        safe(why[:300]) if len(why.split()) > 1 else "The dumps tell of nobody.",
        claim=_NOTHING.get(reason, "The dumps name no suspect"),
    )


def _words(row: pd.Series) -> str:
    text = f"{row['reason']}: {row['evidence']}"
    return wrapped(safe(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"), 112)


def _verdict(known: pd.DataFrame) -> str:
    first = known.iloc[0]
    same = known[
        (known["reason"] == first["reason"]) & (known["confidence"] == first["confidence"])
    ]
    ranks = [int(rank) for rank in same["rank"]]
    claim = f"{named(ranks)} {phrase(str(first['reason']), len(ranks))}"
    if first["confidence"] == "low":
        return f"The dumps cannot tell what hangs: {claim[0].lower()}{claim[1:]}"
    others = len(known) - len(same)
    claim += f", and {plural(others, 'other')} may be" if others else ""
    waiting = int(same["waiting_count"].max())
    each = "each of them" if len(ranks) > 1 else "it"
    if waiting:
        claim += f": {'up to ' * (len(ranks) > 1)}{plural(waiting, 'rank')} wait for {each}"
    return claim if first["confidence"] == "high" else f"Probably {claim[0].lower()}{claim[1:]}"


# Who waits for whom in a hang, by the reason.

_FLIGHT_WAITS_MOST, _FLIGHT_WAITS_FEW = 20, 12
_WHYS = (
    "not called", "nothing pending", "not posted", "earlier in the group", "not started",
    "busy elsewhere", "no dump",
)  # fmt: skip
_OTHER = "another reason"


def flight_waits(waits: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show whom the ranks of a hang wait for, and what that rank has not done.

    Parameters
    ----------
    waits
        Table :data:`workbench.tables.FLIGHT_WAITS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar per rank that is waited for, stacked by reason. Ranks that wait for nobody
        themselves come first and are marked. The title names them.
    """
    frame = Frame(source, synthetic)
    FLIGHT_WAITS.check(waits)
    if waits.empty:
        return frame.nothing(
            "No rank with a dump holds an operation in which somebody has not arrived.",
            claim="No rank is seen to wait for another one",
        )
    whys = waits["why"].where(waits["why"].isin(_WHYS), _OTHER)
    # A pair counts once, by the surest thing that is known of it.
    order = {why: place for place, why in enumerate((*_WHYS, _OTHER))}
    pairs = waits.assign(why=whys, place=whys.map(order)).sort_values("place", kind="stable")
    pairs = pairs.drop_duplicates(["rank", "waits_for"])
    counts = pairs.pivot_table(
        index="waits_for", columns="why", values="rank", aggfunc="count", fill_value=0
    )
    ends = set(counts.index) - set(waits["rank"])
    totals = counts.sum(axis=1)
    ranked = sorted(counts.index, key=lambda rank: (rank not in ends, -totals[rank], rank))
    shown = ranked[:_FLIGHT_WAITS_MOST]
    figure = go.Figure()
    for why in (*_WHYS, _OTHER):
        if why in counts:
            figure.add_bar(
                x=counts.loc[shown, why].to_numpy(),
                y=list(range(len(shown))),
                orientation="h",
                name=why,
                marker=fill(why),
                hovertemplate=f"%{{x:,}} ranks wait: {why}<extra></extra>",
            )
    labels = [f"▶ rank {rank}, waits for nobody" if rank in ends else f"rank {rank}"
              for rank in shown]  # fmt: skip
    figure.update_layout(
        barmode="stack", height=max(26 * len(shown), 150), margin_l=left_margin(labels)
    )
    few = totals.max() <= _FLIGHT_WAITS_FEW
    figure.update_xaxes(title="ranks that wait for it directly [count]", dtick=1 if few else None)
    figure.update_yaxes(
        tickvals=list(range(len(shown))), ticktext=labels, range=[len(shown) - 0.5, -0.5],
        showgrid=False,
    )  # fmt: skip
    left_out = len(ranked) - len(shown)
    return frame.finish(
        figure,
        claim=_waits_claim(sorted(ends), waits),
        note=f"{plural(left_out, 'further rank')} that is waited for dropped" if left_out else "",
        is_doubtful=is_doubtful(waits),
    )


def _waits_claim(ends: list[int], waits: pd.DataFrame) -> str:
    waiting = plural(waits["rank"].nunique(), "rank")
    if not ends:
        return f"{waiting} wait for each other: nobody is waited for and free"
    verb = "waits" if len(ends) == 1 else "wait"
    return f"{named(ends)} {verb} for nobody; {waiting} wait, for them or for others"


# How figures of a hang speak of ranks and reasons.

CONFIDENCES = ("high", "medium", "low")
# What is said of one rank, and of several.
_SAID = {
    "never arrived": ("never arrived", "never arrived"),
    "mismatch": ("called something else than its peers", "called something else than their peers"),
    "stalled": (
        "has not completed what its peers have", "have not completed what their peers have",
    ),
    "not started": (
        "has not started what its peers have", "have not started what their peers have",
    ),
    "stopped early": ("stopped before its peers did", "stopped before their peers did"),
    "no dump": ("left no dump, and is all that is missing",) * 2,
    "deadlock": ("waits in a circle", "wait for each other in a circle"),
    "all entered": ("is in an operation that nobody completes",
                    "are in operations that nobody completes"),
}  # fmt: skip


def phrase(reason: str, count: int) -> str:
    return _SAID.get(reason, (f"stands out: {label(reason, 24)}",) * 2)[count > 1]


def named(ranks: Sequence[int]) -> str:
    most = 4
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) > most:
        return f"Ranks {', '.join(map(str, ranks[:most]))} and {len(ranks) - most:,} more"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
