"""No time is told twice or where nothing is wrong: bubbles, pauses, slow workers, checkpoints."""

from dataclasses import replace

import numpy as np
import pytest

from data import make
from tests.analyze.findings.jobs import trace
from tests.analyze.findings.test_rules import campaign, interrupted, rows_of
from workbench import analyze, load
from workbench.tables import JOB_OPERATIONS, Bundle


def asked(bundle, *rules):
    result = analyze.findings(bundle, rules=rules)
    return result.findings.set_index("rule"), result.rules.set_index("rule")


def step_ns(operations):
    end = (operations["start_ns"] + operations["dur_ns"]).groupby(operations["step"]).max()
    return float((end - operations.groupby("step")["start_ns"].min()).mean())


# --- pipelines ---


def test_the_bubble_that_a_schedule_has_by_design_is_no_finding():
    """Stages of 1F1B with 4 stages and 8 micro-batches stand idle for 27 %, whoever runs it."""
    job = make.pipeline_job(seed=2, shape=(4, 4, 8, 3))
    rows = job.operations[job.operations["operation"].astype(str).str.endswith("compute")]
    busy = rows.groupby(["step", "dp_rank", "stage"])["dur_ns"].sum().median()
    assert 1 - busy / step_ns(job.operations) > 0.25
    found, _ = asked(Bundle(operations=job.operations), "pipeline_bubble")
    assert found.empty


def test_the_gain_of_more_micro_batches_is_what_a_job_with_more_has():
    few = make.pipeline_job(seed=2, shape=(2, 8, 8, 3)).operations
    # The same simulator, the same work in micro-batches of half the size.
    many = make.pipeline_job(seed=2, shape=(2, 8, 16, 3)).operations
    gain = 1 - step_ns(many) / 2 / step_ns(few)
    found, _ = asked(Bundle(operations=few), "pipeline_bubble")
    row = found.loc["pipeline_bubble"]
    assert row["time_share"] == pytest.approx(gain, rel=0.1)
    assert "by design" in row["finding"]
    assert "16 would leave 30 %" in row["finding"]


@pytest.mark.parametrize(
    ("cause", "size", "rule"),
    [("slow worker", 1.6, "slow_workers"), ("last stage", 1.5, "last_stage"),
     ("sequence lengths", 0.8, "sequence_lengths")],
)  # fmt: skip
def test_a_bubble_beyond_the_schedule_is_told_by_its_cause(cause, size, rule):
    job = make.pipeline_job({cause: size}, seed=3, shape=(4, 4, 8, 4))
    alone, _ = asked(Bundle(operations=job.operations), "pipeline_bubble")
    assert len(alone) == 1, "asked alone, it tells the excess"
    share = alone.loc["pipeline_bubble", "time_share"]
    assert share < 1 - 1 / job.truth["slowdown_ratio"].iloc[0] + 0.1
    found, rules = asked(Bundle(operations=job.operations), "pipeline_bubble", rule)
    assert list(found.index) == [rule]
    assert rules.loc["pipeline_bubble", "note"] == f"reported by the rule {rule}"


@pytest.mark.long
def test_lengths_that_make_some_worker_the_slowest_are_no_slow_worker():
    """The naive reading: a rank whose median computation is 2 % above the others is slow."""
    misses = 0
    for seed in range(0, 40, 2):
        job = make.pipeline_job({"sequence lengths": 0.1}, seed=seed, shape=(4, 4, 8, 4))
        table = job.operations
        rows = table[table["operation"] == "forward-compute"]
        usual = rows.groupby("dp_rank")["dur_ns"].median()
        assert usual.max() > 1.005 * usual.median()
        found, _ = asked(Bundle(operations=table), "slow_workers", "sequence_lengths")
        misses += list(found.index) != ["sequence_lengths"]
    assert misses <= 1


def test_a_recording_that_is_cut_still_names_its_slow_worker():
    job = make.pipeline_job({"slow worker": 1.6}, seed=5, shape=(4, 2, 4, 4))
    truth = job.truth.iloc[0]
    last = job.operations["step"] == job.operations["step"].max()
    middle = job.operations.loc[last, "start_ns"].median()
    cut = job.operations[~last | (job.operations["start_ns"] < middle)].reset_index(drop=True)
    found, rules = asked(Bundle(operations=JOB_OPERATIONS.check(cut)), "slow_workers")
    assert rules.loc["slow_workers", "state"] == "found"
    assert (
        f"DP rank {truth['dp_rank']} stage {truth['stage']}" in found.loc["slow_workers", "where"]
    )
    assert "dropped" in found.loc["slow_workers", "doubt"]


# --- traces ---


