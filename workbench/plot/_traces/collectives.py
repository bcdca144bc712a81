"""Collectives: how fast they move data, who waits in them, and for which straggler."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import log_ticks, stacked
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, distinct
from workbench.plot._style.text import digits, duration, label, percent, plural, size
from workbench.tables import BLAME, COLLECTIVE_WAITS, COLLECTIVES, LATE_ARRIVALS

# Shapes by operation; fills say how sure the match is.
_SHAPES = ("circle", "diamond", "square", "triangle-up", "star", "hexagon", "triangle-down")
_FILLS = {"high": "", "medium": "-open"}  # anything less is open with a dot
# Of a heat map: rows that are read, columns that are seen, numbers that fit a cell.
_MOST_ROWS, _MOST_COLUMNS, _MOST_NUMBERED, _MOST_TICKS = 12, 400, 16, 32
_OTHERS = "others"
_NEGLIGIBLE = 0.01  # share of all waiting


def collectives(
    collectives: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the bus bandwidth of every matched collective against its size.

    One trace per operation and confidence of the match, both axes logarithmic, one dot per
    collective. The title states the fastest.

    Parameters
    ----------
    collectives
        Table :data:`workbench.tables.COLLECTIVES`.
    """
    frame = Frame(source, synthetic)
    COLLECTIVES.check(collectives)
    matched = collectives[collectives["collective"].notna()].drop_duplicates("collective")
    drawn = matched[
        (matched["bus_gb_per_s"].fillna(0) > 0) & (matched["size_bytes"].fillna(0) > 0)
    ].astype({"bus_gb_per_s": "float64", "size_bytes": "float64"})
    if drawn.empty:
        return frame.nothing(
            _why_no_bandwidth(collectives, matched), claim="No bus bandwidth to show"
        )
    figure = Draft()
    operations = drawn["operation"].value_counts()
    positions = {name: at for at, name in enumerate(operations[operations > 0].index)}
    for (operation, confidence), dots in drawn.groupby(["operation", "confidence"], observed=True):
        name = f"{label(operation, 30)} ({label(confidence, 10)})"
        _add_bandwidth(figure, dots, name=name, position=positions[operation])
    sizes = log_ticks(drawn["size_bytes"].to_numpy())
    sizes["ticktext"] = [size(tick) for tick in sizes["tickvals"]]
    figure.update_xaxes(title="size [bytes], logarithmic", type="log", **sizes)
    speeds = log_ticks(drawn["bus_gb_per_s"].to_numpy())
    figure.update_yaxes(title="bus bandwidth [GB/s], logarithmic", type="log", **speeds)
    figure.update_layout(hovermode="closest")
    best = drawn.sort_values("bus_gb_per_s").iloc[-1]
    claim = (
        f"{plural(len(drawn), 'collective')}: the fastest, {label(best['operation'], 30)} of "
        f"{size(best['size_bytes'])}, reaches {digits(best['bus_gb_per_s'])} GB/s on the bus"
    )
    unsized = len(matched) - len(drawn)
    notes = ["in brackets: confidence that the ranks' kernels were matched rightly"]
    notes += [f"{unsized:,} without a size dropped"] if unsized else []
    return frame.finish(figure, claim=claim, note=" · ".join(notes))


