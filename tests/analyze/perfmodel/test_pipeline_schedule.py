"""Pipeline schedules: the orders of PyTorch, then refusals."""

from unittest import mock

import pytest

from workbench import analyze
from workbench.errors import PerformanceModelError
from workbench.tables import PIPELINE_SCHEDULE

CLASSES = {
    "interleaved": "ScheduleInterleaved1F1B",
    "zero_bubble": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipe_v": "ScheduleDualPipeV",
}
KINDS = ("gpipe", "1f1b", *CLASSES)
SHAPES = [(1, 1), (1, 4), (2, 2), (2, 5), (3, 7), (4, 4), (4, 6), (4, 10), (4, 12), (5, 9), (8, 24)]
CHUNKS = {"interleaved": (2, 3, 4), "zero_bubble": (1, 2, 4), "zbv": (2,), "dualpipe_v": (2,)}


@pytest.fixture(scope="module")
def schedules(torch_here, absent):
    """Give PyTorch's schedules; skip where they are of another generation."""
    del torch_here
    from torch.distributed.pipelining import schedules

    if not hasattr(schedules, "ScheduleDualPipeV"):
        absent("the installed PyTorch has no DualPipeV; 2.13 has")
    return schedules


def stage(group_size, num_stages, stage_index=0, group_rank=0):
    """Stand in for a stage of a model, as a schedule sees it."""
    reference = mock.MagicMock(
        group_size=group_size, num_stages=num_stages, stage_index=stage_index
    )
    reference.group_rank, reference.has_backward = group_rank, True
    reference.is_first, reference.is_last = (
        stage_index == 0,
        stage_index == num_stages - 1,
    )
    for way in ("fwd", "bwd"):
        for end in ("recv", "send"):
            getattr(reference, f"get_{way}_{end}_ops").return_value = []
    return reference


def of_torch(schedules, kind, stages, micro_batches, chunks):
    """List PyTorch's passes by stage: action, micro-batch, chunk, whether it overlaps another."""
    mocks = [stage(stages, stages * chunks, stages * item) for item in range(chunks)]
    reference = getattr(schedules, CLASSES[kind])(mocks, micro_batches)
    ranks = []
    for rank in range(stages):
        passes = []
        for action in filter(None, reference.pipeline_order[rank]):
            actions = action.sub_actions or (action,)
            passes += [
                (sub_action.computation_type.value, sub_action.microbatch_index, sub_action.stage_index,
                 len(actions) == 2)
                for sub_action in actions
                if sub_action.computation_type.value in {"F", "B", "I", "W"}
            ]  # fmt: skip
        ranks.append(passes)
    return ranks


def run_by_torch(schedules, name, rank, stages, micro_batches):
    """Run one stage of a schedule that PyTorch does not keep as a list; say what it did."""
    passes, runner = [], stage(stages, stages, rank, rank)
    runner.forward_one_chunk.side_effect = lambda at, *_, **__: passes.append(
        ("F", at, rank, False)
    )
    runner.backward_one_chunk.side_effect = lambda at, **__: passes.append(("B", at, rank, False))
    reference = getattr(schedules, name)(runner, micro_batches)
    nothing = [()] * micro_batches
    with mock.patch.object(reference, "_initialize_stage"):
        reference._step_microbatches(nothing, [{}] * micro_batches, nothing, None)
    return passes


def of_ours(schedule):
    rows = zip(
        schedule["stage"], schedule["action"], schedule["micro_batch"], schedule["chunk"],
        schedule["overlapped_with"].notna(), strict=True,
    )  # fmt: skip
    ranks = [[] for _ in range(schedule["stage"].max() + 1)]
    for at, *row in rows:
        ranks[at].append(tuple(row))
    return ranks


