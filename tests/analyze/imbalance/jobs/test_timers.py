"""Timers by rank: who is slow beside the ranks that do the same work."""

import statistics

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import MEGATRON_TIMERS


def timers(times, *, timer="forward-compute"):
    """Make a table of times by rank, in ns, one list of blocks per rank."""
    rows = [
        {"position": block, "step": block, "timer": timer, "statistic": "rank", "rank": rank,
         "dur_ns": value}
        for rank, values in times.items()
        for block, value in enumerate(values)
    ]  # fmt: skip
    return MEGATRON_TIMERS.cast(pd.DataFrame(rows))


def test_a_slow_rank_of_a_short_stage_is_found_although_another_stage_takes_longer():
    # The last stage has the loss and takes longest; rank 1 is slow beside ranks 0 and 2.
    times = {0: [100], 1: [130], 2: [100], 3: [180], 4: [181], 5: [180]}
    stages = {rank: rank // 3 for rank in times}
    first = analyze.timer_ranks(timers(times), stages=stages).iloc[0]
    assert (first["rank"], first["stage"], first["peer_count"]) == (1, 0, 2)
    assert first["slowdown_ratio"] == pytest.approx(1.3)
    blind = analyze.timer_ranks(timers(times))
    assert blind.iloc[0]["rank"] == 4


def test_one_long_block_makes_no_slow_rank():
    found = analyze.timer_ranks(timers({0: [10, 10, 900], 1: [11, 11, 11], 2: [10, 10, 10]}))
    assert found.iloc[0]["rank"] == 1
    assert found["block_count"].tolist() == [3, 3, 3]


def test_a_rank_alone_in_its_stage_has_no_ratio():
    found = analyze.timer_ranks(timers({0: [10], 1: [20]}), stages={0: 0, 1: 1})
    assert found["slowdown_ratio"].isna().all()
    assert found["peer_count"].tolist() == [0, 0]


def test_extremes_over_ranks_do_not_say_who_is_slow():
    extremes = timers({0: [1]}).assign(statistic="max", rank=pd.NA)
    with pytest.raises(WorkbenchError, match="--timing-log-option all"):
        analyze.timer_ranks(MEGATRON_TIMERS.cast(extremes))


def test_a_rank_without_a_stage_is_named():
    with pytest.raises(WorkbenchError, match=r"stage of ranks \[1\]"):
        analyze.timer_ranks(timers({0: [1], 1: [1]}), stages={0: 0})


@given(values=st.lists(st.integers(1, 10**9), min_size=2, max_size=9))
def test_the_ratio_is_to_the_median_of_the_others(values):
    found = analyze.timer_ranks(timers({rank: [value] for rank, value in enumerate(values)}))
    for row in found.itertuples():
        others = [value for rank, value in enumerate(values) if rank != row.rank]
        assert row.slowdown_ratio == pytest.approx(values[row.rank] / statistics.median(others))
