"""Streams that take work as it is launched: as the longest path where the order stays."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from workbench import analyze
from workbench.analyze import Change
from workbench.analyze._perfmodel.replays import list_schedule as module
from workbench.analyze._perfmodel.replays import stream_queues as _stream_queues
from workbench.analyze._perfmodel.replays.change import changed_weights
from workbench.errors import PerformanceModelError

COMPILES_ONCE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
REAL = [
    ("kineto-hta", "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"),
    ("kineto-hta", "trace_diff/control/control.json.gz"),
    ("kineto-hta", "trace_diff/test/test.json.gz"),
    ("kineto-h100", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"),
]


def test_it_equals_the_longest_path_where_one_thread_launches(make_events, traces):
    @COMPILES_ONCE
    @given(traces(is_orderly=True))
    def hold(rows):
        events = make_events(*(row for row in rows))
        if events["thread"].nunique() > 1:
            return
        graph = analyze.execution_graph(events)
        assert np.array_equal(analyze.list_schedule(graph), analyze.replay(graph))

    hold()


@pytest.mark.parametrize(("dataset", "path"), REAL)
def test_it_equals_the_longest_path_on_real_traces(real_events, dataset, path):
    graph = analyze.execution_graph(real_events(dataset, path))
    assert np.array_equal(analyze.list_schedule(graph), analyze.replay(graph))


@pytest.fixture
def two_threads(make_events, script):
    """Make two threads that launch into one stream: thread 1 first, with a slow operator."""
    trace = script()
    trace.op(0, 100, "aten::slow").launch(90, (100, 50, 7))
    trace.rows[-1]["name"] = "first"
    trace.op(0, 130, "aten::fast", thread="2").launch(120, (151, 20, 7), thread="2")
    trace.rows[-1]["name"] = "second"
    return make_events(*trace.rows)


def starts(events, graph, time):
    names = events["name"].astype(str).reindex(graph.event[graph.gpu_start])
    return dict(zip(names, time[graph.gpu_start].tolist(), strict=True))


def test_a_thread_that_gets_slower_lets_the_other_go_first(two_threads):
    graph = analyze.execution_graph(two_threads)
    before = starts(two_threads, graph, analyze.list_schedule(graph))
    assert before["first"] < before["second"]
    weight = graph.weight_ns.copy()
    slow = graph.thread[graph.target] == graph.thread[_point_of(graph, two_threads, "aten::slow")]
    weight[slow] *= 3
    kept = starts(two_threads, graph, analyze.replay(graph, weight_ns=weight))
    free = starts(two_threads, graph, analyze.list_schedule(graph, weight_ns=weight))
    assert kept["first"] < kept["second"]
    assert free["second"] < free["first"]


def _point_of(graph, events, name):
    label = events.index[events["name"] == name][0]
    return int(np.flatnonzero(graph.event == label)[0])


def test_the_compiled_engine_gives_the_same(two_threads, monkeypatch):
    graph = analyze.execution_graph(two_threads)
    compiled = analyze.list_schedule(graph)
    monkeypatch.setattr(module, "_engine", lambda: _stream_queues.play)
    assert np.array_equal(analyze.list_schedule(graph), compiled)


def test_weights_that_do_not_fit_are_refused(two_threads):
    graph = analyze.execution_graph(two_threads)
    with pytest.raises(PerformanceModelError, match="integers, one per edge"):
        analyze.list_schedule(graph, weight_ns=graph.weight_ns[1:])


def test_another_gpu_scales_each_kernel_by_what_binds_it(make_events, script):
    trace = script()
    trace.op(0, 60, "aten::linear").launch(10, (20, 1_000, 7))
    trace.rows[-1]["name"] = "ampere_gemm"
    trace.launch(30, (1_021, 1_000, 7))
    trace.rows[-1]["name"] = "elementwise"
    events = make_events(*trace.rows)
    graph = analyze.execution_graph(events)
    weight, touched = changed_weights(events, graph, [Change(from_gpu="A100", to_gpu="H100")])
    ratio = weight[touched] / graph.weight_ns[touched]
    table = analyze.hardware().set_index("gpu")
    peak = table.loc["A100", "bf16_flop_per_s"] / table.loc["H100", "bf16_flop_per_s"]
    memory = table.loc["A100", "memory_bytes_per_s"] / table.loc["H100", "memory_bytes_per_s"]
    assert sorted(ratio) == pytest.approx(sorted([peak, memory]), rel=1e-5)
    asked = analyze.what_if(events, graph, [Change(from_gpu="A100", to_gpu="H100")])
    assert asked["question"].iloc[0] == "GPU on H100 instead of A100"
    assert "told from its name" in asked["doubt"].iloc[0]
    with pytest.raises(PerformanceModelError, match="belong together"):
        Change(to_gpu="H100")
