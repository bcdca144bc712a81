"""Traces of Ascend NPUs and of Kineto on accelerators other than NVIDIA's and AMD's."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.traces.ascend_files import BASE_US, meta, task, trace_view
from workbench import analyze, load
from workbench.errors import LoadError, WorkbenchError
from workbench.load.kinds import kinds_of


def loaded(tmp_path, events, name="trace_view.json", **options):
    path = tmp_path / name
    path.write_text(json.dumps(events))
    assert kinds_of(path) == {"traces"}
    return load.traces(path, progress=False, **options)


def test_work_of_the_npu_is_gpu_work_and_no_lane_counts_twice(tmp_path):
    trace = loaded(tmp_path, trace_view())
    events = trace.events.set_index("name")
    work = trace.events[trace.events["kind"].notna()]
    # Summing all rows of the hardware, or all lanes, counts waits and each collective twice.
    assert work.set_index("name")["kind"].astype(str).to_dict() == {
        "MatMulV2": "compute", "MEMCPY_ASYNC": "memory",
        "hcom_allReduce__101_0_1": "communication",
    }  # fmt: skip
    table = analyze.time_breakdown(trace.events).iloc[0]
    assert table[["busy_ns", "compute_ns", "communication_ns"]].tolist() == [180_000, 100_000, 60_000]  # fmt: skip
    assert events.loc["MatMulV2", "start_ns"] == (BASE_US + 200) * 1000 + 125
    assert events.loc["MatMulV2", "stream"] == 3
    launch = events.loc["MatMulV2", "launch"]
    assert trace.events.loc[launch, "name"] == "Node@launch"
    assert trace.steps["step"].tolist() == [4]
    told = trace.quality[trace.quality["finding"] == "skipped by design"]["what"]
    assert any("Overlap Analysis" in what for what in told)


def test_a_trace_without_the_hardware_is_refused_with_the_way_to_get_it(tmp_path):
    events = [one for one in trace_view() if one["pid"] not in (3, 4)]
    with pytest.raises(LoadError, match=r"without the process 'Ascend Hardware' .*analyse\(FOLDER"):
        loaded(tmp_path, events)


def test_without_a_lane_of_groups_the_collective_of_the_stream_counts(tmp_path):
    events = [one for one in trace_view() if one["pid"] != 3]
    table = analyze.time_breakdown(loaded(tmp_path, events).events)
    assert table["communication_ns"].tolist() == [60_000]


SPANS = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 400)), min_size=1, max_size=20)


@given(SPANS)
@settings(max_examples=30)
def test_busy_time_is_the_union_of_the_tasks(tmp_path_factory, spans):
    tasks = [task(start, dur, "Add", "AI_VECTOR_CORE", stream=n) for n, (start, dur) in
             enumerate(spans)]  # fmt: skip
    trace = loaded(tmp_path_factory.mktemp("npu"), [meta(4, "Ascend Hardware"), *tasks])
    moments = {us for start, dur in spans for us in range(start, start + dur)}
    assert analyze.time_breakdown(trace.events)["busy_ns"].tolist() == [len(moments) * 1000]


def kineto(category, **args):
    call = {"ph": "X", "cat": category, "name": "launch", "pid": 9, "tid": 9, "ts": 70, "dur": 1,
            "args": {"correlation": 7, "External id": 1}}  # fmt: skip
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm_kernel", "pid": 0, "tid": 64, "ts": 80,
              "dur": 30, "args": {"device": 0, "correlation": 7, "External id": 1, **args}}  # fmt: skip
    return {"schemaVersion": 1, "traceEvents": [call, kernel]}


@pytest.mark.parametrize("engine", ["auto", "python"])
def test_kernels_of_intel_have_the_queue_of_sycl_as_their_stream(tmp_path, engine):
    content = kineto("xpu_runtime", **{"sycl queue": 64, "l0 queue": "0x55d1"})
    events = loaded(tmp_path, content, "rank0.json", engine=engine).events.set_index("name")
    assert events.loc["gemm_kernel", "stream"] == 64
    assert events.loc["gemm_kernel", "launch"] == 0


@pytest.mark.parametrize(
    "category",
    ["xpu_runtime", "mtia_runtime", "privateuse1_runtime", "privateuse1_driver", "glow_runtime"],
)
def test_launches_of_every_vendor_are_joined_and_counted(tmp_path, category):
    events = loaded(tmp_path, kineto(category, stream=3), "rank0.json").events
    table = analyze.launches(events)
    assert len(table)


@pytest.mark.parametrize("category", ["hpu_op", "mtia_ccp_events"])
def test_device_rows_of_other_vendors_are_gpu_work(tmp_path, category):
    event = {"ph": "X", "cat": category, "name": "op", "pid": 0, "tid": 1, "ts": 80, "dur": 30}
    events = loaded(tmp_path, {"schemaVersion": 1, "traceEvents": [event]}, "rank0.json").events
    assert analyze.time_breakdown(events)["busy_ns"].tolist() == [30_000]


def test_without_gpu_work_the_activity_of_every_device_is_named(tmp_path):
    content = kineto("xpu_runtime")
    content["traceEvents"].pop()
    events = loaded(tmp_path, content, "rank0.json").events
    with pytest.raises(WorkbenchError, match=r"1 xpu_runtime.*XPU, HPU, MTIA or PrivateUse1"):
        analyze.time_breakdown(events)
