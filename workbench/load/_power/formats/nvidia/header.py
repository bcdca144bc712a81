"""The header of an ``nvidia-smi`` table where there is none, told by its cells."""

from __future__ import annotations

import re
from collections import Counter

from workbench.load._power.formats.nvidia.cells import is_missing
from workbench.load._power.formats.nvidia.columns import SEPARATORS

_STAMP = re.compile(r"\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d\.\d{3}")
_KINDS = {
    "timestamp": _STAMP,
    "power.draw [W]": re.compile(r"[+-]?\d+(?:\.\d+)? W"),
    "uuid": re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}"),
    "pci.bus_id": re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]"),
}
_LOOKED_AT = 200
_FIRST_LINE = re.compile(rb'\A[\s"]*\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d\.\d{3}"?\s*[,;\t]')
_PLAIN = re.compile(r"\d+")


def lacks_header(head: bytes) -> bool:
    """Say whether a file begins with a stamp of ``nvidia-smi`` and names a power in W.

    Examples
    --------
    >>> lacks_header(b"2025/01/31 08:00:00.000, 73.94 W, 0 %")
    True
    """
    first = head.lstrip()[:1000].split(b"\n")[0]
    return bool(_FIRST_LINE.match(first)) and bool(re.search(rb"\d W\b", first))


def guessed_header(block: bytes) -> str:
    """Write the header that a table lacks; '' if its cells do not tell which column is what.

    Only the one column in W can be the power; of two, one is the limit, and nobody guesses.
    """
    lines = [line for line in block.decode(errors="replace").split("\n") if line.strip()]
    first = lines[0] if lines else ""
    separator = max(SEPARATORS, key=first.count)
    rows = [[c.strip(' "\t') for c in line.split(separator)] for line in lines[:_LOOKED_AT]]
    width = Counter(map(len, rows)).most_common(1)[0][0]
    rows = [row for row in rows if len(row) == width]
    names = [_kind([row[place] for row in rows]) for place in range(width)]
    if names.count("timestamp") != 1 or names.count("power.draw [W]") != 1:
        return ""
    names = [name or f"column {place + 1}" for place, name in enumerate(names)]
    return separator.join(f'"{name}"' if '"' in first else name for name in names)


def _kind(cells: list[str]) -> str:
    """Say what all cells of a column are, as a header names it; '' if that is not clear."""
    some = [cell for cell in cells if not is_missing(cell)]
    for name, pattern in _KINDS.items():
        if some and all(pattern.fullmatch(cell) for cell in some):
            return name
    return "index" if _counts_up(cells) else ""


def _counts_up(cells: list[str]) -> bool:
    """Say whether cells are 0, 1, 2, ... over and over: the number of the GPU."""
    if not all(_PLAIN.fullmatch(cell) for cell in cells):
        return False
    size = len(set(cells))
    return size > 1 and len(cells) > size and cells == [str(n % size) for n in range(len(cells))]
