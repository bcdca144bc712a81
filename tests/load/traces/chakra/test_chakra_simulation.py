"""Chakra files for simulators: the collectives of the trace, once each, and no file that hangs."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._graph_tasks import chakra_nodes, graph_tasks
from claims._tables import TASK_EDGES, TASKS
from tests.load.traces.chakra.chakra_files import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COLLECTIVE,
    COMPUTE,
    REDUCE_SCATTER,
    attributes_of,
    nodes_of,
    simulate,
)
from tests.plot.conftest import build
from workbench import analyze, load
from workbench.tables import DEPENDENCIES, EVENTS, NODES, PROCESS_GROUPS

NUMBERS = {
    "all-reduce": ALL_REDUCE, "all-gather": ALL_GATHER, "reduce-scatter": REDUCE_SCATTER,
    "all-to-all": ALL_TO_ALL,
}  # fmt: skip


def collectives_of(files):
    """Count the collectives in files, and their bytes, by type."""
    count, size = Counter(), Counter()
    for path in files:
        for node in nodes_of(path):
            if node.type == COLLECTIVE:
                told = attributes_of(node)
                count[told["comm_type"]] += 1
                size[told["comm_type"]] += told["comm_size"]
    return count, size


def node(number, rank=0, **more):
    plain = {"rank": rank, "node": number, "name": f"op{number}", "type": "COMP_NODE"}
    return plain | {"dur_ns": 5_000, "is_cpu": False, "start_ns": 1_000 * number} | more


def collective(number, rank=0, **more):
    plain = {"type": "COMM_COLL_NODE", "collective": "all_reduce", "size_bytes": 64}
    return node(number, rank) | plain | more


def written(tmp_path, nodes, edges=(), **options):
    needed = [
        {"rank": rank, "node": of, "needs": needs, "edge": "data"} for rank, of, needs in edges
    ]
    tables = build(NODES, nodes), build(DEPENDENCIES, needed)
    return load.write_chakra(tables, tmp_path / "job", **options)


def graph_of(trace, *, is_joined=False):
    matched = analyze.collectives(trace.events) if is_joined else None
    graph = analyze.execution_graph(trace.events, collectives=matched)
    tasks = graph_tasks(trace.events, graph)
    return graph, chakra_nodes(trace.events, tasks.tasks, tasks.edges)


def test_the_lags_of_a_collective_are_no_collectives(tmp_path):
    made, tasks = [], []
    for number in range(12):
        made.append(
            {"rank": 0, "start_ns": 100 * number, "dur_ns": 50, "name": "ncclDevKernel_AllReduce",
             "category": "kernel", "kind": "communication", "stream": 7, "group": "dp",
             "collective": "allreduce", "in_count": 10, "out_count": 10, "dtype": "Float"}
        )  # fmt: skip
        for at, category in enumerate(("launch", "stream order", "kernel")):
            tasks.append(
                {"task": 3 * number + at, "rank": 0, "event": number, "name": category,
                 "category": category, "start_ns": 100 * number, "dur_ns": 10,
                 "stream": 7 if at == 2 else None}
            )  # fmt: skip
    edges = [{"src": at, "dst": at + 1, "kind": "launch", "is_inferred": False} for at in range(35)]
    tables = chakra_nodes(build(EVENTS, made), build(TASKS, tasks), build(TASK_EDGES, edges))
    files = load.write_chakra(tables, tmp_path / "job")
    assert collectives_of(files) == ({ALL_REDUCE: 12}, {ALL_REDUCE: 480})
    assert simulate(files, files.groups) is not None


@pytest.mark.parametrize(
    ("operation", "put_in", "taken_out", "size"),
    [
        ("_allgather_base", 100, 800, 200),
        ("_allgather_base", None, 800, 200),
        ("_reduce_scatter_base", 800, 100, 1600),
        ("all_to_all", 400, 400, 800),
        ("allreduce", 300, 300, 600),
    ],
)
def test_sizes_are_those_of_the_tensors_that_one_rank_puts_in(
    tmp_path, operation, put_in, taken_out, size
):
    kernel = {
        "rank": 0, "start_ns": 0, "dur_ns": 9, "name": "ncclDevKernel_Generic", "dtype": "BFloat16",
        "category": "kernel", "kind": "communication", "stream": 7, "collective": operation,
        "group_size": 8, "in_count": put_in, "out_count": taken_out,
    }  # fmt: skip
    task = {"task": 0, "rank": 0, "event": 0, "name": "x", "category": "kernel", "stream": 7}
    tables = chakra_nodes(
        build(EVENTS, [kernel]),
        build(TASKS, [task | {"start_ns": 0, "dur_ns": 9}]),
        build(TASK_EDGES, []),
    )
    _, sizes = collectives_of(load.write_chakra(tables, tmp_path / "job"))
    assert list(sizes.values()) == [size]


@pytest.mark.slow
@pytest.mark.oracle
def test_the_demo_has_each_communication_kernel_once_with_its_bytes(fleet_demo, tmp_path):
    trace = load.traces(fleet_demo, progress=False)
    graph, tables = graph_of(trace, is_joined=True)
    files = load.write_chakra(tables, tmp_path / "job", process_groups=trace.process_groups)
    kernels = trace.events[(trace.events["kind"] == "communication").to_numpy()]
    operation = {
        "_allgather_base": ALL_GATHER, "_reduce_scatter_base": REDUCE_SCATTER,
        "all_to_all": ALL_TO_ALL, "allreduce": ALL_REDUCE,
    }  # fmt: skip
    number = kernels["collective"].astype(str).map(operation)
    size = kernels["in_count"] * kernels["dtype"].astype(str).map({"BFloat16": 2, "Float": 4})
    count, sizes = collectives_of(files)
    assert count.total() == len(kernels) == 2_016
    assert count == number.value_counts().to_dict()
    assert sizes == size.astype("int64").groupby(number).sum().to_dict()
    groups = json.loads(files.groups.read_text())
    assert groups == {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7], "3": list(range(8))}
    assert files.quality.empty
    ends = simulate(files, files.groups)
    assert max(ends.values()) == pytest.approx(analyze.replay(graph).max(), rel=0.02)


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.parametrize("is_joined", [False, True], ids=["ranks alone", "ranks joined"])
def test_a_real_job_of_8_ranks_takes_as_long_as_its_replay(dlrm, tmp_path, is_joined):
    graph, tables = graph_of(load.traces(dlrm, progress=False), is_joined=is_joined)
    assert (tables[1].attrs["left_out"]["edges between ranks"] > 0) == is_joined
    files = load.write_chakra(tables, tmp_path / "job")
    ends = simulate(files)
    # ASTRA-sim itself took 20.909 ms for this job.
    assert max(ends.values()) == pytest.approx(20_909_000, rel=1e-3)
    assert max(ends.values()) == pytest.approx(analyze.replay(graph).max(), rel=0.02)
    assert files.quality["count"].tolist() == [24]
    assert files.quality["what"].str.contains("collectives whose size was not recorded").all()


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "ranks", "took_ns"),
    [
        ("all_reduce", 4, 26_746), ("all_gather", 4, 19_242), ("reduce_scatter", 4, 13_630),
        ("all_to_all", 4, 26_404), ("all_reduce", 8, 57_426), ("all_gather", 8, 44_058),
        ("reduce_scatter", 8, 28_950), ("all_to_all", 8, 114_000), ("all_reduce", 16, 117_898),
        ("all_gather", 16, 93_690), ("reduce_scatter", 16, 59_158), ("all_to_all", 16, 469_978),
    ],
)  # fmt: skip
def test_microbenchmarks_are_those_of_astra_sim(tmp_path, name, ranks, took_ns):
    """ASTRA-sim 518bd51, HGX-H100-validated, took these times for its own files of 1 MiB."""
    size = {"collective": name, "size_bytes": 1 << 20}
    files = written(tmp_path, [collective(0, rank, **size) for rank in range(ranks)])
    (made,) = nodes_of(files[0])
    told = attributes_of(made)
    told.pop("workbench_row", None)
    number = NUMBERS[name.replace("_", "-")]
    assert told == {"is_cpu_op": False, "comm_type": number, "comm_size": 1 << 20}
    assert files.groups is None
    assert max(simulate(files).values()) == pytest.approx(took_ns, rel=0.04)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"size_bytes": None}, "collectives whose size was not recorded"),
        ({"size_bytes": 0}, "collectives whose size was not recorded"),
        ({"collective": "reduce"}, "collectives of a kind that simulators do not model"),
        ({"collective": "send"}, "sends and receives, whose partner is not in the tables"),
        ({"type": "COMM_RECV_NODE", "collective": None}, "sends and receives, whose partner"),
    ],
)
def test_what_would_stop_a_simulator_is_compute_of_its_measured_time(tmp_path, more, reason):
    nodes = [collective(1, dur_ns=70_000, **more), node(2)]
    files = written(tmp_path, nodes, [(0, 2, 1)])
    first, _ = nodes_of(files[0])
    assert (first.type, first.duration_micros) == (COMPUTE, 70)
    assert simulate(files, files.groups) == {0: 75_000}
    assert files.quality[["finding", "count"]].to_numpy().tolist() == [["repaired", 1]]
    assert reason in files.quality["what"].iloc[0]
    assert reason in repr(files)
    back = load.traces(files, progress=False).nodes
    assert back["type"].iloc[0] == nodes[0]["type"]


def test_communication_of_a_host_only_trace_does_not_hold_up_what_needs_it(tmp_path):
    nodes = [
        entry
        for rank in (0, 1)
        for entry in (
            collective(1, rank, type="collective", is_cpu=True, group="0"),
            node(2, rank, type="cpu_op", is_cpu=None),
        )
    ]
    files = written(tmp_path, nodes, [(rank, 2, 1) for rank in (0, 1)])
    told = [attributes_of(entry) for entry in nodes_of(files[0])]
    assert [entry["is_cpu_op"] for entry in told] == [False, True]
    assert simulate(files, files.groups) is not None
    back = load.traces(files, progress=False).nodes
    assert back["is_cpu"].astype(object).where(back["is_cpu"].notna(), None).tolist() == [
        True, None, True, None,
    ]  # fmt: skip


def test_groups_of_one_name_and_other_members_have_numbers_of_their_own(tmp_path):
    nodes = [
        entry
        for rank in range(4)
        for entry in (collective(1, rank, group="tp"), collective(2, rank, group="7"))
    ]
    described = [
        {"rank": rank, "group": "tp", "members": "0,1" if rank < 2 else "2,3"} for rank in range(4)
    ]
    files = written(tmp_path, nodes, process_groups=build(PROCESS_GROUPS, described))
    assert json.loads(files.groups.read_text()) == {"1": [0, 1], "2": [2, 3], "7": [0, 1, 2, 3]}
    names = [[attributes_of(entry)["pg_name"] for entry in nodes_of(path)] for path in files]
    assert names == [["1", "7"], ["1", "7"], ["2", "7"], ["2", "7"]]
    assert simulate(files, files.groups) is not None
    found = files.quality[["finding", "what", "count"]].to_numpy().tolist()
    assert found == [["assumed", "members of process groups: the ranks that use the name", 4]]
    back = load.traces(tmp_path, progress=False)
    assert back.nodes["group"].astype(str).tolist() == ["tp", "7"] * 4
    assert back.ranks["rank"].tolist() == [0, 1, 2, 3]
    assert set(back.quality["finding"]) == {"read", "skipped by design"}


@pytest.mark.parametrize(
    ("ranks", "second", "found"),
    [
        ((0,), 64, "process groups with ranks whose collectives are not here"),
        ((0, 1), 65, "groups whose ranks do not have the same collectives and sizes"),
    ],
)
def test_ranks_that_do_not_fit_each_other_are_told(tmp_path, ranks, second, found):
    nodes = [collective(1, rank, group="1", size_bytes=second if rank else 64) for rank in ranks]
    described = [{"rank": rank, "group": "1", "members": "0,1"} for rank in ranks]
    files = written(tmp_path, nodes, process_groups=build(PROCESS_GROUPS, described))
    assert simulate(files, files.groups) is None
    assert files.quality["what"].str.startswith(found).tolist() == [True]


rows_of_both = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["cpu_op", "collective", "COMM_COLL_NODE", "COMM_SEND_NODE"]),
        "dur_ns": st.none() | st.integers(0, 10**6),
        "collective": st.sampled_from(
            [None, "all_reduce", "all_to_allv", "all_gather", "barrier", "gather", "recv", "odd"]
        ),
        "group": st.sampled_from([None, "0", "1", "pp", "-1", "4294967296"]),
        "size_bytes": st.none() | st.integers(0, 2**40),
        "is_cpu": st.sampled_from([None, True, False]),
    }
)


@pytest.mark.long
@given(st.lists(rows_of_both, min_size=1, max_size=6))
def test_ranks_that_do_the_same_always_finish(tmp_path_factory, rows):
    nodes = [node(at, rank) | row for rank in (0, 1) for at, row in enumerate(rows)]
    edges = [(rank, at, at - 1) for rank in (0, 1) for at in range(1, len(rows))]
    files = written(tmp_path_factory.mktemp("chakra"), nodes, edges)
    groups = json.loads(files.groups.read_text()) if files.groups else {}
    for entry in nodes_of(files[0]):
        told = attributes_of(entry)
        if entry.type == COLLECTIVE:
            assert told["comm_size"] > 0
            assert not told["is_cpu_op"]
            assert "pg_name" not in told or int(told["pg_name"]) > 0
            assert told.get("pg_name", "1") in groups or "pg_name" not in told
    assert simulate(files, files.groups) is not None


def pair(rank, other, **more):
    members = f"{min(rank, other)},{max(rank, other)}"
    return {"rank": rank, "group": "pp", "group_size": 2, "members": members} | more


def message(number, rank, kind, **more):
    return node(number, rank, type=f"COMM_{kind}_NODE", group="pp", size_bytes=64) | more


def messages_of(files):
    return {
        int(path.name.split(".")[-2]): [
            tuple(attributes_of(n).get(f"comm_{name}") for name in ("src", "dst", "tag", "size"))
            for n in nodes_of(path)
            if n.type != COMPUTE
        ]
        for path in files
    }


def test_messages_in_a_group_of_two_have_ranks_and_a_tag(tmp_path):
    rows = [
        message(1, 0, "SEND"), message(2, 0, "SEND", size_bytes=32), message(3, 0, "RECV"),
        message(7, 5, "RECV"), message(8, 5, "SEND"), message(9, 5, "RECV", size_bytes=32),
    ]  # fmt: skip
    groups = build(PROCESS_GROUPS, [pair(0, 5), pair(5, 0)])
    files = written(tmp_path, rows, process_groups=groups)
    assert messages_of(files) == {
        0: [(0, 5, 0, 64), (0, 5, 1, 32), (5, 0, 0, 64)],
        5: [(0, 5, 0, 64), (5, 0, 0, 64), (0, 5, 1, 32)],
    }
    assert files.quality.empty
    again = load.traces(tmp_path, progress=False).nodes
    assert again["group"].tolist() == ["pp"] * 6
    assert set(again["type"]) == {"COMM_SEND_NODE", "COMM_RECV_NODE"}


@pytest.mark.parametrize("other_side", [[], [message(1, 5, "RECV", size_bytes=65)]])
def test_a_message_that_the_other_side_does_not_expect_would_hang_and_becomes_compute(
    tmp_path, other_side
):
    rows = [message(1, 0, "SEND"), node(2, 5), *(row | {"node": 3} for row in other_side)]
    groups = build(PROCESS_GROUPS, [pair(0, 5), pair(5, 0)])
    files = written(tmp_path, rows, process_groups=groups)
    assert messages_of(files) == {0: [], 5: []}
    assert files.quality["what"].str.contains("partner").all()
    assert len(files.quality)
