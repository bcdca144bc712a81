"""Claims about profiler traces: every file loads, sums are exact, a peer agrees."""

from __future__ import annotations

import functools
import gzip
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

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
    source="the file itself, its bytes searched for complete and instant events; arithmetic",
    needs=_KINETO_SETS,
)
def files(*folders: Path) -> Iterator[Reading]:
    """Compare the rows of every file with the events it holds, and check two laws.

    No duration is negative: nanoseconds rounded to whole microseconds, starts up and ends
    down, once made 1,975 of 12,080 durations in one of these files negative. The union of
    the GPU work never exceeds the sum of its durations: float microseconds since the epoch
    break this for the file with nanosecond stamps.
    """
    for folder in folders:
        for path in _kineto_files(folder):
            name = f"{folder.name}/{path.relative_to(folder).as_posix()}"
            events = _trace(path).events
            yield Reading(f"{name}, events", _recorded(path), len(events), unit="")
            below = int((events["dur_ns"] < 0).sum())
            yield Reading(f"{name}, negative durations", 0, below, unit="")
            yield Reading(f"{name}, union beyond the sum", 0, _excess_ns(events))


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
    tolerance_ms = float(np.spacing(_latest_stamp_us(path))) * len(work) / 1e3
    for name, value_ns in here.items():
        yield Reading(name, float(printed[name]), value_ns / 1e6, "ms", tolerance_ms)


@functools.lru_cache(maxsize=2)
def _trace(path: Path) -> Trace:
    return load.traces(path, progress=False)


def _union_ns(work: pd.DataFrame) -> int:
    start = work["start_ns"].to_numpy()
    return intervals.measure(start, start + work["dur_ns"].to_numpy())


def _excess_ns(events: pd.DataFrame) -> int:
    """Return by how much the union of the GPU work of any rank exceeds the sum."""
    work = events[events["kind"].notna()]
    return sum(
        max(0, _union_ns(part) - int(part["dur_ns"].sum())) for _, part in work.groupby("rank")
    )


def _kineto_files(folder: Path) -> list[Path]:
    """Give the profiler traces of a data set; its other files are execution traces and texts."""
    found = [*folder.rglob("*.json.gz"), *folder.rglob("*kineto*.tar.gz")]
    return sorted(path for path in found if not path.name.endswith("_et.json.gz"))


def _recorded(path: Path) -> int:
    """Count the complete and instant events of a file, or of all files of an archive."""
    found = re.findall(rb'"ph"\s*:\s*"[Xi]"', b"".join(_contents(path)))
    return len(found)


def _contents(path: Path) -> Iterator[bytes]:
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as members:
            opened = (members.extractfile(member) for member in members)
            yield from (file.read() for file in opened if file is not None)
    else:
        yield gzip.decompress(path.read_bytes())


def _latest_stamp_us(path: Path) -> float:
    (content,) = _contents(path)
    return max(float(event["ts"]) for event in json.loads(content)["traceEvents"] if "ts" in event)
