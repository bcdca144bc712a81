"""Example rows of the tables of energy and power, for the laws that every figure obeys."""

from tests.plot.conftest import HOSTILE

_SECOND = 10**9
_LEVELS = ("msb", "rack", HOSTILE)


def energy(_, n):
    return {
        "entity": f"{HOSTILE}{n}", "method": "trapezoid", "start_ns": 0, "end_ns": 60 * _SECOND,
        "energy_j": 3.6e6 + n, "mean_w": 6e4, "covered_share": 1.0 if n % 3 else 0.5,
        "unknown_s": 1.0, "reading_count": 9,
    }  # fmt: skip


def power_totals(_, n):
    return {
        "time_ns": 2 * _SECOND * n, "power_w": None if n % 50 == 49 else 4e5 + 1e4 * (n % 9),
        "entity_count": 64, "expected_count": 64, "covered_share": 1.0,
    }  # fmt: skip


def power_residual(rank, n):
    return {
        "time_ns": _SECOND * n, "entity": f"{HOSTILE}{rank}", "metered_w": 1e3, "parts_w": 900.0,
        "residual_w": None if n % 7 == 6 else 100.0 * (n % 4 - 1), "residual_ratio": 0.1,
        "is_negative": n % 4 == 0 and n % 7 < 6, "covered_share": 1.0,
    }  # fmt: skip


def power_hierarchy(rank, n):
    return {
        "entity": f"{HOSTILE}{n}", "level": _LEVELS[rank % 3], "child_count": 3, "limit_w": 1e6,
        "peak_w": 5e5 + n, "peak_limit_ratio": 0.5, "nameplates_limit_ratio": 1.3,
        "headroom_w": 5e5 - n, "usable_headroom_w": None if n % 5 == 4 else 3e5,
        "stranded_w": None if n % 5 == 4 else 2e5 - n, "covered_share": 0.9,
    }  # fmt: skip


def pue(_, n):
    return {
        "start_ns": 3_600 * _SECOND * n, "end_ns": 3_600 * _SECOND * (n + 1), "facility_j": 1.2e9,
        "it_j": 1e9, "pue_ratio": None if n % 9 == 8 else 1.1 + n % 5 / 20,
        "covered_share": 1.0 if n % 3 else 0.7,
    }  # fmt: skip
