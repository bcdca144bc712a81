"""Lines that collectors prefixed keep their host and time; several hosts are told apart."""

import pandas as pd
import pytest

from workbench import load
from workbench.load._failures.line_prefix import host_of_file

FELL = "NVRM: Xid (PCI:0000:9b:00): 79, pid=7, name=python3, GPU has fallen off the bus."
AT = pd.Timestamp("2025-01-31T08:00:01Z")
CAUGHT = (
    "[rank{rank}]:[E131 08:00:01.000000000 ProcessGroupNCCL.cpp:697] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600021 milliseconds before timing out."
)
STAMPED = {
    "dmesg -T": ("[Fri Jan 31 08:00:01 2025] " + FELL, {"tz": "UTC"}),
    "dmesg, iso": ("2025-01-31T08:00:01,000000+00:00 " + FELL, {}),
    "dmesg -x, iso": ("kern  :warn  : 2025-01-31T08:00:01,000000+00:00 " + FELL, {}),
    "dmesg": ("[    1.000000] " + FELL, {"boot_time": "2025-01-31T08:00:00Z"}),
}
PREFIXES = {
    "pdsh": "{host}: ",
    "grep -H": "{host}.log:",
    "grep -H of a path": "/var/log/remote/{host}/kern.log:",
    "grep -rn": "./{host}_dmesg.txt:17:",
    "clush of a file": "{host}: /var/log/kern.log:",
}


def loaded(folder, *lines, **said):
    path = folder / "collected.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return load.failures(path, **said)


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=list(PREFIXES))
@pytest.mark.parametrize(("line", "said"), STAMPED.values(), ids=list(STAMPED))
def test_hosts_before_the_lines_of_a_kernel_are_kept_and_told_apart(tmp_path, prefix, line, said):
    lines = [prefix.format(host=host) + line for host in ("node01", "node02", "node01")]
    failures = loaded(tmp_path, *lines, **said).failures
    assert failures[["node", "line_count"]].to_numpy().tolist() == [["node01", 2], ["node02", 1]]
    assert pd.to_datetime(failures["start_ns"], utc=True).eq(AT).all()


@pytest.mark.parametrize("prefix", ["kern.log:", "kern.log:3:", "node01: ", "node01.log:"])
def test_a_host_in_the_line_counts_more_than_the_one_before_it(tmp_path, prefix):
    failures = loaded(tmp_path, f"{prefix}2025-01-31T08:00:01+00:00 gpu7 kernel: {FELL}").failures
    assert failures["node"].tolist() == ["gpu7"]
    assert pd.to_datetime(failures["start_ns"], utc=True).tolist() == [AT]


def test_talosctl_names_the_host_by_its_address(tmp_path):
    lines = [f"10.0.0.{n}: kern: warning: [2025-01-31T08:00:01.000000000Z]: {FELL}" for n in (1, 2)]
    failures = loaded(tmp_path, *lines).failures
    assert failures["node"].tolist() == ["10.0.0.1", "10.0.0.2"]
    assert pd.to_datetime(failures["start_ns"], utc=True).eq(AT).all()


@pytest.mark.parametrize(
    "inside",
    [FELL, f"[Fri Jan 31 08:00:01 2025] {FELL}", f"Jan 31 08:00:01 gpu7 kernel: {FELL}"],
    ids=["no stamp", "no zone", "no year"],
)
def test_the_stamp_of_a_container_log_is_the_time_where_the_line_has_none(tmp_path, inside):
    log = loaded(tmp_path, f"2025-01-31T08:00:01.000000000Z stdout F {inside}", node="gpu7")
    (row,) = log.failures.to_dict("records")
    assert (pd.Timestamp(row["start_ns"], tz="UTC"), row["node"]) == (AT, "gpu7")
    assert row["assumed"] == "time at which the container wrote the line"


def test_a_full_stamp_inside_a_container_log_is_the_time_of_the_event(tmp_path):
    replayed = f"2025-01-31T09:30:00.5Z stdout F 2025-01-31T08:00:01,000000+00:00 {FELL}"
    failures = loaded(tmp_path, replayed, node="gpu7").failures
    assert pd.to_datetime(failures["start_ns"], utc=True).tolist() == [AT]


def test_ranks_of_a_job_in_container_logs_and_behind_pdsh_keep_time_and_host(tmp_path):
    cri = [f"2025-01-31T08:00:01.000000000Z stderr F {CAUGHT.format(rank=n)}" for n in range(4)]
    (row,) = loaded(tmp_path, *cri).failures.to_dict("records")
    assert (row["rank_count"], pd.Timestamp(row["start_ns"], tz="UTC")) == (4, AT)
    behind = [f"node01: {CAUGHT.format(rank=n)}" for n in range(4)]
    (row,) = loaded(tmp_path, *behind, tz="UTC", year=2025).failures.to_dict("records")
    assert (row["node"], row["rank_count"]) == ("node01", 4)


def test_every_host_has_its_own_boot_and_year(tmp_path):
    lines = [f"node01: [ 9000.000000] {FELL}", f"node02: [   20.000000] {FELL}"]
    log = loaded(tmp_path, *lines, boot_time="2025-01-31T08:00Z")
    assert log.failures["start_ns"].notna().all()


@pytest.mark.parametrize(
    "text", ["note: this happened", "nvme nvme0: I/O 1 QID 6 timeout", "a:b:c"]
)
def test_words_before_a_colon_are_no_host_of_a_line_without_a_stamp(tmp_path, text):
    stamped = f"2025-01-31T08:00:01+00:00 gpu7 kernel: {FELL}"
    failures = loaded(tmp_path, stamped, stamped, text).failures
    assert set(failures["node"].dropna()) == {"gpu7"}


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("node01.log", "node01"), ("logs/node01/dmesg", "node01"), ("/var/log/kern.log.1", None),
        ("gpu-7.example.org.log", "gpu-7.example.org"), ("hosts/r1n3/messages.2.gz", "r1n3"),
    ],
)  # fmt: skip
def test_a_file_is_of_the_host_that_it_or_its_folder_names(name, host):
    assert host_of_file(name) == host
