"""Components of pages and of notebook outputs: HTML without scripts, in one place.

Each component works in three surroundings. In JupyterLab the tokens are those of its theme, on a
page of a report those of the page, and on nbviewer, which has neither, their fallbacks count.
Where a place strips styles (GitHub) lists stay lists and tables stay tables.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from workbench.plot._style.style import colour
from workbench.plot._style.text import digits

# Scoped, so that nothing else in a notebook changes; pages keep the first of equal copies.
_STYLE = """<style>
.wb{--ink:var(--jp-content-font-color1,#16191d);--soft:var(--jp-content-font-color2,#4b535c);
--rule:var(--jp-border-color2,#d9dde2);--link:var(--jp-content-link-color,#0b5a8f);
color:var(--ink);font:400 15px/1.45 system-ui,"Segoe UI","Noto Sans",Arial,sans-serif;
font-variant-numeric:tabular-nums;max-width:76rem}
.wb p,.wb dl,.wb dd,.wb ol,.wb ul{margin:0}.wb a{color:var(--link)}.wb svg{display:block}
.wb small,.wb .soft{font-size:13px;color:var(--soft);font-weight:400}
.wb svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
.wb .vh{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.wb .f-ink{fill:var(--ink)}.wb .f-soft{fill:var(--soft)}.wb .s-ink{stroke:var(--ink)}
.wb .f-comm{fill:var(--c-comm,#0072B2)}.wb .f-idle{fill:var(--c-idle,#D9D9D9)}
.wb .edge{stroke:var(--edge,#6f7882)}.wb .f-hatch{stroke:var(--hatch,#fff)}
.wb .findings{list-style:none;padding:0;border-top:2px solid var(--ink);counter-reset:f}
.wb .finding{display:grid;grid-template-columns:1.5rem minmax(0,1fr) 12rem 14rem;gap:0 1rem;
padding:.75rem 0;margin:0;border-bottom:1px solid var(--rule)}
.wb .finding::before{counter-increment:f;content:counter(f);font-weight:650;color:var(--soft)}
.wb .claim{font-weight:650;font-size:17px;line-height:1.25;text-wrap:pretty}
.wb .where,.wb .cost p,.wb .thumb{font-size:13px;color:var(--soft);overflow-wrap:anywhere}
.wb dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.1rem .75rem;
margin-top:.5rem;font-size:13px}.wb dt{color:var(--soft);font-weight:400}
.wb dd{overflow-wrap:anywhere}
.wb .cost b{display:block;font-size:21px;line-height:1.22}.wb .cost svg{margin:.25rem 0}
.wb .conf i{display:inline-block;width:8px;height:8px;border:1.5px solid var(--ink);
border-radius:50%}.wb .conf i.on{background:var(--ink)}
.wb table{border-collapse:collapse;width:100%;font-size:13px;line-height:1.35;margin:0}
.wb th,.wb td{padding:.28rem .6rem;text-align:right;vertical-align:baseline;border:0;
border-bottom:1px solid var(--rule);background:none!important;white-space:normal}
.wb .l{text-align:left}.wb tbody th{text-align:left;font-weight:400}
.wb thead th{border-bottom:1.5px solid
var(--ink);vertical-align:bottom;font-weight:600}.wb thead small{display:block}
.wb .barcell{width:30%;vertical-align:middle}.wb th:first-child,.wb td:first-child{padding-left:0}
.wb .answers{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:1px;background:var(--rule);
border:1px solid var(--rule)}.wb .answers li{flex:1 1 12rem;padding:.75rem;margin:0;
background:var(--bg,var(--jp-layout-color0,#fff));font-size:13px}
.wb .answers b{display:block;font-size:24px;line-height:1.15}
.wb .note{padding:.5rem .75rem;border-left:3px solid #E69F00;margin:.75rem 0;font-size:13px;
background:var(--mark,transparent)}.wb .published{border:1px dashed var(--soft);padding:0 1rem}
.wb h1{font-size:28px;line-height:1.22;margin:0;letter-spacing:-.01em;text-wrap:balance}
.wb h2{font-size:21px;line-height:1.22;margin:0}.wb .lede{font-size:17px;color:var(--soft);
max-width:60rem;margin:.5rem 0}.wb .facts{list-style:none;padding:0;display:flex;flex-wrap:wrap;
gap:.25rem 1.5rem;font-size:13px;color:var(--soft)}.wb .facts li{margin:0}.wb .facts b{
color:var(--ink)}.wb .sec{margin-top:2.25rem}.wb .sec-head{display:flex;flex-wrap:wrap;
justify-content:space-between;align-items:end;gap:.25rem 2rem;margin-bottom:.75rem}
.wb .sec-head p,.wb .tools{font-size:13px;color:var(--soft)}.wb .sec-head p{max-width:60ch}
.wb .scroll{overflow-x:auto}.wb details{
border-bottom:1px solid var(--rule)}.wb .tools a{margin-right:1rem}
.wb summary{cursor:pointer;padding:.5rem 0;font-size:13px}
@media(max-width:64rem){.wb .finding{grid-template-columns:1.25rem minmax(0,1fr) 12rem}
.wb .finding .body{grid-area:1/2/span 2}.wb .cost{grid-area:1/3}.wb .thumb{grid-area:2/3}}
@media(max-width:44rem){.wb .finding{grid-template-columns:1.1rem minmax(0,4fr) minmax(0,5fr);
gap:.5rem .75rem}.wb .finding .body{grid-area:1/2/2/-1}.wb .cost{grid-area:2/2}
.wb .thumb{grid-area:2/3}.wb .opt{display:none}.wb th,.wb td{padding:.28rem .3rem}}
</style>"""
# One id and one definition everywhere: two copies on a page do no harm.
_HATCH = (
    '<svg width="0" height="0" aria-hidden="true" class="vh"><defs><pattern id="wb-hatch" '
    'width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line class="f-hatch" stroke="#fff" stroke-width="1.6" x1="0" y1="0" x2="0" y2="6"/>'
    "</pattern></defs></svg>"
)
# Fills that another theme needs in another shade; the others serve in both.
_CLASSES = {"#0072B2": "f-comm", "#D9D9D9": "f-idle", "#555555": "f-soft", "#333333": "f-ink"}
# Below 3:1 on white: these fills need an outline.
_PALE = {"#D9D9D9", "#E69F00", "#F0E442", "#56B4E9", "#BFBFBF", "#CC79A7"}
# Waiting and loss are told without colour, too.
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
    return f'<div class="wb">{_STYLE}{_HATCH}{"".join(components)}</div>'


def rect(meaning: str, x: str, y: float, width: str, height: float) -> str:
    """Draw a rectangle in the colour of a meaning, hatched if it stands for waiting or loss."""
    fill = colour(meaning)
    classes = _CLASSES.get(fill, "")
    outline = ' stroke="#6F7882"' if fill in _PALE else ""
    names = " ".join(filter(None, [classes, "edge" if outline else ""]))
    place = f'x="{x}" y="{y:.1f}" width="{width}" height="{height:.1f}"'
    drawn = f'<rect class="{names}" fill="{fill}"{outline} {place}/>'
    return drawn + (f'<rect fill="url(#wb-hatch)" {place}/>' if meaning in _HATCHED else "")


def bar(parts: Sequence[tuple[str, float]], *, height: int = 10, label: str = "") -> str:
    """Draw a bar of one or more parts, each a meaning and its share of the full width.

    Without a ``label`` the bar stands beside its number, and screen readers pass over it.
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

    Roles keep it a table for screen readers where a page lays it out anew.
    """
    heads = "".join(_head(column, first=not place) for place, column in enumerate(columns))
    body = "".join(f'<tr role="row">{_cells(columns, row)}</tr>' for row in rows)
    name = f'<caption class="vh">{safe_html(caption)}</caption>'
    return (
        f'<div class="scroll"><table role="table">{name}'
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div>'
    )


def _head(column: Column, *, first: bool) -> str:
    classes = " ".join(filter(None, ["l" * (first or column.is_text), "opt" * column.is_optional]))
    unit = f" <small>{safe_html(column.unit)}</small>" if column.unit else ""
    title = safe_html(column.title)
    return f'<th scope="col" role="columnheader" class="{classes}">{title}{unit}</th>'


def _cells(columns: Sequence[Column], row: Sequence[str]) -> str:
    cells = [f'<th scope="row" role="rowheader">{row[0]}</th>']
    for column, cell in zip(columns[1:], row[1:], strict=True):
        names = ["l" * column.is_text, "opt" * column.is_optional, "barcell" * ("<svg" in cell)]
        cells.append(f'<td role="cell" class="{" ".join(filter(None, names))}">{cell}</td>')
    return "".join(cells)


def answers(cards: Iterable[tuple[str, str, str]]) -> str:
    """Lay answers side by side: the number, its unit and a sentence, all of them plain text."""
    items = (
        f"<li><b>{safe_html(value)} <small>{safe_html(unit)}</small></b>{safe_html(said)}</li>"
        for value, unit, said in cards
    )
    return f'<ul class="answers">{"".join(items)}</ul>'


def note(text: str) -> str:
    """Show a note, e.g. that data were made; the text is HTML."""
    return f'<p class="note" role="note">{text}</p>'


def fold(summary: str, body: str, *, name: str = "") -> str:
    """Fold what is not asked for at first; both are HTML."""
    place = f' id="{name}"' if name else ""
    return f"<details{place}><summary>{summary}</summary>{body}</details>"


def published(summary: str, body: str) -> str:
    """Fold a published case and set it apart from the data at hand; both are HTML."""
    head = f"<summary><b>Published case, not your data</b>: {summary}</summary>"
    return f'<details class="published">{head}{body}</details>'
