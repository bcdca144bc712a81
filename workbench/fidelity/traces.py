"""Claims about profiler traces: every file loads, sums are exact, a peer agrees."""

from __future__ import annotations

import functools
import gzip
import json
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench import analyze, load
from workbench.analyze import intervals
from workbench.fidelity.registry import Reading, claim, printed_ns, published
from workbench.tables import Trace

_traces = functools.partial(claim, noun="traces")
_executions = functools.partial(claim, noun="execution_traces")
_EXACT, _HTA = "exact integer arithmetic on the raw files", "HolisticTraceAnalysis"
_DLRM = ("kineto-dlrm-8rank",)
_KINETO_SETS = ("kineto-dlrm-8rank", "kineto-hta", "kineto-h100", "kineto-resnet")


@_traces(
    name="every public Kineto file loads",
    source="the file itself, its bytes searched for complete and instant events; arithmetic",
    needs=_KINETO_SETS,
)
def files(*folders: Path) -> Iterator[Reading]:
    """Compare the rows of every file with the events it holds, and check two laws.

    No duration is negative: nanoseconds rounded to whole microseconds, starts up and ends down,
    once made 1,975 of 12,080 durations in one of these files negative. The union of the GPU work
    never exceeds the sum of its durations: float microseconds since the epoch break this for the
    file with nanosecond stamps.
    """
    for folder in folders:
        # Other files of a data set are execution traces and texts.
        paths = [*folder.rglob("*.json.gz"), *folder.rglob("*kineto*.tar.gz")]
        for path in sorted(path for path in paths if not path.name.endswith("_et.json.gz")):
            name = f"{folder.name}/{path.relative_to(folder).as_posix()}"
            events = _trace(path).events
            recorded = len(re.findall(rb'"ph"\s*:\s*"[Xi]"', b"".join(_contents(path))))
            yield Reading(f"{name}, events", recorded, len(events), unit="")
            below = int((events["dur_ns"] < 0).sum())
            yield Reading(f"{name}, negative durations", 0, below, unit="")
            work = events[events["kind"].notna()].groupby("rank")
            excess = sum(max(0, _union_ns(rows) - int(rows["dur_ns"].sum())) for _, rows in work)
            yield Reading(f"{name}, union beyond the sum", 0, excess)


@_traces(
    name="TraceLens",
    source="AMD-AGI/TraceLens, gpu_timeline.csv for Qwen1.5-0.5B on one H100",
    needs=("kineto-h100",),
)
def tracelens(folder: Path) -> Iterator[Reading]:
    """Compare the time line of the peer with ours, over the work the peer looks at.

    TraceLens drops GPU work whose launch is not in the trace and counts sets of memory as
    computation. It adds up float64 microseconds, so every start and every end may be off by half
    the spacing of floats at that time: the tolerance is that spacing, once per row.
    """
    (path,) = folder.glob("Qwen*.json.gz")
    (table,) = folder.glob("Qwen*/gpu_timeline.csv")
    printed = pd.read_csv(table).set_index("type")["time ms"]
    events = _trace(path).events
    work = events[events["kind"].notna() & events["launch"].notna()]
    copies = work["category"] == "gpu_memcpy"
    busy, computing = _union_ns(work), _union_ns(work[~copies])
    span = int((work["start_ns"] + work["dur_ns"]).max() - work["start_ns"].min())
    computed_ns = {
        "computation_time": computing,
        "exposed_memcpy_time": busy - computing,
        "busy_time": busy,
        "idle_time": span - busy,
        "total_time": span,
        "total_memcpy_time": _union_ns(work[copies]),
    }
    (content,) = _contents(path)
    stamps = [float(e["ts"]) for e in json.loads(content)["traceEvents"] if "ts" in e]
    tolerance_ms = float(np.spacing(max(stamps))) * len(work) / 1e3
    for name, value_ns in computed_ns.items():
        yield Reading(name, float(printed[name]), value_ns / 1e6, "ms", tolerance_ms)


