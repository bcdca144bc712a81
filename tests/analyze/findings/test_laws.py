"""Findings: what they cost by the truth of made and simulated jobs, the ranking, and refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import make
from tests.analyze.findings.jobs import MS, even, steps_of, trace
from workbench import analyze, datasets, load
from workbench.tables import FINDING_RULES, FINDINGS, Bundle


def straggler_of(table):
    rows = table[table["rule"] == "straggler"]
    return {int(row.where.split(",")[0].removeprefix("rank ")): row for row in rows.itertuples()}


@pytest.mark.slow
@settings(max_examples=15)
@given(
    rank=st.integers(0, 3),
    ratio=st.floats(1.08, 3.0),
    other=st.floats(1.0, 1.5),
    first=st.integers(0, 6),
    seed=st.integers(0, 99),
)
def test_the_cost_of_a_straggler_is_the_step_time_without_it(rank, ratio, other, first, seed):
    """Another slow rank hides part of it: only what is beyond that one can be gained."""
    own = even(8, 4, seed=seed)
    own[:, (rank + 1) % 4] *= other
    own[first:, rank] *= ratio
    rows, lengths = steps_of(own, hidden=0.0)
    healed = own.copy()
    healed[:, rank] = np.median(np.delete(own, [rank, (rank + 1) % 4], axis=1), axis=1)
    gain_ms = (lengths.sum() - steps_of(healed, hidden=0.0)[1].sum()) / MS / len(own)
    found = straggler_of(analyze.findings(trace(rows)).findings)
    if gain_ms > 0.02 * lengths.mean() / MS:
        assert rank in found
        assert found[rank].cost == pytest.approx(gain_ms, rel=0.1)


@pytest.mark.slow
@settings(max_examples=10)
@given(seed=st.integers(0, 999), ranks=st.integers(2, 8))
def test_equal_ranks_have_no_straggler(seed, ranks):
    rows, _ = steps_of(even(8, ranks, seed=seed))
    assert not straggler_of(analyze.findings(trace(rows)).findings)


def test_waiting_that_compute_hides_costs_nothing():
    """The naive reading blames the rank that comes last; nobody loses time by it."""
    own = even()
    own[:, 2] *= 1.3
    rows, _ = steps_of(own)
    none = dict.fromkeys(
        ("collective", "group", "group_size", "seq", "in_count", "out_count", "dtype")
    )
    hiding = [
        row | none | {"kind": "compute", "name": "gemm", "stream": 7}
        for row in rows
        if row.get("kind") == "communication" and row["rank"] != 2
    ]
    assert not straggler_of(analyze.findings(trace([*rows, *hiding])).findings)


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize(
    ("fault", "rule", "seed"),
    [("slow rank", "straggler", 11), ("late host", "straggler", 12),
     ("failing node", "interruption", 13), ("power cap", "capped_gpu", 14)],
)  # fmt: skip
def test_what_was_injected_is_found_where_it_is(fault, rule, seed, tmp_path):
    truth = make.fleet(tmp_path / "job", seed=seed, ranks=4, gpus_per_node=2, faults=[fault])
    bundle = load.bundle(tmp_path / "job", tz="UTC", scope="gpu", progress=False)
    table = analyze.findings(bundle).findings
    rows = table[table["rule"] == rule]
    assert len(rows) == 1
    injected = truth.iloc[0]
    place = str(rows["where"].iloc[0])
    if rule == "straggler":
        assert place.startswith(f"rank {injected['rank']},")
    else:
        assert injected["node"] in place


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("seed", [21, 22])
def test_a_simulated_job_without_faults_has_no_false_findings(seed, tmp_path):
    make.fleet(tmp_path / "job", seed=seed, ranks=4, gpus_per_node=2, faults=[])
    bundle = load.bundle(tmp_path / "job", tz="UTC", scope="gpu", progress=False)
    # True of every such job: it is short, so its start, its end and its checkpoints weigh, and it
    # loads data for 6 ms in every step, which is a pause of its GPUs.
    usual = {"initialisation", "checkpoint_time", "exposed_communication", "idle_gpus",
             "power_swing", "data_loader", "communication_on_path", "long_pauses",
             "time_not_told"}  # fmt: skip
    assert set(analyze.findings(bundle).findings["rule"]) <= usual


@pytest.mark.long
def test_findings_are_ranked_by_their_share_of_gpu_time():
    own = even()
    own[:, 1] *= 1.3
    bundle = trace(steps_of(own, transfer_us=900, hidden=0.0)[0], world_size=8)
    table = FINDINGS.check(analyze.findings(bundle).findings)
    shares = table["time_share"].dropna()
    assert shares.is_monotonic_decreasing
    assert len(shares) >= 2
    assert table["time_share"].isna().iloc[-1]
    least = float(shares.iloc[0])
    fewer = analyze.findings(bundle, least_time_share=least).findings
    assert fewer["time_share"].dropna().tolist() == [least]


@pytest.mark.long
def test_thresholds_are_arguments_and_stand_beside_the_finding():
    own = even()
    own[:, 1] *= 1.1
    bundle = trace(steps_of(own)[0])
    table = analyze.findings(bundle, thresholds={"straggler.least_share": 0.02}).findings
    assert "least_share 0.02" in table.set_index("rule").loc["straggler", "threshold"]
    none = analyze.findings(bundle, thresholds={"straggler.least_share": 0.9}).findings
    assert "straggler" not in set(none["rule"])
    with pytest.raises(ValueError, match=r"'straggler.no' is not a threshold"):
        analyze.findings(bundle, thresholds={"straggler.no": 1.0})
    with pytest.raises(ValueError, match="no rules for the domain 'weather'"):
        analyze.findings(bundle, domains=["weather"])
    with pytest.raises(ValueError, match="'rain' is not a rule"):
        analyze.findings(bundle, rules=["rain"])
    assert analyze.findings(bundle, rules=["straggler"]).rules["rule"].tolist() == ["straggler"]


def test_rules_say_how_they_answered():
    rules = FINDING_RULES.check(analyze.findings(Bundle()).rules)
    assert set(rules["state"]) == {"no data"}
    assert rules["reference"].str.len().min() > 0
    assert rules["note"].str.startswith("needs ").all()
    assert rules["rule"].is_unique
    assert len(rules) >= 40
    quiet = analyze.findings(trace(steps_of(even())[0])).rules
    of_traces = quiet[(quiet["domain"] == "traces") & (quiet["note"] != "needs memory snapshots")]
    assert len(of_traces) >= 15
    assert set(of_traces["state"]) == {"nothing", "no data"}
    # Without anything to look at, nothing found would be no answer.
    assert of_traces["note"][of_traces["state"] == "no data"].str.startswith("needs ").all()
    could_look = set(of_traces["rule"][of_traces["state"] == "nothing"])
    assert {"straggler", "exposed_communication", "host_bound", "long_pauses"} <= could_look
    assert {"inference_gaps", "expert_imbalance", "gpus_unused"}.isdisjoint(could_look)


def test_no_finding_costs_more_than_there_is():
    own = even()
    own[:, 1] *= 40
    table = analyze.findings(trace(steps_of(own)[0])).findings
    assert pd.to_numeric(table["time_share"]).max() <= 1


@pytest.mark.long
def test_costs_of_one_unit_come_in_order_where_no_share_of_time_is_known() -> None:
    """Rules yield by their own order, and confidence says nothing of the cost."""
    logs = load.bundle(datasets.path("failures-demo"), tz="UTC", year=2026, progress=False)
    table = analyze.findings(logs).findings
    for _, rows in table[table["time_share"].isna()].groupby("cost_unit"):
        costs = rows["cost"].dropna()
        assert costs.is_monotonic_decreasing
    assert table["time_share"].dropna().is_monotonic_decreasing
    assert table["cost_unit"].eq("GPU-hours").sum() > 3
