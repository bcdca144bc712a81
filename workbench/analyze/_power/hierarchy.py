"""How near power comes to its limits along the delivery tree, and which headroom is of use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.energy_curves import Numbers
from workbench.analyze._power.grid import by_entity, check_share
from workbench.errors import WorkbenchError
from workbench.tables import POWER_GRID, POWER_HIERARCHY, POWER_RESIDUAL, POWER_TOPOLOGY, POWER_TREE


def power_hierarchy(tree: pd.DataFrame, topology: pd.DataFrame) -> pd.DataFrame:
    """Compare measured power with limits and nameplates, for everything in the delivery tree.

    Peaks seldom coincide, so a feed needs less than their sum (diversity). Headroom is of use only
    where every limit above and below allows it; the rest is stranded.

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
    rated = {name: topology[name].astype("float64") for name in ("nameplate_w", "limit_w")}
    is_metered = tree["is_metered"].to_numpy()[:: len(times)]
    table = topology[["entity", "parent", "level"]].assign(is_metered=is_metered, **rated)
    table = table.assign(**_own(power), **_children(fed, power))
    with np.errstate(divide="ignore", invalid="ignore"):
        table = table.assign(**_ratios(table, fed))
    _, pieces = by_entity(tree, "covered_share")
    is_known = ~np.isnan(power)
    covered = np.where(is_metered[:, None], is_known, pieces * is_known).mean(axis=1)
    table = table.assign(**_headroom(table, fed), covered_share=covered)
    return POWER_HIERARCHY.of(table.reset_index(drop=True))


def _own(power: Numbers) -> dict[str, Numbers]:
    result = np.full((3, len(power)), np.nan)
    for row, values in enumerate(power):
        valid = values[~np.isnan(values)]
        if len(valid):
            result[:, row] = valid.mean(), np.percentile(valid, 99), valid.max()
    # The mean of equal numbers may miss them by its rounding.
    result[0] = np.minimum(result[0], result[2])
    return {"mean_w": result[0], "p99_w": result[1], "peak_w": result[2]}


def _children(fed: Feeds, power: Numbers) -> dict[str, Numbers]:
    size = len(power)
    result = {name: np.zeros(size) for name in ("child_count", "known_count", "common_share")}
    result |= {name: np.full(size, np.nan) for name in ("peaks_w", "diversity_ratio")}
    has_value = np.asarray((~np.isnan(power)).any(axis=1))
    for at, children in enumerate(fed.children()):
        known_children = [child for child in children if has_value[child]]
        result["child_count"][at], result["known_count"][at] = len(children), len(known_children)
        values = power[np.array(known_children, dtype=np.int64)]
        common = np.asarray((~np.isnan(values)).all(axis=0))
        if not known_children or not common.any():
            continue
        together = values[:, common]
        peak = together.sum(axis=0).max()
        result["common_share"][at] = common.mean()
        result["peaks_w"][at] = together.max(axis=1).sum()
        if peak > 0:
            # Rounding could show less than 1, which cannot be.
            result["diversity_ratio"][at] = max(result["peaks_w"][at] / peak, 1.0)
    return result


def _ratios(table: pd.DataFrame, fed: Feeds) -> dict[str, Numbers]:
    # A quotient by 0 is missing.
    peak, limit, nameplate = (
        table[name].where(table[name] > 0).to_numpy()
        for name in ("peak_w", "limit_w", "nameplate_w")
    )
    p99 = table["p99_w"].to_numpy()
    p99s = np.array([p99[child].sum() if child else np.nan for child in fed.children()])
    return {
        "coincidence_share": 1 / table["diversity_ratio"].to_numpy(),
        "load_factor_share": table["mean_w"].to_numpy() / peak,
        "peak_nameplate_ratio": table["peak_w"].to_numpy() / nameplate,
        "peak_limit_ratio": table["peak_w"].to_numpy() / limit,
        "p99_limit_ratio": p99 / limit,
        "nameplates_limit_ratio": _nameplates(table["nameplate_w"].to_numpy(), fed) / limit,
        "p99s_limit_ratio": p99s / limit,
    }


def _nameplates(nameplate: Numbers, fed: Feeds) -> Numbers:
    # A child without a nameplate stands for its own children.
    below = np.full(len(nameplate), np.nan)
    children = fed.children()
    # From the leaves up: parents come before their children in a topology.
    for at in range(len(nameplate) - 1, -1, -1):
        if children[at]:
            own = nameplate[children[at]]
            below[at] = np.where(np.isnan(own), below[children[at]], own).sum()
    return below


def _headroom(table: pd.DataFrame, fed: Feeds) -> dict[str, Numbers]:
    headroom = (table["limit_w"] - table["peak_w"]).to_numpy()
    usable = usable_headroom(headroom, has_limit=table["limit_w"].notna().to_numpy(), fed=fed)
    own = np.maximum(headroom, 0)
    return {
        "headroom_w": headroom,
        "usable_headroom_w": usable,
        "stranded_w": np.maximum(own - usable, 0),
    }


