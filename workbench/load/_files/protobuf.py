"""Protobuf messages described at run time, with the fields that are read and nothing else.

Protobuf is imported once a file holds such messages: most loads never meet one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

# Names of protobuf's own scalar types, by the code that descriptors use.
_TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7,
    "bool": 8, "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17,
    "sint64": 18,
}  # fmt: skip
_MESSAGE, _ONE, _REPEATED = 11, 1, 3

# Message -> field: its number and type, with "*" where it repeats; a type that is not protobuf's
# own is a message of the same layouts. Text is read as bytes, so that a wrong byte spoils one name
# and not the file.
Layouts = Mapping[str, Mapping[str, str]]


def message_class(
    package: str, name: str, layouts: Layouts, *, syntax: str, choices: Collection[str] = ()
) -> Any:
    """Return the class of the message ``name``.

    Of a message in ``choices`` all fields but its name are a oneof ``value``: at most one is set.
    Fields that a file has beyond the layouts are skipped.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax=syntax
    )
    for message_name, layout in layouts.items():
        message = file.message_type.add(name=message_name)
        if message_name in choices:
            message.oneof_decl.add(name="value")
        for field_name, described in layout.items():
            number, kind = described.split()
            base = kind.rstrip("*")
            entry = message.field.add(
                name=field_name, number=int(number), type=_TYPES.get(base, _MESSAGE),
                label=_REPEATED if kind.endswith("*") else _ONE,
            )  # fmt: skip
            if base not in _TYPES:
                entry.type_name = f".{package}.{base}"
            if message_name in choices and field_name != "name":
                entry.oneof_index = 0
    # A pool of its own, so that an installed package with the same messages cannot collide with it.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))


def decoder_of(message_class: Any) -> Callable[[bytes], Any]:
    """Return a function that decodes a message; None stands for one that cannot be decoded."""
    from google.protobuf.message import DecodeError

    def decoded(raw: bytes) -> Any:
        try:
            return message_class.FromString(raw)
        except DecodeError:
            return None

    return decoded
