"""Claims about power shared out along the delivery tree: laws, exact costs, published points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from workbench import analyze, simulate
from workbench.fidelity.registry import Reading, beside, claim, published
from workbench.tables import POWER_LOADS, POWER_TOPOLOGY

_LAW = "law of the model"
_EXACT = "linear program (HiGHS) of the same loads and limits"
_CASES = 150
_NESTED_REACHED = 1.1, 1.25  # 99th percentile and worst, greedy over exact
_WATT = 1e-6


@claim(noun="power_management", name="conservation and limits at every instant", source=_LAW)
def conservation() -> Iterator[Reading]:
    """Add up children and losses of every feed anew, under each policy, with made loads."""
    loads, topology = simulate.power_loads()
    parents = topology.set_index("entity")["parent"]
    for policy in ("cost", "priority", "slack"):
        table = analyze.power_management(loads, topology, policy=policy)
        table = table.assign(entity=table["entity"].astype(str))
        children = table.assign(entity=table["entity"].map(parents))
        below = children.groupby(["entity", "time_ns"])["granted_w"].sum()
        feeds = table[~table["is_load"]].set_index(["entity", "time_ns"])
        apart = feeds["granted_w"] - feeds["loss_w"] - below.reindex(feeds.index)
        error = float(apart.abs().max())
        yield Reading(f"{policy}: granted - losses - children, most", 0, error, "W", _WATT)
        over = float((feeds["granted_w"] / feeds["limit_w"]).max())
        name = f"{policy}: granted over limit, most"
        yield Reading(name, 1, over, "1", 1e-9, bound="at most")
        # The shortage that was made, and nobody else's.
        short = feeds[feeds["demand_w"] > feeds["limit_w"]].reset_index()["entity"].unique()
        yield Reading(f"{policy}: feeds that are short", 1, len(short), "1")


@claim(
    noun="power_management",
    name="a breaker trips when the published point says",
    source="Facebook Dynamo, ISCA 2016",
)
def breaker() -> Iterator[Reading]:
    """Hold a feed at the published overload without any cap, then with caps after 9 s.

    The curve goes through this point, so the time only checks the sum; that late caps stay below
    it is a result.
    """
    (row,) = published("power_breakers")
    ratio, seconds = float(row["overload_ratio"]), float(row["carried_s"])
    count = int(seconds) + 60
    loads = _loads([[100.0 * ratio] * count])
    tree = _tree([("root", None, 100.0), ("l0", "root", None)])
    for delay_s in (count, 9):
        table = analyze.power_management(loads, tree, delay_s=delay_s)
        heat = table.loc[table["entity"] == "root", "trip_ratio"].to_numpy()
        if delay_s == 9:
            yield Reading("share of it used if caps follow after 9 s", 1, heat.max(), "1",
                          bound="at most")  # fmt: skip
        else:
            trips_s = float(np.argmax(heat >= 1 - _WATT) + 1)
            yield Reading(f"{ratio:g} of the limit, time until it trips", seconds, trips_s, "s", 1)


@claim(noun="power_management", name="least cost beside the exact least cost", source=_EXACT)
def exact() -> Iterator[Reading]:
    """Compare GPUs x slowdown on random small trees, with one short feed and with nested ones.

    One feed after the other is exact for one. Where feeds hold each other it is not, and is
    reported short.
    """
    for is_nested, name in ((False, "one short feed"), (True, "nested feeds")):
        ratios = np.array([_over_exact(seed, is_nested=is_nested) for seed in range(_CASES)])
        for at, (words, value) in enumerate(
            (("99th percentile", np.quantile(ratios, 0.99)), ("worst", ratios.max()))
        ):
            reached = _NESTED_REACHED[at] if is_nested else None
            yield Reading(
                f"{name}: over the least, {words} of {_CASES}", 1, float(value), "1", _WATT,
                bound="at most", reached=reached,
            )  # fmt: skip


@claim(
    noun="power_management",
    name="the published site as a delivery tree",
    source="arXiv:2605.24461 as reported by supercomputing.news, 30 May 2026",
)
def site() -> Iterator[Reading]:
    """Let 83,000 GPUs of 1,200 W ask for more than 150 MW, and read what each is granted.

    PUE is the loss of the feed; network and overhead per GPU are as in the provisioning of the
    same site. The PUE was derived from that, so this checks one model by another.
    """
    facts = {row["quantity"]: row for row in published("power_provisioning")}
    fact = {name: float(row["value"]) for name, row in facts.items()}
    count, overhead = fact["GPUs of the site"], fact["non-GPU power per GPU that +9 % implies"]
    rated = fact["rated limit"]
    fixed = fact["network share of the site"] * fact["site budget"]
    slow = analyze.published_curve("gb200-meta").set_index("limit_w")["speed_ratio"][1_000.0]
    loads = _loads([[count * (rated + overhead)], [fixed]]).assign(
        gpu_count=int(count), floor_w=[count * overhead, fixed],
        slowdown_per_w=[(1 - slow) / (count * (rated - 1_000)), 0.0],
    )  # fmt: skip
    limits = [("site", None, fact["site budget"]), ("l0", "site", None), ("l1", "site", None)]
    tree = _tree(limits).assign(loss_share=[1 - 1 / fact["PUE assumed"], 0, 0])
    table = analyze.power_management(loads, tree).set_index("entity")
    here = float(table["granted_w"]["l0"]) / count - overhead
    near = 0.002 * fact["limit chosen"]
    yield beside(facts["limit chosen"], here, "power granted to each GPU", near=near)
    at_1000 = count * (1_000 + overhead)
    level = (at_1000 + fixed) * fact["PUE assumed"]
    tree = tree.assign(limit_w=[level, np.nan, np.nan])
    table = analyze.power_management(loads, tree).set_index("entity")
    lost = float(table["slowdown_share"]["l0"])
    yield Reading("speed lost at 1,000 W", 1 - float(slow), lost, "1", 1e-6)


def _loads(demand: list[list[float]], **columns: Any) -> pd.DataFrame:
    """Make loads l0, l1, ... of demands second by second."""
    count = len(demand[0])
    names = np.repeat([f"l{at}" for at in range(len(demand))], count)
    table = pd.DataFrame({"time_ns": np.tile(np.arange(count) * 10**9, len(demand))}).assign(
        entity=pd.Categorical(names),
        demand_w=np.ravel(demand), floor_w=0.0, job="job", priority=0, gpu_count=1,
        slowdown_per_w=1e-3, step_s=np.nan, doubt="",
    )  # fmt: skip
    return POWER_LOADS.of(table.assign(**columns))


def _tree(rows: list[tuple[str, str | None, float | None]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["entity", "parent", "limit_w"])
    return POWER_TOPOLOGY.of(table.assign(level="feed", nameplate_w=np.nan))


def _over_exact(seed: int, *, is_nested: bool) -> float:
    """Draw loads of a few jobs below one or several feeds; give greedy over exact cost."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    count, feeds = int(rng.integers(2, 9)), int(rng.integers(2, 5)) if is_nested else 1
    demand, feed = rng.uniform(100, 1_000, count), rng.integers(feeds, size=count)
    slack = demand * rng.uniform(0.1, 0.8, count)
    job = rng.integers(int(rng.integers(1, 5)), size=count)
    gpus, per_w = rng.integers(1, 9, count), rng.uniform(1e-5, 1e-3, count)
    below = np.array([feed == at for at in range(feeds)] + [feed >= 0] * is_nested)
    below = below[below.any(axis=1)]
    missing = rng.uniform(0, 1, len(below)) * (below @ slack)
    names = [f"f{at}" for at in range(len(below))]
    own = [names[int(np.argmax(below[:, at]))] for at in range(count)]
    tree = [(name, names[-1] if name != names[-1] else None, below[at] @ demand - missing[at])
            for at, name in enumerate(names)][::-1]  # fmt: skip
    tree += [(f"l{at}", name, None) for at, name in enumerate(own)]
    loads = _loads([[watts] for watts in demand]).assign(
        floor_w=demand - slack, job=[f"j{at}" for at in job], gpu_count=gpus, slowdown_per_w=per_w
    )
    table = analyze.power_management(loads, _tree(tree)).set_index("entity")
    cut = demand - table["granted_w"].reindex([f"l{at}" for at in range(count)]).to_numpy()
    weight = np.bincount(job, weights=gpus)
    slowed = np.array([(cut * per_w)[job == at].max(initial=0) for at in range(len(weight))])
    # Variables: slowdown of every job, then watts cut of every load.
    pays = np.c_[-np.eye(len(weight))[job], np.diag(per_w)]
    relieves = np.c_[np.zeros((len(below), len(weight))), -1.0 * below]
    best = linprog(
        np.r_[weight, np.zeros(count)], A_ub=np.r_[pays, relieves],
        b_ub=np.r_[np.zeros(count), -missing],
        bounds=[(0, None)] * len(weight) + [(0, watts) for watts in slack],
    )  # fmt: skip
    least = float(best.fun)
    return float(weight @ slowed) / least if least > 0 else 1.0
