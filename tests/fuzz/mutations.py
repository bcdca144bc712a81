"""Ways in which files come damaged, each drawn from a seeded generator."""

import bz2
import gzip
import io
import lzma
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable
from random import Random
from typing import NamedTuple

NUMBERS = (
    b"-1", b"0", b"-0", b"NaN", b"nan", b"Infinity", b"-inf", b"1e308", b"1e999999", b"9" * 400,
    b"-" + b"9" * 400, b"9" * 5000, b"9223372036854775808", b"18446744073709551616", b"0x10",
    b"1_000", b"1,5", b"", b"null", b"true", "\u0661\u0662".encode(), b"0" * 60 + b"1", b"1.7e-320",
)  # fmt: skip
ODD_BYTES = (b"\xff", b"\x00", b"\xed\xa0\x80", b"\\ud800", b"\x1b[31m", b"\xef\xbb\xbf", b"\r")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_TEXT_IN_QUOTES = re.compile(rb'"[^"\\]{1,40}"')


class Mutation(NamedTuple):
    """What became of a file, and whether something in it tells of the loss."""

    name: str
    data: bytes
    ending: str = ""
    is_told: bool = False


def _span(rng: Random, data: bytes, most: int = 2000) -> tuple[int, int]:
    start = rng.randrange(len(data))
    return start, min(len(data), start + rng.randint(1, most))


def cut(rng: Random, data: bytes) -> bytes:
    """Keep the beginning."""
    return data[: rng.randrange(len(data))]


def cut_in_front(rng: Random, data: bytes) -> bytes:
    """Keep the end."""
    return data[rng.randrange(len(data)) :]


