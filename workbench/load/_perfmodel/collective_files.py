"""Files with times of collectives, recognised by their columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.whole_file import read_csv, read_parquet, without_cut_row
from workbench.load._perfmodel.kernel_rows import (
    finished,
    numbers_of,
    one_or_column,
    positive_ns,
    time_of,
)
from workbench.tables import COLLECTIVE_TIMES

_OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce")
_ELEMENT_BYTES = {"half": 2, "fp16": 2, "float16": 2, "bfloat16": 2, "float": 4, "int8": 1}
# Columns that the readers of this file take, of any of the formats.
_USED = re.compile(
    r"op|ngpu|dtype|size_bytes|t_us_out|gpu_type|world_size|nelem|latency\(ms\)|collective|"
    r"num_workers|size|devices_per_node|time_stats\.\w+\.mean|size\(B\)|type|time\(ns\)|"
    r"rank_count|node_count|gpu|dur_ns|time_us|latency_ms"
)
# DistCA's latencies have two decimals of a millisecond.
_COARSE_NS, _COARSE_STEPS = 10_000, 20


def read_collectives(
    path: Path, *, gpus: Sequence[str], dtypes: Sequence[str] | None
) -> pd.DataFrame:
    """Read one file of measured collectives."""
    raw = _read(path)
    columns = set(map(str, raw.columns))
    reader = next((read for needs, read in _READERS if needs <= columns), None)
    if reader is None:
        known = [sorted(needs) for needs, _ in _READERS]
        msg = f"{path}: no times of collectives are known with columns {sorted(columns)[:20]}; "
        msg += f"known are {known}"
        raise LoadError(msg)
    raw, left_out = without_cut_row(raw, path, [name for name in columns if _USED.fullmatch(name)])
    frame = reader(raw, path)
    if "gpu" not in frame:
        frame["gpu"] = one_or_column(raw, "gpu", gpus, path)
    coarse = int((frame["dur_ns"] < _COARSE_NS * _COARSE_STEPS).sum()) if reader is _distca else 0
    findings = [("truncated", what, count) for what, count in left_out.items()]
    if coarse:
        what = "times are rounded to 10 µs, which is much of a short one"
        findings.append(("noted", what, coarse))
    frame = frame.assign(source=path.name)
    return finished(
        frame,
        COLLECTIVE_TIMES,
        dtypes=dtypes,
        origin=str(path),
        findings=findings,
    )


def operation(names: pd.Series, path: Path) -> pd.Series:
    """Spell the names of collectives as the tables do."""
    letters = names.astype(str).str.lower().str.replace("[^a-z]", "", regex=True)
    known = {name.replace("-", ""): name for name in _OPERATIONS}
    found = letters.map(known)
    if found.isna().any():
        odd = sorted(set(names[found.isna()].astype(str)))
        msg = f"{path}: {odd} are no collectives that are known; known are {list(_OPERATIONS)}"
        raise LoadError(msg)
    return found


def _read(path: Path) -> pd.DataFrame:
    frame = read_parquet(path)
    frame = read_csv(path) if frame is None else frame
    if frame.empty:
        msg = f"{path}: holds no measurements"
        raise LoadError(msg)
    return frame


def _elements(names: pd.Series, path: Path) -> pd.Series:
    found = names.astype(str).map(_ELEMENT_BYTES)
    if found.isna().any():
        odd = sorted(set(names[found.isna()].astype(str)))
        msg = f"{path}: element types {odd} are not known; known are {list(_ELEMENT_BYTES)}"
        raise LoadError(msg)
    return found.astype("int64")


def _nccl_tests(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    numbers = numbers_of(raw, ["ngpu", "size_bytes"], path)
    return pd.DataFrame(
        {
            "collective": operation(raw["op"], path),
            "dtype": raw["dtype"].astype(str),
            "rank_count": numbers["ngpu"],
            "node_count": 1,
            "size_bytes": numbers["size_bytes"],
            "dur_ns": positive_ns(raw["t_us_out"], 1e3, path),
        }
    )


def _distca(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    numbers = numbers_of(raw, ["world_size", "nelem"], path)
    ranks, name = numbers["world_size"], operation(raw["op"], path)
    # Elements are those of one GPU; an all-gather receives as many from each.
    parts = ranks.where(name == "all-gather", 1)
    return pd.DataFrame(
        {
            "gpu": raw["gpu_type"].astype(str),
            "collective": name,
            "dtype": raw["dtype"].astype(str),
            "rank_count": ranks,
            "node_count": 1,
            "size_bytes": numbers["nelem"] * _elements(raw["dtype"], path) * parts,
            "dur_ns": positive_ns(raw["latency(ms)"], 1e6, path),
        }
    )


def _vidur(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    numbers = numbers_of(raw, ["num_workers", "devices_per_node", "size"], path)
    ranks, per_node = numbers["num_workers"], numbers["devices_per_node"]
    name = operation(raw["collective"], path)
    times = pd.Series(index=raw.index, dtype="int64")
    for known in name.unique():
        column = f"time_stats.{known.replace('-', '_')}.mean"
        mine = name == known
        if column not in raw:
            msg = f"{path}: no column {column!r} for {known}"
            raise LoadError(msg)
        times = times.where(~mine, positive_ns(raw[column].where(mine, 1.0), 1e6, path))
    return pd.DataFrame(
        {
            "collective": name,
            "dtype": "half",
            "rank_count": ranks,
            "node_count": -(-ranks // per_node),
            "size_bytes": numbers["size"],
            "dur_ns": times,
        }
    )


def _vtrain(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    ranks = re.search(r"GPU(\d+)", path.name)
    if ranks is None or int(ranks[1]) < 2:
        msg = f"{path}: the number of ranks is told by the file's name alone, as AR_GPU8_..._LUT"
        raise LoadError(msg)
    return pd.DataFrame(
        {
            "collective": "all-reduce",
            "dtype": raw["type"].astype(str),
            "rank_count": int(ranks[1]),
            "node_count": 1,
            "size_bytes": numbers_of(raw, ["size(B)"], path)["size(B)"],
            "dur_ns": positive_ns(raw["time(ns)"], 1.0, path),
        }
    )


def _own(raw: pd.DataFrame, path: Path) -> pd.DataFrame:
    numbers = numbers_of(raw, ["rank_count", "size_bytes"], path)
    frame = pd.DataFrame(
        {"collective": operation(raw["collective"], path), **numbers, "dur_ns": time_of(raw, path)}
    )
    nodes = numbers_of(raw, ["node_count"], path)["node_count"] if "node_count" in raw else 1
    types = raw["dtype"].astype(str) if "dtype" in raw else "not told"
    frame = frame.assign(node_count=nodes, dtype=types)
    return frame.assign(gpu=raw["gpu"].astype(str)) if "gpu" in raw else frame


Reader = Callable[[pd.DataFrame, Path], pd.DataFrame]
_READERS: tuple[tuple[frozenset[str], Reader], ...] = (
    (frozenset({"op", "ngpu", "dtype", "size_bytes", "t_us_out"}), _nccl_tests),
    (frozenset({"gpu_type", "world_size", "op", "nelem", "dtype", "latency(ms)"}), _distca),
    (frozenset({"collective", "num_workers", "size", "devices_per_node"}), _vidur),
    (frozenset({"size(B)", "count", "type", "time(ns)"}), _vtrain),
    (frozenset({"collective", "rank_count", "size_bytes"}), _own),
)
