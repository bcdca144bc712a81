"""Times of pipeline schedules: the bubbles of the textbooks, laws, refusals."""

from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import analyze
from workbench.analyze import PassTimes
from workbench.analyze._lib.pipelines import ScheduleKind
from workbench.errors import PerformanceModelError, TableError
from workbench.tables import SCHEDULE_TIMES

KINDS = get_args(ScheduleKind)
shapes = st.tuples(st.integers(1, 4), st.integers(1, 3)).map(lambda x: (x[0], 2 * x[0] * x[1]))


def laid_out(kind, stages, micro_batches, chunks=None, **times):
    times = PassTimes(**{"forward_ns": 1.0, "backward_ns": 2.0} | times)
    schedule = analyze.pipeline_schedule(kind, stages, micro_batches, chunks)
    return analyze.schedule_times(schedule, times)


def summary(*args, **times):
    return analyze.schedule_summary(laid_out(*args, **times)).iloc[0]


@pytest.mark.oracle
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (2, 8), (4, 8), (8, 64), (16, 16)])
def test_bubbles_are_those_of_the_textbook(stages, micro_batches):
    ideal = (stages - 1) / micro_batches
    for kind in ("gpipe", "1f1b"):
        assert summary(kind, stages, micro_batches)["bubble_ratio"] == pytest.approx(ideal)
    for chunks in (2, 4):
        row = summary("interleaved", stages, micro_batches, chunks)
        assert row["bubble_ratio"] == pytest.approx(ideal / chunks)


@pytest.mark.oracle
@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize(("backward", "weight"), [(2.0, 1.0), (2.2, 0.6), (1.9, 0.8)])
def test_bubbles_are_those_that_dualpipe_prints(stages, backward, weight):
    times = {"backward_ns": backward, "weight_ns": weight}
    batches = 4 * stages
    plain = summary("1f1b", stages, batches, **times)
    assert plain["bubble_ns"] == pytest.approx((stages - 1) * (1 + backward))
    for chunks in (1, 2):
        split = summary("zero_bubble", stages, batches, chunks, **times)
        assert split["bubble_ns"] == pytest.approx((stages - 1) * (1 + backward - 2 * weight))


@pytest.mark.oracle
@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("pair", [3.0, 2.7, 2.25])
def test_dualpipe_v_has_its_printed_bubble_where_forward_input_and_weight_part_are_equal(
    stages, pair
):
    row = summary("dualpipe_v", stages, 4 * stages, weight_ns=1.0, overlapped_ns=pair)
    # Stages of the formula are chunks here: two of them on each device.
    stages_printed = 2 * stages
    assert row["bubble_ns"] == pytest.approx((stages_printed / 2 - 1) * (pair + 2 - 3))
    assert row["chunk_count"] == 2
    assert row["peak_activations_count"] == stages_printed + 1


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["1f1b", "zero_bubble"])
def test_activations_kept_are_as_many_as_stages(kind):
    assert summary(kind, 8, 32)["peak_activations_count"] == 8
    assert summary("gpipe", 8, 32)["peak_activations_count"] == 32
    assert summary("zbv", 8, 32)["peak_activations_ratio"] == 8


@pytest.mark.oracle
def test_zb_v_stages_never_pause_where_all_three_parts_are_equal():
    times = laid_out("zbv", 4, 16, backward_ns=2.0)
    for at, own in times.groupby("stage"):
        span = (own["start_ns"] + own["dur_ns"]).max() - own["start_ns"].min()
        assert span == pytest.approx(own["dur_ns"].sum()), at


durations = st.floats(0.1, 5)


