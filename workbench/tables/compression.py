"""Tables about a compressed exchange: embedding outputs, their bounds, bytes sent, speed-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.errors import TableError
from workbench.tables.table import table


@dataclass(frozen=True, eq=False)
class EmbeddingOutputs:
    """Contents of the embedding exchange for one batch: by table, an array (sample, number).

    All arrays are float32, without NaN and infinity, and have one row per sample.
    """

    arrays: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        """Refuse arrays that cannot be one batch of an exchange; every misfit is named."""
        counts = [len(array) for array in self.arrays.values() if np.ndim(array) == 2]
        misfits = [
            f"table {name!r} {misfit}"
            for name, array in self.arrays.items()
            if (misfit := _misfit(array, counts[0] if counts else 0))
        ]
        if misfits or not self.arrays:
            msg = "not the embedding outputs of one batch:\n  - "
            raise TableError(msg + "\n  - ".join(misfits or ["no tables at all"]))

    @property
    def row_count(self) -> int:
        """Samples of the batch."""
        return len(next(iter(self.arrays.values())))

    def __repr__(self) -> str:
        """Describe how much was loaded of which kind."""
        size = sum(array.nbytes for array in self.arrays.values()) / 1e6
        tables = f"{len(self.arrays):,} table{'s' * (len(self.arrays) != 1)}"
        return f"EmbeddingOutputs: {tables}, {self.row_count:,} samples, {size:.3g} MB"


def _misfit(array: object, row_count: int) -> str:
    if not isinstance(array, np.ndarray):
        return f"is a {type(array).__name__}; needs a NumPy array of float32"
    if array.ndim != 2 or not array.size:
        return f"has shape {array.shape}; needs samples x numbers, at least one of each"
    if array.dtype != np.float32:
        return f"has dtype {array.dtype}, needs float32: what is sent and counted in bytes"
    if len(array) != row_count:
        return f"has {len(array):,} samples, the first table {row_count:,}"
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        where = f"row {row}, column {column} is {array[row, column]}"
        return f"has {bad.sum():,} values without a bound: {where}; find out where training broke"
    return ""


TABLE_BOUNDS = table("""
    table_bounds: One row per embedding table: the error that is allowed to each of its values.

    table: str - embedding table
    scale: float64 >=0 - root mean square of its outputs (unit: that of the outputs)
    bound_ratio: float64 0..1 - bound / scale
    bound: float64 >=0 - largest absolute error of a value (unit: that of the outputs)
""")

COMPRESSION = table("""
    compression: One row per setting of the bound, number of destinations, stage and embedding
    table, or all tables together: bytes before and after.

    setting: str - how the bound was set: one number for all tables, or by table
    destination_count: int64 >=1 - ranks that the batch is split over; each gets a block per table
    stage: category - distinct rows (lossless: each row once and an index), quantized (whole
        numbers of 8 or 16 bits), entropy (of these, without its code table: the least that a coder
        of single values can send), zstd (of these: sent and read back)
    table: str - embedding table; all for the sum over tables
    bound: float64 >=0 - largest absolute error that was allowed (unit: that of the outputs)
    row_count: int64 >=1 - rows, one per sample and table
    distinct_count: int64 >=1 - rows that differ from the others of their block, as sent
    raw_bytes: int64 >=1 - bytes of the rows as float32
    sent_bytes: float64 >=0 - bytes in their place; with sizes, headers and values sent as they are
    ratio: float64 >=0 - raw / sent bytes (unit: none)
    escaped_count: int64 >=0 - values sent as they are, since no whole number keeps the bound
    max_error: float64 >=0 - largest absolute error that occurred (unit: that of the outputs)
    doubt: str - why the ratio may be worth nothing; empty if there is no reason
""")

COMPRESSION_SPEEDUP = table("""
    compression_speedup: One row per share, ratio, link and codec: what compression does to a step.

    communication_share: float64 0..1 - of the step: exchange that is exposed and would be
        compressed
    ratio: float64 >=0 - raw / sent bytes (unit: none)
    link_gb_per_s: float64 >=0 - bandwidth of the exchange per rank [10^9 bytes/s]
    compress_gb_per_s: float64 >=0 - raw bytes that a rank compresses [10^9 bytes/s]
    decompress_gb_per_s: float64 >=0 - raw bytes that a rank decompresses [10^9 bytes/s]
    effective_ratio: float64 >=0 - time of the plain exchange / that with codec
    speedup_ratio: float64 >=0 - time of a step before / after
    break_even_gb_per_s: float64 >=0 - bandwidth above which compression makes the exchange slower
        [10^9 bytes/s]; 0 if it always does, infinite if never
    is_faster: bool - whether compression makes the step shorter
""")
