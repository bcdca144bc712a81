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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from claims._execution_traces import execution_traces
from claims._graph_tasks import chakra_nodes, graph_tasks
from claims.registry import Reading, beside_named, claim, printed_ns, published
from workbench import analyze, load, simulate
from workbench.analyze import intervals
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


@_traces(
    name="roofline",
    source="AMD-AGI/TraceLens, GEMM.csv and CONV_fwd.csv of H100 traces",
    needs=("kineto-h100",),
)
def rooflines(folder: Path) -> Iterator[Reading]:
    """Compare work and time of matrix products and a convolution with those of the peer.

    TraceLens adds one operation per element for a bias; PyTorch's counter does not, nor do we. It
    keeps microseconds in 32 bits, which hold seven digits.
    """

    @functools.cache
    def roof(file: str) -> dict[tuple[str, str], dict[Any, Any]]:
        trace = _trace(folder / file)
        rows = analyze.roofline(trace.events, devices=trace.devices).to_dict("records")
        return {(str(row["name"]), str(row["shapes"])): row for row in rows}

    for row in published("operator_work"):
        operator = roof(row["file"])[row["operator"], row["shapes"]]
        count, what = int(row["call_count"]), f"{row['operator']} {row['shapes'][:40]}"
        yield Reading(f"{what}, calls", count, int(operator["call_count"]), unit="")
        work = float(operator["flop_count"]) / count / 1e9 + float(row["bias_gflop"])
        yield Reading(f"{what}, work", float(row["gflop"]), work, "GFLOP", 1e-9)
        moved = float(operator["moved_bytes"]) / count / 2**20
        yield Reading(f"{what}, moved", float(row["moved_mebibytes"]), moved, "MiB", 1e-9)
        if row["time_us"]:
            printed_us = float(row["time_us"])
            here_us = int(operator["kernel_ns"]) / 1e3
            yield Reading(f"{what}, time", printed_us, here_us, "us", 1e-4 * printed_us)


@_traces(
    name="operators below the roof of a made job",
    source="closed form: 2 m n k operations at the peak of the data sheet; NVIDIA H100",
)
def made_roofs() -> Iterator[Reading]:
    """Compare cost and share of the roof with those put in, of GPUs that wait and that do not.

    Kernels take five times as long as the peak allows. Where each launch takes longer than its
    kernel, faster kernels gain nothing. A replay knows launches to a few microseconds: 2 %.
    """
    m, n, k = _PRODUCT
    roof_us = 2 * m * n * k / _H100_FLOP_PER_US
    length = round(5 * roof_us)
    for name, host_us, is_found in (("GPU", 20, 1), ("host", length + 200, 0)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            path.write_text(json.dumps(_made_products(host_us, length)))
            trace = load.traces(path, progress=False)
        ratio = float(analyze.roofline(trace.events, devices=trace.devices)["roof_ratio"].iloc[0])
        yield Reading(f"{name} binds: share of the roof", roof_us / length, ratio, "", 1e-9)
        table = analyze.findings(trace, rules=["below_roof"]).findings
        yield Reading(f"{name} binds: findings", is_found, len(table), "")
        if is_found:
            truth = _PRODUCTS * (length - roof_us / 0.7) / 1e3
            here = float(table["cost"].sum())
            yield Reading(f"{name} binds: cost per step", truth, here, "ms", 0.02 * truth)


_PRODUCT, _PRODUCTS, _H100_FLOP_PER_US = (4096, 8192, 4096), 10, 989e6


def _made_products(host_us: int, length_us: int) -> dict[str, Any]:
    """Write a profile of six steps of equal products, each launched ``host_us`` after the last."""
    m, n, k = _PRODUCT
    shapes = {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2}
    rows, free = [], 0
    for number in range(6 * _PRODUCTS):
        at = number * host_us
        free = max(free, at + 10)
        rows += [
            ("aten::mm", "cpu_op", at, host_us, 1, shapes),
            ("cudaLaunchKernel", "cuda_runtime", at + 2, 3, 1, {"correlation": number + 1}),
            ("gemm", "kernel", free, length_us, 7,
             {"correlation": number + 1, "stream": 7, "device": 0}),
        ]  # fmt: skip
        free += length_us
        if number % _PRODUCTS == 0:
            name = f"ProfilerStep#{number // _PRODUCTS}"
            rows.append((name, "user_annotation", at, _PRODUCTS * host_us, 1, {}))
    names = ("name", "cat", "ts", "dur", "tid", "args")
    events = [{"ph": "X", "pid": 0, **dict(zip(names, row, strict=True))} for row in rows]
    gpu = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}
    return {"deviceProperties": [gpu], "traceEvents": events}


