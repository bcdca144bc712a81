"""Make a large trace of a real one: the same events again and again, later and with new ids."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

# Numbers that must differ between two copies, by the key or name they stand behind.
_SHIFTED = re.compile(
    rb'("(?:correlation|External id|external id|id|wait_on_cuda_event_record_corr_id)"\s*:\s*'
    rb'|"ts"\s*:\s*|ProfilerStep\s*#\s*)(\d+)'
)
_TS, _STEP, _ID = b'"ts"', b"ProfilerStep", b"id"
_PACKED_LEVEL = 6


def enlarge(source: Path, target: Path, size_bytes: int) -> int:
    """Repeat the events of a Kineto file until the copy has about ``size_bytes``.

    Every repetition starts after the one before it and has correlations, external ids,
    flow ids and step numbers of its own, so that it reads like one long run.

    Parameters
    ----------
    source
        A Kineto file, gzipped or not, whose events are one array.
    target
        The file to write, plain JSON. The same input gives the same bytes.
    size_bytes
        Wished size; the result is the nearest whole number of repetitions, at least one.

    Returns
    -------
    int
        Number of repetitions.
    """
    raw = source.read_bytes()
    raw = gzip.decompress(raw) if source.suffix == ".gz" else raw
    start = raw.index(b"[", raw.index(b'"traceEvents"')) + 1
    end = raw.rindex(b"]")
    copies = max(1, round((size_bytes - len(raw)) / (end - start)) + 1)
    with target.open("wb") as out:
        out.write(raw[:start])
        for number, body in enumerate(_repeated(raw[start:end], copies)):
            out.write(b"," if number else b"")
            out.write(body)
        out.write(raw[end:])
    return copies


def split(source: Path, folder: Path, ranks: int) -> None:
    """Write files of about 1 MB, one per rank, of events in the middle of a plain trace."""
    document = json.loads(source.read_bytes())
    events = sorted(document.pop("traceEvents"), key=lambda event: float(event.get("ts", 0)))
    count = len(events) * 1_000_000 // source.stat().st_size
    middle = events[len(events) // 2 :][:count]
    folder.mkdir()
    for rank in range(ranks):
        document["distributedInfo"] = {"rank": rank, "world_size": ranks}
        text = json.dumps({**document, "traceEvents": middle}, indent=1)
        (folder / f"rank{rank}.json").write_text(text, encoding="utf-8")


def pack(source: Path, target: Path) -> None:
    """Gzip a file; the same input gives the same bytes."""
    with (
        source.open("rb") as plain,
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", _PACKED_LEVEL, raw, mtime=0) as packed,
    ):
        shutil.copyfileobj(plain, packed, 1 << 20)


def _repeated(body: bytes, copies: int) -> Iterator[bytes]:
    """Give the events ``copies`` times, the first time as they are."""
    parts = _SHIFTED.split(body)
    # Every third part from the first on is plain text, then come a key and its number.
    keys, digits = parts[1::3], parts[2::3]
    plain = [text + key for text, key in zip(parts[0::3], [*keys, b""], strict=True)]
    numbers = [int(digit) for digit in digits]
    kinds = [_kind(key) for key in keys]
    by_kind = {kind: _distance(numbers, kinds, kind) for kind in (_TS, _STEP, _ID)}
    shifts = [by_kind[kind] for kind in kinds]
    yield body
    for copy in range(1, copies):
        moved = [
            # 0 is neither an id nor a time.
            b"%d" % (number + copy * shift if number else 0)
            for number, shift in zip(numbers, shifts, strict=True)
        ]
        yield b"".join(
            [part for pair in zip(plain, moved, strict=False) for part in pair] + plain[-1:]
        )


def _kind(key: bytes) -> bytes:
    return next((kind for kind in (_TS, _STEP) if key.startswith(kind)), _ID)


def _distance(numbers: list[int], kinds: list[bytes], wanted: bytes) -> int:
    """Return how far to move numbers of a kind so that the moved ones come after all others."""
    found = [number for number, kind in zip(numbers, kinds, strict=True) if kind == wanted]
    first = min((number for number in found if number > 0), default=0)
    return max(found) - (0 if wanted == _ID else first) + 1 if found else 0
