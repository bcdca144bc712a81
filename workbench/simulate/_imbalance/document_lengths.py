"""Document lengths as training corpora have them: many short ones, few very long ones."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import DOCUMENT_LENGTHS


def document_lengths(
    count: int = 20_000,
    *,
    seed: int = 0,
    median_tokens: int = 3_000,
    long_share: float = 0.02,
    longest_tokens: int = 128 * 1024,
) -> pd.DataFrame:
    """Draw lengths of documents from a mixture with a heavy tail.

    Parameters
    ----------
    count
        Documents to draw.
    seed
        The same seed gives the same lengths.
    median_tokens
        Median of the short ones, which are lognormal with a deviation of 0.6.
    long_share
        Share of long ones, log-uniform from four times the median to the longest.
    longest_tokens
        No document is longer.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`: ``length_tokens``. ``attrs["truth"]``
        holds the arguments. Nothing in it was measured.

    Raises
    ------
    WorkbenchError
        If an argument is impossible.

    Examples
    --------
    >>> int(document_lengths(1000, seed=1)["length_tokens"].max()) <= 128 * 1024
    True
    """
    if count < 1 or not 0 <= long_share <= 1 or not 1 <= 4 * median_tokens < longest_tokens:
        msg = (
            f"cannot draw {count:,} documents with long_share {long_share}: it lies between 0 and "
            f"1, and longest_tokens ({longest_tokens:,}) above four medians ({median_tokens:,})"
        )
        raise WorkbenchError(msg)
    rng = np.random.default_rng(seed)
    short = rng.lognormal(np.log(median_tokens), 0.6, count)
    tail = np.exp(rng.uniform(np.log(4 * median_tokens), np.log(longest_tokens), count))
    drawn = np.where(rng.random(count) < long_share, tail, short)
    lengths = np.clip(np.rint(drawn), 1, longest_tokens).astype(np.int64)
    table = pd.DataFrame({"length_tokens": lengths})
    table.attrs["truth"] = {
        "seed": seed,
        "median_tokens": median_tokens,
        "long_share": long_share,
        "longest_tokens": longest_tokens,
    }
    return DOCUMENT_LENGTHS.check(table)
