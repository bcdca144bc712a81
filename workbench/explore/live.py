"""An explorer that works in the background: one button starts it, the other stops it."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench.errors import WorkbenchError
from workbench.explore.panel import Explorer

Chunks = Callable[[], Iterator[pd.DataFrame]]


class LiveExplorer(Explorer):
    """An explorer with the buttons *Inject* and *Stop*.

    *Inject* goes through the chunks in a thread of its own and draws the figure again after each;
    *Stop* ends that after the chunk at work, and *Inject* then goes on from there. Only one
    explorer injects at a time, because a model is changed in place: starting a second stops the
    first. Whatever goes wrong in the thread is written above the figure.

    Parameters
    ----------
    draw
        As for :class:`Explorer`, and gets the chunks so far as ``found``, a tuple.
    chunks
        Makes the iterator of chunks; nothing is imported or injected before *Inject*.
    total_count
        Rows that all chunks have together, if that is known.
    **controls
        As for :class:`Explorer`.

    Attributes
    ----------
    inject, stop : ipywidgets.Button
        The buttons; in plain Python ``explorer.inject.click()``.
    progress : ipywidgets.HTML
        How far it is.
    thread : threading.Thread or None
        The last one started; join it to wait.
    """

    # A model is changed in place, so only one explorer may inject at a time.
    _at_work: ClassVar[LiveExplorer | None] = None

    def __init__(
        self,
        draw: Callable[..., go.Figure],
        chunks: Chunks,
        *,
        total_count: int | None = None,
        **controls: widgets.ValueWidget,
    ) -> None:
        self.chunks = chunks
        self.total_count = total_count
        self.found: tuple[pd.DataFrame, ...] = ()
        self.thread: threading.Thread | None = None
        self._rest: Iterator[pd.DataFrame] | None = None
        self._asked_to_stop = threading.Event()
        self._screen = threading.RLock()
        self.inject = widgets.Button(description="Inject", icon="play")
        self.stop = widgets.Button(description="Stop", icon="stop", disabled=True)
        self.progress = widgets.HTML("nothing injected yet")
        super().__init__(lambda **values: draw(found=self.found, **values), **controls)
        buttons = widgets.HBox([self.inject, self.stop, self.progress])
        row, *below = self.children  # type: ignore[has-type]
        self.children = (row, buttons, *below)
        self.inject.on_click(self._start)
        self.stop.on_click(lambda _button: self._asked_to_stop.set())

    def is_running(self) -> bool:
        """Return whether the thread is still at work."""
        return self.thread is not None and self.thread.is_alive()

    def close(self) -> None:
        """Stop, wait for the chunk at work, and close the explorer."""
        self._end()
        self._rest = None
        super().close()

    def _redraw(self, _change: Any = None) -> None:
        # A control may be moved while the thread draws.
        with self._screen:
            super()._redraw()

    def _start(self, _button: Any = None) -> None:
        if self.is_running():
            return
        running = LiveExplorer._at_work
        if running is not None and running is not self:
            running._end()
        LiveExplorer._at_work = self
        self._asked_to_stop.clear()
        self.inject.disabled, self.stop.disabled = True, False
        self.thread = threading.Thread(target=self._work, name="injecting", daemon=True)
        self.thread.start()

    # The thread itself may let go of the explorer; it must not wait for itself.
    def _end(self) -> None:
        self._asked_to_stop.set()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join()

    def _work(self) -> None:
        try:
            ended = "stopped at" if self._take_chunks() else "all of"
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it
            self._rest = None
            is_known = isinstance(error, (ValueError, WorkbenchError))
            text = str(error) if is_known else f"{type(error).__name__}: {error}"
            with self._screen:
                self.message.value = f"<b>Not possible:</b> {html.escape(text)}"
            ended = "ended by an error after"
        # Whoever may press the button again has read how the run before it ended.
        self._say(ended)
        self.inject.disabled, self.stop.disabled = False, True

    def _take_chunks(self) -> bool:
        self._say("starting after")
        if self._rest is None:
            self._rest = iter(self.chunks())
            self.found = ()
        for chunk in self._rest:
            self.found = (*self.found, chunk)
            self._kept.clear()
            self._redraw()
            self._say("injecting:")
            if self._asked_to_stop.is_set():
                return True
        self._rest = None
        return False

    def _say(self, doing: str) -> None:
        done = sum(map(len, self.found))
        of = "" if self.total_count is None or doing == "all of" else f" of {self.total_count:,}"
        self.progress.value = f"{doing} {done:,}{of} sites"
