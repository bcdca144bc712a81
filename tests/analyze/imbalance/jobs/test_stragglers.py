"""The replay of a job: by hand, and against two real jobs with a published result."""

import json

import numpy as np
import pandas as pd
import pytest

from data import make
from workbench import analyze, load
from workbench.analyze._imbalance.jobs import stragglers
from workbench.analyze._imbalance.jobs.arranged import arranged
from workbench.errors import WorkbenchError
from workbench.tables import JOB_OPERATIONS

FORWARD, BACKWARD = "forward-compute", "backward-compute"


def table(rows):
    """Make a table of operations from ``(step, rank, stage, operation, n, start, end, batch)``."""
    names = ["step", "dp_rank", "stage", "operation", "sequence", "start_ns", "end", "micro_batch"]
    frame = pd.DataFrame(rows, columns=names)
    frame["dur_ns"] = frame.pop("end") - frame["start_ns"]
    frame["chunk"] = frame["stage"].where(frame["micro_batch"].notna())
    return JOB_OPERATIONS.check(JOB_OPERATIONS.cast(frame))


def two_ranks(slow=30, steps=1):
    """Two data-parallel ranks of one stage: rank 1 computes longer, rank 0 waits for it."""
    rows = []
    for step in range(steps):
        for rank, forward in ((0, 10), (1, slow)):
            rows += [
                (step, rank, 0, FORWARD, 0, 0, forward, 0),
                (step, rank, 0, BACKWARD, 0, forward, forward + 20, 0),
                (step, rank, 0, "grads-reduce-scatter", 0, forward + 20, slow + 25, None),
            ]
    return table(rows)


def pipeline(first=10, second=10, transfer=3):
    """Two stages, one micro-batch: forward, send, forward, backward, send, backward."""
    sent = first + transfer
    turned = sent + 2 * second
    back = turned + transfer
    return table(
        [
            (0, 0, 0, FORWARD, 0, 0, first, 0),
            (0, 0, 0, "forward-send", 0, first, sent, None),
            (0, 0, 1, "forward-recv", 0, 0, sent, None),
            (0, 0, 1, FORWARD, 0, sent, sent + second, 0),
            (0, 0, 1, BACKWARD, 0, sent + second, turned, 0),
            (0, 0, 1, "backward-send", 0, turned, back, None),
            (0, 0, 0, "backward-recv", 0, sent, back, None),
            (0, 0, 0, BACKWARD, 0, back, back + first, 0),
        ]
    )


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "near"), [("SE", 5e-4), ("ST", 1e-6)])
def test_real_jobs_slow_down_as_published(real_data, name, near):
    folder = real_data("stragglers-bytedance")
    operations = load.job_operations(folder / f"trace-{name}.parquet")
    printed = json.loads((folder / f"result-{name}.json").read_text())
    row = analyze.job_slowdown(operations).iloc[0]
    assert row["slowdown_ratio"] == pytest.approx(printed["blocking_slowdown"], abs=near)
    for sign, column in (("ms", "last_stage_ratio"), ("mw", "worst_workers_ratio")):
        share = json.loads((folder / f"{sign}-{name}.json").read_text())[sign.title()]
        assert row[column] == pytest.approx(share, abs=0.05)
    assert row["verdict"] == {"SE": "sequence lengths", "ST": "last stage"}[name]


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "near"), [("SE", 5e-4), ("ST", 1e-6)])
def test_the_map_of_workers_of_a_real_job_is_the_published_one(real_data, name, near):
    """The paper bounds a worker by the lower of its rank's and its stage's slowdown."""
    folder = real_data("stragglers-bytedance")
    table = analyze.job_slowdown_by(load.job_operations(folder / f"trace-{name}.parquet"), "worker")
    printed = json.loads((folder / f"result-{name}.json").read_text())
    by_rank, by_stage = (printed[f"blocking_decompose_by_{kind}"] for kind in ("dp_rank", "stage"))
    bounds = [
        min(by_rank[str(rank)], by_stage[str(stage)])
        for rank, stage in zip(table["dp_rank"], table["stage"], strict=True)
    ]
    assert len(table) == len(by_rank) * len(by_stage)
    assert table["bound_ratio"].to_numpy(dtype=np.float64) == pytest.approx(bounds, abs=near)
    assert np.corrcoef(table["bound_ratio"].astype("float64"), bounds)[0, 1] >= 0.98


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["SE", "ST"])
def test_every_step_of_a_real_job_is_replayed_as_published(real_data, name):
    folder = real_data("stragglers-bytedance")
    steps = analyze.job_steps(load.job_operations(folder / f"trace-{name}.parquet"))
    printed = json.loads((folder / f"result-{name}.json").read_text())
    columns = {
        "actual_ns": "step_t_base", "replay_ns": "step_t_nodelay", "ideal_ns": "step_t_noblk"
    }  # fmt: skip
    for column, key in columns.items():
        times = [printed[key][str(step)] for step in steps["step"]]
        assert (steps[column] / 1e9).tolist() == pytest.approx(times, rel=1e-3)


