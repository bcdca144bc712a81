"""Rules on replays: made jobs whose new step time is counted by hand, and naive readings fail."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from claims._kernel_times import gemm_times
from tests.analyze.conftest import fitting
from tests.analyze.findings.jobs import START, US, job_log, trace
from workbench import analyze
from workbench.errors import PerformanceModelError
from workbench.tables import DEVICES

GEMM, REDUCE, H100 = "gemm", "ncclDevKernel_AllReduce", "NVIDIA H100 80GB HBM3"
USUAL = ("aten::op", None, GEMM)


def job(
    host_us, gpu_us, *, steps=6, kinds=("compute",) * 10, wait=False, calls=None, gpu=H100
):  # fmt: skip
    """Make a rank whose host takes ``host_us`` per launch and whose kernels take ``gpu_us``.

    ``calls`` gives, in turn, the operator, the shapes of its inputs and the kernel. A kernel begins 5 us after its launch began, or when the one before has ended. With ``wait``
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
            operator, shapes, kernel = calls[number % len(calls)] if calls else USUAL
            rows.append({"rank": 0, "start_ns": at, "dur_ns": host * US, "step": step,
                         "name": operator, "category": "cpu_op", "thread": "1",
                         **inputs_of(shapes)})  # fmt: skip
            call = at + (host - 4) * US
            rows.append({"rank": 0, "start_ns": call, "dur_ns": 3 * US, "step": step, "id": name,
                         "name": "cudaLaunchKernel", "category": "cuda_runtime", "thread": "1",
                         "correlation": correlation})  # fmt: skip
            first = max(call + 5 * US, free)
            free = first + length * US
            rows.append({"rank": 0, "start_ns": first, "dur_ns": length * US, "step": step,
                         "kind": kind, "launch": name, "stream": 7, "category": "kernel",
                         "correlation": correlation,
                         "name": kernel if kind == "compute" else REDUCE})  # fmt: skip
            at += host * US
        if wait:
            rows.append({"rank": 0, "start_ns": at, "dur_ns": max(free + US - at, US),
                         "step": step, "name": "cudaDeviceSynchronize", "thread": "1",
                         "category": "cuda_runtime"})  # fmt: skip
            at = max(free + 2 * US, at + 2 * US)
        rows.append({"rank": 0, "start_ns": begin, "end_ns": at, "step": step,
                     "name": f"ProfilerStep#{step}", "category": "user_annotation",
                     "thread": "1"})  # fmt: skip
    made = trace(rows)
    device = {"rank": 0, "name": gpu, "processor_count": 132}
    return replace(made, trace=replace(made.trace, devices=fitting([device], DEVICES)))


def inputs_of(shapes):
    if shapes is None:
        return {}
    types = ["c10::BFloat16"] * len(shapes)
    return {"input_shapes": json.dumps(shapes), "input_types": json.dumps(types)}


def found(bundle):
    answer = analyze.findings(bundle, domains=["perfmodel"])
    rules = answer.rules[answer.rules["rule"] != "below_roof"]
    assert set(rules["state"]) <= {"found", "nothing"}, rules["note"].tolist()
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
    assert "other work is on the critical path" in row["finding"]


def test_communication_on_the_critical_path_gains_its_time():
    kinds = ("compute", "communication")
    row = found(job([20, 20], [100, 300], kinds=kinds, wait=True)).loc["communication_on_path"]
    assert row["cost"] == pytest.approx(0.3, rel=0.1)
    assert "other work is on the critical path" not in row["finding"]


def test_gpu_work_without_launches_is_refused():
    bundle = job([100], [20])
    events = bundle.trace.events
    for name in ("launch", "correlation"):
        events[name] = pd.array([pd.NA] * len(events), dtype=events[name].dtype)
    rules = analyze.findings(bundle, domains=["perfmodel"]).rules
    rules = rules[rules["rule"] != "below_roof"]
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


PEAK_FLOP_PER_S = 989e12
M, N, K = 4096, 8192, 4096


