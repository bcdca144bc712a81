"""The parser without compiled parts: slower, needs only the standard library."""

from __future__ import annotations

import json
import re

import numpy as np
import numpy.typing as npt

from workbench.load._blocks import Block, Slots, Texts
from workbench.load._json_events import decoder
from workbench.load._status import ARRAY_END, BLOCK_FULL, NEED_MORE, NO_EVENT, ODD

_BETWEEN = re.compile(r"[ \t\r\n]*(,?)[ \t\r\n]*")


class PythonEngine:
    """Fills blocks with :mod:`json`, one event at a time."""

    def __init__(self, slots: Slots) -> None:
        self.block = Block(slots)
        self.texts = Texts()
        self.rows = 0
        self.repaired_commas = 0
        self.hint = -1

    def code(self, text: str) -> int:
        """Return the number of ``text``."""
        return self.texts.code(text)

    def all_texts(self) -> list[str]:
        """Return all texts in order of their numbers."""
        return self.texts.all()

    def scan(self, buf: npt.NDArray[np.uint8], pos: int, n: int) -> tuple[int, int]:
        """Read events from byte ``pos`` on; same contract as the compiled scanner."""
        raw = buf[pos:n].tobytes()
        # Whole characters only: the last bytes may be half of one.
        cut = raw.rfind(b"}") + 1 or len(raw)
        tail = re.match(rb"[\s,\]]*", raw[cut:])
        cut += tail.end() if tail else 0
        try:
            text = raw[:cut].decode()
        except UnicodeDecodeError:
            text = raw[:cut].decode(errors="surrogateescape")
        at, status = self._scan_text(text)
        used = at if text.isascii() else len(text[:at].encode(errors="surrogateescape"))
        return pos + used, status

    def _scan_text(self, text: str) -> tuple[int, int]:
        at = 0
        after_event = False
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
            if after_event and not between[1]:
                self.repaired_commas += 1
            if self.rows >= capacity:
                return start, BLOCK_FULL
            try:
                event, at = decoder.raw_decode(text, start)
            except (json.JSONDecodeError, RecursionError):
                self.hint = -1
                return start, ODD
            self.rows += self.block.write(self.rows, event, self.texts)
            after_event = True
