"""Pages without barriers: for those who see no colour, use no mouse or cannot bear motion.

One page of each kind that the product writes, in light and dark; each is small, and has whatever
its kind can have. The pages of the shipped notebooks are tried in ``test_report_pages.py``.
"""

import shutil
from functools import partial

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from data import make
from tests.browser.controls import DRAW, KERNEL, KINDS_OF_CONTROLS
from workbench import analyze, datasets, plot, share
from workbench.cli._overview import first_page
from workbench.cli._watch import Job

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DEMO = datasets.path("fleet-demo")
OPTIONS = {"tz": "UTC", "year": None, "boot_time": None, "node": None, "unit": None}
# Two series, so that there is a legend, and a doubt.
FIGURE = """from workbench.plot._style.style import finish
figure = draw(1).update_traces(name='one').add_bar(y=[2], name='two')
finish(figure, claim='Rank 7 waits', source='a made job', note='<b>few samples</b>')"""
# What a page shows in a way of its own: text, figure, wide table, messages, failures, controls.
CELLS = [
    new_markdown_cell("# Who waits?\n\n**Question.** Which rank?\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
    new_code_cell(DRAW),
    new_markdown_cell("## Figures and tables\n\nA [link](https://example.org) and `code`."),
    new_code_cell(FIGURE),
    new_code_cell("import pandas as pd\npd.DataFrame({f'wide_{n}_ms': range(90) for n in range(40)})"),
    new_code_cell("import sys\nprint('words ' * 99)\nprint('a message ' * 99, file=sys.stderr)"),
    new_code_cell("raise ValueError('a step that fails')"),
    new_markdown_cell("## Controls"),
    *map(new_code_cell, [f"Explorer(draw, choice={control})" for control in KINDS_OF_CONTROLS.values()]),
    new_markdown_cell("## A printed case", metadata={"tags": ["published-case"]}),
    new_code_cell("draw(2)"),
]  # fmt: skip
SITE_PAGES = (
    "index", "tutorial", "gallery/index", "gallery/fleet", "api/shared",
    "claims", "search", "systems",
)  # fmt: skip
MADE = (
    "notebook",
    "overview",
    "list of pages",
    "static",
    "one file",
    "watch",
    "comparison",
    "trend",
)
RULES_OF_COLOUR = ["color-contrast", "link-in-text-block"]
PAGES = (*MADE, *(f"site: {name}" for name in SITE_PAGES))


@pytest.fixture(scope="module")
def made(tmp_path_factory, browser):
    """Write a page of every kind; give them by kind."""
    folder = tmp_path_factory.mktemp("pages")
    notebook = folder / "waits.ipynb"
    nbformat.write(new_notebook(cells=CELLS, metadata=KERNEL), notebook)
    overview = partial(first_page, DEMO, OPTIONS)
    live = share.report(notebook, out=folder / "live", progress=False, overview=overview)
    static = share.report(notebook, out=folder / "static", progress=False, mode="static")
    share.pack(live.parent, folder / "packed.html")
    for name in ("run", "out", "cache"):
        (folder / name).mkdir()
    shutil.copyfile(DEMO / "steps.jsonl", folder / "run" / "steps.jsonl")
    job = Job(folder / "run", folder / "out", OPTIONS, folder / "cache")
    job.look(), job.look()
    runs = {f"seed {n}": make.troubled_job(seed=n).bundle for n in range(6)}
    compared = analyze.run_comparison(runs["seed 0"], runs["seed 1"])
    trend = analyze.run_trend(runs)
    (folder / "compared.html").write_text(plot.run_comparison_page(compared, source="made"))
    (folder / "trend.html").write_text(plot.run_trend_page(trend, analyze.run_changes(trend)))
    return {
        "notebook": live.parent / "waits.html",
        "overview": live,
        "list of pages": static,
        "static": static.parent / "waits.html",
        "one file": folder / "packed.html",
        "watch": folder / "out" / "findings.html",
        "comparison": folder / "compared.html",
        "trend": folder / "trend.html",
    }


@pytest.fixture(scope="module")
def address(request, made):
    """Give the address of a kind of page."""

    def of(kind):
        if kind in made:
            return made[kind].as_uri() + "#waits.html" * (kind == "one file")
        site = request.getfixturevalue("docs_site")
        return (site / f"{kind.removeprefix('site: ')}.html").as_uri()

    return of


def settled(page):
    """Wait until all is drawn, and give the frame that shows it."""
    if page.query_selector("iframe"):
        # By selector: the policy of a page refuses texts that become code, also those of a test.
        inside = page.frame_locator("iframe").locator("title:not(:empty)")
        inside.wait_for(state="attached", timeout=60_000)
    frame = page.frames[-1]
    frame.wait_for_load_state()
    if frame.query_selector(".wb-figure:has(.wb-plot)"):
        frame.wait_for_selector("html.wb-ready", state="attached", timeout=60_000)
        for fold in frame.query_selector_all("details:not([open]) > summary"):
            fold.click()
    for figure in frame.query_selector_all(".wb-figure"):
        if frame.query_selector("script[src]"):
            figure.scroll_into_view_if_needed()
            figure.wait_for_selector(".main-svg", timeout=60_000)
    return frame


@pytest.fixture(scope="module")
def shown(request, address, opened):
    """Open a page of a kind once, in light, for all that is asked of it; it is in dark last."""
    with opened("about:blank") as page:
        page.emulate_media(color_scheme="light")
        page.goto(address(request.param))
        yield request.param, page, settled(page)


def of_kinds(*kinds):
    """Try a test on the pages of some kinds; all tests of one page follow one another."""
    return pytest.mark.parametrize("shown", kinds, indirect=True, scope="module")


def barriers(frame, **options):
    # Of rules that hold no nodes are listed, which takes most of the time.
    options |= {"preload": False, "resultTypes": ["violations"]}
    violations = Axe().run(frame, options=options).response["violations"]
    return [(v["id"], v["nodes"][0]["html"]) for v in violations]


@of_kinds(*PAGES)
def test_a_page_of_every_kind_has_no_barriers(shown):
    assert barriers(shown[2]) == []


# All that a mouse can use: what has the focus of a keyboard, and what the pointer shows as usable.
MARK = """() => {
    const reached = "a[href], button, input, select, textarea, summary, [tabindex='0']";
    const isShown = (node) => node.checkVisibility() && node.getClientRects().length > 0;
    const used = [...document.querySelectorAll("body *")].filter(
        (node) => isShown(node) && getComputedStyle(node).cursor === "pointer"
            // Plotly points at annotations of which nothing listens to a click.
            && !node.closest(".annotation"));
    const controls = [...document.querySelectorAll(reached)].filter(
        (node) => isShown(node) && !node.disabled && node.tabIndex >= 0);
    controls.forEach((node, at) => { node.dataset.control = at; });
    // A label hands a click on to its control.
    const mouseOnly = used.filter((node) => !node.closest("[data-control]") && !node.closest("label"));
    return [controls.length, mouseOnly.map((node) => node.outerHTML.slice(0, 200))];
}"""
FOCUSED = """() => {
    const node = document.activeElement, look = getComputedStyle(node);
    let opacity = 1;
    for (let box = node; box; box = box.parentElement) opacity *= getComputedStyle(box).opacity;
    const outlined = look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 1;
    return [node.dataset.control ?? "", (outlined || look.boxShadow !== "none") && opacity > 0.5,
            node.outerHTML.slice(0, 200)];
}"""

HTML = "(at) => document.querySelector(`[data-control='${at}']`).outerHTML.slice(0, 200)"
IS_FOCUSED = """([name, state]) => {
    const node = document.activeElement;
    return node.getAttribute("aria-label") === name && node.getAttribute("aria-checked") === state;
}"""
# What a figure is called for those who do not see it, and its title where that is text.
NAMES = """() => [...document.querySelectorAll("[role='figure'], img")]
    .filter((node) => node.checkVisibility())
    .map((node) => [
        node.getAttribute("aria-label") ?? node.alt,
        node.previousElementSibling?.querySelector(".wb-claim")?.textContent
            ?? node.querySelector(".gtitle")?.textContent ?? ""])"""
MOVING = """() => [...document.querySelectorAll("*")].filter((node) => {
    const look = getComputedStyle(node);
    return parseFloat(look.transitionDuration) > 0 && look.transitionProperty !== "none"
        || look.animationName !== "none" || look.scrollBehavior === "smooth";
}).map((node) => node.outerHTML.slice(0, 200))"""


@of_kinds("notebook", "static", "one file", "site: gallery/fleet")
def test_a_figure_is_named_by_its_finding(shown):
    kind, _, frame = shown
    names = frame.evaluate(NAMES)
    assert names
    if not kind.startswith("site"):
        assert "In doubt: Rank 7 waits" in [name for name, _ in names]
    for name, said in names:
        assert name, said
        assert name.lower() not in ("figure", "picture", "untitled figure")
        # The title as it is read on the page, with its doubt.
        assert not said or "".join(name.split()) == "".join(said.split())


@pytest.fixture
def calm(shown):
    """Ask for less motion while a test looks at a page."""
    _, page, _ = shown
    yield lambda: page.emulate_media(reduced_motion="reduce")
    page.emulate_media(reduced_motion="no-preference")


@of_kinds("notebook", "overview", "watch", "comparison", "site: index",
          "site: gallery/fleet")  # fmt: skip
def test_nothing_moves_for_those_who_asked_for_less_motion(shown, calm):
    _, page, _ = shown
    moving = page.evaluate(MOVING)
    # Figures have tools that fade in: the emulation below must have something to turn off.
    assert moving or not page.query_selector(".wb-figure")
    calm()
    assert page.evaluate(MOVING) == []


@of_kinds("notebook", "overview", "one file", "watch", "site: index",
          "site: gallery/fleet")  # fmt: skip
def test_every_control_is_reached_with_the_keyboard_and_seen_to_be(shown, calm):
    _, page, frame = shown
    calm()  # or what fades in is seen too late
    page.wait_for_timeout(300)
    frame.evaluate("scrollTo(0, 0)")
    frame.evaluate("document.activeElement.blur()")
    count, mouse_only = frame.evaluate(MARK)
    assert mouse_only == []
    reached, unseen = set(), []
    for _ in range(2 * count):
        page.keyboard.press("Tab")
        number, is_seen, node = frame.evaluate(FOCUSED)
        if number and number in reached:
            break
        reached.add(number)
        if number and not is_seen:
            unseen.append(node)
    missed = [at for at in range(count) if str(at) not in reached]
    assert ([frame.evaluate(HTML, at) for at in missed], unseen) == ([], [])


@of_kinds("notebook")
def test_a_legend_answers_to_the_keyboard_and_keeps_the_focus(shown):
    _, page, _ = shown
    toggle = page.locator(".legendtoggle[role='checkbox']").first
    toggle.focus()
    name = toggle.get_attribute("aria-label")
    for key, state in (("Space", "false"), ("Enter", "true")):
        page.keyboard.press(key)
        page.wait_for_function(IS_FOCUSED, arg=[name, state])


@of_kinds(*PAGES)
def test_a_page_of_every_kind_has_no_barriers_in_the_dark(shown):
    _, page, _ = shown
    page.emulate_media(color_scheme="dark")
    page.reload()
    # The same elements in other colours.
    assert barriers(settled(page), runOnly={"type": "rule", "values": RULES_OF_COLOUR}) == []


def test_the_page_of_watch_reloads_until_it_is_told_not_to(made, opened):
    with opened("about:blank") as page:
        page.clock.install()
        page.goto(made["watch"].as_uri())
        with page.expect_navigation():
            page.clock.fast_forward(11_000)
        page.get_by_label("Reload every 10 s").uncheck()
        page.evaluate("document.title = 'still here'")
        page.clock.fast_forward(30_000)
        assert page.title() == "still here"
        page.reload()
        assert not page.get_by_label("Reload every 10 s").is_checked()
