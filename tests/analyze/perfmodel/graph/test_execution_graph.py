"""What waits for what in traces of a few rows."""

import pandas as pd
import pytest

from workbench import analyze
from workbench.errors import PerformanceModelError, WorkbenchError
from workbench.tables import GRAPH_BUILD, GRAPH_EDGES, GRAPH_POINTS


@pytest.fixture
def trace(script):
    return script()


@pytest.fixture
def graph_of(make_events):
    def build(trace, **options):
        events = make_events(*trace.rows)
        return events, analyze.execution_graph(events, **options)

    return build


def built(graph, step):
    return graph.build.set_index("step").loc[step]


def test_the_tables_of_a_graph_fit_and_times_are_those_of_the_trace(trace, graph_of):
    trace.op(10, 20)
    trace.launch(12, (20, 100, 7))
    events, graph = graph_of(trace)
    for table, frame in ((GRAPH_POINTS, graph.points), (GRAPH_EDGES, graph.edges)):
        table.check(table.cast(frame))
    GRAPH_BUILD.check(graph.build)
    ends = events["start_ns"] + events["dur_ns"]
    assert graph.time_ns.max() + graph.origin_ns == ends.max()
    assert analyze.replay(graph).tolist() == graph.time_ns.tolist()
    assert "1 pieces of GPU work" in repr(graph)
    assert graph.nbytes > 0


def test_work_on_an_idle_stream_waits_for_its_launch_with_its_own_latency(
    trace, graph_of, edges_of
):
    trace.launch(0, (8, 10, 7))
    trace.launch(100, (106, 10, 7))
    events, graph = graph_of(trace)
    launches = edges_of(events, graph, "launch")
    assert launches == [
        ("cudaLaunchKernel call", "kernel on 7 GPU start", 8),
        ("cudaLaunchKernel call", "kernel on 7 GPU start", 6),
    ]


def test_a_launch_that_takes_too_long_counts_as_the_usual_one(trace, graph_of, edges_of):
    for start in (0, 1000, 2000):
        trace.launch(start, (start + 7, 10, 7))
    trace.launch(3000, (3500, 10, 7))
    events, graph = graph_of(trace)
    assert [weight for *_, weight in edges_of(events, graph, "launch")] == [7, 7, 7, 7]
    assert "1 began later than a launch explains, 0.49 ms" in built(graph, "launch")["note"]


def test_one_slow_launch_tells_nothing_of_the_others(trace, graph_of, edges_of):
    trace.launch(0, (7_836, 10, 7))
    for number in range(20):
        trace.launch(100 + 3 * number, (7_846 + 10 * number, 10, 7))
    events, graph = graph_of(trace)
    assert {weight for *_, weight in edges_of(events, graph, "launch")} == {6}  # the rule's
    assert "1 began later than a launch explains, 7.83 ms" in built(graph, "launch")["note"]
    fidelity = analyze.replay_fidelity(events, graph).iloc[0]
    assert fidelity["explained_share"] < 0.05
    assert not fidelity["is_usable"]


def test_the_usual_launch_is_capped_where_most_were_held_up(trace, graph_of, edges_of):
    for number in range(9):
        latency = 9 if number % 3 == 0 else 5_000
        trace.launch(10_000 * number, (10_000 * number + latency, 10, 7))
    events, graph = graph_of(trace)
    assert {weight for *_, weight in edges_of(events, graph, "launch")} == {9, 100}
    small_rules = analyze.GraphRules(fewest_launches=10)
    _, graph = graph_of(trace, rules=small_rules)
    assert "usual launch latency 6.0 µs" in built(graph, "launch")["note"]


@pytest.mark.parametrize("what", ["kernel", "graph"])
def test_a_call_that_lasts_long_for_itself_launches_when_it_ends(trace, graph_of, edges_of, what):
    for start in range(0, 500, 100):
        trace.launch(start, (start + 26, 20, 7))
    trace.launch(1_000, (112_026, 500, 7), dur=111_000, what=what)
    trace.op(112_010, 50)
    events, graph = graph_of(trace)
    assert edges_of(events, graph, "launch")[-1][1:] == (f"{what} on 7 GPU start", 26)
    assert analyze.replay(graph).tolist() == graph.time_ns.tolist()
    half = analyze.what_if(events, graph, [analyze.Change(part="CPU", factor=0.5)]).iloc[0]
    assert half["predicted_ns"] == pytest.approx(112_526_000 / 2 + 263_000, rel=0.001)


