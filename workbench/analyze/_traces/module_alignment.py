"""Two trees of modules side by side: which node of one is which of the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import count
from typing import TypeAlias

import numpy as np
import pandas as pd

from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.rows import MISSING
from workbench.analyze._traces.modules import NODE_KINDS, attributed, short_operator, stable_name

_Pairs: TypeAlias = list[tuple[int, int]]

# Beyond this, longest common runs take too long (products of two numbers of children).
_MOST_PAIRS = 250_000


class _Side:
    """The tree of one trace, and the GPU work by node and operator."""

    def __init__(self, events: pd.DataFrame) -> None:
        joined = attributed(events, by_rank=False)
        self.labels = [stable_name(name) for name in joined.tree.name]
        self.kinds = [NODE_KINDS[kind] for kind in joined.tree.kind]
        self.children: dict[int, list[int]] = defaultdict(list)
        for node, parent in enumerate(joined.tree.parent):
            self.children[parent].append(node)
        name = np.append(arrays.codes(events["name"]), MISSING)[joined.operator]
        groups = arrays.grouped(joined.node, name.astype(np.int64))
        total = groups.total(joined.work.end - joined.work.start)
        names = [short_operator(str(name)) for name in events["name"].cat.categories]
        self.own: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        for node, code, size, ns in zip(*groups.keys, groups.sizes(), total, strict=True):
            operator = names[code] if code != MISSING else ""
            self.own[int(node)].append((operator, int(size), int(ns)))


def module_sums(
    events_a: pd.DataFrame, events_b: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add up the GPU work of two traces by aligned node and operator."""
    a, b = _Side(events_a), _Side(events_b)
    sides = (a, b)
    rows: tuple[list[tuple[str, str, int, int]], ...] = ([], [])
    waiting: list[tuple[int, int, str]] = [(0, 0, "")]
    while waiting:
        node_a, node_b, path = waiting.pop()
        pair = (node_a, node_b)
        for side, node, into in zip(sides, pair, rows, strict=True):
            for operator, size, ns in side.own[node] if node != MISSING else ():
                name = " > ".join(filter(None, (path, operator)))
                into.append((("operator" if operator else side.kinds[node]), name, size, ns))
        below = [
            side.children[node] if node != MISSING else []
            for side, node in zip(sides, pair, strict=True)
        ]
        labels = [
            [side.labels[node] for node in nodes] for side, nodes in zip(sides, below, strict=True)
        ]
        pairs = matched(*labels)
        shown = [labels[1][j] if i == MISSING else labels[0][i] for i, j in pairs]
        several = Counter(shown)
        number: dict[str, count[int]] = defaultdict(count)
        for (i, j), label in zip(pairs, shown, strict=True):
            spelled = f"{label}[{next(number[label])}]" if several[label] > 1 else label
            waiting.append(
                (
                    MISSING if i == MISSING else below[0][i],
                    MISSING if j == MISSING else below[1][j],
                    f"{path} > {spelled}" if path else spelled,
                )
            )
    return _framed(rows[0]), _framed(rows[1])


def matched(a: Sequence[str], b: Sequence[str]) -> _Pairs:
    """Pair equal names of two lists; -1 stands for none on the other side.

    Examples
    --------
    >>> matched(["norm", "linear", "drop"], ["linear", "norm", "linear"])
    [(0, 1), (1, 2), (2, -1), (-1, 0)]
    """
    pairs: _Pairs = []
    if len(a) * len(b) <= _MOST_PAIRS:
        blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
        pairs = [(x + k, y + k) for x, y, size in blocks for k in range(size)]
    left = set(range(len(a))) - {i for i, _ in pairs}
    right: dict[str, list[int]] = defaultdict(list)
    for j in sorted(set(range(len(b))) - {j for _, j in pairs}, reverse=True):
        right[b[j]].append(j)
    # What changed places, by name and order.
    pairs += [(i, right[a[i]].pop() if right[a[i]] else MISSING) for i in sorted(left)]
    pairs = sorted(pairs, key=lambda pair: pair[0])
    return pairs + [(MISSING, j) for j in sorted(j for rest in right.values() for j in rest)]


def _framed(rows: list[tuple[str, str, int, int]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["category", "name", "count", "total"])
    return frame.assign(step=MISSING).groupby(["category", "name", "step"]).sum()
