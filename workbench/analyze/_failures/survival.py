"""How long nodes or parts live until they fail, although most are still alive."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from workbench._numbers import share_between
from workbench.analyze._failures import weibull as _weibull
from workbench.errors import WorkbenchError
from workbench.tables import LIFETIMES, SURVIVAL, WEIBULL

Band: TypeAlias = Literal["plain", "log-log"]
_BANDS = ("plain", "log-log")


def survival(
    lifetimes: pd.DataFrame, *, band: Band = "plain", confidence_share: float = 0.95
) -> pd.DataFrame:
    """Say what share lives beyond each age, counting those that have not failed yet.

    What was still alive when it was last watched is not thrown away: it lived at least so
    long. Leaving it out, or taking its age for a lifetime, makes everything look worse.

    Parameters
    ----------
    lifetimes
        Table :data:`workbench.tables.LIFETIMES`, e.g. from :func:`lifetimes`.
    band
        ``"plain"``: Greenwood's standard error on both sides, cut at 0 and 1; ``"log-log"``:
        the same on the scale of ln(-ln S), better where few are left.
    confidence_share
        Confidence of the band, at each age for itself.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.SURVIVAL`, by group and age. Before the first age all
        live. ``weibull_share`` is the law of :func:`weibull`, missing where none fits.

    Raises
    ------
    WorkbenchError
        If an argument is out of range.
    TableError
        If the lifetimes do not fit their table.

    Notes
    -----
    With n_i at risk and d_i failures at age t_i: S = Π(1 - d_i / n_i) and
    Var S = S² Σ d_i / (n_i (n_i - d_i)). What is censored at an age at which others fail is
    still at risk then. Once the last one has failed, the plain band has no width and the
    log-log band is that of the age before, down to 0.

    References
    ----------
    E. L. Kaplan, P. Meier, Journal of the American Statistical Association 53 (1958), 457.

    Examples
    --------
    >>> ages = pd.DataFrame({"lifetime_h": [1.0, 2, 3, 4], "is_failure": [True, False, True, True]})
    >>> survival(ages.assign(node="a", group="all"))["survival_share"].tolist()
    [0.75, 0.75, 0.375, 0.0]
    """
    confidence = share_between("confidence_share", confidence_share)
    LIFETIMES.check(lifetimes)
    if band not in _BANDS:
        msg = f"band={band!r} is none of {_BANDS}"
        raise WorkbenchError(msg)
    parts = [
        _curve(rows, band, confidence).assign(group=group)
        for group, rows in lifetimes.groupby("group", sort=True)
    ]
    if not parts:
        return SURVIVAL.empty()
    table = SURVIVAL.cast(pd.concat(parts, ignore_index=True))
    table.attrs = {**lifetimes.attrs, "confidence_share": confidence}
    return SURVIVAL.check(table)


def weibull(lifetimes: pd.DataFrame, *, confidence_share: float = 0.95) -> pd.DataFrame:
    """Fit the Weibull law to lifetimes, and test it against failures by chance.

    Parameters
    ----------
    lifetimes
        Table :data:`workbench.tables.LIFETIMES`.
    confidence_share
        Confidence of the intervals.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.WEIBULL`, one row per group. Nothing is fitted to fewer
        than two failures, nor where something failed at the age of 0.

    Raises
    ------
    WorkbenchError
        If the confidence is out of range.
    TableError
        If the lifetimes do not fit their table.

    Notes
    -----
    S(t) = exp(-(t/l)^k). Maximises Σ_failed [ln(k/l) + (k-1) ln(t/l)] - Σ_all (t/l)^k in
    ln k and ln l; intervals are Wald's there. The likelihood ratio against k = 1 is held
    against χ² with one degree of freedom.

    References
    ----------
    W. Nelson, Applied Life Data Analysis, Wiley 1982.

    Examples
    --------
    >>> ages = pd.DataFrame({"lifetime_h": [1.0, 2, 3, 4], "is_failure": [True, False, True, True]})
    >>> weibull(ages.assign(node="a", group="all"))["shape_ratio"].round(3).tolist()
    [2.599]
    """
    confidence = share_between("confidence_share", confidence_share)
    LIFETIMES.check(lifetimes)
    rows = [_law(group, each, confidence) for group, each in lifetimes.groupby("group", sort=True)]
    return WEIBULL.check(WEIBULL.cast(pd.DataFrame(rows, columns=list(WEIBULL.columns))))


def _arrays(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    return rows["lifetime_h"].to_numpy(dtype="float64"), rows["is_failure"].to_numpy(dtype=bool)


def _law(group: object, rows: pd.DataFrame, confidence: float) -> dict[str, object]:
    time, failed = _arrays(rows)
    fitted = _weibull.fit(time, failed, confidence)
    values = fitted or (np.nan,) * 8
    names = ["shape_ratio", "low_shape_ratio", "high_shape_ratio", "scale_h", "low_scale_h"]
    names += ["high_scale_h", "likelihood_ratio", "p_value_share"]
    deaths = int(failed.sum())
    return {
        "group": group,
        "lifetime_count": len(rows),
        "failure_count": deaths,
        "exponential_mean_h": time.sum() / deaths if deaths else np.nan,
        **dict(zip(names, values, strict=True)),
    }


def _curve(rows: pd.DataFrame, band: Band, confidence: float) -> pd.DataFrame:
    """Return the curve of one group."""
    time, failed = _arrays(rows)
    ages, at = np.unique(time, return_inverse=True)
    deaths = np.bincount(at, weights=failed, minlength=len(ages))
    gone = np.bincount(at, minlength=len(ages))
    at_risk = len(time) - np.concatenate([[0], gone.cumsum()[:-1]])
    share = np.cumprod(1 - deaths / at_risk)
    with np.errstate(divide="ignore"):
        terms = np.cumsum(deaths / (at_risk * (at_risk - deaths)))
    low, high = _band(share, terms, band, float(stats.norm.ppf((1 + confidence) / 2)))
    law = _weibull.fit(time, failed, confidence)
    return pd.DataFrame(
        {
            "time_h": ages,
            "at_risk_count": at_risk,
            "failure_count": deaths,
            "censored_count": gone - deaths,
            "survival_share": share,
            "low_share": low,
            "high_share": high,
            "weibull_share": law.survival(ages) if law else np.nan,
        }
    )


def _band(
    share: NDArray[np.float64], terms: NDArray[np.float64], band: Band, z: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the band; ``terms`` are the sums of d / (n (n - d)), infinite once all failed."""
    over = share <= 0
    error = np.sqrt(np.where(over, 0.0, terms))
    if band == "plain":
        return np.clip(share - z * share * error, 0, 1), np.clip(share + z * share * error, 0, 1)
    some = (share < 1) & ~over
    safe = np.where(some, share, 0.5)
    reach = np.exp(z * error / -np.log(safe))
    low, high = safe**reach, safe ** (1 / reach)
    low, high = np.where(some, low, share), np.where(some, high, share)
    # All failed: nothing is known but what was known before.
    return np.where(over, 0.0, low), np.minimum.accumulate(np.where(over, 1.0, high))