@_traces(name="breakdown", source=_EXACT, needs=_KINETO_SETS)
def breakdowns(*folders: Path) -> Iterator[Reading]:
    """Compare where the time goes in single files, to the nanosecond."""
    by_name = {folder.name: folder for folder in folders}
    for row in published("trace_breakdown"):
        events = _trace(by_name[row["dataset"]] / row["file"]).events
        computed = _row(analyze.time_breakdown(events), 0)
        names = ("span", "busy", "compute", "communication", "overlap")
        yield from _times(row, row["file"], computed, *names)
        kinds = events.loc[events["kind"].notna(), "kind"]
        counts = {"gpu_count": len(kinds), "communication_count": (kinds == "communication").sum()}
        for name, count in counts.items():
            yield _count(row, f"{row['file']}, {name}", name, count)


@_traces(name="DLRM on 8 ranks", source=_EXACT, needs=_DLRM)
def dlrm(folder: Path) -> Iterator[Reading]:
    """Compare who waits, for whom and how long, to the nanosecond."""
    events = _trace(folder / "dlrm_kineto.tar.gz").events
    collectives, waits = analyze.collectives(events), analyze.collective_waits(events)
    waited = waits.groupby("rank")["wait_ns"].sum()
    ranks = analyze.time_breakdown(events).set_index("rank").assign(wait_ns=waited)
    names = ("wait", "span", "busy", "compute", "communication", "exposed_communication")
    for row in published("trace_dlrm_ranks"):
        yield from _times(row, f"rank {row['rank']}", _row(ranks, row["rank"]), *names)
    matched = collectives.dropna(subset=["collective"]).groupby("collective").first()
    for row in published("trace_dlrm_collectives"):
        name, computed = f"collective {row['collective']}", _row(matched, row["collective"])
        yield from _times(row, name, computed, "start_skew", "end_skew", "transfer_min")
        yield _count(row, f"{name}, last rank", "blamed_rank", computed["blamed_rank"])
    blamed = analyze.straggler_attribution(waits).groupby("blamed_rank")["wait_ns"].sum()
    printed = {int(row["blamed_rank"]): row for row in published("trace_dlrm_blame")}
    for rank, row in printed.items():
        yield from _times(row, f"blamed on rank {rank}", {"wait_ns": blamed.get(rank, 0)}, "wait")
    elsewhere = int(blamed.drop(list(printed), errors="ignore").sum())
    yield Reading("blamed on all others", 0, elsewhere, source=row["source"])


@_traces(name="DLRM on 8 ranks, clocks set wrong", source=_EXACT, needs=_DLRM)
def dlrm_clocks(folder: Path) -> Iterator[Reading]:
    """Set the clocks of the ranks wrong by milliseconds; compare what is found all the same.

    The ends of one collective differ by up to 7 µs on clocks that are right, so offsets cannot be
    known better than that; it is the tolerance.
    """
    events = _trace(folder / "dlrm_kineto.tar.gz").events
    wrong = events["start_ns"] + (events["rank"].astype("int64") - 4) ** 3 * 100_003
    events = events.assign(start_ns=wrong)
    clocks = analyze.clocks(analyze.collectives(events))
    matched = analyze.collectives(events, clocks=clocks).groupby("collective").first()
    rows = published("trace_dlrm_collectives")
    near = 1000 * max(int(row["end_skew_us"]) for row in rows)
    for row in rows:
        name, computed = f"collective {row['collective']}", _row(matched, row["collective"])
        yield from _times(row, name, computed, "start_skew", "end_skew", tolerance=near)
        yield _count(row, f"{name}, last rank", "blamed_rank", computed["blamed_rank"])
        is_sure, claimed = int(computed["is_sure"]), f"{name}, its last rank is sure"
        yield Reading(claimed, 1, is_sure, unit="", source=row["source"])


