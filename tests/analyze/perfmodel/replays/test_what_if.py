"""What changes do to small traces whose answer can be counted by hand."""

import re

import numpy as np
import pytest

from workbench import analyze
from workbench.analyze import Change
from workbench.analyze._perfmodel.replays.change import changed_weights, chosen_work
from workbench.errors import PerformanceModelError, WorkbenchError
from workbench.tables import HELD_OUT_STEPS, WHAT_IF


@pytest.fixture
def trained(make_events, script):
    """Make four steps: a matmul and an all-reduce behind it, then a wait for both."""

    def make(*times, gap=20):
        trace = script()
        starts, now = [], 0
        for took in times:
            starts.append(now)
            trace.op(now, 30, "aten::linear")
            trace.launch(now + 10, (now + 20, took, 7))
            trace.rows[-1]["name"] = "gemm"
            trace.op(now + 40, 20, "c10d::allreduce_")
            trace.launch(now + 45, (now + 20 + took + 1, 100, 7))
            trace.rows[-1] |= {"name": "ncclAllReduce", "kind": "communication"}
            end = now + 20 + took + 101
            trace.call("device", now + 70, end - now - 70)
            now = end + gap
        trace.op(now, 10)
        trace.steps(*starts, now)
        return make_events(*trace.rows)

    return make


def asked(events, *changes, **options):
    graph = analyze.execution_graph(events)
    return WHAT_IF.check(analyze.what_if(events, graph, changes, **options)).iloc[-1]


def test_half_the_communication_saves_half_of_its_time(trained):
    prediction = asked(trained(300, 300, 300, 300), Change(factor=0.5, kind="communication"))
    assert prediction["question"] == "communication x0.5"
    assert prediction["measured_ns"] == 441_000
    assert prediction["predicted_ns"] == pytest.approx(391_000, abs=2_000)
    assert prediction["changed_ns"] == 400_000
    assert prediction["step_count"] == 3
    assert prediction["low_ns"] <= prediction["predicted_ns"] <= prediction["high_ns"]
    assert prediction["basis"] == "scaled"


@pytest.mark.parametrize(
    ("change", "saved_us"),
    [
        (Change(factor=0, name="^gemm$"), 266),  # then the launch is the limit
        (Change(factor=0.5, operator="linear"), 150),
        (Change(factor=0, stream=7), 340),
        (Change(factor=0, rank=0), 340),
        (Change(factor=2, kind="compute"), -300),
    ],
)
def test_a_change_is_about_what_it_names(trained, change, saved_us):
    prediction = asked(trained(300, 300, 300), change)
    assert prediction["measured_ns"] - prediction["predicted_ns"] == pytest.approx(
        1e3 * saved_us, abs=12_000
    )


def test_changes_in_one_question_add_up(trained):
    joint = [Change(factor=0.5, kind="compute"), Change(factor=0.5, kind="communication")]
    prediction = asked(trained(300, 300, 300), joint)
    assert prediction["question"] == "compute x0.5; communication x0.5"
    assert prediction["predicted_ns"] == pytest.approx(241_000, abs=3_000)


def test_a_faster_cpu_does_not_help_where_the_gpu_is_the_limit(trained):
    prediction = asked(trained(300, 300, 300, gap=0), Change(part="CPU", factor=0.5))
    assert prediction["speedup_ratio"] == pytest.approx(1.0, abs=0.06)


def test_fused_work_has_one_launch_and_no_gaps(make_events, script):
    trace = script()
    for number in range(10):
        trace.launch(20 * number, (20 * number + 6, 4, 7), dur=15)
    trace.launch(300, (310, 50, 9))
    events = make_events(*trace.rows)
    graph = analyze.execution_graph(events)
    change = Change(name="kernel on 7", is_fused=True)
    assert change.question == "kernel on 7 fused"
    assert Change(kind="compute", is_fused=True, factor=0.5).question == "compute fused x0.5"
    weight, touched = changed_weights(events, graph, [change])
    assert touched.sum() == 10
    before, after = analyze.replay(graph), analyze.replay(graph, weight_ns=weight)
    assert after.max() < before.max()
    order = graph.edges["kind"] == "stream order"
    assert (weight[order.to_numpy()] == 0).all()


def test_all_of_several_conditions_must_hold(trained):
    events = trained(300, 300)
    graph = analyze.execution_graph(events)
    chosen = chosen_work(events, graph, Change(name="gemm", operator="allreduce"))
    assert not chosen.any()
    with pytest.raises(PerformanceModelError, match=r"nothing in the trace is 'gemm of allreduce"):
        changed_weights(events, graph, [Change(name="gemm", operator="allreduce", factor=0.5)])


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"factor": -1}, "factor=-1: give the share of the time that is left"),
        ({"factor": np.inf}, "factor=inf"),
        ({"factor": np.nan}, "factor=nan"),
        ({"part": "TPU"}, "part='TPU' must be one of GPU, CPU"),
        ({"kind": "gemm"}, "kind='gemm' must be one of compute, "),
        ({"name": "("}, r"name='\(' is not a regular expression"),
        ({"operator": "*"}, r"operator='\*' is not a regular expression"),
        ({"part": "CPU", "name": "x"}, "a CPU has a rank only"),
        ({"part": "CPU", "is_fused": True}, "a CPU has a rank only"),
    ],
)
def test_changes_that_make_no_sense_are_refused(wrong, match):
    with pytest.raises(PerformanceModelError, match=match):
        Change(**wrong)


