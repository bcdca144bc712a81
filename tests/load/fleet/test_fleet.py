"""One door for all that a folder reports a job."""

import shutil

import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.tables import QUALITY, TIMELINE


@pytest.mark.slow
def test_every_kind_of_the_bundled_job_is_loaded_as_its_own_door_does(fleet_demo):
    fleet = load.fleet(fleet_demo, tz="UTC", scope="node_ac", progress=False)
    assert fleet.job.steps.equals(load.job_log(fleet_demo, progress=False).steps)
    assert fleet.failures.failures.equals(
        load.failures(fleet_demo, tz="UTC", progress=False).failures
    )
    assert len(fleet.power.power) == 3_159
    assert fleet.ranks["rank"].tolist() == list(range(8))
    assert fleet.is_synthetic
    assert repr(fleet).startswith(
        "Fleet: power: 3,159 readings; job log: 128 steps; failures: 3 incidents; traces: 8 ranks;"
    )


def test_what_one_door_read_is_not_left_out_by_another(fleet_demo):
    fleet = load.fleet(fleet_demo, tz="UTC", with_traces=False, progress=False)
    left_out = fleet.quality[fleet.quality["finding"] == "dropped"]
    assert not left_out["source"].str.contains(r"fleet-demo/(?:power|steps|failures)").any()
    QUALITY.check(fleet.quality)


def test_what_is_left_out_of_a_file_that_is_read_stays_told(tmp_path):
    polls = [f"2026/03/02 10:00:{second:02d}.000, 500.00 W" for second in range(60)]
    polls.insert(30, "Unable to determine the device handle for GPU, lost, Unknown Error")
    log = "\n".join(["timestamp, power.draw [W]", *polls, ""])
    (tmp_path / "smi.csv").write_text(log)
    fleet = load.fleet(tmp_path, tz="UTC", progress=False)
    alone = load.power(tmp_path, tz="UTC", progress=False).quality
    left_out = alone[alone["finding"] == "dropped"]
    assert left_out["count"].tolist() == [1]
    told = fleet.quality[fleet.quality["finding"] == "dropped"]
    assert told.values.tolist() == left_out.values.tolist()


def test_what_is_not_there_is_empty_and_named(fleet_demo, tmp_path):
    shutil.copytree(fleet_demo / "power", tmp_path / "power")
    fleet = load.fleet(tmp_path, tz="UTC", progress=False)
    assert fleet.job.steps.empty
    assert fleet.failures.failures.empty
    TIMELINE.check(fleet.failures.timeline)
    assert "not there: job log, failures, traces" in repr(fleet)
    absent = fleet.quality["what"].str.startswith("no ")
    assert fleet.quality.loc[absent, "what"].tolist() == [
        "no job log in what was given",
        "no failure logs in what was given",
        "no traces in what was given",
    ]


def test_what_is_recognised_and_cannot_be_read_is_an_error(fleet_demo, tmp_path):
    shutil.copytree(fleet_demo / "power", tmp_path / "power")
    with pytest.raises(LoadError, match="tz="):
        load.fleet(tmp_path, progress=False)


def test_columns_that_name_no_unit_are_read_in_the_one_that_is_given(tmp_path):
    path = tmp_path / "servers.csv"
    path.write_text("Time,10.0.0.1,10.0.0.2\n2023-05-15T00:00:00Z,1.2,1.3\n")
    with pytest.raises(LoadError, match="pass unit="):
        load.fleet(path, progress=False)
    told = load.fleet(path, unit="kW", progress=False)
    assert told.power.power["power_w"].tolist() == [1200, 1300]


@pytest.mark.slow
def test_the_state_of_logs_beside_traces_is_told_or_why_not(fleet_demo):
    told = load.quality(fleet_demo, tz="UTC", progress=False)
    read = told.loc[told["finding"] == "read", "source"].str.split("fleet-demo/").str[-1]
    assert {name.split("/")[0] for name in read} == {"failures", "power", "steps.jsonl", "traces"}
    without = load.quality(fleet_demo, progress=False)
    unread = without[without["finding"] == "dropped"]
    assert [source.split("/")[-1] for source in unread["source"]] == [
        *(f"synthetic_node00{node}_nvidia_smi.csv" for node in (1, 2, 3)),
        "synthetic_sacct.txt",
    ]
    assert unread["what"].str.contains('has no time zone; pass tz="UTC"').all()
    assert (without["what"] == "events").sum() == 9, "of 8 ranks and of the job"
    assert (without["source"].str.endswith("steps.jsonl") & (without["finding"] == "read")).any()


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent: there is no such file or folder"):
        load.fleet(tmp_path / "absent")


@pytest.mark.slow
def test_one_logger_writes_what_meters_read_and_what_a_job_did(real_data):
    from workbench.load.kinds import kinds_of

    folder = real_data("power-mlperf-gpt3-512gpu")
    assert kinds_of(folder / "power") == {"power logs"}
    (result,) = folder.glob("result_*.txt")
    assert "job logs" in kinds_of(result)
    fleet = load.fleet(folder, progress=False)
    assert (len(fleet.job.steps), len(fleet.power.entities)) == (288, 65)


@pytest.mark.parametrize(
    ("part", "kinds"),
    [
        ("power", {"power logs"}),
        ("steps.jsonl", {"job logs", "failure logs"}),
        ("failures", {"failure logs"}),
        ("traces", {"traces"}),
    ],
)
def test_kinds_of_files_are_told_apart(fleet_demo, part, kinds):
    from workbench.load.kinds import kinds_of

    assert kinds_of(fleet_demo / part) == kinds
