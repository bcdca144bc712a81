"""Cost of a document: attention grows with its square, everything else with its length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workbench.errors import WorkbenchError
from workbench.tables import (
    DOCUMENT_LENGTHS,
    LENGTH_SHARES,
    LOAD_IMBALANCE,
)


def workload(length_tokens: NDArray[np.int64], crossover_tokens: float) -> NDArray[np.float64]:
    """Return the work of documents, in units of the linear work of one crossover length.

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
    if not all(0 < size < np.inf for size in sizes):
        msg = f"sizes and ratios of a model must be above 0, not {sizes}"
        raise WorkbenchError(msg)
    square = hidden_size * hidden_size
    products = 2 * (2 * square * (1 + kv_ratio) + ffn_matrices * hidden_size * ffn_size)
    return products / (2 * hidden_size) * attention_efficiency_ratio


def length_shares(lengths: pd.DataFrame, *, cut_tokens: int | None = None) -> pd.DataFrame:
    """Count for every length how many documents are longer, and the tokens in the shorter ones.

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
    cut = DOCUMENT_LENGTHS.check(lengths)["length_tokens"].to_numpy()
    if cut_tokens is not None:
        if cut_tokens < 1:
            msg = f"cut_tokens must be at least 1, not {cut_tokens}"
            raise WorkbenchError(msg)
        full, remainder = np.divmod(cut, cut_tokens)
        cut = np.concatenate([np.full(int(full.sum()), cut_tokens), remainder[remainder > 0]])
    length, count = np.unique(cut, return_counts=True)
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
    tokens = DOCUMENT_LENGTHS.check(lengths)["length_tokens"].to_numpy()
    if not len(tokens) or token_count < 1 or not 0 < long_ratio < np.inf:
        msg = (
            f"cannot draw {token_count:,} tokens from {len(tokens):,} documents "
            f"with long_ratio {long_ratio}: all must be above 0"
        )
        raise WorkbenchError(msg)
    weight = np.ones(len(tokens))
    if long_ratio != 1:
        order = np.argsort(tokens)
        held = np.cumsum(tokens[order].astype(np.float64))
        # By tokens, not by documents: a tenth of the documents may hold hardly any tokens.
        weight[order[held > 0.9 * held[-1]]] = long_ratio
    weight /= weight.sum()
    rng = np.random.default_rng(seed)
    expected = float(tokens @ weight)
    # In rounds of about the expected number, as the lengths that come are not known before.
    draws: list[np.ndarray] = []
    drawn = 0
    while drawn < token_count:
        size = int((token_count - drawn) / expected * 1.05) + 16
        draw = rng.choice(tokens, size) if long_ratio == 1 else rng.choice(tokens, size, p=weight)
        draws.append(draw)
        drawn += int(draw.sum())
    stream = np.concatenate(draws)
    stream = stream[: int(np.searchsorted(np.cumsum(stream), token_count)) + 1]
    return DOCUMENT_LENGTHS.check(pd.DataFrame({"length_tokens": stream}))


Loads: TypeAlias = NDArray[np.float64]


def _measures(loads: Loads) -> dict[str, float]:
    count = len(loads)
    shares = loads / loads.sum()
    highest, apart = float(shares.max() * count), np.abs(shares - 1 / count)
    # Not std / mean of the loads themselves: their squares could overflow.
    variation = float((shares * count).std())
    positive = shares[shares > 0]
    entropy = float(positive @ np.log(count * positive))
    gini = float(np.sort(shares) @ (2 * np.arange(1, count + 1) - count - 1)) / count
    return {
        "max / mean": highest,
        "balancedness": 1 / highest,
        "MaxVio": highest - 1,
        "coefficient of variation": variation,
        "Gini": gini,
        "total variation": float(apart.max(initial=0)),
        "total distance": float(apart.sum()),
        # Both divergences are 0 / 0 for a single load, which is as equal as loads can be.
        "chi divergence": variation**2 / (count - 1) if count > 1 else 0.0,
        "KL divergence": entropy / np.log(count) if count > 1 else 0.0,
    }


_TORCHREC = "torchrec 1.9.2, distributed/planner/stats.py"
# Measure: formula and source.
_MEASURES = {
    "max / mean": ("max x_i / mean x_i", "common"),
    "balancedness": ("mean x_i / max x_i", "SGLang and vLLM, expert balancedness"),
    "MaxVio": ("(max x_i - mean x_i) / mean x_i", "arXiv:2408.15664"),
    "coefficient of variation": (
        "population standard deviation / mean",
        "arXiv:1701.06538 (its square is the importance loss)",
    ),
    "Gini": ("sum_i sum_j |p_i - p_j| / (2 k)", "Gini 1912"),
    "total variation": ("max |p_i - 1/k|", _TORCHREC),
    "total distance": ("sum |p_i - 1/k|", _TORCHREC),
    "chi divergence": ("k sum (p_i - 1/k)^2 / (k - 1)", _TORCHREC),
    "KL divergence": ("sum p_i ln(k p_i) / ln k", _TORCHREC),
}


def load_imbalance(
    loads: ArrayLike | pd.DataFrame,
    *,
    value: str | None = None,
    by: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Measure load imbalance by every metric in use.

    The measures answer different questions: ``max / mean`` says how much longer all wait
    for the busiest one, the divergences and Gini say how far from equal the whole is. A
    load of 0 counts: it is an idle rank or expert.

    Parameters
    ----------
    loads
        One number per rank, expert, unit or micro-batch, in any unit, or a frame of them.
    value
        Column of the frame that holds the loads.
    by
        Column or columns of the frame whose values keep loads apart, e.g. ``"layer"``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LOAD_IMBALANCE`, one row per group and measure: the
        value, and what it would be with equal loads and with one load that is everything.
        Columns named in ``by`` are kept.

    Raises
    ------
    WorkbenchError
        If there are no loads, a load is missing, negative or not finite, or all loads (of
        a group) are 0. The message names the first.

    Notes
    -----
    The table has the formulas, of loads x_i, their shares p_i = x_i / sum x and their number k.
    max / mean goes from 1 to k, balancedness from 1 down to 1 / k, MaxVio from 0 to k - 1, the
    coefficient of variation from 0 to sqrt(k - 1), Gini and total variation from 0 to 1 - 1/k,
    total distance from 0 to 2 (1 - 1/k), both divergences from 0 to 1. The last four are those
    that torchrec prints for a plan. All are free of the unit of the loads.

    References
    ----------
    torchrec 1.9.2, ``distributed/planner/stats.py``; arXiv:2408.15664 (MaxVio).

    Examples
    --------
    >>> table = load_imbalance([3, 1]).set_index("measure")
    >>> table.loc[["max / mean", "KL divergence"], "value_ratio"].round(3).tolist()
    [1.5, 0.189]
    """
    groups = list(_groups(loads, value, by))
    if not groups:
        msg = "no loads to compare; pass one number per rank, expert or unit"
        raise WorkbenchError(msg)
    rows: list[dict[str, Any]] = []
    for group, keys, values in groups:
        actual, equal = _measures(values), _measures(np.ones(len(values)))
        # One load that is everything is the worst case of every measure.
        worst = _measures(np.eye(1, len(values))[0])
        rows += [
            {
                **keys,
                "group": group,
                "measure": measure,
                "value_ratio": max(actual[measure], 0.0),
                "equal_ratio": max(equal[measure], 0.0),
                "worst_ratio": max(worst[measure], 0.0),
                "load_count": len(values),
                "formula": formula,
                "source": source,
            }
            for measure, (formula, source) in _MEASURES.items()
        ]
    return LOAD_IMBALANCE.check(pd.DataFrame(rows))


