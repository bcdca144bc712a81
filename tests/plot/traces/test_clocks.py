"""Clocks: how far apart they are, and how well that is known, stand in the title."""

import numpy as np
import pytest

from workbench import analyze, load, plot
from workbench.tables import CLOCKS


def clock(rank, offset, residual=100, **more):
    row = {"rank": rank, "clock": "0-3", "offset_ns": offset, "residual_ns": residual}
    return row | {"collective_count": 9, "is_sure": True} | more


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


@pytest.mark.oracle
def test_the_clocks_of_dlrm_agree(dlrm):
    collectives = analyze.collectives(load.traces(dlrm, progress=False).events)
    figure = plot.clocks(analyze.clocks(collectives))
    assert title(figure) == (
        "The clocks of 8 ranks agree: 2 µs apart, within the 6.67 µs uncertainty"
    )
    assert list(figure.data[0].x) == list(range(8))
    assert np.abs(figure.data[0].y).max() <= 7
    assert figure.layout.yaxis.title.text == "offset of the clock [µs]"


def test_bars_are_twice_the_residual_in_the_unit_of_the_axis(build):
    rows = [clock(0, 0), clock(1, 3_000_000, 50_000), clock(2, -9, None)]
    figure = plot.clocks(build(CLOCKS, rows))
    (dots,) = figure.data
    assert list(dots.y) == [0, 3, pytest.approx(-9e-6)]
    assert dots.error_y.array[:2].tolist() == [0.0002, 0.1]
    assert np.isnan(dots.error_y.array[2])
    assert dots.hovertext[1] == "rank 1: 3 ms ± 100 µs, from 9 collectives"
    assert title(figure) == (
        "The clocks of 3 ranks are up to 3.00 ms apart, beyond the 100 µs uncertainty; "
        "that of rank 1 is furthest off"
    )


def test_clocks_that_cannot_be_compared_are_told_apart(build):
    rows = [clock(0, 0), clock(1, 5), clock(8, 0, clock="8-9"), clock(9, 70, clock="8-9")]
    figure = plot.clocks(build(CLOCKS, rows))
    assert [trace.name for trace in figure.data] == ["ranks 0-3", "ranks 8-9"]
    assert "on 2 clocks that no collective compares" in title(figure)


def test_ranks_of_which_too_little_is_known_are_counted(build):
    rows = [clock(0, 0, None, is_sure=False), clock(1, None, None, clock=None, is_sure=False)]
    figure = plot.clocks(build(CLOCKS, rows))
    said = figure.layout.title.subtitle.text
    assert "1 rank without a known offset dropped" in said
    assert "1 rank not sure" in said
    assert title(figure).endswith("from too few ends")
    nothing = plot.clocks(build(CLOCKS, rows[1:]))
    assert (
        "Of none of 1 rank a collective ends on another rank" in nothing.layout.annotations[0].text
    )


def test_an_offset_that_could_be_a_shifted_order_is_not_claimed(build):
    why = "matched by order alone: a trace that begins one or some collectives later looks the same"
    doubtful = clock(1, 10**6, is_sure=False, note=f"{why}; off by more")
    figure = plot.clocks(build(CLOCKS, [clock(0, 0), doubtful]))
    assert title(figure) == (
        "The clocks of 2 ranks seem to be up to 1 ms apart, but that of rank 1, furthest off, "
        "is not sure"
    )
    assert f"1 rank not sure, e.g. {why}" in figure.layout.title.subtitle.text.replace("<br>", " ")
