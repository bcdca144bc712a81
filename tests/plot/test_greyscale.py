"""Figures without colour: converted to grey, series that differ only in colour keep a distance."""

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plot.greyscale import LEAST_LIGHTNESS, alike_in_grey, lightness

FIGURE = re.compile(r'<script type="application/json">(\{"data".*?)</script>', re.DOTALL)


def line(name, colour, **more):
    return {"type": "scatter", "mode": "lines", "name": name, "line": {"color": colour, **more}}


def figures(site):
    """Give the figures of the gallery by page and place."""
    for page in sorted(site.glob("gallery/*.html")):
        for at, block in enumerate(FIGURE.findall(page.read_text(encoding="utf-8"))):
            yield f"{page.stem} {at}", json.loads(block)


@pytest.mark.slow
def test_no_figure_of_the_gallery_needs_colour(docs_site):
    shown = dict(figures(docs_site))
    assert len(shown) >= 70
    assert {name: pairs for name, figure in shown.items() if (pairs := alike_in_grey(figure))} == {}


@pytest.mark.slow
def test_scales_of_shades_grow_darker_or_lighter_all_the_way(docs_site):
    for name, figure in figures(docs_site):
        for trace in figure["data"]:
            scale = trace.get("colorscale") or trace.get("marker", {}).get("colorscale") or []
            steps = [lightness(colour) for _, colour in scale]
            assert steps in (sorted(steps), sorted(steps, reverse=True)), name


def test_two_hues_of_one_lightness_are_alike_and_two_shades_of_one_hue_are_not():
    # Vermilion and bluish green could not look more different, and print as the same grey.
    hues = [line("late", "#D55E00"), line("in time", "#009E73")]
    assert alike_in_grey({"data": hues}) == [("late", "in time", "#D55E00", "#009E73")]
    shades = [line("late", "#0B3C5D"), line("in time", "#7FB2DD")]
    assert alike_in_grey({"data": shades}) == []


@pytest.mark.parametrize("more", [{"dash": "dot"}, {"width": 4}])
def test_a_dash_or_a_width_tells_two_lines_apart(more):
    assert alike_in_grey({"data": [line("a", "#D55E00"), line("b", "#009E73", **more)]}) == []


def test_points_of_one_series_count_as_well():
    bars = {"type": "bar", "name": "state", "marker": {"color": ["#D55E00", "#009E73"]}}
    assert alike_in_grey({"data": [bars]}) == [("state", "its points", "#009E73", "#D55E00")]
    assert alike_in_grey({"data": [bars | {"text": ["late", "in time"]}]}) == []


def test_lightness_is_that_of_published_greys():
    # CIELAB of sRGB white, black and the middle grey, as colour calculators print it.
    assert [round(lightness(grey), 1) for grey in ("#FFFFFF", "#000000", "#777777")] == [100, 0, 50]
    assert lightness("rgba(119,119,119,0.5)") == lightness("#777777")


@given(st.tuples(*[st.integers(0, 255)] * 3), st.integers(0, 2))
def test_more_light_is_never_darker(colour, channel):
    brighter = [min(part + 10 * (at == channel), 255) for at, part in enumerate(colour)]
    shades = ["#{:02x}{:02x}{:02x}".format(*parts) for parts in (colour, brighter)]
    assert 0 <= lightness(shades[0]) <= lightness(shades[1]) <= 100.001


@given(st.lists(st.integers(0, 255), min_size=2, max_size=6))
def test_pairs_of_greys_are_those_that_lie_closer_than_the_distance(levels):
    greys = [f"#{level:02x}{level:02x}{level:02x}" for level in levels]
    lines = [line(str(at), grey) for at, grey in enumerate(greys)]
    close = [
        (first, other)
        for first, other in itertools.combinations(greys, 2)
        if first != other and abs(lightness(first) - lightness(other)) < LEAST_LIGHTNESS
    ]
    assert [pair[2:] for pair in alike_in_grey({"data": lines})] == close
