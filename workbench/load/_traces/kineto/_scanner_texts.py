"""Compiled numbering of texts: a hash table whose arrays are grown from outside."""

# mypy: ignore-errors

from __future__ import annotations

import numba as nb
import numpy as np

from workbench.load._traces.kineto._scanner_tokens import PADDING, byte_at, same_bytes

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


@nb.njit(cache=True, nogil=True)
def intern(buf, start, end, mixed, strings, state):
    """Return the code of the text ``buf[start:end]``, a new one if it was not seen yet.

    Returns -1 if there is no room for a new text: call :func:`rehash` after growing.
    """
    return intern_at(np.int64(buf.ctypes.data), start, end, mixed, strings, state)


@nb.njit(cache=True, nogil=True)
def rehash(slots, hashes, count):
    """Fill the empty hash table ``slots`` with the first ``count`` codes."""
    mask = np.int64(len(slots) - 1)
    for code in range(count):
        slot = np.int64(hashes[code] >> np.uint64(20)) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = code
