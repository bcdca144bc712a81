"""A compiled scanner that turns the bytes of a Kineto event array into columns.

It walks every event once and keeps only what the events table needs; everything
else is skipped by structure. It accepts plain, regular events only. At an event with
anything unusual in it the scanner stops and leaves that event to the general parser
(:mod:`workbench.load._json_events`), so this file never decides what is legal.

Contract: ``buf`` holds ``n`` bytes of input and at least :data:`PADDING` readable
zero bytes after them. Every load of eight bytes starts below ``n``, and that is the
one bound that keeps all reads inside the buffer.
"""

# mypy: ignore-errors
# ruff: noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917 - one flat loop per state machine

from __future__ import annotations

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from workbench.load._blocks import HAS_DUR, HAS_TIME, INTEGER, MISSING, TEXT, TOKEN
from workbench.load._status import (
    ARRAY_END,
    BLOCK_FULL,
    NEED_MORE,
    NO_EVENT,
    ODD,
    STRINGS_FULL,
)

PADDING = 64

# Positions in the state vector. HINT is where an odd event seems to end, or -1.
ROWS, STRINGS, ARENA, REPAIRED_COMMAS, HINT = 0, 1, 2, 3, 4

_QUOTES = np.uint64(0x2222222222222222)
_SLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES = np.uint64(0x2020202020202020)
_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x243F6A8885A308D3)
_ZEROS = np.uint64(0x3030303030303030)
_SIXES = np.uint64(0x0606060606060606)
_NOT_DIGIT = np.uint64(0xF0F0F0F0F0F0F0F0)
_EVEN_PAIRS = np.uint64(0x000000FF000000FF)
_WEIGHT_HIGH = np.uint64(0x000F424000000064)
_WEIGHT_LOW = np.uint64(0x0000271000000001)
_TEN_TO = np.array([10**k for k in range(9)], dtype=np.int64)
_MOST_US = np.int64((1 << 62) // 1000)


def _as_word(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(text.encode(), "little"))


# Top-level keys with their closing quote, as the word that a load of eight bytes gives.
_PH, _TS, _CAT, _DUR = _as_word('ph"'), _as_word('ts"'), _as_word('cat"'), _as_word('dur"')
_PID, _TID, _NAME, _ARGS = (
    _as_word('pid"'),
    _as_word('tid"'),
    _as_word('name"'),
    _as_word('args"'),
)
_LOW3, _LOW4, _LOW5 = np.uint64(0xFFFFFF), np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFF)


@intrinsic
def _word(typing_context, address, index):  # noqa: ARG001
    """Load the eight bytes at ``address + index``, whatever their alignment."""

    def generate(context, builder, signature, args):  # noqa: ARG001
        pointer = builder.inttoptr(builder.add(args[0], args[1]), ir.IntType(64).as_pointer())
        value = builder.load(pointer)
        value.align = 1
        return value

    return types.uint64(types.int64, types.int64), generate


@intrinsic
def _byte(typing_context, address, index):  # noqa: ARG001
    """Load the byte at ``address + index``."""

    def generate(context, builder, signature, args):  # noqa: ARG001
        pointer = builder.inttoptr(builder.add(args[0], args[1]), ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _first_set(typing_context, value):  # noqa: ARG001
    """Count the zero bits below the lowest set bit."""

    def generate(context, builder, signature, args):  # noqa: ARG001
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@nb.njit(inline="always")
def _mix(mixed, word):
    mixed = (mixed ^ word) * _MULTIPLIER
    return mixed ^ (mixed >> np.uint64(32))


@nb.njit(inline="always")
def _low_bytes(word, count):
    """Keep the first ``count`` (0 to 7) bytes of a word."""
    return word & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))


@nb.njit(nogil=True)
def _hash(buf, start, end):
    """Hash the bytes from ``start`` to ``end``; equals the hash that :func:`_string` gives."""
    mixed = _SEED
    while start + 8 <= end:
        mixed = _mix(mixed, _word(buf, start))
        start += 8
    return _mix(mixed, _low_bytes(_word(buf, start), end - start) ^ np.uint64(end - start + 1))


