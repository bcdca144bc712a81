"""What several files of one load hold together: counted once, or flagged."""

import json

import pandas as pd
import pytest

from workbench import load

XID = "NVRM: Xid (PCI:0000:3b:00): 13, pid=71, name=python3, something happened\n"
HEADER = "JobID|State|Submit|Eligible|Start|End|NNodes|AllocTRES\n"
DAY = "2025-03-01T"


@pytest.fixture
def loaded(tmp_path):
    """Write files by name and load the folder."""

    def load_them(files, **said):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return load.failures(tmp_path, **said)

    return load_them


def run(state, end, *, start="10:00:00", job=100):
    end = end if end == "Unknown" else DAY + end
    return f"{job}|{state}|{DAY}09:00:00|{DAY}09:00:00|{DAY}{start}|{end}|2|gres/gpu=16\n"


def told(log, finding="suspicious"):
    found = log.quality[log.quality["finding"] == finding]
    return found.groupby("what")["count"].sum().to_dict()


TWICE = "rows equal to those of another file, counted again; is one a copy?"
STATES = "states that another file contains, too; counted once"


@pytest.mark.parametrize("first", [run("NODE_FAIL", "11:00:00"), run("RUNNING", "Unknown")])
def test_accounts_of_days_that_overlap_tell_of_a_run_once(loaded, first):
    log = loaded(
        {"a.txt": HEADER + first, "b.txt": HEADER + run("NODE_FAIL", "11:00:00")}, tz="UTC"
    )
    assert log.failures["job"].tolist() == ["100"]
    assert log.timeline["state"].tolist() == ["queued", "running"]
    assert log.timeline["outcome"].tolist()[1] == "NODE_FAIL"
    assert log.timeline["end_ns"].notna().all()
    assert told(log, "noted")[STATES] == 2
    assert told(log) == {}


def test_runs_of_one_job_in_two_files_are_kept_and_their_numbers_flagged(loaded):
    files = {
        "a.txt": HEADER + run("NODE_FAIL", "11:00:00"),
        "b.txt": HEADER + run("TIMEOUT", "13:00:00", start="12:00:00"),
    }
    log = loaded(files, tz="UTC")
    assert (log.timeline["state"] == "running").sum() == 2
    (what,) = told(log)
    assert what.startswith("runs of a job whose attempts another file counts, too")


def test_the_fuller_state_of_an_event_is_kept(loaded):
    event = {
        "kind": "Event",
        "metadata": {"uid": "u1"},
        "involvedObject": {"kind": "Node", "name": "n1"},
        "reason": "NodeNotReady",
        "type": "Warning",
        "firstTimestamp": f"{DAY}10:00:00Z",
    }
    files = {f"{count}.json": json.dumps(event | {"count": count}) for count in (1, 3)}
    assert loaded(files).failures["line_count"].tolist() == [3]


def test_the_last_code_of_a_gpu_is_one_failure_however_many_pages_show_it(loaded):
    page = 'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",Hostname="n1"} 79\n'
    log = loaded({"a.txt": page, "b.txt": page, "c.txt": page.replace("n1", "n2")})
    assert log.failures["node"].tolist() == ["n1", "n2"]


def test_a_copy_whose_rows_name_no_host_is_counted_and_flagged(loaded):
    line = f"[Sun Feb 23 16:24:18 2025] {XID}"
    log = loaded(
        {"a.log": line, "b.log": line, "c.log": line.replace("18 2025", "19 2025")}, tz="UTC"
    )
    assert len(log.failures) == 3
    assert told(log)[TWICE] == 1


def test_one_boot_time_for_two_hosts_is_flagged(loaded):
    files = dict.fromkeys(("gpu7.log", "gpu8.log"), f"[   50.000000] {XID}")
    said = {"boot_time": "2025-01-01T00:00Z", "node": {"gpu7": "gpu7", "gpu8": "gpu8"}}
    what = "one boot_time used for several hosts or files; load each with its own"
    assert told(loaded(files, **said))[what] == 2


def test_one_year_for_the_logs_of_december_and_january_is_flagged(loaded):
    files = {
        "kern.log": f"Jan  3 10:00:00 gpu7 kernel: {XID}",
        "kern.log.1": f"Dec 28 10:00:00 gpu7 kernel: {XID}",
    }
    log = loaded(files, tz="UTC", year=2024)
    (what,) = told(log)
    assert what.startswith("one year= used for files half a year apart")
    assert pd.to_datetime(log.failures["start_ns"].to_numpy()).year.tolist() == [2024, 2024]


def test_one_failure_in_the_logs_of_two_agents_is_flagged(loaded):
    event = "- Cycle: 0 Event: failure_detected Node: n{0}_12_0 Rank: 0 Time: 2025-03-01 10:0{0}:00 UTC\n"
    log = loaded({"a.log": event.format(1), "b.log": event.format(2)})
    (what,) = told(log)
    assert what.startswith("failures that another file reports as well, minutes before")


def test_a_watchdog_that_two_files_quote_timed_out_once(loaded):
    line = (
        "[rank3]:[E207 19:04:38.123186550 ProcessGroupNCCL.cpp:697] [Rank 3] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) "
        "ran for 600023 milliseconds before timing out.\n"
    )
    log = loaded({"slurm-1.out": line, "rank3.log": f"step 1\n{line}"}, tz="UTC", year=2025)
    assert len(log.failures) == 1
