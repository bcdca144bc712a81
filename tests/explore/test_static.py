"""Explorers without a kernel: every state is in the page, and only a browser is needed."""

import base64
import json
import re

import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs

from workbench.explore import Explorer
from workbench.explore.panel import choice
from workbench.explore.static import static_html

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


def titles_of(content):
    """Give the title of each state of each control; of an impossible one its message."""
    figures = [
        figure.get("message") or figure["layout"]["title"]["text"] for figure in content["figures"]
    ]
    return [[figures[number] for number in numbers] for numbers in content["order"]]


def test_each_control_moves_while_the_others_stand(explorer):
    content = states(static_html(explorer))
    freq, kind, is_dark = titles_of(content)
    assert freq == [f"line at {n}, light" for n in (1, 2, 3, 4)]
    assert kind == ["line at 2, light", "dots at 2, light"]
    assert is_dark == ["line at 2, light", "line at 2, dark"]
    assert content["figures"][content["start"]]["layout"]["title"]["text"] == "line at 2, light"


def test_what_is_not_possible_is_a_state_too(explorer):
    explorer.controls["kind"].value = "dots"
    freq, _, _ = titles_of(states(static_html(explorer)))
    assert freq[2].startswith("Not possible: no dots at three")


def test_equal_figures_and_the_template_are_kept_once(explorer):
    content = states(static_html(explorer))
    assert len(content["figures"]) == 6  # of eight places of three controls, three are the start
    assert all("template" not in figure.get("layout", {}) for figure in content["figures"])
    assert content["template"]


def test_an_array_that_several_states_draw_is_kept_once():
    def draw(*, factor):
        x = np.arange(200.0)
        measured = go.Scatter(x=x, y=x**2, name="measured")
        return go.Figure([measured, go.Scatter(x=x, y=factor * x**2, name="changed")])

    content = states(static_html(Explorer(draw, factor=widgets.IntSlider(2, 1, 3))))
    assert len(content["arrays"]) == 4
    for number, factor in zip(content["order"][0], (1, 2, 3), strict=True):
        figure = content["figures"][number]
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
    with pytest.raises(ValueError, match=r"6 states \(4 freq \+ 2 kind \+ 2 is_dark\)"):
        static_html(explorer, limit=5)


def test_a_control_without_a_list_of_values_is_refused():
    explorer = Explorer(lambda text: go.Figure(layout_title_text=text), text=widgets.Text("a"))
    with pytest.raises(TypeError, match="'text' is a Text, whose values cannot be listed"):
        static_html(explorer)


@pytest.mark.long
@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    choices=st.integers(1, 12),
    data=st.data(),
)
def test_sliders_keep_their_ends_and_their_value_in_about_sixteen_states(counts, choices, data):
    controls = {
        f"s{at}": widgets.SelectionSlider(
            options=range(count), index=data.draw(st.integers(0, count - 1)), description=f"s{at}"
        )
        for at, count in enumerate(counts)
    }
    controls["choice"] = widgets.Dropdown(options=range(choices), description="choice")
    explorer = Explorer(lambda **values: go.Figure(layout_title_text=str(values)), **controls)
    *sliders, choice = states(static_html(explorer))["labels"]
    assert len(choice) == choices
    for labels, count, control in zip(sliders, counts, controls.values(), strict=False):
        assert {labels[0], labels[-1]} == {"0", str(count - 1)}
        assert str(control.value) in labels
        assert len(labels) >= min(3, count)
    total = 1 + sum(len(labels) - 1 for labels in [*sliders, choice])
    assert total <= max(16, choices + 2 * len(counts))


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
    assert title.text_content() == "line at 3, light"
    assert first.locator("output").text_content() == "3"
    first.get_by_label("dark").check()
    assert title.text_content() == "line at 2, dark"
    assert first.locator("output").text_content() == "2"
    first.get_by_label("kind").select_option(label="dots")
    assert title.text_content() == "dots at 2, light"
    assert not first.get_by_label("dark").is_checked()
    assert message.text_content() == ""
    assert first.get_by_role("figure").get_attribute("aria-label") == "dots at 2, light"
    assert second.locator(".gtitle").text_content() == "line at 2, light"


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_passes_an_accessibility_check(page):
    from axe_playwright_python.sync_playwright import Axe

    assert Axe().run(page).response["violations"] == []


def form_of(page):
    return BeautifulSoup(page, "html.parser").form


def test_a_control_that_changes_nothing_here_is_hidden_and_named():
    def draw(*, view, window, rank, only):
        width = window if view == "near" else 0
        return go.Figure(go.Scatter(y=[0, width]), layout_title_text=f"{view} of {rank} {only}")

    explorer = Explorer(
        draw,
        view=widgets.Dropdown(options=["whole", "near"], description="view"),
        window=widgets.IntSlider(2, 1, 3, description="window"),
        rank=choice("rank", [0]),
        only=widgets.Dropdown(options=["feed"], description="only"),
    )
    form = form_of(static_html(explorer))
    hidden = [
        part
        for part in form.find_all(["label", "span"], recursive=False)
        if part.has_attr("hidden")
    ]
    assert [re.sub(r"[^a-z ].*| (all|feed)", "", part.text).split()[0] for part in hidden] == [
        "window", "rank", "only",
    ]  # fmt: skip
    assert form.small.text == "Without effect on this view: window."
    # In JupyterLab the two that can never change anything are hidden, too.
    shown = [control.layout.display for control in explorer.controls.values()]
    assert shown == [None, None, "none", "none"]


def test_every_state_of_a_hidden_control_is_that_of_the_start(explorer):
    form = form_of(static_html(explorer))
    assert form.select("[hidden]") == []
    assert "Without effect" not in form.text
