"""Colours, patterns and layout shared by all figures; the only place that knows about looks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from workbench._shared.extras import import_nbformat
from workbench.plot._style import palette as _palette
from workbench.plot._style.draft import Draft
from workbench.plot._style.palette import CYCLE, PATTERNS
from workbench.plot._style.text import printed_lines, safe, short, wrapped
from workbench.tables import as_source

# In a kernel plotly imports nbformat to show its first figure.
if "ipykernel" in sys.modules:
    import_nbformat()

COLOURS = _palette.COLOURS
_DASHES = (
    "solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "2px,2px", "14px,3px",
    "8px,2px,2px,2px,2px,2px", "1px,5px", "6px,6px", "14px,2px,5px,2px",
)  # fmt: skip
_SHAPES = ("/", "\\", "x", "-", "|", "+", ".")
_OVERLAY: dict[str, Any] = {
    "fgcolor": COLOURS["paper"],
    "fillmode": "overlay",
    "fgopacity": 0.5,
    "size": 6,
    "solidity": 0.2,
}
_INK, _FAINT, _GRID = COLOURS["ink"], COLOURS["faint"], COLOURS["grid"]
_FONT = "Open Sans, Helvetica, Arial, Liberation Sans, sans-serif"
_AXIS = {"gridcolor": _GRID, "zeroline": False, "ticks": "", "title": {"standoff": 8}}
_AXIS |= {"automargin": True}
_LOOK = go.layout.Template(
    layout={
        "font": {"family": _FONT, "size": 12, "color": _INK},
        "title": {
            "font": {"size": 16},
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "yref": "container",
            "subtitle": {"font": {"size": 12, "color": _FAINT}},
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hoverlabel": {"align": "left", "namelength": -1},
        "autotypenumbers": "strict",
        "xaxis": _AXIS,
        "yaxis": _AXIS | {"ticklabelstandoff": 5},
    }
)
# Below this many bars a pattern can be told apart; above it is a grey mist.
_PATTERNED_BARS = 160
# More lines than this cannot be told apart, whatever their colours and dashes.
MAX_LINES = 12
_TITLE_WIDTH, _NOTE_WIDTH, _PLOT_PX = 88, 116, 300
_LEGEND_PX = 640  # on a narrow page
_SOURCE_LINE_PX = 15


def colour(meaning: str) -> str:
    """Return the colour of a meaning; a meaning without one is drawn as neutral."""
    return COLOURS.get(meaning, COLOURS["neutral"])


def distinct(position: int) -> dict[str, str]:
    """Return colour and dash of the n-th of several lines that have no meaning of their own."""
    return {"color": CYCLE[position % len(CYCLE)], "dash": _DASHES[position % len(_DASHES)]}


def fill(meaning: str, *, bars: int = 1) -> dict[str, Any]:
    """Return the ``marker`` of a bar: its colour, and its pattern unless bars are very many."""
    marker: dict[str, Any] = {"color": colour(meaning), "line": {"width": 0}}
    if bars <= _PATTERNED_BARS and (shape := PATTERNS.get(meaning)):
        marker["pattern"] = {"shape": shape, **_OVERLAY}
    return marker


def distinct_fill(position: int) -> dict[str, Any]:
    """Return the ``marker`` of the n-th of several bars that have no meaning of their own."""
    shade = ("all others", "neutral")[position // len(_SHAPES) % 2]
    pattern = {"shape": _SHAPES[position % len(_SHAPES)], **_OVERLAY}
    return {"color": colour(shade), "line": {"width": 0}, "pattern": pattern}


def area(meaning: str) -> dict[str, Any]:
    """Return how an area of a meaning is filled: colour and pattern as :func:`fill` has them."""
    look: dict[str, Any] = {"fillcolor": colour(meaning)}
    if pattern := fill(meaning).get("pattern"):
        look["fillpattern"] = pattern
    return look


def ink(background: str) -> str:
    """Return the text colour that is readable on a background given as ``#rrggbb``."""
    red, green, blue = (int(background[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return (
        _INK
        if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.18
        else COLOURS["paper"]
    )


def left_margin(labels: Iterable[str]) -> int:
    """Return the pixels that the longest line of some tick labels needs left of the axis."""
    lines = [len(line) for label in labels for line in printed_lines(label)]
    # An average letter of the 12 px font; plotly measures text only in the browser, too late here.
    return min(26 + round(6.8 * max(lines, default=0)), 330)


def row_axis(names: Sequence[str], below: float = 0.5, above: float = 0.5) -> dict[str, Any]:
    """Return the axis that names rows in safe text, the first on top, with room at both ends.

    Rows are placed by number, because two long names may read the same once shortened.
    """
    count = len(names)
    return {
        "tickvals": list(range(count)), "ticktext": list(names), "range": [count - below, -above],
    }  # fmt: skip


def nothing(
    reason: str, *, claim: str, source: str = "", synthetic: bool = False, is_answer: bool = False
) -> go.Figure:
    """Explain why there is nothing to draw, instead of showing an empty frame.

    Parameters
    ----------
    reason
        What is missing and, if it helps, how to get it.
    claim
        Title, e.g. ``"No collectives to show"``.
    source
        As in :func:`finish`.
    synthetic
        As in :func:`finish`.
    is_answer
        Whether there were data, and nothing is what they say; a report keeps such a figure.

    Returns
    -------
    plotly.graph_objects.Figure
        A figure without traces or axes; the reason stands in its middle. ``layout.meta`` says
        ``is_empty`` if there were no data.
    """
    figure = Draft()
    figure.update_layout(xaxis_visible=False, yaxis_visible=False, height=100)
    figure.add_annotation(
        text=wrapped(reason, 90),
        showarrow=False,
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        font={"size": 14, "color": _FAINT},
    )
    finished = finish(figure, claim=claim, source=source, synthetic=synthetic)
    if not is_answer:
        finished.layout.meta |= {"is_empty": True}
    return finished


def finish(
    figure: Draft | go.Figure,
    *,
    claim: str,
    source: str,
    synthetic: bool = False,
    note: str = "",
    is_doubtful: bool = False,
) -> go.Figure:
    """Add to a figure its title, its source line and the common look.

    Parameters
    ----------
    figure
        Draft or figure with its traces and axis titles; changed in place. If it has a height,
        that is the height of the plot alone; the lines around it are added. A left or
        bottom margin is kept.
    claim
        The finding, as a sentence; names in it must have gone through
        :func:`workbench.plot._style.text.safe`.
    source
        Where the data comes from; printed under the figure. A
        :class:`workbench.tables.Source` also says whose data it is.
    synthetic
        Whether the data was generated; then the figure says so above and below.
    note
        A second, smaller line under the title, e.g. what was dropped. Bold are doubts.
    is_doubtful
        Whether what the claim rests on is in doubt, as it also is if the note has a bold
        part; then the claim begins with that, because a title is read, listed and copied
        without the line under it.

    Returns
    -------
    plotly.graph_objects.Figure
        The finished figure. ``layout.meta`` repeats claim, source, its origin and synthetic as
        data, for whoever lists what the figures of a page say.
    """
    # An analysis may have put the doubt into the claim, and once is enough.
    is_said = "in doubt" in claim
    claim = f"In doubt: {claim}" if (is_doubtful or "<b>" in note) and not is_said else claim
    title = wrapped(claim, _TITLE_WIDTH)
    notes = [*(["<b>SYNTHETIC DATA</b>"] if synthetic else []), *([note] if note else [])]
    subtitle = wrapped(" · ".join(notes), _NOTE_WIDTH)
    # The legend is wrapped by the browser, so its height has to be estimated before.
    # Icicles have none.
    entries = [trace for trace in figure.data if getattr(trace, "showlegend", None) is not False]
    names = [trace.name or "" for trace in entries]
    has_legend = len(names) > 1 and figure.layout.showlegend is not False
    more_lines = title.count("<br>")
    top = 38 + 21 * more_lines + (22 + 16 * subtitle.count("<br>") if subtitle else 0)
    top += 10 + 20 * _legend_rows(names) if has_legend else 8
    left = figure.layout.margin.l or 70
    signed = _source_lines(source, synthetic=synthetic)
    bottom = (figure.layout.margin.b or 84) + _SOURCE_LINE_PX * signed.count("<br>")
    figure.update_layout(
        template=_LOOK,
        title={
            "text": title,
            # plotly lifts the first of several lines by most of its height
            "pad": {"l": 12, "t": 25 if more_lines else 14},
            "subtitle": {"text": subtitle},
        },
        height=(figure.layout.height or _PLOT_PX) + top + bottom,
        margin={"l": left, "r": 24, "t": top, "b": bottom},
        showlegend=has_legend,
        meta={
            "claim": claim,
            "source": str(source),
            "origin": as_source(source).origin,
            "synthetic": synthetic,
        },
    )
    _sign(figure, signed)
    return figure.done() if isinstance(figure, Draft) else figure


class Frame(NamedTuple):
    """The frame of a figure, as its caller passed it."""

    source: str
    synthetic: bool

    def finish(
        self, figure: Draft | go.Figure, *, claim: str, note: str = "", is_doubtful: bool = False
    ) -> go.Figure:
        """Add title and source to a figure: :func:`finish`."""
        return finish(figure, claim=claim, note=note, is_doubtful=is_doubtful, **self._asdict())

    def nothing(self, reason: str, *, claim: str, is_answer: bool = False) -> go.Figure:
        """Explain why there is nothing to draw: :func:`nothing`."""
        return nothing(reason, claim=claim, is_answer=is_answer, **self._asdict())


def _legend_rows(names: list[str]) -> int:
    """Estimate the rows of a horizontal legend, whose entries are all as wide as the widest."""
    width = 48 + 6.4 * max(map(len, names))
    per_row = max(int(_LEGEND_PX // width), 1) if len(names) * width > _LEGEND_PX else len(names)
    return -(-len(names) // per_row)


def _source_lines(source: str, *, synthetic: bool) -> str:
    """Write where the data comes from, on as many lines as the figure is wide enough for."""
    words = " ".join(short(word, _NOTE_WIDTH) for word in source.split())
    parts = [*(["<b>synthetic data</b>"] if synthetic else []), *([safe(words)] if words else [])]
    return wrapped(f"Source: {', '.join(parts)}", _NOTE_WIDTH) if parts else ""


def _sign(figure: Draft | go.Figure, signed: str) -> None:
    if signed:
        figure.add_annotation(
            text=signed,
            showarrow=False,
            xref="paper",
            yref="paper",
            x=0,
            y=0,
            xanchor="left",
            yanchor="top",
            align="left",
            xshift=12 - figure.layout.margin.l,
            yshift=26 + _SOURCE_LINE_PX * signed.count("<br>") - figure.layout.margin.b,
            font={"size": 11, "color": _FAINT},
        )
