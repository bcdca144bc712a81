"""Folding lines into incidents: the published case first, then laws, then refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench._incidents import fold
from workbench.tables import FAILURES

SECOND = 1_000_000_000
FEW = settings(deadline=None, max_examples=30)
USUAL = {
    "clock": "epoch",
    "node": "node1",
    "device": "0000:3b:00",
    "kind": "xid",
    "cause": "?",
    "category": "gpu",
    "severity": "fatal",
    "other_codes": "",
    "line_count": 1,
    "text": "",
    "source": "a.log",
    "assumed": "",
}
FOLLOW_ON = {"category": "follow-on", "severity": "info"}


def lines(*rows):
    """Rows of (second, code, others), line by line."""
    records = []
    for number, (second, code, *more) in enumerate(rows, start=1):
        at = pd.NA if second is None else round(second * SECOND)
        row = {**USUAL, "start_ns": at, "end_ns": at, "code": code, "line": number}
        records.append(row | (more[0] if more else {}))
    frame = pd.DataFrame(records, columns=list(FAILURES.columns), dtype=object)
    return FAILURES.check(FAILURES.cast(frame))


def shown(frame):
    return frame[["code", "other_codes", "line_count"]].to_numpy().tolist()


@pytest.mark.oracle
def test_sixteen_lines_of_xid_13_and_one_of_43_within_4_ms_are_one_incident():
    burst = [(n * 0.00025, "13") for n in range(16)] + [(0.004, "43")]
    folded = fold(lines(*burst), window_s=300)
    assert shown(folded) == [["13", "43", 17]]
    assert folded["end_ns"].iloc[0] - folded["start_ns"].iloc[0] == 4_000_000


def test_the_earliest_line_that_is_no_follow_on_leads():
    folded = fold(
        lines((0, "45", FOLLOW_ON), (1, "43"), (2, "79"), (3, "154", FOLLOW_ON)), window_s=9
    )
    assert shown(folded) == [["79", "43, 45, 154", 4]]
    assert folded[["start_ns", "end_ns", "line"]].to_numpy().tolist() == [[0, 3 * SECOND, 3]]


def test_an_early_43_leads_and_follow_ons_lead_where_nothing_else_is():
    assert shown(fold(lines((0, "43"), (1, "13")), window_s=9)) == [["43", "13", 2]]
    only = lines((0, "45", FOLLOW_ON), (1, "154", FOLLOW_ON))
    assert shown(fold(only, window_s=9)) == [["45", "154", 2]]


def test_the_worst_severity_counts():
    folded = fold(lines((0, "63", {"severity": "warning"}), (1, "79")), window_s=9)
    assert folded["severity"].tolist() == ["fatal"]
    assert folded["code"].tolist() == ["63"]


def test_a_pause_of_exactly_the_window_is_inside():
    assert len(fold(lines((0, "13"), (60, "13")), window_s=60)) == 1
    assert len(fold(lines((0, "13"), (60.001, "13")), window_s=60)) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"node": "node2"},
        {"device": "0000:9d:00"},
        {"clock": "own"},
        {"kind": "dcgm"},
    ],
)
def test_other_hosts_devices_clocks_and_reporters_are_other_incidents(other):
    assert len(fold(lines((0, "13"), (1, "13", other)), window_s=300)) == 2


def test_without_a_host_the_file_takes_its_place():
    lost = {"node": None}
    rows = lines((0, "13", lost), (1, "13", lost), (2, "13", lost | {"source": "b.log"}))
    assert fold(rows, window_s=300)["line_count"].tolist() == [2, 1]


@pytest.mark.parametrize("name", ["code", "rank", "job", "node"])
def test_other_reporters_fold_equal_events_only(name):
    nccl = {"kind": "nccl", "device": None, "rank": 3, "job": "7"}
    same = lines((0, "timeout", nccl), (1, "timeout", nccl))
    assert fold(same, window_s=300)["line_count"].tolist() == [2]
    other = nccl | {name: 4 if name == "rank" else "other"}
    rows = lines((0, "timeout", nccl), (1, other.pop("code", "timeout"), other))
    assert fold(rows, window_s=300)["line_count"].tolist() == [1, 1]


def test_gpus_without_an_address_are_not_mixed():
    nowhere = {"device": None}
    rows = lines((0, "79", nowhere), (1, "13", nowhere), (2, "79", nowhere))
    assert fold(rows, window_s=300)["line_count"].tolist() == [2, 1]


def test_rows_without_a_time_stay_alone_and_last():
    folded = fold(lines((None, "13"), (None, "13"), (5, "13")), window_s=300)
    assert folded["start_ns"].isna().tolist() == [False, True, True]


def test_a_row_that_lasts_is_left_only_after_its_end():
    long = lines((0, "13"), (400, "13"))
    long["end_ns"] = pd.array([390 * SECOND, 400 * SECOND], dtype="Int64")
    assert len(fold(long, window_s=60)) == 1
    inside = lines((0, "13"), (1, "13"), (400, "13"))
    inside["end_ns"] = pd.array([390 * SECOND, SECOND, 400 * SECOND], dtype="Int64")
    assert len(fold(inside, window_s=60)) == 1


def test_an_end_that_is_missing_is_the_start():
    rows = lines((3, "13"))
    rows["end_ns"] = pd.array([pd.NA], dtype="Int64")
    assert fold(rows, window_s=60)["end_ns"].tolist() == [3 * SECOND]


def test_nothing_folds_to_nothing():
    assert fold(FAILURES.empty(), window_s=300).empty


def test_the_input_is_left_as_it_is():
    rows = lines((1, "13"), (0, "43"))
    before = rows.copy()
    fold(rows, window_s=300)
    pd.testing.assert_frame_equal(rows, before)


BURSTS = st.lists(
    st.tuples(
        st.integers(0, 2000),
        st.sampled_from(["13", "43", "45", "79"]),
        st.fixed_dictionaries(
            {"node": st.sampled_from(["node1", "node2"]), "device": st.sampled_from(["a", "b"])}
        ),
    ),
    min_size=1,
    max_size=40,
)


@FEW
@given(BURSTS, st.sampled_from([0, 10, 60, 300, 1e9]))
def test_no_line_is_lost_and_incidents_of_one_device_lie_apart(rows, window_s):
    folded = fold(lines(*rows), window_s=window_s)
    assert folded["line_count"].sum() == len(rows)
    if window_s == 0:
        return
    for _, group in folded.groupby(["node", "device"]):
        ordered = group.sort_values("start_ns")
        gaps = ordered["start_ns"].to_numpy()[1:] - ordered["end_ns"].to_numpy()[:-1]
        assert (gaps > window_s * SECOND).all()


@FEW
@given(BURSTS, st.sampled_from([10, 60, 300]))
def test_raw_lines_fold_like_lines_at_once(rows, window_s):
    raw = fold(lines(*rows), window_s=0)
    pd.testing.assert_frame_equal(
        fold(raw, window_s=window_s), fold(lines(*rows), window_s=window_s)
    )


@FEW
@given(BURSTS, st.sampled_from([10, 60]), st.sampled_from([60, 300]))
def test_folding_further_gives_the_same_spans(rows, short, long):
    names = ["node", "device", "start_ns", "end_ns", "line_count"]
    twice = fold(fold(lines(*rows), window_s=short), window_s=long)
    once = fold(lines(*rows), window_s=long)
    pd.testing.assert_frame_equal(
        twice[names].sort_values(names, ignore_index=True),
        once[names].sort_values(names, ignore_index=True),
    )


@FEW
@given(BURSTS)
def test_a_longer_window_never_gives_more_incidents(rows):
    counts = [len(fold(lines(*rows), window_s=w)) for w in (0, 1, 10, 60, 300, 1e6)]
    assert counts == sorted(counts, reverse=True)


@FEW
@given(BURSTS, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(rows, random):
    ordered = lines(*rows)
    mixed = list(range(len(rows)))
    random.shuffle(mixed)
    pd.testing.assert_frame_equal(
        fold(ordered.iloc[mixed], window_s=60), fold(ordered, window_s=60)
    )


@pytest.mark.parametrize("window_s", [-1, float("nan"), np.inf, None, "60", True])
def test_a_window_that_is_no_time_is_refused(window_s):
    with pytest.raises(ValueError, match="window_s must be a number of seconds, 0 or more"):
        fold(FAILURES.empty(), window_s=window_s)
