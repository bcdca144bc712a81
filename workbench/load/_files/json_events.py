"""Reading single trace events with a general JSON parser, repairing what can be repaired.

This is the path for everything the compiled scanner does not understand, and the whole path where
it could not be built. What is legal is decided here and nowhere else.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, NoReturn

from workbench.load._files.findings import Findings
from workbench.load._files.stream import Stream

# A damaged event is looked at this far; longer ones are refused, not searched.
REPAIR_WINDOW = 1 << 20
# Every possible end of an event means parsing it from its start again.
_REPAIR_BUDGET = 4 << 20

_STRING = r'"(?:[^"\\]|\\.)*"'
# A number of more characters or bits is none that a file means.
_LONGEST_NUMBER, _MOST_BITS = 1024, 128
# Possessive quantifiers: a long run of spaces would be tried again from each of its bytes.
_EVENT_END = re.compile(rb"\}\s*+(?:,\s*+(?=\{)|(?=\{\s*+\")|,?+\s*+(?=\])|\Z)")
_NEXT_EVENT = re.compile(rb'[,\]]?+\s*+\{\s*+"(?:ph|name|cat|pid|tid|ts|args|id|dur|s|bp)"\s*:')
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
# Strings come first, so that commas and words inside them are left alone.
_TOKENS = re.compile(
    rf"({_STRING})|,(\s*[}}\]])|(-?\b(?:nan|inf|infinity)\b(?:\(\w*\))?)", re.IGNORECASE | re.DOTALL
)
_AFTER_STRING = re.compile(r'\s*(?:[:}\]]|,\s*(?:"[^"]*"\s*:|["\d\[{\-tfn]))')
# An escaped quote where a string could end: the backslash may belong to a Windows path.
_AMBIGUOUS = re.compile(r'(?<!\\)(?:\\\\)*\\"\s*[,}\]:]')


class FloatText(str):
    """A JSON number with a fraction or exponent, kept as it was written."""

    __slots__ = ()


class Incomplete(Exception):  # noqa: N818 - a signal to read on, not an error
    """The event does not end inside the available bytes."""


class Damaged(Exception):  # noqa: N818 - turned into a LoadError that knows the file
    """The event can be read in no way, or in more than one."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


class Read(NamedTuple):
    """An event, where it ends, and how it was repaired (empty if it was whole)."""

    event: dict[str, Any]
    end: int
    repair: str


# Floats stay text: as float64, microseconds since 1970 step by a quarter of a microsecond.
decoder = json.JSONDecoder(parse_float=FloatText)
_lenient = json.JSONDecoder(parse_float=FloatText, strict=False)


def read_event(data: bytes, *, final: bool = True) -> Read:
    """Read the event that ``data`` begins with; ``final``: the input ends there.

    Raises
    ------
    Incomplete
        If no end is in sight yet.
    Damaged
        If there is an end in sight but the event cannot be read.
    """
    first_error: Damaged | None = None
    spent = 0
    window = data[:REPAIR_WINDOW]
    for ending in _EVENT_END.finditer(window):
        end = ending.start() + 1
        spent += end
        if spent > _REPAIR_BUDGET:
            break
        read = mend_event(data[:end])
        if read is not None:
            return read
        first_error = first_error or _why(data[:end])
        # Beyond the start of another event, a longer slice would swallow that one.
        if _NEXT_EVENT.match(data, end):
            raise first_error
    if len(window) < REPAIR_WINDOW and not final:
        raise Incomplete
    if first_error is not None:
        raise first_error
    raise Incomplete


def mend_event(raw: bytes) -> Read | None:
    """Read ``raw`` as one JSON object, as it is or repaired; None if that cannot be done."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode(errors="surrogateescape")
    for mend, note in _MENDERS:
        mended = mend(text)
        if mended is None or (mended == text and mend is not _same):
            continue
        try:
            event = (_lenient if note else decoder).decode(mended)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            return Read(event, len(raw), note)
    return None


def _same(text: str) -> str:
    return text


def _relax(text: str) -> str:
    """Drop trailing commas and spell not-a-number as Python's parser knows it."""

    def replace(match: re.Match[str]) -> str:
        if unchanged := match[1] or match[2]:
            return unchanged
        word = match[3].lower()
        return "NaN" if "nan" in word else "-Infinity" if word.startswith("-") else "Infinity"

    return _TOKENS.sub(replace, text)


