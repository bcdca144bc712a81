"""What a figure carries: the right types, and names that stay names."""

import json
import re

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import share
from workbench.share.bundle import PLOTLY_MIME, json_block, key_of, picture, plain_text, title_of

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


@pytest.fixture
def figure():
    layout = {"title": {"text": "Rank 7 comes <b>last</b><br>by 3 &lt; 4 ms"}}
    return go.Figure(go.Bar(x=["a"], y=[1]), layout=layout)


def test_a_figure_carries_its_json_and_its_title_and_no_html(figure):
    bundle = share.bundle(figure)
    assert set(bundle) == {PLOTLY_MIME, "text/plain"}
    assert bundle["text/plain"] == "Figure: Rank 7 comes last by 3 < 4 ms"
    assert go.Figure(bundle[PLOTLY_MIME]) == figure


def test_a_picture_is_added_where_it_is_given(figure):
    assert share.bundle(figure, svg="<svg/>")["image/svg+xml"] == "<svg/>"


def test_live_html_keeps_the_picture_until_plotly_arrives(figure):
    block = share.bundle(figure, svg="<svg/>", html=True)["text/html"]
    assert block.index("<img") < block.index("<script")
    assert re.search(r"https://cdn\.plot\.ly/plotly-\d+\.\d+\.\d+\.min", block)
    # The picture is removed only inside the function that draws.
    assert block.index("function draw()") < block.index('box.textContent=""')


def test_show_displays_the_bundle_as_it_is(figure, capsys):
    share.show(figure)
    assert "Figure: Rank 7 comes last" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("layout", "title"),
    [
        ({"title": "short form"}, "short form"),
        ({"title": {"text": None}}, "untitled figure"),
        ({}, "untitled figure"),
        (None, "untitled figure"),
    ],
)
def test_every_figure_has_a_title_to_read_aloud(layout, title):
    assert title_of({"data": [], "layout": layout}) == title


def test_a_hostile_name_stays_text_in_pictures_and_data():
    figure = {"data": [], "layout": {"title": {"text": HOSTILE.replace("<", "&lt;")}}}
    assert title_of(figure) == HOSTILE
    assert "<img src=x" not in picture("<svg/>", title_of(figure))
    assert "<script>alert" not in share.bundle(figure, html=True)["text/html"]


@given(st.text())
def test_no_text_can_end_the_element_that_holds_the_data(text):
    block = json_block({"name": text + HOSTILE}, id="d")
    inside = block.removeprefix('<script type="application/json" id="d">').removesuffix("</script>")
    assert not set(inside) & set("<>&\u2028\u2029")
    assert json.loads(inside) == {"name": text + HOSTILE}


@given(st.text())
def test_plain_text_is_one_line(text):
    assert "\n" not in plain_text(text)


def test_equal_figures_have_equal_keys_and_others_do_not(figure):
    first = share.bundle(figure)[PLOTLY_MIME]
    assert key_of(first) == key_of(json.loads(json.dumps(first)))
    figure.data[0].y = [2]
    assert key_of(first) != key_of(share.bundle(figure)[PLOTLY_MIME])
