"""Pipeline steps: the textbook bubble, laws of schedules, refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.analyze import Parallelism
from workbench.analyze._lib import pipelines as _pipeline_order
from workbench.errors import WorkbenchError
from workbench.tables import MICRO_BATCH_COSTS


def costs(forward, *, batches=1):
    forward = np.asarray(forward, dtype=np.float64)
    each = len(forward) // batches
    return MICRO_BATCH_COSTS.check(
        pd.DataFrame(
            {
                "batch": np.repeat(np.arange(batches), each),
                "micro_batch": np.tile(np.arange(each), batches),
                "length_tokens": np.full(len(forward), 100),
                "forward_cost": forward,
                "backward_cost": 2 * forward,
            }
        )
    )


@pytest.mark.parametrize(
    ("stages", "count", "chunks"), [(4, 4, 1), (4, 8, 2), (2, 6, 3), (8, 8, 1)]
)
def test_equal_micro_batches_leave_the_bubble_of_the_textbook(stages, count, chunks):
    shape = Parallelism(pipeline=stages, chunks=chunks)
    step = analyze.training_steps(costs([1.0] * count), shape).iloc[0]
    expected = (stages - 1) / chunks / (count + (stages - 1) / chunks)
    assert step["bubble_share"] == pytest.approx(expected)
    assert step["step_cost"] == pytest.approx(step["even_cost"])


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_the_order_is_one_forward_one_backward_after_the_warm_up(chunks):
    order = _pipeline_order.order("1f1b" if chunks == 1 else "interleaved", 4, 8, chunks)
    for stage in range(4):
        is_forward = order.action[order.stage == stage] == _pipeline_order.FORWARD
        assert len(is_forward) == 2 * 8 * chunks
        warm_up = is_forward.argmin() - 1
        expected = 3 - stage if chunks == 1 else 2 * (3 - stage) + (chunks - 1) * 4
        assert warm_up == expected


work = st.lists(st.floats(0.01, 5), min_size=8, max_size=8)


@given(work, st.sampled_from([(2, 1), (4, 1), (8, 1), (2, 2), (4, 2)]))
def test_no_stage_does_two_things_at_once_and_nothing_starts_before_its_input(forward, shape):
    stages, chunks = shape
    shape = Parallelism(pipeline=stages, chunks=chunks)
    table = costs(forward)
    tasks = analyze.pipeline(table, shape, batch=0)
    end = tasks["start_cost"] + tasks["dur_cost"]
    for _, mine in tasks.groupby("stage"):
        start = mine["start_cost"].to_numpy()
        assert (start[1:] >= (start + mine["dur_cost"].to_numpy())[:-1] - 1e-9).all()
    keys = zip(tasks["task"], tasks["micro_batch"], tasks["chunk"], strict=True)
    ends = dict(zip(keys, end, strict=True))
    for task, micro_batch, chunk, start in zip(
        *(tasks[name] for name in ("task", "micro_batch", "chunk", "start_cost")), strict=True
    ):
        before = (task, micro_batch, chunk - 1 if task == "forward" else chunk + 1)
        if task == "backward" and chunk == stages * chunks - 1:
            before = ("forward", micro_batch, chunk)
        assert start >= ends.get(before, 0.0) - 1e-9
    step = analyze.training_steps(table, shape).iloc[0]
    assert step["step_cost"] == pytest.approx(end.max())
    assert len(tasks) == 2 * 8 * stages * chunks


@given(work)
def test_a_step_is_never_shorter_than_its_busiest_stage_or_its_heaviest_micro_batch(forward):
    shape = Parallelism(pipeline=4)
    step = analyze.training_steps(costs(forward), shape)["step_cost"].iloc[0]
    assert step >= 3 * sum(forward) / 4 - 1e-9
    assert step >= 3 * max(forward) - 1e-9


def test_replicas_wait_for_the_slowest():
    shape = Parallelism(pipeline=2, data=2)
    step = analyze.training_steps(costs([1, 1, 1, 5]), shape).iloc[0]
    alone = analyze.training_steps(costs([1, 5]), Parallelism(pipeline=2)).iloc[0]
    assert step["step_cost"] == alone["step_cost"]
    assert step["dp_rank"] == 1
    assert step["critical_micro_batch"] == 3


def test_a_batch_of_zeros_is_not_divided_by():
    steps = analyze.training_steps(costs([0.0] * 4), Parallelism(pipeline=2))
    assert steps["step_cost"].iloc[0] == 0
    assert not steps.isna().any(axis=None)


def test_fewer_micro_batches_than_stages_run_with_a_larger_bubble():
    step = analyze.training_steps(costs([1.0, 1.0]), Parallelism(pipeline=4)).iloc[0]
    assert step["bubble_share"] == pytest.approx(3 / 5)
    assert step["note"].startswith("2 micro-batches on 4 stages: the pipeline never fills")


REFUSALS = {
    "deal": (Parallelism(data=3), [1] * 4, "4 micro-batches cannot be dealt to 3"),
    "groups": (Parallelism(chunks=2), [1] * 6, "groups of the 4 stages, which 6 are not"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_laid_out_is_refused(name):
    shape, forward, words = REFUSALS[name]
    with pytest.raises(WorkbenchError, match=words):
        analyze.training_steps(costs(forward), shape)


def test_batches_of_different_size_are_refused():
    ragged = pd.concat([costs([1] * 4), costs([1] * 2).assign(batch=1)], ignore_index=True)
    with pytest.raises(WorkbenchError, match=r"differ in their number of micro-batches \(2 to 4\)"):
        analyze.training_steps(ragged, Parallelism(pipeline=2))


def test_nothing_to_simulate_is_said():
    with pytest.raises(WorkbenchError, match="no micro-batches"):
        analyze.training_steps(MICRO_BATCH_COSTS.empty(), Parallelism())


def test_a_batch_that_is_not_there_is_refused():
    with pytest.raises(WorkbenchError, match="no batch 7; there are 1"):
        analyze.pipeline(costs([1] * 4), Parallelism(), batch=7)


def test_no_dimension_can_be_empty():
    with pytest.raises(WorkbenchError, match="whole numbers of at least 1"):
        Parallelism(context=0)
    assert Parallelism(pipeline=16, data=4, context=16, tensor=8).gpu_count == 8_192


def test_the_order_of_rows_does_not_matter():
    table = costs([1, 2, 3, 4, 4, 3, 2, 1], batches=2)
    shape = Parallelism(pipeline=2)
    shuffled = table.sample(frac=1, random_state=3)
    assert analyze.training_steps(shuffled, shape).equals(analyze.training_steps(table, shape))


@pytest.mark.parametrize("wrong", [{"pipeline": 2.5}, {"pipeline": "4"}, {"data": float("nan")}])
def test_dimensions_are_whole_numbers(wrong):
    with pytest.raises(WorkbenchError, match="whole numbers of at least 1"):
        Parallelism(**wrong)
