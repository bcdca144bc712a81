"""What holds of every what-if, on made traces of streams, launches and waits, and on real ones."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from workbench import analyze
from workbench._shared.kernel_kinds import KINDS
from workbench.analyze import Change
from workbench.analyze._perfmodel.replays.change import changed_weights
from workbench.errors import PerformanceModelError

REAL = [
    ("kineto-hta", "amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"),
    ("kineto-hta", "critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz"),
    ("kineto-hta", "critical_path/cuda_event_sync/event_sync_trace.json.gz"),
    ("kineto-hta", "critical_path/cuda_event_sync_multi_stream/event_sync_trace.json.gz"),
    ("kineto-hta", "critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz"),
    ("kineto-hta", "df_index_resolver/df_index_resolver.json.gz"),
    ("kineto-hta", "nccl_parser_config/nccl_data.json.gz"),
    ("kineto-hta", "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"),
    ("kineto-hta", "trace_diff/control/control.json.gz"),
    ("kineto-hta", "trace_diff/test/test.json.gz"),
    ("kineto-hta", "trace_filter/sampled_rank-0.json.gz"),
    ("kineto-hta", "trace_filter/sampled_rank-1.json.gz"),
    ("kineto-h100", "Falconsai_nsfw_image_detection__1016002.json.gz"),
    ("kineto-h100", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"),
    ("kineto-h100", "gaunernst_bert-small-uncased__1016001.json.gz"),
    ("kineto-resnet", "linear_kineto.json.gz"),
    ("kineto-resnet", "resnet_kineto.json.gz"),
    ("kineto-dlrm-8rank", "dlrm_kineto.tar.gz"),
]
DRAWN = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # A graph takes too long to be built hundreds of times for a smaller example.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
FASTER_CPU, FASTER_GPU = Change(part="CPU", factor=0.1), Change(factor=0.5)
# What neither a change of the CPU nor one of the GPU is about.
FIXED = ("launch", "stream order", "inter-stream", "dark GPU time", "trace start")


def answers(events, graph, changes, **options):
    return analyze.what_if(events, graph, changes, least_explained_share=0, **options)


def allow_nothing_faster_than_its_busiest_stream(events, graph, changes):
    """Compare with the time of the work that the steps launched on each stream, row by row."""
    prediction = answers(events, graph, changes)
    starts = np.sort(analyze.step_times(events)["start_ns"].dropna().unique())
    begin, end = events["start_ns"].min(), np.inf
    if prediction["low_ns"].notna().all() or len(starts) > 1:
        begin, end = starts[[0, prediction["step_count"].iloc[0]]]
    work = events[events["kind"].notna()]
    launch = work["launch"].fillna(-1).astype("int64")
    launched = events["start_ns"].reindex(launch).set_axis(work.index).fillna(work["start_ns"])
    inside = work[(launched >= begin) & (launched < end)]
    lanes = [inside[name].fillna(-1) for name in ("rank", "device", "stream")]
    busy = inside["dur_ns"].groupby(lanes).sum().max() if len(inside) else 0
    # What was queued before the first step still runs when it begins.
    queued = (work["start_ns"] + work["dur_ns"])[launched < begin]
    backlog = max(queued.max() - begin, 0) if len(queued) else 0
    for change, answer in zip(changes, prediction.itertuples(), strict=True):
        total = answer.predicted_ns * answer.step_count
        total *= answer.replayed_ns / max(answer.measured_ns, 1)
        factor = change.factor if change.part == "GPU" else 1
        assert total >= factor * busy - backlog - 4 * answer.step_count


@pytest.fixture
def backlog(make_events, script):
    """Make four steps of 1 ms on the host, each queuing ten kernels of 0.5 ms."""
    trace, free = script(), 0
    for step in range(4):
        trace.op(1_000 * step, 900, "train")
        for kernel in range(10):
            at = 1_000 * step + 10 + 80 * kernel
            began = max(free, at + 8)
            trace.launch(at, (began, 500, 7))
            free = began + 500
    return make_events(*trace.steps(0, 1_000, 2_000, 3_000, 4_000).rows)


def test_steps_are_those_of_the_gpu_where_the_host_runs_ahead(backlog):
    graph = analyze.execution_graph(backlog)
    cpu, compute = answers(
        backlog, graph, [FASTER_CPU, Change(kind="compute", factor=0.5)]
    ).to_dict("records")
    assert cpu["measured_ns"] == pytest.approx(5_000_000, rel=0.01)  # the host: 1,000,000
    assert cpu["speedup_ratio"] == pytest.approx(1.0, abs=0.01)
    assert cpu["low_ns"] <= cpu["predicted_ns"] <= cpu["high_ns"]
    assert compute["speedup_ratio"] == pytest.approx(2.0, abs=0.02)
    held = analyze.held_out_steps(backlog, graph)
    assert held["measured_ns"].tolist() == pytest.approx([5_000_000] * 3, rel=0.01)
    allow_nothing_faster_than_its_busiest_stream(backlog, graph, [FASTER_CPU, FASTER_GPU])


def test_without_steps_the_whole_ends_with_whatever_ends_last(make_events, script):
    trace = script()
    trace.launch(0, (10, 900, 7))
    trace.launch(4, (14, 895, 8))
    trace.rows[-1] |= {"kind": "communication", "name": "all-reduce"}
    events = make_events(*trace.rows)
    change = [Change(kind="compute", factor=0.1)]
    answer = answers(events, analyze.execution_graph(events), change).iloc[0]
    assert answer["predicted_ns"] == pytest.approx(909_000, abs=1_000)  # the other stream's end


def test_a_step_of_several_ranks_ends_when_the_last_rank_does(make_events, script):
    rows = []
    for rank, took in ((0, 100), (1, 700)):
        trace = script(rank)
        for step in range(4):
            trace.op(800 * step, 20)
            trace.launch(800 * step + 5, (800 * step + 15, took, 7))
            trace.call("device", 800 * step + 20, took)
        rows += trace.steps(*range(0, 3_201, 800)).rows
    events = make_events(*rows)
    graph = analyze.execution_graph(events)
    slower = answers(events, graph, [Change(rank=1, factor=2)]).iloc[0]
    assert slower["predicted_ns"] == pytest.approx(1_500_000, rel=0.01)


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])
def test_steps_in_the_spelling_of_2021_are_steps_everywhere(make_events, script, category):
    trace, now, starts = script(), 0, []
    for _ in range(4):
        starts.append(now)
        trace.op(now + 5, 20)
        trace.launch(now + 10, (now + 20, 300, 7))
        trace.call("device", now + 40, 285)
        now += 400
    for row in trace.steps(*starts, now).rows:
        if row.get("name", "").startswith("ProfilerStep"):
            row["category"] = category
    events = make_events(*trace.rows)
    graph = analyze.execution_graph(events)
    assert analyze.step_times(events)["step"].tolist() == [0, 1, 2, 3]
    answer = answers(events, graph, [FASTER_GPU]).iloc[0]
    assert (answer["step_count"], answer["measured_ns"]) == (3, 400_000)
    assert answer["predicted_ns"] == pytest.approx(250_000, abs=5_000)
    assert analyze.held_out_steps(events, graph)["step"].tolist() == [0, 1, 2]
    assert analyze.replay_fidelity(events, graph)["step_count"].item() == 4
    # A step is around everything else and is no work of the host.
    idle = analyze.idle_time(events).groupby("detail")["idle_ns"].sum()
    assert idle["operator"] == 3 * 5_000
    assert len(graph.time_ns) == 1 + 2 * 4 + 4 * (2 + 1) + 4 * 4


def stepped(rows, cuts):
    """Add steps that begin at some moments of a drawn trace, the first before everything."""
    start = min(row["start_ns"] for row in rows if "kind" not in row)
    starts = sorted({min(start, 0), *(1_000 * cut for cut in cuts)})
    marks = [
        {"rank": 0, "start_ns": first, "dur_ns": last - first, "name": f"ProfilerStep#{number}",
         "category": "user_annotation", "thread": "0"}
        for number, (first, last) in enumerate(pairwise(starts))
    ]  # fmt: skip
    return rows + marks


@pytest.mark.long
@pytest.mark.parametrize("has_steps", [False, True])
def test_no_prediction_is_below_the_busy_time_of_any_stream(make_events, traces, has_steps):
    @DRAWN
    @given(traces(), st.lists(st.integers(1, 4_000), min_size=2, max_size=5, unique=True))
    def hold(rows, cuts):
        events = make_events(*(stepped(rows, cuts) if has_steps else rows))
        graph = analyze.execution_graph(events)
        changes = [FASTER_CPU, FASTER_GPU, Change(factor=3)]
        try:
            changed_weights(events, graph, [FASTER_CPU])
        except PerformanceModelError:
            changes = changes[1:]
        allow_nothing_faster_than_its_busiest_stream(events, graph, changes)

    hold()


def halve_everything(events, graph):
    """Halve CPU and GPU: the replay halves but for latencies, which stay; return the answer."""
    pair = [Change(factor=0.5), Change(part="CPU", factor=0.5)]
    weight = changed_weights(events, graph, pair)[0]
    before, after = analyze.replay(graph).max(), analyze.replay(graph, weight_ns=weight).max()
    path = analyze.critical_path(events, graph, changes=pair)
    stays = path.loc[path["kind"].isin(FIXED), "dur_ns"].sum()
    assert before / 2 - len(path) <= after <= (before + stays) / 2 + len(path)
    even = graph.weight_ns // 2 * 2
    full, half = (analyze.replay(graph, weight_ns=weights) for weights in (even, even // 2))
    assert np.array_equal(full, 2 * half)


def change_nothing_that_is_not_there(events, graph):
    fidelity = analyze.replay_fidelity(events, graph)
    full = answers(events, graph, [Change(factor=1.0)], fidelity=fidelity).iloc[0]
    assert full["predicted_ns"] == full["measured_ns"]
    used = events.groupby(events["kind"].astype(object))["dur_ns"].agg(["size", "sum"])
    for kind in KINDS:
        change = Change(kind=kind, factor=0.1)
        if kind not in used.index:
            with pytest.raises(PerformanceModelError, match="nothing in the trace is"):
                answers(events, graph, [change], fidelity=fidelity)
        elif used.loc[kind, "sum"] == 0:
            same = answers(events, graph, [change], fidelity=fidelity).iloc[0]
            assert same["predicted_ns"] == same["measured_ns"]


def test_halving_everything_halves_the_time(make_events, traces):
    @DRAWN
    @given(traces())
    def hold(rows):
        events = make_events(*rows)
        assume(events["category"].isin(["cpu_op", "cuda_runtime"]).any())
        halve_everything(events, analyze.execution_graph(events))

    hold()


@pytest.mark.long
def test_a_change_of_a_kind_that_nothing_uses_changes_nothing(make_events, traces):
    @DRAWN
    @given(traces(), st.sampled_from(KINDS), st.booleans())
    def hold(rows, kind, is_empty):
        kinds = [row | ({"kind": kind} if "kind" in row else {}) for row in rows]
        if is_empty:
            kinds = [row | ({"dur_ns": 0} if "kind" in row else {}) for row in kinds]
        events = make_events(*kinds)
        change_nothing_that_is_not_there(events, analyze.execution_graph(events))

    hold()


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize(("dataset", "file"), REAL, ids=[file for _, file in REAL])
def test_the_laws_hold_for_every_shared_trace(dataset, file, real_events):
    events = real_events(dataset, file)
    graph = analyze.execution_graph(events)
    allow_nothing_faster_than_its_busiest_stream(events, graph, [FASTER_CPU, FASTER_GPU])
    halve_everything(events, graph)
    change_nothing_that_is_not_there(events, graph)
