"""The telling windows of a timeline, and what an event depends on."""

import pytest

from workbench import analyze, load
from workbench.errors import WorkbenchError

US = 1_000


def gpu(start, dur, **more):
    row = {"start_ns": start, "dur_ns": dur, "name": "gemm", "category": "kernel"}
    return row | {"kind": "compute", "device": 0, "stream": 7} | more


def host(start, dur, name, category="cpu_op", **more):
    row = {"start_ns": start, "dur_ns": dur, "name": name, "category": category}
    return row | {"process": "1", "thread": "1"} | more


@pytest.fixture
def waiting(make_events):
    """A kernel that waits for a copy on another stream: the copy ended long before it began."""
    return make_events(
        *[
            host(0, 90, "model"),
            host(5, 30, "copy_"),
            host(10, 5, "cudaMemcpyAsync", "cuda_runtime", id=2),
            gpu(20, 25, name="Memcpy HtoD", category="gpu_memcpy", kind="memory", stream=9, launch=2),
            host(22, 3, "cudaEventRecord", "cuda_runtime", correlation=77),
            host(30, 1, "Stream Wait Event", "cuda_sync", stream=7, wait_stream=9,
                 wait_correlation=77),
            host(40, 30, "mm"),
            host(50, 5, "cudaLaunchKernel", "cuda_runtime", id=7),
            gpu(60, 20, launch=7),
        ],
    )  # fmt: skip


def relations(table):
    return list(zip(table["relation"], table["event"], strict=True))


def test_a_kernel_depends_on_its_launch_its_operator_and_the_stream_it_waits_for(waiting):
    links = analyze.event_links(waiting, event=8)
    assert relations(links) == [("launched by", 7), ("called in", 6), ("waits for", 3)]
    assert links["name"].tolist() == ["cudaLaunchKernel", "mm", "Memcpy HtoD"]


def test_a_wait_issued_after_the_launch_holds_up_nothing(waiting):
    late = waiting.copy()
    late.loc[5, "start_ns"] = 58
    assert relations(analyze.event_links(late, event=8))[2:] == []


def test_calls_and_operators_say_what_they_launched(waiting):
    assert relations(analyze.event_links(waiting, event=7)) == [("launches", 8), ("called in", 6)]
    assert relations(analyze.event_links(waiting, event=0)) == [("launches", 3), ("launches", 8)]
    assert relations(analyze.event_links(waiting, event=0))[:1] == relations(
        analyze.event_links(waiting, event=0, most_launched=1)
    )


def test_work_without_a_launch_has_no_links(make_events):
    assert analyze.event_links(make_events(gpu(0, 5)), event=0).empty


def test_a_label_that_is_no_event_is_refused(waiting):
    with pytest.raises(WorkbenchError, match="no event has the label 99; take one of the 9"):
        analyze.event_links(waiting, event=99)


def test_the_longest_gap_not_the_most_idle_rank_is_the_first_window(make_events):
    # Rank 0 is idle more in total, in many short gaps; the one long gap is on rank 1.
    many = [gpu(n * 1_000 * US, 500 * US) for n in range(40)]
    one = [gpu(n * 1_000 * US + (n >= 20) * 5_000 * US, 1_000 * US, rank=1) for n in range(40)]
    table = analyze.telling_windows(make_events(*many, *one))
    first = table.iloc[0]
    assert (first["rank"], first["reason"], first["dur_ns"]) == (1, "GPU idle", 5_000 * US)
    assert first["start_ns"] < 20_000 * US < 25_000 * US < first["end_ns"]


def test_hidden_communication_is_no_window_and_exposed_is(make_events):
    events = make_events(
        *[
            gpu(0, 900 * US),
            gpu(0, 800 * US, name="nccl", kind="communication", stream=20),
            gpu(1_000 * US, 300 * US, name="nccl", kind="communication", stream=20),
            gpu(1_400 * US, 10 * US),
        ],
    )
    table = analyze.telling_windows(events)
    exposed = table[table["reason"] == "exposed communication"]
    assert exposed["dur_ns"].tolist() == [300 * US]


@pytest.mark.long
def test_every_window_of_a_real_job_differs_and_they_are_at_most_ten(dlrm):
    dlrm_events = load.traces(dlrm, progress=False).events
    table = analyze.telling_windows(dlrm_events)
    assert 5 <= len(table) <= 10
    assert len(analyze.telling_windows(dlrm_events, most_windows=3)) == 3
    for row in table.itertuples():
        assert row.dur_ns <= row.end_ns - row.start_ns
    with pytest.raises(WorkbenchError, match="most_windows"):
        analyze.telling_windows(dlrm_events, most_windows=0)
