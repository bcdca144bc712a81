"""Pickles of plain values, read without ever running what they ask for.

A pickle is a program; ``pickle.load`` of one from a stranger runs the stranger's code.
Flight-recorder dumps and memory snapshots hold lists, dicts, tuples, texts and numbers only, so the
few instructions that make those are allowed and everything else is refused before the first one is
carried out.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, NoReturn

LARGEST_BYTES = 256 << 20
_MOST_OPCODES = 20_000_000
_DEEPEST = 64
_HEAVIEST = 1_000
_LONGEST_INTEGER_BYTES = 9

# What each instruction that is carried out does; every other one is refused.
_KINDS = {
    **dict.fromkeys(
        (
            "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT",
            "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE",
            "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "EMPTY_TUPLE", "EMPTY_DICT",
        ),
        "value",
    ),
    **dict.fromkeys(("INT", "LONG", "LONG1", "LONG4"), "integer"),
    **dict.fromkeys(("TUPLE1", "TUPLE2", "TUPLE3"), "tuple"),
    **dict.fromkeys(("LIST", "DICT"), "marked"),
    **dict.fromkeys(("APPENDS", "SETITEMS"), "all_into"),
    **dict.fromkeys(("APPEND", "POP"), "one"),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), "get"),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), "put"),
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), "nothing"),
    "MARK": "mark",
    "TUPLE": "marked_tuple",
    "SETITEM": "two",
}  # fmt: skip


class PickleError(ValueError):
    """The pickle is damaged, or is not a pickle of plain values; says what and where."""


class _MisfitError(Exception):
    """An instruction cannot be carried out; says why."""


def plain_values(
    raw: bytes, *, largest_bytes: int | None = None, most_opcodes: int | None = None
) -> Any:
    r"""Return what a pickle of plain values holds.

    Examples
    --------
    >>> plain_values(b"\x80\x02]q\x00(K\x01K\x02e.")
    [1, 2]
    """
    largest_bytes = largest_bytes or LARGEST_BYTES
    if len(raw) > largest_bytes:
        msg = f"is larger than {largest_bytes >> 20} MiB, more than a dump is"
        raise PickleError(msg)
    try:
        _scan(raw, most_opcodes or _MOST_OPCODES)
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


def _scan(raw: bytes, most_opcodes: int) -> None:
    """Walk the instructions without carrying them out; raise for the first one refused."""
    machine = _Weights(len(raw))
    for count, (opcode, argument, position) in enumerate(pickletools.genops(raw)):
        if count >= most_opcodes:
            msg = f"has more than {most_opcodes:,} instructions"
            raise PickleError(msg)
        machine.step(opcode.name, argument, position or 0)
        end = (position or 0) + 1
    if end != len(raw):
        msg = f"goes on for {len(raw) - end:,} bytes after its end; it is not a single dump"
        raise PickleError(msg)


class _Weights:
    """A pickle machine that keeps how much work hashing each value is, and no values.

    Only tuples can be both nested and hashed. Deep ones would overflow the stack of the
    interpreter, and tuples of the same tuples, again and again, keep it busy forever.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.stack: list[int] = []
        self.marks: list[int] = []
        self.memo: dict[int, int] = {}
        self.steps = {name: getattr(self, f"_{kind}") for name, kind in _KINDS.items()}

    def step(self, name: str, argument: Any, position: int) -> None:
        try:
            act = self.steps[name]
        except KeyError:
            msg = f"asks for {name} at byte {position:,}; a dump holds plain values only"
            raise PickleError(msg) from None
        try:
            act(name, argument)
        except _MisfitError as misfit:
            msg = f"{misfit} at byte {position:,}"
            raise PickleError(msg) from None

    def _value(self, _name: str, _argument: Any) -> None:
        self.stack.append(1)

    def _integer(self, _name: str, argument: Any) -> None:
        if int(argument).bit_length() > 8 * _LONGEST_INTEGER_BYTES:
            msg = "contains a number of more than 64 bits"
            raise _MisfitError(msg)
        self.stack.append(1)

    def _nothing(self, _name: str, _argument: Any) -> None:
        """Leave the stack as it is."""

    def _mark(self, _name: str, _argument: Any) -> None:
        if len(self.marks) >= _DEEPEST:
            msg = f"is nested more than {_DEEPEST} deep"
            raise _MisfitError(msg)
        self.marks.append(len(self.stack))

    def _tuple(self, name: str, _argument: Any) -> None:
        self._push_tuple(self._popped(int(name[-1])))

    def _marked_tuple(self, _name: str, _argument: Any) -> None:
        self._push_tuple(self._to_mark())

    def _marked(self, _name: str, _argument: Any) -> None:
        self._to_mark()
        self.stack.append(1)

    def _all_into(self, _name: str, _argument: Any) -> None:
        self._to_mark()
        self._popped(1)
        self.stack.append(1)

    def _one(self, _name: str, _argument: Any) -> None:
        self._popped(1)

    def _two(self, _name: str, _argument: Any) -> None:
        self._popped(2)

    def _get(self, _name: str, argument: Any) -> None:
        self.stack.append(self.memo.get(int(argument), 1))

    def _put(self, name: str, argument: Any) -> None:
        # MEMOIZE takes the next free place.
        key = len(self.memo) if name == "MEMOIZE" else int(argument)
        # The memo is an array: one far-away place would fill the memory.
        if not 0 <= key <= self.size_bytes or not self.stack:
            msg = f"keeps a value at place {key}"
            raise _MisfitError(msg)
        self.memo[key] = self.stack[-1]

    def _push_tuple(self, weights: list[int]) -> None:
        # Tuples of tuples of one value double in size with every instruction.
        weight = 1 + sum(weights)
        if weight > _HEAVIEST:
            msg = f"has tuples of more than {_HEAVIEST:,} values"
            raise _MisfitError(msg)
        self.stack.append(weight)

    def _popped(self, count: int) -> list[int]:
        floor = self.marks[-1] if self.marks else 0
        if len(self.stack) - count < floor:
            msg = "takes more values than there are"
            raise _MisfitError(msg)
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def _to_mark(self) -> list[int]:
        if not self.marks:
            msg = "ends a list that never began"
            raise _MisfitError(msg)
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values