# The delivery tree as positions: who feeds whom, and the nearest meters below each.


@dataclass(frozen=True)
class Feeds:
    """A delivery tree in the order of its topology: parents before their children.

    ``parent[i]`` is the position of what feeds ``names[i]``, -1 at a root.
    """

    names: pd.Index
    parent: NDArray[np.int64]

    def children(self) -> list[list[int]]:
        result: list[list[int]] = [[] for _ in self.names]
        for position, parent in enumerate(self.parent):
            if parent >= 0:
                result[parent].append(position)
        return result


def feeds(topology: pd.DataFrame) -> Feeds:
    """Check a topology and give its tree."""
    POWER_TOPOLOGY.check(topology)
    names = pd.Index(topology["entity"]).astype(object)
    if not len(names):
        msg = "the topology is empty; it needs one row per thing that is fed"
        raise WorkbenchError(msg)
    if names.has_duplicates:
        twice = names[names.duplicated()][0]
        msg = f"the topology has {twice!r} twice; one thing has one row and one feed"
        raise WorkbenchError(msg)
    above = topology["parent"].astype(object).to_numpy()
    parent = names.get_indexer(pd.Index(above, dtype=object))
    is_root = pd.isna(above)
    wrong = ~is_root & ((parent < 0) | (parent >= np.arange(len(names))))
    if wrong.any():
        row = int(wrong.argmax())
        msg = (
            f"the topology has no row for {above[row]!r} above {names[row]!r}, which it feeds; "
            "list parents before their children, and leave parent empty at the root"
        )
        raise WorkbenchError(msg)
    return Feeds(names, np.where(is_root, -1, parent).astype(np.int64))


def places_in(tree: Feeds, entities: pd.Index, text: str) -> NDArray[np.int64]:
    """Return the position of each entity in the tree, or raise if it has none."""
    positions = tree.names.get_indexer(entities.astype(object))
    if (positions < 0).any():
        missing = [str(name) for name in entities[positions < 0][:3]]
        msg = (
            f"{int((positions < 0).sum()):,} entities of {text} are not in the topology, e.g. "
            f"{missing}; add them to it, or leave them out of {text}"
        )
        raise WorkbenchError(msg)
    return np.asarray(positions, dtype=np.int64)


def parts_of(tree: Feeds, is_metered: NDArray[np.bool_]) -> list[list[int]]:
    """Return the parts of each entity: the nearest meters below it, and leaves without a meter.

    A child with a meter is one part whatever is below it; one without is replaced by its own
    parts, or stands for itself if there is nothing below it.
    """
    children = tree.children()
    pieces: list[list[int]] = [[] for _ in tree.names]
    for position in range(len(tree.names) - 1, -1, -1):
        for child in children[position]:
            ends = is_metered[child] or not children[child]
            pieces[position] += [child] if ends else pieces[child]
    return pieces


# Headroom that all limits allow to be used, in a delivery tree.


def usable_headroom(headroom_w: Numbers, *, has_limit: NDArray[np.bool_], fed: Feeds) -> Numbers:
    """Return the largest power that could be added at the leaves below each entity.

    Parameters
    ----------
    headroom_w
        Limit minus peak; missing where either is.
    has_limit
        Whether the topology states a limit; if so, and the headroom is missing, the peak is
        what is unknown.
    fed
        The delivery tree.

    Returns
    -------
    numpy.ndarray
        Power in W, 0 or more; missing where nothing limits it, or where it depends on a peak
        that is unknown.
    """
    unknown = has_limit & np.isnan(headroom_w)
    room = np.where(has_limit, np.maximum(headroom_w, 0), np.inf)
    # Whatever the unknown peaks are, the answer lies between that of full and that of empty.
    least = _within_limits(np.where(unknown, 0.0, room), fed)
    most = _within_limits(np.where(unknown, np.inf, room), fed)
    return np.where(np.isfinite(most) & (least == most), most, np.nan)


def _within_limits(room: Numbers, fed: Feeds) -> Numbers:
    """Narrow room from the leaves up by what is below, then from the root down by what is above."""
    children = fed.children()
    usable = room.copy()
    for at in range(len(room) - 1, -1, -1):
        if children[at]:
            usable[at] = min(room[at], usable[children[at]].sum())
    above = np.full(len(room), np.inf)
    for at, parent in enumerate(fed.parent):
        if parent >= 0:
            above[at] = min(above[parent], room[parent])
    return np.asarray(np.minimum(usable, above))


# Power of every thing in the delivery tree, and what meters show beyond their parts.

_SLACK = 1e-9


