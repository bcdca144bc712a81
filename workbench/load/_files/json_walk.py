"""A JSON document read from front to back in bounded memory: long lists one item at a time."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, NoReturn

from workbench.load._files.json_events import Damaged
from workbench.load._files.stream import Stream

_BLOCK_BYTES = 1 << 20
_LONGEST_VALUE = 64 << 20
_BLANK = " \t\r\n"


class JsonWalk:
    """A place in a document, which moves on with every call.

    Raises :class:`Damaged`, with the character it stands at, where the document ends or breaks.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._bytes = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._decode = json.JSONDecoder().raw_decode
        self._text, self._at, self._dropped = "", 0, 0
        self._ended = False

    @property
    def position(self) -> int:
        return self._dropped + self._at

    def next_sign(self) -> str:
        """Return the next character that is not blank without moving behind it; '' at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def members(self) -> Iterator[str]:
        """Yield the keys of an object; the value of each must be taken before the next."""
        self._take("{")
        if self.next_sign() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                self._raise("a member without a name")
            self._take(":")
            yield key
            if self._goes_on("}"):
                continue
            return

    def items(self) -> Iterator[None]:
        """Stop before each item of a list; it must be taken before the next."""
        self._take("[")
        if self.next_sign() == "]":
            self._at += 1
            return
        while True:
            yield
            if not self._goes_on("]"):
                return

    def value(self) -> Any:
        """Take a whole value."""
        while True:
            self.next_sign()
            try:
                value, end = self._decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or not self._more(doubling=True):
                    self._raise(getattr(error, "msg", "nested too deeply"))
                continue
            # A number that ends where the available text ends may go on.
            if end == len(self._text) and self._more():
                continue
            self._at = end
            return value

    def _goes_on(self, closing: str) -> bool:
        sign = self.next_sign()
        if sign not in (",", closing):
            self._raise(
                f"expected a comma or {closing}, found {sign!r}" if sign else "it ends here"
            )
        self._at += 1
        return sign == ","

    def _take(self, sign: str) -> None:
        if (found := self.next_sign()) != sign:
            self._raise(f"expected {sign}, found {found!r}" if found else "it ends here")
        self._at += 1

    def _more(self, *, doubling: bool = False) -> bool:
        """Read on; ``doubling`` reads as much again, so that long values take linear time."""
        held = len(self._text) - self._at
        if self._ended or held > _LONGEST_VALUE:
            return False
        raw = self._stream.read(max(_BLOCK_BYTES, held if doubling else 0))
        self._ended = not raw
        self._dropped += self._at
        self._text = self._text[self._at :] + self._bytes.decode(raw, final=self._ended)
        self._at = 0
        return True

    def _raise(self, reason: str) -> NoReturn:
        raise Damaged(self.position, reason)
