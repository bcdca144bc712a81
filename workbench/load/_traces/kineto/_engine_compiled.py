"""The compiled parser: ``kineto._scanner`` with room that grows as needed."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt

from workbench.load._traces.kineto import _scanner
from workbench.load._traces.kineto._scanner_tokens import PADDING, hash_bytes
from workbench.load._traces.kineto.blocks import STRINGS_FULL, Block, Slots

_FIRST_TEXTS = 1 << 14
_FIRST_BYTES = 1 << 20


class CompiledEngine:
    """Fills blocks with the compiled scanner and keeps the texts it meets."""

    def __init__(self, slots: Slots) -> None:
        self.block = Block(slots)
        self._state = np.zeros(5, np.int64)
        self._keys = self._key_table(slots)
        self._slots = np.full(4 * _FIRST_TEXTS, -1, np.int32)
        self._offsets = np.zeros(_FIRST_TEXTS, np.int64)
        self._lengths = np.zeros(_FIRST_TEXTS, np.int64)
        self._hashes = np.zeros(_FIRST_TEXTS, np.uint64)
        self._arena = np.zeros(_FIRST_BYTES, np.uint8)
        self._odd_texts: dict[str, int] = {}

    @staticmethod
    def _key_table(slots: Slots) -> tuple[npt.NDArray[np.generic], ...]:
        size = max(16, 1 << (4 * len(slots)).bit_length())
        hashes = np.zeros(max(1, len(slots)), np.uint64)
        lengths = np.zeros(max(1, len(slots)), np.int64)
        for at, name in enumerate(slots.names):
            raw = name.encode()
            padded = _padded(raw)
            hashes[at] = hash_bytes(padded, 0, len(raw))
            lengths[at] = len(raw)
        table = np.full(size, -1, np.int32)
        _scanner.rehash(table, hashes, len(slots))
        return table, hashes, lengths, slots.types

    @property
    def rows(self) -> int:
        return int(self._state[_scanner.ROWS])

    @rows.setter
    def rows(self, value: int) -> None:
        self._state[_scanner.ROWS] = value

    @property
    def repaired_commas(self) -> int:
        """Commas between events that were missing, or stood before the closing bracket."""
        return int(self._state[_scanner.REPAIRED_COMMAS])

    @property
    def hint(self) -> int:
        """Where the odd event that stopped the scanner seems to end, or below 0."""
        return int(self._state[_scanner.HINT])

    def scan(self, buf: npt.NDArray[np.uint8], pos: int, n: int) -> tuple[int, int]:
        while True:
            pos, status = _scanner.scan(
                buf, pos, n, self.block.arrays(), self._keys, self._strings(), self._state
            )
            if status != STRINGS_FULL:
                return int(pos), int(status)
            self._grow()

    def code(self, text: str) -> int:
        if (code := self._odd_texts.get(text)) is not None:
            return code
        # Texts are kept as they stand in a file: escaped, and lone surrogates spelled out.
        has_surrogates = any("\ud800" <= char <= "\udfff" for char in text)
        raw = json.dumps(text, ensure_ascii=has_surrogates)[1:-1].encode()
        padded = _padded(raw)
        mixed = np.uint64(hash_bytes(padded, 0, len(raw)))
        while True:
            code = int(_scanner.intern(padded, 0, len(raw), mixed, self._strings(), self._state))
            if code >= 0:
                self._odd_texts[text] = code
                return code
            self._grow(len(raw))

    def all_texts(self) -> list[str]:
        count = int(self._state[_scanner.STRINGS])
        raw = self._arena[: int(self._state[_scanner.ARENA])].tobytes()
        spans = zip(self._offsets[:count].tolist(), self._lengths[:count].tolist(), strict=True)
        return [_unescape(raw[start : start + length]) for start, length in spans]

    def _strings(self) -> tuple[npt.NDArray[np.generic], ...]:
        return self._slots, self._offsets, self._lengths, self._hashes, self._arena

    def _grow(self, at_least: int = 0) -> None:
        for name in ("_offsets", "_lengths", "_hashes"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        # Doubling keeps the copying linear in the size of the file.
        more = np.zeros(len(self._arena) + at_least, np.uint8)
        self._arena = np.concatenate([self._arena, more])
        self._slots = np.full(2 * len(self._slots), -1, np.int32)
        _scanner.rehash(self._slots, self._hashes, int(self._state[_scanner.STRINGS]))


def _padded(raw: bytes) -> npt.NDArray[np.uint8]:
    # Writable, as the scanner's own input is: another type would be compiled again.
    padded = np.zeros(len(raw) + PADDING, np.uint8)
    padded[: len(raw)] = np.frombuffer(raw, np.uint8)
    return padded


def _unescape(raw: bytes) -> str:
    text = raw.decode(errors="surrogateescape")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text  # a token that is no string, such as a list with texts inside
