"""Columns under construction: what both parsers fill and the events table is made of."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.load._files.json_events import FloatText, to_integer, to_ns

INTEGER, TEXT, TOKEN = 0, 1, 2
# Stands for absent; no id or size is as small.
MISSING = np.iinfo(np.int64).min
HAS_TIME, HAS_DUR = 1, 2
ROWS_PER_BLOCK = 1 << 14  # about what a core's own cache holds
# Lists in lists of an argument; as many as the compiled scanner follows.
_DEEPEST = 64

# Phases that have a place in time: complete, instant (old and new), begin, end.
KEPT_PHASES = frozenset(b"XiIBE")

IntArray = npt.NDArray[np.int64]


class Slots:
    """The arguments of an event that are kept, and how: as integer, text or JSON token."""

    def __init__(self, wanted: Mapping[str, int]) -> None:
        self.names = list(wanted)
        self.types = np.array([wanted[name] for name in self.names], dtype=np.int64)
        self.position = {name: at for at, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)


class Numbering(Protocol):
    """Anything that gives texts numbers."""

    def code(self, text: str) -> int:
        """Return the number of ``text``."""


class Texts:
    """Texts seen in a file, numbered in order of appearance."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        return self._codes.setdefault(text, len(self._codes))

    def all(self) -> list[str]:
        return list(self._codes)


class Block:
    """A fixed number of rows, one array per field, refilled again and again."""

    def __init__(self, slots: Slots, rows: int = ROWS_PER_BLOCK) -> None:
        self.slots = slots
        self.ph = np.zeros(rows, np.uint8)
        self.flags = np.zeros(rows, np.uint8)
        self.ts = np.zeros(rows, np.int64)
        self.dur = np.zeros(rows, np.int64)
        self.name = np.zeros(rows, np.int32)
        self.cat = np.zeros(rows, np.int32)
        self.pid = np.zeros(rows, np.int32)
        self.tid = np.zeros(rows, np.int32)
        self.values = np.full((max(1, len(slots)), rows), MISSING, np.int64)
        self.seen = np.zeros(max(1, len(slots)), np.int64)
        self.skipped = np.zeros(256, np.int64)
        self.unreadable: Counter[tuple[str, str]] = Counter()

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (
            self.ph, self.flags, self.ts, self.dur, self.name, self.cat, self.pid, self.tid,
            self.values, self.seen, self.skipped,
        )  # fmt: skip

    def write(self, row: int, event: dict[str, Any], texts: Numbering) -> bool:
        """Write one parsed event to ``row``; False if its phase is counted, not kept.

        A field of a type that cannot be used is left missing, as if it were absent; arguments of
        which that is true are counted.
        """
        phase = event.get("ph")
        kind = ord(phase) if isinstance(phase, str) and len(phase) == 1 and ord(phase) < 256 else 0
        if kind not in KEPT_PHASES:
            self.skipped[kind] += 1
            return False
        ts, dur = to_ns(event.get("ts")), to_ns(event.get("dur"))
        self.ph[row] = kind
        self.flags[row] = HAS_TIME * (ts is not None) | HAS_DUR * (dur is not None)
        self.ts[row], self.dur[row] = ts or 0, dur or 0
        self.name[row] = _text_code(event.get("name"), texts)
        self.cat[row] = _text_code(event.get("cat"), texts)
        self.pid[row] = _text_code(event.get("pid"), texts)
        self.tid[row] = _text_code(event.get("tid"), texts)
        args = event.get("args")
        if isinstance(args, dict):
            for name, at in self.slots.position.items():
                if name in args:
                    written = self._write_argument(at, row, args[name], texts)
                    if not written and args[name] is not None:
                        self.unreadable[name, str(event.get("cat"))] += 1
        return True

    def _write_argument(self, at: int, row: int, value: object, texts: Numbering) -> bool:
        kind = self.slots.types[at]
        if kind == INTEGER:
            number = to_integer(value)
            stored = MISSING if number is None else number
        elif kind == TEXT:
            stored = _text_code(value, texts)
            stored = MISSING if stored < 0 else stored
        else:
            stored = _token_code(value, texts)
        self.values[at, row] = stored
        self.seen[at] += stored != MISSING
        return bool(stored != MISSING)