@_traces(
    name="GPU time by module",
    source="the raw file: each kernel under the innermost nn.Module around its launch",
    needs=("kineto-h100",),
)
def modules(folder: Path) -> Iterator[Reading]:
    """Compare the time of every class of module with a search through plain JSON, exactly."""
    for path in sorted(folder.glob("*.json.gz")):
        (content,) = _contents(path)
        counted = _module_times(json.loads(content)["traceEvents"])
        tree = analyze.model_tree(_trace(path).events)
        own = tree.set_index("node")["gpu_ns"].astype("int64")
        nested = tree[tree["kind"] == "module"]
        own = own.sub(nested.groupby("parent")["gpu_ns"].sum(), fill_value=0)
        classes = nested["path"].str.rpartition(" > ")[2].str.replace(r"_\d+$", "", regex=True)
        here = own[nested["node"]].groupby(classes.to_numpy()).sum()
        yield Reading(f"{path.name}, classes", len(counted), int((here > 0).sum()), "")
        for name, total_ns in sorted(counted.items()):
            yield Reading(f"{path.name}, {name}", total_ns, int(here.get(name, 0)))


def _module_times(events: list[dict[str, Any]]) -> Counter[str]:
    """Add up durations of GPU work by the class of the innermost module around its launch."""
    spans: dict[Any, list[tuple[float, float, str]]] = {}
    launches: dict[int, tuple[Any, float]] = {}
    for event in events:
        if str(event.get("name", "")).startswith("nn.Module: "):
            name = re.sub(r"_\d+$", "", event["name"].removeprefix("nn.Module: "))
            spans.setdefault(event["tid"], []).append((event["ts"], event["dur"], name))
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            launches[event["args"].get("correlation", 0)] = event["tid"], event["ts"]
    times: Counter[str] = Counter()
    for event in events:
        launch = launches.get(event.get("args", {}).get("correlation", 0))
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and launch:
            around = [
                (length, name)
                for start, length, name in spans.get(launch[0], [])
                if start <= launch[1] <= start + length
            ]
            if around:
                times[min(around)[1]] += round(1000 * event["dur"])
    return times


