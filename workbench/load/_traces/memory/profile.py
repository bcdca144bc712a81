"""Memory events of PyTorch profiles (``profile_memory=True``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from workbench.load._files.findings import Findings
from workbench.load._traces.memory.replay import ALLOC, REQUESTED, replayed
from workbench.load._traces.memory.stacks import stack_of
from workbench.tables import Trace

ARGS = ("Bytes", "Addr", "Total Allocated", "Total Reserved", "Device Id", "Device Type", "Ev Idx")
EVENT = "[memory]"
_HOST = ("cpu_op", "user_annotation", "python_function")
# Numbers of c10::DeviceType; others are written as they are.
_DEVICES = {0: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA", 20: "NPU"}


def profile_memory(trace: Trace, findings: Findings) -> pd.DataFrame:
    """Return rows of MEMORY for the memory events of a trace; with its ranks."""
    events = trace.events[trace.events["name"] == EVENT]
    whole = events["Bytes"].notna() & events["Device Type"].notna() & (events["Bytes"] != 0)
    findings.add("dropped", "memory events without size or device", int((~whole).sum()))
    events = events[whole]
    events = events.assign(**_callers(trace.events, events)).sort_values(
        ["rank", "start_ns", "Ev Idx"], kind="stable"
    )
    devices = [events["Device Type"], events["Device Id"].fillna(-1)]
    pieces = [
        _device(rows, _name(kind, number), findings)
        for (_, kind, number), rows in events.groupby([events["rank"], *devices], sort=True)
    ]
    return pd.concat(pieces, ignore_index=True)


def _name(kind: Any, number: Any) -> str:
    name = _DEVICES.get(kind, f"device type {int(kind)}")
    return name if kind == 0 or number < 0 else f"{name} {int(number)}"


def _device(events: pd.DataFrame, device: str, findings: Findings) -> pd.DataFrame:
    sizes = events["Bytes"].astype("int64")
    acts = pd.DataFrame({
        "action": np.where(sizes > 0, ALLOC, REQUESTED), "address": events["Addr"],
        "size_bytes": sizes.abs(), "stream": pd.array([pd.NA] * len(events), "Int64"),
        "time_ns": events["start_ns"].astype("Int64"), "phase": events["phase"],
        "stack": events["stack"], "step": events["step"],
        "reserved_bytes": events["Total Reserved"], "stated": events["Total Allocated"],
    }).reset_index(drop=True)  # fmt: skip
    table = replayed(acts, None, findings)
    stated = table["stated"].dropna()
    if len(stated):
        # What is allocated and never freed in the trace is only known as a sum.
        at = stated.index[0]
        rest = int(stated.iloc[0] - table["allocated_bytes"].iloc[at])
        table = _with_older(table, rest) if rest > 0 else table
        odd = table["stated"].notna() & (table["stated"] != table["allocated_bytes"])
        words = "memory events whose total is not the sum of the allocations before"
        where = f"{device}, row {int(np.argmax(odd)):,}" if odd.any() else None
        findings.add("suspicious", words, int(odd.sum()), where)
    if device == "CPU":
        # The allocator of the host keeps nothing back; profilers write 0.
        table["reserved_bytes"] = pd.array([pd.NA] * len(table), "Int64")
    return table.drop(columns="stated").assign(device=device, rank=events["rank"].iloc[0])


def _with_older(table: pd.DataFrame, size_bytes: int) -> pd.DataFrame:
    """Put one row for all that was allocated before the trace in front."""
    joined = table.iloc[[0, *range(len(table))]].reset_index(drop=True)
    row: dict[str, Any] = {"action": ALLOC, "size_bytes": size_bytes, "is_before_trace": True}
    for name in joined.columns:
        is_sum = name in ("allocated_bytes", "active_bytes")
        joined.loc[0, name] = row.get(name, 0 if is_sum else None)
    for name in ("freed_event", "released_event"):
        joined[name] = joined[name].astype("Int64") + 1
    for name in ("allocated_bytes", "active_bytes"):
        joined[name] = joined[name].astype("int64") + size_bytes
    return joined.astype({"is_before_trace": bool, "size_bytes": "int64"})


def _callers(events: pd.DataFrame, memory: pd.DataFrame) -> dict[str, pd.Series]:
    """Return stack and phase of memory events: the host rows that run on their thread then."""
    place = ["rank", "process", "thread"]
    threads = memory[place].drop_duplicates()
    host = events[events["category"].isin(_HOST)].merge(threads, on=place)
    of_thread = dict(iter(host.groupby(place, observed=True)))
    texts: dict[int, tuple[str | None, str | None]] = {}
    for key, rows in memory.groupby(place, observed=True):
        callers = of_thread.get(key)
        if callers is not None:
            texts |= dict(zip(rows.index, _stacks(callers, rows["start_ns"]), strict=True))
    found = [texts.get(row, (None, None)) for row in memory.index]
    return {
        name: pd.Series([stack[at] for stack in found], index=memory.index, dtype=object)
        for at, name in enumerate(("stack", "phase"))
    }


def _stacks(host: pd.DataFrame, times: pd.Series) -> Iterator[tuple[str | None, str | None]]:
    """Walk through the calls of a thread and the times together, both in order of time."""
    starts = host["start_ns"].to_numpy()
    ends = starts + host["dur_ns"].to_numpy()
    names = host["name"].astype(str).to_numpy()
    running: list[int] = []
    following = 0
    for time_ns in times:
        while following < len(starts) and starts[following] <= time_ns:
            running.append(following)
            following += 1
        running = [row for row in running if ends[row] >= time_ns]
        yield stack_of([names[row] for row in reversed(running)])
