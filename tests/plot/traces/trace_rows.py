"""Rows of what is computed from traces, for figures."""

from tests.plot.conftest import HOSTILE


def steps_of(rank):
    return {"rank": rank, "step": 3}


def time_breakdown(rank, n):
    busy = {"compute_ns": 600 + n, "exposed_communication_ns": 200, "busy_ns": 800 + n}
    return steps_of(rank) | busy | {"span_ns": 1_000 + n, "idle_ns": 200, "overlap_ns": 100}


def communication_overlap(rank, n):
    return steps_of(rank) | {
        "communication_ns": 400 + n, "overlap_ns": 100, "exposed_ns": 300 + n,
        "overlap_share": 100 / (400 + n),
    }  # fmt: skip


def idle_time(rank, n):
    return {"rank": rank, "cause": "host late", "detail": HOSTILE, "gap_count": 1, "idle_ns": n + 1}


def kernels(rank, n):
    name = f"{HOSTILE}{n % 50}"
    return {"rank": rank, "name": name, "kind": "compute", "kernel_count": 2, "total_ns": n + 1}


def kernel_kinds(rank, n):
    return {
        "rank": rank, "kind": "compute", "rule": HOSTILE, "is_unclassified": n % 2 == 0,
        "name_count": 1, "kernel_count": 1, "total_ns": 10,
    }  # fmt: skip


def roofline(rank, n):
    return {
        "rank": rank, "name": f"{HOSTILE}{n % 50}", "shapes": HOSTILE, "dtype": "bfloat16",
        "family": ["matrix product", "elementwise"][n % 2], "call_count": 1, "kernel_count": 1,
        "kernel_ns": n + 1, "flop_count": 1e9, "moved_bytes": 1e6, "flop_per_s": 1e14 + n,
        "bytes_per_s": 1e12, "intensity_flop_per_byte": 1e3, "peak_flop_per_s": 9.89e14,
        "memory_bytes_per_s": 3.35e12, "bound": "compute", "roof_ns": 0.2, "roof_ratio": 0.5,
        "gain_ns": 0.5 * n, "kernel": HOSTILE, "is_sure": True, "note": HOSTILE,
    }  # fmt: skip


def model_tree(rank, n):
    is_root = n < 8
    name = f"rank {rank}" if is_root else f"{HOSTILE}{n}"
    return {
        "rank": rank, "node": n, "parent": None if is_root else rank % 8, "depth": int(not is_root),
        "kind": "root" if is_root else "module", "name": name,
        "path": name if is_root else f"rank {rank} > {name}", "call_count": 1, "cpu_ns": 5,
        "kernel_count": 1, "gpu_self_ns": 0 if is_root else 2, "gpu_ns": 10**9 if is_root else 2,
        "forward_ns": 1, "backward_ns": 1,
    }  # fmt: skip


def phases(rank, n):
    return {"rank": rank, "step": n, "phase": "forward", "kernel_count": 1, "gpu_ns": 10 + n}


def copy_bandwidth(rank, n):
    return {
        "rank": rank, "device": 0, "direction": HOSTILE, "copy_count": 1, "size_bytes": 10 + n,
        "busy_ns": 3, "mean_gb_per_s": 3.0 + n, "peak_gb_per_s": 4.0 + n,
    }  # fmt: skip


def collectives(rank, n):
    return {
        "collective": n, "rank": rank, "operation": HOSTILE, "group": HOSTILE, "rank_count": 8,
        "size_bytes": 1_024 * (n + 1), "bus_gb_per_s": 1.0 + n, "confidence": "low",
        "transfer_min_ns": 10,
    }  # fmt: skip


def collective_waits(rank, n):
    return {
        "collective": n // 8, "rank": rank, "operation": HOSTILE, "wait_ns": n, "transfer_ns": 5,
        "blamed_rank": 0, "confidence": "low",
    }  # fmt: skip


def straggler_attribution(rank, n):
    return {"blamed_rank": n % 30, "rank": rank, "wait_ns": n + 1, "collective_count": 1}


def clocks(rank, n):
    return {
        "rank": rank, "clock": HOSTILE if rank % 3 else "0", "offset_ns": 70 * n - 900,
        "residual_ns": 30, "collective_count": 5, "is_sure": True,
    }  # fmt: skip


def late_arrivals(rank, n):
    return {
        "collective": n, "operation": HOSTILE, "blamed_rank": rank, "wait_ns": n + 1,
        "excess_kind": ("idle", "compute")[n % 2], "excess_ns": n, "host_operator": HOSTILE,
        "host_operator_ns": 5, "longest_kernel": HOSTILE, "longest_kernel_ns": 5,
        "compute_ratio": 1.25, "is_sure": True,
    }  # fmt: skip


def memory_timeline(rank, n):
    return {
        "rank": rank, "device": HOSTILE, "first_event": n, "start_ns": n, "step": n,
        "lowest_allocated_bytes": n, "highest_allocated_bytes": 5 * n + 1,
        "highest_active_bytes": 6 * n + 1, "highest_reserved_bytes": 90_000,
    }  # fmt: skip


def memory_peak(rank, n):
    return {
        "rank": rank, "device": HOSTILE, "group": f"{HOSTILE}{n}", "size_bytes": n + 1,
        "size_share": 0.01, "count": 3, "before_trace_bytes": 1, "peak_event": 7,
    }  # fmt: skip


def trace_diff(_, n):
    return {
        "category": "kernel", "name": f"{HOSTILE}{n}", "change": "both", "a_count": 1,
        "b_count": 1, "a_total_ns": 5, "b_total_ns": 5 + n, "difference_ns": n - 3,
        "total_ratio": 1.5,
    }  # fmt: skip


def step_times(rank, n):
    return steps_of(rank) | {"step": n, "host_ns": 900 + n, "gpu_ns": 800 + n}


def inference_iterations(rank, n):
    return {
        "rank": rank, "iteration": n, "name": f"{HOSTILE}{n % 9}", "engine": HOSTILE,
        "phase": ("prefill", "decode", "mixed", "unknown")[n % 4], "start_ns": 1_000 * n,
        "dur_ns": 800 + n % 50, "busy_ns": 700, "period_ns": 1_000, "idle_ns": 100, "gap_ns": 150,
        "kernel_count": 5, "launch": "graph", "graph": 0,
    }  # fmt: skip
