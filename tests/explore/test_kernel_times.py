"""The explorer of collectives: move a control, read the screen."""

import numpy as np
import pandas as pd
import pytest

from workbench import explore
from workbench.tables import COLLECTIVE_TIMES


@pytest.fixture(scope="module")
def times():
    size = 2 ** np.arange(9, 30)
    rows = [
        pd.DataFrame({"size_bytes": size, "dur_ns": 5_000 * ranks + size // 100}).assign(
            gpu=gpu, collective=name, dtype="half", rank_count=ranks, node_count=1, source="?"
        )
        for gpu in ("H100", "H200")
        for name in ("all-reduce", "all-gather")
        for ranks in (2, 8)
    ]
    return COLLECTIVE_TIMES.cast(pd.concat(rows, ignore_index=True))


def test_it_starts_with_one_collective_and_all_ranks(times):
    explorer = explore.collective_times(times, source="made up")
    assert explorer.message.value == ""
    shown = [trace.name for trace in explorer.figure().data if trace.mode == "markers"]
    assert shown == ["H100 all-gather, 2 ranks", "H100 all-gather, 8 ranks"]
    assert "made up" in str(explorer.figure().layout.annotations)


def test_ranks_and_what_is_shown_can_be_chosen(times, title):
    explorer = explore.collective_times(times)
    explorer.controls["rank_count"].value = 8
    assert len(explorer.figure().data) == 2
    assert title(explorer).startswith("Collectives take 40.0 µs for 512 B")
    explorer.controls["show"].value = "bandwidth"
    assert title(explorer).startswith("The bus carries up to ")
    assert "[GB/s]" in explorer.figure().layout.yaxis.title.text
    explorer.controls["collective"].value = "all"
    explorer.controls["gpu"].value = "all"
    assert len(explorer.figure().data) == 8


def test_no_collectives_are_explained(title):
    explorer = explore.collective_times(COLLECTIVE_TIMES.empty())
    assert title(explorer) == "No times of collectives to show"
