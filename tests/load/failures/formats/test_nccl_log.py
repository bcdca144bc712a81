"""NCCL watchdog and NCCL warnings. The forms are those of PyTorch 1.13 to 2.6
(ProcessGroupNCCL.cpp) and NCCL 2.4 to 2.27 (net_ib), as they stand in public reports."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.load.failures.log_files import FOREIGN, findings, ns, read, recognised
from workbench.errors import LoadError
from workbench.load._failures.formats import nccl_log

GIVEN = {"year": 2025, "tz": "UTC"}


def work(seq=2, op="ALLGATHER", timeout=600000, ran=600021):
    return (
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=16, NumelOut=256, Timeout(ms)={timeout}) "
        f"ran for {ran} milliseconds before timing out."
    )


def caught(stamp, rank=115, **of_work):
    return (
        f"[rank{rank}]:[{stamp} ProcessGroupNCCL.cpp:697] [Rank 14] Watchdog caught collective "
        f"operation timeout: {work(**of_work)}\n"
    )


def only(part):
    assert len(part.failures) == 1, part.failures
    return part.failures.iloc[0]


def test_reads_a_watchdog_timeout(tmp_path):
    row = only(read(nccl_log, tmp_path, caught("E207 19:04:38.123186550"), **GIVEN))
    assert row["start_ns"] == ns("2025-02-07 19:04:38.123186550")
    assert (row["rank"], row["code"], row["category"]) == (115, "timeout", "unknown")
    assert row["cause"] == "NCCL collective timed out"
    assert row["text"].startswith("ALLGATHER (SeqNum 2) ran for 600 s, timeout 600 s:")
    assert row["assumed"] == "tz=UTC, year=2025"


@pytest.mark.parametrize(
    ("stamp", "day"),
    [
        ("E207", "2025-02-07"),
        ("E0207", "2025-02-07"),
        ("E115", "2025-01-15"),
        ("E1115", "2025-11-15"),
        ("E1206", "2025-12-06"),
        ("F429", "2025-04-29"),
    ],
)
def test_month_and_day_are_clear_at_any_width(tmp_path, stamp, day):
    row = only(read(nccl_log, tmp_path, caught(f"{stamp} 01:02:03.5"), **GIVEN))
    assert row["start_ns"] == ns(f"{day} 01:02:03.5")


def test_stamps_are_local_time(tmp_path):
    row = only(
        read(nccl_log, tmp_path, caught("E207 19:04:38.1"), year=2025, tz="America/Los_Angeles")
    )
    assert row["start_ns"] == ns("2025-02-08 03:04:38.1")


def test_srun_prefixes_and_progress_bars_may_stand_before_a_line(tmp_path):
    text = "115: " + caught("E207 19:04:38.1") + "Epoch 0:  6%|█  | 3/50\r[80746] "
    text += caught("E207 19:04:39.1", rank=3)
    assert read(nccl_log, tmp_path, text, **GIVEN).failures["rank"].tolist() == [115, 3]


def test_what_the_watchdog_says_again_is_counted_not_repeated(tmp_path):
    text = caught("E207 19:04:38.1") + (
        "[rank115]:[E207 19:04:38.2 ProcessGroupNCCL.cpp:1834] [PG ID 0 PG GUID 0(default_pg) "
        "Rank 14] Timeout at NCCL work: 2, last enqueued NCCL work: 4, last completed NCCL work: 1.\n"
        "[rank115]:[E207 19:04:38.3 ProcessGroupNCCL.cpp:630] [Rank 14] Some NCCL operations have "
        "failed or timed out.\n"
        "[rank115]:[E207 19:04:38.4 ProcessGroupNCCL.cpp:1595] [PG ID 0 PG GUID 0(default_pg) Rank "
        f"14] Process group watchdog thread terminated with exception: [Rank 14] {work()}\n"
    )
    assert only(read(nccl_log, tmp_path, text, **GIVEN))["line_count"] == 3


def test_a_timeout_that_only_its_summary_tells_of_is_kept(tmp_path):
    text = (
        "[rank0]:[E1206 18:44:16.9 ProcessGroupNCCL.cpp:1709] [PG 1 Rank 0] Timeout at NCCL work: "
        "7753, last enqueued NCCL work: 7755, last completed NCCL work: 7752.\n"
    )
    assert only(read(nccl_log, tmp_path, text, **GIVEN))["code"] == "timeout"


def test_older_lines_have_no_stamp_and_need_none(tmp_path):
    text = f"[E ProcessGroupNCCL.cpp:474] [Rank 7] Watchdog caught collective operation timeout: {work()}\n"
    part = read(nccl_log, tmp_path, text)
    assert only(part)["clock"] == "none"
    assert only(part)["rank"] == 7
    assert findings(part)["the rank inside a process group is the global rank"] == ("assumed", 1)


def test_a_stuck_watchdog_thread_is_a_failure_of_its_own(tmp_path):
    text = (
        "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! Process "
        "will be terminated after dumping debug info. workMetaList_.size()=103\n"
        "[rank7]:[E626 05:14:36.393067540 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) "
        "Rank 7] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress\n"
    )
    failures = read(nccl_log, tmp_path, text, **GIVEN).failures
    assert failures["code"].tolist() == ["heartbeat", "heartbeat"]
    assert failures["rank"].tolist() == [1, 7]


def test_a_log_may_pass_new_year(tmp_path):
    stamps = ["E1231 23:59:58.0", "E101 00:00:03.0", "E1231 23:59:59.0", "E101 00:00:04.0"]
    text = "".join(caught(stamp, rank=i) for i, stamp in enumerate(stamps))
    part = read(nccl_log, tmp_path, text, **GIVEN)
    expected = ["2025-12-31 23:59:58", "2026-01-01 00:00:03"]
    expected += ["2025-12-31 23:59:59", "2026-01-01 00:00:04"]
    assert part.failures["start_ns"].tolist() == [ns(each) for each in expected]
    assert any("New Year" in what for what in findings(part))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "NET/IB : mlx5_3:1 Got async event : port error",
            ("network", "mlx5_3:1", "port error", "NIC event: port error", "warning"),
        ),
        (
            "NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)",
            ("network", "mlx5_3:1", "10", "NIC event: port error", "warning"),
        ),
        (
            "NET/IB : Got async event : local catastrophic error",
            ("network", "4", "local catastrophic error", "NIC event: local catastrophic error", "fatal"),
        ),
        (
            "NET/IB : Got completion from peer node48<37948> with error 12, opcode 2, len 1, ven",
            ("network", "4", "12", "InfiniBand: transport retry counter exceeded", "fatal"),
        ),
        (
            "NET/IB : Got completion from peer 10.2.3.4<54862> with status=5 opcode=0 len=0",
            ("follow-on", "4", "5", "InfiniBand: work request flushed", "fatal"),
        ),
        (
            "Cuda failure 2 'out of memory'",
            ("software", "4", "cuda", "CUDA failure: out of memory", "fatal"),
        ),
    ],
)  # fmt: skip
def test_reads_warnings_of_nccl(tmp_path, message, expected):
    text = f"node-51:73076:73185 [4] transport/net_ib.cc:1238 NCCL WARN {message}\n"
    row = only(read(nccl_log, tmp_path, text))
    assert tuple(row[["category", "device", "code", "cause", "severity"]]) == expected
    assert (row["node"], row["clock"]) == ("node-51", "none")


def test_other_warnings_are_counted(tmp_path):
    text = "n1:1:2 [0] graph/topo.cc:1 NCCL WARN Missing iommu=pt from kernel command line\n" * 3
    part = read(nccl_log, tmp_path, text)
    assert part.failures.empty
    assert list(findings(part).values()) == [("skipped by design", 3)]


def test_a_stamp_before_a_warning_is_its_time(tmp_path):
    warning = (
        "n1:815:864 [0] transport/net_ib.cu:80 NCCL WARN NET/IB : Got async event : port error\n"
    )
    utc = read(nccl_log, tmp_path, f"2019-06-02T16:13:44.884Z: [1,12]<stdout>:{warning}")
    assert only(utc)["start_ns"] == ns("2019-06-02 16:13:44.884")
    assert (only(utc)["node"], only(utc)["assumed"]) == ("n1", "")
    local = read(nccl_log, tmp_path, f"[2025-06-02 16:13:44] {warning}", tz="+02:00")
    assert only(local)["start_ns"] == ns("2025-06-02 14:13:44")


def test_stamps_need_the_year_and_the_zone(tmp_path):
    with pytest.raises(LoadError, match=r"line 1: .* has no year; pass year="):
        read(nccl_log, tmp_path, caught("E207 19:04:38.1"), tz="UTC")
    with pytest.raises(LoadError, match=r"line 1: .* has no time zone; pass tz="):
        read(nccl_log, tmp_path, caught("E207 19:04:38.1"), year=2025)


@pytest.mark.parametrize(
    "stamp", ["E229 19:04:38.1", "E1340 19:04:38.1", "E207 25:04:38.1", "E000 00:00:00.0"]
)
def test_a_stamp_that_is_no_time_of_that_year_is_counted(tmp_path, stamp):
    part = read(nccl_log, tmp_path, caught(stamp), **GIVEN)
    assert only(part)["clock"] == "none"
    assert ("suspicious", 1) in findings(part).values()


@pytest.mark.parametrize(
    "text",
    [
        bytes(range(256)) * 1000,
        "ProcessGroupNCCL NCCL WARN " * 20_000,
        "a:1:1 " * 10_000 + "NCCL WARN NET/IB : Got async event : " + "x(" * 50_000,
        "x" * 200_000 + " NCCL WARN Got completion from peer " + "<" * 100_000,
        "[rank99999999999999]:[E ProcessGroupNCCL.cpp:1] Heartbeat monitor timed out!",
        "[rank999999999]:[E ProcessGroupNCCL.cpp:1] " + work(seq="9" * 18, ran="9" * 5000),
        "[PG " * 20_000 + "ProcessGroupNCCL Heartbeat monitor timed out!",
    ],
)  # fmt: skip
def test_hostile_lines_are_read_quickly(tmp_path, text):
    begun = time.perf_counter()
    read(nccl_log, tmp_path, text)
    assert time.perf_counter() - begun < 5


def test_the_rest_of_an_endless_line_is_counted(tmp_path):
    part = read(nccl_log, tmp_path, "x" * 3_000_000)
    assert findings(part) == {"the rest of lines longer than 64 KiB": ("dropped", 1)}


def test_recognises_its_own_and_nothing_else():
    assert recognised(nccl_log, caught("E207 19:04:38.1"))
    assert [name for name, text in FOREIGN.items() if recognised(nccl_log, text)] == []


@pytest.mark.parametrize(
    ("error", "category"),
    [
        ("CUDA error: uncorrectable ECC error encountered", "gpu memory"),
        ("NCCL error: remote process exited or there was a network error, NCCL 2.20.5", "unknown"),
    ],
)
def test_a_watchdog_that_an_error_ends_is_a_failure(tmp_path, error, category):
    head = "[rank27]:[E207 22:06:36.1 ProcessGroupNCCL.cpp:1414] [PG 0 Rank 27] "
    text = f"{head}Process group watchdog thread terminated with exception: {error}\n"
    row = only(read(nccl_log, tmp_path, text, **GIVEN))
    assert (row["rank"], row["code"], row["category"]) == (27, "exception", category)
    assert row["cause"] == f"NCCL watchdog ended: {error}"


def test_a_warning_without_its_head_may_be_quoted(tmp_path):
    part = read(nccl_log, tmp_path, "see the docs for NCCL WARN Call to connect failed\n")
    assert len(part.failures) == 1
    assert ("suspicious", 1) in findings(part).values()


def test_an_error_that_the_watchdog_could_not_tell_from_a_timeout_is_one_failure(tmp_path):
    head = "[rank26]:[E207 22:06:36.1 ProcessGroupNCCL.cpp:1414] [PG 0 Rank 26] "
    lines = (
        "Exception (either an error or timeout) detected by watchdog at work: 7, last enqueued",
        "Process group watchdog thread terminated with exception: NCCL error: bad",
    )
    row = only(read(nccl_log, tmp_path, "".join(f"{head}{line}\n" for line in lines), **GIVEN))
    assert (row["code"], row["line_count"]) == ("exception", 2)
    assert row["cause"] == "NCCL watchdog ended: NCCL error: bad"


def test_a_warning_that_speaks_of_an_error_no_rule_knows_is_no_harmless_one(tmp_path):
    text = "n1:1:2 [0] proxy.cc:1495 NCCL WARN [Proxy Progress] Failed to poll, unrecoverable\n"
    ((what, (finding, count)),) = findings(read(nccl_log, tmp_path, text)).items()
    assert what.endswith("they report an error")
    assert (finding, count) == ("suspicious", 1)


def test_in_the_hour_that_comes_twice_the_order_of_the_lines_decides(tmp_path):
    # Berlin shows 02:00 to 03:00 twice on 26 October 2025, from 00:00 UTC on.
    zone, change = ZoneInfo("Europe/Berlin"), datetime(2025, 10, 26, tzinfo=UTC)
    times = [change + timedelta(minutes=minute) for minute in range(-30, 150, 15)]
    stamps = [at.astimezone(zone).strftime("E1026 %H:%M:%S.000000000") for at in times]
    text = "".join(caught(stamp, rank=n, seq=n) for n, stamp in enumerate(stamps))
    part = read(nccl_log, tmp_path, text, year=2025, tz="Europe/Berlin")
    wanted = [int(moment.timestamp()) * 10**9 for moment in times]
    assert part.failures["start_ns"].tolist() == wanted