def test_a_long_call_whose_work_began_meanwhile_launched_it_at_once(trace, graph_of, edges_of):
    for start in range(0, 500, 100):
        trace.launch(start, (start + 26, 20, 7))
    trace.launch(1_000, (1_026, 20, 7), dur=111_000)
    events, graph = graph_of(trace)
    assert edges_of(events, graph, "launch")[-1] == (
        "cudaLaunchKernel call", "kernel on 7 GPU start", 26,
    )  # fmt: skip


def test_work_follows_what_is_before_it_on_its_stream_only(trace, graph_of, edges_of):
    trace.launch(0, (10, 100, 7))
    trace.launch(3, (112, 50, 7))
    trace.launch(6, (20, 30, 9))
    events, graph = graph_of(trace)
    order = edges_of(events, graph, "stream order")
    assert order == [("kernel on 7 GPU end", "kernel on 7 GPU start", 2)]


def test_work_that_takes_no_time_comes_before_what_starts_with_it(trace, graph_of):
    trace.launch(0, (10, 0, 7))
    trace.launch(3, (10, 50, 7))
    _, graph = graph_of(trace)
    assert (graph.time_ns[graph.source] <= graph.time_ns[graph.target]).all()
    usual_gap_ns = 1_000
    assert analyze.replay(graph).max() == graph.time_ns.max() + usual_gap_ns


@pytest.mark.parametrize("what", ["device", "stream", "event"])
def test_a_call_that_synchronises_ends_when_the_work_has(trace, graph_of, edges_of, what):
    trace.launch(0, (10, 200, 7))
    trace.call(what, 20, 195)
    events, graph = graph_of(trace)
    (edge,) = edges_of(events, graph, "synchronise")
    assert edge[0] == "kernel on 7 GPU end"
    assert edge[1].endswith("wait end")
    assert edge[2] == 0
    assert built(graph, "synchronise")["inferred_count"] == (what != "device")
    _, without = graph_of(trace, without=("synchronise",))
    assert edges_of(events, without, "synchronise") == []


@pytest.mark.parametrize("what", ["stream", "event"])
def test_a_record_tells_which_stream_a_call_waits_for(trace, graph_of, edges_of, what):
    trace.launch(0, (10, 200, 7))
    trace.launch(3, (10, 150, 9))
    number = trace.call(what, 20, 195)
    stream = {"stream": 9} if what == "stream" else {"stream": 7, "waited": 9}
    trace.told(number, **stream)
    events, graph = graph_of(trace)
    (edge,) = edges_of(events, graph, "synchronise")
    assert edge[0] == "kernel on 9 GPU end"
    assert built(graph, "synchronise")["read_count"] == 1


def test_a_device_synchronisation_waits_for_every_stream(trace, graph_of, edges_of):
    trace.launch(0, (10, 200, 7))
    trace.launch(3, (10, 150, 9))
    trace.call("device", 20, 195)
    events, graph = graph_of(trace)
    assert len(edges_of(events, graph, "synchronise")) == 2


def test_a_long_call_to_copy_waits_for_its_copy_and_a_short_one_does_not(trace, graph_of, edges_of):
    trace.launch(0, (10, 90, 7), dur=102, what="copy")
    trace.launch(200, (210, 90, 7), dur=5, what="copy")
    events, graph = graph_of(trace)
    (edge,) = edges_of(events, graph, "synchronise")
    assert edge == ("copy on 7 GPU end", "cudaMemcpyAsync wait end", 0)


def test_a_call_that_ends_long_before_the_work_did_not_wait_for_it(trace, graph_of, edges_of):
    trace.launch(0, (10, 500, 7))
    trace.call("device", 20, 50)
    events, graph = graph_of(trace)
    assert edges_of(events, graph, "synchronise") == []
    assert built(graph, "synchronise")["left_out_count"] == 1


def test_a_stream_wait_is_read_where_the_trace_tells_of_it(trace, graph_of, edges_of):
    trace.launch(0, (10, 300, 1))
    record = trace.call("record", 4)
    trace.launch(8, (310, 90, 1))
    trace.told(trace.call("wait", 12), 2, 1, record)
    trace.launch(16, (311, 50, 2))
    events, graph = graph_of(trace)
    assert edges_of(events, graph, "inter-stream") == [
        ("kernel on 1 GPU end", "kernel on 2 GPU start", 0)
    ]
    source = graph.edges.loc[graph.edges["kind"] == "inter-stream", "source"].iloc[0]
    assert graph.time_ns[source] == 310_000
    assert built(graph, "inter-stream")[["read_count", "inferred_count"]].tolist() == [1, 0]