@nb.njit(cache=True, nogil=True)
def hash_bytes(buf, start, end):
    """Hash ``buf[start:end]`` of a padded array."""
    return _hash(np.int64(buf.ctypes.data), start, end)


@nb.njit(nogil=True)
def _space(buf, i, n):
    """Skip JSON white space; the common cases are none, and a line break with indent."""
    while i < n:
        byte = _byte(buf, i)
        if byte > 32:
            return i
        if byte == 32 or byte == 10 or byte == 13 or byte == 9:
            i += 1
            while i < n and _word(buf, i) == _SPACES:
                i += 8
        else:
            return i
    return i


@nb.njit(nogil=True)
def _string(buf, i, n):
    """Find the closing quote of the string whose first byte is at ``i``.

    Returns ``(end, hash, plain)``; ``end`` is -1 if the input ends inside the string
    and -2 at an escape that JSON does not know; ``plain`` is False if the string has
    escapes or control characters, and then the hash is not that of its bytes.
    """
    start = i
    mixed = _SEED
    plain = True
    while i < n:
        word = _word(buf, i)
        quote = word ^ _QUOTES
        slash = word ^ _SLASHES
        found = (
            ((quote - _ONES) & ~quote) | ((slash - _ONES) & ~slash) | ((word - _SPACES) & ~word)
        ) & _TOPS
        if found == np.uint64(0):
            mixed = _mix(mixed, word)
            i += 8
            continue
        at = _first_set(found) >> 3
        byte = _byte(buf, i + at)
        if byte == 34 and i + at < n and plain:
            return i + at, _mix(mixed, _low_bytes(word, at) ^ np.uint64(at + 1)), True
        i += at
        if i >= n:
            return -1, mixed, plain
        if byte == 34:
            return i, _hash(buf, start, i), False
        plain = False
        if byte == 92:
            if i + 1 >= n:
                return -1, mixed, plain
            after = _byte(buf, i + 1)
            if not (
                after == 34 or after == 92 or after == 47 or after == 98 or after == 102
                or after == 110 or after == 114 or after == 116 or after == 117
            ):  # fmt: skip
                return -2, mixed, plain
            i += 1
        i += 1
    return -1, mixed, plain


@nb.njit(nogil=True)
def _control(buf, start, end):
    """Say whether ``buf[start:end]`` holds a control character."""
    for i in range(start, end):  # noqa: SIM110 - compiled, a generator is not
        if _byte(buf, i) < 32:
            return True
    return False


@nb.njit(nogil=True)
def _nested(buf, i, n):
    """Skip the array or object that opens at ``i``; -1 if it does not end, -2 if damaged."""
    depth = 0
    while i < n:
        byte = _byte(buf, i)
        if byte == 34:
            end, _, plain = _string(buf, i + 1, n)
            if end < 0:
                return end
            if not plain and _control(buf, i + 1, end):
                return -2
            i = end
        elif byte == 91 or byte == 123:
            depth += 1
        elif byte == 93 or byte == 125:
            depth -= 1
            if depth == 0:
                return i + 1
        elif byte == 78 or byte == 73 or (byte == 110 and _byte(buf, i + 1) != 117) or byte == 105:
            return -2  # NaN, Infinity, nan, inf
        i += 1
    return -1


@nb.njit(inline="always")
def _eight_digits(buf, i):
    """Read up to eight decimal digits at ``i``: ``(count, value)``."""
    word = _word(buf, i) ^ _ZEROS
    # The top bit of a byte tells that it is no digit: 6 more than 9 carries into it.
    other = ((word + _SIXES) | word) & _NOT_DIGIT
    if other == np.uint64(0):
        count = np.int64(8)
    else:
        count = _first_set(other) >> 3
        if count == 0:
            return np.int64(0), np.int64(0)
        word = word << np.uint64(64 - 8 * count)
    # Neighbours are joined pairwise: digits to tens, tens to ten thousands, those to the value.
    word = word * np.uint64(10) + (word >> np.uint64(8))
    pairs = word & _EVEN_PAIRS
    others = (word >> np.uint64(16)) & _EVEN_PAIRS
    return count, np.int64((pairs * _WEIGHT_HIGH + others * _WEIGHT_LOW) >> np.uint64(32))


