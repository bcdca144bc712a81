"""The compiled parser: ``_scanner.c``, built at installation where there is a compiler."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workbench._shared.compiled import check_source
from workbench.load._traces.kineto._scanner import SOURCE_DIGEST, Scanner
from workbench.load._traces.kineto.blocks import Block, Slots

check_source(Path(__file__).with_name("_scanner.c"), SOURCE_DIGEST)


class CompiledEngine:
    """Fills blocks with the compiled scanner, which keeps the texts it meets."""

    def __init__(self, slots: Slots) -> None:
        self.block = Block(slots)
        names = [name.encode() for name in slots.names]
        types = slots.types.tolist()
        self._scanner = Scanner(list(zip(names, types, strict=True)), self.block.arrays())
        self._odd_texts: dict[str, int] = {}

    @property
    def rows(self) -> int:
        return self._scanner.rows

    @rows.setter
    def rows(self, value: int) -> None:
        self._scanner.rows = value

    @property
    def repaired_commas(self) -> int:
        """Commas between events that were missing, or stood before the closing bracket."""
        return self._scanner.repaired_commas

    def scan(self, buf: npt.NDArray[np.uint8], pos: int, n: int) -> tuple[int, int]:
        return self._scanner.scan(buf.data, pos, n)

    def code(self, text: str) -> int:
        if (code := self._odd_texts.get(text)) is None:
            # Texts are kept as they stand in a file: escaped, and lone surrogates spelled out.
            has_surrogates = any("\ud800" <= char <= "\udfff" for char in text)
            raw = json.dumps(text, ensure_ascii=has_surrogates)[1:-1].encode()
            code = self._odd_texts[text] = self._scanner.code(raw)
        return code

    def all_texts(self) -> list[str]:
        return [_unescape(raw) for raw in self._scanner.texts()]


def _unescape(raw: bytes) -> str:
    text = raw.decode(errors="surrogateescape")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text  # a token that is not a string, such as a list with texts inside
