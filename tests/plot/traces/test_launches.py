"""Copies of memory."""

import numpy as np

from workbench import plot
from workbench.tables import COPY_BANDWIDTH


def test_log_axes_have_round_numbers_even_for_a_narrow_range(build):
    rows = [
        {"direction": name, "copy_count": 1, "size_bytes": 1, "busy_ns": 1, "mean_gb_per_s": speed}
        for name, speed in (("HtoD", 7.0), ("DtoH", 8.0), ("DtoD", 8_000.0))
    ]
    figure = plot.copy_bandwidth(build(COPY_BANDWIDTH, rows[:2]))
    low, high = 10 ** np.array(figure.layout.xaxis.range)
    assert low < 7 < 8 < high
    assert list(figure.layout.xaxis.ticktext) == ["6", "7", "8", "9", "10"]
    figure = plot.copy_bandwidth(build(COPY_BANDWIDTH, rows))
    assert list(figure.layout.xaxis.ticktext) == ["10", "100", "1,000", "10,000"]


def test_copy_bandwidth_names_the_direction_that_moves_most(build):
    rows = [
        {"rank": rank, "device": 0, "direction": direction, "copy_count": 2, "size_bytes": moved,
         "busy_ns": 100, "mean_gb_per_s": moved / 100, "peak_gb_per_s": moved / 50}
        for rank in (0, 1)
        for direction, moved in (("HtoD", 1_000), ("DtoD", 50_000))
    ]  # fmt: skip
    rows.append({"rank": 0, "direction": "DtoH", "copy_count": 3, "unsized_count": 3})
    figure = plot.copy_bandwidth(build(COPY_BANDWIDTH, rows))
    assert figure.layout.title.text == "DtoD moves most, 100 kB in 4 pieces, at 500 GB/s"
    assert figure.layout.title.subtitle.text == "3 copies without a size are dropped"
    assert list(figure.layout.yaxis.ticktext) == ["DtoD", "HtoD"]
