"""Many runs: the run of a regression is named, chance and single outliers are not regressions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from tests.analyze.findings.jobs import MS, failure_log, job_log, steps_of, trace
from tests.analyze.findings.jobs import even as even_times
from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import RUN_CHANGES, RUN_TREND, Bundle


def trend_of(values, **columns):
    """Make a table of runs with these mean step times."""
    rows = [
        {"run": f"night{n:02}", "gpu": "", "step_count": 50, "step_ms": value, "exposure": "",
         "is_synthetic": False, "doubt": ""} | {name: given[n] for name, given in columns.items()}
        for n, value in enumerate(values)
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=list(RUN_TREND.columns))
    return RUN_TREND.check(RUN_TREND.cast(table))


@settings(max_examples=15)
@given(at=st.integers(2, 10), ratio=st.sampled_from([0.9, 1.08, 1.5]), seed=st.integers(0, 99))
def test_the_first_run_of_a_lasting_change_is_named(at, ratio, seed):
    draws = np.random.default_rng(seed)
    values = 200 * (1 + 0.005 * draws.standard_normal(12))
    values[at:] *= ratio
    row = analyze.run_changes(trend_of(values)).iloc[0]
    assert row["verdict"] == "changed"
    assert row["first_run"] == f"night{at:02}"
    # An interval may miss; how often is tested below.
    width = row["high"] - row["low"]
    assert row["low"] - width < 200 * (ratio - 1) < row["high"] + width
    assert row["after_count"] == 12 - at
    # The scatter of the nights on either side around its mean; two means leave ten degrees.
    before, after = values[:at], values[at:]
    scatter = np.sqrt((at * before.var() + (12 - at) * after.var()) / 10)
    assert row["spread_ratio"] == pytest.approx(scatter / before.mean())


@pytest.mark.long
def test_the_interval_of_a_change_holds_it():
    held = 0
    for seed in range(100):
        values = 200 * (1 + 0.005 * np.random.default_rng(seed).standard_normal(12))
        values[2 + seed % 9 :] *= 1.08
        row = analyze.run_changes(trend_of(values)).iloc[0]
        held += bool(row["low"] < 200 * 0.08 < row["high"])
    assert held >= 93


def test_the_last_night_alone_is_named_with_a_doubt():
    values = 200 * (1 + 0.005 * np.random.default_rng(1).standard_normal(12))
    values[-1] *= 1.1
    row = analyze.run_changes(trend_of(values)).iloc[0]
    assert (row["verdict"], row["first_run"]) == ("changed", "night11")
    assert "one run after the change: run it again" in row["doubt"]


def test_one_slow_night_in_the_middle_is_no_lasting_change():
    """The largest value is far off, but the nights after it are as before."""
    values = 200 * (1 + 0.005 * np.random.default_rng(2).standard_normal(12))
    values[5] *= 1.3
    assert analyze.run_changes(trend_of(values))["verdict"].tolist() == ["not resolvable"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "correlation", "most_share"), [(6, 0.0, 0.05), (20, 0.0, 0.05), (40, 0.5, 0.16)]
)
def test_the_share_of_false_regressions(count, correlation, most_share):
    draws = np.random.default_rng(3)
    repeats, wrong = 100, 0
    for _ in range(repeats):
        noise = draws.standard_normal(count + 50)
        values = 200 + signal.lfilter([1], [1, -correlation], noise)[50:]
        wrong += "changed" in set(analyze.run_changes(trend_of(values))["verdict"])
    assert wrong / repeats <= most_share + 2 * np.sqrt(most_share / repeats)


def test_four_quantities_are_four_questions():
    draws = np.random.default_rng(4)
    wrong = 0
    for _ in range(60):
        step, exposed, energy = 100 + draws.standard_normal((3, 8))
        table = trend_of(step, exposed_communication_ms=exposed, energy_j=energy)
        changes = analyze.run_changes(table)
        assert len(changes) == 3
        wrong += (changes["verdict"] == "changed").any()
    assert wrong <= 6


def test_failures_over_longer_runs_are_no_change_and_a_higher_rate_is():
    """Counts double with the exposure; the rate does not."""
    hours = [1_000.0] * 5 + [2_000.0] * 5
    same = trend_of(
        [200.0] * 10, failure_count=[5, 4, 6, 5, 5, 10, 9, 11, 10, 10], exposure_h=hours,
        exposure=["node-hours"] * 10,
    )  # fmt: skip
    assert set(analyze.run_changes(same)["verdict"]) == {"not resolvable"}
    more = same.assign(failure_count=[5, 4, 6, 5, 5, 30, 29, 31, 30, 30])
    row = analyze.run_changes(RUN_TREND.cast(more)).iloc[0]
    assert (row["quantity"], row["first_run"]) == ("failure rate", "night05")
    assert row["before"] == pytest.approx(5)
    assert row["low"] < 10 < row["high"]


def test_runs_are_described_in_order_of_time():
    runs = {}
    for number, name in enumerate(["tuesday", "monday"]):
        log = job_log([1.0, 1.01] * 20)
        shift = -number * 86_400 * 1_000 * MS
        steps = log.steps.assign(start_ns=log.steps["start_ns"] + shift,
                                 end_ns=log.steps["end_ns"] + shift)  # fmt: skip
        failures = failure_log([{"at_h": 1, "node": "node001"}], hours=10 + number)
        runs[name] = Bundle(job=type(log)(steps, log.spans, log.quality), failures=failures)
    table = analyze.run_trend(runs)
    assert table["run"].tolist() == ["monday", "tuesday"]
    assert table["step_ms"].tolist() == pytest.approx([1_005, 1_005], abs=1)
    assert (table["low_step_ms"] < table["step_ms"]).all()
    assert table["failure_count"].tolist() == [1, 1]
    assert table["exposure_h"].tolist() == [440, 400]
    assert analyze.run_changes(table).empty


def test_another_number_of_ranks_is_said_beside_the_run():
    runs = {name: trace(steps_of(even_times(6, ranks))[0]) for name, ranks in (("a", 4), ("b", 2))}
    table = analyze.run_trend(runs).set_index("run")
    assert table.loc["a", "doubt"] == ""
    assert "this one has ranks 0, 1" in table.loc["b", "doubt"]
    assert table["rank_count"].tolist() == [4, 2]
    assert table["exposed_communication_ms"].notna().all()


def test_runs_without_steps_are_refused():
    with pytest.raises(WorkbenchError, match="none of the runs has steps"):
        analyze.run_trend({"a": Bundle()})


def test_equal_runs_do_not_change():
    table = RUN_CHANGES.check(analyze.run_changes(trend_of([200.0] * 6)))
    assert table["verdict"].tolist() == ["not resolvable"]
    assert table["difference"].tolist() == [0]
