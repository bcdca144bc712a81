"""The delivery tree as positions: which entity feeds which."""

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
