"""Kinds of GPUs, and the nodes they sit in: what the closed form knows about hardware."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

import pandas as pd

from workbench import datasets
from workbench._numbers import positive, whole_number
from workbench.errors import PerformanceModelError

_FILE = "gpu_types.csv"


@dataclass(frozen=True)
class GpuType:
    """A kind of GPU and its links; bandwidths are one way, per GPU.

    Parameters
    ----------
    name
        What it is called in tables, e.g. ``"H100"``.
    peak_tflops
        Dense matrix products of the precision that is trained in [10^12 FLOP/s]; sheets that
        count zeros print twice that.
    memory_gb
        Memory [10^9 bytes].
    memory_gb_per_s
        Its bandwidth.
    node_gb_per_s
        Between GPUs of a node (NVLink).
    network_gb_per_s
        Between nodes, per GPU.
    gpus_per_node
        GPUs that the fast links connect.
    peak_16bit_tflops
        Dense 16-bit products where ``peak_tflops`` is of narrower ones: attention and the
        output layer are computed in 16 bits even if the other matrices are not. The same as
        ``peak_tflops`` if None.

    Raises
    ------
    WorkbenchError
        If a number is not above 0.
    """

    name: str
    peak_tflops: float
    memory_gb: float
    memory_gb_per_s: float
    node_gb_per_s: float
    network_gb_per_s: float
    gpus_per_node: int = 8
    peak_16bit_tflops: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self)[1:-1]:
            positive(field.name, getattr(self, field.name))
        positive("peak_16bit_tflops", self.wide_tflops)
        whole_number("gpus_per_node", self.gpus_per_node, least=1)

    @property
    def wide_tflops(self) -> float:
        """Dense 16-bit products [10^12 FLOP/s]."""
        return self.peak_tflops if self.peak_16bit_tflops is None else self.peak_16bit_tflops


def gpu_type(name: str) -> GpuType:
    """Look up a kind of GPU by its name, in the bundled ``published/gpu_types.csv``.

    Parameters
    ----------
    name
        E.g. ``"A100"``, ``"H100"`` or ``"B200"``.

    Returns
    -------
    GpuType
        Dense 16-bit peak, memory and links; ``dataclasses.replace`` changes any of them.

    Raises
    ------
    PerformanceModelError
        If it is not in the file.

    Examples
    --------
    >>> gpu_type("H100").peak_tflops
    989.0
    """
    known = _known()
    if name not in known:
        msg = f"no GPU type {name!r}; there are {list(known)}, or make a GpuType(...)"
        raise PerformanceModelError(msg)
    return known[name]


@cache
def _known() -> dict[str, GpuType]:
    rows = pd.read_csv(datasets.path("published") / _FILE).to_dict("records")
    return {
        str(row["gpu"]): GpuType(
            name=str(row["gpu"]),
            **{f.name: float(row[f.name]) for f in fields(GpuType)[1:-2]},
            gpus_per_node=int(row["gpus_per_node"]),
            peak_16bit_tflops=None if pd.isna(wide := row["peak_16bit_tflops"]) else float(wide),
        )
        for row in rows
    }
