"""Finding the list of events in the first bytes of a Kineto file."""

from __future__ import annotations

import json
import re

from workbench.load._files.json_events import decoder

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')


def event_list(head: bytes, start: int) -> tuple[int, int] | None:
    """Find the key ``traceEvents`` of the outermost object: where it and its events begin."""
    if head[start : start + 1] != b"{":
        return None
    text = head[start:].decode(errors="surrogateescape")
    at = 1
    try:
        while True:
            at = _skip(text, at)
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)
            key_at = at
            key, at = decoder.raw_decode(text, at)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                break
            at = _skip(text, at + 1)
            if key == "traceEvents" and text[at : at + 1] == "[":
                return start + _byte(text, key_at), start + _byte(text, at + 1)
            _, at = decoder.raw_decode(text, at)
    except (json.JSONDecodeError, RecursionError):
        pass
    # Metadata that JSON cannot read, or that is cut by the end of the window.
    found = _ARRAY.search(head, start + _byte(text, at))
    return (found.start(), found.end()) if found else None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _byte(text: str, at: int) -> int:
    return at if text.isascii() else len(text[:at].encode(errors="surrogateescape"))
