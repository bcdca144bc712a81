"""The generations of the Chakra protobuf schema, and telling them apart.

The messages are described at run time, with the fields that are read and nothing else; fields that
a generation has beyond them are skipped by the decoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from workbench.load._files.protobuf import decoder_of, message_class

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# 64 bits in groups of seven.
_MOST_VARINT_BYTES = 10
_MOST_FIELDS = 64

# Unsigned 64-bit numbers are read as signed ones.
_ATTRIBUTE_NOW = {
    "name": "1 bytes", "double_val": "3 double", "float_val": "5 float", "int32_val": "7 int32",
    "int64_val": "9 int64", "uint32_val": "11 uint32", "uint64_val": "13 int64",
    "sint32_val": "15 sint32", "sint64_val": "17 sint64", "fixed32_val": "19 fixed32",
    "fixed64_val": "21 fixed64", "sfixed32_val": "23 sfixed32", "sfixed64_val": "25 sfixed64",
    "bool_val": "27 bool", "string_val": "29 bytes", "bytes_val": "31 bytes",
}  # fmt: skip
_NODE_NOW = {
    "id": "1 int64", "name": "2 bytes", "type": "3 int32", "ctrl_deps": "4 int64*",
    "data_deps": "5 int64*", "start_us": "6 int64", "duration_us": "7 int64",
    "attributes": "10 Attribute*",
}  # fmt: skip
_ATTRIBUTE_2023 = {
    "name": "1 bytes", "type": "2 int32", "bool_val": "4 bool", "float_val": "5 float",
    "uint64_val": "6 int64", "int64_val": "7 int64", "string_val": "8 bytes",
}  # fmt: skip
_NODE_2023 = {
    "id": "1 int64", "name": "2 bytes", "type": "3 int32", "data_deps": "4 int64*",
    "attributes": "11 Attribute*",
}  # fmt: skip
_NODE_2022 = {
    "id": "1 int64", "name": "2 bytes", "type": "3 int32", "data_deps": "4 int64*",
    "tensor_size": "6 int64", "duration_us": "7 int64", "comm_type": "13 int32",
    "comm_size": "18 int64",
}  # fmt: skip

_TYPES_NOW = [
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE", "STORAGE_NODE", "BATCH_NODE",
    "CHECKPOINT_NODE",
]  # fmt: skip
_TYPES_2023_EARLY = [
    "INVALID_NODE", "MEM_LOAD_NODE", "MEM_LOAD_COMP_NODE", "MEM_STORE_NODE", "COMP_NODE",
    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE",
]  # fmt: skip
_TYPES_2022 = [name for name in _TYPES_2023_EARLY if name != "MEM_LOAD_COMP_NODE"]
_COLLECTIVES_NOW = [
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all",
    "reduce_scatter", "reduce_scatter_block", "barrier",
]  # fmt: skip
_COLLECTIVES_2023 = ["all_reduce", "all_to_all", "all_gather", "reduce_scatter", "broadcast"]
_COLLECTIVES_2022 = ["", "all_reduce", "all_to_all", "all_gather", "reduce_scatter"]
# Which attribute field holds the value, by the type that an attribute of 2023 states.
_VALUE_2023 = dict(enumerate(["bool_val", "float_val", "uint64_val", "int64_val", "string_val"]))


@dataclass(frozen=True)
class Generation:
    """One layout of the schema: its messages, and what its numbers mean."""

    name: str
    node: Mapping[str, str]
    attribute: Mapping[str, str] | None
    types: Sequence[str]
    collectives: Sequence[str]
    has_header: bool

    def node_class(self) -> Any:
        return _node_class(self.name)

    def value(self, attribute: Any) -> object:
        if self.attribute is _ATTRIBUTE_NOW:
            chosen = attribute.WhichOneof("value")
        else:
            chosen = _VALUE_2023.get(attribute.type)
        return getattr(attribute, chosen) if chosen else None

    def type_name(self, number: int) -> str:
        return self.types[number] if 0 <= number < len(self.types) else f"NODE_TYPE_{number}"

    def collective_name(self, number: object) -> str | None:
        """Return the name of a collective; texts are taken as they are."""
        if isinstance(number, bytes):
            return number.decode("utf-8", "replace").lower() or None
        if not isinstance(number, int) or isinstance(number, bool):
            return None
        is_listed = 0 <= number < len(self.collectives)
        return (self.collectives[number] or None) if is_listed else f"collective_{number}"


NOW = Generation("0.0.4", _NODE_NOW, _ATTRIBUTE_NOW, _TYPES_NOW, _COLLECTIVES_NOW, True)
OF_2023 = Generation("2023", _NODE_2023, _ATTRIBUTE_2023, _TYPES_NOW, _COLLECTIVES_2023, True)
EARLY_2023 = Generation("early 2023", _NODE_2022, None, _TYPES_2023_EARLY, _COLLECTIVES_2022, False)
OF_2022 = Generation("2022", _NODE_2022, None, _TYPES_2022, _COLLECTIVES_2022, False)


def recognise(first: bytes, nodes: Sequence[bytes]) -> Generation:
    has_header = is_header(first)
    samples = list(nodes) if has_header else [first, *nodes]
    seen = {pair for node in samples for pair in fields(node)}
    if not has_header and seen & {(n, _VARINT) for n in (5, 8, 9, 10, *range(12, 23))}:
        return _of_2022(samples)
    if seen & {(6, _BYTES), (7, _BYTES)} or any(map(_has_attribute_of_2023, samples)):
        return OF_2023
    return NOW


# Field 11 is an attribute in 2023 and storage details now; an attribute begins with its name.
def _has_attribute_of_2023(message: bytes) -> bool:
    at = 0
    for number, wire in fields(message):
        _, _, at = tag(message, at)
        length, at = varint(message, at) if wire in (_VARINT, _BYTES) else (0, at)
        if (number, wire) == (11, _BYTES):
            return message[at : at + 1] == b"\x0a"
        at += {_BYTES: length, _FIXED32: 4, _FIXED64: 8}.get(wire, 0)
    return False


# The two oldest differ in the number that stands for a collective: 6 in 2022, then 7.
def _of_2022(samples: Sequence[bytes]) -> Generation:
    for node in map(decoder_of(OF_2022.node_class()), samples):
        if node is not None and node.comm_type and node.type in (6, 7):
            return OF_2022 if node.type == 6 else EARLY_2023
    return EARLY_2023


def is_header(message: bytes) -> bool:
    present = list(fields(message))
    if not present and message:
        return False
    # Nodes have an id (absent if 0) and a type; metadata only text and attributes.
    if any(pair not in {(1, _BYTES), (2, _BYTES)} for pair in present):
        return False
    repeated = present.count((2, _BYTES)) > 1
    is_named = (2, _BYTES) not in present or (1, _BYTES) in present
    return is_named or repeated or message[2:3] == b"\x0a"


def version(header: bytes) -> str:
    if next(fields(header), None) != (1, _BYTES):
        return ""
    _, _, start = tag(header, 0)
    length, start = varint(header, start)
    text = header[start : start + length]
    return text.decode("ascii") if text.isascii() and text[:1].isdigit() else ""


def fields(message: bytes) -> Iterator[tuple[int, int]]:
    """Return field number and wire type of each field; stops at the first that is not a field."""
    at = 0
    pairs: list[tuple[int, int]] = []
    try:
        while at < len(message) and len(pairs) < _MOST_FIELDS:
            number, wire, at = tag(message, at)
            if wire == _VARINT:
                _, at = varint(message, at)
            elif wire == _BYTES:
                length, at = varint(message, at)
                at += length
            elif wire in (_FIXED32, _FIXED64):
                at += 4 if wire == _FIXED32 else 8
            else:
                return iter(())
            if number == 0 or at > len(message):
                return iter(())
            pairs.append((number, wire))
    except (IndexError, OverflowError):
        return iter(())
    return iter(pairs)


def tag(data: bytes, at: int) -> tuple[int, int, int]:
    key, at = varint(data, at)
    return key >> 3, key & 7, at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length number and the position behind it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number = 0
    for shift in range(_MOST_VARINT_BYTES):
        byte = data[at + shift]
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number, at + shift + 1
    msg = "a number of more than 10 bytes"
    raise OverflowError(msg)


@cache
def _node_class(generation: str) -> Any:
    (layout,) = (known for known in (NOW, OF_2023, EARLY_2023, OF_2022) if known.name == generation)
    messages = {"Node": layout.node}
    if layout.attribute is not None:
        messages["Attribute"] = layout.attribute
    package = "workbench_chakra_" + generation.replace(".", "_").replace(" ", "_")
    choices = ["Attribute"] if layout.attribute is _ATTRIBUTE_NOW else []
    return message_class(package, "Node", messages, syntax="proto3", choices=choices)
