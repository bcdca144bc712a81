"""Iterations of inference engines: GPU work belongs to the annotation that launched it."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, plot, simulate
from workbench.tables import Bundle

VLLM = "execute_{}_context_{}(sq{}sk{}sqsq9sqsk9)_generation_{}(sq{}sk99sqsq9sqsk9)"
DECODE = "step[DECODE bs=4]"
PREFILL = "step[EXTEND bs=2 toks=107]"


def iteration(
    name, host, gpu, *, rank=0, host_ns=10, kernels=(8,), step=10, call="cudaLaunchKernel"
):
    """Make an annotation of ``host_ns``, calls inside it, and kernels that run from ``gpu`` on."""
    rows = [{"rank": rank, "start_ns": host, "dur_ns": host_ns, "name": name,
             "category": "user_annotation"}]  # fmt: skip
    graph = "Graph" in call
    for number, dur in enumerate(kernels):
        label = f"{rank}.{host}" + ("" if graph else f".{number}")
        if not (graph and number):
            rows.append({"rank": rank, "start_ns": host + 1 + number, "dur_ns": 1, "id": label,
                         "name": call, "category": "cuda_runtime"})  # fmt: skip
        rows.append({"rank": rank, "start_ns": gpu + number * step, "dur_ns": dur, "launch": label,
                     "name": f"kernel {number}", "kind": "compute"})  # fmt: skip
    return rows if name else rows[1:]


def test_work_belongs_to_its_launch_and_not_to_the_time_of_the_annotation(make_events):
    """Naively, by the clock, the long prefill runs inside the annotations of decode."""
    rows = iteration(PREFILL, 0, 100, kernels=(90, 90), step=100)
    rows += iteration(DECODE, 100, 300, host_ns=150) + iteration(DECODE, 250, 320, host_ns=100)
    events = make_events(*rows)
    marks = events[events["category"] == "user_annotation"]
    table = analyze.inference_iterations(events)
    assert table["phase"].tolist() == ["prefill", "decode", "decode"]
    assert table["busy_ns"].tolist() == [180, 8, 8]
    assert table["gap_ns"].tolist() == [10, 12, 0]
    assert table["idle_ns"].tolist() == [10, 0, 0]
    periods = table.groupby("phase", observed=True)["period_ns"].sum()
    assert periods["prefill"] / periods.sum() == pytest.approx(200 / 228)
    # The naive reading sees no prefill at all, and all of it inside decode.
    starts = events.loc[events["kind"].notna(), "start_ns"]
    ends = marks["start_ns"] + marks["dur_ns"] - 1
    by_clock = [
        int(starts.between(*span).sum()) for span in zip(marks["start_ns"], ends, strict=True)
    ]
    assert by_clock == [0, 2, 2]


@pytest.mark.parametrize(
    ("name", "engine", "phase", "counts"),
    [
        (VLLM.format(130, 3, 128, 256, 2, 2), "vLLM", "mixed", (3, 128, 2, 2)),
        (VLLM.format(4, 0, 0, 0, 4, 4), "vLLM", "decode", (0, 0, 4, 4)),
        ("execute_context_3(100)_generation_0(0)", "vLLM", "prefill", (3, 100, 0, 0)),
        ("gpu_model_runner: forward", "vLLM", "unknown", (None,) * 4),
        ("execute_model", "vLLM", "unknown", (None,) * 4),
        (DECODE, "SGLang", "decode", (0, 0, 4, 4)),
        (PREFILL, "SGLang", "prefill", (2, 107, 0, 0)),
        ("step[EXTEND bs=2]", "SGLang", "prefill", (2, None, 0, 0)),
        ("step[MIXED bs=2]", "SGLang", "mixed", (None,) * 4),
        ("step[IDLE bs=0]", "SGLang", "unknown", (None,) * 4),
        ("[Executor] _forward_step 12: 3 ctx reqs, 5 gen reqs", "TensorRT-LLM", "mixed", (3, None, 5, 5)),
        ("[Executor] _forward_step 7: 0 ctx reqs, 5 gen reqs", "TensorRT-LLM", "decode", (0, 0, 5, 5)),
        ("transformer_forward", "xDiT", "unknown", (None,) * 4),
    ],
)  # fmt: skip
def test_annotations_of_engines_are_read_as_they_write_them(
    make_events, name, engine, phase, counts
):
    row = analyze.inference_iterations(make_events(*iteration(name, 0, 20))).iloc[0]
    assert (row["engine"], row["phase"], row["name"]) == (engine, phase, name)
    names = ("context_request", "context_token", "generation_request", "generation_token")
    told = [row[f"{count}_count"] for count in names]
    assert [None if pd.isna(value) else value for value in told] == list(counts)
    assert row["doubt"] == ""


def test_the_annotation_that_tells_most_is_taken_and_those_inside_it_are_not(make_events):
    rows = iteration("gpu_model_runner: forward", 2, 30, host_ns=5)
    rows += [{"start_ns": 0, "dur_ns": 20, "name": DECODE, "category": "user_annotation"}]
    rows += [{"start_ns": 30, "dur_ns": 8, "name": DECODE, "category": "gpu_user_annotation"}]
    table = analyze.inference_iterations(make_events(*rows))
    assert table["name"].tolist() == [DECODE]


def test_where_nothing_is_annotated_each_replay_is_an_iteration_and_is_doubted(make_events):
    rows = []
    for number in range(3):
        rows += iteration(
            "", 100 * number, 100 * number + 20, kernels=(8, 8), call="cudaGraphLaunch"
        )
    rows += iteration("", 500, 520, kernels=(8, 8, 8), call="cudaGraphLaunch")
    rows += iteration("", 600, 640)
    table = analyze.inference_iterations(make_events(*rows))
    assert table["graph"].tolist() == [0, 0, 0, 1]
    assert set(table["launch"]) == {"graph"}
    assert set(table["engine"]) == {"graph replay"}
    assert table["doubt"].str.startswith("nothing is annotated").all()


def test_an_iteration_says_whether_it_was_replayed(make_events):
    rows = iteration(DECODE, 0, 20, kernels=(8, 8), call="hipGraphLaunch")
    rows += iteration(PREFILL, 100, 120)
    table = analyze.inference_iterations(make_events(*rows))
    assert table["launch"].tolist() == ["graph", "eager"]
    assert table["graph"].isna().tolist() == [False, True]


def test_a_trace_without_iterations_has_none_and_the_figure_says_why(make_events):
    table = analyze.inference_iterations(make_events(*iteration("ProfilerStep#3", 0, 20)))
    assert len(table) == 0
    # Launched on another thread than the annotation.
    rows = iteration(DECODE, 0, 20)
    rows[1]["thread"] = "2"
    table = analyze.inference_iterations(make_events(*rows))
    assert len(table) == 0
    figure = plot.inference_iterations(table)
    assert "1 annotation of vLLM" in figure.to_json()


def test_annotations_without_gpu_work_are_counted(make_events):
    rows = iteration(DECODE, 0, 20)
    rows += [{"start_ns": 50, "dur_ns": 5, "name": DECODE, "category": "user_annotation"}]
    table = analyze.inference_iterations(make_events(*rows))
    assert table.attrs["left_out"] == {"annotations without GPU work": 1}


drawn = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(0, 120),
        st.lists(st.integers(0, 40), min_size=1, max_size=4),
        st.integers(1, 50),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.long
@given(drawn, st.lists(st.tuples(st.integers(0, 900), st.integers(0, 50)), max_size=4))
def test_periods_and_busy_idle_and_gap_times_fill_the_time_of_a_rank(make_events, drawn, others):
    rows = []
    for number, (is_decode, lag, kernels, step) in enumerate(drawn):
        name, host = (DECODE if is_decode else PREFILL), 50 * number
        rows += iteration(name, host, host + lag, kernels=kernels, step=step, host_ns=49)
    # Work outside all iterations, e.g. sampling: neither idle nor a gap.
    rows += [{"start_ns": at, "dur_ns": dur, "kind": "other"} for at, dur in others]
    events = make_events(*rows)
    table = analyze.inference_iterations(events)
    first, last = table["start_ns"].min(), (table["start_ns"] + table["dur_ns"]).max()
    assert table["period_ns"].sum() == last - first
    # Nanosecond by nanosecond.
    work = events[events["kind"].notna()]
    is_busy = np.zeros(5_000, dtype=bool)
    for row in work.itertuples():
        is_busy[row.start_ns : row.start_ns + row.dur_ns] = True
    not_busy = int((~is_busy[first:last]).sum())
    assert table["idle_ns"].sum() + table["gap_ns"].sum() == not_busy
    assert len(table) == len(drawn)
    assert (table["busy_ns"] <= table["dur_ns"]).all()


@pytest.mark.parametrize("gap_share", [0.01, 0.2, 0.6])
def test_the_gaps_of_a_simulated_engine_are_found(gap_share):
    trace = simulate.serving_trace(iterations=64, gap_share=gap_share, seed=3)
    table = analyze.inference_iterations(trace.events)
    assert len(table) == 64
    assert table["phase"].value_counts().to_dict() == {"decode": 56, "mixed": 8}
    assert table["launch"].value_counts().to_dict() == {"graph": 56, "eager": 8}
    last = table["period_ns"].iloc[:-1].sum()
    assert table["gap_ns"].iloc[:-1].sum() / last == pytest.approx(gap_share, abs=1e-3)
    rules = set(analyze.findings(Bundle(trace=trace)).findings["rule"])
    assert ("inference_gaps" in rules) == (gap_share >= 0.2)
