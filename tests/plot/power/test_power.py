"""Figures of power and energy: what they show, what they say, what they leave out."""

import numpy as np
import pandas as pd
import pytest

from workbench import analyze, plot
from workbench.tables import (
    ENERGY,
    LOGGED_SPANS,
    LOGGED_STEPS,
    POWER_TOTALS,
)

SECOND = 10**9


@pytest.fixture
def totals(build):
    def make(power, *, start_ns=0, count=64):
        rows = [
            {
                "time_ns": start_ns + 2 * SECOND * at, "power_w": watt, "entity_count": count,
                "expected_count": 64, "covered_share": count / 64,
            }
            for at, watt in enumerate(power)
        ]  # fmt: skip
        return build(POWER_TOTALS, rows)

    return make


@pytest.fixture
def spans(build):
    def make(*rows):
        stretches = [
            {
                "kind": kind, "attempt": 1, "start_ns": start_s * SECOND,
                "end_ns": None if end_s is None else end_s * SECOND, "line": 1,
            }
            for kind, start_s, end_s in rows
        ]  # fmt: skip
        return build(LOGGED_SPANS, stretches)

    return make


def said(figure):
    return " ".join(str(each.text) for each in figure.layout.annotations)


def test_the_title_states_mean_peak_and_swing(totals):
    figure = plot.power_totals(totals([400e3, 500e3] * 50))
    title = figure.layout.title.text.replace("<br>", " ")
    assert "64 meters together show 450 kW on average and 500 kW at most" in title
    assert "swings by 100 kW (22 % of the mean, p1 to p99)" in title


def test_a_long_series_has_a_second_panel_of_two_minutes(totals):
    figure = plot.power_totals(totals(np.full(1_000, 4e5)))
    whole, zoom = figure.data
    assert (whole.xaxis, zoom.xaxis) == ("x", "x2")
    low, high = figure.layout.xaxis2.range
    assert (high - low) * 60 == pytest.approx(120)
    assert "120 s of it, enlarged" in said(figure)
    short = plot.power_totals(totals(np.full(100, 4e5)))
    assert len(short.data) == 1


def test_a_spike_of_one_cell_is_in_the_panel_of_the_whole_time(totals):
    power = np.full(40_000, 4e5)
    power[12_345], power[23_456] = 9e5, 1e5
    whole = plot.power_totals(totals(power)).data[0]
    assert len(whole.y) <= 5_000
    assert (max(whole.y), min(whole.y)) == (900, 100)


def test_cells_without_a_sum_are_gaps_and_counted(totals):
    figure = plot.power_totals(totals([4e5, None, 4e5, 4e5]))
    assert np.isnan(figure.data[0].y).tolist() == [False] * 2 + [True] * 2 + [False] * 4
    assert "1 of 4 cells blank: meters are missing there" in figure.layout.title.subtitle.text
    partial = plot.power_totals(totals([4e5] * 4, count=63))
    assert "4 cells without some of the meters" in partial.layout.title.subtitle.text


def test_what_is_enlarged_is_never_empty(totals, spans):
    power = np.full(1_000, np.nan)
    power[900:] = 4e5
    for job in (None, spans(("evaluation", 1_000, 1_020), ("evaluation", 1_850, 1_870))):
        zoom = plot.power_totals(totals(power), job).data[1]
        assert np.isfinite(zoom.y).any()


def test_spans_are_shaded_named_and_counted(totals, spans):
    job = spans(
        ("run", 0, 2_000),
        ("training", 0, 1_800),
        ("evaluation", 300, 320),
        ("evaluation", 1_000, 1_020),
        ("evaluation", 1_500, 1_520),
        ("checkpoint", 1_020, 1_025),
    )
    figure = plot.power_totals(totals(np.full(1_000, 4e5)), job)
    rectangles = [(shape.xref, round(shape.x0 * 60)) for shape in figure.layout.shapes]
    assert rectangles.count(("x", 300)) == 1
    assert len([each for each in rectangles if each[0] == "x"]) == 4
    assert "evaluation (3)" in said(figure)
    assert "checkpoint" in said(figure)
    assert "training" not in said(figure)
    low, high = np.array(figure.layout.xaxis2.range) * 60
    assert low < 1_020 < high, "the middle one of all spans is enlarged"
    assert {shape.yref for shape in figure.layout.shapes} == {"y domain", "y2 domain"}


def test_kinds_of_spans_differ_in_height_and_border(totals, spans):
    job = spans(("evaluation", 10, 20), ("evaluation", 60, 70), ("checkpoint", 30, 40))
    figure = plot.power_totals(totals(np.full(100, 4e5)), job)
    looks = {(shape.y1, shape.line.dash) for shape in figure.layout.shapes}
    assert len(looks) == 2


