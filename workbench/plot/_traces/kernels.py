"""Which kernels and kinds of work take the GPU time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench._shared.kernel_kinds import GPU_WORK
from workbench.plot._style.bars import by_name, largest
from workbench.plot._style.style import COLOURS, Frame
from workbench.plot._style.text import duration, label, percent, plural, safe
from workbench.tables import KERNEL_KINDS, KERNELS, TRACE_DIFF

# Categories of GPU work, and of nodes of the user's code, which hold the GPU work they launched.
_ADDING_UP = {
    *GPU_WORK, "module", "function", "range", "operator", "backward", "outside", "root",
}  # fmt: skip


def kernels(
    kernels: pd.DataFrame, *, top: int = 12, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show the GPU work that takes most time, by name, with the rest in one bar.

    Horizontal bars, one trace per kind; full names on hover. The title states the share of the
    largest name and of all that are shown.

    Parameters
    ----------
    kernels
        Table :data:`workbench.tables.KERNELS`; ranks and steps are added up.
    top
        Names to show.
    """
    frame = Frame(source, synthetic)
    KERNELS.check(kernels)
    summed = kernels.groupby(["name", "kind"], observed=True, as_index=False)[
        ["total_ns", "kernel_count"]
    ].sum()
    total_ns = int(summed["total_ns"].sum())
    if not total_ns:
        return frame.nothing("No GPU work was recorded.", claim="No kernels to show")
    drawn = largest(summed, "total_ns", top=top, sums=["kernel_count"])
    hover = [
        f"{percent(total / total_ns)} of the GPU work, {count:,} times"
        for total, count in drawn[["total_ns", "kernel_count"]].itertuples(index=False)
    ]
    figure = by_name(
        _names(drawn["name"], hidden=len(summed) - top),
        drawn["total_ns"].to_numpy(),
        meanings=drawn["kind"].astype("object").fillna("all others").tolist(),
        hover=hover,
        title="summed duration",
    )
    first = drawn.iloc[0]
    claim = (
        f"{label(first['name'], 48)} takes {percent(first['total_ns'] / total_ns)} of the GPU work"
    )
    if len(summed) > len(drawn):
        share = percent(summed["total_ns"].nlargest(top).sum() / total_ns)
        claim += f"; {top} of {len(summed):,} names take {share}"
    return frame.finish(figure, claim=claim)


