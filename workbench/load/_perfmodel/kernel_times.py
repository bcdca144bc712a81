"""Measured times of matrix products and collectives, from a package or from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files import plain_table as plain
from workbench.load._perfmodel import kernel_package as package
from workbench.load._perfmodel.collective_files import read_collectives
from workbench.load._perfmodel.kernel_rows import finished, one_or_column, positive_ns, time_of
from workbench.tables import COLLECTIVE_TIMES, GEMM_TIMES

_GEMM_NAMES = {
    "m_count": ("m_count", "m"),
    "n_count": ("n_count", "n"),
    "k_count": ("k_count", "k"),
}


def gemm_times(
    path: str | Path | None = None,
    *,
    gpus: Sequence[str] = ("H100", "H200"),
    dtypes: Sequence[str] | None = ("bfloat16",),
    framework: str = "vllm",
    version: str | None = None,
) -> pd.DataFrame:
    """Read measured times of matrix products.

    Parameters
    ----------
    path
        A CSV or Parquet file with ``m``, ``n``, ``k`` (or ``m_count``, ...), a time
        (``latency`` in ms, ``time_us`` or ``dur_ns``), and, where it has several, ``gpu`` and
        ``dtype``. None reads the tables of the installed package aiconfigurator-core.
    gpus
        GPUs to read from the package; for a file without a column ``gpu``, the one it was
        measured on.
    dtypes
        Element types to keep; None keeps all. For a file without ``dtype``, the one it is.
    framework
        Which of the package's measurements: ``"vllm"``, ``"sglang"`` or ``"trtllm"``. They call
        different kernels, so the times differ. vLLM's linear layers are plain cuBLAS.
    version
        Version of the framework; the newest by default.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GEMM_TIMES`. ``attrs["quality"]`` is a table
        :data:`workbench.tables.QUALITY` of what was left out or repeats.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column, GPU, framework, version or type is missing, or a time is no number above 0.
    MissingExtraError
        If the package is needed and not installed.

    References
    ----------
    ai-dynamo/aiconfigurator (Apache-2.0), ``systems/data/<gpu>/gemm/<framework>/<version>``;
    latencies in milliseconds.
    """
    if path is not None:
        return _own_gemms(Path(path), gpus=gpus, dtypes=dtypes)
    found = []
    for gpu, folder in _chosen(gpus):
        file = package.newest(folder / "gemm" / framework, version, "gemm_perf.parquet")
        raw = plain.read(file)
        frame = pd.DataFrame(
            {
                **{name: raw[names[1]] for name, names in _GEMM_NAMES.items()},
                "dtype": raw["gemm_dtype"].astype(str),
                "dur_ns": positive_ns(raw["latency"], 1e6, file),
            }
        )
        found.append(frame.assign(gpu=gpu, source=package.described(file)))
    return finished(pd.concat(found), GEMM_TIMES, dtypes=dtypes, origin="aiconfigurator-core")


def collective_times(
    path: str | Path | None = None,
    *,
    gpus: Sequence[str] = ("H100", "H200"),
    dtypes: Sequence[str] | None = None,
    version: str | None = None,
) -> pd.DataFrame:
    """Read measured times of collectives.

    Parameters
    ----------
    path
        A file, recognised by its columns: DistCA's ``nccl_perf.csv`` and
        ``network-*.csv``, Vidur's ``all_reduce.csv``, vTrain's ``AR_GPU<n>_*_LUT``, or a CSV or
        Parquet file with ``collective``, ``rank_count``, ``size_bytes`` and a time
        (``dur_ns``, ``time_us`` or ``latency_ms``), and perhaps ``gpu``, ``dtype``,
        ``node_count``. None reads the tables of the installed package aiconfigurator-core.
    gpus
        GPUs to read from the package; for a file that does not name its GPU, the one it was
        measured on.
    dtypes
        Element types to keep; None keeps all.
    version
        Version of NCCL in the package; the newest by default.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.COLLECTIVE_TIMES`. ``attrs["quality"]`` is a table
        :data:`workbench.tables.QUALITY` of what was left out, repeats or is coarse.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the columns are none of those above, a GPU or version is missing, it is not known
        which GPU it was, or a time is no number above 0.
    MissingExtraError
        If the package is needed and not installed.

    Notes
    -----
    Sizes are bytes as nccl-tests counts them: the larger of what a rank sends and receives.

    - aiconfigurator's ``message_size`` is a number of *elements*: its collector writes the size
      given to nccl-tests divided by 2 for ``half`` and by 1 for ``int8``. In the data, ``half``
      of N/2 elements takes as long as ``int8`` of N, and read as bytes no all-reduce of
      ``half`` would pass half of the bandwidth of ``int8``.
    - DistCA's ``network-*.csv`` count elements per GPU, so an all-gather of n ranks has n times
      as many bytes; its times have two decimals of a millisecond and hold a barrier.
    - Vidur's ``size`` is bytes; the time is the mean of the kernel.
    - vTrain's look-up tables hold nanoseconds, of which the out-of-place ones are read.

    References
    ----------
    ai-dynamo/aiconfigurator ``collector/collect_nccl.py``; NVIDIA/nccl-tests
    ``doc/PERFORMANCE.md``; hao-ai-lab/DistCA; microsoft/vidur; VIA-Research/vTrain.
    """
    if path is not None:
        return read_collectives(Path(path), gpus=gpus, dtypes=dtypes)
    found = []
    for gpu, folder in _chosen(gpus):
        file = package.newest(folder / "comm" / "nccl", version, "nccl_perf.parquet")
        raw = plain.read(file)
        element = raw["nccl_dtype"].astype(str).map({"half": 2, "int8": 1})
        if element.isna().any():
            odd = sorted(set(raw["nccl_dtype"][element.isna()].astype(str)))
            msg = f"{file}: element types {odd} are not known, so sizes in bytes are not"
            raise LoadError(msg)
        frame = pd.DataFrame(
            {
                "collective": raw["op_name"].astype(str).str.replace("_", "-"),
                "dtype": raw["nccl_dtype"].astype(str),
                "rank_count": raw["num_gpus"],
                "size_bytes": raw["message_size"] * element,
                "dur_ns": positive_ns(raw["latency"], 1e6, file),
            }
        ).replace({"collective": {"alltoall": "all-to-all"}})
        found.append(frame.assign(gpu=gpu, node_count=1, source=package.described(file)))
    origin = "aiconfigurator-core"
    return finished(pd.concat(found), COLLECTIVE_TIMES, dtypes=dtypes, origin=origin)


def _chosen(gpus: Sequence[str]) -> list[tuple[str, Path]]:
    known = package.gpus()
    if isinstance(gpus, str) or not gpus or (unknown := [g for g in gpus if g not in known]):
        odd = [gpus] if isinstance(gpus, str) or not gpus else unknown
        msg = f"the package has no GPU {odd}; pass some of {sorted(known)} as a list"
        raise LoadError(msg)
    return [(gpu, known[gpu]) for gpu in gpus]


def _own_gemms(path: Path, *, gpus: Sequence[str], dtypes: Sequence[str] | None) -> pd.DataFrame:
    raw = plain.read(path)
    plain.refuse_cut_row(raw, path, raw.columns)
    table: dict[str, Any] = {}
    for name, names in _GEMM_NAMES.items():
        column = next((each for each in names if each in raw), None)
        if column is None:
            msg = f"{path}: no column {' or '.join(names)}; it has {list(raw.columns)[:20]}"
            raise LoadError(msg)
        table[name] = plain.whole(raw[column], path, least=1)
    table["dur_ns"] = time_of(raw, path)
    table["gpu"] = one_or_column(raw, "gpu", gpus, path)
    known = [name for name in ("dtype", "gemm_dtype") if name in raw]
    kept = None if known and dtypes is None else dtypes
    table["dtype"] = (
        raw[known[0]].astype(str).to_numpy() if known else one_or_column(raw, "dtype", kept, path)
    )
    frame = pd.DataFrame(table).assign(source=path.name)
    return finished(
        frame,
        GEMM_TIMES,
        dtypes=dtypes if known else None,
        origin=str(path),
        findings=[("truncated", what, n) for what, n in plain.left_out(path).items()],
    )
