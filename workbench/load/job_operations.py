"""Jobs recorded operation by operation: one Parquet or CSV file per job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError
from workbench.tables import JOB_OPERATIONS

# Name in the table -> name in the files of ByteDance-Seed/StragglerAnalysis.
COLUMNS: Mapping[str, str] = {
    "step": "step",
    "dp_rank": "dp_rank",
    "stage": "stage",
    "operation": "optype",
    "sequence": "seq_id",
    "micro_batch": "mb_id",
    "chunk": "gmc",
    "start_ns": "start_ts",
    "dur_ns": "duration",
}
_COMPUTES = ("forward-compute", "backward-compute")
_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def job_operations(
    path: str | Path, *, columns: Mapping[str, str] | None = None, time_unit: str = "s"
) -> pd.DataFrame:
    """Read the operations of a job.

    Parameters
    ----------
    path
        A Parquet file, or a CSV file (by its ending).
    columns
        Names in the file, by name in the table, where they differ from those of
        ByteDance-Seed/StragglerAnalysis: ``{"operation": "op", "dp_rank": "dp"}``.
    time_unit
        Unit of both time columns: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_OPERATIONS`, by step, rank, stage and start.
        ``attrs["left_out"]`` counts markers that are no operations (``first-op``).

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file or a column cannot be read; names the column and the first bad row.

    Notes
    -----
    Times stored as float32 seconds keep about seven digits; what they lost is lost.
    """
    names = {**COLUMNS, **(columns or {})}
    if unknown := sorted(set(names) - set(COLUMNS)):
        msg = f"columns= names {unknown}, which the table does not have; it has {list(COLUMNS)}"
        raise LoadError(msg)
    if time_unit not in _NS:
        msg = f"time_unit must be one of {list(_NS)}, not {time_unit!r}"
        raise LoadError(msg)
    frame = _read(Path(path))
    if missing := [name for name in names.values() if name not in frame]:
        msg = (
            f"{path}: no column {missing}; it has {list(frame.columns)}. "
            "Say which is which with columns={...}"
        )
        raise LoadError(msg)
    frame = frame[list(names.values())].set_axis(list(names), axis="columns")
    marker = frame["operation"].astype(str).eq("first-op")
    frame = frame[~marker].reset_index(drop=True)
    computes = frame["operation"].astype(str).isin(_COMPUTES)
    table = pd.DataFrame(
        {
            "operation": frame["operation"].astype(str).astype("category"),
            **{
                name: _times(frame[name], name, path, _NS[time_unit])
                for name in ("start_ns", "dur_ns")
            },
            **{
                name: _integers(frame[name], name, path)
                for name in ("step", "dp_rank", "stage", "sequence")
            },
            **{
                name: _integers(frame[name].where(computes), name, path, may_lack=True)
                for name in ("micro_batch", "chunk")
            },
        }
    )
    table = JOB_OPERATIONS.cast(table[list(JOB_OPERATIONS.columns)])
    order = ["step", "dp_rank", "stage", "start_ns"]
    table = table.sort_values(order, kind="stable", ignore_index=True)
    table.attrs["left_out"] = {"first-op": int(marker.sum())} if marker.any() else {}
    return JOB_OPERATIONS.check(table, str(path))


def _read(path: Path) -> pd.DataFrame:
    if not path.exists():
        msg = f"{path}: there is no such file"
        raise FileNotFoundError(msg)
    try:
        if path.name.lower().endswith((".csv", ".csv.gz")):
            return pd.read_csv(path)
        return pd.read_parquet(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        msg = f"{path}: cannot be read as Parquet or CSV ({str(error).strip()[:200]})"
        raise LoadError(msg) from None


def _times(values: pd.Series, name: str, path: str | Path, per_unit: int) -> pd.Series:
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64)
    good = np.isfinite(numbers) & (np.abs(numbers) < (1 << 62) / per_unit)
    if name == "dur_ns":
        good &= numbers >= 0
    _refuse(values, ~good, name, path, "a finite time" + " from 0" * (name == "dur_ns"))
    return pd.Series(np.rint(numbers * per_unit).astype(np.int64))


def _integers(
    values: pd.Series, name: str, path: str | Path, *, may_lack: bool = False
) -> pd.Series:
    numbers = pd.to_numeric(values, errors="coerce")
    lacking = values.isna().to_numpy() if may_lack else np.zeros(len(values), dtype=bool)
    plain = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore"):
        good = (plain >= 0) & (plain == np.floor(plain)) & (plain < 1 << 31)
    _refuse(values, ~(good | lacking), name, path, "a whole number from 0")
    return pd.Series(plain).astype("Int64")


def _refuse(values: pd.Series, bad: np.ndarray, name: str, path: str | Path, expected: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        msg = (
            f"{path}: column for {name!r}: {int(bad.sum()):,} values are not {expected}, "
            f"the first is {values.iloc[row]!r} in row {row:,}"
        )
        raise LoadError(msg)
