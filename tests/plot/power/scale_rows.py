"""A row of each table that the figures about power of whole fleets draw."""

from tests.plot.conftest import HOSTILE

# Pictures of whole numbers, of two bytes each, may hold more points than lines.
PICTURES = {"power_heatmap": 700_000}


def power_heatmap(rank, n):
    return {
        "time_ns": n // 8, "entity": f"{HOSTILE}{rank}", "mean_w": 300 + n % 400, "max_w": 800,
        "covered_share": 0.5,
    }  # fmt: skip