@pytest.mark.oracle
@pytest.mark.parametrize("kind", CLASSES)
def test_orders_are_those_of_pytorch(kind, schedules):
    compared = 0
    for stages, micro_batches in SHAPES:
        for chunks in CHUNKS[kind]:
            shape = (stages, micro_batches, chunks)
            try:
                own_order = analyze.pipeline_schedule(kind, *shape)
            except PerformanceModelError:
                with pytest.raises(ValueError, match="micro"):
                    of_torch(schedules, kind, *shape)
                continue
            assert of_ours(own_order) == of_torch(schedules, kind, *shape), shape
            compared += 1
    assert compared >= 4


@pytest.mark.oracle
@pytest.mark.parametrize(("kind", "name"), [("gpipe", "ScheduleGPipe"), ("1f1b", "Schedule1F1B")])
def test_schedules_of_one_chunk_do_what_pytorch_does_when_it_runs(kind, name, schedules):
    for stages, micro_batches in SHAPES:
        if micro_batches >= stages:
            own_order = of_ours(analyze.pipeline_schedule(kind, stages, micro_batches))
            for rank in range(stages):
                assert own_order[rank] == run_by_torch(schedules, name, rank, stages, micro_batches)


@pytest.mark.oracle
def test_the_order_that_pytorch_prints_for_1f1b_counts_from_1_on_the_last_stage(schedules):
    printed = schedules.Schedule1F1B(stage(3, 3), 5)._get_pipeline_order()
    own_order = of_ours(analyze.pipeline_schedule("1f1b", 3, 5))
    for rank in range(3):
        shift = int(rank == 2)
        passes = [
            (item.computation_type.value, item.microbatch_index)
            for item in printed[rank]
            if item is not None and item.computation_type.value in {"F", "B"}
        ]
        assert passes == [(a, at + shift * (a == "F")) for a, at, *_ in own_order[rank]]


def test_with_fewer_micro_batches_than_stages_1f1b_fills_what_it_can():
    first, *_, last = of_ours(analyze.pipeline_schedule("1f1b", 4, 2))
    assert [f"{action}{at}" for action, at, *_ in first] == ["F0", "F1", "B0", "B1"]
    assert [f"{action}{at}" for action, at, *_ in last] == ["F0", "B0", "F1", "B1"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_pass_is_there_once(kind):
    schedule = PIPELINE_SCHEDULE.check(analyze.pipeline_schedule(kind, 4, 12))
    assert not schedule.duplicated(["action", "micro_batch", "chunk"]).any()
    count = schedule["action"].value_counts()
    assert count["F"] == 12 * schedule["chunk"].nunique()
    assert count["B"] + count["I"] == count["F"]
    assert count["I"] == count["W"]
    assert (
        schedule.groupby("stage")["position"].apply(list).map(lambda x: x == [*range(len(x))]).all()
    )


REFUSALS = {
    "chunks of 1f1b": (("1f1b", 4, 8, 2), "1f1b has one chunk per stage, not 2; interleaved"),
    "chunks of gpipe": (("gpipe", 4, 8, 3), "gpipe has one chunk per stage, not 3"),
    "one chunk": (("interleaved", 4, 8, 1), "at least 2 chunks per stage; with one it is 1f1b"),
    "rounds": (("interleaved", 4, 9, 2), "rounds of at least the 4 stages: 9 cannot be dealt to 2"),
    "rounds of ZB": (("zero_bubble", 4, 9, 1), "zero_bubble deals .* 9 cannot be dealt to 2 equal"),
    "V": (("zbv", 4, 8, 3), "zbv has 2 chunks per stage, .* not 3"),
    "few": (
        ("dualpipe_v", 4, 7),
        "as many micro-batches as there are chunks, 8 on 4 stages, not 7",
    ),
    "none": (("1f1b", 0, 8), r"whole numbers of at least 1, not \(0, 8, 1\)"),
    "half": (("1f1b", 4, 2.5), "whole numbers of at least 1"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_does_not_exist_is_refused_with_the_rule(name):
    shape, words = REFUSALS[name]
    with pytest.raises(PerformanceModelError, match=words):
        analyze.pipeline_schedule(*shape)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match=r"kind must be one of .*'gpipe'.* not 'chimera'"):
        analyze.pipeline_schedule("chimera", 4, 8)
