"""Failures that two files of one load both hold."""

from __future__ import annotations

import pandas as pd

_SAME = ["kind", "node", "device", "rank", "code", "job", "start_ns"]


def without_repeats(failures: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Take each failure once if several files hold it.

    Two rows are the same if host (or job), device, code and time are equal and they come from
    different files: ``dmesg`` and ``kern.log`` of one host. If one file has several such
    rows, that many are kept.

    Returns
    -------
    tuple of pandas.DataFrame
        The rows to keep, and those that repeat one of them.
    """
    is_known = (failures["node"].notna() | failures["job"].notna()) & failures["start_ns"].notna()
    known = failures[is_known]
    if known["source"].nunique() < 2:
        return failures, failures.iloc[:0]
    key = known.groupby(_SAME, dropna=False, sort=False).ngroup()
    each = pd.DataFrame({"key": key, "source": known["source"]})
    counts = each.groupby(["key", "source"], sort=False).size().reset_index(name="count")
    fullest = counts.loc[counts.groupby("key", sort=False)["count"].idxmax()]
    kept = fullest.set_index("key")["source"].reindex(key).to_numpy()
    repeats = known.index[known["source"].to_numpy() != kept]
    return failures.drop(index=repeats), failures.loc[repeats]
