"""Every explorer is wired the same way; it works without a kernel and never breaks a notebook."""

import base64
import json
import zlib

import ipywidgets as widgets
import plotly.graph_objects as go
import pytest

from workbench import explore
from workbench.errors import WorkbenchError
from workbench.explore import Explorer
from workbench.explore.panel import PLOTLY_MIME, numbers, slider


def picture(*, freq, kind, is_dark=False):
    if freq == 5:
        msg = "no <b>five</b> today"
        raise WorkbenchError(msg)
    shade = "dark" if is_dark else "light"
    return go.Figure(layout_title_text=f"{kind} at {freq}, {shade}")


@pytest.fixture
def explorer():
    return Explorer(
        picture,
        freq=widgets.IntSlider(2, 1, 6, description="frequency"),
        kind=widgets.Dropdown(
            options=[("solid line", "line"), ("dots", "dots")], description="kind"
        ),
        is_dark=widgets.Checkbox(description="dark"),
    )


def test_starts_with_the_figure_of_its_first_values(explorer, title):
    assert title(explorer) == "line at 2, light"
    assert explorer.message.value == ""


def test_moving_any_control_redraws(explorer, title):
    explorer.controls["freq"].value = 4
    assert title(explorer) == "line at 4, light"
    explorer.controls["kind"].value = "dots"
    explorer.controls["is_dark"].value = True
    assert title(explorer) == "dots at 4, dark"


def test_the_screen_holds_one_figure_that_changes_in_place(explorer):
    out, content = explorer.out, explorer.out.content
    explorer.controls["freq"].value = 4
    assert (explorer.out, explorer.out.content) == (out, content)
    assert explorer.figure().layout.title.text == "line at 4, light"


def test_the_figure_travels_compressed_and_says_the_same():
    xs = list(range(5_000))
    explorer = Explorer(
        lambda kind: go.Figure(go.Scatter(x=xs, name=kind)),
        kind=widgets.Dropdown(options=["a", "b"], description="kind"),
    )
    sent = explorer.out.content.value
    figure = json.loads(zlib.decompress(base64.b64decode(sent)))
    assert figure == json.loads(explorer.out.json)
    assert list(explorer.figure().data[0].x) == xs
    assert len(sent) < 0.7 * len(json.dumps(figure))


def test_a_figure_that_was_on_screen_is_not_computed_again():
    calls = []

    def draw(freq):
        calls.append(freq)
        return picture(freq=freq, kind="line")

    explorer = Explorer(draw, freq=widgets.IntSlider(2, 1, 6, description="frequency"))
    for freq in (3, 5, 2, 3, 5, 3):
        explorer.controls["freq"].value = freq
    # What was not possible may be so the next time.
    assert calls == [2, 3, 5, 5]
    assert explorer.title() == "line at 3, light"
    assert explorer.message.value == ""


def test_figures_are_kept_up_to_a_number():
    explorer = Explorer(
        lambda freq: picture(freq=freq, kind="line"),
        freq=widgets.IntSlider(10, 10, 500, description="frequency"),
    )
    for freq in range(11, 200):
        explorer.controls["freq"].value = freq
    assert len(explorer._kept) == 64
    assert explorer.title() == "line at 199, light"


def messages(explorer):
    """Collect what the view is told beside its figure."""
    sent = []
    explorer.out.content.send = lambda content, buffers=None: sent.append((content, buffers))
    return sent


def test_the_browser_is_told_when_work_begins_and_when_no_figure_comes(explorer):
    sent = messages(explorer)
    explorer.controls["freq"].value = 5
    assert [content for content, _ in sent] == [{"working": True}, {"working": False}]
    sent.clear()
    explorer.controls["freq"].value = 2
    assert [content for content, _ in sent] == [{"working": False}]  # the figure is there already


def test_the_kernel_sends_plotly_where_the_page_has_none(explorer):
    sent = messages(explorer)
    explorer.out._hear(None, "plotly.js", [])
    ((name, (script,)),) = sent
    assert name == "plotly.js"
    assert len(script) > 1_000_000


