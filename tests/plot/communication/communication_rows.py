"""Rows of communication at scale, for figures."""

from tests.plot.conftest import HOSTILE


def collective_scaling(rank, n):
    return {
        "collective": HOSTILE, "algorithm": f"{HOSTILE}{rank % 15}", "rank_count": 2 + n,
        "size_bytes": 1_000, "modelled_ns": 3_000.0 + n, "latency_ns": 1_000.0 + n,
        "transfer_ns": 2_000.0, "slowest_level": HOSTILE, "is_chosen": n % 3 == 0,
    }  # fmt: skip


def startup_goodput(rank, n):
    return {
        "library": f"{HOSTILE}{rank % 5}", "gpu_count": 8 + n, "startup_s": 1.0 + n,
        "productive_share": 0.5, "low_share": 0.4, "high_share": 0.6, "startup_share": 0.1,
        "convention": HOSTILE, "basis": ("published", HOSTILE)[n % 2],
        "failure_interval_min": 18.0,
    }  # fmt: skip


def all_to_all_padding(_, n):
    return {
        "layer": n, "rank_count": 8, "imbalance_ratio": 1.5, "exact_count": 8.0,
        "padded_count": 12.0, "saved_share": 1 / (n + 2), "busiest_saved_share": 0.0,
    }  # fmt: skip


def communication_speedup(_, n):
    return {
        "communication_share": min(0.2 + n / 10_000, 1.0), "saved_share": 0.1,
        "speedup_ratio": 2.0 + 1 / (n + 1),
    }  # fmt: skip


def collective_bandwidth(rank, n):
    return {
        "operation": HOSTILE, "members": HOSTILE, "rank_count": 2 + rank, "node_count": 1,
        "size_bytes": 1_000 + n, "collective_count": 5, "dur_ns": 1_000.0, "bus_gb_per_s": 1.0 + n,
        "modelled_gb_per_s": 2.0 + n, "model_ratio": 0.5 + n % 9 / 10, "algorithm": HOSTILE,
    }  # fmt: skip


def slow_links(rank, n):
    return {
        "node": n, "rail": None if n % 3 else rank, "group_count": 2, "slow_count": 2,
        "best_ratio": 0.5, "suspect": HOSTILE if n % 7 == 0 else "",
    }  # fmt: skip


def place_bandwidth(rank, n):
    return {
        "node": f"{HOSTILE}{rank % 7}", "other_node": f"{HOSTILE}{n % 7}", "group_count": 1,
        "scope": ("inside the node", "between nodes")[rank % 7 != n % 7], "least_node_count": 2,
        "best_gb_per_s": 40.0, "best_ratio": 0.5,
    }  # fmt: skip