@nb.njit(nogil=True)
def _digits(buf, i):
    """Read all decimal digits at ``i``: ``(end, value)``; valid for at most 18 digits."""
    count, value = _eight_digits(buf, i)
    end = i + count
    while count == 8:
        count, more = _eight_digits(buf, end)
        value = value * _TEN_TO[count] + more
        end += count
    return end, value


@nb.njit(nogil=True)
def _integer(buf, i, n):
    """Read an integer of at most 18 digits: ``(end, regular, value)``; end -1: input ended."""
    negative = _byte(buf, i) == 45
    if negative:
        i += 1
    start = i
    i, value = _digits(buf, i)
    if i >= n:
        return np.int64(-1), False, value
    digits = i - start
    regular = 0 < digits <= 18 and not (_byte(buf, start) == 48 and digits > 1)
    if _byte(buf, i) == 46 or _byte(buf, i) == 101 or _byte(buf, i) == 69:
        return np.int64(i), False, value
    return np.int64(i), regular, -value if negative else value


@nb.njit(nogil=True)
def _nanoseconds(buf, i, n):
    """Read microseconds with any number of decimals as ns: ``(end, regular, value)``.

    Rounds to the nearest ns, halves to the even one, as :class:`decimal.Decimal` does.
    """
    negative = _byte(buf, i) == 45
    if negative:
        i += 1
    start = i
    i, value = _digits(buf, i)
    digits = i - start
    # Epoch microseconds have 16 digits; the limit is the year 2116.
    regular = 0 < digits <= 16 and value < _MOST_US and not (_byte(buf, start) == 48 and digits > 1)
    value *= 1000
    if _byte(buf, i) == 46:
        i += 1
        first = i
        scale = np.int64(100)
        above, rest = np.int64(0), False
        while _byte(buf, i) >= 48 and _byte(buf, i) <= 57:
            digit = np.int64(_byte(buf, i) - 48)
            if i - first < 3:
                value += digit * scale
                scale //= 10
            elif i - first == 3:
                above = digit
            elif digit > 0:
                rest = True
            i += 1
        regular = regular and i > first
        if above > 5 or (above == 5 and (rest or value & 1 == 1)):
            value += 1
    if i >= n:
        return np.int64(-1), False, value
    if _byte(buf, i) == 101 or _byte(buf, i) == 69:
        regular = False
    return np.int64(i), regular, -value if negative else value


@nb.njit(nogil=True)
def _scalar(buf, i, n):
    """Skip a number, true, false or null: ``(end, regular)``; end -1: input ended."""
    byte = _byte(buf, i)
    if byte == 116 or byte == 110:
        length = 4
        word = _word(buf, i) & _LOW4
        regular = word == np.uint64(0x65757274) or word == np.uint64(0x6C6C756E)
    elif byte == 102:
        length = 5
        regular = (_word(buf, i) & _LOW5) == np.uint64(0x65736C6166)
    else:
        return _number(buf, i, n)
    if i + length >= n:
        return np.int64(-1), False
    return np.int64(i + length), regular


@nb.njit(nogil=True)
def _number(buf, i, n):
    if _byte(buf, i) == 45:
        i += 1
    start = i
    while _byte(buf, i) >= 48 and _byte(buf, i) <= 57:
        i += 1
    regular = i > start and not (_byte(buf, start) == 48 and i - start > 1)
    if _byte(buf, i) == 46:
        start = i + 1
        i += 1
        while _byte(buf, i) >= 48 and _byte(buf, i) <= 57:
            i += 1
        regular = regular and i > start
    if _byte(buf, i) == 101 or _byte(buf, i) == 69:
        i += 1
        if _byte(buf, i) == 43 or _byte(buf, i) == 45:
            i += 1
        start = i
        while _byte(buf, i) >= 48 and _byte(buf, i) <= 57:
            i += 1
        regular = regular and i > start
    if i >= n:
        return np.int64(-1), False
    return np.int64(i), regular


