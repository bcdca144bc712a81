"""How unequal loads are: of ranks, experts, memory units or micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from workbench.errors import WorkbenchError
from workbench.tables import LOAD_IMBALANCE

Loads: TypeAlias = NDArray[np.float64]


class Measure(NamedTuple):
    """One way to say how unequal loads are."""

    name: str
    formula: str
    source: str
    of: Callable[[Loads], float]
    """The measure of loads that add up to more than 0."""


def _shares(loads: Loads) -> Loads:
    shares: Loads = loads / loads.sum()
    return shares


def _gini(loads: Loads) -> float:
    ordered = np.sort(_shares(loads))
    count = len(ordered)
    return float(ordered @ (2 * np.arange(1, count + 1) - count - 1)) / count


def _variation(loads: Loads) -> float:
    # Not std / mean of the loads themselves: their squares could overflow.
    return float((_shares(loads) * len(loads)).std())


def _chi(loads: Loads) -> float:
    count = len(loads)
    return _variation(loads) ** 2 / (count - 1) if count > 1 else 0.0


def _kl(loads: Loads) -> float:
    count = len(loads)
    shares = _shares(loads)
    shares = shares[shares > 0]
    return float(shares @ np.log(count * shares)) / np.log(count) if count > 1 else 0.0


def _apart(loads: Loads) -> Loads:
    return np.abs(_shares(loads) - 1 / len(loads))


_TORCHREC = "torchrec 1.9.2, distributed/planner/stats.py"
_MEASURES = (
    Measure(
        "max / mean", "max x_i / mean x_i", "common", lambda x: float(_shares(x).max() * len(x))
    ),
    Measure(
        "balancedness",
        "mean x_i / max x_i",
        "SGLang and vLLM, expert balancedness",
        lambda x: float(1 / (_shares(x).max() * len(x))),
    ),
    Measure(
        "MaxVio",
        "(max x_i - mean x_i) / mean x_i",
        "arXiv:2408.15664",
        lambda x: float(_shares(x).max() * len(x)) - 1,
    ),
    Measure(
        "coefficient of variation",
        "population standard deviation / mean",
        "arXiv:1701.06538 (its square is the importance loss)",
        _variation,
    ),
    Measure("Gini", "sum_i sum_j |p_i - p_j| / (2 k)", "Gini 1912", _gini),
    Measure(
        "total variation", "max |p_i - 1/k|", _TORCHREC, lambda x: float(_apart(x).max(initial=0))
    ),
    Measure("total distance", "sum |p_i - 1/k|", _TORCHREC, lambda x: float(_apart(x).sum())),
    Measure("chi divergence", "k sum (p_i - 1/k)^2 / (k - 1)", _TORCHREC, _chi),
    Measure("KL divergence", "sum p_i ln(k p_i) / ln k", _TORCHREC, _kl),
)


def load_imbalance(
    loads: ArrayLike | pd.DataFrame,
    *,
    value: str | None = None,
    by: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Measure how unequal some loads are, in every measure in use.

    The measures answer different questions: ``max / mean`` says how much longer all wait
    for the busiest one, the divergences and Gini say how far from equal the whole is. A
    load of 0 counts: it is an idle rank or expert.

    Parameters
    ----------
    loads
        One number per rank, expert, unit or micro-batch, in any unit, or a frame of them.
    value
        Column of the frame that holds the loads.
    by
        Column or columns of the frame whose values keep loads apart, e.g. ``"layer"``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LOAD_IMBALANCE`, one row per group and measure: the
        value, and what it would be with equal loads and with one load that is everything.
        Columns named in ``by`` are kept.

    Raises
    ------
    WorkbenchError
        If there are no loads, a load is missing, negative or not finite, or all loads (of
        a group) are 0. The message names the first.

    Notes
    -----
    With loads x_i, their shares p_i = x_i / sum x and their number k:
    max / mean from 1 to k; balancedness = mean / max from 1 down to 1 / k;
    MaxVio = (max - mean) / mean from 0 to k - 1; coefficient of variation with the
    population standard deviation, from 0 to sqrt(k - 1); Gini = sum |p_i - p_j| / (2 k)
    from 0 to 1 - 1/k; total variation = max |p_i - 1/k| from 0 to 1 - 1/k; total distance =
    sum |p_i - 1/k| from 0 to 2 (1 - 1/k); chi divergence = k sum (p_i - 1/k)^2 / (k - 1) and
    KL divergence = sum p_i ln(k p_i) / ln k, both from 0 to 1. The last four are those that
    torchrec prints for a plan. All are free of the unit of the loads.

    References
    ----------
    torchrec 1.9.2, ``distributed/planner/stats.py``; arXiv:2408.15664 (MaxVio).

    Examples
    --------
    >>> table = load_imbalance([3, 1]).set_index("measure")
    >>> table.loc[["max / mean", "KL divergence"], "value_ratio"].round(3).tolist()
    [1.5, 0.189]
    """
    groups = list(_groups(loads, value, by))
    if not groups:
        msg = "no loads to compare; pass one number per rank, expert or unit"
        raise WorkbenchError(msg)
    rows: list[dict[str, Any]] = []
    for name, keys, values in groups:
        worst = np.zeros(len(values))
        worst[0] = 1.0
        rows += [
            {
                **keys,
                "group": name,
                "measure": measure.name,
                "value_ratio": max(measure.of(values), 0.0),
                "equal_ratio": max(measure.of(np.ones(len(values))), 0.0),
                "worst_ratio": max(measure.of(worst), 0.0),
                "load_count": len(values),
                "formula": measure.formula,
                "source": measure.source,
            }
            for measure in _MEASURES
        ]
    return LOAD_IMBALANCE.check(pd.DataFrame(rows))


