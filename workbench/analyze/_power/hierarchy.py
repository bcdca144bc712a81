"""How near power comes to its limits along the delivery tree, and which headroom is of use."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.power_signal import Numbers
from workbench.analyze._power.feeds import Feeds, feeds, places_in
from workbench.analyze._power.grid import by_entity
from workbench.analyze._power.headroom import usable_headroom
from workbench.errors import WorkbenchError
from workbench.tables import POWER_HIERARCHY, POWER_TREE


def power_hierarchy(tree: pd.DataFrame, topology: pd.DataFrame) -> pd.DataFrame:
    """Compare measured power with limits and nameplates, for everything in the delivery tree.

    Peaks of many things seldom coincide, so a feed needs less than the sum of their peaks
    (diversity), and far less than that of their nameplates. And headroom is of use only where
    every limit above and below allows it; the rest is stranded.

    Parameters
    ----------
    tree
        Table :data:`workbench.tables.POWER_TREE` of :func:`workbench.analyze.power_tree`.
    topology
        Table :data:`workbench.tables.POWER_TOPOLOGY`, the same.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_HIERARCHY`, one row per thing of the topology.
        What the meters or the topology do not say is missing.

    Raises
    ------
    TableError
        If an input is not its table.
    WorkbenchError
        If the tree and the topology do not hold the same things.

    Notes
    -----
    Diversity is ``sum of the children's peaks / peak of their sum``, over the cells in which
    all children that have any value have one; so it is 1 or more. Headroom is
    ``H = max(limit - peak, 0)``. Usable is the largest constant power that could be added at
    leaves below v with no limit exceeded by what is there at its peak:
    ``usable(v) = min(down(v), H of all above v)``, where ``down(leaf) = H`` and
    ``down(v) = min(H(v), sum of down(children))``. What has no limit in the topology is taken
    as unlimited. Stranded is ``H - usable``. Where a limit is known and a peak is not, both
    are told only if they are the same whatever the peak.

    References
    ----------
    Wu et al., Dynamo: Facebook's Data Center-Wide Power Management System, ISCA 2016.

    Examples
    --------
    >>> import pandas as pd
    >>> from workbench import analyze
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9] * 2, "entity": list("aabb"), "power_w": [300.0, 300, 50, 50]}
    ... ).astype({"entity": "category"})
    >>> topology = pd.DataFrame({"entity": ["rack", "a", "b"], "parent": [None, "rack", "rack"]})
    >>> topology = topology.assign(level="x", nameplate_w=400.0, limit_w=[800.0, 400, 100])
    >>> tree = analyze.power_tree(analyze.power_grid(readings, period_s=1), topology)
    >>> columns = ["headroom_w", "usable_headroom_w", "stranded_w"]
    >>> power_hierarchy(tree, topology)[columns].values.tolist()
    [[450.0, 150.0, 300.0], [100.0, 100.0, 0.0], [50.0, 50.0, 0.0]]
    """
    POWER_TREE.check(tree)
    fed = feeds(topology)
    times, power = by_entity(tree)
    names = pd.Index(tree["entity"].to_numpy()[:: len(times)])
    if len(places_in(fed, names, "the tree")) != len(fed.names) or list(names) != list(fed.names):
        msg = "the tree is of another topology; make it with analyze.power_tree and this one"
        raise WorkbenchError(msg)
    rated = {name: _floats(topology[name]) for name in ("nameplate_w", "limit_w")}
    is_metered = tree["is_metered"].to_numpy()[:: len(times)]
    table = topology[["entity", "parent", "level"]].assign(is_metered=is_metered, **rated)
    table = table.assign(**_own(power), **_children(fed, power))
    with np.errstate(divide="ignore", invalid="ignore"):
        table = table.assign(**_ratios(table, fed))
    table = table.assign(
        **_headroom(table, fed),
        covered_share=_covered(tree, power, is_metered),
    )
    return POWER_HIERARCHY.check(POWER_HIERARCHY.cast(table.reset_index(drop=True)))


def _floats(column: pd.Series) -> Numbers:
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _own(power: Numbers) -> dict[str, Numbers]:
    """Give mean, 99th percentile and peak of every row that has any value."""
    found = np.full((3, len(power)), np.nan)
    for row, values in enumerate(power):
        known = values[~np.isnan(values)]
        if len(known):
            found[:, row] = known.mean(), np.percentile(known, 99), known.max()
    # The mean of equal numbers may miss them by its rounding.
    found[0] = np.minimum(found[0], found[2])
    return {"mean_w": found[0], "p99_w": found[1], "peak_w": found[2]}


def _children(fed: Feeds, power: Numbers) -> dict[str, Numbers]:
    """Compare the peaks of the children of each thing with the peak of their sum."""
    size = len(power)
    found = {name: np.zeros(size) for name in ("child_count", "known_count", "common_share")}
    found |= {name: np.full(size, np.nan) for name in ("peaks_w", "diversity_ratio")}
    has_value = np.asarray((~np.isnan(power)).any(axis=1))
    for at, children in enumerate(fed.children()):
        known = [child for child in children if has_value[child]]
        found["child_count"][at], found["known_count"][at] = len(children), len(known)
        values = power[np.array(known, dtype=np.int64)]
        common = np.asarray((~np.isnan(values)).all(axis=0))
        if not known or not common.any():
            continue
        together = values[:, common]
        peak = together.sum(axis=0).max()
        found["common_share"][at] = common.mean()
        found["peaks_w"][at] = together.max(axis=1).sum()
        if peak > 0:
            found["diversity_ratio"][at] = max(found["peaks_w"][at] / peak, 1.0)
    return found


def _ratios(table: pd.DataFrame, fed: Feeds) -> dict[str, Numbers]:
    """Divide by limits, nameplates and peaks; what would be divided by 0 is missing."""
    peak, limit, nameplate = (
        table[name].where(table[name] > 0).to_numpy()
        for name in ("peak_w", "limit_w", "nameplate_w")
    )
    return {
        "coincidence_share": 1 / table["diversity_ratio"].to_numpy(),
        "load_factor_share": table["mean_w"].to_numpy() / peak,
        "peak_nameplate_ratio": table["peak_w"].to_numpy() / nameplate,
        "peak_limit_ratio": table["peak_w"].to_numpy() / limit,
        "p99_limit_ratio": table["p99_w"].to_numpy() / limit,
        "nameplates_limit_ratio": _nameplates(table["nameplate_w"].to_numpy(), fed) / limit,
        "p99s_limit_ratio": _sums(table["p99_w"].to_numpy(), fed) / limit,
    }


def _sums(values: Numbers, fed: Feeds) -> Numbers:
    """Sum over the children of each thing; missing if one is missing or there is none."""
    return np.array([values[each].sum() if each else np.nan for each in fed.children()])


def _nameplates(nameplate: Numbers, fed: Feeds) -> Numbers:
    """Sum the nameplates below each thing; a child without one stands for its own children."""
    below = np.full(len(nameplate), np.nan)
    children = fed.children()
    for at in range(len(nameplate) - 1, -1, -1):
        if children[at]:
            own = nameplate[children[at]]
            below[at] = np.where(np.isnan(own), below[children[at]], own).sum()
    return below


def _headroom(table: pd.DataFrame, fed: Feeds) -> dict[str, Numbers]:
    """Give signed headroom, what of it can be used, and what is stranded."""
    headroom = (table["limit_w"] - table["peak_w"]).to_numpy()
    usable = usable_headroom(headroom, has_limit=table["limit_w"].notna().to_numpy(), fed=fed)
    own = np.maximum(headroom, 0)
    return {
        "headroom_w": headroom,
        "usable_headroom_w": usable,
        "stranded_w": np.maximum(own - usable, 0),
    }


def _covered(tree: pd.DataFrame, power: Numbers, is_metered: np.ndarray) -> Numbers:
    """Give the share of time and parts that the power of each thing stands for."""
    _, parts = by_entity(tree, "covered_share")
    known = ~np.isnan(power)
    return np.asarray(np.where(is_metered[:, None], known, parts * known).mean(axis=1))
