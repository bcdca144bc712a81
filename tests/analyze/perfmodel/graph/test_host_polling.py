"""Hosts that ask again and again whether communication is done are found, others are not."""

import re

import pytest

from workbench import analyze
from workbench.analyze import Change, GraphRules


def polling(script, *, spin="gap", late=10, talk=500, steps=5):
    """Make steps whose host waits for an all-to-all without a call that says so."""
    trace, starts, now = script(), [], 0
    for _ in range(steps):
        starts.append(now)
        trace.op(now, 12, "moe::dispatch")
        trace.launch(now + 2, (now + 20, talk, 7))
        trace.rows[-1] |= {"name": "dispatch", "kind": "communication"}
        done = now + 20 + talk + late
        if spin == "operator":
            trace.op(now + 12, done - now - 12, "moe::spin")
        trace.op(done, 10, "aten::linear")
        trace.launch(done + 2, (max(done + 8, now + 20 + talk), 60, 7))
        now = done + 60
    trace.op(now, 5)
    return trace.steps(*starts, now)


@pytest.mark.parametrize("spin", ["gap", "operator"])
@pytest.mark.parametrize("late", [-30, 0, 35])
def test_a_host_that_polls_makes_what_ifs_unreliable(make_events, script, spin, late):
    events = make_events(*polling(script, spin=spin, late=late).rows)
    graph = analyze.execution_graph(events)
    (doubt,) = graph.doubts
    note = graph.build.set_index("step").loc["gaps", "note"]
    assert doubt == f"what-ifs are unreliable: {note}, and the GPU is busy as long"
    on_path_ms = 5 * (508 + min(late, 0)) / 1_000  # after the 12 us of the operator before
    assert float(note.split("polls?), ")[1].split()[0]) == pytest.approx(on_path_ms, abs=0.11)
    assert (" but for communication" in note) == (late < 0)
    prediction = analyze.what_if(events, graph, [Change(factor=0.5, kind="communication")])
    assert "what-ifs are unreliable" in prediction["doubt"].iloc[0]
    assert prediction["speedup_ratio"].iloc[0] < 1.1  # the gaps stay, which is why


def test_a_host_that_comes_long_after_communication_does_not_poll(make_events, script):
    graph = analyze.execution_graph(make_events(*polling(script, late=150).rows))
    assert graph.doubts == ()
    assert "polls" not in "".join(graph.build["note"])


def test_how_near_is_a_rule(make_events, script):
    events = make_events(*polling(script, late=150).rows)
    assert analyze.execution_graph(events, rules=GraphRules(polling_ns=160_000)).doubts
    near = make_events(*polling(script, late=60).rows)
    assert analyze.execution_graph(near).doubts
    assert not analyze.execution_graph(near, rules=GraphRules(polling_ns=5_000)).doubts


def test_a_gap_shorter_than_the_window_proves_nothing(make_events, script):
    graph = analyze.execution_graph(make_events(*polling(script, talk=10, late=5).rows))
    assert "polls" not in "".join(graph.build["note"])


def test_where_the_host_is_late_itself_the_trace_can_be_used(make_events, script):
    trace = script()
    for number in range(6):
        now = 1_000 * number
        trace.op(now, 10)
        trace.launch(now + 2, (now + 600, 380, 7))  # runs beside, and ends with the gap by chance
        trace.rows[-1] |= {"name": "all-reduce", "kind": "communication"}
    trace.op(6_000, 10)
    graph = analyze.execution_graph(make_events(*trace.rows))
    (doubt,) = graph.doubts
    assert doubt.endswith("they would not shrink with communication")
    assert "unreliable" not in doubt


def queued_while_polled(script, *, late=60, kind="communication", steps=3):
    """Make steps of 25 kernels, 20 ms in all, after the last of which the host goes on."""
    trace, now, starts = script(), 0, []
    for _ in range(steps):
        starts.append(now)
        trace.op(now, 200, "moe::dispatch")
        free = now + 20
        for kernel in range(25):
            at = now + 5 + 6 * kernel
            began = max(free + 1, at + 8)
            trace.launch(at, (began, 792, 7))
            free = began + 792
        trace.rows[-1] |= {"name": "flag", "kind": kind}
        now = free + late
    trace.op(now, 50)
    trace.launch(now + 5, (now + 12, 60, 7))
    return trace.steps(*starts, now)


@pytest.mark.parametrize("late", [-40, 10, 60])
def test_all_work_that_runs_while_the_host_polls_is_counted(make_events, script, late):
    events = make_events(*queued_while_polled(script, late=late).rows)
    graph = analyze.execution_graph(events)
    (doubt,) = graph.doubts
    assert doubt.startswith("what-ifs are unreliable: ")
    assert doubt.endswith("and the GPU is busy as long")
    polled_ms = float(doubt.split("polls?), ")[1].split()[0])
    assert polled_ms == pytest.approx(3 * 19.6, abs=0.2)  # one kernel alone: 2.4
    prediction = analyze.what_if(events, graph, [Change(factor=0.5)])
    assert prediction["doubt"].str.contains("what-ifs are unreliable").all()


@pytest.mark.parametrize("late", [-40, 10, 60, 150])
def test_gaps_beside_a_busy_gpu_make_what_ifs_unreliable(make_events, script, late):
    events = make_events(*queued_while_polled(script, late=late, kind="compute").rows)
    graph = analyze.execution_graph(events)
    (doubt,) = graph.doubts
    assert re.search(r"the GPU of rank 0 is busy for (99|100)% of the window while 9\d%", doubt)
    assert doubt.startswith("what-ifs are unreliable: ")
    for lax in ({"co_critical_busy_share": 1.0}, {"co_critical_gap_share": 1.0}):
        assert analyze.execution_graph(events, rules=GraphRules(**lax)).doubts == ()


def test_a_busy_gpu_behind_a_host_that_waits_in_calls_is_in_no_doubt(make_events, script):
    trace, now = script(), 0
    for _ in range(4):
        trace.op(now, 100)
        trace.launch(now + 5, (now + 12, 5_000, 7))
        trace.call("device", now + 110, 4_905)
        now += 5_030
    graph = analyze.execution_graph(make_events(*trace.rows))
    assert graph.doubts == ()


def test_a_wait_that_has_a_call_is_no_polling(make_events, script):
    trace = script()
    for number in range(4):
        now = 700 * number
        trace.op(now, 10)
        trace.launch(now + 2, (now + 20, 500, 7))
        trace.rows[-1] |= {"name": "all-reduce", "kind": "communication"}
        trace.call("stream", now + 20, 505)
    graph = analyze.execution_graph(make_events(*trace.rows))
    assert graph.doubts == ()


@pytest.mark.oracle
@pytest.mark.parametrize(
    "trace",
    [
        "nccl_parser_config/nccl_data.json.gz",
        "trace_diff/control/control.json.gz",
        "trace_diff/test/test.json.gz",
    ],
)
def test_real_traces_whose_hosts_wait_in_calls_are_not_in_doubt(trace, real_events):
    graph = analyze.execution_graph(real_events("kineto-hta", trace))
    assert "polls" not in "".join(graph.doubts)
