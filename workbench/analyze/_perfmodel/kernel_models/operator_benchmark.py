"""Operators replayed alone beside what they took in the job."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import PerformanceModelError
from workbench.tables import (
    NODE_TIMES,
    OPERATOR_BENCHMARK,
    OPERATOR_CALLS,
    OPERATOR_COVERAGE,
    OPERATOR_REPLAY,
)

_KEYS = ["rank", "node"]
_OTHER_DEVICE = "ran on {job} in the job and on {here} here: times of different devices"
_FEW = "{few:,} of {all:,} calls are compared"
_WIDE = 2.0  # a replay this many times slower or faster measures something else
_WHY_WIDE = "differs {times:.3g}-fold: the replay does not measure what the job did"


def operator_benchmark(
    calls: pd.DataFrame, replayed: pd.DataFrame, original: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Compare, by operator, the time of a replay with the time in the job.

    Only calls that have both times and ran on the same kind of device are compared.

    Parameters
    ----------
    calls
        Table :data:`workbench.tables.OPERATOR_CALLS`.
    replayed
        Table :data:`workbench.tables.OPERATOR_REPLAY` of these calls.
    original
        Table :data:`workbench.tables.NODE_TIMES` of these calls, from a profiler trace of
        the same job. Without it, durations count that the execution trace states itself.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.OPERATOR_BENCHMARK`, one row per operator, longest in
        the job first (in the replay, where the job has no times).

    Raises
    ------
    PerformanceModelError
        If the replay is of other calls.

    Notes
    -----
    On a GPU the time of its work is compared, on a CPU that of the call: a call returns
    long before its kernels end. A call whose tensors are on a GPU and that ran on a CPU is
    never compared. The ratio is replayed to original, both summed over the calls compared.

    References
    ----------
    Mystique, arXiv 2301.04122, section 5.
    """
    joined = _joined(calls, replayed, original)
    rows = [_row(str(name), mine) for name, mine in joined.groupby("name", observed=True)]
    if not rows:
        return OPERATOR_BENCHMARK.empty()
    table = OPERATOR_BENCHMARK.cast(pd.DataFrame(rows))
    order = table.fillna({"original_ns": 0.0, "replayed_ns": 0.0}).sort_values(
        ["original_ns", "replayed_ns", "call_count"], ascending=False, kind="stable"
    )
    return OPERATOR_BENCHMARK.check(table.loc[order.index].reset_index(drop=True))


