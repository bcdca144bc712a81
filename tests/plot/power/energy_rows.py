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