@_traces(
    name="iterations of a simulated inference engine",
    source="truth of workbench.simulate.serving_trace; the union of all GPU work",
)
def serving() -> Iterator[Reading]:
    """Compare gaps and phases with what was put in, and time without work with its union.

    The last iteration has no gap, and those of the others are rounded to nanoseconds.
    """
    for truth, count in ((0.1, 64), (0.3, 64), (0.6, 128)):
        trace = simulate.serving_trace(gap_share=truth, iterations=count)
        table = analyze.inference_iterations(trace.events)
        whole, name = table.iloc[:-1], f"{truth:.0%} gaps"
        here = float(whole["gap_ns"].sum() / whole["period_ns"].sum())
        yield Reading(f"{name}: share of gaps", truth, here, "", 1e-6)
        phases = table["phase"].value_counts()
        yield Reading(f"{name}: iterations with prefill", count // 8, int(phases["mixed"]), "")
        work = trace.events[trace.events["kind"].notna()]
        end_ns = int((work["start_ns"] + work["dur_ns"]).max())
        idle_ns = end_ns - int(work["start_ns"].min()) - _union_ns(work)
        gaps_ns = int((table["gap_ns"] + table["idle_ns"]).sum())
        yield Reading(f"{name}: time without GPU work", idle_ns, gaps_ns)


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
    """Yield name, bytes and loaded nodes of every file of an archive, each loaded alone."""
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


# Claims about traces that nobody recorded: obfuscated copies, and graphs made from a model.

_SAME = 0.02  # what a copy may differ by and still stand for its source
_FACTOR = 1.7
_VALUE_BYTES = {"BFloat16": 2, "Float": 4}
_PUBLIC = ("cuda", "Memcpy", "Memset")
_LLAMA_70B, _SEQUENCE, _ROUNDS = "Llama 3 70B", 4096, 8


@claim(
    noun="synthetic_traces",
    name="an obfuscated copy behaves as its source",
    source="the source itself, read and analysed in the same way",
    needs=("kineto-dlrm-8rank",),
)
def obfuscation(folder: Path) -> Iterator[Reading]:
    """Compare shares and replay of a copy with those of eight measured ranks, to 2 %."""
    source = load.traces(folder / "dlrm_kineto.tar.gz", progress=False)
    with tempfile.TemporaryDirectory() as out:
        copies = Path(out, "copy")
        load.write_obfuscated(folder / "dlrm_kineto.tar.gz", copies, factor=_FACTOR)
        copy = load.traces(copies, progress=False)
        text = "".join(gzip.decompress(file.read_bytes()).decode() for file in copies.iterdir())
    before, after = _behaviour(source), _behaviour(copy)
    for what, printed in before.items():
        yield Reading(f"{what}, copy / source", 1, after[what] / printed, "x", _SAME)
    ratio = _replayed_ns(copy) / _FACTOR / _replayed_ns(source)
    yield Reading("replay, copy / factor / source", 1, ratio, "x", _SAME)
    names = {str(name) for name in source.events["name"].cat.categories}
    left = [name for name in names if not name.startswith(_PUBLIC) and f'"{name}"' in text]
    yield Reading("names of operators and kernels in the copy", 0, len(left), "")


def _behaviour(trace: Trace) -> dict[str, float]:
    parts = analyze.time_breakdown(trace.events).sum(numeric_only=True)
    waits = analyze.collective_waits(trace.events)
    return {
        "compute share": parts["compute_ns"] / parts["span_ns"],
        "exposed communication share": parts["exposed_communication_ns"] / parts["span_ns"],
        "overlapped share": parts["overlap_ns"] / parts["communication_ns"],
        "idle share": parts["idle_ns"] / parts["span_ns"],
        "waiting share": waits["wait_ns"].sum() / parts["span_ns"],
    }


def _replayed_ns(trace: Trace) -> int:
    replayed = analyze.replay(analyze.execution_graph(trace.events))
    return int(replayed.max() - replayed.min())


@claim(
    noun="synthetic_traces",
    name="collectives of an exported job, once each and with their bytes",
    source="the same files, counted in their JSON without the package",
    needs=("fleet-demo",),
)
def exported(folder: Path) -> Iterator[Reading]:
    """Compare nodes of the Chakra export, kind by kind, with communication kernels; exactly."""
    counts: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for file in (folder / "traces").iterdir():
        for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]:
            told = event.get("args", {})
            if event.get("cat") == "kernel" and "Collective name" in told:
                kind = str(told["Collective name"]).strip("_").removesuffix("_base")
                counts[kind.replace("_", "")] += 1
                values = int(told["In msg nelems"]) * _VALUE_BYTES[told["dtype"]]
                size[kind.replace("_", "")] += values
    events = load.traces(folder / "traces", progress=False).events
    tasks = graph_tasks(events, analyze.execution_graph(events))
    nodes = chakra_nodes(events, tasks.tasks, tasks.edges)
    with tempfile.TemporaryDirectory() as out:
        load.write_chakra(nodes, Path(out, "job"))
        again = load.traces(out, progress=False).nodes
    talk = again[again["type"] == "COMM_COLL_NODE"]
    yield Reading("communication nodes", sum(counts.values()), len(talk), "")
    kinds = talk["collective"].astype(str)
    for kind in sorted(counts):
        of_kind = talk[kinds.str.replace("_", "") == kind]
        yield Reading(f"{kind}: nodes", counts[kind], len(of_kind), "")
        yield Reading(f"{kind}: bytes", size[kind], int(of_kind["size_bytes"].sum()), "bytes")


