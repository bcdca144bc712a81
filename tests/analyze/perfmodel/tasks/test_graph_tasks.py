"""Graphs of points become tasks, tasks become graphs, and both take as long."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from workbench import analyze, load
from workbench.errors import PerformanceModelError
from workbench.tables import TASK_EDGES, TASKS, TaskGraph

COMPILES_ONCE = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
REAL = [
    ("kineto-hta", "nccl_parser_config/nccl_data.json.gz"),
    ("kineto-hta", "trace_diff/control/control.json.gz"),
    ("kineto-h100", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"),
]


def test_tasks_take_as_long_as_the_graph_they_come_from(make_events, traces):
    @COMPILES_ONCE
    @given(traces(is_orderly=True))
    def hold(rows):
        events = make_events(*rows)
        graph = analyze.execution_graph(events)
        found = analyze.graph_tasks(events, graph)
        again = analyze.task_graph(found)
        work = analyze.replay(graph)[graph.gpu_start + 1].max()
        assert work <= analyze.replay(again).max() <= analyze.replay(graph).max()

    hold()


@pytest.mark.oracle
@pytest.mark.parametrize(("dataset", "file"), REAL)
def test_real_graphs_survive_as_tasks_and_as_chakra_files(real_events, dataset, file, tmp_path):
    events = real_events(dataset, file)
    graph = analyze.execution_graph(events)
    found = analyze.graph_tasks(events, graph)
    TASKS.check(found.tasks)
    TASK_EDGES.check(found.edges)
    again = analyze.task_graph(found)
    before, after = analyze.replay(graph).max(), analyze.replay(again).max()
    assert after == pytest.approx(before, rel=2e-4)
    nodes, dependencies = analyze.chakra_nodes(events, found.tasks, found.edges)
    (path,) = load.write_chakra((nodes, dependencies), tmp_path / "graph")
    read = load.traces(path, progress=False)
    assert len(read.nodes) == len(found.tasks)
    assert len(read.dependencies) == len(dependencies)
    assert read.nodes["dur_ns"].sum() == found.tasks["dur_ns"].sum()


@pytest.mark.slow
@pytest.mark.oracle
def test_ranks_wait_for_each_other_in_tasks_as_they_do_in_the_graph(dlrm, fleet_demo):
    for path in (dlrm, fleet_demo):
        events = load.traces(path, progress=False).events
        graph = analyze.execution_graph(events, collectives=analyze.collectives(events))
        found = analyze.graph_tasks(events, graph)
        assert analyze.replay(analyze.task_graph(found)).max() == analyze.replay(graph).max()
        kernels = events.index[(events["kind"] == "communication").to_numpy()]
        work = found.tasks[found.tasks["stream"].notna()]
        assert set(kernels) <= set(work["event"])
        assert work["event"].is_unique


def test_tasks_without_times_or_in_a_circle_are_refused(make_events, script):
    trace = script()
    trace.op(0, 60).launch(10, (20, 100, 7))
    events = make_events(*trace.rows)
    found = analyze.graph_tasks(events, analyze.execution_graph(events))
    untimed = found.tasks.assign(dur_ns=found.tasks["dur_ns"].mask(np.ones(len(found.tasks), bool)))
    with pytest.raises(PerformanceModelError, match="none of the tasks has a time"):
        analyze.task_graph(TaskGraph(untimed, found.edges))
    with pytest.raises(PerformanceModelError, match=r"in a circle, e\.g\. 3"):
        analyze.task_graph(dataclasses.replace(found, cyclic=(3, 4)))


@pytest.mark.oracle
def test_an_execution_trace_says_what_its_times_are_worth(real_data):
    trace = load.traces(real_data("chakra-et") / "1.0.2-chakra.0.0.4.tgz", progress=False)
    graph = analyze.task_graph(analyze.trace_tasks(trace.nodes, trace.dependencies))
    assert any("have no time and take none" in doubt for doubt in graph.doubts)
    assert any("times are those of the replay itself" in doubt for doubt in graph.doubts)
