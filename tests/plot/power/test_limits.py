"""Figures of power limits: titles, panels and marks say what the tables say."""

import pytest

from workbench import analyze, plot
from workbench.tables import POWER_CURVE, POWER_KNEES, PROVISIONING

SITE = {"budget_w": 150e6, "pue_ratio": 1.0, "fixed_w": 0.0, "overhead_w": 357.14}


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


def notes(figure):
    return figure.layout.title.subtitle.text.replace("<br>", " ")


def point(limit_w, speed, energy, **more):
    return {
        "gpu": "G1", "job": "net", "configuration": "c", "configuration_count": 1,
        "limit_w": limit_w, "power_w": limit_w, "speed_ratio": speed, "energy_ratio": energy,
        "saving_ratio": None if energy is None else 1 - energy, "basis": "measured",
    } | more  # fmt: skip


@pytest.fixture
def curve(build):
    return lambda *rows: build(POWER_CURVE, list(rows))


def test_the_title_states_what_least_energy_saves_and_costs(curve):
    figure = plot.power_curve(curve(point(100.0, 0.8, 0.7), point(200.0, 1.0, 1.0)))
    assert title(figure) == "G1 net: 100 W saves 30 % of the energy and costs 20 % of the speed"
    assert list(figure.data[0].y) == [0.8, 1]
    assert list(figure.data[1].y) == [0.7, 1]
    assert figure.layout.yaxis.title.text == "speed [%]"
    assert figure.layout.xaxis2.title.text == "power limit of a GPU [W]"


def test_several_curves_are_summed_up_as_a_range(curve):
    rows = [point(100.0, 0.8, 0.7), point(200.0, 1.0, 1.0)]
    other = [each | {"gpu": "G2", "energy_ratio": 0.9, "saving_ratio": 0.1} for each in rows[:1]]
    figure = plot.power_curve(curve(*rows, *other, rows[1] | {"gpu": "G2"}))
    assert title(figure) == "The right limit saves 10 % to 30 % of the energy of 2 curves"


def test_without_power_only_speed_is_drawn_and_guesses_have_open_marks():
    table = analyze.extended_curve(analyze.published_curve(), 960)
    figure = plot.power_curve(table)
    assert title(figure) == "In doubt: At 1,000 W, GB200 training keeps 95 % of its speed"
    assert "yaxis2" not in figure.layout.to_plotly_json()
    assert list(figure.data[0].marker.symbol) == ["circle-open", "circle", "circle"]
    assert "not measured" in notes(figure)
    assert "no power is known" in notes(figure)


def test_more_curves_than_can_be_told_apart_are_left_out_and_counted(curve):
    rows = [point(100.0, 0.8, 0.7, gpu=f"G{n}") for n in range(15)]
    figure = plot.power_curve(curve(*rows))
    assert sum(trace.showlegend is not False for trace in figure.data) == 12
    assert "3 curves dropped" in notes(figure)


def knee(**more):
    return {
        "gpu": "G1", "job": "net", "configuration_count": 3, "largest_limit_w": 200.0,
        "least_energy_limit_w": 100.0, "saving_ratio": 0.3, "speed_loss_ratio": 0.2,
        "time_increase_ratio": 0.25, "kept_speed_share": 0.95, "kept_speed_limit_w": 150.0,
        "edp_limit_w": 125.0, "ed2p_limit_w": 150.0, "per_watt_limit_w": 100.0,
    } | more  # fmt: skip


def test_knees_are_marked_as_shares_of_the_largest_limit(build):
    rows = [knee(), knee(gpu="G2", speed_loss_ratio=-0.04, saving_ratio=0.1, doubt="noise")]
    figure = plot.power_knees(build(POWER_KNEES, rows))
    assert title(figure) == (
        "In doubt: Least energy at 50 % to 50 % of the largest limit: it saves 10 % to 30 %"
    )
    assert list(figure.data[0].x) == [0.5, 0.5]
    assert list(figure.layout.yaxis.ticktext) == ["G1 net", "G2 net *"]
    texts = [each.text for each in figure.layout.annotations]
    assert texts[:2] == ["-30 % energy, -20 % speed", "-10 % energy, +4.0 % speed"]
    assert "* in doubt" in notes(figure)


def test_one_row_of_knees_is_told_in_words(build):
    assert title(plot.power_knees(build(POWER_KNEES, [knee()]))) == (
        "G1 net: 100 W saves 30 % of the energy and costs 20 % of the speed"
    )
    faster = plot.power_knees(build(POWER_KNEES, [knee(speed_loss_ratio=-0.04)]))
    assert title(faster).endswith("and gains 4.0 % speed")
    bare = plot.power_knees(analyze.power_knees(analyze.published_curve()))
    assert title(bare) == "In doubt: GB200 training keeps 95 % of its speed down to 1,000 W"


@pytest.mark.oracle
def test_the_published_site_is_drawn_with_published_gains_over_it():
    more = analyze.extended_curve(analyze.published_curve(), 960)
    table = analyze.provisioning(more, **SITE)
    figure = plot.provisioning(table, published=analyze.published_gains())
    assert title(figure) == (
        "In doubt: 1,000 W feeds 110,526 GPUs that do 9.0 % more together than at 1,200 W; extrapolated, "
        "960 W would do 11 % more together"
    )
    known, guessed, gain, guessed_gain, published = figure.data
    assert list(known.x) == [1_000, 1_200]
    assert (known.line.dash, guessed.line.dash) == ("solid", "dash")
    assert list(guessed_gain.x) == [960, 1_000], "the guess begins where knowledge ends"
    assert gain.yaxis == guessed_gain.yaxis == published.yaxis == "y2"
    assert list(published.x) == [1_000, 960]
    assert published.error_y.array[1] > 0.05
    assert figure.layout.yaxis.title.text == "GPUs fed [count]"
    assert figure.layout.yaxis2.title.text == "throughput gained [%]"
    assert not figure.layout.yaxis2.overlaying, "no second y axis"


def test_gains_against_another_reference_are_not_laid_over():
    table = analyze.provisioning(analyze.published_curve(), **SITE, reference_limit_w=1_000)
    figure = plot.provisioning(table, published=analyze.published_gains())
    assert "published" not in {trace.name for trace in figure.data}


def site_row(limit_w, gain, **more):
    return {
        "gpu": "G", "job": "net", "configuration": "c", "limit_w": limit_w, "gpu_count": 10,
        "speed_ratio": 1.0, "throughput_ratio": 10 * (1 + gain), "reference_limit_w": 200.0,
        "gain_ratio": gain, "site_w": 1e4,
    } | more  # fmt: skip


def test_a_site_that_gains_nothing_says_so(build):
    figure = plot.provisioning(build(PROVISIONING, [site_row(100.0, -0.2), site_row(200.0, 0.0)]))
    assert title(figure) == "200 W feeds 10 GPUs; no other known limit does more together"


def test_guesses_on_both_sides_are_apart(build):
    rows = [
        site_row(90.0, 0.3, is_extrapolated=True), site_row(100.0, 0.2), site_row(200.0, 0.0),
        site_row(210.0, -0.1, is_extrapolated=True),
    ]  # fmt: skip
    figure = plot.provisioning(build(PROVISIONING, rows))
    guessed = figure.data[1]
    assert [x for x in guessed.x if x == x] == [90, 100, 200, 210]
    assert any(x != x for x in guessed.x), "a gap where the known part lies"
