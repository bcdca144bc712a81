"""Failure logs: real ones first, then what the entry point promises, then every refusal."""

import gzip
import re
import tarfile

import pandas as pd
import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.tables import FAILURES, NODE_SPANS, QUALITY, SAYS_SYNTHETIC, TIMELINE

XID = "NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=71, name=python3, something happened\n"


def line(second, code=13, bus="3b", host="node1", minute=0):
    stamp = f"2025-03-01T10:{minute:02d}:{second:02d}.000000+00:00"
    return f"{stamp} {host} kernel: " + XID.format(bus=bus, code=code)


def write(path, *texts, packed=False):
    content = "".join(texts).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return path


def told(log):
    """What the quality table says: finding and what, with the count."""
    return {(row.finding, row.what): row.count for row in log.quality.itertuples(index=False)}


def counts(log):
    return log.quality.groupby(["finding", "what"], observed=True)["count"].sum().to_dict()


@pytest.mark.oracle
@pytest.mark.parametrize(("window_s", "lines"), [(300, [5]), (60, [3, 1, 1]), (0, [1] * 5)])
def test_the_public_log_with_xid_119_holds_one_incident_at_300_s_and_three_at_60_s(
    real_data, window_s, lines
):
    path = real_data("failures-kmsg") / "dmesg-with-xid-119.log"
    log = load.failures(path, tz="UTC", window_s=window_s)
    assert log.failures["line_count"].tolist() == lines
    assert set(log.failures["code"]) == {"119"}
    assert set(log.failures["device"]) == {"0000:9b:00"}


@pytest.mark.oracle
def test_the_public_log_of_a_job_that_crashes_in_the_collective_library_is_not_clean(real_data):
    path = real_data("failures-kmsg") / "dmesg.decode.iso.log"
    (row,) = load.failures(path, node="gpu7").failures.to_dict("records")
    assert (row["code"], row["category"], row["line_count"]) == ("segfault", "software", 2)


@pytest.mark.oracle
def test_the_public_fabric_manager_log_holds_one_error_of_a_switch(real_data):
    path = real_data("failures-kmsg") / "fabricmanager.log"
    (row,) = load.failures(path, tz="UTC", node="gpu7").failures.to_dict("records")
    assert pd.Timestamp(row["start_ns"]) == pd.Timestamp("2025-02-27 15:10:02")
    assert (row["kind"], row["code"], row["device"]) == ("sxid", "12028", "0000:86:00")
    assert (row["severity"], row["node"], row["line"]) == ("warning", "gpu7", 100)


def test_the_demo_job_lost_one_gpu(fleet_demo):
    log = load.failures(
        [*sorted((fleet_demo / "failures").glob("*_kernel.log"))], node=re.compile(r"node\d+")
    )
    (row,) = log.failures.to_dict("records")
    assert (row["node"], row["code"], row["other_codes"]) == (
        "node001",
        "79",
        "154, PCIe link down",
    )
    assert (row["line_count"], row["severity"]) == (4, "fatal")
    assert log.nodes["failure_count"].tolist() == [1, 0, 0]
    assert log.nodes["last_ns"].iloc[0] == row["end_ns"]
    assert log.is_synthetic
    assert counts(log)["noted", SAYS_SYNTHETIC] == 3


def test_every_table_fits_its_declaration(tmp_path):
    log = load.failures(write(tmp_path / "a.log", line(1)))
    FAILURES.check(log.failures)
    TIMELINE.check(log.timeline)
    NODE_SPANS.check(log.nodes)
    QUALITY.check(log.quality)
    assert "1 incidents from 1 lines" in repr(log)


def test_formats_are_recognised_by_content_whatever_the_name(tmp_path):
    write(tmp_path / "rack1" / "notes.csv.7", line(1), packed=True)
    write(tmp_path / "rack2" / "x.json", line(2, host="node2"))
    log = load.failures(tmp_path)
    assert log.failures["node"].tolist() == ["node1", "node2"]


