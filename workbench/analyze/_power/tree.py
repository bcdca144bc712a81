"""Power of every thing in the delivery tree, and what meters show beyond their parts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.power_signal import Numbers
from workbench.analyze._power.feeds import feeds, parts_of, places_in
from workbench.analyze._power.grid import by_entity, check_share
from workbench.tables import POWER_GRID, POWER_RESIDUAL, POWER_TREE

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
    TableError
        If an input is not its table.
    ValueError
        If ``least_covered_share`` is no share.
    WorkbenchError
        If the grid is empty or uneven, or has entities that the topology lacks, or the topology
        is no tree with parents first.

    Examples
    --------
    >>> import pandas as pd
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
    places = places_in(tree, names, "the grid")
    metered = np.full((len(tree.names), len(times)), np.nan)
    metered[places] = values
    is_metered = np.zeros(len(tree.names), dtype=bool)
    is_metered[places] = True
    power, sums = metered.copy(), np.full(metered.shape, np.nan)
    count = np.zeros(metered.shape, dtype=np.int64)
    expected = np.zeros(len(tree.names), dtype=np.int64)
    for position, parts in enumerate(parts_of(tree, is_metered)):
        expected[position] = len(parts)
        if parts:
            sums[position], count[position] = _sum(metered[parts], least_covered_share)
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


def _sum(parts: Numbers, least_covered_share: float) -> tuple[Numbers, np.ndarray]:
    """Sum what is known of some parts; missing where that is too little."""
    count = (~np.isnan(parts)).sum(axis=0)
    known = (count > 0) & (count / len(parts) >= least_covered_share - _SLACK)
    return np.where(known, np.nansum(parts, axis=0), np.nan), count


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
    >>> import pandas as pd
    >>> from workbench import analyze
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9] * 2, "entity": ["rack", "rack", "a", "a"], "power_w": 9.0}
    ... ).astype({"entity": "category"})
    >>> feeds = pd.DataFrame({"entity": ["rack", "a"], "parent": [None, "rack"]})
    >>> feeds = feeds.assign(level="x", nameplate_w=400.0, limit_w=500.0)
    >>> tree = power_tree(analyze.power_grid(readings, period_s=1), feeds)
    >>> power_residual(tree)["residual_w"].tolist()
    [0.0]
    """
    POWER_TREE.check(tree)
    both = tree[tree["is_metered"] & (tree["expected_count"] > 0)]
    residual = both["power_w"] - both["parts_w"]
    table = pd.DataFrame(
        {
            "time_ns": both["time_ns"],
            "entity": both["entity"].cat.remove_unused_categories(),
            "metered_w": both["power_w"],
            "parts_w": both["parts_w"],
            "residual_w": residual,
            "residual_ratio": residual / both["power_w"].where(both["power_w"] > 0),
            # Sums of the same watts differ by their rounding.
            "is_negative": residual < -_SLACK * both["parts_w"],
            "covered_share": both["covered_share"],
        }
    ).reset_index(drop=True)
    return POWER_RESIDUAL.check(table)
