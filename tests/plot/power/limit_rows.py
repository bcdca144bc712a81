"""Rows for the figures of power limits and capping, hostile names included."""

from tests.plot.conftest import HOSTILE


def power_curve(rank, n):
    return {
        "gpu": f"{HOSTILE}{rank}", "job": HOSTILE, "configuration": HOSTILE,
        "configuration_count": 1, "limit_w": 1_000.0 - n % 7, "power_w": 100.0,
        "speed_ratio": 1 / (1 + n / 100), "energy_ratio": None if rank % 3 == 2 else 0.9,
        "saving_ratio": 0.1, "basis": ("measured", "extrapolated", HOSTILE)[n % 3],
        "is_extrapolated": n % 3 == 1, "doubt": HOSTILE if n % 2 else "", "source": HOSTILE,
    }  # fmt: skip


def power_knees(_, n):
    known = n % 4 < 3
    return {
        "gpu": f"{HOSTILE}{n}", "job": HOSTILE, "configuration_count": 1, "largest_limit_w": 300.0,
        "least_energy_limit_w": 150.0 + n % 100 if known else None,
        "saving_ratio": 0.2 if known else None, "speed_loss_ratio": -0.1 if known else None,
        "time_increase_ratio": -0.09 if known else None, "kept_speed_share": 0.95,
        "kept_speed_limit_w": 250.0, "edp_limit_w": 200.0 if known else None,
        "ed2p_limit_w": 225.0 if known else None, "knee_limit_w": None, "per_watt_limit_w": 125.0,
        "doubt": HOSTILE if n % 2 else "",
    }  # fmt: skip


def provisioning(rank, n):
    return {
        "gpu": f"{HOSTILE}{rank}", "job": HOSTILE, "configuration": HOSTILE,
        "limit_w": 2_000.0 - n % 9, "gpu_count": 100 + n, "speed_ratio": 0.9,
        "throughput_ratio": 90.0 + n, "reference_limit_w": 2_000.0, "gain_ratio": n / 1_000,
        "site_w": 1e8, "energy_ratio": 1.0, "is_best": n % 3 == 0, "basis": HOSTILE,
        "is_extrapolated": n % 5 == 4, "doubt": HOSTILE, "source": HOSTILE,
    }  # fmt: skip


def capping_events(rank, n):
    start = 1_768_204_823_250_000_000 + n * 4_000_000_000
    reasons = ("power cap", "power brake", "power cap and power brake", "not told")
    return {
        "entity": f"{HOSTILE}{rank}", "start_ns": start, "end_ns": start + 10**9 * (1 + n % 3),
        "duration_s": 1.0 + n % 3, "uncertain_s": 0.25, "evidence": HOSTILE,
        "reason": reasons[n % 4], "reading_count": 1 + n, "limit_w": 500.0,
        "clock_mhz": 1_605.0 if n % 2 else None, "uncapped_clock_mhz": 1_830.0,
    }  # fmt: skip


def capping_cost(_, n):
    return {
        "attempt": n + 1, "capped_step_count": 9 + n, "uncapped_step_count": 30,
        "left_out_step_count": 1, "capped_median_s": 0.3, "uncapped_median_s": 0.25,
        "cost_s": 1.0 + n, "low_cost_s": 0.5 + n if n % 3 else None,
        "high_cost_s": 1.5 + n if n % 3 else None, "local_cost_s": 0.9, "cost_ratio": 0.1,
        "doubt": HOSTILE if n % 2 else "",
    }  # fmt: skip


def capping_blame(_, n):
    return {
        "entity": f"{HOSTILE}{n}", "event_count": 1, "capped_step_count": 50 + n,
        "blamed_step_count": n % 50, "blamed_share": 0.5, "blamed_s": 1.0,
        "clock_loss_ratio": 0.1, "doubt": HOSTILE if n % 2 else "",
    }  # fmt: skip


def power_management(rank, n):
    demand = 1_000.0 + n % 13
    return {
        "time_ns": n // 4 * 10**9, "entity": f"{HOSTILE}{rank}", "is_load": rank % 4 > 0,
        "job": f"{HOSTILE}{rank % 3}" if rank % 4 else None,
        "demand_w": demand, "limit_w": 900.0 if rank % 4 == 0 else None, "granted_w": 900.0,
        "loss_w": 9.0, "floor_w": 800.0, "is_capped": True, "is_below_floor": rank % 8 == 7,
        "slowdown_share": 0.1, "trip_ratio": 0.5 + rank % 2, "doubt": HOSTILE if n % 2 else "",
    }  # fmt: skip


def demand_response(rank, n):
    return {
        "policy": ("cost", "priority", HOSTILE)[rank % 3], "entity": HOSTILE,
        "shed_share": n % 100 / 100, "level_w": 1e5, "duration_min": 15.0, "reduced_w": 1e4,
        "lost_step_count": None if n % 2 else 3.0, "lost_gpu_h": 1.0 + n, "saved_j": 9e6,
        "catch_up_j": 9.5e6 if n % 2 else 2e6, "capped_count": 8, "below_floor_count": n % 3,
        "is_reached": n % 3 == 0, "doubt": HOSTILE if n % 2 else "",
    }  # fmt: skip
