"""Rows of the tables of fault injection, for the laws that every figure obeys."""

from tests.plot.conftest import HOSTILE

RULES = {
    "average": HOSTILE, "nan_policy": HOSTILE, "criterion": HOSTILE, "fault_model": HOSTILE,
}  # fmt: skip
AT_LEVEL = RULES | {"confidence_level": 0.95}


def pvf(rank, n):
    share = (1 + n % 90) / 100 if n % 5 else (None if n % 2 else 0.0)
    return AT_LEVEL | {
        "group": f"{HOSTILE}{n}", "pvf": share, "low": 0.5 * share if share else None,
        "high": 0.02 + share if share is not None else None, "independent_low": share,
        "independent_high": share, "interval": ("exact", HOSTILE)[n % 3 > 0], "doubt": HOSTILE,
        "site_count": n, "trial_count": 1_000 * n, "is_sure": rank % 2 == 0,
        "due_count": n % 7 if n % 3 else None,
    }  # fmt: skip


def pvf_by_bit(rank, n):
    # A part per rank and a bit per row, as those who group by both have them.
    return {"bit": n % 32, "component": f"{HOSTILE}{rank}", "dtype": "fp32"} | pvf(rank, n)


def outcome_shares(rank, n):
    outcomes = ("masked", "benign", "sdc", "beneficial", "due", "masked or benign", HOSTILE)
    return {
        "group": f"{HOSTILE}{rank}", "outcome": outcomes[n % 7], "trial_count": 5.0,
        "outcome_share": 0.1,
    }  # fmt: skip


def pvf_protection(rank, n):
    return {
        "group": f"{HOSTILE}{rank}", "unit": HOSTILE, "ranked_by": HOSTILE, "last": HOSTILE,
        "protected_count": 1 + n, "protected_share": (1 + n) / 10_000, "removed_share": n / 10_000,
    }  # fmt: skip


def pvf_exposure(_, n):
    return {
        "group": f"{HOSTILE}{n}", "bit_count": 10.0 + n, "bit_share": 0.1, "pvf": 0.01,
        "wrong_share": 1 / (n + 1), "wrong_per_upset": 1e-5,
        "wrong_per_million_hours": 3.0 if n % 2 else None,
    }  # fmt: skip


def pvf_mitigation(rank, n):
    return {
        "group": f"{HOSTILE}{rank}", "mitigation": ("none", "clip", HOSTILE)[n % 3],
        "site_count": 500, "pvf": 0.01 * (n % 5), "low": 0.0, "high": 0.09,
        "removed_ratio": 0.9 - n % 3 if n % 3 else None, "removed_low": None,
    }  # fmt: skip


def pvf_running(_, n):
    return RULES | {
        "site_count": 500 * (n + 1), "pvf": 0.01, "low": 0.005 if n else None, "high": 0.02,
        "independent_low": 0.009, "independent_high": 0.011, "event_site_count": 30 * n,
        "is_enough": n > 4,
    }  # fmt: skip


def injection_sample_sizes(rank, n):
    return {
        "group": f"{HOSTILE}{rank}", "design": f"{HOSTILE}{n % 3}", "inputs": ("one", "all")[n % 2],
        "pvf": 0.01, "error": 0.1, "error_kind": "relative", "confidence_level": 0.95,
        "site_count": 10.0 ** (n % 6) if n % 4 != 3 else None, "expected_event_count": 5.0,
    }  # fmt: skip
