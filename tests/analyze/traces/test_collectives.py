"""Collectives: the waits of a real 8-rank job, then each way to match and to refuse."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench._shared.collective_names import operation_of
from workbench.tables import BLAME, COLLECTIVE_WAITS, COLLECTIVES, EVENTS, PROCESS_GROUPS

DLRM = ("kineto-dlrm-8rank", "dlrm_kineto.tar.gz")


@pytest.mark.oracle
def test_each_rank_of_the_dlrm_job_waits_as_long_as_published(real_events, published):
    waits = analyze.collective_waits(real_events(*DLRM))
    printed = published("trace_dlrm_ranks").set_index("rank")["wait_us"] * 1000
    assert waits.groupby("rank")["wait_ns"].sum().tolist() == printed.tolist()
    assert set(waits["confidence"]) == {"low"}, "nothing but the order is recorded"
    assert waits.attrs["left_out"] == {}


@pytest.mark.oracle
def test_the_last_ranks_of_the_dlrm_job_are_those_published(real_events, published):
    table = analyze.collectives(real_events(*DLRM))
    first = table.groupby("collective").first()
    printed = published("trace_dlrm_collectives")
    assert first["operation"].tolist() == printed["operation"].tolist()
    assert first["blamed_rank"].tolist() == printed["blamed_rank"].tolist()
    for name in ("start_skew", "end_skew", "transfer_min"):
        assert first[f"{name}_ns"].tolist() == (printed[f"{name}_us"] * 1000).tolist(), name


@pytest.mark.oracle
def test_waiting_in_the_dlrm_job_is_blamed_as_published(real_events, published):
    blame = BLAME.check(analyze.straggler_attribution(analyze.collective_waits(real_events(*DLRM))))
    found = blame.groupby("blamed_rank")["wait_ns"].sum()
    printed = published("trace_dlrm_blame").set_index("blamed_rank")["wait_us"] * 1000
    assert found.to_dict() == printed.to_dict()
    assert blame["wait_share"].sum() == pytest.approx(1)


@pytest.mark.oracle
def test_one_rank_of_two_is_listed_with_sizes_but_not_matched(real_events):
    events = real_events("kineto-hta", "nccl_parser_config/nccl_data.json.gz")
    table = COLLECTIVES.check(analyze.collectives(events))
    assert len(table) == 21
    assert set(table["note"]) == {"only one rank of the group is loaded"}
    assert table["wait_ns"].isna().all()
    largest = table.loc[table["size_bytes"].idxmax()]
    assert (largest["operation"], largest["group_size"]) == ("all-reduce", 2)
    assert table["size_bytes"].notna().all()


def nccl(rank, start, end, **more):
    row = {"rank": rank, "start_ns": start, "end_ns": end, "kind": "communication"}
    return row | {"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"} | more


def grouped(rank, start, end, **more):
    known = {"group": "0", "group_size": 2, "collective": "allreduce", "dtype": "Float"}
    return nccl(rank, start, end, **(known | {"in_count": 250, "out_count": 250} | more))


def numbers(table):
    return table.sort_values("event")["collective"].tolist()


runs = st.lists(
    st.tuples(st.lists(st.integers(0, 20), min_size=3, max_size=3), st.integers(1, 9)),
    min_size=1,
    max_size=5,
)


@pytest.mark.long
@given(runs, st.sampled_from(["seq", "group", "nothing"]))
def test_waiting_and_transfer_add_up_to_the_time_inside(make_events, some, known):
    rows, clock = [], 0
    for number, (delays, transfer) in enumerate(some):
        end = clock + max(delays) + transfer
        for rank, delay in enumerate(delays):
            recorded = {"seq": {"seq": number}, "group": {}, "nothing": None}[known]
            make = nccl if recorded is None else grouped
            more = {} if recorded is None else {"group_size": 3} | recorded
            rows.append(make(rank, clock + delay, end, **more))
        clock = end + 1
    waits = COLLECTIVE_WAITS.check(analyze.collective_waits(make_events(*rows)))
    assert len(waits) == 3 * len(some)
    assert (waits["wait_ns"] + waits["transfer_ns"] == _inside(rows)).all()
    assert waits.groupby("collective")["wait_ns"].min().eq(0).all(), "the last does not wait"
    for number, (delays, transfer) in enumerate(some):
        mine = waits[waits["collective"] == number].set_index("rank")
        assert mine["wait_ns"].tolist() == [max(delays) - delay for delay in delays]
        assert mine["transfer_ns"].tolist() == [transfer] * 3
        assert set(mine["blamed_rank"]) == {delays.index(max(delays))}
    blamed = analyze.straggler_attribution(waits)
    assert blamed["wait_ns"].sum() == waits["wait_ns"].sum()
    assert blamed["collective_count"].sum() == len(waits)


def _inside(rows):
    per_collective = [rows[first : first + 3] for first in range(0, len(rows), 3)]
    return [row["end_ns"] - row["start_ns"] for three in per_collective for row in three]


@pytest.mark.parametrize(
    ("more", "confidence"),
    [({"seq": 4}, "high"), ({}, "medium"), ({"group": None, "group_size": None}, "low")],
)
def test_the_best_key_at_hand_is_taken(make_events, more, confidence):
    table = analyze.collectives(make_events(grouped(0, 0, 10, **more), grouped(1, 5, 10, **more)))
    assert set(table["confidence"]) == {confidence}
    assert numbers(table) == [0, 0]
    assert table["is_complete"].isna().all() if confidence == "low" else table["is_complete"].all()


def test_sequence_numbers_match_whatever_a_rank_has_lost(make_events):
    events = make_events(
        *(grouped(0, t, t + 5, seq=t) for t in (10, 20, 30)),
        *(grouped(1, t, t + 5, seq=t) for t in (20, 30)),
    )
    assert numbers(analyze.collectives(events)) == [pd.NA, 0, 1, 0, 1]


def test_a_truncated_rank_ends_the_matching_of_its_group_only(make_events):
    events = make_events(
        *(grouped(0, t, t + 5) for t in (10, 20, 30)),
        *(grouped(1, t, t + 5) for t in (10, 20)),
        grouped(0, 40, 45, group="1"),
        grouped(1, 40, 45, group="1"),
    )
    table = analyze.collectives(events)
    assert numbers(table) == [0, 1, pd.NA, 2, 0, 1, 2]
    lost = table[table["collective"].isna()]
    assert lost["note"].str.contains("differ from here on").all()
    assert (lost["confidence"] == "none").all()


def test_steps_bring_a_rank_that_joined_late_back_in_line(make_events):
    events = make_events(
        *(grouped(0, t, t + 5, step=t // 10) for t in (10, 20, 21)),
        *(grouped(1, t, t + 5, step=t // 10) for t in (20, 21)),
    )
    assert numbers(analyze.collectives(events)) == [pd.NA, 0, 1, 0, 1]


@pytest.mark.parametrize(
    "other", [{"collective": "allgather"}, {"dtype": "Half"}, {"in_count": 999}]
)
def test_order_is_not_trusted_where_ranks_disagree(make_events, other):
    events = make_events(
        grouped(0, 0, 5), grouped(0, 10, 15), grouped(1, 0, 5), grouped(1, 10, 15, **other)
    )
    assert numbers(analyze.collectives(events)) == [0, pd.NA, 0, pd.NA]
    same_seq = events.assign(seq=pd.Series([1, 2, 1, 2], dtype="Int64"))
    table = analyze.collectives(same_seq)
    assert numbers(table) == [0, pd.NA, 0, pd.NA]
    assert table["note"].iloc[-1] == "ranks disagree on what has this sequence number"


def test_without_metadata_all_ranks_must_agree_to_the_end(make_events):
    more = make_events(*(nccl(0, t, t + 5) for t in (0, 10)), nccl(1, 0, 5))
    assert analyze.collectives(more)["note"].str.contains("in the number of coll").all()
    other = make_events(nccl(0, 0, 5), nccl(1, 0, 5, name="ncclDevKernel_AllGather_RING_LL"))
    assert analyze.collectives(other)["note"].str.contains("in the order of coll").all()
    silent = make_events(
        nccl(0, 0, 5), nccl(1, 0, 5), {"rank": 2, "start_ns": 0, "kind": "compute"}
    )
    assert analyze.collectives(silent)["collective"].isna().all()


def test_streams_are_matched_by_their_order_not_their_number(make_events):
    events = make_events(
        nccl(0, 0, 5, stream=20), nccl(0, 1, 9, stream=30),
        nccl(1, 1, 9, stream=31), nccl(1, 2, 5, stream=21),
    )  # fmt: skip
    assert numbers(analyze.collectives(events)) == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("collective", "reason"),
    [
        ("wait", "moves no data"),
        ("barrier", "moves no data"),
        ("coalesced", "stands for several collectives"),
        ("send", "its partner is not recorded"),
        ("recv", "its partner is not recorded"),
    ],
)
def test_what_is_no_collective_is_listed_but_not_matched(make_events, collective, reason):
    events = make_events(*(grouped(rank, 0, 5, collective=collective) for rank in (0, 1)))
    table = analyze.collectives(events)
    assert table["collective"].isna().all()
    assert table["note"].str.contains(reason).all()
    assert analyze.collective_waits(events).attrs["left_out"] == {table["note"].iloc[0]: 2}


def test_pairs_inside_a_group_are_not_taken_for_a_collective(make_events):
    pair = {"name": "ncclDevKernel_SendRecv", "collective": None}
    table = analyze.collectives(make_events(*(grouped(rank, 0, 5, **pair) for rank in (0, 1))))
    assert table["note"].tolist() == ["send-receive: its partner is not recorded"] * 2


def test_missing_ranks_make_waits_lower_bounds(make_events):
    events = make_events(*(grouped(rank, rank, 9, group_size=4) for rank in (0, 1)))
    table = analyze.collectives(events)
    assert not table["is_complete"].any()
    assert set(table["note"]) == {"2 of 4 ranks are missing: waits are lower bounds"}
    assert table["wait_ns"].tolist() == [1, 0]
    waits = analyze.collective_waits(events)
    assert analyze.straggler_attribution(waits).empty
    assert analyze.straggler_attribution(waits, complete_only=False)["wait_ns"].tolist() == [1, 0]


def test_ranks_that_cannot_have_waited_are_not_said_to_have(make_events):
    events = make_events(grouped(0, 0, 10), grouped(1, 20, 30))
    table = analyze.collectives(events)
    assert table["wait_ns"].isna().all()
    assert table["blamed_rank"].isna().all()
    assert table["note"].str.contains("clocks disagree").all()
    waits = analyze.collective_waits(events)
    assert waits.empty
    assert sum(waits.attrs["left_out"].values()) == 2


def test_a_rank_with_a_late_clock_is_not_blamed(make_events):
    # Rank 1 is truly last by 5 ns every time; rank 2's clock runs 60 ns ahead.
    late, offset = {0: 0, 1: 5, 2: 0}, {0: 0, 1: 0, 2: 60}
    rows = [
        grouped(rank, at + late[rank] + offset[rank], at + 100 + offset[rank], group_size=3)
        for at in (0, 1_000)
        for rank in range(3)
    ]
    table = analyze.collectives(make_events(*rows))
    assert set(table["blamed_rank"]) == {2}
    assert not table["is_sure"].any()
    assert table["note"].str.contains("clocks disagree, or").all()
    waits = analyze.collective_waits(make_events(*rows))
    assert analyze.straggler_attribution(waits).empty
    assert analyze.straggler_attribution(waits).attrs["left_out"] == {
        "it is not sure who was last": 2
    }
    assert not analyze.straggler_attribution(waits, sure_only=False).empty


def test_on_one_clock_the_last_rank_is_sure(make_events):
    rows = [grouped(rank, 10 * rank, 100 + rank, group_size=3) for rank in range(3)]
    agree = analyze.collectives(make_events(*rows))["is_sure"]
    assert agree.tolist() == [True] * 3


def test_groups_of_one_name_are_told_apart_by_their_members(make_events):
    rows = [grouped(rank, rank // 2 * 100, rank // 2 * 100 + 9) for rank in range(4)]
    events = make_events(*rows)
    table = analyze.collectives(events)
    assert table["note"].str.contains("pass process_groups").all()
    members = ["0,1", "0,1", "2,3", "2,3"]
    groups = pd.DataFrame({"rank": range(4), "group": "0", "members": members}).astype(
        {"rank": "int32"}
    )
    for name in ("description", "backend"):
        groups[name] = "x"
    groups["group_size"] = pd.array([2] * 4, dtype="Int32")
    PROCESS_GROUPS.check(groups)
    assert numbers(analyze.collectives(events, process_groups=groups)) == [0, 0, 1, 1]
    assert len(analyze.collective_waits(events, process_groups=groups)) == 4


@pytest.mark.parametrize(
    ("collective", "counts", "size", "factor"),
    [
        ("allreduce", (250, 250), 1000, 1.0),
        ("_allgather_base", (125, 250), 1000, 0.5),
        ("_reduce_scatter_base", (250, 125), 1000, 0.5),
        ("all_to_all", (250, 250), 1000, 0.5),
        ("broadcast", (250, 250), 1000, 1.0),
        ("reduce", (250, 250), 1000, 1.0),
        ("gather", (125, 250), 1000, None),
    ],
)
def test_sizes_and_bandwidths_are_those_of_nccl_tests(
    make_events, collective, counts, size, factor
):
    more = {"collective": collective, "in_count": counts[0], "out_count": counts[1]}
    table = analyze.collectives(make_events(grouped(0, 0, 40, **more), grouped(1, 20, 40, **more)))
    assert table["size_bytes"].tolist() == [size] * 2
    assert table["algorithm_gb_per_s"].tolist() == [50] * 2, "1000 bytes in 20 ns"
    if factor is None:
        assert table["bus_gb_per_s"].isna().all()
    else:
        assert table["bus_gb_per_s"].tolist() == [50 * factor] * 2


@pytest.mark.parametrize("lost", [{"dtype": None}, {"dtype": "Nibble"}, {"in_count": None}])
def test_a_size_that_is_not_known_stays_missing(make_events, lost):
    table = analyze.collectives(make_events(grouped(0, 0, 9, **lost), grouped(1, 0, 9, **lost)))
    columns = ["size_bytes", "algorithm_gb_per_s", "bus_gb_per_s", "size_imbalance_ratio"]
    assert numbers(table) == [0, 0]
    assert table[columns].isna().all(axis=None)


def test_uneven_exchanges_show_their_imbalance(make_events):
    uneven = [
        grouped(rank, 0, 10, collective="all_to_allv", in_count=count, out_count=count)
        for rank, count in enumerate((100, 300))
    ]
    table = analyze.collectives(make_events(*uneven))
    assert table["size_bytes"].tolist() == [400, 1200]
    assert table["size_imbalance_ratio"].tolist() == [1.5, 1.5]
    assert table["algorithm_gb_per_s"].tolist() == [80, 80]


def test_a_transfer_of_no_time_has_no_rate(make_events):
    table = analyze.collectives(make_events(grouped(0, 5, 5), grouped(1, 5, 5)))
    assert table["algorithm_gb_per_s"].isna().all()


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("allreduce", "all-reduce"),
        ("nccl:all_reduce", "all-reduce"),
        ("allgather_into_tensor_coalesced", "all-gather"),
        ("reduce_scatter_tensor_coalesced", "reduce-scatter"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "all-reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce-scatter"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "send-receive"),
        ("ncclKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclAllGatherRingLLKernel", "all-gather"),
        ("ncclDevKernel_Generic", "unknown"),
        ("nccl:recv 0<-1", "receive"),
        ("void cross_device_reduce_1stage", "all-reduce"),
    ],
)
def test_operations_are_read_from_names_of_every_age(name, operation):
    assert operation_of(name) == operation


def test_without_communication_the_tables_are_empty(make_events):
    for events in (EVENTS.empty(), make_events({"start_ns": 0, "kind": "compute"})):
        assert analyze.collectives(events).empty
        waits = analyze.collective_waits(events)
        assert waits.empty
        assert analyze.straggler_attribution(waits).empty


def test_the_event_of_each_row_can_be_looked_up(make_events):
    events = make_events({"start_ns": 0}, grouped(0, 1, 9), grouped(1, 2, 9)).iloc[1:]
    table = analyze.collectives(events)
    assert events.loc[table["event"], "start_ns"].tolist() == table["start_ns"].tolist()
