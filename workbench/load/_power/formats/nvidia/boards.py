"""GPUs as ``nvidia-smi`` prints them for people, as rows of a table."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from workbench.load._power.formats.nvidia.rows import (
    Batch,
    Columns,
    Key,
    Numbers,
    Table,
    is_missing,
)
from workbench.load._power.formats.nvidia.stamps import NOT_A_TIME, free_ns

_STAMP = re.compile(r"\w{3} (\w{3}) +(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def stamp_ns(text: str) -> int:
    """Read ``Tue Jul 14 09:00:27 2026`` as ns since 1970 of the host's calendar."""
    match = _STAMP.fullmatch(text.strip())
    if match is None or match[1] not in _MONTHS:
        return NOT_A_TIME
    month = _MONTHS.index(match[1]) + 1
    return free_ns(f"{match[4]}-{month:02}-{int(match[2]):02} {match[3]}")


def table_of(rows: list[dict[str, Any]], column: str) -> Table:
    """Make a table as of ``--query-gpu`` of boards; ``column`` is the name of the power there."""
    numbers = {}
    is_stated = False
    for role in ("power", "limit", "clock", "busy", "temperature", "violation"):
        reader = Numbers(role, "", None)
        numbers[role] = reader.read_texts([row.get(role, "") for row in rows])
        is_stated |= role == "power" and reader.is_stated
    keys = [_key(row) for row in rows]
    unique = list(dict.fromkeys(keys))
    code_of = {key: code for code, key in enumerate(unique)}
    batch = Batch(
        np.array([row["line"] for row in rows], dtype=np.int64),
        np.array([row["time"] for row in rows], dtype=np.int64),
        np.array([code_of[key] for key in keys], dtype=np.int64),
        numbers,
        np.array([row["reasons"] for row in rows], dtype=np.int64),
    )
    columns = Columns(",", is_quoted=False, names=(column,), units=("",), at={"power": 0})
    return Table([columns], [batch], unique, is_stated)


def _key(row: dict[str, Any]) -> Key:
    found = [row.get(name, "") for name in ("index", "uuid", "bus", "serial", "model")]
    return ("", *("" if is_missing(text) else text for text in found), "")