def _text_code(value: object, texts: Numbering) -> int:
    if value is None or isinstance(value, dict | list):
        return -1
    return texts.code(value if type(value) is str else token(value))


def _token_code(value: object, texts: Numbering) -> int:
    try:
        return texts.code(token(value))
    except RecursionError:
        return int(MISSING)


def token(value: object) -> str:
    """Spell a parsed JSON value the one way it is kept in a column of extra arguments."""
    if isinstance(value, FloatText):
        return str(value)
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: object, levels: int = _DEEPEST) -> object:
    if isinstance(value, FloatText):
        return float(value)
    if isinstance(value, list | dict) and levels == 0:
        raise RecursionError
    if isinstance(value, list):
        return [_plain(item, levels - 1) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item, levels - 1) for key, item in value.items()}
    return value


def _narrow(codes: IntArray) -> npt.NDArray[Any]:
    """Copy numbers of texts, mostly small, into a quarter of the memory; -1 where absent."""
    is_small = codes.max(initial=0) <= np.iinfo(np.int16).max
    return np.maximum(codes, -1).astype(np.int16 if is_small else np.int32)


# Rows of a block: fields by name, and by slot the arguments that any of the rows has.
Copied = tuple[dict[str, npt.NDArray[Any]], dict[int, npt.NDArray[Any]]]
_FIELDS = ("ph", "flags", "ts", "dur", "name", "cat", "pid", "tid")


