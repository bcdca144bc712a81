"""Causes of failures: the share of each, with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from workbench._shared.incidents import fold
from workbench._shared.numbers import share_between, wilson
from workbench.analyze._failures.failure_rows import (
    LEFT_OUT,
    counted,
    doubtful_counts,
    needed,
    reporters,
)
from workbench.errors import WorkbenchError
from workbench.tables import CAUSE_COUNTS, CAUSE_SHARES, FAILURES, INCIDENT_COUNTS

_NOT_RECORDED = "not recorded"


def cause_shares(
    failures: pd.DataFrame,
    *,
    by: str = "cause",
    leave_out: Sequence[str] = LEFT_OUT,
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Count what failed, and say what share of all failures each cause has.

    Shares are computed from the counts, never taken from print: the shares printed with a
    table often do not follow from its counts. They are listed as ``printed_share``.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`, one row per failure, or table
        :data:`workbench.tables.CAUSE_COUNTS`, one row per cause with its count, e.g. from
        :func:`workbench.load.cause_counts`.
    by
        Column that tells failures apart: ``"cause"`` or ``"category"``, for failures of a
        log also another text, such as ``"node"`` or ``"kind"``.
    leave_out
        Severities and categories that are not failures to count. ``attrs["left_out"]`` says how
        many rows (failures) each of them took away.
    confidence_level
        Confidence of the interval.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CAUSE_SHARES`, the most frequent first. The printed
        share of a category is the sum over its causes, missing if one of them is.

    Raises
    ------
    WorkbenchError
        If failures cannot be told apart by ``by``, or an argument is out of range.

    Notes
    -----
    Wilson's score interval: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n) with
    p = count / n. It stays within 0 and 1, also for counts of 0 or 1.

    References
    ----------
    E. B. Wilson, Journal of the American Statistical Association 22 (1927), 209.

    Examples
    --------
    >>> counts = pd.DataFrame({"cause": ["gpu", "network"], "failure_count": [148, 271]})
    >>> shares = cause_shares(CAUSE_COUNTS.cast(counts.assign(category=None, printed_share=None)))
    >>> shares["failure_share"].round(3).tolist()
    [0.647, 0.353]
    """
    confidence = share_between("confidence_level", confidence_level)
    is_counted = "failure_count" in getattr(failures, "columns", ())
    counts, left = (_of_counts if is_counted else _of_rows)(failures, by, leave_out)
    counts = counts.sort_values("failure_count", ascending=False, kind="stable", ignore_index=True)
    count = counts["failure_count"].to_numpy(dtype="int64")
    total = int(count.sum())
    low, high = wilson(count / max(total, 1), total, confidence)
    # Where nothing failed, shares are unknown rather than 0.
    total_or_nan = np.nan if total == 0 else float(total)
    table = counts.assign(
        failure_share=pd.array(count / total_or_nan, dtype="Float64"),
        low_share=np.nan_to_num(low),
        high_share=np.nan_to_num(high, nan=1.0),
        cumulative_share=pd.array(np.minimum(count.cumsum() / total_or_nan, 1.0), dtype="Float64"),
    )
    table = CAUSE_SHARES.cast(table)
    doubts = doubtful_counts(counted(failures, leave_out)[0]) if "kind" in failures else []
    table.attrs = {"left_out": left, "doubts": doubts, "confidence_level": confidence}
    return CAUSE_SHARES.check(table)


def _of_rows(
    failures: pd.DataFrame, by: str, leave_out: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, int]]:
    texts = [name for name, column in FAILURES.columns.items() if column.dtype == "str"]
    if by not in texts:
        msg = f"by={by!r} is no text column of a table of failures; it has {texts}"
        raise WorkbenchError(msg)
    needed(failures, by)
    kept, left = counted(failures, leave_out)
    names = kept[by].astype(object).where(kept[by].notna(), _NOT_RECORDED)
    groups = kept.assign(name_=names.astype(str)).groupby("name_", sort=True)["category"]
    counts = pd.DataFrame({"failure_count": groups.size(), "category": groups.agg(_only)})
    return counts.reset_index(names="cause").assign(printed_share=np.nan), left


