"""The figure under the controls: one picture in the browser that changes in place."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import anywidget
import ipywidgets as widgets
import plotly.graph_objects as go
import plotly.io as pio
import traitlets


class FigureView(anywidget.AnyWidget):
    """A plotly figure that is drawn into the same place of the page again and again.

    Attributes
    ----------
    json : str
        The figure on screen, as plotly.js reads it; empty before the first.
    on_zoom, on_click : callable or None
        Called with the ends of the x-axis that the mouse chose (None for all of it), and with the
        ``customdata`` of the point that was clicked.
    """

    _esm = files("workbench.explore").joinpath("_figure.js").read_text(encoding="utf-8")
    # The figure, compressed, is the value of a widget of ipywidgets itself: anywidget (0.11) drops
    # every later message to a widget whose script was not loaded within two seconds.
    content = traitlets.Instance(widgets.HTML).tag(sync=True, **widgets.widget_serialization)
    on_zoom: Callable[[tuple[float, float] | None], None] | None = None
    on_click: Callable[[int], None] | None = None

    def __init__(self) -> None:
        super().__init__(content=widgets.HTML())
        self.json = ""
        self.content.on_msg(self._hear)

    def show(self, figure: str) -> None:
        """Draw a figure, as JSON, instead of the one before."""
        if self.json == figure:
            self.say(working=False)
        self.json = figure
        self.content.value = base64.b64encode(zlib.compress(figure.encode(), 1)).decode()

    def say(self, *, working: bool) -> None:
        """Say that the next figure is being computed, or that it will not come."""
        self.content.send({"working": working})

    def figure(self) -> go.Figure:
        """Return the figure on screen; an empty one before the first."""
        return go.Figure(json.loads(self.json or "{}"), skip_invalid=True)

    def _hear(self, _widget: Any, message: Any, _buffers: Any) -> None:
        if message == "plotly.js":
            from plotly.offline import get_plotlyjs

            self.content.send(message, [get_plotlyjs().encode()])
        elif "zoom" in message and self.on_zoom is not None:
            self.on_zoom(message["zoom"])
        elif "click" in message and self.on_click is not None:
            self.on_click(message["click"])


def as_json(figure: go.Figure) -> str:
    """Write a figure as plotly.js reads it; plotly checked it when it was made."""
    text: str = pio.to_json(figure, validate=False)
    return text
