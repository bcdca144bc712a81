"""The documentation site: its pages, its links, its search, and the code of its tutorial."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from tests import test_pages as pages
from workbench import explore, plot

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WITH_CODE = ("tutorial", "how_to")
SEARCHED = ("mfu", "straggler", "bubbl", "mtbf", "ettr", "sdc", "rooflin")
# No noun: parts that are shown inside of others.
PARTS = {"Explorer", "FindingCards", "Page", "static_html"}


def build_module():
    """Load the script that builds the site; docs/ is no package."""
    spec = importlib.util.spec_from_file_location("build_site", DOCS / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = build_module()


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE)
def test_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    pages.own_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in pages.python_of((DOCS / "site" / f"{page}.md").read_text()):
        exec(compile(block, f"{page}.md", "exec"), names)


def test_every_public_name_is_in_the_reference_once():
    shown = [
        f"{verb}.{name}"
        for verbs in build.by_domain().values()
        for verb, members in verbs.items()
        for name, _ in members
    ]
    assert len(shown) == len(set(shown))
    for verb, module in (("plot", plot), ("explore", explore)):
        public = {name for name in module.__all__ if callable(getattr(module, name))}
        assert {name.split(".")[1] for name in shown if name.startswith(f"{verb}.")} == public


def test_every_figure_and_explorer_has_an_example():
    lacking = [
        f"{verb}.{name}"
        for verb in ("plot", "explore")
        for name, value in build.public(verb)
        if name not in PARTS and ">>>" not in (inspect.getdoc(value) or "")
    ]
    assert lacking == []


def test_terms_of_the_glossary_are_sorted_and_name_functions_that_exist():
    text = (DOCS / "site" / "glossary.md").read_text()
    terms = [cells[0].lower() for cells in pages.rows_of(text)]
    assert terms == sorted(terms)
    for verb, name in re.findall(r"`(\w+)\.(\w+)`", text):
        assert hasattr(pages.VERBS[verb], name)


def test_every_page_is_reached_from_the_head_of_the_site():
    listed = set(build.CONTENTS.values()) | {
        name for _, _, names in build.SECTIONS.values() for name in names
    }
    made = {"gallery/index", "api/index", "notebooks", "claims", *build.SECTIONS}
    assert listed == {target.stem for _, target in build.copied()} - {"index"} | made


def test_links_of_a_copied_page_lead_to_pages_of_the_site(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "PAGES", tmp_path)
    page = DOCS / "systems.md"
    targets = {path.resolve(): target for path, target in build.copied()}
    texts = {
        "[a](traces.md#b-c)": "[a](traces.md#b-c)",
        "[`a`](../notebooks/01_traces.ipynb)": '<a href="notebooks/01_traces.html"><code>a</code></a>',
        "[a](../CHANGELOG.md)": "[a](changelog.md)",
        "[a](https://example.org/x)": "[a](https://example.org/x)",
        "[a](../LICENSE)": '<a href="files/LICENSE">a</a>',
    }
    for text, wanted in texts.items():
        assert build.relinked(text, page, targets) == wanted
    assert (tmp_path / "_extra/files/LICENSE").is_file()


def test_a_link_that_leads_nowhere_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "OUT", tmp_path)
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#there">x</a><a href="https://example.org">x</a>'
        '<a class="y" href="c.html">x</a><a href="b.html#gone">x</a><img src="d.png">'
    )
    (tmp_path / "b.html").write_text('<p id="there"></p><a href="a.html#top">x</a>')
    broken = ["a.html: b.html#gone", "a.html: c.html", "a.html: d.png"]
    assert build.broken_links() == broken


def test_an_example_gives_its_call_its_figure_and_its_table():
    code, figure, table = build.example(plot.communication_speedup)
    assert "communication_speedup(table" in code
    assert figure.layout.meta["claim"]
    assert len(table)


@pytest.mark.slow
def test_the_search_of_the_site_finds_the_words_of_the_field(docs_site):
    index = (docs_site / "searchindex.js").read_text()
    missing = [term for term in SEARCHED if not re.search(rf'[{{,"]{term}"?:', index)]
    assert missing == []


@pytest.mark.slow
def test_the_site_shows_a_figure_for_every_example(docs_site):
    drawn = sum(
        page.read_text().count('class="wb-figure"') for page in docs_site.glob("gallery/*.html")
    )
    examples = [
        name
        for name, value in build.public("plot")
        if inspect.isfunction(value)
        and value.__name__ == name
        and "figure = " in (inspect.getdoc(value) or "")
    ]
    assert drawn == len(examples) >= 70


@pytest.mark.slow
def test_no_page_of_the_site_loads_anything_from_elsewhere(docs_site):
    outside = re.compile(r'<(?:script|link|img|iframe)\b[^>]+(?:src|href)="(?:https?:)?//[^"]+"')
    loads = {
        page.name: found
        for page in docs_site.rglob("*.html")
        if (
            found := [
                tag for tag in outside.findall(page.read_text()) if 'rel="canonical"' not in tag
            ]
        )
    }
    assert loads == {}
