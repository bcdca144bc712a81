"""The static site: complete, offline, honest about its data, and never half-written."""

import html
import json
import re
import sys
import threading
from urllib.parse import quote

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from workbench import share
from workbench.errors import PublishError
from workbench.share import _execute
from workbench.share._exporter import question_of
from workbench.share._tables import as_data
from workbench.share.bundle import EXPLORER_MIME, PLOTLY_MIME

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
STATES = '<div class="wb-explorer"><form></form><script>draw()</script></div>'


def figure_of(title, **meta):
    title = title.replace("<", "&lt;")
    return {"data": [{"type": "bar", "y": [1]}], "layout": {"title": {"text": title}, "meta": meta}}


def shown(figure):
    return new_output("display_data", data={PLOTLY_MIME: figure})


def failed(name, message):
    return new_output("error", ename=name, evalue=message, traceback=[])


def soup_of(site, name):
    return BeautifulSoup((site / name).read_text(encoding="utf-8"), "html.parser")


def site_of(index):
    assert index.name == "index.html"
    return index.parent


def test_a_site_is_an_overview_a_page_per_notebook_and_plotly_once(
    run, notebook, tmp_path, write_notebook
):
    run["figure"] = [shown(figure_of("Rank 7 comes last", source="dlrm"))]
    second = write_notebook(
        tmp_path / "02_idle_time.ipynb", "# Second\n\n[first](01_waits.ipynb#x) [no page](09.ipynb)"
    )
    site = site_of(share.report([notebook, second], out=tmp_path / "site"))
    files = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert files == {
        ".workbench-report",
        "01_waits.html",
        "02_idle_time.html",
        "assets/keys.js",
        "assets/page.css",
        "assets/page.js",
        "assets/plotly.min.js",
        "csv/01_waits-figure-1.csv",
        "index.html",
    }
    page = soup_of(site, "02_idle_time.html")
    links = [(a["href"], a.text, a.get("aria-current")) for a in page.select("header nav a")]
    assert links == [
        ("index.html", "Overview", None),
        ("01_waits.html", "Waits", None),
        ("02_idle_time.html", "Idle time", "page"),
    ]
    assert [a["href"] for a in page.select("main p a")] == ["01_waits.html#x"]
    assert "no page" in page.main.text
    assert page.select_one("a[rel=prev]")["href"] == "01_waits.html"


def test_the_overview_gives_question_and_findings_as_the_figures_state_them(
    run, notebook, tmp_path
):
    run["figure"] = [shown(figure_of("Rank 7 comes last", source="dlrm"))]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    card = soup_of(site, "index.html").select_one("article")
    assert card.h2.text == "Who waits for whom?"
    assert card.p.text == "Which rank comes last?"
    assert [item.text for item in card.select("li")] == ["Rank 7 comes last"]


def test_the_question_of_a_notebook_is_plain_text():
    cell = new_markdown_cell("# A\n\n**Question.** *Which* [rank](02_ranks.ipynb) is last?\n\nB")
    assert question_of(new_notebook(cells=[cell])) == "Which rank is last?"


def test_a_page_asks_nothing_from_outside_and_says_so_to_the_browser(run, notebook, tmp_path):
    run["figure"] = [shown(figure_of("late"))]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    for name in ("index.html", "01_waits.html"):
        page = soup_of(site, name)
        policy = page.select_one("meta[http-equiv=Content-Security-Policy]")["content"]
        assert policy.startswith("default-src 'none'")
        assert "http" not in policy
        assert "'unsafe-inline'" not in policy.partition("script-src")[2]
        loaded = [tag.get("src") or tag.get("href") for tag in page.select("[src], link[href]")]
        assert all(re.match(r"assets/|data:", place) for place in loaded)


def test_only_figures_that_compile_their_drawing_may_evaluate_code(run, notebook, tmp_path):
    allowed = []
    for kind in ("scatter", "scattergl"):
        run["figure"] = [shown({"data": [{"type": kind, "y": [1]}], "layout": {}})]
        page = soup_of(site_of(share.report(notebook, out=tmp_path / "site")), "01_waits.html")
        policy = page.select_one("meta[http-equiv=Content-Security-Policy]")["content"]
        allowed.append("'unsafe-eval'" in policy)
    assert allowed == [False, True]


