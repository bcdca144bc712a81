"""Failures and states that two files of one load both hold."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pandas as pd

_SAME = ["kind", "node", "device", "rank", "code", "job", "start_ns"]
_SAME_STATE = ["job", "replica", "state", "start_ns"]


def without_repeats(failures: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Take each failure once if several files hold it.

    Two rows are the same if host (or job, or rank of a collective), device, code and time are
    equal and they come from different files: ``dmesg`` and ``kern.log`` of one host. If one
    file has several such rows, that many are kept; of events that stand for repeats, the
    state that stands for most. The last code of a GPU, whose time nobody knows, is one
    failure however many pages show it.

    Returns
    -------
    tuple of pandas.DataFrame
        The rows to keep, and those that repeat one of them.
    """
    has_place = failures["node"].notna() | failures["job"].notna()
    # Stamps of NCCL's watchdog are exact to the nanosecond.
    has_place |= failures["kind"].eq("nccl") & failures["rank"].notna()
    is_page = failures["kind"].eq("dcgm") & failures["node"].notna()
    known = failures[has_place & failures["start_ns"].notna() | is_page]
    if known["source"].nunique() < 2:
        return failures, failures.iloc[:0]
    key = known.groupby(_SAME, dropna=False, sort=False).ngroup()
    each = pd.DataFrame({"key": key, "source": known["source"], "count": known["line_count"]})
    counts = each.groupby(["key", "source"], sort=False)["count"].sum().reset_index()
    fullest = counts.loc[counts.groupby("key", sort=False)["count"].idxmax()]
    kept = fullest.set_index("key")["source"].reindex(key).to_numpy()
    repeats = known.index[known["source"].to_numpy() != kept]
    return failures.drop(index=repeats), failures.loc[repeats]


def without_repeated_states(timeline: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Take each state of a job once if several files hold it: accounts of days that overlap.

    Of a state that one file saw begin and another saw end, the ended one is kept. Rows without
    a job are the same only if everything else is equal, too.

    Returns
    -------
    tuple of pandas.DataFrame
        The rows to keep, and those that repeat one of them.
    """
    known = timeline[timeline["start_ns"].notna() & timeline["clock"].eq("epoch")]
    if known["source"].nunique() < 2:
        return timeline, timeline.iloc[:0]
    has_job, ends = known["job"].notna(), known["end_ns"].notna()
    whole = [str(name) for name in known if name not in ("source", "line")]
    repeats = [
        # Files count the attempts of a job from the first one that they know.
        *_held_before(known[has_job & ends], [*_SAME_STATE, "end_ns"]),
        *_held_before(known[~has_job], whole),
    ]
    known = known[has_job].sort_values("end_ns", kind="stable", na_position="last")
    lasting = known.loc[_held_before(known, _SAME_STATE), "end_ns"].isna()
    repeats = sorted({*repeats, *lasting.index[lasting]})
    return timeline.drop(index=repeats), timeline.loc[repeats]


def _held_before(rows: pd.DataFrame, same: Sequence[Hashable]) -> list[int]:
    """Return the rows that equal one of a file before theirs."""
    key = rows.groupby(list(same), dropna=False, sort=False).ngroup()
    first = rows["source"].groupby(key).transform("first")
    return rows.index[rows["source"].ne(first)].tolist()
