"""Compiled reading of JSON tokens: the small steps of ``kineto._scanner``.

Contract: addresses point at ``n`` bytes of input and at least :data:`PADDING` readable zero bytes
after them. Every load of eight bytes starts below ``n``, and that is the one bound that keeps all
reads inside the buffer.
"""

# mypy: ignore-errors
# ruff: noqa: C901, PLR0912 - small state machines

from __future__ import annotations

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from workbench._shared.compiled import compiled

PADDING = 64


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
_LOW4, _LOW5 = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFF)
_MOST_US = np.int64((1 << 62) // 1000)


@intrinsic
def word_at(typing_context, address, index):  # noqa: ARG001
    """Load the eight bytes at ``address + index``, whatever their alignment."""

    def generate(context, builder, signature, args):  # noqa: ARG001
        pointer = builder.inttoptr(builder.add(args[0], args[1]), ir.IntType(64).as_pointer())
        value = builder.load(pointer)
        value.align = 1
        return value

    return types.uint64(types.int64, types.int64), generate


@intrinsic
def byte_at(typing_context, address, index):  # noqa: ARG001
    def generate(context, builder, signature, args):  # noqa: ARG001
        pointer = builder.inttoptr(builder.add(args[0], args[1]), ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def first_set(typing_context, value):  # noqa: ARG001

    def generate(context, builder, signature, args):  # noqa: ARG001
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@nb.njit(inline="always")
def mix(mixed, word):
    mixed = (mixed ^ word) * _MULTIPLIER
    return mixed ^ (mixed >> np.uint64(32))


@nb.njit(inline="always")
def low_bytes(word, count):
    return word & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))


@nb.njit(nogil=True)
def hash_at(buf, start, end):
    """Hash the bytes from ``start`` to ``end``; equals the hash that :func:`string_end` gives."""
    mixed = _SEED
    while start + 8 <= end:
        mixed = mix(mixed, word_at(buf, start))
        start += 8
    return mix(mixed, low_bytes(word_at(buf, start), end - start) ^ np.uint64(end - start + 1))


@compiled(nogil=True)
def hash_bytes(buf, start, end):
    return hash_at(np.int64(buf.ctypes.data), start, end)


@nb.njit(nogil=True)
def skip_space(buf, i, n):
    """Skip JSON white space; the common cases are none, and a line break with indent."""
    while i < n:
        byte = byte_at(buf, i)
        if byte > 32:
            return i
        if byte == 32 or byte == 10 or byte == 13 or byte == 9:
            i += 1
            while i < n and word_at(buf, i) == _SPACES:
                i += 8
        else:
            return i
    return i


@nb.njit(nogil=True)
def string_end(buf, i, n):
    """Find the closing quote of the string whose first byte is at ``i``.

    Returns ``(end, hash, plain)``; ``end`` is -1 if the input ends inside the string and -2 at an
    escape that JSON does not know; ``plain`` is False if the string has escapes or control
    characters, and then the hash is not that of its bytes.
    """
    start = i
    mixed = _SEED
    plain = True
    while i < n:
        word = word_at(buf, i)
        quote = word ^ _QUOTES
        slash = word ^ _SLASHES
        # The zero-byte test on eight bytes at once. A borrow may mark bytes behind the first hit
        # wrongly, and only the first hit is used.
        special = (
            ((quote - _ONES) & ~quote) | ((slash - _ONES) & ~slash) | ((word - _SPACES) & ~word)
        ) & _TOPS
        if special == np.uint64(0):
            mixed = mix(mixed, word)
            i += 8
            continue
        at = first_set(special) >> 3
        byte = byte_at(buf, i + at)
        if byte == 34 and i + at < n and plain:
            return i + at, mix(mixed, low_bytes(word, at) ^ np.uint64(at + 1)), True
        i += at
        if i >= n:
            return -1, mixed, plain
        if byte == 34:
            return i, hash_at(buf, start, i), False
        plain = False
        if byte == 92:
            if i + 1 >= n:
                return -1, mixed, plain
            after = byte_at(buf, i + 1)
            if not (
                after == 34 or after == 92 or after == 47 or after == 98 or after == 102
                or after == 110 or after == 114 or after == 116 or after == 117
            ):  # fmt: skip
                return -2, mixed, plain
            i += 1
        i += 1
    return -1, mixed, plain


@nb.njit(nogil=True)
def has_control(buf, start, end):
    for i in range(start, end):  # noqa: SIM110 - compiled, a generator is not
        if byte_at(buf, i) < 32:
            return True
    return False


@nb.njit(nogil=True)
def nested_end(buf, i, n):
    """Skip the array or object that opens at ``i``; -1 if it does not end, -2 if damaged."""
    depth = 0
    while i < n:
        byte = byte_at(buf, i)
        if byte == 34:
            end, _, plain = string_end(buf, i + 1, n)
            if end < 0:
                return end
            # Raw control characters are for the general parser, which counts them as repaired.
            if not plain and has_control(buf, i + 1, end):
                return -2
            i = end
        elif byte == 91 or byte == 123:
            depth += 1
        elif byte == 93 or byte == 125:
            depth -= 1
            if depth == 0:
                return i + 1
        elif (
            byte == 78 or byte == 73 or (byte == 110 and byte_at(buf, i + 1) != 117) or byte == 105
        ):
            return -2  # NaN, Infinity, nan, inf
        i += 1
    return -1