def test_a_stream_wait_is_guessed_where_the_trace_is_silent(trace, graph_of, edges_of):
    trace.launch(0, (10, 300, 1))
    trace.call("wait", 12)
    trace.launch(16, (311, 50, 2))
    events, graph = graph_of(trace)
    assert len(edges_of(events, graph, "inter-stream")) == 1
    assert built(graph, "inter-stream")["inferred_count"] == 1
    _, without = graph_of(trace, without=["inter-stream", "residual"])
    assert edges_of(events, without, "inter-stream") == []
    assert analyze.replay(without).max() < graph.time_ns.max()


def test_work_that_begins_late_just_after_other_work_waited_for_it(trace, graph_of, edges_of):
    trace.launch(0, (10, 300, 1))
    trace.launch(16, (313, 50, 2))
    events, graph = graph_of(trace)
    assert edges_of(events, graph, "inter-stream") == [
        ("kernel on 1 GPU end", "kernel on 2 GPU start", 3)
    ]
    assert built(graph, "residual")["inferred_count"] == 1


def test_work_that_begins_while_a_kernel_drains_shares_the_gpu(trace, graph_of, edges_of):
    trace.launch(0, (10, 300, 1))
    trace.launch(16, (250, 100, 2))
    events, graph = graph_of(trace)
    assert edges_of(events, graph, "shared GPU") == [
        ("kernel on 1 GPU start", "kernel on 2 GPU start", 240)
    ]


def test_launches_wait_for_room_in_a_full_queue(trace, graph_of, edges_of):
    limit, now, free = 1021, 0, 10
    starts = []
    for number in range(limit + 40):
        began = max(free, now + 7)
        starts.append(began)
        free = began + 100
        dur = 2
        if number >= limit and starts[number - limit] > now:
            dur = starts[number - limit] - now
        trace.launch(now, (began, 100, 7), dur)
        now += dur + 1
    events, graph = graph_of(trace)
    assert built(graph, "queue limit")["note"] == "the queue takes 1,021 launches"
    edges = edges_of(events, graph, "queue limit")
    assert len(edges) == 40
    assert set(edges) == {("kernel on 7 GPU start", "cudaLaunchKernel wait end", 0)}
    assert analyze.replay(graph).max() == pytest.approx(graph.time_ns.max(), rel=0.01)
    faster = graph.weight_ns // 2
    cpu = graph.thread >= 0
    _, without = graph_of(trace, without=["queue limit"])
    full = analyze.replay(graph, weight_ns=faster)[cpu].max()
    assert full < analyze.replay(without)[without.thread >= 0].max()


def test_a_gap_goes_back_to_what_another_thread_ended_every_time(trace, graph_of, edges_of):
    for start in (0, 2000, 4000):
        trace.op(start, 100, "forward", "1")
        trace.op(start + 105, 900, "backward", "2")
        trace.op(start + 1010, 50, "optimizer", "1")
        trace.op(start + 1000, 4, f"chance {start}", "3")
    trace.launch(5100, (5110, 10, 7))
    events, graph = graph_of(trace)
    edges = edges_of(events, graph, "inter-thread")
    assert edges.count(("backward CPU end", "optimizer CPU start", 5)) == 3
    gaps = edges_of(events, graph, "gap")
    assert ("forward CPU end", "optimizer CPU start", 0) in gaps


def test_a_short_gap_keeps_its_length(trace, graph_of, edges_of):
    trace.op(0, 100, "one")
    trace.op(150, 100, "two")
    trace.launch(300, (310, 10, 7))
    events, graph = graph_of(trace)
    assert ("one CPU end", "two CPU start", 50) in edges_of(events, graph, "gap")
    _, without = graph_of(trace, without=["gaps"])
    assert analyze.replay(without).max() < analyze.replay(graph).max()


def test_all_work_of_a_cuda_graph_hangs_on_its_launch(trace, graph_of, edges_of):
    trace.launch(0, [(10, 50, 7), (61, 50, 7), (20, 30, 9)], what="graph")
    events, graph = graph_of(trace)
    launches = edges_of(events, graph, "launch")
    assert [edge[0] for edge in launches] == ["cudaGraphLaunch call"] * 3
    assert analyze.replay(graph).max() == graph.time_ns.max()


