"""Findings of simulated jobs against their truth, by files and in memory, and of real jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import make
from data.make import TROUBLE_TRUTH
from data.make._fleet.kineto import trace_text
from data.make._fleet.troubled_trace import run_traced, trace_of, traced_job
from workbench import analyze, load
from workbench.tables import Bundle


def findings_of(troubles, **options):
    job = make.troubled_job(troubles, **options)
    return job, analyze.findings(job.bundle).findings.set_index("rule")


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), trouble=st.sampled_from(["slow rank", "late host"]))
def test_the_rank_that_is_late_is_named_and_not_those_that_it_holds_up(seed, trouble):
    """In its node others wait for it first, so the rest of the job waits for any of them."""
    job, table = findings_of({trouble: 0.08}, seed=seed, ranks=16)
    truth = job.truth.iloc[0]
    assert table.loc[["straggler"], "where"].str.startswith(f"{truth['where']},").all()
    assert table.loc["straggler", "cost"] == pytest.approx(truth["cost"], rel=0.2)


def test_transfer_that_waiting_lays_bare_is_a_cost_of_the_late_rank():
    """Compute that hides a transfer is over before it begins, where a rank is late."""
    job, table = findings_of({"slow rank": 0.2}, seed=11, ranks=8)
    assert table.loc["straggler", "cost"] == pytest.approx(job.truth["cost"].iloc[0], rel=0.1)


def test_a_slow_link_makes_no_rank_a_straggler():
    job, table = findings_of({"slow link": 0.1}, seed=3, ranks=16)
    assert "straggler" not in table.index
    assert table.loc["slow_group", "where"] == job.truth["where"].iloc[0]


def test_a_cap_that_ends_is_no_lasting_slowdown():
    job, table = findings_of({"power cap": 0.1}, seed=5)
    assert "slower_steps" not in table.index
    assert table.loc["capped_gpu", "cost"] == pytest.approx(job.truth["cost"].iloc[0], rel=0.1)


def test_gaps_after_a_synchronising_call_are_no_slow_launches():
    _, table = findings_of({"synchronising calls": 0.1}, seed=6, ranks=4)
    assert "synchronising_calls" in table.index
    assert "host_bound" not in table.index


def test_loading_data_after_a_synchronising_call_is_loading():
    _, table = findings_of({"slow data loader": 0.1}, seed=6, ranks=4)
    assert "data_loader" in table.index
    assert "synchronising_calls" not in table.index


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000), trouble=st.sampled_from(make.TROUBLES["traces"]))
def test_a_stronger_trouble_costs_more(seed, trouble):
    weak, strong = (
        make.troubled_job({trouble: size}, seed=seed, ranks=4, steps=4).truth.iloc[0]
        for size in (0.05, 0.2)
    )
    assert strong["loss_share"] > weak["loss_share"]


@pytest.mark.parametrize("kind", make.TROUBLES)
def test_every_trouble_has_a_truth(kind):
    for trouble in make.TROUBLES[kind]:
        truth = TROUBLE_TRUTH.check(make.troubled_job({trouble: 0.1}, seed=1, ranks=4).truth)
        assert truth["trouble"].tolist() == [trouble]
        assert truth["loss_share"].iloc[0] > 0.02


def test_the_same_seed_gives_the_same_job():
    one, two = (make.troubled_job({"late host": 0.1}, seed=8, ranks=4) for _ in range(2))
    pd.testing.assert_frame_equal(one.bundle.trace.events, two.bundle.trace.events)
    pd.testing.assert_frame_equal(one.truth, two.truth)


@pytest.mark.parametrize(
    ("troubles", "options", "message"),
    [
        ({"gremlins": 0.1}, {}, r"unknown troubles \['gremlins'\]"),
        ({"slow rank": 0.0}, {}, "'slow rank' has strength 0.0"),
        ({"slow rank": float("nan")}, {}, "'slow rank' has strength nan"),
        ({}, {"ranks": 1}, "ranks=1"),
        ({}, {"ranks": 9}, "ranks=9"),
        ({}, {"steps": 0}, "steps=0"),
    ],
)
def test_impossible_jobs_are_refused(troubles, options, message):
    with pytest.raises(ValueError, match=message):
        make.troubled_job(troubles, seed=1, **options)


# The writer of files knows neither wrong clocks nor ranks that send unequal numbers of elements.
IN_MEMORY_ONLY = {"wrong clock", "unequal experts"}
IN_FILES = [name for name in make.TROUBLES["traces"] if name not in IN_MEMORY_ONLY]


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("trouble", IN_FILES)
def test_a_trace_in_memory_and_in_files_has_the_same_findings(trouble, seed, tmp_path):
    job = traced_job({trouble: 0.08}, seed=seed, ranks=4, steps=5)
    history = run_traced(job)
    for rank in range(job.ranks):
        (tmp_path / f"rank_{rank}.pt.trace.json").write_text(trace_text(history, rank))
    loaded = load.traces(tmp_path, progress=False)
    files, memory = (
        # A replay also reads calls of the host that only files hold.
        analyze.findings(Bundle(trace=trace), domains=["traces"]).findings.set_index("rule")
        for trace in (loaded, trace_of(history))
    )
    assert sorted(files.index) == sorted(memory.index)
    # Clocks in memory disagree by some microseconds.
    shares = files["time_share"].fillna(0) - memory["time_share"].fillna(0)
    assert np.abs(shares.astype("float64")).max() < 0.005


def found_in(path):
    return analyze.findings(load.bundle(path, tz="UTC", progress=False)).findings.set_index("rule")


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize(
    ("dataset", "file", "rule", "answer"),
    [
        (
            "kineto-dlrm-8rank",
            "dlrm_kineto.tar.gz",
            "straggler",
            "Rank 7 .* its host launches work late",
        ),
        ("stragglers-bytedance", "trace-SE.parquet", "sequence_lengths", "sequence lengths"),
        ("stragglers-bytedance", "trace-ST.parquet", "last_stage", "last pipeline stage"),
        ("flight-recorder", "lock_gil_1st", "hang", "Ranks 9 and 14 .* was never called"),
        (
            "flight-recorder",
            "gpu_error_1st",
            "hang",
            "Ranks 12 and 14 .* other ranks have completed is still pending",
        ),
        ("power-mlperf-gpt3-512gpu", "", "power_swing", "Power swings"),
    ],
)
def test_real_jobs_have_their_known_answers(real_data, dataset, file, rule, answer):
    table = found_in(real_data(dataset) / file)
    assert table.loc[[rule], "finding"].str.contains(answer, regex=True).any()
    wrong = {"slow_workers", "straggler", "last_stage", "sequence_lengths"} - {rule}
    assert not wrong & set(table.index)


@pytest.mark.long
@settings(max_examples=6)
@given(
    seed=st.integers(0, 10_000), rank=st.integers(0, 7), off_us=st.sampled_from([-9e6, -800, 5e3])
)
def test_a_wrong_clock_changes_no_finding_but_its_own(seed, rank, off_us):
    """On recorded times a rank whose clock is ahead seems to arrive last."""
    job = make.troubled_job({"slow rank": 0.1}, seed=seed, ranks=8)
    trace = job.bundle.trace
    shift = (trace.events["rank"] == rank).to_numpy() * np.int64(1_000 * off_us)
    events = trace.events.assign(start_ns=trace.events["start_ns"] + shift)
    shifted = analyze.findings(replace(trace, events=events), rules=["straggler"]).findings
    expected = analyze.findings(trace, rules=["straggler"]).findings
    assert shifted["where"].tolist() == expected["where"].tolist()
    assert shifted["cost"].tolist() == pytest.approx(expected["cost"].tolist(), rel=0.01)
    off = analyze.findings(replace(trace, events=events), rules=["clock_disagreement"]).findings
    assert f"rank {rank} " in off["finding"].iloc[0]


def test_pauses_that_strike_the_last_stage_are_pauses():
    """Without its operations the last stage has no pauses either: it explains half of the loss."""
    job, table = findings_of({"pipeline: pauses": 0.3}, seed=37, ranks=16, steps=9)
    slowdown = analyze.job_slowdown(job.bundle.operations).iloc[0]
    assert slowdown["last_stage_ratio"] >= 0.5
    assert slowdown["verdict"] == "pauses"
    assert "last_stage" not in table.index
    assert table.loc["pauses", "cost"] == pytest.approx(job.truth["cost"].iloc[0], rel=0.2)
