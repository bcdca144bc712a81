"""Figures of a hang: where every rank stands, who waits for whom, and who is suspect."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._failures.marks import name_rows
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import COLOURS, Frame, fill, left_margin
from workbench.plot._style.text import is_doubtful, label, plural, safe, short, wrapped
from workbench.tables import FLIGHT_POSITIONS, FLIGHT_SUSPECTS, FLIGHT_WAITS

_MOST_RANKS, _MOST_PURPOSES, _FEW = 40, 24, 7


def flight_positions(
    positions: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show what is pending on every rank in groups of every purpose, suspects marked.

    A matrix of ranks and purposes of groups, the number of pending operations in each
    cell. Ranks with a mark are suspects; a cell with a cross is a group in which the
    rank has called less than its peers. The title states the verdict.

    Parameters
    ----------
    positions
        Table :data:`workbench.tables.FLIGHT_POSITIONS`.
    """
    frame = Frame(source, synthetic)
    FLIGHT_POSITIONS.check(positions)
    if positions.empty:
        why = "The dumps name no process group and hold no operation."
        return frame.nothing(why, claim="No operations to show")
    table = positions.assign(purpose=positions["description"].fillna(positions["group"]))
    ranks, purposes, notes = _chosen(table)
    table = table[table["rank"].isin(ranks) & table["purpose"].isin(purposes)]
    columns = ["pending_count", "behind_count"]
    # A sum of nothing but missing values stays missing: the rank is in no such group.
    cells = table.astype(dict.fromkeys(columns, "float64")).pivot_table(
        columns, "rank", "purpose", aggfunc=lambda values: values.sum(min_count=1), dropna=False
    )
    counts, behind = (
        pd.DataFrame(cells[name]).reindex(index=ranks, columns=purposes).to_numpy("float64")
        for name in columns
    )
    suspects = positions.drop_duplicates("rank").set_index("rank")
    figure = Draft(_matrix(counts, behind, ranks, purposes))
    labels = [_rank_label(rank, row) for rank, row in suspects.loc[ranks].iterrows()]
    name_rows(figure, labels, max(20 * len(ranks), 120), showgrid=False, title=None)
    are_few = len(purposes) <= _FEW
    figure.update_layout(margin_b=130 if are_few else 190)
    figure.update_xaxes(
        title="purpose of the process group; in the cells: operations pending [count]",
        tickvals=list(range(len(purposes))),
        ticktext=[_purpose(name, are_few=are_few) for name in purposes],
        tickangle=0 if are_few else -40,
        showgrid=False,
    )
    return frame.finish(figure, claim=_positions_claim(positions, suspects), note=" · ".join(notes))


def _positions_claim(positions: pd.DataFrame, suspects: pd.DataFrame) -> str:
    pending = int(positions["pending_count"].sum())
    held = int((positions.groupby("rank")["pending_count"].sum() > 0).sum())
    total = f"{plural(held, 'rank')} hold {plural(pending, 'pending operation')}"
    marked = suspects[suspects["confidence"] != "none"]
    if marked.empty:
        return f"{total}; no rank stands out" if pending else "No operation is pending"
    order = marked["confidence"].map({name: at for at, name in enumerate(CONFIDENCES)}).fillna(9)
    best = marked[order == order.min()]
    best = best[best["reason"] == best["reason"].iloc[0]]
    ranks = sorted(int(rank) for rank in best.index)
    return f"{named(ranks)} {phrase(str(best['reason'].iloc[0]), len(ranks))}; {total}"


def _chosen(table: pd.DataFrame) -> tuple[list[int], list[str], list[str]]:
    by_rank = table.assign(is_suspect=table["confidence"] != "none").groupby("rank")
    order = by_rank.agg({"is_suspect": "first", "pending_count": "sum"})
    order = order.sort_values(["is_suspect", "pending_count"], ascending=False, kind="stable")
    # Suspects first, then those with most pending; shown in order of rank.
    ranks = sorted(int(rank) for rank in order.index[:_MOST_RANKS])
    used = table.groupby("purpose")[["pending_count", "behind_count"]].sum()
    busy = used[(used > 0).fillna(value=False).any(axis=1)]
    purposes = list((busy if len(busy) else used).sort_values(
        "pending_count", ascending=False, kind="stable").index[:_MOST_PURPOSES])  # fmt: skip
    notes = ["× has called less than its peers"]
    if len(order) > len(ranks):
        notes.append(f"{len(ranks)} of {len(order):,} ranks: suspects and those with most pending")
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


