"""Figures of serving a recommendation model: the binding resource, and the nodes needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import dots, log_ticks
from workbench.plot._style.draft import Draft
from workbench.plot._style.style import COLOURS, Frame
from workbench.plot._style.text import amount, digits, duration, label, percent, plural, safe, size
from workbench.tables import INFERENCE_CAPACITY, INFERENCE_NODE

# Resources, and the meanings whose colours they have.
_RESOURCES = {
    "compute": "compute", "memory": "memory", "PCIe": "transfer", "launch": "launch overhead",
    "network": "network",
}  # fmt: skip
_MODEL = "model from data sheets, not measured"
_MOST_SETTINGS, _BINDING_PX, _OTHER_PX = 30, 15, 8


def inference_node(node: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how fast each resource alone would let a node be; the slowest one binds.

    One row per setting, one dot per resource, the binding one large. The title names what
    binds, and how much faster the node would be without.

    Parameters
    ----------
    node
        Table :data:`workbench.tables.INFERENCE_NODE` of one or several settings.
    source, synthetic
        Where the model comes from, printed under the figure; whether it was generated.
    """
    frame = Frame(source, synthetic)
    INFERENCE_NODE.check(node)
    if node.empty:
        why = "The table has no setting of a node; analyze.inference_node works some out."
        return frame.nothing(why, claim="No node to show")
    names = node["setting"].drop_duplicates().tolist()[:_MOST_SETTINGS]
    shown = node[node["setting"].isin(names) & node["resource"].isin(list(_RESOURCES))]
    rows = pd.Index(names).get_indexer(pd.Index(shown["setting"]))
    rate = shown["throughput_per_s"].to_numpy(dtype=np.float64)
    present = [name for name in _RESOURCES if (shown["resource"] == name).any()]
    measures = {name: np.where(shown["resource"] == name, rate, 0.0) for name in present}
    hover = [_hover(row) for row in shown.to_dict("records")]
    axis = "samples per second, if only this resource counted [1/s], logarithmic"
    figure = dots(names, measures, rows=rows, hover=hover, title=axis)
    for trace, resource in zip(figure.data, present, strict=True):
        large = shown["is_binding"].to_numpy()[(measures[resource] > 0)]
        tone = COLOURS[_RESOURCES[resource]]
        trace.marker.update(
            color=tone, line={"color": tone, "width": 2},
            size=np.where(large, _BINDING_PX, _OTHER_PX)[: len(trace.x)],
        )  # fmt: skip
    notes = [_MODEL, "large: the binding resource"]
    if len(unfit := shown.loc[~shown["fits"], "setting"].drop_duplicates()):
        notes.append(f"does not fit into memory: {plural(len(unfit), 'setting')}")
    notes += [label(why, 90) for why in shown["doubt"].drop_duplicates() if why][:2]
    if (dropped := node["setting"].nunique() - len(names)) > 0:
        notes.append(f"{plural(dropped, 'setting')} dropped")
    is_doubtful = bool((shown["doubt"] != "").any())
    claim = _binding(node, names)
    return frame.finish(figure, claim=claim, note=" · ".join(notes), is_doubtful=is_doubtful)


def _hover(row: Mapping[Any, Any]) -> str:
    memory = f"{size(row['needed_bytes'])} of {size(row['held_bytes'])}"
    return f"{duration(row['busy_ns'])} per batch, latency {duration(row['latency_ns'])}, {memory}"


