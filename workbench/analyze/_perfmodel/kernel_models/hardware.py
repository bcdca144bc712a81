"""What GPUs promise: dense peaks, memory, links; and the least time that follows from them."""

from __future__ import annotations

import math
from functools import cache

import pandas as pd

from workbench import datasets
from workbench.errors import PerformanceModelError
from workbench.tables import HARDWARE, HARDWARE_SOURCES

_UNITS = {"TFLOP/s": 1e12, "TB/s": 1e12, "GB/s": 1e9, "GB": 1e9, "1": 1.0}
# Bytes per element of the two operands (activations, weights) and of the result, and the peak.
DTYPES = {
    "bfloat16": (2.0, 2.0, 2.0, "bf16_flop_per_s"),
    "float16": (2.0, 2.0, 2.0, "fp16_flop_per_s"),
    "fp8": (1.0, 1.0, 2.0, "fp8_flop_per_s"),
    "fp8_block": (1.0, 1.0, 2.0, "fp8_flop_per_s"),
    "int8_wo": (2.0, 1.0, 2.0, "bf16_flop_per_s"),
    "int4_wo": (2.0, 0.5, 2.0, "bf16_flop_per_s"),
}


def hardware_sources() -> pd.DataFrame:
    """Give every number of the hardware table with the place it was printed in.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.HARDWARE_SOURCES`: ``gpu``, ``quantity``, ``value``,
        ``unit``, ``source``.

    Examples
    --------
    >>> table = hardware_sources().set_index(["gpu", "quantity"])
    >>> float(table.loc[("H100", "bf16_flop_per_s"), "value"])
    989.0
    """
    rows = pd.read_csv(datasets.path("published") / "hardware.csv", dtype={"value": "float64"})
    return HARDWARE_SOURCES.check(HARDWARE_SOURCES.cast(rows), "hardware.csv")


def hardware() -> pd.DataFrame:
    """Give the GPUs that models know: peaks without sparsity, memory, links.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.HARDWARE`, one row per GPU (the SXM or OAM module). Where
        each number comes from is in :func:`hardware_sources`.

    Notes
    -----
    Data sheets often print the peak with 2:4 sparsity, twice the dense one. Only dense peaks
    are listed. Links and network are in one direction; many sheets add up both.

    Examples
    --------
    >>> float(hardware().set_index("gpu").loc["H200", "memory_bytes_per_s"]) / 1e12
    4.8
    """
    return _hardware().copy()


@cache
def _hardware() -> pd.DataFrame:
    rows = hardware_sources()
    rows = rows.assign(value=rows["value"] * rows["unit"].map(_UNITS))
    wide = rows.pivot_table(index="gpu", columns="quantity", values="value", sort=False)
    wide = wide.reindex(columns=[name for name in HARDWARE.columns if name != "gpu"]).reset_index()
    return HARDWARE.check(HARDWARE.cast(wide), "hardware.csv")


def gpu_row(gpu: str) -> pd.Series:
    """Give the row of one GPU, or say which there are."""
    known = _hardware().set_index("gpu")
    if gpu not in known.index:
        msg = f"no GPU is called {gpu!r} in the hardware table; it has {list(known.index)}"
        raise PerformanceModelError(msg)
    (row,) = (each for name, each in known.iterrows() if name == gpu)
    return row


def peak_of(gpu: str, dtype: str) -> float:
    """Give the dense peak of a GPU for operands of one type [FLOP/s]."""
    row = gpu_row(gpu)
    if dtype not in DTYPES:
        msg = f"no peak is known for operands of type {dtype!r}; known are {list(DTYPES)}"
        raise PerformanceModelError(msg)
    peak = row[DTYPES[dtype][3]]
    if pd.isna(peak):
        msg = f"{gpu} has no matrix units for {dtype!r}; use a type that it computes in"
        raise PerformanceModelError(msg)
    return float(peak)


def kernel_time(
    gpu: str,
    *,
    flop_count: float,
    moved_bytes: float,
    dtype: str = "bfloat16",
    achieved_share: float = 1.0,
) -> float:
    """Give the least time of a kernel on a GPU by the roofline [ns].

    Parameters
    ----------
    gpu
        Name in the hardware table, e.g. ``"H100"``.
    flop_count
        Floating-point operations; a multiplication with its addition counts 2.
    moved_bytes
        Bytes read from and written to the memory of the GPU.
    dtype
        Element type of the operands, which decides the peak.
    achieved_share
        Share of both peaks that is achieved, above 0 and at most 1.

    Returns
    -------
    float
        Nanoseconds.

    Raises
    ------
    PerformanceModelError
        If the GPU or the type is not known, or a number makes no sense.

    Notes
    -----
    ``max(flop_count / peak, moved_bytes / bandwidth) / achieved_share``.

    References
    ----------
    Williams, Waterman, Patterson: Roofline, CACM 52 (4), 2009.

    Examples
    --------
    >>> round(kernel_time("H100", flop_count=2 * 4096**3, moved_bytes=6 * 4096**2) / 1e3, 1)
    139.0
    """
    good = all(math.isfinite(each) and each >= 0 for each in (flop_count, moved_bytes))
    if not good or not 0 < achieved_share <= 1:
        msg = (
            f"flop_count={flop_count}, moved_bytes={moved_bytes} must be finite and not below 0, "
            f"achieved_share={achieved_share} above 0 and at most 1"
        )
        raise PerformanceModelError(msg)
    bandwidth = float(gpu_row(gpu)["memory_bytes_per_s"])
    return max(flop_count / peak_of(gpu, dtype), moved_bytes / bandwidth) / achieved_share * 1e9
