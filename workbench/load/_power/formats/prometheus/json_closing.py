"""JSON that breaks off, closed behind its last whole element."""

from __future__ import annotations

import re

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_DEEPEST = 64


def closed(text: str, *, may_end_here: bool = False) -> tuple[str, bool]:
    """Close what a cut left open, and say whether anything was.

    What stands behind the last whole element of a list is dropped, unless ``may_end_here``.
    Text that is nested deeply or wrongly is given back as it is.
    """
    open_ones: list[str] = []
    whole, rest = 0, ""
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in _CLOSING:
            open_ones.append(mark)
            if len(open_ones) > _DEEPEST:
                return text, False
        elif mark in "}]":
            if not open_ones or _CLOSING[open_ones.pop()] != mark:
                return text, False
            if not open_ones or open_ones[-1] == "[":
                whole, rest = token.end(), _closers(open_ones)
    if may_end_here:
        whole, rest = len(text), _closers(open_ones)
    return (text[:whole] + rest, True) if open_ones and whole else (text, False)


def _closers(open_ones: list[str]) -> str:
    return "".join(_CLOSING[mark] for mark in reversed(open_ones))
