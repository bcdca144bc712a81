"""Suspects of a hang: injected faults first, then one made case for every reason."""

import re

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import FLIGHT_POSITIONS, FLIGHT_SUSPECTS, FLIGHT_WAITS

WORLD = {"0": range(4)}
# Two pipeline stages of two tensor-parallel ranks, as Megatron lays them out.
PIPELINE = {"0": range(4), "1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}


@pytest.fixture
def hang(write_flight_dumps):
    """Load dumps made by hand."""

    def make(groups, calls):
        return load.flight_recorder(write_flight_dumps(groups, calls), progress=False)

    return make


def said(recording):
    """Return rank, reason and confidence of every suspect, and the verdict."""
    table = analyze.flight_suspects(recording)
    (verdict,) = table["verdict"].unique()
    rows = [
        (None if pd.isna(row.rank) else int(row.rank), row.reason, row.confidence)
        for row in table.itertuples()
    ]
    return rows, verdict


def injected(folder):
    """Read the ranks that were made to fail; only tests may know them."""
    log = (folder / "fault_injection.log").read_text()
    return {int(rank) for rank in re.search(r"Fault ranks: \[(.*)\]", log)[1].split(",")}


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("case", "reason", "confidence"),
    [("lock_gil_1st", "never arrived", "high"), ("gpu_error_1st", "stalled", "medium")],
)
def test_finds_the_ranks_that_were_made_to_fail(case, reason, confidence, real_data):
    folder = real_data("flight-recorder") / case
    rows, verdict = said(load.flight_recorder(folder, progress=False))
    assert {rank for rank, *_ in rows} == injected(folder)
    assert {tuple(rest) for _, *rest in rows} == {(reason, confidence)}
    assert verdict == "found"


@pytest.mark.oracle
def test_frozen_hosts_are_all_that_the_others_wait_for(real_data):
    folder = real_data("flight-recorder") / "lock_gil_1st"
    recording = load.flight_recorder(folder, progress=False)
    waits = analyze.flight_waits(recording)
    assert set(waits.loc[waits["why"] == "not called", "waits_for"]) == {9, 14}
    assert set(waits["rank"]) == set(range(16)) - {9, 14}
    positions = analyze.flight_positions(recording).groupby("rank")["pending_count"].sum()
    assert positions[positions == 0].index.tolist() == [9, 14]


@pytest.mark.oracle
def test_failed_gpus_have_most_pending_though_the_world_stands_level(real_data):
    folder = real_data("flight-recorder") / "gpu_error_1st"
    positions = analyze.flight_positions(load.flight_recorder(folder, progress=False))
    world = positions[positions["group"] == "0"]
    assert set(world["enqueued_seq"]) == {163}
    pending = positions.groupby("rank")["pending_count"].sum()
    assert pending.nlargest(2).to_dict() == {14: 43, 12: 27}


def test_a_rank_that_never_called_what_all_others_did_is_certain(hang):
    calls = {rank: [("0", "all_reduce 6 completed"), ("0", "all_reduce 7")] for rank in range(4)}
    calls[2] = calls[2][:1]
    recording = hang(WORLD, calls)
    assert said(recording) == ([(2, "never arrived", "high")], "found")
    row = analyze.flight_suspects(recording).iloc[0]
    assert "last called number 6 of group 0; 3 of 3 other members" in row["evidence"]
    assert (row["seq"], row["operation"], row["waiting_count"]) == (7, "all_reduce", 3)


def test_a_hang_is_followed_through_the_pipeline_to_its_root(hang):
    # Rank 3 never came to number 5 of its stage; stage 0 waits for what stage 1 would send.
    calls = {
        0: [("3", "recv 9 >2"), ("1", "all_reduce 5")],
        1: [("4", "recv 9 >3"), ("1", "all_reduce 5")],
        2: [("2", "all_reduce 5")],
        3: [("2", "all_reduce 4 completed")],
    }
    recording = hang(PIPELINE, calls)
    assert said(recording) == ([(3, "never arrived", "high")], "found")
    waits = analyze.flight_waits(recording)
    assert set(zip(waits["rank"], waits["waits_for"], waits["why"], strict=True)) == {
        (0, 2, "not posted"), (1, 3, "not posted"), (2, 3, "not called"),
    }  # fmt: skip


def test_without_numbers_a_rank_with_nothing_pending_is_likely(hang):
    calls = {rank: [("0", "all_reduce 7")] for rank in range(4)}
    calls[1] = []
    rows, verdict = said(hang(WORLD, calls))
    assert (rows, verdict) == ([(1, "never arrived", "medium")], "found")


def test_one_rank_ahead_of_all_others_accuses_nobody_for_certain(hang):
    calls = {rank: [("0", "all_reduce 6 completed")] for rank in range(4)}
    calls[3].append(("0", "all_reduce 7"))
    rows, verdict = said(hang(WORLD, calls))
    assert rows == [(rank, "never arrived", "low") for rank in range(3)]
    assert verdict == "cannot tell"