@settings(max_examples=12)
@given(st.sampled_from(KINDS), shapes, st.data())
def test_nothing_starts_before_its_input_and_a_stage_does_one_thing_at_a_time(kind, shape, data):
    schedule = analyze.pipeline_schedule(kind, *shape)
    size = (schedule["chunk"].nunique(), shape[1])
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    forward, backward = rng.uniform(0.1, 5, (2, *size))
    times = PassTimes(forward, backward, backward * 0.3, transfer_ns=0.2)
    table = SCHEDULE_TIMES.check(analyze.schedule_times(schedule, times))
    table = table.assign(end=table["start_ns"] + table["dur_ns"])
    for _, own in table.groupby("stage"):
        before = own["end"].cummax().shift(fill_value=0.0).to_numpy()
        second = own["is_overlapped"] & own["action"].ne("F")
        assert (own["start_ns"].to_numpy() >= before - 1e-9)[~second].all()
    ends = table.set_index(["action", "chunk", "micro_batch"])[["end", "stage"]]
    last = size[0] - 1
    for row in table.itertuples():
        need = {"F": [("F", row.chunk - 1)] if row.chunk else [], "W": [("I", row.chunk)]}.get(
            row.action, [("B", row.chunk + 1), ("I", row.chunk + 1)]
        )
        if row.action in "BI" and row.chunk == last:
            need = [("F", row.chunk)]
        starts_of = [ends.loc[(*key, row.micro_batch)] for key in need
                 if (*key, row.micro_batch) in ends.index]  # fmt: skip
        assert len(starts_of) == min(len(need), 1)
        for passes_of in starts_of:
            assert row.start_ns >= passes_of["end"] + 0.2 * (passes_of["stage"] != row.stage) - 1e-9


@settings(max_examples=12)
@given(st.sampled_from(KINDS), shapes, st.floats(0, 2), st.floats(1.1, 9))
def test_steps_grow_with_every_duration_and_scale_with_all(kind, shape, transfer, factor):
    def step(scale=1.0, **more):
        times = {"forward_ns": 1.0, "backward_ns": 2.0, "weight_ns": 0.7, "transfer_ns": transfer}
        times = {name: scale * value for name, value in (times | more).items()}
        table = laid_out(kind, *shape, **times)
        return (table["start_ns"] + table["dur_ns"]).max()

    plain = step()
    assert step(factor) == pytest.approx(factor * plain)
    assert step() == plain
    for name, longer in (("forward_ns", 1.5), ("backward_ns", 3.0), ("transfer_ns", transfer + 1)):
        assert step(**{name: longer}) >= plain - 1e-9


@settings(max_examples=12)
@given(st.sampled_from(KINDS), shapes)
def test_the_critical_path_is_passes_and_transfers_from_begin_to_end(kind, shape):
    table = laid_out(kind, *shape, transfer_ns=0.25)
    path = table[table["is_critical"]].sort_values("start_ns")
    assert path["start_ns"].iloc[0] == 0
    step = (table["start_ns"] + table["dur_ns"]).max()
    assert (path["start_ns"] + path["dur_ns"]).iloc[-1] == step
    gaps = (path["start_ns"].iloc[1:].to_numpy()
            - (path["start_ns"] + path["dur_ns"]).iloc[:-1].to_numpy())  # fmt: skip
    assert set(gaps.round(9)) <= {0.0, 0.25}
    assert summary(kind, *shape, transfer_ns=0.25)["critical_transfer_ns"] == pytest.approx(
        gaps.sum()
    )


@settings(max_examples=12)
@given(st.sampled_from(KINDS), shapes)
def test_busy_and_idle_time_of_a_stage_add_up_to_the_step(kind, shape):
    table = laid_out(kind, *shape, transfer_ns=0.1, overlapped_ns=2.5)
    costs = analyze.schedule_summary(table).iloc[0]
    busy = table.loc[~table["is_overlapped"] | table["action"].eq("F"), "dur_ns"].sum()
    assert costs["stage_count"] == shape[0]
    assert busy == pytest.approx((1 - costs["bubble_share"]) * costs["step_ns"] * shape[0])


def test_a_longer_pass_on_the_critical_path_lengthens_the_step_by_as_much():
    times = laid_out("1f1b", 4, 8)
    row = times[times["is_critical"] & times["action"].eq("F")].iloc[3]
    forward = np.ones((4, 8))
    forward[row["chunk"], row["micro_batch"]] += 0.5
    longer = summary("1f1b", 4, 8, forward_ns=forward)["step_ns"]
    assert longer == pytest.approx(summary("1f1b", 4, 8)["step_ns"] + 0.5)


