"""What failed: every cause's share of the failures, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from workbench._numbers import share_between
from workbench.analyze._failures.failure_rows import LEFT_OUT, counted, doubtful_counts, needed
from workbench.errors import WorkbenchError
from workbench.tables import CAUSE_COUNTS, CAUSE_SHARES, FAILURES

_NOT_RECORDED = "not recorded"


def cause_shares(
    failures: pd.DataFrame,
    *,
    by: str = "cause",
    leave_out: Sequence[str] = LEFT_OUT,
    confidence_share: float = 0.95,
) -> pd.DataFrame:
    """Count what failed, and say what share of all failures each cause has.

    Shares are worked out from the counts, never taken from print: the shares printed with a
    table often do not follow from its counts. They stand beside as ``printed_share``.

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
        Severities and categories that are no failures to count. ``attrs["left_out"]`` says how
        many rows (failures) each of them took away.
    confidence_share
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
    confidence = share_between("confidence_share", confidence_share)
    is_counted = "failure_count" in getattr(failures, "columns", ())
    counts, left = (_of_counts if is_counted else _of_rows)(failures, by, leave_out)
    counts = counts.sort_values("failure_count", ascending=False, kind="stable", ignore_index=True)
    count = counts["failure_count"].to_numpy(dtype="int64")
    total = int(count.sum())
    low, high = _wilson(count, total, confidence)
    whole = np.nan if total == 0 else float(total)
    table = counts.assign(
        failure_share=pd.array(count / whole, dtype="Float64"),
        low_share=low,
        high_share=high,
        cumulative_share=pd.array(np.minimum(count.cumsum() / whole, 1.0), dtype="Float64"),
    )
    table = CAUSE_SHARES.cast(table)
    doubts = doubtful_counts(counted(failures, leave_out)[0]) if "kind" in failures else []
    table.attrs = {"left_out": left, "doubts": doubts, "confidence_share": confidence}
    return CAUSE_SHARES.check(table)


def _of_rows(
    failures: pd.DataFrame, by: str, leave_out: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Count the rows of a table of failures."""
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
    """Add up a table of counts."""
    CAUSE_COUNTS.check(table)
    if by not in ("cause", "category"):
        msg = f"by={by!r} is not recorded in a table of counts; it has 'cause' and 'category'"
        raise WorkbenchError(msg)
    category = table["category"].astype(object).where(table["category"].notna(), _NOT_RECORDED)
    planned = category.isin(list(leave_out))
    left = table["failure_count"].groupby(category).sum()[lambda n: n.index.isin(list(leave_out))]
    kept = table[~planned].assign(category=category[~planned])
    groups = kept.groupby(by, sort=False)
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
    """Return the one value of a group, None if there are several."""
    return str(values.iloc[0]) if values.nunique() == 1 else None


def _wilson(
    count: NDArray[np.int64], total: int, confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if total == 0:
        return np.zeros(len(count)), np.ones(len(count))
    z = float(stats.norm.ppf((1 + confidence) / 2))
    share = count / total
    middle = share + z * z / (2 * total)
    reach = z * np.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return np.maximum((middle - reach) / scale, 0.0), np.minimum((middle + reach) / scale, 1.0)
