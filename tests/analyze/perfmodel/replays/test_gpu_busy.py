"""The busy share of the GPU in bins of time."""

import numpy as np
import pandas as pd
import pytest

from workbench import analyze
from workbench.analyze._lib.intervals import measure
from workbench.errors import PerformanceModelError, WorkbenchError

MS = 1_000_000


def work(rows):
    """Make events of GPU work from ``(rank, start_ms, end_ms)``."""
    return pd.DataFrame(
        {
            "rank": np.array([rank for rank, *_ in rows], dtype="int32"),
            "start_ns": np.array([int(start * MS) for _, start, _ in rows], dtype="int64"),
            "dur_ns": np.array([int((end - start) * MS) for _, start, end in rows], dtype="int64"),
            "kind": pd.Categorical(["compute"] * len(rows)),
            "category": pd.Categorical(["kernel"] * len(rows)),
            "device": pd.array([0] * len(rows), dtype="Int32"),
        }
    )


def test_what_overlaps_counts_once_and_bins_begin_at_multiples():
    table = analyze.gpu_busy(work([(0, 1.5, 2.5), (0, 2.0, 2.75), (0, 4.0, 4.5)]))
    assert table["start_ns"].tolist() == [MS, 2 * MS, 3 * MS, 4 * MS]
    assert table["busy_share"].tolist() == [0.5, 0.75, 0.0, 0.5]


def test_all_ranks_have_the_same_bins():
    table = analyze.gpu_busy(work([(0, 0, 1), (5, 2, 4)]))
    bins = table.groupby("rank")["start_ns"].apply(list)
    assert bins[0] == bins[5] == [0, MS, 2 * MS, 3 * MS]
    assert table.loc[table["rank"] == 0, "busy_share"].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("bin_ns", [7, 999, 1_000, 1_000_000])
def test_busy_times_add_up_to_the_union_of_the_work(bin_ns):
    random = np.random.default_rng(1)
    start = random.integers(0, 20_000, 200) / MS
    events = work([(0, at, at + length / MS) for at, length in
                   zip(start, random.integers(1, 90, 200), strict=True)])  # fmt: skip
    table = analyze.gpu_busy(events, bin_ns=bin_ns)
    busy = measure(events["start_ns"], events["start_ns"] + events["dur_ns"])
    assert table["busy_share"].sum() * bin_ns == pytest.approx(busy)


def test_bins_without_a_width_are_refused():
    with pytest.raises(PerformanceModelError, match="bin_ns=0: give a width above 0"):
        analyze.gpu_busy(work([(0, 0, 1)]), bin_ns=0)


def test_too_many_bins_are_refused():
    with pytest.raises(PerformanceModelError, match=r"20,000,000 bins on 1 ranks are too many"):
        analyze.gpu_busy(work([(0, 0, 20)]), bin_ns=1)


def test_a_trace_without_gpu_work_has_no_busy_time():
    with pytest.raises(WorkbenchError, match="no GPU work, so no busy time"):
        analyze.gpu_busy(work([(0, 0, 1)]).iloc[:0])
