"""No wrong cause without a doubt: slow hosts, clocks, pauses, parts of a job that are missing."""

from importlib import import_module

import numpy as np
import pandas as pd
import pytest

from workbench import analyze, load, plot
from workbench.errors import WorkbenchError
from workbench.simulate import _pipeline_engine as engine
from workbench.tables import JOB_OPERATIONS

SHAPE = (8, 4, 8, 6)
# The function hides its module of the same name.
DRAW = import_module("workbench.simulate.pipeline_job")._durations


def recorded(change=lambda durations, size: None, causes=None, shape=SHAPE):
    """Record a job whose durations were changed."""
    size = engine.JobShape(*shape)
    durations = engine.Durations(*(each.copy() for each in DRAW(causes or {}, 1, size)))
    change(durations, size)
    return engine.record(durations, size)


def slow(*workers, times=1.6):
    """Make workers, pairs of rank and stage, compute so many times as long."""

    def change(durations, size):
        for rank, stage in workers:
            for each in (durations.forward, durations.backward):
                each[stage :: size.stages, :, :, rank] *= times

    return change


HOST = tuple((2, stage) for stage in range(4))


def judged(operations, **more):
    return analyze.job_slowdown(operations, **more).iloc[0]


def is_doubted(operations, text):
    note = judged(operations)["note"]
    return not pd.isna(note) and text in note


@pytest.fixture(scope="module")
def healthy():
    return recorded()


@pytest.mark.parametrize(
    ("workers", "causes"),
    [
        (HOST, {}),
        (HOST, {"sequence lengths": 0.1}),
        (((1, 0), (3, 0)), {}),
        (((1, 1), (3, 2)), {}),
        (((1, 1), (1, 2)), {}),
    ],
)
def test_slow_hosts_and_a_few_slow_workers_are_workers(workers, causes):
    row = judged(recorded(slow(*workers), causes))
    assert row["verdict"] == "worker"
    assert row["slow_workers_ratio"] >= 0.5


def test_a_slow_host_correlates_between_ranks_and_not_within_them():
    host, documents = recorded(slow(*HOST)), recorded(causes={"sequence lengths": 0.2})
    assert judged(host)["forward_backward_correlation"] >= 0.9
    assert abs(judged(host)["within_rank_correlation"]) <= 0.2
    assert judged(documents)["within_rank_correlation"] >= 0.99
    assert judged(documents)["verdict"] == "sequence lengths"
    assert "within ranks 0.05" in plot.job_slowdown(
        analyze.job_slowdown(host)
    ).layout.title.subtitle.text.replace("<br>", " ")


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "published", "within"), [("SE", 0.992, 0.992), ("ST", 0.812, 0.809)]
)
def test_the_published_correlation_is_that_between_all_micro_batches(
    real_data, name, published, within
):
    row = judged(load.job_operations(real_data("stragglers-bytedance") / f"trace-{name}.parquet"))
    assert row["forward_backward_correlation"] == pytest.approx(published, abs=0.001)
    assert row["within_rank_correlation"] == pytest.approx(within, abs=0.001)
    assert pd.isna(row["slow_workers_ratio"])
    assert pd.isna(row["note"])


def test_what_explains_all_by_construction_explains_nothing():
    one_stage = judged(recorded(slow((0, 0)), shape=(8, 1, 8, 4)))
    assert pd.isna(one_stage["last_stage_ratio"])
    assert one_stage["verdict"] == "worker"
    alone = judged(recorded(causes={"sequence lengths": 0.4}, shape=(1, 1, 8, 4)))
    assert pd.isna(alone["worst_workers_ratio"])


def test_of_one_rank_the_last_stage_is_a_stage_and_that_is_doubted():
    last = recorded(slow((0, 3)), shape=(1, 4, 8, 6))
    assert judged(last)["verdict"] == "last stage"
    assert is_doubted(last, "a slow worker and a slow stage look alike")
    assert judged(recorded(slow((0, 1)), shape=(1, 4, 8, 6)))["verdict"] == "worker"


@pytest.mark.parametrize(("part", "offset_ms"), [("dp_rank", 50), ("stage", 5), ("stage", 500)])
def test_clocks_that_differ_are_doubted(healthy, part, offset_ms):
    numbers = healthy[part].unique()
    offsets = np.random.default_rng(0).normal(0, offset_ms * 1e6, len(numbers)).astype("int64")
    moved = healthy[part].map(dict(zip(numbers, offsets, strict=True))).astype("int64")
    assert is_doubted(
        healthy.assign(start_ns=healthy["start_ns"] + moved + 10**10), "clocks differ"
    )
    assert not is_doubted(healthy, "clocks differ")


