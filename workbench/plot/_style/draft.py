"""A figure under construction: plain dictionaries that plotly checks once, when it is done.

Every call on a ``plotly.graph_objects.Figure`` builds and checks objects for each property, which
takes most of the time of a small figure. :class:`Draft` has the methods that this package uses,
with plotly's names and meanings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly import shapeannotation
from plotly.subplots import make_subplots

# Names of properties that have an underscore of their own; elsewhere it goes into a part.
_WHOLE = {"paper_bgcolor", "plot_bgcolor", "error_x", "error_y"}
# What plotly makes of an object that was never set.
_PARTS = {"legend", "margin", "marker", "meta", "title", "xaxis", "yaxis"}


class Part(dict[str, Any]):
    """A part of a figure, read like an object of plotly: what is not set is None or empty."""

    def __getattr__(self, name: str) -> Any:
        # numpy and plotly ask objects for protocols by names like these.
        if name.startswith("_") or name == "to_plotly_json":
            raise AttributeError(name)
        value = self.get(name)
        return Part() if value is None and name in _PARTS else value

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class _Panel(NamedTuple):
    """Where a panel lies, and its axes as traces and as the layout name them."""

    row: int
    col: int
    traces: dict[str, str]
    xaxis: str
    yaxis: str

    def is_at(self, row: Any, col: Any) -> bool:
        """Return whether the panel is among those named; None and "all" name every one."""
        return row in (None, "all", self.row) and col in (None, "all", self.col)

    def refs(self) -> dict[str, str]:
        """Return the axes as shapes and annotations name them."""
        names = self.traces or {"xaxis": "x", "yaxis": "y"}
        return {"xref": names["xaxis"], "yref": names["yaxis"]}


class Draft:
    """A figure with the methods of ``plotly.graph_objects.Figure`` that are used here.

    Rows and columns are those of :func:`grid`; a figure has one panel by default.
    """

    def __init__(self, data: Any = (), *, layout: Any = None) -> None:
        self.data: list[Part] = []
        self.layout = Part()
        self.panels = [_Panel(1, 1, {}, "xaxis", "yaxis")]
        for trace in data if isinstance(data, (list, tuple)) else [data]:
            self.add_trace(trace)
        self.update_layout(**_plain(layout or {}))

    def done(self) -> go.Figure:
        """Return the figure; plotly raises ValueError for what it does not know."""
        return go.Figure({"data": self.data, "layout": self.layout})

    def add_trace(self, trace: Any, row: int = 1, col: int = 1) -> Self:
        """Add a trace of plotly to a panel."""
        (panel,) = (panel for panel in self.panels if panel.is_at(row, col))
        self.data.append(_merged(Part(), {**_plain(trace), **panel.traces}))
        return self

    def add_scatter(self, *, row: int = 1, col: int = 1, **values: Any) -> Self:
        """Add lines or points."""
        return self.add_trace({"type": "scatter", **values}, row, col)

    def add_bar(self, *, row: int = 1, col: int = 1, **values: Any) -> Self:
        """Add bars."""
        return self.add_trace({"type": "bar", **values}, row, col)

    def add_heatmap(self, *, row: int = 1, col: int = 1, **values: Any) -> Self:
        """Add coloured cells."""
        return self.add_trace({"type": "heatmap", **values}, row, col)

    def update_traces(self, **values: Any) -> Self:
        """Set properties of every trace; None takes one away."""
        for trace in self.data:
            _merged(trace, values)
        return self

    def update_layout(self, **values: Any) -> Self:
        """Set properties of the layout."""
        _merged(self.layout, values)
        return self

    def update_xaxes(self, *, row: Any = None, col: Any = None, **values: Any) -> Self:
        """Set properties of the x-axes of some panels, or of all."""
        return self._update(row, col, "xaxis", values)

    def update_yaxes(self, *, row: Any = None, col: Any = None, **values: Any) -> Self:
        """Set properties of the y-axes of some panels, or of all."""
        return self._update(row, col, "yaxis", values)

    def _update(self, row: Any, col: Any, axis: str, values: Mapping[str, Any]) -> Self:
        for panel in self.panels:
            if panel.is_at(row, col):
                self.update_layout(**{getattr(panel, axis): values})
        return self

    def add_annotation(self, **values: Any) -> Self:
        """Write text into the figure."""
        self.layout.setdefault("annotations", []).append(_merged(Part(), values))
        return self

    def add_shape(self, **values: Any) -> Self:
        """Draw a shape."""
        self.layout.setdefault("shapes", []).append(_merged(Part(), values))
        return self

    def add_vline(self, x: Any, **look: Any) -> Self:
        """Draw a line from the lower to the upper edge."""
        return self._span("vline", {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1}, look)

    def add_hline(self, y: Any, **look: Any) -> Self:
        """Draw a line from the left to the right edge."""
        return self._span("hline", {"type": "line", "x0": 0, "x1": 1, "y0": y, "y1": y}, look)

    def add_vrect(self, x0: Any, x1: Any, **look: Any) -> Self:
        """Fill between two places of the x-axis."""
        return self._span("vrect", {"type": "rect", "x0": x0, "x1": x1, "y0": 0, "y1": 1}, look)

    def _span(self, kind: str, shape: dict[str, Any], look: dict[str, Any]) -> Self:
        row, col = look.pop("row", "all"), look.pop("col", "all")
        shape_look, words = shapeannotation.split_dict_by_key_prefix(look, "annotation_")
        note = shapeannotation.axis_spanning_shape_annotation(
            shape_look.pop("annotation", None), kind, shape, words
        )
        drawn = {(trace.xaxis or "x", trace.yaxis or "y") for trace in self.data}
        marks = [*self.layout.get("shapes", []), *self.layout.get("annotations", [])]
        drawn |= {(mark.xref or "x", mark.yref or "y") for mark in marks}
        for panel in self.panels:
            refs = panel.refs()
            # As plotly does: not across a panel of several that is still empty.
            if panel.is_at(row, col) and (not panel.traces or tuple(refs.values()) in drawn):
                refs["yref" if kind.startswith("v") else "xref"] += " domain"
                self.add_shape(**shape, **refs, **shape_look)
                if note is not None:
                    self.add_annotation(**_plain(note), **refs)
        return self


# An empty figure is the same for the same options, and takes longer than most traces.
_subplots = lru_cache(maxsize=64)(make_subplots)


def grid(**shape: Any) -> Draft:
    """Return an empty figure of several panels, with the options of plotly's ``make_subplots``."""
    empty = _subplots(**{n: tuple(v) if isinstance(v, list) else v for n, v in shape.items()})
    draft = Draft(layout=empty.layout)
    del draft.layout["template"]
    draft.panels = [
        _Panel(row, col, place.trace_kwargs, *place.layout_keys)
        for row, places in enumerate(empty._grid_ref, start=1)
        for col, (place,) in enumerate(places, start=1)
    ]
    return draft


def _merged(target: Part, values: Mapping[str, Any]) -> Part:
    """Set properties as plotly does: an underscore goes into a part, None takes away."""
    for name, given in values.items():
        place, left, value = target, name, _plain(given)
        if name not in _WHOLE:
            *way, left = name.split("_")
            for part in way:
                place = place.setdefault(part, Part())
        if value is None:
            place.pop(left, None)
        elif left == "title" and isinstance(value, str):
            place[left] = Part(text=value)
        elif isinstance(value, Mapping):
            place[left] = _merged(place.get(left) or Part(), value)
        else:
            place[left] = value
    return target


def _plain(value: Any) -> Any:
    if hasattr(value, "to_plotly_json"):
        return value.to_plotly_json()
    if isinstance(value, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        return np.asarray(value)
    if isinstance(value, Iterable) and not isinstance(value, (str, Mapping, np.ndarray)):
        return [_plain(item) for item in value]
    return value
