"""Every failure that stops a job is a finding with its action; the end of the log comes first."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from workbench import analyze, load
from workbench.cli import app
from workbench.load._files.xid_codes import _XID_CODES, _codes
from workbench.tables import FAILURES

START = "2026-03-01T{h:02d}:{m:02d}:00+00:00 gpu-7 kernel: "
BUS = "0000:0c:00.0"
AMD = f"amdgpu {BUS}: amdgpu: "

# As kernels 6.1 and 6.12 and drivers write them: message, category.
FATAL = [
    ("Kernel panic - not syncing: Fatal exception", "host"),
    ("watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python:4711]", "host"),
    ("general protection fault, probably for non-canonical address 0x41: 0000 [#1] SMP", "host"),
    ("SError Interrupt on CPU71, code 0x00000000be000411 -- SError", "host"),
    ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000010091", "host"),
    ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: be00000000010091", "host"),
    ("mce: Uncorrected hardware memory error in user-access at 1a2b3c000", "host"),
    ("Memory failure: 0x1a2b3c: Sending SIGBUS to python:4711 due to hardware memory corruption", "host"),
    ("Memory failure: 0x1a2b3c: recovery action for reserved kernel page: Ignored", "host"),
    ("{1}[Hardware Error]: event severity: fatal", "host"),
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", "host"),
    ("thermal thermal_zone0: critical temperature reached (91 C), shutting down", "host"),
    ("reboot: HARDWARE PROTECTION shutdown (Temperature too high)", "host"),
    ("mlx5_core 0000:18:00.0: mlx5_pcie_event:301:(pid 0): Detected insufficient power on the PCIe slot (27W).", "host"),
    ("pcieport 0000:00:01.0: pciehp: Slot(5): Link Down", "host"),
    ("pcieport 0000:00:01.0: pciehp: Slot(5): Power fault", "host"),
    ("pci 0000:41:00.0: not ready 65535ms after bus reset; giving up", "host"),
    ("nvidia 0000:41:00.0: Unable to change power state from D3cold to D0, device inaccessible", "host"),
    ("nvidia 0000:41:00.0: AER: can't recover (no error_detected callback)", "host"),
    ("Out of memory: Killed process 4711 (python) total-vm:1kB", "host"),
    ("md/raid0:md0: Disk failure on nvme1n1 detected, failing array.", "storage"),
    ("md/raid:md0: Cannot continue operation (2/4 failed).", "storage"),
    ("block nvme0n1: no available path - failing I/O", "storage"),
    ("nvme nvme0: Disabling device after reset failure: -19", "storage"),
    ("nvme 0000:01:00.0: probe with driver nvme failed with error -5", "storage"),
    ("BTRFS info (device sda: state E): forced readonly", "storage"),
    ("BTRFS: error (device sda: state EA) in btrfs_commit_transaction:2466: errno=-5 IO failure", "storage"),
    ("XFS (nvme0n1p1): Log I/O Error (0x2) detected at xlog_ioend_work.  Shutting down filesystem.", "storage"),
    ("sd 0:0:0:0: Device offlined - not ready after error recovery", "storage"),
    ("nfs: server storage1 not responding, timed out", "storage"),
    ("mlx5_core 0000:5e:00.0: poll_health:825:(pid 0): Fatal error 1 detected", "network"),
    ("mlx5_core 0000:5e:00.0: mlx5_health_try_recover:335:(pid 1): health recovery failed", "network"),
    ("mlx5_core 0000:5e:00.0 ens1: Link down", "network"),
    ("NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0x40:2477)", "gpu"),
    ("NVRM: GPU 0000:18:00.0: GPU has been lost.", "gpu"),
    ("nvidia 0000:c1:00.0: probe with driver nvidia failed with error -1", "gpu"),
    (f"{AMD}GPU reset(3) failed", "gpu"),
    (f"{AMD}GPU reset end with ret = -22", "gpu"),
    (f"{AMD}Fatal error during GPU init", "gpu"),
    (f"{AMD}ring comp_1.0.0 timeout, signaled seq=1, emitted seq=2", "gpu"),
    (f"{AMD}poison is consumed by client 12, kick off gpu reset flow", "gpu memory"),
    (f"{AMD}RAS records:300 exceed threshold:256, GPU will not be initialized.", "gpu memory"),
    (f"{AMD}[gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32770)", "software"),
]  # fmt: skip
CORRECTED = [
    "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0",
    "{1}[Hardware Error]: event severity: corrected",
    "{1}[Hardware Error]:  Error 0, type: corrected",
    "{1}[Hardware Error]:   section_type: memory error",
    "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 9c00008000010093",
    "EDAC skx MC2: HANDLING MCE MEMORY ERROR",
    "EDAC MC0: 2 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0",  # codespell:ignore
    f"{AMD}{{1}}[Hardware Error]: Accelerator Check Architecture events logged",
    f"{AMD}{{1}}[Hardware Error]: ACA[01/02].STATUS=0x9c2040000000011b",
    f"{AMD}{{1}}socket: 0, die: 1, 2 new correctable hardware errors detected in umc block",
    f"{AMD}{{1}}socket: 0, die: 1, 2 new deferred hardware errors detected in umc block",
    f"{AMD}{{1}}socket: 0, die: 1, 0 uncorrectable hardware errors detected in total in umc block",
]
UNCORRECTED = [
    f"{AMD}{{1}}[Hardware Error]: Accelerator Check Architecture events logged",
    f"{AMD}{{1}}[Hardware Error]: ACA[01/02].CONTROL=0x000000000000ffff",
    f"{AMD}{{1}}[Hardware Error]: ACA[01/02].STATUS=0xbea0000000000108",
    f"{AMD}{{1}}[Hardware Error]: ACA[01/02].ADDR=0x0000000000000000",
    f"{AMD}{{1}}socket: 0, die: 1, 1 new uncorrectable hardware errors detected in gfx block",
    f"{AMD}{{1}}socket: 0, die: 1, 3 uncorrectable hardware errors detected in total in gfx block",
]


def log_of(folder, messages, *, pause_min=7):
    lines = [
        START.format(h=pause_min * n // 60 % 24, m=pause_min * n % 60) + text
        for n, text in enumerate(messages)
    ]
    path = folder / "kern.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return load.bundle(path, tz="UTC", progress=False)


@pytest.mark.parametrize(("message", "category"), FATAL, ids=[text[:40] for text, _ in FATAL])
def test_a_failure_that_stands_alone_is_the_first_finding(tmp_path, message, category):
    bundle = log_of(tmp_path, ["usb 1-1: new device", message])
    (row,) = bundle.failures.failures.to_dict("records")
    assert (row["category"], row["severity"]) == (category, "fatal")
    found = analyze.findings(bundle).findings
    assert found["rule"].tolist() == ["last_failure"]
    assert found["finding"][0].endswith(row["cause"])
    assert found["next_step"][0] not in ("", "none")


@pytest.mark.long
@given(chosen=st.lists(st.sampled_from(FATAL), min_size=1, max_size=12, unique=True))
@settings(max_examples=10)
def test_every_fatal_incident_is_in_a_finding_with_its_action(tmp_path_factory, chosen):
    bundle = log_of(tmp_path_factory.mktemp("log"), [text for text, _ in chosen])
    found = analyze.findings(bundle).findings
    said = " ".join(found["finding"]).lower() + " ".join(found["next_step"]).lower()
    causes = bundle.failures.failures.query("severity == 'fatal'")["cause"]
    untold = [cause for cause in set(causes) if cause.lower() not in said]
    others = found["finding"].str.contains("other").sum()
    assert not untold or others
    assert not found["next_step"].isin(["", "none"]).any()
    assert found["rule"][0] == "last_failure"


@pytest.mark.long
def test_every_xid_that_is_fatal_is_a_finding_with_an_action(tmp_path):
    fatal = [code for code, row in _codes(_XID_CODES).items() if row["severity"] == "fatal"]
    for code in fatal:
        text = f"NVRM: Xid (PCI:0000:9b:00): {code}, pid=4711, name=python, Ch 00000012"
        found = analyze.findings(log_of(tmp_path, [text])).findings
        assert found["rule"].tolist() == ["last_failure"], code
        assert found["next_step"][0] not in ("", "none"), code


def test_corrected_errors_are_no_failures(tmp_path):
    bundle = log_of(tmp_path, CORRECTED)
    rows = bundle.failures.failures
    assert set(rows["severity"]) <= {"info"}
    assert analyze.findings(bundle).findings.empty


def test_an_uncorrectable_error_of_a_gpu_counts_once_on_its_gpu(tmp_path):
    (row,) = log_of(tmp_path, UNCORRECTED, pause_min=0).failures.failures.to_dict("records")
    assert (row["code"], row["category"], row["device"]) == ("RAS", "gpu", "0000:0c:00")
    assert (row["severity"], row["other_codes"]) == ("fatal", "")


@given(
    severities=st.lists(st.sampled_from(["fatal", "unknown", "warning", "info"]), min_size=1),
    categories=st.lists(st.sampled_from(["gpu", "host", "planned", "follow-on"]), min_size=1),
)
def test_rates_and_times_count_the_same_failures(severities, categories):
    count = max(len(severities), len(categories))
    rows = [
        {"start_ns": n * 10**9, "end_ns": n * 10**9, "clock": "epoch", "node": "n1", "kind": "kernel",
         "severity": severities[n % len(severities)], "category": categories[n % len(categories)],
         "cause": "a", "code": "a", "source": "log", "line": n + 1, "line_count": 1}
        for n in range(count)
    ]  # fmt: skip
    usual = {name: "" for name, column in FAILURES.columns.items() if column.dtype == "str"}
    table = pd.DataFrame([usual | {"rank_count": 0} | row for row in rows])
    failures = FAILURES.check(FAILURES.cast(table.reindex(columns=list(FAILURES.columns))))
    rates = analyze.failure_rates(failures, nodes=["n1"], days=1)
    times = analyze.failure_times(failures, span_ns=(0, count * 10**9))
    assert rates["failure_count"].sum() == len(times)
    assert (
        len(times)
        == np.isin(failures["severity"], ["fatal", "unknown"])[
            ~np.isin(failures["category"], ["planned", "follow-on"])
        ].sum()
    )


def test_a_log_that_goes_on_after_a_failure_does_not_end_with_it(tmp_path):
    bundle = log_of(tmp_path, ["Kernel panic - not syncing: x", *["usb 1-1: new device"] * 20])
    found = analyze.findings(bundle).findings
    assert found["rule"].tolist() == ["fatal_failure"]


def test_a_warning_is_a_finding_of_low_confidence_where_nothing_worse_is(tmp_path):
    hung = "INFO: task python:4711 blocked for more than 122 seconds."
    (row,) = analyze.findings(log_of(tmp_path, [hung])).findings.itertuples()
    assert row.confidence == "low"
    assert "a warning" in row.doubt
    bundle = log_of(tmp_path, [hung, "Kernel panic - not syncing: x"])
    assert not analyze.findings(bundle).findings["finding"].str.contains("hung").any()


def test_rules_without_enough_data_are_not_counted_as_having_looked(tmp_path):
    bundle = log_of(tmp_path, ["usb 1-1: new device", "mce: x", CORRECTED[-1], CORRECTED[1]])
    rules = analyze.findings(bundle).rules.set_index("rule")
    for name in (
        "lemon_node",
        "failures_increase",
        "failure_bursts",
        "crash_loop",
        "too_few_spares",
    ):
        assert rules.loc[name, "state"] == "no data"
        assert "needs" in rules.loc[name, "note"]


def test_diagnose_tells_of_lines_that_speak_of_an_error_and_that_no_rule_knows(tmp_path):
    log_of(tmp_path, ["frobnicator0: fatal error 7", FATAL[0][0]])
    result = CliRunner().invoke(app, ["diagnose", str(tmp_path / "kern.log"), "--tz", "UTC"])
    assert result.exit_code == 1
    assert "match no rule" in " ".join(result.stderr.split())


SACCT = "JobID|State|ExitCode|Start|End|NNodes|NodeList\n{rows}"
RUN = "9|{state}|1:0|2026-03-01T{start}|2026-03-01T{end}|2|n[1-2]\n"
WATCHDOG = (
    "[rank{rank}]:[E301 {time}.000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=17, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
)


def test_that_a_job_failed_is_no_reason_beside_the_hang_that_ended_it(tmp_path):
    """Slurm cuts the end to seconds, so its record may stand before what led to it."""
    run = RUN.format(state="FAILED", start="08:00:00", end="11:59:59")
    (tmp_path / "sacct.txt").write_text(SACCT.format(rows=run))
    alone = analyze.findings(load.bundle(tmp_path, tz="UTC", year=2026, progress=False)).findings
    assert "job failed with exit code 1" in alone["finding"][0]
    (tmp_path / "job.log").write_text(
        "".join(WATCHDOG.format(rank=rank, time="12:00:00") for rank in range(3))
    )
    found = analyze.findings(load.bundle(tmp_path, tz="UTC", year=2026, progress=False)).findings
    assert found["rule"][0] == "last_failure"
    assert found["finding"][0] == "The log ends with this failure: NCCL collective timed out"


@pytest.mark.parametrize(("restart", "first"), [("12:03:00", "n2"), (None, "n1")])
def test_what_stopped_an_earlier_run_is_not_why_the_last_one_died(tmp_path, restart, first):
    runs = RUN.format(
        state="NODE_FAIL", start="08:00:00", end="12:02:00" if restart else "12:15:00"
    )
    if restart:
        runs += RUN.format(state="FAILED", start=restart, end="12:15:00")
    (tmp_path / "sacct.txt").write_text(SACCT.format(rows=runs))
    (tmp_path / "kern.log").write_text(
        "2026-03-01T12:01:00+00:00 n1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, GPU lost\n"
        "2026-03-01T12:14:00+00:00 n2 kernel: Kernel panic - not syncing: Fatal exception\n"
    )
    found = analyze.findings(load.bundle(tmp_path, tz="UTC", progress=False)).findings
    assert found["rule"][0] == "last_failure"
    assert found["where"][0].startswith(first)
