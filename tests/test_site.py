"""The documentation site: its pages, its links, its search, and the code of its tutorial."""

import importlib.machinery
import importlib.util
import inspect
import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

import claims
from tests import test_pages as pages
from workbench import explore, plot

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WITH_CODE = ("tutorial", "how_to")
SEARCHED = ("mfu", "straggler", "bubbl", "mtbf", "ettr", "sdc", "rooflin")
# No noun: parts that are shown inside of others.
PARTS = {"Explorer", "FindingCards", "Page"}


def script(name):
    """Load a script of the site; docs/ is not a package."""
    spec = importlib.util.spec_from_file_location(f"{name}_of_site", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build, versions = script("build"), script("versions")


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
        for name, _ in build.public(verb)
        if name not in PARTS and ">>>" not in build.examples(verb).get(name, "")
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
    code, figure, table = build.example("communication_speedup")
    assert "plot.communication_speedup(table" in code
    assert figure.layout.meta["claim"]
    assert len(table)


# --- results of the claims -----------------------------------------------------------------


def results_of(listed):
    """Give every claim one number that agrees, one that is short and one row without data."""
    return [
        {"noun": entry.noun, "claim": entry.name, "what": "x", "source": "page 1", "unit": "s",
         "printed": 1.5, "here": 1.25, "tolerance": 0.5, "verdict": verdict, "note": note}
        for entry in listed
        for verdict, note in (("pass", ""), ("short", ""), ("absent", "fetch it"))
    ]  # fmt: skip


def write_results(path, rows):
    path.write_text(json.dumps(rows))
    return path


def test_results_of_claims_stand_beside_the_systems_and_on_their_page(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "PAGES", tmp_path)
    listed = claims.claims()
    read = build.outcomes(write_results(tmp_path / "claims.json", results_of(listed)))
    claims.RESULTS.check(read)
    build.write_copies(read)
    build.write_claims(read)
    count = sum(entry.noun == "regions" for entry in listed)
    told = f"[`regions`](claims.md#regions): {count} pass, {count} short, {count} skipped |"
    assert told in (tmp_path / "systems.md").read_text()
    page = (tmp_path / "claims.md").read_text()
    assert "## regions\n" in page
    assert re.search(r">1.5 s</td><td [^>]*>1.25 s</td>", page)
    assert "were not run" not in page


def test_without_results_the_page_of_claims_says_that_and_how_to_run_them(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "PAGES", tmp_path)
    build.write_claims()
    page = (tmp_path / "claims.md").read_text()
    assert "The claims were not run in this build" in page
    assert "`python -m claims --json > claims.json`" in page
    assert " pass" not in page


@pytest.mark.parametrize("stale", ["lacks one", "has another"])
def test_results_of_another_version_are_refused(tmp_path, stale):
    rows = results_of(claims.claims())
    if stale == "lacks one":
        first = rows[0]["claim"]
        rows = [row for row in rows if row["claim"] != first]
    else:
        rows.append(rows[0] | {"claim": "a claim of old"})
    with pytest.raises(SystemExit, match=r"1 claims are not those .* python -m claims --json"):
        build.outcomes(write_results(tmp_path / "claims.json", rows))


def test_a_table_of_systems_without_claims_stays_as_it_is():
    text = "| a | b | explained | why | |\n| c `d` | e | f | `g` | |\n"
    assert build.with_outcomes(text, pd.DataFrame(columns=list(claims.RESULTS.columns))) == text


# --- the tutorial, followed ------------------------------------------------------------------

PAGE = """
```
python3 -m venv .venv
. .venv/bin/activate
```

```console
$ workbench check runs
read   61,032  events
$ workbench report
```

```python
print(1)
```
"""


def follower():
    loader = importlib.machinery.SourceFileLoader("follower", str(ROOT / ".ci" / "tutorial"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("follower", loader))
    loader.exec_module(module)
    return module


def followed(*outputs):
    """Compare the page with commands that gave these outputs and exit codes."""
    module = follower()
    printed = "".join(f"{text}<ran {code}>\n" for text, code in outputs)
    return module.misfits(module.steps(PAGE), printed)


def test_a_page_is_followed_command_by_command():
    commands = [command for command, _ in follower().steps(PAGE)]
    assert commands[:4] == [
        "python3 -m venv .venv",
        ". .venv/bin/activate",
        "workbench check runs",
        "workbench report",
    ]
    assert commands[4].endswith("print(1)\nBLOCK\npython -W error block_2.py")


@pytest.mark.parametrize(
    ("at", "output", "wrong"),
    [
        (2, ("read 7 events\n", 1), None),  # other numbers, and something to look at
        (3, ("any page\n", 0), None),  # no output is shown
        (2, ("read 7 files\n", 0), "another output of: workbench check"),
        (2, ("", 0), "another output of: workbench check"),
        (2, ("read 7 events\n", 2), "exit code 2 of: workbench check"),
        (0, ("", 1), "exit code 1 of: python3"),
    ],
)
def test_another_kind_of_output_or_an_error_is_told(at, output, wrong):
    outputs = [("", 0), ("", 0), ("read 61,032 events\n", 0), ("", 0), ("1\n", 0)]
    outputs[at] = output
    told = followed(*outputs)
    assert told == [] if wrong is None else told[0].startswith(wrong)


def test_commands_that_did_not_run_are_told():
    assert followed(("", 0))[0] == "1 of 5 commands ran"


# --- versions ------------------------------------------------------------------------------


def put(folder, *names):
    site = folder / "_site"
    site.mkdir(exist_ok=True)
    for name in names:
        (site / "searchindex.js").write_text(name)
        versions.put(site, folder / "published", name, base="/workbench/")
    return folder / "published"


def test_versions_are_listed_by_number_and_the_newest_release_is_opened(tmp_path):
    folder = put(tmp_path, "v0.9.0", "main", "v0.10.0", "v0.11.0rc1")
    shown = json.loads((folder / "switcher.json").read_text())
    names = [version["version"] for version in shown]
    assert names == ["main", "v0.11.0rc1", "v0.10.0", "v0.9.0"]
    assert [version["version"] for version in shown if version["preferred"]] == ["v0.10.0"]
    assert shown[-1]["url"] == "/workbench/v0.9.0/"
    assert 'url=v0.10.0/"' in (folder / "index.html").read_text()
    assert (folder / ".nojekyll").exists()


def test_a_version_that_is_published_again_replaces_itself_and_no_other(tmp_path):
    folder = put(tmp_path, "v0.1.0", "main")
    (folder / "main" / "gone.html").touch()
    (folder / "CNAME").write_text("docs.example.org")
    put(tmp_path, "main")
    assert sorted(path.name for path in (folder / "main").iterdir()) == ["searchindex.js"]
    assert (folder / "v0.1.0" / "searchindex.js").read_text() == "v0.1.0"
    assert (folder / "CNAME").exists()


@pytest.mark.parametrize("name", ["..", "v1/../..", "", "branch", "v1.0\n"])
def test_what_is_no_version_becomes_no_folder(tmp_path, name):
    with pytest.raises(SystemExit, match="expected main, or a tag such as"):
        put(tmp_path, name)


def test_an_unbuilt_site_is_not_published(tmp_path):
    with pytest.raises(SystemExit, match="holds no site; build it with"):
        versions.put(tmp_path, tmp_path / "published", "main", base="/")


def test_the_site_is_published_from_main_and_tags_by_a_job_that_runs_no_other_code():
    text = (ROOT / ".github" / "workflows" / "docs.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert "branches: [main]\n    tags:" in text
    assert "secrets." not in text
    assert "permissions" not in jobs["build"]
    assert jobs["publish"]["permissions"] == {"contents": "write"}
    assert "make" not in str(jobs["publish"]["steps"])


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
        and "figure = " in build.examples("plot").get(name, "")
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
