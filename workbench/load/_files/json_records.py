"""The JSON documents of a log: one, a list, one per line, or one after the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.text_lines import tell_of_damage

_decoder = json.JSONDecoder()
_START = re.compile(r"^[ \t]*(?=[{\[])", re.MULTILINE)
_SPACE = re.compile(r"\s*,?\s*")
# A file that is damaged this often is no log; looking on would take very long, most of all
# where brackets are nested deeply: every line is then read again for every level.
_DAMAGED_LIMIT, _NESTED_COST = 1000, 50


def json_documents(source: Source, findings: Findings) -> Iterator[tuple[int, Any]]:
    """Give line (from 1) and value of every JSON document of a file.

    Text between documents is set aside. Where a document is damaged, reading goes on at
    the next line that begins one, so whole parts of a damaged document are found.
    """
    with source.open() as stream:
        raw = stream.read()
        tell_of_damage(stream, findings)
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    del raw
    yield from text_documents(text, findings)


def text_documents(text: str, findings: Findings) -> Iterator[tuple[int, Any]]:
    """Give line (from 1) and value of every JSON document of a text; as :func:`json_documents`."""
    at, line, damaged, refused = 0, 1, 0, False
    while (start := _next_document(text, at, findings, may_be_inside=not refused)) is not None:
        line += text.count("\n", at, start)
        try:
            value, end = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            findings.add(*_damage(error, text), 1, f"line {line:,}")
            damaged += _NESTED_COST if isinstance(error, RecursionError) else 1
            refused, end = True, _line_end(text, start)
        else:
            refused = False
            findings.add("read", "JSON documents")
            yield line, value
        if damaged >= _DAMAGED_LIMIT:
            findings.add("left out", "the rest of the file, it is damaged too often")
            return
        line += text.count("\n", start, end)
        at = end


def _next_document(text: str, at: int, findings: Findings, *, may_be_inside: bool) -> int | None:
    """Find where the next document begins, and count what lies in between."""
    if may_be_inside:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] in ("{", "["):
            return at
    match = _START.search(text, at)
    passed = text[at : match.start() if match else len(text)]
    findings.add(
        "set aside", "lines that are no JSON", sum(map(bool, map(str.strip, passed.splitlines())))
    )
    return match.end() if match else None


def _damage(error: Exception, text: str) -> tuple[str, str]:
    if isinstance(error, RecursionError):
        return "left out", "JSON that is nested too deeply"
    if isinstance(error, json.JSONDecodeError) and (
        error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
    ):
        return "truncated", "a JSON document that does not end"
    what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return "left out", f"damaged JSON ({what[:80]})"


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def records(
    line: int, value: Any, findings: Findings, *, key: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give the objects of a document: itself with its line, or those of a list, numbered.

    The list is the document, or its list ``key``.
    """
    if key is not None and isinstance(value, dict) and isinstance(value.get(key), list):
        value = value[key]
    numbered = enumerate(value, start=1) if isinstance(value, list) else [(line, value)]
    for number, each in numbered:
        if isinstance(each, dict):
            yield number, each
        else:
            findings.add("set aside", "JSON that is no object", 1, f"record {number:,}")
