"""Explore unequal loads: packing, sharding, pipelines and embedding tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import (
    InferenceCard,
    InferenceNode,
    Packing,
    PackingPlan,
    Parallelism,
    RecommendationModel,
    ServiceGoal,
    ShardingAssumptions,
)
from workbench.errors import WorkbenchError
from workbench.explore.panel import Explorer, slider
from workbench.tables import EMBEDDING_TABLES, ROW_POPULARITY, as_source

_K = 1024
# More documents than this make packing slower than a control may answer.
_MOST_DOCUMENTS = 60_000
# Thresholds of the queues as shares of the context, by how they are called.
_QUEUES: Mapping[str, tuple[float, ...]] = {
    "no queue": (),
    "1/4": (1 / 4,),
    "1/4, 1/2": (1 / 4, 1 / 2),
    "1/4, 1/2, 3/4": (1 / 4, 1 / 2, 3 / 4),
    "1/16 (too low for long tails)": (1 / 16,),
}
_HOT_ROWS = (0, 1, 4, 16, 64, 256)
_LPT_ROWS = 4_000  # fewer than the analysis places one by one, for an answer at once
# The measures that torchrec prints for a plan.
_TORCHREC = ("total variation", "total distance", "chi divergence", "KL divergence")
_DEFAULT = ShardingAssumptions()

Lengths = pd.DataFrame | Mapping[str, pd.DataFrame]
Stream = Callable[[str, int, int], pd.DataFrame]


def _named(lengths: Lengths) -> tuple[dict[str, pd.DataFrame], widgets.Dropdown]:
    """Name data sets, and return the control that offers them."""
    sets = {"documents": lengths} if isinstance(lengths, pd.DataFrame) else dict(lengths)
    if not sets:
        msg = "no lengths to explore; pass a table of load.document_lengths, or several by name"
        raise WorkbenchError(msg)
    return sets, widgets.Dropdown(options=list(sets), description="documents")


def _streams(sets: Mapping[str, pd.DataFrame], batches: int) -> Stream:
    """Return a function that draws a stream of some global batches, and remembers it."""

    @lru_cache(maxsize=32)
    def draw(name: str, context_k: int, sequences: int) -> pd.DataFrame:
        batch_tokens = sequences * context_k * _K
        # Short documents would be millions; fewer batches of them say as much.
        affordable = int(_MOST_DOCUMENTS * float(sets[name]["length_tokens"].mean()))
        tokens = max(min(batches * batch_tokens, affordable), 12 * batch_tokens)
        return analyze.sample_documents(sets[name], token_count=tokens)

    return draw


def _steps(name: str, values: tuple[float, ...], start: float, unit: str = "") -> widgets.Widget:
    return slider(name, [(f"{value:g}{unit}", value) for value in values], start)


def _plan(
    context_k: int, crossover_k: float, queues: str, memory: float = 1.25, sequences: int = 4
) -> PackingPlan:
    context = context_k * _K
    return PackingPlan(
        context_tokens=context,
        batch_sequences=sequences,
        crossover_tokens=crossover_k * _K,
        queues_from_tokens=tuple(int(share * context) for share in _QUEUES[queues]),
        memory_ratio=memory,
    )


def context_sharding(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose ranks and what short kernels lose; compare ways of cutting the attention.

    Controls above :func:`workbench.plot.context_sharding` and, for the micro-batch that
    is cut worst, :func:`workbench.plot.context_chunks`.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    """
    sets, documents_control = _named(lengths)
    stream = _streams(sets, 60)

    @lru_cache(maxsize=8)
    def packed(documents: str) -> Packing:
        plan = _plan(context_k=128, crossover_k=49, queues="no queue")
        return analyze.packing(stream(documents, 128, plan.batch_sequences), plan)

    def draw(*, view: Any, documents: str, ranks: int, launch: int) -> go.Figure:
        packing = packed(documents)
        sharding = analyze.context_sharding(packing, ranks=ranks, launch_tokens=launch)
        if view == "all":
            return plot.context_sharding(sharding, source=source, synthetic=synthetic)
        worst = sharding.iloc[int(sharding["per_sequence_ratio"].to_numpy().argmax())]
        is_worst = packing.documents[["batch", "micro_batch"]] == worst[["batch", "micro_batch"]]
        pieces = packing.documents.loc[is_worst.all(axis=1), ["length_tokens"]]
        chunks = analyze.context_chunks(
            pieces.reset_index(drop=True), ranks=ranks, strategy=view, launch_tokens=launch
        )
        return plot.context_chunks(chunks, source=source, synthetic=synthetic)

    views = [
        ("all ways", "all"),
        ("worst micro-batch, per sequence", "per sequence"),
        ("the same, per document", "per document"),
        ("the same, hybrid", "hybrid"),
    ]
    return Explorer(
        draw,
        view=widgets.Dropdown(options=views, description="view"),
        documents=documents_control,
        ranks=_steps("context ranks", (2, 4, 8, 16), 4),
        launch=_steps("lost per kernel", (0, 512, 1024), 512, " queries"),
    )


