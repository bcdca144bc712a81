"""Rows for the figures of training across regions, hostile names included."""

from tests.plot.conftest import HOSTILE


def local_training_rate(rank, n):
    return {
        "scheme": f"{HOSTILE}{n}", "steps_per_s": 1.0 + n, "total_s": 9e4 / (1 + n),
        "shortest_round_s": 1.0, "longest_round_s": 2.0, "compute_share": 0.5,
        "transfer_share": 0.3, "wait_share": 0.2, "halos_ratio": 1.0 + n,
    }  # fmt: skip


def local_training_sweep(rank, n):
    return {
        "parameter": HOSTILE, "value_ratio": 0.1 + n, "scheme": f"{HOSTILE}{rank}",
        "steps_per_s": 1.0, "halos_ratio": 9 / (1 + n),
    }  # fmt: skip


def local_training(rank, n):
    return {
        "scheme": f"{HOSTILE}{rank}", "seed": n % 3, "step_count": 100 * n, "time_s": 60.0 * n,
        "loss": 4 / (1 + n / 100), "model": HOSTILE,
    }  # fmt: skip


def time_to_loss(rank, n):
    return {
        "loss": 1.5 + n / 1_000, "scheme": f"{HOSTILE}{rank}", "seed_count": 3, "run_count": 3,
        "time_s": 60.0, "time_ratio": 2.0 + n % 5, "low_time_ratio": 1.5, "high_time_ratio": 7.5,
        "clock_ratio": 1.7, "reference": "HALoS", "model": HOSTILE,
    }  # fmt: skip