@nb.njit(inline="always")
def eight_digits(buf, i):
    """Read up to eight decimal digits at ``i``: ``(count, value)``."""
    word = word_at(buf, i) ^ _ZEROS
    # The top bit of a byte tells that it is no digit: 6 more than 9 carries into it.
    no_digit = ((word + _SIXES) | word) & _NOT_DIGIT
    if no_digit == np.uint64(0):
        count = np.int64(8)
    else:
        count = first_set(no_digit) >> 3
        if count == 0:
            return np.int64(0), np.int64(0)
        word = word << np.uint64(64 - 8 * count)
    # Neighbours are joined pairwise: digits to tens, tens to ten thousands, those to the value.
    word = word * np.uint64(10) + (word >> np.uint64(8))
    pairs = word & _EVEN_PAIRS
    odd_pairs = (word >> np.uint64(16)) & _EVEN_PAIRS
    return count, np.int64((pairs * _WEIGHT_HIGH + odd_pairs * _WEIGHT_LOW) >> np.uint64(32))


@nb.njit(nogil=True)
def digits_at(buf, i):
    """Read all decimal digits at ``i``: ``(end, value)``; valid for at most 18 digits."""
    count, value = eight_digits(buf, i)
    end = i + count
    while count == 8:
        count, more = eight_digits(buf, end)
        value = value * _TEN_TO[count] + more
        end += count
    return end, value


@nb.njit(nogil=True)
def integer_at(buf, i, n):
    """Read an integer of at most 18 digits: ``(end, regular, value)``; end -1: input ended."""
    negative = byte_at(buf, i) == 45
    if negative:
        i += 1
    start = i
    i, value = digits_at(buf, i)
    if i >= n:
        return np.int64(-1), False, value
    digits = i - start
    regular = 0 < digits <= 18 and not (byte_at(buf, start) == 48 and digits > 1)
    if byte_at(buf, i) == 46 or byte_at(buf, i) == 101 or byte_at(buf, i) == 69:
        return np.int64(i), False, value
    return np.int64(i), regular, -value if negative else value


@nb.njit(nogil=True)
def nanoseconds_at(buf, i, n):
    """Read microseconds with any number of decimals as ns: ``(end, regular, value)``.

    Rounds to the nearest ns, halves to the even one, as :class:`decimal.Decimal` does.
    """
    negative = byte_at(buf, i) == 45
    if negative:
        i += 1
    start = i
    i, value = digits_at(buf, i)
    digits = i - start
    # Epoch microseconds have 16 digits; the limit is the year 2116.
    regular = (
        0 < digits <= 16 and value < _MOST_US and not (byte_at(buf, start) == 48 and digits > 1)
    )
    value *= 1000
    if byte_at(buf, i) == 46:
        i += 1
        first = i
        scale = np.int64(100)
        above, has_more = np.int64(0), False
        while byte_at(buf, i) >= 48 and byte_at(buf, i) <= 57:
            digit = np.int64(byte_at(buf, i) - 48)
            if i - first < 3:
                value += digit * scale
                scale //= 10
            elif i - first == 3:
                above = digit
            elif digit > 0:
                has_more = True
            i += 1
        regular = regular and i > first
        if above > 5 or (above == 5 and (has_more or value & 1 == 1)):
            value += 1
    if i >= n:
        return np.int64(-1), False, value
    if byte_at(buf, i) == 101 or byte_at(buf, i) == 69:
        regular = False
    return np.int64(i), regular, -value if negative else value


@nb.njit(nogil=True)
def scalar_end(buf, i, n):
    """Skip a number, true, false or null: ``(end, regular)``; end -1: input ended."""
    byte = byte_at(buf, i)
    if byte == 116 or byte == 110:
        length = 4
        word = word_at(buf, i) & _LOW4
        regular = word == np.uint64(0x65757274) or word == np.uint64(0x6C6C756E)
    elif byte == 102:
        length = 5
        regular = (word_at(buf, i) & _LOW5) == np.uint64(0x65736C6166)
    else:
        return number_end(buf, i, n)
    if i + length >= n:
        return np.int64(-1), False
    return np.int64(i + length), regular


@nb.njit(nogil=True)
def skip_digits(buf, i):
    while byte_at(buf, i) >= 48 and byte_at(buf, i) <= 57:
        i += 1
    return i


@nb.njit(nogil=True)
def number_end(buf, i, n):
    if byte_at(buf, i) == 45:
        i += 1
    start = i
    i = skip_digits(buf, i)
    regular = i > start and not (byte_at(buf, start) == 48 and i - start > 1)
    if byte_at(buf, i) == 46:
        start = i + 1
        i = skip_digits(buf, start)
        regular = regular and i > start
    if byte_at(buf, i) == 101 or byte_at(buf, i) == 69:
        i += 1
        if byte_at(buf, i) == 43 or byte_at(buf, i) == 45:
            i += 1
        start = i
        i = skip_digits(buf, start)
        regular = regular and i > start
    if i >= n:
        return np.int64(-1), False
    return np.int64(i), regular


@nb.njit(nogil=True)
def same_bytes(buf, i, arena, j, length):
    while length >= 8:
        if word_at(buf, i) != word_at(arena, j):
            return False
        i += 8
        j += 8
        length -= 8
    return low_bytes(word_at(buf, i) ^ word_at(arena, j), length) == np.uint64(0)
