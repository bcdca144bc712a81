"""What a recorded job would do if: real jobs first, then simulated ones, then refusals."""

import numpy as np
import pytest

from workbench import analyze, load, simulate
from workbench.analyze import JobChange
from workbench.errors import PerformanceModelError
from workbench.tables import JOB_HELD_OUT, JOB_PREDICTION

# Data-parallel ranks, stages, micro-batches, steps.
SHAPE = (3, 4, 8, 12)


@pytest.fixture(scope="module")
def job():
    return simulate.pipeline_job(seed=5, shape=SHAPE).operations


@pytest.fixture(scope="module")
def interleaved():
    return simulate.pipeline_job(seed=5, shape=(2, 2, 4, 3, 2)).operations


@pytest.fixture(scope="module", params=["SE", "ST"])
def real(real_data, request):
    folder = real_data("stragglers-bytedance")
    return load.job_operations(folder / f"trace-{request.param}.parquet")


def predicted(operations, **changes):
    changes = {name: JobChange(**change) for name, change in changes.items()}
    table = analyze.job_prediction(operations, changes, draws=200)
    return JOB_PREDICTION.check(table).set_index("change")


@pytest.mark.oracle
def test_real_jobs_are_replayed_and_predicted_within_a_few_per_cent(real):
    table = JOB_HELD_OUT.check(analyze.job_held_out(real)).set_index("method")
    errors = table["absolute_error_ratio"]
    assert errors["own step"] <= 0.02
    assert table.loc["own step", "error_ratio"] < 0, "launch delays are lost"
    assert errors["joint steps"] <= 0.03
    assert errors["joint steps with delays"] <= 0.03


@pytest.mark.oracle
def test_mean_durations_are_far_too_short_where_work_varies(real_data):
    operations = load.job_operations(real_data("stragglers-bytedance") / "trace-SE.parquet")
    table = analyze.job_held_out(operations).set_index("method")
    assert -0.27 < table.loc["mean durations", "error_ratio"] < -0.18


@pytest.mark.oracle
def test_a_real_job_is_as_recorded_where_nothing_changes(real):
    table = predicted(real, same={}, order={"schedule": "1f1b"})
    steps = analyze.job_steps(real)["actual_ns"].mean()
    assert table["step_ns"].tolist() == pytest.approx([steps] * 3)
    assert table["basis"].tolist() == ["measured", "scaled", "modelled"]
    assert table["change_low_ratio"].abs().max() < 1e-9
    assert (table["step_low_ns"] < steps).all()
    assert (table["step_high_ns"] > steps).all()


def test_another_number_of_micro_batches_takes_as_long_as_a_job_that_has_them(job):
    table = predicted(job, more={"micro_batches": 16}, fewer={"micro_batches": 4})
    for name, count in (("more", 16), ("fewer", 4)):
        recorded = simulate.pipeline_job(seed=9, shape=(*SHAPE[:2], count, SHAPE[3])).operations
        actual_ns = analyze.job_steps(recorded)["actual_ns"].mean()
        assert table.loc[name, "step_ns"] == pytest.approx(actual_ns, rel=0.01)
        assert f"{count} micro-batches drawn from the 8" in table.loc[name, "doubt"]


def test_another_schedule_has_its_textbook_bubble(job):
    table = predicted(
        job, gpipe={"schedule": "gpipe"}, split={"schedule": "zero_bubble", "weight_share": 0.5}
    )
    # 300 ms per micro-batch on a stage, 100 of them of weights: (p - 1) 2 W is saved.
    saved = 3 * 2 * 100e6
    gone = table.loc["as recorded", "step_ns"] - table.loc["split", "step_ns"]
    assert gone == pytest.approx(saved, rel=0.1)
    assert table.loc["gpipe", "change_ratio"] == pytest.approx(0, abs=0.02)
    assert "weight-gradient pass is taken to be 50%" in table.loc["split", "doubt"]


def test_interleaved_jobs_keep_their_chunks(interleaved):
    table = predicted(interleaved, same={"schedule": "interleaved"}, more={"micro_batches": 8})
    assert table.loc["same", "change_ratio"] == pytest.approx(0, abs=1e-9)
    there = simulate.pipeline_job(seed=5, shape=(2, 2, 8, 3, 2)).operations
    mean = analyze.job_steps(there)["actual_ns"].mean()
    assert table.loc["more", "step_ns"] == pytest.approx(mean, rel=0.02)
    assert "3 steps only" in table.loc["same", "doubt"]