def cut_lines(rng: Random, data: bytes) -> bytes:
    """Leave out whole lines."""
    lines = data.splitlines(keepends=True)
    start = rng.randrange(len(lines))
    del lines[start : start + rng.randint(1, 1 + len(lines) // 2)]
    return b"".join(lines)


def shuffle_lines(rng: Random, data: bytes) -> bytes:
    """Put the lines into another order."""
    lines = data.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


def flip(rng: Random, data: bytes) -> bytes:
    """Change single bits."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def insert(rng: Random, data: bytes) -> bytes:
    """Put noise in."""
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.choice((1, 4, 300))) + data[at:]


def insert_odd(rng: Random, data: bytes) -> bytes:
    """Put bytes in that are no text, or a text that no table can hold."""
    places = [match.start() + 1 for match in _TEXT_IN_QUOTES.finditer(data)]
    for _ in range(rng.choice((1, 5))):
        at = rng.choice(places) if places and rng.random() < 0.7 else rng.randrange(len(data))
        data = data[:at] + rng.choice(ODD_BYTES) + data[at:]
    return data


def delete(rng: Random, data: bytes) -> bytes:
    """Leave a stretch out."""
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def repeat(rng: Random, data: bytes) -> bytes:
    """Write a stretch again."""
    start, end = _span(rng, data, 20_000)
    return data[:end] + data[start:end] * rng.choice((1, 3)) + data[end:]


def zeros(rng: Random, data: bytes) -> bytes:
    """Overwrite a stretch with zero bytes, as a file system does after a crash."""
    start, end = _span(rng, data, 5000)
    return data[:start] + bytes(end - start) + data[end:]


def numbers(rng: Random, data: bytes) -> bytes:
    """Replace numbers by odd ones."""
    found = list(_NUMBER.finditer(data))
    for match in sorted(rng.sample(found, min(len(found), rng.choice((1, 1, 5)))), reverse=True,
                        key=lambda match: match.start()):  # fmt: skip
        data = data[: match.start()] + rng.choice(NUMBERS) + data[match.end() :]
    return data


def encode(rng: Random, data: bytes) -> bytes:
    """Write the text in another encoding, or with marks."""
    text = data.decode("utf-8", "replace")
    how = rng.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "mark", "marks"))
    if how.startswith("mark"):
        return b"\xef\xbb\xbf" * (1 if how == "mark" else 3) + data
    return text.encode(how, "replace")


def line_ends(rng: Random, data: bytes) -> bytes:
    """Write other ends of lines, or none."""
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\r\r\n", b"", b" ")))


def nest(rng: Random, data: bytes) -> bytes:
    """Put brackets in that are nested deeply."""
    start, end = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[{", b"}]"), (b'[{"a":', b"")))
    depth = rng.choice((100, 3000, 100_000))
    places = [match.start() for match in _NUMBER.finditer(data)] or [0]
    at = rng.choice(places)
    return data[:at] + start * depth + b"1" + end * depth + data[at:]


def swap_columns(rng: Random, data: bytes) -> bytes:
    """Put the columns of a table into another order, in all lines or in some."""
    separator = max((b",", b"\t", b";", b"|"), key=data.count)
    share = rng.choice((1.0, 0.3))
    a, b = rng.randrange(8), rng.randrange(8)
    lines = []
    for line in data.split(b"\n"):
        cells = line.split(separator)
        if max(a, b) < len(cells) and rng.random() < share:
            cells[a], cells[b] = cells[b], cells[a]
        lines.append(separator.join(cells))
    return b"\n".join(lines)


def cells(rng: Random, data: bytes) -> bytes:
    """Repeat, empty or take out cells, names of columns first, and keys of objects."""
    separator = max((b",", b"\t", b";", b"|"), key=data.count)
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 3))):
        # Headers decide on all that follows.
        at = 0 if rng.random() < 0.5 else rng.randrange(len(lines))
        row = lines[at].split(separator)
        cell = rng.randrange(len(row))
        change = rng.choice(("repeat", "thrice", "empty", "remove", "copy", "bare"))
        if change in ("repeat", "thrice"):
            row[cell:cell] = [row[cell]] * (1 if change == "repeat" else 2)
        elif change == "remove":
            del row[cell]
        else:
            row[cell] = row[rng.randrange(len(row))] if change == "copy" else b""
        lines[at] = b" " if change == "bare" else separator.join(row)
    return b"\n".join(lines)


def keys(rng: Random, data: bytes) -> bytes:
    """Take names in quotes out, or write one in place of another."""
    found = list(_TEXT_IN_QUOTES.finditer(data))
    for match in sorted(rng.sample(found, min(len(found), rng.choice((1, 1, 4)))), reverse=True,
                        key=lambda match: match.start()):  # fmt: skip
        other = rng.choice((b'""', rng.choice(found)[0], b"", b'"x"'))
        data = data[: match.start()] + other + data[match.end() :]
    return data


def cut_in_lines(rng: Random, data: bytes) -> bytes:
    """Break lines off within themselves."""
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 5))):
        at = rng.randrange(len(lines))
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    return b"\n".join(lines)


def wide_line(rng: Random, data: bytes) -> bytes:
    """Put a first line of hundreds of thousands of cells in front, or make it the header."""
    head, end, rest = data.partition(b"\n")
    cells = rng.choice((b",x", b",", b";1", b",1.5")) * rng.choice((20_000, 300_000))
    return head + cells + end + rest


def quotes(rng: Random, data: bytes) -> bytes:
    """Put quotes and separators in that nothing closes."""
    for _ in range(rng.choice((1, 3))):
        at = rng.randrange(len(data))
        data = data[:at] + rng.choice((b'"', b"'", b",", b"\\", b"\\u12", b'"""')) + data[at:]
    return data


def long_line(rng: Random, data: bytes) -> bytes:
    """Put one very long line in."""
    at = data.find(b"\n", rng.randrange(len(data))) + 1
    return data[:at] + rng.choice((b"x", b"1,", b'{"a":', b"[", b" ")) * 300_000 + b"\n" + data[at:]


def tear(rng: Random, packed: bytes, start: int = 20) -> bytes:
    """Cut packed data, or change a bit of them, behind their header and before their checksum."""
    at = rng.randrange(min(start, len(packed) - 9), len(packed) - 8)
    if rng.random() < 0.5:
        return packed[:at]
    return packed[:at] + bytes([packed[at] ^ 1 << rng.randrange(8)]) + packed[at + 1 :]


def _tar(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("member")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def huge_tar(rng: Random, data: bytes) -> bytes:
    """Put a file into a tar archive whose header claims more than any disk holds."""
    size = rng.choice((1 << 60, 1 << 33, 0, (1 << 62) + 1))
    made = bytearray(_tar(data))
    made[124:136] = struct.pack(">I", 0x80000000) + size.to_bytes(8, "big")
    made[148:156] = b" " * 8
    made[148:156] = f"{sum(made[:512]):06o}\0 ".encode()
    return bytes(made)


def _zip(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("member", data)
    return file.getvalue()


PLAIN: dict[str, Callable[[Random, bytes], bytes]] = {
    each.__name__: each
    for each in (
        cut, cut_in_front, cut_lines, shuffle_lines, flip, insert, insert_odd, delete, repeat,
        zeros, numbers, numbers, encode, line_ends, nest, swap_columns, quotes, long_line,
        cells, cells, keys, cut_in_lines, wide_line,
    )
}  # fmt: skip
PACKINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": (".gz", gzip.compress), "bzip2": (".bz2", bz2.compress), "xz": (".xz", lzma.compress),
    "tar": (".tar", _tar), "zip": (".zip", _zip),
}  # fmt: skip


def mutated(rng: Random, data: bytes, *, is_json: bool) -> Mutation:
    """Draw one way, or several, in which a file is damaged."""
    if rng.random() < 0.15:
        name = rng.choice((*PACKINGS, "huge_tar"))
        if name == "huge_tar":
            return Mutation(name, huge_tar(rng, data), ".tar")
        ending, pack = PACKINGS[name]
        return Mutation(f"torn {name}", tear(rng, pack(data)), ending, name in ("gzip", "xz"))
    names = [rng.choice(list(PLAIN)) for _ in range(rng.choice((1, 1, 1, 1, 2, 3)))]
    made = data
    for name in names:
        made = PLAIN[name](rng, made) if made else made
    # A cut is told by brackets that are not closed, or by a line without an end, unless it closes
    # brackets or quotes and lacks its end alone: such a line is whole.
    is_open = bool(made) and not made.endswith(b"\n")
    is_whole = made[-1:] in (b"}", b"]", b'"') and data[len(made) : len(made) + 1] in b"\r\n"
    is_told = names == ["cut"] and (is_json or (data.endswith(b"\n") and is_open and not is_whole))
    return Mutation(" + ".join(names), made, "", is_told)
