"""Explore who holds the tokens, and who holds the attention."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.explore._controls import slider
from workbench.explore._lengths import K, Lengths, named, set_choice
from workbench.explore._panel import Explorer


def length_shares(lengths: Lengths, *, source: str = "", synthetic: bool = False) -> Explorer:
    """Choose documents, cut them at a context, draw the long ones more often.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`, or several by name.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.length_shares`.
    """
    sets = named(lengths)
    return Explorer(
        partial(_draw, sets=sets, label={"source": source, "synthetic": synthetic}),
        documents=set_choice(sets),
        context_k=slider(
            "cut at", [("never", 0), *((f"{each}K", each) for each in (32, 64, 128))], 0
        ),
        long_ratio=slider(
            "long ones", [(f"{each:g}x", each) for each in (1.0, 1.5, 2.0, 4.0)], 1.0
        ),
    )


def _draw(
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
