"""Time breakdown: exact numbers of real traces, then a count of single nanoseconds."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench._shared.kernel_kinds import KINDS
from workbench.errors import TableError, WorkbenchError
from workbench.tables import EVENTS, TIME_BREAKDOWN

FILES = pd.read_csv(
    Path(__file__).resolve().parents[3] / "data" / "published" / "trace_breakdown.csv"
)
PARTS = ["compute_ns", "exposed_communication_ns", "exposed_memory_ns", "exposed_other_ns"]
kernel = st.fixed_dictionaries(
    {
        "start_ns": st.integers(0, 25),
        "dur_ns": st.integers(0, 9),
        "kind": st.sampled_from(KINDS),
        "rank": st.integers(0, 1),
        "device": st.integers(0, 1),
        "step": st.sampled_from([None, 3, 4]),
    }
)


def ns(us):
    """Turn printed microseconds into exact nanoseconds."""
    return round(us * 1000)


@pytest.mark.oracle
@pytest.mark.parametrize("row", list(FILES.itertuples()), ids=list(FILES["file"]))
def test_real_traces_are_split_to_the_nanosecond(row, real_events):
    events = real_events(row.dataset, row.file)
    work = events[events["kind"].notna()]
    found = analyze.time_breakdown(events).iloc[0]
    assert len(work) == row.gpu_count
    assert (work["kind"] == "communication").sum() == row.communication_count
    assert found["span_ns"] == ns(row.span_us)
    assert found["busy_ns"] == ns(row.busy_us)
    assert found["compute_ns"] == ns(row.compute_us)
    assert found["communication_ns"] == ns(row.communication_us)
    assert found["overlap_ns"] == (0 if np.isnan(row.overlap_us) else ns(row.overlap_us))


@pytest.mark.oracle
def test_the_eight_dlrm_ranks_are_split_to_the_nanosecond(real_events, published):
    found = analyze.time_breakdown(real_events("kineto-dlrm-8rank", "dlrm_kineto.tar.gz"))
    printed = published("trace_dlrm_ranks")
    for part in ("span", "busy", "compute", "communication", "exposed_communication"):
        assert (found[f"{part}_ns"] == printed[f"{part}_us"] * 1000).all(), part


@pytest.mark.oracle
def test_tracelens_agrees_on_the_launched_work_of_the_h100_trace(real_events, real_data):
    """TraceLens drops work without a launch, and counts memsets as compute."""
    events = real_events("kineto-h100", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
    launched = events[events["kind"].isna() | events["launch"].notna()].copy()
    launched.loc[launched["category"] == "gpu_memset", "kind"] = "compute"
    found = analyze.time_breakdown(launched).iloc[0]
    folder = real_data("kineto-h100") / "Qwen_Qwen1.5-0.5B-Chat__1016005_perf_report_csvs"
    printed = pd.read_csv(folder / "gpu_timeline.csv").set_index("type")["time ms"]
    names = {
        "computation_time": "compute_ns",
        "exposed_comm_time": "exposed_communication_ns",
        "exposed_memcpy_time": "exposed_memory_ns",
        "busy_time": "busy_ns",
        "idle_time": "idle_ns",
        "total_time": "span_ns",
    }
    for theirs, ours in names.items():
        # Their times are floats of microseconds since 1970, so steps of a quarter of one.
        assert found[ours] / 1e6 == pytest.approx(printed[theirs], abs=2.5e-4), theirs


@pytest.mark.oracle
def test_exact_times_never_exceed_the_sum_of_durations(real_events):
    file = "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
    events = real_events("kineto-hta", file)
    busy = analyze.time_breakdown(events)["busy_ns"].iloc[0]
    assert busy <= events.loc[events["kind"].notna(), "dur_ns"].sum()


@given(st.lists(kernel, min_size=1, max_size=14))
def test_every_part_is_the_number_of_its_nanoseconds(make_events, kernels):
    table = analyze.time_breakdown(make_events(*kernels))
    for row in table.itertuples():
        mine = [k for k in kernels if k["rank"] == row.rank]
        active = {kind: np.zeros(40, dtype=bool) for kind in KINDS}
        for k in mine:
            active[k["kind"]][k["start_ns"] : k["start_ns"] + k["dur_ns"]] = True
        c, n, m, o = (active[kind] for kind in KINDS)
        assert row.compute_ns == c.sum()
        assert row.communication_ns == n.sum()
        assert row.memory_ns == m.sum()
        assert row.overlap_ns == (n & c).sum()
        assert row.exposed_communication_ns == (n & ~c).sum()
        assert row.exposed_memory_ns == (m & ~c & ~n).sum()
        assert row.exposed_other_ns == (o & ~c & ~n & ~m).sum()
        assert row.busy_ns == (c | n | m | o).sum()
        first = min(k["start_ns"] for k in mine)
        assert row.span_ns == max(k["start_ns"] + k["dur_ns"] for k in mine) - first
        assert row.device_count == len({k["device"] for k in mine})


@given(st.lists(kernel, min_size=1, max_size=14), st.sampled_from(["rank", "step"]))
def test_the_parts_add_up_to_the_span(make_events, kernels, by):
    table = TIME_BREAKDOWN.check(analyze.time_breakdown(make_events(*kernels), by=by))
    known = table[table["span_ns"].notna()]
    assert (known[[*PARTS, "idle_ns"]].sum(axis=1) == known["span_ns"]).all()
    assert (table[PARTS].sum(axis=1) == table["busy_ns"]).all()
    assert (table["idle_ns"].dropna() >= 0).all()


@given(st.lists(kernel, min_size=1, max_size=14))
def test_a_step_is_split_like_a_trace_of_that_step_alone(make_events, kernels):
    table = analyze.time_breakdown(make_events(*kernels), by="step")
    for row in table[table["step"].notna()].itertuples(index=False):
        alone = [k for k in kernels if (k["rank"], k["step"]) == (row.rank, row.step)]
        expected = analyze.time_breakdown(make_events(*alone)).iloc[0]
        columns = TIME_BREAKDOWN.columns.keys() - {"step"}
        assert all(getattr(row, name) == expected[name] for name in columns)


@given(st.lists(kernel, min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(make_events, kernels, random):
    events = make_events(*kernels)
    shuffled = events.iloc[random.sample(range(len(events)), len(events))]
    pd.testing.assert_frame_equal(analyze.time_breakdown(events), analyze.time_breakdown(shuffled))


def test_work_outside_every_step_has_a_row_but_no_window(make_events):
    inside = {"start_ns": 10, "end_ns": 20, "kind": "compute", "step": 1}
    outside = [{"start_ns": start, "dur_ns": 3, "kind": "compute"} for start in (0, 50)]
    table = analyze.time_breakdown(make_events(inside, *outside), by="step")
    assert table["step"].fillna(-1).tolist() == [-1, 1]
    assert table["busy_ns"].tolist() == [6, 10]
    assert table["span_ns"].isna().tolist() == [True, False]
    assert table["idle_ns"].isna().tolist() == [True, False]


def test_annotations_and_synchronisation_are_no_work(make_events):
    events = make_events(
        {"start_ns": 10, "end_ns": 20, "kind": "compute"},
        {"start_ns": 0, "end_ns": 99, "category": "gpu_user_annotation", "stream": 7},
        {"start_ns": 0, "end_ns": 99, "category": "cuda_sync", "stream": 7},
    )
    assert analyze.time_breakdown(events)["span_ns"].tolist() == [10]


def test_a_rank_without_gpu_work_keeps_its_row(make_events):
    events = make_events(
        {"start_ns": 10, "end_ns": 20, "kind": "compute", "rank": 1},
        {"start_ns": 0, "end_ns": 9, "rank": 0},
    )
    table = analyze.time_breakdown(events)
    assert table["rank"].tolist() == [0, 1]
    assert table["device_count"].tolist() == [0, 1]
    assert table["span_ns"].isna().tolist() == [True, False]


def test_says_why_there_is_nothing_to_split(make_events):
    events = make_events({"start_ns": 0, "end_ns": 9}, {"start_ns": 2, "end_ns": 3})
    with pytest.raises(WorkbenchError, match=r"the 2 events of 1 rank are 2 cpu_op; record"):
        analyze.time_breakdown(events)
    with pytest.raises(WorkbenchError, match="there are no events"):
        analyze.time_breakdown(EVENTS.empty())


def test_refuses_an_unknown_grouping_a_foreign_frame_and_an_unknown_kind(make_events):
    events = make_events({"start_ns": 10, "end_ns": 20, "kind": "compute"})
    with pytest.raises(ValueError, match="by must be one of"):
        analyze.time_breakdown(events, by="stream")
    with pytest.raises(TableError, match="'kind' is missing"):
        analyze.time_breakdown(events.drop(columns="kind"))
    with pytest.raises(WorkbenchError, match="kind 'copying' in the events table"):
        analyze.time_breakdown(
            events.assign(kind=events["kind"].cat.rename_categories(["copying"]))
        )
