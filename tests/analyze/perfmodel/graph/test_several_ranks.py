"""Ranks that wait for each other in collectives."""

from dataclasses import replace

import numpy as np
import pytest

from claims._graph_tasks import chakra_nodes, graph_tasks
from workbench import analyze, load
from workbench.analyze._perfmodel.replays.change import changed_weights
from workbench.errors import PerformanceModelError


def two_ranks(script, *, late=100, apart=0, is_second_common=True):
    """Make two ranks that meet in two all-reduces; the second is late for the first."""
    rows = []
    for rank in (0, 1):
        trace, shift = script(rank), rank * apart
        ready = late if rank else 10
        comm = {"kind": "communication", "name": "ncclDevKernel_AllReduce_Sum_f32", "stream": 20,
                "group": "0", "group_size": 2, "collective": "allreduce"}  # fmt: skip
        for number, (first, last) in enumerate(((ready, 140), (300, 350))):
            if rank and number and not is_second_common:
                continue
            label = f"{rank}:{number}"
            trace.op(shift + first - 6, 4)
            trace.call("kernel", shift + first - 5, id=label)
            trace.work(shift + first, last - first, launch=label, seq=number, **comm)
        rows += trace.rows
    return rows


def joined(events):
    return analyze.execution_graph(events, collectives=analyze.collectives(events))


def ends(events, graph, time):
    """Give the ends of communication by rank and order, from the start of the graph in us."""
    moved = analyze.replayed_events(events, graph, time)
    comm = moved[moved["kind"] == "communication"]
    end = (comm["start_ns"] + comm["dur_ns"] - graph.origin_ns) / 1e3
    return [end[comm["rank"] == rank].tolist() for rank in (0, 1)]


def test_a_collective_begins_when_its_last_rank_is_there(make_events, script):
    events = make_events(*two_ranks(script))
    graph = joined(events)
    build = graph.build.set_index("step").loc["collectives"]
    assert build[["read_count", "inferred_count", "left_out_count"]].tolist() == [4, 0, 0]
    assert analyze.replay(graph).max() == graph.time_ns.max()
    (ready, _) = graph.points.query("kind == 'collective ready'")["time_ns"]
    assert ready + graph.origin_ns == 100_000
    transfer = graph.edges.query("kind == 'collective' and weight_ns > 0")["weight_ns"]
    assert transfer.tolist() == [40_000, 40_000, 50_000, 50_000]


def test_a_slow_rank_delays_the_others_only_through_collectives(make_events, script):
    events = make_events(*two_ranks(script))
    change = [analyze.Change(part="CPU", factor=2.0, rank=1)]
    for graph, moves in ((joined(events), True), (analyze.execution_graph(events), False)):
        weight, _ = changed_weights(events, graph, change)
        before = ends(events, graph, analyze.replay(graph))
        after = ends(events, graph, analyze.replay(graph, weight_ns=weight))
        assert after[1][-1] > before[1][-1]
        assert (after[0][-1] > before[0][-1]) is moves


def test_a_slow_rank_delays_the_others_as_tasks_too(make_events, script, task_ends):
    events = make_events(*two_ranks(script))
    graph = joined(events)
    result = graph_tasks(events, graph)
    assert task_ends(result).max() == analyze.replay(graph).max()
    is_cpu = (result.tasks["category"] == "CPU") & (result.tasks["rank"] == 1)
    tasks = result.tasks.assign(dur_ns=result.tasks["dur_ns"] + 1_000_000 * is_cpu)
    late = task_ends(replace(result, tasks=tasks)).to_numpy() > 1_000_000
    assert (late & (tasks["rank"] == 0).to_numpy()).any()
    nodes, needed = chakra_nodes(events, result.tasks, result.edges)
    collectives = nodes[nodes["type"] == "COMM_COLL_NODE"]
    assert collectives["dur_ns"].tolist() == [130_000, 50_000, 40_000, 50_000]
    assert set(collectives["node"]) <= set(needed["node"])
    assert needed.attrs["left_out"]["edges between ranks"] > 0


def test_a_faster_collective_is_faster_on_every_rank(make_events, script):
    events = make_events(*two_ranks(script))
    graph = joined(events)
    result = analyze.what_if(
        events, graph, [analyze.Change(kind="communication", factor=0)], least_explained_share=0
    )
    assert result["changed_ns"].iloc[0] == 180_000
    assert result["predicted_ns"].iloc[0] < graph.time_ns.max()


def test_ranks_on_different_clocks_are_refused_by_name(make_events, script):
    events = make_events(*two_ranks(script, apart=1_000))
    match = r"rank 1 began a collective 960\.0 µs after rank 0 had ended it.* not on one clock"
    with pytest.raises(PerformanceModelError, match=match):
        joined(events)


