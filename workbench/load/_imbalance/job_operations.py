"""Jobs recorded operation by operation: one Parquet or CSV file per job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import LoadError
from workbench.load._files.stored import stored_tables
from workbench.load._files.tables import (
    as_floats,
    read_csv,
    read_parquet,
    refuse_unless,
    says_synthetic,
    without_cut_row,
)
from workbench.tables import JOB_OPERATIONS

# Name in the table -> name in the files of ByteDance-Seed/StragglerAnalysis.
COLUMNS: Mapping[str, str] = {
    "step": "step", "dp_rank": "dp_rank", "stage": "stage", "operation": "optype",
    "sequence": "seq_id", "micro_batch": "mb_id", "chunk": "gmc", "start_ns": "start_ts",
    "dur_ns": "duration",
}  # fmt: skip
# Read where named: rows of the ranks of one tensor-parallel group become one.
_TENSOR = "tp_rank"
# A clock is off by at least so much of a usual operation, in at least so many of a step.
_CLOCK_SHARE, _FEWEST_OPERATIONS = 0.05, 4
_WORKER = ("step", "dp_rank", "stage")
_COMPUTES = ("forward-compute", "backward-compute")
_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def job_operations(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    operations: Mapping[str, str] | None = None,
    time_unit: str = "s",
    zero_run_rows: int = 8,
) -> pd.DataFrame:
    """Read the operations of a job.

    Parameters
    ----------
    path
        A Parquet file, or a CSV file (by its ending).
    columns
        Names in the file, by name in the table, where they differ from those of
        ByteDance-Seed/StragglerAnalysis: ``{"operation": "op", "dp_rank": "dp"}``. Without
        interleaved chunks, ``{"chunk": "stage"}`` reads the stage as chunk. ``"tp_rank"``
        names the tensor-parallel rank, if each has rows of its own: one row per group is
        kept, from the earliest start to the latest end.
    operations
        Names in the table, by name in the file, where they differ: ``{"fwd":
        "forward-compute", "allreduce_grads": "grads-reduce-scatter"}``.
    time_unit
        Unit of both time columns: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``. Points in time and
        time spans (datetime64, timedelta64) know theirs and are converted exactly.
    zero_run_rows
        So many rows after each other with a duration, or a start, of exactly 0 are doubted.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_OPERATIONS`, by step, rank, stage and start.
        ``attrs["left_out"]`` counts markers, not operations (``first-op``), rows joined with
        those of another tensor-parallel rank, and a last line without a line end, which may be cut.
        ``attrs["resolution_ns"]`` is what two starts must differ by to be told apart, if they are
        stored as floats. ``attrs["doubts"]`` says in words where runs of exact zeros are (rows of
        the file, the first is 0); :func:`workbench.analyze.job_slowdown` repeats it.
        ``attrs["synthetic"]`` is true if a Parquet file says so in its metadata.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file or a column cannot be read; names the column and the first bad row. Also
        if starts are stored too coarsely to be told apart.

    Notes
    -----
    ``sequence`` (``seq_id``) may lack: it is the order of the starts among equal operations
    of a worker in a step. Where most do not count from 0, because they count over the job or
    over different operations, they are counted again, in the same order. Times stored as
    float32 seconds keep about seven digits; what they lost is lost. Starts coarser than the
    mean duration of the computations, such as float32 seconds since 1970, are refused.
    """
    stored: pd.DataFrame | None = stored_tables(path, "job operations")
    if stored is not None:
        return stored
    names = {**COLUMNS, **(columns or {})}
    if unknown := sorted(set(names) - {*COLUMNS, _TENSOR}):
        msg = f"columns= names {unknown}, which the table does not have; it has {list(COLUMNS)}"
        raise LoadError(msg)
    if time_unit not in _NS:
        msg = f"time_unit must be one of {list(_NS)}, not {time_unit!r}"
        raise LoadError(msg)
    # A last row that may be cut is left out, and counted.
    read, cut = without_cut_row(_read(Path(path)), Path(path), names.values())
    frame = _chosen(read, names, columns or {}, path)
    texts = _renamed(frame["operation"], operations or {}, path)
    marker = texts.eq("first-op")
    frame, texts = frame[~marker].reset_index(drop=True), texts[~marker].reset_index(drop=True)
    table = _numbers(frame, texts, path, _NS[time_unit])
    doubts = zero_runs(table, np.flatnonzero(~marker), zero_run_rows)
    resolution = _resolution(frame["start_ns"], table, path, _NS[time_unit])
    if "sequence" in table:
        table["sequence"] = _within_step(table)
    table, joined, shifted = _one_per_group(table)
    table = table.sort_values([*_WORKER, "start_ns"], kind="stable")
    if "sequence" not in table:
        table["sequence"] = table.groupby([*_WORKER, "operation"]).cumcount()
    table["operation"] = table["operation"].astype("category")
    table = JOB_OPERATIONS.cast(table[list(JOB_OPERATIONS.columns)]).reset_index(drop=True)
    left_out = {"first-op": int(marker.sum()), "rows of other tensor-parallel ranks": joined} | cut
    table.attrs["left_out"] = {reason: count for reason, count in left_out.items() if count}
    facts = {
        "doubts": [*doubts, *shifted],
        "resolution_ns": resolution,
        "synthetic": says_synthetic(path),
    }
    table.attrs |= {name: value for name, value in facts.items() if value}
    return JOB_OPERATIONS.check(table, str(path))


def names_operations(names: Iterable[str]) -> bool:
    """Return whether a file has most columns of ByteDance-Seed/StragglerAnalysis."""
    return 2 * len(set(names) & set(COLUMNS.values())) > len(COLUMNS)


def _chosen(
    frame: pd.DataFrame, names: Mapping[str, str], stated: Mapping[str, str], path: str | Path
) -> pd.DataFrame:
    """Take the columns of the table out of a file; the order of equal operations may lack."""
    wanted = dict(names)
    if "sequence" not in stated and wanted["sequence"] not in frame:
        del wanted["sequence"]
    if doubled := sorted({name for name in wanted.values() if list(frame).count(name) > 1}):
        msg = f"{path}: columns {doubled} are there twice; rename or drop all but one of each"
        raise LoadError(msg)
    if missing := [name for name in wanted.values() if name not in frame]:
        msg = (
            f"{path}: no column {missing}; it has {list(frame.columns)}. "
            "Say which is which with columns={...}; without interleaved chunks, "
            "columns={'chunk': <the column of the stage>}"
        )
        raise LoadError(msg)
    return frame[list(wanted.values())].set_axis(list(wanted), axis="columns")


def _renamed(values: pd.Series, operations: Mapping[str, str], path: str | Path) -> pd.Series:
    texts = values.astype(str).str.strip()
    if absent := sorted(set(operations) - set(texts.unique())):
        msg = f"{path}: operations= names {absent}, which the file does not have"
        raise LoadError(msg)
    return texts.replace(dict(operations))


def _resolution(starts: pd.Series, table: pd.DataFrame, path: str | Path, per_unit: int) -> int:
    """Return how far apart two starts must be to differ; refuse if computations are shorter."""
    if not pd.api.types.is_float_dtype(starts.dtype) or table.empty:
        return 0
    largest = np.abs(starts.to_numpy()).max()
    resolution = int(np.ceil(float(np.spacing(largest)) * per_unit))
    computes = table.loc[table["operation"].isin(_COMPUTES), "dur_ns"]
    if len(computes) and 0 < computes.mean() < resolution:
        msg = (
            f"{path}: starts up to {largest:,.6g} are stored as {starts.dtype}, in steps of "
            f"{resolution:,} ns, but computations take {computes.mean():,.0f} ns; store them from "
            "the beginning of the step, or as float64 or integers"
        )
        raise LoadError(msg)
    return resolution


def _one_per_group(table: pd.DataFrame) -> tuple[pd.DataFrame, int, list[str]]:
    """Join the rows of a tensor-parallel group: from the earliest start to the latest end."""
    if _TENSOR not in table:
        return table, 0, []
    keys = [*_WORKER, "operation", "micro_batch", "chunk", "sequence"]
    if "sequence" not in table:
        own = table.sort_values("start_ns", kind="stable")
        order = own.groupby([*_WORKER, "operation", _TENSOR]).cumcount()
        table = table.assign(sequence=order)
    table, shifted = _on_one_clock(table, keys)
    ends = table.assign(end_ns=table["start_ns"] + table["dur_ns"])
    joined = ends.groupby(keys, dropna=False, sort=False).agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max")
    )
    joined = joined.assign(dur_ns=joined["end_ns"] - joined["start_ns"]).reset_index()
    return joined.drop(columns="end_ns"), len(table) - len(joined), shifted


def _on_one_clock(table: pd.DataFrame, keys: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """Move tensor-parallel ranks whose clock is off within a step onto that of their group.

    Ranks of a group begin together: one that begins and ends everything earlier or later, by
    as much, has another clock. One that is slow ends later and begins with the others.
    """
    ends = table.assign(end_ns=table["start_ns"] + table["dur_ns"])
    groups = ends.groupby(keys, dropna=False)
    apart = {name: ends[name] - groups[name].transform("median") for name in ("start_ns", "end_ns")}
    own = pd.DataFrame(apart).groupby([table[name] for name in (*_WORKER, _TENSOR)])
    begin, end = (own[name].transform("median") for name in apart)
    spread = (apart["start_ns"] - begin).abs().groupby(table[_TENSOR]).transform("median")
    is_off = (begin.abs() > _CLOCK_SHARE * float(table["dur_ns"].median())) & (begin * end > 0)
    is_off &= ((begin - end).abs() < begin.abs() / 2) & (spread < begin.abs() / 4)
    is_off &= own["start_ns"].transform("size") >= _FEWEST_OPERATIONS
    if not is_off.any():
        return table, []
    ranks = ", ".join(map(str, sorted(set(table.loc[is_off, _TENSOR]))[:8]))
    shift = begin.where(is_off, 0).round().astype("int64")
    doubt = (
        f"clocks of tensor-parallel ranks {ranks} are off by up to {shift.abs().max() / 1e6:,.3g} "
        "ms within a step; their times are moved onto the clock of their group"
    )
    return table.assign(start_ns=table["start_ns"] - shift), [doubt]


def _read(path: Path) -> pd.DataFrame:
    frame = read_parquet(path)
    if frame is None:
        return _read_csv(path)
    return frame.rename(columns=lambda name: str(name).strip())


def _read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV file under the names that stand in it; pandas would number doubled ones."""
    names = read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    frame = read_csv(path)
    if frame.shape[1] != names.shape[1] or not isinstance(frame.index, pd.RangeIndex):
        msg = (
            f"{path}: its rows have more fields than the first line has names "
            f"({names.shape[1]}); which is which cannot be known"
        )
        raise LoadError(msg)
    return frame.set_axis([name.strip() for name in names.iloc[0]], axis="columns")


def _within_step(table: pd.DataFrame) -> pd.Series:
    """Count equal operations of a worker within a step, where the file counts otherwise."""
    equal = table.groupby([*_WORKER, "operation"])["sequence"]
    if 2 * (equal.min() > 0).sum() < equal.ngroups:
        return table["sequence"]
    # What has one number stays one, so that doubled rows can still be told.
    return equal.rank(method="dense").sub(1).astype("Int64")


def _numbers(
    frame: pd.DataFrame, texts: pd.Series, path: str | Path, per_unit: int
) -> pd.DataFrame:
    table = pd.DataFrame({"operation": texts})
    for name in ("start_ns", "dur_ns"):
        table[name] = _times(frame[name], path, per_unit)
    for name in (*_WORKER, "sequence", _TENSOR):
        if name in frame:
            table[name] = _integers(frame[name], path)
    computes = texts.isin(_COMPUTES)
    for name in ("micro_batch", "chunk"):
        table[name] = _integers(frame[name].where(computes), path, may_lack=True)
    return table


def _times(values: pd.Series, path: str | Path, per_unit: int) -> pd.Series:
    is_duration = values.name == "dur_ns"
    expected = "a finite time" + " from 0" * is_duration
    if values.dtype.kind in "mM":
        return _exact_times(values, path, expected, is_duration=is_duration)
    if pd.api.types.is_integer_dtype(values.dtype) and not values.isna().any():
        integers = values.to_numpy(dtype=np.int64)
        if np.abs(integers).max(initial=0) < (1 << 62) // per_unit:
            refuse_unless(values, (integers >= 0) | (not is_duration), path, expected)
            return pd.Series(integers * per_unit)
    numbers = as_floats(values)
    good = np.isfinite(numbers) & (np.abs(numbers) < (1 << 62) / per_unit)
    if is_duration:
        good &= numbers >= 0
    refuse_unless(values, good, path, expected)
    return pd.Series(np.rint(numbers * per_unit).astype(np.int64))


def _exact_times(
    values: pd.Series, path: str | Path, expected: str, *, is_duration: bool
) -> pd.Series:
    """Convert points in time, since 1970, and time spans to ns; they know their unit."""
    is_point = values.dtype.kind == "M"
    if is_point and is_duration:
        msg = f"{path}: column for 'dur_ns' holds points in time ({values.dtype}), no durations"
        raise LoadError(msg)
    refuse_unless(values, values.notna().to_numpy(), path, expected)
    if is_point and values.dt.tz is not None:
        values = values.dt.tz_convert(None)
    times: pd.Series = values.dt.as_unit("ns").astype("int64").reset_index(drop=True)
    refuse_unless(values, (times >= 0).to_numpy() | (not is_duration), path, expected)
    return times


def _integers(values: pd.Series, path: str | Path, *, may_lack: bool = False) -> pd.Series:
    # Steps may be of any size that a float64 keeps exactly; the others are int32.
    most = (1 << 53) - 1 if values.name == "step" else (1 << 31) - 1
    lacking = values.isna().to_numpy() if may_lack else np.zeros(len(values), dtype=bool)
    plain = as_floats(values)
    with np.errstate(invalid="ignore"):
        good = (plain >= 0) & (plain == np.floor(plain)) & (plain <= most)
    refuse_unless(values, good | lacking, path, f"a whole number from 0 to {most:,}")
    return pd.Series(plain).astype("Int64")


# Pages of a file that were lost read as 0; but a worker may begin one or two operations at 0.
_STARTS_AT_0 = 2


def zero_runs(table: pd.DataFrame, rows: NDArray[np.int64], run_rows: int) -> list[str]:
    """Name the runs of exact zeros, of at least ``run_rows`` rows, in the order of the file.

    ``rows`` are the rows of the file that the table was made of.
    Of durations only those count whose operation usually takes time, of starts only those of
    workers that begin more operations of a step at 0 than can run at once.
    """
    usual = table.groupby("operation")["dur_ns"].transform("median").to_numpy()
    lasted = table["dur_ns"].to_numpy() == 0
    begun = table["start_ns"].to_numpy() == 0
    worker = [table[name] for name in ("step", "dp_rank", "stage")]
    together = pd.Series(begun).groupby(worker).transform("sum").to_numpy()
    return [
        *_runs(lasted, lasted & (usual > 0), ("durations", run_rows), rows),
        *_runs(begun, begun & (together > _STARTS_AT_0), ("starts", run_rows), rows),
    ]


def _runs(
    is_zero: NDArray[np.bool_],
    is_odd: NDArray[np.bool_],
    rule: tuple[str, int],
    rows: NDArray[np.int64],
) -> list[str]:
    """Describe the runs of zeros that hold so many odd ones."""
    noun, run_rows = rule
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_zero.astype(np.int8), [0]])))
    first, last = edges[::2], edges[1::2]
    odd = np.concatenate([[0], np.cumsum(is_odd)])
    long = odd[last] - odd[first] >= run_rows
    if not long.any():
        return []
    first, last = first[long], last[long]
    count = int((last - first).sum())
    runs = "" if len(first) == 1 else f" in {len(first):,} runs, the first"
    ends = f"{rows[first[0]]:,} to {rows[last[0] - 1]:,}"
    return [
        f"{count:,} {noun} are exactly 0{runs} in rows {ends}: missing values, or a damaged file"
    ]
