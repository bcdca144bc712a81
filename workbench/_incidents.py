"""Fold the lines of one burst into one incident: shared by loaders and analyses."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._follow_ons import FOLLOW_ON, KERNEL_KINDS, is_told_as_alone, with_lone_follow_ons
from workbench._incident_keys import fold_keys, is_job_wide
from workbench._incident_members import members
from workbench.tables import FAILURES

SECOND = 1_000_000_000
# "GPU stopped processing" comes first if the job itself is at fault, and late if it suffers.
_LATE = ("xid", "43")
_WORST = ("fatal", "warning", "unknown", "info")
_NEVER_NS = 1 << 62


def fold(failures: pd.DataFrame, *, window_s: float) -> pd.DataFrame:
    """Fold rows that follow each other within ``window_s`` into incidents.

    All devices of a node, and all ranks of a job, are one incident. A follow-on with nothing
    before it becomes a failure of unknown trigger.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`, single lines or folded by a shorter window.
    window_s
        Longest pause inside an incident, in s. 0 folds nothing: every line is a row.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURES` in order of time, rows without a time last.

    Raises
    ------
    ValueError
        If ``window_s`` is negative or no number.
    """
    window_ns = _window_ns(window_s)
    rows = failures.reset_index(drop=True)
    if rows.empty:
        return FAILURES.check(FAILURES.cast(rows))
    start, end = _nanoseconds(rows["start_ns"]), _nanoseconds(rows["end_ns"])
    end = np.where(rows["end_ns"].isna(), start, np.maximum(start, end))
    key = fold_keys(rows)
    order = np.lexsort((rows["line"], pd.factorize(rows["source"])[0], start, key))
    rows, start, end, key = rows.iloc[order], start[order], end[order], key[order]
    # The latest end so far of the same key, up to the row before.
    reach = pd.Series(end).groupby(key).cummax().to_numpy()
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (key[1:] != key[:-1]) | (start[1:] - reach[:-1] > window_ns)
    alone = rows["start_ns"].isna() & ~is_job_wide(rows)
    is_new |= alone.to_numpy() | (window_ns == 0)
    folded = _incidents(rows.reset_index(drop=True), end, np.cumsum(is_new) - 1, is_new)
    return with_lone_follow_ons(folded, window_ns) if window_ns else folded


def at_once(failures: pd.DataFrame, *, most: int, within_s: float) -> np.ndarray:
    """Mark incidents of which more than ``most`` begin within some seconds.

    Only those of one reporter are compared, and only those that count: several reporters tell
    of one failure by design.
    """
    counted = ~failures["category"].isin(["planned", FOLLOW_ON]) & failures["severity"].ne("info")
    counted &= failures["start_ns"].notna()
    who = failures["kind"].where(~failures["kind"].isin(KERNEL_KINDS), "kernel")
    crowded = np.zeros(len(failures), dtype=bool)
    for _, rows in pd.DataFrame({"who": who, "clock": failures["clock"]})[counted].groupby(
        ["who", "clock"]
    ):
        place = failures.index.get_indexer(rows.index)
        start = _nanoseconds(failures["start_ns"])[place]
        place, start = place[np.argsort(start, kind="stable")], np.sort(start)
        until = np.searchsorted(start, start + round(within_s * SECOND), side="right")
        begins = np.flatnonzero(until - np.arange(len(start)) > most)
        change = np.zeros(len(start) + 1, dtype=np.int64)
        np.add.at(change, begins, 1)
        np.add.at(change, until[begins], -1)
        crowded[place[np.cumsum(change[:-1]) > 0]] = True
    return crowded


def _window_ns(window_s: float) -> int:
    given: object = window_s
    is_number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    if not is_number or not np.isfinite(window_s) or window_s < 0:
        msg = f"window_s must be a number of seconds, 0 or more; got {window_s!r}"
        raise ValueError(msg)
    return min(round(float(window_s) * SECOND), _NEVER_NS)


def _nanoseconds(times: pd.Series) -> np.ndarray:
    return times.fillna(0).to_numpy(dtype="int64")


def _incidents(
    rows: pd.DataFrame, end: np.ndarray, incident: np.ndarray, is_first: np.ndarray
) -> pd.DataFrame:
    """Make one row of each incident; ``rows`` are in order of incident and time."""
    lead = rows.iloc[_leaders(rows, incident, is_first)].reset_index(drop=True)
    grouped = rows.groupby(incident, sort=True)
    has_time = lead["start_ns"].notna()
    known = rows["severity"].where(rows["severity"].isin(_WORST), "unknown")
    worst = pd.Series(known.map(_WORST.index)).groupby(incident).min()
    lead = lead.assign(
        start_ns=rows["start_ns"][is_first].reset_index(drop=True),
        end_ns=pd.Series(end).groupby(incident).max().astype("Int64").where(has_time),
        line_count=grouped["line_count"].sum().to_numpy(dtype="int64"),
        other_codes=_other_codes(rows, incident, lead),
        severity=[_WORST[code] for code in worst],
        **members(rows, incident, lead),
    )
    by_time = np.lexsort((lead["line"], _nanoseconds(lead["start_ns"]), ~has_time))
    lead = lead.iloc[by_time].reset_index(drop=True)
    extras = [name for name in lead if name not in FAILURES.columns]
    return FAILURES.check(pd.concat([FAILURES.cast(lead), lead[extras]], axis=1))


def _leaders(rows: pd.DataFrame, incident: np.ndarray, is_first: np.ndarray) -> np.ndarray:
    """Find the row that leads each incident: the earliest that is no follow-on."""
    is_late = (rows["kind"] == _LATE[0]) & (rows["code"] == _LATE[1]) & ~is_first
    # Processes crash because of a GPU more often than the other way round.
    is_late |= (rows["kind"] == "kernel") & (rows["category"] == "software")
    follows = (rows["category"] == FOLLOW_ON) | is_late
    follows |= is_told_as_alone(rows)
    order = np.lexsort((np.arange(len(rows)), follows, incident))
    return order[np.flatnonzero(np.diff(incident[order], prepend=-1))]


def _other_codes(rows: pd.DataFrame, incident: np.ndarray, lead: pd.DataFrame) -> list[str]:
    """List the codes of each incident besides that of its leader."""
    pairs = pd.DataFrame(
        {"incident": incident, "code": rows["code"], "others": rows["other_codes"]}
    ).drop_duplicates()
    pairs = pairs[pairs["incident"].duplicated(keep=False) | (pairs["others"] != "")]
    codes: dict[int, set[str]] = {}
    for number, code, others in pairs.itertuples(index=False, name=None):
        mine = codes.setdefault(number, set())
        mine.update(each for each in others.split(", ") if each)
        if not pd.isna(code):
            mine.add(code)
    found, leading = [""] * len(lead), lead["code"].tolist()
    for number, mine in codes.items():
        found[number] = ", ".join(sorted(mine - {leading[number]}, key=_in_order))
    return found


def _in_order(code: str) -> tuple[int, str]:
    return (int(code) if code.isdecimal() and len(code) < 18 else _NEVER_NS, code)
