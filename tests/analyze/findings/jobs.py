"""Made jobs with one known trouble each; what they leave out is usual and healthy."""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.analyze.conftest import build, fitting
from workbench.tables import (
    DEPENDENCIES,
    DEVICES,
    FAILURES,
    LOGGED_SPANS,
    LOGGED_STEPS,
    NODE_SPANS,
    NODES,
    POWER,
    POWER_COUNTERS,
    POWER_ENTITIES,
    POWER_STATES,
    PROCESS_GROUPS,
    QUALITY,
    RANKS,
    STEPS,
    TIMELINE,
    Bundle,
    FailureLog,
    JobLog,
    PowerLog,
    Trace,
)

US, MS, S, H = 1_000, 1_000_000, 1_000_000_000, 3_600_000_000_000
START = 1_768_204_800 * S
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(Params)"


def trace(rows: list[dict], *, world_size: int | None = None) -> Bundle:
    """Make a bundle with the trace of some rows of events."""
    events = build(*rows)
    ranks = sorted(events["rank"].unique())
    table = [
        {"rank": rank, "rank_source": "argument", "world_size": world_size, "backend": "nccl",
         "source": f"rank{rank}.json", "format": "kineto", "clock": "epoch", "event_count": 1}
        for rank in ranks
    ]  # fmt: skip
    return Bundle(
        trace=Trace(
            events, fitting(table, RANKS), DEVICES.empty(), PROCESS_GROUPS.empty(), STEPS.empty(),
            NODES.empty(), DEPENDENCIES.empty(), QUALITY.empty(),
        )
    )  # fmt: skip