def product(n=N, m=M, k=K, *, kernel=GEMM):
    return "aten::mm", [[m, k], [k, n]], kernel


def roof_us(m=M, n=N, k=K):
    return 2 * m * n * k / PEAK_FLOP_PER_S * 1e6


def slow_product(ratio=0.2, *, host_us=20, **options):
    """Ten products per step that reach ``ratio`` of the peak, on a host ahead of its GPU."""
    return job([host_us], [round(roof_us() / ratio)], **{"calls": [product()]} | options)


def below(bundle, **thresholds):
    given = {f"below_roof.{name}": value for name, value in thresholds.items()}
    table = analyze.findings(bundle, rules=["below_roof"], thresholds=given)
    return table.findings


def test_operators_below_the_roof_cost_the_time_that_is_reachable():
    """Ten products per step, each at a fifth of the peak: counted by hand from the data sheet."""
    (row,) = below(slow_product()).to_dict("records")
    taken = round(roof_us() / 0.2)
    assert row["cost"] == pytest.approx(10 * (taken - roof_us() / 0.7) / 1e3, rel=0.02)
    assert row["time_share"] == pytest.approx(1 - roof_us() / 0.7 / taken, rel=0.02)
    assert "reach 20" in row["finding"]


def test_slow_operators_of_a_gpu_that_waits_for_its_host_cost_nothing():
    """Naively half of the kernel time could be saved; each launch takes longer than a kernel."""
    length = round(roof_us() / 0.2)
    waiting = slow_product(host_us=length + 200)
    gain = analyze.roofline(waiting.trace.events, devices=waiting.trace.devices)["gain_ns"].sum()
    assert gain > 0.3 * waiting.trace.events["dur_ns"].max()
    assert below(waiting).empty


@pytest.mark.parametrize(
    ("options", "state", "note"),
    [
        ({"gpu": "NVIDIA H100 PCIe"}, "no data", "no peaks of its GPU are known"),
        ({"calls": [("aten::mm", None, GEMM)]}, "no data", "its shapes were not recorded"),
        ({"ratio": 0.6}, "nothing", ""),
        ({"kinds": ("compute",), "host_us": 30_000}, "nothing", ""),
    ],
)
def test_without_a_roof_or_a_telling_share_nothing_is_said(options, state, note):
    rules = analyze.findings(slow_product(**options), rules=["below_roof"]).rules
    assert rules["state"].tolist() == [state]
    assert note in rules["note"].iloc[0]


def test_short_kernels_are_left_to_the_rules_on_launches():
    calls = [("aten::mm", [[64, 512], [512, 512]], GEMM)]
    assert below(job([3], [9], calls=calls)).empty
    assert len(below(job([3], [9], calls=calls), least_us=5)) == 1


@pytest.mark.parametrize(
    ("call", "cause", "step"),
    [
        (product(50_257), "50,257 elements, not a multiple of 8", "to 50,304"),
        # The rows of the first input are never read across.
        (product(m=4_097), "", "another library"),
        (product(kernel="cutlass_80_bf16_s16816gemm_align2"), "loads 2 elements", "multiples of 8"),
        (product(1_024, 1_024), "64 tiles of 128 x 128 for 132", "micro-batches"),
        (("aten::bmm", [[2, 1024, 64], [2, 64, 1024]], GEMM), "128 tiles", "micro-batches"),
        (
            ("aten::mul", [[4096, 4096], [4096, 4096]], "void at::native::elementwise_kernel<128>"),
            "one element at a time", "contiguous",
        ),
        (
            ("aten::mul", [[4096, 4096], [4096, 4096]], "at::native::vectorized_elementwise_kernel<4>"),
            "", "fuse it",
        ),
    ],
)  # fmt: skip
def test_a_cause_is_named_where_the_sizes_or_the_kernel_show_it(call, cause, step):
    (row,) = below(job([20], [30_000], calls=[call])).to_dict("records")
    assert cause in row["finding"]
    assert step in row["next_step"]
    assert ("; most time is in" in row["finding"]) == bool(cause)