@nb.njit(nogil=True)
def _same(buf, i, arena, j, length):
    while length >= 8:
        if _word(buf, i) != _word(arena, j):
            return False
        i += 8
        j += 8
        length -= 8
    return _low_bytes(_word(buf, i) ^ _word(arena, j), length) == np.uint64(0)


@nb.njit(inline="always")
def _intern(buf, start, end, mixed, strings, state):
    # Inlined at its one place: a call would count references to five arrays every time.
    slots, offsets, lengths, hashes, arena = strings
    arena_at = np.int64(arena.ctypes.data)
    mask = np.int64(len(slots) - 1)
    slot = np.int64(mixed >> np.uint64(20)) & mask
    length = end - start
    code = np.int64(slots[slot])
    while code >= 0 and not (
        hashes[code] == mixed
        and lengths[code] == length
        and _same(buf, start, arena_at, offsets[code], length)
    ):
        slot = (slot + 1) & mask
        code = np.int64(slots[slot])
    if code < 0:
        at = state[ARENA]
        fits = 2 * (state[STRINGS] + 1) <= len(slots) and state[STRINGS] < len(offsets)
        if fits and at + length + PADDING <= len(arena):
            code = state[STRINGS]
            for k in range(length):
                arena[at + k] = _byte(buf, start + k)
            offsets[code] = at
            lengths[code] = length
            hashes[code] = mixed
            slots[slot] = code
            state[STRINGS] = code + 1
            state[ARENA] = at + length
    return code


@nb.njit(cache=True, nogil=True)
def intern(buf, start, end, mixed, strings, state):
    """Return the code of the text ``buf[start:end]``, a new one if it was not seen yet.

    Returns -1 if there is no room for a new text: call :func:`rehash` after growing.
    """
    return _intern(np.int64(buf.ctypes.data), start, end, mixed, strings, state)


@nb.njit(cache=True, nogil=True)
def rehash(slots, hashes, count):
    """Fill the empty hash table ``slots`` with the first ``count`` codes."""
    mask = np.int64(len(slots) - 1)
    for code in range(count):
        slot = np.int64(hashes[code] >> np.uint64(20)) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = code


@nb.njit(inline="always")
def _find_key(mixed, length, key_slots, key_hashes, key_lengths):
    mask = np.int64(len(key_slots) - 1)
    slot = np.int64(mixed >> np.uint64(20)) & mask
    key = np.int64(key_slots[slot])
    while key >= 0 and not (key_hashes[key] == mixed and key_lengths[key] == length):
        slot = (slot + 1) & mask
        key = np.int64(key_slots[slot])
    return key


@nb.njit(nogil=True)
def _close_event(buf, i, n):
    """Find where the event that opens at ``i`` seems to end; below 0 if it does not."""
    depth = 0
    while i < n:
        byte = _byte(buf, i)
        if byte == 34:
            end, _, _ = _string(buf, i + 1, n)
            if end < 0:
                return end
            i = end
        elif byte == 91 or byte == 123:
            depth += 1
        elif byte == 93 or byte == 125:
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return -1


