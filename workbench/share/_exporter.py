"""The nbconvert exporter behind reports: one page from one notebook."""

from __future__ import annotations

import copy
import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from jinja2 import pass_context
from nbconvert.exporters import HTMLExporter
from traitlets import Enum, default

import workbench
from workbench.share import _figures, _plotlyjs, _prose, _snapshot
from workbench.share.bundle import EXPLORER_MIME, PLOTLY_MIME, SVG_MIME, plain_text, title_of
from workbench.share.svg import svg_of

TEMPLATES = Path(str(files("workbench.share") / "templates"))
_ASSETS = TEMPLATES / "wbreport"
_ASSETS_MARK, _CONTENTS_MARK = "<!--workbench:assets-->", "<!--workbench:contents-->"
# These traces draw on the GPU, which compiles functions.
_COMPILED = re.compile(r'"type\\*": ?\\*"(?:\w+gl|parcoords|splom)\\*"')
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
_HEADING = re.compile(r"<h([23])>(.*?)</h\1>", re.DOTALL)
_PAGE_LINK = re.compile(
    r'<a [^>]*href="(?![a-z]+:)([^"#]*?)\.(ipynb|md)((?:#[^"]*)?)"[^>]*>(.*?)</a>', re.DOTALL
)
_ANCHOR = re.compile(r'<a class="wb-anchor"[^>]*></a>')
# A long line scrolls; without a mouse only where the block can have the focus.
_CODE_BLOCK = re.compile(r"<pre(?=[ >])(?![^>]*tabindex)")
# A link to a section that this page does not show would lead nowhere.
_LINK_HERE = re.compile(r'<a href="#([^"]+)">(.*?)</a>', re.DOTALL)
_NAME = re.compile(r'\bid="([^"]*)"')
_H2 = re.compile(r"^##+\s+(.+)$", re.MULTILINE)
_DRAWN = re.compile(r"\bplot\.(\w+)\(")
_H1 = re.compile(r"^#\s+(.+)$", re.MULTILINE)
# Everything from elsewhere is refused, whatever a notebook or a name in a trace contains.
_POLICY = (
    "default-src 'none'; img-src data: blob: 'self'; font-src data:; worker-src blob:; "
    "style-src 'unsafe-inline' 'self'; base-uri 'none'; form-action 'none'; script-src {scripts}"
)


@dataclass(frozen=True)
class Link:
    """A page of the site: its file, its short label and its title."""

    href: str
    label: str
    title: str


@dataclass(frozen=True)
class Site:
    """A page's knowledge of the site it belongs to; ``docs`` is the address of pages of docs."""

    pages: tuple[Link, ...] = ()
    docs: str = ""
    data: str = ""
    is_foreign: bool = False
    made_on: str = ""
    href: str = field(default="", compare=False)
    pending: tuple[str, ...] = ()  # pages that are not made yet


