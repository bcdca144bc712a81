"""Reading a stream block by block in a second thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator

import numpy as np
import numpy.typing as npt

from workbench.load._files.stream import Stream

BLOCK_BYTES = 8 << 20
HEADROOM_BYTES = 1 << 18
PADDING_BYTES = 64

ByteArray = npt.NDArray[np.uint8]


def read_ahead(stream: Stream) -> Generator[ByteArray]:
    """Read blocks in a second thread, so that unpacking and parsing overlap.

    Each block has room in front for what is left of the one before, and padding behind.
    """
    ready: queue.Queue[ByteArray | BaseException | None] = queue.Queue(maxsize=2)
    stop = threading.Event()
    worker = threading.Thread(target=_read_blocks, args=(stream, ready, stop), daemon=True)
    worker.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        while worker.is_alive():
            with contextlib.suppress(queue.Empty):
                ready.get(timeout=0.05)


def _read_blocks(
    stream: Stream, ready: queue.Queue[ByteArray | BaseException | None], stop: threading.Event
) -> None:
    """Put blocks into ``ready`` until the input ends, then None or the error that ended it."""
    last: BaseException | None = None
    filled = BLOCK_BYTES
    try:
        while filled == BLOCK_BYTES and not stop.is_set():
            block = np.empty(HEADROOM_BYTES + BLOCK_BYTES + PADDING_BYTES, np.uint8)
            filled = _fill(stream, block[HEADROOM_BYTES : HEADROOM_BYTES + BLOCK_BYTES])
            end = HEADROOM_BYTES + filled
            block[end : end + PADDING_BYTES] = 0
            if filled:
                ready.put(block[: end + PADDING_BYTES])
    except BaseException as error:  # noqa: BLE001 - raised again in the reading thread
        last = error
    ready.put(last)


def _fill(stream: Stream, block: ByteArray) -> int:
    view = block.data
    filled = 0
    while filled < len(block) and (count := stream.readinto(view[filled:])):
        filled += count
    return filled
