"""Costs of failures in GPU-hours, counted again by SQL, and what is said where inputs lack."""

from __future__ import annotations

import dataclasses
import sqlite3

import pandas as pd
import pytest

from tests.analyze.findings.jobs import START, H, failure_log
from workbench import analyze
from workbench.tables import TIMELINE, Bundle

RUNS = [(0, 10, "FAILED"), (11, 20, "NODE_FAIL"), (22, 30, "FAILED"), (33, 50, "COMPLETED")]
SAVED = [(8, 8.1), (18, 18.5), (29, 29.5)]


def bundle_of(failures, *, runs=RUNS, gpus=16, nodes=None, spans=(), **more):
    """Make a log of one job with its runs, and further states ``(state, from_h, to_h)``."""
    log = failure_log(failures, runs=runs, **more)
    named = pd.DataFrame(
        [
            {"start_ns": START + round(a * H), "end_ns": START + round(b * H), "clock": "epoch",
             "job": "1", "attempt": 1, "state": state, "source": "job.log", "line": 1}
            for state, a, b in spans
        ],
        columns=list(TIMELINE.columns),
    )  # fmt: skip
    rows = TIMELINE.cast(named).to_dict("records") + log.timeline.to_dict("records")
    table = TIMELINE.cast(pd.DataFrame(rows, columns=list(TIMELINE.columns)))
    table = TIMELINE.cast(table.assign(gpu_count=gpus, node_count=nodes))
    return Bundle(failures=dataclasses.replace(log, timeline=table.sort_values("start_ns")))


def found(bundle):
    answer = analyze.findings(bundle, domains=["failures"])
    assert "refused" not in set(answer.rules["state"]), answer.rules["note"].tolist()
    return answer.findings.set_index("rule")


def dead(*hours, node="node000", **more):
    return [{"at_h": at, "node": node, **more} for at in hours]


SPANS = [("detecting", 9, 10), ("allocating", 10, 10.5), ("loading", 10.5, 11.5)]


def waiting(**more):
    """Make a job that waits for detection, for another node, and for its state to be loaded."""
    return bundle_of(dead(10, 20, 30), spans=SPANS, **more)


def by_sql(bundle):
    """Count restart and repeated work again, in SQL."""
    base = sqlite3.connect(":memory:")
    table = bundle.failures.timeline[["state", "start_ns", "end_ns", "outcome", "gpu_count"]]
    table.astype({"gpu_count": "float64"}).to_sql("t", base)
    query = """
        with failed as (select end_ns, gpu_count from t where outcome in ('FAILED', 'NODE_FAIL'))
        select sum(gpu_count / 3.6e12 * (
            (select min(start_ns) from t where state = 'running' and start_ns >= failed.end_ns)
            - failed.end_ns + failed.end_ns
            - (select max(end_ns) from t where state = 'checkpoint' and end_ns <= failed.end_ns)
        )) from failed
    """
    return base.execute(query).fetchone()[0]


def test_the_leading_cause_costs_restart_and_repeated_work():
    """Each failed once in three; what they cost depends on restarts and checkpoints."""
    bundle = bundle_of(dead(10, 20, 30), spans=[("checkpoint", *span) for span in SAVED])
    row = found(bundle).loc["leading_cause"]
    assert row["cost_unit"] == "GPU-hours"
    assert row["cost"] == pytest.approx(16 * (1 + 1.9 + 2 + 1.5 + 3 + 0.5))
    assert row["cost"] == pytest.approx(by_sql(bundle))
    assert row["doubt"] == ""


def test_failures_beside_no_failed_run_have_no_cost():
    """The naive count of failures is the same; no run of the job was near them."""
    row = found(bundle_of(dead(5, 15, 40))).loc["leading_cause"]
    assert pd.isna(row["cost"])
    assert row["doubt"].startswith("no cost: no failed run of a job is in the log")


@pytest.mark.long
def test_missing_inputs_are_named():
    without_saves = found(bundle_of(dead(10, 20, 30))).loc["leading_cause"]
    assert without_saves["cost"] == pytest.approx(16 * (1 + 2 + 3))
    assert "log checkpoints" in without_saves["doubt"]
    by_node = found(bundle_of(dead(10, 20, 30), gpus=None, nodes=2)).loc["leading_cause"]
    assert (by_node["cost"], by_node["cost_unit"]) == (pytest.approx(2 * 6), "node-hours")
    assert "GPUs per node are not in the log" in by_node["doubt"]
    neither = found(bundle_of(dead(10, 20, 30), gpus=None)).loc["leading_cause"]
    assert pd.isna(neither["cost"])
    assert "no number of GPUs or nodes" in neither["doubt"]
    lost = found(bundle_of(dead(10, 20, 30), runs=RUNS[:3])).loc["leading_cause"]
    assert lost["cost"] == pytest.approx(16 * 3)
    assert "1 of 3 failed runs were not restarted" in lost["doubt"]


def test_a_lemon_costs_only_what_is_beyond_the_mean_rate():
    runs = [(10 * n, 10 * n + 9, "FAILED") for n in range(12)] + [(130, 140, "COMPLETED")]
    rows = dead(*(end for _, end, outcome in runs if outcome == "FAILED"))
    row = found(bundle_of(rows, runs=runs)).loc["lemon_node"]
    # Twelve failures of forty nodes: 0.3 are to be expected of each. Eleven restarts of 1 h, one
    # of 11 h.
    assert row["cost"] == pytest.approx(16 * 22 * (12 - 12 / 40) / 12)


def test_a_crash_loop_costs_all_gpus_from_first_to_last():
    runs = [(n, n + 0.9, "FAILED") for n in range(5)]
    row = found(bundle_of(dead(0.9, 1.9), runs=runs)).loc["crash_loop"]
    assert (row["cost"], row["cost_unit"]) == (pytest.approx(16 * 4), "GPU-hours")
    unknown = found(bundle_of(dead(0.9, 1.9), runs=runs, gpus=None)).loc["crash_loop"]
    assert pd.isna(unknown["cost"])
    assert unknown["doubt"].startswith("no cost: 4 h")


def test_detection_starts_and_spares_cost_their_spans():
    table = found(waiting())
    total = 16 * (10 + 9 + 8 + 17 + 2.5)
    for name, hours in (
        ("detection_time", 1),
        ("too_few_spares", 0.5),
        ("time_to_first_step", 1),
    ):
        row = table.loc[name]
        assert row["cost"] == pytest.approx(16 * hours)
        assert row["time_share"] == pytest.approx(16 * hours / total)
    # Three failures in 40,000 node-hours: over half an hour forty nodes have one at most.
    assert table.loc["too_few_spares", "next_step"].startswith("1 spare node covers the failures")
    quiet = found(bundle_of(dead(10, 20, 30), spans=[("detecting", 9.99, 10)]))
    assert "detection_time" not in quiet.index
    unknown = found(waiting(gpus=None)).loc["detection_time"]
    assert pd.isna(unknown["cost"])
    assert "no number of GPUs" in unknown["doubt"]