@pytest.mark.parametrize(
    ("odd", "reason", "confidence"),
    [
        ("broadcast 7", "mismatch", "high"),
        ("all_reduce 7 [8]", "mismatch", "medium"),
        ("all_reduce 7", "all entered", "none"),
    ],
)
def test_whoever_calls_something_else_is_named(odd, reason, confidence, hang):
    calls = {rank: [("0", "all_reduce 7")] for rank in range(4)}
    calls[1] = [("0", odd)]
    rows, verdict = said(hang(WORLD, calls))
    who = 1 if reason == "mismatch" else None
    assert rows == [(who, reason, confidence)]
    assert verdict == ("found" if who else "cannot tell")


def test_two_against_two_is_no_majority(hang):
    calls = {rank: [("0", f"{('all_reduce', 'broadcast')[rank // 2]} 7")] for rank in range(4)}
    rows, verdict = said(hang(WORLD, calls))
    assert rows == [(rank, "mismatch", "low") for rank in range(4)]
    assert verdict == "cannot tell"


def test_sizes_may_differ_where_every_member_gives_its_own(hang):
    calls = {rank: [("0", f"all_to_all 7 [{8 + rank}]")] for rank in range(4)}
    assert said(hang(WORLD, calls)) == ([(None, "all entered", "none")], "cannot tell")


def test_a_gpu_that_misses_what_its_peers_completed_is_stalled(hang):
    calls = {rank: [("0", "all_reduce 7 completed"), ("0", "all_reduce 8")] for rank in range(4)}
    calls[2] = [("0", "all_reduce 7"), ("0", "all_reduce 8")]
    assert said(hang(WORLD, calls)) == ([(2, "stalled", "medium")], "found")


def test_the_source_of_a_broadcast_may_be_through_long_before_the_others(hang):
    calls = {rank: [("0", "broadcast 7")] for rank in range(4)}
    calls[0] = [("0", "broadcast 7 completed")]
    rows, verdict = said(hang(WORLD, calls))
    assert (rows, verdict) == ([(None, "all entered", "none")], "cannot tell")


def test_a_gpu_that_has_not_started_what_its_peers_have_is_named(hang):
    calls = {
        rank: [("0", "all_reduce 6 completed"), ("0", "all_reduce 7 started")] for rank in range(4)
    }
    calls[1][1] = ("0", "all_reduce 7 scheduled")
    assert said(hang(WORLD, calls)) == ([(1, "not started", "medium")], "found")


def test_a_second_frozen_host_is_found_behind_the_first(hang):
    # Rank 3 froze first. Rank 1 froze too: ranks 0 and 2, held up alike, called number 8.
    groups = {"0": range(4), "1": (0, 1, 2)}
    calls = {rank: [("0", "all_reduce 7"), ("1", "all_gather 8")] for rank in range(3)}
    calls[1] = [("1", "all_gather 7 completed"), ("0", "all_reduce 7")]
    calls[3] = [("0", "all_reduce 6 completed")]
    rows, verdict = said(hang(groups, calls))
    assert rows == [(3, "never arrived", "high"), (1, "stopped early", "medium")]
    assert verdict == "found"


def test_a_frozen_host_that_closes_a_circle_is_told_from_its_victims(hang):
    # Rank 1 froze with a receive posted; everybody waits for somebody, in a circle.
    calls = {
        0: [("3", "recv 9 >2"), ("1", "all_reduce 5")],
        1: [("1", "all_reduce 4 completed"), ("4", "recv 9 >3")],
        2: [("2", "all_reduce 5 completed"), ("3", "recv 4 >0")],
        3: [("2", "all_reduce 5 completed"), ("2", "all_reduce 6")],
    }
    assert said(hang(PIPELINE, calls)) == ([(1, "stopped early", "medium")], "found")


def test_ranks_that_call_two_groups_in_opposite_order_are_a_deadlock(hang):
    groups = {"0": (0, 1), "1": (0, 1)}
    calls = {
        0: [("0", "all_reduce 1 completed"), ("1", "all_reduce 1 completed"), ("0", "all_reduce 2")],
        1: [("0", "all_reduce 1 completed"), ("1", "all_reduce 1 completed"), ("1", "all_reduce 2")],
    }  # fmt: skip
    rows, verdict = said(hang(groups, calls))
    assert rows == [(0, "deadlock", "medium"), (1, "deadlock", "medium")]
    assert verdict == "found"


def test_two_ranks_that_both_receive_first_cannot_be_told_apart(hang):
    calls = {0: [("0", "recv 1 >1")], 1: [("0", "recv 1 >0")]}
    rows, verdict = said(hang({"0": (0, 1)}, calls))
    assert (rows, verdict) == ([(None, "deadlock", "none")], "cannot tell")


def test_a_rank_without_a_dump_is_likely_if_nobody_else_is_missing(hang):
    calls = {rank: [("0", "all_reduce 7")] for rank in (0, 1, 3)}
    recording = hang(WORLD, calls)
    assert said(recording) == ([(2, "no dump", "medium")], "found")
    assert analyze.flight_suspects(recording)["pending_count"].isna().all()