def test_an_overview_is_made_from_what_the_pages_say_and_may_bring_files(run, notebook, tmp_path):
    run["figure"] = [shown(figure_of("Rank 7 comes last", source="dlrm"))]
    asked = []

    def overview(pages, folder):
        asked.extend(pages)
        (folder / "cut.json").write_text("{}")
        return share.Overview("Findings", '<h1 id="mine">Ranked</h1>', "my job", is_synthetic=True)

    site = site_of(share.report(notebook, out=tmp_path / "site", overview=overview))
    page = soup_of(site, "index.html")
    assert page.title.text == "Findings"
    assert page.select_one("main h1#mine").text == "Ranked"
    assert page.select_one(".wb-badge").text == "Synthetic data"
    assert "Data: my job (synthetic)." in page.footer.text
    assert (site / "cut.json").is_file()
    (facts,) = asked
    assert (facts.stem, facts.href, facts.label) == ("01_waits", "01_waits.html", "Waits")
    assert (facts.answers, facts.problems) == (("Rank 7 comes last",), "")


def test_the_first_page_can_be_opened_while_the_others_are_made(
    run, notebook, tmp_path, write_notebook, monkeypatch, capsys
):
    second, out, seen = write_notebook(tmp_path / "02_idle.ipynb", "figure"), tmp_path / "site", []
    run["figure"] = [shown(figure_of("late"))]
    share.report([notebook], out=out)
    (out / "old.html").write_text("old")
    is_shown, execute = threading.Event(), _execute.execute

    def wait(*arguments, **options):
        assert is_shown.wait(60)
        seen.append(soup_of(out, "index.html"))
        execute(*arguments, **options)

    monkeypatch.setattr(_execute, "execute", wait)
    show = sys.modules["workbench.share.report"]._Fresh.show
    monkeypatch.setattr(
        sys.modules["workbench.share.report"]._Fresh,
        "show",
        lambda site: (show(site), is_shown.set()),
    )
    words = ["computed once"]

    def overview(pages, _folder):
        def laid_out(pages):
            return share.Overview("a", f"<h1>{len(pages)} pages</h1>", with_pages=laid_out)

        words.pop()
        return laid_out(pages)

    capsys.readouterr()
    share.report([notebook, second], out=out, overview=overview)
    assert [page.h1.text for page in seen] == ["0 pages"] * 2
    assert seen[0].select_one("[role=status]").text == "Pages still being made: Waits, Idle."
    assert [a.get("href") for a in seen[0].select("header nav a")] == ["index.html", None, None]
    assert seen[0].select_one("meta[http-equiv=refresh]")
    assert not (out / "old.html").exists()
    page = soup_of(out, "index.html")
    assert (page.h1.text, page.select("[role=status], meta[http-equiv=refresh]")) == ("2 pages", [])
    assert [a["href"] for a in page.select("header nav a")][1:] == ["01_waits.html", "02_idle.html"]
    lines = [
        "index.html: can be opened, 2 pages follow",
        "01_waits.html: page 1 of 2",
        "02_idle.html: page 2 of 2",
    ]
    assert capsys.readouterr().err.splitlines() == lines


def test_a_report_that_fails_after_its_first_page_gives_the_place_back(run, notebook, tmp_path):
    run["figure"] = [shown(figure_of("late"))]
    index = share.report(notebook, out=tmp_path / "site")
    before = index.read_bytes()
    run["figure"] = [failed("LoadError", "no trace")]
    with pytest.raises(PublishError, match="no trace"):
        share.report(notebook, out=index.parent, overview=lambda *_: share.Overview("b", "new"))
    assert index.read_bytes() == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"01_waits.ipynb", "site"}


def test_data_behind_figures_and_tables_are_files_that_the_page_links(run, notebook, tmp_path):
    figure = figure_of("late")
    figure["data"][0]["x"] = ["rank 7"]
    run["figure"] = [shown(figure)]
    table = as_data(pd.DataFrame({"dur_ns": [276378118]}))
    run["table"] = [new_output("display_data", data={**table, "text/html": "<table></table>"})]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    page = soup_of(site, "01_waits.html")
    files = [site / link["href"] for link in page.select("a[download]")]
    assert [file.read_text() for file in files] == [
        "series,x,y\n,rank 7,1\n",
        "dur_ns\n276378118\n",
    ]
    assert page.select_one(".wb-table td").text == "276"
    assert page.select_one(".wb-table th").text == "dur ms"


