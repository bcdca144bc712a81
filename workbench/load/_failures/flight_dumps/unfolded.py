"""How much work walking plain values is, where one of them can stand in many places."""

from __future__ import annotations

from collections.abc import Mapping

_DEEPEST = 64
_TEXT_CHARS = 32


class UnfoldedError(ValueError):
    """The values hold themselves, or are more than anybody wants to walk."""


def refuse_endless(content: object, *, most: int) -> None:
    """Raise if a walk over ``content`` would meet more than ``most`` values.

    A pickle of a kilobyte can hold a list that holds one list many times, which holds another
    one many times, and so on: few objects, and a walk without end. Every container is looked
    at once; a text counts by its length.

    Raises
    ------
    UnfoldedError
        If there are more values, or they are nested more than 64 deep.

    Examples
    --------
    >>> pair = ["a"]
    >>> for _ in range(30):
    ...     pair = [pair, pair]
    >>> refuse_endless(pair, most=1_000_000)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    UnfoldedError: unfolds to more than 1,000,000 values
    """
    _Sizes(most).of(content, 0)


class _Sizes:
    """Sizes of containers, each counted once; they are alive all the time, so ids are unique."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[int, int] = {}

    def of(self, value: object, depth: int) -> int:
        if isinstance(value, str):
            return 1 + len(value) // _TEXT_CHARS
        if not isinstance(value, list | tuple | Mapping):
            return 1
        if (known := self._known.get(id(value))) is not None:
            return known
        if depth > _DEEPEST:
            msg = f"is nested more than {_DEEPEST} deep, or holds itself"
            raise UnfoldedError(msg)
        size = 1
        for inner in (*value.keys(), *value.values()) if isinstance(value, Mapping) else value:
            size += self.of(inner, depth + 1)
            if size > self._most:
                msg = f"unfolds to more than {self._most:,} values"
                raise UnfoldedError(msg)
        self._known[id(value)] = size
        return size
