"""What kernels say of hosts, networks and disks: every failure, and what must stay harmless."""

import json

import pytest

from workbench import load
from workbench.load._failures.kernel_messages import is_unknown_error, kernel_message

# Message, then code, category and severity.
FAILED = [
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)", "EDAC UE", "host", "fatal"),  # codespell:ignore
    ("EDAC MC1: 3 CE memory scrubbing error on CPU_SrcID#1_MC#0_Chan#0_DIMM#1 (channel:0)", "EDAC CE", "host", "info"),
    ("mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: b200000000070005", "MCE", "host", "fatal"),
    ("mce: [Hardware Error]: Machine check events logged", "MCE", "host", "warning"),
    ("{1}[Hardware Error]: event severity: corrected", "MCE corrected", "host", "info"),
    ("{1}[Hardware Error]: event severity: fatal", "MCE", "host", "fatal"),
    ("Kernel panic - not syncing: Fatal exception in interrupt", "panic", "host", "fatal"),
    ("watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:71234]", "soft lockup", "host", "fatal"),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "hard lockup", "host", "fatal"),
    ("BUG: unable to handle page fault for address: ffffb1a2c0000000", "oops", "host", "fatal"),
    ("Oops: 0002 [#1] PREEMPT SMP NOPTI", "oops", "host", "fatal"),
    ("Unable to handle kernel paging request at virtual address ffff800012345678", "oops", "host", "fatal"),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "rcu stall", "host", "warning"),
    ("INFO: task jbd2/nvme0n1p2-:812 blocked for more than 120 seconds.", "hung task", "host", "warning"),
    ("python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "OOM", "host", "fatal"),
    ("Out of memory: Killed process 71234 (python3) total-vm:1234kB, anon-rss:99kB", "OOM", "host", "fatal"),
    ("Memory cgroup out of memory: Killed process 812 (python3) total-vm:1kB", "OOM", "software", "fatal"),
    ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job_7,task=python3", "OOM", "software", "fatal"),
    ("nvme nvme0: I/O 120 QID 6 timeout, aborting", "NVMe timeout", "storage", "warning"),
    ("nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "NVMe", "storage", "fatal"),
    ("blk_update_request: I/O error, dev nvme0n1, sector 123456 op 0x0:(READ)", "I/O error", "storage", "fatal"),
    ("critical medium error, dev sda, sector 1953525 op 0x0:(READ) flags 0x0", "I/O error", "storage", "fatal"),
    ("Buffer I/O error on dev nvme0n1p2, logical block 12, async page read", "I/O error", "storage", "fatal"),
    ("EXT4-fs error (device nvme0n1p2): ext4_find_entry:1456: inode #2: comm python3: reading", "EXT4", "storage", "fatal"),
    ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "read-only", "storage", "fatal"),
    ("XFS (nvme1n1): metadata I/O error in \"xlog_recover\" at daddr 0x1 len 8 error 5", "XFS", "storage", "fatal"),
    ("XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem", "XFS", "storage", "fatal"),
    ("mlx5_core 0000:17:00.0 ens1f0np0: Link down", "link down", "network", "fatal"),
    ("mlx5_core 0000:17:00.0: Port module event[error]: module 0, Cable error, High Temperature", "port module", "network", "fatal"),
    ("mlx5_core 0000:17:00.0: mlx5_pci_err: device's health compromised - reached miss count", "health", "network", "fatal"),
    ("ixgbe 0000:01:00.0 eno1: NIC Link is Down", "link down", "network", "fatal"),
    ("NETDEV WATCHDOG: ens1f0 (mlx5_core): transmit queue 3 timed out", "tx timeout", "network", "fatal"),
    ("LustreError: 4423:0:(client.c:1176:ptlrpc_import_delay_req()) @@@ IMP_CLOSED", "LustreError", "storage", "warning"),
    ("LustreError: 167-0: lfs-MDT0000: This client was evicted by lfs-MDT0000; in progress", "Lustre", "storage", "fatal"),
    ("Lustre: lfs-OST0001-osc: Connection to lfs-OST0001 (at 10.0.0.5@o2ib) was lost; in progress", "Lustre connection", "storage", "warning"),
    ("python3[71234]: segfault at 7f0 ip 00007f1 sp 00007ffd error 4 in libnccl.so.2.20.5[7f00+a00]", "segfault", "software", "fatal"),
    ("nvidia: probe of 0000:3b:00.0 failed with error -1", "probe", "gpu", "fatal"),
    ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1474)", "RmInitAdapter", "gpu", "fatal"),
    ("pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:16:00.0", "AER", "host", "fatal"),  # codespell:ignore
    ("pcieport 0000:15:01.0: AER: Corrected error received: 0000:16:00.0", "AER corrected", "host", "info"),  # codespell:ignore
]  # fmt: skip

