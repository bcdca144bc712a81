"""Write the documentation site to ``_site/``: ``python docs/build.py``, or ``make docs``.

``--claims claims.json`` shows the results of every claim, as ``python -m claims --json`` wrote
them; without it the page of claims lists them with their sources. ``--version`` and
``--repository`` are for a site beside those of other versions (``docs/versions.py``).

The pages are those of ``docs/``. Added to them are the pages made here: the reference of all
public functions, a gallery that runs the examples of figures, tables, published notebooks and
claims. Sphinx treats warnings as errors, and every internal link of the result is followed.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import importlib
import inspect
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ROOT / "_pages_of_docs"
OUT = ROOT / "_site"
sys.path.insert(0, str(DOCS))

VERBS = ("load", "simulate", "analyze", "plot", "explore")
DOMAINS = {
    "traces": "Traces",
    "imbalance": "Workload imbalance",
    "failures": "Failures and goodput",
    "pvf": "Fault injection",
    "perfmodel": "Performance models",
    "power": "Power and energy",
    "communication": "Communication",
    "fleet": "Findings and the fleet as a whole",
    "shared": "All domains",
}
# Files of `explore` are named after a subject; all others lie in the folder of their domain.
EXPLORED = {"faults": "pvf", "goodput": "failures", "timeline": "fleet"}
# Pages that lie outside docs/, and where the site has them.
ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "DECISIONS.md": "decisions.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "data/README.md": "data.md",
}
# The entries of the site's head; those in SECTIONS are pages that list further pages.
CONTENTS = {
    "Tutorial": "tutorial", "How to": "how_to", "Topics": "topics", "Gallery": "gallery/index",
    "Notebooks": "notebooks", "Reference": "api/index", "Glossary": "glossary", "Trust": "trust",
    "Project": "project",
}  # fmt: skip
SECTIONS = {
    "topics": (
        "Topics",
        "Questions by domain, with code that runs on your files.",
        ("commands", "own_data", "diagnose", "traces", "imbalance", "failures", "pvf", "perfmodel",
         "power", "communication", "regions", "cluster", "functions"),
    ),
    "trust": (
        "How far to trust a number",
        "What was reproduced, how well troubles are found, how fast it is, what input may do.",
        ("systems", "claims", "benchmarks", "security", "data"),
    ),
    "project": (
        "Project",
        "How it is built, and what changed.",
        ("architecture", "contributing", "decisions", "changelog"),
    ),
}  # fmt: skip
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+\.(?:svg|png))\)")
ADDRESS = re.compile(r"<(?:a|img|link|script|source)\b[^>]*?\s(?:href|src)=\"([^\"]*)\"")
NAMED = re.compile(r"\s(?:id|name)=\"([^\"]*)\"")


# -- pages that are written by hand -----------------------------------------------------------


def copied() -> Iterator[tuple[Path, Path]]:
    """Give the hand-written pages: where each lies in the repository, and its path in the site."""
    for page in sorted([*DOCS.glob("*.md"), *DOCS.glob("site/*.md")]):
        yield page, Path(page.name)
    for name, target in ELSEWHERE.items():
        yield ROOT / name, Path(target)


def write_copies(results: pd.DataFrame | None = None) -> None:
    """Copy the pages; links then lead to pages of the site, or to a copied file."""
    targets = {page.resolve(): target for page, target in copied()}
    for page, target in copied():
        text = relinked(page.read_text(encoding="utf-8"), page, targets)
        if target.name == "systems.md" and results is not None:
            text = with_outcomes(text, results)
        if target.name == "index.md":
            entries = "\n".join(f"{title} <{name}>" for title, name in CONTENTS.items())
            text += f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
        (PAGES / target).write_text(text, encoding="utf-8")
    for name, (title, about, pages) in SECTIONS.items():
        entries = "\n".join(pages)
        text = f"# {title}\n\n{about}\n\n```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```\n"
        (PAGES / f"{name}.md").write_text(text, encoding="utf-8")


def relinked(text: str, page: Path, targets: dict[Path, Path]) -> str:
    """Return the text of a page with its relative links as the site has them."""

    def link(match: re.Match[str]) -> str:
        words, address = match.groups()
        path, anchor = urldefrag(address)
        file = (page.parent / path).resolve()
        if file in targets:
            return f"[{words}]({targets[file].name}{'#' * bool(anchor)}{anchor})"
        if file == ROOT / "README.md":
            return f"[{words}](index.md)"
        return f'<a href="{_beside(file)}">{_plain(words)}</a>'

    return PICTURE.sub(_picture, LINK.sub(link, text))


def _picture(match: re.Match[str]) -> str:
    """Return a picture as HTML: Sphinx would rename it, and its words would be lost to search."""
    words, name = html.escape(match[1]), Path(match[2]).name
    # The theme lays a white ground under pictures that are not of the class dark-light.
    themed = " dark-light" * (name == "architecture.svg")
    return f'<img class="wb-picture{themed}" alt="{words}" src="_static/{name}">'


def _beside(file: Path) -> str:
    """Give the address of a file that is no page; it is copied if need be."""
    if file.suffix == ".ipynb":
        return f"notebooks/{file.stem}.html"
    if file == ROOT / "claims":
        return "claims.html"
    if not file.is_file():
        return "functions.html" if file.is_relative_to(ROOT / "workbench") else "index.html"
    address = Path("files") / file.relative_to(ROOT)
    copy = PAGES / "_extra" / address
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
    return address.as_posix()


def _plain(words: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", words)


# -- reference --------------------------------------------------------------------------------


def public(verb: str) -> Iterator[tuple[str, object]]:
    """Give the public functions and classes of a verb, in the order in which its list has them."""
    module = importlib.import_module(f"workbench.{verb}")
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    names = re.findall(r"\b(\w+) as \1\b", stub.read_text()) if stub.exists() else module.__all__
    for name in dict.fromkeys(names):
        if callable(value := getattr(module, name)):
            yield name, value


def domain_of(value: object) -> str:
    """Tell the domain of a function from the folder, or the file, that it is written in."""
    for name in str(getattr(value, "__module__", "")).split(".")[2:]:
        word = name.lstrip("_")
        if (domain := EXPLORED.get(word, word)) in DOMAINS:
            return domain
    return "shared"


def by_domain() -> dict[str, dict[str, list[tuple[str, object]]]]:
    """Return functions by domain and verb; a domain or verb without any is left out."""
    found: dict[str, dict[str, list[tuple[str, object]]]] = {}
    for verb in VERBS:
        for name, value in public(verb):
            found.setdefault(domain_of(value), {}).setdefault(verb, []).append((name, value))
    return {domain: found[domain] for domain in DOMAINS if domain in found}


def write_reference() -> None:
    """Write one page per domain, and the list of them."""
    folder = PAGES / "api"
    folder.mkdir()
    functions = by_domain()
    for domain, verbs in functions.items():
        lines = [_headed(DOMAINS[domain], "="), *_begin_with(domain)]
        for verb, members in verbs.items():
            lines += [_headed(verb, "-"), f".. currentmodule:: workbench.{verb}", ""]
            # Loaders come before the writers of files, which only some need.
            for name, value in sorted(members, key=lambda member: member[0].startswith("write")):
                kind = "autoclass" if inspect.isclass(value) else "autofunction"
                lines += [f".. {kind}:: {name}", ""]
        (folder / f"{domain}.rst").write_text("\n".join(lines), encoding="utf-8")
    entries = "\n".join(f"   {domain}" for domain in functions)
    (folder / "index.rst").write_text(
        f"{_headed('Reference by domain', '=')}\nEvery public function with its parameters, the "
        "tables it takes and returns; examples of figures are in the gallery. The columns and "
        f"units of all tables are under :doc:`tables`.\n\n.. toctree::\n\n{entries}\n   tables\n",
        encoding="utf-8",
    )


def _begin_with(domain: str) -> list[str]:
    """Name the functions that most users of a domain need first: those of the table of domains."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{domain}` \|(.*)\|$", text, re.MULTILINE)
    if row is None:
        return []
    roles = [
        f":py:func:`{verb}.{name} <workbench.{verb}.{name}>`"
        for verb, cell in zip(
            ("load", "analyze", "plot", "explore"), row[1].split("|"), strict=False
        )
        for name in re.findall(r"`(\w+)`", cell)
    ]
    page = f" Questions and code: :doc:`/{domain}`." if (DOCS / f"{domain}.md").is_file() else ""
    return [f"**Begin with** {', '.join(roles)}.{page}", ""]


