"""GPU time by module of the user's model, and by phase of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.bars import stacked
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import Frame, colour, ink
from workbench.plot._style.text import duration, label, percent, safe, short
from workbench.tables import MODEL_TREE, PHASES

Phase: TypeAlias = Literal["all", "forward", "backward", "recompute", "other"]

# In the order of training, which is that of the bars from the bottom up.
_PHASES = ("forward", "backward", "recompute", "optimizer", "communication", "other")
# More cannot be told apart on a screen, and every node counts for a browser.
_MOST_NODES = 5_000
_ROOT = "GPU time"
# From there on the largest part of the figure is what nobody can place.
_DOUBTFUL_SHARE = 0.5


def model_tree(
    tree: pd.DataFrame,
    *,
    root: str = "",
    depth: int = 5,
    phase: Phase = "all",
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Draw the modules and ranges inside each other, as wide as their GPU time.

    An icicle, coloured by the phase that takes most of a node. Beyond 5,000 nodes the smallest
    are added up as *other* in the node around them. The title names the node that takes most
    by itself; the space without a node below is such time.

    Parameters
    ----------
    tree
        Table :data:`workbench.tables.MODEL_TREE`; ranks are added up.
    root
        Path to begin at, without the rank, e.g. ``"Model > Layer_0"``; by default everything.
    depth
        Levels to draw at once; a click on a node draws the levels below it.
    phase
        Phase whose GPU time is drawn.

    Raises
    ------
    ValueError
        If ``phase`` is none of the five, or no node has the path ``root``.
    """
    frame = Frame(source, synthetic)
    MODEL_TREE.check(tree)
    if phase not in get_args(Phase):
        msg = f"phase must be one of {get_args(Phase)}, not {phase!r}"
        raise ValueError(msg)
    nodes = _added_up(tree, root)
    value = "gpu_ns" if phase == "all" else f"{phase}_ns"
    named = "GPU time" if phase == "all" else f"GPU time of phase {phase}"
    if nodes.empty or not nodes[value].iloc[0]:
        return frame.nothing(f"No {named} was recorded.", claim="No modules to show")
    total = int(nodes[value].iloc[0])
    drawn = _folded(nodes[nodes[value] > 0].reset_index(drop=True), value)
    number = {path: str(row) for row, path in enumerate(drawn["path"])}
    figure = Draft(
        go.Icicle(
            # Numbers, because names may hold what a browser takes for markup.
            ids=drawn["path"].map(number),
            parents=drawn["parent_path"].map(number).fillna(""),
            labels=[label(name, 40) for name in drawn["name"]],
            values=drawn[value],
            branchvalues="total",
            maxdepth=depth,
            sort=False,
            marker={"colors": [colour(meaning) for meaning in drawn["meaning"]]},
            textfont={"color": [ink(colour(meaning)) for meaning in drawn["meaning"]]},
            texttemplate="%{label}<br>%{text}",
            text=[f"{duration(ns)}, {safe(percent(ns / total))}" for ns in drawn[value]],
            hovertext=[_hover(row, value) for row in drawn.to_dict("records")],
            hovertemplate="%{hovertext}<extra></extra>",
            tiling={"orientation": "v"},
            root={"color": colour("all others")},
        )
    )
    figure.update_layout(height=60 * min(depth, int(drawn["level"].max()) + 1) + 40, margin_b=60)
    is_stand_in = nodes["kind"].isin(["outside", "backward"]).to_numpy()
    lost = int(nodes.loc[is_stand_in, value].sum())
    own = np.where(is_stand_in, 0, _own(nodes, value))
    claim = f"No module or range launched any {named}"
    if own.max():
        name = label(nodes["name"].iloc[int(own.argmax())], 48)
        claim = f"{name} takes {percent(own.max() / total)} of the {named} by itself"
    text = f"{percent(lost / total)} has no recorded module or range" if lost else ""
    return frame.finish(figure, claim=claim, note=text, is_doubtful=lost / total >= _DOUBTFUL_SHARE)