# What healthy hosts write at boot and after it.
HARMLESS = """\
Linux version 5.15.0-105-generic (build@lcy02) (gcc 11.4.0) #115-Ubuntu SMP
Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro panic=10 hung_task_panic=1 nmi_watchdog=0
Kernel command line: BOOT_IMAGE=/vmlinuz ro errors=remount-ro crashkernel=auto
ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0.XHC.RHUB.SS01], AE_NOT_FOUND
ACPI Error: AE_NOT_FOUND, During name lookup/catalog (20210730/psobject-220)
acpi PNP0A08:00: _OSC: OS supports [ExtendedConfig ASPM ClockPM Segments MSI EDR HPX-Type3]
HEST: Enabling Firmware First mode for corrected errors.
ERST: Error Record Serialization Table (ERST) support is initialized.
GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.
RAS: Correctable Errors collector initialized.
mce: CPU0: Thermal monitoring enabled (TM1)
mce: CPU supports 20 MCE banks
MCE: In-kernel MCE decoding enabled.
EDAC MC: Ver: 3.0.0
EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:3a:0a.0
EDAC i10nm: No hbm memory
NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.
pcieport 0000:00:1c.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+
nvidia: module verification failed: signature and/or required key missing - tainting kernel
nvidia-nvlink: Nvlink Core is being initialized, major device number 510
NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build
platform regulatory.0: Direct firmware load for regulatory.db failed with error -2
integrity: Problem loading X.509 certificate -65
EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Opts: errors=remount-ro. Quota mode: none.
EXT4-fs (nvme0n1p2): recovery complete
XFS (nvme1n1): Ending clean mount
nvme nvme0: 64/0/0 default/read/poll queues
nvme nvme0: pci function 0000:01:00.0
Btrfs loaded, crc32c=crc32c-intel
mlx5_core 0000:17:00.1 ens1f1np1: Link down
mlx5_core 0000:17:00.0 ens1f0np0: Link up
ata3: SATA link down (SStatus 0 SControl 300)
IPv6: ADDRCONF(NETDEV_CHANGE): ens1f0np0: link becomes ready
Lustre: Lustre: Build Version: 2.15.4
Lustre: Mounted lfs-client
audit: type=1400 audit(1738310400.1:2): apparmor="DENIED" operation="open" error=-13
raid6: using avx512x2 recovery algorithm
blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0
[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
self test: 0 errors, 0 failed, no failures
scrub finished, no uncorrectable errors found
perf: interrupt took too long (2510 > 2500), lowering its rate
node_exporter[2622]: segfault at 0 ip 00005581c0a1 sp 00007ffd3f20 error 4 in node_exporter[5581c0a0+1f000]
CPU12: Core temperature/speed normal
""".splitlines()
HARMLESS.append("pcieport 0000:00:1c.0: AER: enabled with IRQ 122")  # codespell:ignore

STAMPS = {
    "dmesg --time-format iso": "2025-01-31T08:00:{s:02d},000000+00:00 {text}",
    "dmesg -x --time-format iso": "kern  :warn  : 2025-01-31T08:00:{s:02d},000000+00:00 {text}",
    "dmesg": "[   {s}.000000] {text}",
    "dmesg -T": "[Fri Jan 31 08:00:{s:02d} 2025] {text}",
    "journalctl": "Jan 31 08:00:{s:02d} gpu7 kernel: {text}",
    "journalctl -o short-iso": "2025-01-31T08:00:{s:02d}+0000 gpu7 kernel: {text}",
    "rsyslog": "2025-01-31T08:00:{s:02d}.000000+00:00 gpu7 kernel: [   12.3] {text}",
}
SAID = {"tz": "UTC", "year": 2025, "boot_time": "2025-01-31T08:00Z"}
UNKNOWN = "lines that report an error but match no rule; not counted as failures"


def loaded(folder, messages, form="{text}"):
    path = folder / "kern.log"
    lines = (form.format(s=n % 60, text=text) for n, text in enumerate(messages))
    path.write_text("".join(f"{line}\n" for line in lines))
    return load.failures(path, window_s=0, **SAID)


@pytest.mark.parametrize(
    ("text", "code", "category", "severity"), FAILED, ids=lambda value: str(value)[:40]
)
def test_a_message_is_a_failure_of_its_category(text, code, category, severity):
    row = kernel_message(text)
    assert (row["kind"], row["code"], row["category"], row["severity"]) == (
        "kernel", code, category, severity,
    )  # fmt: skip


@pytest.mark.parametrize("form", STAMPS.values(), ids=list(STAMPS))
def test_every_failure_is_read_under_every_stamp(tmp_path, form):
    log = loaded(tmp_path, [text for text, *_ in FAILED], form)
    assert sorted(log.failures["code"]) == sorted(code for _, code, *_ in FAILED)
    assert log.failures["start_ns"].notna().all()


