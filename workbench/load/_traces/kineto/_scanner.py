"""A compiled scanner that turns the bytes of a Kineto event array into columns.

It walks every event once and keeps only what the events table needs; everything else is skipped by
structure. It accepts plain, regular events only. At an event with anything unusual in it the
scanner stops and leaves that event to the general parser
(:mod:`workbench.load._files.json_events`), so this file never decides what is legal.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from workbench._shared.compiled import compiled
from workbench.load._traces.kineto._scanner_tokens import (
    PADDING,
    byte_at,
    has_control,
    hash_at,
    integer_at,
    nanoseconds_at,
    nested_end,
    same_bytes,
    scalar_end,
    skip_space,
    string_end,
    word_at,
)
from workbench.load._traces.kineto.blocks import (
    ARRAY_END,
    BLOCK_FULL,
    HAS_DUR,
    HAS_TIME,
    INTEGER,
    MISSING,
    NEED_MORE,
    NO_EVENT,
    ODD,
    STRINGS_FULL,
    TEXT,
    TOKEN,
)

# mypy: ignore-errors
# ruff: noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917 - one flat loop per state machine


def _as_word(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(text.encode(), "little"))


# Top-level keys with their closing quote, as the word that a load of eight bytes gives.
_PH, _TS, _CAT, _DUR = _as_word('ph"'), _as_word('ts"'), _as_word('cat"'), _as_word('dur"')
_PID, _TID, _NAME, _ARGS = (_as_word(f'{key}"') for key in ("pid", "tid", "name", "args"))
_LOW3, _LOW4, _LOW5 = np.uint64(0xFFFFFF), np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFF)


@nb.njit(inline="always")
def _find_key(mixed, length, key_slots, key_hashes, key_lengths):
    # Open addressing in a table that is a quarter full at most, so the search always ends.
    mask = np.int64(len(key_slots) - 1)
    slot = np.int64(mixed >> np.uint64(20)) & mask
    key = np.int64(key_slots[slot])
    while key >= 0 and not (key_hashes[key] == mixed and key_lengths[key] == length):
        slot = (slot + 1) & mask
        key = np.int64(key_slots[slot])
    return key


@nb.njit(nogil=True)
def _close_event(buf, i, n):
    depth = 0
    while i < n:
        byte = byte_at(buf, i)
        if byte == 34:
            end, _, _ = string_end(buf, i + 1, n)
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


@compiled(nogil=True)
def scan(data, pos, n, rows, keys, strings, state):
    """Scan events from ``pos`` until the array ends, the input ends or a block is full.

    ``data`` is padded input of ``n`` bytes, ``pos`` an event, a comma or the closing bracket in it.
    ``rows`` are the columns to fill (:class:`workbench.load._traces.kineto.blocks.Block`), ``keys``
    the ``(slots, hashes, lengths, types)`` of the wanted arguments, ``strings`` the ``(slots,
    offsets, lengths, hashes, arena)`` of the interned texts, ``state`` counts by position.

    Returns the position and what was found there. Unless it is the array's end, the position is the
    start of the first event that is not in the columns yet.
    """
    ph, flags, ts, dur, name, cat, pid, tid, values, seen, skipped = rows
    key_slots, key_hashes, key_lengths, key_types = keys
    buf = np.int64(data.ctypes.data)
    row = state[ROWS]
    i = np.int64(pos)
    after_event = False
    while True:
        # Between events: white space, one comma, or the end of the array.
        i = skip_space(buf, i, n)
        comma = i < n and byte_at(buf, i) == 44
        resume = i
        if comma:
            i = skip_space(buf, i + 1, n)
        if i >= n:
            state[ROWS] = row
            return resume, NEED_MORE
        if byte_at(buf, i) == 93:
            state[REPAIRED_COMMAS] += comma
            state[ROWS] = row
            return i + 1, ARRAY_END
        if byte_at(buf, i) != 123:
            state[ROWS] = row
            return i, NO_EVENT
        if after_event and not comma:
            state[REPAIRED_COMMAS] += 1
        if row >= len(ph):
            state[ROWS] = row
            return i, BLOCK_FULL

        begin = i
        # status: 1 the input ends inside the event, 2 it is odd, 3 it has an escape that JSON does
        # not know, 4 there is no room for a text.
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
            i = skip_space(buf, i, n)
            if i >= n:
                status = 1
                break
            byte = byte_at(buf, i)
            if byte == 125 and not expect_key:
                i += 1
                if not in_args:
                    break
                in_args = False
                i = skip_space(buf, i, n)
                if i < n and byte_at(buf, i) == 44:
                    i += 1
                    expect_key = True
                elif i < n and byte_at(buf, i) != 125:
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
                word = word_at(buf, start)
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
                end, mixed, plain = string_end(buf, start, n)
                if end < 0 or not plain:
                    status = 2 if end >= 0 else 1 if end == -1 else 3
                    break
                if in_args:
                    slot = _find_key(mixed, end - start, key_slots, key_hashes, key_lengths)
            i = end + 1
            if i < n and byte_at(buf, i) != 58:
                i = skip_space(buf, i, n)
            if i >= n or byte_at(buf, i) != 58:
                status = 1 if i >= n else 2
                break
            i = skip_space(buf, i + 1, n)
            if i >= n:
                status = 1
                break
            byte = byte_at(buf, i)
            is_text = False
            first, last = i, i

            if which == 8 and byte == 123:
                # Of two equal keys JSON keeps the last one; the general parser decides that.
                if args_seen:
                    status = 2
                    break
                args_seen = True
                in_args = True
                i += 1
                continue
            if byte == 34:
                end, mixed, plain = string_end(buf, i + 1, n)
                if end < 0:
                    status = 1 if end == -1 else 3
                    break
                is_odd = which == 2 or which == 3 or which == 8 or (which == 1 and end != i + 2)
                if is_odd or (not plain and has_control(buf, i + 1, end)):
                    status = 2
                    break
                if which == 1:
                    kind = np.int64(byte_at(buf, i + 1))
                elif which >= 4 or (slot >= 0 and key_types[slot] != INTEGER):
                    first, last = i + 1, end
                    if slot >= 0 and key_types[slot] == TOKEN:
                        first, last = i, end + 1
                        mixed = hash_at(buf, first, last)
                    is_text = True
                elif slot >= 0:
                    # Numbers written as text: some ROCm builds do so for streams.
                    last, regular, value = integer_at(buf, i + 1, n)
                    if not regular or last != end:
                        status = 2
                        break
                    values[slot, row] = value
                    wrote = True
                i = end + 1
            elif which == 2 or which == 3:
                end, regular, value = nanoseconds_at(buf, i, n)
                if end < 0 or not regular:
                    status = 1 if end < 0 else 2
                    break
                if which == 2:
                    ts_ns = value
                    marks |= HAS_TIME
                else:
                    dur_ns = value
                    marks |= HAS_DUR
                i = end
            elif slot >= 0 and key_types[slot] == INTEGER:
                end, regular, value = integer_at(buf, i, n)
                if end < 0 or not regular:
                    status = 1 if end < 0 else 2
                    break
                values[slot, row] = value
                wrote = True
                i = end
            elif byte == 91 or byte == 123:
                end = nested_end(buf, i, n)
                if which != 0 or end < 0 or (slot >= 0 and key_types[slot] != TOKEN):
                    status = 1 if which == 0 and end == -1 else 2
                    break
                if slot >= 0:
                    first, last, mixed, is_text = i, end, hash_at(buf, i, end), True
                i = end
            else:
                end, regular = scalar_end(buf, i, n)
                # Of the keys, only processes and threads may be numbers here.
                is_number = byte == 45 or (byte >= 48 and byte <= 57)
                is_id = is_number and (which == 6 or which == 7)
                is_odd = (which > 0 and not is_id) or (slot >= 0 and key_types[slot] == TEXT)
                if end < 0 or not regular or is_odd:
                    status = 1 if end < 0 else 2
                    break
                if which > 0 or slot >= 0:
                    first, last, mixed, is_text = i, end, hash_at(buf, i, end), True
                i = end

            if is_text:
                code = intern_at(buf, first, last, mixed, strings, state)
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
            if i < n and byte_at(buf, i) != 44 and byte_at(buf, i) != 125:
                i = skip_space(buf, i, n)
            if i >= n or (byte_at(buf, i) != 44 and byte_at(buf, i) != 125):
                status = 1 if i >= n else 2
                break
            if byte_at(buf, i) == 44:
                i += 1
                expect_key = True

        if status != 0:
            # What a stopped event wrote must not stay in the row of the next one.
            if wrote:
                values[:, row] = MISSING
            state[ROWS] = row
            if status == 1 or status == 4:
                return begin, NEED_MORE if status == 1 else STRINGS_FULL
            state[HINT] = _close_event(buf, begin, n) if status == 2 else -1
            return begin, ODD
        # The phases X, i, I, B and E, as in KEPT_PHASES.
        if kind != 88 and kind != 105 and kind != 73 and kind != 66 and kind != 69:
            # Flow arrows, counters and metadata are counted, not kept.
            skipped[kind] += 1
            if wrote:
                values[:, row] = MISSING
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


# Positions in the state vector. HINT is where an odd event seems to end, or -1.
ROWS, STRINGS, ARENA, REPAIRED_COMMAS, HINT = 0, 1, 2, 3, 4


@nb.njit(inline="always")
def intern_at(buf, start, end, mixed, strings, state):
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
        and same_bytes(buf, start, arena_at, offsets[code], length)
    ):
        slot = (slot + 1) & mask
        code = np.int64(slots[slot])
    if code < 0:
        at = state[ARENA]
        # Half full at the most: probes stay short, and an empty slot always ends them.
        fits = 2 * (state[STRINGS] + 1) <= len(slots) and state[STRINGS] < len(offsets)
        if fits and at + length + PADDING <= len(arena):
            code = state[STRINGS]
            for k in range(length):
                arena[at + k] = byte_at(buf, start + k)
            offsets[code] = at
            lengths[code] = length
            hashes[code] = mixed
            slots[slot] = code
            state[STRINGS] = code + 1
            state[ARENA] = at + length
    return code


@compiled(nogil=True)
def intern(buf, start, end, mixed, strings, state):
    """Return the code of the text ``buf[start:end]``, a new one if it was not seen yet.

    Returns -1 if there is no room for a new text: call :func:`rehash` after growing.
    """
    return intern_at(np.int64(buf.ctypes.data), start, end, mixed, strings, state)


@compiled(nogil=True)
def rehash(slots, hashes, count):
    """Fill the empty hash table ``slots`` with the first ``count`` codes."""
    mask = np.int64(len(slots) - 1)
    for code in range(count):
        slot = np.int64(hashes[code] >> np.uint64(20)) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = code
