"""What an analysis says about its result: what was left out, what is doubtful."""

from __future__ import annotations

import pandas as pd

from workbench.plot._style.text import digits, label, percent

_MOST = 4


def interval(table: pd.DataFrame, name: str = "whiskers") -> list[str]:
    """Say what the whiskers are."""
    share = table.attrs.get("confidence_share")
    return [f"{name}: {percent(share)} interval" if share else f"{name}: confidence interval"]


def reservations(table: pd.DataFrame) -> list[str]:
    """Say what was not counted, and why the exposure is in doubt."""
    left = sorted(table.attrs.get("left_out", {}).items(), key=lambda item: -item[1])
    said = [f"{count:,} {label(reason, 50)}" for reason, count in left[:_MOST]]
    if others := sum(count for _, count in left[_MOST:]):
        said.append(f"{others:,} for other reasons")
    notes = [f"not counted: {', '.join(said)}"] if said else []
    return notes + [f"<b>{label(doubt, 200)}</b>" for doubt in table.attrs.get("doubts", [])]


def is_doubtful(rows: pd.DataFrame) -> bool:
    """Say whether at least half of the rows that a title rests on are in doubt.

    That stands in one of the columns ``is_sure``, ``is_usable`` and ``doubt``.
    """
    bad = pd.Series(data=False, index=rows.index)
    for column in {"is_sure", "is_usable"} & {*rows.columns}:
        bad |= ~rows[column].fillna(value=True).astype(bool)
    if "doubt" in rows and "is_sure" not in rows:
        bad |= rows["doubt"].fillna("").astype(str) != ""
    return bool(len(bad)) and bool(bad.mean() >= 0.5)


def span(low: float, high: float) -> str:
    """Write an interval of shares."""
    ends = [round(100 * value, 1 if high < 0.1 else 0) for value in (low, high)]
    return f"{ends[0]:g} to {ends[1]:g} %"


def between(low: float, high: float) -> str:
    """Write an interval of numbers."""
    return f"{digits(low)} to {digits(high)}"
