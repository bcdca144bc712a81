"""Operator calls of PyTorch execution traces, and which of them can be replayed alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from workbench.load._traces.execution import operator_script as schemas
from workbench.load._traces.execution.reader import numbered, read_document, read_nodes
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
        dropped, mended or assumed while reading.

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
        frame = pd.DataFrame(calls[id(entry.file)], columns=list(_Call._fields))
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
        learn_strides(node, strides)
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


def _call(node: Raw, row: Any, thread: str | None, strides: Strides) -> _Call:
    attrs = nodes_of.attributes(node)
    text = attrs.get("op_schema")
    text = text if isinstance(text, str) and text else None
    inputs, outputs, reason = [], [], None
    try:
        outputs = described(side(node, "outputs"), {})
    except Unusable:
        outputs = []
    try:
        inputs = described(side(node, "inputs"), strides)
    except Unusable as unusable:
        reason = str(unusable)
    schema = schemas.parse(text) if text else None
    reason = _not_called(node, text, schema) or reason
    if reason is None and schema is not None and len(inputs) != len(schema.arguments):
        reason = "has another number of arguments than its schema"
    used = tensors(inputs)
    devices = {tensor.get("device") for tensor in [*used, *tensors(outputs)]}
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
    if not devices:
        return None
    return str(min(devices, key=lambda name: (name == "cpu", name)))


def _stream(node: Raw) -> str | None:
    given = side(node, "inputs")
    for value, kind in zip(given.values, given.types, strict=False):
        if kind == "Stream":
            return str(value)[:60]
    return None


def _bytes(tensor: Raw) -> int:
    each = next((size for end, size in _BYTES.items() if tensor["dtype"].endswith(end)), 4)
    return math.prod(tensor["shape"]) * (1 if "float8" in tensor["dtype"] else each)


def _threads(nodes: list[tuple[int, Raw]]) -> dict[int, str]:
    stated: Iterator[tuple[int, int | None]] = (
        (number, to_integer(nodes_of.attributes(node).get("tid"))) for number, node in nodes
    )
    return {number: str(thread) for number, thread in stated if thread is not None}


# Arguments of an operator as an execution trace records them, in a form that can be replayed.

_DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "c10::half": "float16",
    "c10::bfloat16": "bfloat16", "bfloat16": "bfloat16", "int": "int32", "long": "int64",
    "long int": "int64", "long long": "int64", "short": "int16", "short int": "int16",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "c10::float8_e4m3fn": "float8_e4m3fn", "c10::float8_e5m2": "float8_e5m2",
}  # fmt: skip
_TENSOR = re.compile(r"Tensor\((.{0,60})\)")
_NONE = ("<None>", "<Generator>")
_MOST_LIST = 100_000
_MOST_DIMENSIONS = 64
_TENSOR_FIELDS = 6

Strides = Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]


class Unusable(Exception):  # noqa: N818 - a reason, not an error
    """An argument that cannot be made from what the trace says."""


class Side(NamedTuple):
    """Inputs or outputs of a node: values, shapes, types and, in late schemas, strides."""

    values: Sequence[Any]
    shapes: Sequence[Any]
    types: Sequence[Any]
    strides: Sequence[Any]


def side(node: Raw, name: str) -> Side:
    given = node.get(name)
    if isinstance(given, dict):
        found = [given.get(key) for key in ("values", "shapes", "types", "strides")]
    else:
        single = name.removesuffix("s")
        found = [given, *(node.get(f"{single}_{key}") for key in ("shapes", "types", "strides"))]
    return Side(*(each if isinstance(each, list) else [] for each in found))


def described(given: Side, strides: Strides) -> list[Raw]:
    """Describe the arguments of one side as tensor, list, none, number, bool, text or device.

    ``strides`` maps the id of a tensor to shape and strides, where earlier nodes state them.
    """
    lengths = {len(given.values), len(given.types)}
    if len(lengths) != 1 or len(given.shapes) != len(given.values):
        msg = "values, types and shapes of its arguments do not fit each other"
        raise Unusable(msg)
    found = []
    for at, value in enumerate(given.values):
        stride = given.strides[at] if at < len(given.strides) else None
        found.append(_argument(value, given.types[at], given.shapes[at], stride, strides))
    return found


def _argument(value: Any, kind: Any, shape: Any, stride: Any, strides: Strides) -> Raw:
    kind = kind if isinstance(kind, str) else ""
    if fits := _TENSOR.fullmatch(kind):
        return _tensor(value, fits[1], shape, stride, strides)
    if kind.startswith("GenericList["):
        return _list(value, kind, shape, stride, strides)
    if value in _NONE or kind == "None":
        return {"kind": "none"}
    if kind == "Device" and isinstance(value, str):
        return {"kind": "device", "value": value.split(":")[0][:20]}
    return _plain(value, kind)


def _plain(value: Any, kind: str) -> Raw:
    if isinstance(value, bool):
        return {"kind": "bool", "value": value}
    if kind in ("Int", "SymInt") and type(value) is int:
        return {"kind": "number", "value": value}
    if kind in ("Double", "Float", "Int") and isinstance(value, int | float | str):
        return _number(value)
    if kind == "String" and isinstance(value, str):
        return {"kind": "text", "value": value[:200]}
    known = kind if re.fullmatch(r"\w{1,30}", kind) else "unknown type"
    msg = f"takes a {known}, which a trace does not hold"
    raise Unusable(msg)


def _number(value: float | str) -> Raw:
    try:
        number = float(value)
    except ValueError as error:
        msg = "takes a number that cannot be read"
        raise Unusable(msg) from error
    # JSON has no infinity; its text is turned back by float() where it is used.
    return {"kind": "number", "value": number if math.isfinite(number) else str(number)}


def _list(value: Any, kind: str, shape: Any, stride: Any, strides: Strides) -> Raw:
    inside = kind.removeprefix("GenericList[").removesuffix("]")
    types = inside.split(",") if inside else []
    if not isinstance(value, list) or len(value) > _MOST_LIST or len(types) != len(value):
        msg = "takes a list that was not recorded whole"
        raise Unusable(msg)
    shapes = shape if isinstance(shape, list) and len(shape) == len(value) else [None] * len(value)
    known = stride if isinstance(stride, list) and len(stride) == len(value) else shapes
    each = known if known is not shapes else [None] * len(value)
    return {
        "kind": "list",
        "values": [
            _argument(*entry, strides) for entry in zip(value, types, shapes, each, strict=True)
        ],
    }


def _tensor(value: Any, name: str, shape: Any, stride: Any, strides: Strides) -> Raw:
    if "nullptr" in name:
        return {"kind": "none"}
    dtype = _DTYPES.get(name.lower())
    if dtype is None:
        msg = "takes a tensor of a type that is not known here"
        raise Unusable(msg)
    if not is_shape(shape):
        msg = "takes a tensor whose shape was not recorded"
        raise Unusable(msg)
    tensor: Raw = {"kind": "tensor", "dtype": dtype, "shape": list(shape)}
    if isinstance(value, list) and len(value) >= _TENSOR_FIELDS and isinstance(value[5], str):
        tensor["device"] = value[5].split(":")[0][:20]
        known = strides.get(value[0]) if type(value[0]) is int else None
        if known is not None and known[0] == tuple(shape):
            tensor["stride"] = list(known[1])
    if is_shape(stride) and len(stride) == len(shape) and shape:
        tensor["stride"] = list(stride)
    return tensor


def is_shape(shape: Any) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) <= _MOST_DIMENSIONS
        and all(type(size) is int and 0 <= size < 1 << 62 for size in shape)
    )


def tensors(arguments: Sequence[Raw]) -> list[Raw]:
    found = []
    for argument in arguments:
        if argument["kind"] == "tensor":
            found.append(argument)
        elif argument["kind"] == "list":
            found += tensors(argument["values"])
    return found


def learn_strides(node: Raw, known: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    """Note the strides that a node tells of the tensor it makes, and forget outdated ones.

    Views are made by ``aten::as_strided``, whose arguments are shape and strides. Ids are
    used again, so what another node makes anew has no known strides.
    """
    given = side(node, "inputs").values  # noqa: PD011 - no pandas object
    made = [use.tensor for use in nodes_of.tensors(nodes_of.values(node, "outputs"))]
    if node.get("name") == "aten::as_strided" and len(given) > 2 and len(made) == 1:
        shape, strides = given[1], given[2]
        if is_shape(shape) and is_shape(strides) and len(shape) == len(strides):
            known[made[0]] = tuple(shape), tuple(strides)
            return
    read = {use.tensor for use in nodes_of.tensors(list(given))}
    for tensor in made:
        if tensor not in read:
            known.pop(tensor, None)