_CARDS = ("NNP-I 1100", "T4", "L4", "MTIA v1")
_MODELS = ("DLRM v2", "DLRM, one-hot")
_SERVED_BATCHES = (1, 4, 16, 64, 256, 1024)
_EFFICIENCIES = (0.25, 0.5, 1.0)


def _models(models: Iterable[RecommendationModel | str]) -> dict[str, RecommendationModel]:
    chosen = [analyze.recommendation_model(m) if isinstance(m, str) else m for m in models]
    if not chosen:
        msg = "no models to explore; pass analyze.recommendation_model(...), or names of them"
        raise WorkbenchError(msg)
    return {model.name: model for model in chosen}


def inference_node(
    models: Iterable[RecommendationModel | str] = _MODELS,
    *,
    cards: Sequence[InferenceCard | str] = _CARDS,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose model, cards per node and efficiencies; see which resource binds on each card.

    Controls above :func:`workbench.plot.inference_node`.

    Parameters
    ----------
    models
        Models to choose from: your own, or names of published ones.
    cards
        Cards to compare: your own, or names of known ones.
    source, synthetic
        Where the models come from, printed under the figure; whether they were generated.
    """
    by_name = _models(models)
    compared = [analyze.inference_card(card) if isinstance(card, str) else card for card in cards]

    def draw(*, model: str, count: int, batch: int, **shares: Any) -> go.Figure:
        nodes = [InferenceNode(card, count, batch, **shares) for card in compared]
        table = analyze.inference_node(by_name[model], nodes)
        where = as_source(source).joined(model)
        return plot.inference_node(table, source=where, synthetic=synthetic)

    return Explorer(
        draw,
        model=widgets.Dropdown(options=list(by_name), description="model"),
        count=_steps("cards per node", (1, 6), 6),
        batch=_steps("batch", (64, 1024), 1024, " samples"),
        compute_share=_steps("of peak compute", _EFFICIENCIES, 0.5),
        memory_share=_steps("of peak bandwidth", _EFFICIENCIES, 0.5),
        hit_share=_steps("cache hits", (0.0, 0.8), 0.0),
    )


def inference_capacity(
    models: Iterable[RecommendationModel | str] = _MODELS,
    *,
    nodes: Sequence[InferenceNode] | None = None,
    samples: int = 100,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose model, node, rate and latency; see how many nodes are needed, and which batch.

    Controls above :func:`workbench.plot.inference_capacity`.

    Parameters
    ----------
    models
        Models to choose from: your own, or names of published ones.
    nodes
        Nodes to choose from; six of each known card, at the default efficiencies, if None.
    samples
        Samples per query, e.g. candidates to be ranked.
    source, synthetic
        Where the models come from, printed under the figure; whether they were generated.
    """
    by_name = _models(models)
    offered = nodes or [InferenceNode(analyze.inference_card(name)) for name in _CARDS]
    by_node = {f"{node.cards} x {node.card.name}": node for node in offered}

    def draw(*, model: str, node: str, rate: float, latency: float) -> go.Figure:
        goal = ServiceGoal(rate, latency, samples=samples)
        table = analyze.inference_capacity(
            by_name[model], by_node[node], goal, batches=_SERVED_BATCHES
        )
        where = as_source(source).joined(model, f"{samples:,} samples per query")
        return plot.inference_capacity(table, source=where, synthetic=synthetic)

    rates: list[tuple[str, object]] = [(f"{n:,}/s", n) for n in (10_000, 50_000, 250_000, 10**6)]
    return Explorer(
        draw,
        model=widgets.Dropdown(options=list(by_name), description="model"),
        node=widgets.Dropdown(options=list(by_node), description="node"),
        rate=slider("queries", rates, 250_000),
        latency=_steps("latency", (5, 10, 30, 100), 30, " ms"),
    )


def length_shares(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose documents, cut them at a context, draw the long ones more often.

    Controls above :func:`workbench.plot.length_shares`.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    """
    sets, documents_control = _named(lengths)

    def draw(*, documents: str, context_k: int, long_ratio: float) -> go.Figure:
        table = sets[documents]
        if long_ratio != 1:
            tokens = min(int(table["length_tokens"].sum()), 200_000_000)
            table = analyze.sample_documents(table, token_count=tokens, long_ratio=long_ratio)
        shares = analyze.length_shares(table, cut_tokens=context_k * _K or None)
        return plot.length_shares(shares, source=source, synthetic=synthetic)

    cuts: list[tuple[str, object]] = [("never", 0), ("32K", 32), ("64K", 64), ("128K", 128)]
    return Explorer(
        draw,
        documents=documents_control,
        context_k=slider("cut at", cuts, 0),
        long_ratio=_steps("long ones", (1.0, 1.5, 2.0, 4.0), 1.0, "x"),
    )


def packing_balance(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose lengths, context, queues and memory; compare ways of packing them.

    Starts at the case of WLB-LLM's Table 2: 7B at 128K, two queues.

    Controls above :func:`workbench.plot.packing_balance`,
    :func:`workbench.plot.micro_batches` and :func:`workbench.plot.packing_queues`.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    """
    sets, documents_control = _named(lengths)
    stream = _streams(sets, 150)
    label: dict[str, Any] = {"source": source, "synthetic": synthetic}

    def draw(*, view: Any, documents: str, window: int, context_k: int, **chosen: Any) -> go.Figure:
        plan = replace(_plan(context_k, **chosen), window_batches=window)
        documents_drawn = stream(documents, context_k, plan.batch_sequences)
        delayed = replace(plan, strategy="delay queues")
        if view == "queues":
            return plot.packing_queues(analyze.packing(documents_drawn, delayed).queues, **label)
        if view != "balance":
            packing = analyze.packing(documents_drawn, replace(plan, strategy=view))
            return plot.micro_batches(analyze.micro_batches(packing), **label)
        plain, *ways = analyze.packing_plans(plan, sorted({1, window}))
        plans = (plain, replace(plan, strategy="best fit"), *ways)
        packed = [analyze.packing(documents_drawn, way) for way in plans]
        return plot.packing_balance(analyze.packing_balance(packed), **label)

    views = [
        ("ways of packing", "balance"),
        ("micro-batches, plain", "plain"),
        ("micro-batches, greedy", "greedy"),
        ("micro-batches, delay queues", "delay queues"),
        ("queues", "queues"),
    ]
    return Explorer(
        draw,
        view=widgets.Dropdown(options=views, description="view"),
        documents=documents_control,
        context_k=_steps("context", (32, 64, 128, 160), 128, "K"),
        crossover_k=_steps("crossover", (8, 16, 28, 49, 64, 96, 128), 28, "K"),
        window=_steps("window", (1, 2, 4, 8), 4),
        queues=widgets.Dropdown(
            options=list(_QUEUES), value="1/4, 1/2", description="queues from (of context)"
        ),
        memory=_steps("memory", (1.1, 1.25, 1.5, 2.0), 1.25, "x"),
    )


def _typical(packing: Packing, shape: Parallelism) -> pd.DataFrame:
    """Lay out the step with the median pipeline bubble."""
    costs = analyze.micro_batch_costs(analyze.context_sharding(packing, ranks=shape.context))
    steps = analyze.training_steps(costs, shape).sort_values("bubble_share")
    batch = int(steps["batch"].iloc[len(steps) // 2])
    return analyze.pipeline(costs, shape, batch=batch, version=packing.plan.strategy)


def row_sharding(
    popularities: Mapping[str, pd.DataFrame], *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose popularity, units and copies; see how many hot rows must be treated apart.

    Starts with the first popularity, 256 units and a cache for the hot rows.

    Controls above :func:`workbench.plot.row_sharding`. LPT places 4,000 rows one by
    one. A hundred thousand rows answer within a tenth of a second, a million take longer
    the first time.

    Parameters
    ----------
    popularities
        Tables :data:`workbench.tables.ROW_POPULARITY` by the name to choose them by, e.g.
        ``{"Zipf 0.9": simulate.row_popularity(100_000, 0.9)}``.

    Raises
    ------
    WorkbenchError
        If there is no popularity to choose.
    TableError
        If one is not a table of popularity.
    """
    by_name: object = popularities
    if not isinstance(by_name, Mapping) or not by_name:
        msg = "no popularities to choose from; pass {name: simulate.row_popularity(...)}"
        raise WorkbenchError(msg)
    tables = {name: ROW_POPULARITY.check(table, name) for name, table in by_name.items()}

    @cache
    def placed(name: str, units: int, copies: int) -> pd.DataFrame:
        return analyze.row_sharding(
            tables[name], units=units, copies=copies, hot_rows=_HOT_ROWS, lpt_rows=_LPT_ROWS
        )

    def draw(*, popularity: str, units: int, copies: int) -> go.Figure:
        where = as_source(source).joined(str(popularity))
        table = placed(popularity, units, copies)
        return plot.row_sharding(table, source=where, synthetic=synthetic)

    copies = [("none, a cache", 0), ("2", 2), ("8", 8), ("32", 32)]
    return Explorer(
        draw,
        popularity=widgets.Dropdown(options=list(tables), description="popularity"),
        units=widgets.SelectionSlider(options=[64, 256, 1024], value=256, description="units"),
        copies=widgets.Dropdown(options=copies, description="copies of hot rows"),
    )


def table_sharding(
    tables: pd.DataFrame,
    *,
    assumptions: ShardingAssumptions = _DEFAULT,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose ranks, planner and how tables are cut; see which rank the others wait for.

    Starts with whole tables on 256 ranks, where the largest table is the bound.

    Controls above :func:`workbench.plot.table_sharding`. Rows over all ranks are left
    out: every rank then has a part of every table, and no choice remains.

    Parameters
    ----------
    tables
        Table :data:`workbench.tables.EMBEDDING_TABLES`.
    assumptions
        Batch, bandwidths and memory, as for :func:`workbench.analyze.table_sharding`.

    Raises
    ------
    TableError
        If ``tables`` is not a table of embedding tables.
    """
    EMBEDDING_TABLES.check(tables)

    def draw(**chosen: Any) -> go.Figure:
        shards = analyze.table_sharding(tables, assumptions=assumptions, **chosen)
        imbalance = None
        if len(shards):
            imbalance = analyze.load_imbalance(analyze.shard_balance(shards)["perf_ms"])
            imbalance = imbalance[imbalance["measure"].isin(_TORCHREC)]
        return plot.table_sharding(shards, imbalance=imbalance, source=source, synthetic=synthetic)

    schemes = [
        ("whole tables", "table"),
        ("columns where needed", "auto-column"),
        ("columns of all tables", "column"),
        ("rows within a host", "table-row"),
    ]
    planners = [("largest first", "greedy"), ("in order", "in order"), ("anywhere", "random")]
    loads = [("estimated time", "perf"), ("bytes", "size"), ("columns", "dim")]
    loads.append(("columns × look-ups", "lookup"))
    return Explorer(
        draw,
        ranks=widgets.SelectionSlider(options=[64, 256], value=256, description="ranks"),
        scheme=widgets.Dropdown(options=schemes, description="split tables by"),
        planner=widgets.Dropdown(options=planners, description="place tables by"),
        balance_by=widgets.Dropdown(options=loads, description="balance"),
    )


def training_speed(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose lengths, context, crossover and parallelism; compare recipes.

    Starts at 7B-128K of WLB-LLM, with the crossover that FLOPs give.

    Controls above :func:`workbench.plot.training_speed` and :func:`workbench.plot.pipeline`:
    plain packing and delay queues, each in the step whose idle share is the median of all.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    """
    sets, documents_control = _named(lengths)
    stream = _streams(sets, 48)

    def planned(context_k: int, crossover_k: int, stages: int) -> PackingPlan:
        return _plan(context_k, crossover_k, queues="1/4, 1/2", sequences=stages)

    @cache
    def packed(documents: str, context_k: int, crossover_k: int, stages: int) -> list[Packing]:
        plan = planned(context_k, crossover_k, stages)
        drawn = stream(documents, context_k, stages)
        ways: list[dict[str, Any]] = [
            {"strategy": "plain"}, {"strategy": "greedy", "window_batches": 1},
            {"strategy": "delay queues"},
        ]  # fmt: skip
        return [analyze.packing(drawn, replace(plan, **way)) for way in ways]

    def draw(
        *, view: str, documents: str, context_k: int, crossover_k: int, chunks: int, **sizes: int
    ) -> go.Figure:
        stages = sizes["stages"]
        packings = packed(documents, context_k, crossover_k, stages)
        shape = Parallelism(pipeline=stages, context=sizes["ranks"], chunks=chunks)
        if view == "step":
            tasks = pd.concat([_typical(way, shape) for way in (packings[0], packings[-1])])
            tasks = tasks.reset_index(drop=True).astype({"version": "category"})
            return plot.pipeline(tasks, source=source, synthetic=synthetic)
        plan = planned(context_k, crossover_k, stages)
        speed = analyze.training_speed(packings, plan, shape)
        return plot.training_speed(speed, source=source, synthetic=synthetic)

    views = [("gain of each recipe", "gain"), ("a typical step", "step")]
    return Explorer(
        draw,
        view=widgets.Dropdown(options=views, description="view"),
        documents=documents_control,
        context_k=_steps("context", (64, 128), 128, "K"),
        crossover_k=_steps("crossover", (28, 49, 98), 49, "K"),
        stages=_steps("stages", (2, 4, 8), 4),
        chunks=_steps("chunks per stage", (1, 2, 4), 2),
        ranks=_steps("context ranks", (2, 4, 8), 2),
    )