def power_tree(
    grid: pd.DataFrame, topology: pd.DataFrame, *, least_covered_share: float = 1.0
) -> pd.DataFrame:
    """Add power up along the delivery tree, each thing from the nearest meters below it.

    A thing with a meter draws what its meter shows; without one, what its parts draw together.
    Parts are the nearest meters below it, so no watt counts twice if racks and their nodes are
    both metered. A child that no meter covers is expected and unknown, never 0.

    Parameters
    ----------
    grid
        Table :data:`workbench.tables.POWER_GRID`; all its entities must be in the topology.
    topology
        Table :data:`workbench.tables.POWER_TOPOLOGY`.
    least_covered_share
        Smallest share of the parts that must have a value for their sum to be told; below 1,
        sums are those of the known parts.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TREE`, one row per thing of the topology and cell.

    Raises
    ------
    ValueError
        If ``least_covered_share`` is not a share.
    WorkbenchError
        If the grid is empty or uneven, or has entities that the topology lacks, or the topology
        is not a tree with parents first.

    Examples
    --------
    >>> from workbench import analyze
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9] * 2, "entity": list("aabb"), "power_w": [100.0, 300, 50, 50]}
    ... ).astype({"entity": "category"})
    >>> feeds = pd.DataFrame({"entity": ["rack", "a", "b"], "parent": [None, "rack", "rack"]})
    >>> feeds = feeds.assign(level="x", nameplate_w=400.0, limit_w=500.0)
    >>> power_tree(analyze.power_grid(readings, period_s=1), feeds)["power_w"].tolist()
    [250.0, 200.0, 50.0]
    """
    POWER_GRID.check(grid)
    check_share(least_covered_share)
    tree = feeds(topology)
    grid = grid.assign(entity=grid["entity"].cat.remove_unused_categories())
    times, values = by_entity(grid)
    names = pd.Index(grid["entity"].to_numpy()[:: len(times)])
    positions = places_in(tree, names, "the grid")
    metered = np.full((len(tree.names), len(times)), np.nan)
    metered[positions] = values
    is_metered = np.zeros(len(tree.names), dtype=bool)
    is_metered[positions] = True
    power, sums = metered.copy(), np.full(metered.shape, np.nan)
    count = np.zeros(metered.shape, dtype=np.int64)
    expected = np.zeros(len(tree.names), dtype=np.int64)
    for position, pieces in enumerate(parts_of(tree, is_metered)):
        expected[position] = len(pieces)
        if pieces:
            count[position] = (~np.isnan(metered[pieces])).sum(axis=0)
            is_known = count[position] >= max(1, (least_covered_share - _SLACK) * len(pieces))
            sums[position] = np.where(is_known, np.nansum(metered[pieces], axis=0), np.nan)
            if not is_metered[position]:
                power[position] = sums[position]
    share = np.where(expected[:, None] > 0, count / np.maximum(expected, 1)[:, None], 0.0)
    share = np.where(expected[:, None] > 0, share, ~np.isnan(metered))
    table = pd.DataFrame(
        {
            "time_ns": np.tile(times, len(tree.names)),
            "entity": pd.Categorical.from_codes(
                np.repeat(np.arange(len(tree.names)), len(times)), categories=tree.names
            ),
            "power_w": power.ravel(),
            "parts_w": sums.ravel(),
            "is_metered": np.repeat(is_metered, len(times)),
            "entity_count": count.ravel(),
            "expected_count": np.repeat(expected, len(times)),
            "covered_share": share.ravel(),
        }
    )
    return POWER_TREE.check(table)


def power_residual(tree: pd.DataFrame) -> pd.DataFrame:
    """Subtract from what a meter shows what its parts draw together: losses, or what is missed.

    Fans, conversion and whatever has no meter of its own make the residual positive. A
    negative one cannot be: meters disagree, clocks differ, or the tree is wrong.

    Parameters
    ----------
    tree
        Table :data:`workbench.tables.POWER_TREE` of :func:`power_tree`. Made with a
        ``least_covered_share`` below 1, the residual holds the parts that lack a value.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_RESIDUAL`, one row per cell and thing with a meter
        and parts; no rows if there is none.

    Raises
    ------
    TableError
        If ``tree`` is not that table.

    Examples
    --------
    >>> tree = pd.DataFrame({"time_ns": [0], "power_w": 9.0, "parts_w": 8.0, "is_metered": True})
    >>> tree = tree.assign(entity=pd.Categorical(["rack"]), entity_count=1, expected_count=1)
    >>> power_residual(tree.assign(covered_share=1.0))["residual_w"].tolist()
    [1.0]
    """
    POWER_TREE.check(tree)
    joined = tree[tree["is_metered"] & (tree["expected_count"] > 0)]
    residual = joined["power_w"] - joined["parts_w"]
    table = pd.DataFrame(
        {
            "time_ns": joined["time_ns"],
            "entity": joined["entity"].cat.remove_unused_categories(),
            "metered_w": joined["power_w"],
            "parts_w": joined["parts_w"],
            "residual_w": residual,
            "residual_ratio": residual / joined["power_w"].where(joined["power_w"] > 0),
            # Sums of the same watts differ by their rounding.
            "is_negative": residual < -_SLACK * joined["parts_w"],
            "covered_share": joined["covered_share"],
        }
    ).reset_index(drop=True)
    return POWER_RESIDUAL.check(table)
