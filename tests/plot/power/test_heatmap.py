"""The picture of power: what is in a cell, what is white, and how much it weighs."""

import base64

import numpy as np
import pandas as pd
import pytest

from workbench import analyze, plot

HOUR = 1_700_006_400_000_000_000


def grid_of(power, *, step_ns=10**10, start_ns=HOUR):
    """Make a grid of an array of entities times cells."""
    rows, cells = power.shape
    flat = power.ravel()
    return pd.DataFrame(
        {
            "time_ns": np.tile(start_ns + np.arange(cells) * step_ns, rows),
            "entity": pd.Categorical(np.repeat([f"gpu{n}" for n in range(rows)], cells)),
            "power_w": flat,
            "covered_share": np.where(np.isnan(flat), 0.0, 1.0),
        }
    )


def numbers_of(figure):
    return np.asarray(figure.data[0].z)


def test_a_cell_is_the_mean_or_the_maximum_of_its_time():
    shown = analyze.power_heatmap(
        grid_of(np.array([[400.0, 800.0], [100.0, 100.0]])), column_count=1
    )
    assert numbers_of(plot.power_heatmap(shown)).tolist() == [[600], [100]]
    assert numbers_of(plot.power_heatmap(shown, by="max")).tolist() == [[800], [100]]


def test_cells_without_reading_are_white_and_counted():
    power = np.array([[400.0, 500.0], [np.nan, 600.0]])
    figure = plot.power_heatmap(analyze.power_heatmap(grid_of(power)))
    assert numbers_of(figure).tolist() == [[400, 500], [-1, 600]]
    assert figure.data[0].colorscale[0] == (0, "#FFFFFF")
    assert "white: no reading (1 cell)" in figure.layout.title.subtitle.text


@pytest.mark.slow
def test_numbers_are_small_integers_and_a_large_fleet_weighs_less_than_two_megabytes():
    power = np.random.default_rng(1).uniform(300, 700, (2_000, 600))
    figure = plot.power_heatmap(analyze.power_heatmap(grid_of(power)))
    assert numbers_of(figure).dtype == np.int16
    text = figure.to_json()
    assert len(text) < 2_000_000
    assert len(base64.b64encode(numbers_of(figure).tobytes())) > 1_500_000
    assert "of 2,000 that differ most from the median" in figure.layout.title.subtitle.text


@pytest.mark.slow
def test_what_is_off_is_shown_however_large_the_fleet():
    power = np.full((2_000, 600), 500.0)
    power[1_999] = 450.0
    figure = plot.power_heatmap(analyze.power_heatmap(grid_of(power)))
    assert "gpu1999" in figure.data[0].y


def test_powers_of_racks_are_whole_watts_as_well():
    figure = plot.power_heatmap(analyze.power_heatmap(grid_of(np.array([[120_000.0, 90_000.0]]))))
    assert numbers_of(figure).dtype == np.int32
    assert figure.layout.title.text == "gpu0 draws 105,000 W on average"


def test_who_draws_most_is_not_who_only_missed_the_idle_hours():
    power = np.array([[500.0, 500.0, 100.0, 100.0], [490.0, 490.0, np.nan, np.nan]])
    figure = plot.power_heatmap(analyze.power_heatmap(grid_of(power)))
    assert "gpu0 the most, 300 W" in figure.layout.title.text


def test_a_clock_of_its_own_is_shown_in_seconds():
    figure = plot.power_heatmap(analyze.power_heatmap(grid_of(np.ones((1, 3)), start_ns=0)))
    assert figure.layout.xaxis.title.text == "time [s]"
    assert list(figure.data[0].x) == [0, 10, 20]


def test_an_unknown_way_of_shortening_is_refused():
    shown = analyze.power_heatmap(grid_of(np.ones((1, 3))))
    with pytest.raises(ValueError, match="by must be 'mean' or 'max'; got 'median'"):
        plot.power_heatmap(shown, by="median")