def test_archives_are_read_without_unpacking_them(tmp_path):
    inside = write(tmp_path / "kern.log", line(1))
    with tarfile.open(tmp_path / "logs.tar.gz", "w:gz") as archive:
        archive.add(inside, "var/log/kern.log")
    log = load.failures(tmp_path / "logs.tar.gz")
    assert log.failures["source"].iloc[0].endswith("logs.tar.gz!var/log/kern.log")


def test_rows_are_in_order_of_time_over_all_files(tmp_path):
    write(tmp_path / "a.log", line(50, host="a"))
    write(tmp_path / "b.log", line(10, host="b"), line(59, host="b", minute=30))
    assert load.failures(tmp_path).failures["node"].tolist() == ["b", "a", "b"]


def test_a_host_is_taken_from_the_line_else_from_the_argument(tmp_path):
    bare = "kern  :warn  : 2025-03-01T10:00:01,000000+00:00 " + XID.format(bus="3b", code=13)
    path = write(tmp_path / "gpu7_dmesg.log", line(1), bare)
    for node in ("gpu7", {"gpu7_": "gpu7"}, re.compile("gpu7"), re.compile("(gpu7)_dmesg")):
        log = load.failures(path, node=node)
        assert log.failures["node"].tolist() == ["node1", "gpu7"]
    assert load.failures(path).failures["node"].isna().tolist() == [False, True]


def test_incidents_of_an_unknown_host_are_flagged_and_kept_apart_by_file(tmp_path):
    bare = "kern  :warn  : 2025-03-01T10:00:01,000000+00:00 " + XID.format(bus="3b", code=13)
    write(tmp_path / "a.log", bare)
    write(tmp_path / "b.log", bare)
    log = load.failures(tmp_path)
    assert log.failures["line_count"].tolist() == [1, 1]
    assert told(log)["suspicious", "incidents on a device of an unknown host; pass node="] == 1


def test_lines_that_two_files_of_one_host_hold_are_taken_once(tmp_path):
    write(tmp_path / "dmesg.log", line(1), line(1), line(9))
    write(tmp_path / "kern.log", line(1), line(9), line(30))
    log = load.failures(tmp_path, window_s=0)
    assert log.failures["line_count"].sum() == 4
    assert counts(log)["noted", "lines that another file contains, too; counted once"] == 2


def test_the_same_line_twice_in_one_file_is_two_lines(tmp_path):
    log = load.failures(write(tmp_path / "dmesg.log", line(1), line(1)), window_s=0)
    assert log.failures["line_count"].tolist() == [1, 1]


def test_every_line_is_accounted_for(tmp_path):
    path = write(tmp_path / "a.log", line(1), line(2), line(3), line(4, minute=40), "\n", "more\n")
    log = load.failures(path)
    found = told(log)
    assert found["read", "lines"] == 6
    assert found["read", "lines that report a failure"] == 4
    assert found["skipped by design", "lines that report none"] == 2
    assert found["noted", "lines folded into the incident of another (300 s)"] == 2
    assert log.failures["line_count"].sum() == 4


def test_a_clock_that_runs_backwards_is_flagged_and_its_times_are_kept(tmp_path):
    path = write(tmp_path / "a.log", line(50, minute=9), line(10, minute=3), line(51, minute=9))
    log = load.failures(path, window_s=0)
    (row,) = log.quality[log.quality["finding"] == "suspicious"].to_dict("records")
    assert row["what"] == "clock runs backwards, by up to 400 s; times are as written"
    assert (row["count"], row["where"]) == (1, "line 2")
    assert log.failures["line"].tolist() == [2, 1, 3]


def test_lines_of_several_hosts_may_come_in_any_order(tmp_path):
    path = write(tmp_path / "a.log", line(50, host="a"), line(10, host="b"), line(51, host="a"))
    assert (load.failures(path).quality["finding"] != "suspicious").all()