def write_tables() -> None:
    """Write the columns of every table, where names of tables in the reference lead."""
    from workbench import tables

    lines = [
        _headed("Tables", "="),
        "Units are the last part of a column's name; shares are fractions between 0 and 1. A "
        "question mark says that values may be missing.",
        "",
    ]
    head = ["   .. list-table::", "      :header-rows: 1", ""]
    for name in sorted(tables.__all__):
        if not isinstance(table := getattr(tables, name), tables.Table):
            continue
        lines += [f".. py:data:: workbench.tables.{name}", "", f"   {_escaped(table.meaning)}", ""]
        rows = [("column", "dtype", "meaning")]
        for column, of in table.columns.items():
            dtype = f"{of.dtype}{'?' * of.nullable}{' (optional)' * of.optional}"
            rows.append((f"``{column}``", dtype, _escaped(of.meaning) or "\\ "))
        lines += [
            *head,
            *(
                f"      * - {first}\n        - {second}\n        - {third}"
                for first, second, third in rows
            ),
            "",
        ]
    (PAGES / "api" / "tables.rst").write_text("\n".join(lines), encoding="utf-8")


def _headed(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n"


def _escaped(text: str) -> str:
    return re.sub(r"([*`|_\\])", r"\\\1", " ".join(text.split()))


# -- gallery ----------------------------------------------------------------------------------


def write_gallery() -> list[str]:
    """Run the example of every function of ``plot``; show its figure, its call and its table."""
    folder = PAGES / "gallery"
    folder.mkdir()
    lacking, pages, index = [], [], ["# Gallery", "", _GALLERY, ""]
    for domain, verbs in by_domain().items():
        sections, lines = [], [f"# {DOMAINS[domain]}: figures", "", _SCRIPTS, ""]
        for name, function in verbs.get("plot", []):
            # A second name of a function has no figure of its own.
            if not inspect.isfunction(function) or function.__name__ != name:
                continue
            if shown := example(name):
                claim, section = _shown(name, *shown)
                lines += section
                address = f"{domain}.md#{name.replace('_', '-')}"
                sections.append(
                    f"- {_thumbnail(name, shown[1])}[`plot.{name}`]({address}): {claim}"
                )
            else:
                lacking.append(name)
        if sections:
            (folder / f"{domain}.md").write_text("\n".join(lines), encoding="utf-8")
            index += [f"## {DOMAINS[domain]}", "", *sections, ""]
            pages.append(f"{DOMAINS[domain]} <{domain}>")
    index += ["```{toctree}", ":hidden:", "", *pages, "```", ""]
    (folder / "index.md").write_text("\n".join(index), encoding="utf-8")
    return lacking


def _thumbnail(name: str, figure: object) -> str:
    """Draw a figure small; nothing where no browser can draw."""
    from workbench.share.svg import svg_of

    if not (drawn := svg_of(json.loads(figure.to_json()))):  # type: ignore[attr-defined]
        return ""
    (PAGES / "_static" / f"plot-{name}.svg").write_text(drawn, encoding="utf-8")
    address = f"../_static/plot-{name}.svg"
    return f'<img class="wb-thumbnail" alt="" loading="lazy" src="{address}">'


@cache
def examples(verb: str) -> dict[str, str]:
    """Read the example of each function of ``plot`` or ``explore``, by name."""
    text = (DOCS / "examples" / f"{verb}.txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"^(\w+)\n-+\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def example(name: str) -> tuple[str, object, object] | None:
    """Run the example of a figure; return its code, its figure and the table drawn, if any."""
    import doctest

    import plotly.graph_objects as go

    steps = doctest.DocTestParser().get_examples(examples("plot").get(name, ""))
    names: dict[str, object] = {}
    # Expressions show what they give, as at a prompt; nobody reads that here.
    with contextlib.redirect_stdout(io.StringIO()):
        for step in steps:
            exec(compile(step.source, f"<example of {name}>", "single"), names)
    if not isinstance(figure := names.get("figure"), go.Figure):
        return None
    code = "".join(step.source for step in steps if "figure.layout" not in step.source)
    return code, figure, names.get("table")


def _shown(name: str, code: str, figure: object, table: object) -> tuple[str, list[str]]:
    # Figures hold their texts as HTML.
    claim = html.unescape(str(figure.layout.meta["claim"]))  # type: ignore[attr-defined]
    # A closing tag inside a text would end the script that holds the figure.
    data = figure.to_json().replace("</", "<\\/")  # type: ignore[attr-defined]
    lines = [f"## {name}", "", "```{raw} html"]
    lines += [f'<div class="wb-figure" role="figure" aria-label="{html.escape(claim)}">']
    lines += [f'<script type="application/json">{data}</script></div>', "```", ""]
    lines += ["```python", code.rstrip(), "```", ""]
    if isinstance(table, pd.DataFrame):
        rows = table.head(5).to_html(index=False, border=0, classes="table", max_cols=12)
        count = f"{len(table)} rows; the first {min(len(table), 5)}"
        lines += [f"Table, {count}:", "", "```{raw} html", rows, "```", ""]
    lines += [f"Reference: {{py:func}}`plot.{name} <workbench.plot.{name}>`", ""]
    return html.escape(claim), lines


_GALLERY = (
    "Every figure here was drawn when this site was built, by the example of its "
    "function, from simulated or bundled data. The titles say what these data show."
)
_SCRIPTS = "\n".join(
    ["```{raw} html"]
    + [f'<script src="../_static/{name}.js"></script>' for name in ("plotly.min", "keys")]
    + ["```"]
)


# -- notebooks and claims -----------------------------------------------------------------------


def write_notebooks(*, binder: str = "") -> None:
    """Write the published notebooks as pages, with their figures live, and the list of them."""
    import nbformat

    from workbench.share._exporter import Link, ReportExporter, Site, question_of, title_of_notebook
    from workbench.share.report import _label

    folder = PAGES / "_extra" / "notebooks"
    folder.mkdir(parents=True)
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    read = [nbformat.reads(path.read_text(encoding="utf-8"), as_version=4) for path in paths]
    links = [
        Link(f"{path.stem}.html", _label(path), title_of_notebook(notebook))
        for path, notebook in zip(paths, read, strict=True)
    ]
    site = Site((Link("../index.html", "Documentation", "Documentation"), *links), docs="../")
    exporter = ReportExporter(mode="shared")
    lines = ["# Notebooks", "", "As they were published, with figures that zoom.", ""]
    if binder:
        lines += [f"[Run them in your browser]({binder}) on Binder, with the bundled data.", ""]
    for link, notebook in zip(links, read, strict=True):
        exporter.site = replace(site, href=link.href)
        body, _ = exporter.from_notebook_node(notebook)
        for name, content in {link.href: body, **exporter.files}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")
        lines.append(
            f'- <a href="notebooks/{link.href}">{html.escape(link.title)}</a>: '
            f"{question_of(notebook)}"
        )
    exporter.write_assets(folder)
    (PAGES / "notebooks.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def outcomes(path: Path) -> pd.DataFrame:
    """Read what ``python -m claims --json`` wrote; refuse what lacks a claim or has another."""
    import claims

    dtypes = {name: column.dtype for name, column in claims.RESULTS.columns.items()}
    rows = pd.DataFrame(json.loads(path.read_text(encoding="utf-8")), columns=list(dtypes))
    results = claims.RESULTS.check(rows.astype(dtypes))
    computed = set(zip(results["noun"], results["claim"], strict=True))
    if differing := computed ^ {(entry.noun, entry.name) for entry in claims.claims()}:
        noun, name = min(differing)
        msg = (
            f"{path}: {len(differing)} claims are not those of this version, first {noun}: {name}; "
            f"write the file anew with: python -m claims --json > {path}"
        )
        raise SystemExit(msg)
    return results


def with_outcomes(text: str, results: pd.DataFrame) -> str:
    """Put beside each name of claims in the table of systems how they ended in this build."""
    import claims

    counts = {str(noun): _counted(claims.summary(rows)) for noun, rows in by_noun(results)}

    def told(row: re.Match[str]) -> str:
        links = re.sub(
            r"`(\w+)`",
            lambda name: f"[{name[0]}](claims.md#{name[1]}): {counts[name[1]]}",
            row[2],
        )
        return f"{row[1]}{links} |"

    head = "| `python -m claims` |"
    text = text.replace(head, "| `python -m claims`, numbers compared in this build |")
    # The last cell of a row.
    return re.sub(r"^(\|.*\| )(`\w+`(?:, `\w+`)*) \|$", told, text, flags=re.MULTILINE)


def by_noun(results: pd.DataFrame) -> Iterator[tuple[object, pd.DataFrame]]:
    """Give the results by what the claims are about, in the order of the alphabet."""
    yield from results.groupby(results["noun"].astype(object))


def _counted(summary: str) -> str:
    counts = [count for count in summary.split(", ") if not count.startswith("0 ")]
    return ", ".join(counts).replace("absent", "skipped")


def _binder(repository: str, version: str) -> str:
    """Give the address that starts the notebooks of a public repository, if one is named."""
    if not repository:
        return ""
    return f"https://mybinder.org/v2/gh/{repository}/{version or 'HEAD'}?urlpath=lab/tree/notebooks"


def write_claims(results: pd.DataFrame | None = None) -> None:
    """Write the claims: their results, or what is compared with which source."""
    import claims
    from workbench import __version__

    lines = ["# Claims", "", _CLAIMS, ""]
    if results is not None:
        lines += [
            f"Computed for this build of version {__version__}: "
            f"**{_counted(claims.summary(results))}**. *Short*: the printed number is missed, as "
            "the claim says beforehand. *Skipped*, or *absent*: a data set was not at hand.",
            "",
        ]
        for noun, rows in by_noun(results):
            lines += [f"## {noun}", "", "```{raw} html", claims.html(rows), "```", ""]
    else:
        lines += [_NOT_RUN, "", "| about | claim | printed by | data set |", "|---|---|---|---|"]
        for claim in claims.claims():
            cells = (
                f"`{claim.noun}`",
                claim.name,
                claim.source,
                ", ".join(claim.needs) or "bundled",
            )
            lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    (PAGES / "claims.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


_CLAIMS = (
    "Every number that is compared with one printed elsewhere. In a clone, `make claims` computes "
    "all of them on your machine, prints each beside the printed one, and ends with exit code 1 if "
    "one fails; `python -m claims traces` those about traces. [Published systems](systems.md) says "
    "which systems that makes reproduced, explained or not checkable."
)
_NOT_RUN = (
    "**The claims were not run in this build.** `python -m claims --json > claims.json` runs "
    "them, which takes minutes; `make docs CLAIMS=claims.json` then shows each number here, and "
    "the verdicts beside the published systems."
)


# -- the site -----------------------------------------------------------------------------------


def broken_links() -> list[str]:
    """Follow every internal link of the site; return those that lead nowhere."""
    files = [path for path in OUT.rglob("*.html") if "_static" not in path.parts]
    pages = {path: path.read_text(encoding="utf-8") for path in files}
    names = {path: set(map(html.unescape, NAMED.findall(text))) for path, text in pages.items()}
    broken = []
    for page, text in pages.items():
        for address in set(ADDRESS.findall(text)):
            path, anchor = urldefrag(html.unescape(address))
            if re.match(r"[a-z]+:", path):
                continue
            file = page if not path else (page.parent / unquote(path.split("?")[0])).resolve()
            # An anchor can be told of pages only.
            has_anchor = not anchor or file not in names or unquote(anchor) in names[file]
            if not (file.is_file() and has_anchor):
                broken.append(f"{page.relative_to(OUT)}: {address}")
    return sorted(broken)


def prepare() -> None:
    """Gather all pages and files for Sphinx."""
    from workbench.share import _exporter, _plotlyjs

    for folder in (PAGES, OUT):
        shutil.rmtree(folder, ignore_errors=True)
    static = PAGES / "_static"
    static.mkdir(parents=True)
    (PAGES / "_extra").mkdir()
    for name in ("site.css", "site.js"):
        shutil.copyfile(DOCS / "site" / name, static / name)
    for picture in [*(DOCS / "screens").iterdir(), *(DOCS / "site").glob("*.svg")]:
        shutil.copyfile(picture, static / picture.name)
    shutil.copyfile(_plotlyjs.path(), static / "plotly.min.js")
    shutil.copyfile(_exporter.TEMPLATES / "wbreport" / "keys.js", static / "keys.js")
    shutil.copyfile(DOCS / "site" / "conf.py", PAGES / "conf.py")


def main() -> int:
    """Build the site; return 0, or 1 with the troubles printed."""
    from sphinx.cmd.build import build_main

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--claims", type=Path, help="what python -m claims --json wrote")
    parser.add_argument("--version", default="", help="name in the list of versions")
    parser.add_argument("--repository", default="", help="OWNER/NAME on GitHub, for Binder")
    given = parser.parse_args()
    results = outcomes(given.claims.resolve()) if given.claims else None
    # conf.py, which Sphinx runs, reads this.
    os.environ["WORKBENCH_DOCS_VERSION"] = given.version
    os.chdir(ROOT)
    prepare()
    write_copies(results)
    write_reference()
    write_tables()
    if lacking := write_gallery():
        print("examples that draw no figure for the gallery:", ", ".join(lacking))  # noqa: T201
    write_notebooks(binder=_binder(given.repository, given.version))
    write_claims(results)
    options = ["-b", "html", "-q", "-W", "--keep-going", "-j", "2"]
    if status := build_main([*options, str(PAGES), str(OUT)]):
        return status
    for line in (broken := broken_links()):
        print(f"leads nowhere: {line}")  # noqa: T201
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
