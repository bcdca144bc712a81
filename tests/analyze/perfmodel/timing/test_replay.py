"""Laws of replays, on random traces and on real ones, with both engines."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench import analyze
from workbench.analyze._perfmodel.timing import engine_python
from workbench.analyze._perfmodel.timing.longest_path import LongestPath, _by_source
from workbench.errors import PerformanceModelError
from workbench.tables import EVENTS

REAL = [
    ("kineto-hta", "nccl_parser_config/nccl_data.json.gz"),
    ("kineto-hta", "critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz"),
    ("kineto-h100", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"),
]
COMPILES_ONCE = settings(suppress_health_check=[HealthCheck.too_slow])


def check_laws(events, graph):
    """Check what must hold of any replay."""
    time = analyze.replay(graph)
    weight = graph.weight_ns
    assert (weight >= 0).all()
    assert (time[graph.target] >= time[graph.source] + weight).all()
    assert time[0] == 0
    assert np.array_equal(time, analyze.replay(graph))
    again = LongestPath(graph.source, graph.target, len(graph.time_ns))
    assert np.array_equal(time, again.times(weight))
    assert np.array_equal(time, again.times(weight))  # in the order of the first pass
    for factor in (3, 10):
        assert np.array_equal(analyze.replay(graph, weight_ns=factor * weight), factor * time)
    EVENTS.check(analyze.replayed_events(events, graph, time))
    path = analyze.critical_path(events, graph)
    assert path["dur_ns"].sum() == time.max()
    starts = path["start_ns"].to_numpy()
    assert np.array_equal(starts[1:], (starts + path["dur_ns"].to_numpy())[:-1])
    slack = analyze.slack(events, graph)
    assert len(slack) == len(graph.gpu_start)
    assert (slack["slack_ns"] >= 0).all()
    critical = set(path.loc[path["kind"] == "GPU work", "event"])
    assert (slack.loc[slack["event"].isin(critical), "slack_ns"] == 0).all()


@pytest.mark.parametrize("is_orderly", [True, False])
def test_laws_hold_for_any_trace(make_events, traces, is_orderly):
    @COMPILES_ONCE
    @given(traces(is_orderly=is_orderly))
    def hold(rows):
        events = make_events(*rows)
        check_laws(events, analyze.execution_graph(events))

    hold()


@pytest.mark.oracle
@pytest.mark.parametrize(("dataset", "file"), REAL)
def test_laws_hold_for_real_traces(dataset, file, real_events):
    events = real_events(dataset, file)
    check_laws(events, analyze.execution_graph(events))


def test_nothing_comes_earlier_if_anything_takes_longer(make_events, traces):
    @COMPILES_ONCE
    @given(traces(), st.integers(0, 1 << 30), st.integers(1, 1_000_000))
    def hold(rows, shuffled, more):
        graph = analyze.execution_graph(make_events(*rows))
        weight = graph.weight_ns.copy()
        weight[shuffled % len(weight)] += more
        assert (analyze.replay(graph, weight_ns=weight) >= analyze.replay(graph)).all()

    hold()


def test_a_graph_is_the_same_whatever_the_order_of_its_rows(make_events, traces):
    @COMPILES_ONCE
    @given(traces())
    def hold(rows):
        events = make_events(*rows)
        first, again = (analyze.execution_graph(events) for _ in range(2))
        for field in dataclasses.fields(first):
            first_time, two = getattr(first, field.name), getattr(again, field.name)
            if isinstance(first_time, np.ndarray):
                assert np.array_equal(first_time, two)

    hold()


@pytest.mark.oracle
def test_both_engines_agree_on_a_real_trace(real_events, engines):
    graph = analyze.execution_graph(real_events(*REAL[0]))
    check_engines(engines, graph.source, graph.target, graph.weight_ns, len(graph.time_ns))


def test_both_engines_agree_on_any_graph(engines):
    # Edges lead upwards, which no circle does, or anywhere; sums may wrap around.
    points = st.integers(1, 12).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(
                st.tuples(
                    st.integers(0, count - 1), st.integers(0, count - 1), st.integers(0, 2**62)
                ),
                max_size=30,
            ),
            st.booleans(),
        )
    )

    @given(points)
    def hold(graph):
        count, edges, is_upwards = graph
        rows = [(*sorted(pair), w) for *pair, w in edges if pair[0] != pair[1]]
        rows = rows if is_upwards else edges
        source, target, weight = np.array(rows, np.int64).reshape(-1, 3).T
        ends = source.astype(np.int32), target.astype(np.int32)
        check_engines(engines, *ends, weight // 16, count)

    hold()


@pytest.fixture
def engines(compiled):
    return compiled("workbench.analyze._perfmodel.timing._longest_path"), engine_python


def check_engines(engines, source, target, weight, count):
    bounds, by_source, waiting = _by_source(source, target, count)
    target, weight = target[by_source], weight[by_source]
    results = []
    for engine in engines:
        order = np.full(count, -1, np.int32)
        first, later = np.zeros((2, count), np.int64)
        reached = engine.first_pass(bounds, target, weight, waiting.copy(), order, first)
        if reached == count:
            engine.next_pass(order, bounds, target, weight, later)
            assert np.array_equal(first, later)
        results.append((reached, order.tolist(), first.tolist()))
    assert results[0] == results[1]


def test_arrays_that_do_not_fit_are_refused_by_the_compiled_engine(engines):
    bounds, target, weight = np.array([0, 1, 1], np.int32), np.array([1], np.int32), np.array([5])
    order, time = np.array([0, 1], np.int32), np.zeros(2, np.int64)
    engines[0].next_pass(order, bounds, target, weight, time)
    assert time.tolist() == [0, 5]
    for wrong in (
        (order[:1], bounds, target, weight),
        (order, bounds[1:], target, weight),
        (order, bounds, target, np.array([5, 6])),
        (order, bounds, target + np.int32(1), weight),
        (order + np.int32(1), bounds, target, weight),
        (order, bounds + np.int32(1), target, weight),
        (order, bounds - np.int32(1), target, weight),
    ):
        with pytest.raises(ValueError, match="differ in size, or edges lead out of the graph"):
            engines[0].next_pass(*wrong, time.copy())


def test_weights_that_do_not_fit_are_refused(make_events, script):
    trace = script()
    trace.launch(0, (10, 20, 7))
    graph = analyze.execution_graph(make_events(*trace.rows))
    for wrong in (graph.weight_ns[1:], graph.weight_ns.astype(float)):
        with pytest.raises(PerformanceModelError, match="weight_ns must be 5 integers"):
            analyze.replay(graph, weight_ns=wrong)


def test_points_that_wait_for_each_other_are_counted_and_one_is_named():
    source, target = (np.array(point, dtype=np.int32) for point in ([0, 1, 2], [1, 2, 1]))
    path = LongestPath(source, target, 3)
    with pytest.raises(
        PerformanceModelError, match=r"2 points wait .* in a circle, e\.g\. point 1"
    ):
        path.times(np.ones(3, dtype=np.int64))


def test_events_move_with_the_points_around_them(make_events, script):
    trace = script()
    trace.op(0, 100, "outer").op(20, 10, "inner")
    trace.launch(50, (60, 400, 7))
    trace.call("device", 101, 400)
    events = make_events(*trace.rows)
    graph = analyze.execution_graph(events)
    same = analyze.replayed_events(events, graph, graph.time_ns)
    assert same.equals(events)
    weight = graph.weight_ns.copy()
    work = graph.edges["kind"] == "GPU work"
    weight[work.to_numpy()] //= 2
    moved = analyze.replayed_events(events, graph, analyze.replay(graph, weight_ns=weight))
    times = moved.set_index("name")[["start_ns", "dur_ns"]].T
    assert times["kernel on 7"].tolist() == [60_000, 200_000]
    assert times["inner"].tolist() == [20_000, 10_000]
    assert times["cudaDeviceSynchronize"].tolist() == [101_000, 159_000]


def test_labels_of_a_selection_are_kept(make_events, script):
    trace = script()
    for start in (0, 100, 200):
        trace.op(start, 50, "op")
        trace.launch(start + 10, (start + 20, 40, 7))
    events = make_events(*trace.rows)
    late = events[events["start_ns"] >= 100_000]
    graph = analyze.execution_graph(late)
    assert set(graph.event) - {-1} <= set(late.index)
    moved = analyze.replayed_events(late, graph, analyze.replay(graph))
    assert moved.index.equals(late.index)
    check_laws(late, graph)
