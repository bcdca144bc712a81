"""Pickles of plain values, read without ever running what they ask for.

A pickle is a program; ``pickle.load`` of one from a stranger runs the stranger's
code. Flight-recorder dumps hold lists, dicts, tuples, texts and numbers only, so the
few instructions that make those are allowed and everything else is refused before the
first one is carried out.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, NamedTuple, NoReturn

LARGEST_BYTES = 256 << 20
_MOST_OPCODES = 20_000_000
_DEEPEST = 64
_HEAVIEST = 1 << 24
_LONGEST_INTEGER_BYTES = 9

# What each instruction that is carried out does; every other one is refused.
_KINDS = {
    **dict.fromkeys(
        (
            "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1",
            "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE",
            "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "EMPTY_TUPLE",
            "EMPTY_DICT",
        ),
        "value",
    ),
    **dict.fromkeys(("TUPLE1", "TUPLE2", "TUPLE3"), "tuple"),
    **dict.fromkeys(("LIST", "TUPLE", "DICT"), "from_mark"),
    **dict.fromkeys(("APPEND", "SETITEM"), "one_into"),
    **dict.fromkeys(("APPENDS", "SETITEMS"), "all_into"),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), "get"),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), "put"),
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), ""),
    "MARK": "mark",
    "POP": "pop",
}  # fmt: skip
_INTEGERS = {"INT", "LONG", "LONG1", "LONG4"}


class PickleError(ValueError):
    """The pickle is damaged, or is no pickle of plain values; says what and where."""


def plain_values(raw: bytes) -> Any:
    r"""Return what a pickle of plain values holds.

    Parameters
    ----------
    raw
        The whole pickle.

    Returns
    -------
    object
        Lists, dicts, tuples, texts, numbers, None.

    Raises
    ------
    PickleError
        If it asks for a class, a call or an object from elsewhere, is cut off or
        damaged, or would take more memory than a dump does.

    Examples
    --------
    >>> plain_values(b"\x80\x02]q\x00(K\x01K\x02e.")
    [1, 2]
    """
    if len(raw) > LARGEST_BYTES:
        msg = f"is larger than {LARGEST_BYTES >> 20} MiB, more than a dump is"
        raise PickleError(msg)
    try:
        _scan(raw)
        return _PlainUnpickler(io.BytesIO(raw)).load()
    except PickleError:
        raise
    except EOFError as error:
        msg = f"is cut off after {len(raw):,} bytes"
        raise PickleError(msg) from error
    # A damaged pickle can raise whatever the damaged instruction stumbles over.
    except (
        pickle.UnpicklingError, ValueError, TypeError, LookupError, ArithmeticError,
        AttributeError, MemoryError, RecursionError,
    ) as error:  # fmt: skip
        short = str(error)[:120] or type(error).__name__
        msg = f"is damaged or cut off ({short})"
        raise PickleError(msg) from error


class _PlainUnpickler(pickle.Unpickler):
    """Makes builtin containers and numbers; the second wall behind the scan."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        """Refuse: dumps hold no classes."""
        msg = f"asks for {module_name}.{global_name}, which is never run"
        raise PickleError(msg)

    def persistent_load(self, _pid: object) -> NoReturn:
        """Refuse: dumps refer to nothing outside."""
        msg = "asks for an object outside the file"
        raise PickleError(msg)


def _scan(raw: bytes) -> None:
    """Walk the instructions without carrying them out; raise for the first one refused."""
    machine = _Shapes(len(raw))
    for count, (opcode, argument, position) in enumerate(pickletools.genops(raw)):
        if count >= _MOST_OPCODES:
            msg = f"has more than {_MOST_OPCODES:,} instructions"
            raise PickleError(msg)
        machine.step(opcode.name, argument, position or 0)
        end = (position or 0) + 1
    if end != len(raw):
        msg = f"goes on for {len(raw) - end:,} bytes behind its end; it is no single dump"
        raise PickleError(msg)


class _Value(NamedTuple):
    """What is kept of a value: how deep it is nested, and its size if hashed."""

    depth: int = 0
    weight: int = 1


class _Shapes:
    """A pickle machine that keeps the shapes of values, and no values."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.stack: list[_Value] = []
        self.marks: list[int] = []
        self.memo: dict[int, _Value] = {}

    def step(self, name: str, argument: Any, position: int) -> None:
        """Do to the shapes what an instruction does to the values."""
        if (kind := _KINDS.get(name)) is None:
            msg = f"asks for {name} at byte {position:,}; a dump holds plain values only"
            raise PickleError(msg)
        if kind:
            getattr(self, f"_{kind}")(name, argument, position)

    def _value(self, name: str, argument: Any, position: int) -> None:
        if name in _INTEGERS and int(argument).bit_length() > 8 * _LONGEST_INTEGER_BYTES:
            msg = f"holds a number of more than 64 bits at byte {position:,}"
            raise PickleError(msg)
        self._push(_Value(int(name.startswith("EMPTY"))), position)

    def _tuple(self, name: str, _: Any, position: int) -> None:
        self._push(_tuple_of(self._popped(int(name[-1]), position)), position)

    def _from_mark(self, name: str, _: Any, position: int) -> None:
        made = _tuple_of(self._to_mark(position))
        self._push(made if name == "TUPLE" else _Value(made.depth), position)

    def _one_into(self, name: str, _: Any, position: int) -> None:
        self._into(self._popped(1 if name == "APPEND" else 2, position), position)

    def _all_into(self, _name: str, _: Any, position: int) -> None:
        self._into(self._to_mark(position), position)

    def _mark(self, _name: str, _: Any, _position: int) -> None:
        self.marks.append(len(self.stack))

    def _pop(self, _name: str, _: Any, position: int) -> None:
        self._popped(1, position)

    def _get(self, _name: str, argument: Any, position: int) -> None:
        self._push(self.memo.get(int(argument), _Value()), position)

    def _put(self, name: str, argument: Any, position: int) -> None:
        place = len(self.memo) if name == "MEMOIZE" else int(argument)
        # The memo is an array: one far-away place would fill the memory.
        if not 0 <= place <= self.size_bytes or not self.stack:
            msg = f"keeps a value at place {place} at byte {position:,}"
            raise PickleError(msg)
        self.memo[place] = self.stack[-1]

    def _push(self, value: _Value, position: int) -> None:
        # Deep tuples would overflow the stack of the interpreter when they are hashed, and
        # tuples of the same tuples, again and again, would keep it busy for ever.
        if value.depth > _DEEPEST or value.weight > _HEAVIEST:
            msg = f"is nested more than {_DEEPEST} deep, or too wide, at byte {position:,}"
            raise PickleError(msg)
        self.stack.append(value)

    def _into(self, values: list[_Value], position: int) -> None:
        (container,) = self._popped(1, position)
        self._push(_Value(max(container.depth, _tuple_of(values).depth)), position)

    def _popped(self, count: int, position: int) -> list[_Value]:
        floor = self.marks[-1] if self.marks else 0
        if len(self.stack) - count < floor:
            msg = f"takes more values than there are at byte {position:,}"
            raise PickleError(msg)
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def _to_mark(self, position: int) -> list[_Value]:
        if not self.marks:
            msg = f"ends a list that never began at byte {position:,}"
            raise PickleError(msg)
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values


def _tuple_of(values: list[_Value]) -> _Value:
    return _Value(
        1 + max((value.depth for value in values), default=0),
        1 + sum(value.weight for value in values),
    )
