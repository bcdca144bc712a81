"""The delivery tree as positions: who feeds whom, and the nearest meters below each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import WorkbenchError
from workbench.tables import POWER_TOPOLOGY


@dataclass(frozen=True)
class Feeds:
    """A delivery tree in the order of its topology: parents before their children.

    ``parent[i]`` is the position of what feeds ``names[i]``, -1 at a root.
    """

    names: pd.Index
    parent: NDArray[np.int64]

    def children(self) -> list[list[int]]:
        """Give the positions of what each one feeds directly."""
        found: list[list[int]] = [[] for _ in self.names]
        for position, parent in enumerate(self.parent):
            if parent >= 0:
                found[parent].append(position)
        return found


def feeds(topology: pd.DataFrame) -> Feeds:
    """Check a topology and give its tree.

    Parameters
    ----------
    topology
        Table :data:`workbench.tables.POWER_TOPOLOGY`.

    Returns
    -------
    Feeds
        One position per row.

    Raises
    ------
    TableError
        If ``topology`` is not that table.
    WorkbenchError
        If it is empty, names a thing twice, or has a child before its parent.
    """
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


def places_in(tree: Feeds, entities: pd.Index, what: str) -> NDArray[np.int64]:
    """Give the position of each entity in the tree, or raise if it has none."""
    places = tree.names.get_indexer(entities.astype(object))
    if (places < 0).any():
        missing = [str(name) for name in entities[places < 0][:3]]
        msg = (
            f"{int((places < 0).sum()):,} entities of {what} are not in the topology, e.g. "
            f"{missing}; add them to it, or leave them out of {what}"
        )
        raise WorkbenchError(msg)
    return np.asarray(places, dtype=np.int64)


def parts_of(tree: Feeds, is_metered: NDArray[np.bool_]) -> list[list[int]]:
    """Give the parts of each thing: the nearest meters below it, and leaves without a meter.

    A child with a meter is one part whatever is below it; one without is replaced by its own
    parts, or stands for itself if there is nothing below it.
    """
    children = tree.children()
    parts: list[list[int]] = [[] for _ in tree.names]
    for position in range(len(tree.names) - 1, -1, -1):
        for child in children[position]:
            ends = is_metered[child] or not children[child]
            parts[position] += [child] if ends else parts[child]
    return parts
