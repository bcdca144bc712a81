"""Explorers without a kernel: every state is in the page, and only a browser is needed."""

import base64
import itertools
import json
import re

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from workbench.explore import Explorer, static_html

HOSTILE = "</script><img src=x onerror=alert(1)> $x$"


def picture(*, freq, kind, is_dark):
    if freq == 3 and kind == "dots":
        msg = f"no dots at three {HOSTILE}"
        raise ValueError(msg)
    title = f"{kind} at {freq}, {'dark' if is_dark else 'light'}"
    return go.Figure(go.Scatter(x=[0, 1], y=[0, freq], name=HOSTILE), layout_title_text=title)


@pytest.fixture
def explorer():
    return Explorer(
        picture,
        freq=widgets.IntSlider(2, 1, 4, description="frequency"),
        kind=widgets.Dropdown(
            options=[("solid <line>", "line"), ("dots", "dots")], description="kind"
        ),
        is_dark=widgets.Checkbox(description="dark"),
    )


def states(page):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])


def test_every_state_is_in_the_page_in_odometer_order(explorer):
    content = states(static_html(explorer))
    shown = [content["figures"][number] for number in content["order"]]
    combos = list(itertools.product(range(1, 5), ["line", "dots"], ["light", "dark"]))
    assert len(shown) == len(combos) == 16
    for figure, (freq, kind, shade) in zip(shown, combos, strict=True):
        if "message" in figure:
            assert (freq, kind) == (3, "dots")
        else:
            assert figure["layout"]["title"]["text"] == f"{kind} at {freq}, {shade}"


def test_equal_figures_and_the_template_are_kept_once(explorer):
    content = states(static_html(explorer))
    assert len(content["figures"]) == 15
    assert all("template" not in figure.get("layout", {}) for figure in content["figures"])
    assert content["template"]


def test_an_array_that_several_states_draw_is_kept_once():
    def draw(*, factor):
        x = np.arange(200.0)
        measured = go.Scatter(x=x, y=x**2, name="measured")
        return go.Figure([measured, go.Scatter(x=x, y=factor * x**2, name="changed")])

    content = states(static_html(Explorer(draw, factor=widgets.IntSlider(2, 1, 3))))
    assert len(content["arrays"]) == 4
    for figure, factor in zip(content["figures"], (1, 2, 3), strict=True):
        arrays = [
            content["arrays"][trace[axis]["wbArray"]] for trace in figure["data"] for axis in "xy"
        ]
        values = [np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"])
                  for array in arrays]  # fmt: skip
        expected = np.arange(200.0)
        assert np.array_equal(values[0], expected)
        assert np.array_equal(values[1], expected**2)
        assert np.array_equal(values[2], expected)
        assert np.array_equal(values[3], factor * expected**2)


def test_the_same_explorer_gives_the_same_text(explorer):
    assert static_html(explorer) == static_html(explorer)


def test_the_explorer_stays_as_it_is(explorer):
    static_html(explorer)
    assert explorer.values() == {"freq": 2, "kind": "line", "is_dark": False}
    assert explorer.message.value == ""


def test_names_cannot_leave_their_script(explorer):
    page = static_html(explorer)
    assert page.count("<script") == page.count("</script>") == 2
    assert "onerror" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_without_plotly_the_picture_and_its_state_remain(explorer):
    page = static_html(explorer, svg="<svg>the picture</svg>")
    assert 'alt="line at 2, light"' in page
    assert "Snapshot at frequency = 2, kind = solid &lt;line&gt;, dark = off." in page
    assert "<form hidden" in page


def test_too_many_states_are_refused_with_their_sizes(explorer):
    with pytest.raises(ValueError, match=r"16 states \(4 freq × 2 kind × 2 is_dark\)"):
        static_html(explorer, limit=15)


def test_a_control_without_a_list_of_values_is_refused():
    explorer = Explorer(lambda text: go.Figure(layout_title_text=text), text=widgets.Text("a"))
    with pytest.raises(TypeError, match="'text' is a Text, whose values cannot be listed"):
        static_html(explorer)


