"""Graphs of points become tasks, tasks become graphs, and both take as long."""

import pytest
from hypothesis import HealthCheck, given, settings

from claims._graph_tasks import chakra_nodes, graph_tasks
from claims._tables import TASK_EDGES, TASKS
from workbench import analyze, load

COMPILES_ONCE = settings(suppress_health_check=[HealthCheck.too_slow])
REAL = [
    ("kineto-hta", "nccl_parser_config/nccl_data.json.gz"),
    ("kineto-hta", "trace_diff/control/control.json.gz"),
    ("kineto-h100", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"),
]


@pytest.mark.long
def test_tasks_take_as_long_as_the_graph_they_come_from(make_events, traces, task_ends):
    @COMPILES_ONCE
    @given(traces(is_orderly=True))
    def hold(rows):
        events = make_events(*rows)
        graph = analyze.execution_graph(events)
        end = task_ends(graph_tasks(events, graph)).max()
        work = analyze.replay(graph)[graph.gpu_start + 1].max()
        assert work <= end <= analyze.replay(graph).max()

    hold()


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.parametrize(("dataset", "file"), REAL)
def test_real_graphs_survive_as_tasks_and_as_chakra_files(
    real_events, task_ends, dataset, file, tmp_path
):
    events = real_events(dataset, file)
    graph = analyze.execution_graph(events)
    result = graph_tasks(events, graph)
    TASKS.check(result.tasks)
    TASK_EDGES.check(result.edges)
    assert task_ends(result).max() == pytest.approx(analyze.replay(graph).max(), rel=2e-4)
    nodes, dependencies = chakra_nodes(events, result.tasks, result.edges)
    (path,) = load.write_chakra((nodes, dependencies), tmp_path / "graph")
    read = load.traces(path, progress=False)
    assert len(read.nodes) == len(result.tasks)
    assert len(read.dependencies) == len(dependencies)
    assert read.nodes["dur_ns"].sum() == result.tasks["dur_ns"].sum()


@pytest.mark.slow
@pytest.mark.oracle
def test_ranks_wait_for_each_other_in_tasks_as_they_do_in_the_graph(dlrm, fleet_demo, task_ends):
    for path in (dlrm, fleet_demo):
        events = load.traces(path, progress=False).events
        graph = analyze.execution_graph(events, collectives=analyze.collectives(events))
        result = graph_tasks(events, graph)
        assert task_ends(result).max() == analyze.replay(graph).max()
        kernels = events.index[(events["kind"] == "communication").to_numpy()]
        work = result.tasks[result.tasks["stream"].notna()]
        assert set(kernels) <= set(work["event"])
        assert work["event"].is_unique
