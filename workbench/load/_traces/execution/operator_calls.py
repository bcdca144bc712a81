"""Operator calls of PyTorch execution traces, and which of them can be replayed alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source, streams
from workbench.load._files.findings import Dropped, Findings, quality_frame
from workbench.load._files.json_events import to_integer
from workbench.load._files.rank_names import RankArgument
from workbench.load._traces.execution import nodes as nodes_of
from workbench.load._traces.execution.reader import numbered, read_document, read_nodes
from workbench.load._traces.graph import RankGraph, gather, read_all, with_ranks, without_collector
from workbench.tables import OPERATOR_CALLS

_COMMUNICATION = ("c10d::", "_c10d_functional", "c10d_functional", "nccl:", "gloo:", "mpi:")
# By what the name of a type ends in.
_BYTES = {"8": 1, "bool": 1, "16": 2, "32": 4, "64": 8, "128": 16}
# Sums of made-up sizes must fit int64.
_MOST_BYTES = 1 << 62
# Wiring of tensors to memory and streams; there is nothing to time.
_NOT_COMPUTE = {"aten::set_", "aten::record_stream"}

# Columns that are those of the node.
_OF_NODE = (
    "node", "name", "parent", "record_function", "dur_ns", "collective", "group", "size_bytes"
)  # fmt: skip

Raw = dict[str, Any]


def operator_calls(
    path: str | Path | Iterable[str | Path], *, rank: RankArgument = None
) -> pd.DataFrame:
    """List the operators that a job called with their arguments.

    Of nested calls the outermost operator stands for all. Annotations and autograd nodes are looked
    through, since they are no operators.

    Parameters
    ----------
    path
        PyTorch execution traces (JSON, gzip is fine): file, directory, archive or list.
    rank
        Ranks where the files do not tell them, as for :func:`traces`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.OPERATOR_CALLS`, by rank and node. Communication, custom
        operators, fused kernels and whatever else could not be called alone with what the trace
        holds have a ``reason``. ``attrs["quality"]`` has what was dropped, mended or assumed.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a file is no PyTorch execution trace, or holds not a single operator.

    Notes
    -----
    An operator could be called alone if it is one of PyTorch (``aten``) with a recorded schema,
    every type in that schema can be made from recorded values, and all values, shapes and types are
    there. Strides are taken from the trace (schema 1.1.1), else from the ``aten::as_strided`` that
    made the tensor; others are assumed contiguous and counted.

    References
    ----------
    Mystique, arXiv 2301.04122, section 4.2; facebookresearch/param: et_replay.
    """
    files, dropped = gather(path), Dropped()
    read: list[tuple[RankGraph, list[Raw]]] = []
    with without_collector():
        for source, stream in streams(files.sources, dropped):
            with dropped.trying(source.label):
                data = read_all(stream, findings := Findings(source.label))
                read.append(_read(data, source, findings))
    if not read:
        dropped.raise_if_all()
    calls = {id(graph): rows for graph, rows in read}
    frames = []
    for entry in with_ranks([graph for graph, _ in read], rank):
        frame = pd.DataFrame(calls[id(entry.file)], columns=list(OPERATOR_CALLS.columns))
        frames.append(frame.assign(rank=np.int32(entry.rank)))
    if not frames or not sum(map(len, frames)):
        label = files.sources[0].label if files.sources else path
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


def _read(data: bytes, source: Source, findings: Findings) -> tuple[RankGraph, list[Raw]]:
    _, raw = read_nodes(data, "nodes", label=source.label, findings=findings)
    nodes = sorted(numbered(raw, findings), key=lambda entry: entry[0])
    graph = read_document(source, nodes, findings)
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
            calls.append(_call(node, rows[number], strides))
        learn_strides(node, strides)
    return graph, calls


def _is_operator(node: Raw) -> bool:
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


def _call(node: Raw, row: Any, strides: Strides) -> Raw:
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
    schema = parse(text) if text else None
    reason = _not_called(node, text, schema) or reason
    if reason is None and schema is not None and len(inputs) != len(schema.arguments):
        reason = "has another number of arguments than its schema"
    used, thread = tensors(inputs), to_integer(attrs.get("tid"))
    # A call ran on the GPU if any of its tensors is there.
    devices = {tensor.get("device") for tensor in [*used, *tensors(outputs)]} - {None, ""}
    return {name: getattr(row, name) for name in _OF_NODE} | {
        "op_schema": text,
        "thread": None if thread is None else str(thread),
        "device": str(min(devices, key=lambda name: (name == "cpu", name))) if devices else None,
        "stream": _stream(node),
        "arguments": json.dumps(inputs, separators=(",", ":")),
        "outputs": json.dumps(outputs, separators=(",", ":")),
        "input_bytes": min(sum(map(_bytes, used)), _MOST_BYTES),
        "assumed_stride_count": sum(len(t["shape"]) > 1 and "stride" not in t for t in used),
        "is_replayed": reason is None,
        "reason": reason,
    }


def _not_called(node: Raw, text: str | None, schema: Schema | None) -> str | None:
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
    return _unusable(schema)


def _stream(node: Raw) -> str | None:
    inputs = side(node, "inputs")
    for value, kind in zip(inputs.values, inputs.types, strict=False):
        if kind == "Stream":
            return str(value)[:60]
    return None


def _bytes(tensor: Raw) -> int:
    size_bytes = next((size for end, size in _BYTES.items() if tensor["dtype"].endswith(end)), 4)
    return math.prod(tensor["shape"]) * (1 if "float8" in tensor["dtype"] else size_bytes)


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
    stated = node.get(name)
    if isinstance(stated, dict):
        columns = [stated.get(key) for key in ("values", "shapes", "types", "strides")]
    else:
        single = name.removesuffix("s")
        columns = [stated, *(node.get(f"{single}_{key}") for key in ("shapes", "types", "strides"))]
    return Side(*(column if isinstance(column, list) else [] for column in columns))


def described(arguments: Side, strides: Strides) -> list[Raw]:
    """Describe the arguments of one side as tensor, list, none, number, bool, text or device.

    ``strides`` maps the id of a tensor to shape and strides, where earlier nodes state them.
    """
    lengths = {len(arguments.values), len(arguments.types)}
    if len(lengths) != 1 or len(arguments.shapes) != len(arguments.values):
        msg = "values, types and shapes of its arguments do not fit each other"
        raise Unusable(msg)
    descriptions = []
    for at, value in enumerate(arguments.values):
        stride = arguments.strides[at] if at < len(arguments.strides) else None
        descriptions.append(
            _argument(value, arguments.types[at], arguments.shapes[at], stride, strides)
        )
    return descriptions


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
    shown = kind if re.fullmatch(r"\w{1,30}", kind) else "unknown type"
    msg = f"takes a {shown}, which a trace does not hold"
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
    # Shapes and strides of the entries, where the trace has one for each.
    shapes, steps = (
        column if isinstance(column, list) and len(column) == len(value) else [None] * len(value)
        for column in (shape, stride)
    )
    entries = zip(value, types, shapes, steps, strict=True)
    return {"kind": "list", "values": [_argument(*entry, strides) for entry in entries]}


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
        view = strides.get(value[0]) if type(value[0]) is int else None
        if view is not None and view[0] == tuple(shape):
            tensor["stride"] = list(view[1])
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
    listed = []
    for argument in arguments:
        if argument["kind"] == "tensor":
            listed.append(argument)
        elif argument["kind"] == "list":
            listed += tensors(argument["values"])
    return listed


def learn_strides(
    node: Raw, strides_of: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    """Note the strides that a node tells of the tensor it makes, and forget outdated ones.

    Views are made by ``aten::as_strided``, whose arguments are shape and strides. Ids are used
    again, so what another node makes anew has no known strides.
    """
    arguments = side(node, "inputs").values  # noqa: PD011 - no pandas object
    outputs = [use.tensor for use in nodes_of.tensors(nodes_of.values(node, "outputs"))]
    if node.get("name") == "aten::as_strided" and len(arguments) > 2 and len(outputs) == 1:
        shape, strides = arguments[1], arguments[2]
        if is_shape(shape) and is_shape(strides) and len(shape) == len(strides):
            strides_of[outputs[0]] = tuple(shape), tuple(strides)
            return
    read = {use.tensor for use in nodes_of.tensors(list(arguments))}
    for tensor in set(outputs) - read:
        strides_of.pop(tensor, None)


# Operator schemas as PyTorch writes them, and which of them may be called.

_NAME = re.compile(r"([A-Za-z_]\w{0,99})::([A-Za-z_]\w{0,99})(?:\.([A-Za-z_]\w{0,99}))?")
_ARGUMENT = re.compile(r"(?P<type>\S.*?) (?P<name>[A-Za-z_]\w*)(?:=.*)?", re.DOTALL)
_MOST_CHARACTERS = 20_000
# Types of which values can be made from what a trace records.
_VALUES = {
    "Tensor", "Scalar", "int", "float", "bool", "ScalarType", "Layout", "Device", "MemoryFormat",
    "Generator",
}  # fmt: skip
# Texts steer an operator or name a file; only the former are let through.
_TEXTS = {"rounding_mode", "approximate", "reduce", "mode", "padding", "indexing", "side"}


class Argument(NamedTuple):
    """One argument of a schema: its type without aliases and lengths, and its name."""

    type: str
    name: str
    is_keyword: bool


class Schema(NamedTuple):
    """An operator: namespace, name, overload ('' for the default one), arguments."""

    namespace: str
    name: str
    overload: str
    arguments: tuple[Argument, ...]


def parse(text: str) -> Schema | None:
    """Read a schema; None if it is none.

    Examples
    --------
    >>> schema = parse("aten::add.Tensor(Tensor(a!) self, *, Scalar alpha=1) -> Tensor")
    >>> schema.name, schema.overload, schema.arguments[1]
    ('add', 'Tensor', Argument(type='Scalar', name='alpha', is_keyword=True))
    """
    head = _NAME.match(text) if len(text) <= _MOST_CHARACTERS else None
    if head is None or text[head.end() : head.end() + 1] != "(":
        return None
    listed = _split(text[head.end() + 1 :])
    if listed is None:
        return None
    arguments: list[Argument] = []
    is_keyword = False
    for argument_text in listed:
        if argument_text == "*":
            is_keyword = True
            continue
        fits = _ARGUMENT.fullmatch(argument_text)
        if fits is None:
            return None
        arguments.append(Argument(plain_type(fits["type"]), fits["name"], is_keyword))
    namespace, name, overload = head.groups()
    return Schema(namespace, name, overload or "", tuple(arguments))


def plain_type(text: str) -> str:
    """Return a type without aliases, symbolic numbers and fixed lengths.

    Examples
    --------
    >>> plain_type("Tensor(a!)[]"), plain_type("SymInt[2]?")
    ('Tensor[]', 'int[]?')
    """
    bare = re.sub(r"\([^()]*\)", "", text).replace("SymInt", "int")
    return re.sub(r"\[\d+\]", "[]", bare).strip()


def _unusable(schema: Schema) -> str | None:
    """Say why an operator must not or cannot be called with recorded values; None if it can."""
    for argument in schema.arguments:
        bare = argument.type.replace("?", "").replace("[]", "")
        if bare == "str" and argument.name in _TEXTS:
            continue
        if bare not in _VALUES:
            shown = bare if re.fullmatch(r"\w{1,30}", bare) else "unknown type"
            return f"takes a {shown}, which a trace does not hold"
    return None


# Commas inside brackets and quotes (default values) divide nothing.
def _split(text: str) -> list[str] | None:
    arguments: list[str] = []
    depth = begin = 0
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([":
            depth += 1
        elif sign in ")]" and depth:
            depth -= 1
        elif sign in ",)" and depth == 0:
            arguments.append(text[begin:at].strip())
            begin = at + 1
            if sign == ")":
                return [argument for argument in arguments if argument]
    return None
