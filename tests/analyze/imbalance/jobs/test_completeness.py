"""Recordings that are not whole: the replay refuses them, or drops and counts."""

import numpy as np
import pandas as pd
import pytest

from workbench import analyze, simulate
from workbench.errors import WorkbenchError
from workbench.tables import JOB_OPERATIONS

SHAPE = (4, 3, 4, 5)


@pytest.fixture(scope="module")
def whole():
    return simulate.pipeline_job({"sequence lengths": 0.3}, seed=5, shape=SHAPE).operations


def without(table, **where):
    """Leave out the rows that have all these values."""
    mine = np.logical_and.reduce([table[name] == value for name, value in where.items()])
    return table[~mine].reset_index(drop=True)


def judged(table):
    return analyze.job_slowdown(table, incomplete="leave out").iloc[0]


def test_a_whole_job_stays_as_it_is(whole):
    kept = analyze.complete_steps(whole)
    pd.testing.assert_frame_equal(kept, whole)
    assert kept.attrs["left_out"] == {}
    assert pd.isna(judged(whole)["note"])


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
def test_what_is_not_whole_is_left_out_and_counted(whole, damage, reason):
    broken = damage(whole).reset_index(drop=True)
    with pytest.raises(WorkbenchError, match=r"analyze\.complete_steps leaves such steps out"):
        analyze.job_slowdown(broken)
    kept = analyze.complete_steps(broken)
    assert [text for text in kept.attrs["left_out"] if reason in text]
    row = judged(broken)
    assert reason in row["note"]
    assert row["slowdown_ratio"] == analyze.job_slowdown(kept).iloc[0]["slowdown_ratio"]


def test_the_result_is_that_of_the_steps_that_are_left(whole):
    broken = without(whole, step=0, dp_rank=1)
    some = whole[whole["step"] > 0].reset_index(drop=True)
    alone = analyze.job_slowdown(some).iloc[0]
    assert judged(broken)["slowdown_ratio"] == alone["slowdown_ratio"]
    assert judged(broken)["step_count"] == 4


def test_doubled_rows_that_differ_are_no_copies(whole):
    again = whole[whole["step"] == 3].assign(start_ns=lambda t: t["start_ns"] + 1)
    kept = analyze.complete_steps(pd.concat([whole, again], ignore_index=True))
    assert kept["step"].unique().tolist() == [0, 1, 2, 4]


def test_steps_with_fewer_micro_batches_are_not_mixed_with_the_others(whole):
    computes = whole["micro_batch"].notna()
    last = (whole["step"] == 0) & (
        (computes & (whole["micro_batch"] == 3))
        | (~computes & whole["operation"].astype(str).str.endswith(("send", "recv")))
        & (whole["sequence"] == 3)
    )  # fmt: skip
    kept = analyze.complete_steps(whole[~last].reset_index(drop=True))
    assert kept["step"].unique().tolist() == [1, 2, 3, 4]


def test_a_rare_operation_outside_the_pipeline_does_not_cost_its_step(whole):
    some = whole[whole["operation"] == "optimizer"].iloc[[0]]
    table = pd.concat([whole, some], ignore_index=True)
    names = [*table["operation"].astype(str)[:-1], "checkpoint"]
    table = JOB_OPERATIONS.cast(table.assign(operation=pd.Categorical(names)))
    kept = analyze.complete_steps(table)
    assert kept.attrs["left_out"] == {"rows of operations that few steps have": 1}
    assert kept["step"].nunique() == 5


def test_a_worker_without_a_garbage_collection_lacks_nothing(whole):
    some = whole[(whole["operation"] == "optimizer") & (whole["step"] == 2)]
    pauses = some.assign(operation="gc", dur_ns=50_000_000).iloc[:1]
    table = pd.concat([whole.astype({"operation": str}), pauses], ignore_index=True)
    table = JOB_OPERATIONS.cast(table.astype({"operation": "category"}))
    kept = analyze.complete_steps(table)
    assert len(kept) == len(table)
    assert analyze.job_slowdown(table).iloc[0]["step_count"] == 5


def test_if_nothing_is_whole_the_reasons_are_told(whole):
    scattered = pd.concat(
        [whole[(whole["step"] == step) & (whole["dp_rank"] == step % 4)] for step in range(5)]
    )
    with pytest.raises(WorkbenchError, match=r"no step of the job is whole: .*that lack"):
        analyze.complete_steps(scattered.reset_index(drop=True))


def test_steps_may_be_a_sample_and_count_from_anywhere(whole):
    moved = whole.assign(step=whole["step"] * 7 + 1)
    same = ["slowdown_ratio", "verdict", "forward_backward_correlation"]
    ours, theirs = (analyze.job_slowdown(t).iloc[0][same].tolist() for t in (moved, whole))
    assert ours == theirs


