"""A graph while it is built: the rows it is made from, its points, and the edges so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
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
    """Result of one step of the builder."""

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
    _added: list[tuple[Ints, Ints, Ints, int, bool]] = field(default_factory=list)

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
        # A call that loads a module or allocates launches at its end.
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
        self._added.append(
            # A negative weight would let a point come before what it waits for: clocks round.
            (source, target, np.maximum(weight, 0), EDGE_KINDS.index(kind), inferred)
        )
        self.steps[-1].inferred += len(target) if inferred else 0
        self.steps[-1].read += 0 if inferred else len(target)

    def edges(self) -> dict[str, NDArray[Any]]:
        source, target, weight, kind, inferred = zip(*self._added, strict=True)
        sizes = [len(points) for points in target]
        return {
            "source": np.concatenate(source).astype(np.int32),
            "target": np.concatenate(target).astype(np.int32),
            "weight_ns": np.concatenate(weight),
            "edge_kind": np.repeat(kind, sizes).astype(np.int8),
            "is_inferred": np.repeat(inferred, sizes).astype(bool),
        }

    def residual(self) -> Ints:
        """Return the time of each point that the edges so far do not explain [ns]."""
        edges = self.edges()
        explained = np.zeros(len(self.time), dtype=np.int64)
        np.maximum.at(explained, edges["target"], self.time[edges["source"]] + edges["weight_ns"])
        return self.time - explained


def build_table(steps: list[Step]) -> pd.DataFrame:
    """Table :data:`workbench.tables.GRAPH_BUILD`; the same step of several ranks is added up."""
    by_name = pd.DataFrame([vars(step) for step in steps]).groupby("name", sort=False)
    table = by_name.agg(
        is_used=("is_used", "first"),
        read_count=("read", "sum"),
        inferred_count=("inferred", "sum"),
        left_out_count=("left_out", "sum"),
        note=("notes", lambda notes: "; ".join(dict.fromkeys(chain.from_iterable(notes)))),
    )
    return GRAPH_BUILD.of(table.rename_axis("step").reset_index())
