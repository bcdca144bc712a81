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
import re
from typing import Any, NoReturn

LARGEST_BYTES = 256 << 20
_MOST_OPCODES = 20_000_000
_DEEPEST = 64
_HEAVIEST = 1_000
_LONGEST_INTEGER_BYTES = 9
_TOO_FEW = "takes more values than there are"
_OPCODES = {opcode.code: opcode for opcode in pickletools.opcodes}
_STOP, _MEMOIZE, _MARK = (code[0] for code in (pickle.STOP, pickle.MEMOIZE, pickle.MARK))

# Instructions of a fixed length that only push a value. Most of a large dump is made of them, so
# runs of them are skipped at once.
_PUSHES = b"hjKMJGN\x88\x89)\x8a"
_LONG1 = b"|".join(b"\\x%02x.{%d}" % (n, n) for n in range(_LONGEST_INTEGER_BYTES + 1))
_ONE_PUSH = rb"[hK].|[jJ].{4}|M..|G.{8}|[N\x88\x89)]|\x8a(?:" + _LONG1 + rb")"
_PUSH = re.compile(_ONE_PUSH, re.DOTALL)
_RUN = re.compile(rb"(?:" + _ONE_PUSH + rb")++", re.DOTALL)
# A dict of such values that holds one list of them at most, as a snapshot has one for every action.
_PUSH_ALL = rb"(?:" + _ONE_PUSH + rb")*+"
_FLAT = re.compile(
    rb"\}\x94\(" + _PUSH_ALL + rb"(\]\x94\(" + _PUSH_ALL + rb"e)?+" + _PUSH_ALL + rb"u", re.DOTALL
)

# What each further instruction that is carried out does; every other one is refused.
_KINDS = {
    **dict.fromkeys(
        (
            "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT",
            "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE",
            "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_TUPLE",
        ),
        "value",
    ),
    **dict.fromkeys(("INT", "LONG", "LONG1", "LONG4"), "integer"),
    **dict.fromkeys(("TUPLE1", "TUPLE2", "TUPLE3"), "tuple"),
    **dict.fromkeys(("LIST", "DICT"), "marked"),
    **dict.fromkeys(("APPEND", "POP"), "one"),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), "get"),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), "put"),
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), "nothing"),
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
    machine = _Weights(raw, most_opcodes)
    at, acts = 0, machine.acts
    try:
        for _ in range(most_opcodes):
            after = acts[raw[at]](at)
            if raw[at] == _STOP:
                break
            at = after
        else:
            machine.refuse_many()
    except _MisfitError as misfit:
        msg = f"{misfit} at byte {at:,}"
        raise PickleError(msg) from None
    if after != len(raw):
        msg = f"goes on for {len(raw) - after:,} bytes after its end; it is not a single dump"
        raise PickleError(msg)


