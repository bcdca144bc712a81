"""One node of a PyTorch execution trace, in any schema since 1.0.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from workbench.load._files.findings import Findings
from workbench.load._files.json_events import FloatText, to_integer
from workbench.load._traces.graph import Group, NodeRow, clean_text, us_to_ns

_ROOTS = ("[pytorch|profiler|execution_", "__ROOT_PROCESS__", "__ROOT_THREAD__")
# RecordScope::USER_SCOPE of PyTorch.
_USER_SCOPE = 7
_COMMUNICATION = "record_param_comms"
_GROUP_INIT = "process_group:init"
_NO_TRANSFER = ("wait", "barrier")
_SPELLINGS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_allv",
}  # fmt: skip
# Tensor, storage, offset, elements, bytes of one element, device.
_TENSOR_FIELDS = 6
# Lists of lists of tensors occur; hostile files nest deeper.
_MOST_NESTING = 4

Raw = dict[str, Any]


class TensorUse(NamedTuple):
    """A tensor as an argument: its id in the trace, and its size."""

    tensor: int
    size_bytes: int


class Call(NamedTuple):
    """A call of the communication library, as ``record_param_comms`` writes it."""

    collective: str
    rank: int | None
    group: str | None
    address: int | None
    first_rank: int | None
    rank_stride: int | None
    group_size: int | None


def attributes(node: Raw) -> Raw:
    """Return the attributes of a node: in a list since schema 1.0.2, flat before."""
    listed = node.get("attrs")
    if not isinstance(listed, list):
        return node
    return {
        entry["name"]: entry.get("value")
        for entry in listed
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    }


def values(node: Raw, side: str) -> list[Any]:
    arguments = node.get(side)
    if isinstance(arguments, dict):
        arguments = arguments.get("values")
    return arguments if isinstance(arguments, list) else []


def tensors(arguments: list[Any], depth: int = 0) -> Iterator[TensorUse]:
    """Yield the tensors among arguments, also those in lists."""
    for argument in arguments:
        if not isinstance(argument, list) or not argument:
            continue
        if _is_tensor(argument):
            yield TensorUse(argument[0], max(argument[3], 0) * max(argument[4], 0))
        elif isinstance(argument[0], list) and depth < _MOST_NESTING:
            yield from tensors(argument, depth + 1)


def row(node: Raw, number: int, findings: Findings) -> NodeRow:
    attrs = attributes(node)
    name = clean_text(_text(node.get("name")) or "", findings)
    parent = caller(node)
    call = communication(node)
    category = _text(node.get("cat"))
    size = None
    if call is not None and call.collective not in _NO_TRANSFER:
        size = sum(use.size_bytes for use in tensors(values(node, "inputs")))
    return NodeRow(
        node=number, name=name, type=_type(name, category, attrs, call),
        parent=None if parent == number else parent, is_cpu=category is None,
        start_ns=us_to_ns(node.get("ts"), findings, "start"),
        dur_ns=us_to_ns(node.get("inclusive_dur"), findings, "duration"),
        record_function=to_integer(attrs.get("rf_id")) or None,
        collective=call and clean_text(call.collective, findings),
        group=call and call.group and clean_text(call.group, findings),
        size_bytes=size if size is None or size < 1 << 62 else None,
    )  # fmt: skip


def caller(node: Raw) -> int | None:
    stated = node.get("ctrl_deps", node.get("parent"))
    if isinstance(stated, list):
        stated = stated[0] if stated else None
    return to_integer(stated)


def communication(node: Raw) -> Call | None:
    """Read the arguments of ``record_param_comms``; None for other nodes and without sense.

    They are, from the front: tensors, sequence number, process group (its address before schema
    1.0.3), rank, collective, split sizes, and since 1.0.3 first global rank, stride and size of the
    group.
    """
    if node.get("name") != _COMMUNICATION:
        return None
    attrs = attributes(node)
    arguments = values(node, "inputs")
    at = next((at for at, value in enumerate(arguments) if _text(value)), None)
    spelled = _text(attrs.get("collective_name")) or (arguments[at] if at is not None else None)
    if spelled is None:
        return None
    rank, group, address = None, _text(attrs.get("pg_name")), None
    if at is not None and at >= 2:
        rank = to_integer(arguments[at - 1])
        address = to_integer(arguments[at - 2]) or None
        if isinstance(arguments[at - 2], list) and arguments[at - 2]:
            group = group or _text(arguments[at - 2][0])
    return Call(
        collective=_SPELLINGS.get(spelled.lower().replace("_", ""), spelled.lower()), rank=rank,
        group=group or None, address=address, group_size=to_integer(attrs.get("pg_size")),
        first_rank=to_integer(attrs.get("global_rank_start")),
        rank_stride=to_integer(attrs.get("global_rank_stride")),
    )  # fmt: skip


def described_groups(node: Raw, findings: Findings) -> Iterator[tuple[Group, int | None]]:
    """Yield the process groups that an initialisation node lists, and their addresses."""
    if _GROUP_INIT not in str(node.get("name", "")):
        return
    for value in values(node, "inputs"):
        try:
            listed = json.loads(value) if isinstance(value, str) else None
        except (ValueError, RecursionError):
            continue
        for entry in listed if isinstance(listed, list) else []:
            if isinstance(entry, dict) and _text(entry.get("pg_name")) is not None:
                yield _group(entry, findings), to_integer(entry.get("backend_id"))


def _group(entry: Raw, findings: Findings) -> Group:
    listed = entry.get("ranks")
    numbers = [to_integer(rank) for rank in listed] if isinstance(listed, list) else []
    texts = [_text(entry.get(key)) for key in ("pg_name", "pg_desc", "backend_config")]
    size = to_integer(entry.get("group_size"))
    name, description, backend = [text and clean_text(text, findings) for text in texts]
    members = tuple(number for number in numbers if number is not None and number >= 0)
    size = size if size is not None and 0 <= size < 1 << 31 else None
    return Group(name or "", description, backend, size, members)


def _type(name: str, category: str | None, attrs: Raw, call: Call | None) -> str:
    if call is not None:
        return "wait" if call.collective in _NO_TRANSFER else "collective"
    if name.startswith(_ROOTS):
        return "root"
    if category is not None:
        return category
    return "annotation" if to_integer(attrs.get("scope")) == _USER_SCOPE else "cpu_op"


def _is_tensor(argument: list[Any]) -> bool:
    return (
        len(argument) >= _TENSOR_FIELDS
        and isinstance(argument[5], str)
        # isinstance would take true and false for numbers.
        and all(type(number) is int for number in argument[:5])
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and not isinstance(value, FloatText) else None