def test_durations_can_differ_by_chunk():
    slow_last = summary("1f1b", 2, 4, forward_ns=[1.0, 2.0], backward_ns=np.array([[2.0], [4.0]]))
    assert slow_last["step_ns"] == 1 + 4 * 6 + 2


def test_transfers_between_chunks_of_one_stage_take_no_time():
    assert summary("zbv", 1, 4, transfer_ns=9.0)["step_ns"] == 4 * 2 * 3


def test_schedules_are_compared_on_the_same_model_the_fastest_first():
    times = PassTimes(1e6, 2e6, transfer_ns=1e4)
    table = analyze.schedule_comparison(times, stages=8, micro_batches=32)
    assert table["step_ns"].is_monotonic_increasing
    assert set(table["schedule"]) == set(KINDS)
    busy = table["step_ns"] * (1 - table["bubble_share"])
    assert np.allclose(busy, 32 * 3e6)
    doubts = table.set_index("schedule")["doubt"]
    assert doubts["dualpipe_v"].startswith("passes that overlap are taken to gain nothing")
    assert "half of the backward" in doubts["zbv"]
    assert pd.isna(doubts["1f1b"])
    sure = PassTimes(1e6, 2e6, 1e6, 1e4, 2.5e6)
    table = analyze.schedule_comparison(sure, stages=8, micro_batches=32)
    assert table["doubt"].isna().all()
    assert table["schedule"].iloc[0] == "dualpipe_v"


def test_schedules_that_do_not_exist_are_left_out_with_their_reason():
    times = PassTimes(1.0, 2.0)
    table = analyze.schedule_comparison(times, stages=4, micro_batches=2)
    assert set(table["schedule"]) == set(KINDS) - {"dualpipe_v"}
    assert "as many micro-batches as there are chunks" in table.attrs["impossible"]["dualpipe_v"]
    assert (
        table["doubt"].str.contains("2 micro-batches on 4 stages: the pipeline never fills").all()
    )
    with pytest.raises(
        PerformanceModelError, match="none of the schedules is possible: dualpipe_v"
    ):
        analyze.schedule_comparison(times, stages=4, micro_batches=2, kinds=["dualpipe_v"])


def test_several_schedules_are_summed_up_side_by_side():
    joined = pd.concat([laid_out("gpipe", 2, 4), laid_out("zbv", 2, 4)], ignore_index=True)
    joined["schedule"] = joined["schedule"].astype("category")
    table = analyze.schedule_summary(joined)
    assert table["schedule"].tolist() == ["gpipe", "zbv"]
    assert table["step_ns"].tolist() == [
        summary(kind, 2, 4)["step_ns"] for kind in ("gpipe", "zbv")
    ]


def test_an_empty_table_sums_up_to_nothing():
    assert analyze.schedule_summary(SCHEDULE_TIMES.empty()).empty
    assert (
        analyze.schedule_summary(laid_out("gpipe", 1, 1, forward_ns=0.0, backward_ns=0.0))[
            "bubble_ratio"
        ]
        .isna()
        .all()
    )


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (PassTimes(-1.0, 2.0), "forward_ns must be numbers of at least 0, not -1"),
        (PassTimes(1.0, float("nan")), "backward_ns must be numbers of at least 0, not nan"),
        (PassTimes(np.ones(3), 2.0), r"forward_ns has shape \(3,\); give one number, 2 "),
        (PassTimes(1.0, 2.0, 3.0), "part of backward_ns, but in chunk 0, micro-batch 0 it is 3 of"),
        (PassTimes(1.0, 2.0, transfer_ns=np.ones((2, 3))), r"has shape \(2, 3\); .* 2 x 4"),
    ],
)
def test_durations_that_cannot_be_are_refused(times, words):
    with pytest.raises(PerformanceModelError, match=words):
        analyze.schedule_times(analyze.pipeline_schedule("1f1b", 2, 4), times)


def test_comparison_takes_one_number_per_kind_of_pass():
    with pytest.raises(PerformanceModelError, match="one number per kind of pass, not by chunk"):
        analyze.schedule_comparison(PassTimes(np.ones(4), 2.0), stages=4, micro_batches=8)


