"""Explore unequal loads: packing, sharding, pipelines and embedding tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import Packing, PackingPlan, Parallelism, ShardingAssumptions
from workbench.errors import WorkbenchError
from workbench.explore.panel import Explorer, slider
from workbench.tables import EMBEDDING_TABLES, ROW_POPULARITY, as_source

# What the explorers of the packing lab share: data sets by name, streams of documents.

K = 1024
_MOST_DOCUMENTS = 60_000
# Thresholds of the queues as shares of the context, by how they are called.
QUEUES: Mapping[str, tuple[float, ...]] = {
    "no queue": (),
    "1/4": (1 / 4,),
    "1/4, 1/2": (1 / 4, 1 / 2),
    "1/4, 1/2, 3/4": (1 / 4, 1 / 2, 3 / 4),
    "1/16 (too low for long tails)": (1 / 16,),
}

Lengths = pd.DataFrame | Mapping[str, pd.DataFrame]
Stream = Callable[[str, int, int], pd.DataFrame]


def named(lengths: Lengths) -> dict[str, pd.DataFrame]:
    """Give data sets a name each; a single one is called documents."""
    sets = {"documents": lengths} if isinstance(lengths, pd.DataFrame) else dict(lengths)
    if not sets:
        msg = "no lengths to explore; pass a table of load.document_lengths, or several by name"
        raise WorkbenchError(msg)
    return sets


def streams(sets: Mapping[str, pd.DataFrame], batches: int) -> Stream:
    """Return a function that draws a stream of some global batches, and remembers it."""

    @lru_cache(maxsize=32)
    def draw(name: str, context_k: int, sequences: int) -> pd.DataFrame:
        whole = sequences * context_k * K
        # Short documents would be millions; fewer batches of them say as much.
        affordable = int(_MOST_DOCUMENTS * float(sets[name]["length_tokens"].mean()))
        tokens = max(min(batches * whole, affordable), 12 * whole)
        return analyze.sample_documents(sets[name], token_count=tokens)

    return draw


def set_choice(sets: Mapping[str, pd.DataFrame]) -> widgets.Dropdown:
    """Offer the data sets."""
    return widgets.Dropdown(options=list(sets), description="documents")


def context_choice(*, values: tuple[int, ...] = (32, 64, 128, 160)) -> widgets.SelectionSlider:
    """Offer contexts in thousands of tokens."""
    return slider("context", [(f"{each}K", each) for each in values], 128)


def crossover_choice(*, values: tuple[int, ...], value: int) -> widgets.SelectionSlider:
    """Offer lengths at which attention overtakes the rest, in thousands of tokens."""
    return slider("crossover", [(f"{each}K", each) for each in values], value)


def plan_of(
    *, context_k: int, crossover_k: float, queues: str, memory: float, sequences: int = 4
) -> PackingPlan:
    """Make a plan of what the controls say."""
    context = context_k * K
    return PackingPlan(
        context_tokens=context,
        batch_sequences=sequences,
        crossover_tokens=crossover_k * K,
        queues_from_tokens=tuple(int(share * context) for share in QUEUES[queues]),
        memory_ratio=memory,
    )


# Explore how the attention of a micro-batch is shared among ranks.


def context_sharding(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose ranks and what short kernels lose; compare ways of cutting the attention.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.context_sharding` and, for the micro-batch that
        is cut worst, :func:`workbench.plot.context_chunks`.
    """
    sets = named(lengths)
    stream = streams(sets, 60)

    @lru_cache(maxsize=8)
    def packed(documents: str) -> Packing:
        plan = plan_of(context_k=128, crossover_k=49, queues="no queue", memory=1.25)
        return analyze.packing(stream(documents, 128, plan.batch_sequences), plan)

    return Explorer(
        partial(_draw, packed=packed, label={"source": source, "synthetic": synthetic}),
        view=widgets.Dropdown(
            options=[
                ("all ways", "all"),
                ("worst micro-batch, per sequence", "per sequence"),
                ("the same, per document", "per document"),
                ("the same, hybrid", "hybrid"),
            ],
            description="view",
        ),
        documents=set_choice(sets),
        ranks=slider("context ranks", [(str(each), each) for each in (2, 4, 8, 16)], 4),
        launch=slider(
            "lost per kernel", [(f"{each} queries", each) for each in (0, 512, 1024)], 512
        ),
    )


