"""Explore communication: collectives by place and on a network of levels, start-up, goodput."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import COLLECTIVE_ALGORITHMS, FaultTolerance
from workbench.explore.panel import Explorer, choice, chosen_rows, numbers, slider
from workbench.plot._style.text import size
from workbench.tables import Source

_RANKS = (8, 32, 128, 512, 2_048, 8_192, 16_384, 32_768, 65_536, 98_304, 131_072, 200_000)
_SIZES = tuple(10**power * lead for power in range(3, 11) for lead in (1, 4))
_NCCL = ("ring", "tree", "PAT", "direct")
_MODEL = Source("closed form on levels of a network", "model")
_STARTUP = Source("start-up times of arXiv:2510.20171 and others; goodput in closed form", "model")


def collective_scaling(levels: pd.DataFrame | None = None) -> Explorer:
    """Choose collective, size, algorithms, latency and oversubscription; see time by ranks.

    Starts with an all-reduce of 64 MB on 8 to 200,000 ranks.

    Parameters
    ----------
    levels
        Table :data:`workbench.tables.NETWORK_LEVELS`; by default that of
        :func:`workbench.analyze.network_levels`.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.collective_scaling`.

    Examples
    --------
    >>> explorer = collective_scaling()
    >>> print(explorer.title())
    all-reduce of 64 MB, 200,000 ranks: 1.24 ms by recursive doubling, 51 % of it latency
    """
    network = analyze.network_levels() if levels is None else levels
    outer = network.index != network.index[0]

    def draw(
        *, collective: str, size_bytes: int, compared: str, latency: float, oversubscribed: float
    ) -> go.Figure:
        changed = network.assign(
            latency_us=network["latency_us"].where(~outer, network["latency_us"] * latency),
            oversubscription_ratio=network["oversubscription_ratio"].mask(
                network["oversubscription_ratio"] > 1, oversubscribed
            ),
        )
        named = _NCCL if compared == "NCCL" else None
        rows = analyze.collective_scaling(
            _RANKS, [size_bytes], collective=collective, levels=changed, algorithms=named
        )
        return plot.collective_scaling(rows, source=_MODEL)

    return Explorer(
        draw,
        collective=widgets.Dropdown(options=list(COLLECTIVE_ALGORITHMS), description="collective"),
        size_bytes=slider(
            "size", [(size(n), n) for n in sorted({*_SIZES, 64_000_000})], 64_000_000
        ),
        compared=widgets.Dropdown(
            options=[("all", "all"), ("those of NCCL", "NCCL")], description="algorithms"
        ),
        latency=numbers("latency beyond the node [times]", (0.25, 0.5, 1, 2, 4), 1),
        oversubscribed=numbers("oversubscription", (1, 2, 2.8, 4, 7, 10), 2.8),
    )


def place_bandwidth(
    collectives: pd.DataFrame,
    *,
    places: pd.DataFrame | None = None,
    gpus_per_node: int = 8,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose a view, the operation and the smallest size; see which node has slow links.

    Starts with the bandwidth between nodes over all operations of 1 MB and more.

    Parameters
    ----------
    collectives
        Table :data:`workbench.tables.COLLECTIVES` of :func:`workbench.analyze.collectives`.
    places, gpus_per_node
        As for :func:`workbench.analyze.collective_bandwidth`.
    source, synthetic
        Where the data comes from, and whether it was generated; the figure says both.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.place_bandwidth` and
        :func:`workbench.plot.slow_links`.

    Examples
    --------
    >>> from workbench import analyze, datasets, load
    >>> trace = load.traces(datasets.path("fleet-demo") / "traces")
    >>> collectives = analyze.collectives(trace.events, process_groups=trace.process_groups)
    >>> explorer = place_bandwidth(collectives, gpus_per_node=4, synthetic=True)
    >>> print(explorer.title())
    No node is slow with all others: pairs of nodes reach at least 100 % of the best pair
    """
    by_place = {
        name: partial(function, places=places, gpus_per_node=gpus_per_node)
        for name, function in (
            ("bandwidth between nodes", analyze.place_bandwidth),
            ("slow links", analyze.slow_links),
        )
    }
    figures = dict(zip(by_place, (plot.place_bandwidth, plot.slow_links), strict=True))
    bandwidth = cache(
        partial(
            analyze.collective_bandwidth, collectives, places=places, gpus_per_node=gpus_per_node
        )
    )

    def draw(*, view: str, operation: str, least_bytes: int) -> go.Figure:
        rows = chosen_rows(bandwidth(), operation=operation)
        table = by_place[view](rows, least_bytes=least_bytes)
        return figures[view](table, source=source, synthetic=synthetic)

    return Explorer(
        draw,
        view=widgets.Dropdown(options=list(by_place), description="view"),
        operation=choice("operation", list(COLLECTIVE_ALGORITHMS)),
        least_bytes=slider("least size", [(size(n), n) for n in _SIZES], 1_000_000),
    )


def startup_goodput(job: FaultTolerance | None = None) -> Explorer:
    """Move failure rate, rest of the recovery and replicas; see what start-ups cost by size.

    Parameters
    ----------
    job
        How the job answers a failure, without the start-up; by default it restarts whole in 5 min.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.startup_goodput`.

    Examples
    --------
    >>> explorer = startup_goodput()
    >>> print(explorer.title())
    In doubt: Starting NCCL on 200,000 GPUs (12.1 min) costs 42 % of the GPU time, NCCLX 3.9 %
    """
    base = FaultTolerance(recovery_min=5.0, stall_min=0.0, replicas=1) if job is None else job
    startup = cache(lambda: analyze.startup_time(_RANKS[5:]))

    def draw(*, rate: float, recovery: float, replicas: float) -> go.Figure:
        changed = replace(base, recovery_min=recovery, replicas=int(replicas))
        rows = analyze.startup_goodput(startup(), changed, failures_per_1000_node_days=rate)
        return plot.startup_goodput(rows, source=_STARTUP)

    return Explorer(
        draw,
        rate=numbers("failures per 1,000 node-days", (0.5, 1, 2.3, 3.79, 6.5, 13), 6.5),
        recovery=numbers("rest of the recovery [min]", range(21), base.recovery_total_min),
        replicas=numbers("replicas", (1, 2, 4, 8, 12, 16, 32), base.replicas),
    )
