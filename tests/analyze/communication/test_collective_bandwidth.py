"""Bandwidths of a trace against model and peers; a slow link that the naive reading misses."""

from itertools import product

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import make
from workbench import analyze, load
from workbench.errors import TableError, WorkbenchError
from workbench.tables import COLLECTIVES

PER_NODE = 4
MB64 = 64_000_000


def kernels(collective, members, *, operation="all-reduce", size=MB64, gb_per_s=40.0, **same):
    """Make the rows of one collective; the first rank waits, the last one only transfers."""
    n = len(members)
    factor = 2 * (n - 1) / n if operation == "all-reduce" else (n - 1) / n
    dur = size * factor / gb_per_s
    return [
        {
            "collective": collective, "rank": rank, "event": 0, "operation": operation,
            "group": "dp", "group_size": n, "rank_count": n, "is_complete": True, "start_ns": 0,
            "dur_ns": int(dur * (2 if rank == members[0] else 1)), "transfer_min_ns": int(dur),
            "size_bytes": size, "algorithm_gb_per_s": size / dur, "bus_gb_per_s": gb_per_s,
            "confidence": "high", **same,
        }
        for rank in members
    ]  # fmt: skip


def table_of(rows):
    frame = pd.DataFrame(rows, columns=list(COLLECTIVES.columns))
    return COLLECTIVES.cast(frame)


def ranks_on(rail, nodes):
    return [node * PER_NODE + rail for node in nodes]


def job(groups, slow, share=0.5):
    """Run one all-reduce in each group; a group that uses a slow (node, rail) is slowed."""
    rows = []
    for number, members in enumerate(groups):
        used = {divmod(rank, PER_NODE) for rank in members}
        rate = 40.0 * (share if used & slow else 1.0)
        rows += kernels(number, members, gb_per_s=rate)
    return analyze.collective_bandwidth(table_of(rows), gpus_per_node=PER_NODE)


def pairs_of_rows(rail, nodes=4):
    """Give data-parallel groups of a torus: neighbours on both axes of a square of nodes."""
    side = nodes // 2
    return [ranks_on(rail, (a, a + 1)) for a in range(0, nodes, 2)] + [
        ranks_on(rail, (a, a + side)) for a in range(side)
    ]


GROUPS = [members for rail in range(PER_NODE) for members in pairs_of_rows(rail)]


def test_bandwidth_stands_beside_that_of_the_model_and_of_peers():
    rows = kernels(0, [0, 4, 8, 12], gb_per_s=40.0) + kernels(1, [1, 5, 9, 13], gb_per_s=20.0)
    table = analyze.collective_bandwidth(table_of(rows), gpus_per_node=PER_NODE)
    assert table["members"].tolist() == ["0,4,8,12", "1,5,9,13"]
    assert table["node_count"].tolist() == [4, 4]
    assert table["peer_ratio"].tolist() == [1.0, 0.5]
    # One rank per node: the network of 50 GB/s decides, and the node does not.
    network = analyze.network_levels().iloc[1:]
    best = analyze.collective_scaling([4], [MB64], levels=network)["modelled_ns"].min()
    assert table["modelled_gb_per_s"].iloc[0] == pytest.approx(MB64 * 1.5 / best)
    assert table["model_ratio"].iloc[0] == pytest.approx(40 / table["modelled_gb_per_s"].iloc[0])


def test_a_group_that_fills_nodes_is_modelled_with_them():
    rows = kernels(0, list(range(8)), operation="all-gather")
    table = analyze.collective_bandwidth(table_of(rows), gpus_per_node=PER_NODE)
    network = analyze.network_levels().assign(group_count=pd.array([4, 16, 24, None], "Int64"))
    best = analyze.collective_scaling([8], [MB64], collective="all-gather", levels=network)
    assert table["modelled_gb_per_s"].iloc[0] == pytest.approx(best["bus_gb_per_s"].max())


def test_kernels_without_a_match_or_a_size_are_counted_and_missing_ranks_doubted():
    rows = kernels(0, [0, 4], is_complete=False) + kernels(1, [0, 4], size_bytes=None)
    table = analyze.collective_bandwidth(table_of(rows), gpus_per_node=PER_NODE)
    assert table["doubt"].str.contains("ranks of the group are missing").tolist() == [True]
    assert table.attrs["left_out"] == {"no match, size or bus bandwidth": 2}


def suspects_of(table):
    rows = analyze.slow_links(table, gpus_per_node=PER_NODE)
    named = rows[rows["suspect"] != ""]
    return {(row.node, row.rail, row.suspect) for row in named.itertuples()}


def test_the_neighbour_that_is_slow_on_average_is_cleared_by_its_other_group():
    """Both ranks of a slow pair are equally slow; node 1 has a fast group as well, node 0 none."""
    slow = {(0, 2)}
    table = job(GROUPS, slow)
    by_rank = {}
    for row in table.itertuples():
        for rank in map(int, row.members.split(",")):
            by_rank.setdefault(rank, []).append(row.bus_gb_per_s)
    least = min(by_rank, key=lambda rank: (min(by_rank[rank]), -rank))
    assert divmod(least, PER_NODE) == (2, 2), "naively, the slowest group names a neighbour"
    assert suspects_of(table) == {(0, 2, "link")}
    links = analyze.slow_links(table, gpus_per_node=PER_NODE)
    cause = links[(links["node"] == 0) & (links["rail"] == 2)].iloc[0]
    assert cause["best_ratio"] == 0.5
    assert (cause["group_count"], cause["slow_count"], cause["alike_count"]) == (2, 2, 0)


