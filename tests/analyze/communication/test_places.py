"""Collectives by place: what waits is not slow, and a node is judged by its fastest group."""

import sqlite3
from dataclasses import replace
from itertools import combinations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import make
from tests.analyze.communication.test_collective_bandwidth import kernels, table_of
from tests.analyze.findings.jobs import GEMM, MS, START, launched, trace
from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import RANK_PLACES, RANKS

NODES, PER_NODE = 4, 2


def places_of(nodes=NODES, *, rails=True, per_switch=2):
    rows = [
        (rank, f"gpu-{rank // PER_NODE}", rank % PER_NODE if rails else None,
         f"leaf-{rank // PER_NODE // per_switch}", "topology file")
        for rank in range(nodes * PER_NODE)
    ]  # fmt: skip
    return RANK_PLACES.of(rows)


PLACES = places_of()
ONE_SWITCH = PLACES.assign(switch="leaf-0")
PAIRS = [
    [a * PER_NODE + rail, b * PER_NODE + rail]
    for rail in range(PER_NODE)
    for a, b in combinations(range(NODES), 2)
]


def run(groups, rate=lambda members: 40.0, **same):
    rows = [
        row
        for number, members in enumerate(groups)
        for row in kernels(number, members, gb_per_s=rate(members), **same)
    ]
    return table_of(rows)


