"""One step laid out: as recorded, replayed and ideal; and the micro-batches of a job."""

import numpy as np
import pytest

from data import make
from workbench import analyze, load
from workbench.errors import WorkbenchError

SHAPE = (4, 3, 6, 4)


@pytest.fixture(scope="module")
def job():
    return make.pipeline_job({"slow worker": 1.5}, seed=2, shape=SHAPE)


@pytest.fixture(scope="module")
def schedule(job):
    return analyze.job_schedule(job.operations)


def of(schedule, version):
    return schedule[schedule["version"] == version]


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "near"), [("SE", 0.01), ("ST", 0.03)])
def test_real_steps_are_replayed_as_long_as_recorded(real_data, name, near):
    operations = load.job_operations(real_data("stragglers-bytedance") / f"trace-{name}.parquet")
    table = analyze.job_schedule(operations)
    steps = analyze.job_steps(operations).set_index("step")
    assert table["step"].iloc[0] == steps["slowdown_ratio"].idxmax()
    assert abs(table.attrs["replay_error_ratio"]) <= near
    row = steps.loc[table["step"].iloc[0]]
    ends = (table["start_ns"] + table["dur_ns"]).groupby(table["version"].astype(str)).max()
    assert ends["actual"] == pytest.approx(row["replay_ns"], rel=1e-3)
    assert ends["ideal"] == pytest.approx(row["ideal_ns"], abs=2)
    assert ends["recorded"] == pytest.approx(row["actual_ns"], rel=1e-3)


def test_the_default_is_the_slowest_step_and_the_rank_others_wait_for(job, schedule):
    steps = analyze.job_steps(job.operations).set_index("step")
    assert schedule["step"].unique() == [steps["slowdown_ratio"].idxmax()]
    assert schedule["dp_rank"].unique() == job.truth.loc[0, "dp_rank"]


def test_every_version_has_the_same_operations(schedule):
    names = ["stage", "operation", "micro_batch", "chunk"]
    tables = [
        of(schedule, version)[names].astype(str).sort_values(names).to_numpy().tolist()
        for version in ("recorded", "actual", "ideal")
    ]
    assert tables[0] == tables[1] == tables[2]


def test_a_replayed_step_is_the_simulated_one(schedule):
    """Without launch delays, the replay gives back the clock of the simulator."""
    names = ["stage", "operation", "micro_batch"]
    recorded, actual = (
        of(schedule, version)[of(schedule, version)["micro_batch"].notna()]
        .sort_values(names)
        .reset_index(drop=True)
        for version in ("recorded", "actual")
    )
    assert recorded["start_ns"].tolist() == actual["start_ns"].tolist()
    assert recorded["dur_ns"].tolist() == actual["dur_ns"].tolist()
    assert schedule.attrs["replay_error_ratio"] == pytest.approx(0)


def test_equal_computations_are_equally_long_only_in_the_ideal(schedule):
    passes = schedule[schedule["operation"] == "forward-compute"]
    kinds = passes.groupby("version", observed=True)["dur_ns"].nunique()
    assert kinds["ideal"] == 1
    assert kinds["actual"] > 1


def test_no_two_computations_of_a_stage_overlap(schedule):
    computes = schedule[schedule["micro_batch"].notna()]
    for _, lane in computes.groupby(["version", "stage"], observed=True):
        ends = lane["start_ns"] + lane["dur_ns"]
        assert (lane["start_ns"].iloc[1:].to_numpy() >= ends.iloc[:-1].to_numpy() - 1).all()


def test_any_step_and_rank_can_be_chosen(job):
    table = analyze.job_schedule(job.operations, step=3, dp_rank=2)
    assert set(table["step"]) == {3}
    assert set(table["dp_rank"]) == {2}


@pytest.mark.parametrize(
    ("choice", "what"), [({"step": 9}, "step 9"), ({"dp_rank": 7}, "dp_rank 7")]
)
def test_what_is_not_there_is_refused_with_what_is(job, choice, what):
    with pytest.raises(WorkbenchError, match=f"the job has no {what}; it has 0, 1, 2, 3"):
        analyze.job_schedule(job.operations, **choice)


def test_micro_batches_carry_the_correlation_of_the_verdict(job):
    operations = make.pipeline_job({"sequence lengths": 0.4}, seed=2, shape=SHAPE).operations
    table = analyze.job_micro_batches(operations)
    assert len(table) == 4 * 6 * 4
    correlation = analyze.job_slowdown(operations)["forward_backward_correlation"].iloc[0]
    assert np.corrcoef(table["forward_ns"], table["backward_ns"])[0, 1] == pytest.approx(
        correlation
    )
    assert correlation >= 0.9
    flat = analyze.job_micro_batches(job.operations, stage=2)
    assert set(flat["stage"]) == {2}


def test_interleaved_chunks_are_added_up_by_micro_batch():
    operations = make.pipeline_job(
        {"sequence lengths": 0.4}, seed=2, shape=(6, 2, 4, 3, 2)
    ).operations
    table = analyze.job_micro_batches(operations)
    assert len(table) == 6 * 4 * 3
    first = operations[(operations["stage"] == 0) & (operations["operation"] == "forward-compute")]
    assert table["forward_ns"].sum() == first["dur_ns"].sum()
    assert analyze.job_slowdown(operations)["verdict"].iloc[0] == "sequence lengths"


def test_without_backward_passes_there_is_nothing_to_compare(job):
    operations = job.operations
    forward = operations[operations["operation"].isin(["forward-compute", "optimizer"])]
    assert analyze.job_micro_batches(forward.reset_index(drop=True)).empty