def test_a_span_that_never_ended_reaches_to_the_end(totals, spans):
    figure = plot.power_totals(totals(np.full(100, 4e5)), spans(("evaluation", 150, None)))
    (shape,) = figure.layout.shapes
    assert (shape.x0, shape.x1) == (150, 200)


def test_steps_are_ticks_where_they_can_be_told_apart(totals, build):
    rows = [
        {"step": n, "attempt": 1, "start_ns": 10 * n * SECOND, "end_ns": 10 * (n + 1) * SECOND, "line": 1}
        for n in range(200)
    ]  # fmt: skip
    figure = plot.power_totals(totals(np.full(1_000, 4e5)), None, build(LOGGED_STEPS, rows))
    ticks = [trace for trace in figure.data if trace.name == "start of a step"]
    assert [trace.xaxis for trace in ticks] == ["x2"]
    assert len(ticks[0].x) == 12


def test_the_axis_tells_the_zero_of_an_epoch(totals):
    epoch = plot.power_totals(totals([4e5] * 9, start_ns=1_715_960_307 * SECOND))
    assert epoch.layout.xaxis.title.text == "time since 2024-05-17 15:38:27 UTC [s]"
    own = plot.power_totals(totals([4e5] * 9))
    assert own.layout.xaxis.title.text == "time since the first cell [s]"


def test_totals_that_no_cell_has_are_explained(totals):
    figure = plot.power_totals(totals([None, None]))
    assert "least_covered_share" in said(figure)
    with pytest.raises(ValueError, match="zoom_s must be a time above 0"):
        plot.power_totals(totals([1.0]), zoom_s=0)


@pytest.fixture
def energies(build):
    def make(*kwh, covered=1.0, **more):
        rows = [
            {
                "entity": f"node{at}", "method": "trapezoid", "end_ns": 600 * SECOND,
                "energy_j": None if each is None else each * 3.6e6, "covered_share": covered,
            } | more
            for at, each in enumerate(kwh)
        ]  # fmt: skip
        return build(ENERGY, rows)

    return make


def test_energies_are_ranked_and_the_largest_is_named(energies):
    figure = plot.energy(energies(6.0, 6.6, 6.0))
    assert list(figure.data[0].x) == [6.6, 6.0, 6.0]
    assert figure.layout.yaxis.ticktext[0] == "node1"
    assert "3 meters took 18.6 kWh" in figure.layout.title.text
    assert "node1 with 6.60 kWh, 10.0 % above the median" in figure.layout.title.text


def test_energies_that_are_not_wholly_known_are_hatched_and_told(energies):
    figure = plot.energy(energies(6.0, None, covered=0.5, reset_count=1))
    assert figure.data[0].marker.pattern.shape
    assert "50 % known" in figure.data[0].text[0]
    note = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert "readings cover 50 % of the time, the rest is not in it" in note
    assert "1 without any energy known" in note
    assert "2 resets of counters" in note


def test_very_many_energies_become_one_ranked_curve(energies):
    figure = plot.energy(energies(*np.linspace(6, 7, 64)))
    (curve,) = figure.data
    assert (curve.type, len(curve.x)) == ("scatter", 64)
    assert "node63: 7 kWh" in said(figure)


def test_a_long_source_is_printed_on_several_lines_above_the_lower_edge(totals):
    table = totals([4e5] * 9)
    long = plot.power_totals(table, source="a source of very many words " * 12 + "/path" * 60)
    brief = plot.power_totals(table, source="a source")
    lines = long.layout.annotations[-1].text.split("<br>")
    assert len(lines) > 2
    assert max(map(len, lines)) <= 116
    more_px = 15 * (len(lines) - 1)
    assert long.layout.margin.b == brief.layout.margin.b + more_px
    assert long.layout.height == brief.layout.height + more_px


def test_the_title_of_energies_with_gaps_states_both():
    seconds = np.r_[0:60, 120:180]
    power = pd.DataFrame({"time_ns": seconds * 10**9, "entity": "gpu0", "power_w": 300.0})
    table = analyze.energy(power.astype({"entity": "category"}))
    claim = plot.energy(table).layout.meta["claim"]
    assert claim == "gpu0 took 9.83 Wh as recorded, 14.9 Wh with gaps bridged"
    (bar,) = plot.energy(table).data
    assert bar.text == (" 9.83, 14.9 with gaps bridged, 66 % known",)