def test_a_replay_that_is_not_the_recording_is_doubted_and_drawn_as_it_is(healthy):
    shorter = healthy.assign(dur_ns=healthy["dur_ns"] // 1_000)
    assert is_doubted(shorter, "shorter than the recording")
    apart = healthy.assign(start_ns=healthy["start_ns"] - healthy["stage"] * 600_000_000)
    table = analyze.job_slowdown(apart)
    assert "longer than the recording" in table["note"].iloc[0]
    ideal, excess, delay = (trace.x for trace in plot.job_slowdown(table).data)
    assert (ideal + excess + delay)[0] == pytest.approx(table["actual_ns"].iloc[0] / 1e9)
    assert "the replay is" in plot.job_schedule(
        analyze.job_schedule(apart)
    ).layout.title.subtitle.text.replace("<br>", " ")


def with_collections(places, pause_ns=1_500_000_000):
    """Record a collection before these forward passes: (step, rank, stage, micro-batch)."""

    def change(durations, size):
        for step, rank, stage, batch in places:
            durations.forward[stage, batch, step, rank] += pause_ns

    table = recorded(change)
    table["operation"] = table["operation"].astype(str)
    is_forward = table["operation"] == "forward-compute"
    pauses = []
    names = ["step", "dp_rank", "stage", "micro_batch"]
    at = table[is_forward].reset_index().set_index(names)["index"]
    for place in places:
        row = at.loc[place]
        pauses.append(table.loc[row].to_dict() | {"operation": "gc", "dur_ns": pause_ns})
        table.loc[row, "start_ns"] += pause_ns
        table.loc[row, "dur_ns"] -= pause_ns
    extra = pd.DataFrame(pauses).assign(sequence=0, micro_batch=pd.NA, chunk=pd.NA)
    table = pd.concat([table, extra.astype(table.dtypes)], ignore_index=True)
    return JOB_OPERATIONS.cast(table.astype({"operation": "category"}))


def test_a_collection_inside_the_pipeline_delays_what_comes_after_it():
    job = with_collections([(step, step % 8, step % 4, 3) for step in range(6)])
    row = judged(job)
    assert row["verdict"] == "pauses"
    assert row["pauses_ratio"] >= 0.5
    assert row["ideal_ns"] == pytest.approx(judged(recorded())["ideal_ns"], rel=1e-6)
    steps = analyze.job_steps(job)
    assert steps["replay_ns"].tolist() == pytest.approx(steps["actual_ns"].tolist())
    assert analyze.job_slowdown_by(job, "operation")["operation"].iloc[0] == "gc"
    drawn = analyze.job_schedule(job)
    lasted = drawn[drawn["operation"] == "gc"].groupby("version", observed=True)["dur_ns"].max()
    assert lasted.loc["ideal"] == 0
    assert lasted.loc["recorded"] == lasted.loc["actual"]


def test_a_data_parallel_rank_that_is_missing_is_doubted(healthy):
    assert is_doubted(healthy[healthy["dp_rank"] != 1], "data-parallel ranks 1 are not there")
    assert is_doubted(healthy[healthy["dp_rank"] > 0], "data-parallel ranks 0 are not there")
    assert is_doubted(healthy[healthy["dp_rank"] == 0], "but one rank only")


def test_a_last_stage_that_is_missing_is_doubted_if_only_computations_were_recorded(healthy):
    only = healthy[healthy["micro_batch"].notna()]
    assert is_doubted(only[only["stage"] < 3], "is the stage after it missing?")
    assert pd.isna(judged(only)["note"])


def test_a_job_cut_at_both_ends_keeps_the_step_between():
    job = recorded(shape=(4, 2, 4, 3))
    begin = job.groupby("step")["start_ns"].transform("min")
    late = job["start_ns"] - begin
    cut = ((job["step"] == 0) & (late < 5e8)) | ((job["step"] == 2) & (late > 1e9))
    kept = analyze.complete_steps(job[~cut])
    pd.testing.assert_frame_equal(kept, job[job["step"] == 1].reset_index(drop=True))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "analysis",
    [
        analyze.job_slowdown,
        lambda operations: analyze.job_slowdown_by(operations, "worker"),
        analyze.job_steps,
        analyze.job_dispersion,
        analyze.job_schedule,
    ],
)
def test_a_job_without_any_duration_is_refused(healthy, analysis):
    with pytest.raises(WorkbenchError, match="all computations take 0 ns"):
        analysis(healthy.assign(dur_ns=0))


def test_an_excess_of_nearly_nothing_has_no_shares():
    """A hundred-thousandth of a step is noise; its shares would be any numbers."""
    size = engine.JobShape(4, 2, 4, 2)
    even = engine.Durations(*(np.full_like(each, 1e8) for each in DRAW({}, 1, size)))
    even.forward[0, 0, 0, 0] += 5_000
    row = judged(engine.record(even, size))
    assert 1 < row["slowdown_ratio"] < 1.001
    shares = ["worst_workers_ratio", "last_stage_ratio", "communication_ratio", "pauses_ratio"]
    assert row[shares].isna().all()
