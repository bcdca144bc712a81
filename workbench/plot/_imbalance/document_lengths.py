"""Document lengths: how many are long, and what the long ones hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.dots import log_ticks
from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import distinct, finish, nothing
from workbench.plot._style.text import percent
from workbench.tables import LENGTH_SHARES

_LINES = (
    ("longer_share", "documents longer than this"),
    ("token_share", "tokens in documents up to this"),
    ("square_share", "attention (squared length) up to this"),
)


def length_shares(shares: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how many documents are longer than a length, and what the shorter ones hold.

    Parameters
    ----------
    shares
        Table :data:`workbench.tables.LENGTH_SHARES`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Three lines over a logarithmic axis of lengths. The title states what the longest
        1 % of the documents hold.
    """
    LENGTH_SHARES.check(shares)
    if shares.empty:
        return nothing(
            "The table has no documents; load.document_lengths reads them from a file.",
            claim="No document lengths to show",
            source=source,
            synthetic=synthetic,
        )
    figure = go.Figure()
    length = shares["length_tokens"].to_numpy()
    for position, (name, words) in enumerate(_LINES):
        values = shares[name].to_numpy()
        kept = _thinned(values)
        figure.add_scatter(
            mode="lines" if len(length) > 1 else "markers",
            x=length[kept],
            y=values[kept],
            name=words,
            line={"width": 2, **distinct(position)},
            marker={"symbol": position, "size": 10, "color": distinct(position)["color"]},
            hovertemplate=words + ": %{y:.2%}<br>%{x:,} tokens<extra></extra>",
        )
    figure.update_xaxes(title="length of a document [tokens]", type="log")
    figure.update_xaxes(**log_ticks(length.astype(np.float64)))
    figure.update_yaxes(title="share [%]", tickformat=".0%", range=[-0.02, 1.02])
    return finish(figure, claim=_claim(shares), source=source, synthetic=synthetic)


def _thinned(values: np.ndarray) -> np.ndarray:
    # Steps of a cumulative share: its highest and lowest point per bucket are its ends.
    return extremes(values, 400)


def _claim(shares: pd.DataFrame) -> str:
    # What documents longer than a length hold, by the share of documents that are longer.
    longer = np.append(shares["longer_share"].to_numpy()[1:], 0.0)[::-1]
    tokens, squares = (
        float(np.interp(0.01, [*longer, 1.0], [*(1 - shares[name].to_numpy())[::-1], 1.0]))
        for name in ("token_share", "square_share")
    )
    return (
        f"The longest 1 % of documents hold {percent(tokens)} of the tokens and "
        f"{percent(squares)} of the attention"
    )
