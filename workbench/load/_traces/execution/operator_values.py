"""Arguments of an operator as an execution trace records them, in a form that can be replayed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from workbench.load._traces.execution import nodes as nodes_of

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

Raw = dict[str, Any]
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
    """Return ``inputs`` or ``outputs`` of a node, in any schema."""
    given = node.get(name)
    if isinstance(given, dict):
        found = [given.get(key) for key in ("values", "shapes", "types", "strides")]
    else:
        single = name.removesuffix("s")
        found = [given, *(node.get(f"{single}_{key}") for key in ("shapes", "types", "strides"))]
    return Side(*(each if isinstance(each, list) else [] for each in found))


def described(given: Side, strides: Strides) -> list[Raw]:
    """Describe the arguments of one side.

    Parameters
    ----------
    given
        The arguments.
    strides
        Id of a tensor to shape and strides, where earlier nodes tell them.

    Returns
    -------
    list of dict
        ``kind`` is tensor, list, none, number, bool, text or device.

    Raises
    ------
    Unusable
        If one of them cannot be made.
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
    """Describe a single value that is no tensor."""
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
    """Tell whether this is a list of sizes."""
    return (
        isinstance(shape, list)
        and len(shape) <= _MOST_DIMENSIONS
        and all(type(size) is int and 0 <= size < 1 << 62 for size in shape)
    )


def tensors(arguments: Sequence[Raw]) -> list[Raw]:
    """Return the tensors among described arguments, also those in lists."""
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
    given = side(node, "inputs").values
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