def _added_up(tree: pd.DataFrame, root: str) -> pd.DataFrame:
    """Add up the ranks, and keep the nodes below a path; parents stay before children."""
    columns = ["gpu_ns", "forward_ns", "backward_ns", "recompute_ns", "other_ns"]
    path = tree["path"].str.replace(r"^rank \d+ > ", "", regex=True)
    path = path.where(tree["parent"].notna(), "")
    above = tree[["rank", "node"]].assign(parent_path=path)
    nodes = tree.assign(path=path, level=tree["depth"]).merge(
        above, left_on=["rank", "parent"], right_on=["rank", "node"], how="left"
    )
    kept = ["name", "kind", "level", "parent_path"]
    sums = dict.fromkeys(columns, "sum") | dict.fromkeys(kept, "first")
    nodes = nodes.groupby("path", sort=False).agg(sums).reset_index()
    # A rank may have entered a module first that another met below one that came later.
    nodes = nodes.sort_values("level", kind="stable", ignore_index=True)
    if root:
        if not (nodes["path"] == root).any():
            msg = f"no node has the path {root!r}; paths are those of the table, without the rank"
            raise ValueError(msg)
        below = (nodes["path"] == root) | nodes["path"].str.startswith(f"{root} > ")
        nodes = nodes[below].reset_index(drop=True)
    # plotly takes an empty id for none.
    top = nodes["path"].eq(root)
    nodes["path"] = nodes["path"].replace("", _ROOT)
    nodes["parent_path"] = nodes["parent_path"].fillna("").replace("", _ROOT).mask(top, "")
    nodes["name"] = nodes["name"].mask(nodes["path"] == _ROOT, _ROOT)
    nodes["level"] -= nodes["level"].min()
    phases = nodes[columns[1:]].to_numpy()
    names = np.array([name.removesuffix("_ns") for name in columns[1:]], dtype=object)
    nodes["meaning"] = np.where(
        nodes["kind"].isin(["outside", "root"]), "all others", names[phases.argmax(axis=1)]
    )
    return nodes


def _folded(nodes: pd.DataFrame, value: str) -> pd.DataFrame:
    if len(nodes) <= _MOST_NODES:
        return nodes
    # Parents take at least as long as their children and come first, so they are kept too.
    order = nodes[value].sort_values(ascending=False, kind="stable").index
    kept = nodes.loc[np.sort(order[: _MOST_NODES // 2])]
    rest = nodes.drop(kept.index)
    rest = rest[rest["parent_path"].isin(kept["path"])]
    other = rest.groupby("parent_path", sort=False)[value].agg(["sum", "size"]).reset_index()
    folded = pd.DataFrame(
        {
            "path": other["parent_path"] + " > other",
            "parent_path": other["parent_path"],
            "name": [f"other ({size:,})" for size in other["size"]],
            "kind": "other",
            "level": 0,
            "meaning": "all others",
            value: other["sum"],
        }
    )
    return pd.concat([kept, folded], ignore_index=True).fillna(0)


def _own(nodes: pd.DataFrame, value: str) -> NDArray[np.int64]:
    below = nodes.groupby("parent_path")[value].sum()
    inside = nodes["path"].map(below).fillna(0).astype("int64")
    return (nodes[value] - inside).to_numpy(dtype="int64")


def _hover(row: Mapping[Any, Any], value: str) -> str:
    shown = _PHASES if value == "gpu_ns" else ()
    of_phases = [(name, row.get(f"{name}_ns")) for name in shown]
    lines = [f"{name} {duration(ns)}" for name, ns in of_phases if ns]
    return "<br>".join(
        [f"{row['kind']}: {safe(short(row['path'], 120))}", duration(row[value]), *lines]
    )


def phases(phases: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Stack the GPU time of the phases of training, by rank, step or micro-batch.

    One stack per rank (and step, and micro-batch). The title states the largest phase and the
    share of recomputation.

    Parameters
    ----------
    phases
        Table :data:`workbench.tables.PHASES`.
    """
    frame = Frame(source, synthetic)
    PHASES.check(phases)
    total = phases.groupby("phase", observed=True)["gpu_ns"].sum()
    if not total.sum():
        return frame.nothing("No GPU work was recorded.", claim="No phases to show")
    keys = [name for name in ("rank", "step", "micro_batch") if phases[name].nunique() or
            name == "rank"]  # fmt: skip
    wide = phases.pivot_table(
        index=keys, columns="phase", values="gpu_ns", aggfunc="sum", observed=True, dropna=False
    )
    wide = wide.dropna(how="all").fillna(0)
    parts = {name: wide[name].to_numpy() for name in _PHASES if name in wide}
    labels = [_place(keys, key if isinstance(key, tuple) else (key,)) for key in wide.index]
    title = ", ".join(name.replace("_", "-") for name in reversed(keys))
    figure, note = stacked(labels, parts, title=title)
    figure.update_yaxes(title=figure.layout.yaxis.title.text.replace("time", "summed GPU time"))
    share = total / total.sum()
    largest = str(share.idxmax())
    claim = f"{largest.capitalize()} takes {percent(share.max())} of the GPU time"
    if largest != "recompute" and (again := float(share.get("recompute", 0.0))):
        claim += f"; {percent(again)} recomputes activations"
    return frame.finish(figure, claim=claim, note=note)


def _place(keys: list[str], key: tuple[Any, ...]) -> str:
    words = ["none" if pd.isna(value) else str(int(value)) for value in key]
    return "<br>".join(reversed([f"rank {words[0]}", *words[1:]])) if len(keys) > 1 else words[0]