@claim(
    noun="synthetic_traces",
    name="execution traces of a model: counts and bytes",
    source="closed forms; Megatron-LM, arXiv 2104.04473, and the planner's time of compute",
)
def from_a_model() -> Iterator[Reading]:
    """Compare the nodes of a 70-billion-parameter step with closed forms, exactly.

    Bytes of gradients are rounded up per rank, and times per node to nanoseconds: a tolerance
    of one value per rank, and of half a nanosecond per node.
    """
    shape = analyze.model_shape(_LLAMA_70B)
    layout = analyze.Layout(
        tensor=8, pipeline=4, data=2, global_batch=2 * _ROUNDS, sequence=_SEQUENCE, sharding="zero1"
    )
    nodes = execution_traces(shape, layout).nodes
    kinds = nodes["collective"].astype(object)
    reduces = nodes[kinds == "all_reduce"]
    per_layer = len(reduces) / (layout.gpu_count / layout.pipeline * shape.layers * _ROUNDS)
    yield Reading("all-reduces of a layer, rank and micro-batch", 4, per_layer, "")
    bytes_each = reduces["size_bytes"].unique().tolist()
    yield Reading("bytes of each", 2 * _SEQUENCE * shape.hidden, max(bytes_each), "bytes")
    yield Reading("different sizes", 1, len(bytes_each), "")
    columns_of_stages = layout.tensor * layout.data
    for kind in ("SEND", "RECV"):
        here = int((nodes["type"] == f"COMM_{kind}_NODE").sum()) / columns_of_stages
        printed = 2 * (layout.pipeline - 1) * _ROUNDS
        yield Reading(f"{kind} nodes of a column of stages", printed, here, "")
    printed, slack = 2 * shape.parameter_count, 2 * layout.gpu_count
    for kind, copies in (("reduce_scatter", layout.data), ("all_gather", 1)):
        here = int(nodes.loc[kinds == kind, "size_bytes"].sum()) / copies
        yield Reading(f"{kind}: bytes of a replica", printed, here, "bytes", slack)
    yield _compute(nodes, analyze.configurations(shape, layout))


def _compute(nodes: pd.DataFrame, table: pd.DataFrame) -> Reading:
    """Compare compute of a rank of the fullest stage, the last one, with the planner's."""
    last = nodes[nodes["rank"] == nodes["rank"].max()]
    own = last[(last["type"] == "COMP_NODE") & (last["name"] != "optimizer")]
    planned = analyze.assumed_model().predict(table)["compute_ns"].iloc[0]
    here = int(own["dur_ns"].sum())
    return Reading("compute of the last stage", int(planned), here, "ns", len(own) / 2)


# Claims about statistical twins: held-out ranks, other traces, and a twin of a twin.

_SOURCE = "target of this project"
_FILE = "trace_likeness"
# Ranks of which all what-ifs alone agree: the others wait for a host whose delay no profile knows.
_ALONE_REACHED = 3
# Times in whole microseconds: what is drawn near them is spread a little more each time.
_TWIN_REACHED = 1.5
_OTHERS = {
    "H100, Qwen": "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "H100, BERT": "gaunernst_bert-small-uncased__1016001.json.gz",
    "ResNet": "resnet_kineto.json.gz",
    "HTA, control": "trace_diff/control",
}


