"""Which probability a figure shows: without these words a PVF cannot be compared with another."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from workbench.plot._style.text import label, percent

_WORDS = {
    "average": {
        "bits": "every bit weighs the same",
        "parameters": "every parameter weighs the same",
        "tensors": "every tensor weighs the same",
        "layers": "every layer weighs the same",
    },
    "nan_policy": {
        "wrong": "outputs that are not finite count as wrong",
        "due": "outputs that are not finite are left to a detector",
        "ignore": "outputs that are not finite are dropped",
    },
    "criterion": {
        "argmax": "wrong: another class is the largest",
        "threshold": "wrong: other side of the threshold",
        "difference": "wrong: the output moved by more than allowed",
        "metric_drop": "wrong: the quality dropped by more than allowed",
    },
    "fault_model": {
        "sbf": "one bit flips",
        "mbf": "several bits flip",
        "mbbf": "a burst of bits flips",
        "stuck0": "a bit is stuck at 0",
        "stuck1": "a bit is stuck at 1",
        "value": "a value is replaced",
    },
}
_MOST = 3


def estimand(table: pd.DataFrame) -> list[str]:
    """Say in words what was averaged, counted and injected, and how many inputs judged.

    Parameters
    ----------
    table
        Table that has ``average``, ``nan_policy``, ``criterion`` and ``fault_model``, and perhaps
        ``site_count`` and ``trial_count``.
    """
    said = [_drawn(table), *(_rule(table, name) for name in _WORDS)]
    if {"site_count", "trial_count"} <= set(table.columns):
        said.append(_inputs(table))
    return [words for words in said if words]


def coverage(table: pd.DataFrame) -> list[str]:
    """Say how sure the intervals are meant to be."""
    levels = table["level_share"].drop_duplicates()
    if not len(levels):
        return []
    return [f"{percent(float(levels.iloc[0]))} intervals" if len(levels) == 1 else "intervals"]


def differing(table: pd.DataFrame) -> list[str]:
    """Name the rules in which rows differ; their labels then have to say which they follow."""
    return [name for name in _WORDS if len(_values(table, name)) > 1]


def rule_of(row: pd.Series, names: Sequence[str]) -> str:
    """Write the rules of one row in short."""
    words = ["not told" if pd.isna(row[name]) else label(row[name], 20) for name in names]
    return ", ".join(
        f"{name.replace('_', ' ')}: {word}" for name, word in zip(names, words, strict=True)
    )


def _values(table: pd.DataFrame, name: str) -> list[str | None]:
    column = table[name].astype(object)
    return list(column.where(column.notna(), None).drop_duplicates())


def _rule(table: pd.DataFrame, name: str) -> str:
    values = _values(table, name)
    if len(values) > 1:
        known = [label(each, 20) if each is not None else "not told" for each in values[:_MOST]]
        more = ", ..." if len(values) > _MOST else ""
        return f"<b>{name.replace('_', ' ')} differs: {', '.join(known)}{more}</b>"
    if not values or values[0] is None:
        return f"{name.replace('_', ' ')} not told"
    return _WORDS[name].get(values[0], f"{name.replace('_', ' ')}: {label(values[0], 40)}")


def _drawn(table: pd.DataFrame) -> str:
    """Say where groups are only a part of what they are called by."""
    if "drawn_from" not in table or not (part := [x for x in table["drawn_from"].unique() if x]):
        return ""
    more = ", ..." if len(part) > _MOST else ""
    return f"<b>faults drawn from {', '.join(label(x, 40) for x in part[:_MOST])}{more} only</b>"


def _inputs(table: pd.DataFrame) -> str:
    counted = table[table["site_count"] > 0]
    per_site = counted["trial_count"] / counted["site_count"]
    if per_site.empty:
        return ""
    low, high = per_site.min(), per_site.max()
    if low == high and low == int(low):
        return f"{int(low):,} inputs per site" if low != 1 else "one input per site"
    return f"{low:,.4g} to {high:,.4g} inputs per site"
