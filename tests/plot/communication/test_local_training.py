"""Figures of training across regions: titles state the result, and say whose loss it is."""

import re

import pytest

from workbench import analyze, datasets, load, plot, simulate

FOLDER = datasets.path("local-training")


def title(figure):
    return str(figure.layout.title.text).replace("<br>", " ")


@pytest.fixture(scope="module")
def regions():
    return load.regions(FOLDER / "regions.csv")


@pytest.fixture(scope="module")
def curves(regions):
    events = simulate.local_training(regions)
    return analyze.local_training(load.local_training_losses(FOLDER / "losses.parquet"), events)


@pytest.mark.oracle
def test_the_fastest_clock_and_the_next_two_are_in_the_title(regions):
    figure = plot.local_training_rate(analyze.local_training_rate(regions))
    assert title(figure) == (
        "HALoS is fastest, 40.3 min; 1.69 times as long with Async-Local-SGD and 5.21 times "
        "as long with DiLoCo dynamic"
    )
    assert "says nothing about the loss per step" in figure.layout.title.subtitle.text


def test_a_sweep_names_both_ends_of_the_closest_scheme(regions):
    table = analyze.local_training_sweep(regions, "link factor", [0.25, 1, 4])
    assert title(plot.local_training_sweep(table)) == (
        "Async-Local-SGD takes 2.53 times as long as HALoS at link factor 0.25, 1.23 times at 4"
    )


def test_losses_state_who_is_first_and_who_ends_lowest(curves):
    figure = plot.local_training(curves)
    assert title(figure).startswith("HALoS is first at loss 1.")
    assert "synchronous ends lowest, at 1." in title(figure)
    assert "character model, 34,459 parameters" in figure.layout.title.subtitle.text
    assert "the clock may be that of a larger model" in (
        figure.layout.title.subtitle.text.replace("<br>", " ")
    )


def test_a_ratio_is_a_range_beside_that_of_the_clocks(curves):
    figure = plot.time_to_loss(analyze.time_to_loss(curves))
    assert title(figure).startswith("To the same loss Async-Local-SGD takes 1.")
    assert re.search(r"times as long as HALoS; the clock alone gives 1\.[56]\d$", title(figure))
    assert "5 seeds" in figure.layout.title.subtitle.text


def test_a_doubt_about_the_loss_is_in_title_and_note(curves):
    figure = plot.local_training(curves.assign(doubt="trained otherwise"))
    assert title(figure).startswith("In doubt: ")
    assert "trained otherwise" in figure.layout.title.subtitle.text
