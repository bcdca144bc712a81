"""The parser without compiled parts: slower, needs only the standard library."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from workbench.load._files.json_events import decoder
from workbench.load._traces.kineto.blocks import (
    ARRAY_END,
    BLOCK_FULL,
    NEED_MORE,
    NO_EVENT,
    ODD,
    Block,
    Slots,
    Texts,
)

_SLICE_BYTES = 1 << 18
# Spaces are taken for good: a run of them would be tried again from each of its bytes.
_NEXT_EVENT = re.compile(r'\}\s*+,?+\s*+\{\s*+"(?:ph|name|cat|pid|tid|ts|args|id|dur)"\s*:')
_BEHIND = re.compile(rb"[\s,\]]*")
_BETWEEN = re.compile(r"[ \t\r\n]*(,?)[ \t\r\n]*")


class PythonEngine:
    """Fills blocks with :mod:`json`, one event at a time."""

    def __init__(self, slots: Slots) -> None:
        self.block = Block(slots)
        self.texts = Texts()
        self.code, self.all_texts = self.texts.code, self.texts.all
        self.rows = 0
        self.repaired_commas = 0
        self._after_event = False

    def scan(self, buf: npt.NDArray[np.uint8], pos: int, n: int) -> tuple[int, int]:
        """Read events from byte ``pos`` on; same contract as the compiled scanner."""
        size = _SLICE_BYTES
        self._after_event = False
        while True:
            end = min(n, pos + size)
            text = _whole_objects(buf[pos:end].tobytes())
            at, status = self._scan_text(text)
            used = at if text.isascii() else len(text[:at].encode(errors="surrogateescape"))
            pos += used
            if status not in (NEED_MORE, ODD) or end == n:
                return pos, status
            if status == ODD and _NEXT_EVENT.search(text, at + 1):
                return pos, ODD  # the event ends in this slice and still cannot be read
            # Go on behind what was read; if that was nothing, the event is longer than a slice.
            size = _SLICE_BYTES if used else 4 * size

    def _scan_text(self, text: str) -> tuple[int, int]:
        at = 0
        capacity = len(self.block.ph)
        while True:
            between = _BETWEEN.match(text, at)
            assert between is not None
            start = between.end()
            if start >= len(text):
                return (at if not between[1] else between.start(1)), NEED_MORE
            char = text[start]
            if char == "]":
                self.repaired_commas += bool(between[1])
                return start + 1, ARRAY_END
            if char != "{":
                return start, NO_EVENT
            if self._after_event and not between[1]:
                self.repaired_commas += 1
            if self.rows >= capacity:
                return start, BLOCK_FULL
            try:
                event, at = decoder.raw_decode(text, start)
            except (ValueError, RecursionError):
                self._after_event = False  # the comma before this event is behind us
                return start, ODD
            self.rows += self.block.write(self.rows, event, self.texts)
            self._after_event = True


# Cut at the last closing brace, never inside a character of several bytes.
def _whole_objects(raw: bytes) -> str:
    cut = raw.rfind(b"}") + 1
    behind = _BEHIND.match(raw, cut)
    cut = behind.end() if behind else cut
    # One more byte where no event begins: it shows what stands there.
    cut += raw[cut : cut + 1] != b"{"
    try:
        return raw[:cut].decode()
    except UnicodeDecodeError:
        return raw[:cut].decode(errors="surrogateescape")