def test_an_impossible_choice_is_explained_above_the_last_good_figure(explorer, title):
    explorer.controls["freq"].value = 4
    explorer.controls["freq"].value = 5
    assert explorer.message.value == "<b>Not possible:</b> no &lt;b&gt;five&lt;/b&gt; today"
    assert title(explorer) == "line at 4, light"
    explorer.controls["freq"].value = 6
    assert explorer.message.value == ""
    assert title(explorer) == "line at 6, light"


def test_an_impossible_start_is_explained_too(title):
    explorer = Explorer(picture, freq=widgets.IntSlider(5), kind=widgets.Text("line"))
    assert "five" in explorer.message.value
    assert title(explorer) == "These values cannot be shown together"


def test_a_mistake_in_the_code_is_not_hidden():
    def broken(**_):
        msg = "oops"
        raise KeyError(msg)

    with pytest.raises(KeyError):
        Explorer(broken, freq=widgets.IntSlider())


def test_the_bundle_says_the_state_in_words(explorer):
    explorer.controls["is_dark"].value = True
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == (
        "Snapshot at frequency = 2, kind = solid line, dark = on. "
        "Run the notebook to move the controls."
    )
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle[PLOTLY_MIME]["layout"]["title"]["text"] == "line at 2, dark"
    assert not {"text/html", "image/svg+xml"} & set(bundle)


def test_a_choice_between_truth_values_is_told_by_its_words():
    explorer = Explorer(
        lambda alone: go.Figure(layout_title_text=str(alone)),
        alone=widgets.Dropdown(options=[("the best", False), ("power", True)], description="by"),
    )
    assert explorer.state() == "by = the best"


def test_all_parts_are_children_so_that_publishing_finds_the_figure(explorer):
    row, message, out = explorer.children
    assert list(row.children) == list(explorer.controls.values())
    assert (message, out) == (explorer.message, explorer.out)


def track_px(control):
    """Give what is left of a slider for its track, where letters are 7 px wide."""
    values = max(map(len, getattr(control, "_options_labels", ["1,000,000"])))
    shown = min(max(7 * values, 72), 148)
    return int(control.layout.width.removesuffix("px")) - 7 * len(control.description) - shown


@pytest.mark.parametrize("words", ["GPUs", "store: time constant [s], 0 = none", "m" * 60])
@pytest.mark.parametrize("value", ["5", "131,072 of 200,000 GPUs"])
def test_a_slider_keeps_a_track_that_can_be_aimed_at_whatever_its_words(words, value):
    control = slider(words, [("1", 1), (value, 2)], 2)
    Explorer(lambda n: picture(freq=n, kind="line"), n=control)
    assert track_px(control) >= 160 + 40  # and the room that the widget leaves around it
    assert control.layout.flex == "0 0 auto"


def test_a_width_that_was_given_does_not_take_the_track_of_a_slider():
    control = widgets.IntSlider(2, 1, 6, description="time between failures [min]")
    control.layout.width = "120px"
    Explorer(lambda n: picture(freq=n, kind="line"), n=control)
    assert track_px(control) >= 160


def test_names_are_not_on_a_slider():
    control = slider("component", [("top", 1), ("bottom", 2)], 1)
    with pytest.raises(TypeError, match="'component' offers names, which have no order; use a Dr"):
        Explorer(lambda n: picture(freq=n, kind="line"), n=control)


def test_numbers_on_a_slider_have_no_exponent():
    control = numbers("time to failure [min]", [1_125_000, 2.25e6, 3e-5], 9e6)
    assert [label for label, _ in control.options] == [
        "< 0.0001",
        "1,125,000",
        "2,250,000",
        "9,000,000",
    ]
    assert control.value == 9e6


def test_a_control_is_disabled_while_it_changes_nothing():
    explorer = explore.pipeline_schedule()
    for schedule, inert in (
        ("1f1b", [True, True]),
        ("zbv", [False, True]),
        ("dualpipe_v", [False, False]),
    ):
        explorer.controls["schedule"].value = schedule
        shares = [explorer.controls[name] for name in ("weight_share", "overlap_share")]
        assert [share.disabled for share in shares] == inert
        for share, is_inert in zip(shares, inert, strict=True):
            before, start = explorer.figure().to_json(), share.value
            share.value = 0.3
            assert (explorer.figure().to_json() == before) == is_inert, (
                schedule,
                share.description,
            )
            share.value = start
