"""Explore communication: collectives, start-up, compressed exchange, training by regions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import ipywidgets as widgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import COLLECTIVE_ALGORITHMS, FaultTolerance, LocalTrainingJob
from workbench.explore.panel import Explorer, choice, chosen_rows, numbers, slider
from workbench.plot._style.text import size
from workbench.tables import EmbeddingOutputs, Regions, Source

_RANKS = (8, 32, 128, 512, 2_048, 8_192, 16_384, 32_768, 65_536, 98_304, 131_072, 200_000)
_SIZES = tuple(10**power * lead for power in range(3, 11) for lead in (1, 4))
_NCCL = ("ring", "tree", "PAT", "direct")
_MODEL = Source("closed form on levels of a network", "model")
_STARTUP = Source("start-up times of arXiv:2510.20171 and others; goodput in closed form", "model")


def collective_scaling(levels: pd.DataFrame | None = None) -> Explorer:
    """Choose collective, size, algorithms, latency and oversubscription; see time by ranks.

    Starts with an all-reduce of 64 MB on 8 to 200,000 ranks.

    Controls above :func:`workbench.plot.collective_scaling`.

    Parameters
    ----------
    levels
        Table :data:`workbench.tables.NETWORK_LEVELS`; by default that of
        :func:`workbench.analyze.network_levels`.
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

    Controls above :func:`workbench.plot.place_bandwidth` and
    :func:`workbench.plot.slow_links`.

    Parameters
    ----------
    collectives
        Table :data:`workbench.tables.COLLECTIVES` of :func:`workbench.analyze.collectives`.
    places, gpus_per_node
        As for :func:`workbench.analyze.collective_bandwidth`.
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

    Controls above :func:`workbench.plot.startup_goodput`.

    Parameters
    ----------
    job
        How the job answers a failure, without the start-up; by default it restarts whole in 5 min.
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


# Explore a compressed exchange: bound, destinations, link, codec and share of the step.

_BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
_LINKS = (0.125, 0.25, 0.5, 1, 2, 3, 6, 12.5, 25, 50, 100)
_CODECS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_DESTINATIONS = tuple(2**power for power in range(15))


def compression_speedup(
    outputs: EmbeddingOutputs, *, source: str = "", synthetic: bool = False
) -> Explorer:
    """Move bound, destinations, link, codec and share; see whether compression pays.

    Bounds are relative to the scale of each table. Starts at 32 destinations, one core of a CPU
    and a link of 100 Gbit/s, where it does not pay.

    Controls above :func:`workbench.plot.compression_speedup`.

    Parameters
    ----------
    outputs
        From :func:`workbench.load.embedding_outputs`.
    source, synthetic
        Where the outputs come from, printed under the figure; whether they were generated.
    """
    origin = source or Source("closed form on embedding outputs", "model")

    @cache
    def ratio(bound: float, destinations: int) -> float:
        bounds = analyze.table_bounds(outputs, bound_ratio=bound)
        table = analyze.compression(
            outputs, bounds=bounds, destinations=[destinations], by_table=False
        )
        return float(table.loc[table["stage"] == "zstd", "ratio"].iloc[0])

    def draw(
        *, bound: float, destinations: float, link: float, codec: float, share: float
    ) -> go.Figure:
        table = analyze.compression_speedup(
            [ratio(bound, int(destinations))], communication_shares=[share],
            link_gb_per_s=_LINKS, compress_gb_per_s=[codec, np.inf],
        )  # fmt: skip
        return plot.compression_speedup(table, at_gb_per_s=link, source=origin, synthetic=synthetic)

    offered = [count for count in _DESTINATIONS if count <= outputs.row_count]
    start = min(32, offered[-1])
    return Explorer(
        draw,
        bound=numbers("bound over scale of a table", _BOUNDS, 0.1),
        destinations=numbers("destinations", offered, start),
        link=numbers("link of a rank [GB/s]", _LINKS, 12.5),
        codec=numbers("codec [GB/s]", _CODECS, 1),
        share=numbers("exchange, share of the step", _SHARES, 0.6),
    )


# Explore training across regions: which scheme, how many local steps, over which links.

_FACTORS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16)
_LOCAL_STEPS, _HALOS_STEPS = (4, 8, 16, 32, 64, 128, 256, 512), (1, 2, 4, 8, 16, 32)
_AROUND = (0.25, 0.5, 1, 2, 4, 16)
_VIEWS = (("time of the workers", "rate"), ("links", "link factor"), ("local steps", "local steps"))


def local_training_rate(
    regions: Regions,
    job: LocalTrainingJob | None = None,
    *,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Move links, local steps, size of the model and speeds; see the fastest scheme and why.

    Starts at the regions and the job as they are.

    Controls above :func:`workbench.plot.local_training_rate` and
    :func:`workbench.plot.local_training_sweep`.

    Parameters
    ----------
    regions
        From :func:`workbench.load.regions`.
    job
        Size of the model, length of a step and settings of the schemes; by default those of the
        examples of HALoS.
    source, synthetic
        Where the regions come from, printed under the figure; whether they were generated.
    """
    base = job or LocalTrainingJob()
    origin = source or Source("closed form", "model")
    label: dict[str, Any] = {"source": origin, "synthetic": synthetic}

    def draw(
        *,
        view: Literal["rate", "link factor", "local steps"],
        link: float,
        speeds: bool,
        local_steps: float,
        halos_steps: float,
        size: float,
    ) -> go.Figure:
        changed = analyze.scaled_regions(regions, link_factor=link, has_equal_speeds=speeds)
        asked = replace(
            base,
            local_steps=int(local_steps),
            halos_steps=int(halos_steps),
            # Twice the parameters take twice the time to compute and to transfer.
            parameter_count=max(round(base.parameter_count * size), 1),
            step_s=base.step_s * size,
        )
        if view == "rate":
            return plot.local_training_rate(analyze.local_training_rate(changed, asked), **label)
        values = _FACTORS if view == "link factor" else _LOCAL_STEPS
        table = analyze.local_training_sweep(changed, view, values, job=asked)
        return plot.local_training_sweep(table, **label)

    return Explorer(
        draw,
        view=widgets.Dropdown(options=_VIEWS, description="view"),
        link=numbers("links between regions, times", _FACTORS, 1),
        speeds=widgets.Dropdown(
            options=[("as given", False), ("all as the fastest", True)], description="speeds"
        ),
        local_steps=numbers("local steps, others", _LOCAL_STEPS, base.local_steps),
        halos_steps=numbers("local steps, HALoS", _HALOS_STEPS, base.halos_steps),
        size=numbers("model and step, times", _AROUND, 1),
    )
