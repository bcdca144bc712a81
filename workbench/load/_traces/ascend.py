"""Traces of Ascend NPUs: ``trace_view.json`` of torch_npu and ``msprof_*.json`` of msprof."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.json_events import to_integer, to_ns
from workbench.load._files.stream import Stream
from workbench.load._traces.columns import IntArray, Rows, rank_of
from workbench.load._traces.execution.reader import objects
from workbench.load._traces.graph import read_all
from workbench.load._traces.kineto.blocks import MISSING, Texts
from workbench.load._traces.kineto.rank import RankTables
from workbench.load._traces.xplane.json_form import key_of, note_name

# A list without an object around it, whose processes are named so or whose times are texts.
_LIST = re.compile(rb"\s*\[\s*\{")
_MARK = re.compile(
    rb'"(?:Ascend Hardware|AscendCL|CANN|Overlap Analysis|Task Type)"'
    rb'|"(?:AscendCL|Node|Runtime)@|"async_npu"|"ts"\s*:\s*"\d{10,20}(?:\.\d+)?"'
)
_HARDWARE, _COLLECTIVES = "Ascend Hardware", ("Communication", "HCCL")
_CALLS = ("CANN", "AscendCL")
# Lanes that repeat other rows, or whose rows are frequencies and sizes.
_DERIVED = ("Overlap Analysis", "AI Core Freq", "HBM", "NPU MEM", "Acc PMU", "LLC", "DDR")
_STREAM = re.compile(r"^Stream (\d{1,9})$")
_GROUP = re.compile(r"\bCommunication$")
_STEP = re.compile(r"^ProfilerStep#\d+$")
# By "Task Type": what moves data, and what waits or marks, so that nothing is computed.
_COPY = re.compile(r"SDMA|MEMCPY|PCIE_DMA", re.IGNORECASE)
_WAIT = re.compile(r"WAIT|NOTIFY|EVENT|PLACE_HOLDER|WRITE_VALUE|MAINTAIN|PROFILING", re.IGNORECASE)
_HCOM = pd.DataFrame(
    {"kind": ["communication"], "rule": ["hcom"], "pattern": [r"^(?:hcom_|Hccl|hccl)"]}
)


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - same shape for all formats
    """Return whether a file is a bare list of events with a mark of msprof or torch_npu."""
    return _LIST.match(head) is not None and _MARK.search(head) is not None


def ascend(
    source: Source,
    *,
    args: Sequence[str] = (),
    rules: pd.DataFrame | None = None,
    stream: Stream | None = None,
) -> list[RankTables]:
    """Read the events of one process, which is one rank with its NPU.

    References
    ----------
    Huawei, CANN Performance Tuning Tools: msprof timeline data; gitcode.com/Ascend/mstt.
    """
    findings, texts = Findings(source.label), Texts()
    with stream or source.open() as opened:
        data = read_all(opened, findings)
    names: dict[tuple[object, object], str] = {}
    lanes: dict[tuple[object, object], list[Row]] = {}
    unusable = 0
    for event in objects(data, data.index(b"[") + 1, label=source.label, findings=findings):
        kind = event.get("ph") if isinstance(event, dict) else None
        if kind == "M":
            note_name(event, names)
        elif kind == "X":
            lanes.setdefault((key_of(event.get("pid")), key_of(event.get("tid"))), []).append(event)
        else:
            unusable += 1
    findings.add("skipped by design", "flow arrows, counters and instants", unusable)
    if _HARDWARE not in names.values() and not set(_COLLECTIVES) & set(names.values()):
        seen = ", ".join(sorted({names[key] for key in names if key[1] is None})[:6]) or "none"
        msg = (
            f"{source.label}: is a trace of Ascend without the process {_HARDWARE!r} (processes: "
            f"{seen}), so without work of the NPU; profile with ProfilerActivity.NPU, or parse the "
            "recording again with torch_npu.profiler.profiler.analyse(FOLDER) and load the "
            "trace_view.json in ASCEND_PROFILER_OUTPUT"
        )
        raise LoadError(msg)
    rows = list(_rows(lanes, names, (texts, findings, tuple(args))))
    own_rules = _HCOM if rules is None else pd.concat([rules, _HCOM], ignore_index=True)
    findings.add("read", "trace of an Ascend NPU")
    tables = rank_of(rows, texts, findings, metadata={}, args=args, rules=own_rules)
    return [replace(tables, format="ascend")]


def _rows(
    lanes: Mapping[tuple[Any, Any], Sequence[Row]],
    names: Mapping[tuple[Any, Any], str],
    context: tuple[Texts, Findings, tuple[str, ...]],
) -> Iterator[Rows]:
    """Yield the rows of each lane; lanes that repeat others are told."""
    findings = context[1]
    are_joined = any(names.get((pid, None)) in _COLLECTIVES for pid, _ in lanes)
    for (pid, tid), events in lanes.items():
        process, thread = names.get((pid, None), str(pid)), names.get((pid, tid), str(tid))
        kept = events
        if process in _DERIVED or (process in _COLLECTIVES and not _GROUP.search(thread)):
            kept, what = [], f"lane {process[:40]!r}, which repeats or explains the work of others"
            findings.add("skipped by design", what, len(events))
        elif process == _HARDWARE and are_joined:
            kept = [event for event in events if not str(event.get("name")).startswith("hcom_")]
            what = "collectives on streams, which the lane of their group repeats"
            findings.add("skipped by design", what, len(events) - len(kept))
        if kept:
            yield _lane(process, thread, kept, context)


def _lane(
    process: str,
    thread: str,
    events: Sequence[Row],
    context: tuple[Texts, Findings, tuple[str, ...]],
) -> Rows:
    texts, findings, args = context
    told = [row if isinstance(row := event.get("args"), dict) else {} for event in events]
    start, dur = (_column(to_ns(event.get(key)) for event in events) for key in ("ts", "dur"))
    is_timed = start != MISSING
    findings.add("dropped", "events without a readable time stamp", int((~is_timed).sum()))
    spelled = [str(event.get("name") or "")[:4096] for event in events]
    categories = [
        _category(process, name, event, of)
        for name, event, of in zip(spelled, events, told, strict=True)
    ]
    numbers = {"correlation": _column(to_integer(of.get("connection_id")) for of in told)}
    if process == _HARDWARE:
        numbers["stream"] = _column(_stream(of, thread) for of in told)
    for name in args:
        numbers[name] = _column(
            texts.code(json.dumps(of[name])) if name in of else None for of in told
        )
    return Rows(
        np.where(is_timed, start, 0), np.where(is_timed, np.where(dur == MISSING, 0, dur), -1),
        _codes(spelled, texts), _codes(categories, texts),
        _codes([process] * len(events), texts), _codes([thread] * len(events), texts), numbers,
    )  # fmt: skip


def _category(process: str, name: str, event: Row, told: Row) -> str:
    if process == _HARDWARE:
        task = str(told.get("Task Type") or "")
        if _COPY.search(task):
            return "gpu_memcpy"
        return "cuda_sync" if _WAIT.search(task) else "kernel"
    if process in _COLLECTIVES:
        return "kernel"
    if process in _CALLS:
        return "privateuse1_runtime" if "connection_id" in told else "cann_api"
    if _STEP.match(name):
        return "user_annotation"
    category = event.get("cat")
    return category if isinstance(category, str) and category else "cpu_op"


def _stream(told: Row, thread: str) -> int | None:
    stated = to_integer(told.get("Stream Id"))
    named = _STREAM.match(thread)
    return int(named[1]) if stated is None and named else stated


def _codes(spelled: Sequence[str], texts: Texts) -> Any:
    return np.array([texts.code(text) for text in spelled], np.int32)


def _column(values: Iterator[int | None]) -> IntArray:
    return np.array([MISSING if value is None else value for value in values], np.int64)
