"""Small delivery trees with loads, and the exact least cost of keeping their limits."""

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from tests.analyze.power.power_rows import topology
from workbench.tables import POWER_LOADS

SECOND = 10**9


def loads(*rows, period_s=60):
    """Give loads from ``(entity, demand_w or a list of them, further columns by name)``."""
    made = []
    for entity, demand, columns in rows:
        for at, watts in enumerate(np.atleast_1d(np.asarray(demand, dtype=float))):
            row = {"time_ns": at * period_s * SECOND, "entity": entity, "demand_w": watts}
            made.append(row | columns)
    table = pd.DataFrame(made)
    defaults = {"floor_w": 0.0, "job": "job", "priority": 0, "gpu_count": 1}
    defaults |= {"slowdown_per_w": 0.001, "step_s": 1.0, "doubt": ""}
    for name, value in defaults.items():
        table[name] = table[name].fillna(value) if name in table else value
    names = list(dict.fromkeys(table["entity"]))
    table["entity"] = pd.Categorical(table["entity"], categories=names)
    return POWER_LOADS.of(table)


def random_case(rng, *, nested):
    """Draw a tree of one feed, or of three levels, whose limits cut into slack, not into floors."""
    count = int(rng.integers(2, 9))
    middle = int(rng.integers(2, 5)) if nested else 0
    own = [f"m{int(rng.integers(middle))}" if nested else "root" for _ in range(count)]
    demand = rng.uniform(100, 1_000, count)
    floor = demand * rng.uniform(0.2, 0.9, count)
    job_count = int(rng.integers(1, 5))
    rows = [
        (f"l{at}", demand[at], {
            "floor_w": floor[at], "job": f"j{rng.integers(job_count)}",
            "gpu_count": int(rng.integers(1, 9)), "slowdown_per_w": rng.uniform(1e-5, 1e-3),
        })
        for at in range(count)
    ]  # fmt: skip
    feeds = [("root", None)] + [(name, "root") for name in sorted(set(own)) if nested]
    limit = {}
    for name, _ in feeds:
        below = [at for at in range(count) if name in ("root", own[at])]
        short = rng.uniform(0, 1) * (demand[below] - floor[below]).sum()
        limit[name] = demand[below].sum() - short
    tree = [(name, parent, "feed", None, limit[name]) for name, parent in feeds]
    tree += [(f"l{at}", own[at], "gpu", None, None) for at in range(count)]
    return loads(*rows), topology(*tree)


def chains(tree):
    """Give, of every entity, itself and all above it."""
    above = dict(zip(tree["entity"], tree["parent"], strict=True))
    result = {}
    for name in above:
        result[name], at = [], name
        while isinstance(at, str):
            result[name].append(at)
            at = above[at]
    return result


def least_lost_gpus(table, tree):
    """Give the least GPUs x slowdown that keeps all limits, by a linear program; one instant."""
    jobs = sorted(table["job"].unique())
    chain, count = chains(tree), len(table)
    gpus = table.groupby("job")["gpu_count"].sum()[jobs]
    rows, bounds = [], []
    for at, load in enumerate(table.itertuples()):  # what is cut is paid for by its job
        row = np.zeros(len(jobs) + count)
        row[jobs.index(load.job)], row[len(jobs) + at] = -1, load.slowdown_per_w
        rows.append(row)
        bounds.append(0.0)
    for feed in tree[tree["limit_w"].notna()].itertuples():
        below = np.array([feed.entity in chain[name] for name in table["entity"]])
        rows.append(np.r_[np.zeros(len(jobs)), -1.0 * below])
        bounds.append(feed.limit_w - table["demand_w"].to_numpy()[below].sum())
    slack = (table["demand_w"] - table["floor_w"]).to_numpy()
    best = linprog(
        np.r_[gpus.to_numpy(dtype=float), np.zeros(count)], A_ub=np.array(rows), b_ub=bounds,
        bounds=[(0, None)] * len(jobs) + [(0, watts) for watts in slack],
    )  # fmt: skip
    assert best.status == 0, best.message
    return best.fun


def lost_gpus(table, managed):
    """Give the GPUs x slowdown that a result has, from what every load is granted; one instant."""
    granted = managed[managed["is_load"]].set_index("entity")["granted_w"]
    cut = table["demand_w"] - table["entity"].astype(str).map(granted.rename(index=str))
    slowed = (cut * table["slowdown_per_w"]).groupby(table["job"]).max()
    return float((slowed * table.groupby("job")["gpu_count"].sum()).sum())
