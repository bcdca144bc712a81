"""From one failure of a node to its next, and whether failures come in bursts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from workbench._shared.numbers import Floats, share_between
from workbench.analyze._failures.failure_rows import (
    LEFT_OUT,
    NS_PER_H,
    counted,
    needed,
    observed,
    several_reporters,
    timed,
    with_value,
)
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_GAPS, LIFETIMES, SURVIVAL, WEIBULL

First: TypeAlias = Literal["from the start", "dropped"]


def lifetimes(
    failures: pd.DataFrame,
    nodes: pd.DataFrame,
    *,
    first: First = "from the start",
    groups: Mapping[str, str] | None = None,
    leave_out: Sequence[str] = LEFT_OUT,
) -> pd.DataFrame:
    """Cut the time that nodes were watched at their failures.

    Every segment from one failure of a node to its next is a lifetime. The last one, up to
    the end of the observation, ended without a failure, and so did the only one of a node
    that never failed.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`, with times.
    nodes
        Table :data:`workbench.tables.NODE_SPANS` with all nodes watched, failed or not.
    first
        What becomes of the segment before a node's first failure. It is known only since the
        observation began, not since the failure before. ``"from the start"`` takes it as if the
        node had been new then: exact if nodes fail by chance, and the only way to keep nodes
        that never failed. ``"dropped"`` drops it, and with it every node without a failure, so
        that lives look shorter than they are.
    groups
        Group of each node, e.g. its model or rack; all nodes are one group by default.
    leave_out
        Severities and categories that are not failures to count.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LIFETIMES`: ``node``, ``group``, ``lifetime_h``,
        ``is_failure``, by node and time. Failures of a node at the same instant are one.
        ``attrs["left_out"]`` counts what was not counted.

    Raises
    ------
    WorkbenchError
        If no failure has a time, clocks cannot be compared, a node has no span, or a failure
        lies outside the span of its node.

    Notes
    -----
    The time a node was down is part of its next life: logs of failures do not say when it
    came back.
    """
    if first not in ("from the start", "dropped"):
        msg = f"first={first!r} is neither 'from the start' nor 'dropped'"
        raise WorkbenchError(msg)
    kept, left = counted(needed(failures, "node"), leave_out)
    kept = timed(with_value(kept, "node", "no node", left), left)
    spans = observed(kept, nodes)
    events = pd.DataFrame(
        {"node": kept["node"].astype(str), "at": kept["start_ns"].astype("int64")}
    )
    together = int(events.duplicated().sum())
    if together:
        left["at the same instant as another of the node"] = together
    events = events.drop_duplicates().assign(is_failure=True)
    ends = pd.DataFrame({"node": spans.index, "at": spans["last_ns"], "is_failure": False})
    # At the same instant the failure comes first: the end of the observation censors no life.
    lives = pd.concat([events, ends]).sort_values(
        ["node", "at", "is_failure"], ascending=[True, True, False], ignore_index=True
    )
    since = lives.groupby("node")["at"].shift()
    start = lives["node"].map(spans["first_ns"])
    lives["lifetime_h"] = (lives["at"] - since.fillna(start)).to_numpy(dtype="float64") / NS_PER_H
    keep = lives["is_failure"] | (lives["lifetime_h"] > 0)
    keep &= since.notna() if first == "dropped" else True
    table = lives[keep].assign(group=_group(lives.loc[keep, "node"], groups))
    return LIFETIMES.of(
        table.reset_index(drop=True),
        {"left_out": left, "doubts": several_reporters(counted(failures, leave_out)[0])},
    )


def _group(nodes: pd.Series, groups: Mapping[str, str] | None) -> pd.Series | str:
    if groups is None:
        return "all"
    if missing := sorted(set(nodes) - set(groups)):
        msg = f"groups= has no group for {len(missing):,} nodes, e.g. {missing[0]!r}"
        raise WorkbenchError(msg)
    return nodes.map(dict(groups))


def failure_gaps(
    failures: pd.DataFrame, *, leave_out: Sequence[str] = LEFT_OUT, confidence_level: float = 0.95
) -> pd.DataFrame:
    """Return whether the failures of all nodes together come in bursts.

    Models of goodput let failures come by chance, one independent of the next. In a log
    with bursts the recoveries overlap, and the same number of failures costs less.

    Parameters
    ----------
    failures, leave_out
        As for :func:`lifetimes`.
    confidence_level
        Confidence of the interval.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURE_GAPS`, one row. ``attrs["left_out"]`` counts what
        was not counted.

    Raises
    ------
    WorkbenchError
        If no failure has a time, or clocks cannot be compared.

    Notes
    -----
    The shape k of the Weibull law fitted to the gaps above 0, with its likelihood ratio
    against k = 1; k < 1 means bursts. A rate that changes over weeks gives k < 1, too: look
    at :func:`failure_trend` first.
    """
    confidence = share_between("confidence_level", confidence_level)
    kept, left = counted(failures, leave_out)
    kept = timed(kept, left)
    gaps = np.diff(np.sort(kept["start_ns"].to_numpy(dtype="int64"))) / NS_PER_H
    # A Weibull density has no finite value at a gap of 0 where its shape is below 1.
    apart = gaps[gaps > 0]
    law = fit(apart, np.ones(len(apart), dtype=bool), confidence)
    mean = float(gaps.mean()) if len(gaps) else np.nan
    row = {
        "gap_count": len(gaps),
        "together_count": len(gaps) - len(apart),
        "mean_h": mean,
        "variation_ratio": float(gaps.std()) / mean if len(gaps) > 1 and mean > 0 else np.nan,
    }
    names = ("shape_ratio", "low_shape_ratio", "high_shape_ratio", "p_value_share")
    shapes = (*law[:3], law.p_value) if law else (np.nan,) * len(names)
    return FAILURE_GAPS.of(
        [row | dict(zip(names, shapes, strict=True))],
        {"left_out": left, "doubts": several_reporters(counted(failures, leave_out)[0])},
    )


Band: TypeAlias = Literal["plain", "log-log"]
_BANDS = ("plain", "log-log")


def survival(
    lifetimes: pd.DataFrame, *, band: Band = "plain", confidence_level: float = 0.95
) -> pd.DataFrame:
    """Estimate the share that survives beyond each age, counting those that have not failed yet.

    What was still alive when it was last watched is not thrown away: it lived at least so
    long. Leaving it out, or taking its age for a lifetime, makes everything look worse.

    Parameters
    ----------
    lifetimes
        Table :data:`workbench.tables.LIFETIMES`, e.g. from :func:`lifetimes`.
    band
        ``"plain"``: Greenwood's standard error on both sides, cut at 0 and 1; ``"log-log"``:
        the same on the scale of ln(-ln S), better where few are left.
    confidence_level
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
    confidence = share_between("confidence_level", confidence_level)
    LIFETIMES.check(lifetimes)
    if band not in _BANDS:
        msg = f"band={band!r} is not one of {_BANDS}"
        raise WorkbenchError(msg)
    curves = [
        _curve(rows, band, confidence).assign(group=group)
        for group, rows in lifetimes.groupby("group", sort=True)
    ]
    if not curves:
        return SURVIVAL.empty()
    return SURVIVAL.of(
        pd.concat(curves, ignore_index=True), {**lifetimes.attrs, "confidence_level": confidence}
    )


def weibull(lifetimes: pd.DataFrame, *, confidence_level: float = 0.95) -> pd.DataFrame:
    """Fit the Weibull law to lifetimes, and test it against failures by chance.

    Parameters
    ----------
    lifetimes
        Table :data:`workbench.tables.LIFETIMES`.
    confidence_level
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
    confidence = share_between("confidence_level", confidence_level)
    LIFETIMES.check(lifetimes)
    groups = lifetimes.groupby("group", sort=True)
    return WEIBULL.of([_law(group, lives, confidence) for group, lives in groups])


def _arrays(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    return rows["lifetime_h"].to_numpy(dtype="float64"), rows["is_failure"].to_numpy(dtype=bool)


def _law(group: object, rows: pd.DataFrame, confidence: float) -> dict[str, object]:
    time, failed = _arrays(rows)
    fitted = fit(time, failed, confidence)
    values = fitted or (np.nan,) * 8
    names = ["shape_ratio", "low_shape_ratio", "high_shape_ratio", "scale_h", "low_scale_h"]
    names += ["high_scale_h", "likelihood_ratio", "p_value_share"]
    deaths = int(failed.sum())
    mean = time.sum() / deaths if deaths else np.nan
    row = {"group": group, "lifetime_count": len(rows), "failure_count": deaths}
    return row | {"exponential_mean_h": mean} | dict(zip(names, values, strict=True))


def _curve(rows: pd.DataFrame, band: Band, confidence: float) -> pd.DataFrame:
    time, failed = _arrays(rows)
    ages, at = np.unique(time, return_inverse=True)
    deaths = np.bincount(at, weights=failed, minlength=len(ages))
    gone = np.bincount(at, minlength=len(ages))
    # Who is censored at an age was still at risk at it.
    at_risk = len(time) - np.concatenate([[0], gone.cumsum()[:-1]])
    # Kaplan-Meier.
    share = np.cumprod(1 - deaths / at_risk)
    with np.errstate(divide="ignore"):
        # Greenwood; infinite from the age at which the last one at risk failed.
        terms = np.cumsum(deaths / (at_risk * (at_risk - deaths)))
    low, high = _band(share, terms, band, float(scipy.stats.norm.ppf((1 + confidence) / 2)))
    law = fit(time, failed, confidence)
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
    is_inside = (share < 1) & ~over
    safe = np.where(is_inside, share, 0.5)
    reach = np.exp(z * error / -np.log(safe))
    low, high = np.where(is_inside, (safe**reach, safe ** (1 / reach)), share)
    # All failed: nothing is known but what was known before.
    return np.where(over, 0.0, low), np.minimum.accumulate(np.where(over, 1.0, high))


class Fit(NamedTuple):
    shape: float
    shape_low: float
    shape_high: float
    scale: float
    scale_low: float
    scale_high: float
    likelihood_ratio: float
    p_value: float

    def survival(self, time: Floats) -> Floats:
        share: Floats = np.exp(-((time / self.scale) ** self.shape))
        return share


def fit(time: Floats, failed: NDArray[np.bool_], confidence: float) -> Fit | None:
    """Fit by maximum likelihood; None if fewer than two different times end in a failure.

    The scale has a closed form given the shape, so one equation in the shape remains; its
    left side falls with the shape. Intervals are Wald's in the logarithms of both.
    """
    deaths = int(failed.sum())
    # If all fail at the very last time, the likelihood has no maximum.
    if deaths < 2 or (time[failed] <= 0).any() or (time[failed] >= time.max()).all():
        return None
    # In units of the longest life, where powers of the times stay below 1.
    unit = float(time.max())
    t = time[time > 0] / unit
    log_t = np.log(t)
    mean_log = float(np.log(time[failed] / unit).mean())

    def slope(log_shape: float) -> float:
        shape = np.exp(log_shape)
        power = t**shape
        return float((power @ log_t) / power.sum() - 1 / shape - mean_log)

    low, high = -10.0, 10.0
    if slope(low) >= 0 or slope(high) <= 0:
        return None
    shape = float(np.exp(scipy.optimize.brentq(slope, low, high, xtol=1e-13)))
    power = t**shape
    scale = float((power.sum() / deaths) ** (1 / shape))
    gain = 2 * (
        _likelihood(shape, scale, deaths, mean_log, power.sum())
        - _likelihood(1.0, float(t.sum()) / deaths, deaths, mean_log, float(t.sum()))
    )
    gain = max(float(gain), 0.0)
    spread = np.sqrt(np.diag(np.linalg.inv(_information(shape, scale, t, deaths))))
    reach = np.exp(float(scipy.stats.norm.ppf((1 + confidence) / 2)) * spread)
    return Fit(
        shape, shape / reach[0], shape * reach[0],
        scale * unit, scale * unit / reach[1], scale * unit * reach[1],
        gain, float(scipy.stats.chi2.sf(gain, 1)),
    )  # fmt: skip


def _likelihood(
    shape: float, scale: float, deaths: int, mean_log: float, power_sum: float
) -> float:
    return float(
        deaths * (np.log(shape / scale) + (shape - 1) * (mean_log - np.log(scale)))
        - power_sum / scale**shape
    )


def _information(shape: float, scale: float, t: Floats, deaths: int) -> Floats:
    log_z = shape * np.log(t / scale)
    z = np.exp(log_z)
    # With a = ln shape and b = ln scale: ln z = e^a (ln t - b), the rest is linear in a and b
    # but for the sum of (e^a - 1)(ln t - b), whose derivatives vanish with those of z at the
    # maximum.
    shape_shape = float((z * log_z**2).sum() + deaths)
    scale_shape = -shape * float((z * log_z).sum())
    return np.array([[shape_shape, scale_shape], [scale_shape, shape**2 * deaths]])
