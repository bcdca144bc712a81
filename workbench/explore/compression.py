"""Explore a compressed exchange: bound, destinations, link, codec and share of the step."""

from __future__ import annotations

from functools import cache

import numpy as np
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore.panel import Explorer, numbers
from workbench.tables import EmbeddingOutputs, Source

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

    Parameters
    ----------
    outputs
        From :func:`workbench.load.embedding_outputs`.
    source, synthetic
        Where the outputs come from, printed under the figure; whether they were generated.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.compression_speedup`.

    Examples
    --------
    >>> from workbench import simulate
    >>> outputs = simulate.embedding_outputs(row_count=256)
    >>> explorer = compression_speedup(outputs, source="simulated outputs", synthetic=True)
    >>> print(explorer.title())
    At 12.5 GB/s a ratio of 6.44 does not pay: a step takes 10.5 times as long (60 % is exchange);
    compression pays up to 0.634 GB/s
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
