"""What kernels measured on one GPU would take on another, by the ratio of what binds them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._perfmodel.kernel_models.gemm_fit import Roof
from workbench.analyze._perfmodel.kernel_models.hardware import gpu_row, peak_of
from workbench.errors import PerformanceModelError
from workbench.tables import SCALED_TIMES

# Kernels that move little for what they compute; all other compute moves more.
_COMPUTE_BOUND = re.compile(
    r"gemm|cutlass|cublas|matmul|wgmma|Cijk_|nvjet|xmma|flash|fmha|attention|conv|wgrad|dgrad",
    re.IGNORECASE,
)
_HOST_COPY = re.compile(r"HtoD|DtoH|Host|Pageable|Pinned", re.IGNORECASE)
_CHOSEN = "scaled by the ratio of peaks; the share of them that is achieved is taken as the same"
_GUESSED = "what binds it was told from its name; " + _CHOSEN
_KEPT = "not known what binds it, so kept as it is"
_HOST = "a copy to or from the host does not depend on these numbers, so kept as it is"
_SHAPE = ["m_count", "n_count", "k_count"]


def scaled_kernel_times(
    kernels: pd.DataFrame,
    from_gpu: str,
    to_gpu: str,
    *,
    dtype: str = "bfloat16",
    crosses_nodes: bool = False,
) -> pd.DataFrame:
    """Scale measured kernel times from one GPU to another.

    Parameters
    ----------
    kernels
        Kernels with ``name`` and ``kind``, e.g. :data:`workbench.tables.KERNELS`, or measured
        products or collectives (:data:`workbench.tables.GEMM_TIMES`,
        :data:`workbench.tables.COLLECTIVE_TIMES`); times are in ``dur_ns`` or ``total_ns``.
    from_gpu
        GPU they were measured on, as the hardware table calls it.
    to_gpu
        GPU that is asked about.
    dtype
        Element type of matrix products whose rows do not tell it.
    crosses_nodes
        Whether collectives that do not tell it are bound by the network between nodes.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SCALED_TIMES`: ``gpu``, ``bound``, ``time_ratio``,
        ``scaled_ns``, ``basis``, ``doubt``, beside the columns of ``kernels``, in the same
        order.

    Raises
    ------
    PerformanceModelError
        If a GPU or type is not known, a needed column is missing, or rows are of another GPU.

    Notes
    -----
    Compute-bound (matrix products, attention, convolutions): ratio of dense peaks; a product
    with its shape by the ratio of its rooflines. Other compute and copies on the GPU: ratio of
    memory bandwidths. Communication: ratio of links, or of networks. What is none of these is
    kept. Latencies do not scale, so short kernels change less than this says.
    """
    here, there = gpu_row(from_gpu), gpu_row(to_gpu)
    time = next((name for name in ("dur_ns", "total_ns") if name in kernels), None)
    if time is None:
        msg = f"kernels lack a time, dur_ns or total_ns; they have {list(kernels)[:20]}"
        raise PerformanceModelError(msg)
    _refuse_others(kernels, from_gpu)
    bound, doubt = _bounds(kernels)
    ratio = np.ones(len(kernels))
    memory = float(here["memory_bytes_per_s"] / there["memory_bytes_per_s"])
    ratio[bound == "memory"] = memory
    computes = bound == "compute"
    if computes.any():
        if set(_SHAPE) <= set(kernels):
            ratio, bound = _by_roofline(kernels, from_gpu, to_gpu, dtype)
        else:
            ratio[computes] = peak_of(from_gpu, dtype) / peak_of(to_gpu, dtype)
    network = np.full(len(kernels), crosses_nodes)
    if "node_count" in kernels:
        network = kernels["node_count"].to_numpy() > 1
    for crosses, column in ((False, "link_bytes_per_s"), (True, "network_bytes_per_s")):
        ratio[(bound == "communication") & (network == crosses)] = float(
            here[column] / there[column]
        )
    added = pd.DataFrame(
        {
            "gpu": to_gpu,
            "bound": bound,
            "time_ratio": ratio,
            "scaled_ns": np.rint(kernels[time].to_numpy(dtype=np.float64) * ratio),
            "basis": "scaled",
            "doubt": doubt,
        }
    )
    added = SCALED_TIMES.cast(added)
    kept = kernels.drop(columns=list(added), errors="ignore").reset_index(drop=True)
    return SCALED_TIMES.check(pd.concat([kept, added], axis=1))


def _bounds(kernels: pd.DataFrame) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Say what binds each kernel, and how sure that is."""
    size = len(kernels)
    if set(_SHAPE) <= set(kernels):
        return np.full(size, "compute", dtype=object), np.full(size, _CHOSEN, dtype=object)
    if "collective" in kernels and "size_bytes" in kernels:
        return np.full(size, "communication", dtype=object), np.full(size, _CHOSEN, dtype=object)
    if missing := [name for name in ("name", "kind") if name not in kernels]:
        msg = f"kernels lack {missing}; pass a table of kernels, products or collectives"
        raise PerformanceModelError(msg)
    kind = kernels["kind"].astype(object).to_numpy()
    names = kernels["name"].astype(str)
    heavy = names.str.contains(_COMPUTE_BOUND).to_numpy(dtype=bool)
    host = (kind == "memory") & names.str.contains(_HOST_COPY).to_numpy(dtype=bool)
    choices = [
        (kind == "compute") & heavy,
        ((kind == "compute") & ~heavy) | ((kind == "memory") & ~host),
        kind == "communication",
    ]
    bound = np.select(choices, ["compute", "memory", "communication"], "other").astype(object)
    doubt = np.where(host, _HOST, np.where(bound == "other", _KEPT, _GUESSED)).astype(object)
    return bound, doubt


def _by_roofline(
    kernels: pd.DataFrame, from_gpu: str, to_gpu: str, dtype: str
) -> tuple[NDArray[np.float64], NDArray[np.object_]]:
    ratio = np.ones(len(kernels))
    bound = np.full(len(kernels), "compute", dtype=object)
    types = kernels["dtype"].astype(str) if "dtype" in kernels else None
    names = pd.Series(dtype, index=kernels.index) if types is None else types
    for name in names.unique():
        mine = (names == name).to_numpy()
        shapes = kernels.loc[mine, _SHAPE].to_numpy(dtype=np.float64)
        here, there = Roof.of(from_gpu, str(name)), Roof.of(to_gpu, str(name))
        ratio[mine] = there.seconds(shapes) / here.seconds(shapes)
        flops, moved = there.parts(shapes)
        memory = moved / there.bytes_per_s > flops / there.peak_flop_per_s
        bound[mine] = np.where(memory, "memory", "compute")
    return ratio, bound


def _refuse_others(kernels: pd.DataFrame, from_gpu: str) -> None:
    if "gpu" in kernels and (odd := sorted(set(kernels["gpu"].astype(str)) - {from_gpu})):
        msg = f"rows were measured on {odd}, not on {from_gpu!r}; choose those of one GPU first"
        raise PerformanceModelError(msg)