def collective_waits(
    waits: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show, per rank, how long it waited in collectives and how long it moved data.

    Stacks of transfer and wait, one per rank. The title names the rank that the others waited
    for longest.

    Parameters
    ----------
    waits
        Table :data:`workbench.tables.COLLECTIVE_WAITS`.
    """
    frame = Frame(source, synthetic)
    COLLECTIVE_WAITS.check(waits)
    if waits.empty:
        return frame.nothing(_why_no_waits(waits), claim="No waiting in collectives to show")
    per_rank = waits.groupby("rank")[["transfer_ns", "wait_ns"]].sum()
    figure, note = stacked(
        [str(rank) for rank in per_rank.index],
        {"transfer": per_rank["transfer_ns"].to_numpy(), "wait": per_rank["wait_ns"].to_numpy()},
        title="rank",
    )
    figure.update_yaxes(title=figure.layout.yaxis.title.text.replace("time", "time in collectives"))
    notes = [note, *_doubts(waits), *unknown_kernels(waits, "left_out")]
    return frame.finish(figure, claim=_waits_claim(waits), note=" · ".join(filter(None, notes)))


def straggler_attribution(
    blame: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how long each rank waited for which straggler as a matrix, in milliseconds.

    Rows are the ranks that came last, worst first, columns those that waited. With many ranks
    the worst are shown and the others added up. The title names the worst.

    Parameters
    ----------
    blame
        Table :data:`workbench.tables.BLAME`.
    """
    frame = Frame(source, synthetic)
    BLAME.check(blame)
    total_ns = int(blame["wait_ns"].sum())
    dropped = [
        f"{plural(count, 'collective')} dropped: {reason}"
        for reason, count in blame.attrs.get("left_out", {}).items()
    ]
    dropped += unknown_kernels(blame, "kernels_left_out")
    if not total_ns:
        return frame.nothing(
            "; ".join(dropped) or "No rank waited for another one.",
            claim="No straggler can be named" if dropped else "No straggler",
        )
    waited = blame.groupby("blamed_rank")["wait_ns"].sum()
    claim = (
        f"Rank {waited.idxmax()} is the straggler: the others wait {duration(waited.max())}, "
        f"{percent(waited.max() / total_ns)} of all waiting"
    )
    return frame.finish(_heat(_matrix(blame)), claim=claim, note=" · ".join(dropped))


def _add_bandwidth(figure: go.Figure, drawn: pd.DataFrame, *, name: str, position: int) -> None:
    drawn = drawn.sort_values("size_bytes", kind="stable")
    drawn = drawn.iloc[extremes(drawn["bus_gb_per_s"].to_numpy())]
    fill = _FILLS.get(str(drawn["confidence"].iloc[0]), "-open-dot")
    columns = ["collective", "group", "size_bytes", "transfer_min_ns"]
    figure.add_scatter(
        x=drawn["size_bytes"].to_numpy(),
        y=drawn["bus_gb_per_s"].to_numpy(),
        name=name,
        mode="markers",
        marker={
            "color": distinct(position)["color"],
            "symbol": _SHAPES[position % len(_SHAPES)] + fill,
            "size": 9,
            "opacity": 0.75,
        },
        hovertext=[
            f"collective {number} in group {label(group, 80)}<br>{size(moved)} in {duration(ns)}"
            for number, group, moved, ns in drawn[columns].itertuples(index=False)
        ],
        hovertemplate="%{hovertext}<br>%{y:.3~g} GB/s",
    )


def _why_no_bandwidth(collectives: pd.DataFrame, matched: pd.DataFrame) -> str:
    if collectives.empty:
        return "The trace has no communication kernels."
    if matched.empty:
        first = collectives["note"].dropna()
        why = f": {label(first.iloc[0], 200)}" if len(first) else ""
        return f"None of the {plural(len(collectives), 'communication kernel')} was matched{why}."
    return (
        f"None of the {plural(len(matched), 'matched collective')} records its size, so no "
        "bandwidth follows from its duration. PyTorch 2.4 and later record sizes."
    )


def _why_no_waits(waits: pd.DataFrame) -> str:
    reasons = waits.attrs.get("left_out", {})
    if not reasons:
        return "No collective was found on more than one rank, so no waiting can be seen."
    why, _ = max(reasons.items(), key=lambda reason: reason[1])
    kernels = plural(sum(reasons.values()), "communication kernel")
    return f"Of {kernels} it is not known who waited, mostly because: {label(why, 200)}."


def _waits_claim(waits: pd.DataFrame) -> str:
    sure = waits[waits["is_sure"]]
    total_ns = int(waits["wait_ns"].sum())
    last = waits.drop_duplicates("collective")
    # A title that rests on less than half of the waiting would name the wrong rank too often.
    if 2 * sure["wait_ns"].sum() < total_ns:
        return (
            "The straggler is unknown: it is not certain which rank was last in "
            f"{(~last['is_sure']).sum():,} of {plural(len(last), 'collective')}"
        )
    if not total_ns:
        # Without a recorded size of the group nothing says that a rank is missing.
        ranks = "All" if waits["is_complete"].fillna(value=True).all() else "The loaded"
        return f"{ranks} ranks enter their collectives at the same time"
    blamed = waits.groupby("blamed_rank")["wait_ns"].sum()
    worst = blamed.idxmax()
    return (
        f"Rank {worst} enters last in {(last['blamed_rank'] == worst).sum():,} of "
        f"{plural(len(last), 'collective')}: the others wait {duration(blamed.max())} for it, "
        f"{percent(blamed.max() / total_ns)} of all waiting"
    )


def _doubts(waits: pd.DataFrame) -> list[str]:
    """List the doubts: the match of kernels, the clocks, ranks that are not loaded."""
    collectives = waits.drop_duplicates("collective")
    unsure = waits.loc[~waits["is_sure"], "wait_ns"].sum()
    # Collectives without waiting are never sure, and nobody needs to hear of them.
    matters = bool(unsure >= _NEGLIGIBLE * waits["wait_ns"].sum())
    incomplete = ~collectives["is_complete"].fillna(value=True).astype(bool)
    doubts = {
        "matched by their order alone, as the trace records no more": collectives["confidence"]
        == "low",
        "whose ranks end about as far apart as they start, or start closer than clocks agree: "
        "which rank was last is uncertain": (~collectives["is_sure"] & matters),
        "with ranks missing, so that waits are lower bounds": incomplete,
    }
    return [
        f"{'all' if rows.all() else f'{rows.sum():,} of'} {len(collectives):,} collectives {doubt}"
        for doubt, rows in doubts.items()
        if rows.any()
    ]


# Small ranks are added up: a cell of a thousand ranks would be narrower than a pixel.
def _matrix(blame: pd.DataFrame) -> pd.DataFrame:
    names = {}
    for column, most in (("blamed_rank", _MOST_ROWS), ("rank", _MOST_COLUMNS)):
        totals = blame.groupby(column)["wait_ns"].sum().sort_values(ascending=False, kind="stable")
        kept = totals.index if len(totals) <= most else totals.index[: most - 1]
        order = list(kept) if column == "blamed_rank" else sorted(kept)
        names[column] = [str(rank) for rank in order] + [_OTHERS] * (len(totals) > len(kept))
    labels = {
        column: blame[column].astype(str).where(blame[column].astype(str).isin(kept), _OTHERS)
        for column, kept in names.items()
    }
    table = blame.assign(**labels).pivot_table(
        index="blamed_rank", columns="rank", values="wait_ns", aggfunc="sum"
    )
    return table.reindex(index=names["blamed_rank"], columns=names["rank"])


def _heat(table: pd.DataFrame) -> go.Figure:
    milliseconds = table.to_numpy(dtype=np.float64) / 1e6
    text = [["" if np.isnan(ms) else digits(ms) for ms in row] for row in milliseconds]
    is_numbered = table.shape[1] <= _MOST_NUMBERED
    heat = go.Heatmap(
        z=milliseconds,
        x=list(range(table.shape[1])),
        y=list(range(table.shape[0])),
        zmin=0,
        colorscale=[[0, COLOURS["paper"]], [1, COLOURS["wait"]]],
        text=text if is_numbered else None,
        texttemplate="%{text}" if is_numbered else None,
        xgap=1,
        ygap=1,
        colorbar={"title": "wait [ms]", "thickness": 12, "outlinewidth": 0, "ticks": ""},
        customdata=[[[row, column] for column in table.columns] for row in table.index],
        hovertemplate="rank %{customdata[1]} waits %{z:,.4~g} ms for rank %{customdata[0]}"
        "<extra></extra>",
    )
    figure = Draft(heat)
    figure.update_layout(height=max(26 * table.shape[0], 150), margin_l=90)
    # Ranks are categories, yet their ticks must thin out: so positions with texts.
    rows, columns = (
        {
            "tickvals": list(range(0, len(names), -(-len(names) // _MOST_TICKS))),
            "ticktext": list(names[:: -(-len(names) // _MOST_TICKS)]),
            "showgrid": False,
        }
        for names in (table.index, table.columns)
    )
    figure.update_xaxes(title="rank that waits", **columns)
    bottom = table.shape[0] - 0.5
    figure.update_yaxes(title="rank that comes last", range=[bottom, -0.5], **rows)
    return figure


_MOST_RANKS = 16
_SAID = {
    "compute": "it computes for longer than they do",
    "communication": "another group keeps it for longer than them",
    "memory": "it copies for longer than they do",
    "other": "it runs other work for longer than they do",
    "idle": "its GPU has no work for longer than theirs",
    "began late": "its step began later than theirs",
    "no excess": "of no kind of time that it spends more of than they do",
}


def late_arrivals(
    late_arrivals: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show, per rank that came last, the waiting it caused by what had made it late.

    One column per rank, the one most waited for first, one trace per kind of excess. The title
    names that rank and what it did before it came; the line below tells what its host did
    meanwhile, and what was dropped.

    Parameters
    ----------
    late_arrivals
        Table :data:`workbench.tables.LATE_ARRIVALS`.
    """
    frame = Frame(source, synthetic)
    LATE_ARRIVALS.check(late_arrivals)
    sure = late_arrivals[late_arrivals["is_sure"]]
    dropped = len(late_arrivals) - len(sure)
    notes = [f"{plural(dropped, 'collective')} dropped: not sure who was last"] * (dropped > 0)
    notes += unknown_kernels(late_arrivals, "kernels_left_out")
    waited = sure[sure["wait_ns"] > 0]
    if waited.empty:
        return frame.nothing(
            "; ".join(notes) or "No collective was found in which a rank waited for another one.",
            claim="The late rank cannot be identified" if dropped else "No late arrivals to show",
        )
    totals = waited.groupby("blamed_rank")["wait_ns"].sum().sort_values(ascending=False)
    figure = _columns(waited, totals)
    worst = waited[waited["blamed_rank"] == totals.index[0]]
    kinds = worst.groupby(_kinds(worst))["wait_ns"].sum()
    main = str(kinds.idxmax())
    claim = (
        f"Rank {totals.index[0]} is the straggler: the others wait {duration(totals.iloc[0])}, "
        f"{percent(kinds.max() / totals.iloc[0])} of it because {_SAID[main]}"
    )
    unsure_ns = int(late_arrivals["wait_ns"].sum() - sure["wait_ns"].sum())
    # A title must not hide that more waiting is unexplained than explained.
    if unsure_ns > totals.iloc[0]:
        claim += f"; for whom they wait {duration(unsure_ns)} more is not sure"
    notes = [*_why(worst, main), *notes]
    return frame.finish(figure, claim=claim, note=" · ".join(notes))


def _columns(waited: pd.DataFrame, totals: pd.Series) -> go.Figure:
    kept = totals.index[totals >= _NEGLIGIBLE * totals.sum()][: _MOST_RANKS - 1]
    kept = totals.index if len(totals) <= len(kept) + 1 else kept
    names = [str(rank) for rank in kept] + [_OTHERS] * (len(totals) > len(kept))
    rank = waited["blamed_rank"].astype(str)
    table = waited.assign(column=rank.where(rank.isin(names), _OTHERS), kind=_kinds(waited))
    sums = table.pivot_table(
        index="column", columns="kind", values="wait_ns", aggfunc="sum", fill_value=0
    ).reindex(names)
    stacks = {kind: sums[kind].to_numpy(np.float64) for kind in _SAID if kind in sums}
    figure, _ = stacked(names, stacks, title="rank that came last")
    unit = figure.layout.yaxis.title.text.removeprefix("time ")
    figure.update_yaxes(title=f"waiting of the others {unit}")
    figure.update_layout(legend_title_text="more than the others: ")
    return figure


def _kinds(table: pd.DataFrame) -> pd.Series:
    return table["excess_kind"].astype(object).where(table["excess_kind"].notna(), "no excess")


def _why(worst: pd.DataFrame, main: str) -> list[str]:
    """Tell more of the main reason: how much slower the GPU computes, or what its host did."""
    notes = ["what it did before is not in the trace"] if main == "began late" else []
    rows = worst[_kinds(worst) == main]
    ratio = rows["compute_ratio"].dropna().astype("float64")
    if main == "compute" and len(ratio):
        notes.append(f"its compute takes {digits(ratio.median())} × as long as theirs (median)")
    if kernel := _longest(rows, "longest_kernel") if main in ("compute", "memory", "other") else "":
        notes.append(f"it runs longest {label(kernel, 40)}")
    if host := _longest(worst[_kinds(worst) == "idle"], "host_operator"):
        notes.append(f"where its GPU has no work, its host is longest in {label(host, 40)}")
    return notes


def _longest(table: pd.DataFrame, column: str) -> str:
    """Name what took most time in a column that has its time beside it; empty if nothing did."""
    spent = table.dropna(subset=[column]).groupby(column)[f"{column}_ns"].sum()
    return str(spent.idxmax()) if spent.sum() else ""


_MOST = 2


def unknown_kernels(table: pd.DataFrame, attribute: str) -> list[str]:
    """Count the communication kernels without a known straggler, with the most frequent reason."""
    reasons = sorted(table.attrs.get(attribute, {}).items(), key=lambda reason: -reason[1])
    notes = [
        f"{plural(count, 'communication kernel')} dropped: {label(why, 200)}"
        for why, count in reasons[:_MOST]
    ]
    if more := sum(count for _, count in reasons[_MOST:]):
        notes.append(f"{plural(more, 'communication kernel')} dropped for other reasons")
    return notes
