"""Incidents: the lines of one burst, counted once."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from workbench._incidents import fold
from workbench.tables import FAILURES, INCIDENT_COUNTS


def incidents(failures: pd.DataFrame, *, window_s: float = 300.0) -> pd.DataFrame:
    """Fold the lines of each burst into one incident, by a window of one's choice.

    A fault of a GPU is reported in tens of lines, under several codes and by its neighbours, a
    hang by every rank. Lines of one host, and those of all ranks of a job, belong together as
    long as none follows the one before by more than the window; what another reporter says
    folds only if it says the same.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES` as :func:`workbench.load.failures` gives it with
        ``window_s=0``. Rows that were folded by a longer window stay as they are.
    window_s
        Longest pause inside an incident, in s; 0 folds nothing.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURES` in order of time; rows without a time are last,
        and only those of ranks are folded.

    Raises
    ------
    TableError
        If ``failures`` is not that table.
    ValueError
        If ``window_s`` is negative or no number.

    Notes
    -----
    Single linkage: sorted by host (or job, or file) and time, a new incident begins where
    ``start - latest end so far > window``. The earliest line leads that is no follow-on: not
    Xid 45 (clean-up) or 154 (recovery action), and 43 (stopped processing) only if it is the
    first. The severity is the worst of all lines. A follow-on with nothing before it within
    the window becomes a failure of unknown trigger. Files in which a job has no name are
    those of one job if no rank is in two of them; ranks that report without a time are folded
    until one of them repeats itself.

    Examples
    --------
    >>> from workbench import datasets, load
    >>> path = datasets.path("fleet-demo") / "failures" / "synthetic_node001_kernel.log"
    >>> lines = load.failures(path, window_s=0).failures
    >>> [len(incidents(lines, window_s=window)) for window in (0, 1, 60)]
    [3, 2, 1]
    """
    FAILURES.check(failures)
    return fold(failures, window_s=window_s)


def incident_counts(
    failures: pd.DataFrame, *, windows_s: Iterable[float] = (0, 10, 60, 300, 1800)
) -> pd.DataFrame:
    """Count incidents for several windows: a count that depends on it is no finding.

    Parameters
    ----------
    failures
        As for :func:`incidents`.
    windows_s
        Longest pauses inside an incident, in s.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INCIDENT_COUNTS`: ``window_s``, ``category``,
        ``incident_count``, ``line_count``, in order of window and name.

    Raises
    ------
    TableError
        If ``failures`` is not that table.
    ValueError
        If a window is negative or no number.
    """
    counts = []
    for window in dict.fromkeys(windows_s):
        folded = incidents(failures, window_s=window)
        by_category = folded.groupby("category", sort=True)["line_count"].agg(["size", "sum"])
        by_category = by_category.set_axis(["incident_count", "line_count"], axis=1)
        counts.append(by_category.reset_index().assign(window_s=float(window)))
    if not any(len(each) for each in counts):
        FAILURES.check(failures)
        return INCIDENT_COUNTS.empty()
    table = pd.concat([each for each in counts if len(each)], ignore_index=True)
    table = table.sort_values(["window_s", "category"], ignore_index=True)
    return INCIDENT_COUNTS.check(INCIDENT_COUNTS.cast(table))
