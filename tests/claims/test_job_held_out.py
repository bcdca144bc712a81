"""What a recorded job would do if: real jobs first, then simulated ones, then refusals."""

import pytest

from claims._job_held_out import job_held_out
from claims._tables import JOB_HELD_OUT
from data import make
from workbench import load
from workbench.errors import PerformanceModelError

# Data-parallel ranks, stages, micro-batches, steps.
SHAPE = (3, 4, 8, 12)


@pytest.fixture(scope="module")
def job():
    return make.pipeline_job(seed=5, shape=SHAPE).operations


@pytest.fixture(scope="module", params=["SE", "ST"])
def real(real_data, request):
    folder = real_data("stragglers-bytedance")
    return load.job_operations(folder / f"trace-{request.param}.parquet")


@pytest.mark.oracle
def test_real_jobs_are_replayed_and_predicted_within_a_few_per_cent(real):
    table = JOB_HELD_OUT.check(job_held_out(real)).set_index("method")
    errors = table["absolute_error_ratio"]
    assert errors["own step"] <= 0.02
    assert table.loc["own step", "error_ratio"] < 0, "launch delays are lost"
    assert errors["joint steps"] <= 0.03
    assert errors["joint steps with delays"] <= 0.03


@pytest.mark.oracle
def test_mean_durations_are_far_too_short_where_work_varies(real_data):
    operations = load.job_operations(real_data("stragglers-bytedance") / "trace-SE.parquet")
    table = job_held_out(operations).set_index("method")
    assert -0.27 < table.loc["mean durations", "error_ratio"] < -0.18


def test_half_of_one_step_is_refused(job):
    with pytest.raises(PerformanceModelError, match="1 steps in 100 splits"):
        job_held_out(job[job["step"] == job["step"].min()])
    with pytest.raises(PerformanceModelError, match="at least 1 split"):
        job_held_out(job, splits=0)
