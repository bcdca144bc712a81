"""Operator calls of PyTorch execution traces, and which of them can be replayed alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source, streams
from workbench.load._files.findings import Findings, quality_frame
from workbench.load._files.guard import Dropped
from workbench.load._files.json_events import to_integer
from workbench.load._files.rank_names import RankArgument
from workbench.load._traces.execution import nodes as nodes_of
from workbench.load._traces.execution import operator_schemas as schemas
from workbench.load._traces.execution import operator_values as values_of
from workbench.load._traces.execution.json_form import read_nodes
from workbench.load._traces.execution.reader import numbered, read_document
from workbench.load._traces.graph import RankGraph, gather, read_all, with_ranks, without_collector
from workbench.tables import OPERATOR_CALLS

_COMMUNICATION = ("c10d::", "_c10d_functional", "c10d_functional", "nccl:", "gloo:", "mpi:")
_BYTES = {"8": 1, "bool": 1, "16": 2, "32": 4, "64": 8, "128": 16}
_MOST_BYTES = 1 << 62
# Wiring of tensors to memory and streams; there is nothing to time.
_NOT_COMPUTE = {"aten::set_", "aten::record_stream"}

Raw = dict[str, Any]


class _Call(NamedTuple):
    """One row of the table, without its rank."""

    node: int
    name: str
    op_schema: str | None
    parent: int | None
    thread: str | None
    device: str | None
    stream: str | None
    record_function: int | None
    dur_ns: int | None
    arguments: str
    outputs: str
    input_bytes: int
    assumed_stride_count: int
    collective: str | None
    group: str | None
    size_bytes: int | None
    is_replayed: bool
    reason: str | None


def operator_calls(
    path: str | Path | Iterable[str | Path], *, rank: RankArgument = None
) -> pd.DataFrame:
    """List the operators that a job called, and say which can be replayed alone.

    Of nested calls the outermost operator stands for all: replaying it calls the others
    again. Annotations and autograd nodes are looked through, since they are no operators.

    Parameters
    ----------
    path
        PyTorch execution traces (JSON, gzip is fine): file, directory, archive or list.
    rank
        Ranks where the files do not tell them, as for :func:`traces`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.OPERATOR_CALLS`, by rank and node. Communication,
        custom operators, fused kernels and whatever else cannot be called with what the
        trace holds is there too, with the ``reason``. ``attrs["quality"]`` has what was
        left out, mended or assumed while reading.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a file is no PyTorch execution trace, or holds not a single operator.

    Notes
    -----
    An operator can be replayed if it is one of PyTorch (``aten``) with a recorded schema,
    every type in that schema can be made from recorded values, and all values, shapes and
    types are there. Operators that take the name of a file are never replayed. Strides are
    taken from the trace (schema 1.1.1), else from the ``aten::as_strided`` that made the
    tensor; others are assumed contiguous and counted.

    References
    ----------
    Mystique, arXiv 2301.04122, section 4.2; facebookresearch/param: et_replay.
    """
    found, dropped = gather(path), Dropped()
    read: list[tuple[RankGraph, list[_Call]]] = []
    with without_collector():
        for source, stream in streams(found.sources, dropped):
            with dropped.trying(source.label):
                data = read_all(stream, findings := Findings(source.label))
                read.append(_read(data, source, findings))
    if not read:
        dropped.raise_if_all()
    calls = {id(graph): made for graph, made in read}
    frames = []
    for entry in with_ranks([graph for graph, _ in read], rank):
        frame = pd.DataFrame(calls[id(entry.graph)], columns=list(_Call._fields))
        frame.insert(0, "rank", np.int32(entry.rank))
        frames.append(frame)
    if not frames or not sum(map(len, frames)):
        label = found.sources[0].label if found.sources else path
        msg = (
            f"{label}: holds not a single operator; record it with "
            "torch.profiler.ExecutionTraceObserver around whole training steps"
        )
        raise LoadError(msg)
    table = OPERATOR_CALLS.cast(pd.concat(frames, ignore_index=True))
    quality = [graph.findings.frame() for graph, _ in read] + [quality_frame(dropped.rows)]
    table.attrs["quality"] = [
        row for frame in quality if len(frame) for row in frame.to_dict("records")
    ]
    return OPERATOR_CALLS.check(table)


def _read(data: bytes, source: Source, findings: Findings) -> tuple[RankGraph, list[_Call]]:
    _, raw = read_nodes(data, "nodes", label=source.label, findings=findings)
    nodes = sorted(numbered(raw, findings), key=lambda entry: entry[0])
    graph = read_document(source, nodes, findings)
    threads = _threads(nodes)
    strides: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    rows = {row.node: row for row in graph.rows}
    inside: set[int] = set()
    calls = []
    for number, node in nodes:
        caller = nodes_of.caller(node)
        if caller in inside:
            inside.add(number)
        elif _is_operator(node):
            inside.add(number)
            calls.append(_call(node, rows[number], threads.get(number), strides))
        values_of.learn_strides(node, strides)
    return graph, calls


def _is_operator(node: Raw) -> bool:
    """Tell operators from annotations, autograd nodes and roots."""
    name = node.get("name")
    if not isinstance(name, str):
        return False
    attrs = nodes_of.attributes(node)
    return bool(
        attrs.get("op_schema")
        or attrs.get("kernel_backend")
        or name == "record_param_comms"
        or name.startswith(("aten::", *_COMMUNICATION))
    )


def _call(node: Raw, row: Any, thread: str | None, strides: values_of.Strides) -> _Call:
    attrs = nodes_of.attributes(node)
    text = attrs.get("op_schema")
    text = text if isinstance(text, str) and text else None
    inputs, outputs, reason = [], [], None
    try:
        outputs = values_of.described(values_of.side(node, "outputs"), {})
    except values_of.Unusable:
        outputs = []
    try:
        inputs = values_of.described(values_of.side(node, "inputs"), strides)
    except values_of.Unusable as unusable:
        reason = str(unusable)
    schema = schemas.parse(text) if text else None
    reason = _not_called(node, text, schema) or reason
    if reason is None and schema is not None and len(inputs) != len(schema.arguments):
        reason = "has another number of arguments than its schema"
    used = values_of.tensors(inputs)
    devices = {tensor.get("device") for tensor in [*used, *values_of.tensors(outputs)]}
    devices -= {None, ""}
    return _Call(
        node=row.node,
        name=row.name,
        op_schema=text,
        parent=row.parent,
        thread=thread,
        device=_device(devices),
        stream=_stream(node),
        record_function=row.record_function,
        dur_ns=row.dur_ns,
        arguments=json.dumps(inputs, separators=(",", ":")),
        outputs=json.dumps(outputs, separators=(",", ":")),
        input_bytes=min(sum(map(_bytes, used)), _MOST_BYTES),
        assumed_stride_count=sum(len(t["shape"]) > 1 and "stride" not in t for t in used),
        collective=row.collective,
        group=row.group,
        size_bytes=row.size_bytes,
        is_replayed=reason is None,
        reason=reason,
    )


def _not_called(node: Raw, text: str | None, schema: schemas.Schema | None) -> str | None:
    """Say why an operator is not to be called, whatever its arguments; None if it is."""
    name = str(node.get("name"))
    if name == "record_param_comms" or name.startswith(_COMMUNICATION):
        return "communication"
    if nodes_of.attributes(node).get("kernel_backend"):
        return "fused kernel, whose code is not in the trace"
    if text is None:
        return "no schema was recorded"
    if schema is None:
        return "its schema cannot be read"
    if schema.namespace != "aten":
        return "custom operator, which PyTorch alone does not have"
    if f"aten::{schema.name}" != name:
        return "its name is not that of its schema"
    if name in _NOT_COMPUTE:
        return "ties tensors to memory or streams and computes nothing"
    return schemas.unusable(schema)


def _device(devices: set[Any]) -> str | None:
    """Return where a call ran: on the GPU if any of its tensors is there."""
    if not devices:
        return None
    return str(min(devices, key=lambda name: (name == "cpu", name)))


def _stream(node: Raw) -> str | None:
    given = values_of.side(node, "inputs")
    for value, kind in zip(given.values, given.types, strict=False):
        if kind == "Stream":
            return str(value)[:60]
    return None


def _bytes(tensor: Raw) -> int:
    """Return the bytes of a described tensor."""
    each = next((size for end, size in _BYTES.items() if tensor["dtype"].endswith(end)), 4)
    return math.prod(tensor["shape"]) * (1 if "float8" in tensor["dtype"] else each)


def _threads(nodes: list[tuple[int, Raw]]) -> dict[int, str]:
    """Return the thread of every node that states one."""
    stated: Iterator[tuple[int, int | None]] = (
        (number, to_integer(nodes_of.attributes(node).get("tid"))) for number, node in nodes
    )
    return {number: str(thread) for number, thread in stated if thread is not None}