def _rank_label(rank: Hashable, row: pd.Series) -> str:
    if row["confidence"] != "none":
        return f"▶ {rank}, {short(row['reason'], 20)}"
    return f"rank {rank}" if row["has_dump"] else f"rank {rank}, no dump"


_MOST, _FLIGHT_SUSPECTS_FEW, _LONGEST = 12, 12, 218
_NOTHING = {
    "nothing hangs": "Nothing hangs in these dumps",
    "all entered": "All ranks have arrived and none has completed: the dumps cannot show why",
    "deadlock": "All ranks wait for each other: the dumps cannot show which was first",
}


def flight_suspects(
    suspects: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the suspects of a hang: how many ranks wait for each, and why it is suspected.

    A bar per suspect, filled by confidence; the evidence stands in it. The title states
    the verdict. Without a suspect a sentence says why there is none.

    Parameters
    ----------
    suspects
        Table :data:`workbench.tables.FLIGHT_SUSPECTS`.
    """
    frame = Frame(source, synthetic)
    FLIGHT_SUSPECTS.check(suspects)
    ranked = suspects[suspects["rank"].notna()].reset_index(drop=True)
    if ranked.empty:
        return _no_suspects(suspects, frame=frame)
    shown = ranked.head(_MOST)
    figure = Draft()
    for confidence in CONFIDENCES:
        rows = shown[shown["confidence"] == confidence]
        if len(rows):
            figure.add_bar(
                x=rows["waiting_count"].to_numpy(),
                y=rows.index.to_numpy(),
                orientation="h",
                name=f"{confidence} confidence",
                marker=fill(f"{confidence} confidence"),
                hovertext=[wrapped(safe(text[:600]), 80) for text in rows["evidence"]],
                hovertemplate="%{hovertext}<br>%{x:,} ranks wait for it<extra></extra>",
            )
    for position, row in shown.iterrows():
        figure.add_annotation(
            x=0, y=position, xanchor="left", yshift=-12, yanchor="top", showarrow=False,
            text=_words(row), font={"size": 11}, align="left",
        )  # fmt: skip
    labels = [f"rank {row.rank} ({short(row.confidence, 10)})" for row in shown.itertuples()]
    longest = max(1, int(shown["waiting_count"].max()))
    figure.update_xaxes(
        title="ranks that wait for it [count]",
        range=[0, 1.05 * longest],
        dtick=1 if longest <= _FLIGHT_SUSPECTS_FEW else None,
    )
    # Room below the last bar for its evidence.
    last = len(shown) - 0.3
    name_rows(figure, labels, 74 * len(shown) + 30, showgrid=False, range=[last, -0.5])
    figure.update_layout(bargap=0.7, margin_l=max(90, left_margin(labels)))
    note = f"{plural(len(ranked) - len(shown), 'further suspect')} dropped"
    return frame.finish(
        figure, claim=_verdict(ranked), note=note if len(ranked) > len(shown) else ""
    )


def _no_suspects(suspects: pd.DataFrame, *, frame: Frame) -> go.Figure:
    reason = str(suspects["reason"].iloc[0]) if len(suspects) else ""
    why = str(suspects["evidence"].iloc[0]) if len(suspects) else "The table has no rows."
    return frame.nothing(
        safe(why[:300]) if len(why.split()) > 1 else "The dumps contain no rank.",
        claim=_NOTHING.get(reason, "The dumps name no suspect"),
    )


def _words(row: pd.Series) -> str:
    text = f"{row['reason']}: {row['evidence']}"
    return wrapped(safe(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"), 112)


def _verdict(ranked: pd.DataFrame) -> str:
    first = ranked.iloc[0]
    same = ranked[(ranked[["reason", "confidence"]] == first[["reason", "confidence"]]).all(axis=1)]
    ranks = [int(rank) for rank in same["rank"]]
    claim = f"{named(ranks)} {phrase(str(first['reason']), len(ranks))}"
    if first["confidence"] == "low":
        return f"The dumps cannot show what hangs: {claim[0].lower()}{claim[1:]}"
    further = len(ranked) - len(same)
    claim += f", and {plural(further, 'other')} may be" if further else ""
    waiting = int(same["waiting_count"].max())
    if waiting:
        up_to, whom = ("up to ", "each of them") if len(ranks) > 1 else ("", "it")
        claim += f": {up_to}{plural(waiting, 'rank')} wait for {whom}"
    return claim if first["confidence"] == "high" else f"Probably {claim[0].lower()}{claim[1:]}"


_FLIGHT_WAITS_MOST, _FLIGHT_WAITS_FEW = 20, 12
_WHYS = (
    "not called", "nothing pending", "not posted", "earlier in the group", "not started",
    "busy elsewhere", "no dump",
)  # fmt: skip
_OTHER = "another reason"


def flight_waits(waits: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show whom the ranks of a hang wait for, and what that rank has not done.

    A bar per rank that is waited for, stacked by reason. Ranks that wait for nobody
    themselves come first and are marked. The title names them.

    Parameters
    ----------
    waits
        Table :data:`workbench.tables.FLIGHT_WAITS`.
    """
    frame = Frame(source, synthetic)
    FLIGHT_WAITS.check(waits)
    if waits.empty:
        why = "No rank with a dump holds an operation in which somebody has not arrived."
        return frame.nothing(why, claim="No rank is seen to wait for another one", is_answer=True)
    whys = waits["why"].where(waits["why"].isin(_WHYS), _OTHER)
    # A pair counts once, by the surest thing that is known of it.
    order = {why: at for at, why in enumerate((*_WHYS, _OTHER))}
    pairs = waits.assign(why=whys, order=whys.map(order)).sort_values("order", kind="stable")
    pairs = pairs.drop_duplicates(["rank", "waits_for"])
    counts = pd.crosstab(pairs["waits_for"], pairs["why"])
    ends = set(counts.index) - set(waits["rank"])
    totals = counts.sum(axis=1)
    # Ranks that wait for nobody first: a root of the hang is among them.
    ranked = sorted(counts.index, key=lambda rank: (rank not in ends, -totals[rank], rank))
    shown = ranked[:_FLIGHT_WAITS_MOST]
    figure = Draft()
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
    name_rows(figure, labels, max(26 * len(shown), 150), showgrid=False)
    figure.update_layout(barmode="stack")
    is_small = totals.max() <= _FLIGHT_WAITS_FEW
    figure.update_xaxes(
        title="ranks that wait for it directly [count]", dtick=1 if is_small else None
    )
    hidden = len(ranked) - len(shown)
    note = f"{plural(hidden, 'further rank')} that is waited for dropped" if hidden else ""
    claim = _waits_claim(sorted(ends), waits)
    return frame.finish(figure, claim=claim, note=note, is_doubtful=is_doubtful(waits))


def _waits_claim(ends: list[int], waits: pd.DataFrame) -> str:
    waiting = plural(waits["rank"].nunique(), "rank")
    if not ends:
        return f"{waiting} wait for each other: no rank that others wait for is free"
    verb = "waits" if len(ends) == 1 else "wait"
    return f"{named(ends)} {verb} for nobody; {waiting} wait, for them or for others"


CONFIDENCES = ("high", "medium", "low")
# What is said of one rank, and of several.
_REASONS = {
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
    "all entered": ("is in an operation that no rank completes",
                    "are in operations that no rank completes"),
}  # fmt: skip


def phrase(reason: str, count: int) -> str:
    return _REASONS.get(reason, (f"stands out: {label(reason, 24)}",) * 2)[count > 1]


def named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) > 4:
        return f"Ranks {', '.join(map(str, ranks[:4]))} and {len(ranks) - 4:,} more"
    return f"Ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
