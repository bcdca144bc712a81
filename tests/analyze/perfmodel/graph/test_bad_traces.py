"""Traces that are cut, lie, or lack something: a clear error, or a doubt that is said."""

import numpy as np
import pytest

from workbench import analyze
from workbench.errors import PerformanceModelError, TableError


@pytest.fixture
def trace(script):
    return script()


@pytest.fixture
def graph_of(make_events):
    def build(trace, **options):
        events = make_events(*trace.rows)
        return events, analyze.execution_graph(events, **options)

    return build


def doubt(events, graph):
    return analyze.replay_fidelity(events, graph)["doubt"].iloc[0]


def test_a_record_that_points_the_wrong_way_is_left_out_and_counted(trace, graph_of):
    trace.launch(0, (10, 300, 1))
    record = trace.call("record", 4)
    trace.told(trace.call("wait", 12), 2, 1, record)
    trace.launch(16, (20, 50, 2))  # began long before what it is said to wait for had ended
    _, graph = graph_of(trace)
    assert "inter-stream" not in set(graph.edges["kind"])
    assert graph.build.set_index("step").loc["inter-stream", "left_out_count"] == 1


def test_a_clock_that_is_off_is_a_doubt(trace, graph_of):
    for start in (0, 100, 200):
        trace.launch(start, (start - 10, 5, 7))
    events, graph = graph_of(trace)
    assert "100% of the GPU work begins before its launch: clocks are off" in doubt(events, graph)
    assert analyze.replay(graph).max() == pytest.approx(graph.time_ns.max(), abs=10_000)


def test_records_that_make_streams_wait_for_each_other_are_left_out_and_named(trace, graph_of):
    late = trace.call("record", 50)
    for stream in (1, 2):
        trace.told(trace.call("wait", 10 * stream), stream, 3 - stream, late)
        trace.launch(10 * stream + 3, (100, 1, stream))
    _, graph = graph_of(trace)
    circles = graph.build.set_index("step").loc["circles"]
    assert circles["left_out_count"] == 2
    assert circles["note"].startswith("edges of inter-stream contradict others: kernel on ")
    assert "(row " in circles["note"]
    assert graph.doubts == ("2 edges were dropped as they contradict others",)
    assert analyze.replay(graph).max() == graph.time_ns.max()


def test_launches_whose_work_was_cut_off_are_a_doubt(trace, graph_of):
    trace.launch(0, (10, 20, 7))
    for start in (100, 200, 300):
        trace.call("kernel", start)
    events, graph = graph_of(trace)
    assert "75% of the kernel launches have no work on the GPU" in doubt(events, graph)


def test_work_whose_launch_was_cut_off_is_a_doubt(trace, graph_of):
    trace.work(0, 20).work(21, 20).work(42, 20)
    trace.launch(60, (66, 20, 7))
    events, graph = graph_of(trace)
    assert "75% of the GPU work has no launch" in doubt(events, graph)
    assert "3 pieces of GPU work without a launch" in graph.build["note"].str.cat()
    assert analyze.replay(graph).max() == pytest.approx(graph.time_ns.max(), abs=2_000)


def test_gpu_work_alone_is_replayed_with_a_doubt(trace, graph_of):
    trace.work(100, 20).work(125, 20)
    events, graph = graph_of(trace)
    assert "nothing of the CPU is in the trace" in doubt(events, graph)
    assert analyze.replay(graph).tolist() == graph.time_ns.tolist()
    with pytest.raises(PerformanceModelError, match="no launch of 100 % of the GPU work"):
        analyze.what_if(events, graph, [analyze.Change(part="CPU", factor=0.5)])


def test_a_trace_cut_in_the_middle_still_gives_a_replay(make_events, script):
    trace = script()
    for start in range(0, 2000, 50):
        trace.op(start, 20)
        trace.launch(start + 2, (start + 500, 40, 7))
    events = make_events(*trace.rows)
    cut = events[(events["start_ns"] > 600_000) & (events["start_ns"] < 1_500_000)]
    graph = analyze.execution_graph(cut)
    doubts = doubt(cut, graph)
    assert "no launch in the trace" in doubts
    assert "no work on the GPU in the trace" in doubts
    error = analyze.replay_fidelity(cut, graph)["error_ratio"].iloc[0]
    assert abs(error) < 0.02


def test_a_trace_without_steps_is_one_step_without_an_interval(trace, graph_of):
    trace.op(0, 50)
    trace.launch(10, (20, 400, 7))
    events, graph = graph_of(trace)
    assert "fewer than two steps" in doubt(events, graph)
    with pytest.raises(PerformanceModelError, match="0 ProfilerSteps: to hold one out"):
        analyze.held_out_steps(events, graph)
    answer = analyze.what_if(events, graph, [analyze.Change(factor=0.5)]).iloc[0]
    assert answer["step_count"] == 1
    assert answer[["low_ns", "high_ns"]].isna().all()
    assert answer["predicted_ns"] == 220_000


def test_correlations_that_occur_twice_do_not_join_strangers(trace, graph_of):
    trace.launch(0, (10, 20, 7))
    trace.launch(100, (110, 20, 7))
    for row in trace.rows:
        row["correlation"] = 1
    trace.told(1, 7)
    _, graph = graph_of(trace)
    launched = graph.edges[graph.edges["kind"] == "launch"]
    assert np.diff(graph.time_ns[launched["source"]]).tolist() == [100_000]


def test_rows_that_take_no_time_have_their_place(trace, graph_of):
    for start in (0, 0, 10, 10):
        trace.op(start, 0)
        trace.launch(start, (start + 5, 0, 7), dur=0)
    trace.call("device", 20, 0)
    events, graph = graph_of(trace)
    assert analyze.replay(graph).max() <= graph.time_ns.max() + 20_000
    analyze.replay_fidelity(events, graph)


def test_ranks_with_different_steps_are_a_doubt(make_events, script):
    rows = []
    for rank, steps in ((0, (0, 100, 200)), (1, (0, 200))):
        trace = script(rank)
        for start in (5, 105):
            trace.op(start, 20)
            trace.launch(start + 5, (start + 20, 40, 7))
        rows += trace.steps(*steps).rows
    events = make_events(*rows)
    graph = analyze.execution_graph(events)
    assert graph.doubts == ("ranks recorded different steps (rank 0: 2, rank 1: 1)",)
    assert (
        "different steps"
        in analyze.what_if(events, graph, [analyze.Change(factor=1.0)])["doubt"].iloc[0]
    )
    with pytest.raises(PerformanceModelError, match="the events are of 2 ranks"):
        analyze.held_out_steps(events, graph)


def test_a_table_that_lacks_a_column_is_refused(trace, make_events):
    trace.launch(0, (10, 20, 7))
    events = make_events(*trace.rows)
    for column in ("correlation", "thread", "stream"):
        with pytest.raises(TableError, match=column):
            analyze.execution_graph(events.drop(columns=column))


def test_categories_that_never_occur_do_no_harm(trace, make_events):
    trace.op(0, 5)
    trace.launch(10, (20, 20, 7))
    events = make_events(*trace.rows)
    events["category"] = events["category"].cat.add_categories(["cuda_sync", "mtia_runtime"])
    fewer = events[events["category"] != "cpu_op"]
    for variant in (events, fewer, fewer.assign(name=fewer["name"].cat.remove_unused_categories())):
        graph = analyze.execution_graph(variant)
        assert analyze.replay(graph).tolist() == graph.time_ns.tolist()