def with_node(node, slow):
    return lambda members: slow if node in {rank // PER_NODE for rank in members} else 40.0


def test_the_links_of_a_late_rank_are_not_slow_and_those_of_a_quiet_node_are():
    """Naively, from the durations of kernels, the node that waits for the late rank is slow."""
    collectives = run(PAIRS, with_node(1, 30.0))
    # Rank 6, on node 3, is late by 100 ms: the other member of each of its groups waits.
    late = collectives.groupby("collective")["rank"].transform(lambda ranks: 6 in set(ranks))
    waits = late & (collectives["rank"] != 6)
    collectives["dur_ns"] += waits.astype("int64") * 100_000_000
    naive = (collectives["size_bytes"] / collectives["dur_ns"]).astype(float)
    by_node = naive.groupby(collectives["rank"] // PER_NODE).mean()
    assert by_node.idxmin() != 1
    bandwidth = analyze.collective_bandwidth(collectives, places=ONE_SWITCH)
    links = analyze.slow_links(bandwidth, places=ONE_SWITCH)
    assert set(links.loc[links["suspect"] != "", "node_name"]) == {"gpu-1"}
    pairs = analyze.place_bandwidth(bandwidth, places=ONE_SWITCH)
    is_slow = (pairs["node"] == "gpu-1") | (pairs["other_node"] == "gpu-1")
    assert pairs.loc[is_slow, "best_ratio"].tolist() == [0.75] * 3
    assert pairs.loc[~is_slow, "best_ratio"].tolist() == [1.0] * 3
    assert (pairs["doubt"] == "").all()


def test_a_pair_that_is_only_seen_among_many_nodes_is_doubted():
    groups = [[rank for rank in range(8) if rank % PER_NODE == rail] for rail in range(PER_NODE)]
    bandwidth = analyze.collective_bandwidth(run(groups), places=PLACES)
    table = analyze.place_bandwidth(bandwidth, places=PLACES)
    assert len(table) == 6
    assert set(table["doubt"]) == {"only seen in groups of 4 nodes or more"}


@pytest.mark.parametrize(
    ("members", "scope"),
    [
        ([0, 1], "one node"), ([0, 2], "one rail"), ([0, 3], "several rails"),
        ([0, 1, 2, 3], "several rails"), ([2, 4], "across switches"),
    ],
)  # fmt: skip
def test_a_collective_has_the_scope_of_the_links_it_needs(members, scope):
    table = analyze.collective_scopes(run([members]), places=PLACES)
    assert table["scope"].tolist() == [scope]


def test_without_rails_groups_of_several_nodes_are_only_between_nodes():
    table = analyze.collective_scopes(run([[0, 2]]), places=places_of(rails=False))
    assert table["scope"].tolist() == ["between nodes"]
    # By number alone, rank r is on rail r modulo the ranks of a node.
    counted = analyze.collective_scopes(run([[0, 2]]), gpus_per_node=PER_NODE)
    assert counted["scope"].tolist() == ["one rail"]


groups_of_ranks = st.lists(
    st.lists(st.integers(0, 7), min_size=2, max_size=8, unique=True).map(sorted), max_size=8
)


@pytest.mark.long
@given(groups_of_ranks, st.lists(st.integers(0, 10**9), min_size=64, max_size=64))
def test_scopes_add_up_to_the_kernel_time_and_count_every_collective(groups, waits):
    collectives = run(groups)
    collectives["dur_ns"] += pd.Series(waits[: len(collectives)], dtype="int64")
    least = collectives.groupby("collective")["dur_ns"].transform("min")
    collectives["transfer_min_ns"] = least.astype("Int64")
    table = analyze.collective_scopes(collectives, places=PLACES)
    assert table["kernel_ns"].sum() == collectives["dur_ns"].sum()
    assert table["collective_count"].sum() == len(groups)
    assert table["transfer_ns"].sum() == collectives["transfer_min_ns"].sum()
    assert (table["transfer_ns"] <= table["kernel_ns"]).all()


@pytest.mark.long
@given(groups_of_ranks, st.lists(st.floats(1, 100), min_size=8, max_size=8))
def test_a_pair_of_nodes_equals_the_best_group_by_brute_force(groups, rates):
    rows = [
        row
        for number, (members, rate) in enumerate(zip(groups, rates, strict=False))
        for row in kernels(number, members, gb_per_s=rate)
    ]
    bandwidth = analyze.collective_bandwidth(table_of(rows), places=PLACES)
    table = analyze.place_bandwidth(bandwidth, places=PLACES)
    truth = {}
    for row in bandwidth.itertuples():
        nodes = sorted({int(rank) // PER_NODE for rank in row.members.split(",")})
        for a, b in combinations(nodes, 2) if len(nodes) > 1 else [(nodes[0], nodes[0])]:
            key = (f"gpu-{a}", f"gpu-{b}")
            truth[key] = max(truth.get(key, 0), row.bus_gb_per_s)
    pairs = zip(table["node"], table["other_node"], strict=True)
    assert dict(zip(pairs, table["best_gb_per_s"], strict=True)) == truth


@pytest.mark.long
@given(st.integers(0, NODES - 1), st.floats(0.1, 0.7), st.integers(0, 7))
def test_waiting_for_a_rank_never_changes_which_node_is_suspected(node, share, late):
    collectives = run(PAIRS, with_node(node, 40 * share))
    waits = collectives.groupby("collective")["rank"].transform(lambda ranks: late in set(ranks))
    later = collectives.assign(
        dur_ns=collectives["dur_ns"] + 10**9 * (waits & (collectives["rank"] != late))
    )
    for table in (collectives, later):
        bandwidth = analyze.collective_bandwidth(table, places=ONE_SWITCH)
        links = analyze.slow_links(bandwidth, places=ONE_SWITCH)
        assert set(links.loc[links["suspect"] == "node", "node_name"]) == {f"gpu-{node}"}


def test_scopes_of_a_simulated_job_equal_sql():
    job = make.troubled_job({"slow link": 0.1}, seed=1, ranks=16)
    trace = job.bundle.trace
    collectives = analyze.collectives(trace.events, process_groups=trace.process_groups)
    table = analyze.collective_scopes(collectives, gpus_per_node=4).set_index(
        ["scope", "operation"]
    )
    rows = collectives[["collective", "rank", "operation", "dur_ns", "transfer_min_ns"]]
    with sqlite3.connect(":memory:") as database:
        rows.assign(operation=rows["operation"].astype(str)).astype(
            {"collective": "float64", "transfer_min_ns": "float64"}
        ).to_sql("c", database)
        inside = database.execute(
            "select operation, sum(d), sum(t), count(*) from (select operation, sum(dur_ns) d,"
            " sum(transfer_min_ns) t, min(rank / 4) low, max(rank / 4) high from c"
            " where transfer_min_ns is not null group by collective) where low = high"
            " group by operation"
        ).fetchall()
    assert inside
    for operation, kernel, transfer, count in inside:
        row = table.loc[("one node", operation)]
        assert (row["kernel_ns"], row["transfer_ns"]) == (kernel, int(transfer))
        assert row["collective_count"] == count


def test_a_slow_switch_is_named_where_all_groups_below_it_are_slow():
    groups = [[a * 2 + rail, (a + 1) * 2 + rail] for rail in range(2) for a in range(0, 8, 2)]
    places = places_of(8, per_switch=4)
    rate = lambda members: 10.0 if members[0] < 8 else 40.0  # noqa: E731
    bandwidth = analyze.collective_bandwidth(run(groups, rate), places=places)
    links = analyze.slow_links(bandwidth, places=places)
    named = links[links["suspect"] != ""]
    assert set(named["suspect"]) == {"switch"}
    assert set(named["node_name"]) == {f"gpu-{node}" for node in range(4)}


def ranks_table(sources, hosts=None):
    rows = {
        "rank": range(len(sources)), "rank_source": "trace", "world_size": None, "backend": None,
        "source": sources, "format": "kineto", "clock": "epoch", "first_ns": None, "last_ns": None,
        "event_count": 0, "host": hosts or [None] * len(sources),
    }  # fmt: skip
    return RANKS.of(rows)


def test_hosts_are_read_from_the_trace_and_else_from_the_file_name():
    name = "log/gpu-a_4121.1699999999000000000.pt.trace.json.gz"
    table = analyze.rank_places(ranks_table([name, name, "r2.json"], [None, None, "gpu-b"]))
    assert table["node"].tolist() == ["gpu-a", "gpu-a", "gpu-b"]
    assert table["basis"].str.contains("file name").tolist() == [True, True, False]
    assert table["rail"].isna().all()


@pytest.mark.parametrize("name", ["rank_12.169999999900.pt.trace.json", "worker_12.pt.trace.json",
                                  "gpu-a_4121.json", "trace.json"])  # fmt: skip
def test_a_file_name_without_a_host_is_refused_and_says_what_to_pass(name):
    with pytest.raises(WorkbenchError, match=r"name no host \(ranks \[0\]\); pass places="):
        analyze.rank_places(ranks_table([name]))


def test_a_host_of_its_own_for_every_rank_may_be_a_container():
    table = analyze.rank_places(ranks_table(["a", "b"], ["c0ffee", "beef"]))
    assert table["basis"].str.contains("container").all()


def test_places_without_a_rank_of_the_collectives_are_refused():
    with pytest.raises(WorkbenchError, match=r"no row for ranks \[7\]"):
        analyze.collective_scopes(run([[0, 7]]), places=PLACES.iloc[:7])
    with pytest.raises(WorkbenchError, match="gpus_per_node must be 1 or more"):
        analyze.collective_scopes(run([[0, 7]]), gpus_per_node=0)


def slow_node_job(node=1, factor=2.0, *, late=None, hosts=True, hidden=False, steps=4):
    """Four nodes of two ranks; on each rail every pair of nodes exchanges in turn, 1 ms each.

    Groups of ``node`` take ``factor`` times as long; the rank ``late`` comes 5 ms late each time.
    """
    rows, at = [], START
    for step in range(steps):
        for rank in range(8):
            rows += launched(rank, step, at, 2 * MS, f"{step}.{rank}", GEMM)
            mark = {"rank": rank, "start_ns": at, "dur_ns": MS, "step": step,
                    "name": f"ProfilerStep#{step}", "category": "user_annotation"}  # fmt: skip
            rows.append(mark)
        at += 2 * MS
        for number, members in enumerate(PAIRS):
            is_slow = node in {rank // PER_NODE for rank in members}
            length = round((factor if is_slow else 1.0) * MS)
            wait = 5 * MS if late in members else 0
            for rank in members:
                begin = at + (wait if rank == late else 0)
                rows.append(
                    {"rank": rank, "start_ns": begin, "end_ns": at + wait + length, "step": step,
                     "kind": "communication", "stream": 20, "group": f"g{number}", "seq": step,
                     "name": "ncclDevKernel_AllReduce", "collective": "allreduce",
                     "group_size": 2, "in_count": 1 << 23, "out_count": 1 << 23, "dtype": "Float"}
                )  # fmt: skip
                if hidden:
                    call = f"h{step}.{number}.{rank}"
                    rows += launched(rank, step, begin, wait + length, call, GEMM)
            at += wait + length
    bundle = trace(rows)
    if hosts:
        bundle.trace.ranks["host"] = [f"gpu-{rank // PER_NODE}" for rank in range(8)]
    return bundle


def slow_nodes(bundle):
    answer = analyze.findings(bundle, domains=["communication"])
    return answer.findings, answer.rules.set_index("rule").loc["slow_node"]


def test_the_node_with_slow_links_is_named_and_not_those_that_wait():
    """Naively, by the durations of kernels, the slow node is the fastest: the others wait for it."""
    bundle = slow_node_job(3, late=6)
    events = bundle.trace.events
    own = events[events["kind"] == "communication"]
    naive = own.groupby(own["rank"] // PER_NODE)["dur_ns"].mean()
    assert naive.idxmin() == 3
    table, _ = slow_nodes(bundle)
    (row,) = table.to_dict("records")
    assert row["finding"].startswith("Network links of node gpu-3 are slow")
    assert row["where"] == "gpu-3: ranks 6 to 7"
    assert "at most 50 %" in row["finding"]


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 3), st.floats(1.4, 4.0), st.integers(0, 7))
def test_the_cost_of_a_slow_node_is_counted_by_hand(node, factor, late):
    """A rank of the node is in three pairs per step, each (factor - 1) ms longer than usual."""
    table, _ = slow_nodes(slow_node_job(node, factor, late=late))
    assert [text.split(":")[0] for text in table["where"]] == [f"gpu-{node}"]
    assert table["cost"].iloc[0] == pytest.approx(3 * (factor - 1), rel=0.01)
    assert 0 < table["time_share"].iloc[0] <= 1


def test_without_a_slow_node_that_costs_time_nothing_is_said():
    for bundle in (
        slow_node_job(factor=1.0),
        slow_node_job(factor=1.1),
        slow_node_job(hidden=True),
    ):
        table, answer = slow_nodes(bundle)
        assert table.empty
        assert answer["state"] == "nothing"


def test_without_names_of_nodes_there_are_no_data():
    table, answer = slow_nodes(slow_node_job(hosts=False))
    assert table.empty
    assert (answer["state"], "name no host" in answer["note"]) == ("no data", True)
    bundle = slow_node_job()
    bundle.trace.ranks["host"] = "gpu-0"
    assert "one node" in slow_nodes(bundle)[1]["note"]


def test_nodes_that_always_meet_are_not_told_apart():
    bundle = slow_node_job()
    events = bundle.trace.events
    meets = (events["group"].isin(["g0", "g5", "g6", "g11"])) | (events["kind"] != "communication")
    bundle = replace(bundle, trace=replace(bundle.trace, events=events[meets.fillna(value=True)]))
    (row,) = slow_nodes(bundle)[0].to_dict("records")
    assert "gpu-0 or gpu-1" in row["finding"]
    assert row["confidence"] == "low"
    assert "no trace tells them apart" in row["doubt"]


def test_a_slow_group_of_a_slow_node_is_told_once():
    answer = analyze.findings(slow_node_job()).rules.set_index("rule")
    assert answer.loc["slow_node", "state"] == "found"
    assert answer.loc["slow_group", "note"] in ("", "reported by the rule slow_node")
    assert answer.loc["slow_group", "state"] == "nothing"


def named(**options):
    """Simulate a job of four nodes whose traces name them."""
    job = make.troubled_job(ranks=16, **options)
    job.bundle.trace.ranks["host"] = [f"gpu-{rank // 4}" for rank in range(16)]
    return job


@pytest.mark.parametrize("seed", [1, 2])
def test_the_slow_node_of_a_simulated_job_costs_its_truth_and_a_healthy_one_nothing(seed):
    for troubles in ({"slow link": 0.1}, {}):
        job = named(troubles=troubles, seed=seed)
        table, _ = slow_nodes(job.bundle)
        assert len(table) == len(job.truth)
        for row, truth in zip(table.itertuples(), job.truth.itertuples(), strict=True):
            assert truth.where in row.where
            assert row.cost == pytest.approx(truth.cost, rel=0.2)