def test_an_overview_learns_which_section_shows_a_figure(run, tmp_path, write_notebook):
    texts = (
        "## Who is late",
        "plot.straggler_attribution(waits)",
        "## Again",
        "plot.straggler_attribution(waits)\nplot.idle_time(x)",
    )
    asked = []
    notebook = write_notebook(tmp_path / "01_a.ipynb", "plot.clocks(x)", *texts)
    share.report(notebook, out=tmp_path / "site",
                 overview=lambda pages, _: asked.extend(pages) or share.Overview("a", "b"))  # fmt: skip
    assert asked[0].sections == {"straggler_attribution": "Who-is-late", "idle_time": "Again"}
    page = soup_of(tmp_path / "site", "01_a.html")
    assert {tag["id"] for tag in page.select("h2[id]")} >= set(asked[0].sections.values())


def test_equal_styles_of_components_stand_on_a_page_once(run, notebook, tmp_path):
    block = (
        '<div class="wb"><style>.wb b{color:red}</style><table><tr><td>{}</td></tr></table></div>'
    )
    run["table"] = [
        new_output("display_data", data={"text/html": block.replace("{}", text)}) for text in "ab"
    ]
    page = soup_of(site_of(share.report(notebook, out=tmp_path / "site")), "01_waits.html")
    assert [style.text for style in page.select("style")] == [".wb b{color:red}"]
    assert [cell.text for cell in page.select(".wb td")] == ["a", "b"]
    assert page.select(".wb-table") == []


def test_sections_can_be_linked(run, tmp_path, write_notebook):
    notebook = write_notebook(tmp_path / "own.ipynb", "## One & two", "## One & two", "## Three")
    page = soup_of(site_of(share.report(notebook, out=tmp_path / "site")), "own.html")
    links = [heading.select_one("a.wb-anchor")["href"] for heading in page.select(".wb-text h2")]
    assert len(set(links)) == 3
    names = {quote(tag["id"]) for tag in page.select("[id]")}
    assert {link.removeprefix("#") for link in links} <= names
    assert [link["href"] for link in page.select(".wb-contents a")] == links


def test_figures_are_pictures_with_their_data_beside_them(run, notebook, tmp_path):
    figure = figure_of("Rank 7 comes last")
    run["figure"] = [shown(figure), shown(figure)]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    first, second = soup_of(site, "01_waits.html").select(".wb-figure")
    assert first["id"] != second["id"]
    assert first.p.text == "Rank 7 comes last"
    assert json.loads(first.select_one("script[type='application/json']").string) == figure


def test_hostile_names_stay_names_on_every_page(run, notebook, tmp_path):
    run["figure"] = [shown(figure_of(HOSTILE, source=HOSTILE))]
    run["table"] = [
        new_output("stream", name="stdout", text=HOSTILE),
        new_output("stream", name="stderr", text=HOSTILE),
        new_output("display_data", data={"text/plain": HOSTILE}),
        failed("LoadError", f"{HOSTILE} is not a trace"),
    ]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    for name in ("index.html", "01_waits.html"):
        page = soup_of(site, name)
        assert page.select("img[src=x], [onerror]") == []
        assert not any(
            "alert(2)" in (script.string or "") for script in page.select("script:not([type])")
        )
        assert HOSTILE in page.text


def test_html_with_scripts_of_its_own_is_not_shown(run, notebook, tmp_path):
    data = {"text/html": "<div><script>alert(3)</script></div>", "text/plain": "a live thing"}
    run["table"] = [new_output("display_data", data=data)]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    page = soup_of(site, "01_waits.html")
    assert "alert(3)" not in str(page)
    assert "a live thing" in page.text


def test_an_explorer_keeps_its_picture_and_only_its_own_script_may_run(run, notebook, tmp_path):
    still = "<figure><img alt='' src='data:,'><figcaption>Snapshot</figcaption></figure>"
    run["figure"] = [new_output("display_data", data={EXPLORER_MIME: STATES, "text/html": still})]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    page = soup_of(site, "01_waits.html")
    assert page.select_one(".wb-still figcaption").text == "Snapshot"
    assert page.select_one(".wb-states form") is not None
    policy = page.select_one("meta[http-equiv=Content-Security-Policy]")["content"]
    # printf 'draw()' | openssl dgst -sha256 -binary | base64
    assert policy.endswith("'sha256-jm3FkV4tNIdBUr8jRVVl5n9PUixlaxTWD0pdpFiSH5A='"), policy