def test_failures_are_read_from_the_journal_as_json(tmp_path):
    entries = [
        {"__REALTIME_TIMESTAMP": "1738310400000000", "_HOSTNAME": "gpu7", "_TRANSPORT": "kernel", "MESSAGE": text}
        for text, *_ in FAILED
    ]  # fmt: skip
    log = loaded(tmp_path, map(json.dumps, entries))
    assert len(log.failures) == len(FAILED)
    assert set(log.failures["node"]) == {"gpu7"}


@pytest.mark.parametrize("form", STAMPS.values(), ids=list(STAMPS))
def test_a_healthy_boot_reports_no_failure_and_no_doubt(tmp_path, form):
    log = loaded(tmp_path, HARMLESS, form)
    assert log.failures.empty, log.failures["text"].tolist()
    flagged = log.quality[~log.quality["finding"].isin(["read", "skipped by design", "noted"])]
    assert flagged.empty, flagged["where"].tolist()


@pytest.mark.parametrize(
    "text",
    [
        "frobnicator 0000:01:00.0: unrecoverable failure in stage 3",
        "megaraid_sas 0000:01:00.0: FW fatal error: 0x12",
        "zfs: pool tank has encountered an uncorrectable problem",
        "thunk: request timed out",
    ],
)
def test_a_line_that_speaks_of_an_error_and_is_known_to_no_rule_is_no_clean_line(tmp_path, text):
    log = loaded(tmp_path, ["eth0: up", text], STAMPS["journalctl -o short-iso"])
    (row,) = log.quality[log.quality["finding"] == "suspicious"].to_dict("records")
    assert (row["what"], row["count"]) == (UNKNOWN, 1)
    assert row["where"].startswith("line 2: ")
    none = log.quality.set_index("what").loc["lines that report none", "count"]
    assert none == 1
    assert is_unknown_error(text)


def test_an_unknown_error_asks_for_no_zone(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text("[Fri Jan 31 08:00:00 2025] frob: fatal problem\n" * 3)
    assert UNKNOWN in set(load.failures(path).quality["what"])


def test_a_line_that_its_level_calls_an_error_is_counted(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text("kern  :err   : 2025-01-31T08:00:00,000000+00:00 frob 3: gave up\n")
    assert UNKNOWN in set(load.failures(path).quality["what"])


def test_a_link_that_is_back_at_once_is_set_aside_and_one_that_stays_down_is_a_failure(tmp_path):
    form = STAMPS["journalctl -o short-iso"]
    port = "mlx5_core 0000:17:00.0 ens1f0np0: Link"
    flap = loaded(tmp_path, [f"{port} down", f"{port} up"], form)
    assert flap.failures.empty
    assert "links and servers that recovered before a job notices" in set(flap.quality["what"])
    late = loaded(tmp_path, [f"{port} down", *["eth9: up"] * 40, f"{port} up"], form)
    assert late.failures["code"].tolist() == ["link down"]
    booted = ["Linux version 5.15.0 (gcc)", f"{port} down", f"{port} up", f"{port} down"]
    assert loaded(tmp_path, booted, form).failures["line"].tolist() == [4]


def test_a_boot_or_a_link_of_one_host_says_nothing_of_another(tmp_path):
    port = "mlx5_core 0000:17:00.0 ens1f0np0: Link"
    xid = "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."
    told = [
        ("a", "kernel", "Linux version 5.15.0 (gcc)"),
        ("b", "kernel", f"{port} down"),  # up since before the log begins
        ("a", "kernel", f"{port} down"),  # no cable since the boot
        ("b", "kernel", xid),
        ("b", "collector[7]", f"kernel: {xid}"),
        ("a", "collector[7]", f"kernel: {xid}"),  # the kernel of a said nothing of it
    ]
    path = tmp_path / "merged.log"
    path.write_text(
        "".join(
            f"2025-01-31T{n:02}:00:00+00:00 {host} {program}: {text}\n"
            for n, (host, program, text) in enumerate(told)
        )
    )
    log = load.failures(path)
    assert log.failures[["node", "code"]].to_numpy().tolist() == [["b", "link down"], ["b", "79"]]
    repeats = log.quality[log.quality["what"].str.contains("repeats the kernel")]
    assert repeats["finding"].tolist() == ["skipped by design", "suspicious"]
    assert repeats["where"].tolist() == ["line 5", "line 6"]


def test_errors_of_a_host_and_its_gpus_at_once_are_one_failure(tmp_path):
    form = STAMPS["journalctl -o short-iso"]
    path = tmp_path / "kern.log"
    xid = "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."
    texts = [FAILED[2][0], xid, "Kernel panic - not syncing: Fatal machine check"]
    path.write_text("".join(form.format(s=n, text=text) + "\n" for n, text in enumerate(texts)))
    (row,) = load.failures(path).failures.to_dict("records")
    assert (row["code"], row["other_codes"], row["line_count"]) == ("MCE", "79, panic", 3)


def test_a_gpu_that_needs_no_recovery_any_more_has_not_failed(tmp_path):
    text = "NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert loaded(tmp_path, [text], STAMPS["journalctl -o short-iso"]).failures.empty