def steps_of(
    own_us: np.ndarray,
    *,
    transfer_us: float = 200.0,
    kernels: int = 4,
    gap_us: float = 0.0,
    size_bytes: int = 1 << 26,
    hidden: float = 0.95,
) -> tuple[list[dict], np.ndarray]:
    """Lay out synchronous steps: each rank computes, then all meet in one all-reduce.

    ``own_us`` has a row per step and a column per rank: the time of its kernels. ``hidden`` is
    the part of the transfer that a further kernel hides. Returns the rows and the length of
    every step, which is by construction the largest own time plus what is not hidden.
    """
    rows: list[dict] = []
    begin, lengths = START, []
    for step, own in enumerate(own_us):
        arrive = begin + (own * US).astype(np.int64) + round(kernels * gap_us * US)
        last = int(arrive.max())
        end = last + round(transfer_us * US)
        for rank, time in enumerate(own):
            rows.append(
                {"rank": rank, "start_ns": begin - 50 * US, "end_ns": end - 50 * US, "step": step,
                 "name": f"ProfilerStep#{step}", "category": "user_annotation"}
            )  # fmt: skip
            at = begin
            for number in range(kernels):
                rows += launched(
                    rank, step, at, round(time / kernels * US), f"{step}.{rank}.{number}", GEMM
                )
                at += round((time / kernels + gap_us) * US)
            rows.append(
                {"rank": rank, "start_ns": int(arrive[rank]), "end_ns": end, "step": step,
                 "kind": "communication", "stream": 20, "name": "ncclDevKernel_AllReduce",
                 "collective": "allreduce", "group": "0", "group_size": len(own), "seq": step,
                 "in_count": size_bytes // 4, "out_count": size_bytes // 4, "dtype": "Float"}
            )  # fmt: skip
            rows += launched(
                rank, step, last, round(hidden * transfer_us * US), f"{step}.{rank}.h", GEMM
            )
        lengths.append(end - begin)
        begin = end
    return rows, np.array(lengths)


def launched(
    rank: int, step: int, at: int, dur_ns: int, name: str, kernel: str, **more
) -> list[dict]:
    """Give a kernel and the call that launched it in time."""
    if dur_ns <= 0:
        return []
    call = {"rank": rank, "start_ns": at - 40 * US, "dur_ns": 5 * US, "step": step, "id": name,
            "name": "cudaLaunchKernel", "category": "cuda_runtime"}  # fmt: skip
    work = {"rank": rank, "start_ns": at, "dur_ns": dur_ns, "step": step, "kind": "compute",
            "launch": name, "name": kernel, **more}  # fmt: skip
    return [call, work]


def even(step_count: int = 8, rank_count: int = 4, own_us: float = 2_000.0, seed: int = 0):
    """Draw nearly equal own times."""
    draws = np.random.default_rng(seed)
    return own_us * (1 + 0.002 * draws.standard_normal((step_count, rank_count)))


def job_log(durations_s: list[float], spans: list[tuple] = (), starts_s: list[float] | None = None):
    """Make a job log of steps one after the other, and named spans ``(kind, start_s, end_s)``."""
    starts = np.cumsum([0.0, *durations_s[:-1]]) if starts_s is None else np.array(starts_s)
    steps = [
        {"step": n, "attempt": 1, "start_ns": START + round(s * S),
         "end_ns": START + round((s + d) * S), "source": "job.log", "line": n + 1}
        for n, (s, d) in enumerate(zip(starts, durations_s, strict=True))
    ]  # fmt: skip
    named = [
        {"kind": kind, "attempt": 1, "start_ns": START + round(s * S),
         "end_ns": START + round(e * S), "source": "job.log", "line": 1}
        for kind, s, e in spans
    ]  # fmt: skip
    return JobLog(fitting(steps, LOGGED_STEPS), fitting(named, LOGGED_SPANS), QUALITY.empty())


def failure_log(rows: list[dict], *, nodes: int = 40, hours: float = 1_000.0, runs=()):
    """Make failures ``{"at_h", "node", ...}`` of a cluster whose nodes were all watched."""
    usual = {"clock": "epoch", "kind": "xid", "code": "79", "category": "gpu", "severity": "fatal",
             "cause": "GPU has fallen off the bus", "line": 1, "line_count": 1, "devices": "",
             "ranks": "", "rank_count": 0, "other_codes": "", "text": "", "source": "kernel.log",
             "assumed": ""}  # fmt: skip
    full = []
    for row in rows:
        at = START + round(row.pop("at_h") * H)
        full.append(usual | {"start_ns": at, "end_ns": at} | row)
    full.sort(key=lambda row: row["start_ns"])
    watched = [
        {"node": f"node{n:03}", "first_ns": START, "last_ns": START + round(hours * H),
         "clock": "epoch", "failure_count": 0}
        for n in range(nodes)
    ]  # fmt: skip
    timeline = [
        {"start_ns": START + round(a * H), "end_ns": START + round(b * H), "clock": "epoch",
         "job": "1", "attempt": n + 1, "state": "running", "outcome": outcome, "nodes": "node000",
         "source": "sacct", "line": n + 1}
        for n, (a, b, outcome) in enumerate(runs)
    ]  # fmt: skip
    return FailureLog(
        fitting(full, FAILURES), fitting(timeline, TIMELINE), fitting(watched, NODE_SPANS),
        QUALITY.empty(),
    )  # fmt: skip


def power_log(
    watts: dict[str, np.ndarray], *, scope: str = "gpu", hosts=None, **states
) -> PowerLog:
    """Make readings, one per second; ``states`` are columns by entity, or one value for all."""
    rows, told, entities = [], [], []
    for name, values in watts.items():
        times = START + np.arange(len(values)) * S
        rows += [
            {"time_ns": t, "entity": name, "power_w": w}
            for t, w in zip(times, values, strict=True)
            if not np.isnan(w)
        ]
        for n, t in enumerate(times):
            row = {"time_ns": t, "entity": name}
            for column, value in states.items():
                chosen = value.get(name) if isinstance(value, dict) else value
                row[column] = chosen[n] if isinstance(chosen, np.ndarray | list) else chosen
            told.append(row)
        known = times[~np.isnan(values)]
        own_scope = scope.get(name, "gpu") if isinstance(scope, dict) else scope
        entities.append(
            {"entity": name, "scope": own_scope, "method": "instant",
             "node": (hosts or {}).get(name, name.split("/")[0]),
             "device": name.rpartition("gpu")[2] if "gpu" in name else None, "period_s": 1.0,
             "reading_count": len(known), "missing_count": 0, "first_ns": known[0],
             "last_ns": known[-1], "clock": "epoch", "assumed": "", "source": "power.csv"}
        )  # fmt: skip
    frame = fitting(rows, POWER.__class__("power", "", POWER.columns)).sort_values(
        ["entity", "time_ns"], ignore_index=True
    )
    states_table = fitting(told, POWER_STATES) if states else POWER_STATES.empty()
    return PowerLog(
        frame, fitting(entities, POWER_ENTITIES), states_table, POWER_COUNTERS.empty(),
        QUALITY.empty(),
    )  # fmt: skip


def gpus_in_turn():
    """One process works on its first GPU, then on its second."""
    rows = launched(0, 0, START, 40 * MS, "0", GEMM) + launched(1, 0, START + 42 * MS, 40 * MS,
                                                                "1", GEMM)  # fmt: skip
    bundle = trace(rows)
    ranks = bundle.trace.ranks.assign(source=["job.json!GPU 0", "job.json!GPU 1"])
    return dataclasses.replace(bundle, trace=dataclasses.replace(bundle.trace, ranks=ranks))


def idle_rows(gap_us, kernel_us, *, blocking="", count=200):
    """Give kernels with gaps in which the host is late, or waits for the GPU."""
    rows, at = [], START
    for number in range(count):
        rows.append({"start_ns": at - 6 * US, "dur_ns": 4 * US, "step": 0, "id": str(number),
                     "name": "cudaLaunchKernel", "category": "cuda_runtime"})  # fmt: skip
        rows.append({"start_ns": at, "dur_ns": round(kernel_us * US), "step": 0, "kind": "compute",
                     "launch": str(number), "name": GEMM})  # fmt: skip
        end = at + round(kernel_us * US)
        at = end + round(gap_us * US)
        if blocking:
            rows.append({"start_ns": end - US, "end_ns": at - 8 * US, "step": 0, "name": blocking,
                         "category": "cuda_runtime"})  # fmt: skip
    return rows
