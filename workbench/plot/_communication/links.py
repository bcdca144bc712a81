"""Figures of the collectives of a trace: bandwidth against model and by place, slow links."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import log_ticks
from workbench.plot._style.draft import Draft
from workbench.plot._style.lanes import extremes
from workbench.plot._style.style import COLOURS, Frame, left_margin, row_axis
from workbench.plot._style.text import digits, duration, label, plural, share_text, size
from workbench.plot._style.text import is_doubtful as in_doubt
from workbench.tables import COLLECTIVE_BANDWIDTH, PLACE_BANDWIDTH, SLOW_LINKS

_MOST_POINTS, _MOST_LINKS, _MOST_NODES, _MOST_NUMBERED = 2_000, 30, 64, 16
# Bandwidths of equal links differ by as much from run to run.
_ALIKE_RATIO = 0.8
_KINDS = (
    ("suspect", "diamond", "limit"),
    ("slow through a suspect", "circle-open", "neutral"),
    ("cleared by a fast group", "circle", "all others"),
)


def collective_bandwidth(
    table: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show measured bus bandwidths by size, and those of the model.

    One dot per collective, members and size, one diamond for the model. The title states
    the largest share of the model that is reached, and the smallest of large collectives.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.COLLECTIVE_BANDWIDTH`.
    """
    frame = Frame(source, synthetic)
    COLLECTIVE_BANDWIDTH.check(table)
    drawn = table[(table["bus_gb_per_s"] > 0) & (table["modelled_gb_per_s"] > 0)]
    if drawn.empty:
        why = "The table has no collectives with a size; analyze.collective_bandwidth."
        return frame.nothing(why, claim="No bandwidth of collectives to show")
    drawn = drawn.iloc[extremes(drawn["model_ratio"].to_numpy(), _MOST_POINTS)]
    figure = Draft()
    hover = [
        f"{label(row['operation'], 20)}, {plural(row['rank_count'], 'rank')} on "
        f"{plural(row['node_count'], 'node')} ({label(row['members'], 24)})<br>"
        f"{size(row['size_bytes'])} in {duration(row['dur_ns'])}: {digits(row['bus_gb_per_s'])} "
        f"GB/s, model {digits(row['modelled_gb_per_s'])} ({label(row['algorithm'], 20)})"
        for row in drawn.to_dict("records")
    ]
    for column, name, look in (
        ("bus_gb_per_s", "measured", {"symbol": "circle", "color": COLOURS["communication"]}),
        ("modelled_gb_per_s", "model", {"symbol": "diamond-open", "color": COLOURS["reference"]}),
    ):
        figure.add_scatter(
            mode="markers", x=drawn["size_bytes"].to_numpy(), y=drawn[column].to_numpy(),
            name=name, marker={"size": 9, **look}, hovertext=hover,
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    ticks = log_ticks(drawn["size_bytes"].to_numpy(np.float64))
    ticks["ticktext"] = [size(tick) for tick in ticks["tickvals"]]
    figure.update_xaxes(title="size [bytes], logarithmic", type="log", **ticks)
    values = drawn[["bus_gb_per_s", "modelled_gb_per_s"]].to_numpy(np.float64).ravel()
    figure.update_yaxes(title="bus bandwidth [GB/s], logarithmic", type="log", **log_ticks(values))
    figure.update_layout(hovermode="closest")
    worst = drawn.sort_values("model_ratio").iloc[0]
    best = drawn.sort_values("model_ratio").iloc[-1]
    ends = [
        f"{_of(row['model_ratio'])} ({label(row['operation'], 16)} of {size(row['size_bytes'])})"
        for row in (worst, best)
    ]
    claim = f"Collectives reach {' to '.join(ends)} of the modelled bandwidth"
    return frame.finish(figure, claim=claim, is_doubtful=in_doubt(drawn))


def _of(ratio: float) -> str:
    return share_text(ratio) if ratio <= 1 else f"{digits(ratio)} times"


def slow_links(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show which links can still be fast, and which are suspected to be slow.

    One mark per link, suspects first: the best share of their peers' bandwidth that groups
    over it reach. The title names the suspects, or says that there is none.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.SLOW_LINKS`.
    """
    frame = Frame(source, synthetic)
    SLOW_LINKS.check(table)
    if table.empty:
        why = "No two groups of one size ran the same collective, so none can be compared."
        return frame.nothing(why, claim="Which link is slow cannot be told")
    is_suspect = (table["suspect"] != "").to_numpy()
    shown = table.iloc[np.argsort(~is_suspect, kind="stable")[:_MOST_LINKS]]
    names = [_name(row) for row in shown.to_dict("records")]
    figure = Draft()
    is_slow = shown["slow_count"] == shown["group_count"]
    kinds = np.where(shown["suspect"] != "", 0, np.where(is_slow, 1, 2))
    for kind, (name, symbol, meaning) in enumerate(_KINDS):
        at = np.flatnonzero(kinds == kind)
        if len(at):
            figure.add_scatter(
                mode="markers", x=100 * shown["best_ratio"].to_numpy()[at], y=at, name=name,
                marker={"size": 11, "symbol": symbol, "color": COLOURS[meaning]},
                hovertemplate="%{x:.0f} %<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title="best group over it [% of its peers]", rangemode="tozero")
    figure.update_yaxes(**row_axis(names))
    figure.update_layout(height=max(len(names), 3) * 24, margin_l=left_margin(names))
    suspects = table[is_suspect]
    notes = ["a fast group clears every link that it uses"]
    if unexplained := table.attrs.get("unexplained"):
        notes.append(f"{plural(len(unexplained), 'slow group')} that no link explains")
    if len(table) > _MOST_LINKS:
        notes.append(f"{plural(len(table) - _MOST_LINKS, 'link')} not shown")
    return frame.finish(
        figure, claim=_verdict(suspects), note=" · ".join(notes),
        is_doubtful=in_doubt(suspects) or (suspects.empty and in_doubt(table)),
    )  # fmt: skip


def _name(row: dict[Any, Any]) -> str:
    rail = row["rail"]
    node = label(row.get("node_name") or f"node {row['node']}", 24)
    return f"{node}, " + ("inside" if pd.isna(rail) else f"rail {rail}")


def _verdict(suspects: pd.DataFrame) -> str:
    if suspects.empty:
        return "No link is suspected: every one is used by a group as fast as its peers"
    first = suspects.iloc[0]
    most = share_text(float(suspects["best_ratio"].max()))
    claim = f"Slow: {_name(first.to_dict())}"
    # A link inside a node is nothing else.
    claim += "" if pd.isna(first["rail"]) else f" ({label(first['suspect'], 24)})"
    if len(suspects) > 1:
        claim += f" and {plural(len(suspects) - 1, 'other link')}"
    return f"{claim}; at most {most} of the bandwidth of peers"


def place_bandwidth(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show the bandwidth that collectives have reached between every two nodes.

    A heat map, node by node: the best bus bandwidth of a collective between them, relative to
    the best pair; in the diagonal, inside a node, to the best node. Of many nodes, those of
    the slowest pairs. The title names the node whose best pair is slowest.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.PLACE_BANDWIDTH`.
    """
    frame = Frame(source, synthetic)
    PLACE_BANDWIDTH.check(table)
    if table.empty:
        why = "No collective is large enough; least_bytes of analyze.place_bandwidth."
        return frame.nothing(why, claim="No bandwidth between nodes to show")
    turned = table.rename(columns={"node": "other_node", "other_node": "node"})
    both = pd.concat([table, turned[turned["node"] != turned["other_node"]]])
    best = both.groupby("node")["best_ratio"].min().sort_values(kind="stable")
    shown = sorted(best.index[:_MOST_NODES])
    figure = Draft(_heat(both, shown))
    figure.update_layout(height=max(len(shown) * 24, 180), margin_l=left_margin(shown))
    for axis in (figure.update_xaxes, figure.update_yaxes):
        axis(type="category", showgrid=False, title="node")
    figure.update_xaxes(title="node; in the cells bus bandwidth [GB/s]")
    figure.update_yaxes(autorange="reversed")
    notes = ["the fastest group of a pair counts; the diagonal is inside the node"]
    if len(best) > len(shown):
        notes.append(f"{plural(len(best) - len(shown), 'node')} with faster pairs not shown")
    return frame.finish(
        figure, claim=_slowest(both), note=" · ".join(notes), is_doubtful=in_doubt(table)
    )


def _heat(both: pd.DataFrame, nodes: list[str]) -> go.Heatmap:
    names = [label(name, 20) for name in nodes]
    rates, ratios = (
        both.pivot_table(index="node", columns="other_node", values=value, aggfunc="max")
        .reindex(index=nodes, columns=nodes)
        .to_numpy(np.float64)
        for value in ("best_gb_per_s", "best_ratio")
    )
    is_numbered = len(names) <= _MOST_NUMBERED
    text = [["" if np.isnan(rate) else digits(rate) for rate in row] for row in rates]
    return go.Heatmap(
        z=100 * ratios, x=names, y=names, zmin=0, zmax=100,
        colorscale=[[0, COLOURS["paper"]], [1, COLOURS["communication"]]], xgap=1, ygap=1,
        text=text, texttemplate="%{text}" if is_numbered else None,
        colorbar={
            "title": "of the best [%]", "thickness": 12, "outlinewidth": 0, "ticks": "",
        },
        hovertemplate="%{y}, %{x}: %{text} GB/s, %{z:.0f} % of the best<extra></extra>",
    )  # fmt: skip


def _slowest(both: pd.DataFrame) -> str:
    between = both[both["scope"] == "between nodes"]
    rows = between if len(between) else both
    where = "with" if len(between) else "inside"
    best = rows.groupby("node")["best_ratio"].max().sort_values(kind="stable")
    least = float(rows["best_ratio"].min())
    if best.iloc[0] < _ALIKE_RATIO:
        rate = digits(rows.loc[rows["node"] == best.index[0], "best_gb_per_s"].max())
        reached = f"{rate} GB/s, {share_text(float(best.iloc[0]))} of the best"
        return f"Collectives {where} {label(best.index[0], 24)} reach at most {reached}"
    fewest = f"{share_text(least)} of the best pair" if len(between) else share_text(least)
    many = "pairs of nodes" if len(between) else "nodes"
    return f"No node is slow with all others: {many} reach at least {fewest}"
