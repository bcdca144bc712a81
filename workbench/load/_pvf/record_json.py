"""JSON lines of experiments as columns of text, as a CSV file of them would give."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.text_lines import text_lines

_MOST_COLUMNS = 10_000


def is_json_lines(source: Source) -> bool:
    """Say whether a file begins with an object of JSON; a row of CSV does not."""
    return source.head().removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def json_table(source: Source, findings: Findings) -> pa.Table:
    """Read every line as a row; values of objects inside are named ``outer.inner``.

    Raises
    ------
    LoadError
        If no line is an object, or they have absurdly many names.
    """
    columns: dict[str, list[str | None]] = {}
    rows = 0
    for line, text in text_lines(source, findings):
        if not text.strip():
            continue
        if (record := _record(text)) is None:
            findings.add("left out", "lines that are no JSON object", 1, f"line {line:,}")
            continue
        for name in record:
            columns.setdefault(name, [None] * rows)
        if len(columns) > _MOST_COLUMNS:
            msg = f"{source.label}: over {_MOST_COLUMNS:,} names by line {line:,}; is it a table?"
            raise LoadError(msg)
        for name, values in columns.items():
            values.append(record.get(name))
        rows += 1
    if not rows:
        msg = f"{source.label}: no line is a JSON object; write one object per line"
        raise LoadError(msg)
    findings.add("read", "rows", rows)
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def _record(text: str) -> dict[str, str | None] | None:
    """Give the values of one line as text; None if it is no object, or names a value twice."""
    try:
        # Numbers stay as they are written: they may be longer than Python converts.
        value = json.loads(
            text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_once
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    flat: dict[str, Any] = {}
    for name, inside in value.items():
        named = inside if isinstance(inside, dict) else None
        flat |= {name: inside} if named is None else {f"{name}.{k}": v for k, v in named.items()}
    return {name: _text(inside) for name, inside in flat.items()}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        msg = "an object names a value twice"
        raise ValueError(msg)
    return made


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value)
