"""Components of pages and of notebook outputs: HTML without scripts, in one place.

Each component works in three surroundings. In JupyterLab the tokens are those of its theme, on a
page of a report those of the page, and on nbviewer, which has neither, their fallbacks count.
Where a place strips styles (GitHub) lists stay lists and tables stay tables.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from workbench.plot._style.style import COLOURS, colour
from workbench.plot._style.text import digits

# One id and one definition everywhere: two copies on a page do no harm.
_HATCH = (
    '<svg width="0" height="0" aria-hidden="true" class="vh"><defs><pattern id="wb-hatch" '
    'width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<line class="f-hatch" stroke="{COLOURS["paper"]}" stroke-width="1.6" x1="0" y1="0" x2="0" '
    'y2="6"/></pattern></defs></svg>'
)
# Fills that another theme needs in another shade; the others serve in both.
_CLASSES = {
    COLOURS["communication"]: "f-comm", COLOURS["idle"]: "f-idle", COLOURS["neutral"]: "f-soft",
    COLOURS["series"]: "f-ink", COLOURS["ink"]: "f-ink",
}  # fmt: skip
# Below 3:1 on white: these fills need an outline.
_PALE = {COLOURS[name] for name in ("idle", "memory", "host", "overlapped", "all others", "other")}
# Waiting and loss are readable without colour, too.
_HATCHED = {"wait", "restart", "lost work", "lost steps", "sync wait"}
_LEVELS = ("low", "medium", "high")


class Column(NamedTuple):
    """A column of :func:`table`: title, unit, whether text, whether left out on a phone."""

    title: str
    unit: str = ""
    is_text: bool = False
    is_optional: bool = False


def plain(value: object) -> str:
    """Write a name from a file as text of one line, without control or direction characters."""
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cf") else c for c in str(value))


def safe_html(value: object) -> str:
    """Write a name from a file as HTML text."""
    return html.escape(plain(value))


def number(value: float) -> str:
    """Write a number with three significant digits and a true minus sign."""
    return digits(value).replace("-", "\N{MINUS SIGN}")


def page(*components: str) -> str:
    """Put components into the one element that carries their style."""
    body = "".join(components)
    # A part of the style is named after the element or the class that needs it.
    needed = [rules for name, rules in _style() if re.search(rf'<{name}\b|class="{name}\b', body)]
    head = "".join([_style()[0][1], *needed]) + "</style>" + _HATCH
    return f'<div class="wb"><style>{head}{body}</div>'


@cache
def _style() -> list[tuple[str, str]]:
    """Read the style, scoped to ``.wb`` so that nothing else in a notebook changes, by parts."""
    text = Path(__file__).with_name("components.css").read_text(encoding="utf-8")
    parts = re.split(r"/\* (\w+).*?\*/\n", text)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def rect(meaning: str, x: str, y: float, width: str, height: float) -> str:
    """Draw a rectangle in the colour of a meaning, hatched if it stands for waiting or loss."""
    fill = colour(meaning)
    classes = _CLASSES.get(fill, "")
    outline = f' stroke="{COLOURS["faint"]}"' if fill in _PALE else ""
    names = " ".join(filter(None, [classes, "edge" if outline else ""]))
    place = f'x="{x}" y="{y:.1f}" width="{width}" height="{height:.1f}"'
    drawn = f'<rect class="{names}" fill="{fill}"{outline} {place}/>'
    return drawn + (f'<rect fill="url(#wb-hatch)" {place}/>' if meaning in _HATCHED else "")


def bar(parts: Sequence[tuple[str, float]], *, height: int = 10, label: str = "") -> str:
    """Draw a bar of one or more parts, each a meaning and its share of the full width.

    Without a ``label`` the bar is next to its number, and screen readers pass over it.
    """
    drawn, start = [], 0.0
    for meaning, share in parts:
        width = 100 * min(max(share, 0.0), 1.0)
        drawn.append(rect(meaning, f"{start:.2f}%", 0.5, f"{width:.2f}%", height - 1))
        start += width
    told = f'role="img" aria-label="{safe_html(label)}"' if label else 'aria-hidden="true"'
    return f'<svg width="100%" height="{height}" {told}>{"".join(drawn)}</svg>'


def confidence(level: str) -> str:
    """Show a confidence as a word and one to three dots."""
    count = _LEVELS.index(level) + 1 if level in _LEVELS else 0
    dots = " ".join(f"<i{' class=on' * (place < count)}></i>" for place in range(len(_LEVELS)))
    return f'<span class="conf"><span aria-hidden="true">{dots} </span>{safe_html(level)}</span>'


def terms(pairs: Iterable[tuple[str, str]]) -> str:
    """List names and what they say; the latter is HTML. What is empty is left out."""
    items = "".join(f"<dt>{name}</dt><dd>{said}</dd>" for name, said in pairs if said)
    return f"<dl>{items}</dl>" if items else ""


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, caption: str) -> str:
    """Write a table whose first column is the name of the row; the cells are HTML.

    Roles keep it a table for screen readers where a page lays it out again.
    """
    heads = "".join(_head(column, first=not place) for place, column in enumerate(columns))
    body = "".join(f'<tr role="row">{_cells(columns, row)}</tr>' for row in rows)
    name = safe_html(caption)
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table role="table">'
        f'<caption class="vh">{name}</caption>'
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div>'
    )


def _head(column: Column, *, first: bool) -> str:
    classes = " ".join(filter(None, ["l" * (first or column.is_text), "opt" * column.is_optional]))
    unit = f" <small>{safe_html(column.unit)}</small>" if column.unit else ""
    # Bars beside a number need no title to be seen, and one to be read aloud.
    title = safe_html(column.title) or '<span class="vh">Bar</span>'
    return f'<th scope="col" role="columnheader" class="{classes}">{title}{unit}</th>'


def _cells(columns: Sequence[Column], row: Sequence[str]) -> str:
    cells = [f'<th scope="row" role="rowheader">{row[0]}</th>']
    for column, cell in zip(columns[1:], row[1:], strict=True):
        names = ["l" * column.is_text, "opt" * column.is_optional, "barcell" * ("<svg" in cell)]
        cells.append(f'<td role="cell" class="{" ".join(filter(None, names))}">{cell}</td>')
    return "".join(cells)


def note(text: str) -> str:
    """Show a note, e.g. that data were made; the text is HTML."""
    return f'<p class="note" role="note">{text}</p>'


def fold(summary: str, body: str, *, name: str = "") -> str:
    """Fold what is not shown at first; both are HTML."""
    place = f' id="{name}"' if name else ""
    return f"<details{place}><summary>{summary}</summary>{body}</details>"
