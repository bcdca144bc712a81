"""Replays beside the job, and execution traces as graphs: real traces, then laws and refusals."""

import numpy as np
import pandas as pd
import pytest

from tests.plot.conftest import build
from workbench import analyze, load, tables
from workbench.errors import PerformanceModelError


@pytest.fixture(scope="module")
def dlrm_rank_0(real_data):
    folder = real_data("kineto-dlrm-8rank")
    trace = load.traces(folder / "dlrm_pytorch_et.tar.gz", progress=False)
    events = load.traces(folder / "dlrm_kineto.tar.gz", progress=False).events
    return trace, events


@pytest.mark.slow
def test_nearly_every_node_of_dlrm_finds_its_event(dlrm_rank_0):
    trace, events = dlrm_rank_0
    times = analyze.node_times(trace.nodes, events)
    assert (times["joined_by"] != "none").sum() == 13_376
    named = events["name"].astype(str).reindex(times["event"].dropna().astype("int64"))
    own = trace.nodes["name"].astype(str)[times["event"].notna().to_numpy()]
    assert named.tolist() == own.tolist()
    graph = analyze.trace_tasks(trace.nodes, trace.dependencies, times=times)
    assert graph.cyclic == ()
    assert len(graph.tasks) == len(trace.nodes)


@pytest.mark.slow
def test_a_trace_of_another_run_is_not_joined(real_data):
    folder = real_data("kineto-resnet")
    nodes = load.traces(folder / "resnet_et.json.gz", progress=False).nodes
    events = load.traces(folder / "resnet_kineto.json.gz", progress=False).events
    times = analyze.node_times(nodes, events)
    assert (times["joined_by"] == "none").all()
    assert times["host_ns"].isna().all()


def call(number, name="aten::mm", device="cuda", **more):
    plain = {"rank": 0, "node": number, "name": name, "device": device, "arguments": "[]"}
    return plain | {"outputs": "[]", "is_replayed": True} | more


def ran(number, name="aten::mm", device="cuda", **more):
    return {"rank": 0, "node": number, "name": name, "device": device, "run_count": 3} | more


def took(number, host=None, gpu=None):
    plain = {"rank": 0, "node": number, "event_count": 1, "joined_by": "id"}
    return plain | {"host_ns": host, "gpu_ns": gpu}


def compare(calls, replayed, original, function=analyze.operator_benchmark):
    return function(
        build(tables.OPERATOR_CALLS, calls),
        build(tables.OPERATOR_REPLAY, replayed),
        build(tables.NODE_TIMES, original),
    )


def test_on_a_gpu_the_time_of_its_work_is_compared():
    table = compare(
        [call(1), call(2)],
        [ran(1, host_ns=9e9, gpu_ns=150.0), ran(2, host_ns=9e9, gpu_ns=150.0)],
        [took(1, host=5.0, gpu=100.0), took(2, host=5.0, gpu=100.0)],
    )
    assert table["replay_ratio"].tolist() == [1.5]
    assert table["note"].tolist() == [""]


def test_a_cpu_replay_of_gpu_work_is_never_compared():
    args = [call(1)], [ran(1, device="cpu", host_ns=9.0)], [took(1, host=5.0, gpu=100.0)]
    table = compare(*args)
    assert table["replay_ratio"].isna().all()
    assert not table["is_comparable"].any()
    assert "ran on cuda in the job and on cpu here" in table["note"].iloc[0]
    assert compare(*args, analyze.operator_coverage)["compared_count"].tolist() == [0]


def test_only_calls_with_both_times_are_compared_and_it_is_said():
    table = compare(
        [call(1, device="cpu"), call(2, device="cpu")],
        [ran(1, device="cpu", host_ns=30.0), ran(2, device="cpu", host_ns=70.0)],
        [took(1, host=10.0)],
    )
    assert table["replay_ratio"].tolist() == [3.0]
    assert table["note"].iloc[0] == (
        "differs 3-fold: the replay does not measure what the job did; 1 of 2 calls are compared"
    )


def test_outcomes_add_up_to_the_whole_job():
    table = compare(
        [call(1), call(2), call(3, "c10d::allreduce_", is_replayed=False, reason="communication")],
        [ran(1, gpu_ns=10.0), ran(2, reason="failed: RuntimeError")],
        [took(1, gpu=10.0), took(2, gpu=20.0), took(3, gpu=70.0)],
        analyze.operator_coverage,
    ).set_index("outcome")
    assert table["call_share"].sum() == pytest.approx(1)
    assert table["original_share"].to_dict() == {
        "replayed": 0.1, "failed: RuntimeError": 0.2, "communication": 0.7,
    }  # fmt: skip


def test_a_replay_of_other_calls_is_refused():
    with pytest.raises(PerformanceModelError, match="node 1 is 'aten::add' there and 'aten::mm'"):
        compare([call(1)], [ran(1, name="aten::add")], [])


