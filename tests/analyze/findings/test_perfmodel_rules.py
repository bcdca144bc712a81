"""Rules on replays: made jobs whose new step time is counted by hand, and naive readings fail."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.analyze.findings.jobs import START, US, trace
from workbench import analyze

GEMM, REDUCE = "gemm", "ncclDevKernel_AllReduce"


def job(host_us, gpu_us, *, steps=6, kinds=("compute",) * 10, wait=False):
    """Make a rank whose host takes ``host_us`` per launch and whose kernels take ``gpu_us``.

    A kernel begins 5 us after its launch began, or when the one before has ended. With ``wait``
    the host waits for the GPU at the end of every step.
    """
    rows, at, free = [], START, START
    for step in range(steps):
        begin = at
        for number, kind in enumerate(kinds):
            name = f"{step}.{number}"
            correlation = 100 * step + number + 1
            length = gpu_us[number % len(gpu_us)]
            host = host_us[number % len(host_us)]
            rows.append({"rank": 0, "start_ns": at, "dur_ns": host * US, "step": step,
                         "name": "aten::op", "category": "cpu_op", "thread": "1"})  # fmt: skip
            call = at + (host - 4) * US
            rows.append({"rank": 0, "start_ns": call, "dur_ns": 3 * US, "step": step, "id": name,
                         "name": "cudaLaunchKernel", "category": "cuda_runtime", "thread": "1",
                         "correlation": correlation})  # fmt: skip
            first = max(call + 5 * US, free)
            free = first + length * US
            rows.append({"rank": 0, "start_ns": first, "dur_ns": length * US, "step": step,
                         "kind": kind, "launch": name, "stream": 7, "category": "kernel",
                         "correlation": correlation,
                         "name": GEMM if kind == "compute" else REDUCE})  # fmt: skip
            at += host * US
        if wait:
            rows.append({"rank": 0, "start_ns": at, "dur_ns": max(free + US - at, US),
                         "step": step, "name": "cudaDeviceSynchronize", "thread": "1",
                         "category": "cuda_runtime"})  # fmt: skip
            at = max(free + 2 * US, at + 2 * US)
        rows.append({"rank": 0, "start_ns": begin, "end_ns": at, "step": step,
                     "name": f"ProfilerStep#{step}", "category": "user_annotation",
                     "thread": "1"})  # fmt: skip
    return trace(rows)


def found(bundle):
    answer = analyze.findings(bundle, domains=["perfmodel"])
    assert set(answer.rules["state"]) <= {"found", "nothing"}, answer.rules["note"].tolist()
    return answer.findings.set_index("rule")


def test_a_host_that_binds_is_found_at_half_the_step():
    """Ten launches of 100 us each: with half the host time a step takes 500 us less."""
    row = found(job([100], [20])).loc["slow_launches"]
    assert row["cost"] == pytest.approx(0.5, rel=0.05)
    assert row["cost_unit"] == "ms per step"
    assert row["time_share"] == pytest.approx(0.5, rel=0.05)


def test_a_busy_host_ahead_of_its_gpu_costs_nothing():
    """The host never rests, which naively makes it the culprit; the GPU never waits for it."""
    assert found(job([50], [80])).empty


def test_exposed_communication_that_the_host_hides_would_gain_little():
    """Each step has 300 us of exposed communication while the host prepares for 1 ms."""
    kinds = ("compute", "communication")
    row = found(job([700, 300], [100, 300], kinds=kinds)).loc["communication_on_path"]
    # The end of the last step alone waits for it: a sixth of 300 us.
    assert row["cost"] < 0.075
    assert "other work binds" in row["finding"]


def test_communication_on_the_critical_path_gains_its_time():
    kinds = ("compute", "communication")
    row = found(job([20, 20], [100, 300], kinds=kinds, wait=True)).loc["communication_on_path"]
    assert row["cost"] == pytest.approx(0.3, rel=0.1)
    assert "other work binds" not in row["finding"]


def test_gpu_work_without_launches_is_refused():
    bundle = job([100], [20])
    events = bundle.trace.events
    for name in ("launch", "correlation"):
        events[name] = pd.array([pd.NA] * len(events), dtype=events[name].dtype)
    rules = analyze.findings(bundle, domains=["perfmodel"]).rules
    assert set(rules["state"]) == {"refused"}
    assert rules["note"].str.contains("no launch of 100 % of the GPU work").all()


def test_a_long_trace_is_cut_to_three_steps(monkeypatch):
    from workbench.analyze._perfmodel import findings

    whole = found(job([100], [20], steps=30)).loc["slow_launches"]
    monkeypatch.setattr(findings, "_MOST_EVENTS", 200)
    cut = found(job([100], [20], steps=30)).loc["slow_launches"]
    assert "over 2 steps" in cut["cost_basis"]
    assert cut["cost"] == pytest.approx(whole["cost"], rel=0.05)


def test_communication_that_is_exposed_and_gains_its_time_is_told_once():
    kinds = ("compute", "communication")
    bundle = job([20, 20], [100, 300], kinds=kinds, wait=True)
    answer = analyze.findings(bundle)
    assert "exposed_communication" in set(answer.findings["rule"])
    row = answer.rules.set_index("rule").loc["communication_on_path"]
    assert (row["state"], row["finding_count"]) == ("nothing", 0)
    assert row["note"] == "reported by the rule exposed_communication"
