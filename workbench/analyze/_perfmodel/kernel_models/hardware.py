"""Data sheets of GPUs: dense peaks, memory, links."""

from __future__ import annotations

from functools import cache

import pandas as pd

from workbench import datasets
from workbench.errors import PerformanceModelError
from workbench.tables import HARDWARE

# Units of the data sheets, in SI.
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


def hardware() -> pd.DataFrame:
    """Return the GPUs that models know: peaks without sparsity, memory, links.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.HARDWARE`, one row per GPU (the SXM or OAM module). The
        bundled ``published/hardware.csv`` names the source of each number.

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
    rows = pd.read_csv(datasets.path("published") / "hardware.csv")
    rows = rows.assign(value=rows["value"] * rows["unit"].map(_UNITS))
    wide = rows.pivot_table(index="gpu", columns="quantity", values="value", sort=False)
    wide = wide.reindex(columns=[name for name in HARDWARE.columns if name != "gpu"]).reset_index()
    return HARDWARE.check(HARDWARE.cast(wide), "hardware.csv")


def gpu_row(gpu: str) -> pd.Series:
    table = _hardware().set_index("gpu")
    if gpu not in table.index:
        msg = f"no GPU is called {gpu!r} in the hardware table; it has {list(table.index)}"
        raise PerformanceModelError(msg)
    return table.T[gpu]


def peak_of(gpu: str, dtype: str) -> float:
    row = gpu_row(gpu)
    if dtype not in DTYPES:
        msg = f"no peak is known for operands of type {dtype!r}; known: {list(DTYPES)}"
        raise PerformanceModelError(msg)
    peak = row[DTYPES[dtype][3]]
    if pd.isna(peak):
        msg = f"{gpu} has no matrix units for {dtype!r}; use a type that it computes in"
        raise PerformanceModelError(msg)
    return float(peak)
