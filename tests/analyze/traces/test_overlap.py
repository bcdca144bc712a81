"""Overlap: a peer's percentages, then the laws of sets."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench._shared.kernel_kinds import KINDS
from workbench.errors import WorkbenchError
from workbench.tables import EVENTS

kernel = st.fixed_dictionaries(
    {
        "start_ns": st.integers(0, 25),
        "dur_ns": st.integers(0, 9),
        "kind": st.sampled_from(KINDS),
        "rank": st.integers(0, 1),
    }
)


@pytest.mark.oracle
def test_shares_agree_with_holistic_trace_analysis(real_events, published):
    """It drops work without a launch, so that must be dropped here too."""
    for row in published("trace_hta_overlap").itertuples():
        events = real_events(row.dataset, row.file)
        launched = events[events["kind"].isna() | events["launch"].notna()]
        found = analyze.communication_overlap(launched)
        rank = row.rank if len(found) > 1 else found["rank"].iloc[0]
        share = found.set_index("rank").loc[rank, "overlap_share"]
        assert 100 * share == pytest.approx(row.overlap_pct, abs=0.0051), (row.file, rank)


@given(st.lists(kernel, min_size=1, max_size=12))
def test_hidden_and_exposed_communication_add_up(make_events, kernels):
    table = analyze.communication_overlap(make_events(*kernels))
    assert (table["overlap_ns"] + table["exposed_ns"] == table["communication_ns"]).all()
    assert table["overlap_share"].isna().tolist() == (table["communication_ns"] == 0).tolist()


def test_without_communication_the_share_is_missing(make_events):
    events = make_events({"start_ns": 0, "end_ns": 10, "kind": "compute"})
    assert analyze.communication_overlap(events)["overlap_share"].isna().all()


def test_steps_are_told_apart(make_events):
    events = make_events(
        {"start_ns": 0, "end_ns": 10, "kind": "communication", "step": 1},
        {"start_ns": 0, "end_ns": 5, "kind": "compute", "step": 1},
        {"start_ns": 10, "end_ns": 20, "kind": "communication", "step": 2},
    )
    table = analyze.communication_overlap(events, by="step")
    expected = pd.Series([0.5, 0.0], dtype="Float64", name="overlap_share")
    pd.testing.assert_series_equal(table["overlap_share"], expected)


def test_says_why_there_is_nothing_to_overlap():
    with pytest.raises(WorkbenchError, match="there are no events"):
        analyze.communication_overlap(EVENTS.empty())
