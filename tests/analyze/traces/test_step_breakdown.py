"""Steps split into parts: they follow each other, and their parts add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import STEP_BREAKDOWN

PARTS = ["compute", "exposed_communication", "exposed_memory", "exposed_other", "idle"]
KINDS = ["compute", "communication", "memory", "other"]


def stepped(*work, starts=(0, 100, 200)):
    rows = [
        {"name": f"ProfilerStep#{number}", "category": "user_annotation", "start_ns": start,
         "dur_ns": 90, "step": number}
        for number, start in enumerate(starts)
    ]  # fmt: skip
    names = ("start_ns", "dur_ns", "kind")
    return rows + [dict(zip(names, each, strict=True)) | {"stream": 7} for each in work]


def test_work_across_the_start_of_a_step_counts_on_both_sides(make_events):
    events = make_events(*stepped((90, 30, "compute"), (110, 20, "communication")))
    table = STEP_BREAKDOWN.check(analyze.step_breakdown(events))
    assert table["step"].tolist() == [0, 1]
    assert table["dur_ns"].tolist() == [100, 100]
    assert table["compute_ns"].tolist() == [10, 20]
    assert table["overlap_ns"].tolist() == [0, 10]
    assert table["exposed_communication_ns"].tolist() == [0, 10]
    assert table["idle_ns"].tolist() == [90, 70]


def test_a_trace_without_steps_is_one_from_first_to_last_work(make_events):
    events = make_events(*stepped((50, 10, "compute"), (90, 10, "compute"), starts=(0,)))
    (row,) = analyze.step_breakdown(events).to_dict("records")
    assert (row["dur_ns"], row["compute_ns"], row["idle_ns"]) == (50, 20, 30)
    assert analyze.step_breakdown(events)["step"].isna().all()


def test_steps_without_work_are_idle(make_events):
    events = make_events(*stepped((10, 10, "compute"), starts=(0, 100, 200, 300)))
    assert analyze.step_breakdown(events)["idle_ns"].tolist() == [90, 100, 100]


@given(
    work=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 150), st.sampled_from(KINDS)),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_parts_add_up_and_so_do_steps(make_events, work):
    work = [*work, (0, 1, "compute")]
    table = analyze.step_breakdown(make_events(*stepped(*work, starts=(0, 70, 90, 260, 600))))
    assert (table[[f"{part}_ns" for part in PARTS]].sum(axis=1) == table["dur_ns"]).all()
    whole = analyze.step_breakdown(make_events(*stepped(*work, starts=(0, 600, 601))))
    assert table["compute_ns"].sum() == whole["compute_ns"].iloc[0]
    assert table["overlap_ns"].sum() == whole["overlap_ns"].iloc[0]
    assert (table["overlap_ns"] <= table["compute_ns"]).all()


def test_without_gpu_work_there_is_nothing_to_split(make_events):
    with pytest.raises(WorkbenchError, match="no GPU work, so no step breakdown"):
        analyze.step_breakdown(make_events(*stepped()))


@pytest.mark.oracle
def test_a_real_trace_is_split_into_the_steps_that_were_measured(real_events):
    events = real_events("kineto-hta", "df_index_resolver/df_index_resolver.json.gz")
    table = analyze.step_breakdown(events)
    starts = analyze.step_times(events)["start_ns"].dropna().to_numpy()
    assert table["dur_ns"].tolist() == np.diff(starts).tolist()
    graph = analyze.execution_graph(events)
    replayed = analyze.replayed_events(events, graph, analyze.replay(graph))
    again = analyze.step_breakdown(replayed)
    assert again["dur_ns"].sum() == pytest.approx(table["dur_ns"].sum(), rel=0.005)
