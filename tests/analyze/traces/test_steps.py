"""Step times on host and GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.tables import EVENTS


def step(number, start, end, **more):
    row = {"start_ns": start, "end_ns": end, "name": f"ProfilerStep#{number}", "step": number}
    return row | {"category": "user_annotation"} | more


def test_host_and_gpu_times_stand_side_by_side(make_events):
    events = make_events(
        step(3, 0, 100),
        step(4, 100, 250),
        {"start_ns": 50, "end_ns": 90, "kind": "compute", "step": 3},
        {"start_ns": 110, "end_ns": 130, "kind": "memory", "step": 3},
    )
    table = analyze.step_times(events)
    assert table["step"].tolist() == [3, 4]
    assert table["host_ns"].tolist() == [100, 150]
    assert table["gpu_ns"].fillna(-1).tolist() == [80, -1]
    assert table["busy_ns"].fillna(-1).tolist() == [60, -1]


def test_times_since_the_epoch_keep_their_nanoseconds_beside_a_step_without_gpu_work(make_events):
    epoch = 1_768_204_822_312_927_649  # no float64 holds it
    events = make_events(
        step(3, epoch, epoch + 100),
        step(4, epoch + 100, epoch + 200),
        {"start_ns": epoch + 1, "end_ns": epoch + 2, "kind": "compute", "step": 3},
        {"start_ns": epoch + 3, "end_ns": epoch + 5, "kind": "compute", "step": 5},
    )
    table = analyze.step_times(events)
    assert table["start_ns"].dropna().tolist() == [epoch, epoch + 100]
    assert table["gpu_start_ns"].dropna().tolist() == [epoch + 1, epoch + 3]


def test_the_annotation_of_a_step_on_the_gpu_is_no_step_of_the_host(make_events):
    events = make_events(
        step(3, 5, 99, category="gpu_user_annotation"),
        {"start_ns": 50, "end_ns": 90, "kind": "compute", "step": 3},
    )
    table = analyze.step_times(events)
    assert table["host_ns"].isna().all()
    assert table["gpu_ns"].tolist() == [40]


def test_without_steps_the_table_is_empty(make_events):
    assert analyze.step_times(EVENTS.empty()).empty
    assert analyze.step_times(make_events({"start_ns": 0, "kind": "compute"})).empty


kernels = st.lists(
    st.fixed_dictionaries(
        {
            "start_ns": st.integers(0, 25),
            "dur_ns": st.integers(0, 9),
            "kind": st.sampled_from(["compute", "communication"]),
            "rank": st.integers(0, 1),
            "step": st.sampled_from([None, 3, 4]),
        }
    ),
    min_size=1,
    max_size=12,
)


@given(kernels)
def test_gpu_times_are_those_of_the_breakdown_by_step(make_events, some):
    events = make_events(*some)
    steps = analyze.step_times(events).set_index(["rank", "step"])
    parts = analyze.time_breakdown(events, by="step").dropna(subset="step")
    parts = parts.set_index(["rank", "step"])
    assert steps["gpu_ns"].tolist() == parts["span_ns"].tolist()
    assert steps["busy_ns"].tolist() == parts["busy_ns"].tolist()


@pytest.mark.oracle
def test_the_steps_of_a_real_trace_are_all_there(real_events):
    table = analyze.step_times(real_events("kineto-hta", "trace_diff/control/control.json.gz"))
    assert table["step"].tolist() == [1009, 1010, 1011, 1012, 1013, 1014]
    assert table["host_ns"].sum() == 464_945_000
    assert table["busy_ns"].notna().all()