def test_a_table_is_readable_by_machines_too(run, notebook, tmp_path):
    block = "<table class='dataframe'><thead><tr><th></th><th>rank</th></tr></thead></table>"
    run["table"] = [new_output("display_data", data={"text/html": block})]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    region = soup_of(site, "01_waits.html").select_one("[role=region]")
    assert region["tabindex"] == "0"
    assert [cell.text for cell in region.select("th")] == ["rank"]


@pytest.mark.parametrize("fence", ["```python\nload.trace(path)\n```", "    indented = 1"])
def test_code_in_text_can_be_scrolled_without_a_mouse(run, tmp_path, write_notebook, fence):
    notebook = write_notebook(tmp_path / "own.ipynb", f"# Your own\n\n{fence}")
    page = soup_of(site_of(share.report(notebook, out=tmp_path / "site")), "own.html")
    blocks = page.select(".wb-text pre, article pre")
    assert blocks
    assert {block.get("tabindex") for block in blocks} == {"0"}


@pytest.mark.parametrize(
    ("figure", "is_marked"),
    [
        (figure_of("late", source="fleet-demo", synthetic=True), True),
        (figure_of("late", source="SYNTHETIC DATA of a fleet"), False),
        (figure_of("late", source="dlrm", synthetic=False), False),
    ],
)
def test_synthetic_data_is_marked_on_every_page(run, notebook, tmp_path, figure, is_marked):
    run["figure"] = [shown(figure)]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    for name in ("index.html", "01_waits.html"):
        page = soup_of(site, name)
        assert bool(page.select(".wb-badge")) is is_marked
        assert f"Data: {figure['layout']['meta']['source']}" in page.footer.text
        assert ("(synthetic)" in page.footer.text) is is_marked


def test_a_page_of_real_and_generated_data_says_which_is_which(run, notebook, tmp_path):
    run["figure"] = [
        shown(figure_of("late", source="dlrm", synthetic=False)),
        shown(figure_of("early", source="made up", synthetic=True)),
    ]
    page = soup_of(site_of(share.report(notebook, out=tmp_path / "site")), "01_waits.html")
    assert page.select_one(".wb-badge").text.strip() == "Partly synthetic data"
    assert "dlrm, made up (synthetic)" in page.footer.text


def test_a_link_out_of_the_report_stays_words(run, tmp_path, write_notebook):
    path = write_notebook(tmp_path / "01_a.ipynb", "figure")
    raw = json.loads(path.read_text())
    links = "[page](../docs/traces.md#a) [here](#Here) [web](https://a.org/b.md) [b](02_b.ipynb)"
    raw["cells"].append(new_markdown_cell(f"## Here\n\n{links}"))
    path.write_text(json.dumps(raw))
    page = soup_of(site_of(share.report(path, out=tmp_path / "site")), "01_a.html")
    (line,) = [p for p in page.select("p") if p.text == "page here web b"]
    assert [link["href"] for link in line.select("a")] == ["#Here", "https://a.org/b.md"]


def test_own_data_reaches_the_notebook_and_the_foot_of_the_page(run, notebook, tmp_path):
    mine = tmp_path / "it's <mine>"
    mine.mkdir()
    run[f"data = {str(mine)!r}"] = [shown(figure_of("Rank 3 comes last", origin="own"))]
    site = site_of(share.report(notebook, out=tmp_path / "site", data=mine))
    page = soup_of(site, "01_waits.html")
    assert f"Data: {mine.name}." in page.footer.text
    notice = page.select_one(".wb-notice")
    assert f"made from {mine.name}." in notice.text
    assert [item.text for item in notice.select("li")] == ["Rank 3 comes last"]
    assert "Rank 7" not in page.main.text