def _groups(
    loads: ArrayLike | pd.DataFrame, value: str | None, by: str | Sequence[str] | None
) -> Iterator[tuple[str, dict[str, Any], Loads]]:
    """Give name, keys and checked loads of every group."""
    if not isinstance(loads, pd.DataFrame):
        yield from _plain(loads, named=value is not None or by is not None)
        return
    keys = [by] if isinstance(by, str) else list(by or [])
    _check_columns(loads, value, keys)
    if not keys:
        if len(loads):
            yield "all", {}, _checked(loads[value], "all")
        return
    if lacking := [key for key in keys if loads[key].isna().any()]:
        msg = f"by= column {lacking} has missing values, so some loads belong to no group"
        raise WorkbenchError(msg)
    for found, rows in loads.groupby(keys, observed=True):
        labels = dict(zip(keys, found, strict=True))
        name = ", ".join(f"{key} {label}" for key, label in labels.items())
        yield name, labels, _checked(rows[value], name)


def _plain(loads: ArrayLike, *, named: bool) -> Iterator[tuple[str, dict[str, Any], Loads]]:
    """Give the one group of loads that are no frame."""
    array = np.asarray(loads)
    if named:
        msg = "value= and by= name columns of a frame; these loads are no frame"
        raise WorkbenchError(msg)
    if array.ndim != 1:
        msg = f"loads have {array.ndim} dimensions, need 1; pass a frame and by= for groups"
        raise WorkbenchError(msg)
    if len(array):
        yield "all", {}, _checked(pd.Series(array), "all")


def _check_columns(frame: pd.DataFrame, value: str | None, keys: list[str]) -> None:
    if value is None:
        msg = f"say with value= which column holds the loads; there are {list(frame.columns)}"
        raise WorkbenchError(msg)
    if missing := [name for name in (value, *keys) if name not in frame]:
        msg = f"the loads have no column {missing}; there are {list(frame.columns)}"
        raise WorkbenchError(msg)
    if taken := sorted({"measure", "group", "formula", "source"} & set(keys)):
        msg = f"by= column {taken} has the name of a column of the result; rename it"
        raise WorkbenchError(msg)


def _checked(loads: pd.Series, group: str) -> Loads:
    """Return the loads as numbers, or name the first that cannot be a load."""
    numbers = pd.to_numeric(loads, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    where = "" if group == "all" else f" of {group}"
    good = np.isfinite(numbers) & (numbers >= 0)
    if not good.all():
        first = int(np.flatnonzero(~good)[0])
        (value,) = loads.iloc[[first]].tolist()
        msg = (
            f"{int((~good).sum()):,} loads{where} are not finite numbers from 0, the first is "
            f"{value!r} at position {first:,}; leave it out or write 0 for idle"
        )
        raise WorkbenchError(msg)
    if not numbers.any():
        msg = f"all {len(numbers):,} loads{where} are 0, so there is nothing to compare"
        raise WorkbenchError(msg)
    # No measure depends on the scale, and sums of numbers up to 1 cannot overflow.
    scaled: Loads = numbers / numbers.max()
    return scaled