@_traces(name="HTA idle time per stream", source=_HTA, needs=("kineto-hta",))
def hta_idle(folder: Path) -> Iterator[Reading]:
    """Compare the peer's rule for idle streams, on traces in whole microseconds."""
    causes = {"host_wait": "host wait", "kernel_wait": "kernel wait", "other": "other"}
    for row in published("trace_hta_idle"):
        idle = analyze.idle_time(_trace(folder / row["file"]).events, method="stream")
        stream = idle[idle["stream"] == int(row["stream"])]
        by_cause = stream.groupby("cause", observed=True)["idle_ns"].sum()
        computed = {f"{key}_ns": by_cause.get(name, 0) for key, name in causes.items()}
        yield from _times(row, f"{row['file']}, stream {row['stream']}", computed, *causes)


@_traces(name="HTA queue length", source=_HTA, needs=("kineto-hta",))
def hta_queue(folder: Path) -> Iterator[Reading]:
    """Compare the longest queue of every stream."""
    for row in published("trace_hta_queue"):
        queue = analyze.queue_length(_trace(folder / row["file"]).events)
        longest = analyze.queue_summary(queue).set_index("stream")["max_count"]
        label = f"{row['file']}, stream {row['stream']}, longest queue"
        yield _count(row, label, "max_count", longest.get(int(row["stream"]), 0))


@_traces(name="HTA overlap", source=_HTA, needs=("kineto-hta", "kineto-dlrm-8rank"))
def hta_overlap(*folders: Path) -> Iterator[Reading]:
    """Compare the share of communication that compute hides, printed with two decimals.

    HTA drops GPU work whose launch is not in the trace.
    """
    by_name = {folder.name: folder for folder in folders}
    for row in published("trace_hta_overlap"):
        events = _trace(by_name[row["dataset"]] / row["file"]).events
        work = events[events["kind"].notna() & events["launch"].notna()]
        overlap = analyze.communication_overlap(work).set_index("rank")
        percent = 100 * float(overlap["overlap_share"][int(row["rank"])])
        label = f"{row['file']}, rank {row['rank']}"
        yield Reading(label, float(row["overlap_pct"]), percent, "%", 0.005, source=row["source"])


def _row(table: pd.DataFrame, label: int | str) -> Mapping[Any, Any]:
    return {name: table[name].loc[int(label)] for name in table}


def _times(
    row: dict[str, str], label: str, computed: Mapping[Any, Any], *names: str, tolerance: float = 0
) -> Iterator[Reading]:
    """Compare the printed microseconds of a row with the nanoseconds computed here."""
    for name, printed in printed_ns(row, *names):
        value = int(computed[f"{name}_ns"])
        yield Reading(f"{label}, {name}", printed, value, "ns", tolerance, row["source"])


def _count(row: dict[str, str], label: str, column: str, computed: Any) -> Reading:
    return Reading(label, int(row[column]), int(computed), unit="", source=row["source"])


@functools.lru_cache(maxsize=32)
def _trace(path: Path) -> Trace:
    return load.traces(path, progress=False)


def _union_ns(work: pd.DataFrame) -> int:
    start = work["start_ns"].to_numpy()
    return intervals.measure(start, start + work["dur_ns"].to_numpy())


def _contents(path: Path) -> Iterator[bytes]:
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as members:
            opened = (members.extractfile(member) for member in members)
            yield from (file.read() for file in opened if file is not None)
    else:
        yield gzip.decompress(path.read_bytes())


# The counts of execution traces on the printed side are taken from the files by other means than
# the loaders: a walk over the protobuf wire format, or a generic JSON parser.

# mlcommons/chakra, schema/protobuf/et_def.proto, enum NodeType
_CHAKRA_TYPES = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
# Number of the field in a Chakra node, and the wire types of protobuf.
_TYPE_FIELD = 3
_VARINT, _FIXED64, _BYTES = 0, 1, 2


@_executions(
    name="Chakra protobuf",
    source="the file itself, counted by walking the protobuf wire format",
    needs=("chakra-et",),
)
def chakra_protobuf(folder: Path) -> Iterator[Reading]:
    """Compare the nodes of each type with the messages of every .et file."""
    for name, content, nodes in _loaded(folder / "feeder_tests_trace.tar.gz", ".et"):
        _, *messages = _messages(content)  # the first one describes the file
        yield from _compare(name, Counter(map(_node_type, messages)), nodes["type"])


