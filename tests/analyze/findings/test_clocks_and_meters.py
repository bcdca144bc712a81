"""Rules where clocks, copies or idle meters contradict the naive reading."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyze.findings.jobs import US, failure_log, trace
from tests.analyze.findings.test_rules import one_of, power, rows_of, silent
from tests.analyze.traces.test_clocks import equal_steps
from workbench import analyze, load
from workbench.tables import Bundle


def test_failures_of_files_with_clocks_of_their_own_are_counted_per_file():
    """A rate over all of them would be wrong: nobody knows how the clocks are related."""
    rows = [{"at_h": at, "node": f"node{at:03}", "clock": "own", "source": name}
            for name, times in (("a.log", (1, 9, 30)), ("b.log", (5,))) for at in times]  # fmt: skip
    bundle = Bundle(failures=failure_log(rows))
    row = analyze.findings(bundle, rules=["leading_cause"]).findings.iloc[0]
    assert row["finding"].startswith("3 of 3 failures")
    assert row["doubt"].startswith("1 failures of ")
    assert "diagnose each file separately" in row["doubt"]


@pytest.mark.parametrize("apart", [1, -1, 40])
def test_clocks_apart_hide_no_straggler_of_equal_collectives(apart):
    offset = [0, 90 * US * apart, -200 * US * apart, 140 * US * apart]
    rows, _ = equal_steps(offset=offset)
    found = analyze.findings(trace(rows), rules=["straggler", "clock_disagreement"])
    assert found.findings["rule"].tolist() == ["straggler", "clock_disagreement"]
    straggler, clock = found.findings.itertuples()
    assert straggler.finding.startswith("Rank 3 delays the other 3")
    assert straggler.cost == pytest.approx(0.9), "six times 150 µs a step"
    assert clock.finding.startswith("The clock of rank 2 is off by")


def test_of_two_ranks_the_slow_one_costs_all_that_the_other_waits():
    rows, _ = equal_steps(offset=[0, 70 * US], slow=1)
    found = analyze.findings(trace(rows), rules=["straggler"]).findings
    assert found["cost"].tolist() == pytest.approx([0.9])


def test_clocks_that_drift_hide_no_straggler():
    rows, _ = equal_steps(offset=[0] * 4, drift={1: 60e-6, 2: -90e-6}, steps=40, each=10)
    found = analyze.findings(trace(rows), rules=["straggler"]).findings
    assert found["finding"].str.startswith("Rank 3 delays").tolist() == [True]
    assert found["cost"].iloc[0] == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize("late", [150 * US, 0])
def test_who_was_last_is_unchecked_where_nothing_tells_clocks_from_other_order(late):
    rows, _ = equal_steps(offset=[0, 90 * US, -200 * US, 140 * US], late=late)
    without = [{name: row[name] for name in row if name != "step"} for row in rows]
    lost = [{**row, "group": None} for row in without[1:]]
    for some, reason in ((without, "seem off by up to 0.2 ms"), (lost, "in the number of")):
        found = analyze.findings(trace(some), rules=["straggler"])
        assert found.findings.empty
        assert found.rules["state"].tolist() == ["refused"]
        assert reason in found.rules["note"].iloc[0]


def test_ranks_that_arrive_together_are_not_unchecked():
    rows, _ = equal_steps(offset=[0] * 4, late=0)
    for some in (rows, [{**row, "step": None} for row in rows]):
        rules = analyze.findings(trace(some), rules=["straggler"]).rules
        assert rules["state"].tolist() == ["nothing"]


def test_the_mean_kernel_is_one_of_kernels_only():
    rows = [row for row in rows_of(gap_us=400.0) if row.get("kind") != "communication"]
    copy = {"kind": "memory", "category": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)"}
    copies = [row | copy | {"dur_ns": 10 * US} for row in rows if row.get("kind") == "compute"]
    means = [
        analyze.findings(trace(some), rules=["host_bound"]).findings["where"].iloc[0]
        for some in (rows, rows + [row | {"stream": 9} for row in copies])
    ]
    assert means[0] == means[1]
    assert "mean kernel" in means[0]


def test_one_idle_gpu_of_eight_is_found_though_it_draws_little():
    busy = one_of("n1/gpu0", 0.0, 0.97)
    bundle = power(lambda watts: watts | {"n1/gpu0": watts["n1/gpu0"] * 0 + 70}, busy_share=busy)
    found = analyze.findings(bundle).findings.set_index("rule")
    assert "idle_gpus" not in found.index, "2 % of the energy"
    row = found.loc["unused_gpu"]
    assert row["finding"].startswith("1 of 8 GPUs has no work for 100 % of the time")
    assert (row["where"], row["time_share"]) == ("n1/gpu0", pytest.approx(1 / 8))


@pytest.mark.parametrize("idle_share", [0.0, 0.3, 1.0])
def test_gpus_that_idle_together_are_none_that_is_unused(idle_share):
    busy = np.where(np.arange(120) < 120 * idle_share, 0.0, 0.97)
    bundle = power(busy_share={f"n{n // 4}/gpu{n % 4}": list(busy) for n in range(8)})
    assert "unused_gpu" not in set(analyze.findings(bundle).findings["rule"])


def test_an_idle_gpu_is_found_by_its_power_where_no_utilization_is_recorded():
    bundle = power(lambda watts: watts | {"n0/gpu3": watts["n0/gpu3"] * 0 + 70})
    states = bundle.power.states.assign(busy_share=np.nan)
    bundle = Bundle(power=dataclasses.replace(bundle.power, states=states))
    found = analyze.findings(bundle).findings.set_index("rule")
    assert found.loc["unused_gpu", "where"] == "n0/gpu3"


def test_silent_meters_state_the_energy_as_recorded_and_with_gaps_bridged():
    found = analyze.findings(silent()).findings.set_index("rule")
    assert re.search(r"[\d.]+ kWh as recorded, [\d.]+ kWh if power went straight on",
                     found.loc["telemetry_gaps", "doubt"])  # fmt: skip


@given(
    gaps=st.lists(st.integers(1, 9_999), min_size=1, max_size=5),
    meters=st.integers(1, 3),
    later=st.integers(0, 20_000),
)
@settings(max_examples=12)
def test_a_log_of_a_few_readings_is_diagnosed(tmp_path_factory, gaps, meters, later):
    """A cell as long as the slowest meter waits need not fit between the first and last reading."""
    rows = [
        f"{1_772_359_200_000 + meter * later + at},g{meter},400"
        for meter in range(meters)
        for at in np.cumsum([0, *gaps[: 1 + meter]])
    ]
    path = tmp_path_factory.mktemp("short") / "power.csv"
    path.write_text("\n".join(["time_ms,device,power_w", *rows, ""]))
    bundle = load.bundle(path, tz="UTC", progress=False)
    assert analyze.findings(bundle).rules.set_index("rule").loc["power_swing", "state"] != "found"