def test_stages_and_chunks_may_count_from_one_but_that_is_told(whole):
    one = whole.assign(stage=whole["stage"] + 1, chunk=whole["chunk"] + 1)
    row = analyze.job_slowdown(one).iloc[0]
    assert row["slowdown_ratio"] == analyze.job_slowdown(whole).iloc[0]["slowdown_ratio"]
    assert "chunks count from 1" in row["note"]


@pytest.mark.parametrize(("stage", "side"), [(0, "before"), (2, "after")])
def test_an_outer_stage_that_is_missing_is_noticed(whole, stage, side):
    with pytest.raises(WorkbenchError, match=f"the stage {side} it is missing"):
        analyze.job_slowdown(without(whole, stage=stage))


def test_an_inner_stage_that_is_missing_is_named(whole):
    with pytest.raises(WorkbenchError, match=r"in chunk 1 is missing, which"):
        analyze.job_slowdown(without(whole, stage=1))


def test_a_job_of_which_only_computations_were_recorded_is_replayed(whole):
    only = whole[whole["micro_batch"].notna()].reset_index(drop=True)
    row = analyze.job_slowdown(only).iloc[0]
    full = analyze.job_slowdown(whole).iloc[0]
    assert row["slowdown_ratio"] == pytest.approx(full["slowdown_ratio"], rel=0.05)
    assert row["verdict"] == full["verdict"]
    measures = analyze.job_dispersion(only).set_index("measure")["value_ratio"]
    assert measures[measures.isna()].index.tolist() == [
        "waiting in data-parallel collectives",
        "time in pipeline receives",
        "time in pipeline sends",
    ]


def test_without_sends_and_receives_the_order_of_computations_is_enough(whole):
    texts = whole["operation"].astype(str)
    some = whole[~texts.str.endswith(("send", "recv"))].reset_index(drop=True)
    assert analyze.job_slowdown(some).iloc[0]["delay_ratio"] == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 4, 2, 2), (1, 3, 5, 2), (3, 1, 4, 2)])
def test_few_ranks_stages_or_micro_batches_are_no_special_case(shape):
    job = simulate.pipeline_job(seed=1, shape=shape)
    row = analyze.job_slowdown(job.operations).iloc[0]
    assert row["verdict"] == "no straggler"
    assert row["delay_ratio"] == pytest.approx(0, abs=1e-9)
    for part in ("worker", "stage", "dp_rank", "operation"):
        assert len(analyze.job_slowdown_by(job.operations, part))
    assert len(analyze.job_dispersion(job.operations)) == 13


def test_times_too_coarse_to_order_computations_are_flagged(whole):
    coarse = whole.assign(start_ns=whole["start_ns"] // 600_000_000 * 600_000_000)
    assert "starts are too coarse" in analyze.job_slowdown(coarse).iloc[0]["note"]


def test_durations_in_another_unit_than_starts_are_flagged(whole):
    mixed = whole.assign(dur_ns=whole["dur_ns"] * 1_000)
    assert "their unit is not that of the durations" in analyze.job_slowdown(mixed).iloc[0]["note"]


def test_operations_that_nobody_knows_are_local_and_named(whole):
    renamed = whole.assign(
        operation=whole["operation"].cat.rename_categories({"optimizer": "my-optimizer"})
    )
    assert "my-optimizer" in analyze.job_slowdown(renamed).iloc[0]["note"]


def test_other_names_of_operations_are_asked_for(whole):
    texts = whole["operation"].astype(str).str.replace("compute", "pass").astype("category")
    with pytest.raises(WorkbenchError, match=r"load\.job_operations\(\.\.\., operations="):
        analyze.job_slowdown(whole.assign(operation=texts))


def test_micro_batches_that_are_there_twice_are_refused(whole):
    same = whole.assign(micro_batch=(whole["micro_batch"] // 2).astype("Int32"))
    with pytest.raises(WorkbenchError, match="of micro-batch 0 in chunk 0 is there twice"):
        analyze.job_slowdown(same)


def test_tensor_parallel_ranks_in_rows_of_their_own_are_asked_for(whole):
    twice = pd.concat([whole, whole.assign(start_ns=whole["start_ns"] + 5)], ignore_index=True)
    with pytest.raises(WorkbenchError, match=r"columns=\{'tp_rank': \.\.\.\}"):
        analyze.job_slowdown(twice)


def test_an_unknown_way_with_incomplete_steps_is_refused(whole):
    with pytest.raises(ValueError, match="incomplete must be one of"):
        analyze.job_slowdown(whole, incomplete="ignore")
