"""Explore performance models: what-if, critical path, layouts and schedules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, get_args

import ipywidgets as widgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot, simulate
from workbench.analyze import GRAPH_STEPS, Change, GraphRules, PassTimes, ScheduleKind
from workbench.explore.panel import (
    ALL,
    Explorer,
    choice,
    numbers,
    parts_of,
    slider,
    standard_questions,
)
from workbench.simulate import TwinChange
from workbench.tables import JOB_OPERATIONS, ExecutionGraph, Source, TraceProfile, as_source

_NONE = "nothing"


def critical_path(
    events: pd.DataFrame,
    graph: ExecutionGraph,
    *,
    questions: Sequence[Change] | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Change something; see what the critical path then consists of.

    Starts with the path as it is. What is made faster leaves the path at some point, and
    something else takes its place: that is what limits the gain.

    Controls above :func:`workbench.plot.critical_path`.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that the graph was built from.
    graph
        From :func:`workbench.analyze.execution_graph`.
    questions
        Changes to choose from; by default compute and CPU twice as fast, no communication, no
        copies.
    """
    offered = standard_questions(events) if questions is None else questions
    changes = {change.question: change for change in offered}

    fidelity = cache(lambda: analyze.replay_fidelity(events, graph))

    @cache
    def path(question: str) -> pd.DataFrame:
        chosen = [] if question == _NONE else [changes[question]]
        # A refused graph has a path too, and it would look as exact as any.
        usable = analyze.usable_graph(graph, fidelity())
        return analyze.critical_path(events, usable, changes=chosen)

    def draw(*, question: str, top: int) -> go.Figure:
        return plot.critical_path(path(question), top=top, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        question=widgets.Dropdown(options=[_NONE, *changes], description="change"),
        top=widgets.Dropdown(options=[4, 8, 16], value=8, description="names"),
    )


