"""Ends of jobs in their own output, and reports of NCCL's RAS."""

import time

import pytest

from tests.load.failures.log_files import FOREIGN, findings, ns, read, recognised
from workbench import analyze, load
from workbench.errors import LoadError
from workbench.load._failures.formats import nccl_ras, slurm_output

AT = "2025-01-31T08:00:00"
STEP = "slurmstepd: error: *** {what} ON node07 CANCELLED AT 2025-01-31T08:00:00{why} ***\n"


@pytest.mark.parametrize(
    ("why", "code", "category", "severity"),
    [
        (" DUE TO TIME LIMIT", "TIMEOUT", "scheduler", "fatal"),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "NODE_FAIL", "host", "fatal"),
        (" DUE TO PREEMPTION", "PREEMPTED", "scheduler", "fatal"),
        (" DUE to SIGNAL Terminated", "CANCELLED", "unknown", "fatal"),
        ("", "CANCELLED", "planned", "info"),
    ],
)
def test_a_job_and_its_steps_that_end_are_one_failure(tmp_path, why, code, category, severity):
    text = "step 1 loss 2.5\n" + "".join(
        STEP.format(what=what, why=why) for what in ("JOB 1234", "STEP 1234.0", "STEP 1234.batch")
    )
    (row,) = read(slurm_output, tmp_path, text, tz="UTC").failures.to_dict("records")
    assert (row["job"], row["node"], row["start_ns"]) == ("1234", "node07", ns(AT))
    assert (row["code"], row["category"], row["severity"]) == (code, category, severity)
    assert row["line_count"] == 3


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1234.batch. Some of your processes",
        "slurmstepd: error: Detected 2 oom-kill event(s) in step 1234.0 cgroup. Some of your",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1234.0. Some of the step tasks",
    ],
)
def test_the_memory_killer_is_read_and_what_srun_says_of_it_is_no_second_failure(tmp_path, line):
    text = f"{line}\nsrun: error: node07: task 3: Out Of Memory\n"
    (row,) = read(slurm_output, tmp_path, text).failures.to_dict("records")
    assert (row["code"], row["job"], row["node"]) == ("OUT_OF_MEMORY", "1234", "node07")
    assert (row["category"], row["clock"]) == ("software", "none")


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd-n3: error: StepId=9.0 exceeded memory limit (282329088 > 104857600), being killed",
        "slurmstepd: error: Job 9 exceeded memory limit (5 > 4), being killed",
        "slurmstepd: error: JobId=9 exceeded virtual memory limit (5 > 4), being killed",
        "slurmstepd: error: Exceeded step memory limit at some point.",
    ],
)
def test_a_job_killed_for_memory_was_not_cancelled_by_anybody(tmp_path, line):
    text = (
        f"srun: Job step aborted: Waiting up to 4 seconds for job step to finish.\n{line}\n"
        "slurmstepd-n3: error: Exceeded job memory limit\n"
        "slurmstepd-n3: error: *** STEP 9.0 ON n3 CANCELLED AT 2025-01-31T08:00:00 ***\n"
        f"{line}\nsrun: error: n3: task 0: Killed\n"
    )
    for lines in (text.splitlines(), text.splitlines()[::-1]):
        part = read(slurm_output, tmp_path, "\n".join(lines) + "\n", tz="UTC")
        (row,) = part.failures.to_dict("records")
        assert (row["code"], row["job"], row["node"]) == ("OUT_OF_MEMORY", "9", "n3")
        assert (row["category"], row["severity"], row["start_ns"]) == ("software", "fatal", ns(AT))
        assert "exceeded" in row["text"].lower()


def test_a_step_that_is_cancelled_because_its_job_ran_out_of_time_is_no_second_failure(tmp_path):
    text = STEP.format(what="STEP 7.0", why="") + "srun: error: node07: task 1: Killed\n"
    text += STEP.format(what="JOB 7", why=" DUE TO TIME LIMIT")
    (row,) = read(slurm_output, tmp_path, text, tz="UTC").failures.to_dict("records")
    assert (row["code"], row["severity"], row["line_count"]) == ("TIMEOUT", "fatal", 3)