class Columns:
    """The rows of a whole file, collected from one block after the other."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.rows = 0
        self.phases: Counter[str] = Counter()
        self.unreadable: Counter[tuple[str, str]] = Counter()
        self._fields: dict[str, list[npt.NDArray[Any]]] = defaultdict(list)
        self._values: dict[int, list[tuple[int, npt.NDArray[Any]]]] = defaultdict(list)

    @classmethod
    def joined(cls, several: Sequence[Columns]) -> Columns:
        """Put the rows of several files below those of the first, which are used up all."""
        whole, *others = several
        for other in others:
            for name, pieces in other._fields.items():
                whole._fields[name] += pieces
            for at, values in other._values.items():
                whole._values[at] += [(start + whole.rows, piece) for start, piece in values]
            whole.rows += other.rows
        return whole

    def pieces(self, *names: str) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        """Yield some fields of the rows, piece by piece."""
        return zip(*(self._fields[name] for name in names), strict=True)

    def whole(self) -> Copied:
        """Take out all rows."""
        fields = {name: self.field(name) for name in _FIELDS}
        values = {at: self.values(name) for at, name in enumerate(self.slots.names)}
        return fields, {at: column for at, column in values.items() if column is not None}

    @classmethod
    def part(cls, slots: Slots, whole: Copied, rows: npt.NDArray[np.bool_]) -> Columns:
        """Make columns of some of the rows that were taken out of others."""
        columns = cls(slots)
        columns.rows = int(rows.sum())
        columns.append(0, whole, rows)
        return columns

    def append(self, first: int, copied: Copied, rows: slice | npt.NDArray[np.bool_]) -> None:
        """Append copied rows, which are those from row ``first`` of the file on."""
        fields, values = copied
        for name, piece in fields.items():
            self._fields[name].append(piece[rows])
        for at, piece in values.items():
            self._values[at].append((first, piece[rows]))

    def count(self, block: Block) -> None:
        """Take over what was counted of the events of the file."""
        for kind in np.flatnonzero(block.skipped):
            self.phases[chr(kind)] += int(block.skipped[kind])
        block.skipped[:] = 0
        if block.unreadable:
            self.unreadable.update(block.unreadable)
            block.unreadable.clear()

    def used(self, count: int) -> npt.NDArray[np.bool_]:
        """Return which of the first ``count`` texts stand in a row; before any field is taken."""
        used = np.zeros(count + 1, np.bool_)
        pieces = [piece for name in ("name", "cat", "pid", "tid") for piece in self._fields[name]]
        for at in np.flatnonzero(self.slots.types != INTEGER).tolist():
            pieces += [np.maximum(piece, -1) for _, piece in self._values[at]]
        for piece in pieces:
            used[piece] = True
        return used[:-1]

    def field(self, name: str) -> npt.NDArray[Any]:
        pieces = self._fields.pop(name, [])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [np.zeros(0, np.int64)])

    def values(self, name: str) -> npt.NDArray[Any] | None:
        """Return one argument for all rows; None if it never is there.

        Where absent, integers are :data:`MISSING` and the numbers of texts -1.
        """
        pieces = self._values[self.slots.position[name]]
        if not pieces:
            return None
        is_integer = self.slots.types[self.slots.position[name]] == INTEGER
        full = np.full(self.rows, *((MISSING, np.int64) if is_integer else (-1, np.int32)))
        # Popped, so that a piece is freed as soon as it is copied.
        while pieces:
            start, piece = pieces.pop()
            full[start : start + len(piece)] = piece
        return full


class Copies:
    """Rows of a block that wait to be copied when it is full: of one file, or of several."""

    def __init__(self) -> None:
        self._parts: list[tuple[Columns, int, slice]] = []

    def expect(self, columns: Columns, rows: slice) -> None:
        """Note that rows of the block are the next ones of a file."""
        self._parts.append((columns, columns.rows, rows))
        columns.rows += rows.stop - rows.start

    def copy(self, block: Block, rows: int) -> None:
        """Copy the first rows of the block, and append to each file its own."""
        fields = {name: getattr(block, name)[:rows].copy() for name in _FIELDS}
        values: dict[int, npt.NDArray[Any]] = {}
        for at in np.flatnonzero(block.seen[: len(block.slots)]).tolist():
            of_slot = block.values[at, :rows]  # noqa: PD011 - no pandas object
            is_integer = block.slots.types[at] == INTEGER
            values[at] = of_slot.copy() if is_integer else _narrow(of_slot)
            of_slot[:] = MISSING
        block.seen[:] = 0
        for columns, first, own in self._parts:
            columns.append(first, (fields, values), own)
        self._parts.clear()


@dataclass
class CodedTexts:
    """One text per row: ``codes`` into sorted, distinct ``texts``; -1 where missing."""

    codes: npt.NDArray[np.int32]
    texts: list[str]

    @classmethod
    def of(
        cls, codes: npt.NDArray[np.generic], texts: Sequence[str], *, missing: str | None = None
    ) -> CodedTexts:
        """Keep only texts that occur, each once, in order; rows without one get ``missing``.

        ``codes`` below 0 stand for no text; ``texts`` may hold texts twice and texts that do not
        occur.
        """
        occurs = np.zeros(len(texts) + 1, np.bool_)
        occurs[np.maximum(codes, -1)] = True
        lacking = bool(occurs[-1])
        used = np.flatnonzero(occurs[:-1]).tolist()
        wanted = {texts[code] for code in used}
        if lacking and missing is not None:
            wanted.add(missing)
        ordered = sorted(wanted)
        position = {text: at for at, text in enumerate(ordered)}
        table = np.full(len(texts) + 1, -1, np.int32)
        table[used] = [position[texts[code]] for code in used]
        if lacking and missing is not None:
            table[-1] = position[missing]
        return cls(table[np.maximum(codes, -1)], ordered)

    def matches(self, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Return for each row whether its text passes ``test``; missing texts do not."""
        passed = np.zeros(len(self.texts) + 1, np.bool_)
        passed[:-1] = [test(text) for text in self.texts]
        return passed[self.codes]

    def take(self, rows: npt.NDArray[np.generic]) -> CodedTexts:
        """Return the texts of the given rows; the texts stay, even if unused now."""
        return CodedTexts(self.codes[rows], self.texts)

    def categorical(self) -> pd.Categorical:
        return pd.Categorical.from_codes(self.codes, categories=pd.Index(self.texts, dtype="str"))


# What a parser found where it stopped.

ARRAY_END, NEED_MORE, BLOCK_FULL, ODD, NO_EVENT = range(5)