def fast_matmul(
    products: pd.DataFrame,
    *,
    algorithms: pd.DataFrame | None = None,
    peaks: pd.DataFrame | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose GPU, type and recursion levels; see what fast multiplication would gain.

    Controls above :func:`workbench.plot.fast_matmul`, or, for all GPUs,
    :func:`workbench.plot.fast_matmul_crossover`.

    Parameters
    ----------
    products
        Table :data:`workbench.tables.MATRIX_PRODUCTS` of your model.
    algorithms, peaks
        As for :func:`workbench.analyze.fast_matmul`.
    source, synthetic
        Where the sizes come from, printed under the figure; whether they were generated.
    """
    listed = analyze.matrix_peaks() if peaks is None else peaks
    pairs = [(f"{gpu} {dtype}", (gpu, dtype))
             for gpu, dtype in listed[["gpu", "dtype"]].to_numpy().tolist()]  # fmt: skip
    label: dict[str, Any] = {"source": as_source(source), "synthetic": synthetic}

    def draw(*, peak: Any, levels: int) -> go.Figure:
        options: dict[str, Any] = {"algorithms": algorithms, "levels": levels, "peaks": listed}
        gpu, dtype = pairs[0][1] if peak == ALL else peak
        gains = analyze.fast_matmul(products, gpu=gpu, dtype=dtype, **options)
        if peak != ALL:
            return plot.fast_matmul(gains, **label)
        del options["peaks"]
        crossover = analyze.fast_matmul_crossover(listed, **options)
        return plot.fast_matmul_crossover(crossover, products=gains, **label)

    start = next((pair for _, pair in pairs if pair == ("H100", "bfloat16")), ALL)
    options = [("all: from which size on", ALL), *pairs]
    return Explorer(
        draw,
        peak=widgets.Dropdown(options=options, value=start, description="GPU and type"),
        levels=slider("recursion levels", [("1", 1), ("2", 2), ("3", 3)], 1),
    )


_WHOLE_GRAPH = "nothing: the whole graph"


def graph_ablation(
    events: pd.DataFrame,
    *,
    rules: GraphRules | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Switch the steps off one by one; see the errors grow and the causes vanish.

    Starts with what every step is worth. The second view shows where in the trace the replay
    without a step leaves the GPU busy or idle at the wrong time.

    Controls above :func:`workbench.plot.graph_ablation` and :func:`workbench.plot.gpu_busy`.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    rules
        As for :func:`workbench.analyze.execution_graph`.
    """
    table = cache(lambda: analyze.graph_ablation(events, rules=rules))
    measured = cache(lambda: analyze.gpu_busy(events))

    @cache
    def replayed(without: str) -> pd.DataFrame:
        left_out = () if without == _WHOLE_GRAPH else (without,)
        graph = analyze.execution_graph(events, without=left_out, rules=rules)
        return analyze.gpu_busy(analyze.replayed_events(events, graph, analyze.replay(graph)))

    def draw(*, view: str, without: str) -> go.Figure:
        if view == "busy":
            return plot.gpu_busy(measured(), replayed(without), source=source, synthetic=synthetic)
        rows = table()
        if without != _WHOLE_GRAPH:
            rows = rows[rows["without"].isin(["", without])]
        return plot.graph_ablation(rows, source=source, synthetic=synthetic)

    views = [("errors and causes", "errors"), ("GPU busy over time", "busy")]
    return Explorer(
        draw,
        view=widgets.Dropdown(options=views, description="view"),
        without=widgets.Dropdown(options=[_WHOLE_GRAPH, *GRAPH_STEPS], description="dropped"),
    )


_MOST_STEPS = 16
_VIEWS = (
    ("verdict", "verdict"), ("map of workers", "worker"), ("by stage", "stage"),
    ("by data-parallel rank", "dp_rank"), ("by operation", "operation"),
    ("schedule of a step", "schedule"), ("micro-batches", "micro-batches"),
    ("what usual measures say", "measures"), ("steps", "steps"),
)  # fmt: skip


def job_slowdown(
    operations: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose a view of a job, and a step; see what stragglers cost it and where they are.

    Starts with the verdict. Steps and ranks that were not recorded whole are dropped; the
    verdict says so.

    Controls above :func:`workbench.plot.job_slowdown`, :func:`workbench.plot.job_slowdown_by`,
    :func:`workbench.plot.job_schedule`, :func:`workbench.plot.job_micro_batches`,
    :func:`workbench.plot.job_dispersion` and :func:`workbench.plot.job_steps`. Of many steps
    some are offered, evenly spread; the step matters to the schedule and to micro-batches.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    """
    JOB_OPERATIONS.check(operations)
    # Computed when a view first needs it, so that the explorer opens at once.
    complete = cache(partial(analyze.complete_steps, operations))
    verdict = cache(lambda: analyze.job_slowdown(complete()))
    schedule = cache(lambda step: analyze.job_schedule(complete(), step=step))
    micro_batches = cache(lambda: analyze.job_micro_batches(complete()))
    dispersion = cache(lambda: analyze.job_dispersion(complete()))
    job_steps = cache(lambda: analyze.job_steps(complete()))
    by = cache(lambda view: analyze.job_slowdown_by(complete(), view))
    label: dict[str, Any] = {"source": source, "synthetic": synthetic}

    def batches(step: int | str) -> go.Figure:
        table = micro_batches()
        if step != ALL:
            rows = table[table["step"] == step].reset_index(drop=True)
            return plot.job_micro_batches(rows, **label)
        correlation = verdict()["forward_backward_correlation"].iloc[0]
        shown = None if pd.isna(correlation) else float(correlation)
        return plot.job_micro_batches(table, correlation=shown, **label)

    figures: dict[str, Callable[[int | str], go.Figure]] = {
        "verdict": lambda _: plot.job_slowdown(verdict(), **label),
        "schedule": lambda step: plot.job_schedule(
            schedule(None if step == ALL else int(step)), **label
        ),
        "micro-batches": batches,
        "measures": lambda _: plot.job_dispersion(dispersion(), **label),
        "steps": lambda _: plot.job_steps(job_steps(), **label),
    }

    def draw(*, view: str, step: int | str) -> go.Figure:
        if view in figures:
            return figures[view](step)
        return plot.job_slowdown_by(by(view), **label)

    return Explorer(
        draw,
        view=widgets.Dropdown(options=_VIEWS, description="view"),
        step=widgets.Dropdown(options=_steps(operations), description="step"),
    )


def _steps(operations: pd.DataFrame) -> list[tuple[str, int | str]]:
    """Offer the slowest step (for micro-batches all of them), and some by number."""
    steps = np.unique(operations["step"].to_numpy()).tolist()
    if len(steps) > _MOST_STEPS:
        positions = np.linspace(0, len(steps) - 1, _MOST_STEPS).round().astype(int)
        steps = [steps[position] for position in positions]
    return [("slowest, or all", ALL), *((str(step), step) for step in steps)]


_KINDS = (
    "A100", "H100", "H100 FP8", "H200", "B200", "B200 FP8", "GB200", "GB300", "MI300X", "MI355X",
)  # fmt: skip


def parallelism_plan(
    model: analyze.IterationModel,
    *,
    shapes: Iterable[analyze.ModelShape | str] = ("GPT-3 175B", "Llama 3 405B", "Megatron 22B"),
    tokens: Iterable[float] = (),
    like: analyze.Layout | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose model, GPUs, recomputation and batch; see the fastest way that fits.

    Starts with the first model on 512 H100 and 1,024 sequences per iteration.

    Controls above :func:`workbench.plot.parallelism_plan`.

    Parameters
    ----------
    model
        Model of iteration times, from ``analyze.assumed_model`` or ``calibrated_to``.
    shapes
        Models to choose from: shapes, or names of published ones.
    tokens
        Numbers of tokens to choose from; the title then says how long a whole training takes.
    like
        Sequence, sharding and the rest of the layout; 2,048 tokens, ZeRO-1, sequence
        parallelism and flash attention if None.
    source
        Where the constants come from; printed under the figure.

    Raises
    ------
    PerformanceModelError
        If a name is not a published model.
    """
    chosen = [analyze.model_shape(shape) if isinstance(shape, str) else shape for shape in shapes]
    by_name = {shape.name or f"model {number}": shape for number, shape in enumerate(chosen, 1)}
    start = like or analyze.Layout(sharding="zero1", sequence_parallel=True, flash_attention=True)

    @cache
    def planned(name: str, gpus: int, kind: str, recompute: Any, batch: int) -> pd.DataFrame:
        fields = {**vars(start), "data": 1, "micro_batch": 1, "pipeline": 1, "chunks": 1}
        layout = analyze.Layout(**{**fields, "recompute": recompute, "global_batch": batch})
        vary = ["expert"] if by_name[name].experts > 1 else []
        return analyze.parallelism_plan(
            by_name[name], gpus, model=model, like=layout, gpu=kind, vary=vary
        )

    def draw(
        *, shape: str, gpus: int, kind: str, recompute: str, batch: int, trained: float = 0
    ) -> go.Figure:
        table = planned(shape, gpus, kind, recompute, batch)
        where = as_source(source).joined(shape)
        return plot.parallelism_plan(
            table, tokens=trained or None, source=where, synthetic=synthetic
        )

    amounts = {f"{number / 1e12:g}": number for number in tokens}
    training = widgets.SelectionSlider(
        options=list(amounts.items()) or [("", 0)],
        description="tokens [10^12]",
    )  # fmt: skip
    return Explorer(
        draw,
        shape=widgets.Dropdown(options=list(by_name), description="model"),
        gpus=widgets.SelectionSlider(
            options=[64, 128, 256, 512, 1024, 2048, 4096], value=512,
            description="GPUs",
        ),
        kind=widgets.Dropdown(options=list(_KINDS), value="H100", description="GPU type"),
        recompute=widgets.Dropdown(
            options=["none", "selective", "full"], description="recompute"
        ),
        batch=widgets.SelectionSlider(
            options=[256, 512, 1024, 2048, 4096], value=1024,
            description="batch [sequences]",
        ),
        **({"trained": training} if amounts else {}),
    )  # fmt: skip


_COMPARED = "all, side by side"


def pipeline_schedule(
    *, forward_ns: float = 1e6, backward_ns: float = 2e6, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose schedule, stages, micro-batches and the weight-gradient pass; see the bubble.

    Controls above :func:`workbench.plot.pipeline_schedule`, or
    :func:`workbench.plot.schedule_comparison` of all schedules.

    Parameters
    ----------
    forward_ns
        Forward pass of one micro-batch on a whole stage.
    backward_ns
        Backward pass of one micro-batch on a whole stage.
    source
        Where these come from; printed under the figure.
    """
    options = [(name, name) for name in (*get_args(ScheduleKind), _COMPARED)]
    origin = source or Source("durations as chosen", "model")
    label: dict[str, Any] = {"source": origin, "synthetic": synthetic}

    def draw(
        *,
        schedule: str,
        stages: float,
        micro_batches: float,
        weight_share: float,
        overlap_share: float,
    ) -> go.Figure:
        pair_ns = (1 - overlap_share) * (forward_ns + backward_ns)
        weight_ns = weight_share * backward_ns
        times = PassTimes(forward_ns, backward_ns, weight_ns, overlapped_ns=pair_ns)
        count, batches = int(stages), int(micro_batches)
        if schedule == _COMPARED:
            table = analyze.schedule_comparison(times, stages=count, micro_batches=batches)
            return plot.schedule_comparison(table, **label)
        order = analyze.pipeline_schedule(schedule, count, batches)  # type: ignore[arg-type]
        chunks = order["chunk"].nunique() // count
        return plot.pipeline_schedule(analyze.schedule_times(order, times.part(chunks)), **label)

    return Explorer(
        draw,
        schedule=widgets.Dropdown(options=options, value="1f1b", description="schedule"),
        stages=numbers("stages", (2, 4, 8), 4),
        micro_batches=numbers("micro-batches", (2, 4, 8, 12, 16, 32), 8),
        weight_share=numbers("weight-gradient pass (W), of backward", (0.3, 0.4, 0.5, 0.6), 0.5),
        overlap_share=numbers("gained by overlapping", (0, 0.1, 0.2, 0.3), 0),
    ).inert(
        weight_share=lambda values: values["schedule"] in ("gpipe", "1f1b", "interleaved"),
        overlap_share=lambda values: values["schedule"] not in ("dualpipe_v", _COMPARED),
    )


_TIMES = (
    ("removed", 0.0), ("1/4", 0.25), ("1/2", 0.5), ("3/4", 0.75), ("x1.1", 1.1), ("x1.5", 1.5),
    ("x2", 2.0),
)  # fmt: skip


def trace_like(profile: TraceProfile, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose ranks, and times of compute and communication; see where a twin spends time.

    One step of each rank is drawn. Starts with as many ranks as the profile was taken from, 16 at
    most, unchanged.

    Controls above :func:`workbench.plot.time_breakdown` of the twin.

    Parameters
    ----------
    profile
        From :func:`workbench.analyze.trace_profile` or :func:`workbench.load.trace_profile`.
    source, synthetic
        Where the profile comes from, printed under the figure. A twin is synthetic in any case.
    """
    whose = source or "a trace profile"
    origin = Source(f"drawn from {whose}{', itself synthetic' * synthetic}", "model")
    start = min(profile.rank_count, 16)

    @cache
    def breakdown(ranks: int, compute: float, communication: float) -> pd.DataFrame:
        change = TwinChange(compute_ratio=compute, communication_ratio=communication)
        twin = simulate.traces_like(profile, ranks=ranks, repeats=1, change=change)
        return analyze.time_breakdown(twin.events)

    def draw(*, ranks: float, compute: float, communication: float) -> go.Figure:
        rows = breakdown(int(ranks), compute, communication)
        return plot.time_breakdown(rows, source=origin, synthetic=True)

    ratios = (0.25, 0.5, 1, 2, 4)
    return Explorer(
        draw,
        ranks=numbers("ranks", (1, 2, 4, 8, 16), start),
        compute=numbers("compute [times]", ratios, 1),
        communication=numbers("communication [times]", ratios, 1),
    )


def what_if(
    events: pd.DataFrame,
    graph: ExecutionGraph,
    *,
    questions: Sequence[Change | Sequence[Change]] | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose what takes another time, and how much; see what a step would take.

    Starts with compute twice as fast. The prediction stands among others that were asked
    beforehand.

    Controls above :func:`workbench.plot.what_if`.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that the graph was built from.
    graph
        From :func:`workbench.analyze.execution_graph`.
    questions
        What to compare with; by default compute and CPU twice as fast, no communication, no copies.
    """
    choices = parts_of(events)
    fidelity = cache(lambda: analyze.replay_fidelity(events, graph))
    compared = standard_questions(events) if questions is None else list(questions)

    @cache
    def others() -> pd.DataFrame:
        return analyze.what_if(events, graph, compared, fidelity=fidelity())

    def draw(*, what: str, time: float, rank: int | str = ALL) -> go.Figure:
        chosen, name = dict(choices[what]), choices[what].get("name")
        if name is not None:
            # The whole name and nothing else: kernel names are full of what a pattern reads as
            # syntax.
            chosen["name"] = f"^{re.escape(name)}$"
        change = Change(factor=time, rank=None if rank == ALL else int(rank), **chosen)
        table = analyze.what_if(events, graph, [change], fidelity=fidelity())
        words = change.question.replace(str(change.name), str(name)) if name else change.question
        rows = pd.concat([table.assign(question=words), others()], ignore_index=True)
        rows = rows.drop_duplicates("question").astype({"basis": "category"})
        return plot.what_if(rows, asked=words, source=source, synthetic=synthetic)

    controls: dict[str, Any] = {
        "what": widgets.Dropdown(options=list(choices), description="part"),
        "time": slider("time of the part", list(_TIMES), 0.5),
    }
    ranks = sorted(int(rank) for rank in events["rank"].unique())
    if len(ranks) > 1:
        controls["rank"] = choice("rank", ranks)
    return Explorer(draw, **controls)
