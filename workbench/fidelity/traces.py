"""Claims about profiler traces: every file loads, sums are exact, a peer agrees."""

from __future__ import annotations

import functools
import gzip
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench import load
from workbench.analyze import intervals
from workbench.fidelity._registry import Reading, claim
from workbench.tables import Trace

_KINETO_SETS = ("kineto-dlrm-8rank", "kineto-hta", "kineto-h100", "kineto-resnet")


@claim(
    noun="traces",
    name="every public Kineto file loads",
    source="the file itself, its complete events counted by a generic JSON parser",
    needs=_KINETO_SETS,
)
def files(*folders: Path) -> Iterator[Reading]:
    """Compare the rows of every file with the events it holds; none has negative duration.

    Nanoseconds rounded to whole microseconds, starts up and ends down, once made 1,975 of
    12,080 durations in one of these files negative.
    """
    for folder in folders:
        for path in _kineto_files(folder):
            events = _trace(path).events
            lasting = events["category"] != "cpu_instant_event"
            name = f"{folder.name}/{path.relative_to(folder).as_posix()}"
            yield Reading(f"{name}, events", _complete_events(path), int(lasting.sum()), unit="")
            below = int((events["dur_ns"] < 0).sum())
            yield Reading(f"{name}, negative durations", 0, below, unit="")


@claim(
    noun="traces",
    name="GPU busy time never exceeds the sum of its parts",
    source="a law: the union of intervals is at most the sum of their lengths",
    needs=_KINETO_SETS,
)
def unions(*folders: Path) -> Iterator[Reading]:
    """Compare union and sum of the GPU work of every rank, in exact nanoseconds.

    Float microseconds since the epoch break this law for the file with nanosecond stamps.
    """
    for folder in folders:
        for path in _kineto_files(folder):
            events = _trace(path).events
            work = events[events["kind"].notna()]
            excess = sum(
                max(0, _union_ns(part) - int(part["dur_ns"].sum()))
                for _, part in work.groupby("rank")
            )
            name = f"{folder.name}/{path.relative_to(folder).as_posix()}"
            yield Reading(f"{name}, union beyond the sum", 0, excess)


@claim(
    noun="traces",
    name="TraceLens",
    source="AMD-AGI/TraceLens, gpu_timeline.csv for Qwen1.5-0.5B on one H100",
    needs=("kineto-h100",),
)
def tracelens(folder: Path) -> Iterator[Reading]:
    """Compare the time line of the peer with ours, over the work the peer looks at.

    TraceLens leaves out GPU work whose launch is not in the trace and counts sets of memory
    as computation. It adds up float64 microseconds, so every start and every end may be off
    by half the spacing of floats at that time: the tolerance is that spacing, once per row.
    """
    (path,) = folder.glob("Qwen*.json.gz")
    (table,) = folder.glob("Qwen*/gpu_timeline.csv")
    printed = pd.read_csv(table).set_index("type")["time ms"]
    events = _trace(path).events
    work = events[events["kind"].notna() & events["launch"].notna()]
    copies = work["category"] == "gpu_memcpy"
    busy, computing = _union_ns(work), _union_ns(work[~copies])
    span = int((work["start_ns"] + work["dur_ns"]).max() - work["start_ns"].min())
    here = {
        "computation_time": computing,
        "exposed_memcpy_time": busy - computing,
        "busy_time": busy,
        "idle_time": span - busy,
        "total_time": span,
        "total_memcpy_time": _union_ns(work[copies]),
    }
    stamps_us = max(float(event["ts"]) for event in _recorded(path.read_bytes()) if "dur" in event)
    tolerance_ms = float(np.spacing(stamps_us)) * len(work) / 1e3
    for name, value_ns in here.items():
        yield Reading(name, float(printed[name]), value_ns / 1e6, "ms", tolerance_ms)


@functools.lru_cache(maxsize=2)
def _trace(path: Path) -> Trace:
    return load.traces(path, progress=False)


def _union_ns(work: pd.DataFrame) -> int:
    start = work["start_ns"].to_numpy()
    return intervals.measure(start, start + work["dur_ns"].to_numpy())


def _kineto_files(folder: Path) -> list[Path]:
    """Give the profiler traces of a data set; its other files are execution traces and texts."""
    found = [*folder.rglob("*.json.gz"), *folder.rglob("*kineto*.tar.gz")]
    return sorted(path for path in found if not path.name.endswith("_et.json.gz"))


def _complete_events(path: Path) -> int:
    """Count the complete events (ph X) of a file, or of all files of an archive."""
    contents = [path.read_bytes()]
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as members:
            opened = (members.extractfile(member) for member in members)
            contents = [file.read() for file in opened if file is not None]
    return sum(
        Counter(event.get("ph") for event in _recorded(content))["X"] for content in contents
    )


def _recorded(content: bytes) -> list[dict[str, Any]]:
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    parsed = json.loads(content, strict=False)
    events: list[dict[str, Any]] = parsed["traceEvents"] if isinstance(parsed, dict) else parsed
    return events