def kernel_kinds(kinds: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show what the GPU work is for, and how much of it no rule recognises.

    One bar per kind and rule, largest first; what no rule recognised is a trace of its own. The
    title states the unclassified share.

    Parameters
    ----------
    kinds
        Table :data:`workbench.tables.KERNEL_KINDS`; ranks are added up.
    """
    frame = Frame(source, synthetic)
    KERNEL_KINDS.check(kinds)
    keys = ["kind", "rule", "is_unclassified"]
    drawn = (
        kinds.groupby(keys, observed=True, as_index=False)[["total_ns", "kernel_count"]]
        .sum()
        .sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    )
    total_ns = int(drawn["total_ns"].sum())
    if not total_ns:
        return frame.nothing("No GPU work was recorded.", claim="No kinds of GPU work to show")
    is_unknown = drawn["is_unclassified"].to_numpy()
    kind = drawn["kind"].astype("object")
    figure = by_name(
        [
            f"{kind}, by no rule" if unknown else f"{kind}, by rule '{rule}'"
            for kind, rule, unknown in drawn[keys].itertuples(index=False, name=None)
        ],
        drawn["total_ns"].to_numpy(),
        meanings=np.where(is_unknown, "unclassified", kind).tolist(),
        hover=[
            f"{percent(total / total_ns)} of the GPU work, {plural(count, 'run')}"
            for total, count in drawn[["total_ns", "kernel_count"]].itertuples(index=False)
        ],
        title="summed duration",
    )
    by_kind = drawn.groupby(kind)["total_ns"].sum()
    unknown = drawn.loc[is_unknown, "total_ns"].sum() / total_ns
    claim = (
        f"{percent(by_kind.max() / total_ns)} of the GPU work is {safe(by_kind.idxmax())}; "
        f"{percent(unknown)} is unlabelled"
    )
    return frame.finish(figure, claim=claim)


def _names(names: pd.Series, *, hidden: int) -> list[str]:
    # Row -1 is the sum of all that are not shown.
    return [
        f"all others ({plural(hidden, 'name')})" if row == -1 else str(name)
        for row, name in names.items()
    ]


def trace_diff(
    diff: pd.DataFrame,
    *,
    categories: Collection[str] = (),
    top: int = 14,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show what takes more and what takes less time in trace b than in trace a.

    Horizontal bars to both sides of zero, the remaining changes added up. The title states the
    whole change of the GPU work and the largest part of it.

    Parameters
    ----------
    diff
        Table :data:`workbench.tables.TRACE_DIFF`, by name, category, step or module.
    categories
        Profiler categories to draw; by default those of GPU work, or all if nothing changed there.
        Host categories lie inside each other and do not add up.
    top
        Largest changes to show, whichever their sign.
    """
    frame = Frame(source, synthetic)
    TRACE_DIFF.check(diff)
    changed = diff[diff["difference_ns"] != 0]
    if changed.empty:
        return frame.nothing(
            "Every row takes exactly as long in both traces."
            if len(diff)
            else "Neither trace has events to compare.",
            claim="No difference to show",
        )
    on_gpu = changed[changed["category"].isin(GPU_WORK)]
    drawn = changed[changed["category"].isin(categories)] if categories else on_gpu
    # Where the GPU work is the same, what changed on the host is worth a figure.
    drawn = changed if drawn.empty else drawn
    # Rows of the host contain each other, so a sum over them would count time twice.
    adds_up = drawn["category"].isin(_ADDING_UP).all()
    figure, first = _bars(drawn, top=top)
    gpu_work = diff[diff["category"].isin(_ADDING_UP)] if adds_up else None
    note = "" if adds_up else "host categories lie inside each other and do not add up"
    return frame.finish(figure, claim=_claim(first, gpu_work), note=note)


def _bars(changed: pd.DataFrame, *, top: int) -> tuple[go.Figure, pd.Series]:
    order = changed["difference_ns"].abs().sort_values(ascending=False, kind="stable").index
    head, tail = changed.loc[order[:top]], changed.loc[order[top:]]
    head = head.assign(label=_diff_names(head))
    values = head["difference_ns"].to_numpy()
    names, hover = head["label"].tolist(), [_hover(row) for row in head.to_dict("records")]
    if len(tail):
        values = np.append(values, tail["difference_ns"].sum())
        names.append(f"all others ({plural(len(tail), 'change')})")
        hover.append("added up; gains and losses cancel")
    meanings = ["less" if value < 0 else "more" for value in values]
    figure = by_name(names, values, meanings=meanings, hover=hover, title="change from a to b")
    figure.add_vline(x=0, line_width=1, line_color=COLOURS["ink"])
    return figure, head.iloc[0]


def _diff_names(diff: pd.DataFrame) -> list[str]:
    names = []
    for row in diff.to_dict("records"):
        # The name of a kernel says enough; a row of the host needs its category.
        is_plain = row["category"] in _ADDING_UP and not pd.isna(row["name"])
        words = [] if is_plain else [row["category"]]
        if not pd.isna(row["step"]):
            words.insert(0, f"step {row['step']}")
        if not pd.isna(row["name"]):
            words.insert(0, row["name"])
        names.append(" · ".join(map(str, words)))
    return names


def _hover(row: dict[Any, Any]) -> str:
    counts = f"{row['a_count']:,} → {row['b_count']:,} times"
    times = f"{duration(row['a_total_ns'])} → {duration(row['b_total_ns'])}"
    change = {"added": "only in b", "removed": "only in a"}.get(str(row["change"]), "in both")
    return f"{times}<br>{counts}, {change}"


def _claim(row: pd.Series, gpu_work: pd.DataFrame | None) -> str:
    largest_change = f"{label(row['label'], 50)} {_change(int(row['difference_ns']))}"
    if gpu_work is None:
        return f"The largest change is {largest_change} in b"
    a_ns, difference = int(gpu_work["a_total_ns"].sum()), int(gpu_work["difference_ns"].sum())
    ratio = f" (× {(a_ns + difference) / a_ns:,.2f})" if a_ns else ""
    return f"GPU work takes {_change(difference)} in b{ratio}; largest: {largest_change}"


def _change(difference_ns: int) -> str:
    return f"{duration(abs(difference_ns))} {'longer' if difference_ns >= 0 else 'less'}"
