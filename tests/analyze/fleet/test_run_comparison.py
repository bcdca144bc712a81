"""Two runs: equal ones do not differ, a slowed kernel is found at its cost, chance is no change."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from tests.analyze.findings.jobs import MS, even, job_log, steps_of, trace
from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import RUN_COMPARISON, Bundle


def changed(table):
    return table[table["verdict"] == "changed"].set_index("name")


@pytest.fixture(scope="module")
def demo(fleet_demo):
    return load.bundle(fleet_demo / "traces", progress=False)


def test_a_run_does_not_differ_from_itself(demo):
    table = RUN_COMPARISON.check(analyze.run_comparison(demo, demo))
    assert changed(table).empty
    assert (table["difference"] == 0).all()
    assert table.attrs["warnings"] == []


@pytest.mark.parametrize("ratio", [1.2, 1.5, 0.5])
def test_a_slowed_kernel_is_found_at_its_cost(demo, ratio):
    """The only thing that is slower is the kernel: the naive reading of totals would also hold."""
    events = demo.trace.events
    names = events["name"].astype(str)
    is_it = names.str.contains("GroupProblemShape") & events["kind"].notna()
    slower = events.assign(
        dur_ns=np.where(is_it, events["dur_ns"] * ratio, events["dur_ns"]).astype("int64")
    )
    other = Bundle(trace=dataclasses.replace(demo.trace, events=slower))
    found = changed(analyze.run_comparison(demo, other))
    steps = events[is_it & events["step"].notna() & (events["step"] > events["step"].min())]
    per_step = steps["dur_ns"].sum() / steps["step"].nunique() / events["rank"].nunique() / MS
    kernels = found[found["quantity"] == "kernel"]
    assert kernels.index.tolist() == ["cutlass::device_kernel"]
    assert kernels["difference"].item() == pytest.approx((ratio - 1) * per_step, rel=1e-6)
    assert kernels["change_ratio"].item() == pytest.approx(ratio, rel=1e-6)


def test_runs_of_equal_distribution_seldom_differ():
    """Of 40 pairs at a confidence of 95 % about two may: many quantities are asked at once."""
    wrong = 0
    for seed in range(40):
        draws = np.random.default_rng(seed)
        runs = [
            trace(steps_of(2_000 * (1 + 0.02 * draws.standard_normal((8, 2))))[0]) for _ in "ab"
        ]
        wrong += not changed(analyze.run_comparison(*runs)).empty
    assert wrong <= 6


def test_a_kernel_of_one_run_alone_is_a_change():
    rows, _ = steps_of(even())
    renamed = [
        row | ({"name": "other_kernel"} if row.get("kind") == "compute" else {}) for row in rows
    ]
    found = changed(analyze.run_comparison(trace(rows), trace(renamed)))
    assert found.loc["other_kernel", "a"] == 0
    assert found.loc["other_kernel", "b"] > 0


def test_runs_that_are_not_alike_say_so(demo):
    events = demo.trace.events
    fewer = dataclasses.replace(
        demo.trace,
        events=events[events["rank"] < 4].reset_index(drop=True),
        ranks=demo.trace.ranks[demo.trace.ranks["rank"] < 4],
    )
    warnings = analyze.run_comparison(demo, Bundle(trace=fewer)).attrs["warnings"]
    assert len(warnings) == 1
    assert "ranks [0, 1, 2, 3]" in warnings[0]


def test_job_logs_compare_by_their_steps():
    draws = np.random.default_rng(0)
    runs = [
        Bundle(job=job_log(list(mean + 0.01 * draws.standard_normal(60)))) for mean in (1.0, 1.1)
    ]
    row = analyze.run_comparison(*runs).iloc[0]
    assert row["verdict"] == "changed"
    assert row["difference"] == pytest.approx(100, abs=5)
    assert row["low"] < 100 < row["high"]


def test_nothing_in_common_is_refused():
    lengths = Bundle(document_lengths=pd.DataFrame({"length_tokens": [1, 2]}))
    with pytest.raises(WorkbenchError, match="nothing to compare: both need steps"):
        analyze.run_comparison(lengths, lengths)
