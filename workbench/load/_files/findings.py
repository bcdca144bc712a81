"""Counting what a loader dropped, mended or assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from workbench.tables import QUALITY

# Source, finding, what, count and where, as in the quality table.
Finding = tuple[str, str, str, int, str | None]
_LISTED = 8


@dataclass(frozen=True)
class Remark:
    """Something about the input that belongs into the quality table."""

    source: str
    finding: Literal["skipped by design", "dropped", "truncated"]
    what: str

    @property
    def row(self) -> Finding:
        return self.source, self.finding, self.what, 1, None


class Findings:
    """Collects findings of one source; equal ones are counted together."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: dict[tuple[str, str], tuple[int, str | None]] = {}

    def add(self, finding: str, what: str, count: int = 1, where: str | None = None) -> None:
        """Count ``what``; ``where`` of the first occurrence is kept."""
        if count:
            known, first = self._found.get((finding, what), (0, where))
            self._found[finding, what] = (known + count, first)

    def count(self, what: str) -> int:
        return sum(count for (_, text), (count, _) in self._found.items() if text == what)

    def rows(self) -> list[Finding]:
        return [
            (self.source, finding, what, count, where)
            for (finding, what), (count, where) in self._found.items()
        ]

    def frame(self) -> pd.DataFrame:
        return quality_frame(self.rows())


def quality_frame(rows: Sequence[Finding]) -> pd.DataFrame:
    if not rows:
        return QUALITY.empty()
    return QUALITY.check(QUALITY.cast(pd.DataFrame(rows, columns=list(QUALITY.columns))))


def listed(findings: Sequence[Finding]) -> str:
    """List what was passed over for a message, a line each, and say how many more there are."""
    lines = "".join(
        f"\n  - {source}: {what}" + (f" ({where})" if where else "")
        for source, _, what, _, where in findings[:_LISTED]
    )
    more = len(findings) - _LISTED
    return lines + (f"\n  - and {more} more" if more > 0 else "")