def test_the_file_that_slurm_names_after_a_job_tells_which_it_is(tmp_path):
    text = "srun: error: Node failure on node07\n"
    (row,) = read(slurm_output, tmp_path, text, name="slurm-77.out").failures.to_dict("records")
    assert (row["job"], row["node"], row["code"]) == ("77", "node07", "NODE_FAIL")


def test_local_time_needs_its_zone(tmp_path):
    with pytest.raises(LoadError, match=r"line 1: .* has no time zone; pass tz="):
        read(slurm_output, tmp_path, STEP.format(what="JOB 1", why=""))


def test_errors_of_slurm_that_no_rule_knows_are_counted(tmp_path):
    part = read(slurm_output, tmp_path, "srun: error: _server_read: fd 18 error reading header\n")
    assert part.failures.empty
    assert findings(part)["errors of Slurm that match no rule; not counted as failures"] == (
        "suspicious", 1,
    )  # fmt: skip


def test_an_output_is_recognised_by_its_end(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(
        "step 1 loss 2.5\n" * 200_000 + STEP.format(what="JOB 7", why=" DUE TO TIME LIMIT")
    )
    assert load.failures(path, tz="UTC").failures["code"].tolist() == ["TIMEOUT"]
    assert [name for name, text in FOREIGN.items() if recognised(slurm_output, text)] == []


RAS = """\
NCCL version 2.24.3 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  {status}

Errors
======
{errors}
Warnings
========
{warnings}
"""
DEAD = """
DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21
"""


def ras(errors="", warnings="", status="OK"):
    return RAS.format(errors=errors, warnings=warnings, status=status)


def test_a_dead_process_is_one_failure_however_often_it_is_reported(tmp_path):
    path = tmp_path / "ras.txt"
    path.write_text(ras(DEAD, status="INCOMPLETE") * 3)
    failures = load.failures(path).failures
    (row,) = failures[failures["category"] != "follow-on"].to_dict("records")
    assert (row["code"], row["node"], row["severity"]) == ("RAS DEAD", "172.16.64.213", "fatal")
    assert "considered dead" in row["text"]


def test_a_healthy_report_holds_no_failure_and_a_lagging_rank_is_a_warning(tmp_path):
    assert recognised(nccl_ras, ras())
    assert read(nccl_ras, tmp_path, ras()).failures.empty
    lag = "\n#0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different counts\n"
    (row,) = read(nccl_ras, tmp_path, ras(warnings=lag)).failures.to_dict("records")
    assert (row["code"], row["severity"]) == ("RAS MISMATCH", "warning")


@pytest.mark.parametrize("module", [slurm_output, nccl_ras])
def test_hostile_lines_are_read_quickly(tmp_path, module):
    text = "*** JOB 1 ON n CANCELLED AT " * 20_000 + "\nErrors\n" + "A" * 60_000 + "\n"
    text += "srun: error: " + "a" * 60_000 + "\nDetected 1 oom-kill event(s) in " * 9_000
    begun = time.perf_counter()
    read(module, tmp_path, text, tz="UTC")
    assert time.perf_counter() - begun < 5


TORCHRUN = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-03-02_12:00:00
  host      : n3
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 4711)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
"""


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        ("step 1 loss 2.5\n", "exit code 7 (trigger not in the log)"),
        (TORCHRUN, "exit code 1 (no traceback recorded"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=9.0.\n", "out of host memory"),
    ],
)
def test_an_exit_is_the_end_of_a_job_only_where_nothing_before_it_is(tmp_path, before, cause):
    after = "srun: error: n3: tasks 0-3: Exited with exit code 7\nsrun: error: n3: task 4: Killed\n"
    path = tmp_path / "job.out"
    path.write_text(before + after)
    bundle = load.bundle(path, tz="UTC", progress=False)
    found = analyze.findings(bundle).findings
    assert found["rule"].tolist() == ["last_failure"]
    assert f"ends with this failure: {cause}" in found["finding"][0]
    assert found["where"][0].startswith(("n3", "job 9 n3"))
