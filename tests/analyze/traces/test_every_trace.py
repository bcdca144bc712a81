"""Every analysis on every kind of real trace: NVIDIA, AMD, CPU only, one rank, eight ranks."""

from pathlib import Path

import pandas as pd
import pytest

from workbench import analyze, load
from workbench.analyze import intervals
from workbench.errors import WorkbenchError

PUBLISHED = Path(__file__).resolve().parents[3] / "data" / "published" / "trace_breakdown.csv"
WITH_GPU = [
    *pd.read_csv(PUBLISHED)[["dataset", "file"]].itertuples(index=False, name=None),
    ("kineto-dlrm-8rank", "dlrm_kineto.tar.gz"),
    ("kineto-hta", "amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"),
]
WITHOUT_GPU = [
    "cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "rank_non_gpu/rank_non_gpu.json.gz",
]
NEED_GPU = ["time_breakdown", "communication_overlap", "idle_time", "model_tree", "phases"]


def nothing_is_lost(events):
    """Check that every analysis accounts for all GPU work, each in its own way."""
    work = events[events["kind"].notna()]
    spent = work.groupby("rank")["dur_ns"].sum().to_dict()
    for table, column in (
        (analyze.kernels(events), "total_ns"),
        (analyze.kernel_kinds(events), "total_ns"),
        (analyze.model_tree(events), "gpu_self_ns"),
        (analyze.phases(events), "gpu_ns"),
    ):
        assert table.groupby("rank")[column].sum().to_dict() == spent
    assert analyze.launches(events)["kernel_count"].sum() == len(work)
    assert len(analyze.collectives(events)) == (work["kind"] == "communication").sum()
    waits = analyze.collective_waits(events)
    assert analyze.late_arrivals(events, waits)["wait_ns"].sum() == waits["wait_ns"].sum()
    assert set(analyze.clocks(analyze.collectives(events))["rank"]) <= set(spent)
    copies = work["category"].isin(["gpu_memcpy", "gpu_memset"]).sum()
    assert analyze.copy_bandwidth(events)["copy_count"].sum() == copies
    whole = analyze.time_breakdown(events).set_index("rank")
    idle = analyze.idle_time(events).groupby("rank")["idle_ns"].sum()
    assert (whole["device_count"] == 1).all()
    assert idle.reindex(whole.index, fill_value=0).tolist() == whole["idle_ns"].tolist()
    end = work["start_ns"] + work["dur_ns"]
    for rank, start in work["start_ns"].groupby(work["rank"]):
        assert intervals.measure(start, end[start.index]) == whole.loc[rank, "busy_ns"]
    by_step = analyze.time_breakdown(events, by="step").groupby("rank")["busy_ns"].sum()
    assert (by_step >= whole["busy_ns"]).all()
    queues = analyze.queue_summary(analyze.queue_length(events))
    assert (queues["max_count"] >= 1).all()


@pytest.mark.oracle
@pytest.mark.parametrize(("dataset", "file"), WITH_GPU, ids=[file for _, file in WITH_GPU])
def test_no_gpu_work_of_a_real_trace_is_lost(dataset, file, real_events):
    nothing_is_lost(real_events(dataset, file))


@pytest.mark.oracle
@pytest.mark.parametrize("file", WITHOUT_GPU)
def test_a_trace_without_gpu_work_says_so_or_gives_empty_tables(file, real_events):
    events = real_events("kineto-hta", file)
    for name in NEED_GPU:
        with pytest.raises(WorkbenchError, match="no GPU work"):
            getattr(analyze, name)(events)
    for name in ("kernels", "kernel_kinds", "launches", "copy_bandwidth", "collectives"):
        assert getattr(analyze, name)(events).empty
    assert len(analyze.step_times(events)) == 1


def test_the_bundled_job_is_understood_and_its_slow_rank_found(fleet_demo):
    trace = load.traces(fleet_demo / "traces", progress=False)
    nothing_is_lost(trace.events)
    waits = analyze.collective_waits(trace.events, process_groups=trace.process_groups)
    assert set(waits["confidence"]) == {"high"}
    truth = pd.read_csv(fleet_demo / "truth.csv").set_index("what")
    blamed = analyze.straggler_attribution(waits).groupby("blamed_rank")["wait_ns"].sum()
    slow, late = (truth.loc[what, "rank"].max() for what in ("slow rank", "late host"))
    assert blamed.nlargest(2).index.tolist() == [slow, late]