def _of_counts(
    table: pd.DataFrame, by: str, leave_out: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, int]]:
    CAUSE_COUNTS.check(table)
    if by not in ("cause", "category"):
        msg = f"by={by!r} is not recorded in a table of counts; it has 'cause' and 'category'"
        raise WorkbenchError(msg)
    category = table["category"].astype(object).where(table["category"].notna(), _NOT_RECORDED)
    planned = category.isin(list(leave_out))
    left = table["failure_count"].groupby(category).sum()[lambda n: n.index.isin(list(leave_out))]
    kept = table[~planned].assign(category=category[~planned])
    groups = kept.groupby(by, sort=False)
    # The printed share of a group is known only if each of its causes has one.
    printed = groups["printed_share"].agg(lambda shares: shares.sum(skipna=False))
    counts = pd.DataFrame(
        {
            "failure_count": groups["failure_count"].sum(),
            "printed_share": printed.astype("Float64"),
            "category_": groups["category"].agg(_only),
        }
    )
    counts = counts.reset_index(names="cause").rename(columns={"category_": "category"})
    return counts, {str(name): int(count) for name, count in left.items()}


def _only(values: pd.Series) -> str | None:
    return str(values.iloc[0]) if values.nunique() == 1 else None


# Incidents: the lines of one burst, counted once.


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
    ``start - latest end so far > window``. The earliest line leads that is not a follow-on: not
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
    [4, 2, 1]
    """
    FAILURES.check(failures)
    return fold(failures, window_s=window_s)


def incident_counts(
    failures: pd.DataFrame, *, windows_s: Iterable[float] = (0, 10, 60, 300, 1800)
) -> pd.DataFrame:
    """Count incidents for several windows: a count that depends on it is not a finding.

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
    if not any(len(frame) for frame in counts):
        FAILURES.check(failures)
        return INCIDENT_COUNTS.empty()
    table = pd.concat([frame for frame in counts if len(frame)], ignore_index=True)
    table = table.sort_values(["window_s", "category"], ignore_index=True)
    return INCIDENT_COUNTS.of(table)


# Whom to believe of several who reported the same failures.


def reported_by(failures: pd.DataFrame, kind: str | None = None) -> pd.DataFrame:
    """Keep the failures that one kind of reporter tells of.

    A GPU that falls off the bus is reported by the kernel, by the scheduler and by the job. Rates
    and shares count every row, so they need one of them.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`.
    kind
        Reporter to believe: ``"kernel"`` (Xid, SXid and amdgpu errors), or a kind such as
        ``"slurm"``; by default the one with the most failures that count (informational,
        planned and follow-on rows do not).

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURES`. ``attrs["left_out"]`` counts the rows of
        other reporters, by kind.

    Raises
    ------
    WorkbenchError
        If nobody of that kind reported.

    Examples
    --------
    >>> len(reported_by(FAILURES.empty()))
    0
    """
    FAILURES.check(failures)
    if failures.empty:
        return failures
    who = reporters(failures["kind"])
    if kind is None:
        rows = counted(failures, LEFT_OUT)[0]
        kind = str(who[rows.index if len(rows) else who.index].value_counts().index[0])
    chosen = (who == kind) | (failures["kind"] == kind)
    if not chosen.any():
        msg = f"no failure was reported by {kind!r}; there are {who.value_counts().to_dict()}"
        raise WorkbenchError(msg)
    kept = failures[chosen].reset_index(drop=True)
    kept.attrs["left_out"] = {
        f"reported by {reporter}": int(n) for reporter, n in who[~chosen].value_counts().items()
    }
    return FAILURES.check(kept)