def _draw(
    *, view: str, documents: str, ranks: int, launch: int, packed: object, label: dict[str, Any]
) -> go.Figure:
    packing: Packing = packed(documents)  # type: ignore[operator]
    sharding = analyze.context_sharding(packing, ranks=ranks, launch_tokens=launch)
    if view == "all":
        return plot.context_sharding(sharding, **label)
    worst = sharding.iloc[int(sharding["per_sequence_ratio"].to_numpy().argmax())]
    pieces = packing.documents
    mine = (pieces["batch"] == worst["batch"]) & (pieces["micro_batch"] == worst["micro_batch"])
    chunks = analyze.context_chunks(
        pieces.loc[mine, ["length_tokens"]].reset_index(drop=True),
        ranks=ranks,
        strategy=view,  # type: ignore[arg-type]
        launch_tokens=launch,
    )
    return plot.context_chunks(chunks, **label)


# Explore who holds the tokens, and who holds the attention.


def length_shares(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose documents, cut them at a context, draw the long ones more often.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.length_shares`.
    """
    sets = named(lengths)
    return Explorer(
        partial(_length_shares_draw, sets=sets, label={"source": source, "synthetic": synthetic}),
        documents=set_choice(sets),
        context_k=slider(
            "cut at", [("never", 0), *((f"{each}K", each) for each in (32, 64, 128))], 0
        ),
        long_ratio=slider(
            "long ones", [(f"{each:g}x", each) for each in (1.0, 1.5, 2.0, 4.0)], 1.0
        ),
    )


def _length_shares_draw(
    *,
    documents: str,
    context_k: int,
    long_ratio: float,
    sets: Mapping[str, pd.DataFrame],
    label: dict[str, Any],
) -> go.Figure:
    table = sets[documents]
    if long_ratio != 1:
        tokens = min(int(table["length_tokens"].sum()), 200_000_000)
        table = analyze.sample_documents(table, token_count=tokens, long_ratio=long_ratio)
    shares = analyze.length_shares(table, cut_tokens=context_k * K or None)
    return plot.length_shares(shares, **label)


# The packing lab: which documents share a micro-batch, and how even that is.


def packing_balance(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose lengths, context, queues and memory; compare ways of packing them.

    Starts at the case of WLB-LLM's Table 2: 7B at 128K, two queues.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.packing_balance`,
        :func:`workbench.plot.micro_batches` and :func:`workbench.plot.packing_queues`.
    """
    sets = named(lengths)
    return Explorer(
        partial(
            _packing_balance_draw,
            stream=streams(sets, 150),
            label={"source": source, "synthetic": synthetic},
        ),
        view=widgets.Dropdown(
            options=[
                ("ways of packing", "balance"),
                ("micro-batches, plain", "plain"),
                ("micro-batches, greedy", "greedy"),
                ("micro-batches, delay queues", "delay queues"),
                ("queues", "queues"),
            ],
            description="view",
        ),
        documents=set_choice(sets),
        context_k=context_choice(),
        crossover_k=crossover_choice(values=(8, 16, 28, 49, 64, 96, 128), value=28),
        window=slider("window", [(str(each), each) for each in (1, 2, 4, 8)], 4),
        queues=widgets.Dropdown(
            options=list(QUEUES), value="1/4, 1/2", description="queues from (of context)"
        ),
        memory=slider("memory", [(f"{each:g}x", each) for each in (1.1, 1.25, 1.5, 2.0)], 1.25),
    )


def _packing_balance_draw(
    *,
    view: Any,
    documents: str,
    context_k: int,
    crossover_k: int,
    window: int,
    queues: str,
    memory: float,
    stream: Stream,
    label: dict[str, Any],
) -> go.Figure:
    plan = plan_of(context_k=context_k, crossover_k=crossover_k, queues=queues, memory=memory)
    lengths = stream(documents, context_k, plan.batch_sequences)
    plan = replace(plan, window_batches=window)
    delayed = replace(plan, strategy="delay queues")
    if view == "queues":
        return plot.packing_queues(analyze.packing(lengths, delayed).queues, **label)
    if view != "balance":
        one = analyze.packing(lengths, replace(plan, strategy=view))
        return plot.micro_batches(analyze.micro_batches(one), **label)
    plans = (
        replace(plan, strategy="plain"),
        replace(plan, strategy="best fit"),
        replace(plan, strategy="greedy", window_batches=1),
        *((replace(plan, strategy="greedy"),) if window > 1 else ()),
        *((replace(delayed, queues_from_tokens=()),) if plan.queues_from_tokens else ()),
        delayed,
    )
    packed = [analyze.packing(lengths, each) for each in plans]
    return plot.packing_balance(analyze.packing_balance(packed), **label)


# Explore a training step on a pipeline, before and after another packing.


def pipeline(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose stages and chunks; see a typical step with plain packing and with delay queues.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.pipeline`: for each packing the step whose idle
        share is the median of all steps.
    """
    sets = named(lengths)
    return Explorer(
        partial(
            _pipeline_draw,
            stream=streams(sets, 60),
            label={"source": source, "synthetic": synthetic},
        ),
        documents=set_choice(sets),
        context_k=context_choice(values=(64, 128)),
        stages=slider("stages", [(str(each), each) for each in (2, 4, 8)], 4),
        chunks=slider("chunks per stage", [(str(each), each) for each in (1, 2, 4)], 1),
    )


def _pipeline_draw(
    *,
    documents: str,
    context_k: int,
    stages: int,
    chunks: int,
    stream: Stream,
    label: dict[str, Any],
) -> go.Figure:
    plan = plan_of(
        context_k=context_k, crossover_k=49, queues="1/4, 1/2", memory=1.25, sequences=stages
    )
    shape = Parallelism(pipeline=stages, chunks=chunks)
    lengths = stream(documents, context_k, stages)
    both = [_typical(lengths, plan, shape, "plain"), _typical(lengths, plan, shape, "delay queues")]
    tasks = pd.concat(both, ignore_index=True)
    return plot.pipeline(tasks.astype({"version": "category"}), **label)


def _typical(
    lengths: pd.DataFrame, plan: PackingPlan, shape: Parallelism, strategy: str
) -> pd.DataFrame:
    packed = analyze.packing(lengths, replace(plan, strategy=strategy))  # type: ignore[arg-type]
    costs = analyze.micro_batch_costs(analyze.context_sharding(packed, ranks=shape.context))
    steps = analyze.training_steps(costs, shape).sort_values("bubble_share")
    batch = int(steps["batch"].iloc[len(steps) // 2])
    return analyze.pipeline(costs, shape, batch=batch, version=strategy)


# Explore how rows of unequal popularity load memory units, and what a cache or copies change.

_HOT_ROWS = (0, 1, 4, 16, 64, 256)
_LPT_ROWS = 4_000  # fewer than the analysis places one by one, for an answer at once


def row_sharding(
    popularities: Mapping[str, pd.DataFrame], *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Choose popularity, units and copies; see how many hot rows must be treated apart.

    Starts with the first popularity, 256 units and a cache for the hot rows.

    Parameters
    ----------
    popularities
        Tables :data:`workbench.tables.ROW_POPULARITY` by the name to choose them by, e.g.
        ``{"Zipf 0.9": simulate.row_popularity(100_000, 0.9)}``.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.row_sharding`. LPT places 4,000 rows one by
        one. A hundred thousand rows answer within a tenth of a second, a million take longer
        the first time.

    Raises
    ------
    WorkbenchError
        If there is no popularity to choose.
    TableError
        If one is no table of popularity.
    """
    named: object = popularities
    if not isinstance(named, Mapping) or not named:
        msg = "no popularities to choose from; pass {name: simulate.row_popularity(...)}"
        raise WorkbenchError(msg)
    tables = {name: ROW_POPULARITY.check(table, name) for name, table in named.items()}

    @cache
    def placed(name: str, units: int, copies: int) -> pd.DataFrame:
        return analyze.row_sharding(
            tables[name], units=units, copies=copies, hot_rows=_HOT_ROWS, lpt_rows=_LPT_ROWS
        )

    def draw(*, popularity: str, units: int, copies: int) -> go.Figure:
        where = as_source(source).joined(str(popularity))
        table = placed(popularity, units, copies)
        return plot.row_sharding(table, source=where, synthetic=synthetic)

    return Explorer(
        draw,
        popularity=widgets.Dropdown(options=list(tables), description="popularity"),
        units=widgets.SelectionSlider(
            options=[64, 256, 1024], value=256, continuous_update=False, description="units"
        ),
        copies=widgets.Dropdown(
            options=[("none, a cache", 0), ("2", 2), ("8", 8), ("32", 32)],
            description="copies of hot rows",
        ),
    )


# Explore how embedding tables are placed on ranks: the sharding board.

# Those that torchrec prints for a plan.
_SHOWN = ("total variation", "total distance", "chi divergence", "KL divergence")
_DEFAULT = ShardingAssumptions()


def table_sharding(
    tables: pd.DataFrame,
    *,
    assumptions: ShardingAssumptions = _DEFAULT,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose ranks, planner and how tables are cut; see which rank the others wait for.

    Starts with whole tables on 256 ranks, where the largest table is the bound.

    Parameters
    ----------
    tables
        Table :data:`workbench.tables.EMBEDDING_TABLES`.
    assumptions
        Batch, bandwidths and memory, as for :func:`workbench.analyze.table_sharding`.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.table_sharding`. Rows over all ranks are left
        out: every rank then has a part of every table, and no choice remains.

    Raises
    ------
    TableError
        If ``tables`` is no table of embedding tables.
    """
    EMBEDDING_TABLES.check(tables)
    return Explorer(
        partial(
            _table_sharding_draw,
            tables=tables,
            assumptions=assumptions,
            source=source,
            synthetic=synthetic,
        ),
        ranks=widgets.SelectionSlider(
            options=[64, 256], value=256, continuous_update=False, description="ranks"
        ),
        scheme=widgets.Dropdown(
            options=[
                ("whole tables", "table"),
                ("columns where needed", "auto-column"),
                ("columns of all tables", "column"),
                ("rows within a host", "table-row"),
            ],
            description="cut",
        ),
        planner=widgets.Dropdown(
            options=[("largest first", "greedy"), ("in order", "in order"), ("anywhere", "random")],
            description="place",
        ),
        balance_by=widgets.Dropdown(
            options=[
                ("estimated time", "perf"),
                ("bytes", "size"),
                ("columns", "dim"),
                ("columns × look-ups", "lookup"),
            ],
            description="balance",
        ),
    )


def _table_sharding_draw(
    *,
    tables: pd.DataFrame,
    assumptions: ShardingAssumptions,
    source: str,
    synthetic: bool,
    **chosen: Any,
) -> go.Figure:
    shards = analyze.table_sharding(tables, assumptions=assumptions, **chosen)
    imbalance = None
    if len(shards):
        imbalance = analyze.load_imbalance(analyze.shard_balance(shards)["perf_ms"])
        imbalance = imbalance[imbalance["measure"].isin(_SHOWN)]
    return plot.table_sharding(shards, imbalance=imbalance, source=source, synthetic=synthetic)


# Explore what packing and sharding would buy on a pipeline.


def training_speed(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose lengths, context, crossover and parallelism; compare recipes.

    Starts at 7B-128K of WLB-LLM, with the crossover that FLOPs give.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    source, synthetic
        Where the data comes from, printed under the figure; whether it was generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.training_speed`.
    """
    sets = named(lengths)
    return Explorer(
        partial(
            _training_speed_draw,
            stream=streams(sets, 48),
            label={"source": source, "synthetic": synthetic},
        ),
        documents=set_choice(sets),
        context_k=context_choice(values=(64, 128)),
        crossover_k=crossover_choice(values=(28, 49, 98), value=49),
        chunks=slider("chunks per stage", [(str(each), each) for each in (1, 2, 4)], 2),
        ranks=slider("context ranks", [(str(each), each) for each in (2, 4, 8)], 2),
    )


def _training_speed_draw(
    *,
    documents: str,
    context_k: int,
    crossover_k: int,
    chunks: int,
    ranks: int,
    stream: Stream,
    label: dict[str, Any],
) -> go.Figure:
    plan = plan_of(context_k=context_k, crossover_k=crossover_k, queues="1/4, 1/2", memory=1.25)
    shape = Parallelism(pipeline=4, context=ranks, chunks=chunks)
    lengths = stream(documents, context_k, plan.batch_sequences)
    return plot.training_speed(analyze.training_speed(lengths, plan, shape), **label)