def test_predictions_are_refused_where_too_little_is_explained(make_events, script):
    trace = script()
    trace.launch(0, (10, 50, 7))
    trace.launch(20, (900, 50, 7))  # nothing tells why it waited
    events = make_events(*trace.rows)
    graph = analyze.execution_graph(events)
    with pytest.raises(
        PerformanceModelError, match=r"rank 0: only \d+\.\d% of the time is explained"
    ):
        analyze.what_if(events, graph, [Change(factor=0.5)])
    prediction = analyze.what_if(events, graph, [Change(factor=0.5)], least_explained_share=0)
    assert prediction["explained_share"].iloc[0] < 0.2
    assert not analyze.replay_fidelity(events, graph)["is_usable"].any()


@pytest.fixture
def overlapped(make_events, script):
    """Make steps of four kernels of 100 us; in some, each begins before the one before ends.

    A replay that keeps the order of the stream cannot know that, though all has a cause.
    """

    def make(*overlaps, idle=0):
        trace, now, starts = script(), 0, []
        for overlap in overlaps:
            starts.append(now)
            trace.op(now, 60)
            for kernel in range(4):
                began = now + 20 + kernel * (100 - overlap)
                trace.launch(now + 10 + 3 * kernel, (began, 100, 7))
            done = now + 420 - 3 * overlap
            trace.call("device", now + 70, done + 5 - now - 70)
            now = done + 10 + idle
        trace.op(now, 5)
        return make_events(*trace.steps(*starts, now).rows)

    return make


@pytest.mark.parametrize(
    ("overlaps", "idle", "limit", "words"),
    [
        ((0, 0, 0, 0), 0, None, ""),
        ((20, 20, 20, 20), 0, "most_error_ratio", r"the replayed time is \+1\d\.\d% off"),
        ((0, 0, 33, 0, 0, 0, 0, 0), 0, "most_step_error_ratio", r"the worst step is \d\d"),
        ((10, 10, 10, 10), 9_000, None, ""),
    ],
)
def test_a_graph_is_usable_only_if_the_replay_is_near(overlapped, overlaps, idle, limit, words):
    events = overlapped(*overlaps, idle=idle)
    graph = analyze.execution_graph(events)
    fidelity = analyze.replay_fidelity(events, graph).iloc[0]
    assert fidelity["explained_share"] > 0.98
    assert fidelity["is_usable"] == (limit is None)
    if limit is None:
        return
    assert re.search(words, fidelity["doubt"])
    with pytest.raises(PerformanceModelError, match=rf"rank 0: .*{words}.*GraphRules\(.*{limit}"):
        analyze.what_if(events, graph, [Change(factor=0.5)])
    names = ("most_error_ratio", "most_breakdown_error_ratio", "most_step_error_ratio")
    rules = analyze.GraphRules(**dict.fromkeys(names, 0.5))
    assert analyze.replay_fidelity(events, graph, rules=rules)["is_usable"].all()
    assert len(analyze.what_if(events, graph, [Change(factor=0.5)], rules=rules)) == 1


def test_parts_that_cancel_in_the_total_are_no_usable_graph(make_events, script):
    trace, now = script(), 0
    for _ in range(5):
        trace.op(now, 10)
        trace.launch(now + 2, (now + 10, 300, 7))
        # Overlaps on its stream, so that it is replayed behind; the host waits for another one.
        trace.launch(now + 5, (now + 160, 150, 7))
        trace.rows[-1] |= {"kind": "communication", "name": "all-reduce"}
        now += 900
    trace.op(now, 10)
    events = make_events(*trace.rows)
    prediction = analyze.replay_fidelity(events, analyze.execution_graph(events)).iloc[0]
    assert abs(prediction["error_ratio"]) < 0.01
    assert prediction["breakdown_error_ratio"] > 0.1
    assert not prediction["is_usable"]
    assert "the parts of the GPU time are" in prediction["doubt"]


def test_a_level_must_be_a_share(trained):
    with pytest.raises(WorkbenchError, match="confidence_level"):
        asked(trained(300, 300), Change(factor=0.5), confidence_level=95)


def test_no_question_has_no_answer(trained):
    events = trained(300, 300)
    assert len(analyze.what_if(events, analyze.execution_graph(events), [])) == 0


def test_a_step_is_predicted_from_the_others(trained):
    events = trained(300, 300, 300, 360, 300)
    graph = analyze.execution_graph(events)
    prediction = HELD_OUT_STEPS.check(analyze.held_out_steps(events, graph))
    assert prediction["step"].tolist() == [0, 1, 2, 3]
    assert prediction["measured_ns"].tolist() == [441_000, 441_000, 441_000, 501_000]
    assert prediction["predicted_ns"].iloc[3] == pytest.approx(441_000, abs=3_000)
    assert prediction["predicted_ns"].iloc[0] == pytest.approx(441_000 + 20_000, abs=3_000)
    assert (prediction["known_share"] > 0.9).all()
    assert prediction["naive_ns"].iloc[3] == 441_000


def test_equal_steps_predict_each_other(trained):
    events = trained(300, 300, 300, 300)
    prediction = analyze.held_out_steps(events, analyze.execution_graph(events))
    assert prediction["error_ratio"].abs().max() < 0.01


def test_rules_are_whole_numbers():
    with pytest.raises(WorkbenchError, match="clash_ns"):
        analyze.GraphRules(clash_ns=-1)
    with pytest.raises(WorkbenchError, match="jitter_ns"):
        analyze.GraphRules(jitter_ns=0.5)


def test_rules_change_what_is_concluded(make_events, script):
    trace = script()
    trace.launch(0, (10, 300, 1))
    trace.launch(16, (313, 50, 2))
    events = make_events(*trace.rows)
    patient = analyze.GraphRules(least_residual_ns=1_000_000)
    kinds = set(analyze.execution_graph(events, rules=patient).edges["kind"])
    assert "inter-stream" not in kinds