class _Weights:
    """A pickle machine that keeps how much work hashing each value is, and no values.

    Only tuples can be both nested and hashed. Deep ones would overflow the stack of the
    interpreter, and tuples of the same tuples, again and again, keep it busy forever.

    The stack holds weights and, for a run of instructions that only push a value, its place in the
    pickle: most values go into a list or a dict, where their weight does not count.
    """

    def __init__(self, raw: bytes, most_opcodes: int) -> None:
        self.raw, self.stream = raw, io.BytesIO(raw)
        self.most_opcodes = self.left = most_opcodes
        self.stack: list[int | tuple[int, int]] = []
        self.marks: list[int] = []
        self.memo: dict[int, int] = {}
        self.steps = {name: getattr(self, f"_{kind}") for name, kind in _KINDS.items()}
        self.acts = [self._other] * 256
        frequent = {b"]": self._container, b"}": self._dict, b"(": self._mark, b"ue": self._into}
        for codes, act in {_PUSHES: self._run, **frequent}.items():
            for code in codes:
                self.acts[code] = act

    def _run(self, at: int) -> int:
        run = _RUN.match(self.raw, at)
        if run is None:
            return self._other(at)
        self.stack.append(run.span())
        return self._counted(at, run.end())

    def _dict(self, at: int) -> int:
        flat = _FLAT.match(self.raw, at)
        if flat is None or len(self.marks) + 2 > _DEEPEST:
            return self._container(at)
        for _ in range(1 if flat[1] is None else 2):
            self.memo.setdefault(len(self.memo), 1)
        self.stack.append(1)
        return self._counted(at, flat.end())

    def _counted(self, at: int, after: int) -> int:
        # No more than it can have: almost all take two bytes or more.
        self.left -= (after - at + 1) // 2
        if self.left < 0:
            self.refuse_many()
        return after

    def refuse_many(self) -> NoReturn:
        msg = f"has more than {self.most_opcodes:,} instructions"
        raise _MisfitError(msg)

    def _container(self, at: int) -> int:
        self.stack.append(1)
        after = at + 1
        if self.raw[after] == _MEMOIZE:
            self.memo.setdefault(len(self.memo), 1)
            after += 1
        return self._mark(after) if self.raw[after] == _MARK else after

    def _mark(self, at: int) -> int:
        if len(self.marks) >= _DEEPEST:
            msg = f"is nested more than {_DEEPEST} deep"
            raise _MisfitError(msg)
        self.marks.append(len(self.stack))
        return at + 1

    def _into(self, at: int) -> int:
        del self.stack[self._mark_place() :]
        # The list or dict that the values go into stays.
        if len(self.stack) == (self.marks[-1] if self.marks else 0):
            raise _MisfitError(_TOO_FEW)
        return at + 1

    def _other(self, at: int) -> int:
        opcode = _OPCODES.get(chr(self.raw[at]))
        if opcode is None or opcode.name not in self.steps:
            name = "no instruction" if opcode is None else opcode.name
            msg = f"asks for {name}; a dump holds plain values only"
            raise _MisfitError(msg)
        self.stream.seek(at + 1)
        argument = opcode.arg and opcode.arg.reader(self.stream)
        self.steps[opcode.name](opcode.name, argument)
        return self.stream.tell()

    def _value(self, _name: str, _argument: Any) -> None:
        self.stack.append(1)

    def _integer(self, _name: str, argument: Any) -> None:
        if int(argument).bit_length() > 8 * _LONGEST_INTEGER_BYTES:
            msg = "contains a number of more than 64 bits"
            raise _MisfitError(msg)
        self.stack.append(1)

    def _nothing(self, _name: str, _argument: Any) -> None:
        """Leave the stack as it is."""

    def _tuple(self, name: str, _argument: Any) -> None:
        self._push_tuple(self._popped(int(name[-1])))

    def _marked_tuple(self, _name: str, _argument: Any) -> None:
        start = self._mark_place()
        weights = self._weights(self.stack[start:])
        del self.stack[start:]
        self._push_tuple(weights)

    def _marked(self, _name: str, _argument: Any) -> None:
        del self.stack[self._mark_place() :]
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
        if not 0 <= key <= len(self.raw) or not self.stack:
            msg = f"keeps a value at place {key}"
            raise _MisfitError(msg)
        if not isinstance(weight := self.stack[-1], int):
            weight = self._popped(1)[0]
            self.stack.append(weight)
        # Never less than before: a run may be weighed long after it was pushed.
        self.memo[key] = max(weight, self.memo.get(key, 1))

    def _push_tuple(self, weights: list[int]) -> None:
        # Tuples of tuples of one value double in size with every instruction.
        weight = 1 + sum(weights)
        if weight > _HEAVIEST:
            msg = f"has tuples of more than {_HEAVIEST:,} values"
            raise _MisfitError(msg)
        self.stack.append(weight)

    def _popped(self, count: int) -> list[int]:
        floor = self.marks[-1] if self.marks else 0
        # Every entry is at least one value.
        start = max(floor, len(self.stack) - count)
        weights = self._weights(self.stack[start:])
        if len(weights) < count:
            raise _MisfitError(_TOO_FEW)
        self.stack[start:] = weights[:-count]
        return weights[-count:]

    def _weights(self, entries: list[int | tuple[int, int]]) -> list[int]:
        weights: list[int] = []
        for entry in entries:
            if isinstance(entry, int):
                weights.append(entry)
            else:
                pushes = _PUSH.findall(self.raw, *entry)
                weights += [self.memo.get(_key(push), 1) for push in pushes]
        return weights

    def _mark_place(self) -> int:
        if not self.marks:
            msg = "ends a list that never began"
            raise _MisfitError(msg)
        return self.marks.pop()


def _key(push: bytes) -> int:
    """Return the place in the memo that an instruction gets; -1 for values of their own."""
    return int.from_bytes(push[1:], "little") if push[:1] in (b"h", b"j") else -1