@pytest.fixture
def many_choices():
    """Make an explorer of 7 × 6 choices with three sliders between them: too much for a page."""
    names = ("first", "second", "third")
    sliders = {
        name: widgets.SelectionSlider(options=range(5), value=2, description=name) for name in names
    }
    letters, digits = (widgets.Dropdown(options=list(all_)) for all_ in ("abcdefg", "123456"))

    def draw(**chosen):
        return go.Figure(layout_title_text=" ".join(map(str, chosen.values())))

    letters.description, digits.description = "letter", "digit"
    return Explorer(draw, letters=letters, **sliders, digits=digits)


def test_where_choices_make_many_states_the_last_sliders_stay_and_are_texts(many_choices):
    page = static_html(many_choices)
    content = states(page)
    # 84 states: the first slider has its value and an end.
    assert content["labels"] == [list("abcdefg"), ["2", "4"], list("123456")]
    assert "<span>second: 2</span>" in page
    assert "<span>third: 2</span>" in page
    assert "Sliders have more values where a kernel runs." in page
    titles = [content["figures"][at]["layout"]["title"]["text"] for at in content["order"]]
    expected = itertools.product("abcdefg", "24", "2", "2", "123456")
    assert titles == [" ".join(values) for values in expected]


@pytest.mark.browser
@pytest.mark.slow
def test_a_browser_leaves_out_the_sliders_that_stay(many_choices, shown_twice):
    page = shown_twice(static_html(many_choices))
    first = page.locator(".wb-explorer >> nth=0")
    first.get_by_label("letter").select_option(label="e")
    first.get_by_label("digit").select_option(label="4")
    first.get_by_label("first").press("ArrowRight")
    assert first.locator(".gtitle").text_content() == "e 4 2 2 4"


@pytest.fixture
def page(explorer, shown_twice):
    """Open a page with the same explorer twice."""
    return shown_twice(static_html(explorer))


@pytest.fixture
def shown_twice(browser, tmp_path):
    """Open a page that shows an explorer twice, from disk, and note what goes wrong."""
    page, wrong = browser.new_page(), []

    def show(block):
        return _opened(page, wrong, block, tmp_path / "page.html")

    yield show
    assert [each for each in wrong if not each.startswith(("file:", "data:", "blob:"))] == []
    page.close()


def _opened(page, wrong, block, file):
    head = f"<title>Explorer</title><script>{get_plotlyjs()}</script>"
    file.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}</head>'
        f"<body><main><h1>Explorer</h1>{block}{block}</main></body></html>"
    )
    page.on("request", lambda request: wrong.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.goto(file.as_uri())
    page.locator(".gtitle >> nth=1").wait_for(timeout=20_000)
    return page


@pytest.mark.browser
@pytest.mark.slow
def test_a_browser_without_network_moves_every_control(page):
    first, second = (page.locator(f".wb-explorer >> nth={number}") for number in (0, 1))
    title, message = first.locator(".gtitle"), first.locator(".wb-explorer-message")
    assert title.text_content() == "line at 2, light"
    first.get_by_label("frequency").press("ArrowRight")
    first.get_by_label("dark").check()
    assert title.text_content() == "line at 3, dark"
    assert first.locator("output").text_content() == "3"
    first.get_by_label("kind").select_option(label="dots")
    assert message.text_content().startswith("Not possible: no dots at three")
    assert title.text_content() == "line at 3, dark"
    first.get_by_label("frequency").press("ArrowRight")
    assert message.text_content() == ""
    assert title.text_content() == "dots at 4, dark"
    assert first.get_by_role("figure").get_attribute("aria-label") == "dots at 4, dark"
    assert second.locator(".gtitle").text_content() == "line at 2, light"


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_passes_an_accessibility_check(page):
    from axe_playwright_python.sync_playwright import Axe

    assert Axe().run(page).response["violations"] == []
