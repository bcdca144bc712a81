"""The one way a widget is wired: controls, then a figure, then what is left without a kernel."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go
import plotly.io as pio

from workbench.errors import WorkbenchError
from workbench.explore._static import static_html
from workbench.plot._style.style import nothing

__all__ = ["PLOTLY_MIME", "Explorer", "static_html"]

PLOTLY_MIME = "application/vnd.plotly.v1+json"

# A slider of ipywidgets is as wide as told, and its track gets what label and value leave.
_TRACK_PX, _LETTER_PX, _AROUND_PX = 160, 8, 56
_VALUE_PX = (72, 148)  # what JupyterLab gives the value beside the track


class Explorer(widgets.VBox):  # type: ignore[misc]
    """Controls above a figure that is drawn anew whenever one of them changes.

    Live in JupyterLab; works the same in plain Python, where a test or a script sets
    ``explorer.controls["rank"].value`` and reads :meth:`figure`. What an analysis
    refuses is written above the last good figure, so that no choice can break a
    notebook.

    Parameters
    ----------
    draw
        Gets the value of every control as a keyword and returns the figure.
    **controls
        Widgets by the keyword that ``draw`` knows them by; each needs a
        ``description``, which is its label.

    Attributes
    ----------
    controls : dict
        The widgets by keyword.
    message : ipywidgets.HTML
        Why the present choice is not possible; empty while it is.
    out : ipywidgets.Output
        Holds the figure on screen as its only output.

    Notes
    -----
    The figure is *assigned* to ``out.outputs`` instead of displayed inside it: that
    works without a kernel, cannot interleave with other output, and is where the
    published snapshot is read from.
    """

    def __init__(self, draw: Callable[..., go.Figure], **controls: widgets.ValueWidget) -> None:
        self.draw = draw
        self.controls = controls
        self.message = widgets.HTML()
        self.out = widgets.Output()
        row = widgets.HBox(list(controls.values()), layout={"flex_flow": "row wrap"})
        super().__init__([row, self.message, self.out])
        for control in controls.values():
            _fit(control)
            control.observe(self._redraw, names="value")
        self._redraw()

    def values(self) -> dict[str, Any]:
        """Return what the controls are set to, by keyword."""
        return {name: control.value for name, control in self.controls.items()}

    def figure(self) -> go.Figure:
        """Return the figure on screen: the last one that could be drawn."""
        return go.Figure(self.out.outputs[0]["data"][PLOTLY_MIME], skip_invalid=True)

    def title(self) -> str:
        """Return the title of the figure on screen as plain text."""
        text = str(self.figure().layout.title.text or "").replace("<br>", " ")
        return html.unescape(text)

    def state(self) -> str:
        """Say in one line what the controls are set to."""
        return ", ".join(
            f"{control.description or name} = {chosen(control)}"
            for name, control in self.controls.items()
        )

    def _redraw(self, _change: Any = None) -> None:
        try:
            figure = self.draw(**self.values())
        except (ValueError, WorkbenchError) as error:
            self.message.value = f"<b>Not possible:</b> {html.escape(str(error))}"
            if self.out.outputs:
                return
            figure = nothing(
                "Choose other values above.", claim="These values cannot be shown together"
            )
        else:
            self.message.value = ""
        self.out.outputs = (
            {
                "output_type": "display_data",
                "metadata": {},
                "data": {PLOTLY_MIME: json.loads(pio.to_json(figure)), "text/plain": self.state()},
            },
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Add a line that says the state, for whoever opens the notebook without a kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data = dict(bundle[0] if isinstance(bundle, tuple) else bundle)
        data["text/plain"] = f"Snapshot at {self.state()}. Run the notebook to move the controls."
        return data


def _fit(control: widgets.ValueWidget) -> None:
    """Let a control be as wide as its label and choices; ipywidgets would cut or wrap them."""
    control.layout.margin = "2px 18px 2px 2px"
    if control.has_trait("readout"):
        control.layout.width = f"{_slider_px(control)}px"
        control.layout.flex = "0 0 auto"  # else a narrow page takes it all from the track
    elif control.layout.width is None:
        control.layout.width = "max-content"
    for trait, width in (("description_width", "initial"), ("button_width", "auto")):
        if control.style.has_trait(trait):
            setattr(control.style, trait, width)


def _slider_px(control: widgets.ValueWidget) -> int:
    """Give the width of a slider whose track is long enough to be aimed at."""
    values = getattr(control, "_options_labels", None) or ["1,000,000"]
    if not any(any(map(str.isdigit, words)) for words in values):
        msg = f"{control.description!r} offers names, which have no order; use a Dropdown"
        raise TypeError(msg)
    ends = 2 if isinstance(control, widgets.SelectionRangeSlider) else 1
    least, most = _VALUE_PX
    value = min(max(ends * _LETTER_PX * max(map(len, values)), least), most)
    return _TRACK_PX + _LETTER_PX * len(control.description) + value + _AROUND_PX


def chosen(control: widgets.ValueWidget) -> str:
    """Write the value of a control as its user reads it."""
    if isinstance(control.value, bool):
        return "on" if control.value else "off"
    label = getattr(control, "label", control.value)
    return " to ".join(label) if isinstance(label, tuple) else str(label)