def test_gzip_that_is_cut_gives_what_is_readable_and_the_place(tmp_path):
    whole = gzip.compress("".join(line(n % 60, minute=n // 60) for n in range(3000)).encode())
    path = tmp_path / "kern.log.1.gz"
    path.write_bytes(whole[: len(whole) // 2])
    log = load.failures(path)
    (row,) = log.quality[log.quality["finding"] == "truncated"].to_dict("records")
    assert "packed data end in the middle" in row["what"]
    assert re.fullmatch(r"byte [\d,]+, line [\d,]+", row["where"])
    assert 500 < log.failures["line_count"].sum() < 3000


def test_bytes_that_are_no_utf8_are_replaced_and_counted(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(line(1).encode().replace(b"python3", b"py\xffth\xfen"))
    log = load.failures(path)
    assert "py\ufffdth\ufffdn" in log.failures["text"].iloc[0]
    assert told(log)["repaired", "bytes that are not UTF-8"] == 2


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"\xef\xbb\xbf" + (line(1) + line(2)).replace("\n", "\r\n").encode())
    log = load.failures(path, window_s=0)
    assert log.failures["node"].tolist() == ["node1", "node1"]
    assert log.failures["text"].str.endswith("happened").all()


@pytest.mark.parametrize("length", [2 << 20, 5 << 20])
def test_a_line_of_megabytes_is_cut_and_the_next_ones_are_read(tmp_path, length):
    path = write(tmp_path / "a.log", line(1), "x" * length, "Xid" * 9, "\n", line(2), line(3))
    log = load.failures(path, window_s=0)
    assert log.failures["line"].tolist() == [1, 3, 4]
    assert told(log)["read", "lines"] == 4
    assert any("longer than 1,048,576 bytes" in what for what in log.quality["what"])


def test_texts_are_kept_short_and_printable(tmp_path):
    path = write(tmp_path / "a.log", line(1).replace("something", "\x1b[31m" + "y" * 5000))
    text = load.failures(path).failures["text"].iloc[0]
    assert len(text) == 300
    assert text.isprintable()


def test_what_is_no_log_is_set_aside_and_what_is_unknown_left_out(tmp_path):
    write(tmp_path / "a.log", line(1))
    write(tmp_path / "README.md", "# About\n")
    write(tmp_path / "truth.csv", "what,rank\n")
    write(tmp_path / "numbers.csv", "a,b\n1,2\n")
    write(tmp_path / "empty.log")
    (tmp_path / "utf16.log").write_bytes(line(1).encode("utf-16"))
    quality = load.failures(tmp_path).quality
    quality["file"] = quality["source"].str.rpartition("/")[2]
    found = {row.file: (row.finding, row.what) for row in quality.itertuples()}
    assert found["README.md"] == found["truth.csv"]
    assert found["README.md"] == ("skipped by design", "documentation or data, not a log")
    assert found["numbers.csv"] == ("dropped", "is in an unrecognized format")
    assert found["empty.log"] == ("dropped", "is empty; get the file again")
    assert found["utf16.log"][0] == "dropped"
    assert "iconv" in found["utf16.log"][1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"time,value\n1,2\n", r"a\.csv: no readable failure log found; supported: .*kernel log"),
        ("a.csv", b"time,value\n1,2\n", r"it begins with 'time,value'"),
        ("a.bin", bytes(range(256)) * 40, "binary data, it begins with the bytes 00 01 02"),
        ("a.log", b"", "a.log: is empty; get the file again"),
        ("a.log.gz", gzip.compress(b"", mtime=0), "is empty or contains nothing readable"),
        ("a.log", b"\n \n\n", "it contains only blanks"),
        ("a.log", "kern  :warn  : x\n".encode("utf-16-le") * 9, "is UTF-16, no log is; convert it"),
        ("a.log", b"\x28\xb5\x2f\xfd" + b"1" * 99, "the zstd data are damaged"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_a_log_is_refused_with_the_reason(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(LoadError, match=message):
        load.failures(path)


def test_a_folder_without_logs_names_what_lies_there(tmp_path):
    write(tmp_path / "a.csv", "time,value\n")
    with pytest.raises(
        LoadError, match=r"supported: .*\n  - .*a\.csv: is in an unrecognized format"
    ):
        load.failures(tmp_path)
    with pytest.raises(LoadError, match="no failure log found"):
        load.failures(write(tmp_path / "docs" / "README.md", "# x\n").parent)


def test_a_path_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.log: there is no such file"):
        load.failures(tmp_path / "gone.log")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tz": "Mars/Olympus"}, "tz must be a time zone such as .*'Mars/Olympus'"),
        ({"tz": ""}, "tz must be a time zone"),
        ({"tz": "../etc/passwd"}, "tz must be a time zone"),
        ({"tz": "+99:00"}, "tz must be a time zone"),
        ({"year": 25}, "year must be a whole number from 1990 to 2100; got 25"),
        ({"year": 2025.0}, "year must be a whole number"),
        ({"year": True}, "year must be a whole number"),
        ({"boot_time": "yesterday"}, "boot_time must be a stamp like .*'yesterday'"),
        ({"boot_time": "3025-02-23 16:00Z"}, "boot_time must lie between 1990 and 2100"),
        ({"boot_time": 17}, "boot_time must be a stamp"),
        ({"boot_time": "2025-02-23 16:00"}, "has no time zone; add one .* or pass tz"),
        ({"window_s": -1}, "window_s must be a number of seconds, 0 or more; got -1"),
        ({"window_s": float("nan")}, "window_s must be"),
        ({"window_s": float("inf")}, "window_s must be"),
        ({"window_s": "300"}, "window_s must be"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_read(arguments, message):
    with pytest.raises(ValueError, match=message):
        load.failures("never read", **arguments)


@pytest.mark.parametrize("node", [7, "", b"a", re.compile(b"a"), {"a": 1}, ["a"]])
def test_a_node_that_names_no_host_is_refused(node):
    with pytest.raises(TypeError, match="node must be a host, a dict"):
        load.failures("never read", node=node)


@pytest.mark.parametrize(
    ("tz", "hour"),
    [("+01:00", 9), ("UTC+01:00", 9), ("-0800", 18), ("Europe/Berlin", 9), ("Z", 10)],
)
def test_zones_are_names_or_offsets(tmp_path, tz, hour):
    text = "2025-03-01 10:00:00 " + XID.format(bus="3b", code=13)
    log = load.failures(write(tmp_path / "a.log", text), tz=tz)
    assert pd.Timestamp(log.failures["start_ns"].iloc[0]).hour == hour


def test_a_boot_time_without_zone_is_in_tz(tmp_path):
    path = write(tmp_path / "a.log", "[    5.000000] " + XID.format(bus="3b", code=13))
    log = load.failures(path, boot_time="2025-03-01 10:00", tz="Europe/Berlin")
    assert pd.Timestamp(log.failures["start_ns"].iloc[0]) == pd.Timestamp("2025-03-01 09:00:05")


def test_times_of_a_clock_that_was_not_set_are_flagged(tmp_path):
    early = line(1).replace("2025-03-01", "1970-01-01")
    log = load.failures(write(tmp_path / "a.log", early, line(2)))
    assert told(log)["suspicious", "incidents before the year 2000: the clock was not set"] == 1


def test_zeros_that_a_crash_left_in_a_log_do_no_harm(tmp_path):
    path = write(tmp_path / "a.log", line(1), "\0" * 5000, line(2))
    assert load.failures(path, window_s=0).failures["node"].tolist() == ["node1", "node1"]


def test_lines_of_the_kernel_that_a_job_printed_are_said_to_be_missed(tmp_path):
    stuck = "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out!\n"
    printed = "step 1\n" * 100 + "[ 1000.0] " + XID.format(bus="3b", code=79)
    what = "lines of the kernel (Xid) inside a log of another kind; load the kernel's own log"
    log = load.failures(write(tmp_path / "job.out", printed, stuck))
    assert log.failures["kind"].tolist() == ["nccl"]
    assert told(log)["dropped", what] == 1
    # Where the file holds nothing else, they are read.
    other = write(tmp_path / "other.out", printed)
    with pytest.raises(LoadError, match="boot_time"):
        load.failures(other)
    log = load.failures(other, boot_time="2026-03-01T00:00Z")
    assert log.failures["code"].tolist() == ["79"]
