"""Rows of the tables of execution graphs, for the laws that every figure obeys."""

from tests.plot.conftest import HOSTILE
from workbench.tables import EDGE_KINDS


def replay_fidelity(rank, n):
    return {
        "rank": rank, "error_ratio": (n % 7 - 3) / 100, "explained_share": 1 - n % 9 / 50,
        "step_error_mean_ratio": 0.01 if n % 3 else None, "breakdown_error_ratio": n % 4 / 100,
        "step_error_max_ratio": 0.02 if n % 3 else None, "is_usable": n % 9 < 5,
        "doubt": HOSTILE if n % 2 else "",
    }  # fmt: skip


def graph_ablation(rank, n):
    return replay_fidelity(rank, n) | {"without": f"{HOSTILE}{n}" if n else HOSTILE}


def held_out_steps(_, n):
    return {
        "step": n, "measured_ns": 1_000_000 + n % 7, "predicted_ns": 1_000_000 + n % 5,
        "naive_ns": 1_000_003, "error_ratio": 0.001 * (n % 3), "naive_error_ratio": 0.01,
        "known_share": 0.9,
    }  # fmt: skip


def critical_path(rank, n):
    return {
        "rank": rank, "kind": (*EDGE_KINDS, HOSTILE)[n % 15], "name": f"{HOSTILE}{n % 40}",
        "start_ns": n * 1_000, "dur_ns": 1_000 + n, "is_inferred": n % 3 == 1,
    }  # fmt: skip


def slack(rank, n):
    return {
        "rank": rank, "event": n, "name": f"{HOSTILE}{n}", "kind": "compute",
        "stream": 7 + n % 3 if n % 11 else None, "start_ns": n * 1_000, "dur_ns": 900,
        "slack_ns": (0, 500_000, 5_000_000)[n % 3],
    }  # fmt: skip


def trace_likeness(_, n):
    return {
        "score": ("mix", "behaviour", "leak", HOSTILE)[n % 4], "kind": f"{HOSTILE}{n}",
        "value": n / 7, "limit": 0.1 if n % 5 != 3 else None,
        "used_ratio": n % 11 if n % 5 != 3 else None,
        "verdict": ("pass" if n % 11 <= 1 else "FAIL") if n % 5 != 3 else "not checked",
    }  # fmt: skip


def what_if(_, n):
    return {
        "question": f"{HOSTILE}{n}", "measured_ns": 2_000_000, "replayed_ns": 2_000_000,
        "predicted_ns": 1_000_000 + n, "low_ns": 900_000 if n % 2 else None,
        "high_ns": 1_200_000 if n % 2 else None, "speedup_ratio": 1.5, "step_count": 5,
        "basis": "scaled", "explained_share": 0.99, "doubt": HOSTILE if n % 4 == 1 else "",
    }  # fmt: skip


def gpu_busy(rank, n):
    return {"rank": rank, "start_ns": n * 1_000_000, "busy_share": n % 10 / 10}


def training_runs(rank, n):
    return {
        "model": f"{HOSTILE}{n}", "gpu": HOSTILE, "token_count": 10**12 + n,
        "gpu_time_h": 1e5 + rank, "parameter_count": 10**9, "active_parameter_count": 10**9,
        "flops_count": 6e21, "tflops_per_gpu": 100.0 + n % 7, "peak_share": 0.3 + 0.001 * (n % 9),
        "remark": HOSTILE, "source": HOSTILE,
    }  # fmt: skip
