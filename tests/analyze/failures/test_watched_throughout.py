"""Nodes watched all the time: what is assumed, and what cannot be."""

import pandas as pd
import pytest

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import FAILURES, NODE_SPANS


def nodes(*clocks):
    rows = [
        {"node": f"n{place}", "first_ns": 5, "last_ns": 5, "clock": clock, "failure_count": 1}
        for place, clock in enumerate(clocks)
    ]
    return NODE_SPANS.cast(pd.DataFrame(rows).reindex(columns=list(NODE_SPANS.columns)))


def test_a_node_that_is_mentioned_once_was_watched_all_the_time():
    table = analyze.watched_throughout(nodes("epoch", "none"), span_ns=(0, 86_400_000_000_000))
    assert table["first_ns"].tolist() == [0, 0]
    assert table["clock"].tolist() == ["epoch", "epoch"]
    days = analyze.failure_rates(FAILURES.empty(), nodes=table)["exposure_node_days"]
    assert days.sum() == pytest.approx(2)


def test_a_span_ends_after_it_begins():
    with pytest.raises(WorkbenchError, match="span_ns must end after it begins"):
        analyze.watched_throughout(nodes("epoch"), span_ns=(5, 5))


def test_nodes_on_different_clocks_have_no_common_span():
    with pytest.raises(WorkbenchError, match=r"different clocks \(epoch, own\)"):
        analyze.watched_throughout(nodes("epoch", "own"), span_ns=(0, 5))
