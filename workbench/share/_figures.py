"""Outputs of a notebook as the HTML of a report page."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from workbench.share import _snapshot, _tables
from workbench.share.bundle import (
    EXPLORER_MIME,
    PLOTLY_MIME,
    SVG_MIME,
    json_block,
    key_of,
    picture,
    title_of,
)

# What stands above a figure on a page that was made from somebody's own data.
_NOT_OWN = {
    "data set": "Data set of the workbench, not your data",
    "published": "Published case, not your data",
    "model": "Model or simulation, not your data",
}
_SCRIPT = re.compile(r"<script\b([^>]*)>(.*?)</script\s*>", re.DOTALL | re.IGNORECASE)
_FORM_NAME = re.compile(r'(<form\b[^>]* aria-label=")[^"]*(")')
_EMPTY_HEADER = re.compile(r"<th(\s[^>]*)?>\s*</th>")


Keep = Callable[[str, str], str]


def to_html(output: Any, number: int, *, live: bool, keep: Keep, is_own: bool = False) -> set[str]:
    """Reduce one output in place to what a page shows; give the hashes of the scripts it runs.

    ``keep`` stores a file for the reader, by name and text, and gives the address of it.
    """
    meta = (_snapshot.meta_of(output) or {}) if is_own else {}
    origin = str(meta.get("origin", ""))
    # What was simulated is nobody's data, unless their files say so themselves.
    label = _NOT_OWN.get(origin) or _NOT_OWN["model"] * bool(
        meta.get("synthetic") and origin != "own"
    )
    allowed = _reduced(output, number, live=live, keep=keep)
    if label and "text/html" in output.data:
        output.data["text/html"] = f'<p class="wb-origin">{label}</p>{output.data["text/html"]}'
    return allowed


def _reduced(output: Any, number: int, *, live: bool, keep: Keep) -> set[str]:
    data = output.data
    if PLOTLY_MIME in data:
        points = _tables.figure_csv(data[PLOTLY_MIME])
        link = _link("figure", number, points, keep, "Data of this figure as CSV")
        output["data"] = {"text/html": _figure(data, number, live=live) + link}
    elif _tables.TABLE_MIME in data:
        table = _tables.shown(data[_tables.TABLE_MIME], number)
        link = _link("table", number, table.csv, keep, "All rows as CSV")
        output["data"] = {"text/html": table.html + link}
    elif live and EXPLORER_MIME in data:
        states = str(data[EXPLORER_MIME])
        still = data.get("text/html", "")
        output["data"] = {"text/html": _explorer(states, still, number)}
        return {
            sha256_of(code)
            for attributes, code in _SCRIPT.findall(states)
            if "json" not in attributes and "src=" not in attributes
        }
    else:
        output["data"] = _quiet(data, number)
    return set()


def _link(kind: str, number: int, content: str, keep: Keep, words: str) -> str:
    """Offer a file beside what it belongs to; nothing if it would be empty."""
    if not content:
        return ""
    href = html.escape(keep(f"{kind}-{number + 1}.csv", content))
    return f'<p class="wb-tools"><a href="{href}" download>{words}</a></p>'


def sha256_of(script: str) -> str:
    """Return the hash of a script as a Content-Security-Policy names it."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def sources_of(metas: Iterable[dict[str, Any]]) -> list[str]:
    """List where the data of figures comes from; generated data says so."""
    metas_with_source = [meta for meta in metas if meta.get("source")]
    names = dict.fromkeys(str(meta["source"]) for meta in metas_with_source)
    return [
        named(name, [meta for meta in metas_with_source if meta["source"] == name])
        for name in names
    ]


def named(source: str, metas: Sequence[dict[str, Any]]) -> str:
    """Write a source; it is synthetic only if every one of its figures is."""
    is_synthetic = bool(metas) and all(meta.get("synthetic") for meta in metas)
    return f"{source} (synthetic)" if is_synthetic else source


def _figure(data: dict[str, Any], number: int, *, live: bool) -> str:
    figure = data[PLOTLY_MIME]
    title = title_of(figure)
    label = html.escape(title)
    svg = data.get(SVG_MIME)
    still = picture(svg, title) if svg else f"<p>{label}</p>"
    name = f"figure-{key_of(figure)[:8]}-{number}"
    if not live:
        return f'<div class="wb-figure" id="{name}">{still}</div>'
    drawn = {key: figure[key] for key in ("data", "layout", "frames") if key in figure}
    plot = f'<div class="wb-plot" role="figure" aria-label="{label}"></div>'
    return f'<div class="wb-figure" id="{name}">{still}{plot}{json_block(drawn)}</div>'


def _explorer(states: str, still: str, number: int) -> str:
    """Put the live explorer beside its picture; the page shows one of the two."""
    # Forms are landmarks, and landmarks of one page need names of their own.
    states = _FORM_NAME.sub(rf"\1Controls of explorer {number}\2", states, count=1)
    return (
        '<div class="wb-explorer-block">'
        f'<div class="wb-still">{_SCRIPT.sub("", still)}</div>'
        f'<div class="wb-states">{states}</div></div>'
    )


def _quiet(data: dict[str, Any], number: int) -> dict[str, Any]:
    """Keep what can be shown without running anything."""
    kept = {mime: content for mime, content in data.items() if mime not in _NEEDS_SCRIPTS}
    block = kept.get("text/html")
    if block is None:
        return kept
    # The page's policy refuses the script and leaves a hole: other forms of the output stay.
    if _SCRIPT.search(block):
        kept.pop("text/html")
        return kept
    # Components of the workbench bring tables that fit every width.
    if block.startswith('<div class="wb">'):
        pass
    elif "<table" in block:
        block = _EMPTY_HEADER.sub("<td></td>", block)
        block = (
            f'<div class="wb-table" role="region" aria-label="Table {number + 1}" tabindex="0">'
            f"{block}</div>"
        )
    elif block.startswith("<figure>"):
        block = f'<div class="wb-still">{block}</div>'
    kept["text/html"] = block
    return kept


_NEEDS_SCRIPTS = {"application/javascript", EXPLORER_MIME}
