"""Whether the embedding exchange is compressible, within which bound, and whether it pays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._communication.codec import (
    HEADER,
    SIZE_BYTES,
    Floats,
    Quantized,
    packed,
    quantized,
)
from workbench.errors import PerformanceModelError
from workbench.tables import COMPRESSION, COMPRESSION_SPEEDUP, TABLE_BOUNDS, EmbeddingOutputs

_STAGES = ("distinct rows", "quantized", "entropy", "zstd")
_BLOCK_BYTES = SIZE_BYTES + HEADER.size
_MOST_BLOCKS = 2_000_000
_LOST = "errors are nearly as large as the values: the bound is too wide for their scale"
# Squared errors over squared values, from which on a table counts as lost; zeros have 1.
_LOST_RATIO = 0.5
# Integers of an index, by the number of rows that it must tell apart.
_INDEX_BYTES = ((2**8, 1), (2**16, 2), (2**32, 4))


def table_bounds(outputs: EmbeddingOutputs, *, bound_ratio: float = 0.1) -> pd.DataFrame:
    """Set the error bound of each table relative to its scale.

    Tables differ in scale by a factor of ten and more, most of all early in training: rows of
    a large table start small. One bound for all turns such tables into zeros, at a ratio that
    looks excellent. Recompute the bounds as training goes on; scales grow.

    Parameters
    ----------
    outputs
        From :func:`workbench.load.embedding_outputs`.
    bound_ratio
        Bound over the root mean square of a table's outputs, between 0 and 1.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TABLE_BOUNDS`: ``table``, ``scale``, ``bound_ratio``,
        ``bound``. Pass it to :func:`compression`.

    Raises
    ------
    PerformanceModelError
        If the ratio is not between 0 and 1.

    Notes
    -----
    ``e = r rms(x)``. With r < 1 no table becomes zeros: its largest value is at least the root
    mean square, and only values up to e are rounded to 0.

    Examples
    --------
    >>> halves = np.full((4, 2), 0.5, dtype=np.float32)
    >>> table_bounds(EmbeddingOutputs({"users": halves}))["bound"].tolist()
    [0.05]
    """
    if not 0 < bound_ratio < 1:
        msg = f"bound_ratio is {bound_ratio:g}; it must lie between 0 and 1, e.g. 0.1"
        raise PerformanceModelError(msg)
    scales = [
        float(np.sqrt(np.square(array, dtype=np.float64).mean()))
        for array in outputs.arrays.values()
    ]
    rows = [(scale, bound_ratio, bound_ratio * scale) for scale in scales]
    return TABLE_BOUNDS.of(
        [(name, *row) for name, row in zip(outputs.arrays, rows, strict=True)],
    )


def compression(
    outputs: EmbeddingOutputs,
    *,
    bounds: Sequence[float] | pd.DataFrame = (0.02,),
    destinations: Sequence[int] = (1, 8, 32, 128),
    by_table: bool = True,
) -> pd.DataFrame:
    """Compress the embedding outputs of a batch as an exchange would: block by block.

    A rank sends each destination the rows of its samples, table by table. Every table and
    destination is a block of its own, so the more destinations, the fewer repeated rows in a
    block and the lower the ratio. A ratio without the number of destinations means nothing.

    Parameters
    ----------
    outputs
        From :func:`workbench.load.embedding_outputs`.
    bounds
        Largest absolute errors of a value, each for all tables; or the bounds by table of
        :func:`table_bounds`.
    destinations
        Numbers of ranks that the batch is split over, 1 for the whole batch as one block.
    by_table
        A row per table; otherwise one for the sum over all tables.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COMPRESSION`. Everything in it was done, block by block,
        except ``entropy``, which is a limit.

    Raises
    ------
    PerformanceModelError
        If a bound is not a number from 0 or belongs to no table, or a number of destinations is
        not between 1 and the number of samples.

    Notes
    -----
    ``q = round(x / w)``, restored as ``w q`` in float32, with ``w = 2 e 255 / 256`` since float32
    rounds again. A value that this does not bring within e (in float64 arithmetic), or whose q
    exceeds 8 or 16 bits, is sent as it is, so the bound holds without a tolerance. Every block
    counts 8 bytes in the exchange of sizes and 5 of its header; one that does not become smaller
    is sent as float32.

    ``entropy`` is ``-sum n log2(n / N) / 8`` bytes of a block's whole numbers, the least for any
    coder of single values; ``zstd`` (level 1) may send less where rows repeat.

    References
    ----------
    Feng et al., arXiv:2407.04272 (quantisation, then LZ or entropy coding by table, bounds by
    table); the codec here is not theirs.

    Examples
    --------
    >>> halves = np.full((256, 32), 0.5, dtype=np.float32)
    >>> table = compression(EmbeddingOutputs({"users": halves}), destinations=[1, 64])
    >>> table.loc[table["stage"] == "zstd", "ratio"].round(1).tolist()
    [1024.0, 17.1]
    """
    settings = _settings(outputs, bounds)
    _refuse_destinations(destinations, outputs.row_count, len(settings) * len(outputs.arrays))
    rows = []
    for (setting, by_name), count in product(settings.items(), destinations):
        for name, array in outputs.arrays.items():
            sums = _sums(np.array_split(array, count), by_name[name])
            shared = {"setting": setting, "destination_count": count, "table": name}
            shared |= {"bound": by_name[name], "row_count": len(array), "raw_bytes": array.nbytes}
            rows += [shared | {"stage": stage} | sums[stage] for stage in _STAGES]
    table = pd.DataFrame(rows)
    if not by_table:
        table = _over_tables(table)
    return COMPRESSION.of(table.assign(ratio=table["raw_bytes"] / table["sent_bytes"]))


def _settings(
    outputs: EmbeddingOutputs, bounds: Sequence[float] | pd.DataFrame
) -> dict[str, dict[str, float]]:
    """Return the bounds by table of every setting."""
    if not isinstance(bounds, pd.DataFrame):
        settings = {
            f"{bound:.12g} for all tables": dict.fromkeys(outputs.arrays, float(bound))
            for bound in bounds
        }
    else:
        TABLE_BOUNDS.check(bounds, "bounds")
        by_name = dict(zip(bounds["table"], bounds["bound"].astype(float), strict=True))
        if missing := [name for name in outputs.arrays if name not in by_name]:
            msg = f"no bound for tables {missing[:8]}; analyze.table_bounds(outputs) gives all"
            raise PerformanceModelError(msg)
        ratios = sorted({f"{ratio:g}" for ratio in bounds["bound_ratio"]})
        settings = {f"{', '.join(ratios)} of the scale of a table": by_name}
    bad = [bound for own in settings.values() for bound in own.values() if not 0 <= bound < np.inf]
    if bad or not settings:
        msg = f"bounds: {bad[0] if bad else 'empty'}; pass numbers from 0, e.g. [0.02]"
        raise PerformanceModelError(msg)
    return settings


def _refuse_destinations(destinations: Sequence[int], row_count: int, per_block: int) -> None:
    bad = [
        count
        for count in destinations
        if not float(count).is_integer() or not 1 <= count <= row_count
    ]
    if bad or not len(destinations):
        msg = f"destinations: {bad[0] if bad else 'empty'}; pass whole numbers from 1 to "
        msg += f"{row_count:,}, the samples of the batch"
        raise PerformanceModelError(msg)
    if (count := sum(destinations) * per_block) > _MOST_BLOCKS:
        msg = f"{count:,} blocks would take hours; pass fewer bounds or destinations"
        raise PerformanceModelError(msg)


def _sums(blocks: list[Floats], bound: float) -> dict[str, dict[str, Any]]:
    """Add up the blocks of one table, by stage."""
    done = [(block, quantized(block, bound)) for block in blocks]
    errors = np.concatenate([block.astype(np.float64) - own.restored for block, own in done])
    power = sum(float(np.square(block, dtype=np.float64).sum()) for block in blocks)
    lossless = {"distinct_count": 0, "sent_bytes": 0.0, "escaped_count": 0, "max_error": 0.0}
    lossy = lossless | {
        "distinct_count": sum(_distinct(own.restored) for _, own in done),
        "escaped_count": sum(own.escaped.size for _, own in done),
        "max_error": float(np.abs(errors).max()),
        "doubt": _LOST if np.square(errors).sum() > _LOST_RATIO * power else "",
    }
    sums: dict[str, dict[str, Any]] = {stage: dict(lossy) for stage in _STAGES[1:]}
    sums[_STAGES[0]] = lossless | {"doubt": ""}
    for block, own in done:
        distinct = _distinct(block)
        sums["distinct rows"]["distinct_count"] += distinct
        for stage, sent in _sent_bytes(block, own, distinct).items():
            sums[stage]["sent_bytes"] += _BLOCK_BYTES + min(sent, block.nbytes)
    return sums


def _sent_bytes(block: Floats, own: Quantized, distinct: int) -> dict[str, float]:
    """Return the bytes of one block by stage, without header."""
    index = next(size for limit, size in _INDEX_BYTES if distinct <= limit)
    escaped = own.escaped.nbytes
    return {
        "distinct rows": distinct * block[0].nbytes + len(block) * index,
        "quantized": own.bins.nbytes + escaped,
        "entropy": _entropy_bytes(own.bins) + escaped,
        "zstd": len(packed(own)) - HEADER.size,
    }


def _distinct(rows: Floats) -> int:
    """Count rows that differ in a bit; a set of their bytes is faster than sorting them."""
    whole = np.ascontiguousarray(rows)
    return len(set(whole.view(f"V{whole[0].nbytes}").ravel().tolist()))


def _entropy_bytes(bins: NDArray[Any]) -> float:
    numbers = bins.ravel().astype(np.int64)
    counts = np.bincount(numbers - numbers.min())
    counts = counts[counts > 0]
    return float(counts @ np.log2(numbers.size / counts)) / 8


def _over_tables(table: pd.DataFrame) -> pd.DataFrame:
    """Add up tables; the bound is the widest, and a doubt names the tables that it is about."""
    totals = dict.fromkeys(
        ("row_count", "distinct_count", "raw_bytes", "sent_bytes", "escaped_count"), "sum"
    )
    keys = ["setting", "destination_count", "stage"]
    names = table["table"].where(table["doubt"] != "", "")
    grouped = table.assign(doubt=names).groupby(keys, sort=False, as_index=False)
    return grouped.agg(totals | {"bound": "max", "max_error": "max", "doubt": _joined}).assign(
        table="all"
    )


def _joined(names: pd.Series) -> str:
    lost = [name for name in names if name]
    return f"{', '.join(lost)}: {_LOST}" if lost else ""


def compression_speedup(
    ratios: Sequence[float],
    *,
    communication_shares: Sequence[float] = (0.6,),
    link_gb_per_s: Sequence[float] = (12.5,),
    compress_gb_per_s: Sequence[float] = (1.0,),
    decompress_gb_per_s: float | None = None,
) -> pd.DataFrame:
    """Predict how much shorter a step becomes when its exchange is compressed, and where it is not.

    Parameters
    ----------
    ratios
        Raw over sent bytes, e.g. of :func:`compression` at the number of destinations available.
    communication_shares
        Of the step: the exposed exchange that would be compressed. Backward exchanges count only
        if gradients are compressed as well.
    link_gb_per_s
        Bandwidths of the exchange per rank, in 10^9 bytes/s.
    compress_gb_per_s
        Raw bytes per second that a rank compresses, in 10^9; infinite for a codec that costs
        nothing. The default is what one core of a CPU does with large blocks, to the order of
        magnitude.
    decompress_gb_per_s
        The same for decompression; by default three times as many as it compresses.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COMPRESSION_SPEEDUP`, every ratio with every share, link and
        codec. A model: nothing of it was measured.

    Raises
    ------
    PerformanceModelError
        If a share is not between 0 and 1, or another number not above 0.

    Notes
    -----
    With ratio R, bandwidth B and codec speeds C and D, in raw bytes:
    ``1 / R_eff = 1 / R + B (1 / C + 1 / D)`` and ``S = 1 / (1 - f (1 - 1 / R_eff))``. The codec
    is not overlapped with the transfer; latencies and the exchange of sizes have no time of their
    own. It pays while ``B < (1 - 1 / R) / (1 / C + 1 / D)``.

    Examples
    --------
    >>> row = compression_speedup([20], link_gb_per_s=[1], compress_gb_per_s=[2.8]).iloc[0]
    >>> row[["effective_ratio", "speedup_ratio", "break_even_gb_per_s"]].astype(float).round(3)
    effective_ratio        1.900
    speedup_ratio          1.397
    break_even_gb_per_s    1.995
    Name: 0, dtype: float64
    """
    names = ("ratio", "communication_share", "link_gb_per_s", "compress_gb_per_s")
    given = (ratios, communication_shares, link_gb_per_s, compress_gb_per_s)
    cases = pd.DataFrame(list(product(*given)), columns=list(names))
    back = 3 * cases["compress_gb_per_s"] if decompress_gb_per_s is None else decompress_gb_per_s
    cases = cases.assign(decompress_gb_per_s=back).astype("float64")
    _refuse_cases(cases)
    # Seconds per 10^9 raw bytes.
    per_gb = 1 / cases["compress_gb_per_s"] + 1 / cases["decompress_gb_per_s"]
    saved = 1 - 1 / cases["ratio"]
    effective = 1 / (1 / cases["ratio"] + cases["link_gb_per_s"] * per_gb)
    limit = (saved.clip(lower=0) / per_gb.where(per_gb > 0)).fillna(np.inf).where(saved > 0, 0.0)
    speedup = 1 / (1 - cases["communication_share"] * (1 - 1 / effective))
    return COMPRESSION_SPEEDUP.of(
        cases.assign(
            effective_ratio=effective, speedup_ratio=speedup, break_even_gb_per_s=limit,
            is_faster=speedup > 1,
        )
    )  # fmt: skip


def _refuse_cases(cases: pd.DataFrame) -> None:
    if cases.empty:
        msg = "every list needs a number, e.g. ratios=[12.0]"
        raise PerformanceModelError(msg)
    share = cases["communication_share"]
    misfits = [f"a communication share of {value:g}" for value in share[~share.between(0, 1)][:1]]
    for name in cases.columns.drop("communication_share"):
        # A link without a limit would make the time of the codec infinitely long beside it.
        top = cases[name] < np.inf if name == "link_gb_per_s" else True
        misfits += [
            f"{name} of {value:g}" for value in cases.loc[~((cases[name] > 0) & top), name][:1]
        ]
    if misfits:
        msg = f"{'; '.join(misfits)}: shares lie between 0 and 1, all else above 0"
        raise PerformanceModelError(msg)