# Where a quote follows a backslash two readings are possible, so none is taken.
def _escape_backslashes(text: str) -> str | None:
    if _AMBIGUOUS.search(text) and _BAD_ESCAPE.search(text):
        return None
    return _BAD_ESCAPE.sub(r"\\\\", text)


# A quote ends a string only if something follows that may follow one in JSON.
def _escape_quotes(text: str) -> str | None:
    if _AMBIGUOUS.search(text):
        return None
    out: list[str] = []
    inside = False
    position = 0
    while position < len(text):
        char = text[position]
        if inside and char == "\\":
            out.append(text[position : position + 2])
            position += 2
            continue
        if char == '"':
            if not inside:
                inside = True
            elif position + 1 >= len(text) or _AFTER_STRING.match(text, position + 1):
                inside = False
            else:
                out.append("\\")
        out.append(char)
        position += 1
    return "".join(out)


# From the least to the most that is changed; the first that gives JSON is taken.
_MENDERS: tuple[tuple[Callable[[str], str | None], str], ...] = (
    (_same, ""),
    (_same, "raw control characters inside a string"),
    (_relax, "trailing commas or numbers that JSON does not know (nan, inf)"),
    (_escape_backslashes, "backslashes that start no JSON escape"),
    (_escape_quotes, "quotes inside a string that were not escaped"),
)


def _why(raw: bytes) -> Damaged:
    text = raw.decode(errors="surrogateescape")
    if (match := _AMBIGUOUS.search(text)) is not None and _BAD_ESCAPE.search(text):
        at = len(text[: match.start()].encode(errors="surrogateescape"))
        return Damaged(at, "a backslash before a quote that may or may not end the string")
    try:
        _lenient.decode(text)
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode(errors="surrogateescape"))
        return Damaged(at, error.msg)
    except (ValueError, RecursionError) as error:
        return Damaged(0, str(error))
    return Damaged(0, "an event that is not a JSON object")


def to_ns(value: object) -> int | None:
    """Convert microseconds, as a JSON number or text, to whole ns; None if that fails."""
    if isinstance(value, bool) or value is None:
        return None
    exact = _exact(value, digits=16)
    if exact is None:
        return None
    number = int((exact * 1000).to_integral_value())
    # Half the range of int64, so that start plus duration cannot overflow.
    return number if abs(number) < 1 << 62 else None


def to_integer(value: object) -> int | None:
    """Convert a JSON number or text to an int64; unsigned 64-bit ids wrap; None if it is none."""
    if isinstance(value, bool) or value is None:
        return None
    exact = _exact(value, digits=19)
    if exact is None or exact != exact.to_integral_value():
        return None
    number = int(exact)
    if -(1 << 63) < number < 1 << 63:
        return number
    return number - (1 << 64) if 0 < number < 1 << 64 else None


# Decimal, because floats of epoch microseconds are off by up to 125 ns.
def _exact(value: object, *, digits: int) -> Decimal | None:
    if isinstance(value, int):
        # Converting an integer takes time that grows with the square of its digits.
        return Decimal(value) if value.bit_length() <= _MOST_BITS else None
    # Anything else may hold itself many times over: its text would never end.
    text = value if isinstance(value, str) else repr(value) if isinstance(value, float) else ""
    if len(text) > _LONGEST_NUMBER:
        return None
    try:
        exact = Decimal(text)
    except InvalidOperation:
        return None
    # A short text such as 1e999999 stands for a number that takes minutes to write out.
    return exact if exact.is_finite() and exact.adjusted() <= digits else None


