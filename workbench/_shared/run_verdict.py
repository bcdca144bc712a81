"""The verdict of a comparison of runs: one word and one sentence, the same in every output."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pandas as pd

from workbench._shared.numbers import significant

# Of runs that differ by less at any rate it is said that they are equal.
_EQUAL_SHARE = 0.05
_FEWEST_RUNS = 4
UNRESOLVED = "cannot be resolved"


class Verdict(NamedTuple):
    """Word (slower, faster, changed, equal, cannot be resolved) and the sentence it begins."""

    word: str
    sentence: str


def comparison_verdict(table: pd.DataFrame) -> Verdict:
    """Judge two runs by their step time; without steps by calls of kernels, else by the first row.

    ``table`` is :data:`workbench.tables.RUN_COMPARISON`. A known interval that lies within 5 % of A
    makes runs equal; a wider one that holds 0 resolves nothing.
    """
    if table.empty:
        return _told(UNRESOLVED, "the runs share no quantity")
    is_changed = table["verdict"] == "changed"
    steps = table[table["quantity"] == "step time"]
    row: Any = (steps if len(steps) else table).iloc[0]
    if not len(steps) and (table["quantity"] == "kernel call").any():
        word, text, row = _by_calls(table)
    else:
        word, text = _by_row(row)
    if (table["difference"] == 0).all():
        word, text = "equal", f"equal in all {len(table)} quantities: {_values(row)}"
    others = int(is_changed.sum()) - int(row["verdict"] == "changed")
    if others and word in ("equal", UNRESOLVED):
        text += f"; {others} other {'quantity' if others == 1 else 'quantities'} changed"
    return Verdict(word, text + "; not like with like" * bool(table.attrs.get("warnings")))


def trend_verdict(trend: pd.DataFrame, changes: pd.DataFrame) -> Verdict:
    """Judge many runs by their step time; without steps by the first quantity of the changes.

    ``trend`` is :data:`workbench.tables.RUN_TREND`, ``changes`` its
    :data:`workbench.tables.RUN_CHANGES`.
    """
    steps = trend["step_ms"].dropna()
    rows = changes[changes["quantity"] == "step time"]
    rows = rows if len(rows) or len(steps) else changes
    if rows.empty:
        if len(steps) > 1 and len(steps) == len(trend) and steps.nunique() == 1:
            return Verdict("equal", f"equal: step {plain_digits(float(steps.iloc[0]))} ms")
        extent = ""
        if len(steps):
            ends = (plain_digits(float(of(steps))) for of in (min, max))
            extent = f"; step {' to '.join(ends)} ms"
        of_runs = f"{len(steps)} of {len(trend)} runs have steps, {_FEWEST_RUNS} are needed"
        return _told(UNRESOLVED, of_runs + extent)
    row = rows.iloc[0]
    row = pd.concat([row, pd.Series({"a": row["before"], "b": row["after"], "name": ""})])
    word, text = _by_row(row)
    if row["verdict"] == "changed":
        text = text.replace(word, f"{word} from {row['first_run']} on", 1)
    return Verdict(word, text)


def plain_digits(value: float) -> str:
    """Write a number with three digits, zeros at its end kept: 16.0, never a power of ten.

    Examples
    --------
    >>> plain_digits(16.012), plain_digits(1234.0), plain_digits(0.0)
    ('16.0', '1,234', '0')
    """
    if not value or not math.isfinite(value):
        return f"{value:g}"
    # 9.996 rounds to two digits before the point.
    value = float(f"{value:.2e}") if abs(value) < 1000 else value
    return f"{value:,.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"


def _told(word: str, text: str) -> Verdict:
    return Verdict(word, f"{word}: {text}")


def _values(row: Any) -> str:
    """Write both values of a row with name and unit."""
    is_step = row["quantity"] == "step time"
    name = " ".join(filter(None, ("" if is_step else row["quantity"], row["name"]))) or "step"
    unit = "ms" if is_step else row["unit"]
    return f"{name} {plain_digits(float(row['a']))} -> {plain_digits(float(row['b']))} {unit}"


def _by_row(row: Any) -> Verdict:
    """Judge by one quantity."""
    before, values = abs(float(row["a"])), _values(row)
    is_time = str(row["unit"]).startswith("ms")
    if row["verdict"] == "changed":
        word = ("slower" if row["difference"] > 0 else "faster") if is_time else "changed"
        share = f" by {_percent(row['difference'] / before)}" if before else ""
        return Verdict(word, f"{word}{share}: {values}")
    if pd.isna(row["low"]):
        counts = [int(row[f"{side}_count"]) for side in "ab"]
        each = f"{counts[0]} in A, {counts[1]} in B"
        if counts[0] == counts[1]:
            each = f"{counts[0]} step{'s' * (counts[0] != 1)} each"
        elif row["quantity"] == "step time":
            each = f"{each} steps" if 1 not in counts else f"only 1 step in a run ({each})"
        return _told(UNRESOLVED, f"{each}; {values}")
    reach = max(abs(float(row["low"])), abs(float(row["high"])))
    if reach == 0:
        return Verdict("equal", f"equal: {values}")
    if before and reach <= _EQUAL_SHARE * before:
        return Verdict("equal", f"equal within {_percent(reach / before)}: {values}")
    hidden = f" below {_percent(reach / before)}" if before else ""
    why = "so few events" if str(row["unit"]).startswith("per ") else "values that vary so much"
    why = "steps that vary so much" if row["quantity"] == "step time" else why
    return _told(UNRESOLVED, f"of {why} a change{hidden} is not seen; {values}")


def _by_calls(table: pd.DataFrame) -> tuple[str, str, Any]:
    """Judge runs without steps: by the calls of kernels that changed, else by the whole trace."""
    calls = table[(table["quantity"] == "kernel call") & (table["verdict"] == "changed")]
    if len(calls):
        cost = calls["difference"] * calls[["a_count", "b_count"]].min(axis=1)
        is_slower = float(cost.sum()) > 0
        row = calls.iloc[int((cost if is_slower else -cost).to_numpy().argmax())]
        word = "slower" if is_slower else "faster"
        return word, f"{word}, by the calls of kernels: {_values(row)}", row
    totals = table[table["quantity"] == "whole trace"]
    row = (totals if len(totals) else table).iloc[0]
    if len(totals) and row["verdict"] == "changed":
        why = "no steps, and a longer trace is slower only if it did the same work"
        return UNRESOLVED, f"{UNRESOLVED}: {why}; {_values(row)}", row
    return *_by_row(row), row


def _percent(share: float) -> str:
    return f"{significant(abs(100 * float(share)))} %"
