"""The rows of several files that are interpreted together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.load._files.findings import Findings

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Files:
    """Where the rows of several files lie that are interpreted together, and their findings."""

    bounds: IntArray
    findings: Sequence[Findings]

    @classmethod
    def of(cls, sizes: Sequence[int], findings: Sequence[Findings]) -> Files:
        return cls(np.cumsum([0, *sizes]), findings)

    def __iter__(self) -> Iterator[tuple[Findings, slice]]:
        """Give the findings of each file and its rows."""
        ends = self.bounds.tolist()
        return zip(self.findings, map(slice, ends, ends[1:]), strict=False)

    @property
    def seams(self) -> IntArray:
        """The last row of each file, but for the last row of all."""
        ends: IntArray = np.unique(self.bounds[1:])[:-1]
        return ends[ends > 0] - 1

    def counts(self, rows: npt.NDArray[Any]) -> list[int]:
        """Count the rows of each file among ``rows``, a mask or positions in order."""
        positions = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        if len(positions) == 0 or len(self.findings) == 1:
            return [len(positions)] * len(self.findings)
        counts: list[int] = np.diff(np.searchsorted(positions, self.bounds)).tolist()
        return counts

    def add(self, finding: str, what: str, rows: npt.NDArray[Any]) -> None:
        """Add to the findings of each file how many of its rows are among ``rows``."""
        if any(counts := self.counts(rows)):
            for findings, count in zip(self.findings, counts, strict=True):
                findings.add(finding, what, count)


@dataclass(frozen=True)
class Timed:
    """Times and names of the rows that are kept, in order, and how to pick other columns."""

    start: IntArray
    dur: IntArray
    clocks: Sequence[str]
    files: Files
    pick: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    pid: npt.NDArray[Any]
    tid: npt.NDArray[Any]
    name: npt.NDArray[Any]
    cat: npt.NDArray[Any]