def test_nothing_gives_empty_tables():
    for function in (analyze.operator_benchmark, analyze.operator_coverage):
        assert compare([], [], [], function).empty


def trace_node(number, **more):
    plain = {"rank": 0, "node": number, "name": f"op{number}", "type": "cpu_op", "is_cpu": True}
    return plain | more


def graph(nodes, edges=(), **options):
    needed = [
        {"rank": 0, "node": node, "needs": needs, "edge": kind} for node, needs, kind in edges
    ]
    return analyze.trace_tasks(
        build(tables.NODES, nodes), build(tables.DEPENDENCIES, needed), **options
    )


def pairs(found):
    return set(zip(found.edges["src"], found.edges["dst"], strict=True))


def test_a_caller_keeps_the_time_of_its_own_and_ends_with_its_last_call():
    found = graph(
        [trace_node(1, dur_ns=100), trace_node(2, parent=1, dur_ns=30),
         trace_node(3, parent=1, dur_ns=50), trace_node(4, dur_ns=7)],
        [(4, 1, "data"), (3, 1, "data")],
    )  # fmt: skip
    assert found.tasks["dur_ns"].tolist() == [20, 30, 50, 7]
    assert pairs(found) == {(0, 1), (1, 2), (2, 3)}


def test_control_edges_of_converters_are_callers_and_no_dependencies():
    chakra = [
        trace_node(1, type="COMP_NODE", dur_ns=5, record_function=1),
        trace_node(2, type="COMP_NODE", dur_ns=5, record_function=2),
        trace_node(3, type="COMP_NODE", dur_ns=9, is_cpu=False),
    ]
    found = graph(chakra, [(2, 1, "control"), (3, 2, "control"), (1, 2, "data")])
    assert found.cyclic == ()
    assert found.tasks["dur_ns"].tolist() == [5, 5, 9]
    assert "3" not in found.edges["kind"].astype(str).tolist()
    assert any("taken for callers" in doubt for doubt in found.doubts)


def test_circles_are_reported_with_the_ids():
    nodes = [trace_node(10, is_cpu=False), trace_node(20, is_cpu=False)]
    found = graph(nodes, [(10, 20, "data"), (20, 10, "data")])
    assert found.cyclic == (0, 1)
    assert "wait in circles: 10, 20" in found.doubts[-1]
    assert "2 of 2 nodes have no duration" in found.doubts[0]


def test_an_unknown_meaning_of_control_edges_is_refused():
    with pytest.raises(ValueError, match="control must be 'callers' or 'dependencies'"):
        graph([trace_node(1)], control="both")


def test_profiler_work_becomes_nodes_with_collectives_and_sizes(tmp_path):
    events = build(
        tables.EVENTS,
        [
            {"rank": 0, "start_ns": 0, "dur_ns": 9, "name": "aten::mm", "category": "cpu_op"},
            {"rank": 0, "start_ns": 9, "dur_ns": 5, "name": "gemm", "category": "kernel",
             "kind": "compute", "stream": 7},
            {"rank": 0, "start_ns": 14, "dur_ns": 6, "name": "ncclDevKernel", "category": "kernel",
             "kind": "communication", "stream": 8, "collective": "allreduce", "group": "dp",
             "in_count": 10, "out_count": 10, "dtype": "Float"},
        ],
    )  # fmt: skip
    made = pd.DataFrame(
        {"task": np.arange(3), "rank": 0, "event": np.arange(3), "name": ["a", "b", "c"],
         "category": "x", "start_ns": [0, 9, 14], "dur_ns": [9, 5, 6], "stream": [None, 7, 8],
         "thread": ["1", None, None]}
    )  # fmt: skip
    edges = pd.DataFrame({"src": [0, 1], "dst": [1, 2], "kind": "launch", "is_inferred": False})
    nodes, needed = analyze.chakra_nodes(
        events, tables.TASKS.cast(made), tables.TASK_EDGES.cast(edges)
    )
    assert nodes["type"].tolist() == ["COMP_NODE", "COMP_NODE", "COMM_COLL_NODE"]
    assert nodes["size_bytes"].iloc[2] == 40
    assert nodes["collective"].iloc[2] == "all_reduce"
    assert nodes["is_cpu"].tolist() == [True, False, False]
    load.write_chakra((nodes, needed), tmp_path / "job")
    back = load.traces(tmp_path, progress=False)
    assert back.nodes["dur_ns"].tolist() == [9, 5, 6]
    assert back.nodes["group"].iloc[2] == "dp"
    with pytest.raises(PerformanceModelError, match="edges are of tasks that do not exist"):
        analyze.chakra_nodes(events, tables.TASKS.cast(made[:1]), tables.TASK_EDGES.cast(edges))
