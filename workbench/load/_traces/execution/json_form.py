"""Reading the JSON of an execution trace: whole, mended, or as far as it goes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._files.json_events import (
    REPAIR_WINDOW,
    Damaged,
    FloatText,
    Incomplete,
    read_event,
)

_GAP = re.compile(r"[\s,]*")
_AT_END_CHARACTERS = 16
_strict = json.JSONDecoder(parse_float=FloatText)
_lenient = json.JSONDecoder(parse_float=FloatText, strict=False)

Document = dict[str, Any]


def read_nodes(
    data: bytes, key: str, *, label: str, findings: Findings
) -> tuple[Document, list[Any]]:
    """Return what a document says of itself, and the list under ``key``.

    Parameters
    ----------
    data
        The whole file.
    key
        Name of the list of nodes, at the top level.
    label
        Name of the file for messages.
    findings
        Told of everything mended or cut off.

    Returns
    -------
    tuple of dict and list
        The other top-level entries, and the nodes in order.

    Raises
    ------
    LoadError
        If the document cannot be read, naming the byte.
    """
    try:
        document = json.loads(data, parse_float=FloatText)
    except (ValueError, RecursionError):
        return _read_piecewise(data, key, label=label, findings=findings)
    nodes = document.pop(key, None) if isinstance(document, dict) else None
    if not isinstance(nodes, list):
        msg = f"{label}: has no list {key!r} at its top level; found {_kind(document)}"
        raise LoadError(msg)
    return document, nodes


def objects(
    data: bytes, start: int, *, label: str, findings: Findings, is_closed: bool = True
) -> Iterator[Any]:
    """Give the JSON values from byte ``start`` on, up to a closing bracket or the end.

    ``is_closed`` says whether a bracket is expected.

    Raises
    ------
    LoadError
        At a value that can be read in no way.
    """
    text = data[start:].decode("utf-8", "surrogateescape")
    at = 0
    while True:
        gap = _GAP.match(text, at)
        if gap is not None:
            at = gap.end()
        if at >= len(text):
            what = "the list of nodes is not closed"
            findings.add("truncated", what, int(is_closed), f"byte {len(data):,}")
            return
        if text[at] == "]":
            return
        try:
            value, at = _decode(text, at, findings)
        except (ValueError, RecursionError) as error:
            if _is_cut(error, text):
                where = f"byte {start + _bytes(text[:at]):,}"
                findings.add(
                    "truncated", "the file ends inside a node, which is left out", 1, where
                )
                return
            value, at = _mend(data, start, text, at, label=label, findings=findings)
        yield value


def _decode(text: str, at: int, findings: Findings) -> tuple[Any, int]:
    """Decode the value at ``at``; raw control characters in strings are let pass and counted."""
    try:
        return _strict.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Invalid control character"):
            raise
        read = _lenient.raw_decode(text, at)
        findings.add("repaired", "raw control characters inside a string")
        return read


def _read_piecewise(
    data: bytes, key: str, *, label: str, findings: Findings
) -> tuple[Document, list[Any]]:
    opening = re.search(rb'"%s"\s*:\s*\[' % re.escape(key).encode(), data)
    if opening is None:
        msg = f"{label}: is no JSON with a list {key!r}{_first_error(data)}"
        raise LoadError(msg)
    header = _header(data[: opening.start()])
    known = len(findings.frame())
    nodes = list(objects(data, opening.end(), label=label, findings=findings))
    if len(findings.frame()) == known:
        what = f"the text around the list {key!r} is damaged, the list is whole"
        findings.add("suspicious", what + _first_error(data))
    return header, nodes


def _header(before: bytes) -> Document:
    """Read the entries in front of the list of nodes, as far as they can be read."""
    text = before.decode("utf-8", "replace").rstrip().rstrip(",")
    try:
        header = _lenient.decode(text + "}")
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _mend(
    data: bytes, start: int, text: str, at: int, *, label: str, findings: Findings
) -> tuple[Any, int]:
    """Read a damaged value with the repairs that trace events get."""
    offset = start + _bytes(text[:at])
    try:
        read = read_event(data[offset : offset + 2 * REPAIR_WINDOW])
    except Damaged as damage:
        byte = offset + damage.offset
        msg = f"{label}, byte {byte:,}: {damage.reason}; mend the file or write it again"
        raise LoadError(msg) from damage
    except Incomplete as damage:
        msg = f"{label}, byte {offset:,}: a node that does not end; mend the file or write it again"
        raise LoadError(msg) from damage
    findings.add("repaired", read.repair or "damaged nodes", 1, f"byte {offset:,}")
    return read.event, at + len(data[offset : offset + read.end].decode("utf-8", "surrogateescape"))


def _is_cut(error: Exception, text: str) -> bool:
    """Tell whether an error is there only because the text ends."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated") or error.pos >= len(text) - _AT_END_CHARACTERS


def _first_error(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    try:
        _lenient.decode(text)
    except json.JSONDecodeError as error:
        return f" (byte {_bytes(text[: error.pos]):,}: {error.msg})"
    except (ValueError, RecursionError) as error:
        return f" ({error})"
    return ""


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _kind(document: object) -> str:
    if isinstance(document, dict):
        return f"{[str(name)[:40] for name in list(document)[:8]]}"
    return f"a {type(document).__name__}"
