"""What a document costs: attention grows with its square, everything else with its length."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import WorkbenchError
from workbench.tables import ATTENTION_PROFILE, CROSSOVER, LAUNCH_LOSS, LINEAR_PROFILE


def workload(length_tokens: NDArray[np.int64], crossover_tokens: float) -> NDArray[np.float64]:
    """Give the work of documents, in units of the linear work of one crossover length.

    Parameters
    ----------
    length_tokens
        Lengths of documents, or of pieces that attend within themselves.
    crossover_tokens
        Length at which attention costs as much as everything else.

    Returns
    -------
    numpy.ndarray
        W(d) = d / L + (d / L)^2.

    References
    ----------
    arXiv:2503.17924 (workload-aware packing).

    Examples
    --------
    >>> workload(np.array([1024, 2048]), 1024).tolist()
    [2.0, 6.0]
    """
    ratio = np.asarray(length_tokens, dtype=np.float64) / crossover_tokens
    return np.asarray(ratio + ratio * ratio)


def crossover_from_flops(
    *,
    hidden_size: int,
    ffn_size: int,
    kv_ratio: float = 1.0,
    ffn_matrices: int = 3,
    attention_efficiency_ratio: float = 1.0,
) -> float:
    """Work out the crossover length of a transformer from its floating-point operations.

    Parameters
    ----------
    hidden_size
        Width of the model.
    ffn_size
        Width of the feed-forward part.
    kv_ratio
        Key and value heads over query heads; below 1 with grouped-query attention.
    ffn_matrices
        Matrices of the feed-forward part: 3 with a gate, else 2.
    attention_efficiency_ratio
        FLOP/s that attention reaches over those of matrix products; below 1 the crossover
        comes earlier.

    Returns
    -------
    float
        Tokens at which causal attention costs as much as all matrix products of a layer.

    Notes
    -----
    Per token and layer, with width h: products 2 (2 h^2 + 2 h^2 kv + m h f), attention
    2 h d over a causal document of d tokens. Llama-2-7B: 49.4 thousand tokens.

    Examples
    --------
    >>> round(crossover_from_flops(hidden_size=4096, ffn_size=11008))
    49408
    """
    sizes = (hidden_size, ffn_size, kv_ratio, ffn_matrices, attention_efficiency_ratio)
    if not all(0 < each < np.inf for each in sizes):
        msg = f"sizes and ratios of a model must be above 0, not {sizes}"
        raise WorkbenchError(msg)
    square = hidden_size * hidden_size
    products = 2 * (2 * square * (1 + kv_ratio) + ffn_matrices * hidden_size * ffn_size)
    return products / (2 * hidden_size) * attention_efficiency_ratio


def crossover(
    attention: pd.DataFrame, linear: pd.DataFrame, *, head_ratio: float = 1.0
) -> pd.DataFrame:
    """Fit the crossover length to measured kernel times, per tensor-parallel degree.

    Parameters
    ----------
    attention
        Table :data:`workbench.tables.ATTENTION_PROFILE`, one layer, whole documents.
    linear
        Table :data:`workbench.tables.LINEAR_PROFILE`, one layer.
    head_ratio
        Heads of the model over heads that the attention profile was taken with.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CROSSOVER`: ``tensor_parallel``, ``crossover_tokens``,
        ``attention_ns_per_square``, ``linear_ns_per_token``, ``point_count``.

    Raises
    ------
    WorkbenchError
        If both profiles have no tensor-parallel degree in common, or no document is long
        enough.

    Notes
    -----
    Small kernels are launch-bound, so only the upper part counts. Attention time = a d^2 by
    least squares over lengths from 4,096; linear time = b n, b the mean time per token over
    the largest quarter of token counts; L = b / a.
    """
    ATTENTION_PROFILE.check(attention)
    LINEAR_PROFILE.check(linear)
    if not 0 < head_ratio < np.inf:
        msg = f"head_ratio must be above 0, not {head_ratio}"
        raise WorkbenchError(msg)
    long = attention[(attention["length_tokens"] >= 4_096) & (attention["context_parallel"] == 1)]
    rows = []
    for degree in sorted(set(long["tensor_parallel"]) & set(linear["tensor_parallel"])):
        squares = long[long["tensor_parallel"] == degree]
        across = squares["length_tokens"].to_numpy(dtype=np.float64) ** 2
        per_square = float(across @ squares["dur_ns"].to_numpy() / (across @ across)) * head_ratio
        counts = linear[linear["tensor_parallel"] == degree]
        counts = counts[counts["token_count"] >= 0.75 * counts["token_count"].max()]
        per_token = float((counts["dur_ns"] / counts["token_count"]).mean())
        points = len(squares) + len(counts)
        rows.append((degree, per_token / per_square, per_square, per_token, points))
    if not rows:
        msg = (
            "the profiles share no tensor-parallel degree: attention of one rank's documents "
            f"from 4,096 tokens has {sorted(set(long['tensor_parallel']))}, linear has "
            f"{sorted(set(linear['tensor_parallel']))}"
        )
        raise WorkbenchError(msg)
    table = pd.DataFrame(rows, columns=list(CROSSOVER.columns))
    return CROSSOVER.check(CROSSOVER.cast(table))


def launch_loss(attention: pd.DataFrame) -> pd.DataFrame:
    """Fit what short runs of queries cost, to measured kernel times.

    Parameters
    ----------
    attention
        Table :data:`workbench.tables.ATTENTION_PROFILE` with several context-parallel
        degrees, each document cut into two chunks per rank.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LAUNCH_LOSS`: ``tensor_parallel``, ``launch_tokens``,
        ``point_count``.

    Raises
    ------
    WorkbenchError
        If no document from 4,096 tokens was measured on one and on several ranks.

    Notes
    -----
    With n ranks a document of d tokens is cut into runs of q = d / (2 n) queries. If its time
    on n ranks is r times the even share, kernels lose (r - 1) q queries per run. The median
    over n and d from 4,096 to 32,768; fewer heads per rank lose more.
    """
    ATTENTION_PROFILE.check(attention)
    keys = ["tensor_parallel", "length_tokens"]
    inside = attention["length_tokens"].between(4_096, 32_768)
    one = attention[inside & (attention["context_parallel"] == 1)].groupby(keys)["dur_ns"].mean()
    many = attention[inside & (attention["context_parallel"] > 1)]
    many = many.join(one.rename("alone_ns"), on=keys).dropna(subset="alone_ns")
    if many.empty:
        msg = (
            "no document from 4,096 to 32,768 tokens was measured both on one context-parallel "
            "rank and on several; profile some"
        )
        raise WorkbenchError(msg)
    ranks = many["context_parallel"]
    ratio = many["dur_ns"] * ranks / many["alone_ns"]
    lost = ((ratio - 1) * many["length_tokens"] / (2 * ranks)).clip(lower=0)
    groups = lost.groupby(many["tensor_parallel"])
    table = groups.agg(launch_tokens="median", point_count="size").reset_index()
    return LAUNCH_LOSS.check(LAUNCH_LOSS.cast(table))
