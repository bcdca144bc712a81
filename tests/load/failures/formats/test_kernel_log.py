"""Kernel logs: every way a line can be stamped, every way a GPU can be named, and refusals."""

import json
import re
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError
from workbench.load._failures.formats import kernel_log
from workbench.load._failures.formats.system_log import Stamps
from workbench.load._files.archive import Source
from workbench.load._files.stream import Health, Stream
from workbench.load._files.time import Given
from workbench.load._files.xid_codes import pci_address, xid_meaning
from workbench.tables import FAILURES

FELL = (
    "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
AT = pd.Timestamp("2025-02-23T16:24:18Z")


def rows(tmp_path, *lines, window_s=0, **said):
    path = tmp_path / "some.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return load.failures(path, window_s=window_s, **said).failures


def one(tmp_path, *lines, **said):
    (row,) = rows(tmp_path, *lines, **said).to_dict("records")
    return row


STAMPED = {
    "dmesg --decode --time-format iso": (
        f"kern  :warn  : 2025-02-23T16:24:18,000000+00:00 {FELL}",
        {},
    ),
    "dmesg --time-format iso": (f"2025-02-23T17:24:18,000000+01:00 {FELL}", {}),
    "dmesg -T": (f"[Sun Feb 23 16:24:18 2025] {FELL}", {"tz": "UTC"}),
    "dmesg -T, one digit": (f"[Sun Feb  2 16:24:18 2025] {FELL}", {"tz": "UTC"}),
    "dmesg -x -T": (f"kern  :warn  : [Sun Feb 23 16:24:18 2025] {FELL}", {"tz": "UTC"}),
    "dmesg": (f"[ 1234.500000] {FELL}", {"boot_time": "2025-02-23 16:03:43.5+00:00"}),
    "dmesg with caller": (
        f"[ 1234.500000][  T812] {FELL}",
        {"boot_time": "2025-02-23 16:03:43.5Z"},
    ),
    "dmesg --raw": (f"<4>[ 1234.500000] {FELL}", {"boot_time": "2025-02-23 16:03:43.5+00:00"}),
    "/dev/kmsg": (f"4,870,1234500000,-;{FELL}", {"boot_time": "2025-02-23 16:03:43.5+00:00"}),
    "journalctl": (f"Feb 23 16:24:18 gpu7 kernel: {FELL}", {"tz": "UTC", "year": 2025}),
    "journalctl, one digit": (f"Feb  2 16:24:18 gpu7 kernel: {FELL}", {"tz": "UTC", "year": 2025}),
    "journalctl -o short-precise": (
        f"Feb 23 16:24:18.000000 gpu7 kernel: {FELL}",
        {"tz": "UTC", "year": 2025},
    ),
    "journalctl -o short-iso": (f"2025-02-23T16:24:18+0000 gpu7 kernel: {FELL}", {}),
    "journalctl -o short-iso-precise": (
        f"2025-02-23T11:24:18.000000-05:00 gpu7 kernel: {FELL}",
        {},
    ),
    "journalctl -o short-full": (f"Sun 2025-02-23 16:24:18 UTC gpu7 kernel: {FELL}", {}),
    "journalctl -o short-full, abroad": (
        f"Sun 2025-02-23 17:24:18 CET gpu7 kernel: {FELL}",
        {"tz": "Europe/Berlin"},
    ),
    "journalctl -o short-unix": (f"1740327858.000000 gpu7 kernel: {FELL}", {}),
    "journalctl -o short-monotonic": (
        f"[ 1234.500000] gpu7 kernel: {FELL}",
        {"boot_time": "2025-02-23 16:03:43.5+00:00"},
    ),
    "journalctl -o json": (
        json.dumps(
            {
                "__REALTIME_TIMESTAMP": "1740327858000000",
                "_HOSTNAME": "gpu7",
                "_TRANSPORT": "kernel",
                "MESSAGE": FELL,
            }
        ),
        {},
    ),
    "journalctl -o json, bytes": (
        json.dumps(
            {
                "__REALTIME_TIMESTAMP": "1740327858000000",
                "_HOSTNAME": "gpu7",
                "SYSLOG_IDENTIFIER": "kernel",
                "MESSAGE": list(FELL.encode()),
            },
            separators=(",", ":"),
        ),
        {},
    ),
    "rsyslog": (f"Feb 23 16:24:18 gpu7 kernel: [ 1234.5] {FELL}", {"tz": "UTC", "year": 2025}),
    "rsyslog, new style": (f"2025-02-23T17:24:18.000000+01:00 gpu7 kernel: [ 1234.5] {FELL}", {}),
    "plain, with zone": (f"2025-02-23 16:24:18Z {FELL}", {}),
    "plain, without": (f"2025-02-23 08:24:18 {FELL}", {"tz": "America/Los_Angeles"}),
}


@pytest.mark.parametrize(("line", "said"), STAMPED.values(), ids=list(STAMPED))
def test_every_stamp_in_use_is_read(tmp_path, line, said):
    row = one(tmp_path, line, **said)
    at = AT.replace(day=2) if " 2 16" in line else AT
    assert pd.Timestamp(row["start_ns"], tz="UTC") == at
    assert (row["code"], row["device"], row["clock"]) == ("79", "0000:9b:00", "epoch")
    assert row["node"] == "gpu7" if "gpu7" in line else pd.isna(row["node"])


def test_what_the_caller_said_of_time_stays_with_the_row(tmp_path):
    line, said = STAMPED["journalctl"]
    assert one(tmp_path, line, **said)["assumed"] == "tz=UTC, year=2025"
    line, said = STAMPED["dmesg"]
    assert one(tmp_path, line, **said)["assumed"].startswith("boot=2025-02-23T16:03:43")
    assert one(tmp_path, STAMPED["plain, with zone"][0])["assumed"] == ""


ISO = "2025-02-23T16:24:18,000000+00:00 "
MESSAGES = {
    "with process": (FELL, ("xid", "79", "0000:9b:00", "gpu", "fatal")),
    "without process": (
        "NVRM: Xid (PCI:0000:01:00): 48, DBE (double bit error)",
        ("xid", "48", "0000:01:00", "gpu memory", "fatal"),
    ),
    "old": (
        "NVRM: Xid (0000:03:00): 14, Channel 00000001",
        ("xid", "14", "0000:03:00", "gpu", "unknown"),
    ),
    "older": ("NVRM: Xid (0008:00): 6, PE0001", ("xid", "6", "0000:08:00", "software", "fatal")),
    "part of a GPU": (
        "NVRM: Xid (PCI:0000:9B:00 GPU-I:02): 94, Contained memory error",
        ("xid", "94", "0000:9b:00", "gpu memory", "fatal"),
    ),
    "far domain": (
        "NVRM: Xid (PCI:0018:01:00): 31, pid=1, name=a, MMU fault",
        ("xid", "31", "0018:01:00", "software", "fatal"),
    ),
    "nothing after the number": (
        "NVRM: Xid (PCI:0000:01:00): 62",
        ("xid", "62", "0000:01:00", "gpu", "fatal"),
    ),
    "unknown number": (
        "NVRM: Xid (PCI:0000:01:00): 901, new",
        ("xid", "901", "0000:01:00", "unknown", "unknown"),
    ),
    "NVLink 5, fatal": (
        "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0)",
        ("xid", "149", "0008:01:00", "nvlink", "fatal"),
    ),
    "NVLink 5, with process": (
        "NVRM: Xid (PCI:0018:01:00): 145, pid=8, name=ray::Worker, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0)",
        ("xid", "145", "0018:01:00", "nvlink", "warning"),
    ),
    "fell off, no number": (
        "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
        ("xid", "79", "0000:18:00", "gpu", "fatal"),
    ),
    "fell off, older": (
        "NVRM: GPU at 0000:18:00.0 has fallen off the bus.",
        ("xid", "79", "0000:18:00", "gpu", "fatal"),
    ),
    "switch, fatal": (
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 62 LTSSM Fault Up",
        ("sxid", "20034", "0000:05:00", "nvlink", "fatal"),
    ),
    "switch, not fatal": (
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
        ("sxid", "28006", "0000:c1:00", "nvlink", "warning"),
    ),
    "AMD, memory": (
        "amdgpu 0000:e3:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
        ("amdgpu", "RAS", "0000:e3:00", "gpu", "fatal"),
    ),
    "AMD, interrupt": (
        "amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        ("amdgpu", "RAS", "0000:1c:00", "gpu", "fatal"),
    ),
    "AMD, ring": (
        "amdgpu 0000:28:00.0: ring gfx_0.0.0 timeout, signaled seq=57638, emitted seq=57641",
        ("amdgpu", "ring timeout", "0000:28:00", "gpu", "fatal"),
    ),
    "AMD, reset": (
        "amdgpu 0000:28:00.0: amdgpu: GPU reset begin!",
        ("amdgpu", "reset", "0000:28:00", "follow-on", "fatal"),
    ),
}


@pytest.mark.parametrize(("message", "expected"), MESSAGES.values(), ids=list(MESSAGES))
def test_every_form_of_a_message_is_read(tmp_path, message, expected):
    row = one(tmp_path, ISO + message)
    assert tuple(row[n] for n in ("kind", "code", "device", "category", "severity")) == expected
    assert row["text"] == message


def test_causes_say_what_failed(tmp_path):
    assert (
        one(tmp_path, ISO + MESSAGES["unknown number"][0])["cause"]
        == "Xid 901 (not in the catalogue)"
    )
    fatal = one(tmp_path, ISO + MESSAGES["NVLink 5, fatal"][0])
    assert fatal["cause"] == "NVLink 5 error (NETIR): NETIR_LINK_EVT"
    switch = "SXid (PCI:0000:05:00.0): 99999, Fatal, Link 62 New Fault (First)"
    assert one(tmp_path, ISO + switch)["cause"] == "NVSwitch: New Fault"


@pytest.mark.parametrize(
    "message",
    [
        "amdgpu 0000:c3:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c3:00.0: amdgpu: 0 uncorrectable hardware errors detected in gfx block",
        "amdgpu 0000:c3:00.0: amdgpu: 7 correctable hardware errors detected in umc block",
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "usb 1-1: device fell off the bus",
        "postgres: oldest Xid 17 is far in the past",
    ],
)
def test_what_reports_no_failure_makes_no_row(tmp_path, message):
    assert rows(tmp_path, ISO + message, ISO + "eth0: link up").empty


def test_a_message_over_three_lines_is_one_failure_of_the_gpu_it_names(tmp_path):
    told = rows(
        tmp_path,
        ISO + "NVRM: The NVIDIA GPU 0000:18:00.0",
        ISO + "NVRM: (PCI ID: 10de:2330) installed in this system has",
        ISO + "NVRM: fallen off the bus and is not responding to commands.",
        ISO + "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.",
        window_s=300,
    )
    assert told[["device", "code", "line_count"]].to_numpy().tolist() == [["0000:18:00", "79", 2]]


def test_a_switch_reports_one_error_over_three_lines(tmp_path):
    told = rows(
        tmp_path,
        ISO + "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS (First)",
        ISO + "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46",
        ISO + "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00140004, 0x00100000}",
        window_s=300,
    )
    assert told[["code", "severity", "line_count"]].to_numpy().tolist() == [["28006", "warning", 3]]


def test_a_daemon_that_repeats_the_kernel_is_no_second_failure(tmp_path):
    path = tmp_path / "syslog"
    path.write_text(
        f"2025-02-23T16:24:18+00:00 gpu7 kernel: {FELL}\n"
        f"2025-02-23T16:24:19+00:00 gpu7 gpud[812]: found in kmsg: {FELL}\n"
    )
    log = load.failures(path, window_s=0)
    assert len(log.failures) == 1
    assert "lines in which another program repeats the kernel" in set(log.quality["what"])


def test_new_year_in_a_log_without_years_is_passed_and_noted(tmp_path):
    path = tmp_path / "kern.log"
    stamps = ["Dec 31 23:59:58", "Jan  1 00:00:02", "Dec 31 23:59:59", "Jan  1 00:00:03"]
    path.write_text("".join(f"{stamp} gpu7 kernel: {FELL}\n" for stamp in stamps))
    log = load.failures(path, tz="UTC", year=2024, window_s=0)
    years = pd.to_datetime(log.failures["start_ns"].to_numpy()).year.tolist()
    assert years == [2024, 2024, 2025, 2025]
    assert "New Year is passed; the year is counted up" in set(log.quality["what"])


def test_the_hour_that_a_clock_change_repeats_is_told_apart_by_order_and_flagged(tmp_path):
    path = tmp_path / "dmesg.log"
    path.write_text(f"[Sun Nov  2 01:50:00 2025] {FELL}\n[Sun Nov  2 01:10:00 2025] {FELL}\n")
    log = load.failures(path, tz="America/New_York", window_s=0)
    first, second = pd.to_datetime(log.failures["start_ns"].to_numpy())
    assert (second - first) == pd.Timedelta("20min")
    assert "suspicious" in set(log.quality["finding"])


def test_a_second_boot_has_no_known_time(tmp_path):
    path = tmp_path / "dmesg.log"
    path.write_text(f"[ 5000.000000] {FELL}\n[    3.000000] {FELL}\n")
    log = load.failures(path, boot_time="2025-02-23 16:00Z", window_s=0)
    assert log.failures["start_ns"].isna().tolist() == [False, True]
    assert log.failures["clock"].tolist() == ["epoch", "none"]
    assert log.quality["what"].str.contains("second boot").any()


def test_lines_without_a_stamp_have_no_time_and_are_flagged(tmp_path):
    path = tmp_path / "dmesg.log"
    path.write_text(f"{FELL}\n{FELL}\n")
    log = load.failures(path)
    assert log.failures["start_ns"].isna().all()
    assert len(log.failures) == 2, "what has no time cannot be folded"
    assert "no time stamp; the time is missing" in set(log.quality["what"])


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (
            f"[Sun Feb 23 16:24:18 2025] {FELL}",
            'line 2: .*Feb 23.* has no time zone; pass tz="UTC"',
        ),
        (f"2025-02-23 16:24:18 {FELL}", "line 2: .* has no time zone; pass tz="),
        (f"Feb 23 16:24:18 gpu7 kernel: {FELL}", "line 2: .* has no year; pass year=, .*tz="),
        (f"[ 1234.567890] {FELL}", r"line 2: .*1234.567890\]' has no date, .*pass boot_time="),
        (f"4,870,1234500000,-;{FELL}", "line 2: .* has no date, .*pass boot_time="),
    ],
)
def test_what_a_stamp_lacks_is_asked_for_by_file_line_and_argument(tmp_path, line, asked):
    path = tmp_path / "some.log"
    path.write_text(f"{line.split(' NVRM')[0].split(';')[0]} nothing\n{line}\n")
    with pytest.raises(LoadError, match=rf"some\.log, {asked}"):
        load.failures(path)


