"""The report as its reader meets it: from a folder, with the network cut off."""

import re

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from workbench import share

pytestmark = [pytest.mark.browser, pytest.mark.slow]

READY = "html.wb-ready"
# Explorers that have few enough states to work on a page, by page.
EXPLORERS_AT_LEAST = {
    "index": 0,
    "00_start_here": 1,
    "01_traces": 1,
    "02_workload_imbalance": 1,
    "03_goodput_under_failures": 7,
    "04_pvf_fault_injection": 6,
    "05_performance_model": 4,
    "06_power": 4,
    "07_fleet_timeline": 1,
    "08_communication": 3,
    "09_planning": 3,
    "10_model": 0,
}
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
MOVE = """(control) => {
    const last = control.tagName === "SELECT" ? control.options.length - 1 : Number(control.max);
    control.value = Number(control.value) < last ? Number(control.value) + 1 : 0;
    control.dispatchEvent(new Event("input", {bubbles: true}));
}"""


def pages_of(site):
    return sorted(page.name for page in site.glob("*.html"))


def wait_for_figures(page):
    if page.url.endswith("index.html"):
        return
    # By selector: the policy of a page refuses texts that become code, also those of a test.
    page.wait_for_selector(READY, timeout=60_000, state="attached")
    unfold(page)
    page.wait_for_selector(".wb-figure:not(.wb-drawn)", timeout=60_000, state="detached")
    for states in page.query_selector_all(".wb-states .wb-explorer"):
        states.wait_for_selector(".wb-claim", timeout=60_000, state="attached")


def unfold(page):
    """Open published cases and sections without data, as a reader would."""
    folded = page.locator("details.wb-fold:not([open]) > summary")
    while folded.count():
        folded.first.click()


@pytest.fixture(scope="module", params=EXPLORERS_AT_LEAST)
def drawn(request, site, opened):
    """Open each page once, for all that is asked of it while its figures are drawn."""
    with opened((site / f"{request.param}.html").as_uri()) as page:
        wait_for_figures(page)
        yield request.param, page


# On the page of one notebook, while it is open. The last of them leaves it dark.
ON_TRACES = pytest.mark.parametrize("drawn", ["01_traces"], indirect=True, scope="module")


def test_every_page_of_the_report_is_tried(site):
    assert pages_of(site) == sorted(f"{name}.html" for name in EXPLORERS_AT_LEAST)


def test_every_figure_is_drawn_without_a_network(drawn):
    name, page = drawn
    figures = page.locator(".wb-figure")
    plots = page.locator(".wb-figure.wb-drawn .wb-plot")
    assert plots.count() == figures.count()
    assert figures.count() > 0 or name == "index"
    assert page.locator(".wb-figure:not(.wb-drawn)").count() == 0
    titles = page.locator(".wb-figure .wb-claim").all_text_contents()
    assert len(titles) == figures.count()
    assert all(titles)
    # A live figure hides its picture, and is as wide as the text allows.
    for figure in figures.all():
        assert not figure.locator("> img").is_visible()
        assert figure.locator(".wb-plot").bounding_box()["width"] > 600


def test_a_page_has_no_barriers(drawn):
    # All rules are tried; of those that hold no nodes are listed, which takes most of the time.
    options = {"preload": False, "resultTypes": ["violations"]}
    found = Axe().run(drawn[1], options=options).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []


def test_explorers_work_without_a_kernel(drawn):
    name, page = drawn
    explorers = page.locator(".wb-states .wb-explorer")
    assert explorers.count() >= EXPLORERS_AT_LEAST[name]
    for explorer in explorers.all():
        assert explorer.locator("label:visible").count(), "no control can be seen"
        assert changes(explorer), explorer.locator("form").inner_text()
    assert not page.locator(".wb-explorer-block > .wb-still").first.is_visible()


def changes(explorer):
    """Say whether moving some control of an explorer changes what its figure says."""
    explorer.scroll_into_view_if_needed()
    plot = explorer.locator(".wb-claim, .wb-note, .annotation-text, .xtick, .legendtext")
    before = plot.all_text_contents()
    for control in explorer.locator("[data-wb]").all():
        control.evaluate(MOVE)
        if plot.all_text_contents() != before:
            return True
    return False


@ON_TRACES
def test_the_figures_answer_to_the_mouse(drawn):
    _, page = drawn
    plot = page.locator(".wb-figure .wb-plot").first
    plot.scroll_into_view_if_needed()
    area = plot.locator(".nsewdrag").first.bounding_box()
    ticks = plot.locator(".xtick, .ytick").all_text_contents()
    page.mouse.move(area["x"] + area["width"] * 0.3, area["y"] + area["height"] * 0.3)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.6, area["y"] + area["height"] * 0.6, steps=5)
    page.mouse.up()
    shown = plot.locator(".xtick, .ytick")
    for _ in range(100):
        if shown.all_text_contents() != ticks:
            break
        page.wait_for_timeout(100)
    assert shown.all_text_contents() != ticks


@ON_TRACES
def test_on_paper_figures_are_as_wide_as_the_paper_and_light_and_code_is_left_out(drawn):
    _, page = drawn
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    plots = page.locator(".wb-figure .wb-plot:visible, .wb-states .js-plotly-plot:visible")
    assert plots.count() >= EXPLORERS_AT_LEAST["01_traces"]
    assert all(
        plot.locator(".main-svg").first.bounding_box()["width"] == 680 for plot in plots.all()
    )
    assert brightness(colours(page)[2]) < 128
    assert page.locator(".wb-code:visible, nav:visible, form:visible").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="screen", color_scheme="light")


