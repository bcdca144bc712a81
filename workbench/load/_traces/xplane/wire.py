"""Protobuf messages by the million: their fields as arrays, rather than an object for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.load._files.protobuf import message_class

IntArray = npt.NDArray[np.int64]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# An event has about ten statistics; a hostile one may claim millions.
_MOST_FIELDS = 256
_BITS = 64

# tsl/profiler/protobuf/xplane.proto. Events and their statistics stay bytes for fields().
_LAYOUTS = {
    "Named": {"id": "1 int64", "name": "2 bytes", "display_name": "4 bytes", "stats": "5 bytes*"},
    "Entry": {"key": "1 int64", "value": "2 Named"},
    "Line": {
        "id": "1 int64", "name": "2 bytes", "timestamp_ns": "3 int64", "events": "4 bytes*",
        "display_name": "11 bytes",
    },
    "Plane": {
        "id": "1 int64", "name": "2 bytes", "lines": "3 Line*",
        "event_metadata": "4 Entry*", "stat_metadata": "5 Entry*",
        "stats": "6 bytes*",
    },
    "Space": {"planes": "1 Plane*", "hostnames": "4 bytes*"},
}  # fmt: skip


@cache
def space_class() -> Any:
    """Return the class of the outermost message."""
    return message_class("workbench_xplane", "Space", _LAYOUTS, syntax="proto3")


@dataclass(frozen=True)
class Fields:
    """Fields of many messages: which message, field number, number or place of the content."""

    message: IntArray
    number: IntArray
    value: IntArray
    begin: IntArray
    end: IntArray
    damaged_count: int

    def of(self, number: int) -> Fields:
        """Return the fields of one number."""
        rows = np.flatnonzero(self.number == number)
        return Fields(
            self.message[rows], self.number[rows], self.value[rows], self.begin[rows],
            self.end[rows], self.damaged_count,
        )  # fmt: skip


def fields(data: npt.NDArray[np.uint8], begin: IntArray, end: IntArray) -> Fields:
    """Decode the fields of messages that lie at ``begin`` to ``end``, the first of each at once.

    A message that breaks off keeps the fields before, and is counted.
    """
    at, rows, damaged = begin.copy(), np.flatnonzero(begin < end), 0
    rounds: list[tuple[IntArray, ...]] = []
    for _ in range(_MOST_FIELDS):
        if len(rows) == 0:
            break
        stop = end[rows]
        key, content = _varints(data, at[rows], stop)
        wire = key & 7
        value, behind = np.zeros_like(key), content.copy()
        is_number = (content >= 0) & ((wire == _VARINT) | (wire == _BYTES))
        behind[is_number & (content >= stop)] = -1
        begun = np.flatnonzero(is_number & (content < stop))
        value[begun], behind[begun] = _varints(data, content[begun], stop[begun])
        sized = (wire == _BYTES) & (behind >= 0)
        # A length beyond the file would overflow when it is added.
        sized &= (value >= 0) & (value <= len(data))
        first = np.where(wire == _BYTES, behind, content)
        behind = behind + np.where(sized, value, 0)
        behind += np.where(wire == _FIXED64, 8, 0) + np.where(wire == _FIXED32, 4, 0)
        is_known = (wire == _VARINT) | (wire == _FIXED64) | (wire == _FIXED32) | sized
        sound = is_known & (first >= 0) & (behind >= 0) & (behind <= stop) & (key >> 3 > 0)
        damaged += int((~sound).sum())
        kept = np.flatnonzero(sound)
        at[rows[kept]] = behind[kept]
        rounds.append((rows[kept], key[kept] >> 3, value[kept], first[kept], behind[kept]))
        rows = rows[kept][behind[kept] < stop[kept]]
    none = np.zeros(0, np.int64)
    columns = [np.concatenate(column) for column in zip(*rounds, strict=True)] or [none] * 5
    message, number, value, first, behind = columns
    return Fields(message, number, value, first, behind, damaged + len(rows))


def _varints(data: npt.NDArray[np.uint8], at: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Decode a number at each place; the position behind it is -1 where it does not end."""
    byte = data[at]
    value = (byte & 0x7F).astype(np.int64)
    behind = at + 1
    rows = np.flatnonzero(byte & 0x80)
    for shift in range(7, _BITS, 7):
        if len(rows) == 0:
            break
        place = behind[rows]
        is_inside = place < end[rows]
        behind[rows[~is_inside]] = -1
        rows, place = rows[is_inside], place[is_inside]
        byte = data[place]
        value[rows] |= (byte & 0x7F).astype(np.int64) << shift
        behind[rows] = place + 1
        rows = rows[(byte & 0x80) != 0]
    behind[rows] = -1
    return value, behind