def test_a_slow_loader_is_told_once():
    job = make.troubled_job({"slow data loader": 0.5}, seed=4, ranks=4)
    gaps = analyze.findings(job.bundle, rules=["long_pauses"]).findings
    found, rules = asked(job.bundle, "long_pauses", "data_loader")
    assert len(gaps) == 1, "asked alone, the pauses are told"
    assert list(found.index) == ["data_loader"]
    assert rules.loc["long_pauses", "note"] == "reported by the rule data_loader"


def test_pauses_beside_a_slow_loader_are_told_with_their_own_cost():
    job = make.troubled_job({"slow data loader": 0.5, "pauses": 0.2}, seed=4, ranks=4)
    true = job.truth.set_index("trouble")["cost"]
    found, _ = asked(job.bundle, "long_pauses", "data_loader")
    assert set(found.index) == {"long_pauses", "data_loader"}
    assert found.loc["long_pauses", "cost"] == pytest.approx(true["pauses"], rel=0.2)


def test_a_short_pause_is_found_though_every_step_has_longer_gaps_than_launches():
    """The naive reading takes gaps of less than 5 ms for slow launches or waiting hosts."""
    job = make.troubled_job({"pauses": 0.03}, seed=6, ranks=4, steps=5)
    truth = job.truth.iloc[0]
    pause_ms = float(truth["cost"]) * 5
    assert 1 < pause_ms < 5
    found, _ = asked(job.bundle, "long_pauses", "host_bound", "synchronising_calls")
    assert list(found.index) == ["long_pauses"]
    assert found.loc["long_pauses", "cost"] == pytest.approx(float(truth["cost"]), rel=0.2)


def test_gaps_that_every_step_has_are_no_pauses():
    job = make.troubled_job({"synchronising calls": 0.3}, seed=2, ranks=4)
    found, _ = asked(job.bundle, "long_pauses", "synchronising_calls")
    assert list(found.index) == ["synchronising_calls"]


# --- costs, and data that lack something ---


def test_checkpoints_too_rare_cost_gpu_hours_where_the_gpus_are_known():
    log = interrupted(5, lost_s=5.0, steps_lost=30, checkpoints={60, 100})
    found, _ = asked(log, "checkpoint_interval")
    hours = found.loc["checkpoint_interval", "cost"]
    seconds = found.loc["checkpoint_interval", "cost_unit"] == "s of the job"
    known = replace(log, trace=trace(rows_of(), world_size=64).trace)
    row = asked(known, "checkpoint_interval")[0].loc["checkpoint_interval"]
    assert row["cost_unit"] == "GPU-hours"
    assert row["cost"] == pytest.approx(64 * hours / (3600 if seconds else 1))
    assert row["cost_basis"].endswith("times 64 GPUs by the traces")
    assert row["time_share"] == found.loc["checkpoint_interval", "time_share"]


def test_a_campaign_that_hit_some_bits_only_has_no_data_on_protection():
    bundle = campaign(lambda _, bit: 60 if bit == 30 else 0)
    injections = bundle.injections
    some = injections.faults.assign(
        inclusion_weight=np.where(injections.faults["bit"] >= 16, 1.0, 0.0)
    )
    some = some[some["bit"] >= 16]
    kept = injections.outcomes["exp_id"].isin(some["exp_id"])
    less = replace(injections, faults=some.reset_index(drop=True),
                   outcomes=injections.outcomes[kept].reset_index(drop=True),
                   parameters=injections.parameters.iloc[:0])  # fmt: skip
    _, rules = asked(Bundle(injections=less), "cheap_protection")
    assert rules.loc["cheap_protection", "state"] == "no data"
    assert rules.loc["cheap_protection", "note"]


def test_the_power_of_gpus_of_hosts_that_no_file_names_is_summed(fleet_demo):
    """One GPU falls off the bus early; up to then all look alike, as if metered twice."""
    bundle = load.bundle(fleet_demo / "power", tz="UTC", progress=False)
    found, rules = asked(bundle, "power_swing")
    assert rules.loc["power_swing", "state"] == "found", rules["note"]
    gpus = bundle.power.entities.query("scope == 'gpu'")["entity"]
    power = bundle.power.power
    power = power[power["entity"].isin(gpus)]
    # By hand: the sum of the means of all GPUs in every second that nearly all were read in.
    means = power.assign(second=power["time_ns"] // 1_000_000_000).pivot_table(
        index="second", columns="entity", values="power_w", observed=True
    )
    total = means.sum(axis=1)[means.notna().mean(axis=1) >= 0.9]
    low, high = np.percentile(total, [1, 99])
    assert found.loc["power_swing", "cost"] == pytest.approx((high - low) / 1e3, rel=0.05)


def test_gpus_that_are_capped_are_counted_among_gpus(fleet_demo):
    bundle = load.bundle(fleet_demo / "power", tz="UTC", progress=False)
    found, _ = asked(bundle, "capped_gpu")
    assert found.loc["capped_gpu", "finding"].startswith(
        "1 of 12 GPUs is capped by its power limit"
    )
