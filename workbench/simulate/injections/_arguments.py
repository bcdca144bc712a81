"""Numbers that callers give, refused in the words of all and with this folder's error."""

from __future__ import annotations

from typing import Any

from workbench import _numbers
from workbench.errors import InjectionError, WorkbenchError


def whole_number(name: str, value: Any, *, least: int) -> int:
    """Return an argument as an int, or say that it is no whole number from ``least``."""
    try:
        return _numbers.whole_number(name, value, least=least)
    except WorkbenchError as error:
        raise InjectionError(str(error)) from None


def in_range(name: str, value: Any, *, least: float, most: float) -> float:
    """Return an argument as a float, or say between which ends it must be."""
    try:
        return _numbers.in_range(name, value, least=least, most=most)
    except WorkbenchError as error:
        raise InjectionError(str(error)) from None


def sizes(name: str, given: Any, count: int) -> tuple[int, ...]:
    """Return ``count`` sizes, each a whole number from 1."""
    found = tuple(given) if isinstance(given, tuple | list) else ()
    if len(found) != count:
        msg = f"{name} must be {count} whole numbers, not {given!r}"
        raise InjectionError(msg)
    return tuple(whole_number(f"{name}[{n}]", each, least=1) for n, each in enumerate(found))
