"""Rows of the tables about power and work, for the laws that every figure obeys."""

from tests.plot.conftest import HOSTILE

_START = 1_740_327_858_000_000_000
_SECOND = 1_000_000_000


def step_energy(rank, n):
    at = _START + 11 * n * _SECOND
    return {
        "step": n, "attempt": 1 + rank, "start_ns": at, "end_ns": at + 10 * _SECOND,
        "energy_j": None if n % 90 == 5 else 4.7e6 + 1e3 * (n % 70), "mean_w": 4.4e5,
        "energy_per_token_j": 1.12, "covered_share": 0.99, "entity_count": 64,
        "reading_count": 320, "token_count": 4_194_304,
    }  # fmt: skip


def phase_power(_, n):
    inside = n % 60 != 59
    return {
        "place": "in steps" if inside else HOSTILE, "first_share": n / 6_001 if inside else None,
        "last_share": (n + 1) / 6_001 if inside else None, "power_w": 4e5 + 1e3 * (n % 50),
        "low_w": 3.9e5, "high_w": 4.6e5, "sample_count": 60, "missing_count": n % 2,
    }  # fmt: skip


def kernel_energy(_, n):
    return {
        "kind": f"{HOSTILE}{n}", "busy_s": 1.0 + n, "power_w": 100.0, "low_w": 90.0,
        "high_w": 120.0, "energy_j": 100.0 * (1 + n), "low_j": 90.0 * (1 + n),
        "high_j": 120.0 * (1 + n), "reading_count": n, "is_sure": n % 2 > 0,
    }  # fmt: skip


def energy_waste(_, n):
    known = ("useful steps", "lost steps", "restart", "checkpoint", "not told")
    return {
        "state": known[n] if n < len(known) else f"{HOSTILE}{n}", "time_s": 60.0 + n,
        "energy_j": 1e6 * (1 + n % 9), "covered_share": 0.9, "mean_w": 4e5,
    }  # fmt: skip


def incident_energy(rank, n):
    missing = n % 7 == 6
    return {
        "start_ns": _START + n * 3_600 * _SECOND, "end_ns": _START + (n * 3_600 + 60) * _SECOND,
        "attempt": 1 + n, "node": f"{HOSTILE}{rank}", "cause": f"{HOSTILE}{n}", "also": HOSTILE,
        "lost_step_count": n % 90, "lost_work_s": 30.0, "restart_s": 60.0, "lost_work_j": 1e6,
        "restart_j": 2e6 + n, "energy_j": None if missing else 3e6 + n, "energy_share": 1e-4,
        "covered_share": 0.99,
    }  # fmt: skip


def power_dips(_, n):
    return {
        "start_ns": _START + n * 60 * _SECOND, "end_ns": _START + (n * 60 + 9) * _SECOND,
        "dur_s": 9.0, "usual_w": 4.4e5, "mean_w": 2e5 + n, "lowest_w": 1e5, "depth_share": 0.5,
        "shortfall_j": 2e6 - n, "covered_share": 1.0,
    }  # fmt: skip


def fleet_timeline(rank, n):
    panel = ("power", "step time", "job", "failures", "traces")[n % 5]
    at = _START + n * _SECOND
    return {
        "panel": panel, "lane": "all entities" if n % 20 == 0 else f"{HOSTILE}{rank}",
        "start_ns": at, "end_ns": at + (n % 9) * _SECOND, "power_w": 1e3 + n, "dur_s": 10.0 + n % 3,
        "node": f"{HOSTILE}{rank}", "text": f"{HOSTILE} ({'fatal' if n % 2 else 'info'})",
    }  # fmt: skip
