"""Simulated failure logs: reproducible, on one clock, and read as what was injected."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data import make
from data.make import FAILURE_TRUTH
from workbench import analyze, load
from workbench.errors import LoadError, WorkbenchError

MINUTE_NS = 60_000_000_000
FILES = {"synthetic_kern.log", "synthetic_sacct.txt", "synthetic_goodput.jsonl"}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def texts(values):
    """Give texts and None, whatever a version of pandas takes for a missing text."""
    return [None if pd.isna(value) else str(value) for value in values]


def events(folder):
    lines = (folder / "synthetic_goodput.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def stopped(truth):
    return truth[truth["is_job_stopped"]].reset_index(drop=True)


@pytest.fixture(scope="module")
def truth(failures_demo):
    return make.failure_truth(failures_demo)


@pytest.fixture(scope="module")
def log(failures_demo):
    return load.failures(failures_demo, tz="UTC", progress=False)


def reported(log, kind):
    rows = log.failures[log.failures["kind"] == kind]
    return rows.sort_values("start_ns", kind="stable", ignore_index=True)


def states(log, name):
    return log.timeline[log.timeline["source"].str.endswith(name)]


# --- reproducible -------------------------------------------------------------------------


def test_the_bundled_set_is_what_its_command_makes(failures_demo, truth, tmp_path):
    again = make.failure_logs(tmp_path / "again", seed=7)
    assert contents(tmp_path / "again") == contents(failures_demo)
    pd.testing.assert_frame_equal(again, truth)


def test_another_seed_is_another_history(tmp_path):
    made = []
    for seed in (8, 9):
        make.failure_logs(tmp_path / str(seed), seed=seed, node_count=8, days=4)
        made.append(contents(tmp_path / str(seed)))
    assert not any(made[0][name] == made[1][name] for name in made[0])


# --- labelled -----------------------------------------------------------------------------


def test_every_file_says_that_it_is_synthetic(failures_demo):
    assert set(contents(failures_demo)) == {*FILES, "README.md", "truth.csv"}
    assert "Nothing here was measured" in (failures_demo / "README.md").read_text()
    for name in FILES:
        one = load.failures(failures_demo / name, tz="UTC", progress=False)
        assert one.is_synthetic, name
    assert all(event["synthetic"] is True for event in events(failures_demo))


def test_the_accounting_says_that_its_times_are_utc(failures_demo):
    records = pd.read_csv(failures_demo / "synthetic_sacct.txt", sep="|", dtype=str)
    comments = records.loc[~records["JobID"].str.contains(".", regex=False), "Comment"]
    assert comments.str.endswith("times in UTC").all()


# --- of the size that was requested -------------------------------------------------------


def test_a_month_holds_well_over_a_hundred_failures_a_quarter_of_them_on_two_nodes(truth):
    FAILURE_TRUTH.check(truth)
    fatal = truth[truth["is_fatal"]]
    assert 110 <= len(fatal) <= 150
    assert fatal.loc[fatal["is_lemon"], "node"].nunique() == 2
    assert 0.2 < fatal["is_lemon"].mean() < 0.3
    assert {"79", "48", "119", "74", "149", "94", "95", "13", "31", "63"} <= set(texts(truth.code))
    days = stopped(truth)["start_ns"].diff().mean() / (1440 * MINUTE_NS)
    assert 5 / 24 < days < 6.5 / 24


# --- read as what was injected ------------------------------------------------------------


def test_the_loader_has_nothing_to_complain_about(log):
    assert set(log.quality["finding"]) == {"read", "skipped by design", "noted"}
    noted = set(log.quality.loc[log.quality["finding"] == "noted", "what"])
    assert noted == {
        "the file says that it is synthetic",
        "lines folded into the incident of another (300 s)",
        "runs of a job that a log of another kind also reports; sum the rows of one source",
    }
    assert len(log.nodes) <= 136


def test_the_kernel_log_is_read_incident_by_incident(log, truth):
    found = reported(log, "xid")
    told = truth[truth["line_count"] > 0].reset_index(drop=True)
    for name in ("start_ns", "end_ns", "line_count"):
        assert found[name].tolist() == told[name].tolist(), name
    for name in ("node", "device", "code"):
        assert texts(found[name]) == texts(told[name]), name
    assert found["other_codes"].tolist() == told["other_codes"].tolist()
    assert (found["severity"] == "fatal").tolist() == told["is_fatal"].tolist()


def test_incidents_of_one_device_are_far_enough_apart_for_any_usual_window(failures_demo, truth):
    wide = load.failures(failures_demo / "synthetic_kern.log", window_s=900, progress=False)
    assert len(wide.failures) == (truth["line_count"] > 0).sum()


def test_every_interruption_of_the_job_is_in_its_own_log(log, truth):
    found, told = reported(log, "goodput"), stopped(truth)
    assert found["start_ns"].tolist() == told["start_ns"].tolist()
    assert found["end_ns"].tolist() == told["resumed_ns"].tolist()
    assert texts(found["node"]) == texts(told["node"])
    assert texts(found["code"]) == texts(told["code"])


def test_the_accounting_has_an_attempt_for_every_interruption(log, truth):
    told = stopped(truth)
    runs = states(log, "sacct.txt").query("state == 'running'").sort_values("attempt")
    assert runs["attempt"].tolist() == list(range(1, len(told) + 2))
    assert runs["outcome"].tolist()[-1] == "COMPLETED"
    assert set(runs["outcome"].tolist()[:-1]) == {"NODE_FAIL", "FAILED"}
    second = 1_000_000_000
    ends = runs["end_ns"].to_numpy(dtype="int64")[:-1]
    starts = runs["start_ns"].to_numpy(dtype="int64")[1:]
    assert (told["detected_ns"].to_numpy(dtype="int64") // second * second == ends).all()
    assert (told["ready_ns"].to_numpy(dtype="int64") // second * second == starts).all()
    assert set(runs["node_count"]) == {128}
    assert set(runs["gpu_count"]) == {1024}


def test_scheduler_and_job_agree_on_the_nodes_of_every_attempt(log):
    runs = states(log, "sacct.txt").query("state == 'running'")
    joined = states(log, "goodput.jsonl").query("state == 'joining'")
    for attempt, nodes in zip(joined["attempt"], joined["nodes"], strict=True):
        theirs = runs.loc[runs["attempt"] == attempt, "nodes"].iloc[0]
        assert set(nodes.split(",")) == set(theirs.split(",")), attempt


def test_a_failed_node_is_not_in_the_attempt_that_follows(log, truth):
    runs = states(log, "sacct.txt").query("state == 'running'").set_index("attempt")
    for row in stopped(truth).itertuples():
        if runs.loc[row.attempt, "outcome"] == "NODE_FAIL":
            assert row.node in runs.loc[row.attempt, "nodes"].split(",")
            assert row.node not in runs.loc[row.attempt + 1, "nodes"].split(",")


def test_the_job_goes_back_to_its_last_checkpoint_and_saves_every_two_hours(failures_demo, truth):
    saved, lost, saves = 0, [], []
    for event in events(failures_demo):
        if event["event"] == "checkpoint_end":
            saved = event["step"]
        elif event["event"] == "checkpoint_start":
            saves.append(event["step"] - saved)
        elif event["event"] == "interrupt":
            lost.append(event["step"] - saved)
        elif event["event"] == "running":
            assert event["step"] == saved
    assert lost == stopped(truth)["lost_step_count"].tolist()
    assert set(saves) == {360}


def test_a_recovery_has_its_phases(truth):
    told = stopped(truth)
    detection = (told["detected_ns"] - told["start_ns"]) / MINUTE_NS
    assert detection.between(1, 10).all()
    assert (told["ready_ns"] > told["detected_ns"]).all()
    assert (told["resumed_ns"] > told["ready_ns"]).all()
    assert 10 < ((told["resumed_ns"] - told["start_ns"]) / MINUTE_NS).mean() < 18


def test_some_failures_strike_while_the_job_starts_up(truth):
    told = stopped(truth)
    again = told["resumed_ns"].duplicated()
    assert 1 <= again.sum() <= 5
    assert (told.loc[again, "lost_step_count"] == 0).all()


# --- found by the analyses ----------------------------------------------------------------


def test_the_lemons_are_found_and_nobody_else(log, truth):
    nodes = [f"node{number:03d}" for number in range(1, 137)]
    found = analyze.lemon_nodes(reported(log, "xid"), nodes=nodes, days=30)
    lemons = set(truth.loc[truth["is_lemon"], "node"])
    assert set(found.loc[found["is_lemon"], "node"]) == lemons


def test_every_failed_attempt_gets_the_cause_it_had(log, truth):
    kernel = reported(log, "xid")
    runs = states(log, "sacct.txt")
    found = analyze.job_failures(kernel, runs).sort_values("attempt")
    told = stopped(truth)
    assert found["attempt"].tolist() == told["attempt"].tolist()
    silent = told["code"].isna().to_numpy()
    assert set(found.loc[silent, "primary_cause"]) == {"unknown"}
    causes = found.loc[~silent, "primary_cause"].tolist()
    same = [a.startswith(b) for a, b in zip(causes, told.loc[~silent, "cause"], strict=True)]
    assert np.mean(same) == 1


# --- any history --------------------------------------------------------------------------


@pytest.mark.slow
@example(seed=103, node_count=5, interval=20.0, lemon_count=0)
@example(seed=7125, node_count=6, interval=211.0, lemon_count=0)
@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    node_count=st.integers(1, 40),
    interval=st.floats(20, 2_000),
    lemon_count=st.integers(0, 1),
)
def test_whatever_happens_the_logs_agree(tmp_path_factory, seed, node_count, interval, lemon_count):
    folder = tmp_path_factory.mktemp("logs") / "set"
    truth = make.failure_logs(
        folder,
        seed=seed,
        node_count=node_count,
        days=3,
        failure_interval_min=interval,
        lemon_count=lemon_count,
    )
    log = load.failures(folder, tz="UTC", progress=False)
    assert not set(log.quality["finding"]) & {"dropped", "suspicious", "repaired", "assumed"}
    told = truth[truth["line_count"] > 0]
    # A GPU that fails again within minutes is one incident; a short window tells both.
    close = load.failures(folder, tz="UTC", window_s=30, progress=False)
    assert reported(close, "xid")["start_ns"].tolist() == told["start_ns"].tolist()
    # The same failure soon after the job runs again is one incident; unfolded they are two.
    plain = load.failures(folder, tz="UTC", window_s=0, progress=False)
    assert reported(plain, "goodput")["start_ns"].tolist() == stopped(truth)["start_ns"].tolist()
    assert len(reported(plain, "slurm")) == truth["is_job_stopped"].sum()


def test_without_lemons_nobody_is_one(tmp_path):
    truth = make.failure_logs(tmp_path / "set", seed=3, node_count=16, days=5, lemon_count=0)
    assert not truth["is_lemon"].any()
    assert truth["is_job_stopped"].any()


# --- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node_count": 0}, "cannot simulate 0 nodes for 30 days; choose 1 to 100,000 nodes"),
        ({"days": -1}, "cannot simulate 128 nodes for -1 days"),
        ({"node_count": 4, "lemon_count": 5}, "lemon_count=5 must be 0 to node_count=4"),
        ({"failure_interval_min": 0}, "failure_interval_min must be above 0"),
    ],
)
def test_impossible_histories_are_refused(options, message, tmp_path):
    with pytest.raises(WorkbenchError, match=message):
        make.failure_logs(tmp_path / "set", seed=1, **options)
    assert not (tmp_path / "set").exists()


def test_existing_files_are_never_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="is not empty; name a new folder"):
        make.failure_logs(tmp_path, seed=1)


def test_a_folder_without_truth_is_an_error(tmp_path):
    with pytest.raises(LoadError, match=r"pass a folder written by data\.make"):
        make.failure_truth(tmp_path)
