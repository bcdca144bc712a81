"""Where the time goes: the stacks add up, and the title says what the table says."""

import numpy as np
import pytest

from workbench import analyze, load, plot
from workbench.tables import COMMUNICATION_OVERLAP, STEP_TIMES, TIME_BREAKDOWN

US = 1_000


def part(rank, **more):
    row = {"rank": rank, "device_count": 1, "span_ns": 100 * US, "busy_ns": 80 * US}
    row |= {"compute_ns": 50 * US, "overlap_ns": 20 * US, "idle_ns": 20 * US}
    row |= {"exposed_communication_ns": 25 * US, "exposed_memory_ns": 5 * US}
    return row | more


def drawn(figure):
    return {trace.name: list(trace.y) for trace in figure.data}


def test_the_parts_stand_on_each_other_and_reach_the_span(build):
    figure = plot.time_breakdown(
        build(TIME_BREAKDOWN, [part(0), part(1, span_ns=140 * US, idle_ns=60 * US)])
    )
    assert drawn(figure) == {
        "compute": [30, 30],
        "overlapped": [20, 20],
        "exposed communication": [25, 25],
        "exposed memory": [5, 5],
        "idle": [20, 60],
    }
    assert figure.layout.barmode == "stack"
    assert figure.layout.yaxis.title.text == "time [µs]"
    assert (
        figure.layout.title.text == "GPUs compute 42 % of the time; the largest loss is idle, 33 %"
    )


@pytest.mark.oracle
def test_dlrm_stacks_reach_the_published_spans(dlrm):
    table = analyze.time_breakdown(load.traces(dlrm, progress=False).events)
    heights = np.sum(list(drawn(plot.time_breakdown(table)).values()), axis=0)
    assert heights * 1_000 == pytest.approx(
        [13_009, 18_749, 11_350, 18_853, 16_589, 16_392, 11_410, 10_967]
    )


def test_a_perfect_job_has_no_loss_to_name(build):
    perfect = part(0, compute_ns=100 * US, busy_ns=100 * US, overlap_ns=0, idle_ns=0)
    perfect |= {"exposed_communication_ns": 0, "exposed_memory_ns": 0}
    figure = plot.time_breakdown(build(TIME_BREAKDOWN, [perfect]))
    assert figure.layout.title.text == "GPUs compute 100 % of the time"
    assert list(drawn(figure)) == ["compute"]


def test_steps_are_labelled_below_their_rank(build):
    rows = [part(rank, step=step) for rank in (0, 3) for step in (7, 8, None)]
    figure = plot.time_breakdown(build(TIME_BREAKDOWN, rows))
    assert list(figure.layout.xaxis.ticktext) == [
        "7<br>rank 0", "8", "outside", "7<br>rank 3", "8", "outside",
    ]  # fmt: skip
    assert figure.layout.xaxis.title.text == "step"


def test_work_without_a_span_has_no_idle_part(build):
    figure = plot.time_breakdown(
        build(TIME_BREAKDOWN, [part(0, span_ns=None, idle_ns=None), part(1)])
    )
    assert drawn(figure)["idle"] == [0, 20]


def test_hundreds_of_columns_become_areas_with_the_same_heights(build):
    rows = [part(rank, compute_ns=(50 + rank) * US) for rank in range(200)]
    figure = plot.time_breakdown(build(TIME_BREAKDOWN, rows))
    assert {trace.type for trace in figure.data} == {"scatter"}
    assert {trace.stackgroup for trace in figure.data} == {"one"}
    assert drawn(figure)["compute"] == [30 + rank for rank in range(200)]


def test_of_thousands_the_worst_rank_is_still_there(build):
    rows = [part(rank) for rank in range(6_000)]
    rows[4_321] = part(4_321, idle_ns=9_000 * US, span_ns=9_080 * US)
    figure = plot.time_breakdown(build(TIME_BREAKDOWN, rows))
    assert max(drawn(figure)["idle"]) == 9_000 / 1_000
    assert "columns dropped" in figure.layout.title.subtitle.text
    idle = next(trace for trace in figure.data if trace.name == "idle")
    assert idle.text[int(np.argmax(idle.y))] == "4321"


def test_overlap_names_the_rank_that_hides_least(build):
    rows = [
        {"rank": 0, "communication_ns": 100, "overlap_ns": 60, "exposed_ns": 40,
         "overlap_share": 0.6},
        {"rank": 1, "communication_ns": 100, "overlap_ns": 10, "exposed_ns": 90,
         "overlap_share": 0.1},
        {"rank": 2},
    ]  # fmt: skip
    figure = plot.communication_overlap(build(COMMUNICATION_OVERLAP, rows))
    assert drawn(figure) == {"overlapped": [60, 10], "exposed communication": [40, 90]}
    assert figure.layout.title.text == (
        "35 % of the communication hides behind compute; least on rank 1, 10 %"
    )


def steps(*gpu_ns, **more):
    return [{"rank": 0, "step": step, "gpu_ns": ns} | more for step, ns in enumerate(gpu_ns)]


def test_step_times_names_the_longest_step(build):
    table = build(STEP_TIMES, [*steps(10, 10, 90), *steps(11, 12, 13, rank=1)])
    figure = plot.step_times(table)
    assert (
        figure.layout.title.text == "Step 2 of rank 0 takes longest: 90 ns, the median is 11.5 ns"
    )
    assert drawn(figure) == {"rank 0": [10, 10, 90], "rank 1": [11, 12, 13]}


def test_step_times_without_a_gpu_are_those_of_the_host(build):
    table = build(STEP_TIMES, [{"rank": 0, "step": s, "host_ns": 5 + s} for s in (1, 2)])
    figure = plot.step_times(table)
    assert figure.layout.yaxis.title.text == "host time of the step [ns]"


def test_a_single_step_is_drawn_as_one_bar_per_rank(build):
    table = build(STEP_TIMES, [*steps(10), *steps(20, rank=5)])
    figure = plot.step_times(table)
    assert figure.data[0].type == "bar"
    assert list(figure.layout.xaxis.ticktext) == ["0", "5"]


def test_of_many_ranks_the_slowest_are_drawn(build):
    rows = [row for rank in range(40) for row in steps(10, 10 + rank, rank=rank)]
    figure = plot.step_times(build(STEP_TIMES, rows))
    assert [trace.name for trace in figure.data] == [f"rank {rank}" for rank in range(28, 40)]
    assert "the 12 slowest of 40 ranks" in figure.layout.title.subtitle.text
