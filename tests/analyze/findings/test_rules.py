"""Every rule finds its trouble in a made job, and nothing in the same job without it."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from data import make
from tests.analyze.communication.test_places import named, slow_node_job
from tests.analyze.conftest import injected, parameter_row
from tests.analyze.findings.jobs import (
    GEMM,
    MS,
    START,
    US,
    even,
    failure_log,
    gpus_in_turn,
    idle_rows,
    job_log,
    launched,
    power_log,
    steps_of,
    trace,
)
from tests.analyze.findings.test_failure_costs import waiting
from tests.analyze.findings.test_perfmodel_rules import job as replayed
from tests.analyze.findings.test_perfmodel_rules import slow_product
from workbench import analyze, datasets, load
from workbench.tables import Bundle

DRAWS = np.random.default_rng


def rows_of(own=None, **options):
    return steps_of(even() if own is None else own, **options)[0]


def straggler():
    own = even()
    own[3:, 2] *= 1.2
    return trace(rows_of(own))


def slow_group(factor=3.0):
    """Four groups of two ranks; the link of the last is slow."""
    rows = []
    for step in range(6):
        begin = START + step * 20 * MS
        for rank in range(8):
            rows += launched(rank, step, begin, 2 * MS, f"{step}.{rank}", GEMM)
            slow = factor if rank >= 6 else 1.0
            rows.append(
                {"rank": rank, "start_ns": begin + 2 * MS, "dur_ns": round(slow * 3 * MS),
                 "step": step, "kind": "communication", "stream": 20, "group": f"{rank // 2}",
                 "name": "ncclDevKernel_AllReduce", "collective": "allreduce", "group_size": 2,
                 "seq": step, "in_count": 1 << 25, "out_count": 1 << 25, "dtype": "Float"}
            )  # fmt: skip
    return trace(rows)


def expert_imbalance(ratio=2.0):
    rows = []
    for step in range(4):
        begin = START + step * 20 * MS
        for rank in range(4):
            count = round((1 << 24) * (ratio if rank == 1 else (4 - ratio) / 3))
            rows += launched(rank, step, begin, 2 * MS, f"{step}.{rank}", GEMM)
            rows.append(
                {"rank": rank, "start_ns": begin + 2 * MS, "dur_ns": 6 * MS, "step": step,
                 "kind": "communication", "stream": 20, "group": "0", "seq": step,
                 "name": "ncclDevKernel_SendRecv", "collective": "all_to_allv", "group_size": 4,
                 "in_count": count, "out_count": count, "dtype": "Float"}
            )  # fmt: skip
    return trace(rows)


def idle_host(gap_us, kernel_us, **options):
    return trace(idle_rows(gap_us, kernel_us, **options))


def graph_holes():
    rows = []
    for number in range(20):
        at = START + number * 10 * MS
        rows += launched(0, 0, at, MS, str(number), GEMM)
        rows += launched(0, 0, at + 9 * MS, MS, f"late{number}", GEMM)
        for row in rows[-2:]:
            if row.get("id"):
                row |= {"start_ns": at, "name": "cudaGraphLaunch"}
    return trace(rows)


def unexplained_idle():
    """Give kernels that no recorded call launched, half of the time."""
    return trace([row for row in idle_rows(100.0, 100.0) if "kind" in row])


def data_loader():
    rows, at = [], START
    for step in range(6):
        rows.append({"start_ns": at, "dur_ns": 20 * MS, "step": step,
                     "name": f"ProfilerStep#{step}", "category": "user_annotation"})  # fmt: skip
        rows.append({"start_ns": at, "dur_ns": 8 * MS, "step": step,
                     "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                     "category": "user_annotation"})  # fmt: skip
        rows.append({"start_ns": at + 8 * MS, "dur_ns": 5 * US, "step": step, "id": str(step),
                     "name": "cudaLaunchKernel", "category": "cuda_runtime"})  # fmt: skip
        rows.append({"start_ns": at + 8 * MS + 8 * US, "dur_ns": 11 * MS, "step": step,
                     "kind": "compute", "launch": str(step), "name": GEMM})  # fmt: skip
        at += 20 * MS
    return trace(rows)


def copies(name, dur_ns=2 * MS, size_bytes=8_000_000):
    rows = rows_of()
    for step in range(8):
        at = START + step * 2_200 * US - 2 * MS
        rows.append({"start_ns": at, "dur_ns": dur_ns, "step": step, "category": "gpu_memcpy",
                     "kind": "memory", "name": name, "stream": 9,
                     "size_bytes": size_bytes})  # fmt: skip
    return trace(rows)


def copies_in_turn(name, gb_per_s=25, hidden=False):
    """Give kernels and copies of 200 µs, one after the other, or at the same time."""
    rows = []
    for number in range(60):
        at = START + number * 800 * US
        rows += launched(0, 0, at, (800 if hidden else 600) * US, str(number), GEMM)
        rows.append({"start_ns": at + 600 * US, "dur_ns": 200 * US, "step": 0,
                     "category": "gpu_memcpy", "kind": "memory", "name": name, "stream": 9,
                     "size_bytes": round(gb_per_s * 200e3)})  # fmt: skip
    return trace(rows)


def allocator_calls():
    calls = [
        {"start_ns": START + n * MS, "dur_ns": 400 * US, "step": 0, "name": "cudaMalloc",
         "category": "cuda_runtime"}
        for n in range(10)
    ]  # fmt: skip
    return trace(idle_rows(30.0, 50.0) + calls)


def long_steps(*numbers, factor=3.0):
    own = even(12)
    own[list(numbers)] *= factor
    return trace(rows_of(own))


def shifted_clock():
    rows = rows_of()
    for row in rows:
        if row["rank"] == 3:
            row["start_ns"] += 5 * MS
            if "end_ns" in row:
                row["end_ns"] += 5 * MS
    return trace(rows)


def unknown_kernels():
    rows = rows_of()
    for row in rows:
        if row.get("kind") == "compute":
            row["name"] = "zzz_frobnicate_7"
    return trace(rows)


DAY = 24.0


def lemon():
    rows = [{"at_h": 25.0 * n + 5, "node": "node007"} for n in range(20)]
    rows += [{"at_h": 90.0 * n + 30, "node": f"node{10 + n:03}"} for n in range(10)]
    return Bundle(failures=failure_log(rows))


def spread(count=12, **more):
    draws = DRAWS(1).uniform(1, 990, count)
    causes = ["GPU has fallen off the bus", "double-bit ECC error", "NVLink error", "GSP timeout",
              "row remap", "page retirement"]  # fmt: skip
    return [
        {"at_h": float(at), "node": f"node{n:03}", "cause": causes[n % 6], **more}
        for n, at in enumerate(draws)
    ]


def job_with(spans=(), durations=None, starts=None):
    durations = [1.0 + 0.001 * n for n in range(5)] * 20 if durations is None else durations
    return Bundle(job=job_log(durations, spans, starts))


def interrupted(times=1, lost_s=60.0, steps_lost=10, checkpoints=()):
    """Make a job that repeats steps after every interruption."""
    rows, spans, now, step = [], [("run", 0.0, 5_000.0)], 0.0, 0
    for attempt in range(1, times + 2):
        for _ in range(60):
            rows.append((step, attempt, now, now + 1.0))
            now, step = now + 1.0, step + 1
            if step in checkpoints:
                spans.append(("checkpoint", now, now + 1.0))
                now += 1.0
        if attempt <= times:
            spans.append(("restart", now, now + lost_s))
            now, step = now + lost_s, step - steps_lost
    made = job_log([e - s for _, _, s, e in rows], spans[1:], [s for _, _, s, _ in rows])
    steps = made.steps.assign(
        step=[row[0] for row in rows], attempt=pd.array([row[1] for row in rows], dtype="int32")
    )
    return Bundle(job=dataclasses.replace(made, steps=steps))


def gpus(count=8, seconds=120, watts=500.0, **states):
    values = {f"n{n // 4}/gpu{n % 4}": watts + DRAWS(n).normal(0, 3, seconds) for n in range(count)}
    told = {"busy_share": 0.97, "clock_mhz": 1800.0, "limit_w": 700.0, "reasons": 0} | states
    return values, told


def power(change=None, **states):
    values, told = gpus(**states)
    if change is not None:
        values = change(values)
    return Bundle(power=power_log(values, **told))


def one_of(name, value, other, seconds=120):
    return {f"n{n // 4}/gpu{n % 4}": other for n in range(8)} | {name: value}


def lower(values):
    return values | {"n1/gpu2": values["n1/gpu2"] - 120}


def capped():
    reasons = np.zeros(120, dtype=int)
    reasons[30:70] = 0x4
    clock = np.where(reasons > 0, 1_500.0, 1_800.0)
    return power(
        reasons=one_of("n0/gpu1", list(reasons), 0), clock_mhz=one_of("n0/gpu1", clock, 1_800.0)
    )


def swinging():
    def change(values):
        wave = 150 * np.sign(np.sin(np.arange(120) / 3))
        return {name: watts + wave for name, watts in values.items()}

    return power(change)


def two_meters():
    values, _ = gpus(4)
    watts = values | {"n0": np.full(120, 1_500.0)}
    scope = dict.fromkeys(values, "gpu") | {"n0": "node_ac"}
    return Bundle(power=power_log(watts, scope=scope))


def silent():
    def change(values):
        values["n0/gpu0"][40:100] = np.nan
        return values

    return power(change)


def operations(causes, shape=(4, 4, 8, 4)):
    """Simulate a pipelined job with causes of known size."""
    return Bundle(operations=make.pipeline_job(causes, seed=3, shape=shape).operations)


def campaign(sdc_of, due_of=None, count=400):
    """Inject faults into two components; ``sdc_of`` gives wrong outputs by component and bit."""
    rows = []
    for component in ("embeddings", "top"):
        for number in range(count):
            bit = number % 32
            rows.append(
                {"component": component, "layer": component, "param": f"{component}.weight",
                 "kind": "weight", "elem": number, "bit": bit, "bit_role": "exp", "dtype": "fp32",
                 "direction": "0to1", "sdc_count": sdc_of(component, bit),
                 "due_count": due_of(component, bit) if due_of else 0}
            )  # fmt: skip
    parameters = [
        parameter_row(name, f"{name}.weight", 100_000) | {"campaign_id": "c"}
        for name in ("embeddings", "top")
    ]
    return Bundle(injections=injected(*rows, parameters=parameters))


def in_top(component, bit):
    return 60 if component == "top" and bit >= 28 else 0


def lengths(tokens):
    return Bundle(document_lengths=pd.DataFrame({"length_tokens": np.asarray(tokens, "int64")}))


def short_of_memory():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.pickle"
        return load.bundle(make.memory_snapshot(path, seed=1, limit_bytes=400 << 20))


def enough_memory():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.pickle"
        allocator = make.MemoryAllocator(1 << 30)
        for _ in range(3):
            allocator.free(allocator.alloc(64 << 20))
        path.write_bytes(pickle.dumps(allocator.snapshot()))
        return load.bundle(path)


def serving(gap_us=500.0, count=20):
    """One rank decodes; between two iterations the host schedules for ``gap_us``."""
    rows, at = [], START
    for number in range(count):
        rows += launched(0, 0, at, MS, f"{number}", GEMM)
        rows.append(
            {"rank": 0, "start_ns": at - 50 * US, "dur_ns": 30 * US, "name": "step[DECODE bs=8]",
             "category": "user_annotation"}
        )  # fmt: skip
        at += MS + round(gap_us * US)
    return trace(rows)


CASES = {
    "straggler": straggler,
    "exposed_communication": lambda: trace(rows_of(transfer_us=600, hidden=0.2)),
    "slow_group": slow_group,
    "host_bound": lambda: idle_host(60.0, 100.0),
    "long_pauses": lambda: idle_host(20_000.0, 60_000.0, count=20),
    "gpus_unused": gpus_in_turn,
    "synchronising_calls": lambda: idle_host(60.0, 100.0, blocking="cudaStreamSynchronize"),
    "graph_holes": graph_holes,
    "unexplained_idle": unexplained_idle,
    "inference_gaps": serving,
    "data_loader": data_loader,
    "pageable_copies": lambda: copies("Memcpy HtoD (Pageable -> Device)"),
    "slow_copies": lambda: copies("Memcpy HtoD (Pinned -> Device)"),
    "exposed_copies": lambda: copies_in_turn("Memcpy HtoD (Pinned -> Device)"),
    "tiny_kernels": lambda: idle_host(3.0, 4.0, count=2_000),
    "allocator_calls": allocator_calls,
    "first_step": lambda: long_steps(0),
    "uneven_steps": lambda: long_steps(5, 9),
    "expert_imbalance": expert_imbalance,
    "clock_disagreement": shifted_clock,
    "missing_ranks": lambda: trace(rows_of(), world_size=16),
    "unclassified_kernels": unknown_kernels,
    "leading_cause": lambda: Bundle(
        failures=failure_log([row | {"cause": "NVLink error"} for row in spread()])
    ),
    "broken_gpu": lambda: Bundle(
        failures=failure_log(spread(2, action="reset GPU", device="0000:1b:00"))
    ),
    "last_failure": lambda: Bundle(failures=failure_log([{"at_h": 999.5, "node": "node001"}])),
    "fatal_failure": lambda: Bundle(failures=failure_log(spread(5))),
    "lemon_node": lemon,
    "crash_loop": lambda: Bundle(
        failures=failure_log(
            spread(1), runs=[(10 + n * 0.5, 10.3 + n * 0.5, "FAILED") for n in range(5)]
        )
    ),
    "failures_increase": lambda: Bundle(
        failures=failure_log(
            [{"at_h": 1_000 * (n / 40) ** 0.3, "node": f"node{n:03}"} for n in range(1, 40)]
        )
    ),
    "failure_bursts": lambda: Bundle(
        failures=failure_log(
            [
                {"at_h": 200.0 * (n // 8) + 0.01 * (n % 8) + 1, "node": f"node{n % 40:03}"}
                for n in range(40)
            ]
        )
    ),
    "unknown_cause": lambda: Bundle(failures=failure_log(spread(12, category="unknown"))),
    "fabric_errors": lambda: Bundle(
        failures=failure_log(
            [{"at_h": 40.0 * n + 5, "node": "node003", "category": "network"} for n in range(6)]
        )
    ),
    "detection_time": waiting,
    "time_to_first_step": waiting,
    "too_few_spares": waiting,
    # On most ranks the host is early, and no sum of gaps names it.
    "slow_launches": lambda: make.troubled_job({"late host": 0.2}, seed=4, ranks=4).bundle,
    "below_roof": slow_product,
    "slow_node": slow_node_job,
    "communication_on_path": lambda: replayed(
        [700, 300], [100, 300], kinds=("compute", "communication")
    ),
    "out_of_memory": short_of_memory,
    "stranded_memory": short_of_memory,
    "hang": lambda: load.bundle(datasets.path("hang-demo"), progress=False),
    "interruption": interrupted,
    "initialisation": lambda: job_with(
        [("run", 0.0, 125.0), ("initialisation", 0.0, 20.0)],
        starts=[20.0 + n * 1.01 for n in range(100)],
    ),
    "evaluation_time": lambda: job_with(
        [("evaluation", 50.0, 70.0)],
        durations=[1.0] * 100,
        starts=[n + (20.0 if n >= 50 else 0.0) for n in range(100)],
    ),
    "checkpoint_time": lambda: job_with(
        [("checkpoint", 50.0, 60.0)],
        durations=[1.0] * 100,
        starts=[n + (10.0 if n >= 50 else 0.0) for n in range(100)],
    ),
    "checkpoint_interval": lambda: interrupted(5, lost_s=5.0, steps_lost=30, checkpoints={60, 100}),
    "repeated_work": lambda: interrupted(3, lost_s=5.0, steps_lost=30),
    "slower_steps": lambda: job_with(durations=[1.0] * 60 + [1.2] * 60),
    "outlier_steps": lambda: job_with(durations=[3.0 if n % 25 == 24 else 1.0 for n in range(200)]),
    "time_not_told": lambda: job_with(
        durations=[1.0] * 100, starts=[n + (30.0 if n >= 50 else 0.0) for n in range(100)]
    ),
    "capped_gpu": capped,
    "thermal_throttling": lambda: power(
        reasons=one_of("n0/gpu1", [0x20 if n > 60 else 0 for n in range(120)], 0)
    ),
    "power_brake": lambda: power(
        reasons=one_of("n0/gpu1", [0x80 if n > 60 else 0 for n in range(120)], 0)
    ),
    "odd_gpu": lambda: power(lower),
    "unequal_limits": lambda: power(limit_w=one_of("n1/gpu0", 400.0, 700.0)),
    "idle_gpus": lambda: power(busy_share=one_of("n1/gpu0", 0.0, 0.97)),
    "unused_gpu": lambda: power(busy_share=one_of("n1/gpu0", 0.0, 0.97)),
    "power_swing": swinging,
    "meters_disagree": two_meters,
    "telemetry_gaps": silent,
    "hot_gpu": lambda: power(temperature_c=one_of("n1/gpu3", 91.0, 65.0)),
    "slow_workers": lambda: operations({"slow worker": 1.6}),
    "last_stage": lambda: operations({"last stage": 1.5}),
    "sequence_lengths": lambda: operations({"sequence lengths": 0.8}),
    "slow_network": lambda: operations({"slow network": 150.0}),
    "pauses": lambda: operations({"pauses": 6}),
    "pipeline_bubble": lambda: operations({}, shape=(2, 8, 8, 3)),
    "vulnerable_component": lambda: campaign(in_top),
    "cheap_protection": lambda: campaign(lambda _, bit: 60 if bit == 30 else 0),
    "too_few_faults": lambda: campaign(in_top, count=40),
    "not_finite": lambda: campaign(in_top, lambda _, bit: 30 if bit == 30 else 0),
    "uneven_documents": lambda: lengths(
        np.minimum(DRAWS(2).lognormal(7.0, 2.0, 60_000), 131_072).round() + 1
    ),
}
QUIET = {
    "communication": lambda: named(seed=2).bundle,
    "traces": lambda: trace(rows_of()),
    "failures": lambda: Bundle(failures=failure_log(spread(5, severity="info"))),
    "fleet": job_with,
    "power": power,
    "memory": enough_memory,
    "imbalance": lambda: lengths([4_096] * 60_000),
}


def found_in(bundle):
    return set(analyze.findings(bundle).findings["rule"])


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_finds_its_trouble(rule):
    result = analyze.findings(CASES[rule]())
    refused = result.rules[result.rules["state"] == "refused"]
    shown = result.findings.set_index("rule")
    if rule == "communication_on_path":
        # It says the contrary of exposed communication: both are one finding with a doubt.
        assert shown.loc["exposed_communication", "doubt"].startswith(
            "by a replay, no communication"
        )
        assert shown.loc["exposed_communication", "next_step"].startswith("leave communication")
        assert rule not in shown.index
        result = analyze.findings(CASES[rule](), rules=[rule])
    assert rule in set(result.findings["rule"]), refused[["rule", "note"]].to_dict("records")


@pytest.mark.long
def test_rules_keep_their_order_whatever_was_imported_first():
    code = "import sys, {}; from workbench import analyze; print(*analyze.finding_rules()['rule'])"
    first = ["re", "workbench.analyze._traces.memory", "workbench.analyze._pvf.findings"]
    printed = [
        subprocess.run([sys.executable, "-c", code.format(module)], capture_output=True, check=True)
        for module in first
    ]
    assert len({result.stdout for result in printed}) == 1


def test_every_rule_has_a_made_case():
    assert set(CASES) == set(analyze.finding_rules()["rule"])


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        (("Memcpy HtoD (Pinned -> Device)",), {"exposed_copies"}),
        (("Memcpy DtoD (Device -> Device)", 2.0), {"exposed_copies"}),
        # The reason is told, and with it the cost.
        (("Memcpy HtoD (Pageable -> Device)",), {"pageable_copies"}),
        (("Memcpy HtoD (Pinned -> Device)", 5.0), {"slow_copies"}),
        # As long as before, but computing goes on.
        (("Memcpy HtoD (Pinned -> Device)", 25, True), set()),
    ],
)
def test_copies_are_told_once_and_only_where_they_cost_time(options, rules):
    told = {"exposed_copies", "pageable_copies", "slow_copies"}
    assert found_in(copies_in_turn(*options)) & told == rules


def test_short_gaps_between_iterations_and_few_iterations_are_no_finding():
    assert "inference_gaps" not in found_in(serving(gap_us=50.0))
    assert "inference_gaps" not in found_in(serving(count=5))


@pytest.mark.long
@pytest.mark.parametrize("domain", QUIET)
def test_a_job_without_trouble_has_no_findings(domain):
    result = analyze.findings(QUIET[domain]())
    assert result.findings.empty, result.findings[["rule", "finding"]].to_dict("records")
