"""Launches: counts of real traces, then each way in which work can be started."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.tables import EVENTS, LAUNCHES

NAMES = [
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaLaunchCooperativeKernel",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipExtLaunchMultiKernelMultiDevice",
    "cudaGraphLaunch",
    "hipGraphLaunch",
    "cudaMemcpyAsync",
    "hipMemcpyWithStream",
    "cudaMemsetAsync",
]


def launch(number, start, name="cudaLaunchKernel", **more):
    row = {"id": number, "start_ns": start, "dur_ns": 2, "category": "cuda_runtime"}
    return row | {"name": name} | more


def kernel(start, end, **more):
    return {"start_ns": start, "end_ns": end, "kind": "compute"} | more


def by_name(events):
    table = LAUNCHES.check(analyze.launches(events))
    return table.assign(name=table["name"].astype(object).fillna("none")).set_index("name")


@pytest.mark.oracle
def test_graphs_and_lost_launches_of_a_real_trace_are_counted(real_events):
    table = by_name(real_events("kineto-hta", "trace_diff/test/test.json.gz"))
    assert table.loc["cudaGraphLaunch", "call_count"] == 12
    assert table.loc["none", "kernel_count"] == 614
    assert table["kernel_count"].sum() == 15_632


@pytest.mark.oracle
def test_amd_launches_are_counted(real_events):
    file = "amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    table = by_name(real_events("kineto-hta", file))
    assert table["kernel_count"].to_dict() == {
        "hipLaunchKernel": 12,
        "hipExtModuleLaunchKernel": 2,
        "hipMemcpyWithStream": 2,
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_starts_work_is_known_even_if_the_work_is_not(make_events, name):
    events = make_events(launch(1, 0, name), launch(2, 5, "cudaEventRecord"))
    table = by_name(events)
    assert table["childless_count"].to_dict() == {name: 1}


def test_a_call_of_any_name_counts_if_it_started_work(make_events):
    events = make_events(launch(1, 0, "fancyNewCall"), kernel(5, 9, launch=1))
    assert by_name(events)["kernel_count"].to_dict() == {"fancyNewCall": 1}


def test_latency_and_queue_delay_are_told_apart(make_events):
    events = make_events(
        launch(1, 0),
        launch(2, 10),
        launch(3, 100),
        kernel(7, 50, launch=1),
        kernel(50, 60, launch=2),
        kernel(105, 106, launch=3),
    )
    row = by_name(events).loc["cudaLaunchKernel"]
    assert (row["latency_count"], row["latency_mean_ns"], row["latency_max_ns"]) == (2, 6, 7)
    assert (row["queued_count"], row["queue_mean_ns"], row["queue_median_ns"]) == (1, 40, 40)
    assert (row["host_ns"], row["host_mean_ns"], row["host_max_ns"]) == (6, 2, 2)


def test_another_stream_does_not_make_a_stream_busy(make_events):
    events = make_events(
        launch(1, 0), kernel(5, 50, launch=1, stream=1),
        launch(2, 10), kernel(14, 20, launch=2, stream=2),
    )  # fmt: skip
    assert by_name(events).loc["cudaLaunchKernel", "queued_count"] == 0


def test_one_graph_launch_starts_many_kernels(make_events):
    events = make_events(
        launch(1, 0, "cudaGraphLaunch"), *(kernel(t, t + 5, launch=1) for t in (10, 15, 20))
    )
    row = by_name(events).loc["cudaGraphLaunch"]
    assert (row["call_count"], row["kernel_count"]) == (1, 3)
    assert (row["latency_count"], row["queued_count"]) == (1, 2)


def test_work_before_its_launch_has_no_delay_but_is_counted(make_events):
    row = by_name(make_events(launch(1, 20), kernel(15, 30, launch=1))).loc["cudaLaunchKernel"]
    assert row["early_count"] == 1
    assert (row["latency_count"], row["queued_count"]) == (0, 0)
    assert row[["latency_mean_ns", "queue_max_ns"]].isna().all()


rows = st.lists(
    st.tuples(st.integers(0, 50), st.integers(-5, 20), st.integers(0, 9), st.booleans()),
    max_size=12,
)


@given(rows)
def test_every_piece_of_work_is_in_one_place(make_events, some):
    made = []
    for number, (start, delay, length, known) in enumerate(some):
        begin = max(0, start + delay)
        made.append(kernel(begin, begin + length, **({"launch": number} if known else {})))
        if known:
            made.append(launch(number, start))
    table = by_name(make_events(*made))
    known = table.drop(index="none", errors="ignore")
    assert table["kernel_count"].sum() == len(some)
    counted = known[["latency_count", "queued_count", "early_count"]].sum(axis=1)
    assert (counted == known["kernel_count"]).all()
    assert known["call_count"].sum() == sum(s[3] for s in some)


def test_without_calls_and_work_the_table_is_empty(make_events):
    assert analyze.launches(EVENTS.empty()).empty
    assert analyze.launches(make_events({"start_ns": 0})).empty