@pytest.mark.parametrize("folder", ["client", "it's <client> & co", "naïve \\u00e9"])
def test_a_report_lists_no_folder_around_the_data(run, notebook, tmp_path, folder):
    mine = tmp_path / "of_anna" / folder / "monday"
    mine.mkdir(parents=True)
    (tmp_path / "link").symlink_to(mine.parent, target_is_directory=True)
    given = tmp_path / "link" / "monday"
    table = pd.DataFrame({"file": [f"{mine}/a.log", str(given / "b.log")]})
    run[f"data = {str(given)!r}"] = [
        shown(figure_of(f"Read from {html.escape(str(mine))}", origin="own")),
        new_output("stream", name="stdout", text=f"{given}/a.log: 3 lines\n"),
        new_output("display_data", data=as_data(table)),
    ]
    run["other"] = [failed("TableError", f"{mine}/a.log, line 3: no time")]

    def overview(_pages, made):
        (made / "csv").mkdir(exist_ok=True)
        table.to_csv(made / "csv" / "files.csv")
        return share.Overview("files", f"<p>{html.escape(str(mine))}/b.log</p>", "monday")

    site = site_of(share.report(notebook, out=tmp_path / "site", data=given, overview=overview))
    pages = [*site.rglob("*.html"), *site.rglob("*.csv")]
    written = "".join(file.read_text(encoding="utf-8") for file in pages)
    assert "monday/a.log, line 3" in written
    assert "monday/b.log" in written
    for name in ("of_anna", folder, html.escape(folder), str(tmp_path), "/link"):
        assert name not in written


OTHERS = {
    "data set": "Data set of the workbench, not your data",
    "published": "Published case, not your data",
    "model": "Model or simulation, not your data",
}


@pytest.fixture
def mixed(run, notebook, tmp_path):
    """Report on a real file whose page also shows a paper, a simulation and a bundled set."""
    mine = tmp_path / "mine"
    mine.mkdir()
    run[f"data = {str(mine)!r}"] = [shown(figure_of("Mine is late", source="mine", origin="own"))]
    run["figure"] = [
        shown(figure_of(f"{origin} says 44", source=f"source {origin}", origin=origin))
        for origin in OTHERS
    ]
    run["table"] = [shown(figure_of("Drawn 57", source="seed 1", origin="model", synthetic=True))]
    run["other"] = [
        shown(figure_of("Whose is 99?", source="plain words")),
        shown(figure_of("Drawn 58", source="plain words", synthetic=True)),
    ]
    return mine, site_of(share.report(notebook, out=tmp_path / "site", data=mine))


def test_only_figures_of_ones_own_data_are_findings(mixed):
    _, site = mixed
    card = soup_of(site, "index.html").select_one("article")
    assert [item.text for item in card.select("li")] == ["Mine is late"]
    notice = soup_of(site, "01_waits.html").select_one(".wb-notice")
    assert [item.text for item in notice.select("li")] == ["Mine is late"]


def test_a_real_file_is_not_synthetic_because_a_figure_beside_it_is(mixed):
    mine, site = mixed
    for name in ("index.html", "01_waits.html"):
        page = soup_of(site, name)
        assert page.select(".wb-badge") == []
        assert f"Data: {mine.name}." in page.footer.text
    foot = soup_of(site, "01_waits.html").footer.text
    assert (
        "not from this data: source data set; source published; source model; seed 1 (synt" in foot
    )


def test_every_figure_of_other_data_says_so_above_itself(mixed):
    _, site = mixed
    blocks = soup_of(site, "01_waits.html").select(".wb-figure")
    said = [(before.text if (before := block.find_previous_sibling("p", "wb-origin")) else "")
            for block in blocks]  # fmt: skip
    assert said == ["", *OTHERS.values(), OTHERS["model"], "", OTHERS["model"]]


def test_files_that_are_synthetic_say_so_even_if_they_are_ones_own(run, notebook, tmp_path):
    run["figure"] = [shown(figure_of("late", source="made", origin="own", synthetic=True))]
    site = site_of(share.report(notebook, out=tmp_path / "site", data=tmp_path))
    page = soup_of(site, "01_waits.html")
    assert page.select_one(".wb-badge").text.strip() == "Synthetic data"
    assert f"Data: {tmp_path.name} (synthetic)." in page.footer.text


def test_data_that_no_page_can_load_are_refused_with_the_reason_alone(run, notebook, tmp_path):
    run["figure"] = [failed("LoadError", 'k.log: no zone; pass tz="UTC"')]
    run["case"] = [shown(figure_of("From 44 to 80 %", origin="published"))]
    node = nbformat.read(notebook, as_version=4)
    case = new_markdown_cell("## Published", metadata={"tags": ["published-case"]})
    node.cells += [case, new_code_cell("case")]
    nbformat.write(node, notebook)
    with pytest.raises(PublishError, match=r'^k\.log: no zone; pass tz="UTC"$'):
        share.report(notebook, out=tmp_path / "site", data=tmp_path)