def test_a_slow_rank_slows_the_whole_job_as_a_simulated_one_does(job):
    table = predicted(
        job, rank={"factor": 1.5, "dp_rank": 1}, stage={"factor": 1.5, "stage": 3},
        all={"factor": 1.5}, one={"factor": 1.5, "stage": 3, "operation": "forward-compute"},
    )  # fmt: skip
    change = table["change_ratio"]
    assert change["all"] == pytest.approx(change["rank"], abs=0.02)
    assert change["one"] < change["stage"] < change["all"]
    slow = simulate.pipeline_job({"last stage": 1.5}, seed=5, shape=SHAPE).operations
    actual_ns = analyze.job_steps(slow)["actual_ns"].mean()
    assert table.loc["stage", "step_ns"] == pytest.approx(actual_ns, rel=0.01)


def test_steps_grow_with_the_factor(job):
    factors = (0.0, 0.5, 1.0, 1.2, 3.0)
    table = predicted(job, **{f"x{each}": {"factor": each} for each in factors})
    assert table["step_ns"].iloc[1:].is_monotonic_increasing
    assert (table["step_p5_ns"] <= table["step_p95_ns"]).all()


def test_the_same_seed_gives_the_same_answer(job):
    changes = {"more": JobChange(micro_batches=12)}
    first, two = (analyze.job_prediction(job, changes, draws=50, seed=3) for _ in range(2))
    assert first.equals(two)
    changed_seed = analyze.job_prediction(job, changes, draws=50, seed=4)
    assert not first.equals(changed_seed)
    halves = [analyze.job_held_out(job, splits=5, seed=1) for _ in range(2)]
    assert halves[0].equals(halves[1])


def test_garbage_collections_stay_with_their_computation():
    operations = simulate.pipeline_job({"pauses": 8.0}, seed=5, shape=SHAPE).operations
    table = predicted(operations, same={"schedule": "1f1b"})
    assert table.loc["same", "change_ratio"] == pytest.approx(0, abs=1e-9)


REFUSALS = {
    "operation": ({"operation": "matmul"}, "has no operation 'matmul'; it has .*backward-compute"),
    "rank": ({"dp_rank": 7}, "has no dp_rank 7; it has 0, 1, 2"),
    "stage": ({"stage": 9}, "has no stage 9; it has 0, 1, 2, 3"),
    "factor": ({"factor": -1.0}, "factor must be 0 or more, not -1"),
    "share": ({"weight_share": 2.0}, "weight_share must be between 0 and 1, not 2"),
    "count": ({"micro_batches": 0}, "micro_batches must be a whole number"),
    "chunks": (
        {"schedule": "interleaved"},
        "1 chunks per stage, 8 micro-batches: interleaved needs",
    ),
    "V": (
        {"schedule": "zbv"},
        "zbv lays the model down the stages and back, which the job did not",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_changes_that_the_job_cannot_take_are_refused(name, job):
    change, words = REFUSALS[name]
    with pytest.raises(PerformanceModelError, match=words):
        predicted(job, wrong=change)


def test_the_name_of_the_job_itself_is_taken(job):
    with pytest.raises(PerformanceModelError, match="name of the job without a change"):
        analyze.job_prediction(job, {"as recorded": JobChange()})


def test_chunks_that_do_not_go_round_the_stages_are_refused(interleaved):
    computes = interleaved["operation"].isin(["forward-compute", "backward-compute"])
    back = interleaved[computes].reset_index(drop=True)
    back["chunk"] = back["chunk"].map({0: 0, 1: 1, 2: 3, 3: 2}).astype("Int32")
    with pytest.raises(PerformanceModelError, match=r"chunks lie on stages \[0, 1, 1, 0\]"):
        predicted(back, more={"micro_batches": 8})


@pytest.mark.parametrize("wrong", [{"draws": 0}, {"confidence_level": 1.0}])
def test_draws_and_confidence_are_checked(wrong, job):
    with pytest.raises(PerformanceModelError, match="confidence_level between 0 and 1"):
        analyze.job_prediction(job, **wrong)


def test_half_of_one_step_is_refused(job):
    with pytest.raises(PerformanceModelError, match="1 steps in 100 splits"):
        analyze.job_held_out(job[job["step"] == job["step"].min()])
    with pytest.raises(PerformanceModelError, match="at least 1 split"):
        analyze.job_held_out(job, splits=0)


def test_a_job_recorded_in_another_order_says_so(job):
    passes = job["operation"].isin(["forward-compute", "backward-compute"]) & (job["stage"] == 3)
    moved = job.copy()
    flip = np.where(passes, 7 - moved["micro_batch"].fillna(0), moved["micro_batch"])
    moved["micro_batch"] = flip
    moved["micro_batch"] = moved["micro_batch"].astype("Int32")
    table = predicted(moved, more={"micro_batches": 16})
    assert "the recorded order is not that of 1f1b" in table.loc["more", "doubt"]