@pytest.mark.parametrize("shape", [(1, 3, 4, 2), (2, 2, 4, 3), (5, 3, 4, 2), (2, 2, 4, 2, 2)])
def test_replaying_all_ranks_at_once_is_replaying_one_after_the_other(shape, monkeypatch):
    job = arranged(make.pipeline_job({"sequence lengths": 0.5}, seed=1, shape=shape).operations)
    monkeypatch.setattr(stragglers, "_MOST_CELLS", 3 * 2 * len(job.keys) * len(job.steps))
    for stage in [*job.stages, None]:
        on_stage = np.array([stage in {None, key.stage} for key in job.keys])[:, None, None]
        one_by_one = [
            job.replay(np.where(on_stage & (job.dp_ranks == rank), job.own, job.ideal)).mean()
            for rank in job.dp_ranks
        ]
        assert stragglers._rank_by_rank(job, stage).tolist() == pytest.approx(one_by_one)


def test_only_workers_have_a_bound():
    for kind, bounded in (("worker", True), ("stage", False), ("operation", False)):
        table = analyze.job_slowdown_by(pipeline(second=20), kind)
        assert table["bound_ratio"].notna().all() == bounded


def test_the_slow_rank_is_found_and_its_cost_is_exact():
    row = analyze.job_slowdown(two_ranks()).iloc[0]
    # Own durations: 30 + 20 + 5; ideal: the mean forward of 20.
    assert (row["replay_ns"], row["ideal_ns"], row["actual_ns"]) == (55, 45, 55)
    assert row["slowdown_ratio"] == pytest.approx(55 / 45)
    assert row["waste_ratio"] == pytest.approx(10 / 55)
    assert row["worst_workers_ratio"] == pytest.approx(1)
    assert row["verdict"] == "worker"
    worst = analyze.job_slowdown_by(two_ranks(), "worker").iloc[0]
    assert (worst["dp_rank"], worst["stage"]) == (1, 0)


def test_equal_ranks_are_no_stragglers():
    row = analyze.job_slowdown(two_ranks(slow=10, steps=3)).iloc[0]
    assert (row["slowdown_ratio"], row["verdict"]) == (1, "no straggler")
    assert pd.isna(row["last_stage_ratio"])
    assert pd.isna(row["forward_backward_correlation"])


def test_a_pipeline_takes_its_critical_path():
    row = analyze.job_slowdown(pipeline()).iloc[0]
    assert row["replay_ns"] == 10 + 3 + 20 + 3 + 10
    assert row["replay_ns"] == row["actual_ns"] == row["ideal_ns"]


def test_a_long_last_stage_explains_itself():
    row = analyze.job_slowdown(pipeline(second=20)).iloc[0]
    assert row["replay_ns"] == row["actual_ns"]
    by = analyze.job_slowdown_by(pipeline(second=20), "stage")
    assert by["stage"].tolist() == [1, 0]
    kinds = analyze.job_slowdown_by(pipeline(second=20), "operation")
    assert set(kinds["operation"]) == {
        FORWARD, BACKWARD, "forward-send", "forward-recv", "backward-send", "backward-recv"
    }  # fmt: skip


def test_launch_delays_are_not_replayed_but_told():
    late = two_ranks()
    is_scatter = late["operation"] == "grads-reduce-scatter"
    late.loc[is_scatter, "start_ns"] += 45
    row = analyze.job_slowdown(late).iloc[0]
    assert row["replay_ns"] == 55
    assert row["delay_ratio"] == pytest.approx(1 - 55 / 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(index=2), "grads-reduce-scatter number 0 of stage 0 is there 0 times"),
        (lambda t: pd.concat([t, t.iloc[[0]]]), "forward-compute number 0 .* is there 2 times"),
        (lambda t: t.assign(chunk=pd.array([None] * len(t), "Int32")), "without micro_batch or"),
        (lambda t: t[t["operation"] == "grads-reduce-scatter"], "nothing to replay"),
        (lambda t: t.head(0), "no operations to replay"),
    ],
)
def test_a_job_that_is_not_whole_is_refused(change, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.job_slowdown(change(two_ranks()).reset_index(drop=True))


def test_a_missing_stage_is_named():
    only_last = pipeline()
    only_last = only_last[only_last["stage"] == 1].reset_index(drop=True)
    with pytest.raises(
        WorkbenchError, match="1 forward-recv of stage 1 have no other end: the stage before it"
    ):
        analyze.job_slowdown(only_last)


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="part must be one of"):
        analyze.job_slowdown_by(two_ranks(), "rack")


def test_correlated_micro_batches_that_cost_nothing_are_not_the_cause():
    """Lengths that differ by a little correlate as much as any; the last stage is what costs."""
    shape = (2, 4, 8, 6)
    job = make.pipeline_job({"last stage": 1.5, "sequence lengths": 0.05}, seed=3, shape=shape)
    row = analyze.job_slowdown(job.operations).iloc[0]
    assert row["within_rank_correlation"] > 0.9
    assert row["micro_batches_ratio"] < 0.2
    assert row["verdict"] == "last stage"
    uneven = make.pipeline_job({"sequence lengths": 0.6}, seed=3, shape=shape)
    row = analyze.job_slowdown(uneven.operations).iloc[0]
    assert row["micro_batches_ratio"] > 0.8
    assert row["verdict"] == "sequence lengths"
