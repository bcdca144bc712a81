"""Explore traces: time breakdown, kernels, memory and waits at collectives."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.errors import WorkbenchError
from workbench.explore.panel import ALL, Explorer, choice, chosen_rows, rank_choice
from workbench.tables import MemoryRecording, Trace

# A list of more cannot be read.
_MOST_ROOTS = 6
_OF_RANK = r"^rank \d+ > "


def collective_waits(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a view, a step and a process group; see who waits, for which straggler, and why.

    Starts with the waiting of every rank in all collectives. The group can be chosen where the
    trace records more than one. Clocks are aligned first, if the ends of the collectives tell how
    far each is off; that can be switched off.

    Controls above :func:`workbench.plot.collective_waits`,
    :func:`workbench.plot.straggler_attribution` and :func:`workbench.plot.late_arrivals`.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns, of several ranks.

    Raises
    ------
    WorkbenchError
        If ``trace`` is something else, e.g. one of its tables.
    """
    checked: object = trace
    if not isinstance(checked, Trace):
        msg = f"a Trace is needed, not a {type(checked).__name__}; pass what load.traces returns"
        raise WorkbenchError(msg)
    collectives = analyze.collectives(trace.events, process_groups=trace.process_groups)
    clocks = analyze.clocks(collectives).dropna(subset=["offset_ns"])

    @cache
    def waits(corrected: bool) -> pd.DataFrame:
        return analyze.collective_waits(
            trace.events, process_groups=trace.process_groups, clocks=clocks if corrected else None
        )

    @cache
    def late(corrected: bool) -> pd.DataFrame:
        # All of them: what came before is found in steps and groups not chosen.
        events = analyze.align_clocks(trace.events, clocks) if corrected else trace.events
        return analyze.late_arrivals(events, waits(corrected))

    def draw(*, view: str, step: int | str, group: str = ALL, corrected: bool = False) -> go.Figure:
        rows = chosen_rows((late if view == "late" else waits)(corrected), step=step, group=group)
        if view == "blame":
            rows = analyze.straggler_attribution(rows)
        return figures[view](rows, source=source, synthetic=synthetic)

    figures = {
        "waits": plot.collective_waits,
        "blame": plot.straggler_attribution,
        "late": plot.late_arrivals,
    }
    names = ("waiting per rank", "straggler attribution", "what the straggler was doing")
    switch = widgets.Checkbox(
        value=bool(clocks["is_sure"].all()), description="align clocks", indent=False
    )
    communication = trace.events.loc[trace.events["kind"] == "communication", ["step", "group"]]
    groups = sorted(str(group) for group in communication["group"].dropna().unique())
    steps = sorted(communication["step"].dropna().unique())
    return Explorer(
        draw,
        view=widgets.Dropdown(options=list(zip(names, figures, strict=True)), description="view"),
        step=choice("step", map(int, steps)),
        **({"group": choice("group", groups)} if len(groups) > 1 else {}),
        **({"corrected": switch} if len(clocks) else {}),
    )


