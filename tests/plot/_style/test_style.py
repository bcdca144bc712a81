"""One meaning, one colour; every figure says where its data comes from."""

import json

import plotly.graph_objects as go

from tests.rules import for_every
from workbench.plot._style import style
from workbench.tables import Source

OKABE_ITO = {
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
}  # fmt: skip


def texts(figure):
    return [note.text for note in figure.layout.annotations]


def bars():
    return go.Figure([go.Bar(x=[1], y=[2], name="a"), go.Bar(x=[1], y=[3], name="b")])


def test_every_colour_is_of_the_palette_or_a_grey():
    for name, colour in style.COLOURS.items():
        assert colour in OKABE_ITO or len({colour[1:3], colour[3:5], colour[5:7]}) == 1, name


def test_parts_of_one_stack_differ_without_their_colour():
    parts = ["compute", "overlapped", "exposed communication", "exposed memory", "exposed other"]
    shapes = [style.fill(part).get("pattern", {}).get("shape", "solid") for part in parts]
    assert len(set(shapes)) == len(parts)


def test_lines_differ_in_colour_and_in_dash():
    looks = [tuple(style.distinct(position).values()) for position in range(style.MAX_LINES)]
    assert len(set(looks)) == style.MAX_LINES


def test_finish_states_claim_source_and_note():
    figure = style.finish(bars(), claim="Rank 7 is late", source="a <b> trace", note="2 of 3")
    assert figure.layout.title.text == "Rank 7 is late"
    assert figure.layout.title.subtitle.text == "2 of 3"
    assert texts(figure) == ["Source: a &lt;b&gt; trace"]
    assert figure.layout.meta == {"claim": "Rank 7 is late", "source": "a <b> trace",
                                  "origin": "", "synthetic": False}  # fmt: skip


def test_finish_keeps_whose_data_a_figure_shows():
    figure = style.finish(bars(), claim="late", source=Source("run 1", "own"))
    assert (figure.layout.meta["source"], figure.layout.meta["origin"]) == ("run 1", "own")
    assert json.loads(figure.to_json())["layout"]["meta"]["origin"] == "own"


def test_a_doubt_begins_the_title_once():
    doubtful = style.finish(bars(), claim="7 is late", source="", note="<b>clocks are off</b>")
    assert doubtful.layout.title.text == "In doubt: 7 is late"
    assert doubtful.layout.meta["claim"] == "In doubt: 7 is late"
    told = style.finish(bars(), claim="What 7 did is in doubt", source="", is_doubtful=True)
    assert told.layout.title.text == "What 7 did is in doubt"


def test_generated_data_is_labelled_above_and_below():
    figure = style.finish(bars(), claim="Rank 7 is late", source="fleet-demo", synthetic=True)
    assert "SYNTHETIC DATA" in figure.layout.title.subtitle.text
    assert "synthetic data" in texts(figure)[0]
    assert figure.layout.meta["synthetic"] is True


def test_real_data_is_not_called_synthetic():
    figure = style.finish(bars(), claim="Rank 7 is late", source="dlrm")
    assert "synthetic" not in str(figure.layout.title).lower() + "".join(texts(figure))


def test_the_top_margin_grows_with_the_lines_above_the_plot():
    one = style.finish(bars(), claim="short", source="")
    two = style.finish(bars(), claim="long enough to need a second line " * 4, source="")
    assert two.layout.margin.t > one.layout.margin.t
    assert "<br>" in two.layout.title.text


def test_nothing_says_why_in_the_middle_of_the_figure():
    figure = style.nothing("No GPU work was recorded.", claim="No kernels", source="x")
    assert figure.layout.title.text == "No kernels"
    assert "No GPU work was recorded." in texts(figure)
    assert not figure.data


@for_every(meaning={meaning: meaning for meaning in style.COLOURS})
def test_text_in_a_bar_has_contrast(meaning):
    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(
            weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
        )

    low, high = sorted(
        [luminance(style.colour(meaning)), luminance(style.ink(style.colour(meaning)))]
    )
    assert (high + 0.05) / (low + 0.05) >= 4.5
