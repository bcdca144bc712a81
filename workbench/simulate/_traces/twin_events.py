"""The events of a twin, as the loader of a profiler trace would give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.simulate._traces.draws import Draws
from workbench.tables import (
    EVENTS,
    PROCESS_GROUPS,
    QUALITY,
    RANKS,
    SAYS_SYNTHETIC,
    STEPS,
    Trace,
    TraceProfile,
)
from workbench.tables.trace_profile import SYNC

_ORIGIN_NS = 1_000_000_000
_SOURCE = "synthetic: drawn from a trace profile"
# As PyTorch spells them.
_COLLECTIVES = {
    "all-reduce": "allreduce", "all-gather": "_allgather_base", "all-to-all": "all_to_all",
    "reduce-scatter": "_reduce_scatter_base",
    # Drawn as collectives; NCCL runs an all-to-all as such transfers, too.
    "send-receive": "all_to_all", "send": "all_to_all", "receive": "all_to_all",
}  # fmt: skip
_CALLS = {"memory": "cudaMemcpyAsync", SYNC: "cudaStreamSynchronize"}


@dataclass(frozen=True)
class Launches:
    """Steps that ran: call, end of the call, start and end of the work, its own time."""

    times: NDArray[np.float64]  # by moment, operation and rank [ns]
    causes: NDArray[np.int64]  # per operation the one whose end it waited for; -1 if none
    begin: NDArray[np.float64]  # by step and rank
    end: NDArray[np.float64]

    @classmethod
    def joined(cls, steps: Sequence[Launches]) -> Launches:
        return cls(
            np.concatenate([step.times for step in steps], axis=1),
            np.concatenate([step.causes for step in steps]),
            np.concatenate([step.begin for step in steps]),
            np.concatenate([step.end for step in steps]),
        )


def trace_of(
    profile: TraceProfile, draws: Draws, launches: Launches, size: NDArray[np.float64]
) -> Trace:
    """Return the tables that a loader would make of the traces of all ranks."""
    table = _work(draws, launches, size)
    marks = _marks(launches)
    parts = [_calls(table), _gpu(table, launches.begin.shape[1]), *_waits(table), marks]
    events = _ordered(pd.concat(parts, ignore_index=True))
    count = launches.begin.shape[1]
    ends = (events["start_ns"] + events["dur_ns"]).groupby(events["rank"]).max()
    ranks = {
        "rank": np.arange(count), "rank_source": "trace", "world_size": count, "backend": "nccl",
        "source": [f"synthetic_rank_{rank}" for rank in range(count)], "format": "synthetic",
        "clock": "epoch", "first_ns": events.groupby("rank")["start_ns"].min().to_numpy(),
        "last_ns": ends.to_numpy(), "event_count": events.groupby("rank").size().to_numpy(),
    }  # fmt: skip
    quality = [(_SOURCE, "noted", SAYS_SYNTHETIC, count, None)]
    quality += [(_SOURCE, "assumed", doubt, 1, None) for doubt in profile.doubts]
    steps = marks[["rank", "step", "start_ns", "dur_ns"]]
    return Trace.of(
        events=events, ranks=RANKS.of(ranks), process_groups=_groups(table, count),
        steps=STEPS.of(steps), quality=QUALITY.of(quality),
    )  # fmt: skip


def _work(draws: Draws, launches: Launches, size: NDArray[np.float64]) -> pd.DataFrame:
    """Return one row per operation and rank, in order of the host."""
    length, (steps, count) = len(draws.operations), launches.begin.shape
    step, place = np.divmod(np.arange(length * steps), length)
    operations = pd.DataFrame(draws.operations)
    rows = operations.iloc[place].reset_index(drop=True)
    rows = rows.assign(
        step=step, size=size[place], symbol=draws.codes[place], cause=launches.causes
    )
    talks = rows["kind"] == "communication"
    rows["name"] = _names(rows)
    rows["sequence"] = rows[talks].groupby("group").cumcount().reindex(rows.index)
    table = rows.iloc[np.repeat(np.arange(len(rows)), count)].reset_index(drop=True)
    names = ("call", "back", "start", "end", "own")
    moments = {
        name: launches.times[at].reshape(-1).astype(np.int64) + _ORIGIN_NS * (name != "own")
        for at, name in enumerate(names)
    }
    table = table.assign(rank=np.tile(np.arange(count), len(rows)), **moments)
    return table.assign(correlation=3 + 3 * np.arange(len(table)))


def _calls(table: pd.DataFrame) -> pd.DataFrame:
    names = table["kind"].map(_CALLS).fillna("cudaLaunchKernel")
    whole = (table["kind"] == SYNC) & (table["stream"] < 0)
    return pd.DataFrame(
        {
            "rank": table["rank"], "start_ns": table["call"],
            "dur_ns": table["back"] - table["call"],
            "name": names.mask(whole, "cudaDeviceSynchronize"), "category": "cuda_runtime",
            "step": table["step"], "thread": "1", "correlation": table["correlation"],
        }
    )  # fmt: skip


def _gpu(table: pd.DataFrame, count: int) -> pd.DataFrame:
    work = table[table["kind"] != SYNC]
    talks, moves = work["kind"] == "communication", work["kind"] == "memory"
    members = work["group"].where(work["group"] > 0, count)
    group = work["group"].astype(str) + " " + (work["rank"] // members).astype(str)
    known = talks & (work["size"] > 0)
    elements = work["size"].where(known) // 1
    shared = {"all-gather": 1, "reduce-scatter": 1}
    share = elements / members.where(work["operation"].isin(shared), 1)
    gathers = work["operation"] == "all-gather"
    columns: dict[str, Any] = {
        "rank": work["rank"], "start_ns": work["start"], "dur_ns": work["end"] - work["start"],
        "name": work["name"], "category": np.where(moves, "gpu_memcpy", "kernel"),
        "kind": work["kind"], "step": work["step"], "process": "GPU", "device": work["rank"],
        "thread": work["stream"].astype(str), "stream": work["stream"],
        "correlation": work["correlation"],
        "size_bytes": work["size"].where(~talks & (work["size"] > 0)),
        "collective": work["operation"].map(_COLLECTIVES).fillna(work["operation"]).where(talks),
        "group": ("synthetic " + group).where(talks), "group_size": members.where(talks),
        "seq": work["sequence"].where(talks),
        "in_count": np.floor(share.where(gathers, elements)),
        "out_count": np.floor(share.where(work["operation"] == "reduce-scatter", elements)),
        "dtype": pd.Series("Byte", index=work.index).where(known),
    }  # fmt: skip
    return pd.DataFrame(columns)


def _names(work: pd.DataFrame) -> pd.Series:
    names = "synthetic " + work["kind"] + " " + work["symbol"].astype(str)
    copies = "Memcpy synthetic " + work["symbol"].astype(str)
    operation = work["operation"].map(_COLLECTIVES).fillna(work["operation"])
    talk = "ncclSynthetic " + operation + " " + work["symbol"].astype(str)
    names = names.mask(work["kind"] == "memory", copies)
    return names.mask(work["kind"] == "communication", talk)


def _waits(table: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the records by which work waits for a stream, and the host for one."""
    across = table[(table["kind"] != SYNC) & (table["cause"] >= 0)]
    shared = {"category": "cuda_runtime", "thread": "1"}
    count = int(table["rank"].max()) + 1
    # An event is recorded as soon as its work is launched, before anything else is.
    source = table.iloc[(across["cause"] * count + across["rank"]).to_numpy()]
    record = pd.DataFrame(
        {
            "rank": across["rank"], "start_ns": source["back"].to_numpy(), "dur_ns": 0,
            "name": "cudaEventRecord", "step": across["step"],
            "correlation": across["correlation"] - 2, **shared,
        }
    )  # fmt: skip
    wait = record.assign(
        name="cudaStreamWaitEvent", start_ns=across["call"] - 80,
        correlation=across["correlation"] - 1,
    )  # fmt: skip
    told = wait.assign(
        name="Stream Wait Event", category="cuda_sync", thread=across["stream"].astype(str),
        stream=across["stream"], wait_stream=across["waits"], device=across["rank"],
        wait_correlation=record["correlation"], process="GPU",
    )  # fmt: skip
    host = table[(table["kind"] == SYNC) & (table["stream"] >= 0)]
    synced = pd.DataFrame(
        {
            "rank": host["rank"], "start_ns": host["call"], "dur_ns": host["back"] - host["call"],
            "name": "Stream Sync", "category": "cuda_sync", "thread": host["stream"].astype(str),
            "step": host["step"], "stream": host["stream"], "device": host["rank"],
            "correlation": host["correlation"], "process": "GPU",
        }
    )  # fmt: skip
    return [record, wait, told, synced]