def test_a_page_whose_data_could_not_be_loaded_says_so_once(run, tmp_path, write_notebook):
    run["figure"] = [failed("LoadError", "k.log: no zone; pass tz")]
    run["other"] = [failed("NameError", "name 'log' is not defined")]
    run["loaded"] = [shown(figure_of("Mine is late", origin="own"))]
    words = "## Which node fails?\n\nOften."
    first = write_notebook(tmp_path / "01_waits.ipynb", "figure", words, "other")
    second = write_notebook(tmp_path / "02_power.ipynb", "loaded")
    out = tmp_path / "site"
    share.report([first, second], out=out, data=tmp_path, wording=str.upper)
    (problem,) = soup_of(out, "01_waits.html").select(".wb-problem")
    assert "could not be loaded" in problem.text
    assert "PASS TZ" in problem.text
    assert "need these data: Which node fails?" in problem.text
    assert "Often" not in soup_of(out, "01_waits.html").main.text
    assert "could not be loaded" in soup_of(out, "index.html").text


def test_a_copy_for_ones_own_data_shows_nothing_of_other_data(notebook):
    node = nbformat.read(notebook, as_version=4)
    node.cells[2].outputs = [shown(figure_of("Rank 7 comes last"))]
    share.for_own_data(node)
    assert "Rank 7" not in nbformat.writes(node)
    assert "Which rank comes last?" in node.cells[0].source


def test_a_section_for_which_own_data_hold_nothing_is_not_on_the_page(run, notebook, tmp_path):
    run["figure"] = [shown(figure_of("Mine is late", origin="own"))]
    node = nbformat.read(notebook, as_version=4)
    code = new_code_cell("None if lengths is None else draw(lengths)")
    words = new_markdown_cell("## Which documents are long?\n\nMany are short.")
    node.cells += [words, code, new_markdown_cell("## What to take away")]
    nbformat.write(node, notebook)
    share.report(notebook, out=tmp_path / "site", data=tmp_path)
    page = soup_of(tmp_path / "site", "01_waits.html").main.text
    assert "Many are short" not in page
    assert "What to take away" in page
    share.report(notebook, out=tmp_path / "site")
    assert "Many are short" in soup_of(tmp_path / "site", "01_waits.html").main.text


def test_a_page_that_takes_no_data_does_not_claim_it(run, notebook, tmp_path, write_notebook):
    mine = tmp_path / "mine"
    mine.mkdir()
    run[f"data = {str(mine)!r}"] = [shown(figure_of("Rank 3 comes last", origin="own"))]
    run["facts"] = [shown(figure_of("All numbers agree", source="papers"))]
    facts = write_notebook(tmp_path / "facts.ipynb", "facts", parameters="")
    site = site_of(share.report([notebook, facts], out=tmp_path / "site", data=mine))
    assert "Data: papers." in soup_of(site, "facts.html").footer.text
    assert soup_of(site, "facts.html").select(".wb-notice") == []
    assert f"Data: {mine.name}, papers." in soup_of(site, "index.html").footer.text


def test_text_that_does_not_fit_the_figures_of_this_run_is_flagged(run, notebook, tmp_path):
    run["figure"] = [shown(figure_of("Rank 7 comes last"))]
    index = share.report(notebook, out=tmp_path / "site")
    assert "shows other data" not in soup_of(site_of(index), "01_waits.html").text
    published = nbformat.read(notebook, as_version=4)
    cell = next(cell for cell in published.cells if cell.source == "figure")
    cell.outputs = [nbformat.from_dict(shown(figure_of("Rank 7 comes last")))]
    nbformat.write(published, notebook)
    share.report(notebook, out=tmp_path / "site")
    assert "shows other data" not in soup_of(site_of(index), "01_waits.html").text
    run["figure"] = [shown(figure_of("Rank 3 comes last"))]
    share.report(notebook, out=tmp_path / "site")
    page = soup_of(site_of(index), "01_waits.html")
    assert "shows other data than the one it is published with" in page.text
    assert "Rank 7, in 5 of 8 collectives" not in page.text