def operator_coverage(
    calls: pd.DataFrame, replayed: pd.DataFrame, original: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Say how much of a job a replay covers, by calls and by time, and what it drops.

    Parameters
    ----------
    calls, replayed, original
        As for :func:`operator_benchmark`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.OPERATOR_COVERAGE`, one row per outcome: ``replayed``
        first, then every reason not to be, most calls first.

    Raises
    ------
    PerformanceModelError
        If the replay is of other calls.

    Notes
    -----
    The share of time is missing if not a single call has a time in the job; calls without
    one count as 0 in it. ``replay_ratio`` is the one for the whole job.
    """
    joined = _joined(calls, replayed, original)
    total = _zero(joined["original_ns"].sum(min_count=1))
    rows = []
    for outcome, mine in joined.groupby("outcome", sort=False):
        compared = mine[mine["is_compared"]]
        taken = mine["original_ns"].sum(min_count=1)
        rows.append(
            {
                "outcome": outcome,
                "call_count": len(mine),
                "call_share": len(mine) / len(joined),
                "original_ns": taken,
                "original_share": _zero(taken) / total if total > 0 else None,
                "compared_count": len(compared),
                "replay_ratio": _ratio(compared),
            }
        )
    if not rows:
        return OPERATOR_COVERAGE.empty()
    table = OPERATOR_COVERAGE.cast(pd.DataFrame(rows))
    is_first = (table["outcome"] == "replayed").to_numpy()
    order = np.lexsort((-table["call_count"].to_numpy(), ~is_first))
    return OPERATOR_COVERAGE.check(table.iloc[order].reset_index(drop=True))


def _joined(
    calls: pd.DataFrame, replayed: pd.DataFrame, original: pd.DataFrame | None
) -> pd.DataFrame:
    """Put the three side by side, one row per call, and say which calls can be compared."""
    OPERATOR_CALLS.check(calls, "calls")
    OPERATOR_REPLAY.check(replayed, "replayed")
    _refuse_others(calls, replayed)
    names = ["rank", "node", "device", "reason", "host_ns", "gpu_ns"]
    joined = calls[[*_KEYS, "name", "device", "dur_ns", "is_replayed", "reason"]].merge(
        replayed[names].drop_duplicates(_KEYS), on=_KEYS, how="left", suffixes=("", "_here")
    )
    if original is not None:
        NODE_TIMES.check(original, "original")
        times = original[[*_KEYS, "host_ns", "gpu_ns"]].drop_duplicates(_KEYS)
        joined = joined.merge(times, on=_KEYS, how="left", suffixes=("", "_job"))
    else:
        joined["host_ns_job"] = joined["dur_ns"].astype("Float64")
        joined["gpu_ns_job"] = pd.array([pd.NA] * len(joined), dtype="Float64")
    job, here = joined["device"].astype(object), joined["device_here"].astype(object)
    worked = (joined["gpu_ns_job"] > 0).fillna(value=False).astype(bool)
    on_gpu = (job != "cpu") & (job.notna() | worked)
    # Kernels run after the call returns; only their time says what the operator took.
    joined["original_ns"] = joined["gpu_ns_job"].where(on_gpu, joined["host_ns_job"])
    joined["replayed_ns"] = joined["gpu_ns"].where(here != "cpu", joined["host_ns"])
    is_same = (job == here) | (job.isna() & (here == "cpu"))
    both = joined["original_ns"].notna() & joined["replayed_ns"].notna()
    joined["is_same_device"] = is_same.to_numpy(dtype=bool)
    joined["is_compared"] = joined["is_same_device"] & both
    said = joined["reason"].astype(object).where(joined["reason"].notna(), joined["reason_here"])
    untold = np.where(joined["replayed_ns"].notna(), "replayed", "not in the replay")
    joined["outcome"] = said.where(said.notna(), pd.Series(untold, index=joined.index))
    return joined


def _refuse_others(calls: pd.DataFrame, replayed: pd.DataFrame) -> None:
    known = calls[[*_KEYS, "name"]].astype({"name": object})
    wanted = replayed[[*_KEYS, "name"]].astype({"name": object})
    found = wanted.merge(known, on=_KEYS, how="left", suffixes=("", "_known"))
    strange = found[found["name"] != found["name_known"]]
    if len(strange):
        first = strange.iloc[0]
        msg = (
            f"{len(strange):,} of {len(replayed):,} replayed calls are not among these calls: "
            f"rank {first['rank']}, node {first['node']} is {first['name']!r} there and "
            f"{first['name_known']!r} here; pass the calls that the script was made from"
        )
        raise PerformanceModelError(msg)


def _row(name: str, mine: pd.DataFrame) -> dict[str, Any]:
    """Add up the calls of one operator."""
    compared = mine[mine["is_compared"]]
    ran = mine[mine["replayed_ns"].notna()]
    ratio = _ratio(compared)
    job = sorted({str(each) for each in mine["device"].dropna()}) or ["unknown"]
    here = sorted({str(each) for each in mine["device_here"].dropna()}) or ["nothing"]
    where = (" and ".join(job), " and ".join(here))
    return {
        "name": name,
        "call_count": len(mine),
        "replayed_count": len(ran),
        "original_count": int(mine["original_ns"].notna().sum()),
        "compared_count": len(compared),
        "original_ns": mine["original_ns"].sum(min_count=1),
        "original_compared_ns": compared["original_ns"].sum(min_count=1),
        "replayed_ns": ran["replayed_ns"].sum(min_count=1),
        "replayed_compared_ns": compared["replayed_ns"].sum(min_count=1),
        "replay_ratio": ratio,
        "device": where[0] if where[0] == where[1] else f"{where[0]}, replayed on {where[1]}",
        "is_comparable": bool(mine["is_same_device"].any()),
        "note": _note(mine, ran, compared, ratio, where),
    }


def _note(
    mine: pd.DataFrame,
    ran: pd.DataFrame,
    compared: pd.DataFrame,
    ratio: float | None,
    where: tuple[str, str],
) -> str:
    """Say why there is no ratio, or what is doubtful about it."""
    if ran.empty:
        return str(mine["outcome"].iloc[0])
    if not ran["is_same_device"].any():
        return _OTHER_DEVICE.format(job=where[0], here=where[1])
    if compared.empty:
        return "no time in the job is known"
    if ratio is None:
        return "took no time in the job"
    notes = []
    if not 1 / _WIDE <= ratio <= _WIDE:
        notes.append(_WHY_WIDE.format(times=max(ratio, 1 / ratio) if ratio else np.inf))
    if len(compared) < len(mine):
        notes.append(_FEW.format(few=len(compared), all=len(mine)))
    return "; ".join(notes)


def _ratio(compared: pd.DataFrame) -> float | None:
    """Return replayed to original time, None if that says nothing."""
    job, here = float(compared["original_ns"].sum()), float(compared["replayed_ns"].sum())
    return here / job if job > 0 else None


def _zero(value: Any) -> float:
    return 0.0 if pd.isna(value) else float(value)
