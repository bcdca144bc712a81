"""Names of hosts from Slurm's short form: ``node[001-004,007],login1``."""

from __future__ import annotations

import re
from itertools import product
from math import prod

from workbench.errors import LoadError

MOST_HOSTS = 1_000_000
_NOBODY = frozenset({"", "none assigned", "none", "(null)", "n/a", "unknown"})
# A name is a run of plain text and of brackets; a comma outside of brackets ends it.
_NAME = re.compile(r"(?:[^\[\],\s]+|\[[^\[\]]*\])+")
_PART = re.compile(r"([^\[\]]+)|\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)


def hosts(text: str) -> tuple[str, ...]:
    """Expand a host list; several brackets in a name are all combined.

    Raises
    ------
    LoadError
        If ``text`` is no host list, or names more than a million hosts.
    """
    text = text.strip()
    if text.lower() in _NOBODY:
        return ()
    found: list[str] = []
    end = 0
    for name in _NAME.finditer(text):
        if text[end : name.start()] != ("," if end else ""):
            break
        found += _expanded(name[0], text, MOST_HOSTS - len(found))
        end = name.end()
    if end != len(text) or not end:
        msg = f"{text[:80]!r} is no host list; one looks like node[001-004,007]"
        raise LoadError(msg)
    return tuple(found)


def _expanded(name: str, text: str, room: int) -> list[str]:
    """Expand one name, unless it has more hosts than there is room for."""
    parts = [
        [(plain,)] if plain else [_bounds(piece, text) for piece in inside.split(",")]
        for plain, inside in _PART.findall(name)
    ]
    sizes = [sum(_size(piece) for piece in part) for part in parts]
    if prod(sizes) > room:
        msg = f"{text[:80]!r} names more than {MOST_HOSTS:,} hosts"
        raise LoadError(msg)
    spelled = [[each for piece in part for each in _spelled(piece)] for part in parts]
    return ["".join(each) for each in product(*spelled)]


def _bounds(piece: str, text: str) -> tuple[str, ...]:
    """Return the first and last number of a range, as written."""
    match = _RANGE.fullmatch(piece.strip())
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        msg = f"{text[:80]!r} is no host list: {piece[:40]!r} is no range like 001-004"
        raise LoadError(msg)
    return (match[1], match[2] or match[1])


def _size(piece: tuple[str, ...]) -> int:
    return 1 if len(piece) == 1 else int(piece[1]) - int(piece[0]) + 1


def _spelled(piece: tuple[str, ...]) -> list[str]:
    """Return the members of a range with the zeros of its first number."""
    if len(piece) == 1:
        return list(piece)
    first, last = piece
    return [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
