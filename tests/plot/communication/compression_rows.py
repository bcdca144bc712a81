"""Rows for the figures of a compressed exchange, hostile names included."""

from tests.plot.conftest import HOSTILE


def compression(rank, n):
    return {
        "setting": f"{HOSTILE}{rank}", "destination_count": 1 + n, "stage": "zstd",
        "table": f"{HOSTILE}{n % 5}", "bound": 0.02, "row_count": 8, "distinct_count": 4,
        "raw_bytes": 1_024, "sent_bytes": 100.0 + n, "ratio": 1_024 / (100 + n),
    }  # fmt: skip


def compression_speedup(rank, n):
    return {
        "communication_share": 0.6, "ratio": 2.0 + rank, "link_gb_per_s": 0.1 + n,
        "compress_gb_per_s": 1.0 + n % 3, "decompress_gb_per_s": 3.0, "effective_ratio": 1.5,
        "speedup_ratio": 2 / (1 + n), "break_even_gb_per_s": 0.5, "is_faster": n == 0,
    }  # fmt: skip
