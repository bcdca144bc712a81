"""Recordings that are not whole: the replay refuses them, or drops and counts."""

import numpy as np
import pandas as pd
import pytest

from data import make
from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import JOB_OPERATIONS

SHAPE = (4, 3, 4, 5)


@pytest.fixture(scope="module")
def complete():
    return make.pipeline_job({"sequence lengths": 0.3}, seed=5, shape=SHAPE).operations


def without(table, **where):
    """Leave out the rows that have all these values."""
    is_dropped = np.logical_and.reduce([table[name] == value for name, value in where.items()])
    return table[~is_dropped].reset_index(drop=True)


def judged(table):
    return analyze.job_slowdown(table, incomplete="leave out").iloc[0]


def test_a_whole_job_stays_as_it_is(complete):
    kept = analyze.complete_steps(complete)
    pd.testing.assert_frame_equal(kept, complete)
    assert kept.attrs["left_out"] == {}
    assert pd.isna(judged(complete)["note"])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda t: without(t, step=0, dp_rank=1), "of 5 steps (0) that lack or double operations"),
        (lambda t: without(t, step=4, stage=2), "of 5 steps (4) that lack or double operations"),
        (lambda t: t.drop(index=t.index[-40:]), "of 5 steps (4) that lack or double operations"),
        (lambda t: without(t, dp_rank=2, stage=1), "of 4 data-parallel ranks (2) that lack"),
        (lambda t: pd.concat([t, t[t["step"] == 1]]), "rows that are there twice"),
    ],
)
def test_what_is_not_whole_is_left_out_and_counted(complete, damage, reason):
    broken = damage(complete).reset_index(drop=True)
    with pytest.raises(WorkbenchError, match=r"analyze\.complete_steps leaves such steps out"):
        analyze.job_slowdown(broken)
    kept = analyze.complete_steps(broken)
    assert [text for text in kept.attrs["left_out"] if reason in text]
    row = judged(broken)
    assert reason in row["note"]
    assert row["slowdown_ratio"] == analyze.job_slowdown(kept).iloc[0]["slowdown_ratio"]


def test_the_result_is_that_of_the_steps_that_are_left(complete):
    broken = without(complete, step=0, dp_rank=1)
    kept = complete[complete["step"] > 0].reset_index(drop=True)
    alone = analyze.job_slowdown(kept).iloc[0]
    assert judged(broken)["slowdown_ratio"] == alone["slowdown_ratio"]
    assert judged(broken)["step_count"] == 4


def test_doubled_rows_that_differ_are_no_copies(complete):
    again = complete[complete["step"] == 3].assign(start_ns=lambda t: t["start_ns"] + 1)
    kept = analyze.complete_steps(pd.concat([complete, again], ignore_index=True))
    assert kept["step"].unique().tolist() == [0, 1, 2, 4]


def test_steps_with_fewer_micro_batches_are_not_mixed_with_the_others(complete):
    computes = complete["micro_batch"].notna()
    last = (complete["step"] == 0) & (
        (computes & (complete["micro_batch"] == 3))
        | (~computes & complete["operation"].astype(str).str.endswith(("send", "recv")))
        & (complete["sequence"] == 3)
    )  # fmt: skip
    kept = analyze.complete_steps(complete[~last].reset_index(drop=True))
    assert kept["step"].unique().tolist() == [1, 2, 3, 4]


def test_a_rare_operation_outside_the_pipeline_does_not_cost_its_step(complete):
    kept = complete[complete["operation"] == "optimizer"].iloc[[0]]
    table = pd.concat([complete, kept], ignore_index=True)
    names = [*table["operation"].astype(str)[:-1], "checkpoint"]
    table = JOB_OPERATIONS.cast(table.assign(operation=pd.Categorical(names)))
    kept = analyze.complete_steps(table)
    assert kept.attrs["left_out"] == {"rows of operations that few steps have": 1}
    assert kept["step"].nunique() == 5


def test_a_worker_without_a_garbage_collection_lacks_nothing(complete):
    kept = complete[(complete["operation"] == "optimizer") & (complete["step"] == 2)]
    pauses = kept.assign(operation="gc", dur_ns=50_000_000).iloc[:1]
    table = pd.concat([complete.astype({"operation": str}), pauses], ignore_index=True)
    table = JOB_OPERATIONS.cast(table.astype({"operation": "category"}))
    kept = analyze.complete_steps(table)
    assert len(kept) == len(table)
    assert analyze.job_slowdown(table).iloc[0]["step_count"] == 5


def test_if_nothing_is_whole_the_reasons_are_told(complete):
    scattered = pd.concat(
        [
            complete[(complete["step"] == step) & (complete["dp_rank"] == step % 4)]
            for step in range(5)
        ]
    )
    with pytest.raises(WorkbenchError, match=r"no step of the job is complete: .*that lack"):
        analyze.complete_steps(scattered.reset_index(drop=True))


