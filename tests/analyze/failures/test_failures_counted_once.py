"""One failure that many ranks or devices report is one in rates, lemons and replays."""

import pandas as pd
import pytest

from workbench import analyze, load

BUSES = ["0f", "2d", "44", "5b", "89", "a8", "c0", "d8"]
NODES = [f"node{n}" for n in range(4)]
HOUR_NS = 3_600_000_000_000
START = pd.Timestamp("2025-03-01T10:00Z")


def hang(minute, ranks=64):
    """Lines of the watchdogs of all ranks, which notice within a second."""
    return "".join(
        f"[rank{rank}]:[E301 10:{minute:02d}:38.{rank:03d} ProcessGroupNCCL.cpp:697] [Rank {rank}] "
        f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
        for rank in range(ranks)
    )


def fell(node, minute, buses=BUSES):
    """Lines of a kernel whose GPUs all fall off the bus within a second."""
    return "".join(
        f"2025-03-01T10:{minute:02d}:00.{n:06d}+00:00 {node} kernel: "
        f"NVRM: Xid (PCI:0000:{bus}:00): 79, pid=7, name=python3, GPU has fallen off the bus.\n"
        for n, bus in enumerate(buses)
    )


@pytest.fixture
def loaded(tmp_path):
    def failures(text):
        path = tmp_path / "some.log"
        path.write_text(text)
        return load.failures(path, tz="UTC", year=2025)

    return failures


def test_a_hang_of_64_ranks_is_one_failure_of_the_job(loaded):
    log = loaded(hang(5) + hang(50))
    assert (
        log.failures[["rank", "ranks", "rank_count"]].to_numpy().tolist() == [[0, "0-63", 64]] * 2
    )
    (rate,) = analyze.failure_rates(log.failures, nodes=NODES, days=1).to_dict("records")
    assert (rate["failure_count"], rate["mtbf_h"]) == (2, 12)
    assert analyze.lemon_nodes(log.failures, nodes=NODES, days=1)["failure_count"].sum() == 0
    span = (START.value, START.value + HOUR_NS)
    times = analyze.failure_times(log.failures, span_ns=span)
    assert times["time_min"].tolist() == pytest.approx([5 + 38 / 60, 50 + 38 / 60])


def test_eight_gpus_that_fall_off_the_bus_at_once_are_one_failure_of_the_node(loaded):
    log = loaded(fell("node1", 5) + fell("node2", 30, ["0f"]))
    assert log.failures["devices"].str.count(":00").tolist() == [16 // 2, 1]
    assert log.nodes["failure_count"].tolist() == [1, 1]
    rates = analyze.failure_rates(log.failures, nodes=NODES, days=1)
    assert rates["failure_count"].tolist() == [2]
    lemons = analyze.lemon_nodes(log.failures, nodes=NODES, days=1)
    assert sorted(lemons["failure_count"]) == [0, 0, 1, 1]
    span = (START.value, START.value + HOUR_NS)
    assert len(analyze.failure_times(log.failures, span_ns=span, replicas=2, nodes=NODES)) == 2
    assert analyze.cause_shares(log.failures)["failure_count"].tolist() == [2]


def test_many_nodes_that_fail_within_seconds_are_counted_and_doubted(loaded):
    log = loaded("".join(fell(f"node{n}", 5) for n in range(4)))
    assert len(log.failures) == 4
    rates = analyze.failure_rates(log.failures, nodes=NODES, days=1)
    expected = "4 of 4 begin within 10 s of 3 or more others"
    assert expected in rates.attrs["doubts"][0]
    lemons = analyze.lemon_nodes(log.failures, nodes=NODES, days=1)
    span = (START.value, START.value + HOUR_NS)
    times = analyze.failure_times(log.failures, span_ns=span)
    assert all(expected in table.attrs["doubts"][0] for table in (lemons, times))
    flagged = log.quality[log.quality["finding"] == "suspicious"]
    assert flagged["what"].str.startswith("incidents within 10 s of 3 or more others").any()
    apart = loaded("".join(fell(f"node{n}", 10 * n) for n in range(4)))
    assert analyze.failure_rates(apart.failures, nodes=NODES, days=1).attrs["doubts"] == []


def test_a_reset_whose_trigger_is_not_in_the_log_is_a_failure(loaded):
    reset = (
        "2025-03-01T10:07:00+00:00 node3 kernel: amdgpu 0000:28:00.0: amdgpu: GPU reset begin!\n"
    )
    log = loaded(reset)
    assert log.failures["category"].tolist() == ["unknown"]
    assert analyze.failure_rates(log.failures, nodes=NODES, days=1)["failure_count"].tolist() == [1]
    span = (START.value, START.value + HOUR_NS)
    assert analyze.failure_times(log.failures, span_ns=span)["time_min"].tolist() == [7]
    assert log.quality["what"].str.startswith("follow-on messages with no failure before").any()
