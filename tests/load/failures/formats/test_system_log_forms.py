"""Kernel lines as relays, colours, other locales and reboots leave them: read, or flagged."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError

FELL = (
    "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS (First)"
ISO = "2025-02-23T16:24:18+00:00"
BOOT = {"boot_time": "2025-01-01T00:00Z"}
UNDATED = {"tz": "UTC", "year": 2025}


@pytest.fixture
def loaded(tmp_path):
    """Write lines and load them, every line a row."""

    def load_them(*lines, **said):
        path = tmp_path / "some.log"
        path.write_text("".join(f"{line}\n" for line in lines))
        return load.failures(path, window_s=0, **said)

    return load_them


def doubts(log):
    found = log.quality[log.quality["finding"] == "suspicious"]
    return dict(zip(found["what"], found["count"], strict=True))


def times(log):
    return [pd.Timestamp(t).isoformat() for t in log.failures["start_ns"].dropna()]


@pytest.mark.parametrize(
    ("line", "said", "node", "at"),
    [
        (f"<4>1 {ISO} gpu7 kernel - - - {FELL}", {}, "gpu7", "2025-02-23T16:24:18"),
        (f'<4>1 {ISO} gpu7 kernel - - [a@1 b="c"] {FELL}', {}, "gpu7", "2025-02-23T16:24:18"),
        (f"{ISO} fe80::1ff:fe23 kernel: {FELL}", {}, "fe80::1ff:fe23", "2025-02-23T16:24:18"),
        (f"[   50.000000 <    0.000003>] {FELL}", BOOT, None, "2025-01-01T00:00:50"),
        (f"[   50.000000 <    0.000003 >] gpu7 kernel: {FELL}", BOOT, "gpu7", "2025-01-01T00:00:50"),
        (f"[Sun Feb 23 16:24:18 2025 <    0.1>] {FELL}", UNDATED, None, "2025-02-23T16:24:18"),
        (f"\x1b[32m[   50.000000] \x1b[0m\x1b[33mNVRM: \x1b[0m\x1b[31m{FELL[6:]}\x1b[0m", BOOT, None, "2025-01-01T00:00:50"),
        (f"Feb 23 16:24:18 gpu7 {FELL}", UNDATED, "gpu7", "2025-02-23T16:24:18"),
        (f"Feb 23 16:24:18 gpu7 {SWITCH}", UNDATED, "gpu7", "2025-02-23T16:24:18"),
        ("Feb 23 16:24:18 gpu7 NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.", UNDATED, "gpu7", "2025-02-23T16:24:18"),
    ],
)  # fmt: skip
def test_what_relays_and_terminals_make_of_a_line_is_read(loaded, line, said, node, at):
    log = loaded(line, **said)
    assert times(log) == [at]
    assert log.failures["code"].tolist() in (["79"], ["28006"])
    assert log.failures["node"].fillna("").tolist() == [node or ""]


def test_an_echo_without_the_kernels_own_line_is_flagged(loaded):
    echo = f"{ISO} gpu7 gpud[812]: found in kmsg: {FELL}"
    log = loaded(echo, f"{ISO} gpu7 sshd[1]: hello")
    assert log.failures.empty
    (what,) = doubts(log)
    assert what.endswith("whose own line is not in the file; not counted")
    assert doubts(loaded(echo, f"{ISO} gpu7 kernel: {FELL}")) == {}


@pytest.mark.parametrize(
    "boundary", ["-- Boot 0f1e --", "-- Reboot --", "[    0.000000] Linux version 5.15.0-100"]
)
def test_a_boot_that_says_so_ends_the_boot_time_however_short_it_ran(loaded, boundary):
    log = loaded(f"[    5.000000] {FELL}", boundary, f"[ 6000.000000] {FELL}", **BOOT)
    assert times(log) == ["2025-01-01T00:00:05"]
    assert log.failures["clock"].tolist() == ["epoch", "none"]
    assert any("second boot" in what for what in doubts(log))


def test_the_first_boot_of_a_file_is_the_one_that_was_given(loaded):
    log = loaded("-- Boot 0f1e --", "[    0.000000] Linux version 5.15.0", f"[ 9.0] {FELL}", **BOOT)
    assert times(log) == ["2025-01-01T00:00:09"]


def test_indented_lines_have_the_time_of_the_line_they_go_on_from(loaded):
    log = loaded(
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        **BOOT,
    )
    assert times(log) == ["2025-01-01T00:30:43.308145"]
    assert log.failures["device"].tolist() == ["0000:b3:00"]


def test_a_leap_day_after_new_year_is_of_the_new_year(loaded):
    stamps = ("Dec 31 23:59:58", "Feb 29 10:00:00")
    log = loaded(*(f"{stamp} gpu7 kernel: {FELL}" for stamp in stamps), tz="UTC", year=2023)
    assert times(log) == ["2023-12-31T23:59:58", "2024-02-29T10:00:00"]


def test_a_log_that_leaps_ahead_by_half_a_year_is_flagged(loaded):
    stamps = ("Jan  2 10:00:00", "Dec 31 10:00:00")
    log = loaded(*(f"{stamp} gpu7 kernel: {FELL}" for stamp in stamps), **UNDATED)
    (what,) = doubts(log)
    assert what == "stamps without a year leap ahead by half a year; is the log in order?"


@pytest.mark.parametrize("stamp", ["Okt 06 17:59:27 gpu7 kernel:", "[Sat Dez  6 17:59:27 2025]"])
def test_a_month_in_another_language_is_named(loaded, stamp):
    with pytest.raises(LoadError, match=r"line 1: .* has no English month; pass .*LC_ALL=C"):
        loaded(f"{stamp} {FELL}", **UNDATED)


def test_several_reports_on_one_line_are_flagged(loaded):
    log = loaded(f"{ISO} gpu7 kernel: {FELL}\r{ISO} gpu7 kernel: {FELL}")
    assert len(log.failures) == 1
    assert doubts(log) == {"lines that report several Xids, of which the first is taken": 1}


def test_the_uuid_of_a_gpu_beside_its_address_is_no_part_of_it(loaded):
    line = f"{ISO} gpu7 kernel: NVRM: Xid (PCI:0000:9b:00, GPU-509665ad-b600): 48, DBE"
    assert loaded(line).failures["device"].tolist() == ["0000:9b:00"]


@pytest.mark.long
@given(
    failing=st.sets(st.integers(0, 47), min_size=1, max_size=12),
    form=st.sampled_from(["%b %d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "[%a %b %d %H:%M:%S %Y]"]),
)
def test_in_the_hour_that_comes_twice_lines_without_a_failure_tell_the_order(
    tmp_path_factory, failing, form
):
    # Every five minutes from two hours before the end of summer time to two hours after it.
    start = datetime(2026, 10, 24, 23, tzinfo=UTC)
    moments = [start + timedelta(minutes=5 * number) for number in range(48)]
    said = dict.fromkeys(failing, FELL)
    lines = []
    for number, moment in enumerate(moments):
        stamp = moment.astimezone(ZoneInfo("Europe/Berlin")).strftime(form)
        host = "" if form.startswith("[") else " node1 kernel:"
        lines.append(f"{stamp}{host} {said.get(number, 'usb 1-1: new high-speed USB device')}\n")
    path = tmp_path_factory.mktemp("log") / "kern.log"
    path.write_text("".join(lines))
    log = load.failures(path, tz="Europe/Berlin", year=2026, node="node1", window_s=0)
    read = log.failures.sort_values("line")["start_ns"]
    assert read.tolist() == [int(moments[at].timestamp()) * 10**9 for at in sorted(failing)]
