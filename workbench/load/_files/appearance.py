"""What a file that nobody knows looks like, for messages."""

from __future__ import annotations

_SHOWN_CHARS = 60
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")


def is_utf16(head: bytes) -> bool:
    """Tell UTF-16 by its mark, or by every other byte being zero.

    Examples
    --------
    >>> is_utf16("kern :warn".encode("utf-16-le")), is_utf16(b"kern :warn")
    (True, False)
    """
    if head.startswith(_BYTE_ORDER_MARKS):
        return True
    half = len(head) // 2
    zeros = (head[0::2].count(0), head[1::2].count(0))
    return half > 1 and max(zeros) > 0.9 * half and min(zeros) < 0.1 * half


def appearance(head: bytes) -> str:
    r"""Say how a file begins.

    Examples
    --------
    >>> appearance(b"id,name\n1,a\n")
    "it begins with 'id,name'"
    >>> appearance(bytes([127, 69, 76, 70, 0, 1, 2, 3]))
    'binary data, it begins with the bytes 7f 45 4c 46 00 01 02 03'
    """
    text = head.decode(errors="replace").lstrip()
    odd = sum(not (c.isprintable() or c.isspace()) or c == "\ufffd" for c in text)
    if 10 * odd > len(text):
        return f"binary data, it begins with the bytes {head[:8].hex(' ')}"
    first = text.splitlines()[0] if text else ""
    if not first:
        return "it holds nothing but blanks"
    short = first if len(first) <= _SHOWN_CHARS else first[:_SHOWN_CHARS] + "…"
    return f"it begins with {short!r}"


def printable(name: str) -> str:
    """Return ``name`` with everything that a terminal or a page might obey written as code."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in name
    )