ONE = PassTimes(1.0, 2.0)


def test_a_schedule_changed_by_hand_is_laid_out_if_it_can_run():
    schedule = analyze.pipeline_schedule("1f1b", 2, 4)
    shuffled = analyze.schedule_times(schedule.sample(frac=1, random_state=1), ONE)
    assert shuffled.equals(analyze.schedule_times(schedule, ONE))
    # The first stage computes B1 before F2, which the others wait for.
    swapped = schedule["position"].replace({3: 4, 4: 3}).where(schedule["stage"] == 0)
    eager = schedule.assign(position=swapped.fillna(schedule["position"]).astype("int32"))
    step = analyze.schedule_summary(analyze.schedule_times(eager, ONE))["step_ns"].iloc[0]
    assert step > summary("1f1b", 2, 4)["step_ns"]


def test_a_schedule_that_cannot_run_is_refused():
    schedule = analyze.pipeline_schedule("1f1b", 2, 2)
    position = schedule["position"].to_numpy()
    reversed_ = schedule.assign(position=(position.max() - position).astype("int32"))
    with pytest.raises(PerformanceModelError, match=r"stage 0 stands before B of micro-batch 1 in"):
        analyze.schedule_times(reversed_, ONE)


def test_a_schedule_that_lacks_or_doubles_a_pass_is_refused():
    schedule = analyze.pipeline_schedule("zero_bubble", 2, 2)
    without = schedule[~(schedule["action"].eq("W") & schedule["micro_batch"].eq(1))]
    with pytest.raises(
        PerformanceModelError, match="micro-batch 1 in chunk 0 has F I; each needs F"
    ):
        analyze.schedule_times(without, ONE)
    twice = pd.concat([schedule, schedule.iloc[[0]].assign(position=99)], ignore_index=True)
    twice["position"] = twice["position"].astype("int32")
    with pytest.raises(PerformanceModelError, match="micro-batch 0 in chunk 0 has F I W F"):
        analyze.schedule_times(twice, ONE)


def test_a_chunk_lives_on_one_stage():
    schedule = analyze.pipeline_schedule("1f1b", 2, 2)
    moved = schedule.assign(stage=schedule["stage"].where(schedule.index != 0, 1))
    with pytest.raises(PerformanceModelError, match=r"chunk 0 is on stages \[0, 1\]"):
        analyze.schedule_times(moved, ONE)


def test_what_overlaps_is_a_forward_and_the_backward_behind_it():
    schedule = analyze.pipeline_schedule("dualpipe_v", 2, 4)
    at = schedule.index[schedule["overlapped_with"].notna()][0]
    wrong = schedule.copy()
    wrong.loc[at, "overlapped_with"] = 99
    with pytest.raises(PerformanceModelError, match=r"overlaps position .* follow each other and"):
        analyze.schedule_times(wrong, ONE)


def test_one_schedule_at_a_time_is_laid_out():
    several = [analyze.pipeline_schedule(kind, 2, 4) for kind in ("gpipe", "1f1b")]
    joined = pd.concat(several, ignore_index=True)
    joined["schedule"] = joined["schedule"].astype("category")
    with pytest.raises(PerformanceModelError, match=r"holds \['gpipe', '1f1b'\]"):
        analyze.schedule_times(joined, ONE)
    with pytest.raises(PerformanceModelError, match="the table holds none"):
        analyze.schedule_times(several[0].iloc[:0], ONE)


def test_unknown_actions_and_other_tables_are_refused():
    schedule = analyze.pipeline_schedule("1f1b", 2, 2)
    renamed = schedule.assign(action=schedule["action"].cat.rename_categories({"F": "forward"}))
    with pytest.raises(PerformanceModelError, match=r"must be F, B, I, W, not \['forward'\]"):
        analyze.schedule_times(renamed, ONE)
    with pytest.raises(TableError, match="'pipeline_schedule'"):
        analyze.schedule_times(schedule.drop(columns="stage"), ONE)
