"""Points that wait for each other in a circle, and the edges that cannot be right there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import Ints
from workbench.analyze._perfmodel.graph.draft import Step
from workbench.analyze._perfmodel.timing.longest_path import LongestPath
from workbench.errors import PerformanceModelError
from workbench.tables import EDGE_KINDS

# What holds in any trace: work ends after it starts, and threads and streams have an order.
_SURE = ("GPU work", "CPU", "gap", "call", "stream order", "trace start")
_NAMED = 3
EDGE_ARRAYS = ("source", "target", "weight_ns", "edge_kind", "is_inferred")


def without_circles(
    arrays: dict[str, Any], time: Ints, names: pd.Series, event: Ints, step: Step
) -> tuple[dict[str, Any], LongestPath]:
    """Leave out edges until nothing waits for itself, and say which.

    Only edges on a circle are left out: first those that point back in time, then guesses
    between points of one moment, then launches that come after what they launch.

    Parameters
    ----------
    arrays
        ``source``, ``target``, ``weight_ns``, ``edge_kind`` and ``is_inferred`` of the edges.
    time
        When each point was measured [ns].
    names
        Names of events by row label.
    event
        Row label of every point.
    step
        Where what is left out is counted.
    """
    while True:
        path = LongestPath(arrays["source"], arrays["target"], len(time))
        if not path.circled(arrays["weight_ns"]):
            return arrays, path
        wrong = _wrong(arrays, time)
        kinds = [EDGE_KINDS[kind] for kind in np.unique(arrays["edge_kind"][wrong])]
        ends = [event[arrays[end][wrong][:_NAMED]].tolist() for end in ("source", "target")]
        found = [f"{names[a]} (row {a}) > {names[b]} (row {b})" for a, b in zip(*ends, strict=True)]
        said = "; ".join(found)
        step.left_out += int(wrong.sum())
        step.notes.append(f"edges of {', '.join(kinds)} contradict others: {said}")
        arrays = {name: values[~wrong] for name, values in arrays.items()}


def _wrong(arrays: dict[str, Any], time: Ints) -> NDArray[np.bool_]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    source, target = arrays["source"], arrays["target"]
    count = len(time)
    matrix = coo_array((np.ones(len(source)), (source, target)), shape=(count, count))
    group = connected_components(matrix, connection="strong")[1]
    on_circle = (group[source] == group[target]) & (source != target)
    doubtful = on_circle & ~np.isin(arrays["edge_kind"], [EDGE_KINDS.index(each) for each in _SURE])
    launch = arrays["edge_kind"] == EDGE_KINDS.index("launch")
    back = time[source] > time[target]
    same = (time[source] == time[target]) & arrays["is_inferred"]
    for chosen in (back & ~launch, same, back, ~launch):
        if (doubtful & chosen).any():
            return np.asarray(doubtful & chosen)
    msg = f"{on_circle.sum():,} edges form circles that nothing in the trace can open"
    raise PerformanceModelError(msg)