@_executions(
    name="Chakra JSON",
    source="the file itself, counted by a generic JSON parser",
    needs=("chakra-et",),
)
def chakra_json(folder: Path) -> Iterator[Reading]:
    """Compare the nodes of each type with the entries of every workload graph."""
    for name, content, nodes in _loaded(folder / "json_trace.tar.gz", ".json"):
        entries = json.loads(content)["workload_graph"]
        types = Counter(_CHAKRA_TYPES[entry["NodeType"]] for entry in entries)
        yield from _compare(name, types, nodes["type"])


@_executions(
    name="PyTorch, one process",
    source="the file itself, counted by a generic JSON parser",
    needs=("kineto-resnet", "chakra-et"),
)
def pytorch(resnet: Path, chakra: Path) -> Iterator[Reading]:
    """Compare nodes and collectives with the entries of files of three schema versions."""
    for path in sorted(resnet.rglob("*_et.json.gz")):
        content = gzip.decompress(path.read_bytes())
        name = path.relative_to(resnet).as_posix()
        yield from _compare_pytorch(name, content, load.traces(path).nodes)
    for name, content, nodes in _loaded(chakra / "1.0.2-chakra.0.0.4.tgz", ".json"):
        yield from _compare_pytorch(name, content, nodes)


@_executions(
    name="PyTorch, the 8 ranks of DLRM",
    source="the files themselves, counted by a generic JSON parser",
    needs=_DLRM,
)
def pytorch_dlrm(folder: Path) -> Iterator[Reading]:
    """Compare nodes and collectives of every rank with the entries of its file."""
    for name, content, nodes in _loaded(folder / "dlrm_pytorch_et.tar.gz", ".json"):
        yield from _compare_pytorch(name, content, nodes)


def _compare(name: str, printed: Counter[str], types: pd.Series) -> Iterator[Reading]:
    computed = Counter(types.astype(str))
    yield Reading(f"{name}, nodes", sum(printed.values()), sum(computed.values()), unit="")
    for kind in sorted(printed | computed):
        yield Reading(f"{name}, {kind}", printed[kind], computed[kind], unit="")


def _compare_pytorch(name: str, content: bytes, nodes: pd.DataFrame) -> Iterator[Reading]:
    """Compare counts and names; the sum of ids shows that no node was taken for another."""
    entries: list[dict[str, Any]] = json.loads(content)["nodes"]
    printed = Counter(entry["name"] for entry in entries)
    computed = Counter(nodes["name"].astype(str))
    collectives = "record_param_comms"
    ids = sum(entry["id"] for entry in entries)
    yield Reading(f"{name}, nodes", len(entries), len(nodes), unit="")
    yield Reading(f"{name}, {collectives}", printed[collectives], computed[collectives], unit="")
    yield Reading(f"{name}, names", len(printed), len(printed & computed), unit="")
    yield Reading(f"{name}, sum of ids", ids, nodes["node"].sum(), unit="")


def _loaded(archive: Path, suffix: str) -> Iterator[tuple[str, bytes, pd.DataFrame]]:
    """Give name, bytes and loaded nodes of every file of an archive, each loaded alone."""
    with tarfile.open(archive) as members, tempfile.TemporaryDirectory() as folder:
        for member in members:
            base = Path(member.name).name
            # Archives made on a Mac hold a companion "._name" for every file.
            if not member.isfile() or not base.endswith(suffix) or base.startswith("._"):
                continue
            file = members.extractfile(member)
            content = file.read() if file is not None else b""
            alone = Path(folder, base)
            alone.write_bytes(content)
            yield base, content, load.traces(alone).nodes


def _messages(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        length, at = _varint(content, at)
        yield content[at : at + length]
        at += length


def _node_type(message: bytes) -> str:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        field, wire = tag >> 3, tag & 7
        value, at = _varint(message, at) if wire in (_VARINT, _BYTES) else (0, at)
        if wire == _VARINT and field == _TYPE_FIELD:
            return _CHAKRA_TYPES[value]
        at += {_VARINT: 0, _BYTES: value, _FIXED64: 8}.get(wire, 4)
    return _CHAKRA_TYPES[0]


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