class ReportExporter(HTMLExporter):
    """Write a notebook as a page that needs no network (``nbconvert --to wbreport``).

    Figures are live; in the mode ``static``, and where a notebook brings them, they are
    pictures where no scripts run. Controls are live if their states were computed before.
    Code is folded away.
    """

    export_from_notebook = "Workbench report"

    mode = Enum(
        ("inline", "shared", "static"),
        default_value="inline",
        help="Where plotly.js is: in the page, in assets/ beside it, or nowhere.",
    ).tag(config=True)

    site = Site()
    files: dict[str, str]  # of the page that was written last, by their addresses

    @default("template_name")
    def _template_name_default(self) -> str:
        return "wbreport"

    @default("extra_template_basedirs")
    def _extra_template_basedirs_default(self) -> list[str]:
        return [str(TEMPLATES)]

    @default("exclude_anchor_links")
    def _exclude_anchor_links_default(self) -> bool:
        return True

    def from_notebook_node(
        self, nb: Any, resources: dict[str, Any] | None = None, **options: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Convert one notebook."""
        # The caller keeps the notebook as it ran; pictures and text are changed below.
        nb = copy.deepcopy(nb)
        if "widgets" in nb.metadata or (self.mode == "static" and _lacks_pictures(nb)):
            _snapshot.add_pictures(nb, svg_of if self.mode == "static" else None)
        _prose.drop_instructions(nb)
        if self.site.is_foreign:
            _prose.drop_answer(nb)
        if self.site.data:
            _prose.drop_silent_sections(nb)
            _prose.drop_dependent_sections(nb)
        _prose.fold_sections(nb)
        resources = {**(resources or {}), "wb": self.facts(nb), "language_code": self.language_code}
        self.files = {}
        allowed = {"'unsafe-eval'"} if _COMPILED.search(json.dumps(nb.cells)) else set()
        resources["wb"]["needs_scripts"] = self.mode != "static" and _lacks_pictures(nb)
        allowed |= self._reduce(nb)
        resources["wb"]["contents_cell"] = _before_second_section(nb)
        resources["wb"]["policy"] = self.policy(allowed)
        self._headings: list[tuple[str, str, str]] = []
        page, resources = super().from_notebook_node(nb, resources, **options)
        resources["wb"]["sections"] = self._sections(nb)
        return self._completed(page), resources

    def facts(self, nb: Any) -> dict[str, Any]:
        """Gather what a page says about its notebook beside the cells.

        On a page of somebody's own data only figures of that data make findings and badge.
        """
        figures = [figure for figure in _snapshot.figures(nb) if not _prose.is_empty(figure)]
        shown = [(title_of(figure), figure) for figure in figures]
        metas = list(_snapshot.provenance(nb))
        own = [meta for meta in metas if meta.get("origin") == "own"]
        if is_own := bool(self.site.data):
            titles = [title for title, figure in shown if is_of_own_data(figure)]
            data = [_figures.named(self.site.data, own)]
            other_sources = _figures.sources_of(
                meta for meta in metas if meta.get("origin") != "own"
            )
        else:
            titles = [title for title, _ in shown]
            data, other_sources = _figures.sources_of(metas), []
        opening = next((n for n, c in enumerate(nb.cells) if c.cell_type == "markdown"), 0)
        return {
            **self.site_facts(),
            "title": title_of_notebook(nb),
            "findings": list(dict.fromkeys(titles)),
            "data": data,
            "other_data": other_sources,
            "badge": _badge(own if is_own else metas),
            "is_own": is_own,
            "opening_cell": opening,
            "foreign_text": self.site.is_foreign,
        }

    def site_facts(self) -> dict[str, Any]:
        """Gather what every page of the site says, the overview included."""
        pages = list(self.site.pages)
        position = next((n for n, page in enumerate(pages) if page.href == self.site.href), None)
        return {
            "pages": pages if len(pages) > 1 else [],
            "href": self.site.href,
            "pending": self.site.pending,
            "previous": pages[position - 1] if position else None,
            "next": pages[position + 1]
            if position is not None and position + 1 < len(pages)
            else None,
            "version": workbench.__version__,
            "made_on": self.site.made_on,
            "live": self.mode != "static",
        }

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        """Render Markdown, noting headings and turning links to notebooks into links to pages."""
        rendered: str = _HEADING.sub(self._named, super().markdown2html(context, source))
        rendered = _CODE_BLOCK.sub('<pre tabindex="0"', rendered)
        return _PAGE_LINK.sub(self._linked, rendered) if self.site.pages else rendered

    @pass_context
    def fold_summary(self, context: Any, fold: dict[str, str]) -> str:
        """Write what stands on a folded section: its heading, and why it is folded."""
        heading = _ANCHOR.sub("", self.markdown2html(context, fold["heading"]))
        line = html.escape(fold["line"])
        return f'{heading.strip()}<span class="wb-fold-line">{line}</span>' if line else heading

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        """Add the filter for folded sections to those of nbconvert."""
        yield from super().default_filters()  # type: ignore[no-untyped-call]
        yield "fold_summary", self.fold_summary

    def _linked(self, link: re.Match[str]) -> str:
        """Link the page of a notebook, or of the documentation; without a page it stays a name."""
        if link[2] == "md":
            href, is_here = f"{self.site.docs}{Path(link[1]).name}.html", bool(self.site.docs)
        else:
            href = f"{link[1]}.html"
            is_here = href in {page.href for page in self.site.pages}
        return f'<a href="{href}{link[3]}">{link[4]}</a>' if is_here else link[4]

    def policy(self, allowed: set[str]) -> str:
        """Write the Content-Security-Policy of a page: only known scripts, nothing from outside."""
        if self.mode == "static":
            return _POLICY.format(scripts="'none'")
        if self.mode == "inline":
            allowed = allowed | {_figures.sha256_of(code) for code in self._scripts}
        return _POLICY.format(scripts=" ".join(["'self'", *sorted(allowed)]))

    def assets(self) -> str:
        """Write the part of a page's head that loads its style and its scripts."""
        if self.mode == "shared":
            figures = [] if self.site.href == "index.html" else ["plotly.min", "keys"]
            names = [*figures, "page"]
            scripts = "\n".join(f'<script src="assets/{name}.js"></script>' for name in names)
            return f'<link rel="stylesheet" href="assets/page.css">\n{scripts}'
        style = f"<style>{(_ASSETS / 'page.css').read_text(encoding='utf-8')}</style>"
        if self.mode == "static":
            return style
        return "\n".join([style, *(f"<script>{code}</script>" for code in self._scripts)])

    def write_assets(self, folder: Path) -> None:
        """Write the files that the pages of a site share."""
        if self.mode != "shared":
            return
        assets = folder / "assets"
        assets.mkdir()
        for name in ("page.css", "page.js", "keys.js"):
            (assets / name).write_bytes((_ASSETS / name).read_bytes())
        (assets / "plotly.min.js").write_bytes(_plotlyjs.path().read_bytes())

    def overview(self, title: str, body: dict[str, Any], facts: dict[str, Any]) -> str:
        """Write the first page of a site: ``cards``, or the HTML of an ``overview``."""
        page_facts = {**self.site_facts(), **facts, "title": title, "policy": self.policy(set())}
        resources = {"wb": page_facts, "language_code": self.language_code}
        template = self.environment.get_template("overview.html.j2")
        self._headings = []
        page: str = template.render(resources=resources, **body)
        return self._completed(page)

    @cached_property
    def _scripts(self) -> list[str]:
        paths = (_plotlyjs.path(), _ASSETS / "keys.js", _ASSETS / "page.js")
        return [path.read_text(encoding="utf-8") for path in paths]

    def _named(self, heading: re.Match[str]) -> str:
        level, text = heading[1], plain_text(heading[2])
        name = text.replace(" ", "-")
        # Two headings of one text need links of their own.
        if any(name == heading_name for _, heading_name, _ in self._headings):
            name = f"{name}-{len(self._headings)}"
        self._headings.append((level, name, text))
        address = html.escape(quote(name))
        link = f'<a class="wb-anchor" href="#{address}" aria-label="Link to this section"></a>'
        return f'<h{level} id="{html.escape(name)}">{heading[2]}{link}</h{level}>'

    def _reduce(self, nb: Any) -> set[str]:
        _join_silent(nb)
        allowed: set[str] = set()
        for number, output in enumerate(_snapshot.outputs(nb)):
            allowed |= _figures.to_html(
                output,
                number,
                live=self.mode != "static",
                keep=self._keep,
                is_own=bool(self.site.data),
            )
        _explain_errors(nb)
        return allowed

    def _sections(self, nb: Any) -> dict[str, str]:
        """Return the section in which each figure function is first called."""
        known = {name for _, name, _ in self._headings}
        sections: dict[str, str] = {}
        section = ""
        for cell in nb.cells:
            if cell.cell_type == "markdown":
                headings = _H2.findall(_prose.headings_of(cell))
                names = [text.strip().replace(" ", "-") for text in headings]
                section = next((name for name in reversed(names) if name in known), section)
            elif section:
                sections |= {
                    name: section for name in _DRAWN.findall(cell.source) if name not in sections
                }
        return sections

    def _keep(self, name: str, content: str) -> str:
        """Store a file of this page and give its address; a page that stands alone holds it."""
        if self.mode == "inline":
            return f"data:text/csv;charset=utf-8,{quote(content)}"
        path = f"csv/{Path(self.site.href).stem}-{name}"
        self.files[path] = content
        return quote(path)

    def _completed(self, page: str) -> str:
        # Every output of a component carries the same style; the page needs it once.
        known: set[str] = set()
        page = _STYLE.sub(lambda style: "" if style[0] in known else _noted(style[0], known), page)
        names = set(map(html.unescape, _NAME.findall(page)))
        page = _LINK_HERE.sub(
            lambda link: link[0] if unquote(html.unescape(link[1])) in names else link[2], page
        )
        page = page.replace(_ASSETS_MARK, self.assets(), 1)
        return page.replace(_CONTENTS_MARK, self._contents(), 1)

    def _contents(self) -> str:
        headings = [(name, text) for level, name, text in self._headings if level == "2"]
        # So short a page needs no list of its headings.
        if len(headings) < 3:
            return ""
        items = "".join(
            f'<li><a href="#{html.escape(quote(name))}">{html.escape(text)}</a></li>'
            for name, text in headings
        )
        return (
            '<nav class="wb-contents" aria-labelledby="wb-contents"><h2 id="wb-contents">'
            f"On this page</h2><ol>{items}</ol></nav>"
        )


def _before_second_section(nb: Any) -> int:
    """Return the cell that the list of sections follows: findings stand before it."""
    starts = [
        at for at, cell in enumerate(nb.cells)
        if cell.cell_type == "markdown" and _prose.headings_of(cell).startswith("## ")
    ]  # fmt: skip
    return starts[1] - 1 if len(starts) > 1 else -1


def _noted(style: str, known: set[str]) -> str:
    known.add(style)
    return style


def title_of_notebook(nb: Any) -> str:
    """Return the first heading of a notebook, or say that it has none."""
    for source in _markdown(nb):
        if match := _H1.search(source):
            return plain_text(match[1].strip("# ").replace("`", "").replace("*", ""))
    return "Untitled notebook"


def question_of(nb: Any) -> str:
    """Return the question that a notebook opens with, as plain text; may be empty."""
    for source in _markdown(nb):
        match = re.search(r"\*\*Question\.?\*\*\s*(.+?)(?:\n\s*\n|\Z)", source, re.DOTALL)
        if match:
            unlinked = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
            return plain_text(re.sub(r"[*`]", "", unlinked))
    return ""


def _markdown(nb: Any) -> Iterator[str]:
    return (cell.source for cell in nb.cells if cell.cell_type == "markdown")


def _lacks_pictures(nb: Any) -> bool:
    bundles = (output.data for output in _snapshot.outputs(nb))
    return any(
        {PLOTLY_MIME, EXPLORER_MIME} & data.keys() and SVG_MIME not in data for data in bundles
    )


def is_of_own_data(figure: dict[str, Any]) -> bool:
    """Return whether a figure shows the data of whoever runs the notebook."""
    meta = (figure.get("layout") or {}).get("meta")
    return isinstance(meta, dict) and meta.get("origin") == "own"


def _badge(metas: list[dict[str, Any]]) -> str:
    synthetic = [meta for meta in metas if meta.get("synthetic")]
    if not synthetic:
        return ""
    return "Synthetic data" if len(synthetic) == len(metas) else "Partly synthetic data"


# Code cells that show nothing join the next one, so that a reader meets one fold, not three.
def _join_silent(nb: Any) -> None:
    cells: list[Any] = []
    for cell in nb.cells:
        before = cells[-1] if cells else None
        is_pair = before is not None and before.cell_type == cell.cell_type == "code"
        if is_pair and before is not None and not before.outputs:
            cell.source = f"{before.source}\n\n{cell.source}".strip()
            cells.pop()
        cells.append(cell)
    nb.cells = cells


def _explain_errors(nb: Any) -> None:
    """Report which steps failed by themselves, and which only for lack of an earlier one."""
    has_failed = False
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            if output.output_type != "error":
                continue
            if output.ename == "LoadError":
                output["wb_heading"] = "The data could not be loaded."
            if has_failed and output.ename == "NameError":
                output["wb_heading"] = "This step needs the result of an earlier one that failed."
            has_failed = True
