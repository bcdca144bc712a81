"""Cells of ``nvidia-smi``: numbers with or without unit, masks, and marks of what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%]*)", re.ASCII)
_MISSING = frozenset(
    ("", "-", "n/a", "nan", "none", "null", "not supported", "not available", "unknown error",
     "unknown", "err!", "no data", "gpu is lost", "insufficient permissions", "disabled")
)  # fmt: skip
_MASK = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")
FACTORS = {
    "power": {"w": 1.0, "mw": 1e-3, "kw": 1e3},
    "energy": {"j": 1.0, "mj": 1e-3, "kj": 1e3, "wh": 3.6e3, "mwh": 3.6, "kwh": 3.6e6},
    "clock": {"mhz": 1.0, "ghz": 1e3},
    "busy": {"%": 0.01},
    "temperature": {"c": 1.0},
    "violation": {"us": 1e3, "ms": 1e6, "ns": 1.0, "s": 1e9},
}
FACTORS["limit"] = FACTORS["power"]
_USUAL_UNIT = {"energy": "mj", "clock": "mhz", "busy": "%", "temperature": "c", "violation": "us"}
# What a value is: a number, a number whose cell names its unit, a mark that there is none, junk.
_PLAIN, _STATED, _NONE, _JUNK = 0, 1, 2, 3


def is_missing(text: str) -> bool:
    """Say whether a cell tells that there is no value, in any of the words of the drivers."""
    return text.lower() in _MISSING or (text.startswith("[") and text.endswith("]"))


class Numbers:
    """Reads the cells of one column; what was met once is not read again."""

    def __init__(self, role: str, header_unit: str, default_factor: float | None) -> None:
        factors = FACTORS[role]
        unit = header_unit.lower() or _USUAL_UNIT.get(role, "")
        self._factors = factors
        self._plain_factor = factors.get(unit, 1.0 if default_factor is None else default_factor)
        self._known: dict[str, tuple[float, int]] = {}
        self._unit = header_unit if unit in factors else ""
        self.is_stated = bool(header_unit)

    def read(self, cells: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return values in the unit of the tables, and which cells are junk."""
        encoded = cells.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        if not len(codes):
            return np.empty(0), np.empty(0, dtype=bool)
        quick = self._all_alike(encoded.dictionary)
        if quick is not None:
            return quick[codes], np.zeros(len(codes), dtype=bool)
        found = [self._value(text) for text in encoded.dictionary.to_pylist()]
        values = np.array([value for value, _ in found])
        kinds = np.array([kind for _, kind in found])
        self.is_stated |= bool((kinds == _STATED).any())
        return values[codes], kinds[codes] == _JUNK

    def read_texts(self, texts: list[str]) -> np.ndarray:
        """Return the values of a few cells; junk is missing."""
        return self.read(pa.array(texts, pa.string()))[0]

    def _all_alike(self, texts: pa.Array) -> np.ndarray | None:
        """Read texts that are all numbers with the unit of the header; None if some are not."""
        plain = pc.utf8_trim_whitespace(texts)
        if not self._unit or not pc.all(pc.ends_with(plain, self._unit)).as_py():
            return None
        try:
            bare = pc.utf8_rtrim_whitespace(pc.utf8_slice_codeunits(plain, 0, -len(self._unit)))
            numbers: pa.Array = pc.cast(bare, pa.float64())
        except pa.ArrowInvalid:
            return None
        self.is_stated = True
        found: np.ndarray = numbers.to_numpy(zero_copy_only=False)
        return found * self._factors[self._unit.lower()]

    def _value(self, text: str) -> tuple[float, int]:
        known = self._known.get(text)
        if known is None:
            known = self._read(text.strip())
            if len(self._known) < 1 << 20:
                self._known[text] = known
        return known

    def _read(self, text: str) -> tuple[float, int]:
        match = _NUMBER.fullmatch(text)
        if match is None:
            return np.nan, _NONE if is_missing(text) else _JUNK
        unit = match[2].lower()
        if not unit:
            return float(match[1]) * self._plain_factor, _PLAIN
        factor = self._factors.get(unit)
        return (np.nan, _JUNK) if factor is None else (float(match[1]) * factor, _STATED)


def mask_value(text: str) -> int:
    """Read a mask of clock event reasons; -1 if it is none."""
    match = _MASK.fullmatch(text.strip())
    if match is None:
        return -1
    value = int(match[1], 16)
    return value if value < 1 << 63 else -1


def active_value(text: str) -> int:
    """Read ``Active`` as 1 and ``Not Active`` as 0; -1 if it is neither."""
    return {"active": 1, "not active": 0}.get(text.strip().lower(), -1)


def whole_numbers(cells: pa.Array, read: Callable[[str], int]) -> np.ndarray:
    """Read cells of few different texts; -1 is missing."""
    encoded = cells.dictionary_encode()
    values = np.array([read(text) for text in encoded.dictionary.to_pylist()] or [-1], np.int64)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return values[codes] if len(codes) else np.empty(0, np.int64)


def texts_of(cells: pa.Array) -> tuple[list[str], np.ndarray]:
    """Return the different texts of a column, without blanks around them, and their codes."""
    encoded = pc.utf8_trim_whitespace(cells).dictionary_encode()
    texts = [text.strip('" ') for text in encoded.dictionary.to_pylist()]
    return texts, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
