"""Rows of the tables of swings, spectra and smoothing, for the laws that every figure obeys."""

from tests.plot.conftest import HOSTILE


def power_spectrum(_, n):
    return {
        "frequency_hz": (n + 1) / 20_000, "density_w2_per_hz": 1e9 + n % 97 * 1e8,
        "variance_share": 0.001, "sensor_ratio": 1 / (1 + n / 5_000), "nyquist_hz": 0.25,
        "half_power_hz": 0.22, "segment_count": 12, "covered_share": 0.9, "filled_count": n % 3,
    }  # fmt: skip


def grid_check(_, n):
    is_seen = n % 3 < 2
    return {
        "spec": HOSTILE, "requirement": f"{HOSTILE}{n}", "limit": 500.0 + n,
        "measured": 900.0 if is_seen else None, "margin": -400.0 if is_seen else None,
        "unit": ("W/s", "share", HOSTILE)[n % 3], "verdict": ("fail", "pass", "unknown")[n % 3],
        "why": HOSTILE, "visible_share": (1, 1, 0.1)[n % 3], "covered_share": 1.0,
    }  # fmt: skip


def power_smoothing(_, n):
    power = 4e5 + 3e4 * (n % 5)
    return {
        "time_ns": n * 2 * 10**9, "power_w": power, "load_w": power + 1e3, "smoothed_w": 4.6e5,
        "ballast_w": 1e3, "unmet_w": 0.0, "storage_w": 4.6e5 - power - 1e3,
        "stored_j": 1e6 + 2e4 * (n % 5), "stored_share": None, "lost_w": 5.0, "is_filled": n == 3,
    }  # fmt: skip


def smoothing_summary(_, n):
    return {
        "version": ("before", "after")[n % 2], "mean_w": 4e5, "peak_w": 4.5e5,
        "swing_w": 6e4 / (n + 1), "deviation_w": 2e4, "ramp_w_per_s": 4e4, "energy_j": 1e9,
        "energy_ratio": 1.0 + n / 10, "ballast_j": 1e6, "unmet_j": 2e6, "lost_j": 3e6,
        "storage_w": 9e4, "storage_j": 4e5, "verdict": HOSTILE, "why": HOSTILE,
        "covered_share": 0.99,
    }  # fmt: skip