def test_nothing_is_asked_for_a_log_without_failures(tmp_path):
    path = tmp_path / "some.log"
    path.write_text("[Sun Feb 23 16:24:18 2025] eth0: up\n[Sun Feb 23 16:24:19 2025] eth0: down\n")
    log = load.failures(path, node="gpu7")
    assert log.failures.empty
    assert log.nodes["node"].tolist() == ["gpu7"]
    assert log.nodes["first_ns"].isna().all()


@pytest.mark.parametrize(
    ("stamp", "said"),
    [
        ("Feb 29 10:00:00 gpu7 kernel:", "exists in 2025"),
        ("[Mon Feb 31 10:00:00 2025]", "exists in 2025"),
    ],
)
def test_a_date_that_does_not_exist_is_refused(tmp_path, stamp, said):
    with pytest.raises(LoadError, match=said):
        rows(tmp_path, f"{stamp} {FELL}", tz="UTC", year=2025)


def test_an_xid_line_of_a_new_form_is_left_out_and_counted(tmp_path):
    path = tmp_path / "some.log"
    path.write_text(f"{ISO}NVRM: Xid error: xyz, invalid data\n{ISO}{FELL}\n")
    log = load.failures(path)
    assert len(log.failures) == 1
    found = log.quality.set_index("what").loc["a line about an Xid whose form is not known"]
    assert (found["finding"], found["where"]) == ("dropped", "line 1")