def test_on_a_phone_nothing_is_wider_than_the_page(drawn):
    name, page = drawn
    size = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    wait_for_figures(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
    for plot in page.locator(".wb-figure:not(.wb-scroll) .main-svg").all():
        assert plot.bounding_box()["width"] <= 390
    page.set_viewport_size(size)


def colours(page):
    """Give the colour of the page, of its text, and of the numbers along the first axis."""
    tick = ".wb-figure .xtick text, .wb-figure .ytick text"
    style = "name => (tag => getComputedStyle(tag)[name])"
    read = f"({style})"
    return [
        page.locator("body").evaluate(f"tag => {read}('backgroundColor')(tag)"),
        page.locator("body").evaluate(f"tag => {read}('color')(tag)"),
        page.locator(tick).first.evaluate(f"tag => {read}('fill')(tag)"),
    ]


def brightness(colour):
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3


@ON_TRACES
def test_the_theme_changes_page_and_figures_and_is_kept(drawn):
    _, page = drawn
    button = page.locator(".wb-theme")
    light = colours(page)
    assert [brightness(colour) > 128 for colour in light] == [True, False, False]
    button.click()
    button.click()
    assert "dark" in button.text_content()
    page.wait_for_timeout(1000)
    assert [brightness(colour) > 128 for colour in colours(page)] == [False, True, True]
    page.reload()
    wait_for_figures(page)
    assert [brightness(colour) > 128 for colour in colours(page)] == [False, True, True]


def test_a_published_case_is_folded_and_drawn_at_full_width_when_it_is_opened(site, opened):
    with opened((site / "06_power.html").as_uri()) as page:
        page.wait_for_selector(READY, timeout=60_000, state="attached")
        fold = page.locator("details.wb-published")
        assert fold.locator(".wb-drawn").count() == 0
        assert "not your data" in fold.locator("> summary").inner_text()
        fold.locator("> summary").click()
        fold.locator(".wb-figure.wb-drawn").wait_for()
        assert fold.locator(".wb-plot .main-svg").first.bounding_box()["width"] > 600


def test_without_scripts_a_page_names_its_figures_and_says_how_to_get_pictures(site, opened):
    for name in pages_of(site):
        with opened((site / name).as_uri(), scripts=False) as page:
            unfold(page)
            figures = page.locator(".wb-figure, .wb-explorer-block > .wb-still").all()
            assert all(figure.locator("p").first.inner_text() for figure in figures)
            assert page.locator(".wb-unscripted:visible").count() == bool(figures)
            assert page.locator(".wb-states:visible").count() == 0


def test_a_reader_can_go_from_page_to_page(site, opened):
    with opened((site / "index.html").as_uri()) as page:
        heading = page.locator("article h2 a").first
        title = heading.text_content()
        heading.click()
        page.wait_for_load_state()
        assert page.locator("h1").text_content() == title
        page.locator("header nav a").first.click()
        page.wait_for_load_state()
        assert page.url.endswith("index.html")


@pytest.fixture(scope="module")
def hostile_site(tmp_path_factory, browser):
    """Write a report in which every name is an attack."""
    folder = tmp_path_factory.mktemp("hostile")
    source = f"""import html
import ipywidgets
import pandas as pd
import plotly.graph_objects as go
from workbench.explore.panel import Explorer
name = {HOSTILE!r}
def draw(which):
    layout = dict(title=dict(text=html.escape(which)), meta=dict(source=name))
    return go.Figure(go.Bar(x=[name], y=[1], name=name, hovertext=name), layout)
display(draw(name), pd.DataFrame({{name: [name]}}))
print(name)
Explorer(draw, which=ipywidgets.Dropdown(options=[name, "other"], description=name))"""
    cells = [
        new_markdown_cell("# Names that bite"),
        new_code_cell(source),
        new_code_cell("raise ValueError(name)"),
    ]
    nbformat.write(new_notebook(cells=cells), folder / "names.ipynb")
    return share.report(folder / "names.ipynb", out=folder / "site", progress=False).parent


def test_names_from_a_trace_never_become_code(hostile_site, opened):
    for name in pages_of(hostile_site):
        with opened((hostile_site / name).as_uri()) as page:
            if name != "index.html":
                wait_for_figures(page)
                page.locator(".wb-states select").evaluate(MOVE)
                assert page.locator(".wb-states .wb-claim").text_content() == "other"
                page.locator(".wb-figure .nsewdrag").first.hover()
            page.wait_for_timeout(300)
            assert page.locator("img[src='x'], [onerror]").count() == 0
            assert "alert(1)" in page.locator("body").inner_text()


def test_the_policy_of_a_page_stops_what_would_get_through(hostile_site, opened, tmp_path):
    page_text = (hostile_site / "names.html").read_text(encoding="utf-8")
    attack = (
        "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
        '<img src="https://example.org/beacon.png">'
    )
    assets = hostile_site / "assets"
    (tmp_path / "assets").symlink_to(assets)
    broken = tmp_path / "names.html"
    broken.write_text(page_text.replace("</main>", f"{attack}</main>"), encoding="utf-8")
    with opened(broken.as_uri()) as page:
        wait_for_figures(page)
        assert page.title() == "Names that bite"
