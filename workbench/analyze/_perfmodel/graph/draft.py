"""A graph while it is built: the rows it is made from, its points, and the edges so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.graph.rank_rows import (
    CpuPoints,
    CpuRows,
    GpuRows,
    GraphRules,
    RankRows,
)
from workbench.tables import EDGE_KINDS, GRAPH_BUILD


@dataclass
class Step:
    """What one step of the builder did."""

    name: str
    is_used: bool
    left_out: int = 0
    read: int = 0
    inferred: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Draft:
    """The graph of one rank. Point 0 is the start; then GPU work, two points each; then the CPU."""

    rows: RankRows
    points: CpuPoints
    rules: GraphRules
    without: frozenset[str]
    lasting: NDArray[np.bool_]  # per CPU row whether it is a call that launches when it ends
    steps: list[Step] = field(default_factory=list)
    _parts: list[tuple[Ints, Ints, Ints, int, bool]] = field(default_factory=list)

    @property
    def gpu(self) -> GpuRows:
        return self.rows.gpu

    @property
    def cpu(self) -> CpuRows:
        return self.rows.cpu

    @cached_property
    def starts(self) -> Ints:
        """Point where each piece of GPU work starts; the next point is its end."""
        return 1 + 2 * np.arange(len(self.gpu.row))

    @property
    def first(self) -> int:
        """The first point on a CPU."""
        return 1 + 2 * len(self.gpu.row)

    @cached_property
    def launch(self) -> Ints:
        """Point of the call that launched each piece of GPU work; -1 if none."""
        call = self.gpu.call
        point = np.where(self.lasting, self.points.ends, self.points.starts)
        return np.where(call != MISSING, self.first + np.append(point, MISSING)[call], MISSING)

    @cached_property
    def call_start(self) -> Ints:
        """When the call began that launched each piece of GPU work; -1 if none [ns]."""
        call = self.gpu.call
        return np.append(self.cpu.start, MISSING)[call]

    @cached_property
    def issued(self) -> Ints:
        """When each piece of GPU work was launched; -1 if nothing did [ns]."""
        moment = np.where(self.lasting, self.cpu.end, self.cpu.start)
        return np.append(moment, MISSING)[self.gpu.call]

    @cached_property
    def time(self) -> Ints:
        """When each point was measured [ns]."""
        gpu = np.stack([self.gpu.start, self.gpu.end], axis=1).ravel()
        return np.concatenate([[0], gpu, self.points.time])

    def step(self, name: str) -> Step:
        self.steps.append(Step(name, name not in self.without))
        return self.steps[-1]

    def add(
        self,
        source: ArrayLike,
        target: ArrayLike,
        weight: ArrayLike,
        kind: str,
        *,
        inferred: bool = False,
    ) -> None:
        """Add edges of one kind to the step that was begun last."""
        target = np.asarray(target, dtype=np.int64)
        source = np.broadcast_to(np.asarray(source, dtype=np.int64), target.shape)
        weight = np.broadcast_to(np.asarray(weight, dtype=np.int64), target.shape)
        edges = (source, target, np.maximum(weight, 0), EDGE_KINDS.index(kind), inferred)
        self._parts.append(edges)
        self.steps[-1].inferred += len(target) if inferred else 0
        self.steps[-1].read += 0 if inferred else len(target)

    def edges(self) -> dict[str, NDArray[Any]]:
        sizes = [len(group[1]) for group in self._parts]
        return {
            "source": np.concatenate([group[0] for group in self._parts]).astype(np.int32),
            "target": np.concatenate([group[1] for group in self._parts]).astype(np.int32),
            "weight_ns": np.concatenate([group[2] for group in self._parts]),
            "edge_kind": np.repeat([group[3] for group in self._parts], sizes).astype(np.int8),
            "is_inferred": np.repeat([group[4] for group in self._parts], sizes).astype(bool),
        }

    def residual(self) -> Ints:
        """Give the time of each point that the edges so far do not explain [ns]."""
        edges = self.edges()
        explained = np.zeros(len(self.time), dtype=np.int64)
        np.maximum.at(explained, edges["target"], self.time[edges["source"]] + edges["weight_ns"])
        return self.time - explained


def build_table(steps: list[Step]) -> pd.DataFrame:
    """Table :data:`workbench.tables.GRAPH_BUILD`; the same step of several ranks is added up."""
    names = list(dict.fromkeys(step.name for step in steps))
    same = {name: [step for step in steps if step.name == name] for name in names}
    return GRAPH_BUILD.check(
        pd.DataFrame(
            {
                "step": names,
                "is_used": [same[name][0].is_used for name in names],
                "read_count": [sum(step.read for step in same[name]) for name in names],
                "inferred_count": [sum(step.inferred for step in same[name]) for name in names],
                "left_out_count": [sum(step.left_out for step in same[name]) for name in names],
                "note": [
                    "; ".join(dict.fromkeys(note for step in same[name] for note in step.notes))
                    for name in names
                ],
            }
        )
    )
