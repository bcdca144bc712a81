"""Two runs: equal ones do not differ, a slowed kernel is found at its cost, chance is not a change."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import sqlite3

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats

from tests.analyze.findings.jobs import (
    MS,
    START,
    US,
    even,
    failure_log,
    job_log,
    steps_of,
    trace,
)
from workbench import analyze, load
from workbench.analyze._fleet.run_samples import PER_NODE, exposures_h
from workbench.analyze._lib.autocorrelation import mean_variance, welch
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


@pytest.mark.parametrize("ratio", [1.3, 1.5, 0.5])
def test_a_slowed_kernel_is_found_at_its_cost(demo, ratio):
    """Five steps that drift by 5 % resolve what is well above that."""
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


@pytest.mark.slow
def test_runs_of_equal_distribution_seldom_differ():
    """Of 40 pairs at a confidence of 95 % two may: many quantities are asked at once."""
    wrong = 0
    for seed in range(40):
        draws = np.random.default_rng(seed)
        runs = [
            trace(steps_of(2_000 * (1 + 0.02 * draws.standard_normal((8, 2))))[0]) for _ in "ab"
        ]
        wrong += not changed(analyze.run_comparison(*runs)).empty
    assert wrong <= 2


def test_a_kernel_of_one_run_alone_is_a_change():
    rows, _ = steps_of(even())
    renamed = [
        row | ({"name": "other_kernel"} if row.get("kind") == "compute" else {}) for row in rows
    ]
    found = changed(analyze.run_comparison(trace(rows), trace(renamed)))
    assert found.loc["other_kernel", "a"] == 0
    assert found.loc["other_kernel", "b"] > 0


def autocorrelated(count, correlation, seed):
    """Draw step times in s: a mean of 1 and a first-order autoregressive spread of 2 %."""
    draws = np.random.default_rng(seed).standard_normal(count + 200)
    series = np.zeros(len(draws))
    for at in range(1, len(draws)):
        series[at] = correlation * series[at - 1] + draws[at]
    return 1 + 0.02 * series[200:] * np.sqrt(1 - correlation**2)


@pytest.mark.long
def test_neighbouring_steps_that_resemble_each_other_are_no_change():
    """Both runs have one law. Taken as independent steps, more than half of them "changed"."""
    naive = wrong = 0
    for seed in range(60):
        first, second = (autocorrelated(60, 0.8, 2 * seed + side) for side in (0, 1))
        naive += stats.ttest_ind(first[1:], second[1:], equal_var=False).pvalue < 0.05
        runs = [Bundle(job=job_log(list(steps))) for steps in (first, second)]
        wrong += not changed(analyze.run_comparison(*runs)).empty
    assert naive >= 25
    assert wrong <= 3


@pytest.mark.parametrize(
    ("count", "correlation"), [(6, 0.0), (6, 0.5), (20, 0.5), (20, 0.7), (200, 0.7)]
)
def test_intervals_hold_the_true_difference(count, correlation):
    """The nominal level is 95 %: the truth is 0 here, as both series have one law."""
    draws = np.random.default_rng(1)
    missed, repeats = 0, 1_000
    for _ in range(repeats):
        sides = []
        for noise in draws.standard_normal((2, count + 50)):
            series = signal.lfilter([1], [1, -correlation], noise)[50:]
            sides.append((float(series.mean()), *mean_variance(series)))
        low, high, _ = welch(*sides, 0.95)
        missed += not low <= 0 <= high
    # Three standard errors of a share of 5 % in so many draws.
    assert missed / repeats <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / repeats)


@pytest.mark.long
def test_independent_steps_lose_little_power():
    """An interval that is never wrong because it is infinite would be of no use."""
    draws = np.random.default_rng(2)
    found = 0
    for _ in range(50):
        runs = [
            Bundle(job=job_log(list(mean + 0.01 * draws.standard_normal(60))))
            for mean in (1.0, 1.01)
        ]
        found += not changed(analyze.run_comparison(*runs)).empty
    assert found >= 45


def test_a_spread_from_run_to_run_widens_every_interval():
    runs = [Bundle(job=job_log(list(autocorrelated(60, 0, seed) + seed / 20))) for seed in (0, 1)]
    alone = analyze.run_comparison(*runs)
    assert alone["verdict"].iloc[0] == "changed"
    assert any("one run each" in text for text in alone.attrs["doubts"])
    known = analyze.run_comparison(*runs, run_spread_share=0.04)
    assert known["verdict"].iloc[0] == "not resolvable"
    # Two runs, each off by 4 %: the normal quantile times the root of two squares.
    half = (known["high"] - known["low"]).iloc[0] / 2
    assert half == pytest.approx(1.96 * 1_020 * 0.04 * np.sqrt(2), rel=0.05)


def test_collectives_are_split_into_all_time_and_waiting():
    """One rank computes longer: the collective lasts longer, only its waiting grows."""
    own = even(12)
    slow = own.copy()
    slow[:, 2] += 500
    runs = [trace(steps_of(times)[0]) for times in (own, slow)]
    found = changed(analyze.run_comparison(*runs))
    waiting = found.loc["all-reduce, waiting for the last rank", "difference"]
    # Three of four ranks wait 0.5 ms more, up to their spread of 4 us.
    assert waiting == pytest.approx(0.5 * 3 / 4, abs=0.01)
    assert found.loc["all-reduce", "difference"] == pytest.approx(waiting, abs=0.001)


@settings(max_examples=15)
@given(
    a=st.integers(0, 60), b=st.integers(0, 60), ratio=st.floats(0.2, 5), level=st.floats(0.5, 0.999)
)
def test_failure_rates_compare_as_two_poisson_counts(a, b, ratio, level):
    """The exact test of equal rates: given the sum, the count of B is binomial."""
    logs = [
        failure_log([{"at_h": 1 + n / 100, "node": "node001"} for n in range(count)], hours=hours)
        for count, hours in ((a, 100.0), (b, 100.0 * ratio))
    ]
    if not a + b:
        return
    table = analyze.run_comparison(
        *(Bundle(failures=log) for log in logs), confidence_level=level
    ).set_index("name")
    row = table.loc["all"]
    assert row["a"] == pytest.approx(a / (40 * 100) * 1000)
    assert row["low"] <= row["difference"] <= row["high"]
    share = ratio / (1 + ratio)
    law = [math.comb(a + b, k) * share**k * (1 - share) ** (a + b - k) for k in range(a + b + 1)]
    p_value = sum(p for p in law if p <= law[b] * (1 + 1e-7))
    asked = len(table)
    assert row["p_value_share"] == pytest.approx(min(1, asked * p_value), rel=1e-6, abs=1e-12)
    mirrored = analyze.run_comparison(
        *(Bundle(failures=log) for log in logs[::-1]), confidence_level=level
    ).set_index("name")
    assert mirrored.loc["all", "low"] == pytest.approx(-row["high"])


def test_more_failures_in_a_longer_log_are_no_change():
    """The naive reading of counts says three times as many; the rate is the same."""
    rows = [{"at_h": 10.0 * n, "node": f"node{n % 40:03}"} for n in range(1, 91)]
    short = [dict(row) for row in rows if row["at_h"] < 300]
    logs = [failure_log(short, hours=300), failure_log(rows, hours=900)]
    table = analyze.run_comparison(*(Bundle(failures=log) for log in logs))
    assert (table["a_count"] < table["b_count"] / 2).all()
    assert (table["verdict"] == "not resolvable").all()


def test_two_halves_of_one_run_are_compared():
    early, late = analyze.run_halves(Bundle(job=job_log([1.0, 1.01] * 20 + [1.3, 1.31] * 20)))
    assert len(early.job.steps) == len(late.job.steps) == 40
    row = analyze.run_comparison(early, late).iloc[0]
    assert row["verdict"] == "changed"
    assert row["low"] < 300 < row["high"]
    log = failure_log([{"at_h": h, "node": "node001"} for h in (10, 20, 30, 700)])
    halves = analyze.run_halves(Bundle(failures=log))
    assert [len(half.failures.failures) for half in halves] == [3, 1]
    assert [exposures_h(half)[PER_NODE] for half in halves] == pytest.approx([20_000, 20_000])
    with pytest.raises(WorkbenchError, match="no halves to compare"):
        analyze.run_halves(Bundle(job=job_log([1.0])))


def test_other_work_per_step_is_said():
    logs = []
    for tokens in (1_000, 2_000):
        log = job_log([1.0, 1.01] * 20)
        steps = log.steps.assign(token_count=pd.array([tokens] * 40, dtype="Int64"))
        logs.append(Bundle(job=dataclasses.replace(log, steps=steps)))
    assert (
        "A has tokens per step 1e+03, B has tokens per step 2e+03"
        in (analyze.run_comparison(*logs).attrs["warnings"])
    )


def test_runs_that_are_not_alike_say_so(demo):
    events = demo.trace.events
    fewer = dataclasses.replace(
        demo.trace,
        events=events[events["rank"] < 4].reset_index(drop=True),
        ranks=demo.trace.ranks[demo.trace.ranks["rank"] < 4],
    )
    warnings = analyze.run_comparison(demo, Bundle(trace=fewer)).attrs["warnings"]
    assert len(warnings) == 1
    assert "B has ranks 0, 1, 2, 3" in warnings[0]


def test_job_logs_compare_by_their_steps():
    draws = np.random.default_rng(0)
    runs = [
        Bundle(job=job_log(list(mean + 0.01 * draws.standard_normal(60)))) for mean in (1.0, 1.1)
    ]
    row = analyze.run_comparison(*runs).iloc[0]
    assert row["verdict"] == "changed"
    assert row["difference"] == pytest.approx(100, abs=5)
    assert row["low"] < 100 < row["high"]


def plain(kernels, *, gap=20 * US, ranges=(), drop=()):
    """Make a trace without steps: kernels one after the other, each with its launch.

    ``kernels`` are names and durations; ``ranges`` gives for every so many kernels a host range.
    """
    rows, time = [], START
    for number, (name, dur_ns) in enumerate(kernels):
        call = {"rank": 0, "start_ns": time, "dur_ns": 5 * US, "name": "cudaLaunchKernel"}
        rows.append(call | {"category": "cuda_runtime", "id": number})
        if number not in drop:
            rows.append({"rank": 0, "start_ns": time + 10 * US, "dur_ns": dur_ns, "name": name,
                         "kind": "compute", "launch": number})  # fmt: skip
        for label, size in ranges:
            if number % size == 0:
                rows.append({"rank": 0, "start_ns": time - 5 * US, "name": label,
                             "category": "user_annotation",
                             "dur_ns": sum(d + gap for _, d in kernels[number : number + size]) - 10 * US})  # fmt: skip
        time += dur_ns + gap
    return trace(rows)


PAIR = [("flash_fwd", 100 * US), ("gemm_a", 100 * US)]
SLOW = [("flash_fwd", 100 * US), ("gemm_a", 200 * US)]


def test_without_steps_a_kernel_that_takes_twice_as_long_comes_first():
    table = analyze.run_comparison(plain(PAIR * 100), plain(SLOW * 100))
    first = table.iloc[0]
    assert (first["quantity"], first["name"], first["unit"]) == (
        "kernel call", "gemm_a", "ms per call",
    )  # fmt: skip
    assert (first["verdict"], first["change_ratio"]) == ("changed", pytest.approx(2))
    rows = table.set_index(["quantity", "name"])
    assert rows.loc[("kernel call", "flash_fwd"), "verdict"] == "not resolvable"
    # A second of B holds less of the other kernel: 100 of 340 µs, not 100 of 240.
    per_second = rows.loc[("kernel per second", "flash_fwd")]
    assert per_second["a"] == pytest.approx(1e3 * 100 / 240, rel=0.01)
    assert per_second["b"] == pytest.approx(1e3 * 100 / 340, rel=0.01)
    assert "not both traces mark steps" in table.attrs["doubts"][0]


@pytest.mark.long
@settings(max_examples=10)
@given(st.integers(2, 5), st.lists(st.integers(20, 500), min_size=1, max_size=4))
def test_a_job_that_does_all_several_times_is_not_the_same(times, lengths_us):
    one = [(f"kernel_{n}", length * US) for n, length in enumerate(lengths_us)] * 40
    table = analyze.run_comparison(plain(one), plain(one * times))
    rows = table.set_index("name")
    assert rows.loc[["first to last GPU work", "GPU work, mean of the ranks"], "verdict"].eq(
        "changed"
    ).all()  # fmt: skip
    ratio = rows.loc["GPU work, mean of the ranks", "change_ratio"]
    assert ratio == pytest.approx(times)
    assert (analyze.run_comparison(plain(one), plain(one))["verdict"] == "not resolvable").all()
    spread = analyze.run_comparison(plain(one), plain(one * times), run_spread_share=0.5)
    assert spread.set_index("name").loc["first to last GPU work", "low"] < 0


@pytest.mark.parametrize("label", ["decode", "decode 7"])
def test_without_steps_a_range_that_repeats_stands_for_one(label):
    """It holds twice the work in B; a second of B and a call of B are like those of A."""
    inner, outer = ("attention", 1), ("once", 400)
    before = plain(PAIR * 100, ranges=[(label, 2), inner, outer])
    after = plain(PAIR * 100, ranges=[(label, 4), inner, outer])
    table = analyze.run_comparison(before, after)
    assert "a step is a range 'decode'" in table.attrs["doubts"][0]
    rows = table.set_index(["quantity", "name"])
    assert rows.loc[("step time", "step"), "change_ratio"] == pytest.approx(2, rel=0.05)
    assert rows.loc[("kernel", "gemm_a"), "change_ratio"] == pytest.approx(2)
    assert rows.loc[("kernel", "gemm_a"), "verdict"] == "changed"


def test_a_step_without_recorded_kernels_is_not_one_without_kernels():
    rows, _ = steps_of(even())
    late = sorted({row["step"] for row in rows if row.get("kind")})[:2]
    lost = [row for row in rows if not (row.get("kind") and row["step"] in late)]
    table = analyze.run_comparison(trace(rows), trace(lost))
    assert changed(table[table["quantity"] == "kernel"]).empty
    assert any("B: the kernels of 2 of" in text for text in table.attrs["doubts"])


def test_launches_whose_kernels_were_dropped_are_told():
    table = analyze.run_comparison(plain(PAIR * 100), plain(PAIR * 100, drop=range(20, 70)))
    assert "B: the kernels of 50 of 200 launches were dropped" in table.attrs["doubts"]
    assert not any(text.startswith("A: ") for text in table.attrs["doubts"])


@pytest.mark.oracle
def test_an_export_of_nsight_is_told_from_one_with_a_slower_kernel(real_data, tmp_path):
    """Independent of the loader: the sums are asked from SQLite."""
    before = real_data("nsight-systems") / "healthy_1pct.sqlite"
    after = tmp_path / "after.sqlite"
    shutil.copy(before, after)
    with contextlib.closing(sqlite3.connect(after)) as store, store:
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        name = store.execute(f"SELECT min(shortName) FROM {kernels}").fetchone()
        store.execute(
            f"UPDATE {kernels} SET end = end - (end - start) / 4 WHERE shortName = ?", name
        )
        known = dict(store.execute(
            f"SELECT value, avg(end - start) / 1e6 FROM {kernels} JOIN StringIds ON id = demangledName "
            "GROUP BY value"
        ))  # fmt: skip
    runs = [load.bundle(path, progress=False) for path in (before, after)]
    table = analyze.run_comparison(*runs)
    calls = table[table["quantity"] == "kernel call"].set_index("name")
    assert sorted(calls["b"]) == pytest.approx(sorted(known.values()))
    assert calls["verdict"].value_counts().to_dict() == {"changed": 1, "not resolvable": 1}
    assert calls["change_ratio"].min() == pytest.approx(0.75)


def test_nothing_in_common_is_refused():
    lengths = Bundle(document_lengths=pd.DataFrame({"length_tokens": [1, 2]}))
    with pytest.raises(WorkbenchError, match="nothing to compare: both need GPU work"):
        analyze.run_comparison(lengths, lengths)
