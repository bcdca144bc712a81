"""Follow-ons that nothing went before: failures of which the log does not hold the trigger."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd

FOLLOW_ON = "follow-on"
UNKNOWN_TRIGGER = " (trigger not in the log)"
KERNEL_KINDS = ("xid", "sxid", "amdgpu", "kernel")
_FIELDS = ["kind", "node", "job", "source", "start_ns", "end_ns"]


class _Place:
    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self.is_untimed = False
        self._reach: list[int] = []

    def had(self, start: int | None, window_ns: int) -> bool:
        """Return whether a failure began before a time, and ended within the window before it."""
        if start is None or self.is_untimed:
            return True  # unknown which of them came first
        if len(self._reach) != len(self.spans):
            self.spans.sort()
            self._reach = list(accumulate((last for _, last in self.spans), max))
        # The latest end of all that began before decides, not that of the last to begin.
        before = bisect_right(self.spans, start, key=lambda span: span[0])
        return before > 0 and self._reach[before - 1] >= start - window_ns


def with_lone_follow_ons(folded: pd.DataFrame, window_ns: int) -> pd.DataFrame:
    """Make follow-ons that nothing went before within the window failures of unknown trigger."""
    follows = (folded["category"] == FOLLOW_ON).to_numpy(dtype=bool)
    if not follows.any():
        return folded
    failed_at: dict[tuple[str, str], _Place] = {}
    for row in _rows(folded[~follows]):
        for key in _keys(row, is_trigger=True):
            failed = failed_at.setdefault(key, _Place())
            if row["start_ns"] is None:
                failed.is_untimed = True
            else:
                failed.spans.append((row["start_ns"], row["end_ns"] or row["start_ns"]))
    alone = follows.copy()
    alone[follows] = [
        not any(
            failed_at[key].had(row["start_ns"], window_ns)
            for key in _keys(row, is_trigger=False)
            if key in failed_at
        )
        for row in _rows(folded[follows])
    ]
    return folded.assign(
        category=folded["category"].mask(alone, "unknown"),
        cause=folded["cause"].mask(alone, folded["cause"] + UNKNOWN_TRIGGER),
        # It is harmless only if it follows a failure that is counted by itself.
        severity=folded["severity"].mask(alone & (folded["severity"] == "info"), "unknown"),
    )


def is_told_as_alone(folded: pd.DataFrame) -> np.ndarray:
    """Return which incidents were made of follow-ons without a failure before them."""
    return folded["cause"].str.endswith(UNKNOWN_TRIGGER).to_numpy(dtype=bool)


def _rows(folded: pd.DataFrame) -> Iterator[dict[str, Any]]:
    columns = folded[_FIELDS].astype(object)
    columns = columns.where(columns.notna(), None)
    for values in columns.itertuples(index=False, name=None):
        yield dict(zip(_FIELDS, values, strict=True))


def _keys(row: dict[str, Any], *, is_trigger: bool) -> Iterator[tuple[str, str]]:
    """Name where one failure makes others: the node of a kernel, else also the job and its log."""
    if row["node"] is not None:
        yield "node", row["node"]
    if not is_trigger and row["kind"] in KERNEL_KINDS and row["node"] is not None:
        return
    yield "source", row["source"]
    if row["job"] is not None:
        yield "job", row["job"]