@given(
    st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.booleans(), st.booleans()
)
def test_a_pci_address_is_written_in_one_way(domain, bus, slot, is_long, is_upper):
    text = f"PCI:{domain:0{8 if is_long else 4}x}:{bus:02x}:{slot:02x}.0"
    text = text.upper() if is_upper else text
    assert pci_address(text) == f"{domain:04x}:{bus:02x}:{slot:02x}"
    assert pci_address(pci_address(text)) == pci_address(text)


@given(st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2099-01-01")))
def test_a_stamp_with_its_zone_keeps_every_microsecond(moment):
    line = f"kern  :warn  : {moment:%Y-%m-%dT%H:%M:%S},{moment.microsecond:06d}+00:00 {FELL}"
    said = Stamps(Given(), "x").read(line, 1)
    assert said.time_ns == pd.Timestamp(moment).as_unit("ns").value


@pytest.mark.parametrize("code", ["13", "31", "43", "45", "48", "62", "63", "64", "74", "79", "92"])
def test_the_catalogue_knows_the_usual_codes(code):
    assert set(xid_meaning(code)) == {"cause", "category", "severity", "action"}


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("codes", "action"),
    [
        ((13, 31, 94), "restart the job"),
        ((62, 64, 95, 109, 119, 120, 136, 140, 143), "reset the GPU"),
        ((79,), "restart the node"),
        ((43, 63, 92), "none"),
        ((45, 154), "see the failure before it"),
    ],
)
def test_the_actions_are_those_of_nvidias_catalogue(codes, action):
    assert {xid_meaning(str(code))["action"] for code in codes} == {action}