def test_a_node_or_a_rail_is_named_where_all_its_links_are_slow():
    node = {(3, rail) for rail in range(PER_NODE)}
    assert suspects_of(job(GROUPS, node)) == {(3, rail, "node") for rail in range(PER_NODE)}
    # The groups of a rail are compared with those of the others.
    rail = {(node, 1) for node in range(4)}
    assert suspects_of(job(GROUPS, rail)) == {(node, 1, "rail") for node in range(4)}


def test_what_the_same_groups_use_cannot_be_told_apart_and_is_said():
    groups = [ranks_on(rail, range(4)) for rail in range(PER_NODE)]
    table = analyze.slow_links(job(groups, {(2, 3)}), gpus_per_node=PER_NODE)
    named = table[table["suspect"] != ""]
    assert named["rail"].tolist() == [3] * 4
    assert set(named["suspect"]) == {"link or rail"}
    assert set(named["doubt"]) == {"the same groups use 4 other suspects"}


def test_a_link_with_slow_groups_only_is_not_cleared_by_an_explanation():
    groups = [ranks_on(0, pair) for pair in ((0, 1), (0, 2), (3, 4))]
    table = analyze.slow_links(job(groups, {(0, 0)}), gpus_per_node=PER_NODE).set_index("node")
    assert table["suspect"].to_dict() == {0: "link", 1: "", 2: "", 3: "", 4: ""}
    assert table["doubt"].str.contains("it is not cleared").to_dict() == {
        0: False, 1: True, 2: True, 3: False, 4: False,
    }  # fmt: skip


def test_a_group_inside_a_node_tells_of_the_links_inside_it():
    inside = [list(range(node * PER_NODE, (node + 1) * PER_NODE)) for node in range(3)]
    rows = [row for n, members in enumerate(inside)
            for row in kernels(n, members, gb_per_s=300 if n != 1 else 90)]  # fmt: skip
    table = analyze.collective_bandwidth(table_of(rows), gpus_per_node=PER_NODE)
    links = analyze.slow_links(table, gpus_per_node=PER_NODE)
    assert links["suspect"].tolist() == ["inside the node", "", ""]
    assert links["node"].iloc[0] == 1
    assert links["rail"].isna().all()


def test_small_collectives_and_groups_without_peers_tell_nothing():
    alone = table_of(kernels(0, [0, 4]))
    small = table_of(kernels(0, [0, 4], size=1_000) + kernels(1, [1, 5], size=1_000, gb_per_s=1))
    for rows in (alone, small):
        table = analyze.collective_bandwidth(rows, gpus_per_node=PER_NODE)
        assert analyze.slow_links(table, gpus_per_node=PER_NODE).empty


def test_a_group_that_is_slow_though_all_its_links_are_used_by_fast_ones_stays_unexplained():
    rows = [row for n, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)])
            for row in kernels(n, ranks_on(0, (a, b)), gb_per_s=10 if n == 0 else 40)]  # fmt: skip
    table = analyze.collective_bandwidth(table_of(rows), gpus_per_node=PER_NODE)
    links = analyze.slow_links(table, gpus_per_node=PER_NODE)
    assert (links["suspect"] == "").all()
    assert links.attrs["unexplained"] == ["0,4"]


places = st.sampled_from(list(product(range(4), range(PER_NODE))))


@pytest.mark.long
@given(st.sets(places, max_size=3), st.permutations(GROUPS))
def test_a_truly_slow_link_is_never_cleared_and_every_slow_group_is_explained(slow, groups):
    table = job(groups, slow)
    links = analyze.slow_links(table, gpus_per_node=PER_NODE)
    assert links.attrs["unexplained"] == []
    named = {(row.node, row.rail) for row in links[links["suspect"] != ""].itertuples()}
    for members in (group for group in groups if {divmod(r, PER_NODE) for r in group} & slow):
        assert {divmod(rank, PER_NODE) for rank in members} & named
    cleared = links[links["slow_count"] < links["group_count"]]
    assert not {(row.node, row.rail) for row in cleared.itertuples()} & slow
    if len(slow) == 1:
        assert named == slow


def test_the_bundled_job_has_no_slow_link(fleet_demo):
    trace = load.traces(fleet_demo / "traces", progress=False)
    collectives = analyze.collectives(trace.events, process_groups=trace.process_groups)
    table = analyze.collective_bandwidth(collectives, gpus_per_node=4)
    assert set(table["operation"]) >= {"all-gather", "all-to-all"}
    assert table.loc[table["size_bytes"] > 1e6, "model_ratio"].between(0.3, 1).all()
    assert (analyze.slow_links(table, gpus_per_node=4)["suspect"] == "").all()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_node_with_a_slow_link_of_a_simulated_job_is_found(seed):
    job = make.troubled_job({"slow link": 0.1}, seed=seed, ranks=16)
    trace = job.bundle.trace
    collectives = analyze.collectives(trace.events, process_groups=trace.process_groups)
    table = analyze.collective_bandwidth(collectives, gpus_per_node=4)
    links = analyze.slow_links(table, gpus_per_node=4)
    (node,) = links.loc[links["suspect"] == "inside the node", "node"]
    assert job.truth["where"].tolist() == [f"ranks {4 * node} to {4 * node + 3}"]


def test_what_makes_no_sense_is_refused():
    table = job(GROUPS, set())
    with pytest.raises(WorkbenchError, match="gpus_per_node must be 1 or more, not 0"):
        analyze.collective_bandwidth(table_of(kernels(0, [0, 1])), gpus_per_node=0)
    with pytest.raises(WorkbenchError, match="slow_ratio must be between 0 and 1"):
        analyze.slow_links(table, slow_ratio=1.5)
    with pytest.raises(TableError, match="not a valid 'collective_bandwidth' table"):
        analyze.slow_links(table.drop(columns="members"))