def test_steps_may_be_a_sample_and_count_from_anywhere(complete):
    moved = complete.assign(step=complete["step"] * 7 + 1)
    same = ["slowdown_ratio", "verdict", "forward_backward_correlation"]
    ours, theirs = (analyze.job_slowdown(t).iloc[0][same].tolist() for t in (moved, complete))
    assert ours == theirs


def test_stages_and_chunks_may_count_from_one_but_that_is_told(complete):
    one = complete.assign(stage=complete["stage"] + 1, chunk=complete["chunk"] + 1)
    row = analyze.job_slowdown(one).iloc[0]
    assert row["slowdown_ratio"] == analyze.job_slowdown(complete).iloc[0]["slowdown_ratio"]
    assert "chunks count from 1" in row["note"]


@pytest.mark.parametrize(("stage", "side"), [(0, "before"), (2, "after")])
def test_an_outer_stage_that_is_missing_is_noticed(complete, stage, side):
    with pytest.raises(WorkbenchError, match=f"the stage {side} it is missing"):
        analyze.job_slowdown(without(complete, stage=stage))


def test_an_inner_stage_that_is_missing_is_named(complete):
    with pytest.raises(WorkbenchError, match=r"in chunk 1 is missing, which"):
        analyze.job_slowdown(without(complete, stage=1))


def test_a_job_of_which_only_computations_were_recorded_is_replayed(complete):
    only = complete[complete["micro_batch"].notna()].reset_index(drop=True)
    row = analyze.job_slowdown(only).iloc[0]
    full = analyze.job_slowdown(complete).iloc[0]
    assert row["slowdown_ratio"] == pytest.approx(full["slowdown_ratio"], rel=0.05)
    assert row["verdict"] == full["verdict"]
    measures = analyze.job_dispersion(only).set_index("measure")["value_ratio"]
    assert measures[measures.isna()].index.tolist() == [
        "waiting in data-parallel collectives",
        "time in pipeline receives",
        "time in pipeline sends",
    ]


def test_without_sends_and_receives_the_order_of_computations_is_enough(complete):
    texts = complete["operation"].astype(str)
    kept = complete[~texts.str.endswith(("send", "recv"))].reset_index(drop=True)
    assert analyze.job_slowdown(kept).iloc[0]["delay_ratio"] == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 4, 2, 2), (1, 3, 5, 2), (3, 1, 4, 2)])
def test_few_ranks_stages_or_micro_batches_are_no_special_case(shape):
    job = make.pipeline_job(seed=1, shape=shape)
    row = analyze.job_slowdown(job.operations).iloc[0]
    assert row["verdict"] == "no straggler"
    assert row["delay_ratio"] == pytest.approx(0, abs=1e-9)
    for part in ("worker", "stage", "dp_rank", "operation"):
        assert len(analyze.job_slowdown_by(job.operations, part))
    assert len(analyze.job_dispersion(job.operations)) == 13


def test_times_too_coarse_to_order_computations_are_flagged(complete):
    coarse = complete.assign(start_ns=complete["start_ns"] // 600_000_000 * 600_000_000)
    assert "starts are too coarse" in analyze.job_slowdown(coarse).iloc[0]["note"]


def test_durations_in_another_unit_than_starts_are_flagged(complete):
    mixed = complete.assign(dur_ns=complete["dur_ns"] * 1_000)
    assert "their unit is not that of the durations" in analyze.job_slowdown(mixed).iloc[0]["note"]


def test_operations_that_nobody_knows_are_local_and_named(complete):
    renamed = complete.assign(
        operation=complete["operation"].cat.rename_categories({"optimizer": "my-optimizer"})
    )
    assert "my-optimizer" in analyze.job_slowdown(renamed).iloc[0]["note"]


def test_other_names_of_operations_are_asked_for(complete):
    texts = complete["operation"].astype(str).str.replace("compute", "pass").astype("category")
    with pytest.raises(WorkbenchError, match=r"load\.job_operations\(\.\.\., operations="):
        analyze.job_slowdown(complete.assign(operation=texts))


def test_micro_batches_that_are_there_twice_are_refused(complete):
    same = complete.assign(micro_batch=(complete["micro_batch"] // 2).astype("Int32"))
    with pytest.raises(WorkbenchError, match="of micro-batch 0 in chunk 0 is there twice"):
        analyze.job_slowdown(same)


def test_tensor_parallel_ranks_in_rows_of_their_own_are_asked_for(complete):
    twice = pd.concat(
        [complete, complete.assign(start_ns=complete["start_ns"] + 5)], ignore_index=True
    )
    with pytest.raises(WorkbenchError, match=r"columns=\{'tp_rank': \.\.\.\}"):
        analyze.job_slowdown(twice)


def test_an_unknown_way_with_incomplete_steps_is_refused(complete):
    with pytest.raises(ValueError, match="incomplete must be one of"):
        analyze.job_slowdown(complete, incomplete="ignore")