def test_collectives_of_other_clocks_than_the_events_are_refused(make_events, script):
    events = make_events(*two_ranks(script))
    shifted = analyze.collectives(events.assign(start_ns=events["start_ns"] + 7_000))
    with pytest.raises(PerformanceModelError, match=r"its collectives are 7\.0 µs off its events"):
        analyze.execution_graph(events, collectives=shifted)


def test_communication_that_was_not_matched_keeps_its_time_with_a_doubt(make_events, script):
    events = make_events(*two_ranks(script, is_second_common=False))
    graph = joined(events)
    assert any("are not matched across ranks" in doubt for doubt in graph.doubts)
    assert analyze.replay(graph).max() == graph.time_ns.max()


def test_ranks_that_a_selection_lacks_do_not_hold_the_others_up(make_events, script):
    events = make_events(*two_ranks(script))
    collectives = analyze.collectives(events)
    first_rank = events[events["rank"] == 0]
    graph = analyze.execution_graph(first_rank, collectives=collectives)
    assert "2 of 2 pieces of communication are not matched" in graph.doubts[0]
    assert "collective" not in set(graph.edges["kind"])
    assert analyze.replay(graph).max() == graph.time_ns.max()


def test_one_rank_of_several_waits_for_ranks_that_are_not_here(make_events, script):
    rows = two_ranks(script)
    for row in rows:
        if "group" in row:
            row["group_size"] = 4
    graph = joined(make_events(*rows))
    assert any("waited for ranks that are not loaded" in doubt for doubt in graph.doubts)


def test_no_collectives_leave_a_graph_as_it_is(make_events, script):
    trace = script()
    trace.launch(0, (10, 20, 7))
    events = make_events(*trace.rows)
    graph = joined(events)
    assert graph.doubts == ()
    assert "collective" not in set(graph.edges["kind"])


@pytest.fixture(scope="module")
def job(dlrm):
    """Give the events of eight real ranks on one clock, and their collectives."""
    trace = load.traces(dlrm, progress=False)
    clocks = analyze.clocks(analyze.collectives(trace.events, process_groups=trace.process_groups))
    events = analyze.align_clocks(trace.events, clocks)
    return events, analyze.collectives(events, process_groups=trace.process_groups)


@pytest.mark.oracle
def test_eight_real_ranks_are_replayed_to_one_per_cent(job):
    events, collectives = job
    graph = analyze.execution_graph(events, collectives=collectives)
    assert (graph.points["kind"] == "collective ready").sum() == 8
    fidelity = analyze.replay_fidelity(events, graph)
    assert fidelity["rank"].tolist() == list(range(8))
    assert fidelity["error_ratio"].abs().max() <= 0.01
    assert fidelity["breakdown_error_ratio"].max() <= 0.015
    assert fidelity["explained_share"].min() >= 0.99
    path = analyze.critical_path(events, graph)
    assert path["dur_ns"].sum() == analyze.replay(graph).max()


@pytest.mark.oracle
@pytest.mark.parametrize("is_joined", [True, False])
def test_a_slow_rank_of_eight_delays_the_gpus_of_all(job, is_joined):
    events, collectives = job
    graph = analyze.execution_graph(events, collectives=collectives if is_joined else None)
    change = [analyze.Change(factor=1.5, part="CPU", rank=3)]
    weight, _ = changed_weights(events, graph, change)
    last_end = graph.gpu_start + 1
    before, after = (
        np.array([time[last_end][graph.point_rank[last_end] == rank].max() for rank in range(8)])
        for time in (analyze.replay(graph), analyze.replay(graph, weight_ns=weight))
    )
    assert after[3] > before[3] + 1_000_000
    later = (after > before + 500_000)[np.arange(8) != 3]
    # The two ranks that end last anyway have more time than rank 3 takes from them.
    assert later.sum() == (5 if is_joined else 0)
    assert (after >= before).all()


@pytest.mark.oracle
def test_seven_of_eight_real_ranks_keep_their_measured_communication(job):
    events, collectives = job
    of_eight = analyze.execution_graph(events, collectives=collectives)
    fewer = events[events["rank"] < 7]
    of_seven = analyze.execution_graph(fewer, collectives=collectives)
    assert of_seven.doubts[0].startswith("56 of 56 pieces of communication are not matched")
    assert len(of_seven.time_ns) < len(of_eight.time_ns)
    errors = analyze.replay_fidelity(fewer, of_seven)["error_ratio"]
    assert errors.abs().max() <= 0.01