@claim(
    noun="trace_likeness",
    name="behaviour of held-out ranks",
    source=_SOURCE,
    needs=("kineto-dlrm-8rank",),
)
def held_out(folder: Path) -> Iterator[Reading]:
    """Fit on seven of eight ranks, and count held-out ranks whose behaviour agrees to 10 %.

    A rank alone is asked too much: what its collectives wait depends on when its host was there,
    which the other ranks do not show. In the job, where waits arise, it is not. Seed 0.
    """
    trace = load.traces(folder, progress=False)
    ranks = trace.ranks["rank"].tolist()
    alone, moves, steps = [], [], []
    for rank in ranks:
        profile = analyze.trace_profile(of_ranks(trace, [n for n in ranks if n != rank]))
        twin = simulate.traces_like(profile, ranks=len(ranks))
        scores = analyze.trace_likeness(of_ranks(trace, [rank]), twin).set_index("kind")
        alone.append(bool((_moves(scores, "")["verdict"] == "pass").all()))
        scores = analyze.trace_likeness(trace, twin).set_index("kind")
        moves.append(bool((_moves(scores, "job, ")["verdict"] == "pass").all()))
        steps.append(bool(scores.loc["job, time of a step", "verdict"] == "pass"))
    name = "held-out ranks alone: what-if moves alike to 10 %"
    yield replace(beside_named(_FILE, name, sum(alone)), reached=_ALONE_REACHED)
    name = "held-out ranks in their job: what-if moves alike to 10 %"
    yield beside_named(_FILE, name, sum(moves))
    yield beside_named(_FILE, "held-out ranks in their job: step time alike to 10 %", sum(steps))


def _moves(scores: pd.DataFrame, whose: str) -> pd.DataFrame:
    changes = ("compute x0.5", "communication x2", "CPU x0.5")
    return scores.loc[[f"{whose}{change}" for change in changes]]


def of_ranks(trace: Trace, ranks: list[int]) -> Trace:
    """Keep some ranks of a trace."""
    kept = trace.events["rank"].isin(ranks)
    of_rank = trace.ranks["rank"].isin(ranks)
    return replace(trace, events=trace.events[kept], ranks=trace.ranks[of_rank])


@claim(
    noun="trace_likeness",
    name="behaviour and leaks of other traces",
    source=_SOURCE,
    needs=("kineto-h100", "kineto-resnet", "kineto-hta"),
)
def other_traces(h100: Path, resnet: Path, hta: Path) -> Iterator[Reading]:
    """Compare twins of single ranks with their sources: inference on H100, training on V100."""
    folders = (h100, h100, resnet, hta)
    for folder, (name, file) in zip(folders, _OTHERS.items(), strict=True):
        trace = load.traces(folder / file, progress=False)
        profile = analyze.trace_profile(trace)
        scores = analyze.trace_likeness(trace, simulate.traces_like(profile))
        failed = scores[scores["verdict"] == "FAIL"]["score"]
        for score, words in (("behaviour", "behaviour"), ("leak", "leaks")):
            what = f"other traces: scores of {words} beyond their limit"
            count = int((failed == score).sum())
            yield beside_named(_FILE, what, count, f"{name}: scores of {words} beyond their limit")


@claim(
    noun="trace_likeness",
    name="a twin of a twin",
    source="Kolmogorov-Smirnov critical value at 5 %",
    needs=("kineto-h100", "kineto-resnet"),
)
def twin_of_twin(h100: Path, resnet: Path) -> Iterator[Reading]:
    """Fit a twin, draw from it, and compare durations of compute: scipy's test is independent.

    One rank each: ranks share a factor, so that their durations are not independent draws.
    """
    from scipy.stats import ks_2samp

    for name, path in (
        ("H100, Qwen", h100 / _OTHERS["H100, Qwen"]),
        ("ResNet", resnet / _OTHERS["ResNet"]),
    ):
        trace = load.traces(path, progress=False)
        first = simulate.traces_like(analyze.trace_profile(trace), seed=1)
        second = simulate.traces_like(analyze.trace_profile(first), seed=2)
        durations = [
            twin.events.loc[twin.events["kind"] == "compute", "dur_ns"] for twin in (first, second)
        ]
        chance = 1.36 * np.sqrt(2 / len(durations[0]))
        ratio = float(ks_2samp(*durations, method="asymp").statistic / chance)
        what = "twin of a twin: distance of durations over that of chance at 5 %"
        reading = beside_named(_FILE, what, ratio, f"{name}: distance over that of chance")
        yield replace(reading, reached=_TWIN_REACHED) if name == "ResNet" else reading