def inference_iterations(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank and a phase; see how long iterations of an inference engine run.

    Starts with all of them.

    Controls above :func:`workbench.plot.inference_iterations`.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    """
    table = analyze.inference_iterations(trace.events)

    def draw(*, rank: int | str, phase: str) -> go.Figure:
        rows = chosen_rows(table, rank=rank, phase=phase)
        rows.attrs = table.attrs
        return plot.inference_iterations(rows, source=source, synthetic=synthetic)

    phases = table["phase"].cat.remove_unused_categories().cat.categories
    return Explorer(draw, rank=rank_choice(trace), phase=choice("phase", map(str, phases)))


def kernels(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank, a kind of work and how many names to see; see what takes longest.

    Starts with the twelve largest of all ranks.

    Controls above :func:`workbench.plot.kernels`.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    """
    table = cache(partial(analyze.kernels, trace.events))

    def draw(*, rank: int | str, kind: str, top: int) -> go.Figure:
        rows = chosen_rows(table(), rank=rank, kind=kind)
        return plot.kernels(rows, top=top, source=source, synthetic=synthetic)

    kinds = trace.events["kind"].cat.remove_unused_categories().cat.categories
    return Explorer(
        draw,
        rank=rank_choice(trace),
        kind=choice("kind", map(str, kinds)),
        top=widgets.Dropdown(options=[6, 12], value=12, description="names"),
    )


def model_tree(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank, a phase, where to begin and how deep to look; see where the GPU time goes.

    Starts with all ranks and phases, from the root. Layers of one kind are one node.

    Controls above :func:`workbench.plot.model_tree`.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    """
    table = cache(partial(analyze.model_tree, trace.events, merged=True))

    def draw(*, phase: Any, root: str, depth: int, rank: int | str = ALL) -> go.Figure:
        rows = chosen_rows(table(), rank=rank)
        path = rows["path"].str.replace(_OF_RANK, "", regex=True)
        # A rank may lack the module that was chosen among those of all.
        root = root if (path == root).any() else ""
        return plot.model_tree(
            rows, root=root, depth=depth, phase=phase, source=source, synthetic=synthetic
        )

    largest: list[str] = []
    # What cannot be computed is said in place of the figure.
    with suppress(WorkbenchError):
        nodes = table().assign(path=table()["path"].str.replace(_OF_RANK, "", regex=True))
        nodes = nodes[nodes["kind"].isin(["module", "range"])]
        largest = [*nodes.groupby("path")["gpu_ns"].sum().nlargest(_MOST_ROOTS).index]
    phases = ["all", "forward", "backward", "recompute", "other"]
    return Explorer(
        draw,
        **({"rank": rank_choice(trace)} if len(trace.ranks) > 1 else {}),
        phase=widgets.Dropdown(options=phases, description="phase"),
        root=widgets.Dropdown(
            options=[("everything", ""), *((path, path) for path in largest)],
            description="part of the model",
        ),
        depth=widgets.Dropdown(options=[2, 3, 5], value=5, description="levels"),
    )


def memory_peak(
    recording: MemoryRecording, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose a rank and what allocations are summed by; see what was held at the peak, and when.

    Starts with the call stacks of the device that holds most.

    Controls above :func:`workbench.plot.memory_peak` and, over time,
    :func:`workbench.plot.memory_timeline`.

    Parameters
    ----------
    recording
        What :func:`workbench.load.memory` returns.
    """
    table = cache(partial(analyze.memory_peak, recording.memory))
    label: dict[str, Any] = {"source": source, "synthetic": synthetic}

    @cache
    def timeline() -> pd.DataFrame:
        return analyze.memory_timeline(recording.memory)

    def draw(*, view: str, rank: int | str, by: Any, top: int) -> go.Figure:
        if view == "timeline":
            return plot.memory_timeline(chosen_rows(timeline(), rank=rank), **label)
        return plot.memory_peak(chosen_rows(table(by=by), rank=rank), top=top, **label)

    views = [("at the peak", "peak"), ("over time", "timeline")]
    names = {"call stack": "stack", "phase of training": "phase", "size": "size"}
    return Explorer(
        draw,
        view=widgets.Dropdown(options=views, description="view"),
        rank=choice("rank", map(int, recording.memory["rank"].unique())),
        by=widgets.Dropdown(options=[*names.items()], description="sum by"),
        top=widgets.Dropdown(options=[5, 10, 20], value=10, description="groups"),
    ).inert(
        by=lambda chosen: chosen["view"] == "timeline",
        top=lambda chosen: chosen["view"] == "timeline",
    )


def roofline(
    trace: Trace, *, peaks: pd.DataFrame | None = None, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose operators, how many, and how much of its data-sheet peak the GPU keeps; see the roof.

    Starts with the forty rows of the longest time, below the peaks of the data sheet.

    Controls above :func:`workbench.plot.roofline`.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns, recorded with shapes.
    peaks
        Table :data:`workbench.tables.MATRIX_PEAKS` of a GPU that data sheets here lack.
    """

    @cache
    def table(kept: float) -> pd.DataFrame:
        return analyze.roofline(trace.events, devices=trace.devices, peaks=peaks, peak_share=kept)

    def draw(*, rank: int | str, family: str, kept: float, top: int) -> go.Figure:
        rows = chosen_rows(table(kept), rank=rank, family=family)
        return plot.roofline(rows, top=top, source=source, synthetic=synthetic)

    told = table(1.0)
    families = told.loc[told["flop_count"].notna(), "family"].unique()
    peak = [("data sheet", 1.0), ("90 % of it", 0.9), ("80 %", 0.8), ("70 %", 0.7)]
    return Explorer(
        draw,
        rank=rank_choice(trace),
        family=choice("operators", map(str, families)),
        kept=widgets.Dropdown(options=peak, description="peak"),
        top=widgets.Dropdown(options=[10, 20, 40], value=40, description="rows"),
    )


def time_breakdown(trace: Trace, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose a rank, and whether its time is grouped by step; see where the time goes.

    Starts with all ranks side by side.

    Controls above :func:`workbench.plot.time_breakdown`.

    Parameters
    ----------
    trace
        What :func:`workbench.load.traces` returns.
    """
    table = cache(partial(analyze.time_breakdown, trace.events))

    def draw(*, rank: int | str, by: Any) -> go.Figure:
        rows = chosen_rows(table(by=by), rank=rank)
        return plot.time_breakdown(rows, source=source, synthetic=synthetic)

    by = widgets.Dropdown(options=["rank", "step"], description="group by")
    return Explorer(draw, rank=rank_choice(trace), by=by)
