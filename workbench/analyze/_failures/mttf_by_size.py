"""How the time to failure of a job shrinks as the job grows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from workbench._numbers import share_between, whole_number
from workbench.analyze._failures.failure_rows import poisson_interval
from workbench.errors import WorkbenchError
from workbench.tables import MTTF_BY_SIZE

_KINDS = ("measured", "projected")
_MOST_STEPS, _CLOSE = 100, 1e-10


def mttf_by_size(
    sizes: pd.DataFrame, *, gpus_per_node: int = 8, confidence_share: float = 0.95
) -> pd.DataFrame:
    """Set the time to failure of jobs of several sizes beside the 1/N law.

    If every GPU is as likely to fail, a job of twice the size fails twice as often: then
    ``per_1000_node_days`` is the same in every row, and ``slope_ratio`` is 1.

    Parameters
    ----------
    sizes
        One row per size: ``gpu_count``, and either ``failure_count`` and ``exposure_h`` (how
        long jobs of that size ran, added up), as in table
        :data:`workbench.tables.JOB_SIZES`, or ``mttf_h`` where only that is known, as in
        papers. ``kind`` is measured (the default) or projected. Other columns are ignored.
    gpus_per_node
        GPUs in one node.
    confidence_share
        Confidence of the intervals.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MTTF_BY_SIZE`, by size. The slope needs measured rows of
        two sizes with counts, and a failure in them.

    Raises
    ------
    WorkbenchError
        If a column is missing, a size, time or count is not what it should be, or counts and
        mean time to failure contradict each other.

    Notes
    -----
    MTTF = exposure / failures, with the exact Poisson interval of the failures. The slope b
    is that of the Poisson regression ln E[failures] = ln exposure + a + b ln GPUs over the
    measured rows, found by Newton's method, with Wald's interval. Per 1,000 node-days:
    1000 · 24 · gpus_per_node / (gpu_count · MTTF).

    References
    ----------
    Published points: arXiv:2410.21680 (Meta RSC).

    Examples
    --------
    >>> points = pd.DataFrame({"gpu_count": [8, 1024], "mttf_h": [1144.8, 7.9]})
    >>> mttf_by_size(points)["per_1000_node_days"].round(1).tolist()
    [21.0, 23.7]
    """
    confidence = share_between("confidence_share", confidence_share)
    node = whole_number("gpus_per_node", gpus_per_node, least=1)
    table = _checked(sizes)
    counts, exposure = table["failure_count"], table["exposure_h"]
    failed = counts.mask(counts == 0)
    mttf = table["mttf_h"].astype("Float64").fillna(exposure / failed)
    low, high = poisson_interval(counts.to_numpy("float64", na_value=np.nan), confidence)
    low_count = pd.Series(low).astype("Float64").mask(counts.isna() | (counts == 0))
    slope = _slope(table[counts.notna() & (table["kind"] == "measured")], confidence)
    table = table.assign(
        mttf_h=mttf,
        low_mttf_h=exposure / pd.Series(high).astype("Float64"),
        high_mttf_h=exposure / low_count,
        per_1000_node_days=1000 * 24 * node / (table["gpu_count"] * mttf),
        slope_ratio=slope[0],
        low_slope_ratio=slope[1],
        high_slope_ratio=slope[2],
    ).sort_values(["gpu_count", "kind"], kind="stable", ignore_index=True)
    table = MTTF_BY_SIZE.cast(table)
    table.attrs = {**sizes.attrs, "confidence_share": confidence}
    return MTTF_BY_SIZE.check(table)


def _checked(sizes: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in their dtypes, or say what is wrong with the first bad row."""
    has_counts = {"failure_count", "exposure_h"} <= set(sizes)
    if "gpu_count" not in sizes or not (has_counts or "mttf_h" in sizes):
        msg = (
            "sizes need the column gpu_count, and failure_count with exposure_h, or mttf_h; "
            f"there is {list(sizes.columns)}"
        )
        raise WorkbenchError(msg)
    table = pd.DataFrame(
        {
            name: pd.Series(
                pd.to_numeric(sizes[name], errors="coerce") if name in sizes else np.nan,
                index=sizes.index,
            ).astype("Float64")
            for name in ("gpu_count", "failure_count", "exposure_h", "mttf_h")
        }
    ).reset_index(drop=True)
    kinds = sizes["kind"].tolist() if "kind" in sizes else ["measured"] * len(sizes)
    table["kind"] = pd.Series(kinds, dtype=pd.Series(["text"]).dtype)
    counted = table["failure_count"].notna()
    rules = {
        "gpu_count is no whole number from 1": _whole(table["gpu_count"], 1),
        f"kind is none of {_KINDS}": table["kind"].isin(_KINDS),
        "failure_count is no whole number from 0": ~counted | _whole(table["failure_count"], 0),
        "exposure_h is not above 0": ~counted | (table["exposure_h"] > 0).fillna(value=False),
        "neither failure_count nor a mttf_h above 0 is given": counted
        | (table["mttf_h"] > 0).fillna(value=False),
        "mttf_h is not exposure_h / failure_count; leave it out": _agrees(table),
    }
    for rule, good in rules.items():
        if not good.all():
            row = int((~good.to_numpy(dtype=bool)).argmax())
            msg = f"row {row} (of {int(table['gpu_count'].fillna(0)[row]):,} GPUs): {rule}"
            raise WorkbenchError(msg)
    return table.astype({"gpu_count": "Int64", "failure_count": "Int64"})


def _whole(values: pd.Series, least: int) -> pd.Series:
    return ((values >= least) & (values % 1 == 0)).fillna(value=False).astype(bool)


def _agrees(table: pd.DataFrame) -> pd.Series:
    both = table["failure_count"].notna() & table["mttf_h"].notna()
    product = table["mttf_h"] * table["failure_count"]
    apart = (product - table["exposure_h"]).abs() > 0.01 * table["exposure_h"]
    return ~(both & apart.fillna(value=False))


def _slope(rows: pd.DataFrame, confidence: float) -> tuple[float, float, float]:
    """Return the power with which failures grow with size, and its interval; else NaN."""
    unknown = (np.nan, np.nan, np.nan)
    if rows["gpu_count"].nunique() < 2 or not (rows["failure_count"] > 0).any():
        return unknown
    size = np.log(rows["gpu_count"].to_numpy(dtype="float64"))
    count = rows["failure_count"].to_numpy(dtype="float64")
    exposure = rows["exposure_h"].to_numpy(dtype="float64")
    middle = float(np.average(size, weights=exposure))
    fitted = _newton(np.column_stack([np.ones(len(size)), size - middle]), count, exposure)
    if fitted is None:
        return unknown
    slope, error = fitted
    reach = float(stats.norm.ppf((1 + confidence) / 2)) * error
    return slope, slope - reach, slope + reach


def _newton(
    design: NDArray[np.float64], count: NDArray[np.float64], exposure: NDArray[np.float64]
) -> tuple[float, float] | None:
    """Fit the Poisson regression; None where the likelihood has no maximum."""
    beta = np.array([np.log(count.sum() / exposure.sum()), 0.0])
    for _ in range(_MOST_STEPS):
        mean = exposure * np.exp(design @ beta)
        information = (design.T * mean) @ design
        if not np.isfinite(information).all() or np.linalg.cond(information) > 1 / _CLOSE:
            return None
        step = np.linalg.solve(information, design.T @ (count - mean))
        # Half a unit at most: exp() of a whole step may overflow far from the maximum.
        beta = beta + step * min(1.0, 0.5 / max(float(np.abs(step).max()), 0.5))
        if np.abs(step).max() < _CLOSE:
            return float(beta[1]), float(np.sqrt(np.linalg.inv(information)[1, 1]))
    return None
