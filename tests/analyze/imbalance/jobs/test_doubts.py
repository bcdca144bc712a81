"""No wrong cause without a doubt: slow hosts, clocks, pauses, parts of a job that are missing."""

from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.make._imbalance import pipeline_job as engine
from workbench import analyze, load, plot
from workbench.errors import WorkbenchError
from workbench.tables import JOB_OPERATIONS

SHAPE = (8, 4, 8, 6)
# The function hides its module of the same name.
DRAW = import_module("data.make._imbalance.pipeline_job")._durations


def recorded(change=lambda durations, size: None, causes=None, shape=SHAPE):
    """Record a job whose durations were changed."""
    size = engine.JobShape(*shape)
    durations = engine.Durations(*(times.copy() for times in DRAW(causes or {}, 1, size)))
    change(durations, size)
    return engine.record(durations, size)


def slow(*workers, times=1.6):
    """Make workers, pairs of rank and stage, compute so many times as long."""

    def change(durations, size):
        for rank, stage in workers:
            for passes in (durations.forward, durations.backward):
                passes[stage :: size.stages, :, :, rank] *= times

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
    assert is_doubted(last, "a slow worker looks like a slow stage")
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


def with_collections(passes, pause_ns=1_500_000_000):
    """Record a collection before these forward passes: (step, rank, stage, micro-batch)."""

    def change(durations, size):
        for step, rank, stage, batch in passes:
            durations.forward[stage, batch, step, rank] += pause_ns

    table = recorded(change)
    table["operation"] = table["operation"].astype(str)
    is_forward = table["operation"] == "forward-compute"
    pauses = []
    names = ["step", "dp_rank", "stage", "micro_batch"]
    at = table[is_forward].reset_index().set_index(names)["index"]
    for key in passes:
        row = at.loc[key]
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
    even = engine.Durations(*(np.full_like(times, 1e8) for times in DRAW({}, 1, size)))
    even.forward[0, 0, 0, 0] += 5_000
    row = judged(engine.record(even, size))
    assert 1 < row["slowdown_ratio"] < 1.001
    shares = ["worst_workers_ratio", "last_stage_ratio", "communication_ratio", "pauses_ratio"]
    assert row[shares].isna().all()


def scaled(operations, ratio):
    times = {name: (operations[name] * ratio).astype("int64") for name in ("start_ns", "dur_ns")}
    return operations.assign(**times)


def usual_step_s(operations):
    ends = (operations["start_ns"] + operations["dur_ns"]).groupby(operations["step"]).max()
    return float((ends - operations["start_ns"].groupby(operations["step"]).min()).median()) / 1e9


@settings(max_examples=10)
@given(st.floats(0.61, 599), st.sampled_from([1e3, 1e6]))
def test_a_plausible_job_in_a_unit_too_large_is_always_doubted(healthy, step_s, ratio):
    usual_s = usual_step_s(healthy)
    plausible = scaled(healthy, step_s / usual_s)
    assert not is_doubted(plausible, "read as a")
    assert is_doubted(scaled(plausible, ratio), "read as a larger unit than they are")


def test_the_doubt_names_the_unit_that_puts_it_right(healthy):
    usual_s = usual_step_s(healthy)
    in_ms = scaled(healthy, 46_800 / usual_s)
    assert is_doubted(in_ms, "the usual step takes 13 h")
    assert is_doubted(in_ms, "time_unit='ms' makes it 46.8 s")
    assert is_doubted(scaled(in_ms, 1e-9), "read as a smaller unit than they are")


def test_one_operation_out_of_all_proportion_is_named(healthy):
    at = healthy.index[healthy["operation"] == "forward-compute"][40]
    broken = healthy.copy()
    broken.loc[at, "dur_ns"] = 10**15
    row = broken.loc[at]
    assert is_doubted(broken, "one operation takes most of all time: forward-compute in step "
                      f"{row['step']} of data-parallel rank {row['dp_rank']}, stage {row['stage']} "
                      "lasts 11.6 d")  # fmt: skip
    assert not is_doubted(healthy, "most of all time")


def test_a_start_that_jumps_is_named(healthy):
    broken = healthy.copy()
    broken.loc[broken.index[50], "start_ns"] += 10**15
    assert is_doubted(broken, "spans 11.6 d from its first start to its last end")
    assert not is_doubted(healthy, "spans")


def test_computations_without_time_are_counted(healthy):
    lost = healthy.copy()
    lost.loc[lost.index[lost["operation"] == "backward-compute"][5:9], "dur_ns"] = 0
    count = healthy["operation"].isin(["forward-compute", "backward-compute"]).sum()
    assert is_doubted(lost, f"4 of {count:,} computations last exactly 0 ns")
    assert not is_doubted(healthy, "exactly 0 ns")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_zeroed_region_of_a_file_is_found_and_named(healthy, tmp_path, ending):
    names = {
        "operation": "optype", "sequence": "seq_id", "micro_batch": "mb_id", "chunk": "gmc",
        "start_ns": "start_ts", "dur_ns": "duration",
    }  # fmt: skip
    file = healthy.rename(columns=names).reset_index(drop=True)
    file["start_ts"] += 1_000

    def loaded(frame):
        path = tmp_path / f"job.{ending}"
        frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
        return load.job_operations(path, time_unit="ns")

    assert "doubts" not in loaded(file).attrs
    file.loc[300:420, "duration"] = 0
    table = loaded(file)
    assert table.attrs["doubts"] == [
        "121 durations are exactly 0 in rows 300 to 420: missing values, or a damaged file"
    ]
    assert is_doubted(table, "121 durations are exactly 0 in rows 300 to 420")
    file.loc[600:700, ["start_ts", "duration"]] = 0
    assert loaded(file).attrs["doubts"] == [
        "222 durations are exactly 0 in 2 runs, the first in rows 300 to 420: missing values, or a "
        "damaged file",
        "101 starts are exactly 0 in rows 600 to 700: missing values, or a damaged file",
    ]
