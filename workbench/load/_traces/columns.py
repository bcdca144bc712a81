"""Columns of a profile that its reader made whole, in the shape in which Kineto files arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.load._files.findings import Findings
from workbench.load._traces.kineto.blocks import HAS_DUR, HAS_TIME, MISSING, Texts
from workbench.load._traces.kineto.rank import RankTables, rank_tables

IntArray = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


@dataclass
class Rows:
    """Rows of one origin: times in ns, numbers of texts, and arguments by Kineto's names."""

    start: IntArray
    dur: IntArray
    name: Codes
    category: Codes
    process: Codes
    thread: Codes
    numbers: Mapping[str, IntArray] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.start)

    def take(self, rows: npt.NDArray[Any]) -> Rows:
        """Return some of the rows, by position or as a mask."""
        return Rows(
            self.start[rows], self.dur[rows], self.name[rows], self.category[rows],
            self.process[rows], self.thread[rows],
            {name: values[rows] for name, values in self.numbers.items()},
        )  # fmt: skip


def coded(values: npt.NDArray[Any], spelled: Callable[[Any], str], texts: Texts) -> Codes:
    """Return the numbers of the texts of ``values``, each distinct one spelled once."""
    codes, distinct = pd.factorize(values)
    table = np.array([texts.code(spelled(value)) for value in distinct.tolist()], dtype=np.int32)
    return table[codes] if len(table) else np.zeros(len(codes), np.int32)


_FIELDS = {
    "ts": "start", "dur": "dur", "name": "name", "cat": "category", "pid": "process",
    "tid": "thread",
}  # fmt: skip


class _Whole:
    """Interface of the columns of a parsed file for :func:`rank_tables`."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._parts = [part for part in parts if len(part)]
        self.rows = sum(map(len, self._parts))
        self.phases: Counter[str] = Counter()
        self.unreadable: Counter[tuple[str, str]] = Counter()

    def used(self, count: int) -> npt.NDArray[np.bool_]:
        """Return which of the first ``count`` texts are a name, category, process or thread."""
        used = np.zeros(count, np.bool_)
        for part in self._parts:
            for codes in (part.name, part.category, part.process, part.thread):
                used[codes] = True
        return used

    def field(self, name: str) -> npt.NDArray[Any]:
        if name in _FIELDS:
            columns = [getattr(part, _FIELDS[name]) for part in self._parts]
            return np.concatenate(columns) if columns else np.zeros(0, np.int64)
        # Every row is a complete event.
        return np.full(self.rows, ord("X") if name == "ph" else HAS_TIME | HAS_DUR, np.uint8)

    def values(self, name: str) -> IntArray | None:
        if not any(name in part.numbers for part in self._parts):
            return None
        return np.concatenate(
            [part.numbers.get(name, np.full(len(part), MISSING, np.int64)) for part in self._parts]
        )


@dataclass
class _Raw:
    columns: Any
    texts: Callable[[], list[str]]
    metadata: dict[str, Any]
    findings: Findings


def rank_of(
    parts: Sequence[Rows],
    texts: Texts,
    findings: Findings,
    *,
    metadata: dict[str, Any],
    args: Sequence[str] = (),
    rules: pd.DataFrame | None = None,
) -> RankTables:
    """Interpret the rows of one rank as those of a Kineto file are."""
    raw: Any = _Raw(_Whole(parts), texts.all, metadata, findings)
    return rank_tables(raw, label=findings.source, args=args, rules=rules)
