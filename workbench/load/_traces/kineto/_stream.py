"""Streaming a Kineto file: find the event array, parse it block by block, keep the rest."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._files.json_events import (
    REPAIR_WINDOW,
    Damaged,
    Incomplete,
    Read,
    decoder,
    mend_event,
    read_event,
)
from workbench.load._files.stream import Stream
from workbench.load._traces.kineto.blocks import (
    ARRAY_END,
    BLOCK_FULL,
    NO_EVENT,
    ODD,
    Block,
    Columns,
    Copies,
)

BLOCK_BYTES = 8 << 20
# Room in front of a block for the event that the block before ended in.
HEADROOM_BYTES = 1 << 18
PADDING_BYTES = 64
ByteArray = npt.NDArray[np.uint8]
Spare = queue.SimpleQueue[ByteArray]

# Bounds of memory: a hostile file may never close an event, or never end behind the list.
LARGEST_EVENT = 64 << 20
_LOOK_AHEAD_BYTES = (1 << 13, 1 << 17, 2 * REPAIR_WINDOW)
LARGEST_METADATA = 256 << 20
_BLANK = b" \t\r\n\x00"


class Engine(Protocol):
    """Interface of a parser for the reader."""

    block: Block
    rows: int

    @property
    def repaired_commas(self) -> int: ...
    def scan(self, buf: ByteArray, pos: int, n: int) -> tuple[int, int]: ...
    def code(self, text: str) -> int: ...
    def all_texts(self) -> list[str]: ...


@dataclass
class RawTrace:
    """A parsed file before any of it is interpreted."""

    columns: Columns
    texts: Callable[[], list[str]]  # of all files that the engine has read
    metadata: dict[str, Any]
    findings: Findings
    whole: bool = field(default=True)


class StreamReader:
    """Parses a Kineto stream with an engine, in a moving window."""

    def __init__(
        self,
        engine: Engine,
        label: str,
        advance: Callable[[int], object] | None,
        copies: Copies,
        offset: int = 0,
    ) -> None:
        self.engine, self.label, self.advance, self._copies = engine, label, advance, copies
        self.columns = Columns(engine.block.slots)
        self.start = engine.rows  # of the block: where rows of this file begin
        self.findings = Findings(label)
        self.metadata: dict[str, Any] = {}
        self.bare_list = False
        self._commas_before = engine.repaired_commas
        self._searched = 0  # bytes in which the list of events was looked for
        # Bytes not parsed yet, of which the first ``length`` are input, then padding.
        self.window: ByteArray = np.zeros(PADDING_BYTES, np.uint8)
        self.length = 0
        self.offset = offset  # where in the input the window begins
        self.following, self.end = b"", offset  # of another document, and where it begins

    def read(self, blocks: Iterator[ByteArray]) -> RawTrace:
        """Read one document; ``following`` is then what was read of another behind it."""
        ended = self._array(blocks)
        tail = self._rest(blocks) if ended else b""
        self._after(ended, tail)
        self._copies.expect(self.columns, slice(self.start, self.engine.rows))
        self.columns.count(self.engine.block)
        finding = "commas between events that were missing or one too many"
        self.findings.add("repaired", finding, self.engine.repaired_commas - self._commas_before)
        texts = self.engine.all_texts
        return RawTrace(self.columns, texts, self.metadata, self.findings, whole=ended)

    # The usual case copies a few bytes in front of the block instead of the block behind them.
    def _extend(self, block: ByteArray, parsed: int) -> None:
        self._drop(parsed)
        kept, new = self.length, len(block) - HEADROOM_BYTES - PADDING_BYTES
        if kept <= HEADROOM_BYTES:
            # The usual case: a few bytes go in front of the block, which stays in place.
            start = HEADROOM_BYTES - kept
            block[start:HEADROOM_BYTES] = self.window[:kept]
            self.window = block[start:]
        else:
            self.window = np.concatenate([self.window[:kept], block[HEADROOM_BYTES:]])
        self.length = kept + new
        if self.advance is not None:
            self.advance(new)

    def _drop(self, parsed: int) -> None:
        self.window = self.window[parsed:]
        self.offset += parsed
        self.length -= parsed

    def _array(self, blocks: Iterator[ByteArray]) -> bool:
        position: int | None = None
        for block in blocks:
            self._extend(block, position or 0)
            position = self._find_array(final=False) if position is None else 0
            if position is None:
                continue
            position, ended = self._events(position, final=False)
            if ended:
                self._drop(position)
                return True
        if position is None:
            position = self._find_array(final=True)
            assert position is not None
        else:
            self._drop(position)
            position = 0
        position, ended = self._events(position, final=True)
        self._drop(position)
        return ended

    def _find_array(self, *, final: bool) -> int | None:
        if not final and self.length < 2 * self._searched:
            return None  # else long metadata would be searched once per block
        self._searched = self.length
        # Most metadata are short, and decoding a whole block to find their end is slow.
        for size, surely in ((_SHORT_HEAD_BYTES, True), (self.length, False)):
            head = self._bytes(0, size)
            start = _LEADING.match(head).end()  # type: ignore[union-attr]
            if head[start : start + 1] == b"[":
                self.bare_list = True
                return start + 1
            if surely and (at := self._plain_head(head, start)):
                return at
            if match := event_list(head, start, surely=surely):
                break
        if match is None and not final and len(head) < LARGEST_METADATA:
            return None
        if match is None:
            msg = (
                f"{self.label}: no 'traceEvents' array and no list of events; expected a Kineto "
                "(Chrome trace) file, as written by torch.profiler's export_chrome_trace"
            )
            raise LoadError(msg)
        before = head[start : match[0]].rstrip().rstrip(b",") + b"}"
        self._keep_read(mend_event(before), len(before), "before")
        return match[1]

    # What stands before the first such key closes to a whole object where the key is its own.
    def _plain_head(self, head: bytes, start: int) -> int | None:
        match = _ARRAY.search(head, start)
        before = match and _whole(head[start : match.start()].rstrip().rstrip(b",") + b"}")
        if match is None or before is None:
            return None
        self._keep(before)
        return match.end()

    def _events(self, position: int, *, final: bool) -> tuple[int, bool]:
        """Parse events of the window; ``(where parsing stopped, array ended)``."""
        while True:
            position, status = self._scan(position)
            if status == ARRAY_END:
                return position, True
            if status == BLOCK_FULL:
                self._flush()
            elif status == ODD:
                after = self._odd_event(position, final=final)
                if after is None:
                    return self._wants_more(position, final=False)
                position = after
            elif status == NO_EVENT:
                after = self._no_event(position, final=final)
                if after is None:
                    return position, False
                position = after
            else:
                return self._wants_more(position, final=final)

    def _scan(self, position: int) -> tuple[int, int]:
        before = self.engine.block.skipped[0]
        end, status = self.engine.scan(self.window, position, self.length)
        # An object without a phase may be the head of another trace.
        if self.engine.block.skipped[0] > before:
            self._refuse_another(self._bytes(position, end - position), position)
        return end, status

    def _wants_more(self, position: int, *, final: bool) -> tuple[int, bool]:
        if final:
            unread = self.window[position : self.length].tobytes()
            opening = unread.find(b"{")
            if opening >= 0 and not unread[:opening].strip(b", \t\r\n\x00"):
                after = self._odd_event(position + opening, final=final)
                if after is not None:
                    return self._events(after, final=final)
        elif self.length - position > LARGEST_EVENT:
            reason = f"an event opens here and does not end in {LARGEST_EVENT:,} bytes"
            self._raise(position, reason)
        return position, False

    def _odd_event(self, position: int, *, final: bool) -> int | None:
        """Read one event with the general parser; None if it does not end in the window."""
        read = self._read_odd(position, final=final)
        if read is None:
            return None
        if "traceEvents" in read.event:
            self._raise(position, _ANOTHER)
        if read.repair:
            self.findings.add("repaired", read.repair, where=f"byte {self.offset + position:,}")
        if self.engine.rows >= len(self.engine.block.ph):
            self._flush()
        kept = self.engine.block.write(self.engine.rows, read.event, self.engine)
        self.engine.rows += kept
        return position + read.end

    # Most events are short, and the general parser is slow: it looks no further than needed.
    def _read_odd(self, position: int, *, final: bool) -> Read | None:
        size = closing(self.window[position : self.length].data)
        if size and (read := mend_event(self._bytes(position, size))) is not None:
            return read
        # Repairing takes time that grows with the window, and most odd events are short.
        for size in _LOOK_AHEAD_BYTES:
            window = self._bytes(position, size)
            at_end = position + len(window) == self.length
            try:
                return read_event(window, final=final and at_end)
            except Damaged as damage:
                self._raise(position + damage.offset, damage.reason)
            except Incomplete:
                if at_end:
                    break
        return None

    def _bytes(self, position: int, size: int) -> bytes:
        return self.window[position : min(self.length, position + size)].tobytes()

    def _no_event(self, position: int, *, final: bool) -> int | None:
        """Go past what stands where an event should: padding or null; else it is damage."""
        head = self._bytes(position, 64)
        if head.startswith(b"\x00"):
            raw = self.window[position : self.length]
            content = np.flatnonzero(raw != 0)
            zeros = int(content[0]) if len(content) else len(raw)
            self.findings.add("dropped", "zero bytes where events should be", zeros)
            return position + zeros if len(content) or not final else None
        if head.startswith(b"null"):
            self.findings.add("dropped", "null instead of an event")
            return position + 4
        # The window may end inside a null.
        if b"null".startswith(head) if final else len(head) < 4:
            return None
        reason = f"expected an event or the end of the list, found {head[:20]!r}"
        return self._raise(position, reason)

    def _rest(self, blocks: Iterator[ByteArray]) -> bytes:
        """Return what stands behind the events, up to where another document begins."""
        pieces = [self.window[: self.length].tobytes()]
        size, searched = self.length, 0
        for block in blocks:
            if size >= 2 * searched:  # else long metadata would be searched once per block
                pieces, searched = [b"".join(pieces)], size
                if (ends := self._another(pieces[0])) is not None:
                    return self._up_to(*ends, pieces[0], _content(block))
            pieces.append(_content(block))
            size += len(pieces[-1])
            if size > LARGEST_METADATA:
                self._raise(0, f"more than {LARGEST_METADATA:,} bytes behind the events")
            if self.advance is not None:
                self.advance(len(pieces[-1]))
        tail = b"".join(pieces)
        ends = self._another(tail)
        return tail if ends is None else self._up_to(*ends, tail)

    def _another(self, tail: bytes) -> tuple[int, int] | None:
        """Return where behind the events this document ends and another trace begins, if any."""
        end = 0 if self.bare_list else closing(memoryview(b"{" + tail)) - 1
        match = _BETWEEN.match(tail, end) if end >= 0 else None
        if match is None:
            return None
        is_trace = (_EVENT if match[1] == b"[" else _ARRAY).search(tail, match.start(1))
        return (end, match.start(1)) if is_trace else None

    def _up_to(self, end: int, start: int, tail: bytes, block: bytes = b"") -> bytes:
        self.following, self.end = tail[start:] + block, self.offset + start
        return tail[:end]

    def _after(self, ended: bool, tail: bytes) -> None:
        tail = tail.strip(_BLANK)
        if not ended:
            finding = "the file ends inside the list of events; all whole events were read"
            self._drop(self.length - len(self._bytes(0, self.length).lstrip(b", \t\r\n")))
            self._refuse_another(self._bytes(0, self.length))
            if self.length:
                finding += f", the last {self.length:,} bytes hold a part of one"
            self.findings.add("truncated", finding, where=f"byte {self.offset:,}")
        elif self.bare_list:
            self.findings.add("dropped", "bytes behind the list of events", len(tail))
        else:
            self._keep_last_metadata(b"{" + tail.lstrip(b","))

    # Some files end before the closing brace of the outermost object.
    def _keep_last_metadata(self, raw: bytes) -> None:
        read = mend_event(raw) if raw.endswith(b"}") else None
        if read is None and (read := mend_event(raw.rstrip(b",") + b"}")) is not None:
            finding = "the file ends behind the list of events, before its closing brace"
            self.findings.add("truncated", finding, where=f"byte {self.offset + self.length:,}")
        if read is None:
            self._refuse_another(raw)
        self._keep_read(read, len(raw), "behind")

    def _refuse_another(self, raw: bytes, position: int = 0) -> None:
        """Raise if bytes that are about to be dropped hold another trace."""
        if match := _ARRAY.search(raw):
            self._raise(position + match.start(), _ANOTHER)

    def _keep_read(self, read: Read | None, size: int, where: str) -> None:
        if read is None:
            finding = f"metadata {where} the events cannot be read"
            self.findings.add("dropped", finding, size, f"byte {self.offset:,}")
            return
        if read.repair:
            finding = f"in the metadata {where} the events: {read.repair}"
            self.findings.add("repaired", finding)
        self._keep(read.event)

    def _keep(self, metadata: dict[str, Any]) -> None:
        if "traceEvents" in metadata:
            another = metadata.pop("traceEvents")
            finding = "events of another traceEvents list"
            count = len(another) if isinstance(another, list) else 1
            self.findings.add("dropped", finding, count, f"byte {self.offset:,}")
        self.metadata |= metadata

    def _flush(self) -> None:
        self._copies.expect(self.columns, slice(self.start, self.engine.rows))
        self._copies.copy(self.engine.block, self.engine.rows)
        self.start = self.engine.rows = 0

    def _raise(self, position: int, reason: str) -> NoReturn:
        byte = self.offset + position
        msg = (
            f"{self.label}: cannot read the event list at byte {byte:,}: {reason}. "
            "Repair the file there, or cut it before that byte to load what comes first"
        )
        raise LoadError(msg)


_SHORT_HEAD_BYTES = 1 << 16
_LEADING = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n\x00]*+")
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENT = re.compile(rb'"ph"\s*:')
_BETWEEN = re.compile(rb"[ \t\r\n\x00,\x1e]*+(?:\xef\xbb\xbf)?([\[{])")
_ANOTHER = "another trace begins, inside what belongs to the first"


def _whole(raw: bytes) -> dict[str, Any] | None:
    try:
        read = decoder.decode(raw.decode())
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def event_list(head: bytes, start: int, *, surely: bool = False) -> tuple[int, int] | None:
    """Find the key ``traceEvents`` of the outermost object: where it and its events begin.

    ``surely``: not by its looks behind metadata that cannot be read, or are cut off.
    """
    if head[start : start + 1] != b"{":
        return None
    text = head[start:].decode(errors="surrogateescape")
    at = 1
    try:
        while True:
            at = _skip(text, at)
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)
            key_at = at
            key, at = decoder.raw_decode(text, at)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                break
            at = _skip(text, at + 1)
            if key == "traceEvents" and text[at : at + 1] == "[":
                return start + _byte(text, key_at), start + _byte(text, at + 1)
            _, at = decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        pass
    # Metadata that JSON cannot read, or that is cut by the end of the window.
    match_behind = None if surely else _ARRAY.search(head, start + _byte(text, at))
    return (match_behind.start(), match_behind.end()) if match_behind else None


_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\["\\/bfnrtu])*+("?)|[\[{]|([\]}])')


def closing(raw: memoryview) -> int:
    """Return the size of the object that opens ``raw``; 0 if it has no end that is sure.

    Behind an escape that JSON does not know a quote may close the string or belong to it.
    """
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(raw):
        if raw[token.start()] == ord('"'):
            if not token[1]:
                break
        else:
            depth += -1 if token[2] else 1
            if depth == 0:
                return token.end()
    return 0


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _byte(text: str, at: int) -> int:
    return at if text.isascii() else len(text[:at].encode(errors="surrogateescape"))


def padded(raw: bytes) -> ByteArray:
    """Return bytes as a block: with room in front, and padding behind."""
    return np.frombuffer(bytearray(HEADROOM_BYTES) + raw + bytes(PADDING_BYTES), np.uint8)


def _content(block: ByteArray) -> bytes:
    return block[HEADROOM_BYTES : len(block) - PADDING_BYTES].tobytes()


def _room_bytes() -> int:
    return HEADROOM_BYTES + BLOCK_BYTES + PADDING_BYTES


def read_ahead(stream: Stream, spare: Spare | None = None) -> Generator[ByteArray]:
    """Read blocks in a second thread, so that unpacking and parsing overlap.

    Each block has room in front for what is left of the one before, and padding behind. Two blocks
    after it was given a block is filled again. The only block of a small file goes to ``spare``.
    """
    spare = queue.SimpleQueue() if spare is None else spare
    blocks = _blocks(stream, spare)
    first = next(blocks, None)
    if first is None:
        return
    if len(first) == _room_bytes():
        yield from _in_thread(first, blocks, spare)
        return
    # A thread for a single block would cost more than it saves.
    try:
        yield first
    finally:
        spare.put(first if first.base is None else first.base)


def _in_thread(
    item: ByteArray | BaseException | None, blocks: Iterator[ByteArray], spare: Spare
) -> Generator[ByteArray]:
    # Two blocks ahead, so that memory stays bounded whatever is unpacked.
    ready: queue.Queue[ByteArray | BaseException | None] = queue.Queue(maxsize=2)
    stop = threading.Event()
    worker = threading.Thread(target=_read_blocks, args=(blocks, ready, stop), daemon=True)
    following: Callable[[], ByteArray | BaseException | None] = partial(next, blocks, None)
    # In a browser no thread can be started.
    with contextlib.suppress(RuntimeError):
        worker.start()
        following = ready.get
    before: ByteArray | None = None
    try:
        while item is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
            if before is not None:
                spare.put(before)
            before, item = item, following()
    finally:
        stop.set()
        # The worker may wait for room to put a block, so blocks are taken until it has ended.
        while worker.is_alive():
            with contextlib.suppress(queue.Empty):
                ready.get(timeout=0.05)


def _read_blocks(
    blocks: Iterator[ByteArray],
    ready: queue.Queue[ByteArray | BaseException | None],
    stop: threading.Event,
) -> None:
    """Put blocks into ``ready`` until the input ends, then None or the error that ended it."""
    last: BaseException | None = None
    try:
        for block in blocks:
            ready.put(block)
            if stop.is_set():
                break
    except BaseException as error:  # noqa: BLE001 - raised again in the reading thread
        last = error
    ready.put(last)


def _blocks(stream: Stream, spare: Spare) -> Iterator[ByteArray]:
    filled = BLOCK_BYTES
    while filled == BLOCK_BYTES:
        block = np.empty(_room_bytes(), np.uint8) if spare.empty() else spare.get()
        # A stream fills what it is given, but at its end.
        filled = stream.readinto(block.data[HEADROOM_BYTES : HEADROOM_BYTES + BLOCK_BYTES])
        end = HEADROOM_BYTES + filled
        block[end : end + PADDING_BYTES] = 0
        if filled:
            yield block[: end + PADDING_BYTES]
