"""How well real traces are replayed, what each step is worth, and what held-out steps say."""

import numpy as np
import pandas as pd
import pytest

from workbench import analyze

CONTROL = ("kineto-hta", "trace_diff/control/control.json.gz")
TEST = ("kineto-hta", "trace_diff/test/test.json.gz")
DF_INDEX = ("kineto-hta", "df_index_resolver/df_index_resolver.json.gz")
NCCL = ("kineto-hta", "nccl_parser_config/nccl_data.json.gz")
NS = ("kineto-hta", "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz")
ALEXNET = ("kineto-hta", "critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz")
# Long traces of training, and short ones; nothing is said of which the rules were chosen on.
LONG = [
    DF_INDEX, NS, NCCL, CONTROL, TEST, ALEXNET, ("kineto-resnet", "resnet_kineto.json.gz"),
    ("kineto-h100", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"),
]  # fmt: skip
SHORT = [
    ("kineto-hta", "amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"),
    ("kineto-hta", "critical_path/cuda_event_sync/event_sync_trace.json.gz"),
    ("kineto-hta", "critical_path/cuda_event_sync_multi_stream/event_sync_trace.json.gz"),
    ("kineto-hta", "critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz"),
    ("kineto-resnet", "linear_kineto.json.gz"),
    ("kineto-h100", "Falconsai_nsfw_image_detection__1016002.json.gz"),
    ("kineto-h100", "gaunernst_bert-small-uncased__1016001.json.gz"),
]
# Samples of longer traces, most of whose launches are missing.
SAMPLED = [("kineto-hta", f"trace_filter/sampled_rank-{rank}.json.gz") for rank in (0, 1)]
WITH_STEPS = [DF_INDEX, NCCL, NS, CONTROL, TEST]


@pytest.fixture(scope="session")
def graph_of(real_events):
    """Build the graph of a real trace, once."""
    cached = {}

    def graph(trace):
        if trace not in cached:
            cached[trace] = analyze.execution_graph(real_events(*trace))
        return cached[trace]

    return graph


@pytest.fixture(scope="session")
def fidelity_of(real_events, graph_of):
    cached = {}

    def fidelity(trace):
        if trace not in cached:
            cached[trace] = analyze.replay_fidelity(real_events(*trace), graph_of(trace)).iloc[0]
        return cached[trace]

    return fidelity


@pytest.mark.oracle
@pytest.mark.parametrize("trace", [*LONG, *SHORT, *SAMPLED], ids=lambda each: each[1])
def test_every_trace_is_replayed_to_one_per_cent(trace, fidelity_of):
    prediction = fidelity_of(trace)
    assert abs(prediction["error_ratio"]) <= 0.01
    assert abs(prediction["span_error_ratio"]) <= 0.01
    assert prediction["explained_share"] >= 0.98
    assert prediction["breakdown_error_ratio"] <= (0.03 if trace in SAMPLED else 0.015)
    if prediction["step_count"] > 1:
        assert prediction["step_error_mean_ratio"] <= 0.01


@pytest.mark.oracle
@pytest.mark.parametrize("traces", [LONG, SHORT], ids=["long", "short"])
def test_on_average_replays_are_half_a_per_cent_off(traces, fidelity_of):
    errors = [abs(fidelity_of(trace)["error_ratio"]) for trace in traces]
    assert np.mean(errors) <= 0.005
    busy = pd.Series([fidelity_of(trace)["busy_correlation"] for trace in traces], dtype="Float64")
    assert busy.dropna().median() >= 0.9


@pytest.mark.oracle
def test_held_out_steps_are_predicted_from_the_others(real_events, graph_of):
    means = []
    for trace in WITH_STEPS:
        held = analyze.held_out_steps(real_events(*trace), graph_of(trace))
        errors = held["error_ratio"].abs()
        assert errors.max() <= 0.06, trace
        means.append(errors.mean())
    assert np.mean(means) <= 0.025


@pytest.mark.oracle
def test_the_queue_of_a_v100_takes_1021_launches(real_events, graph_of, fidelity_of):
    graph = graph_of(NS)
    build = graph.build.set_index("step").loc["queue limit"]
    assert build["note"] == "the queue takes 1,021 launches"
    assert build["inferred_count"] > 3_000
    without = analyze.graph_ablation(real_events(*NS), without=["queue limit"])
    full, less = without.iloc[0], without.iloc[1]
    assert full["error_ratio"] == fidelity_of(NS)["error_ratio"]
    assert 0.05 <= less["step_error_mean_ratio"] <= 0.1
    assert less["step_error_max_ratio"] == pytest.approx(0.155, abs=0.02)
    assert full["step_error_mean_ratio"] <= 0.003
    assert less["explained_share"] < full["explained_share"] - 0.02


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.parametrize(("trace", "least"), [(CONTROL, 0.1), (TEST, 0.1)])
def test_waits_between_streams_are_worth_a_tenth_of_a_step(trace, least, real_events):
    case = ("inter-stream", "residual")
    full, less = analyze.graph_ablation(real_events(*trace), without=[case]).to_dict("records")
    assert less["without"] == "inter-stream, residual"
    assert less["step_error_mean_ratio"] > least
    assert full["step_error_mean_ratio"] <= 0.01
    assert less["explained_share"] < full["explained_share"] - 0.05


@pytest.mark.long
@pytest.mark.oracle
def test_cuda_graphs_are_worth_something_where_there_are_any(real_events):
    full, less = analyze.graph_ablation(real_events(*TEST), without=["CUDA graphs"]).to_dict(
        "records"
    )
    assert less["breakdown_error_ratio"] > full["breakdown_error_ratio"]
    assert less["explained_share"] < full["explained_share"]


@pytest.mark.oracle
def test_cuda_graphs_whose_work_was_not_recorded_still_take_their_time(real_events):
    events = real_events(*TEST)
    calls = events.index[events["name"].astype(str) == "cudaGraphLaunch"]
    lost = events[~events["launch"].isin(calls)]
    assert len(lost) < len(events)
    graph = analyze.execution_graph(lost)
    time = graph.time_ns.max()
    assert "graph launches without recorded work" in graph.build["note"].str.cat()
    assert analyze.replay(graph).max() == pytest.approx(time, rel=0.005)
    # Their work was recorded: so long did each graph really take.
    work = events[events["launch"].isin(calls)]
    true = work.assign(end_ns=work["start_ns"] + work["dur_ns"]).groupby("launch")
    true_ns = true["end_ns"].max() - true["start_ns"].min()
    dark = graph.edges[
        (graph.edges["kind"] == "dark GPU time") & graph.edges["source"].isin(graph.gpu_start + 1)
    ]
    assert np.allclose(np.sort(dark["weight_ns"]), np.sort(true_ns), rtol=0.02)
    without = analyze.execution_graph(lost, without=["CUDA graphs"])
    assert analyze.replay(without).max() < 0.9 * time


@pytest.mark.oracle
def test_twice_the_time_for_everything_is_nearly_twice_the_time(real_events, graph_of):
    changes = [[analyze.Change(factor=2.0), analyze.Change(part="CPU", factor=2.0)]]
    for trace in (NCCL, NS):
        prediction = analyze.what_if(real_events(*trace), graph_of(trace), changes).iloc[0]
        assert 0.5 <= prediction["speedup_ratio"] <= 0.53


@pytest.mark.oracle
def test_half_the_compute_helps_where_the_gpu_is_the_limit(real_events, graph_of):
    changes = [analyze.Change(factor=0.5, kind="compute"), analyze.Change(part="CPU", factor=0.5)]
    for trace, least, most in ((NS, (0.4, 0), (0.5, 0.02)), (DF_INDEX, (0, 0.4), (0.01, 0.501))):
        prediction = analyze.what_if(real_events(*trace), graph_of(trace), changes)
        saved = 1 - 1 / prediction["speedup_ratio"]
        assert (saved >= np.array(least) - 1e-3).all(), trace
        assert (saved <= np.array(most)).all(), trace