@pytest.mark.oracle
@pytest.mark.usefixtures("kernel_package")
def test_the_thresholds_below_the_roof_are_those_of_measured_products():
    """Of A100, H100 and H200 in 16 bits: what is reachable is usual, what is named is not."""
    times = gemm_times(gpus=("A100", "H100", "H200"), dtypes=("bfloat16", "float16"))
    times = times[times["dur_ns"] >= 10_000].merge(analyze.matrix_peaks(), on=["gpu", "dtype"])
    m, n, k = (times[f"{size}_count"].astype("float64") for size in "mnk")
    computing = 2 * m * n * k / times["peak_flop_per_s"]
    moving = 2 * (m * k + k * n + m * n) / times["memory_bytes_per_s"]
    ratio = 1e9 * pd.concat([computing, moving], axis=1).max(axis=1) / times["dur_ns"]
    assert len(ratio) > 50_000
    assert ratio.median() == pytest.approx(0.72, abs=0.01)
    assert (ratio < 0.5).mean() == pytest.approx(0.106, abs=0.005)


def test_gpu_hours_are_those_of_the_job_log():
    logged = replace(slow_product(), job=job_log([36.0] * 100))
    logged.trace.ranks["world_size"] = pd.array([64], dtype="Int32")
    (row,) = below(logged).to_dict("records")
    assert f"{row['time_share'] * 64:.3g} GPU-hours over 100 logged steps" in row["cost_basis"]


def test_without_a_replay_the_cost_is_an_upper_bound(monkeypatch):
    from workbench.analyze._perfmodel import findings

    def refused(*_):
        msg = "no graph"
        raise PerformanceModelError(msg)

    monkeypatch.setattr(findings, "execution_graph", refused)
    (row,) = below(slow_product()).to_dict("records")
    taken = round(roof_us() / 0.2)
    assert row["cost"] == pytest.approx(10 * (taken - roof_us() / 0.7) / 1e3, rel=1e-3)
    assert "an upper bound" in row["doubt"]


@pytest.mark.long
@settings(deadline=None, max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(
    sizes=st.tuples(*[st.integers(256, 8_192)] * 3), ratio=st.floats(0.05, 0.95),
    host_us=st.integers(20, 60),
)  # fmt: skip
def test_the_cost_is_the_closed_form_and_never_above_the_time_of_the_kernels(sizes, ratio, host_us):
    """By hand: 2 m n k operations and every byte once, at the peaks of the data sheet."""
    m, n, k = sizes
    roof = max(2 * m * n * k / PEAK_FLOP_PER_S, 2 * (m * k + k * n + m * n) / 3.35e12) * 1e6
    taken = round(max(roof / ratio, 500.0))
    table = below(job([host_us], [taken], calls=[product(n, m, k)]))
    saved = taken - roof / 0.7
    if roof / taken >= 0.5 or saved < 0.03 * taken:
        assert table.empty
    else:
        # A host that takes longer than the faster kernel binds: less is gained.
        gain = saved if roof / 0.7 > host_us + 20 else min(saved, taken - host_us)
        assert table["cost"].iloc[0] == pytest.approx(gain / 100, rel=0.05)
        assert 0 <= table["time_share"].iloc[0] <= 1


def test_idle_time_is_told_once():
    """Gaps between short kernels make a job host-bound and a replay of its host gains by them."""
    answer = analyze.findings(job([20], [5]), domains=["traces", "perfmodel"])
    assert {"tiny_kernels"} == {"tiny_kernels", "host_bound", "slow_launches"} & set(
        answer.findings["rule"]
    )
    answer = analyze.findings(job([100], [20]), domains=["traces", "perfmodel"])
    rules = answer.rules.set_index("rule")
    assert rules.loc["host_bound", "state"] == "found"
    assert rules.loc["slow_launches", "note"] == "reported by the rule host_bound"