# MLPerf's logger writes JSON after this mark, wherever it stands in a line.
MARK = ":::MLLOG"
_MILLISECOND = 1_000_000
_LATEST_MS = (1 << 63) // _MILLISECOND


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log: what it is about, when it was written, and what it says."""

    line: int
    time_ns: int
    key: str
    event_type: str
    value: Any
    metadata: dict[str, Any]


def entry_of(line: int, text: str, findings: Findings) -> Entry | None:
    """Read one line; None if it is none of the logger's, or damaged, which is counted.

    Ranks may be written before the mark (``  0: :::MLLOG``), and metadata may be an empty text or
    null.
    """
    _, mark, written = text.partition(MARK)
    if not mark:
        return None
    finding, reason = "dropped", ""
    record: Any = None
    time_ns = None
    try:
        record = json.loads(written)
    except (ValueError, RecursionError) as error:
        finding, reason = _damage(error, written)
    else:
        if not isinstance(record, dict) or not isinstance(record.get("key"), str):
            reason = "lines of the logger without a key"
        elif (time_ns := _time_ns(record.get("time_ms"))) is None:
            reason = "lines of the logger without a usable time_ms"
    if reason or time_ns is None:
        findings.add(finding, reason, 1, f"line {line:,}")
        return None
    metadata, event_type = record.get("metadata"), str(record.get("event_type", ""))
    metadata = metadata if isinstance(metadata, dict) else {}
    return Entry(line, time_ns, record["key"], event_type, record.get("value"), metadata)


def number_of(value: object) -> float | None:
    """Return a finite number, written as a number or as text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _damage(error: Exception, written: str) -> tuple[str, str]:
    if isinstance(error, json.JSONDecodeError):
        is_cut = error.pos >= len(written.rstrip()) or error.msg.startswith("Unterminated string")
        if is_cut:
            return "truncated", "lines of the logger that do not end"
    return "dropped", "lines of the logger that are not JSON"


def _time_ns(time_ms: object) -> int | None:
    number = number_of(time_ms)
    if number is None or not 0 < number < _LATEST_MS:
        return None
    milliseconds = int(number)
    return milliseconds * _MILLISECOND + round((number - milliseconds) * _MILLISECOND)


# A JSON document read from front to back in bounded memory: long lists one item at a time.

_BLOCK_BYTES = 1 << 20
_LONGEST_VALUE = 64 << 20
_BLANK = " \t\r\n"


class JsonWalk:
    """A place in a document, which moves on with every call.

    Raises :class:`Damaged`, with the character it stands at, where the document ends or breaks.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._bytes = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._decode = json.JSONDecoder().raw_decode
        self._text, self._at, self._dropped = "", 0, 0
        self._ended = False

    @property
    def position(self) -> int:
        return self._dropped + self._at

    def next_sign(self) -> str:
        """Return the next character that is not blank without moving behind it; '' at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def members(self) -> Iterator[str]:
        """Yield the keys of an object; the value of each must be taken before the next."""
        self._take("{")
        if self.next_sign() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                self._raise("a member without a name")
            self._take(":")
            yield key
            if self._goes_on("}"):
                continue
            return

    def items(self) -> Iterator[None]:
        """Stop before each item of a list; it must be taken before the next."""
        self._take("[")
        if self.next_sign() == "]":
            self._at += 1
            return
        while True:
            yield
            if not self._goes_on("]"):
                return

    def value(self) -> Any:
        """Take a whole value."""
        while True:
            self.next_sign()
            try:
                value, end = self._decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or not self._more(doubling=True):
                    self._raise(getattr(error, "msg", "nested too deeply"))
                continue
            # A number that ends where the available text ends may go on.
            if end == len(self._text) and self._more():
                continue
            self._at = end
            return value

    def _goes_on(self, closing: str) -> bool:
        sign = self.next_sign()
        if sign not in (",", closing):
            self._raise(
                f"expected a comma or {closing}, found {sign!r}" if sign else "it ends here"
            )
        self._at += 1
        return sign == ","

    def _take(self, sign: str) -> None:
        if (found := self.next_sign()) != sign:
            self._raise(f"expected {sign}, found {found!r}" if found else "it ends here")
        self._at += 1

    def _more(self, *, doubling: bool = False) -> bool:
        """Read on; ``doubling`` reads as much again, so that long values take linear time."""
        held = len(self._text) - self._at
        if self._ended or held > _LONGEST_VALUE:
            return False
        raw = self._stream.read(max(_BLOCK_BYTES, held if doubling else 0))
        self._ended = not raw
        self._dropped += self._at
        self._text = self._text[self._at :] + self._bytes.decode(raw, final=self._ended)
        self._at = 0
        return True

    def _raise(self, reason: str) -> NoReturn:
        raise Damaged(self.position, reason)