def test_a_wait_for_a_graph_whose_work_is_missing_is_dark_time(trace, graph_of, edges_of):
    trace.launch(0, (10, 20, 7))
    for start in (100, 1100, 2100):
        trace.call("graph", start)
        trace.call("device", start + 10, 500)
    events, graph = graph_of(trace)
    dark = edges_of(events, graph, "dark GPU time")
    assert dark == [("cudaGraphLaunch call", "cudaDeviceSynchronize wait end", 510)] * 3
    assert "1.53 ms dark" in built(graph, "CUDA graphs")["note"]
    _, without = graph_of(trace, without=["CUDA graphs"])
    assert analyze.replay(without).max() < 0.6 * graph.time_ns.max()
    fidelity = analyze.replay_fidelity(events, graph)
    assert "of GPU work were not recorded" in fidelity["doubt"].iloc[0]


@pytest.mark.parametrize("how", ["before", "inside", "next", "sync"])
def test_holes_of_a_graph_whose_work_was_recorded_in_part_are_dark_time(trace, graph_of, how):
    now, starts = 0, []
    for _ in range(4):
        starts.append(now)
        trace.op(now, 40)
        trace.launch(now + 5, (now + 12, 30, 7))
        work = [(now + 70 + 1_001 * kernel, 1_000, 7) for kernel in range(3)]
        end = now + 3_072 + 63_000
        if how == "before":
            work = [(start + 63_000, dur, stream) for start, dur, stream in work]
        if how == "inside":
            work.append((end, 1_000, 7))
        trace.launch(now + 50, work, dur=15, what="graph")
        if how == "next":
            trace.launch(now + 80, (end, 1_000, 7))
        end += 1_000 * (how in {"inside", "next"})
        trace.call("device", now + 100, end + 5 - now - 100)
        now = end + 30
    trace.steps(*starts, now)
    events, graph = graph_of(trace)
    dark = analyze.replay_fidelity(events, graph).iloc[0]
    assert dark["dark_ns"] == pytest.approx(4 * 63_000_000, rel=0.01)
    assert abs(dark["error_ratio"]) < 0.001
    assert "252." in dark["doubt"]
    assert "profile a run without CUDA graphs" in dark["doubt"]
    assert "4 holes in graphs of which only some work" in built(graph, "CUDA graphs")["note"]
    half = analyze.what_if(events, graph, [analyze.Change(factor=0.5)]).iloc[0]
    assert half["predicted_ns"] > 63_000_000
    assert "were not recorded" in half["doubt"]
    _, without = graph_of(trace, without=["CUDA graphs"])
    with pytest.raises(PerformanceModelError, match="; profile a run without CUDA graphs"):
        analyze.what_if(events, without, [analyze.Change(factor=0.5)])


def test_idle_time_that_has_a_cause_is_no_hole_of_a_graph(trace, graph_of):
    trace.launch(0, [(10, 50, 7), (62, 50, 7)], what="graph")
    trace.launch(900, (907, 50, 7))  # the host was late
    trace.launch(1_000, (1_010, 500, 8))
    trace.launch(1_020, [(1_513, 50, 7)], what="graph")  # waited for the other stream
    _, graph = graph_of(trace)
    assert "dark GPU time" not in set(graph.edges["kind"])


def test_an_unknown_step_is_named(trace, graph_of):
    trace.launch(0, (10, 20, 7))
    with pytest.raises(PerformanceModelError, match="'launches': there is no such step"):
        graph_of(trace, without=["launches"])
    _, graph = graph_of(trace, without="launch")
    assert not built(graph, "launch")["is_used"]


def test_a_trace_without_gpu_work_says_what_there_is(trace, make_events):
    trace.op(0, 10)
    with pytest.raises(WorkbenchError, match="no GPU work, so no execution graph: the 1 events"):
        analyze.execution_graph(make_events(*trace.rows))


def test_labels_that_occur_twice_are_refused(trace, make_events):
    trace.launch(0, (10, 20, 7))
    events = make_events(*trace.rows)
    twice = pd.concat([events, events.assign(rank=events["rank"] + 1)])
    with pytest.raises(PerformanceModelError, match="row labels of the events"):
        analyze.execution_graph(twice)
    with pytest.raises(PerformanceModelError, match="row labels of the events"):
        analyze.execution_graph(events.set_axis([f"row {n}" for n in range(len(events))]))
