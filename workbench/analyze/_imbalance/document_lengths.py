"""Document lengths: who holds the tokens, who holds the attention, and streams of any size."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import DOCUMENT_LENGTHS, LENGTH_SHARES


def length_shares(lengths: pd.DataFrame, *, cut_tokens: int | None = None) -> pd.DataFrame:
    """Say for every length how many documents are longer, and what the shorter ones hold.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`.
    cut_tokens
        Cut longer documents into pieces of this length first, as packers do.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LENGTH_SHARES`: ``length_tokens`` (ascending),
        ``longer_share`` (CCDF), ``token_share`` and ``square_share`` (cumulative).

    Notes
    -----
    Attention of a document grows with its square, so a few long documents hold most of
    ``square_share`` while they hold few tokens: that is where imbalance comes from.
    """
    known = DOCUMENT_LENGTHS.check(lengths)["length_tokens"].to_numpy()
    if cut_tokens is not None:
        if cut_tokens < 1:
            msg = f"cut_tokens must be at least 1, not {cut_tokens}"
            raise WorkbenchError(msg)
        whole, rest = np.divmod(known, cut_tokens)
        known = np.concatenate([np.full(int(whole.sum()), cut_tokens), rest[rest > 0]])
    length, count = np.unique(known, return_counts=True)
    if not len(length):
        return LENGTH_SHARES.empty()
    size = length.astype(np.float64)
    tokens, squares = np.cumsum(count * size), np.cumsum(count * size * size)
    shorter = np.cumsum(count) - count
    table = pd.DataFrame(
        {
            "length_tokens": length,
            "longer_share": 1 - shorter / count.sum(),
            "token_share": np.minimum(tokens / tokens[-1], 1.0),
            "square_share": np.minimum(squares / squares[-1], 1.0),
        }
    )
    return LENGTH_SHARES.check(table)


def sample_documents(
    lengths: pd.DataFrame, *, token_count: int, seed: int = 0, long_ratio: float = 1.0
) -> pd.DataFrame:
    """Draw a stream of documents with replacement, as long as an experiment needs.

    Parameters
    ----------
    lengths
        Table :data:`workbench.tables.DOCUMENT_LENGTHS` to draw from.
    token_count
        Tokens of the stream; the last document may exceed it.
    seed
        Seed of the draw; the same seed gives the same stream.
    long_ratio
        How many times as often the longest tenth of all tokens is drawn; 1 leaves the
        distribution as it is.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`: ``length_tokens``.

    Raises
    ------
    WorkbenchError
        If there are no documents to draw from, or a number is not above 0.
    """
    known = DOCUMENT_LENGTHS.check(lengths)["length_tokens"].to_numpy()
    if not len(known) or token_count < 1 or not 0 < long_ratio < np.inf:
        msg = (
            f"cannot draw {token_count:,} tokens from {len(known):,} documents "
            f"with long_ratio {long_ratio}: all must be above 0"
        )
        raise WorkbenchError(msg)
    weight = np.ones(len(known))
    if long_ratio != 1:
        order = np.argsort(known)
        held = np.cumsum(known[order].astype(np.float64))
        weight[order[held > 0.9 * held[-1]]] = long_ratio
    weight /= weight.sum()
    rng = np.random.default_rng(seed)
    expected = float(known @ weight)
    parts: list[np.ndarray] = []
    drawn = 0
    while drawn < token_count:
        size = int((token_count - drawn) / expected * 1.05) + 16
        part = rng.choice(known, size) if long_ratio == 1 else rng.choice(known, size, p=weight)
        parts.append(part)
        drawn += int(part.sum())
    stream = np.concatenate(parts)
    stream = stream[: int(np.searchsorted(np.cumsum(stream), token_count)) + 1]
    return DOCUMENT_LENGTHS.check(pd.DataFrame({"length_tokens": stream}))
