"""Folding lines into incidents: the published case first, then laws, then refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench._shared.incidents import fold
from workbench.tables import FAILURES

SECOND = 1_000_000_000
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
    "devices": "",
    "ranks": "",
    "rank_count": 0,
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
        {"clock": "own"},
        {"kind": "dcgm"},
    ],
)
def test_other_hosts_clocks_and_reporters_are_other_incidents(other):
    assert len(fold(lines((0, "13"), (1, "13", other)), window_s=300)) == 2


def test_without_a_host_the_file_takes_its_place():
    lost = {"node": None}
    rows = lines((0, "13", lost), (1, "13", lost), (2, "13", lost | {"source": "b.log"}))
    assert fold(rows, window_s=300)["line_count"].tolist() == [2, 1]


@pytest.mark.parametrize("name", ["code", "rank", "job", "node"])
def test_other_reporters_fold_equal_events_only(name):
    spot = {"kind": "spot", "device": None, "rank": 3, "job": "7"}
    same = lines((0, "remove", spot), (1, "remove", spot))
    assert fold(same, window_s=300)["line_count"].tolist() == [2]
    other = spot | {name: 4 if name == "rank" else "other"}
    rows = lines((0, "remove", spot), (1, other.pop("code", "remove"), other))
    assert fold(rows, window_s=300)["line_count"].tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["xid", "sxid", "amdgpu", "dcgm", "kubernetes"])
def test_all_devices_of_a_node_at_once_are_one_failure_of_the_node(kind):
    buses = ["0f", "2d", "44", "5b", "89", "a8", "c0", "d8"]
    each = [{"kind": kind, "device": f"0000:{bus}:00"} for bus in buses]
    fell = [(n / 10, "79", row) for n, row in enumerate(each)]
    (row,) = fold(lines(*fell), window_s=300).to_dict("records")
    assert row["devices"] == ", ".join(f"0000:{bus}:00" for bus in buses)
    assert (row["device"], row["line_count"]) == ("0000:0f:00", 8)


def hang(ranks, second=0.0, **more):
    nccl = {"kind": "nccl", "device": None, "node": None, "category": "unknown"} | more
    untimed = {"clock": "none"} if second is None else {}
    stamp = [None if second is None else second + rank / 100 for rank in ranks]
    rows = zip(stamp, ranks, strict=True)
    return [(at, "timeout", nccl | untimed | {"rank": rank}) for at, rank in rows]


@pytest.mark.parametrize("second", [0.0, None], ids=["with a time", "without a time"])
def test_a_hang_that_64_ranks_report_is_one_failure_of_the_job(second):
    (row,) = fold(lines(*hang(range(64), second)), window_s=300).to_dict("records")
    assert (row["rank"], row["ranks"], row["rank_count"]) == (0, "0-63", 64)
    assert pd.isna(row["node"])
    assert row["line_count"] == 64


def test_what_a_rank_reports_again_later_is_another_hang():
    twice = [*hang(range(8)), *hang(range(8), 4000)]
    assert fold(lines(*twice), window_s=300)["rank_count"].tolist() == [8, 8]
    untimed = [*hang(range(8), None), *hang(range(7), None)]
    assert fold(lines(*untimed), window_s=300)["ranks"].tolist() == ["0-7", "0-6"]


def test_a_file_for_each_rank_is_one_job_and_files_with_common_ranks_are_several():
    alone = [hang([rank], source=f"a/{rank}/stderr.log")[0] for rank in range(16)]
    other = [hang([rank], source=f"b/{rank}/stderr.log")[0] for rank in range(8)]
    assert fold(lines(*alone), window_s=300)["ranks"].tolist() == ["0-15"]
    assert sorted(fold(lines(*alone, *other), window_s=300)["rank_count"]) == [8, 16]
    jobs = [*hang(range(8), source="1.out"), *hang(range(8), source="2.out")]
    assert fold(lines(*jobs), window_s=300)["rank_count"].tolist() == [8, 8]
    named = [*hang(range(8), job="1"), *hang(range(8, 16), job="2")]
    assert len(fold(lines(*named), window_s=300)) == 2


def test_the_host_of_a_hang_is_kept_only_where_it_is_at_fault():
    waits = [{"node": f"node{n}", "device": str(n)} for n in range(4)]
    rows = [hang([n], **waits[n])[0] for n in range(4)]
    assert fold(lines(*rows), window_s=9)[["node", "device"]].isna().all(axis=None)
    at_fault = hang([5], -1.0, node="node5", device="5", category="gpu memory")
    (row,) = fold(lines(*at_fault, *rows), window_s=9).to_dict("records")
    assert (row["node"], row["device"], row["rank_count"]) == ("node5", "5", 5)
    one_host = [hang([n], node="node1")[0] for n in range(4)]
    assert fold(lines(*one_host), window_s=9)["node"].tolist() == ["node1"]


def test_warnings_of_the_host_that_never_end_tie_no_failures_together():
    ecc = {"kind": "kernel", "device": None, "severity": "warning"}
    rows = [(second, "ECC", ecc) for second in range(0, 4000, 100)]
    folded = fold(lines((0, "79"), *rows, (3000, "79")), window_s=300)
    assert sorted(folded["line_count"]) == [1, 1, 40]


def test_a_process_that_crashes_beside_a_gpu_does_not_lead():
    crash = {"kind": "kernel", "device": None, "category": "software"}
    assert shown(fold(lines((0, "segfault", crash), (1, "13")), window_s=300)) == [
        ["13", "segfault", 2]
    ]


ALONE = {"kind": "amdgpu", "category": "follow-on"}


def test_a_follow_on_with_nothing_before_it_is_a_failure_of_unknown_trigger():
    (row,) = fold(lines((0, "reset", ALONE)), window_s=300).to_dict("records")
    assert (row["category"], row["severity"]) == ("unknown", "fatal")
    assert row["cause"].endswith("(trigger not in the log)")
    cleaned = lines((0, "45", FOLLOW_ON))
    assert fold(cleaned, window_s=300)[["category", "severity"]].to_numpy().tolist() == [
        ["unknown", "unknown"]
    ]
    assert fold(cleaned, window_s=0)["category"].tolist() == ["follow-on"]


@pytest.mark.parametrize(
    ("before", "category"),
    [
        ({}, None),
        ({"kind": "slurm", "device": None}, "follow-on"),
        ({"kind": "slurm", "device": None, "category": "planned"}, "follow-on"),
        ({"kind": "slurm", "device": None, "node": "node2"}, "unknown"),
        ({"node": "node2"}, "unknown"),
    ],
)
def test_a_follow_on_follows_what_came_before_it_on_its_node(before, category):
    folded = fold(lines((0, "79", before), (100, "reset", ALONE)), window_s=300)
    follows = folded[folded["code"] == "reset"]["category"].tolist()
    assert follows == ([] if category is None else [category])


def test_a_failure_after_the_window_explains_no_follow_on():
    slurm = {"kind": "slurm", "device": None}
    late = fold(lines((0, "79", slurm), (301, "reset", ALONE)), window_s=300)
    assert late["category"].tolist() == ["gpu", "unknown"]
    after = fold(lines((0, "reset", ALONE), (1, "NODE_FAIL", slurm)), window_s=300)
    assert after["category"].tolist() == ["unknown", "gpu"]


def test_a_follow_on_of_unknown_trigger_leads_no_failure_that_is_found_later():
    rows = lines((0, "reset", ALONE), (100, "79", {"kind": "xid"}))
    short = fold(rows, window_s=60)
    assert short["category"].tolist() == ["unknown", "gpu"]
    twice = fold(short, window_s=300)
    assert twice[["code", "category"]].to_numpy().tolist() == [["79", "gpu"]]


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


@given(BURSTS, st.sampled_from([0, 10, 60, 300, 1e9]))
def test_no_line_is_lost_and_incidents_of_one_node_lie_apart(rows, window_s):
    folded = fold(lines(*rows), window_s=window_s)
    assert folded["line_count"].sum() == len(rows)
    if window_s == 0:
        return
    for _, group in folded.groupby("node"):
        ordered = group.sort_values("start_ns")
        gaps = ordered["start_ns"].to_numpy()[1:] - ordered["end_ns"].to_numpy()[:-1]
        assert (gaps > window_s * SECOND).all()


PLACES = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["xid", "amdgpu"]), "node": st.sampled_from(["a", "b"])}
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("nccl"),
            "job": st.sampled_from(["1", "2"]),
            "node": st.sampled_from(["a", "b"]),
            "device": st.none(),
            "category": st.just("unknown"),
        }
    ),
)
# In tens of seconds, so that a copy within the same ten lies inside every window or outside.
FAILED = st.lists(st.tuples(st.integers(0, 200), PLACES), min_size=1, max_size=8)
COPIES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 999), st.integers(0, 9)), max_size=40)


def counted_by_hand(rows, window_s):
    """Link rows of one place two by two, and count what hangs together."""
    groups = []
    for second, place in rows:
        key = place.get("job") or place["node"]
        near = [g for g in groups if any(k == key and abs(s - second) <= window_s for s, k in g)]
        groups = [g for g in groups if g not in near]
        groups.append([(second, key), *(row for g in near for row in g)])
    return len(groups)


@pytest.mark.long
@given(FAILED, COPIES, st.sampled_from([60, 300]))
def test_more_ranks_and_devices_never_change_the_number_of_failures(rows, copies, window_s):
    """Every failure is told by any number of devices of its node or ranks of its job."""
    rows = [(10 * ten, place) for ten, place in rows]
    told = [(second, "79", place) for second, place in rows]
    for which, late, member in copies:
        second, place = rows[which % len(rows)]
        is_job = place["kind"] == "nccl"
        other = {"rank": member, "node": f"n{member}"} if is_job else {"device": f"dev{member}"}
        told.append((second + late / 1000, "43", place | other))
    once = fold(lines(*((s, "79", p) for s, p in rows)), window_s=window_s)
    folded = fold(lines(*told), window_s=window_s)
    assert len(folded) == len(once) == counted_by_hand(rows, window_s)
    assert folded["line_count"].sum() == len(told)


@pytest.mark.long
@given(BURSTS, st.sampled_from([10, 60, 300]))
def test_raw_lines_fold_like_lines_at_once(rows, window_s):
    raw = fold(lines(*rows), window_s=0)
    pd.testing.assert_frame_equal(
        fold(raw, window_s=window_s), fold(lines(*rows), window_s=window_s)
    )


@pytest.mark.long
@given(BURSTS, st.sampled_from([10, 60]), st.sampled_from([60, 300]))
def test_folding_further_gives_the_same_spans(rows, short, long):
    names = ["node", "devices", "start_ns", "end_ns", "line_count"]
    twice = fold(fold(lines(*rows), window_s=short), window_s=long)
    once = fold(lines(*rows), window_s=long)
    pd.testing.assert_frame_equal(
        twice[names].sort_values(names, ignore_index=True),
        once[names].sort_values(names, ignore_index=True),
    )


@pytest.mark.long
@given(BURSTS)
def test_a_longer_window_never_gives_more_incidents(rows):
    counts = [len(fold(lines(*rows), window_s=w)) for w in (0, 1, 10, 60, 300, 1e6)]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.long
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