def _marks(launches: Launches) -> pd.DataFrame:
    steps, count = launches.begin.shape
    start = launches.begin.reshape(-1).astype(np.int64)
    return pd.DataFrame(
        {
            "rank": np.tile(np.arange(count), steps), "start_ns": start + _ORIGIN_NS,
            "dur_ns": launches.end.reshape(-1).astype(np.int64) - start,
            "name": [f"ProfilerStep#{step}" for step in np.repeat(np.arange(steps), count)],
            "category": "user_annotation", "thread": "1",
            "step": np.repeat(np.arange(steps), count),
        }
    )  # fmt: skip


_ORDER = {"user_annotation": 0, "cuda_runtime": 1, "cuda_sync": 2}


def _ordered(table: pd.DataFrame) -> pd.DataFrame:
    # Of rows that begin together: marks, then calls in order of their correlation, then work.
    rank, place = table["rank"], table["category"].map(_ORDER).fillna(3)
    order = np.lexsort((place, -table["dur_ns"], table["start_ns"], rank))
    table = table.iloc[order].reset_index(drop=True)
    table["process"] = table["process"].fillna("host")
    calls = table[table["category"] == "cuda_runtime"]
    row_of = pd.Series(calls.index, index=calls["correlation"])
    launch = row_of.reindex(table["correlation"].where(table["kind"].notna()))
    table["launch"] = pd.array(launch.to_numpy(), dtype="Int64")
    return EVENTS.of(table.reindex(columns=list(EVENTS.columns)))


def _groups(table: pd.DataFrame, count: int) -> pd.DataFrame:
    sizes = sorted(set(table.loc[table["kind"] == "communication", "group"]))
    rows = []
    for size in sizes:
        members = size or count
        for rank in range(count):
            first = rank // members * members
            listed = ",".join(str(n) for n in range(first, min(first + members, count)))
            name = f"synthetic {size} {rank // members}"
            rows.append((rank, name, "synthetic", None, members, listed))
    return PROCESS_GROUPS.of(rows)