def _groups(
    loads: ArrayLike | pd.DataFrame, value: str | None, by: str | Sequence[str] | None
) -> Iterator[tuple[str, dict[str, Any], Loads]]:
    """Yield name, keys and checked loads of every group."""
    keys = [by] if isinstance(by, str) else list(by or [])
    if isinstance(loads, pd.DataFrame):
        _check_columns(loads, value, keys)
        values = loads[value]
    else:
        values = pd.Series(_plain(loads, has_names=value is not None or by is not None))
    if not len(values):
        return
    if not keys:
        yield "all", {}, _checked(values, "all")
        return
    for labels, rows in values.groupby([loads[key] for key in keys], observed=True):  # type: ignore[index,call-overload]
        group_keys = dict(zip(keys, labels, strict=True))
        group = ", ".join(f"{key} {label}" for key, label in group_keys.items())
        yield group, group_keys, _checked(rows, group)


def _plain(loads: ArrayLike, *, has_names: bool) -> NDArray[Any]:
    array = np.asarray(loads)
    if has_names:
        msg = "value= and by= name columns of a frame; these loads are not frames"
        raise WorkbenchError(msg)
    if array.ndim != 1:
        msg = f"loads have {array.ndim} dimensions, need 1; pass a frame and by= for groups"
        raise WorkbenchError(msg)
    return array


def _check_columns(frame: pd.DataFrame, value: str | None, keys: list[str]) -> None:
    if value is None:
        msg = f"name the column of loads with value=; there are {list(frame.columns)}"
        raise WorkbenchError(msg)
    if missing := [name for name in (value, *keys) if name not in frame]:
        msg = f"the loads have no column {missing}; there are {list(frame.columns)}"
        raise WorkbenchError(msg)
    if clashes := sorted({"measure", "group", "formula", "source"} & set(keys)):
        msg = f"by= column {clashes} has the name of a column of the result; rename it"
        raise WorkbenchError(msg)
    if lacking := [key for key in keys if frame[key].isna().any()]:
        msg = f"by= column {lacking} has missing values, so some loads belong to no group"
        raise WorkbenchError(msg)


def _checked(loads: pd.Series, group: str) -> Loads:
    """Return the loads as numbers, or name the first that cannot be a load."""
    numbers = pd.to_numeric(loads, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    where = "" if group == "all" else f" of {group}"
    good = np.isfinite(numbers) & (numbers >= 0)
    if not good.all():
        first = int(np.flatnonzero(~good)[0])
        (value,) = loads.iloc[[first]].tolist()
        msg = (
            f"{int((~good).sum()):,} loads{where} are not finite numbers from 0, the first is "
            f"{value!r} at position {first:,}; leave it out or write 0 for idle"
        )
        raise WorkbenchError(msg)
    if not numbers.any():
        msg = f"all {len(numbers):,} loads{where} are 0, so there is nothing to compare"
        raise WorkbenchError(msg)
    # No measure depends on the scale, and sums of numbers up to 1 cannot overflow.
    return np.asarray(numbers / numbers.max())
