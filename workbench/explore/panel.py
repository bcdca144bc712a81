"""The explorer: controls, the questions of a notebook, and the figure they redraw."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze
from workbench.analyze import Change
from workbench.errors import WorkbenchError
from workbench.explore.view import FigureView, as_json
from workbench.plot._style.style import nothing
from workbench.plot._style.text import digits
from workbench.tables import Trace

ALL = "all"
_MOST_PREPARED_ROWS, _MOST_KEPT = 20_000, 64


def rank_choice(trace: Trace) -> widgets.Dropdown:
    """Offer every loaded rank, and all of them together."""
    return choice("rank", (int(rank) for rank in trace.ranks["rank"]))


def choice(description: str, values: Iterable[object]) -> widgets.Dropdown:
    """Offer some values, and all of them together, which is where it starts."""
    offered = [(str(value), value) for value in values]
    control = widgets.Dropdown(options=[(ALL, ALL), *offered], description=description)
    if len(offered) < 2:  # one alone is all of them
        control.layout.display = "none"
    return control


def prepared(
    compute: Callable[..., pd.DataFrame], cases: Iterable[tuple[object, ...]], *, row_count: int
) -> Callable[..., pd.DataFrame]:
    """Keep what is computed, and compute the cases beforehand where there are few rows.

    A control then only chooses among tables that are there. Of many rows each case takes long,
    and most are never looked at.
    """
    kept = cache(compute)
    if row_count <= _MOST_PREPARED_ROWS:
        for case in cases:
            # What an analysis refuses is reported when it is chosen.
            with suppress(ValueError, WorkbenchError):
                kept(*case)
    return kept


def chosen_rows(table: pd.DataFrame, **choices: object) -> pd.DataFrame:
    """Keep the rows that have the chosen value in each named column; ``ALL`` keeps every row."""
    for column, value in choices.items():
        if value != ALL:
            table = table[(table[column] == value).fillna(value=False)]
    return table.reset_index(drop=True)


def slider(description: str, options: list[tuple[str, object]], value: object) -> widgets.Widget:
    """Offer some values on a line, answering while the handle moves."""
    control = widgets.SelectionSlider(options=options, value=value, description=description)
    # ipywidgets leaves the label of the first option empty until the handle has moved.
    control.label = options[control.index][0]
    return control


def numbers(description: str, values: Iterable[float], start: float) -> widgets.Widget:
    """Offer numbers on a line; where it starts is among them."""
    offered = sorted({*(float(number) for number in values), float(start)})
    words = [f"{number:g}" for number in offered]
    words = [digits(n) if "e" in text else text for n, text in zip(offered, words, strict=True)]
    return slider(description, list(zip(words, offered, strict=True)), float(start))


PLOTLY_MIME = "application/vnd.plotly.v1+json"

# A slider of ipywidgets is as wide as told, and its track gets what label and value leave.
_TRACK_PX, _LETTER_PX, _AROUND_PX = 160, 8, 56
_VALUE_PX = (72, 148)  # what JupyterLab gives the value beside the track


class Explorer(widgets.VBox):  # type: ignore[misc]
    """Controls above a figure that is redrawn whenever one of them changes.

    Live in JupyterLab; works the same in plain Python, where a test or a script sets
    ``explorer.controls["rank"].value`` and reads :meth:`figure`. What an analysis refuses is
    written above the last good figure, so that no choice can break a notebook.

    Parameters
    ----------
    draw
        Gets the value of every control as a keyword and returns the figure.
    **controls
        Widgets by the keyword that ``draw`` knows them by; each needs a ``description``, which is
        its label.

    Attributes
    ----------
    controls : dict
        The widgets by keyword.
    message : ipywidgets.HTML
        Why the present choice is not possible; empty while it is.
    out : workbench.explore.view.FigureView
        The figure on screen, drawn in place; where the published snapshot is read from.

    Notes
    -----
    Figures are kept by the values of the controls, so that a way back computes nothing. While the
    kernel draws, JupyterLab holds back what a dragged slider sends and then sends the newest value.
    """

    def __init__(self, draw: Callable[..., go.Figure], **controls: widgets.ValueWidget) -> None:
        self.draw = draw
        self.controls = controls
        self.message = widgets.HTML()
        self.out = FigureView()
        self._kept: dict[tuple[Any, ...], str] = {}
        row = widgets.HBox(list(controls.values()), layout={"flex_flow": "row wrap"})
        super().__init__([row, self.message, self.out])
        for control in controls.values():
            _fit(control)
            control.observe(self._redraw, names="value")
        self._redraw()

    def inert(self, **when: Callable[[dict[str, Any]], bool]) -> Explorer:
        """Disable controls, by keyword, while their values change nothing; return the explorer."""

        def update(_change: Any = None) -> None:
            for name, is_inert in when.items():
                self.controls[name].disabled = is_inert(self.values())

        for control in self.controls.values():
            control.observe(update, names="value")
        update()
        return self

    def values(self) -> dict[str, Any]:
        """Return what the controls are set to, by keyword."""
        return {name: control.value for name, control in self.controls.items()}

    def figure(self) -> go.Figure:
        """Return the figure on screen: the last one that could be drawn."""
        return self.out.figure()

    def title(self) -> str:
        """Return the title of the figure on screen as plain text."""
        text = str(self.figure().layout.title.text or "").replace("<br>", " ")
        return html.unescape(text)

    def state(self) -> str:
        """Describe the settings of the controls in one line."""
        return ", ".join(
            f"{control.description or name} = {chosen(control)}"
            for name, control in self.controls.items()
        )

    def _redraw(self, _change: Any = None) -> None:
        state = tuple(self.values().values())
        if (figure := self._kept.get(state)) is None:
            self.out.say(working=True)
            try:
                figure = as_json(self.draw(**self.values()))
            except (ValueError, WorkbenchError) as error:
                self.message.value = f"<b>Not possible:</b> {html.escape(str(error))}"
                if not self.out.json:
                    reason, claim = (
                        "Choose other values above.",
                        "These values cannot be shown together",
                    )
                    self.out.show(as_json(nothing(reason, claim=claim)))
                self.out.say(working=False)
                return
            self._kept[state] = figure
            if len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        self.message.value = ""
        self.out.show(figure)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Add the figure and a line that says the state, for whoever has no kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data = dict(bundle[0] if isinstance(bundle, tuple) else bundle)
        data[PLOTLY_MIME] = json.loads(self.out.json)
        data["text/plain"] = f"Snapshot at {self.state()}. Run the notebook to move the controls."
        return data


# ipywidgets would cut or wrap labels and choices that are wider than its default.
def _fit(control: widgets.ValueWidget) -> None:
    # A drop-down of one has nothing to choose.
    if control.has_trait("_options_labels") and len(control._options_labels) < 2:
        control.layout.display = "none"
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
    """Return the width of a slider whose track is long enough to be aimed at."""
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
    label = getattr(control, "label", control.value)
    # The value of a choice may be a truth value, too: what its user reads is the label.
    if isinstance(label, bool):
        return "on" if label else "off"
    return " to ".join(label) if isinstance(label, tuple) else str(label)


_LONGEST, _LABEL = 6, 44


def kinds_of(events: pd.DataFrame) -> list[str]:
    """Return the kinds of GPU work that a trace has."""
    used = set(events["kind"].dropna().unique())
    return [kind for kind in ("compute", "communication", "memory", "other") if kind in used]


def standard_questions(events: pd.DataFrame) -> list[Change]:
    """Ask what faster compute, hidden communication and copies, and a faster CPU would buy."""
    kinds = kinds_of(events)
    factors = {"compute": 0.5, "communication": 0.0, "memory": 0.0}
    changes = [
        Change(factor=factor, kind=kind) for kind, factor in factors.items() if kind in kinds
    ]
    return [*changes, Change(factor=0.5, part="CPU")]


def parts_of(events: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return what can be changed: a label each, and what a :class:`Change` calls it."""
    entries: dict[str, dict[str, Any]] = {kind: {"kind": kind} for kind in kinds_of(events)}
    entries["CPU"] = {"part": "CPU"}
    longest = analyze.kernels(events).groupby("name", observed=True)["total_ns"].sum()
    for name in longest.nlargest(_LONGEST).index:
        bare = str(name).removeprefix("void ").replace("at::native::", "")
        # Templates of one library differ at their ends, so both ends stay.
        short = bare if len(bare) <= _LABEL else f"{bare[: _LABEL - 17]}…{bare[-16:]}"
        same = sum(label.startswith(short) for label in entries)
        entries[f"{short} ({same + 1})" if same else short] = {"name": str(name)}
    return entries
