"""Failure logs: real ones first, then what the front door promises, then every refusal."""

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
    assert (row["node"], row["code"], row["other_codes"]) == ("node001", "79", "154")
    assert (row["line_count"], row["severity"]) == (3, "fatal")
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