ODD = st.text(
    st.sampled_from('NVRM: Xid (PCI:0000:9b:00): 79, [1234.5] {"MESSAGE":[78,86,82,77]}2025-03-01T')
    | st.characters(),
    max_size=60,
)


@given(
    st.sampled_from([line for line, _ in STAMPED.values()]),
    st.integers(0, 150),
    st.integers(0, 40),
    ODD,
)
def test_a_spoiled_line_is_read_or_refused_with_a_reason(line, at, length, odd):
    spoiled = line[:at] + odd + line[at + length :]
    said = Given(tz="UTC", year=2025, boot_time=pd.Timestamp("2025-02-23T16:03:43Z"))
    source = Source("some.log", Path("some.log"))
    try:
        part = kernel_log.read(Spoiled(source, spoiled), said)
    except LoadError as error:
        refusal = str(error)
    else:
        refusal = "some.log, line 1: none"
        FAILURES.check(part.failures)
    assert re.match(r"some\.log, line [\d,]+: ", refusal)


class Spoiled:
    """A source whose content is available."""

    def __init__(self, source, text):
        self.label, self.text = source.label, text

    def open(self):
        content = iter([self.text.encode(errors="replace")])
        return Stream(content, label=self.label, health=Health())


@pytest.mark.parametrize(
    "line",
    [
        "Xid (" * 200_000,
        "NVRM: Xid (PCI:" + "a" * 1_000_000,
        "amdgpu uncorrectable hardware error" + "1" * 1_000_000,
        ISO + "detected NVSwitch fatal error 1" * 30_000,
        "{" + '"MESSAGE":' + "[" * 500_000 + "Xid",
        " " * 1_000_000 + "Xid",
        "Feb 23 16:24:18 " + "h" * 1_000_000 + " Xid",
    ],
)
def test_a_hostile_line_of_a_megabyte_takes_no_time(tmp_path, line):
    path = tmp_path / "some.log"
    path.write_text(f"{ISO}{FELL}\n{line}\n{ISO}{FELL}\n")
    began = time.perf_counter()
    found = load.failures(path, window_s=0).failures
    assert {1, 3} <= set(found["line"])
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("stamp", ["9999-03-01T10:00:00+00:00", "0001-03-01T10:00:00+00:00"])
def test_a_year_that_no_log_is_from_is_refused(tmp_path, stamp):
    with pytest.raises(LoadError, match=r"line 1: .* has no date that exists"):
        rows(tmp_path, f"{stamp} gpu7 kernel: {FELL}")