@nb.njit(cache=True, nogil=True)
def scan(data, pos, n, rows, keys, strings, state):
    """Scan events from ``pos`` until the array ends, the input ends or a block is full.

    Parameters
    ----------
    data, pos, n
        Padded input, where to start (at an event, a comma or the closing bracket) and
        its length.
    rows
        ``(ph, flags, ts, dur, name, cat, pid, tid, values, seen, skipped)``:
        columns to fill, see :class:`workbench.load._blocks.Block`.
    keys
        ``(slots, hashes, lengths, types)`` of the wanted arguments.
    strings
        ``(slots, offsets, lengths, hashes, arena)`` of the interned texts.
    state
        int64 vector: rows, strings, bytes in the arena, commas that were missing or extra.

    Returns
    -------
    tuple of int
        Position and what was found there. Unless it is the array's end, the position is
        the start of the first event that is not in the columns yet.
    """
    ph, flags, ts, dur, name, cat, pid, tid, values, seen, skipped = rows
    key_slots, key_hashes, key_lengths, key_types = keys
    buf = np.int64(data.ctypes.data)
    row = state[ROWS]
    i = np.int64(pos)
    after_event = False
    while True:
        # Between events: white space, one comma, or the end of the array.
        i = _space(buf, i, n)
        comma = i < n and _byte(buf, i) == 44
        resume = i
        if comma:
            i = _space(buf, i + 1, n)
        if i >= n:
            state[ROWS] = row
            return resume, NEED_MORE
        if _byte(buf, i) == 93:
            state[REPAIRED_COMMAS] += comma
            state[ROWS] = row
            return i + 1, ARRAY_END
        if _byte(buf, i) != 123:
            state[ROWS] = row
            return i, NO_EVENT
        if after_event and not comma:
            state[REPAIRED_COMMAS] += 1
        if row >= len(ph):
            state[ROWS] = row
            return i, BLOCK_FULL

        begin = i
        kind, marks = np.int64(0), 0
        name_code, cat_code = np.int64(-1), np.int64(-1)
        pid_code, tid_code = np.int64(-1), np.int64(-1)
        ts_ns, dur_ns = np.int64(0), np.int64(0)
        args_seen, in_args, status = False, False, 0
        wrote = False
        expect_key = False
        i += 1
        while True:
            # One key and its value, or the end of the object.
            i = _space(buf, i, n)
            if i >= n:
                status = 1
                break
            byte = _byte(buf, i)
            if byte == 125 and not expect_key:
                i += 1
                if not in_args:
                    break
                in_args = False
                i = _space(buf, i, n)
                if i < n and _byte(buf, i) == 44:
                    i += 1
                    expect_key = True
                elif i < n and _byte(buf, i) != 125:
                    status = 2
                    break
                continue
            if byte != 34:
                status = 2
                break
            expect_key = False
            start = i + 1
            which = 0
            slot = np.int64(-1)
            if not in_args:
                word = _word(buf, start)
                end = start
                if word & _LOW3 == _PH:
                    which, end = 1, start + 2
                elif word & _LOW3 == _TS:
                    which, end = 2, start + 2
                elif word & _LOW4 == _DUR:
                    which, end = 3, start + 3
                elif word & _LOW5 == _NAME:
                    which, end = 4, start + 4
                elif word & _LOW4 == _CAT:
                    which, end = 5, start + 3
                elif word & _LOW4 == _PID:
                    which, end = 6, start + 3
                elif word & _LOW4 == _TID:
                    which, end = 7, start + 3
                elif word & _LOW5 == _ARGS:
                    which, end = 8, start + 4
            if which == 0:
                end, mixed, plain = _string(buf, start, n)
                if end < 0:
                    status = 1 if end == -1 else 3
                    break
                if not plain:
                    status = 2
                    break
                if in_args:
                    slot = _find_key(mixed, end - start, key_slots, key_hashes, key_lengths)
            i = end + 1
            if i < n and _byte(buf, i) != 58:
                i = _space(buf, i, n)
            if i >= n:
                status = 1
                break
            if _byte(buf, i) != 58:
                status = 2
                break
            i = _space(buf, i + 1, n)
            if i >= n:
                status = 1
                break
            byte = _byte(buf, i)
            is_text = False
            first, last = i, i

            if which == 8 and byte == 123:
                if args_seen:
                    status = 2
                    break
                args_seen = True
                in_args = True
                i += 1
                continue
            if byte == 34:
                end, mixed, plain = _string(buf, i + 1, n)
                if end < 0:
                    status = 1 if end == -1 else 3
                    break
                if which == 2 or which == 3 or which == 8:
                    status = 2
                    break
                if not plain and _control(buf, i + 1, end):
                    status = 2
                    break
                if which == 1:
                    if end != i + 2:
                        status = 2
                        break
                    kind = np.int64(_byte(buf, i + 1))
                elif which >= 4 or (slot >= 0 and key_types[slot] != INTEGER):
                    first, last = i + 1, end
                    if slot >= 0 and key_types[slot] == TOKEN:
                        first, last = i, end + 1
                        mixed = _hash(buf, first, last)
                    is_text = True
                elif slot >= 0:
                    # Numbers written as text: some ROCm builds do so for streams.
                    last, regular, value = _integer(buf, i + 1, n)
                    if not regular or last != end:
                        status = 2
                        break
                    values[slot, row] = value
                    wrote = True
                i = end + 1
            elif which == 2 or which == 3:
                end, regular, value = _nanoseconds(buf, i, n)
                if end < 0:
                    status = 1
                    break
                if not regular:
                    status = 2
                    break
                if which == 2:
                    ts_ns = value
                    marks |= HAS_TIME
                else:
                    dur_ns = value
                    marks |= HAS_DUR
                i = end
            elif slot >= 0 and key_types[slot] == INTEGER:
                end, regular, value = _integer(buf, i, n)
                if end < 0:
                    status = 1
                    break
                if not regular:
                    status = 2
                    break
                values[slot, row] = value
                wrote = True
                i = end
            elif byte == 91 or byte == 123:
                if which != 0:
                    status = 2
                    break
                end = _nested(buf, i, n)
                if end < 0:
                    status = 1 if end == -1 else 2
                    break
                if slot >= 0:
                    if key_types[slot] != TOKEN:
                        status = 2
                        break
                    first, last, mixed, is_text = i, end, _hash(buf, i, end), True
                i = end
            else:
                end, regular = _scalar(buf, i, n)
                if end < 0:
                    status = 1
                    break
                number = byte == 45 or (byte >= 48 and byte <= 57)
                if not regular or (which > 0 and not (number and (which == 6 or which == 7))):
                    status = 2
                    break
                if which > 0 or slot >= 0:
                    if slot >= 0 and key_types[slot] == TEXT:
                        status = 2
                        break
                    first, last, mixed, is_text = i, end, _hash(buf, i, end), True
                i = end

            if is_text:
                code = _intern(buf, first, last, mixed, strings, state)
                if code < 0:
                    status = 4
                    break
                if which == 4:
                    name_code = code
                elif which == 5:
                    cat_code = code
                elif which == 6:
                    pid_code = code
                elif which == 7:
                    tid_code = code
                else:
                    values[slot, row] = code
                    wrote = True

            # After a value: a comma or the end of the object.
            if i < n and _byte(buf, i) != 44 and _byte(buf, i) != 125:
                i = _space(buf, i, n)
            if i >= n:
                status = 1
                break
            if _byte(buf, i) == 44:
                i += 1
                expect_key = True
            elif _byte(buf, i) != 125:
                status = 2
                break

        if status != 0:
            if wrote:
                for slot in range(len(key_types)):
                    values[slot, row] = MISSING
            state[ROWS] = row
            if status == 1:
                return begin, NEED_MORE
            if status == 4:
                return begin, STRINGS_FULL
            state[HINT] = _close_event(buf, begin, n) if status == 2 else -1
            return begin, ODD
        if kind != 88 and kind != 105 and kind != 73 and kind != 66 and kind != 69:
            # Flow arrows, counters and metadata are counted, not kept.
            skipped[kind] += 1
            if wrote:
                for slot in range(len(key_types)):
                    values[slot, row] = MISSING
            after_event = True
            continue
        if wrote:
            for slot in range(len(key_types)):
                if values[slot, row] != MISSING:
                    seen[slot] += 1
        ph[row] = kind
        flags[row] = marks
        ts[row] = ts_ns
        dur[row] = dur_ns
        name[row] = name_code
        cat[row] = cat_code
        pid[row] = pid_code
        tid[row] = tid_code
        row += 1
        after_event = True
