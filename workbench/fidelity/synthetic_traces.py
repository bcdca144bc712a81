"""Claims about traces that nobody recorded: obfuscated copies, and graphs made from a model."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from workbench import analyze, load
from workbench.fidelity.registry import Reading, claim
from workbench.tables import Trace

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
    tasks = analyze.graph_tasks(events, analyze.execution_graph(events))
    nodes = analyze.chakra_nodes(events, tasks.tasks, tasks.edges)
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
    nodes = analyze.execution_traces(shape, layout).nodes
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
