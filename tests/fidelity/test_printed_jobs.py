"""Predictions of printed jobs, as the notebook shows them."""

from workbench import fidelity, plot
from workbench.tables import ITERATION_ERRORS


def test_printed_jobs_are_predicted_without_the_one_they_were_calibrated_on():
    jobs = ITERATION_ERRORS.check(fidelity.printed_predictions())
    counts = jobs.groupby("group").size()
    assert sorted(counts) == [2, 3, 8, 8]
    lumos = jobs["group"].str.startswith("Lumos")
    assert jobs.loc[~lumos, "error_ratio"].abs().max() < 0.09


def test_groups_are_told_apart_by_their_symbols():
    figure = plot.iteration_errors(fidelity.printed_predictions())
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    assert len({trace.marker.symbol for trace in dots}) == len(dots) == 4
