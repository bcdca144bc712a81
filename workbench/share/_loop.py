"""An event loop in a thread of its own.

Browsers and kernels are driven by coroutines, and the caller may already be in
a running loop (a notebook). A thread for them also keeps Ctrl-C with the caller,
who then has the work cancelled and cleaned up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

_CLEAN_UP_S = 20.0


class LoopThread:
    """Run coroutines from ordinary code: ``with LoopThread() as loop: loop.wait(work())``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._accepting = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def wait(self, work: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        """Run a coroutine and give its result.

        If the wait ends early (Ctrl-C, time out), the coroutine is cancelled and
        has time to clean up before the exception goes on.
        """
        ended = threading.Event()

        async def watched() -> Any:
            try:
                return await work
            finally:
                ended.set()

        # Accepted before the loop is closed or never: what came in between was not cancelled by
        # close(), and waited for a loop that had stopped.
        with self._accepting:
            if self._is_closed:
                work.close()
                msg = "the loop is closed; open another LoopThread for more work"
                raise RuntimeError(msg)
            future = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            if not ended.is_set():
                future.cancel()
                ended.wait(_CLEAN_UP_S)
            raise

    def close(self) -> None:
        """Accept no more work, cancel what still runs, stop the loop and end the thread."""
        with self._accepting:
            if self._is_closed:
                return
            self._is_closed = True
        last = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        try:
            last.result(_CLEAN_UP_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLEAN_UP_S)
            if not self._thread.is_alive():
                self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), _CLEAN_UP_S / 2)