def _binding(node: pd.DataFrame, names: list[str]) -> str:
    first = node[node["setting"] == names[0]].sort_values("throughput_per_s", kind="stable")
    resource, rate = label(first["resource"].iloc[0], 20), float(first["throughput_per_s"].iloc[0])
    if not node["fits"].any():
        needed = size(first["needed_bytes"].iloc[0]), size(first["held_bytes"].iloc[0])
        return f"{label(names[0], 50)} does not fit: it needs {needed[0]} of {needed[1]} of memory"
    if len(names) == 1 and len(first) > 1:
        next_ratio = float(first["throughput_per_s"].iloc[1]) / max(rate, 1e-9)
        return (
            f"{resource[:1].upper()}{resource[1:]} binds {label(names[0], 50)} at {rate:,.0f} "
            f"samples/s; without it the node is {digits(next_ratio)} × as fast"
        )
    bound = (
        node.loc[node["is_binding"] & node["fits"]]
        .drop_duplicates("setting")["resource"]
        .value_counts()
    )
    counts = [f"{label(name, 16)} in {count:,}" for name, count in bound.head(4).items()]
    return f"Binding resource of {plural(int(bound.sum()), 'setting')}: {', '.join(counts)}"


def inference_capacity(
    capacity: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the nodes that serve a rate within a latency, by the size of batches.

    One dot per batch size that is feasible. The title states the fewest nodes; the line under
    it says why other batches are not feasible.

    Parameters
    ----------
    capacity
        Table :data:`workbench.tables.INFERENCE_CAPACITY`.
    source, synthetic
        Where the model comes from, printed under the figure; whether it was generated.
    """
    frame = Frame(source, synthetic)
    INFERENCE_CAPACITY.check(capacity)
    if capacity.empty:
        why = "The table has no batch sizes; analyze.inference_capacity works some out."
        return frame.nothing(why, claim="No nodes to show")
    refused = capacity[capacity["node_count"].isna()]
    reasons = refused.groupby("verdict", sort=False)["batch_count"].agg(["min", "max"])
    notes = [f"queue simulated, service times of a {_MODEL}"]
    notes += [
        f"batches of {low:,} to {high:,}: {label(why, 60)}" if low < high
        else f"batch of {low:,}: {label(why, 60)}"
        for why, low, high in reasons.head(3).itertuples()
    ]  # fmt: skip
    ready = capacity[capacity["node_count"].notna()].sort_values("batch_count")[:_MOST_SETTINGS]
    figure = Draft()
    figure.add_scatter(
        mode="lines+markers",
        x=(ready if len(ready) else capacity[:1])["batch_count"].to_numpy(),
        y=ready["node_count"].to_numpy(dtype=np.float64) if len(ready) else [None],
        line={"color": COLOURS["series"], "width": 1.5},
        marker={"size": np.where(ready["is_best"], _BINDING_PX, _OTHER_PX)},
        hovertext=[_plan(row) for row in ready.to_dict("records")],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    batches = capacity["batch_count"].to_numpy(dtype=np.float64)
    figure.update_xaxes(
        title="queries per batch [count], logarithmic", type="log", **log_ticks(batches)
    )
    figure.update_yaxes(title="nodes needed [count]", rangemode="tozero")
    if ready.empty:
        return frame.finish(
            figure, claim="No number of nodes keeps the latency", note=" · ".join(notes)
        )
    best = ready.sort_values(["node_count", "latency_ns"], kind="stable").iloc[0]
    claim = f"{plural(int(best['node_count']), 'node')} with batches of {best['batch_count']:,} "
    claim += f"{'is' if best['node_count'] == 1 else 'are'} enough: latency "
    claim += (
        f"{duration(float(best['latency_ns']))}, {safe(percent(best['utilization_share']))} busy"
    )
    notes += [label(best["doubt"], 150)] if best["doubt"] else []
    is_doubtful = bool(best["doubt"])
    return frame.finish(figure, claim=claim, note=" · ".join(notes), is_doubtful=is_doubtful)


def _plan(row: Mapping[Any, Any]) -> str:
    latency, fill, wait = (
        duration(float(row[f"{name}_ns"])) for name in ("latency", "fill", "wait")
    )
    power = amount(float(row["power_w"]))
    return (
        f"batches of {row['batch_count']:,}: {plural(int(row['node_count']), 'node')}, {power} of "
        f"cards<br>latency {latency}; means: {fill} to fill, {wait} of waiting"
    )