def test_half_of_the_dumps_do_not_accuse_the_other_half(hang):
    rows, verdict = said(hang(WORLD, {rank: [("0", "all_reduce 7")] for rank in (0, 3)}))
    assert rows == [(1, "no dump", "low"), (2, "no dump", "low")]
    assert verdict == "cannot tell"


def test_one_dump_of_four_says_little_about_the_others(hang):
    rows, verdict = said(hang(WORLD, {0: [("0", "all_reduce 7")]}))
    assert rows == [(rank, "no dump", "low") for rank in (1, 2, 3)]
    assert verdict == "cannot tell"


def test_a_collective_everybody_entered_accuses_nobody(hang):
    recording = hang(WORLD, {rank: [("0", "all_reduce 7")] for rank in range(4)})
    assert said(recording) == ([(None, "all entered", "none")], "cannot tell")
    row = analyze.flight_suspects(recording).iloc[0]
    assert "all 4 ranks that hang are in all_reduce 7 of group 0" in row["evidence"]
    assert analyze.flight_waits(recording).empty


def test_a_pair_that_everybody_else_waits_for_is_named_with_low_confidence(hang):
    # Ranks 2 and 3 are in a collective of their own; 0 and 1 wait for them.
    calls = {0: [("3", "recv 9 >2")], 1: [("4", "recv 9 >3")]}
    calls |= {rank: [("2", "all_reduce 5")] for rank in (2, 3)}
    rows, verdict = said(hang(PIPELINE, calls))
    assert rows == [(2, "all entered", "low"), (3, "all entered", "low")]
    assert verdict == "cannot tell"


def test_where_everything_completed_nothing_hangs(hang):
    recording = hang(WORLD, {rank: [("0", "all_reduce 7 completed")] for rank in range(4)})
    assert said(recording) == ([(None, "nothing hangs", "none")], "nothing hangs")


CASES = [
    {rank: [("0", "all_reduce 6 completed"), ("0", "all_reduce 7")][: 1 + (rank != 2)]
     for rank in range(4)},
    {0: [("3", "recv 9 >2"), ("1", "all_reduce 5")], 1: [("4", "recv 9 >3"), ("1", "all_reduce 5")],
     2: [("2", "all_reduce 5")], 3: [("2", "all_reduce 4 completed")]},
    {0: [("0", "all_reduce 7")], 1: [("0", "broadcast 7")], 2: [("0", "all_reduce 7")]},
    {rank: [("0", "all_reduce 7"), ("0", "all_reduce 8")] for rank in range(4)}
    | {3: [("0", "all_reduce 7 completed"), ("0", "all_reduce 8 completed")]},
]  # fmt: skip


@pytest.mark.long
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(order=st.permutations(range(4)), case=st.sampled_from(CASES))
def test_who_is_suspected_does_not_depend_on_how_ranks_are_numbered(order, case, hang):
    groups = {name: [order[rank] for rank in members] for name, members in PIPELINE.items()}
    calls = {
        order[rank]: [
            (group, re.sub(r">(\d)", lambda peer: f">{order[int(peer[1])]}", call))
            for group, call in made
        ]
        for rank, made in case.items()
    }
    rows, verdict = said(hang(PIPELINE, case))
    moved, same_verdict = said(hang(groups, calls))
    renamed = [(None if rank is None else order[rank], *rest) for rank, *rest in rows]
    assert sorted(moved, key=str) == sorted(renamed, key=str)
    assert same_verdict == verdict


@pytest.mark.long
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(
    calls=st.dictionaries(
        st.integers(0, 3),
        st.lists(
            st.tuples(
                st.just("0"),
                st.builds(
                    lambda name, seq, state: f"{name} {seq} {state}",
                    st.sampled_from(["all_reduce", "broadcast", "send", "recv", "coalesced"]),
                    st.integers(0, 4),
                    st.sampled_from(["scheduled", "started", "completed"]),
                ),
            ),
            max_size=6,
        ),
        min_size=1,
    )
)
def test_any_dumps_give_valid_tables_and_a_verdict(calls, hang):
    recording = hang(WORLD, calls)
    table = FLIGHT_SUSPECTS.check(analyze.flight_suspects(recording))
    FLIGHT_WAITS.check(analyze.flight_waits(recording))
    FLIGHT_POSITIONS.check(analyze.flight_positions(recording))
    assert len(table)
    assert table["verdict"].nunique() == 1
    assert (table["verdict"].iloc[0] == "found") == table["confidence"].isin(
        ["high", "medium"]
    ).all()


def test_a_table_of_the_recording_is_refused(hang):
    recording = hang(WORLD, {0: []})
    for analysis in (analyze.flight_suspects, analyze.flight_waits, analyze.flight_positions):
        with pytest.raises(WorkbenchError, match="a FlightRecording is needed, not a DataFrame"):
            analysis(recording.entries)
